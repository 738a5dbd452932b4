/* Goal: a run whose members come and go between steps has the bits of one that is not disturbed,
   and its records go on as if nothing had happened. Method: 6 processes, which are threads here.
   Each has one tutti_run for all worlds that it trains in. They begin with the state that the
   others have left, an image in memory or a checkpoint. model.safetensors is compared byte for
   byte, and metrics.jsonl line by line, with a run of tutti_train_worker. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "engine/image.h"
#include "tutti/files.h"
#include "tutti/comm.h"
#include "epochs_job.h"

enum { PROCESSES = 6, MEMBERS = 5, STEPS = 10, REPORTS = 4 };

/* ---- one run ---- */

typedef struct process {
    tutti_run run;
    tutti_train_io io;
    tutti_runtime *rt;               /* NULL: it has not begun */
    const struct job *job;
} process;

/* An epoch: of whom, from which step, and to which. */
typedef struct plan {
    int n, member[MEMBERS];
    unsigned from;
    uint64_t until;
    bool stops;                      /* it has no end of its own: nothing is handed over */
    bool changes;                    /* it does not last (tutti_train_epoch.lasts): as after a loss */
    int passes;                      /* then: that it lasts in the step `until`, which is not made */
} plan;

/* The first member, which writes the files, leaves and comes back; at last there are newcomers
   only. Steps 3 and 6 are within an interval of reports, 8 is the end of one. */
static const plan come_and_go[] = {
    { 4, { 0, 1, 2, 3 }, 0, 3, false },
    { 3, { 1, 2, 3 }, 3, 6, false },
    { 5, { 1, 3, 0, 4, 5 }, 6, 8, false },
    { 2, { 4, 5 }, 8, STEPS, false },
};

typedef struct job {
    tutti_train_config config;
    char out[SCRATCH_PATH + 64];
    process of[PROCESSES];
    const plan *plans;
    int epochs;                      /* how many plans */
    int epoch;                       /* of plans */
    bool by_image;                   /* how the state goes to the next epoch; else by checkpoint */
    tutti_image *image;              /* of the last epoch's first member */
    int behind;                      /* a process that begins with an older checkpoint; 0: none */
} job;

static void configure(job *j, const char *method, const char *out)
{
    tutti_train_config *c = &j->config;

    snprintf(j->out, sizeof j->out, "%s/%s", epochs_folder, out);
    epochs_configure(c, method, j->out);
    c->steps = STEPS;
    c->report_every = REPORTS;
    c->eval_every = 5;
    epochs_prepare(c);
}

static bool ends(void *user, uint64_t step)
{
    const plan *now = user;

    return !now->stops && !now->changes && step == now->until;
}

static bool lasts(void *user, uint64_t step)
{
    static _Thread_local int asked; /* in that step; a member is a thread in each epoch */
    const plan *now = user;

    return !now->changes || step != now->until || asked++ < now->passes;
}

/* Callback of process.io. */
static int stop(void *user)
{
    const process *p = user;
    const plan *now = &p->job->plans[p->job->epoch];

    return now->stops && tutti_engine_method(p->run.engine)->step == now->until;
}

/* The linker puts these in the place of the calls. */
static _Atomic int begun;            /* steps, of all processes */

tutti_status __real_tutti_engine_pass_begin(tutti_engine *e, tutti_pass *pass, tutti_error *err);
tutti_status __wrap_tutti_engine_pass_begin(tutti_engine *e, tutti_pass *pass, tutti_error *err);
tutti_status __wrap_tutti_engine_pass_begin(tutti_engine *e, tutti_pass *pass, tutti_error *err)
{
    const tutti_status status = __real_tutti_engine_pass_begin(e, pass, err);

    begun += status == TUTTI_OK && pass->index == 0;
    return status;
}

static int opening_ms;               /* that the record takes to open */

tutti_status __real_tutti_record_rows_begin(tutti_record_rows **out, const tutti_record_place *in, bool keeps,
                                            uint64_t until, tutti_error *err);
tutti_status __wrap_tutti_record_rows_begin(tutti_record_rows **out, const tutti_record_place *in, bool keeps,
                                            uint64_t until, tutti_error *err);
tutti_status __wrap_tutti_record_rows_begin(tutti_record_rows **out, const tutti_record_place *in, bool keeps,
                                            uint64_t until, tutti_error *err)
{
    nanosleep(&(struct timespec){ .tv_nsec = opening_ms * 1000000L }, NULL);
    return __real_tutti_record_rows_begin(out, in, keeps, until, err);
}

/* The process begins, and has its samples, before it is in any world. */
static void start(job *j, process *p)
{
    tutti_error err = { .rank = -1 };

    assert_int_equal(tutti_runtime_open_posix(&p->rt, &err), TUTTI_OK);
    p->job = j;
    p->io = (tutti_train_io){ .user = p, .stop = stop };
    tutti_train_begin(&p->run, p->rt, &j->config, &p->io);
    if (tutti_train_open_samples(&p->run, &err) != TUTTI_OK)
        fail_msg("%s", err.text);
}

/* Opens what this process begins the epoch with; NULL: no step is done. */
static tutti_status open_state(const job *j, const process *p, tutti_checkpoint **from, tutti_error *err)
{
    const bool behind = j->behind > 0 && p == &j->of[j->behind];
    char path[SCRATCH_PATH + 128];

    *from = NULL;
    if (j->plans[j->epoch].from == 0)
        return TUTTI_OK;
    snprintf(path, sizeof path, "%s/checkpoints/step-%08u", j->out, j->plans[j->epoch].from - behind);
    return j->by_image ? tutti_image_checkpoint(from, j->image, err) : tutti_checkpoint_open(from, p->rt, path, err);
}

static tutti_status finish(tutti_run *run, tutti_error *err)
{
    TUTTI_TRY(tutti_train_evaluate_final(run, err));
    TUTTI_TRY(tutti_train_results(run, err));
    return tutti_engine_part(run->engine, err);
}

/* *image: what the first member leaves; NULL: another one, or the run has ended. */
static tutti_status train_epoch(job *j, tutti_run *run, tutti_image **image, tutti_error *err)
{
    tutti_status status;

    *image = NULL;
    if (j->plans[j->epoch].until == 0)
        return TUTTI_OK;
    status = tutti_train_loop(run, err);
    if (status == TUTTI_CLOSED && j->plans[j->epoch].stops)
        return TUTTI_OK;
    if (j->plans[j->epoch].changes && status != TUTTI_ERR_PEER)
        return tutti_fail(err, TUTTI_ERR_STATE, 0, "the epoch has not ended with step %llu",
                          (unsigned long long)j->plans[j->epoch].until);
    TUTTI_TRY(j->plans[j->epoch].changes ? TUTTI_OK : status);
    if (run->finished)
        return finish(run, err);
    if (!j->by_image || run->rank != 0)
        return TUTTI_OK;
    return tutti_train_epoch_image(run, image, err);
}

static tutti_status member_main(tutti_world *world, void *arg, tutti_error *err)
{
    job *j = arg;
    const plan *const now = &j->plans[j->epoch];
    process *p = &j->of[now->member[tutti_world_rank(world)]];
    tutti_train_epoch epoch = { .number = (uint64_t)j->epoch + 1, .ends = ends, .lasts = lasts,
                                .user = (void *)(uintptr_t)now };
    tutti_image *image = NULL;
    tutti_status status = open_state(j, p, &epoch.from, err);

    if (status == TUTTI_OK)
        status = tutti_train_epoch_open(&p->run, world, &epoch, err);
    if (status == TUTTI_OK)
        status = train_epoch(j, &p->run, &image, err);
    if (status == TUTTI_OK) /* all have read the image before */
        status = tutti_barrier(&p->run.all, err);
    if (status == TUTTI_OK && image != NULL) {
        tutti_image_close(j->image);
        j->image = image;
    }
    tutti_train_epoch_close(&p->run);
    tutti_checkpoint_close(epoch.from);
    return status;
}

/* Those that have left the run are closed only with it: what they keep must not be of a world. */
static void close_all(job *j)
{
    for (int k = 0; k < PROCESSES; k++)
        if (j->of[k].rt != NULL) {
            tutti_train_close_all(&j->of[k].run);
            tutti_runtime_close(j->of[k].rt);
        }
    tutti_image_close(j->image);
}

static void train_in_epochs(job *j)
{
    for (j->epoch = 0; j->epoch < j->epochs; j->epoch++) {
        const plan *const now = &j->plans[j->epoch];
        tutti_error err = { .rank = -1 };
        for (int k = 0; k < now->n; k++)
            if (j->of[now->member[k]].rt == NULL)
                start(j, &j->of[now->member[k]]);
        if (tutti_world_run("shm", now->n, member_main, j, &err) != TUTTI_OK)
            fail_msg("%s, epoch %d: %s", j->config.method, j->epoch + 1, err.text);
    }
}

/* ---- its records ---- */

/* Returns what all processes of the run have sent, those that have left included. */
static double sent_by(const job *j)
{
    double sum = 0;

    for (int k = 0; k < PROCESSES; k++)
        sum += (double)j->of[k].run.before.bytes_sent;
    return sum;
}

/* As those of a run that is not disturbed. Time and traffic never fall. */
static void assert_lines_go_on(const job *whole, const job *cut)
{
    static const char *const grows[] = { "step", "samples", "wall_seconds", "bytes_sent_total" };
    json_t *lines = epochs_lines(cut->out), *end = epochs_summary(cut->out);
    const json_t *last;

    epochs_assert_same_lines(whole->out, cut->out);
    for (size_t i = 1; i < json_array_size(lines); i++)
        for (size_t k = 0; k < TUTTI_LENGTH(grows); k++)
            if (epochs_number(json_array_get(lines, i), grows[k]) <
                epochs_number(json_array_get(lines, i - 1), grows[k]))
                fail_msg("%s, line %zu: %s falls", cut->out, i, grows[k]);
    last = json_array_get(lines, json_array_size(lines) - 1);
    if (epochs_number(end, "bytes_sent_total") != sent_by(cut))
        fail_msg("%s: bytes_sent_total is %.17g, and the processes have sent %.17g", cut->out,
                 epochs_number(end, "bytes_sent_total"), sent_by(cut));
    assert_true(epochs_number(end, "bytes_sent_total") >= epochs_number(last, "bytes_sent_total"));
    /* a line has nine digits of it */
    assert_true(epochs_number(end, "wall_seconds") >= epochs_number(last, "wall_seconds") * (1 - 1e-8));
    json_decref(lines);
    json_decref(end);
}

/* Each sample of the steps once; the members of the end; the steps of the whole run. */
static void assert_summary(const job *j)
{
    json_t *o = epochs_summary(j->out);
    const json_t *rows = json_object_get(o, "by_worker"), *row;
    size_t k;

    assert_int_equal(epochs_number(o, "steps"), STEPS);
    assert_int_equal(epochs_number(o, "samples"), STEPS * EPOCHS_SHARES * EPOCHS_BATCH);
    assert_int_equal(json_array_size(json_object_get(o, "members")), j->plans[j->epochs - 1].n);
    assert_true(json_is_null(json_object_get(o, "resumed_at_step")));
    json_array_foreach(rows, k, row) {
        const double parts = epochs_number(row, "compute_seconds") + epochs_number(row, "exposed_comm_seconds") +
                             epochs_number(row, "other_seconds");
        assert_true(fabs(parts - epochs_number(row, "wall_seconds")) < 1e-6);
    }
    json_decref(o);
}

/* ---- tests ---- */

static job *configured(const char *method, const char *out)
{
    job *j = test_calloc(1, sizeof *j);

    configure(j, method, out);
    return j;
}

static job *disturbed(const char *method, const char *out, const plan *plans, int epochs)
{
    job *j = configured(method, out);

    j->plans = plans;
    j->epochs = epochs;
    return j;
}

/* Runs both. The caller frees them. */
static void train(job *whole, job *cut)
{
    epochs_undisturbed(&whole->config);
    train_in_epochs(cut);
    close_all(cut);
}

static void assert_as_undisturbed(job *whole, job *cut)
{
    train(whole, cut);
    epochs_assert_same_model(whole->out, cut->out);
    assert_lines_go_on(whole, cut);
    epochs_assert_table_follows(cut->out);
    assert_summary(cut);
    test_free(whole);
    test_free(cut);
}

static void members_of_ddp_come_and_go(void **state)
{
    job *cut = disturbed("ddp", "ddp-cut", come_and_go, TUTTI_LENGTH(come_and_go));

    (void)state;
    cut->by_image = true;
    assert_as_undisturbed(configured("ddp", "ddp-whole"), cut);
}

static void members_of_zero_come_and_go(void **state)
{
    job *cut = disturbed("zero(stage=1)", "zero-cut", come_and_go, TUTTI_LENGTH(come_and_go));

    (void)state;
    cut->config.checkpoint_every = 1;
    assert_as_undisturbed(configured("zero(stage=1)", "zero-whole"), cut);
}

/* Each share has a residual, which goes to the worker that computes it next. */
static void members_of_powersgd_come_and_go(void **state)
{
    job *cut = disturbed("powersgd", "powersgd-cut", come_and_go, TUTTI_LENGTH(come_and_go));

    (void)state;
    cut->config.checkpoint_every = 1;
    assert_as_undisturbed(configured("powersgd", "powersgd-whole"), cut);
}

/* Gradients are held by piece, and values by unit: the bits are those of stage 1. */
static void members_of_stages_2_and_3_of_zero_come_and_go(void **state)
{
    static const char *const stage[] = { "zero(stage=2)", "zero(stage=3)" };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(stage); k++) {
        job *cut = disturbed(stage[k], k == 0 ? "held-cut" : "values-cut", come_and_go, TUTTI_LENGTH(come_and_go));
        cut->config.checkpoint_every = 1;
        assert_as_undisturbed(configured("zero(stage=1)", k == 0 ? "held-whole" : "values-whole"), cut);
    }
}

static void a_run_whose_first_epoch_makes_no_step_begins_in_the_next(void **state)
{
    static const plan plans[] = { { 2, { 0, 1 }, 0, 0, false }, { 3, { 0, 1, 2 }, 0, STEPS, false } };

    (void)state;
    assert_as_undisturbed(configured("ddp", "idle-whole"), disturbed("ddp", "idle-cut", plans, TUTTI_LENGTH(plans)));
}

/* Two members end the first epoch with 4 steps done, before the next one or within it, and three
   make the others. `in_vain`: steps that are begun and not made. */
static void change_after_4_steps(const char *name, const plan *plans, int in_vain)
{
    char undisturbed[32];
    job *whole, *cut = disturbed("ddp", name, plans, 2);

    snprintf(undisturbed, sizeof undisturbed, "%s-whole", name);
    whole = configured("ddp", undisturbed);
    cut->by_image = true;
    epochs_undisturbed(&whole->config);
    begun = 0;
    train_in_epochs(cut);
    close_all(cut);
    assert_int_equal(begun, 2 * 4 + in_vain + 3 * (STEPS - 4));
    epochs_assert_same_model(whole->out, cut->out);
    epochs_assert_same_lines(whole->out, cut->out);
    assert_summary(cut);
    test_free(whole);
    test_free(cut);
}

static void an_epoch_that_does_not_last_begins_no_step(void **state)
{
    static const plan plans[] = { { 2, { 0, 1 }, 0, 4, .changes = true }, { 3, { 0, 1, 2 }, 4, STEPS, false } };

    (void)state;
    change_after_4_steps("change-before", plans, 0);
}

static void an_epoch_that_does_not_last_ends_between_two_passes(void **state)
{
    static const plan plans[] = { { 2, { 0, 1 }, 0, 4, .changes = true, .passes = 2 },
                                  { 3, { 0, 1, 2 }, 4, STEPS, false } };

    (void)state;
    change_after_4_steps("change-within", plans, 2);
}

/* Steps and kinds only: a text names the worker by its rank in the world. */
static void assert_same_events(const job *whole, const job *cut)
{
    json_t *a = epochs_summary(whole->out), *b = epochs_summary(cut->out);
    const json_t *events = json_object_get(a, "events"), *others = json_object_get(b, "events");

    assert_true(json_array_size(events) > 2);
    assert_int_equal(json_array_size(others), json_array_size(events));
    for (size_t k = 0; k < json_array_size(events); k++) {
        epochs_assert_same(whole->out, cut->out, json_array_get(events, k), json_array_get(others, k), "step");
        epochs_assert_same(whole->out, cut->out, json_array_get(events, k), json_array_get(others, k), "kind");
    }
    json_decref(a);
    json_decref(b);
}

/* A loss scale that is too high at first, and a rate that is, make overflows in early epochs. */
static void events_of_earlier_epochs_are_kept(void **state)
{
    job *whole = configured("ddp", "events-whole"),
        *cut = disturbed("ddp", "events-cut", come_and_go, TUTTI_LENGTH(come_and_go));

    (void)state;
    whole->config.loss_scale = cut->config.loss_scale =
        "dynamic(init=1.2676506002282294e30,interval=3,backoff=0.0009765625)";
    whole->config.optimizer = cut->config.optimizer = "sgd(lr=1e9)";
    cut->by_image = true;
    train(whole, cut);
    assert_lines_go_on(whole, cut);
    assert_same_events(whole, cut);
    test_free(whole);
    test_free(cut);
}

static double regret_of(const job *j)
{
    json_t *o = epochs_summary(j->out);
    const json_t *regret = json_object_get(o, "dynamic_regret");
    const double value = json_is_null(regret) ? -1 : json_number_value(regret);

    json_decref(o);
    return value;
}

/* It is a sum over the workers. Each step has 4, whichever way an epoch ends. */
static void the_regret_is_that_of_all_epochs(void **state)
{
    static const plan plans[2][2] = {
        { { 4, { 0, 1, 2, 3 }, 0, 3, false }, { 4, { 1, 3, 4, 5 }, 3, STEPS, false } },
        { { 4, { 0, 1, 2, 3 }, 0, 3, true }, { 4, { 1, 3, 4, 5 }, 3, STEPS, false } },
    };
    job *whole = configured("ddp", "regret-whole"), *cut[2];

    (void)state;
    whole->config.model = whole->config.data = "quadratic";
    epochs_undisturbed(&whole->config);
    for (int k = 0; k < 2; k++) {
        cut[k] = disturbed("ddp", k == 0 ? "regret-a" : "regret-b", plans[k], TUTTI_LENGTH(plans[k]));
        cut[k]->config.model = cut[k]->config.data = "quadratic";
        cut[k]->config.checkpoint_every = 1;
        cut[k]->config.checkpoint_on_signal = true;
        train_in_epochs(cut[k]);
        close_all(cut[k]);
    }
    assert_true(regret_of(whole) > 0);
    for (int k = 0; k < 2; k++)
        assert_true(fabs(regret_of(cut[k]) / regret_of(whole) - 1) < 1e-9);
    test_free(whole);
    test_free(cut[0]);
    test_free(cut[1]);
}

/* The second epoch has no end of its own. Then the losses since the last report are those of the
   checkpoint with which the third begins. Process 1 was there and has those of steps that are made
   again, process 0 has left before and comes back, 3 and 4 come. */
static void losses_go_on_from_the_state_that_an_epoch_begins_with(void **state)
{
    static const plan plans[2][3] = {
        { { 3, { 0, 1, 2 }, 0, 3, false }, { 2, { 1, 2 }, 3, 6, true }, { 3, { 1, 3, 4 }, 3, STEPS, false } },
        { { 3, { 0, 1, 2 }, 0, 3, false }, { 2, { 1, 2 }, 3, 6, true }, { 3, { 3, 0, 4 }, 5, STEPS, false } },
    };
    job *whole = configured("ddp", "lost-whole");

    (void)state;
    epochs_undisturbed(&whole->config);
    for (int k = 0; k < 2; k++) {
        job *cut = disturbed("ddp", k == 0 ? "lost-a" : "lost-b", plans[k], TUTTI_LENGTH(plans[k]));
        cut->config.checkpoint_every = 1;
        cut->config.checkpoint_keep = STEPS;
        cut->config.checkpoint_on_signal = true;
        train_in_epochs(cut);
        close_all(cut);
        epochs_assert_same_model(whole->out, cut->out);
        epochs_assert_same_lines(whole->out, cut->out);
        test_free(cut);
    }
    test_free(whole);
}

/* An evaluation that reaches the target ends the run, and not the epoch only. */
static void a_run_that_reaches_its_target_has_no_next_epoch(void **state)
{
    static const plan plans[] = { { 2, { 0, 1 }, 0, 5, false } };
    job *j = disturbed("ddp", "target", plans, TUTTI_LENGTH(plans));

    (void)state;
    j->config.target = "loss=1000";
    train_in_epochs(j);
    assert_true(j->of[0].run.finished);
    close_all(j);
    test_free(j);
}

/* The others wait until the first one has opened the record, which may take long. */
static void the_time_of_a_run_has_that_of_opening_its_epochs(void **state)
{
    static const plan plans[] = { { 2, { 0, 1 }, 0, 4, false }, { 3, { 0, 1, 2 }, 4, STEPS, false } };
    job *j = disturbed("ddp", "slow-record", plans, TUTTI_LENGTH(plans));
    double seconds[2] = { 0 }; /* of the last line of the first epoch, and of the first one of the second */
    json_t *lines, *line;
    size_t k;

    (void)state;
    j->by_image = true;
    opening_ms = 400;
    train_in_epochs(j);
    lines = epochs_lines(j->out);
    json_array_foreach(lines, k, line) {
        const bool after = epochs_number(line, "step") > plans[1].from;
        if (!after || seconds[1] == 0)
            seconds[after] = epochs_number(line, "wall_seconds");
    }
    assert_true(seconds[1] - seconds[0] >= 1e-3 * opening_ms);
    opening_ms = 0;
    json_decref(lines);
    close_all(j);
    test_free(j);
}

/* ---- refusals ---- */

static void refuse(job *j, tutti_status with, const char *sentence)
{
    const plan *const now = &j->plans[j->epoch];
    tutti_error err = { .rank = -1 };

    for (int k = 0; k < now->n; k++)
        if (j->of[now->member[k]].rt == NULL)
            start(j, &j->of[now->member[k]]);
    assert_int_equal(tutti_world_run("shm", now->n, member_main, j, &err), with);
    if (strstr(err.text, sentence) == NULL)
        fail_msg("'%s' is not in: %s", sentence, err.text);
    close_all(j);
    test_free(j);
}

static void what_cannot_go_on_with_other_workers_is_refused(void **state)
{
    static const plan alone[] = { { 1, { 0 }, 0, STEPS, false } };
    job *j = disturbed("ddp", "refused-shares", alone, 1);

    (void)state;
    j->config.elastic_shares = 0;
    refuse(j, TUTTI_ERR_USAGE, "elastic-shares is 0");
    j = disturbed("ddp", "refused-trace", alone, 1);
    j->config.trace = true;
    refuse(j, TUTTI_ERR_USAGE, "trace is given");
    j = disturbed("ddp", "refused-method", alone, 1);
    j->config.method = "dgc";
    refuse(j, TUTTI_ERR_USAGE, "method 'dgc' may be within a step when a worker is lost");
}

/* Process 2 comes to the state of step 2 with that of step 1. */
static void states_of_different_steps_are_refused(void **state)
{
    static const plan plans[] = { { 2, { 0, 1 }, 0, 2, false }, { 3, { 0, 1, 2 }, 2, STEPS, false } };
    job *j = disturbed("ddp", "refused-steps", plans, 1);

    (void)state;
    j->config.checkpoint_every = 1;
    train_in_epochs(j);
    j->epoch = 1;
    j->behind = 2;
    refuse(j, TUTTI_ERR_STATE, "the members begin epoch 2 with states of steps 1 to 2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_of_ddp_come_and_go),
        cmocka_unit_test(members_of_zero_come_and_go),
        cmocka_unit_test(members_of_powersgd_come_and_go),
        cmocka_unit_test(members_of_stages_2_and_3_of_zero_come_and_go),
        cmocka_unit_test(a_run_whose_first_epoch_makes_no_step_begins_in_the_next),
        cmocka_unit_test(an_epoch_that_does_not_last_begins_no_step),
        cmocka_unit_test(an_epoch_that_does_not_last_ends_between_two_passes),
        cmocka_unit_test(events_of_earlier_epochs_are_kept),
        cmocka_unit_test(the_regret_is_that_of_all_epochs),
        cmocka_unit_test(losses_go_on_from_the_state_that_an_epoch_begins_with),
        cmocka_unit_test(a_run_that_reaches_its_target_has_no_next_epoch),
        cmocka_unit_test(the_time_of_a_run_has_that_of_opening_its_epochs),
        cmocka_unit_test(what_cannot_go_on_with_other_workers_is_refused),
        cmocka_unit_test(states_of_different_steps_are_refused),
    };
    return cmocka_run_group_tests(tests, epochs_set_up, epochs_tear_down);
}
