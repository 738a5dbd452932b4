/* Goal: the functions of one element keep the errors that functions.h states, at every level with
   the same bits; dropout's mask is a function of the index. Method: against the C library in double
   over the whole range of floats; lengths 0 to 130 at every misalignment, with guards. */
#include "math_test.h"
#include "nn/math/lanes_scalar.h"
#include "nn/math/functions.h"
#include "kernels/device.h"
#include "kernels/codes.h"
#include "sanitized.h"

/* Units in the last place of the true result, as a float; below the normal
   numbers, those of the denormals. */
static double ulps(float got, double expected)
{
    const double size = fabs(expected);
    const double unit = size < 0x1p-126 ? 0x1p-149 : ldexp(1, (int)floor(log2(size)) - 23);
    return fabs((double)got - expected) / unit;
}

static float number(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static float exp_of(float x)
{
    float out[LANES];
    lanes_put(out, lanes_exp(lanes_all(x)));
    return out[0];
}

static void exp_is_within_an_ulp_and_a_half(void **state)
{
    double worst = 0;

    (void)state;
    for (uint64_t bits = 0; bits < UINT64_C(1) << 32; bits += UNLESS_SANITIZED(1601, 16001)) {
        const float x = number((uint32_t)bits);
        const double expected = exp((double)x);
        if (isnan(x) || fabsf(x) > 120)
            continue;
        if (expected > (double)3.40282347e38f) {
            assert_true(isinf(exp_of(x)) || ulps(exp_of(x), expected) < 1.5);
            continue;
        }
        if (ulps(exp_of(x), expected) > worst)
            worst = ulps(exp_of(x), expected);
    }
    if (worst > 1.5)
        fail_msg("exp is wrong by %.3f ulp", worst);
    assert_true(exp_of(0) == 1 && exp_of(INFINITY) == INFINITY && exp_of(-INFINITY) == 0 && exp_of(200) == INFINITY &&
                exp_of(-200) == 0 && isnan(exp_of(NAN)));
}

/* gelu(x) = x P(x): two more roundings. */
static void gelu_is_within_six_ulps_far_into_the_tail(void **state)
{
    double worst = 0;
    float at = 0;

    (void)state;
    for (uint64_t bits = 0; bits < UINT64_C(1) << 32; bits += UNLESS_SANITIZED(1601, 16001)) {
        const float x = number((uint32_t)bits);
        float y;
        if (!(fabsf(x) <= 12.5f))
            continue;
        tutti_nn_math_scalar.gelu(1, &x, &y);
        const double expected = (double)x * 0.5 * erfc(-(double)x * 0.70710678118654752440);
        if (ulps(y, expected) > worst) {
            worst = ulps(y, expected);
            at = x;
        }
    }
    if (worst > 6)
        fail_msg("gelu(%.9g) is wrong by %.3f ulp", (double)at, worst);
}

typedef void (*forward)(size_t n, const float *x, float *y);
typedef void (*backward)(size_t n, const float *x, const float *dy, float *dx);

static double gelu_exact(double x) { return x * 0.5 * erfc(-x * 0.70710678118654752440); }
static double gelu_rough(double x) { return 0.5 * x * (1 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x))); }

/* Against a central difference in double, whose own error is h^2 / 6 f''' + 1e-16 / h, below
   1e-9. */
static void check_slope(const char *what, double (*f)(double), forward forward_of, backward back)
{
    for (double x = -14; x <= 14; x += 0.00173) {
        const float v = (float)x, one = 1.5f;
        float y, dx;
        const double h = 1e-4, slope = (f((double)v + h) - f((double)v - h)) / (2 * h);
        forward_of(1, &v, &y);
        back(1, &v, &one, &dx);
        if (fabs((double)y - f((double)v)) > 3e-7 * fabs(f((double)v)) + 1e-7 * fmin(1, fabs((double)v)))
            fail_msg("%s(%.9g) is %.9g, not %.9g", what, (double)v, (double)y, f((double)v));
        if (fabs((double)dx - 1.5 * slope) > 1e-6)
            fail_msg("%s'(%.9g) is %.9g, not %.9g", what, (double)v, (double)dx / 1.5, slope);
    }
}

static void gelu_derivatives_match_central_differences(void **state)
{
    (void)state;
    check_slope("gelu", gelu_exact, tutti_nn_math_scalar.gelu, tutti_nn_math_scalar.gelu_back);
    check_slope("gelu_tanh", gelu_rough, tutti_nn_math_scalar.gelu_tanh, tutti_nn_math_scalar.gelu_tanh_back);
}

static void gelu_handles_nan_infinity_and_extreme_values(void **state)
{
    (void)state;
    for (int l = 0; l < levels(); l++) {
        const nn_math *m = level(l);
        const float x[] = { NAN, INFINITY, 0, -0.0f, -1e30f, 1e30f, 1e-40f }, ones[] = { 1, 1, 1, 1, 1, 1, 1 };
        float y[7], z[7];
        m->gelu(7, x, y);
        m->gelu_tanh(7, x, z);
        assert_true(isnan(y[0]) && y[1] == INFINITY && y[2] == 0 && y[3] == 0 && y[4] == 0 && y[5] == 1e30f &&
                    y[6] == 0.5f * 1e-40f);
        assert_true(isnan(z[0]) && z[1] == INFINITY && z[2] == 0 && z[3] == 0 && z[4] == 0 && z[5] == 1e30f &&
                    z[6] == 0.5f * 1e-40f);
        m->gelu_back(7, x, ones, y);
        m->gelu_tanh_back(7, x, ones, z);
        assert_true(isnan(y[0]) && y[2] == 0.5f && y[4] == 0 && y[5] == 1);
        assert_true(isnan(z[0]) && z[2] == 0.5f && z[4] == 0 && z[5] == 1);
    }
}

static void cpu_levels_agree_bitwise_at_any_length_and_alignment(void **state)
{
    float *x = drawn(200, 1, 3), *dy = drawn(200, 2, 1);
    uint16_t draws[200];

    (void)state;
    for (size_t i = 0; i < 200; i++)
        draws[i] = (uint16_t)(i * 7919);
    x[17] = NAN;
    x[40] = INFINITY;
    x[41] = -INFINITY;
    x[42] = 1e-42f;
    for (int l = 1; l < levels(); l++)
        for (size_t n = 0; n <= 130; n++) {
            const nn_math *a = level(0), *b = level(l);
            const size_t at = n % 17;
            float *y[2] = { room(n), room(n) };
#define BOTH(name, ...)                                             \
    do {                                                            \
        for (int side = 0; side < 2; side++)                        \
            (side == 0 ? a : b)->name(n, __VA_ARGS__, y[side]);     \
        assert_same(#name, n, y[1], y[0]);                          \
        assert_guarded(#name, y[1], n);                             \
    } while (0)
            BOTH(gelu, x + at);
            BOTH(gelu_back, x + at, dy + at);
            BOTH(gelu_tanh, x + at);
            BOTH(gelu_tanh_back, x + at, dy + at);
            BOTH(sum, x + at, dy + at);
            BOTH(drop, draws + at, 20000, 1.25f, x + at);
            BOTH(drop, draws + at, 65536, 1.25f, x + at);
            free(y[0]);
            free(y[1]);
        }
    free(x);
    free(dy);
}

static void gradients_may_be_computed_in_place(void **state)
{
    enum { N = 77 };
    float *x = drawn(N, 3, 2), *dy = drawn(N, 4, 1), apart[N];

    (void)state;
    for (int l = 0; l < levels(); l++) {
        float in[N];
        memcpy(in, dy, sizeof in);
        level(l)->gelu_back(N, x, dy, apart);
        level(l)->gelu_back(N, x, in, in);
        assert_memory_equal(in, apart, sizeof in);
        memcpy(in, dy, sizeof in);
        level(l)->sum(N, x, dy, apart);
        level(l)->sum(N, x, in, in);
        assert_memory_equal(in, apart, sizeof in);
        for (int i = 0; i < N; i++)
            assert_true(in[i] == x[i] + dy[i]);
    }
    free(x);
    free(dy);
}

static void drop_keeps_draws_of_at_least_the_bound(void **state)
{
    const uint16_t draws[] = { 0, 9, 10, 11, 65535, 32768, 32767 };
    const float x[] = { 1, 2, 3, 4, 5, 6, NAN };
    float y[7];

    (void)state;
    for (int l = 0; l < levels(); l++) {
        level(l)->drop(7, draws, 10, 2, x, y);
        assert_true(y[0] == 0 && y[1] == 0 && y[2] == 6 && y[3] == 8 && y[4] == 10 && y[5] == 12 && isnan(y[6]));
        level(l)->drop(7, draws, 32768, 2, x, y);
        assert_true(y[3] == 0 && y[4] == 10 && y[5] == 12 && y[6] == 0); /* a NaN is dropped too */
        level(l)->drop(7, draws, 0, 1, x, y);
        assert_memory_equal(x, y, sizeof y);
        level(l)->drop(7, draws, 65536, 1, x, y);
        for (int i = 0; i < 7; i++)
            assert_true(y[i] == 0);
    }
}

/* ---- dropout ---- */
static tutti_device *device_of(int l)
{
    tutti_device *d;
    assert_int_equal(tutti_device_open_host(&d, NULL, (tutti_cpu)l, NULL), TUTTI_OK);
    return d;
}

static void dropout_is_one_mask_however_a_batch_is_cut(void **state)
{
    enum { N = 5000 };
    const tutti_rng rng = { 11, 5, 3 };
    float *x = drawn(N, 5, 1), *whole = room(N), *part = room(N);

    (void)state;
    for (int l = 0; l < levels(); l++) {
        tutti_device *d = device_of(l);
        tutti_nn_dropout(level(0), d, rng, 1000, N, 0.3f, x, whole);
        for (uint64_t seed = 0; seed < 8; seed++) {
            size_t cut = 0;
            for (uint64_t j = 0; cut < N; j++) {
                const size_t n = between(seed, j, 0, 1500), count = N - cut < n ? N - cut : n;
                tutti_nn_dropout(level(l), d, rng, 1000 + cut, count, 0.3f, x + cut, part + cut);
                cut += count;
            }
            assert_same("dropout in parts", N, part, whole);
            assert_guarded("dropout", part, N);
        }
        tutti_device_close(d);
    }
    free(x);
    free(whole);
    free(part);
}

/* Element j is kept where draw j of tutti_draws is at least p 65536; the mean of kept, scaled ones
   is 1 within five deviations; other steps have other masks. */
static void dropout_follows_its_draws_and_preserves_the_mean(void **state)
{
    enum { N = 1 << 18 };
    float *ones = room(N), *y = room(N), *z = room(N);
    uint16_t *draws = malloc((N + TUTTI_DRAWS) * sizeof *draws);
    tutti_device *d = device_of(levels() - 1);
    const tutti_rng rng = { 1, 2, 3 }, next = { 1, 2, 4 };

    (void)state;
    for (size_t i = 0; i < N; i++)
        ones[i] = 1;
    for (int step = 1; step < 10; step += 2) {
        const float p = 0.1f * (float)step;
        const uint32_t least = (uint32_t)lrintf(p * 65536);
        double total = 0;
        size_t differ = 0;
        tutti_nn_dropout(level(levels() - 1), d, rng, 384, N, p, ones, y);
        tutti_nn_dropout(level(levels() - 1), d, next, 384, N, p, ones, z);
        tutti_draws(d, rng, 3, N / TUTTI_DRAWS, draws);
        for (size_t i = 0; i < N; i++) {
            if (y[i] != (draws[i] >= least ? (float)(65536.0 / (65536 - least)) : 0))
                fail_msg("element %zu of dropout %g is %g", i, (double)p, (double)y[i]);
            total += (double)y[i];
            differ += y[i] != z[i];
        }
        assert_true(fabs(total / N - 1) < 5 * sqrt((double)p / (1 - (double)p) / N));
        assert_true(fabs((double)differ / N - 2 * (double)p * (1 - (double)p)) < 0.01);
        memcpy(z, ones, N * sizeof *z);
        tutti_nn_dropout(level(levels() - 1), d, rng, 384, N, p, z, z);
        assert_same("dropout in place", N, z, y);
    }
    tutti_nn_dropout(level(levels() - 1), d, rng, 0, N, 0, ones, y);
    assert_same("dropout of nothing", N, y, ones);
    tutti_device_close(d);
    free(ones);
    free(y);
    free(z);
    free(draws);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exp_is_within_an_ulp_and_a_half),
        cmocka_unit_test(gelu_is_within_six_ulps_far_into_the_tail),
        cmocka_unit_test(gelu_derivatives_match_central_differences),
        cmocka_unit_test(gelu_handles_nan_infinity_and_extreme_values),
        cmocka_unit_test(cpu_levels_agree_bitwise_at_any_length_and_alignment),
        cmocka_unit_test(gradients_may_be_computed_in_place),
        cmocka_unit_test(drop_keeps_draws_of_at_least_the_bound),
        cmocka_unit_test(dropout_is_one_mask_however_a_batch_is_cut),
        cmocka_unit_test(dropout_follows_its_draws_and_preserves_the_mean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
