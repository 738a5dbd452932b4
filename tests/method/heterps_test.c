/* Goal: a step of heterps is the sum that its page states, to the bit, on stages of any widths,
   with and without tables, whatever the order of messages and wherever the run is interrupted and
   resumed; with one worker a stage it is `single` with as many passes; a schedule decides which
   worker has what, and what cannot be is refused in a sentence. Method: a client whose model is a
   chain of units (staged.h), compared with its steps written as one loop over whole gradients
   (flushed.h); simulated time. */
#include "engine/staged.h"
#include "method/flushed.h"
#include "scratch.h"
#include "pipeline/plan.h"
#include "tutti/method/pipeline.h"
#include "collective/world.h"
#include "pipeline/pipe.h"

enum { METHOD = SCRATCH_PATH + 128 };
static char folder[SCRATCH_PATH];

static int ranks_of(const flushed *s)
{
    int n = 0;

    for (int q = 0; q < s->count; q++)
        n += s->width[q];
    return n;
}

/* A schedule in a file, and the method that runs it. */
static void write_text(const char *text, const char *more, char method[METHOD])
{
    char path[SCRATCH_PATH + 32];
    FILE *f;

    snprintf(path, sizeof path, "%s/stages.json", folder);
    f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
    snprintf(method, METHOD, "heterps(schedule=%s%s)", path, more);
}

static void write_schedule(const flushed *s, const char *more, char method[METHOD])
{
    char text[4096];

    flushed_text(s, "chain", text, sizeof text);
    write_text(text, more, method);
}

/* The model at which a run with the options of `like` arrives, in `passes` passes a step. */
static void follow(flushed *s, const staged *like, int64_t passes)
{
    const int64_t accumulate = like->options.accumulate > 0 ? like->options.accumulate : 1,
                  step = like->options.batch * accumulate * ranks_of(s);

    s->optimizer = like->options.optimizer;
    s->steps = like->steps;
    s->table = like->table;
    s->share = (tutti_share){ .samples = like->options.data_samples, .workers = 1, .batch = step / passes,
                              .accumulate = passes, .seed = like->options.seed };
    assert_true(flushed_run(s));
}

static void all_have(const staged *r, int ranks, const float *x)
{
    for (int rank = 0; rank < ranks; rank++)
        assert_memory_equal(r->x[rank], x, sizeof r->x[rank]);
}

/* Where there is no simulator time is real. */
static bool simulates(void)
{
    return tutti_world_check("sim", NULL) == TUTTI_OK;
}

static const flushed shapes[] = {
    { .count = 1, .first = { 0, 5 }, .width = { 1 } },
    { .count = 1, .first = { 0, 5 }, .width = { 3 } },
    { .count = 2, .first = { 0, 2, 5 }, .width = { 1, 1 } },
    { .count = 2, .first = { 0, 1, 5 }, .width = { 1, 3 } },
    { .count = 2, .first = { 0, 1, 5 }, .width = { 4, 1 } },
    { .count = 2, .first = { 0, 3, 5 }, .width = { 2, 3 } },
    { .count = 3, .first = { 0, 1, 3, 5 }, .width = { 3, 1, 2 } },
    { .count = 3, .first = { 0, 1, 2, 5 }, .width = { 1, 5, 2 } },
    { .count = 4, .first = { 0, 1, 2, 3, 5 }, .width = { 2, 1, 1, 3 } },
    { .count = 5, .first = { 0, 1, 2, 3, 4, 5 }, .width = { 1, 1, 1, 1, 1 } },
    { .count = 2, .first = { 0, 1, 5 }, .width = { 7, 1 } }, /* one has no row of the table */
};

/* ---- tests ---- */

static void test_one_worker_per_stage_matches_single_with_accumulation(void **state)
{
    static const char *const optimizers[] = { "sgd(lr=0.1,momentum=0.9,weight_decay=0.01)", "adam(lr=0.01)" };

    (void)state;
    for (size_t o = 0; o < TUTTI_LENGTH(optimizers); o++)
        for (int k = 1; k <= UNITS; k++) {
            static staged one, r;
            char method[64];
            snprintf(method, sizeof method, "heterps(stages=%d)", k);
            r = staged_default(method);
            r.options.batch = 4;
            r.options.optimizer = optimizers[o];
            r.options.lr_schedule = "step(every=2,gamma=0.5)";
            r.options.data_samples = 4 * (uint64_t)k * 3 + 1; /* the last step of an epoch has one sample */
            r.steps = 9;
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

/* Of any widths, with a table in the first stage, of several micro-batches a worker, with last
   steps in which some have none, wherever the run is interrupted. Gradients of the first unit are
   small: rates are chosen so that roundings of their sums are seen. */
static void test_a_step_is_the_sum_of_its_micro_batches(void **state)
{
    static const char *const optimizers[] = { "sgd(lr=30)", "sgd(lr=10,momentum=0.5,weight_decay=0.001)" };

    (void)state;
    for (size_t i = 0; i < 4 * TUTTI_LENGTH(shapes); i++) {
        static staged r;
        flushed s = shapes[i / 4];
        const int ranks = ranks_of(&s);
        const int64_t passes = i % 2 == 0 ? 2 * ranks : 8 * ranks;
        char method[METHOD], more[64];
        snprintf(more, sizeof more, ",micro_batches=%d%s", (int)passes, i % 3 == 0 ? ",in_flight=1" : "");
        write_schedule(&s, more, method);
        r = staged_default(method);
        r.table = i / 2 % 2 == 0;
        r.options.accumulate = 2;
        r.options.optimizer = optimizers[i % 3 == 1];
        r.options.data_samples = (uint64_t)(ranks * 16 * 2 + 5);
        r.steps = 5;
        r.at_a_time = (int)(i % 3);
        follow(&s, &r, passes);
        staged_runs(&r, i % 4 == 1 && simulates() ? "sim" : "shm", ranks);
        all_have(&r, ranks, s.x);
    }
}

/* No worker holds more micro-batches between forward and backward than keep it busy. */
static void test_slots_are_bounded(void **state)
{
    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(shapes); i++)
        for (int most = 0; most <= 2; most++) {
            static staged r;
            const flushed s = shapes[i];
            const tutti_pipe_options pipe = { .stages = s.count, .in_flight = most > 0 ? most : 256, .width = s.width };
            char method[METHOD], more[32];
            int rank = 0, behind = ranks_of(&s);
            snprintf(more, sizeof more, ",in_flight=%d", most);
            write_schedule(&s, more, method);
            r = staged_default(method);
            staged_runs(&r, "shm", ranks_of(&s));
            for (int q = 0; q < s.count; behind -= s.width[q++]) {
                const int due = (behind + s.width[q] - 1) / s.width[q]; /* of widths from here on */
                assert_int_equal(tutti_pipe_slots(&pipe, q), most > 0 && most < due ? most : due);
                for (int j = 0; j < s.width[q]; j++, rank++)
                    assert_in_range(r.full_most[rank], 1, tutti_pipe_slots(&pipe, q));
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

/* Equal stages of one worker: a pipeline fills and empties in every step. */
static void test_bubbles_are_those_of_the_formula(void **state)
{
    (void)state;
    if (!simulates())
        printf("skipped: a part on simulated hosts: the simulator is not built\n");
    for (int k = 2; k <= UNITS && simulates(); k++)
        for (int each = 1; each <= 2; each++) {
            static staged r;
            char method[64];
            double due;
            snprintf(method, sizeof method, "heterps(stages=%d,micro_batches=%d)", k, each * 4 * k);
            r = staged_default(method);
            r.options.data_samples = (uint64_t)(8 * k); /* all are whole */
            r.watch = watch_time;
            for (int rank = 0; rank < k; rank++)
                r.delay_ns[rank] = 200000000; /* messages take a negligible part of that */
            staged_runs(&r, "sim", k);
            due = tutti_pipeline_bubble(k, each * 4 * k);
            for (int rank = 0; rank < k; rank++)
                assert_float_equal(r.told[rank][0], due, 0.01 * due);
        }
}

/* A first stage that is three times as slow has three workers: no worker waits except during
   filling and emptying, which is less than a round of the slow stage at each end. */
static void test_widths_make_up_for_slow_stages(void **state)
{
    static staged r;
    flushed s = { .count = 2, .first = { 0, 2, 5 }, .width = { 3, 1 } };
    char method[METHOD];

    (void)state;
    if (!simulates())
        printf("skipped: a part on simulated hosts: the simulator is not built\n");
    write_schedule(&s, ",micro_batches=32", method);
    r = staged_default(method);
    r.options.data_samples = 32;
    r.watch = watch_time;
    for (int rank = 0; rank < 4; rank++)
        r.delay_ns[rank] = rank < 3 ? 300000000 : 100000000;
    if (!simulates())
        return;
    staged_runs(&r, "sim", 4);
    assert_true(r.told[3][0] > 0 && r.told[3][0] < 6.0 / (32 + 6));
}

/* Bits after a resume are those without one. With one worker a stage any number of stages can
   continue, and `single` with as many passes. */
static void test_a_resumed_run_has_the_same_bits(void **state)
{
    static const size_t of[] = { 2, 4, 6, 10 };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(of); i++)
        for (int table = 0; table < 2; table++) {
            static staged whole, r;
            const flushed s = shapes[of[i]];
            char method[METHOD];
            write_schedule(&s, "", method);
            whole = staged_default(method);
            whole.table = table;
            staged_runs(&whole, "shm", ranks_of(&s));
            r = staged_default(method);
            r.table = table;
            r.directory = folder;
            r.steps = r.save_at = 3;
            staged_runs(&r, "shm", ranks_of(&s));
            r.steps = 6;
            r.save_at = 0;
            r.load_at = 3;
            staged_runs(&r, "shm", ranks_of(&s));
            all_have(&r, ranks_of(&s), whole.x[0]);
            if (of[i] != 2)
                continue;
            r.options.method = "heterps(stages=1,micro_batches=2)";
            r.options.batch = 16;
            staged_runs(&r, "shm", 1);
            assert_memory_equal(r.x[0], whole.x[0], sizeof r.x[0]);
            if (table)
                continue;
            r.options.method = "single";
            r.options.batch = 8;
            r.options.accumulate = 2;
            r.whole = true;
            r.at_a_time = 1;
            staged_runs(&r, "shm", 1);
            assert_memory_equal(r.x[0], whole.x[0], sizeof r.x[0]);
        }
}

static int first_of[STAGED_RANKS], end_of[STAGED_RANKS];

static void watch_cuts(staged_seat *s)
{
    const int rank = tutti_engine_method(s->e)->rank;
    first_of[rank] = s->first;
    end_of[rank] = s->end;
}

/* Without tables one stage, with them two: the table's unit and the other four, by operations. */
static void test_method_without_options_chooses_stages(void **state)
{
    static const struct { int ranks; bool table, uncut; const char *method; int ends[STAGED_RANKS]; } cases[] = {
        { 1, false, false, "heterps", { 5 } },
        { 3, false, false, "heterps", { 5, 5, 5 } },
        { 1, true, false, "heterps", { 5 } },
        { 2, true, false, "heterps", { 1, 5 } },
        { 5, true, false, "heterps", { 1, 5, 5, 5, 5 } },
        { 4, true, true, "heterps", { 5, 5, 5, 5 } },
        { 5, false, false, "heterps(stages=2)", { 1, 5, 5, 5, 5 } },
        { 4, false, false, "heterps(stages=3)", { 1, 2, 5, 5 } },
        { 6, true, false, "heterps(stages=1)", { 5, 5, 5, 5, 5, 5 } },
    };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(cases); i++) {
        static staged r;
        r = staged_default(cases[i].method);
        r.table = cases[i].table;
        r.uncut = cases[i].uncut;
        r.watch = watch_cuts;
        staged_runs(&r, "shm", cases[i].ranks);
        for (int rank = 0; rank < cases[i].ranks; rank++)
            assert_int_equal(end_of[rank], cases[i].ends[rank]);
        assert_int_equal(first_of[0], 0);
        assert_int_equal(r.samples, 200 < 8 * cases[i].ranks * r.steps ? r.samples
                                                                        : (uint64_t)(8 * cases[i].ranks * r.steps));
    }
}

static void refuse(staged *r, int ranks, const char *says)
{
    tutti_error err;

    assert_int_equal(staged_run(r, "shm", ranks, &err), TUTTI_ERR_USAGE);
    if (strstr(err.text, says) == NULL)
        fail_msg("%s: %s", r->options.method, err.text);
}

static void test_invalid_options_are_rejected(void **state)
{
    static const struct { const char *method; int ranks; int64_t batch; bool uncut; const char *says; } no[] = {
        { "heterps(stages=6)", 6, 8, false, "cut into 5 at most" },
        { "heterps(stages=2)", 2, 8, true, "cut into 1 at most" },
        { "heterps(stages=3)", 2, 8, false, "3 stages on 2 workers" },
        { "heterps(micro_batches=3)", 2, 8, false, "does not divide the 16 samples of a step" },
        { "heterps(micro_batches=1)", 2, 64, false, "raise micro_batches or lower batch" },
        { "heterps(micro_batches=2)", 4, 8, false, "stage 0 has 4 workers, and a step 2 micro-batches" },
    };
    static staged r;
    flushed s = { .count = 2, .first = { 0, 1, 5 }, .width = { 2, 1 } };
    char method[METHOD];

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(no); i++) {
        r = staged_default(no[i].method);
        r.options.batch = no[i].batch;
        r.uncut = no[i].uncut;
        refuse(&r, no[i].ranks, no[i].says);
    }
    write_schedule(&s, "", method);
    r = staged_default(method);
    refuse(&r, 4, "its stages have 3 units in all, and there are 4 workers; give -n 3");
    r.spec = "chain";
    staged_runs(&r, "shm", 3);
    r.spec = "ring";
    refuse(&r, 3, "it is for --model 'chain', and this run's is 'ring'");
    r.spec = NULL;
    r.uncut = true;
    refuse(&r, 3, "stage 1 begins with unit 1, where this model cannot be cut");
    r.uncut = false;
    s.first[2] = 6;
    write_schedule(&s, "", method);
    refuse(&r, 3, "its model has 6 units, and this one 5");
    write_text("{\"schema\": \"tutti-stages-1\", \"stages\": [{\"type\": \"a\", \"first_layer\": 0, \"end_layer\": 1, "
               "\"units\": 3, \"sparse\": false}]}", "", method);
    refuse(&r, 3, "it is for layers that a file lists");
    write_text("{\"schema\": \"tutti-sta", "", method);
    refuse(&r, 3, "no JSON");
    write_text("{\"schema\": \"tutti-resources-1\"}", "", method);
    refuse(&r, 3, "its schema is 'tutti-resources-1'");
    r.options.method = "heterps(schedule=/nowhere/stages.json)";
    {
        tutti_error err;
        assert_int_not_equal(staged_run(&r, "shm", 3, &err), TUTTI_OK);
        assert_non_null(strstr(err.text, "/nowhere/stages.json"));
    }
}

static void test_nan_gradient_is_reported_with_its_tensor(void **state)
{
    static staged r;
    tutti_error err;

    (void)state;
    r = staged_default("heterps(stages=2)");
    r.bad_step = 2;
    assert_int_equal(staged_run(&r, "shm", 4, &err), TUTTI_ERR_NUMBER);
    assert_non_null(strstr(err.text, "the gradient of 4.weight is nan at element 3"));
}

/* Each option at its ends; what is beyond is refused by name. */
static void test_option_bounds_are_accepted_and_values_beyond_rejected(void **state)
{
    static const char *const good[] = {
        "stages=0", "stages=1", "stages=4", "micro_batches=0", "micro_batches=4", "micro_batches=64", "in_flight=0",
        "in_flight=1", "in_flight=256", "schedule=",
    };
    static const char *const bad[] = {
        "stages=-1", "stages=9", "micro_batches=-1", "micro_batches=1000001", "in_flight=-1", "in_flight=257",
    };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(good) + TUTTI_LENGTH(bad); i++) {
        const bool right = i < TUTTI_LENGTH(good);
        const char *const option = right ? good[i] : bad[i - TUTTI_LENGTH(good)];
        static staged r;
        tutti_error err;
        char method[96], name[32];
        tutti_status status;
        snprintf(method, sizeof method, "heterps(%s)", option);
        snprintf(name, sizeof name, "%.*s", (int)strcspn(option, "="), option);
        r = staged_default(method);
        r.options.batch = 16;
        r.steps = 2;
        status = staged_run(&r, "shm", 4, &err);
        if (right ? status != TUTTI_OK : status != TUTTI_ERR_USAGE || strstr(err.text, name) == NULL)
            fail_msg("%s: %d %s", method, (int)status, err.text);
    }
}

static int make_folder(void **state)
{
    (void)state;
    scratch_make(folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    scratch_remove(folder);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_worker_per_stage_matches_single_with_accumulation),
        cmocka_unit_test(test_a_step_is_the_sum_of_its_micro_batches),
        cmocka_unit_test(test_slots_are_bounded),
        cmocka_unit_test(test_bubbles_are_those_of_the_formula),
        cmocka_unit_test(test_widths_make_up_for_slow_stages),
        cmocka_unit_test(test_a_resumed_run_has_the_same_bits),
        cmocka_unit_test(test_method_without_options_chooses_stages),
        cmocka_unit_test(test_invalid_options_are_rejected),
        cmocka_unit_test(test_nan_gradient_is_reported_with_its_tensor),
        cmocka_unit_test(test_option_bounds_are_accepted_and_values_beyond_rejected),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
