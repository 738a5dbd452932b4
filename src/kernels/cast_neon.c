/* cast_neon.c: cast.c for NEON. Eight numbers of 16 bits are an `hvec`; the loops are those of
   cast_simd.h. Armv8.0-A converts halves to floats and back; bfloat16 takes integer operations. */
#include "simd_codes_neon.h"

typedef uint16x8_t hvec;

/* Ones in lanes in which u, the bits of a float, is a NaN. */
INLINE uint32x4_t is_nan(uint32x4_t u)
{
    return vcgtq_u32(vandq_u32(u, vdupq_n_u32(0x7fffffff)), vdupq_n_u32(0x7f800000));
}

INLINE uint32x4_t round_bf16(uint32x4_t u)
{
    const uint32x4_t upper = vshrq_n_u32(u, 16), odd = vandq_u32(upper, vdupq_n_u32(1));
    const uint32x4_t rounded = vshrq_n_u32(vaddq_u32(vaddq_u32(u, vdupq_n_u32(0x7fff)), odd), 16);

    return vbslq_u32(is_nan(u), vorrq_u32(upper, vdupq_n_u32(0x40)), rounded);
}

INLINE uint32x4_t cut_bf16(uint32x4_t u)
{
    return vorrq_u32(vshrq_n_u32(u, 16), vandq_u32(is_nan(u), vdupq_n_u32(0x40)));
}

INLINE uint32x4_t whole_bf16(uint32x4_t u)
{
    const uint32x4_t whole = vshlq_n_u32(u, 16);

    return vorrq_u32(whole, vandq_u32(is_nan(whole), vdupq_n_u32(0x00400000)));
}

INLINE hvec bf16_of(const float *x)
{
    const ivec u = vec_bits(vec_get(x, WIDTH));

    return ivec_narrow(HALVES(ivec, round_bf16, u));
}

INLINE hvec cut_of(const float *x)
{
    const ivec u = vec_bits(vec_get(x, WIDTH));

    return ivec_narrow(HALVES(ivec, cut_bf16, u));
}

INLINE hvec f16_of(const float *x)
{
    const vec v = vec_get(x, WIDTH);

    return vreinterpretq_u16_f16(vcvt_high_f16_f32(vcvt_f16_f32(v.low), v.high));
}

INLINE vec from_bf16(const uint16_t *x)
{
    const ivec u = ivec_widen(vld1q_u16(x));

    return bits_vec(HALVES(ivec, whole_bf16, u));
}

INLINE vec from_f16(const uint16_t *x)
{
    const float16x8_t h = vreinterpretq_f16_u16(vld1q_u16(x));

    return (vec){ vcvt_f32_f16(vget_low_f16(h)), vcvt_high_f32_f16(h) };
}

INLINE void half_put(uint16_t *y, hvec h)
{
    vst1q_u16(y, h);
}

/* vec_stream has why these are plain stores. */
INLINE void half_stream(uint16_t *y, hvec low, hvec high)
{
    vst1q_u16(y, low);
    vst1q_u16(y + 8, high);
}

INLINE void floats_of(const double *x, float *y)
{
    vst1q_f32(y, dvec_floats((dvec){ vld1q_f64(x), vld1q_f64(x + 2) }));
}
#include "cast_simd.h"
