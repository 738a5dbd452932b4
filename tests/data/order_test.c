/* Shares and order: every sample once an epoch whatever the workers, batches and passes; the same
   global batches for any number of workers that keeps their size; any step found without walking to
   it. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <math.h>
#include "tutti/base.h"
#include "base/share.h"

#define FOR_ALL_SHARES(s) \
    for (tutti_share s = { .samples = 1, .seed = 11 }; s.samples <= 60; s.samples++) \
        for (s.workers = 1; s.workers <= 7; s.workers++) \
            for (s.batch = 1; s.batch <= 5; s.batch++) \
                for (s.accumulate = 1; s.accumulate <= 3; s.accumulate++)

static void an_epoch_uses_every_sample_exactly_once(void **state)
{
    (void)state;
    FOR_ALL_SHARES(s) {
        const uint64_t steps = tutti_share_steps(&s), g = (uint64_t)(s.workers * s.batch * s.accumulate);
        assert_int_equal(steps, (s.samples + g - 1) / g);
        for (uint64_t epoch = 0; epoch < 2; epoch++) {
            int used[60] = { 0 };
            uint64_t total = 0;
            for (uint64_t step = epoch * steps; step < (epoch + 1) * steps; step++) {
                int64_t of_step = 0;
                for (int worker = 0; worker < s.workers; worker++) {
                    int64_t of_worker = 0;
                    for (int64_t pass = 0; pass < s.accumulate; pass++) {
                        uint64_t in, position;
                        const int64_t n = tutti_share_pass(&s, step, worker, pass, &in, &position);
                        assert_true(n >= 0 && n <= s.batch);
                        assert_int_equal(in, epoch);
                        for (int64_t i = 0; i < n; i++)
                            used[tutti_share_sample(&s, epoch, position + (uint64_t)i)]++;
                        of_worker += n;
                    }
                    assert_int_equal(of_worker, tutti_share_step(&s, step, worker));
                    of_step += of_worker;
                }
                assert_int_equal(of_step, tutti_share_step(&s, step, -1));
                assert_true(of_step > 0);
                total += (uint64_t)of_step;
            }
            assert_int_equal(total, s.samples);
            for (uint64_t i = 0; i < s.samples; i++)
                assert_int_equal(used[i], 1);
        }
    }
}

/* In a last step the workers differ by one sample at most, and the first ones have more. */
static void a_tail_is_shared_as_evenly_as_it_can_be(void **state)
{
    (void)state;
    FOR_ALL_SHARES(s) {
        const uint64_t last = tutti_share_steps(&s) - 1;
        const int64_t most = tutti_share_step(&s, last, 0);
        for (int worker = 1; worker < s.workers; worker++) {
            const int64_t n = tutti_share_step(&s, last, worker);
            assert_true(n <= tutti_share_step(&s, last, worker - 1) && n >= most - 1);
        }
    }
}

/* Samples of a step by all workers, in no order. */
static void collect(const tutti_share *s, uint64_t step, uint8_t *used)
{
    for (int worker = 0; worker < s->workers; worker++)
        for (int64_t pass = 0; pass < s->accumulate; pass++) {
            uint64_t epoch, position;
            const int64_t n = tutti_share_pass(s, step, worker, pass, &epoch, &position);
            for (int64_t i = 0; i < n; i++)
                used[tutti_share_sample(s, epoch, position + (uint64_t)i)]++;
        }
}

static void global_batches_do_not_depend_on_the_number_of_workers(void **state)
{
    static const struct {
        int workers;
        int64_t batch, accumulate;
    } ways[] = { { 1, 12, 1 }, { 2, 6, 1 }, { 3, 2, 2 }, { 4, 3, 1 }, { 6, 1, 2 }, { 12, 1, 1 } };
    uint8_t want[100], got[100];

    (void)state;
    for (uint64_t step = 0; step < 27; step++) /* three epochs of nine steps, tails included */
        for (size_t k = 0; k < TUTTI_LENGTH(ways); k++) {
            const tutti_share s = { 100, ways[k].workers, ways[k].batch, ways[k].accumulate, 5 };
            memset(got, 0, sizeof got);
            collect(&s, step, got);
            if (k == 0)
                memcpy(want, got, sizeof want);
            assert_memory_equal(want, got, sizeof want);
        }
}

static void a_full_step_is_laid_out_by_pass_then_worker_then_slot(void **state)
{
    const tutti_share s = { 100, 3, 4, 2, 0 };
    uint64_t epoch, position;

    (void)state;
    assert_int_equal(tutti_share_pass(&s, 6, 1, 1, &epoch, &position), 4); /* five steps an epoch: step 1 of epoch 1 */
    assert_int_equal(epoch, 1);
    assert_int_equal(position, 24 + (1 * 3 + 1) * 4);
    assert_int_equal(tutti_share_pass(&s, 4, 1, 0, &epoch, &position), 1); /* the tail of 4: two, one, one */
    assert_int_equal(tutti_share_pass(&s, 4, 0, 0, &epoch, &position), 2);
    assert_int_equal(tutti_share_pass(&s, 4, 1, 0, &epoch, &position), 1);
    assert_int_equal(position, 98);
    assert_int_equal(tutti_share_pass(&s, 4, 1, 1, &epoch, &position), 0);
}

static void orders_differ_by_epoch_and_seed_and_repeat_otherwise(void **state)
{
    const tutti_share a = { 1000, 1, 1, 1, 1 }, b = { 1000, 1, 1, 1, 2 };
    int by_epoch = 0, by_seed = 0;

    (void)state;
    for (uint64_t p = 0; p < 1000; p++) {
        by_epoch += tutti_share_sample(&a, 0, p) == tutti_share_sample(&a, 1, p);
        by_seed += tutti_share_sample(&a, 0, p) == tutti_share_sample(&b, 0, p);
        assert_int_equal(tutti_share_sample(&a, 3, p), tutti_share_sample(&a, 3, p));
    }
    assert_true(by_epoch < 20 && by_seed < 20); /* one is expected of random permutations */
}

/* A draw has two counters, and not their sum: else a second run with the next seed would have the
   orders of the first, an epoch late. */
static void neither_epoch_nor_turn_is_added_to_the_seed(void **state)
{
    enum { N = 1000 };
    static uint32_t sample[N];
    const uint64_t first[2] = { 0, N };
    const tutti_parts parts = { first, sample };

    (void)state;
    for (uint32_t i = 0; i < N; i++)
        sample[i] = i;
    for (int own = 0; own < 2; own++)
        for (uint64_t a = 0; a < 4; a++)
            for (uint64_t b = 0; b < 4; b++)
                for (uint64_t epoch = 0; epoch < 3; epoch++) {
                    const tutti_share one = { N, 1, 1, 1, 7 + a, .parts = own ? &parts : NULL };
                    const tutti_share other = { N, 1, 1, 1, 7 + b, .parts = own ? &parts : NULL };
                    int same = 0;
                    for (uint64_t p = 0; p < N; p++) /* of parts a position counts on from turn to turn */
                        same += tutti_share_sample_of(&one, 0, epoch, own ? epoch * N + p : p) ==
                                tutti_share_sample_of(&other, 0, 0, p);
                    /* one is expected of random permutations */
                    assert_true(a == b && epoch == 0 ? same == N : same < 20);
                }
}

/* What a resumed run and a second machine rely on. A change of these numbers
   is a change of every run's result. */
static void the_orders_are_pinned(void **state)
{
    static const struct { uint64_t seed, epoch; uint64_t order[8]; } common[] = {
        { 0, 0, { 50033, 49531, 15345, 19386, 59980, 17004, 45596, 11725 } },
        { 7, 0, { 23623, 28015, 25858, 37881, 28506, 7089, 46522, 30002 } },
        { 7, 1, { 32902, 49833, 25719, 27265, 1764, 14334, 527, 34289 } },
        { 8, 0, { 39791, 368, 40580, 24281, 5307, 48426, 6334, 48540 } },
    };
    static const struct { int worker; uint64_t position; uint32_t sample[6]; } own[] = {
        { 0, 0, { 4, 6, 2, 2, 4, 6 } },
        { 1, 0, { 3, 7, 5, 0, 1, 7 } },
    };
    static const uint64_t first[] = { 0, 3, 8 };
    static const uint32_t sample[] = { 2, 4, 6, 0, 1, 3, 5, 7 };
    const tutti_parts parts = { first, sample };
    const tutti_share cut = { 8, 2, 1, 1, 7, .parts = &parts };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(common); k++) {
        const tutti_share s = { 60000, 1, 1, 1, common[k].seed };
        for (uint64_t p = 0; p < 8; p++)
            assert_int_equal(tutti_share_sample(&s, common[k].epoch, p), common[k].order[p]);
    }
    for (size_t k = 0; k < TUTTI_LENGTH(own); k++) /* two turns of the first part; one of the second, and a beginning */
        for (uint64_t p = 0; p < 6; p++)
            assert_int_equal(tutti_share_sample_of(&cut, own[k].worker, 0, own[k].position + p), own[k].sample[p]);
}

/* Resume is a look-up: a share that is asked for step k first agrees with one that
   walked there; also past 2^32 samples. */
static void a_distant_step_is_located_directly(void **state)
{
    const tutti_share big = { UINT64_C(6000000000), 8, 64, 2, 3 };
    const uint64_t steps = tutti_share_steps(&big);
    uint64_t epoch, position;

    (void)state;
    assert_int_equal(steps, 5859375);
    assert_int_equal(tutti_share_pass(&big, 1000 * steps + steps - 1, 7, 1, &epoch, &position), 64);
    assert_int_equal(epoch, 1000);
    assert_int_equal(position, UINT64_C(6000000000) - 64);
    assert_true(tutti_share_sample(&big, epoch, position) < big.samples);
}

static void a_product_too_large_for_64_bits_makes_every_step_an_epoch(void **state)
{
    const tutti_share s = { 10, 7, INT64_MAX, INT64_MAX, 0 };

    (void)state;
    assert_int_equal(tutti_share_steps(&s), 1);
    assert_int_equal(tutti_share_step(&s, 3, -1), 10);
    assert_int_equal(tutti_share_step(&s, 3, 2), 2);
    assert_int_equal(tutti_share_step(&s, 3, 6), 1);
}

/* Unequal workers: random shares, zeros among them; the same epoch, split differently. */
static void uneven_shares_use_every_sample_exactly_once_too(void **state)
{
    (void)state;
    for (uint64_t turn = 0; turn < 3000; turn++) {
        const tutti_rng rng = { 5, 1, turn };
        int64_t batch_of[7];
        double weight[7];
        tutti_share s = {
            .samples = 1 + tutti_random(rng, 0) % 200, .workers = 1 + (int)(tutti_random(rng, 1) % 7),
            .batch = 1 + (int64_t)(tutti_random(rng, 2) % 9), .accumulate = 1 + (int64_t)(tutti_random(rng, 3) % 3),
            .seed = 3, .batch_of = batch_of,
        };
        int used[200] = { 0 };
        int64_t sum = 0;
        double all = 0;
        for (int r = 0; r < s.workers; r++) {
            weight[r] = tutti_random(rng, 10 + (uint64_t)r) % 3 == 0 ? 0 : tutti_uniform(rng, 20 + (uint64_t)r);
            all += weight[r];
        }
        if (all == 0)
            weight[0] = all = 1;
        tutti_share_apportion(s.batch * s.workers, s.workers, weight, 0, batch_of);
        for (int r = 0; r < s.workers; r++) {
            const double due = (double)(s.batch * s.workers) * weight[r] / all;
            assert_true(batch_of[r] >= 0 && fabs((double)batch_of[r] - due) < 1 + 1e-9);
            sum += batch_of[r];
        }
        assert_int_equal(sum, s.batch * s.workers);
        for (uint64_t step = 0; step < tutti_share_steps(&s); step++) {
            int64_t of_step = 0;
            for (int r = 0; r < s.workers; r++) {
                int64_t of_worker = 0;
                for (int64_t pass = 0; pass < s.accumulate; pass++) {
                    uint64_t epoch, position;
                    const int64_t n = tutti_share_pass(&s, step, r, pass, &epoch, &position);
                    assert_true(n >= 0 && n <= batch_of[r]);
                    for (int64_t i = 0; i < n; i++)
                        used[tutti_share_sample(&s, epoch, position + (uint64_t)i)]++;
                    of_worker += n;
                }
                assert_int_equal(of_worker, tutti_share_step(&s, step, r));
                of_step += of_worker;
            }
            assert_int_equal(of_step, tutti_share_step(&s, step, -1));
        }
        for (uint64_t i = 0; i < s.samples; i++)
            assert_int_equal(used[i], 1);
    }
}

static void apportioning_keeps_the_least_and_the_total(void **state)
{
    int64_t part[5];
    const double weight[5] = { 1, 1, 1, 1e-12, 1e6 };

    (void)state;
    tutti_share_apportion(100, 5, weight, 2, part);
    assert_int_equal(part[0] + part[1] + part[2] + part[3] + part[4], 100);
    for (int r = 0; r < 4; r++)
        assert_int_equal(part[r], 2);
    assert_int_equal(part[4], 92);
    tutti_share_apportion(10, 3, (const double[]){ 1, 1, 1 }, 0, part);
    assert_true(part[0] == 4 && part[1] == 3 && part[2] == 3); /* ties to the lower rank */
    tutti_share_apportion(16, 2, (const double[]){ 2, 1 }, 1, part);
    assert_true(part[0] == 11 && part[1] == 5); /* a minimum that no part falls below changes nothing */
    tutti_share_apportion(20, 3, (const double[]){ 3, 1, 0.1 }, 2, part);
    /* 18 in proportion 3 : 1 is 13.5 : 4.5; the tie goes to the lower rank */
    assert_true(part[0] == 14 && part[1] == 4 && part[2] == 2);
    for (uint64_t turn = 0; turn < 3000; turn++) {
        const tutti_rng rng = { 6, 1, turn };
        const int n = 1 + (int)(tutti_random(rng, 0) % 5);
        const int64_t least = (int64_t)(tutti_random(rng, 1) % 4),
                      total = n * least + (int64_t)(tutti_random(rng, 2) % 40) + (least == 0);
        double w[5];
        int64_t sum = 0;
        for (int r = 0; r < n; r++)
            w[r] = exp(4 * tutti_uniform(rng, 10 + (uint64_t)r));
        tutti_share_apportion(total, n, w, least, part);
        for (int r = 0; r < n; r++) {
            sum += part[r];
            assert_true(part[r] >= least);
        }
        assert_int_equal(sum, total);
        for (int r = 0; r < n; r++) /* those above the least have shares in proportion, up to one each */
            for (int q = 0; q < n; q++)
                assert_true(part[r] <= least || part[q] <= least ||
                            fabs((double)part[r] / w[r] - (double)part[q] / w[q]) <= 1 / w[r] + 1 / w[q] + 1e-9);
    }
}

/* Passes of equal size, a number of them each: the same positions as ever, every sample once. */
static void numbers_of_passes_use_every_sample_exactly_once_too(void **state)
{
    (void)state;
    for (uint64_t turn = 0; turn < 3000; turn++) {
        const tutti_rng rng = { 7, 1, turn };
        int64_t passes_of[7], all = 0;
        tutti_share s = {
            .samples = 1 + tutti_random(rng, 0) % 200, .workers = 1 + (int)(tutti_random(rng, 1) % 7),
            .batch = 1 + (int64_t)(tutti_random(rng, 2) % 5), .accumulate = 1, .seed = 3, .passes_of = passes_of,
        };
        int used[200] = { 0 };
        for (int r = 0; r < s.workers; r++)
            all += passes_of[r] = (int64_t)(tutti_random(rng, 10 + (uint64_t)r) % 6);
        if (all == 0)
            all = passes_of[0] = 1;
        const uint64_t full = (uint64_t)(all * s.batch);
        assert_int_equal(tutti_share_steps(&s), (s.samples + full - 1) / full);
        for (uint64_t step = 0; step < tutti_share_steps(&s); step++) {
            const uint64_t want = s.samples - step * full < full ? s.samples - step * full : full;
            int64_t of_step = 0;
            for (int r = 0; r < s.workers; r++) {
                int64_t of_worker = 0;
                for (int64_t pass = 0; pass < tutti_share_passes(&s, r) + 1; pass++) { /* one too many has none */
                    uint64_t epoch, position;
                    const int64_t n = tutti_share_pass(&s, step, r, pass, &epoch, &position);
                    assert_true(n >= 0 && n <= s.batch && (pass < passes_of[r] || n == 0));
                    for (int64_t i = 0; i < n; i++) {
                        assert_true(position + (uint64_t)i >= step * full &&
                                    position + (uint64_t)i < step * full + want);
                        used[tutti_share_sample(&s, epoch, position + (uint64_t)i)]++;
                    }
                    of_worker += n;
                }
                assert_int_equal(of_worker, tutti_share_step(&s, step, r));
                of_step += of_worker;
            }
            assert_int_equal(of_step, want);
            assert_int_equal(of_step, tutti_share_step(&s, step, -1));
        }
        for (uint64_t i = 0; i < s.samples; i++)
            assert_int_equal(used[i], 1);
    }
}

/* With A passes each the full steps are those of accumulation, position by position. */
static void equal_numbers_of_passes_are_accumulation(void **state)
{
    const int64_t passes_of[4] = { 3, 3, 3, 3 };
    const tutti_share a = { 1000, 4, 5, 3, 9 }, b = { 1000, 4, 5, 1, 9, NULL, passes_of };

    (void)state;
    for (uint64_t step = 0; step < 16; step++)
        for (int r = 0; r < 4; r++)
            for (int64_t pass = 0; pass < 3; pass++) {
                uint64_t epoch[2], position[2];
                const int64_t n = tutti_share_pass(&a, step, r, pass, &epoch[0], &position[0]);
                assert_int_equal(n, tutti_share_pass(&b, step, r, pass, &epoch[1], &position[1]));
                assert_true(epoch[0] == epoch[1] && position[0] == position[1]);
            }
}

/* Dealt in turn, and in blocks: a share has the samples of that worker of V. */
static void a_share_has_the_same_samples_however_shares_are_dealt(void **state)
{
    (void)state;
    for (int v = 1; v <= 9; v++)
        for (int n = 1; n <= v; n++)
            for (int passes = 1; passes <= 2; passes++) {
                const tutti_share alone = { 113, v, 3, passes, 5 };
                tutti_share blocks = { 113, n, 3, passes, 5 }, in_turn;
                uint64_t steps = tutti_share_steps(&alone);
                blocks.logical = v;
                in_turn = blocks;
                in_turn.logical = -v;
                assert_int_equal(tutti_share_steps(&in_turn), steps);
                for (uint64_t step = 0; step <= steps; step++)
                    for (int r = 0; r < n; r++) {
                        const int64_t mine = tutti_share_passes(&in_turn, r);
                        int64_t samples = 0;
                        assert_int_equal(mine, tutti_share_passes(&blocks, r));
                        for (int64_t p = 0; p < mine; p++) {
                            uint64_t epoch[2], position[2];
                            const int64_t took = tutti_share_pass(&in_turn, step, r, p, &epoch[0], &position[0]);
                            const int v_of_pass = r + (int)(p / passes) * n;
                            assert_int_equal(took, tutti_share_pass(&alone, step, v_of_pass, p % passes, &epoch[1],
                                                                    &position[1]));
                            assert_true(epoch[0] == epoch[1] && position[0] == position[1]);
                            samples += took;
                        }
                        assert_int_equal(samples, tutti_share_step(&in_turn, step, r));
                    }
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(uneven_shares_use_every_sample_exactly_once_too),
        cmocka_unit_test(apportioning_keeps_the_least_and_the_total),
        cmocka_unit_test(numbers_of_passes_use_every_sample_exactly_once_too),
        cmocka_unit_test(equal_numbers_of_passes_are_accumulation),
        cmocka_unit_test(a_share_has_the_same_samples_however_shares_are_dealt),
        cmocka_unit_test(an_epoch_uses_every_sample_exactly_once),
        cmocka_unit_test(a_tail_is_shared_as_evenly_as_it_can_be),
        cmocka_unit_test(global_batches_do_not_depend_on_the_number_of_workers),
        cmocka_unit_test(a_full_step_is_laid_out_by_pass_then_worker_then_slot),
        cmocka_unit_test(orders_differ_by_epoch_and_seed_and_repeat_otherwise),
        cmocka_unit_test(neither_epoch_nor_turn_is_added_to_the_seed),
        cmocka_unit_test(the_orders_are_pinned),
        cmocka_unit_test(a_distant_step_is_located_directly),
        cmocka_unit_test(a_product_too_large_for_64_bits_makes_every_step_an_epoch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
