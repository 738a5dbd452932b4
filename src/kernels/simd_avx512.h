/* simd_avx512.h: the vector types and operations of this level for the templates *_simd.h: `vec`
   has WIDTH = sixteen floats, `dvec` DWIDTH = eight doubles. NAME_avx512.c includes it before
   NAME_simd.h. simd_avx2.h has the same names.

   Every operation is correctly rounded, so a template gives the reference's bits if it keeps the
   reference's order of operations. Lane 0 is the first element in memory. */
#ifndef TUTTI_KERNELS_SIMD_AVX512_H
#define TUTTI_KERNELS_SIMD_AVX512_H
#include "kernels_internal.h"
#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline, unused))
#define LEVEL(name) name##_avx512 /* the name of a kernel of this level */
#define WIDTH 16
#define DWIDTH 8
typedef __m512 vec;
typedef __m512d dvec;

INLINE __mmask16 vec_mask(size_t count) { return (__mmask16)((1u << count) - 1); }

/* Loads the first `count` lanes from p; the other lanes are 0, and their memory is not read. */
INLINE vec vec_get(const float *p, size_t count)
{
    return count == WIDTH ? _mm512_loadu_ps(p) : _mm512_maskz_loadu_ps(vec_mask(count), p);
}

/* Stores the first `count` lanes. */
INLINE void vec_put(float *p, size_t count, vec v)
{
    if (count == WIDTH)
        _mm512_storeu_ps(p, v);
    else
        _mm512_mask_storeu_ps(p, vec_mask(count), v);
}

INLINE vec vec_all(float a) { return _mm512_set1_ps(a); }
INLINE vec vec_add(vec a, vec b) { return _mm512_add_ps(a, b); }
INLINE vec vec_sub(vec a, vec b) { return _mm512_sub_ps(a, b); }
INLINE vec vec_mul(vec a, vec b) { return _mm512_mul_ps(a, b); }
INLINE vec vec_div(vec a, vec b) { return _mm512_div_ps(a, b); }
/* Returns ab + c, rounded once. */
INLINE vec vec_fma(vec a, vec b, vec c) { return _mm512_fmadd_ps(a, b, c); }
INLINE vec vec_sqrt(vec a) { return _mm512_sqrt_ps(a); }

/* Stores v, bypassing the caches. p is aligned to the size of vec. After the last such store call
   stream_end. */
INLINE void vec_stream(float *p, vec v) { _mm512_stream_ps(p, v); }
INLINE void stream_end(void) { _mm_sfence(); }
/* Returns the sum of sixteen lanes, added in the order of tutti_kernels_fold. */
INLINE float vec_fold(const vec v[1])
{
    const __m256 a = _mm256_add_ps(_mm512_castps512_ps256(v[0]), _mm512_extractf32x8_ps(v[0], 1));
    const __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1)),
                 c = _mm_add_ps(b, _mm_movehl_ps(b, b));

    return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}

/* Returns true if no lane is a NaN or infinity. */
INLINE bool vec_all_finite(vec v) { return _mm512_fpclass_ps_mask(v, 0x99) == 0; }

INLINE dvec dvec_zero(void) { return _mm512_setzero_pd(); }
/* Loads DWIDTH floats as doubles. */
INLINE dvec dvec_get(const float *p) { return _mm512_cvtps_pd(_mm256_loadu_ps(p)); }
INLINE dvec dvec_fma(dvec a, dvec b, dvec c) { return _mm512_fmadd_pd(a, b, c); }
INLINE void dvec_put(double *p, dvec v) { _mm512_storeu_pd(p, v); }
/* Returns the sum of sixteen lanes, added in the order of tutti_kernels_fold. */
INLINE double dvec_fold(const dvec v[2])
{
    const __m512d a = _mm512_add_pd(v[0], v[1]);
    const __m256d b = _mm256_add_pd(_mm512_castpd512_pd256(a), _mm512_extractf64x4_pd(a, 1));
    const __m128d c = _mm_add_pd(_mm256_castpd256_pd128(b), _mm256_extractf128_pd(b, 1));

    return _mm_cvtsd_f64(_mm_add_sd(c, _mm_unpackhi_pd(c, c)));
}
#endif
