/* nn.h: networks as lists of layers, run by a backend. One backend is fast (oneDNN), the other is
   the scalar reference against which the tests compare it.

   A network owns no parameters. They are pointers into the engine's flat vectors, in PyTorch's
   layout. A network is used by one thread at a time. Networks share nothing, so each worker may
   run its own on a separate thread. */
#ifndef TUTTI_NN_H
#define TUTTI_NN_H
#include "tutti/runtime.h"
#include "tutti/base.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* ---- layers and tasks ---- */
/* QUADRATIC is a network by itself: one vector x as parameter. A sample xi has the loss
   1/2 sum_j lambda_j (x_j - xi_j)^2 (problem.h).

   Layers of networks of tokens work on rows, one row per token. Such networks begin with an
   embedding and may have linear layers too. ROTARY comes between the linear layer that computes
   queries, keys and values and its attention, with the same number of heads. It rotates queries
   and keys by their positions (Su et al. 2021), base 10000, halves of a head as pairs. DROPOUT
   (Srivastava et al. 2014) in training yields 0 with probability `rate`, else the value times 1 /
   (1 - rate); tutti_nn_draw sets the random draws.

   Recurrent layers begin every window with zeros. They cannot be combined with attention or
   positions. LSTM is a long short-term memory of `out` values. With `both` there is another from
   the last row to the first; its values follow, so rows have 2 out. Parameters are those of
   PyTorch's LSTM of one layer. FRAMES replaces the embedding: a sample of 1 x height x width
   values is a window of `height` rows of `width` values, with one label. MEAN yields the mean of
   a window's rows, as one row; for frames, once. The layers after it work on one row per sample.

   BATCH_NORM works on images, over a block's samples and positions of each channel: eps 1e-5,
   with weight, bias and running statistics. */
typedef enum {
    TUTTI_LAYER_LINEAR,
    TUTTI_LAYER_CONV2D,
    TUTTI_LAYER_RELU,
    TUTTI_LAYER_MAXPOOL2D,
    TUTTI_LAYER_FLATTEN,
    TUTTI_LAYER_QUADRATIC,
    TUTTI_LAYER_EMBEDDING,       /* a token's row of `out` values */
    TUTTI_LAYER_POSITIONS,       /* after it: adds a learned row for each position */
    TUTTI_LAYER_LAYER_NORM,      /* eps 1e-5, with weight and bias */
    /* Causal, `heads` heads. Rows are queries, keys and values, one after another, each of
       heads x width values. */
    TUTTI_LAYER_ATTENTION,
    TUTTI_LAYER_GELU,            /* with the error function */
    /* Join adds the rows as they were at its branch; pairs may be nested. For images see the
       comment on batch norms below. */
    TUTTI_LAYER_BRANCH,
    TUTTI_LAYER_JOIN,
    TUTTI_LAYER_RMS_NORM,        /* eps 1e-5, with weight (Zhang, Sennrich 2019) */
    TUTTI_LAYER_ROTARY,
    TUTTI_LAYER_DROPOUT,
    TUTTI_LAYER_LSTM,
    TUTTI_LAYER_FRAMES,
    TUTTI_LAYER_MEAN,
    TUTTI_LAYER_BATCH_NORM,
    TUTTI_LAYER_AVGPOOL,         /* of images: the mean over all positions, one per channel */
    /* Begins a network of categories: the rows of `out` values from each category's table,
       concatenated, then the sample's own values. */
    TUTTI_LAYER_TABLES,
    /* Not used in lists: rows from the previous stage and to the next, at the ends of a stage
       (stages.h). */
    TUTTI_LAYER_ENTER,
    TUTTI_LAYER_LEAVE
} tutti_layer_kind;

typedef struct tutti_layer {
    tutti_layer_kind kind;
    int out;                     /* features (linear), channels (conv2d) */
    int kernel;                  /* conv2d: kernel x kernel; maxpool2d: kernel = stride, floor */
    /* conv2d: windows move by stride (0: 1) over an image with `padding` zeros on each side. groups
       (0: 1) divides the channels before and after. */
    int stride, padding, groups;
    double condition;            /* quadratic: lambda falls from 1 to 1 / condition */
    bool simplex;                /* quadratic: x starts at 1 / dim, not at 0 */
    int heads;                   /* attention, rotary */
    double rate;                 /* dropout: 0 to below 1, in steps of 2^-16 */
    bool bare;                   /* linear, of tokens, and conv2d: no bias */
    /* The last linear layer, of tokens, bare: its matrix is the embedding's. One parameter of two
       layers; its gradient is the sum of both. */
    bool tied;
    bool both;                   /* lstm: in both directions */
    /* Linear, of tokens: tiles > 1: this is tile `tile` of that many, which are consecutive in
       the list. Each reads tile 0's input, and their outputs are concatenated, so together they
       are one linear layer. Each has its own parameters, hooks and unit. */
    int tile, tiles;
    /* A segment begins here (activation checkpointing, Chen et al. 2016). The layers before the
       first such layer are a segment too. Of all segments but the last, forward keeps only the
       input of the next, and backward recomputes what it reads. The bits are the same. A segment
       may begin only with a norm or an lstm, for images with a conv2d, in chains of plain
       convolutions with the first linear layer. Its input must be all that later layers need: a
       branch is joined before it or comes directly before it. */
    bool segment;
    /* Of tokens: its matrix is initialised from a normal distribution with this deviation. 0:
       linear layers as tutti_nn_initialise describes, tables with 1. */
    double deviation;
    /* Its parameters are called name.weight and name.bias. "": its index is the name, as is
       always so in lists of linear, conv2d, relu, maxpool2d and flatten only. */
    char name[16];
} tutti_layer;

/* The task, one of three:
     1. Samples of channels x height x width floats, with one label in [0, classes) each.
     2. context > 0: windows of that many tokens in [0, classes), with the token after each as its
        label. channels, height and width are then ignored.
     3. tables > 0: values as in 1 and that many categories, category t being a row below `rows` of
        table t. Two classes. */
typedef struct tutti_nn_task {
    int channels, height, width, classes, context, tables;
    uint32_t rows;
} tutti_nn_task;

/* ---- models: named lists of layers.

     mlp(hidden=1024)           without flatten: 784-1024-1024-10
     cnn                        conv3x3x32, ReLU, pool 2, conv3x3x64, ReLU, pool 2, flatten, fc128,
                                ReLU, fc classes; images of 10x10 and more
     logistic                   fc classes: softmax regression on any data; its options concern its
                                own data
     quadratic(...)             options as in problem.h; dim is that of the samples
     gpt(layers,dim,heads,context,vocab)
                                the GPT of peers/train.py, for tokens; its other options select
                                kinds of layers
     wordlm(vocab,dim,hidden)   for tokens: embedding, lstm, linear to dim if hidden differs,
                                linear to the vocabulary
     blstm(layers,hidden)       samples of 1 x frames x features: lstm in both directions, `layers`
                                times, mean over the rows, linear
     resnet(depth=6n+2)         He et al. 2016, section 4.2: conv3x3(16), batch norm, ReLU; three
                                stages of n blocks of two 3x3 convolutions with 16, 32, 64 channels,
                                stride 2 between; mean over places, fc classes
     vgg(small)                 three times two 3x3 convolutions with batch norm (32, 64, 128
                                channels) and pooling; fc 256, ReLU, fc classes
     ctr(tables,rows,dim,...)   for categories: tables and linear layers with ReLU to one logit

   With recompute=on (cnn, gpt, blstm, resnet, vgg) each block is a segment (tutti_layer), and
   only its input is kept; in cnn the convolutions are one. For mlp and wordlm it would save
   nothing: at its peak, backward needs all activations.

   Indexes of parameters of mlp (0, 2, 4) and cnn (0, 3, 7, 9) are those of peers/train.py's
   Sequential. ---- */
typedef struct tutti_model_ops {
    const char *name, *title;
    const tutti_option *options;
    size_t self_bytes;
    /* Writes as many layers as fit; *count: their number. Refuses unsupported tasks with a
       sentence. */
    tutti_status (*layers)(const void *self, const tutti_nn_task *task, tutti_layer *layers,
                           int room, int *count, tutti_error *err);
    bool tokens;                 /* its samples are windows of tokens */
    bool categories;             /* its samples have categories */
} tutti_model_ops;
extern const tutti_model_ops *const tutti_models[]; /* registry; NULL-ended */

/* model: a spec; false for an invalid one. */
bool tutti_nn_takes_tokens(const char *model);
bool tutti_nn_takes_categories(const char *model);

/* ---- parameters ---- */
typedef struct tutti_nn_param {
    /* "0.weight": nn.Sequential's, or the layer's name. quadratic: "x". Also
       "lstm.weight_hh_l0_reverse". */
    char name[40];
    int unit;                    /* index among the layers with parameters, from the input */
    int dims;
    size_t dim[4];               /* PyTorch's: linear (out, in), conv (out, in, k, k), bias (out) */
    /* rows x cols = count: the matrix view (out x rest); of a bias count x 1. */
    size_t count, rows, cols;
    size_t fan_in;               /* of its layer; quadratic, tables and norms: 0 */
    float start;                 /* initial value of every element if fan_in is 0 */
    float deviation;             /* if not 0: normal initial values with this deviation instead */
    /* How many parameters of its unit with the same number of dimensions precede it: 0 except for
       lstm. */
    int nth;
    /* A table: a pass changes the gradient only of the rows that its samples refer to. */
    bool row_sparse;
} tutti_nn_param;

/* ---- batch norms. In training a block (64 samples, below) is normalised by the mean and
   variance of its own samples, whichever worker computes it. So one worker with 256 samples and
   four with 64 compute the same bits, and a block is what PyTorch calls a batch. A last block
   with one sample and one position per channel yields the bias.

   Running statistics are a mean and a variance per channel. They are not parameters: they are
   neither exchanged nor optimised, and each worker has its own. A successful pass moves them by
   0.1 towards the mean over its blocks, weighted by samples, of the blocks' mean and unbiased
   variance. So the mean over the workers of their statistics is what one worker with all their
   samples would have. Those of a channel whose mean over the blocks is not finite do not change.

   Evaluation uses them instead of the block's. A client that trains with several workers uses
   that mean before evaluating, and only then. With the engine they are client state (tutti.h),
   averaged over the workers in each evaluation, whatever the method. (PyTorch's DDP broadcasts
   those of rank 0 before each forward, so that only 1 / workers of the samples count. Its local
   and gossip methods average them as parameters or not at all.)

   Branch and join of images: if the body has changed the shape, the branch's values are sampled
   at every stride-th position, and nothing is added to new channels (He et al. 2016, section 4.2,
   option A: no parameters, as they use it on CIFAR). ---- */
typedef struct tutti_nn_statistic {
    char name[32];               /* "n0.running_mean", "n0.running_var": PyTorch's */
    size_t first, count;         /* range in the vector of tutti_nn_running; one per channel */
    float start;                 /* means 0, variances 1 */
} tutti_nn_statistic;

/* In the order of the layers, mean before variance. Capacity and *count as for tutti_nn_params. */
tutti_status tutti_nn_statistics(const char *model, const tutti_nn_task *task,
                                 tutti_nn_statistic *statistics, int room, int *count,
                                 tutti_error *err);

/* Parameters in the order in which their gradients become ready: last layer first, weight before
   bias. Needs no backend. Writes as many as fit; *count is always the total number. */
tutti_status tutti_nn_params(const char *model, const tutti_nn_task *task, tutti_nn_param *params,
                             int room, int *count, tutti_error *err);

/* First values, PyTorch's defaults: uniform in +-1/sqrt(fan_in) for weights and biases. For an LSTM
   fan_in is its `out` for all, as in PyTorch.

   Element i is from index i of the rng (seed, stream = forward_index, step 0). forward_index is the
   parameter's index in forward order: 2 unit for a weight, 2 unit + 1 for a bias, and 2^40
   param->nth on top. With a deviation: tutti_normal of the same rng times it. quadratic and norms:
   all param->start, whatever the seed. */
void tutti_nn_initialise(const tutti_nn_param *param, int forward_index, uint64_t seed,
                         float *values);

/* ---- a network ready to run ---- */
typedef struct tutti_nn tutti_nn;

/* precision: the type to which weights, activations and slopes are rounded, to nearest even, as
   operands of a product of a linear layer, a convolution or an lstm. TUTTI_F32 (0), TUTTI_BF16 or
   TUTTI_F16; the latter two only of backend onednn. Products add in float32. Everything else,
   given values and gradients too, is float32 (Micikevicius et al. 2018). It is part of what
   determines the bits. F16 overflows above 65504: a slope that does makes gradients infinite or
   NaN, so training with it needs a scaled loss (tutti.h, loss_scale). Where oneDNN has no such
   product for this CPU, the same rounded operands are multiplied in float32, slower than F32
   (tutti_nn_widens). */
typedef struct tutti_nn_options {
    /* "onednn" (default, NULL) or "reference"; quadratic: the same bits on both. */
    const char *backend;
    /* Samples of a full pass, 1 to 2^20. Smaller passes are legal. Their plans are made at first
       use; those of eight sizes are kept. Only the first use of a size, of evaluation, and of
       `add` in a pass of several blocks allocates. */
    int64_t batch;
    /* Threads of the backend, for the calling thread; 0: 1. Part of what determines the bits. */
    int threads;
    tutti_dtype precision;
    /* The pointer is kept; memory of the running statistics, as tutti_nn_statistics lays them
       out, already initialised. NULL: the network's own memory, with initial values. */
    float *running;
    /* The pointer is kept; charged with each layer's flops; its level is that of nn's own loops.
       NULL: nothing is charged. */
    tutti_device *device;
    /* All blocks of a pass go through a unit before any goes through the next, instead of block
       after block. A unit's gradient is then complete before the next unit's begins: gradients[k]
       is written only from its unit's first unit_acquire in backward to its grad_ready, so units
       may use the same memory in turn. The bits, and the order of the calls, are the same. No
       gradient sets are held, except a tied matrix's of each block; 16-bit copies of weights are
       held for one unit only. Activations are held for all blocks. Units with convolutions count as
       one. */
    bool by_unit;
    /* Passes will use `add`: the set of gradients for that is allocated by open. Otherwise by the
       first such pass of several blocks. */
    bool adds;
    /* Of tokens: most windows that an evaluation computes at a time; 0: as many as have 1024
       tokens. For callers that evaluate one at a time. A network with an lstm ignores it. */
    int64_t windows;
    struct tutti_runtime *clock; /* kept; times layers (tutti_nn_times); NULL: they are not timed */
} tutti_nn_options;
tutti_status tutti_nn_open(tutti_nn **out, const char *model, const tutti_nn_task *task,
                           const tutti_nn_options *options, tutti_error *err);
void tutti_nn_close(tutti_nn *nn);

/* gradients[k] := memory for params[k]'s gradient, owned by the network, which units use in turn:
   as much as the largest unit needs, and separate memory for a tied matrix. So a caller that
   passes gradients on when they are ready needs no more. For passes without `add`. For tables
   (row_sparse) they are NULL, and tutti_nn_rows has their rows. Valid until nn is closed.
   TUTTI_ERR_USAGE: not by_unit, and a pass may have several blocks. */
tutti_status tutti_nn_unit_gradients(tutti_nn *nn, float **gradients, tutti_error *err);

/* Within grad_ready_rows of that table: its rows, contiguous in the order of ids. */
const float *tutti_nn_rows(const tutti_nn *nn, int param);

/* The running statistics, until nn is closed. The caller may read and write them between passes.
   *count: total number of floats. NULL: the model has none. */
float *tutti_nn_running(tutti_nn *nn, size_t *count);

/* Called between the layers of a pass, on the calling thread. Each may block. A failure ends the
   pass with its status. Members may be NULL. unit: as in params.

   unit_acquire, unit_release: values of a unit are read only between the two, twice: forward, then
   backward. The pointer values[k] itself is read only then, so unit_acquire may set it, each time
   to another address. If another unit may use that memory afterwards, unit_release must set it to
   NULL: products in 16 bits identify a weight by its address. A unit 0 whose matrix is also the
   last layer's stays acquired until that layer is released, and from that layer on in backward.

   grad_ready: the gradient of params[param] is final for this pass and not touched by it again. It
   is called between the unit's two halves of backward, so that its exchange overlaps the second.

   Units with convolutions run in tiles of a few samples, as one block: all are acquired before its
   first tile and released after its last. So the order of the calls does not depend on the number
   of samples, and is the same with 0 samples:

     cnn, forward:   acquire 0 1, release 0 1, acquire 2, release 2, acquire 3, release 3
          backward:  acquire 3, ready, release 3, acquire 2, ready, release 2,
                     acquire 1 0, ready (unit 1), ready (unit 0), release 1 0

   Networks with batch norms or branches run unit by unit, convolutions too, each acquired and
   released by itself; a batch norm is a unit. A pass of more than 64 samples runs in blocks of 64:
   a unit is acquired in the first block's forward and released in the last one's, and backward
   calls come in the last block.

   Before backward of a segment that is recomputed, its units that take part in that are acquired,
   in order. Each is released in backward. */
typedef struct tutti_nn_hooks {
    void *user;
    tutti_status (*unit_acquire)(void *user, int unit, bool backward, tutti_error *err);
    tutti_status (*unit_release)(void *user, int unit, bool backward, tutti_error *err);
    tutti_status (*grad_ready)(void *user, int param, tutti_error *err);
    /* Replaces grad_ready, for parameters with row_sparse: this pass has added only to the n rows
       ids[0] < ids[1] < ... With this hook gradients of such parameters must be 0 on entry, or
       from earlier passes with `add`; other rows are neither read nor written. Without it the
       whole gradient is written, like any other. */
    tutti_status (*grad_ready_rows)(void *user, int param, const uint32_t *ids, size_t n,
                                    tutti_error *err);
    /* For parameters with row_sparse, once per pass, before the first unit_acquire: this pass reads
       only the n rows ids[0] < ids[1] < ... Their values may be outdated or undefined until it
       returns. */
    tutti_status (*rows_acquire)(void *user, int param, const uint32_t *ids, size_t n,
                                 tutti_error *err);
} tutti_nn_hooks;

/* Forward and backward over `samples` samples. x: samples x channels x height x width; labels:
   samples. values[k], gradients[k]: of params[k]. May block in a hook.

   Loss: softmax cross-entropy, or the quadratic's. *loss_sum: sum of the samples' losses.
   Gradient: of (sum of the samples' losses) / divisor, written, or added if `add`. It is the
   binary tree sum over blocks of 64 samples: a batch of 256 gives the bits of four batches of 64
   added in that tree. For n blocks that needs floor(log2(n)) gradient sets, the caller's included
   (with `add` one more), and memory for the gradients of the largest layer.

   same_weights: values have not changed since the last call. Otherwise weights are prepared again
   (blocked copies of convolutions). samples = 0: writes zero gradients (unless add) and announces
   them all.

   Failures, before the first hook: TUTTI_ERR_CORRUPT, an invalid label, with its index and value.
   TUTTI_ERR_USAGE: samples > batch, or a divisor that is not positive and finite. After any
   failure the gradients are undefined, and further passes are legal. A NaN in a value need not
   reach the loss (ReLU on oneDNN turns it into 0). */
tutti_status tutti_nn_pass(tutti_nn *nn, const float *x, const uint8_t *labels, int64_t samples,
                           double divisor, bool add, bool same_weights,
                           const float *const *values, float *const *gradients,
                           const tutti_nn_hooks *hooks, double *loss_sum, tutti_error *err);

/* tutti_nn_pass for tokens. tokens, next: samples x context each, next[i] the token after
   tokens[i]. A sample's loss is the mean over its tokens. A block is the largest power of two of
   windows, up to 64, that has at most 1024 tokens, and at least one window. TUTTI_ERR_CORRUPT: a
   token outside the vocabulary. */
tutti_status tutti_nn_pass_tokens(tutti_nn *nn, const uint32_t *tokens, const uint32_t *next,
                                  int64_t samples, double divisor, bool add, bool same_weights,
                                  const float *const *values, float *const *gradients,
                                  const tutti_nn_hooks *hooks, double *loss_sum,
                                  tutti_error *err);

/* Sets dropout's random draws of later passes: sample k of a pass uses those of (seed, first +
   k), whichever worker computes it and however a batch is split. first: usually the number of
   samples of the run before this pass. Without a call (0, 0). Evaluation drops nothing. */
void tutti_nn_draw(tutti_nn *nn, uint64_t seed, uint64_t first);

/* hold true: later passes do not change running statistics; false: they change them again. */
void tutti_nn_hold_statistics(tutti_nn *nn, bool hold);

/* Later passes write the loss of their sample k to losses[k], each rounded from the term that is
   added to loss_sum. NULL, the initial state: they do not, at no cost. */
void tutti_nn_losses(tutti_nn *nn, float *losses);

/* Later evaluations call unit_acquire and unit_release (backward false) as a pass does, and no
   other hooks: once each for every run of at most tutti_nn_look_samples samples, and once where
   there are none. So workers that gather values unit by unit make matching calls if their numbers
   of runs are equal. The pointer is kept. NULL, the initial state: they call nothing. */
void tutti_nn_look(tutti_nn *nn, const tutti_nn_hooks *hooks);
int64_t tutti_nn_look_samples(const tutti_nn *nn);

/* Later evaluations write their samples' logits to outputs: `classes` floats per sample,
   contiguous. Of tokens: those of the token at `place` of each window, or with place -1 of each
   of its tokens, in their order. NULL, the initial state: they do not. Not for quadratics, nor
   for samples with categories (see tutti_nn_evaluate_rows). */
void tutti_nn_outputs(tutti_nn *nn, float *outputs, int place);

/* As tutti_nn_pass, for samples with categories. rows: samples x tables, each below task.rows; x
   and labels as for images. The loss is the binary cross-entropy of one logit. TUTTI_ERR_CORRUPT:
   a row outside its table, with its sample and table. */
tutti_status tutti_nn_pass_rows(tutti_nn *nn, const float *x, const uint32_t *rows,
                                const uint8_t *labels, int64_t samples, double divisor, bool add,
                                bool same_weights, const float *const *values,
                                float *const *gradients, const tutti_nn_hooks *hooks,
                                double *loss_sum, tutti_error *err);

/* Forward only, any number of samples (split into runs). A sample's loss has the same bits
   whatever samples surround it. Calls only the hooks of tutti_nn_look. *correct: number of
   samples whose largest output is the label's, ties going to the lowest class; 0 where
   tutti_nn_classifies is false. */
tutti_status tutti_nn_evaluate(tutti_nn *nn, const float *x, const uint8_t *labels,
                               int64_t samples, const float *const *values, double *loss_sum,
                               int64_t *correct, tutti_error *err);

/* tutti_nn_evaluate for tokens. *correct: number of tokens, not samples, that the largest output
   predicts. */
tutti_status tutti_nn_evaluate_tokens(tutti_nn *nn, const uint32_t *tokens, const uint32_t *next,
                                      int64_t samples, const float *const *values,
                                      double *loss_sum, int64_t *correct, tutti_error *err);

/* tutti_nn_evaluate for categories. *correct: a logit above 0 predicts class 1. logits: NULL, or
   an array of `samples` entries that receives each sample's logit (an AUC needs its rank among
   all). */
tutti_status tutti_nn_evaluate_rows(tutti_nn *nn, const float *x, const uint32_t *rows,
                                    const uint8_t *labels, int64_t samples,
                                    const float *const *values, double *loss_sum,
                                    int64_t *correct, float *logits, tutti_error *err);

/* false: quadratic, which has a loss but no accuracy. */
bool tutti_nn_classifies(const tutti_nn *nn);

/* Operations per sample: two for a product and its sum, products of layers only. */
void tutti_nn_flops(const tutti_nn *nn, double *forward, double *backward);

/* Times of the passes since the last call, of a network opened with a clock: forward and backward
   of each layer in seconds, and its number of product operations. Layers of tokens are listed one
   by one, others as units: a layer with parameters and the following ones without any. Returns
   how many there are, writes as many as fit, and resets the times. */
typedef struct tutti_nn_time {
    char name[40];
    double forward, backward, flops;
} tutti_nn_time;
int tutti_nn_times(tutti_nn *nn, tutti_nn_time *times, int room);

/* The yardstick: operations a second (two for a product and its sum) of oneDNN's product of
   matrices of 1024 x 1024. Operands are given in `precision` (as in tutti_nn_options), the result
   in float32. The median over as many products as take `seconds`, on that many threads (0: 1). */
tutti_status tutti_nn_product_rate(struct tutti_runtime *clock, int threads,
                                   tutti_dtype precision, double seconds, double *rate,
                                   tutti_error *err);

/* Bytes of activations and scratch that it holds. */
size_t tutti_nn_bytes(const tutti_nn *nn);

/* The peak of tutti_nn_bytes so far: an evaluation may temporarily need more than a pass. */
size_t tutti_nn_bytes_most(const tutti_nn *nn);

/* With a 16-bit precision: are some products computed in float32, and so not faster than with
   F32? */
bool tutti_nn_widens(const tutti_nn *nn);

/* For tests and reports: "conv2d 0 forward: jit:avx512_core", a line per primitive of a full
   pass; returns strlen, as snprintf. */
int tutti_nn_describe(const tutti_nn *nn, char *text, size_t bytes);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
