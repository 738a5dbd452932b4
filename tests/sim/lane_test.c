/* Goal: a lane with priorities and a credit makes the schedule that its model promises, and a led
   lane one order on all ranks for many seeds. Method: virtual time, in which handing over costs
   nothing.

   The model. Tensor i is ready at r_i, takes s_i of one link, and is needed by layer i of the next
   forward, which goes through the layers in order and takes f_i for each. So with T the moment at
   which the last layer ends,

     T* = min over schedules of max over i of C_i + f_i + f_(i+1) + ...

   is one machine with release times, tails and preemption. T* is found by trying every schedule in
   unit parts. Then with parts of d, theta for each and the credit c (ByteScheduler's rule, strict):

     T* <= T <= T* + sum of parts * theta + c + (c / d) * theta

   and T = T* where c = d = 1 and theta = 0. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "engine/lane.h"
#include "engine/led_jobs.h"
#include "forked.h"

enum { TENSORS = 7, SIZE = 3, PARTS = TENSORS * SIZE, STATES = 4 * 4 * 4 * 4 * 4 * 4 * 4, WIDE = 3 };
#define UNIT_NS INT64_C(1000000)
#define EPSILON_NS 100

/* ---- instances ---- */

typedef struct instance {
    int n, size[TENSORS], forward[TENSORS];
    int ready[TENSORS]; /* units */
} instance;

/* Even seeds: as backward gives them, the last layer first; odd ones: at any time. */
static void draw_instance(instance *p, uint64_t seed)
{
    const tutti_rng rng = { seed, 0, 0 };
    int at = 0;

    p->n = 2 + (int)(tutti_random(rng, 0) % (TENSORS - 1));
    for (int i = p->n - 1; i >= 0; i--) {
        const uint64_t k = 10 * (uint64_t)(i + 1);
        p->size[i] = 1 + (int)(tutti_random(rng, k) % SIZE);
        p->forward[i] = (int)(tutti_random(rng, k + 1) % 4);
        at += (int)(tutti_random(rng, k + 2) % 3);
        p->ready[i] = seed % 2 == 0 ? at : (int)(tutti_random(rng, k + 3) % 12);
    }
}

static int tail(const instance *p, int i)
{
    int sum = 0;

    for (int k = i; k < p->n; k++)
        sum += p->forward[k];
    return sum;
}

/* When the link begins its unit number `done`: the same for all schedules that never leave it idle
   in vain. */
static void busy(const instance *p, int *begins)
{
    int time = 0, done = 0, work = 0;

    for (int i = 0; i < p->n; i++)
        work += p->size[i];
    while (done < work) {
        int there = 0;
        for (int i = 0; i < p->n; i++)
            there += p->ready[i] <= time ? p->size[i] : 0;
        if (there > done)
            begins[done++] = time;
        time++;
    }
}

/* The least T from a state on: left[i] units of each tensor. */
static int best_from(const instance *p, const int *begins, int work, int *left, int *known)
{
    int sum = 0, state = 0, best = INT32_MAX;

    for (int i = 0; i < p->n; i++) {
        sum += left[i];
        state = 4 * state + left[i];
    }
    if (sum == 0)
        return 0;
    if (known[state] >= 0)
        return known[state];
    for (int i = 0; i < p->n; i++) {
        const int time = begins[work - sum];
        int after, mine;
        if (left[i] == 0 || p->ready[i] > time)
            continue;
        left[i]--;
        mine = left[i] == 0 ? time + 1 + tail(p, i) : 0;
        after = best_from(p, begins, work, left, known);
        left[i]++;
        mine = mine > after ? mine : after;
        best = mine < best ? mine : best;
    }
    return known[state] = best;
}

static int optimum(const instance *p)
{
    static int known[STATES];
    int begins[PARTS], left[TENSORS], work = 0, last = 0, best;

    memset(known, -1, sizeof known);
    memcpy(left, p->size, sizeof left);
    for (int i = 0; i < p->n; i++) {
        work += p->size[i];
        last = p->ready[i] > last ? p->ready[i] : last;
    }
    busy(p, begins);
    best = best_from(p, begins, work, left, known);
    return best > last + tail(p, 0) ? best : last + tail(p, 0); /* forward begins after backward */
}

/* ---- the same on a lane ---- */

typedef struct link_run {
    tutti_world *world;
    tutti_runtime *rt;
    tutti_monitor *monitor;
    tutti_lane *lane;
    tutti_group all;
    int64_t free_ns; /* of the link; under the monitor */
    tutti_job job[PARTS];
    int first[TENSORS + 1];
} link_run;

/* Through the link after what is in it; where there are several, all begin together. */
static tutti_status pass_link(tutti_job *job, tutti_error *err)
{
    link_run *r = job->owner;
    tutti_group g = tutti_group_keyed(&r->all, (uint64_t)job->turn + 1, 0);
    int64_t until_ns;

    if (g.size > 1)
        TUTTI_TRY(tutti_barrier(&g, err));
    tutti_lock(r->monitor);
    until_ns = tutti_now_ns(r->rt);
    until_ns = (until_ns > r->free_ns ? until_ns : r->free_ns) + UNIT_NS;
    r->free_ns = until_ns;
    tutti_unlock(r->monitor);
    tutti_sleep_until(r->rt, until_ns);
    return TUTTI_OK;
}

static void start_tensor(link_run *r, int i, bool fifo)
{
    for (int k = r->first[i]; k < r->first[i + 1]; k++) {
        r->job[k] = (tutti_job){ .run = pass_link, .owner = r, .index = k, .bytes = 1,
                                 .priority = fifo ? 0 : (uint64_t)k };
        tutti_lane_start(r->lane, &r->job[k]);
    }
}

/* T in units. What is ready at t is so a little before, the later the more: then the part that ends
   at t finds it. Of those that are ready together the most urgent is started first. */
static tutti_status run_instance(tutti_world *world, const instance *p, size_t credit, int width, bool fifo,
                                 uint64_t context, double *took, tutti_error *err)
{
    link_run r = { .world = world, .rt = tutti_world_runtime(world) };
    const tutti_lane_order order = { .credit = credit, .lead = tutti_world_size(world) > 1 ? &r.all : NULL };
    tutti_group gate;
    int64_t begin_ns;
    int events = 0;
    tutti_status status = TUTTI_OK;

    r.all = tutti_group_workers(world, context);
    gate = tutti_group_keyed(&r.all, 0, 0);
    for (int i = 0; i < p->n; i++)
        r.first[i + 1] = r.first[i] + p->size[i];
    TUTTI_TRY(tutti_monitor_open(&r.monitor, r.rt, err));
    TUTTI_TRY(tutti_lane_open_ordered(&r.lane, r.rt, "link", width, &order, err));
    begin_ns = (tutti_now_ns(r.rt) / UNIT_NS + 2) * UNIT_NS;
    TUTTI_TRY(tutti_allreduce(&gate, TUTTI_MAX, tutti_host(&begin_ns, 1, TUTTI_I64), err)); /* all have one clock */
    for (int time = 0, left = p->n; left > 0; time++) {
        bool any = false;
        for (int i = 0; i < p->n; i++) {
            if (p->ready[i] != time)
                continue;
            if (!any)
                tutti_sleep_until(r.rt, begin_ns + time * UNIT_NS - ++events * EPSILON_NS);
            any = true;
            start_tensor(&r, i, fifo);
            left--;
        }
    }
    for (int i = 0; i < p->n; i++) {
        for (int k = r.first[i]; k < r.first[i + 1]; k++) {
            const tutti_status one = tutti_job_wait(r.lane, &r.job[k], err);
            status = status == TUTTI_OK ? one : status;
        }
        tutti_sleep_until(r.rt, tutti_now_ns(r.rt) + p->forward[i] * UNIT_NS);
    }
    *took = (double)(tutti_now_ns(r.rt) - begin_ns) / (double)UNIT_NS;
    tutti_lane_close(r.lane);
    tutti_monitor_close(r.monitor);
    return status;
}

/* What a part costs besides its unit: of many in a row. */
static tutti_status find_theta(tutti_world *world, double *theta, tutti_error *err)
{
    const instance row = { .n = TENSORS, .size = { SIZE, SIZE, SIZE, SIZE, SIZE, SIZE, SIZE } };
    double took;

    TUTTI_TRY(run_instance(world, &row, 1, 1, false, 1, &took, err));
    *theta = (took - PARTS) / PARTS;
    return TUTTI_OK;
}

#define EXPECT(condition, ...) \
    do { \
        if (!(condition)) \
            return tutti_fail(err, TUTTI_ERR_NUMBER, 0, __VA_ARGS__); \
    } while (0)

static tutti_status model(tutti_world *world, void *instances, tutti_error *err)
{
    const bool alone = tutti_world_size(world) == 1;
    const double slack = 10 * EPSILON_NS / (double)UNIT_NS;
    int worse = 0, n = *(const int *)instances;
    double theta = 0, gained = 0;
    uint64_t context = 10;

    if (!alone)
        TUTTI_TRY(find_theta(world, &theta, err));
    EXPECT(theta >= 0 && theta < 0.2, "a part costs %.4f of itself besides", theta);
    for (int k = 1; k <= n; k++) {
        double took[2], fifo;
        instance p;
        int best, parts = 0;
        draw_instance(&p, (uint64_t)k);
        for (int i = 0; i < p.n; i++)
            parts += p.size[i];
        best = optimum(&p);
        TUTTI_TRY(run_instance(world, &p, 1, 1, false, context++, &took[0], err));
        TUTTI_TRY(run_instance(world, &p, WIDE, WIDE, false, context++, &took[1], err));
        TUTTI_TRY(run_instance(world, &p, 0, 1, true, context++, &fifo, err));
        EXPECT(!alone || (took[0] >= best - slack && took[0] <= best + slack),
               "instance %d: a schedule of %.5f units; the optimum is %d", k, took[0], best);
        for (int w = 0; w < 2; w++) {
            const double c = w == 0 ? 1 : WIDE;
            EXPECT(took[w] >= best - slack && took[w] <= best + (parts + c) * theta + c + slack,
                   "instance %d, credit %.0f: a schedule of %.5f units; the optimum is %d, and %d parts cost %.5f each",
                   k, c, took[w], best, parts, theta);
        }
        EXPECT(fifo >= best - slack, "instance %d: FIFO takes %.5f, the optimum %d", k, fifo, best);
        worse += fifo > best + 0.5;
        gained += fifo - took[0];
    }
    /* else there was nothing to gain, and the above could not fail */
    EXPECT(4 * worse > n && gained > n / 4.0, "FIFO is worse in %d of %d instances, by %.1f units in all", worse, n,
           gained);
    return TUTTI_OK;
}

typedef struct call {
    int ranks;
    const char *spec;
    tutti_status (*main)(tutti_world *world, void *arg, tutti_error *err);
    void *arg;
} call;

static tutti_status in_child(void *arg, tutti_error *err)
{
    const call *c = arg;
    return tutti_world_run(c->spec, c->ranks, c->main, c->arg, err);
}

static void run(const call *c)
{
    tutti_error err = { .rank = -1 };

    if (forked(in_child, (void *)(uintptr_t)c, &err) != TUTTI_OK)
        fail_msg("%d ranks: %s", c->ranks, err.text);
}

static void lane_schedule_is_optimal(void **state)
{
    int instances = 300;

    (void)state;
    run(&(call){ 1, "sim", model, &instances });
}

static void leader_ordered_lane_schedule_is_within_the_model_bound(void **state)
{
    int instances = 40;

    (void)state;
    run(&(call){ 3, "sim", model, &instances });
}

static void jobs_run_in_the_same_order_on_all_ranks(void **state)
{
    enum { CASES = 40 };
    static const int sizes[] = { 2, 3, 5, 8 };
    led_case cases[CASES];
    led_cases all = { cases, CASES };

    (void)state;
    for (int k = 0; k < CASES; k++)
        cases[k] = (led_case){ .seed = (uint64_t)k + 100, .width = 1 + k % 4, .jobs = 10, .steps = 3,
                               .credit = (size_t[]){ 0, 600, 1000, 2500 }[k / 4 % 4], .sums = k % 3 == 0,
                               .equal = k % 5 == 0, .changes = k % 7 == 0, .pause_ns = 1000 << k % 11 };
    for (size_t n = 0; n < TUTTI_LENGTH(sizes); n++) {
        char spec[40];
        snprintf(spec, sizeof spec, "sim(seed=%zu)", n + 1);
        run(&(call){ sizes[n], spec, led_jobs_rank, &all });
    }
}

/* Whenever a host fails, the others end and name it. */
static void a_lost_member_is_named(void **state)
{
    const led_case cases[] = { { .seed = 9, .width = 2, .jobs = 12, .steps = 3, .credit = 1200, .pause_ns = 100000 },
                               { .seed = 8, .width = 3, .jobs = 12, .steps = 3, .sums = true } };
    led_cases all = { cases, TUTTI_LENGTH(cases) };

    (void)state;
    for (int k = 0; k < 12; k++) {
        const int victim = k % 3;
        char spec[60];
        call c = { 3, spec, led_jobs_rank, &all };
        tutti_error err = { .rank = -1 };
        tutti_status status;
        snprintf(spec, sizeof spec, "sim(fail=%d@%.4f)", victim, 0.0002 + 0.0004 * k);
        status = forked(in_child, &c, &err);
        if (status != TUTTI_ERR_PEER || err.rank != victim)
            fail_msg("%s: %s, rank %d: %s", spec, tutti_status_name(status), err.rank, err.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lane_schedule_is_optimal),
        cmocka_unit_test(leader_ordered_lane_schedule_is_within_the_model_bound),
        cmocka_unit_test(jobs_run_in_the_same_order_on_all_ranks),
        cmocka_unit_test(a_lost_member_is_named),
    };
    return cmocka_run_group_tests_name("sim/lane", tests, NULL, NULL);
}
