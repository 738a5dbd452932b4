/* norm.c: the norm of a flat vector that may be distributed: one worker has one shard of the
   gradient, another the next.

   Its square is the sum of the squares of blocks of TUTTI_NORM_BLOCK elements, in their order. A
   block's is tutti_norm2's. So a worker that has whole blocks sends a number for each, n / 512
   bytes for n bytes of floats, and a worker that adds them up gets the same bits as every other,
   however the vector is split into pieces or shards, and whichever worker computed which block.

   Of tables only the rows that were touched are read. A 0 adds nothing to its lane of the sum, so
   the bits are those of the whole gradient. */
#include <assert.h>
#include <string.h>

#include "engine_internal.h"
#include "kernels/codes.h"
#include "calls.h"

enum { LANES = 16, AT_A_TIME = 64 }; /* blocks */

/* Sums of blocks from `first` on, and the partial sum of the current one. */
typedef struct adder {
    size_t first, block;
    double *sums, lane[LANES];
    bool begun;
} adder;

static void end_block(adder *a)
{
    if (!a->begun)
        return;
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int k = 0; k < half; k++)
            a->lane[k] += a->lane[k + half];
    a->sums[a->block - a->first] = a->lane[0];
    memset(a->lane, 0, sizeof a->lane);
    a->begun = false;
}

/* In the order of tutti_norm2 over the block: element i in lane i mod 16. */
static void add_squares(const float *g, size_t first, size_t count, double lane[LANES])
{
    size_t i = first, end = first + count;

    for (; i < end && i % LANES != 0; i++)
        lane[i % LANES] += (double)g[i] * (double)g[i];
    for (; i + LANES <= end; i += LANES)
        for (size_t k = 0; k < LANES; k++)
            lane[k] += (double)g[i + k] * (double)g[i + k];
    for (; i < end; i++)
        lane[i % LANES] += (double)g[i] * (double)g[i];
}

/* Adds elements [at, end), which come after all those added before; last: none come after
   them. */
static void add_block_squares(const tutti_method *m, adder *a, size_t at, size_t end, bool last)
{
    while (at < end) {
        const size_t block = at / TUTTI_NORM_BLOCK, until = (block + 1) * TUTTI_NORM_BLOCK,
                     stop = until < end ? until : end,
                     whole = last ? end - at : (end - at) / TUTTI_NORM_BLOCK * TUTTI_NORM_BLOCK;
        if (block != a->block)
            end_block(a);
        a->block = block;
        if (at % TUTTI_NORM_BLOCK == 0 && whole > 0) {
            tutti_norm2_each(m->device, whole, TUTTI_NORM_BLOCK, m->g + at,
                             a->sums + (block - a->first));
            at += whole;
            continue;
        }
        add_squares(m->g, at, stop - at, a->lane);
        tutti_device_charge(m->device, 2.0 * (double)(stop - at), 4.0 * (double)(stop - at));
        a->begun = true;
        at = stop;
    }
}

/* The first row whose elements extend beyond `at` of the table. */
static size_t row_at(const tutti_rows *rows, size_t cols, size_t at)
{
    size_t low = 0, high = rows->n;

    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (((size_t)rows->ids[middle] + 1) * cols > at)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* Adds the known rows of a table that are in [first, end) of the flat space. */
static void add_rows(const tutti_method *m, adder *a, const tutti_tensor *t, const tutti_rows *rows,
                     size_t first, size_t end)
{
    for (size_t k = row_at(rows, t->cols, first - t->first); k < rows->n; k++) {
        const size_t row = t->first + rows->ids[k] * t->cols, from = row > first ? row : first,
                     to = row + t->cols < end ? row + t->cols : end;
        if (from >= end)
            break;
        add_block_squares(m, a, from, to, false);
    }
}

void tutti_norm2_blocks(const tutti_method *m, size_t first, size_t count, double *sums)
{
    const tutti_layout *l = m->layout;
    const size_t end = first + count < l->used ? first + count : l->used;
    size_t done = first;
    adder a = { .first = first / TUTTI_NORM_BLOCK,
                .block = first / TUTTI_NORM_BLOCK,
                .sums = sums };

    assert(first % TUTTI_NORM_BLOCK == 0 && first + count <= l->n);
    assert(count % TUTTI_NORM_BLOCK == 0 || first + count >= l->used);
    memset(sums, 0, (count + TUTTI_NORM_BLOCK - 1) / TUTTI_NORM_BLOCK * sizeof *sums);
    for (int i = 0; i < l->n_tensors; i++) {
        const tutti_tensor *t = &l->tensor[i];
        const tutti_rows *rows = t->row_sparse ? tutti_engine_rows_known(m->engine, i) : NULL;
        if (rows == NULL || rows->all || t->first + t->count <= first || t->first >= end)
            continue;
        if (t->first > done)
            add_block_squares(m, &a, done, t->first, false);
        done = t->first > done ? t->first : done;
        add_rows(m, &a, t, rows, done, end);
        done = t->first + t->count;
    }
    if (done < end)
        add_block_squares(m, &a, done, end, true);
    end_block(&a);
}

double tutti_engine_norm2(const tutti_engine *e)
{
    enum { MOST = AT_A_TIME * TUTTI_NORM_BLOCK };
    double sums[AT_A_TIME], total = 0;

    for (size_t at = 0, some; at < e->layout.used; at += some) {
        some = e->layout.used - at < MOST ? e->layout.used - at : MOST;
        tutti_norm2_blocks(&e->m, at, some, sums);
        for (size_t k = 0; k < (some + TUTTI_NORM_BLOCK - 1) / TUTTI_NORM_BLOCK; k++)
            total += sums[k];
    }
    return total;
}
