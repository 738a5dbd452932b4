/* topology.h: who averages with whom: mixing graphs of gossip methods (topology.md, part A).

   A gossip step is x_i <- W_ii x_i + sum_j W_ij x_j. A spec ("ring", "torus(rows=4)", "random(degree=4,seed=7)") and the number of
   members fix W of every round, so that all members derive their rows alike, without a message. Every graph here is connected over its
   period and every W is non-negative and doubly stochastic (rows and columns sum to 1), so the mean of the models is kept.
   Weights: 1/(degree + 1) where all members have the same degree, else Metropolis-Hastings: W_ij = 1/(1 + max(degree_i, degree_j)), the rest
   at W_ii. Neighbours that coincide (ring of 2, torus with two rows) count once. With one member W is 1, whatever the spec. */
#ifndef TUTTI_TOPOLOGY_H
#define TUTTI_TOPOLOGY_H
#include "options.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

enum { TUTTI_GRAPH_SIZE_MAX = 1 << 16, TUTTI_GRAPH_GAP_MAX = 2048 }; /* members of a graph; of one whose gap is asked for */

typedef struct tutti_graph tutti_graph; /* constant once open: any thread */
/* Refuses unknown names (with near ones), bad options and sizes that the family cannot have, saying which would do. Allocates. */
tutti_status tutti_graph_open(tutti_graph **out, const char *spec, int n, tutti_error *err);
void tutti_graph_close(tutti_graph *graph);
int tutti_graph_size(const tutti_graph *graph);
uint64_t tutti_graph_period(const tutti_graph *graph);  /* rounds until W repeats; 1: the same in every round */
int tutti_graph_degree(const tutti_graph *graph);       /* most in-neighbours (and most out-neighbours) of any member in any round */
/* Round k as member i lives it. in: whose values it takes, ascending, with W_i,in; out: who takes its, ascending, with W_out,i; neither holds i
   itself, whose weight is *self. Room for tutti_graph_degree() each. */
void tutti_graph_round(const tutti_graph *graph, uint64_t k, int i, int *in, double *w_in, int *n_in, int *out, double *w_out, int *n_out, double *self);
/* A fact of all rounds of a period: "static" (period 1), "symmetric" (W = its transpose), "regular" (all members have the same number of neighbours),
   "doubly-stochastic", "bipartite" (two roles, no edge within one), "connected" (over the period), "exact" (a period ends at the mean, to rounding; false for more
   than TUTTI_GRAPH_GAP_MAX members). Any other word: false. Allocates; false when there is no memory. */
bool tutti_graph_is(const tutti_graph *graph, const char *property);
/* Two roles for methods in which one asks and one answers (ad-psgd.md): who asks waits only for who never waits, so nobody can wait in a ring. Members of odd
   index ask; where the edges between odd and even do not connect everybody, breadth-first levels from member 0 decide, which connect any connected
   graph and are its two colours if it is bipartite. Edges of all rounds count, in either direction; those within a role are left out.
   asks: size. *left_out: how many edges that is. Allocates. */
tutti_status tutti_graph_roles(const tutti_graph *graph, bool *asks, int *left_out, tutti_error *err);
/* Whom member i may meet: its neighbours of all rounds, in either direction, ascending, of the other role only. partner: room for all other members. Allocates. */
tutti_status tutti_graph_partners(const tutti_graph *graph, const bool *asks, int i, int *partner, int *partners, tutti_error *err);
/* 1 - the factor by which one period shrinks the distance from the mean at least: the second singular value of the product of the period's W. For static
   graphs that is |lambda_2|, eigenvalues by modulus (all families here are normal matrices). Full matrices: 16 n^2 bytes, O(n^3). */
tutti_status tutti_graph_gap(const tutti_graph *graph, double *gap, tutti_error *err);

/* Family i of the table, for help and docs; false beyond the end. options: its arguments, NULL if it has none. */
bool tutti_graph_family(int i, const char **name, const char **help, const tutti_option **options);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
