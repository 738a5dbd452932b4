/* ledger.h: what one worker of hop knows of iterations: its own, whose models are here, how many
   tokens it has. Pure bookkeeping (ledger.c): no message, no model, no lock, so that the rules of
   Luo, Lin, Zhuo, Qian, ASPLOS 2019 are tested by themselves. queues.c has the messages.

   Worker i takes models from its in-neighbours and gives its own to its out-neighbours; neither
   counts itself here. A model is tagged with the iteration at which it is to be mixed. */
#ifndef TUTTI_GOSSIP_LEDGER_H
#define TUTTI_GOSSIP_LEDGER_H
#include "tutti/topology.h"
#pragma GCC visibility push(default) /* of rooms, not of the library: cmake/Install.cmake */

/* staleness 0: only a model of the very iteration is mixed, so those of later ones are kept for
   later. Above 0 the newest counts, so only that is kept. */
typedef struct tutti_ledger_rules {
    bool acks;                   /* notify-ack: a token comes when a model has been mixed, and is
                                    taken to send the next; else max_gap is looked at */
    bool linear;                 /* weights by freshness, under staleness */
    int64_t max_gap;             /* 0: no tokens */
    int64_t backup, staleness;
} tutti_ledger_rules;

typedef struct tutti_ledger_in {
    int rank;
    bool lost;
    bool out;                    /* it is an out-neighbour as well */
    double weight;
    int64_t *held;               /* slots: of which iteration the model there is; -1: none */
    bool *mixed;                 /* slots: it has been */
    int slots, reading;          /* the slot that is being mixed; -1: none */
    int64_t newest;              /* the highest tag that has ever come */
} tutti_ledger_in;
typedef struct tutti_ledger_out {
    int rank;
    bool lost;
    int64_t tokens;
} tutti_ledger_out;
typedef struct tutti_ledger {
    tutti_ledger_rules rules;
    int rank;
    int64_t iter;                /* the iteration that this worker is in */
    int64_t last;                /* that was mixed */
    double self;                 /* its weight */
    int n_in, n_out;
    tutti_ledger_in *in;         /* ascending */
    tutti_ledger_out *out;       /* ascending */
    int copies;                  /* most models of its own that can be under way at once, while
                                    links keep up */
    uint64_t dropped;            /* models that came and were never mixed */
} tutti_ledger;

/* Of a static graph. TUTTI_ERR_USAGE: rules that do not go together; backup leaves some worker
   nobody to wait for. Says what mends it. Allocates; close takes NULL and what open left. */
tutti_status tutti_ledger_open(tutti_ledger **out, const tutti_graph *graph, int rank,
                               const tutti_ledger_rules *rules, tutti_error *err);
void tutti_ledger_close(tutti_ledger *l);
/* The most that `of` can be ahead of `to`, in iterations: the table of the paper. INT64_MAX: no
   bound. Allocates; -1: no memory. */
int64_t tutti_ledger_bound(const tutti_graph *graph, const tutti_ledger_rules *rules, int of,
                           int to);

/* All are in that iteration, and nothing is under way. */
void tutti_ledger_begin(tutti_ledger *l, int64_t iter);
/* A neighbour is lost, either way. true: it is one, and was not known to be lost. */
bool tutti_ledger_lose(tutti_ledger *l, int rank);

/* ---- models ---- */

/* A model has come: where it is to be kept. TUTTI_LEDGER_DROP: it is too old, or older than what is
   here. TUTTI_LEDGER_WRONG: no such model can come. in: index of the sender. */
enum { TUTTI_LEDGER_DROP = -1, TUTTI_LEDGER_WRONG = -2 };
int tutti_ledger_put(tutti_ledger *l, int in, int64_t iter);
/* May iteration `iter` be mixed with what is here? */
bool tutti_ledger_may_mix(const tutti_ledger *l, int64_t iter);
/* What is mixed: slot[a] of in-neighbour a, -1: nothing, and weight[a]; *own: this worker's. They
   sum to 1. alone: without its own model, whose weight is 0 then. *oldest: how many iterations the
   oldest of them is behind. The slots are kept until tutti_ledger_mixed. */
void tutti_ledger_mix(tutti_ledger *l, int64_t iter, bool alone, int *slot, double *weight,
                      double *own, int64_t *oldest);
/* That is done: what is too old for the next iteration goes. */
void tutti_ledger_mixed(tutti_ledger *l, int64_t iter);

/* ---- tokens ---- */

void tutti_ledger_grant(tutti_ledger *l, int out, int64_t tokens);
/* Has every out-neighbour given so many? / They are taken. */
bool tutti_ledger_may_take(const tutti_ledger *l, int64_t tokens);
void tutti_ledger_take(tutti_ledger *l, int64_t tokens);
/* By how many iterations this worker may jump: not beyond its slowest out-neighbour, nor beyond
   what is here or must be on its way. 0: it is not behind by `trigger`. */
int64_t tutti_ledger_jump(const tutti_ledger *l, int64_t trigger, int64_t most);
/* By how many iterations this worker is ahead of its slowest neighbour, as far as it knows. */
int64_t tutti_ledger_ahead(const tutti_ledger *l);
#pragma GCC visibility pop
#endif
