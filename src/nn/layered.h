/* layered.h: private header of what the backends have in common that compute a block layer by layer
   (sequence_run.h, image_run.h, which include it): plans, and the memory of a run. Implemented in
   layered.c.

   A *plan* is a backend's primitives for one number of samples. The plan of the full block is made
   at open. The plan of evaluation runs, which always have eval_samples samples, and those of a few
   other numbers are made at first use and kept.

   Buffers are planned twice: for training with the full block, and for evaluation runs. Smaller
   blocks use the buffers of the full block. A buffer's lifetime is from one *moment* to another;
   moments number the operations of a run. */
#ifndef TUTTI_NN_LAYERED_H
#define TUTTI_NN_LAYERED_H
#include "onednn_internal.h"

enum {
    NN_NONE = -1, /* no buffer */
    NN_PLANS = 8  /* plans kept in addition to those of the full block and of evaluations */
};

typedef struct nn_plan {
    int64_t samples;
    uint64_t last_used;          /* value of nn_layered.clock; 0: no plan is here */
    void *ops;                   /* the backend's primitives */
} nn_plan;

/* The buffers of training, or of evaluation. */
typedef struct nn_buffer_table {
    bool made;                   /* offsets are valid; false: the buffers must be planned again,
                                    since a primitive needs more than before */
    int count, capacity;
    nn_buffer *buffer;           /* [capacity], owned; count are declared */
    size_t end;                  /* bytes of the arena that they need */
    int backward_begin;          /* training: the first moment of backward */
} nn_buffer_table;

/* What a backend implements. */
typedef struct nn_layered_ops {
    /* Makes the primitives for p->samples samples and sets p->ops. Sets `made` of the buffer table
       to false if they need more memory than those before. */
    tutti_status (*build)(void *self, nn_plan *p, bool train, tutti_error *err);
    /* Frees p->ops, which may be NULL, or incomplete after a failed build. */
    void (*drop)(void *self, nn_plan *p);
    /* Declares all buffers of training, or of evaluation, with tutti_nn_buffer_new and
       tutti_nn_buffer_extend. */
    void (*lay_out)(void *self, bool train);
    /* Returns the unit whose operation has the moment. NULL: the backend has no stages. */
    int (*unit_of)(const void *self, int moment);
} nn_layered_ops;

typedef struct nn_layered {
    /* Set by the backend before tutti_nn_layered_open. */
    const nn_layered_ops *ops;
    void *self;                  /* the backend; given to ops */
    dn_core *core;
    int64_t block;               /* samples of the full block */
    int64_t eval_samples;        /* samples of an evaluation run */
    nn_buffer_table *tables[2];  /* [train] */
    bool stage;                  /* training's buffers that live from forward to backward are not in
                                    the arena; nn_run.kept has their memory */

    nn_plan full, evaluation, others[NN_PLANS];
    nn_plan *plan;               /* of this run */
    uint64_t clock;              /* counts the uses of plans */
    nn_buffer_table *table;      /* of this run */
    char *arena;
    size_t arena_bytes;
    nn_kept *kept;               /* stage: [kept_count], the buffers outside the arena */
    int kept_count;
    void *const *kept_memory;    /* stage: nn_run.kept of this run */
} nn_layered;

/* Declares a buffer of `bytes` bytes that is needed at `moment`, and returns its index; NN_NONE if
   bytes is 0. */
int tutti_nn_buffer_new(nn_buffer_table *t, size_t bytes, int moment);
/* Extends a buffer's lifetime to `moment` at least. Does nothing for NN_NONE. */
void tutti_nn_buffer_extend(nn_buffer_table *t, int buffer, int moment);
/* Returns the address of a buffer of this run; NULL for NN_NONE. */
static inline void *nn_buffer_address(const nn_layered *l, int buffer)
{
    const nn_buffer *b = buffer == NN_NONE ? NULL : &l->table->buffer[buffer];
    if (b == NULL)
        return NULL;
    return b->kept > 0 ? l->kept_memory[b->kept - 1] : l->arena + b->offset;
}

/* Opens l->core with the settings, and makes plan and memory of the full block. All members but
   those that the backend sets are zero before. buffers: the most that lay_out declares. After a
   failure tutti_nn_layered_close must be called. */
tutti_status tutti_nn_layered_open(nn_layered *l, const nn_settings *settings, size_t buffers,
                                   tutti_error *err);
/* Frees plans (with ops->drop), memory and the core. The backend must still be able to drop. */
void tutti_nn_layered_close(nn_layered *l);
/* Makes plan and memory ready for a run of `samples` samples; *filled: the samples that it
   computes, padding included. Allocates only for a number of samples that has no plan. */
tutti_status tutti_nn_layered_begin(nn_layered *l, int64_t samples, bool train, int64_t *filled,
                                    tutti_error *err);
/* Shrinks the arena to what training needs, after an evaluation. */
void tutti_nn_layered_evaluated(nn_layered *l);
/* Returns the bytes of arena, buffer tables and copies of weights. */
size_t tutti_nn_layered_bytes(const nn_layered *l);
#endif
