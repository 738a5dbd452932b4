/* Pieces: ports, lanes and monitors by themselves. */
#include "explore.h"
#include "engine/lane.h"
#include <stdio.h>
#include <string.h>

static tutti_runtime *runtime_of(tutti_world *world) { return tutti_world_runtime(world); }

/* ---- ports ---- */
/* Every rank sends k numbered messages to its right on two ports, posted several at a time,
   and receives in the order of each. */
static tutti_status ring(tutti_world *world, explore_case *c, tutti_error *err)
{
    const int n = c->ranks, rank = tutti_world_rank(world), right = (rank + 1) % n, left = (rank + n - 1) % n;
    enum { K = 6 };
    tutti_request out[2][K] = { 0 }, in[2][K] = { 0 }, *all[4 * K];
    int64_t sent[2][K], got[2][K] = { 0 };
    size_t a = 0;

    for (int p = 0; p < 2; p++)
        for (int k = 0; k < K; k++) {
            sent[p][k] = rank * 1000 + p * 100 + k;
            TUTTI_TRY(tutti_post_send(world, &out[p][k], right, tutti_port_of("ring", (uint64_t)p, 0),
                                      &(tutti_header){ .a = k }, tutti_host(&sent[p][k], 1, TUTTI_I64), err));
            all[a++] = &out[p][k];
        }
    for (int p = 1; p >= 0; p--) /* the other way round */
        for (int k = 0; k < K; k++) {
            TUTTI_TRY(tutti_post_recv(world, &in[p][k], left, tutti_port_of("ring", (uint64_t)p, 0),
                                      tutti_host(&got[p][k], 1, TUTTI_I64), err));
            all[a++] = &in[p][k];
        }
    TUTTI_TRY(tutti_wait_some(world, all, a, a, TUTTI_FOREVER, NULL, err));
    for (int p = 0; p < 2; p++)
        for (int k = 0; k < K; k++)
            EXPLORE_EXPECT(got[p][k] == left * 1000 + p * 100 + k && in[p][k].note.a == k && in[p][k].note.from == left,
                           "worker %d: message %d of port %d is %lld of worker %d", rank, k, p, (long long)got[p][k],
                           in[p][k].note.from);
    return TUTTI_OK;
}

/* Rank 0 serves every request, with several receives from any rank posted at a time; every asker
   gets the answer to its own question. */
static tutti_status serve(tutti_world *world, explore_case *c, tutti_error *err)
{
    enum { ASKED = 4, AHEAD = 3 };
    const int n = c->ranks, rank = tutti_world_rank(world), due = ASKED * (n - 1);
    const tutti_port door = tutti_port_of("door", 0, 0);
    int answered[EXPLORE_RANKS] = { 0 };

    if (rank > 0) {
        for (int k = 0; k < ASKED; k++) {
            const tutti_port home = tutti_port_of("home", (uint64_t)rank, (uint64_t)k);
            tutti_header note = { .kind = 1, .a = k, .b = rank };
            int64_t answer = 0;
            TUTTI_TRY(tutti_send(world, 0, door, &note, tutti_nothing(), err));
            TUTTI_TRY(tutti_recv(world, 0, home, &note, tutti_host(&answer, 1, TUTTI_I64), TUTTI_FOREVER, err));
            EXPLORE_EXPECT(note.a == k && answer == rank * 10 + k,
                           "worker %d asked for %d and was told %lld about %lld", rank, k, (long long)answer,
                           (long long)note.a);
            explore_dawdle(1000);
        }
        return TUTTI_OK;
    }
    tutti_request in[AHEAD] = { 0 }, *want[AHEAD];
    for (int k = 0; k < AHEAD; k++) {
        want[k] = &in[k];
        TUTTI_TRY(tutti_post_recv(world, &in[k], TUTTI_ANY, door, tutti_nothing(), err));
    }
    for (int served = 0; served < due;) {
        TUTTI_TRY(tutti_wait_some(world, want, AHEAD, 1, TUTTI_FOREVER, NULL, err));
        for (int k = 0; k < AHEAD; k++) {
            const tutti_header q = in[k].note;
            int64_t answer;
            if (!in[k].posted || !in[k].done || in[k].status != TUTTI_OK) /* the last askers may have left meanwhile */
                continue;
            answered[q.from]++;
            served++;
            in[k].posted = false; /* counts as done from here: post it again while questions are due */
            answer = q.from * 10 + q.a;
            TUTTI_TRY(tutti_send(world, q.from, tutti_port_of("home", (uint64_t)q.from, (uint64_t)q.a),
                                 &(tutti_header){ .a = q.a }, tutti_host(&answer, 1, TUTTI_I64), err));
            TUTTI_TRY(tutti_post_recv(world, &in[k], TUTTI_ANY, door, tutti_nothing(), err));
        }
    }
    for (int k = 0; k < AHEAD; k++)
        tutti_cancel(world, &in[k]);
    for (int r = 1; r < n; r++)
        EXPLORE_EXPECT(answered[r] == ASKED, "worker %d was answered %d times of %d", r, answered[r], ASKED);
    return TUTTI_OK;
}

/* A receiver that gives up and tries again loses nothing and receives nothing twice; nor does one
   that cancels what came too late. */
static tutti_status impatient(tutti_world *world, explore_case *c, tutti_error *err)
{
    enum { SENT = 8 };
    const int rank = tutti_world_rank(world);
    const tutti_port port = tutti_port_of("slowly", 0, 0);
    int64_t heard = 0, times = 0;

    (void)c;
    if (rank == 1) {
        for (int64_t k = 0; k < SENT; k++) {
            explore_dawdle(20000);
            TUTTI_TRY(tutti_send(world, 0, port, NULL, tutti_host(&k, 1, TUTTI_I64), err));
        }
        return TUTTI_OK;
    }
    if (rank > 1)
        return TUTTI_OK;
    while (heard < SENT) {
        int64_t value = -1;
        tutti_status status;
        if (times++ % 3 == 2) { /* posted, looked at once, taken back */
            tutti_request r = { 0 }, *list = &r;
            TUTTI_TRY(tutti_post_recv(world, &r, 1, port, tutti_host(&value, 1, TUTTI_I64), err));
            status = tutti_wait_some(world, &list, 1, 1,
                                     tutti_now_ns(runtime_of(world)) + (int64_t)explore_draw(c, "patience", 30000),
                                     NULL, NULL);
            tutti_cancel(world, &r);
            if (status != TUTTI_OK && r.done && r.posted)
                status = r.status;
        } else
            status = tutti_recv(world, 1, port, NULL, tutti_host(&value, 1, TUTTI_I64),
                                tutti_now_ns(runtime_of(world)) + (int64_t)explore_draw(c, "patience", 30000), NULL);
        EXPLORE_EXPECT(status == TUTTI_OK || status == TUTTI_TIMEOUT, "receiving ended with '%s'",
                       tutti_status_name(status));
        if (status != TUTTI_OK)
            continue;
        EXPLORE_EXPECT(value == heard, "message %lld came where %lld was due", (long long)value, (long long)heard);
        heard++;
    }
    return TUTTI_OK;
}

/* ---- lanes ---- */
enum { JOBS = 7 };
typedef struct lane_case {
    tutti_lane *lane;
    tutti_runtime *rt;
    tutti_job jobs[JOBS], child;
    int order[2 * JOBS], started, running, most, width;
} lane_case;

static tutti_status run_child(tutti_job *job, tutti_error *err)
{
    (void)job;
    return tutti_fail(err, TUTTI_ERR_NUMBER, 0, "the child");
}

static tutti_status run_job(tutti_job *job, tutti_error *err)
{
    lane_case *const l = job->owner;

    l->order[l->started++ % (2 * JOBS)] = job->index;
    if (++l->running > l->most)
        l->most = l->running;
    explore_dawdle(500);
    if (job->index == 2)
        tutti_lane_start(l->lane, &l->child);
    l->running--;
    return job->index % 3 == 1 ? tutti_fail(err, TUTTI_ERR_IO, 0, "job %d", job->index) : TUTTI_OK;
}

static tutti_status lane(tutti_world *world, explore_case *c, tutti_error *err)
{
    lane_case l = { .rt = runtime_of(world), .width = (int[]){ 0, 1, 1, 3 }[explore_draw(c, "width", 4)] };
    const bool all_waited = explore_draw(c, "waited", 2) == 0;

    TUTTI_TRY(tutti_lane_open(&l.lane, l.rt, "lane", l.width, err));
    for (int turn = 0; turn < 3; turn++) {
        l.started = l.running = l.most = 0;
        for (int k = 0; k < JOBS; k++) {
            l.jobs[k].run = run_job;
            l.jobs[k].owner = &l;
            l.jobs[k].index = k;
            l.child.run = run_child;
            tutti_lane_start(l.lane, &l.jobs[k]);
        }
        if (turn == 2 && !all_waited)
            break; /* closing runs out what was started */
        for (int j = 0; j < JOBS; j++) {
            const int k = turn == 0 ? j : JOBS - 1 - j;
            tutti_error own = { .rank = -1 };
            const tutti_status status = tutti_job_wait(l.lane, &l.jobs[k], &own);
            EXPLORE_EXPECT(status == (k % 3 == 1 ? TUTTI_ERR_IO : TUTTI_OK), "job %d ended with '%s'", k,
                           tutti_status_name(status));
            EXPLORE_EXPECT(status == TUTTI_OK || own.text[4] == '0' + k, "job %d says '%s'", k, own.text);
            EXPLORE_CHECK(tutti_job_wait(l.lane, &l.jobs[k], NULL) == TUTTI_OK);
        }
        EXPLORE_CHECK(tutti_job_wait(l.lane, &l.child, NULL) == TUTTI_ERR_NUMBER);
        EXPLORE_EXPECT(l.most <= (l.width > 0 ? l.width : 1), "%d jobs ran at once on a lane of %d", l.most, l.width);
        for (int k = 0; k < JOBS && l.width == 1; k++)
            EXPLORE_EXPECT(l.order[k] == k, "job %d was started as number %d", l.order[k], k);
    }
    tutti_lane_close(l.lane);
    EXPLORE_EXPECT(l.started == JOBS, "%d of %d jobs ran", l.started, JOBS);
    return TUTTI_OK;
}

/* ---- a monitor: a queue of two places between three threads, and what a deadline does ---- */
typedef struct queue { tutti_runtime *rt; tutti_monitor *m; int held, made, taken; int64_t sum; } queue;
enum { MADE = 20 };

static tutti_status produce(void *arg, tutti_error *err)
{
    queue *const q = arg;

    (void)err;
    for (int k = 0; k < MADE; k++) {
        tutti_lock(q->m);
        while (q->held == 2)
            (void)tutti_wait(q->m, TUTTI_FOREVER, NULL);
        q->held++;
        q->made++;
        tutti_wake(q->m);
        tutti_unlock(q->m);
    }
    return TUTTI_OK;
}

static tutti_status consume(void *arg, tutti_error *err)
{
    queue *const q = arg;

    for (;;) {
        tutti_status status = TUTTI_OK;
        tutti_lock(q->m);
        while (q->held == 0 && q->taken < MADE)
            status = tutti_wait(q->m, tutti_now_ns(q->rt) + 5000, NULL);
        if (q->taken == MADE) {
            tutti_wake(q->m);
            tutti_unlock(q->m);
            return TUTTI_OK;
        }
        EXPLORE_CHECK(q->held > 0 && (status == TUTTI_OK || status == TUTTI_TIMEOUT));
        q->held--;
        q->taken++;
        tutti_wake(q->m);
        tutti_unlock(q->m);
    }
}

static tutti_status monitor(tutti_world *world, explore_case *c, tutti_error *err)
{
    queue q = { .rt = runtime_of(world) };
    tutti_thread *threads[3];
    tutti_status status = TUTTI_OK;

    (void)c;
    TUTTI_TRY(tutti_monitor_open(&q.m, q.rt, err));
    for (int k = 0; k < 3; k++)
        TUTTI_TRY(tutti_thread_open(&threads[k], q.rt, k == 0 ? "producer" : "consumer", k == 0 ? produce : consume, &q,
                                    err));
    for (int k = 0; k < 3; k++) {
        const tutti_status one = tutti_thread_join(threads[k], err);
        status = status == TUTTI_OK ? one : status;
    }
    tutti_monitor_close(q.m);
    EXPLORE_CHECK(status != TUTTI_OK || (q.taken == MADE && q.held == 0));
    return status;
}

const explore_piece explore_port_pieces[] = {
    { .name = "ports-ring",
      .help = "numbered messages on two ports round a ring, posted several at a time",
      .least = 1,
      .most = 6,
      .rank_main = ring },
    { .name = "ports-server",
      .help = "a server that receives from anybody, several at a time",
      .least = 2,
      .most = 6,
      .rank_main = serve },
    { .name = "ports-impatient",
      .help = "deadlines and cancels lose nothing and repeat nothing",
      .least = 2,
      .most = 3,
      .rank_main = impatient },
    { .name = "lane",
      .help = "a lane of 0, 1 or 3 threads; jobs that start jobs; closing in the middle",
      .least = 1,
      .most = 2,
      .rank_main = lane },
    { .name = "monitor",
      .help = "a bounded queue on one monitor, with deadlines",
      .least = 1,
      .most = 1,
      .rank_main = monitor },
    { 0 },
};
