/* arena.h: one memory for the buffers of a pass. Each buffer has the first and the last moment at
   which it is needed; those that are never needed at the same moment may stand in the same place.
   What the moments are is the caller's business: a counter of the calls of a pass will do.

   To find the smallest such layout is NP-hard (dynamic storage allocation: Garey and Johnson,
   problem SR2). Buffers are placed one after another, each at the lowest place that is free during
   its life. That is done in each of three orders (largest, longest needed, largest bytes times
   life first), and the best of the three layouts is kept. No layout is smaller than what is needed
   at one moment, so the search ends where that bound is reached. On the networks here the first
   order reaches it; on random lists the best is within a few per cent of it
   (tests/nn/arena_test.c). */
#ifndef TUTTI_NN_ARENA_H
#define TUTTI_NN_ARENA_H
#include "tutti/base.h"

enum { NN_ARENA_LINE = 64 }; /* every buffer begins on a cache line, and no two share one */

typedef struct nn_buffer {
    size_t bytes;      /* 0: takes no memory */
    int first, last;   /* moments, both included; first <= last */
    size_t *place;     /* keeps until planned: where its offset in the arena goes; NULL: nowhere */
    size_t offset;     /* the same, here */
    size_t trial;      /* the planner's, while it works */
    int kept;          /* the caller's */
} nn_buffer;

/* Gives each buffer its offset, a multiple of NN_ARENA_LINE, and the arena's bytes in *total.
   The same list gives the same layout. Time grows with the square of `count`; 10,000 buffers take
   a tenth of a second or so. TUTTI_ERR_MEMORY if the sizes overflow or there is no memory to plan
   in; then no offset is given. */
tutti_status tutti_nn_arena_plan(nn_buffer *list, int count, size_t *total, tutti_error *err);
#endif
