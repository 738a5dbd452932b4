/* engine_internal.h: what the engine's files share. One engine = one method on one world. The
   client thread owns everything here except what is marked. */
#ifndef TUTTI_ENGINE_INTERNAL_H
#define TUTTI_ENGINE_INTERNAL_H
#include "exchange/exchange.h"
#include "pace.h"
#include "rows.h"
#include "service/service.h"
#include "take.h"

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
    int unit;                    /* the least that it meets */
    int missing;                 /* tensors whose gradient has not been announced in this pass */
    bool on_lane;                /* started on the lane; else it is exchanged in step() */
    bool pending;                /* started, or to be exchanged in step(), and not waited for */
    /* written by the job, read after it was waited for */
    tutti_engine_bad bad;
    int64_t exchanged_ns;

    /* by piece: written by whoever updates, read likewise */
    tutti_rate rate;             /* of its gradient's step */
    int held;                    /* tensors whose unit's backward is not over; under the door */
    bool exchanged;              /* likewise */
    bool updated_here;           /* on the client's thread */
    int64_t updating_ns, updated_ns;

    bool gathers;                /* shards: what is pending is its values */
    tutti_group between;         /* shards in teams: who has the same one; its exchange's */
    uint32_t said;               /* by unit: the turn of its word */
} tutti_engine_piece;
/* Pieces that a tensor meets. */
typedef struct tutti_engine_span { int first, end; } tutti_engine_span;

/* What is under way of pieces when the next step begins (by_piece.c); the client's thread. */
typedef struct tutti_engine_by_piece {
    tutti_monitor *door;         /* of what decides who updates a piece */
    tutti_rate rate;             /* of this step; of m->by_piece */
    int left;                    /* pieces of the step before that were not waited for */
    bool *through;               /* n_tensors: its unit's backward is over, in this step */
    bool *stale;                 /* n_tensors: the client's memory is older than x is about to be */
    bool hands_out;              /* some is */
    tutti_status status;         /* of an exchange that has failed, and why */
    tutti_error error;
} tutti_engine_by_piece;

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

/* The exchange beside the next steps (late.c). */
typedef struct tutti_late_gradient {     /* plain numbers of eight bytes: declared state */
    uint64_t step;
    double lr, scale;            /* of its step: the rate, and the loss scale as it was */
    int64_t who;                 /* what the vote found, once it is exchanged (judge.c); 0: well */
} tutti_late_gradient;
typedef struct tutti_late_slot tutti_late_slot;
typedef struct tutti_engine_late {
    int steps;                   /* after its own in which a gradient is applied; 0: none is late */
    uint64_t from;
    bool drains;
    float *g[TUTTI_LATE_MOST];   /* declared, n each, by step modulo `steps` */
    struct {                     /* declared */
        uint64_t first, pending; /* steps of the gradients that wait: so many from there on */
        uint64_t lag;            /* steps of the run without an update of theirs so far */
        tutti_late_gradient of[TUTTI_LATE_MOST];
    } now;
    tutti_late_slot *slot;       /* steps of them */
    tutti_lane *lane;            /* exchanges of whole steps, in order */
    bool applies;                /* within step(): what stands in g is late */
    bool ends;                   /* the run does: it is drained */
    tutti_late_gradient in_g;
    int64_t waited_ns;
} tutti_engine_late;

/* Samples on the way (given.c). */
typedef struct tutti_engine_given {
    int64_t most;                /* in a pass, and to one worker; 0: the method sends none */
    uint8_t *in, *out;           /* declared: most x sample_bytes each */
    tutti_request *receives, **wanted; /* workers */
} tutti_engine_given;

/* Gradients that are held by piece (held.c). */
typedef struct tutti_engine_held {
    float *memory;               /* declared */
    size_t room;                 /* of a buffer: elements of the largest piece */
    int buffers;                 /* in all */
    float **more;                /* n_more: those that were taken besides; n_pieces are enough */
    int n_more;
    tutti_monitor *door;         /* of what follows */
    float **free;                /* n_free */
    int n_free;
    int under_way;               /* pieces that are to be exchanged, and then give theirs back */
} tutti_engine_held;

/* Each worker's shard of every piece (shards.c). */
typedef struct tutti_engine_shards {
    bool on;
    int team;                    /* workers over which a piece is cut; 0, before declare: all */
    int place;                   /* mine among them */
    int *ranks;                  /* of the next two; NULL: there is one team */
    tutti_group inside, between; /* my team; those of my place in all teams */
    tutti_range *mine;           /* n_pieces: in the flat space */
    size_t *counts;              /* n_pieces x team: elements of each place's shard */
    float *g;                    /* declared, where gradients are held by piece: my shards, one
                                    behind the other; else they are in m->g */
    size_t *at;                  /* n_pieces: where each is in it */
    /* of the norm, with clip-norm: */
    size_t blocks;
    int *adder;                  /* blocks: who of the team adds each up */
    size_t *blocks_of;           /* team: how many each does */
    size_t *moved;               /* 2 team: elements to each, and of each */
    size_t n_out, n_in;          /* their sums */
    size_t *cursor;              /* team: scratch */
    float *out, *in;
    double *sums, *all_sums;     /* of my blocks; of all, place by place */
} tutti_engine_shards;

/* Values that are held by unit (units.c); client thread, but for what a job touches. */
typedef struct tutti_engine_unit {
    size_t first, count;         /* in the flat space */
    tutti_engine_span pieces;
    bool keeps;                  /* its values stay until the next update */
    float *home;                 /* then: where */
    float *values;               /* all of them, there or on their way; NULL: they are not */
    int buffer;                  /* it is in that one */
    bool apart;                  /* it is not, but taken from the arena */
    int needs;                   /* need without its done */
    bool filled;                 /* the update that is next leaves my shards there */
    bool posted;                 /* my shards are read, and nothing is gathered yet */
    bool pending;                /* being gathered */
    bool counts;                 /* their time is the method's */
    tutti_engine *engine;
    tutti_job job;               /* and its: */
    tutti_group group;
    uint32_t turn, said;
} tutti_engine_unit;
typedef struct tutti_engine_units {
    bool on;
    float *x, *kept, *memory;    /* declared: my shards, one behind the other as shards.at says;
                                    units that stay; buffers */
    tutti_place place;           /* declared in place of x: my shards, in a tier; x: where they are
                                    in memory */
    tutti_io *io;                /* n_pieces: reads of my shards; NULL: they have an address */
    size_t room;                 /* of a buffer */
    int buffers;
    struct { int units; size_t taken; } buffer[1 + TUTTI_AHEAD_MOST]; /* what is in each */
    tutti_engine_unit *unit;     /* n_units */
    int ahead;                   /* so many buffers may be read into, or gathered in, beside what is
                                    computed */
    bool beside;                 /* gathered: there is a thread */
    bool fills;                  /* what is ahead is left there by the update */
    tutti_lane *lane;            /* gathers, and nothing else */
    int *seen;                   /* n_seen: units in the order in which a step needs them */
    int n_seen, room_seen, at;   /* at: the next one */
    bool records;                /* the rest of this pass is not known */
    bool says;                   /* workers tell each other what they do */
    uint32_t said;
    int64_t *words;              /* 2 x workers: of gathers, of pieces */
    bool counts;                 /* the first step has begun: */
    tutti_tier_sum before;       /* what the tier had moved by then */
    int live, live_most, told;   /* units that are there; the most; as last told */
    size_t live_values, live_values_most, more, more_most; /* values of them; of those apart */
    size_t reserve;              /* bytes that stay free on the device for what will be apart: */
    bool charged;                /* now, while nothing is */
} tutti_engine_units;

/* An update beside the device (offload.c). */
typedef struct tutti_engine_offload {
    bool on;
    tutti_offload_options options;
    tutti_place masters, g;      /* declared: of my shards, one behind the other; g: likewise, and
                                    twice if updates are delayed */
    /* by unit, in a tier without addresses: */
    float *room;                 /* some, each for the largest shard: on their way to the tier, and
                                    what is looked at in the first; NULL: g has an address */
    size_t room_bytes;           /* of one */
    int rooms;
    tutti_io io[8];              /* of each */
    int next;                    /* the one that is taken next; on the lane's thread */
    int brought;                 /* the piece whose shard is in the first; -1: none */
    bool filled;                 /* masters are those of this run */
    tutti_placed *placed;
    tutti_update_part *part;     /* n_pieces, from the last to the first; of the update under way */
    /* delayed: */
    struct { uint64_t ahead; } now; /* declared; 1: masters have had an update that x has not */
    bool half;                   /* the second half of g is this step's */
    tutti_lane *lane;
    tutti_job job;               /* the update under way */
    tutti_rate rate;             /* its */
} tutti_engine_offload;

/* A method that drives (drive.c). */
typedef struct tutti_engine_driven {
    bool on;
    tutti_drive_options o;       /* of the arrays below */
    int first[TUTTI_DRIVE_STAGES_MOST + 1]; /* of my pipeline */
    int saved[TUTTI_DRIVE_STAGES_MOST + 1]; /* of the first, which saves and shows the model */
    int width[TUTTI_DRIVE_STAGES_MOST];
    int *worker;                 /* workers */
    int place;                   /* mine in it */
    int *peers;                  /* pipelines: who has my stage, or my mate in it */
    tutti_group mates;           /* those that have my stage in my pipeline */
    int64_t waits_since_ns;
    tutti_lane *lane;            /* of sums over the pipelines (drive_sum.c); NULL: of one */
    tutti_group group;
    uint32_t sums;               /* that were started */
    struct tutti_drive_sum {
        tutti_job job;
        tutti_group group;
        float weight, *gradient;
    } sum[TUTTI_DRIVE_SUMS_MOST];
} tutti_engine_driven;

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

/* Models put aside (aside.c). */
typedef struct tutti_engine_aside_at {
    int64_t wall_ns;
    uint64_t bytes, samples;     /* sent; computed, as asides.samples */
    bool served;                 /* of a rank that only serves: bytes are its services' */
} tutti_engine_aside_at;
typedef struct tutti_engine_store {
    int room;                    /* points that may be passed from one drop to the next; 0: none */
    float *x, *own;              /* (room + 1) x n, (room + 1) x (own_values + 1); declared */
    tutti_engine_aside_at *at;   /* room */
    bool begun;                  /* since the last drop a phase has: */
    uint64_t first;              /* points before it */
    int passed;
    uint64_t samples;            /* with steps in common: mine so far that an update was made of */
    int shown;                   /* while x is that of a point: 1 + which; 0: it is not. As it was
                                    before: */
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
    tutti_arena *device, *host;  /* what counts as the device's; what tiers take of memory */
    uint64_t client_bytes;       /* of it, the client's */
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
    tutti_engine_span *pieces_of; /* n_tensors */
    bool pieces_stay;            /* something else goes by how they are cut */
    tutti_engine_rows *rows;     /* n_tensors; all 0 of those that are no tables */
    float *own_state, *own_kept; /* own_values and one more, which is 1 once this worker has had
                                    samples; as they were before the mean. NULL: none */
    float *kept;                 /* n: x while the agreed model is shown; only where replicas
                                    differ */
    tutti_engine_store asides;       /* models put aside */
    tutti_saved *state_pieces;   /* as last listed for the client; NULL: never */

    /* groups */
    tutti_group opening;         /* everyone, while the engine is opened. A rank that gives up in
                                    the run (tutti_engine_settle) must not be heard by one that is
                                    still here, and has all that it needs */
    tutti_group team;            /* client thread's copy: my team, under ASYNC */
    int *team_ranks;
    int *worker_ranks;           /* workers: the first of the world, where others only serve; else
                                    NULL */
    uint64_t steps_here;         /* this worker's, in this process: turns of its groups */

    /* losses (members.c) */
    tutti_members *members;      /* of a run that goes on after them; NULL: it does not */
    bool *was_member;            /* workers: scratch of settle */
    uint64_t agreed_step;        /* steps done at the last agreement */
    int watched;                 /* events of the world that are noted */
    struct {                     /* left.c */
        tutti_request *leaves;   /* workers and servers: ends when that one is gone; NULL: nobody
                                    looks */
        tutti_flag posted;       /* all of them are, and may be read */
        tutti_flag may;          /* the run is over: who leaves has come to its end */
    } left;

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
    tutti_engine_piece *piece_state; /* n_pieces, with room for what tutti_recut may make */
    tutti_group lead;            /* of a led lane */
    tutti_engine_by_piece by_piece;
    tutti_flag broken;           /* an exchange has failed here: none that follows begins, since the
                                    others are still in that one and would not come to it */
    tutti_word broken_by;        /* because of which rank; of pieces, before broken */
    struct {                     /* by itself, in a piece; before others hear of it */
        tutti_flag claimed, told;
        tutti_status status;
        tutti_error error;
    } own_failure;
    _Atomic uint64_t turns_at_failure; /* of the lane, when the first piece after it was left out;
                                          0: none yet */
    int next_piece;              /* the only one that may start next */
    bool *announced;             /* n_tensors, in this pass */
    double loss_sum;
    bool values_changed;         /* x differs from the client's copies */
    bool told_unused;
    tutti_engine_merge merge;
    tutti_engine_late late;
    tutti_engine_take take;
    tutti_engine_given given;
    tutti_engine_client client;
    tutti_engine_shards shards;
    tutti_engine_units units;
    tutti_engine_offload offload;
    tutti_engine_held held;
    tutti_engine_driven drive;
    double lr, lr_factor;        /* base rate; the schedule's, of this step */
    bool at_servers;             /* which update slices by the run's optimiser */
    tutti_engine_scaler scaler;

    /* own threads */
    bool own_pace;               /* TUTTI_ASYNC */
    tutti_engine_pace pace;
    tutti_engine_services services;

    /* counts. progress: declared, survives a resume. own: mine; declared unless replicas are equal,
       samples count under ASYNC only. told: what of it is in `progress`. history: mine, the
       client's; declared where gradients may be old (tutti_engine_declare_history) */
    struct { uint64_t step, samples, skipped; } progress;
    struct { uint64_t steps, samples, skipped; } own, told;
    uint64_t sat_out;            /* of own.steps; declared by methods that have such steps */
    uint64_t updates_before_reset; /* of the optimiser's buffers, which rate.t counts from; declared
                                      by methods that reset them (buffers.c) */
    struct {
        uint64_t restarts, stale_most, stale_n;
        double stale_sum;
        tutti_histogram stale;
    } history;

    /* times, events, figures (clock.c) */
    tutti_engine_clock clock;
    tutti_trace_event *trace;
    size_t n_trace; uint64_t trace_lost;
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

/* ---- engine.c ---- */

/* TUTTI_ERR_STATE: a call that is legal between steps only, and came at another time. */
tutti_status tutti_engine_out_of_order(tutti_error *err, const char *call);

/* ---- table.c: what the writer of a method may have forgotten ---- */

/* Of a list: names that can be asked for, each once. / Of a row: the rest. */
tutti_status tutti_engine_check_names(const tutti_method_ops *const *methods, tutti_error *err);
/* Is its `when` none, or one whose conditions can be looked at? */
bool tutti_method_default_can_hold(const tutti_method_ops *ops, const tutti_method_default *row);
tutti_status tutti_engine_check_table(const tutti_method_ops *ops, int workers, tutti_error *err);

/* ---- options.c ---- */

/* The options as they are meant, with defaults in place; the workers' and the servers' ranks. /
   Behind it, with places: the method, its traits, its pace. */
tutti_status tutti_engine_read_options(tutti_engine *e, const tutti_method_ops *const *methods,
                                       tutti_error *err);
tutti_status tutti_engine_open_method(tutti_engine *e, tutti_error *err);

/* ---- declare.c ---- */

/* All of it; methods: those whose gradients may go through a codec are named. */
tutti_status tutti_engine_declare(tutti_engine *e, const tutti_method_ops *const *methods,
                                  tutti_error *err);

/* ---- layout.c ---- */

/* Tensors get their places. Pieces are cut by tutti_engine_cut: within declare() too, by what has
   to know of them before there is memory. */
tutti_status tutti_engine_place(tutti_engine *e, const tutti_param *params, int n,
                                tutti_error *err);

/* ---- pieces.c ---- */

/* g becomes this worker's gradient of the update, once a pass; where pieces are exchanged their
   jobs have done it. */
void tutti_engine_take_in(tutti_engine *e);
/* A piece has the gradient of one more tensor: it starts if it is complete and this pass
   exchanges. / Those that are complete, in index order. */
void tutti_engine_piece_gets(tutti_engine *e, int k);
void tutti_engine_start_ready(tutti_engine *e);
/* Within step(): exchanges what the lane was not given, and waits for what it has, unless updates
   go by piece. */
tutti_status tutti_engine_settle_pieces(tutti_engine *e, tutti_error *err);
/* Within step(): its values go to all, beside the next step. */
void tutti_engine_start_gather(tutti_engine *e, int k);
/* It was waited for, and has ended so. / It is as before its start. */
void tutti_engine_piece_over(tutti_engine *e, int k, tutti_status status);
void tutti_engine_piece_rests(tutti_engine *e, int k);
/* A failure is told to exchanges that come later; on whatever thread. */
void tutti_engine_breaks(tutti_engine *e, tutti_status status, const tutti_error *err);
/* What failed here by itself in a piece, which another worker may have failed because of. TUTTI_OK:
   nothing. */
tutti_status tutti_engine_pieces_own_failure(const tutti_engine *e, tutti_error *err);
/* Because of which worker a piece has failed. */
int tutti_engine_failed_by(const tutti_engine *e, tutti_status status, const tutti_error *err);

/* ---- by_piece.c: nothing happens where no pieces are under way beside the next step (m->beside),
   unless noted ---- */

/* After declare(), of all methods: what m->by_piece, cut_bytes and order do not go with. */
tutti_status tutti_engine_check_pieces(tutti_engine *e, tutti_error *err);
void tutti_engine_by_piece_close(tutti_engine *e);
/* The piece is exchanged; on the thread that did it. */
void tutti_engine_by_piece_exchanged(tutti_engine *e, int k);
/* What follows is the client's. A pass begins. / A unit's backward is
   over. / The pass is. / The step: what was started goes on beside the next. */
tutti_status tutti_engine_by_piece_pass(tutti_engine *e, const tutti_pass *next, tutti_error *err);
void tutti_engine_by_piece_done(tutti_engine *e, int unit);
void tutti_engine_by_piece_passed(tutti_engine *e);
tutti_status tutti_engine_by_piece_go_on(tutti_engine *e, tutti_error *err);
/* Waits for what the step before has left under way of a unit, and hands the values out. / Of a
   table. / Of a tensor, handing nothing out. */
tutti_status tutti_engine_by_piece_need(tutti_engine *e, int unit, tutti_error *err);
tutti_status tutti_engine_by_piece_need_table(tutti_engine *e, int tensor, tutti_error *err);
tutti_status tutti_engine_by_piece_tensor(tutti_engine *e, int tensor, tutti_error *err);
/* Waits for all; of any method. What has failed is told by each call. */
tutti_status tutti_engine_by_piece_rest(tutti_engine *e, tutti_error *err);

/* ---- held.c: nothing happens where gradients are held whole ---- */

/* After declare(). / Memory is there. */
tutti_status tutti_engine_held_check(tutti_engine *e, tutti_error *err);
void tutti_engine_held_open(tutti_engine *e);
void tutti_engine_held_close(tutti_engine *e);
/* Before a gradient is written to it a piece has memory. May wait, and take more. */
tutti_status tutti_engine_hold(tutti_engine *e, int k, tutti_error *err);
/* A piece is about to go to the lane. / Its exchange is over; on the thread that did it. */
void tutti_engine_held_starts(tutti_engine *e);
void tutti_engine_let_go(tutti_engine *e, int k);
/* What this pass exchanges is added to what passes of the step before it have. */
bool tutti_engine_adds_up(const tutti_engine *e);

/* ---- shards.c ---- */

/* Of the mean gradient, once it is exchanged; collective. clip-norm is on. */
tutti_status tutti_engine_shards_norm2(tutti_engine *e, double *norm2, tutti_error *err);
/* p->x := everybody's shards of it. On the thread that the job is on. */
tutti_status tutti_engine_shards_gather(tutti_engine *e, tutti_piece *p, tutti_error *err);
/* The groups of a piece that starts. */
void tutti_engine_shards_start(tutti_engine *e, tutti_piece *p);
/* Of a state of so many elements, which those of my place in all teams have: what this worker
   saves. */
tutti_range tutti_engine_shards_saved(const tutti_engine *e, size_t count);

/* Where the mean of my shard of a piece is, from its exchange on. */
float *tutti_engine_shard_gradient(const tutti_engine *e, int piece);

/* ---- units.c: of values that are held by unit ---- */

/* Within tutti_shards_declare. keep: units of at most so many values stay. / Within
   tutti_drive_declare: units are there to be looked at, and nothing of them is held. / Memory is
   there. */
tutti_status tutti_engine_units_declare(tutti_engine *e, size_t keep, tutti_error *err);
tutti_status tutti_engine_units_declare_looks(tutti_engine *e, tutti_error *err);
tutti_status tutti_engine_units_open(tutti_engine *e, tutti_error *err);
/* Rank 0's first values, each worker's shards of them. */
tutti_status tutti_engine_units_initial(tutti_engine *e, tutti_group *workers, tutti_error *err);
/* A pass begins, and ends. / The shards have been updated. */
void tutti_engine_units_pass(tutti_engine *e);
tutti_status tutti_engine_units_passed(tutti_engine *e, tutti_error *err);
/* The update is about to be: of units that come from a tier those that are needed first have a
   place already. / Where it is to leave my shard of a piece; NULL: in the tier alone. / It is
   over. */
tutti_status tutti_engine_units_fill(tutti_engine *e, tutti_error *err);
float *tutti_engine_units_filled(const tutti_engine *e, int piece);
tutti_status tutti_engine_units_updated(tutti_engine *e, tutti_error *err);
tutti_status tutti_engine_units_need(tutti_engine *e, int unit, tutti_error *err);
tutti_status tutti_engine_units_done(tutti_engine *e, int unit, tutti_error *err);
/* Waits for what is under way; of any method. */
tutti_status tutti_engine_units_rest(tutti_engine *e, tutti_error *err);
/* Between need and done; else NULL. */
float *tutti_engine_units_values(const tutti_engine *e, int tensor);
/* A piece starts. / All are about to exchange that one. */
uint32_t tutti_engine_units_turn(tutti_engine *e);
tutti_status tutti_engine_units_say(tutti_engine *e, int piece, uint32_t turn, tutti_error *err);

/* ---- offload.c ---- */

/* The run ends: x has every update once all are at rest. */
tutti_status tutti_engine_offload_drain(tutti_engine *e, tutti_error *err);

/* Bytes of the tiles that an update streams through, and gradients on their way; 0: none. From
   declare() on. */
size_t tutti_engine_offload_tiles(const tutti_engine *e);

/* Of gradients in a tier without addresses, else nothing happens. Where the mean of a shard goes
   (adds: with what the passes before have left there) / It has come and goes to the tier; on the
   thread of the exchange. / It is where tutti_engine_offload_looks says; client thread, once all
   are exchanged. */
tutti_status tutti_engine_offload_takes(tutti_engine *e, int piece, bool adds, float **to,
                                        tutti_error *err);
tutti_status tutti_engine_offload_keeps(tutti_engine *e, int piece, float *from, tutti_error *err);
tutti_status tutti_engine_offload_bring(tutti_engine *e, int piece, tutti_error *err);
float *tutti_engine_offload_looks(const tutti_engine *e, int piece); /* NULL: g has an address */
bool tutti_engine_offload_writes(const tutti_engine *e); /* there are such; once all is declared */

/* ---- aside.c: nothing happens where no models are put aside ---- */

/* Before declare(). / With the engine's own declarations. */
tutti_status tutti_engine_asides_open(tutti_engine *e, tutti_error *err);
void tutti_engine_asides_declare(tutti_engine *e);
void tutti_engine_asides_close(tutti_engine *e);
/* All are about to go on. / My first pass of a step begins: x is what it computes by. */
void tutti_engine_asides_begin(tutti_engine *e);
void tutti_engine_asides_pass(tutti_engine *e);
/* Within show: x := what was put aside. / x := the model of all. / Within resume: x and the stage
   are as before. */
void tutti_engine_aside_take(tutti_engine *e, int k);
tutti_status tutti_engine_aside_agree(tutti_engine *e, int k, tutti_error *err);
void tutti_engine_aside_back(tutti_engine *e);

/* ---- facility.c: as method.h says when ---- */

/* Facilities, and the method's own hook. */
tutti_status tutti_hooks_open(tutti_engine *e, tutti_error *err);
void tutti_hooks_close(tutti_engine *e);
tutti_status tutti_hooks_hold(tutti_engine *e, tutti_error *err);
tutti_status tutti_hooks_release(tutti_engine *e, tutti_error *err);
/* Does one of them hold or release? */
bool tutti_hooks_rest(const tutti_engine *e);
/* Facilities alone. */
tutti_status tutti_facilities_begin(tutti_engine *e, tutti_error *err);
tutti_status tutti_facilities_arrive(tutti_engine *e, tutti_error *err);
void tutti_facilities_put_aside(tutti_engine *e, int points);
/* false: none has the worker's model, which is x */
bool tutti_facilities_own_aside(tutti_engine *e, float *to);
/* *there: does any keep values beside the workers'? Else nothing was done. */
tutti_status tutti_facilities_agree_aside(tutti_engine *e, int k, bool *there, tutti_error *err);
void tutti_facilities_drop_aside(tutti_engine *e);
void tutti_facilities_begun(tutti_engine *e);
/* A rank is lost: TUTTI_OK, or the sentence with which the run ends. */
tutti_status tutti_facilities_without(const tutti_engine *e, int rank, tutti_error *err);
/* false: none keeps values of x in slices. */
bool tutti_facilities_slices(const tutti_engine *e, int64_t *slices);
bool tutti_facilities_recut(const tutti_engine *e, const tutti_saved_run *run, const void *memory);
tutti_status tutti_facilities_load(tutti_engine *e, tutti_checkpoint *checkpoint,
                                   const tutti_saved_run *run, tutti_error *err);

/* ---- pass.c, ready.c ---- */

bool tutti_engine_passes_left(const tutti_engine *e); /* of this step */
/* A pass is over: gradients that were not announced in it are 0. */
tutti_status tutti_engine_unused(tutti_engine *e, tutti_error *err);

/* ---- step.c ---- */

/* TUTTI_ERR_STATE: a call of a step's that came at another time, which `when` says. / A failure
   within a step is final, since peers may be in the middle of a collective with us. */
tutti_status tutti_engine_wrong(tutti_error *err, const char *call, const char *when);
tutti_status tutti_engine_failed(tutti_engine *e, tutti_status status, tutti_error *err);
/* Updates so far: what bias corrections count. / Within step(): as rate.t counts them, this step's
   with them. */
uint64_t tutti_engine_updates(tutti_engine *e);
uint64_t tutti_engine_updates_after_step(tutti_engine *e);
/* The run ends: gradients that are late are applied now. */
tutti_status tutti_engine_drain(tutti_engine *e, tutti_error *err);

/* ---- client.c ---- */

/* The client's memory of a tensor, where it has its own, becomes as x is: `count` from `first`
   on. / All of it, if x has changed. */
void tutti_engine_deliver(tutti_engine *e, int tensor, size_t first, size_t count);
void tutti_engine_hand_out(tutti_engine *e);
/* x := what stands in the client's memory. / Of all tensors, where the model is there. */
void tutti_engine_read_values(tutti_engine *e, int tensor);
void tutti_engine_collect(tutti_engine *e);
/* What a tensor's gradient is taken from: its place in g, which is nothing; other memory; NULL: it
   is 0. rows: n of a table's, out of the whole table or as they stand one behind the other; from
   NULL: they are in g. */
typedef struct tutti_engine_source {
    const void *from;
    tutti_dtype dtype;
    bool rows, whole;
    const uint32_t *ids;
    size_t n;
} tutti_engine_source;
/* Piece k takes of it what it has. */
void tutti_engine_take_gradient(tutti_engine *e, int tensor, int k, const tutti_engine_source *s);
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

/* The first number of p->g that is not finite. Looks at no other piece's. */
void tutti_engine_find_bad_of(const tutti_engine *e, const tutti_piece *p, tutti_engine_bad *bad);
/* Is this worker's gradient of a piece finite? A failure unless such steps may be left out, or such
   gradients are the client's to judge. / The same of the mean, where a codec decoded it. Any
   thread. */
tutti_status tutti_engine_look(const tutti_engine *e, const tutti_piece *p, tutti_engine_bad *bad,
                               tutti_error *err);
tutti_status tutti_engine_look_decoded(const tutti_engine *e, const tutti_piece *p,
                                       tutti_engine_bad *bad, tutti_error *err);
/* *who: what is not finite, over the members of `group` (NULL: for myself), of what was looked at:
   a number that they have alike; 0: nothing. Any thread. */
tutti_status tutti_engine_vote(tutti_engine *e, const tutti_engine_piece *state, uint64_t step,
                               tutti_group *group, int64_t *who, tutti_error *err);
/* Collective where such steps may be left out: is the one in g? */
tutti_status tutti_engine_judge(tutti_engine *e, bool *skip, tutti_error *err);

/* ---- scaler.c ---- */

tutti_status tutti_engine_scaler_parse(tutti_engine_scaler *s, const char *text, tutti_error *err);
void tutti_engine_scaler_loaded(tutti_engine *e);
/* Any thread. */
void tutti_engine_unscale(tutti_engine *e, tutti_piece *p, double scale);
/* A step of which a gradient is not finite is left out: counted, and the scale follows. had: with
   which the gradient was computed. TUTTI_ERR_NUMBER: not any more. / A step was good. */
tutti_status tutti_engine_scaler_skip(tutti_engine *e, double had, int worker, const char *tensor,
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

/* ---- late.c ---- */

tutti_status tutti_engine_late_open(tutti_engine *e, tutti_error *err);
/* Before lanes are closed. Blocks: runs out what was started. */
void tutti_engine_late_close(tutti_engine *e);
/* Is this step's gradient late? */
bool tutti_engine_late_is(const tutti_engine *e);
/* The passes of such a step are over: its gradient goes, and g takes the one that is due. *due:
   there is one, exchanged, on all workers alike. */
tutti_status tutti_engine_late_turn(tutti_engine *e, bool *due, tutti_error *err);
/* What is to be applied when the run ends; *due: it is in g. Until there is none. */
tutti_status tutti_engine_late_drain(tutti_engine *e, bool *due, tutti_error *err);
/* It was applied, or left out. */
void tutti_engine_late_end(tutti_engine *e);
/* Within step(): the one in g; NULL: this step's own. */
const tutti_late_gradient *tutti_engine_late_applied(const tutti_engine *e);
/* Waits for what is under way; what has failed is told when it is due. / Only if the codec report
   measures it. */
void tutti_engine_late_rest(tutti_engine *e);
void tutti_engine_late_rest_measured(tutti_engine *e);

/* ---- drive.c: nothing happens under methods that do not drive ---- */

/* After declare(). / Memory is there: the client's stage. / Within drive(). */
tutti_status tutti_engine_check_drive(const tutti_engine *e, tutti_error *err);
/* drive_sum.c. Close is before the services', as of every lane. */
tutti_status tutti_engine_drive_sums_open(tutti_engine *e, tutti_error *err);
void tutti_engine_drive_sums_close(tutti_engine *e);
tutti_status tutti_engine_drive_open(tutti_engine *e, tutti_error *err);
tutti_status tutti_engine_drive_need_rows(tutti_engine *e, int tensor, const uint32_t *ids,
                                          size_t n, tutti_error *err);
void tutti_engine_drive_close(tutti_engine *e);
/* Of those that drive: rank 0's first values. / A unit's values, which are that range, to all
   workers; collective. */
tutti_status tutti_engine_drive_initial(tutti_engine *e, tutti_error *err);
tutti_status tutti_engine_drive_bring(tutti_engine *e, int unit, tutti_range range, float *values,
                                      tutti_group *workers, tutti_error *err);

/* ---- given.c ---- */

void tutti_engine_given_close(tutti_engine *e);

/* ---- names.c ---- */

/* Before a pass: are its names and its room for losses in order? Marks the losses as not told. /
   After it: has the client told all of them? */
tutti_status tutti_engine_names_check(const tutti_engine *e, const tutti_pass *p,
                                      tutti_error *err);
tutti_status tutti_engine_losses_check(const tutti_engine *e, double loss_sum, tutti_error *err);

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

/* ---- left.c ---- */

tutti_status tutti_engine_left_open(tutti_engine *e, tutti_error *err);
void tutti_engine_left_close(tutti_engine *e);
/* For who waits for them himself: of one rank; then: all are posted. */
tutti_status tutti_engine_left_post(tutti_engine *e, int rank, tutti_error *err);
void tutti_engine_left_posted(tutti_engine *e);
/* From now on. Client thread */
void tutti_engine_may_leave(tutti_engine *e);
/* Who has left in order before the run's end; -1: nobody. Any thread */
int tutti_engine_left(const tutti_engine *e);
/* TUTTI_ERR_PEER, with a sentence: somebody has. Client thread */
tutti_status tutti_engine_left_look(const tutti_engine *e, tutti_error *err);

/* ---- fingerprint.c ---- */

tutti_status tutti_engine_compare(tutti_engine *e, tutti_error *err);

/* ---- clock.c ---- */

void tutti_engine_clock_start(tutti_engine *e);
void tutti_engine_clock_stop(tutti_engine *e);
/* What steps have taken so far: all time but reports, evaluations and checkpoints. */
int64_t tutti_engine_worked_ns(const tutti_engine *e);
/* Steps without an update: of all where replicas are equal, else mine. */
uint64_t *tutti_engine_skipped(tutti_engine *e);
/* Figures of ranks that only serve, to all; collective over everyone, in this group. */
tutti_status tutti_engine_tell_metrics(tutti_engine *e, tutti_error *err);
tutti_group tutti_engine_metrics_group(const tutti_engine *e);
/* An event of this step. The text is copied, the kind kept. */
void tutti_engine_note(tutti_engine *e, const tutti_event_record *what);
void tutti_engine_mark(tutti_engine *e, const char *what, int index, int thread, int64_t begin_ns,
                       int64_t end_ns);
/* Of another step than this one. */
void tutti_engine_mark_step(tutti_engine *e, const char *what, int index, int thread, uint64_t step,
                            int64_t begin_ns, int64_t end_ns);
#endif
