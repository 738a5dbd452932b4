/* match_pool.c: the pool of match_pool.h. Chunk k has 2^k times the entries of chunk 0. So the
   chunk of a slot follows from the highest bit of its number, without a search, and growing copies
   nothing. */
#include <string.h>
#include "match_pool.h"

void tutti_match_pool_init(match_pool *pool, size_t entry_bytes, int first_log2)
{
    memset(pool, 0, sizeof *pool);
    pool->entry_bytes = entry_bytes;
    pool->first_log2 = first_log2;
    match_list_init(&pool->free);
}

void tutti_match_pool_fini(match_pool *pool)
{
    for (int k = 0; k < MATCH_POOL_CHUNKS; k++)
        tutti_free(pool->chunks[k]);
    memset(pool, 0, sizeof *pool);
}

/* Before chunk k there are first * (2^k - 1) slots. */
static int chunk_of(const match_pool *pool, uint32_t slot)
{
    return 31 - __builtin_clz((slot >> pool->first_log2) + 1);
}

static match_waiting *at_slot(const match_pool *pool, uint32_t slot)
{
    const int chunk = chunk_of(pool, slot);
    const uint32_t first = ((UINT32_C(1) << chunk) - 1) << pool->first_log2;

    return (match_waiting *)(void *)(pool->chunks[chunk] +
                                     (size_t)(slot - first) * pool->entry_bytes);
}

bool tutti_match_pool_more(match_pool *pool)
{
    const int chunk = chunk_of(pool, pool->n_slots);
    uint32_t end;

    if (chunk >= MATCH_POOL_CHUNKS)
        return false;
    end = pool->n_slots + (UINT32_C(1) << (pool->first_log2 + chunk));
    pool->chunks[chunk] = tutti_alloc(end - pool->n_slots, pool->entry_bytes);
    if (pool->chunks[chunk] == NULL)
        return false;
    for (; pool->n_slots < end; pool->n_slots++) {
        match_waiting *entry = at_slot(pool, pool->n_slots);
        entry->slot = pool->n_slots;
        match_list_insert(&pool->free, &entry->link);
    }
    return true;
}

void *tutti_match_pool_acquire(match_pool *pool)
{
    match_waiting *entry;

    if (match_list_empty(&pool->free) && !tutti_match_pool_more(pool))
        return NULL;
    entry = MATCH_OWNER(match_waiting, link, pool->free.next);
    match_list_remove(&entry->link);
    entry->generation++;
    return entry;
}

void tutti_match_pool_release(match_pool *pool, match_waiting *entry)
{
    entry->generation++;
    match_list_remove(&entry->link);
    match_list_insert(pool->free.next, &entry->link); /* in front: its memory is warm */
}

void *tutti_match_pool_find(const match_pool *pool, uint64_t id)
{
    match_waiting *entry;

    if ((uint32_t)id >= pool->n_slots)
        return NULL;
    entry = at_slot(pool, (uint32_t)id);
    return entry->generation == (uint32_t)(id >> 32) && entry->generation % 2 == 1 ? entry : NULL;
}
