/* Goal: methods on servers when a worker is lost that has no shard: the others continue by the
   method's rule, to the bit where the numbers allow it, and are never left waiting; when a server
   is lost all end, and report whose shard is gone. Method: threads over shm; a worker that is to
   be lost ends with a failure, before a step or when the gradient that others wait for is due.
   Gradients do not depend on the model and all numbers are dyadic, so sums are exact. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "sanitized.h"
#include "tutti/tutti.h"
#include "tutti/method.h"
#include "engine/locks.h"

#define GONE "this rank was told to fail"

enum { MOST = 8, COUNT = 300, STEPS = 8 };

typedef struct scene {
    const char *method;
    int workers, servers, steps;
    int lost_before[MOST];       /* the step before which it goes; 0: it stays */
    bool together;               /* all begin each step together, so that it is known which worker has done what */
    bool asks;                   /* by tutti_engine_more, as asynchronous methods do it */
    float x[MOST][COUNT];        /* at the end */
    int done[MOST];
    tutti_figures figures[MOST];
    tutti_status ended[MOST];
    char text[MOST][640], events[MOST][200];
} scene;

static void initial(void *user, int tensor, float *values)
{
    (void)user, (void)tensor;
    for (size_t i = 0; i < COUNT; i++)
        values[i] = (float)(i % 64) / 16 - 2;
}

static float gradient(int rank, size_t i)
{
    return (float)((rank * 37 + (int)(i % 29) * 5) % 32) / 8 - 2;
}

static bool is_lost(const scene *s, int rank, int step)
{
    return s->lost_before[rank] > 0 && step >= s->lost_before[rank];
}

static tutti_status one_step(scene *s, tutti_engine *e, tutti_error *err)
{
    const tutti_method *m = tutti_engine_method(e);
    tutti_pass p;
    tutti_status status;

    while ((status = tutti_engine_pass_begin(e, &p, err)) == TUTTI_OK) {
        for (size_t i = 0; i < COUNT; i++)
            m->g[i] = p.samples > 0 ? gradient(m->rank, i) : 0;
        TUTTI_TRY(tutti_engine_grad_ready(e, 0, err));
        TUTTI_TRY(tutti_engine_pass_end(e, 0, err));
    }
    if (status != TUTTI_CLOSED)
        return status;
    TUTTI_TRY(tutti_engine_step(e, err));
    s->done[m->rank]++;
    return TUTTI_OK;
}

/* Waits until all remaining workers have reached this step, and all know which are lost. */
static tutti_status come_together(scene *s, const tutti_method *m, int step, tutti_error *err)
{
    int there[MOST], n = 0;
    tutti_group group;

    for (int r = 0; r < s->workers; r++) {
        if (!is_lost(s, r, step - 1))
            there[n++] = r;
        while (is_lost(s, r, step - 1) && !tutti_world_lost(m->world, r, NULL, 0))
            tutti_sleep_until(m->rt, tutti_now_ns(m->rt) + 1000000);
    }
    group = tutti_group_of(m->world, there, n, 4711 + (uint64_t)step);
    return tutti_barrier(&group, err);
}

static tutti_status train(scene *s, tutti_engine *e, tutti_error *err)
{
    const tutti_method *m = tutti_engine_method(e);
    const int each = m->traits & TUTTI_ASYNC ? m->workers : 1;
    const tutti_event_record *events;
    bool more = true;

    for (int step = 0; m->rank < m->workers && (s->asks || step < s->steps); step++) {
        if (s->together)
            TUTTI_TRY(come_together(s, m, step, err));
        if (is_lost(s, m->rank, step))
            return tutti_fail(err, TUTTI_ERR_IO, 0, GONE);
        if (s->asks)
            TUTTI_TRY(tutti_engine_more(e, (uint64_t)(s->steps * each), &more, err));
        if (!more)
            break;
        TUTTI_TRY(one_step(s, e, err));
    }
    if (m->rank >= m->workers) {
        TUTTI_TRY(tutti_engine_more(e, (uint64_t)(s->steps * each), &more, err));
        if (s->lost_before[m->rank] > 0)
            return tutti_fail(err, TUTTI_ERR_IO, 0, GONE);
    }
    TUTTI_TRY(tutti_engine_finish(e, err));
    if (m->x != NULL) /* a rank that only serves has none */
        memcpy(s->x[m->rank], m->x, sizeof s->x[0]);
    tutti_engine_figures(e, &s->figures[m->rank]);
    for (int k = 0, n = tutti_engine_events(e, &events); k < n; k++)
        snprintf(s->events[m->rank] + strlen(s->events[m->rank]), sizeof s->events[0] - strlen(s->events[m->rank]),
                 "%s of %d;", events[k].kind, events[k].worker);
    return TUTTI_OK;
}

static tutti_status any_loss(void *user, double *loss, tutti_error *err)
{
    (void)user, (void)err;
    *loss = 1;
    return TUTTI_OK;
}

static tutti_status rank_main(tutti_world *world, void *arg, tutti_error *err)
{
    scene *s = arg;
    const tutti_param param = { .name = "a", .dims = 1, .dim = { COUNT } };
    const int rank = tutti_world_rank(world);
    tutti_engine *e;

    s->ended[rank] = tutti_engine_open(&e, world, &param, 1,
                                       &(tutti_engine_options){
                                           .method = s->method, .optimizer = "sgd(lr=0.25)", .batch = 2,
                                           .initial = initial, .evaluate = any_loss, .servers = s->servers,
                                       },
                                       err);
    if (s->ended[rank] == TUTTI_OK) {
        s->ended[rank] = train(s, e, err);
        tutti_engine_close(e);
    }
    if (s->ended[rank] != TUTTI_OK)
        snprintf(s->text[rank], sizeof s->text[0], "%s", err->text);
    return s->ended[rank];
}

static void play(scene *s)
{
    tutti_error err = { .rank = -1 };
    tutti_world_run("shm", s->workers + s->servers, rank_main, s, &err);
}

static void others_went_on(const scene *s)
{
    for (int r = 0; r < s->workers + s->servers; r++)
        /* an asynchronous worker may never have come so far */
        if (s->ended[r] != (s->lost_before[r] > 0 ? TUTTI_ERR_IO : TUTTI_OK) && !(s->asks && s->ended[r] == TUTTI_OK))
            fail_msg("%s on %d and %d servers: rank %d ended with %d: %s", s->method, s->workers, s->servers, r,
                     (int)s->ended[r], s->text[r]);
}

/* Its workers have shards as long as there are fewer servers than machines. */
static bool byteps(const char *method)
{
    return strncmp(method, "byteps", 6) == 0;
}

/* ---- what is computed ---- */

static void step_after_a_loss_averages_the_remaining_workers(void **state)
{
    static const char *const methods[] = {
        "parameter-server", "parameter-server(bucket_mb=0.0005)", "backup-workers(backup=0)",
        "herring(fusion_mb=0.0003,min_shard_kb=0)", "herring(wire=fp16)", "byteps(partition_bytes=512)",
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(methods); k++)
        for (int servers = 1; servers <= 3; servers += 2) {
            scene s = {
                .method = methods[k], .workers = 4, .servers = byteps(methods[k]) ? 4 : servers, .steps = STEPS,
                .together = true,
                .lost_before = { [1] = 3, [2] = 3 },
            };
            play(&s);
            others_went_on(&s);
            for (size_t i = 0; i < COUNT; i++) {
                double x = (double)(i % 64) / 16 - 2;
                for (int step = 0; step < STEPS; step++)
                    x -= step < 3
                             ? 0.25 * ((double)gradient(0, i) + gradient(1, i) + gradient(2, i) + gradient(3, i)) / 4
                             : 0.25 * ((double)gradient(0, i) + gradient(3, i)) / 2;
                for (int r = 0; r < 4; r += 3)
                    if (s.x[r][i] != (float)x)
                        fail_msg("%s with %d servers, worker %d, element %zu: %.9g, expected %.9g", s.method, servers,
                                 r, i, (double)s.x[r][i], x);
            }
            assert_int_equal(s.figures[0].steps, STEPS);
            /* nothing was agreed on before the end, so nothing is known for sure of the lost
               worker's */
            assert_int_equal(s.figures[0].samples, 2 * 2 * STEPS);
            assert_true(strstr(s.events[0], "lost of 1;") != NULL && strstr(s.events[0], "lost of 2;") != NULL);
        }
}

static void pushed_gradients_are_applied_and_lost_workers_not_awaited(void **state)
{
    static const struct {
        const char *method;
        double share;
        bool asks;
    } cases[] = { { "ssp(staleness=0)", 0.25, false },
                  { "ssp(staleness=2)", 0.25, false },
                  { "asgd", 1, true },
                  { "ringmaster-asgd(max_delay=-1)", 1, true } };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(cases); k++)
        for (int first = 0; first < 2; first++) { /* the worker that hands out gradients is lost like any other */
            scene s = {
                .method = cases[k].method, .workers = 4, .servers = strncmp(cases[k].method, "ring", 4) == 0 ? 1 : 2,
                .steps = STEPS, .asks = cases[k].asks,
            };
            s.lost_before[first == 0 ? 2 : 0] = 3;
            play(&s);
            others_went_on(&s);
            for (size_t i = 0; i < COUNT; i++) {
                double x = (double)(i % 64) / 16 - 2;
                for (int r = 0; r < 4; r++)
                    x -= 0.25 * cases[k].share * s.done[r] * (double)gradient(r, i);
                if (s.x[1][i] != (float)x || s.x[3][i] != (float)x)
                    fail_msg("%s, element %zu: %.9g, expected %.9g", s.method, i, (double)s.x[1][i], x);
            }
            if (!s.asks)
                assert_int_equal(s.done[1] + s.done[3], 2 * STEPS);
        }
}

/* ---- a worker that others may wait for is lost, at any time ---- */

static void worker_losses_leave_no_worker_waiting(void **state)
{
    static const char *const methods[] = {
        "parameter-server",
        "herring(fusion_mb=0.0003,min_shard_kb=0,slots=2)",
        "byteps(partition_bytes=512,credits=2)",
        "byteps(async=on)",
        "ssp(staleness=1)",
        "backup-workers(backup=1)",
        "backup-workers(backup=2)",
        "asgd(softsync=3)",
        "ringmaster-asgd(stops=on,max_delay=1)",
        "ringleader-asgd",
        "ringleader-asgd(table=worker)",
        "dude-asgd",
        "dude-asgd(group=4)",
        "dude-asgd(group=2,table=worker)",
        "dude-asgd(start=partial)",
        "oscars",
        "oscars(quorum=1,interval=2)",
        "decoupled-diloco(period=2)",
        "decoupled-diloco(period=2,quorum=2)",
        "decoupled-diloco(period=3,quorum=1,grace=0,merge=rda)",
        "hermes(push=always,chunk=2,minibatch=1,local_passes=1)",
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(methods); k++)
        for (int turn = 0; turn < 6; turn++) {
            const bool one = strstr(methods[k], "ring") != NULL || strstr(methods[k], "dude") != NULL ||
                             strstr(methods[k], "oscars") != NULL || strstr(methods[k], "hermes") != NULL ||
                             strstr(methods[k], "decoupled") != NULL,
                       own = one || strstr(methods[k], "asgd") != NULL || strstr(methods[k], "async") != NULL;
            scene s = {
                .method = methods[k], .workers = 4,
                .servers = one ? 1 : byteps(methods[k]) ? 4 : 1 + turn % 3, .steps = STEPS, .asks = own
            };
            s.lost_before[turn % 4] = 1 + turn % 3;
            if (turn >= 3) /* two are lost, one of them later */
                s.lost_before[(turn + 1) % 4] = 2 + turn % 4;
            play(&s);
            others_went_on(&s);
        }
}

/* ---- shards ---- */

static void lost_shard_ends_the_run_and_is_reported(void **state)
{
    static const char *const methods[] = {
        "parameter-server", "herring",         "asgd",           "ssp(staleness=1)", "backup-workers",
        "ringmaster-asgd",  "asgd(servers=2)", "ssp(servers=1)", "byteps",
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(methods); k++) {
        /* a rank that only serves learns asynchronously that all is computed, and goes before the
           end; else within a step */
        const bool beside = strstr(methods[k], "servers=") != NULL, own = strstr(methods[k], "asgd") != NULL;
        scene s = {
            .method = methods[k], .workers = 3, .servers = beside ? 0 : 1, .steps = own && !beside ? STEPS : 100000,
            .asks = own,
        };
        int heard = 0;
        s.lost_before[beside ? 0 : 3] = 2;
        play(&s);
        for (int r = beside; r < 3; r++) {
            assert_int_equal(s.ended[r], TUTTI_ERR_PEER);
            heard += strstr(s.text[r], beside ? "worker 0 is lost, and with it its slice of the model"
                                              : "server of rank 3 is lost, and with it its slice of the model") != NULL;
        }
        if (heard == 0)
            fail_msg("%s: nobody says whose slice is gone, but '%s', '%s'", s.method, s.text[1], s.text[2]);
    }
}

/* The server is lost at any step, and where there are two standbys the next one after it: all that
   are left end with one model. Then the last that may serve is lost, and the sentence names all. */
static void lost_server_is_followed_by_its_standby(void **state)
{
    static const char *const methods[] = {
        "decoupled-diloco(period=2)", "decoupled-diloco(period=2,quorum=2)",
        "decoupled-diloco(period=3,quorum=1,grace=0,merge=rda)", "decoupled-diloco(period=2,standby=2,outer=adam)",
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(methods); k++)
        for (int turn = 0; turn < 8; turn++) {
            scene s = { .method = methods[k], .workers = 4, .steps = STEPS, .asks = true };
            int last = -1;
            s.lost_before[0] = 1 + turn % 5;
            if (k == 3 && turn % 4 < 2)
                s.lost_before[1] = 3 + turn % 5;
            play(&s);
            others_went_on(&s);
            for (int r = 0; r < 4; r++) {
                if (s.ended[r] != TUTTI_OK)
                    continue;
                assert_true(last < 0 || memcmp(s.x[last], s.x[r], sizeof s.x[0]) == 0);
                last = r;
            }
        }
}

static void loss_of_all_that_may_serve_ends_the_run_and_names_them(void **state)
{
    scene s = { .method = "decoupled-diloco(period=2)", .workers = 4, .steps = 100000, .lost_before = { 3, 3 },
                .together = true };
    int heard = 0;

    (void)state;
    play(&s);
    for (int r = 2; r < 4; r++) {
        assert_int_equal(s.ended[r], TUTTI_ERR_PEER);
        heard += strstr(s.text[r], "worker 0 and worker 1 are lost, and with them the model") != NULL;
    }
    if (heard == 0)
        fail_msg("'%s', '%s'", s.text[2], s.text[3]);
}

static void run_survives_the_loss_of_a_worker_without_shards(void **state)
{
    static const char *const methods[] = {
        "asgd(servers=2)",
        "ssp(servers=1,staleness=1)",
        "parameter-server(servers=2)",
        "herring(servers=2)",
        "backup-workers(servers=2)",
        "ringmaster-asgd",
        "dude-asgd",
        "ringleader-asgd",
#if !SANITIZED_THREAD /* its races are what it is */
        "asgd(hogwild=on)",
#endif
        "asgd(hogwild=on,locks=full)",
        "asgd(hogwild=on,locks=row)",
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(methods); k++) {
        scene s = {
            .method = methods[k], .workers = 4, .steps = STEPS, .asks = strstr(methods[k], "asgd") != NULL,
            .lost_before = { [3] = 2 },
        };
        play(&s);
        others_went_on(&s);
    }
}

/* ---- locks in memory in common ---- */

enum { LOCKERS = 4, TURNS = 200 };
typedef struct lockers { tutti_status ended[LOCKERS]; uint32_t counted; } lockers;

/* Worker 1 is lost while it holds the lock; each of the others takes it several times, and never
   two at the same time. */
static tutti_status lock_rank(tutti_world *world, void *arg, tutti_error *err)
{
    lockers *l = arg;
    const int rank = tutti_world_rank(world);
    const tutti_method m = { .world = world, .rt = tutti_world_runtime(world), .rank = rank };
    tutti_group all = tutti_group_workers(world, 17), left;
    void *memory;
    uint32_t *word;
    bool fill;

    TUTTI_TRY(tutti_world_common(world, "locks", 3 * sizeof *word, &memory, &fill, err));
    word = memory;
    if (rank == 1)
        tutti_locks_take(&m, word);
    TUTTI_TRY(tutti_barrier(&all, err));
    if (rank == 1)
        return l->ended[1] = tutti_fail(err, TUTTI_ERR_IO, 0, GONE);
    for (int k = 0; k < TURNS; k++) {
        tutti_locks_take(&m, word);
        word[1] += word[2] == 0; /* no other worker is inside */
        word[2] = 1;
        if (k == 0) /* another worker, waiting for the lost worker's lock, comes meanwhile */
            tutti_sleep_until(m.rt, tutti_now_ns(m.rt) + 2000000);
        word[2] = 0;
        tutti_locks_leave(word);
    }
    left = tutti_group_of(world, (const int[]){ 0, 2, 3 }, 3, 18);
    TUTTI_TRY(tutti_barrier(&left, err));
    if (rank == 0)
        l->counted = word[1];
    return l->ended[rank] = tutti_barrier(&left, err);
}

static void lock_of_a_lost_worker_passes_to_one_peer(void **state)
{
    lockers l = { .ended = { TUTTI_ERR_STATE, TUTTI_ERR_STATE, TUTTI_ERR_STATE, TUTTI_ERR_STATE } };
    tutti_error err;

    (void)state;
    tutti_world_run("shm", LOCKERS, lock_rank, &l, &err);
    for (int r = 0; r < LOCKERS; r++)
        assert_int_equal(l.ended[r], r == 1 ? TUTTI_ERR_IO : TUTTI_OK);
    assert_int_equal(l.counted, (LOCKERS - 1) * TURNS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(step_after_a_loss_averages_the_remaining_workers),
        cmocka_unit_test(pushed_gradients_are_applied_and_lost_workers_not_awaited),
        cmocka_unit_test(worker_losses_leave_no_worker_waiting),
        cmocka_unit_test(lost_shard_ends_the_run_and_is_reported),
        cmocka_unit_test(lost_server_is_followed_by_its_standby),
        cmocka_unit_test(loss_of_all_that_may_serve_ends_the_run_and_names_them),
        cmocka_unit_test(run_survives_the_loss_of_a_worker_without_shards),
        cmocka_unit_test(lock_of_a_lost_worker_passes_to_one_peer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
