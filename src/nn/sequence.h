/* sequence.h: networks of tokens, frames or categories. The network is a list of layers on the rows
   of a matrix: embedding, norms, linear layers, attention, lstm, branches that are joined again.

     tokens       A sample is a window of `context` tokens, and a row is a token. The network ends
                  in a linear layer of as many classes as there are tokens.
     frames       A sample is a window of `context` frames, which are rows of values. Their mean
                  is taken somewhere; after it a row is a sample, so the network ends in a row of
                  classes for each.
     categories   A sample is one row (so context is 1). It begins as the rows of tables that its
                  categories name, and the network ends in one logit.

   sequence.c infers shapes and units, sequence_part.c splits the network; sequence_run.c is the
   backend.

   Most layers do not care about the order of rows. Attention and positions take them window by
   window. A recurrent layer computes one moment of all windows at once, so in networks that have
   one, and in those of frames, rows stand moment by moment (`by_moment`): row t windows + w. It is
   decided once for the whole network, and no layer copies rows.

   Images keep a path of their own (onednn.c). There convolutions run in tiles of 8 images through
   all layers, and blocked layouts, pooling's workspaces and sums over tiles decide the shape of the
   code. Here every layer takes all rows, and residual streams decide it. Shared is everything
   around: the order of calls, hooks, blocks and tree sums (nn.c, pass.c, sums.c), the primitives
   (dn_op, dn_linear) and the planner of memory.

   A *unit* is a layer with parameters and those that follow it without any. As for images, the
   driver needs, runs, announces and is done with units. */
#ifndef TUTTI_NN_SEQUENCE_H
#define TUTTI_NN_SEQUENCE_H
#include "nn_internal.h"

typedef struct nn_node {         /* a layer after shape inference */
    tutti_layer layer;
    int in, out;                 /* values of a row before and after; in of an embedding: 0; of a
                                    tile: of what all read, and its own */
    int column, wide;            /* of a linear layer: its outputs are those from `column` on of
                                    rows of `wide`; but of tiles 0 and out */
    int length;                  /* rows of a window after it */
    int unit;
    int partner;                 /* of a branch its join, of a join its branch; else -1 */
    int param;                   /* the first of its parameters in the table; of a tied layer the
                                    embedding's */
    int params;                  /* 0, 1 or 2 (weight, bias), four a direction of an lstm; of a tied
                                    layer 0 */
    int reads;                   /* parameters whose values it reads: params, of a tied layer 1 */
    int lstm;                    /* of an lstm its index among them */
    bool dropped;                /* of a segment whose outputs are not kept */
    bool again;                  /* backward reads what it has computed, so it is computed again */
    double flops;                /* of a forward, a sample */
} nn_node;

typedef struct nn_sequence {
    int context, classes;        /* rows of a window at first */
    int width;                   /* values of a frame */
    bool tokens;                 /* else frames or categories */
    bool by_moment;
    int tables, values;          /* categories and values of a sample; tables 0: no categories */
    uint32_t rows;               /* of a table */
    int node_count, unit_count, param_count, lstm_count;
    bool tied;                   /* the last layer, of the last unit, reads unit 0's parameter */
    bool recomputes;             /* some layer has `again` */
    /* For a stage: it begins with rows of the previous stage, in place of tokens, frames or
       categories; it ends with rows for the next, in place of the head. Layer i of it is layer i
       + offset of the whole network. */
    bool enters, leaves;
    int offset;
    nn_node *nodes;
    int *unit_node;              /* each unit's first node, as a rule the one with the parameters
                                    (frames have none); [unit_count]: node_count */
    tutti_nn_param *params;      /* ready order */
} nn_sequence;

static inline bool nn_takes_tokens(const nn_net *net)
{
    return net->sequence != NULL && net->sequence->tokens;
}

/* Values of a row after the node: after a tile those of all tiles so far. */
static inline int nn_width_after(const nn_node *n)
{
    return n->column + n->out;
}

/* Of a layer in tiles: the first of them, the last. */
static inline bool nn_first_tile(const nn_node *n)
{
    return n->layer.tile == 0;
}

static inline bool nn_last_tile(const nn_node *n)
{
    return n->layer.tiles <= 1 || n->layer.tile + 1 == n->layer.tiles;
}

/* The first layer of the segment that node i is in. */
static inline int nn_segment_first(const nn_sequence *s, int i)
{
    while (i > 0 && !s->nodes[i].layer.segment)
        i--;
    return i;
}

/* The unit's node that has its parameters. */
static inline int nn_unit_own(const nn_sequence *s, int unit)
{
    int i = s->unit_node[unit];
    while (s->nodes[i].params == 0)
        i++;
    return i;
}

/* Ids that a row looks up: its token, or a category a table. The table's rows are the vocabulary,
   or those of all tables one after another. */
static inline size_t nn_row_ids(const nn_sequence *s)
{
    return s->tables > 0 ? (size_t)s->tables : 1;
}
/* Refuses lists that make no network. */
tutti_status tutti_nn_sequence_open(nn_sequence **out, const tutti_layer *layers, int count,
                                    const tutti_nn_task *task, tutti_error *err);
void tutti_nn_sequence_close(nn_sequence *s);
/* Finds what is dropped and computed again, of layers whose segments are known. That is a segment's
   beginning, as far as backward reads. Behind its end there may be a branch, in which nothing
   moves. */
void tutti_nn_sequence_segments(nn_sequence *s);

/* ---- sequence_part.c ---- */

/* Where unit `unit` begins, a branch directly before it included: the first layer of a stage that
   begins there. Refuses with a sentence if none can. */
tutti_status tutti_nn_sequence_cut(const nn_sequence *s, int unit, int *node, tutti_error *err);
/* Units [first, end) as a network of its own, between two such places. */
tutti_status tutti_nn_sequence_part(nn_sequence **out, const nn_sequence *whole, int first, int end,
                                    tutti_error *err);
#endif
