/* lane.c: a FIFO of blocking jobs run by `width` threads, under one monitor. A hand-over costs
   two context switches (35-47 us on the reference machine), which is why the engine keeps
   small pieces on the client's thread. */
#include <errno.h>
#include <stdio.h>

#include "tutti/lane.h"

enum { WIDTH_MAX = 64 };

struct tutti_lane {
    tutti_runtime *rt;
    tutti_monitor *monitor;
    tutti_job *first, *last;     /* queued; under monitor */
    bool closing;                /* under monitor */
    int width;
    tutti_thread *thread[WIDTH_MAX];
};

static void run(tutti_lane *lane, tutti_job *job)
{
    job->started_ns = tutti_now_ns(lane->rt);
    job->error = (tutti_error){ .rank = -1 };
    job->status = job->run(job, &job->error);
    job->ended_ns = tutti_now_ns(lane->rt);
}

static tutti_status work(void *arg, tutti_error *err)
{
    tutti_lane *lane = arg;

    tutti_lock(lane->monitor);
    for (;;) {
        tutti_job *job = lane->first;
        if (job == NULL) {
            if (lane->closing)
                break;
            tutti_wait(lane->monitor, TUTTI_FOREVER, err);
            continue;
        }
        lane->first = job->next;
        if (lane->first == NULL)
            lane->last = NULL;
        job->state = TUTTI_JOB_RUNNING;
        tutti_unlock(lane->monitor);
        run(lane, job);
        tutti_lock(lane->monitor);
        job->state = TUTTI_JOB_ENDED;
        tutti_wake(lane->monitor);
    }
    tutti_unlock(lane->monitor);
    return TUTTI_OK;
}

tutti_status tutti_lane_open(tutti_lane **out, tutti_runtime *rt, const char *name, int width, tutti_error *err)
{
    tutti_lane *lane;
    tutti_status status;

    *out = NULL;
    if (width < 0 || width > WIDTH_MAX)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "a lane of width %d; it must be from 0 to %d threads", width,
                          WIDTH_MAX);
    lane = tutti_alloc(1, sizeof *lane);
    if (lane == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening lane '%s'", name);
    lane->rt = rt;
    status = tutti_monitor_open(&lane->monitor, rt, err);
    for (int i = 0; status == TUTTI_OK && i < width; i++) {
        char title[16];
        snprintf(title, sizeof title, "%.10s-%d", name, i);
        status = tutti_thread_open(&lane->thread[i], rt, title, work, lane, err);
        lane->width += status == TUTTI_OK;
    }
    if (status == TUTTI_OK)
        *out = lane;
    else
        tutti_lane_close(lane);
    return status;
}

void tutti_lane_close(tutti_lane *lane)
{
    if (lane == NULL)
        return;
    if (lane->monitor != NULL) {
        tutti_lock(lane->monitor);
        lane->closing = true;
        tutti_wake(lane->monitor);
        tutti_unlock(lane->monitor);
    }
    for (int i = 0; i < lane->width; i++)
        tutti_thread_join(lane->thread[i], NULL);
    tutti_monitor_close(lane->monitor);
    tutti_free(lane);
}

void tutti_lane_start(tutti_lane *lane, tutti_job *job)
{
    job->next = NULL;
    if (lane->width == 0) {
        run(lane, job);
        job->state = TUTTI_JOB_ENDED;
        return;
    }
    tutti_lock(lane->monitor);
    job->state = TUTTI_JOB_QUEUED;
    if (lane->last != NULL)
        lane->last->next = job;
    else
        lane->first = job;
    lane->last = job;
    tutti_wake(lane->monitor);
    tutti_unlock(lane->monitor);
}

tutti_status tutti_job_wait(tutti_lane *lane, tutti_job *job, tutti_error *err)
{
    tutti_status status = TUTTI_OK;

    tutti_lock(lane->monitor);
    while (job->state == TUTTI_JOB_QUEUED || job->state == TUTTI_JOB_RUNNING)
        tutti_wait(lane->monitor, TUTTI_FOREVER, NULL);
    if (job->state == TUTTI_JOB_ENDED) {
        job->state = TUTTI_JOB_IDLE;
        status = job->status;
        if (status != TUTTI_OK && err != NULL)
            *err = job->error;
    }
    tutti_unlock(lane->monitor);
    return status;
}
