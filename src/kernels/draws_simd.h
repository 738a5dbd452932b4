/* draws_simd.h: template of the kernel of draws.c, with a Philox block in each lane of 64 bits.
   draws_LEVEL.c includes it after simd_random_LEVEL.h. */
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
