/* lanes_avx2.h: private: the operations that lanes_scalar.h defines, on two AVX2 registers.
   Included by math_avx2.c before math_body.h. */
#ifndef TUTTI_NN_LANES_AVX2_H
#define TUTTI_NN_LANES_AVX2_H
#include <immintrin.h>
#include <math.h>
#include "math.h"

#define INLINE static inline __attribute__((always_inline, unused))
/* Before a loop over sums: they stay in registers only if the loop is unrolled. */
#define UNROLLED _Pragma("GCC unroll 16")
/* As in lanes_scalar.h: 5 x 1 vectors of sums are ten of sixteen registers; one more vector is two
   registers, a broadcast one. */
enum { LANES = 16, TILE_ROWS = 5, TILE_VECTORS = 1 };
typedef struct lanes { __m256 a, b; } lanes;
typedef lanes lanes_which;

#define PAIR(x, y) ((lanes){ (x), (y) })
/* Returns a mask of the first k of 8 lanes. */
INLINE __m256i lanes_mask(size_t k)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)k), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
/* Returns how many of the first k lanes are in the second register. */
INLINE size_t lanes_left(size_t k) { return k < 8 ? 0 : k - 8; }
INLINE lanes lanes_all(float a) { return PAIR(_mm256_set1_ps(a), _mm256_set1_ps(a)); }
INLINE lanes lanes_get(const float *p) { return PAIR(_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)); }
INLINE void lanes_put(float *p, lanes v)
{
    _mm256_storeu_ps(p, v.a);
    _mm256_storeu_ps(p + 8, v.b);
}
INLINE lanes lanes_get_some(const float *p, size_t k)
{
    return PAIR(_mm256_maskload_ps(p, lanes_mask(k)),
                k > 8 ? _mm256_maskload_ps(p + 8, lanes_mask(lanes_left(k))) : _mm256_setzero_ps());
}
INLINE void lanes_put_some(float *p, size_t k, lanes v)
{
    _mm256_maskstore_ps(p, lanes_mask(k), v.a);
    if (k > 8)
        _mm256_maskstore_ps(p + 8, lanes_mask(lanes_left(k)), v.b);
}
INLINE lanes lanes_first(lanes v, size_t k)
{
    return PAIR(_mm256_and_ps(v.a, _mm256_castsi256_ps(lanes_mask(k))),
                _mm256_and_ps(v.b, _mm256_castsi256_ps(lanes_mask(lanes_left(k)))));
}

INLINE void lanes_clear(lanes *a, size_t count)
{
    (void)a;
    (void)count;
}
INLINE lanes lanes_add(lanes x, lanes y)
{
    return PAIR(_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b));
}
INLINE lanes lanes_sub(lanes x, lanes y)
{
    return PAIR(_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b));
}
INLINE lanes lanes_mul(lanes x, lanes y)
{
    return PAIR(_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b));
}
INLINE lanes lanes_div(lanes x, lanes y)
{
    return PAIR(_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b));
}
INLINE lanes lanes_fma(lanes x, lanes y, lanes z)
{
    return PAIR(_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b));
}
INLINE lanes lanes_fnma(lanes x, lanes y, lanes z)
{
    return PAIR(_mm256_fnmadd_ps(x.a, y.a, z.a), _mm256_fnmadd_ps(x.b, y.b, z.b));
}
INLINE lanes lanes_max(lanes x, lanes y)
{
    return PAIR(_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b));
}
INLINE lanes lanes_min(lanes x, lanes y)
{
    return PAIR(_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b));
}
INLINE lanes lanes_and(lanes x, lanes y)
{
    return PAIR(_mm256_and_ps(x.a, y.a), _mm256_and_ps(x.b, y.b));
}
INLINE lanes lanes_abs(lanes x)
{
    const __m256 sign = _mm256_set1_ps(-0.0f);
    return PAIR(_mm256_andnot_ps(sign, x.a), _mm256_andnot_ps(sign, x.b));
}
INLINE lanes_which lanes_below(lanes x, lanes y)
{
    return PAIR(_mm256_cmp_ps(x.a, y.a, _CMP_LT_OQ), _mm256_cmp_ps(x.b, y.b, _CMP_LT_OQ));
}
INLINE bool lanes_without(lanes x, float y)
{
    const __m256 all = _mm256_set1_ps(y);
    return _mm256_movemask_ps(_mm256_and_ps(_mm256_cmp_ps(x.a, all, _CMP_NEQ_UQ),
                                            _mm256_cmp_ps(x.b, all, _CMP_NEQ_UQ))) == 0xff;
}
INLINE lanes lanes_pick(lanes_which which, lanes x, lanes y)
{
    return PAIR(_mm256_blendv_ps(y.a, x.a, which.a), _mm256_blendv_ps(y.b, x.b, which.b));
}

/* Multiplies by 2^(n / 2) twice, with one rounding in all: 2^n itself may not be a normal
   number. */
INLINE __m256 power8(__m256 x, __m256 n)
{
    const __m256i whole = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(whole, 1),
                  rest = _mm256_sub_epi32(whole, half), bias = _mm256_set1_epi32(127);
    const __m256 one = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23));
    const __m256 two = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(rest, bias), 23));
    return _mm256_mul_ps(_mm256_mul_ps(x, one), two);
}
INLINE lanes lanes_power(lanes x, lanes n) { return PAIR(power8(x.a, n.a), power8(x.b, n.b)); }

INLINE __m256 kept8(__m128i draws, uint32_t least)
{
    return _mm256_castsi256_ps(
        _mm256_cmpgt_epi32(_mm256_cvtepu16_epi32(draws), _mm256_set1_epi32((int)least - 1)));
}
INLINE lanes lanes_kept(const uint16_t *draws, uint32_t least, size_t k)
{
    uint16_t some[LANES] = { 0 };
    if (k < LANES) {
        memcpy(some, draws, k * sizeof *some);
        draws = some;
    }
    return PAIR(kept8(_mm_loadu_si128((const __m128i *)(const void *)draws), least),
                kept8(_mm_loadu_si128((const __m128i *)(const void *)(draws + 8)), least));
}

/* Transposes a matrix of 8 x 8. */
INLINE void transpose8(const float *from, size_t from_step, float *to, size_t to_step)
{
    __m256 r[8];

    /* r[i + c]: its half b is column 4 b + c of rows i to i + 3 */
    _Pragma("GCC unroll 8") for (size_t i = 0; i < 8; i += 4) {
        const __m256 x0 = _mm256_loadu_ps(from + i * from_step),
                     x1 = _mm256_loadu_ps(from + (i + 1) * from_step);
        const __m256 x2 = _mm256_loadu_ps(from + (i + 2) * from_step),
                     x3 = _mm256_loadu_ps(from + (i + 3) * from_step);
        const __m256d y0 = _mm256_castps_pd(_mm256_unpacklo_ps(x0, x1)),
                      y1 = _mm256_castps_pd(_mm256_unpackhi_ps(x0, x1));
        const __m256d y2 = _mm256_castps_pd(_mm256_unpacklo_ps(x2, x3)),
                      y3 = _mm256_castps_pd(_mm256_unpackhi_ps(x2, x3));
        r[i] = _mm256_castpd_ps(_mm256_unpacklo_pd(y0, y2));
        r[i + 1] = _mm256_castpd_ps(_mm256_unpackhi_pd(y0, y2));
        r[i + 2] = _mm256_castpd_ps(_mm256_unpacklo_pd(y1, y3));
        r[i + 3] = _mm256_castpd_ps(_mm256_unpackhi_pd(y1, y3));
    }
    _Pragma("GCC unroll 8") for (size_t c = 0; c < 4; c++) {
        _mm256_storeu_ps(to + c * to_step, _mm256_permute2f128_ps(r[c], r[4 + c], 0x20));
        _mm256_storeu_ps(to + (c + 4) * to_step, _mm256_permute2f128_ps(r[c], r[4 + c], 0x31));
    }
}
INLINE void lanes_transpose(const float *from, size_t from_step, float *to, size_t to_step)
{
    transpose8(from, from_step, to, to_step);
    transpose8(from + 8, from_step, to + 8 * to_step, to_step);
    transpose8(from + 8 * from_step, from_step, to + 8, to_step);
    transpose8(from + 8 * from_step + 8, from_step, to + 8 * to_step + 8, to_step);
}

INLINE void lanes_halves(lanes x, __m256 *low, __m256 *high)
{
    *low = x.a;
    *high = x.b;
}
#include "lanes_fold.h"
#endif
