/* sequence.h: networks of tokens. A sample is a window of `context` tokens, a row of a matrix is a token, and the network is a list of layers on rows (embedding, norms,
   linear layers, attention, branches that are joined again) that ends in a linear layer of as many classes as there are tokens. sequence.c infers shapes and units;
   sequence_run.c is the backend.

   Images keep a path of their own (onednn.c): there convolutions run in tiles of 8 images through all layers, and blocked layouts, pooling's workspaces and sums over tiles
   decide its whole shape; here every layer takes all rows, and residual streams decide it. What they share is everything around: nn.c's order of calls, hooks, blocks
   and tree sums, the primitives (dn_op, dn_linear) and the planner of memory.

   A *unit* is a layer with parameters and those that follow it without any; as for images, nn.c needs, runs, announces and is done with units. */
#ifndef TUTTI_NN_SEQUENCE_H
#define TUTTI_NN_SEQUENCE_H
#include "nn_internal.h"

typedef struct nn_node {         /* a layer after shape inference */
    tutti_layer layer;
    int in, out;                 /* values of a row before and after; in of an embedding: 0 */
    int unit;
    int partner;                 /* of a branch its join, of a join its branch; else -1 */
    int param, params;           /* the first of its parameters in the table, how many: 0, 1 or 2 (weight, bias); of a tied layer: the embedding's, 0 */
    int reads;                   /* parameters whose values it reads: params, of a tied layer 1 */
    double flops;                /* of a forward, a sample */
} nn_node;

typedef struct nn_sequence {
    int context, classes;
    int node_count, unit_count, param_count;
    bool tied;                   /* the last layer, of the last unit, reads unit 0's parameter too */
    nn_node *nodes;
    int *unit_node;              /* each unit's first node, the one with the parameters; [unit_count]: node_count */
    tutti_nn_param *params;      /* ready order */
} nn_sequence;

/* Refuses lists that make no network. */
tutti_status tutti_nn_sequence_open(nn_sequence **out, const tutti_layer *layers, int count, const tutti_nn_task *task, tutti_error *err);
void tutti_nn_sequence_close(nn_sequence *s);
#endif
