/* steps.h: optional step modes, which a method (method.h) declares: samples by index, assignment of
   passes, variable batch; pieces that are repartitioned, updated one by one, or sharded; runs that
   tune themselves. Modes of a single method of the tree are in src/engine/modes. */
#ifndef TUTTI_METHOD_STEPS_H
#define TUTTI_METHOD_STEPS_H
#include "../method.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* ---- samples by index, times, assignment of passes ---- */

/* Within declare(): passes may have `ids` and `losses` (tutti_pass). TUTTI_ERR_USAGE where the
   client cannot take samples by index and report each one's loss (engine_options.names), where
   the number of samples is not given (data_samples), or each worker has its own (parts). */
tutti_status tutti_names_declare(tutti_method *m, tutti_error *err);
/* Time that this worker has spent computing so far in this process, without any waiting or
   exchange, in ns; use differences of it. Client thread. */
int64_t tutti_computed_ns(const tutti_method *m);
/* Assignment of a step's samples (workers x batch x accumulate) to workers. By default each
   worker makes `accumulate` passes of `batch`, or of the client's batch_of. A method that assigns
   them itself calls tutti_passes_assign_declare within declare(). Then the step is split into
   passes of `samples` (which must divide it), and all passes are at first assigned evenly.
   tutti_passes_assign reassigns them: within open(), or within step() from the next step on.
   passes_of: [workers], not negative, summing to the number of all passes; the same on all workers
   (not checked). The positions of a step do not change. A checkpoint has the assignment. */
tutti_status tutti_passes_assign_declare(tutti_method *m, tutti_plan *plan, int64_t samples,
                                         tutti_error *err);
tutti_status tutti_passes_assign(tutti_method *m, const int64_t *passes_of, tutti_error *err);
/* A `pass` hook: gradients are divided by the number of all workers' samples of the step, so that
   their sum is the mean, whatever the assignment. */
tutti_status tutti_passes_divide(tutti_method *m, tutti_pass *p, tutti_error *err);

/* ---- variable batch (src/engine/modes/batch.c) ---- */

/* Variable batch: a worker takes as many samples in a step as its method decides, possibly none,
   and all workers learn all counts: m->samples and m->weight follow from them. Every sample of an
   epoch is taken once. Epochs and the run's end (tutti_engine_more_epochs,
   _more_samples) count samples taken. For the schedule of the learning rate, workers x batch x
   accumulate samples are one nominal step, and m->steps is the number of nominal steps in the run.
   A step is still one of all workers together: m->step, reports and checkpoints
   count it even if some workers took nothing. A worker that took nothing made no step of its own
   (own_steps, rate.t where replicas differ).

   When does a worker know its count?

   1. *Before the first pass*. In the pass hook of pass 0 the method calls tutti_batch_exchange,
      which gathers all counts, or tutti_batch_set if every worker can compute all counts itself.
      The step takes the next positions of the epoch's order: pass a of all workers that have one
      comes before pass a + 1 of any, by rank, as in base.h. So with equal counts the samples are
      ddp's, to the bit. A step that would go beyond the epoch, or the run's end, is shortened
      there in proportion, as base.h shortens a last step. Both calls fill in *p again. Passes have
      at most `pass` samples, and the last of them exchanges.
   2. *While it computes* (option `leased`). Each worker leases positions of the order ahead. The
      pass hook calls tutti_batch_next_pass before each pass. If that returns false it calls
      tutti_batch_close and returns TUTTI_CLOSED: the step has no further pass, and none at all if
      that was the first. A worker keeps the unused rest of a lease. The run's last samples are
      assigned in proportion to what workers took in the previous step, so that all end together.
      Each of the last two steps is at least half a step, and the last takes all that is left,
      whatever its time. So each sample of each epoch is taken once by the end of the run, and no
      worker waits at an epoch's end. A step exchanges its pieces if the hook that closes it sets
      p->exchange. From then on the gradient in g is divided by the number of this worker's samples,
      or by the number given to tutti_batch_divide_by.

   With parts (base.h) each worker goes over its own; its position in them is declared state.

   pass: most samples of a pass. 0: the run's batch. It becomes share->batch.
   most: most samples of a worker in a step. 0: the run's batch x accumulate. With `leased` the
   bound of a step may be lower: D / (4 workers), or a pass if that is more. even: without `leased`:
   a worker takes `most` or nothing. A client with a fixed batch size needs this. What it computes
   in a step without samples does not count. record, replay: file names, the pointers are kept; ""
   or NULL: none. Worker 0 records what each worker took in each step: a line
   {"workers":4,"pass":8,"most":512,"seed":1} and then lines {"step":0,"took":[64,32]}. With replay
   exactly those counts are taken, so that the run has the recorded run's bits. Each worker reads
   the file. TUTTI_ERR_USAGE from open: the recorded number of workers or of samples of a pass
   differs.

   A checkpoint contains all of this. It can be resumed only with the number of workers that saved
   it. A lost worker ends the run. TUTTI_ERR_USAGE in declare: TUTTI_ASYNC, TUTTI_FAULT_TOLERANT,
   batch_of, servers. unit_release must not return TUTTI_CLOSED. */
typedef struct tutti_batch_options {
    int64_t pass, most;
    bool leased, even;
    const char *record, *replay;
} tutti_batch_options;
/* Rows of a method's option table for record and replay. */
#define TUTTI_BATCH_RECORD(at) \
    { "record", TUTTI_TEXT, at, 0, 0, 0, "", \
      "file in which to record how many samples each worker took in each step", NULL, \
      "writes that file" }
#define TUTTI_BATCH_REPLAY(at) \
    { "replay", TUTTI_TEXT, at, 0, 0, 0, "", \
      "file of record: the same counts again, and so the same bits; on every host" }
/* Within declare(). */
tutti_status tutti_batch_declare(tutti_method *m, tutti_plan *plan,
                                 const tutti_batch_options *options, tutti_error *err);
/* Way 1. Within pass(), of pass 0, once per step, on all workers. mine: 0 ... most; under replay
   the file's count replaces it. of ([workers], may be NULL): what each takes, after shortening. All
   0 is legal where the step exchanges nothing. batch_exchange blocks: one all-gather of the
   workers' counts, an int64 each. batch_set sends nothing; wanted ([workers]): the same on all. */
tutti_status tutti_batch_exchange(tutti_method *m, tutti_pass *p, int64_t mine, int64_t *of,
                                  tutti_error *err);
tutti_status tutti_batch_set(tutti_method *m, tutti_pass *p, const int64_t *wanted, int64_t *of,
                             tutti_error *err);
/* Way 2. Within pass(). Is there another pass? wanted: what the method wants. The result is false
   also when no samples are left, and may be true in the run's last step though wanted is false.
   Under replay the file decides. If true, the method may reduce p->samples, which the engine has
   filled in, to 1 at least; not under replay. */
bool tutti_batch_next_pass(tutti_method *m, bool wanted);
/* Blocks: one all-gather of an int64. */
tutti_status tutti_batch_close(tutti_method *m, int64_t *of, tutti_error *err);
/* Between tutti_batch_close and the return from the hook: g := the sum of the step's loss
   gradients divided by `samples`, above 0, instead of by m->samples. */
void tutti_batch_divide_by(tutti_method *m, double samples);

/* ---- pieces: partitioned, ordered, updated one by one ---- */

/* Partitioned by bytes (m->cut_bytes). Sums have the same bits whatever the partition.
   TUTTI_ERR_USAGE with a codec, which encodes whole tensors.

   Updated by piece (tutti_by_piece_declare). The run's optimiser updates a piece as soon as it is
   exchanged and the backward of the units that it overlaps is over, on the thread that finishes
   last. The result has the bits of an update at the end of the step. step() does not wait, and
   unit_acquire() of the next step waits for the pieces that overlap its unit. So the forward of a
   unit waits for its own parameters only. The waiting is exposed time.

     x           of a unit is as the last step left it only between unit_acquire and unit_release of
                 it; of the hooks only final_model, quiesce and those of facilities may read it
     g           may be used by the exchange hook only
     step        is no hook, or is not called (m->no_step): a method does a step's work in pass
     exchange    may run when the next step has begun. It reads p (step, weight, group) instead
                 of m
     rate        that of the gradient's own step, as of the beginning of its exchanging pass
     quiescent   before a checkpoint, an evaluation or the end all pieces are waited for. So a
                 run is resumed to the bit, by any number of workers
     a failure   of an exchange ends the run. The next call that waits for it, or pass, returns it

   A client promises by engine_options.needs that it calls unit_acquire and unit_release as
   required. With a client that does not, a step waits for all of its pieces before it ends, since
   that client may read values at any time.

   Within declare(). TUTTI_ERR_USAGE, once all is declared: in this run it is not possible. It needs
   an exchange, equal replicas and the run's optimiser, and does not go with clip-norm,
   nonfinite=skip, loss-scale, a codec, the client's optimiser, `whole`, or what
   tutti_batch_declare, late exchange and merged steps do (src/engine/modes). */
tutti_status tutti_by_piece_declare(tutti_method *m, tutti_error *err);
/* Within pass(), of a step's first pass, on all workers in the same step: pieces have other sizes
   from this step on. Blocks until all pieces in flight are exchanged. TUTTI_ERR_USAGE: below
   piece_bytes_least; first_piece_bytes 0 or above piece_bytes; with a codec, late exchange, or
   servers that go by pieces. */
tutti_status tutti_recut(tutti_method *m, size_t piece_bytes, size_t first_piece_bytes,
                         tutti_error *err);

/* ---- shards: each worker updates a part of every piece (src/engine/modes/shards.c) ---- */

/* Every piece is partitioned into a shard for each worker, by rank, at multiples of 16 elements
   (a line of 64 bytes) from its first element on: as evenly as lines allow, the first workers
   having one line more. Nothing is padded, and a small piece may leave the last workers nothing.
   Optimiser state of an element is on one worker, and all workers together update as many
   elements as a single worker would.

     declare    m->optim is the run's --optimizer, with slots for this worker's shards. They are
                placed: any number of workers, with or without shards, can load a checkpoint
     exchange   tutti_shards_exchange: in this worker's shard p->g becomes the mean, with
                the bits of tutti_base_exchange. Elsewhere it is undefined
     step       tutti_shards_step: the vote, the norm and the scale of tutti_base_step, with its
                bits; then the update of the own shards. Then x is all-gathered, pieces from the
                last to the first, concurrently with the next step: unit_acquire waits for those
                that overlap the unit. So x is valid as m->overlaps_steps states. Without
                engine_options.needs a step waits for all
     sent       of a piece, per step: to each worker its shard of g, and the own shard of x. With
                clip-norm in addition 8 bytes per block of TUTTI_NORM_BLOCK elements to all, by the
                worker that has its first element, which receives the block's other elements

   With groups (tutti_shards_group) a piece is partitioned over the workers of a group, and groups
   are replicas of each other. A shard is reduced within the group, then by an all-reduce among the
   workers that have the same shard. Everything else (values, the norm) is exchanged within the
   group. Declared state is saved once, a part of it by each group.

   declare: within declare(), under TUTTI_SHARDED_OPTIMIZER, once the method has set how pieces are
   partitioned. TUTTI_ERR_USAGE: a method whose replicas differ, whose tables go by rows, or that
   uses another mode of pieces (order, by_piece, late exchange, merged steps); an
   optimiser that is the client's, or lazy.
   group: before declare: the groups, parsed from the value of `option` (tutti_team_parse; "none":
   all workers are one group). TUTTI_ERR_USAGE also: several groups whose number of workers is not a
   power of two, since sums would have other bits; groups for which `collective` cannot be used.
   count: elements that worker updates, copies (commit) included, from declare() on. */
tutti_status tutti_shards_group(tutti_method *m, const char *option, const char *value,
                                tutti_error *err);
tutti_status tutti_shards_declare(tutti_method *m, tutti_plan *plan, tutti_error *err);
tutti_status tutti_shards_exchange(tutti_method *m, tutti_piece *p, tutti_error *err);
tutti_status tutti_shards_step(tutti_method *m, tutti_error *err);
size_t tutti_shards_count(const tutti_method *m, int worker);

/* ---- held by piece: no gradient of the whole model (src/engine/modes/held.c) ---- */

/* m->held BY_PIECE, which declare() sets before tutti_shards_declare: of the gradient a worker
   holds only its own shards and a buffer for each piece in flight. A piece has its buffer, p->g,
   from the first tensor's gradient until its exchange is over. Only that exchange reads it, and
   m->g is NULL. So the memory of gradients is n/N and two buffers of the largest piece. If
   gradients become ready in another order than parameters are stored, incomplete pieces need more
   buffers, which are then allocated.

   pieces     all go to the lane, and start by index. Without threads each is exchanged as soon as
              it and those before it are complete
   client     passes gradients in its own memory: tutti_engine_grad_ready_from, or
              grad_ready with tutti_param's gradient. tutti_engine_gradient returns NULL
   passes     each is exchanged completely and added to the shards (accumulate): A times the bytes
              of gradients, and another order of the sum than over passes first. All workers make
              the same number, some without samples if need be. pass->keep is false
   bytes: of gradient buffers that are not shards, so far in this process. */
size_t tutti_held_bytes(const tutti_method *m);

/* ---- held by unit: no values of the whole model (src/engine/modes/units.c) ---- */

/* Held by piece, and of the values a worker holds its own shards, and a unit's values from
   unit_acquire to unit_release: trait TUTTI_SHARDED_PARAMETERS, with tutti_shards_declare. Pieces
   end with units. m->x is NULL, so no other part of a method can read values.

   acquire    the unit's pieces are gathered, unless that was started during the unit before
   step       tutti_shards_step: shards are updated, and nothing is sent
   memory     n/N, and as many buffers of the largest unit's size as are acquired at once, and one
   sent       values of a unit whenever it is acquired and not present: twice per step, three times
              where backward recomputes it. Units of at most keep_values values: once per step
   clients    engine_options.needs; tutti_param.values are refused. In an evaluation, and
              after finish, unit_acquire and unit_release provide it unit by unit; all workers make
              the same calls. Clients of other methods may do so too
   bytes: of values that are not shards: buffers, and units that stay. */
size_t tutti_units_bytes(const tutti_method *m);

/* ---- a run that tunes itself (src/engine/modes/tune.c) ---- */

/* Within declare(): while the run trains, points of a box of knobs are tried, each for a window
   of steps, and the fastest is kept (search.h has the rules). The default is the first point, and
   is kept unless another was faster in every pair of windows in which the two were measured
   again, and by 1 % of a step overall. So a run is never slower in the end than with the default,
   up to the uncertainty of a window.

   A knob must not change any bit of the model.

   tuner: the search (base.h, knobs); `first` of the knobs is the default. seed: the run's.
   drop, steps: of a window: the first `drop` steps do not count (pipelines fill, caches warm up);
   the median of the next `steps` does, on worker 0's clock, without reports, evaluations and
   checkpoints.
   apply: sets the knobs to these values from this step on: called within the step's first pass,
   before the method's pass hook, on all workers in the same step, with the same values. Also in the
   first step of a process, with the default or with the values of the resumed run. It may block, as
   tutti_recut does. It must turn an invalid point into a valid one, the same on all workers.

   Sent: 96 bytes in a broadcast from worker 0, in group order, when a window is over; in windows of
   points after the first also once after a quarter of the steps ((steps + 3) / 4), where a clearly
   slower point is given up. Nothing once the search is over. With one worker nothing is tuned.
   Reported, by worker 0: events of kind "tune"; figures tune_NAME of each knob, its current value,
   tune_points, and tune_seconds: time of the search and its broadcasts in this process.
   Declared: all of it. A resumed run continues, and restarts the interrupted window.
   The run needs every worker. TUTTI_ERR_USAGE: TUTTI_ASYNC; TUTTI_FAULT_TOLERANT unless a loss ends
   the run anyway (a method's traits_of must remove it when it tunes); an invalid box. */
typedef struct tutti_tune_options {
    tutti_tuner_options tuner;
    int64_t drop, steps;
    tutti_status (*apply)(tutti_method *m, const double *value, tutti_error *err);
} tutti_tune_options;
tutti_status tutti_tune_declare(tutti_method *m, tutti_plan *plan,
                                const tutti_tune_options *options, tutti_error *err);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
