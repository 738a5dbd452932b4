/* Goal: zero-infinity.md's invariants, on ranks that are threads. Host memory and a disk train
   ddp's bits, clipped too, however many layers are read ahead; between workers travels what stage 3
   of zero sends; the disk moves the bytes of the formula; the device has the layers at work; a disk
   that fails ends the run with a sentence. Method: the client of zero's test; a runtime whose k-th
   transfer fails. Checkpoints are in cli/resume, schedules in tests/explore. */
#include <errno.h>
#include "sharded.h"
#include "transport/registry.h"
#include "sanitized.h"

/* collective_internal.h, which does not go together with tutti.h */
tutti_status tutti_world_run_on(const tutti_transport_ops *ops, const char *spec, int n,
                                tutti_status (*rank_main)(tutti_world *world, void *arg, tutti_error *err), void *arg,
                                tutti_error *err);

#define SIZES "bucket_mb=0.012,first_bucket_mb=0.003"
#define DISK "tier=nvme(path=\"" TUTTI_BINARY_DIR "\""

static const char *const places[] = {
    "zero-infinity(" SIZES ")",
    "zero-infinity(" DISK ",direct=off),tile_mb=0.015625,threads=2," SIZES ")",
    "zero-infinity(" DISK ",direct=off,engine=threads,depth=2),ahead=0,tile_mb=0.015625,bucket_mb=0.001)",
    "zero-infinity(" DISK ",direct=off),ahead=16,persist=100,bucket_mb=0.005,first_bucket_mb=0.001)",
};

static void every_tier_matches_ddp_bit_for_bit(void **state)
{
    static const char *const optimizers[] = { "adamw(lr=0.01)", "sgd(lr=0.05,momentum=0.9)", "sgd(lr=0.05)" };

    (void)state;
    for (int n = 1; n <= RANKS; n += UNLESS_SANITIZED(1, 2))
        for (int clip = 0; clip < 2; clip++) {
            static run a, b;
            a = run_of("ddp");
            a.options.clip_norm = clip == 1 ? 3 : 0;
            a.options.optimizer = optimizers[(n + clip) % 3];
            go(&a, n);
            for (size_t k = 0; k < TUTTI_LENGTH(places); k++) {
                b = run_of(places[k]);
                b.options = a.options;
                b.options.collective = NULL;
                b.options.lane = (n + (int)k) % 2 - 1;
                b.options.steps = (n + (int)k) / 2 % 2 * STEPS; /* then what is first is left by the update */
                go(&b, n);
                for (int r = 0; r < n; r++)
                    assert_memory_equal(a.x[r], b.x[r], sizeof a.x[r]);
            }
        }
}

static void accumulation_in_offloaded_gradients_matches_ddp(void **state)
{
    (void)state;
    adds_up_as_ddp(places, TUTTI_LENGTH(places), lanes_differ);
}

/* From a disk, with buffers for all layers, nothing is gathered again for backward: releasing a
   layer would save no reading. */
static void workers_send_what_stage_3_sends(void **state)
{
    (void)state;
    for (int n = 2; n <= RANKS; n++) {
        static run stage3, r;
        stage3 = run_of("zero(stage=3," SIZES ")");
        go(&stage3, n);
        for (int k = 0; k < 2; k++) {
            r = run_of(places[k]);
            go(&r, n);
            for (int w = 0; w < n; w++) {
                const uint64_t once = (uint64_t)k * STEPS * 4 * (uint64_t)r.updated[w];
                assert_true(r.updated[w] == stage3.updated[w]);
                for (int v = 0; v < n; v++)
                    assert_true(r.bytes[w][v] == stage3.bytes[w][v] - (v != w ? once : 0));
            }
            if (k == 0)
                assert_memory_equal(r.messages, stage3.messages, sizeof r.messages);
        }
    }
}

/* What worker 0 has of the last layer. */
static double of_last_layer(const run *r, int n)
{
    size_t sum = 0;

    for (int k = 0; k < r->pieces; k++) {
        const size_t lines = (r->piece_count[k] + 15) / 16, mine = (lines + (size_t)n - 1) / (size_t)n * 16;
        if (r->piece_first[k] < 9001 + 40)
            sum += mine < r->piece_count[k] ? mine : r->piece_count[k];
    }
    return (double)sum;
}

/* 4 bytes an element of worker 0's shards: values for forward and backward, the update's values,
   gradient and slots, the norm's gradient; gradients and what was updated are written. Forward ends
   with the last layer, which is not read again for backward. With two layers ahead there are
   buffers for all of this model, so forward reads in the first step and backward in none: the
   update leaves values there. */
static void disk_traffic_matches_the_formula(void **state)
{
    (void)state;
    for (int n = 1; n <= RANKS; n += UNLESS_SANITIZED(1, 2))
        for (int clip = 0; clip < 2; clip++) {
            static run r;
            double each, left;
            r = run_of(places[1 + n % 2]);
            r.options.collective = NULL;
            r.options.clip_norm = clip;
            r.options.lane = n % 2 - 1;
            r.options.steps = STEPS; /* else what is ahead of the last one would be read in vain */
            go(&r, n);
            each = STEPS * 4.0 * r.updated[0];
            left = n % 2 == 0 ? (STEPS + STEPS - 1) * 4.0 * r.updated[0] : STEPS * 4.0 * of_last_layer(&r, n);
            if (clip == 0 || n == 1)
                assert_true(r.tier_read == each * (2 + 4 + clip) - left);
            else /* a shard with a part of another's block is read for that, too */
                assert_true(r.tier_read >= each * 7 - left && r.tier_read < each * 8 - left);
            assert_true(r.tier_written == STEPS * 4.0 * r.updated[0] * (1 + 3));
        }
}

/* Buffers for the largest layer and the layers ahead, each with one more block so that a
   layer may begin anywhere in a block, and two buffers of gradients. The three small layers
   fit in one. */
static void device_memory_is_active_layers_plus_two_buckets(void **state)
{
    const uint64_t unit = (9001 + 40 + 15) / 16 * 16 * 4 + 4096, bucket = (10485 + 255) / 256 * 256;

    (void)state;
    for (int ahead = 0; ahead < 3; ahead++) {
        static run r;
        char method[300];
        tutti_error err = { .rank = -1 };
        const uint64_t least = unit * (uint64_t)(1 + ahead) + 2 * bucket;
        snprintf(method, sizeof method, "zero-infinity(" DISK ",direct=off),bucket_mb=0.01,ahead=%d)", ahead);
        r = run_of(method);
        r.options.device_memory = least;
        go(&r, 2);
        assert_true(r.units_live == (ahead == 0 ? 1 : UNITS));
        r.options.device_memory = least - 1;
        assert_int_equal(tutti_world_run("shm", 2, rank_of, &r, &err), TUTTI_ERR_MEMORY);
        if (strstr(err.text, "device memory: ") == NULL || strstr(err.text, "'x.buffers' ") == NULL)
            fail_msg("%s", err.text);
    }
}

/* ---- what fails ---- */

static int transfers, fail_at;
static tutti_runtime_ops ops;
static const tutti_runtime_ops *below;

static bool strikes(void)
{
    return __atomic_add_fetch(&transfers, 1, __ATOMIC_RELAXED) == fail_at;
}

static int faulty_read(void *self, int fd, uint64_t offset, void *to, size_t bytes, size_t *done)
{
    *done = 0;
    return strikes() ? EIO : below->file_read(self, fd, offset, to, bytes, done);
}

static int faulty_write_at(void *self, int fd, uint64_t offset, const void *from, size_t bytes, size_t *done)
{
    *done = 0;
    return strikes() ? ENOSPC : below->file_write_at(self, fd, offset, from, bytes, done);
}

/* Before there are workers: threads of a world may read the table at any time. */
static tutti_status run_on_a_faulty_disk(tutti_runtime *rt, const tutti_launch *launch,
                                         tutti_status (*rank_main)(const tutti_launch *launch, void *arg,
                                                                   tutti_error *err), void *arg, tutti_error *err)
{
    below = rt->ops;
    ops = *below;
    ops.file_read = faulty_read;
    ops.file_write_at = faulty_write_at;
    rt->ops = &ops;
    return tutti_transport_find("shm")->run(rt, launch, rank_main, arg, err);
}

static tutti_status on_a_faulty_disk(run *r, tutti_error *err)
{
    tutti_transport_ops faulty = *tutti_transport_find("shm");

    faulty.run = run_on_a_faulty_disk;
    return tutti_world_run_on(&faulty, "shm", 1, rank_of, r, err);
}

/* Wherever the fault strikes: initial values, layers, gradients, tiles. */
static void disk_failure_ends_the_run_with_an_error_message(void **state)
{
    static run r;
    int all;

    (void)state;
    r = run_of("zero-infinity(" DISK ",direct=off,engine=threads),tile_mb=0.015625,bucket_mb=0.02)");
    r.options.collective = NULL;
    transfers = fail_at = 0;
    assert_int_equal(on_a_faulty_disk(&r, NULL), TUTTI_OK);
    all = transfers;
    assert_true(all > 100);
    for (int k = 1; k <= all; k += 1 + all / 60) {
        tutti_error err = { .rank = -1 };
        transfers = 0;
        fail_at = k;
        r.options.lane = k % 2 - 1;
        if (on_a_faulty_disk(&r, &err) != TUTTI_ERR_IO ||
            strstr(err.text, "tier 'nvme'") == NULL)
            fail_msg("transfer %d: %s", k, err.text);
    }
    fail_at = 0;
}

static void invalid_options_are_rejected(void **state)
{
    static run r;

    (void)state;
    r = run_of("zero-infinity(bucket_mb=1,first_bucket_mb=2)");
    refused(&r, TUTTI_ERR_USAGE, "method 'zero-infinity': first_bucket_mb is 2 but bucket_mb is only 1");
    r = run_of("zero-infinity(tier=hots)");
    refused(&r, TUTTI_ERR_USAGE, "unknown tier 'hots'");
    r = run_of("zero-infinity(tier=nvme(path=/nowhere/at/all))");
    refused(&r, TUTTI_ERR_IO, "/nowhere/at/all");
    r = run_of("zero-infinity(ahead=17)");
    refused(&r, TUTTI_ERR_USAGE, "ahead");
    r = run_of("zero-infinity");
    r.options.optimizer = "client";
    refused(&r, TUTTI_ERR_USAGE, "optimizer is 'client', whose buffers are whole on each worker");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_tier_matches_ddp_bit_for_bit),
        cmocka_unit_test(accumulation_in_offloaded_gradients_matches_ddp),
        cmocka_unit_test(workers_send_what_stage_3_sends),
        cmocka_unit_test(disk_traffic_matches_the_formula),
        cmocka_unit_test(device_memory_is_active_layers_plus_two_buckets),
        cmocka_unit_test(disk_failure_ends_the_run_with_an_error_message),
        cmocka_unit_test(invalid_options_are_rejected),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
