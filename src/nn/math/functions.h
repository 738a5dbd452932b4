/* functions.h: private: exp, the normal distribution and the sigmoid on lanes. Included by
   math_body.h and a test, after a lanes_LEVEL.h. Every level computes the same operations, so it
   gives the same bits. coefficients.py prints the polynomials. tests/nn/math_element_test.c holds
   the functions to the errors stated here. */
#ifndef TUTTI_NN_FUNCTIONS_H
#define TUTTI_NN_FUNCTIONS_H

/* Returns exp(x), with an error of at most 1 ulp in addition to the rounding, denormal results
   included: 0 below -104, infinity above 88.8, a NaN for a NaN. x = n ln 2 + r, |r| <= ln(2) / 2.
   ln 2 is split into two parts, so that n times the first part is exact (Cody and Waite). */
INLINE lanes lanes_exp(lanes x)
{
    const lanes shift = lanes_all(0x1.8p23f); /* adding it rounds to a whole number */
    lanes n, r, p;

    x = lanes_min(lanes_all(90), lanes_max(lanes_all(-105), x));
    n = lanes_sub(lanes_fma(x, lanes_all(1.44269504f), shift), shift);
    r = lanes_fnma(n, lanes_all(0x1.62e4p-1f), x);
    r = lanes_fnma(n, lanes_all(0x1.7f7d1cp-20f), r);
    p = lanes_fma(r, lanes_all(0.00138204347f), lanes_all(0.00836868118f));
    p = lanes_fma(p, r, lanes_all(0.0416682698f));
    p = lanes_fma(p, r, lanes_all(0.166665211f));
    p = lanes_fma(p, r, lanes_all(0.49999994f));
    p = lanes_fma(p, lanes_mul(r, r), r);
    return lanes_power(lanes_add(p, lanes_all(1)), n);
}

/* Returns the cumulative normal distribution P(x), and sets *gaussian to exp(-x^2 / 2), a factor
   of P and of the density. P is within 4 ulp down to x = -13, where it is 6e-39. For |x| < 1 it is
   1/2 plus an odd polynomial; for larger |x| it is computed from erfc(|x| / sqrt(2)) / 2, which
   does not cancel. The argument of exp is rounded; the lost part is corrected afterwards. */
INLINE lanes lanes_normal(lanes x, lanes *gaussian)
{
    const lanes one = lanes_all(1);
    lanes t, u, square, lost, e, q, r;

    x = lanes_min(lanes_all(20), lanes_max(lanes_all(-20), x)); /* beyond, P is 0 or 1 as a float */
    square = lanes_mul(x, x);
    lost = lanes_fma(x, x, lanes_mul(square, lanes_all(-1)));
    e = lanes_exp(lanes_mul(square, lanes_all(-0.5f)));
    e = lanes_fnma(e, lanes_mul(lost, lanes_all(0.5f)), e);
    *gaussian = e;

    t = lanes_abs(x);
    /* 1 / (1 + t / 2), t = |x| / sqrt(2) */
    u = lanes_div(one, lanes_fma(t, lanes_all(0.353553391f), one));
    q = lanes_fma(u, lanes_all(0.0392067395f), lanes_all(-0.0915844738f));
    q = lanes_fma(q, u, lanes_all(0.0157215111f));
    q = lanes_fma(q, u, lanes_all(0.0466668606f));
    q = lanes_fma(q, u, lanes_all(0.0834856182f));
    q = lanes_fma(q, u, lanes_all(0.124721788f));
    q = lanes_fma(q, u, lanes_all(0.140881464f));
    q = lanes_fma(q, u, lanes_all(0.141055524f));
    q = lanes_mul(lanes_mul(q, u), e);
    q = lanes_pick(lanes_below(x, lanes_all(0)), q, lanes_sub(one, q));

    r = lanes_fma(square, lanes_all(-8.16861029e-06f), lanes_all(0.000115017327f));
    r = lanes_fma(r, square, lanes_all(-0.00118801941f));
    r = lanes_fma(r, square, lanes_all(0.00997416303f));
    r = lanes_fma(r, square, lanes_all(-0.0664905384f));
    r = lanes_fma(r, square, lanes_all(0.398942292f));
    return lanes_pick(lanes_below(t, one), lanes_fma(r, x, lanes_all(0.5f)), q);
}

/* Returns s = 1 / (1 + exp(-x)), and sets *derivative to s (1 - s), both without cancellation. */
INLINE lanes lanes_sigmoid(lanes x, lanes *derivative)
{
    const lanes e = lanes_exp(lanes_mul(lanes_abs(x), lanes_all(-1))),
                r = lanes_div(lanes_all(1), lanes_add(lanes_all(1), e)), er = lanes_mul(e, r);

    *derivative = lanes_mul(er, r);
    return lanes_pick(lanes_below(x, lanes_all(0)), er, r);
}
#endif
