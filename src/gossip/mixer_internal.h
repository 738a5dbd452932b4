/* mixer_internal.h: what mixer.c, mixer_codec.c and averager.c share: a mixer, one of its rounds,
   and its lost neighbours. */
#ifndef TUTTI_MIXER_INTERNAL_H
#define TUTTI_MIXER_INTERNAL_H
#include "../engine/engine_facility.h"
#include "engine/lane.h"
#include "tutti/method/gossip.h"

typedef struct tutti_mixer_codec tutti_mixer_codec;
typedef struct tutti_mixer_cross tutti_mixer_cross;

typedef struct tutti_mixer_round {
    uint64_t k, epoch;       /* epoch: of the step that requested it */
    const float *u;
    float *x;
    int n_in, n_out;
    double self;
    tutti_mass *mass;        /* NULL: the receiver's weights */
    bool untimed;            /* on a service's thread: it ends when the worker closes */
} tutti_mixer_round;

struct tutti_mixer {
    tutti_method *m;
    tutti_graph *graph;
    bool ahead;              /* a started round runs concurrently with the client, if that pays */
    bool sums;               /* a round is an all-reduce */
    bool by_tensor;          /* a message is a tensor, else a chunk of equal size */
    int team;                /* workers of a member of the graph (a node group) */
    int degree;              /* neighbours at most; 0 if a round is an all-reduce */
    tutti_leaders leaders;   /* of node groups, and of all-reduce rounds; of the thread that runs
                                the round */
    size_t chunk;            /* elements of a message at most */
    float *room;             /* SLOTS x degree x chunk; without a codec */
    tutti_request *requests; /* SLOTS x 2 degree: receives, then sends */
    tutti_request **wanted;  /* 2 degree */
    int *in, *out;           /* of the current round, degree + 1 each */
    double *w_in, *w_out;
    tutti_mass *share;       /* for each out */
    const float **term;      /* degree + 1, by rank */
    float *weight;
    int terms;
    bool *lost;              /* workers: excluded from now on. Of the thread that runs the round;
                                NULL: a loss ends the run */
    int events, losses;      /* the world's events that were processed, and the losses among
                                them */
    int reported;            /* losses that the client has processed */
    tutti_lane *lane;        /* NULL: a started round runs in wait */
    tutti_job job;
    tutti_mixer_round started; /* client thread's; the job's between start and wait */
    tutti_mass moving;       /* push-sum weight of the started round: the job's own */
    tutti_mass *mass;        /* receives it when the round is over; NULL: it is dropped */
    bool pending;            /* started and not waited for */
    bool arrived;            /* the round is over, though not waited for */
    tutti_mixer_codec *codec; /* NULL: models travel as they are */
    tutti_mixer_cross *cross; /* NULL: received models are not kept, and nothing is returned */
    tutti_mixer_round last; /* the last round that began */
};

bool tutti_mixer_is_lost(const tutti_mixer *mixer, int rank);
/* Waits until all messages of r have ended, in-neighbours' first. Messages of lost neighbours are
   removed: `posted` is false then. */
tutti_status tutti_mixer_await(tutti_mixer *mixer, const tutti_mixer_round *r,
                               tutti_request *request, tutti_error *err);

/* tutti_mix on a service's thread: its time is not charged to the client. */
tutti_status tutti_mixer_mix_aside(tutti_mixer *mixer, uint64_t k, const float *u, float *x,
                                   tutti_error *err);
/* Emits events about what losses have done to the graph from round k on. Client thread; no round
   is being made. */
tutti_status tutti_mixer_tell(tutti_mixer *mixer, uint64_t k, tutti_error *err);

/* ---- mixer_codec.c ---- */
/* Does nothing without a codec: mixer->codec stays NULL. */
tutti_status tutti_mixer_codec_declare(tutti_mixer *mixer, tutti_plan *plan, double gamma,
                                       tutti_error *err);
tutti_status tutti_mixer_codec_open(tutti_mixer *mixer, tutti_error *err);
void tutti_mixer_codec_close(tutti_mixer_codec *c); /* NULL-safe */
/* x := u + gamma sum_j W_ij (public copy of j - own), all copies brought forward to u first. On the
   thread that runs the round. */
tutti_status tutti_mixer_codec_round(tutti_mixer *mixer, const tutti_mixer_round *r,
                                     tutti_error *err);
void tutti_mixer_codec_cancel(tutti_mixer *mixer);
/* All copies, this worker's and its neighbours', become x. Between rounds. */
void tutti_mixer_codec_restart(tutti_mixer *mixer, const float *x);
/* The current public copy of the a-th in-neighbour. */
float *tutti_mixer_codec_copy(const tutti_mixer *mixer, int a);
/* Vectors of the model's size that go through the same codec, with draws of their own, in one
   message. bytes: at most. */
size_t tutti_mixer_codec_bytes(const tutti_mixer *mixer);
/* out := x (n), encoded; x becomes the encoding error. */
tutti_status tutti_mixer_codec_put(const tutti_mixer *mixer, uint64_t k, float *x, uint8_t *out,
                                   size_t *bytes, tutti_error *err);
/* y (n) += a * the vector that worker `from` has sent. */
tutti_status tutti_mixer_codec_get(const tutti_mixer *mixer, uint64_t k, int from,
                                   const uint8_t *in, size_t bytes, float a, float *y,
                                   tutti_error *err);

/* ---- mixer_cross.c: what is returned to neighbours, if asked for; else mixer->cross stays NULL
   ---- */
tutti_status tutti_mixer_cross_declare(tutti_mixer *mixer, const char *graph, tutti_plan *plan,
                                       tutti_error *err);
void tutti_mixer_cross_close(tutti_mixer *mixer); /* NULL-safe */
/* n: receives the model of the a-th in-neighbour, without a codec. */
float *tutti_mixer_cross_room(const tutti_mixer *mixer, int a);
#endif
