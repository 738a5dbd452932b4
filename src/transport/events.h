/* events.h: what a rank has learnt of its peers, kept in order for `events` of transport.h; and
   which side of a divided run continues. Pure: no lock, no clock. */
#ifndef TUTTI_TRANSPORT_EVENTS_H
#define TUTTI_TRANSPORT_EVENTS_H
#include "tutti/transport.h"

/* Memory is allocated once: for one loss per peer, and this many warnings (SILENT, BACK); later
   warnings are not recorded, losses always are. */
enum { TUTTI_EVENTS_WARNINGS = 256 };
typedef struct tutti_events {
    tutti_peer_event *at;
    int have, warnings;
    uint32_t lost;               /* = the epoch */
} tutti_events;
tutti_status tutti_events_open(tutti_events *e, int size, tutti_error *err);
void tutti_events_close(tutti_events *e);                              /* takes a zeroed one */
/* The caller reports each loss once, and SILENT and BACK alternately. */
void tutti_events_note(tutti_events *e, int rank, tutti_peer_change change, int64_t now_ns,
                       const char *why);
/* Copies text for a terminal and for JSON: truncated at a whole character, control characters
   become blanks. The size of `to` is not 0. */
void tutti_events_copy(char *to, size_t room, const char *from);
int tutti_events_read(const tutti_events *e, int first, tutti_peer_event *out, int room);

/* May the ranks in here[], which are connected, continue without the remaining ones, which may be
   alive elsewhere and have given up these? More than half of the members must be connected; of
   two equal halves it is the one with the lowest member. Members whose death is certain (`dead`)
   are on neither side: they are not counted. Exactly one of two disjoint sides that agree on
   which members are dead continues, at most one of several. */
bool tutti_events_goes_on(int size, const bool *here, const bool *dead);
#endif
