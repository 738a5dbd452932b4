/* state.h: everything that outlives a step is declared here, once, before anything is allocated.
   From the declarations come the one arena, `tutti plan memory` (bytes by kind), checkpoints, and
   how a run goes on with another number of workers.

   A member of a method's struct that is not declared is lost on resume. A test zeroes every
   declared state after a load and sees the run differ. */
#ifndef TUTTI_STATE_H
#define TUTTI_STATE_H
#include "device.h"
#include "tier.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* ---- declarations ---- */
/* What the state is, hence what happens to it when the number of workers changes from N to M. "One
   a worker" means that each worker has a vector of its own. */
typedef enum tutti_keep {
    /* Bit-identical on all workers: saved once. */
    TUTTI_SAME,
    /* This worker holds elements of one global vector, [first, first+count) or those of `ranges`:
       re-cut exactly, whatever ranges whoever loads it has. */
    TUTTI_SLICE,
    /* One a worker; what must survive is the mean: models, residuals of a mean. All get it (N = M:
       as it was). */
    TUTTI_OWN_MEAN,
    /* One a worker; what must survive is the sum: residuals of the owner of a part of a sum,
       push-sum mass. */
    TUTTI_OWN_SUM,
    /* One a worker; starts from zero on a change: local momenta, counters of neighbours. */
    TUTTI_OWN_ZERO,
    /* Not saved; counted by the plan; undefined at the start of each step. */
    TUTTI_SCRATCH
} tutti_keep;
const char *tutti_keep_name(tutti_keep keep);

/* of_workers: in equal parts, one a worker, by rank; [first, first + count) of each has the same
   place in its part. When it is loaded by other workers than those that saved it:
     - SLICE, OWN: the part of each worker that is still there goes along with it. New workers'
       parts stay as they are.
     - SAME: all parts stay as they are, so what they say is learnt anew. */
typedef struct tutti_range { size_t first, count; } tutti_range;
typedef struct tutti_state {
    const char *name;            /* copied; unique with the engine: "optim.momentum" */
    tutti_keep keep;
    tutti_dtype dtype;
    /* Place in the flat parameter space. Where it has none first = 0, unless `of` says of what it
       is a part. */
    size_t first, count;
    /* SLICE that is placed: elements of several ranges of the flat space, which ascend and do not
       overlap, one behind the other. Then count is their sum and first is not looked at. Empty ones
       are legal. The owner's memory, until the plan is closed. NULL: the one range above. */
    const tutti_range *ranges; size_t n_ranges;
    /* SLICE without a place: elements of the whole vector, of which [first, first + count) are
       mine. 0: all are, and no other worker has any. */
    size_t of;
    bool of_workers;
    bool copy;                   /* SLICE: another worker saves the same elements: it is read, and
                                    never saved */
    bool placed;                 /* an element is a parameter's: saved by tensor name and range */
    bool late;                   /* older checkpoints have none: it stays as open left it */
    bool shared;                 /* wants a transport window, which peers of this host can read */
    /* Where it is: a spec of tier.h, "host" or "nvme(path=...)", copied. Then `slot` becomes a
       tutti_place, and it is no memory of the device. NULL or "": the device. Not `shared`. */
    const char *tier;
} tutti_state;

/* Where a state is that is kept in a tier: from byte `at` of it on, at multiples of
   TUTTI_FILE_BLOCK. memory: its bytes, where the tier has an address, else NULL. */
typedef struct tutti_place { tutti_tier *tier; uint64_t at; void *memory; } tutti_place;
typedef struct tutti_plan tutti_plan;

/* Only within a declare() hook. *slot becomes the memory (zeroed, 64-byte aligned), or of a state
   in a tier the tutti_place, before open().
   Failures (a name twice, no memory) are kept in the plan and come out when it is carried out. */
void tutti_declare(tutti_plan *plan, const tutti_state *state, void *slot);

/* n of the layout, on the device. On a rank that only serves there is none, and *slot stays as it
   is. */
void tutti_declare_vector(tutti_plan *plan, const char *name, tutti_keep keep, float **slot);

/* A value in the owner's struct, kept; the second form is `late`. */
void tutti_declare_value(tutti_plan *plan, const char *name, tutti_keep keep, void *value,
                         size_t bytes);
void tutti_declare_late_value(tutti_plan *plan, const char *name, tutti_keep keep, void *value,
                              size_t bytes);

/* ---- for the engine (and tests): a plan from open to close ---- */
struct tutti_world;
/* n: elements of the flat space; 0: it has no vectors. */
tutti_status tutti_plan_open(tutti_plan **out, size_t n, tutti_error *err);

/* Frees what was given out (windows go with the world). */
void tutti_plan_close(tutti_plan *plan);

/* Before it is carried out: its vectors are counted in `device`, by their names, until the plan is
   closed, but for those in tiers. What memory of the host those take is counted in `host`. Values
   are not: they live in their owners' structs. Both outlive the plan. NULL: nobody counts. */
void tutti_plan_count_in(tutti_plan *plan, tutti_arena *device, tutti_arena *host);

/* Takes one arena for everything private and a window for each shared state (private memory where
   there is none), and fills the slots. Opens one tier for all states of the same spec. world NULL:
   all private, and no tiers. All ranks call alike; blocks.
   TUTTI_ERR_MEMORY, before any is taken: more than may be counted, or than there is. */
tutti_status tutti_plan_carry_out(tutti_plan *plan, struct tutti_world *world, tutti_error *err);
size_t tutti_plan_count(const tutti_plan *plan);

/* Declaration i in order, with its memory (NULL before it is carried out). */
const tutti_state *tutti_plan_state(const tutti_plan *plan, size_t i, void **memory);
/* Of one in a tier, where it is (zeros before it is carried out). Others: NULL. */
const tutti_place *tutti_plan_place(const tutti_plan *plan, size_t i);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
