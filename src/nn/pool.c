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
    p->loops->pool(&(nn_windows){ p->m, p->side, first, count }, p->x, p->y, p->argmax, p->relu);
}

static void some_lines_back(void *arg, size_t first, size_t count, int thread)
{
    const pooling *p = arg;

    (void)thread;
    p->loops->pool_back(&(nn_windows){ p->m, p->side, first, count }, p->y, p->argmax, p->slope,
                        p->dx);
}

static size_t least_lines(const nn_maps *m, size_t side)
{
    return nn_least_items(side * m->width * m->lanes);
}

void tutti_nn_pool(const nn_loops *loops, int threads, const nn_pooling *of, const float *x,
                   float *y, bool relu)
{
    const nn_maps *m = of->m;
    const size_t side = of->side;
    pooling p = {
        .loops = loops, .m = m, .side = side, .x = x, .y = y, .argmax = of->argmax, .relu = relu
    };

    tutti_nn_parallel(threads, nn_pool_lines(m, side), least_lines(m, side), some_lines, &p);
}

void tutti_nn_pool_back(const nn_loops *loops, int threads, const nn_pooling *of, const float *y,
                        const float *slope, float *dx)
{
    const nn_maps *m = of->m;
    const size_t side = of->side;
    pooling p = { .loops = loops,
                  .m = m,
                  .side = side,
                  .y = (float *)y,
                  .argmax = of->argmax,
                  .slope = slope,
                  .dx = dx };

    tutti_nn_parallel(threads, nn_pool_lines(m, side), least_lines(m, side), some_lines_back, &p);
}
