/* image.h: networks of images whose layers need all samples of a block at once (batch norms), or
   more than one stream (branches), or convolutions with strides, padding or groups. image.c infers
   shapes and units; image_run.c computes with oneDNN, image_reference.c in scalar double.

   Chains of plain convolutions keep their own path (onednn_conv.c). There a tile of 8 images runs
   through all layers while it is in the cache. A batch norm forbids that: its statistics need the
   last image before the first can continue.

   A *unit* is a layer with parameters and those that follow it without any. A ReLU is part of the
   layer before it. */
#ifndef TUTTI_NN_IMAGE_H
#define TUTTI_NN_IMAGE_H
#include "nn_internal.h"

typedef struct nn_map {          /* a layer after shape inference */
    tutti_layer layer;           /* stride and groups at least 1 */
    int index;                   /* in the list as it was given */
    nn_shape in, out;
    bool rows;                   /* what it gives are plain rows of out.channels values, not maps */
    bool relu;
    int unit;
    int partner;                 /* of a branch its join, of a join its branch; else -1 */
    int stride;                  /* join: the branch is taken at every stride-th place */
    int param, params;           /* the first in the table; how many: 0, 1 or 2 (weight, bias) */
    bool dropped;                /* of a segment whose outputs are not kept */
    bool again;                  /* backward reads what it has computed, so it is computed again */
    size_t weights, fan_in;      /* values in the weight tensor */
    size_t running;              /* batch norm: where its mean stands among the running statistics;
                                    its variance follows */
    double flops;                /* of a forward, a sample */
} nn_map;

typedef struct nn_image {
    nn_shape sample;
    int classes;
    int map_count, unit_count, param_count, norm_count;
    size_t running;              /* floats of running statistics */
    bool recomputes;             /* some layer has `again` */
    nn_map *maps;
    int *unit_map;               /* each unit's first map, which has the parameters; [unit_count]:
                                    map_count */
    tutti_nn_param *params;      /* ready order */
} nn_image;

/* The first layer of the segment that map i is in. */
static inline int nn_image_segment_first(const nn_image *image, int i)
{
    while (i > 0 && !image->maps[i].layer.segment)
        i--;
    return i;
}

/* Does the list have a layer that the path of plain chains does not know? */
bool tutti_nn_image_needed(const tutti_layer *layers, int count);
/* Refuses lists that make no network. Of the task all but the layers was checked. */
tutti_status tutti_nn_image_open(nn_image **out, const tutti_layer *layers, int count,
                                 const tutti_nn_task *task, tutti_error *err);
void tutti_nn_image_close(nn_image *image);
#endif
