/* draws_simd.h: draws.c, a block a lane of 64 bits; included by one file a level after its simd_random_LEVEL.h. Even and odd blocks are drawn in vectors of
   their own, since a pair of them is then put together by one shift and one blend. */
#include "philox_simd.h"

INLINE void put_pair(uint16_t *at, qvec w[2][4])
{
    for (int k = 0; k < 4; k++)
        ivec_put(at + 32 * k, qvec_pair(w[0][k], w[1][k]));
}

/* Groups whose blocks' indexes have one upper half. */
INLINE void draw_groups(const philox *p, uint64_t first_group, size_t groups, uint16_t *out)
{
    const qvec even = qvec_add(qvec_count(), qvec_count()), odd = qvec_add(even, qvec_all(1)), c1 = philox_upper(p, qvec_all(16 * first_group >> 32));

    for (size_t g = 0; g < groups; g += 1 + (groups - g >= 2))
        for (uint32_t l = 0; l < 16; l += WIDTH) {
            const qvec first = qvec_all(16 * (first_group + g) + l), second = qvec_all(16 * (first_group + g + 1) + l);
            uint16_t *at = out + TUTTI_DRAWS * g + 2 * l;
            qvec w[4][4];
            if (groups - g >= 2) {
                philox_draw(p, 4, (const qvec[4]){ qvec_add(first, even), qvec_add(first, odd), qvec_add(second, even), qvec_add(second, odd) }, c1, w);
                put_pair(at + TUTTI_DRAWS, w + 2);
            } else
                philox_draw(p, 2, (const qvec[2]){ qvec_add(first, even), qvec_add(first, odd) }, c1, w);
            put_pair(at, w);
        }
}

static void LEVEL(draws)(const uint32_t counter[4], const uint32_t key[2], uint64_t first_group, size_t groups, uint16_t *out)
{
    const uint64_t same = UINT64_C(1) << 28; /* groups of sixteen blocks */
    philox p;

    philox_begin(&p, counter, key);
    for (size_t g = 0, some; g < groups; g += some) {
        const uint64_t left = same - (first_group + g) % same;
        some = groups - g < left ? groups - g : (size_t)left;
        draw_groups(&p, first_group + g, some, out + TUTTI_DRAWS * g);
    }
}

void LEVEL(tutti_kernels_draws)(tutti_kernels *t)
{
    t->draws = LEVEL(draws);
}
