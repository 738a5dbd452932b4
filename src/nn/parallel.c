/* parallel.c: implements parallel.h with libgomp's entry point, to which gcc translates a parallel
   region. A pragma would, with clang, use another OpenMP than oneDNN does (dnnl_compat.h). */
#include "parallel.h"

extern void GOMP_parallel(void (*work)(void *), void *arg, unsigned threads, unsigned flags);
extern int omp_get_thread_num(void);
extern int omp_get_num_threads(void);

typedef struct loop {
    size_t items;
    void (*work)(void *arg, size_t first, size_t count, int thread);
    void *arg;
} loop;

static void part(void *arg)
{
    const loop *l = arg;
    /* may be fewer than requested */
    const size_t k = (size_t)omp_get_thread_num(), n = (size_t)omp_get_num_threads();
    const size_t each = l->items / n, more = l->items % n, first = k * each + (k < more ? k : more);

    l->work(l->arg, first, each + (k < more), (int)k);
}

void tutti_nn_parallel(int threads, size_t items, size_t least,
                       void (*work)(void *arg, size_t first, size_t count, int thread), void *arg)
{
    const size_t most = items / (least > 0 ? least : 1);
    loop l = { items, work, arg };

    if (threads < 2 || most < 2)
        work(arg, 0, items, 0);
    else
        GOMP_parallel(part, &l, most < (size_t)threads ? (unsigned)most : (unsigned)threads, 0);
}
