/* wangni.c: codec wangni: element i is kept with probability p_i and divided by it, p chosen so
   that few are kept for a given variance. Wangni, Wang, Liu and Zhang, NeurIPS 2018. The optimum
   is p_i = min(lambda |g_i|, 1) under both of the paper's solvers; they differ in how lambda is
   found:

     closed  (algorithm 2, epsilon):  the variance factor is 1 + epsilon: lambda = S1 / (epsilon G2
             + S2), S1 and S2 the sums of |g| and g^2 where p < 1, G2 the sum of all g^2. Sorting
             is not needed: starting with p < 1 everywhere the set of p = 1 only grows until
             nothing changes.
     greedy  (algorithm 3, sparsity): sum p = sparsity n: lambda starts at sparsity n / |g|_1 and
             grows by the paper's factor c until c <= 1.

   Where p < 1 the value sent is always sign(g_i) / lambda, so these need no value.

   Message: count of A (p = 1), count of B (p < 1 and drawn), 1 / lambda; A's indexes and values;
   B's indexes with the sign in the top bit: 12 + 8 |A| + 4 |B| bytes. A vector that is not finite
   is sent as A = { element 0: NaN }. */
#include "codec_internal.h"
#include "registry.h"
#include "rows.h"
#include <float.h>

enum { GREEDY, CLOSED };
typedef struct wangni { double sparsity, epsilon; int solver; } wangni;
static const tutti_option options[] = {
    { "sparsity", TUTTI_REAL, TUTTI_AT(wangni, sparsity), 0.02, 1e-9, 1, NULL,
      "solver=greedy: expected share of elements kept", "solver=greedy" },
    TUTTI_ROW_WANGNI_EPSILON(TUTTI_AT(wangni, epsilon)),
    TUTTI_ROW_WANGNI_SOLVER(TUTTI_AT(wangni, solver), NULL),
    { 0 }
};

static unsigned wangni_traits(const tutti_codec *c)
{
    (void)c;
    return TUTTI_CODEC_UNBIASED;
}

static size_t wangni_bound(const tutti_codec *c, const tutti_view *v)
{
    (void)c;
    return 12 + 8 * v->count;
}

/* The sums over p < 1. An element is in A from lambda |g| >= 1 on. */
typedef struct sums { size_t below; double s1, s2; } sums;

static sums sums_below(size_t n, const float *g, double lambda)
{
    sums s = { 0 };

    for (size_t i = 0; i < n; i++) {
        const double m = fabs((double)g[i]);
        if (!(lambda * m >= 1)) {
            s.below++;
            s.s1 += m;
            s.s2 += m * m;
        }
    }
    return s;
}

/* Infinity: everything is kept as it is, which is what no variance and a sparsity of 1 mean. Else
   lambda only grows, so the set of p < 1 only shrinks, and where it stays the same so does lambda:
   there is an end. */
static double solve(const wangni *o, size_t n, const float *g, double g1, double g2)
{
    double lambda =
        o->solver == CLOSED ? g1 / (o->epsilon * g2 + g2) : o->sparsity * (double)n / g1;

    if (o->solver == CLOSED ? o->epsilon == 0 : o->sparsity == 1)
        return INFINITY;
    for (;;) {
        const sums s = sums_below(n, g, lambda);
        double next;
        if (s.s1 == 0)
            return lambda; /* nothing is left to be drawn */
        if (o->solver == CLOSED)
            next = s.s1 / (o->epsilon * g2 + s.s2);
        else
            next = (o->sparsity * (double)n - (double)(n - s.below)) / s.s1;
        if (!(next > lambda))
            return lambda;
        lambda = next;
    }
}

static size_t wangni_encode(tutti_codec *c, const tutti_view *v, const float *x, void *scratch,
                            uint8_t *out)
{
    const wangni *o = c->self;
    const size_t n = v->count;
    const double g1 = tutti_norm1(c->space->device, n, x), g2 = tutti_norm2(c->space->device, n, x);
    tutti_codec_words words = { .rng = tutti_codec_rng(c, v, false), .group = UINT64_MAX };
    uint32_t in_a = 0, in_b = 0;
    uint8_t *index = out + 12, *value, *drawn;
    double lambda;
    float inverse;

    (void)scratch;
    if (!isfinite(g1)) {
        tutti_codec_put_u32(out, 1);
        tutti_codec_put_u32(out + 4, 0);
        tutti_codec_put_f32(out + 8, 0);
        tutti_codec_put_u32(out + 12, 0);
        tutti_codec_put_f32(out + 16, NAN);
        return 20;
    }
    lambda = g1 > 0 ? solve(o, n, x, g1, g2) : 0;
    /* beyond it more are kept: lambda follows */
    inverse = lambda > 0 ? (float)fmin(1 / lambda, FLT_MAX) : 0;
    if (inverse > 0)
        /* what the receiver divides by, so that the expectation is exact */
        lambda = 1 / (double)inverse;

    for (size_t i = 0; i < n; i++)
        in_a += lambda * fabs((double)x[i]) >= 1;
    value = index + 4 * (size_t)in_a;
    drawn = value + 4 * (size_t)in_a;
    for (size_t i = 0; i < n; i++) {
        const double p = lambda * fabs((double)x[i]);
        if (p >= 1) {
            tutti_codec_put_u32(index, (uint32_t)i);
            tutti_codec_put_f32(value, x[i]);
            index += 4;
            value += 4;
        } else if (p > 0 && (double)tutti_codec_word(c, &words, v->first + i) < p * 4294967296.0) {
            tutti_codec_put_u32(drawn, (uint32_t)i | (x[i] < 0 ? 0x80000000u : 0));
            drawn += 4;
            in_b++;
        }
    }
    tutti_codec_put_u32(out, in_a);
    tutti_codec_put_u32(out + 4, in_b);
    tutti_codec_put_f32(out + 8, inverse);
    tutti_device_charge(c->space->device, 20.0 * (double)n, 12.0 * (double)n);
    return 12 + 8 * (size_t)in_a + 4 * (size_t)in_b;
}

static tutti_status decode_add(tutti_codec *c, const tutti_view *v, const uint8_t *in, size_t bytes,
                               float a, float *y, tutti_error *err)
{
    const size_t in_a = bytes >= 12 ? tutti_codec_get_u32(in) : 0,
                 in_b = bytes >= 12 ? tutti_codec_get_u32(in + 4) : 0;
    const uint8_t *drawn = in + 12 + 8 * in_a;
    float inverse;

    if (bytes < 12 || in_a > v->count || in_b > v->count || bytes != 12 + 8 * in_a + 4 * in_b)
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                          "codec 'wangni': a message of %zu bytes for %zu elements states that %zu "
                          "were kept and %zu drawn; it was damaged or is another codec's",
                          bytes, v->count, in_a, in_b);
    inverse = tutti_codec_get_f32(in + 8);
    if (!tutti_codec_scale_is_valid(inverse))
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                          "codec 'wangni': the value of drawn elements is %g, and it is 0 or more; "
                          "the message was damaged or is another codec's", (double)inverse);
    TUTTI_TRY(tutti_codec_sparse_check(c, v, in_a, in + 12, UINT32_MAX, "kept", err));
    TUTTI_TRY(tutti_codec_sparse_check(c, v, in_b, drawn, 0x7fffffffu, "drawn", err));
    for (size_t i = 0; i < in_a; i++)
        y[tutti_codec_get_u32(in + 12 + 4 * i)] +=
            a * tutti_codec_get_f32(in + 12 + 4 * (in_a + i));
    for (size_t i = 0; i < in_b; i++) {
        const uint32_t word = tutti_codec_get_u32(drawn + 4 * i);
        y[word & 0x7fffffffu] += a * (word >> 31 == 1 ? -inverse : inverse);
    }
    tutti_device_charge(c->space->device, 2.0 * (double)(in_a + in_b),
                        16.0 * (double)(in_a + in_b));
    return TUTTI_OK;
}

const tutti_codec_ops tutti_codec_wangni = {
    .name = "wangni",
    .paper = "Wangni et al., NeurIPS 2018",
    .help = "elements kept at random, the great ones always: unbiased",
    .options = options,
    .self_bytes = sizeof(wangni),
    .traits = wangni_traits,
    .bound = wangni_bound,
    .encode = wangni_encode,
    .decode_add = decode_add,
};
