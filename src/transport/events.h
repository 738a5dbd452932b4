/* events.h: what a rank has learnt of its peers, kept in order for `events` of transport.h; and
   which side of a divided run goes on. Pure: no lock, no clock. */
#ifndef TUTTI_TRANSPORT_EVENTS_H
#define TUTTI_TRANSPORT_EVENTS_H
#include "tutti/transport.h"

/* Room is taken once: a loss a peer, and so many warnings (SILENT, BACK); later warnings are not
   noted, losses always are. */
enum { TUTTI_EVENTS_WARNINGS = 256 };
typedef struct tutti_events {
    tutti_peer_event *at;
    int have, warnings;
    uint32_t lost;               /* = the epoch */
} tutti_events;
tutti_status tutti_events_open(tutti_events *e, int size, tutti_error *err);
void tutti_events_close(tutti_events *e);                              /* takes a zeroed one */
/* The caller says each loss once, and SILENT and BACK in turn. */
void tutti_events_note(tutti_events *e, int rank, tutti_peer_change change, int64_t now_ns,
                       const char *why);
/* Words for a terminal and for JSON: cut at a whole character, control characters become blanks.
   room is not 0. */
void tutti_events_copy(char *to, size_t room, const char *from);
int tutti_events_read(const tutti_events *e, int first, tutti_peer_event *out, int room);

/* May the ranks that here[] says are together go on without those of `doubtful`, who may be alive
   elsewhere and think the same of us? More than half of the members must be together; of two equal
   halves it is the one with the lowest member. Members whose death is certain (`dead`) are on
   nobody's side: they are not counted. Exactly one of two disjoint sides that agree on who is dead
   goes on, at most one of several. */
bool tutti_events_goes_on(int size, const bool *here, const bool *dead);
#endif
