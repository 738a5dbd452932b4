/* Goal: diloco.md's invariants, on ranks that are threads: torchft's recorded runs, the formula in
   every setting, what it is with options at their ends, exact traffic, what is equal on all
   workers, codecs, overlap, refusals. Method: the formula computed in float32, each operation as
   PyTorch rounds it, so to the bit; and the bits of other methods. Resuming in mid-period and with
   an exchange under way is in tests/engine/state_test.c. */
#include "trial.h"

#include "engine/engine_internal.h"
#include "state/plan.h"

static void expect_same(const trial *a, const trial *b, int n, int steps)
{
    for (int r = 0; r < n; r++)
        for (int s = 0; s < steps; s++)
            if (!trial_same(a, a->x[r][s], b->x[r][s]))
                fail_msg("%s is not %s on %d: worker %d differs after step %d", a->method, b->method, n, r, s + 1);
}

static void expect_alike(const char *one, const char *other, const char *optimizer, int n, int steps)
{
    trial a = trial_of(one, optimizer, steps), b = trial_of(other, optimizer, steps);

    trial_run(&a, n);
    trial_run(&b, n);
    expect_same(&a, &b, n, steps + 1);
    trial_drop(&a);
    trial_drop(&b);
}

/* ---- torchft's recorded runs ---- */

/* Two layers of one weight, both 1. Inner step: p -= 1 x 2. Outer: plain SGD, rate 2, an update a
   layer. H = 6, so a layer is exchanged every 3 steps, layer 0 first. */
enum { RECORDED = 15 };
typedef struct recorded {
    char method[120];
    const char *theta_name;
    float x[2][RECORDED + 1], theta[2][RECORDED + 1]; /* of worker 1, after each step */
} recorded;

static void fill_ones(void *user, int tensor, float *values)
{
    (void)user, (void)tensor;
    values[0] = 1;
}

static const float *state_of(const tutti_method *m, const char *name)
{
    const tutti_engine *e = m->engine;

    for (size_t k = 0; k < tutti_plan_count(e->plan); k++) {
        void *memory;
        if (strcmp(tutti_plan_state(e->plan, k, &memory)->name, name) == 0)
            return memory;
    }
    return NULL;
}

static tutti_status record_steps(recorded *t, tutti_engine *e, tutti_error *err)
{
    const tutti_method *m = tutti_engine_method(e);

    for (int s = 0; s <= RECORDED; s++) {
        tutti_pass p;
        tutti_status status = TUTTI_OK;
        for (int k = 0; k < 2 && m->rank == 1; k++) {
            const tutti_tensor *tensor = &m->layout->tensor[k];
            const int layer = tensor->name[7] - '0';
            t->x[layer][s] = m->x[tensor->first];
            t->theta[layer][s] = state_of(m, "diloco.theta")[tensor->first];
        }
        while (s < RECORDED && (status = tutti_engine_pass_begin(e, &p, err)) == TUTTI_OK) {
            for (int k = 0; k < 2; k++) {
                m->g[m->layout->tensor[k].first] = 2;
                TUTTI_TRY(tutti_engine_grad_ready(e, k, err));
            }
            TUTTI_TRY(tutti_engine_pass_end(e, 0, err));
        }
        if (status == TUTTI_CLOSED)
            status = tutti_engine_step(e, err);
        TUTTI_TRY(status);
    }
    return TUTTI_OK;
}

static tutti_status record_rank(tutti_world *world, void *arg, tutti_error *err)
{
    const tutti_param params[2] = { { .name = "layers.1.weight", .dims = 1, .dim = { 1 }, .unit = 1 },
                                    { .name = "layers.0.weight", .dims = 1, .dim = { 1 }, .unit = 0 } };
    recorded *t = arg;
    const tutti_engine_options options = {
        .method = t->method, .optimizer = "sgd(lr=1)", .batch = 1, .initial = fill_ones,
    };
    tutti_engine *e;
    tutti_status status;

    TUTTI_TRY(tutti_engine_open(&e, world, params, 2, &options, err));
    status = record_steps(t, e, err);
    tutti_engine_close(e);
    return status;
}

/* Values after 0 ... 15 steps, as in the six files diloco_mocked_updates_0 ... 5. All numbers are
   small and dyadic. theta: values after the steps in which it changed (3, 6, 9, 12, 15). */
static void recorded_runs_of_torchft_replay_to_the_bit(void **state)
{
    static const struct { int delay; double mix; } cases[] = { { 0, 0 }, { 0, 0.5 }, { 0, 1 },
                                                               { 1, 0 }, { 1, 0.5 }, { 1, 1 } };
    static const float case_0[2][RECORDED + 1] = {
        { 1, -1, -3, -11, -13, -15, -17, -19, -21, -35, -37, -39, -41, -43, -45, -59 },
        { 1, -1, -3, -5, -7, -9, -23, -25, -27, -29, -31, -33, -47, -49, -51, -53 },
    };
    static const float theta_2[3] = { -11, -23, -23 }, theta_5[3] = { -7, -19, -23 }; /* layer 0, 1, 0 */

    (void)state;
    for (int c = 0; c < 6; c++) {
        recorded t = { .method = "" };
        tutti_error err = { .rank = -1 };
        float x[2] = { 1, 1 }, theta[2] = { 1, 1 }, moved[2] = { 0, 0 };
        snprintf(t.method, sizeof t.method, "diloco(period=6,fragments=2,delay=%d,mix=%g,outer=sgd(lr=2))",
                 cases[c].delay, cases[c].mix);
        if (tutti_world_run("shm", 2, record_rank, &t, &err) != TUTTI_OK)
            fail_msg("%s: %s", t.method, err.text);
        for (int s = 1; s <= RECORDED; s++) { /* the sheet of fifteen lines that reproduces the files */
            const int p = (s - 1) / 3 % 2;
            x[0] -= 2, x[1] -= 2;
            if ((s + cases[c].delay) % 3 == 0)
                moved[p] = theta[p] - x[p];
            if (s % 3 == 0) {
                theta[p] -= 2 * moved[p];
                x[p] = theta[p] + (float)cases[c].mix * (x[p] - theta[p]);
            }
            for (int layer = 0; layer < 2; layer++) {
                assert_true(t.x[layer][s] == x[layer] && t.theta[layer][s] == theta[layer]);
                assert_true(c != 0 || x[layer] == case_0[layer][s]);
                assert_true(cases[c].mix != 1 || x[layer] == 1 - 2 * (float)s);
            }
        }
        assert_true(c != 3 || t.x[0][3] == -7);
        assert_true(c != 4 || t.x[0][3] == -6);
        for (int k = 0; k < 3; k++)
            assert_true((c != 2 || t.theta[k % 2][3 * k + 3] == theta_2[k]) &&
                        (c != 5 || t.theta[k % 2][3 * k + 3] == theta_5[k]));
    }
}

/* ---- the formula ---- */

typedef struct setting {
    const char *method;
    int period, fragments, delay, warmup;
    float mix, lr, momentum;
    bool nesterov;
    int part[TRIAL_TENSORS];                /* the fragment of each tensor */
    bool samples;                /* weights=samples */
} setting;

static int64_t samples_of[TRIAL_RANKS][TRIAL_STEPS];

/* What a displacement is multiplied by that covers `steps` steps up to `last`. */
static float weight_of(int rank, int n, int last, int steps)
{
    double mine = 0, all = 0;

    for (int r = 0; r < n; r++)
        for (int s = last - steps + 1; s <= last; s++) {
            all += s < 0 ? 0 : (double)samples_of[r][s];
            mine += s < 0 || r != rank ? 0 : (double)samples_of[r][s];
        }
    return (float)(n * mine / all);
}

/* tensor 0 is the last layer */
static const setting settings[] = {
    { "diloco(period=4)", 4, 1, 0, 0, 0, 0.7f, 0.9f, true, { 0 } },
    { "diloco(period=3,mix=0.25)", 3, 1, 0, 0, 0.25f, 0.7f, 0.9f, true, { 0 } },
    { "diloco(period=4,delay=3,mix=0.75)", 4, 1, 3, 0, 0.75f, 0.7f, 0.9f, true, { 0 } },
    { "diloco(period=6,fragments=3)", 6, 3, 0, 0, 0, 0.7f, 0.9f, true, { 2, 1, 0 } },
    { "diloco(period=6,fragments=3,order=strided,delay=1,mix=0.5)", 6, 3, 1, 0, 0.5f, 0.7f, 0.9f, true, { 2, 1, 0 } },
    { "diloco(period=6,fragments=2,delay=2)", 6, 2, 2, 0, 0, 0.7f, 0.9f, true, { 1, 0, 0 } },
    { "diloco(period=4,fragments=2,order=strided,warmup=3)", 4, 2, 0, 3, 0, 0.7f, 0.9f, true, { 0, 1, 0 } },
    { "diloco(period=4,fragments=2,order=strided,delay=1,outer=sgd(lr=0.5,momentum=0.8))", 4, 2, 1, 0, 0, 0.5f, 0.8f,
      false, { 0, 1, 0 } },
    { "diloco(period=2,fragments=2,mix=0.3,outer=sgd(lr=0.9))", 2, 2, 0, 0, 0.3f, 0.9f, 0, false, { 1, 0, 0 } },
    { "diloco(period=3,fragments=3,outer=sgd(lr=0.9,momentum=0.5))", 3, 3, 0, 0, 0, 0.9f, 0.5f, false, { 2, 1, 0 } },
    { "diloco(period=3,delay=1,warmup=2)", 3, 1, 1, 2, 0, 0.7f, 0.9f, true, { 0 } },
};

static float lerp_of(float a, float from, float to)
{
    return a < 0.5f ? fmaf(a, to - from, from) : fmaf(a - 1, to - from, to);
}

/* The mean over n workers, a power of two: the tree's sum; the division is exact. */
static float mean_of(const float *x, int n)
{
    float sum[TRIAL_RANKS];

    memcpy(sum, x, (size_t)n * sizeof *x);
    for (int width = n; width > 1; width /= 2)
        for (int r = 0; r < width / 2; r++)
            sum[r] = sum[2 * r] + sum[2 * r + 1];
    return sum[0] / (float)n;
}

/* One element over all steps; expect[r][s]: what worker r has after step s + 1. */
static void follow(const setting *c, const trial *t, int n, size_t i, int part, float expect[][TRIAL_STEPS])
{
    const int every = c->period / c->fragments;
    float x[TRIAL_RANKS], theta = trial_initial_value(i), v = 0, d = 0, each[TRIAL_RANKS];

    for (int r = 0; r < n; r++)
        x[r] = theta;
    for (int s = 0; s < t->steps; s++) {
        const int done = s + 1 - c->warmup;
        for (int r = 0; r < n; r++)
            each[r] = c->samples && samples_of[r][s] == 0 ? 0 : t->gradient(r, (uint64_t)s, i, x[r]);
        for (int r = 0; r < n; r++) /* in the warm-up the mean gradient, as ddp */
            x[r] = fmaf(-0.125f, done <= 0 ? mean_of(each, n) : each[r], x[r]);
        for (int r = 0; r < n; r++)
            each[r] = theta - x[r];
        if (done <= 0)
            theta = x[0];
        if (done > 0 && (done + c->delay) % every == 0 && ((done + c->delay) / every - 1) % c->fragments == part) {
            for (int r = 0; r < n && c->samples; r++)
                each[r] *= weight_of(r, n, s, done < c->period ? done : c->period);
            d = mean_of(each, n);
        }
        if (done > 0 && done % every == 0 && (done / every - 1) % c->fragments == part) {
            v = c->momentum * v + d;
            theta = fmaf(-c->lr, c->momentum == 0 ? d : c->nesterov ? fmaf(c->momentum, v, d) : v, theta);
            for (int r = 0; r < n; r++)
                x[r] = c->mix == 0 ? theta : lerp_of(c->mix, theta, x[r]);
        }
        for (int r = 0; r < n; r++)
            expect[r][s] = x[r];
    }
}

static void expect_formula(const setting *c, trial *t, int n)
{
    static float expect[TRIAL_RANKS][TRIAL_STEPS];

    for (size_t i = 0; i < trial_size(t); i += 3) {
        const int tensor = i < t->count[0] ? 0 : i < t->count[0] + t->count[1] ? 1 : 2;
        follow(c, t, n, i, c->part[tensor], expect);
        for (int r = 0; r < n; r++)
            for (int s = 0; s < t->steps; s++)
                if (memcmp(&t->x[r][s][i], &expect[r][s], sizeof(float)) != 0)
                    fail_msg("%s on %d: element %zu of worker %d after step %d is %.9g and not %.9g", t->method, n,
                             i, r, s + 1, (double)t->x[r][s][i], (double)expect[r][s]);
    }
}

static void every_setting_is_the_formula_to_the_bit(void **state)
{
    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(settings); c++)
        for (int n = 1; n <= 4; n *= 2) {
            trial t = trial_of(settings[c].method, "sgd(lr=0.125)", TRIAL_STEPS);
            t.gradient = trial_rough;
            trial_run(&t, n);
            expect_formula(&settings[c], &t, n);
            trial_drop(&t);
        }
}

/* ---- overlap of whole rounds ---- */

typedef struct overlapping {
    const char *method;
    int period, fragments, warmup;
    bool eager;
    float lr, momentum;
    bool nesterov;
    int part[TRIAL_TENSORS];
} overlapping;

static const overlapping overlaps[] = {
    { "diloco(period=3,overlap=eager)", 3, 1, 0, true, 0.7f, 0.9f, true, { 0 } },
    { "diloco(period=3,overlap=delayed)", 3, 1, 0, false, 0.7f, 0.9f, true, { 0 } },
    { "diloco(period=1,overlap=eager,warmup=2,outer=sgd(lr=0.4,momentum=0.8))", 1, 1, 2, true, 0.4f, 0.8f, false,
      { 0 } },
    { "diloco(period=1,overlap=delayed,outer=none)", 1, 1, 0, false, 1, 0, false, { 0 } },
    { "diloco(period=6,fragments=3,overlap=eager,outer=none)", 6, 3, 0, true, 1, 0, false, { 2, 1, 0 } },
    { "diloco(period=3,fragments=3,overlap=delayed)", 3, 3, 0, false, 0.7f, 0.9f, true, { 2, 1, 0 } },
    { "diloco(period=4,fragments=2,order=strided,overlap=eager,warmup=3)", 4, 2, 3, true, 0.7f, 0.9f, true,
      { 0, 1, 0 } },
};

/* One element over all steps. Each worker has a theta and v of its own; delayed, they are equal. */
static void follow_overlap(const overlapping *c, const trial *t, int n, size_t i, int part,
                           float expect[][TRIAL_STEPS])
{
    const int every = c->period / c->fragments;
    float x[TRIAL_RANKS], theta[TRIAL_RANKS], v[TRIAL_RANKS] = { 0 }, own[TRIAL_RANKS] = { 0 }, each[TRIAL_RANKS],
        mean = 0;

    for (int r = 0; r < n; r++)
        theta[r] = x[r] = trial_initial_value(i);
    for (int s = 0; s < t->steps; s++) {
        const int done = s + 1 - c->warmup, k = done / every - 1;
        for (int r = 0; r < n; r++)
            each[r] = t->gradient(r, (uint64_t)s, i, x[r]);
        for (int r = 0; r < n; r++)
            x[r] = fmaf(-0.125f, done <= 0 ? mean_of(each, n) : each[r], x[r]);
        for (int r = 0; r < n && done <= 0; r++)
            theta[r] = x[r];
        if (done > 0 && done % every == 0 && k % c->fragments == part) {
            for (int r = 0; r < n; r++) {
                float d = theta[r] - x[r], u = mean;
                each[r] = d;
                if (c->eager)
                    u = ((mean * (float)n - own[r]) + d) * (1 / (float)n);
                own[r] = d;
                if (c->eager || k >= c->fragments) {
                    v[r] = c->momentum * v[r] + u;
                    u = c->momentum == 0 ? u : c->nesterov ? fmaf(c->momentum, v[r], u) : v[r];
                    theta[r] = fmaf(-c->lr, u, theta[r]);
                }
                x[r] = theta[r];
            }
            mean = mean_of(each, n);
        }
        for (int r = 0; r < n; r++)
            expect[r][s] = x[r];
    }
}

static void overlap_is_the_formula_to_the_bit(void **state)
{
    static float expect[TRIAL_RANKS][TRIAL_STEPS];

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(overlaps); c++)
        for (int n = 1; n <= 4; n *= 2) {
            trial t = trial_of(overlaps[c].method, "sgd(lr=0.125)", TRIAL_STEPS);
            t.gradient = trial_rough;
            trial_run(&t, n);
            for (size_t i = 0; i < trial_size(&t); i += 3) {
                const int tensor = i < t.count[0] ? 0 : i < t.count[0] + t.count[1] ? 1 : 2;
                follow_overlap(&overlaps[c], &t, n, i, overlaps[c].part[tensor], expect);
                for (int r = 0; r < n; r++)
                    for (int s = 0; s < t.steps; s++)
                        if (memcmp(&t.x[r][s][i], &expect[r][s], sizeof(float)) != 0)
                            fail_msg("%s on %d: element %zu of worker %d after step %d is %.9g and not %.9g",
                                     t.method, n, i, r, s + 1, (double)t.x[r][s][i], (double)expect[r][s]);
            }
            trial_drop(&t);
        }
}

/* With one worker no displacement is late. */
static void one_eager_worker_waits_for_none(void **state)
{
    (void)state;
    expect_alike("diloco(period=3,overlap=eager)", "diloco(period=3)", "adamw(lr=0.01)", 1, 12);
    expect_alike("diloco(period=4,fragments=2,overlap=eager,outer=adam(lr=0.01))",
                 "diloco(period=4,fragments=2,outer=adam(lr=0.01))", "sgd(lr=0.1,momentum=0.9)", 1, 12);
}

/* Displacements that are the same in every round: delayed is diloco a round later; eager models
   are apart by their own part of the last round, which does not add up. All numbers are dyadic. */
static void constant_displacements_show_who_is_late(void **state)
{
    (void)state;
    for (int n = 1; n <= 8; n *= 2) {
        trial plain = trial_of("diloco(period=2,outer=sgd(lr=0.5,momentum=0.5))", "sgd(lr=0.25)", 12),
              delayed = trial_of("diloco(period=2,overlap=delayed,outer=sgd(lr=0.5,momentum=0.5))", "sgd(lr=0.25)", 12),
              eager = trial_of("diloco(period=2,overlap=eager,outer=sgd(lr=0.5))", "sgd(lr=0.25)", 12);
        plain.gradient = delayed.gradient = eager.gradient = trial_constant;
        trial_run(&plain, n);
        trial_run(&delayed, n);
        trial_run(&eager, n);
        for (int s = 2; s < 12; s++)
            for (int r = 0; r < n; r++)
                assert_true(trial_same(&plain, delayed.x[r][s], plain.x[r][s - 2]));
        for (int s = 1; s < 12; s += 2)
            for (int r = 0; r < n; r++)
                for (size_t i = 0; i < trial_size(&eager); i++) {
                    const float apart = 0.5f * (trial_constant(r, 0, i, 0) - trial_constant(0, 0, i, 0));
                    assert_true(eager.x[r][s][i] - eager.x[0][s][i] == -0.5f / (float)n * apart);
                }
        trial_drop(&plain);
        trial_drop(&delayed);
        trial_drop(&eager);
    }
}

/* Which shows in an optimiser that counts its updates. */
static void the_first_delayed_round_makes_no_update(void **state)
{
    (void)state;
    for (int n = 1; n <= 3; n += 2) {
        trial a = trial_of("diloco(period=2,outer=adam(lr=0.01))", "sgd(lr=0.1)", 4),
              b = trial_of("diloco(period=2,overlap=delayed,outer=adam(lr=0.01))", "sgd(lr=0.1)", 4);
        trial_run(&a, n);
        trial_run(&b, n);
        for (int r = 0; r < n; r++)
            assert_true(trial_same(&a, b.x[r][3], a.x[r][1]));
        trial_drop(&a);
        trial_drop(&b);
    }
}

/* What is sent is what diloco sends; an eager run's models differ at the end, and are averaged. */
static void overlap_sends_what_diloco_sends(void **state)
{
    (void)state;
    for (int n = 2; n <= 4; n++) {
        trial plain = trial_of("diloco(period=3)", "sgd(lr=0.1)", 12),
              delayed = trial_of("diloco(period=3,overlap=delayed)", "sgd(lr=0.1)", 12),
              eager = trial_of("diloco(period=3,overlap=eager)", "sgd(lr=0.1)", 12);
        trial_run(&plain, n);
        trial_run(&delayed, n);
        trial_run(&eager, n);
        for (int r = 0; r < n; r++)
            for (int to = 0; to < n; to++) {
                assert_int_equal(delayed.bytes[r][to], plain.bytes[r][to]);
                assert_int_equal(delayed.messages[r][to], plain.messages[r][to]);
                assert_int_equal(4 * eager.bytes[r][to], 5 * plain.bytes[r][to]);
                assert_int_equal(4 * eager.messages[r][to], 5 * plain.messages[r][to]);
            }
        trial_drop(&plain);
        trial_drop(&delayed);
        trial_drop(&eager);
    }
}

/* ---- weights ---- */

static tutti_status note_samples(trial *t, int rank, const tutti_pass *p, tutti_error *err)
{
    (void)err;
    samples_of[rank][t->done[rank]] = p->samples;
    return TUTTI_OK;
}

/* The end of an epoch leaves workers unequally many samples, some none. */
static void weights_by_samples_are_the_formula_to_the_bit(void **state)
{
    static const setting weighted[] = {
        { "diloco(period=3,weights=samples)", 3, 1, 0, 0, 0, 0.7f, 0.9f, true, { 0 }, true },
        { "diloco(period=4,delay=3,mix=0.75,weights=samples)", 4, 1, 3, 0, 0.75f, 0.7f, 0.9f, true, { 0 }, true },
        { "diloco(period=6,fragments=3,order=strided,delay=1,mix=0.5,weights=samples)", 6, 3, 1, 0, 0.5f, 0.7f, 0.9f,
          true, { 2, 1, 0 }, true },
        { "diloco(period=2,fragments=2,warmup=2,weights=samples)", 2, 2, 0, 2, 0, 0.7f, 0.9f, true, { 1, 0, 0 }, true },
    };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(weighted); c++)
        for (int n = 1; n <= 4; n *= 2) {
            trial t = trial_of(weighted[c].method, "sgd(lr=0.125)", TRIAL_STEPS);
            t.gradient = trial_rough;
            t.options.data_samples = n == 4 ? 19 : 9;
            t.look = note_samples;
            trial_run(&t, n);
            assert_true(n < 4 || samples_of[0][2] != samples_of[3][2]);
            expect_formula(&weighted[c], &t, n);
            trial_drop(&t);
        }
}

/* Then a displacement is multiplied by 1; what is sent more are the numbers of samples. */
static void equal_samples_weigh_nothing(void **state)
{
    static const struct { const char *plain, *weighted, *codec; int exchanges; } cases[] = {
        { "diloco(period=3)", "diloco(period=3,weights=samples)", NULL, 4 },
        { "diloco(period=4,outer=none)", "diloco(period=4,outer=none,weights=samples)", NULL, 3 },
        { "diloco(period=6,fragments=3,delay=1,mix=0.5)", "diloco(period=6,fragments=3,delay=1,mix=0.5,weights=samples)",
          "ef(topk(ratio=0.3))", 6 },
    };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(cases); c++)
        for (int n = 1; n <= 5; n += 2) {
            trial a = trial_of(cases[c].plain, "sgd(lr=0.1,momentum=0.9)", 12),
                  b = trial_of(cases[c].weighted, "sgd(lr=0.1,momentum=0.9)", 12);
            a.gradient = b.gradient = trial_rough;
            a.options.codec = b.options.codec = cases[c].codec;
            trial_run(&a, n);
            trial_run(&b, n);
            expect_same(&a, &b, n, 13);
            for (int r = 0; r < n; r++) {
                uint64_t more = 0;
                for (int to = 0; to < n; to++)
                    more += b.bytes[r][to] - a.bytes[r][to];
                assert_int_equal(more, cases[c].exchanges * 8 * (n - 1));
            }
            trial_drop(&a);
            trial_drop(&b);
        }
}

/* ---- what it is with options at their ends ---- */

#define NESTEROV "outer=sgd(lr=0.7,momentum=0.9,nesterov=true)"

static void one_fragment_without_delay_is_local_sgd_bit_for_bit(void **state)
{
    static const struct { const char *diloco, *local, *optimizer, *codec; } cases[] = {
        { "diloco(period=3)", "local-sgd(period=3," NESTEROV ")", "sgd(lr=0.1,momentum=0.9)" },
        { "diloco(period=2,warmup=3)", "local-sgd(period=2,warmup=3," NESTEROV ")", "adamw(lr=0.01)" },
        { "diloco(period=3,outer=adam(lr=0.01))", "local-sgd(period=3,outer=adam(lr=0.01))", "sgd(lr=0.1)" },
        { "diloco(period=4,outer=none)", "local-sgd(period=4)", "adam(lr=0.01)" },
        { "diloco(period=3)", "local-sgd(period=3," NESTEROV ")", "sgd(lr=0.1)", "ef(topk(ratio=0.3))" },
        { "diloco(period=2)", "local-sgd(period=2," NESTEROV ")", "sgd(lr=0.1)", "int8" },
        { "diloco(period=2,outer=none)", "local-sgd(period=2)", "sgd(lr=0.1)", "fp16" },
    };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(cases); c++)
        for (int n = 1; n <= 5; n += 2) {
            trial a = trial_of(cases[c].diloco, cases[c].optimizer, 10),
                  b = trial_of(cases[c].local, cases[c].optimizer, 10);
            a.gradient = b.gradient = trial_rough;
            a.options.codec = b.options.codec = cases[c].codec;
            a.options.lr_schedule = b.options.lr_schedule = "cosine";
            a.options.steps = b.options.steps = 10;
            trial_run(&a, n);
            trial_run(&b, n);
            expect_same(&a, &b, n, 11);
            for (int r = 0; r < n; r++)
                for (int to = 0; to < n; to++)
                    assert_int_equal(a.bytes[r][to], b.bytes[r][to]);
            trial_drop(&a);
            trial_drop(&b);
        }
}

/* Dyadic numbers: sums are exact, so that x = theta - (theta - x). */
static void period_one_with_a_plain_outer_step_is_averaging(void **state)
{
    (void)state;
    for (int n = 1; n <= 8; n *= 2) {
        trial a = trial_of("diloco(period=1,outer=sgd(lr=1))", "sgd(lr=0.25)", 5),
              b = trial_of("local-sgd(period=1)", "sgd(lr=0.25)", 5), c = trial_of("ddp", "sgd(lr=0.25)", 5);
        a.gradient = b.gradient = c.gradient = trial_constant;
        trial_run(&a, n);
        trial_run(&b, n);
        trial_run(&c, n);
        expect_same(&a, &b, n, 6);
        expect_same(&a, &c, n, 6);
        trial_drop(&a);
        trial_drop(&b);
        trial_drop(&c);
    }
}

static void one_worker_without_an_outer_step_is_single(void **state)
{
    (void)state;
    expect_alike("diloco(period=3,outer=none)", "single", "adamw(lr=0.01)", 1, 8);
    expect_alike("diloco(period=6,fragments=3,outer=none)", "single", "sgd(lr=0.1,momentum=0.9)", 1, 8);
    expect_alike("diloco(period=6,fragments=3,delay=1,mix=1)", "single", "sgd(lr=0.1,momentum=0.9)", 1, 8);
}

static void equal_workers_are_one_worker(void **state)
{
    static const char *const methods[] = { "diloco(period=3)", "diloco(period=4,fragments=2,delay=1,mix=0.5)" };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(methods); k++)
        for (int n = 2; n <= 8; n *= 2) {
            trial a = trial_of(methods[k], "sgd(lr=0.1)", 9), b = trial_of(methods[k], "sgd(lr=0.1)", 9);
            a.gradient = b.gradient = trial_alike;
            trial_run(&a, n);
            trial_run(&b, 1);
            for (int r = 0; r < n; r++)
                for (int s = 0; s < 9; s++)
                    assert_true(trial_same(&a, a.x[r][s], b.x[0][s]));
            trial_drop(&a);
            trial_drop(&b);
        }
}

/* mix 1: x is that of workers that never meet; the common model moves all the same. */
static void with_mix_one_workers_never_meet(void **state)
{
    (void)state;
    for (int n = 2; n <= 3; n++) {
        trial a = trial_of("diloco(period=2,fragments=2,mix=1)", "sgd(lr=0.1)", 8),
              b = trial_of("local-sgd(period=1000)", "sgd(lr=0.1)", 8);
        trial_run(&a, n);
        trial_run(&b, n);
        expect_same(&a, &b, n, 9);
        assert_true(trial_metric(&a, "displacement", -1) > 0);
        trial_drop(&a);
        trial_drop(&b);
    }
}

/* ---- traffic ---- */

static size_t slice(size_t count, int size, int i)
{
    return count / (size_t)size + ((size_t)i < count % (size_t)size);
}

/* After each exchange, and so at one time: one fragment's all-reduce, 2 (n - 1) 4 d_p bytes in all,
   of each pair two messages a range of tensors. Fragments of equal layers are model / P. */
static void traffic_is_one_fragment_all_reduce_at_a_time(void **state)
{
    enum { LAYER = 40000 };
    static const struct { const char *method; int every, fragments, delay, ranges[3]; size_t count[3]; } cases[] = {
        { "diloco(period=2)", 2, 1, 0, { 1 }, { 3 * LAYER } },
        { "diloco(period=6,fragments=3)", 2, 3, 0, { 1, 1, 1 }, { LAYER, LAYER, LAYER } },
        { "diloco(period=6,fragments=3,delay=1)", 2, 3, 1, { 1, 1, 1 }, { LAYER, LAYER, LAYER } },
        { "diloco(period=4,fragments=2,order=strided)", 2, 2, 0, { 2, 1 }, { 2 * LAYER, LAYER } },
    };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(cases); c++)
        for (int n = 1; n <= 4; n++) {
            uint64_t before[TRIAL_RANKS][TRIAL_RANKS] = { { 0 } }, sent[TRIAL_RANKS][TRIAL_RANKS] = { { 0 } };
            for (int k = 0; k < 4; k++) {
                const int p = k % cases[c].fragments, ranges = cases[c].ranges[p];
                const size_t d = cases[c].count[p];
                trial t = trial_of(cases[c].method, "sgd(lr=0.1)", cases[c].every * (k + 1));
                uint64_t total = 0;
                t.count[0] = t.count[1] = t.count[2] = LAYER;
                trial_run(&t, n);
                assert_true(trial_metric(&t, "fragment_bytes", -1) ==
                            (cases[c].ranges[0] == 2 ? 8.0 * LAYER : 12.0 * LAYER / cases[c].fragments));
                for (int r = 0; r < n; r++)
                    for (int to = 0; to < n; to++) {
                        const uint64_t now = t.bytes[r][to] - (cases[c].fragments > 1 ? 4 * (slice(3 * LAYER, n, r) +
                                                                                            slice(3 * LAYER, n, to))
                                                                                      : 0) * (r != to),
                                       here = now - before[r][to];
                        if (r == to)
                            continue;
                        total += here;
                        assert_true(here + 256 >= 4 * (slice(d, n, r) + slice(d, n, to)) &&
                                    here <= 4 * (slice(d, n, r) + slice(d, n, to)) + 256);
                        assert_int_equal(t.messages[r][to] - sent[r][to],
                                         2 * ranges + (k == 0 && cases[c].fragments > 1 ? 2 : 0));
                        before[r][to] = now;
                        sent[r][to] = t.messages[r][to];
                    }
                assert_int_equal(total, 2 * (uint64_t)(n - 1) * 4 * d);
                trial_drop(&t);
            }
        }
}

/* ---- what is equal on all workers ---- */

static const tutti_method_ops *base_row;
static uint64_t common[TRIAL_RANKS][TRIAL_STEPS];

static tutti_status step_and_look(tutti_method *m, tutti_error *err)
{
    const float *theta = state_of(m, "diloco.theta"), *v = state_of(m, "diloco.outer.momentum");

    TUTTI_TRY(base_row->step(m, err));
    common[m->rank][m->step] = tutti_hash(theta, m->n * sizeof *theta) ^ 3 * tutti_hash(v, m->n * sizeof *v);
    return TUTTI_OK;
}

static void common_model_and_momentum_are_equal_on_all_workers(void **state)
{
    static const struct { const char *method, *codec; int equal; } cases[] = { /* equal: of `equal` steps x is, too */
        { "diloco(period=3)", NULL, 3 }, { "diloco(period=3)", "ef(topk(ratio=0.3))", 3 },
        { "diloco(period=3,overlap=delayed)", "ef(topk(ratio=0.3))", 3 },
        { "diloco(period=3,delay=2)", "ef(topk(ratio=0.3))", 3 }, { "diloco(period=4,fragments=2,delay=1)", NULL, 0 },
        { "diloco(period=4,fragments=2,delay=1,mix=0.5)", "ef(int8)", 0 },
    };
    tutti_method_ops row = *tutti_method_find("diloco");
    const tutti_method_ops *const rows[] = { &row, NULL };

    (void)state;
    base_row = tutti_method_find("diloco");
    row.step = step_and_look;
    for (size_t c = 0; c < TUTTI_LENGTH(cases); c++)
        for (int n = 2; n <= 5; n += 3) {
            trial t = trial_of(cases[c].method, "sgd(lr=0.1,momentum=0.9)", 12);
            t.methods = rows;
            t.gradient = trial_rough;
            t.options.codec = cases[c].codec;
            trial_run(&t, n);
            for (int s = 0; s < 12; s++)
                for (int r = 1; r < n; r++) {
                    assert_int_equal(common[r][s], common[0][s]);
                    assert_true(trial_same(&t, t.x[0][s], t.x[r][s]) ==
                                (cases[c].equal > 0 && (s + 1) % cases[c].equal == 0));
                }
            for (int r = 1; r < n; r++) /* agreed on at the end */
                assert_true(trial_same(&t, t.x[0][12], t.x[r][12]));
            assert_true(common[0][11] != common[0][0]);
            trial_drop(&t);
        }
}

/* ---- overlap ---- */

static void threads_and_evaluations_change_no_bit(void **state)
{
    static const struct { const char *method, *codec; } cases[] = {
        { "diloco(period=4,delay=3)", NULL },
        { "diloco(period=6,fragments=3,order=strided,delay=1,mix=0.5)", NULL },
        { "diloco(period=4,fragments=2,delay=1)", "ef(topk(ratio=0.3))" }, /* a residual that follows the rate */
        { "diloco(period=6,fragments=2,delay=2,mix=0.25)", "ef(powersgd(rank=1))" },
        { "diloco(period=3,overlap=eager)", "ef(topk(ratio=0.3))" },
        { "diloco(period=4,fragments=2,overlap=eager)", NULL },
        { "diloco(period=4,fragments=2,overlap=delayed,weights=samples)", "ef(powersgd(rank=1))" },
    };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(cases); c++)
        for (int n = 1; n <= 3; n += 2) {
            trial all[3];
            for (int k = 0; k < 3; k++) {
                all[k] = trial_of(cases[c].method, "sgd(lr=0.1,momentum=0.9)", 13);
                all[k].gradient = trial_rough;
                all[k].options.codec = cases[c].codec;
                all[k].options.lr_schedule = "cosine";
                all[k].options.steps = 13;
                all[k].options.lane = k == 1 ? -1 : 1;
                all[k].show = k == 2;
                trial_run(&all[k], n);
            }
            expect_same(&all[0], &all[1], n, 14);
            expect_same(&all[0], &all[2], n, 14);
            for (int k = 0; k < 3; k++)
                trial_drop(&all[k]);
        }
}

static void displacements_travel_through_the_codec(void **state)
{
    static const char *const exact[] = { "fp32", "topk(ratio=1)", "ef(topk(ratio=1))",
                                         "ef(chunk-topk(topk=16384,value_dtype=fp32),decay=0.95)" };

    (void)state;
    for (int n = 2; n <= 3; n++) {
        trial plain = trial_of("diloco(period=4,fragments=2,delay=1)", "sgd(lr=0.1)", 12),
              lossy = trial_of("diloco(period=4,fragments=2,delay=1)", "sgd(lr=0.1)", 12);
        uint64_t sent = 0;
        trial_run(&plain, n);
        for (size_t c = 0; c < TUTTI_LENGTH(exact); c++) {
            trial t = trial_of("diloco(period=4,fragments=2,delay=1)", "sgd(lr=0.1)", 12);
            t.options.codec = exact[c];
            trial_run(&t, n);
            for (int s = 0; s <= 12; s++)
                assert_true(trial_apart(&t, t.x[0][s], plain.x[0][s]) < 2e-6);
            trial_drop(&t);
        }
        lossy.options.codec = "ef(topk(ratio=0.3))";
        trial_run(&lossy, n);
        for (int r = 0; r < n; r++)
            for (int to = 0; to < n; to++)
                sent += lossy.bytes[r][to] - (r != to) * 4 * (slice(1533, n, r) + slice(1533, n, to));
        /* three times both fragments, 8 bytes an element that is kept, to all others */
        assert_true(sent + 512 >= 3 * (uint64_t)n * (uint64_t)(n - 1) * 8 * (300 + 10 + 150) &&
                    sent <= 3 * (uint64_t)n * (uint64_t)(n - 1) * 8 * (300 + 10 + 150) + 512);
        assert_true(trial_apart(&lossy, lossy.x[0][11], plain.x[0][11]) > 1e-4);
        trial_drop(&plain);
        trial_drop(&lossy);
    }
}

/* SparseLoCo: no outer optimiser; of each tensor its cells' greatest elements, two bits each. Of
   cells of 50 at most five are sent with indexes of six bits: 20 cells, one, and 10. Each worker
   sends its messages to all others. */
static void sparseloco_sends_the_bytes_of_its_formula(void **state)
{
    enum { MESSAGES = (16 + 25 + 75) + (16 + 2 + 4) + (16 + 13 + 38), ROUNDS = 3 };

    (void)state;
    for (int n = 2; n <= 3; n++) {
        trial sparse = trial_of("diloco(period=4,outer=none)", "sgd(lr=0.1)", 4 * ROUNDS),
              outer = trial_of("diloco(period=4,outer=sgd(lr=1))", "sgd(lr=0.1)", 4 * ROUNDS),
              plain = trial_of("diloco(period=4,outer=none)", "sgd(lr=0.1)", 4 * ROUNDS);
        uint64_t sent = 0;
        sparse.options.codec = outer.options.codec = "ef(chunk-topk(topk=5,chunk=50),decay=0.95)";
        trial_run(&sparse, n);
        trial_run(&outer, n);
        trial_run(&plain, n);
        for (int r = 0; r < n; r++)
            for (int to = 0; to < n; to++)
                sent += sparse.bytes[r][to];
        assert_true(sent >= ROUNDS * (uint64_t)n * (uint64_t)(n - 1) * MESSAGES &&
                    sent <= ROUNDS * (uint64_t)n * (uint64_t)(n - 1) * MESSAGES + 512);
        for (int s = 0; s < 4 * ROUNDS; s++)
            for (int r = 0; r < n; r++) {
                assert_true(trial_apart(&sparse, sparse.x[r][s], outer.x[r][s]) < 1e-5);
                if (s % 4 == 3) /* all have the common model */
                    assert_true(trial_same(&sparse, sparse.x[r][s], sparse.x[0][s]));
            }
        assert_true(trial_apart(&sparse, sparse.x[0][4 * ROUNDS - 1], plain.x[0][4 * ROUNDS - 1]) > 1e-4);
        trial_drop(&sparse);
        trial_drop(&outer);
        trial_drop(&plain);
    }
}

/* The same by owners of tensors, which make up for what their own encoding loses: each message once
   to its owner and from there to all, 2 (n - 1) in place of n (n - 1). */
static void sparseloco_by_owners_sends_as_much_as_two_messages_a_worker(void **state)
{
    enum { MESSAGES = (16 + 25 + 75) + (16 + 2 + 4) + (16 + 13 + 38), ROUNDS = 3 };

    (void)state;
    for (int n = 4; n <= 8; n += 1 + 2 * (n == 5)) {
        trial owners = trial_of("diloco(period=4,outer=none)", "sgd(lr=0.1)", 4 * ROUNDS),
              all = trial_of("diloco(period=4,outer=none)", "sgd(lr=0.1)", 4 * ROUNDS);
        uint64_t sent = 0;
        owners.options.codec = "ef(chunk-topk(topk=5,chunk=50),decay=0.95,server=on)";
        all.options.codec = "ef(chunk-topk(topk=5,chunk=50),decay=0.95)";
        trial_run(&owners, n);
        trial_run(&all, n);
        for (int r = 0; r < n; r++)
            for (int to = 0; to < n; to++)
                sent += owners.bytes[r][to];
        assert_int_equal(sent, 2 * ROUNDS * (uint64_t)(n - 1) * MESSAGES);
        for (int s = 0; s < 4 * ROUNDS; s++)
            for (int r = 0; r < n && s % 4 == 3; r++)
                assert_true(trial_same(&owners, owners.x[r][s], owners.x[0][s]));
        assert_true(trial_apart(&owners, owners.x[0][4 * ROUNDS - 1], all.x[0][4 * ROUNDS - 1]) > 1e-4);
        trial_drop(&owners);
        trial_drop(&all);
    }
}

/* ---- what ends a run ---- */

static float huge_at_worker_one(int rank, uint64_t step, size_t i, float x)
{
    (void)step, (void)x;
    return rank == 1 && i == 1010 ? 35000 : 0.125f;
}

static void numbers_that_are_not_finite_end_the_run(void **state)
{
    static const char *const methods[] = { "diloco(period=2)", "diloco(period=4,delay=2)",
                                           "diloco(period=6,fragments=3,delay=1)" };
    (void)state;
    trial_not_finite("diloco(period=4)", "sgd(lr=0.1)");
    trial_not_finite("diloco(period=4,fragments=2,delay=1,mix=0.5)", "adam(lr=0.1)");
    for (size_t k = 0; k < TUTTI_LENGTH(methods); k++) {
        trial t = trial_of(methods[k], "sgd(lr=1)", 8);
        tutti_error err;
        t.gradient = huge_at_worker_one;
        t.options.codec = "fp16";
        assert_int_equal(trial_try(&t, 3, &err), TUTTI_ERR_NUMBER);
        assert_non_null(strstr(err.text, "worker 1: codec 'fp16' has no number for element 10 of what is sent of b"));
        trial_drop(&t);
    }
}

static void invalid_options_are_rejected(void **state)
{
    static const struct { const char *method, *sentence; } cases[] = {
        { "diloco(period=0)", "'period' is 0; it must be from 1" },
        { "diloco(mix=1.5)", "'mix' is 1.5; it must be from 0 to 1" },
        { "diloco(mix=-0.1)", "'mix' is -0.1; it must be from 0 to 1" },
        { "diloco(delay=-1)", "'delay' is -1; it must be from 0" },
        { "diloco(order=strided)", "order" }, /* without effect */
        { "diloco(overlap=eager,delay=1)", "delay" },
        { "diloco(overlap=delayed,mix=0.5)", "mix" },
        { "diloco(overlap=eager,weights=samples)", "weights" },
        { "diloco(overlap=late)", "overlap" },
        { "diloco(weights=tokens)", "weights" },
        { "diloco(fragments=2,order=random)", "order" },
        { "diloco(fragments=4)",
          "method 'diloco': fragments is 4, but a fragment is one or more of the model's layers with parameters (under "
          "PyTorch: of its parameters), which are 3; give at most that" },
        { "diloco(period=2,fragments=3)",
          "method 'diloco': fragments is 3, but in 2 steps (period) at most as many fragments can be exchanged, one a "
          "step; give fewer fragments, or a longer period" },
        { "diloco(period=100,fragments=3)",
          "method 'diloco': period is 100, no multiple of fragments, 3, so exchanges could not be equally far apart; "
          "give period=99 or 102" },
        { "diloco(period=6,fragments=2,delay=3)",
          "method 'diloco': delay is 3, but the next exchange begins 3 steps (period / fragments) after the last; give "
          "a delay below that, a longer period, or fewer fragments" },
        { "diloco(period=1,delay=1)", "method 'diloco': delay is 1, but the next exchange begins 1 steps" },
        { "diloco(outer=sgdd(lr=1))", "method 'diloco': outer: " },
        { "diloco(fragmens=2)", "did you mean 'fragments'?" },
    };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(cases); c++) {
        trial t = trial_of(cases[c].method, "sgd(lr=0.1)", 1);
        tutti_error err;
        assert_int_equal(trial_try(&t, 2, &err), TUTTI_ERR_USAGE);
        if (strstr(err.text, cases[c].sentence) == NULL)
            fail_msg("%s: %s", cases[c].method, err.text);
        trial_drop(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recorded_runs_of_torchft_replay_to_the_bit),
        cmocka_unit_test(every_setting_is_the_formula_to_the_bit),
        cmocka_unit_test(overlap_is_the_formula_to_the_bit),
        cmocka_unit_test(one_eager_worker_waits_for_none),
        cmocka_unit_test(constant_displacements_show_who_is_late),
        cmocka_unit_test(the_first_delayed_round_makes_no_update),
        cmocka_unit_test(overlap_sends_what_diloco_sends),
        cmocka_unit_test(weights_by_samples_are_the_formula_to_the_bit),
        cmocka_unit_test(equal_samples_weigh_nothing),
        cmocka_unit_test(one_fragment_without_delay_is_local_sgd_bit_for_bit),
        cmocka_unit_test(period_one_with_a_plain_outer_step_is_averaging),
        cmocka_unit_test(one_worker_without_an_outer_step_is_single),
        cmocka_unit_test(equal_workers_are_one_worker),
        cmocka_unit_test(with_mix_one_workers_never_meet),
        cmocka_unit_test(traffic_is_one_fragment_all_reduce_at_a_time),
        cmocka_unit_test(common_model_and_momentum_are_equal_on_all_workers),
        cmocka_unit_test(threads_and_evaluations_change_no_bit),
        cmocka_unit_test(displacements_travel_through_the_codec),
        cmocka_unit_test(sparseloco_sends_the_bytes_of_its_formula),
        cmocka_unit_test(sparseloco_by_owners_sends_as_much_as_two_messages_a_worker),
        cmocka_unit_test(numbers_that_are_not_finite_end_the_run),
        cmocka_unit_test(invalid_options_are_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
