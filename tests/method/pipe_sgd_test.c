/* Goal: pipe-sgd.md's invariants, on ranks that are threads. Method: the reference is ddp itself,
   whose gradients are taken at the models of some steps ago. So it has the same codecs,
   optimisers, schedules and skipped steps, and all must be the same to the bit. Runs that are
   longer than a trial, and workers that are held up, have a loop of their own. Resuming is in
   tests/engine/state_test.c. */
#include <time.h>

#include "trial.h"

enum { STEPS = 12, SIZE = 1533 };

/* ---- the reference ---- */

/* Models that each rank has seen, by step. delay: for the reference, whose model after u steps is
   the pipe's after u + delay. */
static float seen[TRIAL_RANKS][TRIAL_STEPS][SIZE];
static uint64_t delay, warmup;

/* Steps whose gradient is not finite on worker 0. */
static uint64_t overflow_first, overflow_end;

static float gradient(int rank, uint64_t step, size_t i, float x)
{
    if (rank == 0 && i == 7 && step >= overflow_first && step < overflow_end)
        return INFINITY;
    return trial_quadratic(rank, step, i, x) + (float)((step * 5 + i) % 7) / 16;
}

static float gradient_of_then(int rank, uint64_t step, size_t i, float x)
{
    const uint64_t then = step < warmup + delay ? (step < warmup ? step : warmup) : step - delay;

    seen[rank][step][i] = x;
    return gradient(rank, step, i, seen[rank][then][i]);
}

static void pipe_name(char name[96], int width, int from, const char *more)
{
    snprintf(name, 96, "pipe-sgd(width=%d,warmup=%d%s)", width, from, more);
}

/* Every step of a pipe of that width among n is the reference's, and so is what is drained. Gives
   the loss scale that it ends with. */
static double follow_that(trial t, trial reference, int width, int from, int n)
{
    const uint64_t late = (uint64_t)width - 1;
    double scale;
    char name[96];

    pipe_name(name, width, from, "");
    t.method = name;
    t.gradient = gradient;
    reference.method = "ddp";
    reference.gradient = gradient_of_then;
    delay = late;
    warmup = (uint64_t)from;
    trial_run(&t, n);
    trial_run(&reference, n);
    for (int s = 0; s <= STEPS; s++)
        for (int r = 0; r < n; r++) {
            const int u = s == STEPS ? STEPS : s < from ? s : s - (int)late;
            bool same;
            if (s >= from && s < STEPS && u < from) { /* no update yet */
                float start[SIZE];
                for (size_t i = 0; i < SIZE; i++)
                    start[i] = trial_initial_value(i);
                same = trial_same(&t, t.x[r][s], from > 0 ? t.x[r][from - 1] : start);
            } else
                same = trial_same(&t, t.x[r][s], reference.x[r][u]);
            if (!same)
                fail_msg("%s with %s, %s on %d: worker %d, step %d, is not the reference's step %d", name,
                         t.options.optimizer, t.options.codec != NULL ? t.options.codec : "no codec", n, r, s, u);
        }
    assert_int_equal(t.figures[0].skipped, reference.figures[0].skipped);
    assert_int_equal(t.figures[0].samples, reference.figures[0].samples);
    assert_int_equal(t.figures[n - 1].bytes_sent, reference.figures[n - 1].bytes_sent);
    assert_int_equal(t.figures[n - 1].messages_sent, reference.figures[n - 1].messages_sent);
    scale = t.figures[0].loss_scale;
    trial_drop(&t);
    trial_drop(&reference);
    return scale;
}

static void follow(trial t, int width, int from, int n)
{
    follow_that(t, t, width, from, n);
}

static void pipe_sgd_matches_ddp_with_delayed_gradients(void **state)
{
    static const char *const optimizers[] = { "sgd(lr=0.1)", "sgd(lr=0.05,momentum=0.9,nesterov=true)",
                                              "adamw(lr=0.01)" };
    (void)state;
    for (size_t o = 0; o < TUTTI_LENGTH(optimizers); o++)
        for (int n = 1; n <= 5; n++)
            follow(trial_of("", optimizers[o], STEPS), 2 + n % 3, n % 2 * 3, n);
}

static void pipe_sgd_with_a_codec_matches_delayed_ddp(void **state)
{
    static const char *const codecs[] = { "trunc16", "int8(bucket=0)", "ef(topk(ratio=0.1))", "qsgd(coding=elias)",
                                          "ef(powersgd(rank=1))", "randomk(ratio=0.3)", "alq" };
    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(codecs); c++)
        for (int n = 2; n <= 4; n += 2) {
            trial t = trial_of("", "sgd(lr=0.05)", STEPS);
            t.options.codec = codecs[c];
            t.options.lane = n == 2 ? 1 : 0; /* one thread, two */
            follow(t, c % 2 == 0 ? 2 : 3, n == 2 ? 0 : 2, n);
        }
}

/* Clipping and schedules apply to the gradient that is applied, and weights are those of the
   gradient's own step. */
static void clipping_schedules_scales_and_weights_match_delayed_ddp(void **state)
{
    static const int64_t shares[] = { 2, 6, 4 };
    trial t = trial_of("", "adam(lr=0.05)", STEPS);

    (void)state;
    t.options.clip_norm = 5;
    follow(t, 2, 0, 3);
    t.options.lr_schedule = "cosine";
    t.options.steps = STEPS;
    follow(t, 3, 2, 2);
    t.options.batch_of = shares;
    t.options.batch = 4;
    t.options.data_samples = 33; /* every third step is short, but no worker's part is empty */
    follow(t, 2, 0, 3);
    t.options.codec = "ef(topk(ratio=0.1))";
    t.options.loss_scale = "static(scale=1024)";
    t.options.accumulate = 2;
    follow(t, 3, 1, 3);
}

static float bad_once(int rank, uint64_t step, size_t i, float x)
{
    return rank == 1 && step == 3 && i == 1010 ? NAN : gradient(rank, step, i, x);
}

/* Where a gradient is not finite its step is skipped, late, by all. */
static void nonfinite_gradient_is_skipped_when_it_would_be_applied(void **state)
{
    static const char *const codecs[] = { NULL, "ef(topk(ratio=0.1))" };
    tutti_error err;

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(codecs); c++)
        for (int width = 2; width <= 3; width++) {
            trial t = trial_of("", "sgd(lr=0.1,momentum=0.9)", STEPS);
            char name[96];
            pipe_name(name, width, 0, "");
            t.method = name;
            t.gradient = bad_once;
            t.options.codec = codecs[c];
            assert_int_equal(trial_try(&t, 4, &err), TUTTI_ERR_NUMBER);
            assert_non_null(strstr(err.text, "worker 1: the gradient of b is nan at element 10 in step 3"));
            t.options.nonfinite = TUTTI_NONFINITE_SKIP;
            trial_run(&t, 4);
            for (int s = 0; s <= STEPS; s++)
                for (int r = 1; r < 4; r++)
                    assert_true(trial_same(&t, t.x[0][s], t.x[r][s]));
            assert_true(trial_same(&t, t.x[0][3 + width - 2], t.x[0][3 + width - 1]));
            assert_false(trial_same(&t, t.x[0][3 + width - 1], t.x[0][3 + width]));
            assert_int_equal(t.figures[2].skipped, 1);
            trial_drop(&t);
        }
}

/* The others are in the exchange that this worker has not begun: it begins none of those after
   it. */
static float bad_at_first(int rank, uint64_t step, size_t i, float x)
{
    (void)x;
    return rank == 1 && step == 1 && i == 10 ? NAN : 1;
}

static void failure_in_one_bucket_ends_the_run_with_error(void **state)
{
    static const char *const methods[] = { "ddp(bucket_mb=0.26,first_bucket_mb=0.26)",
                                           "pipe-sgd(width=3,warmup=0,bucket_mb=0.26)" };
    tutti_error err;

    (void)state;
    for (size_t m = 0; m < TUTTI_LENGTH(methods); m++)
        for (int lane = 1; lane <= 2; lane++) {
            trial t = trial_of(methods[m], "sgd(lr=0.1)", 3);
            t.count[0] = t.count[1] = t.count[2] = 70000;
            t.options.lane = lane;
            t.gradient = bad_at_first;
            assert_int_equal(trial_try(&t, 3, &err), TUTTI_ERR_NUMBER);
            assert_non_null(strstr(err.text, "worker 1: the gradient of c is nan at element 10 in step 1"));
            trial_drop(&t);
        }
}

/* The scale falls once for gradients that were computed before it fell. */
static float overflows(int rank, uint64_t step, size_t i, float x)
{
    return rank == 0 && step >= 3 && step <= 4 && i == 7 ? INFINITY : gradient(rank, step, i, x);
}

static void the_loss_scale_falls_once_for_gradients_of_one_scale(void **state)
{
    trial t = trial_of("pipe-sgd(width=3,warmup=0)", "sgd(lr=0.1)", STEPS);

    (void)state;
    t.gradient = overflows;
    t.options.loss_scale = "dynamic(init=1024)";
    trial_run(&t, 2);
    assert_int_equal(t.figures[1].skipped, 2);
    assert_true(t.figures[0].loss_scale == 512);
    trial_drop(&t);
}

/* S is divided out of a gradient that was computed under it, however S has moved when it is
   applied: up after every second good step, down at the overflows. All are powers of two, so the
   bits are those of a run whose S never moves. */
static void a_gradient_is_scaled_back_by_the_scale_of_its_own_step(void **state)
{
    static const struct { uint64_t first, end; const char *scale; } cases[] = {
        { 0, 0, "dynamic(init=1024,interval=2)" }, { 3, 4, "dynamic(init=1024,backoff=0.125)" },
        { 4, 6, "dynamic(init=1024,interval=2,growth=4)" },
    };
    bool up = false, down = false;

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(cases); c++)
        for (int width = 2; width <= 4; width++)
            for (int n = 1; n <= 3; n += 2)
                for (int from = 0; from <= 2; from += 2) {
                    trial t = trial_of("", "adam(lr=0.05)", STEPS), reference = t;
                    double scale;
                    t.options.loss_scale = cases[c].scale;
                    reference.options.loss_scale = "static(scale=1024)";
                    overflow_first = cases[c].first;
                    overflow_end = cases[c].end;
                    scale = follow_that(t, reference, width, from, n);
                    up = up || scale > 1024;
                    down = down || scale < 1024;
                }
    overflow_end = 0;
    assert_true(up && down);
}

/* ---- identities ---- */

static void width_one_is_ddp_bit_for_bit(void **state)
{
    static const char *const codecs[] = { NULL, "int8(bucket=0)" };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(codecs); c++)
        for (int n = 1; n <= 5; n++)
            for (int all = 0; all < 2; all++) { /* or a warm-up to the end */
                trial a = trial_of(all ? "pipe-sgd(warmup=100)" : "pipe-sgd(width=1,warmup=0)", "adamw(lr=0.01)", 6),
                      b = trial_of("ddp", "adamw(lr=0.01)", 6);
                a.options.codec = b.options.codec = codecs[c];
                trial_run(&a, n);
                trial_run(&b, n);
                for (int r = 0; r < n; r++)
                    for (int s = 0; s <= 6; s++)
                        assert_true(trial_same(&a, a.x[r][s], b.x[r][s]));
                for (int from = 0; from < n; from++)
                    for (int to = 0; to < n; to++) {
                        assert_int_equal(a.bytes[from][to], b.bytes[from][to]);
                        assert_int_equal(a.messages[from][to], b.messages[from][to]);
                    }
                assert_int_equal(a.figures[0].staleness_gradients, all ? 0 : 6);
                trial_drop(&a);
                trial_drop(&b);
            }
}

/* ---- how old, and how many ---- */

static void gradient_staleness_is_the_pipeline_width_minus_one(void **state)
{
    (void)state;
    for (int width = 1; width <= 4; width++)
        for (int drain = width == 1; drain < 2; drain++) { /* of width 1 nothing is late */
            trial t = trial_of("", "sgd(lr=0.0625)", STEPS);
            const int applied = drain ? STEPS : STEPS - width + 1;
            char name[96];
            pipe_name(name, width, 0, drain ? "" : ",drain=off");
            t.method = name;
            t.gradient = trial_constant; /* dyadic: sums are exact */
            trial_run(&t, 4);
            for (int r = 0; r < 4; r++) {
                const tutti_figures *f = &t.figures[r];
                assert_int_equal(f->staleness_gradients, applied);
                assert_int_equal(f->staleness_max, width - 1);
                assert_true(f->staleness_mean == width - 1); /* one bar */
            }
            for (size_t i = 0; i < SIZE; i++) {
                float mean = 0;
                for (int r = 0; r < 4; r++)
                    mean += trial_constant(r, 0, i, 0) / 4;
                assert_true(t.x[0][STEPS][i] == trial_initial_value(i) - 0.0625f * (float)applied * mean);
                assert_true(t.x[0][STEPS - 1][i] ==
                            trial_initial_value(i) - 0.0625f * (float)(STEPS - width + 1) * mean);
            }
            trial_drop(&t);
        }
}

static void lr_scale_applies_to_delayed_gradients_only(void **state)
{
    trial t = trial_of("pipe-sgd(width=2,warmup=3,lr_scale=0.5)", "sgd(lr=0.0625)", 8);

    (void)state;
    t.gradient = trial_constant;
    trial_run(&t, 1);
    for (size_t i = 0; i < SIZE; i++)
        assert_true(t.x[0][8][i] == trial_initial_value(i) - 0.0625f * (3 + 5 * 0.5f) * trial_constant(0, 0, i, 0));
    trial_drop(&t);
}

/* ---- loops of their own ---- */

typedef struct loop {
    const char *method;
    double lr;
    int steps, lane;
    float last;                /* |x|, the most of the last tenth */
    _Atomic int done[TRIAL_RANKS];
    bool holds;                /* worker 1 ends a step when worker 0 has ended it, and worker 0 ends
                                  the next when worker 1 has begun that */
} loop;

static bool wait_for(_Atomic int *count, int least)
{
    for (int turn = 0; turn < 20000; turn++) { /* 10 s */
        if (*count >= least)
            return true;
        nanosleep(&(struct timespec){ .tv_nsec = 500000 }, NULL);
    }
    return false;
}

static tutti_status loop_rank(tutti_world *world, void *arg, tutti_error *err)
{
    loop *l = arg;
    char optimizer[64];
    const tutti_param param = { .name = "x", .dims = 1, .dim = { 64 } };
    tutti_engine_options options = { .method = l->method, .optimizer = optimizer, .batch = 1, .lane = l->lane };
    tutti_engine *e;
    tutti_pass p;

    snprintf(optimizer, sizeof optimizer, "sgd(lr=%.17g)", l->lr);
    TUTTI_TRY(tutti_engine_open(&e, world, &param, 1, &options, err));
    const tutti_method *m = tutti_engine_method(e);
    for (int i = 0; i < 64; i++)
        m->x[i] = 1;
    tutti_status status = TUTTI_OK;
    for (int s = 0; s < l->steps && status == TUTTI_OK; s++) {
        while ((status = tutti_engine_pass_begin(e, &p, err)) == TUTTI_OK) {
            memcpy(m->g, m->x, 64 * sizeof *m->g); /* of x^2 / 2 */
            status = tutti_engine_grad_ready(e, 0, err);
            if (status == TUTTI_OK)
                status = tutti_engine_pass_end(e, 0, err);
        }
        if (l->holds && m->rank == 1 && !wait_for(&l->done[0], s + 1))
            status = tutti_fail(err, TUTTI_ERR_STATE, 0, "worker 0 waits in step %d for the exchange of that step", s);
        if (status == TUTTI_CLOSED)
            status = tutti_engine_step(e, err);
        l->done[m->rank] = s + 1;
        if (m->rank == 0 && s >= l->steps - l->steps / 10)
            l->last = fmaxf(l->last, fabsf(m->x[0]));
    }
    if (status == TUTTI_OK)
        status = tutti_engine_finish(e, err);
    tutti_engine_close(e);
    return status;
}

static void loop_run(loop *l, int n)
{
    tutti_error err;

    if (tutti_world_run("shm", n, loop_rank, l, &err) != TUTTI_OK)
        fail_msg("%s on %d: %s", l->method, n, err.text);
}

/* x' = x - a x(K - 1 steps ago): stable iff a < 2 sin(pi / (4 K - 2)). One percent on both
   sides. */
static void it_is_stable_exactly_up_to_its_bound(void **state)
{
    static const char *const methods[] = { "pipe-sgd(width=1)", "pipe-sgd(width=2,warmup=0)",
                                           "pipe-sgd(width=3,warmup=0)", "pipe-sgd(width=4,warmup=0)" };
    (void)state;
    for (int k = 1; k <= 4; k++) {
        const double bound = 2 * sin(acos(-1) / (4 * k - 2));
        loop below = { .method = methods[k - 1], .lr = 0.99 * bound, .steps = 2000 },
             above = { .method = methods[k - 1], .lr = 1.01 * bound, .steps = 2000 };
        assert_true(k != 2 || fabs(bound - 1) < 1e-12);
        loop_run(&below, 1);
        loop_run(&above, 1);
        if (!(below.last < 0.2f) || !(above.last > 5))
            fail_msg("width %d: |x| is %g at 0.99 and %g at 1.01 of the bound %g", k, (double)below.last,
                     (double)above.last, bound);
    }
}

/* A step does not wait for its own exchange: worker 1 reaches the end of a step only when worker
   0 has left it. Under ddp they would wait for each other. */
static void no_step_waits_for_its_own_exchange(void **state)
{
    loop l = { .method = "pipe-sgd(width=2,warmup=0)", .lr = 0.1, .steps = 20, .holds = true, .lane = 1 };

    (void)state;
    loop_run(&l, 2);
}

/* The default: the steps of an epoch; the last one may be short. Where the number of samples is
   not given a step is an epoch. */
static void the_warm_up_is_an_epoch_of_steps(void **state)
{
    static const struct { int n; uint64_t samples; int64_t accumulate; int steps; } cases[] = {
        { 1, 8, 1, 4 }, { 3, 33, 1, 6 }, { 3, 36, 1, 6 }, { 3, 37, 1, 7 }, { 2, 33, 2, 5 }, { 4, 0, 1, 1 },
    };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(cases); c++) {
        char name[96];
        trial a = trial_of("pipe-sgd", "adam(lr=0.02)", STEPS), b;
        a.options.data_samples = cases[c].samples;
        a.options.accumulate = cases[c].accumulate;
        b = a;
        pipe_name(name, 2, cases[c].steps, "");
        b.method = name;
        trial_run(&a, cases[c].n);
        trial_run(&b, cases[c].n);
        for (int s = 0; s <= STEPS; s++)
            if (!trial_same(&a, a.x[0][s], b.x[0][s]))
                fail_msg("%d workers, %d samples: step %d is not that of %s", cases[c].n, (int)cases[c].samples, s,
                         name);
        assert_int_equal(a.figures[0].staleness_gradients, STEPS - cases[c].steps);
        trial_drop(&a);
        trial_drop(&b);
    }
}

typedef struct told { uint64_t steps; int events; char text[200]; } told;

static tutti_status told_rank(tutti_world *world, void *arg, tutti_error *err)
{
    told *t = arg;
    const tutti_param param = { .name = "x", .dims = 1, .dim = { 64 } };
    const tutti_engine_options options = { .method = "pipe-sgd", .optimizer = "sgd(lr=0.1)", .batch = 2,
                                           .data_samples = 33, .steps = t->steps, .lane = 1 };
    const tutti_event_record *events;
    tutti_engine *e;

    TUTTI_TRY(tutti_engine_open(&e, world, &param, 1, &options, err));
    for (int k = tutti_engine_events(e, &events) - 1; k >= 0 && tutti_engine_method(e)->rank == 0; k--)
        if (strcmp(events[k].kind, "pipe") == 0) {
            t->events++;
            snprintf(t->text, sizeof t->text, "%s", events[k].text);
        }
    tutti_engine_close(e);
    return TUTTI_OK;
}

/* 33 samples of three workers are six steps. */
static void run_ending_within_its_warmup_gives_a_warning(void **state)
{
    (void)state;
    for (uint64_t steps = 5; steps <= 7; steps++) {
        told t = { .steps = steps };
        char text[200];
        tutti_error err;
        snprintf(text, sizeof text, "all %d steps of this run are synchronous, for the warm-up has 6; give a smaller "
                 "warmup, or a longer run", (int)steps);
        if (tutti_world_run("shm", 3, told_rank, &t, &err) != TUTTI_OK)
            fail_msg("%s", err.text);
        assert_int_equal(t.events, steps <= 6);
        assert_string_equal(t.text, steps <= 6 ? text : "");
    }
}

/* Without a thread for it the exchange is on the client's, and what comes out is the same. */
static void without_a_lane_the_bits_are_the_same(void **state)
{
    trial a = trial_of("pipe-sgd(width=3,warmup=2)", "adam(lr=0.02)", STEPS), b = a;

    (void)state;
    b.options.lane = -1;
    a.show = true; /* nor does looking at the model change any */
    trial_run(&a, 4);
    trial_run(&b, 4);
    for (int s = 0; s <= STEPS; s++)
        assert_true(trial_same(&a, a.x[0][s], b.x[3][s]));
    trial_drop(&a);
    trial_drop(&b);
}

/* ---- what is refused ---- */

static void options_incompatible_with_delayed_gradients_are_rejected(void **state)
{
    static const struct { const char *method, *optimizer, *words; } cases[] = {
        { "pipe-sgd", "adam(lazy=on)", "optimizer is lazy, but method 'pipe-sgd' sends tables' gradients whole" },
        { "pipe-sgd", "client", "only exchanged, but method 'pipe-sgd' applies gradients some steps late" },
        { "pipe-sgd(width=17)", "sgd(lr=0.1)", "width" },
        { "pipe-sgd(width=0)", "sgd(lr=0.1)", "width" },
        { "pipe-sgd(lr_scale=0)", "sgd(lr=0.1)", "lr_scale" },
    };
    tutti_error err;

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(cases); c++) {
        trial t = trial_of(cases[c].method, cases[c].optimizer, 2);
        assert_int_equal(trial_try(&t, 2, &err), TUTTI_ERR_USAGE);
        if (strstr(err.text, cases[c].words) == NULL)
            fail_msg("%s with %s: %s", cases[c].method, cases[c].optimizer, err.text);
        trial_drop(&t);
    }
    trial lazy = trial_of("pipe-sgd(width=1)", "adam(lazy=on)", 2);
    trial_run(&lazy, 2);
    trial_drop(&lazy);
}

/* ---- buckets ---- */

typedef struct opened { const char *method; int pieces; } opened;

static tutti_status open_large(tutti_world *world, void *arg, tutti_error *err)
{
    const tutti_param params[2] = { { .name = "a", .dims = 1, .dim = { 300000 } },
                                    { .name = "b", .dims = 1, .dim = { 300000 } } };
    opened *o = arg;
    const tutti_engine_options options = { .method = o->method, .batch = 2, .data_samples = 64 };
    tutti_engine *e;
    const tutti_status status = tutti_engine_open(&e, world, params, 2, &options, err);

    if (status == TUTTI_OK && tutti_world_rank(world) == 0)
        o->pieces = tutti_engine_method(e)->layout->n_pieces;
    tutti_engine_close(e);
    return status;
}

/* A smaller first bucket is for an exchange that can begin before the whole gradient is there, and
   that the step waits for. Elsewhere it is one more exchange, with its latency. */
static void no_smaller_first_bucket_without_early_exchange(void **state)
{
    opened cases[] = { { "ddp", 2 }, { "pipe-sgd", 1 }, { "pipe-sgd(width=3,bucket_mb=1)", 2 },
                       { "scadles(simulate_clock=on)", 1 }, { "bagua(overlap=off)", 1 } };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(cases); k++) {
        const int pieces = cases[k].pieces;
        tutti_error err = { .text = "" };
        if (tutti_world_run("shm", 2, open_large, &cases[k], &err) != TUTTI_OK || cases[k].pieces != pieces)
            fail_msg("%s: %d buckets and not %d; %s", cases[k].method, cases[k].pieces, pieces, err.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pipe_sgd_matches_ddp_with_delayed_gradients),
        cmocka_unit_test(pipe_sgd_with_a_codec_matches_delayed_ddp),
        cmocka_unit_test(no_smaller_first_bucket_without_early_exchange),
        cmocka_unit_test(clipping_schedules_scales_and_weights_match_delayed_ddp),
        cmocka_unit_test(nonfinite_gradient_is_skipped_when_it_would_be_applied),
        cmocka_unit_test(failure_in_one_bucket_ends_the_run_with_error),
        cmocka_unit_test(the_loss_scale_falls_once_for_gradients_of_one_scale),
        cmocka_unit_test(a_gradient_is_scaled_back_by_the_scale_of_its_own_step),
        cmocka_unit_test(width_one_is_ddp_bit_for_bit),
        cmocka_unit_test(gradient_staleness_is_the_pipeline_width_minus_one),
        cmocka_unit_test(lr_scale_applies_to_delayed_gradients_only),
        cmocka_unit_test(it_is_stable_exactly_up_to_its_bound),
        cmocka_unit_test(no_step_waits_for_its_own_exchange),
        cmocka_unit_test(the_warm_up_is_an_epoch_of_steps),
        cmocka_unit_test(run_ending_within_its_warmup_gives_a_warning),
        cmocka_unit_test(without_a_lane_the_bits_are_the_same),
        cmocka_unit_test(options_incompatible_with_delayed_gradients_are_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
