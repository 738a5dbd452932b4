/* leaders.h: the parts of a hierarchical collective (comm.h, leaders) inside a node. */
#ifndef TUTTI_COLLECTIVE_LEADERS_H
#define TUTTI_COLLECTIVE_LEADERS_H
#include "tutti/comm.h"
#pragma GCC visibility push(default)

/* Inside node groups only: x of the leader := the mean of `in`; x of the others is undefined. */
tutti_status tutti_leaders_take(tutti_leaders *l, tutti_buffer in, tutti_buffer x,
                                tutti_error *err);
/* Inside node groups only: x of all := the leader's. */
tutti_status tutti_leaders_give(tutti_leaders *l, tutti_buffer x, tutti_error *err);
#pragma GCC visibility pop
#endif
