/* lane_bench.c: what bench/run lane measures: the cost of running a job on a lane.

     lane_bench WORKERS TRANSPORT ROUNDS WIDTH

   Workers are threads; over tcp their messages take the loopback. The lane has WIDTH threads, and
   one of them has a job. The job does nothing, so the whole time is the hand-over: from start to
   the end of wait, on the thread that starts. Each of ROUNDS rounds begins with a barrier of all
   workers. Prints one JSON object, each figure the median over rounds in microseconds:
   - message: half of a message without payload to another worker and back; the receiver waits
   - hand_over: a lane without a leader. Two context switches: to its thread and back
   - leader, follower: a leader-ordered lane, at worker 0 and at worker 1, which also waits for
     the sequence number */
#include <stdio.h>
#include <stdlib.h>

#include "engine/lane.h"

enum { ROUNDS_MOST = 100000, WARM = 200 };

typedef struct bench {
    int rounds, width;
    double message, hand_over, leader, follower; /* us; of workers 0, 0, 0 and 1 */
} bench;

static tutti_status nothing(tutti_job *job, tutti_error *err)
{
    (void)job;
    (void)err;
    return TUTTI_OK;
}

static int ascending(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static double median_us(int64_t *ns, int n)
{
    qsort(ns, (size_t)n, sizeof *ns, ascending);
    return (double)(ns[(n - 1) / 2] + ns[n / 2]) / 2e3;
}

static tutti_status hand_overs(tutti_world *world, const tutti_group *lead, const bench *b, int64_t *took, double *us,
                               tutti_error *err)
{
    const tutti_lane_order order = { .credit = 1, .lead = lead };
    tutti_runtime *rt = tutti_world_runtime(world);
    tutti_group all = tutti_group_workers(world, 98);
    tutti_job job = { .run = nothing, .bytes = 1 };
    tutti_status status;
    tutti_lane *lane;

    TUTTI_TRY(tutti_lane_open_ordered(&lane, rt, "bench", b->width, &order, err));
    status = TUTTI_OK;
    for (int k = -WARM; k < b->rounds && status == TUTTI_OK; k++) {
        int64_t begin;
        status = tutti_barrier(&all, err);
        begin = tutti_now_ns(rt);
        if (status != TUTTI_OK)
            break;
        tutti_lane_start(lane, &job);
        status = tutti_job_wait(lane, &job, err);
        if (k >= 0)
            took[k] = tutti_now_ns(rt) - begin;
    }
    tutti_lane_close(lane);
    *us = median_us(took, b->rounds);
    return status;
}

static tutti_status messages(tutti_world *world, int rounds, int64_t *took, double *us, tutti_error *err)
{
    const int rank = tutti_world_rank(world);
    const tutti_port port = tutti_port_of("ping", 0, 0);
    tutti_runtime *rt = tutti_world_runtime(world);

    for (int k = -WARM; k < rounds && rank < 2; k++) {
        const int64_t begin = tutti_now_ns(rt);
        if (rank == 0)
            TUTTI_TRY(tutti_send(world, 1, port, NULL, tutti_nothing(), err));
        TUTTI_TRY(tutti_recv(world, 1 - rank, port, NULL, tutti_nothing(), TUTTI_FOREVER, err));
        if (rank == 1)
            TUTTI_TRY(tutti_send(world, 0, port, NULL, tutti_nothing(), err));
        if (k >= 0)
            took[k] = tutti_now_ns(rt) - begin;
    }
    *us = rank < 2 ? median_us(took, rounds) / 2 : 0;
    return TUTTI_OK;
}

static tutti_status rank_main(tutti_world *world, void *arg, tutti_error *err)
{
    bench *b = arg;
    const int rank = tutti_world_rank(world);
    const tutti_group all = tutti_group_workers(world, 97);
    int64_t *took = tutti_alloc((size_t)b->rounds, sizeof *took);
    double message = 0, alone = 0, led = 0;
    tutti_status status =
        took != NULL ? TUTTI_OK : tutti_fail(err, TUTTI_ERR_MEMORY, 0, "memory for %d rounds", b->rounds);

    if (status == TUTTI_OK)
        status = messages(world, b->rounds, took, &message, err);
    if (status == TUTTI_OK)
        status = hand_overs(world, NULL, b, took, &alone, err);
    if (status == TUTTI_OK)
        status = hand_overs(world, &all, b, took, &led, err);
    tutti_free(took);
    if (rank == 0) {
        b->message = message;
        b->hand_over = alone;
        b->leader = led;
    } else if (rank == 1)
        b->follower = led;
    return status;
}

int main(int argc, char **argv)
{
    tutti_error err = { .rank = -1 };
    bench b = { 0 };
    int workers;

    if (argc != 5 || (workers = atoi(argv[1])) < 2 || (b.rounds = atoi(argv[3])) < 1 || b.rounds > ROUNDS_MOST ||
        (b.width = atoi(argv[4])) < 1) {
        fprintf(stderr, "lane_bench WORKERS (from 2) TRANSPORT ROUNDS (up to %d) WIDTH\n", ROUNDS_MOST);
        return 2;
    }
    if (tutti_world_run(argv[2], workers, rank_main, &b, &err) != TUTTI_OK) {
        fprintf(stderr, "lane_bench: %s\n", err.text);
        return 1;
    }
    printf("{\"workers\": %d, \"transport\": \"%s\", \"rounds\": %d, \"width\": %d, \"message\": %.2f, "
           "\"hand_over\": %.2f, \"leader\": %.2f, \"follower\": %.2f}\n",
           workers, argv[2], b.rounds, b.width, b.message, b.hand_over, b.leader, b.follower);
    return 0;
}
