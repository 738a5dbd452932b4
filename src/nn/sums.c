/* sums.c: the sum of the gradients of a pass's blocks (driver.h).

   A pass runs in blocks of 64 samples (of tokens: of fewer windows, see block_of in nn.c). The
   blocks' gradients are added by the one order of summation of the project: the binary tree over
   the blocks. So four workers with 64 samples each and one worker with 256 compute the same
   gradient to the bit. (Their divisors differ by a power of two, which is exact.) In another order
   two such runs diverge within a hundred steps, as soon as rounding switches a single ReLU. Blocks
   also limit the activations to those of 64 samples.

   The tree is a binary counter over a stack of gradient sets, with the caller's set at the bottom.
   Every second block is added to the set before it, and the last block to all sets. Such a block
   needs no set: each unit's gradients are written to one buffer, the *leaf*, and are added from
   there while they are in the cache. So a pass of n blocks has floor(log2(n)) sets: the caller's,
   and floor(log2(n)) - 1 of the network, and a leaf with the size of the largest unit. A pass of
   two or three blocks has only the caller's set.

   If blocks are interleaved (by_unit.c), all sets but the caller's have the size of the largest
   unit, as the leaf.

   A pass that adds sums into a bottom set of the network, and adds the sum to the caller's
   gradients at the end. That set is allocated at open or in the first such pass.

   A table's gradient (row_sparse) is a list of rows in each set, merged by the same tree. It is
   written to the caller's memory once, when it is final. A row that a block has not touched is 0
   and need not be added. */
#include "arena.h"
#include "driver.h"
#include <string.h>

enum { WORD = 64 }; /* bits */

/* Sets the pointers of a set: its parameters one after another; NULL for tables. */
static void point(const tutti_nn *nn, float *at, float **pointers)
{
    for (int k = 0; k < nn->params; k++) {
        pointers[k] = nn->width[k] == 0 ? at : NULL;
        at += nn->width[k] == 0 ? nn->count[k] : 0;
    }
}

/* Returns the values of parameters [first, first + count), each beginning on a cache line. */
static size_t values_of_leaf(const tutti_nn *nn, int first, int count)
{
    const size_t line = NN_ARENA_LINE / sizeof(float);
    size_t values = 0;

    for (int k = first; k < first + count; k++)
        values += nn->width[k] == 0 ? (nn->count[k] + line - 1) / line * line : 0;
    return values;
}

static void point_leaf(const tutti_nn *nn, int first, int count, float *at, float **pointers)
{
    for (int k = first; k < first + count; k++) {
        pointers[k] = nn->width[k] == 0 ? at : NULL;
        at += values_of_leaf(nn, k, 1);
    }
}

/* Returns the first parameter of the convolutions, which count as one unit here, since they run
   interleaved. */
static int tiled(const tutti_nn *nn)
{
    return nn->convs > 0 ? nn->unit[nn->convs - 1].param : nn->params;
}

static size_t tied_values(const tutti_nn *nn)
{
    return nn->tied ? values_of_leaf(nn, nn->unit[0].param, nn->unit[0].params) : 0;
}

/* Sets the pointers of memory that units use one after another. A tied matrix's gradient begins
   with the last unit and ends with the first, so it has memory of its own, at the front. */
static void point_units(const tutti_nn *nn, float *at, float **pointers)
{
    const size_t tied = tied_values(nn);

    point_leaf(nn, tiled(nn), nn->params - tiled(nn), at + tied, pointers);
    for (int u = nn->convs; u < nn->units; u++)
        point_leaf(nn, nn->unit[u].param, nn->unit[u].params, at + (u > 0 || !nn->tied ? tied : 0),
                   pointers);
}

static size_t values_of_units(const tutti_nn *nn)
{
    size_t most = values_of_leaf(nn, tiled(nn), nn->params - tiled(nn));

    for (int u = nn->convs; u < nn->units; u++) {
        const size_t values = values_of_leaf(nn, nn->unit[u].param, nn->unit[u].params);
        most = values > most && (u > 0 || !nn->tied) ? values : most;
    }
    return tied_values(nn) + most;
}

static tutti_status open_leaf(tutti_nn *nn, tutti_error *err)
{
    nn->leaf_values = values_of_units(nn);
    nn->leaf = tutti_alloc(nn->leaf_values, sizeof *nn->leaf);
    nn->leaf_pointers = tutti_alloc((size_t)nn->params, sizeof *nn->leaf_pointers);
    if ((nn->leaf == NULL && nn->leaf_values > 0) || nn->leaf_pointers == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0,
                          "no memory for %zu gradients of a layer; use a batch of at most %lld",
                          nn->leaf_values, (long long)nn->block);
    point_units(nn, nn->leaf, nn->leaf_pointers);
    return TUTTI_OK;
}

/* Allocates memory for each block's gradient of a tied matrix, since none can be merged before the
   first unit. */
static tutti_status open_tied(tutti_nn *nn, tutti_error *err)
{
    const size_t blocks = (size_t)nn->backend_count, values = tied_values(nn);

    if (!nn->by_unit || !nn->tied || values == 0)
        return TUTTI_OK;
    nn->tied_memory = tutti_alloc(blocks, values * sizeof *nn->tied_memory);
    nn->tied_pointers = tutti_alloc(blocks, (size_t)nn->params * sizeof *nn->tied_pointers);
    return nn->tied_memory != NULL && nn->tied_pointers != NULL
               ? TUTTI_OK
               : tutti_fail(err, TUTTI_ERR_MEMORY, 0,
                            "no memory for the gradients of a tied matrix in %zu blocks; use a "
                            "smaller batch",
                            blocks);
}

float *const *tutti_nn_tied_gradients(const tutti_nn *nn, float *const *pointers, int64_t block)
{
    float **own = nn->tied_pointers + block * nn->params;

    if (nn->tied_pointers == NULL)
        return pointers;
    memcpy(own, pointers, (size_t)nn->params * sizeof *own);
    point_leaf(nn, nn->unit[0].param, nn->unit[0].params,
               nn->tied_memory + (size_t)block * tied_values(nn), own);
    return own;
}

tutti_status tutti_nn_unit_gradients(tutti_nn *nn, float **gradients, tutti_error *err)
{
    const size_t values = values_of_units(nn);

    if (!nn->by_unit && nn->batch > nn->block)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "units share memory for their gradients only where blocks go side by "
                          "side, and this network runs its blocks of %lld samples one after "
                          "another; open it with by_unit",
                          (long long)nn->block);
    if (nn->unit_gradients == NULL && values > 0 &&
        (nn->unit_gradients = tutti_alloc(values, sizeof *nn->unit_gradients)) == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0,
                          "no memory for the %zu gradients of the largest unit", values);
    nn->unit_gradient_values = values;
    point_units(nn, nn->unit_gradients, gradients);
    return TUTTI_OK;
}

/* Allocates gradient sets, and the leaf. */
static tutti_status open_sets(tutti_nn *nn, tutti_error *err)
{
    const size_t values = nn->set_values = nn->by_unit ? values_of_units(nn) : nn->values;
    int levels = 0;

    for (int64_t blocks = (nn->batch + nn->block - 1) / nn->block; blocks > 1; blocks /= 2)
        levels++;
    nn->levels = levels + 1;
    if (levels == 0)
        return TUTTI_OK;
    nn->sets = levels - 1;
    nn->set_memory = tutti_alloc((size_t)nn->sets, values * sizeof(float));
    nn->set_pointers =
        tutti_alloc((size_t)nn->sets + 1, (size_t)nn->params * sizeof *nn->set_pointers);
    if ((nn->set_memory == NULL && nn->sets > 0 && values > 0) || nn->set_pointers == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0,
                          "no memory for %d sets of %zu gradients; use a batch of at most %lld",
                          nn->sets, values, (long long)nn->block);
    for (int set = 0; set < nn->sets; set++)
        (nn->by_unit ? point_units : point)(nn, nn->set_memory + (size_t)set * values,
                                            nn->set_pointers + (set + 1) * nn->params);
    TUTTI_TRY(open_tied(nn, err));
    return open_leaf(nn, err);
}

/* Allocates the bottom set of passes that add, unless it is there. */
static tutti_status open_bottom(tutti_nn *nn, tutti_error *err)
{
    if (nn->bottom != NULL || nn->set_values == 0)
        return TUTTI_OK;
    nn->bottom = tutti_alloc(nn->set_values, sizeof *nn->bottom);
    if (nn->bottom == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0,
                          "no memory for a set of %zu gradients in addition to those of a pass; "
                          "use a batch of at most %lld", nn->set_values, (long long)nn->block);
    (nn->by_unit ? point_units : point)(nn, nn->bottom, nn->set_pointers);
    return TUTTI_OK;
}

/* Allocates lists for the rows of tables: at the lowest level for all rows that a pass may touch,
   at each level above for half as many. */
static tutti_status open_tables(tutti_nn *nn, tutti_error *err)
{
    const nn_sequence *s = nn->net.sequence;
    const int64_t blocks = (nn->batch + nn->block - 1) / nn->block,
                  full = nn->batch < nn->block ? nn->batch : nn->block;
    size_t most = 0;
    bool enough;

    nn->tables = tutti_alloc((size_t)nn->levels * (size_t)nn->params, sizeof *nn->tables);
    enough = nn->tables != NULL;
    for (int i = 0; i < nn->levels * nn->params && enough; i++) {
        const int level = i / nn->params, k = i % nn->params;
        nn_rows *t = &nn->tables[i];
        if (nn->width[k] == 0)
            continue;
        *t = (nn_rows){ .width = nn->width[k],
                        .capacity = (size_t)(blocks >> level > 0 ? blocks >> level : 1) *
                                    (size_t)(full * s->context) * nn_row_ids(s) };
        if (t->capacity > s->params[k].rows)
            t->capacity = s->params[k].rows;
        t->ids = tutti_alloc(t->capacity, sizeof *t->ids);
        t->values = tutti_alloc(t->capacity, t->width * sizeof *t->values);
        enough = t->ids != NULL && t->values != NULL;
        most = s->params[k].rows > most ? s->params[k].rows : most;
    }
    if (enough && most > 0) {
        nn->touched = tutti_alloc((most + WORD - 1) / WORD, sizeof *nn->touched);
        enough = nn->touched != NULL;
    }
    return enough
               ? TUTTI_OK
               : tutti_fail(
                     err, TUTTI_ERR_MEMORY, 0,
                     "no memory for the rows of tables that %lld samples name; use a smaller batch",
                     (long long)nn->batch);
}

tutti_status tutti_nn_sums_open(tutti_nn *nn, bool adds, tutti_error *err)
{
    TUTTI_TRY(open_sets(nn, err));
    if (adds && nn->batch > nn->block)
        TUTTI_TRY(open_bottom(nn, err));
    return open_tables(nn, err);
}

void tutti_nn_sums_close(tutti_nn *nn)
{
    for (int i = 0; i < nn->levels * nn->params && nn->tables != NULL; i++) {
        tutti_free(nn->tables[i].ids);
        tutti_free(nn->tables[i].values);
    }
    tutti_free(nn->tables);
    tutti_free(nn->touched);
    tutti_free(nn->set_memory);
    tutti_free(nn->set_pointers);
    tutti_free(nn->bottom);
    tutti_free(nn->leaf);
    tutti_free(nn->leaf_pointers);
    tutti_free(nn->tied_memory);
    tutti_free(nn->tied_pointers);
    tutti_free(nn->unit_gradients);
}

size_t tutti_nn_sums_bytes(const tutti_nn *nn)
{
    const size_t sets = (size_t)nn->sets + (nn->bottom != NULL);
    const size_t tied = nn->tied_memory != NULL ? (size_t)nn->backend_count * tied_values(nn) : 0;
    return (sets * nn->set_values + nn->leaf_values + nn->unit_gradient_values + tied) *
               sizeof(float) +
           (nn->set_pointers != NULL ? (size_t)nn->sets + 2 : 0) * (size_t)nn->params *
               sizeof *nn->set_pointers;
}

static void add_row(size_t width, const float *restrict x, float *restrict y)
{
    for (size_t j = 0; j < width; j++)
        y[j] += x[j];
}

static void charge_rows(const tutti_nn *nn, const nn_rows *rows)
{
    if (nn->device != NULL)
        tutti_device_charge(nn->device, (double)(rows->n * rows->width),
                            12 * (double)(rows->n * rows->width));
}

/* Adds the rows of `from` to `to`: a merge from the end, in place, since the rows of `to` that are
   still to be read never lie behind those that are written. */
static void add_rows(const tutti_nn *nn, const nn_rows *from, nn_rows *to)
{
    const size_t width = to->width;
    size_t i = from->n, j = to->n, both = 0, at;

    for (size_t a = 0, b = 0; a < i && b < j;) { /* how many ids they share */
        both += from->ids[a] == to->ids[b];
        if (from->ids[a] < to->ids[b])
            a++;
        else if (from->ids[a] > to->ids[b])
            b++;
        else
            a++, b++;
    }
    to->n = at = i + j - both;
    while (i > 0) {
        const bool mine = j > 0 && to->ids[j - 1] >= from->ids[i - 1],
                   theirs = j == 0 || to->ids[j - 1] <= from->ids[i - 1];
        at--;
        if (mine) {
            to->ids[at] = to->ids[--j];
            memmove(to->values + at * width, to->values + j * width, width * sizeof *to->values);
        }
        if (theirs) {
            i--;
            if (mine)
                add_row(width, from->values + i * width, to->values + at * width);
            else {
                to->ids[at] = from->ids[i];
                memcpy(to->values + at * width, from->values + i * width,
                       width * sizeof *to->values);
            }
        }
    }
    charge_rows(nn, from);
}

tutti_status tutti_nn_acquire_rows(const tutti_nn *nn, const nn_run *run,
                                   const tutti_nn_hooks *hooks, tutti_error *err)
{
    const nn_sequence *s = nn->net.sequence;

    for (int k = 0; k < nn->params && hooks != NULL && hooks->rows_acquire != NULL; k++) {
        const size_t each = nn->width[k] == 0 ? 0 : nn_row_ids(s),
                     n = nn->width[k] == 0 ? 0 : (size_t)run->samples * (size_t)s->context * each;
        uint32_t *ids = nn->tables[k].ids; /* backward overwrites them later */
        size_t count = 0;
        if (nn->width[k] == 0)
            continue;
        for (size_t i = 0; i < n; i++) {
            const uint32_t id =
                s->tables > 0 ? (uint32_t)(i % each) * s->rows + run->rows[i] : run->tokens[i];
            nn->touched[id / WORD] |= UINT64_C(1) << id % WORD;
        }
        for (size_t w = 0; w < (s->params[k].rows + WORD - 1) / WORD && n > 0; w++) {
            for (uint64_t bits = nn->touched[w]; bits != 0; bits &= bits - 1)
                ids[count++] = (uint32_t)(w * WORD + (size_t)__builtin_ctzll(bits));
            nn->touched[w] = 0;
        }
        TUTTI_TRY(hooks->rows_acquire(hooks->user, k, ids, count, err));
    }
    return TUTTI_OK;
}

void tutti_nn_scatter_rows(const tutti_nn *nn, int param, const tutti_nn_hooks *hooks)
{
    const nn_rows *t = &nn->tables[param];
    float *g = nn->gradients[param];

    if (g == NULL) /* the caller reads the rows with tutti_nn_rows */
        return;
    if (!nn->adds && (hooks == NULL || hooks->grad_ready_rows == NULL))
        memset(g, 0, nn->count[param] * sizeof *g);
    for (size_t i = 0; i < t->n; i++)
        add_row(t->width, t->values + i * t->width, g + t->ids[i] * t->width);
    charge_rows(nn, t);
}

const float *tutti_nn_rows(const tutti_nn *nn, int param)
{
    return nn->tables[param].values;
}

static void add_sets(const tutti_nn *nn, float *const *from, float *const *to, int param)
{
    const float *restrict x = from[param];
    float *restrict y = to[param];

    if (nn->device != NULL)
        tutti_add(nn->device, nn->count[param], x, y);
    else
        for (size_t i = 0; i < nn->count[param]; i++)
            y[i] += x[i];
}

tutti_status tutti_nn_stack_begin(nn_stack *s, tutti_nn *nn, const nn_run *run, tutti_error *err)
{
    *s = (nn_stack){ .total = run->add ? run->gradients : NULL };
    if (run->add)
        TUTTI_TRY(open_bottom(nn, err));
    s->set[0] = run->add ? nn->set_pointers : run->gradients;
    for (int k = 1; k <= nn->sets; k++)
        s->set[k] = nn->set_pointers + k * nn->params;
    return TUTTI_OK;
}

void tutti_nn_stack_push(const tutti_nn *nn, nn_stack *s, nn_run *run, int64_t block, bool last)
{
    s->merges = last ? s->top : __builtin_ctzll((uint64_t)block + 1);
    s->last = last;
    if (s->merges > 0)
        s->set[s->top] = nn->leaf_pointers;
    run->add = false;
    run->gradients = s->set[s->top];
    run->tables = nn->tables + s->top * nn->params;
}

void tutti_nn_stack_merge(const tutti_nn *nn, const nn_stack *s, int param)
{
    if (s->tied != NULL && s->tied[param] != s->set[s->top][param])
        memcpy(s->set[s->top][param], s->tied[param], nn->count[param] * sizeof(float));
    for (int k = s->top; k > s->top - s->merges; k--)
        if (nn->width[param] > 0)
            add_rows(nn, &nn->tables[k * nn->params + param],
                     &nn->tables[(k - 1) * nn->params + param]);
        else
            add_sets(nn, s->set[k], s->set[k - 1], param);
    if (s->last && s->total != NULL && nn->width[param] == 0)
        add_sets(nn, s->set[0], s->total, param);
}

void tutti_nn_stack_pop(const tutti_nn *nn, nn_stack *s)
{
    if (s->merges > 0 && s->top <= nn->sets)
        s->set[s->top] = nn->set_pointers + s->top * nn->params;
    s->top += 1 - s->merges;
}
