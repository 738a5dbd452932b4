/* Goal: dabmd is any-batch mirror descent: its step is that of one worker fed all samples of the
   round, its maps are the argmin that the page states, averages keep the mean, and it sends what
   its page states. Method: a file of `replay` gives the counts, a client records which samples
   were taken (../engine/taken.h), maps are compared with brute force and with the three-point
   identity. */
#include <math.h>

#include "../engine/taken.h"
#include "method/mirror.h"
#include "scratch.h"
#include "trial.h"

static char directory[SCRATCH_PATH];

/* A record in which the workers take these counts in each of `steps` steps, rotated by one worker
   each step. */
static const char *record_of(const char *name, int workers, const int *counts, int steps, int pass, int most, int seed)
{
    static char path[4][SCRATCH_PATH + 64];
    static int turn;
    FILE *f;

    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[turn], "%s/%s", directory, name);
    f = fopen(path[turn], "w");
    assert_non_null(f);
    fprintf(f, "{\"workers\":%d,\"pass\":%d,\"most\":%d,\"seed\":%d}\n", workers, pass, most, seed);
    for (int s = 0; s < steps; s++) {
        fprintf(f, "{\"step\":%d,\"took\":[", s);
        for (int r = 0; r < workers; r++)
            fprintf(f, "%s%d", r > 0 ? "," : "", counts[(r + s) % workers]);
        fprintf(f, "]}\n");
    }
    fclose(f);
    return path[turn];
}

static char *spec_of(const char *options, const char *record)
{
    static char text[4][512];
    static int turn;

    turn = (turn + 1) % 4;
    snprintf(text[turn], sizeof text[turn], "dabmd(microbatch=4,most=64%s,replay=%s)", options, record);
    return text[turn];
}

static const int unlike[4] = { 16, 8, 4, 4 }, odd[4] = { 19, 7, 4, 1 };

/* ---- identities ---- */

static void one_worker_matches_method_single_bit_for_bit(void **state)
{
    taken *a = taken_of("dabmd(microbatch=8,most=8,compute_ms=1e9)", 203, 3 * 203),
          *b = taken_of("single", 203, 3 * 203);

    (void)state;
    a->options.optimizer = b->options.optimizer = "sgd(lr=0.1,momentum=0.9)";
    taken_run(a, 1);
    taken_run(b, 1);
    taken_each(a, 1, 3);
    assert_true(a->done < b->done); /* its epochs are not cut */
    free(a);
    free(b);
    a = taken_of("dabmd(microbatch=8,most=8,compute_ms=1e9)", 200, 3 * 200);
    b = taken_of("single", 200, 3 * 200);
    a->options.optimizer = b->options.optimizer = "sgd(lr=0.1,momentum=0.9)";
    taken_run(a, 1);
    taken_run(b, 1);
    assert_int_equal(a->done, b->done);
    taken_same(a, b, 1);
    free(a);
    free(b);
}

static void one_worker_fed_all_samples_makes_the_same_step(void **state)
{
    static const int all[1] = { 32 };
    const char *many = record_of("many", 4, unlike, 20, 4, 64, 5), *one = record_of("one", 1, all, 20, 4, 64, 5);
    taken *a = taken_of(spec_of(",compute_ms=1", many), 4096, 0), *b = taken_of(spec_of(",compute_ms=1", one), 4096, 0);

    (void)state;
    a->steps = b->steps = 5; /* sums and means of four numbers are exact that long */
    b->feed = a;
    taken_run(a, 4);
    taken_run(b, 1);
    for (int s = 0; s < 5; s++)
        assert_int_equal(taken_sum(a, s), 32);
    for (int r = 0; r < 4; r++)
        assert_memory_equal(a->x[r], b->x[0], sizeof a->x[r]);
    free(a);
    free(b);
}

/* lr (mean over the samples of all), or the mean of the workers' own means. */
static void weighting_averages_over_samples_or_over_workers(void **state)
{
    (void)state;
    for (int node = 0; node < 2; node++) {
        const char *many = record_of("many", 4, odd, 20, 4, 64, 5);
        taken *a = taken_of(spec_of(node ? ",compute_ms=1,weighting=node" : ",compute_ms=1", many), 4096, 0);
        double x[TAKEN_COUNT] = { 0 };
        a->steps = 9;
        taken_run(a, 4);
        for (int s = 0; s < 9; s++)
            for (int r = 0; r < 4; r++)
                for (int k = 0; k < a->took[s][r]; k++)
                    for (int i = 0; i < TAKEN_COUNT; i++)
                        x[i] -= 0.125 * (double)taken_pull(a->id[s][r][k], i) /
                                (node ? 4 * (double)a->took[s][r] : (double)taken_sum(a, s));
        for (int r = 0; r < 4; r++)
            for (int i = 0; i < TAKEN_COUNT; i++)
                assert_true(fabs((double)a->x[r][i] - x[i]) < 1e-5);
        free(a);
    }
}

static void weightings_agree_for_equal_batches(void **state)
{
    static const int equal[4] = { 12, 12, 12, 12 };
    taken *t[2];

    (void)state;
    for (int node = 0; node < 2; node++) {
        t[node] = taken_of(spec_of(node ? ",compute_ms=1,weighting=node" : ",compute_ms=1",
                                   record_of("equal", 4, equal, 20, 4, 64, 5)), 4096, 0);
        t[node]->options.optimizer = "sgd(lr=0.1,momentum=0.9)";
        t[node]->steps = 9;
        taken_run(t[node], 4);
    }
    assert_int_equal(taken_sum(t[0], 8), 48);
    taken_same(t[0], t[1], 4);
    free(t[0]);
    free(t[1]);
}

/* The variance of a step's gradient, over many draws of its samples: that of one sample divided
   by b, and with node that of a mean of means of b_i. */
static void gradient_variance_matches_the_number_of_samples(void **state)
{
    enum { DRAWS = 80 };
    const double one = (15.0 * 15 - 1) / 12 / 64; /* a sample's pull is one of -7 ... 7, in eighths */

    (void)state;
    for (int node = 0; node < 2; node++) {
        double square = 0, expected = 0;
        for (int draw = 0; draw < DRAWS; draw++) {
            const char *many = record_of("many", 4, odd, 2, 4, 64, 100 + draw);
            taken *t = taken_of(spec_of(node ? ",compute_ms=1,weighting=node" : ",compute_ms=1", many), 4095, 0);
            t->options.seed = (uint64_t)(100 + draw);
            t->steps = 1;
            taken_run(t, 4);
            for (int i = 0; i < TAKEN_COUNT; i++) /* the mean over all samples is 0 */
                square += pow((double)t->x[0][i] / 0.125, 2) / (DRAWS * TAKEN_COUNT);
            free(t);
        }
        for (int r = 0; r < 4; r++)
            expected += node ? one / 16 / odd[r] : one / 4 / (19 + 7 + 4 + 1);
        if (fabs(square / expected - 1) > 0.2) /* four sigma */
            fail_msg("%s: the variance is %.6g, not %.6g", node ? "node" : "sample", square, expected);
    }
}

/* ---- averaging ---- */

/* W of a ring of 4: 1/3 each. */
static void consensus_keeps_the_mean_and_contracts(void **state)
{
    double apart[4], mean[4][TAKEN_COUNT];

    (void)state;
    for (int k = 0; k < 4; k++) {
        char options[64];
        snprintf(options, sizeof options, ",compute_ms=1,graph=%s,consensus=%d", k == 0 ? "complete" : "ring",
                 k > 0 ? k : 1);
        taken *a = taken_of(spec_of(options, record_of("many", 4, odd, 20, 4, 64, 5)), 4096, 0);
        a->steps = 1;
        taken_run(a, 4);
        apart[k] = 0;
        for (int i = 0; i < TAKEN_COUNT; i++) {
            mean[k][i] = 0;
            for (int r = 0; r < 4; r++)
                mean[k][i] += (double)a->x[r][i] / 4;
            for (int r = 0; r < 4; r++)
                apart[k] += pow((double)a->x[r][i] - mean[k][i], 2);
            assert_true(fabs(mean[k][i] - mean[0][i]) < 1e-6);
        }
        free(a);
    }
    assert_true(apart[0] < 1e-12);
    for (int k = 2; k < 4; k++) /* the other eigenvalues are 1/3, 1/3, -1/3 */
        assert_true(fabs(sqrt(apart[k]) - sqrt(apart[k - 1]) / 3) < 1e-6);
}

/* Averaging k of step s is round s K + k of the graph: against a computation in double. In round r
   each has half of its own model and half of that of the one 2^(r mod period) below. */
static void time_varying_graph_advances_with_each_averaging(void **state)
{
    static const int counts[6] = { 19, 7, 4, 1, 12, 8 };

    (void)state;
    for (int n = 4; n <= 6; n++)
        for (int k = 1; k <= 3; k++) {
            char options[64];
            const int period = n == 4 ? 2 : 3;
            double x[6][TAKEN_COUNT] = { 0 }, y[6][TAKEN_COUNT], apart = 0;
            snprintf(options, sizeof options, ",compute_ms=1,graph=one-peer-exponential,consensus=%d", k);
            taken *t = taken_of(spec_of(options, record_of("many", n, counts, 20, 4, 64, 5)), 4096, 0);
            t->steps = 7;
            taken_run(t, n);
            for (int s = 0; s < 7; s++) {
                for (int r = 0; r < n; r++)
                    for (int a = 0; a < t->took[s][r]; a++)
                        for (int i = 0; i < TAKEN_COUNT; i++)
                            x[r][i] -= 0.125 * n * (double)taken_pull(t->id[s][r][a], i) / (double)taken_sum(t, s);
                for (int round = s * k; round < s * k + k; round++) {
                    memcpy(y, x, sizeof y);
                    for (int r = 0; r < n; r++)
                        for (int i = 0; i < TAKEN_COUNT; i++)
                            x[r][i] = (y[r][i] + y[(r + n - (1 << round % period) % n) % n][i]) / 2;
                }
            }
            for (int r = 0; r < n; r++)
                for (int i = 0; i < TAKEN_COUNT; i++) {
                    apart = fmax(apart, fabs((double)t->x[r][i] - (double)t->x[0][i]));
                    assert_true(fabs((double)t->x[r][i] - x[r][i]) < 1e-5);
                }
            /* of a power of two the mean is exact after a period */
            assert_true(n == 4 && k >= 2 ? apart < 1e-6 : apart > 1e-3);
            free(t);
        }
}

static uint64_t sent(const taken *t, int n)
{
    uint64_t bytes = 0;
    for (int r = 0; r < n; r++)
        for (int q = 0; q < n; q++)
            bytes += t->bytes[r][q];
    return bytes;
}

/* A model to each neighbour K times, and 8 bytes to every worker. */
static void traffic_matches_the_documented_formula(void **state)
{
    (void)state;
    for (int k = 1; k <= 3; k++) {
        char options[64];
        uint64_t bytes[2];
        snprintf(options, sizeof options, ",compute_ms=1,graph=ring,consensus=%d", k);
        for (int run = 0; run < 2; run++) {
            taken *a = taken_of(spec_of(options, record_of("many", 4, odd, 20, 4, 64, 5)), 4096, 0);
            a->steps = run * 10;
            taken_run(a, 4);
            bytes[run] = sent(a, 4);
            free(a);
        }
        assert_int_equal(bytes[1] - bytes[0], 10 * (4 * 2 * k * 4 * TAKEN_COUNT + 4 * 3 * 8));
    }
}

/* ---- maps ---- */

static double kl(int n, const double *u, const float *x)
{
    double sum = 0;
    for (int k = 0; k < n; k++)
        sum += u[k] > 0 ? u[k] * log(u[k] / (double)x[k]) : 0;
    return sum;
}

static void the_entropy_step_is_the_argmin_by_brute_force(void **state)
{
    enum { GRID = 400 };

    (void)state;
    for (uint64_t draw = 0; draw < 40; draw++) {
        const tutti_rng rng = { 3, 1, draw };
        float x[3], g[3], y[3];
        double sum = 0, best = INFINITY, at[3] = { 0 };
        for (int k = 0; k < 3; k++) {
            sum += (double)(x[k] = (float)(0.1 + tutti_uniform(rng, (uint64_t)k)));
            g[k] = (float)tutti_normal(rng, 10 + (uint64_t)k);
        }
        for (int k = 0; k < 3; k++)
            y[k] = x[k] = x[k] / (float)sum;
        mirror_entropy(3, 0.7, g, y);
        for (int i = 0; i <= GRID; i++)
            for (int j = 0; i + j <= GRID; j++) {
                const double u[3] = { (double)i / GRID, (double)j / GRID, (double)(GRID - i - j) / GRID };
                const double value =
                    0.7 * (u[0] * (double)g[0] + u[1] * (double)g[1] + u[2] * (double)g[2]) + kl(3, u, x);
                if (value < best) {
                    best = value;
                    memcpy(at, u, sizeof at);
                }
            }
        for (int k = 0; k < 3; k++)
            assert_true(fabs((double)y[k] - at[k]) < 1.5 / GRID);
    }
}

static double apart_of(int d, const double *u, const float *x)
{
    double sum = 0;
    for (int k = 0; k < d; k++)
        sum += (u[k] - (double)x[k]) * (u[k] - (double)x[k]);
    return sum;
}

/* No point of a grid on the simplex is nearer, and the nearest grid point is adjacent to the
   projection: where all elements stay above 0, where some do not, and on a corner. */
static void the_projection_is_the_nearest_point_by_brute_force(void **state)
{
    enum { GRID = 400 };
    int inside = 0, corners = 0;

    (void)state;
    for (uint64_t draw = 0; draw < 80; draw++) {
        const tutti_rng rng = { 3, 2, draw };
        const int d = draw % 2 == 0 ? 2 : 3;
        float x[3], y[3] = { 0 };
        double best = INFINITY, at[3] = { 0 }, own[3], sum = 0;
        for (int k = 0; k < d; k++)
            y[k] = x[k] = (float)((draw < 40 ? 0.3 : 1.5) * tutti_normal(rng, (uint64_t)k) + 1.0 / d);
        mirror_project((size_t)d, y);
        for (int i = 0; i <= GRID; i++)
            for (int j = 0; j <= (d == 3 ? GRID - i : 0); j++) {
                const double u[3] = { (double)i / GRID, (double)(d == 3 ? j : GRID - i) / GRID,
                                      (double)(GRID - i - j) / GRID };
                const double value = apart_of(d, u, x);
                if (value < best) {
                    best = value;
                    memcpy(at, u, sizeof at);
                }
            }
        for (int k = 0; k < d; k++) {
            sum += own[k] = (double)y[k];
            assert_true(y[k] >= 0 && fabs(own[k] - at[k]) < 1.5 / GRID);
            corners += y[k] == 1;
        }
        inside += y[0] > 0 && y[1] > 0 && (d == 2 || y[2] > 0);
        assert_true(fabs(sum - 1) < 1e-6 && apart_of(d, own, x) < best + 1e-5);
    }
    assert_true(inside >= 20 && corners >= 10);
}

/* Of r = |x|_p^2 / 2. */
static double pnorm_divergence(int n, const double *u, const float *x)
{
    const double p = mirror_p((size_t)n), norm = mirror_norm((size_t)n, x, NULL, p);
    double sum = 0, dot = 0;

    for (int k = 0; k < n; k++) {
        sum += pow(fabs(u[k]), p);
        dot += mirror_link((double)x[k], p, norm) * (u[k] - (double)x[k]);
    }
    return pow(sum, 2 / p) / 2 - norm * norm / 2 - dot;
}

static double entropy_divergence(int n, const double *u, const float *x)
{
    return kl(n, u, x);
}

/* alpha <g, y - u> <= D(u, x) - D(u, y) - D(y, x) for every u of the set. */
static void the_three_point_identity_holds(void **state)
{
    enum { N = 12 };

    (void)state;
    for (uint64_t draw = 0; draw < 200; draw++)
        for (int map = 0; map < 2; map++) {
            const tutti_rng rng = { 4, 1, draw };
            double (*divergence)(int, const double *, const float *) = map ? pnorm_divergence : entropy_divergence;
            float x[N], y[N], g[N];
            double u[N], yy[N], sum[2] = { 0 }, left = 0;
            for (int k = 0; k < N; k++) {
                x[k] = (float)(map ? tutti_normal(rng, (uint64_t)k) : 0.01 + tutti_uniform(rng, (uint64_t)k));
                u[k] = map ? tutti_normal(rng, 100 + (uint64_t)k) : tutti_uniform(rng, 100 + (uint64_t)k);
                g[k] = (float)tutti_normal(rng, 200 + (uint64_t)k);
                sum[0] += (double)x[k];
                sum[1] += u[k];
            }
            for (int k = 0; k < N && !map; k++) {
                x[k] = (float)((double)x[k] / sum[0]);
                u[k] /= sum[1];
            }
            memcpy(y, x, sizeof y);
            (map ? mirror_pnorm : mirror_entropy)(N, 0.3, g, y);
            for (int k = 0; k < N; k++) {
                left += 0.3 * (double)g[k] * ((double)y[k] - u[k]);
                yy[k] = (double)y[k];
            }
            assert_true(left <= divergence(N, u, x) - divergence(N, u, y) - divergence(N, yy, x) + 1e-5);
        }
}

static void the_simplex_is_never_left(void **state)
{
    enum { N = 20 };
    float x[N], y[N], g[N];

    (void)state;
    for (int k = 0; k < N; k++)
        x[k] = y[k] = 1.0f / N;
    for (uint64_t round = 0; round < 100000; round++) {
        double sum[2] = { 0 };
        for (int k = 0; k < N; k++) {
            g[k] = (float)(8 * tutti_uniform((tutti_rng){ 6, 1, round }, (uint64_t)k) - 4);
            y[k] -= 0.1f * g[k];
        }
        mirror_entropy(N, 0.1, g, x);
        mirror_project(N, y);
        for (int k = 0; k < N; k++) {
            assert_true(x[k] >= 0 && y[k] >= 0);
            sum[0] += (double)x[k];
            sum[1] += (double)y[k];
        }
        assert_true(fabs(sum[0] - 1) < 1e-6 && fabs(sum[1] - 1) < 1e-6);
    }
}

/* ---- files, refusals, gradients that are not finite ---- */

static void run_resumes_in_the_middle_of_an_epoch(void **state)
{
    static const char *const options[] = { ",compute_ms=1", ",compute_ms=1,graph=ring,consensus=2", "" };
    char folder[SCRATCH_PATH + 64];

    (void)state;
    snprintf(folder, sizeof folder, "%s/checkpoint", directory);
    for (size_t k = 0; k < TUTTI_LENGTH(options); k++) {
        const char *many = record_of("many", 4, odd, 40, 4, 64, 5);
        taken *whole = taken_of(spec_of(options[k], many), 400, 0), *half = taken_of(spec_of(options[k], many), 400, 0);
        whole->options.optimizer = half->options.optimizer = "sgd(lr=0.1,momentum=0.9)";
        whole->steps = half->steps = 30;
        half->save_at = k == 2 ? 2 : 13; /* what the clock decides is resumed in sim/dabmd */
        half->rests = true;
        half->save_to = folder;
        taken_run(whole, 4);
        taken_run(half, 4);
        half->load_from = folder;
        half->steps = 30 - half->save_at;
        half->save_at = 0;
        taken_run(half, 4);
        assert_memory_equal(whole->times, half->times, sizeof whole->times);
        taken_same(whole, half, 4);
        half->method = "dabmd";
        taken_refused(half, 2, "has a state of its own; resume it with -n 4 instead of 2");
        free(whole);
        free(half);
    }
}

static void unsupported_options_are_rejected(void **state)
{
    static const struct { const char *method, *optimizer, *sentence; } cases[] = {
        { "dabmd(consensus=2)", "sgd(lr=0.1)", "without a graph all average with all, and once is enough" },
        { "dabmd(mirror=pnorm)", "sgd(lr=0.1,momentum=0.9)", "take the learning rate alone from the optimizer" },
        { "dabmd(mirror=pnorm)", "sgd(lr=0.1,weight_decay=0.1)", "take the learning rate alone from the optimizer" },
        { "dabmd(mirror=entropy)", "adam", "take the learning rate alone from the optimizer" },
        { "dabmd(mirror=entropy)", "sgd(lr=0.1)", "the first values are not all above 0" },
        { "dabmd(most=4,min_batch=5)", "sgd(lr=0.1)", "a round cannot have both" },
        { "dabmd(mirror=entropy,set=simplex)", "sgd(lr=0.1)", "set" },
        { "dabmd(graph=torus(rows=3))", "sgd(lr=0.1)", "torus" },
        { "dabmd(microbatch=0)", "sgd(lr=0.1)", "microbatch" },
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(cases); k++) {
        taken *t = taken_of(cases[k].method, 203, 203);
        t->options.optimizer = cases[k].optimizer;
        taken_refused(t, 2, cases[k].sentence);
        free(t);
    }
}

static void nonfinite_gradient_is_reported_or_skipped(void **state)
{
    (void)state;
    trial_not_finite("dabmd(compute_ms=0.01)", "sgd(lr=0.1)");
}

static void round_ends_at_the_first_micro_batch_past_time(void **state)
{
    taken *t = taken_of("dabmd(compute_ms=40,microbatch=2,most=64)", 4096, 0);

    (void)state;
    t->steps = 4;
    t->seconds[0] = 0.002; /* a micro-batch is 4 ms, 8 ms */
    t->seconds[1] = 0.004;
    taken_run(t, 2);
    for (int s = 0; s < 4; s++)
        for (int r = 0; r < 2; r++) { /* sleeping late makes it fewer, never more */
            assert_true(t->took[s][r] >= 2 && t->took[s][r] <= (r == 0 ? 20 : 10));
            assert_true(t->took[s][r] == (r == 0 ? 20 : 10) || t->ended_ns[s][r] - t->began_ns[s][r] >= 40000000);
        }
    free(t);
}

static int make_directory(void **state)
{
    (void)state;
    scratch_make(directory);
    return 0;
}

static int remove_directory(void **state)
{
    (void)state;
    scratch_remove(directory);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_worker_matches_method_single_bit_for_bit),
        cmocka_unit_test(one_worker_fed_all_samples_makes_the_same_step),
        cmocka_unit_test(weighting_averages_over_samples_or_over_workers),
        cmocka_unit_test(weightings_agree_for_equal_batches),
        cmocka_unit_test(gradient_variance_matches_the_number_of_samples),
        cmocka_unit_test(consensus_keeps_the_mean_and_contracts),
        cmocka_unit_test(time_varying_graph_advances_with_each_averaging),
        cmocka_unit_test(traffic_matches_the_documented_formula),
        cmocka_unit_test(the_entropy_step_is_the_argmin_by_brute_force),
        cmocka_unit_test(the_projection_is_the_nearest_point_by_brute_force),
        cmocka_unit_test(the_three_point_identity_holds),
        cmocka_unit_test(the_simplex_is_never_left),
        cmocka_unit_test(run_resumes_in_the_middle_of_an_epoch),
        cmocka_unit_test(unsupported_options_are_rejected),
        cmocka_unit_test(nonfinite_gradient_is_reported_or_skipped),
        cmocka_unit_test(round_ends_at_the_first_micro_batch_past_time),
    };
    return cmocka_run_group_tests_name("method/dabmd", tests, make_directory, remove_directory);
}
