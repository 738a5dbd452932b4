/* simd_random_avx512.h: further operations of this level, for the templates with random numbers
   (draws, fill, levels): lanes of 64 bits as integers (`qvec`) and as doubles (`dvec`). */
#ifndef TUTTI_KERNELS_SIMD_RANDOM_AVX512_H
#define TUTTI_KERNELS_SIMD_RANDOM_AVX512_H
#include "simd_codes_avx512.h"

/* Returns 0, 1, ..., DWIDTH - 1. */
INLINE qvec qvec_count(void) { return _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7); }
INLINE qvec qvec_add(qvec a, qvec b) { return _mm512_add_epi64(a, b); }
INLINE qvec qvec_xor(qvec a, qvec b) { return _mm512_xor_si512(a, b); }
INLINE qvec qvec_xor3(qvec a, qvec b, qvec c) { return _mm512_ternarylogic_epi64(a, b, c, 0x96); }
/* Shift a lane's upper half down, or its lower half up; the other half becomes 0. */
INLINE qvec qvec_upper(qvec a) { return _mm512_srli_epi64(a, 32); }
INLINE qvec qvec_lower_to_upper(qvec a) { return _mm512_slli_epi64(a, 32); }
/* Returns the products of the lower halves of the lanes, 64 bits each. */
INLINE qvec qvec_mul_wide(qvec a, qvec b) { return _mm512_mul_epu32(a, b); }
/* Returns lanes with the lower half of `even` below and the lower half of `odd` above. */
INLINE qvec qvec_pair(qvec even, qvec odd)
{
    return _mm512_mask_blend_epi32(0xaaaa, even, qvec_lower_to_upper(odd));
}

INLINE dvec dvec_all(double a) { return _mm512_set1_pd(a); }
INLINE dvec dvec_sub(dvec a, dvec b) { return _mm512_sub_pd(a, b); }
INLINE dvec dvec_mul(dvec a, dvec b) { return _mm512_mul_pd(a, b); }
INLINE dvec dvec_div(dvec a, dvec b) { return _mm512_div_pd(a, b); }
INLINE dvec dvec_sqrt(dvec a) { return _mm512_sqrt_pd(a); }
INLINE dvec dvec_floor(dvec a)
{
    return _mm512_roundscale_pd(a, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
}
INLINE qvec dvec_bits(dvec a) { return _mm512_castpd_si512(a); }
INLINE dvec bits_dvec(qvec a) { return _mm512_castsi512_pd(a); }
/* Returns `yes` in lanes in which the sign bit of `sign` is set, and `no` in the others. */
INLINE dvec dvec_if_negative(dvec sign, dvec yes, dvec no)
{
    return _mm512_mask_blend_pd(_mm512_movepi64_mask(dvec_bits(sign)), no, yes);
}
/* Converts integers below 2^53 exactly. */
INLINE dvec dvec_from_u53(qvec a) { return _mm512_cvtepu64_pd(a); }

/* Stores the lanes, rounded to float. */
INLINE void dvec_put_floats(float *p, dvec v) { _mm256_storeu_ps(p, _mm512_cvtpd_ps(v)); }
/* Returns the lanes of a and b, rounded to float: a[0], b[0], a[1], b[1], ... */
INLINE vec vec_from_pair(dvec a, dvec b)
{
    const ivec turns = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);

    return vec_permute2(_mm512_castps256_ps512(_mm512_cvtpd_ps(a)),
                        _mm512_castps256_ps512(_mm512_cvtpd_ps(b)), turns);
}
/* Returns v in lanes in which v < end, and `other` in the others. */
INLINE vec vec_if_below(vec v, vec end, vec other)
{
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(v, end, _CMP_LT_OQ), other, v);
}
#endif
