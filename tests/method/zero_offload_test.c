/* Goal: zero-offload.md's invariants, on ranks that are threads. Host memory and a disk train ddp's
   bits, clipped too; each worker updates n/N elements; delayed updates are their recursion; what is
   on the device is bounded. Method: the client of zero's test; the references are ddp and a plain
   loop. Faults of disks are in tests/optim/placed_test.c, checkpoints in engine/state and
   cli/resume. */
#include "sharded.h"
#include "state/plan.h"
#include "base/machine.h"
#include "kernels/device.h"

#define SIZES "bucket_mb=0.012,first_bucket_mb=0.003"
#define DISK "tier=nvme(path=\"" TUTTI_BINARY_DIR "\",direct=off"

static const char *const places[] = {
    "zero-offload(" SIZES ")",
    "zero-offload(" DISK "),tile_mb=0.015625,threads=2," SIZES ")",
    "zero-offload(" DISK ",engine=threads,depth=2),tile_mb=0.015625,bucket_mb=0.001)",
    "zero-offload(delayed=on,delay_warmup=100," SIZES ")",
};

static void every_tier_matches_ddp_bit_for_bit(void **state)
{
    static const char *const optimizers[] = { "adamw(lr=0.01)", "sgd(lr=0.05,momentum=0.9)", "sgd(lr=0.05)" };

    (void)state;
    for (int n = 1; n <= RANKS; n++)
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
                b.options.needs = k % 2 == 0;
                b.options.lane = k == 3 ? -1 : 0;
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

static void updates_and_traffic_match_stage_2_with_less_memory(void **state)
{
    (void)state;
    for (int n = 1; n <= RANKS; n++) {
        static run stage2, r;
        double sum = 0;
        stage2 = run_of("zero(stage=2," SIZES ")");
        go(&stage2, n);
        for (size_t k = 0; k < 2; k++) {
            r = run_of(places[k]);
            go(&r, n);
            sum = 0;
            for (int w = 0; w < n; w++) {
                assert_true(r.updated[w] == stage2.updated[w]);
                assert_true(fabs(stage2.state_bytes[w] - r.state_bytes[w] - 12 * r.updated[w] / SIZE) < 1e-9);
                sum += r.updated[w];
                for (int v = 0; v < n; v++)
                    assert_int_equal(r.bytes[w][v], stage2.bytes[w][v]);
            }
            assert_true(sum == SIZE);
        }
    }
}

typedef struct loop { float x[SIZE], now[SIZE], g[SIZE]; } loop;

/* x_i of the paper: update i is made with the gradient of step i, and from step `warmup` on,
   counted from 0, x has it one step later. All workers' gradients are equal, so that with 1, 2
   and 4 of them their mean is exact. */
static void plain_loop(loop *l, uint64_t warmup, const float *initial)
{
    tutti_device *d;
    tutti_plan *plan;
    tutti_optim *o;

    assert_int_equal(tutti_device_open_host(&d, NULL, tutti_cpu_best(), NULL), TUTTI_OK);
    assert_int_equal(tutti_plan_open(&plan, SIZE, NULL), TUTTI_OK);
    assert_int_equal(tutti_optim_declare(&o, plan, "adamw(lr=0.01)", "o", 0, SIZE, TUTTI_SAME, d, NULL), TUTTI_OK);
    assert_int_equal(tutti_plan_carry_out(plan, NULL, NULL), TUTTI_OK);
    memcpy(l->x, initial, sizeof l->x);
    memcpy(l->now, initial, sizeof l->now);
    for (uint64_t s = 0; s < STEPS; s++) {
        const tutti_rate rate = { 0.01, 1, s + 1 };
        size_t at = 0;
        for (int k = 0; k < TENSORS; k++)
            for (size_t i = 0; i < counts[k]; i++, at++)
                l->g[at] = gradient_of(0, s, i, l->x[at]);
        memcpy(l->x, l->now, sizeof l->x); /* the update before has arrived */
        tutti_update(o, 0, SIZE, l->now, l->g, &rate);
        if (s < warmup)
            memcpy(l->x, l->now, sizeof l->x);
    }
    tutti_optim_close(o);
    tutti_plan_close(plan);
    tutti_device_close(d);
}

static void delayed_update_matches_its_recursion(void **state)
{
    static const char *const tiers[] = { "", DISK "),tile_mb=0.015625," };
    static float initial[SIZE];
    static loop l;
    static run r;
    size_t at = 0;

    (void)state;
    alike = true;
    for (int k = 0; k < TENSORS; k++)
        for (size_t i = 0; i < counts[k]; i++)
            initial[at++] = trial_initial_value(i + (size_t)k);
    for (int n = 1; n <= RANKS; n *= 2)
        for (int warmup = 0; warmup <= STEPS; warmup += n == 2 ? 1 : 2)
            for (size_t k = 0; k < 3; k++) {
                char method[300];
                snprintf(method, sizeof method, "zero-offload(%sdelayed=on,delay_warmup=%d," SIZES ")", tiers[k % 2],
                         warmup);
                plain_loop(&l, (uint64_t)warmup, initial);
                r = run_of(method);
                r.options.lane = k == 2 ? -1 : 0;
                r.options.collective = NULL;
                go(&r, n);
                for (int w = 0; w < n; w++)
                    assert_memory_equal(r.x[w], l.now, sizeof l.now);
            }
    alike = false;
}

/* ---- what is refused ---- */

static void insufficient_device_memory_is_rejected(void **state)
{
    static run r;
    char sentence[200];
    uint64_t least;

    (void)state;
    /* values, and two buckets, which end at lines inside tensors */
    least = 4 * ((SIZE + 127) / 128 * 128) + 2 * ((10485 + 63) / 64 * 64);
    r = run_of("zero-offload(bucket_mb=0.01)");
    r.options.device_memory = least;
    go(&r, 2);
    r.options.device_memory = least - 1;
    snprintf(sentence, sizeof sentence, "device memory: %llu bytes are needed, and %llu of %llu are free: 'x' ",
             (unsigned long long)least, (unsigned long long)least - 1, (unsigned long long)least - 1);
    refused(&r, TUTTI_ERR_MEMORY, sentence);
    r = run_of("ddp"); /* values, gradient and two slots */
    r.options.device_memory = least;
    refused(&r, TUTTI_ERR_MEMORY, "'optim.exp_avg_sq' ");
}

static void invalid_options_are_rejected(void **state)
{
    static run r;

    (void)state;
    r = run_of("zero-offload(bucket_mb=1,first_bucket_mb=2)");
    refused(&r, TUTTI_ERR_USAGE, "method 'zero-offload': first_bucket_mb is 2 but bucket_mb is only 1");
    r = run_of("zero-offload(tier=hots)");
    refused(&r, TUTTI_ERR_USAGE, "unknown tier 'hots'");
    r = run_of("zero-offload(tier=nvme)");
    refused(&r, TUTTI_ERR_USAGE, "path");
    r = run_of("zero-offload(tier=nvme(path=/nowhere/at/all))");
    refused(&r, TUTTI_ERR_IO, "/nowhere/at/all");
    r = run_of("zero-offload(delay_warmup=-1)");
    refused(&r, TUTTI_ERR_USAGE, "delay_warmup");
    r = run_of("zero-offload");
    r.options.optimizer = "client";
    refused(&r, TUTTI_ERR_USAGE, "optimizer is 'client', whose buffers are whole on each worker");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_tier_matches_ddp_bit_for_bit),
        cmocka_unit_test(accumulation_in_offloaded_gradients_matches_ddp),
        cmocka_unit_test(updates_and_traffic_match_stage_2_with_less_memory),
        cmocka_unit_test(delayed_update_matches_its_recursion),
        cmocka_unit_test(insufficient_device_memory_is_rejected),
        cmocka_unit_test(invalid_options_are_rejected),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
