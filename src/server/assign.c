/* assign.c: assigns pieces that are not split to servers, each to one server (setup.undivided), by
   Graham's rule for machines of several speeds: the largest piece first, each to the server with
   the least load including it, relative to the server's part. The assignment follows from layout
   and parts alone, so all ranks find the same one without a message. */
#include <errno.h>
#include <stdlib.h>

#include "server_internal.h"

static double target_of(const tutti_server *s, int k)
{
    return s->before == NULL ? 1 : (double)(s->before[k + 1] - s->before[k]);
}

static int larger_first(const void *a, const void *b)
{
    const tutti_piece *const *p = a, *const *q = b;

    if ((*p)->count != (*q)->count)
        return (*p)->count > (*q)->count ? -1 : 1;
    return (*p)->index < (*q)->index ? -1 : (*p)->index > (*q)->index;
}

/* Returns the server that would be done first if it also had `count` values; -1: none has a target.
 */
static int first_done(const tutti_server *s, const double *load, double count)
{
    int best = -1;
    for (int k = 0; k < s->servers; k++)
        if (target_of(s, k) > 0 && (best < 0 || (load[k] + count) / target_of(s, k) <
                                                    (load[best] + count) / target_of(s, best)))
            best = k;
    return best;
}

tutti_status tutti_server_assign(tutti_server *s, tutti_error *err)
{
    const tutti_layout *l = s->m->layout;
    const tutti_piece **order;
    double *load;

    if (!s->setup.undivided || s->owner != NULL)
        return TUTTI_OK;
    s->owner = tutti_alloc((size_t)l->n_pieces, sizeof *s->owner);
    order = tutti_alloc((size_t)l->n_pieces, sizeof *order);
    load = tutti_alloc((size_t)s->servers, sizeof *load);
    for (int i = 0; order != NULL && i < l->n_pieces; i++)
        order[i] = &l->piece[i];
    if (order != NULL)
        qsort(order, (size_t)l->n_pieces, sizeof *order, larger_first);
    for (int i = 0; s->owner != NULL && order != NULL && load != NULL && i < l->n_pieces; i++) {
        const double count = (double)order[i]->count;
        const int best = first_done(s, load, count);
        load[best] += count;
        s->owner[order[i]->index] = best;
    }
    tutti_free(order);
    tutti_free(load);
    return s->owner != NULL && order != NULL && load != NULL
               ? TUTTI_OK
               : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening the servers of method '%s'",
                            s->m->ops->name);
}

/* Pieces follow one another in the flat space. */
int tutti_server_owner(const tutti_server *s, size_t first)
{
    const tutti_layout *l = s->m->layout;
    int low = 0, high = l->n_pieces - 1;

    while (low < high) {
        const int middle = (low + high + 1) / 2;
        if (l->piece[middle].first <= first)
            low = middle;
        else
            high = middle - 1;
    }
    return s->owner[low];
}

double tutti_server_imbalance(const tutti_server *s)
{
    const tutti_layout *l = s->m->layout;
    double most = 0, all = 0;

    for (int k = 0; k < s->servers; k++)
        all += target_of(s, k);
    for (int k = 0; k < s->servers; k++) {
        double load = 0;
        size_t first;
        for (int i = 0; i < l->n_pieces; i++)
            load += (double)tutti_server_part(s, k, l->piece[i].first, l->piece[i].count, &first);
        if (target_of(s, k) > 0 && load * all / target_of(s, k) > most)
            most = load * all / target_of(s, k);
    }
    return most / (double)l->used;
}
