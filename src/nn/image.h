/* image.h: private header of networks of images (nn_net.image) that have batch norms, whose
   statistics need all samples of a block at once; or branches; or convolutions with strides,
   padding or groups. Included by image.c, which infers shapes and units, by net.c and driver.h, by
   image_run.h (backend with oneDNN) and image_reference.c (backend in scalar double), and by
   tests.

   Chains of plain convolutions have another backend (onednn_conv.c). There a tile of 8 images runs
   through all layers while it is in the cache. A batch norm forbids that: its statistics need the
   last image before the first can continue.

   A *unit* is a layer with parameters and those that follow it without any. A ReLU is part of the
   layer before it. "Maps" are a layer's values of channels x height x width. */
#ifndef TUTTI_NN_IMAGE_H
#define TUTTI_NN_IMAGE_H
#include "nn_internal.h"

/* A layer after shape inference. */
typedef struct nn_map {
    tutti_layer layer;           /* stride and groups are at least 1 */
    int index;                   /* in the list of layers */
    nn_shape in, out;
    bool rows;                   /* its output is plain rows of out.channels values, not maps */
    bool relu;
    int unit;
    int partner;                 /* branch: its join; join: its branch; else -1 */
    int stride;                  /* join: it adds every stride-th position of the branch's values */
    int param, params;           /* its parameters are [param, param + params): none, a weight, or
                                    weight and bias */
    bool dropped;                /* its segment's activations are not kept after forward */
    bool again;                  /* backward computes it again */
    size_t weights;              /* values of the weight tensor; batch norm: channels */
    size_t fan_in;
    size_t running;              /* batch norm: offset of its mean in the running statistics; its
                                    variance follows */
    double flops;                /* of a sample's forward */
} nn_map;

typedef struct nn_image {
    nn_shape sample;
    int classes;
    int map_count, unit_count, param_count;
    int norm_count;              /* batch norms */
    size_t running;              /* floats of running statistics */
    bool recomputes;             /* some map has `again` */
    nn_map *maps;                /* [map_count] */
    int *unit_map;               /* [unit_count + 1]: first map of each unit, which has the
                                    parameters; [unit_count]: map_count */
    tutti_nn_param *params;      /* [param_count], in the order of tutti_nn_params */
} nn_image;

/* Returns the first map of the segment that map i is in. */
static inline int nn_image_segment_first(const nn_image *image, int i)
{
    while (i > 0 && !image->maps[i].layer.segment)
        i--;
    return i;
}

/* Returns whether a list has a layer that chains of plain convolutions cannot have. */
bool tutti_nn_image_needed(const tutti_layer *layers, int count);
/* Builds a network from a list of `count` layers; the caller has checked the task's sizes.
   TUTTI_ERR_USAGE: the list is not a network for the task. *out is NULL on failure. */
tutti_status tutti_nn_image_open(nn_image **out, const tutti_layer *layers, int count,
                                 const tutti_nn_task *task, tutti_error *err);
void tutti_nn_image_close(nn_image *image); /* image may be NULL */
#endif
