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
#include <stdlib.h>
#include <string.h>

#include "engine/image.h"
#include "train/train_internal.h"
#include "tutti/checkpoint.h"
#include "tutti/comm.h"
#include "mnist.h"
#include "scratch.h"

enum { PROCESSES = 6, MEMBERS = 5, STEPS = 10, SHARES = 8, BATCH = 4, REPORTS = 4 };

static char folder[SCRATCH_PATH], data[SCRATCH_PATH + 16];

static int set_up(void **state)
{
    (void)state;
    scratch_make(folder);
    snprintf(data, sizeof data, "%s/data", folder);
    small_mnist(folder, "data", 600, 200);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    scratch_remove(folder);
    return 0;
}

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
    tutti_error err = { .rank = -1 };
    tutti_train_config *c = &j->config;
    tutti_runtime *rt;

    snprintf(j->out, sizeof j->out, "%s/%s", folder, out);
    tutti_options_default(tutti_train_options, c);
    c->data = data;
    c->out = j->out;
    c->model = "mlp(hidden=24)";
    c->method = method;
    c->optimizer = "adamw(lr=0.002)";
    c->n = 4;
    c->elastic_shares = SHARES;
    c->batch = BATCH;
    c->steps = STEPS;
    c->threads = 1;
    c->seed = 5;
    c->report_every = REPORTS;
    c->eval_every = 5;
    c->log_to = "tensorboard,csv";
    c->quiet = true;
    if (tutti_train_check(c, 2, &err) != TUTTI_OK)
        fail_msg("%s", err.text);
    assert_int_equal(tutti_runtime_open_posix(&rt, &err), TUTTI_OK);
    if (tutti_train_prepare(rt, c, &err) != TUTTI_OK)
        fail_msg("%s", err.text);
    tutti_runtime_close(rt);
}

static bool ends(void *user, uint64_t step)
{
    const plan *now = user;

    return !now->stops && step == now->until;
}

/* Callback of process.io. */
static int stop(void *user)
{
    const process *p = user;
    const plan *now = &p->job->plans[p->job->epoch];

    return now->stops && tutti_engine_method(p->run.engine)->step == now->until;
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
    char *facts;
    tutti_status status;

    *image = NULL;
    if (j->plans[j->epoch].until == 0)
        return TUTTI_OK;
    status = tutti_train_loop(run, err);
    if (status == TUTTI_CLOSED && j->plans[j->epoch].stops)
        return TUTTI_OK;
    TUTTI_TRY(status);
    if (run->finished)
        return finish(run, err);
    if (!j->by_image || run->rank != 0)
        return TUTTI_OK;
    facts = tutti_train_facts(run);
    status = tutti_engine_image(run->engine, facts, image, err);
    free(facts);
    return status;
}

static tutti_status member_main(tutti_world *world, void *arg, tutti_error *err)
{
    job *j = arg;
    const plan *const now = &j->plans[j->epoch];
    process *p = &j->of[now->member[tutti_world_rank(world)]];
    tutti_train_epoch epoch = { .number = (uint64_t)j->epoch + 1, .ends = ends, .user = (void *)(uintptr_t)now };
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

static tutti_status undisturbed_main(tutti_world *world, void *arg, tutti_error *err)
{
    const tutti_train_io io = { 0 };

    return tutti_train_worker(world, arg, &io, err);
}

/* ---- its records ---- */

/* The lines of metrics.jsonl; the caller owns them. */
static json_t *lines_of(const job *j)
{
    char path[SCRATCH_PATH + 128], line[8192];
    json_t *lines = json_array();
    FILE *f;

    snprintf(path, sizeof path, "%s/metrics.jsonl", j->out);
    f = fopen(path, "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f) != NULL)
        assert_int_equal(json_array_append_new(lines, json_loads(line, 0, NULL)), 0);
    fclose(f);
    return lines;
}

static double number(const json_t *line, const char *key)
{
    return json_number_value(json_object_get(line, key));
}

static json_t *summary_of(const job *j)
{
    char path[SCRATCH_PATH + 128];
    json_t *o;

    snprintf(path, sizeof path, "%s/summary.json", j->out);
    o = json_load_file(path, 0, NULL);
    assert_non_null(o);
    return o;
}

/* Returns what all processes of the run have sent, those that have left included. */
static double sent_by(const job *j)
{
    double sum = 0;

    for (int k = 0; k < PROCESSES; k++)
        sum += (double)j->of[k].run.before.bytes_sent;
    return sum;
}

static void assert_same(const job *whole, const job *cut, const json_t *one, const json_t *other, const char *key)
{
    const json_t *a = json_object_get(one, key), *b = json_object_get(other, key);

    if (a != b && !json_equal(a, b))
        fail_msg("%s, step %g: %s is %.17g, and %.17g in %s", cut->out, number(one, "step"), key, number(other, key),
                 number(one, key), whole->out);
}

/* Are the steps, samples, losses and evaluations the same ones, exactly? Time and traffic never
   fall. */
static void assert_lines_go_on(const job *whole, const job *cut)
{
    static const char *const same[] = { "step", "epoch", "samples", "train_loss", "lr", "steps_skipped",
                                        "test_loss", "test_accuracy" };
    static const char *const grows[] = { "step", "samples", "wall_seconds", "bytes_sent_total" };
    json_t *a = lines_of(whole), *b = lines_of(cut), *end = summary_of(cut);
    const json_t *last;

    assert_int_equal(json_array_size(a), json_array_size(b));
    for (size_t i = 0; i < json_array_size(a); i++) {
        const json_t *one = json_array_get(a, i), *other = json_array_get(b, i);
        for (size_t k = 0; k < TUTTI_LENGTH(same); k++)
            assert_same(whole, cut, one, other, same[k]);
        for (size_t k = 0; i > 0 && k < TUTTI_LENGTH(grows); k++)
            if (number(other, grows[k]) < number(json_array_get(b, i - 1), grows[k]))
                fail_msg("%s, line %zu: %s falls to %.17g", cut->out, i, grows[k], number(other, grows[k]));
    }
    last = json_array_get(b, json_array_size(b) - 1);
    if (number(end, "bytes_sent_total") != sent_by(cut))
        fail_msg("%s: bytes_sent_total is %.17g, and the processes have sent %.17g", cut->out,
                 number(end, "bytes_sent_total"), sent_by(cut));
    assert_true(number(end, "bytes_sent_total") >= number(last, "bytes_sent_total"));
    assert_true(number(end, "wall_seconds") >= number(last, "wall_seconds"));
    json_decref(a);
    json_decref(b);
    json_decref(end);
}

/* metrics.csv has a line for each of metrics.jsonl, of the same step. */
static void assert_table_follows(const job *j)
{
    char path[SCRATCH_PATH + 128], line[1024];
    json_t *lines = lines_of(j);
    size_t n = 0;
    FILE *f;

    snprintf(path, sizeof path, "%s/metrics.csv", j->out);
    f = fopen(path, "r");
    assert_non_null(f);
    assert_non_null(fgets(line, sizeof line, f)); /* names of columns */
    for (; fgets(line, sizeof line, f) != NULL; n++)
        assert_true(strtod(line, NULL) == number(json_array_get(lines, n), "step"));
    assert_int_equal(n, json_array_size(lines));
    fclose(f);
    json_decref(lines);
}

/* Each sample of the steps once; the members of the end; the steps of the whole run. */
static void assert_summary(const job *j)
{
    json_t *o = summary_of(j);
    const json_t *rows = json_object_get(o, "by_worker"), *row;
    size_t k;

    assert_int_equal(number(o, "steps"), STEPS);
    assert_int_equal(number(o, "samples"), STEPS * SHARES * BATCH);
    assert_int_equal(json_array_size(json_object_get(o, "members")), j->plans[j->epochs - 1].n);
    assert_true(json_is_null(json_object_get(o, "resumed_at_step")));
    json_array_foreach(rows, k, row) {
        const double parts = number(row, "compute_seconds") + number(row, "exposed_comm_seconds") +
                             number(row, "other_seconds");
        assert_true(fabs(parts - number(row, "wall_seconds")) < 1e-6);
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

static void train_undisturbed(job *j)
{
    tutti_error err = { .rank = -1 };

    if (tutti_world_run("shm", (int)j->config.n, undisturbed_main, &j->config, &err) != TUTTI_OK)
        fail_msg("%s", err.text);
}

/* Runs both. The caller frees them. */
static void train(job *whole, job *cut)
{
    train_undisturbed(whole);
    train_in_epochs(cut);
    close_all(cut);
}

static void assert_same_model(const job *whole, const job *cut)
{
    shell("cmp '%s/model.safetensors' '%s/model.safetensors'", whole->out, cut->out);
}

static void assert_as_undisturbed(job *whole, job *cut)
{
    train(whole, cut);
    assert_same_model(whole, cut);
    assert_lines_go_on(whole, cut);
    assert_table_follows(cut);
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

static void a_run_whose_first_epoch_makes_no_step_begins_in_the_next(void **state)
{
    static const plan plans[] = { { 2, { 0, 1 }, 0, 0, false }, { 3, { 0, 1, 2 }, 0, STEPS, false } };

    (void)state;
    assert_as_undisturbed(configured("ddp", "idle-whole"), disturbed("ddp", "idle-cut", plans, TUTTI_LENGTH(plans)));
}

/* Steps and kinds only: a text names the worker by its rank in the world. */
static void assert_same_events(const job *whole, const job *cut)
{
    json_t *a = summary_of(whole), *b = summary_of(cut);
    const json_t *events = json_object_get(a, "events"), *others = json_object_get(b, "events");

    assert_true(json_array_size(events) > 2);
    assert_int_equal(json_array_size(others), json_array_size(events));
    for (size_t k = 0; k < json_array_size(events); k++) {
        assert_same(whole, cut, json_array_get(events, k), json_array_get(others, k), "step");
        assert_same(whole, cut, json_array_get(events, k), json_array_get(others, k), "kind");
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
    json_t *o = summary_of(j);
    const json_t *regret = json_object_get(o, "dynamic_regret");
    const double value = json_is_null(regret) ? -1 : json_number_value(regret);

    json_decref(o);
    return value;
}

/* It is a sum over the workers. Each step has 4. It is not known after an epoch without an end. */
static void the_regret_is_that_of_all_epochs(void **state)
{
    static const plan plans[2][2] = {
        { { 4, { 0, 1, 2, 3 }, 0, 3, false }, { 4, { 1, 3, 4, 5 }, 3, STEPS, false } },
        { { 4, { 0, 1, 2, 3 }, 0, 3, true }, { 4, { 1, 3, 4, 5 }, 3, STEPS, false } },
    };
    job *whole = configured("ddp", "regret-whole"), *cut[2];

    (void)state;
    whole->config.model = whole->config.data = "quadratic";
    train_undisturbed(whole);
    for (int k = 0; k < 2; k++) {
        cut[k] = disturbed("ddp", k == 0 ? "regret-a" : "regret-b", plans[k], TUTTI_LENGTH(plans[k]));
        cut[k]->config.model = cut[k]->config.data = "quadratic";
        cut[k]->config.checkpoint_every = 1;
        cut[k]->config.checkpoint_on_signal = true;
        train_in_epochs(cut[k]);
        close_all(cut[k]);
    }
    assert_true(regret_of(whole) > 0);
    assert_true(fabs(regret_of(cut[0]) / regret_of(whole) - 1) < 1e-9);
    assert_true(regret_of(cut[1]) == -1);
    test_free(whole);
    test_free(cut[0]);
    test_free(cut[1]);
}

/* Returns the mean training loss of the steps after `from`, to `to`; all have as many samples. */
static double mean_loss(const job *by_step, double from, double to)
{
    json_t *lines = lines_of(by_step), *line;
    double sum = 0;
    size_t k;

    json_array_foreach(lines, k, line)
        if (json_object_get(line, "train_loss") != NULL && number(line, "step") > from && number(line, "step") <= to)
            sum += number(line, "train_loss");
    json_decref(lines);
    return sum / (to - from);
}

/* Are the losses of the reports the means over the steps since the line before, or since step
   `from` if that comes between the two? */
static void assert_means(const job *by_step, const job *cut, double from)
{
    json_t *lines = lines_of(cut), *line;
    double before = 0;
    size_t k;

    json_array_foreach(lines, k, line) {
        const double step = number(line, "step"), since = before < from && from < step ? from : before,
                     mean = mean_loss(by_step, since, step);
        if (json_object_get(line, "train_loss") == NULL)
            continue;
        if (!(fabs(number(line, "train_loss") - mean) < 1e-7))
            fail_msg("%s, step %g: train_loss is %.9g; from step %g it is %.9g", cut->out, step,
                     number(line, "train_loss"), since, mean);
        before = step;
    }
    json_decref(lines);
}

/* The second epoch has no end of its own, as one that a loss has ended. Then the losses since the
   last report are forgotten by all: by process 1, which was there and has those of steps that are
   made again, and by process 0, which has left before and comes back. */
static void losses_of_an_epoch_without_an_end_are_forgotten(void **state)
{
    static const plan plans[2][3] = {
        { { 3, { 0, 1, 2 }, 0, 3, false }, { 2, { 1, 2 }, 3, 6, true }, { 3, { 1, 3, 4 }, 3, STEPS, false } },
        { { 3, { 0, 1, 2 }, 0, 3, false }, { 2, { 1, 2 }, 3, 6, true }, { 3, { 1, 0, 3 }, 5, STEPS, false } },
    };
    job *whole = configured("ddp", "lost-whole");

    (void)state;
    whole->config.report_every = 1;
    train_undisturbed(whole);
    for (int k = 0; k < 2; k++) {
        job *cut = disturbed("ddp", k == 0 ? "lost-a" : "lost-b", plans[k], TUTTI_LENGTH(plans[k]));
        cut->config.checkpoint_every = 1;
        cut->config.checkpoint_keep = STEPS;
        cut->config.checkpoint_on_signal = true;
        train_in_epochs(cut);
        close_all(cut);
        assert_same_model(whole, cut);
        assert_means(whole, cut, plans[k][2].from);
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

static void what_depends_on_the_workers_is_refused(void **state)
{
    static const plan alone[] = { { 1, { 0 }, 0, STEPS, false } };
    job *j = disturbed("ddp", "refused-shares", alone, 1);

    (void)state;
    j->config.elastic_shares = 0;
    refuse(j, TUTTI_ERR_USAGE, "elastic-shares is 0");
    j = disturbed("ddp", "refused-trace", alone, 1);
    j->config.trace = true;
    refuse(j, TUTTI_ERR_USAGE, "trace is given");
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
        cmocka_unit_test(a_run_whose_first_epoch_makes_no_step_begins_in_the_next),
        cmocka_unit_test(events_of_earlier_epochs_are_kept),
        cmocka_unit_test(the_regret_is_that_of_all_epochs),
        cmocka_unit_test(losses_of_an_epoch_without_an_end_are_forgotten),
        cmocka_unit_test(a_run_that_reaches_its_target_has_no_next_epoch),
        cmocka_unit_test(what_depends_on_the_workers_is_refused),
        cmocka_unit_test(states_of_different_steps_are_refused),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
