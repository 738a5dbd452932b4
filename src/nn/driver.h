/* driver.h: what drives a backend. nn.c: life, accounts and the public calls; pass.c: the order of
   calls of a pass, and the hooks; by_unit.c: the same where blocks are interleaved; sums.c: the
   sum over a pass's blocks. */
#ifndef TUTTI_NN_DRIVER_H
#define TUTTI_NN_DRIVER_H
#include "image.h"
#include "sequence.h"

/* a block of one sample: 2^20 blocks, 20 sets and the leaf */
enum { NN_SETS_MAX = 21, NN_BATCH_MAX = 1 << 20 };

typedef struct nn_part { /* a unit */
    int param, params; /* the first of its parameters, how many */
    double flops;      /* a forward of a sample */
    double flops_again; /* the part that backward recomputes, in a segment that was dropped */
    bool again;        /* backward recomputes it */
    int segment;       /* the first unit of such a segment, -1: in none */
} nn_part;

struct tutti_nn {
    nn_net net;
    nn_part *unit;
    int units, convs, params;
    bool tied;             /* the last unit reads unit 0's values, too */
    uint64_t seed, first;  /* tutti_nn_draw */
    nn_times times;
    int64_t timed_samples; /* of the training passes since times were last read */
    size_t *count;         /* values of each parameter */
    size_t *width;         /* of a row of each parameter that is a table with row_sparse, else 0 */
    int64_t block, piece;  /* samples of a block of a pass, of a run of an evaluation */
    int sets;              /* own gradient sets */
    float *set_memory;     /* sets x values: the parameters one after another, as in the table */
    float **set_pointers;  /* of `bottom`, then of each set: params */
    float *bottom;         /* one more set, of passes that add; NULL: no such pass yet */
    float *leaf;           /* gradients of a unit on their way to a set */
    float **leaf_pointers;
    size_t leaf_values, set_values; /* of the leaf, of a set */
    float *room;           /* tutti_nn_unit_gradients; NULL: not called yet */
    size_t room_values;
    float *tied_memory;    /* by unit: a tied matrix's gradient of each block */
    float **tied_pointers; /* and each block's gradient pointers */
    size_t values;         /* of a set: of all parameters but tables */
    nn_rows *tables;       /* levels of the stack x params: the rows of tables; width 0: not one */
    int levels;            /* of the stack, the leaf included */
    uint64_t *named;       /* a bit a row of the largest table; 0 between calls */
    bool ends;             /* the block that runs is the pass's last */
    float *const *given;   /* the gradients of the pass that runs; does it add? */
    bool adds;
    const nn_backend *ops;
    void *backend;         /* the one that computes now */
    void **backends;       /* one; by unit, one a block */
    int backend_count, prepared_count; /* that many, from the first on, have copies of the last
                                          given values */
    struct dn_copies *copies; /* by unit: the copies of weights that the backends share */
    bool by_unit;
    nn_run *runs;          /* by unit: of each block */
    tutti_device *device;  /* NULL: nothing is charged */
    int64_t batch;
    size_t statistics;     /* floats of batch norms' running statistics */
    float *running, *own_running; /* a worker's; the memory if it is nn's */
    float *part_statistics;       /* a block's */
    double *mean_statistics;      /* of the blocks of a pass so far, times their samples */
    bool held;                    /* running statistics stay (tutti_nn_hold_statistics) */
    float *losses;         /* tutti_nn_losses */
    const tutti_nn_hooks *looks; /* tutti_nn_look; NULL: evaluations call nothing */
    float *outputs;        /* tutti_nn_outputs, and the place in a window */
    int place;
    bool prepared;         /* the backend's copies are of the values given last */
    size_t bytes_most;     /* tutti_nn_bytes at its most, up to the last evaluation */
};

typedef enum { NN_VALUES, NN_TOKENS, NN_CATEGORIES } nn_sample_kind;

static inline nn_sample_kind nn_kind_of(const tutti_nn *nn)
{
    return nn_takes_tokens(&nn->net)                                  ? NN_TOKENS
           : nn->net.sequence != NULL && nn->net.sequence->tables > 0 ? NN_CATEGORIES
                                                                      : NN_VALUES;
}

/* ---- sums.c ---- */
typedef struct nn_stack {
    float *const *set[NN_SETS_MAX + 1]; /* gradient pointers of each set, bottom first; of the
                                           leaf after them while a block writes it */
    float *const *total;                /* where a pass that adds writes the sum; NULL: the bottom
                                           is the caller's */
    int top;                            /* where the block writes: sets below it */
    int falls;                          /* levels that fall with the block; 0: it becomes a set */
    bool last;
    float *const *apart;                /* where the block has written, if not to set[top] (a tied
                                           matrix's, by unit); NULL: there */
} nn_stack;

/* Sets and lists for passes of nn->batch samples; adds: of those that add, too. */
tutti_status tutti_nn_sums_open(tutti_nn *nn, bool adds, tutti_error *err);
void tutti_nn_sums_close(tutti_nn *nn);
size_t tutti_nn_sums_bytes(const tutti_nn *nn);
/* Begins a pass of several blocks; `run` is the whole pass. */
tutti_status tutti_nn_stack_begin(nn_stack *s, tutti_nn *nn, const nn_run *run, tutti_error *err);
/* By unit: where the block'th block of a tied matrix has its gradient until it falls, in pointers
   that are `pointers` else. Those pointers, if there is none. */
float *const *tutti_nn_stack_apart(const tutti_nn *nn, float *const *pointers, int64_t block);
/* Sets where the block'th block writes, from 0: run->gradients and run->tables. */
void tutti_nn_stack_push(const tutti_nn *nn, nn_stack *s, nn_run *run, int64_t block, bool last);
/* The block has written this parameter's gradient: it is added to as many sets as the block's
   number requires; with the last block up to the final sum, and then to the caller's earlier
   gradient. */
void tutti_nn_stack_fall(const tutti_nn *nn, const nn_stack *s, int param);
/* After the block. */
void tutti_nn_stack_pop(const tutti_nn *nn, nn_stack *s);
/* Calls the hook with the rows of each table that the pass reads. */
tutti_status tutti_nn_need_rows(const tutti_nn *nn, const nn_run *run, const tutti_nn_hooks *hooks,
                                tutti_error *err);
/* The rows of a final table into the caller's gradient. */
void tutti_nn_give_rows(const tutti_nn *nn, int param, const tutti_nn_hooks *hooks);

/* ---- pass.c: what both kinds of passes are made of ---- */
tutti_status tutti_nn_need(const tutti_nn_hooks *h, int unit, bool backward, tutti_error *err);
tutti_status tutti_nn_done(const tutti_nn_hooks *h, int unit, bool backward, tutti_error *err);
/* Samples of the tile of convolution units that begins with sample `first`. */
int64_t tutti_nn_tile_of(const tutti_nn *nn, int64_t samples, int64_t first);
tutti_status tutti_nn_forward_unit(tutti_nn *nn, int unit, int64_t first, int64_t count,
                                   tutti_error *err);
bool tutti_nn_ends_segment(const tutti_nn *nn, int unit);
tutti_status tutti_nn_forward_again(tutti_nn *nn, int unit, int64_t first, int64_t count,
                                    tutti_error *err);
/* last: of the tiles of the run. sums: the stack, NULL: there is one block. */
tutti_status tutti_nn_backward_unit(tutti_nn *nn, int unit, int64_t first, int64_t count,
                                    bool last, const nn_stack *sums, const tutti_nn_hooks *hooks,
                                    tutti_error *err);
/* All tiles of a run through the convolution units, which are needed. */
tutti_status tutti_nn_forward_tiles(tutti_nn *nn, int64_t samples, tutti_error *err);
tutti_status tutti_nn_backward_tiles(tutti_nn *nn, int64_t samples, const nn_stack *sums,
                                     const tutti_nn_hooks *hooks, tutti_error *err);
/* The run from sample `first` on. */
void tutti_nn_skip(const tutti_nn *nn, nn_run *run, int64_t first);
/* After a block of `samples`; part: what it has. */
void tutti_nn_count_statistics(tutti_nn *nn, const float *part, int64_t samples);

/* ---- by_unit.c ---- */
/* A pass of several blocks, without what comes before and after every pass. */
tutti_status tutti_nn_pass_by_unit(tutti_nn *nn, const nn_run *whole, double divisor,
                                   const tutti_nn_hooks *hooks, double *loss_sum,
                                   tutti_error *err);

/* ---- pass.c ---- */
/* Are all labels, tokens and categories that the run reads within their range? */
tutti_status tutti_nn_check_samples(const tutti_nn *nn, const nn_run *run, tutti_error *err);
tutti_status tutti_nn_train(tutti_nn *nn, nn_run run, double divisor, const tutti_nn_hooks *hooks,
                            double *loss_sum, tutti_error *err);
tutti_status tutti_nn_assess(tutti_nn *nn, const nn_run *whole, double *loss_sum, int64_t *correct,
                             tutti_error *err);
#endif
