/* lane.c: implements lane.h: blocking jobs, admitted by priority and credit, run by `width` threads
   under one monitor. Handing a job to a thread costs two context switches, so the engine keeps
   small pieces on the client's thread (pieces.c).

   A hand-over costs no more on a wide lane. Each idle thread waits on a condition of its own, and
   starting a job wakes one idle thread if the job may begin. A thread that admits a job while
   another may begin wakes the next thread. So a job that may begin never waits for a thread that
   sleeps.

   The queue is a list in the order of admission. The position of a job is found at once in the
   two common cases: backward starts jobs by falling priority values, so each comes first; and
   without priorities each comes last. */
#include <errno.h>
#include <stdio.h>

#include "lane_internal.h"
#include "engine/lane.h"

/* ---- the queue; the monitor is locked ---- */

/* Inserts a job before the first one of greater priority value. */
static void enqueue(tutti_lane *lane, tutti_job *job)
{
    tutti_job **at = &lane->first;

    if (lane->last != NULL && lane->last->priority <= job->priority)
        at = &lane->last->next;
    while (*at != NULL && (*at)->priority <= job->priority)
        at = &(*at)->next;
    job->next = *at;
    *at = job;
    if (job->next == NULL)
        lane->last = job;
}

/* The job that is next. NULL: it has not been started here, or is not known yet. *before: its
   predecessor in the queue. */
static tutti_job *find_next(tutti_lane *lane, tutti_job **before)
{
    tutti_job *job = lane->first;

    *before = NULL;
    if (!tutti_lane_follows(lane))
        return job;
    for (; lane->named && job != NULL && job->index != lane->name; job = job->next)
        *before = job;
    return lane->named ? job : NULL;
}

static bool fits(const tutti_lane *lane, const tutti_job *job)
{
    return lane->taken == 0 || lane->credit == 0 ||
           (job->bytes <= lane->credit && lane->taken <= lane->credit - job->bytes);
}

/* Takes the next job from the queue, if there is one that may begin. */
static tutti_job *admit(tutti_lane *lane)
{
    tutti_job *before, *job = find_next(lane, &before);
    tutti_error why;

    if (job != NULL && lane->named && job->bytes != lane->named_bytes) {
        tutti_fail_rank(&why, TUTTI_ERR_STATE, tutti_group_rank(&lane->lead, 0),
                        "turn %llu of a lane is job %d, of %llu bytes at worker %d and of %zu "
                        "here; all members start the same jobs",
                        (unsigned long long)lane->turns, job->index,
                        (unsigned long long)lane->named_bytes, tutti_group_rank(&lane->lead, 0),
                        job->bytes);
        tutti_lane_give_up(lane, TUTTI_ERR_STATE, &why);
        return NULL;
    }
    if (job == NULL || !fits(lane, job))
        return NULL;
    *(before != NULL ? &before->next : &lane->first) = job->next;
    if (lane->last == job)
        lane->last = before;
    lane->named = false;
    lane->taken += job->bytes;
    job->turn = lane->turns++;
    job->state = TUTTI_JOB_RUNNING;
    job->started_ns = tutti_now_ns(lane->rt);
    return job;
}

/* ---- idle threads; the monitor is locked ---- */

static bool has_work(tutti_lane *lane)
{
    tutti_job *before;
    const tutti_job *job = find_next(lane, &before);

    return (job != NULL && fits(lane, job)) || tutti_lane_wants_turn(lane);
}

static void call_one(tutti_lane *lane)
{
    tutti_lane_worker *w = lane->idle;

    if (w == NULL)
        return;
    lane->idle = w->next;
    tutti_lock(w->wakeup);
    w->called = true;
    tutti_wake(w->wakeup);
    tutti_unlock(w->wakeup);
}

static void call_for_work(tutti_lane *lane)
{
    if (lane->idle != NULL && has_work(lane))
        call_one(lane);
}

/* Waits until the thread is woken. The monitor is released meanwhile. */
static void wait_idle(tutti_lane_worker *w)
{
    tutti_lane *lane = w->lane;

    w->next = lane->idle;
    lane->idle = w;
    tutti_unlock(lane->monitor);
    tutti_lock(w->wakeup);
    while (!w->called)
        tutti_wait(w->wakeup, TUTTI_FOREVER, NULL);
    w->called = false;
    tutti_unlock(w->wakeup);
    tutti_lock(lane->monitor);
}

/* ---- ends of jobs; the monitor is locked ---- */

static void end(tutti_lane *lane, tutti_job *job)
{
    job->ended_ns = tutti_now_ns(lane->rt);
    job->state = TUTTI_JOB_ENDED;
    tutti_wake(lane->monitor);
}

static void end_unrun(tutti_lane *lane, tutti_job *job)
{
    job->started_ns = tutti_now_ns(lane->rt);
    job->status = lane->status;
    job->error = lane->error;
    end(lane, job);
}

void tutti_lane_give_up(tutti_lane *lane, tutti_status status, const tutti_error *why)
{
    if (lane->status != TUTTI_OK)
        return;
    lane->status = status;
    lane->error = *why;
    for (tutti_job *job = lane->first, *next; job != NULL; job = next) {
        next = job->next; /* once it has ended it belongs to its owner */
        end_unrun(lane, job);
    }
    lane->first = lane->last = NULL;
    lane->named = false;
    tutti_lane_wake_receiver(lane);
}

/* ---- the threads ---- */

static void run_job(tutti_job *job)
{
    job->error = (tutti_error){ .rank = -1 };
    job->status = job->run(job, &job->error);
}

/* Ends a job that was admitted. The monitor is locked. */
static void end_run(tutti_lane *lane, tutti_job *job)
{
    const int index = job->index;
    const tutti_status status = job->status;
    tutti_error why;

    lane->taken -= job->bytes;
    end(lane, job);
    if (lane->is_led && status != TUTTI_OK) {
        tutti_fail(&why, TUTTI_CLOSED, 0,
                   "job %d of this lane has failed, and no other begins after it", index);
        tutti_lane_give_up(lane, TUTTI_CLOSED, &why);
    }
}

/* The monitor is locked, and released meanwhile. */
static void carry_out(tutti_lane_worker *w, tutti_job *job)
{
    tutti_lane *lane = w->lane;
    tutti_error why = { .rank = -1 };
    tutti_status reported;

    tutti_unlock(lane->monitor);
    reported = tutti_lane_announce(w, job, &why);
    if (reported == TUTTI_OK)
        run_job(job);
    else {
        job->status = reported;
        job->error = why;
    }
    tutti_lock(lane->monitor);
    if (reported != TUTTI_OK) /* with its rank, if a member is lost */
        tutti_lane_give_up(lane, reported, &why);
    end_run(lane, job);
    if (!tutti_lane_leads(lane) || tutti_lane_is_received(w))
        return;
    call_for_work(lane); /* this thread may take long */
    tutti_unlock(lane->monitor);
    reported = tutti_lane_announced(w, &why);
    tutti_lock(lane->monitor);
    if (reported != TUTTI_OK)
        tutti_lane_give_up(lane, reported, &why);
}

static tutti_status work(void *arg, tutti_error *err)
{
    tutti_lane_worker *w = arg;
    tutti_lane *lane = w->lane;

    (void)err;
    tutti_lock(lane->monitor);
    for (;;) {
        tutti_job *job = admit(lane);
        if (job != NULL) {
            call_for_work(lane);
            carry_out(w, job);
        } else if (lane->closing && lane->first == NULL)
            break;
        else if (tutti_lane_wants_turn(lane))
            tutti_lane_receive(lane);
        else
            wait_idle(w);
    }
    call_one(lane); /* so that the others end as well */
    tutti_unlock(lane->monitor);
    return TUTTI_OK;
}

/* ---- from open to close ---- */

static tutti_status open_threads(tutti_lane *lane, const char *name, int width, tutti_error *err)
{
    for (int i = 0; i < width; i++) {
        tutti_lane_worker *w = &lane->worker[i];
        char title[16];
        snprintf(title, sizeof title, "%.10s-%d", name, i);
        TUTTI_TRY(tutti_monitor_open(&w->wakeup, lane->rt, err));
        TUTTI_TRY(tutti_thread_open(&w->thread, lane->rt, title, work, w, err));
    }
    return TUTTI_OK;
}

tutti_status tutti_lane_open_ordered(tutti_lane **out, tutti_runtime *rt, const char *name,
                                     int width, const tutti_lane_order *order, tutti_error *err)
{
    tutti_lane *lane;
    tutti_status status;

    *out = NULL;
    if (width < 0 || width > TUTTI_LANE_WIDTH)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "a lane of width %d; it must be from 0 to %d threads", width,
                          TUTTI_LANE_WIDTH);
    lane = tutti_alloc(1, sizeof *lane);
    if (lane == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening lane '%s'", name);
    lane->rt = rt;
    lane->credit = order->credit;
    lane->width = width;
    for (int i = 0; i < width; i++)
        lane->worker[i].lane = lane;
    status = tutti_monitor_open(&lane->monitor, rt, err);
    if (status == TUTTI_OK && order->lead != NULL)
        status = tutti_lane_led_open(lane, name, order->lead, err);
    if (status == TUTTI_OK)
        status = open_threads(lane, name, width, err);
    if (status == TUTTI_OK)
        *out = lane;
    else
        tutti_lane_close(lane);
    return status;
}

tutti_status tutti_lane_open(tutti_lane **out, tutti_runtime *rt, const char *name, int width,
                             tutti_error *err)
{
    static const tutti_lane_order as_started;

    return tutti_lane_open_ordered(out, rt, name, width, &as_started, err);
}

void tutti_lane_close(tutti_lane *lane)
{
    tutti_error why;

    if (lane == NULL)
        return;
    if (lane->monitor != NULL) {
        tutti_lock(lane->monitor);
        lane->closing = true;
        if (lane->is_led) {
            tutti_fail(&why, TUTTI_CLOSED, 0, "this lane was closed before the job's turn");
            tutti_lane_give_up(lane, TUTTI_CLOSED, &why);
        }
        call_one(lane);
        tutti_unlock(lane->monitor);
    }
    for (int i = 0; i < lane->width; i++) {
        if (lane->worker[i].thread != NULL)
            tutti_thread_join(lane->worker[i].thread, NULL);
        tutti_monitor_close(lane->worker[i].wakeup);
    }
    tutti_lane_led_close(lane);
    tutti_monitor_close(lane->monitor);
    tutti_free(lane);
}

uint64_t tutti_lane_turns(tutti_lane *lane)
{
    uint64_t turns;

    tutti_lock(lane->monitor);
    turns = lane->turns;
    tutti_unlock(lane->monitor);
    return turns;
}

void tutti_lane_credit(tutti_lane *lane, size_t credit)
{
    tutti_lock(lane->monitor);
    lane->credit = credit;
    call_for_work(lane);
    tutti_unlock(lane->monitor);
}

void tutti_lane_start(tutti_lane *lane, tutti_job *job)
{
    tutti_lock(lane->monitor);
    job->queued_ns = tutti_now_ns(lane->rt);
    if (lane->status != TUTTI_OK)
        end_unrun(lane, job);
    else if (lane->width > 0) {
        job->state = TUTTI_JOB_QUEUED;
        enqueue(lane, job);
        call_for_work(lane);
    } else {
        job->turn = lane->turns++;
        job->state = TUTTI_JOB_RUNNING;
        job->started_ns = job->queued_ns;
        lane->taken += job->bytes;
        tutti_unlock(lane->monitor);
        run_job(job);
        tutti_lock(lane->monitor);
        end_run(lane, job);
    }
    tutti_unlock(lane->monitor);
}

bool tutti_job_over(tutti_lane *lane, const tutti_job *job)
{
    bool over;

    tutti_lock(lane->monitor);
    over = job->state == TUTTI_JOB_ENDED || job->state == TUTTI_JOB_IDLE;
    tutti_unlock(lane->monitor);
    return over;
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
