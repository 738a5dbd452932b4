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
void tutti_optim_close(tutti_optim *o);
double tutti_optim_lr(const tutti_optim *o);
bool tutti_optim_by_rows(const tutti_optim *o); /* false for NULL */
bool tutti_optim_lazy(const tutti_optim *o);    /* likewise */

/* Updates a range within one of those that the slots cover. w, g: its element `first`. */
void tutti_update(tutti_optim *o, size_t first, size_t count, float *w, const float *g,
                  const tutti_rate *rate);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
