/* node.h: on which NUMA node of its host a rank runs. Implemented in node.c. The transports shm,
   tcp and mpi exchange it while they open, for `node` of transport.h. */
#ifndef TUTTI_TRANSPORT_NODE_H
#define TUTTI_TRANSPORT_NODE_H
#include "tutti/runtime.h"

#pragma GCC visibility push(default)
/* Returns the number of the NUMA node that has all CPUs on which the calling thread may run; -1 if
   they are of several nodes, or the host does not show it. Looks up one file name for each CPU: for
   use while opening only. */
int tutti_node_here(tutti_runtime *rt);
#pragma GCC visibility pop
#endif
