/* draws_simd.h: draws.c, a block a lane of 64 bits; included by one file a level after its simd_random_LEVEL.h. Even and odd blocks are drawn in vectors of
   their own, since a pair of them is then put together by one shift and one blend. */
#include "philox_simd.h"

static void LEVEL(draws)(const uint32_t counter[4], const uint32_t key[2], uint64_t first, size_t groups, uint16_t *out)
{
    const qvec even = qvec_add(qvec_count(), qvec_count()), odd = qvec_add(even, qvec_all(1));
    philox p;

    philox_begin(&p, counter, key);
    for (size_t g = 0; g < groups; g++)
        for (uint32_t l = 0; l < 16; l += WIDTH) {
            const qvec j = qvec_all(16 * (first + g) + l);
            uint16_t *at = out + TUTTI_DRAWS * g + 2 * l;
            qvec a[4], b[4];
            philox_draw(&p, qvec_add(j, even), a);
            philox_draw(&p, qvec_add(j, odd), b);
            for (int w = 0; w < 4; w++)
                ivec_put(at + 32 * w, qvec_pair(a[w], b[w]));
        }
}

void LEVEL(tutti_kernels_draws)(tutti_kernels *t)
{
    t->draws = LEVEL(draws);
}
