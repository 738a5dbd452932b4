/* apart.h: whether those that are left still have a way to each other in a graph, for the
   facilities that average along one. */
#ifndef TUTTI_GOSSIP_APART_H
#define TUTTI_GOSSIP_APART_H
#include "tutti/method.h"
#include "tutti/topology.h"
#pragma GCC visibility push(default) /* of rooms, not of the library: cmake/Install.cmake */

/* An event of kind "disconnected" if this worker averages with some of those that are left no
   longer, in no round from k on, nor by way of others. Of graphs drawn anew that is asked of 256
   rounds.
   lost: workers. Client thread; allocates. */
tutti_status tutti_apart_tell(tutti_method *m, const tutti_graph *graph, uint64_t k,
                              const bool *lost, tutti_error *err);
/* The same of one that is known to be out of reach. */
void tutti_apart_tell_of(tutti_method *m, int other);
#pragma GCC visibility pop
#endif
