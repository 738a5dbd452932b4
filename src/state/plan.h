/* plan.h: a plan of state (runtime.h) from open to close, for the engine and tests. */
#ifndef TUTTI_STATE_PLAN_H
#define TUTTI_STATE_PLAN_H
#include "tier/tier.h"
#include "tutti/runtime.h"
#include "tutti/comm.h"
#pragma GCC visibility push(default)

struct tutti_world;
/* n: elements of the flat space; 0: it has no vectors. */
tutti_status tutti_plan_open(tutti_plan **out, size_t n, tutti_error *err);

/* Frees the states' memory (windows are freed with the world). */
void tutti_plan_close(tutti_plan *plan);

/* Call before the plan is carried out: its vectors are counted in `device`, by their names, until
   the plan is closed, except those in tiers, whose host memory is counted in `host`. Values are
   not counted: they live in their owners' structs. Both arenas must outlive the plan. NULL: no
   counting. */
void tutti_plan_count_in(tutti_plan *plan, tutti_arena *device, tutti_arena *host);

/* Allocates one arena for everything private and a window for each shared state (private memory
   where the transport has no windows), and fills the slots. Opens one tier for all states of the
   same spec. world NULL: all private, and no tiers. All ranks make the same call; blocks.
   TUTTI_ERR_MEMORY, before any is allocated: more than the arenas' limits, or than is available. */
tutti_status tutti_plan_carry_out(tutti_plan *plan, struct tutti_world *world, tutti_error *err);
size_t tutti_plan_count(const tutti_plan *plan);

/* Declaration i in order, with its memory (NULL before it is carried out). */
const tutti_state *tutti_plan_state(const tutti_plan *plan, size_t i, void **memory);
/* Location of a state in a tier (zeros before the plan is carried out). Others: NULL. */
const tutti_place *tutti_plan_place(const tutti_plan *plan, size_t i);
#pragma GCC visibility pop
#endif
