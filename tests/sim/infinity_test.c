/* Goal: zero-infinity hides its disk. Where computing takes longer, a step takes as long as
   computing, and where the disk takes longer, as long as the disk: the longer of the two and not
   their sum, in forward and backward, in addition to the update, whose time is the disk's. Without
   reading ahead it is the sum. Method: virtual time. A disk of each worker takes one transfer at a
   time, and a fixed time a byte; a layer sleeps for as long as it computes. Layers are large ones
   with small ones between, as in a transformer. Bits are tested by method/zero-infinity. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include "forked.h"
#include "tutti/comm.h"
#include "tutti/tutti.h"
#include "tutti/method.h"

enum { UNITS = 17, STEPS = 4, LARGE = 16384, SMALL = 64, FILES = 1024 };
enum { BYTE_NS = 20 };             /* of the disk; so a large layer is some 1.3 ms */

static size_t count_of(int unit)
{
    return unit % 2 == 0 ? SMALL : LARGE;
}

typedef struct job {
    char options[80];              /* of the method, behind the tier */
    double computes;               /* a layer forward, over its reading; backward is twice that */
    int n, lane;

    /* what it leaves, of worker 0, in virtual time */
    int64_t began[STEPS + 1], ended[STEPS]; /* steps; how long their ends took */
    int64_t exposed[STEPS + 1];    /* before each step, in all */
} job;

/* ---- a disk in virtual time ---- */

static struct {
    const tutti_runtime_ops *below;
    tutti_runtime_ops ops;
    int64_t until[FILES];          /* by descriptor: when it is free */
} slow;

static void takes(void *self, int fd, size_t bytes)
{
    const int64_t now = slow.below->now(self), begin = slow.until[fd] > now ? slow.until[fd] : now;

    slow.until[fd] = begin + (int64_t)bytes * BYTE_NS;
    slow.below->sleep_until(self, slow.until[fd]);
}

static int slow_read(void *self, int fd, uint64_t offset, void *to, size_t bytes, size_t *done)
{
    takes(self, fd, bytes);
    return slow.below->file_read(self, fd, offset, to, bytes, done);
}

static int slow_write_at(void *self, int fd, uint64_t offset, const void *from, size_t bytes, size_t *done)
{
    takes(self, fd, bytes);
    return slow.below->file_write_at(self, fd, offset, from, bytes, done);
}

/* ---- a client ---- */

static void compute(tutti_runtime *rt, const job *j, int unit)
{
    tutti_sleep_until(rt, tutti_now_ns(rt) + (int64_t)(j->computes * (double)count_of(unit) * 4 * BYTE_NS / j->n));
}

static tutti_status pass(tutti_engine *e, const job *j, float *memory, tutti_error *err)
{
    tutti_runtime *const rt = tutti_engine_method(e)->rt;

    for (int u = 0; u < UNITS; u++) {
        TUTTI_TRY(tutti_engine_unit_acquire(e, u, false, err));
        compute(rt, j, u);
        TUTTI_TRY(tutti_engine_unit_release(e, u, false, err));
    }
    for (int u = UNITS - 1; u >= 0; u--) {
        TUTTI_TRY(tutti_engine_unit_acquire(e, u, true, err));
        compute(rt, j, u);
        compute(rt, j, u);
        memset(memory, 0, count_of(u) * sizeof *memory);
        TUTTI_TRY(tutti_engine_grad_ready_from(e, UNITS - 1 - u, memory, TUTTI_F32, err));
        TUTTI_TRY(tutti_engine_unit_release(e, u, true, err));
    }
    return tutti_engine_pass_end(e, 0, err);
}

static void note(tutti_engine *e, job *j, int step)
{
    tutti_figures f;

    tutti_engine_figures(e, &f);
    j->began[step] = tutti_now_ns(tutti_engine_method(e)->rt);
    j->exposed[step] = f.exposed_ns;
}

static tutti_status steps(tutti_engine *e, job *j, float *memory, tutti_error *err)
{
    const tutti_method *m = tutti_engine_method(e);
    tutti_status status;

    for (int s = 0; s < STEPS; s++) {
        int64_t computed;
        tutti_pass p;
        if (m->rank == 0)
            note(e, j, s);
        while ((status = tutti_engine_pass_begin(e, &p, err)) == TUTTI_OK &&
               (status = pass(e, j, memory, err)) == TUTTI_OK)
            ;
        if (status != TUTTI_CLOSED)
            return status;
        computed = tutti_now_ns(m->rt);
        TUTTI_TRY(tutti_engine_step(e, err));
        if (m->rank == 0)
            j->ended[s] = tutti_now_ns(m->rt) - computed;
    }
    if (m->rank == 0)
        note(e, j, STEPS);
    return tutti_engine_finish(e, err);
}

static tutti_status rank_main(tutti_world *world, void *arg, tutti_error *err)
{
    job *j = arg;
    tutti_runtime *const rt = tutti_world_runtime(world);
    tutti_param params[UNITS];
    char method[400], names[UNITS][8];
    float *memory = tutti_alloc(LARGE, sizeof *memory);
    tutti_engine_options options = {
        .method = method, .optimizer = "sgd(lr=0.1,momentum=0.9)", .batch = 2, .needs = true, .same_order = true,
        .lane = j->lane, .steps = STEPS + 1
    };
    tutti_engine *e;
    tutti_status status;

    if (memory == NULL)
        return TUTTI_ERR_MEMORY;
    if (rt->ops != &slow.ops) {
        slow.below = rt->ops;
        slow.ops = *rt->ops;
        slow.ops.file_read = slow_read;
        slow.ops.file_write_at = slow_write_at;
        rt->ops = &slow.ops;
    }
    snprintf(method, sizeof method,
             "zero-infinity(tier=nvme(path=\"%s\",direct=off,depth=8,block=16384),bucket_mb=0.02,"
             "first_bucket_mb=0.02,tile_mb=0.0625,%s)", TUTTI_BINARY_DIR,
             j->options);
    for (int k = 0; k < UNITS; k++) {
        snprintf(names[k], sizeof names[k], "p%d", k);
        params[k] = (tutti_param){
            .name = names[k], .dims = 1, .dim = { count_of(UNITS - 1 - k) }, .unit = UNITS - 1 - k
        };
    }
    status = tutti_engine_open(&e, world, params, UNITS, &options, err);
    if (status == TUTTI_OK)
        status = steps(e, j, memory, err);
    tutti_engine_close(e);
    tutti_free(memory);
    return status;
}

static tutti_status in_child(void *arg, tutti_error *err)
{
    job *j = arg;

    return tutti_world_run("sim", j->n, rank_main, j, err);
}

/* ---- what it should take ---- */

/* In virtual time: bytes of all values on one worker, moved so often. */
static double moves(const job *j, double times)
{
    double bytes = 0;

    for (int u = 0; u < UNITS; u++)
        bytes += (double)count_of(u) * 4;
    return times * bytes * BYTE_NS / j->n;
}

static job *run(const char *options, double computes, int n, int lane)
{
    job *j = mmap(NULL, sizeof *j, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    tutti_error err = { .rank = -1 };

    assert_true(j != MAP_FAILED);
    *j = (job){ .computes = computes, .n = n, .lane = lane };
    snprintf(j->options, sizeof j->options, "%s", options);
    if (forked(in_child, j, &err) != TUTTI_OK)
        fail_msg("%s: %s", options, err.text);
    return j;
}

/* The passes of a step; its end; what the client waited for in it. */
static double passes(const job *j, int step)
{
    return (double)(j->began[step + 1] - j->began[step] - j->ended[step]);
}

static double exposed(const job *j, int step)
{
    return (double)(j->exposed[step + 1] - j->exposed[step]);
}

enum { READ = 2, WRITTEN = 1, UPDATE = 5 }; /* values for forward and backward, gradients; x, g, m and x, m */

/* The first step too, whose order is guessed; but of that nothing hides the first large layer, one
   of 24 that are moved. Without a thread, too: the disk needs none. */
static void the_disk_is_hidden_where_computing_takes_longer(void **state)
{
    static const double computes[] = { 1, 1.5, 3 };

    (void)state;
    for (int lane = -1; lane < 2; lane++)
        for (size_t c = 0; c < TUTTI_LENGTH(computes); c++) {
            job *j = run("ahead=2", computes[c], 1, lane);
            for (int s = 0; s < STEPS; s++) {
                const double disk = moves(j, READ + WRITTEN), compute = computes[c] * disk,
                             most = (s == 0 ? 0.06 : 0.02) * disk;
                assert_true(exposed(j, s) < most);
                assert_true(passes(j, s) < compute + most);
            }
            munmap(j, sizeof *j);
        }
}

static void computing_overlaps_transfers_of_a_slower_disk(void **state)
{
    static const double computes[] = { 0.1, 0.3, 0.6 };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(computes); c++) {
        job *j = run("ahead=2", computes[c], 1, 0);
        for (int s = 0; s < STEPS; s++) {
            const double disk = moves(j, READ + WRITTEN);
            assert_true(passes(j, s) < disk);
            assert_true(exposed(j, s) < disk - computes[c] * disk);
        }
        munmap(j, sizeof *j);
    }
}

/* Each layer's reading waits for what was written of the one before. */
static void without_prefetch_disk_time_is_fully_exposed(void **state)
{
    (void)state;
    for (int lane = -1; lane < 1; lane++) {
        job *j = run("ahead=0", 1, 1, lane);
        for (int s = 0; s < STEPS; s++)
            assert_true(exposed(j, s) > 0.98 * moves(j, READ + WRITTEN));
        munmap(j, sizeof *j);
    }
}

/* Reading, updating and writing go on at a time, and the disk never rests. */
static void the_update_takes_as_long_as_the_disk(void **state)
{
    job *j = run("ahead=2", 1, 1, 0);

    (void)state;
    for (int s = 0; s < STEPS; s++)
        assert_true((double)j->ended[s] >= moves(j, UPDATE) && (double)j->ended[s] < 1.05 * moves(j, UPDATE));
    munmap(j, sizeof *j);
}

/* Each disk has half of each layer, and gathers run concurrently as well. Messages take time. */
static void two_workers_hide_their_disks(void **state)
{
    job *none = run("ahead=0", 3, 2, 0), *two = run("ahead=2", 3, 2, 0);

    (void)state;
    for (int s = 0; s < STEPS; s++) {
        assert_true(exposed(none, s) > moves(none, READ + WRITTEN));
        assert_true(exposed(two, s) < exposed(none, s) - 0.9 * moves(two, READ + WRITTEN));
    }
    munmap(none, sizeof *none);
    munmap(two, sizeof *two);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_disk_is_hidden_where_computing_takes_longer),
        cmocka_unit_test(computing_overlaps_transfers_of_a_slower_disk),
        cmocka_unit_test(without_prefetch_disk_time_is_fully_exposed),
        cmocka_unit_test(the_update_takes_as_long_as_the_disk),
        cmocka_unit_test(two_workers_hide_their_disks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
