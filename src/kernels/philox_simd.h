/* philox_simd.h: Philox4x32-10 (base.h) in vectors, for the templates draws_simd.h, levels_simd.h
   and fill_simd.h, which include it after simd_random_LEVEL.h.

   A vector has DWIDTH blocks, one in each lane of 64 bits, and a block is four vectors: each of
   its words is in the lower half of a lane. The instruction for 32 x 32 = 64 bits reads its factors
   there, and leaves the lower word of the product there; one shift moves the upper word there. So
   a round is two products, two shifts and two three-way exclusive ors, and the ten rounds of DWIDTH
   blocks are 60 instructions (80 with AVX2, in which a three-way exclusive or is two). */
#ifndef TUTTI_KERNELS_PHILOX_SIMD_H
#define TUTTI_KERNELS_PHILOX_SIMD_H

enum { ROUNDS = 10 };

/* The keys of all rounds, and words 1 to 3 of the counter. Word 0 and the change of word 1 are the
   index of a block. */
typedef struct philox { qvec key0[ROUNDS], key1[ROUNDS], c1, c2, c3; } philox;

INLINE void philox_begin(philox *p, const uint32_t counter[4], const uint32_t key[2])
{
    uint32_t k0 = key[0], k1 = key[1];

    for (int round = 0; round < ROUNDS; round++) {
        p->key0[round] = qvec_all(k0);
        p->key1[round] = qvec_all(k1);
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    p->c1 = qvec_all(counter[1]);
    p->c2 = qvec_all(counter[2]);
    p->c3 = qvec_all(counter[3]);
}

/* Returns word 1 of the counter of blocks whose index has that upper half. */
INLINE qvec philox_upper(const philox *p, qvec upper)
{
    return qvec_xor(p->c1, upper);
}

/* Computes n vectors of blocks: w[k] are the words of those whose indexes have the lower halves of
   j[k]. c1: philox_upper of the indexes; if it is the same for all blocks of a loop, a part of the
   first two rounds is computed before the loop. The upper halves of w are undefined. n is a
   constant; the latency of a round is longer than its instructions take, so several vectors are
   computed together. */
INLINE void philox_draw(const philox *p, const size_t n, const qvec j[], qvec c1, qvec w[][4])
{
    const qvec m0 = qvec_all(0xD2511F53u), m1 = qvec_all(0xCD9E8D57u);

    _Pragma("GCC unroll 6") for (size_t k = 0; k < n; k++) {
        w[k][0] = j[k];
        w[k][1] = c1;
        w[k][2] = p->c2;
        w[k][3] = p->c3;
    }
    _Pragma("GCC unroll 10") for (int round = 0; round < ROUNDS; round++)
        _Pragma("GCC unroll 6") for (size_t k = 0; k < n; k++) {
            const qvec p0 = qvec_mul_wide(w[k][0], m0), p1 = qvec_mul_wide(w[k][2], m1);
            w[k][0] = qvec_xor3(qvec_upper(p1), w[k][1], p->key0[round]);
            w[k][1] = p1;
            w[k][2] = qvec_xor3(qvec_upper(p0), w[k][3], p->key1[round]);
            w[k][3] = p0;
        }
}

/* ---- groups of sixteen blocks, in the order of tutti_draws (base.h). Blocks with even and odd
   indexes are in separate vectors, so that one shift and one blend combine a pair of them ---- */

/* Stores the words of an even and an odd vector of blocks. */
INLINE void put_pair(uint16_t *at, qvec w[2][4])
{
    for (int k = 0; k < 4; k++)
        ivec_put(at + 32 * k, qvec_pair(w[0][k], w[1][k]));
}

/* Draws n groups from the group `first` on. n is a constant, at most DRAWN, as many as registers
   hold: several groups are computed together, because of the latency. */
enum { DRAWN = WIDTH == 16 ? 3 : 2 };
INLINE void draw_some(const philox *p, const size_t n, uint64_t first, qvec c1, uint16_t *out)
{
    const qvec even = qvec_add(qvec_count(), qvec_count()), odd = qvec_add(even, qvec_all(1));

    for (uint32_t l = 0; l < 16; l += WIDTH) {
        qvec j[2 * DRAWN], w[2 * DRAWN][4];
        _Pragma("GCC unroll 3") for (size_t k = 0; k < n; k++) {
            const qvec at = qvec_all(16 * (first + k) + l);
            j[2 * k] = qvec_add(at, even);
            j[2 * k + 1] = qvec_add(at, odd);
        }
        philox_draw(p, 2 * n, j, c1, w);
        _Pragma("GCC unroll 3") for (size_t k = 0; k < n; k++)
            put_pair(out + TUTTI_DRAWS * k + 2 * l, w + 2 * k);
    }
}

/* Draws groups whose blocks' indexes have the same upper half. */
INLINE void draw_alike(const philox *p, uint64_t first, size_t groups, uint16_t *out)
{
    const qvec c1 = philox_upper(p, qvec_all(16 * first >> 32));
    size_t g = 0;

    for (; groups - g >= DRAWN; g += DRAWN)
        draw_some(p, DRAWN, first + g, c1, out + TUTTI_DRAWS * g);
    for (; DRAWN == 3 && groups - g >= 2; g += 2)
        draw_some(p, 2, first + g, c1, out + TUTTI_DRAWS * g);
    for (; g < groups; g++)
        draw_some(p, 1, first + g, c1, out + TUTTI_DRAWS * g);
}

/* Draws `groups` groups from the group `first` on to `out`, TUTTI_DRAWS numbers each. */
INLINE void draw_groups(const philox *p, uint64_t first, size_t groups, uint16_t *out)
{
    const uint64_t same = UINT64_C(1) << 28; /* groups of sixteen blocks */

    for (size_t g = 0, some; g < groups; g += some) {
        const uint64_t left = same - (first + g) % same;
        some = groups - g < left ? groups - g : (size_t)left;
        draw_alike(p, first + g, some, out + TUTTI_DRAWS * g);
    }
}
#endif
