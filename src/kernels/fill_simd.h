/* fill_simd.h: template of the kernels of fill.c, with the same operations in the same order.
   fill_LEVEL.c includes it after simd_random_LEVEL.h. The time is that of the arithmetic, not of
   the memory: DWIDTH normals take 60 instructions for their Philox blocks and some 90 more, a
   division and a square root among them; a uniform needs half a block. */
#include "philox_simd.h"
#include <math.h>

/* Computes `unit` of fill.c: the upper 53 of 64 bits as a fraction. */
INLINE dvec unit(qvec low, qvec high)
{
    return dvec_mul(dvec_from_u53(qvec_srl(qvec_pair(low, high), 11)), dvec_all(0x1p-53));
}

/* Returns c + x * y, the product and the sum rounded. */
INLINE dvec then(dvec c, dvec x, dvec y) { return dvec_add(c, dvec_mul(x, y)); }

INLINE dvec natural_log(dvec x)
{
    const qvec bits = qvec_add(dvec_bits(x), qvec_all(0x3ff0000000000000u - 0x3fe6a09e00000000u));
    const dvec k = dvec_sub(bits_dvec(qvec_or(qvec_srl(bits, 52), qvec_all(0x4330000000000000u))),
                            dvec_all(0x1p52 + 1023));
    const dvec m = bits_dvec(
        qvec_add(qvec_and(bits, qvec_all(0x000fffffffffffffu)), qvec_all(0x3fe6a09e00000000u)));
    const dvec f = dvec_sub(m, dvec_all(1)), s = dvec_div(f, dvec_add(dvec_all(2), f)),
               z = dvec_mul(s, s), w = dvec_mul(z, z);
    const dvec half = dvec_mul(dvec_mul(dvec_all(0.5), f), f);
    const dvec even = dvec_mul(
        w, then(dvec_all(3.999999999940941908e-01), w,
                then(dvec_all(2.222219843214978396e-01), w, dvec_all(1.531383769920937332e-01))));
    const dvec odd = dvec_mul(z, then(dvec_all(6.666666666666735130e-01), w,
                                      then(dvec_all(2.857142874366239149e-01), w,
                                           then(dvec_all(1.818357216161805012e-01), w,
                                                dvec_all(1.479819860511658591e-01)))));
    const dvec sum = then(dvec_mul(s, dvec_add(half, dvec_add(even, odd))), k,
                          dvec_all(1.90821492927058770002e-10));

    return then(dvec_add(dvec_sub(sum, half), f), k, dvec_all(6.93147180369123816490e-01));
}

INLINE dvec cosine_of_turns(dvec v)
{
    const dvec turn = dvec_floor(dvec_add(dvec_mul(dvec_all(4), v), dvec_all(0.5)));
    const qvec n = dvec_bits(dvec_add(turn, dvec_all(0x1p52))); /* the integer is the lowest bits */
    const dvec y = dvec_mul(dvec_sub(v, dvec_mul(dvec_all(0.25), turn)),
                            dvec_all(6.283185307179586)),
               z = dvec_mul(y, y);
    const dvec half = dvec_mul(dvec_all(0.5), z), w = dvec_sub(dvec_all(1), half);
    const dvec c = dvec_mul(z, then(dvec_all(4.16666666666666019037e-02), z,
                                    then(dvec_all(-1.38888888888741095749e-03), z,
                                         then(dvec_all(2.48015872894767294178e-05), z,
                                              then(dvec_all(-2.75573143513906633035e-07), z,
                                                   then(dvec_all(2.08757232129817482790e-09), z,
                                                        dvec_all(-1.13596475577881948265e-11)))))));
    const dvec s = then(dvec_all(-1.66666666666666324348e-01), z,
                        then(dvec_all(8.33333333332248946124e-03), z,
                             then(dvec_all(-1.98412698298579493134e-04), z,
                                  then(dvec_all(2.75573137070700676789e-06), z,
                                       then(dvec_all(-2.50507602534068634195e-08), z,
                                            dvec_all(1.58969099521155010221e-10))))));
    const dvec cosine =
        dvec_add(w, dvec_add(dvec_sub(dvec_sub(dvec_all(1), w), half), dvec_mul(z, c)));
    const dvec sine = dvec_add(y, dvec_mul(dvec_mul(z, y), s));
    const dvec value = dvec_if_negative(bits_dvec(qvec_sll(n, 63)), sine, cosine); /* n odd */
    const qvec turned =
        qvec_and(qvec_sll(qvec_add(n, qvec_all(1)), 62), qvec_all(UINT64_C(1) << 63));

    return bits_dvec(qvec_xor(dvec_bits(value), turned));
}

/* Returns the normals i to i + DWIDTH - 1, from a block each. */
INLINE dvec normals(const philox *p, uint64_t i)
{
    const qvec j = qvec_add(qvec_all(i), qvec_count());
    qvec w[4];

    philox_draw(p, 1, &j, philox_upper(p, qvec_upper(j)), &w);
    return dvec_mul(
        dvec_sqrt(dvec_mul(dvec_all(-2), natural_log(dvec_sub(dvec_all(1), unit(w[0], w[1]))))),
        cosine_of_turns(unit(w[2], w[3])));
}

static void LEVEL(fill_normal)(size_t n, const uint32_t counter[4], const uint32_t key[2], float *y)
{
    float made[DWIDTH];
    philox p;
    size_t i = 0;

    philox_begin(&p, counter, key);
    for (; n - i >= DWIDTH; i += DWIDTH)
        dvec_put_floats(y + i, normals(&p, i));
    if (i < n) {
        dvec_put_floats(made, normals(&p, i));
        memcpy(y + i, made, (n - i) * sizeof *y);
    }
}

/* Two values come from a block. */
static void LEVEL(fill_uniform)(size_t n, const uint32_t counter[4], const uint32_t key[2],
                                float low, float high, float *y)
{
    const dvec start = dvec_all(low), width = dvec_all((double)high - low);
    const vec end = vec_all(low < high ? high : INFINITY), last = vec_all(nextafterf(high, low));
    philox p;

    philox_begin(&p, counter, key);
    for (size_t i = 0; i < n; i += WIDTH) {
        const qvec j = qvec_add(qvec_all(i / 2), qvec_count());
        qvec w[4];
        philox_draw(&p, 1, &j, philox_upper(&p, qvec_upper(j)), &w);
        const vec drawn = vec_from_pair(then(start, width, unit(w[0], w[1])),
                                        then(start, width, unit(w[2], w[3])));
        vec_put(y + i, n - i < WIDTH ? n - i : WIDTH, vec_if_below(drawn, end, last));
    }
}

void LEVEL(tutti_kernels_fill)(tutti_kernels *t)
{
    t->fill_normal = LEVEL(fill_normal);
    t->fill_uniform = LEVEL(fill_uniform);
}
