/* codes_internal.h: one element of the kernels of runtime.h in plain C: the references, and the
   tails of the vector loops. */
#ifndef TUTTI_KERNELS_CODES_INTERNAL_H
#define TUTTI_KERNELS_CODES_INTERNAL_H
#include "kernels_internal.h"
#include <tutti/runtime.h>

static inline uint32_t tutti_kernels_key(float x)
{
    return tutti_kernels_bits(x) & 0x7fffffffu;
}

/* Bits as an integer that orders as the numbers do: -NaN, -infinity, ..., -0, 0, ..., infinity,
   NaN. Its own inverse. */
static inline int32_t tutti_kernels_ordered(uint32_t bits)
{
    return (int32_t)(bits ^ ((bits & 0x80000000u) != 0 ? 0x7fffffffu : 0));
}

/* 1, or what brings a scale from the ends of the range of float to where it and its 2^-30th part
   have reciprocals. What numbers lose to it is far below the least level. */
static inline float tutti_kernels_power(float scale)
{
    return scale < 0x1p-40f ? 0x1p100f : scale > 0x1p64f ? 0x1p-64f : 1;
}

/* Even levels above 0. */
static inline int tutti_kernels_steps(const tutti_rounding *how)
{
    return how->steps > 0 ? how->steps : (1 << (how->bits - 1)) - 1;
}

/* The references of packing, from an element that begins a byte on. */
void tutti_kernels_pack(int bits, size_t n, const uint8_t *codes, uint8_t *out);
void tutti_kernels_unpack(int bits, size_t n, const uint8_t *in, uint8_t *codes);
#endif
