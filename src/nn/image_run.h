/* image_run.h: the backend of networks with batch norms and branches: convolutions,
   pooling and products by oneDNN, everything else by math/ and loops.h, each layer on all
   samples of a block before the next.

   - Maps stand as oneDNN's convolutions want them, in blocks of as many channels as a vector has
     (nChw16c, nChw8c) where these divide the channels, else with all channels side by side (nhwc);
     the network's input is plain. A convolution that wants something else gets a reorder. Weights
     are reordered in each run: at most a few hundred KiB.
   - A ReLU is part of the layer before it: of a convolution or product a post-op, of a batch norm
     or join in the loop that writes its output. Its mask is that output.
   - Slopes: a join hands its slope to its branch and keeps it, so that what stands before it in the
     body must not write it: it gets a new buffer there. The branch adds it to what the body gave.
   - Moments of the arena: forward of map i is i, the loss n, backward of map i 2n - i. Training is
     laid out for the full block; an evaluation runs pieces of PIECE samples filled up with zeros,
     so that no sample's loss depends on how many there are (as DN_PIECE).
   - Own loops run on the calling thread; oneDNN on as many as were asked for.

   image_plan.c: primitives, and which buffer lives when; image_run.c: a
   layer's two halves, and the table. */
#ifndef TUTTI_NN_IMAGE_RUN_H
#define TUTTI_NN_IMAGE_RUN_H
#include "image.h"
#include "layered.h"
#include "math/math.h"

enum which {
    FORWARD, WEIGHTS, DATA,  /* convolution; flatten as a reorder and back */
    /* weights: plain to the layouts of forward and data; from that of WEIGHTS to plain */
    GIVE_FORWARD, GIVE_DATA, TAKE_WEIGHTS,
    /* reorders of maps, where layouts differ */
    FORWARD_INPUT, FORWARD_RESULT, WEIGHTS_INPUT, WEIGHTS_SLOPE, DATA_SLOPE, DATA_RESULT,
    OPS
};
/* primitives of a layer for a number of samples */
typedef struct map_ops { dn_linear linear; dn_op op[OPS]; } map_ops;

/* What a layer needs room for. */
enum thing {
    OUT,
    STATS,
    WORKSPACE,
    COPY,
    INPUT,
    RESULT,
    FORWARD_SCRATCH,
    WINPUT,
    WSLOPE,
    GRADIENT,
    PLAIN,
    BIAS,
    DATA_COPY,
    DSLOPE,
    DRESULT,
    BACK_SCRATCH,
    BACK,
    MASKED,
    SLOPE,
    RESIDUAL,
    THINGS
}; /* the last two are always others' buffers */

/* the most that any plan needed; buffers by index */
typedef struct image_room { size_t bytes[THINGS]; int at[THINGS]; } image_room;

typedef struct image_layout {
    nn_lives lives;
    int filled, last_slope;
    image_room *map;
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

extern const nn_layers tutti_nn_image_layers; /* image_plan.c */

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
