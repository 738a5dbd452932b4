/* Goal: zero.md's invariants, on ranks that are threads. All stages train ddp's bits, clipped
   too; each worker updates n/N elements and keeps what its stage prescribes; between two workers
   travel the bytes of an all-reduce, no more and no fewer, and with clip-norm the sums of blocks
   besides. In groups all that is inside them, and shards' gradients alone travel between. Method:
   a client with memory of its own, which hands its gradients over; the reference is ddp. What
   shards and buffers do by themselves, resuming and failures are in tests/engine/shards_test.c,
   schedules in tests/explore. */
#include "sharded.h"

#define SIZES "bucket_mb=0.012,first_bucket_mb=0.003"
static const char *const stages[] = {
    "zero(" SIZES ")", "zero(stage=2," SIZES ")", "zero(stage=3," SIZES ")", "zero(stage=2,bucket_mb=0.001)",
    "zero(stage=3,bucket_mb=0.001,persist=100)", "zero(stage=3,persist=1000000)"
};

static void all_stages_match_ddp_bit_for_bit(void **state)
{
    static const char *const optimizers[] = { "adamw(lr=0.01)", "sgd(lr=0.05,momentum=0.9)" };

    (void)state;
    for (int n = 1; n <= RANKS; n++)
        for (int clip = 0; clip < 2; clip++) {
            static run a, b;
            a = run_of("ddp");
            a.options.clip_norm = clip == 1 ? 3 : 0;
            a.options.optimizer = optimizers[n % 2];
            go(&a, n);
            for (size_t k = 0; k < TUTTI_LENGTH(stages); k++) {
                b = run_of(stages[k]);
                b.options = a.options;
                b.options.collective = k == 0 ? "direct" : NULL;
                go(&b, n);
                for (int r = 0; r < n; r++)
                    assert_memory_equal(a.x[r], b.x[r], sizeof a.x[r]);
            }
        }
}

static void accumulation_in_shards_matches_ddp(void **state)
{
    static const char *const methods[] = {
        "zero(" SIZES ")", "zero(stage=2," SIZES ")", "zero(stage=3," SIZES ")",
        "zero(stage=2,bucket_mb=0.001,group=1)",
        "zero(stage=3,bucket_mb=0.001,persist=100,group=1)"
    };

    (void)state;
    adds_up_as_ddp(methods, TUTTI_LENGTH(methods), NULL);
}

/* At the end of the data some workers have fewer passes than others, or no samples. */
static void short_steps_of_several_passes_are_exchanged_by_all(void **state)
{
    (void)state;
    for (int n = 2; n <= RANKS; n++)
        for (int stage = 2; stage <= 3; stage++) {
            static run a, b;
            a = run_of("ddp");
            a.options.accumulate = 3;
            a.options.data_samples = 6 * (uint64_t)n + 5;
            a.options.optimizer = "sgd(lr=0.05,momentum=0.9)";
            b = a;
            b.method = stages[stage - 1];
            go(&a, n);
            go(&b, n);
            for (size_t i = 0; i < SIZE; i++)
                assert_float_equal(a.x[0][i], b.x[0][i], 1e-4);
        }
}

static const int64_t uneven[RANKS] = { 3, 1, 2, 2 };

/* With uneven shares of the step, too. */
static void groups_match_ddp_bit_for_bit(void **state)
{
    static const char *const optimizers[] = { "adamw(lr=0.01)", "sgd(lr=0.05,momentum=0.9)" };

    (void)state;
    for (int n = 2; n <= RANKS; n++)
        for (int clip = 0; clip < 2; clip++) {
            static run a, b;
            a = run_of("ddp");
            a.options.clip_norm = clip == 1 ? 3 : 0;
            a.options.optimizer = optimizers[(n + clip) % 2];
            a.options.batch_of = n == 3 || clip == 1 ? uneven : NULL;
            go(&a, n);
            for (int g = 1; g <= n; g *= 2)
                for (int stage = 1; stage <= 3 && n % g == 0; stage++) {
                    char method[80];
                    snprintf(method, sizeof method, "zero(stage=%d,group=%d," SIZES ")", stage, g);
                    b = run_of(method);
                    b.options = a.options;
                    b.options.collective = clip == 1 ? "direct" : NULL;
                    go(&b, n);
                    for (int r = 0; r < n; r++)
                        assert_memory_equal(a.x[r], b.x[r], sizeof a.x[r]);
                }
        }
}

/* Elements of a piece that worker w has: as evenly divided as lines of 16 permit. */
static size_t shard(size_t all, int n, int w)
{
    const size_t lines = (all + 15) / 16, mine = lines / (size_t)n + ((size_t)w < lines % (size_t)n);
    size_t first = 0;

    for (int k = 0; k < w; k++)
        first += 16 * (lines / (size_t)n + ((size_t)k < lines % (size_t)n));
    return first >= all ? 0 : 16 * mine < all - first ? 16 * mine : all - first;
}

static size_t shards(const run *r, int n, int w)
{
    size_t sum = 0;

    for (int k = 0; k < r->pieces; k++)
        sum += shard(r->piece_count[k], n, w);
    return sum;
}

/* Elements of g where it is whole. */
static size_t padded(int n)
{
    const size_t pad = 64 * (size_t)n;

    return (SIZE + pad - 1) / pad * pad;
}

static void updated_shards_and_memory_match_the_stage(void **state)
{
    (void)state;
    for (int n = 1; n <= RANKS; n++)
        for (int stage = 1; stage <= 3; stage++) {
            static run r;
            size_t sum = 0, most = 0;
            r = run_of(stages[stage - 1]);
            go(&r, n);
            for (int k = 0; k < r.pieces; k++)
                most = r.piece_count[k] > most ? r.piece_count[k] : most;
            most = (most + 15) / 16 * 16;
            for (int w = 0; w < n; w++) {
                const size_t mine = shards(&r, n, w);
                const double buffers = (double)((r.pieces > 1 ? 2 : 1) * most), /* and of the largest unit: */
                             units_of = (double)((n > 1 ? 2 : 1) * ((9001 + 40 + 15) / 16 * 16)),
                             want = 4 * (stage == 1   ? (double)(SIZE + padded(n) + 2 * mine)
                                         : stage == 2 ? (double)(SIZE + 3 * mine) + buffers
                                                      : (double)(4 * mine) + buffers + units_of);
                assert_true(r.updated[w] == (double)mine);
                assert_true(fabs((double)mine - (double)SIZE / n) < 32.0 * r.pieces);
                assert_true(fabs(r.state_bytes[w] * SIZE - want) < 1e-3);
                sum += mine;
            }
            assert_int_equal(sum, SIZE);
        }
}

static uint64_t sent(const run *r, int n)
{
    uint64_t sum = 0;

    for (int w = 0; w < n; w++)
        for (int v = 0; v < n; v++)
            sum += r->bytes[w][v];
    return sum;
}

/* Between two workers: the shard of the other's gradient, and one's own shard of the values, in
   stage 3 twice. Stages 2 and 3 have other pieces, which end inside tensors. */
static void traffic_is_one_or_one_and_half_all_reduces(void **state)
{
    (void)state;
    for (int n = 2; n <= RANKS; n++) {
        static run a, b;
        a = run_of("ddp(" SIZES ")");
        go(&a, n);
        for (size_t k = 0; k < 3; k++) {
            const uint64_t values = k == 2 ? 2 : 1;
            b = run_of(stages[k]);
            go(&b, n);
            assert_true(k == 0 ? b.pieces == a.pieces : b.pieces > a.pieces);
            assert_true(b.pieces > 2);
            assert_int_equal(2 * sent(&b, n), (1 + values) * sent(&a, n));
            for (int w = 0; w < n; w++)
                for (int v = 0; v < n; v++) {
                    if (v == w)
                        continue;
                    assert_int_equal(b.bytes[w][v], STEPS * 4 * (shards(&b, n, v) + values * shards(&b, n, w)));
                    if (k == 0)
                        assert_int_equal(b.bytes[w][v], a.bytes[w][v]);
                    assert_int_equal(b.messages[w][v], STEPS * (1 + values) * (uint64_t)b.pieces);
                }
        }
    }
}

/* To the others of its group a worker sends as if there were no other groups; and the shard
   that it has in common with one worker of each other group goes to those by an all-reduce of
   its own. */
static void groups_exchange_only_gradient_shards(void **state)
{
    (void)state;
    for (int n = 2; n <= RANKS; n++)
        for (int g = 1; g < n; g *= 2)
            for (int stage = 1; stage <= 3 && n % g == 0; stage++) {
                const uint64_t values = stage == 3 ? 2 : 1;
                const int groups = n / g;
                static run r;
                char method[80];
                snprintf(method, sizeof method, "zero(stage=%d,group=%d," SIZES ")", stage, g);
                r = run_of(method);
                go(&r, n);
                for (int w = 0; w < n; w++)
                    for (int v = 0; v < n; v++) {
                        uint64_t bytes = 0, messages = 0;
                        if (w == v)
                            continue;
                        for (int k = 0; k < r.pieces; k++) {
                            const size_t all = r.piece_count[k], mine = shard(all, g, w % g);
                            const size_t part = shard(mine, groups, w / g), theirs = shard(mine, groups, v / g);
                            if (w / g == v / g) {
                                bytes += 4 * (shard(all, g, v % g) + values * mine);
                                messages += 1 + values;
                            } else if (w % g == v % g) {
                                bytes += 4 * (theirs + part);
                                messages += (theirs > 0) + (part > 0);
                            }
                        }
                        assert_int_equal(r.bytes[w][v], STEPS * bytes);
                        assert_int_equal(r.messages[w][v], STEPS * messages);
                    }
            }
}

/* What a group keeps and updates is what as many workers without groups would. */
static void group_members_keep_the_state_of_a_smaller_run(void **state)
{
    (void)state;
    for (int n = 2; n <= RANKS; n += 2)
        for (int stage = 1; stage <= 3; stage++) {
            static run r, few;
            char method[80];
            snprintf(method, sizeof method, "zero(stage=%d,group=%d," SIZES ")", stage, n / 2);
            r = run_of(method);
            go(&r, n);
            few = run_of(stages[stage - 1]);
            go(&few, n / 2);
            for (int w = 0; w < n; w++) {
                assert_true(r.updated[w] == few.updated[w % (n / 2)]);
                assert_true(r.updated[w] == (double)shards(&r, n / 2, w % (n / 2)));
                assert_true(fabs((r.state_bytes[w] - few.state_bytes[w % (n / 2)]) * SIZE -
                                 (stage == 1 ? 4 * (double)(padded(n) - padded(n / 2)) : 0)) < 1e-3);
            }
        }
}

/* The values of resident layers are sent once. With all of them it is stage 2's traffic. */
static void persistent_layers_are_sent_once(void **state)
{
    (void)state;
    for (int n = 2; n <= RANKS; n++) {
        static run two, all, some;
        two = run_of("zero(stage=2," SIZES ")");
        all = run_of("zero(stage=3,persist=9041," SIZES ")");
        some = run_of("zero(stage=3,persist=100," SIZES ")");
        go(&two, n);
        go(&all, n);
        go(&some, n);
        assert_int_equal(sent(&all, n), sent(&two, n));
        assert_true(all.units_live == UNITS && all.values_live == SIZE);
        assert_int_equal(2 * sent(&some, n), 3 * sent(&two, n) - STEPS * 4 * 2 * (uint64_t)(n - 1) * (64 + 100));
    }
}

/* One layer at work and one ahead, or none where there is no thread for it, and those that stay
   resident. */
static void at_most_one_unit_and_one_prefetched_are_resident(void **state)
{
    (void)state;
    for (int n = 1; n <= RANKS; n++)
        for (int lane = -1; lane <= 1; lane++) {
            static run r;
            const bool ahead = n > 1 && lane >= 0;
            r = run_of("zero(stage=3)");
            r.options.lane = lane;
            go(&r, n);
            assert_true(r.units_live == (ahead ? 2 : 1));
            assert_true(r.values_live == (ahead ? 9001 + 40 + 64 : 9001 + 40));
            r = run_of("zero(stage=3,persist=100)");
            r.options.lane = lane;
            go(&r, n);
            assert_true(r.units_live == (ahead ? 4 : 3));
        }
}

/* The worker that has element i. */
static int owner(const run *r, int n, size_t i)
{
    int k = 0, w = 0;
    size_t end;

    while (i >= r->piece_first[k] + r->piece_count[k])
        k++;
    end = r->piece_first[k] + shard(r->piece_count[k], n, 0);
    while (i >= end)
        end += shard(r->piece_count[k], n, ++w);
    return w;
}

/* 8 bytes a block by the worker that has its first element, to which the others' elements of it
   go. */
static void clipping_adds_only_block_sums_and_borders_to_traffic(void **state)
{
    (void)state;
    for (int n = 2; n <= RANKS; n++) {
        static run plain, clipped;
        uint64_t more[RANKS][RANKS] = { { 0 } };
        plain = run_of(stages[0]);
        clipped = run_of(stages[0]);
        clipped.options.clip_norm = 1;
        go(&plain, n);
        go(&clipped, n);
        for (size_t i = 0; i < SIZE; i++) {
            const int adds = owner(&plain, n, i / BLOCK * BLOCK), has = owner(&plain, n, i);
            more[has][adds] += 4;
            for (int to = 0; to < n && i % BLOCK == 0; to++)
                more[adds][to] += 8;
        }
        for (int w = 0; w < n; w++)
            for (int v = 0; v < n; v++)
                if (w != v)
                    assert_int_equal(clipped.bytes[w][v] - plain.bytes[w][v], STEPS * more[w][v]);
    }
}

/* Each group has all blocks, and finds their sums by itself. */
static void norm_computation_sends_nothing_between_groups(void **state)
{
    static run plain, clipped;
    const int n = 4, g = 2;
    uint64_t more[RANKS][RANKS] = { { 0 } };

    (void)state;
    plain = run_of("zero(group=2," SIZES ")");
    clipped = run_of("zero(group=2," SIZES ")");
    clipped.options.clip_norm = 1;
    go(&plain, n);
    go(&clipped, n);
    for (size_t i = 0; i < SIZE; i++) {
        const int adds = owner(&plain, g, i / BLOCK * BLOCK), has = owner(&plain, g, i);
        more[has][adds] += 4;
        for (int to = 0; to < g && i % BLOCK == 0; to++)
            more[adds][to] += 8;
    }
    for (int w = 0; w < n; w++)
        for (int v = 0; v < n; v++)
            if (w != v)
                assert_int_equal(clipped.bytes[w][v] - plain.bytes[w][v],
                                 w / g == v / g ? STEPS * more[w % g][v % g] : 0);
}

/* ---- what is refused ---- */

static void refuse_on(run *r, int n, const char *sentence)
{
    tutti_error err = { .rank = -1 };

    assert_int_equal(tutti_world_run("shm", n, rank_of, r, &err), TUTTI_ERR_USAGE);
    if (strstr(err.text, sentence) == NULL)
        fail_msg("%s: %s", r->method, err.text);
}

static void refuse(run *r, const char *sentence)
{
    refuse_on(r, 2, sentence);
}

static void invalid_groups_are_rejected_with_an_error_message(void **state)
{
    static run r;

    (void)state;
    r = run_of("zero(group=3)");
    refuse_on(&r, 4, "method 'zero': group is 3, which does not divide the 4 workers; take a number of workers that is "
                     "a multiple of it, or another group");
    r = run_of("zero(stage=2,group=8)");
    refuse_on(&r, 4, "method 'zero': group is '8'; it must be machine, none, or a number of workers from 1 to 4");
    r = run_of("zero(stage=3,group=host)");
    refuse_on(&r, 2, "method 'zero': group is 'host'; it must be machine, none, or a number of workers from 1 to 2");
    r = run_of("zero(group=3)");
    refuse_on(&r, 6, "method 'zero': group is 3, and sums over 6 workers in teams of 3 would have other bits than over "
                     "all; take a power of two that divides 6, or none, which is one team of all");
    r = run_of("zero(group=2)");
    r.options.collective = "stragglar(straggler=2,order=any)";
    refuse_on(&r, 4, "collective, among the workers of 2 teams (group): ");
}

static void invalid_options_are_rejected(void **state)
{
    static run r;

    (void)state;
    r = run_of("zero(stage=4)");
    refuse(&r, "stage");
    r = run_of("zero(stage=2,persist=1)");
    refuse(&r, "persist");
    r = run_of("zero(bucket_mb=1,first_bucket_mb=2)");
    refuse(&r, "method 'zero': first_bucket_mb is 2 but bucket_mb is only 1; the first bucket may not be the larger "
               "one");
    r = run_of("zero");
    r.options.optimizer = "client";
    refuse(&r, "optimizer is 'client', whose buffers are whole on each worker, but method 'zero' cuts them over the "
               "workers; give its rule");
    r = run_of("zero");
    r.options.codec = "bf16";
    r.options.collective = NULL;
    refuse(&r, "codec is 'bf16', but method 'zero' has an exchange of its own, of float32");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_stages_match_ddp_bit_for_bit),
        cmocka_unit_test(accumulation_in_shards_matches_ddp),
        cmocka_unit_test(short_steps_of_several_passes_are_exchanged_by_all),
        cmocka_unit_test(updated_shards_and_memory_match_the_stage),
        cmocka_unit_test(traffic_is_one_or_one_and_half_all_reduces),
        cmocka_unit_test(persistent_layers_are_sent_once),
        cmocka_unit_test(at_most_one_unit_and_one_prefetched_are_resident),
        cmocka_unit_test(clipping_adds_only_block_sums_and_borders_to_traffic),
        cmocka_unit_test(groups_match_ddp_bit_for_bit),
        cmocka_unit_test(groups_exchange_only_gradient_shards),
        cmocka_unit_test(group_members_keep_the_state_of_a_smaller_run),
        cmocka_unit_test(norm_computation_sends_nothing_between_groups),
        cmocka_unit_test(invalid_groups_are_rejected_with_an_error_message),
        cmocka_unit_test(invalid_options_are_rejected),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
