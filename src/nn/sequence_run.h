/* sequence_run.h: the backend of networks of tokens, frames and categories: matrix products by
   oneDNN on plain rows (onednn_linear.c, onednn_lstm.c), everything else by math/.

   - The residual stream's slope is one buffer from the last join to the first branch. A join hands
     its slope to its branch and keeps it, and the norm that begins a branch adds its own to it. So
     a layer norm's backward gives both its halves in `weights`, in one pass over the rows.
   - Classes are computed HEAD at a time, so logits exist for one chunk only. With several chunks
     backward multiplies once more instead of keeping rows x classes. Then each chunk gives its
     part of the input's slope along with its weights' gradient.
   - Moments of the arena: forward of node i is i, the loss n, then backward, node by node. Before
     that of a segment that was dropped come the forwards of its nodes that are computed again.
   - A network with segments has two tables of places: those of forward, and those of backward with
     what it computes again. What goes from a segment to the next has one place in both.
   - Training is laid out for the full block. An evaluation runs pieces that are padded with
     windows of token 0, and products with padding rows whose results are unused. So no window's
     loss depends on how many there are (as DN_PIECE).
   - A dropout works in place where no other layer reads its input. It keeps no mask and draws it
     once more in backward. An evaluation skips it.
   - Tokens and labels of networks that go moment by moment are put into that order when a run
     begins, frames by their layer: no other layer depends on it.
   - A layer in tiles has one output, one slope and one input; a tile's products read and write its
     columns of them by their stride. What goes over all columns of a slope, its narrowing and the
     sums of the bias, is done by the last tile, whose backward is first. So the slope of the input
     is the last tile's product, and each tile before adds its own.
   - A ReLU is computed along with its linear layer and masks the slope by that layer's output.
   - A table's gradient is written as rows (nn_rows), a sum a distinct id, in the order of the
     batch: the bits of a sum into a table of zeros.
   - One logit z is two classes with the logits 0 and z: the same entropy, loss and slope.
   - Own loops are split among the threads of the products (parallel.h), by rows, windows, heads
     or columns as math.h allows. Sums over rows run over NN_ROWS of them at a time, which are
     then added in order. So the number of threads changes no bit of their results. Loops too
     small to be worth waking a thread stay on the caller's thread.

   Files: sequence_plan.c has the primitives, and which buffer lives when; sequence_forward.c and
   sequence_back.c a layer's two halves; sequence_run.c a run's samples, its loss, and the table. */
#ifndef TUTTI_NN_SEQUENCE_RUN_H
#define TUTTI_NN_SEQUENCE_RUN_H
#include "layered.h"
#include "math/math.h"
#include "parallel.h"
#include "sequence.h"
#include <math.h>

enum {
    HEAD = 8 * NN_CLASSES,
    ROWS_STEP = 48               /* every block of rows in oneDNN's kernels is a divisor
                                    (onednn_internal.h, DN_PIECE) */
};

typedef struct seq_plan {        /* primitives for a number of samples */
    dn_linear *linear;           /* by node; of the head: a full chunk of classes */
    dn_linear rest;              /* the head's last chunk, if it is shorter */
    dn_lstm *lstm;               /* by node.lstm */
} seq_plan;

/* Of a node: buffers by index. parts: of sums over rows. in, given: a linear node's input and
   slope as its products read them. If they compute in 16 bits these are the 16-bit ones, kept from
   forward to backward in place of the float32 ones. */
typedef struct seq_place {
    int out, stats, slope, back, residual, forward_scratch, back_scratch, parts, in, given;
} seq_place;

typedef struct seq_layout {
    nn_lives lives;
    int state;
    int filled, labels;          /* tokens (or ids of rows) and labels in other places than they
                                    came in, or more of them */
    int pairs;
    seq_place *forward, *back;   /* by node; the same but in training with segments */
    seq_place *place;            /* of the half that runs: one of the two */
    int *units;                  /* by moment: the unit that computes */
    size_t *scratch;             /* bytes: forward and backward of each node's primitives, the most
                                    there was */
} seq_layout;

typedef struct sequence {
    const nn_sequence *net;
    const nn_math *math;
    const nn_loops *loops;
    dn_core core;
    nn_layered base;
    tutti_device *draws;         /* only if there is a dropout */
    float **angles;              /* by node, of a rotary one: cosines and sines, each context x half
                                    of a head's width; heads of one width share */
    const nn_times *times;
    seq_layout layouts[2], *layout; /* of evaluation, of training; of this run */
    nn_run run;
    const uint32_t *labels;      /* of the head's rows */
    int64_t windows;             /* of this run, those filled up included */
    float scale;                 /* of the loss's gradient */
} sequence;

static inline seq_plan *plan_of(const sequence *b) { return b->base.plan->ops; }

/* Rows of a buffer and of its products. */
static inline size_t room_of(int64_t windows, int length, bool train)
{
    const size_t rows = (size_t)(windows * length);
    return train ? rows : (rows + ROWS_STEP - 1) / ROWS_STEP * ROWS_STEP;
}

static inline int head_of(const sequence *b)
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
    return b->net->nodes[head_of(b)].out;
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

static inline void *at(const sequence *b, int buffer)
{
    return nn_place_of(&b->base, buffer);
}

static inline size_t rows_of(const sequence *b, int i)
{
    return (size_t)(b->windows * b->net->nodes[i].length);
}

static inline const float *value(const sequence *b, int i, int k)
{
    const nn_node *n = &b->net->nodes[i];
    return k < n->reads ? b->run.values[n->param + k] : NULL;
}

static inline float *gradient(const sequence *b, int i, int k)
{
    const nn_node *n = &b->net->nodes[i];
    return k < n->reads ? b->run.gradients[n->param + k] : NULL;
}

static inline dn_linear *chunk_plan(sequence *b, int first)
{
    const int head = head_of(b);
    return outputs_of(b) - first >= HEAD || first == 0 ? &plan_of(b)->linear[head]
                                                       : &plan_of(b)->rest;
}

/* Does node i give its output to the next, linear node in 16 bits, and to no other node? Then its
   float32 output exists for some rows at a time only, in the cache. */
static inline bool narrows(const sequence *b, int i)
{
    const nn_node *n = &b->net->nodes[i];
    return b->core.precision != TUTTI_F32 && i < head_of(b) && is_linear(b, i + 1) &&
           (is_norm(n) || n->layer.kind == TUTTI_LAYER_GELU);
}

/* Of a node that is not computed again, but whose product needs its input in 16 bits for the
   gradient: these are made then. */
static inline bool narrows_late(const sequence *b, int i)
{
    const nn_node *n = &b->net->nodes[i];
    return is_linear(b, i) && n->dropped && !n->again && nn_last_tile(n) &&
           !narrows(b, i - 1 - n->layer.tile);
}

/* From a linear node's column on, in a buffer of float32 or of operands. */
static inline float *columns_of(const sequence *b, int i, int buffer)
{
    return (float *)at(b, buffer) + b->net->nodes[i].column;
}

static inline void *operand_of(const sequence *b, int i, int buffer)
{
    return b->core.precision == TUTTI_F32 ? (void *)columns_of(b, i, buffer)
                                          : (void *)((uint16_t *)at(b, buffer) +
                                                     b->net->nodes[i].column);
}

static inline size_t rows_at_once(const nn_node *n)
{
    return n->out < 4096 ? 4096 / (size_t)n->out : 1;
}

/* A linear node's input or slope for its products. */
static inline void give_operand(sequence *b, size_t n, const float *from, int to)
{
    if (b->core.precision != TUTTI_F32)
        tutti_nn_dn_narrow(&b->core, n, from, at(b, to));
}

/* The arguments of an own loop of node i; the loop is split into [first, first + count) by the
   items of its layer. The rest is as the loop needs it. */
typedef struct cut { sequence *b; int i; size_t columns, class; float *rows, *sums; } cut;

/* Of `values` each at least; the thread's number is below core.threads. */
static inline void share_out(sequence *b, size_t items, size_t values,
                             void (*work)(void *arg, size_t first, size_t count, int thread),
                             cut *c)
{
    tutti_nn_parallel(b->core.threads, items, nn_least_items(values), work, c);
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

/* Windows, for layers that depend on places; moments for dropouts of networks that go by them;
   units of attention; else rows. */
static inline size_t items_of(const sequence *b, int i)
{
    const nn_node *n = &b->net->nodes[i];
    const size_t windows = (size_t)b->windows;

    switch (n->layer.kind) {
    case TUTTI_LAYER_POSITIONS: case TUTTI_LAYER_ROTARY: return windows;
    case TUTTI_LAYER_DROPOUT: return b->net->by_moment ? (size_t)n->length : windows;
    case TUTTI_LAYER_ATTENTION: return windows * (size_t)n->layer.heads;
    default: return rows_of(b, i);
    }
}

static inline size_t values_of(const sequence *b, int i)
{
    const nn_node *n = &b->net->nodes[i];
    /* a unit of attention is worth a thread */
    return n->layer.kind == TUTTI_LAYER_ATTENTION ? NN_WORTH
                                                  : rows_of(b, i) * (size_t)n->out / items_of(b, i);
}

/* ---- sequence_plan.c ---- */
extern const nn_layers tutti_nn_seq_layers;

/* ---- sequence_forward.c ---- */
tutti_status tutti_nn_seq_forward(sequence *b, int i, tutti_error *err);
/* The logits of classes from `first` on; gives how many in *count. */
tutti_status tutti_nn_seq_logits(sequence *b, int first, int *count, tutti_error *err);
/* Queries and keys, which stand one after another at the head of a row. */
void tutti_nn_seq_turn(const sequence *b, int i, size_t first, size_t count, bool back, float *x);
/* Each sample has draws of its own, so that they do not depend on which worker computes it. */
void tutti_nn_seq_drop(const sequence *b, int i, size_t first, size_t count, const float *x,
                       float *y);

/* ---- sequence_back.c: of a layer with parameters their gradients, and what comes along with them;
   then the slope of its input ---- */
tutti_status tutti_nn_seq_weights(sequence *b, int i, tutti_error *err);
tutti_status tutti_nn_seq_data(sequence *b, int i, tutti_error *err);
#endif
