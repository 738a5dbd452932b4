/* engine_internal.h: what the engine's files share. One engine runs one method on one world. All
   state here belongs to the client thread except what is marked. */
#ifndef TUTTI_ENGINE_INTERNAL_H
#define TUTTI_ENGINE_INTERNAL_H
#include "collective/members.h"
#include "engine/facility.h"
#include "engine/lane.h"
#include "exchange/exchange.h"
#include "optim/placed.h"
#include "optim/schedule.h"
#include "pace.h"
#include "rows.h"
#include "service/service.h"
#include "tier/tier.h"
#include "tutti/method/pipeline.h"
#include "tutti/method/steps.h"

#pragma GCC visibility push(default)     /* the modes stand on it */

enum { TUTTI_METRIC_NAME = 64 };

typedef enum {
    STAGE_READY,    /* between steps, nothing done yet or the last step is over */
    STAGE_BETWEEN,  /* inside a step, between passes */
    STAGE_PASS,     /* the client computes */
    STAGE_SHOWN,    /* x holds the agreed model (eval_begin) */
    STAGE_FINISHED,
    STAGE_FAILED
} tutti_engine_stage;

typedef struct tutti_engine_piece {
    tutti_job job;
    tutti_engine *engine;
    int unit;                    /* the lowest unit that the piece overlaps */
    int missing;                 /* tensors whose gradient has not been announced in this pass */
    bool on_lane;                /* started on the lane; else it is exchanged in step() */
    bool pending;                /* started, or to be exchanged in step(), and not yet waited
                                    for */
    /* written by the job, read after the job was waited for */
    tutti_engine_bad bad;
    int64_t exchanged_ns;

    /* with m->by_piece: written by the thread that updates, read after the job was waited for */
    tutti_rate rate;             /* the rate of its gradient's step */
    int held;                    /* tensors whose unit's backward pass is not over; under
                                    by_piece's mutex */
    bool exchanged;              /* its exchange is over; under by_piece's mutex */
    bool updated_here;           /* updated by the client's thread */
    int64_t updating_ns, updated_ns;

    bool gathers;                /* shards: the pending job gathers its values */
    tutti_group between;         /* shards in node groups: the workers that have the same shard;
                                    the exchange's group */
    uint32_t order_seq;          /* values held by unit: sequence number of its order message
                                    (units.c) */
} tutti_engine_piece;
/* The pieces that a tensor overlaps. */
typedef struct tutti_engine_span { int first, end; } tutti_engine_span;

typedef struct tutti_engine_clock {
    bool running;
    tutti_doing doing;
    int64_t started_ns, ended_ns, since_ns, spent_ns[TUTTI_DOING_OUTSIDE + 1];
    int64_t comm_ns;
    uint64_t bytes_at_start, bytes_excluded, bytes_since;
    uint64_t messages_at_start, messages_excluded, messages_since;
} tutti_engine_clock;

/* The loss scale as it is now (scaler.c). */
typedef struct tutti_engine_scale {
    double scale;
    int64_t good;                /* steps without an overflow since the scale changed */
    int64_t left;                /* overflows left until the scale is lowered */
} tutti_engine_scale;
typedef struct tutti_engine_scaler {
    bool on, dynamic;
    double init, growth, backoff, min;
    int64_t interval, hysteresis;
    int on_min;
    tutti_engine_scale now;      /* declared; scale is 1 if loss scaling is off */
} tutti_engine_scaler;

/* The exchanged gradient of an earlier step. Plain numbers of eight bytes: a mode declares them. */
typedef struct tutti_applied_gradient {
    uint64_t step;
    double lr, scale;            /* its step's rate, and the loss scale at that time */
    int64_t who;                 /* the vote's result once it is exchanged (judge.c); 0: finite */
} tutti_applied_gradient;

/* The client's optimiser (client.c). */
typedef struct tutti_engine_client {
    bool updates;                /* optimizer is "client". Without an update in the options the
                                    engine exchanges only */
    bool holds;                  /* exchange only: the client's memory holds the model, where the
                                    client has memory of its own, and x may be older */
    float *before, *kept;        /* n each, to update a model other than x: that model as it was
                                    handed out, and x meanwhile (or engine.kept). NULL: replicas
                                    are equal, or it is not used */
} tutti_engine_client;

/* Snapshots of the model. */
typedef struct tutti_engine_snapshot_at {
    int64_t wall_ns;
    uint64_t bytes, samples;     /* bytes sent; samples computed, as asides.samples */
    bool served;                 /* of a rank that only serves: the bytes are those of its
                                    services */
} tutti_engine_snapshot_at;
typedef struct tutti_engine_store {
    int room;                    /* capacity: points that may be passed between two drops; 0:
                                    none */
    float *x, *own;              /* (room + 1) x n, (room + 1) x (own_values + 1); declared */
    tutti_engine_snapshot_at *at; /* one per point */
    bool begun;                  /* a phase has begun since the last drop */
    uint64_t first;              /* points before that phase */
    int passed;
    uint64_t samples;            /* with common steps: this worker's samples so far that are part
                                    of an update */
    int shown;                   /* while x is that of a point: 1 + its index; else 0. The fields
                                    below save what was there before: */
    tutti_engine_stage was;
    float *kept, *own_kept;
} tutti_engine_store;

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
    tutti_lr_schedule *schedule;
    tutti_plan *plan;
    tutti_arena *device, *host;  /* memory that counts as the device's; host memory that tiers
                                    take */
    uint64_t client_bytes;       /* bytes of the device's memory that are the client's */
    tutti_lane *lane;
    tutti_engine_facility facility[TUTTI_FACILITIES_MOST];
    int n_facilities;
    const tutti_step_sizes *sizes; /* of the facility that decides how many samples a step has; */
    void *sizer;                 /* its self. NULL: none does */
    tutti_engine_options options; /* their strings are owned by text[] */
    char *text[8];               /* method, optimizer, lr_schedule, collective, fingerprint, codec,
                                    loss_scale, codec_hierarchy */

    /* how the work is divided */
    tutti_share share;
    int64_t *batch_of;           /* workers; declared if the shares are uneven; share.batch_of
                                    points to it */
    tutti_parts own_part;        /* if asynchronous, share knows one worker; this is that worker's
                                    part: mine */
    int member;                  /* index in share: mine, or 0 of 1 if asynchronous */

    /* how gradients are exchanged */
    const char *collective;      /* algorithm of the workers' sums; NULL: chosen for each sum */
    tutti_route route;           /* the route of codecs' messages */
    struct tutti_engine_exchange *exchange; /* gradients go through a codec; NULL: uncompressed */
    bool codec_is_used;          /* the run's codec is used by a facility: models go through it */
    int codec_team;              /* number of workers whose gradients go through the codec as one
                                    (exchange/team.c) */

    /* the flat space */
    tutti_layout layout;
    tutti_tensor *tensors;
    tutti_piece *pieces;
    tutti_param *params;         /* names owned by `tensors` */
    char *names;
    tutti_engine_span *pieces_of; /* n_tensors */
    bool pieces_stay;            /* the partition is final: other state depends on it */
    tutti_engine_rows *rows;     /* n_tensors; all zero for tensors that are not tables */
    float *own_state, *own_kept; /* own_values and one more, which is 1 once this worker has had
                                    samples; own_kept: as they were before the mean. NULL: none */
    float *kept;                 /* n: saves x during an evaluation of the agreed model; only if
                                    replicas differ */
    tutti_engine_store snapshots;    /* snapshots */
    tutti_saved *state_pieces;   /* as last listed for the client; NULL: never listed */

    /* groups */
    tutti_group opening;         /* all ranks, for opening the engine. A group of its own: a rank
                                    that gives up during the run (tutti_engine_settle) must not
                                    make the opening fail on a rank that is still in it and has
                                    received all that it needs */
    tutti_group team;            /* client thread's copy: my node group, under ASYNC */
    int *team_ranks;
    int *worker_ranks;           /* workers: the first ranks of the world, if the others only
                                    serve; else NULL */
    uint64_t steps_here;         /* steps of this worker in this process: sequence numbers of its
                                    groups */

    /* losses (members.c) */
    tutti_members *members;      /* of a run that continues after losses; NULL: the run ends with
                                    a loss */
    bool *was_member;            /* workers: scratch of tutti_engine_settle */
    uint64_t agreed_step;        /* steps done when the workers last agreed */
    int watched;                 /* number of the world's events already recorded */
    struct {                     /* left.c */
        tutti_request *leaves;   /* workers and servers: each request ends when that rank is gone;
                                    NULL: not watched */
        tutti_flag posted;       /* all requests are posted and may be read */
        tutti_flag may;          /* the run is over: a rank that leaves now has finished
                                    normally */
    } left;

    /* the step */
    tutti_engine_stage stage;
    tutti_pass pass;             /* the current pass */
    int64_t passes;              /* this worker's passes in this step, as configured */
    int64_t computed;            /* samples computed in this step's passes so far */
    bool taken_in;               /* after the last pass: g is the update's gradient, unscaled,
                                    with the deferred steps added */
    bool abandoned;              /* the method's unit_release hook has restarted the step */
    bool exchanged;              /* a pass of this step exchanges its pieces: gradients are
                                    checked there, and are the same on all workers afterwards */
    tutti_engine_piece *piece_state; /* n_pieces, with capacity for those that tutti_recut may
                                        create */
    tutti_group lead;            /* group of a leader-ordered lane */
    tutti_flag broken;           /* an exchange has failed here: no later one begins, since the
                                    others are still in the failed one and would not join it */
    tutti_word broken_by;        /* the rank that caused it; of pieces, set before broken */
    struct {                     /* this worker's own failure in a piece; set before it is
                                    reported to the others */
        tutti_flag claimed, reported;
        tutti_status status;
        tutti_error error;
    } own_failure;
    _Atomic uint64_t turns_at_failure; /* sequence number of the lane when the first piece after
                                          the failure was skipped; 0: none yet */
    int next_piece;              /* the only piece that may start next */
    bool *announced;             /* n_tensors, in this pass */
    double loss_sum;
    bool values_changed;         /* x differs from the client's copies */
    bool reported_unused;
    const tutti_applied_gradient *applied; /* within step(): the gradient in g is this earlier
                                             one; NULL: it is this step's */
    tutti_engine_client client;
    double lr, lr_factor;        /* base rate; the schedule's, of this step */
    bool at_servers;             /* servers update shards by the run's optimiser */
    tutti_engine_scaler scaler;

    /* asynchronous methods and services */
    bool is_async;               /* TUTTI_ASYNC */
    tutti_engine_pace pace;
    tutti_engine_services services;

    /* counts. progress: declared, survives a resume. own: this worker's; declared unless replicas
       are equal; its samples count under ASYNC only. reported: the part of `own` that `progress`
       already includes. history: this worker's, of the client; declared where gradients may be
       old (tutti_engine_declare_history) */
    struct { uint64_t step, samples, skipped; } progress;
    struct { uint64_t steps, samples, skipped; } own, reported;
    uint64_t sat_out;            /* steps of own.steps in which this worker took no part; declared
                                    by methods that have such steps */
    uint64_t updates_before_reset; /* updates before the last reset of the optimiser's buffers;
                                      rate.t counts from there. Declared by methods that reset
                                      them (buffers.c) */
    struct {
        uint64_t restarts, stale_most, stale_n;
        double stale_sum;
        tutti_histogram stale;
    } history;

    /* times, events, metrics (clock.c) */
    tutti_engine_clock clock;
    tutti_trace_event *trace;
    size_t n_trace; uint64_t trace_lost;
    int64_t *unit_began_ns;      /* 2 x n_units: forward, backward */
    tutti_event_record *events;
    int n_events, room_events;
    tutti_metric_record *metrics;
    int n_metrics, room_metrics;
    int *metric_at;              /* hash table: 1 + index of each metric; 0: free */
    size_t metric_slots;         /* a power of two */
    char **metric_names;         /* names of metrics received from servers */
    int n_metric_names;
};

/* ---- engine.c ---- */

/* TUTTI_ERR_STATE: a call that is legal only between steps came at another time. */
tutti_status tutti_engine_out_of_order(tutti_error *err, const char *call);

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

/* ---- pieces.c ---- */

/* g becomes this worker's gradient of the update, once in a pass. Where pieces are exchanged,
   their jobs have done it already. */
void tutti_engine_take_in(tutti_engine *e);
/* One more tensor's gradient of piece k is ready: the piece starts if it is complete and this
   pass exchanges. */
void tutti_engine_piece_gets(tutti_engine *e, int k);
/* Starts the complete pieces, in index order. */
void tutti_engine_start_ready(tutti_engine *e);
/* Within step(): exchanges the pieces that the lane was not given, and waits for those that it
   was, unless updates are by piece. */
tutti_status tutti_engine_settle_pieces(tutti_engine *e, tutti_error *err);
/* Is what this pass exchanges added to what the step's earlier passes left? */
bool tutti_engine_adds_up(const tutti_engine *e);
/* For jobs of pieces (shards.c): gives the job to the lane; this worker does not join the piece,
   for that reason; the job has ended. */
void tutti_engine_give_to_lane(tutti_engine *e, tutti_engine_piece *s);
void tutti_engine_give_up_piece(tutti_engine *e, tutti_engine_piece *s, tutti_piece *p,
                                tutti_status status, const tutti_error *err);
void tutti_engine_piece_ended(tutti_engine *e, tutti_engine_piece *s, tutti_status status,
                              const tutti_error *err);
/* The piece's job was waited for and ended with `status`. */
void tutti_engine_piece_over(tutti_engine *e, int k, tutti_status status);
/* Resets the piece to its state before it was started. */
void tutti_engine_piece_rests(tutti_engine *e, int k);
/* Records a failure, so that later exchanges do not begin. Any thread. */
void tutti_engine_breaks(tutti_engine *e, tutti_status status, const tutti_error *err);
/* This worker's own failure in a piece, which may have made another worker fail. TUTTI_OK:
   none. */
tutti_status tutti_engine_pieces_own_failure(const tutti_engine *e, tutti_error *err);
/* The rank of the worker that made a piece fail. */
int tutti_engine_failed_by(const tutti_engine *e, tutti_status status, const tutti_error *err);

/* ---- snapshots.c: these do nothing where no snapshots are taken ---- */

/* Before declare(). */
tutti_status tutti_engine_snapshots_open(tutti_engine *e, tutti_error *err);
/* With the engine's own declarations. */
void tutti_engine_snapshots_declare(tutti_engine *e);
void tutti_engine_snapshots_close(tutti_engine *e);
/* All workers are about to resume. */
void tutti_engine_snapshots_begin(tutti_engine *e);
/* My first pass of a step begins: it computes with the values in x. */
void tutti_engine_snapshots_pass(tutti_engine *e);
/* Within eval_begin: x := this worker's snapshot k. */
void tutti_engine_snapshot_take(tutti_engine *e, int k);
/* x := the agreed model of snapshot k. */
tutti_status tutti_engine_snapshot_final_model(tutti_engine *e, int k, tutti_error *err);
/* Within eval_end: restores x and the stage. */
void tutti_engine_snapshot_back(tutti_engine *e);

/* ---- facility.c: called when method.h states ---- */

/* The facilities' hooks and the method's own. */
tutti_status tutti_hooks_open(tutti_engine *e, tutti_error *err);
void tutti_hooks_close(tutti_engine *e);
tutti_status tutti_hooks_quiesce(tutti_engine *e, tutti_error *err);
tutti_status tutti_hooks_resume(tutti_engine *e, tutti_error *err);
/* Has one of them a quiesce or resume hook? */
bool tutti_hooks_rest(const tutti_engine *e);
/* The facilities' hooks only. */
tutti_status tutti_facilities_begin(tutti_engine *e, tutti_error *err);
tutti_status tutti_facilities_arrive(tutti_engine *e, tutti_error *err);
void tutti_facilities_snapshot_due(tutti_engine *e, int points);
/* false: none has the worker's model, which is x */
bool tutti_facilities_snapshot_values(tutti_engine *e, float *to);
/* *there: does any facility hold values in addition to the workers'? If not, nothing was done. */
tutti_status tutti_facilities_snapshot_final_model(tutti_engine *e, int k, bool *there,
                                                   tutti_error *err);
void tutti_facilities_snapshot_drop(tutti_engine *e);
void tutti_facilities_begun(tutti_engine *e);
/* A rank is lost: TUTTI_OK, or the error with which the run ends. */
tutti_status tutti_facilities_without(const tutti_engine *e, int rank, tutti_error *err);
/* false: no facility holds values of x in shards. */
bool tutti_facilities_slices(const tutti_engine *e, int64_t *slices);
tutti_status tutti_facilities_loaded(const tutti_engine *e, tutti_error *err);
/* As facility.h describes. */
/* Refuses facilities that cannot be combined. */
tutti_status tutti_facilities_check(const tutti_engine *e, tutti_error *err);
tutti_status tutti_facilities_declared(tutti_engine *e, tutti_error *err);
tutti_status tutti_facilities_cut(tutti_engine *e, tutti_error *err);
bool tutti_facilities_exchange_alone(const tutti_engine *e);
tutti_status tutti_facilities_initial(tutti_engine *e, tutti_group *workers, bool *done,
                                      tutti_error *err);
size_t tutti_facilities_memory(const tutti_engine *e,
                               tutti_memory_record records[TUTTI_FACILITIES_MOST]);
tutti_range tutti_facilities_saved_part(const tutti_engine *e, size_t count);
tutti_status tutti_facilities_begin_pass(tutti_engine *e, const tutti_pass *pass,
                                         tutti_error *err);
tutti_status tutti_facilities_acquire(tutti_engine *e, int unit, tutti_error *err);
tutti_status tutti_facilities_release(tutti_engine *e, int unit, bool backward, tutti_error *err);
tutti_status tutti_facilities_acquire_rows(tutti_engine *e, int tensor, const uint32_t *ids,
                                           size_t n, tutti_error *err);
/* false: none of them has the values, x has. */
bool tutti_facilities_values(const tutti_engine *e, int tensor, float **values);
tutti_status tutti_facilities_announce(tutti_engine *e, int tensor, tutti_error *err);
tutti_status tutti_facilities_fill_piece(tutti_engine *e, tutti_piece *p, tutti_error *err);
void tutti_facilities_start_piece(tutti_engine *e, tutti_piece *p);
tutti_status tutti_facilities_begin_piece(tutti_engine *e, tutti_piece *p, tutti_error *err);
void tutti_facilities_end_piece(tutti_engine *e, tutti_piece *p, tutti_status status);
tutti_status tutti_facilities_end_pass(tutti_engine *e, tutti_error *err);
tutti_status tutti_facilities_go_on(tutti_engine *e, tutti_error *err);
tutti_status tutti_facilities_norm2(tutti_engine *e, double *norm2, bool *done, tutti_error *err);
tutti_status tutti_facilities_values_replaced(tutti_engine *e, tutti_error *err);
tutti_status tutti_facilities_end_step(tutti_engine *e, tutti_error *err);
/* Steps: as facility.h describes. */
tutti_status tutti_facilities_prepare(tutti_engine *e, tutti_error *err);
void tutti_facilities_stop(tutti_engine *e);
/* Does one of them exchange this step's gradient after its passes? Then the engine does not. */
bool tutti_facilities_exchange_later(const tutti_engine *e);
tutti_status tutti_facilities_exchange(tutti_engine *e, bool *due, tutti_error *err);
void tutti_facilities_pass(tutti_engine *e, tutti_pass *pass);
void tutti_facilities_take_in(tutti_engine *e, tutti_piece *p);
tutti_status tutti_facilities_keep(tutti_engine *e, bool *kept, tutti_error *err);
void tutti_facilities_updated(tutti_engine *e);
tutti_status tutti_facilities_drain(tutti_engine *e, bool *due, tutti_error *err);
void tutti_facilities_settle(const tutti_engine *e, bool measured);
uint64_t tutti_facilities_behind(const tutti_engine *e);
bool tutti_facilities_recut(const tutti_engine *e, const tutti_saved_run *run, const void *memory);
tutti_status tutti_facilities_load(tutti_engine *e, tutti_checkpoint *checkpoint,
                                   const tutti_saved_run *run, tutti_error *err);

/* ---- pass.c, ready.c ---- */

bool tutti_engine_passes_left(const tutti_engine *e); /* has this step more passes? */
/* A pass is over: gradients that were not announced in it are set to 0. */
tutti_status tutti_engine_unused(tutti_engine *e, tutti_error *err);

/* ---- step.c ---- */

/* TUTTI_ERR_STATE: a call came outside the time that `when` states. */
tutti_status tutti_engine_wrong(tutti_error *err, const char *call, const char *when);
/* A failure within a step is final, since peers may be in the middle of a collective with this
   worker. */
tutti_status tutti_engine_failed(tutti_engine *e, tutti_status status, tutti_error *err);
/* Updates so far, as bias corrections count them. */
uint64_t tutti_engine_updates(tutti_engine *e);
/* Within step(): the same including this step's update, as rate.t counts. */
uint64_t tutti_engine_updates_after_step(tutti_engine *e);
/* Checks that a gradient is finite that no exchange has checked. */
tutti_status tutti_engine_check_gradient(tutti_engine *e, int piece, tutti_error *err);
/* Within step(): the step that the gradient in g is of. */
uint64_t tutti_engine_gradient_step(const tutti_engine *e);
/* The run ends: applies the gradients that are still due. */
tutti_status tutti_engine_drain(tutti_engine *e, tutti_error *err);

/* ---- client.c ---- */

/* Copies `count` elements of x from `first` on to the client's memory of a tensor, if it has its
   own. */
void tutti_engine_deliver(tutti_engine *e, int tensor, size_t first, size_t count);
/* Copies all of x to the client, if x has changed. */
void tutti_engine_hand_out(tutti_engine *e);
/* x := the client's memory of a tensor. */
void tutti_engine_read_values(tutti_engine *e, int tensor);
/* The same for all tensors, where the client's memory holds the model. */
void tutti_engine_collect(tutti_engine *e);
/* Where a tensor's gradient comes from: its own place in g, so nothing is copied; other memory;
   NULL: it is 0. rows: n rows of a table, taken out of the whole table or stored contiguously;
   from NULL: they are in g already. */
typedef struct tutti_engine_source {
    const void *from;
    tutti_dtype dtype;
    bool rows, whole;
    const uint32_t *ids;
    size_t n;
} tutti_engine_source;
/* Copies to piece k its part of the gradient. */
void tutti_engine_take_gradient(tutti_engine *e, int tensor, int k, const tutti_engine_source *s);
/* The client's optimiser updates x, which a mutex or the row locks guard (both NULL: neither).
   Exchange only: does nothing. */
tutti_status tutti_engine_client_update(tutti_engine *e, float *x, tutti_monitor *lock,
                                        const tutti_locks *locks, double factor, tutti_error *err);
/* Refuses the client's optimiser with a method that updates at servers. */
tutti_status tutti_engine_refuse_slices(const tutti_engine *e, tutti_error *err);
/* Refuses options that are incompatible with the owner of the optimiser. */
tutti_status tutti_engine_check_client(tutti_engine *e, tutti_error *err);
/* After declare(): refuses methods that cannot be used to exchange only. */
tutti_status tutti_engine_check_exchange_only(tutti_engine *e, tutti_error *err);

/* ---- locks.c ---- */

/* What is done to a part of x under a lock; rate may be NULL. */
typedef void tutti_locked_part(tutti_method *m, float *at, const float *from, size_t first,
                               size_t count, const tutti_rate *rate);
/* Does it to all of x, each part under its lock. */
void tutti_engine_locked(tutti_method *m, const tutti_locks *locks, tutti_locked_part *part,
                         float *to, const float *from);

/* ---- finite.c, judge.c ---- */

/* Finds the first non-finite number of p->g. Reads no other piece. */
void tutti_engine_find_bad_of(const tutti_engine *e, const tutti_piece *p, tutti_engine_bad *bad);
/* Checks that this worker's gradient of a piece is finite. If not, this is a failure unless such
   steps may be skipped or such gradients are left to the client. Any thread. */
tutti_status tutti_engine_look(const tutti_engine *e, const tutti_piece *p, tutti_engine_bad *bad,
                               tutti_error *err);
/* The same of the mean, where a codec decoded it. Any thread. */
tutti_status tutti_engine_look_decoded(const tutti_engine *e, const tutti_piece *p,
                                       tutti_engine_bad *bad, tutti_error *err);
/* Finds what is not finite among what the members of `group` examined, as a number that is equal
   on all of them; 0: nothing. group NULL: of this worker alone. Any thread. */
tutti_status tutti_engine_vote(tutti_engine *e, const tutti_engine_piece *state, uint64_t step,
                               tutti_group *group, int64_t *who, tutti_error *err);
/* Decides whether the step whose gradient is in g is skipped. Collective if such steps may be
   skipped. */
tutti_status tutti_engine_judge(tutti_engine *e, bool *skip, tutti_error *err);

/* ---- scaler.c ---- */

tutti_status tutti_engine_scaler_parse(tutti_engine_scaler *s, const char *text, tutti_error *err);
void tutti_engine_scaler_loaded(tutti_engine *e);
/* Any thread. */
void tutti_engine_unscale(tutti_engine *e, tutti_piece *p, double scale);
/* Skips a step with a non-finite gradient: counts it and adjusts the loss scale. had: the scale
   with which the gradient was computed. TUTTI_ERR_NUMBER: the scale is at its minimum, so the run
   ends. */
tutti_status tutti_engine_scaler_skip(tutti_engine *e, double had, int worker, const char *tensor,
                                      tutti_error *err);
/* A step's gradients were finite. */
void tutti_engine_scaler_good(tutti_engine *e);

/* ---- names.c ---- */

/* Before a pass: checks its names and its buffer for losses. Marks the losses as not reported. */
tutti_status tutti_engine_names_check(const tutti_engine *e, const tutti_pass *p,
                                      tutti_error *err);
/* After a pass: has the client reported all losses? */
tutti_status tutti_engine_losses_check(const tutti_engine *e, double loss_sum, tutti_error *err);

/* ---- members.c ---- */

tutti_status tutti_engine_members_open(tutti_engine *e, tutti_error *err);
void tutti_engine_watch(tutti_engine *e); /* client thread */
/* The workers that make this step together with this one. */
tutti_group *tutti_engine_together(tutti_engine *e);
/* The samples of a step over all members. */
int64_t tutti_engine_samples(const tutti_engine *e, uint64_t step);
/* The result of what a node group has done together. A node group cannot continue without one of
   its workers, though the run does: so its workers fail themselves, and are lost to the
   others. */
tutti_status tutti_engine_with_team(const tutti_engine *e, tutti_status status, tutti_error *err);

/* ---- left.c ---- */

tutti_status tutti_engine_left_open(tutti_engine *e, tutti_error *err);
void tutti_engine_left_close(tutti_engine *e);
/* For a caller that waits for the requests itself: posts the one of `rank`. */
tutti_status tutti_engine_left_post(tutti_engine *e, int rank, tutti_error *err);
/* All requests are posted. */
void tutti_engine_left_posted(tutti_engine *e);
/* From now on ranks may leave. Client thread */
void tutti_engine_may_leave(tutti_engine *e);
/* The rank that has left in order before the end of the run; -1: none. Any thread */
int tutti_engine_left(const tutti_engine *e);
/* TUTTI_ERR_PEER, with a message: a rank has left. Client thread */
tutti_status tutti_engine_left_look(const tutti_engine *e, tutti_error *err);

/* ---- fingerprint.c ---- */

tutti_status tutti_engine_compare(tutti_engine *e, tutti_error *err);

/* ---- clock.c ---- */

void tutti_engine_clock_start(tutti_engine *e);
void tutti_engine_clock_stop(tutti_engine *e);
/* Time spent in steps so far: all time except reports, evaluations and checkpoints. */
int64_t tutti_engine_worked_ns(const tutti_engine *e);
/* Steps without an update: of all workers if replicas are equal, else this worker's. */
uint64_t *tutti_engine_skipped(tutti_engine *e);
/* Sends the metrics of ranks that only serve to all; collective over all ranks, in the group
   below. */
tutti_status tutti_engine_tell_metrics(tutti_engine *e, tutti_error *err);
tutti_group tutti_engine_metrics_group(const tutti_engine *e);
/* Records an event of this step. The text is copied; the kind is kept by pointer. */
void tutti_engine_note(tutti_engine *e, const tutti_event_record *what);
void tutti_engine_mark(tutti_engine *e, const char *what, int index, int thread, int64_t begin_ns,
                       int64_t end_ns);
/* The same for a step other than this one. */
void tutti_engine_mark_step(tutti_engine *e, const char *what, int index, int thread, uint64_t step,
                            int64_t begin_ns, int64_t end_ns);
#pragma GCC visibility pop
#endif
