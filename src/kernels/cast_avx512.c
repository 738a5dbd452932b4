/* cast_avx512.c: cast.c for AVX-512. Not VCVTNEPS2BF16: it takes denormals for zeros. The rest of a
   vector goes through the scalar conversions, which give the same bits. */
#include "kernels_internal.h"
#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))

/* ---- sixteen numbers ---- */
INLINE __m256i bf16_of(const float *x)
{
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff), infinity = _mm512_set1_epi32(0x7f800000);
    const __m512i half = _mm512_set1_epi32(0x7fff), one = _mm512_set1_epi32(1), quiet = _mm512_set1_epi32(0x40);
    const __m512i u = _mm512_castps_si512(_mm512_loadu_ps(x)), upper = _mm512_srli_epi32(u, 16);
    const __m512i rounded =
        _mm512_srli_epi32(_mm512_add_epi32(_mm512_add_epi32(u, half), _mm512_and_si512(upper, one)), 16);
    const __mmask16 nan = _mm512_cmpgt_epi32_mask(_mm512_and_si512(u, magnitude), infinity);

    return _mm512_cvtepi32_epi16(_mm512_mask_or_epi32(rounded, nan, upper, quiet));
}

INLINE __m256i cut_of(const float *x)
{
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff), infinity = _mm512_set1_epi32(0x7f800000),
                  quiet = _mm512_set1_epi32(0x40);
    const __m512i u = _mm512_castps_si512(_mm512_loadu_ps(x)), upper = _mm512_srli_epi32(u, 16);
    const __mmask16 nan = _mm512_cmpgt_epi32_mask(_mm512_and_si512(u, magnitude), infinity);

    return _mm512_cvtepi32_epi16(_mm512_mask_or_epi32(upper, nan, upper, quiet));
}

INLINE __m256i f16_of(const float *x)
{
    return _mm512_cvtps_ph(_mm512_loadu_ps(x), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

INLINE __m512 from_bf16(const uint16_t *x)
{
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff), infinity = _mm512_set1_epi32(0x7f800000);
    const __m512i quiet = _mm512_set1_epi32(0x00400000);
    const __m512i u =
        _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)x)), 16);

    return _mm512_castsi512_ps(
        _mm512_mask_or_epi32(u, _mm512_cmpgt_epi32_mask(_mm512_and_si512(u, magnitude), infinity), u, quiet));
}

INLINE __m512 from_f16(const uint16_t *x)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)x));
}

/* ---- vectors: `of` and `from` are constants; great results go past the caches ---- */
INLINE void narrow(size_t n, const float *x, uint16_t *y, __m256i (*of)(const float *), uint16_t (*one)(float))
{
    size_t i = 0;

    if (n * sizeof *y >= TUTTI_KERNELS_STREAM) {
        for (; (uintptr_t)(y + i) % 64 != 0 && i < n; i++)
            y[i] = one(x[i]);
        for (; n - i >= 32; i += 32) {
            tutti_kernels_ask_for(x + i, 32);
            _mm512_stream_si512((__m512i *)(void *)(y + i),
                                _mm512_inserti64x4(_mm512_castsi256_si512(of(x + i)), of(x + i + 16), 1));
        }
        _mm_sfence();
    }
    for (; n - i >= 16; i += 16)
        _mm256_storeu_si256((__m256i *)(void *)(y + i), of(x + i));
    for (; i < n; i++)
        y[i] = one(x[i]);
}

INLINE void widen(size_t n, const uint16_t *x, float *y, __m512 (*from)(const uint16_t *), float (*one)(uint16_t))
{
    size_t i = 0;

    if (n * sizeof *y >= TUTTI_KERNELS_STREAM) {
        for (; (uintptr_t)(y + i) % 64 != 0 && i < n; i++)
            y[i] = one(x[i]);
        for (; n - i >= 16; i += 16)
            _mm512_stream_ps(y + i, from(x + i));
        _mm_sfence();
    }
    for (; n - i >= 16; i += 16)
        _mm512_storeu_ps(y + i, from(x + i));
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

    for (; n - i >= 8; i += 8)
        _mm512_storeu_pd(y + i, _mm512_cvtps_pd(_mm256_loadu_ps(x + i)));
    for (; i < n; i++)
        y[i] = (double)x[i];
}

static void f32_from_f64(size_t n, const double *x, float *y)
{
    size_t i = 0;

    for (; n - i >= 8; i += 8)
        _mm256_storeu_ps(y + i, _mm512_cvtpd_ps(_mm512_loadu_pd(x + i)));
    for (; i < n; i++)
        y[i] = (float)x[i];
}

void tutti_kernels_cast_avx512(tutti_kernels *t)
{
    t->bf16_from_f32 = bf16_from_f32;
    t->bf16_cut = bf16_cut;
    t->f32_from_bf16 = f32_from_bf16;
    t->f16_from_f32 = f16_from_f32;
    t->f32_from_f16 = f32_from_f16;
    t->f64_from_f32 = f64_from_f32;
    t->f32_from_f64 = f32_from_f64;
}
