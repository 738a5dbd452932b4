/* gather.c: gathers a row of figures, or a list, of each rank at index 0. Rows of figures are sent
   along a binomial tree with index 0 as its root: of p ranks in p - 1 messages and ceil(lg p)
   rounds. */
#include <errno.h>
#include <string.h>

#include "gather.h"
#include "train_internal.h"

/* Returns how many ranks the subtree of this rank has. Their indexes follow one another from this
   rank's on. */
static int subtree_size(const tutti_run *run)
{
    const int below = run->all.size - run->all.index, lowest = run->all.index & -run->all.index;
    return lowest == 0 || lowest > below ? below : lowest;
}

tutti_status tutti_train_gather_open(tutti_run *run, tutti_error *err)
{
    /* a rank that may become index 0, or takes part in an all-gather, needs a row for each rank */
    const bool all = run->automatic_shares || tutti_engine_fault_tolerant(run->engine);
    const size_t rows = (size_t)(all ? run->all.size : subtree_size(run));

    run->figures_of = tutti_alloc(rows, TUTTI_TRAIN_FIGURES * sizeof(double));
    return run->figures_of != NULL
               ? TUTTI_OK
               : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for the reports of %d workers",
                            run->all.size);
}

tutti_status tutti_train_gather(tutti_run *run, const double *mine, size_t n, tutti_error *err)
{
    const tutti_port port = tutti_port_of("train.told", 0, 0);
    const int index = run->all.index, all = subtree_size(run);

    /* If a worker is lost this may fail on some ranks only. A collective informs the others of the
       loss; messages over a port do not. */
    if (tutti_engine_fault_tolerant(run->engine))
        return tutti_gather_parts(
            &run->all, 0, tutti_host((double *)(uintptr_t)mine, n, TUTTI_F64),
            index == 0 ? tutti_host(run->figures_of, n * (size_t)run->all.size, TUTTI_F64)
                       : tutti_nothing(),
            err);
    memcpy(run->figures_of, mine, n * sizeof *mine);
    for (int bit = 1; bit < all; bit <<= 1) {
        const int theirs = all - bit < bit ? all - bit : bit;
        TUTTI_TRY(
            tutti_recv(run->world, index + bit, port, NULL,
                       tutti_host(run->figures_of + (size_t)bit * n, (size_t)theirs * n, TUTTI_F64),
                       TUTTI_FOREVER, err));
    }
    if (index == 0)
        return TUTTI_OK;
    return tutti_send(run->world, index & (index - 1), port, NULL,
                      tutti_host(run->figures_of, (size_t)all * n, TUTTI_F64), err);
}

tutti_status tutti_train_gather_lists(tutti_run *run, tutti_buffer mine, size_t *begin, void **all,
                                      tutti_error *err)
{
    const size_t n = (size_t)run->all.size;
    int64_t length = (int64_t)mine.count, *lengths = tutti_alloc(n, sizeof *lengths);
    size_t *counts = tutti_alloc(n, sizeof *counts);
    tutti_buffer whole = tutti_nothing();
    tutti_status status =
        counts != NULL && lengths != NULL
            ? tutti_allgather(&run->all, tutti_host(&length, 1, TUTTI_I64),
                              tutti_host(lengths, n, TUTTI_I64), err)
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
            status =
                tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for lists of %zu workers", n);
    }
    if (status == TUTTI_OK)
        status = tutti_gather_parts_v(&run->all, 0, counts, mine, whole, err);
    tutti_free(lengths);
    tutti_free(counts);
    return status;
}
