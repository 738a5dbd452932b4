/* Goal: processes that follow the epochs of their nodes train as if they had been there all the
   time: one comes in the midst of the run, one is killed, one leaves, two fail, and the model and
   the lines are those of a run that is not disturbed. Method: processes are threads, their nodes
   and worlds are over tcp. Three are founders. The fourth joins by the address of the first. Each
   waits a little in each step until it has come. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/nodes.h"
#include "tutti/comm.h"
#include "epochs_job.h"

#define MS INT64_C(1000000)
enum { FOUNDERS = 3, PROCESSES = 4, NEWCOMER = 3, KILLED = 0, LEAVER = 2, STEPS = 200 };
enum { LATER = 10 };                 /* steps of the newcomer before one is killed, and again before one leaves */

typedef struct process {
    struct job *job;
    int number;
    tutti_runtime *rt;
    tutti_run run;
    tutti_train_io io;
    _Atomic int steps;               /* that it has made */
    bool cut;                        /* its world has broken */
    _Atomic bool killed, ended, over; /* over: it has returned */
    tutti_status status;
    tutti_error err;
} process;

typedef struct job {
    tutti_train_config config;
    char out[SCRATCH_PATH + 64];
    tutti_run_id id;
    tutti_run_key key;
    char address[TUTTI_ADDRESS_BYTES]; /* of the first founder */
    bool one_loses_its_world;        /* and none comes, dies or leaves */
    bool two_fail;                   /* the first two, in the same step, and none comes */
    process of[PROCESSES];
    _Atomic bool listens;            /* address is written. Apart: a compiler reads the two above at once */
} job;

static _Thread_local process *me;    /* NULL: a thread of no process that follows a node */

static bool none_comes(const job *j)
{
    return j->one_loses_its_world || j->two_fail;
}

static tutti_status fail_together(process *p, tutti_error *err)
{
    const job *j = p->job;

    p->killed = true;
    while (!j->of[0].killed || !j->of[1].killed)
        tutti_sleep_until(p->rt, tutti_now_ns(p->rt) + MS);
    return tutti_fail(err, TUTTI_ERR_IO, 0, "this process has failed");
}

/* The lowest process is killed, the connection of one to the others breaks, or two fail. */
static tutti_status fate(process *p, tutti_error *err)
{
    const job *j = p->job;

    if (j->two_fail && p->number < 2 && p->steps == LATER)
        return fail_together(p, err);
    if (!none_comes(j) && p->number == KILLED && j->of[NEWCOMER].steps >= LATER) {
        p->killed = true;
        return tutti_fail(err, TUTTI_ERR_IO, 0, "this process was killed");
    }
    if (j->one_loses_its_world && p->number == 1 && p->steps == LATER && !p->cut) {
        p->cut = true;
        return tutti_fail_rank(err, TUTTI_ERR_PEER, 0, "a connection has broken");
    }
    return TUTTI_OK;
}

tutti_status __real_tutti_engine_pass_begin(tutti_engine *e, tutti_pass *pass, tutti_error *err);
tutti_status __wrap_tutti_engine_pass_begin(tutti_engine *e, tutti_pass *pass, tutti_error *err);
tutti_status __wrap_tutti_engine_pass_begin(tutti_engine *e, tutti_pass *pass, tutti_error *err)
{
    if (me != NULL)
        TUTTI_TRY(fate(me, err));
    return __real_tutti_engine_pass_begin(e, pass, err);
}

tutti_status __real_tutti_engine_step(tutti_engine *e, tutti_error *err);
tutti_status __wrap_tutti_engine_step(tutti_engine *e, tutti_error *err);
tutti_status __wrap_tutti_engine_step(tutti_engine *e, tutti_error *err)
{
    const tutti_status status = __real_tutti_engine_step(e, err);

    if (me != NULL && status == TUTTI_OK)
        me->steps++;
    return status;
}

/* ---- a process ---- */

/* Callback, in each step and each wait. The steps are slow until all has come to pass: more so when
   few are left. A newcomer that was not admitted leaves in the end. */
static bool leaves(void *user)
{
    process *p = user;
    const job *j = p->job;
    const int there = j->of[NEWCOMER].steps;

    if (none_comes(j))
        return false;
    if (p->number == NEWCOMER)
        return there == 0 && j->of[1].over;
    if (there == 0 || !j->of[KILLED].killed || !j->of[LEAVER].over)
        tutti_sleep_until(p->rt, tutti_now_ns(p->rt) + (p->steps < STEPS / 2 ? 10 : 200) * MS);
    return p->number == LEAVER && there >= 2 * LATER;
}

static void listens(void *user, const char *address)
{
    process *p = user;
    job *j = p->job;

    if (p->number != 0 || j->listens)
        return;
    snprintf(j->address, sizeof j->address, "%s", address);
    j->listens = true;
}

static tutti_status follow(process *p, tutti_world *founders)
{
    const char *contact = p->job->address;
    const tutti_train_nodes how = { .node = { .run = p->job->id,
                                              .key = p->job->key,
                                              .heartbeat_ns = 20 * MS,
                                              .dead_ns = p->job->one_loses_its_world ? 500 * MS : 2000 * MS,
                                              .retry_ns = 200 * MS,
                                              .boundary_ns = 200 * MS },
                                    .founders = founders,
                                    .contacts = &contact,
                                    .n = founders != NULL ? 0 : 1,
                                    .lack_ns = p->job->two_fail ? 5000 * MS : 0,
                                    .leaves = leaves,
                                    .listens = listens,
                                    .user = p };
    bool ended;

    TUTTI_TRY(tutti_runtime_open_posix(&p->rt, &p->err));
    tutti_train_begin(&p->run, p->rt, &p->job->config, &p->io);
    TUTTI_TRY(tutti_train_open_samples(&p->run, &p->err));
    me = p;
    TUTTI_TRY(tutti_train_by_nodes(&p->run, &how, &ended, &p->err));
    p->ended = ended;
    return TUTTI_OK;
}

static void follow_and_close(process *p, tutti_world *founders)
{
    p->status = follow(p, founders);
    p->over = true;
    me = NULL;
    tutti_train_close_all(&p->run);
    tutti_runtime_close(p->rt);
}

/* The world is only where the founders meet: what becomes of one is none of its business. */
static tutti_status founder_main(tutti_world *world, void *arg, tutti_error *err)
{
    job *j = arg;

    (void)err;
    follow_and_close(&j->of[tutti_world_rank(world)], world);
    return TUTTI_OK;
}

static tutti_status newcomer_main(void *arg, tutti_error *err)
{
    job *j = arg;
    tutti_runtime *rt;

    TUTTI_TRY(tutti_runtime_open_posix(&rt, err));
    while ((!j->listens || j->of[0].steps < 3) && !j->of[0].over)
        tutti_sleep_until(rt, tutti_now_ns(rt) + MS);
    tutti_runtime_close(rt);
    follow_and_close(&j->of[NEWCOMER], NULL);
    return TUTTI_OK;
}

/* ---- a run ---- */

static void configure(job *j, const char *method, const char *out)
{
    snprintf(j->out, sizeof j->out, "%s/%s-%s", epochs_folder, out, method);
    epochs_configure(&j->config, method, j->out);
    j->config.steps = STEPS;
    j->config.report_every = 7;
    j->config.eval_every = 50;
    epochs_prepare(&j->config);
    for (int k = 0; k < PROCESSES; k++) {
        j->of[k].job = j;
        j->of[k].number = k;
        j->of[k].err.rank = -1;
    }
}

static void run_all(job *j)
{
    tutti_error err = { .rank = -1 };
    tutti_runtime *rt;
    tutti_thread *newcomer = NULL;

    assert_int_equal(tutti_runtime_open_posix(&rt, &err), TUTTI_OK);
    tutti_run_id_make(rt, &j->id);
    tutti_run_key_make(rt, &j->key);
    if (!none_comes(j))
        assert_int_equal(tutti_thread_open(&newcomer, rt, "newcomer", newcomer_main, j, &err), TUTTI_OK);
    assert_int_equal(tutti_world_run("shm", FOUNDERS, founder_main, j, &err), TUTTI_OK);
    if (!none_comes(j))
        assert_int_equal(tutti_thread_join(newcomer, &err), TUTTI_OK);
    tutti_runtime_close(rt);
}

static void come_die_and_leave(const char *method)
{
    job *whole = test_calloc(1, sizeof *whole), *cut = test_calloc(1, sizeof *cut);

    configure(whole, method, "nodes-whole");
    configure(cut, method, "nodes-cut");
    epochs_undisturbed(&whole->config);
    run_all(cut);
    for (int k = 0; k < PROCESSES; k++)
        if (cut->of[k].status != (k == KILLED ? TUTTI_ERR_IO : TUTTI_OK))
            fail_msg("process %d: %s", k, cut->of[k].err.text);
    assert_true(cut->of[KILLED].killed && cut->of[NEWCOMER].steps >= 2 * LATER);
    assert_true(cut->of[1].ended && cut->of[NEWCOMER].ended && !cut->of[LEAVER].ended);
    epochs_assert_same_model(whole->out, cut->out);
    epochs_assert_same_lines(whole->out, cut->out);
    epochs_assert_table_follows(cut->out);
    test_free(whole);
    test_free(cut);
}

static void one_comes_one_dies_and_one_leaves(void **state)
{
    (void)state;
    come_die_and_leave("ddp");
}

/* Each member has a part of the state. */
static void members_of_zero_come_die_and_leave(void **state)
{
    (void)state;
    come_die_and_leave("zero(stage=1)");
    come_die_and_leave("zero(stage=3)");
}

/* All nodes answer, and the last member comes back. */
static void break_a_connection(const char *method)
{
    job *whole = test_calloc(1, sizeof *whole), *cut = test_calloc(1, sizeof *cut);

    configure(whole, method, "world-whole");
    configure(cut, method, "world-cut");
    cut->one_loses_its_world = true;
    epochs_undisturbed(&whole->config);
    run_all(cut);
    for (int k = 0; k < FOUNDERS; k++)
        if (!cut->of[k].ended)
            fail_msg("process %d: %s", k, cut->of[k].err.text);
    assert_true(cut->of[1].cut);
    epochs_assert_same_model(whole->out, cut->out);
    epochs_assert_same_lines(whole->out, cut->out);
    test_free(whole);
    test_free(cut);
}

static void a_connection_that_breaks_ends_an_epoch(void **state)
{
    (void)state;
    break_a_connection("ddp");
    break_a_connection("zero(stage=1)");
    break_a_connection("zero(stage=3)");
}

/* The first has copies of the second's part of the state, and both end: they wait until the third
   has what they had. */
static void members_of_zero_that_fail_leave_their_parts(void **state)
{
    job *whole = test_calloc(1, sizeof *whole), *cut = test_calloc(1, sizeof *cut);

    (void)state;
    configure(whole, "zero(stage=1)", "fail-whole");
    configure(cut, "zero(stage=1)", "fail-cut");
    cut->two_fail = true;
    epochs_undisturbed(&whole->config);
    run_all(cut);
    for (int k = 0; k < 2; k++)
        assert_int_equal(cut->of[k].status, TUTTI_ERR_IO);
    if (!cut->of[2].ended)
        fail_msg("the process that is left: %s", cut->of[2].err.text);
    epochs_assert_same_model(whole->out, cut->out);
    epochs_assert_same_lines(whole->out, cut->out);
    test_free(whole);
    test_free(cut);
}

/* No process listens there. */
static void a_newcomer_that_is_not_admitted_gives_up(void **state)
{
    job *j = test_calloc(1, sizeof *j);
    process *p = &j->of[0];
    const char *contact = "127.0.0.1:1";
    const tutti_train_nodes how = { .contacts = &contact, .n = 1, .admission_ns = 100 * MS };
    bool ended;

    (void)state;
    configure(j, "ddp", "nodes-alone");
    assert_int_equal(tutti_runtime_open_posix(&p->rt, &p->err), TUTTI_OK);
    tutti_train_begin(&p->run, p->rt, &j->config, &p->io);
    assert_int_equal(tutti_train_open_samples(&p->run, &p->err), TUTTI_OK);
    assert_int_equal(tutti_train_by_nodes(&p->run, &how, &ended, &p->err), TUTTI_TIMEOUT);
    assert_non_null(strstr(p->err.text, "was not admitted"));
    assert_false(ended);
    tutti_train_close_all(&p->run);
    tutti_runtime_close(p->rt);
    test_free(j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_comes_one_dies_and_one_leaves),
        cmocka_unit_test(members_of_zero_come_die_and_leave),
        cmocka_unit_test(a_connection_that_breaks_ends_an_epoch),
        cmocka_unit_test(members_of_zero_that_fail_leave_their_parts),
        cmocka_unit_test(a_newcomer_that_is_not_admitted_gives_up),
    };
    return cmocka_run_group_tests(tests, epochs_set_up, epochs_tear_down);
}
