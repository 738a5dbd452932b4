/* stages.h: a model cut into stages, for pipelines. A stage is a contiguous range of the model's
   units (nn.h) as a network of its own. What leaves one stage enters the next, and its slope comes
   back. Several micro-batches may be between forward and backward, each in a slot.

   Whatever the cuts, and in whatever order slots take their turns, each micro-batch has the loss
   and the gradients of one pass through the whole network, to the bit.

   A model is cut only where nothing but one tensor passes. So branches of images and of tokens are
   joined before a cut; plain convolutions, which run in tiles through all of their layers, are on
   one stage; and of a model with tied matrices nothing is cut. tutti_nn_cut tells it in a sentence.
   With segments that are computed again (tutti_layer) stages begin with a norm or an lstm, and all
   of a stage but what enters is computed again, of the last stage all but its last segment. */
#ifndef TUTTI_STAGES_H
#define TUTTI_STAGES_H
#include "nn.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* ---- where to cut ---- */
typedef struct tutti_nn_unit {
    bool cut;                    /* a stage may begin here; of unit 0 true */
    double forward, backward;    /* operations a sample, as in tutti_nn_flops */
    size_t values;               /* of its parameters */
    int param, params;           /* the first of them, how many */
    /* Floats a sample that enter a stage that begins here; 0 where none can. */
    size_t enters;
} tutti_nn_unit;
/* room, *count as for tutti_nn_params. TUTTI_ERR_USAGE: a network that has no stages, one of images
   with batch norms or branches, or a quadratic. */
tutti_status tutti_nn_units(const char *model, const tutti_nn_task *task, tutti_nn_unit *units,
                            int room, int *count, tutti_error *err);
/* TUTTI_OK: a stage may begin at that unit; else TUTTI_ERR_USAGE and why not. */
tutti_status tutti_nn_cut(const char *model, const tutti_nn_task *task, int unit,
                          tutti_error *err);

/* ---- memory for activations: one store for all slots of a stage, or of several ---- */
/* Each thing that forward leaves for backward is taken when its unit's forward begins and given
   back when backward of the last unit that reads it is over. What only one call needs is no part of
   it: the stage has that once, whatever its slots (tutti_nn_stage_bytes). What was given back is
   kept for the next of its size, and freed if the bound asks for it. Used by one thread at a
   time. */
typedef struct tutti_nn_store tutti_nn_store;
typedef struct tutti_nn_store_figures {
    size_t bound;                /* 0: none */
    size_t used, used_most;      /* bytes that slots have, now and at most */
    size_t held_most;            /* and those kept for the next; never above the bound */
} tutti_nn_store_figures;
tutti_status tutti_nn_store_open(tutti_nn_store **out, size_t bound, tutti_error *err);
/* After all stages that use it. */
void tutti_nn_store_close(tutti_nn_store *store);
void tutti_nn_store_figures_of(const tutti_nn_store *store, tutti_nn_store_figures *figures);

/* ---- a stage ---- */
typedef struct tutti_nn_stage tutti_nn_stage;
enum { TUTTI_NN_SLOTS_MOST = 256 };
typedef struct tutti_nn_stage_options {
    /* backend must be onednn. batch: samples of a micro-batch at most; a micro-batch is no more
       than a block (nn.h: 64 samples, or windows of 1024 tokens). running and by_unit are not
       used. */
    tutti_nn_options nn;
    int first, end;              /* its units: [first, end) */
    int slots;                   /* 1 to TUTTI_NN_SLOTS_MOST */
    tutti_nn_store *store;       /* kept */
} tutti_nn_stage_options;
/* TUTTI_ERR_USAGE: a range that cannot be cut so, and why. */
tutti_status tutti_nn_stage_open(tutti_nn_stage **out, const char *model, const tutti_nn_task *task,
                                 const tutti_nn_stage_options *options, tutti_error *err);
void tutti_nn_stage_close(tutti_nn_stage *stage);

/* Floats a sample that enter and leave; 0: it begins with samples, it ends with the loss. */
size_t tutti_nn_stage_enters(const tutti_nn_stage *stage);
size_t tutti_nn_stage_leaves(const tutti_nn_stage *stage);
/* Bytes that a slot takes from the store for `unit`'s forward, of the whole model's units, and
   those that backward of it gives back. A slot's samples are with its first unit. */
void tutti_nn_stage_unit_bytes(const tutti_nn_stage *stage, int unit, size_t *taken, size_t *given);
/* Beside the store. */
size_t tutti_nn_stage_bytes(const tutti_nn_stage *stage);

/* A micro-batch, in the form that the network takes (tutti_nn_pass, _pass_tokens, _pass_rows). The
   first stage reads what goes in, the last one the labels (of tokens `next`); others read neither.
   seed, first: as for tutti_nn_draw. */
typedef struct tutti_nn_samples {
    int64_t count;
    const float *x;
    const uint8_t *labels;
    const uint32_t *tokens, *next, *rows;
    uint64_t seed, first;
} tutti_nn_samples;

/* Forward of a micro-batch in a slot that is free. in: what left the stage before; out: where what
   leaves goes; each count x floats, NULL at the ends of the model. values[k]: of the whole model's
   params[k]; only those of this stage's units are read, and they must stay until the slot's
   backward is over: so it sees what its forward saw. Samples and `in` may be changed afterwards.

   TUTTI_ERR_MEMORY: the store's bound. TUTTI_ERR_CORRUPT: as of a pass. After any failure the slot
   is free. */
tutti_status tutti_nn_stage_forward(tutti_nn_stage *stage, int slot,
                                    const tutti_nn_samples *samples, const float *in,
                                    const float *const *values, float *out, tutti_error *err);

/* Backward of what is in the slot. slope: of what left, NULL in the last stage; back: where the
   slope of what entered goes, NULL in the first. gradients[k]: of the whole model's params[k],
   those of this stage written, or added to with `add`. divisor, *loss_sum: as of a pass, and of the
   last stage; of others the loss is 0. The slot is free afterwards, whatever happens. */
tutti_status tutti_nn_stage_backward(tutti_nn_stage *stage, int slot, const float *slope,
                                     double divisor, bool add, float *const *gradients, float *back,
                                     double *loss_sum, tutti_error *err);

/* The same, unit by unit, for whoever has something else to do between units. Begin is as forward
   and backward above and computes the first unit; go_on computes the next. Convolutions, which run
   in tiles through all of their layers, count as one. *over: that was the last.

   Until it is over nothing else of the stage may begin: of two that are to be under way at a time
   each is a stage of its own, which may have one store. `out`, slope, gradients (the array as well)
   and back must stay until then; samples and `in` for begin alone. After a failure the slot is
   free. */
tutti_status tutti_nn_stage_begin_forward(tutti_nn_stage *stage, int slot,
                                          const tutti_nn_samples *samples, const float *in,
                                          const float *const *values, float *out, bool *over,
                                          tutti_error *err);
tutti_status tutti_nn_stage_begin_backward(tutti_nn_stage *stage, int slot, const float *slope,
                                           double divisor, bool add, float *const *gradients,
                                           float *back, bool *over, double *loss_sum,
                                           tutti_error *err);
tutti_status tutti_nn_stage_go_on(tutti_nn_stage *stage, int slot, bool *over, tutti_error *err);

/* Gives back what the slot has, without a backward. A free one stays free. */
void tutti_nn_stage_drop(tutti_nn_stage *stage, int slot);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
