/* node.h: on which NUMA node of its host a process runs: exchanged by transports at the start. */
#ifndef TUTTI_TRANSPORT_NODE_H
#define TUTTI_TRANSPORT_NODE_H
#include "tutti/runtime.h"

#pragma GCC visibility push(default)
/* The node of all the CPUs that the calling thread may use; -1: they are of several nodes, or the
   host does not show it. To be called while opening: it looks up a name in the file system per
   CPU. */
int tutti_node_here(tutti_runtime *rt);
#pragma GCC visibility pop
#endif
