/* Goal: the tuner's Gaussian process and expected improvement are those of the textbook. Method:
   numbers of an independent program (numpy: dense inverse and determinant, improvement by
   numerical integration), closed forms where there are some, and what must not break it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>

#include "tune/tune_internal.h"

static void near(double value, double wanted, double tolerance)
{
    if (!(fabs(value - wanted) <= tolerance))
        fail_msg("%.17g is not %.17g, by more than %g", value, wanted, tolerance);
}

static tutti_gp process(int knobs, const bool *unordered, int room)
{
    tutti_gp g;
    assert_int_equal(tutti_gp_open(&g, knobs, unordered, room, NULL), TUTTI_OK);
    return g;
}

/* Two knobs, the second a choice of two.

       U = [[.1, .25], [.5, .75], [.9, .25], [.35, .75], [.65, .25]]
       y = (told - told.mean()) / told.std()
       d = [u[0] - v[0], u[1] != v[1]] / length;  a = sqrt(5 d @ d)
       K = (1 + a + a a / 3) exp(-a) (1 - noise);  C = K + noise * eye(5);  inv = linalg.inv(C)
       likelihood  -y @ inv @ y / 2 - log(linalg.det(C)) / 2 - 5/2 log(2 pi)
       mean, deviation   k @ inv @ y, sqrt(1 - noise - k @ inv @ k)  */
static void gaussian_process_matches_an_independent_computation(void **state)
{
    static const double u[5][2] = { { 0.1, 0.25 }, { 0.5, 0.75 }, { 0.9, 0.25 }, { 0.35, 0.75 }, { 0.65, 0.25 } };
    static const double told[5] = { 1.5, 0.25, 2, 0.5, 0.75 };
    static const struct { double u[2], mean, deviation; } rows[] = {
        { { 0.5, 0.25 }, -0.7024289482629107, 0.5605581078704625 },
        { { 0, 0.75 }, 0.28392159272040757, 0.8471946954734736 },
        { { 0.42, 0.75 }, -1.019470105598389, 0.15688118934170783 },
        { { 0.1, 0.25 }, 0.7563625488809842, 0.09943152413361085 },
    };
    static const bool unordered[2] = { false, true };
    tutti_gp g = process(2, unordered, 5);
    double likelihood, at[8], mean[4], deviation[4];

    (void)state;
    for (int i = 0; i < 5; i++)
        tutti_gp_add(&g, u[i], told[i]);
    g.length[0] = 0.25;
    g.length[1] = 1;
    g.noise = 0.01;
    assert_int_equal(tutti_gp_condition(&g, &likelihood, NULL), TUTTI_OK);
    near(likelihood, -6.919906850498835, 1e-12);
    for (int j = 0; j < 4; j++) {
        at[2 * j] = rows[j].u[0];
        at[2 * j + 1] = rows[j].u[1];
    }
    tutti_gp_predict(&g, at, 4, mean, deviation);
    for (int j = 0; j < 4; j++) {
        near(mean[j], rows[j].mean, 1e-12);
        near(deviation[j], rows[j].deviation, 1e-12);
    }
    tutti_gp_close(&g);
}

/* y = (1, -1), C = [[1, c], [c, 1]]: alpha = (1, -1) / (1 - c), and the mean at the first point is
   (1 - noise - c) / (1 - c). */
static void two_point_prediction_matches_the_closed_form(void **state)
{
    static const bool ordered[1] = { false };
    static const double u[2] = { 0.2, 0.6 };
    const double a = sqrt(5) * 0.4 / 0.5;
    tutti_gp g = process(1, ordered, 2);
    double likelihood, mean, deviation, c, s;

    (void)state;
    tutti_gp_add(&g, &u[0], 7);
    tutti_gp_add(&g, &u[1], 3);
    g.noise = 0.1;
    c = 0.9 * (1 + a + a * a / 3) * exp(-a);
    assert_int_equal(tutti_gp_condition(&g, &likelihood, NULL), TUTTI_OK);
    near(likelihood, -1 / (1 - c) - 0.5 * log(1 - c * c) - log(2 * M_PI), 1e-14);
    tutti_gp_predict(&g, &u[0], 1, &mean, &deviation);
    near(mean, (0.9 - c) / (1 - c), 1e-14);
    s = (0.81 + c * c - 2 * c * c * 0.9) / (1 - c * c);
    near(deviation, sqrt(0.9 - s), 1e-14);
    tutti_gp_close(&g);
}

/* n times the same point is one point with an n-th of the noise: 1 - noise - (1 - noise)^2 n /
   (n (1 - noise) + noise) is left of the variance. */
static void repeated_point_counts_as_one_with_less_noise(void **state)
{
    enum { N = 200 };
    static const bool ordered[1] = { false };
    static const double u = 0.3;
    tutti_gp g = process(1, ordered, N);
    double likelihood, mean, deviation;

    (void)state;
    for (int i = 0; i < N; i++)
        tutti_gp_add(&g, &u, i % 2 == 0 ? 5 : 6);
    g.noise = 1e-4;
    assert_int_equal(tutti_gp_condition(&g, &likelihood, NULL), TUTTI_OK);
    tutti_gp_predict(&g, &u, 1, &mean, &deviation);
    near(mean, 0, 1e-9);
    near(deviation * deviation, 0.9999 - 0.9999 * 0.9999 * N / (N * 0.9999 + 1e-4), 1e-10);
    assert_int_equal(tutti_gp_fit(&g, NULL), TUTTI_OK);
    assert_true(g.noise == 0.5);
    tutti_gp_close(&g);
}

static void constant_observations_predict_a_constant_mean(void **state)
{
    static const bool ordered[2] = { false };
    tutti_gp g = process(2, ordered, 9);
    double mean[2], deviation[2];
    static const double at[4] = { 0.1, 0.9, 0.5, 0.5 };

    (void)state;
    for (int i = 0; i < 9; i++) {
        const double u[2] = { i % 3 / 2.0, i / 3 / 2.0 };
        tutti_gp_add(&g, u, 0.1 + 1e-16 * i);
    }
    assert_int_equal(tutti_gp_fit(&g, NULL), TUTTI_OK);
    tutti_gp_predict(&g, at, 2, mean, deviation);
    for (int j = 0; j < 2; j++) {
        assert_true(mean[j] == 0);
        assert_true(deviation[j] > 0 && deviation[j] < 1);
    }
    tutti_gp_close(&g);
}

/* Smooth data has no noise; of two knobs the one that matters has the shorter length; data
   without structure is noise. */
static void fitted_lengths_and_noise_follow_the_data(void **state)
{
    enum { N = 60 };
    static const bool ordered[2] = { false };
    tutti_gp smooth = process(2, ordered, N), shapeless = process(2, ordered, N);

    (void)state;
    for (uint64_t i = 0; i < N; i++) {
        const double u[2] = { tutti_halton(i + 1, 0), tutti_halton(i + 1, 1) };
        tutti_gp_add(&smooth, u, sin(6 * u[0]) + 0.1 * u[1]);
        tutti_gp_add(&shapeless, u, tutti_normal((tutti_rng){ .seed = 1 }, i));
    }
    assert_int_equal(tutti_gp_fit(&smooth, NULL), TUTTI_OK);
    assert_int_equal(tutti_gp_fit(&shapeless, NULL), TUTTI_OK);
    assert_true(smooth.noise == 1e-4);
    assert_true(smooth.length[0] < smooth.length[1]);
    assert_true(shapeless.noise == 0.5);
    tutti_gp_close(&smooth);
    tutti_gp_close(&shapeless);
}

/* The first four by numerical integration of max(best - xi - f, 0) with two million points. */
static void expected_improvement_is_the_integral(void **state)
{
    static const struct { double mean, deviation, best, xi, wanted; } rows[] = {
        { 0.3, 0.5, 0.1, 0, 0.11521941847446304 },
        { -1, 0.2, -0.9, 0.1, 0.07978845607932908 },
        { 0, 1, 1, 0, 1.083315470588654 },
        { 2, 0.5, 0, 0.1, 1.4454609445129644e-06 },
        { 1, 0, 1.5, 0.25, 0.25 }, /* no doubt: what it is better by */
        { 1, 0, 0.5, 0, 0 },
    };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(rows); i++)
        near(tutti_expected_improvement(rows[i].mean, rows[i].deviation, rows[i].best, rows[i].xi), rows[i].wanted,
             1e-11);
    near(tutti_expected_improvement(0, 1, 0, 0), 1 / sqrt(2 * M_PI), 1e-16);
    near(tutti_expected_improvement(100, 1, 0, 0), 0, 0);
}

static void halton_sequence_matches_its_definition(void **state)
{
    static const double wanted[3][5] = { { 1 / 2., 1 / 4., 3 / 4., 1 / 8., 5 / 8. },
                                         { 1 / 3., 2 / 3., 1 / 9., 4 / 9., 7 / 9. },
                                         { 1 / 5., 2 / 5., 3 / 5., 4 / 5., 1 / 25. } };

    (void)state;
    for (int k = 0; k < 3; k++)
        for (uint64_t i = 0; i < 5; i++)
            near(tutti_halton(i + 1, k), wanted[k][i], 1e-15);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gaussian_process_matches_an_independent_computation),
        cmocka_unit_test(two_point_prediction_matches_the_closed_form),
        cmocka_unit_test(repeated_point_counts_as_one_with_less_noise),
        cmocka_unit_test(constant_observations_predict_a_constant_mean),
        cmocka_unit_test(fitted_lengths_and_noise_follow_the_data),
        cmocka_unit_test(expected_improvement_is_the_integral),
        cmocka_unit_test(halton_sequence_matches_its_definition),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
