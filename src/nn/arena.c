/* arena.c: implements arena.h. Buffers that have an offset are in an array by ascending offset, so
   one walk finds the lowest gap: it ignores buffers whose lifetime does not overlap the new
   one's. */
#include "arena.h"
#include <stdlib.h>
#include <string.h>

enum order { LARGEST, LONGEST, LARGEST_AREA, ORDERS };

/* A buffer in the order of placement: larger ranks first. */
typedef struct entry {
    double rank;
    size_t bytes;
    int index;
} entry;
/* The begin or the end of a lifetime. */
typedef struct change {
    int moment;
    bool ends;
    size_t bytes;
} change;

/* A buffer that has been placed: [offset, end) of the arena. */
typedef struct placement {
    size_t offset, end;
    int first, last;
} placement;

typedef struct plan {
    nn_buffer *list;
    int count;
    entry *entries; /* [n], the buffers that take memory */
    int n;
    change *changes;
    placement *placed; /* by ascending offset */
} plan;

static size_t lines(size_t bytes)
{
    return (bytes + NN_ARENA_LINE - 1) / NN_ARENA_LINE * NN_ARENA_LINE;
}

/* ---- orders ---- */
static double rank(const nn_buffer *b, enum order order)
{
    const double life = (double)b->last - (double)b->first + 1;
    return order == LARGEST ? (double)b->bytes : order == LONGEST ? life : life * (double)b->bytes;
}

/* Of equal ranks the larger buffer comes first, then the first in the list. */
static int by_rank(const void *a, const void *b)
{
    const entry *x = a, *y = b;

    if (x->rank != y->rank)
        return x->rank > y->rank ? -1 : 1;
    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    return (x->index > y->index) - (x->index < y->index);
}

static void sort(plan *p, enum order order)
{
    p->n = 0;
    for (int i = 0; i < p->count; i++)
        if (p->list[i].bytes > 0)
            p->entries[p->n++] = (entry){ rank(&p->list[i], order), p->list[i].bytes, i };
    qsort(p->entries, (size_t)p->n, sizeof *p->entries, by_rank);
}

/* ---- the bound ---- */
/* At one moment begins come before ends: a buffer is needed through its last moment. */
static int by_moment(const void *a, const void *b)
{
    const change *x = a, *y = b;

    if (x->moment != y->moment)
        return x->moment < y->moment ? -1 : 1;
    return (int)x->ends - (int)y->ends;
}

/* Returns the most bytes that are needed at one moment. No layout is smaller. */
static size_t least_bytes(plan *p)
{
    size_t now = 0, most = 0, n = 0;

    for (int i = 0; i < p->count; i++)
        if (p->list[i].bytes > 0) {
            p->changes[n++] = (change){ p->list[i].first, false, lines(p->list[i].bytes) };
            p->changes[n++] = (change){ p->list[i].last, true, lines(p->list[i].bytes) };
        }
    qsort(p->changes, n, sizeof *p->changes, by_moment);
    for (size_t i = 0; i < n; i++) {
        now = p->changes[i].ends ? now - p->changes[i].bytes : now + p->changes[i].bytes;
        most = now > most ? now : most;
    }
    return most;
}

/* ---- the lowest gap ---- */
static size_t lowest_gap(const placement *placed, int n, const nn_buffer *b)
{
    const size_t bytes = lines(b->bytes);
    const int first = b->first, last = b->last;
    size_t at = 0;

    for (int i = 0; i < n; i++) {
        if (placed[i].first > last || placed[i].last < first)
            continue;
        if (placed[i].offset >= at + bytes)
            break;
        if (placed[i].end > at)
            at = placed[i].end;
    }
    return at;
}

static void insert(placement *placed, int n, placement new)
{
    int low = 0, high = n;

    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (placed[middle].offset <= new.offset)
            low = middle + 1;
        else
            high = middle;
    }
    memmove(placed + low + 1, placed + low, (size_t)(n - low) * sizeof *placed);
    placed[low] = new;
}

static size_t lay_out(plan *p)
{
    size_t total = 0;

    for (int k = 0; k < p->n; k++) {
        nn_buffer *b = &p->list[p->entries[k].index];
        const size_t at = lowest_gap(p->placed, k, b), end = at + lines(b->bytes);
        insert(p->placed, k, (placement){ at, end, b->first, b->last });
        b->trial = at;
        total = end > total ? end : total;
    }
    return total;
}

/* ---- the best of them ---- */
static void try_all(plan *p, size_t *total)
{
    const size_t least = least_bytes(p);
    size_t best = SIZE_MAX;

    for (int order = 0; order < ORDERS && best > least; order++) {
        size_t end;
        sort(p, (enum order)order);
        end = lay_out(p);
        for (int i = 0; i < p->count && end < best; i++)
            p->list[i].offset = p->list[i].bytes > 0 ? p->list[i].trial : 0;
        best = end < best ? end : best;
    }
    for (int i = 0; i < p->count; i++)
        if (p->list[i].result != NULL)
            *p->list[i].result = p->list[i].offset;
    *total = best;
}

tutti_status tutti_nn_arena_plan(nn_buffer *list, int count, size_t *total, tutti_error *err)
{
    plan p = { .list = list, .count = count };
    size_t all = 0;
    tutti_status status = TUTTI_OK;

    *total = 0;
    for (int i = 0; i < count; i++) /* below this sum no offset can overflow */
        if (list[i].bytes > PTRDIFF_MAX - NN_ARENA_LINE ||
            !tutti_size_add(all, lines(list[i].bytes), &all) || all > PTRDIFF_MAX)
            return tutti_fail(err, TUTTI_ERR_MEMORY, 0,
                              "%d buffers of a network need more bytes than there are addresses; "
                              "use a smaller batch",
                              count);
    p.entries = tutti_alloc((size_t)count, sizeof *p.entries);
    p.changes = tutti_alloc((size_t)count, 2 * sizeof *p.changes);
    p.placed = tutti_alloc((size_t)count, sizeof *p.placed);
    if (p.entries != NULL && p.changes != NULL && p.placed != NULL)
        try_all(&p, total);
    else
        status = tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory to plan the places of %d buffers",
                            count);
    tutti_free(p.entries);
    tutti_free(p.changes);
    tutti_free(p.placed);
    return status;
}
