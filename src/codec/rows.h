/* rows.h: the options of codecs, each as a macro that is one row of a tutti_option table. Included
   by the codecs, and by methods that have a codec of their own. The option table of a codec is
   made of these rows. A method lists the rows of the options that it offers, in its own order,
   with its own defaults and conditions; src/method/coded.h prints the spec of its codec from the
   same rows.

   Arguments:
     at       TUTTI_AT(type, member): which member of the struct receives the value
     first    the default
     name     the option's name, where a method's differs from the codec's
     when     the condition under which the option has an effect (tutti_option.when); NULL: always
   Other arguments have a comment at their row. The texts are shown to users. */
#ifndef TUTTI_CODEC_ROWS_H
#define TUTTI_CODEC_ROWS_H
#include <tutti/base.h>

/* ---- quantisers: qsgd, nuqsgd, alq, amq ---- */
#define TUTTI_ROW_QSGD_BITS(at) \
    { "bits", TUTTI_INT, at, 0, 0, 8, NULL, \
      "of an element with its sign, 2 or more; 0: as few as hold `levels`, or 4" }
#define TUTTI_ROW_NUQSGD_BITS(at) \
    { "bits", TUTTI_INT, at, 4, 3, 8, NULL, \
      "bits of an element with its sign; two would be ternary, which is qsgd(bits=2)" }
#define TUTTI_ROW_ALQ_BITS(at) \
    { "bits", TUTTI_INT, at, 3, 2, 8, NULL, \
      "of an element with its sign: 2^bits levels" }
#define TUTTI_ROW_BUCKET(at, first) \
    { "bucket", TUTTI_INT, at, first, 16, 1 << 24, NULL, \
      "d: elements with a scale of their own, a power of two; the variance grows with it" }
#define TUTTI_ROW_NORM(at, first) \
    { "norm", TUTTI_CHOICE, at, first, 0, 0, "max|l2", \
      "N, the scale of a bucket: its greatest magnitude, or its 2-norm" }
#define TUTTI_ROW_CODING(at, name) \
    { name, TUTTI_CHOICE, at, 0, 0, 0, "fixed|huffman", \
      "of the levels: fixed width, or fewer bits for what is frequent" }
/* elias: the choices for Elias codes: "elias|omega" */
#define TUTTI_ROW_CODING_ANY(at, name, elias) \
    { name, TUTTI_CHOICE, at, 0, 0, 0, "fixed|huffman|" elias, \
      "of the levels: fixed width, or fewer bits for what is frequent; " \
      "Elias codes are short where one level is most of a bucket (2 bits, norm=l2), " \
      "Huffman's wherever some are more frequent" }
#define TUTTI_ROW_TAIL(at) \
    { "tail", TUTTI_CHOICE, at, 0, 0, 0, "short|dense", \
      "a tensor's last elements that fill no bucket: one that is shorter, or float32 as they are" }

#define TUTTI_ROW_QSGD_LEVELS(at) \
    { "levels", TUTTI_INT, at, 0, 0, 127, NULL, \
      "s, the number of levels above 0, instead of bits; 8 bits hold no more than 127; " \
      "0: all that bits hold" }

#define TUTTI_ROW_NUQSGD_MULTIPLIER(at) \
    { "multiplier", TUTTI_REAL, at, 0.5, 0.01, 0.999999, NULL, \
      "p: levels 0, p^s, ..., p, 1; the paper's is a half" }
#define TUTTI_ROW_NUQSGD_ZERO_LEVEL(at) \
    { "zero_level", TUTTI_BOOL, at, 1, 0, 1, NULL, \
      "one level is 0; without it what is near 0 becomes one of the two least levels at random" }

/* type: the struct, whose members have the names of the options */
#define TUTTI_ROWS_ALQ(type) \
    { "variant", TUTTI_CHOICE, TUTTI_AT(type, variant), 0, 0, 0, "cd|gd", \
      "how levels are found: coordinate descent, or projected gradient descent" }, \
    { "zero_level", TUTTI_BOOL, TUTTI_AT(type, zero_level), 0, 0, 1, NULL, \
      "one level stays 0, so that weights without a gradient get no noise" }, \
    { "sweeps", TUTTI_INT, TUTTI_AT(type, sweeps), 200, 1, 10000, NULL, \
      "over the levels in a fit at most; it ends before where none moves by a millionth; " \
      "30 in the authors' runs" }, \
    { "symmetric", TUTTI_BOOL, TUTTI_AT(type, symmetric), 0, 0, 1, NULL, \
      "levels -l and l come in pairs, fitted to the distribution and its " \
      "mirror image", "zero_level=off" }
enum { TUTTI_ALQ_COMPONENTS_MOST = 512 };
/* When levels are fitted, and to what: alq and amq. type: as above */
#define TUTTI_ROWS_FIT(type) \
    { "initial", TUTTI_CHOICE, TUTTI_AT(type, initial), 0, 0, 0, "normal|powers", \
      "what levels begin as: fitted to normally distributed gradients, " \
      "or the powers of a half (with more than 5 bits, of a greater number, so that " \
      "they stay distinct), as in the authors' code" }, \
    { "fit", TUTTI_CHOICE, TUTTI_AT(type, fit), 0, 0, 0, "mixture|single", \
      "of a distribution to each of the buckets of greatest norm, " \
      "or of one to all (the paper's -N)" }, \
    { "components", TUTTI_INT, TUTTI_AT(type, components), 64, 2, TUTTI_ALQ_COMPONENTS_MOST, NULL, \
      "K, fit=mixture: buckets that count, those of greatest norm of all workers; " \
      "each worker sends its own K, 12 bytes each, at a fit", "fit=mixture" }, \
    { "weight", TUTTI_CHOICE, TUTTI_AT(type, weight), 0, 0, 0, "norm2|norm", \
      "fit=mixture: of a bucket, its squared norm, which makes it the variance that is " \
      "minimised, or its norm, as the authors' code", "fit=mixture" }, \
    { "samples", TUTTI_INT, TUTTI_AT(type, samples), 1, 1, 1000, NULL, \
      "steps whose gradients a fit sees, those before it; 10 in the authors' runs" }, \
    { "first", TUTTI_INT, TUTTI_AT(type, first), 100, 0, 1e12, NULL, \
      "step before which levels are fitted for the first time; 0: none such" }, \
    { "second", TUTTI_INT, TUTTI_AT(type, second), 2000, 0, 1e12, NULL, \
      "and for the second time, 2 to 3 % of the run; 0: none such" }, \
    { "every", TUTTI_INT, TUTTI_AT(type, every), 10000, 0, 1e12, NULL, \
      "and before each multiple of this many steps; 0: none such" }, \
    { "on_lr_drop", TUTTI_BOOL, TUTTI_AT(type, on_lr_drop), 1, 0, 1, NULL, \
      "and after the learning rate has fallen to a half or less" }

/* ---- signs and bytes: sign, onebit; minmax8 ---- */
#define TUTTI_ROW_SIGN_SCALE(at, first) \
    { "scale", TUTTI_CHOICE, at, first, 0, 0, "l1|l2", \
      "of the bits: |x|_1 / n, which always contracts, or |x|_2 / sqrt(n), " \
      "as in 1-bit Adam's reference" }
#define TUTTI_ROW_SIGN_BLOCK(at) \
    { "block", TUTTI_INT, at, 0, 0, 1 << 24, NULL, \
      "elements with a scale of their own, rounded up to a multiple of 8; " \
      "0: a tensor, or an owner's part of it" }
#define TUTTI_ROW_MINMAX8_CHUNK(at) \
    { "chunk", TUTTI_INT, at, 0, 0, 1 << 24, NULL, \
      "elements with extremes of their own, 256 or more; 0: a tensor, or an owner's part of it" }

/* ---- selections: topk, threshold, wangni, randomk ---- */
enum { TUTTI_TOPK_WARMUP_MOST = 1000 }; /* epochs */
/* example: a factor and its share: "100: 0.01" */
#define TUTTI_ROW_TOPK_RATIO(at, first, example) \
    { "ratio", TUTTI_REAL, at, first, 1e-9, 1, NULL, \
      "share of a tensor's elements sent; " \
      "of a factor of " example ". k = ceil(ratio n), at least 1" }
#define TUTTI_ROW_TOPK_WARMUP(at, first, when) \
    { "warmup", TUTTI_INT, at, first, 0, TUTTI_TOPK_WARMUP_MOST, NULL, \
      "epochs over which the share comes down: epoch e of E sends ratio^((e + 1) / (E + 1)); " \
      "0: from the start", when }
#define TUTTI_ROW_TOPK_WARMUP_RATIOS(at, when) \
    { "warmup_ratios", TUTTI_TEXT, at, 0, 0, 0, "", \
      "in place of warmup: the share of each of its epochs, a:b:c, " \
      "none above the one before it or below `ratio`; 0.25:0.063:0.015:0.004:0.001 in the " \
      "authors' code of DGC", when }
/* ---- messages of indexes and values (sparse.c) ---- */
#define TUTTI_ROW_VALUE_DTYPE(at, when) \
    { "value_dtype", TUTTI_CHOICE, at, 0, 0, 0, "fp32|fp16|bf16", \
      "what the values of a selection travel as; error feedback sends later what they lose", when }
#define TUTTI_ROW_INDEX_CODE(at, when) \
    { "index_code", TUTTI_CHOICE, at, 0, 0, 0, "int32|delta|bitmap|auto", \
      "what its indexes travel as: four bytes; steps as Elias codes; a bit an element; " \
      "the shorter of int32 and bitmap", when }
#define TUTTI_ROW_WANGNI_EPSILON(at) \
    { "epsilon", TUTTI_REAL, at, 1, 0, 1e9, NULL, \
      "the variance that the selection adds, of |g|^2", "solver=closed" }
#define TUTTI_ROW_WANGNI_SOLVER(at, when) \
    { "solver", TUTTI_CHOICE, at, 0, 0, 0, "greedy|closed", \
      "what is given: the share of elements that is kept (greedy), or the variance (closed: " \
      "epsilon)", when }
#define TUTTI_ROW_RANDOMK_BLOCK(at, first, least, when) \
    { "block", TUTTI_INT, at, first, least, 1 << 24, NULL, \
      "consecutive elements that are drawn together, a shorter tensor as a whole; " \
      "the last block travels filled with 0", when }

/* ---- cells of a tensor: dct, chunk-topk ---- */
enum { TUTTI_CELLS_CHUNK_MOST = 128 };
/* what: that are sent: "coefficients" */
#define TUTTI_ROW_CELLS_TOPK(at, first, what) \
    { "topk", TUTTI_INT, at, first, 1, TUTTI_CELLS_CHUNK_MOST * TUTTI_CELLS_CHUNK_MOST, NULL, \
      "k: " what " sent of each cell, or all where it has fewer" }
#define TUTTI_ROW_CELLS_CHUNK(at) \
    { "chunk", TUTTI_INT, at, 64, 1, TUTTI_CELLS_CHUNK_MOST, NULL, \
      "the longest side of a cell; the sides of a matrix, and a vector, are cut evenly" }
#define TUTTI_ROW_CELLS_VALUES(at, first) \
    { "value_dtype", TUTTI_CHOICE, at, first, 0, 0, "fp32|fp16|bf16|2bit", \
      "what values travel as; 2bit: as one of four levels, each the mean of the values next to " \
      "it; error feedback sends later what they lose" }
/* which: "a coefficient" */
#define TUTTI_ROW_CELLS_MEAN(at, first, which) \
    { "mean", TUTTI_CHOICE, at, first, 0, 0, "all|senders", \
      "of " which ": over all workers, or over those that have sent it" }

/* ---- powersgd ---- */
enum { TUTTI_POWERSGD_RANK_MOST = 512, TUTTI_POWERSGD_ITERS_MOST = 4 };
#define TUTTI_ROW_POWERSGD_RANK(at) \
    { "rank", TUTTI_INT, at, 1, 1, TUTTI_POWERSGD_RANK_MOST, NULL, \
      "of the approximation; of a matrix with a lesser side that side. 2 to 4 for images, " \
      "16 to 32 for large transformers" }
#define TUTTI_ROW_POWERSGD_ITERS_PER_STEP(at) \
    { "iters_per_step", TUTTI_INT, at, 1, 1, TUTTI_POWERSGD_ITERS_MOST, NULL, \
      "products of that rank in a step, each of what the ones before have left, " \
      "with two all-reduces each" }
#define TUTTI_ROW_POWERSGD_MIN_COMPRESSION_RATE(at) \
    { "min_compression_rate", TUTTI_REAL, at, 2, 1, 1e9, NULL, \
      "matrices that shrink less travel as they are" }
#define TUTTI_ROW_POWERSGD_START_ITER(at) \
    { "start_iter", TUTTI_INT, at, 0, 0, 1e12, NULL, \
      "steps before the first that compresses; until then gradients travel as they are" }
#define TUTTI_ROW_POWERSGD_WARM_START(at) \
    { "warm_start", TUTTI_BOOL, at, 1, 0, 1, NULL, \
      "begin from the previous step's factor, not from a drawn one" }
#define TUTTI_ROW_POWERSGD_EF_RULE(at, when) \
    { "ef_rule", TUTTI_CHOICE, at, 0, 0, 0, "local|aggregated", \
      "what error feedback takes for sent: this worker's part (residuals stay small), " \
      "or the mean (as PyTorch); the model is the same", when }
#define TUTTI_ROW_POWERSGD_FACTOR_DTYPE(at) \
    { "factor_dtype", TUTTI_CHOICE, at, 0, 0, 0, "fp32|fp16|bf16", \
      "what factors travel as, columns scaled by powers of two; sums are made in fp32" }

/* ---- wrappers: ef and dgc, large, accordion ---- */
#define TUTTI_ROW_SERVER(at, name, first) \
    { name, TUTTI_BOOL, at, first, 0, 1, NULL, \
      "error feedback of the owners of the mean too: a second residual, " \
      "of what they lose when they encode it; off: what each worker encodes goes to all" }
#define TUTTI_ROW_DGC_MOMENTUM(at) \
    { "momentum", TUTTI_REAL, at, 0.9, 0, 0.9999, NULL, \
      "m, of each worker's gradients before they are sent; the optimiser should have none" }
#define TUTTI_ROW_DGC_NESTEROV(at) \
    { "nesterov", TUTTI_BOOL, at, 0, 0, 1, NULL, \
      "Nesterov's momentum, in the form of the authors' code: " \
      "u = m (u + g), v = v + u + g", "momentum>0" }
#define TUTTI_ROW_DGC_MASKING(at) \
    { "masking", TUTTI_BOOL, at, 1, 0, 1, NULL, \
      "forget the momentum of what was sent, so that it does not push twice" }
#define TUTTI_ROW_DGC_CLIP(at) \
    { "clip", TUTTI_REAL, at, 0, 0, 1e9, NULL, \
      "norm of a tensor's gradient beyond which it is scaled down, " \
      "times the root of the workers; 0: none" }
/* which: what the patterns name: "tensors that travel as they are" */
#define TUTTI_ROW_LARGE_EXCLUDE(at, which) \
    { "exclude", TUTTI_TEXT, at, 0, 0, 0, "", which ", by name: patterns a:b:c of *, ? and [...]" }
#define TUTTI_ROW_ACCORDION_LOW(at, first, when) \
    { "low", TUTTI_SPEC, at, 0, 0, 0, first, \
      "the codec of low compression, for critical regimes; `tutti codecs` lists them", when }
#define TUTTI_ROW_ACCORDION_HIGH(at, first, when) \
    { "high", TUTTI_SPEC, at, 0, 0, 0, first, "the codec of high compression", when }
#define TUTTI_ROW_ACCORDION_SCOPE(at, when) \
    { \
        "scope", TUTTI_CHOICE, at, 0, 0, 0, "layer|model", \
            "a decision for each tensor, or one for all", when \
    }
#define TUTTI_ROW_ACCORDION_NORM_SOURCE(at, when) \
    { "norm_source", TUTTI_CHOICE, at, 0, 0, 0, "local|rank0|averaged", \
      "whose gradients: each worker's own, their norms merged; worker 0's own; " \
      "or the decoded mean", when }
#endif
