/* match_internal.h: functions of match.c that match_ends.c uses. No other file includes it. The
   carrier's lock is held around every call. */
#ifndef TUTTI_TRANSPORT_MATCH_INTERNAL_H
#define TUTTI_TRANSPORT_MATCH_INTERNAL_H
#include "match.h"

/* Completes op's request, unless it was cancelled, and frees op. rank: the rank that caused a
   failure; -1: none. */
void tutti_match_complete(tutti_match *m, match_op *op, tutti_status status, int rank);
/* Matches a receive that is in no list with an unexpected message, or else inserts it into the
   posted receives, in the order of posting. */
void tutti_match_offer(tutti_match *m, match_op *op);
/* Frees a message and its payload, and removes it from its peer's lists. It must not be in the
   queue. */
void tutti_match_drop(tutti_match *m, match_message *message);
#endif
