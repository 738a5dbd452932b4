/* random.c: numbers as a pure function of (seed, stream, step, index). Philox4x32-10: Salmon,
   Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011, section 4.1. No
   state means nothing to save in a checkpoint, any order of drawing, and the same number on every
   rank that asks for it.

   Packing. Block j of (seed, stream, step) is Philox of

       counter = ( j low | j high ^ fold high | step low | fold low )
       key     = ( seed low | stream low )
       fold    = mix(seed high : stream high ^ step high * odd constant)

   and tutti_random(i) is half i mod 2 (words 0 and 1, or 2 and 3, the lower word first) of
   block i / 2. The input has 256 bits and the block function takes 192, so something must be
   folded. What that leaves:
   - mix is a bijection of 64 bits with mix(0) = 0. So all seeds and streams of 64 bits, steps below
     2^32 and indexes below 2^33 have blocks of their own. Seeds may be random and streams may be
     hashes;
   - whatever the values, two inputs that differ in one coordinate have different blocks.
   The packing is part of the format of a checkpoint: a resumed run draws on. random_test.c pins
   it. */
#include "base/random.h"
#include "tutti/base.h"

#include <assert.h>
#include <math.h>

#define M0 0xD2511F53u
#define M1 0xCD9E8D57u
#define WEYL0 0x9E3779B9u /* golden ratio */
#define WEYL1 0xBB67AE85u /* sqrt(3) - 1 */

/* Streams of derived draws: the caller's with bits of the upper half turned. So by the packing
   above neither normals nor permutations share a block with the uniforms of the streams 0, 1, 2,
   ... or with each other. */
#define STREAM_NORMAL  0x4E6F726D00000000u
#define STREAM_PERMUTE 0x5065726D00000000u

void tutti_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3], k0 = key[0],
             k1 = key[1];

    for (int round = 0; round < 10; round++) {
        const uint64_t p0 = (uint64_t)M0 * c0, p1 = (uint64_t)M1 * c2;

        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += WEYL0;
        k1 += WEYL1;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/* The finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): a bijection that keeps 0. */
static uint64_t mix_bits(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

void tutti_philox_begin(tutti_rng rng, uint32_t counter[4], uint32_t key[2])
{
    const uint64_t high = (rng.seed >> 32 << 32) | rng.stream >> 32;
    const uint64_t fold = mix_bits(high ^ (rng.step >> 32) * 0x9E3779B97F4A7C15u);

    counter[0] = 0;
    counter[1] = (uint32_t)(fold >> 32);
    counter[2] = (uint32_t)rng.step;
    counter[3] = (uint32_t)fold;
    key[0] = (uint32_t)rng.seed;
    key[1] = (uint32_t)rng.stream;
}

static void block(tutti_rng rng, uint64_t j, uint32_t out[4])
{
    uint32_t counter[4], key[2];

    tutti_philox_begin(rng, counter, key);
    counter[0] = (uint32_t)j;
    counter[1] ^= (uint32_t)(j >> 32);
    tutti_philox(counter, key, out);
}

static uint64_t half(const uint32_t words[4], uint64_t which)
{
    return which == 0 ? words[0] | (uint64_t)words[1] << 32 : words[2] | (uint64_t)words[3] << 32;
}

/* The upper 53 bits: every result is a multiple of 2^-53 and all are equally likely. */
static double unit(uint64_t bits)
{
    return (double)(bits >> 11) * 0x1p-53;
}

uint64_t tutti_random(tutti_rng rng, uint64_t index)
{
    uint32_t words[4];

    block(rng, index / 2, words);
    return half(words, index % 2);
}

double tutti_uniform(tutti_rng rng, uint64_t index)
{
    return unit(tutti_random(rng, index));
}

/* Box and Muller 1958, the cosine half. Both draws are of block `index` of the stream of normals
   (draws 2i and 2i + 1 there). 1 - u is in (0, 1], so the logarithm is finite; the largest
   magnitude is sqrt(2 * 53 ln 2) = 8.57. */
double tutti_normal(tutti_rng rng, uint64_t index)
{
    uint32_t words[4];

    rng.stream ^= TUTTI_NORMAL_STREAM;
    block(rng, index, words);
    return sqrt(-2.0 * log(1.0 - unit(half(words, 0)))) *
           cos(6.283185307179586 * unit(half(words, 1)));
}

/* ---- a permutation of [0, n) ----
   A Feistel network on b = ceil(log2 n) bits, in two parts of floor(b/2) and ceil(b/2) bits that
   change each other alternately. Each such round is its own inverse, whatever the function of a
   round, hence a bijection of [0, 2^b). Elements from n on are walked over: applying the
   bijection until the result is below n is a bijection of [0, n) (Black and Rogaway, CT-RSA
   2002), at 2^b / n < 2 applications on average. A part may be empty (n = 2): its rounds then do
   nothing.

   Four rounds would do for large n. Where the parts have one or two bits more are needed to even
   out. With eight, element frequencies for n = 5 to 7 are off by some 5 per cent (seen at
   chi-square = 11 per degree of freedom in 20 000 orders), with twelve by nothing that test can
   see. The keys of the rounds are three Philox blocks. */
enum { FEISTEL_ROUNDS = 12 };

/* The finaliser of MurmurHash3: every bit of x ^ key reaches every bit of the result. */
static uint32_t feistel_mix(uint32_t x, uint32_t key)
{
    x ^= key;
    x = (x ^ (x >> 16)) * 0x85EBCA6Bu;
    x = (x ^ (x >> 13)) * 0xC2B2AE35u;
    return x ^ (x >> 16);
}

uint64_t tutti_permuted(tutti_rng rng, uint64_t n, uint64_t position)
{
    const int bits = n > 1 ? 64 - __builtin_clzll(n - 1) : 0;
    const int left_bits = bits / 2, right_bits = bits - left_bits; /* at most 32 each */
    const uint32_t left_mask = (uint32_t)((UINT64_C(1) << left_bits) - 1);
    const uint32_t right_mask = (uint32_t)((UINT64_C(1) << right_bits) - 1);
    uint32_t keys[FEISTEL_ROUNDS];
    uint64_t x = position;

    assert(position < n); /* from outside, the walk might never come in */
    if (n <= 1)
        return 0;
    rng.stream ^= STREAM_PERMUTE;
    for (int i = 0; i < FEISTEL_ROUNDS / 4; i++)
        block(rng, (uint64_t)i, keys + 4 * i);
    do {
        uint32_t left = (uint32_t)(x >> right_bits) & left_mask, right = (uint32_t)x & right_mask;

        for (int round = 0; round < FEISTEL_ROUNDS; round += 2) {
            right ^= feistel_mix(left, keys[round]) & right_mask;
            left ^= feistel_mix(right, keys[round + 1]) & left_mask;
        }
        x = (uint64_t)left << right_bits | right;
    } while (x >= n); /* ends: the walk is on a cycle that holds `position`, which is below n */
    return x;
}
