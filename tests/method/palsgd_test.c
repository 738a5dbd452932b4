/* Goal: palsgd.md's invariants, on ranks that are threads. Which steps mix is computed here
   independently, from the seed. Resuming in mid-period is in tests/engine/state_test.c, with
   every other method's. */
#include "trial.h"

/* The coins, as the method's opening comment defines them: a function of seed, worker and
   step. */
static bool mixes(uint64_t seed, int worker, uint64_t step, double p, bool shared)
{
    const tutti_rng coin = { seed, UINT64_C(0x636f696e) + ((shared ? 0 : (uint64_t)worker + 1) << 32), step };
    return tutti_uniform(coin, 0) < p;
}

/* ---- identities ---- */

static void without_mixing_it_is_local_sgd_to_the_bit(void **state)
{
    static const struct { const char *palsgd, *local, *codec; } cases[] = {
        { "palsgd(mix_prob=0,period=3,warmup=0)", "local-sgd(period=3,outer=sgd(lr=0.7,momentum=0.9,nesterov=true))" },
        { "palsgd(mix_prob=0,period=3,warmup=2,outer=sgd(lr=0.5))", "local-sgd(period=3,warmup=2,outer=sgd(lr=0.5))" },
        { "palsgd(mix_prob=0,period=2,warmup=1,outer=none)", "local-sgd(period=2,warmup=1)" },
        { "palsgd(mix_prob=0,period=2,warmup=0,outer=none)", "local-sgd(period=2)", "topk(ratio=0.1)" },
        { "palsgd(mix_prob=0,period=1,warmup=0,outer=none)", "local-sgd(period=1)" },
    };
    static const char *const optimizers[] = { "sgd(lr=0.1,momentum=0.9)", "adamw(lr=0.01)" };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(cases); c++)
        for (size_t o = 0; o < TUTTI_LENGTH(optimizers); o++)
            for (int n = 1 + (int)((c + o) % 2); n <= 4; n += 2) {
                trial a = trial_of(cases[c].palsgd, optimizers[o], 8), b = trial_of(cases[c].local, optimizers[o], 8);
                a.options.codec = b.options.codec = cases[c].codec;
                trial_run(&a, n);
                trial_run(&b, n);
                for (int r = 0; r < n; r++) {
                    for (int s = 0; s <= 8; s++)
                        assert_true(trial_same(&a, a.x[r][s], b.x[r][s]));
                    assert_int_equal(trial_metric(&a, "mixing_steps", r), 0);
                    assert_int_equal(trial_metric(&a, "gradient_evaluations", r), 8);
                }
                trial_drop(&a);
                trial_drop(&b);
            }
}

static void a_warm_up_to_the_end_is_ddp_to_the_bit(void **state)
{
    (void)state;
    for (int n = 1; n <= 4; n++) {
        trial a = trial_of("palsgd(warmup=100,mix_prob=0.5)", "adamw(lr=0.01)", 6),
              b = trial_of("ddp", "adamw(lr=0.01)", 6);
        trial_run(&a, n);
        trial_run(&b, n);
        for (int r = 0; r < n; r++)
            for (int s = 0; s <= 6; s++)
                assert_true(trial_same(&a, a.x[r][s], b.x[r][s]));
        trial_drop(&a);
        trial_drop(&b);
    }
}

static float of_x(int rank, uint64_t step, size_t i, float x)
{
    (void)step;
    return x - (float)((rank * 13 + (int)(i % 17)) % 19) / 8;
}

/* mix_rate 0: mixing steps do nothing, so what is left are the gradient steps at 1/(1 - p) of the
   rate, whose number Adam's corrections go by. The rate itself is never changed: it is that of the
   first step in the last. */
static void gradient_steps_use_the_inner_optimiser_with_scaled_rate(void **state)
{
    static const struct { const char *rule; double lr; } rules[] = {
        { "sgd(lr=%.17g,momentum=0.9)", 0.1 },
        { "sgd(lr=%.17g,momentum=0.9,nesterov=true,weight_decay=0.01)", 0.1 },
        { "adam(lr=%.17g)", 0.01 },
        { "adamw(lr=%.17g,weight_decay=0.1)", 0.01 },
    };
    enum { STEPS = 16 };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(rules); k++)
        for (uint64_t seed = 1; seed <= 3; seed++) {
            char optimizer[100], longer[100];
            const double p = 0.4, factor = 1 / (1 - p);
            trial a, b;
            int done = 0;
            snprintf(optimizer, sizeof optimizer, rules[k].rule, rules[k].lr);
            snprintf(longer, sizeof longer, rules[k].rule, rules[k].lr * factor);
            a = trial_of("palsgd(mix_prob=0.4,mix_rate=0,warmup=0,period=100,outer=none,coin=independent)",
                         optimizer, STEPS);
            b = trial_of("single", longer, STEPS);
            a.options.seed = b.options.seed = seed;
            a.gradient = b.gradient = of_x;
            trial_run(&a, 1);
            trial_run(&b, 1);
            for (int s = 0; s < STEPS; s++) {
                done += !mixes(seed, 0, (uint64_t)s, p, false);
                if (done > 0)
                    assert_true(trial_same(&a, a.x[0][s], b.x[0][done - 1]));
            }
            assert_true(done > 0 && done < STEPS);
            assert_int_equal(trial_metric(&a, "gradient_evaluations", 0), done);
            assert_int_equal(trial_metric(&a, "mixing_steps", 0), STEPS - done);
            trial_drop(&a);
            trial_drop(&b);
        }
}

/* ---- the mixing step ---- */

/* lr mix_rate / mix_prob = 1: the model is the global one after a mixing step, bit for bit. */
static void full_mixing_step_copies_the_global_model_exactly(void **state)
{
    enum { STEPS = 15, PERIOD = 5 };
    /* in double 0.1 x 3 / 0.3 is above 1 and 0.15 x 3 / 0.45 below; to a float each is 1 */
    static const struct { double lr, rate, p; int seeds; } cases[] = {
        { 0.25, 2, 0.5, 1 }, { 0.05, 0.6, 0.03, 5 }, { 0.1, 3, 0.3, 1 }, { 0.15, 3, 0.45, 1 },
    };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(cases); c++) {
        char method[100], optimizer[40];
        trial t = trial_of(method, optimizer, STEPS);
        int jumps = 0;
        snprintf(method, sizeof method, "palsgd(mix_prob=%g,mix_rate=%g,warmup=0,period=5,coin=independent)",
                 cases[c].p, cases[c].rate);
        snprintf(optimizer, sizeof optimizer, "sgd(lr=%g)", cases[c].lr);
        for (uint64_t seed = 7; seed < 7 + (uint64_t)cases[c].seeds; seed++)
            for (int n = 2; n <= 8; n += 6) {
                t.options.seed = seed;
                trial_run(&t, n);
                for (int r = 0; r < n; r++)
                    for (int s = PERIOD; s < STEPS; s++)
                        if (s % PERIOD != PERIOD - 1 && mixes(seed, r, (uint64_t)s, cases[c].p, false)) {
                            assert_true(trial_same(&t, t.x[r][s], t.x[r][s / PERIOD * PERIOD - 1]));
                            jumps++;
                        }
            }
        assert_true(jumps > 5);
        trial_drop(&t);
    }
}

static void models_are_equal_only_after_global_averaging(void **state)
{
    static const char *const methods[] = {
        "palsgd(mix_prob=0.4,warmup=2,period=4,coin=independent)", "palsgd(mix_prob=0.4,warmup=2,period=4,outer=none,coin=independent)",
        "palsgd(mix_prob=0.4,warmup=2,period=4,outer=adam(lr=0.1),coin=shared)",
        "palsgd(form=elastic,warmup=2,period=4)",
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(methods); k++)
        for (int n = 2; n <= 5; n++) {
            trial t = trial_of(methods[k], "sgd(lr=0.1,momentum=0.9)", 14);
            t.options.lr_schedule = "cosine";
            t.options.steps = 14;
            trial_run(&t, n);
            for (int r = 1; r < n; r++) {
                bool alike = true; /* where both have only mixed since they met neither has moved */
                for (int s = 1; s <= 14; s++) { /* together in the warm-up, and after 6, 10, 14 */
                    const bool met = s <= 2 || (s - 2) % 4 == 0, shared = strstr(methods[k], "shared") != NULL,
                               both = k < 3 && mixes(0, 0, (uint64_t)s - 1, 0.4, shared) &&
                                      mixes(0, r, (uint64_t)s - 1, 0.4, shared);
                    alike = met || (alike && both);
                    if (trial_same(&t, t.x[0][s - 1], t.x[r][s - 1]) != alike)
                        fail_msg("%s, %d workers: after %d steps 0 and %d are%s equal", methods[k], n, s, r,
                                 alike ? " not" : "");
                }
                assert_true(trial_same(&t, t.x[0][14], t.x[r][14]));
            }
            trial_drop(&t);
        }
}

static float eight_up_then_three_down(int rank, uint64_t step, size_t i, float x)
{
    (void)rank, (void)i, (void)x;
    return step == 0 ? -8 : 3;
}

/* At rate 0.1, eta 0.5, p 0.2, one above the global model and with gradient 3, a step leads to 0.65
   above it in expectation: 1 - 0.1 x 3 - 0.1 x 0.5. A first step with a gradient brings a worker
   there; those that mixed do not count. */
static void expected_step_includes_the_pull_to_the_global_model(void **state)
{
    double sum = 0, squares = 0;
    int n = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= 24; seed++) {
        trial t = trial_of("palsgd(mix_prob=0.2,mix_rate=0.5,warmup=0,period=100,outer=none,coin=independent)",
                           "sgd(lr=0.1)", 2);
        t.options.seed = seed;
        t.gradient = eight_up_then_three_down;
        t.count[0] = t.count[1] = t.count[2] = 1;
        trial_run(&t, 8);
        for (int r = 0; r < 8; r++) {
            const double from = trial_initial_value(0), x = (double)t.x[r][1][0] - from;
            if (mixes(seed, r, 0, 0.2, false)) {
                assert_true((double)t.x[r][0][0] == from);
                continue;
            }
            assert_true(fabs((double)t.x[r][0][0] - from - 1) < 1e-6);
            assert_true(fabs(x - (mixes(seed, r, 1, 0.2, false) ? 0.75 : 0.625)) < 1e-6);
            sum += x;
            squares += x * x;
            n++;
        }
        trial_drop(&t);
    }
    sum /= n;
    assert_true(n > 120);
    assert_true(fabs(sum - 0.65) <= 4 * sqrt((squares / n - sum * sum) / n));
}

static float of_worker_zero(int rank, uint64_t step, size_t i, float x)
{
    (void)rank;
    return trial_quadratic(0, step, i, x);
}

/* Gradients that are linear in x: so it is over several steps, too. */
static void the_expectation_holds_over_several_steps(void **state)
{
    enum { STEPS = 6, SEEDS = 20, WORKERS = 8 };
    const double alpha = 0.1, eta = 0.75;
    const double from = trial_initial_value(0), target = from - (double)trial_quadratic(0, 0, 0, (float)from);
    double sum = 0, squares = 0, expect = from;

    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        trial t = trial_of("palsgd(mix_prob=0.3,mix_rate=0.75,warmup=0,period=100,outer=none,coin=independent)",
                           "sgd(lr=0.1)", STEPS);
        t.options.seed = seed;
        t.gradient = of_worker_zero;
        t.count[0] = t.count[1] = t.count[2] = 1;
        trial_run(&t, WORKERS);
        for (int r = 0; r < WORKERS; r++) {
            const double x = (double)t.x[r][STEPS - 1][0];
            sum += x / (SEEDS * WORKERS);
            squares += x * x / (SEEDS * WORKERS);
        }
        trial_drop(&t);
    }
    for (int s = 0; s < STEPS; s++)
        expect -= alpha * (expect - target) + alpha * eta * (expect - from);
    assert_true(fabs(sum - expect) <= 4 * sqrt((squares - sum * sum) / (SEEDS * WORKERS)));
    assert_true(fabs(expect - from) > 0.1); /* it has moved */
}

static void elastic_form_makes_the_expected_step_every_time(void **state)
{
    enum { STEPS = 8, PERIOD = 4 };

    (void)state;
    for (int n = 1; n <= 3; n++) {
        trial t = trial_of("palsgd(form=elastic,mix_rate=0.5,warmup=0,period=4)", "sgd(lr=0.1)", STEPS);
        trial_run(&t, n);
        for (int r = 0; r < n; r++)
            for (size_t i = 0; i < trial_size(&t); i++) {
                for (int s = 0; s < STEPS; s++) {
                    const double global = s < PERIOD ? (double)trial_initial_value(i) : (double)t.x[r][PERIOD - 1][i],
                                 x = s == 0 ? global : (double)t.x[r][s - 1][i],
                                 g = (double)trial_quadratic(r, (uint64_t)s, i, (float)x);
                    if (s % PERIOD != PERIOD - 1)
                        assert_true(fabs((double)t.x[r][s][i] - (x - 0.1 * (g + 0.5 * (x - global)))) < 1e-6);
                }
            }
        assert_int_equal(trial_metric(&t, "gradient_evaluations", 0), STEPS);
        assert_int_equal(trial_metric(&t, "mixing_steps", 0), 0);
        trial_drop(&t);
    }
}

/* ---- counts, traffic, drift ---- */

enum { COUNTED = 400, WORKERS = 4, BATCH = 2 };
typedef struct counted {
    const char *method;
    uint64_t seed;
    int64_t passes[WORKERS], samples[WORKERS];
    tutti_figures figures[WORKERS];
} counted;

static tutti_status count(tutti_world *world, void *arg, tutti_error *err)
{
    const tutti_param param = { .name = "w", .dims = 1, .dim = { 8 } };
    counted *c = arg;
    const tutti_engine_options options = {
        .method = c->method, .optimizer = "sgd(lr=0.01)", .batch = BATCH, .seed = c->seed
    };
    tutti_engine *e;
    tutti_pass p;
    const int rank = tutti_world_rank(world);
    tutti_status status = tutti_engine_open(&e, world, &param, 1, &options, err);

    for (int s = 0; s < COUNTED && status == TUTTI_OK; s++) {
        while ((status = tutti_engine_pass_begin(e, &p, err)) == TUTTI_OK) {
            for (int i = 0; i < 8; i++)
                tutti_engine_gradient(e, 0)[i] = 1;
            c->passes[rank] += p.samples > 0;
            c->samples[rank] += p.samples;
            if ((status = tutti_engine_grad_ready(e, 0, err)) != TUTTI_OK ||
                (status = tutti_engine_pass_end(e, 0, err)) != TUTTI_OK)
                break;
        }
        if (status == TUTTI_CLOSED)
            status = tutti_engine_step(e, err);
    }
    if (status == TUTTI_OK)
        status = tutti_engine_finish(e, err);
    if (status == TUTTI_OK)
        tutti_engine_figures(e, &c->figures[rank]);
    tutti_engine_close(e);
    return status;
}

static void evaluations_are_binomial(void **state)
{
    static const double ps[] = { 0.05, 0.3, 0.8 };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(ps); k++)
        for (int said = 0; said < 3; said++) { /* nothing: as the authors' code */
            static const char *const coins[] = { ",coin=independent", ",coin=shared", "" };
            const bool shared = said > 0;
            char method[100];
            counted c = { .method = method, .seed = 11 + k };
            tutti_error err;
            uint64_t all = 0;
            snprintf(method, sizeof method, "palsgd(mix_prob=%g,period=50,warmup=0%s)", ps[k], coins[said]);
            if (tutti_world_run("shm", WORKERS, count, &c, &err) != TUTTI_OK)
                fail_msg("%s: %s", method, err.text);
            for (int r = 0; r < WORKERS; r++) {
                int due = 0;
                for (uint64_t s = 0; s < COUNTED; s++)
                    due += !mixes(c.seed, r, s, ps[k], shared);
                assert_int_equal(c.passes[r], due);
                assert_int_equal(c.samples[r], BATCH * due);
                assert_int_equal(c.figures[r].own_steps, due);
                assert_true(fabs(due - COUNTED * (1 - ps[k])) <= 4 * sqrt(COUNTED * ps[k] * (1 - ps[k])));
                assert_true(!shared || due == c.passes[0]);
                all += (uint64_t)(BATCH * due);
            }
            for (int r = 0; r < WORKERS; r++) {
                assert_int_equal(c.figures[r].samples, all);
                assert_int_equal(c.figures[r].steps, COUNTED);
            }
            assert_true(shared || c.passes[0] != c.passes[1] || c.passes[1] != c.passes[2]);
        }
}

/* Bytes and messages of every pair: as where no worker mixes, which is local-sgd's. */
static void a_mixing_step_sends_nothing(void **state)
{
    (void)state;
    for (int n = 2; n <= 5; n++) {
        trial none = trial_of("palsgd(mix_prob=0,period=4,warmup=0)", "sgd(lr=0.1)", 14),
              some = trial_of("palsgd(mix_prob=0.6,period=4,warmup=0)", "sgd(lr=0.1)", 14),
              base = trial_of("local-sgd(period=4,outer=sgd(lr=0.7,momentum=0.9,nesterov=true))", "sgd(lr=0.1)", 14);
        trial_run(&none, n);
        trial_run(&some, n);
        trial_run(&base, n);
        for (int r = 0; r < n; r++) {
            for (int to = 0; to < n; to++) {
                assert_int_equal(some.bytes[r][to], none.bytes[r][to]);
                assert_int_equal(some.messages[r][to], none.messages[r][to]);
            }
            assert_int_equal(some.figures[r].bytes_sent, base.figures[r].bytes_sent);
            assert_int_equal(some.figures[r].messages_sent, base.figures[r].messages_sent);
        }
        trial_drop(&none);
        trial_drop(&some);
        trial_drop(&base);
    }
}

/* |x - b|^2 / 2 with noise of the worker and step. */
static uint64_t noise = 5;
static float noisy(int rank, uint64_t step, size_t i, float x)
{
    return trial_quadratic(0, step, i, x) + (float)tutti_normal((tutti_rng){ noise, (uint64_t)rank, step }, i);
}

/* Each mixing step goes half of the way here. At one mix_rate a step's pull is the same in
   expectation whatever p is: the next test. */
static void models_drift_less_the_more_steps_mix(void **state)
{
    static const char *const ps[] = { "0", "0.1,mix_rate=0.5", "0.3,mix_rate=1.5", "0.6,mix_rate=3" };
    double last = INFINITY;

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(ps); k++) {
        char method[100];
        double drift = 0;
        trial t;
        snprintf(method, sizeof method, "palsgd(mix_prob=%s,warmup=0,period=8,outer=none)", ps[k]);
        t = trial_of(method, "sgd(lr=0.1)", 16);
        t.gradient = noisy;
        trial_run(&t, 8);
        for (int r = 0; r < 8; r++)
            drift += trial_metric(&t, "drift", r) / 8;
        assert_true(drift < last && drift > 0);
        last = drift;
        trial_drop(&t);
    }
}

/* Of (x_k - x)^2 before the first meeting, all elements: by the moments of a drawn step, with
   d = x_k - x, a the longer rate and c the pull:
     with probability p      d <- (1 - c) d
     else                    d <- d - a (d + x - b + noise) */
static double expected_drift(const trial *t, int steps, double lr, double eta, double p)
{
    const double a = lr / (1 - p), c = p > 0 ? lr * eta / p : 0;
    double sum = 0;

    for (size_t i = 0; i < trial_size(t); i++) {
        const double from = (double)trial_quadratic(0, 0, i, trial_initial_value(i));
        double mean = 0, square = 0;
        for (int s = 0; s < steps; s++) {
            square = p * (1 - c) * (1 - c) * square + (1 - p) * (1 - a) * (1 - a) * square +
                     (1 - p) * (a * a * (from * from + 1) - 2 * (1 - a) * a * from * mean);
            mean = (1 - p) * ((1 - a) * mean - a * from) + p * (1 - c) * mean;
        }
        sum += square;
    }
    return sum;
}

/* At one mix_rate any p > 0 drifts less than p = 0. Between them there is no order: a small p
   pulls far, a great one makes the gradients between, and their noise, longer. */
static void drift_at_a_fixed_mixing_rate_matches_the_prediction(void **state)
{
    enum { STEPS = 8, SEEDS = 6 };
    static const double ps[] = { 0, 0.1, 0.5 };
    double none = 0;

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(ps); k++) {
        char method[100];
        double sum = 0, squares = 0, mean;
        trial t = trial_of(method, "sgd(lr=0.1)", STEPS);
        snprintf(method, sizeof method, "palsgd(mix_prob=%g%s,warmup=0,period=8,outer=none)", ps[k],
                 ps[k] > 0 ? ",mix_rate=1" : "");
        t.gradient = noisy;
        for (noise = 1; noise <= SEEDS; noise++) {
            t.options.seed = noise;
            trial_run(&t, WORKERS * 2);
            for (int r = 0; r < WORKERS * 2; r++) {
                const double drift = pow(trial_metric(&t, "drift", r), 2);
                sum += drift;
                squares += drift * drift;
            }
        }
        mean = sum / (SEEDS * WORKERS * 2);
        assert_true(fabs(mean - expected_drift(&t, STEPS, 0.1, 1, ps[k])) <=
                    4 * sqrt((squares / (SEEDS * WORKERS * 2) - mean * mean) / (SEEDS * WORKERS * 2)));
        none = k == 0 ? mean : none;
        assert_true(k == 0 || mean < none);
        trial_drop(&t);
    }
    noise = 5;
}

/* The figure is |x_k - x| before a meeting, the mean of them. */
static void reported_drift_matches_the_models(void **state)
{
    trial t = trial_of("palsgd(mix_prob=0.3,warmup=0,period=1,outer=none,coin=independent)", "sgd(lr=0.1)", 1);

    (void)state;
    t.gradient = trial_constant;
    t.options.seed = 3;
    trial_run(&t, 4);
    for (int r = 0; r < 4; r++) {
        double due = 0;
        for (size_t i = 0; i < trial_size(&t) && !mixes(3, r, 0, 0.3, false); i++)
            due += pow(0.1 / 0.7 * (double)trial_constant(r, 0, i, 0), 2);
        assert_true(fabs(trial_metric(&t, "drift", r) - sqrt(due)) <= 1e-5 * sqrt(due));
    }
    trial_drop(&t);
}

/* ---- samples ---- */

enum { SET = 100, EPOCHS = 3, ROOM = EPOCHS * SET + 64 };
typedef struct taken {
    const char *method;
    int n_passes[WORKERS], steps[WORKERS];
    uint64_t at[WORKERS][ROOM];          /* epoch x SET + position */
    int n[WORKERS];
    tutti_figures figures[WORKERS];
} taken;

static tutti_status take(tutti_world *world, void *arg, tutti_error *err)
{
    const tutti_param param = { .name = "w", .dims = 1, .dim = { 8 } };
    taken *t = arg;
    const tutti_engine_options options = {
        .method = t->method, .optimizer = "sgd(lr=0.01)", .batch = 3, .accumulate = 2, .seed = 4, .data_samples = SET
    };
    tutti_engine *e;
    const int rank = tutti_world_rank(world);
    bool more = true;
    tutti_status status = tutti_engine_open(&e, world, &param, 1, &options, err);

    while (status == TUTTI_OK && (status = tutti_engine_more_epochs(e, EPOCHS, &more, err)) == TUTTI_OK && more) {
        tutti_pass p;
        while ((status = tutti_engine_pass_begin(e, &p, err)) == TUTTI_OK) {
            for (int64_t i = 0; i < p.samples && t->n[rank] < ROOM; i++)
                t->at[rank][t->n[rank]++] = p.epoch * SET + p.position + (uint64_t)i;
            memset(tutti_engine_gradient(e, 0), 0, 8 * sizeof(float));
            if ((status = tutti_engine_grad_ready(e, 0, err)) != TUTTI_OK ||
                (status = tutti_engine_pass_end(e, 0, err)) != TUTTI_OK)
                break;
        }
        if (status == TUTTI_CLOSED)
            status = tutti_engine_step(e, err);
        t->steps[rank]++;
    }
    if (status == TUTTI_OK)
        status = tutti_engine_finish(e, err);
    if (status == TUTTI_OK)
        tutti_engine_figures(e, &t->figures[rank]);
    tutti_engine_close(e);
    return status;
}

/* A mixing step takes no samples: a run by epochs has each sample once an epoch, in more
   steps. */
static void every_sample_of_an_epoch_is_taken_once(void **state)
{
    static const char *const methods[] = {
        "palsgd(mix_prob=0.4,warmup=0,period=5)", "palsgd(mix_prob=0.4,warmup=3,period=5,coin=shared)",
        "palsgd(mix_prob=0,warmup=2,period=5)", "palsgd(form=elastic,period=5)",
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(methods); k++)
        for (int n = 1; n <= WORKERS; n++) {
            static taken t;
            int seen[EPOCHS * SET] = { 0 };
            tutti_error err;
            t = (taken){ .method = methods[k] };
            if (tutti_world_run("shm", n, take, &t, &err) != TUTTI_OK)
                fail_msg("%s: %s", methods[k], err.text);
            for (int r = 0; r < n; r++) {
                for (int i = 0; i < t.n[r]; i++) {
                    assert_true(t.at[r][i] < EPOCHS * SET);
                    seen[t.at[r][i]]++;
                }
                assert_int_equal(t.steps[r], t.steps[0]);
                assert_int_equal(t.figures[r].steps, t.steps[0]);
                assert_int_equal(t.figures[r].samples, EPOCHS * SET);
            }
            for (int i = 0; i < EPOCHS * SET; i++)
                assert_int_equal(seen[i], 1);
            assert_true((t.steps[0] > EPOCHS * ((SET + 6 * n - 1) / (6 * n))) == (k < 2));
        }
}

/* ---- refusals ---- */

static void overshooting_mix_rate_is_rejected_with_the_largest_allowed(void **state)
{
    static const struct { const char *method, *optimizer, *schedule, *sentence; } cases[] = {
        { "palsgd(mix_prob=0.1,mix_rate=1.5)", "sgd(lr=0.1)", "constant",
          "method 'palsgd': at the learning rate 0.1 with mix_rate=1.5 over mix_prob a model would be drawn 1.5 times "
          "the way to the global one, and beyond 1 it overshoots; give mix_rate at most 1, or a lower learning rate, "
          "or a larger mix_prob" },
        { "palsgd(mix_prob=0.1,mix_rate=0.5)", "sgd(lr=0.7)", "constant", "give mix_rate at most 0.142857, or" },
        { "palsgd(mix_prob=0.2,mix_rate=0.5)", "sgd(lr=0.6)", "cosine", "give mix_rate at most 0.333333, or" },
        { "palsgd(mix_prob=0.2,mix_rate=0.5)", "sgd(lr=0.6)", "cosine(warmup=2)", "give mix_rate at most" },
        { "palsgd(form=elastic,mix_rate=5)", "sgd(lr=0.4)", "constant",
          "at the learning rate 0.4 with mix_rate=5 a model would be drawn 2 times the way to the global one, and "
          "beyond 1 it overshoots; give mix_rate at most 2.5, or a lower learning rate" },
        { "palsgd(mix_prob=1)", "sgd(lr=0.1)", "constant", "'mix_prob' is 1; it must be from 0 to 0.999" },
        { "palsgd(period=0)", "sgd(lr=0.1)", "constant", "'period' is 0; it must be from 1" },
        { "palsgd(outer=sgdd(lr=1))", "sgd(lr=0.1)", "constant", "method 'palsgd': outer: " },
        { "palsgd(form=elastic,mix_prob=0.2)", "sgd(lr=0.1)", "constant", "mix_prob" },
        { "palsgd(mix_prob=0,mix_rate=0.2)", "sgd(lr=0.1)", "constant", "mix_rate" },
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(cases); k++) {
        trial t = trial_of(cases[k].method, cases[k].optimizer, 4);
        tutti_error err;
        t.options.lr_schedule = cases[k].schedule;
        t.options.steps = 4;
        assert_int_equal(trial_try(&t, 2, &err), TUTTI_ERR_USAGE);
        if (strstr(err.text, cases[k].sentence) == NULL)
            fail_msg("%s: %s", cases[k].method, err.text);
        trial_drop(&t);
    }
}

/* The rate that the error sentence names is accepted, whatever the numbers. */
static void suggested_largest_mix_rate_is_accepted(void **state)
{
    static const double rates[] = { 0.7, 0.3, 0.06, 1.1, 0.0123 }, ps[] = { 0.1, 0.05, 0.33 };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(rates); k++)
        for (size_t j = 0; j < TUTTI_LENGTH(ps); j++) {
            char method[100], optimizer[40];
            double most = 0;
            trial t;
            tutti_error err;
            snprintf(optimizer, sizeof optimizer, "sgd(lr=%g)", rates[k]);
            snprintf(method, sizeof method, "palsgd(mix_prob=%g,mix_rate=99)", ps[j]);
            t = trial_of(method, optimizer, 1);
            assert_int_equal(trial_try(&t, 1, &err), TUTTI_ERR_USAGE);
            assert_int_equal(sscanf(strstr(err.text, "mix_rate at most"), "mix_rate at most %lf", &most), 1);
            assert_true(fabs(most * rates[k] / ps[j] - 1) < 1e-5);
            snprintf(method, sizeof method, "palsgd(mix_prob=%g,mix_rate=%.17g)", ps[j], most);
            trial_run(&t, 1);
            trial_drop(&t);
        }
}

/* ---- a client's own optimiser ---- */

enum { SOME = 20, RAISED = 10 };
typedef struct own {
    double lr, later;                    /* of the steps before RAISED, and from there on; -1: not set */
    int done[2];
    float x[2][8];
    bool said[2];                        /* that the rate is 0 */
    tutti_engine *e[2];
} own;

static tutti_status update_own(void *user, double factor, tutti_error *err)
{
    tutti_engine *e = *(tutti_engine **)user;

    (void)err;
    for (int i = 0; i < 8; i++)
        tutti_engine_values(e, 0)[i] -= (float)(0.1 * factor) * tutti_engine_gradient(e, 0)[i];
    return TUTTI_OK;
}

static tutti_status train_own(tutti_world *world, void *arg, tutti_error *err)
{
    const tutti_param param = { .name = "w", .dims = 1, .dim = { 8 } };
    own *o = arg;
    const int rank = tutti_world_rank(world);
    const tutti_engine_options options = {
        .method = "palsgd(mix_prob=0.4,mix_rate=2,warmup=0,period=7,outer=none)", .optimizer = "client", .batch = 2,
        .seed = 9, .update = update_own, .user = &o->e[rank]
    };
    const tutti_event_record *events;
    tutti_pass p;
    tutti_status status = tutti_engine_open(&o->e[rank], world, &param, 1, &options, err);
    tutti_engine *e = o->e[rank];

    for (; o->done[rank] < SOME && status == TUTTI_OK; o->done[rank]++) {
        const double lr = o->done[rank] < RAISED ? o->lr : o->later;
        if (lr >= 0 && (status = tutti_engine_lr(e, lr, err)) != TUTTI_OK)
            break;
        while ((status = tutti_engine_pass_begin(e, &p, err)) == TUTTI_OK) {
            for (int i = 0; i < 8; i++)
                tutti_engine_gradient(e, 0)[i] = tutti_engine_values(e, 0)[i] - (float)(i + rank);
            if ((status = tutti_engine_grad_ready(e, 0, err)) != TUTTI_OK ||
                (status = tutti_engine_pass_end(e, 0, err)) != TUTTI_OK)
                break;
        }
        if (status == TUTTI_CLOSED)
            status = tutti_engine_step(e, err);
        if (status != TUTTI_OK)
            break;
    }
    if (status == TUTTI_OK)
        status = tutti_engine_finish(e, err);
    if (status == TUTTI_OK) {
        memcpy(o->x[rank], tutti_engine_values(e, 0), sizeof o->x[rank]);
        for (int k = tutti_engine_events(e, &events) - 1; k >= 0; k--)
            o->said[rank] = o->said[rank] || strcmp(events[k].kind, "rate") == 0;
    }
    tutti_engine_close(e);
    return status;
}

/* 0.1 x 2 / 0.4 is a half, 0.25 x 2 / 0.4 beyond 1. A client's rate is known when it sets it. */
static void client_learning_rate_is_checked_in_each_step(void **state)
{
    own good = { .lr = 0.1, .later = 0.2 }, raised = { .lr = 0.1, .later = 0.25 }, untold = { .lr = -1, .later = -1 };
    trial t = trial_of("palsgd(mix_prob=0.4,mix_rate=2,warmup=0,period=7,outer=none)", "sgd(lr=0.25)", 2);
    tutti_error err;

    (void)state;
    assert_int_equal(tutti_world_run("shm", 2, train_own, &good, &err), TUTTI_OK);
    assert_memory_equal(good.x[0], good.x[1], sizeof good.x[0]);
    assert_false(good.said[0] || good.said[1]);
    assert_int_equal(tutti_world_run("shm", 2, train_own, &raised, &err), TUTTI_ERR_USAGE);
    assert_non_null(strstr(err.text, "at the learning rate 0.25 of step 1"));
    assert_non_null(strstr(err.text, "give mix_rate at most 1.6, or"));
    assert_true(raised.done[0] >= RAISED || raised.done[1] >= RAISED);
    assert_int_equal(tutti_world_run("shm", 2, train_own, &untold, &err), TUTTI_OK);
    assert_true(untold.said[0] && untold.said[1]);
    assert_int_equal(trial_try(&t, 2, &err), TUTTI_ERR_USAGE); /* the engine's own rate is known at once */
    trial_drop(&t);
}

static void a_gradient_that_is_not_finite_is_found_in_a_gradient_step(void **state)
{
    (void)state;
    assert_false(mixes(0, 1, 3, 0.1, false));
    trial_not_finite("palsgd(warmup=0,period=4)", "sgd(lr=0.1)");
}

/* ---- what is reported ---- */

typedef struct told { const char *method; int said; } told;

static tutti_status open_and_hear(tutti_world *world, void *arg, tutti_error *err)
{
    const tutti_param param = { .name = "w", .dims = 1, .dim = { 8 } };
    told *t = arg;
    const tutti_engine_options options = { .method = t->method, .optimizer = "sgd(lr=0.01)", .batch = 2 };
    const tutti_event_record *events;
    tutti_engine *e;
    const tutti_status status = tutti_engine_open(&e, world, &param, 1, &options, err);

    for (int k = status == TUTTI_OK ? tutti_engine_events(e, &events) - 1 : -1;
         k >= 0 && tutti_world_rank(world) == 0; k--)
        t->said += strcmp(events[k].kind, "mixing") == 0 && strstr(events[k].text, "times the learning rate") != NULL;
    tutti_engine_close(e);
    return status;
}

static void large_effective_learning_rate_gives_a_warning(void **state)
{
    static const struct { const char *method; int said; } cases[] = {
        { "palsgd", 0 }, { "palsgd(mix_prob=0.5)", 0 }, { "palsgd(mix_prob=0.75)", 1 },
        { "palsgd(mix_prob=0.999,coin=independent)", 1 }, { "palsgd(form=elastic)", 0 },
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(cases); k++) {
        told t = { .method = cases[k].method };
        tutti_error err = { .text = "" };
        if (tutti_world_run("shm", 2, open_and_hear, &t, &err) != TUTTI_OK || t.said != cases[k].said)
            fail_msg("%s: said %d times; %s", t.method, t.said, err.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(large_effective_learning_rate_gives_a_warning),
        cmocka_unit_test(without_mixing_it_is_local_sgd_to_the_bit),
        cmocka_unit_test(a_warm_up_to_the_end_is_ddp_to_the_bit),
        cmocka_unit_test(gradient_steps_use_the_inner_optimiser_with_scaled_rate),
        cmocka_unit_test(full_mixing_step_copies_the_global_model_exactly),
        cmocka_unit_test(models_are_equal_only_after_global_averaging),
        cmocka_unit_test(expected_step_includes_the_pull_to_the_global_model),
        cmocka_unit_test(the_expectation_holds_over_several_steps),
        cmocka_unit_test(elastic_form_makes_the_expected_step_every_time),
        cmocka_unit_test(evaluations_are_binomial),
        cmocka_unit_test(a_mixing_step_sends_nothing),
        cmocka_unit_test(models_drift_less_the_more_steps_mix),
        cmocka_unit_test(drift_at_a_fixed_mixing_rate_matches_the_prediction),
        cmocka_unit_test(reported_drift_matches_the_models),
        cmocka_unit_test(every_sample_of_an_epoch_is_taken_once),
        cmocka_unit_test(overshooting_mix_rate_is_rejected_with_the_largest_allowed),
        cmocka_unit_test(suggested_largest_mix_rate_is_accepted),
        cmocka_unit_test(client_learning_rate_is_checked_in_each_step),
        cmocka_unit_test(a_gradient_that_is_not_finite_is_found_in_a_gradient_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
