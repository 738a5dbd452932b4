/* draws_simd.h: draws.c, a block a lane; included by one file a level after its simd_codes_LEVEL.h. */

static void LEVEL(draws)(const uint32_t counter[4], const uint32_t key[2], uint64_t first, size_t groups, uint16_t *out)
{
    const ivec m0 = ivec_all((int32_t)0xD2511F53u), m1 = ivec_all((int32_t)0xCD9E8D57u);

    for (size_t g = 0; g < groups; g++)
        for (uint32_t l = 0; l < 16; l += WIDTH) {
            /* Sixteen blocks begin at a multiple of sixteen: within them the counter's lower word does not overflow. */
            const uint64_t j = 16 * (first + g) + l;
            ivec c0 = ivec_add(ivec_all((int32_t)(uint32_t)j), ivec_count()), c1 = ivec_all((int32_t)(counter[1] ^ (uint32_t)(j >> 32)));
            ivec c2 = ivec_all((int32_t)counter[2]), c3 = ivec_all((int32_t)counter[3]);
            uint32_t k0 = key[0], k1 = key[1];
            uint16_t *at = out + TUTTI_DRAWS * g + 2 * l;
            _Pragma("GCC unroll 10") for (int round = 0; round < 10; round++) {
                ivec high0, low0, high1, low1;
                ivec_mul_wide(c0, m0, &high0, &low0);
                ivec_mul_wide(c2, m1, &high1, &low1);
                c0 = ivec_xor(ivec_xor(high1, c1), ivec_all((int32_t)k0));
                c1 = low1;
                c2 = ivec_xor(ivec_xor(high0, c3), ivec_all((int32_t)k1));
                c3 = low0;
                k0 += 0x9E3779B9u;
                k1 += 0xBB67AE85u;
            }
            ivec_put(at, c0);
            ivec_put(at + 32, c1);
            ivec_put(at + 64, c2);
            ivec_put(at + 96, c3);
        }
}

void LEVEL(tutti_kernels_draws)(tutti_kernels *t)
{
    t->draws = LEVEL(draws);
}
