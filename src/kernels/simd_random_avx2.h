/* simd_random_avx2.h: further operations of this level, for the templates with random numbers
   (draws, fill, levels): lanes of 64 bits as integers (`qvec`) and as doubles (`dvec`). */
#ifndef TUTTI_KERNELS_SIMD_RANDOM_AVX2_H
#define TUTTI_KERNELS_SIMD_RANDOM_AVX2_H
#include "simd_codes_avx2.h"

/* Returns 0, 1, ..., DWIDTH - 1. */
INLINE qvec qvec_count(void) { return _mm256_setr_epi64x(0, 1, 2, 3); }
INLINE qvec qvec_add(qvec a, qvec b) { return _mm256_add_epi64(a, b); }
INLINE qvec qvec_xor(qvec a, qvec b) { return _mm256_xor_si256(a, b); }
INLINE qvec qvec_xor3(qvec a, qvec b, qvec c)
{
    return _mm256_xor_si256(_mm256_xor_si256(a, b), c);
}
/* Shift a lane's upper half down, or its lower half up; the other half becomes 0. */
INLINE qvec qvec_upper(qvec a) { return _mm256_srli_epi64(a, 32); }
INLINE qvec qvec_lower_to_upper(qvec a) { return _mm256_slli_epi64(a, 32); }
/* Returns the products of the lower halves of the lanes, 64 bits each. */
INLINE qvec qvec_mul_wide(qvec a, qvec b) { return _mm256_mul_epu32(a, b); }
/* Returns lanes with the lower half of `even` below and the lower half of `odd` above. */
INLINE qvec qvec_pair(qvec even, qvec odd)
{
    return _mm256_blend_epi32(even, qvec_lower_to_upper(odd), 0xaa);
}

INLINE dvec dvec_all(double a) { return _mm256_set1_pd(a); }
INLINE dvec dvec_sub(dvec a, dvec b) { return _mm256_sub_pd(a, b); }
INLINE dvec dvec_mul(dvec a, dvec b) { return _mm256_mul_pd(a, b); }
INLINE dvec dvec_div(dvec a, dvec b) { return _mm256_div_pd(a, b); }
INLINE dvec dvec_sqrt(dvec a) { return _mm256_sqrt_pd(a); }
INLINE dvec dvec_floor(dvec a) { return _mm256_floor_pd(a); }
INLINE qvec dvec_bits(dvec a) { return _mm256_castpd_si256(a); }
INLINE dvec bits_dvec(qvec a) { return _mm256_castsi256_pd(a); }
/* Returns `yes` in lanes in which the sign bit of `sign` is set, and `no` in the others. */
INLINE dvec dvec_if_negative(dvec sign, dvec yes, dvec no)
{
    return _mm256_blendv_pd(no, yes, sign);
}

/* Converts integers below 2^53 exactly: the upper and lower word become the fractions of 2^84 and
   2^52, which are then subtracted. */
INLINE dvec dvec_from_u53(qvec a)
{
    const dvec high = bits_dvec(qvec_or(qvec_upper(a), qvec_all(0x4530000000000000u)));
    const dvec low = bits_dvec(_mm256_blend_epi32(a, qvec_all(0x4330000000000000u), 0xaa));

    return _mm256_add_pd(_mm256_sub_pd(high, dvec_all(0x1p84 + 0x1p52)), low);
}

/* Stores the lanes, rounded to float. */
INLINE void dvec_put_floats(float *p, dvec v) { _mm_storeu_ps(p, _mm256_cvtpd_ps(v)); }
/* Returns the lanes of a and b, rounded to float: a[0], b[0], a[1], b[1], ... */
INLINE vec vec_from_pair(dvec a, dvec b)
{
    const __m128 x = _mm256_cvtpd_ps(a), y = _mm256_cvtpd_ps(b);

    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_unpacklo_ps(x, y)),
                                _mm_unpackhi_ps(x, y), 1);
}
/* Returns v in lanes in which v < end, and `other` in the others. */
INLINE vec vec_if_below(vec v, vec end, vec other)
{
    return _mm256_blendv_ps(other, v, _mm256_cmp_ps(v, end, _CMP_LT_OQ));
}
#endif
