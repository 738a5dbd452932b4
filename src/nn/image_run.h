/* image_run.h: the backend of networks with batch norms and branches. Convolutions, pooling and
   products are oneDNN's, everything else is of math/ and loops.h. Each layer takes all samples of a
   block before the next.

   - Maps have the layout that oneDNN's convolutions need: in blocks of as many channels as a
     vector has (nChw16c, nChw8c) where these divide the channels, else with all channels side by
     side (nhwc). The network's input is plain. A convolution that needs another layout gets a
     reorder. Weights are reordered in each run: at most a few hundred KiB.
   - A ReLU is part of the layer before it: a post-op of a convolution or product, or in the loop
     that writes the output of a batch norm or join. Its mask is that output.
   - Slopes: a join hands its slope to its branch and keeps it, so what stands before the join in
     the body must not write it and gets a new buffer. The branch adds it to what the body gave.
   - Moments of the arena: forward of map i is i, the loss n, then backward, map by map. Segments
     are as in sequence_run.h.
   - Training is laid out for the full block. An evaluation runs pieces of EVAL_SAMPLES samples filled up
     with zeros, so that no sample's loss depends on how many there are (as DN_EVAL_SAMPLES).
   - Own loops run on the calling thread; oneDNN on the requested number.

   Files: image_plan.c has the primitives, and which buffer lives when; image_run.c a layer's two
   halves, and the table. */
#ifndef TUTTI_NN_IMAGE_RUN_H
#define TUTTI_NN_IMAGE_RUN_H
#include "image.h"
#include "layered.h"
#include "math/math.h"

enum image_op {
    FORWARD, WEIGHTS, DATA,      /* convolution; flatten as a reorder and back */

    /* Reorders of the weights. */
    PACK_FORWARD, PACK_DATA,     /* plain to the layouts of FORWARD and DATA */
    UNPACK_WEIGHTS,                /* from the layout of WEIGHTS to plain */

    /* Reorders of maps, where layouts differ. */
    FORWARD_INPUT, FORWARD_RESULT, WEIGHTS_INPUT, WEIGHTS_SLOPE, DATA_SLOPE, DATA_RESULT,
    OPS
};
/* primitives of a layer for a number of samples */
typedef struct map_ops { dn_linear linear; dn_op op[OPS]; } map_ops;

/* The buffers of a layer. */
enum image_buffer {
    OUT, STATS, WORKSPACE, COPY, INPUT, RESULT, FORWARD_SCRATCH,
    WINPUT, WSLOPE, GRADIENT, PLAIN, BIAS,
    DATA_COPY, DSLOPE, DRESULT, BACK_SCRATCH, BACK, MASKED,
    SLOPE, RESIDUAL,             /* always others' buffers */
    IMAGE_BUFFERS
};

typedef struct image_sizes { size_t bytes[IMAGE_BUFFERS]; } image_sizes; /* the most that any plan needed */
typedef struct image_place { int at[IMAGE_BUFFERS]; } image_place;     /* buffers by index */

typedef struct image_layout {
    nn_buffer_table buffers;
    int filled, last_slope;
    image_sizes *map;
    image_place *forward, *back; /* by map; the same but in training with segments */
    image_place *place;          /* of the half that runs: one of the two */
} image_layout;

typedef struct image {
    const nn_image *net;
    const nn_math *math;
    const nn_loops *loops;
    dn_core core;
    nn_layered base;
    image_layout layouts[2], *layout; /* of evaluation, of training; of this run */
    nn_run run;
    int64_t samples;             /* of this run, those filled up included */
} image;

extern const nn_layered_ops tutti_nn_image_ops; /* image_plan.c */

static inline map_ops *ops_of(const image *b, int i) { return (map_ops *)b->base.plan->ops + i; }

/* Channels side by side at a place. */
static inline int64_t lanes_of(int64_t channels)
{
    const int64_t block = nn_channel_block();
    return channels % block == 0 ? block : channels;
}

static inline size_t map_bytes(nn_shape s, int64_t images)
{
    return (size_t)images * (size_t)nn_values(s) * sizeof(float); /* images <= 64, values <= 2^28 */
}
#endif
