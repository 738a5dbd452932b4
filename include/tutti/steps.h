/* steps.h: steps of another kind, which a method (method.h) declares: over samples that it moves,
   names, deals out or counts; with one update for several of them; with pieces that are cut anew,
   updated one by one, in shards, or late; in a run that tunes itself. */
#ifndef TUTTI_STEPS_H
#define TUTTI_STEPS_H
#include "pass.h"
#include "state.h"
#include "tune.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* ---- samples on the way (src/engine/given.c) ---- */

/* Within declare(): workers send each other raw samples. A pass has at most `most` of others, and a
   worker gives one other at most so many of its own in a step. TUTTI_ERR_USAGE: the client has none
   to give (engine_options.give). */
tutti_status tutti_give_declare(tutti_method *m, tutti_plan *plan, int64_t most, tutti_error *err);
/* The class of a sample of the training set, as the client says it; -1: it says none. */
int tutti_sample_label(const tutti_method *m, uint64_t id);
/* Within pass(), at most once a step, of a step's first pass, all workers together: moves samples
   between pairs, and p->received, p->given and p->samples say that the pass has those that came.
   The hook sees to p->divisor.

   ids: those that this worker gives, indexes in the training set; to[w] of them for worker w, back
   to back by rank. from[w]: how many it gets of worker w. workers entries each, 0 at the own rank.
   What one gives must be what the other expects: TUTTI_ERR_CORRUPT with both numbers where that
   differs. Who expects any of a worker that gives it none is not told, and waits. Samples come by
   rank of who gave them, in its order. A pair with samples has one message of sample_bytes each,
   another none. Blocks. */
tutti_status tutti_give(tutti_method *m, tutti_pass *p, const uint64_t *ids, const int64_t *to,
                        const int64_t *from, tutti_error *err);
/* Within pass(): until that time of tutti_now_ns, because samples are waited for (data_ns of
   engine.h). Blocks. declare: within declare(), by a method that does so by a model of its own of
   samples that arrive. TUTTI_ERR_USAGE: the client has one too (engine_options.streams), and each
   would wait for samples of which the other knows nothing. */
tutti_status tutti_await_samples_declare(const tutti_method *m, tutti_error *err);
void tutti_await_samples(tutti_method *m, int64_t until_ns);

/* ---- losses held out, times, who computes what ---- */

/* *loss: of x as it stands, the mean over samples that the client holds out of training, the same
   ones on all workers. Forward only, by this worker's client, whose computing time it takes; sends
   nothing. What it is, a NaN included, is the caller's to judge. Client thread, within step(). The
   method says within declare() that it will ask: TUTTI_ERR_USAGE there where nothing is held
   out. */
tutti_status tutti_evaluate_declare(tutti_method *m, tutti_error *err);
tutti_status tutti_evaluate(tutti_method *m, double *loss, tutti_error *err);
/* Within declare(): passes may have `ids` and `losses` (tutti_pass). TUTTI_ERR_USAGE where the
   client cannot take samples by name and tell each one's loss (engine_options.names), where nobody
   says how many there are (data_samples), or where each worker has samples of its own (parts). */
tutti_status tutti_names_declare(tutti_method *m, tutti_error *err);
/* What this worker has spent computing so far in this process, without any waiting or exchange, in
   ns: differences of it are times. Client thread. */
int64_t tutti_computed_ns(const tutti_method *m);
/* Who computes how much of a step: workers x batch x accumulate samples. By default each worker
   makes `accumulate` passes of `batch`, or of the client's batch_of. A method that decides it says
   so within declare(). Then the step is cut in passes of `samples` (which must divide it), and all
   passes are dealt out evenly at first. tutti_allot deals them anew: within open(), or within
   step() from the next step on. passes_of: workers, not negative, summing to all passes; the same
   on all workers (not checked). The positions that a step uses do not change. A checkpoint keeps
   the deal. */
tutti_status tutti_allot_declare(tutti_method *m, tutti_plan *plan, int64_t samples,
                                 tutti_error *err);
tutti_status tutti_allot(tutti_method *m, const int64_t *passes_of, tutti_error *err);
/* A `pass` hook: gradients are over everybody's samples of the step, so that what is summed is the
   mean, however they were dealt. */
tutti_status tutti_allot_pass(tutti_method *m, tutti_pass *p, tutti_error *err);

/* ---- free sample counts (src/engine/take.c) ---- */

/* A worker takes as many samples in a step as its method likes, none too, and all learn what all
   took: m->samples and m->weight follow from that. Every sample of an epoch is taken once. Epochs,
   schedules and the run's end (tutti_engine_more_epochs, _more_samples) go by samples taken:
   `workers x batch x accumulate` of them are a step to lr-schedule and to m->steps, which is how
   many such steps the run has, whatever it makes. A step stays one of all workers
   together: m->step, reports and checkpoints count it whoever took nothing in it. A worker that
   took nothing made no step of its own (own_steps, rate.t where replicas differ).

   When does a worker know its count?

   1. Before the first pass. In the pass hook of pass 0 the method says it: tutti_take_tell where
      the others' are not known, which gathers them, or tutti_take_known where all follow from what
      all know. The step takes the next positions of the epoch's order: pass a of all that have it
      stands before pass a + 1 of any, by rank, as share.h has it. So equal counts are ddp's samples
      to the bit. A step that would go beyond the epoch, or the run's end, is cut there in
      proportion, as share.h cuts a last step. Both calls fill in *p anew. The passes are of at
      most `pass` samples, and the last of them exchanges.
   2. When its time is over (`lent`). Each worker is lent positions of the order ahead. The pass
      hook asks tutti_take_another before each pass. Where that says no it calls tutti_take_close
      and returns TUTTI_CLOSED: the step has no further pass, none at all where that was the first.
      What is left of a loan stays the worker's. The run's last samples are dealt out in proportion
      to what workers took in the last step, so that all end together. The last two steps are no
      less than half of one, and the last takes all that is left, whatever its time. So each sample
      of each epoch is taken once by the end of the run, and nobody waits at an epoch's end. A step
      exchanges its pieces if the hook that closes it sets p->exchange. The gradient in g, from then
      on, is over the samples of this worker, or over as many as tutti_take_divide says.

   With parts (share.h) each worker goes over its own, and what it has taken of them is declared.

   pass: samples of a pass at most. 0: the run's batch. It becomes share->batch.
   most: samples of a worker in a step at most. 0: the run's batch x accumulate. With `lent` a step
   may get fewer: D / (4 workers), or a pass if that is more.
   even: without `lent`: a worker takes `most` or nothing. So a client that has equal batches and
   nothing else can go along: what it computes of a step without samples does not count.
   record, replay: files, kept; "" or NULL: none. Worker 0 writes what each worker took in each
   step: a line {"workers":4,"pass":8,"most":512,"seed":1} and then lines {"step":0,"took":[64,32]}.
   With replay those counts are taken and no others, so that the run has the recorded one's bits.
   Each worker reads the file. TUTTI_ERR_USAGE while opening: it is of other workers, or other
   samples of a pass.

   A checkpoint has all of it. It is resumed with the number of workers that saved it. A lost worker
   ends the run. TUTTI_ERR_USAGE in declare: TUTTI_ASYNC, TUTTI_FAULT_TOLERANT, batch_of, servers.
   done may not give TUTTI_CLOSED. */
typedef struct tutti_take_options {
    int64_t pass, most;
    bool lent, even;
    const char *record, *replay;
} tutti_take_options;
/* Rows of a method's option table for two of them. */
#define TUTTI_TAKE_RECORD(at) \
    { "record", TUTTI_TEXT, at, 0, 0, 0, "", \
      "file to write down how many samples each worker took in each step", NULL, \
      "writes that file" }
#define TUTTI_TAKE_REPLAY(at) \
    { "replay", TUTTI_TEXT, at, 0, 0, 0, "", \
      "file of record: the same counts again, and so the same bits; on every host" }
/* Within declare(). */
tutti_status tutti_take_declare(tutti_method *m, tutti_plan *plan,
                                const tutti_take_options *options, tutti_error *err);
/* Samples that this worker may still take in this step. */
int64_t tutti_take_left(const tutti_method *m);
/* 1. Within pass(), of pass 0, once a step, on all workers. mine: 0 ... most; under replay that of
   the file in its place. of (workers, may be NULL): what each takes, after the cut. All 0 is legal
   where the step exchanges nothing. tell blocks, and each worker sends its count, an int64, in one
   all-gather of the workers; known sends nothing, and `wanted` (workers) is the same on all. */
tutti_status tutti_take_tell(tutti_method *m, tutti_pass *p, int64_t mine, int64_t *of,
                             tutti_error *err);
tutti_status tutti_take_known(tutti_method *m, tutti_pass *p, const int64_t *wanted, int64_t *of,
                              tutti_error *err);
/* Where pass `pass` of this worker begins, and its samples (0: there is none). So a method may
   change *p's epoch and position within the step: its passes in another order, or some of their
   samples again. */
int64_t tutti_take_place(const tutti_method *m, int64_t pass, uint64_t *epoch, uint64_t *position);
/* 2. Within pass(). Is there another pass? wanted: as far as the method is concerned. false: also
   because nothing is left. true: also in the run's last step. Under replay as the file has it.
   p->samples, which the engine has filled in, may then be made less, down to 1, and not under
   replay. */
bool tutti_take_another(tutti_method *m, bool wanted);
/* Blocks: one all-gather of an int64. */
tutti_status tutti_take_close(tutti_method *m, int64_t *of, tutti_error *err);
/* Between tutti_take_close and the return from the hook: g := the sum of the losses' gradients of
   the step over `samples`, above 0, in place of m->samples. */
void tutti_take_divide(tutti_method *m, double samples);

/* ---- one update for several steps (src/engine/merge.c) ---- */

/* One update for several steps (src/engine/merge.c). Within declare(), of methods whose replicas
   are equal: passes may have `merge`. After the last of them, in which pieces are exchanged and
   step() is called as ever, g is the mean over the samples of all these steps. Steps that wait
   count for schedules, which go by samples, and not for rate.t. A run's last step never waits. A
   checkpoint may be made in between. */
tutti_status tutti_merge_declare(tutti_method *m, tutti_plan *plan, tutti_error *err);
/* Steps of the update under way, this one included. */
int64_t tutti_merged(const tutti_method *m);

/* ---- pieces: cut, ordered, updated one by one (layout.c, pieces.c, by_piece.c) ---- */

/* Cut by bytes (m->cut_bytes). Sums have the same bits however pieces are cut. TUTTI_ERR_USAGE
   under a codec: it encodes whole tensors.

   Updated by piece (m->by_piece). The run's optimiser updates a piece as soon as it is exchanged
   and the backward of the units that it meets is over, on the thread that comes last to that. The
   result has the bits of an update at the end of the step. step() goes on, and unit_acquire()
   of the next step waits for the pieces that meet its unit. So the forward of a unit waits for its
   own parameters only. What waits is exposed time.

     x           of a unit is as the last step left it between unit_acquire and unit_release of that
                 unit, and nowhere else: not in hooks, but in final_model, quiesce and those of
                 facilities
     g           is no hook's but exchange's
     step        there is no such hook, or it is not called (m->no_step). What a method does once a
                 step it does in pass
     exchange    may run when the next step has begun. It reads p (step, weight, group) in place
                 of m
     rate        that of the gradient's own step, as its exchanging pass began
     at rest     before a checkpoint, a look at the model or the end all pieces are waited for. So a
                 run is resumed to the bit, by any number of workers
     a failure   of an exchange ends the run. The next call that waits for it, or pass, tells it

   A client says that it calls need and done as it must (engine_options.needs). Under one that does
   not, a step waits for all of its pieces before it ends, since that client reads values when it
   likes.

   tutti_by_piece_check: within declare(): TUTTI_OK, or TUTTI_ERR_USAGE and the sentence with which
   the engine refuses by_piece in this run: it needs an exchange, equal replicas and the run's
   optimiser, and does not go with clip-norm, nonfinite=skip, loss-scale, a codec, the client's
   optimiser, `whole`, or what tutti_late_declare, tutti_merge_declare and tutti_take_declare do. */
tutti_status tutti_by_piece_check(const tutti_method *m, tutti_error *err);
/* Within pass(), of a step's first pass, on all workers in the same step: pieces are cut to other
   sizes from this step on. Blocks until all that are under way are exchanged. TUTTI_ERR_USAGE:
   below piece_bytes_least; first_piece_bytes 0 or above the other; under a codec, late exchange, or
   servers that go by pieces. */
tutti_status tutti_recut(tutti_method *m, size_t piece_bytes, size_t first_piece_bytes,
                         tutti_error *err);
/* m->credit from now on. Under LED worker 0's decides how much is under way. Client thread; where
   pieces have no order or no thread it changes nothing. */
void tutti_credit(tutti_method *m, size_t bytes);

/* ---- shards: each worker updates a part of every piece (src/engine/shards.c) ---- */

/* Every piece is cut in a shard for each worker, by rank, at multiples of 16 elements (a line of 64
   bytes) from its first on: as even as lines go, the first workers have one more. Nothing is
   padded, and a small piece may leave the last workers nothing. What an optimiser has for an
   element is on one worker, and the update of all is as many elements as one worker's alone.

     declare    m->optim is the run's --optimizer, with slots for this worker's shards. They are
                placed: any number of workers, with or without shards, goes on from a checkpoint
     exchange   tutti_shards_exchange: p->g becomes, where it is this worker's shard, the mean, with
                the bits of tutti_base_exchange. Elsewhere it is undefined
     step       tutti_shards_step: the vote, the norm and the scale of tutti_base_step, with its
                bits; then the update of the own shards. Then x goes to all, pieces from the last
                to the first, beside the next step: need(unit) waits for those that meet the unit.
                So x is as m->beside says. Without engine_options.needs a step waits for all
     sent       of a piece, in a step: to each worker its shard of g, and the own shard of x. With
                clip-norm besides 8 bytes a block of TUTTI_NORM_BLOCK elements to all, by whoever
                has its first element, which gets the others of it

   In teams (tutti_shards_group) a piece is cut over the workers of a team, and teams are replicas
   of each other. A shard is reduced inside the team, then by an all-reduce among the workers that
   have the same one. All else is among the workers of a team: values, the norm. What is declared is
   saved once, a part of it by each team.

   declare: within declare(), under TUTTI_SHARDED_OPTIMIZER, once the method has said how pieces are
   cut. TUTTI_ERR_USAGE: a method whose replicas differ, whose tables go by rows, or that does
   something else with pieces (order, by_piece, tutti_late_declare, tutti_merge_declare); an
   optimiser that is the client's, or lazy.
   group: before it: the teams, as the value of `option` says (tutti_team_parse; "none": all workers
   are one). TUTTI_ERR_USAGE besides: several teams of no power of two of workers, since sums would
   have other bits; teams of which collective does not serve the sums.
   count: elements of that worker's shards, from declare() on. */
tutti_status tutti_shards_group(tutti_method *m, const char *option, const char *value,
                                tutti_error *err);
tutti_status tutti_shards_declare(tutti_method *m, tutti_plan *plan, tutti_error *err);
tutti_status tutti_shards_exchange(tutti_method *m, tutti_piece *p, tutti_error *err);
tutti_status tutti_shards_step(tutti_method *m, tutti_error *err);
size_t tutti_shards_count(const tutti_method *m, int worker);

/* ---- held by piece: no gradient of the whole model (src/engine/held.c) ---- */

/* m->held BY_PIECE, which declare() sets before tutti_shards_declare: of the gradient there are the
   own shards and a buffer for each piece under way. A piece has its buffer, p->g, from the first
   tensor's gradient on until its exchange is over. Nobody reads it but that exchange, and m->g is
   NULL. So the memory of gradients is n/N and two buffers of the largest piece. Where gradients
   come in another order than parameters stand, pieces that are not complete need more, and take it.

   pieces     all go to the lane, and start by index. Without threads each is exchanged as soon as
              it is complete and those before it are
   client     hands gradients over, in memory of its own: tutti_engine_grad_ready_from, or
              grad_ready with tutti_param's gradient. tutti_engine_gradient gives NULL
   passes     each is exchanged, to its end, and added to the shards (accumulate): A times the bytes
              of gradients, and another order of the sum than over passes first. All workers make
              as many, if need be without samples. pass->keep is false
   bytes: of gradients that are not shards, so far in this process. */
size_t tutti_held_bytes(const tutti_method *m);

/* ---- held by unit: no values of the whole model (src/engine/units.c) ---- */

/* Held by piece, and of the values there are the own shards, and a unit's from its need to its
   done: trait TUTTI_SHARDED_PARAMETERS, with tutti_shards_declare. Pieces end with units. m->x is
   NULL, so that nothing else of a method reads values.

   need       the unit's pieces are gathered, unless that has begun beside the unit before
   step       tutti_shards_step: shards are updated, and nothing is sent
   memory     n/N, and buffers for as many of the largest units as the client needs at once and one
   sent       values of a unit whenever it is needed and not there: twice a step, three times where
              backward computes it again. At most keep_values of them: once a step
   clients    engine_options.needs; tutti_param.values are refused. While the model is shown, and
              after finish, need and done bring it unit by unit; all workers call them alike.
              Clients of other methods may do so too
   bytes: of values that are no shards: buffers, and those that stay. */
size_t tutti_units_bytes(const tutti_method *m);

/* ---- offloaded: what an update needs is not on the device (src/engine/offload.c) ---- */

/* Shards, held by piece, of which the device has the values alone: this worker's masters (the
   float32 values that the update works on) and what the optimiser keeps are in a tier, and the mean
   gradient of its shards is in memory of the host, where each piece's goes as soon as it is
   reduced. The update streams through tiles, and new values go to x with each of them.

     declare    as tutti_shards_declare, in whose place it is called
     exchange   tutti_shards_exchange
     step       tutti_offload_step: tutti_shards_step, with its bits. With `delayed`, from step
                `warmup` on, the update of a step runs beside the next one, and x follows at that
                one's end: gradients are taken at values without the update before. One skipped
                leaves no update. A checkpoint waits for the update under way. x has all of them at
                the end, and in an evaluation before it those that it works with
     between    per step 4 bytes an element of the own shards go to the host, and 4 come back
   Under TUTTI_SHARDED_PARAMETERS the values of the own shards are those masters, and the mean
   gradient is in the tier as well: on the device there are a unit's values, and buckets. need(unit)
   reads the own shards of its pieces into the unit's buffer before they are gathered, `ahead` units
   ahead of the computation, by the order of the step before. Of a tier without addresses small
   units share a buffer and count as one, units stay that are needed again before anything that is
   not there, and the update leaves what the next step needs first. Not with `delayed`.

   tier: a spec of tier.h, kept. tile_bytes, threads: of the update (optim.h). ahead: units that are
   read before they are needed, 0 to TUTTI_AHEAD_MOST. */
enum { TUTTI_AHEAD_MOST = 16 };
typedef struct tutti_offload_options {
    const char *tier;
    size_t tile_bytes;
    int threads;
    bool delayed;
    uint64_t warmup;
    int ahead;
} tutti_offload_options;
tutti_status tutti_offload_declare(tutti_method *m, tutti_plan *plan,
                                   const tutti_offload_options *options, tutti_error *err);
tutti_status tutti_offload_step(tutti_method *m, tutti_error *err);

/* ---- late exchange: beside the computation of the next steps (src/engine/late.c) ---- */

/* Within declare(), of methods with equal replicas that exchange pieces in every step. From step
   `from` on the gradient of step t is exchanged while steps t + 1 ... t + steps compute, and step()
   is called with it at the end of step t + steps: then it is in g, on all workers. In the first
   `steps` steps from `from` on there is nothing to apply, and step() is not called. So g is no
   hook's between the last pass and step(), and a pass changes nothing but g.

     exchange   runs on a thread of the engine's, pieces in order, each step's after the one before,
                through any codec. It reads p (step, weight, group) in place of m. Tables travel
                whole.
     step       clipping, the check of finite numbers and skipped steps are of what is applied. The
                loss scale is divided out as it was in the gradient's own step, and m->lr is the
                rate of that step.
     at rest    before a checkpoint, an evaluation or the end what is under way is waited for. It is
                declared state, the same on all, and is applied at the same later step.
     end        with `drain` the engine calls step() for the last `steps` gradients when the run
                ends, else they are dropped.

   steps 0: nothing is late. Without threads (engine_options.lane -1) each exchange is over before
   its step ends, and is applied as late. TUTTI_ERR_USAGE: other methods; m->whole, as soon as
   declare() is over; more than TUTTI_LATE_MOST steps; an optimiser that is lazy; one of the
   client's that updates by itself. */
enum { TUTTI_LATE_MOST = 15 };
tutti_status tutti_late_declare(tutti_method *m, tutti_plan *plan, int steps, uint64_t from,
                                bool drain, tutti_error *err);
/* Within step(): the step whose gradient is in g, and how many steps ago that was. 0: this one. */
uint64_t tutti_late_step(const tutti_method *m);
uint64_t tutti_late_age(const tutti_method *m);
/* Is an exchange beside the computation at all? From open() on; false too where nothing is late. */
bool tutti_late_overlaps(const tutti_method *m);
/* What this worker has waited for such exchanges in this process, in ns. Client thread. */
int64_t tutti_late_waited_ns(const tutti_method *m);

/* ---- a run that tunes itself (src/engine/tune.c) ---- */

/* Within declare(): while the run trains, points of a box of knobs are tried, each for a window of
   steps, and the fastest stays (search.h has the rules). The default is the first point, and stays
   unless another has beaten it in every pair of windows in which they were measured again, and by a
   hundredth of a step in all. So a run is never slower in the end than with the default, but for
   what a window is uncertain.

   Only what changes no bit of a model may be a knob.

   tuner: what is asked for (tune.h); `first` of the knobs is the default. seed: the run's.
   drop, steps: of a window: so many steps do not count (pipes fill, caches warm up), and the median
   of so many behind them does, on worker 0's clock, without reports, evaluations and checkpoints.
   apply: the knobs have these values from this step on: within the step's first pass, before the
   method's pass hook, on all workers in the same step, with the same values. Also in the first step
   of a process, with the default or what the run that is resumed had. It may block, as tutti_recut
   does. A point that makes no sense it makes one, on all alike.

   Sent: 96 bytes in a broadcast from worker 0, in group order, when a window is over, and once
   before in windows of points after the first, when a quarter of the steps is there
   ((steps + 3) / 4): that may be all of a point which is clearly slower. Nothing once it is over.
   With one worker nothing is tuned.
   Told, by worker 0: events of kind "tune"; figures tune_NAME of each knob, as it is now,
   tune_points, and tune_seconds: what asking and broadcasts have taken in this process.
   Declared: all of it. A resumed run goes on, with the window under way begun anew.
   Without a worker it cannot go on. TUTTI_ERR_USAGE: TUTTI_ASYNC; TUTTI_FAULT_TOLERANT where a loss
   does not end the run anyway (a method's traits_of leaves it out when it tunes); a box that is
   none. */
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
