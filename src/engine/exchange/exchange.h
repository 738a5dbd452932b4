/* exchange.h: gradients that go through a codec, as the rest of the engine uses it. Included by
   engine_internal.h. Implemented by the files of src/engine/exchange; exchange.c explains the
   whole. The state is struct tutti_engine_exchange; without a codec of gradients these functions
   do nothing unless noted.

   A "shard" here is a worker's part of one tensor, whose messages it decodes, sums and encodes
   again ("owners"). */
#ifndef TUTTI_ENGINE_EXCHANGE_H
#define TUTTI_ENGINE_EXCHANGE_H
#include "../engine_facility.h"
#pragma GCC visibility push(default)

/* The route of a codec's messages (message.c). GATHER: each worker sends its message to all.
   OWNERS: the workers own shards of each tensor, whose sums they encode again. AUTO: the codec
   and the number of workers decide. */
typedef enum { TUTTI_ROUTE_AUTO, TUTTI_ROUTE_GATHER, TUTTI_ROUTE_OWNERS } tutti_route;
/* Returns the route that the option `collective` names ("allgather", "alltoall"); AUTO for any
   other value, such as an algorithm of sums. */
tutti_route tutti_exchange_route(const char *collective);

/* After declare(): TUTTI_ERR_USAGE if collective=allgather|alltoall or an option codec-... does not
   fit what is exchanged (check.c). */
tutti_status tutti_exchange_check_options(const tutti_engine *e, tutti_error *err);

/* ---- node groups (team.c) ---- */

/* Returns the number of workers that share each of the codec's states; 1: each worker has its own,
   or there is no codec. */
int tutti_exchange_team(const tutti_engine *e);
/* Checks that the checkpoint of a run with node groups of `saved_team` workers, saved by
   `saved_by` workers, fits this run's groups. TUTTI_ERR_USAGE. */
tutti_status tutti_exchange_check_saved_team(const tutti_engine *e, int64_t saved_team,
                                             int saved_by, tutti_error *err);

/* ---- logical shares (shares.c), for logical.c ---- */

/* Returns why what is exchanged cannot be encoded by share, "it would ..."; NULL: it can. *mend:
   what mends it. */
const char *tutti_exchange_shares_against(const tutti_engine *e, const char **mend);
/* Within declare(): declares memory. *width: the most elements of a round of the whole model. */
tutti_status tutti_exchange_shares_declare(tutti_engine *e, size_t *width, tutti_error *err);
/* p->g has the gradient of this worker's share in place `at`, which is not its last one: encodes
   it, and keeps what it adds to the sums over shares. Client thread. */
tutti_status tutti_exchange_share(tutti_engine *e, tutti_piece *p, int at, tutti_error *err);

/* Whether shares are encoded. From there on. */
bool tutti_exchange_has_shares(const tutti_engine *e);
/* Steps as a whole (commit.c). exchanged: all pieces of the step are; waits until they are on all
   workers, so that none commits a step that another cannot give the states of. found: whether the
   step will be skipped is known. over: it was made. undo: the states are those of the step before
   again. */
tutti_status tutti_exchange_shares_exchanged(tutti_engine *e, tutti_error *err);
void tutti_exchange_shares_found(tutti_engine *e, bool bad);
void tutti_exchange_shares_over(tutti_engine *e);
void tutti_exchange_shares_undo(tutti_engine *e);
/* As `beside` of facilities, for states of the codec. */
void *tutti_exchange_shares_beside(const tutti_engine *e, const void *memory, uint64_t *step);

/* ---- from open to close ---- */

/* Allocates the memory of the exchanging jobs. Call it when declared memory is allocated, pieces
   are split and the lane's width is set. */
tutti_status tutti_engine_exchange_open(tutti_engine *e, tutti_error *err);
/* Frees everything, and sets e->sums.exchange to NULL. */
void tutti_engine_exchange_close(tutti_engine *e);
/* Returns the bytes allocated in addition to declared state; between steps. */
size_t tutti_exchange_bytes(const tutti_engine *e);
/* Before the first step of this process: measures and reports what codec-cost asks for, and
   decides whether the codec is used. Later calls do nothing. Collective; client thread. */
tutti_status tutti_engine_exchange_weigh(tutti_engine *e, tutti_error *err);
/* The step of an exchange that begins. */
typedef struct tutti_engine_begun {
    tutti_engine *e;
    tutti_group *group;          /* for the codec's sums; used within the call only */
    uint64_t step, epoch;
    double lr;
    void (*say)(void *with, const char *kind, const char *text); /* receives the codec's messages,
                                                                    as in codec.h; NULL: they are
                                                                    dropped */
    void *with;                  /* for `say` */
} tutti_engine_begun;
/* Begins the exchange of a step, while no tensor is being exchanged. Collective; the client
   thread, or the thread that exchanges whole steps (late.c). */
tutti_status tutti_engine_exchange_begin(const tutti_engine_begun *begun, tutti_error *err);
/* The step whose exchange began last is skipped: restores the codec's states to those from its
   beginning. */
void tutti_engine_exchange_left_out(tutti_engine *e, uint64_t step);
/* While a displacement is exchanged on another thread (modes/displacement.c) no step of the codec
   may begin.
   hold: steps that would begin from now on are put into kept[most] instead. `most` is at least 1.
   release: begins them, in their order, and holds no more. Collective. Client thread; a second
   release does nothing. */
void tutti_engine_exchange_hold(tutti_engine *e, tutti_engine_begun *kept, int most);
tutti_status tutti_engine_exchange_release(tutti_engine *e, tutti_error *err);
/* tutti_exchange_all of a range: p->g, which is element p->first of a displacement of the whole
   model, := the unweighted mean over the members of p->group. Blocks. Any thread, one at a
   time. */
tutti_status tutti_engine_exchange_displacement(tutti_engine *e, tutti_piece *p,
                                                tutti_error *err);
/* Returns whether the codec report measures that step's exchange. */
bool tutti_engine_exchange_measures(const tutti_engine *e, uint64_t step);
/* Returns the worker that owns an element of a tensor where messages go by owners of shards, among
   this run's number of workers. After declare(). */
int tutti_exchange_owner(const tutti_engine *e, int tensor, size_t element);
#pragma GCC visibility pop
#endif
