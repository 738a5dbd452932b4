/* stragglar.h: proof and length of schedules, as the method stragglar asks for them. Implemented by
   choice.c and stragglar.c. */
#ifndef TUTTI_COLLECTIVE_STRAGGLAR_H
#define TUTTI_COLLECTIVE_STRAGGLAR_H
#include "tutti/comm.h"
#pragma GCC visibility push(default)

/* Generates the schedules of all members of such an all-reduce and verifies them
   (src/collective/schedule.h). count: number of elements, some thousands at most. Allocates. */
tutti_status tutti_algorithm_prove(const char *algorithm, int size, size_t count,
                                   tutti_error *err);

/* Number of rounds of "stragglar" over `size` members after the straggler has arrived, counted on
   its schedule. greedy: of "stragglar-greedy". 0: no memory. About as much work as generating one
   member's schedule. Allocates. */
int tutti_stragglar_rounds(int size, bool greedy);
#pragma GCC visibility pop
#endif
