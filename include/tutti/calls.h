/* calls.h: what hooks and services of a method (method.h) may ask of the engine: exchanges,
   updates, collectives of all workers, requests to services, figures and events. What a method
   declares that makes steps of another kind is in steps.h. */
#ifndef TUTTI_CALLS_H
#define TUTTI_CALLS_H
#include "optim.h"
#include "pass.h"
#include "state.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* ---- exchanges ---- */

/* p->g := sum over the workers of weight_r g_r (weights sum to 1). It goes through the run's codec,
   else the method's own. Without one it is tutti_allreduce_weighted's sum. Of a table (p->rows) it
   goes by rows while that sends fewer bytes than the whole (src/engine/rows.c): the number of each
   worker's rows first, then their ids and values. The same bits on all workers. Blocks; on the
   thread that the exchange hook is called on. Errors: of the collectives; TUTTI_ERR_CORRUPT. */
tutti_status tutti_exchange(tutti_method *m, tutti_piece *p, double weight, tutti_error *err);
/* x (n, a displacement or the like, which goes to zero) := the mean over the workers, all counting
   the same, through the same codec as one piece. Without one tutti_average. TUTTI_ERR_NUMBER,
   before it is sent, where a worker's is not finite or has a number that the codec makes infinite
   (fp16 beyond 65504): the worker, tensor and element are named. It is given on all where the mean
   is not finite. Client thread. */
tutti_status tutti_exchange_all(tutti_method *m, float *x, tutti_error *err);
/* Within open(), before tutti_exchange_all is ever called: TUTTI_ERR_USAGE where the codec cannot
   take displacements (TUTTI_CODEC_VOTES). */
tutti_status tutti_exchange_check_all(const tutti_method *m, tutti_error *err);
/* tutti_exchange past the method's codec: the sum of what stands in g. Nothing that the codec keeps
   changes, residuals neither. Under tutti_exchange_declare. */
tutti_status tutti_exchange_plain(tutti_method *m, tutti_piece *p, double weight, tutti_error *err);
/* What would tutti_exchange make of this worker's gradient, with that weight, if all its pieces
   went through the codec now? Of each tensor, in the order of the layout: whole[t]: the squared
   norm of what would be encoded, with what wrappers have kept; sent[t]: that of what would be sent,
   as decoded. Nothing is sent, and what codecs keep is as before. All NaN of a gradient that is not
   finite, past which wrappers go. Within the exchange of a step's first piece, under `m->whole`.
   The same views as an exchange has: where owners of parts add, those parts.

   declare: within declare(), after tutti_exchange_declare. TUTTI_ERR_USAGE where not every worker's
   own gradient is encoded (codec-hierarchy, codec-cost=auto-off), or the codec sums a part of it.
   Of tensors that are summed whole all counts as sent. */
tutti_status tutti_exchange_ask_declare(tutti_method *m, tutti_plan *plan, tutti_error *err);
tutti_status tutti_exchange_ask(tutti_method *m, double weight, double *whole, double *sent,
                                tutti_error *err);
/* An exchange hook: the mean, each worker weighted by its samples. */
tutti_status tutti_base_exchange(tutti_method *m, tutti_piece *p, tutti_error *err);
/* Within declare(): gradients go through `spec` (codec.h), whose states are declared.
   TUTTI_ERR_USAGE where the run has a codec too. */
tutti_status tutti_exchange_declare(tutti_method *m, tutti_plan *plan, const char *spec,
                                    tutti_error *err);
/* After it, within declare(): messages are encoded once, so that all have all whatever the number
   of workers: no owner of a part adds and encodes anew. TUTTI_ERR_USAGE, naming `option`
   ("requantize=off"), where collective=alltoall asks for just that. */
tutti_status tutti_exchange_once(tutti_method *m, const char *option, tutti_error *err);
/* Within declare(), before that: sums are the leaders' of teams of so many workers (comm.h). The
   codec, if there is one, is between leaders, as codec-hierarchy has it for a run. TUTTI_ERR_USAGE,
   naming `option`: the run has a codec-hierarchy too, or an algorithm for sums over all. */
tutti_status tutti_exchange_teams(tutti_method *m, const char *option, int team, tutti_error *err);
/* *team := how many workers of consecutive ranks belong together, as the value of `option` says it:
   "none" (1), "machine" (those of one, which must be equally many), or their number, which divides
   the workers. TUTTI_ERR_USAGE: what is wrong with it. */
tutti_status tutti_team_parse(const tutti_method *m, const char *option, const char *value,
                              int *team, tutti_error *err);
/* Its spec, from declare() on; NULL: gradients travel as they are. */
const char *tutti_exchange_codec(const tutti_method *m);

/* ---- updates ---- */

/* A local update is one of tutti_base_step, _on, _counted and _locked and nothing else, since the
   optimiser may be the client's (engine.h, optimizer "client"), which is only called in them. It is
   refused by the engine for methods with TUTTI_OWNS_UPDATE or TUTTI_NON_GRADIENT_UPDATE, and where
   tutti_optimizer_declare keeps slices: what such methods do with m->optim is their own. */

/* lr, scale 1, t = updates + 1: steps that were left out do not count. */
tutti_rate tutti_rate_now(const tutti_method *m);
/* Of the update after so many, as rate.t - 1 of tutti_rate_now says it. Any thread. */
tutti_rate tutti_rate_at(const tutti_method *m, uint64_t updates);
/* Within pass(), of a step without exchange: the gradient of the pass before stands in g without
   the run's loss scale. tutti_base_check does the same. */
void tutti_base_unscale(tutti_method *m);
/* Vote on non-finite gradients, clip, update. A client that exchanges only does the update itself,
   after step() is over. */
tutti_status tutti_base_step(tutti_method *m, tutti_error *err);
/* The same on x (n) instead of m->x, the update alone under `door` (NULL: none), the learning rate
   times `factor`. The client's optimiser is called without the door: what it has changed is added
   to x under it. */
tutti_status tutti_base_step_on(tutti_method *m, float *x, tutti_monitor *door, double factor,
                                tutti_error *err);
/* tutti_base_step where there are several in a step, which the method counts: *updates is one more
   where there was an update, and is its rate.t. */
tutti_status tutti_base_step_counted(tutti_method *m, int64_t *updates, tutti_error *err);
/* Locks of a vector of the layout that all workers have in memory in common (tutti_world_common),
   each a word of that memory, 0 at first (src/engine/locks.c). With `rows` there is one a row of
   each matrix or table and one of each vector, as the tensors stand, else one of all. One is held
   for an update or a copy; that of a worker that is lost is taken over. Client thread. */
typedef struct tutti_locks { uint32_t *word; bool rows; } tutti_locks;
size_t tutti_locks_count(const tutti_method *m, bool rows);       /* words */
void tutti_locks_take(const tutti_method *m, uint32_t *word);
void tutti_locks_leave(uint32_t *word);
/* tutti_base_step_on, each part of the update under its lock. */
tutti_status tutti_base_step_locked(tutti_method *m, float *x, const tutti_locks *locks,
                                    tutti_error *err);
/* m->x := from (n), each part under its lock, all but rows that are asked for. / Those. */
void tutti_locked_read(tutti_method *m, const tutti_locks *locks, const float *from);
void tutti_locked_read_rows(tutti_method *m, const tutti_locks *locks, const float *from,
                            int tensor, const uint32_t *ids, size_t n);
/* What tutti_base_step does before the update, of the gradient as it stands in g. *rate: that of
   this step, with the scale that clip-norm asks for. *skip: leave the step out, which is counted
   and noted. Client thread; a collective with nonfinite=skip in a step that was exchanged, else of
   this worker alone. TUTTI_ERR_NUMBER. */
tutti_status tutti_base_check(tutti_method *m, tutti_rate *rate, bool *skip, tutti_error *err);
/* The same for methods whose gradient is taken elsewhere, by a server: g is scaled as clip-norm
   asks, and rate->scale is 1. */
tutti_status tutti_base_gradient(tutti_method *m, tutti_rate *rate, bool *skip, tutti_error *err);
/* A norm that does not depend on how a vector is cut (src/engine/norm.c). The flat space has blocks
   of TUTTI_NORM_BLOCK elements, from element 0 on; a vector's squared norm is the sum of theirs, in
   their order, and a block's is tutti_norm2 of it. The padding is 0 and adds nothing. clip-norm
   goes by that of g. So workers that have slices or shards, of whole blocks each, tell each other
   the sums of these, a double a block, add all in order, and have the bits of whoever has it all.

   sums (a double for each block of the range): of g as it stands, elements [first, first + count),
   of whole blocks, or up to the end (layout->used or n). Of tables whose rows are known the touched
   ones are read, which gives the same bits. Client thread, when what is exchanged has been
   exchanged; sends nothing. Of another vector tutti_norm2 of each of its blocks gives the same. */
enum { TUTTI_NORM_BLOCK = 4096 };
void tutti_norm2_blocks(const tutti_method *m, size_t first, size_t count, double *sums);
/* Within declare(), under TUTTI_SHARDED_OPTIMIZER: m->optim is the run's --optimizer, with slots
   for [first, first + count), kept as `keep`; for tutti_update within it. count 0: none.
   TUTTI_SLICE: it updates at servers, so TUTTI_ERR_USAGE where the optimiser is the client's. */
tutti_status tutti_optimizer_declare(tutti_method *m, tutti_plan *plan, size_t first, size_t count,
                                     tutti_keep keep, tutti_error *err);
/* The buffers (slots) of m->optim on this worker, over all of x: its momenta. declare: within
   declare(), by a method that will reset them, or take their mean (`average`). TUTTI_ERR_USAGE
   where the optimiser is the client's, whose buffers nobody can reach, and of a mean where a worker
   may leave out a step (nonfinite=skip, loss-scale), so that numbers of updates would differ.
   reset, average: client thread, within step(), after the update. reset: as before the first
   update: 0, and rate.t counts from 1 again. average: slot := mean over the workers, plain fp32,
   slot by slot; blocks. */
tutti_status tutti_buffers_declare(tutti_method *m, tutti_plan *plan, bool average,
                                   tutti_error *err);
void tutti_buffers_reset(tutti_method *m);
tutti_status tutti_buffers_average(tutti_method *m, tutti_error *err);
/* Where replicas are equal: this worker's samples of this step are in no update, so the run's count
   of samples (tutti_figures) goes without them, once all is quiet. Client thread, in step(). */
void tutti_discarded(tutti_method *m);
/* Workers that count the same steps without meeting (their numbers may differ by what the method
   allows): this worker sits this step out, as one that jumps over it. Its passes had 0 samples, and
   step() makes no update. It stays a step of the run, for tutti_engine_more, reports, epochs,
   checkpoints and the learning rate's schedule. It is no update (rate.t), none of this worker's
   steps (own_steps), and its samples are not the run's, once all is quiet. Nobody computes them in
   that epoch. Declared within declare(); sit_out: client thread, in step(). Where replicas differ,
   of methods with services, not under TUTTI_ASYNC. */
void tutti_sit_out_declare(tutti_method *m, tutti_plan *plan);
void tutti_sit_out(tutti_method *m);
/* The run ends here: no more gradients are handed out, those that were are computed, and then all
   clients are told (tutti_engine_ended). One worker says it. Client thread, in step(), under
   TUTTI_ASYNC, of clients that ask for their steps (tutti_engine_more). */
void tutti_end(tutti_method *m);
/* Of the gradient of this step, in the method's own count: summary's staleness, staleness_max,
   staleness_mean. */
void tutti_stale(tutti_method *m, uint64_t staleness);

/* ---- all workers ---- */

/* x := mean over the workers, plain fp32. Blocks; client thread. */
tutti_status tutti_average(tutti_method *m, float *x, tutti_error *err);
/* x (n numbers of the method's own) := their sum over the workers, plain fp32. Blocks; client
   thread. */
tutti_status tutti_sum(tutti_method *m, float *x, size_t n, tutti_error *err);
/* x := that of the first of my team, by all of it, plain fp32. Blocks; client thread. A team of
   one: nothing. */
tutti_status tutti_take_over(tutti_method *m, float *x, tutti_error *err);
/* all[r] := worker r's n values, mine among them, 0 of a worker that is lost. Blocks; client
   thread. */
tutti_status tutti_gather(tutti_method *m, const float *mine, size_t n, float *all,
                          tutti_error *err);
/* all := everybody's, one behind the other by rank: counts[r] elements of worker r, the same on
   all. Where no worker was lost. Blocks; client thread. */
tutti_status tutti_gather_v(tutti_method *m, const size_t *counts, tutti_buffer mine,
                            tutti_buffer all, tutti_error *err);

/* ---- services: `service` is an index of ops->services ---- */

/* [safe] The service's next round: blocks until a round is owed or, `free`, at once. TUTTI_CLOSED:
   the end. What is owed is done before all is quiet. */
tutti_status tutti_round(tutti_method *m, int service, bool free, tutti_error *err);
/* Client thread. */
void tutti_owe(tutti_method *m, int service, int64_t rounds);
/* Client thread: blocks until at most that many rounds are owed or under way. */
tutti_status tutti_await_rounds(tutti_method *m, int service, int64_t most, tutti_error *err);
/* Client thread, within a hook of a method with services, which holds `at`, a monitor of the
   method's: blocks, with `at` given up, until ready(of) is true. ready is called with `at` held;
   whoever makes it true wakes `at`. The time is exposed (engine.h), in virtual time too.
   TUTTI_TIMEOUT: that time of tutti_now_ns has passed. It ends with the sentence of a service of
   this worker that has failed: so also when a worker is lost without which the run does not go on.
   In a run that goes on ready() must come true without the lost; a service that hears of them wakes
   `at`. */
tutti_status tutti_await(tutti_method *m, tutti_monitor *at, bool (*ready)(void *of), void *of,
                         int64_t deadline_ns, tutti_error *err);
/* One request to that service of a member, and its one reply, in place of which nothing else is
   received. Any thread; blocks. note: the request's kind, a, b; on return the reply's. Kinds above
   0xFFFFFFF0 are the engine's. TUTTI_ERR_PEER: that worker is gone, or its service has failed.
   TUTTI_CLOSED: this worker ends, after a failure. Under FAULT_TOLERANT a call of a worker that is
   lost is not served, and an answer to one is OK. */
tutti_status tutti_call(tutti_method *m, int service, int member, tutti_note *note,
                        tutti_buffer request, tutti_buffer reply, tutti_error *err);
/* [safe] The next request to this service, from any member, in order of arrival. room: the same in
   each call; it is written at any time but from a request to the next call. Without room many
   requests may come at a time, with one they come one by one. TUTTI_CLOSED: the end. TUTTI_TIMEOUT:
   none has come until that time of tutti_now_ns. A service that sets a time owes somebody an answer
   then: all would else be quiet, and the service at work. */
tutti_status tutti_serve(tutti_method *m, int service, tutti_note *note, tutti_buffer room,
                         int64_t deadline_ns, tutti_error *err);
/* Answers what tutti_serve gave, at any time, in any order; each once; on the service's thread.
   answer: kind, a, b; NULL: zeros. It carries no payload: servers (server.h) answer with values. */
tutti_status tutti_reply(tutti_method *m, const tutti_note *request, const tutti_note *answer,
                         tutti_error *err);
/* Did that end so because a worker, err->rank, is lost, without which this run goes on? */
bool tutti_is_left_out(const tutti_method *m, tutti_status status, const tutti_error *err);
/* What a collective among `mates` ("the workers of its node") came to, without each of whom this
   worker cannot go on. Was one left out, then it leaves the run: TUTTI_ERR_PEER of its own rank,
   for which nobody answers but who was lost first. Any other status as it is. */
tutti_status tutti_leaves_with(const tutti_method *m, const char *mates, tutti_status status,
                               tutti_error *err);

/* ---- figures and events ---- */

/* Counts of whole numbers from 0 on: one by one up to TUTTI_HISTOGRAM_EXACT, above that four bins
   to a doubling. The last has all from its least value on. Plain numbers, so it may be declared
   state. */
enum { TUTTI_HISTOGRAM_EXACT = 1024, TUTTI_HISTOGRAM_BINS = 1081 };
typedef struct tutti_histogram { uint64_t count[TUTTI_HISTOGRAM_BINS]; } tutti_histogram;
void tutti_histogram_add(tutti_histogram *h, uint64_t value);
int tutti_histogram_bin(uint64_t value);
uint64_t tutti_histogram_least(int bin); /* the least value of a bin */
/* A figure of the method's for summary.json ("method_figures"): of a worker, or of the run (worker
   -1). The last value of a name counts, as worker 0 has it at the end. `name` is kept. Client
   thread; allocates. */
void tutti_metric(tutti_method *m, const char *name, int worker, double value);
/* The same of a figure that has a value for each of several `at` (0 ...), which come as
   [at, value]. / A histogram's bins that are not empty: at the value up to TUTTI_HISTOGRAM_EXACT,
   beyond at the bin's lower edge, which summary.json lists (histogram_edges). */
void tutti_metric_at(tutti_method *m, const char *name, int worker, int64_t at, double value);
void tutti_metric_histogram(tutti_method *m, const char *name, int worker,
                            const tutti_histogram *h);
/* Something for summary.json ("events") that worker 0 knows as well as anybody: what others tell is
   left away. / The same of one worker that others may not know of: what all have told stands there,
   with its rank, what several tell alike once. kind: kept. Client thread; allocates. */
void tutti_event(tutti_method *m, const char *kind, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void tutti_event_of(tutti_method *m, int worker, const char *kind, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
