/* logical.h: a run with logical shares whose steps are made as a whole or not at all. For the
   pieces of pieces_logical.c, which has the run, and of pieces_copies.c. */
#ifndef TUTTI_TESTS_LOGICAL_H
#define TUTTI_TESTS_LOGICAL_H
#include "explore.h"
#include "tutti/method.h"

enum { STEPS = 4, TENSORS = 3, SIZE = 352, SAMPLES = 200 };
enum { OWN = 3000 }; /* a sum of them is several messages, and may fail half done */
static const size_t count[TENSORS] = { 192, 64, 96 };
static const char *const names[TENSORS] = { "c", "b", "a" };

typedef struct whole {
    tutti_engine *e;
    bool refuses;           /* this rank does not make step `last` */
    bool rounds;            /* passes change values: a step is a round */
    bool small;             /* a tensor has one element */
    uint64_t last, commits;
    uint64_t state, values; /* hashes, when the step began */
} whole;

/* Are gradients held by piece, and if so, values by unit? */
bool explore_draws_held(const explore_case *c);
bool explore_draws_values(const explore_case *c);
int explore_unit_of(int tensor);
/* The gradient of one sample. Sums of these depend on the order of adding. */
float explore_pull(uint64_t position, size_t i);
/* A hash of the model; 0: no worker has it. */
uint64_t explore_values_of(const whole *w);
/* commit of the engine, with the whole as user. A rank that is asked after something has changed
   does not make the step, which is then missed. */
bool explore_makes_step(void *user, uint64_t step);
tutti_status explore_whole_pass(const whole *w, const tutti_pass *p, tutti_error *err);
#endif
