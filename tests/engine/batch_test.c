/* Goal: steps of as many samples as their workers take (steps.h, free sample counts): every
   sample of an epoch is taken once, weights follow from what was taken, the run ends by samples,
   and what was recorded is replayed to the bit. Method: a toy method whose counts are a function
   of rank and step, with ranks that take nothing for a while, in each of the three ways in which
   counts can be known; a client that records each sample (taken.h). */
#include <math.h>

#include "scratch.h"
#include "taken.h"

/* ---- the method ---- */

typedef struct taker {
    int way, counts;
    int64_t pass, most;
    bool exchange, even;
    int64_t wrong;
    const char *record, *replay;
    int64_t of[TAKEN_RANKS];
} taker;
enum { KNOWN, TOLD, LENT };
enum { EQUAL, UNLIKE, SPEEDS, CLOCK };
enum { NOTHING_WRONG, SILENT, TOO_MANY, CLOSES_TWICE, JUST_CLOSES, NEVER_CLOSES, LATE, NEGATIVE };

static const tutti_option taker_options[] = {
    { "way", TUTTI_CHOICE, TUTTI_AT(taker, way), KNOWN, 0, 2, "known|told|lent", "" },
    { "counts", TUTTI_CHOICE, TUTTI_AT(taker, counts), EQUAL, 0, 3, "equal|unlike|speeds|clock", "" },
    { "pass", TUTTI_INT, TUTTI_AT(taker, pass), 0, 0, 1e9, NULL, "" },
    { "most", TUTTI_INT, TUTTI_AT(taker, most), 0, 0, 1e9, NULL, "" },
    { "exchange", TUTTI_BOOL, TUTTI_AT(taker, exchange), 1, 0, 1, NULL, "" },
    { "even", TUTTI_BOOL, TUTTI_AT(taker, even), 0, 0, 1, NULL, "" },
    { "wrong", TUTTI_INT, TUTTI_AT(taker, wrong), 0, 0, 9, NULL, "" },
    TUTTI_BATCH_RECORD(TUTTI_AT(taker, record)),
    TUTTI_BATCH_REPLAY(TUTTI_AT(taker, replay)),
    { 0 }
};

/* What rank r would take in a step. Rank 1 stands still from step 5 to 14. CLOCK: taken from the
   microseconds of the clock, another number at each call. */
static int64_t count_of(const tutti_method *m, int r)
{
    const taker *s = m->self;
    const int64_t most = s->most > 0 ? s->most : m->share->batch;

    if (s->counts == EQUAL)
        return most;
    if (s->counts == SPEEDS)
        return most >> r;
    if (s->counts == CLOCK)
        return tutti_now_ns(m->rt) / 1000 % (most + 1);
    if (r == 1 && m->step >= 5 && m->step < 15)
        return 0;
    return (int64_t)(tutti_random((tutti_rng){ 9, (uint64_t)r, m->step }, 0) % (uint64_t)(most + 1));
}

static tutti_status taker_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    const taker *s = m->self;

    return tutti_batch_declare(m, plan,
                               &(tutti_batch_options){ .pass = s->pass,
                                                       .most = s->most,
                                                       .leased = s->way == LENT,
                                                       .even = s->even,
                                                       .record = s->record,
                                                       .replay = s->replay },
                               err);
}

static tutti_status check(const tutti_method *m, const int64_t *of, tutti_error *err)
{
    int64_t sum = 0;

    for (int r = 0; r < m->workers; r++)
        sum += of[r];
    if (of[m->rank] != m->samples || m->weight != (sum > 0 ? (double)m->samples / (double)sum : 0))
        return tutti_fail(err, TUTTI_ERR_STATE, 0, "step %d: %d of %d samples, weight %g", (int)m->step,
                          (int)m->samples, (int)sum, m->weight);
    return TUTTI_OK;
}

static tutti_status ahead(tutti_method *m, taker *s, tutti_pass *p, tutti_error *err)
{
    int64_t wanted[TAKEN_RANKS];

    if (p->index > 0 || s->wrong == SILENT)
        return TUTTI_OK;
    for (int r = 0; r < m->workers; r++)
        wanted[r] = s->wrong == NEGATIVE ? -1 : count_of(m, r);
    if (s->way == TOLD)
        TUTTI_TRY(tutti_batch_exchange(m, p, wanted[m->rank], s->of, err));
    else
        TUTTI_TRY(tutti_batch_set(m, p, wanted, s->of, err));
    if (s->wrong == TOO_MANY)
        p->samples++;
    if (s->wrong == LATE)
        p->more = false;
    return check(m, s->of, err);
}

static tutti_status taker_pass(tutti_method *m, tutti_pass *p, tutti_error *err)
{
    taker *s = m->self;

    if (s->way != LENT)
        return ahead(m, s, p, err);
    if (s->wrong == JUST_CLOSES)
        return TUTTI_CLOSED;
    if (s->wrong == NEVER_CLOSES && p->index == 1) {
        p->more = false;
        return TUTTI_OK;
    }
    if (tutti_batch_next_pass(m, m->samples < count_of(m, m->rank))) {
        const int64_t left = count_of(m, m->rank) - m->samples;
        if (s->replay[0] == 0 && left > 0 && p->samples > left)
            p->samples = left;
        return TUTTI_OK;
    }
    TUTTI_TRY(tutti_batch_close(m, s->of, err));
    if (s->wrong == CLOSES_TWICE)
        TUTTI_TRY(tutti_batch_close(m, s->of, err));
    p->exchange = s->exchange;
    TUTTI_TRY(check(m, s->of, err));
    return TUTTI_CLOSED;
}

static const tutti_method_ops taker_ops = {
    .name = "taker", .options = taker_options, .self_bytes = sizeof(taker), .traits = TUTTI_REPLICAS_EQUAL,
    .declare = taker_declare, .pass = taker_pass, .exchange = tutti_base_exchange
};
static const tutti_method_ops apart_ops = { /* each worker its own model */
    .name = "apart", .options = taker_options, .self_bytes = sizeof(taker), .declare = taker_declare, .pass = taker_pass
};
static const tutti_method_ops paced_ops = {
    .name = "paced", .options = taker_options, .self_bytes = sizeof(taker), .traits = TUTTI_ASYNC,
    .declare = taker_declare, .pass = taker_pass
};
static const tutti_method_ops *const takers[] = { &taker_ops, &apart_ops, &paced_ops, NULL };

static taken *toy(const char *method, uint64_t set, uint64_t samples)
{
    taken *t = taken_of(method, set, samples);

    t->methods = takers;
    return t;
}

/* ---- samples ---- */

static void every_sample_of_an_epoch_is_taken_once(void **state)
{
    static const char *const methods[] = {
        "taker", "taker(counts=unlike,most=20)", "taker(counts=speeds,most=32,pass=4)",
        "taker(way=told,counts=unlike,most=20)",
        "taker(way=lent)", "taker(way=lent,counts=unlike,most=20)", "taker(way=lent,counts=speeds,most=32,pass=4)",
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(methods); k++)
        for (int n = 1; n <= 5; n += 2) {
            taken *t = toy(methods[k], 203, 3 * 203);
            int64_t sum = 0;
            taken_run(t, n);
            taken_each(t, n, 3);
            for (int s = 0; s < TAKEN_STEPS; s++)
                sum += taken_sum(t, s);
            for (int r = 0; r < n; r++)
                assert_int_equal(t->figures[r].samples, 3 * 203);
            assert_int_equal(sum, 3 * 203);
            assert_int_equal(t->figures[0].steps, t->done);
            free(t);
        }
}

/* A client of equal batches can follow counts that are a batch or nothing, so those differ from
   free counts. */
static void engine_reports_how_sample_counts_are_determined(void **state)
{
    static const struct { const char *method; int takes; } cases[] = {
        { "taker(even=on)", 1 }, { "taker", 2 }, { "taker(way=told)", 2 }, { "taker(way=lent)", 3 },
    };

    (void)state;
    for (size_t k = 0; k <= TUTTI_LENGTH(cases); k++) {
        const bool none = k == TUTTI_LENGTH(cases);
        taken *t = none ? taken_of("ddp", 203, 203) : toy(cases[k].method, 203, 203);
        taken_run(t, 2);
        assert_int_equal(t->takes, none ? 0 : cases[k].takes);
        free(t);
    }
}

static void steps_do_not_cross_epochs_when_counts_are_known(void **state)
{
    (void)state;
    for (int told = 0; told < 2; told++) {
        taken *t = toy(told ? "taker(way=told,counts=unlike,most=20)" : "taker(counts=unlike,most=20)", 203, 3 * 203);
        int64_t sum = 0;
        int ends = 0;
        taken_run(t, 3);
        for (int s = 0; s < t->done; s++) {
            const int64_t epoch = sum / 203;
            sum += taken_sum(t, s);
            assert_true(sum <= (epoch + 1) * 203);
            ends += sum == (epoch + 1) * 203;
        }
        assert_int_equal(ends, 3);
        free(t);
    }
}

/* 4:2:1 with leases: all come to the end together. */
static void a_run_has_no_tiny_step_at_its_end(void **state)
{
    (void)state;
    for (uint64_t samples = 1000; samples < 1060; samples += 7) {
        taken *t = toy("taker(way=lent,counts=speeds,most=32,pass=4)", 600, samples);
        taken_run(t, 3); /* 32 + 16 + 8 = 56 in a step */
        assert_int_equal(t->figures[0].samples, samples);
        for (int s = 0; s < t->done; s++)
            assert_true(taken_sum(t, s) >= (s + 2 < t->done ? 50 : 26));
        free(t);
    }
}

static void equal_counts_give_the_samples_of_ddp(void **state)
{
    (void)state;
    for (int n = 1; n <= 3; n += 2) {
        taken *a = toy("taker(most=16)", 203, 2 * 203), *b = taken_of("ddp", 203, 2 * 203);
        a->options.accumulate = b->options.accumulate = 2;
        taken_run(a, n);
        taken_run(b, n);
        assert_int_equal(a->done, b->done);
        assert_memory_equal(a->times, b->times, sizeof a->times);
        assert_memory_equal(a->position, b->position, sizeof a->position);
        assert_memory_equal(a->took, b->took, sizeof a->took);
        taken_same(a, b, n);
        free(a);
        free(b);
    }
}

static const uint64_t part_first[4] = { 0, 20, 27, 50 };
static uint32_t part_sample[50];
static const tutti_parts parts = { part_first, part_sample };

static void each_worker_iterates_over_its_own_part(void **state)
{
    static const char *const methods[] = { "taker(way=told,counts=unlike,most=20)",
                                           "taker(way=lent,counts=unlike,most=20)" };

    (void)state;
    for (uint32_t i = 0; i < 50; i++)
        part_sample[i] = i;
    for (size_t k = 0; k < TUTTI_LENGTH(methods); k++) {
        taken *t = toy(methods[k], 50, 6 * 50);
        t->options.parts = &parts;
        taken_run(t, 3);
        assert_int_equal(t->figures[0].samples, 6 * 50);
        for (int r = 0; r < 3; r++) {
            int64_t mine = 0;
            const int64_t size = (int64_t)(part_first[r + 1] - part_first[r]);
            for (int s = 0; s < t->done; s++)
                mine += t->took[s][r];
            for (uint64_t i = 0; i < 50; i++) {
                const bool own = i >= part_first[r] && i < part_first[r + 1];
                assert_true(own ? t->times[r][i] == mine / size || t->times[r][i] == mine / size + 1
                                : t->times[r][i] == 0);
            }
        }
        free(t);
    }
}

/* ---- gradients ---- */

static void gradient_averages_all_samples_of_all_workers(void **state)
{
    static const char *const methods[] = { "taker(counts=speeds,most=16,pass=2)",
                                           "taker(way=told,counts=speeds,most=16,pass=2)",
                                           "taker(way=lent,counts=speeds,most=16,pass=2)" };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(methods); k++) {
        taken *t = toy(methods[k], 4096, 0);
        float x[TAKEN_COUNT] = { 0 };
        t->steps = 1;
        taken_run(t, 4); /* 16 + 8 + 4 + 2 = 30 */
        for (uint64_t s = 0; s < 4096; s++)
            for (int i = 0; i < TAKEN_COUNT; i++)
                x[i] -= (float)(t->times[0][s] + t->times[1][s] + t->times[2][s] + t->times[3][s]) * taken_pull(s, i);
        for (int i = 0; i < TAKEN_COUNT; i++)
            assert_true(fabsf(t->x[0][i] - 0.125f * x[i] / 30) < 1e-6f);
        taken_same(t, t, 1);
        for (int r = 1; r < 4; r++)
            assert_memory_equal(t->x[r], t->x[0], sizeof t->x[0]);
        free(t);
    }
}

static void step_without_samples_does_not_count_as_own_step(void **state)
{
    (void)state;
    for (int leased = 0; leased < 2; leased++) {
        taken *t = toy(leased ? "apart(way=lent,counts=unlike,most=20)" : "apart(counts=unlike,most=20)", 4096, 0);
        uint64_t steps = 0;
        t->steps = 30;
        taken_run(t, 3);
        for (int s = 0; s < 30; s++)
            steps += t->took[s][1] > 0;
        assert_true(steps <= 20);
        assert_int_equal(t->figures[1].own_steps, steps);
        assert_int_equal(t->figures[1].steps, 30);
        free(t);
    }
}

static void schedules_advance_by_samples(void **state)
{
    (void)state;
    taken *t = toy("taker(counts=speeds,most=8)", 4096, 0);
    int64_t sum = 0;
    t->options.steps = 10;
    t->options.lr_schedule = "linear";
    t->steps = 20;
    taken_run(t, 2); /* 12 samples a step, where two batches are 16 */
    for (int s = 0; s < 12; s++) {
        const double left = 1 - (double)(sum / 16) / 10;
        assert_true(fabs(t->lr[s] - 0.125 * (left > 0 ? left : 0)) < 1e-9);
        sum += taken_sum(t, s);
    }
    free(t);
}

/* ---- traffic ---- */

static void sample_counts_cost_an_all_gather_of_eight_bytes(void **state)
{
    (void)state;
    for (int way = 0; way < 3; way++) {
        taken *t = toy(way == 0   ? "apart(counts=unlike,most=20)"
                       : way == 1 ? "apart(way=told,counts=unlike,most=20)"
                                  : "apart(way=lent,counts=unlike,most=20,exchange=off)", 4096, 0);
        uint64_t opened = 0, bytes = 0;
        for (int steps = 0; steps <= 10; steps += 10) {
            t->steps = steps;
            taken_run(t, 3);
            bytes = 0;
            for (int r = 0; r < 3; r++)
                for (int q = 0; q < 3; q++)
                    bytes += t->bytes[r][q];
            opened = steps == 0 ? bytes : opened;
        }
        assert_int_equal(bytes - opened, way == 0 ? 0 : 10 * 3 * 2 * 8);
        free(t);
    }
}

/* ---- files ---- */

static char directory[SCRATCH_PATH];

static char *file(const char *name)
{
    static char path[SCRATCH_PATH + 64];

    snprintf(path, sizeof path, "%s/%s", directory, name);
    return path;
}

static void run_resumes_in_the_middle_of_an_epoch(void **state)
{
    static const char *const methods[] = { "taker(counts=unlike,most=20)", "taker(way=told,counts=unlike,most=20)",
                                           "taker(way=lent,counts=unlike,most=20)" };
    char folder[SCRATCH_PATH + 64];

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(methods); k++)
        for (int own = 0; own < 2; own++) {
            taken *whole = toy(methods[k], 50, 300), *half = toy(methods[k], 50, 300);
            snprintf(folder, sizeof folder, "%s", file("checkpoint"));
            whole->options.parts = half->options.parts = own ? &parts : NULL;
            taken_run(whole, 3);
            half->save_at = 4;
            half->rests = true;
            half->save_to = folder;
            taken_run(half, 3);
            half->load_from = folder;
            half->save_at = 0;
            taken_run(half, 3);
            assert_memory_equal(whole->times, half->times, sizeof whole->times);
            assert_memory_equal(whole->took, half->took, sizeof whole->took);
            taken_same(whole, half, 3);
            if (k == 2 && !own)
                taken_refused(half, 4, "the samples that each of another number of workers leased");
            free(whole);
            free(half);
        }
}

static char *with_file(const char *options, const char *key, const char *path)
{
    static char text[2][512];
    static int turn;

    turn = !turn;
    snprintf(text[turn], sizeof text[turn], "taker(%s,%s=%s)", options, key, path);
    return text[turn];
}

/* Counts that are a function of rank and step, and counts of the real clock. */
static void recorded_run_is_replayed_bit_for_bit(void **state)
{
    static const char *const options[] = { "way=told,counts=unlike,most=20", "way=lent,counts=unlike,most=20",
                                           "way=told,counts=clock,most=20", "way=lent,counts=clock,most=20,pass=8" };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(options); k++) {
        char path[SCRATCH_PATH + 64], changed[128], folder[SCRATCH_PATH + 64];
        snprintf(path, sizeof path, "%s", file("record"));
        snprintf(folder, sizeof folder, "%s", file("recorded"));
        snprintf(changed, sizeof changed, "way=%s,counts=speeds,most=20", k % 2 == 0 ? "told" : "lent");
        taken *a = toy(with_file(options[k], "record", path), 203, 406);
        a->save_at = 5;
        a->save_to = folder;
        taken_run(a, 3);
        taken *b = toy(with_file(changed, "replay", path), 203, 406); /* by itself it would take others */
        taken_run(b, 3);
        assert_memory_equal(a->took, b->took, sizeof a->took);
        assert_memory_equal(a->times, b->times, sizeof a->times);
        taken_same(a, b, 3);
        taken *half = toy(with_file(options[k], "record", path), 203, 406); /* behind the lines that stay */
        half->load_from = folder;
        taken_run(half, 3);
        taken_run(b, 3);
        taken_same(half, b, 3);
        if (k >= 2) /* the clock's counts differ in every run, or this test proves nothing */
            assert_memory_not_equal(a->took[5], half->took[5], (TAKEN_STEPS - 5) * sizeof a->took[0]);
        taken_refused(b, 2, "it must be the record of a run with {\"workers\":2,");
        b->samples = 500;
        taken_refused(b, 3, "and this run has more; it ends there");
        b->method = with_file(changed, "record=x,replay", path);
        taken_refused(b, 3, "give one of them");
        b->method = with_file(changed, "replay", file("none"));
        taken_refused(b, 3, "replay");
        free(a);
        free(b);
        free(half);
    }
}

static void method_contract_violations_are_rejected(void **state)
{
    static const struct { const char *method, *sentence; } cases[] = {
        { "taker(wrong=1)", "begins a step without saying how many samples it takes" },
        { "taker(wrong=2)", "takes 9 samples in a pass; it may take up to 8" },
        { "taker(wrong=3,way=lent)", "tutti_batch_close is legal within pass, once a step" },
        { "taker(wrong=4,way=lent)", "pass gave TUTTI_CLOSED, which is for steps that tutti_batch_close has closed" },
        { "taker(wrong=5,way=lent,most=20)", "in a step that it did not close" },
        { "taker(wrong=6,most=20)", "has taken 8 samples in a step for which it declared another number" },
        { "taker(wrong=7)", "worker 0 takes -1 samples in a step; it may be 0 to 8" },
        { "taker(counts=speeds,even=on)", "worker 1 takes 4 samples in a step; it may be 0 or 8" },
        { "paced", "method 'paced' would decide how many samples a step has, with all workers, but it lets every "
                   "worker go at its own pace" },
        { "taker(way=lent,pass=8,most=4)", "a step at least one whole pass" },
    };
    const int64_t shares[2] = { 9, 7 };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(cases); k++) {
        taken *t = toy(cases[k].method, 203, 406);
        taken_refused(t, 2, cases[k].sentence);
        free(t);
    }
    taken *t = toy("taker", 203, 406);
    t->options.batch_of = shares;
    taken_refused(t, 2, "batch-share cuts a step by worker, but method 'taker' decides itself how much of it each "
                        "computes; omit batch-share");
    free(t);
}

static int make_directory(void **state)
{
    (void)state;
    scratch_make(directory);
    return 0;
}

static int remove_directory(void **state)
{
    (void)state;
    scratch_remove(directory);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_sample_of_an_epoch_is_taken_once),
        cmocka_unit_test(engine_reports_how_sample_counts_are_determined),
        cmocka_unit_test(steps_do_not_cross_epochs_when_counts_are_known),
        cmocka_unit_test(a_run_has_no_tiny_step_at_its_end),
        cmocka_unit_test(equal_counts_give_the_samples_of_ddp),
        cmocka_unit_test(each_worker_iterates_over_its_own_part),
        cmocka_unit_test(gradient_averages_all_samples_of_all_workers),
        cmocka_unit_test(step_without_samples_does_not_count_as_own_step),
        cmocka_unit_test(schedules_advance_by_samples),
        cmocka_unit_test(sample_counts_cost_an_all_gather_of_eight_bytes),
        cmocka_unit_test(run_resumes_in_the_middle_of_an_epoch),
        cmocka_unit_test(recorded_run_is_replayed_bit_for_bit),
        cmocka_unit_test(method_contract_violations_are_rejected),
    };
    return cmocka_run_group_tests_name("engine/batch", tests, make_directory, remove_directory);
}
