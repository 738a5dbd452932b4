/* leaders.h: hierarchical collectives, whole or as two halves inside node groups, before and after
   the leaders communicate. The halves are for code that does something else between them (a codec,
   a mixer, a ring). Implemented by leaders.c. */
#ifndef TUTTI_COLLECTIVE_LEADERS_H
#define TUTTI_COLLECTIVE_LEADERS_H
#include "tutti/comm.h"
#pragma GCC visibility push(default)

/* ---- leaders: hierarchical collectives (src/collective/leaders.c). Members are divided into
   node groups of consecutive indexes, as the workers of machines are. The first of each node
   group is its leader. A collective runs inside the node groups, among the leaders, and inside
   again, so that each element is sent between node groups once per group. A value, except for
   `ranks`. ---- */
typedef struct tutti_leaders {
    tutti_group inside;    /* this rank's node group; member 0 leads */
    tutti_group between;   /* the leaders; index -1: not a leader */
    int *ranks;            /* the leaders' ranks, owned */
} tutti_leaders;

/* Node groups of `team` members of g, which divides its size. name: of their contexts. Allocates;
   sends nothing. */
tutti_status tutti_leaders_open(tutti_leaders *l, const tutti_group *g, int team, const char *name,
                                tutti_error *err);

/* Accepts a zeroed one. */
void tutti_leaders_close(tutti_leaders *l);

/* A copy for one job, as tutti_group_keyed; it borrows l's ranks and is not closed. */
tutti_leaders tutti_leaders_keyed(const tutti_leaders *l, uint64_t key, uint32_t turn);

/* tutti_allreduce_weighted over all. The same bits if a node group's size is a power of two. */
tutti_status tutti_leaders_sum(tutti_leaders *l, float weight, tutti_buffer x, tutti_error *err);

/* ---- the two halves: collective over a node group; they block ---- */

/* Sets the leader's x to the mean of the group's `in`. The other members' x is undefined. */
tutti_status tutti_leaders_take(tutti_leaders *l, tutti_buffer in, tutti_buffer x,
                                tutti_error *err);
/* Sets the x of all members of the group to the leader's. */
tutti_status tutti_leaders_give(tutti_leaders *l, tutti_buffer x, tutti_error *err);
#pragma GCC visibility pop
#endif
