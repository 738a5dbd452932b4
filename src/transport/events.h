/* events.h: the list of changes of peers' states that one rank has detected, in order, and the
   majority rule for a run whose network is divided. Implemented in events.c. Used by the
   transports shm and tcp for `events` of transport.h, and by the simulator (src/sim/losses.c).

   No lock and no clock of its own: the owner of a tutti_events holds its lock around each call. */
#ifndef TUTTI_TRANSPORT_EVENTS_H
#define TUTTI_TRANSPORT_EVENTS_H
#include "tutti/transport.h"

/* Most warnings (SILENT, BACK) that are recorded. Later ones are dropped; losses never are. */
enum { TUTTI_EVENTS_WARNINGS = 256 };
typedef struct tutti_events {
    tutti_peer_event *at;        /* [size + TUTTI_EVENTS_WARNINGS], allocated once: one loss per
                                    rank at most */
    int n;                       /* events recorded: at[0..n) */
    int warnings;                /* number of warnings among them */
    uint32_t lost;               /* number of losses among them, which is the epoch */
} tutti_events;
/* Allocates the list for a run of `size` ranks. TUTTI_ERR_MEMORY. */
tutti_status tutti_events_open(tutti_events *e, int size, tutti_error *err);
/* Frees the list. *e may be zeroed. */
void tutti_events_close(tutti_events *e);
/* Appends an event. now_ns: the runtime's clock. why: a sentence, copied by tutti_events_copy. The
   caller records the loss of each rank at most once. */
void tutti_events_record(tutti_events *e, int rank, tutti_peer_change change, int64_t now_ns,
                         const char *why);
/* Copies text for terminals and JSON: control characters become blanks. Text that does not fit
   into capacity bytes (at least 1, the NUL included) is truncated at a whole UTF-8 character. */
void tutti_events_copy(char *to, size_t capacity, const char *from);
/* Copies events number first, first + 1, ... to out, at most `capacity`. Returns how many are
   recorded in total. */
int tutti_events_read(const tutti_events *e, int first, tutti_peer_event *out, int capacity);

/* Returns whether the ranks r with here[r] may continue without the others, which may be alive on
   the other side of a divided network and may have given up these.
   here: [size]: the ranks that are connected with the caller, itself included.
   dead: [size]: the ranks whose death is certain. They are not counted, unless they are in here.
   The rule: more than half of the counted ranks are in here; or exactly half, and the lowest
   counted rank is among them. So of several disjoint sides with the same `dead` at most one
   continues, and of two exactly one. */
bool tutti_events_side_continues(int size, const bool *here, const bool *dead);
#endif
