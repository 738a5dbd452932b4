/* sums.c: the gradients of a pass's blocks.

   A pass runs in blocks of 64 samples (of tokens: of fewer windows, block_of). The blocks'
   gradients are added in the one order of summation of the project: the binary tree over the
   blocks. So four workers with 64 samples each and one worker with 256 compute the same gradient
   to the bit (their common divisor is a power of two apart, which is exact). Without it a single
   ReLU that rounding turns over sends two such runs apart within a hundred steps. Blocks also
   bound the activations by 64 samples. The tree is a binary counter over a stack of gradient sets:
   the caller's at the bottom, floor(log2(blocks)) of our own above it.

   A table's gradient (row_sparse) is a list of rows in each of these sets, merged in the same
   tree. It goes into the caller's memory once, when it is final: a row that a block has not
   touched is a 0 that need not be added. */
#include "driver.h"
#include <string.h>

enum { WORD = 64 }; /* bits */

/* Gradient sets for the tree over blocks. */
static tutti_status open_sets(tutti_nn *nn, tutti_error *err)
{
    for (int64_t blocks = (nn->batch + nn->block - 1) / nn->block; blocks > 1; blocks /= 2)
        nn->sets++;
    if (nn->sets == 0)
        return TUTTI_OK;
    nn->sets++; /* for a pass that adds: the caller's then takes the sum at the end */
    nn->set_memory = tutti_alloc((size_t)nn->sets, nn->values * sizeof(float));
    nn->set_pointers = tutti_alloc((size_t)nn->sets * (size_t)nn->params, sizeof *nn->set_pointers);
    if (nn->set_memory == NULL || nn->set_pointers == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0,
                          "no memory for %d sets of %zu gradients; use a batch of at most %lld", nn->sets, nn->values,
                          (long long)nn->block);
    for (int set = 0; set < nn->sets; set++) {
        float *at = nn->set_memory + (size_t)set * nn->values;
        for (int k = 0; k < nn->params; k++) {
            nn->set_pointers[set * nn->params + k] = nn->width[k] == 0 ? at : NULL;
            at += nn->width[k] == 0 ? nn->count[k] : 0;
        }
    }
    return TUTTI_OK;
}

/* Lists for the rows of tables: of the lowest level for all that a pass names, of each level above
   it for half as much. */
static tutti_status open_tables(tutti_nn *nn, tutti_error *err)
{
    const nn_sequence *s = nn->net.sequence;
    const int64_t blocks = (nn->batch + nn->block - 1) / nn->block,
                  full = nn->batch < nn->block ? nn->batch : nn->block;
    size_t most = 0;
    bool enough;

    nn->levels = nn->sets > 0 ? nn->sets : 1;
    nn->tables = tutti_alloc((size_t)nn->levels * (size_t)nn->params, sizeof *nn->tables);
    enough = nn->tables != NULL;
    for (int i = 0; i < nn->levels * nn->params && enough; i++) {
        const int level = i / nn->params, k = i % nn->params;
        nn_rows *t = &nn->tables[i];
        if (nn->width[k] == 0)
            continue;
        *t = (nn_rows){ .width = nn->width[k],
                        .room = (size_t)(blocks >> level > 0 ? blocks >> level : 1) * (size_t)(full * s->context) *
                                nn_row_ids(s) };
        if (t->room > s->params[k].rows)
            t->room = s->params[k].rows;
        t->ids = tutti_alloc(t->room, sizeof *t->ids);
        t->values = tutti_alloc(t->room, t->width * sizeof *t->values);
        enough = t->ids != NULL && t->values != NULL;
        most = s->params[k].rows > most ? s->params[k].rows : most;
    }
    if (enough && most > 0) {
        nn->named = tutti_alloc((most + WORD - 1) / WORD, sizeof *nn->named);
        enough = nn->named != NULL;
    }
    return enough ? TUTTI_OK
                  : tutti_fail(err, TUTTI_ERR_MEMORY, 0,
                               "no memory for the rows of tables that %lld samples name; use a smaller batch",
                               (long long)nn->batch);
}

tutti_status tutti_nn_sums_open(tutti_nn *nn, tutti_error *err)
{
    TUTTI_TRY(open_sets(nn, err));
    return open_tables(nn, err);
}

void tutti_nn_sums_close(tutti_nn *nn)
{
    for (int i = 0; i < nn->levels * nn->params && nn->tables != NULL; i++) {
        tutti_free(nn->tables[i].ids);
        tutti_free(nn->tables[i].values);
    }
    tutti_free(nn->tables);
    tutti_free(nn->named);
    tutti_free(nn->set_memory);
    tutti_free(nn->set_pointers);
}

static void add_row(size_t width, const float *restrict x, float *restrict y)
{
    for (size_t j = 0; j < width; j++)
        y[j] += x[j];
}

static void charge_rows(const tutti_nn *nn, const nn_rows *rows)
{
    if (nn->device != NULL)
        tutti_device_charge(nn->device, (double)(rows->n * rows->width), 12 * (double)(rows->n * rows->width));
}

/* to += from. In place, from the end: where `to` is read lies never behind where it is written. */
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
                memcpy(to->values + at * width, from->values + i * width, width * sizeof *to->values);
            }
        }
    }
    charge_rows(nn, from);
}

tutti_status tutti_nn_need_rows(const tutti_nn *nn, const nn_run *run, const tutti_nn_hooks *hooks, tutti_error *err)
{
    const nn_sequence *s = nn->net.sequence;

    for (int k = 0; k < nn->params && hooks != NULL && hooks->need_rows != NULL; k++) {
        const size_t each = nn->width[k] == 0 ? 0 : nn_row_ids(s),
                     n = nn->width[k] == 0 ? 0 : (size_t)run->samples * (size_t)s->context * each;
        uint32_t *ids = nn->tables[k].ids; /* which the backward fills, later */
        size_t count = 0;
        if (nn->width[k] == 0)
            continue;
        for (size_t i = 0; i < n; i++) {
            const uint32_t id = s->tables > 0 ? (uint32_t)(i % each) * s->rows + run->rows[i] : run->tokens[i];
            nn->named[id / WORD] |= UINT64_C(1) << id % WORD;
        }
        for (size_t w = 0; w < (s->params[k].rows + WORD - 1) / WORD && n > 0; w++) {
            for (uint64_t bits = nn->named[w]; bits != 0; bits &= bits - 1)
                ids[count++] = (uint32_t)(w * WORD + (size_t)__builtin_ctzll(bits));
            nn->named[w] = 0;
        }
        TUTTI_TRY(hooks->need_rows(hooks->user, k, ids, count, err));
    }
    return TUTTI_OK;
}

void tutti_nn_give_rows(const tutti_nn *nn, int param, const tutti_nn_hooks *hooks)
{
    const nn_rows *t = &nn->tables[param];
    float *g = nn->given[param];

    if (!nn->adds && (hooks == NULL || hooks->ready_rows == NULL))
        memset(g, 0, nn->count[param] * sizeof *g);
    for (size_t i = 0; i < t->n; i++)
        add_row(t->width, t->values + i * t->width, g + t->ids[i] * t->width);
    charge_rows(nn, t);
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

/* A level of the stack onto the one below it. */
static void add_level(const tutti_nn *nn, const nn_stack *s, int level, int param)
{
    if (nn->width[param] > 0)
        add_rows(nn, &nn->tables[level * nn->params + param], &nn->tables[(level - 1) * nn->params + param]);
    else
        add_sets(nn, s->set[level], s->set[level - 1], param);
}

void tutti_nn_stack_collapse(const tutti_nn *nn, const nn_stack *s, int param)
{
    for (int k = s->top; k > 1; k--)
        add_level(nn, s, k - 1, param);
    if (s->total != NULL && nn->width[param] == 0)
        add_sets(nn, s->set[0], s->total, param);
}

nn_stack tutti_nn_stack_begin(tutti_nn *nn, const nn_run *run)
{
    nn_stack s = { .total = run->add ? run->gradients : NULL };
    int bottom = 0;

    if (!run->add)
        s.set[bottom++] = run->gradients;
    for (int k = 0; k < nn->sets && bottom < (int)TUTTI_LENGTH(s.set); k++)
        s.set[bottom++] = nn->set_pointers + (size_t)k * (size_t)nn->params;
    return s;
}

void tutti_nn_stack_push(tutti_nn *nn, nn_stack *s, nn_run *run)
{
    run->add = false;
    run->tables = nn->tables + s->top * nn->params;
    run->gradients = s->set[s->top++];
}

void tutti_nn_stack_carry(tutti_nn *nn, nn_stack *s, int64_t block)
{
    for (int64_t pairs = block + 1; pairs % 2 == 0; pairs /= 2, s->top--)
        for (int param = 0; param < nn->params; param++)
            add_level(nn, s, s->top - 1, param);
}
