/* gossip.h: decentralised averaging of models, with some of the other workers rather than with all
   at once. These are facilities (method.h), and a gossip method declares one of them:

     mixer       Each worker averages its model with its neighbours in a graph, once per round.
     averager    A model is averaged with all, or with neighbours, during the client's work.
     pairs       A model is averaged with one other worker at a time, during that work.

   Each is declared within the method's declare(). From then on the engine opens, quiesces, saves
   and closes it: the method's hooks need not do that. */
#ifndef TUTTI_METHOD_GOSSIP_H
#define TUTTI_METHOD_GOSSIP_H
#include "../method.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* ---- mixing graphs of gossip methods: which members average with each other (docs/TOPOLOGY.md).

   A gossip step is x_i <- W_ii x_i + sum_j W_ij x_j. A spec ("ring", "torus(rows=4)", "base(2)",
   "random-ring(seed=7)") and the number of members fix W of every round. So all members derive
   consistent rows, without a message. Graphs are fixed, have a period of rounds, or are redrawn
   in each round from (seed, round).

   Every W of tutti_graph_open is non-negative and doubly stochastic (rows and columns sum to 1),
   so the mean of the models is preserved. Every graph is connected over its period.

   Weights are 1/(degree + 1) where all members have the same degree. Else they are
   Metropolis-Hastings: W_ij = 1/(1 + max(degree_i, degree_j)), the rest at W_ii. The option
   `weights` chooses others. Neighbours that coincide (ring of 2, torus with two rows) count once.
   With one member W is 1, whatever the spec. ---- */

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
     - "exact": a period ends at the mean, to rounding. Up to TUTTI_GRAPH_GAP_MAX members. */
tutti_status tutti_graph_require(const tutti_graph *graph, const char *property, tutti_error *err);

/* Does the property hold? false also when there is no memory. */
bool tutti_graph_is(const tutti_graph *graph, const char *property);

/* *gap := 1 - the factor by which one period at least shrinks the distance from the mean. The
   factor is the second singular value of the product of the period's W. For static graphs that is
   |lambda_2|, eigenvalues by modulus (all families here are normal matrices). For redrawn graphs:
   1 - the root of lambda_2(E[W^T W]), the root mean square of a round's factor.

   Full matrices: 16 n^2 bytes, O(n^3) and O(period n^2 degree). Refused for more than
   TUTTI_GRAPH_GAP_MAX members, and for weights that are not doubly stochastic. */
tutti_status tutti_graph_gap(const tutti_graph *graph, double *gap, tutti_error *err);

/* Family i, for help and docs; false beyond the end. options: its arguments; NULL: none. */
bool tutti_graph_family(int i, const char **name, const char **help, const tutti_option **options);

/* ---- mixer ---- */

/* A push-sum weight in units of 1 / TUTTI_MASS_ONE. Those of up to 65536 workers fit. */
typedef int64_t tutti_mass;
#define TUTTI_MASS_ONE ((tutti_mass)1 << 44)
static inline double tutti_mass_real(tutti_mass mass)
{
    return (double)mass / (double)TUTTI_MASS_ONE;
}

/* Neighbour averaging over a graph (src/gossip/mixer.c).

   encode: where the run has a codec, it encodes models as differences to public copies p
   (src/gossip/mixer_codec.c: CHOCO). The copies become state: one model per neighbour, and the
   worker's own. A round then computes x := u + gamma sum_j W_ij (p_j - p_i). With gamma 1 and a
   lossless codec that equals the round without a codec, except for rounding. TUTTI_ERR_USAGE: a
   graph that changes; a codec that needs all workers or does not contract; gamma without a codec.
   Without `encode` nothing is refused, and the mixer does not use the codec.

   team: the mean of a group's models is mixed, and all of the group receive the result. A round
   with `graph` NULL has the bits of the complete graph's, sends 2 (n - 1) / n models per worker
   instead of n - 1, and needs all workers. Groups, and graph NULL, exclude push, encode, cross
   and TUTTI_FAULT_TOLERANT. */
typedef struct tutti_mixer tutti_mixer;
typedef struct tutti_mixer_options {
    const char *graph;                   /* a spec as above, over the groups. NULL: all-reduce */
    bool push;                           /* push-sum: only W's columns must sum to 1 */
    bool encode;                         /* see above */
    bool ahead;                          /* tutti_mix_start uses a separate thread, unless the model
                                            is too small to benefit or the run has no lanes */
    double gamma;                        /* 0: derived from the codec's contraction */
    bool cross;                          /* keeps neighbours' models, for cross-gradients: below */
    int team;                            /* that many workers of consecutive ranks are one member of
                                            the graph, represented by the first; 0: each worker is a
                                            member */
    bool by_tensor;                      /* each tensor is a separate message or sum */
} tutti_mixer_options;
/* Rows of a method's option table for graph and gamma. */
#define TUTTI_MIXER_GRAPH(at) \
    { "graph", TUTTI_SPEC, at, 0, 0, 0, "ring", \
      "which workers average with each other; `tutti topology` lists the graphs" }
#define TUTTI_MIXER_GAMMA(at, when) \
    { "gamma", TUTTI_REAL, at, 0, 0, 1, NULL, \
      "with codec: how far a round goes towards the neighbours' public copies; 0: by what the " \
      "codec keeps", when }
/* Within declare(). Refuses the graph; its receive buffers become state. */
tutti_status tutti_mixer_declare(tutti_mixer **out, tutti_method *m, tutti_plan *plan,
                                 const tutti_mixer_options *options, tutti_error *err);
/* x := W_ii u + sum_j W_ij u_j with W of round k. x may be u; otherwise they must not overlap.
   The sum is as in a collective: products are rounded, then added in the tree over ascending
   rank. So the complete graph gives tutti_average's bits. Blocks for round k's neighbours only.

   mass: NULL, or for a push mixer this worker's push-sum weight m_i, initially TUTTI_MASS_ONE. Then
   u_i is the de-biased model, numerator / weight, and so is the result: x := sum_j P_ij m_j u_j /
   m_i', m_i' = sum_j P_ij m_j, P = W of round k. The weight is split among the out-neighbours at
   once: *mass is reduced to the part that this worker keeps (of u), and the received weights are
   added at the end. The sum over all workers and all messages in flight is exactly constant.

   All members mix the same rounds in the same order. Under TUTTI_FAULT_TOLERANT a lost neighbour
   is excluded, and its weight is added to W_ii. An event of kind "disconnected" reports when the
   graph becomes disconnected. Client thread. */
tutti_status tutti_mix(tutti_mixer *mixer, uint64_t k, const float *u, float *x, tutti_mass *mass,
                       tutti_error *err);
/* tutti_mix in two halves; at most one mix at a time. Between them u must not change, x belongs
   to the mixer, and *mass is the kept part; after mix_wait it is complete. mix_wait returns
   TUTTI_OK at once if nothing was started. When the run is quiescent (tutti.h) a started mix has
   received everything. So x and *mass can be saved with u, and mix_wait has nothing left to do. */
void tutti_mix_start(tutti_mixer *mixer, uint64_t k, const float *u, float *x, tutti_mass *mass);
tutti_status tutti_mix_wait(tutti_mixer *mixer, tutti_error *err);

/* ---- averager ---- */

/* A model that is averaged concurrently with the computation, in delta form
   (src/gossip/averager.c): no gradient is lost, and the sum of the models is preserved. Shared by
   methods that differ only in the partners and times of averaging.

   graph: spec of a graph: averages with the neighbours; NULL: with all, by an all-reduce. rounds
   0: the method requests rounds of its service that runs tutti_averager_average, equally often on
   all workers. Required with graph NULL. rounds > 0 (under TUTTI_ASYNC): that many rounds are due
   for every `workers` gradients of the run. Four services of the method make them: they run tell
   (which must be notified of losses: tutti_service), beat, mix and average. A round is made by
   all workers or by none. A round is skipped if it would be more than `ahead` x `rounds` ahead of
   those that the slowest member has made (figures `rounds`, `rounds_left_out`).
   services: the indexes of tell, beat, mix and average; where rounds is 0 only the last is used.
   Both forms continue after losses. */
typedef struct tutti_averager tutti_averager;
tutti_status tutti_averager_declare(tutti_averager **out, tutti_method *m, tutti_plan *plan,
                                    const char *graph, int64_t rounds, int64_t ahead,
                                    const int services[4], tutti_error *err);
/* Within pass(), before the first: x := the model as it is now. */
void tutti_averager_read(tutti_averager *a);
/* Within step(): tutti_base_step_on on the model. The staleness recorded is the number of rounds
   made since the model was read. With `rounds` it reports the gradient to the granting worker,
   and then waits until at most `outstanding` reported gradients are unacknowledged, and at most
   `outstanding` x `rounds` granted rounds are not yet made. outstanding -1: it does not wait. */
tutti_status tutti_averager_update(tutti_averager *a, int64_t outstanding, tutti_error *err);
/* run() of a service: makes each pending round. */
tutti_status tutti_averager_average(tutti_averager *a, tutti_error *err);
/* With rounds 0: the client requests one round. */
void tutti_averager_post(tutti_averager *a);
/* run() of the other three services. */
tutti_status tutti_averager_tell(tutti_averager *a, tutti_error *err);
tutti_status tutti_averager_beat(tutti_averager *a, tutti_error *err);
tutti_status tutti_averager_mix(tutti_averager *a, tutti_error *err);

/* ---- pairs ---- */

/* A model that is averaged with one other worker at a time, concurrently with the computation, in
   delta form on both sides (src/gossip/pairs.c), as in ad-psgd. With groups (m->team) the model
   of the group's first worker is averaged, and the others copy it. */
typedef struct tutti_pairs_options {
    const char *graph;                   /* over the groups */
    int peer;                            /* random, cyclic */
    int roles;                           /* any, bipartite */
    int64_t exchanges, outstanding;
    bool lr_staleness;
} tutti_pairs_options;
/* The rows of a method's option table that fill them in. whose: "workers". */
#define TUTTI_PAIRS_OPTIONS(self, options, whose) \
    { "graph", TUTTI_SPEC, TUTTI_AT(self, options.graph), 0, 0, 0, "", \
      "which workers may average with each other; `tutti topology` lists the graphs; none: " \
      "bipartite-exp, complete for an odd number of " whose }, \
    { "peer", TUTTI_CHOICE, TUTTI_AT(self, options.peer), 0, 0, 1, "random|cyclic", \
      "which neighbour is asked next" }, \
    { "roles", TUTTI_CHOICE, TUTTI_AT(self, options.roles), 0, 0, 1, "any|bipartite", \
      "any: all ask and answer; bipartite: the paper's, one group asks the other; no odd " \
      "cycles" }, \
    { "exchanges", TUTTI_INT, TUTTI_AT(self, options.exchanges), 1, 0, 1e6, NULL, \
      "averagings a step of a worker that asks; 0: as often as the network allows" }, \
    { "outstanding", TUTTI_INT, TUTTI_AT(self, options.outstanding), 1, -1, 1e6, NULL, \
      "averagings that may be pending when the next gradient begins, not counting those " \
      "whose answer is late; 0: no overlap; -1: any number" }, \
    { "lr_staleness", TUTTI_BOOL, TUTTI_AT(self, options.lr_staleness), 0, 0, 1, NULL, \
      "divide the learning rate by 1 + staleness" }
/* Within declare(), after m->team is set. options: the pointer is kept. services: the indexes of
   the two services of the method that run ask and answer. */
typedef struct tutti_pairs tutti_pairs;
tutti_status tutti_pairs_declare(tutti_pairs **out, tutti_method *m, tutti_plan *plan,
                                 const tutti_pairs_options *options, const int services[2],
                                 tutti_error *err);
/* Within pass(), before the first: x := the model as it is now. */
tutti_status tutti_pairs_read(tutti_pairs *p, tutti_error *err);
/* Within step(): tutti_base_step_on on the model; requests and awaits averagings. */
tutti_status tutti_pairs_update(tutti_pairs *p, tutti_error *err);
/* run() of the two services. */
tutti_status tutti_pairs_ask(tutti_pairs *p, tutti_error *err);
tutti_status tutti_pairs_answer(tutti_pairs *p, tutti_error *err);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
