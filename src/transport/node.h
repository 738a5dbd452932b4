/* node.h: on which host, and on which NUMA node of it, a rank runs. Implemented in node.c. The
   transports exchange it while they open, for `host` and `node` of transport.h. */
#ifndef TUTTI_TRANSPORT_NODE_H
#define TUTTI_TRANSPORT_NODE_H
#include "tutti/base.h"

#pragma GCC visibility push(default)
/* Returns the number of the NUMA node that has all CPUs on which the calling thread may run; -1 if
   they are of several nodes, or the host does not show it. Looks up one file name for each CPU: for
   use while opening only. */
int tutti_node_here(tutti_runtime *rt);
/* Writes the id of this host: a kernel and a network namespace of it, since processes that share
   both need no network link between them. A random one where the host does not show them, as if
   this rank were alone on its host. */
void tutti_host_here(tutti_runtime *rt, uint8_t id[16]);
#pragma GCC visibility pop
#endif
