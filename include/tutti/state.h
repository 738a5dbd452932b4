/* state.h: everything that outlives a step is declared here, once, before anything is allocated. From the declarations
   come: the one arena, `tutti plan` (bytes by kind), checkpoint and resume, later resharding to another worker count,
   healing and replica hashes. A member of a method's struct that is not declared is lost on resume; a test zeroes every
   declared state after a load and sees the run differ. */
#ifndef TUTTI_STATE_H
#define TUTTI_STATE_H
#include "device.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* What the state is, hence what happens to it when the number of workers changes from N to M: */
typedef enum tutti_keep {
    TUTTI_SAME,      /* bit-identical on all workers: saved once, hashed, any survivor's copy heals                 */
    TUTTI_SLICE,     /* this worker holds elements [first, first+count) of one global vector: re-cut exactly       */
    TUTTI_SHARD,     /* my 1/workers of every piece, in piece order (count = n / workers): re-cut exactly           */
    TUTTI_OWN_MEAN,  /* one a worker; what must survive is the mean: models, residuals of a mean. All get it (N = M: as it was) */
    TUTTI_OWN_SUM,   /* one a worker; what must survive is the sum: residuals of who owns a part of a sum, push-sum mass */
    TUTTI_OWN_ZERO,  /* one a worker; start from zero on a change: local momenta, counters of neighbours            */
    TUTTI_SCRATCH    /* not saved; counted by the plan; undefined at the start of each step                         */
} tutti_keep;
const char *tutti_keep_name(tutti_keep keep);

typedef struct tutti_state {
    const char *name;            /* copied; unique with the engine: "optim.momentum" */
    tutti_keep keep;
    tutti_dtype dtype;
    size_t first, count;         /* place in the flat parameter space; where it has none first = 0, unless `of` says of what it is a part */
    size_t of;                   /* SLICE without a place: elements of the whole vector, of which [first, first + count) are mine; 0: all are, and no other worker has any */
    bool of_workers;             /* SAME, SLICE: equal parts, one a worker, by rank; [first, first + count) of each has the same place in it. For other workers than saved it: SLICE: the part of each worker that is still there
                                    goes along with it, new workers' stay as they are; SAME: all stay as they are, so what they say is learnt anew */
    bool placed;                 /* an element is a parameter's: saved by tensor name and range */
    bool late;                   /* older checkpoints have none: it stays as open left it */
    bool shared;                 /* wants a transport window (peers of this host can read it); private if there is none */
} tutti_state;
typedef struct tutti_plan tutti_plan;

/* Only within a declare() hook. *slot becomes the memory (zeroed, 64-byte aligned) before open(). Failures (a name twice,
   no memory) are kept in the plan and come out when it is carried out. */
void tutti_declare(tutti_plan *plan, const tutti_state *state, void *slot);
void tutti_declare_vector(tutti_plan *plan, const char *name, tutti_keep keep, float **slot); /* n of the layout, device */
void tutti_declare_value(tutti_plan *plan, const char *name, tutti_keep keep, void *value, size_t bytes); /* in the owner's struct, kept */
/* The same, late. */
void tutti_declare_late_value(tutti_plan *plan, const char *name, tutti_keep keep, void *value, size_t bytes);

/* ---- for the engine (and tests): a plan from open to close ---- */
struct tutti_world;
/* n: elements of the flat space. */
tutti_status tutti_plan_open(tutti_plan **out, size_t n, tutti_error *err);
void tutti_plan_close(tutti_plan *plan);                         /* frees what was given out (windows go with the world) */
/* One arena for everything private, a window for each shared state; fills the slots. world NULL: all private. All ranks call alike; blocks. */
tutti_status tutti_plan_carry_out(tutti_plan *plan, struct tutti_world *world, tutti_error *err);
size_t tutti_plan_count(const tutti_plan *plan);
/* Declaration i in order, with its memory (NULL before it is carried out). */
const tutti_state *tutti_plan_state(const tutti_plan *plan, size_t i, void **memory);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
