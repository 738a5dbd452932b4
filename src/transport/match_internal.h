/* match_internal.h: what match.c and match_ends.c share. */
#ifndef TUTTI_TRANSPORT_MATCH_INTERNAL_H
#define TUTTI_TRANSPORT_MATCH_INTERNAL_H
#include "match.h"

/* The request of a send or receive ends, and with it our state of it. rank: the one that caused
   it, or -1. */
void tutti_match_complete(tutti_match *m, match_op *op, tutti_status status, int rank);
/* A receive that has no message, and is in no queue: to the unexpected ones, else posted, in its
   place by posting. */
void tutti_match_offer(tutti_match *m, match_op *op);
void tutti_match_drop(tutti_match *m, match_message *message);
#endif
