/* Goal: noloco.md's invariants, on ranks that are threads: the formula on several graphs and with
   odd numbers of workers, what it is of diloco, the mean of the slow models, exact traffic,
   overlap, refusals. Method: a separate computation in double precision; the bits of other
   methods, where sums are exact. Losses are in goes_on_test.c, resuming in
   tests/engine/state_test.c. */
#include "trial.h"
#include "tutti/method/gossip.h"

static tutti_graph *graph(const char *spec, int n)
{
    tutti_graph *g;
    assert_int_equal(tutti_graph_open(&g, spec, n, NULL), TUTTI_OK);
    return g;
}

static void expect_same(const trial *a, const trial *b, int n, int steps)
{
    for (int r = 0; r < n; r++)
        for (int s = 0; s < steps; s++)
            if (!trial_same(a, a->x[r][s], b->x[r][s]))
                fail_msg("%s is not %s on %d: worker %d differs after step %d", a->method, b->method, n, r, s + 1);
}

/* ---- the formula ---- */

typedef struct setting {
    const char *graph;
    int period;
    double lr, momentum, gamma;
} setting;

static const setting settings[] = {
    { "random-matching", 3, 0.7, 0.5, 0.7 },      { "random-matching(seed=7)", 1, 0.7, 0.5, 0.9 },
    { "complete", 2, 0.7, 0.5, 0.7 },             { "ring", 4, 0.5, 0.25, 1.25 },
    { "one-peer-exponential", 2, 1, 0, 1 },       { "hyper-hypercube(2)", 2, 0.7, 0.9, 1 },
    { "random-matching", 2, 0.7, 0.5, 0 },
};

static trial trial_with(const setting *c, int steps, char *method, size_t bytes)
{
    trial t;

    snprintf(method, bytes, "noloco(period=%d,graph=%s,lr=%g,momentum=%g,gamma=%g)", c->period, c->graph, c->lr,
             c->momentum, c->gamma);
    t = trial_of(method, "sgd(lr=0.125)", steps);
    t.count[0] = 50;
    t.count[2] = 7;
    return t;
}

/* to[r] := sum_j W_rj of[j], W of round k. */
static void mix(const tutti_graph *g, uint64_t k, int n, const double *of, double *to)
{
    int in[TRIAL_RANKS], out[TRIAL_RANKS], n_in, n_out;
    double w_in[TRIAL_RANKS], w_out[TRIAL_RANKS], self;

    for (int r = 0; r < n; r++) {
        tutti_graph_round(g, k, r, in, w_in, &n_in, out, w_out, &n_out, &self);
        to[r] = self * of[r];
        for (int a = 0; a < n_in; a++)
            to[r] += w_in[a] * of[in[a]];
    }
}

/* Element i after each step, in double. */
static void follow(const setting *c, const trial *t, const tutti_graph *g, size_t i)
{
    const int n = t->workers;
    double x[TRIAL_RANKS] = { 0 }, theta[TRIAL_RANKS] = { 0 }, v[TRIAL_RANKS] = { 0 }, moved[TRIAL_RANKS] = { 0 },
           of_theta[TRIAL_RANKS] = { 0 }, of_moved[TRIAL_RANKS] = { 0 };

    for (int r = 0; r < n; r++)
        x[r] = theta[r] = trial_initial_value(i);
    for (int s = 0; s < t->steps; s++) {
        for (int r = 0; r < n; r++) {
            x[r] -= 0.125 * (x[r] + (double)trial_quadratic(r, 0, i, 0)); /* x - b; at 0 it is -b */
            moved[r] = x[r] - theta[r];
        }
        if ((s + 1) % c->period == 0) {
            mix(g, (uint64_t)(s / c->period), n, theta, of_theta);
            mix(g, (uint64_t)(s / c->period), n, moved, of_moved);
        }
        for (int r = 0; r < n; r++) {
            if ((s + 1) % c->period == 0) {
                v[r] = c->momentum * v[r] + c->lr * of_moved[r] + c->gamma * (of_theta[r] - theta[r]);
                x[r] = theta[r] += v[r];
            }
            if (!(fabs(x[r] - t->x[r][s][i]) < 2e-5))
                fail_msg("%s on %d, step %d, worker %d, element %zu: %.9g, expected %.9g", t->method, n, s + 1, r, i,
                         (double)t->x[r][s][i], x[r]);
        }
    }
}

static void every_model_follows_the_formula_with_odd_numbers_too(void **state)
{
    static const int sizes[] = { 1, 2, 3, 5, 7, 8 };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(settings); c++)
        for (size_t z = 0; z < TUTTI_LENGTH(sizes); z++) {
            char method[160];
            trial t = trial_with(&settings[c], 13, method, sizeof method);
            tutti_graph *g = NULL;
            if (tutti_graph_open(&g, settings[c].graph, sizes[z], NULL) != TUTTI_OK)
                continue; /* cliques of three are not for 5 and 7 */
            trial_run(&t, sizes[z]);
            for (size_t i = 0; i < trial_size(&t); i++)
                follow(&settings[c], &t, g, i);
            for (int r = 1; r < sizes[z]; r++) /* agreed on at the end */
                assert_true(trial_same(&t, t.x[0][13], t.x[r][13]));
            tutti_graph_close(g);
            trial_drop(&t);
        }
}

/* ---- what it is of diloco ---- */

/* lr 1/2 and a power of two of workers: halving is exact, wherever lr stands, and so is the mean of
   equal slow models, so that the term with gamma is 0. */
static void all_workers_as_one_group_are_heavy_ball_diloco_bit_for_bit(void **state)
{
    (void)state;
    for (int n = 1; n <= 8; n *= 2)
        for (int bare = 0; bare < 2; bare++) { /* two workers are always a pair, and one is alone */
            trial a = trial_of(bare && n <= 2 ? "noloco(period=3,lr=0.5,momentum=0.8)"
                                              : "noloco(period=3,graph=complete,lr=0.5,momentum=0.8)",
                               "sgd(lr=0.1,momentum=0.9)", 10),
                  b = trial_of("diloco(period=3,outer=sgd(lr=0.5,momentum=0.8))", "sgd(lr=0.1,momentum=0.9)", 10);
            a.gradient = b.gradient = trial_rough;
            trial_run(&a, n);
            trial_run(&b, n);
            expect_same(&a, &b, n, 11);
            trial_drop(&a);
            trial_drop(&b);
        }
}

/* Any rate and number: up to rounding, and the workers' slow models have the same bits. */
static void all_workers_as_one_group_are_heavy_ball_diloco_of_any_rate(void **state)
{
    (void)state;
    for (int n = 2; n <= 7; n++) {
        trial a = trial_of("noloco(period=4,graph=complete,lr=0.7,momentum=0.9)", "adamw(lr=0.01)", 16),
              b = trial_of("diloco(period=4,outer=sgd(lr=0.7,momentum=0.9))", "adamw(lr=0.01)", 16);
        trial_run(&a, n);
        trial_run(&b, n);
        for (int s = 3; s < 16; s += 4)
            for (int r = 0; r < n; r++) {
                assert_true(trial_same(&a, a.x[r][s], a.x[0][s]));
                assert_true(trial_apart(&a, a.x[r][s], b.x[r][s]) < 1e-4);
            }
        trial_drop(&a);
        trial_drop(&b);
    }
}

/* f_r(x) = |x - b_r|^2 / 2: the mean of the models after inner steps is a function of the mean
   before, so the mean of the slow models is diloco's model, with whomever each has met. */
static void mean_of_slow_models_follows_heavy_ball_diloco(void **state)
{
    static const int sizes[] = { 2, 3, 4, 7, 8 };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(settings); c++)
        for (size_t z = 0; z < TUTTI_LENGTH(sizes); z++) {
            const int n = sizes[z], every = settings[c].period;
            char method[160], base[100];
            tutti_graph *g = NULL;
            double apart = 0;
            bool all_meet;
            trial a = trial_with(&settings[c], 12, method, sizeof method), b;
            if (tutti_graph_open(&g, settings[c].graph, n, NULL) != TUTTI_OK)
                continue;
            all_meet = tutti_graph_degree(g) == n - 1;
            tutti_graph_close(g);
            snprintf(base, sizeof base, "diloco(period=%d,outer=sgd(lr=%g,momentum=%g))", every, settings[c].lr,
                     settings[c].momentum);
            b = trial_of(base, "sgd(lr=0.125)", 12);
            memcpy(b.count, a.count, sizeof b.count);
            trial_run(&a, n);
            trial_run(&b, n);
            for (int s = every - 1; s < 12; s += every)
                for (size_t i = 0; i < trial_size(&a); i++) {
                    double mean = 0;
                    for (int r = 0; r < n; r++) {
                        mean += (double)a.x[r][s][i] / n;
                        apart = fmax(apart, fabs((double)a.x[r][s][i] - a.x[0][s][i]));
                    }
                    if (!(fabs(mean - b.x[0][s][i]) < 2e-5))
                        fail_msg("%s on %d, step %d, element %zu: the mean is %.9g, %s has %.9g", method, n, s + 1, i,
                                 mean, base, (double)b.x[0][s][i]);
                }
            assert_true(all_meet || apart > 0.01);
            trial_drop(&a);
            trial_drop(&b);
        }
}

/* Dyadic numbers: theta + (x - theta) is x. */
static void one_worker_with_a_plain_outer_step_is_single(void **state)
{
    trial a = trial_of("noloco(period=3,lr=1,momentum=0)", "sgd(lr=0.25)", 8),
          b = trial_of("single", "sgd(lr=0.25)", 8);

    (void)state;
    a.gradient = b.gradient = trial_constant;
    trial_run(&a, 1);
    trial_run(&b, 1);
    expect_same(&a, &b, 1, 9);
    assert_int_equal(a.bytes[0][0] + a.figures[0].bytes_sent, 0);
    trial_drop(&a);
    trial_drop(&b);
}

/* Weights of pairs are 1/2, so means of equal models are exact. */
static void equal_workers_are_one_worker(void **state)
{
    (void)state;
    for (int n = 2; n <= 8; n += 1 + (n > 4)) { /* 2, 3, 4, 5, 7 */
        trial a = trial_of("noloco(period=3)", "sgd(lr=0.1,momentum=0.9)", 10),
              b = trial_of("noloco(period=3)", "sgd(lr=0.1,momentum=0.9)", 10);
        a.gradient = b.gradient = trial_alike;
        trial_run(&a, n);
        trial_run(&b, 1);
        for (int r = 0; r < n; r++)
            for (int s = 0; s < 10; s++)
                assert_true(trial_same(&a, a.x[r][s], b.x[0][s]));
        assert_true(trial_metric(&a, "displacement", -1) > 0 && trial_metric(&a, "apart", -1) == 0);
        trial_drop(&a);
        trial_drop(&b);
    }
}

/* Without gradients, all that happens is that slow models come together, also while momentum is
   left over. */
static float apart_once(int rank, uint64_t step, size_t i, float x)
{
    (void)x;
    return step == 0 ? (float)((rank * 11 + (int)i * 7) % 23) : 0;
}

static double spread(const trial *t, int step)
{
    double sum = 0;

    for (size_t i = 0; i < trial_size(t); i += 5) {
        double mean = 0;
        for (int r = 0; r < t->workers; r++)
            mean += (double)t->x[r][step][i] / t->workers;
        for (int r = 0; r < t->workers; r++)
            sum += (t->x[r][step][i] - mean) * (t->x[r][step][i] - mean);
    }
    return sqrt(sum);
}

static void slow_models_come_together_by_gamma_alone(void **state)
{
    (void)state;
    for (int n = 3; n <= 8; n += 5) {
        trial near = trial_of("noloco(period=1)", "sgd(lr=1)", TRIAL_STEPS),
              far = trial_of("noloco(period=1,gamma=0)", "sgd(lr=1)", TRIAL_STEPS);
        near.gradient = far.gradient = apart_once;
        trial_run(&near, n);
        trial_run(&far, n);
        assert_true(spread(&near, TRIAL_STEPS - 1) < 0.2 * spread(&near, 0));
        assert_true(spread(&far, TRIAL_STEPS - 1) > 0.9 * spread(&far, 0));
        trial_drop(&near);
        trial_drop(&far);
    }
}

/* Above 2 (1 - momentum^2), here 0.72, pairs drive slow models apart. Two are always all. */
static void slow_models_move_apart_where_the_run_reports_it(void **state)
{
    (void)state;
    for (int n = 2; n <= 8; n *= 2) {
        trial t = trial_of("noloco(period=1,momentum=0.8,gamma=2)", "sgd(lr=1)", TRIAL_STEPS);
        double first, last;
        t.gradient = apart_once;
        trial_run(&t, n);
        first = spread(&t, 0);
        last = spread(&t, TRIAL_STEPS - 1);
        assert_true(n == 2 ? last == 0 : last > 3 * first);
        trial_drop(&t);
    }
}

/* ---- traffic ---- */

/* A round is two messages of a model each to every neighbour: theta when it begins, D when it ends.
   rest: steps after the last whole round, in which theta has been sent. */
static void traffic_is_two_models_a_round_to_each_neighbour(void **state)
{
    static const char *const graphs[] = { "random-matching", "ring", "complete" };
    static const int sizes[] = { 1, 2, 3, 5, 8 };
    enum { WHOLE = 3, EVERY = 2 };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(graphs); k++)
        for (size_t z = 0; z < 2 * TUTTI_LENGTH(sizes); z++) {
            const int n = sizes[z / 2], rest = (int)(z % 2);
            uint64_t models[TRIAL_RANKS][TRIAL_RANKS] = { { 0 } }, due = 0, sent = 0;
            char method[80];
            trial t;
            tutti_graph *g = graph(graphs[k], n);
            snprintf(method, sizeof method, "noloco(period=%d,graph=%s)", EVERY, graphs[k]);
            t = trial_of(method, "sgd(lr=0.1)", EVERY * WHOLE + rest);
            trial_run(&t, n);
            for (int round = 0; round < WHOLE + rest; round++)
                for (int r = 0; r < n; r++) {
                    int in[TRIAL_RANKS], out[TRIAL_RANKS], n_in, n_out;
                    double w_in[TRIAL_RANKS], w_out[TRIAL_RANKS], self;
                    tutti_graph_round(g, (uint64_t)round, r, in, w_in, &n_in, out, w_out, &n_out, &self);
                    assert_true(k > 0 || (n_out <= 1 && (n % 2 == 1 || n_out == 1)));
                    for (int a = 0; a < n_out; a++)
                        models[r][out[a]] += round < WHOLE ? 2 : 1;
                }
            for (int r = 0; r < n; r++)
                for (int to = 0; to < n; to++)
                    if (to != r) { /* the mean at the end is an all-reduce: two messages a pair */
                        assert_int_equal(t.messages[r][to], models[r][to] + 2);
                        due += 4 * trial_size(&t) * models[r][to];
                        sent += t.bytes[r][to];
                    }
            assert_int_equal(sent, due + 2 * (uint64_t)(n - 1) * 4 * trial_size(&t));
            tutti_graph_close(g);
            trial_drop(&t);
        }
}

/* ---- overlap ---- */

/* Slow models that travel on the mixer's thread, on the client's, while the model is shown: the
   same bits. */
static void threads_and_evaluations_change_no_bit(void **state)
{
    static const char *const methods[] = { "noloco(period=3)", "noloco(period=1)", "noloco(period=4,graph=ring)" };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(methods); c++)
        for (int n = 1; n <= 3; n++) {
            trial all[3];
            for (int k = 0; k < 3; k++) {
                all[k] = trial_of(methods[c], "sgd(lr=0.1,momentum=0.9)", 7);
                all[k].count[0] = 100000;
                all[k].options.lane = k == 1 ? -1 : 1;
                all[k].show = k == 2;
                trial_run(&all[k], n);
            }
            expect_same(&all[0], &all[1], n, 8);
            expect_same(&all[0], &all[2], n, 8);
            for (int k = 0; k < 3; k++)
                trial_drop(&all[k]);
        }
}

/* ---- what ends a run ---- */

static void numbers_that_are_not_finite_end_the_run(void **state)
{
    (void)state;
    trial_not_finite("noloco(period=3)", "sgd(lr=0.1)");
    trial_not_finite("noloco(period=1,graph=ring)", "adam(lr=0.1)");
}

static void invalid_options_are_rejected(void **state)
{
    static const struct { const char *method, *codec, *sentence; } cases[] = {
        { "noloco(period=0)", NULL, "'period' is 0; it must be from 1" },
        { "noloco(lr=0)", NULL, "'lr' is 0; it must be from 1e-6" },
        { "noloco(momentum=1)", NULL, "'momentum' is 1; it must be from 0 to 0.999999" },
        { "noloco(gamma=-0.1)", NULL, "'gamma' is -0.1; it must be from 0 to 2" },
        { "noloco(gamma=2.5)", NULL, "'gamma' is 2.5; it must be from 0 to 2" },
        { "noloco(graph=random-matchin)", NULL, "did you mean 'random-matching'" },
        { "noloco(graph=hypercube)", NULL, "method 'noloco'" }, /* three workers */
        { "noloco(perod=3)", NULL, "did you mean 'period'?" },
        { "noloco", "fp16", "method 'noloco' sends models or nothing" },
    };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(cases); c++) {
        trial t = trial_of(cases[c].method, "sgd(lr=0.1)", 1);
        tutti_error err;
        t.options.codec = cases[c].codec;
        assert_int_equal(trial_try(&t, 3, &err), TUTTI_ERR_USAGE);
        if (strstr(err.text, cases[c].sentence) == NULL)
            fail_msg("%s: %s", cases[c].method, err.text);
        trial_drop(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_model_follows_the_formula_with_odd_numbers_too),
        cmocka_unit_test(all_workers_as_one_group_are_heavy_ball_diloco_bit_for_bit),
        cmocka_unit_test(all_workers_as_one_group_are_heavy_ball_diloco_of_any_rate),
        cmocka_unit_test(mean_of_slow_models_follows_heavy_ball_diloco),
        cmocka_unit_test(one_worker_with_a_plain_outer_step_is_single),
        cmocka_unit_test(equal_workers_are_one_worker),
        cmocka_unit_test(slow_models_come_together_by_gamma_alone),
        cmocka_unit_test(slow_models_move_apart_where_the_run_reports_it),
        cmocka_unit_test(traffic_is_two_models_a_round_to_each_neighbour),
        cmocka_unit_test(threads_and_evaluations_change_no_bit),
        cmocka_unit_test(numbers_that_are_not_finite_end_the_run),
        cmocka_unit_test(invalid_options_are_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
