/* topology.h: mixing graphs of gossip methods: which members average with each other
   (docs/TOPOLOGY.md).

   A gossip step is x_i <- W_ii x_i + sum_j W_ij x_j. A spec ("ring", "torus(rows=4)", "base(2)",
   "random-ring(seed=7)") and the number of members fix W of every round. So all members derive
   consistent rows, without a message. Graphs are fixed, have a period of rounds, or are redrawn
   in each round from (seed, round).

   Every W of tutti_graph_open is non-negative and doubly stochastic (rows and columns sum to 1),
   so the mean of the models is preserved. Every graph is connected over its period.

   Weights are 1/(degree + 1) where all members have the same degree. Else they are
   Metropolis-Hastings: W_ij = 1/(1 + max(degree_i, degree_j)), the rest at W_ii. The option
   `weights` chooses others. Neighbours that coincide (ring of 2, torus with two rows) count once.
   With one member W is 1, whatever the spec. */
#ifndef TUTTI_TOPOLOGY_H
#define TUTTI_TOPOLOGY_H
#include "options.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* Most members of a graph, and of one whose gap is computed. */
enum { TUTTI_GRAPH_SIZE_MAX = 1 << 16, TUTTI_GRAPH_GAP_MAX = 2048 };

typedef struct tutti_graph tutti_graph; /* constant once open: any thread */

/* Refuses unknown names (suggesting similar ones), bad options and sizes that the family does not
   support, stating which it does. Refuses weights that are not doubly stochastic, naming the row
   or column. file(PATH) reads that file. Allocates. */
tutti_status tutti_graph_open(tutti_graph **out, const char *spec, int n, tutti_error *err);

/* tutti_graph_open for push-sum: only the columns of W must sum to 1 (weights=push on irregular
   graphs; directed edges in a file). */
tutti_status tutti_graph_open_push(tutti_graph **out, const char *spec, int n, tutti_error *err);
void tutti_graph_close(tutti_graph *graph);
int tutti_graph_size(const tutti_graph *graph);

/* Rounds until W repeats. 1: the same in every round. 0: redrawn in each. */
uint64_t tutti_graph_period(const tutti_graph *graph);

/* Most in-neighbours (and most out-neighbours) of any member in any round. */
int tutti_graph_degree(const tutti_graph *graph);

/* Round k as seen by member i. in: the members from which it receives, ascending, with W_i,in.
   out: the members to which it sends, ascending, with W_out,i. Neither contains i itself, whose
   weight is *self. The arrays need space for tutti_graph_degree() entries each. */
void tutti_graph_round(const tutti_graph *graph, uint64_t k, int i, int *in, double *w_in,
                       int *n_in, int *out, double *w_out, int *n_out, double *self);

/* Messages sent in a round by all members together, on average. */
double tutti_graph_messages(const tutti_graph *graph);

/* Does a property hold for all rounds of a period? Of redrawn graphs: for every possible round.
   TUTTI_ERR_USAGE if not; the sentence names a round, a member or a sum that shows it. Any other
   property is refused. Allocates. Properties:
     - "static": period 1.
     - "symmetric": W = its transpose.
     - "regular": all members have the same number of neighbours, in all rounds.
     - "doubly-stochastic", "column-stochastic".
     - "bipartite": two roles, no edge within one.
     - "connected": over the period, along the edges' direction.
     - "exact": a period ends at the mean, to rounding. Not for more than TUTTI_GRAPH_GAP_MAX
       members. */
tutti_status tutti_graph_require(const tutti_graph *graph, const char *property,
                                 tutti_error *err);

/* Does the property hold? false also when there is no memory. */
bool tutti_graph_is(const tutti_graph *graph, const char *property);

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

/* *gap := 1 - the factor by which one period at least shrinks the distance from the mean. The
   factor is the second singular value of the product of the period's W. For static graphs that is
   |lambda_2|, eigenvalues by modulus (all families here are normal matrices). For redrawn graphs:
   1 - the root of lambda_2(E[W^T W]), the root mean square of a round's factor.

   Full matrices: 16 n^2 bytes, O(n^3) and O(period n^2 degree). Refused for more than
   TUTTI_GRAPH_GAP_MAX members, and for weights that are not doubly stochastic. */
tutti_status tutti_graph_gap(const tutti_graph *graph, double *gap, tutti_error *err);

/* w: n x n, row-major: the product of the rounds first, .., first + rounds - 1, W_first+rounds-1
   .. W_first. Up to TUTTI_GRAPH_GAP_MAX members. Allocates. */
tutti_status tutti_graph_product(const tutti_graph *graph, uint64_t first, uint64_t rounds,
                                 double *w, tutti_error *err);

/* Family i, for help and docs; false beyond the end. options: its arguments, NULL if it has
   none. */
bool tutti_graph_family(int i, const char **name, const char **help, const tutti_option **options);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
