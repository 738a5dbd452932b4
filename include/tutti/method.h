/* method.h: the contract of a published training method.

   What a method sees. All dense parameters of the model are ONE flat float32 vector x[0..n), fixed for the life of the
   engine and ordered as gradients become ready; g is its gradient. A step is one or more passes (forward + backward).
   The client (trainer or PyTorch) calls the engine; the engine calls the hooks below; what a hook leaves NULL is done by the default
   named in its comment.
     client thread: pass, need, done, step, agree        lane thread(s) or client thread: exchange
   x and g belong to the client thread (and to the lane for the range of the piece it is exchanging). Hooks block as they like;
   none allocates. A hook that fails ends the step and with it the run, with its sentence. */
#ifndef TUTTI_METHOD_H
#define TUTTI_METHOD_H
#include "comm.h"
#include "lane.h"
#include "optim.h"
#include "topology.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

typedef struct tutti_tensor {
    const char *name;
    size_t first, count, rows, cols;     /* first: place in x */
    int unit;                            /* layer group: what is needed together */
} tutti_tensor;
/* What is exchanged as one: a range of the flat space. Buckets, partitions, fusion buffers and shard pieces are all pieces.
   Ready when every tensor it meets has its gradient. */
typedef struct tutti_piece {
    int index;                           /* in ready order */
    size_t first, count;
    int first_tensor, tensors;           /* those it meets */
    float *g, *x;                        /* element `first` */
    tutti_group group;                   /* the workers, keyed so that no other piece or step meets it; set by the engine before each exchange */
} tutti_piece;
typedef struct tutti_layout {
    size_t used;                         /* elements of all tensors; they stand back to back */
    size_t n;                            /* padded: a multiple of 64 x workers; padding stays 0 and is not sent */
    const tutti_tensor *tensor; int n_tensors;
    int n_units;
    const tutti_piece *piece; int n_pieces;
} tutti_layout;

typedef struct tutti_pass {              /* the engine fills in the default, the hook changes it */
    int64_t index;                       /* 0, 1, ... within the step */
    int64_t samples;                     /* to compute in this pass; 0: announce zero gradients */
    int64_t divisor;                     /* the gradient wanted: of (sum of the samples' losses) / divisor; 0 with samples 0 */
    uint64_t epoch, position;            /* where in the order of share.h the samples begin */
    bool same_batch;                     /* the previous pass's samples again (SAM, cross-gradients) */
    bool same_values;                    /* x has not changed since the previous pass: prepared weights may be kept */
    bool keep;                           /* add to g instead of replacing it */
    bool exchange;                       /* pieces go to the lane as they become ready; default: in the last pass */
} tutti_pass;

enum {  /* traits: facts the engine and `tutti methods` act on */
    TUTTI_REPLICAS_EQUAL = 1,    /* x equal on all workers after each step: saved once, no averaging at the end */
    TUTTI_OWNS_UPDATE = 2,       /* does not use the run's optimiser */
    TUTTI_GOES_ON = 4            /* survives a lost member */
};

typedef struct tutti_axes { const char *topology, *synchrony, *codec, *schedule, *placement, *update; } tutti_axes; /* DESIGN section 2 */
typedef struct tutti_method tutti_method;
typedef struct tutti_method_ops {
    const char *name, *title, *authors, *family, *sheet;
    int year;
    tutti_axes axes;
    const char *const *constraints;      /* sentences, NULL-ended; NULL: none */
    const tutti_option *options;         /* into self; NULL: none */
    size_t self_bytes;
    unsigned traits;
    /* Declares state, sets m->piece_bytes, m->first_piece_bytes, m->lane_width, and refuses bad combinations. No memory, no messages yet. */
    tutti_status (*declare)(tutti_method *m, tutti_plan *plan, tutti_error *err);
    tutti_status (*open)(tutti_method *m, tutti_error *err);   /* all members; x is rank 0's on all; may communicate */
    void (*close)(tutti_method *m);                            /* NULL-safe, half-built-safe */
    /* Before every pass. Default: the configured passes. */
    tutti_status (*pass)(tutti_method *m, tutti_pass *p, tutti_error *err);
    /* Before unit u computes / after it has; backward likewise. Default: nothing. */
    tutti_status (*need)(tutti_method *m, int unit, bool backward, tutti_error *err);
    tutti_status (*done)(tutti_method *m, int unit, bool backward, tutti_error *err);
    /* Makes p->g the gradient to apply. NULL: pieces are not exchanged (local, gossip); nor are they in a step whose passes have `exchange` off. */
    tutti_status (*exchange)(tutti_method *m, tutti_piece *p, tutti_error *err);
    /* After the last pass and all exchanges. Default: tutti_base_step. */
    tutti_status (*step)(tutti_method *m, tutti_error *err);
    /* Leave the same model in x of all workers (all call it): at the end, before an evaluation or an export. Must not change what training
       goes on from when it is not the end: the engine keeps x for it. Default: mean of x unless REPLICAS_EQUAL. */
    tutti_status (*agree)(tutti_method *m, tutti_error *err);
} tutti_method_ops;

struct tutti_method {            /* written by the engine unless noted; read by hooks */
    const tutti_method_ops *ops;
    void *self;                  /* self_bytes, options filled in */
    tutti_world *world; tutti_runtime *rt; tutti_device *device;
    const tutti_layout *layout;
    size_t n;                    /* = layout->n */
    float *x, *g;                /* n each */
    tutti_group all;             /* the workers; client thread's copy */
    int rank, workers;           /* rank: my index in all */
    tutti_optim *optim;          /* NULL under TUTTI_OWNS_UPDATE */
    int lane_width;              /* declare() may set; default 1 */
    size_t piece_bytes, first_piece_bytes; /* declare() may set; default 25 MiB, 1 MiB */
    tutti_rng rng;               /* stream = rank + 1, step = step: per worker; set stream 0 for shared draws */
    uint64_t step, epoch;        /* steps done; epoch of this step's samples */
    int64_t samples;             /* mine in this step */
    double weight;               /* my samples / all samples of this step */
    double loss;                 /* mean over my samples of this step so far */
    double lr;                   /* of this step */
    void *engine;                /* engine's own */
};

extern const tutti_method_ops *const tutti_methods[];             /* NULL-ended registry (src/method/registry.c) */
const tutti_method_ops *tutti_method_find(const char *name);

/* ---- what hooks may ask of the engine ---- */
tutti_rate tutti_rate_now(const tutti_method *m);                 /* lr, scale 1, t = step + 1 */
tutti_status tutti_base_step(tutti_method *m, tutti_error *err);  /* vote on non-finite gradients, clip, update */
tutti_status tutti_average(tutti_method *m, float *x, tutti_error *err); /* x := mean over the workers, plain fp32, blocks; client thread */
/* Neighbour averaging over a graph spec, shared by all gossip methods. declare: within declare(); refuses the graph; its receive buffers become state.
   open: within open(); ahead: tutti_mix_start gets a thread of its own, unless the model is too small for that to pay or the run has no lanes. */
typedef struct tutti_mixer tutti_mixer;
tutti_status tutti_mixer_declare(tutti_mixer **out, tutti_method *m, tutti_plan *plan, const char *graph, tutti_error *err);
tutti_status tutti_mixer_open(tutti_mixer *mixer, bool ahead, tutti_error *err);
void tutti_mixer_close(tutti_mixer *mixer);                       /* within close(); NULL-safe; waits for its thread */
const tutti_graph *tutti_mixer_graph(const tutti_mixer *mixer);
/* x := W_ii u + sum_j W_ij u_j with W of round k (x may be u; otherwise apart). Summed as a collective would: products rounded, then the tree over ascending rank, so
   the complete graph gives tutti_average's bits. Blocks for the neighbours of round k only. mass: NULL, or push-sum's weight, which travels and is mixed alike.
   All members mix the same rounds in the same order. Client thread. */
tutti_status tutti_mix(tutti_mixer *mixer, uint64_t k, const float *u, float *x, double *mass, tutti_error *err);
/* The same in two halves: between them u stays as it is and x is the mixer's. One at a time. Wait gives OK at once if nothing was started. */
void tutti_mix_start(tutti_mixer *mixer, uint64_t k, const float *u, float *x);
tutti_status tutti_mix_wait(tutti_mixer *mixer, tutti_error *err);
void tutti_event(tutti_method *m, const char *kind, const char *format, ...) __attribute__((format(printf, 3, 4)));
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
