/* lane.h: ordered background work: THE way to overlap. A lane is `width` runtime threads that take
   jobs from one queue; a job is a blocking function.

   To start a collective put a job on a lane that calls the blocking collective. To wait for it
   wait for the job. So collectives, file I/O and server calls need no asynchronous variants. With
   width 0 start() runs the job at once on the caller's thread (MPI below THREAD_MULTIPLE, tests,
   small models).

   If jobs contain collectives, they must begin in the same order on all members, and a lane has
   ONE source of order: the order in which they are started, or a leader. Never put jobs of two
   sources (gathers of unit_acquire, pieces of grad_ready) on one lane. Where several may run
   concurrently, a job that fails before its collective must give up the group
   (tutti_group_give_up): otherwise two members that fail in different jobs wait for each other.

   Order. Of the jobs that were started the one of least priority value is *admitted* first; of
   equal ones the one that was started first. So without priorities a lane is FIFO. With a credit
   a job is admitted only when its bytes and those of the running jobs fit the credit. Until then
   it stays in the queue, without occupying a thread, and a more urgent one may overtake it. A
   less urgent one may not, even if it would fit.

   Leader. Members whose jobs become ready in different orders use a leader: member 0 of a group
   admits as above and sends each other member the job of each sequence number (*turn*), just
   before it runs the job. The others admit in the order of turns. A turn is one message without
   payload to each other member, from member 0: size - 1 messages per job. */
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

/* Caller's memory, untouched from start to wait; zero it before the first use. */
typedef struct tutti_job {
    /* Lane thread; may block, must not allocate. */
    tutti_status (*run)(struct tutti_job *job, tutti_error *err);
    void *owner;
    int index;                    /* leader-ordered lane: its name; unique among unfinished jobs */
    uint64_t priority;            /* the least value first */
    size_t bytes;                 /* its use of the credit */
    /* Written by the lane when the job is admitted, and at its end. turn: how many were admitted
       before it since the lane was opened; on a leader-ordered lane the same on all members. */
    uint64_t turn;
    int64_t queued_ns, started_ns, ended_ns;
    tutti_status status;          /* the lane's; read through tutti_job_wait */
    tutti_error error;
    tutti_job_state state;        /* under the lane's lock */
    struct tutti_job *next;
} tutti_job;

tutti_status tutti_lane_open(tutti_lane **out, tutti_runtime *rt, const char *name, int width,
                             tutti_error *err);

typedef struct tutti_lane_order {
    /* Most bytes of running jobs, on each member; 0: no limit. A larger job runs alone. */
    size_t credit;

    /* NULL: this lane decides for itself. Else the members of this group run the same jobs, each
       as often as the others, and member 0 leads. Copied; its ranks are borrowed until close. Two
       lanes must not have the same name and context at one time, nor after one that failed
       (below). */
    const tutti_group *lead;
} tutti_lane_order;

/* Not a collective call: sends nothing. With width 0 jobs run when they are started, and no turns
   are sent: then all members must start them in the same order. TUTTI_ERR_USAGE: an invalid
   width, or this rank is not a member of the group.

   Properties of a leader-ordered lane:
     1. Members need not agree on times: a member may receive the turn of a job that it has not
        started yet, or may have finished jobs that others have not begun. It cannot deadlock: a
        member admits in the order of turns only. So the earliest unfinished turn has, wherever it
        is not running, all threads and the whole credit.
     2. A turn is received only while a job waits here. So when all jobs are over on all members,
        no turn is in flight.
     3. A failure ends the lane, since a member that is out of order stops the others. If a
        member is lost, the jobs that wait or are started later end with that failure and its rank.
        If a job fails here they end with TUTTI_CLOSED. They are not run. The other members fail
        when this one leaves the world. For that widths and credits must be the same on all, except
        during a change of the credit that all make: otherwise a job that runs here may need one of
        another member that does not fit there next to a part of the failed one.
     4. Close waits for no turn: jobs that were not admitted end with TUTTI_CLOSED. Member 0
        waits until the others have received the turns that it has sent, or have left. */
tutti_status tutti_lane_open_ordered(tutti_lane **out, tutti_runtime *rt, const char *name,
                                     int width, const tutti_lane_order *order, tutti_error *err);

/* Blocks until all started jobs, on a leader-ordered lane all admitted ones, are over. Accepts
   NULL. */
void tutti_lane_close(tutti_lane *lane);

/* How many jobs have been admitted since it was opened; any thread. */
uint64_t tutti_lane_turns(tutti_lane *lane);

/* Sets the credit from now on; any thread. Running jobs count as before, so a change admits
   nothing twice. On a leader-ordered lane each member has its own credit, and member 0's decides
   how many jobs run ahead. */
void tutti_lane_credit(tutti_lane *lane, size_t credit);

/* Never fails; also from within a job. */
void tutti_lane_start(tutti_lane *lane, tutti_job *job);

/* Would tutti_job_wait return at once? */
bool tutti_job_over(tutti_lane *lane, const tutti_job *job);

/* Blocks; returns run's status and sentence once. TUTTI_OK if the job was never started or
   already waited for. */
tutti_status tutti_job_wait(tutti_lane *lane, tutti_job *job, tutti_error *err);
#pragma GCC visibility pop
#endif
