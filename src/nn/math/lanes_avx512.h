/* lanes_avx512.h: private: the operations that lanes_scalar.h defines, on one AVX-512 register.
   Included by math_avx512.c before math_body.h. */
#ifndef TUTTI_NN_LANES_AVX512_H
#define TUTTI_NN_LANES_AVX512_H
#include <immintrin.h>
#include <math.h>
#include "math.h"

#define INLINE static inline __attribute__((always_inline, unused))
/* Before a loop over sums: they stay in registers only if the loop is unrolled. */
#define UNROLLED _Pragma("GCC unroll 16")
/* As in lanes_scalar.h: of thirty-two registers 8 x 2 hold sums, two a row of the right factor,
   one a broadcast. */
enum { LANES = 16, TILE_ROWS = 8, TILE_VECTORS = 2 };
typedef __m512 lanes;
typedef __mmask16 lanes_which;

/* Returns a mask of the first k lanes. */
INLINE __mmask16 lanes_mask(size_t k) { return (__mmask16)((1u << k) - 1); }
INLINE lanes lanes_all(float a) { return _mm512_set1_ps(a); }
INLINE lanes lanes_get(const float *p) { return _mm512_loadu_ps(p); }
INLINE void lanes_put(float *p, lanes a) { _mm512_storeu_ps(p, a); }
INLINE lanes lanes_get_some(const float *p, size_t k)
{
    return _mm512_maskz_loadu_ps(lanes_mask(k), p);
}
INLINE void lanes_put_some(float *p, size_t k, lanes a)
{
    _mm512_mask_storeu_ps(p, lanes_mask(k), a);
}
INLINE lanes lanes_first(lanes a, size_t k) { return _mm512_maskz_mov_ps(lanes_mask(k), a); }

INLINE void lanes_clear(lanes *a, size_t count)
{
    (void)a;
    (void)count;
}
INLINE lanes lanes_add(lanes a, lanes b) { return _mm512_add_ps(a, b); }
INLINE lanes lanes_sub(lanes a, lanes b) { return _mm512_sub_ps(a, b); }
INLINE lanes lanes_mul(lanes a, lanes b) { return _mm512_mul_ps(a, b); }
INLINE lanes lanes_div(lanes a, lanes b) { return _mm512_div_ps(a, b); }
INLINE lanes lanes_fma(lanes a, lanes b, lanes c) { return _mm512_fmadd_ps(a, b, c); }
INLINE lanes lanes_fnma(lanes a, lanes b, lanes c) { return _mm512_fnmadd_ps(a, b, c); }
INLINE lanes lanes_max(lanes a, lanes b) { return _mm512_max_ps(a, b); }
INLINE lanes lanes_min(lanes a, lanes b) { return _mm512_min_ps(a, b); }
INLINE lanes lanes_abs(lanes a) { return _mm512_abs_ps(a); }
INLINE lanes_which lanes_below(lanes a, lanes b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
INLINE bool lanes_without(lanes a, float b)
{
    return _mm512_cmp_ps_mask(a, _mm512_set1_ps(b), _CMP_NEQ_UQ) == 0xffff;
}
INLINE lanes lanes_pick(lanes_which which, lanes a, lanes b)
{
    return _mm512_mask_blend_ps(which, b, a);
}
INLINE lanes lanes_power(lanes a, lanes n) { return _mm512_scalef_ps(a, n); }

INLINE lanes lanes_kept(const uint16_t *draws, uint32_t least, size_t k)
{
    const __m256i some = _mm256_maskz_loadu_epi16(lanes_mask(k), draws);
    return _mm512_castsi512_ps(_mm512_maskz_set1_epi32(
        _mm512_cmpge_epu32_mask(_mm512_cvtepu16_epi32(some), _mm512_set1_epi32((int)least)), -1));
}
INLINE lanes lanes_and(lanes a, lanes b) { return _mm512_and_ps(a, b); }

INLINE void lanes_transpose(const float *from, size_t from_step, float *to, size_t to_step)
{
    __m512 r[LANES], t[4];

    /* r[i + c]: its quarter b is column 4 b + c of rows i to i + 3 */
    _Pragma("GCC unroll 16") for (size_t i = 0; i < LANES; i += 4) {
        const __m512 x0 = lanes_get(from + i * from_step),
                     x1 = lanes_get(from + (i + 1) * from_step);
        const __m512 x2 = lanes_get(from + (i + 2) * from_step),
                     x3 = lanes_get(from + (i + 3) * from_step);
        const __m512d y0 = _mm512_castps_pd(_mm512_unpacklo_ps(x0, x1)),
                      y1 = _mm512_castps_pd(_mm512_unpackhi_ps(x0, x1));
        const __m512d y2 = _mm512_castps_pd(_mm512_unpacklo_ps(x2, x3)),
                      y3 = _mm512_castps_pd(_mm512_unpackhi_ps(x2, x3));
        r[i] = _mm512_castpd_ps(_mm512_unpacklo_pd(y0, y2));
        r[i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(y0, y2));
        r[i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(y1, y3));
        r[i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(y1, y3));
    }
    /* selects quarters 0 and 2, or 1 and 3, first of two of r, then of four */
    _Pragma("GCC unroll 16") for (size_t c = 0; c < 4; c++) {
        t[0] = _mm512_shuffle_f32x4(r[c], r[4 + c], 0x88);
        t[1] = _mm512_shuffle_f32x4(r[8 + c], r[12 + c], 0x88);
        t[2] = _mm512_shuffle_f32x4(r[c], r[4 + c], 0xdd);
        t[3] = _mm512_shuffle_f32x4(r[8 + c], r[12 + c], 0xdd);
        lanes_put(to + c * to_step, _mm512_shuffle_f32x4(t[0], t[1], 0x88));
        lanes_put(to + (c + 8) * to_step, _mm512_shuffle_f32x4(t[0], t[1], 0xdd));
        lanes_put(to + (c + 4) * to_step, _mm512_shuffle_f32x4(t[2], t[3], 0x88));
        lanes_put(to + (c + 12) * to_step, _mm512_shuffle_f32x4(t[2], t[3], 0xdd));
    }
}

INLINE void lanes_halves(lanes a, __m256 *low, __m256 *high)
{
    *low = _mm512_castps512_ps256(a);
    *high = _mm512_extractf32x8_ps(a, 1);
}
#include "lanes_fold.h"
#endif
