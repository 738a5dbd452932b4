/* reduce.c: the canonical tree over p vectors, for every type and operation. Float sums are the
   device's kernel; the rest is plain C, which the compiler vectorises: integers, doubles, maxima
   and minima are small control values in training, not its bulk.

   The tree by a stack: after vector r is pushed, as many pairs are merged as r + 1 has trailing
   zero bits; at the end the rest is merged from the top. For p = 7: ((0 1)(2 3)) ((4 5) 6), which
   is the split at the largest power of two below p.

   BF16 and F16 are converted to float, which is exact, go through the float tree, and are rounded
   once at the end (nearest even). So a sum of theirs must have all its terms at hand; algorithms
   that send partial sums are refused for them (TUTTI_PARTIAL_SUMS). A mean scales the converted
   terms. */
#include "collective_internal.h"
#include "kernels/vectors.h"
#include <assert.h>
#include <string.h>

#define TILE 128 /* elements: TILE x LEVELS x 8 bytes of stack */
#define LEVELS 14
#define ALL_BYTES \
    ((size_t)8 << 10) /* of each of the p vectors; up to 64 of them in a second-level cache */

/* Integer sums wrap; done unsigned, because signed overflow is undefined. */
#define MERGE(name, type, is_nan, sum)                                              \
    static void merge_##name(int op, size_t n, const type *a, const type *b, type *y) \
    {                                                                               \
        if (op == TUTTI_MAX)                                                        \
            for (size_t k = 0; k < n; k++)                                          \
                y[k] = is_nan(a[k]) ? a[k] : a[k] < b[k] || is_nan(b[k]) ? b[k] : a[k]; \
        else if (op == TUTTI_MIN)                                                   \
            for (size_t k = 0; k < n; k++)                                          \
                y[k] = is_nan(a[k]) ? a[k] : b[k] < a[k] || is_nan(b[k]) ? b[k] : a[k]; \
        else                                                                        \
            for (size_t k = 0; k < n; k++)                                          \
                y[k] = sum(a[k], b[k]);                                             \
    }
#define NEVER(a) false
#define IS_NAN(a) ((a) != (a))
#define SUM_REAL(a, b) ((a) + (b))
#define SUM_I32(a, b) ((int32_t)((uint32_t)(a) + (uint32_t)(b)))
#define SUM_U8(a, b) ((uint8_t)((a) + (b)))
#define SUM_I8(a, b) ((int8_t)(uint8_t)((a) + (b)))
#define SUM_I64(a, b) ((int64_t)((uint64_t)(a) + (uint64_t)(b)))
MERGE(f32, float, IS_NAN, SUM_REAL)
MERGE(f64, double, IS_NAN, SUM_REAL)
MERGE(i32, int32_t, NEVER, SUM_I32)
MERGE(i64, int64_t, NEVER, SUM_I64)
MERGE(u8, uint8_t, NEVER, SUM_U8)
MERGE(i8, int8_t, NEVER, SUM_I8)

static void merge_values(tutti_dtype dtype, int op, size_t n, const void *a, const void *b, void *y)
{
    if (dtype == TUTTI_F32)
        merge_f32(op, n, a, b, y);
    else if (dtype == TUTTI_F64)
        merge_f64(op, n, a, b, y);
    else if (dtype == TUTTI_I32)
        merge_i32(op, n, a, b, y);
    else if (dtype == TUTTI_U8)
        merge_u8(op, n, a, b, y);
    else if (dtype == TUTTI_I8)
        merge_i8(op, n, a, b, y);
    else
        merge_i64(op, n, a, b, y);
}

static void scale_tile(tutti_dtype dtype, size_t n, double a, void *x)
{
    if (dtype == TUTTI_F32) {
        const float factor = (float)a;
        for (size_t k = 0; k < n; k++)
            ((float *)x)[k] *= factor;
    } else {
        for (size_t k = 0; k < n; k++)
            ((double *)x)[k] *= a;
    }
}

/* n elements of p vectors x, `offset` bytes from their beginning, and the operation that joins
 * them. */
typedef struct tree_part {
    tutti_dtype dtype;
    int op, p;
    size_t n;
    const void *const *x;
    size_t offset;
} tree_part;

static void tree_tile(const tree_part *t, const double *scale, void *y)
{
    const tutti_dtype dtype = t->dtype;
    const int op = t->op, p = t->p;
    const size_t n = t->n;
    const size_t bytes = n * tutti_dtype_bytes(dtype);
    double stack[LEVELS][TILE];
    int level = 0;

    for (int r = 0; r < p; r++) {
        memcpy(stack[level], (const unsigned char *)t->x[r] + t->offset, bytes); /* any alignment */
        if (scale != NULL)
            scale_tile(dtype, n, scale[r], stack[level]);
        level++;
        for (int bit = 1; ((r + 1) & bit) == 0; bit <<= 1, level--)
            merge_values(dtype, op, n, stack[level - 2], stack[level - 1], stack[level - 2]);
    }
    for (; level > 1; level--)
        merge_values(dtype, op, n, stack[level - 2], stack[level - 1], stack[level - 2]);
    memcpy(y, stack[0], bytes);
}

/* A tile of BF16 or F16. */
static void tree_tile_narrow(tutti_device *d, const tree_part *t, void *y)
{
    const tutti_dtype dtype = t->dtype;
    const int op = t->op, p = t->p;
    const size_t n = t->n;
    float stack[LEVELS][TILE];
    uint16_t narrow[TILE];
    int level = 0;

    for (int r = 0; r < p; r++) {
        memcpy(narrow, (const unsigned char *)t->x[r] + t->offset,
               n * sizeof *narrow); /* any alignment */
        tutti_cast(d, tutti_host(narrow, n, dtype), tutti_host(stack[level], n, TUTTI_F32));
        if (op == TUTTI_MEAN)
            scale_tile(TUTTI_F32, n, (double)(1.0f / (float)p), stack[level]);
        level++;
        for (int bit = 1; ((r + 1) & bit) == 0; bit <<= 1, level--)
            merge_f32(op, n, stack[level - 2], stack[level - 1], stack[level - 2]);
    }
    for (; level > 1; level--)
        merge_f32(op, n, stack[level - 2], stack[level - 1], stack[level - 2]);
    tutti_cast(d, tutti_host(stack[0], n, TUTTI_F32), tutti_host(narrow, n, dtype));
    memcpy(y, narrow, n * sizeof *narrow);
}

bool tutti_reduce_narrow(tutti_dtype dtype)
{
    return dtype == TUTTI_BF16 || dtype == TUTTI_F16;
}

void tutti_reduce_tree(tutti_device *d, tutti_dtype dtype, int op, size_t n, int p,
                       const void *const *x, const double *scale, void *y)
{
    const size_t size = tutti_dtype_bytes(dtype);

    assert(p > 0 && p < 1 << (LEVELS - 1));
    if (dtype == TUTTI_F32 && op != TUTTI_MAX && op != TUTTI_MIN &&
        p <= (scale == NULL ? 4096 : TUTTI_RENDEZVOUS_MEMBERS)) {
        float factors[TUTTI_RENDEZVOUS_MEMBERS];
        for (int r = 0; r < p && scale != NULL; r++)
            factors[r] = (float)scale[r];
        tutti_tree_sum(d, n, p, (const float *const *)x, scale == NULL ? NULL : factors, y);
        return;
    }
    for (size_t first = 0; first < n; first += TILE) {
        const size_t count = n - first < TILE ? n - first : TILE;
        const tree_part t = { dtype, op, p, count, x, first * size };
        if (tutti_reduce_narrow(dtype))
            tree_tile_narrow(d, &t, (unsigned char *)y + first * size);
        else
            tree_tile(&t, scale, (unsigned char *)y + first * size);
    }
}

void tutti_reduce_tree_all(tutti_device *d, tutti_dtype dtype, int op, size_t n, int p,
                           void *const *x, const double *scale, int first)
{
    const size_t tile = ALL_BYTES / tutti_dtype_bytes(dtype);
    const void *terms[TUTTI_RENDEZVOUS_MEMBERS];
    float factors[TUTTI_RENDEZVOUS_MEMBERS];

    assert(p > 0 && p <= TUTTI_RENDEZVOUS_MEMBERS);
    if (dtype == TUTTI_F32 && op != TUTTI_MAX && op != TUTTI_MIN) {
        for (int r = 0; r < p && scale != NULL; r++)
            factors[r] = (float)scale[r];
        tutti_tree_sum_all(d, n, p, (float *const *)x, scale == NULL ? NULL : factors);
        return;
    }
    for (size_t done = 0, count; done < n; done += count) {
        const size_t at = done * tutti_dtype_bytes(dtype);
        count = n - done < tile ? n - done : tile;
        for (int r = 0; r < p; r++)
            terms[r] = (const unsigned char *)x[r] + at;
        tutti_reduce_tree(d, dtype, op, count, p, terms, scale, (unsigned char *)x[first] + at);
        for (int r = 0; r < p; r++)
            tutti_reduce_copy((unsigned char *)x[first] + at, (unsigned char *)x[r] + at,
                              count * tutti_dtype_bytes(dtype));
    }
}

void tutti_reduce_scale(tutti_device *d, tutti_dtype dtype, size_t n, double a, void *x)
{
    if (a == 1.0)
        return; /* exact, whatever the value; and a copy of NaN bits stays one */
    if (dtype == TUTTI_F32)
        tutti_scale(d, n, (float)a, x);
    else
        scale_tile(dtype, n, a, x);
}

void tutti_reduce_copy(const void *from, void *to, size_t bytes)
{
    if (bytes > 0 && from != to)
        memcpy(to, from, bytes);
}
