/* Pieces: led lanes. Members whose jobs become ready in orders of their own run them in one order,
   that of member 0's priorities, within the credit; and all end, whatever fails, dies or closes. */
#include "explore.h"
#include "engine/lane.h"
#include <stdio.h>
#include <string.h>

enum { JOBS = 7, STEPS = 3, BYTES = 10, TURNS = JOBS * STEPS, FAILS_AT = JOBS / 2 };
/* What a job does: nothing with others, a sum, a chain that member 0 leaves first. */
enum { ALONE, TOGETHER, HANDED };

/* In the shared memory: for each sequence number, the job that the first rank ran. */
typedef struct log { int known[TURNS], job[TURNS]; } log;

typedef struct led {
    explore_case *c;
    tutti_world *world;
    tutti_lane *lane;
    tutti_group all;
    int rank, step, width, kind, running;
    size_t credit, taken; /* credit: the greatest since the step began */
    tutti_job jobs[JOBS];
    tutti_monitor *lock; /* of `met` */
    int met;
    int64_t x[JOBS];
} led;

static uint64_t draw_of(const led *l, const char *what, int a, int b, uint64_t n)
{
    char name[64];

    snprintf(name, sizeof name, "%s %d %d", what, a, b);
    return explore_draw(l->c, name, n);
}

static bool may_fail(const explore_case *c)
{
    return c->piece->judge != NULL || c->piece->deaths;
}

/* Not all members leave it at the same time: member 0 is done when its message is sent. */
static tutti_status hand_on(led *l, const tutti_job *job, tutti_error *err)
{
    const tutti_port port = tutti_port_of("chain", (uint64_t)job->index, (uint64_t)l->step);

    if (l->rank > 0)
        TUTTI_TRY(tutti_recv(l->world, l->rank - 1, port, NULL, tutti_nothing(), TUTTI_FOREVER, err));
    return l->rank + 1 < l->c->ranks ? tutti_send(l->world, l->rank + 1, port, NULL, tutti_nothing(), err) : TUTTI_OK;
}

static tutti_status sum_up(led *l, const tutti_job *job, tutti_error *err)
{
    tutti_group g = tutti_group_keyed(&l->all, (uint64_t)job->index + 1, (uint32_t)l->step);
    int64_t *x = &l->x[job->index];

    *x = 1 + 100 * job->index;
    TUTTI_TRY(tutti_allreduce(&g, TUTTI_SUM, tutti_host(x, 1, TUTTI_I64), err));
    EXPLORE_EXPECT(*x == (1 + 100 * job->index) * l->c->ranks, "worker %d: job %d sums to %lld", l->rank, job->index,
                   (long long)*x);
    return TUTTI_OK;
}

static tutti_status run_job(tutti_job *job, tutti_error *err)
{
    led *const l = job->owner;
    log *const shared = (log *)(void *)l->c->shared;
    tutti_status status = TUTTI_OK;

    EXPLORE_EXPECT(job->turn < TURNS, "worker %d: job %d has turn %llu", l->rank, job->index,
                   (unsigned long long)job->turn);
    EXPLORE_EXPECT(!shared->known[job->turn] || shared->job[job->turn] == job->index,
                   "turn %llu is job %d at worker %d, and was job %d elsewhere", (unsigned long long)job->turn,
                   job->index, l->rank, shared->job[job->turn]);
    shared->known[job->turn] = true;
    shared->job[job->turn] = job->index;
    EXPLORE_EXPECT(l->taken == 0 || job->bytes == 0 || l->credit == 0 || l->taken + job->bytes <= l->credit,
                   "worker %d: %zu + %zu bytes are under way, the credit is %zu", l->rank, l->taken, job->bytes,
                   l->credit);
    l->taken += job->bytes;
    l->running++;
    EXPLORE_EXPECT(l->running <= l->width, "worker %d: %d jobs on a lane of %d", l->rank, l->running, l->width);
    explore_dawdle(2000);
    if (may_fail(l->c) && !l->c->piece->deaths && job->index == FAILS_AT && l->step == 1 &&
        l->rank == (int)explore_draw(l->c, "odd", (uint64_t)l->c->ranks))
        status = tutti_fail(err, TUTTI_ERR_IO, 0, "the disk of worker %d is full", l->rank);
    else if (l->kind == TOGETHER)
        status = sum_up(l, job, err);
    else if (l->kind == HANDED)
        status = hand_on(l, job, err);
    l->running--;
    l->taken -= job->bytes;
    return status;
}

/* Two that fit together run at the same time: each waits until the other has begun. */
static tutti_status meet(tutti_job *job, tutti_error *err)
{
    led *const l = job->owner;

    (void)err;
    tutti_lock(l->lock);
    l->met++;
    tutti_wake(l->lock);
    while (l->met < 2)
        (void)tutti_wait(l->lock, TUTTI_FOREVER, NULL);
    tutti_unlock(l->lock);
    return TUTTI_OK;
}

static bool may_meet(const led *l)
{
    return l->width > 1 && !may_fail(l->c);
}

static tutti_status is_in_order(const led *l, tutti_error *err)
{
    for (int i = 0; i < JOBS; i++)
        for (int k = 0; k < JOBS; k++) {
            const tutti_job *a = &l->jobs[i], *b = &l->jobs[k];
            EXPLORE_EXPECT(a->turn >= b->turn || b->priority >= a->priority || b->queued_ns >= a->started_ns,
                           "job %d of priority %d came before job %d of %d, which was there", i, (int)a->priority, k,
                           (int)b->priority);
            EXPLORE_EXPECT(a->turn >= b->turn || b->priority != a->priority || b->queued_ns >= a->queued_ns,
                           "job %d overtook job %d, its equal", i, k);
        }
    return TUTTI_OK;
}

static void start_all(led *l)
{
    const tutti_rng mine = { l->c->seed, (uint64_t)l->rank + 1, (uint64_t)l->step };
    const bool changes = explore_draw(l->c, "changes", 3) == 0;

    for (int k = 0; k < JOBS; k++) {
        const int i = (int)tutti_permuted(mine, JOBS, (uint64_t)k);
        l->jobs[i].run = run_job;
        l->jobs[i].owner = l;
        l->jobs[i].index = i;
        l->jobs[i].priority = draw_of(l, "priority", i, 0, 4);
        l->jobs[i].bytes = draw_of(l, "bytes", i, 0, BYTES);
        if (changes && k == JOBS / 2 && l->credit > 0) {
            l->credit += 3;
            tutti_lane_credit(l->lane, l->credit);
        }
        explore_dawdle((int64_t)draw_of(l, "pace", l->rank, l->step, 4000));
        tutti_lane_start(l->lane, &l->jobs[i]);
    }
}

/* The first failure that is no mere consequence of a failure in this lane. */
static tutti_status wait_all(led *l, tutti_error *err)
{
    tutti_status status = TUTTI_OK;

    for (int k = 0; k < JOBS; k++) {
        const bool told = status != TUTTI_OK && status != TUTTI_CLOSED;
        const tutti_status one = tutti_job_wait(l->lane, &l->jobs[k], told ? NULL : err);
        status = told || one == TUTTI_OK ? status : one;
    }
    return status;
}

static tutti_status steps(led *l, tutti_error *err)
{
    for (l->step = 0; l->step < STEPS; l->step++) {
        start_all(l);
        TUTTI_TRY(wait_all(l, err));
        for (int k = 0; k < JOBS; k++)
            EXPLORE_EXPECT(l->jobs[k].turn / JOBS == (uint64_t)l->step, "worker %d, step %d: job %d has turn %llu",
                           l->rank, l->step, k, (unsigned long long)l->jobs[k].turn);
        if (l->rank == 0)
            TUTTI_TRY(is_in_order(l, err));
    }
    return TUTTI_OK;
}

/* Nothing is in flight: the whole credit is there. */
static tutti_status pair(led *l, tutti_error *err)
{
    if (!may_meet(l))
        return TUTTI_OK;
    TUTTI_TRY(tutti_monitor_open(&l->lock, tutti_world_runtime(l->world), err));
    for (int k = 0; k < 2; k++) {
        l->jobs[k].run = meet;
        l->jobs[k].bytes = l->credit / 2;
        explore_dawdle(1000);
        tutti_lane_start(l->lane, &l->jobs[k]);
    }
    for (int k = 0; k < 2; k++)
        TUTTI_TRY(tutti_job_wait(l->lane, &l->jobs[k], err));
    tutti_monitor_close(l->lock);
    return TUTTI_OK;
}

static void set_up(led *l, tutti_world *world, explore_case *c)
{
    *l = (led){ .c = c, .world = world, .rank = tutti_world_rank(world) };
    l->all = tutti_group_workers(world, 5);
    l->width = 1 + (int)explore_draw(c, "width", 3);
    l->credit = (size_t[]){ 0, 3, 8, 15 }[explore_draw(c, "credit", 4)];
    l->kind = (int)explore_draw(c, "kind", 3);
}

static tutti_status open_lane(led *l, tutti_error *err)
{
    const tutti_lane_order order = { .credit = l->credit, .lead = &l->all };

    return tutti_lane_open_ordered(&l->lane, tutti_world_runtime(l->world), "led", l->width, &order, err);
}

static tutti_status led_lane(tutti_world *world, explore_case *c, tutti_error *err)
{
    tutti_status status;
    led l;

    set_up(&l, world, c);
    TUTTI_TRY(open_lane(&l, err));
    status = steps(&l, err);
    if (status == TUTTI_OK)
        status = pair(&l, err);
    tutti_lane_close(l.lane);
    if (status == TUTTI_OK && l.kind == ALONE)
        for (int to = 0; to < c->ranks; to++) {
            const uint64_t turns = TURNS + (may_meet(&l) ? 2 : 0);
            uint64_t bytes, messages;
            tutti_world_sent(world, to, &bytes, &messages);
            EXPLORE_EXPECT(bytes == 0 && messages == (l.rank == 0 && to > 0 ? turns : 0),
                           "worker %d has sent %d messages to %d", l.rank, (int)messages, to);
        }
    return status;
}

static tutti_status judge_fails(const explore_case *c, tutti_error *err)
{
    const int odd = (int)explore_draw(c, "odd", (uint64_t)c->ranks);

    for (int r = 0; r < c->ranks; r++)
        if (r == odd)
            EXPLORE_EXPECT(c->rank[r].status == TUTTI_ERR_IO, "worker %d failed and ended with '%s': %s", r,
                           tutti_status_name(c->rank[r].status), c->rank[r].err.text);
        else /* jobs that need no other rank may all be over */
            EXPLORE_EXPECT(c->rank[r].status == TUTTI_OK ||
                               (c->rank[r].status == TUTTI_ERR_PEER && c->rank[r].err.rank == odd),
                           "worker %d ended with '%s', rank %d: %s", r, tutti_status_name(c->rank[r].status),
                           c->rank[r].err.rank, c->rank[r].err.text);
    return TUTTI_OK;
}

/* Each rank closes at a moment of its own, with jobs in the queue. */
static tutti_status closes(tutti_world *world, explore_case *c, tutti_error *err)
{
    led l;

    set_up(&l, world, c);
    TUTTI_TRY(open_lane(&l, err));
    start_all(&l);
    if (draw_of(&l, "waits", l.rank, 0, 2) == 0)
        (void)tutti_job_wait(l.lane, &l.jobs[l.rank], NULL);
    explore_dawdle(20000);
    tutti_lane_close(l.lane);
    for (int k = 0; k < JOBS; k++) {
        const tutti_job *job = &l.jobs[k];
        EXPLORE_EXPECT(job->state == TUTTI_JOB_ENDED || (job->state == TUTTI_JOB_IDLE && k == l.rank),
                       "worker %d: job %d is in state %d of a lane that is closed", l.rank, k, job->state);
    }
    EXPLORE_EXPECT(l.running == 0 && l.taken == 0, "worker %d: %d jobs are under way", l.rank, l.running);
    return TUTTI_OK;
}

const explore_piece explore_lane_pieces[] = {
    { .name = "lane-led",
      .help = "jobs that are ready in other orders at each rank: one order, within the credit",
      .least = 1,
      .most = 5,
      .rank_main = led_lane },
    { .name = "lane-led-fails",
      .help = "a job of a led lane fails: all end and name its rank",
      .least = 2,
      .most = 4,
      .rank_main = led_lane,
      .judge = judge_fails },
    { .name = "lane-led-dies",
      .help = "a rank is killed while led lanes run: all others end",
      .least = 2,
      .most = 4,
      .rank_main = led_lane,
      .deaths = true },
    { .name = "lane-led-closes",
      .help = "led lanes are closed with jobs in the queue: closing waits for nobody's turn",
      .least = 2,
      .most = 4,
      .rank_main = closes },
    { 0 },
};
