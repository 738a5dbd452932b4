/* conformance.h: what every transport must carry: one suite for ports and collectives. A new transport adds a file of one line. */
#ifndef TUTTI_TESTS_CONFORMANCE_H
#define TUTTI_TESTS_CONFORMANCE_H
#include "tutti/comm.h"
/* main() of such a file. ops NULL: the registered transport of the spec's name. Ranks are threads of tutti_world_run. */
int collective_conformance(const tutti_transport_ops *ops, const char *spec);
/* What one rank of three, a process or a thread, does of the suite; the world must be fresh. Rank 1 returns early. */
tutti_status collective_conformance_rank(tutti_world *world, tutti_error *err);
#endif
