/* fill.c: fills a vector with random numbers, sixteen Philox blocks at a time. Every operation is
   an integer one or a correctly rounded float one, and no product and sum are fused
   (-ffp-contract=off). So fill_simd.h, the same in vectors, gives the same bits.

   A normal is Box and Muller's, as tutti_normal. But log and cos are evaluated here, since those
   of C libraries differ in the last bits and take one argument a call. They are the polynomials
   of fdlibm (Sun Microsystems, 1993: e_log.c, k_cos.c, k_sin.c), each good to one unit in the
   last place. The angle is reduced in turns, where that is exact, then multiplied by 2 pi. The
   normal, before it is rounded to float, has a relative error of at most 8 * 2^-53. So the float
   differs from that of tutti_normal, in its last bit, for one index in some ten million. */
#include "kernels_internal.h"
#include <math.h>

enum { BLOCKS = 16 };
typedef struct words { uint32_t of[4][BLOCKS]; } words;

/* Philox blocks j to j + 15. counter, key: those of block 0 (tutti_philox_begin). */
static inline void draw_blocks(const uint32_t counter[4], const uint32_t key[2], uint64_t j,
                               words *w)
{
    uint32_t k0 = key[0], k1 = key[1];

    for (uint32_t l = 0; l < BLOCKS; l++) {
        w->of[0][l] = (uint32_t)j + l;
        w->of[1][l] = counter[1] ^ (uint32_t)((j + l) >> 32);
        w->of[2][l] = counter[2];
        w->of[3][l] = counter[3];
    }
    for (int round = 0; round < 10; round++) {
        for (int l = 0; l < BLOCKS; l++) {
            const uint64_t p0 = (uint64_t)0xD2511F53u * w->of[0][l],
                           p1 = (uint64_t)0xCD9E8D57u * w->of[2][l];
            w->of[0][l] = (uint32_t)(p1 >> 32) ^ w->of[1][l] ^ k0;
            w->of[1][l] = (uint32_t)p1;
            w->of[2][l] = (uint32_t)(p0 >> 32) ^ w->of[3][l] ^ k1;
            w->of[3][l] = (uint32_t)p0;
        }
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
}

/* The upper 53 of the 64 bits high:low, as a fraction. Every step is exact. Both halves are
   converted as signed integers, which every instruction set can do in vectors. */
static inline double unit(uint32_t low, uint32_t high)
{
    return (((double)(int32_t)(high ^ 0x80000000u) + 0x1p31) * 0x1p21 +
            (double)(int32_t)(low >> 11)) *
           0x1p-53;
}

/* x in [2^-53, 1] is 2^k m, m in [sqrt(1/2), sqrt(2)). */
static inline double natural_log(double x)
{
    uint64_t bits;
    double m, f, s, z, w, k, half;

    memcpy(&bits, &x, sizeof bits);
    bits += 0x3ff0000000000000u - 0x3fe6a09e00000000u;
    k = (double)((int32_t)(bits >> 52) - 1023);
    bits = (bits & 0x000fffffffffffffu) + 0x3fe6a09e00000000u;
    memcpy(&m, &bits, sizeof m);
    f = m - 1;
    s = f / (2 + f);
    z = s * s;
    w = z * z;
    half = 0.5 * f * f;
    w = w * (3.999999999940941908e-01 +
             w * (2.222219843214978396e-01 + w * 1.531383769920937332e-01)) +
        z * (6.666666666666735130e-01 +
             w * (2.857142874366239149e-01 +
                  w * (1.818357216161805012e-01 + w * 1.479819860511658591e-01)));
    return s * (half + w) + k * 1.90821492927058770002e-10 - half + f +
           k * 6.93147180369123816490e-01;
}

/* cos(2 pi v), v in [0, 1). v is n quarter turns and at most an eighth: y, in radians. */
static inline double cosine_of_turns(double v)
{
    const int32_t n = (int32_t)(4 * v + 0.5);
    const double y = (v - 0.25 * n) * 6.283185307179586, z = y * y, half = 0.5 * z, w = 1 - half;
    const double c = w + (((1 - w) - half) +
                          z * (z * (4.16666666666666019037e-02 +
                                    z * (-1.38888888888741095749e-03 +
                                         z * (2.48015872894767294178e-05 +
                                              z * (-2.75573143513906633035e-07 +
                                                   z * (2.08757232129817482790e-09 +
                                                        z * -1.13596475577881948265e-11)))))));
    const double s =
        y +
        z * y *
            (-1.66666666666666324348e-01 +
             z * (8.33333333332248946124e-03 +
                  z * (-1.98412698298579493134e-04 +
                       z * (2.75573137070700676789e-06 +
                            z * (-2.50507602534068634195e-08 + z * 1.58969099521155010221e-10)))));
    const double value = (n & 1) != 0 ? s : c;

    return ((n + 1) & 2) != 0 ? -value : value;
}

static void fill_normal(size_t n, const uint32_t counter[4], const uint32_t key[2], float *y)
{
    for (size_t i = 0; i < n; i += BLOCKS) {
        const size_t count = n - i < BLOCKS ? n - i : BLOCKS;
        float made[BLOCKS];
        words w;
        draw_blocks(counter, key, i, &w);
        for (int l = 0; l < BLOCKS; l++)
            made[l] = (float)(sqrt(-2 * natural_log(1 - unit(w.of[0][l], w.of[1][l]))) *
                              cosine_of_turns(unit(w.of[2][l], w.of[3][l])));
        memcpy(y + i, made, count * sizeof *y);
    }
}

/* Rounding to float may reach `high`, which does not belong to [low, high): then the last float
   before it is taken. With low = high all are low. */
static void fill_uniform(size_t n, const uint32_t counter[4], const uint32_t key[2], float low,
                         float high, float *y)
{
    const double width = (double)high - low;
    const float end = low < high ? high : INFINITY, last = nextafterf(high, low);

    for (size_t i = 0; i < n; i += 2 * BLOCKS) {
        const size_t count = n - i < 2 * BLOCKS ? n - i : 2 * BLOCKS;
        float made[2 * BLOCKS];
        words w;
        draw_blocks(counter, key, i / 2, &w);
        for (int l = 0; l < BLOCKS; l++) {
            const float a = (float)(low + width * unit(w.of[0][l], w.of[1][l])),
                        b = (float)(low + width * unit(w.of[2][l], w.of[3][l]));
            made[2 * l] = a < end ? a : last;
            made[2 * l + 1] = b < end ? b : last;
        }
        memcpy(y + i, made, count * sizeof *y);
    }
}

void tutti_kernels_fill(tutti_kernels *t)
{
    t->fill_normal = fill_normal;
    t->fill_uniform = fill_uniform;
}
