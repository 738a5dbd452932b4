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
   of the run. These ranks have no x and no g: each gets its shard of the initial values from a
   worker.

   Memory. A server has the values and the optimiser's slots of its shard, what its rule declares,
   and buffers for requests in flight: n R bytes for n workers, where R is a request's largest part.
   A request stays in its buffer until it is answered, and the reply is sent from there. So there is
   one buffer per worker, used for what it sends and for what it receives. For pieces there is one
   for each thread that sends them, or for each piece if those are fewer. R is then that of the
   largest piece.

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
   error that names the rank. After the loss of any other worker the run continues, by the method's
   rule. Without the trait every loss ends the run. */
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
    uint32_t kind;               /* the method's own, below 0x20000000; with `pieces` the piece's
                                    index */
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
   pieces: requests are about pieces (tutti_server_exchange), which are partitioned one by one,
   and servers keep no values. false: a server keeps the values of its shard of x.
   wire: type in which floats are sent, both ways: TUTTI_F32 (0); or TUTTI_F16: rounded to nearest
   when sent, floats again for the rule and in `into`. Under TUTTI_SPARSE_ROWS TUTTI_F16 is legal
   only with `pieces`, and tables are then sent as float32. A finite number beyond fp16's range
   ends the run where it is to be sent (TUTTI_ERR_NUMBER); a number that is itself not finite is
   sent as such.
   even: a range is partitioned at multiples of 4 elements instead of 16, so that parts differ by
   at most 16 bytes.
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
   mixed: where ranks only serve, `servers` workers serve too, as without such ranks. Not with
   rails.
   parts: each server's proportion of all bytes, in the order of their ranks: numbers that sum to
   1 ... 2^24 - 1; 0: it has nothing, and gets no requests. Each range is partitioned in these
   proportions, at the multiples above. NULL: equal parts. Read within declare(). Not with rails.
   tables: with `pieces`: requests are about tables (tutti_server_tables_declare).
   codec: with `pieces`: they are encoded by the run's codec, if it has one, both ways
   (src/server/coded.c).
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
    bool collects;               /* its rule calls tutti_server_collect; the server remembers which
                                    rows were added to */
    bool reads;                  /* its rule needs what a worker has read (tutti_server_compensate):
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
    bool tells;                  /* its rule calls tutti_server_tell */
    tutti_server_loss lost;      /* NULL: the rule never defers: it answers each request before it
                                    returns */
} tutti_server_setup;
/* For traits_of: `traits`, without TUTTI_FAULT_TOLERANT where every worker serves, since the run
   then needs each of them. The engine restores the trait where dedicated ranks serve (method.h). */
static inline unsigned tutti_server_traits(unsigned traits, bool all_serve)
{
    return all_serve ? traits & ~(unsigned)TUTTI_FAULT_TOLERANT : traits;
}
/* Within declare(). A server that keeps values declares them as "server.values" (SLICE), and
   under TUTTI_SHARDED_OPTIMIZER the run's --optimizer for them (m->optim), and unless replicas
   are equal the versions. When it is opened, values := x. TUTTI_ERR_USAGE: more servers than
   workers. */
tutti_status tutti_server_declare(tutti_server **out, tutti_method *m, tutti_plan *plan,
                                  const tutti_server_setup *setup, tutti_error *err);
/* Within declare(), after tutti_server_declare, for rules that do not keep replicas equal:
   declares a counter per shard, at *slot where this worker serves (else NULL), 0 at first. When a
   checkpoint with other shards is loaded, it becomes the largest of the shards that it overlaps.
   So use it for a count that is equal on all shards when the run is quiescent. */
void tutti_server_declare_count(tutti_server *s, tutti_plan *plan, const char *name,
                                int64_t **slot);
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

/* May an `in` arrive that does not stay, as in half precision? If not, a rule needs no memory to
   keep one. From declare() on. */
bool tutti_server_keeps(const tutti_server *s);
int tutti_server_count(const tutti_server *s); /* S */
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
/* The version of shard 0 that this worker has. Client thread. */
uint64_t tutti_server_got(const tutti_server *s);
/* This worker has received that version by other means than push: the delay of its next request
   counts from it. Client thread. */
void tutti_server_took(tutti_server *s, uint64_t version);
/* For a rows_acquire hook: copies the current rows into x from the servers that have them. A
   server's part of the table is sent whole if that is no larger than the ids and rows. Exposed
   time. */
tutti_status tutti_server_need_rows(tutti_server *s, int tensor, const uint32_t *ids, size_t n,
                                    tutti_error *err);
/* For an exchange hook, on its thread: sends the piece's gradient to its servers, and overwrites
   it with their replies. */
tutti_status tutti_server_exchange(tutti_server *s, const tutti_piece *p, int64_t b,
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
/* Figures of this process so far. Read them while no exchange is in progress, and the `served`
   ones while the run is quiescent. watch: client thread, within pass() and as the first call in
   step(); without it hidden_seconds stays 0. */
typedef struct tutti_server_sums_figures {
    int under_way_most;          /* pieces in flight at a time */
    double under_way_mean;       /* mean of that while there were any */
    double trip_seconds, trip_seconds_most; /* from sending to servers until all have replied */
    double busy_seconds;         /* pieces were in flight */
    double hidden_seconds;       /* of that, while the client computed */
    int server;                  /* index of this rank's server; -1: none */
    double imbalance;            /* largest ratio of a server's bytes of all pieces to its part */
    uint64_t served_bytes, sums; /* of this rank's sums: their bytes, as sent to one worker, and
                                    their number */
} tutti_server_sums_figures;
void tutti_server_sums_watch(tutti_server_sums *s, bool step);
void tutti_server_sums_figures_of(const tutti_server_sums *s, tutti_server_sums_figures *f);
/* Within final_model(), on all ranks: reports them as figures of the run (tutti_metric), named as
   in docs/methods/herring.md, so that the rank that writes the summary has those of all. */
tutti_status tutti_server_sums_final_model(tutti_server_sums *s, tutti_error *err);

/* ---- tables at servers (src/server/tables.c) ----

   Shared by methods that send tables by rows to servers, which keep and update them, and that
   exchange all other tensors among the workers. A table is at the servers if its rows are
   requested (asks_rows) and there are several workers: then server k keeps its part of the
   table's values and of the run's optimiser. x and m->optim of a worker still contain the table,
   as it was when the run was last quiescent, except for the rows that were fetched since. An
   update at the workers (tutti_base_step) does not change it.

     lane       tutti_server_push_rows: the rows of a table's gradient, to the servers of each
     server     once all have pushed: their sum, in the fixed order of summation, and one step of
                the optimiser along it. Only then does it reply
     client     tutti_server_need_rows, before a pass reads them

   So a worker that reads has pushed: it reads all pushes of the step before and none of this one.
   The bits are those of tutti_exchange and tutti_base_step, however rows are partitioned.

   Checkpoints. Before one is saved the servers' parts are copied to x and m->optim of all workers,
   and after a load servers take theirs from there. So a checkpoint does not depend on servers, and
   any number of workers and servers can load it. The copy is also made before an evaluation and at
   the end.

   A push and a pull get one reply from each server that has a part. Every loss ends the run. */
typedef struct tutti_server_tables tutti_server_tables;
enum { TUTTI_SERVER_CHUNKS = 64 };
/* Within declare(), for tutti_server_run, tutti_server_count and _index. node: workers of
   consecutive ranks that push as one (push_rows); a power of two, or all. TUTTI_ERR_USAGE: more
   servers than workers; and where a table is at servers: options that need the whole gradient, or
   a vote of all workers, before an update (clip-norm, nonfinite=skip, loss-scale), or the
   client's own optimiser. */
tutti_status tutti_server_tables_declare(tutti_server **out, tutti_method *m, tutti_plan *plan,
                                         int service, int servers, int node, tutti_error *err);
/* Is the table at servers? From declare() on. */
bool tutti_server_has_table(const tutti_server *s, int tensor);
/* For an exchange hook, of a piece that is such a table: sends its rows of g, times `weight`, to
   the servers. chunks: number of messages, each of whole rows, into which each server's part is
   split, from 1 to TUTTI_SERVER_CHUNKS, the same on all workers in a step; at most one per row.
   Workers of a node sum their rows among themselves, the first of them pushes, and the others
   wait for it. Blocks until the servers have updated. */
tutti_status tutti_server_push_rows(tutti_server *s, tutti_piece *p, float weight, int chunks,
                                    tutti_error *err);
/* Within pass(), of a step's first pass, on all workers in the same step: moves the table from
   the servers to x and m->optim; the workers exchange and update it from this step on. Blocks;
   exposed time. Checkpoints record it. */
tutti_status tutti_server_take_table(tutti_server *s, int tensor, tutti_error *err);

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
/* Replaces the stale gradient r->in (not NULL; setup.reads) by a first-order estimate of the
   gradient at the current values (delay compensation, tutti_compensate). The stale values are
   those that the worker last received; for tables, rows as of the worker's last request for them.
   mean: this whole shard, or NULL; of tables it changes only where r->in has rows. */
void tutti_server_compensate(tutti_server *s, const tutti_server_request *r,
                             const tutti_compensation *c, float *mean);
/* Returns the tree sum of weights[k] parts[k], each an `in` of a request about r's shard: in
   parts[0] or in the server's memory, valid until the next reply. *words: its length, as of an
   `in`. The bits are those of a sum of full vectors. */
float *tutti_server_sum(tutti_server *s, const tutti_server_request *r, int n, float *const *parts,
                        const float *weights, size_t *words);
/* Replies to the n requests that brought parts[0 .. n), in any order, with that sum; each part is
   overwritten. If all of them `stay`, none is copied. */
tutti_status tutti_server_answer_sum(tutti_server *s, const tutti_server_request *r,
                                     const tutti_header *requests, int n, uint32_t kind,
                                     float *const *parts, const float *weights, tutti_error *err);
/* Upper bound of the `words` of a request about this server's part of a range. */
size_t tutti_server_words(const tutti_server *s, size_t first, size_t count);
/* By how much that may exceed the even part of a range, from declare() on. */
size_t tutti_server_slack(const tutti_method *m);
/* values := values + a d, for this shard; increments the version. */
void tutti_server_add(tutti_server *s, float a, const float *d);
/* values := a v + (1 - a) values, where v is this whole shard; increments the version. With a = 1
   the result is v, to the bit. */
void tutti_server_blend(tutti_server *s, float a, const float *v);
/* Sets a timer: `due` is called once at that time of tutti_now_ns, unless another time is set
   before; TUTTI_FOREVER: cancels it. Only for a rule that holds an unanswered request: its worker
   waits, so the run is not quiescent. */
void tutti_server_wake_at(tutti_server *s, int64_t at_ns);
/* Replies to n requests (at most one per worker) together with this shard of values and its
   version, from which those workers' delays count from now on. The values are copied before they
   are sent: the server waits for no worker to receive them. give_each: with kinds[k] to the
   worker that sent requests[k]. */
tutti_status tutti_server_give(tutti_server *s, const tutti_header *requests, int n, uint32_t kind,
                               tutti_error *err);
tutti_status tutti_server_give_each(tutti_server *s, const tutti_header *requests, int n,
                                    const uint32_t *kinds, tutti_error *err);
/* tutti_server_update, then tutti_server_give; where possible the values are copied to the
   replies while they are in cache. */
tutti_status tutti_server_update_give(tutti_server *s, const float *g, const tutti_rate *rate,
                                      const tutti_header *requests, int n, uint32_t kind,
                                      tutti_error *err);
/* tutti_server_give to n + late requests: the first n are of workers that have the previous
   version, the `late` others come after them. along (`words` floats) is the gradient of the last
   update. Of tables only its rows have changed, so the first n are sent only those. It is
   overwritten. */
tutti_status tutti_server_give_update(tutti_server *s, const tutti_header *requests, int n,
                                      int late, uint32_t kind, float *along, size_t words,
                                      tutti_error *err);
/* Replies with `count` elements of the method's choice, or without a payload (NULL, 0). give_own:
   with a payload as long as the shard, instead of its values, and with the shard's version. */
tutti_status tutti_server_answer(tutti_server *s, const tutti_header *requests, int n,
                                 uint32_t kind, float *payload, size_t count, tutti_error *err);
tutti_status tutti_server_give_own(tutti_server *s, const tutti_header *requests, int n,
                                   uint32_t kind, float *payload, tutti_error *err);
/* Sends a request to that service of a worker (setup.tells): this shard of values as it is now,
   and its version in the header's a. The reply is empty and not waited for. *told: false, and
   nothing is sent, while that worker has not replied to the previous one, or if it is lost. */
tutti_status tutti_server_tell(tutti_server *s, int service, int worker, bool *told,
                               tutti_error *err);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
