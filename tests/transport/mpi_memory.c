/* mpi_memory.c: see mpi_memory.h. Ranks have several threads. */
#include <stddef.h>
#include "mpi_memory.h"

static _Atomic int pieces;
static _Thread_local bool starving;
void *__real_tutti_alloc(size_t count, size_t size);
void __real_tutti_free(void *memory);
void *__wrap_tutti_alloc(size_t count, size_t size);
void __wrap_tutti_free(void *memory);

void *__wrap_tutti_alloc(size_t count, size_t size)
{
    void *memory = starving ? NULL : __real_tutti_alloc(count, size);

    pieces += memory != NULL;
    return memory;
}

void __wrap_tutti_free(void *memory)
{
    pieces -= memory != NULL;
    __real_tutti_free(memory);
}

void mpi_memory_starve(bool on)
{
    starving = on;
}

int mpi_memory_pieces(void)
{
    return pieces;
}
