/* threshold.c: codec threshold: the elements of at least a given magnitude. Aji and Heafield, EMNLP 2017 (with their threshold fixed). 8 bytes each;
   how many is known from the size of the message. */
#include "codec_internal.h"
#include "registry.h"

typedef struct threshold { double value; } threshold;
static const tutti_option options[] = {
    { "value", TUTTI_REAL, TUTTI_AT(threshold, value), 0.001, 1e-30, 1e30, NULL, "least magnitude that is sent" },
    { 0 }
};

static unsigned traits(const tutti_codec *c)
{
    (void)c;
    return 0; /* it may send nothing */
}

static size_t all(const tutti_codec *c, const tutti_view *v)
{
    (void)c;
    return 8 * v->count;
}

static size_t encode(tutti_codec *c, const tutti_view *v, const float *x, void *scratch, uint8_t *out)
{
    uint32_t *index = scratch;
    float *value = (float *)scratch + v->count;
    const uint32_t key = tutti_magnitude_key((float)((const threshold *)c->self)->value);

    return tutti_codec_sparse_put(tutti_select_above(c->space->device, v->count, x, key, v->count, index, value), index, value, out);
}

static tutti_status decode_add(tutti_codec *c, const tutti_view *v, const uint8_t *in, size_t bytes, float a, float *y, tutti_error *err)
{
    if (bytes % 8 != 0 || bytes / 8 > v->count)
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0, "codec 'threshold': a message of %zu bytes for %zu elements; it should be a multiple of 8 and at "
                          "most %zu; do both workers run the same codec?", bytes, v->count, 8 * v->count);
    return tutti_codec_sparse_add(c, v, bytes / 8, in, a, y, err);
}

const tutti_codec_ops tutti_codec_threshold = {
    .name = "threshold", .paper = "Aji and Heafield, EMNLP 2017", .help = "the elements of at least a given magnitude",
    .options = options, .self_bytes = sizeof(threshold), .traits = traits, .scratch = all, .bound = all, .encode = encode, .decode_add = decode_add,
};
