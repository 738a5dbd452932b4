/* state.h: everything that outlives a step is declared here, once, before anything is allocated.
   The declarations determine the single arena, `tutti plan memory` (bytes by kind), checkpoints,
   and how a run resumes with another number of workers.

   A member of a method's struct that is not declared is lost on resume. A test zeroes every
   declared state after a load and checks that the run then differs. */
#ifndef TUTTI_STATE_H
#define TUTTI_STATE_H
#include "device.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* ---- declarations ---- */
/* The kind of a state, which determines what happens to it when the number of workers changes
   from N to M. "Per worker" means that each worker has a separate vector. */
typedef enum tutti_keep {
    /* Bit-identical on all workers: saved once. */
    TUTTI_SAME,
    /* This worker holds elements of one global vector, [first, first+count) or those of `ranges`:
       repartitioned exactly, whatever ranges the loading worker has. */
    TUTTI_SLICE,
    /* Per worker; the mean must survive: models, residuals of a mean. All get the mean (N = M:
       unchanged). */
    TUTTI_OWN_MEAN,
    /* Per worker; the sum must survive: residuals of the owner of a part of a sum, push-sum
       weight. */
    TUTTI_OWN_SUM,
    /* Per worker; starts from zero on a change: local momenta, counters of neighbours. */
    TUTTI_OWN_ZERO,
    /* Not saved; counted by the plan; undefined at the start of each step. */
    TUTTI_SCRATCH
} tutti_keep;
const char *tutti_keep_name(tutti_keep keep);

/* of_workers: the state consists of equal parts, one per worker, by rank; [first, first + count)
   is the same range in each part. When it is loaded by other workers than those that saved it:
     - SLICE, OWN: the part of each remaining worker stays with that worker. New workers' parts are
       not changed.
     - SAME: all parts are left as open set them, so their contents are learnt again. */
typedef struct tutti_range { size_t first, count; } tutti_range;
typedef struct tutti_state {
    const char *name;            /* copied; unique with the engine: "optim.momentum" */
    tutti_keep keep;
    tutti_dtype dtype;
    /* Range in the flat parameter space. A state outside it has first = 0, unless it is a part of
       a vector of length `of`. */
    size_t first, count;
    /* SLICE that is placed: elements of several ranges of the flat space, ascending and not
       overlapping, concatenated. Then count is their sum and first is ignored. Empty ones are
       legal. The owner's memory, until the plan is closed. NULL: the one range above. */
    const tutti_range *ranges; size_t n_ranges;
    /* SLICE that is not placed: length of the whole vector; [first, first + count) is this
       worker's part. 0: this worker has all of it, and no other worker has any. */
    size_t of;
    bool of_workers;
    bool copy;                   /* SLICE: another worker saves the same elements: it is loaded, and
                                    never saved */
    bool placed;                 /* each element belongs to a parameter: saved by tensor name and
                                    range */
    bool late;                   /* absent from older checkpoints: then it stays as open left it */
    bool shared;                 /* in a transport window, which peers of this host can read */
    /* Where it is kept: a spec of tier.h, "host" or "nvme(path=...)", copied. Then `slot`
       receives a tutti_place, and the state uses no device memory. NULL or "": on the device. Not
       with `shared`. */
    const char *tier;
} tutti_state;

/* Location of a state in a tier: from byte `at` on, a multiple of TUTTI_FILE_BLOCK. memory: its
   bytes, where the tier has an address, else NULL. */
struct tutti_tier;
typedef struct tutti_place { struct tutti_tier *tier; uint64_t at; void *memory; } tutti_place;
typedef struct tutti_plan tutti_plan;

/* Only within a declare() hook. *slot is set before open() to the memory (zeroed, 64-byte
   aligned), or for a state in a tier to the tutti_place. Failures (a duplicate name, no memory)
   are kept in the plan and returned when it is carried out. */
void tutti_declare(tutti_plan *plan, const tutti_state *state, void *slot);

/* Declares a vector of layout->n elements, on the device. On a rank that only serves there is
   none, and *slot does not change. */
void tutti_declare_vector(tutti_plan *plan, const char *name, tutti_keep keep, float **slot);

/* Declares a value in the owner's struct; the pointer is kept. The second form is `late`. */
void tutti_declare_value(tutti_plan *plan, const char *name, tutti_keep keep, void *value,
                         size_t bytes);
void tutti_declare_late_value(tutti_plan *plan, const char *name, tutti_keep keep, void *value,
                              size_t bytes);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
