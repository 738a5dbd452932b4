/* lane.h: ordered background work: THE way to overlap. A lane is `width` runtime threads that take
   jobs from one FIFO queue; a job is a blocking function.

   To start a collective put a job on a lane that calls the blocking collective. To wait for it wait
   for the job. So collectives, file I/O and server calls need no asynchronous twins, and credit
   (bytes in flight) is width x piece size. With width 0 start() runs the job at once on the
   caller's thread (MPI below THREAD_MULTIPLE, tests, small models).

   If jobs hold collectives, the order of submission must agree on all members, and a lane has ONE
   source of order. Never put jobs of two sources (gathers of need(), pieces of ready()) on one
   lane. */
#ifndef TUTTI_LANE_H
#define TUTTI_LANE_H
#include "runtime.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

typedef struct tutti_lane tutti_lane;
typedef enum tutti_job_state {
    TUTTI_JOB_IDLE,
    TUTTI_JOB_QUEUED,
    TUTTI_JOB_RUNNING,
    TUTTI_JOB_ENDED
} tutti_job_state;

/* Caller's memory, untouched from start to wait; zero it before the first use. */
typedef struct tutti_job {
    /* Lane thread; may block, must not allocate. */
    tutti_status (*run)(struct tutti_job *job, tutti_error *err);
    void *owner;
    int index;
    int64_t started_ns, ended_ns; /* written by the lane */
    tutti_status status;          /* lane's; read through tutti_job_wait */
    tutti_error error;
    tutti_job_state state;        /* under the lane's lock */
    struct tutti_job *next;
} tutti_job;

tutti_status tutti_lane_open(tutti_lane **out, tutti_runtime *rt, const char *name, int width,
                             tutti_error *err);

/* Blocks: runs out what was started. */
void tutti_lane_close(tutti_lane *lane);

/* Never fails; also from within a job. */
void tutti_lane_start(tutti_lane *lane, tutti_job *job);

/* Blocks; gives run's status and sentence once. OK if the job was never started or waited for
   already. */
tutti_status tutti_job_wait(tutti_lane *lane, tutti_job *job, tutti_error *err);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
