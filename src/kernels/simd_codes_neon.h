/* simd_codes_neon.h: further vector types and operations of this level, for the templates of
   codecs' kernels (extent, select, pack; through simd_random_neon.h also levels): `ivec` has WIDTH
   = eight integers of 32 bits, `qvec` has lanes of 64 bits. Lane j is that of the j-th element. */
#ifndef TUTTI_KERNELS_SIMD_CODES_NEON_H
#define TUTTI_KERNELS_SIMD_CODES_NEON_H
#include "codes_internal.h"
#include "simd_neon.h"

typedef struct ivec { uint32x4_t low, high; } ivec;

INLINE ivec vec_bits(vec v) { return HALVES(ivec, vreinterpretq_u32_f32, v); }
INLINE vec bits_vec(ivec v) { return HALVES(vec, vreinterpretq_f32_u32, v); }
INLINE ivec ivec_all(int32_t a)
{
    return (ivec){ vdupq_n_u32((uint32_t)a), vdupq_n_u32((uint32_t)a) };
}
INLINE void ivec_put(void *p, ivec v)
{
    vst1q_u8(p, vreinterpretq_u8_u32(v.low));
    vst1q_u8((uint8_t *)p + 16, vreinterpretq_u8_u32(v.high));
}
INLINE ivec ivec_add(ivec a, ivec b) { return HALVES2(ivec, vaddq_u32, a, b); }
INLINE ivec ivec_sub(ivec a, ivec b) { return HALVES2(ivec, vsubq_u32, a, b); }
INLINE ivec ivec_and(ivec a, ivec b) { return HALVES2(ivec, vandq_u32, a, b); }
INLINE ivec ivec_or(ivec a, ivec b) { return HALVES2(ivec, vorrq_u32, a, b); }
INLINE ivec ivec_xor(ivec a, ivec b) { return HALVES2(ivec, veorq_u32, a, b); }
INLINE ivec ivec_srl(ivec a, int by) { return (ivec){ a.low >> by, a.high >> by }; }
INLINE ivec ivec_sll(ivec a, int by) { return (ivec){ a.low << by, a.high << by }; }
INLINE uint32x4_t sra31(uint32x4_t a) { return vcltzq_s32(vreinterpretq_s32_u32(a)); }
INLINE ivec ivec_sra31(ivec a) { return HALVES(ivec, sra31, a); }
INLINE ivec ivec_max_u32(ivec a, ivec b) { return HALVES2(ivec, vmaxq_u32, a, b); }
INLINE uint32_t ivec_most_u32(ivec a) { return vmaxvq_u32(vmaxq_u32(a.low, a.high)); }
INLINE uint32x4_t greater_of(uint32x4_t a, uint32x4_t b)
{
    return vreinterpretq_u32_s32(vmaxq_s32(vreinterpretq_s32_u32(a), vreinterpretq_s32_u32(b)));
}
INLINE uint32x4_t less_of(uint32x4_t a, uint32x4_t b)
{
    return vreinterpretq_u32_s32(vminq_s32(vreinterpretq_s32_u32(a), vreinterpretq_s32_u32(b)));
}
INLINE ivec ivec_max_i32(ivec a, ivec b) { return HALVES2(ivec, greater_of, a, b); }
INLINE ivec ivec_min_i32(ivec a, ivec b) { return HALVES2(ivec, less_of, a, b); }
INLINE uint32x4_t less(uint32x4_t a, uint32x4_t b)
{
    return vcltq_s32(vreinterpretq_s32_u32(a), vreinterpretq_s32_u32(b));
}
/* Returns `yes` in lanes in which a < b, signed, and `no` in the others. */
INLINE ivec ivec_if_less(ivec a, ivec b, ivec yes, ivec no)
{
    const ivec mask = HALVES2(ivec, less, a, b);

    return HALVES3(ivec, vbslq_u32, mask, yes, no);
}
/* Returns `yes` in lanes in which v >= bound, and `no` in the others. */
INLINE vec vec_if_at_least(vec v, vec bound, vec yes, vec no)
{
    const ivec mask = HALVES2(ivec, vcgeq_f32, v, bound);

    return HALVES3(vec, vbslq_f32, mask, yes, no);
}
/* Returns a + by in lanes in which v >= bound, and a in the others. */
INLINE ivec ivec_add_if_at_least(ivec a, int by, vec v, vec bound)
{
    return ivec_add(a, ivec_and(ivec_all(by), HALVES2(ivec, vcgeq_f32, v, bound)));
}
INLINE vec ivec_float(ivec a)
{
    return (vec){ vcvtq_f32_s32(vreinterpretq_s32_u32(a.low)),
                  vcvtq_f32_s32(vreinterpretq_s32_u32(a.high)) };
}
INLINE uint32x4_t nearest(float32x4_t v) { return vreinterpretq_u32_s32(vcvtnq_s32_f32(v)); }
INLINE ivec ivec_round(vec v) { return HALVES(ivec, nearest, v); } /* halves to even */

/* The lanes of an ivec as eight numbers of 16 bits, and back. */
INLINE uint16x8_t ivec_narrow(ivec v)
{
    return vmovn_high_u32(vmovn_u32(v.low), v.high);
}
INLINE ivec ivec_widen(uint16x8_t v)
{
    return (ivec){ vmovl_u16(vget_low_u16(v)), vmovl_high_u16(v) };
}

/* Loads `count` integers of 16 bits; the other lanes are 0. */
INLINE ivec ivec_get_u16(const uint16_t *p, size_t count)
{
    uint16_t some[8] = { 0 };

    if (count < 8) {
        memcpy(some, p, count * sizeof *p);
        p = some;
    }
    return ivec_widen(vld1q_u16(p));
}

/* Loads `count` bytes; the other lanes are 0. */
INLINE ivec ivec_get_u8(const uint8_t *p, size_t count)
{
    uint64_t bytes = 0;

    memcpy(&bytes, p, count == 8 ? 8 : count);
    return ivec_widen(vmovl_u8(vcreate_u8(bytes)));
}

/* Stores the lowest byte of each of the first `count` lanes. */
INLINE void ivec_put_u8(uint8_t *p, size_t count, ivec v)
{
    const uint64_t bytes = vget_lane_u64(vreinterpret_u64_u8(vmovn_u16(ivec_narrow(v))), 0);

    memcpy(p, &bytes, count == 8 ? 8 : count);
}

/* Sets bit `bits` - 1 of each index that is not 0 and whose x, the bits of a float, has its sign
   bit set. */
INLINE ivec with_sign(ivec index, ivec x, int bits)
{
    const ivec sign = ivec_sll(ivec_srl(x, 31), bits - 1),
               some = HALVES2(ivec, vtstq_u32, index, index);

    return ivec_or(index, ivec_and(sign, some));
}

/* Returns b where one of them is a NaN, as x86 does: not vminq_f32. */
INLINE vec vec_min(vec a, vec b)
{
    const ivec mask = HALVES2(ivec, vcltq_f32, a, b);

    return HALVES3(vec, vbslq_f32, mask, a, b);
}

/* Entry at[j] of a table of WIDTH floats in a register (vec_permute), of 2 WIDTH floats in two
   (vec_permute2), or of a table in memory (vec_gather). The first two look up bytes. */
INLINE uint8x16_t places(uint32x4_t at)
{
    return vreinterpretq_u8_u32(
        vaddq_u32(vmulq_u32(at, vdupq_n_u32(0x04040404)), vdupq_n_u32(0x03020100)));
}
INLINE uint8x16_t bytes_of(float32x4_t v) { return vreinterpretq_u8_f32(v); }
INLINE vec vec_permute(vec table, ivec at)
{
    const uint8x16x2_t t = { { bytes_of(table.low), bytes_of(table.high) } };

    return (vec){ vreinterpretq_f32_u8(vqtbl2q_u8(t, places(at.low))),
                  vreinterpretq_f32_u8(vqtbl2q_u8(t, places(at.high))) };
}
INLINE vec vec_permute2(vec low, vec high, ivec at)
{
    const uint8x16x4_t t = { { bytes_of(low.low), bytes_of(low.high), bytes_of(high.low),
                               bytes_of(high.high) } };

    return (vec){ vreinterpretq_f32_u8(vqtbl4q_u8(t, places(at.low))),
                  vreinterpretq_f32_u8(vqtbl4q_u8(t, places(at.high))) };
}
INLINE vec vec_gather(const float *table, ivec at)
{
    float some[WIDTH];
    uint32_t index[WIDTH];

    ivec_put(index, at);
    _Pragma("GCC unroll 8") for (int j = 0; j < WIDTH; j++) some[j] = table[index[j]];
    return vec_get(some, WIDTH);
}
INLINE dvec dvec_add(dvec a, dvec b) { return HALVES2(dvec, vaddq_f64, a, b); }
INLINE dvec dvec_abs(dvec a) { return HALVES(dvec, vabsq_f64, a); }

/* Returns a mask: bit j is set if lane j is all ones; it is all ones or 0. */
INLINE uint32_t ivec_mask(ivec v)
{
    static const uint16_t bit[8] = { 1, 2, 4, 8, 16, 32, 64, 128 };

    return vaddvq_u16(vandq_u16(ivec_narrow(v), vld1q_u16(bit)));
}
/* Returns a mask: bit j is set if lane j < 0. */
INLINE uint32_t vec_negative(vec v) { return ivec_mask(HALVES(ivec, vcltzq_f32, v)); }
/* Negates the lanes whose bit in `mask` is set. */
INLINE vec vec_negate_if(vec v, uint32_t mask)
{
    static const uint32_t bit[8] = { 1, 2, 4, 8, 16, 32, 64, 128 };
    const ivec lane = { vld1q_u32(bit), vld1q_u32(bit + 4) }, all = ivec_all((int32_t)mask),
               set = HALVES2(ivec, vtstq_u32, all, lane);

    return bits_vec(ivec_xor(vec_bits(v), ivec_sll(set, 31)));
}
/* Returns a mask: bit j is set if the key (tutti_magnitude_key) of lane j is at least `key`. */
INLINE uint32_t vec_above(vec v, uint32_t key)
{
    const ivec magnitude = ivec_and(vec_bits(v), ivec_all(0x7fffffff)),
               bound = ivec_all((int32_t)key);

    return ivec_mask(HALVES2(ivec, vcgeq_u32, magnitude, bound));
}
/* Appends the elements x[i + j] whose bit j in `mask` is set, and their indexes, after the first
   `at` entries. Returns the new number of entries. There is memory for WIDTH more. */
INLINE size_t put_chosen(uint32_t mask, const float *x, size_t i, size_t at, uint32_t *index,
                         float *value)
{
    for (; mask != 0; mask &= mask - 1, at++) { /* there are few */
        const size_t j = i + (size_t)__builtin_ctz(mask);
        index[at] = (uint32_t)j;
        value[at] = x[j];
    }
    return at;
}

/* ---- qvec: eight codes of one byte in each lane of 64 bits. It is an ivec, whose registers its
   operations read as lanes of 64 bits ---- */
typedef ivec qvec;
enum { QUARTERS = 2 }; /* parts of 128 bits of a qvec */
INLINE uint64x2_t wide(uint32x4_t a) { return vreinterpretq_u64_u32(a); }
INLINE uint32x4_t narrow_lanes(uint64x2_t a) { return vreinterpretq_u32_u64(a); }
INLINE uint8x16_t bytes(uint32x4_t a) { return vreinterpretq_u8_u32(a); }
INLINE uint32x4_t get_bytes(const uint8_t *p) { return vreinterpretq_u32_u8(vld1q_u8(p)); }

INLINE qvec qvec_all(uint64_t a)
{
    return (qvec){ narrow_lanes(vdupq_n_u64(a)), narrow_lanes(vdupq_n_u64(a)) };
}
INLINE qvec qvec_or(qvec a, qvec b) { return ivec_or(a, b); }
INLINE qvec qvec_and(qvec a, qvec b) { return ivec_and(a, b); }
INLINE qvec qvec_srl(qvec a, int by)
{
    return (qvec){ narrow_lanes(wide(a.low) >> by), narrow_lanes(wide(a.high) >> by) };
}
INLINE qvec qvec_sll(qvec a, int by)
{
    return (qvec){ narrow_lanes(wide(a.low) << by), narrow_lanes(wide(a.high) << by) };
}
INLINE qvec qvec_get(const uint8_t *p) { return (qvec){ get_bytes(p), get_bytes(p + 16) }; }
INLINE void qvec_put(uint8_t *p, qvec v) { ivec_put(p, v); }
/* Shuffles the bytes of each quarter by the same pattern. */
INLINE qvec qvec_shuffle(qvec v, const uint8_t pattern[16])
{
    const uint8x16_t at = vld1q_u8(pattern);

    return (qvec){ vreinterpretq_u32_u8(vqtbl1q_u8(bytes(v.low), at)),
                   vreinterpretq_u32_u8(vqtbl1q_u8(bytes(v.high), at)) };
}
/* Packs 64 codes of four bits into 32 bytes, the first code of a pair in the lower bits.
   unpack_nibbles is the inverse. */
INLINE void pack_nibbles(const uint8_t *codes, uint8_t *out)
{
    for (int half = 0; half < 2; half++) {
        const uint8x16x2_t pairs = vld2q_u8(codes + 32 * half);
        vst1q_u8(out + 16 * half, vsliq_n_u8(pairs.val[0], pairs.val[1], 4));
    }
}
INLINE void unpack_nibbles(const uint8_t *in, uint8_t *codes)
{
    for (int half = 0; half < 2; half++) {
        const uint8x16_t v = vld1q_u8(in + 16 * half);
        const uint8x16x2_t pairs = { { vandq_u8(v, vdupq_n_u8(15)), vshrq_n_u8(v, 4) } };
        vst2q_u8(codes + 32 * half, pairs);
    }
}
/* Stores quarter j, sixteen bytes, at p + j * step, in ascending order: a quarter overwrites the
   end of the one before it. qvec_get_quarters loads them. */
INLINE void qvec_put_quarters(uint8_t *p, size_t step, qvec v)
{
    vst1q_u8(p, bytes(v.low));
    vst1q_u8(p + step, bytes(v.high));
}
INLINE qvec qvec_get_quarters(const uint8_t *p, size_t step)
{
    return (qvec){ get_bytes(p), get_bytes(p + step) };
}
#endif
