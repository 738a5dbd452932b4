/* arena.h: private header of the memory planner: one arena for the buffers of a run. Implemented in
   arena.c; included by onednn_internal.h, sums.c, stage.h and a test.

   Each buffer has a first and a last *moment* at which it is needed. Moments are integers that
   number the operations of a run; what they number is the caller's choice. Two buffers that are
   never needed at the same moment may overlap in the arena.

   Finding the smallest layout is NP-hard (dynamic storage allocation: Garey and Johnson, problem
   SR2). The planner places one buffer after another, each at the lowest offset that is free during
   its lifetime. It does so in three orders (largest first; longest lifetime first; largest product
   of bytes and lifetime first) and keeps the best of the three layouts. No layout is smaller than
   the most bytes that are needed at one moment, so the search ends when that bound is reached. On
   the networks here the first order reaches it; on random lists the best layout is within a few per
   cent of it (tests/nn/arena_test.c). */
#ifndef TUTTI_NN_ARENA_H
#define TUTTI_NN_ARENA_H
#include "tutti/base.h"

enum { NN_ARENA_LINE = 64 }; /* bytes of a cache line; each buffer begins on one, and no two share
                                one */

typedef struct nn_buffer {
    size_t bytes;      /* 0: takes no memory */
    int first, last;   /* moments, both included; first <= last */
    size_t *result;    /* where the planner writes the offset as well; NULL: nowhere */
    size_t offset;     /* in the arena; written by the planner */
    size_t trial;      /* the planner's own */
    int kept;          /* layered.h: 0: in the arena; else 1 + index in nn_layered.kept */
} nn_buffer;

/* Sets each buffer's offset, a multiple of NN_ARENA_LINE, and *total to the arena's bytes. Equal
   lists have equal layouts. Time grows with the square of `count`; 10,000 buffers take about a
   tenth of a second. TUTTI_ERR_MEMORY: the sizes overflow, or there is no memory to plan in; no
   offset is written then. */
tutti_status tutti_nn_arena_plan(nn_buffer *list, int count, size_t *total, tutti_error *err);
#endif
