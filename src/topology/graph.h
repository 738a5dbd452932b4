/* graph.h: roles, partners and products of a graph, as pairs and the command use them. Implemented
   by roles.c and gap.c. */
#ifndef TUTTI_TOPOLOGY_GRAPH_H
#define TUTTI_TOPOLOGY_GRAPH_H
#include "tutti/method/gossip.h"
#pragma GCC visibility push(default)

/* Two roles for methods in which one member asks and one answers (ad-psgd). A member that asks
   waits only for one that never waits, so no ring of members can wait for each other.

   Members of odd index ask. Where the edges between odd and even do not connect all members,
   breadth-first levels from member 0 decide. Those connect any connected graph, and they are its
   two colours if it is bipartite. Edges of all rounds count, in either direction; those within a
   role are not used. asks: one entry per member. *left_out: the number of unused edges.
   Allocates. */
tutti_status tutti_graph_roles(const tutti_graph *graph, bool *asks, int *left_out,
                               tutti_error *err);

/* The members with which member i may average: its neighbours of all rounds, in either direction,
   ascending. If there are roles (asks is not NULL) only those of the other role. partner: an
   array with space for all other members. Allocates. */
tutti_status tutti_graph_partners(const tutti_graph *graph, const bool *asks, int i, int *partner,
                                  int *partners, tutti_error *err);

/* w: n x n, row-major: the product of the rounds first, .., first + rounds - 1, W_first+rounds-1
   .. W_first. Up to TUTTI_GRAPH_GAP_MAX members. Allocates. */
tutti_status tutti_graph_product(const tutti_graph *graph, uint64_t first, uint64_t rounds,
                                 double *w, tutti_error *err);
#pragma GCC visibility pop
#endif
