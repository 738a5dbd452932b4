/* philox_simd.h: Philox4x32-10 (base.h) in vectors, shared by draws_simd.h, levels_simd.h and
   fill_simd.h; included after simd_random_LEVEL.h. A block stands in a lane of 64 bits, DWIDTH of
   them in a vector, each word in the lower half of its lane. That is where the instruction for
   32 x 32 = 64 bits reads its factors. It leaves the product's lower word where it is wanted, and
   one shift brings the upper one there. So a round of a vector is two products, two shifts and two
   three-way exclusive ors, and the rounds of DWIDTH blocks 60 instructions (80 with AVX2, whose
   exclusive or takes two). */
#ifndef TUTTI_KERNELS_PHILOX_SIMD_H
#define TUTTI_KERNELS_PHILOX_SIMD_H

enum { ROUNDS = 10 };

/* Values that do not change from block to block. */
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

/* The initial second word in blocks of that upper half of the index. */
INLINE qvec philox_upper(const philox *p, qvec upper)
{
    return qvec_xor(p->c1, upper);
}

/* The blocks whose indexes' lower halves those of the lanes of j[0], ... j[n - 1] hold, n a
   constant: a round takes longer than its instructions, so several go side by side. c1:
   philox_upper; where it is the same for all blocks of a loop, a tenth of the first two rounds'
   work is done before it. The upper halves of w are of no meaning. */
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

/* ---- groups of sixteen blocks as runtime.h numbers their halves. Even and odd blocks are drawn in
   vectors of their own, since a pair of them is then put together by one shift and one blend.
   ---- */
INLINE void put_pair(uint16_t *at, qvec w[2][4])
{
    for (int k = 0; k < 4; k++)
        ivec_put(at + 32 * k, qvec_pair(w[0][k], w[1][k]));
}

/* `n` groups from the group `first` on, n a constant: a round takes longer than the instructions of
   one group's, so several go side by side, as many as registers hold. */
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

/* Groups whose blocks' indexes have one upper half. */
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
