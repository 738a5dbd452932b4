/* engine_internal.h: what the engine's files share. One engine = one method on one world; the
   client thread owns everything here except what is marked. */
#ifndef TUTTI_ENGINE_INTERNAL_H
#define TUTTI_ENGINE_INTERNAL_H
#include "engine_facility.h"

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

/* A table (rows.c). The client's thread writes it, and the lane
   while it exchanges the table's piece. */
typedef struct tutti_engine_rows {
    bool knows;                  /* the method keeps rows known; else the rest is not there */
    bool summed;                 /* by tutti_engine_sum or servers, in this exchange */
    bool needs;                  /* this pass has asked; whatever the method */
    uint32_t *needed; size_t n_needed, needed_room; /* for which rows */
    tutti_rows known;            /* rows of g that may be other than 0 */
    uint32_t *ids;               /* known.ids; room for every row */
    uint64_t *mark;              /* a bit a row; 0 between calls */
    float *zeros;                /* a row */
    /* workers: rows and words of each, places in what came */
    int64_t *told; size_t *counts; const uint32_t **cursor; const float **from;
    /* what is sent, what comes: ids, then rows, of each worker in turn; words */
    uint32_t *mine, *all; size_t mine_room, all_room;
} tutti_engine_rows;

typedef struct tutti_engine_clock {
    bool running;
    tutti_doing doing;
    int64_t started_ns, ended_ns, since_ns, spent_ns[TUTTI_DOING_OUTSIDE + 1];
    int64_t comm_ns;
    uint64_t bytes_at_start, bytes_aside, bytes_since, messages_at_start, messages_aside,
        messages_since;
} tutti_engine_clock;

/* Loss scaling (scaler.c). */
/* good: steps without an overflow since it moved; left: overflows until it falls */
typedef struct tutti_engine_scale { double scale; int64_t good, left; } tutti_engine_scale;
typedef struct tutti_engine_scaler {
    bool on, dynamic;
    double init, growth, backoff, min;
    int64_t interval, hysteresis;
    int on_min;
    tutti_engine_scale now;          /* declared; scale 1 where it is off */
} tutti_engine_scaler;

/* An answer that was given to be sent (desk.c). */
typedef struct tutti_engine_sent {
    tutti_request send;
    int to, state;
    tutti_port port;
    tutti_note note;
    tutti_buffer payload;
    size_t there;                /* bytes that stand in a window, in place of the payload */
    uint64_t turn;
    int copy;                    /* that it is sent from; -1: none */
    int64_t began_ns;            /* to go; 0: it carries nothing, or was done at once */
    int beside;                  /* young ones that were on their way then */
} tutti_engine_sent;
/* Where a service takes requests and answers them (desk.c). Its thread's,
   but for what was seen of the link. */
struct tutti_engine_desk {
    tutti_engine *engine;
    int index;                   /* of the service */
    /* requests that may come at a time; of what answers carry; answers to be sent */
    int rooms, copies, answers;
    unsigned char *in, *out;     /* rooms x in_bytes, copies x out_bytes: the owner's */
    size_t in_bytes, out_bytes;
    bool at_once;                /* no answer waits for its turn */
    /* what answers carry stays as it is until they are taken: it is not copied */
    bool stays;
    tutti_request *request;      /* rooms */
    uint64_t *posted;            /* rooms: in which order */
    bool *lined;                 /* rooms: its request stands in line, or is worked at */
    int *line, waiting;          /* rooms whose requests are here, in order of arrival */
    /* the room of the request that is worked at, -1: none; rooms posted at first */
    int taken, begun;
    int from;                    /* from whom requests may come */
    /* what this worker tells itself: the end, or that a round is owed */
    tutti_request word;
    bool woken;                  /* a word came while answers were waited for */
    /* the service has failed: what becomes of its answers is no failure any more */
    bool careless;
    tutti_engine_sent *answer;
    int *users;                  /* copies: answers to be sent from each */
    tutti_request **wanted;      /* scratch of waits */
    uint64_t turns, released;    /* answers that were given, that were taken */
    /* what was seen of the link, bytes a ns; as the next two, under services.monitor */
    double quick, all;
    /* quick is of one that went alone; ranks: has an answer to it been taken? */
    bool alone, *seen;
};

/* Under services.monitor, but for thread (client's), desk and what is constant. */
struct tutti_engine_service {
    tutti_engine *engine;
    tutti_status (*run)(tutti_method *m, tutti_error *err);
    const char *name;
    tutti_thread *thread;
    bool resting, busy, ended;   /* busy: within a round */
    bool hears;                  /* of losses; constant once open */
    /* it has begun to wait for requests; the message that wakes it for what it is owed is under
       way */
    bool serving, woken;
    tutti_request wake;
    int64_t owed;                /* rounds */
    tutti_note *unanswered;      /* requests taken and not answered */
    size_t n_unanswered, room_unanswered;
    tutti_engine_desk desk;      /* open once it takes requests */
};

/* given: blocks of its team's, in this phase */
typedef struct tutti_engine_customer {
    tutti_request answer;
    uint64_t given;
} tutti_engine_customer;
/* How codecs' messages go (exchange/message.c). */
typedef enum { TUTTI_WAY_AUTO, TUTTI_WAY_GATHER, TUTTI_WAY_OWNERS } tutti_way;
enum { TUTTI_ENGINE_BLOCKS = 4 };
/* What a team was dealt in this phase, in blocks of as many gradients as it has workers. None of it
   comes for a block before all have come for the last but one. */
typedef struct tutti_engine_dealt {
    uint64_t blocks, first[TUTTI_ENGINE_BLOCKS];
} tutti_engine_dealt;

typedef struct tutti_engine_facility { const tutti_facility_ops *ops; void *self; } tutti_engine_facility;

struct tutti_engine {
    tutti_world *world;
    tutti_runtime *rt;
    tutti_method m;
    tutti_spec *method_spec;
    tutti_lr_schedule *schedule;
    tutti_plan *plan;
    tutti_lane *lane;
    tutti_share share;
    /* workers; declared, if the shares are uneven; share.batch_of */
    int64_t *batch_of;
    /* workers; declared, if the method deals out the passes (allot.c); share.passes_of */
    int64_t *passes_of;
    tutti_parts own_part;            /* of the one worker that share knows at its own pace: mine */
    tutti_engine_options options;    /* texts owned: see text[] */
    /* method, optimizer, lr_schedule, collective, fingerprint, codec, loss_scale,
       codec_hierarchy */
    char *text[8];

    const char *collective;          /* of the workers' sums; NULL: chosen for each */
    tutti_way way;                   /* of codecs' messages */
    /* gradients through a codec (exchange.c); NULL: as they are */
    struct tutti_engine_exchange *exchange;
    tutti_layout layout;
    tutti_tensor *tensors;
    tutti_piece *pieces;
    tutti_param *params;             /* names owned by `tensors` */
    char *names;
    /* own_values and one more, which is 1 once this worker has had samples; as they
       were before the mean. NULL: none */
    float *own_state, *own_kept;
    /* n: x while the agreed model is shown; only where replicas differ */
    float *kept;

    /* of a run that goes on after losses; NULL: it does not (members.c) */
    tutti_members *members;
    bool *was_member;                /* workers: scratch of settle */
    uint64_t agreed_step;            /* steps done at the last agreement */
    int watched;                     /* events of the world that are noted */

    tutti_engine_stage stage;
    tutti_pass pass;                 /* the current one */
    int64_t passes;                  /* of this step, mine, as configured */
    int64_t computed;                /* samples of this step's passes so far */
    /* of the last pass g is the update's gradient: not scaled, with what has waited */
    bool taken_in;
    bool abandoned;                  /* the step begins anew: done has said so */
    /* a pass of this step exchanges its pieces: gradients are looked at there, and
       the same on all workers afterwards */
    bool exchanged;
    tutti_engine_piece *piece_state; /* n_pieces */
    int next_piece;                  /* the only one that may start next */
    bool *announced;                 /* n_tensors, in this pass */
    tutti_engine_rows *rows;         /* n_tensors; all 0 of those that are no tables */
    int *piece_of_tensor;
    double loss_sum;
    struct {                         /* several steps with one update (merge.c) */
        /* declared, n: samples x gradient, of the steps before this one that
           wait; NULL: the method merges none */
        float *sum;
        int64_t mine;                /* samples in it, mine */
        /* of the update under way: steps that wait, and samples of all workers; waited: steps of
           the run that had no update of their own */
        struct { uint64_t steps, waited; int64_t all; } now;
        bool waits;                  /* this step does */
    } merge;
    bool codec_is_used;              /* the run's, by a mixer */
    /* workers whose gradients go through the codec as one: exchange/team.c */
    int codec_team;
    bool own_pace;                   /* TUTTI_OWN_PACE */
    /* everyone, while the engine is opened: who gives up in the run (tutti_engine_settle) must not
       be heard by who is still here, and has all that it needs */
    tutti_group opening;
    tutti_group team;                /* client thread's copy: my team, under OWN_PACE */
    int *team_ranks;
    /* workers: the first of the world, where others only serve; else NULL */
    int *worker_ranks;
    tutti_engine_facility facility[TUTTI_FACILITIES_MOST]; int n_facilities; /* in order: facility.c */
    int member;                      /* index in share: mine, or 0 of 1 at its own pace */
    uint64_t steps_here;             /* this worker's, in this process: turns of its groups */
    tutti_engine_scaler scaler;
    /* mine; declared unless replicas are equal, samples count under OWN_PACE
       only; of it, what is in `progress` */
    struct { uint64_t steps, samples, skipped; } own, told;
    /* mine, the client's; declared where gradients may be old: declare_history */
    struct {
        uint64_t restarts, stale_most, stale_n;
        double stale_sum;
        tutti_histogram stale;
    } history;
    struct {
        bool drawn;                  /* gradient is to be computed */
        /* of this step; if drawn and not below until: none, but my team has some */
        uint64_t gradient;
        /* done by all at the last quiet; declared. After losses: given out, since what a lost
           worker was given is computed by nobody */
        uint64_t agreed;
        uint64_t first_samples;      /* of the run, before this process */
        uint64_t given;              /* one more than the last gradient that I was given */
        double untold_samples, untold_loss; /* of my last step */
        uint64_t until;              /* of this phase */
        /* the method has said here that the run ends; all have agreed on it */
        bool ends, ended;
        /* worker 0's; under services.monitor: somebody has asked for no more */
        bool over;
        tutti_engine_call call;      /* for the gradient after this one */
        tutti_heard heard;           /* worker 0's; under services.monitor */
        /* workers, of worker 0: given under services.monitor, answer the pool's */
        tutti_engine_customer *customer;
        tutti_engine_dealt *dealt;   /* teams, of worker 0; under services.monitor */
    } pace;
    struct {
        tutti_monitor *monitor;      /* NULL: no services */
        tutti_engine_service at[TUTTI_SERVICES_MOST + 2];
        tutti_request *watched;      /* workers: of the watcher; my own is the end */
        tutti_request **wanted;      /* workers: all of them */
        int n, pool;                 /* pool: index of the engine's own */
        bool held;                   /* client writes; not begun, or all is quiet, or about to be */
        /* client writes; all is, and the client looks at what its servers have:
           they hear of losses when it goes on */
        bool quiet;
        bool closing;
        int64_t *sent, *received;    /* workers: requests to and of each */
        int events;                  /* of the world, of which those who hear of losses were told */
        uint64_t bytes, messages;    /* sent to others */
        tutti_engine_call *calls;    /* of tutti_call, under way */
        /* aside: empty messages of the engine's own, not the method's */
        uint64_t tickets, aside;
        int64_t comm_ns;
        /* client's: samples of mine that no update has, since all was quiet */
        uint64_t discarded;
        tutti_status status;         /* of the first service that failed */
        tutti_error error;
        tutti_group group;           /* the client's, for what is not the method's */
    } services;
    bool values_changed;             /* x differs from the client's copies */
    bool told_unused;

    struct { uint64_t step, samples, skipped; } progress; /* declared: survives a resume */

    tutti_engine_clock clock;
    tutti_trace_event *trace;
    size_t n_trace;
    int64_t *unit_began_ns;          /* 2 x n_units: forward, backward */
    tutti_event_record *events;
    int n_events, room_events;
    tutti_metric_record *metrics;
    int n_metrics, room_metrics;
    int *metric_at; size_t metric_slots; /* 1 + place of each, by hash, 0: free; a power of two */
    char **told_names; int n_told_names; /* of figures that servers have told */
};

/* layout.c: tensors get their places, pieces are cut. */
tutti_status tutti_engine_place(tutti_engine *e, const tutti_param *params, int n,
                                tutti_error *err);
tutti_status tutti_engine_cut(tutti_engine *e, tutti_error *err);
/* rows.c */
tutti_status tutti_engine_rows_open(tutti_engine *e, tutti_error *err);
void tutti_engine_rows_close(tutti_engine *e);
/* gradients of tables are 0, and no rows touched */
void tutti_engine_rows_clear(tutti_engine *e);
/* besides those before; ids below rows */
void tutti_engine_rows_touch(tutti_engine *e, int tensor, const uint32_t *ids, size_t n);
tutti_status tutti_engine_rows_need(tutti_engine *e, int tensor, const uint32_t *ids, size_t n,
                                    tutti_error *err);
tutti_status tutti_engine_rows_were_needed(const tutti_engine *e, int tensor, const uint32_t *ids,
                                           size_t n, tutti_error *err);
bool tutti_engine_finite(const tutti_engine *e, const tutti_piece *p);
void tutti_engine_scale_piece(tutti_engine *e, tutti_piece *p, float a);
/* the bits of tutti_norm2 over g */
double tutti_engine_norm2(const tutti_engine *e);
void tutti_engine_update(tutti_engine *e, float *x, const tutti_rate *rate);
/* The rows that an update changes: NULL: all of that tensor. */
const tutti_rows *tutti_engine_rows_to_update(const tutti_engine *e, int tensor);
/* tutti_exchange without a codec */
tutti_status tutti_engine_sum(tutti_engine *e, tutti_piece *p, float weight, tutti_error *err);
/* scaler.c */
tutti_status tutti_engine_scaler_parse(tutti_engine_scaler *s, const char *text, tutti_error *err);
void tutti_engine_scaler_loaded(tutti_engine *e);
void tutti_engine_unscale(tutti_engine *e, tutti_piece *p);
/* A step of which a gradient is not finite is left out: counted, and the scale follows.
   TUTTI_ERR_NUMBER: not any more. / A step was good. */
tutti_status tutti_engine_scaler_skip(tutti_engine *e, int worker, const char *tensor,
                                      tutti_error *err);
void tutti_engine_scaler_good(tutti_engine *e);
/* merge.c */
/* this step does not wait: m->weight */
void tutti_engine_merge_weigh(tutti_engine *e);
/* p->g with what has waited; nothing where nothing has */
void tutti_engine_merge_take(tutti_engine *e, tutti_piece *p);
/* at the end of a step that waits */
void tutti_engine_merge_keep(tutti_engine *e);
/* there was an update, or it was left out */
void tutti_engine_merge_end(tutti_engine *e);
/* step.c */
/* who makes this step with me */
tutti_group *tutti_engine_together(tutti_engine *e);
bool tutti_engine_passes_left(const tutti_engine *e);               /* of this step */
/* finite.c */
/* a step whose gradients are not finite is left out, rather than the end */
bool tutti_engine_may_skip(const tutti_engine *e);
/* steps without an update: of all where replicas are equal, else mine */
uint64_t *tutti_engine_skipped(tutti_engine *e);
/* is this worker's gradient of a piece finite? Kept in piece_state; a failure
   unless such steps may be left out */
tutti_status tutti_engine_look(tutti_engine *e, int piece, tutti_error *err);
/* the same of the mean, where a codec decoded it */
tutti_status tutti_engine_look_decoded(tutti_engine *e, int piece, tutti_error *err);
/* collective where such steps may be left out: is this one? */
tutti_status tutti_engine_judge(tutti_engine *e, bool *skip, tutti_error *err);
/* allot.c */
/* evenly, once there is memory for it */
void tutti_engine_deal(tutti_engine *e);
tutti_status tutti_engine_check_deal(const tutti_engine *e, const int64_t *passes_of,
                                     tutti_error *err);
/* members.c */
tutti_status tutti_engine_members_open(tutti_engine *e, tutti_error *err);
void tutti_engine_watch(tutti_engine *e);                           /* client thread */
/* of a step, by all who are members */
int64_t tutti_engine_samples(const tutti_engine *e, uint64_t step);
/* Of what a team has done together: without one of its own it cannot go on, though the run does; so
   its workers fail by themselves, and are lost to the others. */
tutti_status tutti_engine_with_team(const tutti_engine *e, tutti_status status, tutti_error *err);
/* fingerprint.c */
tutti_status tutti_engine_compare(tutti_engine *e, tutti_error *err);
/* exchange.c */
/* AUTO also where it names an algorithm of sums */
tutti_way tutti_exchange_way(const char *collective);
/* what `collective` says of messages has some to say it of; all is declared */
tutti_status tutti_exchange_check_way(const tutti_engine *e, tutti_error *err);
/* workers of whom each of the codec's states is; 1: of each */
int tutti_exchange_team(const tutti_engine *e);
/* are a checkpoint's this run's? */
tutti_status tutti_exchange_check_saved_team(const tutti_engine *e, int64_t saved_team,
                                             int saved_by, tutti_error *err);
/* does codec-hierarchy have a codec to say something of? All is declared */
tutti_status tutti_exchange_check_team(const tutti_engine *e, tutti_error *err);
/* may codec-cost be what it is? All is declared */
tutti_status tutti_exchange_check_cost(const tutti_engine *e, tutti_error *err);
/* the same of codec-report */
tutti_status tutti_exchange_check_report(const tutti_engine *e, tutti_error *err);
/* the same of codec-checksum */
tutti_status tutti_checksum_allowed(const tutti_engine *e, tutti_error *err);
/* the plan is carried out, pieces are cut, the lane has its width */
tutti_status tutti_engine_exchange_open(tutti_engine *e, tutti_error *err);
void tutti_engine_exchange_close(tutti_engine *e);
/* of a step; collective */
tutti_status tutti_engine_exchange_begin(tutti_engine *e, tutti_error *err);
/* who owns that element where parts have owners */
int tutti_exchange_owner(int tensor, size_t count, size_t element, int workers);
/* the step that began is left out: what codecs keep is as if it had not been */
void tutti_engine_exchange_left_out(tutti_engine *e);
/* service.c */
tutti_status tutti_engine_services_open(tutti_engine *e, tutti_error *err);
void tutti_engine_services_close(tutti_engine *e);
/* Of a call of the client that a lost worker has ended: one that asked a service of mine which
   failed meanwhile has left because of me, and then mine is the cause. */
tutti_status tutti_engine_cause(tutti_engine *e, tutti_status status, tutti_error *err);
/* takes one that is not open */
void tutti_desk_close(tutti_engine_desk *d);
/* service/calls.c */
/* tutti_post_send, counted as the services', with the bytes that are read or written
   in windows in place of a payload */
tutti_status tutti_engine_post(tutti_engine *e, tutti_request *r, int to, tutti_port port,
                               const tutti_note *note, tutti_buffer payload, size_t there,
                               tutti_error *err);
/* An answer, until it has been taken: for who changes what it carries. */
tutti_status tutti_engine_answer(tutti_engine *e, const tutti_note *request,
                                 const tutti_note *answer, tutti_buffer payload, tutti_error *err);
tutti_port tutti_engine_reply_port(const tutti_note *request);
/* quiet.c */
/* collective; nothing if all is quiet */
tutti_status tutti_engine_quiet(tutti_engine *e, tutti_error *err);
/* collective; nothing if services run */
tutti_status tutti_engine_go_on(tutti_engine *e, tutti_error *err);
/* pace.c */
tutti_status tutti_engine_pace_open(tutti_engine *e, tutti_error *err);
/* when services have ended */
void tutti_engine_pace_close(tutti_engine *e);
tutti_status tutti_engine_pool(tutti_method *m, tutti_error *err);          /* worker 0's service */
/* by who hands out gradients, before anybody goes on */
tutti_status tutti_engine_pace_begin_phase(tutti_engine *e, tutti_error *err);
/* of all who are left, all quiet; collective */
tutti_status tutti_engine_pace_sum(tutti_engine *e, uint64_t sum[4], tutti_error *err);
void tutti_engine_pace_agree(tutti_engine *e, const uint64_t sum[4]);
/* workers: with which the run that was saved had begun */
void tutti_engine_pace_loaded(tutti_engine *e, int workers);
/* the step of `share` that is mine now */
tutti_status tutti_engine_pace_begin(tutti_engine *e, uint64_t *step, tutti_error *err);
/* of this step, under OWN_PACE: all of my team's */
void tutti_engine_pace_samples(const tutti_engine *e, int64_t *mine, int64_t *all);
void tutti_engine_pace_end(tutti_engine *e);
/* facility.c: the method's facilities, as method.h says when */
/* these, and the method's own hook */
tutti_status tutti_hooks_open(tutti_engine *e, tutti_error *err);
void tutti_hooks_close(tutti_engine *e);
tutti_status tutti_hooks_hold(tutti_engine *e, tutti_error *err);
tutti_status tutti_hooks_release(tutti_engine *e, tutti_error *err);
/* does one of them hold or release? */
bool tutti_hooks_rest(const tutti_engine *e);
/* these alone */
tutti_status tutti_facilities_arrive(tutti_engine *e, tutti_error *err);
void tutti_facilities_begun(tutti_engine *e);
/* a rank that is lost: TUTTI_OK, or the sentence with which the run ends */
tutti_status tutti_facilities_without(const tutti_engine *e, int rank, tutti_error *err);
/* false: none keeps values of x in slices */
bool tutti_facilities_slices(const tutti_engine *e, int64_t *slices);
bool tutti_facilities_recut(const tutti_engine *e, const tutti_saved_run *run, const void *memory);
tutti_status tutti_facilities_load(tutti_engine *e, tutti_checkpoint *checkpoint,
                                   const tutti_saved_run *run, tutti_error *err);
/* clock.c */
/* those of ranks that only serve, to all; collective over everyone, in this group: */
tutti_status tutti_engine_tell_metrics(tutti_engine *e, tutti_error *err);
tutti_group tutti_engine_metrics_group(const tutti_engine *e);
void tutti_engine_clock_start(tutti_engine *e);
void tutti_engine_clock_stop(tutti_engine *e);
/* an event; worker -1: about none */
void tutti_engine_note(tutti_engine *e, const char *kind, int worker, uint32_t epoch,
                       const char *text);
void tutti_engine_mark(tutti_engine *e, const char *what, int index, int thread, int64_t begin_ns,
                       int64_t end_ns);
#endif
