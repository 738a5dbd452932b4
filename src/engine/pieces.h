/* pieces.h: the state of a piece of the flat space, and the check of its gradient for non-finite
   numbers. Included by engine_internal.h, and so by the engine's files and step modes. Implemented
   by pieces.c, layout.c (reset), finite.c and judge.c. */
#ifndef TUTTI_ENGINE_PIECES_H
#define TUTTI_ENGINE_PIECES_H
#include "engine/engine_facility.h"
#include "engine/lane.h"
#include "tier/tier.h"

#pragma GCC visibility push(default)     /* for src/engine/modes */

/* The engine's state of a piece, next to its tutti_piece of the same index. Client thread, except
   while the piece's job runs. */
typedef struct tutti_engine_piece {
    tutti_job job;               /* its exchange, or its gather */
    tutti_engine *engine;
    int unit;                    /* the lowest unit that the piece overlaps */
    int missing;                 /* number of its tensors whose gradient has not been announced in
                                    this pass */
    bool on_lane;                /* the job was given to the lane; else step() exchanges the piece
                                    on the client's thread */
    bool pending;                /* started, or waiting for step(), and not yet waited for */
    /* written by the job; read when the job was waited for */
    tutti_engine_bad bad;
    int64_t exchanged_ns;        /* when its exchange or gather ended */

    /* with m->by_piece (by_piece.c) */
    tutti_rate rate;             /* for the update: that of the gradient's own step */
    int held;                    /* number of its tensors whose unit's backward pass still reads
                                    their values; under the mutex of by_piece.c */
    bool exchanged;              /* its exchange has ended; under the same mutex */
    bool updated_here;           /* the client's thread made the update. This and the times are
                                    written by the thread that updates, and read when the job was
                                    waited for */
    int64_t updating_ns, updated_ns; /* begin and end of the update */

    bool gathers;                /* shards.c: the pending job gathers the piece's values */
    tutti_group between;         /* shards.c, with several node groups: the workers that have the
                                    same shard of the piece */
    uint32_t order_seq;          /* units.c: sequence number of the messages by which the workers
                                    compare the order of their collectives */
    float *received;             /* held.c, with logical shares: while the piece has p->g, memory
                                    for its part of each worker's gradient */
} tutti_engine_piece;

/* ---- pieces.c ---- */

/* Makes g this worker's gradient of the update, without the loss scale and as facilities change
   it. Does nothing if that was done since the last pass, or if this step exchanges pieces: then
   their jobs do it. */
void tutti_engine_take_in(tutti_engine *e);
/* Counts one more tensor of piece k as announced. Starts the piece if it is complete and this pass
   exchanges; under TUTTI_ORDER_READY once all pieces before it have started. */
void tutti_engine_piece_tensor_ready(tutti_engine *e, int k);
/* Under TUTTI_ORDER_READY: starts the next pieces, in index order, as far as they are complete. */
void tutti_engine_start_ready(tutti_engine *e);
/* Within step(): exchanges the pieces that were not given to the lane. Then waits for the others,
   unless m->by_piece. */
tutti_status tutti_engine_settle_pieces(tutti_engine *e, tutti_error *err);
/* Returns whether the result of this pass's exchange is added to that of the step's earlier
   passes: gradients are held by piece, and this is not the step's first pass. Not with logical
   shares: their sum needs the order of a tree (logical.c). */
bool tutti_engine_adds_up(const tutti_engine *e);

/* For the jobs of pieces (pieces.c, shards.c): starts s->job on the lane. */
void tutti_engine_give_to_lane(tutti_engine *e, tutti_engine_piece *s);
/* Notifies the other workers that this one does not join the piece's collectives, because of
   `status`. */
void tutti_engine_give_up_piece(tutti_engine *e, tutti_engine_piece *s, tutti_piece *p,
                                tutti_status status, const tutti_error *err);
/* Records the end of a piece's job with `status`, and its failure. */
void tutti_engine_piece_ended(tutti_engine *e, tutti_engine_piece *s, tutti_status status,
                              const tutti_error *err);
/* Once the job of piece k was waited for and ended with `status`: counts and traces it, and resets
   the piece. */
void tutti_engine_piece_over(tutti_engine *e, int k, tutti_status status);
/* Resets piece k to its state before it was started (layout.c). */
void tutti_engine_piece_reset(tutti_engine *e, int k);

/* Returns the first element of part `index` of `count` elements that are split over `parts`
   workers, as evenly as lines of 64 bytes permit; index = parts: count. A part has fewer than
   count / parts + TUTTI_ENGINE_PART_OVER elements. */
size_t tutti_engine_part_at(size_t count, int parts, int index);
enum { TUTTI_ENGINE_PART_OVER = 32 };

/* ---- finite.c, judge.c: non-finite gradients ---- */

/* Sets *bad to the first non-finite number of p->g. Reads no other piece. Any thread. */
void tutti_engine_find_bad_of(const tutti_engine *e, const tutti_piece *p, tutti_engine_bad *bad);
/* Checks that this worker's gradient p->g is finite, and sets *bad. TUTTI_ERR_NUMBER if it is not,
   unless such a step may be skipped. With nonfinite=keep it checks nothing without a codec. Any
   thread. */
tutti_status tutti_engine_check_piece(const tutti_engine *e, const tutti_piece *p,
                                      tutti_engine_bad *bad, tutti_error *err);
/* Checks likewise that the mean p->g is finite as a codec has decoded it, unless bad->found
   already. Does nothing without a codec. Any thread. */
tutti_status tutti_engine_check_decoded(const tutti_engine *e, const tutti_piece *p,
                                        tutti_engine_bad *bad, tutti_error *err);
/* Sets *vote to what is not finite in a step's gradient, as a number that is the same on all
   members of `group`: 0: nothing. state: [n_pieces], whose `bad` the checks have set. group: NULL:
   the vote is of this worker alone; else collective. TUTTI_ERR_NUMBER for a decoded mean, unless
   such a step may be skipped. Any thread. */
tutti_status tutti_engine_vote(tutti_engine *e, const tutti_engine_piece *state, uint64_t step,
                               tutti_group *group, int64_t *vote, tutti_error *err);
/* What is not finite in this step, over all workers. own: a worker's own gradient; otherwise a
   decoded mean. A gradient is named before a mean, since the mean is not finite either if one of
   its gradients is not. */
typedef struct tutti_engine_verdict {
    bool bad, own;
    int worker, tensor;
} tutti_engine_verdict;
/* Decides whether the update of the gradient in g is skipped: v->bad, which is false if such steps
   may not be skipped. Changes nothing. Collective if they may, pieces were exchanged, and the
   gradient is this step's. Client thread. */
tutti_status tutti_engine_judge(tutti_engine *e, tutti_engine_verdict *v, tutti_error *err);
/* Counts and reports what was decided. Client thread. */
tutti_status tutti_engine_judged(tutti_engine *e, const tutti_engine_verdict *v, tutti_error *err);

#pragma GCC visibility pop
#endif
