/* method.h: the contract of a published training method.

   What a method sees. All dense parameters of the model are ONE flat float32 vector x[0..n). It is
   fixed for the life of the engine and ordered as gradients become ready; g is its gradient. A step
   is one or more passes (forward + backward). The client (trainer or PyTorch) calls the engine, and
   the engine calls the hooks below. What a hook leaves NULL is done by the default named in its
   comment.

     client thread       pass, need_rows, need, done, step, agree, leave, hold, release
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
#include "checkpoint.h"
#include "comm.h"
#include "lane.h"
#include "optim.h"
#include "share.h"
#include "topology.h"
#include "tune.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* ---- the flat space ---- */

typedef struct tutti_tensor {
    const char *name;
    size_t first, count, rows, cols;     /* first: place in x */
    int unit;                            /* layer group: what is needed together */
    bool row_sparse;                     /* a table: passes say which rows of its gradient they
                                            touch */
    bool asked;                          /* a table whose rows the method brings when they are asked
                                            for (need_rows): until then x may have older ones */
} tutti_tensor;
/* The rows of a table's gradient that may be other than 0. All others are 0 in g, so that a method
   that does not ask for rows reads the whole gradient as ever. */
typedef struct tutti_rows {
    bool all;                            /* every row may; ids say nothing */
    size_t n;
    const uint32_t *ids;                 /* n, ascending, no two alike */
} tutti_rows;
/* What is exchanged as one: a range of the flat space. Buckets, partitions, fusion buffers and
   shard pieces are all pieces. Ready when every tensor it meets has its gradient.

   rows: of a table, which is a piece by itself: those of the exchange's input. NULL: no table, or a
   method without TUTTI_KNOWS_ROWS.
   group, step, weight: the engine sets them before each exchange, and they stay until it is over.
   group: the workers, keyed so that no other piece or step meets it; its algorithm, which is the
   run's, is there from open() on. step: whose gradient it is. weight: m->weight of that step. An
   exchange that may run beside the next steps (tutti_late_declare, m->by_piece) takes these in
   place of the method's. */
typedef struct tutti_piece {
    int index;                           /* in ready order */
    size_t first, count;
    int first_tensor, tensors;           /* those it meets, under cut_bytes perhaps in part */
    float *g, *x;                        /* element `first` */
    const tutti_rows *rows;
    tutti_group group;
    uint64_t step;
    double weight;
} tutti_piece;
typedef struct tutti_layout {
    size_t used;                         /* elements of all tensors; they stand back to back */
    size_t n;                            /* padded: a multiple of 64 x workers; padding stays 0 and
                                            is not sent */
    const tutti_tensor *tensor; int n_tensors;
    int n_units;
    const tutti_piece *piece; int n_pieces;
} tutti_layout;

/* ---- a pass ---- */

/* One forward and backward. The engine fills in the default, and the pass hook changes it.

   scale: a power of two, 1 unless the run scales the loss. It is the engine's, set after the hook.
   The gradient of a pass before the step's last is scaled until tutti_base_check.
   exchange: pieces go to the lane as they become ready. Default: in the last of the configured
   passes. Never in a pass with more behind it.
   more: another pass of this step follows. Default: until the configured passes are over. A pass
   beyond those begins with 0 samples, at the place of the one before it. A hook that takes passes
   away or adds them takes care of `exchange` too. Before the next pass the hook may use the
   gradient of this one (tutti_base_check, tutti_update) and change x: then it sets same_values to
   false.
   again: the samples of the pass before once more, at other values (SAM, cross-gradients), and the
   same function of them: with its draws, of dropout. The client's running statistics stay as the
   first pass left them, and neither losses nor samples are counted. Of a step's first pass false.
   The hook that sets it sets samples (m->samples) and same_values, too.
   merge: the same in all passes of a step, after tutti_merge_declare. This step has no exchange and
   no update: its gradient waits for the next step's.
   received, given: the last `received` of `samples` are other workers', which tutti_give has
   brought and the client reads at `given`; epoch and position say where the others begin. In a
   pass with `again` they are the same once more.
   ids: after tutti_names_declare: this pass is over these samples, `samples` indexes of the
   training set in any order, in place of those that stand from epoch and position on. These still
   say where in the run the pass is, by which the client makes its draws.
   losses: likewise: room for `samples` numbers, where the client writes the loss of each at the
   pass's values, in their order, named or not. They are there from the next hook on.
   ids and losses are the method's memory, and stay as they are until that hook. */
typedef struct tutti_pass {
    int64_t index;                       /* 0, 1, ... within the step */
    int64_t samples;                     /* to compute in this pass; 0: announce zero gradients */
    int64_t divisor;                     /* the gradient wanted: of scale x (sum of the samples'
                                            losses) / divisor; 0 with samples 0 */
    double scale;
    uint64_t epoch, position;            /* where in the order of share.h the samples begin */
    bool again;                          /* TUTTI_AGAIN: a second look; see above */
    bool same_values;                    /* x has not changed since the previous pass: prepared
                                            weights may be kept */
    bool keep;                           /* add to g instead of replacing it */
    bool exchange;
    bool more;
    bool merge;
    int64_t received;                    /* of samples; 0: all are this worker's own */
    const void *given;                   /* received x sample_bytes (engine_options.give), as other
                                            workers' clients wrote them; the engine's, until the
                                            next pass that has another */
    const uint64_t *ids;                 /* NULL: from position on */
    float *losses;                       /* NULL: nobody asks, and it costs nothing */
} tutti_pass;

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
       2. hooks have no other collectives, but in open and agree;
       3. agree may be called again after it has failed.
       engine.h says the rest. */
    TUTTI_GOES_ON = 4,
    /* Asynchronous: no worker waits for another's step. A step is one gradient computation by a
       worker that is free, or by a team together, and each is a gradient of its own. `exchange` is
       among the team, and so are collectives in hooks, but in agree, hold and release. */
    TUTTI_OWN_PACE = 8,
    /* Takes a codec (engine_options.codec). Its exchange is tutti_exchange, which takes any, or its
       mixer's models go through one (tutti_mixer_options). */
    TUTTI_ENCODES = 16,
    /* What its step hands to tutti_base_step is a direction of its own and no gradient: clip-norm
       and a client's optimiser are refused. */
    TUTTI_DIRECTION = 32,
    /* Tables are exchanged by tutti_exchange or not at all, and nothing but an exchange writes to
       g. So the rows touched stay known, and only they are looked at, updated (where the optimiser
       allows) and cleared. Without it a table's gradient is whole. */
    TUTTI_KNOWS_ROWS = 64,
    /* The run's optimiser has no slots for all of x: declare() says with tutti_optimizer_declare
       for which part this worker has them. tutti_base_step needs those for all. */
    TUTTI_UPDATES_SLICES = 128,
    /* Its exchange goes through servers and is no collective, so none can be chosen
       (`collective`). */
    TUTTI_THROUGH_SERVERS = 256,
    /* Its values are at servers (server.h), which may be ranks of their own
       (engine_options.servers). There it declares, opens, serves, agrees, holds and releases as on
       workers, and nothing else of it is called. There is no x and no g, no vector of theirs
       (tutti_declare_vector), and what else is only the workers' should have no memory: a server
       has its slices (server.h). Collectives of `all` are not its. */
    TUTTI_SERVERS = 512,
    /* Its passes may look at the samples of the pass before again (tutti_pass). Refused where the
       client says that it computes every batch once (engine_options.once). */
    TUTTI_AGAIN = 1024,
    /* Its steps are ddp's, to the bit: the run's optimiser, on the exact mean of a step's
       gradients, and nothing of the method's own outlives a step. So a run goes on from a
       checkpoint of any method of which this is true (--resume). */
    TUTTI_EXACT = 2048,
    /* With these options every worker is needed to the end, so that ranks that only serve bring
       GOES_ON not back (traits_of): worker 0 leads the lane, say (TUTTI_ORDER_LED). */
    TUTTI_NEEDS_ALL = 4096
};

/* Counts of whole numbers from 0 on: one by one up to TUTTI_HISTOGRAM_EXACT, above that four bins
   to a doubling. The last has all from its least value on. Plain numbers, so it may be declared
   state. */
enum { TUTTI_HISTOGRAM_EXACT = 1024, TUTTI_HISTOGRAM_BINS = 1081 };
typedef struct tutti_histogram { uint64_t count[TUTTI_HISTOGRAM_BINS]; } tutti_histogram;
void tutti_histogram_add(tutti_histogram *h, uint64_t value);
int tutti_histogram_bin(uint64_t value);
uint64_t tutti_histogram_least(int bin); /* the least value of a bin */

/* Where the method stands among others: a word for each, which `tutti methods` shows. */
typedef struct tutti_axes {
    const char *topology, *synchrony, *codec, *schedule, *placement, *update;
} tutti_axes;
typedef struct tutti_method tutti_method;

/* What there is of the gradient (m->held). */
typedef enum tutti_held { TUTTI_HELD_WHOLE, TUTTI_HELD_BY_PIECE } tutti_held;

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
   calls marked [safe] below and nowhere else. At the end they leave these with TUTTI_CLOSED, so a
   method has no shutdown code.

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
   to work with. It holds where nobody has said anything. */
typedef struct tutti_method_default {
    const char *option;                  /* as a flag without dashes: "optimizer" */
    const char *value;                   /* as it would be given; a number with /n behind it is
                                            divided by the workers */
} tutti_method_default;
typedef struct tutti_method_ops {
    const char *name, *title, *authors, *family; /* its page in docs/methods has its name */
    int year;
    tutti_axes axes;
    const char *const *constraints;      /* sentences, NULL-ended; NULL: none */
    const tutti_option *options;         /* into self; NULL: none */
    const tutti_method_default *defaults; /* of the run's options, where its own will not do; ends
                                             with {0}; NULL: none */
    size_t self_bytes;
    unsigned traits;
    /* Those of a choice of options, which are applied; NULL: `traits`. It may leave out any and
       adds none. With TUTTI_SERVERS it leaves out GOES_ON where every worker serves, and ranks that
       only serve bring it back. */
    unsigned (*traits_of)(const void *self);
    const tutti_service *services;       /* ends with a NULL name; NULL: none */
    /* Has this choice of options need of them? NULL: any has. */
    bool (*serves)(const void *self);
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
    /* Before unit u computes / after it has; backward likewise. Default: nothing. done may give
       TUTTI_CLOSED where the step exchanges nothing: what was computed of it is dropped, and it
       begins anew with its first pass, on the same samples. A client that cannot leave a pass ends
       it first. */
    tutti_status (*need)(tutti_method *m, int unit, bool backward, tutti_error *err);
    tutti_status (*done)(tutti_method *m, int unit, bool backward, tutti_error *err);
    /* Makes p->g the gradient to apply. NULL: pieces are not exchanged (local, gossip). Nor are
       they in a step whose passes have `exchange` off. */
    tutti_status (*exchange)(tutti_method *m, tutti_piece *p, tutti_error *err);
    /* After the last pass and all exchanges. Default: tutti_base_step. */
    tutti_status (*step)(tutti_method *m, tutti_error *err);
    /* Leave the same model in x of all workers. All members call it: at the end, before an
       evaluation or an export. When it is not the end it must not change what training goes on
       from: the engine keeps x for it. Default: mean of x unless REPLICAS_EQUAL. */
    tutti_status (*agree)(tutti_method *m, tutti_error *err);
    /* This worker makes no more steps until release; services run, and the others may still
       compute. Default: nothing. For a rule that waits for several workers: it would else wait for
       one that does not come. */
    tutti_status (*leave)(tutti_method *m, tutti_error *err);
    /* All is quiet: put into x and declared state what has to survive. / Services are about to run,
       for the first time, after a load or after a hold: take it from there. None of them runs yet
       on any worker, so no tutti_call. Default: nothing. */
    tutti_status (*hold)(tutti_method *m, tutti_error *err);
    tutti_status (*release)(tutti_method *m, tutti_error *err);
    /* Before a pass reads these rows of table `tensor` (asked): bring them into x. n > 0,
       ascending; once a table and pass. Client thread, TUTTI_KNOWS_ROWS. NULL: x has every row at
       any time. */
    tutti_status (*need_rows)(tutti_method *m, int tensor, const uint32_t *ids, size_t n,
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
    void *self;                  /* self_bytes, options filled in */
    tutti_world *world; tutti_runtime *rt; tutti_device *device;
    const tutti_layout *layout;
    size_t n;                    /* = layout->n */
    float *x, *g;                /* n each. NULL on a rank that only serves; g also where it is
                                    held by piece */
    tutti_group all;             /* the workers; client thread's copy. Under GOES_ON those that are
                                    left, by rank. On a rank that only serves its index is -1 */
    tutti_group everyone;        /* the workers and, behind them, ranks that only serve: what is
                                    agreed on. Likewise */
    int rank, workers;           /* rank: my index in everyone at the beginning, a worker's below
                                    `workers`; both stay */
    int servers;                 /* ranks workers ... workers + servers - 1 only serve; stays */
    tutti_optim *optim;          /* NULL under TUTTI_OWNS_UPDATE, and where it is the client's */
    int team;                    /* declare() may set under OWN_PACE: so many workers of consecutive
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

    /* declare() may set, of pieces; "cut, ordered, updated one by one" below has the rest.
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
    /* declare() may set: BY_PIECE: there is no gradient of the whole model, g is NULL; "held by
       piece" below. */
    tutti_held held;
    bool beside;                 /* from open() on: pieces may be under way when the next step has
                                    begun (by_piece, shards), so x of a unit is whole between need
                                    and done of that unit, and nowhere else */
    tutti_rng rng;               /* stream = rank + 1, step = step: per worker; set stream 0 for
                                    shared draws */
    uint64_t step, epoch;        /* steps done, by all workers on average under OWN_PACE (rng.step:
                                    gradients computed by all); epoch of this step's samples */
    uint64_t steps, epochs;      /* of the whole run, from open() on: what is begun counts;
                                    0: unknown */
    int64_t samples;             /* mine in this step */
    double weight;               /* my samples / all samples of this step; under OWN_PACE / those of
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
enum { TUTTI_METHOD_DEFAULT_BYTES = 256 };
/* The method's default of that option in a run of so many workers. false: it has none, and the
   run's own default holds. */
bool tutti_method_default_of(const tutti_method_ops *ops, const char *option, int workers,
                             char value[TUTTI_METHOD_DEFAULT_BYTES]);
/* Of a built-in method with its options. false and 0 where the spec is wrong, which the engine
   says. Allocates. */
bool tutti_method_traits(const char *spec, unsigned *traits);

/* ---- what hooks may ask of the engine: exchanges ---- */

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
   refused by the engine for methods with TUTTI_OWNS_UPDATE or TUTTI_DIRECTION, and where
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
/* Within declare(), under TUTTI_UPDATES_SLICES: m->optim is the run's --optimizer, with slots for
   [first, first + count), kept as `keep`; for tutti_update within it. count 0: none. TUTTI_SLICE:
   it updates at servers, so TUTTI_ERR_USAGE where the optimiser is the client's. */
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
   of methods with services, not under TUTTI_OWN_PACE. */
void tutti_sit_out_declare(tutti_method *m, tutti_plan *plan);
void tutti_sit_out(tutti_method *m);
/* The run ends here: no more gradients are handed out, those that were are computed, and then all
   clients are told (tutti_engine_ended). One worker says it. Client thread, in step(), under
   TUTTI_OWN_PACE, of clients that ask for their steps (tutti_engine_more). */
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

/* all := everybody's, one behind the other by rank: counts[r] elements of worker r, the same on
   all. Where no worker was lost. Blocks; client thread. */
tutti_status tutti_gather_v(tutti_method *m, const size_t *counts, tutti_buffer mine,
                            tutti_buffer all, tutti_error *err);

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
   ends the run. TUTTI_ERR_USAGE in declare: TUTTI_OWN_PACE, TUTTI_GOES_ON, batch_of, servers. done
   may not give TUTTI_CLOSED. */
typedef struct tutti_take_options {
    int64_t pass, most;
    bool lent, even;
    const char *record, *replay;
} tutti_take_options;
/* Rows of a method's option table for two of them. */
#define TUTTI_TAKE_RECORD(at) \
    { "record", TUTTI_TEXT, at, 0, 0, 0, "", \
      "file to write down how many samples each worker took in each step" }
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

/* One update for several steps (src/engine/merge.c). Within declare(), of methods whose replicas
   are equal: passes may have `merge`. After the last of them, in which pieces are exchanged and
   step() is called as ever, g is the mean over the samples of all these steps. Steps that wait
   count for schedules, which go by samples, and not for rate.t. A run's last step never waits. A
   checkpoint may be made in between. */
tutti_status tutti_merge_declare(tutti_method *m, tutti_plan *plan, tutti_error *err);
/* Steps of the update under way, this one included. */
int64_t tutti_merged(const tutti_method *m);

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
   Without a worker it cannot go on. TUTTI_ERR_USAGE: TUTTI_OWN_PACE; TUTTI_GOES_ON where a loss
   does not end the run anyway (a method's traits_of leaves it out when it tunes); a box that is
   none. */
typedef struct tutti_tune_options {
    tutti_tuner_options tuner;
    int64_t drop, steps;
    tutti_status (*apply)(tutti_method *m, const double *value, tutti_error *err);
} tutti_tune_options;
tutti_status tutti_tune_declare(tutti_method *m, tutti_plan *plan,
                                const tutti_tune_options *options, tutti_error *err);

/* ---- pieces: cut, ordered, updated one by one (layout.c, pieces.c, by_piece.c) ---- */

/* Cut by bytes (m->cut_bytes). Sums have the same bits however pieces are cut. TUTTI_ERR_USAGE
   under a codec: it encodes whole tensors.

   Updated by piece (m->by_piece). The run's optimiser updates a piece as soon as it is exchanged
   and the backward of the units that it meets is over, on the thread that comes last to that. The
   result has the bits of an update at the end of the step. step() goes on, and need() of the next
   step waits for the pieces that meet its unit. So the forward of a unit waits for its own
   parameters only. What waits is exposed time.

     x           of a unit is as the last step left it between need and done of that unit, and
                 nowhere else: not in hooks, but in agree, hold and those of facilities
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

   declare: within declare(), under TUTTI_UPDATES_SLICES, once the method has said how pieces are
   cut. TUTTI_ERR_USAGE: a method whose replicas differ, whose tables go by rows, or that does
   something else with pieces (order, by_piece, tutti_late_declare, tutti_merge_declare); an
   optimiser that is the client's, or lazy.
   count: elements of that worker's shards, from declare() on. */
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
   client     hands gradients over, in memory of its own: tutti_engine_ready_from, or ready with
              tutti_param's gradient. tutti_engine_gradient gives NULL
   passes     a step has one: accumulate above 1 is refused, since passes that are added up need the
              whole gradient, and their sum has other bits after each was exchanged
   bytes: of gradients that are not shards, so far in this process. */
size_t tutti_held_bytes(const tutti_method *m);

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
   TUTTI_CLOSED: this worker ends, after a failure. Under GOES_ON a call of a worker that is lost is
   not served, and an answer to one is OK. */
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
void tutti_event(tutti_method *m, const char *kind, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

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
    /* All is quiet: x and declared state get what has to survive. May communicate with those that
       are left. / Services are about to run, on no worker yet: take it from there. */
    tutti_status (*hold)(void *self, tutti_error *err);
    tutti_status (*release)(void *self, tutti_error *err);
    /* After release: all have left the barriers behind it, and this worker goes on. Times are
       counted from here. */
    void (*begun)(void *self);
    /* That rank is lost, and why: TUTTI_OK: the run can go on without it. Else the sentence with
       which it ends. Any thread; does not block. */
    tutti_status (*without)(const void *self, int rank, const char *why, tutti_error *err);
    /* Values of x are kept in so many slices, beside the workers': a checkpoint says how many. */
    int64_t (*slices)(const void *self);
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
