/* pool.c: memory of sends, receives, messages, frames and transfers. Each chunk has twice the
   entries of the one before, so after few allocations no more are needed. */
#include "mpi_internal.h"

void tutti_mpi_pool_init(mpi_pool *pool, size_t bytes)
{
    *pool = (mpi_pool){ .bytes = (bytes + 63) & ~(size_t)63, .next = bytes > 4096 ? 4 : 32 };
    match_list_init(&pool->free);
}

void tutti_mpi_pool_fini(mpi_pool *pool)
{
    while (pool->chunks != NULL) {
        struct mpi_chunk *next = pool->chunks->next;
        tutti_free(pool->chunks);
        pool->chunks = next;
    }
    if (pool->free.next != NULL)
        match_list_init(&pool->free);
}

void *tutti_mpi_pool_acquire(mpi_pool *pool)
{
    match_link *link;

    if (match_list_empty(&pool->free)) {
        unsigned char *memory = tutti_alloc(pool->next * pool->bytes + 64, 1);
        if (memory == NULL)
            return NULL;
        ((struct mpi_chunk *)(void *)memory)->next = pool->chunks;
        pool->chunks = (struct mpi_chunk *)(void *)memory;
        for (uint32_t i = 0; i < pool->next; i++)
            match_list_insert(&pool->free, (match_link *)(void *)(memory + 64 + i * pool->bytes));
        if (pool->next < 1024 && pool->next * pool->bytes < (size_t)1 << 20)
            pool->next *= 2;
    }
    link = pool->free.next;
    match_list_remove(link);
    return link;
}

/* The one returned last is taken first: it is still in the cache. */
void tutti_mpi_pool_release(mpi_pool *pool, match_link *entry)
{
    match_list_remove(entry);
    match_list_insert(pool->free.next, entry);
}
