/* simd_neon.h: the vector types and operations of this level for the templates *_simd.h: `vec` has
   WIDTH = eight floats, `dvec` DWIDTH = four doubles, in two registers of 128 bits each, so that
   the templates have AVX2's shapes. NAME_neon.c includes it before NAME_simd.h. simd_avx2.h has
   the same names.

   What every arm64 has (Armv8.0-A): no operation of a later extension is here. Every operation is
   correctly rounded, so a template gives the reference's bits if it keeps the reference's order of
   operations. Lane 0 is the first element in memory: bytes are little-endian. */
#ifndef TUTTI_KERNELS_SIMD_NEON_H
#define TUTTI_KERNELS_SIMD_NEON_H
#include "kernels_internal.h"
#include <arm_neon.h>

#define INLINE static inline __attribute__((always_inline, unused))
#define LEVEL(name) name##_neon /* the name of a kernel of this level */
#define WIDTH 8
#define DWIDTH 4
typedef struct vec { float32x4_t low, high; } vec;
typedef struct dvec { float64x2_t low, high; } dvec;

/* A value of `type` from the halves of one, two or three others. */
#define HALVES(type, of, a) ((type){ of((a).low), of((a).high) })
#define HALVES2(type, of, a, b) ((type){ of((a).low, (b).low), of((a).high, (b).high) })
#define HALVES3(type, of, a, b, c) \
    ((type){ of((a).low, (b).low, (c).low), of((a).high, (b).high, (c).high) })

/* Loads the first `count` lanes from p; the other lanes are 0, and their memory is not read. */
INLINE vec vec_get(const float *p, size_t count)
{
    float some[WIDTH] = { 0 };

    if (count < WIDTH) {
        memcpy(some, p, count * sizeof *p);
        p = some;
    }
    return (vec){ vld1q_f32(p), vld1q_f32(p + 4) };
}

/* Stores the first `count` lanes. */
INLINE void vec_put(float *p, size_t count, vec v)
{
    float some[WIDTH], *to = count < WIDTH ? some : p;

    vst1q_f32(to, v.low);
    vst1q_f32(to + 4, v.high);
    if (count < WIDTH)
        memcpy(p, some, count * sizeof *p);
}

INLINE vec vec_all(float a) { return (vec){ vdupq_n_f32(a), vdupq_n_f32(a) }; }
INLINE vec vec_add(vec a, vec b) { return HALVES2(vec, vaddq_f32, a, b); }
INLINE vec vec_sub(vec a, vec b) { return HALVES2(vec, vsubq_f32, a, b); }
INLINE vec vec_mul(vec a, vec b) { return HALVES2(vec, vmulq_f32, a, b); }
INLINE vec vec_div(vec a, vec b) { return HALVES2(vec, vdivq_f32, a, b); }
/* Returns ab + c, rounded once. */
INLINE vec vec_fma(vec a, vec b, vec c) { return HALVES3(vec, vfmaq_f32, c, a, b); }
INLINE vec vec_sqrt(vec a) { return HALVES(vec, vsqrtq_f32, a); }

/* Stores v. C has no store here that bypasses the caches. p is aligned to the size of vec. */
INLINE void vec_stream(float *p, vec v) { vec_put(p, WIDTH, v); }
INLINE void stream_end(void) { }
/* Returns the sum of sixteen lanes, added in the order of tutti_kernels_fold. */
INLINE float vec_fold(const vec v[2])
{
    const vec a = vec_add(v[0], v[1]);
    const float32x4_t b = vaddq_f32(a.low, a.high);
    const float32x2_t c = vadd_f32(vget_low_f32(b), vget_high_f32(b));

    return vget_lane_f32(c, 0) + vget_lane_f32(c, 1);
}

/* Returns true if no lane is a NaN or infinity. */
INLINE bool vec_all_finite(vec v)
{
    const uint32x4_t exponent = vdupq_n_u32(0x7f800000),
                     low = vandq_u32(vreinterpretq_u32_f32(v.low), exponent),
                     high = vandq_u32(vreinterpretq_u32_f32(v.high), exponent);

    return vmaxvq_u32(vmaxq_u32(low, high)) != 0x7f800000;
}

INLINE dvec dvec_zero(void) { return (dvec){ vdupq_n_f64(0), vdupq_n_f64(0) }; }
/* Loads DWIDTH floats as doubles. */
INLINE dvec dvec_get(const float *p)
{
    const float32x4_t v = vld1q_f32(p);

    return (dvec){ vcvt_f64_f32(vget_low_f32(v)), vcvt_high_f64_f32(v) };
}
INLINE dvec dvec_fma(dvec a, dvec b, dvec c) { return HALVES3(dvec, vfmaq_f64, c, a, b); }
INLINE void dvec_put(double *p, dvec v)
{
    vst1q_f64(p, v.low);
    vst1q_f64(p + 2, v.high);
}
/* Returns the lanes, rounded to float. */
INLINE float32x4_t dvec_floats(dvec v) { return vcvt_high_f32_f64(vcvt_f32_f64(v.low), v.high); }
/* Returns the sum of sixteen lanes, added in the order of tutti_kernels_fold. */
INLINE double dvec_fold(const dvec v[4])
{
    const dvec a = HALVES2(dvec, vaddq_f64, v[0], v[2]), b = HALVES2(dvec, vaddq_f64, v[1], v[3]),
               c = HALVES2(dvec, vaddq_f64, a, b);

    return vpaddd_f64(vaddq_f64(c.low, c.high));
}
#endif
