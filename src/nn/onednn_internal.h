/* onednn_internal.h: what the files of the oneDNN backend share.

     onednn.c            the loss, the table
     onednn_core.c       engine, and primitives as `dn_op`
     onednn_operand.c    operands of 16 bits
     onednn_product.c    products
     onednn_memory.c     which buffer stands where
     onednn_linear.c     linear units
     onednn_conv.c       units with a convolution
     onednn_lstm.c       of the backend of sequences

   onednn_core.c and onednn_linear.c serve the backends that go layer by layer too (layered.h).

   A *plan* is a set of primitives for one number of samples; running one only sets pointers and
   executes. Plans of the full batch are made at open, others at first use, and kept: a linear plan
   for each of a few sizes, a convolution plan for each size of a tile. */
#ifndef TUTTI_NN_ONEDNN_INTERNAL_H
#define TUTTI_NN_ONEDNN_INTERNAL_H
#include "arena.h"
#include "dnnl_compat.h"
#include "loops.h"

enum {
    DN_ARGS = 5,      /* most pointers of a primitive, without the scratchpad */
    DN_TILE = 8,      /* images: 4 to 16 are equally fast, larger ones leave the cache of a core.
                         Part of what fixes the bits */

    /* Samples of a run of an evaluation. A run is always filled up, so that no sample's loss
       depends on how many there are. The number is a multiple of every block of rows in oneDNN's
       kernels (2, 3, 4, 6, 8, 12, 16), so that no row falls into a kernel for the rest, which
       rounds differently: with 256, 4 rows did on AVX2. Large enough to run at full speed. */
    DN_PIECE = 144,
    DN_PLANS = 8      /* linear plans kept besides those of the full batch and of evaluation */
};

/* The conversion of an operand before the primitive reads it (onednn_operand.c). */
typedef enum { DN_AS_IS, DN_NARROWED, DN_WIDENED, DN_ROUNDED } dn_form;
/* at: offset into the scratch, unless as it is */
typedef struct dn_operand { dn_form form; size_t values, at; } dn_operand;

/* A primitive with its memory objects; all zero: none. */
typedef struct dn_op {
    dnnl_primitive_t primitive;
    dnnl_exec_arg_t args[DN_ARGS + 1]; /* in the order of the pointers; the scratchpad last */
    dn_operand operands[DN_ARGS];
    int count;
    size_t scratch;                    /* bytes; the primitive's own are the first */
    char label[48];                    /* "conv2d 0 forward" */
    char implementation[48];

    /* For products whose bits would else depend on the number of threads (onednn_product.c): one
       thread computes the whole product, or each of its parts. */
    bool alone;
    struct dn_part *parts;
    int part_count;
    size_t part_steps[DN_ARGS];        /* bytes from column to column, by pointer */
    size_t part_least;                 /* parts that a thread is woken for */
} dn_op;

/* _add: to what is there */
typedef struct dn_linear { dn_op forward, data, data_add, weights, weights_add; } dn_linear;

/* The resources that primitives are made from and run on. */
typedef struct dn_core {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    /* scratchpad by the user; with a ReLU or a sum behind it */
    dnnl_primitive_attr_t plain, relu, sum;
    int threads;
    void *scratch;                          /* of the running call */
    tutti_dtype precision;                  /* of products' operands; all else is float32 */
    /* oneDNN lacks a product of such operands: it is computed in float32 */
    bool widens;
    tutti_device *device;                   /* converts; NULL: nothing to convert */
    struct dn_copies *copies;               /* of weights, in that precision; NULL: none */
    struct dn_copies **meet;                /* nn_settings.copies */
} dn_core;

/* A 16-bit copy of a float32 weight, made when a product first asks for it after the values have
   changed. */
typedef struct dn_copy { const float *from; uint16_t *to; size_t count; bool made; } dn_copy;
typedef struct dn_copies {
    dn_copy *list;               /* by parameter; parameters of several units may share a copy */
    int count, users;
    const float *const *stand;   /* the pass's values, which may move while they are not in use */
    uint16_t *memory;
    size_t values;
} dn_copies;

typedef struct dn_linear_plan {
    int64_t rows;
    bool train;
    uint64_t used;    /* of the backend's clock; 0: an empty place */
    dn_linear *units; /* of all units; those of convolutions stay empty */
} dn_linear_plan;

/* The buffers of a run for a unit, each with a place of its own in the arena. All float32 but the
   workspace. DN_ACT and DN_WORKSPACE of convolutions have a place a tile in training, or one if
   tiles are computed again. DN_ACT has one in an evaluation. */
enum dn_thing {
    DN_ACT,            /* the unit's output; of convolutions in conv's or pooling's layout */
    DN_WORKSPACE,      /* where the largest value of each of pooling's windows stood */
    DN_ROWS,           /* the last convolution unit's output as plain rows */
    DN_ROWS_SLOPE,     /* its gradient, and that of a linear unit's output, as plain rows */
    DN_FILLED,         /* unit 0: the end of an evaluation's input, filled up with zeros */
    DN_FORWARD_SCRATCH, DN_WEIGHTS_SCRATCH, DN_DATA_SCRATCH, /* of the primitives of a call */

    /* Of the current tile; those of reorders are empty where layouts agree. */
    DN_INPUT,          /* forward: the input in conv's layout */
    DN_WIDE,           /* conv's output on the way to pooling */
    DN_SLOPE,          /* gradient of the unit's output, in the output's layout */
    DN_WIDE_SLOPE,     /* of conv's output, where pooling stands between */
    DN_WEIGHTS_INPUT,  /* the input in the layout of `weights` */
    DN_WEIGHTS_SLOPE, DN_DATA_SLOPE, /* that gradient in the layouts of `weights` and `data` */
    DN_DATA_RESULT,    /* the gradient of the input, before it is brought to the input's layout */

    /* Gradients of a convolution's parameters, blocked as `weights` gives them. */
    DN_SUM, DN_PART,   /* of the weights: over the tiles of one size, of one tile */
    DN_BIAS_SUM, DN_BIAS_PART,
    DN_PLAIN,          /* of the weights in plain order */

    /* DN_INPUT, DN_WIDE and DN_FORWARD_SCRATCH of a tile that is computed again. */
    DN_AGAIN_INPUT, DN_AGAIN_WIDE, DN_AGAIN_SCRATCH,
    DN_THINGS
};
enum { DN_SCRATCHES = DN_DATA_SCRATCH - DN_FORWARD_SCRATCH + 1 };

typedef struct dn_conv {
    dn_op conv, flatten;                   /* flatten: the last unit's output to plain rows */
    dn_op unflatten, weights, data;
    nn_maps wide;                          /* conv's output, where pooling follows; else lanes 0 */
    nn_md pooled;                          /* what pooling makes of it */
    bool plain;                            /* gradients of the weights are our own (onednn_conv.c),
                                              plain, and need no reorders */

    /* Reorders of the weights. */
    dn_op give_forward, give_data;         /* plain to the layouts of conv and data */
    dn_op take_weights;                    /* from the layout of `weights` to plain */

    /* Reorders of activations, where two primitives need different layouts (nowhere in `cnn`). */
    dn_op conv_input, weights_input;       /* the given input to the layouts of conv, `weights` */
    dn_op weights_slope, data_slope;       /* the slope of conv's output to their layouts */
    dn_op data_result;                     /* data's result to the layout of the given input */

    size_t bytes[DN_THINGS];               /* of a tile; 0 for what it has not */
    size_t forward_bytes, data_bytes;      /* of the copies of the weights */
    size_t forward_copy, data_copy;        /* their places: offsets into the arena */
    uint64_t forward_version, data_version; /* of the values they were made from; 0: none */
} dn_conv;

typedef struct dn_conv_plan { bool made, sum_begun[NN_UNITS_MAX]; dn_conv *units; } dn_conv_plan;

/* The places of all buffers in one kind of run, as offsets into the arena. */
typedef struct dn_layout {
    bool made;
    size_t at[NN_UNITS_MAX][DN_THINGS];
    int kept[NN_UNITS_MAX][DN_THINGS]; /* of a stage: 0, or 1 more than its place in onednn.kept */
    size_t act_step[NN_UNITS_MAX], workspace_step[NN_UNITS_MAX]; /* bytes from tile to tile */
    size_t end;
    size_t scratch[NN_UNITS_MAX][DN_SCRATCHES]; /* bytes: the most a primitive has needed so far */
} dn_layout;

typedef struct onednn {
    const nn_net *net;
    const nn_loops *loops;
    int64_t batch;
    dn_core core;

    dn_linear_plan full, evaluation, others[DN_PLANS], *linear; /* linear: of this run */
    dn_conv_plan tiles[DN_TILE + 1];  /* by images */
    uint64_t clock;                   /* of the use of plans */
    uint64_t version;                 /* of the values, from 1 */

    char *arena;                      /* copies of weights at the front, then a run's things */
    size_t arena_bytes, copies_end;
    dn_layout layouts[2];             /* of evaluation, of training */
    nn_kept kept[NN_UNITS_MAX * 4];   /* of a stage */
    int kept_count;
    nn_run run;
    const dn_layout *layout;          /* of this run */
} onednn;

static inline void *dn_at(const onednn *b, int unit, enum dn_thing thing)
{
    const int kept = b->layout->kept[unit][thing];
    return kept > 0 ? b->run.kept[kept - 1] : b->arena + b->layout->at[unit][thing];
}

/* ---- onednn.c ---- */
/* Softmax cross-entropy of the run's samples, y: samples x classes; slope of the sum / divisor,
   written if the run trains. */
void tutti_nn_dn_entropy(const nn_run *run, size_t classes, const float *y, double divisor,
                         float *slope, double *sum, int64_t *correct);

/* ---- onednn_core.c ---- */
/* *core is all zero before. tutti_nn_dn_core_close also after a failure. Of the settings: threads,
   precision and cpu. */
tutti_status tutti_nn_dn_core_open(dn_core *core, const nn_settings *settings, tutti_error *err);
void tutti_nn_dn_core_close(dn_core *core);
/* Between these two the calling thread has the core's number of threads; leave gives `status`. */
int tutti_nn_dn_enter(const dn_core *core);
tutti_status tutti_nn_dn_leave(int before, tutti_status status);
/* Takes pd. Makes the primitive and its memory objects for `count` arguments; refuses the library's
   reference code, which is hundreds of times slower. status: of the call that made pd. */
tutti_status tutti_nn_dn_op_open(dn_core *core, dn_op *op, dnnl_primitive_desc_t pd,
                                 dnnl_status_t status, const nn_unit *unit, const char *what,
                                 const int *args, int count, tutti_error *err);
/* The same for a change of layouts. The second: only where the layouts differ, else the op is
   none. */
tutti_status tutti_nn_dn_reorder(dn_core *core, dn_op *op, const nn_unit *unit, const char *what,
                                 nn_mdref from, nn_mdref to, tutti_error *err);
tutti_status tutti_nn_dn_adapt(dn_core *core, dn_op *op, const nn_unit *unit, const char *what,
                               nn_mdref from, nn_mdref to, tutti_error *err);
void tutti_nn_dn_op_close(dn_op *op);
/* pointers: one an argument, as given at open. */
tutti_status tutti_nn_dn_op_run(dn_core *core, dn_op *op, void *const *pointers, tutti_error *err);
nn_mdref tutti_nn_dn_md(const dn_op *op, int arg);
/* "linear 4 forward: brg:avx512_core", a line an op (tutti_nn_say); nothing for no primitive. */
int tutti_nn_dn_describe(const dn_op *const *ops, size_t count, char *text, size_t bytes,
                         int length);
tutti_status tutti_nn_dn_failed(dnnl_status_t status, const nn_unit *unit, const char *what,
                                tutti_error *err);

/* Has oneDNN a primitive that is not its reference code? pd, status: of the call that made it. */
bool tutti_nn_dn_usable(const_dnnl_primitive_desc_t pd, dnnl_status_t status);

/* ---- onednn_operand.c ---- */
/* oneDNN's name of the core's precision. */
dnnl_data_type_t tutti_nn_dn_narrow_type(const dn_core *core);
/* After the op is open: its argument `index` is a product's operand of `values` values (0: as
   many as its layout takes), given as float32 or, `narrow`, in 16 bits. Adds to op->scratch. */
void tutti_nn_dn_operand(dn_core *core, dn_op *op, int index, size_t values, bool narrow);
/* The three primitives of a convolution. Where oneDNN supports it they take 16-bit operands,
   which then must be given in 16 bits, in the layouts of tutti_nn_dn_md. The operands are args[0]
   and args[1]. maps: layouts to choose from, of src, weights and dst, in the core's precision and
   as float32; bias may be NULL. forward: the hint of the other two. */
typedef enum { DN_CONV_FORWARD, DN_CONV_WEIGHTS, DN_CONV_DATA } dn_conv_kind;
typedef struct dn_conv_maps {
    nn_mdref narrow_src, narrow_weights, narrow_dst, src, weights, dst, bias;
} dn_conv_maps;
tutti_status tutti_nn_dn_conv(dn_core *core, dn_op *op, dn_conv_kind kind, nn_conv_steps steps,
                              const dn_conv_maps *maps, const dn_op *forward,
                              dnnl_primitive_attr_t attr, const nn_unit *unit, const char *what,
                              const int *args, int count, tutti_error *err);
/* The operand that the primitive must read, made from the given one. */
void *tutti_nn_dn_operand_ready(dn_core *core, const dn_op *op, int index, void *given);
/* to: 16 bits, nearest even. Split among the core's threads. */
void tutti_nn_dn_narrow(const dn_core *core, size_t n, const float *from, uint16_t *to);
/* Copies of those parameters that products read as they stand in the table, of n parameters.
   values: of each, 0 of one without a copy. Backends that share copies (nn_settings.copies) have
   one place for all units, as they compute unit by unit: the copies of a unit void those of
   another. Does nothing if the precision is float32. */
typedef struct dn_wanted { size_t values; int unit; } dn_wanted;
tutti_status tutti_nn_dn_copies_open(dn_core *core, const dn_wanted *wanted, int n,
                                     tutti_error *err);
/* The backend's part of them. */
size_t tutti_nn_dn_copies_bytes(const dn_core *core);
/* A run begins: the values are here; not `same`: and others than in the last run. */
void tutti_nn_dn_copies_begin(dn_core *core, const float *const *values, bool same);
void tutti_nn_dn_copies_close(dn_core *core);

/* ---- onednn_memory.c ---- */
/* Called after making a primitive that runs in such a call of the unit (`which`: a scratch
   buffer). The layout is made again if the primitive needs more than all before. */
void tutti_nn_dn_note_scratch(onednn *b, bool train, int unit, enum dn_thing which,
                              const dn_op *op);
/* Called after making a convolution plan: layouts are made again. */
void tutti_nn_dn_forget_layouts(onednn *b);
/* After all plans of a run are made: makes its layout, and an arena large enough for it.
   Allocates only if something has grown; copies of weights are then lost. */
tutti_status tutti_nn_dn_memory(onednn *b, bool train, tutti_error *err);
/* Between an evaluation and training: exactly what training needs. */
void tutti_nn_dn_memory_trim(onednn *b);

/* ---- onednn_product.c ---- */
/* A matrix rows x columns; the steps are the numbers of elements from row to row and from column
   to column; both 0: the product chooses the layout. */
typedef struct dn_matrix { int64_t rows, columns, row_step, column_step; } dn_matrix;
/* y = x w (+ bias, a value a column of y). Operands x and w are float32, or given in 16 bits
   (`narrow`, DN_NARROW_X | DN_NARROW_W); a w without steps is given in the layout of
   tutti_nn_dn_md. The product is made of 16-bit operands where oneDNN supports it. Pointers of a
   run: x, w, y, bias. */
enum { DN_NARROW_X = 1, DN_NARROW_W = 2 };
tutti_status tutti_nn_dn_product(dn_core *core, dn_op *op, const nn_unit *u, const char *what,
                                 dn_matrix x, dn_matrix w, bool bias, dn_matrix y, int narrow,
                                 dnnl_primitive_attr_t attr, tutti_error *err);
/* For onednn_core.c. pointers: what the primitive is to read. */
dnnl_status_t tutti_nn_dn_parts_run(const dn_core *core, dn_op *op, void *const *pointers);
void tutti_nn_dn_parts_close(dn_op *op);

/* ---- onednn_linear.c ---- */
enum {
    DN_BARE = 1,                           /* no bias */
    DN_WEIGHTS = 2, DN_DATA = 4, DN_DATA_ADD = 8, /* primitives besides the forward */
    DN_NARROW = 16                         /* x and the slope of y are given in 16 bits if the core
                                              computes in them */
};
/* The products of a linear unit; of *u only `in`, `wide`, `relu`, `kind` and `index` matter. Its
   y and the slope of y are columns of rows of `of` values. tutti_nn_dn_linear_free also after a
   failure. */
tutti_status tutti_nn_dn_linear_build(dn_core *core, dn_linear *l, const nn_unit *u, int64_t of,
                                      int64_t rows, int parts, tutti_error *err);
void tutti_nn_dn_linear_free(dn_linear *l);
/* Sums over rows as math.h and loops.h have them: parts of NN_ROWS rows each, one after another.
   column_sums: of x, rows x columns, split among the core's threads. Both leave the sum in the
   first part. */
size_t tutti_nn_dn_parts(size_t rows);
void tutti_nn_dn_add_parts(const nn_loops *loops, size_t rows, size_t step, float *parts);
void tutti_nn_dn_column_sums(const dn_core *core, const nn_loops *loops, size_t rows,
                             size_t columns, float *x, float *parts);
tutti_status tutti_nn_dn_linear_plan(onednn *b, int64_t rows, bool train, dn_linear_plan **out,
                                     tutti_error *err);
void tutti_nn_dn_linear_close(onednn *b, dn_linear_plan *plan);
tutti_status tutti_nn_dn_linear_forward(onednn *b, int unit, tutti_error *err);
tutti_status tutti_nn_dn_linear_weights(onednn *b, int unit, tutti_error *err);
tutti_status tutti_nn_dn_linear_data(onednn *b, int unit, tutti_error *err);

/* ---- onednn_lstm.c: rows in the order (moment, window) ---- */
struct nn_math;
typedef struct dn_lstm {
    /* Set before it is built. */
    int64_t windows;
    int64_t length, width;                /* moments of a window; values of h */
    int directions;                       /* 1, or 2 with that from the last moment to the first */

    dn_linear layer;                      /* all moments' products with W_ih */
    dn_op step, give_step;                /* a moment's with W_hh; what brings W_hh there. None if
                                             length is 1 */
    dn_op back, give_back;                /* the same backward */
    dn_op hidden, hidden_add;             /* gradient of W_hh */
    size_t forward_bytes, back_bytes;     /* of `scratch` of a run */
    size_t forward_packed, back_packed;   /* where in it W_hh is brought to */
} dn_lstm;
typedef struct dn_lstm_run {
    const float *x;                       /* rows x in */
    float *y;                             /* rows x directions width */
    float *kept;                          /* from forward to data: tutti_nn_dn_lstm_kept bytes */
    void *scratch;                        /* of this call alone, aligned to lines */
    const float *const *values;           /* a direction: weight_ih, weight_hh, bias_ih, bias_hh */
    float *const *gradients;              /* likewise, weights only */
    bool add;
    const float *slope;                   /* of y; weights only */
    float *back;                          /* of x; data only */
} dn_lstm_run;
/* in: values of a row of x. tutti_nn_dn_lstm_free also after a failure. */
tutti_status tutti_nn_dn_lstm_build(dn_core *core, dn_lstm *l, int index, int64_t in, bool train,
                                    tutti_error *err);
void tutti_nn_dn_lstm_free(dn_lstm *l);
int tutti_nn_dn_lstm_describe(const dn_lstm *l, char *text, size_t bytes, int length);
size_t tutti_nn_dn_lstm_kept(int64_t rows, int64_t width, int directions);
tutti_status tutti_nn_dn_lstm_forward(dn_core *core, dn_lstm *l, const struct nn_math *math,
                                      const dn_lstm_run *r, tutti_error *err);
tutti_status tutti_nn_dn_lstm_weights(dn_core *core, dn_lstm *l, const struct nn_math *math,
                                      const nn_loops *loops, const dn_lstm_run *r,
                                      tutti_error *err);
tutti_status tutti_nn_dn_lstm_data(dn_core *core, dn_lstm *l, const dn_lstm_run *r,
                                   tutti_error *err);

/* ---- onednn_conv.c ---- */
tutti_status tutti_nn_dn_conv_plan(onednn *b, int64_t images, tutti_error *err);
void tutti_nn_dn_conv_close(onednn *b, dn_conv_plan *plan);
/* again: in backward, for what `weights` reads; what linear units read is still there. */
tutti_status tutti_nn_dn_conv_forward(onednn *b, int unit, int64_t first, int64_t count,
                                      bool again, tutti_error *err);
tutti_status tutti_nn_dn_conv_weights(onednn *b, int unit, int64_t first, int64_t count,
                                      tutti_error *err);
tutti_status tutti_nn_dn_conv_data(onednn *b, int unit, int64_t first, int64_t count,
                                   tutti_error *err);
#endif
