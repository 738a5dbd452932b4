/* arena.c: see arena.h. The placed buffers form a list by rising offset (`above`), so that one walk finds the lowest gap: a buffer whose life does not meet the new one's
   is as good as not there. */
#include "arena.h"

enum order { LARGEST, LONGEST, LARGEST_AREA, ORDERS };
enum { NONE = -1 };

static size_t lines(size_t bytes)
{
    return (bytes + NN_ARENA_LINE - 1) / NN_ARENA_LINE * NN_ARENA_LINE;
}

static bool meet(const nn_buffer *a, const nn_buffer *b)
{
    return a->first <= b->last && b->first <= a->last;
}

static double rank(const nn_buffer *b, enum order order)
{
    const double life = (double)b->last - (double)b->first + 1;
    return order == LARGEST ? (double)b->bytes : order == LONGEST ? life : life * (double)b->bytes;
}

/* The one to place next: of equals the larger, then the one that stands first in the list. */
static int next(const nn_buffer *list, int count, enum order order)
{
    int best = NONE;

    for (int i = 0; i < count; i++) {
        double mine, most;
        if (list[i].placed || list[i].bytes == 0)
            continue;
        if (best == NONE) {
            best = i;
            continue;
        }
        mine = rank(&list[i], order);
        most = rank(&list[best], order);
        if (mine > most || (mine == most && list[i].bytes > list[best].bytes))
            best = i;
    }
    return best;
}

/* Gives every buffer its trial place; gives the end of the highest. */
static size_t lay_out(nn_buffer *list, int count, enum order order)
{
    int lowest = NONE;
    size_t total = 0;

    for (int i = 0; i < count; i++) {
        list[i].placed = false;
        list[i].trial = 0;
    }
    for (int i = next(list, count, order); i != NONE; i = next(list, count, order)) {
        const size_t bytes = lines(list[i].bytes);
        size_t at = 0;
        int *link = &lowest;

        for (int p = lowest; p != NONE; p = list[p].above) {
            if (!meet(&list[p], &list[i]))
                continue;
            if (list[p].trial >= at + bytes)
                break;
            if (list[p].trial + lines(list[p].bytes) > at)
                at = list[p].trial + lines(list[p].bytes);
        }
        while (*link != NONE && list[*link].trial <= at)
            link = &list[*link].above;
        list[i].above = *link;
        *link = i;
        list[i].trial = at;
        list[i].placed = true;
        total = at + bytes > total ? at + bytes : total;
    }
    return total;
}

tutti_status tutti_nn_arena_plan(nn_buffer *list, int count, size_t *total, tutti_error *err)
{
    size_t best = SIZE_MAX, all = 0;

    *total = 0;
    for (int i = 0; i < count; i++) /* below this sum no offset can overflow */
        if (list[i].bytes > PTRDIFF_MAX - NN_ARENA_LINE || !tutti_size_add(all, lines(list[i].bytes), &all) || all > PTRDIFF_MAX)
            return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "%d buffers of a network need more bytes than there are addresses; use a smaller batch", count);
    for (int order = 0; order < ORDERS; order++) {
        const size_t end = lay_out(list, count, (enum order)order);
        for (int i = 0; i < count && end < best; i++)
            list[i].offset = list[i].trial;
        best = end < best ? end : best;
    }
    for (int i = 0; i < count; i++)
        if (list[i].place != NULL)
            *list[i].place = list[i].offset;
    *total = best;
    return TUTTI_OK;
}

/* The most is needed when some buffer's life begins. */
size_t tutti_nn_arena_bound(const nn_buffer *list, int count)
{
    size_t most = 0;

    for (int i = 0; i < count; i++) {
        size_t now = 0;
        for (int j = 0; j < count; j++)
            now += list[j].first <= list[i].first && list[i].first <= list[j].last ? lines(list[j].bytes) : 0;
        most = now > most ? now : most;
    }
    return most;
}
