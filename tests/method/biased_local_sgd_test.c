/* Goal: biased-local-sgd.md's invariants that need no clock of speeds: what it is where no worker
   is slow, which worker takes which samples, which scores count, what an averaging does, what is
   sent. Ranks are threads; gradients and losses are functions of the sample. Speeds are tested in
   virtual time, in tests/cli/biased_test.py. */
#include <unistd.h>

#include "dealt.h"
#include "scratch.h"
#include "trial.h"

enum { SET = 512 };

static dealt chosen_of(const char *method, int64_t batch, int64_t accumulate, int steps, uint64_t samples)
{
    dealt d = dealt_of(method, batch, accumulate, steps);

    d.options.data_samples = samples;
    d.options.names = true;
    return d;
}

static bool is_same_everywhere(const dealt *d, int n)
{
    for (int r = 1; r < n; r++)
        if (memcmp(d->rank[r].x, d->rank[0].x, sizeof d->rank[0].x) != 0)
            return false;
    return true;
}

/* A round of tau steps is as many of single's. */
static void one_worker_matches_method_single_bit_for_bit(void **state)
{
    static const struct { const char *method; int tau; } cases[] = {
        { "biased-local-sgd", 1 },
        { "biased-local-sgd(bias_ratio=1)", 1 },
        { "biased-local-sgd(steps=5)", 5 },
        { "biased-local-sgd(steps=3,agg_mix=0.5,momentum_policy=reset)", 3 },
    };
    static const char *const optimizers[] = { "sgd(lr=0.1,momentum=0.9)", "adamw(lr=0.01)" };

    (void)state;
    for (size_t o = 0; o < TUTTI_LENGTH(optimizers); o++)
        for (size_t c = 0; c < TUTTI_LENGTH(cases); c++)
            for (int64_t accumulate = 1; accumulate <= 2; accumulate++) {
                dealt a = chosen_of(cases[c].method, 8, accumulate, 4, SET),
                      b = chosen_of("single", 8, accumulate, 4 * cases[c].tau, SET);
                a.options.optimizer = b.options.optimizer = optimizers[o];
                a.real = b.real = true;
                dealt_run(&a, 1);
                dealt_run(&b, 1);
                assert_true(dealt_same(&a, &b));
                dealt_drop(&a);
                dealt_drop(&b);
            }
}

/* One step each, at each worker's own positions: the mean of models is that of gradients. To the
   bit where sums are exact; to rounding with momentum and weight decay, which are linear. */
static void one_local_step_per_worker_matches_ddp(void **state)
{
    static const char *const methods[] = { "biased-local-sgd(steps=1:1:1:1,bias_ratio=1)",
                                           "biased-local-sgd(steps=1:1:1:1)", /* no worker is slow */
                                           "biased-local-sgd(steps=1:1:1:1,agg_mix=1)" };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(methods); c++)
        for (int real = 0; real < 2; real++) {
            dealt a = chosen_of(methods[c], 8, 2, 12, SET), b = chosen_of("ddp", 8, 2, 12, SET);
            a.real = b.real = real;
            a.options.optimizer = b.options.optimizer =
                real ? "sgd(lr=0.05,momentum=0.9,weight_decay=0.01)" : "sgd(lr=0.25)";
            dealt_run(&a, 4);
            dealt_run(&b, 4);
            assert_true(real ? dealt_apart(&a, &b) < 1e-5 : dealt_same(&a, &b));
            assert_true(is_same_everywhere(&a, 4));
            dealt_drop(&a);
            dealt_drop(&b);
        }
}

/* To the bit, whatever the optimiser: the same samples in the same order, averaged equally
   often. */
static void equal_steps_are_local_sgd_bit_for_bit(void **state)
{
    static const struct { int n; const char *method, *base; } cases[] = {
        { 2, "biased-local-sgd(steps=4:4,bias_ratio=1)", "local-sgd(period=4)" },
        { 4, "biased-local-sgd(steps=2:2:2:2)", "local-sgd(period=2)" },
        { 4, "biased-local-sgd(steps=8:8:8:8,bias_ratio=1)", "local-sgd(period=8)" },
    };
    static const char *const optimizers[] = { "sgd(lr=0.1,momentum=0.9)", "adamw(lr=0.01)" };

    (void)state;
    for (size_t o = 0; o < TUTTI_LENGTH(optimizers); o++)
        for (size_t c = 0; c < TUTTI_LENGTH(cases); c++)
            for (int64_t accumulate = 1; accumulate <= 2; accumulate++) {
                const int period = atoi(strstr(cases[c].base, "=") + 1);
                dealt a = chosen_of(cases[c].method, 4, accumulate, 16 / period, SET),
                      b = chosen_of(cases[c].base, 4, accumulate, 16, SET);
                a.options.optimizer = b.options.optimizer = optimizers[o];
                a.real = b.real = true;
                dealt_run(&a, cases[c].n);
                dealt_run(&b, cases[c].n);
                assert_true(dealt_same(&a, &b));
                dealt_drop(&a);
                dealt_drop(&b);
            }
}

/* Without a bias a data pass has every sample once, whichever worker took it, also where the last
   round is incomplete; the next pass begins with the next round. */
static void unbiased_epoch_uses_every_sample_once(void **state)
{
    static const struct { int n; uint64_t samples; const char *method; int rounds; } cases[] = {
        { 3, 500, "biased-local-sgd(steps=6:1:6,bias_ratio=1)", 10 },   /* 13 x 4 = 52: 9.6 */
        { 2, 512, "biased-local-sgd(steps=7:1,bias_ratio=1)", 16 },     /* 32: 16 */
        { 4, 1000, "biased-local-sgd(steps=9:3:1:9,bias_ratio=1)", 12 },/* 88: 11.4 */
        { 2, 100, "biased-local-sgd(steps=64:2,bias_ratio=1)", 1 },     /* a round is more than all */
    };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(cases); c++)
        for (int passes = 1; passes <= 2; passes++) {
            dealt d = chosen_of(cases[c].method, 4, 1, passes * cases[c].rounds, cases[c].samples);
            d.options.names = false;
            dealt_run(&d, cases[c].n);
            for (uint64_t k = 0; k < cases[c].samples; k++) {
                int used = 0;
                for (int r = 0; r < cases[c].n; r++)
                    used += d.rank[r].used[k];
                assert_int_equal(used, passes);
            }
            dealt_drop(&d);
        }
}

/* ---- chosen samples, recomputed from what each worker visited ---- */

/* Goes up and down as steps go by, so that the newest is neither the least nor the most. */
static float waving(uint64_t sample, uint64_t step)
{
    return (float)((sample * 37 + step * (step + sample % 7) * 11) % 256) / 64;
}

typedef struct pass_of { int from, to; } pass_of; /* steps */

/* Scores after the visits of steps [from, to): the newest loss, of those of one step the larger;
   or `decay` times the old score, if that is larger. Gives the number of scores. */
static int rescore(const dealt *d, int n, pass_of p, float decay, float *score)
{
    float newest[SET];
    int kept = 0;

    for (int k = 0; k < SET; k++)
        newest[k] = -1;
    for (int step = p.from; step < p.to; step++) {
        float now[SET];
        for (int k = 0; k < SET; k++)
            now[k] = -1;
        for (int r = 0; r < n; r++)
            for (int v = 0; v < d->rank[r].visits; v++) {
                const dealt_visit *of = &d->rank[r].visit[v];
                if (of->step == step && of->loss > now[of->sample])
                    now[of->sample] = of->loss;
            }
        for (int k = 0; k < SET; k++)
            newest[k] = now[k] >= 0 ? now[k] : newest[k];
    }
    for (int k = 0; k < SET; k++) {
        const bool keeps = newest[k] >= 0 && isfinite(score[k]) && decay * score[k] > newest[k];
        if (newest[k] >= 0)
            score[k] = keeps ? decay * score[k] : newest[k];
        kept += keeps;
    }
    return kept;
}

/* The samples that the method has named in these steps, one worker after the other; gives their
   number. */
static int named_in(const dealt *d, int n, pass_of p, uint16_t *named)
{
    int count = 0;

    for (int r = 0; r < n; r++)
        for (int v = 0; v < d->rank[r].visits; v++) {
            const dealt_visit *of = &d->rank[r].visit[v];
            if (of->named && of->step >= p.from && of->step < p.to)
                named[count++] = of->sample;
        }
    return count;
}

/* The candidates C of a data pass that begins with `step`, and those of them to be taken: the
   ones of largest score, of equal ones the first drawn. */
static void expect(const dealt *d, int step, const float *score, int among, int want, bool *in, bool *taken)
{
    const tutti_rng draw = { d->options.seed, tutti_port_of("biased.candidates", 0, 0), (uint64_t)step };
    uint64_t c[SET];

    memset(in, 0, SET * sizeof *in);
    memset(taken, 0, SET * sizeof *taken);
    for (int k = 0; k < among; k++)
        in[c[k] = tutti_permuted(draw, SET, (uint64_t)k)] = true;
    for (int turn = 0; turn < want; turn++) {
        int best = -1;
        for (int k = 0; k < among; k++)
            if (!taken[c[k]] && (best < 0 || score[c[k]] > score[c[best]]))
                best = k;
        taken[c[best]] = true;
    }
}

/* n workers, some of them slow, for several data passes of `rounds`. */
static void slow_workers_take_the_top(const char *method, int n, int rounds, int passes, int want, int among)
{
    dealt d = chosen_of(method, 4, 1, rounds * passes, SET);
    const char *const at = strstr(method, "score_decay=");
    const float decay = at != NULL ? (float)atof(at + 12) : 0;
    float score[SET];
    int kept = 0;

    for (int k = 0; k < SET; k++)
        score[k] = INFINITY;
    d.loss = waving;
    dealt_run(&d, n);
    assert_true(is_same_everywhere(&d, n));
    for (int p = 0; p < passes; p++) {
        const pass_of steps = { p * rounds, (p + 1) * rounds };
        bool in[SET], taken[SET], has[SET] = { false };
        uint16_t named[SET];
        const int count = named_in(&d, n, steps, named);
        float least = INFINITY, most = -1;
        assert_int_equal(count, want);
        expect(&d, steps.from, score, among, want, in, taken);
        for (int k = 0; k < count; k++) {
            assert_false(has[named[k]]); /* disjoint over the slow workers, too */
            has[named[k]] = true;
            assert_true(in[named[k]]);
            assert_true(taken[named[k]]);
            least = fminf(least, score[named[k]]);
        }
        for (int k = 0; k < SET; k++)
            if (in[k] && !has[k])
                most = fmaxf(most, score[k]);
        assert_true(most <= least);
        kept += rescore(&d, n, steps, decay, score);
    }
    assert_true((kept > 0) == (decay > 0));
    dealt_drop(&d);
}

static void slow_workers_take_the_samples_with_the_highest_scores(void **state)
{
    (void)state;
    slow_workers_take_the_top("biased-local-sgd(steps=15:1)", 2, 8, 5, 32, 128);
    slow_workers_take_the_top("biased-local-sgd(steps=14:1:14:3)", 4, 4, 5, 64, 256);
    slow_workers_take_the_top("biased-local-sgd(steps=1:30:1,bias_ratio=16)", 3, 4, 5, 32, 512); /* of all */
    /* old scores fall by no more than that; loss that rises is followed at once */
    slow_workers_take_the_top("biased-local-sgd(steps=15:1,score_decay=0.5)", 2, 8, 6, 32, 128);
    slow_workers_take_the_top("biased-local-sgd(steps=14:1:14:3,score_decay=0.9)", 4, 4, 6, 64, 256);
    /* C has no more samples than are taken: all of it, whatever the scores */
    slow_workers_take_the_top("biased-local-sgd(steps=15:1,bias_ratio=1.001)", 2, 8, 3, 32, 32);
}

/* Losses that do not change: once all are known slow workers have the hard ones. */
static float fixed(uint64_t sample, uint64_t step)
{
    (void)step;
    return (float)((sample * 2654435761u) % 1024) / 256;
}

static void slow_workers_train_on_samples_with_higher_losses(void **state)
{
    dealt d = chosen_of("biased-local-sgd(steps=15:1)", 4, 1, 24, SET);

    (void)state;
    d.loss = fixed;
    dealt_run(&d, 2);
    for (int p = 1; p < 3; p++) {
        double sum[2] = { 0 }, count[2] = { 0 };
        for (int r = 0; r < 2; r++)
            for (int v = 0; v < d.rank[r].visits; v++)
                if (d.rank[r].visit[v].step / 8 == p) {
                    sum[0] += (double)d.rank[r].visit[v].loss;
                    count[0]++;
                    sum[1] += r == 1 ? (double)d.rank[r].visit[v].loss : 0;
                    count[1] += r == 1;
                }
        assert_true(sum[1] / count[1] >= sum[0] / count[0]);
    }
    dealt_drop(&d);
}

/* ---- averaging ---- */

/* sgd(lr=0.25[,momentum=0.5]) on gradients that depend on the sample alone, in exact arithmetic:
   the model after a round, from what each worker visited. */
static void averaging_follows_agg_mix_and_momentum_policy(void **state)
{
    static const struct { const char *method; double q[2], momentum; int policy; } cases[] = {
        { "biased-local-sgd(steps=3:1,bias_ratio=1)", { 0.5, 0.5 }, 0, 0 },
        { "biased-local-sgd(steps=3:1,bias_ratio=1,agg_mix=1)", { 0.75, 0.25 }, 0, 0 },
        { "biased-local-sgd(steps=3:1,bias_ratio=1,agg_mix=0.5)", { 0.625, 0.375 }, 0, 0 },
        { "biased-local-sgd(steps=3:1,bias_ratio=1)", { 0.5, 0.5 }, 0.5, 0 },
        { "biased-local-sgd(steps=3:1,bias_ratio=1,momentum_policy=reset)", { 0.5, 0.5 }, 0.5, 1 },
        { "biased-local-sgd(steps=3:1,bias_ratio=1,momentum_policy=average)", { 0.5, 0.5 }, 0.5, 2 },
    };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(cases); c++) {
        dealt d = chosen_of(cases[c].method, 4, 1, 3, SET);
        d.options.optimizer = cases[c].momentum > 0 ? "sgd(lr=0.25,momentum=0.5)" : "sgd(lr=0.25)";
        dealt_run(&d, 2);
        for (int i = 0; i < DEALT_SIZE; i++) {
            double x = 0, u[2] = { 0 };
            int at[2] = { 0 };
            for (int round = 0; round < 3; round++) {
                double mine[2];
                for (int r = 0; r < 2; r++) {
                    mine[r] = x;
                    for (int step = 0; step < (r == 0 ? 3 : 1); step++) {
                        double g = 0;
                        for (int b = 0; b < 4; b++)
                            g += (double)dealt_gradient[0][d.rank[r].visit[at[r]++].sample][i] / 4;
                        u[r] = cases[c].momentum * u[r] + g;
                        mine[r] -= 0.25 * u[r];
                    }
                }
                x = cases[c].q[0] * mine[0] + cases[c].q[1] * mine[1];
                if (cases[c].policy == 1)
                    u[0] = u[1] = 0;
                if (cases[c].policy == 2)
                    u[0] = u[1] = (u[0] + u[1]) / 2;
            }
            if ((double)d.rank[0].x[i] != x)
                fail_msg("%s: element %d is %.9g, not %.9g", cases[c].method, i, (double)d.rank[0].x[i], x);
        }
        assert_true(is_same_everywhere(&d, 2));
        dealt_drop(&d);
    }
}

/* A client that does not state how many samples there are has no epochs that would end a
   round. */
static void rounds_are_complete_when_the_dataset_size_is_unknown(void **state)
{
    (void)state;
    for (int n = 2; n <= 5; n++) {
        static const char *const methods[] = { "biased-local-sgd(steps=3:3,bias_ratio=1)",
                                               "biased-local-sgd(steps=3:3:3,bias_ratio=1)",
                                               "biased-local-sgd(steps=3:3:3:3,bias_ratio=1)",
                                               "biased-local-sgd(steps=3:3:3:3:3,bias_ratio=1)" };
        trial a = trial_of(methods[n - 2], "adamw(lr=0.01)", 3),
              b = trial_of("local-sgd(period=3)", "adamw(lr=0.01)", 9);
        trial_run(&a, n);
        trial_run(&b, n);
        for (int s = 0; s < 3; s++)
            assert_true(trial_same(&a, a.x[0][s], b.x[n - 1][3 * s + 2]));
        trial_drop(&a);
        trial_drop(&b);
    }
}

static void a_gradient_that_is_not_finite_is_found_in_a_local_step(void **state)
{
    (void)state;
    trial_not_finite("biased-local-sgd(steps=1:1:1:1,bias_ratio=1)", "sgd(lr=0.1)");
}

/* ---- what is sent ---- */

static void traffic_is_one_all_reduce_per_round_plus_scores(void **state)
{
    static const struct { int n; const char *method; int taus, own[4]; bool biased; } cases[] = {
        { 2, "biased-local-sgd(steps=15:1)", 16, { 15, 1 }, true },
        { 2, "biased-local-sgd(steps=15:1,bias_ratio=1)", 16, { 15, 1 }, false },
        { 4, "biased-local-sgd(steps=14:1:14:3)", 32, { 14, 1, 14, 3 }, true },
        { 4, "biased-local-sgd(steps=14:1:14:3,agg_mix=0.3,bias_ratio=1)", 32, { 14, 1, 14, 3 }, false },
    };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(cases); c++) {
        const int n = cases[c].n, rounds = SET / (4 * cases[c].taus);
        dealt d = chosen_of(cases[c].method, 4, 1, 2 * rounds, SET),
              base = chosen_of("local-sgd(period=1)", 4, 1, 2 * rounds, SET);
        d.options.lane = base.options.lane = -1;
        d.loss = waving;
        dealt_run(&d, n);
        dealt_run(&base, n); /* an all-reduce of the model a step */
        for (int r = 0; r < n; r++)
            for (int to = 0; to < n; to++) {
                /* in each of two passes 8 bytes of times, and 12 a visit */
                const uint64_t told = 8 + (cases[c].biased ? 12 * (uint64_t)(cases[c].own[r] * 4 * rounds) : 0);
                assert_int_equal(d.rank[r].bytes[to], base.rank[r].bytes[to] + (r != to ? 2 * told : 0));
                assert_int_equal(d.rank[r].messages[to],
                                 base.rank[r].messages[to] + (r != to ? 2 + 2 * cases[c].biased : 0));
            }
        dealt_drop(&d);
        dealt_drop(&base);
    }
}

/* ---- checkpoints ---- */

/* Saved in the middle of the second data pass, of a run that continues to the fourth. */
static void zeroing_any_declared_state_changes_the_resumed_run(void **state)
{
    static const char *const methods[] = {
        "biased-local-sgd(steps=4:1,bias_ratio=2)",
        "biased-local-sgd(steps=4:1,bias_ratio=3,momentum_policy=average,score_decay=0.5)"
    };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(methods); c++) {
        char directory[SCRATCH_PATH];
        dealt whole = chosen_of(methods[c], 4, 1, 60, SET);
        int states = 1;
        scratch_make(directory);
        whole.options.optimizer = "adamw(lr=0.01)";
        whole.loss = waving;
        whole.real = true;
        whole.directory = directory;
        whole.save_at = 45;
        dealt_run(&whole, 2);
        for (int zero = -1; zero < states; zero++) {
            dealt rest = chosen_of(methods[c], 4, 1, 60, SET);
            tutti_error err = { .rank = -1 };
            tutti_status status;
            rest.options.optimizer = "adamw(lr=0.01)";
            rest.loss = waving;
            rest.real = rest.load = true;
            rest.directory = directory;
            rest.zero = zero;
            status = tutti_world_run("shm", 2, dealt_main, &rest, &err);
            states = status == TUTTI_OK ? *rest.states : states;
            if (zero < 0 && (status != TUTTI_OK || !dealt_same(&whole, &rest)))
                fail_msg("%s: a resumed run ends elsewhere: %s", methods[c], err.text);
            /* engine.own counts steps, for figures alone here; so is what is kept of the last data
               pass (cli/biased) */
            if (zero >= 0 && status == TUTTI_OK && dealt_same(&whole, &rest) &&
                strcmp(rest.zeroed, "engine.own") != 0 && strcmp(rest.zeroed, "biased.visited") != 0 &&
                strcmp(rest.zeroed, "biased.gathered") != 0)
                fail_msg("%s: zeroing '%s' changed nothing", methods[c], rest.zeroed);
            dealt_drop(&rest);
        }
        assert_true(states >= 8);
        dealt_drop(&whole);
        scratch_remove(directory);
    }
}

/* ---- what is measured, and what cannot work ---- */

/* No worker is slow: once that is measured, all arrive at round_steps, or near it on a busy
   machine. */
static double alike(int rank, uint64_t step, int64_t pass, int64_t samples)
{
    (void)rank, (void)step, (void)pass, (void)samples;
    return 0.0005;
}

static void measured_steps_are_the_same_on_all_workers(void **state)
{
    dealt d = chosen_of("biased-local-sgd(round_steps=4)", 4, 1, 8, SET);
    int most = 0;

    (void)state;
    d.seconds = alike;
    dealt_run(&d, 3);
    assert_true(is_same_everywhere(&d, 3));
    for (int r = 0; r < 3; r++) {
        int here[8] = { 0 };
        for (int v = 0; v < d.rank[r].visits; v++)
            here[d.rank[r].visit[v].step]++;
        for (int s = 0; s < 2; s++)
            assert_int_equal(here[s], 4); /* one step each */
        assert_true(here[2] >= 4 && here[2] <= 16);
        most = here[2] > most ? here[2] : most;
    }
    assert_int_equal(most, 16); /* the fastest has all of them */
    dealt_drop(&d);
}

static tutti_status run_refused(dealt *d, tutti_error *err)
{
    *err = (tutti_error){ .rank = -1 };
    return tutti_world_run("shm", 2, dealt_main, d, err);
}

static void invalid_options_are_rejected(void **state)
{
    static const struct { const char *method; bool names; uint64_t samples; const char *sentence; } cases[] = {
        { "biased-local-sgd(steps=1:2:3)", true, SET,
          "method 'biased-local-sgd': steps is '1:2:3'; write auto, or a whole number from 1 to 1000000 for each of "
          "the 2 workers: tau_0:tau_1:..." },
        { "biased-local-sgd(steps=1:0)", true, SET, "method 'biased-local-sgd': steps is '1:0'; write auto" },
        { "biased-local-sgd(steps=1:1.5)", true, SET, "method 'biased-local-sgd': steps is '1:1.5'; write auto" },
        { "biased-local-sgd(steps=)", true, SET, "method 'biased-local-sgd': steps is ''; write auto" },
        { "biased-local-sgd(steps=4:1,round_steps=8)", true, SET,
          "method 'biased-local-sgd': option 'round_steps' has no effect with steps=4:1; it needs steps=auto" },
        { "biased-local-sgd(bias_ratio=0.5)", true, SET, "bias_ratio" },
        { "biased-local-sgd(steps=2:1,bias_ratio=4)", true, SET,
          "method 'biased-local-sgd': bias_ratio is 4, but slow workers take 171 of the 512 samples in a data pass, so "
          "it can be 2.994 at most" },
        { "biased-local-sgd(agg_mix=1.5)", true, SET, "agg_mix" },
        { "biased-local-sgd(score_decay=0.5,bias_ratio=1)", true, SET,
          "option 'score_decay' has no effect with bias_ratio=1" },
        { "biased-local-sgd", false, SET,
          "bias_ratio=4: method 'biased-local-sgd' chooses samples by their losses, for which the client takes samples "
          "by name and reports the loss of each" },
        { "biased-local-sgd", true, 0, "but their number is not given; give data_samples" },
    };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(cases); c++) {
        dealt d = chosen_of(cases[c].method, 4, 1, 2, cases[c].samples);
        tutti_error err;
        d.options.names = cases[c].names;
        assert_int_equal(run_refused(&d, &err), TUTTI_ERR_USAGE);
        if (strstr(err.text, cases[c].sentence) == NULL)
            fail_msg("%s: %s", cases[c].method, err.text);
        dealt_drop(&d);
    }
}

/* A client that declares that it reports losses has to. */
static float silent(uint64_t sample, uint64_t step)
{
    (void)sample, (void)step;
    return NAN;
}

static void unreported_loss_is_rejected_with_its_sample(void **state)
{
    dealt d = chosen_of("biased-local-sgd(steps=3:1)", 4, 1, 2, SET);
    tutti_error err;

    (void)state;
    d.loss = silent;
    assert_int_equal(run_refused(&d, &err), TUTTI_ERR_STATE);
    assert_non_null(strstr(err.text, "the loss of sample 0 of 4 was not reported in step 0"));
    dealt_drop(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_worker_matches_method_single_bit_for_bit),
        cmocka_unit_test(one_local_step_per_worker_matches_ddp),
        cmocka_unit_test(equal_steps_are_local_sgd_bit_for_bit),
        cmocka_unit_test(unbiased_epoch_uses_every_sample_once),
        cmocka_unit_test(slow_workers_take_the_samples_with_the_highest_scores),
        cmocka_unit_test(slow_workers_train_on_samples_with_higher_losses),
        cmocka_unit_test(averaging_follows_agg_mix_and_momentum_policy),
        cmocka_unit_test(rounds_are_complete_when_the_dataset_size_is_unknown),
        cmocka_unit_test(a_gradient_that_is_not_finite_is_found_in_a_local_step),
        cmocka_unit_test(traffic_is_one_all_reduce_per_round_plus_scores),
        cmocka_unit_test(zeroing_any_declared_state_changes_the_resumed_run),
        cmocka_unit_test(measured_steps_are_the_same_on_all_workers),
        cmocka_unit_test(invalid_options_are_rejected),
        cmocka_unit_test(unreported_loss_is_rejected_with_its_sample),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
