/* Goal: a partition gives every sample to exactly one worker, none an empty part, with the skew
   that was asked for; and workers go over their own parts again and again. Method: parts of
   random labels, workers and seeds are checked sample by sample; known statistics at the ends of
   alpha's range; the sequence of a worker is compared with the plain definition. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/data.h"
#include "sanitized.h"

typedef struct drawn { void *memory; tutti_parts parts; } drawn;

static tutti_status draw(drawn *d, const char *spec, const uint8_t *labels, uint64_t samples, int classes, int workers,
                         uint64_t seed, tutti_error *err)
{
    tutti_partition p;
    size_t bytes;
    tutti_status status;

    *err = (tutti_error){ .rank = -1 };
    *d = (drawn){ 0 };
    status = tutti_partition_read(&p, spec, err);
    if (status != TUTTI_OK)
        return status;
    assert_true(tutti_partition_bytes(samples, workers, &bytes));
    d->memory = malloc(bytes); /* exactly as much as it requires */
    assert_non_null(d->memory);
    memset(d->memory, 0xA5, bytes);
    status = tutti_partition_draw(&p, &(tutti_partition_labels){ labels, samples, classes },
                                  workers, seed, d->memory, err);
    tutti_partition_at(&d->parts, d->memory, workers);
    if (status != TUTTI_OK) {
        free(d->memory);
        d->memory = NULL;
    }
    return status;
}

static void draw_well(drawn *d, const char *spec, const uint8_t *labels, uint64_t samples, int classes, int workers,
                      uint64_t seed)
{
    tutti_error err;

    if (draw(d, spec, labels, samples, classes, workers, seed, &err) != TUTTI_OK)
        fail_msg("%s of %llu samples, %d classes, %d workers, seed %llu: %s", spec, (unsigned long long)samples,
                 classes, workers, (unsigned long long)seed, err.text);
}

static void assert_refused(const char *sentence, const char *spec, const uint8_t *labels, uint64_t samples, int classes,
                           int workers)
{
    tutti_error err;
    drawn d;

    assert_int_equal(draw(&d, spec, labels, samples, classes, workers, 0, &err), TUTTI_ERR_USAGE);
    if (strcmp(err.text, sentence) != 0)
        fail_msg("'%s' instead of '%s'", err.text, sentence);
}

static uint8_t *balanced(uint64_t samples, int classes)
{
    uint8_t *labels = malloc(samples);

    assert_non_null(labels);
    for (uint64_t i = 0; i < samples; i++)
        labels[i] = (uint8_t)(i % (uint64_t)classes);
    return labels;
}

static int classes_of(const drawn *d, int worker, const uint8_t *labels, uint64_t samples, int classes)
{
    uint64_t count[256];
    int has = 0;

    tutti_partition_histogram(&d->parts, worker, labels, samples, classes, count);
    for (int c = 0; c < classes; c++)
        has += count[c] > 0;
    return has;
}

static uint64_t size_of(const drawn *d, int worker)
{
    return d->parts.first[worker + 1] - d->parts.first[worker];
}

static void every_sample_is_in_exactly_one_part(void **state)
{
    static const char *const specs[] = {
        "dirichlet(alpha=0.1,least=1)", "dirichlet(alpha=0.3,even=on)", "dirichlet(alpha=1e-6,even=on)",
        "dirichlet(alpha=1000,least=1)", "class(k=1)", "class(k=3)", "shard(k=1)", "shard(k=3)",
        "dirichlet(alpha=1,even=cut,group=3)",
    };
    int done = 0;

    (void)state;
    for (uint64_t turn = 0; turn < 600; turn++) {
        const tutti_rng rng = { 11, 1, turn };
        const uint64_t samples = 1 + tutti_random(rng, 0) % 500;
        const int classes = 1 + (int)(tutti_random(rng, 1) % 12), workers = 1 + (int)(tutti_random(rng, 2) % 9);
        const char *spec = specs[turn % TUTTI_LENGTH(specs)];
        uint8_t labels[500], used[500] = { 0 };
        tutti_error err;
        drawn d;
        for (uint64_t i = 0; i < samples; i++)
            labels[i] = (uint8_t)(tutti_random(rng, 10 + i) % (uint64_t)classes);
        if (draw(&d, spec, labels, samples, classes, workers, turn, &err) != TUTTI_OK) {
            assert_int_equal(err.status, TUTTI_ERR_USAGE); /* too few samples or classes for that many workers */
            continue;
        }
        done++;
        assert_int_equal(d.parts.first[0], 0);
        assert_int_equal(d.parts.first[workers], samples);
        for (int r = 0; r < workers; r++) {
            assert_true(size_of(&d, r) > 0);
            for (uint64_t i = d.parts.first[r]; i < d.parts.first[r + 1]; i++) {
                assert_true(d.parts.sample[i] < samples && !used[d.parts.sample[i]]++);
                assert_true(i == d.parts.first[r] || d.parts.sample[i] > d.parts.sample[i - 1]);
            }
            if (strstr(spec, "even=cut") != NULL)
                assert_in_range(size_of(&d, r) + 1 - samples / (uint64_t)workers, 0, 2);
            if (strstr(spec, "even=on") != NULL)
                assert_int_equal(size_of(&d, r),
                                 samples / (uint64_t)workers + ((uint64_t)r < samples % (uint64_t)workers));
        }
        free(d.memory);
    }
    assert_true(done > 350);
}

static void the_seed_decides_and_nothing_else(void **state)
{
    static const char *const specs[] = {
        "dirichlet(alpha=0.5)", "dirichlet(alpha=0.5,even=on)", "dirichlet(alpha=0.5,even=cut)", "class(k=3)",
        "shard(k=2)",
    };
    uint8_t *labels = balanced(3000, 10);

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(specs); k++) {
        char fixed[80];
        drawn a, b, c, e, f;
        draw_well(&a, specs[k], labels, 3000, 10, 5, 1);
        draw_well(&b, specs[k], labels, 3000, 10, 5, 1);
        draw_well(&c, specs[k], labels, 3000, 10, 5, 2);
        snprintf(fixed, sizeof fixed, "%.*s,seed=1)", (int)strlen(specs[k]) - 1, specs[k]);
        draw_well(&e, fixed, labels, 3000, 10, 5, 2); /* its own seed goes before the run's */
        draw_well(&f, fixed, labels, 3000, 10, 5, 1);
        assert_memory_equal(a.parts.first, b.parts.first, 6 * sizeof *a.parts.first);
        assert_memory_equal(a.parts.sample, b.parts.sample, 3000 * sizeof *a.parts.sample);
        assert_memory_not_equal(a.parts.sample, c.parts.sample, 3000 * sizeof *a.parts.sample);
        assert_memory_equal(a.parts.sample, e.parts.sample, 3000 * sizeof *a.parts.sample);
        assert_memory_equal(a.parts.sample, f.parts.sample, 3000 * sizeof *a.parts.sample);
        free(a.memory), free(b.memory), free(c.memory), free(e.memory), free(f.memory);
    }
    free(labels);
}

/* Dir(alpha 1_n) has mean 1/n and variance (n - 1) / (n^2 (n alpha + 1)): at alpha = 1000 a share
   is within 5 % of 1/n, at 0.01 a class has one home. */
static void alpha_scales_from_one_class_per_worker_to_uniform(void **state)
{
    enum { SAMPLES = 60000, WORKERS = 8 };
    uint8_t *labels = balanced(SAMPLES, 10);
    double distance[3] = { 0, 0, 0 };
    uint64_t count[10];
    int few = 0;

    (void)state;
    for (uint64_t seed = 0; seed < 20; seed++) {
        static const char *const specs[] = {
            "dirichlet(alpha=0.01,least=1)", "dirichlet(alpha=0.5)", "dirichlet(alpha=1000)",
        };
        for (int k = 0; k < 3; k++) {
            drawn d;
            draw_well(&d, specs[k], labels, SAMPLES, 10, WORKERS, seed);
            for (int r = 0; r < WORKERS; r++) {
                distance[k] += tutti_partition_histogram(&d.parts, r, labels, SAMPLES, 10, count) / (20 * WORKERS);
                few += k == 0 && classes_of(&d, r, labels, SAMPLES, 10) <= 2;
                for (int c = 0; k == 2 && c < 9; c++) /* the last class evens out the sizes */
                    assert_true(fabs((double)count[c] / (6000.0 / WORKERS) - 1) < 0.2);
                assert_true(k != 2 || fabs((double)size_of(&d, r) / ((double)SAMPLES / WORKERS) - 1) < 0.05);
            }
            free(d.memory);
        }
    }
    assert_true(few >= 20 * WORKERS / 2);
    assert_true(distance[0] > 1.5 && distance[1] > 0.5 && distance[1] < 1.3 && distance[2] < 0.1);
    free(labels);
}

/* Of a worker's classes, in nats. */
static double entropy_of(const drawn *d, int worker, const uint8_t *labels, uint64_t samples)
{
    uint64_t count[256];
    double sum = 0;

    tutti_partition_histogram(&d->parts, worker, labels, samples, 10, count);
    for (int c = 0; c < 10; c++) {
        const double share = (double)count[c] / (double)size_of(d, worker);
        sum -= share > 0 ? share * log(share) : 0;
    }
    return sum;
}

/* 16 workers in groups of 10 and of 6. alpha 10 is nearly even, with 0.1 a worker has mainly 1 to
   3 classes; a group's samples stay in it. */
static void evenly_cut_parts_have_equal_size_and_alphas_skew(void **state)
{
    enum { SAMPLES = 3200, WORKERS = 16, SEEDS = 5 };
    static const double alphas[] = { 10, 1, 0.1, 0.01 };
    uint8_t *labels = balanced(SAMPLES, 10);
    double entropy[4] = { 0 };

    (void)state;
    for (size_t k = 0; k < 4; k++)
        for (uint64_t seed = 0; seed < SEEDS; seed++) {
            char spec[80];
            drawn d;
            snprintf(spec, sizeof spec, "dirichlet(alpha=%g,even=cut)", alphas[k]);
            draw_well(&d, spec, labels, SAMPLES, 10, WORKERS, seed);
            for (int r = 0; r < WORKERS; r++) {
                assert_int_equal(size_of(&d, r), SAMPLES / WORKERS);
                entropy[k] += entropy_of(&d, r, labels, SAMPLES) / (SEEDS * WORKERS);
            }
            free(d.memory);
        }
    assert_true(entropy[0] > entropy[1] + 0.2 && entropy[1] > entropy[2] + 0.5 && entropy[2] > entropy[3] + 0.2);
    assert_true(entropy[0] > 2 && entropy[2] < log(3) + 0.1 && entropy[3] < 0.7);
    free(labels);
}

/* A worker that has its 1/n of the set gets nothing of the classes that are assigned after that:
   without its last class it has less. */
static void a_full_worker_gets_no_further_classes(void **state)
{
    uint8_t *labels = balanced(5000, 10);
    uint64_t count[10];

    (void)state;
    for (uint64_t seed = 0; seed < 100; seed++) {
        drawn d;
        draw_well(&d, "dirichlet(alpha=0.3)", labels, 5000, 10, 4, seed);
        for (int r = 0; r < 4; r++) {
            int last = 9;
            tutti_partition_histogram(&d.parts, r, labels, 5000, 10, count);
            while (count[last] == 0)
                last--;
            assert_true(size_of(&d, r) - count[last] < 5000 / 4);
        }
        free(d.memory);
    }
    free(labels);
}

/* The gamma variates behind it: with 2 workers and one class, the share of worker 0 is Beta(alpha,
   alpha): mean 1/2, variance 1 / (4 (2 alpha + 1)). */
static void shares_have_the_variance_of_the_distribution(void **state)
{
    static const double alphas[] = { 0.05, 0.5, 1, 4, 50 };
    uint8_t labels[1000] = { 0 };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(alphas); k += UNLESS_SANITIZED(1, 4)) {
        double sum = 0, squares = 0;
        int n = 0;
        for (uint64_t seed = 0; seed < 4000; seed++) {
            char spec[80];
            tutti_error err;
            drawn d;
            snprintf(spec, sizeof spec, "dirichlet(alpha=%g,least=1)", alphas[k]);
            if (draw(&d, spec, labels, 1000, 1, 2, seed, &err) != TUTTI_OK)
                continue;
            const double share = (double)size_of(&d, 0) / 1000;
            sum += share;
            squares += share * share;
            n++;
            free(d.memory);
        }
        assert_int_equal(n, 4000);
        const double mean = sum / n, variance = squares / n - mean * mean, want = 1 / (4 * (2 * alphas[k] + 1));
        /* below 0.5, draws that leave one of the two nothing are frequent enough for repeating
           them to be seen */
        if (alphas[k] >= 0.5) {
            assert_true(fabs(mean - 0.5) < 5 * sqrt(want / n));
            assert_true(fabs(variance / want - 1) < 0.12);
        } else
            assert_true(variance > 0.15);
    }
}

static void classes_are_dealt_out_k_a_worker(void **state)
{
    uint8_t *labels = balanced(6000, 10);

    (void)state;
    for (int workers = 1; workers <= 12; workers++)
        for (int k = (9 + workers) / workers; k <= 10; k++) {
            char spec[40];
            drawn d;
            snprintf(spec, sizeof spec, "class(k=%d)", k);
            draw_well(&d, spec, labels, 6000, 10, workers, 7);
            for (int r = 0; r < workers; r++)
                assert_int_equal(classes_of(&d, r, labels, 6000, 10), k);
            free(d.memory);
        }
    free(labels);
}

/* 10 classes of 600 and 4 workers with 5 shards each: 20 shards of 300 never straddle two
   classes, so a worker has 2 to 5 of them. */
static void shards_are_runs_of_the_sorted_set(void **state)
{
    uint8_t *labels = balanced(6000, 10);
    uint64_t count[10];
    drawn d;

    (void)state;
    draw_well(&d, "shard(k=5)", labels, 6000, 10, 4, 3);
    for (int r = 0; r < 4; r++) {
        assert_int_equal(size_of(&d, r), 1500);
        tutti_partition_histogram(&d.parts, r, labels, 6000, 10, count);
        for (int c = 0; c < 10; c++)
            assert_int_equal(count[c] % 300, 0);
    }
    free(d.memory);
    free(labels);
}

static void label_distance_compares_a_part_with_the_whole(void **state)
{
    const uint8_t labels[8] = { 0, 0, 0, 0, 1, 1, 1, 1 };
    const uint64_t first[4] = { 0, 4, 6, 8 };
    const uint32_t sample[8] = { 0, 1, 2, 3, 4, 5, 6, 7 };
    const uint32_t mixed[8] = { 0, 1, 4, 5, 2, 6, 3, 7 };
    uint64_t count[2];

    (void)state;
    assert_true(tutti_partition_histogram(&(tutti_parts){ first, sample }, 0, labels, 8, 2, count) == 1.0);
    assert_true(count[0] == 4 && count[1] == 0);
    assert_true(tutti_partition_histogram(&(tutti_parts){ first, mixed }, 0, labels, 8, 2, count) == 0.0);
    assert_true(count[0] == 2 && count[1] == 2);
}

static void invalid_options_are_rejected(void **state)
{
    uint8_t *labels = balanced(100, 10);
    tutti_error err;
    drawn d;

    (void)state;
    assert_refused("partition 'dirichlet': option 'alpha' is -1; it must be from 1e-6 to 1000000 (concentration: 100 "
                   "is nearly even, 0.1 strong skew, 0.01 about a class a worker)",
                   "dirichlet(alpha=-1)", labels, 100, 10, 4);
    assert_refused("there is no partition 'dirichlt'; did you mean 'dirichlet'?; iid, dirichlet(alpha=A), class(k=K) "
                   "and shard(k=K) are known",
                   "dirichlt(1)", labels, 100, 10, 4);
    assert_refused("partition 'class': 4 workers with 2 classes each have 8 of the 10 classes, and no worker would "
                   "have the others; k must be at least 3",
                   "class(k=2)", labels, 100, 10, 4);
    assert_refused("partition 'class': k is 11, but there are 10 classes", "class(k=11)", labels, 100, 10, 4);
    assert_refused("partition 'shard': 4 workers with 26 shards each need 104 shards, but there are 100 samples",
                   "shard(k=26)", labels, 100, 10, 4);
    assert_refused("partition 'dirichlet': least is 26, but 100 samples are at most 25 for each of 4 workers",
                   "dirichlet(least=26)", labels, 100, 10, 4);
    assert_refused("partition 'dirichlet': with alpha 1e-06 none of 1000 draws leaves each of 11 workers at least 1 "
                   "samples (the best left 0); use even=on, a larger alpha, fewer workers or a "
                   "smaller least",
                   "dirichlet(alpha=1e-6,least=1)", labels, 100, 10, 11);
    assert_refused("the partition leaves worker 0 of 20 without a sample (the set has 10); use fewer workers",
                   "class(k=1)", labels, 10, 10, 20);
    assert_refused("partition 'dirichlet': option 'least' has no effect with even=cut; it needs even=off, or omit it"
                   "",
                   "dirichlet(even=cut,least=20)", labels, 100, 10, 4);
    assert_refused("partition 'dirichlet': with alpha 1e-06 none of 1000 draws leaves each of 11 workers at least 4 "
                   "samples (the best left 0); use even=on, a larger alpha, fewer workers or a smaller group",
                   "dirichlet(alpha=1e-6,even=cut,group=11)", labels, 100, 10, 11);
    assert_int_equal(draw(&d, "class(k=2)", labels, 100, 9, 5, 0, &err), TUTTI_ERR_CORRUPT);
    assert_string_equal(err.text, "sample 9 has label 9, but there are 9 classes");
    free(labels);
}

/* ---- base.h with parts ---- */

/* The plain definition: worker r takes its part in an order of its own, again and again; a step
   takes as many samples as it does without parts. */
static void workers_go_over_their_own_parts_again_and_again(void **state)
{
    (void)state;
    for (uint64_t turn = 0; turn < 400; turn++) {
        const tutti_rng rng = { 12, 1, turn };
        const uint64_t samples = 20 + tutti_random(rng, 0) % 200;
        const int workers = 1 + (int)(tutti_random(rng, 1) % 5);
        int64_t batch_of[5];
        double weight[5];
        uint8_t labels[220];
        drawn d;
        tutti_share s = {
            .samples = samples, .workers = workers, .batch = 1 + (int64_t)(tutti_random(rng, 2) % 40),
            .accumulate = 1 + (int64_t)(tutti_random(rng, 3) % 3), .seed = turn,
        };
        tutti_share common;
        for (uint64_t i = 0; i < samples; i++)
            labels[i] = (uint8_t)(i % 3);
        draw_well(&d, "dirichlet(alpha=0.5,even=on)", labels, samples, 3, workers, turn);
        for (int r = 0; r < workers; r++)
            weight[r] = (double)size_of(&d, r);
        tutti_share_apportion(s.batch * workers, workers, weight, 1, batch_of);
        s.batch_of = turn % 2 ? batch_of : NULL;
        common = s;
        s.parts = &d.parts;
        assert_int_equal(tutti_share_steps(&s), tutti_share_steps(&common));
        for (int r = 0; r < workers; r++) {
            uint64_t taken = 0, seen[220] = { 0 };
            for (uint64_t step = 0; step < 3 * tutti_share_steps(&s); step++) {
                assert_int_equal(tutti_share_step(&s, step, r), tutti_share_step(&common, step, r));
                for (int64_t pass = 0; pass < s.accumulate; pass++) {
                    uint64_t epoch, position, of;
                    const int64_t n = tutti_share_pass(&s, step, r, pass, &epoch, &position);
                    assert_int_equal(n, tutti_share_pass(&common, step, r, pass, &of, &(uint64_t){ 0 }));
                    assert_int_equal(epoch, of);
                    assert_int_equal(position, taken);
                    for (int64_t i = 0; i < n; i++) {
                        const uint64_t id = tutti_share_sample_of(&s, r, epoch, position + (uint64_t)i);
                        bool mine = false;
                        for (uint64_t k = d.parts.first[r]; k < d.parts.first[r + 1]; k++)
                            mine = mine || d.parts.sample[k] == id;
                        assert_true(mine);
                        assert_int_equal(seen[id]++, taken / size_of(&d, r)); /* once a turn */
                        taken++;
                    }
                }
            }
        }
        free(d.memory);
    }
}

static void orders_of_a_part_differ_by_turn_and_seed(void **state)
{
    uint8_t *labels = balanced(1000, 10);
    int same_turn = 0, same_seed = 0;
    drawn d;

    (void)state;
    draw_well(&d, "class(k=5)", labels, 1000, 10, 2, 0);
    const tutti_share a = { .samples = 1000, .workers = 2, .batch = 10, .accumulate = 1, .seed = 1, .parts = &d.parts };
    tutti_share b = a;
    b.seed = 2;
    for (uint64_t i = 0; i < size_of(&d, 1); i++) {
        same_turn += tutti_share_sample_of(&a, 1, 0, i) == tutti_share_sample_of(&a, 1, 0, i + size_of(&d, 1));
        same_seed += tutti_share_sample_of(&a, 1, 0, i) == tutti_share_sample_of(&b, 1, 0, i);
    }
    assert_true(same_turn < 20 && same_seed < 20);
    free(d.memory);
    free(labels);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_sample_is_in_exactly_one_part),
        cmocka_unit_test(the_seed_decides_and_nothing_else),
        cmocka_unit_test(alpha_scales_from_one_class_per_worker_to_uniform),
        cmocka_unit_test(evenly_cut_parts_have_equal_size_and_alphas_skew),
        cmocka_unit_test(a_full_worker_gets_no_further_classes),
        cmocka_unit_test(shares_have_the_variance_of_the_distribution),
        cmocka_unit_test(classes_are_dealt_out_k_a_worker),
        cmocka_unit_test(shards_are_runs_of_the_sorted_set),
        cmocka_unit_test(label_distance_compares_a_part_with_the_whole),
        cmocka_unit_test(invalid_options_are_rejected),
        cmocka_unit_test(workers_go_over_their_own_parts_again_and_again),
        cmocka_unit_test(orders_of_a_part_differ_by_turn_and_seed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
