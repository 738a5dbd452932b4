/* large.c: wrapper large: a codec for large tensors, and another (fp32) for those that are not worth it. Alistarh et al., NeurIPS 2017, skip layers of fewer than 10000 elements
   and still quantise more than 99 % of the parameters; biases and norms, which decide how a layer behaves, travel exactly. */
#include "codec_internal.h"
#include "registry.h"

typedef struct large { const char *codec, *small; int64_t min; } large;
static const tutti_option options[] = {
    { "codec", TUTTI_SPEC, TUTTI_AT(large, codec), 0, 0, 0, "", "of tensors of at least `min` elements" },
    { "min", TUTTI_INT, TUTTI_AT(large, min), 1024, 0, 1e12, NULL, "elements from which on a tensor is large" },
    { "small", TUTTI_SPEC, TUTTI_AT(large, small), 0, 0, 0, "fp32", "codec of smaller tensors" },
    { 0 }
};

static unsigned traits(const tutti_codec *c)
{
    const unsigned a = tutti_codec_traits(c->inner[0]), b = tutti_codec_traits(c->inner[1]);

    return (a & b) | ((a | b) & (TUTTI_CODEC_WHOLE_TENSOR | TUTTI_CODEC_MERGES));
}

static tutti_codec *choose(tutti_codec *c, const tutti_view *v)
{
    const large *s = c->self;
    const size_t count = v->tensor >= 0 ? c->space->tensor[v->tensor].count : v->count;

    return c->inner[count >= (size_t)s->min ? 0 : 1];
}

const tutti_codec_ops tutti_codec_large = {
    .name = "large", .paper = "Alistarh et al., NeurIPS 2017, section 5", .help = "a codec for large tensors only",
    .options = options, .self_bytes = sizeof(large), .traits = traits, .choose = choose,
};
