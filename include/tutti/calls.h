/* calls.h: what hooks and services of a method (method.h) may ask of the engine: exchanges,
   updates, collectives of all workers, requests to services, figures and events. Optional step
   modes that a method may declare are in steps.h. */
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

/* p->g := sum over the workers of weight_r g_r (weights sum to 1). It uses the run's codec, else
   the method's. Without one it is tutti_allreduce_weighted. A table (p->rows) is sent by rows
   while that takes fewer bytes than the whole (src/engine/rows.c): first the number of each
   worker's rows, then their ids and values. The same bits on all workers. Blocks; on the thread
   on which the exchange hook is called. Errors: those of the collectives; TUTTI_ERR_CORRUPT. */
tutti_status tutti_exchange(tutti_method *m, tutti_piece *p, double weight, tutti_error *err);
/* x (n elements, a displacement or the like, which tends to zero) := the unweighted mean over the
   workers, as one piece through the same codec; without a codec it is tutti_average.
   TUTTI_ERR_NUMBER, before anything is sent, where a worker's x is not finite or has a number
   that the codec makes infinite (fp16 beyond 65504): the sentence names worker, tensor and
   element. Where the mean is not finite every worker gets TUTTI_ERR_NUMBER. Client thread. */
tutti_status tutti_exchange_all(tutti_method *m, float *x, tutti_error *err);
/* Call within open(), before the first tutti_exchange_all: TUTTI_ERR_USAGE where the codec cannot
   encode displacements (TUTTI_CODEC_VOTES). */
tutti_status tutti_exchange_check_all(const tutti_method *m, tutti_error *err);
/* tutti_exchange that bypasses the method's codec: sums g uncompressed. The codec's state,
   residuals included, does not change. Requires tutti_exchange_declare. */
tutti_status tutti_exchange_plain(tutti_method *m, tutti_piece *p, double weight, tutti_error *err);
/* How would tutti_exchange encode this worker's gradient, with that weight, if all its pieces
   were exchanged now? For each tensor, in the order of the layout, whole[t] is the squared norm
   of what would be encoded, including what wrappers have retained; sent[t] is that of what would
   be sent, as decoded. Nothing is sent, and the codecs' state does not change. All are NaN for a
   gradient that is not finite, which wrappers pass through. Within the exchange of a step's first
   piece, with `m->whole`. It uses the same views as an exchange: where owners of parts add, those
   parts.

   declare: within declare(), after tutti_exchange_declare. TUTTI_ERR_USAGE where not every
   worker's own gradient is encoded (codec-hierarchy, codec-cost=auto-off), or the codec sums a
   part of it. Tensors that are summed uncompressed count as sent in full. */
tutti_status tutti_exchange_ask_declare(tutti_method *m, tutti_plan *plan, tutti_error *err);
tutti_status tutti_exchange_ask(tutti_method *m, double weight, double *whole, double *sent,
                                tutti_error *err);
/* An exchange hook: the mean, each worker weighted by its samples. */
tutti_status tutti_base_exchange(tutti_method *m, tutti_piece *p, tutti_error *err);
/* Within declare(): gradients are encoded by `spec` (codec.h), whose states are declared.
   TUTTI_ERR_USAGE where the run has a codec too. */
tutti_status tutti_exchange_declare(tutti_method *m, tutti_plan *plan, const char *spec,
                                    tutti_error *err);
/* After it, within declare(): gradients are encoded only once and all-gathered, whatever the
   number of workers: no owner of a part adds and encodes the sum again. TUTTI_ERR_USAGE, naming
   `option` ("requantize=off"), where collective=alltoall requests exactly that. */
tutti_status tutti_exchange_once(tutti_method *m, const char *option, tutti_error *err);
/* Within declare(), before tutti_exchange_declare: sums are hierarchical, through the leaders of
   groups of `team` workers (comm.h). The codec, if there is one, is used between leaders, as with
   codec-hierarchy for a run. TUTTI_ERR_USAGE, naming `option`: the run has a codec-hierarchy too,
   or an algorithm for sums over all. */
tutti_status tutti_exchange_teams(tutti_method *m, const char *option, int team, tutti_error *err);
/* *team := the number of workers of consecutive ranks in a group, parsed from the value of
   `option`: "none" (1), "machine" (the workers of one machine, equally many on each), or a
   number, which must divide the workers. TUTTI_ERR_USAGE: the value is invalid. */
tutti_status tutti_team_parse(const tutti_method *m, const char *option, const char *value,
                              int *team, tutti_error *err);
/* The spec of the codec of tutti_exchange, from declare() on; NULL: gradients are sent
   uncompressed. */
const char *tutti_exchange_codec(const tutti_method *m);

/* ---- updates ---- */

/* A local update must be one of tutti_base_step, _on, _counted and _locked, since the optimiser
   may be the client's (engine.h, optimizer "client"), which only these call. The engine refuses a
   client's optimiser for methods with TUTTI_OWNS_UPDATE or TUTTI_NON_GRADIENT_UPDATE, and where
   tutti_optimizer_declare keeps TUTTI_SLICE: such methods may use m->optim as they like. */

/* lr, scale 1, t = updates + 1: skipped steps do not count. */
tutti_rate tutti_rate_now(const tutti_method *m);
/* The rate of the update that follows `updates` updates (rate.t - 1 of tutti_rate_now). Any
   thread. */
tutti_rate tutti_rate_at(const tutti_method *m, uint64_t updates);
/* Within pass(), of a step without exchange: divides the run's loss scale out of the previous
   pass's gradient in g. tutti_base_check does the same. */
void tutti_base_unscale(tutti_method *m);
/* Votes on non-finite gradients, clips, updates. An exchange-only client makes the update itself,
   after step() is over. */
tutti_status tutti_base_step(tutti_method *m, tutti_error *err);
/* tutti_base_step on x (n elements) instead of m->x, with the learning rate times `factor`. Only
   the update holds the lock `lock` (NULL: none). The client's optimiser is called without the
   lock; the change that it makes is added to x under the lock. */
tutti_status tutti_base_step_on(tutti_method *m, float *x, tutti_monitor *lock, double factor,
                                tutti_error *err);
/* tutti_base_step for several updates in a step, which the method counts: *updates is incremented
   if an update was made, and is its rate.t. */
tutti_status tutti_base_step_counted(tutti_method *m, int64_t *updates, tutti_error *err);
/* Locks of a vector of the layout in memory that all workers share (tutti_world_common), each a
   word of that memory, 0 at first (src/engine/locks.c). With `rows` there is one lock per row of
   each matrix or table and one per vector, in the order of the tensors, else a single lock. A
   lock is held for an update or a copy; one held by a lost worker is taken over. Client thread. */
typedef struct tutti_locks { uint32_t *word; bool rows; } tutti_locks;
size_t tutti_locks_count(const tutti_method *m, bool rows);       /* words */
void tutti_locks_take(const tutti_method *m, uint32_t *word);
void tutti_locks_leave(uint32_t *word);
/* tutti_base_step_on, each part of the update under its lock. */
tutti_status tutti_base_step_locked(tutti_method *m, float *x, const tutti_locks *locks,
                                    tutti_error *err);
/* m->x := from (n elements), each part under its lock, except tables whose rows are requested
   (asks_rows). */
void tutti_locked_read(tutti_method *m, const tutti_locks *locks, const float *from);
/* The same for the n rows ids of such a table. */
void tutti_locked_read_rows(tutti_method *m, const tutti_locks *locks, const float *from,
                            int tensor, const uint32_t *ids, size_t n);
/* What tutti_base_step does before the update, on the gradient in g. *rate: that of this step,
   with the scale that clip-norm requires. *skip: skip the step; it has been counted, and an event
   reports it. Client thread; a collective with nonfinite=skip in a step that was exchanged, else
   local to this worker. TUTTI_ERR_NUMBER. */
tutti_status tutti_base_check(tutti_method *m, tutti_rate *rate, bool *skip, tutti_error *err);
/* tutti_base_check for methods whose gradient is applied elsewhere, by a server: g itself is
   scaled as clip-norm requires, and rate->scale is 1. */
tutti_status tutti_base_gradient(tutti_method *m, tutti_rate *rate, bool *skip, tutti_error *err);
/* A norm that does not depend on how a vector is partitioned (src/engine/norm.c). The flat space
   has blocks of TUTTI_NORM_BLOCK elements, from element 0 on; a vector's squared norm is the sum
   of the blocks' in their order, and a block's is tutti_norm2 of it. The padding is 0 and adds
   nothing. clip-norm uses this norm of g. So workers that each have a shard of whole blocks send
   each other the blocks' sums, a double per block, add all in order, and get the same bits as a
   worker with the whole vector.

   sums (a double for each block of the range) := the squared norms of the blocks of g in [first,
   first + count), which is whole blocks, or ends at layout->used or n. Of tables whose touched
   rows are known only those are read, which gives the same bits. Client thread, after all
   exchanges of the step; sends nothing. For another vector use tutti_norm2 of each of its
   blocks. */
enum { TUTTI_NORM_BLOCK = 4096 };
void tutti_norm2_blocks(const tutti_method *m, size_t first, size_t count, double *sums);
/* Within declare(), under TUTTI_SHARDED_OPTIMIZER: makes m->optim the run's --optimizer, with
   slots for [first, first + count), kept as `keep`; for tutti_update within that range. count 0:
   no slots. TUTTI_SLICE: updates are made at servers, so TUTTI_ERR_USAGE where the optimiser is
   the client's. */
tutti_status tutti_optimizer_declare(tutti_method *m, tutti_plan *plan, size_t first, size_t count,
                                     tutti_keep keep, tutti_error *err);
/* The buffers (slots) of m->optim on this worker, over all of x: its momenta. declare: within
   declare(), by a method that will reset them, or take their mean (`average`). TUTTI_ERR_USAGE
   where the optimiser is the client's, whose buffers are not accessible; and for a mean where a
   worker may skip a step (nonfinite=skip, loss-scale), so that numbers of updates would differ.
   reset, average: client thread, within step(), after the update. reset: as before the first
   update: 0, and rate.t counts from 1 again. average: slot := mean over the workers, plain fp32,
   slot by slot; blocks. */
tutti_status tutti_buffers_declare(tutti_method *m, tutti_plan *plan, bool average,
                                   tutti_error *err);
void tutti_buffers_reset(tutti_method *m);
tutti_status tutti_buffers_average(tutti_method *m, tutti_error *err);
/* Where replicas are equal: this worker's samples of this step are in no update, so the run's
   count of samples (tutti_figures) excludes them from the next time the run is quiescent. Client
   thread, in step(). */
void tutti_discarded(tutti_method *m);
/* For workers that count common steps without synchronising (their step numbers may differ by
   what the method allows): this worker skips this step. Its passes had 0 samples, and step()
   makes no update. It still counts as a step of the run, for tutti_engine_more, reports, epochs,
   checkpoints and the learning rate's schedule. It does not count as an update (rate.t) or as a
   step of this worker (own_steps), and its samples are subtracted from the run's the next time
   the run is quiescent. No worker computes them in that epoch. declare: within declare();
   sit_out: client thread, in step(). For methods with services whose replicas differ, not under
   TUTTI_ASYNC. */
void tutti_sit_out_declare(tutti_method *m, tutti_plan *plan);
void tutti_sit_out(tutti_method *m);
/* Ends the run: no more gradients are handed out, those already handed out are computed, and then
   all clients are notified (tutti_engine_ended). One worker calls it. Client thread, in step(),
   under TUTTI_ASYNC, with clients that call tutti_engine_more. */
void tutti_end(tutti_method *m);
/* Records the staleness of this step's gradient, in the method's unit: the summary's staleness,
   staleness_max and staleness_mean. */
void tutti_stale(tutti_method *m, uint64_t staleness);

/* ---- all workers ---- */

/* x := mean over the workers, plain fp32. Blocks; client thread. */
tutti_status tutti_average(tutti_method *m, float *x, tutti_error *err);
/* x (n numbers of any meaning) := their sum over the workers, plain fp32. Blocks; client thread. */
tutti_status tutti_sum(tutti_method *m, float *x, size_t n, tutti_error *err);
/* x := the x of the first worker of this worker's group (m->team), plain fp32. All of the group
   call it. Blocks; client thread. In a group of one it does nothing. */
tutti_status tutti_take_over(tutti_method *m, float *x, tutti_error *err);
/* all[r] := worker r's n values, this worker's included; 0 for a lost worker. Blocks; client
   thread. */
tutti_status tutti_gather(tutti_method *m, const float *mine, size_t n, float *all,
                          tutti_error *err);
/* all := the elements of all workers, concatenated by rank: counts[r] elements of worker r.
   counts is the same on all. Legal only if no worker was lost. Blocks; client thread. */
tutti_status tutti_gather_v(tutti_method *m, const size_t *counts, tutti_buffer mine,
                            tutti_buffer all, tutti_error *err);

/* ---- services: `service` is an index of ops->services ---- */

/* [safe] Begins the service's next round: blocks until a round is pending (tutti_round_post); with
   `free` a round begins at once. TUTTI_CLOSED: the end. The run is quiescent only when no round
   is pending. */
tutti_status tutti_round_next(tutti_method *m, int service, bool free, tutti_error *err);
/* Requests that many rounds of the service. Client thread. */
void tutti_round_post(tutti_method *m, int service, int64_t rounds);
/* Client thread: blocks until at most `most` rounds are pending or in progress. */
tutti_status tutti_round_await(tutti_method *m, int service, int64_t most, tutti_error *err);
/* Client thread, within a hook of a method with services, which holds `at`, a monitor of the
   method: releases `at` and blocks until ready(of) is true. ready is called with `at` held; the
   thread that makes it true wakes `at`. The time is exposed (engine.h), in virtual time too.
   TUTTI_TIMEOUT: deadline_ns, a time of tutti_now_ns, has passed. If a service of this worker
   fails, its error is returned, also when it fails because a worker is lost without which the run
   cannot continue. In a run that continues after losses ready() must become true without the lost
   worker; a service that learns of the loss wakes `at`. */
tutti_status tutti_await(tutti_method *m, tutti_monitor *at, bool (*ready)(void *of), void *of,
                         int64_t deadline_ns, tutti_error *err);
/* Sends a request to that service of a member and blocks for its reply (RPC); a reply matches
   only its own request. Any thread. note: the request's kind, a, b; on return the reply's. Kinds
   above 0xFFFFFFF0 are reserved for the engine. TUTTI_ERR_PEER: that worker is lost, or its
   service has failed. TUTTI_CLOSED: this worker ends, after a failure. Under FAULT_TOLERANT a
   request of a lost worker is not served, and a reply to it is TUTTI_OK. */
tutti_status tutti_rpc_call(tutti_method *m, int service, int member, tutti_note *note,
                            tutti_buffer request, tutti_buffer reply, tutti_error *err);
/* [safe] Receives the next request to this service, from any member, in order of arrival. room:
   the buffer for payloads, the same in each call; its contents are stable only from the return
   with a request to the next call. Without a buffer several requests may be received
   concurrently, with one they are received one by one. TUTTI_CLOSED: the end. TUTTI_TIMEOUT: none
   has arrived until deadline_ns, a time of tutti_now_ns. Use a deadline only while a request is
   unanswered; otherwise the run could be declared quiescent while the service is active. */
tutti_status tutti_rpc_receive(tutti_method *m, int service, tutti_note *note, tutti_buffer room,
                               int64_t deadline_ns, tutti_error *err);
/* Replies to a request of tutti_rpc_receive, at any time, in any order, once each; on the service's
   thread.
   answer: kind, a, b; NULL: zeros. It carries no payload: servers (server.h) reply with values. */
tutti_status tutti_rpc_reply(tutti_method *m, const tutti_note *request, const tutti_note *answer,
                             tutti_error *err);
/* Does `status` mean that worker err->rank is lost, and that this run continues without it? */
bool tutti_is_left_out(const tutti_method *m, tutti_status status, const tutti_error *err);
/* Maps the result of a collective among a group that this worker cannot do without; `peers` names
   it ("the workers of its node"). If a peer of the group is lost, this worker fails too:
   TUTTI_ERR_PEER with this worker's own rank, so that the peer lost first remains the cause, and
   a sentence that blames that peer. Any other status is returned unchanged. */
tutti_status tutti_fails_with(const tutti_method *m, const char *peers, tutti_status status,
                              tutti_error *err);

/* ---- figures and events ---- */

/* A histogram of integers from 0 on: one bin per value up to TUTTI_HISTOGRAM_EXACT, above that
   four bins per doubling. The last bin counts all values from its lower edge on. Plain numbers,
   so it may be declared state. */
enum { TUTTI_HISTOGRAM_EXACT = 1024, TUTTI_HISTOGRAM_BINS = 1081 };
typedef struct tutti_histogram { uint64_t count[TUTTI_HISTOGRAM_BINS]; } tutti_histogram;
void tutti_histogram_add(tutti_histogram *h, uint64_t value);
int tutti_histogram_bin(uint64_t value);
uint64_t tutti_histogram_least(int bin); /* the least value of a bin */
/* Sets a figure of the method in summary.json ("method_figures"): of a worker, or of the run
   (worker -1). The last value set for a name counts, as worker 0 has it at the end. The pointer
   `name` is kept. Client thread; allocates. */
void tutti_metric(tutti_method *m, const char *name, int worker, double value);
/* tutti_metric for a figure with a value at each of several indexes `at` (0 ...), written as
   [at, value]. */
void tutti_metric_at(tutti_method *m, const char *name, int worker, int64_t at, double value);
/* tutti_metric_at for each non-empty bin of a histogram: `at` is the value up to
   TUTTI_HISTOGRAM_EXACT, beyond it the bin's lower edge, which summary.json lists
   (histogram_edges). */
void tutti_metric_histogram(tutti_method *m, const char *name, int worker,
                            const tutti_histogram *h);
/* Records an event for summary.json ("events") that worker 0 records as well: events of other
   workers are dropped. kind: the pointer is kept. Client thread; allocates. */
void tutti_event(tutti_method *m, const char *kind, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Records an event of one worker that others may not know of: those of all workers are listed, with
   their ranks, and equal ones once. kind: the pointer is kept. Client thread; allocates. */
void tutti_event_of(tutti_method *m, int worker, const char *kind, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
