/* model_image.c: networks of images with batch norms, as lists of layers.

   resnet: He et al. 2016, "Deep Residual Learning for Image Recognition", section 4.2, the
   networks for CIFAR-10: of 6n + 2 layers with weights. Shortcuts that change the shape are option
   A (every second position, new channels zero), as there: the paper's figures on CIFAR are with it,
   and it has no parameters. Convolutions have no bias, since a batch norm follows each. Not taken
   from the paper: initial values are PyTorch's defaults (nn.h), as for all models here; the
   optimiser and augmentation are the run's.

   vgg(small): the pattern of Simonyan, Zisserman 2015 (pairs of 3x3 convolutions, pooling, channels
   doubled) with batch norms, three stages, for images of 28x28 and 32x32. There is no dropout:
   batch norms have replaced it in today's networks. */
#include "nn_internal.h"
#include <stdio.h>

typedef struct list {
    tutti_layer *layers;
    int capacity, count;
} list;

static void append_layer(list *l, tutti_layer layer)
{
    if (l->count < l->capacity)
        l->layers[l->count] = layer;
    l->count++;
}

/* 3x3 convolution and batch norm, called `prefix`c`k` and `prefix`n`k`. segment: begins one. */
static void conv_norm(list *l, const char *prefix, int k, int channels, int stride, bool segment)
{
    tutti_layer conv = { .kind = TUTTI_LAYER_CONV2D,
                         .out = channels,
                         .kernel = 3,
                         .stride = stride,
                         .padding = 1,
                         .bare = true,
                         .segment = segment },
                norm = { .kind = TUTTI_LAYER_BATCH_NORM };

    snprintf(conv.name, sizeof conv.name, "%.10sc%d", prefix, k % 100);
    snprintf(norm.name, sizeof norm.name, "%.10sn%d", prefix, k % 100);
    append_layer(l, conv);
    append_layer(l, norm);
}

static void relu(list *l) { append_layer(l, (tutti_layer){ .kind = TUTTI_LAYER_RELU }); }

/* ---- resnet ---- */
enum { DEPTH_MAX = 110, STAGES = 3 };
typedef struct resnet { int64_t depth; bool recompute; } resnet;
static const tutti_option resnet_options[] = {
    { "depth", TUTTI_INT, TUTTI_AT(resnet, depth), 20, 8, DEPTH_MAX, NULL,
      "layers with weights: 6n + 2, that is 8, 14, 20, ..." },
    { "recompute", TUTTI_BOOL, TUTTI_AT(resnet, recompute), 0, 0, 1, NULL,
      "keep what goes into each block alone, and compute the rest again in backward: less memory, "
      "the same bits" },
    { 0 },
};

static tutti_status resnet_layers(const void *self, const tutti_nn_task *task, tutti_layer *layers,
                                  int capacity, int *count, tutti_error *err)
{
    const int64_t depth = ((const resnet *)self)->depth;
    const bool segments = ((const resnet *)self)->recompute;
    const int blocks = (int)((depth - 2) / 6);
    list l = { layers, capacity, 0 };
    char prefix[16];

    *count = 0;
    if ((depth - 2) % 6 != 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "resnet of depth %lld: it must be 6n + 2, for %d stages of n blocks of "
                          "two convolutions; near are %lld and %lld",
                          (long long)depth, STAGES, (long long)(6 * blocks + 2),
                          (long long)(6 * blocks + 8));
    conv_norm(&l, "", 0, 16, 1, false);
    relu(&l);
    for (int stage = 0; stage < STAGES; stage++)
        for (int block = 0; block < blocks; block++) {
            snprintf(prefix, sizeof prefix, "s%d.%d.", stage, block);
            append_layer(&l, (tutti_layer){ .kind = TUTTI_LAYER_BRANCH });
            conv_norm(&l, prefix, 1, 16 << stage, stage > 0 && block == 0 ? 2 : 1, segments);
            relu(&l);
            conv_norm(&l, prefix, 2, 16 << stage, 1, false);
            append_layer(&l, (tutti_layer){ .kind = TUTTI_LAYER_JOIN });
            relu(&l);
        }
    append_layer(&l, (tutti_layer){ .kind = TUTTI_LAYER_AVGPOOL });
    append_layer(&l,
                 (tutti_layer){ .kind = TUTTI_LAYER_LINEAR, .out = task->classes, .name = "fc" });
    *count = l.count;
    return TUTTI_OK;
}

const tutti_model_ops tutti_nn_resnet = {
    .name = "resnet",
    .title = "a residual network with batch norm for small images (28x28, 32x32): three stages of "
             "16, 32, 64 channels",
    .options = resnet_options,
    .self_bytes = sizeof(resnet),
    .layers = resnet_layers,
};

/* ---- vgg ---- */
enum { VGG_SIDE_MIN = 1 << STAGES };
typedef struct vgg { int size; bool recompute; } vgg;
static const tutti_option vgg_options[] = {
    { "size", TUTTI_CHOICE, TUTTI_AT(vgg, size), 0, 0, 0, "small",
      "small: three pairs of convolutions of 32, 64 and 128 channels" },
    { "recompute", TUTTI_BOOL, TUTTI_AT(vgg, recompute), 0, 0, 1, NULL,
      "keep what goes into each pair alone, and compute the rest again in backward: less memory, "
      "the same bits" },
    { 0 },
};

static tutti_status vgg_layers(const void *self, const tutti_nn_task *task, tutti_layer *layers,
                               int capacity, int *count, tutti_error *err)
{
    const bool segments = ((const vgg *)self)->recompute; /* there is one size */
    list l = { layers, capacity, 0 };
    char prefix[16];

    *count = 0;
    if (task->height < VGG_SIDE_MIN || task->width < VGG_SIDE_MIN)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "vgg needs images of at least %dx%d; this task has %dx%d; mlp takes any size",
            VGG_SIDE_MIN, VGG_SIDE_MIN, task->height, task->width);
    for (int stage = 0; stage < STAGES; stage++) {
        snprintf(prefix, sizeof prefix, "s%d.", stage);
        for (int k = 1; k <= 2; k++) {
            conv_norm(&l, prefix, k, 32 << stage, 1, segments && k == 1);
            relu(&l);
        }
        append_layer(&l, (tutti_layer){ .kind = TUTTI_LAYER_MAXPOOL2D, .kernel = 2 });
    }
    append_layer(&l, (tutti_layer){ .kind = TUTTI_LAYER_FLATTEN });
    append_layer(&l, (tutti_layer){ .kind = TUTTI_LAYER_LINEAR, .out = 256, .name = "f1" });
    relu(&l);
    append_layer(&l,
                 (tutti_layer){ .kind = TUTTI_LAYER_LINEAR, .out = task->classes, .name = "f2" });
    *count = l.count;
    return TUTTI_OK;
}

const tutti_model_ops tutti_nn_vgg = {
    .name = "vgg",
    .title = "pairs of 3x3 convolutions with batch norm and pooling, two linear layers, for small "
             "images",
    .options = vgg_options,
    .self_bytes = sizeof(vgg),
    .layers = vgg_layers,
};
