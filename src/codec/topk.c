/* topk.c: codec topk: the k greatest magnitudes, of equal ones the lowest indexes. Stich, Cordonnier and Jaggi, NeurIPS 2018. Exact selection:
   |x - decoded|^2 <= (1 - k/n) |x|^2 always. 8 k bytes: indexes, then values. */
#include "codec_internal.h"
#include "registry.h"

typedef struct topk { double ratio; } topk;
static const tutti_option options[] = {
    { "ratio", TUTTI_REAL, TUTTI_AT(topk, ratio), 0.01, 1e-9, 1, NULL, "elements sent, as a share of all: k = ceil(ratio n), at least 1" },
    { 0 }
};

static size_t k_of(const tutti_codec *c, const tutti_view *v)
{
    return tutti_codec_fraction(((const topk *)c->self)->ratio, v->count);
}

static unsigned traits(const tutti_codec *c)
{
    (void)c;
    return TUTTI_CODEC_CONTRACTIVE | TUTTI_CODEC_FIXED;
}

static size_t scratch_bytes(const tutti_codec *c, const tutti_view *v)
{
    return 8 * tutti_select_room(v->count, k_of(c, v));
}

static size_t bound(const tutti_codec *c, const tutti_view *v)
{
    return 8 * k_of(c, v);
}

static size_t encode(tutti_codec *c, const tutti_view *v, const float *x, void *scratch, uint8_t *out)
{
    const size_t k = k_of(c, v);
    uint32_t *index = scratch;
    float *value = (float *)scratch + tutti_select_room(v->count, k);

    tutti_select_top(c->space->device, v->count, x, k, index, value);
    return tutti_codec_sparse_put(k, index, value, out);
}

static tutti_status decode_add(tutti_codec *c, const tutti_view *v, const uint8_t *in, size_t bytes, float a, float *y, tutti_error *err)
{
    const size_t k = k_of(c, v);

    if (bytes != 8 * k)
        return tutti_codec_wrong_size(c, v, bytes, 8 * k, err);
    return tutti_codec_sparse_add(c, v, k, in, a, y, err);
}

const tutti_codec_ops tutti_codec_topk = {
    .name = "topk", .paper = "Stich et al., NeurIPS 2018", .help = "the elements of greatest magnitude, exactly k of them",
    .options = options, .self_bytes = sizeof(topk), .traits = traits, .scratch = scratch_bytes, .bound = bound, .encode = encode,
    .decode_add = decode_add,
};
