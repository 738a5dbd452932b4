/* Goal: a snapshot of the model is the one that tutti.h defines: the mean over the workers of
   what each computed its first gradient from the point on by, or at servers the shards with no
   gradient from the point on; evaluating it changes nothing, between steps and after the end. The
   reference is computed here: what the client saw in each pass, or all that it pulled at. Ranks
   are threads, with random pauses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tutti/tutti.h"
#include "tutti/method.h"

enum { WORKERS = 5, GRADIENTS = 120, EVERY = 12, VALUES = GRADIENTS + 13, POINTS = GRADIENTS / EVERY };
#define CHECK(condition) \
    do { \
        if (!(condition)) \
            return tutti_fail(err, TUTTI_ERR_STATE, 0, "line %d: %s", __LINE__, #condition); \
    } while (0)

typedef struct trial {
    const char *method;
    int servers, most;
    bool at_servers;
    int rests;                   /* phases */
    bool common;                 /* steps: points are of steps, and each worker makes all */
    bool late;                   /* an averaging may be in flight at a point: only the sum is known */
    bool equal;                  /* one model, and the last gradient of each step may be missing */
    int behind;                  /* of steps at servers: that many of each other worker's may be missing */
} trial;

/* What a rank's client has seen. */
typedef struct seen {
    tutti_engine *e;
    const trial *t;
    float x[POINTS][VALUES], own[POINTS], sum[POINTS][VALUES], pulled[VALUES];
    uint64_t samples[POINTS];    /* mine so far, at each point */
    int passed;
    uint64_t computed;
} seen;

static void initial(void *user, int tensor, float *values)
{
    (void)user, (void)tensor;
    memset(values, 0, VALUES * sizeof *values);
}

static void note_points(seen *s, uint64_t gradient)
{
    for (; s->passed < POINTS && gradient >= (uint64_t)(s->passed + 1) * EVERY; s->passed++) {
        if (tutti_engine_method(s->e)->x != NULL)
            memcpy(s->x[s->passed], tutti_engine_values(s->e, 0), sizeof s->x[0]);
        memcpy(s->sum[s->passed], s->pulled, sizeof s->pulled);
        s->own[s->passed] = tutti_engine_client_state(s->e)[0];
        s->samples[s->passed] = s->computed;
    }
}

/* Gradient k pulls at element k by 1, and a little at the elements behind them all. */
static tutti_status one_step(seen *s, tutti_error *err)
{
    const tutti_method *m = tutti_engine_method(s->e);
    tutti_pass p;
    tutti_status status;

    while ((status = tutti_engine_pass_begin(s->e, &p, err)) == TUTTI_OK) {
        const uint64_t k = m->rng.step;
        if (p.index == 0)
            note_points(s, k);
        if (tutti_random((tutti_rng){ 7, (uint64_t)m->rank, k }, 0) % 4 == 0)
            tutti_sleep_until(m->rt, tutti_now_ns(m->rt) + 200000 * (1 + m->rank));
        memset(m->g, 0, VALUES * sizeof *m->g);
        m->g[k] = 1;
        for (int i = GRADIENTS; i < VALUES; i++)
            m->g[i] = 0.25f * m->x[i] - 0.1f * (float)(i + m->rank);
        for (int i = 0; i < VALUES; i++)
            s->pulled[i] += m->g[i];
        tutti_engine_client_state(s->e)[0] += 1 + (float)m->rank;
        s->computed += (uint64_t)p.samples;
        TUTTI_TRY(tutti_engine_grad_ready(s->e, 0, err));
        TUTTI_TRY(tutti_engine_pass_end(s->e, (double)p.samples, err));
    }
    return status == TUTTI_CLOSED ? tutti_engine_step(s->e, err) : status;
}

/* The tree of comm.h. */
static float tree(const float *of, size_t stride, int n)
{
    int half = 1;

    if (n == 1)
        return of[0];
    while (2 * half < n)
        half *= 2;
    return tree(of, stride, half) + tree(of + (size_t)half * stride, stride, n - half);
}

static tutti_status check_mean(const seen *s, tutti_group *all, int at, const float *x, tutti_error *err)
{
    static const size_t room = VALUES * (size_t)WORKERS;
    float every[VALUES * WORKERS], mine[VALUES];
    const int n = tutti_engine_method(s->e)->workers;

    for (int i = 0; i < VALUES; i++)
        mine[i] = 1 / (float)n * s->x[at][i];
    TUTTI_TRY(tutti_allgather(all, tutti_host(mine, VALUES, TUTTI_F32),
                              tutti_host(every, room / WORKERS * (size_t)n, TUTTI_F32), err));
    for (int i = 0; i < VALUES; i++)
        CHECK(x[i] == tree(every + i, VALUES, n));
    return TUTTI_OK;
}

/* Averagings keep the sum of all models: the snapshot contains the averagings that had begun
   before the point, and no others. */
static tutti_status check_sum(const seen *s, tutti_group *all, int at, const float *x, tutti_error *err)
{
    double pulled[VALUES];

    for (int i = 0; i < VALUES; i++)
        pulled[i] = s->sum[at][i];
    TUTTI_TRY(tutti_reduce_double(all, TUTTI_SUM, pulled, VALUES, err));
    for (int i = 0; i < VALUES; i++)
        CHECK(fabs(x[i] + pulled[i] / tutti_engine_method(s->e)->workers) <= 1e-4);
    return TUTTI_OK;
}

/* Every worker's step k pulls at element k: no pull from the point on, and all those of the
   worker that passed it first. */
static tutti_status check_steps(const seen *s, uint64_t point, const float *x, tutti_error *err)
{
    const int n = tutti_engine_method(s->e)->workers;
    double missing = 0;

    for (uint64_t k = 0; k < GRADIENTS; k++) {
        CHECK(k < point ? x[k] <= -1 / (float)n : x[k] == 0);
        missing += k < point ? n * (1 + (double)x[k]) : 0;
    }
    CHECK(missing >= 0 && missing <= s->t->behind * (n - 1));
    return TUTTI_OK;
}

/* With one or several servers: nothing from the point on, and from below it all but two gradients
   of a worker: one that it computes, and one that it was given ahead. */
static tutti_status check_slices(const seen *s, uint64_t point, const float *x, tutti_error *err)
{
    int missing = 0;

    for (uint64_t k = 0; k < GRADIENTS; k++) {
        CHECK(x[k] == 0 || x[k] == -1);
        CHECK(k < point || x[k] == 0);
        missing += k < point && x[k] == 0;
    }
    CHECK(missing <= 2 * tutti_engine_method(s->e)->workers);
    return TUTTI_OK;
}

static tutti_status check_own(const seen *s, tutti_group *all, int at, tutti_error *err)
{
    float own[WORKERS], mine = s->own[at], sum = 0;
    const int n = tutti_engine_method(s->e)->workers;
    int had = 0;

    TUTTI_TRY(tutti_allgather(all, tutti_host(&mine, 1, TUTTI_F32), tutti_host(own, (size_t)n, TUTTI_F32), err));
    for (int r = 0; r < n; r++) {
        sum += own[r];
        had += own[r] > 0;
    }
    CHECK(tutti_engine_client_state(s->e)[0] == 1 / (float)had * sum);
    return TUTTI_OK;
}

/* The number of batches of a point's gradient, or step. */
static int samples_of(const seen *s)
{
    const int n = tutti_engine_method(s->e)->workers;
    return s->t->common ? n - s->t->equal : 1;
}

static tutti_status check_model(const seen *s, tutti_group *workers, int at, uint64_t point, tutti_error *err)
{
    const float *x = tutti_engine_values(s->e, 0);

    if (s->t->at_servers)
        return (s->t->common ? check_steps : check_slices)(s, point, x, err);
    return s->t->late ? check_sum(s, workers, at, x, err) : check_mean(s, workers, at, x, err);
}

/* The k-th that is kept, the run's `at`. */
static tutti_status look(seen *s, tutti_world *world, int k, int at, tutti_error *err)
{
    const tutti_method *m = tutti_engine_method(s->e);
    tutti_group all = tutti_group_workers(world, 99), workers = m->all;
    float before[VALUES], apart = 0;
    uint64_t since;
    tutti_figures f;
    tutti_snapshot of;
    double samples;

    tutti_engine_snapshot(s->e, k, &of);
    tutti_engine_figures(s->e, &f);
    CHECK(of.gradients == (uint64_t)(at + 1) * EVERY && of.wall_ns <= f.wall_ns && of.bytes_sent <= f.bytes_sent);
    since = of.samples_since;
    samples = (double)since;
    TUTTI_TRY(tutti_reduce_double(&all, TUTTI_SUM, &samples, 1, err));
    CHECK((double)f.samples - samples == 2.0 * (double)of.gradients * samples_of(s));
    if (m->rank >= m->workers) {
        TUTTI_TRY(tutti_engine_eval_snapshot(s->e, k, err));
        return tutti_engine_eval_end(s->e, err);
    }
    CHECK(s->t->equal || since == s->computed - s->samples[at]);
    memcpy(before, m->x, sizeof before);
    TUTTI_TRY(tutti_engine_eval_snapshot(s->e, k, err));
    TUTTI_TRY(check_model(s, &workers, at, of.gradients, err));
    TUTTI_TRY(check_own(s, &workers, at, err));
    for (int i = 0; i < VALUES; i++)
        apart += (m->x[i] - s->x[at][i]) * (m->x[i] - s->x[at][i]);
    CHECK(s->t->late || s->t->equal ||
          fabs(tutti_engine_apart(s->e) - sqrt((double)apart)) <= 1e-4 * sqrt((double)apart) + 1e-6);
    if (m->workers > 1 && !s->t->late && !s->t->equal) {
        CHECK(tutti_engine_swap(s->e));
        CHECK(memcmp(m->x, s->x[at], sizeof before) == 0 && tutti_engine_client_state(s->e)[0] == s->own[at]);
        CHECK(tutti_engine_swap(s->e));
    }
    TUTTI_TRY(tutti_engine_eval_end(s->e, err));
    CHECK(memcmp(before, m->x, sizeof before) == 0);
    return TUTTI_OK;
}

static tutti_status look_at_all(seen *s, tutti_world *world, int looked, int left, tutti_error *err)
{
    const int there = left < s->t->most ? left : s->t->most;
    int n;

    TUTTI_TRY(tutti_engine_snapshots(s->e, &n, err));
    CHECK(n == there);
    if (tutti_engine_method(s->e)->rank < tutti_engine_method(s->e)->workers)
        note_points(s, (uint64_t)(looked + left) * EVERY); /* a worker that has passed fewer
                                                              points takes its snapshots now */
    for (int k = n; k-- > 0;) /* in any order */
        TUTTI_TRY(look(s, world, k, looked + k, err));
    CHECK(tutti_engine_eval_snapshot(s->e, n, err) == TUTTI_ERR_USAGE);
    tutti_engine_drop_snapshots(s->e);
    TUTTI_TRY(tutti_engine_snapshots(s->e, &n, err));
    CHECK(n == 0);
    return TUTTI_OK;
}

static tutti_status work(seen *s, tutti_world *world, tutti_error *err)
{
    const tutti_method *m = tutti_engine_method(s->e);
    float final[VALUES], own;
    double apart;
    int n;

    for (int phase = 1; phase <= s->t->rests; phase++) {
        const int rest = POINTS / s->t->rests;
        bool more;
        do {
            TUTTI_TRY(tutti_engine_more(s->e, (uint64_t)(phase * rest * EVERY), &more, err));
            if (more)
                TUTTI_TRY(one_step(s, err));
        } while (more);
        if (phase < s->t->rests)
            TUTTI_TRY(look_at_all(s, world, (phase - 1) * rest, rest, err));
    }
    TUTTI_TRY(tutti_engine_snapshots(s->e, &n, err)); /* when all have stopped, also where steps are common */
    if (m->rank < m->workers) /* before finish: for a point not passed it is the worker's model of now */
        note_points(s, GRADIENTS);
    TUTTI_TRY(tutti_engine_finish(s->e, err));
    apart = tutti_engine_apart(s->e);
    own = tutti_engine_client_state(s->e)[0];
    if (m->x != NULL)
        memcpy(final, m->x, sizeof final);
    TUTTI_TRY(look_at_all(s, world, POINTS - POINTS / s->t->rests, POINTS / s->t->rests, err));
    CHECK(m->x == NULL || memcmp(final, m->x, sizeof final) == 0);
    CHECK(tutti_engine_apart(s->e) == apart && tutti_engine_client_state(s->e)[0] == own);
    return TUTTI_OK;
}

static tutti_status run_rank(tutti_world *world, void *arg, tutti_error *err)
{
    const trial *t = arg;
    const tutti_param param = { .name = "w", .dims = 1, .dim = { VALUES } };
    seen *s = tutti_alloc(1, sizeof *s);
    tutti_status status;

    if (s == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "a test's memory");
    s->t = t;
    status = tutti_engine_open(&s->e, world, &param, 1,
                               &(tutti_engine_options){ .method = t->method,
                                                        .optimizer = "sgd(lr=1,momentum=0)",
                                                        .batch = 2,
                                                        .initial = initial,
                                                        .own_values = 1,
                                                        .servers = t->servers,
                                                        .snapshot_every = EVERY,
                                                        .snapshot_most = t->most },
                               err);
    if (status == TUTTI_OK)
        status = work(s, world, err);
    tutti_engine_close(s->e);
    tutti_free(s);
    return status;
}

static void try(const trial *t, int workers)
{
    tutti_error err = { .rank = -1 };
    trial of = *t;

    if (tutti_world_run("shm", workers + t->servers, run_rank, &of, &err) != TUTTI_OK)
        fail_msg("%s, %d workers, %d rests: %s", t->method, workers, t->rests, err.text);
}

static void snapshot_is_the_mean_of_models_at_the_point(void **state)
{
    static const char *const methods[] = { "ad-psgd", "prague", "rand-psgd(pace=own)", "asr-adpsgd" };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(methods); i++)
        for (int n = 1; n <= WORKERS; n += 1 + (n > 2))
            for (int rests = 1; rests <= 2; rests++)
                try(&(trial){ .method = methods[i], .most = POINTS, .rests = rests }, n);
}

static void server_snapshot_excludes_gradients_after_the_point(void **state)
{
    (void)state;
    for (int servers = 0; servers <= 2; servers++)
        for (int rests = 1; rests <= 2; rests++) {
            try(&(trial){ .method = "asgd", .servers = servers, .most = POINTS, .rests = rests, .at_servers = true },
                4);
            if (servers == 0)
                try(&(trial){ .method = "asgd(servers=1)", .most = POINTS, .rests = rests, .at_servers = true }, 3);
        }
}

/* Of workers with steps in common, while some are ahead. */
static void step_snapshot_includes_its_averages_and_no_later_ones(void **state)
{
    static const char *const prompt[] = { "asr-adpsgd(mixing=delay-by-one)", "lasgd(local_steps=5,max_delay=1)" },
                             *const late[] = { "lasgd(local_steps=5,max_delay=0)", "lasgd(local_steps=3)", "lasgd" };

    (void)state;
    for (int rests = 1; rests <= 2; rests++) {
        for (size_t i = 0; i < TUTTI_LENGTH(prompt); i++)
            try(&(trial){ .method = prompt[i], .most = POINTS, .rests = rests, .common = true }, 3);
        for (size_t i = 0; i < TUTTI_LENGTH(late); i++)
            try(&(trial){ .method = late[i], .most = POINTS, .rests = rests, .common = true, .late = true }, 4);
    }
}

static void server_step_snapshot_excludes_later_steps(void **state)
{
    (void)state;
    for (int servers = 0; servers <= 2; servers += 2)
        for (int rests = 1; rests <= 2; rests++) {
            trial t = { .servers = servers, .most = POINTS, .rests = rests, .at_servers = true, .common = true };
            t.method = "ssp(staleness=0)";
            try(&t, 4);
            t.method = "ssp(staleness=2)";
            t.behind = 3;
            try(&t, 4);
            t.method = "backup-workers";
            t.behind = 0;
            t.equal = true;
            try(&t, 4);
        }
}

static void snapshots_beyond_the_limit_are_skipped(void **state)
{
    (void)state;
    try(&(trial){ .method = "lasgd", .most = 3, .rests = 2, .common = true, .late = true }, 3);
    try(&(trial){ .method = "ad-psgd", .most = 3, .rests = 1 }, 4);
    try(&(trial){ .method = "asgd", .most = 3, .rests = 2, .at_servers = true }, 4);
}

static tutti_status nothing_is_kept(tutti_world *world, void *arg, tutti_error *err)
{
    const tutti_param param = { .name = "w", .dims = 1, .dim = { VALUES } };
    tutti_engine *e;
    bool more;
    int n;

    (void)arg;
    TUTTI_TRY(tutti_engine_open(
        &e, world, &param, 1, &(tutti_engine_options){ .method = "local-sgd", .snapshot_every = 1, .snapshot_most = 2 },
        err));
    TUTTI_TRY(tutti_engine_more(e, 0, &more, err));
    TUTTI_TRY(tutti_engine_snapshots(e, &n, err));
    CHECK(n == 0 && tutti_engine_eval_snapshot(e, 0, err) == TUTTI_ERR_USAGE);
    TUTTI_TRY(tutti_engine_finish(e, err));
    tutti_engine_close(e);
    return TUTTI_OK;
}

static void synchronous_methods_keep_no_snapshots(void **state)
{
    tutti_error err = { .rank = -1 };

    (void)state;
    if (tutti_world_run("shm", 2, nothing_is_kept, NULL, &err) != TUTTI_ERR_USAGE)
        assert_string_equal(err.text, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(snapshot_is_the_mean_of_models_at_the_point),
        cmocka_unit_test(server_snapshot_excludes_gradients_after_the_point),
        cmocka_unit_test(snapshots_beyond_the_limit_are_skipped),
        cmocka_unit_test(step_snapshot_includes_its_averages_and_no_later_ones),
        cmocka_unit_test(server_step_snapshot_excludes_later_steps),
        cmocka_unit_test(synchronous_methods_keep_no_snapshots),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
