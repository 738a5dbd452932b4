/* kernels_internal.h: the table of kernels behind the vector functions of base.h, and what
   the implementations of all levels share. All files of src/kernels include it.

   A level is plain C; AVX2 or AVX-512 on x86-64; NEON on arm64. device.c fills a table with the
   plain C references (NAME.c), and overwrites entries by those of NAME_avx2.c and NAME_avx512.c, or
   of NAME_neon.c, up to the requested level and the machine's. These are instances of one template,
   NAME_simd.h, which they include after the vector types and operations of their level:
   simd_LEVEL.h, simd_codes_LEVEL.h or simd_random_LEVEL.h.

   Every entry of every level gives the reference's bits. A NaN is a NaN at every level; which NaN
   an addition or a product gives depends on the compiler's order of operands and is unspecified.
   Pointers may have any alignment of their element. Kernels use no threads and no runtime. */
#ifndef TUTTI_KERNELS_INTERNAL_H
#define TUTTI_KERNELS_INTERNAL_H
#include <tutti/base.h>
#include <string.h>
#include "kernels/vectors.h"
#include "compensate.h"
#include "codes.h"

/* Most vectors that `tree` adds in one pass: sixteen registers hold them and their weights. */
#define TUTTI_KERNELS_LEAVES 8
/* Accumulators of sums: element i is added to lane i mod 16. */
#define TUTTI_KERNELS_LANES 16
/* Elements that rows_dot adds up in float, before their sum is added in double. */
#define TUTTI_KERNELS_RUN 2048
/* Bytes of a result from which on it bypasses the caches (non-temporal stores): it would be evicted
   before it is read. */
#define TUTTI_KERNELS_STREAM ((size_t)16 << 20)
/* Distance of tutti_kernels_prefetch in bytes, found by measurement. */
#define TUTTI_KERNELS_AHEAD 2048

/* Prefetches the memory TUTTI_KERNELS_AHEAD bytes after [x, x + count), in loops that read x once:
   the processor's own prefetch comes later. A prefetch may be beyond the end of x. */
static inline void tutti_kernels_prefetch(const float *x, size_t count)
{
    for (size_t i = 0; i < count; i += 16)
        __builtin_prefetch((const void *)((uintptr_t)(x + i) + TUTTI_KERNELS_AHEAD), 0, 3);
}

/* The table. An entry computes what the function of base.h or kernels/vectors.h with its
   name does, without its checks and charges. The comments say what differs. */
/* A matrix of m rows of n values, as the product of a factor of p columns, `step` values apart, and
   p vectors of n. */
typedef struct tutti_factor {
    size_t m, n, step;
    int p;
} tutti_factor;

typedef struct tutti_kernels {
    void (*fill)(size_t n, float a, float *y);
    void (*add)(size_t n, const float *x, float *y);
    void (*scale)(size_t n, float a, float *y);
    void (*axpy)(size_t n, float a, const float *x, float *y);
    void (*blend)(size_t n, float a, const float *x, float b, float *y);
    void (*diff)(size_t n, float a, const float *x, const float *y, float *z);
    void (*add_diff)(size_t n, float a, const float *x, const float *y, float *z);
    void (*lerp)(size_t n, float a, const float *x, float *y);
    void (*compensate)(size_t n, const tutti_compensation *c, const float *x, const float *y,
                       float *g, float *mean);
    /* counter, key: as tutti_philox_begin returns them */
    void (*fill_normal)(size_t n, const uint32_t counter[4], const uint32_t key[2], float *y);
    void (*fill_uniform)(size_t n, const uint32_t counter[4], const uint32_t key[2], float low,
                         float high, float *y);
    /* tutti_tree_sum and tutti_tree_sum_all of p = 1 .. TUTTI_KERNELS_LEAVES vectors. */
    void (*tree)(size_t n, int p, const float *const *x, const float *a, float *y);
    void (*tree_all)(size_t n, int p, float *const *x, const float *a);

    double (*norm2)(size_t n, const float *x);
    void (*norm2_each)(size_t n, size_t each, const float *x, double *sums);
    double (*dot)(size_t n, const float *x, const float *y);
    bool (*finite)(size_t n, const float *x);

    /* tutti_cast. y bypasses the caches from TUTTI_KERNELS_STREAM bytes on; of bf16_past and
       f16_past it always does. */
    void (*bf16_from_f32)(size_t n, const float *x, uint16_t *y);
    void (*bf16_past)(size_t n, const float *x, uint16_t *y);
    void (*bf16_cut)(size_t n, const float *x, uint16_t *y); /* tutti_cut_bf16 */
    void (*f32_from_bf16)(size_t n, const uint16_t *x, float *y);
    void (*f16_from_f32)(size_t n, const float *x, uint16_t *y);
    void (*f16_past)(size_t n, const float *x, uint16_t *y);
    void (*f32_from_f16)(size_t n, const uint16_t *x, float *y);
    void (*f64_from_f32)(size_t n, const float *x, double *y);
    void (*f32_from_f64)(size_t n, const double *x, float *y);

    void (*sgd)(size_t n, const tutti_sgd_step *s, float *w, const float *g, float *momentum);
    void (*adam)(size_t n, const tutti_adam_step *s, float *w, const float *g, float *m, float *v);

    void (*rows_dot)(const tutti_factor *f, const float *x, const float *q, float *a);
    void (*rows_sum)(const tutti_factor *f, const float *x, const float *a, float *q);
    void (*rows_add)(const tutti_factor *f, float by, const float *a, const float *q, float *y);
    void (*rows_product)(const tutti_factor *f, const float *a, const float *q, float *y);
    float (*absmax)(size_t n, const float *x);
    void (*extent)(size_t n, const float *x, float *least, float *greatest);
    double (*norm1)(size_t n, const float *x);
    void (*draws)(const uint32_t counter[4], const uint32_t key[2], uint64_t first, size_t groups,
                  uint16_t *draws);
    void (*round_uniform)(size_t n, const float *x, float scale, int bits, int steps,
                          const uint16_t *draws, uint8_t *codes);
    void (*round_powers)(size_t n, const float *x, float scale, int bits, const uint16_t *draws,
                         uint8_t *codes);
    void (*round_levels)(size_t n, const float *x, float scale, const tutti_levels *t,
                         const uint16_t *draws, uint8_t *codes);
    void (*quantise)(const tutti_rounding *how, const uint32_t counter[4], const uint32_t key[2],
                     uint64_t first, size_t n, const float *x, size_t each, const float *scale,
                     const tutti_ahead *ahead, uint8_t *codes);
    void (*round_range)(size_t n, const float *x, float least, float range, uint8_t *codes);
    void (*levels_add)(size_t n, const uint8_t *codes, int values, const float *value, float *y);
    void (*uniform_add)(size_t n, const uint8_t *codes, int bits, float scale, float a, float *y);
    void (*range_add)(size_t n, const uint8_t *codes, float least, float greatest, float a,
                      float *y);
    void (*pack)(int bits, size_t n, const uint8_t *codes, uint8_t *out);
    void (*unpack)(int bits, size_t n, const uint8_t *in, uint8_t *codes);
    double (*signs)(size_t n, const float *x, bool squares, uint8_t *out);
    void (*signs_add)(size_t n, const uint8_t *in, float v, float *y);
    /* tutti_select_above */
    size_t (*above)(size_t n, const float *x, uint32_t key, size_t room, uint32_t *index,
                    float *value);
} tutti_kernels;

struct tutti_device {
    tutti_cpu cpu;
    tutti_runtime *rt; /* NULL: nothing is charged */
    tutti_kernels kernels;
};

/* Calls `of` with the name of each function that sets the entries of a file: tutti_kernels_NAME
   those of NAME.c, tutti_kernels_NAME_LEVEL those of NAME_LEVEL.c. (`packing` is pack.c.) */
#define TUTTI_KERNELS_FILES(of, level)                            \
    of(tutti_kernels_vector##level) of(tutti_kernels_tree##level) \
    of(tutti_kernels_reduce##level) of(tutti_kernels_cast##level) \
    of(tutti_kernels_step##level) of(tutti_kernels_fill##level)   \
    of(tutti_kernels_extent##level) of(tutti_kernels_draws##level) \
    of(tutti_kernels_levels##level) of(tutti_kernels_packing##level) \
    of(tutti_kernels_select##level) of(tutti_kernels_rows##level)
#define TUTTI_KERNELS_SETTER(name) void name(tutti_kernels *t);
TUTTI_KERNELS_FILES(TUTTI_KERNELS_SETTER, )
TUTTI_KERNELS_FILES(TUTTI_KERNELS_SETTER, _avx2)
TUTTI_KERNELS_FILES(TUTTI_KERNELS_SETTER, _avx512)
TUTTI_KERNELS_FILES(TUTTI_KERNELS_SETTER, _neon)

/* tree.c: tutti_tree_sum and tutti_tree_sum_all for any p, with the table's `tree` for the leaves
   and its `add` above them. */
void tutti_kernels_tree_sum(const tutti_kernels *t, size_t n, int p, const float *const *x,
                            const float *a, float *y);
void tutti_kernels_tree_sum_all(const tutti_kernels *t, size_t n, int p, float *const *x,
                                const float *a);

/* select.c: tutti_select_top, with the table's `above`. */
void tutti_kernels_select_top(const tutti_kernels *t, size_t n, const float *x, size_t k,
                              uint32_t *index, float *value);

/* Returns the sum of the lanes, added in the order of base.h: 0+8, 1+9 ..., then 0+4 ..., 0+2,
   0+1. Overwrites them. */
static inline double tutti_kernels_fold(double lane[TUTTI_KERNELS_LANES])
{
    for (size_t width = TUTTI_KERNELS_LANES / 2; width > 0; width /= 2)
        for (size_t j = 0; j < width; j++)
            lane[j] += lane[j + width];
    return lane[0];
}

/* ---- conversions of one number in integer arithmetic, for the references and for the last
   elements of the vector loops ---- */

static inline uint32_t tutti_kernels_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float tutti_kernels_float(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Rounds to bfloat16, nearest even. A carry out of the fraction increments the exponent, which is
   the right result, also for infinity. A NaN keeps its sign and the upper bits of its payload and
   becomes a quiet NaN; rounded as a number it could become an infinity. */
static inline uint16_t tutti_kernels_bf16(float x)
{
    const uint32_t u = tutti_kernels_bits(x);

    if ((u & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(u >> 16 | 0x0040u);
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}

/* Rounds to bfloat16 towards zero. A NaN becomes a quiet NaN; truncated it could become an
   infinity. */
static inline uint16_t tutti_kernels_bf16_cut(float x)
{
    const uint32_t u = tutti_kernels_bits(x);

    return (uint16_t)(u >> 16 | ((u & 0x7fffffffu) > 0x7f800000u ? 0x0040u : 0));
}

static inline float tutti_kernels_from_bf16(uint16_t h)
{
    const uint32_t u = (uint32_t)h << 16;

    return tutti_kernels_float((u & 0x7fffffffu) > 0x7f800000u ? u | 0x00400000u : u);
}

/* Rounds to binary16, nearest even, as VCVTPS2PH does. A NaN keeps its sign and the upper ten bits
   of its payload and becomes a quiet NaN. */
static inline uint16_t tutti_kernels_f16(float x)
{
    const uint32_t u = tutti_kernels_bits(x), sign = u >> 16 & 0x8000u, magnitude = u & 0x7fffffffu;

    if (magnitude > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u | (magnitude >> 13 & 0x3ffu));
    /* 65520 and above: halfway to 2^16 rounds to the even neighbour, infinity */
    if (magnitude >= 0x477ff000u)
        return (uint16_t)(sign | 0x7c00u);
    /* 2^-14 and above: a normal half; 112 is the difference of the exponents' biases */
    if (magnitude >= 0x38800000u)
        return (uint16_t)(sign |
                          (magnitude - (112u << 23) + 0x0fffu + (magnitude >> 13 & 1u)) >> 13);
    /* 2^-25 and below: halfway to the least denormal rounds to the even zero */
    if (magnitude <= 0x33000000u)
        return (uint16_t)sign;
    { /* A denormal half is a multiple of 2^-24: the 24-bit fraction moves right by 14 .. 24 places. */
        const uint32_t shift = 126u - (magnitude >> 23),
                       fraction = (magnitude & 0x7fffffu) | 0x800000u;
        const uint32_t half = 1u << (shift - 1), rest = fraction & ((1u << shift) - 1);
        uint32_t whole = fraction >> shift;
        whole += rest > half || (rest == half && (whole & 1u));
        return (uint16_t)(sign | whole);
    }
}

static inline float tutti_kernels_from_f16(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exponent = h >> 10 & 0x1fu;
    uint32_t fraction = h & 0x3ffu;

    if (exponent == 31) /* infinity, or a quiet NaN */
        return tutti_kernels_float(sign | 0x7f800000u | fraction << 13 |
                                   (fraction != 0 ? 0x00400000u : 0));
    if (exponent != 0)
        return tutti_kernels_float(sign | (exponent + 112) << 23 | fraction << 13);
    if (fraction == 0)
        return tutti_kernels_float(sign);
    {
        uint32_t power = 113; /* biased exponent of 2^-14: a denormal half is normal as a float */
        while ((fraction & 0x400u) == 0) {
            fraction <<= 1;
            power--;
        }
        return tutti_kernels_float(sign | power << 23 | (fraction & 0x3ffu) << 13);
    }
}
#endif
