/* nn_internal.h: private header of nn, included by most of its files, directly or through image.h,
   sequence.h or loops.h. It declares the network after shape inference (net.c), the interface
   that a backend implements (nn_backend), and the backends.

   A network is split into *units*. A unit is a layer with parameters and the ReLU, pooling and
   flattening that follow it. Units with convolutions come first. They run in tiles of a few images,
   because their activations are large and their weights small. Linear units take the whole batch at
   once, because their weights are large. pass.c calls the backend and the hooks unit by unit, so
   the order of calls, and when a unit's values must be in memory, are the same for every backend. A
   backend only computes.

   Three kinds of networks have units of their own:

     a quadratic          one unit with one parameter and no layer after it
     tokens, frames or categories
                          a list of layers in nn_net.sequence (sequence.h)
     images with batch norms, branches, strides, padding or groups
                          a list of layers in nn_net.image (image.h)

   In networks of the last two kinds only `task`, `sequence`, `image`, `stage`, `enters` and
   `leaves` of nn_net are used.

   "Slope" of a value: the gradient of the loss with respect to that value. */
#ifndef TUTTI_NN_INTERNAL_H
#define TUTTI_NN_INTERNAL_H
#include "nn/nn.h"
#include "tutti/base.h"

enum { NN_LAYERS_MAX = 32, NN_UNITS_MAX = 16 };

/* Shape of one sample's values. After a flatten or linear layer with n outputs: { n, 1, 1 }. */
typedef struct nn_shape { int64_t channels, height, width; } nn_shape;

typedef struct nn_unit {
    tutti_layer_kind kind;       /* TUTTI_LAYER_LINEAR, _CONV2D or _QUADRATIC */
    int index;                   /* index in the list of the layer with the parameters */
    int first, end;              /* the unit's layers are [first, end) of the list; first < index
                                    only if a flatten begins the list */
    nn_shape in;                 /* input of the unit */
    nn_shape wide;               /* output of the layer with the parameters */
    nn_shape out;                /* output of the unit, after its pooling */
    int64_t kernel;              /* side of the convolution's window; 0: linear */
    int64_t pool;                /* side of the pooling's window; 0: no pooling */
    bool relu;
    size_t weights;              /* values of the weight tensor; quadratic: values of x */
    size_t fan_in;               /* inputs that one output depends on; quadratic: 0 */
    double flops;                /* of a sample's forward; a product and its sum are two */
} nn_unit;

typedef struct nn_net {
    tutti_nn_task task;
    struct nn_sequence *sequence; /* owned; NULL: images or vectors */
    struct nn_image *image;      /* owned; NULL: no layer needs image.h */
    tutti_layer layers[NN_LAYERS_MAX];
    int layer_count;
    nn_unit units[NN_UNITS_MAX];
    int unit_count;
    int conv_count;              /* units [0, conv_count) are convolutions, the others linear */
    bool recomputes;             /* backward computes the convolutions' activations again */
    bool stage;                  /* this is a stage of a network (stage.h) */
    bool enters;                 /* the stage reads the rows of the stage before it, and returns
                                    their slope, instead of reading samples */
    bool leaves;                 /* the stage writes rows for the next stage, and is given their
                                    slope, instead of computing a loss */
} nn_net;

static inline int64_t nn_values(nn_shape s) { return s.channels * s.height * s.width; }

/* ---- networks without `sequence` and `image` ---- */
static inline bool nn_quadratic(const nn_net *net)
{
    return net->units[0].kind == TUTTI_LAYER_QUADRATIC;
}
/* Number of parameters of each unit. */
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
/* Index of the unit's weight among the parameters. Not for quadratics. */
static inline int nn_weight(const nn_net *net, int unit)
{
    return 2 * (net->unit_count - 1 - unit);
}
/* Index of the unit's bias among the parameters. Not for quadratics. */
static inline int nn_bias(const nn_net *net, int unit) { return nn_weight(net, unit) + 1; }

/* ---- net.c ---- */
/* Returns the name of a layer kind, such as "conv2d"; "unknown" for an invalid kind. */
const char *tutti_nn_layer_name(tutti_layer_kind kind);
/* Returns true if only networks of tokens, frames or categories, or images with branches, have
   layers of this kind. */
bool tutti_nn_layer_of_tokens(tutti_layer_kind kind);
/* Builds *net from a list of `count` layers: infers shapes and units. TUTTI_ERR_USAGE: the list is
   not a network for this task. *net may own memory: close it with tutti_nn_net_close. */
tutti_status tutti_nn_net_build(nn_net *net, const tutti_layer *layers, int count,
                                const tutti_nn_task *task, tutti_error *err);
/* Builds *net from a model spec such as "mlp(hidden=16)", as tutti_nn_net_build. */
tutti_status tutti_nn_net_model(nn_net *net, const char *model, const tutti_nn_task *task,
                                tutti_error *err);
void tutti_nn_net_close(nn_net *net);
int tutti_nn_net_param_count(const nn_net *net);
/* Writes the first `capacity` of the network's parameters, in the order of tutti_nn_params. */
void tutti_nn_net_params(const nn_net *net, tutti_nn_param *params, int capacity);
/* Writes the first `capacity` of its running statistics, in the order of tutti_nn_statistics. */
void tutti_nn_net_statistics(const nn_net *net, tutti_nn_statistic *statistics, int capacity);

/* ---- models that have a file of their own ---- */
extern const tutti_model_ops tutti_nn_resnet, tutti_nn_vgg;    /* model_image.c */
extern const tutti_model_ops tutti_nn_wordlm, tutti_nn_blstm;  /* model_recurrent.c */
extern const tutti_model_ops tutti_model_ctr;                  /* model_ctr.c */

/* ---- a backend ---- */
/* Nanoseconds spent in each layer. The backend of nn_net.sequence adds them up by node; for other
   networks pass.c adds them up by unit. */
typedef struct nn_times {
    tutti_runtime *clock;        /* NULL: no times are taken */
    int count;                   /* nodes or units */
    int64_t (*spent)[2];         /* [count]; [0]: forward, [1]: backward */
} nn_times;
static inline int64_t nn_times_begin(const nn_times *t)
{
    return t->clock != NULL ? tutti_now_ns(t->clock) : 0;
}
/* Adds the time since `begun`, which nn_times_begin returned, to node or unit `index`. */
static inline void nn_times_end(const nn_times *t, int index, bool backward, int64_t begun)
{
    if (t->clock != NULL)
        t->spent[index][backward] += tutti_now_ns(t->clock) - begun;
}

typedef struct nn_settings {
    int64_t batch;               /* most samples of a training run */
    int64_t eval_samples;        /* samples of an evaluation run */
    int threads;                 /* at least 1 */
    tutti_cpu cpu;               /* highest vector level of nn's own loops */
    tutti_dtype precision;       /* of the products' operands: TUTTI_F32, TUTTI_BF16 or TUTTI_F16 */
    struct dn_copies **copies;   /* the 16-bit copies of weights that the backends of one network
                                    share when blocks run unit by unit; the first backend allocates
                                    them. NULL: the network has one backend */
    const nn_times *times;       /* the pointer is kept; only nn_net.sequence's backend writes */
} nn_settings;

/* The rows of a table's gradient that are not 0. */
typedef struct nn_rows {
    size_t width;                /* values of a row; 0: the parameter is not row-sparse */
    size_t capacity;             /* rows for which there is memory */
    size_t n;                    /* rows that are set */
    uint32_t *ids;               /* [n], ascending and distinct */
    float *values;               /* [n][width] */
} nn_rows;

/* One run of a backend: one block of a training pass, or at most eval_samples samples of an
   evaluation. Samples are `x` and `labels`, or `tokens` and `next`; samples with categories have
   `rows` as well. Arrays over parameters are in the order of tutti_nn_params. */
typedef struct nn_run {
    const float *x;              /* [samples][channels x height x width]. Of a stage with `enters`:
                                    the previous stage's output, one sample's rows after another,
                                    or time step by time step (nn_sequence.time_major) */
    const uint8_t *labels;       /* [samples], all below the number of classes */
    const uint32_t *tokens;      /* [samples][context], all below the number of classes */
    const uint32_t *next;        /* [samples][context], the labels: the token after each token */
    const uint32_t *rows;        /* [samples][tables], all below task.rows */

    /* What an evaluation or training writes if it is wanted; NULL: not wanted. */
    float *logits;               /* [samples]; evaluations with categories */
    float *losses;               /* [samples]; training */
    float *outputs;              /* evaluations: tutti_nn_outputs */
    int position;                /* evaluations with `outputs`: position of the token whose logits
                                    are written; -1: those of all tokens */

    int64_t samples;             /* at least 1 */
    bool train;
    bool add;                    /* gradients are added to, not written */
    bool same_weights;           /* `values` are those of the run before */
    uint64_t seed;               /* dropout's seed (tutti_nn_draw) */
    uint64_t first;              /* dropout's index of this run's first sample */

    const float *const *values;  /* [parameters] */
    float *const *gradients;     /* [parameters]; NULL unless train */
    nn_rows *tables;             /* [parameters]; NULL unless train. The gradient of a row-sparse
                                    parameter is written here, never added, and not to gradients */

    /* Statistics of batch norms, in the order of tutti_nn_statistics. */
    const float *running;        /* read by evaluations. Training reads it only where a channel has
                                    a single value: its variance is then the running one */
    float *statistics;           /* written by training: mean and unbiased variance of this run's
                                    samples */

    /* For a stage. `begin` is called twice for a micro-batch: before forward, and, with `backward`,
       before loss and backward. Runs of other micro-batches may come between. */
    bool backward;
    void *const *kept;           /* memory of each buffer that nn_backend.kept lists */
    float *out;                  /* written by forward: the rows for the next stage */
    const float *slope;          /* slope of `out`; read in backward */
    float *back;                 /* written by `data` of unit 0: slope of x */
} nn_run;

/* A buffer that forward leaves for backward. It is needed from the beginning of forward of unit
   `forward_unit` to the end of backward of unit `backward_unit`. */
typedef struct nn_kept { size_t bytes; int forward_unit, backward_unit; } nn_kept;

/* All calls come from one thread at a time. Only `open` and `begin` may allocate. After a call has
   failed, `begin` is legal. */
typedef struct nn_backend {
    const char *name;
    int64_t tile;                /* images of one call for a convolution unit; 0: the whole run */
    int64_t eval_samples;        /* samples of an evaluation run, a multiple of `tile`; 0 in the
                                    backend of nn_net.sequence, for which nn.c computes it */
    /* Opens a backend for *net and keeps the pointer. Sets *out only on success. */
    tutti_status (*open)(void **out, const nn_net *net, const nn_settings *settings,
                         tutti_error *err);
    void (*close)(void *self);   /* self may be NULL */
    /* Begins a run of at most nn_settings.batch samples in training, at most eval_samples in an
       evaluation. The calls below refer to this run until the next begin. */
    tutti_status (*begin)(void *self, const nn_run *run, tutti_error *err);
    /* Computes forward of a unit for samples [first, first + count) of the run: one tile for a
       convolution unit (the last tile may be short), all samples for any other. For each tile, in
       ascending order, units ascend. */
    tutti_status (*forward)(void *self, int unit, int64_t first, int64_t count, tutti_error *err);
    /* Computes, after all forwards, the sum of the samples' losses and the number of samples (of
       tokens: tokens) that are predicted right. Ties go to the lowest class. A sample whose loss is
       not finite is never right. A training run then begins its backward with the slope of
       sum / divisor, and writes run->losses if it is not NULL. */
    void (*loss)(void *self, double divisor, double *sum, int64_t *correct);
    /* Computes forward again for those layers of the unit whose output was not kept and is read by
       backward. Units of a segment ascend; `weights` and `data` of these units follow. NULL: the
       backend keeps all activations. */
    tutti_status (*again)(void *self, int unit, int64_t first, int64_t count, tutti_error *err);
    /* Computes the gradients of the unit's parameters. They are final after the tile that ends the
       run. Units descend; `data` of the next unit was called before. */
    tutti_status (*weights)(void *self, int unit, int64_t first, int64_t count, tutti_error *err);
    /* Computes the slope of the unit's input, after `weights` of the same tile. For unit 0 it is
       called only in a stage with `enters`. */
    tutti_status (*data)(void *self, int unit, int64_t first, int64_t count, tutti_error *err);
    /* Frees memory that training does not use, after an evaluation: a thousand simulated workers
       would each keep it. NULL: there is none. */
    void (*evaluated)(void *self);
    /* Sets *list to the buffers that a stage's forward leaves for its backward, and returns their
       number. The order is constant; bytes may grow with `begin`. NULL: no stages. */
    int (*kept)(const void *self, const nn_kept **list);
    bool (*widens)(const void *self); /* tutti_nn_widens; NULL: false */
    size_t (*bytes)(const void *self); /* memory that the backend holds */
    /* Writes a line for each primitive into text, which is empty, and returns the length as
       snprintf does. */
    int (*describe)(const void *self, char *text, size_t bytes);
} nn_backend;

extern const nn_backend tutti_nn_onednn, tutti_nn_reference;
extern const nn_backend tutti_nn_quadratic; /* used for quadratics where "onednn" is selected */
extern const nn_backend tutti_nn_tokens;    /* for nn_net.sequence; sequence_run.c */
extern const nn_backend tutti_nn_image;     /* for nn_net.image; by oneDNN */
extern const nn_backend tutti_nn_image_reference; /* for nn_net.image; scalar, in double */

/* Appends formatted text to `text`, which has capacity for `bytes` and whose length, counted as
   snprintf counts, is `length`. Writes as much as fits; returns the new length. */
int tutti_nn_append_text(char *text, size_t bytes, int length, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Opens a network as tutti_nn_open does, from *net instead of a model spec. The network owns what
   *net owns; if this fails it has been freed. */
tutti_status tutti_nn_open_net(tutti_nn **out, const nn_net *net, const tutti_nn_options *options,
                               tutti_error *err);
#endif
