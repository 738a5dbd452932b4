/* stages.h: a header of module nn for other modules: a model partitioned into stages, for
   pipelines. Included by train and cli. Implemented in stage.c (stages), stage_net.c (stage
   boundaries) and store.c (memory).

   A stage is a contiguous range of the model's units (nn.h) as a network of its own. The output of
   one stage is the input of the next; the slope of that input (the gradient of the loss with
   respect to it) is sent back. Several micro-batches may be between forward and backward, each in
   a slot of the stage.

   Whatever the partition and the order in which slots are used, each micro-batch has the loss and
   the gradients of one pass through the whole network, to the bit.

   A model can be split only where a single tensor passes:

   - Branches of tokens are joined before a stage boundary.
   - All plain convolutions are in one stage, since a tile runs through all of them.
   - A model with tied matrices cannot be split.

   tutti_nn_cut returns the reason in a sentence. If a model of tokens or frames has segments
   (tutti_layer), each stage but the first begins with a norm or an lstm. Backward of a stage then
   computes all activations again that it reads, except the stage's input; the last stage keeps
   those of its last segment. */
#ifndef TUTTI_STAGES_H
#define TUTTI_STAGES_H
#include "nn/nn.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* ---- possible stage boundaries ---- */
typedef struct tutti_nn_unit {
    bool cut;                    /* a stage may begin at this unit; true for unit 0 */
    double forward, backward;    /* operations of a sample, as in tutti_nn_flops */
    size_t values;               /* of its parameters */
    int param, params;           /* its parameters are [param, param + params) */
    size_t enters;               /* floats of a sample that enter a stage that begins here; 0 if
                                    none can, and for unit 0 */
} tutti_nn_unit;
/* Writes the first `capacity` units of a model; *count: their total number. TUTTI_ERR_USAGE: the
   model cannot have stages (images with batch norms or branches, quadratics). */
tutti_status tutti_nn_units(const char *model, const tutti_nn_task *task, tutti_nn_unit *units,
                            int capacity, int *count, tutti_error *err);
/* Returns TUTTI_OK if a stage may begin at the unit, else TUTTI_ERR_USAGE with the reason. */
tutti_status tutti_nn_cut(const char *model, const tutti_nn_task *task, int unit,
                          tutti_error *err);

/* ---- memory for activations: one store for all slots of one or several stages ---- */
/* A buffer that forward leaves for backward is allocated when its unit's forward begins, and freed
   when backward of the last unit that reads it is over. Scratch memory of a single call is not in
   the store: the stage has it once, whatever the number of slots (tutti_nn_stage_bytes). The store
   keeps freed buffers for the next request of the same size, and gives them back to the system if
   the bound requires it. Used by one thread at a time. */
typedef struct tutti_nn_store tutti_nn_store;
typedef struct tutti_nn_store_figures {
    size_t bound;                /* bytes; 0: none */
    size_t used, used_most;      /* bytes that slots use, now and at the peak */
    size_t held_most;            /* peak with the buffers kept for reuse; at most the bound */
} tutti_nn_store_figures;
tutti_status tutti_nn_store_open(tutti_nn_store **out, size_t bound, tutti_error *err);
/* Closes the store, after all stages that use it have been closed. store may be NULL. */
void tutti_nn_store_close(tutti_nn_store *store);
void tutti_nn_store_figures_of(const tutti_nn_store *store, tutti_nn_store_figures *figures);

/* ---- a stage ---- */
typedef struct tutti_nn_stage tutti_nn_stage;
enum { TUTTI_NN_SLOTS_MOST = 256 };
typedef struct tutti_nn_stage_options {
    tutti_nn_options nn;         /* backend: onednn. batch: most samples of a micro-batch, at most a
                                    block (nn.h: 64 samples, or windows of 1024 tokens). running and
                                    by_unit are not used */
    int first, end;              /* the stage's units are [first, end) */
    int slots;                   /* 1 to TUTTI_NN_SLOTS_MOST */
    tutti_nn_store *store;       /* the pointer is kept */
} tutti_nn_stage_options;
/* Opens a stage of a model. TUTTI_ERR_USAGE: the range is not a possible stage, with the reason;
   invalid options. TUTTI_ERR_MEMORY. *out is NULL on failure. */
tutti_status tutti_nn_stage_open(tutti_nn_stage **out, const char *model, const tutti_nn_task *task,
                                 const tutti_nn_stage_options *options, tutti_error *err);
void tutti_nn_stage_close(tutti_nn_stage *stage); /* stage may be NULL */

/* Return the floats of a sample that enter the stage, or leave it. 0: the stage begins with
   samples, or ends with the loss. */
size_t tutti_nn_stage_enters(const tutti_nn_stage *stage);
size_t tutti_nn_stage_leaves(const tutti_nn_stage *stage);
/* Sets the bytes that a slot allocates in the store for forward of `unit`, an index in the whole
   model, and those that it frees after backward of `unit`. The slot's copy of its samples is
   counted with the stage's first unit. */
void tutti_nn_stage_unit_bytes(const tutti_nn_stage *stage, int unit, size_t *allocated,
                               size_t *freed);
/* Returns the bytes that the stage holds outside the store. */
size_t tutti_nn_stage_bytes(const tutti_nn_stage *stage);

/* Runs forward of a micro-batch in a free slot. in: the previous stage's output, NULL in the first
   stage; out: buffer for the output, NULL in the last stage; each [count][floats of a sample].
   values[k]: of the whole model's parameter k; only those of this stage's units are read. The
   values must not change until backward of the slot is over, so that backward uses the values of
   its forward. The samples and `in` may be changed afterwards.

   TUTTI_ERR_USAGE: the slot is not free, or count is not from 1 to batch. TUTTI_ERR_MEMORY: the
   store's bound. TUTTI_ERR_CORRUPT: as of a pass. If forward has begun and fails, the slot is
   free. */
tutti_status tutti_nn_stage_forward(tutti_nn_stage *stage, int slot,
                                    const tutti_nn_samples *samples, const float *in,
                                    const float *const *values, float *out, tutti_error *err);

/* Runs backward of the slot's micro-batch. slope: of the output, NULL in the last stage; back:
   buffer for the slope of the input, NULL in the first stage. gradients[k]: of the whole model's
   parameter k; those of this stage are written, or added to with `add`. divisor, *loss_sum: as of a
   pass; *loss_sum is 0 except in the last stage. The slot is free afterwards, also if backward has
   failed. TUTTI_ERR_USAGE: the slot has no micro-batch whose forward is over, or the divisor is not
   positive and finite. */
tutti_status tutti_nn_stage_backward(tutti_nn_stage *stage, int slot, const float *slope,
                                     double divisor, bool add, float *const *gradients, float *back,
                                     double *loss_sum, tutti_error *err);

/* Run forward and backward unit by unit, for callers that do other work between units. The
   parameters of begin_forward and begin_backward are those above; they compute the first unit, and
   go_on computes the next. Convolutions, which run in tiles through all of their layers, count as
   one unit. *over: that was the last unit, or the call has failed.

   Until it is over no other forward or backward of the stage may begin: to have two in progress at
   a time use two stages, which may share a store. `out`, slope, gradients (the array of pointers as
   well) and back must stay valid until then; the samples and `in` only during begin_forward. */
tutti_status tutti_nn_stage_begin_forward(tutti_nn_stage *stage, int slot,
                                          const tutti_nn_samples *samples, const float *in,
                                          const float *const *values, float *out, bool *over,
                                          tutti_error *err);
tutti_status tutti_nn_stage_begin_backward(tutti_nn_stage *stage, int slot, const float *slope,
                                           double divisor, bool add, float *const *gradients,
                                           float *back, bool *over, double *loss_sum,
                                           tutti_error *err);
tutti_status tutti_nn_stage_go_on(tutti_nn_stage *stage, int slot, bool *over, tutti_error *err);

/* Frees the slot's memory without a backward. Does nothing if the slot is free. */
void tutti_nn_stage_drop(tutti_nn_stage *stage, int slot);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
