/* simd_codes_avx512.h: further vector types and operations of this level, for the templates of
   codecs' kernels (extent, select, pack; through simd_random_avx512.h also levels): `ivec` has
   WIDTH = sixteen integers of 32 bits, `qvec` has lanes of 64 bits. Lane j is that of the j-th
   element. */
#ifndef TUTTI_KERNELS_SIMD_CODES_AVX512_H
#define TUTTI_KERNELS_SIMD_CODES_AVX512_H
#include "codes_internal.h"
#include "simd_avx512.h"

typedef __m512i ivec;

INLINE ivec vec_bits(vec v) { return _mm512_castps_si512(v); }
INLINE vec bits_vec(ivec v) { return _mm512_castsi512_ps(v); }
INLINE ivec ivec_all(int32_t a) { return _mm512_set1_epi32(a); }
INLINE ivec ivec_count(void)
{
    return _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}
INLINE void ivec_put(void *p, ivec v) { _mm512_storeu_si512(p, v); }
INLINE ivec ivec_add(ivec a, ivec b) { return _mm512_add_epi32(a, b); }
INLINE ivec ivec_sub(ivec a, ivec b) { return _mm512_sub_epi32(a, b); }
INLINE ivec ivec_and(ivec a, ivec b) { return _mm512_and_si512(a, b); }
INLINE ivec ivec_or(ivec a, ivec b) { return _mm512_or_si512(a, b); }
INLINE ivec ivec_xor(ivec a, ivec b) { return _mm512_xor_si512(a, b); }
INLINE ivec ivec_srl(ivec a, int by) { return _mm512_srli_epi32(a, (unsigned)by); }
INLINE ivec ivec_sll(ivec a, int by) { return _mm512_slli_epi32(a, (unsigned)by); }
INLINE ivec ivec_sra31(ivec a) { return _mm512_srai_epi32(a, 31); }
INLINE ivec ivec_max_u32(ivec a, ivec b) { return _mm512_max_epu32(a, b); }
INLINE uint32_t ivec_most_u32(ivec a) { return _mm512_reduce_max_epu32(a); }
INLINE ivec ivec_max_i32(ivec a, ivec b) { return _mm512_max_epi32(a, b); }
INLINE ivec ivec_min_i32(ivec a, ivec b) { return _mm512_min_epi32(a, b); }
/* Returns `yes` in lanes in which a < b, signed, and `no` in the others. */
INLINE ivec ivec_if_less(ivec a, ivec b, ivec yes, ivec no)
{
    return _mm512_mask_blend_epi32(_mm512_cmplt_epi32_mask(a, b), no, yes);
}
/* Returns `yes` in lanes in which v >= bound, and `no` in the others. */
INLINE vec vec_if_at_least(vec v, vec bound, vec yes, vec no)
{
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(v, bound, _CMP_GE_OQ), no, yes);
}
/* Returns a + by in lanes in which v >= bound, and a in the others. */
INLINE ivec ivec_add_if_at_least(ivec a, int by, vec v, vec bound)
{
    return _mm512_mask_add_epi32(a, _mm512_cmp_ps_mask(v, bound, _CMP_GE_OQ), a, ivec_all(by));
}
INLINE vec ivec_float(ivec a) { return _mm512_cvtepi32_ps(a); }
INLINE ivec ivec_round(vec v) { return _mm512_cvtps_epi32(v); } /* nearest, halves to even */

/* Loads `count` integers of 16 bits; the other lanes are 0. */
INLINE ivec ivec_get_u16(const uint16_t *p, size_t count)
{
    return _mm512_cvtepu16_epi32(count == 16 ? _mm256_loadu_si256((const __m256i *)(const void *)p)
                                             : _mm256_maskz_loadu_epi16(vec_mask(count), p));
}

/* Loads `count` bytes; the other lanes are 0. */
INLINE ivec ivec_get_u8(const uint8_t *p, size_t count)
{
    return _mm512_cvtepu8_epi32(count == 16 ? _mm_loadu_si128((const __m128i *)(const void *)p)
                                            : _mm_maskz_loadu_epi8(vec_mask(count), p));
}

/* Stores the lowest byte of each of the first `count` lanes. */
INLINE void ivec_put_u8(uint8_t *p, size_t count, ivec v)
{
    if (count == 16)
        _mm_storeu_si128((__m128i *)(void *)p, _mm512_cvtepi32_epi8(v));
    else
        _mm_mask_storeu_epi8(p, vec_mask(count), _mm512_cvtepi32_epi8(v));
}

/* Sets bit `bits` - 1 of each index that is not 0 and whose x, the bits of a float, has its sign
   bit set. */
INLINE ivec with_sign(ivec index, ivec x, int bits)
{
    const __mmask16 signed_ones =
        _mm512_mask_test_epi32_mask(_mm512_movepi32_mask(x), index, index);

    return _mm512_mask_or_epi32(index, signed_ones, index, ivec_all(1 << (bits - 1)));
}

INLINE vec vec_min(vec a, vec b) { return _mm512_min_ps(a, b); }
/* Entry at[j] of a table of WIDTH floats in a register (vec_permute), of 2 WIDTH floats in two
   (vec_permute2), or of a table in memory (vec_gather). */
INLINE vec vec_permute(vec table, ivec at) { return _mm512_permutexvar_ps(at, table); }
INLINE vec vec_permute2(vec low, vec high, ivec at)
{
    return _mm512_permutex2var_ps(low, at, high);
}
INLINE vec vec_gather(const float *table, ivec at) { return _mm512_i32gather_ps(at, table, 4); }
INLINE dvec dvec_add(dvec a, dvec b) { return _mm512_add_pd(a, b); }
INLINE dvec dvec_abs(dvec a) { return _mm512_andnot_pd(_mm512_set1_pd(-0.0), a); }

/* The bits of a mask, in a general register. GCC 12 may else spill the mask's two bytes to the
   stack, and count the bits of four. */
INLINE uint32_t mask_bits(__mmask16 mask)
{
    uint32_t bits = mask;

    __asm__("" : "+r"(bits));
    return bits;
}
/* Returns a mask: bit j is set if lane j < 0. */
INLINE uint32_t vec_negative(vec v)
{
    return mask_bits(_mm512_cmp_ps_mask(v, _mm512_setzero_ps(), _CMP_LT_OQ));
}
/* Negates the lanes whose bit in `mask` is set. */
INLINE vec vec_negate_if(vec v, uint32_t mask)
{
    return bits_vec(
        _mm512_mask_xor_epi32(vec_bits(v), (__mmask16)mask, vec_bits(v), ivec_all(INT32_MIN)));
}
/* Returns a mask: bit j is set if the key (tutti_magnitude_key) of lane j is at least `key`. */
INLINE uint32_t vec_above(vec v, uint32_t key)
{
    return mask_bits(_mm512_cmpge_epu32_mask(
        _mm512_and_si512(vec_bits(v), ivec_all(0x7fffffff)), ivec_all((int32_t)key)));
}
/* Appends the elements x[i + j] whose bit j in `mask` is set, and their indexes, after the first
   `at` entries. Returns the new number of entries. There is memory for WIDTH more. The elements are
   compressed in a register and stored as a whole vector: the compressing store is microcode on some
   processors. */
INLINE size_t put_chosen(uint32_t mask, const float *x, size_t i, size_t at, uint32_t *index,
                         float *value)
{
    ivec_put(index + at,
             _mm512_maskz_compress_epi32((__mmask16)mask,
                                         ivec_add(ivec_all((int32_t)(uint32_t)i), ivec_count())));
    _mm512_storeu_ps(value + at, _mm512_maskz_compress_ps((__mmask16)mask, _mm512_loadu_ps(x + i)));
    return at + (size_t)__builtin_popcount(mask);
}

/* ---- qvec: eight codes of one byte in each lane of 64 bits ---- */
typedef __m512i qvec;
enum { QUARTERS = 4 }; /* parts of 128 bits of a qvec */
INLINE qvec qvec_all(uint64_t a) { return _mm512_set1_epi64((long long)a); }
INLINE qvec qvec_or(qvec a, qvec b) { return _mm512_or_si512(a, b); }
INLINE qvec qvec_and(qvec a, qvec b) { return _mm512_and_si512(a, b); }
INLINE qvec qvec_srl(qvec a, int by) { return _mm512_srl_epi64(a, _mm_cvtsi32_si128(by)); }
INLINE qvec qvec_sll(qvec a, int by) { return _mm512_sll_epi64(a, _mm_cvtsi32_si128(by)); }
INLINE qvec qvec_get(const uint8_t *p) { return _mm512_loadu_si512(p); }
INLINE void qvec_put(uint8_t *p, qvec v) { _mm512_storeu_si512(p, v); }
/* Shuffles the bytes of each quarter by the same pattern. */
INLINE qvec qvec_shuffle(qvec v, const uint8_t pattern[16])
{
    return _mm512_shuffle_epi8(
        v, _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)pattern)));
}
/* Packs 64 codes of four bits into 32 bytes, the first code of a pair in the lower bits.
   unpack_nibbles is the inverse. */
INLINE void pack_nibbles(const uint8_t *codes, uint8_t *out)
{
    _mm256_storeu_si256((__m256i *)(void *)out,
                        _mm512_cvtepi16_epi8(_mm512_maddubs_epi16(_mm512_loadu_si512(codes),
                                                                  _mm512_set1_epi16(0x1001))));
}
INLINE void unpack_nibbles(const uint8_t *in, uint8_t *codes)
{
    const __m512i v = _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)(const void *)in));

    _mm512_storeu_si512(
        codes, _mm512_and_si512(_mm512_or_si512(v, _mm512_slli_epi16(v, 4)), _mm512_set1_epi8(15)));
}
/* Stores quarter j, sixteen bytes, at p + j * step, in ascending order: a quarter overwrites the
   end of the one before it. qvec_get_quarters loads them. */
INLINE void qvec_put_quarters(uint8_t *p, size_t step, qvec v)
{
    _mm_storeu_si128((__m128i *)(void *)p, _mm512_castsi512_si128(v));
    _mm_storeu_si128((__m128i *)(void *)(p + step), _mm512_extracti32x4_epi32(v, 1));
    _mm_storeu_si128((__m128i *)(void *)(p + 2 * step), _mm512_extracti32x4_epi32(v, 2));
    _mm_storeu_si128((__m128i *)(void *)(p + 3 * step), _mm512_extracti32x4_epi32(v, 3));
}
INLINE qvec qvec_get_quarters(const uint8_t *p, size_t step)
{
    __m512i v = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)(const void *)p));

    v = _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i *)(const void *)(p + step)), 1);
    v = _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i *)(const void *)(p + 2 * step)), 2);
    return _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i *)(const void *)(p + 3 * step)), 3);
}
#endif
