/* Goal: dabmd follows its clock as its page describes: T_c is measured, follows a target, is the
   length of a round, and is in a checkpoint. Method: time is virtual and a sample's cost is given
   here. So counts are computed beforehand, and the load of the machine changes no round. */
#include <math.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine/taken.h"
#include "scratch.h"
#include "forked.h"

enum { MICRO = 4, BATCH = 8 };

/* Shared with the children that a simulation runs in. */
static taken *simulated_of(const char *method, uint64_t samples)
{
    taken *t = taken_of(method, 4096, samples),
          *shared = mmap(NULL, sizeof *t, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    assert_true(shared != MAP_FAILED);
    *shared = *t;
    shared->transport = "sim";
    free(t);
    return shared;
}

static void drop(taken *t)
{
    munmap(t, sizeof *t);
}

typedef struct sim_call { taken *t; int n; } sim_call;

static tutti_status in_child(void *arg, tutti_error *err)
{
    const sim_call *c = arg;
    return taken_try(c->t, c->n, err);
}

static tutti_status simulate(taken *t, int n, tutti_error *err)
{
    sim_call c = { t, n };
    return forked(in_child, &c, err);
}

static void run(taken *t, int n)
{
    tutti_error err;
    if (simulate(t, n, &err) != TUTTI_OK)
        fail_msg("%s on %d: %s", t->method, n, err.text);
}

/* ---- T_c measured ---- */

static const double (*slowness)[TAKEN_RANKS]; /* of each of the first four steps; those after: as the fourth */

static double as_said(int rank, uint64_t step)
{
    return slowness[step < 3 ? step : 3][rank];
}

/* What the median worker needs for the batch, of each worker the least of three rounds. */
static void compute_time_is_that_of_the_median_worker(void **state)
{
    static const struct { int n; double milliseconds[TAKEN_RANKS], slower[4][TAKEN_RANKS], median; } cases[] = {
        { 1, { 3 }, { { 1 }, { 1 }, { 1 }, { 1 } }, 3 },
        { 3, { 4, 1, 2 }, { { 1, 1, 1 }, { 1, 1, 1 }, { 1, 1, 1 }, { 1, 1, 1 } }, 2 },
        { 4, { 8, 4, 1, 2 }, { { 1, 1, 1, 1 }, { 1, 1, 1, 1 }, { 1, 1, 1, 1 }, { 1, 1, 1, 1 } }, 2 }, /* the lower */
        { 5, { 1, 2, 4, 8, 16 },
          { { 3, 3, 3, 3, 3 }, { 2, 2, 2, 2, 2 }, { 1, 1, 1, 1, 1 }, { 1, 1, 1, 1, 1 } }, 4 },
        /* the fourth round is not measured */
        { 3, { 4, 1, 2 }, { { 3, 3, 3 }, { 2, 2, 2 }, { 3, 3, 3 }, { 1, 1, 1 } }, 4 },
        /* 1, 2 and 3 are the least ones; the medians of the rounds are 9 */
        { 3, { 1, 1, 1 }, { { 1, 9, 9 }, { 9, 2, 9 }, { 9, 9, 3 }, { 1, 1, 1 } }, 2 },
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(cases); k++) {
        taken *t = simulated_of("dabmd(microbatch=4)", 0);
        slowness = cases[k].slower;
        t->slower = as_said;
        t->steps = 5;
        for (int r = 0; r < cases[k].n; r++)
            t->seconds[r] = 1e-3 * cases[k].milliseconds[r];
        run(t, cases[k].n);
        if (fabs(t->compute_ms - BATCH * cases[k].median) > 1e-4 * BATCH * cases[k].median)
            fail_msg("case %d: T_c is %.6g ms, not %g", (int)k, t->compute_ms, BATCH * cases[k].median);
        for (int r = 0; r < cases[k].n; r++) /* nothing is known in the first round */
            assert_int_equal(t->took[0][r], BATCH);
        drop(t);
    }
}

/* ---- counts ---- */

/* As many micro-batches as begin before T_c. -1: so close that rounding decides. */
static int64_t count_in(double t_c, double seconds, int64_t micro, int64_t most)
{
    const double passes = t_c / (seconds * (double)micro);

    if (fabs(passes - round(passes)) < 3e-6 * passes)
        return -1;
    return (int64_t)ceil(passes) * micro < most ? (int64_t)ceil(passes) * micro : most;
}

/* T_c <- T_c target / b, at most doubled or halved, from the first round that is not measured. */
static void compute_time_follows_the_target(void **state)
{
    static const struct { double compute_ms; int target, doubled, halved; } cases[] = {
        { 5.1, 100, 3, 0 }, { 301, 100, 0, 1 }, { 0, 100, 1, 0 }, { 70, 17, 0, 1 },
    };
    static const double seconds[3] = { 1e-3, 1.7e-3, 2.9e-3 };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(cases); k++) {
        char method[96];
        int64_t ns = (int64_t)(cases[k].compute_ms * 1e6);
        int doubled = 0, halved = 0;
        snprintf(method, sizeof method, "dabmd(microbatch=%d,most=200,compute_ms=%g,target=%d)", MICRO,
                 cases[k].compute_ms, cases[k].target);
        taken *t = simulated_of(method, 0);
        t->steps = 12;
        memcpy(t->seconds, seconds, sizeof seconds);
        run(t, 3);
        for (int s = 0; s < 12; s++) {
            const double factor = (double)cases[k].target / (double)taken_sum(t, s);
            for (int r = 0; r < 3 && ns > 0 && (cases[k].compute_ms > 0 || s >= 3); r++) {
                const int64_t count = count_in((double)ns * 1e-9, seconds[r], MICRO, 200);
                assert_true(count < 0 || t->took[s][r] == count);
            }
            if (cases[k].compute_ms == 0 && s < 3) {
                ns = (int64_t)(BATCH * seconds[1] * 1e9); /* the median */
                continue;
            }
            doubled += factor > 2;
            halved += factor < 0.5;
            ns = (int64_t)((double)ns * fmin(fmax(factor, 0.5), 2)) + 1;
        }
        assert_true(fabs(t->compute_ms - (double)ns * 1e-6) < 1e-4 * t->compute_ms);
        assert_true(doubled >= cases[k].doubled && halved >= cases[k].halved);
        drop(t);
    }
}

static void sample_counts_are_proportional_to_speed(void **state)
{
    static const double seconds[4] = { 0.5e-3, 1e-3, 2e-3, 2e-3 }; /* 4:2:1:1 */
    taken *t = simulated_of("dabmd(microbatch=2,most=256,compute_ms=79)", 0);

    (void)state;
    memcpy(t->seconds, seconds, sizeof seconds);
    t->steps = 8;
    run(t, 4);
    for (int s = 0; s < 8; s++)
        for (int r = 0; r < 4; r++) {
            const double share = (double)t->took[s][r] / (double)taken_sum(t, s), speed = 0.25e-3 / seconds[r];
            const int64_t took_ns = t->ended_ns[s][r] - t->began_ns[s][r];
            assert_true(fabs(share / speed - 1) < 0.1);
            assert_true(took_ns >= 79000000 && took_ns <= 79000000 + (int64_t)(2e9 * seconds[r]) + 1000);
        }
    drop(t);
}

/* ---- checkpoints ---- */

static double slower_later(int rank, uint64_t step)
{
    static const double times[5] = { 1, 1.5, 2.3, 0.8, 1.1 };
    return times[step % 5] * (rank == 1 && step % 3 == 1 ? 1.9 : 1);
}

static taken *clocked(const char *method, int steps, uint64_t samples)
{
    static const double seconds[3] = { 1.1e-3, 1.7e-3, 3.3e-3 };
    taken *t = simulated_of(method, samples);

    t->options.optimizer = "sgd(lr=0.1,momentum=0.9)";
    t->options.data_samples = 400;
    memcpy(t->seconds, seconds, sizeof seconds);
    t->slower = slower_later;
    t->steps = steps;
    return t;
}

static bool same_from(const taken *a, const taken *b, int step)
{
    return memcmp(a->took[step], b->took[step], (size_t)(TAKEN_STEPS - step) * sizeof a->took[0]) == 0 &&
           memcmp(a->x, b->x, sizeof a->x) == 0 && a->told == b->told;
}

/* Without a record: the samples that each worker takes follow from the clock, so from the saved
   T_c. */
static void every_declared_state_is_saved_and_matters(void **state)
{
    /* A state matters in one of them: dabmd.best while T_c is measured, and take.of at_end, where
       the counts of the step before determine how the last samples are assigned. */
    static const struct { const char *method; int save_at; bool at_end; } cases[] = {
        { "dabmd(microbatch=4,most=64)", 2, false }, /* while T_c is measured */
        { "dabmd(microbatch=4,most=64,compute_ms=9,target=50,graph=ring)", 7, false },
        { "dabmd(microbatch=4,most=64,compute_ms=9)", -1, true },
    };
    enum { STEPS = 14, MOST = 32 };
    struct { char name[64]; bool matters; } seen[MOST] = { 0 };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(cases); k++) {
        char folder[SCRATCH_PATH];
        const uint64_t samples = cases[k].at_end ? 600 : 0;
        taken *whole = clocked(cases[k].method, STEPS, samples), *half = clocked(cases[k].method, STEPS, samples);
        int states = 1, save_at;
        scratch_make(folder);
        run(whole, 3);
        save_at = cases[k].at_end ? whole->done - 1 : cases[k].save_at;
        half->save_at = save_at;
        half->save_to = folder;
        half->rests = true;
        run(half, 3);
        for (int zero = -1; zero < states; zero++) {
            taken *rest = clocked(cases[k].method, STEPS - save_at, samples);
            tutti_error err = { .rank = -1 };
            rest->load_from = folder;
            rest->zero = zero;
            const tutti_status status = simulate(rest, 3, &err);
            const bool same = status == TUTTI_OK && same_from(whole, rest, save_at);
            states = zero < 0 ? rest->states : states;
            if (zero < 0 && !same)
                fail_msg("%s: a resumed run ends elsewhere: %s", cases[k].method, err.text);
            for (int i = 0; zero >= 0 && i < MOST; i++) { /* its own row, or the first that is free */
                if (seen[i].name[0] != 0 && strcmp(seen[i].name, rest->zeroed) != 0)
                    continue;
                snprintf(seen[i].name, sizeof seen[i].name, "%s", rest->zeroed);
                seen[i].matters = seen[i].matters || !same;
                break;
            }
            drop(rest);
        }
        drop(whole);
        drop(half);
        scratch_remove(folder);
    }
    assert_true(seen[7].name[0] != 0 && seen[MOST - 1].name[0] == 0);
    for (int i = 0; i < MOST && seen[i].name[0] != 0; i++)
        if (!seen[i].matters)
            fail_msg("zeroing '%s' changed nothing", seen[i].name);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(compute_time_is_that_of_the_median_worker),
        cmocka_unit_test(compute_time_follows_the_target),
        cmocka_unit_test(sample_counts_are_proportional_to_speed),
        cmocka_unit_test(every_declared_state_is_saved_and_matters),
    };
    return cmocka_run_group_tests_name("sim/dabmd", tests, NULL, NULL);
}
