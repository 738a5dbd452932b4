/* Goal: members are killed and others come, and the run has the bits and the lines of one that is
   not disturbed: 4 -> 3 -> 4 -> 6 -> 2, the lowest member included, one at a time and four at once.
   Each sample is trained exactly once, each report and evaluation is made once, and their losses
   are exact. Method: processes are threads, as in train/epochs. One that is killed fails in a call
   that the linker has wrapped: before a step, between its passes, when it is asked to commit,
   after it, in a report, an evaluation, a checkpoint, the results. What its thread has of the run
   is then thrown away. Another one may not commit the step in which it is killed. The others have
   the state of the step before, or of that step. Which of them the next epoch begins with is drawn.
   Under zero each has a part of it, and the parts of those that are left make the whole, at either
   of the two steps, unless two neighbours were killed. Then it is the newest checkpoint. Under
   powersgd each has the residuals of its shares, and the steps that they go back to are named ones:
   every third, and an epoch's first and second. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "elastic/state.h"
#include "state/image.h"
#include "tutti/files.h"
#include "tutti/comm.h"
#include "epochs_job.h"
#include "mnist.h"
#include "sanitized.h"

enum { PROCESSES = 6, STEPS = 12, REPORTS = 2, EVALUATIONS = 3, CHECKPOINTS = 4, NAMES = 3 };

/* Where a process is killed. */
typedef enum moment {
    BEFORE_PASS,
    AFTER_PASS,
    BEFORE_STEP,                     /* after the passes */
    BEFORE_COMMIT,                   /* before it adds up its losses with the others' */
    AT_COMMIT,
    AFTER_STEP,
    BEFORE_REPORT,
    AFTER_REPORT,
    IN_EVALUATION,
    IN_CHECKPOINT,
    DRAWN,
    BEFORE_FINAL = DRAWN,            /* evaluation; at the end of the run only */
    BEFORE_RESULTS,
    BEFORE_COPIES,                   /* of a named step */
    AFTER_COPIES,
    LIVES
} moment;

typedef struct process {
    tutti_run run;
    tutti_train_io io;
    tutti_runtime *rt;               /* NULL: it has not begun, or it was killed */
    moment dies_at;
    uint64_t dies_in;                /* the step, from 0 */
    bool killed;
    uint64_t refuses_in;             /* it does not commit that step, from 1, and lives; 0: none */
    tutti_image *image, *next;       /* what it has left of the last epoch and of this one; NULL:
                                        nothing */
    tutti_image *beside;             /* and of a neighbouring step; NULL: nothing */
    bool goes_on;                    /* it has the state of a whole step */
    tutti_error why;                 /* it did not come to the end of the epoch */
} process;

typedef struct job {
    tutti_train_config config;
    char out[SCRATCH_PATH + 64];
    process of[PROCESSES];
    unsigned drawn;                  /* state of the generator */
    uint64_t epoch, until;           /* until: step after which all end it; 0: a loss does */
    int n, member[PROCESSES];
    bool by_parts;                   /* an image is a part */
    uint64_t names;                  /* of the epochs: 0: each step is whole */
    const tutti_image *from;         /* the state that the epoch begins with, or */
    tutti_image *joined;             /* it, put together of parts; NULL: it is a process's */
    char checkpoint[SCRATCH_PATH + 256]; /* "": no step is done */
} job;

static _Thread_local process *me;    /* NULL: a thread of no process of a lossy run */

/* ---- killing ---- */

static bool is_killed(moment at, uint64_t step)
{
    if (me == NULL || me->dies_at != at || step != me->dies_in)
        return false;
    me->killed = true;
    return true;
}

static tutti_status killed(tutti_error *err)
{
    return tutti_fail(err, TUTTI_ERR_IO, 0, "this process was killed");
}

static uint64_t step_of(const tutti_run *run)
{
    return tutti_engine_method(run->engine)->step;
}

/* Returns the step, from 0, after which the run is. */
static uint64_t last_of(const tutti_run *run)
{
    return step_of(run) - 1;
}

tutti_status __real_tutti_engine_pass_begin(tutti_engine *e, tutti_pass *pass, tutti_error *err);
tutti_status __wrap_tutti_engine_pass_begin(tutti_engine *e, tutti_pass *pass, tutti_error *err);
tutti_status __wrap_tutti_engine_pass_begin(tutti_engine *e, tutti_pass *pass, tutti_error *err)
{
    return is_killed(BEFORE_PASS, tutti_engine_method(e)->step) ? killed(err)
                                                                : __real_tutti_engine_pass_begin(e, pass, err);
}

tutti_status __real_tutti_engine_pass_end(tutti_engine *e, double loss, tutti_error *err);
tutti_status __wrap_tutti_engine_pass_end(tutti_engine *e, double loss, tutti_error *err);
tutti_status __wrap_tutti_engine_pass_end(tutti_engine *e, double loss, tutti_error *err)
{
    const tutti_status status = __real_tutti_engine_pass_end(e, loss, err);

    return status == TUTTI_OK && is_killed(AFTER_PASS, tutti_engine_method(e)->step) ? killed(err) : status;
}

tutti_status __real_tutti_engine_step(tutti_engine *e, tutti_error *err);
tutti_status __wrap_tutti_engine_step(tutti_engine *e, tutti_error *err);
tutti_status __wrap_tutti_engine_step(tutti_engine *e, tutti_error *err)
{
    const uint64_t step = tutti_engine_method(e)->step;
    tutti_status status;

    if (is_killed(BEFORE_STEP, step))
        return killed(err);
    status = __real_tutti_engine_step(e, err);
    return status == TUTTI_OK && is_killed(AFTER_STEP, step) ? killed(err) : status;
}

bool __real_tutti_train_commit(void *user, uint64_t step);
bool __wrap_tutti_train_commit(void *user, uint64_t step);
bool __wrap_tutti_train_commit(void *user, uint64_t step)
{
    return !is_killed(BEFORE_COMMIT, step) && __real_tutti_train_commit(user, step);
}

tutti_status __real_tutti_train_report(tutti_run *run, tutti_error *err);
tutti_status __wrap_tutti_train_report(tutti_run *run, tutti_error *err);
tutti_status __wrap_tutti_train_report(tutti_run *run, tutti_error *err)
{
    tutti_status status;

    if (is_killed(BEFORE_REPORT, last_of(run)))
        return killed(err);
    status = __real_tutti_train_report(run, err);
    return status == TUTTI_OK && is_killed(AFTER_REPORT, last_of(run)) ? killed(err) : status;
}

tutti_status __real_tutti_train_evaluate(tutti_run *run, tutti_split split, uint64_t most,
                                         const tutti_train_scores *to, tutti_error *err);
tutti_status __wrap_tutti_train_evaluate(tutti_run *run, tutti_split split, uint64_t most,
                                         const tutti_train_scores *to, tutti_error *err);
tutti_status __wrap_tutti_train_evaluate(tutti_run *run, tutti_split split, uint64_t most,
                                         const tutti_train_scores *to, tutti_error *err)
{
    return is_killed(IN_EVALUATION, last_of(run)) ? killed(err)
                                                  : __real_tutti_train_evaluate(run, split, most, to, err);
}

tutti_status __real_tutti_engine_save(tutti_engine *e, const char *directory, const char *facts, int keep,
                                      tutti_error *err);
tutti_status __wrap_tutti_engine_save(tutti_engine *e, const char *directory, const char *facts, int keep,
                                      tutti_error *err);
tutti_status __wrap_tutti_engine_save(tutti_engine *e, const char *directory, const char *facts, int keep,
                                      tutti_error *err)
{
    return is_killed(IN_CHECKPOINT, tutti_engine_method(e)->step - 1)
               ? killed(err)
               : __real_tutti_engine_save(e, directory, facts, keep, err);
}

tutti_status __real_tutti_engine_image_copied(tutti_engine *e, const char *facts, tutti_image **image,
                                              tutti_error *err);
tutti_status __wrap_tutti_engine_image_copied(tutti_engine *e, const char *facts, tutti_image **image,
                                              tutti_error *err);
tutti_status __wrap_tutti_engine_image_copied(tutti_engine *e, const char *facts, tutti_image **image,
                                              tutti_error *err)
{
    const uint64_t step = tutti_engine_method(e)->step - 1;
    tutti_status status;

    if (is_killed(BEFORE_COPIES, step))
        return killed(err);
    status = __real_tutti_engine_image_copied(e, facts, image, err);
    if (status != TUTTI_OK || !is_killed(AFTER_COPIES, step))
        return status;
    tutti_image_close(*image);
    return killed(err);
}

/* Callback of the epoch. */
static bool commit(void *user, uint64_t step)
{
    (void)user;
    return !is_killed(AT_COMMIT, step) && step + 1 != me->refuses_in;
}

/* Callback of the epoch. */
static bool ends(void *user, uint64_t step)
{
    return step == ((const job *)user)->until;
}

/* ---- a run ---- */

static unsigned draw(job *j, unsigned below)
{
    j->drawn = j->drawn * 1664525u + 1013904223u;
    return (j->drawn >> 8) % below;
}

static job *configured(const char *method, const char *out)
{
    job *j = test_calloc(1, sizeof *j);

    snprintf(j->out, sizeof j->out, "%s/%s", epochs_folder, out);
    epochs_configure(&j->config, method, j->out);
    j->config.steps = STEPS;
    j->config.report_every = REPORTS;
    j->config.eval_every = EVALUATIONS;
    j->config.lr_schedule = "linear";
    j->names = strncmp(method, "powersgd", 8) == 0 ? NAMES : 0;
    j->by_parts = j->names > 0 || strncmp(method, "zero", 4) == 0;
    j->config.checkpoint_every = j->by_parts ? 1 : CHECKPOINTS;
    j->config.checkpoint_keep = STEPS;
    return j;
}

static void start(job *j, process *p)
{
    tutti_error err = { .rank = -1 };

    if (p->rt != NULL)
        return;
    assert_int_equal(tutti_runtime_open_posix(&p->rt, &err), TUTTI_OK);
    p->io = (tutti_train_io){ 0 };
    p->dies_at = LIVES;
    p->killed = false;
    p->refuses_in = 0;
    tutti_train_begin(&p->run, p->rt, &j->config, &p->io);
    if (tutti_train_open_samples(&p->run, &err) != TUTTI_OK)
        fail_msg("%s", err.text);
}

static void drop(process *p)
{
    if (p->rt == NULL)
        return;
    tutti_train_close_all(&p->run);
    tutti_runtime_close(p->rt);
    tutti_image_close(p->image);
    tutti_image_close(p->next);
    tutti_image_close(p->beside);
    p->image = p->next = p->beside = NULL;
    p->rt = NULL;
}

/* A survivor that has that state begins with its own image of it. */
static tutti_status open_state(const job *j, const process *p, tutti_checkpoint **from, tutti_error *err)
{
    *from = NULL;
    if (j->from != NULL)
        return tutti_image_checkpoint(
            from,
            !j->by_parts && p->image != NULL && p->image->step == j->from->step ? p->image : j->from, err);
    return j->checkpoint[0] != 0 ? tutti_checkpoint_open(from, p->rt, j->checkpoint, err) : TUTTI_OK;
}

static tutti_status train(process *p, tutti_error *err)
{
    tutti_run *run = &p->run;

    TUTTI_TRY(tutti_train_loop(run, err));
    if (!run->finished)
        return TUTTI_OK;
    if (is_killed(BEFORE_FINAL, last_of(run)))
        return killed(err);
    TUTTI_TRY(tutti_train_evaluate_final(run, err));
    if (is_killed(BEFORE_RESULTS, last_of(run)))
        return killed(err);
    TUTTI_TRY(tutti_train_results(run, err));
    return tutti_engine_part(run->engine, err);
}

static tutti_status member_main(tutti_world *world, void *arg, tutti_error *err)
{
    job *j = arg;
    process *p = &j->of[j->member[tutti_world_rank(world)]];
    tutti_train_epoch epoch = { .number = j->epoch, .ends = ends, .commit = commit, .names = j->names, .user = j };
    tutti_status status = open_state(j, p, &epoch.from, err);

    me = p;
    if (status == TUTTI_OK)
        status = tutti_train_epoch_open(&p->run, world, &epoch, err);
    if (status == TUTTI_OK)
        status = train(p, err);
    if (status == TUTTI_OK)
        status = tutti_barrier(&p->run.all, err);
    p->goes_on = status == TUTTI_OK || status == TUTTI_ERR_PEER;
    p->why = *err;
    if (p->goes_on)
        p->goes_on = tutti_train_epoch_image(&p->run, &p->next, &p->why) == TUTTI_OK;
    if (p->goes_on) {
        tutti_image_close(p->beside);
        p->goes_on = tutti_train_epoch_beside(&p->run, &p->beside, &p->why) == TUTTI_OK;
    }
    tutti_train_epoch_close(&p->run);
    tutti_checkpoint_close(epoch.from);
    me = NULL;
    return status;
}

/* ---- one epoch after the other ---- */

static void add_member(job *j, int process_number)
{
    const unsigned at = draw(j, (unsigned)j->n + 1);

    memmove(j->member + at + 1, j->member + at, ((unsigned)j->n - at) * sizeof *j->member);
    j->member[at] = process_number;
    j->n++;
}

/* Returns the process at that place, which is no member any more. */
static int remove_member(job *j, int at)
{
    const int number = j->member[at];

    j->n--;
    memmove(j->member + at, j->member + at + 1, (unsigned)(j->n - at) * sizeof *j->member);
    return number;
}

/* One whose exchange of losses has failed says so, and not that its client has not committed. */
static void assert_reasons(const job *j)
{
    for (int k = 0; k < j->n; k++) {
        const process *p = &j->of[j->member[k]];
        char own[64];
        snprintf(own, sizeof own, "worker %d: step", k);
        if (!p->killed && p->refuses_in == 0 && strncmp(p->why.text, own, strlen(own)) == 0)
            fail_msg("%s, process %d: %s", j->out, j->member[k], p->why.text);
    }
}

/* Without a named step what the epoch began with is still the state. */
static void keep_state(const job *j, process *p)
{
    tutti_error err = { .rank = -1 };

    if (p->next == NULL && j->from != NULL &&
        tutti_image_copy(&p->next, j->from, j->from->pieces, j->from->n, &err) != TUTTI_OK)
        fail_msg("%s", err.text);
}

/* What each member has left takes the place of what it has begun with. */
static void take_images(job *j)
{
    for (int k = 0; k < j->n; k++) {
        process *p = &j->of[j->member[k]];
        if (!p->goes_on)
            fail_msg("%s, epoch %d, process %d: %s", j->out, (int)j->epoch, j->member[k], p->why.text);
        keep_state(j, p);
        tutti_image_close(p->image);
        p->image = p->next;
        p->next = NULL;
        p->refuses_in = 0;
    }
}

/* NULL: of step 0. */
static uint64_t step_of_image(const tutti_image *image)
{
    return image != NULL ? image->step : 0;
}

/* Chooses the state of the next epoch among those of the members: they have that of one step or of
   two (named ones) that follow one another. */
static void choose_image(job *j)
{
    const bool least = draw(j, 2) == 0;
    const uint64_t apart = j->names > 0 ? j->names : 1;
    const tutti_image *chosen = j->of[j->member[0]].image;

    for (int k = 0; k < j->n; k++) {
        const tutti_image *image = j->of[j->member[k]].image;
        if (least ? step_of_image(image) < step_of_image(chosen) : step_of_image(image) > step_of_image(chosen))
            chosen = image;
    }
    for (int k = 0; k < j->n; k++) {
        const uint64_t step = step_of_image(j->of[j->member[k]].image);
        assert_true(step <= step_of_image(chosen) + apart && step_of_image(chosen) <= step + apart);
    }
    j->from = chosen;
}

/* ---- a state of parts ---- */

typedef struct asked { uint64_t holder, range; } asked;
typedef struct requests { asked at[256]; size_t n; } requests;

static void ask(void *user, uint64_t holder, uint64_t range)
{
    requests *r = user;

    assert_true(r->n < TUTTI_LENGTH(r->at));
    r->at[r->n++] = (asked){ holder, range };
}

static void answer(tutti_fetch *f, const tutti_elastic_state *of, const tutti_image *image, asked what)
{
    tutti_error err = { .rank = -1 };
    tutti_status status;
    uint8_t *manifest;
    const void *at;
    size_t bytes;

    if (what.range != TUTTI_FETCH_MANIFEST) {
        assert_true(tutti_elastic_range(image, of, what.range, &at, &bytes));
        status = tutti_fetch_range(f, 0, what.holder, what.range, at, bytes, &err);
    } else {
        assert_int_equal(tutti_elastic_manifest(image, of, &manifest, &bytes, &err), TUTTI_OK);
        status = tutti_fetch_manifest(f, 0, what.holder, manifest, bytes, &err);
        tutti_free(manifest);
    }
    if (status != TUTTI_OK)
        fail_msg("%s", err.text);
}

/* Of the members' images, and then of their parts of other steps: those of that step. NULL: they
   have not all of it. */
static tutti_image *joined_at(const job *j, uint64_t step)
{
    const tutti_elastic_state of = { .run = "lossy", .step = step };
    const tutti_image *part[2 * PROCESSES] = { 0 };
    requests r = { 0 };
    const tutti_fetch_options options = { .of = of, .most = 1 << 28, .stall_ns = 1, .request = ask, .user = &r };
    tutti_image *image = NULL;
    tutti_fetch *f;

    assert_int_equal(tutti_fetch_open(&f, &options, NULL), TUTTI_OK);
    for (int k = 0; k < 2 * j->n; k++) {
        const process *p = &j->of[j->member[k % j->n]];
        part[k] = k < j->n ? p->image : p->beside;
        if (part[k] != NULL && part[k]->step == step)
            assert_int_equal(tutti_fetch_add(f, 0, (uint64_t)k + 1, NULL), TUTTI_OK);
        while (r.n > 0) {
            const asked what = r.at[--r.n];
            answer(f, &of, part[what.holder - 1], what);
        }
    }
    if (tutti_fetch_state_of(f) == TUTTI_FETCHED)
        assert_int_equal(tutti_fetch_take(f, &image, NULL), TUTTI_OK);
    tutti_fetch_close(f);
    return image;
}

static void choose_checkpoint(job *j);

/* killed_n: members that were killed. One takes nothing with it that no other has. */
static void join_parts(job *j, int killed_n)
{
    const uint64_t step = step_of_image(j->from);

    for (int k = 0; k < j->n && killed_n < 2; k++) { /* of both steps, where there are two */
        const tutti_image *of = j->of[j->member[k]].image;
        tutti_image *other = of != NULL ? joined_at(j, of->step) : NULL;
        if (other == NULL && of != NULL)
            fail_msg("%s, epoch %d: the members that are left do not have all of step %d", j->out, (int)j->epoch,
                     (int)of->step);
        tutti_image_close(other);
    }
    if (j->from == NULL) /* it begins again */
        return;
    tutti_image_close(j->joined);
    j->from = j->joined = joined_at(j, step);
    if (j->from == NULL)
        choose_checkpoint(j);
}

static void choose_checkpoint(job *j)
{
    tutti_error err = { .rank = -1 };
    char folder[SCRATCH_PATH + 128];

    snprintf(folder, sizeof folder, "%s/checkpoints", j->out);
    if (tutti_checkpoint_find(j->of[j->member[0]].rt, folder, j->checkpoint, sizeof j->checkpoint, NULL, 0,
                              &err) != TUTTI_OK)
        j->checkpoint[0] = 0;
}

/* Trains an epoch. Afterwards those that were killed are no members. */
static void train_epoch(job *j, uint64_t until)
{
    tutti_error err = { .rank = -1 };
    tutti_status status;
    bool lossy = false, killed_one = false;
    const int began = j->n;

    j->epoch++;
    j->until = until;
    for (int k = 0; k < j->n; k++) {
        start(j, &j->of[j->member[k]]);
        lossy = lossy || j->of[j->member[k]].dies_at != LIVES;
    }
    status = tutti_world_run("shm", j->n, member_main, j, &err);
    for (int k = 0; k < j->n; k++)
        killed_one = killed_one || j->of[j->member[k]].killed;
    if ((status == TUTTI_OK) == lossy || killed_one != lossy)
        fail_msg("%s, epoch %d: %s", j->out, (int)j->epoch, status == TUTTI_OK ? "nobody was killed" : err.text);
    assert_reasons(j);
    for (int k = j->n - 1; k >= 0; k--)
        if (j->of[j->member[k]].dies_at != LIVES)
            drop(&j->of[remove_member(j, k)]);
    take_images(j);
    choose_image(j);
    if (j->by_parts)
        join_parts(j, began - j->n);
}

/* The process is killed in step `step`, or in the next one that has such a moment. */
static void kill_at(const job *j, process *p, moment at, uint64_t step)
{
    const uint64_t every = at == BEFORE_REPORT || at == AFTER_REPORT ? REPORTS
                           : at == IN_EVALUATION                     ? EVALUATIONS
                           : at == IN_CHECKPOINT                     ? (uint64_t)j->config.checkpoint_every
                           : at == AT_COMMIT || at >= BEFORE_COPIES  ? j->names + (j->names == 0)
                                                                     : 1;

    p->dies_at = at;
    p->dies_in = (step / every + 1) * every - 1;
}

static moment drawn_moment(job *j)
{
    return (moment)draw(j, DRAWN);
}

/* 4 members; one is killed; 3; it comes back; 6; four are killed at once; 2. */
static void come_go_and_die(job *j, moment first)
{
    const int victim = j->drawn % 3 == 0 ? 0 : (int)draw(j, 4);
    unsigned spared, other;

    for (int k = 0; k < 4; k++)
        start(j, &j->of[j->member[j->n++] = k]);
    kill_at(j, &j->of[victim], first, draw(j, 3));
    if (first == AT_COMMIT || first == AFTER_STEP) /* so it has a step less than the others */
        j->of[(victim + 1 + (int)draw(j, 3)) % 4].refuses_in = j->of[victim].dies_in + 1;
    train_epoch(j, 0);
    assert_int_equal(j->n, 3);
    train_epoch(j, 5 + draw(j, 2));
    add_member(j, victim);
    train_epoch(j, 7 + draw(j, 2));
    add_member(j, 4);
    add_member(j, 5);
    for (int k = 0; k < j->n; k++)
        start(j, &j->of[j->member[k]]);
    spared = draw(j, 6);
    other = (spared + 1 + draw(j, 5)) % 6;
    for (unsigned k = 0; k < 6; k++)
        if (k != spared && k != other)
            kill_at(j, &j->of[j->member[k]], drawn_moment(j), 8);
    train_epoch(j, 0);
    assert_int_equal(j->n, 2);
    train_epoch(j, STEPS);
}

static void close_all(job *j)
{
    for (int k = 0; k < PROCESSES; k++)
        drop(&j->of[k]);
    tutti_image_close(j->joined);
}

/* ---- tests ---- */

static job *undisturbed(job *j)
{
    epochs_prepare(&j->config);
    epochs_undisturbed(&j->config);
    return j;
}

/* Each sample of the steps once, each line once, each checkpoint. */
static void assert_as(const job *whole, const job *cut)
{
    static const char *const same[] = { "steps", "samples", "test_accuracy" };
    json_t *a = epochs_summary(whole->out), *b = epochs_summary(cut->out);

    epochs_assert_same_model(whole->out, cut->out);
    epochs_assert_same_lines(whole->out, cut->out);
    epochs_assert_table_follows(cut->out);
    for (size_t k = 0; k < TUTTI_LENGTH(same); k++)
        epochs_assert_same(whole->out, cut->out, a, b, same[k]);
    shell("test \"$(ls '%s/checkpoints')\" = \"$(ls '%s/checkpoints')\"", whole->out, cut->out);
    json_decref(a);
    json_decref(b);
}

/* Each moment is the first one in one of the runs; under a sanitizer every fifth, from another one
   on with each method. */
static void kill_in_runs(const char *method, const char *out)
{
    enum { EVERY = UNLESS_SANITIZED(1, 5) };
    static int methods;
    job *whole = undisturbed(configured(method, out));

    for (int first = methods++ % EVERY; first < DRAWN; first += EVERY) {
        char name[64];
        job *cut;
        snprintf(name, sizeof name, "%s-%d", out, first);
        cut = configured(method, name);
        epochs_prepare(&cut->config);
        cut->drawn = (unsigned)first;
        come_go_and_die(cut, (moment)first);
        close_all(cut);
        assert_as(whole, cut);
        test_free(cut);
    }
    for (moment first = BEFORE_COPIES; first < LIVES && whole->names > 0; first++) {
        char name[64];
        job *cut;
        snprintf(name, sizeof name, "%s-%d", out, (int)first);
        cut = configured(method, name);
        epochs_prepare(&cut->config);
        cut->drawn = (unsigned)first;
        come_go_and_die(cut, first);
        close_all(cut);
        assert_as(whole, cut);
        test_free(cut);
    }
    test_free(whole);
}

static void a_run_of_ddp_whose_members_die_is_as_if_none_had(void **state)
{
    (void)state;
    kill_in_runs("ddp", "ddp");
}

static void a_run_of_zero_whose_members_die_is_as_if_none_had(void **state)
{
    (void)state;
    kill_in_runs("zero(stage=1)", "zero");
    kill_in_runs("zero(stage=2)", "zero-held");
    kill_in_runs("zero(stage=3)", "zero-values");
}

static void a_run_of_residuals_whose_members_die_is_as_if_none_had(void **state)
{
    (void)state;
    kill_in_runs("powersgd(rank=2)", "powersgd");
}

/* The interval of copies is longer than the run. A member dies a given number of steps after the
   epoch's begin, and the next epoch is ahead by the largest power of two of them. */
static void losses_in_quick_succession_do_not_stop_a_run(void **state)
{
    static const struct { uint64_t dies, kept; } epochs[] = { { 1, 1 }, { 3, 2 }, { 5, 4 }, { 2, 2 } };
    const char *const method = "powersgd(rank=2)";
    job *whole = undisturbed(configured(method, "succession")), *cut = configured(method, "succession-cut");

    (void)state;
    cut->names = 1000;
    epochs_prepare(&cut->config);
    for (int k = 0; k < PROCESSES; k++)
        start(cut, &cut->of[cut->member[cut->n++] = k]);
    for (size_t k = 0; k < TUTTI_LENGTH(epochs); k++) {
        const uint64_t begins = step_of_image(cut->from);
        kill_at(cut, &cut->of[cut->member[k % 2]], AFTER_PASS, begins + epochs[k].dies);
        train_epoch(cut, 0);
        assert_int_equal(step_of_image(cut->from), begins + epochs[k].kept);
    }
    train_epoch(cut, STEPS);
    close_all(cut);
    assert_as(whole, cut);
    test_free(cut);
    test_free(whole);
}

/* A step is a round of local steps. */
static void a_run_of_rounds_whose_members_die_is_as_if_none_had(void **state)
{
    (void)state;
    kill_in_runs("local-sgd(period=2,outer=sgd(lr=0.7,momentum=0.9))", "local");
    kill_in_runs("slowmo(period=2,buffers=reset)", "slowmo");
    kill_in_runs("palsgd(period=2,form=elastic)", "palsgd");
}

/* One of three dies there, and the others end the run. */
static void kill_one(job *cut, const job *whole, int victim, moment at, uint64_t step)
{
    epochs_prepare(&cut->config);
    for (int m = 0; m < 3; m++)
        start(cut, &cut->of[cut->member[cut->n++] = m]);
    kill_at(cut, &cut->of[victim], at, step);
    train_epoch(cut, 0);
    train_epoch(cut, 0);
    close_all(cut);
    assert_as(whole, cut);
    test_free(cut);
}

static void kill_at_the_end(const char *method, const char *out)
{
    static const moment moments[] = { BEFORE_REPORT, AFTER_REPORT, IN_CHECKPOINT, BEFORE_FINAL, BEFORE_RESULTS };
    job *whole = undisturbed(configured(method, out));

    for (size_t k = 0; k < TUTTI_LENGTH(moments); k += UNLESS_SANITIZED(1, 2)) {
        char name[64];
        snprintf(name, sizeof name, "%s-%zu", out, k);
        kill_one(configured(method, name), whole, (int)k % 2, moments[k], STEPS - 1);
    }
    test_free(whole);
}

/* The last report, the final evaluation and the results are made again by those that are left. */
static void a_loss_after_the_last_step_takes_no_result(void **state)
{
    (void)state;
    kill_at_the_end("ddp", "ddp-end");
    kill_at_the_end("zero(stage=1)", "zero-end");
    kill_at_the_end("zero(stage=3)", "zero-values-end");
    kill_at_the_end("powersgd", "powersgd-end");
}

static job *with_target(const char *out)
{
    job *j = configured("zero(stage=1)", out);

    j->config.checkpoint_every = EVALUATIONS - 1;
    j->config.target = "loss=1000";
    return j;
}

/* The others have seen it reached, and train its step again. */
static void a_target_that_was_reached_before_a_loss_is_reached_again(void **state)
{
    job *whole = undisturbed(with_target("target"));
    json_t *o = epochs_summary(whole->out);

    (void)state;
    assert_int_equal(epochs_number(o, "steps"), EVALUATIONS);
    json_decref(o);
    kill_one(with_target("target-cut"), whole, 0, BEFORE_FINAL, EVALUATIONS - 1);
    test_free(whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_of_ddp_whose_members_die_is_as_if_none_had),
        cmocka_unit_test(a_run_of_zero_whose_members_die_is_as_if_none_had),
        cmocka_unit_test(a_run_of_residuals_whose_members_die_is_as_if_none_had),
        cmocka_unit_test(losses_in_quick_succession_do_not_stop_a_run),
        cmocka_unit_test(a_run_of_rounds_whose_members_die_is_as_if_none_had),
        cmocka_unit_test(a_loss_after_the_last_step_takes_no_result),
        cmocka_unit_test(a_target_that_was_reached_before_a_loss_is_reached_again),
    };
    return cmocka_run_group_tests(tests, epochs_set_up, epochs_tear_down);
}
