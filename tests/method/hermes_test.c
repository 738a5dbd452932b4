/* Goal: what hermes promises of any order of arrival, on ranks that are real threads: one worker,
   when a model is pushed, what becomes of it at the server, what crosses the wire. The losses on
   held-out samples are the test's own, so it sees every model that is evaluated: a worker's before
   it pushes, and the server's after. Sizes, which follow from times, are in
   tests/cli/hermes_test.py; schedules in their hundreds in tests/explore. */
#include <stdatomic.h>

#include "trial.h"
#include "sanitized.h"

enum { LOOKS = 2 * TRIAL_RANKS * TRIAL_STEPS, SAMPLE = 61 };
static const int sizes[] = { 2, 3, 4, 5, 8 };

/* What was evaluated, in order of the server's models: only one worker at a time has a new one. */
typedef struct look { int rank; double own_loss, loss; float own[SAMPLE], x[SAMPLE]; } look;
static look seen[LOOKS];
static atomic_int n_seen;
static int asked[TRIAL_RANKS];   /* evaluations of each */
static look mine[TRIAL_RANKS];
static bool alike;               /* all losses are 1 */

static void begin(void)
{
    alike = false;
    atomic_store(&n_seen, 0);
    memset(asked, 0, sizeof asked);
}

static void sample(const float *x, float *out)
{
    for (int i = 0; i < SAMPLE; i++)
        out[i] = x[i * 25];
}

static double distance(const float *x)
{
    double sum = 0.25;
    for (int i = 0; i < SAMPLE; i++)
        sum += fabs((double)x[25 * i] - 3);
    return sum;
}

/* With push=always evaluations alternate: a worker's own model, the server's. */
static double watched(trial *t, int rank, const float *x)
{
    const double loss = alike ? 1 : distance(x);
    look *l = &mine[rank];

    (void)t;
    if (asked[rank]++ % 2 == 0) {
        l->rank = rank;
        l->own_loss = loss;
        sample(x, l->own);
    } else {
        sample(x, l->x);
        l->loss = loss;
        seen[atomic_fetch_add(&n_seen, 1)] = *l;
    }
    return loss;
}

static trial trial_hermes(const char *method, int steps, double (*loss)(trial *, int, const float *))
{
    trial t = trial_of(method, "sgd(lr=0.0625)", steps);
    t.gradient = trial_constant;
    t.held_out = loss;
    begin();
    return t;
}

#define ALWAYS "hermes(push=always,late_after=0,chunk=2,minibatch=2,local_passes=1"

static void one_worker_matches_method_single_bit_for_bit(void **state)
{
    static const char *const methods[] = {
        "hermes", ALWAYS ",wire=fp32)", "hermes(local_passes=3,chunk=4,minibatch=1)",
    };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(methods); i++)
        for (int asks = 0; asks < 2; asks++)
            for (int clips = 0; clips < 2; clips++) {
                trial a = trial_of(methods[i], "adamw(lr=0.01)", 7), b = trial_of("single", "adamw(lr=0.01)", 7);
                if (i == 0)
                    a.method = "hermes(minibatch=2)";
                a.asks = asks;
                a.options.clip_norm = b.options.clip_norm = clips;
                trial_run(&a, 1);
                trial_run(&b, 1);
                if (!trial_same(&a, a.x[0][7], b.x[0][7]))
                    fail_msg("%s, clip-norm %d: not single's model", methods[i], clips);
                assert_int_equal(a.figures[0].bytes_sent + a.figures[0].messages_sent + a.figures[0].staleness_max, 0);
                trial_drop(&a);
                trial_drop(&b);
            }
}

/* Each model of the server is what the published rule makes of the one before and of the pushing
   worker's. */
static void check_merges(const trial *t, int n, bool mean, double error)
{
    assert_int_equal(atomic_load(&n_seen), 9 * n);
    for (int k = 0; k < 9 * n; k++) {
        const look *l = &seen[k], *was = &seen[k > 0 ? k - 1 : 0];
        const double a = mean ? 1 : 1 / fmax(was->loss, 1e-12), b = mean ? 1 : 1 / fmax(l->own_loss, 1e-12),
                     part = k == 0 ? 1 : b / (a + b);
        assert_true(k == 0 || (part > 0 && part < 1));
        for (int i = 0; i < SAMPLE; i++) {
            const double x = (1 - part) * (double)was->x[i] + part * (double)l->own[i],
                         w0 = (double)trial_initial_value((size_t)(25 * i));
            if (k == 0 && error == 0 ? l->x[i] != l->own[i]
                                     : fabs((double)l->x[i] - x) > 1e-6 * fmax(1, fabs(x)) + error * (fabs(x - w0) + 3))
                fail_msg("%s on %d: after push %d, worker %d's, element %d is %.9g instead of %.9g", t->method, n, k,
                         l->rank, i, (double)l->x[i], x);
        }
    }
}

static void pushed_models_are_merged_by_their_inverse_losses_one_at_a_time(void **state)
{
    static const struct { const char *method; bool mean; double error;
    } kinds[] = {
        { ALWAYS ",chunk_most=2,wire=fp32)", false, 0 },         { ALWAYS ",wire=fp32,resize=off)", false, 0 },
        { ALWAYS ",wire=fp32,merge=mean,resize=off)", true, 0 }, { ALWAYS ",chunk_most=2)", false, 0x1p-11 },
        { ALWAYS ",merge=mean,resize=off)", true, 0x1p-11 },
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(kinds); k++)
        for (size_t p = 0; p < FEW_OF(sizes); p++) {
            const int n = sizes[p];
            trial t = trial_hermes(kinds[k].method, 9, watched);
            float last[SAMPLE];
            trial_run(&t, n);
            check_merges(&t, n, kinds[k].mean, kinds[k].error);
            for (int r = 0; r < n; r++) { /* the model of the run is the server's */
                sample(t.x[r][9], last);
                for (int i = 0; i < SAMPLE; i++)
                    assert_true(fabs((double)last[i] - (double)seen[9 * n - 1].x[i]) <= 4 * kinds[k].error * 8);
                assert_true(trial_metric(&t, "pushes", r) == 9 && trial_metric(&t, "rounds", r) == 9);
            }
            trial_drop(&t);
        }
}

static void models_with_equal_losses_are_merged_to_their_midpoint(void **state)
{
    trial t = trial_hermes(ALWAYS ",wire=fp32)", 1, watched);

    (void)state;
    alike = true;
    trial_run(&t, 2);
    assert_int_equal(atomic_load(&n_seen), 2);
    assert_int_not_equal(seen[0].rank, seen[1].rank);
    for (int i = 0; i < SAMPLE; i++) {
        assert_true(seen[0].x[i] == seen[0].own[i]);
        assert_true(seen[1].x[i] == (seen[0].own[i] + seen[1].own[i]) / 2); /* dyadic: exact */
    }
    trial_drop(&t);
}

/* ---- when is a model pushed? ---- */

typedef struct rule { double alpha, beta; int lambda, window; } rule;
/* Losses by rank and evaluation. */
static double scripted(trial *t, int rank, const float *x)
{
    (void)x;
    return 1 + tutti_uniform((tutti_rng){ t->options.seed, (uint64_t)rank, 0 }, (uint64_t)asked[rank]++);
}

/* The published rule, round by round; pushes, and what alpha has become. */
static int pushes_of(const rule *of, uint64_t seed, int rank, int rounds, double *alpha)
{
    double q[64];
    int n = 0, pushes = 0, since = 0, at = 0;

    *alpha = of->alpha;
    for (int k = 0; k < rounds; k++) {
        double mean = 0, variance = 0;
        const double loss = 1 + tutti_uniform((tutti_rng){ seed, (uint64_t)rank, 0 }, (uint64_t)at++);
        if (n == of->window)
            memmove(q, q + 1, (size_t)--n * sizeof *q);
        q[n++] = loss;
        for (int i = 0; i < n; i++)
            mean += q[i] / n;
        for (int i = 0; i < n; i++)
            variance += (q[i] - mean) * (q[i] - mean) / n;
        if (n >= 2 && variance > 0 && (loss - mean) / sqrt(variance) <= *alpha) {
            assert_true(of->alpha != -1.3 || n >= 3 || *alpha > -1); /* Samuelson: |z| <= sqrt(n - 1) */
            pushes++;
            n = since = 0;
            at++; /* the merged model's */
        } else if (++since >= of->lambda)
            *alpha = fmin(0, *alpha * (1 - of->beta));
    }
    return pushes;
}

static void a_model_is_pushed_when_its_loss_is_low_among_the_last_ones(void **state)
{
    static const rule rules[] = { { -1.3, 0.1, 5, 10 }, { -0.7, 0, 5, 4 }, { -1, 0.5, 2, 3 }, { -1.3, 0.25, 1, 6 } };
    int all = 0;

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(rules); k++)
        for (uint64_t seed = 0; seed < 5; seed++)
            for (int asks = 0; asks < 2; asks++) {
                char method[160];
                trial t;
                snprintf(method, sizeof method,
                         "hermes(alpha=%g,beta=%g,lambda=%d,window=%d,chunk=2,minibatch=1,local_passes=2,resize=%s)",
                         rules[k].alpha, rules[k].beta, rules[k].lambda, rules[k].window,
                         seed % 2 == 0 ? "off" : "iqr,chunk_most=2"); /* rounds of one batch, however long they take */
                t = trial_hermes(method, 16, scripted);
                t.options.seed = seed;
                t.asks = asks == 1;
                trial_run(&t, 4);
                for (int r = 0; r < 4; r++) {
                    double alpha;
                    const int pushes = pushes_of(&rules[k], seed, r, t.done[r], &alpha);
                    if (trial_metric(&t, "pushes", r) != pushes || trial_metric(&t, "rounds", r) != t.done[r] ||
                        fabs(trial_metric(&t, "alpha", r) - alpha) > 1e-6)
                        fail_msg("%s, seed %d: worker %d pushed %g times in %g rounds, alpha %g; expected %d in "
                                 "%d, %g",
                                 method, (int)seed, r, trial_metric(&t, "pushes", r), trial_metric(&t, "rounds", r),
                                 trial_metric(&t, "alpha", r), pushes, t.done[r], alpha);
                    all += pushes;
                }
                trial_drop(&t);
            }
    assert_true(all > 200);
}

static double constant(trial *t, int rank, const float *x)
{
    (void)t;
    (void)rank;
    (void)x;
    return 0.1;
}

enum { LEAST_AT = 6 };           /* the push that leaves the least loss, from 1 */
static atomic_int told;          /* losses of the server's model, one at a time */

/* The server's loss falls until the sixth push, and stays above that then. */
static double falls_and_rises(trial *t, int rank, const float *x)
{
    (void)t;
    (void)x;
    if (asked[rank]++ % 2 == 0)
        return 1;
    const int k = 1 + atomic_fetch_add(&told, 1);
    return k < LEAST_AT ? 9 - k / 2 * 2 : k == LEAST_AT ? 1 : 2; /* some stay as they are, which is no rise */
}

static void run_ends_when_patience_is_exhausted(void **state)
{
    (void)state;
    for (size_t p = 0; p < FEW_OF(sizes); p++)
        for (int patience = 0; patience <= 5; patience++)
            for (int asks = 0; asks < 2; asks++) {
                const int n = sizes[p];
                char method[160];
                trial t;
                int pushes = 0;
                snprintf(method, sizeof method, ALWAYS ",resize=off,patience=%d)", patience);
                t = trial_hermes(method, 16, falls_and_rises);
                t.asks = asks == 1;
                atomic_store(&told, 0);
                trial_run(&t, n);
                for (int r = 0; r < n; r++) {
                    pushes += t.done[r];
                    assert_true(trial_metric(&t, "pushes", r) == t.done[r]);
                    assert_int_equal(t.figures[r].gradients, t.figures[0].gradients);
                }
                assert_int_equal(t.figures[0].gradients, pushes);
                assert_true(trial_metric(&t, "pushes_since_min", -1) == pushes - LEAST_AT &&
                            trial_metric(&t, "loss_min", -1) == 1 && trial_metric(&t, "loss", -1) == 2);
                if (patience == 0 || asks == 0)
                    assert_int_equal(pushes, 16 * n);
                else if (pushes < LEAST_AT + patience || pushes > LEAST_AT + patience + 2 * n) /* one in hand each */
                    fail_msg("%s on %d: %d pushes; the %dth was one too many", method, n, pushes, LEAST_AT + patience);
                trial_drop(&t);
            }
}

static void model_with_constant_loss_is_never_pushed(void **state)
{
    trial t = trial_hermes("hermes(chunk=2,minibatch=2,resize=off)", 16, constant);

    (void)state;
    trial_run(&t, 3);
    for (int r = 0; r < 3; r++) {
        assert_true(trial_metric(&t, "pushes", r) == 0 && trial_metric(&t, "rounds", r) == 16);
        /* after 5 + j such rounds j + 1 times */
        assert_true(fabs(trial_metric(&t, "alpha", r) - -1.3 * pow(0.9, 12)) < 1e-6);
        assert_true(t.figures[r].staleness_max == 0);
    }
    assert_int_equal(t.messages[1][2] + t.messages[2][1], t.messages[1][2] * 2);
    trial_drop(&t);
}

/* Every worker pushes when its loss is below all of its own before: no z is below 0. */
static double rises(trial *t, int rank, const float *x)
{
    (void)t;
    (void)x;
    return (rank + 1) * (1 + asked[rank]++);
}

/* What the server's rule makes of all workers' models after their last steps, each weighted by
   its last loss. */
static void check_unpushed(const trial *t, int n, bool mean)
{
    double sum = 0;

    for (int r = 0; r < n; r++)
        sum += mean ? 1 : 1.0 / (r + 1);
    for (size_t i = 0; i < trial_size(t); i++) {
        double x = 0;
        for (int r = 0; r < n; r++)
            x += (mean ? 1 : 1.0 / (r + 1)) / sum * (double)t->x[r][t->steps - 1][i];
        for (int r = 0; r < n; r++)
            if (fabs((double)t->x[r][t->steps][i] - x) > 1e-6 * fmax(1, fabs(x)))
                fail_msg("%s on %d: element %zu of worker %d is %.9g instead of %.9g", t->method, n, i, r,
                         (double)t->x[r][t->steps][i], x);
    }
}

static void without_pushes_the_final_model_merges_all_workers(void **state)
{
    static const struct { const char *method; bool mean; } kinds[] = {
        { "hermes(chunk=2,minibatch=2,resize=off)", false },
        { "hermes(chunk=2,minibatch=2,resize=off,wire=fp32)", false },
        { "hermes(chunk=2,minibatch=2,resize=off,merge=mean)", true },
        { "hermes(chunk=4,minibatch=2,push=always)", true }, /* of one step: no round is over, no loss known */
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(kinds); k++)
        for (size_t p = 0; p < FEW_OF(sizes) - 1; p++)
            for (int way = 0; way < 3; way++) {
                const int n = sizes[p], steps = strstr(kinds[k].method, "always") != NULL ? 1 : 12;
                trial t = trial_hermes(kinds[k].method, steps, rises), plain = t;
                t.gradient = plain.gradient = trial_quadratic;
                t.options.servers = way == 1;
                t.show = way == 2;
                trial_run(&t, n + t.options.servers);
                check_unpushed(&t, n, kinds[k].mean);
                begin();
                trial_run(&plain, n);
                for (int r = 0; r < n; r++) { /* eval_begin on any worker disturbs nothing */
                    assert_true(trial_metric(&t, "pushes", r) == 0);
                    assert_true(trial_same(&t, t.x[r][steps - 1], plain.x[r][steps - 1]));
                }
                trial_drop(&t);
                trial_drop(&plain);
            }
}

/* ---- the wire ---- */

/* Between a run of 9 steps and one of 4 lie 5 rounds of each worker. A push: a control message,
   the model up and down, its loss. A round without one: a control message with the time, where
   sizes follow from it. */
static void traffic_per_pair_matches_the_papers_formula(void **state)
{
    static const struct {
        const char *method;
        double (*loss)(trial *, int, const float *);
        int models, bytes, notes;
    } kinds[] = {
        { ALWAYS ",chunk_most=2)", watched, 1, 2, 3 },
        { ALWAYS ",chunk_most=2,wire=fp32)", watched, 1, 4, 3 },
        { ALWAYS ",resize=off)", watched, 1, 2, 3 },
        { "hermes(chunk=2,minibatch=2,chunk_most=2)", constant, 0, 0, 1 },
        { "hermes(chunk=2,minibatch=2,resize=off)", constant, 0, 0, 0 },
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(kinds); k++)
        for (size_t p = 0; p < FEW_OF(sizes); p++) {
            const int n = sizes[p];
            trial a = trial_hermes(kinds[k].method, 4, kinds[k].loss), b;
            trial_run(&a, n);
            b = trial_hermes(kinds[k].method, 9, kinds[k].loss);
            trial_run(&b, n);
            for (int i = 0; i < n; i++)
                for (int j = 0; j < n; j++) {
                    const bool with_server = i != j && (i == 0 || j == 0);
                    assert_int_equal(b.bytes[i][j] - a.bytes[i][j],
                                     with_server ? 5 * kinds[k].models * kinds[k].bytes * (int)trial_size(&a) : 0);
                    assert_int_equal(b.messages[i][j] - a.messages[i][j], with_server ? 5 * kinds[k].notes : 0);
                }
            trial_drop(&a);
            trial_drop(&b);
        }
}

static float steep(int rank, uint64_t step, size_t i, float x)
{
    (void)step;
    (void)x;
    return rank == 1 && i == 1010 ? 1.1e6f : 0.5f; /* times 0.0625: 68750 */
}

static double bad_loss(trial *t, int rank, const float *x)
{
    (void)x;
    return rank == 1 && asked[rank]++ == 2 ? (strstr(t->method, "fp32") != NULL ? NAN : INFINITY) : 1;
}

static void overflowing_values_and_nonfinite_losses_end_the_run(void **state)
{
    trial t = trial_hermes(ALWAYS ")", 4, watched);
    tutti_error err;

    (void)state;
    t.gradient = steep;
    assert_int_equal(trial_try(&t, 3, &err), TUTTI_ERR_NUMBER);
    assert_string_equal(err.text, "method 'hermes': element 10 of b in what worker 1 sends is -68750, but as fp16 the "
                                  "largest is 65504; send it as fp32, or lower the learning rate");
    t.method = ALWAYS ",wire=fp32)";
    begin();
    trial_run(&t, 3);
    trial_drop(&t);
    for (int k = 0; k < 2; k++) {
        t = trial_hermes(k == 0 ? ALWAYS ",wire=fp32)" : ALWAYS ")", 6, bad_loss);
        assert_int_equal(trial_try(&t, 3, &err), TUTTI_ERR_NUMBER);
        /* in which step of the run that is depends on how far the others are */
        assert_non_null(strstr(err.text, k == 0 ? "worker 1: the loss on the samples held out is nan in step "
                                                : "worker 1: the loss on the samples held out is inf in step "));
        trial_drop(&t);
    }
}

static void nonfinite_gradient_is_fatal_or_skipped_by_its_worker(void **state)
{
    trial t = trial_hermes(ALWAYS ")", 6, watched);

    (void)state;
    trial_ends_when_not_finite(&t);
    begin();
    trial_run(&t, 4);
    trial_left_out_by_one(&t);
    trial_drop(&t);
}

static void check_refused(const char *method, int n, bool held_out, const char *sentence)
{
    trial t = trial_hermes(method, 2, held_out ? constant : NULL);
    tutti_error err;

    assert_int_equal(trial_try(&t, n, &err), TUTTI_ERR_USAGE);
    if (strcmp(err.text, sentence) != 0)
        fail_msg("%s: %s", method, err.text);
    trial_drop(&t);
}

static void invalid_options_are_rejected(void **state)
{
    static const char *const bad[] = {
        "hermes(alpha=0.1)", "hermes(beta=1)", "hermes(window=2)", "hermes(push=never)", "hermes(minibatch=0)",
        "hermes(push=always,alpha=-1)", "hermes(resize=off,chunk_most=5000)",
    };
    trial t;
    tutti_error err;

    (void)state;
    check_refused("hermes(minibatch=2)", 2, false,
                  "method 'hermes' goes by the model's loss on samples that are held out of training, and there are "
                  "none; give --validation N, say 1000 (engine_options.evaluate)");
    check_refused("hermes", 2, true,
                  "method 'hermes': minibatch is 16 samples, but a pass of this run has 2 at most; give a smaller "
                  "minibatch, or a larger batch");
    check_refused(
        "hermes(chunk=1,minibatch=2)", 2, true,
        "method 'hermes': minibatch is 2 samples, but a chunk has 1; give a smaller minibatch, or a larger chunk");
    check_refused("hermes(chunk=100,minibatch=2,chunk_most=99)", 2, true,
                  "method 'hermes': chunk_most is 99 samples, but chunk begins at 100; give at least that");
    for (size_t k = 0; k < TUTTI_LENGTH(bad); k++) {
        t = trial_hermes(bad[k], 2, constant);
        assert_int_equal(trial_try(&t, 2, &err), TUTTI_ERR_USAGE);
        trial_drop(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_worker_matches_method_single_bit_for_bit),
        cmocka_unit_test(pushed_models_are_merged_by_their_inverse_losses_one_at_a_time),
        cmocka_unit_test(models_with_equal_losses_are_merged_to_their_midpoint),
        cmocka_unit_test(a_model_is_pushed_when_its_loss_is_low_among_the_last_ones),
        cmocka_unit_test(model_with_constant_loss_is_never_pushed),
        cmocka_unit_test(without_pushes_the_final_model_merges_all_workers),
        cmocka_unit_test(run_ends_when_patience_is_exhausted),
        cmocka_unit_test(traffic_per_pair_matches_the_papers_formula),
        cmocka_unit_test(overflowing_values_and_nonfinite_losses_end_the_run),
        cmocka_unit_test(nonfinite_gradient_is_fatal_or_skipped_by_its_worker),
        cmocka_unit_test(invalid_options_are_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
