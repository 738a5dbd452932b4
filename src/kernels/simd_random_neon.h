/* simd_random_neon.h: further operations of this level, for the templates with random numbers
   (draws, fill, levels): lanes of 64 bits as integers (`qvec`) and as doubles (`dvec`). */
#ifndef TUTTI_KERNELS_SIMD_RANDOM_NEON_H
#define TUTTI_KERNELS_SIMD_RANDOM_NEON_H
#include "simd_codes_neon.h"

/* Returns 0, 1, ..., DWIDTH - 1. */
INLINE qvec qvec_count(void) { return (qvec){ { 0, 0, 1, 0 }, { 2, 0, 3, 0 } }; }
INLINE uint32x4_t add_wide(uint32x4_t a, uint32x4_t b)
{
    return narrow_lanes(vaddq_u64(wide(a), wide(b)));
}
INLINE qvec qvec_add(qvec a, qvec b) { return HALVES2(qvec, add_wide, a, b); }
INLINE qvec qvec_xor(qvec a, qvec b) { return ivec_xor(a, b); }
INLINE qvec qvec_xor3(qvec a, qvec b, qvec c) { return ivec_xor(ivec_xor(a, b), c); }
/* Shift a lane's upper half down, or its lower half up; the other half becomes 0. */
INLINE qvec qvec_upper(qvec a) { return qvec_srl(a, 32); }
INLINE qvec qvec_lower_to_upper(qvec a) { return qvec_sll(a, 32); }
/* Returns the products of the lower halves of the lanes, 64 bits each. */
INLINE uint32x4_t mul_wide(uint32x4_t a, uint32x4_t b)
{
    return narrow_lanes(vmull_u32(vmovn_u64(wide(a)), vmovn_u64(wide(b))));
}
INLINE qvec qvec_mul_wide(qvec a, qvec b) { return HALVES2(qvec, mul_wide, a, b); }
/* Returns lanes with the lower half of `even` below and the lower half of `odd` above. */
INLINE uint32x4_t pair(uint32x4_t even, uint32x4_t odd)
{
    return narrow_lanes(vsliq_n_u64(wide(even), wide(odd), 32));
}
INLINE qvec qvec_pair(qvec even, qvec odd) { return HALVES2(qvec, pair, even, odd); }

INLINE dvec dvec_all(double a) { return (dvec){ vdupq_n_f64(a), vdupq_n_f64(a) }; }
INLINE dvec dvec_sub(dvec a, dvec b) { return HALVES2(dvec, vsubq_f64, a, b); }
INLINE dvec dvec_mul(dvec a, dvec b) { return HALVES2(dvec, vmulq_f64, a, b); }
INLINE dvec dvec_div(dvec a, dvec b) { return HALVES2(dvec, vdivq_f64, a, b); }
INLINE dvec dvec_sqrt(dvec a) { return HALVES(dvec, vsqrtq_f64, a); }
INLINE dvec dvec_floor(dvec a) { return HALVES(dvec, vrndmq_f64, a); }
INLINE qvec dvec_bits(dvec a) { return HALVES(qvec, vreinterpretq_u32_f64, a); }
INLINE dvec bits_dvec(qvec a) { return HALVES(dvec, vreinterpretq_f64_u32, a); }
/* Returns `yes` in lanes in which the sign bit of `sign` is set, and `no` in the others. */
INLINE float64x2_t if_negative(float64x2_t sign, float64x2_t yes, float64x2_t no)
{
    return vbslq_f64(vcltzq_s64(vreinterpretq_s64_f64(sign)), yes, no);
}
INLINE dvec dvec_if_negative(dvec sign, dvec yes, dvec no)
{
    return HALVES3(dvec, if_negative, sign, yes, no);
}
/* Converts integers below 2^53 exactly. */
INLINE dvec dvec_from_u53(qvec a)
{
    return (dvec){ vcvtq_f64_u64(wide(a.low)), vcvtq_f64_u64(wide(a.high)) };
}

/* Stores the lanes, rounded to float. */
INLINE void dvec_put_floats(float *p, dvec v) { vst1q_f32(p, dvec_floats(v)); }
/* Returns the lanes of a and b, rounded to float: a[0], b[0], a[1], b[1], ... */
INLINE vec vec_from_pair(dvec a, dvec b)
{
    const float32x4_t x = dvec_floats(a), y = dvec_floats(b);

    return (vec){ vzip1q_f32(x, y), vzip2q_f32(x, y) };
}
/* Returns v in lanes in which v < end, and `other` in the others. */
INLINE vec vec_if_below(vec v, vec end, vec other)
{
    const ivec mask = HALVES2(ivec, vcltq_f32, v, end);

    return HALVES3(vec, vbslq_f32, mask, v, other);
}
#endif
