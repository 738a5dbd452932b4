/* Goal: an update of what is in a tier has the bits of one in memory, whatever the tile, the
   threads, the tier and the order of parts; parts are over in their order; a disk that fails ends
   it with a sentence and leaves nothing in flight. Method: several ranges of odd sizes, compared
   with the whole vector's update; a runtime whose k-th transfer fails. */
#include "tier/disk.h"
#include "base/machine.h"
#include "kernels/device.h"
#include <errno.h>
#include "optim/placed.h"
#include "state/plan.h"
#include "tier/tier.h"
#include "tutti/method.h"

enum { N = 40000, STEPS = 3 };
static const tutti_range ranges[] = { { 16, 9001 }, { 9100, 0 }, { 10000, 1 }, { 10016, 16384 }, { 30000, 5003 } };
enum { RANGES = TUTTI_LENGTH(ranges) };

typedef struct faults {
    tutti_runtime rt;
    tutti_runtime_ops ops;
    tutti_runtime *below;
    int transfers, fail_at;      /* the k-th fails; 0: none */
} faults;

static bool strikes(faults *f)
{
    return __atomic_add_fetch(&f->transfers, 1, __ATOMIC_RELAXED) == f->fail_at;
}

static int faulty_read(void *self, int fd, uint64_t offset, void *to, size_t bytes, size_t *done)
{
    faults *f = self;

    *done = 0;
    return strikes(f) ? EIO : f->below->ops->file_read(f->below->self, fd, offset, to, bytes, done);
}

static int faulty_write_at(void *self, int fd, uint64_t offset, const void *from, size_t bytes, size_t *done)
{
    faults *f = self;

    *done = 0;
    return strikes(f) ? EIO : f->below->ops->file_write_at(f->below->self, fd, offset, from, bytes, done);
}

static tutti_runtime *faulty(faults *f)
{
    *f = (faults){ .below = runtime_of_test() };
    f->ops = *f->below->ops; /* its other calls do not look at `self` */
    f->ops.file_read = faulty_read;
    f->ops.file_write_at = faulty_write_at;
    f->rt.ops = &f->ops;
    f->rt.self = f;
    return &f->rt;
}

typedef struct bench {
    tutti_device *d;
    tutti_plan *plan;
    tutti_optim *whole, *part;
    tutti_tier *tier;
    tutti_arena *host;
    tutti_placed *placed;
    float *w, *x, *g;            /* N each */
    size_t over;                 /* parts, in order */
} bench;

static void bench_open(bench *b, tutti_runtime *rt, const char *optimizer, const char *tier, size_t tile, int threads)
{
    size_t bytes = 0;
    tutti_place masters;

    *b = (bench){ 0 };
    assert_int_equal(tutti_device_open_host(&b->d, NULL, tutti_cpu_best(), NULL), TUTTI_OK);
    assert_int_equal(tutti_plan_open(&b->plan, N, NULL), TUTTI_OK);
    assert_int_equal(tutti_optim_declare(&b->whole, b->plan, optimizer, "whole", 0, N, TUTTI_SAME, b->d, NULL),
                     TUTTI_OK);
    assert_int_equal(tutti_optim_declare_ranges(&b->part, b->plan,
                                                &(tutti_optim_request){ optimizer, "part", ranges,
                                                                        RANGES, false, NULL, b->d },
                                                NULL),
                     TUTTI_OK);
    assert_int_equal(tutti_plan_carry_out(b->plan, NULL, NULL), TUTTI_OK);
    assert_int_equal(tutti_arena_open(&b->host, rt, "host memory", "", TUTTI_UNBOUNDED, NULL), TUTTI_OK);
    bytes = (b->part->count * sizeof(float) + 4095) / 4096 * 4096;
    assert_int_equal(tutti_tier_open(&b->tier, rt, tier, 3 * bytes, b->host, NULL), TUTTI_OK);
    for (size_t s = 0; s < 3; s++) {
        char *const address = tutti_tier_address(b->tier);
        const tutti_place at = { b->tier, s * bytes, address != NULL ? address + s * bytes : NULL };
        if (s == 0)
            masters = at;
        else
            b->part->place[s - 1] = at;
    }
    for (int s = b->part->ops->slots(b->part->self); s < TUTTI_SLOTS_MAX; s++)
        b->part->place[s] = (tutti_place){ 0 };
    tutti_optim_placed(b->part);
    assert_int_equal(tutti_placed_open(&b->placed, b->part, &masters, rt, &(tutti_placed_options){ tile, threads },
                                       b->host, NULL),
                     TUTTI_OK);
    b->w = tutti_alloc(N, sizeof *b->w);
    b->x = tutti_alloc(N, sizeof *b->x);
    b->g = tutti_alloc(N, sizeof *b->g);
    for (size_t i = 0; i < N; i++)
        b->w[i] = b->x[i] = (float)(i % 77) / 7;
}

static void bench_close(bench *b)
{
    tutti_placed_close(b->placed);
    tutti_tier_close(b->tier);
    assert_int_equal(tutti_arena_count(b->host, NULL).now, 0);
    tutti_arena_close(b->host);
    tutti_optim_close(b->whole);
    tutti_optim_close(b->part);
    tutti_plan_close(b->plan);
    tutti_device_close(b->d);
    tutti_free(b->w);
    tutti_free(b->x);
    tutti_free(b->g);
}

static void in_order(void *arg, size_t part)
{
    bench *b = arg;

    assert_int_equal(part, b->over);
    b->over++;
}

static tutti_update_part part_of(const bench *b, size_t k)
{
    const tutti_range *r = &ranges[RANGES - 1 - k]; /* the last first */

    return (tutti_update_part){ r->first, r->count, b->g + r->first, b->x + r->first };
}

static tutti_status train(bench *b, int t, tutti_error *err)
{
    const tutti_rate rate = { 0.1, 0.5, (uint64_t)t };
    tutti_update_part parts[RANGES];

    for (size_t i = 0; i < N; i++)
        b->g[i] = (float)((i * 31 + (size_t)t * 17) % 23) - 11;
    tutti_update(b->whole, 0, N, b->w, b->g, &rate);
    for (size_t k = 0; k < RANGES; k++)
        parts[k] = part_of(b, k);
    b->over = 0;
    return tutti_placed_update(b->placed, parts, RANGES, &rate, in_order, b, err);
}

static tutti_status fill(bench *b, tutti_error *err)
{
    for (size_t k = 0; k < RANGES; k++) {
        const tutti_update_part part = part_of(b, k);
        TUTTI_TRY(tutti_placed_take(b->placed, &part, err));
    }
    return TUTTI_OK;
}

static void an_update_in_tiles_has_the_bits_of_one_in_memory(void **state)
{
    static const char *const optimizers[] = { "adamw", "sgd(momentum=0.9)", "sgd" };
    tutti_runtime *rt = runtime_of_test();
    char disk[3][300];

    (void)state;
    snprintf(disk[0], sizeof disk[0], "host");
    snprintf(disk[1], sizeof disk[1], "nvme(path=\"%s\",direct=%s)", DISK, disk_direct(rt));
    snprintf(disk[2], sizeof disk[2], "nvme(path=\"%s\",direct=off,engine=threads,depth=1)", DISK);
    for (int k = 0; k < 27; k++) {
        static const size_t tiles[] = { 1, 70000, 1 << 20 };
        const tutti_update_part none = { 0 };
        bench b;

        bench_open(&b, rt, optimizers[k % 3], disk[k / 3 % 3], tiles[k / 9], 1 + k % 2);
        assert_int_equal(fill(&b, NULL), TUTTI_OK);
        for (int t = 1; t <= STEPS; t++) {
            assert_int_equal(train(&b, t, NULL), TUTTI_OK);
            assert_int_equal(b.over, RANGES);
        }
        assert_int_equal(tutti_placed_updated(b.placed), STEPS * b.part->count);
        for (size_t r = 0; r < RANGES; r++)
            assert_memory_equal(b.x + ranges[r].first, b.w + ranges[r].first, ranges[r].count * sizeof(float));
        for (size_t i = 0; i < N; i++)
            b.x[i] = -1;
        for (size_t r = 0; r < RANGES; r++) { /* masters have them, too */
            const tutti_update_part part = part_of(&b, r);
            assert_int_equal(tutti_placed_give(b.placed, &part, NULL), TUTTI_OK);
        }
        for (size_t r = 0; r < RANGES; r++)
            assert_memory_equal(b.x + ranges[r].first, b.w + ranges[r].first, ranges[r].count * sizeof(float));
        assert_int_equal(tutti_placed_update(b.placed, &none, 0, &(tutti_rate){ 1, 1, 1 }, NULL, NULL, NULL), TUTTI_OK);
        bench_close(&b);
    }
    tutti_runtime_close(rt);
}

/* Each transfer of a step in turn. */
static void disk_failure_ends_the_update_with_an_error(void **state)
{
    faults f;
    tutti_runtime *rt = faulty(&f);
    char disk[300];
    int failed = 0;

    (void)state;
    snprintf(disk, sizeof disk, "nvme(path=\"%s\",direct=off,engine=threads,depth=3)", DISK);
    for (int k = 1;; k++) {
        tutti_error err = { .rank = -1 };
        tutti_status status;
        bench b;

        f.fail_at = f.transfers = 0;
        bench_open(&b, rt, "adamw", disk, 1, 1);
        assert_int_equal(fill(&b, NULL), TUTTI_OK);
        f.transfers = 0;
        f.fail_at = k;
        status = train(&b, 1, &err);
        bench_close(&b);
        if (status == TUTTI_OK)
            break;
        failed++;
        assert_int_equal(status, TUTTI_ERR_IO);
        assert_non_null(strstr(err.text, "tier 'nvme': cannot "));
        assert_non_null(strstr(err.text, "(Input/output error)"));
    }
    assert_true(failed > 20);
    tutti_runtime_close(f.below);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_update_in_tiles_has_the_bits_of_one_in_memory),
        cmocka_unit_test(disk_failure_ends_the_update_with_an_error),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
