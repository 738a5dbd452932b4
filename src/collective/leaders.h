/* leaders.h: the two halves, inside node groups, of a collective through leaders (comm.h:
   tutti_leaders): before and after the leaders communicate. Included by code that does something
   else between the halves (a codec, a mixer, a ring); implemented by leaders.c. Each function is
   collective over a node group and blocks. */
#ifndef TUTTI_COLLECTIVE_LEADERS_H
#define TUTTI_COLLECTIVE_LEADERS_H
#include "tutti/comm.h"
#pragma GCC visibility push(default)

/* Sets the leader's x to the mean of the group's `in`. The other members' x is undefined. */
tutti_status tutti_leaders_take(tutti_leaders *l, tutti_buffer in, tutti_buffer x,
                                tutti_error *err);
/* Sets the x of all members of the group to the leader's. */
tutti_status tutti_leaders_give(tutti_leaders *l, tutti_buffer x, tutti_error *err);
#pragma GCC visibility pop
#endif
