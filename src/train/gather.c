/* gather.c: what all workers have, at index 0: a row of figures of each, or a list of each. Figures
   go up the binomial tree, so p workers report to index 0 in p - 1 messages and ceil(lg p)
   rounds. */
#include <errno.h>
#include <string.h>

#include "train_internal.h"

/* The number of workers, [index, index + this), whose figures go through this one. */
static int spokesman_of(const tutti_run *run)
{
    const int below = run->all.size - run->all.index, lowest = run->all.index & -run->all.index;
    return lowest == 0 || lowest > below ? below : lowest;
}

tutti_status tutti_train_gather_open(tutti_run *run, tutti_error *err)
{
    /* any worker may become index 0, which receives all figures */
    const bool all = run->automatic_shares || tutti_engine_fault_tolerant(run->engine);
    const size_t rows = (size_t)(all ? run->all.size : spokesman_of(run));

    run->figures_of = tutti_alloc(rows, TUTTI_TRAIN_FIGURES * sizeof(double));
    return run->figures_of != NULL ? TUTTI_OK
                                   : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for the reports of %d workers",
                                                run->all.size);
}

tutti_status tutti_train_gather(tutti_run *run, const double *mine, size_t n, tutti_error *err)
{
    const tutti_port port = tutti_port_of("train.told", 0, 0);
    const int index = run->all.index, all = spokesman_of(run);

    /* Where a loss makes this fail on some workers only, the others must learn of it: a
       collective reports it, ports do not. */
    if (tutti_engine_fault_tolerant(run->engine))
        return tutti_gather_parts(
            &run->all, 0, tutti_host((double *)(uintptr_t)mine, n, TUTTI_F64),
            index == 0 ? tutti_host(run->figures_of, n * (size_t)run->all.size, TUTTI_F64) : tutti_nothing(), err);
    memcpy(run->figures_of, mine, n * sizeof *mine);
    for (int bit = 1; bit < all; bit <<= 1) {
        const int theirs = all - bit < bit ? all - bit : bit;
        TUTTI_TRY(tutti_recv(run->world, index + bit, port, NULL,
                             tutti_host(run->figures_of + (size_t)bit * n, (size_t)theirs * n, TUTTI_F64),
                             TUTTI_FOREVER, err));
    }
    if (index == 0)
        return TUTTI_OK;
    return tutti_send(run->world, index & (index - 1), port, NULL,
                      tutti_host(run->figures_of, (size_t)all * n, TUTTI_F64), err);
}

tutti_status tutti_train_gather_lists(tutti_run *run, tutti_buffer mine, size_t *begin, void **all, tutti_error *err)
{
    const size_t n = (size_t)run->all.size;
    int64_t length = (int64_t)mine.count, *lengths = tutti_alloc(n, sizeof *lengths);
    size_t *counts = tutti_alloc(n, sizeof *counts);
    tutti_buffer whole = tutti_nothing();
    tutti_status status =
        counts != NULL && lengths != NULL
            ? tutti_allgather(&run->all, tutti_host(&length, 1, TUTTI_I64), tutti_host(lengths, n, TUTTI_I64), err)
            : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for lists of %zu workers", n);

    *all = NULL;
    begin[0] = 0;
    for (size_t k = 0; status == TUTTI_OK && k < n; k++) {
        counts[k] = (size_t)lengths[k];
        begin[k + 1] = begin[k] + counts[k];
    }
    if (status == TUTTI_OK && run->all.index == 0) {
        *all = tutti_alloc(begin[n] + 1, tutti_dtype_bytes(mine.dtype));
        whole = tutti_host(*all, begin[n], mine.dtype);
        if (*all == NULL)
            status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for lists of %zu workers", n);
    }
    if (status == TUTTI_OK)
        status = tutti_gather_parts_v(&run->all, 0, counts, mine, whole, err);
    tutti_free(lengths);
    tutti_free(counts);
    return status;
}
