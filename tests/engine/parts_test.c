/* Goal: with parts every worker goes over samples of its own, whatever pace its method has, and
   continues where it stopped. Method: each pass's position is compared with what the worker has
   computed so far; checkpoints are written half way and loaded by another engine. */
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "scratch.h"
#include "toy.h"

enum { WORKERS = 3, SAMPLES = 50 };
static uint64_t first[WORKERS + 1] = { 0, 20, 27, 50 };
static uint32_t sample[SAMPLES];
static const tutti_parts parts = { first, sample };

typedef struct run { toy t; char directory[SCRATCH_PATH]; _Atomic uint64_t computed[WORKERS]; } run;

static run run_of(const char *method)
{
    run r = { .t = toy_default() };

    for (uint32_t i = 0; i < SAMPLES; i++)
        sample[i] = i;
    r.t.options.method = method;
    r.t.options.parts = &parts;
    r.t.options.accumulate = 2;
    for (int i = 0; i < TOY_TENSORS; i++)
        r.t.count[i] = 5;
    scratch_make(r.directory);
    return r;
}

static tutti_status steps(tutti_engine *e, uint64_t n, uint64_t *mine, tutti_error *err)
{
    const tutti_method *m = tutti_engine_method(e);

    for (uint64_t k = 0; k < n; k++) {
        tutti_pass p;
        tutti_status status;
        while ((status = tutti_engine_pass_begin(e, &p, err)) == TUTTI_OK) {
            CHECK(p.position == *mine);
            for (int64_t b = 0; b < p.samples; b++) {
                const uint64_t id = tutti_share_sample_of(m->share, m->share->workers == 1 ? 0 : m->rank, p.epoch,
                                                          p.position + (uint64_t)b);
                CHECK(id >= first[m->rank] && id < first[m->rank + 1]);
            }
            *mine += (uint64_t)p.samples;
            for (int i = 0; i < TOY_TENSORS; i++)
                TUTTI_TRY(tutti_engine_grad_ready(e, i, err));
            TUTTI_TRY(tutti_engine_pass_end(e, 0, err));
        }
        if (status != TUTTI_CLOSED)
            return status;
        TUTTI_TRY(tutti_engine_step(e, err));
    }
    return TUTTI_OK;
}

static tutti_status first_half(tutti_world *world, void *arg, tutti_error *err)
{
    run *r = arg;
    tutti_engine *e;
    toy t = r->t; /* each rank's own: opening writes to it */
    uint64_t mine = 0;
    tutti_status status = toy_open(&e, world, &t, err);

    if (status == TUTTI_OK)
        status = steps(e, 9, &mine, err); /* 50 samples, 24 a step: an epoch is two steps and a tail of 2 */
    if (status == TUTTI_OK)
        status = tutti_engine_save(e, r->directory, "{}", 1, err);
    if (status == TUTTI_OK)
        atomic_store(&r->computed[tutti_engine_method(e)->rank], mine);
    if (status == TUTTI_OK)
        status = tutti_engine_finish(e, err);
    tutti_engine_close(e);
    return status;
}

static tutti_status second_half(tutti_world *world, void *arg, tutti_error *err)
{
    run *r = arg;
    tutti_engine *e = NULL;
    tutti_checkpoint *checkpoint = NULL;
    char path[200];
    uint64_t mine;
    toy t = r->t;
    tutti_runtime *rt = tutti_world_runtime(world);
    tutti_status status = toy_open(&e, world, &t, err);

    if (status == TUTTI_OK)
        status = tutti_checkpoint_find(rt, r->directory, path, sizeof path, NULL, 0, err);
    if (status == TUTTI_OK)
        status = tutti_checkpoint_open(&checkpoint, rt, path, err);
    if (status == TUTTI_OK)
        status = tutti_engine_load(e, checkpoint, err);
    if (status == TUTTI_OK) {
        mine = atomic_load(&r->computed[tutti_engine_method(e)->rank]);
        status = steps(e, 7, &mine, err);
    }
    if (status == TUTTI_OK)
        status = tutti_engine_finish(e, err);
    tutti_checkpoint_close(checkpoint);
    tutti_engine_close(e);
    return status;
}

static void every_worker_resumes_in_its_own_part(void **state)
{
    static const char *const methods[] = { "ddp", "local-sgd", "d-psgd(graph=complete)", "ad-psgd" };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(methods); k++) {
        run r = run_of(methods[k]);
        tutti_error err = { .rank = -1 };
        if (tutti_world_run("shm", WORKERS, first_half, &r, &err) != TUTTI_OK ||
            tutti_world_run("shm", WORKERS, second_half, &r, &err) != TUTTI_OK)
            fail_msg("%s: %s", methods[k], err.text);
        for (int w = 0; w < WORKERS; w++)
            assert_true(atomic_load(&r.computed[w]) > 40);
        scratch_remove(r.directory);
    }
}

static void methods_moving_work_are_rejected_with_partitioned_data(void **state)
{
    run r = run_of("hetero-ring");
    tutti_error err = { .rank = -1 };

    (void)state;
    assert_int_equal(tutti_world_run("shm", WORKERS, first_half, &r, &err), TUTTI_ERR_USAGE);
    assert_non_null(strstr(err.text, "partition gives each worker samples of its own that stay with it, but method "
                                     "'hetero-ring' hands work from worker to worker; leave partition at iid, or take "
                                     "another method"));
    scratch_remove(r.directory);
}

static tutti_status reshare(tutti_world *world, void *arg, tutti_error *err)
{
    static const int64_t even[WORKERS] = { 4, 4, 4 }, other[WORKERS] = { 2, 4, 6 };
    const run *r = arg;
    toy t = r->t;
    tutti_engine *e;
    tutti_status status;

    t.options.batch_of = even;
    status = toy_open(&e, world, &t, err);
    if (status == TUTTI_OK)
        status = tutti_engine_reshare(e, other, err);
    tutti_engine_close(e);
    return status;
}

static void changing_shares_is_rejected_with_partitioned_data(void **state)
{
    run r = run_of("ddp");
    tutti_error err = { .rank = -1 };

    (void)state;
    assert_int_equal(tutti_world_run("shm", WORKERS, reshare, &r, &err), TUTTI_ERR_STATE);
    assert_non_null(strstr(err.text, "reshare is not for engines with parts"));
    scratch_remove(r.directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_worker_resumes_in_its_own_part),
        cmocka_unit_test(methods_moving_work_are_rejected_with_partitioned_data),
        cmocka_unit_test(changing_shares_is_rejected_with_partitioned_data),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
