/* noted.h: the record of what this rank is in (runtime/activity.h), for modules above. Implemented
   in noted.c. */
#ifndef TUTTI_COLLECTIVE_NOTED_H
#define TUTTI_COLLECTIVE_NOTED_H
#include "runtime/activity.h"
#include "tutti/comm.h"
#pragma GCC visibility push(default)

/* The record of this world's rank, which ends with the world. NULL: it has none. */
tutti_activity *tutti_world_activity(const tutti_world *world);
/* Another number of its run, which worlds of several sizes have in common. */
void tutti_world_run_number(tutti_world *world, uint64_t run);
#pragma GCC visibility pop
#endif
