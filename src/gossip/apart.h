/* apart.h: checks whether the surviving workers can still reach each other in a mixing graph, for
   the facilities that average along one. */
#ifndef TUTTI_GOSSIP_APART_H
#define TUTTI_GOSSIP_APART_H
#include "tutti/method.h"
#include "tutti/method/gossip.h"
#pragma GCC visibility push(default) /* for modules only, not exported: cmake/Install.cmake */

/* Emits a "disconnected" event if some surviving worker is unreachable in the mixing graph from
   round k on. Random graphs are checked for 256 rounds. lost: workers. Client thread;
   allocates. */
tutti_status tutti_apart_tell(tutti_method *m, const tutti_graph *graph, uint64_t k,
                              const bool *lost, tutti_error *err);
/* Emits the same event about one worker that is known to be unreachable. */
void tutti_apart_tell_of(tutti_method *m, int other);
#pragma GCC visibility pop
#endif
