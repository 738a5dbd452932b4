/* sparse.c: what top-k, threshold and Wangni's codec have in common: lists of ascending indexes, four bytes each, and of values. */
#include "codec_internal.h"

size_t tutti_codec_sparse_put(size_t k, const uint32_t *index, const float *value, uint8_t *out)
{
    for (size_t i = 0; i < k; i++)
        tutti_codec_put_u32(out + 4 * i, index[i]);
    for (size_t i = 0; i < k; i++)
        tutti_codec_put_f32(out + 4 * (k + i), value[i]);
    return 8 * k;
}

tutti_status tutti_codec_sparse_check(const tutti_codec *c, const tutti_view *v, size_t k, const uint8_t *in, uint32_t mask, const char *of,
                                      tutti_error *err)
{
    size_t least = 0;

    for (size_t i = 0; i < k; i++) {
        const uint32_t index = tutti_codec_get_u32(in + 4 * i) & mask;
        if (index < least || index >= v->count)
            return tutti_fail(err, TUTTI_ERR_CORRUPT, 0, "codec '%s': index %zu of %zu %s elements is %u, and it should be from %zu to %zu; the message "
                              "was damaged or is another codec's", c->ops->name, i, k, of, (unsigned)index, least, v->count - 1);
        least = (size_t)index + 1;
    }
    return TUTTI_OK;
}

tutti_status tutti_codec_sparse_add(const tutti_codec *c, const tutti_view *v, size_t k, const uint8_t *in, float a, float *y, tutti_error *err)
{
    TUTTI_TRY(tutti_codec_sparse_check(c, v, k, in, UINT32_MAX, "kept", err));
    for (size_t i = 0; i < k; i++)
        y[tutti_codec_get_u32(in + 4 * i)] += a * tutti_codec_get_f32(in + 4 * (k + i));
    tutti_device_charge(c->space->device, 2.0 * (double)k, 16.0 * (double)k);
    return TUTTI_OK;
}
