/* sequence.h: private header of networks of tokens, frames or categories (nn_net.sequence).
   Included by sequence.c, which infers shapes and units, by sequence_part.c, which splits a
   network into stages, by net.c, driver.h and sequence_run.h (the backend), and by tests.

   The network is a list of layers on the rows of a matrix: embedding, norms, linear layers,
   attention, lstm, branches that are joined again.

     tokens       A sample is a window of `context` tokens, and a row is a token. The network ends
                  in a linear layer of as many classes as there are tokens.
     frames       A sample is a window of `context` frames, which are rows of values. A mean layer
                  replaces them by their mean. After it a row is a sample, and the network ends in a
                  linear layer with the classes.
     categories   A sample is one row, so context is 1. The row begins as the rows of tables that
                  the sample's categories name, and the network ends in one logit.

   Most layers treat each row alone. Attention and positions need the rows of a window one after
   another. A recurrent layer computes one time step of all windows at once, so in networks with an
   lstm, and in networks of frames, the rows are ordered by time step (`time_major`): row
   t windows + w is time step t of window w. The order is one for the whole network; no layer copies
   rows into another order.

   Plain convolutions have another backend (onednn.c): tiles of 8 images run through all layers, in
   blocked layouts. Here every layer takes all rows of a block before the next layer does. The two
   share what surrounds them: the order of calls, hooks and blocks, and the sums over blocks (nn.c,
   pass.c, sums.c), the primitives (dn_op, dn_linear) and the memory planner (arena.h).

   A *unit* is a layer with parameters and those that follow it without any. */
#ifndef TUTTI_NN_SEQUENCE_H
#define TUTTI_NN_SEQUENCE_H
#include "nn_internal.h"

/* A layer after shape inference. */
typedef struct nn_node {
    tutti_layer layer;
    int in;                      /* values of a row of its input; embedding: 0; tile: of the input
                                    that all tiles read */
    int out;                     /* values of a row of its output; tile: of its own columns */
    int column, wide;            /* linear: its outputs are columns [column, column + out) of rows
                                    of `wide` values; not split into tiles: column 0, wide = out */
    int length;                  /* rows of a window after this layer */
    int unit;
    int partner;                 /* branch: its join; join: its branch; else -1 */
    int param;                   /* first of its parameters; of a tied layer: the embedding's */
    int params;                  /* parameters of its own: 0, 1, 2 (weight, bias), or 4 for each
                                    direction of an lstm; of a tied layer 0 */
    int reads;                   /* parameters whose values it reads: params; of a tied layer 1 */
    int lstm;                    /* lstm: its index among the lstms */
    bool dropped;                /* its segment's activations are not kept after forward */
    bool again;                  /* backward computes it again */
    double flops;                /* of a sample's forward */
} nn_node;

typedef struct nn_sequence {
    int context;                 /* rows of a window at the beginning */
    int classes;                 /* of tokens: the vocabulary */
    int width;                   /* frames: values of a frame */
    bool tokens;                 /* false: frames or categories */
    bool time_major;             /* rows are ordered by time step, not by window */
    int tables;                  /* categories of a sample, each with a table; 0: no categories */
    int values;                  /* categories: other values of a sample */
    uint32_t rows;               /* categories: rows of each table */
    int node_count, unit_count, param_count, lstm_count;
    bool tied;                   /* the last layer, in the last unit, reads unit 0's parameter */
    bool recomputes;             /* some node has `again` */
    bool enters;                 /* stage: it begins with an ENTER layer, which reads rows of the
                                    previous stage, not with samples */
    bool leaves;                 /* stage: it ends with a LEAVE layer, which writes rows for the
                                    next stage, not with the head */
    int offset;                  /* stage: its layer i is layer i + offset of the whole network */
    nn_node *nodes;              /* [node_count] */
    int *unit_node;              /* [unit_count + 1]: first node of each unit, which has the unit's
                                    parameters unless a FRAMES, ENTER or BRANCH layer precedes it;
                                    [unit_count]: node_count */
    tutti_nn_param *params;      /* [param_count], in the order of tutti_nn_params */
} nn_sequence;

static inline bool nn_takes_tokens(const nn_net *net)
{
    return net->sequence != NULL && net->sequence->tokens;
}

/* Returns the values of a row after the node; after a tile, those of all tiles so far. */
static inline int nn_width_after(const nn_node *n)
{
    return n->column + n->out;
}

/* Return whether a linear node is the first, or the last, of its tiles; true if it is not split. */
static inline bool nn_first_tile(const nn_node *n)
{
    return n->layer.tile == 0;
}

static inline bool nn_last_tile(const nn_node *n)
{
    return n->layer.tiles <= 1 || n->layer.tile + 1 == n->layer.tiles;
}

/* Returns the first node of the segment that node i is in. */
static inline int nn_segment_first(const nn_sequence *s, int i)
{
    while (i > 0 && !s->nodes[i].layer.segment)
        i--;
    return i;
}

/* Returns the node of a unit that has its parameters. */
static inline int nn_unit_param_node(const nn_sequence *s, int unit)
{
    int i = s->unit_node[unit];
    while (s->nodes[i].params == 0)
        i++;
    return i;
}

/* Returns how many ids a row looks up: 1 (its token), or one for each category. An id is a row of
   the vocabulary, or of all tables one after another. */
static inline size_t nn_row_ids(const nn_sequence *s)
{
    return s->tables > 0 ? (size_t)s->tables : 1;
}

/* ---- sequence.c ---- */
/* Builds a network from a list of `count` layers. TUTTI_ERR_USAGE: the list is not a network for
   the task. *out is NULL on failure. */
tutti_status tutti_nn_sequence_open(nn_sequence **out, const tutti_layer *layers, int count,
                                    const tutti_nn_task *task, tutti_error *err);
void tutti_nn_sequence_close(nn_sequence *s); /* s may be NULL */
/* Sets `dropped` and `again` of all nodes, from the segments that their layers begin. In a dropped
   segment a node is computed again if backward reads what it has computed, or if such a node
   follows it in the segment. */
void tutti_nn_sequence_segments(nn_sequence *s);

/* ---- sequence_part.c ---- */
/* Sets *node to the first layer of a stage that begins at the unit, including branches directly
   before the unit. TUTTI_ERR_USAGE: no stage can begin there, with the reason. */
tutti_status tutti_nn_sequence_cut(const nn_sequence *s, int unit, int *node, tutti_error *err);
/* Makes a network of units [first, end), for a stage. TUTTI_ERR_USAGE: no stage can begin at
   `first` or at `end`. *out is NULL on failure. */
tutti_status tutti_nn_sequence_part(nn_sequence **out, const nn_sequence *whole, int first, int end,
                                    tutti_error *err);
#endif
