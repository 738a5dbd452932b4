/* rate.c: measures the rate of one large product of oneDNN, to compare steps with
   (tutti_nn_product_rate). The matrices fit into the second-level cache of no CPU and into the
   third of most, as a step's do. */
#include "onednn_internal.h"
#include "base/machine.h"
#include <stdlib.h>

enum { SIDE = 1024, RUNS_MOST = 1000 };

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

tutti_status tutti_nn_product_rate(tutti_runtime *clock, int threads, tutti_dtype precision,
                                   double seconds, double *rate, tutti_error *err)
{
    static const dn_matrix square = { SIDE, SIDE, SIDE, 1 }, turned = { SIDE, SIDE, 1, SIDE };
    const nn_unit unit = { .kind = TUTTI_LAYER_LINEAR };
    dn_core core = { 0 };
    dn_op product = { 0 };
    /* the last one: both operands in 16 bits */
    float *memory = tutti_alloc(4 * SIDE * SIDE, sizeof *memory);
    uint16_t *const narrow = memory != NULL ? (uint16_t *)(void *)(memory + 3 * SIDE * SIDE) : NULL;
    double *took = tutti_alloc(RUNS_MOST, sizeof *took);
    const int64_t end = tutti_now_ns(clock) + (int64_t)(seconds * 1e9);
    void *pointers[] = { memory, memory + SIDE * SIDE, memory + 2 * SIDE * SIDE };
    tutti_status status = TUTTI_OK;
    void *scratch = NULL;
    int n = 0, before;

    *rate = 0;
    if (memory == NULL || took == NULL)
        status = tutti_fail(err, TUTTI_ERR_MEMORY, 0,
                            "no memory for a product of two matrices of %d x %d", SIDE, SIDE);
    if (status == TUTTI_OK)
        status = tutti_nn_dn_core_open(&core,
                                       &(nn_settings){ .threads = threads > 0 ? threads : 1,
                                                       .precision = precision,
                                                       .cpu = tutti_cpu_best() },
                                       err);
    before = tutti_nn_dn_enter(&core);
    if (status == TUTTI_OK)
        status = tutti_nn_dn_product(
            &core, &product, (dn_label){ &unit, "of a yardstick" },
            &(dn_gemm){ square, turned, false, square, DN_NARROW_X | DN_NARROW_W, core.plain },
            err);
    if (status == TUTTI_OK && (scratch = tutti_alloc(1, product.scratch + 1)) == NULL)
        status = tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory for %zu bytes of scratch",
                            product.scratch);
    core.scratch = scratch;
    for (size_t i = 0; i < 2 * SIDE * SIDE && status == TUTTI_OK; i++)
        memory[i] = (float)(i % 7) - 3;
    for (int k = 0; k < 2 && status == TUTTI_OK && precision != TUTTI_F32; k++) {
        tutti_nn_dn_narrow(&core, SIDE * SIDE, pointers[k], narrow + k * SIDE * SIDE);
        pointers[k] = narrow + k * SIDE * SIDE;
    }
    while (status == TUTTI_OK && n < RUNS_MOST && (n < 3 || tutti_now_ns(clock) < end)) {
        const int64_t begun = tutti_now_ns(clock);
        status = tutti_nn_dn_op_run(&core, &product, pointers, err);
        took[n++] = (double)(tutti_now_ns(clock) - begun) * 1e-9;
    }
    if (status == TUTTI_OK) {
        qsort(took, (size_t)n, sizeof *took, by_size);
        *rate = 2.0 * SIDE * SIDE * SIDE / took[n / 2];
    }
    tutti_nn_dn_leave(before, TUTTI_OK);
    tutti_nn_dn_op_close(&product);
    tutti_nn_dn_core_close(&core);
    tutti_free(scratch);
    tutti_free(memory);
    tutti_free(took);
    return status;
}
