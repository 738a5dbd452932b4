/* nn_internal.h: what the files of this module share: the network after shape inference, and the
   table that a backend fills.

   A network is split into *units*: one layer with parameters and the ReLU, pooling and flattening
   that follow it. The units with convolutions come first and run in tiles of a few images: their
   activations are large, their weights small. The linear units take the whole batch: their
   weights are large. pass.c drives the units and calls the hooks, so that order and residency are
   the same for every backend. A backend only computes.

   Three kinds of networks have units of their own:

     a quadratic          one unit with one parameter and no layer after it
     tokens or frames     a list of layers in `sequence` (sequence.h)
     images with batch norms, branches, strides, padding or groups
                          a list of layers in `image` (image.h)

   Of the last two, nothing of nn_net is used but the task and that list. */
#ifndef TUTTI_NN_INTERNAL_H
#define TUTTI_NN_INTERNAL_H
#include "nn/nn.h"
#include "tutti/runtime.h"

enum { NN_LAYERS_MAX = 32, NN_UNITS_MAX = 16 };

/* features after a flatten or linear: (n, 1, 1) */
typedef struct nn_shape { int64_t channels, height, width; } nn_shape;

/* Its layers are [first, end) of the list; first < index only for a leading flatten. */
typedef struct nn_unit {
    tutti_layer_kind kind;       /* TUTTI_LAYER_LINEAR, _CONV2D or _QUADRATIC */
    int index;                   /* of that layer in the list, as in nn.Sequential */
    int first, end;
    nn_shape in, wide, out;      /* before, after the layer itself, after its pooling */
    int64_t kernel, pool;        /* of the convolution, 0 if linear; of the pooling, 0 if none */
    bool relu;
    size_t weights;              /* values of the weight tensor (quadratic: of x) */
    size_t fan_in;
    double flops;                /* of a forward, a sample: two for a product and its sum */
} nn_unit;

typedef struct nn_net {
    tutti_nn_task task;
    struct nn_sequence *sequence; /* NULL: images or vectors */
    struct nn_image *image;      /* NULL: no more than plain convolutions */
    tutti_layer layers[NN_LAYERS_MAX];
    int layer_count;
    nn_unit units[NN_UNITS_MAX];
    int unit_count, conv_count;  /* units [0, conv_count) are convolutions, the others linear */
    bool recomputes;             /* they are a segment that is not kept */
    /* A stage (stage.h) of a network: it takes rows from the stage before and gives back their
       slope; it gives rows to the next in place of a loss. */
    bool stage, enters, leaves;
} nn_net;

static inline int64_t nn_values(nn_shape s) { return s.channels * s.height * s.width; }
static inline bool nn_quadratic(const nn_net *net)
{
    return net->units[0].kind == TUTTI_LAYER_QUADRATIC;
}
/* of every unit */
static inline int nn_unit_params(const nn_net *net) { return nn_quadratic(net) ? 1 : 2; }
static inline int nn_param_count(const nn_net *net)
{
    return nn_unit_params(net) * net->unit_count;
}
static inline size_t nn_param_values(const nn_net *net, int param)
{
    const nn_unit *u = &net->units[net->unit_count - 1 - param / nn_unit_params(net)];
    return param % 2 == 0 ? u->weights : (size_t)u->wide.channels;
}
/* index among the parameters */
static inline int nn_weight(const nn_net *net, int unit)
{
    return 2 * (net->unit_count - 1 - unit);
}
static inline int nn_bias(const nn_net *net, int unit) { return nn_weight(net, unit) + 1; }

extern const tutti_model_ops tutti_nn_wordlm, tutti_nn_blstm; /* model_recurrent.c */

const char *tutti_nn_layer_name(tutti_layer_kind kind); /* "conv2d" */
bool tutti_nn_layer_of_tokens(tutti_layer_kind kind);   /* or frames, and of nothing else */
/* Shapes and units of a list of layers; refuses what does not fit. */
tutti_status tutti_nn_net_build(nn_net *net, const tutti_layer *layers, int count,
                                const tutti_nn_task *task, tutti_error *err);
/* The same from a spec such as "mlp(hidden=16)". A network with `sequence` or `image` owns memory:
   tutti_nn_net_close. */
tutti_status tutti_nn_net_model(nn_net *net, const char *model, const tutti_nn_task *task,
                                tutti_error *err);
void tutti_nn_net_close(nn_net *net);
int tutti_nn_net_param_count(const nn_net *net);
void tutti_nn_net_params(const nn_net *net, tutti_nn_param *params, int room);
void tutti_nn_net_statistics(const nn_net *net, tutti_nn_statistic *statistics, int room);

extern const tutti_model_ops tutti_nn_resnet, tutti_nn_vgg; /* model_image.c */

/* ---- a backend ---- */
/* Nanoseconds spent: by node of a network of tokens, which the backend records, else by unit,
   which pass.c records. */
typedef struct nn_times {
    tutti_runtime *clock;        /* NULL: nothing is noted */
    int count;
    int64_t (*spent)[2];         /* forward, backward */
} nn_times;
static inline int64_t nn_times_begin(const nn_times *t)
{
    return t->clock != NULL ? tutti_now_ns(t->clock) : 0;
}
static inline void nn_times_end(const nn_times *t, int which, bool backward, int64_t begun)
{
    if (t->clock != NULL)
        t->spent[which][backward] += tutti_now_ns(t->clock) - begun;
}

typedef struct nn_settings {
    int64_t batch;               /* most samples of a training pass */
    int64_t piece;               /* tokens: samples of a run of an evaluation */
    int threads;                 /* at least 1 */
    tutti_cpu cpu;               /* the highest level for own loops */
    tutti_dtype precision;       /* of the products' operands: TUTTI_F32, TUTTI_BF16 or TUTTI_F16 */
    /* Shared by the backends of one network that compute unit by unit: the first stores its
       copies of weights there. NULL: there is only one backend. */
    struct dn_copies **copies;
    const nn_times *times;       /* of tokens: to be kept and filled */
} nn_settings;

/* The rows of a table's gradient that are not 0: ids ascend, no two are equal; values: a row
   each. `room` is the capacity of both. */
typedef struct nn_rows { size_t width, room, n; uint32_t *ids; float *values; } nn_rows;

/* One pass, or one piece of an evaluation. Samples are x and labels, or tokens and next, each
   with or without rows of categories. */
typedef struct nn_run {
    const float *x;
    const uint8_t *labels;       /* all below classes */
    const uint32_t *tokens, *next; /* samples x context; all below classes */
    const uint32_t *rows;        /* samples x tables, all below task.rows */
    float *logits;               /* of an evaluation with categories: samples; NULL: unwanted */
    float *losses;               /* of training: samples, each one's loss; NULL: unwanted */
    float *outputs; int place;   /* of an evaluation: tutti_nn_outputs; NULL: unwanted */

    int64_t samples;             /* at least 1 */
    bool train, add;
    bool same_weights;           /* values are those of the run before */
    uint64_t seed, first;        /* tutti_nn_draw; first: of this run */

    const float *const *values;
    float *const *gradients;     /* NULL unless train */

    /* Statistics of batch norms, in one order. An evaluation reads `running`; training writes those
       of this run's samples. The unbiased variance of a single value is what `running` has. */
    const float *running;
    float *statistics;

    nn_rows *tables;             /* NULL unless train; by parameter: where the gradient of one with
                                    row_sparse is written, never added, in place of `gradients` */

    /* For a stage. Its input is x, one sample's rows after another, or by moment if the network
       has them so. begin is called twice: for forward, and with `backward` for loss and backward;
       other runs may come between. */
    bool backward;
    void *const *kept;           /* the memory of each of nn_backend.kept's list */
    float *out;                  /* what leaves: written by forward */
    const float *slope;          /* of that, read by begin for backward and weights */
    float *back;                 /* of what enters: written by data of unit 0 */
} nn_run;

/* Something of a run that forward leaves for backward: needed from forward of unit `taken` on, to
   the end of backward of unit `given`. */
typedef struct nn_kept { size_t bytes; int taken, given; } nn_kept;

/* All calls come from one thread at a time. Only open and begin may allocate. A failed call
   leaves the backend ready for begin. */
typedef struct nn_backend {
    const char *name;
    int64_t tile;                /* images of one forward or backward of a convolution unit; 0: the
                                    whole run */
    int64_t piece;               /* samples of a run of an evaluation, a multiple of tile. Tokens:
                                    by the settings */
    /* Sets *out only on success. Keeps net. */
    tutti_status (*open)(void **out, const nn_net *net, const nn_settings *settings,
                         tutti_error *err);
    void (*close)(void *self);   /* takes NULL */
    /* Everything below refers to this run until the next begin. samples <= batch if train, else <=
       piece. */
    tutti_status (*begin)(void *self, const nn_run *run, tutti_error *err);
    /* Samples [first, first + count) of the run: a tile for a convolution unit (the last one may be
       short), all for a linear one. Units ascend within a tile, tiles ascend. */
    tutti_status (*forward)(void *self, int unit, int64_t first, int64_t count, tutti_error *err);
    /* After all forwards: the sum of the samples' losses, how many are predicted right, and, if
       train, the gradient of the sum / divisor and run->losses if requested. Ties go to the
       lowest class; a sample whose loss is not finite is never right. */
    void (*loss)(void *self, double divisor, double *sum, int64_t *correct);
    /* Forward again of the unit's layers whose output was not kept and is needed by backward. Of
       a segment units ascend; then follow their `weights` and `data`. NULL: it keeps all there
       is. */
    tutti_status (*again)(void *self, int unit, int64_t first, int64_t count, tutti_error *err);
    /* Gradients of the unit's parameters: final with the tile that ends the run. Units descend; the
       tile's `data` call of the unit above came before. */
    tutti_status (*weights)(void *self, int unit, int64_t first, int64_t count, tutti_error *err);
    /* Gradient of the unit's input; follows `weights` of the same tile; of unit 0 only where a
       stage enters. */
    tutti_status (*data)(void *self, int unit, int64_t first, int64_t count, tutti_error *err);
    /* An evaluation has ended: gives back memory that training does not use. A thousand simulated
       workers would each keep their own. NULL: there is none. */
    void (*evaluated)(void *self);
    /* Of a stage: lists the kept buffers, returns how many there are. Their order stays, their
       bytes may grow with begin. NULL: the backend has no stages. */
    int (*kept)(const void *self, const nn_kept **list);
    bool (*widens)(const void *self); /* tutti_nn_widens; NULL: false */
    size_t (*bytes)(const void *self);
    int (*describe)(const void *self, char *text, size_t bytes); /* text begins empty */
} nn_backend;
/* Appends to a text whose length so far is `length`, counted as by snprintf, as far as it fits
   into its bytes; returns the new length. */
int tutti_nn_say(char *text, size_t bytes, int length, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
extern const nn_backend tutti_nn_onednn, tutti_nn_reference;
/* in place of onednn, for quadratics and for rows of tokens or categories */
extern const nn_backend tutti_nn_quadratic, tutti_nn_tokens;
/* for nn_net.image: by oneDNN, in scalar double */
extern const nn_backend tutti_nn_image, tutti_nn_image_reference;

extern const tutti_model_ops tutti_model_ctr; /* model_ctr.c */

/* As tutti_nn_open, from any list of layers. Takes what net owns, also when it fails. */
tutti_status tutti_nn_open_net(tutti_nn **out, const nn_net *net, const tutti_nn_options *options,
                               tutti_error *err);
#endif
