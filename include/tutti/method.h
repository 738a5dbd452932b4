/* method.h: the contract of a published training method.

   What a method sees is the model as one flat vector x, its gradient g, and passes (pass.h). The
   client (trainer or PyTorch) calls the engine, and the engine calls the hooks below. What a hook
   leaves NULL is done by the default named in its comment. What hooks and services may call is in
   calls.h. What a method declares that makes steps of another kind is in steps.h.

     client thread       pass, rows_acquire, unit_acquire, unit_release, step, final_model, retire,
                         quiesce, resume
     lane or client      exchange
     own threads         services

   x and g belong to the client thread, and to the lane for the range of the piece that it is
   exchanging. A service never touches x, g or the optimiser. What it shares with the hooks is the
   method's own, under a monitor of the method's. Hooks and services block as they like; none
   allocates. A hook or service that fails ends the run, with its sentence.

   What several methods share is a facility, at the end of this header: mixers, averagers and pairs
   (gossip.h), servers (server.h). */
#ifndef TUTTI_METHOD_H
#define TUTTI_METHOD_H
#include "calls.h"
#include "checkpoint.h"
#include "comm.h"
#include "drive.h"
#include "lane.h"
#include "optim.h"
#include "pass.h"
#include "share.h"
#include "steps.h"
#include "topology.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* ---- a method ---- */

enum {  /* traits: facts the engine and `tutti methods` act on */
    /* x is equal on all workers after each step: saved once, no averaging at the end. */
    TUTTI_REPLICAS_EQUAL = 1,
    /* Does not use the run's optimiser. */
    TUTTI_OWNS_UPDATE = 2,
    /* Trains on without a lost worker. A step needs nothing of others but the mixer's neighbours,
       and the mixer leaves out those that are lost. Services do without the worker that
       tutti_is_left_out names. So
       1. there is no `exchange` but in a team, which is lost as a whole;
       2. hooks have no other collectives, but in open and final_model;
       3. final_model may be called again after it has failed.
       engine.h says the rest. */
    TUTTI_FAULT_TOLERANT = 4,
    /* Asynchronous: no worker waits for another's step. A step is one gradient computation by a
       worker that is free, or by a team together, and each is a gradient of its own. `exchange` is
       among the team, and so are collectives in hooks, but in final_model, quiesce and resume. */
    TUTTI_ASYNC = 8,
    /* Takes a codec (engine_options.codec). Its exchange is tutti_exchange, which takes any, or its
       mixer's models go through one (tutti_mixer_options). */
    TUTTI_TAKES_CODEC = 16,
    /* What its step hands to tutti_base_step is a direction of its own and no gradient: clip-norm
       and a client's optimiser are refused. */
    TUTTI_NON_GRADIENT_UPDATE = 32,
    /* Tables are exchanged by tutti_exchange or not at all, and nothing but an exchange writes to
       g. So the rows touched stay known, and only they are looked at, updated (where the optimiser
       allows) and cleared. Without it a table's gradient is whole. */
    TUTTI_SPARSE_ROWS = 64,
    /* The run's optimiser has no slots for all of x: declare() says with tutti_optimizer_declare
       for which part this worker has them. tutti_base_step needs those for all. */
    TUTTI_SHARDED_OPTIMIZER = 128,
    /* Its exchange goes through servers and is no collective, so none can be chosen
       (`collective`). */
    TUTTI_THROUGH_SERVERS = 256,
    /* Its values are at servers (server.h), which may be ranks of their own
       (engine_options.servers). There it declares, opens, serves, agrees, holds and releases as on
       workers, and nothing else of it is called. There is no x and no g, no vector of theirs
       (tutti_declare_vector), and what else is only the workers' should have no memory: a server
       has its slices (server.h). Collectives of `all` are not its. */
    TUTTI_PARAMETER_SERVERS = 512,
    /* Its passes may look at the samples of the pass before again (tutti_pass). Refused where the
       client says that it computes every batch once (engine_options.once). */
    TUTTI_RECOMPUTES = 1024,
    /* Its steps are ddp's, to the bit: the run's optimiser, on the exact mean of a step's
       gradients, and nothing of the method's own outlives a step. Of methods that drive the order
       of that sum may be another. So a run goes on from a checkpoint of any method of which this
       is true (--resume). */
    TUTTI_DDP_EQUIVALENT = 2048,
    /* With these options (traits_of) the run is fail-stop even with dedicated servers, because
       every worker is needed to the end: worker 0 leads the lane, say (TUTTI_ORDER_LED). */
    TUTTI_FAIL_STOP = 4096,
    /* With one worker, or one pipeline (drive.h), REPLICAS_EQUAL and DDP_EQUIVALENT: the engine
       adds it. */
    TUTTI_DDP_EQUIVALENT_ALONE = 8192,
    /* m->held is TUTTI_HELD_BY_UNIT: a worker has its shards of the values, and all of a unit's
       values while that unit is needed (steps.h, "held by unit"). */
    TUTTI_SHARDED_PARAMETERS = 16384,
    /* It has a `drive` hook. Goes with TUTTI_REPLICAS_EQUAL and TUTTI_SHARDED_OPTIMIZER, and with
       no exchange. */
    TUTTI_PIPELINE_SCHEDULE = 32768,
    /* It drives, and asks what units take on each worker (tutti_model.seconds). Whoever can measure
       that does so before the engine opens. */
    TUTTI_PROFILES_UNITS = 65536,
    /* All workers make the same steps, but need not be in the same one. Those in front go on while
       others compute, and an evaluation of the model would make them wait. So snapshots are taken,
       as under ASYNC (engine.h, "put aside"). It has a service. Where x is not the worker's model
       as a step begins, a facility has it (own_aside). */
    TUTTI_UNSYNCHRONIZED_STEPS = 131072,
    /* With these options no step can be left out: nobody knows of the whole gradient before a part
       of it is applied, or something is averaged that counts steps. Loss scaling and
       nonfinite=skip are refused, so `--precision fp16` alone brings no loss scale. */
    TUTTI_NEVER_SKIPS = 262144
};

/* Where the method stands among others: a word for each, which `tutti methods` shows. */
typedef struct tutti_axes {
    const char *topology, *synchrony, *codec, *schedule, *placement, *update;
} tutti_axes;

/* What there is of the gradient, and of the values (m->held). */
typedef enum tutti_held { TUTTI_HELD_WHOLE, TUTTI_HELD_BY_PIECE, TUTTI_HELD_BY_UNIT } tutti_held;

/* In which order a lane exchanges the pieces of a step (m->order).

   READY: by index, so a piece waits for those before it. Small ones stay on the client's thread.
   LED: of worker 0's complete pieces the first by priority, and it tells the others (lane.h). That
   is a message without payload to each other worker for each piece.

   Exchanges through servers want one order too: two workers that each go by their own fill their
   threads, or their credit, with pieces that wait for each other.

   Under LED all pieces go to the lane as soon as they are complete, whatever their index. Without
   threads (engine_options.lane -1) pieces go by index at the end of the step. */
typedef enum tutti_order { TUTTI_ORDER_READY, TUTTI_ORDER_LED } tutti_order;

/* A thread of the method's on every worker, from the first step to the end: an averager, a server.
   Between steps the engine may bring all services of all workers to rest, with no message of theirs
   under way (engine.h, *quiet*): for a checkpoint, an evaluation, the end. They rest in the two
   calls marked [safe] in calls.h and nowhere else. At the end they leave these with TUTTI_CLOSED,
   so a method has no shutdown code.

   run: it is over with OK or TUTTI_CLOSED, and returns at once where a worker has nothing to do.
   hears: it is owed a round when this worker has learnt of losses, in a run that goes on after
   them. The services of server.h do by themselves. */
typedef struct tutti_service {
    const char *name;                    /* of the thread, 10 bytes count */
    tutti_status (*run)(tutti_method *m, tutti_error *err);
    bool hears;
} tutti_service;
enum { TUTTI_SERVICES_MOST = 4 };

/* A default of one of the run's own options under a method: what it is published with, or was found
   to work with. It holds where nobody has said anything. Of several rows of an option the first
   whose condition holds counts.

   when: conditions on options of the method, as tutti_option.when has them: "algorithm=qadam". One
   on the row's own option is about what somebody has given: of { "optimizer", "adam(eps=1e-4)",
   "optimizer=adam" } an adam that is given has that eps, unless its eps is given too. NULL:
   always. */
typedef struct tutti_method_default {
    const char *option;                  /* as a flag without dashes: "optimizer" */
    const char *value;                   /* as it would be given; a number with /n behind it is
                                            divided by the workers */
    const char *when;
} tutti_method_default;
#define TUTTI_SETTLES_UNKNOWN UINT64_MAX
typedef struct tutti_method_ops {
    const char *name, *title, *authors, *family; /* its page in docs/methods has its name */
    int year;
    tutti_axes axes;
    const char *const *constraints;      /* sentences, NULL-ended; NULL: none */
    const tutti_option *options;         /* into self; NULL: none */
    const tutti_method_default *defaults; /* of the run's options, where its own will not do; ends
                                             with {0}; NULL: none */
    size_t self_bytes;                   /* of the struct that options are written to */
    /* May a run go on from a checkpoint of one with other options? Gives those of both runs, each
       in its turn, one value where they may differ, such as in where a model is cut; what is then
       not the same may not. `self` has been given options and nothing else. NULL: all must be. */
    void (*alike)(void *self);
    unsigned traits;
    /* Those of a choice of options, which are applied; NULL: `traits`. It may leave out any, and
       adds what few choices have (zero: SHARDED_PARAMETERS). With TUTTI_PARAMETER_SERVERS it leaves
       out FAULT_TOLERANT where every worker serves, and ranks that only serve bring it back. */
    unsigned (*traits_of)(const void *self);
    const tutti_service *services;       /* ends with a NULL name; NULL: none */
    /* Has this choice of options need of them? NULL: any has. */
    bool (*serves)(const void *self);
    /* The first steps of a run that are not like those that follow, by these options: a warm-up, a
       measurement. Of a run of `steps`, of which `epoch` are an epoch. TUTTI_SETTLES_UNKNOWN: it
       finds out as it trains. NULL: none. */
    uint64_t (*settles)(const void *self, uint64_t steps, uint64_t epoch);
    /* Declares state and facilities, sets m->piece_bytes, m->first_piece_bytes, m->lane_width and
       m->team, and refuses bad combinations. No memory, no messages yet. */
    tutti_status (*declare)(tutti_method *m, tutti_plan *plan, tutti_error *err);
    /* All members; x is rank 0's on all workers; may communicate. */
    tutti_status (*open)(tutti_method *m, tutti_error *err);
    /* Called whatever has failed: self may be NULL, or half built. */
    void (*close)(tutti_method *m);
    /* Before every pass. Default: the configured passes. TUTTI_CLOSED: there is none, of methods
       with free sample counts (tutti_take_close). */
    tutti_status (*pass)(tutti_method *m, tutti_pass *p, tutti_error *err);
    /* Before unit u computes / after it has; backward likewise. Default: nothing. unit_release may
       give TUTTI_CLOSED where the step exchanges nothing: what was computed of the step is dropped,
       and it begins again with its first pass, on the same samples. A client that cannot leave a
       pass ends it first. */
    tutti_status (*unit_acquire)(tutti_method *m, int unit, bool backward, tutti_error *err);
    tutti_status (*unit_release)(tutti_method *m, int unit, bool backward, tutti_error *err);
    /* Makes p->g the gradient to apply. NULL: pieces are not exchanged (local, gossip). Nor are
       they in a step whose passes have `exchange` off. */
    tutti_status (*exchange)(tutti_method *m, tutti_piece *p, tutti_error *err);
    /* In place of pass, unit_acquire, unit_release, exchange and step (drive.h): takes the run from
       step m->step to step `until`, computing the stage that this worker has. Client thread, on all
       workers, with the same `until`. On return all of these steps are over, nothing of them is
       under way, and own_x is what the run has come to, the same in all pipelines. The trait is
       TUTTI_PIPELINE_SCHEDULE. NULL: the client calls pass ... step. */
    tutti_status (*drive)(tutti_method *m, uint64_t until, tutti_error *err);
    /* After the last pass and all exchanges. Default: tutti_base_step. */
    tutti_status (*step)(tutti_method *m, tutti_error *err);
    /* Leave the same model in x of all workers. All members call it: at the end, before an
       evaluation or an export. When it is not the end it must not change what training goes on
       from: the engine keeps x for it. Default: mean of x unless REPLICAS_EQUAL. */
    tutti_status (*final_model)(tutti_method *m, tutti_error *err);
    /* This worker makes no more steps until resume; services run, and the others may still compute.
       Default: nothing. For a rule that waits for several workers: it would else wait for one that
       does not come. */
    tutti_status (*retire)(tutti_method *m, tutti_error *err);
    /* The run is quiescent: put into x and declared state what has to survive. / Services are about
       to run, for the first time, after a load or after quiesce: take it from there. None of them
       runs yet on any worker, so no tutti_call. Default: nothing. */
    tutti_status (*quiesce)(tutti_method *m, tutti_error *err);
    tutti_status (*resume)(tutti_method *m, tutti_error *err);
    /* Before a pass reads these rows of table `tensor` (asked): bring them into x. n > 0,
       ascending; each row once a pass. Client thread, TUTTI_SPARSE_ROWS. NULL: x has every row at
       any time. Of methods that drive: before a forward reads them, into own_x, and the backward's
       gradient of that table is 0 elsewhere; n may be 0. */
    tutti_status (*rows_acquire)(tutti_method *m, int tensor, const uint32_t *ids, size_t n,
                                 tutti_error *err);
    /* A checkpoint of other workers has been loaded (engine.h), and declared states are what
       state.h makes of them. Makes them states of a run of these workers, or refuses
       (TUTTI_ERR_USAGE). `began` workers began the run that saved it, and `left` of them were there
       to save it. left == workers: each has its own states as they were, with worker k those of the
       k-th of them. Else they are as open left them. On all members; sends nothing. Default:
       nothing. */
    tutti_status (*resized)(tutti_method *m, int began, int left, tutti_error *err);
} tutti_method_ops;

/* Written by the engine unless noted; read by hooks. */
struct tutti_method {
    const tutti_method_ops *ops;
    unsigned traits;             /* as the options have it */
    void *self;                  /* self_bytes, options filled in; NULL where they are 0 */
    tutti_world *world; tutti_runtime *rt; tutti_device *device;
    const tutti_layout *layout;
    size_t n;                    /* = layout->n */
    float *x, *g;                /* n each. NULL on a rank that only serves; g also where it is
                                    held by piece, and x where it is held by unit */
    tutti_group all;             /* the workers; client thread's copy. Under FAULT_TOLERANT those
                                    that are left, by rank. On a rank that only serves its index is
                                    -1 */
    tutti_group everyone;        /* the workers and, behind them, ranks that only serve: what is
                                    agreed on. Likewise */
    int rank, workers;           /* rank: my index in everyone at the beginning, a worker's below
                                    `workers`; both stay */
    int servers;                 /* ranks workers ... workers + servers - 1 only serve; stays */
    /* Of methods that drive (drive.h), from tutti_drive_declare on; x and g are then NULL. */
    tutti_range own;             /* this worker's elements of the flat space */
    float *own_x, *own_g;        /* own.count each */
    int member, stage;           /* my pipeline, which is a worker to share.h; my stage of it */
    int mate, mates;             /* of the workers that have this stage in this pipeline which I am,
                                    and how many they are */
    tutti_optim *optim;          /* NULL under TUTTI_OWNS_UPDATE, and where it is the client's */
    int team;                    /* declare() may set under ASYNC: so many workers of consecutive
                                    ranks take their gradients and make their steps together; must
                                    divide workers. Default 1 */
    int lane_width;              /* declare() may set; default 1 */
    bool all_on_lane;            /* declare() may set: where there are several pieces all go to the
                                    lane, small ones and the last too. So lane_width of them are
                                    under way at most, begun in their order */
    bool whole;                  /* declare() may set: `exchange` is called when the gradient of the
                                    whole step stands in g, on the client's thread, piece by piece
                                    in order. So it may look at all of g before the first is sent;
                                    nothing overlaps */
    size_t piece_bytes, first_piece_bytes; /* declare() may set; default 25 MiB, 1 MiB */

    /* declare() may set, of pieces; steps.h has the rest ("cut, ordered, updated one by one").
       cut_bytes: they end at piece_bytes (the first at first_piece_bytes) exactly, rounded up to a
       multiple of 64, inside tensors too; but a table whose rows are known is a piece by itself.
       close_bytes: with cut_bytes: a piece ends as well with the tensor by which it has so many
       bytes. 0: only where it is full.
       piece_bytes_least: tutti_recut may make them so small. 0: they stay.
       by_piece: each is updated as soon as it is exchanged; step() waits for none.
       no_step: with by_piece: the method has a step hook for other options, which is not called.
       order: see there. forward_first: of those that are complete the one that meets the least unit
       goes first, of equals the least index; else as they became complete.
       credit: bytes of pieces under way at most, one at least; 0: no limit. */
    bool cut_bytes;
    size_t close_bytes, piece_bytes_least;
    bool by_piece, no_step;
    tutti_order order;
    bool forward_first;
    size_t credit;
    /* declare() may set: BY_PIECE: there is no gradient of the whole model, g is NULL; steps.h,
       "held by piece". BY_UNIT, which the trait says: nor are there all values, x is NULL; "held
       by unit". Units of at most keep_values values stay from their first need until the
       update. */
    tutti_held held;
    size_t keep_values;
    bool beside;                 /* from open() on: pieces may be under way when the next step has
                                    begun (by_piece, shards), so x of a unit is whole between need
                                    and done of that unit, and nowhere else */
    tutti_rng rng;               /* stream = rank + 1, step = step: per worker; set stream 0 for
                                    shared draws */
    uint64_t step, epoch;        /* steps done, by all workers on average under ASYNC (rng.step:
                                    gradients computed by all); epoch of this step's samples */
    uint64_t steps, epochs;      /* of the whole run, from open() on: what is begun counts;
                                    0: unknown */
    int64_t samples;             /* mine in this step */
    double weight;               /* my samples / all samples of this step; under ASYNC / those of
                                    my team, so 1 without teams */
    const tutti_share *share;    /* who computes how much of a step: share.h */
    bool names;                  /* passes may name their samples (tutti_names_declare), so what
                                    they are over is known when they begin */
    double loss;                 /* mean over what I have computed of this step so far */
    double lr;                   /* of this step */
    void *engine;                /* engine's own */
};

extern const tutti_method_ops *const tutti_methods[]; /* NULL-ended (src/method/registry.c) */
const tutti_method_ops *tutti_method_find(const char *name);
enum {
    TUTTI_METHOD_DEFAULT_LONGEST = 128, /* bytes of a row's value */
    TUTTI_METHOD_DEFAULT_BYTES = 4096 + 2 * TUTTI_METHOD_DEFAULT_LONGEST /* room, behind any spec */
};
/* The method's default of that option in a run of so many workers. spec: the method with its
   options. given: what somebody has said the option is; "" or NULL: nobody has. Then `value` is
   that, with what the method adds to it. false: it has no default, or adds nothing, and what is
   given or the run's own default holds; also where a spec is wrong, which the engine says.
   Allocates. */
bool tutti_method_default_of(const tutti_method_ops *ops, const char *spec, const char *option,
                             const char *given, int workers,
                             char value[TUTTI_METHOD_DEFAULT_BYTES]);
/* Does the row add to what is given of its option? */
bool tutti_method_default_completes(const tutti_method_default *row);
/* Of a built-in method with its options. false and 0 where the spec is wrong, which the engine
   says. Allocates. */
bool tutti_method_traits(const char *spec, unsigned *traits);
/* Are both specs of the same built-in method and, as far as a checkpoint goes (`alike`), of the
   same options? false where one is wrong. Allocates. */
bool tutti_method_alike(const char *spec, const char *other);
/* What `settles` of that method says; 0 where the spec is wrong. Allocates. */
uint64_t tutti_method_settles(const char *spec, uint64_t steps, uint64_t epoch);

/* ---- facilities ---- */

/* What several methods share, such as a mixer (gossip.h) or servers (server.h): a facility stands
   between the engine and the methods. The method declares it within its declare(), and there it
   adds itself. From then on the engine calls the functions below beside the method's hooks, so the
   method says nothing of them.

   Order: facilities in the order in which they were added, and then the method's own hook of that
   name, which may use them. Close is the other way round: the method, then facilities in reverse.
   All functions may be NULL, and the client's thread calls them all, unless noted. A function that
   fails ends the run, with its sentence. */
typedef struct tutti_saved_run {         /* how the run that saved a checkpoint differs */
    int64_t slices;                      /* in which it had values of x; 0: it had none */
    bool resized;                        /* another number of workers is here than saved it */
    bool changed;                        /* or as many, but others: some were lost */
} tutti_saved_run;
typedef struct tutti_facility_ops {
    /* All members; x is rank 0's on all workers; may communicate. */
    tutti_status (*open)(void *self, tutti_error *err);
    /* Services have ended, and the lane. Once for each that was added, however far it came. */
    void (*close)(void *self);
    /* A step begins on this worker: before its first pass, and again before that when it begins
       anew. May communicate. */
    tutti_status (*begin)(void *self, tutti_error *err);
    /* All are about to come to rest: what the client has started and not waited for is over on
       return, and no message of it is under way. May communicate. It is called in runs without
       services, too. */
    tutti_status (*arrive)(void *self, tutti_error *err);
    /* The run is quiescent: x and declared state get what has to survive. May communicate with the
       members. / Services are about to run, on no worker yet: take it from there. */
    tutti_status (*quiesce)(void *self, tutti_error *err);
    tutti_status (*resume)(void *self, tutti_error *err);
    /* After resume: all have left the barriers behind it, and this worker goes on. Times are
       counted from here. */
    void (*begun)(void *self);
    /* That rank is lost, and why: TUTTI_OK: the run can go on without it. Else the sentence with
       which it ends. Any thread; does not block. */
    tutti_status (*without)(const void *self, int rank, const char *why, tutti_error *err);
    /* Values of x are kept in so many slices, beside the workers': a checkpoint says how many. */
    int64_t (*slices)(const void *self);
    /* Snapshots (engine.h, "put aside"), of facilities that keep values of x beside the workers'.
       The run is quiescent: `points` points were passed, and those without a snapshot get it now. /
       Within final_model: x := the snapshot of point k, on all workers. / All were evaluated. */
    void (*put_aside)(void *self, int points);
    /* Where steps are common and x is but a snapshot: to := the worker's model as this step
       begins, within `pass`. What is under way and belongs to it is added when it comes, before all
       is quiet. */
    void (*own_aside)(void *self, float *to);
    tutti_status (*agree_aside)(void *self, int k, tutti_error *err);
    void (*drop_aside)(void *self);
    /* Is the declared state at `memory` one that cannot be read as it stands from a checkpoint of
       such a run? Then load reads it, after all the others. Both send nothing. */
    bool (*recuts)(const void *self, const tutti_saved_run *run, const void *memory);
    tutti_status (*load)(void *self, tutti_checkpoint *checkpoint, const tutti_saved_run *run,
                         tutti_error *err);
} tutti_facility_ops;
/* Within declare(), by the facility itself, once it has memory that close can free: before anything
   in it can fail. ops: kept. */
enum { TUTTI_FACILITIES_MOST = 8 };
void tutti_facility_add(tutti_method *m, const tutti_facility_ops *ops, void *self);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
