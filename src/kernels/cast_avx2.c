/* cast_avx2.c: cast.c for AVX2 and F16C. The rest of a vector goes through the scalar
   conversions, which give the same bits. */
#include "kernels_internal.h"
#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))

/* ---- eight numbers ---- */
INLINE __m128i bf16_of(const float *x)
{
    const __m256i magnitude = _mm256_set1_epi32(0x7fffffff), infinity = _mm256_set1_epi32(0x7f800000);
    const __m256i half = _mm256_set1_epi32(0x7fff), one = _mm256_set1_epi32(1), quiet = _mm256_set1_epi32(0x40);
    const __m256i u = _mm256_castps_si256(_mm256_loadu_ps(x)), upper = _mm256_srli_epi32(u, 16);
    const __m256i rounded =
        _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(u, half), _mm256_and_si256(upper, one)), 16);
    const __m256i nan = _mm256_cmpgt_epi32(_mm256_and_si256(u, magnitude), infinity);
    const __m256i h = _mm256_blendv_epi8(rounded, _mm256_or_si256(upper, quiet), nan);

    return _mm_packus_epi32(_mm256_castsi256_si128(h), _mm256_extracti128_si256(h, 1));
}

INLINE __m128i cut_of(const float *x)
{
    const __m256i magnitude = _mm256_set1_epi32(0x7fffffff), infinity = _mm256_set1_epi32(0x7f800000),
                  quiet = _mm256_set1_epi32(0x40);
    const __m256i u = _mm256_castps_si256(_mm256_loadu_ps(x)), upper = _mm256_srli_epi32(u, 16);
    const __m256i nan = _mm256_cmpgt_epi32(_mm256_and_si256(u, magnitude), infinity);
    const __m256i h = _mm256_or_si256(upper, _mm256_and_si256(nan, quiet));

    return _mm_packus_epi32(_mm256_castsi256_si128(h), _mm256_extracti128_si256(h, 1));
}

INLINE __m128i f16_of(const float *x)
{
    return _mm256_cvtps_ph(_mm256_loadu_ps(x), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

INLINE __m256 from_bf16(const uint16_t *x)
{
    const __m256i magnitude = _mm256_set1_epi32(0x7fffffff), infinity = _mm256_set1_epi32(0x7f800000);
    const __m256i quiet = _mm256_set1_epi32(0x00400000);
    const __m256i u = _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)x)), 16);

    return _mm256_castsi256_ps(
        _mm256_or_si256(u, _mm256_and_si256(_mm256_cmpgt_epi32(_mm256_and_si256(u, magnitude), infinity), quiet)));
}

INLINE __m256 from_f16(const uint16_t *x)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)x));
}

/* ---- vectors: `of` and `from` are constants; great results go past the caches ---- */
INLINE void narrow(size_t n, const float *x, uint16_t *y, __m128i (*of)(const float *), uint16_t (*one)(float))
{
    size_t i = 0;

    if (n * sizeof *y >= TUTTI_KERNELS_STREAM) {
        for (; (uintptr_t)(y + i) % 32 != 0 && i < n; i++)
            y[i] = one(x[i]);
        for (; n - i >= 16; i += 16) {
            tutti_kernels_ask_for(x + i, 16);
            _mm256_stream_si256((__m256i *)(void *)(y + i),
                                _mm256_inserti128_si256(_mm256_castsi128_si256(of(x + i)), of(x + i + 8), 1));
        }
        _mm_sfence();
    }
    for (; n - i >= 8; i += 8)
        _mm_storeu_si128((__m128i *)(void *)(y + i), of(x + i));
    for (; i < n; i++)
        y[i] = one(x[i]);
}

INLINE void widen(size_t n, const uint16_t *x, float *y, __m256 (*from)(const uint16_t *), float (*one)(uint16_t))
{
    size_t i = 0;

    if (n * sizeof *y >= TUTTI_KERNELS_STREAM) {
        for (; (uintptr_t)(y + i) % 32 != 0 && i < n; i++)
            y[i] = one(x[i]);
        for (; n - i >= 8; i += 8)
            _mm256_stream_ps(y + i, from(x + i));
        _mm_sfence();
    }
    for (; n - i >= 8; i += 8)
        _mm256_storeu_ps(y + i, from(x + i));
    for (; i < n; i++)
        y[i] = one(x[i]);
}

static void bf16_from_f32(size_t n, const float *x, uint16_t *y)
{
    narrow(n, x, y, bf16_of, tutti_kernels_bf16);
}

static void bf16_cut(size_t n, const float *x, uint16_t *y)
{
    narrow(n, x, y, cut_of, tutti_kernels_bf16_cut);
}

static void f16_from_f32(size_t n, const float *x, uint16_t *y)
{
    narrow(n, x, y, f16_of, tutti_kernels_f16);
}

static void f32_from_bf16(size_t n, const uint16_t *x, float *y)
{
    widen(n, x, y, from_bf16, tutti_kernels_from_bf16);
}

static void f32_from_f16(size_t n, const uint16_t *x, float *y)
{
    widen(n, x, y, from_f16, tutti_kernels_from_f16);
}

static void f64_from_f32(size_t n, const float *x, double *y)
{
    size_t i = 0;

    for (; n - i >= 4; i += 4)
        _mm256_storeu_pd(y + i, _mm256_cvtps_pd(_mm_loadu_ps(x + i)));
    for (; i < n; i++)
        y[i] = (double)x[i];
}

static void f32_from_f64(size_t n, const double *x, float *y)
{
    size_t i = 0;

    for (; n - i >= 4; i += 4)
        _mm_storeu_ps(y + i, _mm256_cvtpd_ps(_mm256_loadu_pd(x + i)));
    for (; i < n; i++)
        y[i] = (float)x[i];
}

void tutti_kernels_cast_avx2(tutti_kernels *t)
{
    t->bf16_from_f32 = bf16_from_f32;
    t->bf16_cut = bf16_cut;
    t->f32_from_bf16 = f32_from_bf16;
    t->f16_from_f32 = f16_from_f32;
    t->f32_from_f16 = f32_from_f16;
    t->f64_from_f32 = f64_from_f32;
    t->f32_from_f64 = f32_from_f64;
}
