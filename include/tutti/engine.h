/* engine.h: the public API: distributed training of a client's model. The native trainer and
   bindings are such clients; nothing in the engine knows which one it serves.

     tutti_engine_open(...)
     while (tutti_engine_more_epochs(e, epochs, &more, err) == TUTTI_OK && more) {
         while (tutti_engine_pass_begin(e, &pass, err) == TUTTI_OK) { // TUTTI_CLOSED: no more
             load pass.samples samples from (pass.epoch, pass.position), or pass.ids where a method
                 names them, the last pass.received of them at pass.given; with pass.again those of
                 the pass before once more (pass.h)
             tables with asks_rows: tutti_engine_rows_acquire(e, tensor, ids, n, err)
             forward, unit by unit:
                 tutti_engine_unit_acquire(e, u, false, err)
                 run unit u
                 tutti_engine_unit_release(e, u, false, err)
             backward, unit by unit:
                 tutti_engine_unit_acquire(e, u, true, err)
                 run unit u backward; for each of its tensors:
                     tutti_engine_grad_ready(e, tensor, err)
                 tutti_engine_unit_release(e, u, true, err)
             tutti_engine_pass_end(e, loss_sum, err)
         }
         tutti_engine_step(e, err)
     }
     tutti_engine_finish(e, err)

   *Quiet*: between steps, when all clients have come to a collective call (save, eval_begin,
   finish), the engine holds the method's services. They finish what they are doing and rest, and no
   message of theirs is under way. They go on at the next step.

   Calls never overlap. They may come from any thread, a new one each time, as autograd's do. The
   client thread of the comments is the thread that makes the call. Two transports bind a rank to
   the thread that opened its world: MPI where it has MPI_THREAD_FUNNELED only, and the simulator. A
   call blocks only if its comment ends with "Blocks." After a failure only figures, trace and close
   are legal. */
#ifndef TUTTI_ENGINE_H
#define TUTTI_ENGINE_H
#include "checkpoint.h"
#include "method.h"
#include "share.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* ---- opening ---- */
typedef struct tutti_engine tutti_engine;

/* A tensor of the client's. The list is in the order in which gradients become ready, as far as the
   client knows it.

   row_sparse: the tensor, of two dimensions or more, is a table of dim[0] rows of which a pass
   touches few. It is announced by grad_ready_rows, or by grad_ready like any other. Its gradient in
   the engine's memory is 0 when a pass without `keep` begins, and only rows that the pass touches
   may be changed.

   asks_rows: of a row_sparse one. Each pass says by rows_acquire which rows it will read, before it
   reads them, and touches no others. So a method with servers need not bring the whole table.

   values, gradient: NULL: the engine owns them, inside x and g (no copies). Else they are the
   client's memory, kept by the engine. Initial values are read from it on rank 0. pass() copies new
   values to it whenever they have changed; eval_begin, swap, eval_end, finish and load do so, too.
   With engine_options.needs it may be unit_acquire() that copies those of its unit. grad_ready()
   copies gradients from it.

   dtype: of that memory: TUTTI_F32 (0), TUTTI_BF16 or TUTTI_F16. x and g are float32 whatever it
   is: values are rounded to it, to nearest even, and a gradient in it is widened exactly. */
typedef struct tutti_param {
    const char *name;                /* copied; unique */
    int dims;                        /* at least 1 */
    uint64_t dim[4];                 /* shape, row-major; none 0 */
    int unit;                        /* layer group, from the input: 0, 1, ... */
    bool row_sparse;                 /* a table; see above */
    bool asks_rows;                  /* a table whose rows are asked for; see above */
    tutti_dtype dtype;               /* of values and gradient */
    void *values, *gradient;         /* the client's memory, or NULL */
} tutti_param;

typedef enum { TUTTI_NONFINITE_STOP, TUTTI_NONFINITE_SKIP, TUTTI_NONFINITE_KEEP } tutti_nonfinite;
typedef enum {
    TUTTI_CODEC_COST_OFF,
    TUTTI_CODEC_COST_EXPLAIN,
    TUTTI_CODEC_COST_AUTO_OFF
} tutti_codec_cost;

/* Zero means default. Texts are copied.

   optimizer: a spec of optim.h, or "client": the client's own, which is `update`.

   update: one update of the values where they stand (params[].values, or x) with the gradients that
   stand in g. Those are exchanged, not scaled, and clipped where clip_norm says so. The client's
   learning rate is to be multiplied by `factor` for this update: 1, but for methods that make steps
   longer or shorter. It is called within step, by a method that updates between its passes within
   pass, and within finish for gradients that are late (pipe-sgd). It may call tutti_engine_values,
   _gradient and _lr, and nothing else of the engine. Steps that are left out do not call it. Where
   a method's update is not of x, as of those that average beside the client, that model stands in x
   and `values` for the call, and what the call has changed is added to it. So it is where `values`
   are of a type with fewer bits than x. What the client's optimiser keeps is the client's: no
   checkpoint of the engine has it.

   update NULL with "client": *exchange only*. After step the exchanged gradients stand in g, and
   the client updates x, or its `values`, by itself before the next pass. `values` are then the
   model, and x takes it from there at eval_begin, save and finish. For methods that exchange
   gradients in every step, whose workers' models are equal, and that give the optimiser the mean.

   Neither takes a schedule: lr_schedule is "constant". Methods that update at servers, or along a
   direction of their own, refuse "client".

   nonfinite: KEEP, for exchange only, which has that and STOP: the client judges, as a loss scaler
   of its own does. What is not finite on one worker is not finite in g of that tensor on all. A
   codec keeps back nothing of such a step.

   collective: for sums over the workers, of pieces and by tutti_average: "auto", or an algorithm
   (comm.h, tutti_group). For messages of a codec that only their decoder understands:
     - "allgather": all messages go to all workers, and each decodes them.
     - "alltoall": messages go to the owners of their parts, and owners encode the mean anew.
     - "auto": the first with up to three workers, the second from four up.

   codec: a spec of codec.h, for methods with TUTTI_TAKES_CODEC. It encodes gradients; under d-psgd
   it encodes models. NULL, "" or "none": they travel as they are.

   codec_cost: EXPLAIN measures codec and network for some milliseconds before the first step.
   Events of kind "codec-cost" then tell what an exchange takes with the codec and without. AUTO_OFF
   does the same, and if the exchange is predicted to take over 5 % longer with the codec, gradients
   travel as they are. An event of kind "codec" says so. A resumed run goes on as it was.

   codec_report: every so many steps each worker measures what the codec made of its gradients
   (tutti_engine_codec_records). That costs one more decoding and some passes over the gradients. It
   changes no bit of the run. 0: never.

   codec_checksum: each message of the codec has a hash of eight bytes in front. A message that is
   not what was sent is refused (TUTTI_ERR_CORRUPT). No bit of a model depends on it.
   TUTTI_ERR_USAGE for codecs whose numbers are all summed on their way (fp16, powersgd, ...):
   nothing that they send can be looked at.

   codec_hierarchy: with a codec. "none": every worker goes through the codec. "machine": the
   gradients of the workers of a machine are summed as they are; what goes through the codec is the
   machines' means, once a machine. A number: the same for that many workers of consecutive ranks.

   loss_scale: "" or "off", "static(scale=1024)", "dynamic(init=65536,...)". The client multiplies
   the loss by pass.scale, and the engine divides it out. A gradient that is then not finite is an
   overflow, and the step is left out (src/engine/scaler.c has the rule).

   initial: writes the first values of a tensor without memory of the client. Called on rank 0 only.
   NULL: 0.

   evaluate: for methods that ask for it (tutti_evaluate). *loss := the mean loss of the values that
   stand in params[].values, or in x, by a forward pass over samples that the client holds out of
   training, the same ones on all workers. It is called within tutti_engine_step and calls nothing
   of the engine. NULL: nothing is held out, and such methods are refused while opening.

   once: the client computes every batch once. It is for one that cannot go back to the samples of a
   pass, with the draws that it made and without moving its running statistics (tutti_pass.again).
   Methods that ask for it are refused, and those that deal out a step's passes (tutti_allot): such
   a client computes one pass in each step.

   whole_batches: each pass of the client has `batch` samples, as a loader gives them that nobody
   else decides about. Methods that give a worker another number of samples, when they like
   (tutti_engine_takes: 2 or 3), are refused.

   sample_bytes, give, label: for methods by which workers send each other raw samples (steps.h,
   tutti_give). sample_bytes: of one, with its label, the same on all ranks. 0: the client has none
   to give, or cannot take any, and such methods are refused while opening. give: writes n of them
   to `out`, n x sample_bytes. ids: indexes in the training set, as share.h numbers them. It is
   called within tutti_engine_pass_begin and calls nothing of the engine. label: the class of a
   sample, the same on all ranks; -1, and NULL: it has none. A client with sample_bytes looks at
   tutti_pass.received.

   names: the client takes the samples of a pass by name (tutti_pass.ids), and writes the loss of
   each where it is asked for (tutti_pass.losses) before it calls pass_end. Methods that choose
   samples are refused without.

   streams: samples come to the client at a rate, and it waits for those of a pass. Methods with a
   model of arrivals of their own refuse that.

   needs: the client reads the values of a unit, and writes its gradients, between
   tutti_engine_unit_acquire and tutti_engine_unit_release of that unit and nowhere else, in every
   pass. Under a method that has pieces under way beside the next step (method.h, m->beside) a unit
   then waits for its own parameters only, and between steps the values are there in eval_begin and
   finish. Without, all have been waited for when tutti_engine_step returns.

   same_order: the order of these calls is the same on all ranks, whatever the samples. Else methods
   that gather a unit's values when it is needed (BY_UNIT) compare it, eight bytes a unit, and the
   run ends with a sentence where two ranks need different units.

   device_memory: bytes that this rank may have on its device: parameters, gradients and what else
   methods and optimisers declare there, and what the client has besides
   (tutti_engine_use_device). What is kept elsewhere (tutti_state.tier) does not count. More is
   TUTTI_ERR_MEMORY with what is needed, what there is and what takes it: while opening, before
   memory is taken, as far as it is declared. Where a machine has no accelerator this bounds what
   would be its device's. The same on all ranks, or not.

   servers: so many ranks, the last of the world, only serve (method: TUTTI_PARAMETER_SERVERS). They
   have no samples and make no steps, and whatever is counted by workers leaves them out. Their
   clients make the calls that workers make between steps. They also call tutti_engine_more, which
   says that there is no step for them. They have neither the model nor a gradient, but the slices
   that they serve: their clients' memory of parameters is not written, not read, and may be NULL.

   only_declared: everything is refused that would be, and declared, and no memory is taken. Such an
   engine may be asked for its method, shares and memory (tutti_engine_memory), and be closed. Then
   the world may have another.

   model: the client's model in stages, for methods that drive (drive.h). Kept. NULL: it computes
   whole passes, and such methods are refused.

   aside_every, aside_most: models that are put aside while the run goes on (below, "put aside"):
   after every so many gradients, 0: never; so many of them are kept at most. For methods at their
   own pace, and with steps in common that need not be the same one (TUTTI_UNSYNCHRONIZED_STEPS),
   where it is steps that are counted; others put none aside. The same on all ranks.

   own_values: floats of client state: what the client computes along with gradients, such as
   running statistics of batch norms. They are no parameters, and no step exchanges them. The same
   number on all ranks. See tutti_engine_client_state. */
typedef struct tutti_engine_options {
    const char *method;              /* "ddp" */
    const char *optimizer;           /* the method's default, else "sgd(lr=0.05,momentum=0.9)" */
    const char *lr_schedule;         /* the method's default, else "constant" */
    const char *collective;          /* algorithm of the workers' sums */
    const char *codec;               /* what gradients are encoded with */
    tutti_codec_cost codec_cost;     /* whether the codec pays */
    uint64_t codec_report;           /* steps from one measurement of the codec to the next */
    bool codec_checksum;             /* a hash before each message of the codec */
    const char *codec_hierarchy;     /* teams of workers before the codec */

    int64_t batch;                   /* samples a worker a pass (64) */
    int64_t accumulate;              /* passes a step (1) */
    /* [workers], for unequal workers: samples of each in a pass, summing to workers x batch.
       NULL: batch each. Copied; declared state. */
    const int64_t *batch_of;
    /* Every worker has samples of its own (share.h). The same on all. Kept. NULL: a common
       order. */
    const tutti_parts *parts;
    /* Size of the training set; the share of each step follows from it. 0: every step is full. */
    uint64_t data_samples;
    /* Of each worker in the whole run, whatever the method: for the schedule. 0: unknown; then only
       constant and step schedules. */
    uint64_t steps;
    uint64_t seed;
    double clip_norm;                /* of the exchanged gradient; 0: off */
    tutti_nonfinite nonfinite;       /* a gradient that is not finite: stop, skip the step, keep */
    const char *loss_scale;

    /* The client's own "key=value\n" lines, compared over ranks together with the engine's. */
    const char *fingerprint;
    void (*initial)(void *user, int tensor, float *values);
    void *user;
    tutti_status (*evaluate)(void *user, double *loss, tutti_error *err);
    tutti_status (*update)(void *user, double factor, tutti_error *err);
    size_t sample_bytes;             /* of a raw sample */
    tutti_status (*give)(void *user, const uint64_t *ids, size_t n, void *out, tutti_error *err);
    int (*label)(void *user, uint64_t id);

    /* Lane width. 0: the method's. k > 0: k threads. -1: none; pieces are exchanged on the client's
       thread at the end of the step. */
    int lane;
    size_t trace_events;             /* room for that many trace events; 0: no trace */
    uint64_t trace_first, trace_steps; /* of steps from that one on, so many; 0: all */
    bool stop_on_loss;               /* a lost worker ends the run, whatever the method could */
    bool once;                       /* no samples are computed again; a step is one pass */
    bool whole_batches;              /* each pass has `batch` samples */
    bool names;                      /* passes may name their samples and ask for losses */
    bool streams;                    /* the client waits for samples that arrive */
    bool needs;                      /* values are read within unit_acquire ... unit_release */
    bool same_order;                 /* units are needed in the same order in every step */
    int servers;                     /* ranks that only serve */
    const tutti_model *model;        /* in stages */
    size_t own_values;               /* floats of client state */
    uint64_t aside_every;            /* gradients from one model put aside to the next */
    int aside_most;                  /* such models, from one rest to the next */
    bool only_declared;              /* no memory is taken */
    uint64_t device_memory;          /* bytes on the device; 0: as many as there are */
} tutti_engine_options;

/* TUTTI_ERR_USAGE: `collective` is neither "auto" nor "allgather" nor "alltoall" nor an algorithm
   for so many workers. */
tutti_status tutti_collective_check(const char *collective, int workers, tutti_error *err);

/* Refuses bad options, then compares the fingerprints of all ranks (version, shapes, options). A
   mismatch is TUTTI_ERR_USAGE on every rank; it names the rank, the key and both values. What one
   rank refuses by itself (TUTTI_ERR_USAGE) is refused on every rank as well: that one has its
   reason, and the others name it. Then rank 0's values are broadcast. Collective; blocks.

   A world is for one engine. Methods' services have the same ports in each engine, so what the
   first has left under way would be taken for the second's. To train again open another world. A
   second engine is TUTTI_ERR_STATE before anything is done or sent, also once the first is closed
   or has failed. An engine that was refused (TUTTI_ERR_USAGE) before the fingerprints were found to
   be equal does not count. */
tutti_status tutti_engine_open(tutti_engine **out, tutti_world *world, const tutti_param *params,
                               int n_params, const tutti_engine_options *options,
                               tutti_error *err);

/* The same with methods of the caller's own: a NULL-ended list instead of the built-in registry.
   Blocks. */
tutti_status tutti_engine_open_from(tutti_engine **out, tutti_world *world,
                                    const tutti_param *params, int n_params,
                                    const tutti_engine_options *options,
                                    const tutti_method_ops *const *methods, tutti_error *err);

/* Refuses what the option loss_scale may not be. */
tutti_status tutti_loss_scale_check(const char *text, tutti_error *err);

/* Counts what the client has on the device beside what the engine has, as "activations": so many
   bytes from now on, in place of what it said before. Where device_memory is given, figure
   device_bytes is the most that both have had at a time. TUTTI_ERR_MEMORY: beyond device_memory;
   what it said before stays. */
tutti_status tutti_engine_use_device(tutti_engine *e, uint64_t bytes, tutti_error *err);

/* Waits for the engine's lanes. Blocks. */
void tutti_engine_close(tutti_engine *e);

/* The method's layout and counters. Read only. */
const tutti_method *tutti_engine_method(const tutti_engine *e);

/* Where the engine put the values and the gradient of a tensor. NULL: there is no such tensor, or
   this rank only serves; or, of gradients, the method drives, or holds them by piece (steps.h):
   hand them over by tutti_engine_grad_ready_from. Of values that it holds by unit, or that are
   looked at under a method that drives: where they are from unit_acquire to unit_release of that
   unit, another place each time; NULL else. */
float *tutti_engine_values(tutti_engine *e, int tensor);
float *tutti_engine_gradient(tutti_engine *e, int tensor);

/* The client state: own_values floats of this worker, 0 at open; NULL if none were asked for.

   The client reads and writes them between pass_begin() and pass_end(), and sets the first values
   before load. While the model is shown, and from finish on, the mean over the workers that have
   had samples stands there, the same bits on all. eval_end() brings the worker's own back, so
   looking changes nothing. They are saved and loaded with the run. A checkpoint of another number
   of workers gives each worker the mean. */
float *tutti_engine_client_state(tutti_engine *e);

/* ---- is there another step? ---- */
/* Is there another step for this worker before the run has `until` of them? Blocks.

   **The unit of `until` depends on the method.** It is steps of all workers together. For a method
   at its own pace (TUTTI_ASYNC) it is gradients computed by any worker, so the same number
   trains it 1 / workers as long as the others. For the same amount of training under every method
   ask by epochs or samples.

   At its own pace this call hands out gradients one by one: true obliges the caller to one step.
   All workers pass the same `until` until all have been told false. Then all are between steps and
   may make collective calls. A client that does not ask takes part with steps of its own: step s of
   worker r is gradient s x workers + r. */
tutti_status tutti_engine_more(tutti_engine *e, uint64_t until, bool *more, tutti_error *err);

/* The same before the run has gone `epochs` times over data_samples, counted from the run's
   beginning. That is exactly as many samples under every method, since the last step of an epoch is
   cut. TUTTI_ERR_USAGE: data_samples is 0. Blocks. */
tutti_status tutti_engine_more_epochs(tutti_engine *e, uint64_t epochs, bool *more,
                                      tutti_error *err);

/* The same before the run has had `samples` samples by all workers, counted from the run's
   beginning. It ends with the step, or with the gradient at a pace of one's own, in which it has
   that many. So methods differ by less than a step, and not at all where whole steps have exactly
   that many. Samples that lost workers left out count as well. Blocks. */
tutti_status tutti_engine_more_samples(tutti_engine *e, uint64_t samples, bool *more,
                                       tutti_error *err);

/* Does the method decide how many samples a step has (steps.h, *free sample counts*)? Then a run
   has as many steps as its samples need: the two calls above say exactly when it has had them, and
   tutti_engine_more counts steps that nobody knows beforehand. 0: no. 1: yes, and a worker takes
   its batch of a step or nothing. 2: yes, any number, and a step's first pass knows how many.
   3: yes, and nobody knows before a pass ends whether another follows: `more` of a pass is true,
   and tutti_engine_pass_begin says. */
int tutti_engine_takes(const tutti_engine *e);

/* Has the method ended the run (tutti_end) before it had as many gradients as were asked for? The
   same on all ranks once `more` has said false to all; from then on `more` says nothing else. An
   event of kind "ended" tells it. */
bool tutti_engine_ended(const tutti_engine *e);

/* What worker 0 has heard of a phase of `more` so far: gradients that were handed out, samples and
   losses of those that were computed. For reports without a meeting of the workers. */
typedef struct tutti_heard {
    uint64_t gradients;
    double samples, loss_sum;
} tutti_heard;
void tutti_engine_heard(tutti_engine *e, tutti_heard *heard);

/* ---- a step ---- */
/* Begins the next pass of the step and says what it computes. TUTTI_CLOSED: the step has no more
   passes; call tutti_engine_step. Blocks. */
tutti_status tutti_engine_pass_begin(tutti_engine *e, tutti_pass *pass, tutti_error *err);

/* Before the values of a unit are read, in forward and again in backward. Blocks. */
tutti_status tutti_engine_unit_acquire(tutti_engine *e, int unit, bool backward, tutti_error *err);

/* For a tensor with asks_rows, before the pass reads them: the rows ids[0] < ids[1] < ... Those of
   all its calls are all that a pass reads and touches; none comes after the table's gradient.
   Afterwards they are in the client's memory, where it has its own. Blocks. */
tutti_status tutti_engine_rows_acquire(tutti_engine *e, int tensor, const uint32_t *ids, size_t n,
                                       tutti_error *err);

/* After a unit has run. TUTTI_CLOSED: the step begins anew, and what was computed of it is dropped.
   Leave the pass, or end it as usual, and call tutti_engine_pass_begin, which gives the step's
   first pass again (`restarts` of tutti_figures counts these). */
tutti_status tutti_engine_unit_release(tutti_engine *e, int unit, bool backward, tutti_error *err);

/* The gradient of the tensor is final for this pass. Each tensor once a pass, in any order; a
   second time is an error. */
tutti_status tutti_engine_grad_ready(tutti_engine *e, int tensor, tutti_error *err);

/* The same with a gradient that lies at `gradient` for this call only, in that type (TUTTI_F32,
   TUTTI_BF16, TUTTI_F16): new memory each time is well. It is copied to g once, or added where the
   pass has `keep`. If it is the tensor's place in g (tutti_engine_gradient), nothing is copied.
   NULL: it is 0. In a pass without samples it does not count. */
tutti_status tutti_engine_grad_ready_from(tutti_engine *e, int tensor, const void *gradient,
                                          tutti_dtype dtype, tutti_error *err);

/* The same for a tensor with row_sparse: its rows ids[0] < ids[1] < ... are all that this pass has
   touched. They are taken from the client's memory, where it has its own. */
tutti_status tutti_engine_grad_ready_rows(tutti_engine *e, int tensor, const uint32_t *ids,
                                          size_t n, tutti_error *err);

/* The same with those n rows one behind the other at `rows`, for this call only, in that type, as a
   sparse gradient has them. */
tutti_status tutti_engine_grad_ready_rows_from(tutti_engine *e, int tensor, const uint32_t *ids,
                                               size_t n, const void *rows, tutti_dtype dtype,
                                               tutti_error *err);

/* Ends the pass. loss_sum: of its samples. Tensors that were never announced count as 0, and an
   event names them once. */
tutti_status tutti_engine_pass_end(tutti_engine *e, double loss_sum, tutti_error *err);

/* Exchanges what is left, votes, clips and updates. Blocks. */
tutti_status tutti_engine_step(tutti_engine *e, tutti_error *err);

/* The optimiser's base learning rate is lr from the next update on, not negative: for a client that
   has a schedule of its own. The run's schedule multiplies it. With "client" it is only told to
   what goes by the rate (accordion, alq, ef), and 0 until then. The same on all ranks at the same
   step, not within a pass. No checkpoint has it. TUTTI_ERR_USAGE where servers update: they take
   the rate from lr_schedule. */
tutti_status tutti_engine_lr(tutti_engine *e, double lr, tutti_error *err);

/* Under a method that drives (TUTTI_PIPELINE_SCHEDULE), in place of pass ... step: the run goes on
   to `until` steps, in which the method calls options.model. All ranks with the same `until`. A
   pipeline is empty at the end of a call and has to be filled again, so few calls are better than
   many. No worker ever has the whole model: while it is shown, and after finish, all ranks need the
   same units in the same order, and a unit's values are there from tutti_engine_unit_acquire to
   tutti_engine_unit_release. A client that does not promise `needs` is refused. Blocks. */
tutti_status tutti_engine_drive(tutti_engine *e, uint64_t until, tutti_error *err);

/* The most samples of other workers that a pass may have (tutti_pass.received). 0: its method sends
   none. */
int64_t tutti_engine_received_most(const tutti_engine *e);

/* New shares from the next step on, for engines opened with batch_of. Between steps, the same on
   all ranks; the sum stays. The positions that a step uses do not change, only which worker
   computes which. Services come to rest first (quiet), since they read shares. Blocks. */
tutti_status tutti_engine_reshare(tutti_engine *e, const int64_t *batch_of, tutti_error *err);

/* The share as it is now; its batch_of is the engine's. Under ASYNC it is that of one worker:
   gradient k is its step k. */
const tutti_share *tutti_engine_share(const tutti_engine *e);

/* ---- the model: agreed on, shown, saved ---- */
/* Drains, agrees on the final model and ends the clock. Blocks. */
tutti_status tutti_engine_finish(tutti_engine *e, tutti_error *err);

/* Until the next eval_end the model as it would be agreed on now stands in x, and at `values` of
   params with client memory, for evaluation and export. Nothing moves for methods whose replicas
   are equal. Between steps only. Blocks. */
tutti_status tutti_engine_eval_begin(tutti_engine *e, tutti_error *err);

/* The worker's own values stand there again. */
tutti_status tutti_engine_eval_end(tutti_engine *e, tutti_error *err);

/* While the model is shown, and after finish: the distance |x_i - x| of this worker's own model
   from it. 0 where replicas are equal. Writes over gradients. */
double tutti_engine_apart(tutti_engine *e);

/* While the model is shown, and after finish: swaps the agreed model with this worker's own as it
   was before, and the means of client state with its own. To learn how good a worker's own model
   is. Called in pairs, with nothing between but looking. false: nothing was done, because replicas
   are equal or the model is not shown. Local; writes over gradients. */
bool tutti_engine_swap(tutti_engine *e);

/* Saves a checkpoint. All ranks, between steps. facts: a JSON object stored with it. keep: see
   tutti_checkpoint_save. Blocks. */
tutti_status tutti_engine_save(tutti_engine *e, const char *directory, const char *facts, int keep,
                               tutti_error *err);

/* Loads every declared state of exactly that checkpoint. All ranks, before the first pass. Blocks.

   Another number of workers is legal for methods whose replicas are equal. States of each worker
   then become what state.h says. Residuals of error feedback are owed to the model as their mean,
   so each worker gets the mean; local momenta start from 0. */
tutti_status tutti_engine_load(tutti_engine *e, tutti_checkpoint *checkpoint, tutti_error *err);

/* Declared state of this rank where it lies, for a client that keeps it by itself. *pieces: n of
   them, the engine's until its next call, with names as in a checkpoint. Everything is whole: what
   is the same on all ranks (owner -1, keep SAME) as well as this rank's part of the rest. Between
   steps, or while a model is shown that is the same anyway. Where the method has services all ranks
   call it, for they come to rest first. Blocks. TUTTI_ERR_USAGE: workers were lost. */
tutti_status tutti_engine_state(tutti_engine *e, const tutti_saved **pieces, size_t *n,
                                tutti_error *err);

/* The client has written to all pieces what they held in a run of as many workers, on the same
   rank. All ranks, before the first pass. */
tutti_status tutti_engine_state_written(tutti_engine *e, tutti_error *err);

/* ---- models put aside, of methods whose workers do not go in step ---- */
/* A look at the model of a run makes all workers wait for the slowest. A model that is put aside
   makes nobody wait, and sends nothing. It is looked at when all are at rest anyway.

   The model of a *point* P, a multiple of aside_every: a worker puts its own aside as its pass
   begins with the first of its gradients from P on. So it has all gradients below P that this
   worker has computed, and none of its later ones. What others have computed is in it as far as it
   has come. Put together they are the mean over the workers, as they are at the end. Values at
   servers (server.h) are put aside there instead, each slice before the first request of a worker
   that has passed P. Who comes to rest without having passed a point puts aside what it has then.
   A worker that is lost takes along what it has put aside.

   With steps in common (TUTTI_UNSYNCHRONIZED_STEPS) P is a step, and a worker puts aside what it
   has as it begins that one: all its own steps below P. An averaging that it had begun before is
   added when it is over. So the mean over the workers is that of a run which ends at P. Values at
   servers have all steps below P where all must have pushed before anybody goes on; else those of
   the first worker to pass P, and of the others what has come.

   aside_most models of each worker are declared memory. Points beyond are left out, so a client
   comes to rest that often. */
typedef struct tutti_aside {
    uint64_t gradients;                  /* P */
    /* This rank's own when it put its part aside: its clock, as wall_ns of tutti_figures; what it
       had sent; samples that it has computed since. */
    int64_t wall_ns;
    uint64_t bytes_sent, samples_since;
} tutti_aside;
/* After all have been told that there is no step (tutti_engine_more), before anybody goes on, or
   after finish: how many points were passed since the last drop. The same on all ranks. With steps
   in common between any two of them, on all ranks: they come to rest. After finish looking costs
   the run's clock nothing. Blocks. */
tutti_status tutti_engine_snapshots(tutti_engine *e, int *n, tutti_error *err);
/* The k-th of them, from 0 on. */
void tutti_engine_snapshot(const tutti_engine *e, int k, tutti_aside *aside);
/* As tutti_engine_eval_begin, with the model of that point. All ranks; eval_end ends it. Blocks. */
tutti_status tutti_engine_eval_snapshot(tutti_engine *e, int k, tutti_error *err);
/* They have been looked at. All ranks, as before. */
void tutti_engine_drop_snapshots(tutti_engine *e);

/* ---- runs that go on after losses. That needs a method with TUTTI_FAULT_TOLERANT, a world that
   survives losses, and no stop_on_loss. Everywhere else settle gives `mine` back, has() is true of
   all, and nothing is sent. A worker that is lost before the engine is open, or within load, ends
   the run.

   A step leaves lost neighbours out. eval_begin, finish and save are repeated by themselves if a
   loss spoils them. Other work that the client does together with all workers (its own collectives)
   has this form:

     do {
         // those who are left: sums over them, index 0 writes
         tutti_engine_regroup(e, &group, key);
         // what is done together, over the group: collectives of one group, as many as it likes.
         // Everything in it can be done twice.
         status = ...;
         if (status != TUTTI_OK && status != TUTTI_ERR_PEER)
             return status;   // it leaves with its last words, and is lost to the others
         status = tutti_engine_settle(e, status, &again, err);
     } while (status == TUTTI_OK && again);

   A worker that fails by itself before it has done its part must not settle. The others wait for it
   in what is done together, and it would wait for them. A failure after that, for which nobody
   waits (a file that one worker writes for all), is told in a settle of its own and ends the run.

   m->rank, m->workers, the graph and the shares stay those of the beginning. The samples of a lost
   worker are computed by nobody. m->all becomes the group of those that are left. */
bool tutti_engine_fault_tolerant(const tutti_engine *e);

/* Is that worker, as last agreed, still there? */
bool tutti_engine_has(const tutti_engine *e, int worker);

/* group := those that are there, if that has changed since the caller made `group` or took it from
   here; then true. It works over messages, and its ranks are the engine's. */
bool tutti_engine_regroup(const tutti_engine *e, tutti_group *group, uint64_t key);

/* All that are there agree on how their common work ended. It is tutti_members_agree (comm.h), for
   the engine's own groups and counts as well. Blocks. */
tutti_status tutti_engine_settle(tutti_engine *e, tutti_status mine, bool *again, tutti_error *err);

/* After the last settle, before the world is closed: no worker leaves while another still waits for
   its word. finish has one of its own. Blocks. */
tutti_status tutti_engine_part(tutti_engine *e, tutti_error *err);

/* ---- memory ---- */
/* What memory is for. Of what an engine declares (state.h) x is values, and g or the buffers of its
   pieces are gradients. What else outlives a step is states: the optimiser's, the method's, slices
   of servers. What does not is buffers. Activations are a client's. */
typedef enum tutti_memory {
    TUTTI_MEMORY_VALUES,
    TUTTI_MEMORY_GRADIENTS,
    TUTTI_MEMORY_STATES,
    TUTTI_MEMORY_ACTIVATIONS,
    TUTTI_MEMORY_BUFFERS,
    TUTTI_MEMORY_KINDS
} tutti_memory;
const char *tutti_memory_name(tutti_memory kind); /* "values" */

typedef struct tutti_memory_record {
    const char *name;            /* as declared, "optim.momentum"; the engine's */
    tutti_memory kind;
    uint64_t bytes;
} tutti_memory_record;

/* What this rank's engine has: each declared state, then what has been taken since for messages of
   codecs ("codec.rooms"), rows of tables ("rows.rooms") and more pieces at a time ("g.more"). What
   is on a disk is no memory, but the tiles that it is streamed through are ("tiles").
   Tables of a few bytes a tensor or worker are not counted. Gives how many there are, writes at
   most `room`. Between steps. */
size_t tutti_engine_memory(const tutti_engine *e, tutti_memory_record *records, size_t room);

/* ---- what a codec did ---- */
/* Bytes of payload that this worker's gradients were encoded to in this process, by tensor, in the
   order of params. They are its messages and the numbers that it put into sums, however a
   collective then hands them on. NULL: there is no codec. Between steps. An exchange that is under
   way beside the client is waited for. Blocks. */
const uint64_t *tutti_engine_payload(const tutti_engine *e);

typedef struct tutti_codec_figure {
    const char *name;
    size_t n;
    const double *value;
} tutti_codec_figure;

/* Under codec_report: what the codec made of this worker's gradient g of a tensor, n elements, when
   it was last measured. That is the first exchange after a number of steps that is a multiple of
   codec_report: the step itself where all steps exchange.

   a is what was encoded: g, or g with what a wrapper had kept. d is a as decoded. A figure that is
   not a number does not exist here, or g or a is 0 or not finite. */
typedef struct tutti_codec_record {
    uint64_t step;                   /* steps done with it; 0: not measured, nothing is valid */
    const char *codec;               /* the one that encoded, inside of all wrappers */
    /* Of a encoded: payload without the lengths before messages, and without what an owner of a
       part encodes anew. */
    uint64_t bytes;
    double bits;                     /* an element: 8 bytes / n */
    double norm;                     /* |g| */
    /* |a|_1 / (sqrt(n) |a|): 1 where all magnitudes are equal, 1 / sqrt(n) where one is all. */
    double rho;
    /* |a - d|^2 / |a|^2: the variance factor where E[d] = a; 1 - delta of a contraction. */
    double lost;
    /* Share of elements that are not 0: of d, and of the mean of all workers as it was decoded. */
    double density, union_density;
    /* |a - d| / |g| where that is made good later: of error feedback |e| / |g| of this worker. */
    double residual;
    int n_figures;                   /* what only the codec knows (codec.h: tell) */
    const tutti_codec_figure *figure;
} tutti_codec_record;

/* A record a tensor, in the order of params, valid until the next step. NULL: nothing is measured.
   Between steps. An exchange beside the client that is measured is waited for. Blocks. */
const tutti_codec_record *tutti_engine_codec_records(const tutti_engine *e);

/* ---- time, figures, events ---- */
/* What the client thread is doing, for the clock. The engine sets COMPUTE when pass() returns OK,
   and OTHER when pass_end() and step() return. The client may set:
     - DATA while it loads its batch after pass(), then COMPUTE: time as OTHER, told apart.
     - REPORT for its own reports over the wire: time as OTHER, bytes not counted.
     - OUTSIDE for evaluation and checkpoints: neither time nor bytes.
   Before REPORT and OUTSIDE an exchange that is under way beside the client is waited for, since
   its bytes count. */
typedef enum {
    TUTTI_DOING_COMPUTE,
    TUTTI_DOING_EXPOSED,
    TUTTI_DOING_DATA,
    TUTTI_DOING_OTHER,
    TUTTI_DOING_REPORT,
    TUTTI_DOING_OUTSIDE
} tutti_doing;
tutti_doing tutti_engine_doing(tutti_engine *e, tutti_doing what); /* gives what it was. Blocks. */

/* Figures of this rank. Times run from the first pass to the end of the drain, without OUTSIDE.

   gradients, steps, samples and skipped are those of the run, resumed parts included. Under
   ASYNC gradients, steps and samples are as of the last quiet, and steps are those per worker,
   rounded up.

   own_steps and what follows it are this worker's in the whole run, resumed parts included. A run
   resumed with another number of workers counts them from there. */
typedef struct tutti_figures {
    int64_t wall_ns, compute_ns;
    int64_t comm_ns;                 /* lanes and client together, hidden or not */
    int64_t exposed_ns, other_ns;
    int64_t data_ns;                 /* of other: what was waited for batches */
    /* By the method; evaluation, reports and checkpoints are not counted. */
    uint64_t bytes_sent, messages_sent;
    uint64_t gradients;              /* in the unit of tutti_engine_more */
    uint64_t steps;
    uint64_t samples;                /* of all workers */
    /* Steps without an update; of this worker where replicas differ. */
    uint64_t skipped;
    double loss_scale;               /* of this worker's next pass; 0: the loss is not scaled */
    uint64_t own_steps;
    uint64_t restarts;               /* steps that its method had begun anew */
    uint64_t staleness_max;          /* of its gradients, in the method's count */
    uint64_t staleness_gradients;    /* how many are counted; of a team by its first worker alone */
    double staleness_mean;
    const tutti_histogram *staleness; /* of the same; the engine's, as of now */
} tutti_figures;
void tutti_engine_figures(tutti_engine *e, tutti_figures *figures);

/* What happened: skipped steps, unused parameters, workers that were lost. */
typedef struct tutti_event_record {
    uint64_t step;                   /* how many this worker had done */
    const char *kind, *text;
    int worker;                      /* whom it is about; -1: nobody in particular */
    uint32_t epoch;                  /* of "lost", "silent", "back" (transport.h); else 0 */
    bool own;                        /* other workers may have others (tutti_event_of) */
} tutti_event_record;
/* Oldest first; gives how many. */
int tutti_engine_events(const tutti_engine *e, const tutti_event_record **events);

/* What the method tells of itself (tutti_metric), in the order in which it was first told. */
typedef struct tutti_metric_record {
    const char *name;
    int worker;                      /* -1: of the run */
    double value;
    int64_t at;                      /* tutti_metric_at; -1: a value by itself */
} tutti_metric_record;
int tutti_engine_metrics(const tutti_engine *e, const tutti_metric_record **metrics);

typedef struct tutti_trace_event {
    const char *what;
    int32_t index;
    uint8_t thread;                  /* 0: client, 1: lane */
    uint64_t step;
    int64_t begin_ns, end_ns;        /* equal: an instant */
} tutti_trace_event;
/* Of the steps that were asked for, the first trace_events ones; gives how many. The other: how
   many there was no room for. */
size_t tutti_engine_trace(const tutti_engine *e, const tutti_trace_event **events);
uint64_t tutti_engine_trace_lost(const tutti_engine *e);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
