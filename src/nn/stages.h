/* stages.h: a model partitioned into stages, for pipelines. A stage is a contiguous range of the
   model's units (nn.h) as a separate network. The output of one stage is the input of the next,
   whose gradient is sent back. Several micro-batches may be between forward and backward, each in
   a slot.

   Whatever the partition and the order in which slots are used, each micro-batch has the loss and
   the gradients of one pass through the whole network, to the bit.

   A model can be split only where a single tensor passes. So branches of images and of tokens are
   joined before a stage boundary; plain convolutions, which run in tiles through all of their
   layers, are on one stage; and a model with tied matrices cannot be split. tutti_nn_cut returns
   the reason in a sentence. With recomputed segments (tutti_layer) stages begin with a norm or an
   lstm, and everything in a stage except its input is recomputed; in the last stage all but its
   last segment. */
#ifndef TUTTI_STAGES_H
#define TUTTI_STAGES_H
#include "nn/nn.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* ---- possible stage boundaries ---- */
typedef struct tutti_nn_unit {
    bool cut;                    /* a stage may begin here; of unit 0 true */
    double forward, backward;    /* operations per sample, as in tutti_nn_flops */
    size_t values;               /* elements of its parameters */
    int param, params;           /* the first of its parameters, and how many */
    /* Floats per sample that enter a stage that begins here; 0 where none can begin. */
    size_t enters;
} tutti_nn_unit;
/* Capacity and *count as for tutti_nn_params. TUTTI_ERR_USAGE: a network that cannot have stages:
   one of images with batch norms or branches, or a quadratic. */
tutti_status tutti_nn_units(const char *model, const tutti_nn_task *task, tutti_nn_unit *units,
                            int room, int *count, tutti_error *err);
/* TUTTI_OK: a stage may begin at that unit; else TUTTI_ERR_USAGE and why not. */
tutti_status tutti_nn_cut(const char *model, const tutti_nn_task *task, int unit,
                          tutti_error *err);

/* ---- memory for activations: one store for all slots of a stage, or of several ---- */
/* Memory of each activation that forward keeps for backward is taken when its unit's forward
   begins and released when backward of the last unit that reads it is over. Scratch memory of a
   single call is separate: the stage has it once, whatever the number of slots
   (tutti_nn_stage_bytes). Released memory is kept for the next request of its size, and freed if
   the bound requires it. Used by one thread at a time. */
typedef struct tutti_nn_store tutti_nn_store;
typedef struct tutti_nn_store_figures {
    size_t bound;                /* 0: none */
    size_t used, used_most;      /* bytes used by slots, now and peak */
    size_t held_most;            /* peak including memory kept for reuse; never above the bound */
} tutti_nn_store_figures;
tutti_status tutti_nn_store_open(tutti_nn_store **out, size_t bound, tutti_error *err);
/* Close it after all stages that use it. */
void tutti_nn_store_close(tutti_nn_store *store);
void tutti_nn_store_figures_of(const tutti_nn_store *store, tutti_nn_store_figures *figures);

/* ---- a stage ---- */
typedef struct tutti_nn_stage tutti_nn_stage;
enum { TUTTI_NN_SLOTS_MOST = 256 };
typedef struct tutti_nn_stage_options {
    /* backend must be onednn. batch: most samples of a micro-batch, which is at most a block
       (nn.h: 64 samples, or windows of 1024 tokens). running and by_unit are not used. */
    tutti_nn_options nn;
    int first, end;              /* its units: [first, end) */
    int slots;                   /* 1 to TUTTI_NN_SLOTS_MOST */
    tutti_nn_store *store;       /* kept */
} tutti_nn_stage_options;
/* TUTTI_ERR_USAGE: the range is not a possible stage; the sentence has the reason. */
tutti_status tutti_nn_stage_open(tutti_nn_stage **out, const char *model, const tutti_nn_task *task,
                                 const tutti_nn_stage_options *options, tutti_error *err);
void tutti_nn_stage_close(tutti_nn_stage *stage);

/* Floats per sample that enter and leave; 0: it begins with samples, or ends with the loss. */
size_t tutti_nn_stage_enters(const tutti_nn_stage *stage);
size_t tutti_nn_stage_leaves(const tutti_nn_stage *stage);
/* Bytes that a slot takes from the store for the forward of `unit` (an index in the whole model),
   and those that its backward releases. A slot's samples count with its first unit. */
void tutti_nn_stage_unit_bytes(const tutti_nn_stage *stage, int unit, size_t *taken, size_t *given);
/* Bytes that the stage has in addition to the store. */
size_t tutti_nn_stage_bytes(const tutti_nn_stage *stage);

/* A micro-batch, in the form of the network's samples (tutti_nn_pass, _pass_tokens, _pass_rows).
   The first stage reads the inputs, the last one the labels (of tokens `next`); others read
   neither.
   seed, first: as for tutti_nn_draw. */
typedef struct tutti_nn_samples {
    int64_t count;
    const float *x;
    const uint8_t *labels;
    const uint32_t *tokens, *next, *rows;
    uint64_t seed, first;
} tutti_nn_samples;

/* Forward of a micro-batch in a free slot. in: output of the previous stage; out: buffer for the
   output; each count x floats per sample, NULL at the ends of the model. values[k]: of the whole
   model's params[k]; only those of this stage's units are read, and they must not change until
   the slot's backward is over, so that it uses the values of its forward. Samples and `in` may be
   changed afterwards.

   TUTTI_ERR_MEMORY: the store's bound. TUTTI_ERR_CORRUPT: as of a pass. After any failure the
   slot is free. */
tutti_status tutti_nn_stage_forward(tutti_nn_stage *stage, int slot,
                                    const tutti_nn_samples *samples, const float *in,
                                    const float *const *values, float *out, tutti_error *err);

/* Backward of the micro-batch in the slot. slope: gradient of the output, NULL in the last stage;
   back: buffer for the gradient of the input, NULL in the first. gradients[k]: of the whole
   model's params[k]; those of this stage are written, or added to with `add`. divisor, *loss_sum:
   as of a pass; except in the last stage the loss is 0. The slot is free afterwards, whatever
   happens. */
tutti_status tutti_nn_stage_backward(tutti_nn_stage *stage, int slot, const float *slope,
                                     double divisor, bool add, float *const *gradients, float *back,
                                     double *loss_sum, tutti_error *err);

/* Forward and backward unit by unit, for callers with other work between units. begin_forward and
   begin_backward are as above and compute the first unit; go_on computes the next. Convolutions,
   which run in tiles through all of their layers, count as one unit. *over: that was the last.

   Until it is over nothing else of the stage may begin: to have two in progress at a time use two
   stages, which may share a store. `out`, slope, gradients (the array as well) and back must stay
   valid until then; samples and `in` only during begin. After a failure the slot is free. */
tutti_status tutti_nn_stage_begin_forward(tutti_nn_stage *stage, int slot,
                                          const tutti_nn_samples *samples, const float *in,
                                          const float *const *values, float *out, bool *over,
                                          tutti_error *err);
tutti_status tutti_nn_stage_begin_backward(tutti_nn_stage *stage, int slot, const float *slope,
                                           double divisor, bool add, float *const *gradients,
                                           float *back, bool *over, double *loss_sum,
                                           tutti_error *err);
tutti_status tutti_nn_stage_go_on(tutti_nn_stage *stage, int slot, bool *over, tutti_error *err);

/* Releases the slot's memory without a backward. A free slot stays free. */
void tutti_nn_stage_drop(tutti_nn_stage *stage, int slot);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
