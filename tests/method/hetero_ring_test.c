/* Goal: hetero-ring.md's invariants that need no clock, on ranks that are threads. What depends on
   time is in tests/sim/unequal_test.c. */
#include "dealt.h"

static void check_equal_on_all(const dealt *d, int n)
{
    for (int r = 1; r < n; r++) {
        assert_memory_equal(d->rank[0].x, d->rank[r].x, sizeof d->rank[0].x);
        assert_memory_equal(d->rank[0].passes, d->rank[r].passes, sizeof d->rank[0].passes);
    }
}

/* Powers of two: to the bit, with integer gradients whatever the order of
   summation. Otherwise rounding only. */
static void equal_allocation_is_ddp_with_accumulation(void **state)
{
    static const char *const collectives[] = {
        "hetero-ring(allocation=equal,micro_batch=4,collective=ring)",
        "hetero-ring(allocation=equal,micro_batch=4,collective=auto)", "hetero-ring(allocation=equal,micro_batch=4)",
    };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(collectives); c++)
        for (int n = 1; n <= 8; n++)
            for (int real = 0; real < 2; real++) {
                dealt a = dealt_of(collectives[c], 16, 1, 6), b = dealt_of("ddp", 4, 4, 6);
                a.real = b.real = real;
                a.options.data_samples = b.options.data_samples = (uint64_t)n * 16 * 3; /* two epochs of full steps */
                dealt_run(&a, n);
                dealt_run(&b, n);
                if ((n & (n - 1)) == 0 && (c > 0 || !real)) /* ranks share memory: by default the all-reduce is ddp's */
                    assert_true(dealt_same(&a, &b));
                assert_true(dealt_apart(&a, &b) < 2e-6);
                check_equal_on_all(&a, n);
                for (int r = 0; r < n; r++) {
                    assert_int_equal(a.rank[r].passes[3][r], 4);
                    /* even which worker computes what */
                    assert_memory_equal(a.rank[r].used, b.rank[r].used, sizeof a.rank[r].used);
                }
                dealt_drop(&a);
                dealt_drop(&b);
            }
}

/* The default asks for no ring, so a codec needs no further option, and is ddp's: halves and a
   selection whose losses are made good. */
static void codec_gives_the_same_results_as_under_ddp(void **state)
{
    static const char *const codecs[] = { "fp16", "ef(topk(ratio=0.1))" };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(codecs); c++) {
        dealt a = dealt_of("hetero-ring(allocation=equal,micro_batch=4)", 16, 1, 6), b = dealt_of("ddp", 4, 4, 6);
        dealt plain = dealt_of("ddp", 4, 4, 6);
        a.options.codec = b.options.codec = codecs[c];
        a.real = b.real = plain.real = true;
        a.options.data_samples = b.options.data_samples = plain.options.data_samples = 4 * 16 * 3;
        dealt_run(&a, 4);
        dealt_run(&b, 4);
        dealt_run(&plain, 4);
        assert_true(dealt_same(&a, &b) && !dealt_same(&a, &plain));
        check_equal_on_all(&a, 4);
        dealt_drop(&a);
        dealt_drop(&b);
        dealt_drop(&plain);
    }
}

/* G is the mean over the step's samples, so one worker with all of them takes the same
   steps. 64 samples a step: exact. */
static void any_allocation_matches_one_worker_with_the_whole_step(void **state)
{
    static const struct { int n; const char *shares; int64_t want[4];
    } cases[] = {
        { 2, "2:1", { 11, 5 } },          { 2, "1:100", { 1, 15 } },
        { 3, "1:2:1", { 4, 8, 4 } },      { 4, "1:1:1:13", { 1, 1, 1, 13 } },
        { 4, "5:1:5:5", { 5, 1, 5, 5 } }, { 1, "3", { 16 } },
    };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(cases); c++)
        for (int real = 0; real < 2; real++) {
            const int n = cases[c].n;
            char method[128];
            snprintf(method, sizeof method, "hetero-ring(allocation=static,shares=%s,micro_batches=16,micro_batch=4)",
                     cases[c].shares);
            dealt a = dealt_of(method, n == 3 ? 32 : 64 / n, 1, 8), b = dealt_of("ddp", 64, 1, 8);
            if (n == 3) { /* 96 do not divide: 16 micro-batches of 6, and only rounding can be asked for */
                a.method = "hetero-ring(allocation=static,shares=1:2:1,micro_batches=16)";
                b.options.batch = 96;
            }
            a.real = b.real = real;
            a.options.data_samples = b.options.data_samples = 64 * 2 * 3;
            dealt_run(&a, n);
            dealt_run(&b, 1);
            if (!real && n != 3)
                assert_true(dealt_same(&a, &b));
            assert_true(dealt_apart(&a, &b) < 2e-6);
            check_equal_on_all(&a, n);
            for (int s = 0; s < 8; s++)
                for (int r = 0; r < n; r++) {
                    assert_int_equal(a.rank[0].passes[s][r], cases[c].want[r]);
                    assert_int_equal(a.rank[r].computed[s], cases[c].want[r]);
                }
            dealt_drop(&a);
            dealt_drop(&b);
        }
}

/* Here times are this machine's noise, and every step may move micro-batches: a random test of
   the rounding. */
static void adaptive_allocation_is_equal_everywhere_and_close_to_ddp(void **state)
{
    int moved = 0;

    (void)state;
    for (int n = 2; n <= 5; n++) {
        dealt a = dealt_of("hetero-ring(adapt_every=1,tolerance=0,micro_batch=2)", 16, 1, 40),
              b = dealt_of("ddp", 16, 1, 40);
        a.options.data_samples = b.options.data_samples = 500; /* with tails */
        dealt_run(&a, n);
        dealt_run(&b, n);
        check_equal_on_all(&a, n);
        assert_true(dealt_apart(&a, &b) < 1e-5);
        for (int s = 0; s < 40; s++) {
            int64_t sum = 0;
            for (int r = 0; r < n; r++) {
                sum += a.rank[0].passes[s][r];
                assert_true(a.rank[0].passes[s][r] >= 1);
                moved += a.rank[0].passes[s][r] != 8;
            }
            assert_int_equal(sum, 8 * n);
        }
        dealt_drop(&a);
        dealt_drop(&b);
    }
    assert_true(moved > 0);
}

static void every_sample_is_used_exactly_once_an_epoch_in_the_same_steps(void **state)
{
    static const char *const methods[] = {
        "hetero-ring(allocation=equal)", "hetero-ring(allocation=static,shares=7:1:2)",
        "hetero-ring(adapt_every=1,tolerance=0)", "hetero-ring(adapt_every=epoch,tolerance=0)",
    };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(methods); c++)
        for (uint64_t samples = 90; samples < 110; samples += 3) {
            dealt d = dealt_of(methods[c], 8, 1, 10); /* 24 a step: 4 or 5 steps an epoch */
            const int per_epoch = (int)((samples + 23) / 24);
            d.options.data_samples = samples;
            d.steps = 2 * per_epoch;
            dealt_run(&d, 3);
            for (uint64_t i = 0; i < DEALT_SAMPLES; i++)
                assert_int_equal(d.rank[0].used[i] + d.rank[1].used[i] + d.rank[2].used[i], i < samples ? 2 : 0);
            dealt_drop(&d);
        }
}

static void one_worker_is_plain_training_bit_for_bit(void **state)
{
    (void)state;
    for (int real = 0; real < 2; real++) {
        dealt a = dealt_of("hetero-ring", 32, 1, 10), b = dealt_of("single", 4, 8, 10);
        a.options.optimizer = b.options.optimizer = "adamw(lr=0.01)";
        a.options.data_samples = b.options.data_samples = 200;
        a.real = b.real = real;
        dealt_run(&a, 1);
        dealt_run(&b, 1);
        assert_true(dealt_same(&a, &b));
        assert_int_equal(a.rank[0].passes[0][0], 8);
        assert_int_equal(a.rank[0].events, 0);
        dealt_drop(&a);
        dealt_drop(&b);
    }
}

/* 2 (n - 1) messages a piece and step, all to the next in the ring; 4 bytes to everybody a
   window. */
static void traffic_is_one_ring_per_step_plus_measurements(void **state)
{
    (void)state;
    for (int n = 2; n <= 7; n++) {
        dealt d = dealt_of("hetero-ring(adapt_every=4,collective=ring)", 8, 1, 10);
        uint64_t total = 0;
        dealt_run(&d, n);
        for (int r = 0; r < n; r++)
            for (int to = 0; to < n; to++) {
                const uint64_t gathered = r == to ? 0 : 2 * 4;
                total += d.rank[r].bytes[to];
                if (r != to && to != (r + 1) % n)
                    assert_int_equal(d.rank[r].bytes[to], gathered);
                if (to == (r + 1) % n) {
                    const double share = 10.0 * 2 * (n - 1) / n * 4 * DEALT_SIZE;
                    /* slices are whole cache lines */
                    assert_true(fabs((double)(d.rank[r].bytes[to] - gathered) - share) <= 10 * 2 * 4 * 32);
                    assert_int_equal(d.rank[r].messages[to], 10 * 2 * (n - 1) + 2);
                }
            }
        assert_int_equal(total, 10 * 2 * (n - 1) * 4 * DEALT_SIZE + 2 * 4 * n * (n - 1));
        dealt_drop(&d);
    }
}

static void micro_batches_are_derived_from_the_given_options(void **state)
{
    static const struct { const char *method; int64_t batch, accumulate, each, samples; } cases[] = {
        { "hetero-ring",                                 64, 1,  8,  8 },
        { "hetero-ring",                                 16, 1,  8,  2 },
        { "hetero-ring",                                 20, 1,  10, 2 },
        { "hetero-ring",                                 7,  1,  7,  1 },
        { "hetero-ring",                                 11, 1,  11, 1 },
        { "hetero-ring",                                 1,  1,  1,  1 },
        { "hetero-ring",                                 2,  12, 8,  3 },
        { "hetero-ring(micro_batch=16)",                 64, 1,  4,  16 },
        { "hetero-ring(micro_batches=6)",                6,  2,  3,  4 },
        { "hetero-ring(micro_batches=24,micro_batch=2)", 24, 1,  12, 2 },
    };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(cases); c++) {
        dealt d = dealt_of(cases[c].method, cases[c].batch, cases[c].accumulate, 1);
        dealt_run(&d, 2);
        assert_int_equal(d.rank[0].passes[0][0], cases[c].each);
        assert_int_equal(d.rank[0].passes[0][1], cases[c].each);
        assert_int_equal(2 * cases[c].each * cases[c].samples, 2 * cases[c].batch * cases[c].accumulate);
        dealt_drop(&d);
    }
}

static void invalid_options_are_rejected(void **state)
{
    static const int64_t batch_of[2] = { 10, 6 };
    static const struct { const char *method, *sentence; const int64_t *batch_of; } cases[] = {
        { "hetero-ring(micro_batches=1)", "1 micro-batches for 2 workers; each worker needs one", NULL },
        { "hetero-ring(micro_batch=5)",
          "3 micro-batches of 5 samples are not a step of 16 (2 workers x batch x accumulate)", NULL },
        { "hetero-ring(micro_batches=5)",
          "micro_batches is 5, which does not divide the 16 samples of a step (2 workers x batch x accumulate)", NULL },
        { "hetero-ring(micro_batches=4,micro_batch=2)", "4 micro-batches of 2 samples are not a step of 16", NULL },
        { "hetero-ring(micro_batches=32)", "micro_batches is 32, which does not divide the 16 samples of a step",
          NULL },
        { "hetero-ring(allocation=static)", "shares is '', but allocation=static needs a positive number", NULL },
        { "hetero-ring(shares=1:2)", "option 'shares' has no effect with allocation=adaptive; it needs "
                                     "allocation=static", NULL },
        { "hetero-ring(allocation=static,shares=1:2:3)",
          "shares is '1:2:3', but allocation=static needs a positive number for each of the 2 workers: w0:w1:...",
          NULL },
        { "hetero-ring(allocation=static,shares=1:0)",
          "shares is '1:0', but allocation=static needs a positive number for each of the 2 workers", NULL },
        { "hetero-ring(allocation=static,shares=1:2:)", "shares is '1:2:', but", NULL },
        { "hetero-ring(allocation=static,shares=a:b)", "shares is 'a:b', but", NULL },
        { "hetero-ring(adapt_every=0)", "adapt_every is '0'; it must be epoch or a number of steps from 1", NULL },
        { "hetero-ring(adapt_every=often)", "adapt_every is 'often'; it must be epoch or a number of steps", NULL },
        { "hetero-ring(adapt_every=-3)", "adapt_every is '-3'", NULL },
        { "hetero-ring(allocation=equal,tolerance=0.5)", "'tolerance' has no effect with allocation=equal", NULL },
        { "hetero-ring(allocation=static,shares=1:2,exclude_below=0.5)",
          "'exclude_below' has no effect with allocation=static", NULL },
        { "hetero-ring(tolerance=2)", "'tolerance' is 2; it must be from 0 to 1", NULL },
        { "hetero-ring(allocation=fair)", "equal, static or adaptive", NULL },
        { "hetero-ring",
          "batch-share cuts a step by worker, but method 'hetero-ring' decides itself how much of it each computes; "
          "omit batch-share", batch_of },
    };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(cases); c++) {
        dealt d = dealt_of(cases[c].method, 8, 1, 1);
        tutti_error err = { .rank = -1 };
        d.options.batch_of = cases[c].batch_of;
        assert_int_equal(tutti_world_run("shm", 2, dealt_main, &d, &err), TUTTI_ERR_USAGE);
        if (strstr(err.text, cases[c].sentence) == NULL)
            fail_msg("%s: %s", cases[c].method, err.text);
        dealt_drop(&d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_allocation_is_ddp_with_accumulation),
        cmocka_unit_test(codec_gives_the_same_results_as_under_ddp),
        cmocka_unit_test(any_allocation_matches_one_worker_with_the_whole_step),
        cmocka_unit_test(adaptive_allocation_is_equal_everywhere_and_close_to_ddp),
        cmocka_unit_test(every_sample_is_used_exactly_once_an_epoch_in_the_same_steps),
        cmocka_unit_test(one_worker_is_plain_training_bit_for_bit),
        cmocka_unit_test(traffic_is_one_ring_per_step_plus_measurements),
        cmocka_unit_test(micro_batches_are_derived_from_the_given_options),
        cmocka_unit_test(invalid_options_are_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
