/* Goal: what stands on servers: parameter-server, asgd, ssp, backup-workers. Method: ddp's and
   single's bits; exact sums and exact traffic from pair to pair; and schedules that the gradients
   themselves enforce, by waiting for each other, so that delays are known and bounds are reached.
   Hundreds of other schedules are tests/explore's, resuming is tests/engine/state_test.c and
   tests/cli/server_test.py. */
#include <stdatomic.h>
#include <time.h>

#include "sanitized.h"
#include "trial.h"

static const int sizes[] = { 2, 3, 4, 5, 7, 8 };

/* ---- state of a schedule: shared by the ranks, which are threads ---- */
static _Atomic int begun[TRIAL_RANKS];         /* gradients that each has begun */
static atomic_int turn;                        /* gradients that are applied, in turns */
static atomic_bool late, beyond;               /* a wait was in vain; a bound was exceeded */
static int ranks, bound;

static void start_schedule(int n, int limit)
{
    for (int r = 0; r < TRIAL_RANKS; r++)
        begun[r] = 0;
    turn = 0;
    late = beyond = false;
    ranks = n;
    bound = limit;
}

static void nap(void)
{
    nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
}

/* Waits until `others` of the other workers have come that far, however slow this machine is; 20
   s at most. */
static void await_others(int others, int rank, int gradients)
{
    for (int k = 0; k < 200000; k++) {
        int there = 0;
        for (int r = 0; r < ranks; r++)
            there += r != rank && begun[r] >= gradients;
        if (there >= others)
            return;
        nap();
    }
    late = true;
}

/* ---- bits ---- */

static void check_bits(const char *method, const char *other, const char *optimizer, int n, double clip)
{
    trial a = trial_of(method, optimizer, 6), b = trial_of(other, optimizer, 6);

    a.options.clip_norm = b.options.clip_norm = clip;
    a.options.lr_schedule = b.options.lr_schedule = "cosine(warmup=2)";
    a.options.steps = b.options.steps = 6;
    trial_run(&a, n);
    trial_run(&b, n);
    for (int r = 0; r < n; r++)
        for (int s = 0; s <= 6; s++)
            if (!trial_same(&a, a.x[r][s], b.x[r][s]))
                fail_msg("%s with %s on %d: after step %d worker %d differs from %s", method, optimizer, n, s, r,
                         other);
    trial_drop(&a);
    trial_drop(&b);
}

static void the_parameter_server_has_the_bits_of_ddp(void **state)
{
    (void)state;
    for (size_t p = 0; p < FEW_OF(sizes); p++) {
        check_bits("parameter-server", "ddp", "sgd(lr=0.1,momentum=0.9)", sizes[p], 0);
        check_bits("parameter-server(bucket_mb=0.003,servers=2)", "ddp", "adamw(lr=0.01)", sizes[p], 5);
        check_bits("parameter-server(servers=1)", "ddp", "sgd(lr=0.1)", sizes[p], 0);
        check_bits("backup-workers(backup=0)", "ddp", "sgd(lr=0.1,momentum=0.9)", sizes[p], 0);
        check_bits("backup-workers(backup=0,servers=2)", "ddp", "adamw(lr=0.01)", sizes[p], 0);
    }
}

static void uneven_shares_are_weighted_by_their_samples(void **state)
{
    static const int64_t shares[] = { 1, 4, 0, 3 };

    (void)state;
    for (int k = 0; k < 2; k++) {
        trial a = trial_of(k == 0 ? "parameter-server(bucket_mb=0.003)" : "backup-workers(backup=0)",
                           "sgd(lr=0.1,momentum=0.9)", 5),
              b = trial_of("ddp", "sgd(lr=0.1,momentum=0.9)", 5);
        a.options.batch_of = b.options.batch_of = shares;
        a.options.data_samples = b.options.data_samples = 19; /* the last step of an epoch has 3 */
        trial_run(&a, 4);
        trial_run(&b, 4);
        for (int s = 0; s <= 5; s++)
            assert_true(trial_same(&a, a.x[1][s], b.x[1][s]));
        trial_drop(&a);
        trial_drop(&b);
    }
}

static float bad(int rank, uint64_t step, size_t i, float x)
{
    (void)rank;
    return step == 3 && i == 1010 ? NAN : x - (float)(i % 5);
}

static void one_worker_matches_method_single_bit_for_bit(void **state)
{
    static const char *const methods[] = {
        "parameter-server", "asgd", "asgd(lr_delay=inverse)", "asgd(lr_delay=n_over_max)", "asgd(lr_delay=poly)",
        "asgd(hogwild=on)", "asgd(hogwild=on,locks=row)", "asgd(hogwild=on,locks=full)", "asgd(lr_time=on)",
        "asgd(compensate=constant,lambda=3)", "asgd(compensate=adaptive)", "ssp", "ssp(staleness=0)",
        "ssp(staleness=0,staleness_max=2)", "backup-workers", "backup-workers(backup=0)",
    };
    static const char *const optimizers[] = { "sgd(lr=0.05,momentum=0.9,weight_decay=0.01)", "adamw(lr=0.01)" };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(methods); i++)
        for (size_t k = 0; k < 3; k++) {
            trial a, b;
            if (k == 2 && strncmp(methods[i], "backup", 6) == 0)
                continue; /* refuses to leave steps out */
            a = trial_of(methods[i], optimizers[k == 0 ? 0 : 1], 7);
            b = trial_of("single", optimizers[k == 0 ? 0 : 1], 7);
            a.options.clip_norm = b.options.clip_norm = strncmp(methods[i], "backup", 6) == 0 ? 0 : 9;
            a.options.nonfinite = b.options.nonfinite = k == 2 ? TUTTI_NONFINITE_SKIP : TUTTI_NONFINITE_STOP;
            a.options.lr_schedule = b.options.lr_schedule = "linear(warmup=3)";
            a.options.steps = b.options.steps = 7;
            if (k == 2)
                a.gradient = b.gradient = bad;
            trial_run(&a, 1);
            trial_run(&b, 1);
            /* hogwild's x is what a step began with */
            for (int s = strstr(methods[i], "hogwild") != NULL ? 7 : 0; s <= 7; s++)
                if (!trial_same(&a, a.x[0][s], b.x[0][s]))
                    fail_msg("%s with %s: differs after step %d", methods[i], optimizers[k == 0 ? 0 : 1], s);
            assert_int_equal(a.figures[0].skipped, k == 2);
            assert_int_equal(a.figures[0].bytes_sent + a.figures[0].messages_sent + a.figures[0].staleness_max, 0);
            trial_drop(&a);
            trial_drop(&b);
        }
}

/* ---- traffic: from pair to pair ---- */

/* Server k's part of n elements over s servers, at multiples of 16. */
static uint64_t part(uint64_t n, int s, int k)
{
    return (k + 1 == s ? n : n / 16 * (uint64_t)(k + 1) / (uint64_t)s * 16) - n / 16 * (uint64_t)k / (uint64_t)s * 16;
}

/* Counted after finish(), which may still run on one rank while the last step's answers of
   another are in flight: so the end sends nothing. */
static void parameter_server_sends_each_shard_once_each_way(void **state)
{
    static const uint64_t whole[] = { 1533 }, cut[] = { 1000, 533 };

    (void)state;
    for (size_t p = 0; p < FEW_OF(sizes); p++)
        for (int form = 0; form < 3; form++) {
            const int n = sizes[p], s = form < 2 ? n : 2;
            const uint64_t *piece = form == 0 ? whole : cut;
            trial t = trial_of(form == 0   ? "parameter-server"
                               : form == 1 ? "parameter-server(bucket_mb=0.003)"
                                           : "parameter-server(bucket_mb=0.003,servers=2)",
                               "sgd(lr=0.1)", 5);
            trial_run(&t, n);
            for (int i = 0; i < n; i++)
                for (int j = 0; j < n; j++) {
                    uint64_t elements = 0, messages = 0;
                    for (int k = 0; k < (form == 0 ? 1 : 2) && i != j; k++) {
                        /* what i asks of j, what i answers j */
                        elements += (j < s ? part(piece[k], s, j) : 0) + (i < s ? part(piece[k], s, i) : 0);
                        messages += (j < s) + (i < s);
                    }
                    if (t.bytes[i][j] != 5 * 4 * elements || t.messages[i][j] < 5 * messages)
                        fail_msg("%s on %d: %d sent %d %llu bytes in %llu messages, expected %llu in %llu", t.method, n,
                                 i, j, (unsigned long long)t.bytes[i][j], (unsigned long long)t.messages[i][j],
                                 (unsigned long long)(20 * elements), (unsigned long long)(5 * messages));
                }
            trial_drop(&t);
        }
}

/* A gradient up and a model down each, and an all-gather of the shards at the end. */
static void push_sends_a_gradient_and_returns_a_model(void **state)
{
    static const char *const methods[] = {
        "asgd", "asgd(servers=1)", "asgd(servers=2,softsync=2)", "asgd(compensate=adaptive)", "ssp(staleness=2)",
        "ssp(staleness=0,servers=1)",
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(methods); k++)
        for (size_t p = 0; p < FEW_OF(sizes); p++) {
            const int n = sizes[p], s = strstr(methods[k], "servers=1") != NULL   ? 1
                                        : strstr(methods[k], "servers=2") != NULL ? 2
                                                                                  : n;
            trial t = trial_of(methods[k], "sgd(lr=0.0625)", 6);
            uint64_t end = 0, beyond_pushes = 0;
            t.asks = strncmp(methods[k], "asgd", 4) == 0;
            trial_run(&t, n);
            for (int i = 0; i < n; i++)
                for (int j = 0; j < n; j++) {
                    const uint64_t pushes = i == j ? 0
                                                   : 4 * ((uint64_t)t.done[i] * (j < s ? part(1533, s, j) : 0) +
                                                          (uint64_t)t.done[j] * (i < s ? part(1533, s, i) : 0));
                    assert_true(t.bytes[i][j] >= pushes);
                    beyond_pushes += t.bytes[i][j] - pushes;
                }
            for (int i = 0; i < n; i++)
                end += t.end_bytes[i];
            assert_int_equal(beyond_pushes, (uint64_t)(n - 1) * 4 * 1533);
            assert_true(end >= beyond_pushes);
            trial_drop(&t);
        }
}

/* ---- sums ---- */

/* Gradients that do not depend on the model, all numbers dyadic: whatever comes first, what is left
   is x0 less all of them, exactly. */
static void no_gradient_is_lost_or_counted_twice(void **state)
{
    static const struct {
        const char *method;
        bool even;
        int of;
    } cases[] = { { "asgd", false, 1 },
                  { "asgd(servers=1)", false, 1 },
                  { "asgd(softsync=2)", false, 2 },
                  { "asgd(softsync=2,servers=1)", false, 2 },
                  { "ssp", true, 1 },
                  { "ssp(staleness=0,servers=1)", true, 1 },
                  { "ssp(staleness=1000)", true, 1 },
                  { "ssp(staleness=0,staleness_max=4)", true, 1 },
                  { "ssp(staleness=1,staleness_max=9,servers=1)", true, 1 } };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(cases); k++)
        for (size_t p = 0; p < FEW_OF(sizes); p++)
            for (int kind = 0; kind < 3; kind++) {
                const int n = sizes[p];
                /* 8 n gradients: any softsync=2 is full at the end */
                trial t = trial_of(cases[k].method, "sgd(lr=0.0625)", 8);
                if (cases[k].even && (n & (n - 1)) != 0)
                    continue; /* 1/n has to be dyadic, too */
                t.gradient = trial_constant;
                t.asks = kind == 1 && !cases[k].even;
                t.show = kind == 2;
                trial_run(&t, n);
                for (size_t i = 0; i < trial_size(&t); i++) {
                    double want = trial_initial_value(i);
                    for (int r = 0; r < n; r++)
                        /* softsync: means */
                        want -=
                            0.0625 * t.done[r] * (double)trial_constant(r, 0, i, 0) / (cases[k].even ? n : cases[k].of);
                    for (int r = 0; r < n; r++)
                        if (t.x[r][8][i] != (float)want)
                            fail_msg("%s on %d, worker %d, element %zu: %.9g, expected %.9g", t.method, n, r, i,
                                     (double)t.x[r][8][i], want);
                }
                trial_drop(&t);
            }
}

/* ---- asgd: delays ---- */

/* Worker 0's gradient, worker 1's, ..., again and again. When a worker begins its next one its
   last one has been applied. The last one of each is 0, and comes after all others. */
enum { TURNS = 6 };
static float in_turns(int rank, uint64_t step, size_t i, float x)
{
    if (i == 0) {
        const int mine = (int)step * ranks + (step < TURNS ? rank : 0);
        if (step > 0)
            turn = (int)(step - 1) * ranks + rank + 1;
        for (int k = 0; k < 200000 && turn < mine; k++)
            nap();
        if (turn < mine)
            late = true;
    }
    return step < TURNS ? x - (float)((rank * 13 + (int)(i % 17)) % 19) / 8 : 0;
}

static double eta_of(const char *method, int n, double delay)
{
    if (strstr(method, "inverse") != NULL)
        return delay > 1 ? 1 / delay : 1;
    if (strstr(method, "n_over_max") != NULL)
        return delay > n ? n / delay : 1;
    return strstr(method, "poly") != NULL ? pow(1 + delay, -0.25) : 1;
}

/* What a gradient is compensated by for x having moved by `moved`; mean: that of its squares. */
static double compensation_of(const char *method, double g, double moved, double *mean)
{
    if (strstr(method, "constant") != NULL)
        return (strstr(method, "lambda") != NULL ? 0.5 : 0.04) * g * g * moved;
    if (strstr(method, "adaptive") == NULL)
        return 0;
    *mean = 0.75 * *mean + 0.25 * g * g;
    return 0.25 / sqrt(*mean + 1e-7) * g * g * moved;
}

static void gradient_is_applied_according_to_its_delay(void **state)
{
    static const struct {
        const char *method;
        int softsync;
    } cases[] = { { "asgd", 1 },
                  { "asgd(servers=1)", 1 },
                  { "asgd(lr_delay=inverse)", 1 },
                  { "asgd(lr_delay=n_over_max,servers=2)", 1 },
                  { "asgd(lr_delay=poly,exponent=0.25)", 1 },
                  { "asgd(softsync=2,lr_delay=inverse)", 2 },
                  { "asgd(softsync=2)", 2 },
                  { "asgd(compensate=constant)", 1 },
                  { "asgd(compensate=constant,lambda=0.5,softsync=2)", 2 },
                  { "asgd(compensate=adaptive,lambda=0.25,mean_decay=0.75)", 1 },
                  { "asgd(compensate=adaptive,lambda=0.25,mean_decay=0.75,servers=1,lr_delay=poly,exponent=0.25)",
                    1 } };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(cases); k++)
        for (int n = 2; n <= 5; n++) {
            trial t = trial_of(cases[k].method, "sgd(lr=0.125)", TURNS + 1);
            const bool full = TURNS * n % cases[k].softsync == 0;
            uint64_t stalest = 0;
            t.gradient = in_turns;
            start_schedule(n, 0);
            trial_run(&t, n);
            assert_false(late);
            for (size_t i = 0; i < trial_size(&t) && full; i += 7) {
                double w = trial_initial_value(i), at[TRIAL_RANKS], sum = 0, mean = 0;
                uint64_t version = 0, got[TRIAL_RANKS] = { 0 };
                for (int r = 0; r < n; r++)
                    at[r] = w;
                for (int g = 0; g < TURNS * n; g++) {
                    const int r = g % n;
                    const uint64_t delay = version - got[r];
                    const double gradient = at[r] - (double)((r * 13 + (int)(i % 17)) % 19) / 8;
                    sum += eta_of(t.method, n, (double)delay) *
                           (gradient + compensation_of(t.method, gradient, w - at[r], &mean)) / cases[k].softsync;
                    if ((g + 1) % cases[k].softsync == 0) {
                        w -= 0.125 * sum;
                        sum = 0;
                        version++;
                    }
                    at[r] = w;
                    got[r] = version;
                    stalest = delay > stalest ? delay : stalest;
                }
                if (!(fabs(t.x[0][TURNS + 1][i] - w) < 4e-6))
                    fail_msg("%s on %d, element %zu: %.9g, expected %.9g", t.method, n, i, (double)t.x[0][TURNS + 1][i],
                             w);
            }
            /* delays are r in the first turn, n - 1 from then on; only those of the last
               gradient, which is 0, are not under the test's control */
            if (cases[k].softsync == 1) {
                assert_int_equal(stalest, n - 1);
                assert_true(t.figures[0].staleness_max >= stalest && t.figures[0].staleness_max <= 2 * stalest);
            }
            trial_drop(&t);
        }
}

/* ---- ssp: the bound ---- */

/* The others run ahead of worker 0 as far as allowed. */
static float ahead(int rank, uint64_t step, size_t i, float x)
{
    if (i == 0) {
        begun[rank]++;
        for (int r = 0; r < ranks; r++) /* a worker that begins step c has had the first c - bound gradients of all */
            if (begun[r] < (int)step - bound)
                beyond = true;
        if (rank == 0 && step == 0) {
            await_others(ranks - 1, 0, bound + 1);
            for (int k = 0; k < 100; k++)
                nap(); /* time for a worker that would go too far */
            for (int r = 1; r < ranks; r++)
                if (begun[r] > bound + 1)
                    beyond = true;
        }
    }
    return x - (float)(rank + (int)(i % 5));
}

static void ssp_staleness_bound_is_reached_and_not_exceeded(void **state)
{
    (void)state;
    for (int staleness = 0; staleness <= 5; staleness += staleness < 2 ? 1 : 3)
        for (int n = 2; n <= 5; n += 3)
            for (int servers = 0; servers < 2; servers++) {
                char method[60];
                uint64_t stalest = 0;
                trial t = trial_of(method, "sgd(lr=0.0625)", 10);
                snprintf(method, sizeof method, "ssp(staleness=%d,servers=%d)", staleness, servers);
                t.gradient = ahead;
                start_schedule(n, staleness);
                trial_run(&t, n);
                if (late || beyond)
                    fail_msg("%s on %d: %s", method, n,
                             late ? "the others do not come that far ahead" : "somebody is too far ahead");
                for (int r = 0; r < n; r++)
                    stalest = t.figures[r].staleness_max > stalest ? t.figures[r].staleness_max : stalest;
                assert_int_equal(stalest, staleness);
                trial_drop(&t);
            }
}

/* Whatever the recent speeds: S_lo is reached while worker 0 has not pushed, since nothing is
   known of it then, and S_hi is never exceeded. */
static void adaptive_staleness_stays_within_its_limits(void **state)
{
    (void)state;
    for (int low = 0; low <= 2; low++)
        for (int n = 2; n <= 5; n += 3) {
            char method[60];
            uint64_t stalest = 0;
            trial t = trial_of(method, "sgd(lr=0.0625)", 10);
            snprintf(method, sizeof method, "ssp(staleness=%d,staleness_max=%d)", low, low + 3);
            t.gradient = ahead;
            start_schedule(n, low);
            ranks = n;
            trial_run(&t, n);
            assert_false(late); /* `beyond` is of staleness alone */
            for (int r = 0; r < n; r++)
                stalest = t.figures[r].staleness_max > stalest ? t.figures[r].staleness_max : stalest;
            if (stalest < (uint64_t)low || stalest > (uint64_t)low + 3)
                fail_msg("%s on %d: a staleness of %llu", method, n, (unsigned long long)stalest);
            trial_drop(&t);
        }
}

static float of_this_worker(int rank, uint64_t step, size_t i, float x)
{
    (void)step;
    (void)i;
    (void)x;
    return (float)(1 << 4 * rank);
}

/* Each worker's gradients are a power of 16 of its own. So every element of every model shows how
   many gradients of each worker are in it: all of one's own, never fewer of any worker than
   before, and under ssp all of every worker's but the last `staleness`. */
static void reads_include_own_writes_and_are_monotonic(void **state)
{
    enum { N = 4, STEPS = 12 };
    static const struct {
        const char *method;
        int staleness;
    } cases[] = { { "asgd", -1 },
                  { "asgd(servers=2)", -1 },
                  { "ssp(staleness=0)", 0 },
                  { "ssp(staleness=1)", 1 },
                  { "ssp(staleness=3,servers=2)", 3 },
                  { "ssp(staleness=1,staleness_max=3)", 3 },
                  { "ssp(staleness=1000)", -1 } };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(cases); k++) {
        /* ssp: of the mean over the four */
        trial t = trial_of(cases[k].method, strncmp(cases[k].method, "ssp", 3) == 0 ? "sgd(lr=4)" : "sgd(lr=1)", STEPS);
        t.gradient = of_this_worker;
        trial_run(&t, N);
        for (int r = 0; r < N; r++)
            for (size_t i = 0; i < trial_size(&t); i++) {
                int last[N] = { 0 };
                for (int s = 0; s < STEPS; s++) {
                    const double sum = (double)trial_initial_value(i) - (double)t.x[r][s][i];
                    for (int j = 0; j < N; j++) {
                        const int count = (int)sum >> 4 * j & 15,
                                  least = j == r ? s + 1
                                          : cases[k].staleness >= 0 && s + 1 - cases[k].staleness > last[j]
                                              ? s + 1 - cases[k].staleness
                                              : last[j];
                        if (sum != floor(sum) || count < least || (j == r && count != s + 1))
                            fail_msg("%s, worker %d, step %d, element %zu: %d gradients of worker %d, and %d at least "
                                     "are due",
                                     t.method, r, s, i, count, j, least);
                        last[j] = count;
                    }
                }
            }
        trial_drop(&t);
    }
}

static void ssp_with_zero_staleness_matches_ddp(void **state)
{
    (void)state;
    for (size_t p = 0; p < FEW_OF(sizes); p++) {
        trial a = trial_of("ssp(staleness=0)", "sgd(lr=0.125)", 8), b = trial_of("ddp", "sgd(lr=0.125)", 8);
        trial_run(&a, sizes[p]);
        trial_run(&b, sizes[p]);
        for (int r = 0; r < sizes[p]; r++)
            for (int s = 0; s <= 8; s++)
                assert_true(trial_apart(&a, a.x[r][s], b.x[r][s]) < 2e-6);
        trial_drop(&a);
        trial_drop(&b);
    }
}

/* ---- backup-workers ---- */

/* Element i counts the gradients of worker i mod n. The last worker computes its first gradient
   when at least one other is two steps further. */
static float count_mine(int rank, uint64_t step, size_t i, float x)
{
    (void)x;
    if (i == 0) {
        begun[rank]++;
        if (bound > 0 && rank == ranks - 1 && step == 0)
            await_others(1, rank, 3);
    }
    return (int)(i % (size_t)ranks) == rank ? 1 : 0;
}

static void step_uses_exactly_the_first_gradients_never_late_ones(void **state)
{
    /* workers - backup is a power of two: means are exact */
    static const int cases[][2] = { { 2, 1 }, { 3, 1 }, { 3, 2 }, { 4, 2 }, { 5, 1 }, { 5, 3 }, { 8, 4 }, { 8, 6 } };
    enum { STEPS = 12 };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(cases); c++)
        for (int form = 0; form < 4; form++) {
            const int n = cases[c][0], needed = n - cases[c][1];
            char method[60];
            double taken[TRIAL_RANKS], all = 0;
            trial t = trial_of(method, "sgd(lr=1)", STEPS);
            snprintf(method, sizeof method, "backup-workers(backup=%d,servers=%d)", cases[c][1], form % 2);
            t.gradient = count_mine;
            t.show = form == 3;
            start_schedule(n, form < 3);
            if (form == 2)
                bound = 0;
            if (form == 3)
                bound = 0;
            trial_run(&t, n);
            assert_false(late);
            for (int r = 0; r < n; r++) {
                taken[r] = (trial_initial_value((size_t)r) - t.x[0][STEPS][r]) * needed;
                all += taken[r];
                assert_true(taken[r] >= 0 && taken[r] <= begun[r] && taken[r] == floor(taken[r]));
            }
            for (int r = 0; r < n; r++)
                /* those of gradients that were taken, and no others */
                if (t.figures[r].samples != (uint64_t)(STEPS * needed * t.options.batch))
                    fail_msg("%s on %d: worker %d counts %llu samples in %d steps of %d gradients", method, n, r,
                             (unsigned long long)t.figures[r].samples, STEPS, needed);
            if (all != STEPS * needed)
                fail_msg("%s on %d: %g gradients were taken in %d steps of %d", method, n, all, STEPS, needed);
            for (size_t i = 0; i < trial_size(&t); i++) /* the same ones in all shards, on all workers */
                for (int r = 0; r < n; r++)
                    if (t.x[r][STEPS][i] != trial_initial_value(i) - (float)(taken[i % (size_t)n] / needed))
                        fail_msg("%s on %d, worker %d: element %zu has taken other gradients than the first slice",
                                 method, n, r, i);
            if (bound > 0)
                /* step 0's, and at least one that it skipped */
                assert_true(taken[n - 1] <= STEPS - 2 && begun[n - 1] <= STEPS - 1);
            trial_drop(&t);
        }
}

static void traffic_is_bounded_by_the_gradients_a_step_uses(void **state)
{
    (void)state;
    trial t = trial_of("backup-workers(backup=2,servers=1)", "sgd(lr=1)", 12);
    uint64_t up = 0;
    t.gradient = count_mine;
    start_schedule(5, 0);
    trial_run(&t, 5);
    for (int r = 1; r < 5; r++)
        up += t.bytes[r][0];
    up += 0; /* worker 0's own stay at home: of 3 a step at most one is its */
    assert_true(up <= 12 * 3 * 4 * 1533 && up >= 12 * 2 * 4 * 1533 && up % (4 * 1533) == 0);
    trial_drop(&t);
}

/* ---- hogwild ---- */

static atomic_bool torn;

/* All elements that one lock covers have had the same updates when they are read.
   bound: 1: a lock a tensor, 0: one. */

static float looks_around(int rank, uint64_t step, size_t i, float x)
{
    static const size_t ends[] = { 1000, 1033, 1533 };
    static _Thread_local float first; /* updates in the first element that this lock covers */

    (void)rank;
    (void)step;
    if (i == 0 || (bound == 1 && (i == ends[0] || i == ends[1])))
        first = trial_initial_value(i) - x;
    if (trial_initial_value(i) - x != first)
        torn = true;
    return 1;
}

/* Each element has all 12 n updates by 1, in whatever order, where without locks some would be
   lost; what a lock covers is read whole. */
static void locked_hogwild_has_no_lost_updates_or_torn_reads(void **state)
{
    (void)state;
    for (int n = 1; n <= 8; n += n == 1 ? 1 : 2)
        for (int rows = 0; rows < 2; rows++) {
            trial t =
                trial_of(rows ? "asgd(hogwild=on,locks=row)" : "asgd(hogwild=on,locks=full)", "sgd(lr=0.0625)", 12);
            t.gradient = looks_around;
            t.asks = n % 4 == 0;
            t.show = n == 6;
            start_schedule(n, rows);
            torn = false;
            trial_run(&t, n);
            if (torn)
                fail_msg("%s on %d: a read has an update in part", t.method, n);
            for (size_t i = 0; i < trial_size(&t); i++)
                for (int r = 0; r < n; r++)
                    if (t.x[r][12][i] != trial_initial_value(i) - 0.0625f * 12 * (float)n)
                        fail_msg("%s on %d: element %zu has %g updates of %d", t.method, n, i,
                                 (double)(trial_initial_value(i) - t.x[r][12][i]) * 16, 12 * n);
            assert_int_equal(t.figures[0].bytes_sent, 0);
            trial_drop(&t);
        }
}

#if !SANITIZED_THREAD
static float one(int rank, uint64_t step, size_t i, float x)
{
    (void)rank;
    (void)step;
    (void)i;
    (void)x;
    return 1;
}

static void hogwild_may_lose_an_update_but_tears_none(void **state)
{
    (void)state;
    for (int n = 1; n <= 4; n++) {
        trial t = trial_of("asgd(hogwild=on)", "sgd(lr=0.0625)", 12);
        double most = 0;
        t.gradient = one;
        t.asks = n % 2 == 0;
        t.show = n == 3;
        trial_run(&t, n);
        for (size_t i = 0; i < trial_size(&t); i++) {
            const double updates = (trial_initial_value(i) - t.x[0][12][i]) * 16;
            assert_true(updates == floor(updates) && updates >= 1 && updates <= 12 * n);
            most = updates > most ? updates : most;
            for (int r = 1; r < n; r++)
                assert_true(t.x[r][12][i] == t.x[0][12][i]);
        }
        if (t.show)
            assert_true(most > 12); /* it is one model, not three */
        assert_int_equal(t.figures[0].bytes_sent, 0);
        trial_drop(&t);
    }
}
#endif

/* ---- what cannot work ---- */

static tutti_status refused(const char *method, int n, tutti_error *err)
{
    trial t = trial_of(method, "sgd(lr=0.1)", 2);
    const tutti_status status = trial_try(&t, n, err);
    trial_drop(&t);
    return status;
}

static void option_bounds_are_enforced_and_conflicts_rejected(void **state)
{
    static const char *const fine[] = {
        "parameter-server(servers=3)", "asgd(softsync=3,servers=3)", "asgd(lr_delay=poly,exponent=0)",
        "ssp(staleness=1000000000)", "backup-workers(backup=2)", "asgd(exponent=0.5)",
        "asgd(compensate=adaptive,mean_decay=0,lambda=1000000)",
    };
    static const char *const wrong[] = {
        "parameter-server(servers=-1)", "parameter-server(servers=4)", "parameter-server(bucket_mb=0)",
        "asgd(servers=4)", "asgd(softsync=0)", "asgd(lr_delay=fast)", "asgd(lr_delay=poly,exponent=-1)",
        "ssp(staleness=-1)", "ssp(staleness=1000000001)", "ssp(servers=4)", "backup-workers(backup=-1)",
        "asgd(hogwild=maybe)", "asgd(compensate=constant,lambda=-1)", "asgd(compensate=adaptive,mean_decay=1)",
    };
    tutti_error err;
    trial t;

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(fine); i++)
        if (refused(fine[i], 3, &err) != TUTTI_OK)
            fail_msg("%s: %s", fine[i], err.text);
    for (size_t i = 0; i < TUTTI_LENGTH(wrong); i++)
        if (refused(wrong[i], 3, &err) != TUTTI_ERR_USAGE)
            fail_msg("%s was not refused", wrong[i]);
    assert_int_equal(refused("ssp(servers=4)", 3, &err), TUTTI_ERR_USAGE);
    assert_string_equal(err.text, "method 'ssp': servers is 4, but there are 3 workers, and each serves once at "
                                  "most; 0 lets all of them serve");
    assert_int_equal(refused("asgd(softsync=4)", 3, &err), TUTTI_ERR_USAGE);
    assert_string_equal(err.text, "method 'asgd': softsync is 4 gradients an update, but only 3 workers have one under "
                                  "way at a time; give at most that");
    assert_int_equal(refused("asgd(exponent=2)", 3, &err), TUTTI_ERR_USAGE);
    assert_string_equal(
        err.text,
        "method 'asgd': option 'exponent' has no effect with lr_delay=none; it needs lr_delay=poly, or omit it");
    assert_int_equal(refused("asgd(hogwild=on,lr_delay=inverse)", 3, &err), TUTTI_ERR_USAGE);
    assert_non_null(strstr(err.text, "option 'lr_delay' has no effect with hogwild=true; it needs hogwild=off"));
    assert_int_equal(refused("asgd(hogwild=on,lr_time=on)", 3, &err), TUTTI_ERR_USAGE);
    assert_non_null(strstr(err.text, "option 'lr_time' has no effect with hogwild=true; it needs hogwild=off"));
    assert_int_equal(refused("asgd(hogwild=on,servers=1)", 3, &err), TUTTI_ERR_USAGE);
    assert_int_equal(refused("asgd(hogwild=on,softsync=2)", 3, &err), TUTTI_ERR_USAGE);
    assert_int_equal(refused("asgd(locks=row)", 3, &err), TUTTI_ERR_USAGE);
    assert_string_equal(
        err.text,
        "method 'asgd': option 'locks' has no effect with hogwild=false; it needs hogwild=on, or omit it");
    assert_int_equal(refused("ssp(staleness=3,staleness_max=2)", 3, &err), TUTTI_ERR_USAGE);
    assert_string_equal(err.text, "method 'ssp': staleness_max is 2, but staleness, the least that is let, is 3; give "
                                  "at least that, or omit staleness_max");
    assert_int_equal(refused("asgd(hogwild=on,compensate=constant)", 3, &err), TUTTI_ERR_USAGE);
    assert_non_null(strstr(err.text, "option 'compensate' has no effect with hogwild=true"));
    assert_int_equal(refused("asgd(lambda=2)", 3, &err), TUTTI_ERR_USAGE);
    assert_string_equal(err.text, "method 'asgd': option 'lambda' has no effect with compensate=none; it needs "
                                  "compensate=constant|adaptive, or omit it");
    assert_int_equal(refused("backup-workers(backup=3)", 3, &err), TUTTI_ERR_USAGE);
    assert_string_equal(
        err.text, "method 'backup-workers': backup is 3 of 3 workers, which leaves none to wait for; give at most 2");
    t = trial_of("backup-workers", "sgd(lr=0.1)", 2);
    t.options.clip_norm = 1;
    assert_int_equal(trial_try(&t, 3, &err), TUTTI_ERR_USAGE);
    assert_string_equal(err.text, "clip-norm is 1, but method 'backup-workers' updates shard by shard, and no worker "
                                  "has the whole mean gradient; leave clip-norm at 0");
    t.method = "parameter-server";
    t.options.collective = "ring(order=any)";
    assert_int_equal(trial_try(&t, 3, &err), TUTTI_ERR_USAGE);
    assert_string_equal(err.text, "collective is 'ring(order=any)', but method 'parameter-server' sums at servers, by "
                                  "no collective; leave it at auto");
    trial_drop(&t);
}

static void nonfinite_gradient_ends_the_run_or_is_skipped(void **state)
{
    static const char *const methods[] = {
        "parameter-server", "asgd", "asgd(softsync=2)", "ssp(staleness=1)", "backup-workers(backup=0)",
        "backup-workers",
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(methods); k++) {
        trial t = trial_of(methods[k], "sgd(lr=0.0625)", 6);
        tutti_error err;
        t.gradient = trial_bad;
        if (strcmp(methods[k], "backup-workers") != 0) { /* where it may be the one that is dropped */
            assert_int_equal(trial_try(&t, 4, &err), TUTTI_ERR_NUMBER);
            assert_non_null(strstr(err.text, "worker 1: the gradient of b is nan at element 10 in step 3"));
        }
        t.options.nonfinite = TUTTI_NONFINITE_SKIP;
        if (strncmp(methods[k], "backup", 6) == 0) {
            assert_int_equal(trial_try(&t, 4, &err), TUTTI_ERR_USAGE);
            assert_string_equal(err.text, "nonfinite=skip may skip a step, but method 'backup-workers' updates shard "
                                          "by shard without a message among all workers; leave nonfinite at stop");
            trial_drop(&t);
            continue;
        }
        trial_run(&t, 4);
        for (size_t i = 0; i < trial_size(&t); i++)
            assert_true(isfinite(t.x[1][6][i]));
        if (strcmp(methods[k], "parameter-server") == 0) /* ddp's rule: no worker makes that step */
            assert_true(t.x[0][6][5] == trial_initial_value(5) - 5 * 0.0625f);
        trial_drop(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_parameter_server_has_the_bits_of_ddp),
        cmocka_unit_test(uneven_shares_are_weighted_by_their_samples),
        cmocka_unit_test(one_worker_matches_method_single_bit_for_bit),
        cmocka_unit_test(parameter_server_sends_each_shard_once_each_way),
        cmocka_unit_test(push_sends_a_gradient_and_returns_a_model),
        cmocka_unit_test(no_gradient_is_lost_or_counted_twice),
        cmocka_unit_test(gradient_is_applied_according_to_its_delay),
        cmocka_unit_test(ssp_staleness_bound_is_reached_and_not_exceeded),
        cmocka_unit_test(reads_include_own_writes_and_are_monotonic),
        cmocka_unit_test(ssp_with_zero_staleness_matches_ddp),
        cmocka_unit_test(step_uses_exactly_the_first_gradients_never_late_ones),
        cmocka_unit_test(traffic_is_bounded_by_the_gradients_a_step_uses),
        cmocka_unit_test(adaptive_staleness_stays_within_its_limits),
        cmocka_unit_test(locked_hogwild_has_no_lost_updates_or_torn_reads),
#if !SANITIZED_THREAD /* its races are what it is */
        cmocka_unit_test(hogwild_may_lose_an_update_but_tears_none),
#endif
        cmocka_unit_test(option_bounds_are_enforced_and_conflicts_rejected),
        cmocka_unit_test(nonfinite_gradient_ends_the_run_or_is_skipped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
