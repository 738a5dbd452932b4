/* pool.c: the sends, receives and messages in flight, found by id. Things never move; the
   place of slot s follows from its highest bit, so looking one up costs no search and
   growing copies nothing. A generation is odd while the thing is in use, so that no
   number from outside finds a free one. */
#include <string.h>
#include "shm_internal.h"

/* Slots of chunk k: from FIRST * (2^k - 1), FIRST * 2^k of them. */
static void *at_slot(const shm_pool *pool, uint32_t slot)
{
    const uint32_t group = slot / SHM_POOL_FIRST + 1;
    const int chunk = 31 - __builtin_clz(group);
    const uint32_t first = SHM_POOL_FIRST * ((UINT32_C(1) << chunk) - 1);

    return pool->chunks[chunk] + (size_t)(slot - first) * pool->thing_bytes;
}

void tutti_shm_pool_init(shm_pool *pool, size_t thing_bytes)
{
    memset(pool, 0, sizeof *pool);
    pool->thing_bytes = thing_bytes;
    shm_list_init(&pool->free);
}

void tutti_shm_pool_fini(shm_pool *pool)
{
    for (int k = 0; k < SHM_POOL_CHUNKS; k++)
        tutti_free(pool->chunks[k]);
    memset(pool, 0, sizeof *pool);
}

/* Adds a chunk; gives the first of its slots and how many, 0: no memory. */
static uint32_t grow(shm_pool *pool, uint32_t *first)
{
    const int chunk = 31 - __builtin_clz(pool->made / SHM_POOL_FIRST + 1);
    const uint32_t count = (uint32_t)SHM_POOL_FIRST << chunk;

    *first = pool->made;
    if (chunk >= SHM_POOL_CHUNKS)
        return 0;
    pool->chunks[chunk] = tutti_alloc(count, pool->thing_bytes);
    if (pool->chunks[chunk] == NULL)
        return 0;
    pool->made += count;
    return count;
}

static uint64_t id_of(uint32_t slot, uint32_t generation)
{
    return (uint64_t)generation << 32 | slot;
}

/* The two kinds of thing differ only in type; this is the code of both. */
#define SHM_POOL_OF(type, pool) \
    type *tutti_##type##_take(shm_endpoint *e) \
    { \
        type *thing; \
        if (shm_list_empty(&e->pool.free)) { \
            uint32_t first; \
            const uint32_t count = grow(&e->pool, &first); \
            for (uint32_t s = first; s < first + count; s++) { \
                thing = at_slot(&e->pool, s); \
                thing->slot = s; \
                shm_list_init(&thing->answer.link); \
                shm_list_insert(&e->pool.free, &thing->link); \
            } \
            if (count == 0) \
                return NULL; \
        } \
        thing = SHM_OWNER(type, link, e->pool.free.next); \
        shm_list_remove(&thing->link); \
        thing->generation++; \
        return thing; \
    } \
    void tutti_##type##_give(shm_endpoint *e, type *thing) \
    { \
        thing->generation++; \
        shm_list_remove(&thing->answer.link); \
        shm_list_remove(&thing->link); \
        shm_list_insert(e->pool.free.next, &thing->link); /* in front: its memory is warm */ \
    } \
    type *tutti_##type##_find(shm_endpoint *e, uint64_t id) \
    { \
        type *thing; \
        if ((uint32_t)id >= e->pool.made) \
            return NULL; \
        thing = at_slot(&e->pool, (uint32_t)id); \
        return thing->generation == (uint32_t)(id >> 32) && thing->generation % 2 == 1 ? thing : NULL; \
    } \
    uint64_t tutti_##type##_id(const type *thing) \
    { \
        return id_of(thing->slot, thing->generation); \
    }

SHM_POOL_OF(shm_op, ops)
SHM_POOL_OF(shm_message, messages)

void tutti_shm_message_renew(shm_message *m)
{
    m->generation += 2;
}
