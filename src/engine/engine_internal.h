/* engine_internal.h: what the engine's files share. One engine = one method on one world. The
   client thread owns everything here except what is marked. */
#ifndef TUTTI_ENGINE_INTERNAL_H
#define TUTTI_ENGINE_INTERNAL_H
#include "exchange/exchange.h"
#include "pace.h"
#include "rows.h"
#include "service/service.h"

enum { TUTTI_METRIC_NAME = 64 };

typedef enum {
    STAGE_READY,    /* between steps, nothing done yet or the last step is over */
    STAGE_BETWEEN,  /* within a step, between passes */
    STAGE_PASS,     /* the client computes */
    STAGE_SHOWN,    /* the agreed model is in x (show) */
    STAGE_FINISHED,
    STAGE_FAILED
} tutti_engine_stage;

typedef struct tutti_engine_piece {
    tutti_job job;
    tutti_engine *engine;
    int missing;                 /* tensors whose gradient has not been announced in this pass */
    bool on_lane;                /* started on the lane; else it is exchanged in step() */
    bool pending;                /* to be exchanged in this step */
    tutti_engine_bad bad;        /* written by the job, read after it was waited for */
} tutti_engine_piece;

typedef struct tutti_engine_clock {
    bool running;
    tutti_doing doing;
    int64_t started_ns, ended_ns, since_ns, spent_ns[TUTTI_DOING_OUTSIDE + 1];
    int64_t comm_ns;
    uint64_t bytes_at_start, bytes_aside, bytes_since;
    uint64_t messages_at_start, messages_aside, messages_since;
} tutti_engine_clock;

/* The loss scale as it is now (scaler.c). */
typedef struct tutti_engine_scale {
    double scale;
    int64_t good;                /* steps without an overflow since it moved */
    int64_t left;                /* overflows until it falls */
} tutti_engine_scale;
typedef struct tutti_engine_scaler {
    bool on, dynamic;
    double init, growth, backoff, min;
    int64_t interval, hysteresis;
    int on_min;
    tutti_engine_scale now;      /* declared; scale 1 where it is off */
} tutti_engine_scaler;

/* Several steps with one update (merge.c). */
typedef struct tutti_engine_merge {
    bool declared;
    float *sum;                  /* declared, n: samples x gradient, of the steps before this one
                                    that wait; NULL: the method merges none */
    int64_t mine;                /* samples in it, mine */
    struct {                     /* of the update under way: */
        uint64_t steps;          /* that wait */
        uint64_t waited;         /* of the run, without an update of their own */
        int64_t all;             /* samples of all workers */
    } now;
    bool waits;                  /* this step does */
} tutti_engine_merge;

/* The client's optimiser (client.c). */
typedef struct tutti_engine_client {
    bool updates;                /* optimizer is "client"; without an update in the options: it
                                    exchanges only */
    bool holds;                  /* exchange only: the model is what stands in the client's memory,
                                    where it has its own, and x may be older */
    float *before, *kept;        /* n each: another model than x as it was handed out, and x
                                    meanwhile (or engine.kept). NULL: replicas are equal, or it is
                                    not used */
} tutti_engine_client;

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
    tutti_lane *lane;
    tutti_engine_facility facility[TUTTI_FACILITIES_MOST];
    int n_facilities;
    tutti_engine_options options; /* their texts are those of text[] */
    char *text[8];               /* method, optimizer, lr_schedule, collective, fingerprint, codec,
                                    loss_scale, codec_hierarchy */

    /* who computes what */
    tutti_share share;
    int64_t *batch_of;           /* workers; declared, if the shares are uneven; share.batch_of */
    int64_t *passes_of;          /* workers; declared, if the method deals out the passes (allot.c);
                                    share.passes_of */
    tutti_parts own_part;        /* of the one worker that share knows at its own pace: mine */
    int member;                  /* index in share: mine, or 0 of 1 at its own pace */

    /* how gradients are exchanged */
    const char *collective;      /* of the workers' sums; NULL: chosen for each */
    tutti_way way;               /* of codecs' messages */
    struct tutti_engine_exchange *exchange; /* gradients through a codec; NULL: as they are */
    bool codec_is_used;          /* the run's, by a facility: models go through it */
    int codec_team;              /* workers whose gradients go through the codec as one
                                    (exchange/team.c) */

    /* the flat space */
    tutti_layout layout;
    tutti_tensor *tensors;
    tutti_piece *pieces;
    tutti_param *params;         /* names owned by `tensors` */
    char *names;
    int *piece_of_tensor;
    tutti_engine_rows *rows;     /* n_tensors; all 0 of those that are no tables */
    float *own_state, *own_kept; /* own_values and one more, which is 1 once this worker has had
                                    samples; as they were before the mean. NULL: none */
    float *kept;                 /* n: x while the agreed model is shown; only where replicas
                                    differ */
    tutti_saved *state_pieces;   /* as last listed for the client; NULL: never */

    /* groups */
    tutti_group opening;         /* everyone, while the engine is opened. A rank that gives up in
                                    the run (tutti_engine_settle) must not be heard by one that is
                                    still here, and has all that it needs */
    tutti_group team;            /* client thread's copy: my team, under OWN_PACE */
    int *team_ranks;
    int *worker_ranks;           /* workers: the first of the world, where others only serve; else
                                    NULL */
    uint64_t steps_here;         /* this worker's, in this process: turns of its groups */

    /* losses (members.c) */
    tutti_members *members;      /* of a run that goes on after them; NULL: it does not */
    bool *was_member;            /* workers: scratch of settle */
    uint64_t agreed_step;        /* steps done at the last agreement */
    int watched;                 /* events of the world that are noted */

    /* the step */
    tutti_engine_stage stage;
    tutti_pass pass;             /* the current one */
    int64_t passes;              /* of this step, mine, as configured */
    int64_t computed;            /* samples of this step's passes so far */
    bool taken_in;               /* of the last pass g is the update's gradient: not scaled, with
                                    what has waited */
    bool abandoned;              /* the step begins anew: done has said so */
    bool exchanged;              /* a pass of this step exchanges its pieces: gradients are looked
                                    at there, and the same on all workers afterwards */
    tutti_engine_piece *piece_state; /* n_pieces */
    int next_piece;              /* the only one that may start next */
    bool *announced;             /* n_tensors, in this pass */
    double loss_sum;
    bool values_changed;         /* x differs from the client's copies */
    bool told_unused;
    tutti_engine_merge merge;
    tutti_engine_client client;
    double lr, lr_factor;        /* base rate; the schedule's, of this step */
    bool at_servers;             /* which update slices by the run's optimiser */
    tutti_engine_scaler scaler;

    /* own threads */
    bool own_pace;               /* TUTTI_OWN_PACE */
    tutti_engine_pace pace;
    tutti_engine_services services;

    /* counts. progress: declared, survives a resume. own: mine; declared unless replicas are equal,
       samples count under OWN_PACE only. told: what of it is in `progress`. history: mine, the
       client's; declared where gradients may be old (tutti_engine_declare_history) */
    struct { uint64_t step, samples, skipped; } progress;
    struct { uint64_t steps, samples, skipped; } own, told;
    uint64_t sat_out;            /* of own.steps; declared by methods that have such steps */
    struct {
        uint64_t restarts, stale_most, stale_n;
        double stale_sum;
        tutti_histogram stale;
    } history;

    /* times, events, figures (clock.c) */
    tutti_engine_clock clock;
    tutti_trace_event *trace;
    size_t n_trace;
    int64_t *unit_began_ns;      /* 2 x n_units: forward, backward */
    tutti_event_record *events;
    int n_events, room_events;
    tutti_metric_record *metrics;
    int n_metrics, room_metrics;
    int *metric_at;              /* 1 + place of each, by hash, 0: free */
    size_t metric_slots;         /* a power of two */
    char **told_names;           /* of figures that servers have told */
    int n_told_names;
};

/* ---- layout.c ---- */

/* Tensors get their places. / Pieces are cut. */
tutti_status tutti_engine_place(tutti_engine *e, const tutti_param *params, int n,
                                tutti_error *err);
tutti_status tutti_engine_cut(tutti_engine *e, tutti_error *err);

/* ---- facility.c: as method.h says when ---- */

/* Facilities, and the method's own hook. */
tutti_status tutti_hooks_open(tutti_engine *e, tutti_error *err);
void tutti_hooks_close(tutti_engine *e);
tutti_status tutti_hooks_hold(tutti_engine *e, tutti_error *err);
tutti_status tutti_hooks_release(tutti_engine *e, tutti_error *err);
/* Does one of them hold or release? */
bool tutti_hooks_rest(const tutti_engine *e);
/* Facilities alone. */
tutti_status tutti_facilities_arrive(tutti_engine *e, tutti_error *err);
void tutti_facilities_begun(tutti_engine *e);
/* A rank is lost: TUTTI_OK, or the sentence with which the run ends. */
tutti_status tutti_facilities_without(const tutti_engine *e, int rank, tutti_error *err);
/* false: none keeps values of x in slices. */
bool tutti_facilities_slices(const tutti_engine *e, int64_t *slices);
bool tutti_facilities_recut(const tutti_engine *e, const tutti_saved_run *run, const void *memory);
tutti_status tutti_facilities_load(tutti_engine *e, tutti_checkpoint *checkpoint,
                                   const tutti_saved_run *run, tutti_error *err);

/* ---- step.c ---- */

bool tutti_engine_passes_left(const tutti_engine *e); /* of this step */

/* ---- client.c ---- */

/* The client's memory of a tensor, where it has its own, becomes as x is: `count` from `first`
   on. / All of it, if x has changed. */
void tutti_engine_deliver(tutti_engine *e, int tensor, size_t first, size_t count);
void tutti_engine_hand_out(tutti_engine *e);
/* x := what stands in the client's memory. / Of all tensors, where the model is there. */
void tutti_engine_read_values(tutti_engine *e, int tensor);
void tutti_engine_collect(tutti_engine *e);
/* g takes a tensor's gradient from there; NULL: 0. / Rows of a table's, out of the whole table or
   as they stand one behind the other; NULL: they are in g. */
void tutti_engine_take_gradient(tutti_engine *e, int tensor, const void *from, tutti_dtype dtype);
void tutti_engine_take_rows(tutti_engine *e, int tensor, const uint32_t *ids, size_t n,
                            const void *from, tutti_dtype dtype, bool whole);
/* The client's optimiser updates x, which door or locks guard (both NULL: nothing does). Exchange
   only: nothing. */
tutti_status tutti_engine_client_update(tutti_engine *e, float *x, tutti_monitor *door,
                                        const tutti_locks *locks, double factor, tutti_error *err);
/* Refused: with a method that updates at servers. / What does not go with whose optimiser it is. /
   After declare(): methods that cannot be asked to exchange only. */
tutti_status tutti_engine_refuse_slices(const tutti_engine *e, tutti_error *err);
tutti_status tutti_engine_check_client(tutti_engine *e, tutti_error *err);
tutti_status tutti_engine_check_exchange_only(tutti_engine *e, tutti_error *err);

/* ---- locks.c ---- */

/* What is done to x under a lock; rate may be NULL. / To all of it, each part under its lock. */
typedef void tutti_locked_part(tutti_method *m, float *at, const float *from, size_t first,
                               size_t count, const tutti_rate *rate);
void tutti_engine_locked(tutti_method *m, const tutti_locks *locks, tutti_locked_part *part,
                         float *to, const float *from);

/* ---- finite.c, judge.c ---- */

/* A step whose gradients are not finite is left out, rather than the end. */
bool tutti_engine_may_skip(const tutti_engine *e);
/* Is this worker's gradient of a piece finite? Kept in piece_state. A failure unless such steps may
   be left out, or such gradients are the client's to judge. / The same of the mean, where a codec
   decoded it. */
tutti_status tutti_engine_look(tutti_engine *e, int piece, tutti_error *err);
tutti_status tutti_engine_look_decoded(tutti_engine *e, int piece, tutti_error *err);
/* Collective where such steps may be left out: is this one? */
tutti_status tutti_engine_judge(tutti_engine *e, bool *skip, tutti_error *err);

/* ---- scaler.c ---- */

tutti_status tutti_engine_scaler_parse(tutti_engine_scaler *s, const char *text, tutti_error *err);
void tutti_engine_scaler_loaded(tutti_engine *e);
void tutti_engine_unscale(tutti_engine *e, tutti_piece *p);
/* A step of which a gradient is not finite is left out: counted, and the scale follows.
   TUTTI_ERR_NUMBER: not any more. / A step was good. */
tutti_status tutti_engine_scaler_skip(tutti_engine *e, int worker, const char *tensor,
                                      tutti_error *err);
void tutti_engine_scaler_good(tutti_engine *e);

/* ---- merge.c ---- */

/* This step does not wait: m->weight. */
void tutti_engine_merge_weigh(tutti_engine *e);
/* p->g with what has waited; nothing where nothing has. */
void tutti_engine_merge_take(tutti_engine *e, tutti_piece *p);
/* At the end of a step that waits. / There was an update, or it was left out. */
void tutti_engine_merge_keep(tutti_engine *e);
void tutti_engine_merge_end(tutti_engine *e);

/* ---- allot.c ---- */

/* Evenly, once there is memory for it. */
void tutti_engine_deal(tutti_engine *e);
tutti_status tutti_engine_check_deal(const tutti_engine *e, const int64_t *passes_of,
                                     tutti_error *err);

/* ---- members.c ---- */

tutti_status tutti_engine_members_open(tutti_engine *e, tutti_error *err);
void tutti_engine_watch(tutti_engine *e); /* client thread */
/* The workers that make this step with me. */
tutti_group *tutti_engine_together(tutti_engine *e);
/* Of a step, by all that are members. */
int64_t tutti_engine_samples(const tutti_engine *e, uint64_t step);
/* Of what a team has done together. Without one of its own it cannot go on, though the run does: so
   its workers fail by themselves, and are lost to the others. */
tutti_status tutti_engine_with_team(const tutti_engine *e, tutti_status status, tutti_error *err);

/* ---- fingerprint.c ---- */

tutti_status tutti_engine_compare(tutti_engine *e, tutti_error *err);

/* ---- clock.c ---- */

void tutti_engine_clock_start(tutti_engine *e);
void tutti_engine_clock_stop(tutti_engine *e);
/* Steps without an update: of all where replicas are equal, else mine. */
uint64_t *tutti_engine_skipped(tutti_engine *e);
/* Figures of ranks that only serve, to all; collective over everyone, in this group. */
tutti_status tutti_engine_tell_metrics(tutti_engine *e, tutti_error *err);
tutti_group tutti_engine_metrics_group(const tutti_engine *e);
/* An event; worker -1: about none. */
void tutti_engine_note(tutti_engine *e, const char *kind, int worker, uint32_t epoch,
                       const char *text);
void tutti_engine_mark(tutti_engine *e, const char *what, int index, int thread, int64_t begin_ns,
                       int64_t end_ns);
#endif
