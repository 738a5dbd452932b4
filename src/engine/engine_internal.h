/* engine_internal.h: struct tutti_engine and the functions that the engine's own files call in
   each other. Included by the files of src/engine and its step modes (src/engine/modes); modules
   outside include facility.h and engine_facility.h instead.

   One engine runs one method on one rank of a world. Its state belongs to the client thread
   except where a comment names another thread or a lock. "Declared" memory is declared to the plan
   (base.h), which allocates it and by which checkpoints save it. */
#ifndef TUTTI_ENGINE_INTERNAL_H
#define TUTTI_ENGINE_INTERNAL_H
#include "saving.h"
#include "client.h"
#include "clock.h"
#include "engine/facility.h"
#include "engine/lane.h"
#include "exchange/exchange.h"
#include "losses.h"
#include "optim/placed.h"
#include "optim/schedule.h"
#include "pace.h"
#include "pieces.h"
#include "rows.h"
#include "scaler.h"
#include "service/service.h"
#include "snapshots.h"
#include "stage.h"
#include "tier/tier.h"
#include "tutti/method/pipeline.h"
#include "tutti/method/steps.h"
#include "locks.h"

#pragma GCC visibility push(default)     /* for src/engine/modes */

/* The pieces that a tensor overlaps: indexes [first, end). */
typedef struct tutti_engine_span { int first, end; } tutti_engine_span;

/* A gradient that is applied later than in its own step. Members of 8 bytes only, because the
   mode for late gradients (late.c) declares an array of it as 64-bit numbers. */
typedef struct tutti_applied_gradient {
    uint64_t step;               /* the step in which it was computed */
    double lr;                   /* that step's learning rate */
    double scale;                /* the loss scale with which it was computed */
    int64_t vote;                /* result of tutti_engine_vote, once exchanged; 0: finite */
} tutti_applied_gradient;

/* A facility that has added itself (tutti_facility_add). */
typedef struct tutti_engine_facility {
    const tutti_facility_ops *ops;
    void *self;
} tutti_engine_facility;

struct tutti_engine {
    tutti_world *world;          /* the caller's; must outlive the engine */
    tutti_runtime *rt;           /* the world's */
    tutti_method m;              /* what hooks see (method.h); m.engine is this engine */
    tutti_spec *method_spec;     /* the parsed option `method` */
    tutti_plan *plan;            /* all declared state */
    tutti_lane *lane;            /* exchanges pieces */
    tutti_engine_options options; /* a copy; its strings are those of text[] */
    char *text[8];               /* owned copies of the options method, optimizer, lr_schedule,
                                    collective, fingerprint, codec, loss_scale, codec_hierarchy */
    struct {
        tutti_arena *device;     /* memory that counts as the device's */
        tutti_arena *host;       /* host memory that tiers use */
        uint64_t client_bytes;   /* device bytes of the client (tutti_engine_use_device) */
    } memory;
    struct {
        tutti_engine_facility at[TUTTI_FACILITIES_MOST]; /* [n], in the order of being added */
        int n;
        const tutti_step_sizes *sizes; /* functions of the facility that decides how many samples
                                          a step has; NULL: no facility does */
        void *sizer;             /* the `self` for `sizes` */
    } facilities;

    struct {                     /* which samples this worker computes */
        tutti_share share;
        bool rounds;             /* a step is a round of local steps (modes/rounds.h) */
        int64_t *batch_of;       /* [workers]: the workers' batches, or numbers of logical shares,
                                    if they are uneven (then declared, and share.batch_of is
                                    this); else NULL */
        tutti_parts own_part;    /* this worker's part of the data, if asynchronous: `share` then
                                    describes a run of one worker, and share.parts is this */
        int member;              /* this worker's index in `share`: its rank; 0 if asynchronous */
    } division;

    struct {                     /* how gradients are summed over the workers */
        const char *collective;  /* algorithm of sums over all workers; NULL: each sum chooses */
        tutti_route route;       /* the route of a codec's messages */
        struct tutti_engine_exchange *exchange; /* of gradients through a codec; NULL: gradients
                                                   are summed uncompressed */
        bool codec_is_used;      /* a facility sends models through the run's codec, so gradients
                                    do not go through it */
        int codec_team;          /* number of workers that sum their gradients before one of them
                                    encodes the sum (exchange/team.c); 1: each encodes its own */
    } sums;

    /* the flat space */
    tutti_layout layout;
    tutti_tensor *tensors;       /* [n_tensors] */
    tutti_piece *pieces;         /* [n_pieces]; allocated for the most that tutti_recut may make */
    tutti_engine_piece *piece_state; /* [n_pieces], likewise */
    tutti_param *params;         /* [n_tensors]: the client's; names are those of `tensors` */
    char *names;                 /* all tensors' names, in one block */
    tutti_engine_span *pieces_of; /* [n_tensors] */
    bool pieces_stay;            /* tutti_recut is refused: other state depends on the pieces */
    tutti_engine_rows *rows;     /* [n_tensors]; all zero for tensors that are not tables */
    struct {                     /* client state (options.own_values); [own_values + 1] each, the
                                    last element 1 once this worker has had samples, else 0 */
        float *now;              /* declared; NULL: no client state */
        float *kept;             /* declared: saves `now` while it holds the workers' mean; NULL:
                                    no client state, or one rank */
    } own_values;
    float *kept;                 /* [n], declared: saves x while x holds the agreed model; NULL:
                                    replicas are equal, or one rank */
    bool values_changed;         /* x differs from what the client was last handed */
    tutti_engine_client client;
    tutti_engine_store snapshots;
    tutti_engine_saving saving;
    tutti_saved *state_pieces;   /* the list that the client was last given of the state to save;
                                    NULL: none yet */

    struct {
        tutti_group opening;     /* all ranks; for opening the engine only. A rank that gives up
                                    other groups during the run (tutti_engine_settle) must not make
                                    the opening fail on a rank that is still in it and has received
                                    all that it needs */
        tutti_group team;        /* this worker's node group (m.team); under TUTTI_ASYNC */
        int *team_ranks;         /* [m.team]: its ranks; NULL: not under TUTTI_ASYNC */
        int *worker_ranks;       /* [workers]: 0, 1, ...; NULL: every rank is a worker */
        uint64_t steps;          /* steps that this worker has completed in this process: the
                                    sequence number in the keys of a step's groups */
    } groups;
    tutti_group lead;            /* the group that a leader-ordered lane borrows */
    tutti_engine_losses losses;

    /* the step */
    tutti_engine_stage stage;
    struct {
        tutti_pass pass;         /* the current or last pass; index -1: none yet in this step */
        int64_t passes;          /* passes of this step as configured; the method may change
                                    them */
        int64_t computed;        /* samples of this step's passes that have ended */
        bool taken_in;           /* since the last pass, g was unscaled and changed by facilities:
                                    it is the gradient of the update (tutti_engine_take_in) */
        bool abandoned;          /* the method's unit_release hook has restarted the step */
        bool exchanged;          /* a pass of this step exchanges its pieces. Their jobs check the
                                    gradients, which are then the same on all workers */
        int next_piece;          /* TUTTI_ORDER_READY: the next piece to start */
        bool *announced;         /* [n_tensors]: its gradient was announced in this pass */
        double loss_sum;         /* over the samples of this step's passes that have ended */
        bool reported_unused;    /* the event "unused-parameter" was recorded; once per engine */
        const tutti_applied_gradient *applied; /* within step(): the gradient in g is this earlier
                                                 one; NULL: it is this step's */
    } step;
    struct {                     /* a step as a whole or not at all (commit.c) */
        float *client;           /* declared: client state as it was when the step began; NULL:
                                    none, or no options.commit */
        bool begun;              /* the step has begun and is not committed: `client` holds */
        bool changes;            /* it is committed and not over */
    } commit;
    struct {                     /* of an exchange, on this worker; never reset */
        tutti_flag flag;         /* an exchange has failed. No later one begins: the other workers
                                    are still in the failed one and would not join it */
        tutti_word by;           /* the rank that caused the failure; set before `flag` */
        struct {                 /* this worker's own failure in a piece, not another worker's */
            tutti_flag claimed;  /* a thread is writing, or has written, status and error */
            tutti_flag reported; /* status and error are written and may be read */
            tutti_status status;
            tutti_error error;
        } own;
        _Atomic uint64_t turns;  /* the lane's sequence number when the first piece after the
                                    failure was not joined; 0: none yet */
    } failure;
    struct {                     /* the learning rate is base x factor */
        tutti_lr_schedule *schedule;
        double base;             /* the optimiser's, or the client's (tutti_engine_lr) */
        double factor;           /* the schedule's for this step */
    } rate;
    bool at_servers;             /* servers update the model by the run's optimiser */
    unsigned refused;            /* bits 1 << tutti_asked: options that the method refuses, which
                                    no error message recommends (refuse.h) */
    tutti_engine_scaler scaler;

    /* asynchronous methods and services */
    bool is_async;               /* the method has TUTTI_ASYNC */
    tutti_engine_pace pace;
    tutti_engine_services services;

    struct {                     /* since the beginning of the run, if declared; else since open */
        struct {                 /* of the run; declared. Under TUTTI_ASYNC samples are as last
                                    agreed, and step is that of this worker's gradient */
            uint64_t step, samples, skipped;
        } progress;
        struct tutti_engine_done { /* of this worker */
            uint64_t steps, samples, skipped;
        } own,                   /* declared unless replicas are equal; samples: under TUTTI_ASYNC
                                    only */
          reported;              /* the part of `own` that `progress` includes already */
        uint64_t sat_out;        /* the steps among own.steps in which this worker took no part
                                    (tutti_sit_out); declared by methods that have such steps */
        uint64_t before_reset;   /* updates before the optimiser's buffers were last reset; rate.t
                                    counts from there. Declared by methods that reset them
                                    (buffers.c) */
        struct {                 /* of this worker; declared where gradients may be stale
                                    (tutti_engine_declare_history) */
            uint64_t restarts;   /* steps restarted by unit_release */
            uint64_t stale_most, stale_n; /* tutti_stale: the maximum, and the number of calls */
            double stale_sum;
            tutti_histogram stale;
        } history;
    } counts;
    tutti_engine_clock clock;
    tutti_engine_records records;
};

/* ---- table.c: checks for what the author of a method may have forgotten; TUTTI_ERR_STATE ---- */

/* Checks the NULL-ended list of methods: each name is well-formed and unique. */
tutti_status tutti_engine_check_names(const tutti_method_ops *const *methods, tutti_error *err);
/* Returns whether the conditions in row->when can be evaluated (defaults.c); true if it is
   NULL. */
bool tutti_method_default_can_hold(const tutti_method_ops *ops, const tutti_method_default *row);
/* Checks the options, services, defaults and traits of one method, whose name is valid. */
tutti_status tutti_engine_check_table(const tutti_method_ops *ops, int workers, tutti_error *err);

/* ---- options.c: the first and the third step of opening an engine ---- */

/* Finds the method, assigns roles to ranks, copies the options' strings and checks the options. */
tutti_status tutti_engine_read_options(tutti_engine *e, const tutti_method_ops *const *methods,
                                       tutti_error *err);
/* TUTTI_ERR_USAGE unless the numbers of[workers] are 0 or more and sum to `all`. what: what they
   count, "samples of a pass". */
tutti_status tutti_engine_check_parts(const tutti_engine *e, const int64_t *of, int64_t all,
                                      const char *what, tutti_error *err);
/* Once the tensors are placed: applies the method's options, and sets m.self, m.traits and
   is_async. */
tutti_status tutti_engine_open_method(tutti_engine *e, tutti_error *err);

/* ---- declare.c ---- */

/* Declares all state of the engine, the method, its facilities, the optimiser and the codec, and
   refuses incompatible options. `methods` is for an error message: it names the methods that
   accept a codec. */
tutti_status tutti_engine_declare(tutti_engine *e, const tutti_method_ops *const *methods,
                                  tutti_error *err);

/* ---- layout.c: the second step of opening; tutti_engine_cut makes the pieces ---- */

/* Checks and copies the n parameters, and assigns each its range of the flat space. */
tutti_status tutti_engine_place(tutti_engine *e, const tutti_param *params, int n,
                                tutti_error *err);

/* ---- commit.c: a step as a whole or not at all. Without options.commit they do nothing ---- */

/* Within declare(), once the codec is declared: refuses what cannot, and declares memory. */
tutti_status tutti_engine_commit_declare(tutti_engine *e, tutti_error *err);
/* The first pass of a step is about to begin. */
void tutti_engine_commit_begin(tutti_engine *e);
/* All exchanges of the step are over, and nothing of the state has changed: asks the client.
   TUTTI_ERR_PEER: the step is not to be made. Once a step. */
tutti_status tutti_engine_commit(tutti_engine *e, tutti_error *err);
/* The step is over and was counted. */
void tutti_engine_commit_over(tutti_engine *e);
/* The step has failed. If it is not committed the client's state is again as it began. */
void tutti_engine_commit_undo(tutti_engine *e);
/* Has a step failed, or does it now since it is given up, that leaves the state of the one before?
   Then nothing is exchanged. */
bool tutti_engine_commit_left(tutti_engine *e);

/* ---- ready.c ---- */

/* When a pass ends: sets the gradients that were not announced in it to 0 (adds nothing to those
   of earlier passes), and counts them as announced for their pieces. */
tutti_status tutti_engine_unused(tutti_engine *e, tutti_error *err);

/* ---- rate.c ---- */

/* Returns the number of updates before this step: of steps so far, without those skipped or sat
   out. */
uint64_t tutti_engine_updates(tutti_engine *e);
/* Within step(): returns the same number including this step's update, without the steps that
   made no update because a facility merges or delays them (facility.h: behind). */
uint64_t tutti_engine_updates_after_step(tutti_engine *e);

/* ---- step.c ---- */

/* The first half of tutti_base_check: what it exchanges and finds. Changes nothing of the state. */
tutti_status tutti_engine_find(tutti_engine *e, tutti_rate *rate, tutti_engine_verdict *found,
                               tutti_error *err);
/* The second half: asks whether the step is to be made (commit.c), and counts what was found. */
tutti_status tutti_engine_found(tutti_engine *e, const tutti_engine_verdict *found,
                                tutti_error *err);

/* Checks that this worker's gradient of a piece is finite, for pieces that no exchange checks. */
tutti_status tutti_engine_check_gradient(tutti_engine *e, int piece, tutti_error *err);
/* At the end of the run: makes the updates of the gradients that facilities still hold. */
tutti_status tutti_engine_drain(tutti_engine *e, tutti_error *err);

/* ---- locks.c ---- */

/* An operation on elements [first, first + count) of a model, called with their lock held. at,
   from: the addresses of element `first` in the destination and in the source. rate: NULL where
   the operation needs none. */
typedef void tutti_locked_part(tutti_method *m, float *at, const float *from, size_t first,
                               size_t count, const tutti_rate *rate);
/* Applies `part`, with rate NULL, to all of a model: to each part that has a lock, while holding
   that lock. to, from: n elements each. Blocks for the locks. */
void tutti_engine_locked(tutti_method *m, const tutti_locks *locks, tutti_locked_part *part,
                         float *to, const float *from);

/* ---- names.c ---- */

/* Before a pass: checks the sample names that the method has set in p, and sets p->losses to NaN,
   "not reported". TUTTI_ERR_STATE. */
tutti_status tutti_engine_names_check(const tutti_engine *e, const tutti_pass *p,
                                      tutti_error *err);
/* After a pass: checks that the client has reported the loss of every sample, unless loss_sum is
   not finite. TUTTI_ERR_STATE. */
tutti_status tutti_engine_losses_check(const tutti_engine *e, double loss_sum, tutti_error *err);

/* ---- fingerprint.c ---- */

/* Compares version, options and shapes with the other ranks. Collective over all ranks.
   TUTTI_ERR_USAGE on all of them if any differ. */
tutti_status tutti_engine_compare(tutti_engine *e, tutti_error *err);

#pragma GCC visibility pop
#endif
