/* apart.h: events that report when the workers that are left can no longer reach each other in a
   mixing graph. Included by mixer.c, pairs.c and src/method/hop; implemented by apart.c. */
#ifndef TUTTI_GOSSIP_APART_H
#define TUTTI_GOSSIP_APART_H
#include "tutti/method.h"
#include "tutti/method/gossip.h"
#pragma GCC visibility push(default) /* for modules only, not exported: cmake/Install.cmake */

/* Records an event "disconnected" if this worker cannot reach some other worker that is left,
   along the graph's edges from round k on. Of graphs that are drawn in each round it looks at 256
   rounds. lost: [workers]. Client thread; allocates. */
tutti_status tutti_apart_tell(tutti_method *m, const tutti_graph *graph, uint64_t k,
                              const bool *lost, tutti_error *err);
/* Records that event, for a worker `other` that is known to be unreachable. Client thread. */
void tutti_apart_tell_of(tutti_method *m, int other);
#pragma GCC visibility pop
#endif
