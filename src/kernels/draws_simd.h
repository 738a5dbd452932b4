/* draws_simd.h: draws.c, a block a lane of 64 bits; included by one file a level after its
   simd_random_LEVEL.h. */
#include "philox_simd.h"

static void LEVEL(draws)(const uint32_t counter[4], const uint32_t key[2], uint64_t first,
                         size_t groups, uint16_t *out)
{
    philox p;

    philox_begin(&p, counter, key);
    draw_groups(&p, first, groups, out);
}

void LEVEL(tutti_kernels_draws)(tutti_kernels *t)
{
    t->draws = LEVEL(draws);
}
