/* gossip.h: models that are averaged with some of the other workers, rather than with all at once.
   Facilities (method.h), of which a gossip method declares one:

     mixer       Each worker averages its model with its neighbours in a graph, once a round.
     averager    A model beside the computation is averaged with all, or with neighbours, while the
                 client computes on.
     pairs       A model beside the computation is averaged with one other worker at a time.
     queues      Workers make the same iterations, each at its own speed, and mix the models of the
                 right ones with their neighbours'.
     preduce     A model is averaged with those of a group that is formed for it.
     ring        Each worker averages its model with the two beside it, of which it has copies that
                 follow by few bits.

   Each is declared within the method's declare(). From then on the engine opens it, brings it to
   rest, saves it and closes it: the method's hooks say nothing of that. */
#ifndef TUTTI_GOSSIP_H
#define TUTTI_GOSSIP_H
#include "method.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* ---- mixer ---- */

/* Push-sum's weight, in whole parts of TUTTI_MASS_ONE. Those of up to 65536 workers fit. */
typedef int64_t tutti_mass;
#define TUTTI_MASS_ONE ((tutti_mass)1 << 44)
static inline double tutti_mass_real(tutti_mass mass)
{
    return (double)mass / (double)TUTTI_MASS_ONE;
}

/* Neighbour averaging over a graph (src/gossip/mixer.c).

   encode: where the run has a codec, models travel through it as differences to public copies
   (src/gossip/mixer_codec.c: CHOCO). The copies become state: one model a neighbour, and one's own.
   A round then computes x := u + gamma sum_j W_ij (p_j - p_i). Where gamma is 1 and nothing is lost
   that is the round without a codec, but for the last bits. TUTTI_ERR_USAGE: a graph that changes;
   a codec that needs all workers or does not contract; gamma without a codec. Without `encode`
   nothing is refused, and the codec is left to others.

   team: the mean of a team's models is mixed, and all of the team take what comes of it. A round
   of `graph` NULL has the bits of the complete graph's, sends 2 (n - 1) / n models a worker in
   place of n - 1, and needs all. Teams and sums are without push, encode and cross, and not under
   TUTTI_FAULT_TOLERANT. */
typedef struct tutti_mixer tutti_mixer;
typedef struct tutti_mixer_options {
    const char *graph;                   /* spec of topology.h; of the teams. NULL: with all, by an
                                            all-reduce */
    bool push;                           /* for push-sum: only W's columns must sum to 1 */
    bool encode;                         /* see above */
    bool ahead;                          /* tutti_mix_start gets a thread of its own, unless the
                                            model is too small for that to pay or the run has no
                                            lanes */
    double gamma;                        /* 0: by what the codec keeps */
    bool cross;                          /* neighbours' models are kept, and something goes back;
                                            see below */
    int team;                            /* so many workers of consecutive ranks are one member of
                                            the graph, by the first of them; 0: each is one */
    bool by_tensor;                      /* each tensor is a message, or a sum, of its own */
} tutti_mixer_options;
/* Rows of a method's option table for two of them. */
#define TUTTI_MIXER_GRAPH(at) \
    { "graph", TUTTI_SPEC, at, 0, 0, 0, "ring", \
      "who averages with whom; `tutti topology` lists them" }
#define TUTTI_MIXER_GAMMA(at, when) \
    { "gamma", TUTTI_REAL, at, 0, 0, 1, NULL, \
      "with codec: how far a round goes towards the neighbours' public copies; 0: by what the " \
      "codec keeps", when }
/* Within declare(). Refuses the graph; its receive buffers become state. */
tutti_status tutti_mixer_declare(tutti_mixer **out, tutti_method *m, tutti_plan *plan,
                                 const tutti_mixer_options *options, tutti_error *err);
/* x := W_ii u + sum_j W_ij u_j with W of round k. x may be u, and otherwise lies apart. It is
   summed as a collective would: products are rounded, then added in the tree over ascending rank.
   So the complete graph gives tutti_average's bits. Blocks for the neighbours of round k only.

   mass: NULL, or of a push mixer this worker's push-sum weight m_i, which is TUTTI_MASS_ONE at the
   beginning. Then u_i is the de-biased model, numerator / weight, and so is what comes:
   x := sum_j P_ij m_j u_j / m_i', m_i' = sum_j P_ij m_j, P = W of round k. The weight is split
   among the out-neighbours at once. What *mass holds then is what this worker keeps, u with it;
   what came is added at the end. Summed over all workers, and what is under way, it never changes,
   exactly.

   All members mix the same rounds in the same order. Under TUTTI_FAULT_TOLERANT a neighbour that is
   lost is left out, and what it would have weighed goes to W_ii. An event of kind "disconnected"
   tells when the graph falls apart. Client thread. */
tutti_status tutti_mix(tutti_mixer *mixer, uint64_t k, const float *u, float *x, tutti_mass *mass,
                       tutti_error *err);
/* The same in two halves, one at a time. Between them u stays as it is, x is the mixer's, and *mass
   is the part that is kept; after wait it is the whole. Wait gives OK at once if nothing was
   started. Whenever all is quiet (engine.h) what was started has come. So x and *mass can be saved
   with u, and wait has nothing left to do. */
void tutti_mix_start(tutti_mixer *mixer, uint64_t k, const float *u, float *x, tutti_mass *mass);
tutti_status tutti_mix_wait(tutti_mixer *mixer, tutti_error *err);
/* Between two rounds: all workers have come to the same model x (n), to the bit, otherwise than by
   rounds. With a codec the public copies become x, on all without a message. Client thread. */
void tutti_mixer_restart(tutti_mixer *mixer, const float *x);

/* Cross-gradients (src/gossip/mixer_cross.c): what this worker makes of a neighbour's model goes
   back to that neighbour. Of mixers with `cross`: the graph is symmetric in all rounds, and a loss
   ends the run, so not under TUTTI_FAULT_TOLERANT. Client thread.

   neighbours: how many there are in the round that has begun, ascending by rank. What follows is
   for a round that has come (tutti_mix, tutti_mix_wait), before the next begins.
   model: that of the a-th, as it was when the round began; with a codec its public copy after it.
   It stays until something is given back.
   give_back: v (n) goes to the a-th, once each. Does not wait. Through the codec, where models go
   through one, with error feedback: what a message lacks of v is added to the next.
   take_back: v := W_ii v + sum_j W_ij v_j, v_j what neighbour j gave back, with W of that round,
   summed as models are. With a codec v too is what it would be as a message. Blocks. */
int tutti_mixer_neighbours(const tutti_mixer *mixer);
const float *tutti_mixer_model(const tutti_mixer *mixer, int a);
tutti_status tutti_mixer_give_back(tutti_mixer *mixer, int a, const float *v, tutti_error *err);
tutti_status tutti_mixer_take_back(tutti_mixer *mixer, float *v, tutti_error *err);

/* ---- averager ---- */

/* A model that is averaged beside the computation, in delta form (src/gossip/averager.c): no
   gradient is lost, and the sum of the models is kept. It is shared by the methods that differ only
   in with whom they average, and when.

   graph: the spec of one: with its neighbours; NULL: with all, by an all-reduce.
   rounds 0: the method owes rounds to its service that runs tutti_averager_average, as often on all
   workers. graph NULL asks for it.
   rounds > 0 (under TUTTI_ASYNC): so many rounds are due for every `workers` gradients of the
   run. Four services of the method make them: they run tell (which `hears`), beat, mix and average.
   A round is made by all or by nobody. One that would be more than `ahead` x `rounds` ahead of what
   the slowest member has made is left out (figures `rounds`, `rounds_left_out`).
   services: the indexes of tell, beat, mix and average; where rounds is 0 only the last counts.
   It goes on after losses, either way. */
typedef struct tutti_averager tutti_averager;
tutti_status tutti_averager_declare(tutti_averager **out, tutti_method *m, tutti_plan *plan,
                                    const char *graph, int64_t rounds, int64_t ahead,
                                    const int services[4], tutti_error *err);
/* Rounds with all by a clock, for methods with common steps (BAGUA's asynchronous averaging): the
   next is granted pause_ns after the last has ended, whatever clients do meanwhile; 0: at once. The
   lowest member that is there grants, so all make the same ones, and all that are granted are made
   before all is quiet. tutti_averager_begin says from where on, on all workers at the same step.
   services: as above; the second of them runs tutti_averager_clock and `hears`. */
tutti_status tutti_averager_declare_clock(tutti_averager **out, tutti_method *m, tutti_plan *plan,
                                          int64_t pause_ns, const int services[4],
                                          tutti_error *err);
/* Within pass(), as often as the caller likes. */
void tutti_averager_begin(tutti_averager *a);
/* run() of a service. */
tutti_status tutti_averager_clock(tutti_averager *a, tutti_error *err);
/* Within pass(), before the first: x := the model as it is now. */
void tutti_averager_read(tutti_averager *a);
/* Within step(): tutti_base_step_on on the model. Its staleness is how many rounds were made since
   the model was read. With `rounds` it tells of the gradient, and then waits until
   1. at most `outstanding` of the gradients that were told are not yet heard, and
   2. the rounds of at most so many that were granted are not yet made.
   outstanding -1: it waits for nobody. */
tutti_status tutti_averager_update(tutti_averager *a, int64_t outstanding, tutti_error *err);
/* run() of a service: makes each round that it is owed. */
tutti_status tutti_averager_average(tutti_averager *a, tutti_error *err);
/* rounds 0: one round, by the client. */
void tutti_averager_owe(tutti_averager *a);
/* run() of three more. */
tutti_status tutti_averager_tell(tutti_averager *a, tutti_error *err);
tutti_status tutti_averager_beat(tutti_averager *a, tutti_error *err);
tutti_status tutti_averager_mix(tutti_averager *a, tutti_error *err);

/* ---- pairs ---- */

/* A model that is averaged with one other at a time, beside the computation, in delta form on both
   sides (src/gossip/pairs.c): ad-psgd's. Of a team (method.h) the model of the first worker is
   averaged, and all take it over. */
typedef struct tutti_pairs_options {
    const char *graph;                   /* of the teams */
    int peer;                            /* random, cyclic */
    int roles;                           /* any, bipartite */
    int64_t exchanges, outstanding;
    bool lr_staleness;
} tutti_pairs_options;
/* The rows of a method's option table that fill them in. whose: "workers". */
#define TUTTI_PAIRS_OPTIONS(self, options, whose) \
    { "graph", TUTTI_SPEC, TUTTI_AT(self, options.graph), 0, 0, 0, "", \
      "who may average with whom; `tutti topology` lists them; none: bipartite-exp, complete for " \
      "an odd number of " whose }, \
    { "peer", TUTTI_CHOICE, TUTTI_AT(self, options.peer), 0, 0, 1, "random|cyclic", \
      "which neighbour is asked next" }, \
    { "roles", TUTTI_CHOICE, TUTTI_AT(self, options.roles), 0, 0, 1, "any|bipartite", \
      "any: all ask and answer; bipartite: the paper's, one group asks the other; no odd " \
      "cycles" }, \
    { "exchanges", TUTTI_INT, TUTTI_AT(self, options.exchanges), 1, 0, 1e6, NULL, \
      "averagings a step of who asks; 0: as often as the network allows" }, \
    { "outstanding", TUTTI_INT, TUTTI_AT(self, options.outstanding), 1, -1, 1e6, NULL, \
      "averagings that may be owed when the next gradient begins, without those whose answer is " \
      "late; 0: no overlap; -1: any number" }, \
    { "lr_staleness", TUTTI_BOOL, TUTTI_AT(self, options.lr_staleness), 0, 0, 1, NULL, \
      "divide the learning rate by 1 + staleness" }
/* Within declare(), when m->team is set. options: kept. services: the indexes of two of the
   method's, which run ask and answer. */
typedef struct tutti_pairs tutti_pairs;
tutti_status tutti_pairs_declare(tutti_pairs **out, tutti_method *m, tutti_plan *plan,
                                 const tutti_pairs_options *options, const int services[2],
                                 tutti_error *err);
/* Within pass(), before the first: x := the model as it is now. */
tutti_status tutti_pairs_read(tutti_pairs *p, tutti_error *err);
/* Within step(): tutti_base_step_on on the model; owes and awaits averagings. */
tutti_status tutti_pairs_update(tutti_pairs *p, tutti_error *err);
/* run() of the two services. */
tutti_status tutti_pairs_ask(tutti_pairs *p, tutti_error *err);
tutti_status tutti_pairs_answer(tutti_pairs *p, tutti_error *err);

/* ---- queues ---- */

/* Update queues and token queues (src/gossip/queues.c): hop's. A worker's iteration is its step,
   and those of two workers differ by no more than the table of gaps says (tutti_ledger_bound in
   src/gossip/ledger.h). Models and tokens travel beside the computation; the client waits for those
   that it needs. It goes on after losses, but for directed graphs without tokens. An event of
   kind "disconnected" tells when the graph falls apart.

   graph: static; "": ring-based, ring for an odd number.
   max_gap: so many iterations may a worker be ahead of one that takes its models; 0: no tokens.
   backup: so many in-neighbours are not waited for. staleness: so many iterations old may a model
   be. */
enum { TUTTI_QUEUES_STANDARD, TUTTI_QUEUES_NOTIFY_ACK }; /* mode */
enum { TUTTI_QUEUES_LINEAR, TUTTI_QUEUES_UNIFORM };      /* weights */
typedef struct tutti_queues_options {
    const char *graph;
    int mode, weights;
    int64_t max_gap, backup, staleness;
} tutti_queues_options;
typedef struct tutti_queues tutti_queues;
/* Within declare(). options: kept. services: the indexes of two of the method's, which run
   take_models (which `hears`) and take_tokens. TUTTI_ERR_USAGE: options that do not go together. */
tutti_status tutti_queues_declare(tutti_queues **out, tutti_method *m, tutti_plan *plan,
                                  const tutti_queues_options *options, const int services[2],
                                  tutti_error *err);
/* Client thread, once an iteration each, in this order. send: x is this iteration's; it may change
   at once. mix: x := the mean of u with the neighbours' models of this iteration, as they weigh in
   the graph (staleness: by freshness), over those that are here; x may be u. It waits for those
   that are needed. go_on: waits until the next iteration is allowed, and begins it. */
tutti_status tutti_queues_send(tutti_queues *q, const float *x, tutti_error *err);
tutti_status tutti_queues_mix(tutti_queues *q, const float *u, float *x, tutti_error *err);
tutti_status tutti_queues_go_on(tutti_queues *q, tutti_error *err);
/* In place of these three, at the beginning of an iteration: by how many this worker may jump, at
   most `most`, if it is at least `trigger` behind all that take its models; else 0. / Jumps:
   x := the neighbours' mean of the last of them, without its own. */
int64_t tutti_queues_may_jump(tutti_queues *q, int64_t trigger, int64_t most);
tutti_status tutti_queues_jump(tutti_queues *q, int64_t by, float *x, tutti_error *err);
/* run() of the two services. */
tutti_status tutti_queues_take_models(tutti_queues *q, tutti_error *err);
tutti_status tutti_queues_take_tokens(tutti_queues *q, tutti_error *err);
/* Of this worker in the whole run. gap: iterations begun so far ahead of the slowest neighbour, as
   far as this worker knew; the last has all beyond. Client thread. */
enum { TUTTI_QUEUES_GAPS = 64 };
typedef struct tutti_queues_told {
    uint64_t skipped, dropped;           /* iterations jumped over; models that were never mixed */
    double tokens_s, models_s;           /* waited for */
    uint64_t gap[TUTTI_QUEUES_GAPS];
} tutti_queues_told;
const tutti_queues_told *tutti_queues_tell(const tutti_queues *q);
/* What this worker knows of iterations (src/gossip/ledger.h), for tests: written by its threads. */
const struct tutti_ledger *tutti_queues_ledger(const tutti_queues *q);

/* ---- preduce ---- */

/* A model that is averaged with a group of others, a new one each time (src/gossip/preduce.c):
   prague's partial all-reduce. Groups are formed by a generator (src/gossip/groups.h) on the lowest
   worker that is there, or by a schedule that all know. */
enum { TUTTI_PREDUCE_AUTO, TUTTI_PREDUCE_ON, TUTTI_PREDUCE_OFF };
typedef struct tutti_preduce_options {
    int generator;                       /* random, static, smart */
    int64_t group_size, sync_every, filter_threshold;
    const char *inter_intra;             /* auto, off, or workers of a machine */
    double group_timeout;                /* seconds */
    int overlap;                         /* auto: but by a schedule, or in groups of all */
    bool log;
} tutti_preduce_options;
/* Is it a schedule? Then all workers make common steps. */
bool tutti_preduce_is_static(const tutti_preduce_options *options);
/* Within declare(). options: kept. services: the indexes of three of the method's, which run
   reduce, generate and tell; the last two hear of losses. */
typedef struct tutti_preduce tutti_preduce;
tutti_status tutti_preduce_declare(tutti_preduce **out, tutti_method *m, tutti_plan *plan,
                                   const tutti_preduce_options *options, const int services[3],
                                   tutti_error *err);
/* Within pass(), before the first: x := the model as it is now. */
void tutti_preduce_read(tutti_preduce *p);
/* Within step(): tutti_base_step_on on the model, and every sync_every gradients a P-Reduce, which
   it waits for; with overlap for the one before. */
tutti_status tutti_preduce_update(tutti_preduce *p, tutti_error *err);
/* Within retire(): what is planned with this worker is made. */
void tutti_preduce_leave(tutti_preduce *p);
/* run() of the three services. */
tutti_status tutti_preduce_reduce(tutti_preduce *p, tutti_error *err);
tutti_status tutti_preduce_generate(tutti_preduce *p, tutti_error *err);
tutti_status tutti_preduce_tell(tutti_preduce *p, tutti_error *err);

/* ---- ring ---- */

/* A ring on which models follow by compressed differences (src/gossip/ring.c): BAGUA's
   low-precision decentralised SGD. codec: a spec that goes from one worker to another
   (tutti_codec_check_point). bucket_bytes: tensors together are one message and one vector to the
   codec as soon as they have so many; 0: each is. team: as a mixer's. overlap: a bucket is encoded
   while those before it travel. Not under TUTTI_FAULT_TOLERANT: a loss ends the run. */
typedef struct tutti_ring tutti_ring;
typedef struct tutti_ring_options {
    const char *codec;
    size_t bucket_bytes;
    int team;
    bool overlap;
} tutti_ring_options;
/* Within declare(). */
tutti_status tutti_ring_declare(tutti_ring **out, tutti_method *m, tutti_plan *plan,
                                const tutti_ring_options *options, tutti_error *err);
/* Exchange k, the same on all workers: x (n) becomes what the neighbours have of this worker. One
   at a time. Blocks; client thread, within step(). TUTTI_ERR_NUMBER: x is not finite. */
tutti_status tutti_ring_exchange(tutti_ring *ring, uint64_t k, float *x, tutti_error *err);
/* For tests: the left one's model as this worker has it (-1), its own (0), the right one's (1). */
const float *tutti_ring_of(const tutti_ring *ring, int side);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
