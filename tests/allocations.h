/* allocations.h: memory that runs out. The linker gives what a test's program allocates by
   tutti_alloc to this counter: LIBS -Wl,--wrap=tutti_alloc. */
#ifndef TUTTI_TESTS_ALLOCATIONS_H
#define TUTTI_TESTS_ALLOCATIONS_H
#include <stddef.h>

static int allocations;           /* asked for */
static int allocations_left = -1; /* that succeed; -1: all */
void *__real_tutti_alloc(size_t count, size_t size);
void *__wrap_tutti_alloc(size_t count, size_t size);

void *__wrap_tutti_alloc(size_t count, size_t size)
{
    allocations++;
    if (allocations_left == 0)
        return NULL;
    allocations_left -= allocations_left > 0;
    return __real_tutti_alloc(count, size);
}
#endif
