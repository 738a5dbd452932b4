/* onednn_product.c: matrix products on plain row-major memory (onednn_internal.h).

   The bits of a product must not depend on the number of threads. oneDNN's AVX-512 kernels ("brg")
   ensure that. The kernels for other CPUs ("gemm") do not: the edges of a thread's share are
   computed by other kernels, which add in another order, and with few rows and columns the sums
   themselves are split. So such a product is split here, by columns of the result, into parts that
   depend only on its shape. One thread computes a part; the parts run on as many threads as there
   are. */
#include "onednn_internal.h"
#include "parallel.h"
#include <string.h>

enum {
    X,
    W,
    Y,
    BIAS, /* pointers of a run */
    PART =
        64, /* columns; a multiple of the kernels' blocks, so that only the last part has an edge */
    WORTH_FLOPS = 250000 /* what a thread is woken for (parallel.h) */
};

struct dn_part {
    dn_op op;
    dnnl_stream_t stream; /* of its own, since parts run at the same time */
    size_t column;        /* its first */
    size_t scratch;       /* offset of its scratch in the product's */
    dnnl_status_t status;
};

static dnnl_status_t make_md(nn_md *md, dn_matrix m, dnnl_data_type_t type)
{
    const dnnl_dims_t dims = { m.rows, m.columns }, strides = { m.row_step, m.column_step };
    return nn_md_make(md, 2, dims, type, m.row_step > 0 || m.column_step > 0 ? strides : NULL);
}

/* The number of values from the first to the last; 0: the matrix has a layout of its own. */
static size_t span(dn_matrix m)
{
    return m.column_step > 0
               ? (size_t)((m.rows - 1) * m.row_step + (m.columns - 1) * m.column_step + 1)
               : 0;
}

/* Is an operand or the result one row or one column (of a tile, say) whose values do not lie side
   by side? The kernels "brg" of oneDNN 3.7 take them for values that do, and what they write is
   wrong. */
static bool is_strided_vector(const dn_gemm *g)
{
    return (g->y.columns == 1 && g->y.rows > 1 && g->y.row_step > 1) ||
           (g->w.columns == 1 && g->w.rows > 1 && g->w.row_step > 1) ||
           (g->x.rows == 1 && g->x.columns > 1 && g->x.column_step > 1);
}

/* Makes the descriptor of a product with operands of a type. *pd is NULL on failure. */
static dnnl_status_t describe_product(const dn_core *core, dnnl_primitive_desc_t *pd,
                                      const dn_gemm *g, dnnl_data_type_t type)
{
    enum { MATRICES = 4 };
    nn_md m[MATRICES] = { 0 };
    dnnl_status_t made = make_md(&m[X], g->x, type);

    *pd = NULL;
    if (made == dnnl_success)
        made = make_md(&m[W], g->w, type);
    if (made == dnnl_success)
        made = make_md(&m[BIAS], (dn_matrix){ 1, g->y.columns, g->y.columns, 1 }, dnnl_f32);
    if (made == dnnl_success)
        made = make_md(&m[Y], g->y, dnnl_f32);
    if (made == dnnl_success)
        made = nn_matmul_pd(pd, core->engine, nn_md_of(&m[X]), nn_md_of(&m[W]),
                            g->bias ? nn_md_of(&m[BIAS]) : NULL, nn_md_of(&m[Y]), g->attr);
    if (made == dnnl_success && is_strided_vector(g) &&
        (made = nn_pass_over(*pd, "brg")) != dnnl_success) {
        dnnl_primitive_desc_destroy(*pd);
        *pd = NULL;
    }
    for (int i = 0; i < MATRICES; i++)
        nn_md_free(&m[i]);
    return made;
}

/* ---- parts ---- */
void tutti_nn_dn_parts_close(dn_op *op)
{
    for (int k = 0; k < op->part_count; k++) {
        tutti_nn_dn_op_close(&op->parts[k].op);
        if (op->parts[k].stream != NULL)
            dnnl_stream_destroy(op->parts[k].stream);
    }
    tutti_free(op->parts);
    op->parts = NULL;
    op->part_count = 0;
}

static dn_matrix columns_of(dn_matrix m, int64_t count)
{
    m.columns = count;
    return m;
}

static dn_args args_of(const dn_gemm *g)
{
    static const int args[] = { DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_BIAS };
    return (dn_args){ args, g->bias ? 4 : 3 };
}

/* Splits the product of `op`, which is open, into parts. If there is only one part, or oneDNN has
   no kernel for a part, one thread computes the whole product. */
static tutti_status split_product(dn_core *core, dn_op *op, dn_label of, const dn_gemm *g,
                                  dnnl_data_type_t type, tutti_error *err)
{
    const dn_matrix x = g->x, w = g->w, y = g->y;
    const int count = (int)((y.columns + PART - 1) / PART);
    const double flops = 2.0 * (double)y.rows * PART * (double)x.columns;
    tutti_status status = TUTTI_OK;
    size_t scratch = 0;

    op->alone = true;
    if (w.column_step == 0 || count < 2)
        return TUTTI_OK;
    op->parts = tutti_alloc((size_t)count, sizeof *op->parts);
    if (op->parts == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory for a product in %d parts", count);
    for (op->part_count = 0; op->part_count < count && status == TUTTI_OK; op->part_count++) {
        struct dn_part *p = &op->parts[op->part_count];
        const int64_t first = (int64_t)op->part_count * PART,
                      wide = y.columns - first < PART ? y.columns - first : PART;
        dnnl_primitive_desc_t pd;
        dnnl_status_t made = describe_product(core, &pd,
                                              &(dn_gemm){ .x = x,
                                                          .w = columns_of(w, wide),
                                                          .bias = g->bias,
                                                          .y = columns_of(y, wide),
                                                          .attr = g->attr },
                                              type);
        if (!tutti_nn_dn_usable(pd, made)) {
            if (pd != NULL)
                dnnl_primitive_desc_destroy(pd);
            tutti_nn_dn_parts_close(op);
            return TUTTI_OK;
        }
        status = tutti_nn_dn_op_open(core, &p->op, of, (dn_made){ pd, made }, args_of(g), err);
        if (status == TUTTI_OK &&
            dnnl_stream_create(&p->stream, core->engine, dnnl_stream_default_flags) != dnnl_success)
            status = tutti_nn_dn_failed(dnnl_out_of_memory, of.unit, of.what, err);
        p->column = (size_t)first;
        p->scratch = scratch;
        scratch += (p->op.scratch + NN_ARENA_LINE - 1) / NN_ARENA_LINE * NN_ARENA_LINE;
    }
    if (scratch > op->scratch)
        op->scratch = scratch;
    op->part_steps[W] =
        (size_t)w.column_step * (type == dnnl_f32 ? sizeof(float) : sizeof(uint16_t));
    op->part_steps[Y] = (size_t)y.column_step * sizeof(float);
    op->part_steps[BIAS] = sizeof(float);
    op->part_least = flops < WORTH_FLOPS ? (size_t)(WORTH_FLOPS / flops) : 1;
    return status;
}

typedef struct running { dn_op *op; char *scratch; void *const *pointers; } running;

static void some_parts(void *arg, size_t first, size_t count, int thread)
{
    const running *r = arg;
    const int before = omp_get_max_threads();

    (void)thread;
    omp_set_num_threads(1);
    for (size_t k = first; k < first + count; k++) {
        struct dn_part *p = &r->op->parts[k];
        p->status = dnnl_success;
        for (int i = 0; i < p->op.count && p->status == dnnl_success; i++) {
            char *at = i < p->op.count - 1
                           ? (char *)r->pointers[i] + p->column * r->op->part_steps[i]
                           : r->scratch + p->scratch;
            p->status = dnnl_memory_set_data_handle(p->op.args[i].memory, at);
        }
        if (p->status == dnnl_success)
            p->status = dnnl_primitive_execute(p->op.primitive, p->stream, p->op.count, p->op.args);
        if (p->status == dnnl_success)
            p->status = dnnl_stream_wait(p->stream);
    }
    omp_set_num_threads(before);
}

dnnl_status_t tutti_nn_dn_parts_run(const dn_core *core, dn_op *op, void *const *pointers)
{
    running r = { op, core->scratch, pointers };

    tutti_nn_parallel(core->threads, (size_t)op->part_count, op->part_least, some_parts, &r);
    for (int k = 0; k < op->part_count; k++)
        if (op->parts[k].status != dnnl_success)
            return op->parts[k].status;
    return dnnl_success;
}

/* ---- the product ---- */
tutti_status tutti_nn_dn_product(dn_core *core, dn_op *op, dn_label of, const dn_gemm *g,
                                 tutti_error *err)
{
    const dnnl_data_type_t type = tutti_nn_dn_narrow_type(core);
    dnnl_primitive_desc_t pd;
    dnnl_status_t status = describe_product(core, &pd, g, type);
    bool takes = type != dnnl_f32;

    if (takes && !tutti_nn_dn_usable(pd, status)) {
        takes = false;
        if (pd != NULL)
            dnnl_primitive_desc_destroy(pd);
        status = describe_product(core, &pd, g, dnnl_f32);
    }
    TUTTI_TRY(tutti_nn_dn_op_open(core, op, of, (dn_made){ pd, status }, args_of(g), err));
    if (strncmp(op->implementation, "brg", 3) != 0)
        TUTTI_TRY(split_product(core, op, of, g, takes ? type : dnnl_f32, err));
    tutti_nn_dn_operand(core, op, 0, span(g->x), g->narrow & DN_NARROW_X);
    tutti_nn_dn_operand(core, op, 1, span(g->w),
                        g->w.column_step > 0 ? g->narrow & DN_NARROW_W : takes);
    return TUTTI_OK;
}
