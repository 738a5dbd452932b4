/* pieces.h: the pieces of the flat space and what is found in their gradients. */
#ifndef TUTTI_ENGINE_PIECES_H
#define TUTTI_ENGINE_PIECES_H
#include "engine/engine_facility.h"
#include "engine/lane.h"
#include "tier/tier.h"

#pragma GCC visibility push(default)     /* for src/engine/modes */

typedef struct tutti_engine_piece {
    tutti_job job;
    tutti_engine *engine;
    int unit;                    /* the lowest unit that the piece overlaps */
    int missing;                 /* tensors whose gradient has not been announced in this pass */
    bool on_lane;                /* started on the lane; else it is exchanged in step() */
    bool pending;                /* started, or to be exchanged in step(), and not yet waited
                                    for */
    /* written by the job, read after the job was waited for */
    tutti_engine_bad bad;
    int64_t exchanged_ns;

    /* with m->by_piece: written by the thread that updates, read after the job was waited for */
    tutti_rate rate;             /* the rate of its gradient's step */
    int held;                    /* tensors whose unit's backward pass is not over; under
                                    by_piece's mutex */
    bool exchanged;              /* its exchange is over; under by_piece's mutex */
    bool updated_here;           /* updated by the client's thread */
    int64_t updating_ns, updated_ns;

    bool gathers;                /* shards: the pending job gathers its values */
    tutti_group between;         /* shards in node groups: the workers that have the same shard;
                                    the exchange's group */
    uint32_t order_seq;          /* values held by unit: sequence number of its order message
                                    (units.c) */
} tutti_engine_piece;

/* ---- pieces.c ---- */

/* g becomes this worker's gradient of the update, once in a pass. Where pieces are exchanged,
   their jobs have done it already. */
void tutti_engine_take_in(tutti_engine *e);
/* One more tensor's gradient of piece k is ready: the piece starts if it is complete and this
   pass exchanges. */
void tutti_engine_piece_gets(tutti_engine *e, int k);
/* Starts the complete pieces, in index order. */
void tutti_engine_start_ready(tutti_engine *e);
/* Within step(): exchanges the pieces that the lane was not given, and waits for those that it
   was, unless updates are by piece. */
tutti_status tutti_engine_settle_pieces(tutti_engine *e, tutti_error *err);
/* Is what this pass exchanges added to what the step's earlier passes left? */
bool tutti_engine_adds_up(const tutti_engine *e);
/* For jobs of pieces (shards.c): gives the job to the lane; this worker does not join the piece,
   for that reason; the job has ended. */
void tutti_engine_give_to_lane(tutti_engine *e, tutti_engine_piece *s);
void tutti_engine_give_up_piece(tutti_engine *e, tutti_engine_piece *s, tutti_piece *p,
                                tutti_status status, const tutti_error *err);
void tutti_engine_piece_ended(tutti_engine *e, tutti_engine_piece *s, tutti_status status,
                              const tutti_error *err);
/* The piece's job was waited for and ended with `status`. */
void tutti_engine_piece_over(tutti_engine *e, int k, tutti_status status);
/* Resets the piece to its state before it was started. */
void tutti_engine_piece_rests(tutti_engine *e, int k);

/* ---- finite.c, judge.c ---- */

/* Finds the first non-finite number of p->g. Reads no other piece. */
void tutti_engine_find_bad_of(const tutti_engine *e, const tutti_piece *p, tutti_engine_bad *bad);
/* Checks that this worker's gradient of a piece is finite. If not, this is a failure unless such
   steps may be skipped or such gradients are left to the client. Any thread. */
tutti_status tutti_engine_look(const tutti_engine *e, const tutti_piece *p, tutti_engine_bad *bad,
                               tutti_error *err);
/* The same of the mean, where a codec decoded it. Any thread. */
tutti_status tutti_engine_look_decoded(const tutti_engine *e, const tutti_piece *p,
                                       tutti_engine_bad *bad, tutti_error *err);
/* Finds what is not finite among what the members of `group` examined, as a number that is equal
   on all of them; 0: nothing. group NULL: of this worker alone. Any thread. */
tutti_status tutti_engine_vote(tutti_engine *e, const tutti_engine_piece *state, uint64_t step,
                               tutti_group *group, int64_t *who, tutti_error *err);
/* Decides whether the step whose gradient is in g is skipped. Collective if such steps may be
   skipped. */
tutti_status tutti_engine_judge(tutti_engine *e, bool *skip, tutti_error *err);

#pragma GCC visibility pop
#endif
