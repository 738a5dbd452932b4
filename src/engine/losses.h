/* losses.h: ranks that are lost, and ranks that leave in order. Included by engine_internal.h;
   implemented by members.c and left.c, which say what either means for a run. */
#ifndef TUTTI_ENGINE_LOSSES_H
#define TUTTI_ENGINE_LOSSES_H
#include "collective/members.h"
#include "tutti/tutti.h"
#include "tutti/method.h"

#pragma GCC visibility push(default)     /* for src/engine/modes */

typedef struct tutti_engine_losses {
    tutti_members *members;      /* the ranks that remain, as last agreed; NULL: the run does not
                                    continue after a loss */
    bool *was_member;            /* [workers]: scratch of tutti_engine_settle */
    uint64_t agreed_step;        /* steps done when the members last agreed */
    int watched;                 /* number of the world's events that tutti_engine_watch has
                                    recorded */
    struct {                     /* left.c */
        tutti_request *leaves;   /* [workers + servers]: a receive from each other rank for a
                                    message that is never sent, so it ends when that rank is gone;
                                    NULL: nothing is watched */
        tutti_flag posted;       /* all receives are posted, so any thread may test them */
        tutti_flag may;          /* the run is over: a rank that leaves now has finished
                                    normally */
    } left;
} tutti_engine_losses;

/* ---- members.c; client thread ---- */

/* Decides whether the run continues after losses, and opens the membership if so. Sends
   nothing. */
tutti_status tutti_engine_members_open(tutti_engine *e, tutti_error *err);
/* Records as events of the run what the world has reported of other ranks since the last call. */
void tutti_engine_watch(tutti_engine *e);
/* Returns the group of workers that make each step together: all workers, or under TUTTI_ASYNC
   this worker's node group. */
tutti_group *tutti_engine_together(tutti_engine *e);
/* Returns the number of samples of a step over the remaining workers. */
int64_t tutti_engine_samples(const tutti_engine *e, uint64_t step);
/* Maps the result of a collective within a node group. A node group cannot continue without one of
   its workers, though the run does: if one is lost this returns TUTTI_ERR_PEER with this worker's
   own rank, so that this worker fails as well and is lost to the others. Any other status is
   returned unchanged. Any thread. */
tutti_status tutti_engine_with_team(const tutti_engine *e, tutti_status status, tutti_error *err);

/* ---- left.c ---- */

/* Posts the receives of `leaves`, if the run has to notice ranks that leave; where there are
   services their watch thread posts them. */
tutti_status tutti_engine_left_open(tutti_engine *e, tutti_error *err);
/* Cancels and frees them. */
void tutti_engine_left_close(tutti_engine *e);
/* For the watch thread: posts the receive of `rank`. */
tutti_status tutti_engine_left_post(tutti_engine *e, int rank, tutti_error *err);
/* For the watch thread: all receives are posted. */
void tutti_engine_left_posted(tutti_engine *e);
/* From now on ranks may leave. Client thread. */
void tutti_engine_may_leave(tutti_engine *e);
/* Returns a rank that has left in order before the end of the run; -1: none. Any thread. */
int tutti_engine_left(const tutti_engine *e);
/* Returns TUTTI_ERR_PEER, with a message, if a rank has left; else TUTTI_OK. Client thread. */
tutti_status tutti_engine_left_look(const tutti_engine *e, tutti_error *err);

#pragma GCC visibility pop
#endif
