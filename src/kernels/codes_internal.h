/* codes_internal.h: single elements of the codecs' kernels in plain C, for the references (codes.c,
   draws.c, extent.c, levels.c, pack.c, select.c) and for the last elements of the vector loops. */
#ifndef TUTTI_KERNELS_CODES_INTERNAL_H
#define TUTTI_KERNELS_CODES_INTERNAL_H
#include "kernels_internal.h"
#include <tutti/base.h>

/* Returns the key of tutti_magnitude_key: the bits of |x|. */
static inline uint32_t tutti_kernels_key(float x)
{
    return tutti_kernels_bits(x) & 0x7fffffffu;
}

/* Converts the bits of a float to an integer whose order is that of the floats: -NaN, -infinity,
   ..., -0, 0, ..., infinity, NaN. The function is its own inverse. */
static inline int32_t tutti_kernels_ordered(uint32_t bits)
{
    return (int32_t)(bits ^ ((bits & 0x80000000u) != 0 ? 0x7fffffffu : 0));
}

/* Returns the power of two by which a scale and its numbers are multiplied first, so that the scale
   and 2^-30 of it have reciprocals in float: 1, except for a very small or large scale. The
   rounding error of the products is far below the least level. */
static inline float tutti_kernels_power(float scale)
{
    return scale < 0x1p-40f ? 0x1p100f : scale > 0x1p64f ? 0x1p-64f : 1;
}

/* Returns s of TUTTI_GRID_EVEN: the number of levels above 0. */
static inline int tutti_kernels_steps(const tutti_rounding *how)
{
    return how->steps > 0 ? how->steps : (1 << (how->bits - 1)) - 1;
}

/* pack.c: the references of tutti_pack and tutti_unpack. The first element begins a byte. */
void tutti_kernels_pack(int bits, size_t n, const uint8_t *codes, uint8_t *out);
void tutti_kernels_unpack(int bits, size_t n, const uint8_t *in, uint8_t *codes);
#endif
