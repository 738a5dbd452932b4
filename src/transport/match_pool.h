/* match_pool.h: memory of what is in flight: sends, receives, messages, buffers. Things begin with
   a match_waiting. They never move, and are found by id, (slot, generation). A generation is odd
   while the thing is in use, so that no number from outside finds a free one. Memory grows when
   more are in flight than ever before, never in a steady state. */
#ifndef TUTTI_TRANSPORT_MATCH_POOL_H
#define TUTTI_TRANSPORT_MATCH_POOL_H
#include "match_queue.h"

enum { MATCH_POOL_CHUNKS = 24 };
typedef struct match_pool {
    size_t thing_bytes;
    int first_log2;              /* chunk k holds 1 << first_log2 << k things */
    uint32_t made;               /* slots that exist */
    unsigned char *chunks[MATCH_POOL_CHUNKS];
    match_link free;
} match_pool;

void tutti_match_pool_init(match_pool *pool, size_t thing_bytes, int first_log2);
void tutti_match_pool_fini(match_pool *pool);    /* also of a zeroed one */
bool tutti_match_pool_more(match_pool *pool);    /* a further chunk; false: no memory */
/* Beyond the head its content is what it was. NULL: no memory. */
void *tutti_match_pool_take(match_pool *pool);
void tutti_match_pool_give(match_pool *pool, match_waiting *thing); /* takes it out of its list */
void *tutti_match_pool_find(const match_pool *pool, uint64_t id);   /* NULL: not any more */

static inline uint64_t match_id(const match_waiting *thing)
{
    return (uint64_t)thing->generation << 32 | thing->slot;
}

/* A new id: what is under way for the old one is dropped. */
static inline void match_id_renew(match_waiting *thing)
{
    thing->generation += 2;
}
#endif
