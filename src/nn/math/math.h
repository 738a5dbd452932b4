/* math.h: private header: the mathematics of the layers that oneDNN lacks or computes slowly.
   Included by the backends (sequence_run.h, image_run.h), onednn_linear.c, onednn_lstm.c, pass.c
   and tests. The functions of nn_math are compiled for one vector level each by math.c, math_avx2.c
   and math_avx512.c, from *_body.h, which are written with the operations of lanes_scalar.h.
   plain.c has the functions that are the same at every level.

   - No function allocates, blocks, uses threads or keeps state. Buffers and scratch are the
     caller's, with the alignment of a float. Sizes are trusted.
   - Every level gives the same bits. An element's operations have one order, and sums run over
     sixteen lanes in a fixed order.
   - "Keep": values that the caller must keep for the backward function.
   - "May be split": a caller may divide the work among threads as stated. The parts write to
     separate memory, and the bits do not depend on the division.
   - "y may be x": the output may be the same array as that input. Other overlaps are not allowed.
   - `add`: a gradient is added to what is there; otherwise it is written.
   - NaN and infinities propagate as in the formula unless stated otherwise. They never become an
     index or a length.

   "Slope" of a value, and dx of x: the gradient of the loss with respect to it.

   A gradient of parameters is a sum over rows: partial sums over NN_ROWS rows each, from 0, which
   are then added in order, as in loops.h. So the error is that of short sums. A caller that splits
   rows at multiples of NN_ROWS and adds the parts in order gets the same bits. */
#ifndef TUTTI_NN_MATH_H
#define TUTTI_NN_MATH_H
#include <math.h>
#include <string.h>
#include "tutti/base.h"
#include "base/machine.h"

enum {
    NN_ROWS = 64,      /* rows of a partial sum */
    NN_CLASSES = 512,  /* classes that a cross-entropy reads at a time; chunks of classes begin at
                          multiples of it */
    NN_KEYS = 64       /* keys of a tile of attention */
};

/* What the cross-entropy knows of a row of logits, as far as it has read the row. */
typedef struct nn_entropy {
    float max;                    /* the largest logit */
    float sum;                    /* of exp(logit - max) */
    float label;                  /* the label's logit; 0 until it is read */
    uint32_t best;                /* the lowest class with the largest logit */
} nn_entropy;

/* Shape and layout of an attention's q, k, v and output. q, k and v may be parts of one matrix with
   rows of 3 x heads x width floats; then k = q + heads x width, v = k + heads x width, and
   stride = 3 x heads x width. */
typedef struct nn_attention {
    size_t batch, heads, length;  /* each at least 1; queries and keys have the same positions */
    size_t width;                 /* values of a head, at least 1 */
    size_t stride;                /* floats from a position to the next in q, k, v and their
                                     slopes; at least heads x width */
    size_t out_stride;            /* the same in the output and its slope */
    float scale;                  /* of q . k, above 0; usually 1 / sqrt(width) */
    bool causal;                  /* a query attends to its own and earlier positions only */
} nn_attention;

/* Shape and layout of a batch norm's maps. The value of (image, group, position, lane) has the
   index ((image * groups + group) * positions + position) * width + lane; its channel is group *
   width + lane. nhwc has one group; oneDNN's nChw16c has groups of width 16. */
typedef struct nn_channels { size_t images, groups, positions, width; } nn_channels;

/* A norm of rows: its shape and parameters, [columns] each. beta: of layer norm only. */
typedef struct nn_norm {
    size_t rows, columns;
    const float *gamma, *beta;
    float eps;
} nn_norm;
/* Of each row, or of each channel of a batch norm: the mean, and 1 / sqrt(variance + eps). */
typedef struct nn_row_statistics {
    float *mean, *rstd;
} nn_row_statistics;
/* Where the backward of a norm of rows writes. dx: written, or added to (add_x), since the input
   may also be the start of a residual branch, whose slope is then already there; NULL: gradients of
   parameters only. dgamma, dbeta: [columns]; both NULL: dx only. */
typedef struct nn_norm_slopes {
    float *dx;
    bool add_x;
    float *dgamma, *dbeta;
    bool add;
} nn_norm_slopes;

/* Parameters of a batch norm, [channels] each. relu: the output is max(y, 0). */
typedef struct nn_batch_norm {
    const float *gamma, *beta;
    float eps;
    bool relu;
} nn_batch_norm;
/* Running statistics, [channels]: moved by `momentum` towards the batch's mean and unbiased
   variance, as PyTorch does. */
typedef struct nn_running {
    float momentum, *mean, *variance;
} nn_running;
/* What a batch norm's backward reads. y: the output of a forward with relu; NULL: it had none. */
typedef struct nn_batch_norm_kept {
    const float *x, *y, *gamma, *mean, *rstd;
} nn_batch_norm_kept;
/* The slope of a batch norm's output, and where its backward writes. dgamma, dbeta: [channels]. */
typedef struct nn_batch_norm_slopes {
    const float *dy;
    float *dx, *dgamma, *dbeta;
    bool add;
} nn_batch_norm_slopes;

/* A chunk of classes [first, first + count) of the logits of rows, with `stride` floats from a row
   to the next. values: of class `first` of the first row. */
typedef struct nn_logits {
    size_t rows, first, count, stride;
    const float *values;
} nn_logits;
/* Columns [first, first + count) of rows of `width`. */
typedef struct nn_columns {
    size_t width, first, count;
} nn_columns;
/* Ids in groups of equal ones, from tutti_nn_unique. */
typedef struct nn_grouped {
    const uint32_t *order, *begin;
} nn_grouped;
/* Rotary positions of rows of `stride` floats, whose first heads x width are rotated. width is
   even. cosine, sine: length x width / 2, from tutti_nn_rotary. */
typedef struct nn_rotation {
    size_t length, heads, width, stride;
    const float *cosine, *sine;
} nn_rotation;

/* What an attention reads, q, k and v, and writes: its output o, and lse, [units][length], the log
   of each row's sum of exp. */
typedef struct nn_attention_values {
    const float *q, *k, *v;
    float *o, *lse;
} nn_attention_values;
/* The slope of an attention's output, and those of q, k and v, which its backward writes. */
typedef struct nn_attention_slopes {
    const float *o;
    float *q, *k, *v;
} nn_attention_slopes;

/* The state of one time step of an lstm. gates: rows x 4 width. cell: rows x width. before: the
   cells of the time step before; NULL: there is none, and its cells are 0. */
typedef struct nn_lstm_step {
    size_t rows, width;
    float *gates;
    const float *before;
    float *cell;
} nn_lstm_step;

typedef struct nn_math {
    /* ---- GELU. Keep x. May be split anywhere; dx may be dy ---- */

    /* y = x P(x), P the cumulative normal distribution (PyTorch's approximate="none") */
    void (*gelu)(size_t n, const float *x, float *y);
    void (*gelu_back)(size_t n, const float *x, const float *dy, float *dx);
    /* y = x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) */
    void (*gelu_tanh)(size_t n, const float *x, float *y);
    void (*gelu_tanh_back)(size_t n, const float *x, const float *dy, float *dx);

    /* ---- branches and dropout ---- */

    /* y = a + b: joins a residual branch. y may be a or b. Backward: both slopes are that of y. */
    void (*sum)(size_t n, const float *a, const float *b, float *y);
    /* y = x * scale where draws >= least, else 0 (also for a NaN); for tutti_nn_dropout. y may be
       x. */
    void (*drop)(size_t n, const uint16_t *draws, uint32_t least, float scale, const float *x,
                 float *y);

    /* ---- norms of rows. Keep x, mean and rstd. mean, rstd: [rows]. May be split by rows. y may be
       x only if there is no backward ---- */

    /* Layer norm: y = (x - mean) rstd gamma + beta, rstd = 1 / sqrt(variance + eps). The variance
       is the mean over the columns of (x - mean)^2, with the computed mean. */
    void (*layer_norm)(const nn_norm *n, const float *x, float *y, const nn_row_statistics *kept);
    /* dx may be dy. dgamma and dbeta NULL: dx only, and rows may then be split anywhere.
       scratch: 4 x columns floats. */
    void (*layer_norm_back)(const nn_norm *n, const float *x, const nn_row_statistics *kept,
                            const float *dy, const nn_norm_slopes *to, float *scratch);
    /* RMS norm: y = x rstd gamma, rstd = 1 / sqrt(mean of x^2 + eps); as layer norm otherwise.
       scratch: 2 x columns floats. */
    void (*rms_norm)(const nn_norm *n, const float *x, float *y, float *rstd);
    void (*rms_norm_back)(const nn_norm *n, const float *x, const float *rstd, const float *dy,
                          const nn_norm_slopes *to, float *scratch);

    /* ---- embedding. table: vocabulary x width; ids are below the vocabulary (tutti_nn_first_above
       finds others) ---- */

    /* y (n x width) = the rows of the table that ids name. May be split by n. */
    void (*gather)(size_t n, size_t width, const uint32_t *ids, const float *table, float *y);
    /* table[ids[i]] += dy[i] for i = 0, 1, ..., in these columns. May be split by columns. */
    void (*scatter_add)(size_t n, const nn_columns *c, const uint32_t *ids, const float *dy,
                        float *table);
    /* Row-sparse gradient: rows[u] = the sum of dy[i] over the i with ids[i] = unique[u], i
       ascending, for u in [first, first + count). The bits are those of scatter_add on zeros.
       May be split by u. */
    void (*sum_rows)(size_t width, size_t first, size_t count, const nn_grouped *ids,
                     const float *dy, float *rows);

    /* ---- positions. x: batch x length x width ---- */

    /* Learned: x[b][p] += table[p], in place. values: length x width. May be split by batch.
       Backward: dtable[p] = the sum over b of dy[b][p], b ascending; with `add` it is added. May be
       split by columns of length x width. */
    void (*positions)(size_t batch, size_t values, const float *table, float *x);
    void (*positions_back)(size_t batch, size_t values, const float *dy, float *dtable, bool add);
    /* Rotary (Su et al. 2021), in place: rotates the pair (x[j], x[j + width / 2]) of each head by
       the angle position / base^(2 j / width), the order of GPT-NeoX and Llama. Row r
       of x has position r mod length. back: rotates by the negative angle, which is the backward;
       it keeps nothing. May be split by rows at multiples of length. */
    void (*rotary)(const nn_rotation *p, size_t rows, bool back, float *x);

    /* ---- softmax and cross-entropy ---- */

    /* Reads a chunk of classes of each row's logits, so that a matrix of rows x vocabulary need not
       exist. Chunks come in order from class 0 and begin at multiples of NN_CLASSES; then the
       bits are those of one chunk. Keep state: [rows]. May be split by rows. A row with a NaN or
       +infinity has the loss NaN, is never right, and its slope is NaN. */
    void (*entropy)(const nn_logits *l, const uint32_t *labels, nn_entropy *state);
    /* After the last chunk: slope = (softmax - [class = label]) scale, for a chunk of classes.
       slope may be the logits. */
    void (*entropy_back)(const nn_logits *l, const uint32_t *labels, const nn_entropy *state,
                         float scale, float *slope);

    /* ---- attention ---- */

    /* o = softmax(scale q k^T) v for units [first, first + count) of batch x heads. Unit u is head
       u mod heads of window u / heads; its q begins at (u / heads) length stride +
       (u mod heads) width. Computed in tiles of NN_KEYS keys with an online softmax (Dao et al.
       2022), without a matrix of length x length. Keep all values. scratch:
       tutti_nn_attention_scratch floats for each thread. May be split by units. A NaN or an
       infinity in k or v of a position may reach every query of its tile. */
    void (*attention)(const nn_attention *a, size_t first, size_t count,
                      const nn_attention_values *of, float *scratch);
    /* Writes the slopes of q, k and v, which must not be another argument. */
    void (*attention_back)(const nn_attention *a, size_t first, size_t count,
                           const nn_attention_values *of, const nn_attention_slopes *to,
                           float *scratch);

    /* ---- one time step of an lstm, `width` values in a row. May be split by rows ---- */

    /* gates: rows x 4 width. Before the call: the sums of products and biases in PyTorch's order
       i f g o; after it: the gates i, f, o (sigmoid) and g (tanh).
       cell: rows x width = f before + i g, where `before` are the cells of the time step before;
       NULL: there is none, and its cells are 0. out = o tanh(cell), with `stride` floats from a row
       to the next. Keep gates and cell. */
    void (*lstm)(const nn_lstm_step *s, float *out, size_t stride);
    /* Replaces the gates by the slopes of the sums that they were computed from.
       dy: the slope of out from the next layer, with `stride` floats from a row to the next.
       dh: rows x width, the slope of out from the next time step; NULL: there is none.
       dc: rows x width, on entry the slope of cell from the next time step (not read if dh is
       NULL), on return the slope of `before`. */
    void (*lstm_back)(const nn_lstm_step *s, const float *dy, size_t stride, const float *dh,
                      float *dc);

    /* ---- batch norm (Ioffe, Szegedy 2015), over images x positions of each channel. May be split
       by groups; with one group, not ---- */

    /* Training: writes mean and rstd, [channels], of the batch. Keep x, mean and rstd.
       running: NULL: no running statistics. y may be x only if there is no backward. A channel must
       have at least two values for the unbiased variance. */
    void (*batch_norm)(const nn_channels *c, const nn_batch_norm *p, const float *x, float *y,
                       const nn_row_statistics *kept, const nn_running *running);
    /* Evaluation: normalises with the given statistics. y may be x. */
    void (*batch_norm_given)(const nn_channels *c, const nn_batch_norm *p, const float *x,
                             const float *mean, const float *variance, float *y);
    /* dx may be dy. */
    void (*batch_norm_back)(const nn_channels *c, const nn_batch_norm_kept *kept,
                            const nn_batch_norm_slopes *to);
} nn_math;
extern const nn_math tutti_nn_math_scalar, tutti_nn_math_avx2, tutti_nn_math_avx512;

/* Returns the functions of the level `cpu`, or of the best level of this CPU if that is lower. */
static inline const nn_math *nn_math_of(tutti_cpu cpu)
{
#if defined(__x86_64__)
    const tutti_cpu best = tutti_cpu_best(), use = cpu < best ? cpu : best;
    return use == TUTTI_CPU_AVX512 ? &tutti_nn_math_avx512
           : use == TUTTI_CPU_AVX2 ? &tutti_nn_math_avx2
                                   : &tutti_nn_math_scalar;
#else
    (void)cpu; /* x86-64 alone has levels of these */
    return &tutti_nn_math_scalar;
#endif
}

/* ---- plain.c: the same at every level ---- */
/* Returns the index of the first value that is not below limit; n if there is none. For ids and
   labels from outside. */
size_t tutti_nn_first_above(size_t n, const uint32_t *values, uint32_t limit);
/* Sorts n ids, n < 2^32, and returns the number u of distinct ones. unique: [n]; [0, u) is set to
   the distinct ids, ascending. order: [n], the indexes 0 .. n - 1 sorted by id, equal ids in
   ascending order of index. begin: [n + 1]; [0, u] is set so that id unique[k] has the indexes
   order[begin[k] .. begin[k + 1]). scratch: [2 n]. */
size_t tutti_nn_unique(size_t n, const uint32_t *ids, uint32_t *unique, uint32_t *order,
                       uint32_t *begin, uint64_t *scratch);
/* Writes the tables of nn_math.rotary, length x width / 2 each, computed in double and rounded. */
void tutti_nn_rotary(size_t length, size_t width, double base, float *cosine, float *sine);
/* Returns the floats of scratch that one thread needs for attention, at any level. */
size_t tutti_nn_attention_scratch(const nn_attention *a);
/* Returns the sum of the rows' losses, log(sum) + max - label, in double, rows ascending. *right:
   how many rows are right: the best class is the label, and the loss is finite. */
double tutti_nn_entropy_loss(size_t rows, const nn_entropy *state, const uint32_t *labels,
                             size_t *right);
/* Returns the loss of one row. */
static inline double nn_entropy_loss_of(const nn_entropy *state)
{
    return log((double)state->sum) + ((double)state->max - (double)state->label);
}
/* Inverted dropout: y = x / (1 - p) where element first + i is kept, else 0, for i in [0, n). p in
   [0, 1) is rounded to a multiple of 1/65536, and the factor is that of the rounded p. Whether an
   element is kept depends only on rng and the element's index (draw first + i of tutti_draws). So
   the backward is the same call on the slope, and a batch may be split anywhere if the index is
   (position of the sample in the step) x (values of a sample) + (index in the sample). y may be x.
   d: a device of the same level as math; nothing is charged. */
void tutti_nn_dropout(const nn_math *math, tutti_device *d, tutti_rng rng, uint64_t first, size_t n,
                      float p, const float *x, float *y);
#endif
