/* server.h: values cut into slices, each kept by one of the workers, or by a rank that only serves,
   which answers requests about its own. All methods with servers stand on it (src/server).
   It is the parameter server of Li et al., OSDI 2014, with its server threads beside the
   computation ("co-located"). A server is a service (method.h) of its worker, so it rests when all
   is quiet, is saved with everything else and needs no command. It is a facility: once declared,
   the engine opens it, brings it to rest, reads its checkpoints and closes it.

     client thread      tutti_server_push: the gradient's slices to their servers, what they answer
                        into x; blocks until all have answered
     server's thread    tutti_server_run: takes requests one by one, in order of arrival, and hands
                        each to the method's rule, which says what becomes of it. Uploads and
                        answers of all go on meanwhile: nobody waits for the link of another
                        (src/engine/service/desk.c)

   Slices. Servers 0 .. S-1 cut a range of the flat space evenly (all elements have 4 bytes), at
   multiples of 16 elements from its beginning (a cache line), so shares differ by less than 128
   bytes. A part may be empty, of small models; then nothing is sent. A server handles one request
   at a time, so what it sends is of one version. Slices know nothing of each other: a read is
   consistent within a slice, and each slice has its own version, the number of its updates. With
   S = 1 there is one version, at worker 0. A worker talks to its own server as to any other, by
   messages to itself, which go over no wire and are not counted.

   Ranks that only serve (engine_options.servers, tutti train --servers; Li et al.'s server nodes).
   Then each of them is a server, with whatever `servers` the method asks for at 0 or at just as
   many, and no worker is one, unless the method mixes: then they come behind the workers that
   serve, and parts need not be equal (setup.parts; Jiang et al., OSDI 2020). Its method is
   declared, opened and quiesced there too, final_model is called, and its services run. State of
   the server's own that is no range of x belongs to the rank that serves (tutti_server_index), as a
   SLICE, so that it goes with the server and not with a worker. What it tells with tutti_metric
   comes to all at the end of the run. They have no x and no g: of the first values each gets its
   slice from a worker.

   Memory. A server has the values and the optimiser's slots of its slice, what its rule declares,
   and room for what is under way: n R bytes for n workers, where R is a request's largest part. A
   request stays in its room until it is answered, and the answer goes from there. So a worker has
   one room, be it for what it sends or for what it gets. Of pieces it has one for each thread that
   sends them, or for each piece if those are fewer. R is then of the largest piece.

     values   4 d_k (1 + slots) + n R; R = 4 d_k. Rules that answer each request before the next
              have room for 1 GiB of requests at most, but for two
     sums     n min(t, pieces) R, where t = 1 + the lane's threads (m->all_on_lane: those alone).
              With nodes n is the number of their rails
     besides  with `reads` 4 d_k n; with `tells` n R more; of tables R more, and 4 d_k more where
              the optimiser wants every row; with a wire of halves n R / 2 in place of n R, 2 R
              more, and of sums all contributions that wait as floats: n R a slot, or 4 d_k n

   Where ranks share memory and what is sent is floats without tables, R is 0: what is under way
   stays in the workers' windows.

   Checkpoints. Values, slots and versions are read by any number of servers, beside the workers or
   not. With another number of slices or of workers than there were, each worker begins at the
   servers' model, with delays from there.

   Losses, with TUTTI_FAULT_TOLERANT. A rank that has a slice takes it along, so the run ends, with
   its name. Without any other worker the run goes on, by the method's rule. Without the trait every
   loss ends the run. */
#ifndef TUTTI_SERVER_H
#define TUTTI_SERVER_H
#include "method.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif
typedef struct tutti_server tutti_server;

/* A request, as a rule gets it.

   in: the slice of what was sent, `words` floats, the rule's own until it returns; where it `stays`
   until the request is answered, and the answer may be written over it. NULL: nothing was. It is
   `count` elements as they are. Where the method knows rows and a table lies within, it is the
   table's rows only (src/server/slice.h), for tutti_server_update, _collect and _sum. */
typedef struct tutti_server_request {
    tutti_note note;             /* what is to be answered: copied by a rule that answers later */
    int worker;                  /* that asks: index among the workers */
    uint32_t kind;               /* the method's own, below 0x20000000; with `pieces` the piece's
                                    index */
    int64_t b;                   /* the method's own */
    uint64_t delay;              /* updates of this slice since that worker last got its values; 0
                                    with `pieces` */
    float *in;
    size_t words;
    bool stays;                  /* as floats do, and rows of tables */
    size_t first, count;         /* this server's part: where in the flat space */
} tutti_server_request;
/* On the server's thread, once for each request. Every request gets one answer, now or on the
   occasion of a later one. A rule that keeps one must know that what it waits for comes even when
   the workers have stopped: all make the same steps, or a phase has as many gradients as workers.
   May block; does not allocate. */
typedef tutti_status (*tutti_server_rule)(tutti_method *m, const tutti_server_request *r,
                                          tutti_error *err);
/* Likewise, once for a worker that is lost: of a rule that waits for others, which must now be
   answered. From then on tutti_server_has says that it is gone; its requests do not come, answers
   to it are none. */
typedef tutti_status (*tutti_server_loss)(tutti_method *m, int worker, tutti_error *err);

/* What a method wants of its servers.

   servers: how many workers serve. 0: all; else so many, of each host in turn; 1: worker 0. Where
   ranks only serve: 0: those; else they must be so many.
   pieces: requests are about pieces (tutti_server_exchange), which are cut one by one, and no
   values are kept. false: a server keeps the values of its slice of x.
   wire: what floats travel as, both ways: TUTTI_F32 (0); or TUTTI_F16: rounded to nearest when they
   are sent, floats again for the rule and in `into`. Not under TUTTI_SPARSE_ROWS but with `pieces`,
   where tables travel as they are. A number that fp16 has not got ends the run where it is to be
   sent (TUTTI_ERR_NUMBER); one of a gradient that is not finite itself goes as such.
   even: a range is cut at multiples of 4 elements and not of 16, so that parts differ by 16 bytes
   at most.
   node, rails: of pieces. Workers of `node` consecutive ranks count as one, and send what they have
   summed among themselves: so many of them are rails, the first of each node, and rail u sends slot
   u of a piece, cut as a range is over servers. `servers` is how many nodes serve, and of each its
   rails: a rail's slots go between its workers only. Ranks that only serve serve all rails. Tables
   are sent by every worker as without nodes. 0: 1.
   turns: of pieces: of those under way a worker sends one at a time, and the others wait for their
   turn. What is sent at a time shares a link: pieces that begin together would arrive together, and
   only then would anything come back. To a server whose part is r times the least, r at a time, but
   half of the lane's threads at most: then all that shares a link is about as long, and the links
   that have most to carry are never kept waiting by others. With `undivided` as many at a time as
   there are servers, under the same bound.
   undivided: of pieces: none is cut; each goes whole to one server, the largest first, to that
   which is least full with it, measured by its part. Not with rails.
   mixed: where ranks only serve, `servers` workers do so too, as without those. Not with rails.
   parts: what each server has of all bytes, in the order of their ranks: numbers that are in
   proportion, in all from 1 to 2^24 - 1; 0: it has nothing, and nobody asks it. Each range is cut
   so, at the multiples above. NULL: each has as much. Read within declare(). Not with rails.
   tables: with `pieces`: requests are about tables (tutti_server_tables_declare).
   codec: of pieces: they go through the run's codec, if it has one, both ways (src/server/coded.c).
   feedback: what it loses is sent with the next, by workers and by servers; auto: unless the codec
   is unbiased and does not contract. Not with rails.
   anew: of a checkpoint of other workers, be they as many as have saved it, all begin at the
   servers' model: what they had is nothing to the rule any more. */
typedef enum { TUTTI_FEEDBACK_AUTO, TUTTI_FEEDBACK_ON, TUTTI_FEEDBACK_OFF } tutti_feedback;
typedef struct tutti_server_setup {
    tutti_server_rule rule;
    int service;                 /* index of the method's service whose run() is tutti_server_run */
    int servers;
    bool whole;                  /* x has every row of tables at any time: none is asked for */
    bool collects;               /* its rule calls tutti_server_collect; the rows that were added to
                                    are kept */
    bool reads;                  /* its rule asks what a worker has read (tutti_server_compensate):
                                    a copy of the slice for each worker */
    bool times;                  /* its rule asks how long workers take (tutti_server_seconds) */
    bool pieces, tables;
    /* On the server's thread, when the time of tutti_server_wake_at has come; as a rule may. NULL:
       it is not called. */
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
    tutti_server_loss lost;      /* NULL: the rule waits for nobody: it answers each request before
                                    it returns */
} tutti_server_setup;
/* For traits_of: `traits`, without TUTTI_FAULT_TOLERANT where every worker serves, since each is
   missed then. Ranks that only serve bring it back (method.h). */
static inline unsigned tutti_server_traits(unsigned traits, bool all_serve)
{
    return all_serve ? traits & ~(unsigned)TUTTI_FAULT_TOLERANT : traits;
}
/* Within declare(). A server that keeps values declares them as "server.values" (SLICE), and under
   TUTTI_SHARDED_OPTIMIZER the run's --optimizer on them (m->optim), and unless replicas are equal
   the versions. When it is opened, values := x. TUTTI_ERR_USAGE: more servers than workers. */
tutti_status tutti_server_declare(tutti_server **out, tutti_method *m, tutti_plan *plan,
                                  const tutti_server_setup *setup, tutti_error *err);
/* Within declare(), after it, for rules that do not keep replicas equal: a count of each slice, at
   *slot where this worker serves (else NULL), 0 at first. With other slices than a checkpoint has,
   it is that of the furthest of those it overlaps. So it may say what all slices have in common
   when all is quiet. */
void tutti_server_declare_count(tutti_server *s, tutti_plan *plan, const char *name,
                                int64_t **slot);
/* Within declare(), of one server: may it have a table of one vector a worker? TUTTI_ERR_USAGE, in
   a sentence that ends with `mend`: on all ranks, where it has more than limit_mb MiB; or, where
   limit_mb is 0, on the one that serves, where it has more than its machine has. */
tutti_status tutti_server_table_fits(const tutti_server *s, tutti_dtype dtype, double limit_mb,
                                     const char *mend, tutti_error *err);
/* The service's run(). Returns at once where nothing is served. */
tutti_status tutti_server_run(tutti_server *s, tutti_error *err);
/* Within final_model(): x := the values of all servers, on all workers. Where ranks only serve, the
   first worker gathers them and hands them to the others. */
tutti_status tutti_server_final_model(tutti_server *s, tutti_error *err);

/* May an `in` come that does not stay, as halves do not? From declare() on: else a rule needs no
   memory to keep any. */
bool tutti_server_keeps(const tutti_server *s);
int tutti_server_count(const tutti_server *s); /* S */
int tutti_server_index(const tutti_server *s); /* which of them I am; -1: I serve nothing */
/* Server k's part of the elements [first, first + count); its length. Of those without rails. */
size_t tutti_server_part(const tutti_server *s, int k, size_t first, size_t count,
                         size_t *part_first);

/* ---- client ---- */

typedef struct tutti_server_answers { /* of all servers that have a part */
    uint32_t kind;               /* the greatest */
    uint64_t delay;              /* of the request, as its rule saw it; the greatest of the slices
                                    that sent values */
    bool values;                 /* all sent values */
} tutti_server_answers;
/* Client thread, in step(). values (flat, such as m->g; NULL: a question, without a payload) goes
   out in slices. What comes back goes into `into` (flat, such as m->x); where an answer is without
   values nothing is written. m->g is used up: a server may read it where it is, and write over it.
   Blocks until all have answered: exposed time. What is to be pushed comes from
   tutti_base_check. */
tutti_status tutti_server_push(tutti_server *s, uint32_t kind, int64_t b, float *values,
                               float *into, tutti_server_answers *answers, tutti_error *err);
/* Likewise, of server k alone (0 is worker 0's) and without a payload either way. */
tutti_status tutti_server_ask(tutti_server *s, int k, uint32_t kind, int64_t b,
                              tutti_server_answers *answers, tutti_error *err);
/* The version of slice 0 that this worker has. / It has been given that version otherwise than by
   push: the delay of its next request counts from there. Client thread. */
uint64_t tutti_server_got(const tutti_server *s);
void tutti_server_took(tutti_server *s, uint64_t version);
/* A rows_acquire hook's: the rows come into x from the servers that have them, as they are now. Of
   a part of the table of which ids and rows would be no less, the whole comes. Exposed time. */
tutti_status tutti_server_need_rows(tutti_server *s, int tensor, const uint32_t *ids, size_t n,
                                    tutti_error *err);
/* An exchange hook's, on the thread that it is called on: the piece's gradient to its servers, what
   they answer back into its place. */
tutti_status tutti_server_exchange(tutti_server *s, const tutti_piece *p, int64_t b,
                                   tutti_error *err);

/* ---- sums of pieces (src/server/sums.c) ----

   What methods share whose servers add up gradients and keep no values. A worker sends each server
   its part of a piece. Once all have sent theirs the server sends to all, in its place, the sum
   over the workers of weight_r g_r: the one order of summation, each product rounded once. So the
   bits are those of tutti_exchange without a codec, whatever comes first, and every optimiser,
   clipping and share of a step works: the update stays at the workers.

   A worker may have as many pieces under way as its lane has threads, in any order. The next
   exchange of a piece begins when the last one is over. With `slots` they are at most so many,
   begun in their order: it sets m->lane_width and m->all_on_lane. Where ranks only serve, and of
   pieces that go whole, they are sent by turns (tutti_server_setup). Servers beside workers gain
   nothing by it: their links are as busy.

   Nodes. With `node` above 1 the workers of a node first sum their weighted gradients of a piece
   (reduce-scatter), its rails send the slots that they have of that, and what comes back goes to
   all of the node (all-gather). node is a power of two, or all workers, so that a node's sum is a
   subtree of the one order of summation: bits stay. If there is one node nothing is sent to
   servers. Tables are sent by all workers, row by row, and summed at servers alone.

   Losses, with TUTTI_FAULT_TOLERANT: a step is the mean of those that sent, their weights divided
   by their sum. This includes the step in which a worker is lost: a part that had its gradient by
   then is a mean with it, and another one without. All that are left get the same. A worker whose
   node has lost another leaves the run, too. */
typedef struct tutti_server_sums tutti_server_sums;
typedef struct tutti_server_sums_options {
    int service;                 /* index of the method's service whose run() is
                                    tutti_server_sums_run */
    int servers;                 /* as in tutti_server_setup, as are the next seven */
    bool even;
    int node, rails;
    bool undivided, mixed;
    const uint32_t *parts;
    tutti_dtype wire;            /* sums are of floats whatever it is */
    bool codec;                  /* and whatever codec there is */
    tutti_feedback feedback;
    int slots;                   /* 0: as many as come */
    const char *slots_name;      /* the method's option of that; NULL: "slots" */
    bool told;                   /* final_model() calls tutti_server_sums_agree */
} tutti_server_sums_options;
/* Within declare(), for `node`: how many workers count as one, as the method's option `node` says
   it (tutti_team_parse), or "auto": the workers of a machine. TUTTI_ERR_USAGE: so many are no
   subtree of the one order of summation. Of auto that is 1 instead, and why in `why`, else "". */
tutti_status tutti_server_node(const tutti_method *m, const char *value, int *node, char *why,
                               size_t bytes, tutti_error *err);
/* Within declare(), after m->piece_bytes and the like are set. It is a facility. TUTTI_ERR_USAGE:
   more servers than nodes; too many workers; more threads asked for (--lane) than slots. */
tutti_status tutti_server_sums_declare(tutti_server_sums **out, tutti_method *m, tutti_plan *plan,
                                       const tutti_server_sums_options *options, tutti_error *err);
/* The service's run(). Returns at once where nothing is served. */
tutti_status tutti_server_sums_run(tutti_server_sums *s, tutti_error *err);
/* An exchange hook's, on the thread that it is called on: p->g := the sum, with p->step and
   p->weight. Blocks. */
tutti_status tutti_server_sums_exchange(tutti_server_sums *s, tutti_piece *p, tutti_error *err);
/* Of this process so far: while no exchange is under way, and of `served` while all is quiet.
   watch: client thread, within pass() and as the first thing in step(); without it hidden_seconds
   stays 0. */
typedef struct tutti_server_sums_figures {
    int under_way_most;          /* pieces at a time */
    double under_way_mean;       /* while there were any */
    double trip_seconds, trip_seconds_most; /* from sending to servers until all have answered */
    double busy_seconds;         /* pieces were under way, and of that while the client computed */
    double hidden_seconds;
    int server;                  /* which of them I am; -1: none */
    double imbalance;            /* the most that a server has of all pieces, of its part of them */
    uint64_t served_bytes, sums; /* of the sums that I have made: bytes of each, as they are sent to
                                    one worker, and their number */
} tutti_server_sums_figures;
void tutti_server_sums_watch(tutti_server_sums *s, bool step);
void tutti_server_sums_tell(const tutti_server_sums *s, tutti_server_sums_figures *f);
/* Within final_model(), on all: they become figures of the run (tutti_metric), as
   docs/methods/herring.md names them, since whoever writes the summary is to know those of all. */
tutti_status tutti_server_sums_agree(tutti_server_sums *s, tutti_error *err);

/* ---- tables at servers (src/server/tables.c) ----

   What methods share that send tables by rows to servers, which keep and update them, and exchange
   all other tensors among the workers. A table is at the servers if its rows are asked for
   (need_rows) and there are several workers: then server k keeps its part of the table's values and
   of the run's optimiser. x and m->optim of a worker have the table all the same, as it was when
   all was last quiet, but for the rows that were asked for since. An update at the workers
   (tutti_base_step) leaves it alone.

     lane       tutti_server_push_rows: the rows of a table's gradient, to the servers of each
     server     once all have pushed: their sum, in the one order of summation, and one step of the
                optimiser along it. Only then are they answered
     client     tutti_server_need_rows, before a pass reads them

   So who reads has pushed, and reads what all have pushed in the step before and nothing of this
   one. The bits are those of tutti_exchange and tutti_base_step, however rows are cut.

   Checkpoints. Before one the servers' parts go into x and m->optim of all workers, and servers
   take theirs from there: what is saved has no servers in it, and any number of workers and servers
   loads it. Likewise before a look at the model and at the end.

   A push and a pull have one answer from each server that has a part. Every loss ends the run. */
typedef struct tutti_server_tables tutti_server_tables;
enum { TUTTI_SERVER_CHUNKS = 64 };
/* Within declare(), for tutti_server_run, tutti_server_count and _index. node: workers of
   consecutive ranks that push as one (push_rows); a power of two, or all.
   TUTTI_ERR_USAGE: more servers than workers; and where a table is at servers: what needs the whole
   gradient, or a word of all workers, before an update (clip-norm, nonfinite=skip, loss-scale), or
   an optimiser of the client's. */
tutti_status tutti_server_tables_declare(tutti_server **out, tutti_method *m, tutti_plan *plan,
                                         int service, int servers, int node, tutti_error *err);
/* Is it at servers? From declare() on. */
bool tutti_server_has_table(const tutti_server *s, int tensor);
/* An exchange hook's, of a piece that is such a table: its rows of g, times p's `weight`, to the
   servers. chunks: how many parts each server's part is sent in, of whole rows, from 1 to
   TUTTI_SERVER_CHUNKS, the same at all workers in a step; at most one a row. Workers of a node sum
   their rows among themselves, the first pushes, and the others wait for it. Blocks until the
   servers have updated. */
tutti_status tutti_server_push_rows(tutti_server *s, tutti_piece *p, float weight, int chunks,
                                    tutti_error *err);
/* Within pass(), of a step's first pass, on all workers in the same step: the table is not at
   servers any more. x and m->optim get it from there, and the workers exchange and update it from
   this step on. Blocks; exposed time. It is kept in checkpoints. */
tutti_status tutti_server_take_table(tutti_server *s, int tensor, tutti_error *err);

/* ---- within a rule, on its thread ---- */

float *tutti_server_values(tutti_server *s);                /* element `first` of my slice */
bool tutti_server_has(const tutti_server *s, int worker);   /* false: it is lost */
uint64_t tutti_server_version(const tutti_server *s);       /* updates of my slice so far */
/* With setup.times, a rule's: what worker w takes from being given values to its next request, a
   running mean that keeps 4/5 at each (docs/methods/oscars.md); 0: it has not made one yet.
   given_ns: when it was given what it has now, by tutti_now_ns. Pauses of the whole run are left
   out of both. As each server sees it; kept in checkpoints of the same slices. */
double tutti_server_seconds(const tutti_server *s, int worker);
int64_t tutti_server_given_ns(const tutti_server *s, int worker);
/* values := one step of the run's optimiser along g, an `in` or a sum of them; a version more. Rows
   that g has not are left alone where the optimiser allows (plain sgd, or lazy); others see zeros
   there. */
void tutti_server_update(tutti_server *s, const float *g, const tutti_rate *rate);
/* sum (my slice in full) += a in. / The update along what was collected; sum is 0 afterwards. */
void tutti_server_collect(tutti_server *s, float a, const float *in, float *sum);
void tutti_server_update_collected(tutti_server *s, float *sum, const tutti_rate *rate);
/* r->in (not NULL; setup.reads) := what it would about be at the values as they are now, where it
   is of those that its worker was given (tutti_compensate). Of tables, it is of rows as they were
   when the worker asked for them last. mean: my slice, or NULL; of tables it changes where r->in
   has rows. */
void tutti_server_compensate(tutti_server *s, const tutti_server_request *r,
                             const tutti_compensation *c, float *mean);
/* The tree sum of weights[k] parts[k], each an `in` of requests about r's slice: in parts[0] or in
   memory of the server's own, good until the next answer. words: as of an `in`. Bits: those of sums
   in full. */
float *tutti_server_sum(tutti_server *s, const tutti_server_request *r, int n, float *const *parts,
                        const float *weights, size_t *words);
/* The answer to n requests that brought parts[0 .. n), in any order, with that sum; each part is
   written over. Where all of them stay, none is copied. */
tutti_status tutti_server_answer_sum(tutti_server *s, const tutti_server_request *r,
                                     const tutti_note *requests, int n, uint32_t kind,
                                     float *const *parts, const float *weights, tutti_error *err);
/* Of requests about this server's part of a range, at most. */
size_t tutti_server_words(const tutti_server *s, size_t first, size_t count);
/* By how much that may exceed the even part of a range, from declare() on. */
size_t tutti_server_slack(const tutti_method *m);
/* values := values + a d, my slice; a version more. */
void tutti_server_add(tutti_server *s, float a, const float *d);
/* values := a v + (1 - a) values, v my slice in full; a version more. a = 1: v, to the bit. */
void tutti_server_blend(tutti_server *s, float a, const float *v);
/* `due` is called once it is that time of tutti_now_ns, once, unless another time is named before;
   TUTTI_FOREVER: not any more. For a rule that has kept a request: its worker waits, so the run is
   not quiet. */
void tutti_server_wake_at(tutti_server *s, int64_t at_ns);
/* The answer to n requests (as many as there are workers at most), all at once: my slice of values
   and its version, from which those workers' delays are measured from now on. They are copied where
   they are sent: nobody waits until somebody has taken them. give_each: kinds[k] to the worker that
   sent requests[k]. */
tutti_status tutti_server_give(tutti_server *s, const tutti_note *requests, int n, uint32_t kind,
                               tutti_error *err);
tutti_status tutti_server_give_each(tutti_server *s, const tutti_note *requests, int n,
                                    const uint32_t *kinds, tutti_error *err);
/* tutti_server_update, then tutti_server_give: the values go to where they are wanted while they
   are at hand. */
tutti_status tutti_server_update_give(tutti_server *s, const float *g, const tutti_rate *rate,
                                      const tutti_note *requests, int n, uint32_t kind,
                                      tutti_error *err);
/* tutti_server_give, the first n to workers that have the version before, the others, `late` of
   them, behind. along, of `words`, is what the last update went along. Its rows are all that has
   changed of tables, so those will do for the first. It is written over. */
tutti_status tutti_server_give_update(tutti_server *s, const tutti_note *requests, int n, int late,
                                      uint32_t kind, float *along, size_t words, tutti_error *err);
/* The answer with count elements of the method's own, or without any (NULL, 0). give_own: with as
   many as the slice has, in place of its values, and with their version. */
tutti_status tutti_server_answer(tutti_server *s, const tutti_note *requests, int n, uint32_t kind,
                                 float *payload, size_t count, tutti_error *err);
tutti_status tutti_server_give_own(tutti_server *s, const tutti_note *requests, int n,
                                   uint32_t kind, float *payload, tutti_error *err);
/* A request to that service of a worker (setup.tells): my slice of values as it is now, and in the
   note's a its version. Its answer has nothing in it and is not waited for. *told: false while that
   worker has not answered the last one, or if it is lost. */
tutti_status tutti_server_tell(tutti_server *s, int service, int worker, bool *told,
                               tutti_error *err);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
