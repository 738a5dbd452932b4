/* pass.h: data structures shared by methods and the engine's client: the model as one flat
   vector, partitioned into pieces, and a pass over samples.

   All dense parameters of the model are ONE flat float32 vector x[0..n). It is fixed for the life
   of the engine and ordered as gradients become ready; g is its gradient. A step is one or more
   passes (forward + backward). */
#ifndef TUTTI_PASS_H
#define TUTTI_PASS_H
#include "comm.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

typedef struct tutti_method tutti_method; /* method.h */

/* ---- the flat space ---- */

typedef struct tutti_tensor {
    const char *name;
    size_t first, count, rows, cols;     /* first: offset in x */
    int unit;                            /* layer group: acquired together */
    bool row_sparse;                     /* a table: passes report which rows of its gradient they
                                            touch */
    bool asked;                          /* a table whose rows the method fetches on request
                                            (rows_acquire): until then x may have older ones */
} tutti_tensor;
/* The rows of a table's gradient that may be nonzero. All others are 0 in g, so that a method
   that does not use rows can read the whole gradient as usual. */
typedef struct tutti_rows {
    bool all;                            /* every row may be; ids is unused */
    size_t n;
    const uint32_t *ids;                 /* n, ascending, distinct */
} tutti_rows;
/* The unit of exchange: a range of the flat space. Buckets, partitions, fusion buffers and shard
   pieces are all pieces. It is ready when every tensor that it overlaps has its gradient.

   rows: for a table, which is a piece by itself: rows of the exchange's input. NULL: not a table,
   or a method without TUTTI_SPARSE_ROWS.
   group, step, weight: the engine sets them before each exchange, and they stay until it is over.
   group: the workers, keyed so that no other piece or step interferes with it; its algorithm,
   which is the run's, is there from open() on. step: whose gradient it is. weight: m->weight of
   that step. An exchange that may run concurrently with later steps (tutti_late_declare,
   m->by_piece) must use these instead of the method's. */
typedef struct tutti_piece {
    int index;                           /* in ready order */
    size_t first, count;
    int first_tensor, tensors;           /* those it overlaps, with cut_bytes possibly in part */
    float *g, *x;                        /* element `first` */
    const tutti_rows *rows;
    tutti_group group;
    uint64_t step;
    double weight;
} tutti_piece;
typedef struct tutti_layout {
    size_t used;                         /* elements of all tensors, which are contiguous */
    size_t n;                            /* padded: a multiple of 64 x workers; padding stays 0 and
                                            is not sent */
    const tutti_tensor *tensor; int n_tensors;
    int n_units;
    const tutti_piece *piece; int n_pieces;
} tutti_layout;

/* ---- a pass ---- */

/* One forward and backward. The engine fills in the default, and the pass hook changes it.

   scale: a power of two, 1 unless the run scales the loss. It is the engine's, set after the hook.
   The gradient of a pass before the step's last is scaled until tutti_base_check.
   exchange: pieces go to the lane as they become ready. Default: in the last of the configured
   passes. Never in a pass that is followed by another of the step.
   more: another pass of this step follows. Default: until the configured passes are over. A pass
   beyond those begins with 0 samples, at the position of the one before it. A hook that removes
   or adds passes must set `exchange` too. Before the next pass the hook may use the gradient of
   this one (tutti_base_check, tutti_update) and change x: then it sets same_values to false.
   again: the samples of the previous pass once more, at other values (SAM, cross-gradients), with
   the same function: the same random draws of dropout. The client's running statistics stay as
   the first pass left them, and neither losses nor samples are counted. False in a step's first
   pass. The hook that sets it must set samples (m->samples) and same_values, too.
   merge: the same in all passes of a step, after tutti_merge_declare. This step has no exchange and
   no update: its gradient waits for the next step's.
   received, given: the last `received` of `samples` are other workers', which tutti_give has
   received and the client reads at `given`; epoch and position are those of the other samples. In
   a pass with `again` they are the same again.
   ids: after tutti_names_declare: the samples of this pass, `samples` indexes of the training set
   in any order, instead of those from epoch and position on. epoch and position still give the
   pass's position in the run, which determines the client's random draws.
   losses: likewise: an array of `samples` numbers, where the client writes the loss of each
   sample at the pass's values, in their order, with or without ids. They are valid from the next
   hook on. ids and losses are the method's memory, and must stay valid until that hook. */
typedef struct tutti_pass {
    int64_t index;                       /* 0, 1, ... within the step */
    int64_t samples;                     /* to compute in this pass; 0: announce zero gradients */
    int64_t divisor;                     /* the requested gradient is that of scale x (sum of the
                                            samples' losses) / divisor; 0 with samples 0 */
    double scale;
    uint64_t epoch, position;            /* where the samples begin in the order of share.h */
    bool again;                          /* TUTTI_RECOMPUTES: a repeated pass; see above */
    bool same_values;                    /* x has not changed since the previous pass: prepared
                                            weights may be kept */
    bool keep;                           /* add to g instead of replacing it */
    bool exchange;
    bool more;
    bool merge;
    int64_t received;                    /* of samples; 0: all are this worker's own */
    const void *given;                   /* received x sample_bytes (engine_options.give), as other
                                            workers' clients wrote them; the engine's, until the
                                            next pass that has another */
    const uint64_t *ids;                 /* NULL: from position on */
    float *losses;                       /* NULL: not requested, at no cost */
} tutti_pass;
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
