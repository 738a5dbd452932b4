/* Goal: hetpipe is the recursion that its page states, to the bit, however the model is
   partitioned, however many micro-batches are in flight, whatever the order of messages and
   wherever the run is resumed; no micro-batch misses more updates than its bound, and the bound
   is reached; backward sees what forward saw; each virtual worker has the best partition for its
   own workers, and every pair of workers sends what the page states; what cannot be is refused in
   a sentence. Method: a client whose model is a chain of units (staged.h), compared with the
   recursion written as one loop over whole gradients; simulated time, in which one virtual worker
   is slow. */
#include "engine/staged.h"
#include "method/recursion.h"
#include "scratch.h"
#include "pipeline/plan.h"
#include "tutti/method/pipeline.h"
#include "collective/world.h"

/* The result of `like` with `pipelines` virtual workers and `window` micro-batches a wave, at
   distance 0. */
static void follow(const staged *like, int ranks, int pipelines, int window, bool sum, float x[STAGED_VALUES])
{
    static recursion r;
    const int waves = like->options.accumulate > 0 ? (int)like->options.accumulate : 1;

    memset(&r, 0, sizeof r);
    r.optimizer = like->options.optimizer;
    r.pipelines = pipelines;
    r.window = window;
    r.steps = like->steps;
    r.waves = waves;
    r.sum = sum;
    r.share = (tutti_share){ .samples = like->options.data_samples, .workers = pipelines,
                             .batch = like->options.batch * (ranks / pipelines) / window,
                             .accumulate = waves * window, .seed = like->options.seed };
    assert_true(recursion_run(&r));
    memcpy(x, r.server, sizeof r.server);
}

static void all_have(const staged *r, int ranks, const float *x)
{
    for (int rank = 0; rank < ranks; rank++)
        assert_memory_equal(r->x[rank], x, sizeof r->x[rank]);
}

/* ---- tests ---- */

/* Without the simulator time is real, and any worker may be the late one. */
static bool simulates(void)
{
    return tutti_world_check("sim", NULL) == TUTTI_OK;
}

static void test_one_micro_batch_in_flight_matches_single(void **state)
{
    static const char *const optimizers[] = { "sgd(lr=0.1,momentum=0.9,weight_decay=0.01)", "adam(lr=0.01)" };

    (void)state;
    for (size_t o = 0; o < TUTTI_LENGTH(optimizers); o++)
        for (int k = 1; k <= UNITS; k++) {
            static staged one, r;
            char method[64];
            snprintf(method, sizeof method, "hetpipe(stages=%d,in_flight=1)", k);
            r = staged_default(method);
            r.options.batch = 4;
            r.options.optimizer = optimizers[o];
            r.options.lr_schedule = "step(every=2,gamma=0.5)";
            r.options.data_samples = 4 * (uint64_t)k * 3 + 1; /* the last step of an epoch has one sample */
            r.steps = 9;
            r.at_a_time = k % 3;
            one = staged_single(&r, 4 * k);
            staged_runs(&r, "shm", k);
            all_have(&r, k, one.x[0]);
        }
}

/* With one virtual worker, then with several, wherever the run is interrupted. */
static void test_clock_distance_zero_matches_the_recursion(void **state)
{
    static const struct { int ranks, stages, window, accumulate; const char *more; } cases[] = {
        { 1, 1, 2, 1, "" },  { 1, 1, 4, 2, "" }, { 2, 2, 4, 1, "" },  { 3, 3, 2, 2, "" }, { 4, 4, 8, 1, "" },
        { 5, 5, 5, 1, "" },  { 2, 1, 1, 1, "" }, { 2, 1, 4, 2, "" },  { 4, 2, 1, 1, "" }, { 4, 2, 2, 1, "" },
        { 4, 2, 4, 2, "" },  { 6, 3, 4, 1, "" }, { 6, 2, 4, 1, "" },  { 8, 2, 4, 1, "" }, { 4, 2, 4, 1, ",update=sum" },
        { 4, 2, 4, 1, ",allocation=np" }, { 8, 2, 4, 1, ",allocation=hd,node=2" },
        /* virtual workers with different partitions */
        { 4, 2, 4, 2, ",speeds=1:1:4:1" }, { 6, 2, 4, 1, ",speeds=1:1:2:4:1:3" }, { 6, 3, 4, 1, ",speeds=3:1:1:1:1:2" },
        { 8, 2, 4, 1, ",speeds=1:1:2:1:4:1:3:2" }, { 8, 4, 2, 1, ",speeds=2:1:1:1:1:2:1:1,update=sum" },
    };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(cases); i++)
        for (int each = 0; each <= 2; each++) {
            static staged r;
            static float x[STAGED_VALUES];
            char method[128];
            snprintf(method, sizeof method, "hetpipe(stages=%d,in_flight=%d%s)", cases[i].stages, cases[i].window,
                     cases[i].more);
            r = staged_default(method);
            r.options.accumulate = cases[i].accumulate;
            r.options.data_samples =
                (uint64_t)(cases[i].ranks * cases[i].accumulate * 8 * 2 + 5); /* micro-batches without samples */
            r.options.optimizer = "sgd(lr=0.05,momentum=0.5,weight_decay=0.01)";
            r.steps = 7;
            r.at_a_time = each;
            follow(&r, cases[i].ranks, cases[i].ranks / cases[i].stages, cases[i].window,
                   strstr(cases[i].more, "sum") != NULL, x);
            staged_runs(&r, each == 1 || !simulates() ? "shm" : "sim", cases[i].ranks);
            all_have(&r, cases[i].ranks, x);
            for (int rank = 0; rank < cases[i].ranks; rank++)
                assert_in_range(r.full_most[rank], 1, cases[i].window < cases[i].stages ? cases[i].window
                                                                                         : cases[i].stages);
        }
}

static double figure(const tutti_engine *e, const char *name, int worker)
{
    const tutti_metric_record *record;
    const int n = tutti_engine_metrics(e, &record);

    for (int i = 0; i < n; i++)
        if (strcmp(record[i].name, name) == 0 && record[i].worker == worker)
            return record[i].value;
    return -1;
}

enum { MISSING, APART, STALE };

static void watch_bounds(staged_seat *s)
{
    const int rank = tutti_engine_method(s->e)->rank;
    tutti_figures f;

    tutti_engine_figures(s->e, &f);
    s->run->told[rank][MISSING] = figure(s->e, "missing_most", rank);
    s->run->told[rank][APART] = figure(s->e, "waves_apart", rank);
    s->run->told[rank][STALE] = (double)f.staleness_max;
}

/* One virtual worker is slower than the other by far; or all are, by draws. */
static void test_bounds_are_reached_and_not_exceeded(void **state)
{
    (void)state;
    if (!simulates())
        printf("skipped: a part on simulated hosts: the simulator is not built\n");
    for (int window = 1; window <= 4 && simulates(); window *= 2)
        for (int distance = 0; distance <= 3; distance++)
            for (int run = 0; run < 8; run++) {
                const int round = run / 2;
                static staged r;
                char method[96];
                double most = 0, furthest = 0;
                const int64_t bound = tutti_wave_staleness(window, distance);
                snprintf(method, sizeof method, "hetpipe(stages=2,in_flight=%d,clock_distance=%d%s)", window, distance,
                         run % 2 == 0 ? "" : ",speeds=1:1:4:1"); /* of the second, a different partition */
                r = staged_default(method);
                r.steps = 12;
                r.watch = watch_bounds;
                for (int rank = 0; rank < 4; rank++)
                    r.delay_ns[rank] =
                        round == 0 ? (rank % 2 == 1 ? 900000 : 1000)
                                   : 1 + (int64_t)(1e6 * tutti_uniform((tutti_rng){ 9, (uint64_t)round, 1 },
                                                                      (uint64_t)rank));
                staged_runs(&r, "sim", 4);
                for (int rank = 0; rank < 4; rank++) {
                    const double *told = r.told[rank];
                    most = told[MISSING] > most ? told[MISSING] : most;
                    furthest = told[APART] > furthest ? told[APART] : furthest;
                    assert_true(told[STALE] <= window - 1);
                    assert_true(told[MISSING] <= (double)bound && told[APART] <= (double)tutti_wave_apart(distance));
                }
                if (round == 0) {
                    assert_int_equal((int64_t)most, bound);
                    assert_int_equal((int64_t)furthest, tutti_wave_apart(distance));
                }
            }
}

static void watch_time(staged_seat *s)
{
    tutti_figures f;

    tutti_engine_figures(s->e, &f);
    s->run->told[tutti_engine_method(s->e)->rank][0] =
        (double)f.exposed_ns / (double)(f.exposed_ns + f.compute_ns);
}

/* Equal stages, as many micro-batches in flight as there are stages: only filling and emptying is
   lost, once for all of the run and not at every step. Two equal virtual workers lose no more: a
   gate at distance 0 opens while the micro-batches before it are still computed. */
static void test_bubbles_are_those_of_the_formula(void **state)
{
    (void)state;
    if (!simulates())
        printf("skipped: a part on simulated hosts: the simulator is not built\n");
    for (int ranks = 2; ranks <= STAGED_RANKS && simulates(); ranks++)
        for (int each = 0; each <= 3; each += 3) {
            static staged r;
            char method[64];
            const int steps = 6, k = ranks <= UNITS ? ranks : ranks / 2;
            double due;
            if (ranks % k != 0)
                continue;
            snprintf(method, sizeof method, "hetpipe(stages=%d)", k);
            r = staged_default(method);
            r.options.data_samples = (uint64_t)(8 * ranks); /* all are whole */
            r.steps = steps;
            r.at_a_time = each;
            r.watch = watch_time;
            for (int rank = 0; rank < ranks; rank++)
                r.delay_ns[rank] = 200000000; /* messages take a negligible part of that */
            staged_runs(&r, "sim", ranks);
            due = tutti_pipeline_bubble(k, (each > 0 ? each : steps) * k);
            for (int rank = 0; rank < ranks; rank++)
                assert_float_equal(r.told[rank][0], due, 0.01 * due);
        }
}

static int first_of[STAGED_RANKS], end_of[STAGED_RANKS];

static void watch_cuts(staged_seat *s)
{
    const int rank = tutti_engine_method(s->e)->rank;
    first_of[rank] = s->first;
    end_of[rank] = s->end;
}

/* Bits after a resume are those without one, with another partition as well: the first unit is
   declared to take what the others take together, or virtual workers are partitioned differently
   where they were partitioned identically, and the other way round. */
static void test_a_resumed_run_has_the_same_bits(void **state)
{
    static const struct { int ranks, stages, window; } cases[] = {
        { 2, 2, 4 }, { 4, 2, 4 }, { 3, 1, 2 }, { 4, 4, 8 },
    };
    double first_slow[4 * UNITS];
    char folder[SCRATCH_PATH];

    (void)state;
    scratch_make(folder);
    for (int i = 0; i < 4 * UNITS; i++)
        first_slow[i] = i % UNITS == 0 ? UNITS - 1 : 1;
    for (size_t i = 0; i < TUTTI_LENGTH(cases); i++) {
        static staged whole, r;
        char method[96];
        snprintf(method, sizeof method, "hetpipe(stages=%d,in_flight=%d)", cases[i].stages, cases[i].window);
        whole = staged_default(method);
        staged_runs(&whole, "shm", cases[i].ranks);
        r = staged_default(method);
        r.directory = folder;
        r.steps = r.save_at = 3;
        staged_runs(&r, "shm", cases[i].ranks);
        r.steps = 6;
        r.save_at = 0;
        r.load_at = 3;
        staged_runs(&r, "shm", cases[i].ranks);
        all_have(&r, cases[i].ranks, whole.x[0]);
        snprintf(method, sizeof method, "hetpipe(stages=%d,in_flight=%d,profile=measured)", cases[i].stages,
                 cases[i].window);
        r.seconds = first_slow;
        r.watch = watch_cuts;
        staged_runs(&r, "shm", cases[i].ranks);
        all_have(&r, cases[i].ranks, whole.x[0]);
        for (int rank = 0; rank < cases[i].ranks && cases[i].stages == 2; rank++)
            assert_int_equal(first_of[rank] == 0 ? end_of[rank] : first_of[rank], 1);
        r.seconds = NULL;
        for (int back = 0; back <= 1 && cases[i].ranks == 4 && cases[i].stages == 2; back++) {
            static const char *const speeds[] = { "1:1:4:1", "1:1:1:1" };
            for (int half = 0; half <= 1; half++) {
                snprintf(method, sizeof method, "hetpipe(stages=2,in_flight=%d,speeds=%s)", cases[i].window,
                         speeds[half == back]);
                r.steps = half == 0 ? 3 : 6;
                r.save_at = half == 0 ? 3 : 0;
                r.load_at = half == 0 ? 0 : 3;
                staged_runs(&r, "shm", 4);
                assert_true((first_of[0] + first_of[2] == first_of[1] + first_of[3]) == (half == back));
            }
            all_have(&r, 4, whole.x[0]);
        }
        r.watch = NULL;
        if (cases[i].ranks != cases[i].stages)
            continue;
        r.options.batch = 8 * cases[i].ranks; /* one pipeline of one stage */
        snprintf(method, sizeof method, "hetpipe(stages=1,in_flight=%d)", cases[i].window);
        staged_runs(&r, "shm", 1);
        assert_memory_equal(r.x[0], whole.x[0], sizeof r.x[0]);
    }
    scratch_remove(folder);
}

/* 5 units of 3000 operations: a worker four times as fast has four of them; of equal ones the one
   with more memory has the first stage. */
static void test_stages_are_cut_by_speed_and_memory(void **state)
{
    static staged r;

    (void)state;
    r = staged_default("hetpipe(stages=2,speeds=1:4)");
    r.watch = watch_cuts;
    staged_runs(&r, "shm", 2);
    assert_int_equal(end_of[1] - first_of[1], 4);
    assert_int_equal(end_of[0] - first_of[0], 1);
    r.options.method = "hetpipe(stages=2,memory=1:2)";
    staged_runs(&r, "shm", 2);
    assert_int_equal(first_of[1], 0);
    assert_int_equal(end_of[0], UNITS);
}

/* Units of each worker, with virtual workers of two. In the last place a worker's speed is of no
   use, as it has memory for three units only: 2400 bytes each in the first place, 2016 in the
   second. */
static void test_each_virtual_worker_has_its_own_partition(void **state)
{
    static const struct { int ranks; const char *more; int own[STAGED_RANKS]; } cases[] = {
        { 4, "speeds=1:1:4:1.5", { 1, 2, 4, 3 } },
        { 4, "speeds=1:1:4:4", { 1, 1, 4, 4 } },
        { 4, "allocation=np,speeds=1:4:1.5:1", { 1, 4, 3, 2 } },
        { 6, "speeds=1:1:2:4:1.5:2.9", { 1, 2, 2, 4, 3, 3 } },
        { 4, "speeds=1:1:4:4,memory=1:1:0.007:1", { 2, 1, 3, 4 } },
    };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(cases); i++) {
        static staged r;
        char method[96];
        snprintf(method, sizeof method, "hetpipe(stages=2,in_flight=4,%s)", cases[i].more);
        r = staged_default(method);
        r.watch = watch_cuts;
        staged_runs(&r, "shm", cases[i].ranks);
        for (int rank = 0; rank < cases[i].ranks; rank++)
            if (end_of[rank] - first_of[rank] != cases[i].own[rank])
                fail_msg("%s: worker %d has units %d to %d", method, rank, first_of[rank], end_of[rank]);
    }
}

/* ---- what is sent ---- */
static struct { uint64_t bytes, messages; } sent[STAGED_RANKS][STAGED_RANKS];

static void watch_pairs(staged_seat *s)
{
    const tutti_method *m = tutti_engine_method(s->e);

    watch_cuts(s);
    for (int to = 0; to < m->workers; to++) {
        sent[m->rank][to].bytes = sent[m->rank][to].messages = 0;
        if (to != m->rank)
            tutti_world_sent(m->world, to, &sent[m->rank][to].bytes, &sent[m->rank][to].messages);
    }
}

static bool has(int rank, int unit)
{
    return unit >= first_of[rank] && unit < end_of[rank];
}

/* Floats of part k of `count` floats in n parts, at lines of 16. */
static uint64_t part_of(uint64_t count, uint64_t k, uint64_t n)
{
    const uint64_t lines = (count + 15) / 16, end = lines * (k + 1) / n * 16;
    return (end < count ? end : count) - lines * k / n * 16;
}

/* For one wave, between workers of two virtual workers: for each run of units that both have and
   that no worker's boundary divides, the receiver's part is pushed, and the sender's part is the
   answer. v, u: the virtual workers of `from` and `to`. */
static void due_of_a_wave(int ranks, int pipelines, int from, int to, int v, int u, uint64_t *bytes,
                          uint64_t *messages)
{
    *bytes = *messages = 0;
    for (int first = 0, end; first < UNITS; first = end) {
        bool cut = false;
        for (end = first + 1; end < UNITS && !cut; end += !cut)
            for (int rank = 0; rank < ranks; rank++)
                cut = cut || first_of[rank] == end;
        if (has(from, first) && has(to, first)) {
            const uint64_t count = (uint64_t)(end - first) * 2 * WIDTH,
                           pushed = part_of(count, (uint64_t)u, (uint64_t)pipelines),
                           answered = part_of(count, (uint64_t)v, (uint64_t)pipelines);
            *bytes += sizeof(float) * (pushed + answered);
            *messages += (pushed > 0) + (answered > 0);
        }
    }
}

static void test_traffic_per_pair_matches_the_documented_formula(void **state)
{
    enum { LESS = 2, MORE = 7 };
    static const struct { int ranks; const char *more; } cases[] = {
        { 4, "" }, { 4, ",speeds=1:1:4:1.5" }, { 6, ",speeds=1:1:2:4:1.5:2.9" }, { 8, ",speeds=1:1:2:1:4:1:3:2" },
    };
    const uint64_t activations = 4 * 4 * WIDTH * sizeof(float); /* of a wave: as much back as forth */

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(cases); i++) {
        static struct { uint64_t bytes, messages; } before[STAGED_RANKS][STAGED_RANKS];
        const int ranks = cases[i].ranks, pipelines = ranks / 2;
        char method[96];
        snprintf(method, sizeof method, "hetpipe(stages=2,in_flight=4%s)", cases[i].more);
        for (int steps = LESS; steps <= MORE; steps += MORE - LESS) {
            static staged r;
            r = staged_default(method);
            r.options.data_samples = (uint64_t)(8 * ranks * MORE); /* all are whole */
            r.steps = steps;
            r.watch = watch_pairs;
            if (steps == MORE)
                memcpy(before, sent, sizeof before);
            staged_runs(&r, "tcp", ranks);
        }
        for (int from = 0; from < ranks; from++)
            for (int to = 0; to < ranks; to++) {
                const int v = from % pipelines, u = to % pipelines; /* one of each node (ed) */
                uint64_t bytes = 0, messages = 0;
                if (v != u)
                    due_of_a_wave(ranks, pipelines, from, to, v, u, &bytes, &messages);
                else if (from != to) {
                    bytes = activations;
                    messages = 4;
                }
                assert_int_equal(sent[from][to].bytes - before[from][to].bytes, (MORE - LESS) * bytes);
                assert_int_equal(sent[from][to].messages - before[from][to].messages, (MORE - LESS) * messages);
            }
    }
}

/* A unit may be slow on one worker alone. Each of two virtual workers goes by its own times. What
   the run leaves is what it leaves with partitions by operations and speeds. */
static void test_stages_are_cut_by_measured_times(void **state)
{
    static const double four[2 * UNITS] = { 4, 4, 4, 4, 4, 1, 1, 1, 1, 1 },
                        odd[2 * UNITS] = { 9, 1, 1, 1, 1, 3, 3, 3, 3, 3 },
                        two[4 * UNITS] = { 3, 3, 3, 3, 3, 8, 8, 8, 8, 8, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1 };
    static const struct { int ranks; const double *seconds; int own[4]; } cases[] = {
        { 2, four, { 1, 4 } }, { 2, odd, { 4, 1 } }, { 4, two, { 2, 1, 3, 4 } },
    };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(cases); i++) {
        static staged r, modelled;
        r = staged_default("hetpipe(stages=2,profile=measured)");
        modelled = staged_default("hetpipe(stages=2)");
        r.seconds = cases[i].seconds;
        r.watch = watch_cuts;
        staged_runs(&r, "shm", cases[i].ranks);
        staged_runs(&modelled, "shm", cases[i].ranks);
        for (int rank = 0; rank < cases[i].ranks; rank++)
            assert_int_equal(end_of[rank] - first_of[rank], cases[i].own[rank]);
        all_have(&r, cases[i].ranks, modelled.x[0]);
    }
}

static void test_invalid_options_are_rejected(void **state)
{
    static const struct { const char *method; int ranks; int64_t batch; bool uncut; const char *says; } no[] = {
        { "hetpipe(stages=6)", 6, 8, false, "this model of 5 units can be cut into 5 at most" },
        { "hetpipe(stages=2)", 2, 8, true, "that is not at all" },
        { "hetpipe(stages=2)", 3, 8, false, "give a divisor of 3" },
        { "hetpipe(stages=2,in_flight=3)", 2, 8, false, "does not divide the 16 samples of a wave" },
        { "hetpipe(stages=2,in_flight=1)", 2, 64, false, "raise in_flight or lower batch" },
        { "hetpipe(stages=2,memory=0.0001:0.0001)", 2, 8, false, "stage" },
        { "hetpipe(stages=2,speeds=1:2:3)", 2, 8, false, "speeds is '1:2:3'" },
        { "hetpipe(stages=2,memory=x)", 2, 8, false, "memory is 'x'" },
        { "hetpipe(stages=2,node=1)", 4, 8, false, "omit stages or node" },
        { "hetpipe(stages=2,allocation=hd,node=3)", 6, 8, false, "allocation" },
        { "hetpipe(profile=measured)", 2, 8, false, "this client has not measured its model" },
        { "hetpipe", 1, 67, false, "cannot be cut into equal micro-batches" },
    };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(no); i++) {
        static staged r;
        tutti_error err;
        r = staged_default(no[i].method);
        r.options.batch = no[i].batch;
        r.uncut = no[i].uncut;
        assert_int_equal(staged_run(&r, "shm", no[i].ranks, &err), TUTTI_ERR_USAGE);
        if (strstr(err.text, no[i].says) == NULL)
            fail_msg("%s: %s", no[i].method, err.text);
    }
}

/* A model without points to partition it at, and a number of workers that no number of stages
   divides: whole models. */
static void test_method_without_options_chooses_stages(void **state)
{
    static const struct { int ranks; bool uncut; int stages; } cases[] = {
        { 1, false, 1 }, { 2, false, 2 }, { 3, false, 3 }, { 4, false, 2 }, { 6, false, 2 }, { 7, false, 1 },
        { 2, true, 1 },
    };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(cases); i++) {
        static staged r;
        r = staged_default("hetpipe");
        r.uncut = cases[i].uncut;
        r.watch = watch_cuts;
        staged_runs(&r, "shm", cases[i].ranks);
        if (cases[i].stages == 1)
            assert_true(first_of[0] == 0 && end_of[0] == UNITS);
        else
            assert_true(end_of[0] - first_of[0] < UNITS);
        assert_int_equal(r.samples, 200 < 8 * cases[i].ranks * r.steps ? r.samples
                                                                        : (uint64_t)(8 * cases[i].ranks * r.steps));
    }
}

/* Each option at its ends and in all its choices; what is beyond is refused by name. The least and
   the greatest that a run of four can have: the number of workers and the batch bound some more
   closely than the table. */
static void test_option_bounds_are_accepted_and_values_beyond_rejected(void **state)
{
    static const char *const good[] = {
        "stages=0", "stages=1", "stages=4", "in_flight=0", "in_flight=1", "in_flight=32", "clock_distance=0",
        "clock_distance=1000000", "allocation=np", "allocation=ed", "allocation=hd,node=2", "node=0", "node=1,stages=4",
        "node=4,allocation=np", "update=average", "update=sum", "speeds=1:1:1:1", "speeds=1e-9:1e9:1:1",
        "memory=1:1:1:1", "memory=1e9:1:1:1", "gflops=1e-6", "gflops=1e9", "bandwidth=0", "bandwidth=1e9",
    };
    static const char *const bad[] = {
        "stages=-1", "stages=9", "in_flight=-1", "in_flight=257", "clock_distance=-1", "clock_distance=1000001",
        "allocation=de", "node=-1", "node=1000001", "update=mean", "speeds=0:1:1:1", "memory=1:1", "gflops=0",
        "gflops=2e9", "bandwidth=-1", "bandwidth=2e9",
    };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(good) + TUTTI_LENGTH(bad); i++) {
        const bool right = i < TUTTI_LENGTH(good);
        const char *const option = right ? good[i] : bad[i - TUTTI_LENGTH(good)];
        static staged r;
        tutti_error err;
        char method[96], name[32];
        tutti_status status;
        snprintf(method, sizeof method, "hetpipe(%s)", option);
        snprintf(name, sizeof name, "%.*s", (int)strcspn(option, "="), option);
        r = staged_default(method);
        r.options.batch = 16;
        r.steps = 2;
        status = staged_run(&r, "shm", 4, &err);
        if (right ? status != TUTTI_OK : status != TUTTI_ERR_USAGE || strstr(err.text, name) == NULL)
            fail_msg("%s: %d %s", method, (int)status, err.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_micro_batch_in_flight_matches_single),
        cmocka_unit_test(test_clock_distance_zero_matches_the_recursion),
        cmocka_unit_test(test_bounds_are_reached_and_not_exceeded),
        cmocka_unit_test(test_bubbles_are_those_of_the_formula),
        cmocka_unit_test(test_a_resumed_run_has_the_same_bits),
        cmocka_unit_test(test_stages_are_cut_by_speed_and_memory),
        cmocka_unit_test(test_each_virtual_worker_has_its_own_partition),
        cmocka_unit_test(test_traffic_per_pair_matches_the_documented_formula),
        cmocka_unit_test(test_stages_are_cut_by_measured_times),
        cmocka_unit_test(test_invalid_options_are_rejected),
        cmocka_unit_test(test_method_without_options_chooses_stages),
        cmocka_unit_test(test_option_bounds_are_accepted_and_values_beyond_rejected),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
