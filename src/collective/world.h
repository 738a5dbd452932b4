/* world.h: what the launching side asks about transports, and the parts of a world that only the
   engine and servers use: losses, nodes, windows of other ranks. Implemented by world.c. */
#ifndef TUTTI_COLLECTIVE_WORLD_H
#define TUTTI_COLLECTIVE_WORLD_H
#include "tutti/comm.h"
#pragma GCC visibility push(default)

/* Is the spec valid? Checks the transport's name and options, TUTTI_CPU and TUTTI_NODES without
   opening anything: for a launcher, before it starts workers. */
tutti_status tutti_world_check(const char *transport_spec, tutti_error *err);

/* Is this transport simulated (sim): are its ranks not processes, and its time virtual? Then a
   command calls tutti_world_run itself. False for an invalid spec. */
bool tutti_world_simulated(const char *transport_spec);

/* tutti_world_open where the caller has found rank, size and the others (src/elastic), or for a
   transport that is not in the registry (tests). rt NULL: opens a runtime of its own. */
tutti_status tutti_world_open_on(tutti_world **out, const tutti_transport_ops *ops,
                                 const tutti_launch *launch, tutti_runtime *rt, tutti_error *err);

/* The lowest rank known to be dead, or -1; why: its failure report, or how it ended. */
int tutti_world_dead(tutti_world *world, char *why, size_t bytes);

/* Location of a rank: ranks with equal numbers share a NUMA node of a host, the number being the
   lowest rank there. The same on every rank. -1: the transport does not know, or the rank may run
   on several. TUTTI_NODES=N in the environment of all ranks overrides it: N nodes per host, its
   ranks on them in equal blocks, in order. With 1 nodes are ignored. */
int tutti_world_node(const tutti_world *world, int rank);

/* can_survive: would a world over that spec report losses individually and continue after them? It
   loads a plug-in. expel: declares the rank lost for all; does nothing where the transport does not
   survive a loss. Any thread. */
bool tutti_world_can_survive(const char *transport_spec);
void tutti_world_expel(tutti_world *world, int rank, const char *why);

/* A shared window: `bytes` for this rank (may differ by rank); all ranks call in the same order.
   Collectives on this host reduce in it in place, without a copy. It is private memory where the
   transport has no windows. The memory is zeroed, 64-byte aligned and freed with the world. */
tutti_status tutti_world_window(tutti_world *world, const char *name, size_t bytes, void **mine,
                                tutti_error *err);

/* Address of [offset, offset + bytes) in `rank`'s window of that name, whatever this rank's size
   of it. NULL: there is no such window, or it is not shared, or that rank's is smaller. Any
   thread.

   Reads and writes there need messages that order them. They are not counted as sent unless
   sent_there reports them: bytes that `to` has read from a window of this rank, or that this rank
   has written into one of `to`, instead of a message. */
void *tutti_world_there(tutti_world *world, const char *window, size_t offset, size_t bytes,
                        int rank);
void tutti_world_sent_there(tutti_world *world, int to, uint64_t bytes);
#pragma GCC visibility pop
#endif
