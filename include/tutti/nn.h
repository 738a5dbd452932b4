/* nn.h: networks as lists of layers, run by a backend. One backend computes fast (oneDNN), one is
   the scalar reference that the tests hold it to.

   A network keeps no parameters. They are pointers into the engine's flat vectors, in PyTorch's
   layout. A network is used by one thread at a time. Networks share nothing, so each worker may run
   its own on a thread of its own. */
#ifndef TUTTI_NN_H
#define TUTTI_NN_H
#include "device.h"
#include "options.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* ---- layers and tasks ---- */
/* QUADRATIC is a network by itself: one vector x as parameter. A sample xi has the loss
   1/2 sum_j lambda_j (x_j - xi_j)^2 (problem.h).

   Layers of networks of tokens work on rows, a row a token. Such networks begin with an embedding
   and take linear layers too. ROTARY stands between the linear layer that gives queries, keys and
   values and its attention, with as many heads. It turns queries and keys by their places (Su et
   al. 2021), base 10000, halves of a head as pairs. DROPOUT (Srivastava et al. 2014) gives in
   training 0 with probability `rate`, else the value times 1 / (1 - rate); tutti_nn_draw says by
   which draws.

   Recurrent layers begin every window with zeros. No attention or positions stand beside them. LSTM
   is a long short-term memory of `out` values. With `both` there is another from the last row to
   the first; its values stand behind, so rows have 2 out. Parameters are those of PyTorch's LSTM of
   one layer. FRAMES stands in place of the embedding: a sample of 1 x height x width values is a
   window of `height` rows of `width` values, with one label. MEAN gives the mean of a window's
   rows, as one row; of frames, once. What follows works on rows of samples.

   BATCH_NORM works on images, over a block's samples and places of each channel: eps 1e-5, with
   weight, bias and running statistics. */
typedef enum {
    TUTTI_LAYER_LINEAR,
    TUTTI_LAYER_CONV2D,
    TUTTI_LAYER_RELU,
    TUTTI_LAYER_MAXPOOL2D,
    TUTTI_LAYER_FLATTEN,
    TUTTI_LAYER_QUADRATIC,
    TUTTI_LAYER_EMBEDDING,       /* a token's row of `out` values */
    TUTTI_LAYER_POSITIONS,       /* after it: adds a learned row for each place of the window */
    TUTTI_LAYER_LAYER_NORM,      /* eps 1e-5, with weight and bias */
    /* Causal, `heads` heads. Rows are queries, keys and values, one after another, each of
       heads x width values. */
    TUTTI_LAYER_ATTENTION,
    TUTTI_LAYER_GELU,            /* with the error function */
    /* Join adds the rows that stood at its branch; pairs may stand within each other. Of images
       they join as said at batch norms, below. */
    TUTTI_LAYER_BRANCH,
    TUTTI_LAYER_JOIN,
    TUTTI_LAYER_RMS_NORM,        /* eps 1e-5, with weight (Zhang, Sennrich 2019) */
    TUTTI_LAYER_ROTARY,
    TUTTI_LAYER_DROPOUT,
    TUTTI_LAYER_LSTM,
    TUTTI_LAYER_FRAMES,
    TUTTI_LAYER_MEAN,
    TUTTI_LAYER_BATCH_NORM,
    TUTTI_LAYER_AVGPOOL,         /* of images: the mean over all places, a value a channel */
    /* Begins a network of categories: a row of `out` values from the table of each category, one
       after another, then the sample's own values. */
    TUTTI_LAYER_TABLES,
    /* In no list: rows from the stage before and to the next, at the ends of a stage (stages.h). */
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
       layers; its gradient is the sum. */
    bool tied;
    bool both;                   /* lstm: in both directions */
    /* Linear, of tokens: tiles > 1: it is tile `tile` of so many, which stand one after another in
       the list. Each reads what tile 0 is given, and their outputs stand side by side, so together
       they are one linear layer. Each has parameters, hooks and a unit of its own. */
    int tile, tiles;
    /* A segment begins here (activation checkpointing, Chen et al. 2016). So do layers before the
       first such. Of all segments but the last, only what goes to the next is kept from forward,
       and backward computes again what it reads. The bits are the same. Only a norm or an lstm can,
       of images a conv2d, of chains of plain convolutions the first linear layer. What goes into it
       is all that goes on: a branch is joined before it or stands directly before it. */
    bool segment;
    /* Of tokens: its matrix starts normal with this deviation. 0: linear layers as
       tutti_nn_initialise says, tables with 1. */
    double deviation;
    /* Its parameters are called name.weight and name.bias. "": its index, which is the only way in
       lists of linear, conv2d, relu, maxpool2d and flatten alone. */
    char name[16];
} tutti_layer;

/* The task, one of three:
     1. Samples of channels x height x width floats, with one label in [0, classes) each.
     2. context > 0: windows of so many tokens in [0, classes), with the token after each as its
        label. channels, height and width are then of no matter.
     3. tables > 0: values as in 1 beside so many categories, category t being a row below `rows` of
        table t. Two classes. */
typedef struct tutti_nn_task {
    int channels, height, width, classes, context, tables;
    uint32_t rows;
} tutti_nn_task;

/* ---- models: named lists of layers.

     mlp(hidden=1024)           without flatten: 784-1024-1024-10
     cnn                        conv3x3x32, ReLU, pool 2, conv3x3x64, ReLU, pool 2, flatten, fc128,
                                ReLU, fc classes; images of 10x10 and more
     logistic                   fc classes: softmax regression on any data; its options speak of its
                                own data
     quadratic(...)             options as in problem.h; dim is that of the samples
     gpt(layers,dim,heads,context,vocab)
                                the GPT of peers/train.py, for tokens; its other options choose
                                among layers
     wordlm(vocab,dim,hidden)   for tokens: embedding, lstm, linear to dim if hidden is another,
                                linear to the vocabulary
     blstm(layers,hidden)       samples of 1 x frames x features: lstm in both directions, `layers`
                                times, mean over the rows, linear
     resnet(depth=6n+2)         He et al. 2016, section 4.2: conv3x3(16), batch norm, ReLU; three
                                stages of n blocks of two 3x3 convolutions with 16, 32, 64 channels,
                                stride 2 between; mean over places, fc classes
     vgg(small)                 three times two 3x3 convolutions with batch norm (32, 64, 128
                                channels) and pooling; fc 256, ReLU, fc classes
     ctr(tables,rows,dim,...)   for categories: tables and linear layers with ReLU to one logit

   With recompute=on (cnn, gpt, blstm, resnet, vgg) each block begins a segment (tutti_layer) and
   keeps what goes into it alone; of cnn the convolutions do. mlp and wordlm would hold no less:
   where backward needs most, it needs all that they have.

   Indexes of parameters of mlp (0, 2, 4) and cnn (0, 3, 7, 9) are those of peers/train.py's
   Sequential. ---- */
typedef struct tutti_model_ops {
    const char *name, *title;
    const tutti_option *options;
    size_t self_bytes;
    /* Writes at most `room` layers, gives how many. Refuses tasks that it cannot take with a
       sentence. */
    tutti_status (*layers)(const void *self, const tutti_nn_task *task, tutti_layer *layers,
                           int room, int *count, tutti_error *err);
    bool tokens;                 /* its samples are windows of tokens */
    bool categories;             /* its samples have categories */
} tutti_model_ops;
extern const tutti_model_ops *const tutti_models[]; /* registry; NULL-ended */

/* model: a spec; false for a text that is none. */
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
    float deviation;             /* if not 0, values start normal with this deviation instead */
    /* How many of its unit stand before it with as many dimensions: 0 but for lstm. */
    int nth;
    /* A table: a pass changes the gradient of those rows only that its samples name. */
    bool row_sparse;
} tutti_nn_param;

/* ---- batch norms. In training a block (64 samples, below) is normalised by the mean and variance
   of its own samples, whichever worker computes it. So one worker with 256 samples and four with 64
   compute the same bits, and a block is what PyTorch calls a batch. A last block of one sample and
   one place a channel gives the bias.

   Running statistics are a mean and a variance a channel. They are no parameters: nothing is
   exchanged or optimised, they are a worker's own. A pass that ends well moves them by 0.1 towards
   the mean over its blocks, weighted by samples, of the blocks' mean and unbiased variance. So the
   mean over workers of what each has is what one worker with all their samples would have. Of a
   channel whose mean over the blocks is not finite nothing moves.

   Evaluation uses them, in place of the block's. A client that trains with several workers takes
   that mean before evaluating, and only then. With the engine they are client state (engine.h),
   averaged over the workers whenever the model is shown, whatever the method. (PyTorch's DDP sends
   those of rank 0 around before each forward, so that 1 / workers of the samples are seen. Its
   local and gossip methods average them as parameters or not at all.)

   Branch and join of images: if the body has changed the shape, the branch's values are taken at
   every stride-th place, and channels that are new get nothing added (He et al. 2016, section 4.2,
   option A: no parameters, and what they use on CIFAR). ---- */
typedef struct tutti_nn_statistic {
    char name[32];               /* "n0.running_mean", "n0.running_var": PyTorch's */
    size_t first, count;         /* place in the vector of tutti_nn_running; a value a channel */
    float start;                 /* means 0, variances 1 */
} tutti_nn_statistic;

/* In the order of the layers, mean before variance. room, *count as for tutti_nn_params. */
tutti_status tutti_nn_statistics(const char *model, const tutti_nn_task *task,
                                 tutti_nn_statistic *statistics, int room, int *count,
                                 tutti_error *err);

/* Parameters in the order in which their gradients become ready: last layer first, weight before
   bias. Needs no backend. room: of params. *count is always the number there is. */
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

/* precision: what weights, activations and slopes are rounded to, nearest even, on their way into a
   product of a linear layer, a convolution or an lstm. TUTTI_F32 (0), TUTTI_BF16 or TUTTI_F16; the
   latter two only of backend onednn. Products add in float32. Everything else, given values and
   gradients too, is float32 (Micikevicius et al. 2018). It is part of what fixes the bits. F16
   overflows above 65504: a slope that does makes gradients infinite or NaN, so training with it
   needs a scaled loss (engine.h, loss_scale). Where oneDNN has no such product for this CPU, the
   same rounded operands are multiplied in float32, slower than F32: tutti_nn_widens tells. */
typedef struct tutti_nn_options {
    /* "onednn" (default, NULL) or "reference"; quadratic: the same bits on both. */
    const char *backend;
    /* Samples of a full pass, 1 to 2^20. Smaller passes are legal. Their plans are made at first
       use; those of eight sizes are kept. Only these first uses, evaluation's, and that of `add` in
       a pass of several blocks allocate. */
    int64_t batch;
    /* Of the backend, for the calling thread; 0: 1. Part of what fixes the bits. */
    int threads;
    tutti_dtype precision;
    /* Kept; running statistics are here, as tutti_nn_statistics lays them out, and have their
       values. NULL: nn's own memory, at their start. */
    float *running;
    /* Kept; charged with each layer's flops; its level is that of nn's own loops. NULL: nothing is
       charged. */
    tutti_device *device;
    /* The blocks of a pass go through the network side by side, unit by unit, not one after
       another. A unit's gradient is then complete before the next unit's begins: gradients[k] is
       written from its unit's first need in backward to its ready and at no other time, so units
       may have the same memory, one after the other. The bits, and what is called when, are the
       same. Of gradients no set is held, but a tied matrix's of each block; copies of weights in 16
       bits are one unit's. Of activations those of all blocks are. Units with convolutions count as
       one. */
    bool by_unit;
    /* Passes will add: the set of gradients for that is taken while opening. Else it is by the
       first such pass of several blocks. */
    bool adds;
    /* Of tokens: windows that an evaluation takes at a time, at most; 0: as many as have 1024
       tokens. For who asks about one at a time. A network with an lstm takes what it takes. */
    int64_t windows;
    struct tutti_runtime *clock; /* kept; times layers (tutti_nn_times); NULL: they are not timed */
} tutti_nn_options;
tutti_status tutti_nn_open(tutti_nn **out, const char *model, const tutti_nn_task *task,
                           const tutti_nn_options *options, tutti_error *err);
void tutti_nn_close(tutti_nn *nn);

/* gradients[k] := where params[k]'s may go, in memory of the network's own that units take one
   after another: as much as its largest unit has, and a tied matrix by itself. So whoever hands
   gradients on when they are ready holds no more. For passes without `add`. Of tables (row_sparse)
   they are NULL, which leaves their rows where tutti_nn_rows finds them. Valid until nn is closed.
   TUTTI_ERR_USAGE: not by_unit, and a pass may have several blocks. */
tutti_status tutti_nn_unit_gradients(tutti_nn *nn, float **gradients, tutti_error *err);

/* Within ready_rows of that table: its rows, one behind the other in the order of ids. */
const float *tutti_nn_rows(const tutti_nn *nn, int param);

/* The running statistics, until nn is closed. The caller may read and write them between passes.
   *count: floats in all. NULL: the model has none. */
float *tutti_nn_running(tutti_nn *nn, size_t *count);

/* Called between the layers of a pass, on the calling thread. Each may block. A failure ends the
   pass with its status. Members may be NULL. unit: as in params.

   need, done: values of a unit are read only between its need and its done, twice: forward, then
   backward. values[k] itself is looked at then only, so it may be set in need and point elsewhere
   each time. Where another unit's may stand afterwards, done sets it to NULL: products in 16 bits
   know a weight by where it stands. Unit 0 whose matrix is also the last layer's stays needed until
   that one is done, and from there on in backward.

   ready: the gradient of params[param] is final for this pass and not touched by it again. It is
   called between the unit's two halves of backward, so that its exchange overlaps the second.

   Units with convolutions run in tiles of a few samples and are one block: all needed before its
   first tile, done after its last. So the order of the calls does not depend on the number of
   samples, and is the same without any:

     cnn, forward:   need 0 1, done 0 1, need 2, done 2, need 3, done 3
          backward:  need 3, ready, done 3, need 2, ready, done 2,
                     need 1 0, ready (unit 1), ready (unit 0), done 1 0

   Networks with batch norms or branches run unit by unit, convolutions too, each needed and done by
   itself; a batch norm is a unit. A pass of more than 64 samples runs in blocks of 64: a unit is
   needed in the first block's forward and done in the last one's, and backward calls come in the
   last block.

   Before backward of a segment whose values are computed again, those of its units that take part
   in that are needed, the first first. Each stays so until it is done in backward. */
typedef struct tutti_nn_hooks {
    void *user;
    tutti_status (*need)(void *user, int unit, bool backward, tutti_error *err);
    tutti_status (*done)(void *user, int unit, bool backward, tutti_error *err);
    tutti_status (*ready)(void *user, int param, tutti_error *err);
    /* In place of ready, for parameters with row_sparse: the n rows ids[0] < ids[1] < ... are all
       that this pass has added to. With this hook gradients of such parameters must come as 0, or
       from earlier passes with `add`; other rows are neither read nor written. Without it the whole
       gradient is written, like any other. */
    tutti_status (*ready_rows)(void *user, int param, const uint32_t *ids, size_t n,
                               tutti_error *err);
    /* For parameters with row_sparse, once a pass, before the first need: the n rows ids[0] <
       ids[1] < ... are all that this pass reads. They may be old or without meaning until it
       returns. */
    tutti_status (*need_rows)(void *user, int param, const uint32_t *ids, size_t n,
                              tutti_error *err);
} tutti_nn_hooks;

/* Forward and backward over `samples` samples. x: samples x channels x height x width; labels:
   samples. values[k], gradients[k]: of params[k]. May block in a hook.

   Loss: softmax cross-entropy, or the quadratic's. *loss_sum: sum of the samples' losses. Gradient:
   of (sum of the samples' losses) / divisor, written, or added if `add`. It is the binary tree sum
   over blocks of 64 samples: a batch of 256 gives the bits of four batches of 64 added in that
   tree. For n blocks that takes floor(log2(n)) gradient sets, the caller's among them (with `add`
   one more), and room for the gradients of the largest layer.

   same_weights: values have not changed since the last call. Otherwise weights are prepared anew
   (blocked copies of convolutions). samples = 0: writes zero gradients (unless add) and announces
   them all.

   Failures, before the first hook: TUTTI_ERR_CORRUPT, a label that is no class, with its index and
   value. TUTTI_ERR_USAGE: samples > batch, or a divisor that is not positive and finite. After any
   failure the gradients are undefined and the next pass is as good as the first. A NaN in a value
   need not reach the loss (ReLU on oneDNN turns it into 0). */
tutti_status tutti_nn_pass(tutti_nn *nn, const float *x, const uint8_t *labels, int64_t samples,
                           double divisor, bool add, bool same_weights,
                           const float *const *values, float *const *gradients,
                           const tutti_nn_hooks *hooks, double *loss_sum, tutti_error *err);

/* The same for tokens. tokens, next: samples x context each, next[i] the token after tokens[i]. A
   sample's loss is the mean over its tokens. Blocks are as many windows, a power of two up to 64,
   as have at most 1024 tokens, and at least one. TUTTI_ERR_CORRUPT: a token that is none of the
   vocabulary. */
tutti_status tutti_nn_pass_tokens(tutti_nn *nn, const uint32_t *tokens, const uint32_t *next,
                                  int64_t samples, double divisor, bool add, bool same_weights,
                                  const float *const *values, float *const *gradients,
                                  const tutti_nn_hooks *hooks, double *loss_sum,
                                  tutti_error *err);

/* Dropout's draws of the passes that follow: sample k of a pass takes those of (seed, first + k),
   whichever worker computes it and however a batch is cut. first: as a rule how many samples the
   run took before. Without a call (0, 0). Evaluation drops nothing. */
void tutti_nn_draw(tutti_nn *nn, uint64_t seed, uint64_t first);

/* Passes that follow leave running statistics as they are; false: they move them again. */
void tutti_nn_hold_statistics(tutti_nn *nn, bool hold);

/* Passes that follow write the loss of their sample k to losses[k], each rounded from what loss_sum
   adds up. NULL, as at first: they do not, and it costs nothing. */
void tutti_nn_losses(tutti_nn *nn, float *losses);

/* Evaluations that follow call need and done (backward false) as a pass does, the others not: once
   each for every run of at most tutti_nn_look_samples samples, and once where there are none. So
   workers that gather values unit by unit, with equal numbers of runs, meet. Kept. NULL, as at
   first: they call nothing. */
void tutti_nn_look(tutti_nn *nn, const tutti_nn_hooks *hooks);
int64_t tutti_nn_look_samples(const tutti_nn *nn);

/* Evaluations that follow write the logits of their sample k to outputs: `classes` floats a sample,
   one sample behind the other. Of tokens: those of the token at `place` of each window, or with
   place -1 of each of its tokens, in their order. NULL, as at first: they do not. Not for
   quadratics, nor for samples with categories (tutti_nn_evaluate_rows has those). */
void tutti_nn_outputs(tutti_nn *nn, float *outputs, int place);

/* As tutti_nn_pass, for samples with categories. rows: samples x tables, each below task.rows; x
   and labels as for images. The loss is the binary cross-entropy of one logit. TUTTI_ERR_CORRUPT: a
   row that is none of the table, with its sample and table. */
tutti_status tutti_nn_pass_rows(tutti_nn *nn, const float *x, const uint32_t *rows,
                                const uint8_t *labels, int64_t samples, double divisor, bool add,
                                bool same_weights, const float *const *values,
                                float *const *gradients, const tutti_nn_hooks *hooks,
                                double *loss_sum, tutti_error *err);

/* Forward only, any number of samples (cut into pieces). A sample's loss has the same bits whatever
   stands round it. Calls no hook but those of tutti_nn_look. *correct: for how many the largest
   output is the label's, ties going to the lowest class; 0 where tutti_nn_classifies is false. */
tutti_status tutti_nn_evaluate(tutti_nn *nn, const float *x, const uint8_t *labels,
                               int64_t samples, const float *const *values, double *loss_sum,
                               int64_t *correct, tutti_error *err);

/* The same for tokens. *correct: tokens, not samples, that the largest output tells. */
tutti_status tutti_nn_evaluate_tokens(tutti_nn *nn, const uint32_t *tokens, const uint32_t *next,
                                      int64_t samples, const float *const *values,
                                      double *loss_sum, int64_t *correct, tutti_error *err);

/* The same for categories. *correct: a logit above 0 tells class 1. logits: NULL, or samples: where
   each sample's logit goes (its rank among all is what an AUC needs). */
tutti_status tutti_nn_evaluate_rows(tutti_nn *nn, const float *x, const uint32_t *rows,
                                    const uint8_t *labels, int64_t samples,
                                    const float *const *values, double *loss_sum,
                                    int64_t *correct, float *logits, tutti_error *err);

/* false: quadratic, which has a loss but no accuracy. */
bool tutti_nn_classifies(const tutti_nn *nn);

/* Of a sample: two for a product and its sum, products of layers only. */
void tutti_nn_flops(const tutti_nn *nn, double *forward, double *backward);

/* Where the time of the passes since the last call went, of a network opened with a clock: forward
   and backward of each layer in seconds, and the products among its operations. Layers of tokens
   one by one; others as units: a layer with parameters and those that follow it without any. Gives
   how many there are, writes at most `room`, begins anew. */
typedef struct tutti_nn_time {
    char name[40];
    double forward, backward, flops;
} tutti_nn_time;
int tutti_nn_times(tutti_nn *nn, tutti_nn_time *times, int room);

/* The yardstick: operations a second (two for a product and its sum) of oneDNN's product of
   matrices of 1024 x 1024. Operands are given in `precision` (as in tutti_nn_options), the result
   in float32. The median of as many products as take `seconds`, on so many threads (0: 1). */
tutti_status tutti_nn_product_rate(struct tutti_runtime *clock, int threads,
                                   tutti_dtype precision, double seconds, double *rate,
                                   tutti_error *err);

/* Of activations and scratch that it holds. */
size_t tutti_nn_bytes(const tutti_nn *nn);

/* The most that it has held so far: an evaluation may need more for its time than a pass. */
size_t tutti_nn_bytes_most(const tutti_nn *nn);

/* Of a precision of 16 bits: some products are computed in float32, so they take no less time than
   those. */
bool tutti_nn_widens(const tutti_nn *nn);

/* For tests and reports: "conv2d 0 forward: jit:avx512_core", a line a primitive of a full pass;
   gives strlen, as snprintf. */
int tutti_nn_describe(const tutti_nn *nn, char *text, size_t bytes);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
