/* exchange.h: gradients through a codec, as the rest of the engine sees it. */
#ifndef TUTTI_ENGINE_EXCHANGE_H
#define TUTTI_ENGINE_EXCHANGE_H
#include "../engine_facility.h"

/* How codecs' messages go (message.c), as `collective` says it. */
typedef enum { TUTTI_WAY_AUTO, TUTTI_WAY_GATHER, TUTTI_WAY_OWNERS } tutti_way;
/* AUTO also where it names an algorithm of sums. */
tutti_way tutti_exchange_way(const char *collective);

/* ---- all is declared: may an option be what it is? ---- */

/* What `collective` says of messages has some to say it of. */
tutti_status tutti_exchange_check_way(const tutti_engine *e, tutti_error *err);
/* codec-hierarchy has a codec to say something of; likewise codec-cost, codec-report and
   codec-checksum. */
tutti_status tutti_exchange_check_team(const tutti_engine *e, tutti_error *err);
tutti_status tutti_exchange_check_cost(const tutti_engine *e, tutti_error *err);
tutti_status tutti_exchange_check_report(const tutti_engine *e, tutti_error *err);
tutti_status tutti_checksum_allowed(const tutti_engine *e, tutti_error *err);

/* ---- teams ---- */

/* Workers of which each of the codec's states is; 1: of each. */
int tutti_exchange_team(const tutti_engine *e);
/* Are a checkpoint's this run's? */
tutti_status tutti_exchange_check_saved_team(const tutti_engine *e, int64_t saved_team,
                                             int saved_by, tutti_error *err);

/* ---- from open to close ---- */

/* The plan is carried out, pieces are cut, the lane has its width. */
tutti_status tutti_engine_exchange_open(tutti_engine *e, tutti_error *err);
void tutti_engine_exchange_close(tutti_engine *e);
/* What it has taken beside its declared state; between steps. */
size_t tutti_exchange_bytes(const tutti_engine *e);
/* Before the first pass of a step, client thread, collective: codec-cost, before the first step of
   this process. */
tutti_status tutti_engine_exchange_weigh(tutti_engine *e, tutti_error *err);
/* A step whose exchange begins, with no view under way. group: its sums are over; this call's.
   say: as codec.h has it; NULL: nobody listens. */
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
/* That step, the last that began, is left out: what codecs keep is as if it had not been. */
void tutti_engine_exchange_left_out(tutti_engine *e, uint64_t step);
/* Will what the codec makes of that step's gradients be measured (codec_report)? */
bool tutti_engine_exchange_measures(const tutti_engine *e, uint64_t step);
/* Which worker owns that element, where parts have owners. */
int tutti_exchange_owner(int tensor, size_t count, size_t element, int workers);
#endif
