/* tutti.h: the public API: the engine, which trains a client's model by a method. The trainer and
   bindings are such clients; nothing in the engine knows which one it serves.

     tutti_engine_open(...)
     while (tutti_engine_more_epochs(e, epochs, &more, err) == TUTTI_OK && more) {
         while (tutti_engine_pass_begin(e, &pass, err) == TUTTI_OK) { // TUTTI_CLOSED: no more
             load pass.samples samples from (pass.epoch, pass.position), or pass.ids; the last
                 pass.received are at pass.given; with pass.again those of before (tutti_pass)
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

   *Quiescent*: between steps, when all clients have entered a collective call (save, save_begin,
   eval_begin, finish), the engine quiesces the method's services. They finish their work and stop,
   and no message of theirs is in flight. They resume at the next step.

   Calls must never overlap. They may come from any thread, even from a different one each time,
   as autograd's do. In the comments "client thread" is the thread that makes the call. Two
   transports bind a rank to the thread that opened its world: MPI where it has
   MPI_THREAD_FUNNELED only, and the simulator. A call blocks only if its comment ends with
   "Blocks." After a failure only figures, trace and close are legal. */
#ifndef TUTTI_H
#define TUTTI_H
#include "files.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* ---- data structures shared by methods and the engine's client: the model as one flat
   vector, partitioned into pieces, and a pass over samples.

   All dense parameters of the model are ONE flat float32 vector x[0..n). It is fixed for the life
   of the engine and ordered as gradients become ready; g is its gradient. A step is one or more
   passes (forward + backward). ---- */

typedef struct tutti_method tutti_method; /* method.h */
struct tutti_method_ops;
struct tutti_codec_ops;                   /* codec.h */
struct tutti_model;                       /* method/pipeline.h */

/* ---- the flat space ---- */

typedef struct tutti_tensor {
    const char *name;
    size_t first, count, rows, cols;     /* first: offset in x */
    int unit;                            /* layer group: acquired together */
    bool row_sparse;                     /* a table: passes report which rows they touch */
    bool asked;                          /* a table whose rows the method fetches on request
                                            (rows_acquire): until then x may have older ones */
} tutti_tensor;
/* The rows of a table's gradient that may be nonzero. All others are 0 in g, so that a method
   that does not use rows can read the whole gradient as usual. */
typedef struct tutti_rows {
    bool all;                            /* every row may be; ids is unused */
    size_t n;
    const uint32_t *ids;                 /* n, ascending, distinct */
} tutti_rows;
/* The unit of exchange: a range of the flat space. Buckets, partitions, fusion buffers and shard
   pieces are all pieces. It is ready when every tensor that it overlaps has its gradient.

   rows: for a table, which is a piece by itself: rows of the exchange's input. NULL: not a table,
   or a method without TUTTI_SPARSE_ROWS.
   group, step, weight: the engine sets them before each exchange, and they stay until it is over.
   group: the workers, keyed so that no other piece or step interferes with it; its algorithm,
   which is the run's, is there from open() on. step: whose gradient it is. weight: m->weight of
   that step. An exchange that may run concurrently with later steps (m->by_piece, or
   late exchange, src/engine/modes/late.h) must use these instead of the method's. */
typedef struct tutti_piece {
    int index;                           /* in ready order */
    size_t first, count;
    int first_tensor, tensors;           /* those it overlaps, with cut_bytes possibly in part */
    float *g, *x;                        /* element `first` */
    const tutti_rows *rows;
    tutti_group group;
    uint64_t step;
    double weight;
} tutti_piece;
typedef struct tutti_layout {
    size_t used;                         /* elements of all tensors, which are contiguous */
    size_t n;                            /* padded to 64 x workers; padding is 0, never sent */
    const tutti_tensor *tensor; int n_tensors;
    int n_units;
    const tutti_piece *piece; int n_pieces;
} tutti_layout;

/* ---- a pass ---- */

/* One forward and backward. The engine fills in the default, and the pass hook changes it.

   scale: a power of two, 1 unless the run scales the loss. It is the engine's, set after the hook.
   The gradient of a pass before the step's last is scaled until tutti_base_check.
   exchange: pieces go to the lane as they become ready. Default: in the last of the configured
   passes. Never in a pass that is followed by another of the step.
   more: another pass of this step follows. Default: until the configured passes are over. A pass
   beyond those begins with 0 samples, at the position of the one before it. A hook that removes
   or adds passes must set `exchange` too. Before the next pass the hook may use the gradient of
   this one (tutti_base_check, tutti_update) and change x: then it sets same_values to false.
   again: the samples of the previous pass once more, at other values (SAM, cross-gradients), with
   the same function: the same random draws of dropout. The client's running statistics stay as
   the first pass left them, and neither losses nor samples are counted. False in a step's first
   pass. The hook that sets it must set samples (m->samples) and same_values, too.
   merge: the same in all passes of a step, in the engine's own merged steps. This step has no
   exchange and no update: its gradient waits for the next step's.
   received, given: the last `received` of `samples` are other workers', which the engine
   has received and the client reads at `given`; epoch and position are those of the other samples.
   In a pass with `again` they are the same again.
   stays: nothing on the host reads this pass's gradient; the client's own update uses it where it
   is (engine_options.values). The client does not announce it, and sees to it that it is finite: if
   not, the update or `values` fails (TUTTI_ERR_NUMBER) before anything is sent or saved. The
   engine's, set after the hook.
   ids: after tutti_names_declare: the samples of this pass, `samples` indexes of the training set
   in any order, instead of those from epoch and position on. epoch and position still give the
   pass's position in the run, which determines the client's random draws.
   losses: likewise: an array of `samples` numbers, where the client writes the loss of each
   sample at the pass's values, in their order, with or without ids. They are valid from the next
   hook on. ids and losses are the method's memory, and must stay valid until that hook. */
typedef struct tutti_pass {
    int64_t index;                       /* 0, 1, ... within the step */
    int64_t samples;                     /* to compute in this pass; 0: announce zero gradients */
    int64_t divisor;                     /* the requested gradient is that of scale x (sum of the
                                            samples' losses) / divisor; 0 with samples 0 */
    double scale;
    uint64_t epoch, position;            /* where the samples begin in the order of base.h */
    bool again;                          /* TUTTI_RECOMPUTES: a repeated pass; see above */
    bool same_values;                    /* x has not changed: prepared weights may be kept */
    bool keep;                           /* add to g instead of replacing it */
    bool exchange;
    bool more;
    bool merge;
    bool stays;
    int64_t received;                    /* of samples; 0: all are this worker's own */
    const void *given;                   /* received x sample_bytes (engine_options.give), as other
                                            workers' clients wrote them; the engine's, until the
                                            next pass that has another */
    const uint64_t *ids;                 /* NULL: from position on */
    float *losses;                       /* NULL: not requested, at no cost */
} tutti_pass;

/* ---- opening ---- */
typedef struct tutti_engine tutti_engine;

/* A tensor of the client. The list is in the order in which gradients become ready, as far as the
   client knows it.

   row_sparse: the tensor has at least two dimensions and is a table of dim[0] rows, only a few of
   them used by a pass. Its gradient is announced by grad_ready_rows, or by grad_ready like any
   other. Its gradient in the engine's memory is 0 when a pass without `keep` begins, and the
   client may change only the rows that the pass touches.

   asks_rows: for a row_sparse tensor. Each pass announces by rows_acquire which rows it will
   read, before it reads them, and touches no others. So a method with servers need not fetch the
   whole table.

   values, gradient: NULL: the engine owns the memory, inside x and g (no copies). Else they are
   the client's memory, and the engine keeps the pointers. Initial values are read from it on rank
   0. pass_begin() copies new values to it whenever they have changed; eval_begin, swap, eval_end,
   finish and load do so, too. With engine_options.needs it may be unit_acquire() that copies the
   values of its unit. grad_ready() copies gradients from it.

   dtype: type of that memory: TUTTI_F32 (0), TUTTI_BF16 or TUTTI_F16. x and g are always float32:
   values are rounded to the dtype, to nearest even, and a gradient is widened exactly. */
typedef struct tutti_param {
    const char *name;                /* copied; unique */
    int dims;                        /* at least 1 */
    uint64_t dim[4];                 /* shape, row-major; none 0 */
    int unit;                        /* layer group, from the input: 0, 1, ... */
    bool row_sparse;                 /* a table; see above */
    bool asks_rows;                  /* rows are requested by rows_acquire; see above */
    tutti_dtype dtype;               /* of values and gradient */
    void *values, *gradient;         /* the client's memory, or NULL */
} tutti_param;

typedef enum { TUTTI_NONFINITE_STOP, TUTTI_NONFINITE_SKIP, TUTTI_NONFINITE_KEEP } tutti_nonfinite;
typedef enum {
    TUTTI_CODEC_COST_OFF,
    TUTTI_CODEC_COST_EXPLAIN,
    TUTTI_CODEC_COST_AUTO_OFF
} tutti_codec_cost;

/* Zero means default. Strings are copied. */
typedef struct tutti_engine_options {
    /* ---- method and update ----

       optimizer: a spec of method.h, or "client": the client's own, called through `update`.

       update: makes one update of the values in place (params[].values, or x) with the gradients in
       g, which have been exchanged, are not scaled, and are clipped if clip_norm is set. The client
       multiplies its learning rate by `factor` for this update: 1, except for methods that make
       steps longer or shorter. It is called within step; within pass_begin or pass_end for updates
       between passes; and within finish for late gradients (pipe-sgd). It may call
       tutti_engine_values, _gradient and _lr, and nothing else of the engine. Skipped steps do not
       call it. Where a method updates a model other than x, as methods that average concurrently
       with the client do, that model is placed in x and `values` for the call, and the change that
       the call has made is added to it. The same holds where `values` have a type with fewer bits
       than x. The state of the client's optimiser belongs to the client: no checkpoint of the
       engine contains it.

       update NULL with "client": *exchange only*. After step the exchanged gradients are in g, and
       the client updates x, or its `values`, by itself before the next pass. `values` are then the
       model, and x is copied from them at eval_begin, save and finish. Legal for methods that
       exchange gradients in every step, keep models equal, and give the optimiser the mean.

       values: with update, for a client that keeps values elsewhere, as on a GPU, and copies them
       there when the engine has handed out new ones (tutti_engine_handed). It copies them back to
       params[].values, or to x. It is called whenever the engine needs what `update` has changed:
       after every update, or under TUTTI_ASKS_FOR_VALUES in the steps in which the method asks;
       between steps params[].values are then newer than x. NULL: the engine copies them to x after
       every update. It calls nothing of the engine. keeps_gradients: passes may have `stays`.

       Neither form takes a schedule: lr_schedule is "constant". Methods that update at servers, or
       along a direction that is not the gradient, refuse "client".

       nonfinite: KEEP is for exchange only (which accepts KEEP and STOP): the client checks for
       itself, as its own loss scaler does. If a tensor's gradient is not finite on one worker, g of
       that tensor is not finite on all of them. A codec retains no residual of such a step.

       loss_scale: "" or "off", "static(scale=1024)", "dynamic(init=65536,...)". The client
       multiplies the loss by pass.scale, and the engine divides it out. A gradient that is then not
       finite is an overflow, and the step is skipped (src/engine/scaler.c has the rule). */
    const char *method;              /* "ddp" */
    const char *optimizer;           /* the method's default, else "sgd(lr=0.05,momentum=0.9)" */
    const char *lr_schedule;         /* the method's default, else "constant" */
    double clip_norm;                /* of the exchanged gradient; 0: off */
    tutti_nonfinite nonfinite;       /* what to do with a gradient that is not finite */
    const char *loss_scale;          /* "off" */
    tutti_status (*update)(void *user, double factor, tutti_error *err);
    tutti_status (*values)(void *user, tutti_error *err); /* the client's, to the host */
    bool keeps_gradients;            /* passes may have `stays` */

    /* ---- exchange ----

       collective: for sums over the workers, of pieces and by tutti_average: "auto", or an
       algorithm (comm.h, tutti_group). For a codec's messages that cannot be summed in encoded
       form:
         - "allgather": all messages go to all workers, and each decodes them.
         - "alltoall": messages go to the owners of their parts, and owners encode the mean again.
         - "auto": the first with up to three workers, the second from four up.

       codec: a spec of codec.h, for methods with TUTTI_TAKES_CODEC. It encodes gradients; under
       d-psgd it encodes models. NULL, "" or "none": they are sent uncompressed.

       codec_cost: EXPLAIN measures codec and network for some milliseconds before the first step.
       Events of kind "codec-cost" then report the time of an exchange with and without the codec.
       AUTO_OFF does the same, and if the exchange is predicted to take over 5 % longer with the
       codec, gradients are sent uncompressed, which an event of kind "codec" reports. A resumed run
       keeps the decision.

       codec_report: interval in steps at which each worker measures how the codec has encoded its
       gradients (tutti_engine_codec_records). That costs one more decoding and some passes over the
       gradients, and changes no bit of the run. 0: never.

       codec_checksum: each message of the codec is preceded by a hash of eight bytes. A message
       that differs from what was sent is refused (TUTTI_ERR_CORRUPT). No bit of a model depends on
       it. TUTTI_ERR_USAGE for codecs whose numbers are all summed in transit (fp16, powersgd, ...),
       since none of their messages arrives as it was sent.

       codec_hierarchy: with a codec. "none": every worker encodes its gradients. "machine": the
       gradients of a machine's workers are summed uncompressed, and each machine's mean is encoded
       once. A number: the same for groups of that many workers of consecutive ranks. */
    const char *collective;          /* algorithm for sums over the workers */
    const char *codec;               /* codec for gradients */
    /* Codecs that `codec` may name besides the built-in ones (codec.h), NULL-ended. The pointer is
       kept. The same on all ranks. NULL: none. */
    const struct tutti_codec_ops *const *codecs;
    tutti_codec_cost codec_cost;     /* measure whether the codec saves time */
    uint64_t codec_report;           /* steps from one measurement of the codec to the next */
    bool codec_checksum;             /* a hash before each message of the codec */
    const char *codec_hierarchy;     /* workers summed before the codec */
    /* Lane width. 0: the method's. k > 0: k threads. -1: none; pieces are exchanged on the client's
       thread at the end of the step. */
    int lane;

    /* ---- samples and steps ---- */
    int64_t batch;                   /* samples per worker and pass (64) */
    int64_t accumulate;              /* passes per step (1) */
    /* Logical shares (base.h): a step is cut into this many, from the number of workers to 1024,
       with `batch` samples a pass each, and a worker computes several. Then the run has the same
       bits with any number of workers, and when it is resumed with another. The client divides by
       pass.divisor and honours pass.keep, as ever. Client state (own_values) is written when a pass
       begins a share: then it is again as the step began; after the step it is the mean over the
       shares. Needs TUTTI_LOGICAL_SHARES, no parts, and no codec but of float32 sums. 0: none. */
    int elastic_shares;
    /* [workers], for workers of unequal speed: samples of each in a pass, summing to workers x
       batch; with elastic_shares, shares of each, 1 or more. NULL: equal. Copied. */
    const int64_t *batch_of;
    /* Every worker has its own samples (base.h). Kept; the same on all ranks. NULL: one order. */
    const tutti_parts *parts;
    /* Size of the training set; the share of each step follows from it. 0: every step is full. */
    uint64_t data_samples;
    /* Steps of each worker in the whole run, whatever the method: for the schedule. 0: unknown;
       then cosine and linear schedules are refused. */
    uint64_t steps;
    uint64_t seed;                   /* of all random draws */

    /* ---- what the client can do ----

       initial: writes the initial values of a tensor that has no client memory. Called on rank 0
       only. NULL: they are 0.

       evaluate: for methods that ask for it (hermes). *loss := the mean loss at the values
       in params[].values, or in x, by a forward pass over samples that the client holds out of
       training, the same ones on all workers. It is called within tutti_engine_step and calls
       nothing of the engine. NULL: no samples are held out, and such methods are refused by open.

       sample_bytes, give, label: for methods by which workers send each other raw samples
       (scadles). sample_bytes: size of one sample with its label, the same on all ranks.
       0: the client can neither send nor accept samples, and such methods are refused by open.
       give: writes n of them to `out`, n x sample_bytes. ids: indexes in the training set, as
       base.h numbers them. It is called within tutti_engine_pass_begin and calls nothing of the
       engine. label: the class of a sample, the same on all ranks; -1, or label NULL: it has none.
       A client with sample_bytes must honour tutti_pass.received.

       own_values: number of floats of client state: values that the client computes along with
       gradients, such as running statistics of batch norms. They are not parameters, and no step
       exchanges them. The same number on all ranks. See tutti_engine_client_state.

       model: the client's model in stages, for pipeline-schedule methods (pipeline.h). The pointer
       is kept. NULL: the client computes whole passes, and such methods are refused. */
    void *user;                      /* passed to all of the client's functions */
    void (*initial)(void *user, int tensor, float *values); /* initial values */
    tutti_status (*evaluate)(void *user, double *loss, tutti_error *err);
    size_t sample_bytes;             /* of a raw sample */
    tutti_status (*give)(void *user, const uint64_t *ids, size_t n, void *out, tutti_error *err);
    int (*label)(void *user, uint64_t id);
    size_t own_values;               /* floats of client state */
    const struct tutti_model *model; /* in stages (method/pipeline.h) */

    /* ---- what the client promises ----

       once: the client computes every batch only once. It is for a client that cannot repeat a pass
       on the same samples, with the same random draws and without changing its running statistics
       (tutti_pass.again). Refused are methods that ask for such repetition, and methods that assign
       a step's passes to workers (tutti_passes_assign): its steps are one pass each.

       whole_batches: each pass of the client has `batch` samples, as from a loader with a fixed
       batch size. Methods that may give a worker any other number of samples (tutti_engine_takes: 2
       or 3) are refused.

       names: the client accepts the samples of a pass by index (tutti_pass.ids), and writes the
       loss of each if requested (tutti_pass.losses) before it calls pass_end. Methods that choose
       samples are refused without it.

       streams: samples arrive at the client at a rate, and it waits for those of a pass. Methods
       that simulate arrivals themselves refuse it.

       needs: the client promises to read the values of a unit, and to write its gradients, only
       between tutti_engine_unit_acquire and tutti_engine_unit_release of that unit, in every pass.
       Under a method that exchanges pieces concurrently with the next step (method.h,
       m->overlaps_steps) a unit then waits for its own parameters only, and between steps the
       values are valid only in eval_begin and finish. Without it tutti_engine_step waits for all
       pieces before it returns.

       same_order: the client promises that the order of these calls is the same on all ranks,
       whatever the samples. Otherwise methods that gather a unit's values when it is acquired
       (BY_UNIT) compare the order across ranks, eight bytes a unit, and the run ends with an error
       if two ranks acquire different units. */
    bool once;                       /* no samples are computed again; a step is one pass */
    bool whole_batches;              /* each pass has `batch` samples */
    bool names;                      /* passes may list their samples, request losses */
    bool streams;                    /* the client waits for samples that arrive */
    bool needs;                      /* values are read within unit_acquire ... unit_release */
    bool same_order;                 /* units are acquired in the same order on all ranks */

    /* ---- the run ----

       servers: number of ranks, the last of the world, that only serve (method:
       TUTTI_PARAMETER_SERVERS). They have no samples and make no steps, and no count of workers
       includes them. Their clients make the calls that workers make between steps. They also call
       tutti_engine_more, which reports that there is no step for them. They have neither the model
       nor a gradient, only the shards that they serve: their clients' parameter memory is neither
       read nor written, and may be NULL.

       device_memory: bytes that this rank may use on its device: for parameters, gradients, other
       state that methods and optimisers declare there, and the client's own use
       (tutti_engine_use_device). State that is kept elsewhere (tutti_state.tier) does not count.
       Exceeding it is TUTTI_ERR_MEMORY; the sentence names what is needed, what is available and
       what uses it. Declared memory is checked by open, before any is allocated. On a machine
       without an accelerator it bounds the memory that would be on one. It may differ between
       ranks.

       snapshot_every, snapshot_most: snapshots of the model during training (below, "snapshots"):
       one after every snapshot_every gradients, 0: never; at most snapshot_most of them are kept.
       For asynchronous methods, and for those with TUTTI_UNSYNCHRONIZED_STEPS, where snapshot_every
       counts steps; other methods make no snapshots. The same on all ranks.

       commit: each step is made as a whole or not at all. Everything that the workers send each
       other in the step has arrived at this worker, and nothing of its state has changed, when
       tutti_engine_step calls commit(user, step), step from 0. It then makes the step's update, by
       itself. false: the step fails with TUTTI_ERR_PEER. After that, and after a failure before the
       call, the state is to the bit that of the step before (tutti_engine_whole). The call is on
       the client's thread, may block, and calls nothing of the engine. It is NULL on all ranks or
       on none. A run that is to go on after a change of its workers has it; it costs the overlap
       of updates, and of the gathers of zero, and memory for client state. Under zero without
       groups a worker has the slots of the next one's shards, too, and all slots twice. For
       methods with TUTTI_WHOLE_STEPS; others are refused by open, as is a codec.

       only_declared: open checks the options and declares all state as usual, but allocates no
       memory. Such an engine may only be asked for its method, shares and memory
       (tutti_engine_memory), and be closed. Then another may be opened on the same world. */
    /* The client's own "key=value\n" lines, compared over ranks together with the engine's. */
    const char *fingerprint;
    int servers;                     /* ranks that only serve */
    bool stop_on_loss;               /* a lost worker ends the run under any method */
    uint64_t device_memory;          /* most bytes on the device; 0: no limit */
    uint64_t snapshot_every;         /* gradients from one snapshot to the next */
    int snapshot_most;               /* most snapshots kept */
    size_t trace_events;             /* capacity for trace events; 0: no trace */
    uint64_t trace_first, trace_steps; /* first traced step, and how many; 0: all */
    bool (*commit)(void *user, uint64_t step); /* is the step to be made? */
    bool only_declared;              /* no memory is allocated */
} tutti_engine_options;

/* Refuses bad options, then compares the fingerprints of all ranks (version, shapes, options). A
   mismatch is TUTTI_ERR_USAGE on every rank; it names the rank, the key and both values. What one
   rank refuses by itself (TUTTI_ERR_USAGE) is refused on every rank as well: that rank's error
   gives the reason, and the others' errors name that rank. Then rank 0's values are broadcast.
   Collective; blocks.

   A world is for one engine, whose messages may be in flight when it is closed. To train again
   open another world. A second engine is TUTTI_ERR_STATE before anything is done or sent, also
   once the first is closed or has failed. An engine that was refused (TUTTI_ERR_USAGE) before the
   fingerprints were found to be equal does not count. */
tutti_status tutti_engine_open(tutti_engine **out, tutti_world *world, const tutti_param *params,
                               int n_params, const tutti_engine_options *options,
                               tutti_error *err);

/* tutti_engine_open with the caller's methods: a NULL-ended list, not the registry. Blocks. */
tutti_status tutti_engine_open_from(tutti_engine **out, tutti_world *world,
                                    const tutti_param *params, int n_params,
                                    const tutti_engine_options *options,
                                    const struct tutti_method_ops *const *methods,
                                    tutti_error *err);

/* Reports how many bytes the client uses on the device, counted as "activations", in place of its
   last report. Where device_memory is given, figure device_bytes is the peak of both together.
   TUTTI_ERR_MEMORY: beyond device_memory; the last report stays. */
tutti_status tutti_engine_use_device(tutti_engine *e, uint64_t bytes, tutti_error *err);

/* Waits for the engine's lanes. Blocks. */
void tutti_engine_close(tutti_engine *e);

/* The method's layout and counters. Read only. */
const tutti_method *tutti_engine_method(const tutti_engine *e);

/* Address of the values and of the gradient of a tensor. NULL: there is no such tensor, or this
   rank only serves. A gradient is also NULL under a pipeline-schedule method, and where gradients
   are held by piece (steps.h): pass it by tutti_engine_grad_ready_from. Where values are held by
   unit, and in an evaluation under a pipeline-schedule method, the address is valid from
   unit_acquire to unit_release of that unit and differs each time; otherwise it is NULL. */
float *tutti_engine_values(tutti_engine *e, int tensor);
float *tutti_engine_gradient(tutti_engine *e, int tensor);

/* How many times values were handed out: copied to params[].values, or changed in x. A client
   that keeps values elsewhere copies them there when the number has grown. */
uint64_t tutti_engine_handed(const tutti_engine *e);

/* The client state: own_values floats of this worker, 0 at open; NULL if none were asked for.

   The client reads and writes them between pass_begin() and pass_end(), and sets the first values
   before load. Between eval_begin and eval_end, and from finish on, they hold the mean over the
   workers that have had samples, the same bits on all. eval_end() restores the worker's own, so
   an evaluation changes nothing. They are saved and loaded with the run. A checkpoint of another
   number of workers gives each worker the mean. */
float *tutti_engine_client_state(tutti_engine *e);

/* ---- is there another step? ---- */
/* Is there another step for this worker before the run has `until` of them? Blocks.

   **The unit of `until` depends on the method.** For a synchronous method it is steps of all
   workers together. For an asynchronous method (TUTTI_ASYNC) it is gradients computed by any
   worker, so the same number trains it 1 / workers as long as the others. For the same amount of
   training under every method use the epochs or samples variants below.

   Under TUTTI_ASYNC this call hands out gradients one by one: true obliges the caller to one
   step. All workers pass the same `until` until all have received false. Then all are between
   steps and may make collective calls. A client that does not call it makes its own steps: step s
   of worker r is gradient s x workers + r. */
tutti_status tutti_engine_more(tutti_engine *e, uint64_t until, bool *more, tutti_error *err);

/* Is there another step before the run has gone `epochs` times over data_samples, counted from
   the run's beginning? That is exactly the same number of samples under every method, since the
   last step of an epoch is shortened. TUTTI_ERR_USAGE: data_samples is 0. Blocks. */
tutti_status tutti_engine_more_epochs(tutti_engine *e, uint64_t epochs, bool *more,
                                      tutti_error *err);

/* Is there another step before all workers together have had `samples` samples, counted from the
   run's beginning? The run ends with the step (TUTTI_ASYNC: the gradient) that reaches that
   number. So methods differ by less than a step, and not at all where whole steps have exactly
   that many. Samples that were not computed because their worker was lost count as well. Blocks. */
tutti_status tutti_engine_more_samples(tutti_engine *e, uint64_t samples, bool *more,
                                       tutti_error *err);

/* Does the method decide how many samples a step has (steps.h, *free sample counts*)? Then a run
   has as many steps as its samples need: the two calls above determine exactly when it has had
   them, and the number of steps, which tutti_engine_more counts, is not known beforehand. 0: no.
   1: yes, and in each step a worker takes its whole batch or nothing. 2: yes, any number, which
   is known at the step's first pass. 3: yes, and whether another pass follows is unknown until a
   pass ends: `more` of a pass is true, and the next tutti_engine_pass_begin decides. */
int tutti_engine_takes(const tutti_engine *e);

/* Has the method ended the run (tutti_end) before it had as many gradients as were requested? The
   same on all ranks once `more` has returned false on all; from then on `more` is always false.
   An event of kind "ended" reports it. */
bool tutti_engine_ended(const tutti_engine *e);

/* What worker 0 has received so far about the current phase of `more`: the number of gradients
   handed out, and samples and loss sums of those that were computed. Without a collective. */
typedef struct tutti_received {
    uint64_t gradients;
    double samples, loss_sum;
} tutti_received;
void tutti_engine_received(tutti_engine *e, tutti_received *received);

/* ---- a step ---- */
/* Begins the next pass of the step; *pass describes what to compute. TUTTI_CLOSED: the step has
   no more passes; call tutti_engine_step. Blocks. */
tutti_status tutti_engine_pass_begin(tutti_engine *e, tutti_pass *pass, tutti_error *err);

/* Call before the values of a unit are read, in forward and again in backward. Blocks. */
tutti_status tutti_engine_unit_acquire(tutti_engine *e, int unit, bool backward, tutti_error *err);

/* For a tensor with asks_rows, before the pass reads them: fetches the rows ids[0] < ids[1] < ...
   A pass reads and touches only the rows of these calls, and makes none after the table's
   gradient is ready. On return the client's memory has the rows, if there is any. Blocks. */
tutti_status tutti_engine_rows_acquire(tutti_engine *e, int tensor, const uint32_t *ids, size_t n,
                                       tutti_error *err);

/* Call after a unit has run. TUTTI_CLOSED: the step restarts, and what was computed of it is
   discarded. Leave the pass, or end it as usual, and call tutti_engine_pass_begin, which gives
   the step's first pass again (`restarts` of tutti_figures counts these). */
tutti_status tutti_engine_unit_release(tutti_engine *e, int unit, bool backward, tutti_error *err);

/* The gradient of the tensor is final for this pass. Each tensor once a pass, in any order. */
tutti_status tutti_engine_grad_ready(tutti_engine *e, int tensor, tutti_error *err);

/* tutti_engine_grad_ready with the gradient at `gradient`, of type dtype (TUTTI_F32, TUTTI_BF16,
   TUTTI_F16). The memory is read in this call only, so its address may change each time. The
   gradient is copied to g once, or added where the pass has `keep`. If `gradient` is the tensor's
   place in g (tutti_engine_gradient), nothing is copied. NULL: the gradient is 0. In a pass
   without samples it is ignored. */
tutti_status tutti_engine_grad_ready_from(tutti_engine *e, int tensor, const void *gradient,
                                          tutti_dtype dtype, tutti_error *err);

/* tutti_engine_grad_ready for a tensor with row_sparse: this pass has touched only its rows
   ids[0] < ids[1] < ... They are copied from the client's memory, if the tensor has its own. */
tutti_status tutti_engine_grad_ready_rows(tutti_engine *e, int tensor, const uint32_t *ids,
                                          size_t n, tutti_error *err);

/* tutti_engine_grad_ready_rows with the n rows contiguous at `rows`, of type dtype, as in a
   sparse gradient. The memory is read in this call only. */
tutti_status tutti_engine_grad_ready_rows_from(tutti_engine *e, int tensor, const uint32_t *ids,
                                               size_t n, const void *rows, tutti_dtype dtype,
                                               tutti_error *err);

/* Ends the pass. loss_sum: sum of its samples' losses. The gradient of a tensor that was never
   announced counts as 0, and an event names the first such tensor of the run. */
tutti_status tutti_engine_pass_end(tutti_engine *e, double loss_sum, tutti_error *err);

/* Exchanges the remaining pieces, votes on non-finite gradients, clips and updates. Blocks. */
tutti_status tutti_engine_step(tutti_engine *e, tutti_error *err);

/* Sets the optimiser's base learning rate to lr >= 0 from the next update on, for a client with
   its own schedule. The run's schedule multiplies it. With optimizer "client" it only informs the
   parts that depend on the rate (accordion, alq, ef), for which it is 0 until then. The same on
   all ranks at the same step, not within a pass. No checkpoint contains it. TUTTI_ERR_USAGE where
   servers update: they take the rate from lr_schedule. */
tutti_status tutti_engine_lr(tutti_engine *e, double lr, tutti_error *err);

/* For a pipeline-schedule method (TUTTI_PIPELINE_SCHEDULE), instead of pass_begin ... step:
   trains until the run has `until` steps, in which the method calls options.model. All ranks call
   it with the same `until`. The pipeline is empty at the end of a call and has to be filled
   again, so few calls are better than many. No worker ever has the whole model: in an evaluation,
   and after finish, all ranks acquire the same units in the same order, and a unit's values are
   valid from tutti_engine_unit_acquire to tutti_engine_unit_release. A client that does not
   promise `needs` is refused. Blocks. */
tutti_status tutti_engine_drive(tutti_engine *e, uint64_t until, tutti_error *err);

/* The most samples of other workers in a pass (tutti_pass.received). 0: the method sends none. */
int64_t tutti_engine_received_most(const tutti_engine *e);

/* New shares from the next step on, for engines opened with batch_of. Between steps, the same on
   all ranks; the sum stays. The positions that a step uses do not change, only which worker
   computes which. Services quiesce first, since they read shares. Blocks. */
tutti_status tutti_engine_reshare(tutti_engine *e, const int64_t *batch_of, tutti_error *err);

/* The share now; its batch_of is the engine's. ASYNC: of one worker, gradient k is its step k. */
const tutti_share *tutti_engine_share(const tutti_engine *e);
/* Do the local steps of a logical share begin with this pass? The client's optimiser clears. */
bool tutti_engine_round_begins(const tutti_engine *e);

/* ---- the model: final, evaluated, saved ---- */
/* Waits for all work, makes the final model, equal on all workers, stops the clock. Blocks. */
tutti_status tutti_engine_finish(tutti_engine *e, tutti_error *err);
/* Until the next eval_end, x, and `values` of params with client memory, hold the model that
   would be the final one now, for evaluation and export. Nothing is copied for methods whose
   replicas are equal. Between steps only. Blocks. */
tutti_status tutti_engine_eval_begin(tutti_engine *e, tutti_error *err);
/* Restores the worker's own values. */
tutti_status tutti_engine_eval_end(tutti_engine *e, tutti_error *err);

/* Between eval_begin and eval_end, and after finish: the distance |x_i - x| of this worker's own
   model from the common one. 0 where replicas are equal. Overwrites gradients. */
double tutti_engine_apart(tutti_engine *e);

/* Between eval_begin and eval_end, and after finish: swaps the common model with this worker's
   own, and the means of client state with its own, so that the worker's own model can be
   evaluated. Called in pairs, with nothing but evaluation in between. false: nothing was done,
   because replicas are equal or eval_begin was not called. Local; overwrites gradients. */
bool tutti_engine_swap(tutti_engine *e);

/* Saves a checkpoint. All ranks, between steps. facts, keep: see tutti_checkpoint_save. Blocks. */
tutti_status tutti_engine_save(tutti_engine *e, const char *directory, const char *facts, int keep,
                               tutti_error *err);

/* As tutti_engine_save, but the client trains while the checkpoint is written: this copies what the
   rank saves, and returns. A thread writes the copy. All ranks, between steps. Copies directory and
   facts. Blocks.

   The checkpoint has the bits that tutti_engine_save would have written now. It exists when the
   thread is done. Until then, and after a failure or a crash, the previous one is there.

   At most one save is under way. save_begin, tutti_engine_save, save_end, tutti_engine_finish and
   tutti_engine_part wait for it, and return its failure on all ranks. They have done nothing else
   then, except that finish ends the run. The next save is not affected. tutti_engine_close waits as
   well, and reports nothing.
   On a rank without memory for the copy, or with a state on a disk, the client waits within
   save_begin until the checkpoint is written; an event "checkpoint" reports it. In a run that
   continues after losses, the loss of a worker during a save is an event "checkpoint" and no
   failure. The next save is by the remaining workers.
   The thread sends messages. Over mpi(threads=funneled) it cannot, and saves fail. */
tutti_status tutti_engine_save_begin(tutti_engine *e, const char *directory, const char *facts,
                                     int keep, tutti_error *err);

/* Waits until the checkpoint of the last save_begin is written, and returns the outcome of the
   save. Returns TUTTI_OK if an earlier call has returned it. All ranks, between steps. Blocks. */
tutti_status tutti_engine_save_end(tutti_engine *e, tutti_error *err);

/* Saves by save_begin, of this rank in this process. */
typedef struct tutti_saves {
    uint64_t begun, written;         /* begun; known to be complete checkpoints */
    uint64_t waited;                 /* that were still under way when a call waited for them */
    uint64_t blocked;                /* that this rank wrote within save_begin */
    uint64_t bytes;                  /* memory of the copy, which is kept until close */
    int64_t copy_ns, wait_ns;        /* the client made copies; it waited for the thread */
    int64_t write_ns;                /* the thread wrote, or the client within save_begin */
    bool under_way;                  /* one is under way now */
} tutti_saves;
void tutti_engine_saves(const tutti_engine *e, tutti_saves *saves);

/* Loads every declared state of exactly that checkpoint. All ranks, before the first pass. Blocks.

   Another number of workers is legal for methods whose replicas are equal. States of each worker
   then become what base.h states. The mean of the error-feedback residuals must still be applied
   to the model, so each worker gets the mean; local momenta start from 0. */
tutti_status tutti_engine_load(tutti_engine *e, tutti_checkpoint *checkpoint, tutti_error *err);
/* In place of tutti_elastic_over, with engine and world open: gives this rank's part of the
   engine's state (tutti_engine_whole), and `state`, the same on all. Blocks. */
tutti_status tutti_elastic_engine_over(tutti_elastic *m, uint64_t step, tutti_engine *e,
                                       const void *state, size_t bytes, tutti_error *err);
/* tutti_engine_load of the state with which the epoch begins. TUTTI_ERR_STATE: there is none. */
tutti_status tutti_elastic_engine_load(tutti_elastic *m, tutti_engine *e, tutti_error *err);

/* Is the state that of a whole number of steps? *step: how many. Between steps it is; within one,
   and after a failure, with engine_options.commit, unless the update has begun. Local. */
bool tutti_engine_whole(const tutti_engine *e, uint64_t *step);

/* Declared state of this rank in place, for a client that saves it by itself. *pieces: n of them,
   the engine's until its next call, with names as in a checkpoint. It is complete: what is the
   same on all ranks (owner -1, keep SAME) as well as this rank's part of the rest. Between steps,
   or in an evaluation where replicas are equal; or where it is whole (tutti_engine_whole): then
   nothing is sent, and a step is given up. Where the method has services all ranks must call it:
   services quiesce first. Blocks. TUTTI_ERR_USAGE: workers were lost. */
tutti_status tutti_engine_state(tutti_engine *e, const tutti_saved **pieces, size_t *n,
                                tutti_error *err);

/* Call after the client has restored all pieces to what they held on the same rank of a run with
   the same number of workers. All ranks, before the first pass. */
tutti_status tutti_engine_state_written(tutti_engine *e, tutti_error *err);

/* ---- snapshots, for methods whose workers are not in the same step ---- */
/* eval_begin makes all workers wait for the slowest. A snapshot makes no worker wait, and sends
   nothing. It is evaluated later, when all workers have stopped anyway.

   The snapshot of a *point* P, a multiple of snapshot_every: a worker copies its own model when the
   pass of its first gradient from P on begins. So the copy contains all gradients below P that
   this worker has computed, and none of its later ones. It contains other workers' gradients as
   far as they have arrived. The snapshot's model is the mean over the workers, as the final model
   is. Where values are at servers (server.h) the servers make the copy instead, each shard before
   the first request of a worker that has passed P. A worker that stops without having passed a
   point copies what it has then. The copies of a lost worker are lost with it.

   Under TUTTI_UNSYNCHRONIZED_STEPS P is a step, and a worker copies its model when it begins that
   step: with all its own steps below P. The result of an averaging begun before that is added
   when it completes. So the mean over the workers is that of a run which ends at P. Values at
   servers contain all steps below P where every worker must push before any continues; otherwise
   they contain those of the first worker to pass P, and what has arrived from the others.

   The memory of snapshot_most copies per worker is declared. Points beyond that are skipped, so a
   client has to stop, evaluate and drop the snapshots that often. */
typedef struct tutti_snapshot {
    uint64_t gradients;                  /* P */
    /* Of this rank when it made its copy: its clock, as wall_ns of tutti_figures; bytes that it
       had sent; samples that it has computed since. */
    int64_t wall_ns;
    uint64_t bytes_sent, samples_since;
} tutti_snapshot;
/* *n := how many points were passed since the last drop, the same on all ranks. Call it on all
   ranks after tutti_engine_more has returned false on all and before any continues, or after
   finish; under TUTTI_UNSYNCHRONIZED_STEPS also between any two steps: the run quiesces. After
   finish an evaluation does not count in the run's time. Blocks. */
tutti_status tutti_engine_snapshots(tutti_engine *e, int *n, tutti_error *err);
/* The k-th snapshot, from 0 on. */
void tutti_engine_snapshot(const tutti_engine *e, int k, tutti_snapshot *snapshot);
/* As tutti_engine_eval_begin, with the model of that point. All ranks; eval_end ends it. Blocks. */
tutti_status tutti_engine_eval_snapshot(tutti_engine *e, int k, tutti_error *err);
/* Frees the snapshots after their evaluation. All ranks, as for tutti_engine_snapshots. */
void tutti_engine_drop_snapshots(tutti_engine *e);

/* ---- runs that continue after losses. That needs a method with TUTTI_FAULT_TOLERANT, a world
   that survives losses, and no stop_on_loss. Everywhere else settle returns `mine`, has() is true
   for all, and nothing is sent. A worker that is lost before the engine is open, or within load,
   ends the run.

   A step excludes lost neighbours. eval_begin, finish and save repeat automatically if a loss
   interrupts them. Other work that the client does together with all workers (its own
   collectives) has this form:

     do {
         // the remaining workers: sums over them, index 0 writes
         tutti_engine_regroup(e, &group, key);
         // the common work: any number of collectives over the group, all of it repeatable
         status = ...;
         if (status != TUTTI_OK && status != TUTTI_ERR_PEER)
             return status;   // it sends a failure report, and is lost to the others
         status = tutti_engine_settle(e, status, &again, err);
     } while (status == TUTTI_OK && again);

   A worker that fails by itself before it has done its part must not call settle: the others wait
   for it in the common work, and it would wait for them. A failure after that, in work for which
   no worker waits (a file that one worker writes for all), is reported by a separate settle and
   ends the run.

   m->rank, m->workers, the graph and the shares stay as at the start. No worker computes the
   samples of a lost worker. m->all becomes the group of the remaining workers. */
bool tutti_engine_fault_tolerant(const tutti_engine *e);

/* Is that worker still present, as of the last agreement? */
bool tutti_engine_has(const tutti_engine *e, int worker);

/* If membership has changed since the caller made `group` or received it from here: group := the
   workers that are present, and true. It works over messages; its ranks are the engine's. */
bool tutti_engine_regroup(const tutti_engine *e, tutti_group *group, uint64_t key);

/* All present workers agree on the result of their common work. It is tutti_members_agree
   (comm.h), and updates the engine's own groups and counts as well. Blocks. */
tutti_status tutti_engine_settle(tutti_engine *e, tutti_status mine, bool *again, tutti_error *err);

/* Call after the last settle, before the world is closed: no worker leaves while another still
   waits for a message from it. finish does this itself. Blocks. */
tutti_status tutti_engine_part(tutti_engine *e, tutti_error *err);

/* ---- memory ---- */
/* What memory is used for. Of what an engine declares (base.h), x counts as values, and g or the
   buffers of its pieces as gradients. Anything else that outlives a step counts as states: of the
   optimiser, of the method, shards of servers. What does not outlive a step counts as buffers.
   Activations are the client's. */
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

/* Memory of this rank's engine: each declared state, then what was allocated since for messages
   of codecs ("codec.rooms"), rows of tables ("rows.rooms") and more concurrent pieces ("g.more").
   Data on a disk is not counted, but the tiles through which it is streamed are ("tiles"). Tables
   of a few bytes per tensor or worker are not counted. Returns the number of records and writes
   as many as fit. Between steps. */
size_t tutti_engine_memory(const tutti_engine *e, tutti_memory_record *records, size_t room);

/* ---- what a codec did ---- */
/* Bytes of payload to which this worker's gradients were encoded in this process, by tensor, in
   the order of params. They are its messages and the numbers that it contributed to sums, however
   a collective forwards them. NULL: there is no codec. Between steps. Waits for an exchange that
   is running concurrently with the client. Blocks. */
const uint64_t *tutti_engine_payload(const tutti_engine *e);

typedef struct tutti_codec_figure {
    const char *name;
    size_t n;
    const double *value;
} tutti_codec_figure;

/* With codec_report: how the codec encoded this worker's gradient g of a tensor, n elements, when
   it was last measured. That is the first exchange after a number of steps that is a multiple of
   codec_report: the step itself where all steps exchange.

   a is what was encoded: g, or g plus what a wrapper had retained. d is a as decoded. A figure is
   NaN where it does not apply, or where g or a is 0 or not finite. */
typedef struct tutti_codec_record {
    uint64_t step;                   /* steps done, this one included; 0: not measured */
    const char *codec;               /* the one that encoded, inside all wrappers */
    /* Payload of a as encoded, without messages' lengths and what a part's owner encodes again. */
    uint64_t bytes;
    double bits;                     /* per element: 8 bytes / n */
    double norm;                     /* |g| */
    /* |a|_1 / (sqrt(n) |a|): 1: all magnitudes are equal; 1 / sqrt(n): all but one are 0. */
    double rho;
    /* |a - d|^2 / |a|^2: the variance factor where E[d] = a; 1 - delta of a contraction. */
    double lost;
    /* Share of elements that are not 0: of d, and of the mean over all workers as decoded. */
    double density, union_density;
    /* |a - d| / |g| where it is compensated later: with error feedback |e| / |g| of this worker. */
    double residual;
    int n_figures;                   /* figures of the codec itself (codec.h: report) */
    const tutti_codec_figure *figure;
} tutti_codec_record;

/* One record per tensor, in the order of params, valid until the next step. NULL: nothing is
   measured. Between steps. Waits for a measured exchange that runs at the same time. Blocks. */
const tutti_codec_record *tutti_engine_codec_records(const tutti_engine *e);

/* ---- time, figures, events ---- */
/* A histogram of integers from 0 on: one bin per value up to TUTTI_HISTOGRAM_EXACT, above that four
   per doubling. The last bin has no upper edge. Plain numbers, so it may be declared state. */
enum { TUTTI_HISTOGRAM_EXACT = 1024, TUTTI_HISTOGRAM_BINS = 1081 };
typedef struct tutti_histogram { uint64_t count[TUTTI_HISTOGRAM_BINS]; } tutti_histogram;
void tutti_histogram_add(tutti_histogram *h, uint64_t value);
int tutti_histogram_bin(uint64_t value);
uint64_t tutti_histogram_least(int bin); /* the least value of a bin */
/* What the client thread is doing, for the accounting of time. The engine sets COMPUTE when
   pass_begin() returns OK, and OTHER when pass_end() and step() return. The client may set:
     - DATA while it loads its batch after pass_begin(), then COMPUTE: counted as OTHER, and
       reported separately as well.
     - REPORT for its own reports over the network: time counted as OTHER, bytes not counted.
     - OUTSIDE for evaluation and checkpoints: neither time nor bytes are counted.
   Before REPORT and OUTSIDE the call waits for an exchange that is running concurrently with the
   client, since its bytes count. */
typedef enum {
    TUTTI_DOING_COMPUTE,
    TUTTI_DOING_EXPOSED,
    TUTTI_DOING_DATA,
    TUTTI_DOING_OTHER,
    TUTTI_DOING_REPORT,
    TUTTI_DOING_OUTSIDE
} tutti_doing;
tutti_doing tutti_engine_doing(tutti_engine *e, tutti_doing what); /* gives the old one. Blocks. */

/* Figures of this rank. Times run from the first pass to the end of the drain, without OUTSIDE.

   gradients, steps, samples and skipped are those of the run, resumed parts included. Under ASYNC
   gradients, steps and samples are as of when the run was last quiescent, and steps are those per
   worker, rounded up.

   own_steps and the members after it are this worker's in the whole run, resumed parts included.
   A run resumed with another number of workers counts them from the resumption. */
typedef struct tutti_figures {
    int64_t wall_ns, compute_ns;
    int64_t comm_ns;                 /* lanes and client together, hidden or not */
    int64_t exposed_ns, other_ns;
    int64_t data_ns;                 /* part of other: waiting for batches */
    /* Sent by the method; evaluation, reports and checkpoints are not counted. */
    uint64_t bytes_sent, messages_sent;
    uint64_t gradients;              /* in the unit of tutti_engine_more */
    uint64_t steps;
    uint64_t samples;                /* of all workers */
    /* Steps without an update; those of this worker where replicas differ. */
    uint64_t skipped;
    double loss_scale;               /* of this worker's next pass; 0: the loss is not scaled */
    uint64_t own_steps;
    uint64_t restarts;               /* steps that its method restarted */
    uint64_t staleness_max;          /* of its gradients, in the method's count */
    uint64_t staleness_gradients;    /* how many are counted; of a group by its first worker only */
    double staleness_mean;
    const tutti_histogram *staleness; /* of the same; the engine's, as of now */
} tutti_figures;
void tutti_engine_figures(tutti_engine *e, tutti_figures *figures);

/* What happened: skipped steps, unused parameters, workers that were lost. */
typedef struct tutti_event_record {
    uint64_t step;                   /* how many this worker had done */
    const char *kind, *text;
    int worker;                      /* the worker concerned; -1: no particular one */
    uint32_t epoch;                  /* of "lost", "silent", "back" (transport.h); else 0 */
    bool own;                        /* other workers may have different ones */
} tutti_event_record;
/* Oldest first; returns their number. */
int tutti_engine_events(const tutti_engine *e, const tutti_event_record **events);

/* Figures that the method reports (tutti_metric), in the order in which each was first reported. */
typedef struct tutti_metric_record {
    const char *name;
    int worker;                      /* -1: of the run */
    double value;
    int64_t at;                      /* tutti_metric_at; -1: a value by itself */
} tutti_metric_record;
int tutti_engine_metrics(const tutti_engine *e, const tutti_metric_record **metrics);

/* what: "forward", "backward" (of unit index), "ready" (an instant: the gradient of tensor index is
   final), "queue", "exchange", "gather", "update" (of piece index), "wait" (the client thread waits
   for others, a microsecond at least), "checkpoint" (it is saved, or copied for a save in the
   background, which is one on thread 2), and names of methods. */
typedef struct tutti_trace_event {
    const char *what;
    int32_t index;                   /* -1: none */
    uint8_t thread;                  /* 0: client, 1: lane, 2: writes checkpoints */
    uint64_t step;
    int64_t begin_ns, end_ns;        /* equal: an instant */
} tutti_trace_event;
/* tutti_engine_trace: the first trace_events events of the traced steps; returns their number.
   tutti_engine_trace_lost: how many more were dropped because the capacity was reached. */
size_t tutti_engine_trace(const tutti_engine *e, const tutti_trace_event **events);
uint64_t tutti_engine_trace_lost(const tutti_engine *e);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
