/* Goal: client state (running statistics and the like) is each worker's own while it trains, the
   same mean on all during an evaluation and after the end, and part of checkpoints. Method: every
   worker counts something of its own; expected values are integers or halves, so equality is
   exact. */
#include <stdlib.h>
#include <unistd.h>

#include "scratch.h"
#include "toy.h"

enum { OWN = 3, STEPS = 4 };

typedef struct job {
    const char *method;
    bool idle;                   /* the last worker gets no samples */
    char directory[SCRATCH_PATH]; /* "": nothing is saved or loaded */
    int saved_by, counted;       /* workers; those of them that had had samples: the first ones */
} job;

static float count_of(int rank, int step, int i) { return (float)(step * (rank + 1) * 4 + i); }

/* After `step` steps of the workers [0, n). */
static float mean_of(int n, int step, int i)
{
    float sum = 0;
    for (int r = 0; r < n; r++)
        sum += count_of(r, step, i);
    return sum / (float)n;
}

static tutti_status expect(tutti_engine *e, int n, int step, bool mean, tutti_error *err)
{
    const int rank = tutti_engine_method(e)->rank;

    for (int i = 0; i < OWN; i++) {
        const float want = mean ? mean_of(n, step, i) : count_of(rank, step, i), has = tutti_engine_client_state(e)[i];
        if (has != want)
            return tutti_fail(err, TUTTI_ERR_STATE, 0, "after %d steps own value %d is %g, not %g", step, i,
                              (double)has, (double)want);
    }
    return TUTTI_OK;
}

static tutti_status open_job(tutti_engine **e, tutti_world *world, toy *t, const job *j, tutti_error *err)
{
    static const int64_t even[] = { 4, 4, 4, 4 };
    int64_t batch_of[4];
    const int n = tutti_world_size(world);

    *t = toy_default();
    memcpy(batch_of, even, sizeof batch_of);
    if (j->idle) {
        batch_of[0] = 8;
        batch_of[n - 1] = 0;
        t->options.batch_of = batch_of;
    }
    t->options.method = j->method;
    t->options.data_samples = 0;
    t->options.own_values = OWN;
    t->count[1] = 1200;
    t->count[3] = 901;
    return toy_open(e, world, t, err);
}

static tutti_status step(tutti_engine *e, toy *t, int k, tutti_error *err)
{
    TUTTI_TRY(toy_step(e, t, err));
    for (int i = 0; i < OWN; i++)
        tutti_engine_client_state(e)[i] = count_of(tutti_engine_method(e)->rank, k + 1, i);
    return TUTTI_OK;
}

static tutti_status rank(tutti_world *world, void *arg, tutti_error *err)
{
    const job *j = arg;
    const int n = tutti_world_size(world), counted = j->idle ? n - 1 : n;
    tutti_engine *e;
    toy t;

    TUTTI_TRY(open_job(&e, world, &t, j, err));
    for (int i = 0; i < OWN; i++)
        CHECK(tutti_engine_client_state(e)[i] == 0);
    TUTTI_TRY(tutti_engine_eval_begin(e, err)); /* no worker has had samples: nothing to agree on */
    TUTTI_TRY(tutti_engine_eval_end(e, err));
    for (int k = 0; k < STEPS; k++) {
        TUTTI_TRY(step(e, &t, k, err));
        TUTTI_TRY(expect(e, n, k + 1, false, err));
        TUTTI_TRY(tutti_engine_eval_begin(e, err));
        TUTTI_TRY(expect(e, counted, k + 1, true, err));
        TUTTI_TRY(tutti_engine_eval_end(e, err));
        TUTTI_TRY(expect(e, n, k + 1, false, err));
    }
    if (j->directory[0] != 0)
        TUTTI_TRY(tutti_engine_save(e, j->directory, "{}", 1, err));
    TUTTI_TRY(tutti_engine_finish(e, err));
    TUTTI_TRY(expect(e, counted, STEPS, true, err));
    tutti_engine_close(e);
    return TUTTI_OK;
}

static tutti_status load_rank(tutti_world *world, void *arg, tutti_error *err)
{
    const job *j = arg;
    const int n = tutti_world_size(world);
    char found[512];
    tutti_checkpoint *c;
    tutti_engine *e;
    toy t;

    TUTTI_TRY(open_job(&e, world, &t, j, err));
    TUTTI_TRY(tutti_checkpoint_find(tutti_world_runtime(world), j->directory, found, sizeof found, NULL, 0, err));
    TUTTI_TRY(tutti_checkpoint_open(&c, tutti_world_runtime(world), found, err));
    TUTTI_TRY(tutti_engine_load(e, c, err));
    tutti_checkpoint_close(c);
    TUTTI_TRY(expect(e, j->counted, STEPS, n != j->saved_by, err));
    TUTTI_TRY(tutti_engine_eval_begin(e, err)); /* which workers had samples is known from the checkpoint */
    TUTTI_TRY(expect(e, j->counted, STEPS, true, err));
    TUTTI_TRY(tutti_engine_eval_end(e, err));
    tutti_engine_close(e);
    return TUTTI_OK;
}

static void run(tutti_status (*what)(tutti_world *, void *, tutti_error *), job *j, int n)
{
    tutti_error err = { .rank = -1 };
    if (tutti_world_run("shm", n, what, j, &err) != TUTTI_OK)
        fail_msg("%s, %d workers: %s", j->method, n, err.text);
}

static void client_state_is_per_worker_and_evaluated_as_mean(void **state)
{
    static const char *const methods[] = { "ddp", "local-sgd(period=3)", "d-psgd", "single" };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(methods); i++)
        for (int n = 1; n <= 4; n *= 2)
            run(rank, &(job){ .method = methods[i] }, n);
}

static void worker_without_samples_does_not_count_in_the_mean(void **state)
{
    (void)state;
    run(rank, &(job){ .method = "ddp", .idle = true }, 2);
}

static void save_and_load(bool idle)
{
    job j = { .method = "ddp", .idle = idle };

    scratch_make(j.directory);
    run(rank, &j, 4);
    j.saved_by = 4;
    j.counted = idle ? 3 : 4;
    j.idle = false;
    run(load_rank, &j, 4);
    run(load_rank, &j, 2);
    run(load_rank, &j, 1);
    run(load_rank, &j, 7);
    scratch_remove(j.directory);
}

static void client_state_is_saved_and_resharded_as_the_mean(void **state)
{
    (void)state;
    save_and_load(false);
}

/* A worker's memory may hold values that do not come from samples of its own. */
static void saved_client_state_excludes_workers_without_samples(void **state)
{
    (void)state;
    save_and_load(true);
}

static tutti_status differ_rank(tutti_world *world, void *arg, tutti_error *err)
{
    toy t = toy_default();
    tutti_engine *e;

    (void)arg;
    t.options.own_values = tutti_world_rank(world) == 0 ? 2 : 3;
    return toy_open(&e, world, &t, err);
}

static tutti_status none_rank(tutti_world *world, void *arg, tutti_error *err)
{
    toy t = toy_default();
    tutti_engine *e;

    (void)arg;
    TUTTI_TRY(toy_open(&e, world, &t, err));
    CHECK(tutti_engine_client_state(e) == NULL);
    tutti_engine_close(e);
    return TUTTI_OK;
}

static void differing_client_state_sizes_are_rejected(void **state)
{
    tutti_error err = { .rank = -1 };

    (void)state;
    assert_int_equal(tutti_world_run("shm", 2, differ_rank, NULL, &err), TUTTI_ERR_USAGE);
    assert_non_null(strstr(err.text, "own values"));
    assert_int_equal(tutti_world_run("shm", 2, none_rank, NULL, &err), TUTTI_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(client_state_is_per_worker_and_evaluated_as_mean),
        cmocka_unit_test(worker_without_samples_does_not_count_in_the_mean),
        cmocka_unit_test(client_state_is_saved_and_resharded_as_the_mean),
        cmocka_unit_test(saved_client_state_excludes_workers_without_samples),
        cmocka_unit_test(differing_client_state_sizes_are_rejected),
    };
    return cmocka_run_group_tests_name("engine/own", tests, NULL, NULL);
}
