/* cast_avx512.c: cast.c for AVX-512. Sixteen numbers of 16 bits are an `hvec`; the loops are those
   of cast_simd.h. VCVTNEPS2BF16 is not used: it takes denormals for zeros. */
#include "simd_avx512.h"

typedef __m256i hvec;

INLINE hvec bf16_of(const float *x)
{
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff),
                  infinity = _mm512_set1_epi32(0x7f800000);
    const __m512i half = _mm512_set1_epi32(0x7fff), one = _mm512_set1_epi32(1),
                  quiet = _mm512_set1_epi32(0x40);
    const __m512i u = _mm512_castps_si512(_mm512_loadu_ps(x)), upper = _mm512_srli_epi32(u, 16);
    const __m512i rounded = _mm512_srli_epi32(
        _mm512_add_epi32(_mm512_add_epi32(u, half), _mm512_and_si512(upper, one)), 16);
    const __mmask16 nan = _mm512_cmpgt_epi32_mask(_mm512_and_si512(u, magnitude), infinity);

    return _mm512_cvtepi32_epi16(_mm512_mask_or_epi32(rounded, nan, upper, quiet));
}

INLINE hvec cut_of(const float *x)
{
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff),
                  infinity = _mm512_set1_epi32(0x7f800000), quiet = _mm512_set1_epi32(0x40);
    const __m512i u = _mm512_castps_si512(_mm512_loadu_ps(x)), upper = _mm512_srli_epi32(u, 16);
    const __mmask16 nan = _mm512_cmpgt_epi32_mask(_mm512_and_si512(u, magnitude), infinity);

    return _mm512_cvtepi32_epi16(_mm512_mask_or_epi32(upper, nan, upper, quiet));
}

INLINE hvec f16_of(const float *x)
{
    return _mm512_cvtps_ph(_mm512_loadu_ps(x), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

INLINE vec from_bf16(const uint16_t *x)
{
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff),
                  infinity = _mm512_set1_epi32(0x7f800000);
    const __m512i quiet = _mm512_set1_epi32(0x00400000);
    const __m512i u = _mm512_slli_epi32(
        _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)x)), 16);

    return _mm512_castsi512_ps(_mm512_mask_or_epi32(
        u, _mm512_cmpgt_epi32_mask(_mm512_and_si512(u, magnitude), infinity), u, quiet));
}

INLINE vec from_f16(const uint16_t *x)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)x));
}

INLINE void half_put(uint16_t *y, hvec h)
{
    _mm256_storeu_si256((__m256i *)(void *)y, h);
}

/* Both past the caches; y is aligned. */
INLINE void half_stream(uint16_t *y, hvec low, hvec high)
{
    _mm512_stream_si512((__m512i *)(void *)y,
                        _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1));
}

INLINE void floats_of(const double *x, float *y)
{
    _mm256_storeu_ps(y, _mm512_cvtpd_ps(_mm512_loadu_pd(x)));
}
#include "cast_simd.h"
