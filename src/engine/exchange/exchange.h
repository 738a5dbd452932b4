/* exchange.h: gradients through a codec, as the rest of the engine sees it. */
#ifndef TUTTI_ENGINE_EXCHANGE_H
#define TUTTI_ENGINE_EXCHANGE_H
#include "../engine_facility.h"
#pragma GCC visibility push(default)

/* The route of codecs' messages (message.c), as the option `collective` sets it. */
typedef enum { TUTTI_ROUTE_AUTO, TUTTI_ROUTE_GATHER, TUTTI_ROUTE_OWNERS } tutti_route;
/* AUTO also if `collective` names an algorithm of sums. */
tutti_route tutti_exchange_route(const char *collective);

/* ---- after declare(): checks of options ---- */

/* A route of messages needs a codec that sends messages. */
tutti_status tutti_exchange_check_route(const tutti_engine *e, tutti_error *err);
/* codec-hierarchy needs a codec of gradients; likewise codec-cost, codec-report and
   codec-checksum. */
tutti_status tutti_exchange_check_team(const tutti_engine *e, tutti_error *err);
tutti_status tutti_exchange_check_cost(const tutti_engine *e, tutti_error *err);
tutti_status tutti_exchange_check_report(const tutti_engine *e, tutti_error *err);
tutti_status tutti_checksum_allowed(const tutti_engine *e, tutti_error *err);

/* ---- node groups ---- */

/* The number of workers that share each of the codec's states; 1: each has its own. */
int tutti_exchange_team(const tutti_engine *e);
/* Does a checkpoint have the same groups as this run? */
tutti_status tutti_exchange_check_saved_team(const tutti_engine *e, int64_t saved_team,
                                             int saved_by, tutti_error *err);

/* ---- from open to close ---- */

/* After memory was allocated, pieces were split, and the lane's width was set. */
tutti_status tutti_engine_exchange_open(tutti_engine *e, tutti_error *err);
void tutti_engine_exchange_close(tutti_engine *e);
/* Bytes allocated in addition to its declared state; between steps. */
size_t tutti_exchange_bytes(const tutti_engine *e);
/* Before the first pass of a step, client thread, collective: codec-cost, before the first step of
   this process. */
tutti_status tutti_engine_exchange_weigh(tutti_engine *e, tutti_error *err);
/* A step whose exchange begins, with no view in progress. group: for the codec's sums, which are
   over when the call returns; for this call only. say: as in codec.h; NULL: messages are
   dropped. */
typedef struct tutti_engine_begun {
    tutti_engine *e;
    tutti_group *group;
    uint64_t step, epoch;
    double lr;
    void (*say)(void *with, const char *kind, const char *text);
    void *with;
} tutti_engine_begun;
/* Collective; client thread, or the one that exchanges. */
tutti_status tutti_engine_exchange_begin(const tutti_engine_begun *begun, tutti_error *err);
/* The last step that began is skipped: restores the codecs' states to those before it. */
void tutti_engine_exchange_left_out(tutti_engine *e, uint64_t step);
/* Will that step's exchange be measured for the codec report? */
bool tutti_engine_exchange_measures(const tutti_engine *e, uint64_t step);
/* The worker that owns an element, if messages go by owners of shards. */
int tutti_exchange_owner(int tensor, size_t count, size_t element, int workers);
#pragma GCC visibility pop
#endif
