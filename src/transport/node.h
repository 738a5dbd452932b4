/* node.h: on which node of its host (NUMA) a process runs: what transports tell each other at the
   start. */
#ifndef TUTTI_TRANSPORT_NODE_H
#define TUTTI_TRANSPORT_NODE_H
#include "tutti/runtime.h"

#pragma GCC visibility push(default)
/* The node that all the CPUs are of which the calling thread may use; -1: they are of several, or
   the host does not tell. For opening: asks for a name in the file system a CPU. */
int tutti_node_here(tutti_runtime *rt);
#pragma GCC visibility pop
#endif
