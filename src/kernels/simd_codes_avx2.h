/* simd_codes_avx2.h: further vector types and operations of this level, for the templates of
   codecs' kernels (extent, select, pack; through simd_random_avx2.h also levels): `ivec` has WIDTH
   = eight integers of 32 bits, `qvec` has lanes of 64 bits. Lane j is that of the j-th element. */
#ifndef TUTTI_KERNELS_SIMD_CODES_AVX2_H
#define TUTTI_KERNELS_SIMD_CODES_AVX2_H
#include "codes_internal.h"
#include "simd_avx2.h"

typedef __m256i ivec;

INLINE ivec vec_bits(vec v) { return _mm256_castps_si256(v); }
INLINE vec bits_vec(ivec v) { return _mm256_castsi256_ps(v); }
INLINE ivec ivec_all(int32_t a) { return _mm256_set1_epi32(a); }
INLINE ivec ivec_count(void) { return _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7); }
INLINE void ivec_put(void *p, ivec v) { _mm256_storeu_si256(p, v); }
INLINE ivec ivec_add(ivec a, ivec b) { return _mm256_add_epi32(a, b); }
INLINE ivec ivec_sub(ivec a, ivec b) { return _mm256_sub_epi32(a, b); }
INLINE ivec ivec_and(ivec a, ivec b) { return _mm256_and_si256(a, b); }
INLINE ivec ivec_or(ivec a, ivec b) { return _mm256_or_si256(a, b); }
INLINE ivec ivec_xor(ivec a, ivec b) { return _mm256_xor_si256(a, b); }
INLINE ivec ivec_srl(ivec a, int by) { return _mm256_srli_epi32(a, by); }
INLINE ivec ivec_sll(ivec a, int by) { return _mm256_slli_epi32(a, by); }
INLINE ivec ivec_sra31(ivec a) { return _mm256_srai_epi32(a, 31); }
INLINE ivec ivec_max_u32(ivec a, ivec b) { return _mm256_max_epu32(a, b); }
INLINE uint32_t ivec_most_u32(ivec a)
{
    const __m128i b = _mm_max_epu32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1)),
                  c = _mm_max_epu32(b, _mm_unpackhi_epi64(b, b));

    return (uint32_t)_mm_cvtsi128_si32(_mm_max_epu32(c, _mm_shuffle_epi32(c, 1)));
}
INLINE ivec ivec_max_i32(ivec a, ivec b) { return _mm256_max_epi32(a, b); }
INLINE ivec ivec_min_i32(ivec a, ivec b) { return _mm256_min_epi32(a, b); }
/* Returns `yes` in lanes in which a < b, signed, and `no` in the others. */
INLINE ivec ivec_if_less(ivec a, ivec b, ivec yes, ivec no)
{
    return _mm256_blendv_epi8(no, yes, _mm256_cmpgt_epi32(b, a));
}
/* Returns `yes` in lanes in which v >= bound, and `no` in the others. */
INLINE vec vec_if_at_least(vec v, vec bound, vec yes, vec no)
{
    return _mm256_blendv_ps(no, yes, _mm256_cmp_ps(v, bound, _CMP_GE_OQ));
}
/* Returns a + by in lanes in which v >= bound, and a in the others. */
INLINE ivec ivec_add_if_at_least(ivec a, int by, vec v, vec bound)
{
    return ivec_add(a, ivec_and(ivec_all(by), vec_bits(_mm256_cmp_ps(v, bound, _CMP_GE_OQ))));
}
INLINE vec ivec_float(ivec a) { return _mm256_cvtepi32_ps(a); }
INLINE ivec ivec_round(vec v) { return _mm256_cvtps_epi32(v); } /* nearest, halves to even */

/* Loads `count` integers of 16 bits; the other lanes are 0. */
INLINE ivec ivec_get_u16(const uint16_t *p, size_t count)
{
    uint16_t some[8] = { 0 };

    if (count < 8) {
        memcpy(some, p, count * sizeof *p);
        p = some;
    }
    return _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
}

/* Loads `count` bytes; the other lanes are 0. */
INLINE ivec ivec_get_u8(const uint8_t *p, size_t count)
{
    uint64_t bytes = 0;

    memcpy(&bytes, p, count == 8 ? 8 : count);
    return _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)bytes));
}

/* Stores the lowest byte of each of the first `count` lanes. */
INLINE void ivec_put_u8(uint8_t *p, size_t count, ivec v)
{
    const ivec bytes = _mm256_shuffle_epi8(v, _mm256_set1_epi32(0x0c080400));
    const uint64_t both = (uint64_t)_mm_cvtsi128_si64(
        _mm_unpacklo_epi32(_mm256_castsi256_si128(bytes), _mm256_extracti128_si256(bytes, 1)));

    memcpy(p, &both, count == 8 ? 8 : count);
}

/* Sets bit `bits` - 1 of each index that is not 0 and whose x, the bits of a float, has its sign
   bit set. */
INLINE ivec with_sign(ivec index, ivec x, int bits)
{
    const ivec sign = ivec_sll(ivec_srl(x, 31), bits - 1);

    return ivec_or(index, ivec_and(sign, _mm256_cmpgt_epi32(index, ivec_all(0))));
}

INLINE vec vec_min(vec a, vec b) { return _mm256_min_ps(a, b); }
/* Entry at[j] of a table of WIDTH floats in a register (vec_permute), of 2 WIDTH floats in two
   (vec_permute2), or of a table in memory (vec_gather). */
INLINE vec vec_permute(vec table, ivec at) { return _mm256_permutevar8x32_ps(table, at); }
INLINE vec vec_permute2(vec low, vec high, ivec at)
{
    return _mm256_blendv_ps(vec_permute(low, at), vec_permute(high, at),
                            bits_vec(_mm256_slli_epi32(at, 28)));
}
INLINE vec vec_gather(const float *table, ivec at) { return _mm256_i32gather_ps(table, at, 4); }
INLINE dvec dvec_add(dvec a, dvec b) { return _mm256_add_pd(a, b); }
INLINE dvec dvec_abs(dvec a) { return _mm256_andnot_pd(_mm256_set1_pd(-0.0), a); }

/* Returns a mask: bit j is set if lane j < 0. */
INLINE uint32_t vec_negative(vec v)
{
    return (uint32_t)_mm256_movemask_ps(_mm256_cmp_ps(v, _mm256_setzero_ps(), _CMP_LT_OQ));
}
/* Negates the lanes whose bit in `mask` is set. */
INLINE vec vec_negate_if(vec v, uint32_t mask)
{
    const ivec lane = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    const ivec set = _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32((int)mask), lane), lane);

    return _mm256_xor_ps(v, bits_vec(_mm256_slli_epi32(set, 31)));
}
/* Returns a mask: bit j is set if the key (tutti_magnitude_key) of lane j is at least `key`. */
INLINE uint32_t vec_above(vec v, uint32_t key)
{
    const ivec magnitude = _mm256_and_si256(vec_bits(v), ivec_all(0x7fffffff));

    return (uint32_t)_mm256_movemask_ps(bits_vec(
        _mm256_cmpeq_epi32(_mm256_max_epu32(magnitude, ivec_all((int32_t)key)), magnitude)));
}
/* Appends the elements x[i + j] whose bit j in `mask` is set, and their indexes, after the first
   `at` entries. Returns the new number of entries. There is memory for WIDTH more. */
INLINE size_t put_chosen(uint32_t mask, const float *x, size_t i, size_t at, uint32_t *index,
                         float *value)
{
    /* one by one: there are few, and a table of permutations would take more cache than it saves */
    for (; mask != 0; mask &= mask - 1, at++) {
        const size_t j = i + (size_t)__builtin_ctz(mask);
        index[at] = (uint32_t)j;
        value[at] = x[j];
    }
    return at;
}

/* ---- qvec: eight codes of one byte in each lane of 64 bits ---- */
typedef __m256i qvec;
enum { QUARTERS = 2 }; /* parts of 128 bits of a qvec */
INLINE qvec qvec_all(uint64_t a) { return _mm256_set1_epi64x((long long)a); }
INLINE qvec qvec_or(qvec a, qvec b) { return _mm256_or_si256(a, b); }
INLINE qvec qvec_and(qvec a, qvec b) { return _mm256_and_si256(a, b); }
INLINE qvec qvec_srl(qvec a, int by) { return _mm256_srl_epi64(a, _mm_cvtsi32_si128(by)); }
INLINE qvec qvec_sll(qvec a, int by) { return _mm256_sll_epi64(a, _mm_cvtsi32_si128(by)); }
INLINE qvec qvec_get(const uint8_t *p)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)p);
}
INLINE void qvec_put(uint8_t *p, qvec v) { _mm256_storeu_si256((__m256i *)(void *)p, v); }
/* Shuffles the bytes of each quarter by the same pattern. */
INLINE qvec qvec_shuffle(qvec v, const uint8_t pattern[16])
{
    return _mm256_shuffle_epi8(
        v, _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)pattern)));
}
/* Packs 64 codes of four bits into 32 bytes, the first code of a pair in the lower bits.
   unpack_nibbles is the inverse. */
INLINE void pack_nibbles(const uint8_t *codes, uint8_t *out)
{
    const __m256i each = _mm256_set1_epi16(0x1001), a = _mm256_maddubs_epi16(qvec_get(codes), each),
                  b = _mm256_maddubs_epi16(qvec_get(codes + 32), each);

    /* packing is within 128 bits */
    qvec_put(out, _mm256_permute4x64_epi64(_mm256_packus_epi16(a, b), 0xd8));
}
INLINE void unpack_nibbles(const uint8_t *in, uint8_t *codes)
{
    for (int half = 0; half < 2; half++) {
        const __m256i v =
            _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(const void *)(in + 16 * half)));
        qvec_put(codes + 32 * half, _mm256_and_si256(_mm256_or_si256(v, _mm256_slli_epi16(v, 4)),
                                                     _mm256_set1_epi8(15)));
    }
}
/* Stores quarter j, sixteen bytes, at p + j * step, in ascending order: a quarter overwrites the
   end of the one before it. qvec_get_quarters loads them. */
INLINE void qvec_put_quarters(uint8_t *p, size_t step, qvec v)
{
    _mm_storeu_si128((__m128i *)(void *)p, _mm256_castsi256_si128(v));
    _mm_storeu_si128((__m128i *)(void *)(p + step), _mm256_extracti128_si256(v, 1));
}
INLINE qvec qvec_get_quarters(const uint8_t *p, size_t step)
{
    return _mm256_inserti128_si256(
        _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)p)),
        _mm_loadu_si128((const __m128i *)(const void *)(p + step)), 1);
}
#endif
