/* Goal: methods that run the pipeline schedule (pipeline.h): each worker has its stage's range of
   the flat space and no more; what the hook computes is booked, counted and traced as everywhere;
   a model in an evaluation comes unit by unit, also where pipelines are partitioned differently,
   and no rank ever has two of them; a checkpoint knows nothing of stages. Method: a plain
   pipeline of the test's own, one micro-batch a step, compared with `single` and `ddp`, to the
   bit. */
#include "scratch.h"
#include "staged.h"
#include "tutti/method/pipeline.h"
#include "engine/modes/drive.h"

/* ---- a method: the stages one after the other, one micro-batch a step ---- */

typedef struct relay {
    tutti_pipe *pipe;
    tutti_method *m;
    int stages;
    bool begun;
    uint64_t began;              /* the step of the pipe's first micro-batch */
    tutti_pass pass;
} relay;

static uint64_t step_of(const relay *r, int64_t p)
{
    return r->began + (uint64_t)p - 1;
}

static tutti_status relay_forward(void *self, int64_t p, int slot, const float *in, size_t entered, float *out,
                                  size_t *left, tutti_error *err)
{
    relay *r = self;

    (void)entered;
    tutti_drive_pass(r->m, step_of(r, p), 0, &r->pass);
    *left = out != NULL ? (size_t)r->pass.samples * WIDTH : 0;
    return tutti_drive_forward(r->m, step_of(r, p), slot, &r->pass, r->m->own_x, in, out, err);
}

static tutti_status relay_backward(void *self, int64_t p, int slot, const float *slope, float *back, tutti_error *err)
{
    relay *r = self;
    const tutti_rate rate = tutti_drive_rate(r->m, step_of(r, p), step_of(r, p) + 1);

    TUTTI_TRY(tutti_drive_backward(r->m, step_of(r, p), slot, &r->pass, r->m->own_x, slope, r->m->own_g, back, err));
    return tutti_drive_update(r->m, r->m->optim, r->m->own_x, r->m->own_g, &rate, err);
}

static void relay_waits(void *self, bool waits)
{
    tutti_drive_waits(((relay *)self)->m, waits);
}

static tutti_status relay_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    relay *r = m->self;
    const tutti_model *model;
    int first[STAGED_RANKS + 1], worker[STAGED_RANKS];

    TUTTI_TRY(tutti_drive_model(m, &model, err));
    r->stages = m->workers;
    for (int q = 0; q <= r->stages; q++)
        first[q] = q * model->units / r->stages;
    for (int q = 0; q < r->stages; q++) /* not in the order of their ranks */
        worker[q] = r->stages - 1 - q;
    return tutti_drive_declare(m, plan,
                               &(tutti_drive_options){ .pipelines = 1, .stages = r->stages, .first = first,
                                                       .worker = worker, .passes = 1, .slots = 1,
                                                       .samples = m->share->batch * m->workers },
                               err);
}

static tutti_status relay_open(tutti_method *m, tutti_error *err)
{
    relay *r = m->self;
    int ranks[STAGED_RANKS];
    const size_t most = (size_t)m->share->batch * WIDTH;

    r->m = m;
    for (int q = 0; q < r->stages; q++)
        ranks[q] = r->stages - 1 - q;
    return tutti_pipe_open(&r->pipe, m->world,
                           &(tutti_pipe_options){ .stages = r->stages, .stage = m->stage, .in_flight = 1,
                                                  .ranks = ranks, .enters = m->stage > 0 ? most : 0,
                                                  .leaves = m->stage < r->stages - 1 ? most : 0 },
                           err);
}

static void relay_close(tutti_method *m)
{
    if (m->self != NULL)
        tutti_pipe_close(((relay *)m->self)->pipe);
}

static tutti_status relay_drive(tutti_method *m, uint64_t until, tutti_error *err)
{
    relay *r = m->self;

    r->began = r->begun ? r->began : m->step;
    r->begun = true;
    return tutti_pipe_run(r->pipe, (int64_t)(until - r->began),
                          &(tutti_pipe_work){ .self = r, .forward = relay_forward, .backward = relay_backward,
                                              .waits = relay_waits },
                          err);
}

enum { TRAITS = TUTTI_PIPELINE_SCHEDULE | TUTTI_REPLICAS_EQUAL | TUTTI_SHARDED_OPTIMIZER | TUTTI_DDP_EQUIVALENT };
static const tutti_method_ops relay_ops = { .name = "relay", .self_bytes = sizeof(relay), .traits = TRAITS,
                                            .declare = relay_declare, .open = relay_open, .close = relay_close,
                                            .drive = relay_drive };
static const tutti_method_ops *const methods[] = { &relay_ops, NULL };

static staged relay_default(void)
{
    staged r = staged_default("relay");
    r.methods = methods;
    return r;
}

/* ---- a method of two pipelines that are partitioned differently, which computes nothing ---- */

typedef struct unlike {
    int64_t alike, sums, cut;    /* sums: asks for a mean; cut: of the second pipeline */
} unlike;

static const tutti_option unlike_options[] = {
    { "alike", TUTTI_INT, TUTTI_AT(unlike, alike), 0, 0, 1, NULL, "pipelines are said to make the same updates" },
    { "sums", TUTTI_INT, TUTTI_AT(unlike, sums), 0, 0, 1, NULL, "asks for a mean over the pipelines" },
    { "cut", TUTTI_INT, TUTTI_AT(unlike, cut), 3, 0, UNITS, NULL, "where the second pipeline's second stage begins" },
    { 0 }
};

static tutti_status unlike_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    const unlike *u = m->self;
    const int first[2 * 3] = { 0, 1, UNITS, 0, (int)u->cut, UNITS }, worker[4] = { 0, 2, 1, 3 };

    return tutti_drive_declare(m, plan,
                               &(tutti_drive_options){ .pipelines = 2, .stages = 2, .first = first, .worker = worker,
                                                       .passes = 1, .slots = 1, .samples = m->share->batch * 2,
                                                       .own_cuts = true, .alike = u->alike > 0 },
                               err);
}

/* Each stage has its range, and values of it alone. */
static tutti_status unlike_drive(tutti_method *m, uint64_t until, tutti_error *err)
{
    const unlike *u = m->self;
    const int cut = m->member == 0 ? 1 : (int)u->cut;
    const tutti_range own = tutti_drive_range(m, m->stage == 0 ? 0 : cut, m->stage == 0 ? cut : UNITS);

    (void)until;
    CHECK(m->member == m->rank % 2 && m->stage == m->rank / 2);
    CHECK(m->own.first == own.first && m->own.count == own.count);
    if (u->sums == 0)
        return TUTTI_OK;
    tutti_drive_sum_start(m, 0, 1, m->own_g);
    return tutti_drive_sum_wait(m, 0, NULL, err);
}

static const tutti_method_ops unlike_ops = {
    .name = "unlike", .self_bytes = sizeof(unlike), .options = unlike_options,
    .traits = TUTTI_PIPELINE_SCHEDULE | TUTTI_REPLICAS_EQUAL | TUTTI_SHARDED_OPTIMIZER, .declare = unlike_declare,
    .drive = unlike_drive
};
static const tutti_method_ops *const unlike_methods[] = { &unlike_ops, NULL };

/* ---- tests ---- */

/* The model in an evaluation is that of the first pipeline's stages, which are no stages of
   others. */
static void test_pipelines_may_have_different_partitions(void **state)
{
    static const struct { const char *method, *says; } cases[] = {
        { "unlike", NULL }, { "unlike(cut=1)", NULL }, { "unlike(cut=4)", NULL },
        { "unlike(cut=0)", "into stages that it does not have" }, { "unlike(alike=1)", "into stages" },
        { "unlike(sums=1)", "mean over pipelines that have cuts of their own" },
    };
    float initial[STAGED_VALUES];

    (void)state;
    for (int k = 0; k < 2 * UNITS; k++)
        staged_initial(NULL, k, initial + (size_t)k * WIDTH);
    for (size_t i = 0; i < TUTTI_LENGTH(cases); i++) {
        static staged r;
        tutti_error err;
        tutti_status status;
        r = staged_default(cases[i].method);
        r.methods = unlike_methods;
        r.at_a_time = 2;
        status = staged_run(&r, "shm", 4, &err);
        if (status != (cases[i].says == NULL ? TUTTI_OK : TUTTI_ERR_STATE) ||
            (cases[i].says != NULL && strstr(err.text, cases[i].says) == NULL))
            fail_msg("%s: %d %s", cases[i].method, (int)status, err.text);
        for (int rank = 0; rank < 4 && status == TUTTI_OK; rank++)
            assert_memory_equal(r.x[rank], initial, sizeof initial);
    }
}

/* With several calls of drive an evaluation begins between them. */
static void test_stages_match_single_bit_for_bit(void **state)
{
    static const char *const optimizers[] = { "sgd(lr=0.1,momentum=0.9,weight_decay=0.01)", "adam(lr=0.01)" };

    (void)state;
    for (size_t o = 0; o < TUTTI_LENGTH(optimizers); o++)
        for (int n = 1; n <= UNITS; n++)
            for (int each = 0; each <= 2; each += 2) {
                static staged one, r;
                r = relay_default();
                r.options.batch = 4;
                r.options.optimizer = optimizers[o];
                r.options.data_samples = 4 * (uint64_t)n * 4 + 1; /* steps 4 and 9 have one sample */
                r.steps = 11;
                r.at_a_time = each;
                one = staged_single(&r, 4 * n);
                staged_runs(&r, "shm", n);
                for (int rank = 0; rank < n; rank++)
                    assert_memory_equal(r.x[rank], one.x[0], sizeof one.x[0]);
                assert_int_equal(r.samples, one.samples);
                assert_float_equal(r.loss[0], each > 0 ? one.loss[0] : r.loss[0], 0);
                if (each > 0) {
                    one.steps = 10; /* as it was shown last */
                    one = staged_single(&one, 4 * n);
                    assert_memory_equal(r.shown, one.x[0], sizeof r.shown);
                }
            }
}

/* Every rank has its range and no more: values, a gradient, the optimiser's slots. During an
   evaluation it had one more unit. */
static void watch_memory(staged_seat *s)
{
    tutti_memory_record record[64];
    const tutti_method *m = tutti_engine_method(s->e);
    const size_t n = tutti_engine_memory(s->e, record, TUTTI_LENGTH(record)),
                 unit = 2 * WIDTH * sizeof(float), own = (size_t)(s->end - s->first) * unit;
    uint64_t bytes[TUTTI_MEMORY_KINDS] = { 0 }, looked = 0;

    for (size_t i = 0; i < n; i++)
        if (strcmp(record[i].name, "shown") == 0)
            looked += record[i].bytes;
        else
            bytes[record[i].kind] += record[i].bytes;
    assert_int_equal(looked, unit);
    assert_true(m->x == NULL && m->g == NULL && tutti_engine_gradient(s->e, 0) == NULL);
    assert_int_equal(m->own.first, staged_place(s->end - 1, true));
    assert_int_equal(bytes[TUTTI_MEMORY_VALUES], own);
    assert_int_equal(bytes[TUTTI_MEMORY_GRADIENTS], own);
    assert_in_range(bytes[TUTTI_MEMORY_STATES], own, own + 256);
}

static void watch_device(staged_seat *s)
{
    const tutti_metric_record *record;
    const int n = tutti_engine_metrics(s->e, &record);

    for (int i = 0; i < n; i++)
        if (strcmp(record[i].name, "device_bytes") == 0)
            s->run->told[tutti_engine_method(s->e)->rank][0] = record[i].value;
}

static void test_a_rank_has_its_range_only(void **state)
{
    static staged r;

    (void)state;
    r = relay_default();
    r.watch = watch_memory;
    for (r.at_a_time = 0; r.at_a_time <= 2; r.at_a_time += 2)
        staged_runs(&r, "shm", 3);
}

/* Which of the ranks speaks is as it comes. */
static void test_ranks_acquiring_different_units_fail_with_an_error(void **state)
{
    tutti_error err;

    (void)state;
    for (int n = 2; n <= 4; n++) {
        static staged r;
        r = relay_default();
        r.odd_one = true;
        assert_int_equal(staged_run(&r, "shm", n, &err), TUTTI_ERR_STATE);
        if (strstr(err.text, "under method 'relay' all workers need the same units in the same order") == NULL)
            fail_msg("%s", err.text);
    }
}

/* From n stages to m, from `ddp` to stages and from stages to `single`. */
static void test_checkpoints_are_independent_of_stages(void **state)
{
    char folder[SCRATCH_PATH];

    (void)state;
    scratch_make(folder);
    for (int from = 1; from <= 4; from++) {
        static staged one, r;
        r = relay_default();
        r.options.batch = 12 / from;
        one = staged_single(&r, 12);
        r.directory = folder;
        r.save_at = r.steps = 3;
        staged_runs(&r, "shm", from);
        for (int to = 1; to <= 4; to++) {
            static staged next;
            next = relay_default();
            next.options.batch = 12 / to;
            next.directory = folder;
            next.load_at = 3;
            staged_runs(&next, "shm", to);
            assert_memory_equal(next.x[to - 1], one.x[0], sizeof one.x[0]);
        }
        r = relay_default(); /* whole, from stages */
        r.directory = folder;
        r.load_at = 3;
        r.options.batch = 12;
        r.options.method = "ddp";
        r.methods = NULL;
        r.whole = true;
        staged_runs(&r, "shm", 1);
        assert_memory_equal(r.x[0], one.x[0], sizeof one.x[0]);
        r.load_at = 0; /* and the other way round */
        r.save_at = r.steps = 3;
        staged_runs(&r, "shm", 1);
        r = relay_default();
        r.directory = folder;
        r.load_at = 3;
        r.options.batch = 12 / from;
        staged_runs(&r, "shm", from);
        assert_memory_equal(r.x[0], one.x[0], sizeof one.x[0]);
    }
    scratch_remove(folder);
}

/* A client whose model is one unit, on one rank. */
static tutti_status open_one(staged_seat *s, tutti_world *world, bool needs, tutti_error *err)
{
    static const tutti_model_unit unit = { .cut = true };
    const tutti_param p = { .name = "w", .dims = 1, .dim = { WIDTH } };
    const tutti_engine_options o = { .method = "relay", .batch = 4, .needs = needs, .model = &s->model };

    s->model = (tutti_model){ .self = s, .units = 1, .unit = &unit, .samples = 4, .open = staged_open,
                              .forward = staged_forward, .backward = staged_backward, .go_on = staged_go_on,
                              .held = staged_held };
    return tutti_engine_open_from(&s->e, world, &p, 1, &o, methods, err);
}

static tutti_status needless_rank(tutti_world *world, void *arg, tutti_error *err)
{
    staged_seat *s = tutti_alloc(1, sizeof *s);
    tutti_status status;

    (void)arg;
    CHECK(s != NULL);
    status = open_one(s, world, false, err);
    tutti_engine_close(s->e);
    tutti_free(s);
    return status;
}

static tutti_status refused_rank(tutti_world *world, void *arg, tutti_error *err)
{
    tutti_engine_options o = *(tutti_engine_options *)arg;
    const tutti_param p = { .name = "w", .dims = 1, .dim = { WIDTH } };
    tutti_engine *e = NULL;
    tutti_status status = tutti_engine_open_from(&e, world, &p, 1, &o, methods, err);

    tutti_engine_close(e);
    return status;
}

/* Two ranks with the same memory: nothing is free for the unit that an evaluation needs. */
static void test_insufficient_memory_for_evaluation_is_rejected_at_start(void **state)
{
    static staged r;
    tutti_error err;
    size_t enough;

    (void)state;
    r = relay_default();
    r.watch = watch_device;
    r.options.device_memory = (size_t)1 << 20;
    staged_runs(&r, "shm", 2);
    enough = (size_t)fmax(r.told[0][0], r.told[1][0]);
    r.options.device_memory = enough;
    staged_runs(&r, "shm", 2);
    r.options.device_memory = enough - 1;
    r.x[0][0] = 77; /* no run gets as far as the model */
    assert_int_equal(staged_run(&r, "shm", 2, &err), TUTTI_ERR_MEMORY);
    assert_non_null(strstr(err.text, "'shown' needs"));
    assert_float_equal(r.x[0][0], 77, 0);
}

static void test_options_incompatible_with_stages_are_rejected(void **state)
{
    const int64_t shares[2] = { 3, 5 };
    struct { tutti_engine_options o; const char *says; } no[] = {
        { { 0 }, "clip-norm" }, { { 0 }, "nonfinite=skip" }, { { 0 }, "loss-scale" },
        { { 0 }, "batch-share cuts a step by worker, but method 'relay' computes a model in stages, whose workers have "
                 "the same samples; omit batch-share" },
        { { 0 }, "stream is given" },
        { { 0 }, "the model has batch norms, whose statistics are of a whole pass, but method 'relay' computes a model "
                 "in stages; take a model without" },
        { { 0 }, "optimizer is 'client', which updates the whole model" },
    };
    tutti_engine_options plain = { .method = "relay" };
    tutti_error err = { .rank = -1 };

    (void)state;
    assert_int_equal(tutti_world_run("shm", 2, refused_rank, &plain, &err), TUTTI_ERR_USAGE);
    assert_non_null(strstr(err.text, "this client computes whole passes"));
    assert_int_equal(tutti_world_run("shm", 1, needless_rank, NULL, &err), TUTTI_ERR_USAGE);
    assert_non_null(strstr(err.text, "this client does not report when it needs which unit"));
    no[0].o.clip_norm = 1;
    no[1].o.nonfinite = TUTTI_NONFINITE_SKIP;
    no[2].o.loss_scale = "dynamic";
    no[3].o.batch_of = shares;
    no[4].o.streams = true;
    no[5].o.own_values = 3;
    no[6].o.optimizer = "client";
    for (size_t i = 0; i < TUTTI_LENGTH(no); i++) {
        static staged r;
        r = relay_default();
        r.options = no[i].o;
        r.options.method = "relay";
        r.options.batch = 4;
        assert_int_equal(staged_run(&r, "shm", 2, &err), TUTTI_ERR_USAGE);
        if (strstr(err.text, no[i].says) == NULL)
            fail_msg("%s: %s", no[i].says, err.text);
    }
}

static void test_nan_gradient_is_reported_with_its_tensor(void **state)
{
    static staged r;
    tutti_error err;

    (void)state;
    r = relay_default();
    r.bad_step = 2;
    assert_int_equal(staged_run(&r, "shm", 2, &err), TUTTI_ERR_NUMBER);
    assert_non_null(strstr(err.text, "the gradient of 4.weight is nan at element 3"));
}

static void watch_trace(staged_seat *s)
{
    const tutti_trace_event *event;
    const size_t n = tutti_engine_trace(s->e, &event);
    int forward = 0, backward = 0;

    for (size_t i = 0; i < n; i++) {
        forward += strcmp(event[i].what, "stage forward") == 0;
        backward += strcmp(event[i].what, "stage backward") == 0;
        assert_true(event[i].step < 6 && event[i].end_ns >= event[i].begin_ns);
    }
    assert_int_equal(forward, 6);
    assert_int_equal(backward, 6);
}

static void test_a_trace_has_stages(void **state)
{
    static staged r;

    (void)state;
    r = relay_default();
    r.options.trace_events = 1000;
    r.watch = watch_trace;
    staged_runs(&r, "shm", 2);
}

static tutti_status misuse_rank(tutti_world *world, void *arg, tutti_error *err)
{
    staged_seat *s = tutti_alloc(1, sizeof *s);
    tutti_error own = { .rank = -1 };
    tutti_pass pass;

    (void)arg;
    CHECK(s != NULL);
    TUTTI_TRY(open_one(s, world, true, err));
    CHECK(tutti_engine_pass_begin(s->e, &pass, &own) == TUTTI_ERR_STATE &&
          strstr(own.text, "tutti_engine_drive") != NULL);
    CHECK(tutti_engine_drive(s->e, 0, &own) == TUTTI_OK);
    CHECK(tutti_engine_unit_acquire(s->e, 0, false, &own) == TUTTI_ERR_STATE && strstr(own.text, "not shown") != NULL);
    TUTTI_TRY(tutti_engine_eval_begin(s->e, err));
    CHECK(tutti_engine_drive(s->e, 1, &own) == TUTTI_ERR_STATE && strstr(own.text, "between steps") != NULL);
    tutti_engine_close(s->e);
    tutti_free(s);
    return TUTTI_OK;
}

static void test_calls_out_of_order_are_refused(void **state)
{
    tutti_error err = { .rank = -1 };

    (void)state;
    if (tutti_world_run("shm", 1, misuse_rank, NULL, &err) != TUTTI_OK)
        fail_msg("%s", err.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stages_match_single_bit_for_bit),
        cmocka_unit_test(test_pipelines_may_have_different_partitions),
        cmocka_unit_test(test_a_rank_has_its_range_only),
        cmocka_unit_test(test_ranks_acquiring_different_units_fail_with_an_error),
        cmocka_unit_test(test_checkpoints_are_independent_of_stages),
        cmocka_unit_test(test_insufficient_memory_for_evaluation_is_rejected_at_start),
        cmocka_unit_test(test_options_incompatible_with_stages_are_rejected),
        cmocka_unit_test(test_nan_gradient_is_reported_with_its_tensor),
        cmocka_unit_test(test_a_trace_has_stages),
        cmocka_unit_test(test_calls_out_of_order_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
