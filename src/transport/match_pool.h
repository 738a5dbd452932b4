/* match_pool.h: memory of messages in flight: a pool of entries of one size. Implemented in
   match_pool.c, used by match.c (sends and receives, messages, payloads) and by shm.

   An entry begins with a match_waiting and never moves. It is found by its id (slot, generation).
   The generation is odd while the entry is in use, so an id from outside finds no free entry and
   none that was reused. The pool grows when more entries are in use than ever before, and never
   shrinks. No lock of its own. */
#ifndef TUTTI_TRANSPORT_MATCH_POOL_H
#define TUTTI_TRANSPORT_MATCH_POOL_H
#include "match_queue.h"

enum { MATCH_POOL_CHUNKS = 24 };
typedef struct match_pool {
    size_t entry_bytes;          /* of an entry, at least sizeof(match_waiting) */
    int first_log2;              /* chunk k has 1 << (first_log2 + k) entries */
    uint32_t n_slots;            /* entries that exist, free or in use: slots 0 to n_slots - 1 */
    unsigned char *chunks[MATCH_POOL_CHUNKS]; /* NULL: not allocated yet */
    match_link free;             /* list of free entries, by their link */
} match_pool;

/* Makes an empty pool. Allocates nothing. */
void tutti_match_pool_init(match_pool *pool, size_t entry_bytes, int first_log2);
/* Frees all entries, in use or not. *pool may be zeroed. */
void tutti_match_pool_fini(match_pool *pool);
/* Allocates one more chunk of free entries; false: no memory, or no chunk is left. */
bool tutti_match_pool_more(match_pool *pool);
/* Returns an entry for use, or NULL if there is no memory. It is in no list. What follows its
   match_waiting is not cleared. */
void *tutti_match_pool_acquire(match_pool *pool);
/* Makes an entry free; first removes it from the list that its link is in. */
void tutti_match_pool_release(match_pool *pool, match_waiting *entry);
/* Returns the entry that has this id; NULL: it is not in use any more, or never was. */
void *tutti_match_pool_find(const match_pool *pool, uint64_t id);

static inline uint64_t match_id(const match_waiting *entry)
{
    return (uint64_t)entry->generation << 32 | entry->slot;
}

/* Gives an entry in use a new id: what arrives for the old id is then dropped. */
static inline void match_id_renew(match_waiting *entry)
{
    entry->generation += 2;
}
#endif
