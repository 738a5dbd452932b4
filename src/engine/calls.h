/* calls.h: calls of the engine for single methods and for the facilities (gossip, server). Code
   outside of the library has those of method.h. Client thread unless noted. */
#ifndef TUTTI_ENGINE_CALLS_H
#define TUTTI_ENGINE_CALLS_H
#include "tutti/method.h"
#pragma GCC visibility push(default)

/* lr, scale 1, t = updates + 1: skipped steps do not count. */
tutti_rate tutti_rate_now(const tutti_method *m);

/* Within pass(), of a step without exchange: divides the run's loss scale out of the previous
   pass's gradient in g. tutti_base_check does the same. */
void tutti_base_unscale(tutti_method *m);

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

/* x := the x of the first worker of this worker's group (m->team), plain fp32. All of the group
   call it. Blocks; client thread. In a group of one it does nothing. */
tutti_status tutti_take_over(tutti_method *m, float *x, tutti_error *err);

/* Maps the result of a collective among a group that this worker cannot do without; `peers` names
   it ("the workers of its node"). If a peer of the group is lost, this worker fails too:
   TUTTI_ERR_PEER with this worker's own rank, so that the peer lost first remains the cause, and
   a sentence that blames that peer. Any other status is returned unchanged. */
tutti_status tutti_fails_with(const tutti_method *m, const char *peers, tutti_status status,
                              tutti_error *err);

/* Client thread, within a hook of a method with services, which holds `at`, a monitor of the
   method: releases `at` and blocks until ready(of) is true. ready is called with `at` held; the
   thread that makes it true wakes `at`. The time is exposed (tutti.h), in virtual time too.
   TUTTI_TIMEOUT: deadline_ns, a time of tutti_now_ns, has passed. If a service of this worker
   fails, its error is returned, also when it fails because a worker is lost without which the run
   cannot continue. In a run that continues after losses ready() must become true without the lost
   worker; a service that learns of the loss wakes `at`. */
tutti_status tutti_await(tutti_method *m, tutti_monitor *at, bool (*ready)(void *of), void *of,
                         int64_t deadline_ns, tutti_error *err);

/* Records an event of one worker that others may not know of: those of all workers are listed, with
   their ranks, and equal ones once. kind: the pointer is kept. Client thread; allocates. */
void tutti_event_of(tutti_method *m, int worker, const char *kind, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* evaluate: *loss := the mean loss at the current x over samples that the client holds out of
   training, the same ones on all workers. Forward only, by this worker's client, and counted as
   its computing time; sends nothing. The caller must handle any value, NaN included. Client
   thread, within step(). declare: within declare(), by a method that will call evaluate:
   TUTTI_ERR_USAGE where no samples are held out. */
tutti_status tutti_evaluate_declare(tutti_method *m, tutti_error *err);
tutti_status tutti_evaluate(tutti_method *m, double *loss, tutti_error *err);
#pragma GCC visibility pop
#endif
