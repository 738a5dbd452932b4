/* lane.h: ordered background work. Everything that overlaps the client's computation runs on a
   lane. A lane is `width` runtime threads that take jobs from one queue; a job is a blocking
   function. Included by the engine and by modules and methods that have lanes of their own.
   Implemented by lane.c and, for lanes with a leader, lane_led.c.

   To start a collective, give the lane a job that calls the blocking collective; to wait for the
   collective, wait for the job. So collectives, file I/O and calls of servers need no asynchronous
   variants. On a lane of width 0 tutti_lane_start runs the job at once on the caller's thread (MPI
   below THREAD_MULTIPLE, tests, small models).

   Collectives in jobs must begin in the same order on all members. So the jobs of one lane have
   one order: that in which they are started, or that of a leader. Never give one lane the jobs of
   two sources that are each ordered but not relative to each other (gathers of unit_acquire, and
   pieces of grad_ready). If the lane is wider than one thread, a job that fails before its
   collective must give up the collective's group (tutti_group_give_up): otherwise two members
   whose different jobs failed wait for each other.

   Order. The job with the least priority value is *admitted* first, which means that a thread runs
   it; of jobs with equal values the one that was started first. So without priorities a lane is
   FIFO. If the lane has a credit, a job is admitted only when its bytes and those of the running
   jobs together do not exceed it. Until then the job stays in the queue, without occupying a
   thread. A job of less priority value that is started meanwhile overtakes it; a job of greater
   value does not, even if it would fit.

   Leader. Members whose jobs are started in different orders use a leader. Member 0 of a group
   admits jobs as above, numbers them consecutively (tutti_job.turn, the sequence number) and, just
   before it runs a job, announces the job of that number to each other member. The others admit
   jobs by sequence number. An announcement is a message without payload: size - 1 messages per
   job. */
#ifndef TUTTI_LANE_H
#define TUTTI_LANE_H
#include "tutti/comm.h"
#pragma GCC visibility push(default)

typedef struct tutti_lane tutti_lane;
typedef enum tutti_job_state {
    TUTTI_JOB_IDLE,
    TUTTI_JOB_QUEUED,
    TUTTI_JOB_RUNNING,
    TUTTI_JOB_ENDED
} tutti_job_state;

/* A job, in the caller's memory. The caller must not touch it from tutti_lane_start until
   tutti_job_wait has returned. Zero it before its first use. */
typedef struct tutti_job {
    /* The work. Called on a thread of the lane; may block; must not allocate, unless it belongs to
       no step (saving.c). Its result is returned by tutti_job_wait. */
    tutti_status (*run)(struct tutti_job *job, tutti_error *err);
    void *owner;                  /* for `run`; the lane does not read it */
    int index;                    /* for `run`. On a leader-ordered lane it identifies the job on
                                     all members, so it is unique among unfinished jobs */
    uint64_t priority;            /* jobs of the least value are admitted first */
    size_t bytes;                 /* how much of the credit it uses while it runs */
    /* The members below are the lane's; read them when the job was waited for. */
    uint64_t turn;                /* sequence number: how many jobs were admitted before this one
                                     since the lane was opened; on a leader-ordered lane the same
                                     on all members */
    int64_t queued_ns, started_ns, ended_ns; /* when it was started by the caller, was admitted,
                                                and ended */
    tutti_status status;          /* the result of `run`, or why it was not run */
    tutti_error error;
    tutti_job_state state;        /* under the lane's monitor */
    struct tutti_job *next;       /* the next job of the queue */
} tutti_job;

/* Opens a lane without credit and leader: tutti_lane_open_ordered with an order of zeros. */
tutti_status tutti_lane_open(tutti_lane **out, tutti_runtime *rt, const char *name, int width,
                             tutti_error *err);

typedef struct tutti_lane_order {
    /* The most bytes that running jobs have together, on each member; 0: no limit. A job of more
       bytes runs alone. */
    size_t credit;

    /* The group whose member 0 leads, and whose members all run the same jobs equally often; NULL:
       the lane orders its jobs itself. The struct is copied; its ranks are borrowed until close.
       No two lanes may have the same name and group context at one time, nor a lane those of one
       that has failed (property 3 below). */
    const tutti_group *lead;
} tutti_lane_order;

/* Opens a lane; sends nothing. width: number of threads, 0 to 64. name: the first 10 bytes are
   part of its threads' names. With width 0 jobs run when they are started and nothing is
   announced, so all members must start them in the same order. TUTTI_ERR_USAGE: an invalid width,
   or this rank is not a member of the group.

   Properties of a leader-ordered lane:
     1. Members need not keep pace: a member may receive the announcement of a job that it has not
        started yet, or may have finished jobs that other members have not begun. The lane cannot
        deadlock: a member admits jobs by sequence number only, so on each member the unfinished
        job of the lowest number is either running or has all threads and the whole credit to
        itself.
     2. A member receives an announcement only while a job waits in its queue. So when all jobs
        have ended on all members, no announcement is in flight.
     3. A failure ends the lane, since a member that admits jobs in another order stops the others.
        If a member is lost, the jobs that wait here or are started later are not run and end with
        that failure and its rank. If a job fails here, they end with TUTTI_CLOSED. The other
        members fail when this one leaves the world. For that, width and credit must be the same on
        all members, except while all are changing the credit: otherwise a job that runs here may
        depend on a job of another member that does not fit there next to its part of the failed
        one.
     4. Close waits for no announcement: jobs that were not admitted end with TUTTI_CLOSED. Member
        0 waits until the other members have received the announcements that it has sent, or have
        left the world. */
tutti_status tutti_lane_open_ordered(tutti_lane **out, tutti_runtime *rt, const char *name,
                                     int width, const tutti_lane_order *order, tutti_error *err);

/* Blocks until all started jobs have ended (on a leader-ordered lane: all admitted ones), and
   frees the lane. Accepts NULL. */
void tutti_lane_close(tutti_lane *lane);

/* Returns the next sequence number: how many jobs have been admitted since the lane was opened.
   Any thread. */
uint64_t tutti_lane_turns(tutti_lane *lane);

/* Changes the credit. Running jobs continue and count against the new one. On a leader-ordered
   lane each member has its own credit, and member 0's decides how many jobs run concurrently. Any
   thread. */
void tutti_lane_credit(tutti_lane *lane, size_t credit);

/* Adds the job to the queue; never fails. Any thread, also within a job. */
void tutti_lane_start(tutti_lane *lane, tutti_job *job);

/* Returns whether tutti_job_wait would return at once. Any thread. */
bool tutti_job_over(tutti_lane *lane, const tutti_job *job);

/* Blocks until the job has ended, and returns its status and error. TUTTI_OK if it was never
   started or was waited for before. One thread at a time for a job. */
tutti_status tutti_job_wait(tutti_lane *lane, tutti_job *job, tutti_error *err);
#pragma GCC visibility pop
#endif
