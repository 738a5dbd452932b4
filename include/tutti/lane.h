/* lane.h: ordered background work: THE way to overlap. A lane is `width` runtime threads that take
   jobs from one queue; a job is a blocking function.

   To start a collective put a job on a lane that calls the blocking collective. To wait for it wait
   for the job. So collectives, file I/O and server calls need no asynchronous twins. With width 0
   start() runs the job at once on the caller's thread (MPI below THREAD_MULTIPLE, tests, small
   models).

   If jobs hold collectives, the order in which they begin must agree on all members, and a lane has
   ONE source of order: who starts them, or a leader. Never put jobs of two sources (gathers of
   unit_acquire, pieces of grad_ready) on one lane. Where several may be under way, a job that fails
   before its collective gives up the group (tutti_group_give_up): else two members that fail in
   different jobs wait for each other in them.

   Order. Of the jobs that were started the one of least priority value is *admitted* first; of
   equal ones the one that was started first. So without priorities a lane is FIFO. Under a credit
   a job is admitted only when its bytes fit beside those of the jobs under way. Until then it
   stays in the queue, held by no thread, and a more urgent one may overtake it. A less urgent one
   may not, even if it would fit.

   Leader. Members whose jobs become ready in different orders agree by a leader: member 0 of a
   group admits as above and tells each other member the job of each *turn*, just before it runs
   the job. The others admit in the order of turns. A turn is one message without payload to each
   other member, from member 0: size - 1 messages a job. */
#ifndef TUTTI_LANE_H
#define TUTTI_LANE_H
#include "comm.h"
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
    int index;                    /* led lane: its name; no two that are not over have the same */
    uint64_t priority;            /* the least value first */
    size_t bytes;                 /* what it takes of the credit */
    /* Written by the lane when it is admitted, and at its end. turn: how many were admitted before
       it since the lane was opened; of a led lane the same on all members. */
    uint64_t turn;
    int64_t queued_ns, started_ns, ended_ns;
    tutti_status status;          /* lane's; read through tutti_job_wait */
    tutti_error error;
    tutti_job_state state;        /* under the lane's lock */
    struct tutti_job *next;
} tutti_job;

tutti_status tutti_lane_open(tutti_lane **out, tutti_runtime *rt, const char *name, int width,
                             tutti_error *err);

typedef struct tutti_lane_order {
    /* Bytes of jobs under way at most, on each member; 0: no limit. A job of more runs alone. */
    size_t credit;

    /* NULL: this lane decides for itself. Else the members of this group run the same jobs, each
       as often as the others, and member 0 leads. Copied; its ranks are borrowed until close.
       No two lanes of one name and context: at one time, or after one that was given up (below). */
    const tutti_group *lead;
} tutti_lane_order;

/* Not a collective call: sends nothing. With width 0 jobs run as they are started, and no turn is
   told: then all members must start them in the same order. TUTTI_ERR_USAGE: a foolish width, or
   this rank is no member of the group.

   What holds of a led lane:
     1. It needs no agreement on when: a member may be told of a job that it has not started yet, or
        may have ended jobs that others have not begun. It cannot block itself: a member admits in
        the order of turns only. So the earliest turn that is not over everywhere has, wherever it
        is not under way, all threads and the whole credit.
     2. A turn is received only while a job waits here. So when all jobs are over on all members,
        no turn is under way.
     3. A failure is the end of the lane, since a member that is out of order stops the others. If a
        member is lost, the jobs that wait or are started later end with that failure and its rank.
        If a job fails here they end with TUTTI_CLOSED. They are not run. The other members fail
        when this one leaves the world. For that widths and credits must be the same on all, but for
        a change of the credit that all make: else a job under way here may need one of another
        member that does not fit there, beside a part of the failed one.
     4. Close waits for nobody's turn: jobs that were not admitted end with TUTTI_CLOSED. Member 0
        waits until the others have heard what it has told them, or have left. */
tutti_status tutti_lane_open_ordered(tutti_lane **out, tutti_runtime *rt, const char *name,
                                     int width, const tutti_lane_order *order, tutti_error *err);

/* Blocks: runs out what was started, of a led lane what was admitted. Takes NULL. */
void tutti_lane_close(tutti_lane *lane);

/* How many jobs have been admitted since it was opened; any thread. */
uint64_t tutti_lane_turns(tutti_lane *lane);

/* From now on; any thread. Jobs under way count as before, so a change admits nothing twice. Of a
   led lane each member's is its own, and member 0's decides how many run ahead. */
void tutti_lane_credit(tutti_lane *lane, size_t credit);

/* Never fails; also from within a job. */
void tutti_lane_start(tutti_lane *lane, tutti_job *job);

/* Would tutti_job_wait return at once? */
bool tutti_job_over(tutti_lane *lane, const tutti_job *job);

/* Blocks; gives run's status and sentence once. OK if the job was never started or waited for
   already. */
tutti_status tutti_job_wait(tutti_lane *lane, tutti_job *job, tutti_error *err);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
