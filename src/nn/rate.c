/* rate.c: the yardstick of a step: what oneDNN makes of one large product, on the same threads. The matrices fit into the second cache of no CPU and into the third of most, as a step's do. */
#include "onednn_internal.h"
#include <stdlib.h>

enum { SIDE = 1024, RUNS_MOST = 1000 };

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

tutti_status tutti_nn_product_rate(tutti_runtime *clock, int threads, double seconds, double *rate, tutti_error *err)
{
    const nn_unit square = { .kind = TUTTI_LAYER_LINEAR, .in = { SIDE, 1, 1 }, .wide = { SIDE, 1, 1 } };
    dn_core core = { 0 };
    dn_linear product = { 0 };
    float *memory = tutti_alloc(3 * SIDE * SIDE, sizeof *memory);
    double *took = tutti_alloc(RUNS_MOST, sizeof *took);
    const int64_t end = tutti_now_ns(clock) + (int64_t)(seconds * 1e9);
    void *pointers[] = { memory, memory + SIDE * SIDE, memory + 2 * SIDE * SIDE };
    tutti_status status = TUTTI_OK;
    void *scratch = NULL;
    int n = 0, before;

    *rate = 0;
    if (memory == NULL || took == NULL)
        status = tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory for a product of two matrices of %d x %d", SIDE, SIDE);
    if (status == TUTTI_OK)
        status = tutti_nn_dn_core_open(&core, &(nn_settings){ .threads = threads > 0 ? threads : 1 }, err);
    before = tutti_nn_dn_enter(&core);
    if (status == TUTTI_OK)
        status = tutti_nn_dn_linear_build(&core, &product, &square, SIDE, DN_BARE, err);
    if (status == TUTTI_OK && (scratch = tutti_alloc(1, product.forward.scratch + 1)) == NULL)
        status = tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory for %zu bytes of scratch", product.forward.scratch);
    core.scratch = scratch;
    for (size_t i = 0; i < 2 * SIDE * SIDE && status == TUTTI_OK; i++)
        memory[i] = (float)(i % 7) - 3;
    while (status == TUTTI_OK && n < RUNS_MOST && (n < 3 || tutti_now_ns(clock) < end)) {
        const int64_t begun = tutti_now_ns(clock);
        status = tutti_nn_dn_op_run(&core, &product.forward, pointers, err);
        took[n++] = (double)(tutti_now_ns(clock) - begun) * 1e-9;
    }
    if (status == TUTTI_OK) {
        qsort(took, (size_t)n, sizeof *took, by_size);
        *rate = 2.0 * SIDE * SIDE * SIDE / took[n / 2];
    }
    tutti_nn_dn_leave(before, TUTTI_OK);
    tutti_nn_dn_linear_free(&product);
    tutti_nn_dn_core_close(&core);
    tutti_free(scratch);
    tutti_free(memory);
    tutti_free(took);
    return status;
}
