/* onednn_internal.h: what the three files of the oneDNN backend share. onednn.c: engine, primitives as `dn_op`, activations, the loss,
   the table; onednn_linear.c and onednn_conv.c: the two kinds of units.

   A *plan* is a set of primitives for one number of samples; running one only sets pointers and executes. Plans of the full batch
   are made at open, others at first use, and kept: a linear plan for each of a few sizes, a convolution plan for each size of a tile. */
#ifndef TUTTI_NN_ONEDNN_INTERNAL_H
#define TUTTI_NN_ONEDNN_INTERNAL_H
#include "dnnl_compat.h"
#include "loops.h"

enum {
    DN_ARGS = 5,      /* most pointers of a primitive, without the scratchpad */
    DN_TILE = 8,      /* images: 4 to 16 are equally fast, larger ones leave the cache of a core. Part of what fixes the bits */
    /* Samples of a run of an evaluation, always filled up, so that no sample's loss depends on how many there are; and below and a
       multiple of every block of rows in oneDNN's kernels (2, 3, 4, 6, 8, 12, 16), so that none falls into a kernel for the
       rest, which rounds differently: with 256, 4 rows did on AVX2. Large enough to run at full speed. */
    DN_PIECE = 144,
    DN_PLANS = 8      /* linear plans kept besides those of the full batch and of evaluation */
};

typedef struct dn_op { /* a primitive with its memory objects; all zero: none */
    dnnl_primitive_t primitive;
    dnnl_exec_arg_t args[DN_ARGS + 1]; /* in the order the pointers are given; the scratchpad last */
    int count;
    char label[48];   /* "conv2d 0 forward" */
    char implementation[48];
} dn_op;

typedef struct dn_linear { dn_op forward, data, weights, weights_add; } dn_linear;

typedef struct dn_linear_plan {
    int64_t rows;
    bool train;
    uint64_t used;    /* of the backend's clock; 0: an empty place */
    dn_linear *units; /* of all units; those of convolutions stay empty */
} dn_linear_plan;

typedef struct dn_conv {
    dn_op conv, pool, pool_inference, flatten; /* flatten: the last unit's output to plain rows */
    dn_op unflatten, pool_data, weights, data;
    dn_op give_forward, give_data, take_weights; /* weights: plain to layouts of conv and data; from that of `weights` to plain */
    /* Reorders where two primitives want activations in different layouts, none otherwise (none at all in `cnn`): the input as it comes
       to what conv and `weights` want; the slope as conv's output stands to what `weights` and `data` want; data's result to how the
       input comes. */
    dn_op conv_input, weights_input, weights_slope, data_slope, data_result;
    size_t input_bytes, slope_bytes, wide_bytes, out_bytes, workspace_bytes;
    float *forward_copy, *data_copy, *sum, *part; /* weights in their layouts; gradients of a plan's tiles, of one tile */
    size_t sum_values;
    float *bias_sum, *bias_part;
    uint64_t forward_version, data_version;       /* of the values the copies were made from */
} dn_conv;

typedef struct dn_conv_plan { bool made, sum_begun[NN_UNITS_MAX]; dn_conv *units; } dn_conv_plan;

typedef struct dn_store { void *memory; size_t bytes; } dn_store; /* grows, keeps no contents */

typedef struct onednn {
    const nn_net *net;
    const nn_loops *loops;
    int64_t batch;
    int threads;
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_attr_t plain, relu, sum; /* scratchpad by the user; with a ReLU or a sum behind it */
    size_t scratch_bytes;                   /* the largest need of all primitives */
    dn_store scratch;

    dn_linear_plan full, evaluation, others[DN_PLANS], *linear; /* linear: of this run */
    dn_conv_plan tiles[DN_TILE + 1];                            /* by images */
    uint64_t clock, version;                                    /* of the use of plans; of the values */

    dn_store act[NN_UNITS_MAX];       /* out of each unit; convolutions: a place a tile (training) or one (evaluation), in conv's layout */
    dn_store workspace[NN_UNITS_MAX]; /* of pooling, a place a tile */
    size_t act_step[NN_UNITS_MAX], workspace_step[NN_UNITS_MAX]; /* bytes from tile to tile */
    dn_store flat;                    /* the last convolution unit's output as plain rows */
    dn_store slope, other;            /* rows of gradients: where backward has come to; space for the next */
    dn_store tile_a, tile_b;          /* the same for a tile, and conv's output on the way to pooling */
    dn_store input, turned;           /* a tile of a unit's input, of its slope, in another layout */
    dn_store filled;                  /* the end of an evaluation's input, filled up with zeros */
    dn_store plain_part;              /* gradients of a weight tensor in plain order, to be added */
    nn_run run;
} onednn;

/* ---- onednn.c ---- */
/* Takes pd. Makes the primitive and its memory objects for `count` arguments; refuses the library's reference code, which is hundreds of
   times slower. status: of the call that made pd. */
tutti_status tutti_nn_dn_op_open(onednn *b, dn_op *op, dnnl_primitive_desc_t pd, dnnl_status_t status, const nn_unit *unit, const char *what,
                                 const int *args, int count, tutti_error *err);
void tutti_nn_dn_op_close(dn_op *op);
/* pointers: one an argument, as given at open. */
tutti_status tutti_nn_dn_op_run(onednn *b, dn_op *op, void *const *pointers, tutti_error *err);
nn_mdref tutti_nn_dn_md(const dn_op *op, int arg);
/* At least `bytes`, zeroed when it grows. */
tutti_status tutti_nn_dn_store(dn_store *store, size_t bytes, tutti_error *err);
tutti_status tutti_nn_dn_failed(dnnl_status_t status, const nn_unit *unit, const char *what, tutti_error *err);

/* ---- onednn_linear.c ---- */
tutti_status tutti_nn_dn_linear_plan(onednn *b, int64_t rows, bool train, dn_linear_plan **out, tutti_error *err);
void tutti_nn_dn_linear_close(onednn *b, dn_linear_plan *plan);
tutti_status tutti_nn_dn_linear_forward(onednn *b, int unit, tutti_error *err);
tutti_status tutti_nn_dn_linear_weights(onednn *b, int unit, tutti_error *err);
tutti_status tutti_nn_dn_linear_data(onednn *b, int unit, tutti_error *err);

/* ---- onednn_conv.c ---- */
tutti_status tutti_nn_dn_conv_plan(onednn *b, int64_t images, tutti_error *err);
void tutti_nn_dn_conv_close(onednn *b, dn_conv_plan *plan);
/* Room for the run's tiles; after all its plans are made. */
tutti_status tutti_nn_dn_conv_room(onednn *b, int64_t tiles, tutti_error *err);
tutti_status tutti_nn_dn_conv_forward(onednn *b, int unit, int64_t first, int64_t count, tutti_error *err);
tutti_status tutti_nn_dn_conv_weights(onednn *b, int unit, int64_t first, int64_t count, tutti_error *err);
tutti_status tutti_nn_dn_conv_data(onednn *b, int unit, int64_t first, int64_t count, tutti_error *err);
#endif
