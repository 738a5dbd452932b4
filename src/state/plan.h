/* plan.h: a plan, the list of all declared state (base.h), from open to close. Included
   by the engine and by code that makes plans of its own (tests, cost measurements); implemented by
   plan.c. One thread.

   A plan is opened, owners declare state, it is carried out, which allocates the state's memory,
   and it is closed. */
#ifndef TUTTI_STATE_PLAN_H
#define TUTTI_STATE_PLAN_H
#include "tier/tier.h"
#include "tutti/base.h"
#include "tutti/comm.h"
#pragma GCC visibility push(default)

struct tutti_world;
/* Opens a plan without states. n: elements of the flat space; 0: no state is a vector of it. */
tutti_status tutti_plan_open(tutti_plan **out, size_t n, tutti_error *err);

/* Frees the plan and its states' memory. Shared windows are freed with the world. */
void tutti_plan_close(tutti_plan *plan);

/* Before the plan is carried out: makes its vectors count in `device`, by their names, until the
   plan is closed; those in tiers do not, but the host memory of their tiers counts in `host`.
   Values are not counted: they are members of their owners' structs. Both arenas must outlive the
   plan. NULL: nothing is counted. */
void tutti_plan_count_in(tutti_plan *plan, tutti_arena *device, tutti_arena *host);

/* Allocates one block for everything private, a window for each shared state (private memory where
   the transport has no windows), and one tier for all states of the same tier spec; and sets the
   slots that were declared. world: NULL: everything is private, and there are no tiers. Collective
   over the world; blocks. TUTTI_ERR_MEMORY, before anything is allocated: more than the arenas'
   limits allow, or than is available. */
tutti_status tutti_plan_carry_out(tutti_plan *plan, struct tutti_world *world, tutti_error *err);
/* Logical shares (base.h): this rank has [first, first + mine) of `all`. elements: of a model, that
   a share may have a vector of; it does not depend on the number of ranks, as `n` does. */
typedef struct tutti_plan_shares { int first, mine, all; size_t elements; } tutti_plan_shares;
/* Before the first declaration of a state of shares. */
void tutti_plan_has_shares(tutti_plan *plan, const tutti_plan_shares *shares);
/* Returns them; NULL: the plan has none. */
const tutti_plan_shares *tutti_plan_shares_of(const tutti_plan *plan);
/* Within a declare() hook, of a plan with shares: declares a state of shares. `one` describes what
   a share has: name, dtype, count. This rank has that of its shares, in their order. It goes with
   the share: the rank that computes a share next has it, however many ranks there are. Kept as
   TUTTI_SLICE. slot: as in tutti_declare. */
void tutti_declare_of_shares(tutti_plan *plan, const tutti_state *one, void *slot);
/* Returns the number of declarations. */
size_t tutti_plan_count(const tutti_plan *plan);

/* Returns declaration i, in order, and sets *memory to the state's memory (memory may be NULL);
   NULL: the plan is not carried out, or the state has no address. */
const tutti_state *tutti_plan_state(const tutti_plan *plan, size_t i, void **memory);
/* Returns where state i is in its tier, zeros before the plan is carried out; NULL: it is in no
   tier. */
const tutti_place *tutti_plan_place(const tutti_plan *plan, size_t i);
#pragma GCC visibility pop
#endif
