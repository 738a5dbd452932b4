/* hermes.h: the state of method hermes and the calls between its two files: hermes.c (the method,
   and what a worker does) and hermes_server.c (what the server does). Only these two include it.
   The symbols DSS, MBS, Q, z, alpha and w are defined at the top of hermes.c. */
#ifndef TUTTI_HERMES_H
#define TUTTI_HERMES_H
#include "hermes_plan.h"
#include "tutti/method/server.h"

typedef struct hermes {
    /* options; hermes_options has their units */
    int push;               /* ZSCORE, ALWAYS */
    int merge;              /* INVERSE_LOSS, MEAN */
    int resize;             /* IQR, OFF */
    int wire;               /* FP16, FP32 */
    double alpha, beta;
    int64_t lambda, window, local_passes, chunk, chunk_most, minibatch, patience, late_after;

    tutti_server *server;
    float *start;           /* [n]: with wire=fp16 the first model, w0; else NULL. Declared */
    float *model;           /* [n]: with wire=fp16, at the server: scratch for the pushed model and
                               for the answer. Declared */

    /* ---- the worker: client thread; `mine`, `round` and the arrays are declared ---- */
    double *losses;         /* [window]: Q, the newest last */
    struct {
        int64_t losses;     /* number of losses in Q */
        int64_t since;      /* rounds since this worker's last push */
        int64_t relaxed;    /* times that alpha was multiplied by 1 - beta */
        int64_t rounds;     /* rounds of this worker */
        int64_t pushes;     /* pushes of this worker */
        int64_t updates;    /* updates of its optimiser */
    } mine;
    struct {
        int64_t batches;    /* DSS_i in batches of the run; 0: not set yet, the option's */
        int64_t minibatch;  /* MBS_i, samples */
        int64_t taken;      /* batches taken so far in this round */
        int64_t computed_ns; /* time computed so far in this round */
    } round;
    int64_t *batch;         /* [batches][3]: epoch, position and samples of each batch taken */
    bool checked;           /* `round` and `batch` were checked: a checkpoint may have set them */
    int64_t counted_ns;     /* tutti_computed_ns when the last step ended; 0 in a new process */
    struct {                /* where the next pass of this step begins */
        int64_t pass;       /* number of the pass over the chunk, from 0 on */
        int64_t batch;      /* index of the batch in the chunk */
        int64_t at;         /* index of the sample in that batch */
    } next;

    /* ---- the server: service thread; all declared, except grants, turn, queue, first, waiting
       and warned. turn is 0 and the queue empty when the run is quiescent ---- */
    struct {
        double loss;        /* loss of w; until it is reported, the mean that the merge implies */
        double median;      /* T, the median round of the workers, in seconds */
        double least;       /* the least loss of w so far; 0: none */
        int64_t merges;     /* number of pushes merged */
        int64_t reports;    /* number of round times reported */
        int64_t reported;   /* value of `reports` when `median` was computed; 0: never */
        int64_t since_least; /* pushes since the least loss */
    } global;
    double *round_seconds;  /* [workers]: each worker's last round; 0: none yet, or lost */
    int64_t *size;          /* [workers][2]: DSS in batches, MBS in samples; 0: not set yet */
    double *sorted;         /* [workers]: scratch */
    double *push_seconds;   /* [workers]: each worker's last push; 0: none yet, or lost */
    struct hermes_grant {
        int64_t began_ns;   /* when the worker was last allowed to push */
        bool late;          /* this push is late: another worker may push concurrently */
    } *grants;              /* [workers] */
    int turn;               /* 1 + rank of the worker that may push and is not late; 0: none */
    tutti_header *queue;    /* [workers]: ring buffer of MAJOR requests that wait for a grant */
    int first, waiting;     /* index of the first request in `queue`; number of requests */
    bool warned;            /* the event `never-pushed` was emitted (set by the first worker) */
} hermes;
enum { GO_ON, ENOUGH };          /* the answer to LOSS; ENOUGH: the run ends */
/* Kinds of requests, with the double that header.b carries:
     MINOR   a round is over, and the worker keeps its model: seconds of the round
     MAJOR   a round is over, and the worker asks to push: seconds of the round
     PUSH    the worker's model: its loss
     LOSS    the loss of the model that answered the push
   The answer to MINOR and MAJOR has the size of the next round (tutti_hermes_encode; 0:
   unchanged). The answer to MAJOR comes when the worker may push. */
enum { MINOR, MAJOR, PUSH, LOSS };
enum { ZSCORE, ALWAYS };
enum { INVERSE_LOSS, MEAN };
enum { IQR, OFF };
enum { FP16, FP32 };
static const double least_loss = 1e-12; /* a smaller loss counts as this */

/* ---- hermes.c ---- */

/* Returns the limits of a round's size in this run. */
hermes_bounds tutti_hermes_bounds(const tutti_method *m);
/* Returns the batches of a worker's first rounds: the option, or a tenth of the run if that is
   less than 2500 samples. No worker pushes before its third round, few do before the fourth, and
   alpha is relaxed from the fifth on. So in a run of fewer than ten rounds no worker may push. */
int64_t tutti_hermes_first_batches(const tutti_method *m);

/* ---- hermes_server.c: hooks of tutti_server_setup; service thread ---- */

/* Answers or queues a request. TUTTI_ERR_CORRUPT: the worker may not send it now. */
tutti_status tutti_hermes_rule(tutti_method *m, const tutti_server_request *r, tutti_error *err);
/* The push in progress is late: allows the next worker to push. */
tutti_status tutti_hermes_due(tutti_method *m, tutti_error *err);
/* Removes a lost worker from the queue and the times. */
tutti_status tutti_hermes_lose(tutti_method *m, int worker, tutti_error *err);
/* The run() of the service. */
tutti_status tutti_hermes_serve(tutti_method *m, tutti_error *err);
#endif
