/* losses.h: ranks that are lost, and ranks that leave. */
#ifndef TUTTI_ENGINE_LOSSES_H
#define TUTTI_ENGINE_LOSSES_H
#include "collective/members.h"
#include "tutti/tutti.h"
#include "tutti/method.h"

#pragma GCC visibility push(default)     /* for src/engine/modes */

/* Members of a run that continues after losses. */
typedef struct tutti_engine_losses {
    tutti_members *members;      /* NULL: the run ends with a loss */
    bool *was_member;            /* workers: scratch of tutti_engine_settle */
    uint64_t agreed_step;        /* steps done when the workers last agreed */
    int watched;                 /* number of the world's events already recorded */
    struct {                     /* left.c */
        tutti_request *leaves;   /* workers and servers: each request ends when that rank is gone;
                                    NULL: not watched */
        tutti_flag posted;       /* all requests are posted and may be read */
        tutti_flag may;          /* the run is over: a rank that leaves now has finished
                                    normally */
    } left;
} tutti_engine_losses;

/* ---- members.c ---- */

tutti_status tutti_engine_members_open(tutti_engine *e, tutti_error *err);
void tutti_engine_watch(tutti_engine *e); /* client thread */
/* The workers that make this step together with this one. */
tutti_group *tutti_engine_together(tutti_engine *e);
/* The samples of a step over all members. */
int64_t tutti_engine_samples(const tutti_engine *e, uint64_t step);
/* The result of what a node group has done together. A node group cannot continue without one of
   its workers, though the run does: so its workers fail themselves, and are lost to the
   others. */
tutti_status tutti_engine_with_team(const tutti_engine *e, tutti_status status, tutti_error *err);

/* ---- left.c ---- */

tutti_status tutti_engine_left_open(tutti_engine *e, tutti_error *err);
void tutti_engine_left_close(tutti_engine *e);
/* For a caller that waits for the requests itself: posts the one of `rank`. */
tutti_status tutti_engine_left_post(tutti_engine *e, int rank, tutti_error *err);
/* All requests are posted. */
void tutti_engine_left_posted(tutti_engine *e);
/* From now on ranks may leave. Client thread */
void tutti_engine_may_leave(tutti_engine *e);
/* The rank that has left in order before the end of the run; -1: none. Any thread */
int tutti_engine_left(const tutti_engine *e);
/* TUTTI_ERR_PEER, with a message: a rank has left. Client thread */
tutti_status tutti_engine_left_look(const tutti_engine *e, tutti_error *err);

#pragma GCC visibility pop
#endif
