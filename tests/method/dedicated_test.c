/* Goal: ranks that only serve (engine_options.servers): the workers' numbers are those of a run
   of that many workers, a rank that serves has shards and computes nothing, traffic from pair to
   pair is the formula's, and a checkpoint resumes with any number of servers. Method: ddp's and
   single's bits, exact sums, exact traffic. */
#include <unistd.h>

#include "scratch.h"
#include "trial.h"

static const struct { int workers, servers; } sizes[] = { { 1, 1 }, { 2, 1 }, { 2, 3 }, { 3, 2 }, { 4, 1 }, { 5, 3 } };

/* ---- bits ---- */

static void check_bits(const char *method, const char *other, const char *optimizer, int n, int servers, double clip,
                       bool show)
{
    trial a = trial_served(method, optimizer, 6, servers), b = trial_of(other, optimizer, 6);

    a.options.clip_norm = b.options.clip_norm = clip;
    a.options.lr_schedule = b.options.lr_schedule = "cosine(warmup=2)";
    a.options.steps = b.options.steps = 6;
    a.show = show;
    trial_run(&a, n + servers);
    trial_run(&b, n);
    assert_int_equal(a.workers, n);
    for (int r = 0; r < n; r++)
        for (int s = 0; s <= 6; s++)
            if (!trial_same(&a, a.x[r][s], b.x[r][s]))
                fail_msg("%s with %s on %d and %d servers: after step %d worker %d differs from %s", method, optimizer,
                         n, servers, s, r, other);
    assert_int_equal(a.figures[0].samples, b.figures[0].samples);
    for (int r = n; r < n + servers; r++)
        assert_int_equal(a.figures[r].own_steps, 0);
    trial_drop(&a);
    trial_drop(&b);
}

static void synchronous_methods_have_the_bits_of_ddp(void **state)
{
    (void)state;
    for (size_t p = 0; p < TUTTI_LENGTH(sizes); p++) {
        const int n = sizes[p].workers, s = sizes[p].servers;
        check_bits("parameter-server", "ddp", "sgd(lr=0.1,momentum=0.9)", n, s, 0, false);
        check_bits("parameter-server(bucket_mb=0.003)", "ddp", "adamw(lr=0.01)", n, s, 5, true);
        check_bits("backup-workers(backup=0)", "ddp", "sgd(lr=0.1,momentum=0.9)", n, s, 0, true);
        check_bits("backup-workers(backup=0)", "ddp", "adamw(lr=0.01)", n, s, 0, false);
    }
}

static void one_worker_matches_method_single_bit_for_bit(void **state)
{
    static const char *const methods[] = {
        "asgd", "asgd(lr_delay=poly)", "asgd(softsync=1)", "ssp", "ssp(staleness=0)", "ringmaster-asgd", "dude-asgd",
        "oscars", "oscars(interval=2,weights=normalised)", "decoupled-diloco(outer=none,period=2)",
        "backup-workers", "parameter-server",
    };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(methods); i++)
        for (int servers = 1; servers <= 2; servers++)
            for (int show = 0; show < 2; show++)
                if (servers == 1 || (strncmp(methods[i], "ring", 4) != 0 && strncmp(methods[i], "dude", 4) != 0 &&
                                     strncmp(methods[i], "oscars", 6) != 0 && strncmp(methods[i], "decoupled", 9) != 0))
                    check_bits(methods[i], "single", "adamw(lr=0.01)", 1, servers,
                               strncmp(methods[i], "backup", 6) == 0 ? 0 : 9, show != 0);
}

static float bad(int rank, uint64_t step, size_t i, float x)
{
    (void)rank;
    return step == 3 && i == 1010 ? NAN : x - (float)(i % 5);
}

static void a_skipped_step_is_decided_by_the_workers_alone(void **state)
{
    trial a = trial_served("parameter-server", "sgd(lr=0.1)", 6, 2), b = trial_of("ddp", "sgd(lr=0.1)", 6);

    (void)state;
    a.gradient = b.gradient = bad;
    a.options.nonfinite = b.options.nonfinite = TUTTI_NONFINITE_SKIP;
    trial_run(&a, 5);
    trial_run(&b, 3);
    assert_true(trial_same(&a, a.x[2][6], b.x[2][6]));
    assert_int_equal(a.figures[0].skipped, 1);
    trial_drop(&a);
    trial_drop(&b);
}

static void uneven_shares_and_short_steps_match_ddp(void **state)
{
    static const int64_t shares[] = { 1, 4, 0, 3 };
    trial a = trial_served("parameter-server(bucket_mb=0.003)", "sgd(lr=0.1,momentum=0.9)", 5, 2),
          b = trial_of("ddp", "sgd(lr=0.1,momentum=0.9)", 5);

    (void)state;
    a.options.batch_of = b.options.batch_of = shares;
    a.options.data_samples = b.options.data_samples = 19;
    trial_run(&a, 6);
    trial_run(&b, 4);
    for (int s = 0; s <= 5; s++)
        assert_true(trial_same(&a, a.x[1][s], b.x[1][s]));
    trial_drop(&a);
    trial_drop(&b);
}

/* ---- sums ---- */

static void no_gradient_is_lost_or_counted_twice(void **state)
{
    static const struct {
        const char *method;
        bool even;
        int of;
    } cases[] = { { "asgd", false, 1 },
                  { "asgd(softsync=2)", false, 2 },
                  { "ssp", true, 1 },
                  { "ssp(staleness=0)", true, 1 },
                  { "ringmaster-asgd(max_delay=-1)", false, 1 } };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(cases); k++)
        for (size_t p = 0; p < TUTTI_LENGTH(sizes); p++)
            for (int kind = 0; kind < 3; kind++) {
                const int n = sizes[p].workers,
                          servers = strncmp(cases[k].method, "ring", 4) == 0 ? 1 : sizes[p].servers;
                trial t = trial_served(cases[k].method, "sgd(lr=0.0625)", 8, servers);
                if ((cases[k].even && (n & (n - 1)) != 0) || cases[k].of > n)
                    continue;
                t.gradient = trial_constant;
                t.asks = kind == 1 && !cases[k].even;
                t.show = kind == 2;
                trial_run(&t, n + servers);
                for (size_t i = 0; i < trial_size(&t); i++) {
                    double want = trial_initial_value(i);
                    for (int r = 0; r < n; r++)
                        want -=
                            0.0625 * t.done[r] * (double)trial_constant(r, 0, i, 0) / (cases[k].even ? n : cases[k].of);
                    for (int r = 0; r < n; r++)
                        if (t.x[r][8][i] != (float)want)
                            fail_msg("%s on %d and %d servers, rank %d, element %zu: %.9g, expected %.9g", t.method, n,
                                     servers, r, i, (double)t.x[r][8][i], want);
                }
                for (int r = n; r < n + servers; r++)
                    assert_int_equal(t.done[r], 0);
                /* what the server has counted, as worker 0 reports it */
                if (servers == 1 && kind == 1 && strncmp(cases[k].method, "ring", 4) == 0) {
                    double applied = 0;
                    for (int r = 0; r < n; r++)
                        applied += trial_metric(&t, "applied", r);
                    assert_int_equal((int)applied, 8 * n);
                }
                trial_drop(&t);
            }
}

/* ---- traffic ---- */

static uint64_t part(uint64_t n, int s, int k)
{
    return (k + 1 == s ? n : n / 16 * (uint64_t)(k + 1) / (uint64_t)s * 16) - n / 16 * (uint64_t)k / (uint64_t)s * 16;
}

static void shards_travel_only_between_workers_and_servers(void **state)
{
    static const char *const methods[] = { "parameter-server", "backup-workers(backup=0)", "asgd", "ssp(staleness=1)" };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(methods); k++)
        for (size_t p = 0; p < TUTTI_LENGTH(sizes); p++) {
            const int n = sizes[p].workers, s = sizes[p].servers;
            const bool gathers = k > 1; /* at the end the shards go to every worker, and to no server */
            trial t = trial_served(methods[k], "sgd(lr=0.0625)", 5, s);
            uint64_t beyond = 0;
            if (k == 0 && n == 1)
                continue; /* nothing to sum: nothing is sent */
            trial_run(&t, n + s);
            for (int i = 0; i < n + s; i++)
                for (int j = 0; j < n + s; j++) {
                    const uint64_t slice = i < n && j >= n   ? part(1533, s, j - n)
                                           : i >= n && j < n ? part(1533, s, i - n)
                                                             : 0,
                                   want = 5 * 4 * slice;
                    if (i == j)
                        continue;
                    if (t.bytes[i][j] < want || (!gathers && t.bytes[i][j] != want))
                        fail_msg("%s on %d and %d servers: %d sent %d %llu bytes, expected %llu", t.method, n, s, i, j,
                                 (unsigned long long)t.bytes[i][j], (unsigned long long)want);
                    beyond += t.bytes[i][j] - want;
                }
            assert_int_equal(beyond, gathers ? (uint64_t)n * 4 * 1533 : 0);
            trial_drop(&t);
        }
}

/* ---- what is refused ---- */

static void check_refused(const char *method, int ranks, int servers, const char *sentence)
{
    trial t = trial_served(method, "sgd(lr=0.1)", 2, servers);
    tutti_error err;

    assert_int_equal(trial_try(&t, ranks, &err), TUTTI_ERR_USAGE);
    if (strstr(err.text, sentence) == NULL)
        fail_msg("%s with %d of %d ranks: '%s' does not say '%s'", method, servers, ranks, err.text, sentence);
    trial_drop(&t);
}

static void invalid_options_are_rejected(void **state)
{
    (void)state;
    check_refused("ddp", 3, 1, "method 'ddp' has no servers");
    check_refused("asgd(hogwild=on)", 3, 1, "hogwild has no servers");
    check_refused("asgd(servers=1)", 4, 2, "has 1 server, but 2 ranks only serve (servers); give --servers 1");
    check_refused("ringmaster-asgd", 4, 2, "has 1 server, but 2 ranks only serve");
    check_refused("asgd", 3, 3, "servers is 3, and the run has 3 ranks in all; from 0 to 2 of them may only serve");
    check_refused("asgd", 3, -1, "servers is -1");
    check_refused("asgd(softsync=3)", 4, 2, "only 2 workers have one under way");
    check_refused("backup-workers(backup=2)", 4, 2, "backup is 2 of 2 workers");
}

/* ---- checkpoints ---- */

typedef struct saved {
    trial t;
    const char *directory;
    int before, after;           /* steps before the checkpoint, and after it; 0: not saved, or not loaded */
} saved;

static tutti_status steps_of(saved *s, tutti_engine *e, int from, int n, tutti_error *err)
{
    const tutti_method *m = tutti_engine_method(e);
    bool more;

    for (int k = 0; k < n && m->rank < m->workers; k++)
        TUTTI_TRY(trial_step(&s->t, e, err));
    return m->rank < m->workers
               ? TUTTI_OK
               : tutti_engine_more(e, (uint64_t)((from + n) * (m->traits & TUTTI_ASYNC ? m->workers : 1)), &more,
                                   err);
}

static tutti_status saved_rank(tutti_world *world, void *arg, tutti_error *err)
{
    saved *s = arg;
    tutti_engine_options options = s->t.options;
    const tutti_param params[TRIAL_TENSORS] = {
        { .name = "c", .dims = 1, .dim = { 1000 }, .unit = 2 }, { .name = "b", .dims = 1, .dim = { 33 }, .unit = 1 },
        { .name = "a", .dims = 1, .dim = { 500 } },
    };
    trial_seat seat = { .t = &s->t };
    tutti_engine *e;
    tutti_status status;

    options.method = s->t.method;
    options.initial = trial_fill;
    options.user = &seat;
    status = tutti_engine_open(&e, world, params, TRIAL_TENSORS, &options, err);
    if (status == TUTTI_OK && s->before == 0) {
        tutti_checkpoint *c;
        char path[300];
        snprintf(path, sizeof path, "%s/step-%08d", s->directory, 4);
        status = tutti_checkpoint_open(&c, tutti_world_runtime(world), path, err);
        if (status == TUTTI_OK) {
            status = tutti_engine_load(e, c, err);
            tutti_checkpoint_close(c);
        }
    }
    if (status == TUTTI_OK)
        status = steps_of(s, e, s->before == 0 ? 4 : 0, s->before == 0 ? s->after : s->before, err);
    if (status == TUTTI_OK && s->before > 0)
        status = tutti_engine_save(e, s->directory, "{}", 0, err);
    if (status == TUTTI_OK && s->before > 0 && s->after > 0)
        status = steps_of(s, e, s->before, s->after, err);
    if (status == TUTTI_OK)
        status = tutti_engine_finish(e, err);
    if (status == TUTTI_OK && tutti_world_rank(world) < tutti_engine_method(e)->workers)
        memcpy(s->t.x[tutti_world_rank(world)][0], tutti_engine_method(e)->x, trial_size(&s->t) * sizeof(float));
    tutti_engine_close(e);
    return status;
}

static void run_saved(saved *s, int ranks)
{
    tutti_error err = { .rank = -1 };

    for (int r = 0; r < ranks; r++)
        if (s->t.x[r][0] == NULL)
            assert_non_null(s->t.x[r][0] = tutti_alloc(1533, sizeof(float)));
    if (tutti_world_run("shm", ranks, saved_rank, s, &err) != TUTTI_OK)
        fail_msg("%s, %d of %d ranks serve, from step %d: %s", s->t.method, s->t.options.servers, ranks,
                 s->before == 0 ? 4 : 0, err.text);
}

/* Saved with some servers and continued with others, the bits are those of the run that was not
   interrupted. With one worker asgd and its relatives have no choice of order, so their bits are
   the same, too: adam counts updates, so versions must be right. */
static void checkpoint_resumes_with_any_number_of_servers(void **state)
{
    static const struct {
        const char *method, *optimizer;
        int workers;
    } cases[] = { { "parameter-server", "sgd(lr=0.1,momentum=0.9)", 3 },
                  { "herring(node=none,fusion_mb=0.001,min_shard_kb=0)", "adamw(lr=0.01)", 3 },
                  { "byteps(partition_bytes=1000)", "adamw(lr=0.01)", 3 },
                  { "byteps(async=on)", "sgd(lr=0.0625)", 1 },
                  { "parameter-server", "adamw(lr=0.01)", 2 },
                  { "backup-workers(backup=0)", "adamw(lr=0.01)", 3 },
                  { "asgd", "adamw(lr=0.01)", 1 },
                  { "ssp", "adamw(lr=0.01)", 1 },
                  { "asgd(lr_delay=inverse)", "sgd(lr=0.1,momentum=0.9)", 1 },
                  { "asgd(compensate=adaptive)", "sgd(lr=0.1)", 1 },
                  { "ringmaster-asgd", "adamw(lr=0.01)", 1 },
                  { "ringleader-asgd", "adamw(lr=0.01)", 1 },
                  { "dude-asgd", "adamw(lr=0.01)", 1 },
                  { "oscars(interval=3)", "adamw(lr=0.01)", 1 },
                  { "decoupled-diloco(period=2)", "adamw(lr=0.01)", 1 } };
    static const int servers[] = { 0, 1, 3 };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(cases); k++)
        for (size_t a = 0; a < TUTTI_LENGTH(servers); a++) {
            char directory[SCRATCH_PATH];
            const bool one = strstr(cases[k].method, "ring") != NULL || strstr(cases[k].method, "dude") != NULL ||
                             strstr(cases[k].method, "oscars") != NULL || strstr(cases[k].method, "decoupled") != NULL;
            saved first = {
                .t = trial_served(cases[k].method, cases[k].optimizer, 8, servers[a]), .directory = directory,
                .before = 4, .after = 4,
            };
            if (one && servers[a] > 1)
                continue;
            scratch_make(directory);
            run_saved(&first, cases[k].workers + servers[a]);
            for (size_t b = 0; b < TUTTI_LENGTH(servers); b++) {
                saved second = {
                    .t = trial_served(cases[k].method, cases[k].optimizer, 8, servers[b]), .directory = directory,
                    .after = 4,
                };
                if (one && servers[b] > 1)
                    continue;
                run_saved(&second, cases[k].workers + servers[b]);
                if (!trial_same(&first.t, first.t.x[0][0], second.t.x[0][0]))
                    fail_msg("%s with %s on %d: saved with %d servers and resumed with %d, the model is another",
                             cases[k].method, cases[k].optimizer, cases[k].workers, servers[a], servers[b]);
                trial_drop(&second.t);
            }
            trial_drop(&first.t);
            scratch_remove(directory);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(synchronous_methods_have_the_bits_of_ddp),
        cmocka_unit_test(one_worker_matches_method_single_bit_for_bit),
        cmocka_unit_test(a_skipped_step_is_decided_by_the_workers_alone),
        cmocka_unit_test(uneven_shares_and_short_steps_match_ddp),
        cmocka_unit_test(no_gradient_is_lost_or_counted_twice),
        cmocka_unit_test(shards_travel_only_between_workers_and_servers),
        cmocka_unit_test(invalid_options_are_rejected),
        cmocka_unit_test(checkpoint_resumes_with_any_number_of_servers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
