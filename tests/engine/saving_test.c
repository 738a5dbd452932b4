/* Goal: a checkpoint that is written in the background is the one that tutti_engine_save would have
   written, and the client trains meanwhile; it waits where it has to, and learns of a failure on
   all ranks at one call; a process that ends at any moment leaves a complete checkpoint.
   Method: the client of engine/logical (logical_job.h) on threads. The functions of files are
   wrapped at link time. Each call that changes something on the disk may wait for the test, fail,
   or end the process. Losses of workers are in tests/explore (checkpoint-async), simulated time in
   tests/sim/saving_test.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "checkpoint_files.h"
#include "logical_job.h"
#include "saving_disk.h"

enum { UNTIL = 6 };

/* ---- runs ---- */

typedef struct leg {
    job j;
    int n;
    const char *directory, *from; /* where it saves; the checkpoint that it loads, or NULL */
    int keep;
    /* Before each step, and with the number of all steps before finish. */
    tutti_status (*at)(struct leg *l, tutti_engine *e, int step, tutti_error *err);
    float x[SIZE];               /* rank 0's, at the end */
    tutti_saves saves[RANKS];    /* at the end */
    tutti_trace_event span[RANKS][3]; /* the last one of a save on each thread; step 0: none */
    tutti_status status[RANKS];  /* of what the test looks at */
    tutti_error err[RANKS];
    char events[RANKS][1000];
    _Atomic int passed;          /* ranks that have made the step the test waits for */
} leg;

static tutti_status load(const leg *l, tutti_engine *e, tutti_error *err)
{
    tutti_checkpoint *c;
    tutti_status status;

    if (l->from == NULL)
        return TUTTI_OK;
    TUTTI_TRY(tutti_checkpoint_open(&c, tutti_engine_method(e)->rt, l->from, err));
    status = tutti_engine_load(e, c, err);
    tutti_checkpoint_close(c);
    return status;
}

static void look(leg *l, tutti_engine *e)
{
    const int rank = tutti_engine_method(e)->rank;
    const tutti_event_record *events;
    const int n = tutti_engine_events(e, &events);
    const tutti_trace_event *trace;
    const size_t n_trace = tutti_engine_trace(e, &trace);

    tutti_engine_saves(e, &l->saves[rank]);
    for (size_t k = 0; k < n_trace; k++)
        if (strcmp(trace[k].what, "checkpoint") == 0)
            l->span[rank][trace[k].thread] = trace[k];
    for (int k = 0; k < n; k++)
        if (strcmp(events[k].kind, "checkpoint") == 0)
            snprintf(l->events[rank], sizeof l->events[rank], "%s", events[k].text);
    if (rank == 0)
        memcpy(l->x, tutti_engine_method(e)->x, sizeof l->x);
}

static tutti_status train(leg *l, tutti_engine *e, tutti_error *err)
{
    int step;

    TUTTI_TRY(load(l, e, err));
    while ((step = (int)tutti_engine_method(e)->step) < UNTIL) {
        if (l->at != NULL)
            TUTTI_TRY(l->at(l, e, step, err));
        TUTTI_TRY(job_step(&l->j, e, err));
    }
    if (l->at != NULL)
        TUTTI_TRY(l->at(l, e, step, err));
    TUTTI_TRY(tutti_engine_finish(e, err));
    look(l, e);
    return TUTTI_OK;
}

static tutti_status run_rank(tutti_world *world, void *arg, tutti_error *err)
{
    leg *l = arg;
    tutti_engine *e = NULL;
    tutti_status status = job_open(&e, world, &l->j, err);

    if (status == TUTTI_OK)
        status = train(l, e, err);
    tutti_engine_close(e);
    return status;
}

static leg *leg_of(const char *method, int n, const char *directory)
{
    leg *l = test_calloc(1, sizeof *l);

    l->j = job_of(method, 0);
    l->n = n;
    l->directory = directory;
    for (int r = 0; r < RANKS; r++)
        l->err[r].rank = -1;
    return l;
}

static tutti_status try_run(leg *l, tutti_error *err)
{
    *err = (tutti_error){ .rank = -1 };
    return tutti_world_run("shm", l->n, run_rank, l, err);
}

static void run(leg *l)
{
    tutti_error err;

    if (try_run(l, &err) != TUTTI_OK)
        fail_msg("%s on %d: %s", l->j.options.method, l->n, err.text);
    assert_false(disk.gave_up);
}

/* The gate opens when all ranks have come here. */
static void pass(leg *l)
{
    if (++l->passed == l->n)
        disk.shut = false;
}

/* ---- the bits, and training meanwhile ---- */

static tutti_status blocking_at_two(leg *l, tutti_engine *e, int step, tutti_error *err)
{
    return step == 2 ? tutti_engine_save(e, l->directory, "{\"a\":1}", 0, err) : TUTTI_OK;
}

/* No call of the disk returns until all ranks have made two more steps. */
static tutti_status background_at_two(leg *l, tutti_engine *e, int step, tutti_error *err)
{
    if (step == 2) {
        disk.shut = true;
        return tutti_engine_save_begin(e, l->directory, "{\"a\":1}", 0, err);
    }
    if (step == 4) {
        pass(l);
        return tutti_engine_save_end(e, err);
    }
    return TUTTI_OK;
}

static void files_are_those_of_a_blocking_save_and_steps_go_on(void **state)
{
    static const struct { const char *method, *codec; int n, shares; } of[] = {
        { "ddp", NULL, 1, 0 }, { "ddp", NULL, 3, 12 }, { "bytescheduler(partition_mb=0.0005)", NULL, 2, 0 },
        { "zero", NULL, 4, 12 }, { "zero(group=2)", NULL, 4, 0 }, { "ddp", "ef(sign)", 3, 0 },
        { "powersgd", NULL, 2, 0 }, { "local-sgd(period=2)", NULL, 3, 0 }, { "d-psgd", NULL, 4, 0 },
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(of); k++) {
        char blocking[SCRATCH_PATH], background[SCRATCH_PATH];
        leg *a, *b;
        scratch_make(blocking);
        scratch_make(background);
        a = leg_of(of[k].method, of[k].n, blocking);
        b = leg_of(of[k].method, of[k].n, background);
        a->j.options.codec = b->j.options.codec = of[k].codec;
        a->j.options.elastic_shares = b->j.options.elastic_shares = of[k].shares;
        a->j.options.own_values = b->j.options.own_values = OWN;
        a->at = blocking_at_two;
        b->at = background_at_two;
        disk_is_well();
        run(a);
        run(b);
        checkpoint_assert_same(blocking, background, "step-00000002");
        assert_memory_equal(a->x, b->x, sizeof a->x);
        for (int r = 0; r < of[k].n; r++) {
            const tutti_saves *s = &b->saves[r];
            assert_true(s->begun == 1 && s->written == 1 && s->blocked == 0 && !s->under_way);
            assert_true(s->bytes > 0 || of[k].n > 1);
            assert_int_equal(a->saves[r].begun, 0);
        }
        scratch_remove(blocking);
        scratch_remove(background);
        test_free(a);
        test_free(b);
    }
}

static void trace_shows_the_call_and_the_thread_that_writes(void **state)
{
    char directory[SCRATCH_PATH];
    leg *l;

    (void)state;
    for (int background = 0; background < 2; background++) {
        scratch_make(directory);
        l = leg_of("ddp", 2, directory);
        l->j.options.trace_events = 4096;
        l->at = background ? background_at_two : blocking_at_two;
        disk_is_well();
        run(l);
        for (int r = 0; r < l->n; r++) {
            const tutti_trace_event *called = &l->span[r][0], *wrote = &l->span[r][2];
            assert_int_equal(called->step, 2);
            assert_true(called->begin_ns < called->end_ns && called->index == -1);
            assert_int_equal(l->span[r][1].step, 0);
            assert_int_equal(wrote->step, background ? 2 : 0);
            if (background) /* the disk waited for the client's next steps */
                assert_true(wrote->begin_ns > called->begin_ns && wrote->end_ns > called->end_ns);
        }
        scratch_remove(directory);
        test_free(l);
    }
}

/* What the method sends does not depend on a save meanwhile. */
static tutti_status sent_at_end(leg *l, tutti_engine *e, int step, tutti_error *err)
{
    tutti_figures f;

    if (step == 1 && l->directory != NULL)
        return tutti_engine_save_begin(e, l->directory, "{}", 0, err);
    if (step == UNTIL) {
        TUTTI_TRY(tutti_engine_save_end(e, err));
        tutti_engine_figures(e, &f);
        l->j.bytes[tutti_engine_method(e)->rank] = f.bytes_sent << 20 | f.messages_sent;
    }
    return TUTTI_OK;
}

static void messages_of_a_save_are_not_counted(void **state)
{
    char directory[SCRATCH_PATH];
    leg *without = leg_of("ddp", 3, NULL), *with;

    (void)state;
    scratch_make(directory);
    with = leg_of("ddp", 3, directory);
    without->at = with->at = sent_at_end;
    disk_is_well();
    run(without);
    run(with);
    assert_true(without->j.bytes[0] > 0);
    assert_memory_equal(with->j.bytes, without->j.bytes, sizeof with->j.bytes);
    scratch_remove(directory);
    test_free(with);
    test_free(without);
}

/* ---- calls that wait ---- */

/* The second save begins while the disk takes no call of the first, which goes on when all ranks
   wait for it. */
static tutti_status two_saves(leg *l, tutti_engine *e, int step, tutti_error *err)
{
    if (step == 1) {
        disk.opens_at = l->n;
        disk.shut = true;
        return tutti_engine_save_begin(e, l->directory, "{}", l->keep, err);
    }
    if (step == 2) {
        awaits = true;
        return tutti_engine_save_begin(e, l->directory, "{}", l->keep, err);
    }
    return TUTTI_OK;
}

static void second_save_waits_for_the_first(void **state)
{
    static const struct { int keep; const char *left; } of[] = { { 0, "step-00000001 step-00000002 " },
                                                                 { 1, "step-00000002 " } };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(of); k++) {
        char directory[SCRATCH_PATH], found[SCRATCH_PATH + 64];
        leg *l;
        scratch_make(directory);
        l = leg_of("ddp", 3, directory);
        l->keep = of[k].keep;
        l->at = two_saves;
        disk_is_well();
        run(l);
        assert_string_equal(checkpoint_names(directory).text, of[k].left);
        assert_int_equal(checkpoint_newest(directory, found), 2);
        for (int r = 0; r < l->n; r++) {
            assert_int_equal(l->saves[r].begun, 2);
            assert_int_equal(l->saves[r].written, 2);
            assert_true(l->saves[r].waited >= 1); /* for the second one finish may have waited */
        }
        scratch_remove(directory);
        test_free(l);
    }
}

/* The disk takes no call until all ranks wait within finish. */
static tutti_status save_before_the_end(leg *l, tutti_engine *e, int step, tutti_error *err)
{
    if (step != UNTIL)
        return TUTTI_OK;
    disk.opens_at = l->n;
    disk.shut = true;
    TUTTI_TRY(tutti_engine_save_begin(e, l->directory, "{}", 0, err));
    awaits = true;
    return TUTTI_OK;
}

static void finish_waits_for_the_save(void **state)
{
    char directory[SCRATCH_PATH], found[SCRATCH_PATH + 64];
    leg *l;

    (void)state;
    scratch_make(directory);
    l = leg_of("ddp", 2, directory);
    l->j.options.lane = -1; /* no other jobs are waited for */
    l->at = save_before_the_end;
    disk_is_well();
    run(l);
    assert_int_equal(checkpoint_newest(directory, found), UNTIL);
    for (int r = 0; r < l->n; r++)
        assert_true(l->saves[r].written == 1 && l->saves[r].waited == 1);
    scratch_remove(directory);
    test_free(l);
}

/* ---- failures ---- */

/* A blocking save, then one that fails at a call of the disk, then one that does not. */
static tutti_status fails_once(leg *l, tutti_engine *e, int step, tutti_error *err)
{
    const int rank = tutti_engine_method(e)->rank;

    if (step == 1)
        return tutti_engine_save(e, l->directory, "{}", 0, err);
    if (step == 2) {
        if (rank == 0) /* the others write when it has decided that they may */
            disk.counts = true;
        return tutti_engine_save_begin(e, l->directory, "{}", 0, err);
    }
    if (step == 4) {
        awaits = true;
        l->status[rank] = tutti_engine_save_begin(e, l->directory, "{}", 0, &l->err[rank]);
    }
    return step == 5 ? tutti_engine_save_begin(e, l->directory, "{}", 0, err) : TUTTI_OK;
}

static void full_disk_is_returned_by_the_next_save_on_all_ranks(void **state)
{
    leg *plain = leg_of("ddp", 2, NULL);
    int failed = 0, k = 0;

    (void)state;
    disk_is_well();
    run(plain);
    for (bool reached = true; reached;) {
        char directory[SCRATCH_PATH], found[SCRATCH_PATH + 64];
        leg *l;
        scratch_make(directory);
        l = leg_of("ddp", 2, directory);
        l->at = fails_once;
        disk_is_well();
        disk.full_at = ++k;
        run(l);
        reached = disk.calls >= k;
        assert_int_equal(l->status[1], l->status[0]);
        if (l->status[0] != TUTTI_OK) {
            failed++;
            assert_int_equal(l->status[0], TUTTI_ERR_IO);
            for (int r = 0; r < 2; r++) {
                assert_int_equal(l->err[r].cause, ENOSPC);
                assert_int_equal(l->err[r].rank, l->err[0].rank);
                assert_non_null(strstr(l->err[r].text, "cannot save the checkpoint of step 2: rank "));
                assert_int_equal(l->saves[r].begun, 2);
                assert_int_equal(l->saves[r].written, 1);
            }
            assert_string_equal(checkpoint_names(directory).text, "step-00000001 step-00000005 ");
        }
        assert_int_equal(checkpoint_newest(directory, found), 5);
        assert_memory_equal(l->x, plain->x, sizeof l->x);
        scratch_remove(directory);
        test_free(l);
    }
    assert_true(failed > 8);
    test_free(plain);
}

static tutti_status fails_at_the_end(leg *l, tutti_engine *e, int step, tutti_error *err)
{
    if (step == 1)
        return tutti_engine_save(e, l->directory, "{}", 0, err);
    if (step == UNTIL) {
        if (tutti_engine_method(e)->rank == 0)
            disk.counts = true;
        return tutti_engine_save_begin(e, l->directory, "{}", 0, err);
    }
    return TUTTI_OK;
}

static void full_disk_is_returned_by_finish(void **state)
{
    char directory[SCRATCH_PATH], found[SCRATCH_PATH + 64];
    tutti_error err;
    leg *l;

    (void)state;
    scratch_make(directory);
    l = leg_of("ddp", 3, directory);
    l->at = fails_at_the_end;
    disk_is_well();
    disk.full_at = 4;
    assert_int_equal(try_run(l, &err), TUTTI_ERR_IO);
    assert_non_null(strstr(err.text, "cannot save the checkpoint of step 6: rank "));
    assert_int_equal(checkpoint_newest(directory, found), 1);
    scratch_remove(directory);
    test_free(l);
}

/* Legal between steps only. */
static tutti_status out_of_order(tutti_world *world, void *arg, tutti_error *err)
{
    leg *l = arg;
    tutti_engine *e;
    tutti_pass p;

    TUTTI_TRY(job_open(&e, world, &l->j, err));
    l->status[0] = tutti_engine_save_end(e, err); /* none is under way */
    if (l->status[0] == TUTTI_OK)
        l->status[0] = tutti_engine_pass_begin(e, &p, err);
    l->status[1] = tutti_engine_save_begin(e, l->directory, "{}", 0, &l->err[1]);
    l->status[2] = tutti_engine_save_end(e, &l->err[2]);
    tutti_engine_close(e);
    return TUTTI_OK;
}

static void saves_within_a_step_are_refused(void **state)
{
    leg *l = leg_of("ddp", 1, "nowhere");

    (void)state;
    disk_is_well();
    assert_int_equal(tutti_world_run("shm", 1, out_of_order, l, NULL), TUTTI_OK);
    assert_int_equal(l->status[0], TUTTI_OK);
    assert_int_equal(l->status[1], TUTTI_ERR_STATE);
    assert_string_equal(l->err[1].text, "save_begin is legal between steps only (tutti.h)");
    assert_int_equal(l->status[2], TUTTI_ERR_STATE);
    assert_string_equal(l->err[2].text, "save_end is legal between steps only (tutti.h)");
    test_free(l);
}

/* ---- no memory for the copy ---- */

/* This rank's next allocation of more bytes fails. */
static _Thread_local size_t largest = SIZE_MAX;

void *__real_tutti_alloc(size_t count, size_t size);
void *__wrap_tutti_alloc(size_t count, size_t size);
void *__wrap_tutti_alloc(size_t count, size_t size)
{
    if (size != 1 || count <= largest)
        return __real_tutti_alloc(count, size);
    largest = SIZE_MAX;
    return NULL;
}

static tutti_status without_memory(leg *l, tutti_engine *e, int step, tutti_error *err)
{
    if (step != 2)
        return TUTTI_OK;
    if (tutti_engine_method(e)->rank == 1)
        largest = SIZE * sizeof(float) / 2; /* a copy has half of x and half of the momentum */
    return tutti_engine_save_begin(e, l->directory, "{\"a\":1}", 0, err);
}

static void rank_without_memory_writes_within_the_call(void **state)
{
    char blocking[SCRATCH_PATH], background[SCRATCH_PATH];
    leg *a, *b;

    (void)state;
    scratch_make(blocking);
    scratch_make(background);
    a = leg_of("ddp", 2, blocking);
    b = leg_of("ddp", 2, background);
    a->at = blocking_at_two;
    b->at = without_memory;
    disk_is_well();
    run(a);
    run(b);
    checkpoint_assert_same(blocking, background, "step-00000002");
    assert_true(b->saves[0].blocked == 0 && b->saves[1].blocked == 1);
    assert_true(b->saves[0].written == 1 && b->saves[1].written == 1);
    assert_string_equal(b->events[0], "");
    assert_non_null(strstr(b->events[1], "rank 1 trains on only when its part of a checkpoint is written: there is no "
                                         "memory for a copy ("));
    assert_memory_equal(a->x, b->x, sizeof a->x);
    scratch_remove(blocking);
    scratch_remove(background);
    test_free(a);
    test_free(b);
}

/* ---- a process that ends ---- */

static tutti_status each_step(leg *l, tutti_engine *e, int step, tutti_error *err)
{
    disk.counts = true;
    return step > 0 ? tutti_engine_save_begin(e, l->directory, "{}", 1, err) : TUTTI_OK;
}

/* A run continues from the checkpoint, saves as before, and ends with the model of the run without
   interruption. */
static void assert_continues(const char *directory, const char *found, const float *x)
{
    char last[SCRATCH_PATH + 64];
    leg *l = leg_of("ddp", 2, directory);

    l->from = found;
    l->at = each_step;
    disk_is_well();
    run(l);
    assert_memory_equal(l->x, x, sizeof l->x);
    assert_int_equal(checkpoint_newest(directory, last), UNTIL);
    assert_string_equal(checkpoint_names(directory).text, "step-00000006 ");
    test_free(l);
}

static void process_that_ends_at_any_call_leaves_a_complete_checkpoint(void **state)
{
    leg *plain = leg_of("ddp", 2, NULL);
    int outcome = 99, continued = 0;
    tutti_error err;

    (void)state;
    disk_is_well();
    run(plain);
    for (int k = 1; outcome == 99; k += 1 + (int)(tutti_random((tutti_rng){ 4, 9, 0 }, (uint64_t)k) % 11)) {
        char directory[SCRATCH_PATH], found[SCRATCH_PATH + 64];
        pid_t child;
        int ended, step;
        scratch_make(directory);
        child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            leg *l = leg_of("ddp", 2, directory);
            l->at = each_step;
            disk_is_well();
            disk.dies_at = k;
            _exit(try_run(l, &err) == TUTTI_OK ? 0 : 1);
        }
        assert_int_equal(waitpid(child, &ended, 0), child);
        assert_true(WIFEXITED(ended));
        outcome = WEXITSTATUS(ended);
        assert_true(outcome == 99 || outcome == 0);
        step = checkpoint_newest(directory, found);
        assert_true(outcome == 99 || step == UNTIL);
        if (step > 0) {
            assert_continues(directory, found, plain->x);
            continued++;
        }
        scratch_remove(directory);
    }
    assert_true(continued > 10);
    test_free(plain);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_are_those_of_a_blocking_save_and_steps_go_on),
        cmocka_unit_test(trace_shows_the_call_and_the_thread_that_writes),
        cmocka_unit_test(messages_of_a_save_are_not_counted),
        cmocka_unit_test(second_save_waits_for_the_first),
        cmocka_unit_test(finish_waits_for_the_save),
        cmocka_unit_test(full_disk_is_returned_by_the_next_save_on_all_ranks),
        cmocka_unit_test(full_disk_is_returned_by_finish),
        cmocka_unit_test(saves_within_a_step_are_refused),
        cmocka_unit_test(rank_without_memory_writes_within_the_call),
        cmocka_unit_test(process_that_ends_at_any_call_leaves_a_complete_checkpoint),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
