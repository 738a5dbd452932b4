/* cast_avx2.c: cast.c for AVX2 and F16C. Eight numbers of 16 bits are an `hvec`; the loops are
   those of cast_simd.h. */
#include "simd_avx2.h"

typedef __m128i hvec;

INLINE hvec bf16_of(const float *x)
{
    const __m256i magnitude = _mm256_set1_epi32(0x7fffffff),
                  infinity = _mm256_set1_epi32(0x7f800000);
    const __m256i half = _mm256_set1_epi32(0x7fff), one = _mm256_set1_epi32(1),
                  quiet = _mm256_set1_epi32(0x40);
    const __m256i u = _mm256_castps_si256(_mm256_loadu_ps(x)), upper = _mm256_srli_epi32(u, 16);
    const __m256i rounded = _mm256_srli_epi32(
        _mm256_add_epi32(_mm256_add_epi32(u, half), _mm256_and_si256(upper, one)), 16);
    const __m256i nan = _mm256_cmpgt_epi32(_mm256_and_si256(u, magnitude), infinity);
    const __m256i h = _mm256_blendv_epi8(rounded, _mm256_or_si256(upper, quiet), nan);

    return _mm_packus_epi32(_mm256_castsi256_si128(h), _mm256_extracti128_si256(h, 1));
}

INLINE hvec cut_of(const float *x)
{
    const __m256i magnitude = _mm256_set1_epi32(0x7fffffff),
                  infinity = _mm256_set1_epi32(0x7f800000), quiet = _mm256_set1_epi32(0x40);
    const __m256i u = _mm256_castps_si256(_mm256_loadu_ps(x)), upper = _mm256_srli_epi32(u, 16);
    const __m256i nan = _mm256_cmpgt_epi32(_mm256_and_si256(u, magnitude), infinity);
    const __m256i h = _mm256_or_si256(upper, _mm256_and_si256(nan, quiet));

    return _mm_packus_epi32(_mm256_castsi256_si128(h), _mm256_extracti128_si256(h, 1));
}

INLINE hvec f16_of(const float *x)
{
    return _mm256_cvtps_ph(_mm256_loadu_ps(x), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

INLINE vec from_bf16(const uint16_t *x)
{
    const __m256i magnitude = _mm256_set1_epi32(0x7fffffff),
                  infinity = _mm256_set1_epi32(0x7f800000);
    const __m256i quiet = _mm256_set1_epi32(0x00400000);
    const __m256i u = _mm256_slli_epi32(
        _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)x)), 16);

    return _mm256_castsi256_ps(_mm256_or_si256(
        u, _mm256_and_si256(_mm256_cmpgt_epi32(_mm256_and_si256(u, magnitude), infinity), quiet)));
}

INLINE vec from_f16(const uint16_t *x)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)x));
}

INLINE void half_put(uint16_t *y, hvec h)
{
    _mm_storeu_si128((__m128i *)(void *)y, h);
}

/* Both past the caches; y is aligned. */
INLINE void half_stream(uint16_t *y, hvec low, hvec high)
{
    _mm256_stream_si256((__m256i *)(void *)y,
                        _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1));
}

INLINE void floats_of(const double *x, float *y)
{
    _mm_storeu_ps(y, _mm256_cvtpd_ps(_mm256_loadu_pd(x)));
}
#include "cast_simd.h"
