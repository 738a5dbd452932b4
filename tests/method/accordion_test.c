/* Goal: merged steps are one step of more passes, to the bit; accordion(mode=batch) makes batches
   larger when, and only when, its rule says so, at a rate in proportion, the same on all workers;
   mode=localsteps has workers take more local steps in the same regimes; a dry run logs what
   would be decided and is the run without it. Method: a method made for it that merges a given
   number of steps, against ddp with as many passes; gradients that are a formula of the step, so
   that a test can choose the regimes; the mean over samples is computed separately. */
#include "../engine/toy.h"
#include "trial.h"
#include "tutti/method/steps.h"
#include "engine/modes/merge.h"

/* ---- merging ---- */
typedef struct probe { int64_t steps; } probe;
static const tutti_option probe_options[] = {
    { "steps", TUTTI_INT, TUTTI_AT(probe, steps), 1, 1, 100, NULL, "of an update" }, { 0 }
};

static tutti_status probe_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    m->piece_bytes = m->first_piece_bytes = 4096;
    return tutti_merge_declare(m, plan, err);
}

static tutti_status probe_pass(tutti_method *m, tutti_pass *p, tutti_error *err)
{
    const probe *s = m->self;
    (void)err;
    p->merge = tutti_merged(m) < s->steps;
    return TUTTI_OK;
}

static const tutti_method_ops probe_ops = {
    .name = "probe",
    .options = probe_options,
    .self_bytes = sizeof(probe),
    .traits = TUTTI_REPLICAS_EQUAL | TUTTI_TAKES_CODEC,
    .declare = probe_declare,
    .pass = probe_pass,
    .exchange = tutti_base_exchange,
};
static const tutti_method_ops *const probes[] = { &probe_ops, NULL };

enum { SOME = 1000 };
typedef struct merging {
    toy t;
    int at_once;                 /* steps of the probe for one of ddp; 1: ddp */
    uint64_t hash[4][64], skipped;
    uint64_t bytes;
    float x[SOME];               /* rank 0's at the end */
} merging;

static tutti_status merging_rank(tutti_world *world, void *arg, tutti_error *err)
{
    static const char *const names[TOY_TENSORS] = { "e.bias", "d.weight", "c.bias", "b.weight", "a.bias" };
    merging *j = arg;
    const int r = tutti_world_rank(world);
    toy t = j->t;
    tutti_param params[TOY_TENSORS];
    tutti_engine *e;
    tutti_figures f;
    tutti_status status;
    uint64_t sent[2], messages;

    for (int i = 0; i < TOY_TENSORS; i++)
        params[i] = (tutti_param){ .name = names[i], .dims = 1, .dim = { t.count[i] }, .unit = TOY_TENSORS - 1 - i };
    t.options.initial = toy_initial;
    t.options.user = &t;
    TUTTI_TRY(tutti_engine_open_from(&e, world, params, TOY_TENSORS, &t.options,
                                     j->at_once > 1 ? probes : tutti_methods, err));
    status = TUTTI_OK;
    tutti_world_sent(world, TUTTI_ANY, &sent[0], &messages);
    for (int s = 0; s < t.steps * j->at_once && status == TUTTI_OK; s++) {
        tutti_share share = *tutti_engine_share(e);
        const uint64_t step = tutti_engine_method(e)->step;
        tutti_pass p;
        while ((status = tutti_engine_pass_begin(e, &p, err)) == TUTTI_OK)
            TUTTI_TRY(toy_pass(e, &t, &share, &p, step, err));
        status = status == TUTTI_CLOSED ? tutti_engine_step(e, err) : status;
        j->hash[r][s / j->at_once] = toy_hash(e);
        if (status == TUTTI_OK && s % j->at_once + 1 < j->at_once && s >= j->at_once &&
            j->hash[r][s / j->at_once] != j->hash[r][s / j->at_once - 1])
            status = tutti_fail(err, TUTTI_ERR_STATE, 0, "a step that waits has moved the model");
    }
    tutti_world_sent(world, TUTTI_ANY, &sent[1], &messages);
    __atomic_add_fetch(&j->bytes, sent[1] - sent[0], __ATOMIC_RELAXED);
    tutti_engine_figures(e, &f);
    if (r == 0)
        memcpy(j->x, tutti_engine_method(e)->x, sizeof j->x);
    j->skipped = f.skipped;
    tutti_engine_close(e);
    return status;
}

static merging merging_of(int at_once, int passes, int n, int steps)
{
    static char method[40];
    merging j = { .t = toy_default(), .at_once = at_once };

    snprintf(method, sizeof method, "probe(steps=%d)", at_once);
    j.t.options.method = at_once > 1 ? method : "ddp(0.00390625,0.00390625)"; /* the same pieces, of 4 KiB */
    j.t.options.accumulate = passes;
    j.t.options.batch = 4;
    j.t.options.data_samples = (uint64_t)(4 * n * 8 * 3); /* three updates of eight steps an epoch */
    j.t.count[1] = 1200;
    j.t.count[3] = 901;
    j.t.steps = steps;
    return j;
}

static void run_merging(merging *j, int n)
{
    tutti_error err = { .rank = -1 };
    if (tutti_world_run("shm", n, merging_rank, j, &err) != TUTTI_OK)
        fail_msg("%s on %d: %s", j->t.options.method, n, err.text);
}

static void merged_steps_match_one_step_with_more_passes(void **state)
{
    static const struct { int n, steps; const char *optimizer, *scale, *codec; int lane;
    } cases[] = {
        { 1, 4, "sgd(lr=0.05,momentum=0.9)", "", "", 0 },
        { 2, 2, "sgd(lr=0.05,momentum=0.9,weight_decay=0.01)", "", "", 2 },
        { 4, 8, "adamw(lr=0.01)", "", "", 0 },
        { 2, 4, "adam(lr=0.01)", "dynamic(init=64,interval=4)", "", -1 },
        { 3, 4, "sgd(lr=0.05,momentum=0.9)", "static(scale=128)", "ef(topk(ratio=0.1))", 0 },
        { 4, 2, "sgd(lr=0.05)", "", "ef(sign,server=on)", 2 },
    };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(cases); c++) {
        merging once = merging_of(1, cases[c].steps, cases[c].n, 7),
                merged = merging_of(cases[c].steps, 1, cases[c].n, 7);
        merging *const both[] = { &once, &merged };
        for (int k = 0; k < 2; k++) {
            both[k]->t.options.optimizer = cases[c].optimizer;
            both[k]->t.options.loss_scale = k == 1 ? cases[c].scale : "";
            both[k]->t.options.codec = cases[c].codec;
            both[k]->t.options.lane = cases[c].lane;
            both[k]->t.options.clip_norm = c % 2 == 0 ? 3 : 0;
            run_merging(both[k], cases[c].n);
        }
        for (int s = 0; s < 7; s++)
            for (int r = 0; r < cases[c].n; r++)
                if (merged.hash[r][s] != once.hash[0][s])
                    fail_msg("case %zu, update %d, worker %d: another model", c, s, r);
        if (cases[c].scale[0] == 0)
            assert_int_equal(merged.bytes, once.bytes); /* nothing is sent in between */
    }
}

/* An epoch of 40 samples by three workers is steps of 12, 12, 12 and 4 samples, the last made of
   2, 1 and 1: merged, they are the mean over all 40. */
static void merged_steps_average_over_all_samples(void **state)
{
    merging whole = merging_of(1, 1, 2, 6), merged = merging_of(4, 1, 3, 6);
    double apart = 0;

    (void)state;
    whole.t.options.batch = 20;
    whole.t.options.data_samples = merged.t.options.data_samples = 40;
    whole.t.options.optimizer = merged.t.options.optimizer = "sgd(lr=0.3)";
    run_merging(&whole, 2);
    run_merging(&merged, 3);
    for (size_t i = 0; i < SOME; i++)
        apart = fmax(apart, fabs((double)whole.x[i] - merged.x[i]));
    assert_true(apart < 1e-6);
}

/* The update is skipped where a number in any of them is not finite. */
static void overflow_in_a_merged_step_skips_the_update(void **state)
{
    merging j = merging_of(4, 1, 2, 5);

    (void)state;
    j.t.options.loss_scale = "dynamic(init=256)";
    j.t.bad_rank = 1;
    j.t.bad_tensor = 3;
    j.t.bad_step = -1;
    j.t.bad_steps = 1 << 9; /* the second of the third update */
    run_merging(&j, 2);
    assert_int_equal(j.skipped, 1);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(j.hash[r][2], j.hash[0][1]);
        assert_int_not_equal(j.hash[r][3], j.hash[0][2]);
        assert_int_equal(j.hash[r][4], j.hash[0][4]);
    }
    j.t.options.loss_scale = "";
    {
        tutti_error err = { .rank = -1 };
        assert_int_equal(tutti_world_run("shm", 2, merging_rank, &j, &err), TUTTI_ERR_NUMBER);
        assert_non_null(strstr(err.text, "worker 1: the gradient of b.weight is inf at element 450 in step 9"));
    }
}

/* ---- the batch ---- */
static const char *shape; /* the gradient's size by step: a digit a step, the last one for all that follow */
static float times = 1;   /* as large throughout */

static float shaped(int rank, uint64_t step, size_t i, float x)
{
    const size_t n = strlen(shape);
    (void)x;
    if (shape[step < n ? step : n - 1] == 'x')
        return INFINITY;
    return times * (float)(shape[step < n ? step : n - 1] - '0') * (1 + (float)((i + (size_t)rank) % 4)) / 16;
}

/* Each step's gradient is the mean over the workers of `shaped`, so the model's movement shows
   which gradients an update contains. */
static void check_moves(const char *method, const char *schedule, const char *sizes, const char *pattern)
{
    enum { N = 2, STEPS = 16 };
    trial t = trial_of(method, "sgd(lr=0.5)", STEPS);
    float x[1];
    int waited = 0, updates = 0;

    shape = sizes;
    t.gradient = shaped;
    t.options.lr_schedule = schedule;
    t.options.steps = 1000; /* the run's last step would have an update */
    trial_run(&t, N);
    x[0] = trial_initial_value(8);
    for (int s = 0; s < STEPS; s++) {
        const double lr = 0.5 * (strstr(schedule, "step") != NULL && s >= 9 ? 0.25 : 1);
        for (int r = 1; r < N; r++)
            assert_true(trial_same(&t, t.x[r][s], t.x[0][s]));
        if (pattern[s] == '.')
            waited++;
        else {
            double sum = 0;
            for (int k = s - waited; k <= s; k++)
                sum += ((double)shaped(0, (uint64_t)k, 8, 0) + shaped(1, (uint64_t)k, 8, 0)) / 2;
            x[0] -= (float)(lr * sum); /* (waited + 1) times the rate, times the mean: numbers of few bits */
            waited = 0;
            updates++;
        }
        if (t.x[0][s][8] != x[0])
            fail_msg("%s, %s, gradients %s, step %d: %.9g, not %.9g", method, schedule, sizes, s, (double)t.x[0][s][8],
                     (double)x[0]);
    }
    assert_true(trial_metric(&t, "updates", -1) == updates);
    trial_drop(&t);
}

static void batch_grows_in_the_expected_steps(void **state)
{
    (void)state;
    for (times = 1; times <= 64; times *= 64) { /* of a loss that is 64 times as large the same */
        /* nothing to compare with at 2; from the second check on */
        check_moves("accordion(mode=batch,batch_high=16,interval=2,unit=step)", "constant", "4", "uuuu...u...u...u");
        check_moves("accordion(mode=batch,batch_high=8,interval=2,unit=step)", "constant", "4", "uuuu.u.u.u.u.u.u");
        check_moves("accordion(mode=batch,interval=1,unit=step)", "constant", "2", "uu.......u......");
        /* eta=0: always critical; a batch of one step: ddp */
        check_moves("accordion(mode=batch,interval=2,unit=step,eta=0)", "constant", "4", "uuuuuuuuuuuuuuuu");
        check_moves("accordion(mode=batch,batch_high=4,interval=2,unit=step)", "constant", "4", "uuuuuuuuuuuuuuuu");
        /* a change of half and more is critical, less is not */
        check_moves("accordion(mode=batch,batch_high=8,interval=2,unit=step)", "constant", "4488224422222222",
                    "uuuuuuuuuuuu.u.u");
        check_moves("accordion(mode=batch,batch_high=8,interval=2,unit=step,eta=2)", "constant", "4488224422222222",
                    "uuuu.u.u.u.u.u.u");
        /* it only grows while the rate stands */
        check_moves("accordion(mode=batch,batch_high=8,interval=2,unit=step)", "constant", "4444999911119999",
                    "uuuu.u.u.u.u.u.u");
        check_moves("accordion(mode=batch,batch_high=8,replay=3.h:7.l:9.h)", "constant", "4", "uuu.u.uuu.u.u.u.");
        /* and is small from a fall of the rate (before step 9) to the next check, at 12 */
        check_moves("accordion(mode=batch,batch_high=8,interval=4,unit=step,eta=0.1)", "step(every=9,gamma=0.25)", "4",
                    "uuuuuuuu.uuu.u.u");
        /* gradients of 0 */
        check_moves("accordion(mode=batch,batch_high=8,interval=2,unit=step)", "constant", "0", "uuuuuuuuuuuuuuuu");
    }
    times = 1;
}

/* ---- steps alone ---- */

/* The gradient of worker r is `shaped`, times 1 + r: models are equal exactly after steps with an
   'a' in the pattern, and there they are the mean of what each has made of its own gradients,
   whatever the periods were. */
static float shaped_by_rank(int rank, uint64_t step, size_t i, float x)
{
    return shaped(0, step, i, x) * (float)(1 + rank);
}

static void check_periods(const char *method, const char *schedule, const char *sizes, const char *pattern)
{
    enum { STEPS = 16 };

    for (int n = 1; n <= 4; n *= 2) {
        trial t = trial_of(method, "sgd(lr=0.5)", STEPS);
        int averagings = 0;
        shape = sizes;
        t.gradient = shaped_by_rank;
        t.options.lr_schedule = schedule;
        t.options.steps = 1000;
        trial_run(&t, n);
        for (size_t i = 8; i < 10; i++) {
            float x[4];
            for (int r = 0; r < n; r++)
                x[r] = trial_initial_value(i);
            for (int s = 0; s < STEPS; s++) {
                const double lr = 0.5 * (strstr(schedule, "step") != NULL && s >= 9 ? 0.25 : 1);
                float mean = 0;
                for (int r = 0; r < n; r++)
                    x[r] -= (float)(lr * (double)shaped_by_rank(r, (uint64_t)s, i, 0)), mean += x[r] / (float)n;
                for (int r = 0; r < n; r++) {
                    x[r] = pattern[s] == 'a' ? mean : x[r];
                    if (t.x[r][s][i] != x[r])
                        fail_msg("%s, %s, gradients %s: worker %d of %d, step %d: %.9g, not %.9g", method, schedule,
                                 sizes, r, n, s, (double)t.x[r][s][i], (double)x[r]);
                }
                averagings += i == 8 && pattern[s] == 'a';
                for (int r = 1; r < n; r++)
                    assert_true(trial_same(&t, t.x[r][s], t.x[0][s]) == (pattern[s] == 'a'));
            }
        }
        assert_true(trial_metric(&t, "averagings", -1) == averagings);
        for (int r = 1; r < n; r++)
            assert_true(trial_same(&t, t.x[r][STEPS], t.x[0][STEPS])); /* agreed at the end */
        trial_drop(&t);
    }
}

static void averaging_period_grows_outside_critical_regimes(void **state)
{
    (void)state;
    for (times = 1; times <= 64; times *= 64) {
        check_periods("accordion(mode=localsteps,period_high=4,interval=2,unit=step)", "constant", "4",
                      "aaaa...a...a...a");
        check_periods("accordion(mode=localsteps,period_low=2,period_high=6,interval=2,unit=step)", "constant", "4",
                      ".a.a.....a.....a");
        check_periods("accordion(mode=localsteps,period_high=3,interval=2,unit=step,eta=0)", "constant", "4",
                      "aaaaaaaaaaaaaaaa");
        check_periods("accordion(mode=localsteps,period_high=3,interval=1000)", "constant", "4", "aaaaaaaaaaaaaaaa");
        /* unlike a batch it shrinks again; a period under way when it does (at 10, after two
           steps) ends with the step that begins */
        check_periods("accordion(mode=localsteps,period_high=4,interval=2,unit=step)", "constant", "4444449999119999",
                      "aaaa...aaa..aaaa");
        check_periods("accordion(mode=localsteps,period_high=4,interval=2,unit=step,eta=9)", "constant",
                      "4444449999119999", "aaaa...a...a...a");
        /* and when the rate falls (before step 9), until the next check */
        check_periods("accordion(mode=localsteps,period_high=6,interval=4,unit=step,eta=0.1)",
                      "step(every=9,gamma=0.25)", "4", "aaaaaaaa.aaa....");
        check_periods("accordion(mode=localsteps,period_high=3,replay=2.h:7.l:9.h)", "constant", "4",
                      "aa..a..aa..a..a.");
        check_periods("accordion(mode=localsteps,period_low=2,period_high=2,interval=1,unit=step)", "constant", "4",
                      ".a.a.a.a.a.a.a.a");
    }
    times = 1;
}

/* Without gradients, or with such as have a norm beyond float, all is critical: averaged after
   every step, at every check. */
static void norms_of_zero_or_beyond_float_are_critical(void **state)
{
    static const float sizes[] = { 0, 3e25f };

    (void)state;
    shape = "4";
    for (size_t k = 0; k < TUTTI_LENGTH(sizes); k++) {
        trial t = trial_of("accordion(mode=localsteps,period_high=4,interval=2,unit=step,eta=1e9)", "sgd(lr=0.5)", 16);
        times = sizes[k];
        t.gradient = shaped;
        t.options.steps = 1000;
        trial_run(&t, 2);
        assert_true(trial_metric(&t, "averagings", -1) == 16);
        trial_drop(&t);
    }
    times = 1;
}

/* One worker, and levels that lose nothing, or an update of a step, or any periods: SGD, to the
   bit, whatever the optimiser. */
static void one_worker_with_dense_levels_matches_single(void **state)
{
    static const char *const methods[] = {
        "accordion(low=fp32,high=fp32,interval=2,unit=step,min_numel=0)",
        "accordion(low=fp32,high=fp32,interval=2,unit=step,error_feedback=off,scope=model)",
        "accordion(low=topk(ratio=1),high=fp32,interval=2,unit=step,min_numel=0,norm_source=averaged)",
        "accordion(mode=batch,batch_high=2,interval=2,unit=step)",
        "accordion(mode=localsteps,interval=2,unit=step)",
        "accordion(low=topk(ratio=0.5),high=sign,interval=2,unit=step,dry_run=on)"
    };
    static const char *const optimizers[] = { "sgd(lr=0.1,momentum=0.9,weight_decay=0.01)", "adamw(lr=0.01)" };

    (void)state;
    for (size_t o = 0; o < TUTTI_LENGTH(optimizers); o++)
        for (size_t k = 0; k < TUTTI_LENGTH(methods); k++) {
            trial a = trial_of(methods[k], optimizers[o], 12), b = trial_of("single", optimizers[o], 12);
            trial_run(&a, 1);
            trial_run(&b, 1);
            for (int s = 0; s <= 12; s++)
                if (!trial_same(&a, a.x[0][s], b.x[0][s]))
                    fail_msg("%s, %s: step %d", methods[k], optimizers[o], s);
            trial_drop(&a);
            trial_drop(&b);
        }
}

static float shaped_of_first(int rank, uint64_t step, size_t i, float x)
{
    return rank == 0 ? shaped(0, step, i, x) : shaped(0, 0, i, x);
}

/* Worker 0's gradients fall to a quarter. With those of worker 1, which do not fall, the root
   mean square goes from 4 to 2.9: neither worker finds that critical at eta 0.5, and both do at
   0.25, at the same step. */
static void norm_combines_the_gradients_of_all_workers(void **state)
{
    static const struct {
        double eta;
        const char *pattern;
    } rows[] = { { 0.5, "aaaa...a...a" }, { 0.25, "aaaa..aa...a" } };

    (void)state;
    shape = "444411111111";
    for (size_t k = 0; k < TUTTI_LENGTH(rows); k++) {
        char method[100];
        trial t;
        snprintf(method, sizeof method, "accordion(mode=localsteps,period_high=4,interval=2,unit=step,eta=%g)",
                 rows[k].eta);
        t = trial_of(method, "sgd(lr=0.5)", 12);
        t.gradient = shaped_of_first;
        t.options.steps = 1000;
        trial_run(&t, 2);
        for (int s = 4; s < 12; s++)
            if (trial_same(&t, t.x[1][s], t.x[0][s]) != (rows[k].pattern[s] == 'a'))
                fail_msg("%s: step %d", method, s);
        trial_drop(&t);
    }
}

/* Periods that never change give local-sgd's models, to the bit, whatever the optimiser, and its
   bytes, except for 4 bytes from each worker to each other at a check. */
static void periods_that_are_equal_are_local_sgd(void **state)
{
    static const struct { const char *method, *as; int n, checks;
    } cases[] = {
        { "accordion(mode=localsteps,period_low=3,period_high=3,interval=4,unit=step)", "local-sgd(period=3)", 4, 3 },
        { "accordion(mode=localsteps,period_low=1,eta=0,interval=5,unit=step)", "local-sgd(period=1)", 2, 2 },
        { "accordion(mode=localsteps,period_low=5,period_high=100,dry_run=on,interval=1,unit=step,eta=1e9)",
          "local-sgd(period=5)", 3, 12 },
        { "accordion(mode=localsteps,period_low=4,period_high=9,replay=50.h)", "local-sgd(period=4)", 1, 0 },
    };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(cases); c++) {
        trial a = trial_of(cases[c].method, "adamw(lr=0.01)", 13), b = trial_of(cases[c].as, "adamw(lr=0.01)", 13);
        uint64_t bytes[2] = { 0 };
        trial_run(&a, cases[c].n);
        trial_run(&b, cases[c].n);
        for (int r = 0; r < cases[c].n; r++)
            for (int s = 0; s <= 13; s++)
                if (!trial_same(&a, a.x[r][s], b.x[r][s]))
                    fail_msg("%s: worker %d is not as with %s after step %d", cases[c].method, r, cases[c].as, s);
        for (int r = 0; r < cases[c].n; r++)
            for (int to = 0; to < cases[c].n; to++)
                bytes[0] += a.bytes[r][to], bytes[1] += b.bytes[r][to];
        assert_int_equal(bytes[0] - bytes[1], cases[c].checks * cases[c].n * (cases[c].n - 1) * 4);
        trial_drop(&a);
        trial_drop(&b);
    }
}

/* A worker whose gradient is not finite alone makes no step; it counts neither in its norm nor in
   the divisor, and all decide equally. */
static void worker_with_a_skipped_step_uses_the_others_norm(void **state)
{
    trial t = trial_of("accordion(mode=localsteps,period_high=4,interval=2,unit=step,eta=0.05)", "sgd(lr=0.5)", 8);

    (void)state;
    t.gradient = trial_bad; /* worker 1 in step 3 */
    t.options.steps = 1000;
    t.options.nonfinite = TUTTI_NONFINITE_SKIP;
    trial_run(&t, 4);
    trial_left_out_by_one(&t);
    for (int s = 0; s < 8; s++)
        for (int r = 1; r < 4; r++)
            /* averaged after steps 0 to 3, and again after 7: equal gradients keep equal models */
            assert_true(s == 3 || trial_same(&t, t.x[r][s], t.x[0][s]));
    assert_true(trial_metric(&t, "averagings", -1) == 5);
    trial_drop(&t);
}

/* ---- models through the controller ---- */

/* Nothing but displacements of models goes through it (local-sgd): equal levels are the codec
   itself; what is sent is the levels' by the regime of the displacements, which here is that of
   the gradients, to the byte, and a fixed count of numbers at each check; and all have the same
   model after an averaging. Steps in which nothing travels count for a window and add nothing to
   it. */
static void compression_levels_apply_to_model_displacements(void **state)
{
    enum { STEPS = 16, N = 2, TENSORS = 3, PARTS = 3 };
    /* of the averagings after steps 1, 3, ..., 15; checks are before 4, 8, 12 */
    static const struct { const char *sizes, *levels; } rows[] = {
        { "4", "llllhhhh" }, { "4444444499999999", "llllhhll" }, { "4444999911111111", "llllllll" },
        { "9999111111111111", "llllllhh" },
    };
    static const char *const pairs[][2] = {
        { "ef(accordion(low=topk(ratio=0.5),high=topk(ratio=0.5),unit=step,interval=4))", "ef(topk(ratio=0.5))" },
        { "accordion(low=fp32,high=fp32,unit=step,interval=4)", "fp32" },
        { "ef(accordion(low=sign,high=sign,unit=step,interval=4,norm_source=averaged))", "ef(sign)" }
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(rows); k++) {
        trial t = trial_of("local-sgd(period=2)", "sgd(lr=0.5)", STEPS);
        uint64_t bytes = (uint64_t)(3 * PARTS * 4);
        shape = rows[k].sizes;
        t.gradient = shaped_by_rank;
        t.options.steps = 1000;
        t.options.codec = "ef(accordion(low=topk(ratio=0.5),high=topk(ratio=0.1),unit=step,interval=4))";
        trial_run(&t, N);
        for (int a = 0; a < STEPS / 2; a++)
            for (int i = 0; i < TENSORS; i++)
                bytes += 8 * (uint64_t)ceil((rows[k].levels[a] == 'h' ? 0.1 : 0.5) * (double)t.count[i] - 1e-9);
        for (int r = 0; r < N; r++)
            assert_int_equal(t.bytes[r][!r], bytes);
        for (int s = 0; s < STEPS; s++)
            assert_true(trial_same(&t, t.x[1][s], t.x[0][s]) == (s % 2 == 1));
        trial_drop(&t);
    }
    for (size_t k = 0; k < TUTTI_LENGTH(pairs); k++)
        for (int n = 1; n <= 5; n += 2) {
            trial of[2];
            for (int i = 0; i < 2; i++) {
                of[i] = trial_of("local-sgd(period=3,warmup=2)", "sgd(lr=0.125,momentum=0.5)", STEPS);
                of[i].options.codec = pairs[k][i];
                trial_run(&of[i], n);
            }
            for (int r = 0; r < n; r++)
                for (int s = 0; s <= STEPS; s++)
                    assert_true(trial_same(&of[0], of[0].x[r][s], of[1].x[r][s]));
            trial_drop(&of[0]);
            trial_drop(&of[1]);
        }
}

/* ---- a dry run ---- */

/* The models of the run without Accordion, to the bit, and its bytes, except for the bytes of
   decisions: `numbers` at each of `checks`. That the decisions are those of the run that acts:
   tests/codec/accordion_test.c. */
static void dry_run_matches_the_run_without_accordion(void **state)
{
    static const struct { const char *method, *as; int checks, numbers;
    } cases[] = {
        { "accordion(low=topk(ratio=0.5),high=topk(ratio=0.1),interval=2,unit=step,min_numel=0,dry_run=on)", "ddp", 7,
          3 },
        { "accordion(low=topk(ratio=0.5),high=sign,interval=2,unit=step,min_numel=0,scope=model,dry_run=on)", "ddp", 7,
          1 },
        { "accordion(low=qsgd(bits=8),high=qsgd(bits=2),error_feedback=off,norm_source=averaged,interval=3,unit=step,"
          "dry_run=on)",
          "ddp", 5, 0 },
        { "accordion(mode=batch,batch_high=8,interval=2,unit=step,dry_run=on)", "ddp", 7, 0 },
        { "accordion(mode=localsteps,period_low=3,period_high=6,interval=2,unit=step,dry_run=on)",
          "local-sgd(period=3)", 7, 1 },
    };
    enum { N = 2 };

    (void)state;
    shape = "4444449999119999";
    for (size_t c = 0; c < TUTTI_LENGTH(cases); c++) {
        trial a = trial_of(cases[c].method, "sgd(lr=0.05,momentum=0.9)", 16),
              b = trial_of(cases[c].as, "sgd(lr=0.05,momentum=0.9)", 16);
        a.gradient = b.gradient = shaped;
        a.options.steps = b.options.steps = 1000;
        trial_run(&a, N);
        trial_run(&b, N);
        for (int r = 0; r < N; r++)
            for (int s = 0; s <= 16; s++)
                if (!trial_same(&a, a.x[r][s], b.x[r][s]))
                    fail_msg("%s: worker %d is not as with %s after step %d", cases[c].method, r, cases[c].as, s);
        for (int r = 0; r < N; r++)
            assert_int_equal(a.bytes[r][!r] - b.bytes[r][!r], cases[c].checks * cases[c].numbers * 4);
        trial_drop(&a);
        trial_drop(&b);
    }
}

static void skipped_gradients_do_not_count_in_the_norm(void **state)
{
    trial t = trial_of("accordion(mode=batch,batch_high=8,interval=2,unit=step)", "sgd(lr=0.5)", 8);

    (void)state;
    shape = "4x44"; /* the first window has one step, of the same size as those of the second */
    t.gradient = shaped;
    t.options.steps = 1000;
    t.options.nonfinite = TUTTI_NONFINITE_SKIP;
    trial_run(&t, 2);
    assert_true(trial_same(&t, t.x[0][1], t.x[0][0]));
    for (int s = 2; s < 8; s++)
        assert_true(trial_same(&t, t.x[0][s], t.x[0][s - 1]) == (s == 4 || s == 6));
    assert_int_equal(t.figures[0].skipped, 1);
    trial_drop(&t);
}

static void invalid_options_are_rejected(void **state)
{
    static const struct { const char *method, *words; } cases[] = {
        { "accordion(mode=batch,batch_high=6)",
          "method 'accordion': batch_high is 6 samples, but it must be a multiple of a step's samples, 4 (2 workers "
          "x batch 2 x accumulate 1): 8 is near" },
        { "accordion(mode=batch,batch_high=1)", "4 is near" },
        { "accordion(mode=batch,low=topk)", "'low'" },
        { "accordion(mode=batch,scope=model)", "'scope'" },
        { "accordion(mode=batch,error_feedback=off)", "'error_feedback'" },
        { "accordion(batch_high=8)", "'batch_high'" },
        { "accordion(mode=batch,replay=3.lh)",
          "method 'accordion': replay: '3.lh' has 2 levels, and there are 1 parts" },
        { "accordion(low=ef(topk),high=topk)",
          "method 'accordion': low is 'ef(topk)', which wraps a codec; low and high are plain ones" },
        { "accordion(high=large(topk))", "high is 'large(topk)', which wraps a codec" },
        { "accordion(mode=batch,norm_window=interval,unit=step)", "'norm_window'" },
        { "accordion(mode=localsteps,period_low=9)",
          "method 'accordion': period_low is 9 steps and period_high 8, so that models would be averaged less "
          "often in critical regimes than elsewhere; swap them" },
        { "accordion(mode=localsteps,period_low=0)", "'period_low' is 0" },
        { "accordion(period_high=4)", "'period_high'" },
        { "accordion(mode=batch,period_low=2)", "'period_low'" },
        { "accordion(mode=localsteps,batch_high=8)", "'batch_high'" },
        { "accordion(mode=localsteps,low=topk)", "'low'" },
        { "accordion(mode=localsteps,bucket_mb=1)", "'bucket_mb'" },
        { "accordion(mode=localsteps,replay=3.lh)", "method 'accordion': replay: '3.lh' has 2 levels" },
        { "accordion(mode=localsteps,replay=3.h,dry_run=on)",
          "method 'accordion': dry_run is on and replay gives the decisions, so that there is nothing to find; "
          "omit one of them" },
        { "accordion(mode=batch,replay=3.h,dry_run=on)", "dry_run is on and replay gives" },
        { "accordion(replay=3.h,dry_run=on)", "dry_run is on and replay gives" },
        { "accordion(low=topk(ratio=0.1),high=topk(ratio=0.2),dry_run=on)",
          "low compresses more than high; swap them" },
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(cases); k++) {
        trial t = trial_of(cases[k].method, "sgd(lr=0.5)", 1);
        tutti_error err;
        assert_int_equal(trial_try(&t, 2, &err), TUTTI_ERR_USAGE);
        if (strstr(err.text, cases[k].words) == NULL)
            fail_msg("%s: %s", cases[k].method, err.text);
        trial_drop(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merged_steps_match_one_step_with_more_passes),
        cmocka_unit_test(merged_steps_average_over_all_samples),
        cmocka_unit_test(overflow_in_a_merged_step_skips_the_update),
        cmocka_unit_test(batch_grows_in_the_expected_steps),
        cmocka_unit_test(averaging_period_grows_outside_critical_regimes),
        cmocka_unit_test(norms_of_zero_or_beyond_float_are_critical),
        cmocka_unit_test(one_worker_with_dense_levels_matches_single),
        cmocka_unit_test(norm_combines_the_gradients_of_all_workers),
        cmocka_unit_test(periods_that_are_equal_are_local_sgd),
        cmocka_unit_test(worker_with_a_skipped_step_uses_the_others_norm),
        cmocka_unit_test(compression_levels_apply_to_model_displacements),
        cmocka_unit_test(dry_run_matches_the_run_without_accordion),
        cmocka_unit_test(skipped_gradients_do_not_count_in_the_norm),
        cmocka_unit_test(invalid_options_are_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
