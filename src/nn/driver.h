/* driver.h: private header of the driver, which leads a backend (nn_backend) through passes and
   evaluations. Included by nn.c, pass.c, by_unit.c and sums.c, and by stage.h for stages.

     nn.c        opens and closes networks; the public calls of nn.h
     pass.c      the order of calls of a pass, and the hooks
     by_unit.c   the same for passes whose blocks are interleaved unit by unit
     sums.c      the sum of the gradients of a pass's blocks

   A pass is split into *blocks* of tutti_nn.block samples. A *gradient set* holds one block's
   gradients, or a sum of several blocks' gradients, for all parameters but tables. A table is a
   parameter with row_sparse; its gradient is a list of rows (nn_rows). */
#ifndef TUTTI_NN_DRIVER_H
#define TUTTI_NN_DRIVER_H
#include "image.h"
#include "sequence.h"

/* With blocks of one sample the largest pass has 2^20 blocks: 20 gradient sets and the leaf. */
enum { NN_SETS_MAX = 21, NN_BATCH_MAX = 1 << 20, NN_BATCH_DEFAULT = 64 };

/* What the driver knows of a unit. */
typedef struct nn_driver_unit {
    int param, params;           /* its parameters are [param, param + params) */
    double flops;                /* of a sample's forward */
    double flops_again;          /* of the layers that backward computes again, of a sample */
    bool again;                  /* backward computes some of its layers again */
    int segment;                 /* first unit of its segment, if the segment's activations are
                                    dropped after forward; -1: they are kept */
} nn_driver_unit;

struct tutti_nn {
    nn_net net;
    int64_t batch;               /* most samples of a pass */
    int64_t block;               /* samples of a block; the last block of a pass may have fewer */
    int64_t eval_samples;        /* samples of an evaluation run */
    tutti_device *device;        /* charged with flops; NULL: nothing is charged */

    /* ---- units and parameters ---- */
    nn_driver_unit *unit;        /* [units] */
    int units;
    int convs;                   /* units [0, convs) run in tiles; 0 for sequences and images with
                                    their own lists */
    int params;
    bool tied;                   /* the last unit reads unit 0's parameter as well */
    size_t *count;               /* [params]: values */
    size_t *width;               /* [params]: values of a table's row; 0: not a table */
    size_t values;               /* of all parameters but tables */

    /* ---- backends ---- */
    const nn_backend *ops;
    void **backends;             /* [backend_count]: one for each block if by_unit, else one */
    int backend_count;
    void *backend;               /* the one that computes now */
    struct dn_copies *copies;    /* by_unit: 16-bit copies of weights, shared by the backends */
    bool by_unit;                /* blocks are interleaved unit by unit; false if there is one block
                                    only */
    nn_run *runs;                /* [backend_count]; by_unit: the run of each block */
    bool prepared;               /* the backend's copies of weights are those of the last pass */
    int prepared_count;          /* by_unit: the same for backends [0, prepared_count) */

    /* ---- the sum over blocks (sums.c) ---- */
    int sets;                    /* gradient sets in addition to the caller's */
    size_t set_values;           /* floats of a set; by_unit: of the largest unit */
    float *set_memory;           /* [sets][set_values] */
    float **set_pointers;        /* [sets + 1][params]: pointers into `bottom`, then each set */
    float *bottom;               /* [set_values]: the bottom set of passes that add; NULL: no such
                                    pass yet */
    size_t leaf_values;
    float *leaf;                 /* [leaf_values]: gradients of one unit before they are added */
    float **leaf_pointers;       /* [params] */
    float *tied_memory;          /* by_unit: [backend_count], each block's gradient of a tied
                                    matrix; NULL: no matrix is tied */
    float **tied_pointers;       /* [backend_count][params]: each block's gradient pointers; NULL as
                                    tied_memory */
    int levels;                  /* most levels of the stack, the leaf included */
    nn_rows *tables;             /* [levels][params]; width 0: not a table */
    uint64_t *touched;           /* a bit for each row of the largest table; 0 between calls */
    float *unit_gradients;       /* memory of tutti_nn_unit_gradients; NULL: not called yet */
    size_t unit_gradient_values;

    /* ---- the pass that runs ---- */
    float *const *gradients;     /* [params]: the caller's */
    bool adds;                   /* it adds to them */
    bool last_block;             /* the block that runs is the last */

    /* ---- running statistics of batch norms ---- */
    size_t statistics;           /* floats; 0: the network has none */
    float *running;              /* [statistics] */
    float *own_running;          /* the memory of `running` if the network owns it, else NULL */
    float *block_statistics;     /* [backend_count][statistics]: of a block's samples */
    double *mean_statistics;     /* [statistics]: sum over the blocks so far of statistics times
                                    samples */
    bool hold_statistics;        /* tutti_nn_hold_statistics */

    /* ---- what the caller has set ---- */
    uint64_t seed, first;        /* tutti_nn_draw */
    float *losses;               /* tutti_nn_losses; NULL: not wanted */
    float *outputs;              /* tutti_nn_outputs; NULL: not wanted */
    int position;                /* tutti_nn_outputs: position in a window; -1: all */
    const tutti_nn_hooks *evaluation_hooks; /* NULL: evaluations call none */

    /* ---- accounts ---- */
    nn_times times;
    int64_t timed_samples;       /* of training passes since tutti_nn_times was called */
    size_t bytes_most;           /* peak of tutti_nn_bytes up to the last evaluation */
};

typedef enum { NN_VALUES, NN_TOKENS, NN_CATEGORIES } nn_sample_kind;

static inline nn_sample_kind nn_kind_of(const tutti_nn *nn)
{
    return nn_takes_tokens(&nn->net)                                  ? NN_TOKENS
           : nn->net.sequence != NULL && nn->net.sequence->tables > 0 ? NN_CATEGORIES
                                                                      : NN_VALUES;
}

/* ---- sums.c ---- */
/* Where the blocks of a pass write their gradients. The sets are a binary counter: set k holds the
   sum of 2^j blocks, with a larger j than set k + 1. A block that completes a sum is merged into
   the sets below it; see sums.c. */
typedef struct nn_stack {
    float *const *set[NN_SETS_MAX + 1]; /* [top + 1] used; each [params] pointers, the bottom first.
                                           set[top] is the leaf if the current block merges */
    float *const *total;         /* gradients to which a pass that adds adds its sum; NULL: the
                                    pass writes, and set[0] is the caller's */
    int top;                     /* number of sets that hold sums; the current block writes to
                                    set[top] */
    int merges;                  /* levels that are merged after the current block, each into the
                                    one below; 0: the block becomes a set */
    bool last;                   /* the current block is the last */
    float *const *tied;          /* by_unit: where the current block has written, which differs from
                                    set[top] for a tied matrix; NULL: set[top] */
} nn_stack;

/* Allocates gradient sets and lists of rows for passes of nn->batch samples. adds: including the
   set that passes that add need. TUTTI_ERR_MEMORY. */
tutti_status tutti_nn_sums_open(tutti_nn *nn, bool adds, tutti_error *err);
void tutti_nn_sums_close(tutti_nn *nn);
size_t tutti_nn_sums_bytes(const tutti_nn *nn);
/* Begins the stack of a pass of several blocks. run: the whole pass. Allocates in the first pass
   that adds. */
tutti_status tutti_nn_stack_begin(nn_stack *s, tutti_nn *nn, const nn_run *run, tutti_error *err);
/* Chooses where block `block`, counted from 0, writes: sets run->gradients, run->tables and
   run->add. */
void tutti_nn_stack_push(const tutti_nn *nn, nn_stack *s, nn_run *run, int64_t block, bool last);
/* Merges one parameter's gradient after the current block has written it, by as many levels as
   s->merges; after the last block also into s->total. */
void tutti_nn_stack_merge(const tutti_nn *nn, const nn_stack *s, int param);
/* Ends the current block, when all parameters have been merged. */
void tutti_nn_stack_pop(const tutti_nn *nn, nn_stack *s);
/* Returns the gradient pointers of a block that runs by unit: `pointers`, but a tied matrix's
   gradient is in memory of this block, until it is merged. Returns `pointers` itself if no matrix
   is tied. */
float *const *tutti_nn_tied_gradients(const tutti_nn *nn, float *const *pointers, int64_t block);
/* Calls the hook rows_acquire for each table, with the rows that the pass reads. */
tutti_status tutti_nn_acquire_rows(const tutti_nn *nn, const nn_run *run,
                                   const tutti_nn_hooks *hooks, tutti_error *err);
/* Adds the final rows of a table's gradient to the caller's gradient. Does nothing if the caller's
   pointer is NULL. Without the hook grad_ready_rows, and if the pass does not add, it first writes
   zeros to all rows. */
void tutti_nn_scatter_rows(const tutti_nn *nn, int param, const tutti_nn_hooks *hooks);

/* ---- pass.c: the parts that by_unit.c and stage.c use as well ---- */
/* Call the hook unit_acquire or unit_release; TUTTI_OK if h or the hook is NULL. */
tutti_status tutti_nn_acquire_unit(const tutti_nn_hooks *h, int unit, bool backward,
                                   tutti_error *err);
tutti_status tutti_nn_release_unit(const tutti_nn_hooks *h, int unit, bool backward,
                                   tutti_error *err);
/* Returns the number of samples of the tile that begins with sample `first` of a run of `samples`
   samples. */
int64_t tutti_nn_tile_of(const tutti_nn *nn, int64_t samples, int64_t first);
/* Runs forward of one unit for samples [first, first + count) of the run. */
tutti_status tutti_nn_forward_unit(tutti_nn *nn, int unit, int64_t first, int64_t count,
                                   tutti_error *err);
/* Returns true if the unit is the last one of a segment whose activations are dropped. */
bool tutti_nn_ends_segment(const tutti_nn *nn, int unit);
/* Computes the unit's dropped activations again. */
tutti_status tutti_nn_forward_again(tutti_nn *nn, int unit, int64_t first, int64_t count,
                                    tutti_error *err);
/* Runs backward of one unit: gradients, merge, hook grad_ready, then the slope of its input. last:
   [first, first + count) is the run's last tile. sums: NULL if the pass has one block. hooks: NULL
   if the block is not the last. */
tutti_status tutti_nn_backward_unit(tutti_nn *nn, int unit, int64_t first, int64_t count,
                                    bool last, const nn_stack *sums, const tutti_nn_hooks *hooks,
                                    tutti_error *err);
/* Run forward, or backward, of the convolution units for all tiles of a run. The units have been
   acquired. */
tutti_status tutti_nn_forward_tiles(tutti_nn *nn, int64_t samples, tutti_error *err);
tutti_status tutti_nn_backward_tiles(tutti_nn *nn, int64_t samples, const nn_stack *sums,
                                     const tutti_nn_hooks *hooks, tutti_error *err);
/* Advances the sample pointers of *run by `first` samples. run->samples does not change. */
void tutti_nn_run_from(const tutti_nn *nn, nn_run *run, int64_t first);
/* Adds the statistics of a block of `samples` samples to nn->mean_statistics. */
void tutti_nn_add_statistics(tutti_nn *nn, const float *block, int64_t samples);
/* Checks that all labels, tokens and categories that the run reads are in range:
   TUTTI_ERR_CORRUPT, with index and value. */
tutti_status tutti_nn_check_samples(const tutti_nn *nn, const nn_run *run, tutti_error *err);
/* Makes a training pass; see tutti_nn_pass. */
tutti_status tutti_nn_train(tutti_nn *nn, nn_run run, double divisor, const tutti_nn_hooks *hooks,
                            double *loss_sum, tutti_error *err);
/* Makes an evaluation, in runs of nn->eval_samples samples; see tutti_nn_evaluate. */
tutti_status tutti_nn_evaluate_run(tutti_nn *nn, const nn_run *whole, double *loss_sum,
                                   int64_t *correct, tutti_error *err);

/* ---- by_unit.c ---- */
/* Makes the forward and backward of a pass of several blocks, unit by unit. tutti_nn_train does
   what precedes and follows every pass. */
tutti_status tutti_nn_pass_by_unit(tutti_nn *nn, const nn_run *whole, double divisor,
                                   const tutti_nn_hooks *hooks, double *loss_sum,
                                   tutti_error *err);
#endif
