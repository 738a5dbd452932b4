/* int8.c: codec int8: a sign and seven bits of |x| / max|x| an element, to the nearest level; one
   float scale a bucket. Deterministic; the greatest element is exact and no element is off by more
   than itself, hence contractive. n + 4 ceil(n / bucket) bytes. */
#include "codec_internal.h"
#include "registry.h"

static const tutti_option options[] = {
    { "bucket", TUTTI_INT, TUTTI_AT(tutti_codec_quantiser, bucket), 2048, 16, 1 << 24, NULL,
      "elements with a scale of their own; rounded up to a multiple of 8" },
    { 0 }
};

static unsigned traits(const tutti_codec *c)
{
    (void)c;
    return TUTTI_CODEC_CONTRACTIVE | TUTTI_CODEC_FIXED;
}

static void declare(tutti_codec *c, tutti_plan *plan)
{
    tutti_codec_quantiser *q = c->self;

    (void)plan;
    q->bits = 8;
    q->nearest = true;
    q->bucket = (q->bucket + 7) / 8 * 8;
}

const tutti_codec_ops tutti_codec_int8 = {
    .name = "int8",
    .paper = "after Dettmers, ICLR 2016",
    .help = "8 bits an element, scaled by the bucket's greatest magnitude, to the nearest",
    .options = options,
    .self_bytes = sizeof(tutti_codec_quantiser),
    .traits = traits,
    .declare = declare,
    TUTTI_CODEC_QUANTISED,
};
