/* server.h: parameter servers. The values are partitioned into shards. Each shard is kept by one
   of the workers, or by a rank that only serves, which answers the requests about it. All methods
   with servers are built on it (src/server). It is the parameter server of Li et al., OSDI 2014,
   with server threads running concurrently with the computation ("co-located"). A server is a
   service (method.h) of its worker, so it stops when the run quiesces, is saved with everything
   else and needs no command. It is a facility: once declared, the engine opens, quiesces and
   closes it, and loads its checkpoints.

     client thread      tutti_server_push: sends the gradient's shards to their servers and writes
                        the replies to x; blocks until all have replied
     server's thread    tutti_server_run: receives requests one by one, in order of arrival, and
                        passes each to the method's rule, which decides how to handle it. All
                        workers' uploads and replies proceed concurrently: no worker waits for
                        another's link (src/engine/service/requests.c)

   Shards. Servers 0 .. S-1 partition a range of the flat space evenly (all elements have 4 bytes),
   at multiples of 16 elements from its beginning (a cache line), so parts differ by less than 128
   bytes. A part of a small model may be empty; then nothing is sent. A server handles one request
   at a time, so what it sends is of one version. Shards are independent: a read is consistent
   within a shard, and each shard has its own version, the number of its updates. With S = 1 there
   is one version, at worker 0. A worker sends requests to its own server as to any other, by
   messages to itself, which do not use the network and are not counted.

   Ranks that only serve (engine_options.servers, tutti train --servers; Li et al.'s server nodes).
   Each of them is then a server; the method's `servers` must be 0 or their number. No worker is a
   server, unless the method is mixed: then they come after the workers that serve, and parts need
   not be equal (setup.parts; Jiang et al., OSDI 2020). The method is declared, opened and quiesced
   there too, final_model is called, and its services run. A server's state that is not a range of x
   belongs to the rank that serves (tutti_server_index), as a SLICE, so that it moves with the
   server and not with a worker. Figures that it reports by tutti_metric reach all ranks at the end
   of the run. These ranks have no x and no g: a worker gives each its shard of initial values.

   Memory. A server has the values and the optimiser's slots of its shard, what its rule declares,
   and buffers for requests in flight: n R bytes for n workers, where R is a request's largest part.
   A request stays in its buffer until it is answered, and the reply is sent from there. So there is
   one buffer per worker, used for what it sends and for what it receives. For pieces there is one
   for each thread that sends them, at most one a piece. R is then that of the largest piece.

     values   4 d_k (1 + slots) + n R; R = 4 d_k. For rules that answer each request before the
              next, at most 1 GiB of requests, but at least two
     sums     n min(t, pieces) R, where t = 1 + the lane's threads (m->all_on_lane: those alone).
              With nodes n is the number of their rails
     further  with `reads` 4 d_k n; with `tells` n R more; for tables R more, and 4 d_k more where
              the optimiser updates every row; with a half-precision wire n R / 2 instead of n R,
              2 R more, and for sums all waiting contributions as floats: n R per slot, or 4 d_k n

   Where ranks share memory and what is sent is floats without tables, R is 0: data in flight
   stays in the workers' windows.

   Checkpoints. Values, slots and versions can be loaded by any number of servers, on workers or
   not. With another number of shards or of workers than in the checkpoint, each worker begins at
   the servers' model, and delays count from there.

   Losses, with TUTTI_FAULT_TOLERANT. The loss of a rank that has a shard ends the run, with an
   error that names the rank, unless another stands by (src/server/server.h). After any other loss
   the run continues, by the method's rule. Without the trait every loss ends it. */
#ifndef TUTTI_METHOD_SERVER_H
#define TUTTI_METHOD_SERVER_H
#include "../method.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

typedef struct tutti_server tutti_server;

/* A request, as a rule gets it.

   in: the received payload for this shard, `words` floats. It belongs to the rule until the rule
   returns; with `stays` until the request is answered, and the reply may overwrite it. NULL: the
   request has no payload. Normally it is `count` elements in order. Under TUTTI_SPARSE_ROWS a
   table within is sent as its touched rows only (src/server/slice.h), for tutti_server_update,
   _collect and _sum. */
typedef struct tutti_server_request {
    tutti_header note;           /* its header: copied by a rule that answers later */
    int worker;                  /* the sender: index among the workers */
    uint32_t kind;               /* its own, below 0x20000000; with `pieces` the piece's index */
    int64_t b;                   /* the method's own */
    uint64_t delay;              /* updates of this shard since that worker last received its
                                    values; 0 with `pieces` */
    float *in;
    size_t words;
    bool stays;                  /* true of floats and of rows of tables */
    size_t first, count;         /* this server's part of the flat space */
} tutti_server_request;
/* Called on the server's thread, once for each request. Every request gets exactly one reply, now
   or while a later request is handled. A rule may defer a reply only if what it waits for is
   certain to arrive even after the workers stop: because all make the same steps, or because a
   phase has as many gradients as workers. May block; does not allocate. */
typedef tutti_status (*tutti_server_rule)(tutti_method *m, const tutti_server_request *r,
                                          tutti_error *err);
/* Called on the server's thread once for each lost worker, for a rule that defers replies: it
   must now answer the workers that waited for the lost one. From then on tutti_server_has is
   false for that worker, none of its requests arrive, and replies to it are dropped. */
typedef tutti_status (*tutti_server_loss)(tutti_method *m, int worker, tutti_error *err);

/* What a method configures for its servers.

   servers: how many workers serve. 0: all; n: n workers, taken from the hosts in rotation; 1:
   worker 0. Where ranks only serve: 0: all of those; else it must be their number.
   pieces: requests are about pieces, which are partitioned one by one,
   and servers keep no values. false: a server keeps the values of its shard of x.
   wire: type in which floats are sent, both ways: TUTTI_F32 (0); or TUTTI_F16: rounded to nearest
   when sent, floats again for the rule and in `into`. Under TUTTI_SPARSE_ROWS TUTTI_F16 is legal
   only with `pieces`, and tables are then sent as float32. A finite number beyond fp16's range
   ends the run where it is to be sent (TUTTI_ERR_NUMBER); a number that is itself not finite is
   sent as such.
   even: a range is cut at multiples of 4 elements instead of 16: parts differ by 16 bytes at most.
   node, rails: with `pieces`. Workers of `node` consecutive ranks count as one, and send the sum
   of their gradients. The first `rails` workers of each node are its rails, and rail u sends slot
   u of a piece, which is partitioned into slots as a range is over servers. `servers` is the
   number of nodes that serve, by their rails: slots of rail u are exchanged only among the
   workers that are rail u. Ranks that only serve serve all rails. Tables are sent by every worker
   as without nodes. 0 means 1.
   turns: with `pieces`: a worker sends the pieces in flight one at a time, and the others wait.
   Concurrent transfers share a link: pieces that begin together would arrive together, and
   replies could start only then. To a server whose part is r times the least, r pieces are sent
   at a time, but at most half of the lane's threads: then transfers that share a link are about
   equally long, and the most loaded links never wait for others. With `undivided` as many at a
   time as there are servers, under the same bound.
   undivided: with `pieces`: each piece goes whole to one server. Pieces are assigned the largest
   first, each to the server that is then the least loaded relative to its part. Not with rails.
   mixed: where ranks only serve, `servers` workers serve too. Not with rails.
   parts: each server's proportion of all bytes, in the order of their ranks: numbers that sum to
   1 ... 2^24 - 1; 0: it has nothing, and gets no requests. Each range is partitioned in these
   proportions, at the multiples above. NULL: equal parts. Read within declare(). Not with rails.
   tables: with `pieces`: requests are about tables (src/server/tables.h).
   codec: with `pieces`: they are encoded by the run's codec, if any, both ways (server/coded.c).
   feedback: error feedback: workers and servers add the encoding error to the next message; auto:
   on unless the codec is unbiased and does not contract. Not with rails.
   anew: when a checkpoint of other workers is loaded, even of the same number, all workers begin
   at the servers' model, because the rule cannot use the states that the others had. */
typedef enum { TUTTI_FEEDBACK_AUTO, TUTTI_FEEDBACK_ON, TUTTI_FEEDBACK_OFF } tutti_feedback;
typedef struct tutti_server_setup {
    tutti_server_rule rule;
    int service;                 /* index of the method's service whose run() is tutti_server_run */
    int servers;
    bool whole;                  /* x has every row of tables at any time: none is fetched */
    bool collects;               /* its rule calls tutti_server_collect, which needs them */
    bool reads;                  /* its rule needs what a worker has read (src/server/server.h):
                                    a copy of the shard per worker */
    bool times;                  /* its rule calls tutti_server_seconds */
    bool pieces, tables;
    /* Called on the server's thread when the time of tutti_server_wake_at has come; it may do
       what a rule may. NULL: it is not called. */
    tutti_status (*due)(tutti_method *m, tutti_error *err);
    tutti_dtype wire;
    bool even;
    int node, rails;             /* rails <= node, which divides the workers */
    bool turns, undivided, mixed;
    const uint32_t *parts;
    bool codec;
    tutti_feedback feedback;
    bool anew;
    bool tells;                  /* its rule sends requests to workers */
    tutti_server_loss lost;      /* NULL: the rule answers each request before it returns */
} tutti_server_setup;
/* For traits_of: `traits`, without TUTTI_FAULT_TOLERANT where every worker serves, since the run
   then needs each of them. The engine restores the trait where dedicated ranks serve (method.h). */
static inline unsigned tutti_server_traits(unsigned traits, bool all_serve)
{
    return all_serve ? traits & ~(unsigned)TUTTI_FAULT_TOLERANT : traits;
}
/* Within declare(). A server that keeps values declares them as "server.values" (SLICE), and
   under TUTTI_SHARDED_OPTIMIZER the run's --optimizer for them (m->optim), and unless replicas
   are equal the versions. Opened, values := x. TUTTI_ERR_USAGE: more servers than workers. */
tutti_status tutti_server_declare(tutti_server **out, tutti_method *m, tutti_plan *plan,
                                  const tutti_server_setup *setup, tutti_error *err);
/* Within declare(), with one server: checks that a table of one vector per worker fits in its
   memory. TUTTI_ERR_USAGE, in a sentence that ends with `mend`: on all ranks, if the table is
   larger than limit_mb MiB; or, if limit_mb is 0, on the serving rank, if it is larger than its
   machine's memory. */
tutti_status tutti_server_table_fits(const tutti_server *s, tutti_dtype dtype, double limit_mb,
                                     const char *mend, tutti_error *err);
/* The service's run(). Returns at once where nothing is served. */
tutti_status tutti_server_run(tutti_server *s, tutti_error *err);
/* Within final_model(): x := the values of all servers, on all workers. Where ranks only serve,
   the first worker gathers them and sends them to the others. */
tutti_status tutti_server_final_model(tutti_server *s, tutti_error *err);

int tutti_server_index(const tutti_server *s); /* index of this rank's server; -1: none */
/* Server k's part of the elements [first, first + count): its first element, and returns its
   length. For servers without rails. */
size_t tutti_server_part(const tutti_server *s, int k, size_t first, size_t count,
                         size_t *part_first);

/* ---- client ---- */

typedef struct tutti_server_answers { /* combined over all servers that have a part */
    uint32_t kind;               /* the greatest */
    uint64_t delay;              /* of the request, as its rule saw it; the greatest over the shards
                                    that sent values */
    bool values;                 /* all sent values */
} tutti_server_answers;
/* Client thread, in step(). Sends `values` (flat, such as m->g; NULL: requests without a
   payload), to each server its shard. The replies' values are written to `into` (flat, such as
   m->x); a reply without values writes nothing. The contents of m->g are undefined afterwards: a
   server may read it in place and overwrite it. Blocks until all have replied: exposed time. Call
   tutti_base_check or tutti_base_gradient first. */
tutti_status tutti_server_push(tutti_server *s, uint32_t kind, int64_t b, float *values,
                               float *into, tutti_server_answers *answers, tutti_error *err);
/* tutti_server_push to server k alone (0 is worker 0's), without a payload either way. */
tutti_status tutti_server_ask(tutti_server *s, int k, uint32_t kind, int64_t b,
                              tutti_server_answers *answers, tutti_error *err);
/* For a rows_acquire hook: copies the current rows into x from the servers that have them. A
   server's part of the table is sent whole if that is no larger than ids and rows. Exposed. */
tutti_status tutti_server_need_rows(tutti_server *s, int tensor, const uint32_t *ids, size_t n,
                                    tutti_error *err);

/* ---- sums of pieces (src/server/sums.c) ----

   Shared by methods whose servers sum gradients and keep no values. A worker sends each server
   its part of a piece. Once all have sent theirs the server replies to all with the sum over the
   workers of weight_r g_r, in the fixed order of summation, each product rounded once. So the
   bits are those of tutti_exchange without a codec, whatever the order of arrival, and every
   optimiser, clipping and share of a step works: the update stays at the workers.

   A worker may have as many pieces in flight as its lane has threads, in any order. The next
   exchange of a piece begins when the previous one is over. `slots` is their maximum, and they
   then begin in order: it sets m->lane_width and m->all_on_lane. Where ranks only serve, and for
   undivided pieces, they are sent by turns (tutti_server_setup). Servers on workers gain nothing
   by it: their links are equally busy.

   Nodes. With `node` above 1 the workers of a node first sum their weighted gradients of a piece
   (reduce-scatter), its rails send their slots of that sum, and the replies are distributed to
   all of the node (all-gather). node is a power of two, or all workers, so that a node's sum is a
   subtree of the fixed order of summation: the bits do not change. With a single node nothing is
   sent to servers. Tables are sent by all workers, row by row, and summed only at servers.

   Losses, with TUTTI_FAULT_TOLERANT: a step's result is the mean over the workers that sent,
   their weights divided by the weights' sum. In the step in which a worker is lost, the mean
   includes its gradient in parts whose server had received it, and excludes it in the others. All
   remaining workers get the same result. When a node loses a worker, its other workers fail too. */
typedef struct tutti_server_sums tutti_server_sums;
typedef struct tutti_server_sums_options {
    int service;                 /* index of the method's service whose run() is
                                    tutti_server_sums_run */
    int servers;                 /* this and the next seven as in tutti_server_setup */
    bool even;
    int node, rails;
    bool undivided, mixed;
    const uint32_t *parts;
    tutti_dtype wire;            /* sums are computed in float32 in any case */
    bool codec;                  /* likewise with any codec */
    tutti_feedback feedback;
    int slots;                   /* 0: no limit */
    const char *slots_name;      /* name of the method's option for it; NULL: "slots" */
    bool reports;                /* final_model() calls tutti_server_sums_final_model */
} tutti_server_sums_options;
/* Within declare(), for `node`: how many workers count as one, parsed from the method's option
   `node` (tutti_team_parse), or "auto": the workers of a machine. TUTTI_ERR_USAGE: that many
   workers do not form a subtree of the fixed order of summation. With auto *node is then 1, and
   the reason is written to `why` (at most `bytes`), else "". */
tutti_status tutti_server_node(const tutti_method *m, const char *value, int *node, char *why,
                               size_t bytes, tutti_error *err);
/* Within declare(), after m->piece_bytes and the like are set. It is a facility. TUTTI_ERR_USAGE:
   more servers than nodes; too many workers; more threads requested (--lane) than slots. */
tutti_status tutti_server_sums_declare(tutti_server_sums **out, tutti_method *m, tutti_plan *plan,
                                       const tutti_server_sums_options *options, tutti_error *err);
/* The service's run(). Returns at once where nothing is served. */
tutti_status tutti_server_sums_run(tutti_server_sums *s, tutti_error *err);
/* For an exchange hook, on its thread: p->g := the sum, with p->step and p->weight. Blocks. */
tutti_status tutti_server_sums_exchange(tutti_server_sums *s, tutti_piece *p, tutti_error *err);
/* For the figures of the sums: client thread, within pass() and as the first call in step();
   without it hidden_seconds stays 0. */
void tutti_server_sums_watch(tutti_server_sums *s, bool step);
/* Within final_model(), on all ranks: reports them as figures of the run (tutti_metric), named as
   in docs/methods/herring.md, so that the rank that writes the summary has those of all. */
tutti_status tutti_server_sums_final_model(tutti_server_sums *s, tutti_error *err);

/* ---- within a rule, on its thread ---- */

float *tutti_server_values(tutti_server *s);                /* element `first` of this shard */
bool tutti_server_has(const tutti_server *s, int worker);   /* false: it is lost */
uint64_t tutti_server_version(const tutti_server *s);       /* updates of this shard so far */
/* With setup.times, for a rule: the time of a worker from receiving values to its next request,
   an exponential mean in which the old value has weight 4/5 (docs/methods/oscars.md); 0: it has
   not made a request yet. given_ns: when the values that it has now were sent, by tutti_now_ns.
   Pauses of the whole run are excluded from both. Each server measures for itself; checkpoints of
   the same shards contain it. */
double tutti_server_seconds(const tutti_server *s, int worker);
int64_t tutti_server_given_ns(const tutti_server *s, int worker);
/* values := one step of the run's optimiser along g, an `in` or a sum of several; increments the
   version. Rows that are absent from g do not change where the optimiser allows it (plain sgd, or
   lazy); other optimisers see zero gradients there. */
void tutti_server_update(tutti_server *s, const float *g, const tutti_rate *rate);
/* sum (this whole shard) += a in. */
void tutti_server_collect(tutti_server *s, float a, const float *in, float *sum);
/* tutti_server_update along what was collected; sum is 0 afterwards. */
void tutti_server_update_collected(tutti_server *s, float *sum, const tutti_rate *rate);
/* values := values + a d, for this shard; increments the version. */
void tutti_server_add(tutti_server *s, float a, const float *d);
/* Sets a timer: `due` is called once at that time of tutti_now_ns, unless another time is set
   before; TUTTI_FOREVER: cancels it. Only for a rule that holds an unanswered request: its worker
   waits, so the run is not quiescent. */
void tutti_server_wake_at(tutti_server *s, int64_t at_ns);
/* Replies to n requests (at most one per worker) together with this shard of values and its
   version, from which those workers' delays count from now on. The values are copied before they
   are sent: no server waits for a worker. give_each: with kinds[k] to the worker of requests[k]. */
tutti_status tutti_server_give(tutti_server *s, const tutti_header *requests, int n, uint32_t kind,
                               tutti_error *err);
tutti_status tutti_server_give_each(tutti_server *s, const tutti_header *requests, int n,
                                    const uint32_t *kinds, tutti_error *err);
/* Replies with `count` elements of the method's choice, or without a payload (NULL, 0). */
tutti_status tutti_server_answer(tutti_server *s, const tutti_header *requests, int n,
                                 uint32_t kind, float *payload, size_t count, tutti_error *err);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
