/* fill_avx2.c: fill_loop.h for this level; the compiler's vectors. */
#include "fill_loop.h"

void tutti_kernels_fill_avx2(tutti_kernels *t)
{
    t->fill_normal = fill_normal;
    t->fill_uniform = fill_uniform;
}
