/* logical.h: logical shares: a step whose bits do not depend on the number of workers. Included by
   declare.c and exchange/shares.c; implemented by logical.c, which has the rule. */
#ifndef TUTTI_ENGINE_LOGICAL_H
#define TUTTI_ENGINE_LOGICAL_H
#include "tutti/tutti.h"

#pragma GCC visibility push(default)     /* for modules, not exported by the library */

/* Within declare, once method and codec are declared: adds the facility if the run asks for it
   (engine_options.elastic_shares). TUTTI_ERR_USAGE: method or options do not allow it. */
tutti_status tutti_engine_logical_declare(tutti_engine *e, tutti_error *err);

/* ---- sums over shares of what is no gradient: rounds of a codec (exchange/shares.c) ---- */

/* A vector that each share has, as part of a longer one (tutti_exchange_shares_declare). */
typedef struct tutti_logical_vector {
    float *x;                    /* [count]: a share's, and then the sum */
    size_t first, count;         /* where it is in the longer one */
    int index;                   /* the piece that it belongs to */
    tutti_group *group;          /* all workers */
} tutti_logical_vector;

/* Returns the part of the step's samples that this worker's share in that place has. */
double tutti_logical_weight(const tutti_engine *e, uint64_t step, int at);
/* The gradient of this worker's last share is there: the piece is not finite if that of an earlier
   share was not. */
void tutti_logical_ends(const tutti_engine *e, int piece);
/* v->x is of this worker's share in that place; its shares are added in their order, and the nodes
   of the tree are kept. With the last one v->x := the sum over the shares of all workers, in the
   one tree, which is collective over v->group. On the thread that has the piece. */
tutti_status tutti_logical_add(const tutti_engine *e, const tutti_logical_vector *v, int at,
                               tutti_error *err);

#pragma GCC visibility pop
#endif
