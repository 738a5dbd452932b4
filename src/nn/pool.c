/* pool.c: implements pool.h. */
#include "pool.h"
#include "parallel.h"

typedef struct pooling {
    const nn_loops *loops;
    const nn_maps *m;
    size_t side;
    const float *x;
    float *y;
    void *argmax;
    const float *slope;
    float *dx;
    bool relu;
} pooling;

static void some_lines(void *arg, size_t first, size_t count, int thread)
{
    const pooling *p = arg;

    (void)thread;
    p->loops->pool(p->m, p->side, first, count, p->x, p->y, p->argmax, p->relu);
}

static void some_lines_back(void *arg, size_t first, size_t count, int thread)
{
    const pooling *p = arg;

    (void)thread;
    p->loops->pool_back(p->m, p->side, first, count, p->y, p->argmax, p->slope, p->dx);
}

static size_t least_lines(const nn_maps *m, size_t side)
{
    return nn_least_items(side * m->width * m->lanes);
}

void tutti_nn_pool(const nn_loops *loops, int threads, const nn_maps *m, size_t side, const float *x, float *y,
                   void *argmax, bool relu)
{
    pooling p = { .loops = loops, .m = m, .side = side, .x = x, .y = y, .argmax = argmax, .relu = relu };

    tutti_nn_parallel(threads, nn_pool_lines(m, side), least_lines(m, side), some_lines, &p);
}

void tutti_nn_pool_back(const nn_loops *loops, int threads, const nn_maps *m, size_t side, const float *y,
                        const void *argmax, const float *slope, float *dx)
{
    pooling p = {
        .loops = loops, .m = m, .side = side, .y = (float *)y, .argmax = (void *)argmax, .slope = slope, .dx = dx
    };

    tutti_nn_parallel(threads, nn_pool_lines(m, side), least_lines(m, side), some_lines_back, &p);
}
