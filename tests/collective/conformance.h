/* conformance.h: one suite for ports and collectives, which every transport must pass. A new
   transport adds a file of one line. */
#ifndef TUTTI_TESTS_CONFORMANCE_H
#define TUTTI_TESTS_CONFORMANCE_H
#include "tutti/comm.h"

/* main() of such a file. ops NULL: the registered transport of the spec's name. Ranks are threads
   of tutti_world_run, at most `largest`. Over shared memory that is 17. On the others it is 8
   (strict: 11), which has every shape of group: odd, even, a power of two, one more, one less. What
   lists do with up to 33 members is in schedule_test.c. */
int collective_conformance(const tutti_transport_ops *ops, const char *spec, int largest);

/* What one rank of three, a process or a thread, does of the suite. The world must be fresh. Rank 1
   returns early. */
tutti_status collective_conformance_rank(tutti_world *world, tutti_error *err);
#endif
