/* hermes.h: what hermes.c (the method, and the workers' part) and hermes_server.c (the server's
   part) share. */
#ifndef TUTTI_HERMES_H
#define TUTTI_HERMES_H
#include "hermes_plan.h"
#include "tutti/method/server.h"

typedef struct hermes {
    int push, merge, resize, wire;
    double alpha, beta;
    int64_t lambda, window, local_passes, chunk, chunk_most, minibatch, patience, late_after;
    tutti_server *server;
    float *start;           /* wire=fp16: w0; declared */
    float *model;           /* wire=fp16, at the server: a push's content, and the answer's */

    /* of the worker, used by its client thread; declared */
    double *losses;         /* window: Q, the newest last */
    struct {
        int64_t losses;     /* in Q */
        int64_t since;      /* rounds without a push */
        int64_t relaxed;    /* times that alpha was relaxed */
        int64_t rounds, pushes, updates;
    } mine;
    struct {
        int64_t batches;    /* DSS_i in batches of the run; 0: the option's */
        int64_t minibatch;  /* MBS_i */
        int64_t taken;      /* batches taken so far */
        int64_t computed_ns;
    } round;
    int64_t *batch;         /* 3 for each that was taken: epoch, position, samples */
    bool looked_at;         /* `round` and `batch` were checked; they may be a checkpoint's */
    int64_t counted_ns;     /* of the engine's clock, which restarts in each process */
    struct {
        int64_t pass;       /* over the chunk */
        int64_t batch;      /* of it */
        int64_t at;         /* sample of that */
    } next;                 /* where this step's next pass begins */

    /* of the server, used by its thread; declared, except turn and line: those are empty at
       quiescence */
    struct {
        double loss;        /* of w */
        double median;      /* median of the reported times */
        double least;       /* the least loss so far; 0: none */
        int64_t merges;
        int64_t reports;    /* of times */
        int64_t reported;   /* number of reports at the last median */
        int64_t since_least; /* pushes since the least loss */
    } global;
    double *seconds;        /* workers: of the last round of each; 0: none yet */
    int64_t *size;          /* 2 per worker: batches and mini-batch; 0: the options' */
    double *sorted;         /* workers */
    double *turns;          /* workers: seconds of the last push of each; 0: none yet */
    struct hermes_turn {
        int64_t began_ns;   /* when a worker's push was granted */
        bool late;          /* another worker may push, concurrently with it */
    } *its;                 /* workers */
    int turn;               /* 1 + the worker whose push is being merged; 0: none */
    tutti_header *line;     /* workers: a ring buffer of those that wait to push, */
    int first, waiting;     /* where it begins, and its length */
    bool warned;            /* the event `never-pushed` was emitted */
} hermes;
enum { GO_ON, ENOUGH };          /* kinds of answers to LOSS */
/* kinds of requests. b: MINOR, and MAJOR (which asks to push): the round's seconds; PUSH, LOSS:
   the loss of the pushed and of the merged model */
enum { MINOR, MAJOR, PUSH, LOSS };
enum { ZSCORE, ALWAYS };
enum { INVERSE_LOSS, MEAN };
enum { IQR, OFF };
enum { FP16, FP32 };
static const double least_loss = 1e-12;

/* ---- hermes.c ---- */
hermes_bounds tutti_hermes_bounds(const tutti_method *m);
/* Batches of a worker's first rounds. No worker pushes before the third round, few do before the
   fourth, and alpha is relaxed from the fifth on: a run of fewer than ten rounds may end at the
   model that it began with. */
int64_t tutti_hermes_first_batches(const tutti_method *m);

/* ---- hermes_server.c: the server's thread ---- */
tutti_status tutti_hermes_rule(tutti_method *m, const tutti_server_request *r, tutti_error *err);
tutti_status tutti_hermes_due(tutti_method *m, tutti_error *err);
tutti_status tutti_hermes_lose(tutti_method *m, int worker, tutti_error *err);
tutti_status tutti_hermes_serve(tutti_method *m, tutti_error *err);
#endif
