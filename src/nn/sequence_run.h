/* sequence_run.h: private header of the sequence backend (networks on rows: tokens, frames,
   categories; see sequence.h). oneDNN computes matrix products and LSTMs on plain row-major memory
   (onednn_linear.c, onednn_lstm.c). math/ and loops.h compute the other layers. "Slope" of a value:
   the gradient of the loss with respect to it.

   - In backward the residual stream's gradient is one buffer, from the last join to the first
     branch. A join passes this buffer to the last layer of its body without a copy, so that layer
     must not write it. A norm directly after a branch adds its input gradient to the buffer. So a
     norm computes its parameter gradients and its input gradient in one pass over the rows, in the
     hook `weights`; its hook `data` does nothing.
   - The head's classes are computed in chunks of HEAD_CHUNK, and only one chunk's logits are in
     memory. If there are several chunks, backward recomputes the logits of each. It then computes
     the chunk's weight gradient and adds the chunk's part of the input gradient.
   - The operations of a run are numbered for the memory planner ("moments"): forward of node i is
     moment i, the loss is moment n, then come the backward operations. Before the backward of a
     recomputed segment come the forward operations that are repeated.
   - With recomputation (segments) there are two buffer tables: one for forward, one for backward
     and its recomputation. A segment's output, which the next segment reads, has the same buffer in
     both.
   - Training buffers have the size of the full block. Evaluation runs have a fixed size.
     Missing windows are filled with zeros (token 0), and the rows of products are padded to a
     multiple of ROWS_STEP; the results of the padding are ignored. So a window's loss does not
     depend on how many windows are evaluated (see DN_EVAL_SAMPLES).
   - A dropout works in place where no other layer reads its input. It stores no mask; backward
     draws the same mask again. An evaluation skips it.
   - Networks with time_major order rows by time step. Their tokens and labels are
     transposed into this order when a run begins, and frames in the frames layer. LSTMs and the
     mean over frames need this order. Dropout, the losses and the outputs take either order; all
     other layers of such a network treat each row alone.
   - A linear layer may be split into tiles, by output columns. All tiles share one input buffer,
     one output buffer and one gradient buffer; a tile accesses its columns by a stride. The last
     tile, whose backward runs first, does what covers all columns: it converts the gradient to 16
     bits and sums the bias gradient. It also writes the input gradient; each other tile adds to it.
   - A ReLU is computed along with its linear layer and masks the slope by that layer's output.
   - A table's gradient is sparse (nn_rows): one row for each distinct id. Contributions are added
     in batch order, so each row has the bits of a scatter-add into a dense table of zeros. An
     embedding that is tied to the head has a dense gradient, to which the head has already
     contributed.
   - One logit z is two classes with the logits 0 and z: the same entropy, loss and slope.
   - Loops that are not oneDNN's run on oneDNN's threads (parallel.h), split by rows, windows, heads
     or columns as math.h allows. A sum over rows is computed from partial sums of NN_ROWS rows,
     added in order. So the number of threads changes no bit. A loop too small for a second thread
     runs on the caller's.

   Files: sequence_plan.c builds the primitives and declares the buffers; sequence_forward.c and
   sequence_back.c compute one node forward and backward; sequence_run.c begins a run, computes its
   loss, and defines the backend's table. */
#ifndef TUTTI_NN_SEQUENCE_RUN_H
#define TUTTI_NN_SEQUENCE_RUN_H
#include "layered.h"
#include "math/math.h"
#include "parallel.h"
#include "sequence.h"
#include <assert.h>
#include <math.h>

enum {
    HEAD_CHUNK = 8 * NN_CLASSES, /* classes whose logits are computed at a time */
    ROWS_STEP = 48               /* a multiple of every row block of oneDNN's kernels (see
                                    DN_EVAL_SAMPLES) */
};

typedef struct seq_plan {        /* primitives for a number of samples */
    dn_linear *linear;           /* [nodes]; of the head: for a full chunk of classes */
    dn_linear rest;              /* the head's last chunk, if it is shorter */
    dn_lstm *lstm;               /* [lstms]: by nn_node.lstm */
} seq_plan;

/* Buffers of one node: indexes for at(), NN_NONE: none. */
typedef struct seq_place {
    int out;                     /* output; may be the previous node's, if computed in place */
    int stats;                   /* what backward reads in addition to values: a norm's statistics,
                                    attention's softmax statistics, what an LSTM keeps */
    int slope, back;             /* slope of the output; slope of the input */
    int residual;                /* of a branch: the residual stream's slope */
    int forward_scratch, back_scratch;
    int parts;                   /* partial sums over rows */
    int in, given;               /* of a linear node: its input, and the slope of its output, as its
                                    products read them; with 16-bit products 16-bit copies */
} seq_place;

typedef struct seq_layout {
    nn_buffer_table buffers;
    int state;                   /* nn_entropy of each row of the head */
    int tokens_buffer;           /* reordered or padded tokens, or ids of table rows */
    int labels_buffer;           /* reordered or padded labels */
    int pairs;                   /* the two logits of each row, if the network has one logit */
    seq_place *forward, *back;   /* [nodes]; the same array except in training with segments */
    seq_place *place;            /* the table of the half that runs: forward or back */
    int *units;                  /* [moments]: the unit that computes */
    size_t *scratch;             /* [nodes x 2]; [2 i + back]: most bytes of scratch that primitives
                                    of node i need in forward (back 0) or backward (back 1) */
} seq_layout;

typedef struct sequence {
    const nn_sequence *net;
    const nn_math *math;
    const nn_loops *loops;
    dn_core core;
    nn_layered base;
    tutti_device *draws;         /* device that draws dropout masks; NULL: no dropout */
    float **angles;              /* [nodes]; of a rotary node: cosines and sines, each context x
                                    half of a head's width; heads of one width share them */
    const nn_times *times;       /* where the time of each node is added up, if wanted */
    seq_layout layouts[2];       /* [train] */
    seq_layout *layout;          /* of this run */
    nn_run run;
    const uint32_t *labels;      /* of the head's rows */
    int64_t windows;             /* of this run, with padding */
    float scale;                 /* of the loss's gradient */
} sequence;

static inline seq_plan *plan_of(const sequence *b) { return b->base.plan->ops; }

/* Rows of a buffer; in an evaluation rounded up to a multiple of ROWS_STEP. */
static inline size_t padded_rows(int64_t windows, int length, bool train)
{
    const size_t rows = (size_t)(windows * length);
    return train ? rows : (rows + ROWS_STEP - 1) / ROWS_STEP * ROWS_STEP;
}

static inline int head_index(const sequence *b)
{
    return b->net->node_count - 1;
}

static inline bool is_linear(const sequence *b, int i)
{
    return b->net->nodes[i].layer.kind == TUTTI_LAYER_LINEAR;
}

static inline bool is_norm(const nn_node *n)
{
    return n->layer.kind == TUTTI_LAYER_LAYER_NORM || n->layer.kind == TUTTI_LAYER_RMS_NORM;
}

static inline int outputs_of(const sequence *b)
{
    return b->net->nodes[head_index(b)].out;
}

/* Ids that `windows` samples look up in the first layer's table. */
static inline size_t ids_of(const sequence *b, int64_t windows)
{
    return (size_t)(windows * b->net->context) * nn_row_ids(b->net);
}

static inline nn_attention attention_of(const sequence *b, int i, int64_t windows)
{
    const nn_node *n = &b->net->nodes[i];
    const size_t dim = (size_t)n->out, width = dim / (size_t)n->layer.heads;

    return (nn_attention){ .batch = (size_t)windows,
                           .heads = (size_t)n->layer.heads,
                           .length = (size_t)b->net->context,
                           .width = width,
                           .stride = 3 * dim,
                           .out_stride = dim,
                           .scale = (float)(1 / sqrt((double)width)),
                           .causal = true };
}

/* Address of a buffer of the run; NULL for NN_NONE. */
static inline void *at(const sequence *b, int buffer)
{
    return nn_buffer_address(&b->base, buffer);
}

static inline size_t rows_of(const sequence *b, int i)
{
    return (size_t)(b->windows * b->net->nodes[i].length);
}

/* Parameter k of node i; NULL: it has none. */
static inline const float *value(const sequence *b, int i, int k)
{
    const nn_node *n = &b->net->nodes[i];
    return k < n->reads ? b->run.values[n->param + k] : NULL;
}

/* The gradient of parameter k of node i; NULL: it has none. */
static inline float *gradient(const sequence *b, int i, int k)
{
    const nn_node *n = &b->net->nodes[i];
    return k < n->reads ? b->run.gradients[n->param + k] : NULL;
}

/* Primitives of the head's chunk that begins at class `first`. */
static inline dn_linear *chunk_plan(sequence *b, int first)
{
    const int head = head_index(b);
    return outputs_of(b) - first >= HEAD_CHUNK || first == 0 ? &plan_of(b)->linear[head]
                                                             : &plan_of(b)->rest;
}

/* True if node i's output is read only by the next, linear node, in 16 bits. Its float32 output is
   then computed a few rows at a time (rows_at_once) and not stored. */
static inline bool narrows(const sequence *b, int i)
{
    const nn_node *n = &b->net->nodes[i];
    return b->core.precision != TUTTI_F32 && i < head_index(b) && is_linear(b, i + 1) &&
           (is_norm(n) || n->layer.kind == TUTTI_LAYER_GELU);
}

/* True if linear node i (of tiles: the last) must make its input operand in backward, from the
   float32 input: the node was dropped and is not recomputed, and its source does not narrow. */
static inline bool makes_operand_late(const sequence *b, int i)
{
    const nn_node *n = &b->net->nodes[i];
    return is_linear(b, i) && n->dropped && !n->again && nn_last_tile(n) &&
           !narrows(b, i - 1 - n->layer.tile);
}

/* Address of a linear node's first column in a float32 buffer. */
static inline float *columns_of(const sequence *b, int i, int buffer)
{
    return (float *)at(b, buffer) + b->net->nodes[i].column;
}

/* The same in a buffer of operands (16-bit or float32). */
static inline void *operand_of(const sequence *b, int i, int buffer)
{
    return b->core.precision == TUTTI_F32 ? (void *)columns_of(b, i, buffer)
                                          : (void *)((uint16_t *)at(b, buffer) +
                                                     b->net->nodes[i].column);
}

/* Rows that a node with narrows() computes in float32 before they are converted: about 4096
   values. */
static inline size_t rows_at_once(const nn_node *n)
{
    return n->out < 4096 ? 4096 / (size_t)n->out : 1;
}

/* Converts n values to the 16-bit operand buffer `to`; does nothing in float32. */
static inline void give_operand(sequence *b, size_t n, const float *from, int to)
{
    if (b->core.precision != TUTTI_F32)
        tutti_nn_dn_narrow(&b->core, n, from, at(b, to));
}

/* Arguments of a parallel loop of node i. The other members' meaning depends on the loop. */
typedef struct loop_args {
    sequence *b;
    int i;
    size_t columns, class;
    float *rows, *sums;
} loop_args;

/* Runs work() over `items` items of `values` values each, on at most core.threads threads.
   thread: 0 to core.threads - 1. */
static inline void run_parallel(sequence *b, size_t items, size_t values,
                                void (*work)(void *arg, size_t first, size_t count, int thread),
                                loop_args *loop)
{
    tutti_nn_parallel(b->core.threads, items, nn_least_items(values), work, loop);
}

static inline dn_lstm_run lstm_run(const sequence *b, int i)
{
    const nn_node *n = &b->net->nodes[i];
    const seq_place *p = &b->layout->place[i];

    return (dn_lstm_run){ .x = at(b, p[-1].out),
                          .y = at(b, p->out),
                          .kept = at(b, p->stats),
                          .values = b->run.values + n->param,
                          .gradients = b->run.train ? b->run.gradients + n->param : NULL,
                          .add = b->run.add };
}

/* Number of items into which node i's loop can be split: windows for position and rotary layers;
   time steps (time_major) or windows for dropout; window x head pairs for attention; rows
   otherwise. */
static inline size_t items_of(const sequence *b, int i)
{
    const nn_node *n = &b->net->nodes[i];
    const size_t windows = (size_t)b->windows;

    switch (n->layer.kind) {
    case TUTTI_LAYER_POSITIONS: case TUTTI_LAYER_ROTARY: return windows;
    case TUTTI_LAYER_DROPOUT: return b->net->time_major ? (size_t)n->length : windows;
    case TUTTI_LAYER_ATTENTION: return windows * (size_t)n->layer.heads;
    default: return rows_of(b, i);
    }
}

/* Values of one such item, for run_parallel. */
static inline size_t values_of(const sequence *b, int i)
{
    const nn_node *n = &b->net->nodes[i];
    const size_t items = items_of(b, i);

    assert(items > 0); /* a run has at least one window */
    /* one window x head pair is enough work for a thread */
    return n->layer.kind == TUTTI_LAYER_ATTENTION ? NN_WORTH
                                                  : rows_of(b, i) * (size_t)n->out / items;
}

/* ---- sequence_plan.c ---- */
extern const nn_layered_ops tutti_nn_seq_ops;

/* ---- sequence_forward.c ---- */
tutti_status tutti_nn_seq_forward(sequence *b, int i, tutti_error *err);
/* Computes the logits of the chunk that begins at class `first`; *count: how many classes. */
tutti_status tutti_nn_seq_logits(sequence *b, int first, int *count, tutti_error *err);
/* Applies the rotary embedding (back: its transpose) to the queries and keys of windows [first,
   first + count), in place in x. Queries and keys are the first columns of a row. */
void tutti_nn_seq_rotate(const sequence *b, int i, size_t first, size_t count, bool back, float *x);
/* Applies dropout to items [first, first + count) (items_of) of x. y may be x. A sample's mask does
   not depend on which worker computes it. */
void tutti_nn_seq_drop(const sequence *b, int i, size_t first, size_t count, const float *x,
                       float *y);

/* ---- sequence_back.c ---- */
/* weights: parameter gradients of node i; for most layers the input gradient, too. data: the input
   gradient of LSTMs and of linear layers but the head. */
tutti_status tutti_nn_seq_weights(sequence *b, int i, tutti_error *err);
tutti_status tutti_nn_seq_data(sequence *b, int i, tutti_error *err);
#endif
