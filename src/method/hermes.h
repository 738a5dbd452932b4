/* hermes.h: what hermes.c (the method, and the workers' part) and hermes_server.c (the server's)
   share. */
#ifndef TUTTI_HERMES_H
#define TUTTI_HERMES_H
#include "hermes_plan.h"
#include "tutti/server.h"

typedef struct hermes {
    int push, merge, resize, wire;
    double alpha, beta;
    int64_t lambda, window, local_passes, chunk, chunk_most, minibatch, patience, late_after;
    tutti_server *server;
    float *start;           /* wire=fp16: w0; declared */
    float *model;           /* wire=fp16, at the server: what a push says, and what is answered */

    /* the worker's, of its client's thread; declared */
    double *losses;         /* window: Q, the newest last */
    struct {
        int64_t losses;     /* in Q */
        int64_t since;      /* rounds without a push */
        int64_t relaxed;    /* times that alpha was */
        int64_t rounds, pushes, updates;
    } mine;
    struct {
        int64_t batches;    /* DSS_i in batches of the run; 0: the option's */
        int64_t minibatch;  /* MBS_i */
        int64_t taken;      /* batches that it has */
        int64_t computed_ns;
    } round;
    int64_t *batch;         /* 3 for each that was taken: epoch, position, samples */
    bool looked_at;         /* `round` and `batch`, which may be a checkpoint's */
    int64_t counted_ns;     /* of the engine's clock, which begins anew in each process */
    struct {
        int64_t pass;       /* over the chunk */
        int64_t batch;      /* of it */
        int64_t at;         /* sample of that */
    } next;                 /* what this step's next pass is over */

    /* the server's, of its thread; declared, but for turn and the line: empty when all is quiet */
    struct {
        double loss;        /* of w */
        double median;      /* of the reports of times */
        double least;       /* the least loss so far; 0: none */
        int64_t merges;
        int64_t reports;    /* of times */
        int64_t reported;   /* how many of them there were at the last median */
        int64_t since_least; /* pushes since the least loss */
    } global;
    double *seconds;        /* workers: of the last round of each; 0: none yet */
    int64_t *size;          /* 2 a worker: batches and mini-batch; 0: the options' */
    double *sorted;         /* workers */
    double *turns;          /* workers: seconds of the last turn of each; 0: none yet */
    struct hermes_turn {
        int64_t began_ns;   /* of a worker's turn */
        bool late;          /* others have the turn, and it goes on beside them */
    } *its;                 /* workers */
    int turn;               /* 1 + the worker whose push is being merged; 0: nobody's */
    tutti_note *line;       /* workers: a ring of those that wait for the turn, */
    int first, waiting;     /* where it begins, and how many they are */
    bool said;              /* that nobody has pushed */
} hermes;
enum { GO_ON, ENOUGH };          /* kinds of answers to LOSS */
/* kinds of requests. b: MINOR, MAJOR (and wants the turn): the round's seconds; PUSH, LOSS: the
   loss of the pushed and of the merged model */
enum { MINOR, MAJOR, PUSH, LOSS };
enum { ZSCORE, ALWAYS };
enum { INVERSE_LOSS, MEAN };
enum { IQR, OFF };
enum { FP16, FP32 };
static const double least_loss = 1e-12;

/* ---- hermes.c ---- */
hermes_bounds tutti_hermes_bounds(const tutti_method *m);
/* Batches of a worker's first rounds. Nobody pushes before the third round, few before the fourth,
   and alpha gives way from the fifth on: a run of fewer rounds than ten may end at the model that
   it began with. */
int64_t tutti_hermes_first_batches(const tutti_method *m);

/* ---- hermes_server.c: the server's thread ---- */
tutti_status tutti_hermes_rule(tutti_method *m, const tutti_server_request *r, tutti_error *err);
tutti_status tutti_hermes_due(tutti_method *m, tutti_error *err);
tutti_status tutti_hermes_lose(tutti_method *m, int worker, tutti_error *err);
tutti_status tutti_hermes_serve(tutti_method *m, tutti_error *err);
#endif
