/* nn.h: networks as lists of layers, run by a backend. One backend computes fast (oneDNN), one is the scalar reference that
   the tests hold it to. The network keeps no parameters: they are pointers into the engine's flat vectors, in PyTorch's layout.
   A network is used by one thread at a time; networks share nothing, so each worker may run its own on a thread of its own. */
#ifndef TUTTI_NN_H
#define TUTTI_NN_H
#include "device.h"
#include "options.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

typedef enum { TUTTI_LAYER_LINEAR, TUTTI_LAYER_CONV2D, TUTTI_LAYER_RELU, TUTTI_LAYER_MAXPOOL2D, TUTTI_LAYER_FLATTEN,
    TUTTI_LAYER_QUADRATIC,           /* a network by itself: one vector x as parameter; a sample xi has the loss 1/2 sum_j lambda_j (x_j - xi_j)^2 (problem.h) */
    /* Of networks of tokens, whose layers work on rows, a row a token: they begin with an embedding and take linear layers too. */
    TUTTI_LAYER_EMBEDDING,           /* a token's row of `out` values */
    TUTTI_LAYER_POSITIONS,           /* after the embedding: adds a learned row for each place of the window */
    TUTTI_LAYER_LAYER_NORM,          /* eps 1e-5, with weight and bias */
    TUTTI_LAYER_ATTENTION,           /* causal, `heads` heads; rows are queries, keys and values, one after another, each heads x width */
    TUTTI_LAYER_GELU,                /* with the error function */
    TUTTI_LAYER_BRANCH, TUTTI_LAYER_JOIN, /* join adds the rows that stood at its branch; pairs may stand within each other. Of images they join as said at batch norms, below */
    TUTTI_LAYER_RMS_NORM,            /* eps 1e-5, with weight (Zhang, Sennrich 2019) */
    TUTTI_LAYER_ROTARY,              /* between the linear layer that gives queries, keys and values and its attention, with as many heads: turns queries and keys by their
                                        places (Su et al. 2021), base 10000, halves of a head as pairs */
    TUTTI_LAYER_DROPOUT,             /* in training: 0 with probability `rate`, else times 1 / (1 - rate) (Srivastava et al. 2014); tutti_nn_draw says by which draws */
    /* Recurrent. Every window begins with zeros; no attention or positions beside them. */
    TUTTI_LAYER_LSTM,                /* long short-term memory of `out` values; both: another from the last row to the first, whose values stand behind, so rows of 2 out.
                                        Parameters are those of PyTorch's LSTM of one layer */
    TUTTI_LAYER_FRAMES,              /* in place of the embedding: a sample of 1 x height x width values is a window of `height` rows of `width` values, with one label */
    TUTTI_LAYER_MEAN,                /* the mean of a window's rows, one row; of frames, once. What follows works on rows of samples */
    TUTTI_LAYER_BATCH_NORM,          /* of images, over a block's samples and places of each channel; eps 1e-5, with weight, bias and running statistics */
    TUTTI_LAYER_AVGPOOL,             /* of images: the mean over all places of each channel, a value a channel */
    TUTTI_LAYER_TABLES               /* begins a network of categories: a row of `out` values from the table of each, one after another, then the sample's own values */
} tutti_layer_kind;
typedef struct tutti_layer {
    tutti_layer_kind kind;
    int out;                     /* features (linear), channels (conv2d) */
    int kernel;                  /* conv2d: kernel x kernel; maxpool2d: kernel = stride, floor */
    int stride, padding, groups; /* conv2d: windows move by stride (0: 1) over an image with `padding` zeros on each side; groups (0: 1) divides the channels before and after */
    double condition;            /* quadratic: lambda falls from 1 to 1 / condition */
    bool simplex;                /* quadratic: x starts at 1 / dim, not at 0 */
    int heads;                   /* attention, rotary */
    double rate;                 /* dropout: 0 to below 1, in steps of 2^-16 */
    bool bare;                   /* linear, of tokens, and conv2d: no bias */
    bool tied;                   /* the last linear layer, of tokens, bare: its matrix is the embedding's, one parameter of two layers, whose gradient is the sum */
    bool both;                   /* lstm: in both directions */
    double deviation;            /* of tokens: its matrix starts normal with this deviation; 0: linear as tutti_nn_initialise says, tables with 1 */
    char name[16];               /* its parameters are called name.weight and name.bias; "": its index (the only way in lists of linear, conv2d, relu, maxpool2d, flatten alone) */
} tutti_layer;
/* The task: samples of channels x height x width floats, one label in [0, classes) each. Or, if context is not 0, windows of so many tokens in [0, classes) with the token
   after each as its label; the other three are then of no matter. Or, if tables is not 0, values as before beside so many categories, category t being a row below `rows` of table t; two classes. */
typedef struct tutti_nn_task { int channels, height, width, classes, context, tables; uint32_t rows; } tutti_nn_task;

/* ---- models: named lists. "mlp(hidden=1024)" = flatten-free 784-1024-1024-10; "cnn" = conv3x3x32, ReLU, pool 2, conv3x3x64, ReLU,
   pool 2, flatten, fc128, ReLU, fc classes (images of 10x10 and more); indexes of parameters are those of peers/train.py's Sequential: mlp 0, 2, 4; cnn 0, 3, 7, 9.
   "logistic" = fc classes (softmax regression on any data; its options speak of its own data); "quadratic(...)": options as in problem.h, dim that of the samples;
   "gpt(layers,dim,heads,context,vocab)" = the GPT of peers/train.py, for tokens; its other options choose among layers;
   "wordlm(vocab,dim,hidden)" = embedding, lstm, linear to dim if hidden is another, linear to the vocabulary, for tokens;
   "blstm(layers,hidden)" = lstm in both directions, `layers` times, mean over the rows, linear: samples of 1 x frames x features;
   "resnet(depth=6n+2)" = He et al. 2016, section 4.2: conv3x3(16), batch norm, ReLU, three stages of n blocks of two 3x3 convolutions with 16, 32, 64 channels, stride 2 between,
   mean over places, fc classes; "vgg(small)" = three times two 3x3 convolutions with batch norm (32, 64, 128 channels) and pooling, fc 256, ReLU, fc classes;
   "ctr(tables,rows,dim,...)" = tables and linear layers with ReLU to one logit, for categories. ---- */
typedef struct tutti_model_ops {
    const char *name, *title;
    const tutti_option *options;
    size_t self_bytes;
    /* Writes at most `room` layers, gives how many; refuses tasks it cannot take with a sentence. */
    tutti_status (*layers)(const void *self, const tutti_nn_task *task, tutti_layer *layers, int room, int *count, tutti_error *err);
    bool tokens;                 /* its samples are windows of tokens */
    bool categories;             /* its samples have categories */
} tutti_model_ops;
extern const tutti_model_ops *const tutti_models[];                    /* NULL-ended registry */
bool tutti_nn_takes_tokens(const char *model);                         /* a spec; false of one that is none */
bool tutti_nn_takes_categories(const char *model);                     /* likewise */

typedef struct tutti_nn_param {
    char name[40];               /* "0.weight": nn.Sequential's, or the layer's name; quadratic: "x"; "lstm.weight_hh_l0_reverse" */
    int unit;                    /* index among the layers that have parameters, from the input: 0, 1, ... */
    int dims; size_t dim[4];     /* PyTorch's shape: linear (out, in), conv (out, in, k, k), bias (out) */
    size_t count, rows, cols;    /* rows x cols = count: the matrix view (out x rest); bias: count x 1 */
    size_t fan_in;               /* of its layer; quadratic, tables and norms: 0 */
    float start;                 /* initial value of every element if fan_in is 0 */
    float deviation;             /* if not 0, values start normal with this deviation instead */
    int nth;                     /* how many of its unit stand before it with as many dimensions: 0 but for lstm */
    bool row_sparse;             /* a table: a pass changes the gradient of those rows only that its samples name */
} tutti_nn_param;

/* ---- batch norms. In training a block (64 samples, below) is normalised by the mean and variance of its own samples, whoever computes it: one worker with 256
   samples and four with 64 compute the same bits, and a block is what PyTorch calls a batch. A last block of one sample and one place a channel gives the bias.
   Running statistics, a mean and a variance a channel, are no parameters: nothing is exchanged or optimised, they are a worker's own. A pass that ends well moves them by
   0.1 towards the mean over its blocks, weighted by samples, of the blocks' mean and unbiased variance: so the mean over workers of what each has is what one worker with all
   their samples would have. Of a channel whose mean over the blocks is not finite nothing moves. Evaluation uses them, in place of the block's. Who trains with several workers takes that mean before evaluating, and only then: with the engine
   they are client state (engine.h), averaged over the workers whenever the model is shown, whatever the method. (PyTorch's DDP sends those of rank 0 around
   before each forward, so that 1 / workers of the samples are seen; its local and gossip methods average them as parameters or not at all.)
   Branch and join of images: if the body has changed the shape, the branch's values are taken at every stride-th place, and channels that are new get nothing added
   (He et al. 2016, section 4.2, option A: no parameters, and what they use on CIFAR). ---- */
typedef struct tutti_nn_statistic {
    char name[32];               /* "n0.running_mean", "n0.running_var": PyTorch's */
    size_t first, count;         /* place in the vector of tutti_nn_running; a value a channel */
    float start;                 /* means 0, variances 1 */
} tutti_nn_statistic;
/* In the order of the layers, mean before variance. room, *count as for tutti_nn_params. */
tutti_status tutti_nn_statistics(const char *model, const tutti_nn_task *task, tutti_nn_statistic *statistics, int room, int *count, tutti_error *err);

/* Parameters in the order their gradients become ready: last layer first, weight before bias. Needs no backend. room: of params; *count is
   always the number there is. */
tutti_status tutti_nn_params(const char *model, const tutti_nn_task *task, tutti_nn_param *params, int room, int *count, tutti_error *err);
/* PyTorch's defaults: uniform in +-1/sqrt(fan_in) for weights and biases, element i from index i of rng (seed; stream = forward_index, the
   parameter's index in forward order: 2 unit for a weight, 2 unit + 1 for a bias, and 2^40 param->nth on top; step 0). LSTM: fan_in is its `out` for all, as in PyTorch. With a deviation: tutti_normal of the same rng times it. quadratic and
   norms: all param->start, whatever the seed. */
void tutti_nn_initialise(const tutti_nn_param *param, int forward_index, uint64_t seed, float *values);

/* ---- a network ready to run ---- */
typedef struct tutti_nn tutti_nn;
typedef struct tutti_nn_options {
    const char *backend;         /* "onednn" (default, NULL) or "reference"; quadratic: the same bits on both */
    int64_t batch;               /* samples of a full pass, 1 to 2^20; smaller passes are legal (their plans are made at first use; those of
                                    eight sizes are kept). Only these first uses and evaluation's allocate */
    int threads;                 /* of the backend, for the calling thread; 0: 1. Part of what fixes the bits */
    tutti_dtype precision;       /* TUTTI_F32 (0), TUTTI_BF16 or TUTTI_F16: what weights, activations and slopes are rounded to, nearest even, on their way into a product of a linear layer, a convolution or
                                    an lstm. Products add in float32; everything else, given values and gradients too, is float32 (Micikevicius et al. 2018). Part of what fixes the bits. F16 overflows
                                    above 65504: a slope that does makes gradients infinite or NaN; who trains so scales the loss (engine.h, loss_scale). Only of backend onednn. Where oneDNN has no such
                                    product for this CPU, the same rounded operands are multiplied in float32, slower than F32: tutti_nn_widens tells */
    float *running;              /* keeps; running statistics are here, as tutti_nn_statistics lays them out, and have their values; NULL: nn's own memory, at their start */
    tutti_device *device;        /* keeps; charged with each layer's flops, its level is that of own loops; NULL: nothing is charged */
    struct tutti_runtime *clock; /* keeps; layers are timed by it (tutti_nn_times); NULL: they are not */
} tutti_nn_options;
tutti_status tutti_nn_open(tutti_nn **out, const char *model, const tutti_nn_task *task, const tutti_nn_options *options, tutti_error *err);
void tutti_nn_close(tutti_nn *nn);
/* The running statistics, until nn is closed: the caller may read and write them between passes. *count: floats in all; NULL if the model has none. */
float *tutti_nn_running(tutti_nn *nn, size_t *count);
/* Called between the layers of a pass, on the calling thread; each may block; a failure ends the pass with its status. unit: as in params.
   Values of a unit are read only between its need and its done (twice: forward, then backward); unit 0 whose matrix is also the last layer's stays needed until that one is done,
   and from there on in backward. ready(param): the gradient of
   params[param] is final for this pass and not touched by it again; called between the unit's two halves of backward, so that its
   exchange overlaps the second. Units with convolutions run in tiles of a few samples and are one block: all needed before its first tile,
   done after its last. So the order of the calls does not depend on the number of samples, and is the same without any:
     cnn, forward: need 0 1, done 0 1, need 2, done 2, need 3, done 3; backward: need 3, ready, done 3, need 2, ready, done 2,
     need 1 0, ready (unit 1), ready (unit 0), done 1 0.
   Networks with batch norms or branches run unit by unit, convolutions too, each needed and done by itself; a batch norm is a unit.
   A pass of more than 64 samples runs in blocks of 64: a unit is needed in the first block's forward and done in the last one's, backward calls come
   in the last block. Members may be NULL. */
typedef struct tutti_nn_hooks {
    void *user;
    tutti_status (*need)(void *user, int unit, bool backward, tutti_error *err);
    tutti_status (*done)(void *user, int unit, bool backward, tutti_error *err);
    tutti_status (*ready)(void *user, int param, tutti_error *err);
    /* In place of ready, of parameters with row_sparse: the n rows ids[0] < ids[1] < ... are all that this pass has added to. Who gives this hook gives gradients of such parameters that
       are 0, or of earlier passes with `add`; other rows are neither read nor written. Without it the whole gradient is written, like any other. */
    tutti_status (*ready_rows)(void *user, int param, const uint32_t *ids, size_t n, tutti_error *err);
    /* Of parameters with row_sparse, once a pass, before the first need: the n rows ids[0] < ids[1] < ... are all that this pass reads; they may be old or without meaning until it returns. */
    tutti_status (*need_rows)(void *user, int param, const uint32_t *ids, size_t n, tutti_error *err);
} tutti_nn_hooks;
/* Forward and backward over `samples` samples. x: samples x channels x height x width; labels: samples. values[k], gradients[k]: of
   params[k]. Loss: softmax cross-entropy, or the quadratic's. Gradient: of (sum of the samples' losses) / divisor, written, or added if `add`.
   The gradient is the binary tree sum over blocks of 64 samples: a batch of 256 gives the bits of four batches of 64 added in that tree.
   *loss_sum: sum of the samples' losses. A label that is no class is TUTTI_ERR_CORRUPT with its index and value; samples > batch or a divisor
   that is not positive and finite TUTTI_ERR_USAGE, all before the first hook. After any failure the gradients are undefined and the
   next pass is as good as the first. A NaN in a value need not reach the loss (ReLU on oneDNN turns it into 0).
   samples = 0: writes zero gradients (unless add), announces them all. Weights are prepared anew (blocked copies of convolutions) unless
   `same_weights` says that values have not changed since the last call. */
tutti_status tutti_nn_pass(tutti_nn *nn, const float *x, const uint8_t *labels, int64_t samples, double divisor, bool add, bool same_weights,
                           const float *const *values, float *const *gradients, const tutti_nn_hooks *hooks, double *loss_sum, tutti_error *err);
/* The same for tokens: tokens, next: samples x context each, next[i] the token after tokens[i]. A sample's loss is the mean over its tokens. Blocks are as many windows, a power
   of two up to 64, as have at most 1024 tokens, and at least one. A token that is none of the vocabulary is TUTTI_ERR_CORRUPT. */
tutti_status tutti_nn_pass_tokens(tutti_nn *nn, const uint32_t *tokens, const uint32_t *next, int64_t samples, double divisor, bool add, bool same_weights,
                                  const float *const *values, float *const *gradients, const tutti_nn_hooks *hooks, double *loss_sum, tutti_error *err);
/* Dropout's draws of the passes that follow: sample k of a pass takes those of (seed, first + k), whoever computes it and however a batch is cut. first: as a rule how many samples the
   run took before. Without a call (0, 0). Evaluation drops nothing. */
void tutti_nn_draw(tutti_nn *nn, uint64_t seed, uint64_t first);
/* The same for samples with categories: rows: samples x tables, each below task.rows; x and labels as for images. The loss is the binary cross-entropy of one logit. A row that is none of the
   table is TUTTI_ERR_CORRUPT, with its sample and table. */
tutti_status tutti_nn_pass_rows(tutti_nn *nn, const float *x, const uint32_t *rows, const uint8_t *labels, int64_t samples, double divisor, bool add, bool same_weights,
                                const float *const *values, float *const *gradients, const tutti_nn_hooks *hooks, double *loss_sum, tutti_error *err);
/* Forward only, any number of samples (cut into pieces). A sample's loss has the same bits whatever stands round it. correct: the largest
   output is the label's, ties going to the lowest class; 0 where tutti_nn_classifies is false. Calls no hook. */
tutti_status tutti_nn_evaluate(tutti_nn *nn, const float *x, const uint8_t *labels, int64_t samples, const float *const *values,
                               double *loss_sum, int64_t *correct, tutti_error *err);
/* correct: tokens, not samples, that the largest output tells. */
tutti_status tutti_nn_evaluate_tokens(tutti_nn *nn, const uint32_t *tokens, const uint32_t *next, int64_t samples, const float *const *values,
                                      double *loss_sum, int64_t *correct, tutti_error *err);
/* correct: a logit above 0 tells class 1. logits: NULL, or samples: where each sample's logit goes (its rank among all is what an AUC needs). */
tutti_status tutti_nn_evaluate_rows(tutti_nn *nn, const float *x, const uint32_t *rows, const uint8_t *labels, int64_t samples, const float *const *values,
                                    double *loss_sum, int64_t *correct, float *logits, tutti_error *err);
bool tutti_nn_classifies(const tutti_nn *nn); /* false: quadratic, which has a loss but no accuracy */
void tutti_nn_flops(const tutti_nn *nn, double *forward, double *backward);   /* a sample; two for a product and its sum, products of layers only */
/* Where the time of the passes since the last call went, of a network opened with a clock: forward and backward of each layer in seconds, and the products among its operations. Layers of tokens one
   by one; others as units: a layer with parameters and those that follow it without any. Gives how many there are, writes at most `room`, begins anew. */
typedef struct tutti_nn_time { char name[40]; double forward, backward, flops; } tutti_nn_time;
int tutti_nn_times(tutti_nn *nn, tutti_nn_time *times, int room);
/* The yardstick: operations a second (two for a product and its sum) of oneDNN's product of matrices of 1024 x 1024, operands given in `precision` (as in
   tutti_nn_options) and the result in float32, the median of `seconds` of them, on so many threads (0: 1). */
tutti_status tutti_nn_product_rate(struct tutti_runtime *clock, int threads, tutti_dtype precision, double seconds, double *rate, tutti_error *err);
size_t tutti_nn_bytes(const tutti_nn *nn);                                     /* activations and scratch it holds */
bool tutti_nn_widens(const tutti_nn *nn);                                      /* of a precision of 16 bits: some products are computed in float32, so they take no less time than those */
/* For tests and reports: "conv2d 0 forward: jit:avx512_core" a line a primitive of a full pass; gives strlen as snprintf. */
int tutti_nn_describe(const tutti_nn *nn, char *text, size_t bytes);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
