/* math.h: the mathematics of the layers that oneDNN lacks, or computes slowly. Forward and
   backward are pure functions on float arrays, compiled once a level of vectors (math.c,
   math_avx2.c, math_avx512.c). The bodies are in *_body.h, written in the operations of
   lanes_scalar.h.

   - Nothing allocates, blocks, knows of threads or keeps state. Buffers and scratch are the
     caller's, of any alignment of a float. Sizes are trusted.
   - Every level gives the same bits. An element's operations have one order, and sums run over
     sixteen lanes in a fixed order.
   - Threads: work may be split as the comments state. The parts write to separate memory, and the
     bits do not depend on the split.
   - "In place": the output may be the very same array as the input named there. Other overlaps are
     not allowed.
   - `add`: a gradient is added to what is there, else written.
   - NaN and infinities propagate as in the formula unless stated otherwise. They never become an
     index or a length.

   A gradient of parameters sums over rows: over NN_ROWS rows at a time from 0, then over these
   partial sums in order, as in loops.h. So the error stays that of short sums. A caller that
   splits at multiples of NN_ROWS and adds the parts in order gets the same bits. */
#ifndef TUTTI_NN_MATH_H
#define TUTTI_NN_MATH_H
#include <math.h>
#include <string.h>
#include "tutti/runtime.h"

enum {
    NN_ROWS = 64,      /* of a partial sum */
    NN_CLASSES = 512,  /* that a cross-entropy reads at a time; chunks begin at its multiples */
    NN_KEYS = 64       /* keys of a tile of attention */
};

/* A row of logits, as far as it was read; nn_math.entropy. */
typedef struct nn_entropy {
    float max;                    /* the largest logit */
    float sum;                    /* of exp(logit - max) */
    float label;                  /* the label's logit */
    uint32_t best;                /* the lowest class with the largest logit */
} nn_entropy;

/* Where q, k and v are the parts of one matrix, a position has 3 x heads x width floats:
   k = q + heads x width, v = k + heads x width, and stride = 3 x heads x width. */
typedef struct nn_attention {
    size_t batch, heads, length;  /* all at least 1; queries and keys are the same positions */
    size_t width;                 /* of a head, at least 1 */
    size_t stride;                /* floats from a position to the next in q, k, v and their
                                     gradients; at least heads x width */
    size_t out_stride;            /* the same in the output and its gradient */
    float scale;                  /* of q . k, above 0; as a rule 1 / sqrt(width) */
    bool causal;                  /* a query sees its own and earlier positions, else all */
} nn_attention;

/* Channels last in groups: value (image, group, position, lane) is at ((image * groups + group) *
   positions + position) * width + lane; channel = group * width + lane. Plain nhwc has one group;
   oneDNN's nChw16c has groups of 16. */
typedef struct nn_channels { size_t images, groups, positions, width; } nn_channels;

typedef struct nn_math {
    /* ---- GELU. Keep x. May be split anywhere; dx in place of dy ---- */

    /* x P(x), P the normal distribution ("none" in PyTorch) */
    void (*gelu)(size_t n, const float *x, float *y);
    void (*gelu_back)(size_t n, const float *x, const float *dy, float *dx);
    /* x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) */
    void (*gelu_tanh)(size_t n, const float *x, float *y);
    void (*gelu_tanh_back)(size_t n, const float *x, const float *dy, float *dx);

    /* ---- branches and dropout ---- */

    /* y = a + b: residual branches. y in place of either. Its backward is the same slope for
       both. */
    void (*sum)(size_t n, const float *a, const float *b, float *y);
    /* y = x * scale where draws >= least, else 0 (also for a NaN): the core of tutti_nn_dropout. y
       in place of x. */
    void (*drop)(size_t n, const uint16_t *draws, uint32_t least, float scale, const float *x,
                 float *y);

    /* ---- norms of rows. Keep x, and mean and rstd: rows each. Rows may be split. y in place of
       x only if nothing goes back ---- */

    /* Layer norm: y = (x - mean) rstd gamma + beta, rstd = 1 / sqrt(variance + eps), variance over
       the n columns, divided by n, about the computed mean. */
    void (*layer_norm)(size_t rows, size_t columns, const float *x, const float *gamma,
                       const float *beta, float eps, float *y, float *mean, float *rstd);
    /* dx, in place of dy, is written or (add_x) added: where a residual branch goes round the norm,
       dx holds that branch's slope. dx NULL: parameters only. dgamma and dbeta: columns each; both
       NULL: dx only, and rows may be split anywhere. scratch: 4 x columns floats. */
    void (*layer_norm_back)(size_t rows, size_t columns, const float *x, const float *gamma,
                            const float *mean, const float *rstd, const float *dy, float *dx,
                            bool add_x, float *dgamma, float *dbeta, bool add, float *scratch);
    /* RMS norm: y = x rstd gamma, rstd = 1 / sqrt(mean of x^2 + eps); the same rules. scratch: 2 x
       columns floats. */
    void (*rms_norm)(size_t rows, size_t columns, const float *x, const float *gamma, float eps,
                     float *y, float *rstd);
    void (*rms_norm_back)(size_t rows, size_t columns, const float *x, const float *gamma,
                          const float *rstd, const float *dy, float *dx, bool add_x, float *dgamma,
                          bool add, float *scratch);

    /* ---- embedding: table is vocabulary x width, ids below the vocabulary (tutti_nn_first_above
       finds those that are not) ---- */

    /* y (n x width) = the rows of ids. May be split by n. */
    void (*gather)(size_t n, size_t width, const uint32_t *ids, const float *table, float *y);
    /* table[ids[i]] += dy[i] for i = 0, 1, ...: zero the table first, or add to a gradient.
       Columns may be split: [first, first + count) of width. */
    void (*scatter_add)(size_t n, size_t width, size_t first, size_t count, const uint32_t *ids,
                        const float *dy, float *table);
    /* The row-sparse gradient: row u of `rows` is the sum of dy[i] over the i with ids[i] =
       unique[u], i ascending, from 0, so the bits of scatter_add on zeros. order, begin: from
       tutti_nn_unique. May be split by u: [first, first + count). */
    void (*sum_rows)(size_t width, size_t first, size_t count, const uint32_t *order,
                     const uint32_t *begin, const float *dy, float *rows);

    /* ---- positions. x: batch x length x width ---- */

    /* Learned: x[b][p] += table[p]; backward: dtable[p] (+)= the sum over b, b ascending. In place.
       values: length x width. May be split by batch; the backward by columns of length x
       width. */
    void (*positions)(size_t batch, size_t values, const float *table, float *x);
    void (*positions_back)(size_t batch, size_t values, const float *dy, float *dtable, bool add);
    /* Rotary (Su et al. 2021) in place: the pair (x[j], x[j + width / 2]) of each head turns by the
       angle position / base^(2 j / width), the halves' order of GPT-NeoX and Llama. x: rows of
       `stride` floats, whose first heads x width are turned; row r is position r mod length.
       cosine, sine: length x width / 2, from tutti_nn_rotary. back: by the negative angle,
       which is the backward and keeps nothing. width even. May be split by rows at multiples
       of length. */
    void (*rotary)(size_t rows, size_t length, size_t heads, size_t width, size_t stride,
                   const float *cosine, const float *sine, bool back, float *x);

    /* ---- softmax and cross-entropy ---- */

    /* Over chunks of classes, so that no matrix of rows x vocabulary need exist: logits are a tile
       of rows x `count` with rows `stride` apart, for classes [first, first + count). Chunks come
       in order from 0 and begin at multiples of NN_CLASSES; then they give the same bits as one
       chunk. Keep state, rows. Rows may be split. A row with a NaN or +infinity has the loss NaN,
       never counts as right, and its slope is NaN. */
    void (*entropy)(size_t rows, size_t first, size_t count, size_t stride, const float *logits,
                    const uint32_t *labels, nn_entropy *state);
    /* After the last chunk: slope = (softmax - [class = label]) scale. In place. */
    void (*entropy_back)(size_t rows, size_t first, size_t count, size_t stride,
                         const float *logits, const uint32_t *labels, const nn_entropy *state,
                         float scale, float *slope);

    /* ---- attention ---- */

    /* softmax(scale q k^T) v for units [first, first + count) of batch x heads, which may be
       split. Unit u is head u mod heads of image u / heads; its q begins at ((u / heads) * length
       * stride) + (u mod heads) * width. Tiles of NN_KEYS keys, online softmax (Dao et al. 2022):
       no length x length matrix. o: the output; lse: units x length, the log of each row's sum of
       exp. Keep q, k, v, o and lse. scratch: tutti_nn_attention_scratch floats, one a thread. A
       NaN or an infinity in k or v of a position may reach every query of its tile. */
    void (*attention)(const nn_attention *a, size_t first, size_t count, const float *q,
                      const float *k, const float *v, float *o, float *lse, float *scratch);
    /* dq, dk, dv are written. dq in place of nothing. */
    void (*attention_back)(const nn_attention *a, size_t first, size_t count, const float *q,
                           const float *k, const float *v, const float *o, const float *lse,
                           const float *slope, float *dq, float *dk, float *dv, float *scratch);

    /* ---- a moment of long short-term memory, `width` values a row. May be split by rows ---- */

    /* gates: rows x 4 width; before the call the sums of the products and biases in PyTorch's order
       i f g o, after it i, f, o = sigmoid and g = tanh of them. cell: rows x width = f before + i g
       (before NULL: the first moment, whose cells were 0). out, a row every `stride` values:
       o tanh(cell). Keep gates and cell. */
    void (*lstm)(size_t rows, size_t width, float *gates, const float *before, float *cell,
                 float *out, size_t stride);
    /* gates become the slopes of the sums they were. dy (a row every `stride` values) is the slope
       of out from above, dh (rows x width) that from the moment after. dc (rows x width) is the
       slope of cell from the moment after, and becomes that of `before`. dh NULL: the last moment;
       dc is then only written. */
    void (*lstm_back)(size_t rows, size_t width, float *gates, const float *before,
                      const float *cell, const float *dy, size_t stride, const float *dh,
                      float *dc);

    /* ---- batch norm (Ioffe, Szegedy 2015) over images x positions of a channel. May be split by
       groups (with one group: not) ---- */

    /* Training: mean, rstd (channels each) of the batch are written; keep x and both. running
       (NULL: not) moves by `momentum` towards the batch's mean and unbiased variance, as PyTorch
       does. relu: y = max(y, 0). y in place of x only if nothing goes back. At least two values a
       channel. */
    void (*batch_norm)(const nn_channels *c, const float *x, const float *gamma, const float *beta,
                       float eps, bool relu, float *y, float *mean, float *rstd, float momentum,
                       float *running_mean, float *running_variance);
    /* Evaluation: with given statistics. In place. */
    void (*batch_norm_given)(const nn_channels *c, const float *x, const float *gamma,
                             const float *beta, float eps, bool relu, const float *mean,
                             const float *variance, float *y);
    /* y: the forward's output where it had a relu, else NULL. dx in place of dy. dgamma, dbeta:
       channels. */
    void (*batch_norm_back)(const nn_channels *c, const float *x, const float *y,
                            const float *gamma, const float *mean, const float *rstd,
                            const float *dy, float *dx, float *dgamma, float *dbeta, bool add);
} nn_math;
extern const nn_math tutti_nn_math_scalar, tutti_nn_math_avx2, tutti_nn_math_avx512;

static inline const nn_math *nn_math_of(tutti_cpu cpu)
{
    const tutti_cpu best = tutti_cpu_best(), use = cpu < best ? cpu : best;
    return use == TUTTI_CPU_AVX512 ? &tutti_nn_math_avx512
           : use == TUTTI_CPU_AVX2 ? &tutti_nn_math_avx2
                                   : &tutti_nn_math_scalar;
}

/* ---- the same at every level: plain.c ---- */
/* The index of the first value that is not below limit; n if there is none. For ids and labels from
   outside. */
size_t tutti_nn_first_above(size_t n, const uint32_t *values, uint32_t limit);
/* The distinct ids, ascending, into unique[0 .. u), u returned; order: 0 .. n - 1 sorted by id,
   equal ones ascending; begin[0 .. u]: where each id's run begins in order, begin[u] = n. unique,
   order: n; begin: n + 1; scratch: 2 n. n < 2^32. */
size_t tutti_nn_unique(size_t n, const uint32_t *ids, uint32_t *unique, uint32_t *order,
                       uint32_t *begin, uint64_t *scratch);
/* cosine, sine: length x width / 2, in double and rounded. */
void tutti_nn_rotary(size_t length, size_t width, double base, float *cosine, float *sine);
size_t tutti_nn_attention_scratch(const nn_attention *a);
/* Sum of the losses log(sum) + max - label in double, rows ascending, and how many rows are right:
   the best class is the label and the loss finite. */
double tutti_nn_entropy_loss(size_t rows, const nn_entropy *state, const uint32_t *labels,
                             size_t *right);
/* One of these losses. */
static inline double nn_entropy_loss_of(const nn_entropy *state)
{
    return log((double)state->sum) + ((double)state->max - (double)state->label);
}
/* Inverted dropout: y = x / (1 - p) where element first + i is kept, else 0. p in [0, 1) is taken
   to 1/65536, and the factor fits what was taken. Whether an element is kept is a function of rng
   and its index alone (tutti_draws, draw first + i). So the backward is the same call on the slope,
   and a batch may be split anywhere: let the index be (position of the sample in the step) x
   (values of a sample) + its place. y in place of x. d: of the same level; nothing is charged
   here. */
void tutti_nn_dropout(const nn_math *math, tutti_device *d, tutti_rng rng, uint64_t first, size_t n,
                      float p, const float *x, float *y);
#endif
