/* led_jobs.h: jobs of a led lane that become ready in an order of each rank's own, and what must
   hold of them. For ranks of any transport: what is compared goes by collectives. */
#ifndef TUTTI_TESTS_LED_JOBS_H
#define TUTTI_TESTS_LED_JOBS_H
#include "tutti/comm.h"

enum { LED_JOBS = 16, LED_STEPS = 6 };
typedef struct led_case {
    uint64_t seed;
    int width, jobs, steps;
    size_t credit;       /* bytes of a job are drawn, from 1 to LED_BYTES */
    bool sums;           /* a job sums over all; else it sends nothing: traffic is checked */
    bool equal;          /* priorities are equal: FIFO by readiness at member 0 */
    bool changes;        /* the credit is changed while jobs are in flight */
    int64_t pause_ns;    /* at most so long between two starts, and in a job */
} led_case;
#define LED_BYTES 1000

/* Every rank: runs cases[0..n), each with a lane of its own. */
typedef struct led_cases { const led_case *cases; int n; } led_cases;
tutti_status led_jobs(tutti_world *world, const led_cases *all, tutti_error *err);

/* The same, with `all` as arg, for tutti_world_run. */
tutti_status led_jobs_rank(tutti_world *world, void *all, tutti_error *err);
#endif
