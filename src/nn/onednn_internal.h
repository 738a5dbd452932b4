/* onednn_internal.h: private header of all code that computes with oneDNN. Included by onednn*.c,
   rate.c and layered.h. It serves the backend of chains of plain convolutions and linear layers
   (`onednn` below); through layered.h the two backends that go layer by layer use it as well.

     onednn.c            the backend's functions, and the loss
     onednn_core.c       engine, stream, and primitives (dn_op)
     onednn_operand.c    operands of 16 bits
     onednn_product.c    matrix products
     onednn_memory.c     memory of the `onednn` backend's buffers
     onednn_linear.c     linear units
     onednn_conv.c       units with a convolution
     onednn_lstm.c       lstm layers, for sequence_run.h

   A *plan* is a set of primitives for one number of samples; running a plan only sets pointers and
   executes. Plans of the full batch are made at open, others at first use. Linear plans are kept
   for the full batch, for evaluations and for DN_PLANS other sizes; convolution plans for each
   size of a tile.

   "Slope" of a value: the gradient of the loss with respect to it. "Copies" of weights: weights in
   16 bits, or in a layout that a convolution prefers. */
#ifndef TUTTI_NN_ONEDNN_INTERNAL_H
#define TUTTI_NN_ONEDNN_INTERNAL_H
#include "arena.h"
#include "dnnl_compat.h"
#include "loops.h"

enum {
    DN_ARGS = 5,      /* most pointers of a primitive, without the scratchpad */
    DN_TILE = 8,      /* images of a tile. 4 to 16 are equally fast; more leave the cache of a core.
                         Determines the bits */

    /* Samples of an evaluation run. A run is always filled up with zeros, so that a sample's loss
       does not depend on how many samples there are. The number is a multiple of every row block of
       oneDNN's kernels (2, 3, 4, 6, 8, 12, 16), so that no row is computed by a kernel for the
       remainder, which rounds differently. It is large enough to run at full speed. */
    DN_EVAL_SAMPLES = 144,
    DN_PLANS = 8      /* linear plans kept in addition to those of the full batch and of
                         evaluations */
};

/* The conversion of an operand before a primitive reads it (onednn_operand.c). */
typedef enum {
    DN_AS_IS,
    DN_NARROWED,                 /* float32 to 16 bits */
    DN_WIDENED,                  /* 16 bits to float32 */
    DN_ROUNDED                   /* float32 to 16 bits and back */
} dn_form;
typedef struct dn_operand {
    dn_form form;
    size_t values;
    size_t offset;               /* of the converted operand in the scratch; unless DN_AS_IS */
} dn_operand;

/* A primitive with its memory objects. All zero: no primitive. */
typedef struct dn_op {
    dnnl_primitive_t primitive;
    dnnl_exec_arg_t args[DN_ARGS + 1]; /* in the order of the pointers; the scratchpad last */
    dn_operand operands[DN_ARGS];      /* conversion of each pointer's operand */
    int count;                         /* args, the scratchpad included */
    size_t scratch;                    /* bytes that a run needs: the primitive's own first, then
                                          converted operands */
    char label[48];                    /* "conv2d 0 forward" */
    char implementation[48];           /* oneDNN's name of its kernel */

    /* Products whose bits would otherwise depend on the number of threads (onednn_product.c): one
       thread computes the whole product, or each of its parts. */
    bool alone;
    struct dn_part *parts;             /* [part_count]; part_count 0: the product is not split */
    int part_count;
    size_t part_steps[DN_ARGS];        /* for each pointer, bytes from a column to the next; 0: all
                                          parts read the same memory */
    size_t part_least;                 /* parts that are worth a thread */
} dn_op;

/* The primitives of a linear layer. The _add variants add to their output; the others write it. */
typedef struct dn_linear { dn_op forward, data, data_add, weights, weights_add; } dn_linear;

/* What primitives are made from and run on. */
typedef struct dn_core {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    /* Attributes, all with the caller's scratchpad: without a post-op, with a ReLU, with a sum. */
    dnnl_primitive_attr_t plain, relu, sum;
    int threads;
    void *scratch;                          /* of the running call; set by the caller */
    tutti_dtype precision;                  /* of products' operands; all else is float32 */
    bool widens;                            /* some product is computed in float32, since oneDNN has
                                               none of `precision` */
    tutti_device *device;                   /* converts; NULL: precision is float32 */
    struct dn_copies *copies;               /* of weights, in `precision`; NULL: none */
    struct dn_copies **shared_copies;       /* nn_settings.copies; NULL: copies are not shared */
} dn_core;

/* A 16-bit copy of a float32 parameter, made when a product first asks for it after the values have
   changed. */
typedef struct dn_copy {
    const float *from;           /* the parameter's address when the copy was made */
    uint16_t *to;
    size_t count;                /* values; 0: the parameter has no copy */
    bool valid;                  /* the copy has the values at `from` */
} dn_copy;
typedef struct dn_copies {
    dn_copy *list;               /* [count], one for each parameter */
    int count;
    int users;                   /* cores that share the copies */
    const float *const *weights; /* [count], the pass's values; a pointer may change while its unit
                                    is not acquired */
    uint16_t *memory;            /* [values] */
    size_t values;
} dn_copies;

typedef struct dn_linear_plan {
    int64_t rows;
    bool train;
    uint64_t last_used;          /* value of onednn.clock; 0: no plan is here */
    dn_linear *units;            /* [unit_count]; those of convolution units are all zero */
} dn_linear_plan;

/* The buffers of a unit in a run. All are float32 except the workspace, and each has its own offset
   in the arena. In training, DN_ACT and DN_WORKSPACE of convolutions have memory for every tile, or
   for one tile if tiles are computed again; in evaluations DN_ACT has memory for one. */
enum dn_buffer {
    DN_ACT,            /* the unit's output; of convolutions in the layout of conv or pooling */
    DN_WORKSPACE,      /* index of the largest value of each of pooling's windows */
    DN_ROWS,           /* the last convolution unit's output as plain rows */
    DN_ROWS_SLOPE,     /* the slope of DN_ROWS, or of a linear unit's output, as plain rows */
    DN_FILLED,         /* unit 0: the end of an evaluation's input, filled up with zeros */
    DN_FORWARD_SCRATCH, DN_WEIGHTS_SCRATCH, DN_DATA_SCRATCH, /* of the primitives of a call */

    /* Of the current tile of a convolution unit. Buffers of reorders are empty where the layouts
       agree. */
    DN_INPUT,          /* forward: the input in conv's layout */
    DN_WIDE,           /* conv's output, if pooling follows */
    DN_SLOPE,          /* slope of the unit's output, in the output's layout */
    DN_WIDE_SLOPE,     /* slope of conv's output, if pooling follows */
    DN_WEIGHTS_INPUT,  /* the input in the layout of `weights` */
    DN_WEIGHTS_SLOPE,  /* slope of conv's output in the layout of `weights` */
    DN_DATA_SLOPE,     /* slope of conv's output in the layout of `data` */
    DN_DATA_RESULT,    /* slope of the input in the layout of `data` */

    /* Gradients of a convolution's parameters, in the blocked layout of `weights`. */
    DN_SUM,            /* of the weights, summed over the tiles of one size */
    DN_PART,           /* of the weights, of one tile */
    DN_BIAS_SUM, DN_BIAS_PART, /* the same of the bias */
    DN_PLAIN,          /* of the weights in plain order */

    /* DN_INPUT, DN_WIDE and DN_FORWARD_SCRATCH of a tile that is computed again. */
    DN_AGAIN_INPUT, DN_AGAIN_WIDE, DN_AGAIN_SCRATCH,
    DN_BUFFERS
};
enum { DN_SCRATCHES = DN_DATA_SCRATCH - DN_FORWARD_SCRATCH + 1 };

/* The primitives of a convolution unit for one size of a tile. */
typedef struct dn_conv {
    dn_op conv;
    dn_op flatten, unflatten;              /* of the last unit: its output to plain rows, and their
                                              slope back */
    dn_op weights, data;
    nn_maps wide;                          /* conv's output, if pooling follows; else lanes 0 */
    nn_md pooled;                          /* the output of pooling */
    bool plain;                            /* the weights' gradients are computed by loops.h, in
                                              plain order: no reorders */

    /* Reorders of the weights. */
    dn_op pack_forward, pack_data;         /* plain to the layouts of conv and data */
    dn_op unpack_weights;                  /* from the layout of `weights` to plain */

    /* Reorders of activations, where two primitives need different layouts (nowhere in `cnn`). */
    dn_op conv_input, weights_input;       /* the unit's input to the layouts of conv, `weights` */
    dn_op weights_slope, data_slope;       /* slope of conv's output to the layouts of `weights`,
                                              `data` */
    dn_op data_result;                     /* data's result to the layout of the unit's input */

    size_t bytes[DN_BUFFERS];              /* of a tile; DN_ROWS: of an image; 0: not used */
    size_t forward_bytes, data_bytes;      /* of the copies of the weights */
    size_t forward_copy, data_copy;        /* offsets of the copies in the arena */
    uint64_t forward_version, data_version; /* onednn.version of the copied values; 0: none */
} dn_conv;

typedef struct dn_conv_plan {
    bool made;
    bool sum_begun[NN_UNITS_MAX];          /* DN_SUM of the unit holds tiles of this size */
    dn_conv *units;                        /* [conv_count] */
} dn_conv_plan;

/* The buffers of training, or of evaluation runs. */
typedef struct dn_layout {
    bool made;                             /* false: must be planned again */
    size_t offset[NN_UNITS_MAX][DN_BUFFERS]; /* in the arena */
    int kept[NN_UNITS_MAX][DN_BUFFERS];    /* stage: 0: in the arena; else 1 + index in
                                              onednn.kept */
    size_t act_step[NN_UNITS_MAX], workspace_step[NN_UNITS_MAX]; /* bytes from tile to tile */
    size_t end;                            /* bytes of the arena that it needs */
    size_t scratch[NN_UNITS_MAX][DN_SCRATCHES]; /* most bytes that a primitive has needed so far;
                                                   [i]: of buffer DN_FORWARD_SCRATCH + i */
} dn_layout;

typedef struct onednn {
    const nn_net *net;
    const nn_loops *loops;
    int64_t batch;                    /* most samples of a training run */
    dn_core core;

    dn_linear_plan full, evaluation, others[DN_PLANS];
    dn_linear_plan *linear;           /* of this run */
    dn_conv_plan tiles[DN_TILE + 1];  /* [images] */
    uint64_t clock;                   /* counts the uses of linear plans */
    uint64_t version;                 /* of the values; counts from 1 */

    char *arena;                      /* copies of the convolutions' weights, then buffers */
    size_t arena_bytes;
    size_t copies_end;                /* offset of the first buffer */
    dn_layout layouts[2];             /* [train] */
    nn_kept kept[NN_UNITS_MAX * 4];   /* stage: buffers outside the arena */
    int kept_count;
    nn_run run;
    const dn_layout *layout;          /* of this run */
} onednn;

/* Returns the address of a unit's buffer in this run. */
static inline void *dn_at(const onednn *b, int unit, enum dn_buffer buffer)
{
    const int kept = b->layout->kept[unit][buffer];
    return kept > 0 ? b->run.kept[kept - 1] : b->arena + b->layout->offset[unit][buffer];
}

/* ---- onednn.c ---- */
/* Computes the softmax cross-entropy of the run's samples from their logits y, samples x classes:
   *sum of the losses, *correct (see nn_backend.loss), and in training `slope`, the slope of y for
   the loss sum / divisor. Writes run->losses and run->outputs if they are not NULL. */
void tutti_nn_dn_entropy(const nn_run *run, size_t classes, const float *y, double divisor,
                         float *slope, double *sum, int64_t *correct);

/* ---- onednn_core.c ---- */
/* Opens *core, which must be all zero, with the settings' threads, precision, cpu and copies.
   After a failure tutti_nn_dn_core_close must be called. */
tutti_status tutti_nn_dn_core_open(dn_core *core, const nn_settings *settings, tutti_error *err);
void tutti_nn_dn_core_close(dn_core *core);
/* tutti_nn_dn_enter gives the calling thread the core's number of threads, and returns the number
   before. tutti_nn_dn_leave restores that number, and returns `status`. */
int tutti_nn_dn_enter(const dn_core *core);
tutti_status tutti_nn_dn_leave(int before, tutti_status status);
/* What a primitive does, and of which unit: for errors and its label. */
typedef struct dn_label {
    const nn_unit *unit;
    const char *what;
} dn_label;
/* A descriptor, and the status of the call that made it. */
typedef struct dn_made {
    dnnl_primitive_desc_t pd;
    dnnl_status_t status;
} dn_made;
/* The arguments of a primitive (DNNL_ARG_...), in the order of its pointers. */
typedef struct dn_args {
    const int *arg;
    int count;
} dn_args;
/* Makes the primitive of a descriptor and its memory objects for the arguments. Takes made.pd, also
   on failure. TUTTI_ERR_USAGE: oneDNN has only its reference code for it, which is hundreds of
   times slower. */
tutti_status tutti_nn_dn_op_open(dn_core *core, dn_op *op, dn_label of, dn_made made, dn_args args,
                                 tutti_error *err);
/* Makes a reorder between two layouts. */
tutti_status tutti_nn_dn_reorder(dn_core *core, dn_op *op, dn_label of, nn_mdref from, nn_mdref to,
                                 tutti_error *err);
/* Makes a reorder if the layouts differ; otherwise *op stays without a primitive. */
tutti_status tutti_nn_dn_adapt(dn_core *core, dn_op *op, dn_label of, nn_mdref from, nn_mdref to,
                               tutti_error *err);
void tutti_nn_dn_op_close(dn_op *op);
/* Runs the primitive with core->scratch. pointers: one for each argument, in the order of
   tutti_nn_dn_op_open. */
tutti_status tutti_nn_dn_op_run(dn_core *core, dn_op *op, void *const *pointers, tutti_error *err);
/* Returns the layout of an argument (DNNL_ARG_...); NULL if the primitive has none. */
nn_mdref tutti_nn_dn_md(const dn_op *op, int arg);
/* Appends a line for each op that has a primitive, as "linear 4 forward: brg:avx512_core"; see
   tutti_nn_append_text. */
int tutti_nn_dn_describe(const dn_op *const *ops, size_t count, char *text, size_t bytes,
                         int length);
/* Returns the status and sentence for a failed call of oneDNN. */
tutti_status tutti_nn_dn_failed(dnnl_status_t status, const nn_unit *unit, const char *what,
                                tutti_error *err);

/* Returns whether oneDNN has a primitive that is not its reference code. status: of the call that
   made pd. */
bool tutti_nn_dn_usable(const_dnnl_primitive_desc_t pd, dnnl_status_t status);

/* ---- onednn_operand.c ---- */
/* Returns the core's precision as oneDNN's type. */
dnnl_data_type_t tutti_nn_dn_narrow_type(const dn_core *core);
/* Declares, after the op is open, that its argument `index` is an operand of a product with
   `values` values (0: as many as its layout has). narrow: the caller gives it in 16 bits,
   otherwise as float32. Adds the bytes of a conversion to op->scratch. */
void tutti_nn_dn_operand(dn_core *core, dn_op *op, int index, size_t values, bool narrow);
/* The three primitives of a convolution: output, gradient of the weights, slope of the input. */
typedef enum { DN_CONV_FORWARD, DN_CONV_WEIGHTS, DN_CONV_DATA } dn_conv_kind;
/* Layouts of a convolution's tensors, in the core's precision (narrow_...) and in float32, which
   oneDNN may choose. bias: NULL: no bias. */
typedef struct dn_conv_maps {
    nn_mdref narrow_src, narrow_weights, narrow_dst, src, weights, dst, bias;
} dn_conv_maps;
/* One primitive of a convolution. forward: the forward primitive, for the other two; NULL for
   forward. */
typedef struct dn_conv_spec {
    dn_conv_kind kind;
    nn_conv_steps steps;
    const dn_conv_maps *maps;
    const dn_op *forward;
    dnnl_primitive_attr_t attr;
} dn_conv_spec;
/* Makes it. The first two arguments are its operands; it takes them in 16 bits where oneDNN
   supports that, and the caller must then give them in 16 bits, in the layouts of tutti_nn_dn_md.
 */
tutti_status tutti_nn_dn_conv(dn_core *core, dn_op *op, dn_label of, const dn_conv_spec *c,
                              dn_args args, tutti_error *err);
/* Returns the operand that the primitive reads, converted from `given` if necessary. */
void *tutti_nn_dn_operand_ready(dn_core *core, const dn_op *op, int index, void *given);
/* Converts n floats to the core's 16-bit precision, to nearest even, on the core's threads. */
void tutti_nn_dn_narrow(const dn_core *core, size_t n, const float *from, uint16_t *to);
/* A parameter that products read as it is in its table. */
typedef struct dn_wanted {
    size_t values;                         /* of the parameter; 0: it needs no copy */
    int unit;
} dn_wanted;
/* Opens 16-bit copies of parameters; wanted: [n], for each parameter. Backends that share copies
   (nn_settings.copies) compute unit by unit, so all units use the same memory: making a unit's
   copies voids those of other units. Does nothing if the precision is float32. */
tutti_status tutti_nn_dn_copies_open(dn_core *core, const dn_wanted *wanted, int n,
                                     tutti_error *err);
/* Returns the core's share of the bytes of the copies. */
size_t tutti_nn_dn_copies_bytes(const dn_core *core);
/* Sets the parameters of a run. same: they have the values of the last run, so copies stay
   valid. */
void tutti_nn_dn_copies_begin(dn_core *core, const float *const *values, bool same);
void tutti_nn_dn_copies_close(dn_core *core);

/* ---- onednn_memory.c ---- */
/* Enlarges a scratch buffer of the unit, if `op` needs more than the primitives before. Called
   after making a primitive that uses this buffer. */
void tutti_nn_dn_require_scratch(onednn *b, bool train, int unit, enum dn_buffer scratch,
                                 const dn_op *op);
/* Marks both layouts to be planned again. Called after making a convolution plan. */
void tutti_nn_dn_invalidate_layouts(onednn *b);
/* Makes the layout of a run, and an arena that is large enough. Called after all plans of the run
   are made. Allocates only if a layout has grown; copies of weights are then made again. */
tutti_status tutti_nn_dn_memory(onednn *b, bool train, tutti_error *err);
/* Shrinks the arena to what training needs, after an evaluation. */
void tutti_nn_dn_memory_trim(onednn *b);

/* ---- onednn_product.c ---- */
/* A matrix of rows x columns. row_step, column_step: elements from a row, or a column, to the next.
   Both 0: oneDNN chooses the layout. */
typedef struct dn_matrix { int64_t rows, columns, row_step, column_step; } dn_matrix;
enum { DN_NARROW_X = 1, DN_NARROW_W = 2 };
/* A product y = x w (+ bias, a value for each column of y). narrow: flags of the operands that are
   given in 16 bits, others are given as float32. A w without steps is given in the layout and type
   of tutti_nn_dn_md. */
typedef struct dn_gemm {
    dn_matrix x, w;
    bool bias;
    dn_matrix y;
    int narrow;
    dnnl_primitive_attr_t attr;
} dn_gemm;
/* Makes the product. Its pointers are x, w, y, bias. It multiplies 16-bit operands where oneDNN
   supports it. */
tutti_status tutti_nn_dn_product(dn_core *core, dn_op *op, dn_label of, const dn_gemm *g,
                                 tutti_error *err);
/* Run and free the parts of a split product; for onednn_core.c. pointers: operands after
   conversion. */
dnnl_status_t tutti_nn_dn_parts_run(const dn_core *core, dn_op *op, void *const *pointers);
void tutti_nn_dn_parts_close(dn_op *op);

/* ---- onednn_linear.c ---- */
enum {
    DN_BARE = 1,                           /* no bias */
    DN_WEIGHTS = 2,                        /* make `weights` and `weights_add` */
    DN_DATA = 4,                           /* make `data` */
    DN_DATA_ADD = 8,                       /* make `data_add` */
    DN_NARROW = 16                         /* x and the slope of y are given in the core's
                                              precision */
};
/* The rows of a layer's output and of its slope, which are columns of rows with `wide` values. */
typedef struct dn_output {
    int64_t wide, rows;
} dn_output;
/* Makes the products of a linear layer. Of *u only in, wide, relu, kind and index are used. flags:
   DN_... above; `forward` is always made. After a failure tutti_nn_dn_linear_free must be called.
 */
tutti_status tutti_nn_dn_linear_build(dn_core *core, dn_linear *l, const nn_unit *u, dn_output rows,
                                      int flags, tutti_error *err);
void tutti_nn_dn_linear_free(dn_linear *l);
/* Sums over rows are computed from partial sums over NN_ROWS rows each, as in math.h and loops.h,
   which are then added in order. */
/* Returns the number of partial sums. */
size_t tutti_nn_dn_partials(size_t rows);
/* Adds all partial sums, each of `columns` floats, to the first. */
void tutti_nn_dn_add_partials(const nn_loops *loops, size_t rows, size_t columns, float *partials);
/* Writes the sums of the columns of x (rows x columns) to partials[0 .. columns), on the core's
   threads. partials: memory for all partial sums. x is not changed. */
void tutti_nn_dn_column_sums(const dn_core *core, const nn_loops *loops, size_t rows,
                             size_t columns, float *x, float *partials);
/* Sets *out to the plan for `rows` samples; makes it if there is none. */
tutti_status tutti_nn_dn_linear_plan(onednn *b, int64_t rows, bool train, dn_linear_plan **out,
                                     tutti_error *err);
void tutti_nn_dn_linear_close(onednn *b, dn_linear_plan *plan);
/* Compute a linear unit of the backend; see nn_backend. */
tutti_status tutti_nn_dn_linear_forward(onednn *b, int unit, tutti_error *err);
tutti_status tutti_nn_dn_linear_weights(onednn *b, int unit, tutti_error *err);
tutti_status tutti_nn_dn_linear_data(onednn *b, int unit, tutti_error *err);

/* ---- onednn_lstm.c: rows are ordered by time step, then by window ---- */
struct nn_math;
typedef struct dn_lstm {
    /* Set by the caller before tutti_nn_dn_lstm_build. */
    int64_t windows;
    int64_t length;                       /* time steps of a window */
    int64_t width;                        /* values of h */
    int directions;                       /* 1; or 2: also from the last time step to the first */

    dn_linear layer;                      /* the products of all time steps with W_ih */
    /* Made only if length > 1. */
    dn_op step, pack_step;                /* forward: a time step's product with W_hh; the reorder
                                             of W_hh to its layout */
    dn_op back, pack_back;                /* the same in backward */
    dn_op hidden, hidden_add;             /* gradient of W_hh, written or added */
    size_t forward_bytes, back_bytes;     /* of dn_lstm_run.scratch */
    size_t forward_packed, back_packed;   /* offset of the reordered W_hh in that scratch */
} dn_lstm;
typedef struct dn_lstm_run {
    const float *x;                       /* [length x windows][in] */
    float *y;                             /* [length x windows][directions x width] */
    float *kept;                          /* written by forward, read by weights and data:
                                             tutti_nn_dn_lstm_kept_bytes */
    void *scratch;                        /* of this call alone, aligned to cache lines:
                                             forward_bytes or back_bytes */
    const float *const *values;           /* [directions x 4]: weight_ih, weight_hh, bias_ih,
                                             bias_hh */
    float *const *gradients;              /* as values; read by weights only */
    bool add;                             /* gradients are added to */
    const float *slope;                   /* of y; read by weights only */
    float *back;                          /* slope of x; written by data only */
} dn_lstm_run;
/* Makes the primitives. index: of the layer, for labels. in: values of a row of x. After a failure
   tutti_nn_dn_lstm_free must be called. */
tutti_status tutti_nn_dn_lstm_build(dn_core *core, dn_lstm *l, int index, int64_t in, bool train,
                                    tutti_error *err);
void tutti_nn_dn_lstm_free(dn_lstm *l);
/* Appends a line for each primitive, as tutti_nn_dn_describe. */
int tutti_nn_dn_lstm_describe(const dn_lstm *l, char *text, size_t bytes, int length);
/* Returns the bytes of dn_lstm_run.kept. rows: length x windows. */
size_t tutti_nn_dn_lstm_kept_bytes(int64_t rows, int64_t width, int directions);
/* Compute y; then, in backward, the gradients; then the slope of x. Call them in this order. */
tutti_status tutti_nn_dn_lstm_forward(dn_core *core, dn_lstm *l, const struct nn_math *math,
                                      const dn_lstm_run *r, tutti_error *err);
tutti_status tutti_nn_dn_lstm_weights(dn_core *core, dn_lstm *l, const struct nn_math *math,
                                      const nn_loops *loops, const dn_lstm_run *r,
                                      tutti_error *err);
tutti_status tutti_nn_dn_lstm_data(dn_core *core, dn_lstm *l, const dn_lstm_run *r,
                                   tutti_error *err);

/* ---- onednn_conv.c ---- */
/* Makes the plan for tiles of `images` images, unless there is one. */
tutti_status tutti_nn_dn_conv_plan(onednn *b, int64_t images, tutti_error *err);
void tutti_nn_dn_conv_close(onednn *b, dn_conv_plan *plan);
/* Compute a tile of a convolution unit; see nn_backend. again: in backward, for what `weights`
   reads; DN_ROWS is then not written, since it is kept. */
tutti_status tutti_nn_dn_conv_forward(onednn *b, int unit, int64_t first, int64_t count,
                                      bool again, tutti_error *err);
tutti_status tutti_nn_dn_conv_weights(onednn *b, int unit, int64_t first, int64_t count,
                                      tutti_error *err);
tutti_status tutti_nn_dn_conv_data(onednn *b, int unit, int64_t first, int64_t count,
                                   tutti_error *err);
#endif
