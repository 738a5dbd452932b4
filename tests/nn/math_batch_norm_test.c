/* Goal: batch norm is its formula per channel, in training and evaluation, its backward the
   derivative, in every layout of channels, with the same bits at every level. Method: formulas in
   double on values gathered by channel; central differences; large means. */
#include "math_test.h"

typedef struct batch {
    nn_channels c;
    size_t n, channels, each; /* values in all, channels, values of a channel */
    bool relu;
    float *x, *gamma, *beta, *dy, *y, *mean, *rstd, *running_mean, *running_variance, *dx, *dgamma, *dbeta;
} batch;

static batch batch_of(nn_channels c, bool relu, uint64_t seed, float away)
{
    batch b = { .c = c, .channels = c.groups * c.width, .each = c.images * c.positions, .relu = relu };
    b.n = b.channels * b.each;
    b.x = drawn(b.n, seed, 2);
    for (size_t i = 0; i < b.n; i++)
        b.x[i] += away;
    b.gamma = drawn(b.channels, seed + 1, 1);
    b.beta = drawn(b.channels, seed + 2, 1);
    b.dy = drawn(b.n, seed + 3, 1);
    b.running_mean = drawn(b.channels, seed + 4, 1);
    b.running_variance = drawn(b.channels, seed + 5, 1);
    float **const outputs[] = { &b.mean, &b.rstd, &b.dgamma, &b.dbeta };
    for (size_t i = 0; i < TUTTI_LENGTH(outputs); i++)
        *outputs[i] = room(b.channels);
    b.y = room(b.n);
    b.dx = room(b.n);
    return b;
}

static void batch_free(batch *b)
{
    float *const all[] = {
        b->x,  b->gamma,  b->beta, b->dy, b->y, b->mean, b->rstd, b->running_mean, b->running_variance,
        b->dx, b->dgamma, b->dbeta
    };
    for (size_t i = 0; i < TUTTI_LENGTH(all); i++)
        free(all[i]);
}

/* Place of value i of a channel. */
static size_t place(const batch *b, size_t channel, size_t i)
{
    const size_t image = i / b->c.positions, position = i % b->c.positions;
    return ((image * b->c.groups + channel / b->c.width) * b->c.positions + position) * b->c.width +
           channel % b->c.width;
}

static void run(const nn_math *m, batch *b)
{
    m->batch_norm(&b->c, &(nn_batch_norm){ b->gamma, b->beta, 1e-5f, b->relu }, b->x, b->y,
                  &(nn_row_statistics){ b->mean, b->rstd },
                  &(nn_running){ 0.1f, b->running_mean, b->running_variance });
    m->batch_norm_back(
        &b->c, &(nn_batch_norm_kept){ b->x, b->relu ? b->y : NULL, b->gamma, b->mean, b->rstd },
        &(nn_batch_norm_slopes){ b->dy, b->dx, b->dgamma, b->dbeta, false });
    float *const each[] = { b->mean, b->rstd, b->dgamma, b->dbeta, b->running_mean, b->running_variance };
    for (size_t i = 0; i < TUTTI_LENGTH(each); i++)
        assert_guarded("a channel's values", each[i], b->channels);
    assert_guarded("y", b->y, b->n);
    assert_guarded("dx", b->dx, b->n);
}

static double objective(const double *x, size_t n, double gamma, double beta, bool relu, const double *dy, double *y,
                        double *mean, double *variance)
{
    double f = 0;
    *mean = *variance = 0;
    for (size_t i = 0; i < n; i++)
        *mean += x[i] / (double)n;
    for (size_t i = 0; i < n; i++)
        *variance += (x[i] - *mean) * (x[i] - *mean) / (double)n;
    for (size_t i = 0; i < n; i++) {
        y[i] = (x[i] - *mean) / sqrt(*variance + (double)1e-5f) * gamma + beta;
        if (relu)
            y[i] = fmax(y[i], 0);
        f += y[i] * dy[i];
    }
    return f;
}

/* Central differences where no relu turns over within the step. */
static void check_channel(const batch *b, size_t channel, float before_mean, float before_variance, double tolerance)
{
    const size_t n = b->each;
    double *x = calloc(n, sizeof *x), *dy = calloc(n, sizeof *dy), *y = calloc(n, sizeof *y),
           *other = calloc(n, sizeof *other), *slope = calloc(n, sizeof *slope), mean, variance, a, c;
    double gamma = (double)b->gamma[channel], beta = (double)b->beta[channel];
    float *got = calloc(n, sizeof *got);
    const double h = 1e-5;

    for (size_t i = 0; i < n; i++) {
        x[i] = (double)b->x[place(b, channel, i)];
        dy[i] = (double)b->dy[place(b, channel, i)];
        got[i] = b->y[place(b, channel, i)];
    }
    objective(x, n, gamma, beta, b->relu, dy, y, &mean, &variance);
    assert_near("y", n, got, y, tolerance);
    assert_true(fabs((double)b->mean[channel] - mean) <= 1e-6 * (fabs(mean) + 1));
    assert_true(fabs((double)b->rstd[channel] * sqrt(variance + (double)1e-5f) - 1) < 1e-6);
    assert_true(fabs((double)b->running_mean[channel] - (0.9 * (double)before_mean + 0.1 * mean)) <
                1e-6 * (fabs(mean) + 1));
    assert_true(fabs((double)b->running_variance[channel] -
                     (0.9 * (double)before_variance + 0.1 * variance * (double)n / (double)(n - 1))) <
                3e-6 * (1 + variance));
    double at_gamma = 0, at_beta = 0;
    for (size_t i = 0; i < n; i++) {
        const double passed = b->relu && y[i] <= 0 ? 0 : dy[i];
        at_gamma += passed * (x[i] - mean) / sqrt(variance + (double)1e-5f);
        at_beta += passed;
    }
    assert_true(fabs((double)b->dgamma[channel] - at_gamma) <= tolerance * 3 * sqrt((double)n) &&
                fabs((double)b->dbeta[channel] - at_beta) <= 3e-6 * sqrt((double)n));
    for (size_t i = 0; i < n; i++) {
        const double keep = x[i];
        bool turns = false;
        x[i] = keep + h;
        const double up = objective(x, n, gamma, beta, b->relu, dy, other, &a, &c);
        for (size_t j = 0; j < n; j++)
            turns = turns || (other[j] > 0) != (y[j] > 0);
        x[i] = keep - h;
        slope[i] = (up - objective(x, n, gamma, beta, b->relu, dy, other, &a, &c)) / (2 * h);
        for (size_t j = 0; j < n; j++)
            turns = turns || (other[j] > 0) != (y[j] > 0);
        x[i] = keep;
        got[i] = b->dx[place(b, channel, i)];
        if (turns && b->relu)
            got[i] = (float)slope[i];
    }
    assert_near("dx", n, got, slope, tolerance * 4);
    void *const all[] = { x, dy, y, other, slope, got };
    for (size_t i = 0; i < TUTTI_LENGTH(all); i++)
        free(all[i]);
}

static const nn_channels layouts[] = {
    { 1, 1, 2, 1 },  { 3, 1, 5, 7 },   { 2, 1, 70, 16 },  { 9, 1, 9, 65 },   { 2, 3, 9, 16 },
    { 3, 2, 65, 8 }, { 20, 1, 1, 33 }, { 1, 1, 200, 20 }, { 2, 2, 64, 130 },
};

static void batch_norm_matches_formula_and_central_differences(void **state)
{
    (void)state;
    for (int l = 0; l < levels(); l++)
        for (size_t i = 0; i < TUTTI_LENGTH(layouts); i++)
            for (int relu = 0; relu < 2; relu++) {
                batch b = batch_of(layouts[i], relu, i, 1), before = batch_of(layouts[i], relu, i, 1);
                run(level(l), &b);
                for (size_t channel = 0; channel < b.channels; channel += b.channels > 40 ? 13 : 1)
                    check_channel(&b, channel, before.running_mean[channel], before.running_variance[channel], 2e-6);
                batch_free(&b);
                batch_free(&before);
            }
}

static void a_large_mean_does_not_cancel_the_variance(void **state)
{
    batch b = batch_of((nn_channels){ 4, 1, 100, 16 }, false, 3, 3000),
          before = batch_of((nn_channels){ 4, 1, 100, 16 }, false, 3, 3000);

    (void)state;
    run(level(levels() - 1), &b);
    for (size_t channel = 0; channel < 16; channel++)
        /* the mean is rounded to 1e-4 of 2 */
        check_channel(&b, channel, before.running_mean[channel], before.running_variance[channel], 3e-4);
    batch_free(&b);
    batch_free(&before);
}

static void every_cpu_level_gives_bitwise_equal_results(void **state)
{
    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(layouts); i++)
        for (int relu = 0; relu < 2; relu++) {
            batch a = batch_of(layouts[i], relu, i, 1);
            run(level(0), &a);
            for (int l = 1; l < levels(); l++) {
                batch b = batch_of(layouts[i], relu, i, 1);
                run(level(l), &b);
                assert_same("y", a.n, b.y, a.y);
                assert_same("dx", a.n, b.dx, a.dx);
                assert_same("dgamma", a.channels, b.dgamma, a.dgamma);
                assert_same("dbeta", a.channels, b.dbeta, a.dbeta);
                assert_same("running variance", a.channels, b.running_variance, a.running_variance);
                level(l)->batch_norm_back(
                    &b.c, &(nn_batch_norm_kept){ b.x, relu ? b.y : NULL, b.gamma, b.mean, b.rstd },
                    &(nn_batch_norm_slopes){ b.dy, b.dy, b.dgamma, b.dbeta, true });
                assert_same("dx in place", a.n, b.dy, a.dx);
                for (size_t j = 0; j < a.channels; j++)
                    assert_true(b.dgamma[j] == a.dgamma[j] + a.dgamma[j] && b.dbeta[j] == a.dbeta[j] + a.dbeta[j]);
                batch_free(&b);
            }
            batch_free(&a);
        }
}

/* A group of sixteen channels of nChw16c alone gives the bits it has among others. */
static void groups_do_not_depend_on_each_other(void **state)
{
    const nn_channels all = { 3, 4, 50, 16 };
    batch a = batch_of(all, false, 7, 0);

    (void)state;
    run(level(levels() - 1), &a);
    for (size_t g = 0; g < all.groups; g++) {
        batch b = batch_of((nn_channels){ 3, 2, 50, 16 }, false, 8, 0); /* twice the same group */
        for (size_t channel = 0; channel < 32; channel++) {
            b.gamma[channel] = a.gamma[16 * g + channel % 16];
            b.beta[channel] = a.beta[16 * g + channel % 16];
            for (size_t i = 0; i < b.each; i++) {
                b.x[place(&b, channel, i)] = a.x[place(&a, 16 * g + channel % 16, i)];
                b.dy[place(&b, channel, i)] = a.dy[place(&a, 16 * g + channel % 16, i)];
            }
        }
        run(level(levels() - 1), &b);
        for (size_t channel = 0; channel < 32; channel++)
            for (size_t i = 0; i < b.each; i++)
                assert_true(b.dx[place(&b, channel, i)] == a.dx[place(&a, 16 * g + channel % 16, i)]);
        batch_free(&b);
    }
    batch_free(&a);
}

static void evaluation_uses_the_statistics_it_is_given(void **state)
{
    (void)state;
    for (int l = 0; l < levels(); l++)
        for (size_t i = 0; i < TUTTI_LENGTH(layouts); i++)
            for (int relu = 0; relu < 2; relu++) {
                batch b = batch_of(layouts[i], relu, i, 0);
                for (size_t channel = 0; channel < b.channels; channel++)
                    b.running_variance[channel] *= b.running_variance[channel];
                level(l)->batch_norm_given(&b.c, &(nn_batch_norm){ b.gamma, b.beta, 1e-3f, relu },
                                           b.x, b.running_mean, b.running_variance, b.y);
                for (size_t channel = 0; channel < b.channels; channel++)
                    for (size_t j = 0; j < b.each; j++) {
                        const size_t at = place(&b, channel, j);
                        double y = ((double)b.x[at] - (double)b.running_mean[channel]) /
                                       sqrt((double)b.running_variance[channel] + 1e-3) * (double)b.gamma[channel] +
                                   (double)b.beta[channel];
                        if (relu)
                            y = fmax(y, 0);
                        assert_true(fabs((double)b.y[at] - y) <
                                    1e-6 * (1 + fabs(y) + fabs((double)b.beta[channel])) * 4);
                    }
                level(l)->batch_norm_given(&b.c, &(nn_batch_norm){ b.gamma, b.beta, 1e-3f, relu },
                                           b.x, b.running_mean, b.running_variance, b.x);
                assert_same("in place", b.n, b.x, b.y);
                batch_free(&b);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batch_norm_matches_formula_and_central_differences),
        cmocka_unit_test(a_large_mean_does_not_cancel_the_variance),
        cmocka_unit_test(every_cpu_level_gives_bitwise_equal_results),
        cmocka_unit_test(groups_do_not_depend_on_each_other),
        cmocka_unit_test(evaluation_uses_the_statistics_it_is_given),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
