/* ledger.h: what one worker of hop knows of iterations: its own, which models have arrived, how
   many tokens it has. Pure bookkeeping (ledger.c): no message, no model, no lock, so that the
   rules of Luo, Lin, Zhuo, Qian, ASPLOS 2019 can be tested on their own. queues.c has the
   messages.

   Worker i receives models from its in-neighbours and sends its own to its out-neighbours;
   neither includes itself here. A model is tagged with the iteration at which it is to be
   mixed. */
#ifndef TUTTI_GOSSIP_LEDGER_H
#define TUTTI_GOSSIP_LEDGER_H
#include "tutti/method/gossip.h"
#pragma GCC visibility push(default) /* for modules only, not exported: cmake/Install.cmake */

/* staleness 0: only a model of exactly this iteration is mixed, so those of later ones are kept
   for later. Above 0 the newest model is used, so only that is kept. */
typedef struct tutti_ledger_rules {
    bool acks;                   /* notify-ack: a token comes when a model has been mixed, and is
                                    taken to send the next; else max_gap applies */
    bool linear;                 /* weights by freshness, under staleness */
    int64_t max_gap;             /* 0: no tokens */
    int64_t backup, staleness;
} tutti_ledger_rules;

typedef struct tutti_ledger_in {
    int rank;
    bool lost;
    bool out;                    /* it is an out-neighbour too */
    double weight;
    int64_t *held;               /* slots: the iteration of the model there; -1: none */
    bool *mixed;                 /* slots: the model has been mixed */
    int slots, reading;          /* the slot that is being mixed; -1: none */
    int64_t newest;              /* the highest tag that has come */
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
    int64_t last;                /* the iteration that was mixed last */
    double self;                 /* the weight of this worker's own model */
    int n_in, n_out;
    tutti_ledger_in *in;         /* ascending */
    tutti_ledger_out *out;       /* ascending */
    int copies;                  /* the most models of this worker that can be under way at once,
                                    while links keep up */
    uint64_t dropped;            /* models that arrived and were never mixed */
} tutti_ledger;

/* For a static graph. TUTTI_ERR_USAGE: the rules are incompatible, or backup leaves some worker
   no neighbour to wait for; the message says what to change. Allocates; close takes NULL and
   frees what a failed open left. */
tutti_status tutti_ledger_open(tutti_ledger **out, const tutti_graph *graph, int rank,
                               const tutti_ledger_rules *rules, tutti_error *err);
void tutti_ledger_close(tutti_ledger *l);
/* The most that `of` can be ahead of `to`, in iterations: the table of the paper. INT64_MAX: no
   bound. Allocates; -1: no memory. */
int64_t tutti_ledger_bound(const tutti_graph *graph, const tutti_ledger_rules *rules, int of,
                           int to);

/* All workers are in that iteration, and no message is under way. */
void tutti_ledger_begin(tutti_ledger *l, int64_t iter);
/* A neighbour is lost, in either direction. true: it is a neighbour, and was not known to be
   lost. */
bool tutti_ledger_lose(tutti_ledger *l, int rank);

/* ---- models ---- */

/* A model has come: returns its slot. TUTTI_LEDGER_DROP: it is too old, or older than the one
   kept. TUTTI_LEDGER_WRONG: no such model can come. in: index of the sender. */
enum { TUTTI_LEDGER_DROP = -1, TUTTI_LEDGER_WRONG = -2 };
int tutti_ledger_put(tutti_ledger *l, int in, int64_t iter);
/* True if iteration `iter` can be mixed with the models that have arrived. */
bool tutti_ledger_may_mix(const tutti_ledger *l, int64_t iter);
/* Chooses what is mixed: slot[a] of in-neighbour a, -1: none, and weight[a]; *own: the weight of
   this worker's model. The weights sum to 1. alone: without its own model, whose weight is 0
   then. *oldest: how many iterations the oldest of them is behind. The slots are kept until
   tutti_ledger_mixed. */
void tutti_ledger_mix(tutti_ledger *l, int64_t iter, bool alone, int *slot, double *weight,
                      double *own, int64_t *oldest);
/* The mix is done: models that are too old for the next iteration are removed. */
void tutti_ledger_mixed(tutti_ledger *l, int64_t iter);

/* ---- tokens ---- */

void tutti_ledger_grant(tutti_ledger *l, int out, int64_t tokens);
/* may_take: has every out-neighbour given that many tokens? take: takes them. */
bool tutti_ledger_may_take(const tutti_ledger *l, int64_t tokens);
void tutti_ledger_take(tutti_ledger *l, int64_t tokens);
/* By how many iterations this worker may jump: not beyond its slowest out-neighbour, nor beyond
   the models that are here or must be on their way. 0: it is behind by less than `trigger`. */
int64_t tutti_ledger_jump(const tutti_ledger *l, int64_t trigger, int64_t most);
/* By how many iterations this worker is known to be ahead of its slowest neighbour. */
int64_t tutti_ledger_ahead(const tutti_ledger *l);
#pragma GCC visibility pop
#endif
