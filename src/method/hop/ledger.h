/* ledger.h: one worker's bookkeeping for hop (Luo, Lin, Zhuo, Qian, ASPLOS 2019): its iteration,
   which models of its neighbours have arrived, and how many tokens it holds. It sends nothing,
   stores no model and takes no lock: queues.c does that, and holds its lock around the calls that
   change the ledger. So the paper's rules can be tested alone.

   Worker i receives models from its in-neighbours and sends its own to its out-neighbours.
   Neither list contains worker i. A model is tagged with the iteration at which it is to be
   mixed. */
#ifndef TUTTI_HOP_LEDGER_H
#define TUTTI_HOP_LEDGER_H
#include "tutti/method/gossip.h"
#pragma GCC visibility push(default) /* for modules only, not exported: cmake/Install.cmake */

/* staleness 0: only a model of exactly this iteration is mixed, and models of later iterations are
   stored until then. staleness s > 0: only the newest model of a neighbour is stored, and it is
   mixed if it is at most s iterations old. */
typedef struct tutti_ledger_rules {
    bool acks;                   /* mode notify-ack: a receiver returns a token when it has mixed
                                    our model, and we take one from each receiver before we send
                                    the next. false: tokens as in max_gap */
    bool linear;                 /* with staleness > 0: a newer model weighs more, linearly; else
                                    all weigh as the graph says */
    int64_t max_gap;             /* most iterations ahead of a worker that receives our models;
                                    0: no bound by tokens */
    int64_t backup;              /* in-neighbours that are not waited for */
    int64_t staleness;           /* most iterations that a mixed model may be old */
} tutti_ledger_rules;

typedef struct tutti_ledger_in {
    int rank;
    bool lost;
    bool is_out_neighbour;       /* it receives our models, too */
    double weight;
    int64_t ahead;               /* most iterations that a model of it can be ahead of the next that
                                    is mixed here, last + 1 */
    int64_t *held;               /* [slots]: iteration of the stored model; -1: empty */
    bool *mixed;                 /* [slots]: that model was mixed at least once */
    int slots;                   /* number of model buffers */
    int reading;                 /* slot being mixed; -1: none */
    int64_t newest;              /* highest iteration that it is known to have reached */
} tutti_ledger_in;
typedef struct tutti_ledger_out {
    int rank;
    bool lost;
    int64_t tokens;              /* tokens that we hold from this neighbour */
} tutti_ledger_out;
typedef struct tutti_ledger {
    tutti_ledger_rules rules;
    int rank;
    int64_t iter;                /* current iteration */
    int64_t last;                /* latest iteration whose mix is finished: iter - 1 or iter; during
                                    a jump it may be later */
    double self;                 /* the weight of this worker's own model */
    int n_in, n_out;
    tutti_ledger_in *in;         /* [n_in], by rank */
    tutti_ledger_out *out;       /* [n_out], by rank */
    int copies;                  /* send buffers for our model: as many as a receiver may not have
                                    mixed yet, the current one included, but at most 8 */
    uint64_t dropped;            /* models that arrived and were never mixed */
} tutti_ledger;

/* Opens the ledger of worker `rank` on a static graph, at iteration 0. Preconditions: with acks
   backup and staleness are 0, with backup max_gap is above 0, and staleness is below a max_gap
   above 0. TUTTI_ERR_USAGE: backup leaves some worker no neighbour to wait for; the message says
   what to change. Call tutti_ledger_close also after a failure; it accepts NULL. */
tutti_status tutti_ledger_open(tutti_ledger **out, const tutti_graph *graph, int rank,
                               const tutti_ledger_rules *rules, tutti_error *err);
void tutti_ledger_close(tutti_ledger *l);
/* Upper bound on iteration(ahead) - iteration(behind), from the paper's table. INT64_MAX:
   unbounded. -1: no memory. */
int64_t tutti_ledger_bound(const tutti_graph *graph, const tutti_ledger_rules *rules, int ahead,
                           int behind);

/* Resets the ledger to iteration iter. Precondition: all workers are in iter and no message is in
   flight. */
void tutti_ledger_begin(tutti_ledger *l, int64_t iter);
/* Marks `rank` as lost, as in- and out-neighbour. Returns true if it was a neighbour and not yet
   marked. */
bool tutti_ledger_lose(tutti_ledger *l, int rank);

/* ---- models ---- */

/* Registers a model of iteration iter from in[in]. Returns the slot to store it in.
   TUTTI_LEDGER_DROP: it is too old, or not newer than the stored one. TUTTI_LEDGER_WRONG: no such
   model can arrive, because iter is beyond the bound (in[in].ahead) or, with staleness 0, has come
   before. The ledger does not change then. */
enum { TUTTI_LEDGER_DROP = -1, TUTTI_LEDGER_WRONG = -2 };
int tutti_ledger_put(tutti_ledger *l, int in, int64_t iter);
/* True if iteration `iter` can be mixed with the models that have arrived. */
bool tutti_ledger_may_mix(const tutti_ledger *l, int64_t iter);
/* Chooses what is mixed: slot[a] of in-neighbour a, -1: none, and weight[a]; *own: the weight of
   this worker's model. The weights sum to 1. alone: the own model gets weight 0. *oldest: the age,
   in iterations, of the oldest model chosen; 0 if none is older than iter. The chosen slots stay
   reserved until tutti_ledger_mixed. */
void tutti_ledger_mix(tutti_ledger *l, int64_t iter, bool alone, int *slot, double *weight,
                      double *own, int64_t *oldest);
/* The mix is done: models that are too old for the next iteration are removed. */
void tutti_ledger_mixed(tutti_ledger *l, int64_t iter);

/* ---- tokens ---- */

/* Adds tokens received from out[out]. */
void tutti_ledger_grant(tutti_ledger *l, int out, int64_t tokens);
/* may_take: does this worker hold at least `tokens` tokens of each surviving out-neighbour? take:
   removes them; requires may_take. Without tokens may_take is true and take does nothing. */
bool tutti_ledger_may_take(const tutti_ledger *l, int64_t tokens);
void tutti_ledger_take(tutti_ledger *l, int64_t tokens);
/* Iterations that this worker may skip, at most `most`. It never passes its slowest out-neighbour,
   and the models that it mixes after the jump are here or on their way. 0: it lags by less than
   `trigger`, has no out-neighbour left, or lacks models. Requires max_gap > 0. */
int64_t tutti_ledger_jump(const tutti_ledger *l, int64_t trigger, int64_t most);
/* By how many iterations this worker is known to be ahead of its slowest neighbour. */
int64_t tutti_ledger_ahead(const tutti_ledger *l);
#pragma GCC visibility pop
#endif
