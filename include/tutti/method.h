/* method.h: the interface that a training method implements.

   A method sees the model as one flat vector x, its gradient g, and passes (tutti.h). The client
   (`tutti train` or a PyTorch program) calls the engine, and the engine calls the hooks below. A
   hook that is NULL has the default named in its comment. The functions that hooks and services may
   call follow below. Optional step modes that a method may declare are in steps.h.

     client thread       pass, rows_acquire, unit_acquire, unit_release, step, final_model, retire,
                         quiesce, resume
     lane or client      exchange
     own threads         services

   All hooks that are not in this table run on the client thread. x and g belong to the client
   thread. While the lane exchanges a piece, that piece's range of them belongs to the lane. A
   service never touches x, g or the optimiser. Data that services share with hooks is in m->self,
   guarded by a monitor that the method creates. Hooks and services may block. Hooks after `open`,
   and services, must not allocate. A hook or service that fails ends the run, with its error.

   What methods share is a facility: mixers, averagers, pairs (gossip.h), servers (server.h). */
#ifndef TUTTI_METHOD_H
#define TUTTI_METHOD_H
#include "tutti.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* ---- the update rule. One fused pass over any range of the flat space, so that a piece
   (overlap), a shard (ZeRO, servers), a tile (host, NVMe) and the whole model are the same call.

   Update rules are PyTorch's (2.13, CPU, one tensor) to the bit, except for Adam's square root,
   which PyTorch does not round correctly (a last bit of w):
     sgd    torch.optim.SGD: momentum, dampening, nesterov, weight_decay as L2
     adam   torch.optim.Adam: L2 decay
     adamw  decoupled decay ---- */

#define TUTTI_SLOTS_MAX 3

/* g is multiplied by scale; t counts from 1. */
typedef struct tutti_rate {
    double lr, scale;
    uint64_t t;
} tutti_rate;
typedef struct tutti_optim tutti_optim;
typedef struct tutti_optim_ops {
    const char *name, *paper;
    const tutti_option *options;
    size_t self_bytes;
    /* "momentum"; "exp_avg", "exp_avg_sq"; NULL-ended, at most TUTTI_SLOTS_MAX. */
    const char *const *slot_names;
    /* How many of slot_names this configuration uses (sgd without momentum: 0). */
    int (*slots)(const void *self);
    /* Optional: refuses combinations that bounds of options cannot express. */
    tutti_status (*check)(const void *self, tutti_error *err);
    /* count elements: w (updated), g (read), slot[k]. Element-wise: the result for an element
       does not depend on the range in which it is updated (tested, bit for bit). Any runtime
       thread; ranges of concurrent calls must not overlap. */
    void (*apply)(const tutti_optim *o, size_t count, float *w, const float *g, float *const *slot,
                  const tutti_rate *rate);
    double (*lr)(const void *self);    /* the base learning rate, for the schedule */
    /* May rows of a table whose gradient is 0 be skipped? If that changes nothing, or `lazy`. */
    bool (*by_rows)(const void *self);
    /* Does skipping them change the result? Then the rows that a step has touched must be known,
       not only those whose gradient is not 0. */
    bool (*lazy)(const void *self);
} tutti_optim_ops;

struct tutti_optim {
    const tutti_optim_ops *ops;
    void *self;
    tutti_spec *spec;
    tutti_device *device;
    /* The ranges that its slots cover: ascending and not overlapping, concatenated in each slot.
       count: elements of all. at[k]: offset of range k in a slot. */
    tutti_range *ranges;
    size_t n_ranges, count, *at;
    float *slot[TUTTI_SLOTS_MAX];      /* the first element of range 0; NULL: not addressable */
    tutti_place place[TUTTI_SLOTS_MAX]; /* likewise, of slots that are in a tier */
};
const tutti_optim_ops *tutti_optim_find(const char *name);

/* Within declare(): an optimiser over [first, first+count) with slots kept as `keep`. Their states
   are "<prefix>.<slot name>". */
tutti_status tutti_optim_declare(tutti_optim **out, tutti_plan *plan, const char *spec,
                                 const char *prefix, size_t first, size_t count, tutti_keep keep,
                                 tutti_device *device, tutti_error *err);
void tutti_optim_close(tutti_optim *o);
double tutti_optim_lr(const tutti_optim *o);

/* Updates a range within one of those that the slots cover. w, g: its element `first`. */
void tutti_update(tutti_optim *o, size_t first, size_t count, float *w, const float *g,
                  const tutti_rate *rate);

/* ---- what hooks and services of a method may ask of the engine: exchanges,
   updates, collectives of all workers, requests to services, figures and events. Optional step
   modes that a method may declare are in steps.h. ---- */

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
/* An exchange hook: the mean, each worker weighted by its samples. */
tutti_status tutti_base_exchange(tutti_method *m, tutti_piece *p, tutti_error *err);
/* Within declare(): gradients are encoded by `spec` (codec.h), whose states are declared.
   TUTTI_ERR_USAGE where the run has a codec too. */
tutti_status tutti_exchange_declare(tutti_method *m, tutti_plan *plan, const char *spec,
                                    tutti_error *err);
/* *team := the number of workers of consecutive ranks in a group, parsed from the value of
   `option`: "none" (1), "machine" (the workers of one machine, equally many on each), or a
   number, which must divide the workers. TUTTI_ERR_USAGE: the value is invalid. */
tutti_status tutti_team_parse(const tutti_method *m, const char *option, const char *value,
                              int *team, tutti_error *err);
/* The codec's spec of tutti_exchange, from declare() on; NULL: gradients are sent uncompressed. */
const char *tutti_exchange_codec(const tutti_method *m);

/* ---- updates ---- */

/* A local update must be one of tutti_base_step, _on, _counted and _locked, since the optimiser
   may be the client's (tutti.h, optimizer "client"), which only these call. The engine refuses a
   client's optimiser for methods with TUTTI_OWNS_UPDATE or TUTTI_NON_GRADIENT_UPDATE, and where
   tutti_optimizer_declare keeps TUTTI_SLICE: such methods may use m->optim as they like. */

/* The rate of the update that follows `updates` updates (those
   that were skipped do not count). Any thread. */
tutti_rate tutti_rate_at(const tutti_method *m, uint64_t updates);
/* Votes on non-finite gradients, clips, updates; an exchange-only client updates after step(). */
tutti_status tutti_base_step(tutti_method *m, tutti_error *err);
/* tutti_base_step on x (n elements) instead of m->x, with the learning rate times `factor`. Only
   the update holds the lock `lock` (NULL: none). The client's optimiser is called without the
   lock; the change that it makes is added to x under the lock. */
tutti_status tutti_base_step_on(tutti_method *m, float *x, tutti_monitor *lock, double factor,
                                tutti_error *err);
/* tutti_base_step for several updates in a step, which the method counts: *updates is incremented
   if an update was made, and is its rate.t. */
tutti_status tutti_base_step_counted(tutti_method *m, int64_t *updates, tutti_error *err);
/* What tutti_base_step does before the update, on the gradient in g. *rate: that of this step,
   with the scale that clip-norm requires. *skip: skip the step; it has been counted, and an event
   reports it. Client thread; a collective with nonfinite=skip in a step that was exchanged, else
   local to this worker. TUTTI_ERR_NUMBER. */
tutti_status tutti_base_check(tutti_method *m, tutti_rate *rate, bool *skip, tutti_error *err);
/* tutti_base_check for methods whose gradient is applied elsewhere, by a server: g itself is
   scaled as clip-norm requires, and rate->scale is 1. */
tutti_status tutti_base_gradient(tutti_method *m, tutti_rate *rate, bool *skip, tutti_error *err);
/* Under TUTTI_ASKS_FOR_VALUES, within pass and step. get: x := this worker's newest values, which
   the client may have; at no cost where x has them. set: x was written to, so the client is handed
   it before it reads values; x must have been complete before (tutti_values_get), or have been
   written as a whole. Client thread. get blocks. */
tutti_status tutti_values_get(tutti_method *m, tutti_error *err);
void tutti_values_set(tutti_method *m);
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
   update: 0, and rate.t counts from 1. average: slot := mean over the workers, in fp32; blocks. */
tutti_status tutti_buffers_declare(tutti_method *m, tutti_plan *plan, bool average,
                                   tutti_error *err);
void tutti_buffers_reset(tutti_method *m);
tutti_status tutti_buffers_average(tutti_method *m, tutti_error *err);
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
/* all[r] := worker r's n values, this one's included; 0: it is lost. Blocks; client thread. */
tutti_status tutti_gather(tutti_method *m, const float *mine, size_t n, float *all,
                          tutti_error *err);
/* all := the elements of all workers, concatenated by rank: counts[r] elements of worker r.
   counts is the same on all. Legal only if no worker was lost. Blocks; client thread. */
tutti_status tutti_gather_v(tutti_method *m, const size_t *counts, tutti_buffer mine,
                            tutti_buffer all, tutti_error *err);

/* ---- services: `service` is an index of ops->services ---- */

/* [safe] Begins the service's next round: blocks until a round is pending (tutti_round_post); with
   `free` a round begins at once. TUTTI_CLOSED: the end. The run is quiescent without rounds. */
tutti_status tutti_round_next(tutti_method *m, int service, bool free, tutti_error *err);
/* Requests that many rounds of the service. Client thread. */
void tutti_round_post(tutti_method *m, int service, int64_t rounds);
/* Client thread: blocks until at most `most` rounds are pending or in progress. */
tutti_status tutti_round_await(tutti_method *m, int service, int64_t most, tutti_error *err);
/* Sends a request to that service of a member and blocks for its reply (RPC); a reply matches
   only its own request. Any thread. note: the request's kind, a, b; on return the reply's. Kinds
   above 0xFFFFFFF0 are reserved for the engine. TUTTI_ERR_PEER: that worker is lost, or its
   service has failed. TUTTI_CLOSED: this worker ends, after a failure. Under FAULT_TOLERANT a
   request of a lost worker is not served, and a reply to it is TUTTI_OK. */
tutti_status tutti_rpc_call(tutti_method *m, int service, int member, tutti_header *note,
                            tutti_buffer request, tutti_buffer reply, tutti_error *err);
/* [safe] Receives the next request to this service, from any member, in order of arrival. room:
   the buffer for payloads, the same in each call; its contents are stable only from the return
   with a request to the next call. Without a buffer several requests may be received
   concurrently, with one they are received one by one. TUTTI_CLOSED: the end. TUTTI_TIMEOUT: none
   has arrived until deadline_ns, a time of tutti_now_ns. Use a deadline only while a request is
   unanswered; otherwise the run could be declared quiescent while the service is active. */
tutti_status tutti_rpc_receive(tutti_method *m, int service, tutti_header *note, tutti_buffer room,
                               int64_t deadline_ns, tutti_error *err);
/* Replies once to a request of tutti_rpc_receive, at any time; on the service's thread.
   answer: kind, a, b; NULL: zeros. It carries no payload: servers (server.h) reply with values. */
tutti_status tutti_rpc_reply(tutti_method *m, const tutti_header *request,
                             const tutti_header *answer, tutti_error *err);
/* Does `status` mean that worker err->rank is lost, and that this run continues without it? */
bool tutti_is_left_out(const tutti_method *m, tutti_status status, const tutti_error *err);

/* ---- figures and events ---- */

/* Sets a figure of the method in summary.json ("method_figures"): of a worker, or of the run
   (worker -1). The last value set for a name counts, as worker 0 has it at the end. The pointer
   `name` is kept. Client thread; allocates. */
void tutti_metric(tutti_method *m, const char *name, int worker, double value);
/* tutti_metric for a figure with a value at each of several `at` (0 ...): [at, value]. */
void tutti_metric_at(tutti_method *m, const char *name, int worker, int64_t at, double value);
/* tutti_metric_at for each non-empty bin of a histogram: `at` is the value up to
   TUTTI_HISTOGRAM_EXACT, beyond it the bin's lower edge (histogram_edges of summary.json). */
void tutti_metric_histogram(tutti_method *m, const char *name, int worker,
                            const tutti_histogram *h);
/* Records an event for summary.json ("events") that worker 0 records as well: events of other
   workers are dropped. kind: the pointer is kept. Client thread; allocates. */
void tutti_event(tutti_method *m, const char *kind, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- a method ---- */

enum {  /* traits: facts the engine and `tutti methods` act on */
    /* x is equal on all workers after each step: in checkpoints once; final_model takes no mean. */
    TUTTI_REPLICAS_EQUAL = 1,
    /* Does not use the run's optimiser. */
    TUTTI_OWNS_UPDATE = 2,
    /* Continues training without a lost worker. A step depends on no workers but the mixer's
       neighbours (gossip.h), and the mixer excludes those that are lost. Services must continue
       without worker err->rank where tutti_is_left_out is true. Therefore:
         - There is no `exchange` except in a group (m->team), which is lost as a whole.
         - Hooks call no other collectives, except in open and final_model.
         - final_model may be called again after it has failed. tutti.h has the rest. */
    TUTTI_FAULT_TOLERANT = 4,
    /* Asynchronous: no worker waits for another's step. A step is one gradient, computed by a free
       worker, or by a group (m->team) together. `exchange` and the collectives in hooks are among
       that group, except in final_model, quiesce and resume. */
    TUTTI_ASYNC = 8,
    /* Accepts a codec (engine_options.codec). Its exchange is tutti_exchange, which accepts any
       codec, or its mixer's models are encoded by one (tutti_mixer_options). */
    TUTTI_TAKES_CODEC = 16,
    /* Its step passes tutti_base_step a direction that is not the gradient: clip-norm and a
       client's optimiser are refused. */
    TUTTI_NON_GRADIENT_UPDATE = 32,
    /* Tables are exchanged by tutti_exchange or not at all, and nothing but an exchange writes to
       g. So the touched rows stay known, and only they are read, updated (where the optimiser
       allows) and cleared. Without it a table's gradient is dense. */
    TUTTI_SPARSE_ROWS = 64,
    /* The run's optimiser has slots for only a part of x on this worker: declare() states which,
       by tutti_optimizer_declare. tutti_base_step needs them for all of x. */
    TUTTI_SHARDED_OPTIMIZER = 128,
    /* Its exchange goes through servers, so that the option `collective` does not apply. */
    TUTTI_THROUGH_SERVERS = 256,
    /* Its values are at servers (server.h), which may be dedicated ranks
       (engine_options.servers). On these its declare, open, services, final_model, quiesce and
       resume run as on workers, and no other hook is called. They have no x, no g and no vector
       of that size (tutti_declare_vector), and should allocate no other memory that only workers
       need: a server has its shards (server.h). They take no part in collectives of `all`. */
    TUTTI_PARAMETER_SERVERS = 512,
    /* Its passes may repeat the samples of the previous pass (tutti_pass.again). Refused where
       the client computes every batch only once (engine_options.once). */
    TUTTI_RECOMPUTES = 1024,
    /* Its steps are ddp's, to the bit: the run's optimiser, on the exact mean of a step's
       gradients, and no state of the method outlives a step. With TUTTI_PIPELINE_SCHEDULE the order
       of that sum may differ. So --resume takes a checkpoint of any method with this trait. */
    TUTTI_DDP_EQUIVALENT = 2048,
    /* These options (traits_of) make the run fail-stop even with dedicated servers, because every
       worker is needed to the end, for example worker 0 that leads the lane (TUTTI_ORDER_LED). */
    TUTTI_FAIL_STOP = 4096,
    /* With one worker, or one pipeline, REPLICAS_EQUAL and DDP_EQUIVALENT: the engine adds it. */
    TUTTI_DDP_EQUIVALENT_ALONE = 8192,
    /* m->held is TUTTI_HELD_BY_UNIT: a worker has its shards of the values, and all of a unit's
       values between unit_acquire and unit_release (steps.h, "held by unit"). */
    TUTTI_SHARDED_PARAMETERS = 16384,
    /* It has `drive`. Requires TUTTI_REPLICAS_EQUAL, TUTTI_SHARDED_OPTIMIZER, and no exchange. */
    TUTTI_PIPELINE_SCHEDULE = 32768,
    /* It has a `drive` hook, and needs the time of each unit on each worker
       (tutti_model.seconds). A client that can measure it does so before the engine opens. */
    TUTTI_PROFILES_UNITS = 65536,
    /* All workers make the same steps, but need not be in the same one at a time. Faster ones
       continue while others compute, and an evaluation of the model would make them wait. So
       snapshots are made, as under ASYNC (tutti.h, "snapshots"). It has a service. Where x is
       not the worker's model when a step begins, a facility provides it (snapshot_values). */
    TUTTI_UNSYNCHRONIZED_STEPS = 131072,
    /* With these options no step can be skipped: a part of the gradient is applied before all of
       it is known, or state that counts steps is averaged. Loss scaling and nonfinite=skip are
       refused, so `--precision fp16` alone does not enable a loss scale. */
    TUTTI_NEVER_SKIPS = 262144,
    /* Its hooks read x only after tutti_values_get, and call tutti_values_set where they have
       written to it; open, quiesce, resume and final_model need neither. In a step that exchanges
       no gradients they read g only through tutti_base_step and its variants. So where the client
       updates, values and gradients stay with it in steps that need neither (tutti.h,
       engine_options.values). Not for TUTTI_ASYNC and TUTTI_UNSYNCHRONIZED_STEPS, whose snapshots
       read x in any step. */
    TUTTI_ASKS_FOR_VALUES = 524288,
    /* With logical shares (engine_options.elastic_shares) its steps have the same bits with any
       number of workers. Gradients are exchanged once a step (tutti_base_exchange,
       tutti_shards_exchange), and nothing else in it depends on the number: no random numbers, no
       state or message of each worker. Without REPLICAS_EQUAL: tutti_rounds_declare. */
    TUTTI_LOGICAL_SHARES = 1048576,
    /* With engine_options.commit nothing that it declares changes before all exchanges of a step
       are over and tutti_base_check, or what calls it, has returned; then it exchanges nothing. */
    TUTTI_WHOLE_STEPS = 2097152,
    TUTTI_STATES_OF_SHARES = 4194304 /* each logical share has a state, on the worker that has it */
};

/* Classification of the method, a word per axis, which `tutti methods` shows: "all-reduce",
   "every step" and so on (src/method/ddp.c). */
typedef struct tutti_axes {
    const char *topology, *synchrony, *codec, *schedule, *placement, *update;
} tutti_axes;

/* Which parts of the gradient and of the values a worker holds (m->held). */
typedef enum tutti_held { TUTTI_HELD_WHOLE, TUTTI_HELD_BY_PIECE, TUTTI_HELD_BY_UNIT } tutti_held;

/* In which order a lane exchanges the pieces of a step (m->order).

   READY: by index, so a piece waits for those before it. Small ones stay on the client's thread.
   LED: leader-ordered: the complete piece of worker 0 with the highest priority goes next, and
   worker 0 notifies the others (lane.h). That is a message without payload to each other worker
   for each piece.

   Exchanges through servers need a common order too: two workers with different orders may fill
   their threads, or their credit, with pieces that wait for each other.

   Under LED all pieces go to the lane as soon as they are complete, whatever their index. Without
   threads (engine_options.lane -1) pieces go by index at the end of the step. */
typedef enum tutti_order { TUTTI_ORDER_READY, TUTTI_ORDER_LED } tutti_order;

/* A thread of the method on every worker, from the first step to the end: an averager, a server.
   Between steps the engine may quiesce all services of all workers, so that no message of theirs
   is in flight (tutti.h, *quiescent*): for a checkpoint, an evaluation, the end. Services stop
   only in the two calls marked [safe] above. At the end these return TUTTI_CLOSED, so a
   method needs no shutdown code.

   run: ends with TUTTI_OK or TUTTI_CLOSED; returns at once on a worker that has nothing to do.
   receives_losses: a round of the service becomes pending when this worker learns of a loss, in a
   run that continues after losses. The services of server.h set this themselves. */
typedef struct tutti_service {
    const char *name;                    /* of the thread; its first 10 bytes are used */
    tutti_status (*run)(tutti_method *m, tutti_error *err);
    bool receives_losses;
} tutti_service;
enum { TUTTI_SERVICES_MOST = 4 };

/* A method's default for one of the run's options: the value that it was published with, or that
   was found to work. It applies where the option is not given. Of several rows for an option the
   first whose condition holds applies.

   when: conditions on options of the method, as tutti_option.when has them: "algorithm=qadam". A
   condition on the row's own option tests the given value: with { "optimizer", "adam(eps=1e-4)",
   "optimizer=adam" } a given adam gets that eps, unless its eps is given too. NULL: always. */
typedef struct tutti_method_default {
    const char *option;                  /* as a flag without dashes: "optimizer" */
    const char *value;                   /* as it would be given; a number followed by /n is divided
                                            by the workers: "sgd(lr=0.1/n)" */
    const char *when;
} tutti_method_default;
/* Result of `settles`: the method decides while it trains. */
#define TUTTI_SETTLES_UNKNOWN UINT64_MAX
typedef struct tutti_method_ops {
    const char *name, *title, *authors, *family; /* name: also of its page in docs/methods */
    int year;
    tutti_axes axes;
    const char *const *constraints;      /* sentences, NULL-ended; NULL: none */
    const tutti_option *options;         /* into self; NULL: none */
    const tutti_method_default *defaults; /* in place of the run's; ends with {0}; NULL: none */
    size_t self_bytes;                   /* of the struct that options are written to */
    /* Overwrites with fixed values the options that may differ between the run that saved a
       checkpoint and the one that resumes it, such as where a model is partitioned. It is called
       with the options of each of the two. The resume is refused if the results differ. Of `self`
       only the options are set. NULL: all options must be equal. */
    void (*ignore_on_resume)(void *self);
    unsigned traits;
    /* The traits under the given options, which are set in `self`; NULL: `traits`. It may remove
       any, and adds those that only some options have (as the method `zero` adds
       SHARDED_PARAMETERS). With TUTTI_PARAMETER_SERVERS it removes FAULT_TOLERANT where every
       worker serves; with dedicated servers the engine restores it. */
    unsigned (*traits_of)(const void *self);
    const tutti_service *services;       /* ends with a NULL name; NULL: none */
    /* Do these options need the services? NULL: always. */
    bool (*serves)(const void *self);
    /* Returns how many first steps of a run differ from those that follow under these options: a
       warm-up, a measurement. steps: number of steps of the run; epoch: of an epoch.
       TUTTI_SETTLES_UNKNOWN: the method decides while it trains. NULL: none. */
    uint64_t (*settles)(const void *self, uint64_t steps, uint64_t epoch);
    /* Returns the method's period in steps under these options: once it has settled, all runs of
       that many consecutive steps exchange and compute as much. 0: not known. NULL: one step. */
    uint64_t (*repeats)(const void *self);
    /* Declares state and facilities, sets m->piece_bytes, m->first_piece_bytes, m->lane_width and
       m->team, and refuses bad combinations. It allocates no memory and sends no messages. */
    tutti_status (*declare)(tutti_method *m, tutti_plan *plan, tutti_error *err);
    /* Called on every rank, when x has been set to rank 0's on all workers. May communicate. */
    tutti_status (*open)(tutti_method *m, tutti_error *err);
    /* Called in any case, also after a failure: self may be NULL, or partly initialised. */
    void (*close)(tutti_method *m);
    /* Before every pass. Default: the configured passes. TUTTI_CLOSED: there is no further pass;
       only from methods with a variable batch (tutti_batch_close of steps.h). */
    tutti_status (*pass)(tutti_method *m, tutti_pass *p, tutti_error *err);
    /* unit_acquire: before unit u computes; unit_release: after it; also in backward. Default:
       nothing. unit_release may return TUTTI_CLOSED where the step exchanges nothing: what was
       computed of the step is discarded, and it restarts with its first pass, on the same
       samples. A client that cannot leave a pass ends it first. */
    tutti_status (*unit_acquire)(tutti_method *m, int unit, bool backward, tutti_error *err);
    tutti_status (*unit_release)(tutti_method *m, int unit, bool backward, tutti_error *err);
    /* Turns p->g into the gradient to apply. NULL: pieces are not exchanged (local, gossip). Nor
       are they in a step whose passes have `exchange` off. */
    tutti_status (*exchange)(tutti_method *m, tutti_piece *p, tutti_error *err);
    /* Replaces pass, unit_acquire, unit_release, exchange and step (pipeline.h): trains from step
       m->step to step `until`, computing the stage that this worker has. Client thread, on all
       workers, with the same `until`. On return all of these steps are complete, with nothing in
       flight, and own_x holds the resulting values, the same in all pipelines. The trait is
       TUTTI_PIPELINE_SCHEDULE. NULL: the client calls pass_begin ... step. */
    tutti_status (*drive)(tutti_method *m, uint64_t until, tutti_error *err);
    /* After the last pass and all exchanges. Default: tutti_base_step. */
    tutti_status (*step)(tutti_method *m, tutti_error *err);
    /* Makes x the same model on all workers. Called on all members: at the end, and before an
       evaluation or an export. Before the end it must not change the state of training, except x,
       which the engine restores. Default: mean of x unless REPLICAS_EQUAL. */
    tutti_status (*final_model)(tutti_method *m, tutti_error *err);
    /* This worker makes no more steps until resume; services run, and the others may still
       compute. Default: nothing. For a rule that waits for several workers: otherwise it would
       wait for one that sends nothing more. */
    tutti_status (*retire)(tutti_method *m, tutti_error *err);
    /* The run is quiescent: write to x and declared state what has to survive. Default: nothing. */
    tutti_status (*quiesce)(tutti_method *m, tutti_error *err);
    /* Services are about to run, for the first time, after a load or after quiesce: restore from x
       and declared state. No service runs yet: no tutti_rpc_call. Default: nothing. */
    tutti_status (*resume)(tutti_method *m, tutti_error *err);
    /* Before a pass reads these rows of table `tensor` (asked): fetches them into x. n > 0,
       ascending; each row once per pass. Client thread, TUTTI_SPARSE_ROWS. NULL: x has every row
       at any time. With a `drive` hook: before a forward reads them, into own_x, and the
       backward's gradient of that table is 0 in all other rows; n may be 0. */
    tutti_status (*rows_acquire)(tutti_method *m, int tensor, const uint32_t *ids, size_t n,
                                 tutti_error *err);
    /* A checkpoint of other workers has been loaded (tutti.h), and declared states were
       converted as base.h describes. Adapts them to a run of these workers, or refuses
       (TUTTI_ERR_USAGE). `began` workers began the run that saved it, and `left` of them remained
       when it was saved. left == workers: per-worker states are loaded, worker k having those of
       the k-th remaining worker. Otherwise they are as open left them. On all members; sends
       nothing. Default: nothing. */
    tutti_status (*resized)(tutti_method *m, int began, int left, tutti_error *err);
} tutti_method_ops;

/* Written by the engine unless noted; read by hooks. */
struct tutti_method {
    const tutti_method_ops *ops;
    unsigned traits;             /* under the given options */
    void *self;                  /* self_bytes, options filled in; NULL if self_bytes is 0 */
    tutti_world *world; tutti_runtime *rt; tutti_device *device;
    const struct tutti_codec_ops *const *codecs; /* of engine_options; NULL: none */
    const tutti_layout *layout;
    size_t n;                    /* = layout->n */
    float *x, *g;                /* n each. NULL on a rank that only serves; g also NULL where it is
                                    held by piece, x where it is held by unit */
    tutti_group all;             /* the workers; client thread's copy. Under FAULT_TOLERANT the
                                    remaining ones, by rank. On a rank that only serves: -1 */
    tutti_group everyone;        /* the workers, followed by ranks that only serve; for agreements.
                                    Under FAULT_TOLERANT likewise the remaining ones */
    int rank, workers;           /* rank: this rank's index in everyone at the start, below
                                    `workers` for a worker; both are constant */
    int servers;                 /* ranks workers ... workers + servers - 1 only serve; constant */
    /* With a `drive` hook (pipeline.h), from tutti_drive_declare on; x and g are then NULL. */
    tutti_range own;             /* this worker's elements of the flat space */
    float *own_x, *own_g;        /* own.count each */
    int member, stage;           /* its pipeline, which is a worker to base.h, and its stage */
    int replica, replicas;       /* this rank's index among the workers that share its stage in its
                                    pipeline, and their number */
    tutti_optim *optim;          /* NULL under TUTTI_OWNS_UPDATE, and where it is the client's */
    int team;                    /* declare() may set under ASYNC: that many workers of consecutive
                                    ranks compute each gradient and make each step together; must
                                    divide workers. Default 1 */
    int lane_width;              /* declare() may set; default 1 */
    bool all_on_lane;            /* declare() may set: where there are several pieces all go to the
                                    lane, also small ones and the last. So at most lane_width of
                                    them are in flight, begun in their order */
    bool whole;                  /* declare() may set: `exchange` is called when g holds the
                                    gradient of the whole step, on the client thread, piece by piece
                                    in order. So it may read all of g before the first is sent;
                                    nothing overlaps */
    size_t piece_bytes, first_piece_bytes; /* declare() may set; default 25 MiB, 1 MiB */

    /* declare() may set, for pieces; steps.h has the rest ("pieces: partitioned, ordered, updated
       one by one").
       cut_bytes: they end exactly at piece_bytes (the first at first_piece_bytes), rounded up to a
       multiple of 64, inside tensors too; but a table whose rows are known is a piece by itself.
       close_bytes: with cut_bytes: a piece ends also with the tensor with which it reaches that
       many bytes. 0: only where it is full.
       piece_bytes_least: smallest piece_bytes that tutti_recut may set. 0: pieces never change.
       by_piece: each is updated as soon as it is exchanged; step() waits for none. Set by
       tutti_by_piece_declare.
       no_step: with by_piece: the method has a step hook for other options, which is not called.
       order: see tutti_order.
       forward_first: of the complete pieces the one that overlaps the lowest unit goes first, on
       a tie the lowest index; otherwise they go in the order in which they became complete.
       credit: most bytes of pieces in flight, but at least one piece; 0: no limit. */
    bool cut_bytes;
    size_t close_bytes, piece_bytes_least;
    bool by_piece, no_step;
    tutti_order order;
    bool forward_first;
    size_t credit;
    /* declare() may set: BY_PIECE: there is no gradient of the whole model, g is NULL; steps.h,
       "held by piece". BY_UNIT (trait TUTTI_SHARDED_PARAMETERS): in addition no worker has all
       values, x is NULL; "held by unit". Units of at most keep_values values stay from their
       first unit_acquire until the update. */
    tutti_held held;
    size_t keep_values;
    bool overlaps_steps;         /* from open() on: pieces may be in flight when the next step has
                                    begun (by_piece, shards), so x of a unit is complete only
                                    between unit_acquire and unit_release of that unit */
    tutti_rng rng;               /* stream = rank + 1, step = step; stream 0: shared draws */
    uint64_t step, epoch;        /* steps done, under ASYNC the average of all workers (rng.step:
                                    gradients computed by all); epoch of this step's samples */
    uint64_t steps, epochs;      /* of the whole run, including those that have begun; from open()
                                    on; 0: unknown */
    int64_t samples;             /* this worker's in this step */
    double weight;               /* this worker's samples / all samples of this step; under ASYNC /
                                    those of its group (team), so 1 where team is 1 */
    const tutti_share *share;    /* how a step's samples are divided: base.h */
    bool names;                  /* passes may list their samples (tutti_names_declare), which are
                                    then known when they begin */
    double loss;                 /* mean over this worker's samples of this step so far */
    double lr;                   /* of this step */
    void *engine;                /* engine's own */
};

extern const tutti_method_ops *const tutti_methods[]; /* NULL-ended (src/method/registry.c) */
const tutti_method_ops *tutti_method_find(const char *name);
enum {
    TUTTI_METHOD_DEFAULT_LONGEST = 128, /* bytes of a row's value */
    TUTTI_METHOD_DEFAULT_BYTES = 4096 + 2 * TUTTI_METHOD_DEFAULT_LONGEST /* a spec and additions */
};
/* value := the method's default of that option in a run of that many workers. spec: the method
   with its options. given: the option's given value; "" or NULL: none is given. With a given
   value, `value` is that value with the method's additions. false: the method has no default, or
   adds nothing, so that the given value or the run's default applies; also where a spec is wrong,
   which the engine reports. Allocates. */
bool tutti_method_default_of(const tutti_method_ops *ops, const char *spec, const char *option,
                             const char *given, int workers,
                             char value[TUTTI_METHOD_DEFAULT_BYTES]);
/* *traits := those of a built-in method with its options. false and 0 where the spec is wrong,
   which the engine reports. Allocates. */
bool tutti_method_traits(const char *spec, unsigned *traits);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
