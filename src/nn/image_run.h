/* image_run.h: private header of the backend of image.h's networks. Included by image_plan.c, which
   makes primitives and declares buffers, and image_run.c, which computes a layer's forward and
   backward and defines the backend's table. oneDNN computes convolutions and products; math/ and
   loops.h compute the other layers. Each layer takes all samples of a block before the next.

   - Maps have the layout that oneDNN's convolutions need: blocks of as many channels as a vector
     has lanes (nChw16c, nChw8c) where the block divides the channels, else all channels adjacent
     (nhwc). The network's input is plain (nchw). If a convolution's primitive needs another
     layout, a reorder precedes or follows it. Weights are reordered in each run; they have at most
     a few hundred KiB.
   - A ReLU is part of the layer before it: a post-op of a convolution or product, or in the loop
     that writes the output of a batch norm or join. The mask of its slope is that output.
   - A join's slope is also its branch's. The join passes it on in one buffer. So the layer before
     the join must not write that buffer: it masks a copy (MASKED), or writes to a new buffer
     (BACK). The branch adds the join's slope to the slope that the body computed.
   - The moments of the memory planner are: i, the forward of map i; n, the loss, where n is the
     number of maps; then the backward of map after map. Segments are as in sequence_run.h.
   - Training buffers have the size of the full block. An evaluation run is filled up with zeros to
     eval_samples samples, so that a sample's loss does not depend on how many samples there are
     (see DN_EVAL_SAMPLES).
   - Loops of math/ and loops.h run on the calling thread, except pooling (pool.h). oneDNN uses the
     requested number of threads. */
#ifndef TUTTI_NN_IMAGE_RUN_H
#define TUTTI_NN_IMAGE_RUN_H
#include "image.h"
#include "layered.h"
#include "math/math.h"

/* The primitives of a convolution. A flatten has FORWARD and DATA: reorders to plain rows and
   back. */
enum image_op {
    FORWARD, WEIGHTS, DATA,

    /* Reorders of the weights. */
    PACK_FORWARD, PACK_DATA,     /* plain to the layouts of FORWARD and DATA */
    UNPACK_WEIGHTS,              /* from the layout of WEIGHTS to plain */

    /* Reorders of maps; each exists only if the primitive needs another layout. */
    FORWARD_INPUT, FORWARD_RESULT, WEIGHTS_INPUT, WEIGHTS_SLOPE, DATA_SLOPE, DATA_RESULT,
    OPS
};
/* The primitives of a layer for one number of samples. */
typedef struct map_ops { dn_linear linear; dn_op op[OPS]; } map_ops;

/* The buffers of a layer. */
enum image_buffer {
    OUT,                         /* output; may be the previous layer's, if computed in place */
    STATS,                       /* batch norm: mean and 1 / deviation of each channel */
    WORKSPACE,                   /* max pooling: index of each window's largest value */
    COPY,                        /* weights in FORWARD's layout */
    INPUT, RESULT,               /* input and output of FORWARD, in its layouts */
    FORWARD_SCRATCH,
    WINPUT, WSLOPE,              /* input and slope of the output, in the layouts of WEIGHTS */
    GRADIENT,                    /* gradient of the weights, in the layout of WEIGHTS */
    PLAIN, BIAS,                 /* gradients of weights (plain) and bias, before they are added */
    DATA_COPY,                   /* weights in DATA's layout */
    DSLOPE, DRESULT,             /* slopes of output and input, in DATA's layouts */
    BACK_SCRATCH,
    BACK,                        /* slope of the input */
    MASKED,                      /* copy of the slope of the output, masked by the ReLU */
    SLOPE,                       /* slope of the output: a buffer of the next layer */
    RESIDUAL,                    /* branch: its join's slope: a buffer of the join */
    IMAGE_BUFFERS
};

/* Bytes of a layer's buffers: the most that a plan has needed so far. */
typedef struct image_sizes { size_t bytes[IMAGE_BUFFERS]; } image_sizes;
/* A layer's buffers: indexes for nn_buffer_address; NN_NONE: none. */
typedef struct image_place { int at[IMAGE_BUFFERS]; } image_place;

/* The buffers of training, or of evaluation. */
typedef struct image_layout {
    nn_buffer_table buffers;
    int filled;                  /* evaluation: buffer of the padded input */
    int last_slope;              /* training: buffer of the slope of the network's output */
    image_sizes *map;            /* [maps] */
    image_place *forward, *back; /* [maps]: buffers in forward, in backward; the same array except
                                    in training with segments */
    image_place *place;          /* forward or back: that of the half that runs */
} image_layout;

typedef struct image {
    const nn_image *net;
    const nn_math *math;
    const nn_loops *loops;
    dn_core core;
    nn_layered base;
    image_layout layouts[2];     /* [train] */
    image_layout *layout;        /* of this run */
    nn_run run;
    int64_t samples;             /* of this run, with padding */
} image;

extern const nn_layered_ops tutti_nn_image_ops; /* image_plan.c */

/* Returns the primitives of map i in this run. */
static inline map_ops *ops_of(const image *b, int i) { return (map_ops *)b->base.plan->ops + i; }

/* Returns the number of channels that are adjacent at each position. */
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
