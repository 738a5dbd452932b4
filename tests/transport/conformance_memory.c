/* conformance_memory.c: memory that a thread does not get, by the linker's --wrap of tutti_alloc */
#include "conformance_memory.h"
#include <stddef.h>

static _Thread_local bool starving;
void *__real_tutti_alloc(size_t count, size_t size);
void *__wrap_tutti_alloc(size_t count, size_t size);

void *__wrap_tutti_alloc(size_t count, size_t size)
{
    return starving ? NULL : __real_tutti_alloc(count, size);
}

void conformance_starve(bool on)
{
    starving = on;
}
