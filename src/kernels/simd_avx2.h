/* simd_avx2.h: the vector types and operations of this level for the templates *_simd.h: `vec` has
   WIDTH = eight floats, `dvec` DWIDTH = four doubles. NAME_avx2.c includes it before NAME_simd.h.
   simd_avx512.h has the same names.

   Every operation is correctly rounded, so a template gives the reference's bits if it keeps the
   reference's order of operations. Lane 0 is the first element in memory. */
#ifndef TUTTI_KERNELS_SIMD_AVX2_H
#define TUTTI_KERNELS_SIMD_AVX2_H
#include "kernels_internal.h"
#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline, unused))
#define LEVEL(name) name##_avx2 /* the name of a kernel of this level */
#define WIDTH 8
#define DWIDTH 4
typedef __m256 vec;
typedef __m256d dvec;

INLINE __m256i vec_mask(size_t count)
{
    static const int32_t ones[16] = { -1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0 };
    return _mm256_loadu_si256((const __m256i *)(const void *)(ones + 8 - count));
}

/* Loads the first `count` lanes from p; the other lanes are 0, and their memory is not read. */
INLINE vec vec_get(const float *p, size_t count)
{
    return count == WIDTH ? _mm256_loadu_ps(p) : _mm256_maskload_ps(p, vec_mask(count));
}

/* Stores the first `count` lanes. */
INLINE void vec_put(float *p, size_t count, vec v)
{
    if (count == WIDTH)
        _mm256_storeu_ps(p, v);
    else
        _mm256_maskstore_ps(p, vec_mask(count), v);
}

INLINE vec vec_all(float a) { return _mm256_set1_ps(a); }
INLINE vec vec_add(vec a, vec b) { return _mm256_add_ps(a, b); }
INLINE vec vec_sub(vec a, vec b) { return _mm256_sub_ps(a, b); }
INLINE vec vec_mul(vec a, vec b) { return _mm256_mul_ps(a, b); }
INLINE vec vec_div(vec a, vec b) { return _mm256_div_ps(a, b); }
/* Returns ab + c, rounded once. */
INLINE vec vec_fma(vec a, vec b, vec c) { return _mm256_fmadd_ps(a, b, c); }
INLINE vec vec_sqrt(vec a) { return _mm256_sqrt_ps(a); }

/* Stores v, bypassing the caches. p is aligned to the size of vec. After the last such store call
   stream_end. */
INLINE void vec_stream(float *p, vec v) { _mm256_stream_ps(p, v); }
INLINE void stream_end(void) { _mm_sfence(); }
/* Returns the sum of sixteen lanes, added in the order of tutti_kernels_fold. */
INLINE float vec_fold(const vec v[2])
{
    const __m256 a = _mm256_add_ps(v[0], v[1]);
    const __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1)),
                 c = _mm_add_ps(b, _mm_movehl_ps(b, b));

    return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}

/* Returns true if no lane is a NaN or infinity. */
INLINE bool vec_all_finite(vec v)
{
    const __m256i exponent = _mm256_set1_epi32(0x7f800000);
    return _mm256_movemask_epi8(_mm256_cmpeq_epi32(
               _mm256_and_si256(_mm256_castps_si256(v), exponent), exponent)) == 0;
}

INLINE dvec dvec_zero(void) { return _mm256_setzero_pd(); }
/* Loads DWIDTH floats as doubles. */
INLINE dvec dvec_get(const float *p) { return _mm256_cvtps_pd(_mm_loadu_ps(p)); }
INLINE dvec dvec_fma(dvec a, dvec b, dvec c) { return _mm256_fmadd_pd(a, b, c); }
INLINE void dvec_put(double *p, dvec v) { _mm256_storeu_pd(p, v); }
/* Returns the sum of sixteen lanes, added in the order of tutti_kernels_fold. */
INLINE double dvec_fold(const dvec v[4])
{
    const __m256d a = _mm256_add_pd(_mm256_add_pd(v[0], v[2]), _mm256_add_pd(v[1], v[3]));
    const __m128d b = _mm_add_pd(_mm256_castpd256_pd128(a), _mm256_extractf128_pd(a, 1));

    return _mm_cvtsd_f64(_mm_add_sd(b, _mm_unpackhi_pd(b, b)));
}
#endif
