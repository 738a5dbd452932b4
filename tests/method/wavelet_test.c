/* Goal: wavelet is the recursions that its page states, to the bit, however many waves and
   stages, wherever the run is resumed and whatever the order of messages; one wave is ddp; two
   forwards never run at the same time and two micro-batches do; what they hold is what the
   profile predicts; an exchange is hidden by the other wave; what cannot be is refused in a
   sentence. Method: a client whose model is a chain of units that are computed one by one
   (staged.h), compared with each recursion written as one loop over whole gradients; simulated
   time. */
#include "engine/staged.h"
#include "method/follower.h"
#include "scratch.h"
#include "tutti/method/pipeline.h"
#include "collective/world.h"

/* The model at which `like` arrives. */
static void follow(const staged *like, int ranks, int stages, int waves, int mode, int rounds, float x[STAGED_VALUES])
{
    static follower f;

    memset(&f, 0, sizeof f);
    follower_set(&f, &like->options, ranks, stages, waves, mode, rounds);
    assert_true(like->steps <= FOLLOWED_MOST && follower_run(&f, like->steps));
    memcpy(x, f.x[like->steps], sizeof f.more);
}

static void all_have(const staged *r, int ranks, const float *x)
{
    for (int rank = 0; rank < ranks; rank++)
        if (memcmp(r->x[rank], x, sizeof r->x[rank]) != 0)
            fail_msg("%s on %d ranks: rank %d has other values", r->options.method, ranks, rank);
}

static bool simulates(void)
{
    return tutti_world_check("sim", NULL) == TUTTI_OK;
}

/* ---- tests ---- */

static void test_one_wave_is_ddp(void **state)
{
    static const char *const optimizers[] = { "sgd(lr=0.1,momentum=0.9,weight_decay=0.01)", "adam(lr=0.01)" };

    (void)state;
    for (int n = 1; n <= 5; n++)
        for (int accumulate = 1; accumulate <= 2; accumulate++) {
            static staged ddp, r;
            r = staged_default("wavelet(waves=1)");
            r.options.optimizer = optimizers[n % 2];
            r.options.accumulate = accumulate;
            r.options.data_samples = 8 * (uint64_t)(n * accumulate) * 2 + 1; /* the last step has one sample */
            r.options.lr_schedule = "step(every=2,gamma=0.5)";
            r.steps = 8;
            r.at_a_time = n % 3;
            ddp = r;
            ddp.options.method = "ddp";
            ddp.whole = true;
            ddp.at_a_time = 1;
            staged_runs(&ddp, "shm", n);
            staged_runs(&r, "shm", n);
            all_have(&r, n, ddp.x[0]);
            assert_true(r.samples == ddp.samples && r.full_most[0] == 1);
        }
}

/* A wave through k stages is k micro-batches of one worker, one after the other. */
static void test_one_wave_through_stages_matches_single(void **state)
{
    (void)state;
    for (int k = 2; k <= UNITS; k++) {
        static staged one, r;
        char method[64];
        snprintf(method, sizeof method, "wavelet(waves=1,stages=%d)", k);
        r = staged_default(method);
        r.at_a_time = k % 3;
        one = r;
        one.options.method = "single";
        one.options.accumulate = k;
        one.whole = true;
        one.at_a_time = 1;
        staged_runs(&one, "shm", 1);
        staged_runs(&r, "shm", k);
        all_have(&r, k, one.x[0]);
    }
}

static void test_every_sync_mode_matches_its_recursion(void **state)
{
    static const struct { int ranks, stages, waves, mode, rounds, accumulate; } cases[] = {
        { 1, 1, 2, SHARED, 1, 1 },  { 2, 1, 2, SHARED, 1, 1 },  { 3, 1, 3, SHARED, 1, 2 },  { 4, 1, 4, SHARED, 1, 1 },
        { 5, 1, 2, SHARED, 1, 3 },  { 2, 2, 2, SHARED, 1, 1 },  { 4, 2, 3, SHARED, 1, 2 },  { 5, 5, 2, SHARED, 1, 1 },
        { 1, 1, 2, AVERAGE, 1, 1 }, { 2, 1, 2, AVERAGE, 1, 2 }, { 3, 1, 4, AVERAGE, 3, 1 }, { 2, 1, 3, AVERAGE, 3, 1 },
        { 4, 1, 2, AVERAGE, 2, 1 }, { 2, 2, 2, AVERAGE, 1, 1 }, { 4, 2, 2, AVERAGE, 3, 2 }, { 8, 4, 4, AVERAGE, 2, 1 },
        { 1, 1, 2, ACCUMULATE, 1, 1 }, { 2, 1, 4, ACCUMULATE, 1, 2 }, { 3, 1, 2, ACCUMULATE, 1, 1 },
        { 4, 2, 2, ACCUMULATE, 1, 1 }, { 3, 3, 2, ACCUMULATE, 1, 2 },
    };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(cases); i++)
        for (int at_a_time = 0; at_a_time <= 3; at_a_time++)
            for (int slow = -1; slow < (simulates() && at_a_time == 0 ? cases[i].ranks : 0); slow += 2) {
                static staged r;
                float due[STAGED_VALUES];
                char method[128];
                follower_spec(method, sizeof method, cases[i].waves, cases[i].stages, cases[i].mode, cases[i].rounds);
                r = staged_default(method);
                r.options.accumulate = cases[i].accumulate;
                r.options.batch = cases[i].waves == 3 ? 12 : 8;
                /* two steps and a part of one, in which later waves may have nothing */
                r.options.data_samples = (uint64_t)(r.options.batch * cases[i].ranks * cases[i].accumulate) * 2 + 3;
                r.steps = 9;
                r.at_a_time = at_a_time;
                follow(&r, cases[i].ranks, cases[i].stages, cases[i].waves, cases[i].mode, cases[i].rounds, due);
                for (int rank = 0; rank < cases[i].ranks && slow >= 0; rank++)
                    r.delay_ns[rank] = rank == slow ? 5000000 : 100000;
                staged_runs(&r, slow >= 0 ? "sim" : "shm", cases[i].ranks);
                all_have(&r, cases[i].ranks, due);
                for (int rank = 0; rank < cases[i].ranks && cases[i].stages == 1; rank++)
                    assert_int_equal(r.forwards_most[rank], 1);
            }
}

/* Both synchronous modes arrive at ddp's model, except for the order of sums. */
static void test_joint_and_averaged_waves_are_near_ddp(void **state)
{
    (void)state;
    for (int mode = AVERAGE; mode <= ACCUMULATE; mode++) {
        static staged ddp, r;
        char method[64];
        snprintf(method, sizeof method, "wavelet(sync_mode=%s)", follower_modes[mode]);
        r = staged_default(method);
        r.options.optimizer = "sgd(lr=0.1)";
        ddp = r;
        ddp.options.method = "ddp";
        ddp.whole = true;
        ddp.at_a_time = 1;
        staged_runs(&ddp, "shm", 2);
        staged_runs(&r, "shm", 2);
        for (size_t k = 0; k < STAGED_VALUES; k++)
            assert_float_equal(r.x[0][k], ddp.x[0][k], 1e-5);
    }
}

static double figure(staged_seat *s, const char *name)
{
    const tutti_metric_record *record;
    const int n = tutti_engine_metrics(s->e, &record), rank = tutti_engine_method(s->e)->rank;

    for (int i = 0; i < n; i++)
        if (strcmp(record[i].name, name) == 0 && (record[i].worker == rank || record[i].worker < 0))
            return record[i].value;
    return -1;
}

enum { PREDICTED, PEAK, WALL, STALE };
static void watch_peak(staged_seat *s)
{
    double *told = s->run->told[tutti_engine_method(s->e)->rank];
    tutti_figures f;

    tutti_engine_figures(s->e, &f);
    told[PREDICTED] = figure(s, "predicted_peak_bytes");
    told[PEAK] = figure(s, "peak_bytes");
    told[WALL] = 1e-9 * (double)f.wall_ns;
    told[STALE] = (double)f.staleness_max;
}

/* 5 units, whose forward and backward take the same time: while one wave's units rise from 1 to 5
   the other's fall from 5 to 1. So two waves hold one unit more than one wave, and both are in
   flight at the same time. */
static void test_waves_alternate_and_bound_peak_memory(void **state)
{
    const double unit = 8 * WIDTH * sizeof(float);

    (void)state;
    if (!simulates()) {
        printf("skipped: there is no simulator in this build\n");
        return;
    }
    for (int waves = 1; waves <= FOLLOWED_WAVES; waves++) {
        static staged r;
        char method[64];
        snprintf(method, sizeof method, "wavelet(waves=%d)", waves);
        r = staged_default(method);
        r.steps = 20;
        r.options.data_samples = 16 * 20;
        r.watch = watch_peak;
        for (int rank = 0; rank < 2; rank++)
            r.delay_ns[rank] = 1000000;
        staged_runs(&r, "sim", 2);
        for (int rank = 0; rank < 2; rank++) {
            assert_int_equal(r.full_most[rank], waves < 2 ? waves : 2); /* a third has to wait for a forward's end */
            assert_int_equal(r.forwards_most[rank], 1);
            assert_true(r.told[rank][PEAK] > 0 && r.told[rank][PEAK] <= r.told[rank][PREDICTED]);
            assert_int_equal((int)r.told[rank][STALE], waves - 1);
        }
        assert_true(r.told[0][PEAK] <= (waves == 1 ? 5 : 6) * unit);
    }
}

/* On a line where a sum takes as long as the computation, ddp's client would wait for it, as
   these passes announce gradients one by one but compute them together; two waves never wait. */
static void test_a_wave_hides_the_others_exchange(void **state)
{
    static staged one, two;
    double cycle;

    (void)state;
    if (!simulates()) {
        printf("skipped: there is no simulator in this build\n");
        return;
    }
    one = staged_default("wavelet(waves=1)");
    one.steps = 40;
    one.options.data_samples = 16 * 40;
    one.watch = watch_peak;
    one.delay_ns[0] = one.delay_ns[1] = 20000;
    two = one;
    two.options.method = "wavelet";
    staged_runs(&one, "sim", 2);
    staged_runs(&two, "sim", 2);
    cycle = 40 * 10 * 20e-6; /* 10 parts a micro-batch */
    assert_true(one.told[0][WALL] > 1.2 * cycle);  /* there is something to hide */
    assert_true(two.told[0][WALL] < 1.05 * cycle); /* and it is hidden, except for the last one */
}

static void watch_pairs(staged_seat *s)
{
    const tutti_method *m = tutti_engine_method(s->e);

    for (int to = 0; to < 4; to++) {
        uint64_t bytes = 0, messages = 0;
        if (to != m->rank)
            tutti_world_sent(m->world, to, &bytes, &messages);
        s->run->told[m->rank][to] = (double)bytes + 1e9 * (double)messages;
    }
}

/* Bytes and messages from each worker to each other, of `steps` further steps. */
static void pairs(const char *method, int steps, double sent[4][4])
{
    static staged r;

    for (int times = 1; times <= 2; times++) {
        r = staged_default(method);
        r.whole = strcmp(method, "ddp") == 0;
        r.steps = times * steps;
        r.at_a_time = r.whole ? 1 : 0;
        r.options.data_samples = 8 * 4 * 100;
        r.watch = watch_pairs;
        staged_runs(&r, "tcp", 4);
        for (int from = 0; from < 4; from++)
            for (int to = 0; to < 4; to++)
                sent[from][to] = times == 1 ? r.told[from][to] : r.told[from][to] - sent[from][to];
    }
}

/* With shared and accumulate what ddp sends; with average that much for each wave. With two
   stages also the activations of 2 x 8 samples forward and slopes back, and half of the gradient
   between workers with the same stage. */
static void test_traffic_per_pair_matches_the_documented_formula(void **state)
{
    static const struct { const char *method; int sums; } cases[] = {
        { "wavelet(waves=1)", 1 }, { "wavelet", 1 }, { "wavelet(waves=4)", 1 },
        { "wavelet(sync_mode=accumulate)", 1 }, { "wavelet(sync_mode=average)", 2 },
        { "wavelet(waves=4,sync_mode=average)", 4 },
    };
    const double message = 1e9, row = WIDTH * sizeof(float);
    double ddp[4][4], own[4][4];

    (void)state;
    pairs("ddp", 10, ddp);
    assert_true(ddp[0][1] > 0);
    for (size_t i = 0; i < TUTTI_LENGTH(cases); i++) {
        pairs(cases[i].method, 10, own);
        for (int from = 0; from < 4; from++)
            for (int to = 0; to < 4; to++)
                if (own[from][to] != cases[i].sums * ddp[from][to])
                    fail_msg("%s sends %.0f from %d to %d, and ddp %.0f", cases[i].method, own[from][to], from, to,
                             ddp[from][to]);
    }
    pairs("wavelet(stages=2)", 10, own);
    for (int from = 0; from < 4; from++)
        assert_true(own[from][from ^ 1] == 10 * 2 * (message + 8 * row));
}

static void test_a_resumed_run_has_the_same_bits(void **state)
{
    static const struct { int ranks; const char *method; } cases[] = {
        { 2, "wavelet" }, { 3, "wavelet(waves=3)" }, { 4, "wavelet(waves=2,stages=2)" },
        { 2, "wavelet(sync_mode=average,sync_rounds=2)" }, { 2, "wavelet(sync_mode=average)" },
        { 4, "wavelet(sync_mode=average,sync_rounds=4,stages=2)" }, { 2, "wavelet(sync_mode=accumulate)" },
    };
    char folder[SCRATCH_PATH];

    (void)state;
    scratch_make(folder);
    for (size_t i = 0; i < TUTTI_LENGTH(cases); i++) {
        static staged whole, r;
        whole = staged_default(cases[i].method);
        whole.options.optimizer = "adam(lr=0.01)";
        staged_runs(&whole, "shm", cases[i].ranks);
        r = whole;
        r.directory = folder;
        r.steps = r.save_at = 3;
        staged_runs(&r, "shm", cases[i].ranks);
        r.steps = 6;
        r.save_at = 0;
        r.load_at = 3;
        staged_runs(&r, "shm", cases[i].ranks);
        all_have(&r, cases[i].ranks, whole.x[0]);
    }
    scratch_remove(folder);
}

/* One wave continues from ddp's checkpoint, and ddp from one wave's. */
static void test_one_wave_and_ddp_resume_each_others_checkpoints(void **state)
{
    static const char *const methods[] = { "ddp", "wavelet(waves=1)" };
    static staged whole, r;
    char folder[SCRATCH_PATH];

    (void)state;
    scratch_make(folder);
    for (int first = 0; first < 2; first++) {
        whole = staged_default("ddp");
        whole.whole = true;
        whole.at_a_time = 1;
        staged_runs(&whole, "shm", 3);
        r = whole;
        r.directory = folder;
        r.options.method = methods[first];
        r.whole = first == 0;
        r.steps = r.save_at = 3;
        staged_runs(&r, "shm", 3);
        r.options.method = methods[!first];
        r.whole = first != 0;
        r.steps = 6;
        r.save_at = 0;
        r.load_at = 3;
        staged_runs(&r, "shm", 3);
        all_have(&r, 3, whole.x[0]);
    }
    scratch_remove(folder);
}

static void test_invalid_options_are_rejected(void **state)
{
    static const struct { const char *method; int ranks; int64_t batch; bool uncut; const char *says; } no[] = {
        { "wavelet(stages=6)", 6, 8, false, "this model of 5 units can be cut into 5 at most" },
        { "wavelet(stages=2)", 2, 8, true, "can be cut into 1 at most" },
        { "wavelet(stages=2)", 3, 8, false, "give a divisor of 3" },
        { "wavelet(sync_mode=average)", 2, 7, false, "give a multiple of 2" },
        { "wavelet(waves=3,sync_mode=accumulate)", 2, 8, false, "give a multiple of 3" },
        { "wavelet(waves=5)", 2, 8, false, "waves" },
        { "wavelet(offset=1)", 2, 8, false, "offset" },
        { "wavelet(memory_limit=0.001)", 2, 8, false, "for values, gradients and the optimizer" },
        { "wavelet(memory_limit=0.006)", 2, 8, false, "micro-batches of 3 samples fit" },
    };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(no); i++) {
        static staged r;
        tutti_error err;
        r = staged_default(no[i].method);
        r.options.batch = no[i].batch;
        r.uncut = no[i].uncut;
        if (staged_run(&r, "shm", no[i].ranks, &err) != TUTTI_ERR_USAGE)
            fail_msg("%s was taken", no[i].method);
        if (strstr(err.text, no[i].says) == NULL)
            fail_msg("%s: %s", no[i].method, err.text);
    }
}

/* A gradient that is no number ends the run by its name, on all workers, whatever is in
   flight. */
static void test_nan_gradient_is_reported_with_its_tensor(void **state)
{
    static staged r;
    tutti_error err;

    (void)state;
    for (int waves = 1; waves <= 3; waves++) {
        char method[64];
        snprintf(method, sizeof method, "wavelet(waves=%d)", waves);
        r = staged_default(method);
        r.bad_step = 3;
        assert_int_equal(staged_run(&r, "shm", 3, &err), TUTTI_ERR_NUMBER);
        assert_non_null(strstr(err.text, "4.weight"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_wave_is_ddp),
        cmocka_unit_test(test_one_wave_through_stages_matches_single),
        cmocka_unit_test(test_every_sync_mode_matches_its_recursion),
        cmocka_unit_test(test_joint_and_averaged_waves_are_near_ddp),
        cmocka_unit_test(test_waves_alternate_and_bound_peak_memory),
        cmocka_unit_test(test_a_wave_hides_the_others_exchange),
        cmocka_unit_test(test_traffic_per_pair_matches_the_documented_formula),
        cmocka_unit_test(test_a_resumed_run_has_the_same_bits),
        cmocka_unit_test(test_one_wave_and_ddp_resume_each_others_checkpoints),
        cmocka_unit_test(test_invalid_options_are_rejected),
        cmocka_unit_test(test_nan_gradient_is_reported_with_its_tensor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
