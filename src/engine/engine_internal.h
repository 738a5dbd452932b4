/* engine_internal.h: what the engine's files share. One engine = one method on one world; the client thread owns everything here
   except what is marked. */
#ifndef TUTTI_ENGINE_INTERNAL_H
#define TUTTI_ENGINE_INTERNAL_H
#include "tutti/engine.h"

typedef enum {
    STAGE_READY,    /* between steps, nothing done yet or the last step is over */
    STAGE_BETWEEN,  /* within a step, between passes */
    STAGE_PASS,     /* the client computes */
    STAGE_SHOWN,    /* the agreed model is in x (show) */
    STAGE_FINISHED,
    STAGE_FAILED
} tutti_engine_stage;

/* A gradient that is not finite, as the piece's job found it. */
typedef struct tutti_engine_bad { bool found; int tensor; size_t element; float value; } tutti_engine_bad;

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
    uint64_t bytes_at_start, bytes_aside, bytes_since, messages_at_start, messages_aside, messages_since;
} tutti_engine_clock;

struct tutti_engine {
    tutti_world *world;
    tutti_runtime *rt;
    tutti_method m;
    tutti_spec *method_spec;
    tutti_lr_schedule *schedule;
    tutti_plan *plan;
    tutti_lane *lane;
    tutti_share share;
    int64_t *batch_of;               /* workers; declared, if the shares are uneven; share.batch_of */
    tutti_engine_options options;    /* texts owned: see text[] */
    char *text[4];                   /* method, optimizer, lr_schedule, fingerprint */

    tutti_layout layout;
    tutti_tensor *tensors;
    tutti_piece *pieces;
    tutti_param *params;             /* names owned by `tensors` */
    char *names;
    float *kept;                     /* n: x while the agreed model is shown; only where replicas differ */

    tutti_engine_stage stage;
    tutti_pass pass;                 /* the current one */
    int64_t passes;                  /* of this step, mine */
    bool exchanged;                  /* a pass of this step exchanges its pieces: gradients are looked at there, and the same on all workers afterwards */
    tutti_engine_piece *piece_state; /* n_pieces */
    int next_piece;                  /* the only one that may start next */
    bool *announced;                 /* n_tensors, in this pass */
    int *piece_of_tensor;
    double loss_sum;
    bool values_changed;             /* x differs from the client's copies */
    bool told_unused;

    struct { uint64_t step, samples, skipped; } progress; /* declared: survives a resume */

    tutti_engine_clock clock;
    tutti_trace_event *trace;
    size_t n_trace;
    int64_t *unit_began_ns;          /* 2 x n_units: forward, backward */
    tutti_event_record *events;
    int n_events, room_events;
};

/* layout.c: tensors get their places, pieces are cut. */
tutti_status tutti_engine_place(tutti_engine *e, const tutti_param *params, int n, tutti_error *err);
tutti_status tutti_engine_cut(tutti_engine *e, tutti_error *err);
/* fingerprint.c */
tutti_status tutti_engine_compare(tutti_engine *e, tutti_error *err);
/* clock.c */
void tutti_engine_clock_start(tutti_engine *e);
void tutti_engine_clock_stop(tutti_engine *e);
tutti_doing tutti_engine_expose(tutti_engine *e); /* EXPOSED, unless the client is aside (OUTSIDE, REPORT) and stays so; gives what it was */
void tutti_engine_comm(tutti_engine *e, const char *what, int thread, int64_t begin_ns, int64_t end_ns); /* counts and traces it, unless the client is aside or the clock stands */
void tutti_engine_mark(tutti_engine *e, const char *what, int index, int thread, int64_t begin_ns, int64_t end_ns);
#endif
