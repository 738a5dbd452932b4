/* fill.c: random fills for any processor; the loops are in fill_loop.h. */
#include "fill_loop.h"

void tutti_kernels_fill(tutti_kernels *t)
{
    t->fill_normal = fill_normal;
    t->fill_uniform = fill_uniform;
}
