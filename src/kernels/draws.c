/* draws.c: the reference of tutti_draws: sixteen blocks of Philox4x32-10 (base.h) at a time, in the
   order that base.h defines: the words are stored as a vector of sixteen lanes has them after
   ten rounds. Sixteen bits are enough for a rounding, so a block serves eight elements. */
#include "codes_internal.h"
#include "base/random.h"

static void draws(const uint32_t counter[4], const uint32_t key[2], uint64_t first, size_t groups,
                  uint16_t *out)
{
    for (size_t g = 0; g < groups; g++)
        for (uint32_t l = 0; l < 16; l++) {
            const uint64_t j = 16 * (first + g) + l;
            const uint32_t c[4] = { (uint32_t)j, counter[1] ^ (uint32_t)(j >> 32), counter[2],
                                    counter[3] };
            uint32_t word[4];
            tutti_philox(c, key, word);
            for (size_t w = 0; w < 4; w++) {
                out[TUTTI_DRAWS * g + 32 * w + 2 * l] = (uint16_t)word[w];
                out[TUTTI_DRAWS * g + 32 * w + 2 * l + 1] = (uint16_t)(word[w] >> 16);
            }
        }
}

void tutti_kernels_draws(tutti_kernels *t)
{
    t->draws = draws;
}
