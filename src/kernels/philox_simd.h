/* philox_simd.h: Philox4x32-10 (base.h) in vectors, shared by draws_simd.h and fill_simd.h; included after simd_random_LEVEL.h.
   A block stands in a lane of 64 bits, DWIDTH of them in a vector, each word in the lower half of its lane: that is where the instruction for 32 x 32 = 64
   bits reads its factors, it leaves the product's lower word where it is wanted, and one shift brings the upper one there. So a round of a vector is two
   products, two shifts and two three-way exclusive ors, and the rounds of DWIDTH blocks 60 instructions (80 with AVX2, whose exclusive or takes two). */
#ifndef TUTTI_KERNELS_PHILOX_SIMD_H
#define TUTTI_KERNELS_PHILOX_SIMD_H

enum { ROUNDS = 10 };

/* What does not change from block to block. */
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

/* What the second word begins as in blocks of that upper half of the index. */
INLINE qvec philox_upper(const philox *p, qvec upper)
{
    return qvec_xor(p->c1, upper);
}

/* The blocks whose indexes' lower halves those of the lanes of j[0], ... j[n - 1] hold, n a constant: a round takes longer than its instructions, so several go side by side. c1: philox_upper; where it is the same
   for all blocks of a loop, a tenth of the first two rounds' work is done before it. The upper halves of w are of no meaning. */
INLINE void philox_draw(const philox *p, const size_t n, const qvec j[], qvec c1, qvec w[][4])
{
    const qvec m0 = qvec_all(0xD2511F53u), m1 = qvec_all(0xCD9E8D57u);

    _Pragma("GCC unroll 4") for (size_t k = 0; k < n; k++) {
        w[k][0] = j[k];
        w[k][1] = c1;
        w[k][2] = p->c2;
        w[k][3] = p->c3;
    }
    _Pragma("GCC unroll 10") for (int round = 0; round < ROUNDS; round++)
        _Pragma("GCC unroll 4") for (size_t k = 0; k < n; k++) {
            const qvec p0 = qvec_mul_wide(w[k][0], m0), p1 = qvec_mul_wide(w[k][2], m1);
            w[k][0] = qvec_xor3(qvec_upper(p1), w[k][1], p->key0[round]);
            w[k][1] = p1;
            w[k][2] = qvec_xor3(qvec_upper(p0), w[k][3], p->key1[round]);
            w[k][3] = p0;
        }
}
#endif
