/* engine_internal.h: what the engine's files share. One engine runs one method on one world. All
   state here belongs to the client thread except what is marked. */
#ifndef TUTTI_ENGINE_INTERNAL_H
#define TUTTI_ENGINE_INTERNAL_H
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

#pragma GCC visibility push(default)     /* the modes stand on it */

/* The pieces that a tensor overlaps. */
typedef struct tutti_engine_span { int first, end; } tutti_engine_span;

/* The exchanged gradient of an earlier step. Plain numbers of eight bytes: a mode declares them. */
typedef struct tutti_applied_gradient {
    uint64_t step;
    double lr, scale;            /* its step's rate, and the loss scale at that time */
    int64_t who;                 /* the vote's result once it is exchanged (judge.c); 0: finite */
} tutti_applied_gradient;

/* A facility that has added itself (facility.c). */
typedef struct tutti_engine_facility {
    const tutti_facility_ops *ops;
    void *self;
} tutti_engine_facility;

struct tutti_engine {
    tutti_world *world;
    tutti_runtime *rt;
    tutti_method m;
    tutti_spec *method_spec;
    tutti_plan *plan;
    tutti_lane *lane;
    tutti_engine_options options; /* their strings are owned by text[] */
    char *text[8];               /* method, optimizer, lr_schedule, collective, fingerprint, codec,
                                    loss_scale, codec_hierarchy */
    struct {
        tutti_arena *device, *host; /* memory that counts as the device's; host memory that tiers
                                       take */
        uint64_t client_bytes;   /* bytes of the device's memory that are the client's */
    } memory;
    struct {
        tutti_engine_facility at[TUTTI_FACILITIES_MOST];
        int n;
        const tutti_step_sizes *sizes; /* of the facility that decides how many samples a step
                                          has; NULL: none does */
        void *sizer;             /* its self */
    } facilities;

    struct {                     /* how the work is divided */
        tutti_share share;
        int64_t *batch_of;       /* workers; declared if the shares are uneven; share.batch_of
                                    points to it */
        tutti_parts own_part;    /* if asynchronous, share knows one worker; this is that worker's
                                    part: mine */
        int member;              /* index in share: mine, or 0 of 1 if asynchronous */
    } division;

    struct {                     /* how gradients are summed over the workers */
        const char *collective;  /* algorithm of the workers' sums; NULL: chosen for each sum */
        tutti_route route;       /* the route of codecs' messages */
        struct tutti_engine_exchange *exchange; /* gradients go through a codec; NULL:
                                                   uncompressed */
        bool codec_is_used;      /* the run's codec is used by a facility: models go through it */
        int codec_team;          /* number of workers whose gradients go through the codec as one
                                    (exchange/team.c) */
    } sums;

    /* the flat space */
    tutti_layout layout;
    tutti_tensor *tensors;
    tutti_piece *pieces;
    tutti_engine_piece *piece_state; /* n_pieces, with capacity for those that tutti_recut may
                                        create */
    tutti_param *params;         /* names owned by `tensors` */
    char *names;
    tutti_engine_span *pieces_of; /* n_tensors */
    bool pieces_stay;            /* the partition is final: other state depends on it */
    tutti_engine_rows *rows;     /* n_tensors; all zero for tensors that are not tables */
    struct {                     /* own_values, and one more, which is 1 once this worker has had
                                    samples */
        float *now, *kept;       /* kept: as they were before the mean. NULL: none */
    } own_values;
    float *kept;                 /* n: saves x during an evaluation of the agreed model; only if
                                    replicas differ */
    bool values_changed;         /* x differs from the client's copies */
    tutti_engine_client client;
    tutti_engine_store snapshots;
    tutti_saved *state_pieces;   /* as last listed for the client; NULL: never listed */

    struct {
        tutti_group opening;     /* all ranks, for opening the engine. A group of its own: a rank
                                    that gives up during the run (tutti_engine_settle) must not
                                    make the opening fail on a rank that is still in it and has
                                    received all that it needs */
        tutti_group team;        /* client thread's copy: my node group, under ASYNC */
        int *team_ranks;
        int *worker_ranks;       /* workers: the first ranks of the world, if the others only
                                    serve; else NULL */
        uint64_t steps;          /* steps of this worker in this process: sequence numbers of its
                                    groups */
    } groups;
    tutti_group lead;            /* group of a leader-ordered lane */
    tutti_engine_losses losses;

    /* the step */
    tutti_engine_stage stage;
    struct {
        tutti_pass pass;         /* the current pass */
        int64_t passes;          /* this worker's passes in this step, as configured */
        int64_t computed;        /* samples computed in this step's passes so far */
        bool taken_in;           /* after the last pass: g is the update's gradient, unscaled,
                                    with the deferred steps added */
        bool abandoned;          /* the method's unit_release hook has restarted the step */
        bool exchanged;          /* a pass of this step exchanges its pieces: gradients are
                                    checked there, and are the same on all workers afterwards */
        int next_piece;          /* the only piece that may start next */
        bool *announced;         /* n_tensors, in this pass */
        double loss_sum;
        bool reported_unused;
        const tutti_applied_gradient *applied; /* within step(): the gradient in g is this earlier
                                                 one; NULL: it is this step's */
    } step;
    struct {                     /* of an exchange */
        tutti_flag flag;         /* one has failed here: no later one begins, since the others are
                                    still in the failed one and would not join it */
        tutti_word by;           /* the rank that caused it; of pieces, set before flag */
        struct {                 /* this worker's own failure in a piece; set before it is
                                    reported to the others */
            tutti_flag claimed, reported;
            tutti_status status;
            tutti_error error;
        } own;
        _Atomic uint64_t turns;  /* sequence number of the lane when the first piece after the
                                    failure was skipped; 0: none yet */
    } failure;
    struct {
        tutti_lr_schedule *schedule;
        double base, factor;     /* the schedule's factor of this step */
    } rate;
    bool at_servers;             /* servers update shards by the run's optimiser */
    tutti_engine_scaler scaler;

    /* asynchronous methods and services */
    bool is_async;               /* TUTTI_ASYNC */
    tutti_engine_pace pace;
    tutti_engine_services services;

    struct {
        struct { uint64_t step, samples, skipped; } progress; /* declared, survives a resume */
        struct tutti_engine_done {
            uint64_t steps, samples, skipped;
        } own, reported;         /* own: this worker's; declared unless replicas are equal; its
                                    samples count under ASYNC only. reported: the part of it that
                                    progress already includes */
        uint64_t sat_out;        /* steps of own.steps in which this worker took no part; declared
                                    by methods that have such steps */
        uint64_t before_reset;   /* updates before the last reset of the optimiser's buffers;
                                    rate.t counts from there. Declared by methods that reset them
                                    (buffers.c) */
        struct {                 /* this worker's, of the client; declared where gradients may be
                                    old (tutti_engine_declare_history) */
            uint64_t restarts, stale_most, stale_n;
            double stale_sum;
            tutti_histogram stale;
        } history;
    } counts;
    tutti_engine_clock clock;
    tutti_engine_records records;
};

/* ---- table.c: checks for what the author of a method may have forgotten ---- */

/* Checks the list of methods: each name is well-formed and unique. */
tutti_status tutti_engine_check_names(const tutti_method_ops *const *methods, tutti_error *err);
/* Has the row no `when`, or one whose conditions can be evaluated? */
bool tutti_method_default_can_hold(const tutti_method_ops *ops, const tutti_method_default *row);
/* Checks the remaining fields of one method. */
tutti_status tutti_engine_check_table(const tutti_method_ops *ops, int workers, tutti_error *err);

/* ---- options.c ---- */

/* Reads the options, fills in defaults, and finds the workers' and the servers' ranks. */
tutti_status tutti_engine_read_options(tutti_engine *e, const tutti_method_ops *const *methods,
                                       tutti_error *err);
/* After that, once the tensors are placed: opens the method, and reads its traits and whether it
   is asynchronous. */
tutti_status tutti_engine_open_method(tutti_engine *e, tutti_error *err);

/* ---- declare.c ---- */

/* Declares all state. methods: an error message names those whose gradients may go through a
   codec. */
tutti_status tutti_engine_declare(tutti_engine *e, const tutti_method_ops *const *methods,
                                  tutti_error *err);

/* ---- layout.c ---- */

/* Places the tensors. tutti_engine_cut splits them into pieces; what has to know the pieces
   before there is memory may call it within declare(). */
tutti_status tutti_engine_place(tutti_engine *e, const tutti_param *params, int n,
                                tutti_error *err);

/* ---- ready.c ---- */

/* A pass is over: gradients that were not announced in it are set to 0. */
tutti_status tutti_engine_unused(tutti_engine *e, tutti_error *err);

/* ---- step.c ---- */

/* Updates so far, as bias corrections count them. */
uint64_t tutti_engine_updates(tutti_engine *e);
/* Within step(): the same including this step's update, as rate.t counts. */
uint64_t tutti_engine_updates_after_step(tutti_engine *e);
/* Checks that a gradient is finite that no exchange has checked. */
tutti_status tutti_engine_check_gradient(tutti_engine *e, int piece, tutti_error *err);
/* The run ends: applies the gradients that are still due. */
tutti_status tutti_engine_drain(tutti_engine *e, tutti_error *err);

/* ---- locks.c ---- */

/* What is done to a part of x under a lock; rate may be NULL. */
typedef void tutti_locked_part(tutti_method *m, float *at, const float *from, size_t first,
                               size_t count, const tutti_rate *rate);
/* Does it to all of x, each part under its lock. */
void tutti_engine_locked(tutti_method *m, const tutti_locks *locks, tutti_locked_part *part,
                         float *to, const float *from);

/* ---- names.c ---- */

/* Before a pass: checks its names and its buffer for losses. Marks the losses as not reported. */
tutti_status tutti_engine_names_check(const tutti_engine *e, const tutti_pass *p,
                                      tutti_error *err);
/* After a pass: has the client reported all losses? */
tutti_status tutti_engine_losses_check(const tutti_engine *e, double loss_sum, tutti_error *err);

/* ---- fingerprint.c ---- */

tutti_status tutti_engine_compare(tutti_engine *e, tutti_error *err);

#pragma GCC visibility pop
#endif
