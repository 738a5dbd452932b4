/* share.h: sizes of a worker's passes under a share (base.h, tutti_share). Implemented by share.c.
   Included by the engine's clients in this tree. */
#ifndef TUTTI_BASE_SHARE_H
#define TUTTI_BASE_SHARE_H
#include "tutti/base.h"
#pragma GCC visibility push(default)

int64_t tutti_share_batch(const tutti_share *s, int worker); /* of a full pass */

/* With logical shares: the first one of that worker, and how many it has: by batch_of, else the
   first V mod workers have one more. Without: `worker`, and 1. */
int tutti_share_logical(const tutti_share *s, int worker, int *count);
/* Returns how far a worker's shares lie apart: 1 in a block. */
int tutti_share_stride(const tutti_share *s);
/* The same shares, each worker's in a block. */
tutti_share tutti_share_in_blocks(const tutti_share *s);

/* The same division with a worker for each logical share: tutti_share_step and tutti_share_pass of
   it are those of a share. */
tutti_share tutti_share_by_logical(const tutti_share *s);
#pragma GCC visibility pop
#endif
