/* optim.h: the update rule. One fused pass over any range of the flat space, so that a piece
   (overlap), a shard (ZeRO, servers), a tile (host, NVMe) and the whole model are the same call.

   Update rules are PyTorch's (2.13, CPU, one tensor) to the bit, except for Adam's square root,
   which PyTorch does not round correctly (a last bit of w):
     sgd    torch.optim.SGD: momentum, dampening, nesterov, weight_decay as L2
     adam   torch.optim.Adam: L2 decay
     adamw  decoupled decay */
#ifndef TUTTI_OPTIM_H
#define TUTTI_OPTIM_H
#include "options.h"
#include "state.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif
#define TUTTI_SLOTS_MAX 3

/* g is multiplied by scale; t counts from 1. */
typedef struct tutti_rate {
    double lr, scale;
    uint64_t t;
} tutti_rate;
typedef struct tutti_optim tutti_optim;
typedef struct tutti_optim_ops {
    const char *name, *paper;
    const tutti_option *options;
    size_t self_bytes;
    /* "momentum"; "exp_avg", "exp_avg_sq"; NULL-ended, at most TUTTI_SLOTS_MAX. */
    const char *const *slot_names;
    /* How many of slot_names this configuration uses (sgd without momentum: 0). */
    int (*slots)(const void *self);
    /* Optional: refuses combinations that bounds of options cannot express. */
    tutti_status (*check)(const void *self, tutti_error *err);
    /* count elements: w (updated), g (read), slot[k]. Element-wise: the result for an element
       does not depend on the range in which it is updated (tested, bit for bit). Any runtime
       thread; ranges of concurrent calls must not overlap. */
    void (*apply)(const tutti_optim *o, size_t count, float *w, const float *g, float *const *slot,
                  const tutti_rate *rate);
    double (*lr)(const void *self);    /* the base learning rate, for the schedule */
    /* May rows of a table whose gradient is 0 be skipped? True where that changes nothing, or was
       requested (lazy). */
    bool (*by_rows)(const void *self);
    /* Does skipping them change the result? Then the rows that a step has touched must be known,
       not only those whose gradient is not 0. */
    bool (*lazy)(const void *self);
} tutti_optim_ops;

struct tutti_optim {
    const tutti_optim_ops *ops;
    void *self;
    tutti_spec *spec;
    tutti_device *device;
    /* The ranges that its slots cover: ascending and not overlapping, concatenated in each slot.
       count: elements of all. at[k]: offset of range k in a slot. */
    tutti_range *ranges;
    size_t n_ranges, count, *at;
    float *slot[TUTTI_SLOTS_MAX];      /* the first element of range 0; NULL in a tier without
                                          addresses */
    tutti_place place[TUTTI_SLOTS_MAX]; /* likewise, of slots that are in a tier */
};
extern const tutti_optim_ops *const tutti_optims[]; /* registry; NULL-ended */
const tutti_optim_ops *tutti_optim_find(const char *name);

/* Within declare(): an optimiser over [first, first+count) with slots kept as `keep`. Their states
   are "<prefix>.<slot name>". */
tutti_status tutti_optim_declare(tutti_optim **out, tutti_plan *plan, const char *spec,
                                 const char *prefix, size_t first, size_t count, tutti_keep keep,
                                 tutti_device *device, tutti_error *err);
/* tutti_optim_declare over several ranges, which are copied; kept as TUTTI_SLICE, in that tier
   (tutti_state; NULL: in memory). copy: another worker has the same slots and saves them
   (tutti_state). */
tutti_status tutti_optim_declare_ranges(tutti_optim **out, tutti_plan *plan, const char *spec,
                                        const char *prefix, const tutti_range *ranges,
                                        size_t n_ranges, bool copy, const char *tier,
                                        tutti_device *device, tutti_error *err);
/* For slots in a tier: call once the plan is carried out, before any update. Finds those that
   have an address. */
void tutti_optim_placed(tutti_optim *o);
void tutti_optim_close(tutti_optim *o);
double tutti_optim_lr(const tutti_optim *o);
bool tutti_optim_by_rows(const tutti_optim *o); /* false for NULL */
bool tutti_optim_lazy(const tutti_optim *o);    /* likewise */

/* Updates a range within one of those that the slots cover. w, g: its element `first`. */
void tutti_update(tutti_optim *o, size_t first, size_t count, float *w, const float *g,
                  const tutti_rate *rate);

/* tutti_update, to the bit, as one pass over memory that also copies w to `to`: to.dtype BF16 or
   F16, rounded, or F32; to.count = count; to.data NULL: no copy. It works in tiles that stay in
   the caches between update and copy. team: the threads that share it, NULL: only the caller.
   Blocks. */
void tutti_update_tiled(tutti_optim *o, size_t first, size_t count, float *w, const float *g,
                        const tutti_rate *rate, tutti_buffer to, tutti_team *team);

/* ---- updates of state in a tier (src/optim/placed.c) ---- */

/* A part of an update: elements within one of the ranges that the slots cover. */
typedef struct tutti_update_part {
    size_t first, count;
    const float *g;                    /* its element `first`; ignored where the gradient is in the
                                          tier */
    float *x;                          /* likewise: a copy of w; NULL: none */
} tutti_update_part;
typedef struct tutti_placed_options {
    size_t tile_bytes;                 /* of a tile, rounded up to 16 KiB; at most all */
    int threads;                       /* for an update, including its caller; at least 1 */
    const tutti_place *gradients;      /* floats with the same layout as a slot, in the same tier;
                                          read by open. NULL: each part has its own gradient */
} tutti_placed_options;
typedef struct tutti_placed tutti_placed;

/* o's slots must be in a tier, and in the same tier masters, a place for o->count floats with the
   layout of a slot; tutti_optim_placed was called. If the tier has no addresses, three tiles of
   each are allocated and counted in `host`. Allocates, starts threads. */
tutti_status tutti_placed_open(tutti_placed **out, tutti_optim *o, const tutti_place *masters,
                               tutti_runtime *rt, const tutti_placed_options *options,
                               tutti_arena *host, tutti_error *err);
void tutti_placed_close(tutti_placed *p);
/* Bytes of those tiles. */
size_t tutti_placed_bytes(const tutti_optim *o, const tutti_placed_options *options);

/* Updates these parts, in their order, with the bits of tutti_update on masters in memory.
   over: may be NULL; called when part k's w is in its x. Its masters may still be being written.
   All is written when the call ends; one call at a time. After a failure, which is the tier's,
   masters and slots of this update are undefined. Blocks; does not allocate. */
tutti_status tutti_placed_update(tutti_placed *p, const tutti_update_part *parts, size_t n,
                                 const tutti_rate *rate, void (*over)(void *arg, size_t part),
                                 void *arg, tutti_error *err);
/* Masters of one part := x. Blocks. */
tutti_status tutti_placed_take(tutti_placed *p, const tutti_update_part *part, tutti_error *err);
/* x := masters of one part. Blocks. */
tutti_status tutti_placed_give(tutti_placed *p, const tutti_update_part *part, tutti_error *err);
uint64_t tutti_placed_updated(const tutti_placed *p); /* elements, so far */

/* ---- schedules of the learning rate: a factor on the base rate, a pure function of the step
   (from 0), the same bits on every machine. It is never above 1: the base rate is the maximum.

   Specs: constant(warmup=W), step(every=E,gamma=G,warmup=W), cosine(warmup=W,floor=F),
   linear(warmup=W,floor=F). Warm-up: factor (t+1)/W for step t < W, then the schedule counted
   from W to `steps` in total. At t = steps it is at its end (cosine, linear: floor, exactly) and
   stays there. A warm-up longer than `steps` is refused. ---- */
typedef struct tutti_lr_schedule tutti_lr_schedule;
tutti_status tutti_lr_schedule_open(tutti_lr_schedule **out, const char *spec, uint64_t steps,
                                    tutti_error *err);
void tutti_lr_schedule_close(tutti_lr_schedule *s);
double tutti_lr_schedule_factor(const tutti_lr_schedule *s, uint64_t step);

/* {0}-ended, for help and docs. shape: the factor after `done` of `of` steps without warm-up. */
extern const struct tutti_lr_schedule_ops {
    const char *name, *help;
    const tutti_option *options;
    double (*shape)(const void *self, uint64_t done, uint64_t of);
} tutti_lr_schedules[];
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
