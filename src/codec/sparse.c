/* sparse.c: the message format of codecs that send few elements: the ascending indexes of k of n
   elements, then their k values.

     index_code=int32   four bytes an index
     delta              the differences between successive indexes (of the first, from -1) as Elias
                        gamma codes, from the lowest bit of a byte on; the rest of the last byte is
                        0. About 2 log2(n / k) + 1 bits an index
     bitmap             one bit for each of the n elements: shorter than int32 from k = n / 32 on
     auto               int32 or bitmap, whichever is shorter for n and k, which both ends know
     value_dtype        four bytes a value, or two. The rounding error of a value goes to the
                        residual of error feedback, as everything that was not sent. Beyond 65504
                        fp16 is infinite, and is reported as not finite */
#include "codec_internal.h"

enum { INT32, DELTA, BITMAP, AUTO };
static const tutti_dtype value_types[] = { TUTTI_F32, TUTTI_F16, TUTTI_BF16 };

static size_t value_bytes(const tutti_codec_sparse *s)
{
    return tutti_dtype_bytes(value_types[s->value]);
}

static int code_of(const tutti_codec_sparse *s, size_t n, size_t k)
{
    return s->index != AUTO ? s->index : 4 * k <= (n + 7) / 8 ? INT32 : BITMAP;
}

bool tutti_codec_sparse_is_fixed(const tutti_codec_sparse *s)
{
    return s->index != DELTA;
}

bool tutti_codec_sparse_is_exact(const tutti_codec_sparse *s)
{
    return value_types[s->value] == TUTTI_F32;
}

size_t tutti_codec_sparse_bound(const tutti_codec_sparse *s, size_t n, size_t k)
{
    const int code = code_of(s, n, k);
    size_t bits = 32 * k;

    if (code == BITMAP)
        bits = n;
    else if (code == DELTA && k > 0) {
        /* k steps that add up to n at most: their logarithms are greatest where all are equal; and
           2 floor(log2 d) + 1 < 2 d */
        const double equal =
            ceil((double)k * (2 * log2((double)n / (double)k) + 1) + 1e-6 * (double)k);
        bits = equal < 2 * (double)n ? (size_t)equal : 2 * n;
    }
    return (bits + 7) / 8 + value_bytes(s) * k;
}

/* ---- writing ---- */
static size_t put_indexes(int code, size_t n, size_t k, const uint32_t *index, uint8_t *out)
{
    tutti_codec_writer w = { .out = out };

    if (code == BITMAP) {
        memset(out, 0, (n + 7) / 8);
        for (size_t i = 0; i < k; i++)
            out[index[i] / 8] |= (uint8_t)(1u << index[i] % 8);
        return (n + 7) / 8;
    }
    for (size_t i = 0; i < k && code == INT32; i++)
        tutti_codec_put_u32(out + 4 * i, index[i]);
    if (code == INT32)
        return 4 * k;
    for (size_t i = 0; i < k; i++) {
        const uint32_t step = i == 0 ? index[0] + 1 : index[i] - index[i - 1];
        const int zeros = 31 - __builtin_clz(step);
        tutti_codec_write(&w, 1u << zeros, zeros + 1);
        tutti_codec_write(&w, step - (1u << zeros), zeros);
    }
    tutti_codec_write_end(&w);
    return w.bytes;
}

size_t tutti_codec_sparse_put(const tutti_codec *c, const tutti_codec_sparse *s, size_t n, size_t k,
                              const uint32_t *index, const float *value, uint8_t *out)
{
    tutti_device *d = c->space->device;
    const size_t indexes = put_indexes(code_of(s, n, k), n, k, index, out), each = value_bytes(s);
    uint16_t half[TUTTI_CODEC_BLOCK];

    for (size_t i = 0; i < k && each == 4; i++)
        tutti_codec_put_f32(out + indexes + 4 * i, value[i]);
    for (size_t at = 0, some; at < k && each == 2; at += some) {
        some = k - at < TUTTI_CODEC_BLOCK ? k - at : TUTTI_CODEC_BLOCK;
        tutti_cast(d, (tutti_buffer){ d, (void *)(uintptr_t)(value + at), some, TUTTI_F32 },
                   (tutti_buffer){ d, half, some, value_types[s->value] });
        for (size_t i = 0; i < some; i++) {
            out[indexes + 2 * (at + i)] = (uint8_t)half[i];
            out[indexes + 2 * (at + i) + 1] = (uint8_t)(half[i] >> 8);
        }
    }
    return indexes + each * k;
}

/* ---- reading ---- */
tutti_status tutti_codec_sparse_check(const tutti_codec *c, const tutti_view *v, size_t k,
                                      const uint8_t *in, uint32_t mask, const char *of,
                                      tutti_error *err)
{
    size_t least = 0;

    for (size_t i = 0; i < k; i++) {
        const uint32_t index = tutti_codec_get_u32(in + 4 * i) & mask;
        if (index < least || index >= v->count)
            return tutti_fail(
                err, TUTTI_ERR_CORRUPT, 0,
                "codec '%s': index %zu of %zu %s elements is %u, and it should be from %zu to %zu; "
                "the message was damaged or is another codec's",
                c->ops->name, i + 1, k, of, (unsigned)index, least, v->count - 1);
        least = (size_t)index + 1;
    }
    return TUTTI_OK;
}

/* The indexes one after the other. */
/* from: where the search for this index began */
typedef struct walk { int code; const uint8_t *in; size_t bytes, n, bit, from, next, i; } walk;

static unsigned bit_of(walk *w)
{
    const unsigned bit = w->in[w->bit / 8] >> w->bit % 8 & 1;

    w->bit++;
    return bit;
}

/* The last bit that was read was 1: not the end. */
static bool found(const walk *w)
{
    return w->bit > w->from && (w->in[(w->bit - 1) / 8] >> (w->bit - 1) % 8 & 1) == 1;
}

/* false: there is none that is below n, or the bytes end before it. */
static bool step_to(walk *w, size_t *index)
{
    w->from = w->bit;
    if (w->code == INT32)
        *index = tutti_codec_get_u32(w->in + 4 * w->i++);
    else if (w->code == BITMAP) {
        while (w->bit < w->n && bit_of(w) == 0)
            ;
        *index = w->bit - 1;
        if (!found(w))
            return false;
    } else {
        int zeros = 0;
        while (w->bit < 8 * w->bytes && bit_of(w) == 0)
            zeros++;
        if (!found(w) || zeros > 31 || w->bit + (size_t)zeros > 8 * w->bytes)
            return false;
        *index = w->next + (1u << zeros) - 1;
        for (int k = 0; k < zeros; k++)
            *index += (size_t)bit_of(w) << k;
    }
    w->next = *index + 1;
    return *index < w->n;
}

/* The bits after the last index up to the next byte are 0, and so is the rest of a bitmap. */
static bool ends(walk *w)
{
    const size_t end = w->code == BITMAP  ? 8 * ((w->n + 7) / 8)
                       : w->code == DELTA ? 8 * ((w->bit + 7) / 8)
                                          : w->bit;

    while (w->bit < end)
        if (bit_of(w) != 0)
            return false;
    return true;
}

static size_t index_bytes(const walk *w, size_t k)
{
    return w->code == INT32 ? 4 * k : w->code == BITMAP ? (w->n + 7) / 8 : (w->bit + 7) / 8;
}

tutti_status tutti_codec_sparse_add(const tutti_codec *c, const tutti_codec_sparse *s,
                                    const tutti_view *v, size_t k, const uint8_t *in, size_t bytes,
                                    float a, float *y, tutti_error *err)
{
    tutti_device *d = c->space->device;
    const size_t each = value_bytes(s);
    const walk begin = { .code = code_of(s, v->count, k), .in = in, .bytes = bytes, .n = v->count };
    walk w = begin;
    uint16_t half[TUTTI_CODEC_BLOCK];
    float value[TUTTI_CODEC_BLOCK];
    size_t index = 0, indexes; /* 0: the compiler does not see that the walk has been gone before */

    if (begin.code != DELTA && bytes != index_bytes(&begin, k) + each * k)
        return tutti_codec_wrong_size(c, v, bytes, index_bytes(&begin, k) + each * k, err);
    if (begin.code == INT32)
        TUTTI_TRY(tutti_codec_sparse_check(c, v, k, in, UINT32_MAX, "kept", err));
    for (size_t i = 0; i < k && begin.code != INT32; i++)
        if (!step_to(&w, &index))
            return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                              "codec '%s': index %zu of %zu kept elements is missing or beyond the "
                              "%zu of its tensor; the message was damaged or is another codec's",
                              c->ops->name, i + 1, k, v->count);
    if (begin.code != INT32 && !ends(&w))
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                          "codec '%s': the indexes continue after the last of %zu; the message was "
                          "damaged or is another codec's", c->ops->name, k);
    indexes = index_bytes(&w, k);
    if (bytes != indexes + each * k)
        return tutti_codec_wrong_size(c, v, bytes, indexes + each * k, err);
    w = begin;
    for (size_t at = 0, some; at < k; at += some) {
        const uint8_t *from = in + indexes + each * at;
        some = k - at < TUTTI_CODEC_BLOCK ? k - at : TUTTI_CODEC_BLOCK;
        for (size_t i = 0; i < some && each == 4; i++)
            value[i] = tutti_codec_get_f32(from + 4 * i);
        for (size_t i = 0; i < some && each == 2; i++)
            half[i] = (uint16_t)(from[2 * i] | from[2 * i + 1] << 8);
        if (each == 2)
            tutti_cast(d, (tutti_buffer){ d, half, some, value_types[s->value] },
                       tutti_f32(d, value, some));
        for (size_t i = 0; i < some; i++) {
            step_to(&w, &index);
            y[index] += a * value[i];
        }
    }
    tutti_device_charge(d, 2.0 * (double)k, 16.0 * (double)k);
    return TUTTI_OK;
}

void tutti_codec_sparse_places(const tutti_codec_sparse *s, const tutti_view *v, size_t k,
                               const uint8_t *in, size_t bytes, uint8_t *mark)
{
    walk w = { .code = code_of(s, v->count, k), .in = in, .bytes = bytes, .n = v->count };

    for (size_t i = 0, index; i < k && step_to(&w, &index); i++)
        mark[index] = 1;
}
