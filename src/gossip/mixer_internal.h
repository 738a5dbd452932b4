/* mixer_internal.h: the state of a mixer (tutti/method/gossip.h), which averages a worker's model
   with its neighbours' in a graph, and what its files call in each other. Included by mixer.c,
   mixer_codec.c, mixer_cross.c and averager.c.

   The state belongs to the thread that runs a round, which is the client's, the lane's or a
   service's; no two rounds run at a time. n: elements of the model. */
#ifndef TUTTI_MIXER_INTERNAL_H
#define TUTTI_MIXER_INTERNAL_H
#include "../engine/engine_facility.h"
#include "engine/lane.h"
#include "tutti/method/gossip.h"
#include "collective/leaders.h"

typedef struct tutti_mixer_codec tutti_mixer_codec;
typedef struct tutti_mixer_cross tutti_mixer_cross;

/* A round of averaging: x := the weighted mean of u and the neighbours' u. */
typedef struct tutti_mixer_round {
    uint64_t k;              /* number of the round */
    uint64_t epoch;          /* with a codec: the epoch of the step that has requested the round */
    const float *u;          /* [n] */
    float *x;                /* [n]; may be u */
    int n_in, n_out;         /* numbers of in- and out-neighbours */
    double self;             /* weight of u */
    tutti_mass *mass;        /* push-sum: this worker's push-sum weight; NULL: the graph's weights
                                are the receiver's */
    bool untimed;            /* it runs on a service's thread: its time is not the client's, and it
                                ends when the worker closes */
} tutti_mixer_round;

struct tutti_mixer {
    tutti_method *m;
    tutti_graph *graph;
    bool ahead;              /* a started round may overlap the client's computation, if that
                                pays */
    bool sums;               /* a round is an all-reduce over all workers */
    bool by_tensor;          /* each message is a tensor; else a chunk of equal size */
    int team;                /* workers of a node group, which is one member of the graph; 1:
                                none */
    int degree;              /* the most neighbours; 0 if `sums` */
    tutti_leaders leaders;   /* with node groups, or `sums`: the groups and their leaders */
    size_t chunk;            /* the most elements of a message */
    float *receive;          /* [2][degree][chunk], declared: received messages of two chunks;
                                NULL: with a codec, or `cross` */
    tutti_request *requests; /* [2][2 degree]: of two chunks, the receives and then the sends */
    tutti_request **wanted;  /* [2 degree]: scratch */
    int *in, *out;           /* [degree + 1]: the neighbours of the current round; [n_in], [n_out]
                                used */
    double *w_in, *w_out;    /* likewise: their weights */
    tutti_mass *share;       /* likewise: push-sum weight sent to each out-neighbour */
    const float **term;      /* [terms], capacity degree + 1: the vectors of a chunk's mean, by
                                rank */
    float *weight;           /* likewise their weights */
    int terms;
    bool *lost;              /* [workers]: excluded from rounds; NULL: a loss ends the run */
    int events;              /* number of the world's events that were processed */
    int losses;              /* number of workers in `lost` */
    int reported;            /* of these: losses that tutti_mixer_tell has processed; the
                                client's */
    tutti_lane *lane;        /* runs started rounds; NULL: tutti_mix_wait runs them */
    tutti_job job;
    tutti_mixer_round started; /* the round started last; the job's while it runs, else the
                                  client's */
    tutti_mass moving;       /* the push-sum weight of the started round, likewise */
    tutti_mass *mass;        /* where it goes when the round was waited for; NULL: nowhere */
    bool pending;            /* a round was started and not waited for */
    bool arrived;            /* that round is over */
    tutti_mixer_codec *codec; /* NULL: models are sent uncompressed */
    tutti_mixer_cross *cross; /* NULL: received models are not kept, and nothing is returned to
                                 neighbours */
    tutti_mixer_round last;  /* the round that began last */
};

/* ---- mixer.c ---- */

/* Returns whether `rank` is excluded from rounds because it is lost. */
bool tutti_mixer_is_lost(const tutti_mixer *mixer, int rank);
/* Waits until the n_in + n_out requests of round r, receives first, have ended. Those of
   neighbours that are found to be lost are removed (`posted` is false), and the neighbours are
   excluded. */
tutti_status tutti_mixer_await(tutti_mixer *mixer, const tutti_mixer_round *r,
                               tutti_request *request, tutti_error *err);

/* Makes a round as tutti_mix does, on a service's thread: its time does not count as the
   client's. */
tutti_status tutti_mixer_mix_untimed(tutti_mixer *mixer, uint64_t k, const float *u, float *x,
                                     tutti_error *err);
/* Records events about what new losses have done to the graph from round k on. Client thread,
   while no round is being made. */
tutti_status tutti_mixer_tell(tutti_mixer *mixer, uint64_t k, tutti_error *err);

/* ---- mixer_codec.c: models through the run's codec. "Public copy" of a worker: a copy of its
   model that the worker and its neighbours have, equal to the bit ---- */

/* Within declare(): sets mixer->codec if the run has a codec; else it stays NULL. gamma: the step
   size; 0: derived from the codec. */
tutti_status tutti_mixer_codec_declare(tutti_mixer *mixer, tutti_plan *plan, double gamma,
                                       tutti_error *err);
/* Within open(). Does nothing without a codec. */
tutti_status tutti_mixer_codec_open(tutti_mixer *mixer, tutti_error *err);
void tutti_mixer_codec_close(tutti_mixer_codec *c); /* accepts NULL */
/* Makes a round: brings all public copies forward to u, and sets x := u + gamma sum_j W_ij (public
   copy of j - own public copy), over the neighbours j of this worker i, with the graph's weights
   W. */
tutti_status tutti_mixer_codec_round(tutti_mixer *mixer, const tutti_mixer_round *r,
                                     tutti_error *err);
/* Cancels all messages of a round. */
void tutti_mixer_codec_cancel(tutti_mixer *mixer);
/* Sets all public copies that this worker has, its own and its neighbours', to x [n]. Between
   rounds. */
void tutti_mixer_codec_restart(tutti_mixer *mixer, const float *x);
/* Returns the current public copy [n] of the a-th in-neighbour. */
float *tutti_mixer_codec_copy(const tutti_mixer *mixer, int a);
/* For vectors other than models that are sent through the same codec, with separate random
   numbers, one in each message: returns the most bytes of a message. */
size_t tutti_mixer_codec_bytes(const tutti_mixer *mixer);
/* Encodes x [n] to out, and sets x to the encoding error and *bytes to the bytes written. */
tutti_status tutti_mixer_codec_put(const tutti_mixer *mixer, uint64_t k, float *x, uint8_t *out,
                                   size_t *bytes, tutti_error *err);
/* Adds a times the vector that worker `from` has sent to y [n]. TUTTI_ERR_CORRUPT. */
tutti_status tutti_mixer_codec_get(const tutti_mixer *mixer, uint64_t k, int from,
                                   const uint8_t *in, size_t bytes, float a, float *y,
                                   tutti_error *err);

/* ---- mixer_cross.c: returns to neighbours what is computed from their models
   (docs/methods/saddle.md) ---- */

/* Within declare(), if the method asks for it (tutti_mixer_options.cross): sets mixer->cross. */
tutti_status tutti_mixer_cross_declare(tutti_mixer *mixer, const char *graph, tutti_plan *plan,
                                       tutti_error *err);
/* Frees it. Does nothing if it is NULL. */
void tutti_mixer_cross_close(tutti_mixer *mixer);
/* Returns the buffer [n] that receives the model of the a-th in-neighbour; without a codec. */
float *tutti_mixer_cross_buffer(const tutti_mixer *mixer, int a);
#endif
