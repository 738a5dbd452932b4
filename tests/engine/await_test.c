/* Goal: a hook that waits at a monitor of the method's (tutti_await) continues when a service
   wakes it, at its deadline, and when a service of this or another worker has failed; the time is
   exposed. A worker that sits steps out (tutti_sit_out) stays in step with the others: schedule,
   epochs and reports advance, updates and samples do not. Method: toy methods on ranks that are
   threads; numbers are whole, so equality is exact. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "scratch.h"
#include "tutti/tutti.h"
#include "tutti/method.h"
#include "engine/calls.h"

enum { STEPS = 12, BATCH = 2, PAUSE_NS = 2000000 };
#define CHECK(condition) \
    do { \
        if (!(condition)) \
            return tutti_fail(err, TUTTI_ERR_STATE, 0, "line %d: %s", __LINE__, #condition); \
    } while (0)

static tutti_status one_step(tutti_engine *e, tutti_error *err)
{
    tutti_pass p;
    tutti_status status;

    while ((status = tutti_engine_pass_begin(e, &p, err)) == TUTTI_OK) {
        tutti_engine_method(e)->g[0] = 1;
        TUTTI_TRY(tutti_engine_grad_ready(e, 0, err));
        TUTTI_TRY(tutti_engine_pass_end(e, (double)p.samples, err));
    }
    return status == TUTTI_CLOSED ? tutti_engine_step(e, err) : status;
}

static tutti_status open_engine(tutti_engine **e, tutti_world *world, const tutti_method_ops *const *methods,
                                const char *schedule, tutti_error *err)
{
    const tutti_param param = { .name = "w", .dims = 1, .dim = { 5 } };
    const tutti_engine_options options = {
        .method = methods[0]->name, .optimizer = "sgd(lr=1)", .batch = BATCH, .lr_schedule = schedule, .steps = STEPS
    };
    return tutti_engine_open_from(e, world, &param, 1, &options, methods, err);
}

/* ---- waiting ---- */

enum { WELL, LATE, BROKEN };
typedef struct waiter {
    tutti_monitor *lock;
    int64_t made; /* rounds; under the lock */
    int64_t due;
} waiter;
static int kind; /* of the one test that runs */
static int64_t exposed_ns[4];

static bool all_made(void *of)
{
    const waiter *w = of;
    return w->made >= w->due;
}

static tutti_status waiter_open(tutti_method *m, tutti_error *err)
{
    return tutti_monitor_open(&((waiter *)m->self)->lock, m->rt, err);
}

static void waiter_close(tutti_method *m)
{
    if (m->self != NULL)
        tutti_monitor_close(((waiter *)m->self)->lock);
}

static tutti_status waiter_serve(tutti_method *m, tutti_error *err)
{
    waiter *w = m->self;
    tutti_status status;

    while ((status = tutti_round_next(m, 0, false, err)) == TUTTI_OK) {
        tutti_sleep_until(m->rt, tutti_now_ns(m->rt) + PAUSE_NS);
        if (kind == BROKEN && m->rank == 1 && w->made == 3)
            return tutti_fail(err, TUTTI_ERR_NUMBER, 0, "worker 1: the waiter's service broke");
        if (kind == BROKEN && w->made == 3) /* and this one never comes */
            continue;
        tutti_lock(w->lock);
        w->made++;
        tutti_wake(w->lock);
        tutti_unlock(w->lock);
    }
    return status;
}

static tutti_status waiter_step(tutti_method *m, tutti_error *err)
{
    waiter *w = m->self;
    tutti_status status;

    TUTTI_TRY(tutti_base_step(m, err));
    tutti_round_post(m, 0, 1);
    tutti_lock(w->lock);
    w->due++;
    if (kind == LATE) { /* one more than there will be */
        const int64_t until_ns = tutti_now_ns(m->rt) + 3 * PAUSE_NS;
        w->due++;
        status = tutti_await(m, w->lock, all_made, w, until_ns, err);
        w->due--;
        if (status == TUTTI_TIMEOUT && tutti_now_ns(m->rt) >= until_ns)
            status = tutti_await(m, w->lock, all_made, w, TUTTI_FOREVER, err);
        else if (status == TUTTI_OK)
            status = tutti_fail(err, TUTTI_ERR_STATE, 0, "what is never true was waited for and came");
    } else
        status = tutti_await(m, w->lock, all_made, w, TUTTI_FOREVER, err);
    if (status == TUTTI_OK && !all_made(w))
        status =
            tutti_fail(err, TUTTI_ERR_STATE, 0, "%lld of %lld rounds were made", (long long)w->made, (long long)w->due);
    tutti_unlock(w->lock);
    return status;
}

static const tutti_service waiter_services[] = { { "wait", waiter_serve }, { 0 } };
static const tutti_method_ops waiter_ops = {
    .name = "waiter",
    .self_bytes = sizeof(waiter),
    .services = waiter_services,
    .open = waiter_open,
    .close = waiter_close,
    .step = waiter_step,
};

static tutti_status wait_rank(tutti_world *world, void *arg, tutti_error *err)
{
    static const tutti_method_ops *const methods[] = { &waiter_ops, NULL };
    tutti_engine *e;
    tutti_figures f;
    tutti_status status = open_engine(&e, world, methods, NULL, err);

    (void)arg;
    for (int k = 0; status == TUTTI_OK && k < STEPS; k++)
        status = one_step(e, err);
    if (status == TUTTI_OK)
        status = tutti_engine_finish(e, err);
    if (status == TUTTI_OK) {
        tutti_engine_figures(e, &f);
        exposed_ns[tutti_world_rank(world)] = f.exposed_ns;
    }
    tutti_engine_close(e);
    return status;
}

static void hook_waiting_for_a_service_counts_as_exposed_time(void **state)
{
    (void)state;
    for (int n = 1; n <= 3; n += 2)
        for (kind = WELL; kind <= LATE; kind++) {
            tutti_error err = { .rank = -1 };
            if (tutti_world_run("shm", n, wait_rank, NULL, &err) != TUTTI_OK)
                fail_msg("%d workers, kind %d: %s", n, kind, err.text);
            for (int r = 0; r < n; r++)
                assert_true(exposed_ns[r] >= (int64_t)STEPS * PAUSE_NS);
        }
}

/* Worker 1's own service fails while its hook waits for it; the others' hooks wait for what never
   comes, until they learn that worker 1 is gone. */
static void a_failed_service_ends_the_waiting_on_all_workers(void **state)
{
    (void)state;
    kind = BROKEN;
    for (int n = 2; n <= 4; n += 2) {
        tutti_error err = { .rank = -1 };
        assert_int_equal(tutti_world_run("shm", n, wait_rank, NULL, &err), TUTTI_ERR_NUMBER);
        assert_non_null(strstr(err.text, "worker 1: the waiter's service broke"));
    }
}

/* ---- sitting out ---- */

static char directory[SCRATCH_PATH];
static struct seen {
    double lr[STEPS];
    uint64_t t[STEPS]; /* rate.t of an update; 0: there was none */
    tutti_figures figures;
} seen[4];

static bool sits(int rank, uint64_t step)
{
    return rank > 0 && (step + (uint64_t)rank) % 3 == 0;
}

static tutti_status sitter_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    (void)err;
    tutti_sit_out_declare(m, plan);
    return TUTTI_OK;
}

static tutti_status sitter_pass(tutti_method *m, tutti_pass *p, tutti_error *err)
{
    (void)err;
    if (sits(m->rank, m->step))
        p->samples = p->divisor = 0;
    return TUTTI_OK;
}

static tutti_status sitter_step(tutti_method *m, tutti_error *err)
{
    seen[m->rank].lr[m->step] = m->lr;
    seen[m->rank].t[m->step] = sits(m->rank, m->step) ? 0 : tutti_rate_now(m).t;
    if (!sits(m->rank, m->step))
        return tutti_base_step(m, err);
    tutti_sit_out(m);
    return TUTTI_OK;
}

static tutti_status nothing_to_serve(tutti_method *m, tutti_error *err)
{
    tutti_status status;
    while ((status = tutti_round_next(m, 0, false, err)) == TUTTI_OK)
        ;
    return status;
}

static const tutti_service sitter_services[] = { { "rest", nothing_to_serve }, { 0 } };
static const tutti_method_ops sitter_ops = {
    .name = "sitter",
    .services = sitter_services,
    .declare = sitter_declare,
    .pass = sitter_pass,
    .step = sitter_step,
};

static tutti_status sit(tutti_world *world, tutti_engine *e, bool resumed, tutti_error *err)
{
    for (int k = resumed ? STEPS / 2 : 0; k < (resumed ? STEPS : STEPS / 2); k++)
        TUTTI_TRY(one_step(e, err));
    if (!resumed)
        return tutti_engine_save(e, directory, "{}", 1, err);
    TUTTI_TRY(tutti_engine_finish(e, err));
    tutti_engine_figures(e, &seen[tutti_world_rank(world)].figures);
    return TUTTI_OK;
}

static tutti_status load(tutti_engine *e, tutti_world *world, tutti_error *err)
{
    char found[512];
    tutti_checkpoint *c;
    tutti_status status;

    TUTTI_TRY(tutti_checkpoint_find(tutti_world_runtime(world), directory, found, sizeof found, NULL, 0, err));
    TUTTI_TRY(tutti_checkpoint_open(&c, tutti_world_runtime(world), found, err));
    status = tutti_engine_load(e, c, err);
    tutti_checkpoint_close(c);
    return status;
}

static tutti_status sit_rank(tutti_world *world, void *arg, tutti_error *err)
{
    static const tutti_method_ops *const methods[] = { &sitter_ops, NULL };
    const bool resumed = *(const bool *)arg;
    tutti_engine *e;
    tutti_status status = open_engine(&e, world, methods, "cosine", err);

    if (status == TUTTI_OK && resumed)
        status = load(e, world, err);
    if (status == TUTTI_OK)
        status = sit(world, e, resumed, err);
    tutti_engine_close(e);
    return status;
}

static void worker_sitting_out_stays_in_step_without_updates(void **state)
{
    const int n = 4;
    uint64_t samples = 0;

    (void)state;
    scratch_make(directory);
    for (int half = 0; half < 2; half++) { /* the second in a run that continues the first */
        tutti_error err = { .rank = -1 };
        const bool resumed = half == 1;
        if (tutti_world_run("shm", n, sit_rank, (void *)&resumed, &err) != TUTTI_OK)
            fail_msg("%s", err.text);
    }
    for (int r = 0; r < n; r++) {
        uint64_t updates = 0;
        for (int s = 0; s < STEPS; s++) {
            assert_true(seen[r].lr[s] == seen[0].lr[s]); /* the schedule goes by steps */
            assert_true(s == 0 || seen[r].lr[s] < seen[r].lr[s - 1]);
            updates += !sits(r, (uint64_t)s);
            assert_int_equal(seen[r].t[s], sits(r, (uint64_t)s) ? 0 : updates);
        }
        assert_int_equal(seen[r].figures.own_steps, updates);
        assert_int_equal(seen[r].figures.steps, STEPS);
        assert_int_equal(seen[r].figures.skipped, 0);
        samples += BATCH * updates;
    }
    for (int r = 0; r < n; r++)
        assert_int_equal(seen[r].figures.samples, samples);
    scratch_remove(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hook_waiting_for_a_service_counts_as_exposed_time),
        cmocka_unit_test(a_failed_service_ends_the_waiting_on_all_workers),
        cmocka_unit_test(worker_sitting_out_stays_in_step_without_updates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
