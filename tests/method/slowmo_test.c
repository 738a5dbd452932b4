/* Goal: slowmo.md's invariants, on ranks that are threads: what it is with options at their ends,
   what slow momentum makes of displacements and rates, weights and what is in flight at a slow
   step, the optimiser's buffers, exact traffic, refusals. Method: bits of other methods, or of a
   base's row with an average behind it; else the rule, computed separately in double. Resuming in
   mid-round is in tests/engine/state_test.c. */
#include "trial.h"

#include "engine/engine_internal.h"
#include "state/plan.h"

static float by_step(int rank, uint64_t step, size_t i, float x)
{
    (void)x;
    return (float)((rank * 37 + (int)(i % 29) * 5 + (int)step * 11) % 32) / 8 - 2;
}

static void expect_same(const trial *a, const trial *b, int n, int steps)
{
    for (int r = 0; r < n; r++)
        for (int s = 0; s < steps; s++)
            if (!trial_same(a, a->x[r][s], b->x[r][s]))
                fail_msg("%s is not %s on %d: worker %d differs after step %d", a->method, b->method, n, r, s + 1);
}

/* ---- what it is with options at their ends ---- */

static void without_slow_momentum_it_is_local_sgd_bit_for_bit(void **state)
{
    static const struct { const char *slow, *local, *optimizer, *codec; } cases[] = {
        { "slowmo(period=3,alpha=1,beta=0)", "local-sgd(period=3)", "sgd(lr=0.1)" },
        { "slowmo(period=3,alpha=1,beta=0,buffers=maintain)", "local-sgd(period=3)", "sgd(lr=0.1,momentum=0.9)" },
        { "slowmo(period=2,alpha=1,beta=0)", "local-sgd(period=2)", "adamw(lr=0.01)" },
        { "slowmo(period=1,alpha=1,beta=0)", "local-sgd(period=1)", "adam(lr=0.01)" },
        { "slowmo(period=4,alpha=1,beta=0,local_freq=2)", "local-sgd(period=2)", "sgd(lr=0.1)" },
        { "slowmo(period=3,alpha=1,beta=0)", "local-sgd(period=3)", "sgd(lr=0.1)", "ef(topk(ratio=0.3))" },
        { "slowmo(period=2,alpha=1,beta=0)", "local-sgd(period=2)", "adam(lr=0.01)", "fp16" },
    };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(cases); c++)
        for (int n = 1; n <= 4; n++) {
            trial a = trial_of(cases[c].slow, cases[c].optimizer, 8),
                  b = trial_of(cases[c].local, cases[c].optimizer, 8);
            a.options.codec = b.options.codec = cases[c].codec;
            a.options.lr_schedule = b.options.lr_schedule = "cosine";
            a.options.steps = b.options.steps = 8;
            trial_run(&a, n);
            trial_run(&b, n);
            expect_same(&a, &b, n, 9);
            trial_drop(&a);
            trial_drop(&b);
        }
}

/* A base method's row with the mean of all models after every third step. */
static const tutti_method_ops *base_row;
static tutti_status base_and_mean(tutti_method *m, tutti_error *err)
{
    TUTTI_TRY(base_row->step(m, err));
    return (m->step + 1) % 3 == 0 && m->workers > 1 ? tutti_average(m, m->x, err) : TUTTI_OK;
}

/* The weights of these graphs stay 1. */
static void without_slow_momentum_slowmo_matches_base_plus_averaging(void **state)
{
    static const struct { const char *base, *options; } cases[] = {
        { "d-psgd", "graph=ring" }, { "d-psgd", "graph=one-peer-exponential,order=atc" },
        { "d-psgd", "graph=exponential,order=awc" }, { "sgp", "graph=one-peer-exponential" },
        { "sgp", "graph=directed-ring" },
    };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(cases); c++)
        for (int n = 1; n <= 5; n += 2) {
            tutti_method_ops row = *tutti_method_find(cases[c].base);
            const tutti_method_ops *const rows[] = { &row, NULL };
            char base[100], slow[160];
            trial a, b;
            base_row = tutti_method_find(cases[c].base);
            row.step = base_and_mean;
            snprintf(base, sizeof base, "%s(%s)", cases[c].base, cases[c].options);
            snprintf(slow, sizeof slow, "slowmo(base=%s,%s,period=3,alpha=1,beta=0,buffers=maintain)", cases[c].base,
                     cases[c].options);
            a = trial_of(slow, "sgd(lr=0.1,momentum=0.9)", 8);
            b = trial_of(base, "sgd(lr=0.1,momentum=0.9)", 8);
            b.methods = rows;
            trial_run(&a, n);
            trial_run(&b, n);
            expect_same(&a, &b, n, 9);
            trial_drop(&a);
            trial_drop(&b);
        }
}

/* Large-batch SGD with heavy-ball momentum beta: to the bit where arithmetic is exact. */
static void period_one_over_plain_sgd_is_ddp_with_momentum(void **state)
{
    (void)state;
    for (int n = 1; n <= 5; n++)
        for (int exact = 0; exact < 2; exact++) {
            trial a = trial_of("slowmo(period=1,beta=0.5)", "sgd(lr=0.25)", 8),
                  b = trial_of("ddp", "sgd(lr=0.25,momentum=0.5)", 8);
            if (exact)
                a.gradient = b.gradient = trial_constant;
            trial_run(&a, n);
            trial_run(&b, n);
            for (int s = 0; s < 8; s++)
                for (int r = 0; r < n; r++) {
                    assert_true(trial_apart(&a, a.x[r][s], b.x[r][s]) < 4e-6);
                    assert_true(!exact || (n & (n - 1)) != 0 || trial_same(&a, a.x[r][s], b.x[r][s]));
                }
            trial_drop(&a);
            trial_drop(&b);
        }
}

/* To rounding: u is in units of the gradient here, of the model there. */
static void constant_rate_slowmo_matches_local_sgd_with_outer_momentum(void **state)
{
    static const struct { double alpha, beta; int period; const char *optimizer; } cases[] = {
        { 1, 0.5, 3, "sgd(lr=0.1)" }, { 0.7, 0.9, 2, "sgd(lr=0.03,momentum=0.9)" }, { 1.25, 0.3, 4, "adamw(lr=0.01)" },
        { 0.5, 0.8, 1, "sgd(lr=0.1)" },
    };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(cases); c++)
        for (int n = 1; n <= 5; n += 2) {
            char slow[120], outer[120];
            trial a = trial_of(slow, cases[c].optimizer, 14), b = trial_of(outer, cases[c].optimizer, 14), none;
            snprintf(slow, sizeof slow, "slowmo(period=%d,alpha=%g,beta=%g,buffers=maintain)", cases[c].period,
                     cases[c].alpha, cases[c].beta);
            snprintf(outer, sizeof outer, "local-sgd(period=%d,outer=sgd(lr=%g,momentum=%g))", cases[c].period,
                     cases[c].alpha, cases[c].beta);
            none = a;
            none.method = "slowmo(period=3,alpha=1,beta=0,buffers=maintain)";
            trial_run(&a, n);
            trial_run(&b, n);
            trial_run(&none, n);
            for (int s = 0; s <= 14; s++)
                for (int r = 0; r < n; r++)
                    if (!(trial_apart(&a, a.x[r][s], b.x[r][s]) < 1e-5))
                        fail_msg("%s and %s with %s on %d: worker %d is %g apart after step %d", slow, outer,
                                 cases[c].optimizer, n, r, trial_apart(&a, a.x[r][s], b.x[r][s]), s + 1);
            assert_true(trial_apart(&a, a.x[0][14], none.x[0][14]) > 1e-3); /* momentum is seen at all */
            trial_drop(&a);
            trial_drop(&b);
            trial_drop(&none);
        }
}

static void one_worker_without_momentum_is_lookahead(void **state)
{
    trial a = trial_of("slowmo(period=2,alpha=0.5,beta=0)", "sgd(lr=0.25)", 8),
          b = trial_of("slowmo(period=2,alpha=0.5,beta=0)", "sgd(lr=0.25)", 8);
    static const char *const optimizers[] = { "sgd(lr=0.1)", "adamw(lr=0.01)" };

    (void)state;
    a.gradient = by_step;
    trial_run(&a, 1);
    trial_run(&b, 1);
    for (size_t i = 0; i < trial_size(&a); i++) {
        float x = trial_initial_value(i), slow = x, y = x, slow_y = x;
        for (int s = 0; s < 8; s++) {
            x -= 0.25f * by_step(0, (uint64_t)s, i, 0);
            y -= 0.25f * trial_quadratic(0, 0, i, y);
            if (s % 2 == 1) {
                x = slow = slow + 0.5f * (x - slow);
                y = slow_y = slow_y + 0.5f * (y - slow_y);
            }
            assert_true(x == a.x[0][s][i]); /* exact arithmetic, so the same bits */
            assert_true(fabsf(y - b.x[0][s][i]) < 2e-6f);
        }
    }
    trial_drop(&a);
    trial_drop(&b);
    for (size_t k = 0; k < TUTTI_LENGTH(optimizers); k++) {
        a = trial_of("slowmo(period=2,alpha=1,beta=0)", optimizers[k], 7);
        b = trial_of("single", optimizers[k], 7);
        trial_run(&a, 1);
        trial_run(&b, 1);
        expect_same(&a, &b, 1, 8);
        trial_drop(&a);
        trial_drop(&b);
    }
}

/* ---- momentum and rates ---- */

static const char *const bases[] = {
    "slowmo(period=3,alpha=0.75,beta=0.5)",
    "slowmo(period=4,alpha=1,beta=0.7,local_freq=3)",
    "slowmo(base=d-psgd,period=3,alpha=0.75,beta=0.5)",
    "slowmo(base=d-psgd,graph=exponential,order=atc,period=3)",
    "slowmo(base=sgp,period=4)",
    "slowmo(base=sgp,overlap=1,period=4,beta=0.25)",
    "slowmo(base=sgp,overlap=2,period=3)",
    "slowmo(base=sgp,graph=star(weights=push),period=3)",
    "slowmo(base=sgp,graph=grid(weights=push),overlap=2,period=5,alpha=1.25)",
};

static int period_of(const char *method)
{
    return atoi(strstr(method, "period=") + 7);
}

/* The bits of all states that are declared as the same on all, after every step. */
enum { SAME_STATES = 16 };
static uint64_t same_bits[TRIAL_RANKS][TRIAL_STEPS][SAME_STATES];
static int with_momentum;
static tutti_status step_and_look(tutti_method *m, tutti_error *err)
{
    const tutti_engine *e = m->engine;
    int same = 0;

    TUTTI_TRY(base_row->step(m, err));
    for (size_t k = 0; k < tutti_plan_count(e->plan) && same < SAME_STATES; k++) {
        void *memory;
        const tutti_state *s = tutti_plan_state(e->plan, k, &memory);
        if (s->keep != TUTTI_SAME)
            continue;
        same_bits[m->rank][m->step][same++] = tutti_hash(memory, s->count * tutti_dtype_bytes(s->dtype));
        if (m->rank == 0 && strcmp(s->name, "slowmo.momentum") == 0)
            with_momentum += tutti_norm2(m->device, s->count, memory) > 0;
    }
    return TUTTI_OK;
}

static void slow_momentum_and_anchor_are_equal_on_all_workers(void **state)
{
    static const char *const codecs[] = { NULL, "ef(topk(ratio=0.3))" };
    tutti_method_ops row = *tutti_method_find("slowmo");
    const tutti_method_ops *const rows[] = { &row, NULL };

    (void)state;
    base_row = tutti_method_find("slowmo");
    row.step = step_and_look;
    for (size_t b = 0; b < TUTTI_LENGTH(bases); b++)
        for (size_t c = 0; c < (b == 0 ? TUTTI_LENGTH(codecs) : 1); c++)
            for (int n = 2; n <= 5; n += 3) {
                trial t = trial_of(bases[b], "sgd(lr=0.1,momentum=0.9)", 14);
                t.methods = rows;
                t.gradient = by_step;
                t.options.codec = codecs[c];
                t.options.lr_schedule = "cosine";
                t.options.steps = 14;
                memset(same_bits, 0, sizeof same_bits);
                with_momentum = 0;
                trial_run(&t, n);
                assert_true(with_momentum >= 14 - period_of(bases[b])); /* from the first slow step on */
                for (int s = 0; s < 14; s++)
                    for (int r = 1; r < n; r++)
                        if (memcmp(same_bits[r][s], same_bits[0][s], sizeof same_bits[0][s]) != 0)
                            fail_msg("%s on %d: after step %d worker %d has another momentum or anchor than worker 0",
                                     bases[b], n, s + 1, r);
                trial_drop(&t);
            }
}

/* Gradients c_r whatever the model: the mean moves by gamma sum c / n a step, with any base and
   whatever is in flight, so a round moves by Delta = gamma H mean(c). Nothing of it is lost or
   counted twice at a slow step; u -> Delta / (gamma (1 - beta)). */
static void constant_displacement_accumulates_in_slow_momentum(void **state)
{
    static const int sizes[] = { 1, 2, 3, 5, 8 };

    (void)state;
    for (size_t b = 0; b < TUTTI_LENGTH(bases); b++)
        for (size_t z = b % 2; z < TUTTI_LENGTH(sizes); z += 2) { /* each base on several, each of them on several */
            const int n = sizes[z], period = period_of(bases[b]);
            const char *beta_at = strstr(bases[b], "beta="), *alpha_at = strstr(bases[b], "alpha=");
            const double beta = beta_at != NULL ? atof(beta_at + 5) : 0.5,
                         alpha = alpha_at != NULL ? atof(alpha_at + 6) : 1;
            trial t = trial_of(bases[b], "sgd(lr=0.125)", 15);
            double power = 0, norm = 0;
            t.gradient = trial_constant;
            trial_run(&t, n);
            for (size_t i = 0; i < trial_size(&t); i++) {
                double x = trial_initial_value(i), u = 0, mean = 0;
                for (int r = 0; r < n; r++)
                    mean += (double)trial_constant(r, 0, i, 0) / n;
                for (int s = 1; s <= 15 / period * period; s++) {
                    if (s % period != 0)
                        continue;
                    u = beta * u + period * mean;
                    x -= alpha * 0.125 * u;
                    for (int r = 0; r < n; r++)
                        if (!(fabs((double)t.x[r][s - 1][i] - x) < 2e-5))
                            fail_msg("%s on %d, step %d, worker %d, element %zu: %.9g, expected %.9g", bases[b], n, s,
                                     r, i, (double)t.x[r][s - 1][i], x);
                }
                norm += mean * mean * period * period;
            }
            for (int k = 0; k < 15 / period; k++)
                power = beta * power + 1;
            assert_true(fabs(trial_metric(&t, "slow_gradient", -1) / sqrt(norm) - 1) < 1e-4);
            assert_true(fabs(trial_metric(&t, "slow_momentum", -1) / (power * sqrt(norm)) - 1) < 1e-4);
            trial_drop(&t);
        }
}

static void models_are_equal_after_each_slow_step(void **state)
{
    static const int sizes[] = { 2, 3, 4, 7 };

    (void)state;
    for (size_t b = 0; b < TUTTI_LENGTH(bases); b++)
        for (size_t z = b % 2; z < TUTTI_LENGTH(sizes); z += 2) {
            const int n = sizes[z], period = period_of(bases[b]);
            trial t = trial_of(bases[b], "sgd(lr=0.1,momentum=0.9)", 10), shown = t;
            shown.show = true; /* looking at the agreed model disturbs nothing */
            trial_run(&t, n);
            trial_run(&shown, n);
            expect_same(&t, &shown, n, 11);
            for (int s = 1; s <= 10; s++)
                for (int r = 1; r < n; r++) {
                    const bool equal = trial_same(&t, t.x[0][s - 1], t.x[r][s - 1]);
                    if (strstr(bases[b], "local_freq") != NULL ? s % 4 % 3 == 0 && !equal : s % period == 0 && !equal)
                        fail_msg("%s on %d: workers 0 and %d differ after step %d", bases[b], n, r, s);
                    assert_false(equal && s % period == 1 && b == 0); /* by gossip they may be, too */
                }
            for (int r = 1; r < n; r++)
                assert_true(trial_same(&t, t.x[0][10], t.x[r][10])); /* agreed at the end */
            trial_drop(&t);
            trial_drop(&shown);
        }
}

/* On graphs that are irregular too, and with what is in flight. */
static void push_sum_average_matches_the_final_model_of_sgp(void **state)
{
    static const char *const options[] = {
        "graph=one-peer-exponential,overlap=0", "graph=star(weights=push),overlap=0",
        "graph=star(weights=push),overlap=2", "graph=grid(weights=push),overlap=3", "graph=directed-ring,overlap=1",
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(options); k++)
        for (int n = 2; n <= 5; n++) {
            char slow[120], base[100];
            trial a, b;
            snprintf(slow, sizeof slow, "slowmo(base=sgp,%s,period=5,alpha=1,beta=0)", options[k]);
            snprintf(base, sizeof base, "sgp(%s)", options[k]);
            a = trial_of(slow, "sgd(lr=0.1)", 5);
            b = trial_of(base, "sgd(lr=0.1)", 5);
            trial_run(&a, n);
            trial_run(&b, n);
            for (int r = 0; r < n; r++) {
                for (int s = 0; s < 4; s++)
                    assert_true(trial_same(&a, a.x[r][s], b.x[r][s]));
                assert_true(trial_same(&a, a.x[r][4], b.x[r][5]));
                assert_true(a.end_bytes[r] == 0);
            }
            trial_drop(&a);
            trial_drop(&b);
        }
}

/* gamma -> c gamma at a round's border leaves u as it is, to the bit. */
static void slow_momentum_is_independent_of_the_learning_rate(void **state)
{
    trial a = trial_of("slowmo(period=2)", "sgd(lr=0.25)", 12), b = a;

    (void)state;
    a.gradient = b.gradient = trial_constant;
    b.options.lr_schedule = "step(every=4,gamma=0.5)";
    b.options.steps = 12;
    trial_run(&a, 2);
    trial_run(&b, 2);
    assert_true(trial_metric(&a, "slow_momentum", -1) > 0);
    assert_true(trial_metric(&a, "slow_momentum", -1) == trial_metric(&b, "slow_momentum", -1));
    assert_true(trial_metric(&a, "slow_gradient", -1) == trial_metric(&b, "slow_gradient", -1));
    assert_false(trial_same(&a, a.x[0][11], b.x[0][11]));
    trial_drop(&a);
    trial_drop(&b);
}

/* The optimiser of a client, with a rate of its own in each step, which may be 0. */
static double rates[TRIAL_STEPS];
static tutti_status plain_sgd(void *user, double factor, tutti_error *err)
{
    const trial_seat *seat = user;
    const tutti_method *m = tutti_engine_method(seat->e);
    const double lr = rates[m->step];

    TUTTI_TRY(tutti_engine_lr(seat->e, lr, err));
    for (int k = 0; k < TRIAL_TENSORS; k++) {
        const size_t first = m->layout->tensor[k].first;
        for (size_t i = 0; i < m->layout->tensor[k].count; i++)
            m->x[first + i] -= (float)(lr * factor) * m->g[first + i];
    }
    return TUTTI_OK;
}

static void round_uses_the_learning_rate_of_its_first_step(void **state)
{
    static const double given[][12] = {
        { 0.25, 0.25, 0.25, 0.125, 0.125, 0.125, 0.25, 0.25, 0.25, 0.25, 0.25, 0.25 },
        { 0.25, 0.125, 0.5, 0.125, 0.25, 0.0625, 0.5, 0.25, 0.125, 0.25, 0, 0 },
        { 0, 0.125, 0.25, 0.25, 0.25, 0.25, 0, 0, 0, 0.25, 0.125, 0.125 }, /* warm-up; all of a round 0 */
    };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(given); c++)
        for (int n = 1; n <= 4; n++) {
            trial t = trial_of("slowmo(period=3,alpha=0.75,beta=0.5)", "client", 12);
            memcpy(rates, given[c], sizeof given[c]);
            t.options.update = plain_sgd;
            t.gradient = by_step;
            trial_run(&t, n);
            for (size_t i = 0; i < trial_size(&t); i++) {
                double x = trial_initial_value(i), anchor = x, u = 0;
                for (int s = 0; s < 12; s++) {
                    for (int r = 0; r < n; r++)
                        x -= rates[s] * (double)by_step(r, (uint64_t)s, i, 0) / n;
                    if (s % 3 != 2)
                        continue;
                    if (rates[s - 2] > 0) {
                        u = 0.5 * u + (anchor - x) / rates[s - 2];
                        anchor -= 0.75 * rates[s - 2] * u;
                    } else
                        anchor -= 0.75 * (anchor - x);
                    x = anchor;
                    for (int r = 0; r < n; r++)
                        if (!(fabs((double)t.x[r][s][i] - x) < 1e-5))
                            fail_msg("rates %zu, %d workers, step %d, element %zu: %.9g, expected %.9g", c, n, s, i,
                                     (double)t.x[r][s][i], x);
                }
            }
            trial_drop(&t);
        }
}

/* A worker that skips a step has made fewer updates, so its schedule is behind. u is not. */
static void workers_agree_after_one_skipped_a_step(void **state)
{
    trial t = trial_of("slowmo(period=2)", "sgd(lr=0.1)", 12);

    (void)state;
    t.gradient = trial_bad;
    t.options.nonfinite = TUTTI_NONFINITE_SKIP;
    t.options.lr_schedule = "cosine";
    t.options.steps = 12;
    trial_run(&t, 4);
    trial_left_out_by_one(&t);
    for (int s = 1; s < 12; s += 2)
        for (int r = 1; r < 4; r++)
            assert_true(trial_same(&t, t.x[0][s], t.x[r][s]));
    trial_drop(&t);
}

static void a_gradient_that_is_not_finite_is_found_with_every_base(void **state)
{
    (void)state;
    trial_not_finite("slowmo(period=2)", "sgd(lr=0.1,momentum=0.9)");
    trial_not_finite("slowmo(base=d-psgd,period=2)", "adam(lr=0.01)");
    trial_not_finite("slowmo(base=sgp,overlap=1,period=2)", "sgd(lr=0.1)");
}

/* ---- buffers ---- */

static float by_step_of_the_round(int rank, uint64_t step, size_t i, float x)
{
    return by_step(rank, step % 3, i, x);
}

/* One worker, gradients that do not depend on the model and are the same in all rounds. A reset
   optimiser does in each round what it did in the first. */
static void reset_makes_the_optimiser_as_new(void **state)
{
    static const char *const optimizers[] = { "sgd(lr=0.125,momentum=0.9,dampening=0.5)", "adam(lr=0.01)" };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(optimizers); k++)
        for (int reset = 0; reset < 2; reset++) {
            trial t = trial_of(reset ? "slowmo(period=3,alpha=1,beta=0,buffers=reset)"
                                     : "slowmo(period=3,alpha=1,beta=0,buffers=maintain)",
                               optimizers[k], 9);
            double off = 0;
            t.gradient = by_step_of_the_round;
            trial_run(&t, 1);
            for (size_t i = 0; i < trial_size(&t); i++)
                for (int s = 0; s < 3; s++) {
                    const double first =
                        (double)t.x[0][s][i] - (s > 0 ? (double)t.x[0][s - 1][i] : (double)trial_initial_value(i));
                    for (int round = 1; round < 3; round++)
                        off = fmax(off, fabs((double)t.x[0][3 * round + s][i] - (double)t.x[0][3 * round + s - 1][i] -
                                             first));
                }
            if (reset ? off > 2e-6 : off < 1e-3)
                fail_msg("%s, %s: rounds are %g apart", t.method, optimizers[k], off);
            trial_drop(&t);
        }
}

/* Different gradients in the first round, and equal ones from then on. */
static float unlike_at_first(int rank, uint64_t step, size_t i, float x)
{
    return by_step(step < 2 ? rank : 0, step, i, x);
}

/* 1: buffers are equal after the first round. */
static bool stay_equal(const char *method, const char *optimizer, int n)
{
    trial t = trial_of(method, optimizer, 4);
    bool equal = true;

    t.gradient = unlike_at_first;
    trial_run(&t, n);
    for (int r = 1; r < n; r++)
        equal = equal && trial_same(&t, t.x[0][2], t.x[r][2]) && trial_same(&t, t.x[0][1], t.x[r][1]);
    trial_drop(&t);
    return equal;
}

static void average_equalises_buffers_and_maintain_keeps_them(void **state)
{
    static const char *const optimizers[] = { "sgd(lr=0.125,momentum=0.9)", "adamw(lr=0.01)" };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(optimizers); k++)
        for (int n = 2; n <= 4; n++) {
            assert_true(stay_equal("slowmo(period=2,buffers=average)", optimizers[k], n));
            assert_true(stay_equal("slowmo(period=2,buffers=reset)", optimizers[k], n));
            assert_false(stay_equal("slowmo(period=2,buffers=maintain)", optimizers[k], n));
            assert_true(stay_equal("slowmo(period=2)", optimizers[k], n) == (k == 0)); /* auto */
        }
    for (int n = 2; n <= 4; n += 2) { /* it is the mean: dyadic, so exact */
        trial t = trial_of("slowmo(period=2,alpha=1,beta=0,buffers=average)", "sgd(lr=0.25,momentum=0.5)", 3);
        t.gradient = trial_constant;
        trial_run(&t, n);
        for (size_t i = 0; i < trial_size(&t); i++) {
            float mean = 0;
            for (int r = 0; r < n; r++)
                mean += 1.5f * trial_constant(r, 0, i, 0) / (float)n;
            for (int r = 0; r < n; r++)
                assert_true(t.x[r][2][i] == t.x[r][1][i] - 0.25f * (0.5f * mean + trial_constant(r, 0, i, 0)));
        }
        trial_drop(&t);
    }
}

/* ---- traffic, codecs, refusals ---- */

/* A run of `method` over that many steps. */
static trial sent(const char *method, const char *optimizer, int steps, int n)
{
    trial t = trial_of(method, optimizer, steps);

    t.options.lane = -1;
    trial_run(&t, n);
    return t;
}

/* What `all` sent is what `base` did without its last all-reduce, plus `rounds` all-reduces. */
static void expect_sent(const trial *all, const trial *base, const trial *one, int rounds, int n)
{
    for (int r = 0; r < n; r++)
        for (int to = 0; to < n; to++)
            if (all->bytes[r][to] + one->bytes[r][to] !=
                    base->bytes[r][to] + (uint64_t)rounds * one->bytes[r][to] ||
                all->messages[r][to] + one->messages[r][to] !=
                    base->messages[r][to] + (uint64_t)rounds * one->messages[r][to])
                fail_msg("%s on %d: %d sent %d %llu bytes in %llu messages", all->method, n, r, to,
                         (unsigned long long)all->bytes[r][to], (unsigned long long)all->messages[r][to]);
}

static void traffic_is_the_base_plus_one_average_per_round(void **state)
{
    static const struct { const char *slow, *base, *optimizer; int more; } cases[] = {
        { "slowmo(period=4)", NULL, "sgd(lr=0.1)" },
        { "slowmo(period=4,buffers=average)", NULL, "sgd(lr=0.1,momentum=0.9)", 3 },
        { "slowmo(period=4,buffers=average)", NULL, "adam(lr=0.1)", 6 },
        { "slowmo(period=4,local_freq=2)", NULL, "sgd(lr=0.1)", 3 },
        { "slowmo(base=d-psgd,period=4)", "d-psgd", "sgd(lr=0.1)" },
        { "slowmo(base=d-psgd,period=4,order=atc,graph=exponential)", "d-psgd(order=atc,graph=exponential)",
          "sgd(lr=0.1)" },
    };

    (void)state;
    for (int n = 2; n <= 5; n++) {
        trial one = sent("local-sgd(period=12)", "sgd(lr=0.1)", 12, n);
        uint64_t total = 0;
        for (int r = 0; r < n; r++)
            for (int to = 0; to < n; to++)
                total += one.bytes[r][to];
        assert_int_equal(total, 2 * (uint64_t)(n - 1) * 4 * trial_size(&one));
        for (size_t c = 0; c < TUTTI_LENGTH(cases); c++) {
            trial all = sent(cases[c].slow, cases[c].optimizer, 12, n), base = { 0 };
            if (cases[c].base != NULL)
                base = sent(cases[c].base, "sgd(lr=0.1)", 12, n);
            expect_sent(&all, cases[c].base != NULL ? &base : &one, &one, 3 + cases[c].more, n);
            trial_drop(&all);
            trial_drop(&base);
        }
        trial_drop(&one);
    }
    for (int n = 2; n <= 4; n += 2) { /* of sgp the mean is of d + 7 numbers; its rounds come again after two */
        trial half = sent("sgp", "sgd(lr=0.1)", 4, n), base = sent("sgp", "sgd(lr=0.1)", 8, n), one = base,
              all = sent("slowmo(base=sgp,period=4)", "sgd(lr=0.1)", 8, n);
        for (int r = 0; r < n; r++)
            for (int to = 0; to < n; to++) {
                one.bytes[r][to] = 2 * half.bytes[r][to] - base.bytes[r][to];
                one.messages[r][to] = 2 * half.messages[r][to] - base.messages[r][to];
            }
        expect_sent(&all, &base, &one, 2, n);
        trial_drop(&half);
        trial_drop(&base);
        trial_drop(&all);
    }
}

static float none_after_a_round(int rank, uint64_t step, size_t i, float x)
{
    return step < 4 ? by_step(rank, step, i, x) : 0;
}

/* With gradients of 0 equal models stay as they are, if the public copies are equal as well. */
static void public_copies_are_reset_at_each_slow_step(void **state)
{
    static const char *const codecs[] = { "topk(ratio=0.05)", "sign", "int8" };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(codecs); c++)
        for (int atc = 0; atc < 2; atc++) {
            trial t = trial_of(atc ? "slowmo(base=d-psgd,order=atc,period=4)" : "slowmo(base=d-psgd,period=4)",
                               "sgd(lr=0.125)", 7);
            t.options.codec = codecs[c];
            t.gradient = none_after_a_round;
            trial_run(&t, 4);
            for (int r = 0; r < 4; r++)
                for (int s = 4; s < 7; s++)
                    assert_true(trial_same(&t, t.x[r][s], t.x[0][3]));
            assert_false(trial_same(&t, t.x[0][3], t.x[0][2]));
            trial_drop(&t);
        }
}

static void displacements_travel_through_the_codec(void **state)
{
    static const char *const exact[] = { "fp32", "topk(ratio=1)", "ef(topk(ratio=1))" };

    (void)state;
    for (int n = 1; n <= 4; n++)
        for (size_t c = 0; c < TUTTI_LENGTH(exact); c++) {
            trial a = trial_of("slowmo(period=3)", "sgd(lr=0.1,momentum=0.9)", 9), b = a;
            a.options.codec = exact[c];
            trial_run(&a, n);
            trial_run(&b, n);
            for (int s = 0; s < 9; s++)
                assert_true(trial_apart(&a, a.x[0][s], b.x[0][s]) < 4e-6);
            for (int r = 1; r < n; r++)
                assert_true(trial_same(&a, a.x[0][8], a.x[r][8]));
            trial_drop(&a);
            trial_drop(&b);
        }
}

static void invalid_options_are_rejected(void **state)
{
    static const struct { const char *method, *codec, *sentence; bool client, skip; } cases[] = {
        { "slowmo(beta=1)", NULL, "'beta' is 1" },
        { "slowmo(alpha=0)", NULL, "'alpha' is 0" },
        { "slowmo(graph=ring)", NULL, "graph" },
        { "slowmo(base=sgp,local_freq=2)", NULL, "local_freq" },
        { "slowmo(base=d-psgd,overlap=2)", NULL, "overlap" },
        { "slowmo(base=d-psgd,graph=rign)", NULL, "did you mean 'ring'" },
        { "slowmo(base=sgp)", "topk(ratio=0.1)",
          "codec is 'topk(ratio=0.1)', but under method 'slowmo' base=sgp sends push-sum's models as they are" },
        { "slowmo(local_freq=3)", "topk(ratio=0.1)", "averages models as they are every local_freq (3) steps" },
        { "slowmo", "sign-vote", "makes a vote of what workers send" },
        { "slowmo(buffers=reset)", NULL,
          "buffers=reset: optimizer is 'client', but method 'slowmo' resets the optimiser's buffers", true },
        { "slowmo(buffers=average)", NULL,
          "buffers=average: optimizer is 'client', but method 'slowmo' averages the optimiser's buffers", true },
        { "slowmo(buffers=average)", NULL,
          "nonfinite=skip may skip a step, but method 'slowmo' averages the optimiser's buffers, which is right only "
          "where all workers have made the same number of updates; leave nonfinite at stop", false, true },
    };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(cases); c++) {
        trial t = trial_of(cases[c].method, cases[c].client ? "client" : "sgd(lr=0.1,momentum=0.9)", 2);
        tutti_error err;
        t.options.codec = cases[c].codec;
        t.options.update = cases[c].client ? plain_sgd : NULL;
        t.options.nonfinite = cases[c].skip ? TUTTI_NONFINITE_SKIP : TUTTI_NONFINITE_STOP;
        assert_int_equal(trial_try(&t, 2, &err), TUTTI_ERR_USAGE);
        if (strstr(err.text, cases[c].sentence) == NULL)
            fail_msg("%s: %s", cases[c].method, err.text);
        trial_drop(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_slow_momentum_it_is_local_sgd_bit_for_bit),
        cmocka_unit_test(without_slow_momentum_slowmo_matches_base_plus_averaging),
        cmocka_unit_test(period_one_over_plain_sgd_is_ddp_with_momentum),
        cmocka_unit_test(constant_rate_slowmo_matches_local_sgd_with_outer_momentum),
        cmocka_unit_test(slow_momentum_and_anchor_are_equal_on_all_workers),
        cmocka_unit_test(one_worker_without_momentum_is_lookahead),
        cmocka_unit_test(constant_displacement_accumulates_in_slow_momentum),
        cmocka_unit_test(models_are_equal_after_each_slow_step),
        cmocka_unit_test(push_sum_average_matches_the_final_model_of_sgp),
        cmocka_unit_test(slow_momentum_is_independent_of_the_learning_rate),
        cmocka_unit_test(round_uses_the_learning_rate_of_its_first_step),
        cmocka_unit_test(workers_agree_after_one_skipped_a_step),
        cmocka_unit_test(a_gradient_that_is_not_finite_is_found_with_every_base),
        cmocka_unit_test(reset_makes_the_optimiser_as_new),
        cmocka_unit_test(average_equalises_buffers_and_maintain_keeps_them),
        cmocka_unit_test(traffic_is_the_base_plus_one_average_per_round),
        cmocka_unit_test(public_copies_are_reset_at_each_slow_step),
        cmocka_unit_test(displacements_travel_through_the_codec),
        cmocka_unit_test(invalid_options_are_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
