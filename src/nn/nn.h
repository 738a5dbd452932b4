/* nn.h: the header of module nn for other modules: networks as lists of layers, run by a backend.
   Included by train and cli. Implemented in nn.c and pass.c (networks), models.c and model_*.c
   (models), net.c (parameters), sums.c (gradients of several blocks) and rate.c. One backend is
   fast (oneDNN); the other is the scalar reference, with which the tests compare it.

   A network owns no parameters: it reads and writes them by pointers into the engine's flat
   vectors, in PyTorch's layout. A network is used by one thread at a time. Networks share nothing,
   so each worker may run its own on a separate thread.

   A *unit* is a layer with parameters and those that follow it without any. The *slope* of a value
   is the gradient of the loss with respect to it. */
#ifndef TUTTI_NN_H
#define TUTTI_NN_H
#include "tutti/base.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* ---- layers and tasks ---- */
/* Layers on rows. Networks of tokens, frames or categories are lists of layers on the rows of a
   matrix:

   - A network of tokens begins with EMBEDDING; a row is a token.
   - A network of frames begins with FRAMES: a sample of 1 x height x width values is a window of
     `height` rows of `width` values, with one label. MEAN replaces a window's rows by their mean,
     once; after it a row is a sample.
   - A network of categories begins with TABLES; a row is a sample.

   ROTARY stands between the linear layer that computes queries, keys and values and its ATTENTION,
   with the same number of heads. It rotates queries and keys by angles that depend on their
   positions (Su et al. 2021): base 10000, the two halves of a head as pairs.

   DROPOUT (Srivastava et al. 2014) yields in training 0 with probability `rate`, else the value
   times 1 / (1 - rate). tutti_nn_draw seeds it. In evaluations it does nothing.

   LSTM is a long short-term memory of `out` values, with PyTorch's parameters of an LSTM of one
   layer. Every window begins with h = c = 0. With `both` a second LSTM runs from the last row to
   the first; its values follow, so output rows have 2 x out values. An LSTM or FRAMES cannot be in
   one network with attention or positions.

   Layers on images. BATCH_NORM normalises each channel over a block's samples and positions; see
   "batch norms" below.

   QUADRATIC is a network by itself. Its parameter is one vector x. A sample xi has the loss
   1/2 sum_j lambda_j (x_j - xi_j)^2 (problem.h). */
typedef enum {
    TUTTI_LAYER_LINEAR,
    TUTTI_LAYER_CONV2D,
    TUTTI_LAYER_RELU,
    TUTTI_LAYER_MAXPOOL2D,
    TUTTI_LAYER_FLATTEN,
    TUTTI_LAYER_QUADRATIC,
    TUTTI_LAYER_EMBEDDING,       /* a token's row of `out` values */
    TUTTI_LAYER_POSITIONS,       /* after an embedding: adds a learned row for each position */
    TUTTI_LAYER_LAYER_NORM,      /* eps 1e-5, with weight and bias */
    /* Causal, with `heads` heads. An input row is a token's queries, keys and values, one after
       another, each of heads x width values. */
    TUTTI_LAYER_ATTENTION,
    TUTTI_LAYER_GELU,            /* with the error function */
    /* A residual connection. JOIN adds the values at its BRANCH to the output of the layers between
       the two, the body. Pairs may be nested. If the body of images changes the shape, see the
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
    /* Concatenates, for each category of a sample, a row of `out` values of the category's table,
       and then the sample's other values. */
    TUTTI_LAYER_TABLES,
    /* Not used in lists. The first and last layer of a stage (stages.h): it reads rows of the
       previous stage, or writes rows for the next. */
    TUTTI_LAYER_ENTER,
    TUTTI_LAYER_LEAVE
} tutti_layer_kind;

/* One layer of a list. */
typedef struct tutti_layer {
    tutti_layer_kind kind;
    int out;                     /* linear: features; conv2d: channels; embedding, tables: values of
                                    a row; lstm: values of h; quadratic: values of x */
    int kernel;                  /* conv2d: side of the window; maxpool2d: side of the window and
                                    stride, the output's sides are rounded down */
    int stride;                  /* conv2d: step of the window, in both directions; 0 is 1 */
    int padding;                 /* conv2d: zeros on each side of the image */
    int groups;                  /* conv2d: groups of the input's and the output's channels; 0 is
                                    1 */
    double condition;            /* quadratic: lambda falls from 1 to 1 / condition */
    bool simplex;                /* quadratic: x starts at 1 / dim, not at 0 */
    int heads;                   /* attention, rotary */
    double rate;                 /* dropout: 0 <= rate < 1, rounded to a multiple of 2^-16 */
    bool bare;                   /* linear (of tokens), conv2d: no bias */
    bool tied;                   /* linear, the last layer of a network of tokens, bare: its matrix
                                    is the embedding's. The two layers share one parameter, whose
                                    gradient is the sum of both layers' */
    bool both;                   /* lstm: in both directions */
    /* Linear, of tokens: a layer split by its outputs into `tiles` > 1 layers, which are
       consecutive in the list; this one is tile `tile`, 0 <= tile < tiles. Each tile reads tile 0's
       input, and the tiles' outputs are concatenated, so together they are one linear layer. Each
       tile has its own parameters and is a unit. tiles 0 or 1: not split. */
    int tile, tiles;
    /* This layer begins a segment (activation checkpointing, Chen et al. 2016). The layers before
       the first such layer are a segment too. After forward, only a segment's input is in memory,
       and backward computes the other activations that it reads again; the last segment keeps all
       of its activations. The bits are the same. A segment may begin only with a norm or an lstm;
       in images with a conv2d; in chains of plain convolutions with the first linear layer. Later
       layers may read nothing before it but its input: each branch is joined before it or stands
       directly before it. */
    bool segment;
    double deviation;            /* layers on rows: if not 0, the matrix is initialised from a
                                    normal distribution with this deviation; if 0, linear layers as
                                    tutti_nn_initialise describes, tables with deviation 1 */
    /* Its parameters are called name.weight and name.bias. "": the layer's index is the name. In
       lists of linear, conv2d, relu, maxpool2d and flatten only, the index is always the name. */
    char name[16];
} tutti_layer;

/* The task, one of three:
     1. Images or vectors: samples of channels x height x width floats with one label in
        [0, classes).
     2. context > 0: windows of `context` tokens in [0, classes), with the token after each as its
        label. channels, height and width are ignored.
     3. tables > 0: samples as in 1 with `tables` categories as well; category t is a row below
        `rows` of table t. classes is 2. */
typedef struct tutti_nn_task {
    int channels, height, width, classes, context, tables;
    uint32_t rows;
} tutti_nn_task;

/* ---- models: named lists of layers. A spec is a name with options, as "mlp(hidden=16)".

     mlp(hidden=1024)           without flatten: 784-1024-1024-10
     cnn                        conv3x3x32, ReLU, pool 2, conv3x3x64, ReLU, pool 2, flatten, fc128,
                                ReLU, fc classes; images of 10x10 and more
     logistic                   fc classes: softmax regression on any data; its options concern its
                                own data
     quadratic(...)             options as in problem.h; dim is the number of a sample's values
     gpt(layers,dim,heads,context,vocab)
                                the GPT of peers/train.py, for tokens; its other options select
                                kinds of layers
     wordlm(vocab,dim,hidden)   for tokens: embedding, lstm, linear to dim if hidden differs,
                                linear to the vocabulary
     blstm(layers,hidden)       samples of 1 x frames x features: lstm in both directions, `layers`
                                times, mean over the rows, linear
     resnet(depth=6n+2)         He et al. 2016, section 4.2: conv3x3(16), batch norm, ReLU; three
                                stages of n blocks of two 3x3 convolutions with 16, 32, 64 channels,
                                stride 2 between; mean over positions, fc classes
     vgg(small)                 three times two 3x3 convolutions with batch norm (32, 64, 128
                                channels) and pooling; fc 256, ReLU, fc classes
     ctr(tables,rows,dim,...)   for categories: tables and linear layers with ReLU to one logit

   With recompute=on (cnn, gpt, blstm, resnet, vgg) each block of layers is a segment (tutti_layer);
   in cnn the convolutions are one segment. For mlp and wordlm recomputing would save nothing: at
   its peak, backward needs all activations.

   Indexes of parameters of mlp (0, 2, 4) and cnn (0, 3, 7, 9) are those of peers/train.py's
   Sequential. ---- */
typedef struct tutti_model_ops {
    const char *name, *title;    /* title: one line for --help */
    const tutti_option *options; /* of the spec; ended by an entry that is all 0 */
    size_t self_bytes;           /* of the structure that the options fill */
    /* Writes the first `capacity` layers of the model; *count: their total number.
       TUTTI_ERR_USAGE: the model does not support the task. */
    tutti_status (*layers)(const void *self, const tutti_nn_task *task, tutti_layer *layers,
                           int capacity, int *count, tutti_error *err);
    bool tokens;                 /* its samples are windows of tokens */
    bool categories;             /* its samples have categories */
} tutti_model_ops;
extern const tutti_model_ops *const tutti_models[]; /* registry; ended by NULL */

/* Return whether the model's samples are windows of tokens, or have categories. model: a spec;
   false if it is invalid. */
bool tutti_nn_takes_tokens(const char *model);
bool tutti_nn_takes_categories(const char *model);

/* ---- parameters ---- */
typedef struct tutti_nn_param {
    /* As PyTorch names it: "0.weight" (index in nn.Sequential) or the layer's name,
       "lstm.weight_hh_l0_reverse". quadratic: "x". */
    char name[40];
    int unit;                    /* the unit that it belongs to, counted from the input */
    int dims;                    /* number of dimensions */
    size_t dim[4];               /* [dims], PyTorch's: linear (out, in), conv (out, in, k, k), bias
                                    (out) */
    size_t count;                /* number of values */
    size_t rows, cols;           /* as a matrix, rows x cols = count: (out x rest); bias: count x
                                    1 */
    size_t fan_in;               /* inputs of one output of its layer; quadratic, tables, norms:
                                    0 */
    float start;                 /* initial value of every element if fan_in and deviation are 0 */
    float deviation;             /* if not 0, initial values are normal with this deviation */
    int nth;                     /* number of parameters with the same number of dimensions that
                                    precede it in its unit; 0 except for lstm */
    bool row_sparse;             /* a table: a pass changes the gradient only of the rows that its
                                    samples refer to */
} tutti_nn_param;

/* ---- batch norms. In training a block (64 samples, see tutti_nn_pass) is normalised by the mean
   and variance of its own samples, whichever worker computes it. So one worker with 256 samples and
   four with 64 compute the same bits, and a block is what PyTorch calls a batch. A last block with
   one sample and one position for each channel yields the bias.

   Running statistics are a mean and a variance for each channel. They are not parameters: they are
   neither exchanged nor optimised, and each worker has its own. A successful pass moves them by a
   tenth of the distance to the mean over its blocks, weighted by samples, of the block's mean and
   unbiased variance. This is linear, so the mean over the workers of their statistics is what one
   worker with all their samples would have. A statistic does not change if its mean over the blocks
   is not finite.

   An evaluation uses the running statistics instead of the block's. A client that trains with
   several workers sets them to the mean over the workers before each evaluation, and only then.
   With the engine they are client state (tutti.h), which is averaged over the workers in each
   evaluation, whatever the method. (PyTorch's DDP broadcasts those of rank 0 before each forward,
   so that only 1 / workers of the samples count. Its local and gossip methods average them as
   parameters or not at all.)

   Branch and join of images: if the body has changed the shape, the branch's values are sampled at
   every stride-th position, and nothing is added to new channels (He et al. 2016, section 4.2,
   option A: no parameters, as they use it on CIFAR). ---- */
typedef struct tutti_nn_statistic {
    char name[32];               /* PyTorch's: "n0.running_mean", "n0.running_var" */
    size_t first, count;         /* it is [first, first + count) of tutti_nn_running's vector;
                                    count: channels */
    float start;                 /* initial value: 0 for a mean, 1 for a variance */
} tutti_nn_statistic;

/* Writes the first `capacity` running statistics of a model, in the order of the layers, each mean
   before its variance; *count: their total number. Needs no backend. */
tutti_status tutti_nn_statistics(const char *model, const tutti_nn_task *task,
                                 tutti_nn_statistic *statistics, int capacity, int *count,
                                 tutti_error *err);

/* Writes the first `capacity` parameters of a model, in the order in which their gradients become
   ready: last layer first, weight before bias; *count: their total number. Needs no backend. */
tutti_status tutti_nn_params(const char *model, const tutti_nn_task *task, tutti_nn_param *params,
                             int capacity, int *count, tutti_error *err);

/* Writes a parameter's initial values, by PyTorch's defaults: weights and biases uniform in
   +-1/sqrt(fan_in), where fan_in of an LSTM is its `out` for all parameters. If param->deviation is
   not 0: normal with that deviation. Otherwise, if fan_in is 0: param->start for all, whatever the
   seed.

   Element i is draw i of the generator (seed, stream = forward_index + 2^40 param->nth, step 0).
   forward_index, the parameter's index in forward order: 2 unit for a weight, 2 unit + 1 for a
   bias. */
void tutti_nn_initialise(const tutti_nn_param *param, int forward_index, uint64_t seed,
                         float *values);

/* ---- a network ready to run ---- */
typedef struct tutti_nn tutti_nn;

/* Products and `precision`. In a 16-bit precision the operands of every product of a linear layer,
   a convolution or an lstm (weights, activations and slopes) are rounded to that type, to nearest
   even. Products add in float32. Everything else is float32, including the caller's values and
   gradients (Micikevicius et al. 2018). F16 overflows above 65504: a slope that does makes
   gradients infinite or NaN, so training with F16 needs a scaled loss (tutti.h, loss_scale). Where
   oneDNN has no such product for this CPU, the rounded operands are multiplied in float32, slower
   than with F32 (tutti_nn_widens). */
typedef struct tutti_nn_options {
    const char *backend;         /* "onednn" or "reference"; NULL: "onednn". A quadratic has the
                                    same bits on both */
    /* Most samples of a pass, 1 to 2^20. The first pass of a smaller size makes a plan for it and
       allocates; plans of eight smaller sizes are kept. Otherwise only the first evaluation and
       the first pass of several blocks with `add` allocate. */
    int64_t batch;
    int threads;                 /* that the backend uses, the calling one included; 0: 1. Below
                                    AVX-512 it changes the bits of convolutions */
    tutti_dtype precision;       /* TUTTI_F32 (0), TUTTI_BF16 or TUTTI_F16; other than F32 only with
                                    onednn, and not for quadratics. Determines the bits */
    float *running;              /* the running statistics: memory laid out as tutti_nn_statistics
                                    has it, already initialised, in use until nn is closed. NULL:
                                    the network's own memory, with initial values */
    tutti_device *device;        /* charged with each layer's flops; its vector level is that of
                                    nn's own loops. In use until nn is closed. NULL: nothing is
                                    charged, and the best level is used */
    /* Interleaves the blocks of a pass: all blocks go through a unit before any goes through the
       next. A unit's gradient is then complete before the next unit's begins: gradients[k] is
       written only between the first backward unit_acquire of its unit and its grad_ready, so units
       may use the same memory one after another. The bits and the order of the hooks are the same.
       Memory: no gradient sets, except a tied matrix's for each block; 16-bit copies of one unit's
       weights; the activations of all blocks. Units with convolutions count as one unit. */
    bool by_unit;
    bool adds;                   /* passes will use `add`: open allocates the gradient set that they
                                    need. Otherwise the first such pass of several blocks does */
    int64_t windows;             /* of tokens: most windows of an evaluation run, for callers that
                                    evaluate one window at a time; 0: windows of 1024 tokens in all.
                                    Ignored in networks with an lstm */
    struct tutti_runtime *clock; /* times the layers (tutti_nn_times), in use until nn is closed;
                                    NULL: they are not timed */
} tutti_nn_options;
/* Opens a network for a model spec. options: NULL is a batch of 64, and all others 0.
   TUTTI_ERR_USAGE: invalid model, task or option. TUTTI_ERR_MEMORY. *out is NULL on failure. */
tutti_status tutti_nn_open(tutti_nn **out, const char *model, const tutti_nn_task *task,
                           const tutti_nn_options *options, tutti_error *err);
void tutti_nn_close(tutti_nn *nn); /* nn may be NULL */

/* Sets gradients[k], for each parameter k, to memory for its gradient that the network owns and
   that units use one after another: as much as the largest unit needs, and separate memory for a
   tied matrix. It suffices for a caller that passes gradients on when they are ready, and for
   passes without `add`. For tables (row_sparse) the pointer is NULL, and tutti_nn_rows returns the
   rows. The memory is valid until nn is closed. TUTTI_ERR_USAGE: a pass may have several blocks and
   the network was not opened with by_unit. */
tutti_status tutti_nn_unit_gradients(tutti_nn *nn, float **gradients, tutti_error *err);

/* Returns the values of a table's gradient: rows in the ascending order of their ids, contiguous.
   Valid only within the hook grad_ready_rows of that table. */
const float *tutti_nn_rows(const tutti_nn *nn, int param);

/* Returns the running statistics, which the caller may read and write between passes, valid until
   nn is closed; *count: number of floats. NULL: the model has none. */
float *tutti_nn_running(tutti_nn *nn, size_t *count);

/* Hooks of the caller, called between the layers of a pass on the calling thread. Each may block. A
   failure ends the pass with its status. A member may be NULL. unit, param: as in tutti_nn_param.

   unit_acquire, unit_release: the values of a unit are read only between the two. They are called
   in forward and again in backward. The pointer values[k] itself is read only in between, so
   unit_acquire may set it, each time to another address. If another unit may use that memory
   afterwards, unit_release must set it to NULL: products in 16 bits identify a weight by its
   address. If unit 0's matrix is also the last layer's (tied), unit 0 stays acquired until the last
   layer is released, and in backward it is acquired first.

   grad_ready: the gradient of params[param] is final for this pass; the pass does not touch it
   again. It is called between the two halves of the unit's backward (parameter gradients, slope of
   the input), so that the exchange of the gradient overlaps the second half.

   Units with plain convolutions run in tiles of a few samples. All of them are acquired before the
   first tile and released after the last. So the order of the calls does not depend on the number
   of samples, and is the same with 0 samples:

     cnn, forward:   acquire 0 1, release 0 1, acquire 2, release 2, acquire 3, release 3
          backward:  acquire 3, ready, release 3, acquire 2, ready, release 2,
                     acquire 1 0, ready (unit 1), ready (unit 0), release 1 0

   Networks with batch norms or branches run unit by unit, convolutions too, each acquired and
   released by itself; a batch norm is a unit. In a pass of several blocks a unit is acquired in the
   first block's forward and released in the last one's, and backward calls come in the last block.

   Before backward of a segment that is computed again, its units that take part are acquired, in
   ascending order. Each is released in backward. */
typedef struct tutti_nn_hooks {
    void *user;
    tutti_status (*unit_acquire)(void *user, int unit, bool backward, tutti_error *err);
    tutti_status (*unit_release)(void *user, int unit, bool backward, tutti_error *err);
    tutti_status (*grad_ready)(void *user, int param, tutti_error *err);
    /* Called instead of grad_ready for parameters with row_sparse: this pass has added only to the
       n rows ids[0] < ids[1] < ... If the hook is set, the gradients of these parameters must be 0
       on entry, or from earlier passes with `add`; other rows are neither read nor written. If it
       is NULL, the whole gradient is written and grad_ready is called. */
    tutti_status (*grad_ready_rows)(void *user, int param, const uint32_t *ids, size_t n,
                                    tutti_error *err);
    /* Called for parameters with row_sparse, once in a pass, before the first unit_acquire: this
       pass reads only the n rows ids[0] < ids[1] < ... Their values may be outdated or undefined
       until the hook returns. */
    tutti_status (*rows_acquire)(void *user, int param, const uint32_t *ids, size_t n,
                                 tutti_error *err);
} tutti_nn_hooks;

/* Samples; arrays as of tutti_nn_pass, _pass_tokens and _pass_rows. The first stage reads the
   inputs and the last stage the labels (of tokens: `next`). Stages between read neither. */
typedef struct tutti_nn_samples {
    int64_t count;
    const float *x;
    const uint8_t *labels;
    const uint32_t *tokens, *next, *rows;
    uint64_t seed, first; /* dropout's draws, as for tutti_nn_draw */
} tutti_nn_samples;
/* How a pass is made. divisor: of the gradients; add: they are added to what is there.
   same_weights: the values have not changed since the last call. */
typedef struct tutti_nn_step {
    double divisor;
    bool add, same_weights;
    const float *const *values;
    float *const *gradients;
    const tutti_nn_hooks *hooks; /* NULL: none */
} tutti_nn_step;
/* Where an evaluation of samples with categories writes. logits: [samples], NULL: not wanted. */
typedef struct tutti_nn_score {
    double *loss_sum;
    int64_t *correct;
    float *logits;
} tutti_nn_score;

/* Makes a pass: forward and backward over s->count samples of images or vectors.
   x: [samples][channels x height x width]; labels: [samples]. values[k], gradients[k]: of parameter
   k. hooks: NULL: no hook is called. A hook may make the call wait.

   *loss_sum: the sum of the samples' losses (softmax cross-entropy, or the quadratic's loss).
   Gradients are those of (sum of the samples' losses) / divisor. They are written, or, with `add`,
   added to what is there.

   The samples are split into blocks of 64, and the blocks' gradients are summed by a binary tree: a
   batch of 256 has the bits of four batches of 64 added in that tree. For n blocks this needs
   floor(log2(n)) gradient sets, the caller's included (with `add` one more), and memory for the
   gradients of the largest layer.

   same_weights: the values have not changed since the last call. Otherwise copies of the weights
   (blocked, or in 16 bits) are made again. No samples: writes zero gradients (with `add` none) and
   calls all hooks.

   Failures before the first hook: TUTTI_ERR_CORRUPT, an invalid label, with its index and value.
   TUTTI_ERR_USAGE: more samples than batch; a divisor that is not positive and finite; a network of
   another kind of samples. After any failure the gradients are undefined, and further passes are
   legal. A NaN in a value need not reach the loss (oneDNN's ReLU turns it into 0). */
tutti_status tutti_nn_pass(tutti_nn *nn, const tutti_nn_samples *s, const tutti_nn_step *step,
                           double *loss_sum, tutti_error *err);

/* Makes a pass over windows of tokens, as tutti_nn_pass does. tokens, next: [samples][context],
   where next[i] is the token after tokens[i]. A sample's loss is the mean over its tokens. A block
   is the largest power of two of windows, at most 64, that has at most 1024 tokens, and at least
   one window. TUTTI_ERR_CORRUPT: a token outside the vocabulary. */
tutti_status tutti_nn_pass_tokens(tutti_nn *nn, const tutti_nn_samples *s,
                                  const tutti_nn_step *step, double *loss_sum, tutti_error *err);

/* Seeds dropout in later passes: sample k of a pass uses the draws of (seed, first + k), whichever
   worker computes it and however a batch is split. first: usually the number of samples of the run
   before this pass. Initially (0, 0). */
void tutti_nn_draw(tutti_nn *nn, uint64_t seed, uint64_t first);

/* hold: whether later passes leave the running statistics as they are. Initially false. */
void tutti_nn_hold_statistics(tutti_nn *nn, bool hold);

/* Makes later passes write the loss of their sample k to losses[k], rounded from the term that is
   added to loss_sum. NULL, the initial state: not wanted, and no cost. */
void tutti_nn_losses(tutti_nn *nn, float *losses);

/* Makes later evaluations call unit_acquire and unit_release of `hooks` (with backward false) as a
   pass does, and no other hook: once for each evaluation run of at most tutti_nn_evaluation_samples
   samples, and once for an evaluation of 0 samples. So workers that gather values unit by unit make
   matching calls if they have the same number of runs. The pointer is kept. NULL, the initial
   state: no hook is called. */
void tutti_nn_evaluation_hooks(tutti_nn *nn, const tutti_nn_hooks *hooks);
/* Returns the number of samples of an evaluation run. */
int64_t tutti_nn_evaluation_samples(const tutti_nn *nn);

/* Makes later evaluations write their samples' logits to outputs, contiguous: `classes` floats for
   each sample. Of tokens: `classes` floats for the token at `position` of each window, or, with
   position -1, for each token of each window, in their order. outputs NULL, the initial state: not
   wanted. Not for quadratics, nor for samples with categories (see tutti_nn_evaluate_rows). */
void tutti_nn_outputs(tutti_nn *nn, float *outputs, int position);

/* Makes a pass over samples with categories, as tutti_nn_pass does. rows: [samples][tables], each
   below task.rows; x and labels as for images. The loss is the binary cross-entropy of one logit.
   TUTTI_ERR_CORRUPT: a row outside its table, with its sample and table. */
tutti_status tutti_nn_pass_rows(tutti_nn *nn, const tutti_nn_samples *s, const tutti_nn_step *step,
                                double *loss_sum, tutti_error *err);

/* Evaluates: forward only, for any number of samples, in runs of tutti_nn_evaluation_samples. A
   sample's loss has the same bits whatever samples surround it. Calls only the hooks of
   tutti_nn_evaluation_hooks. *correct: number of samples whose largest output is the label's, where
   ties go to the lowest class; 0 if tutti_nn_classifies is false. Errors as of a pass. */
tutti_status tutti_nn_evaluate(tutti_nn *nn, const tutti_nn_samples *s, const float *const *values,
                               double *loss_sum, int64_t *correct, tutti_error *err);

/* Evaluates windows of tokens. *correct: number of tokens, not samples, that the largest output
   predicts. */
tutti_status tutti_nn_evaluate_tokens(tutti_nn *nn, const tutti_nn_samples *s,
                                      const float *const *values, double *loss_sum,
                                      int64_t *correct, tutti_error *err);

/* Evaluates samples with categories. *correct: number of samples predicted right, where a logit
   above 0 predicts class 1. logits: [samples], receives each sample's logit (an AUC needs its rank
   among all); NULL: not wanted. */
tutti_status tutti_nn_evaluate_rows(tutti_nn *nn, const tutti_nn_samples *s,
                                    const float *const *values, const tutti_nn_score *score,
                                    tutti_error *err);

/* Returns whether the network predicts classes; false for quadratics, which have no accuracy. */
bool tutti_nn_classifies(const tutti_nn *nn);

/* Sets the operations of a sample's forward and backward: two for a product and its sum, products
   of layers only. */
void tutti_nn_flops(const tutti_nn *nn, double *forward, double *backward);

/* Time spent in a layer. */
typedef struct tutti_nn_time {
    char name[40];
    double forward, backward;    /* seconds */
    double flops;                /* operations of products, forward and backward */
} tutti_nn_time;
/* Writes the times since the last call, resets them, and returns the total number of entries; at
   most `capacity` are written. Evaluations add to `forward`, but not to `flops`. In networks of
   tokens, frames or categories an entry is a layer, in others a unit. Returns 0 if the network was
   opened without a clock. */
int tutti_nn_times(tutti_nn *nn, tutti_nn_time *times, int capacity);

/* Measures what the CPU can do: *rate is the operations a second (two for a product and its sum) of
   oneDNN's product of two matrices of 1024 x 1024 on `threads` threads (0: 1). Operands are in
   `precision`, as in tutti_nn_options, the result in float32. The median over the products that
   `seconds` seconds allow, at least three. */
tutti_status tutti_nn_product_rate(struct tutti_runtime *clock, int threads,
                                   tutti_dtype precision, double seconds, double *rate,
                                   tutti_error *err);

/* Returns the bytes that the network holds: activations, scratch, gradient sets, copies of
   weights. */
size_t tutti_nn_bytes(const tutti_nn *nn);

/* Returns the peak of tutti_nn_bytes so far: an evaluation may need more than a pass for a time. */
size_t tutti_nn_bytes_most(const tutti_nn *nn);

/* Returns whether, with a 16-bit precision, some products are computed in float32, and so not
   faster than with F32. */
bool tutti_nn_widens(const tutti_nn *nn);

/* Writes a line for each primitive of a full pass, as "conv2d 0 forward: jit:avx512_core", for
   tests and reports. Writes at most `bytes` bytes and returns the length as snprintf does. */
int tutti_nn_describe(const tutti_nn *nn, char *text, size_t bytes);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
