#include "led_jobs.h"
#include <stdatomic.h>
#include <string.h>

#include "engine/lane.h"

#define CHECK(condition, ...) \
    do { \
        if (!(condition)) \
            return tutti_fail(err, TUTTI_ERR_NUMBER, 0, __VA_ARGS__); \
    } while (0)

typedef struct run {
    const led_case *c;
    tutti_world *world;
    tutti_runtime *rt;
    tutti_lane *lane;
    tutti_group all;
    int rank, step;
    atomic_size_t taken;  /* bytes of jobs that are in run */
    atomic_size_t credit; /* the greatest credit in force since the step began */
    atomic_int running;
    tutti_job job[LED_JOBS];
    int64_t x[LED_JOBS];
    int32_t order[LED_STEPS * LED_JOBS]; /* by turn: the job */
} run;

static uint64_t drawn(const run *r, uint64_t what, uint64_t a, uint64_t b, uint64_t n)
{
    const uint64_t words[4] = { r->c->seed, what, a, b };
    return tutti_hash(words, sizeof words) % n;
}

static void pause(const run *r, uint64_t what, uint64_t k)
{
    const int64_t most = r->c->pause_ns;

    if (most > 0)
        tutti_sleep_until(r->rt, tutti_now_ns(r->rt) +
                                     (int64_t)drawn(r, what, (uint64_t)r->rank * 100 + (uint64_t)r->step, k,
                                                    (uint64_t)most));
}

static tutti_status carry_out(tutti_job *job, tutti_error *err)
{
    run *r = job->owner;
    const size_t before = atomic_fetch_add(&r->taken, job->bytes), credit = atomic_load(&r->credit);
    const int beside = atomic_fetch_add(&r->running, 1);
    tutti_group g = tutti_group_keyed(&r->all, (uint64_t)job->index + 1, (uint32_t)r->step);

    CHECK(beside == 0 || credit == 0 || before + job->bytes <= credit,
          "worker %d: %zu + %zu bytes are under way, the credit is %zu", r->rank, before, job->bytes, credit);
    CHECK(beside < r->c->width, "worker %d: %d jobs beside another on a lane of %d", r->rank, beside, r->c->width);
    pause(r, 1, (uint64_t)job->index);
    if (r->c->sums) {
        r->x[job->index] = 1 + r->rank + 100 * job->index;
        TUTTI_TRY(tutti_allreduce(&g, TUTTI_SUM, tutti_host(&r->x[job->index], 1, TUTTI_I64), err));
        CHECK(r->x[job->index] == g.size * (g.size + 1) / 2 + INT64_C(100) * job->index * g.size,
              "worker %d: job %d sums to %lld", r->rank, job->index, (long long)r->x[job->index]);
    }
    atomic_fetch_sub(&r->running, 1);
    atomic_fetch_sub(&r->taken, job->bytes);
    return TUTTI_OK;
}

/* The admitted job was the most urgent of those that were there: whatever came later and is more
   urgent was started later. Of equal ones the first is admitted. */
static tutti_status is_in_order(const run *r, tutti_error *err)
{
    for (int i = 0; i < r->c->jobs; i++)
        for (int k = 0; k < r->c->jobs; k++) {
            const tutti_job *a = &r->job[i], *b = &r->job[k];
            if (a->turn >= b->turn)
                continue;
            CHECK(b->priority >= a->priority || b->queued_ns >= a->started_ns,
                  "job %d of priority %llu had turn %llu, before job %d of %llu that was there", i,
                  (unsigned long long)a->priority, (unsigned long long)a->turn, k, (unsigned long long)b->priority);
            CHECK(b->priority != a->priority || b->queued_ns >= a->queued_ns, "job %d overtook job %d, its equal", i,
                  k);
        }
    return TUTTI_OK;
}

static tutti_status one_step(run *r, tutti_error *err)
{
    const led_case *c = r->c;
    const tutti_rng mine = { c->seed, (uint64_t)r->rank, (uint64_t)r->step };
    tutti_status status = TUTTI_OK;

    for (int k = 0; k < c->jobs; k++) {
        const int i = (int)tutti_permuted(mine, (uint64_t)c->jobs, (uint64_t)k);
        tutti_job *job = &r->job[i];
        job->run = carry_out;
        job->owner = r;
        job->index = i;
        job->priority = c->equal ? 7 : drawn(r, 2, (uint64_t)i, 0, 5);
        job->bytes = 1 + drawn(r, 3, (uint64_t)i, 0, LED_BYTES);
        if (c->changes && k == c->jobs / 2) { /* twice as much, or half */
            const size_t credit = r->step % 2 == 0 ? 2 * c->credit : c->credit;
            if (r->step % 2 == 0)
                atomic_store(&r->credit, credit);
            tutti_lane_credit(r->lane, credit);
        }
        pause(r, 4, (uint64_t)k);
        tutti_lane_start(r->lane, job);
    }
    for (int k = 0; k < c->jobs; k++) {
        const bool told = status != TUTTI_OK && status != TUTTI_CLOSED;
        const tutti_status one = tutti_job_wait(r->lane, &r->job[k], told ? NULL : err);
        status = told || one == TUTTI_OK ? status : one;
    }
    TUTTI_TRY(status);
    for (int k = 0; k < c->jobs; k++) {
        const uint64_t turn = r->job[k].turn, first = (uint64_t)(r->step * c->jobs);
        CHECK(turn >= first && turn < first + (uint64_t)c->jobs && r->order[turn] < 0,
              "worker %d, step %d: job %d has turn %llu", r->rank, r->step, k, (unsigned long long)turn);
        r->order[turn] = k;
        CHECK(r->job[k].queued_ns <= r->job[k].started_ns && r->job[k].started_ns <= r->job[k].ended_ns,
              "worker %d: times of job %d", r->rank, k);
    }
    if (c->changes && r->step % 2 == 1)
        atomic_store(&r->credit, c->credit); /* what is under way now fits */
    return r->rank == 0 ? is_in_order(r, err) : TUTTI_OK;
}

static tutti_status traffic(const run *r, const uint64_t (*before)[2], tutti_error *err)
{
    for (int to = 0; to < r->all.size; to++) {
        const uint64_t due = r->rank == 0 && to > 0 ? (uint64_t)(r->c->jobs * r->c->steps) : 0;
        uint64_t bytes, messages;
        tutti_world_sent(r->world, to, &bytes, &messages);
        CHECK(bytes == before[to][0] && messages == before[to][1] + due,
              "worker %d has sent %llu messages of %llu bytes to %d, due are %llu of none", r->rank,
              (unsigned long long)(messages - before[to][1]), (unsigned long long)(bytes - before[to][0]), to,
              (unsigned long long)due);
    }
    return TUTTI_OK;
}

static tutti_status compare(run *r, tutti_error *err)
{
    enum { TURNS = LED_STEPS * LED_JOBS };
    tutti_group g = tutti_group_keyed(&r->all, 1000, 0);
    int32_t first[TURNS];

    memcpy(first, r->order, sizeof first);
    TUTTI_TRY(tutti_broadcast(&g, 0, tutti_host(first, TURNS, TUTTI_I32), err));
    for (int t = 0; t < r->c->jobs * r->c->steps; t++)
        CHECK(first[t] == r->order[t], "seed %llu: turn %d is job %d at worker 0 and job %d at worker %d",
              (unsigned long long)r->c->seed, t, first[t], r->order[t], r->rank);
    return TUTTI_OK;
}

static tutti_status one_case(tutti_world *world, const led_case *c, uint64_t context, tutti_error *err)
{
    run r = { .c = c, .world = world, .rt = tutti_world_runtime(world), .rank = tutti_world_rank(world) };
    const tutti_lane_order order = { .credit = c->credit, .lead = &r.all };
    uint64_t before[16][2];
    tutti_status status;

    r.all = tutti_group_workers(world, context);
    atomic_store(&r.credit, c->credit);
    for (int to = 0; to < r.all.size; to++)
        tutti_world_sent(world, to, &before[to][0], &before[to][1]);
    for (size_t t = 0; t < TUTTI_LENGTH(r.order); t++)
        r.order[t] = -1;
    status = tutti_lane_open_ordered(&r.lane, r.rt, "led", c->width, &order, err);
    for (; status == TUTTI_OK && r.step < c->steps; r.step++)
        status = one_step(&r, err);
    tutti_lane_close(r.lane);
    if (status == TUTTI_OK && !c->sums)
        status = traffic(&r, (const uint64_t(*)[2])before, err);
    return status == TUTTI_OK ? compare(&r, err) : status;
}

tutti_status led_jobs(tutti_world *world, const led_cases *all, tutti_error *err)
{
    for (int k = 0; k < all->n; k++)
        TUTTI_TRY(tutti_fail_within(err, one_case(world, &all->cases[k], (uint64_t)k + 1, err), "case %d", k));
    return TUTTI_OK;
}

tutti_status led_jobs_rank(tutti_world *world, void *all, tutti_error *err)
{
    return led_jobs(world, all, err);
}
