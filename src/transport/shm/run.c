/* run.c: ranks that are threads of one process (`run` of transport.h), for tests, sanitizers and
   small runs. They use the same layout of the region and the same code as processes, with two
   differences: the region is ordinary memory of the process, mapped once; and each thread records
   itself how its rank ended, which a parent does for processes, after rank_main has returned. */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include "shm_internal.h"

typedef struct run_rank {
    tutti_launch launch;
    shm_within *within;
    tutti_status (*rank_main)(const tutti_launch *launch, void *arg, tutti_error *err);
    void *arg;
    tutti_thread *thread;
    tutti_status status;
    tutti_error err;
} run_rank;

/* However rank_main ended, the others are notified: without that they would wait for ever for a
   rank that returned without having left, or without ever having joined. */
static tutti_status rank_thread(void *arg, tutti_error *err)
{
    run_rank *r = arg;

    r->err.rank = -1;
    r->status = r->rank_main(&r->launch, r->arg, &r->err);
    if (r->status == TUTTI_OK || r->status == TUTTI_CLOSED) {
        r->status = TUTTI_OK;
        tutti_shm_depart(&r->within->region, r->launch.rank, TUTTI_SHM_CLOSED, NULL, 0);
    } else {
        if (r->err.status == TUTTI_OK)
            tutti_fail(&r->err, r->status, 0, "worker %d ended with '%s' and no sentence",
                       r->launch.rank, tutti_status_name(r->status));
        tutti_shm_depart(&r->within->region, r->launch.rank, TUTTI_SHM_FAILED, &r->err, 0);
    }
    (void)err; /* a failure is reported by the run, not by the thread */
    return TUTTI_OK;
}

static bool cores_for(int n)
{
    cpu_set_t set;

    return sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) >= n;
}

/* What the failed rank returned; or, if it left a failure report and returned OK, that report. */
static tutti_status root_failure(const shm_within *within, const run_rank *ranks, tutti_error *err)
{
    const int culprit = tutti_shm_culprit(&within->region);
    const tutti_shm_rank *line;

    if (culprit < 0)
        return TUTTI_OK;
    if (ranks[culprit].status != TUTTI_OK) {
        if (err != NULL)
            *err = ranks[culprit].err;
        return ranks[culprit].status;
    }
    line = &within->region.header->ranks[culprit];
    return tutti_fail_rank(err, line->status != 0 ? (tutti_status)line->status : TUTTI_ERR_STATE,
                           line->blame, "%s", line->reason);
}

tutti_status tutti_shm_run(tutti_runtime *rt, const tutti_launch *launch,
                           tutti_status (*rank_main)(const tutti_launch *launch, void *arg,
                                                     tutti_error *err),
                           void *arg, tutti_error *err)
{
    const int n = launch->size;
    shm_within within = { .region = { .fd = -1 } };
    run_rank *ranks = NULL;
    tutti_status status;
    char name[24];
    int started = 0;

    status = tutti_shm_region_own(&within.region, n, cores_for(n), err);
    if (status != TUTTI_OK)
        return status;
    ranks = tutti_alloc((size_t)n, sizeof *ranks);
    if (ranks == NULL) {
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "starting %d workers as threads", n);
        goto out;
    }
    for (; started < n && status == TUTTI_OK; started++) {
        run_rank *r = &ranks[started];
        r->launch = *launch;
        r->launch.rank = started;
        r->launch.within = &within;
        r->within = &within;
        r->rank_main = rank_main;
        r->arg = arg;
        snprintf(name, sizeof name, "worker-%d", started);
        status = tutti_thread_open(&r->thread, rt, name, rank_thread, r, &r->err);
        if (status != TUTTI_OK) {
            r->status = status;
            for (int late = started; late < n; late++) /* ranks that run may be waiting for these */
                tutti_shm_depart(&within.region, late, TUTTI_SHM_FAILED, &r->err, 0);
        }
    }
    for (int r = 0; r < started; r++)
        tutti_thread_join(ranks[r].thread, NULL);
    status = root_failure(&within, ranks, err);
out:
    tutti_shm_windows_close(within.windows);
    tutti_free(ranks);
    tutti_shm_region_close(&within.region);
    return status;
}
