/* match_pool.c: memory of things in flight, found by id (match_pool.h). Things never move; the
   place of slot s follows from its highest bit. A generation is odd while the thing is in use, so
   that no number from outside finds a free one. */
#include <string.h>
#include "match_pool.h"

/* Slots of chunk k: from first * (2^k - 1), first * 2^k of them. */
static void *at_slot(const match_pool *pool, uint32_t slot)
{
    const uint32_t group = slot / pool->first + 1;
    const int chunk = 31 - __builtin_clz(group);
    const uint32_t first = pool->first * ((UINT32_C(1) << chunk) - 1);

    return pool->chunks[chunk] + (size_t)(slot - first) * pool->thing_bytes;
}

void tutti_match_pool_init(match_pool *pool, size_t thing_bytes, uint32_t first)
{
    memset(pool, 0, sizeof *pool);
    pool->thing_bytes = thing_bytes;
    pool->first = first;
    match_list_init(&pool->free);
}

void tutti_match_pool_fini(match_pool *pool)
{
    for (int k = 0; k < MATCH_POOL_CHUNKS; k++)
        tutti_free(pool->chunks[k]);
    memset(pool, 0, sizeof *pool);
}

/* Adds a chunk; gives the first of its slots and how many, 0: no memory. */
static uint32_t grow(match_pool *pool, uint32_t *first)
{
    const int chunk = 31 - __builtin_clz(pool->made / pool->first + 1);
    const uint32_t count = pool->first << chunk;

    *first = pool->made;
    if (chunk >= MATCH_POOL_CHUNKS)
        return 0;
    pool->chunks[chunk] = tutti_alloc(count, pool->thing_bytes);
    if (pool->chunks[chunk] == NULL)
        return 0;
    pool->made += count;
    return count;
}

/* The two kinds of thing with an id differ only in type; this is the code of both. */
#define MATCH_POOL_OF(type, pool) \
    bool tutti_match_##type##_more(tutti_match *m) \
    { \
        uint32_t first; \
        const uint32_t count = grow(&m->pool, &first); \
        for (uint32_t s = first; s < first + count; s++) { \
            struct match_##type *thing = at_slot(&m->pool, s); \
            thing->slot = s; \
            match_list_init(&thing->answer.link); \
            match_list_insert(&m->pool.free, &thing->link); \
        } \
        return count > 0; \
    } \
    struct match_##type *tutti_match_##type##_take(tutti_match *m) \
    { \
        struct match_##type *thing; \
        if (match_list_empty(&m->pool.free) && !tutti_match_##type##_more(m)) \
            return NULL; \
        thing = MATCH_OWNER(struct match_##type, link, m->pool.free.next); \
        match_list_remove(&thing->link); \
        thing->generation++; \
        return thing; \
    } \
    void tutti_match_##type##_give(tutti_match *m, struct match_##type *thing) \
    { \
        thing->generation++; \
        match_list_remove(&thing->answer.link); \
        match_list_remove(&thing->link); \
        match_list_insert(m->pool.free.next, &thing->link); /* in front: its memory is warm */ \
    } \
    struct match_##type *tutti_match_##type##_find(tutti_match *m, uint64_t id) \
    { \
        struct match_##type *thing; \
        if ((uint32_t)id >= m->pool.made) \
            return NULL; \
        thing = at_slot(&m->pool, (uint32_t)id); \
        return thing->generation == (uint32_t)(id >> 32) && thing->generation % 2 == 1 ? thing : NULL; \
    } \
    uint64_t tutti_match_##type##_id(const struct match_##type *thing) \
    { \
        return (uint64_t)thing->generation << 32 | thing->slot; \
    }

MATCH_POOL_OF(op, ops)
MATCH_POOL_OF(message, messages)

/* Buffers for whole payloads; while one is free it is a link of the list itself. */
bool tutti_match_payload_more(tutti_match *m)
{
    uint32_t first;
    const uint32_t count = grow(&m->payloads, &first);

    for (uint32_t s = first; s < first + count; s++)
        match_list_insert(&m->payloads.free, at_slot(&m->payloads, s));
    return count > 0;
}

unsigned char *tutti_match_payload_take(tutti_match *m)
{
    match_link *link;

    if (match_list_empty(&m->payloads.free) && !tutti_match_payload_more(m))
        return NULL;
    link = m->payloads.free.next;
    match_list_remove(link);
    return (unsigned char *)link;
}
