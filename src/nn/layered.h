/* layered.h: what the backends that take whole blocks layer by layer have in common
   (sequence_run.c, image_run.c): their plans, the memory of a run, and the life of both.

   A *plan* is a backend's primitives for one number of samples. That of the full block is made at
   open. Those of evaluations, which are always filled up to a piece, and of a few other numbers are
   made at first use, and kept. Training is laid out for the full block, evaluation for a piece;
   whatever runs takes the buffers of its kind. */
#ifndef TUTTI_NN_LAYERED_H
#define TUTTI_NN_LAYERED_H
#include "onednn_internal.h"

enum { NN_NONE = -1, NN_PLANS = 8 };

typedef struct nn_plan {
    int64_t samples;
    uint64_t used;               /* of the clock; 0: an empty place */
    void *ops;                   /* the backend's */
} nn_plan;

/* The buffers of training or of evaluation. */
typedef struct nn_lives {
    bool made;                   /* false: must be laid out again, as a primitive needs more */
    int count, room;
    nn_buffer *buffer;
    size_t end;
    int turn;                    /* the first moment of backward; of training */
} nn_lives;

typedef struct nn_layers {
    /* Sets p->ops to primitives for p->samples. Where they need more than those before, made =
       false. */
    tutti_status (*build)(void *self, nn_plan *p, bool train, tutti_error *err);
    /* Frees the ops; also those that a failed build has left, or none. */
    void (*drop)(void *self, nn_plan *p);
    /* Declares all buffers of a run, by tutti_nn_life and tutti_nn_touch. */
    void (*lay_out)(void *self, bool train);
    /* The unit of a moment. NULL: no stages. */
    int (*unit_of)(const void *self, int moment);
} nn_layers;

typedef struct nn_layered {
    const nn_layers *ops;
    void *self;                  /* the backend */
    dn_core *core;
    int64_t block, piece;        /* samples of the full block, of a run of an evaluation */
    nn_plan full, evaluation, others[NN_PLANS], *plan; /* plan: of this run */
    uint64_t clock;
    nn_lives *lives[2], *now;    /* of evaluation, of training; of this run */
    char *arena;
    size_t arena_bytes;
    /* For a stage: training's buffers that live from forward to backward are not part of the
       arena. */
    bool stage;
    nn_kept *kept;
    int kept_count;
    void *const *held;           /* nn_run.kept */
} nn_layered;

/* A buffer whose life begins at a moment: its index, NN_NONE for no bytes. */
int tutti_nn_life(nn_lives *l, size_t bytes, int moment);
/* It lives until this moment at least. */
void tutti_nn_touch(nn_lives *l, int buffer, int moment);
static inline void *nn_place_of(const nn_layered *l, int buffer)
{
    const nn_buffer *b = buffer == NN_NONE ? NULL : &l->now->buffer[buffer];
    if (b == NULL)
        return NULL;
    return b->kept > 0 ? l->held[b->kept - 1] : l->arena + b->offset;
}

/* ops, self, core, block, piece, lives and stage are set, everything else is zero. Opens the core
   by these settings and makes the full block ready. buffers: at most, of a kind of run.
   tutti_nn_layered_close also after a failure, before the backend gives back what `drop` needs. */
tutti_status tutti_nn_layered_open(nn_layered *l, const nn_settings *settings, size_t buffers,
                                   tutti_error *err);
void tutti_nn_layered_close(nn_layered *l);
/* Prepares plan and memory of a run of `samples` samples; *filled: how many it computes, with
   padding. Allocates only for sizes that are new. */
tutti_status tutti_nn_layered_begin(nn_layered *l, int64_t samples, bool train, int64_t *filled,
                                    tutti_error *err);
void tutti_nn_layered_evaluated(nn_layered *l);
size_t tutti_nn_layered_bytes(const nn_layered *l);
#endif
