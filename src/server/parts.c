/* parts.c: which ranks serve, and which part of a range of the flat space is whose.

   Where ranks only serve (--servers), they have all slices, one each, and no worker serves. To
   place them is the launcher's business: it starts them behind the workers, on each host in turn.
   If only some of the workers serve, they are taken from each host in turn, in order of rank, so
   that servers share as few links as possible. Which slice is whose follows their ranks, so that
   the slices of all, in order of rank, are x. */
#include <stdio.h>

#include "server_internal.h"

/* Between rows of tables: a row is read and written by one server. */
static size_t cut(const tutti_server *s, int k, size_t first, size_t count)
{
    const size_t even = count / TUTTI_SERVER_ALIGNMENT * (size_t)k / (size_t)s->servers * TUTTI_SERVER_ALIGNMENT;
    return k == s->servers ? count : tutti_slice_cut(s->m, first + even) - first;
}

size_t tutti_server_part(const tutti_server *s, int k, size_t first, size_t count, size_t *part_first)
{
    const size_t begin = cut(s, k, first, count);

    *part_first = first + begin;
    return cut(s, k + 1, first, count) - begin;
}

size_t tutti_server_slack(const tutti_method *m)
{
    size_t words = 0;

    for (int i = 0; i < m->layout->n_tensors; i++) {
        const tutti_tensor *t = &m->layout->tensor[i];
        if (tutti_engine_rows_known(m->engine, i) != NULL)
            words += 1 + t->cols + (tutti_optim_lazy(m->optim) ? t->rows : 0);
    }
    return words;
}

size_t tutti_server_words(const tutti_server *s, size_t first, size_t count)
{
    tutti_slice slice;
    size_t at, part;

    if (s->index < 0)
        return 0;
    part = tutti_server_part(s, s->index, first, count, &at);
    slice = tutti_slice_of(s->m, at, part);
    return tutti_slice_room(&slice);
}

int tutti_server_count(const tutti_server *s)
{
    return s->servers;
}

int tutti_server_index(const tutti_server *s)
{
    return s->index;
}

/* Of each host in turn the next worker that does not serve yet. A worker's turn is its place on its
   host; hosts are met in order of rank. */
void tutti_server_place(tutti_server *s)
{
    const tutti_method *m = s->m;
    int taken = 0;

    if (s->servers == m->workers || m->servers > 0) { /* all of them: nothing to choose */
        const int first = m->servers > 0 ? m->workers : 0;
        while (taken < s->servers) {
            s->member[taken] = first + taken;
            taken++;
        }
        s->index = m->rank >= first && m->rank < first + taken ? m->rank - first : -1;
        return;
    }
    for (int turn = 0; taken < s->servers; turn++)
        for (int w = 0; w < m->workers && taken < s->servers; w++) {
            int before = 0;
            for (int v = 0; v < w; v++)
                before += tutti_world_host(m->world, v) == tutti_world_host(m->world, w);
            if (before == turn)
                s->member[taken++] = w;
        }
    for (int i = 1; i < taken; i++) /* by rank */
        for (int k = i; k > 0 && s->member[k] < s->member[k - 1]; k--) {
            const int w = s->member[k];
            s->member[k] = s->member[k - 1];
            s->member[k - 1] = w;
        }
    s->index = -1;
    for (int k = 0; k < taken; k++)
        if (s->member[k] == m->rank)
            s->index = k;
}

bool tutti_server_is_at(const tutti_server *s, int rank)
{
    bool serves = false;

    for (int k = 0; k < s->servers; k++)
        serves = serves || s->member[k] == rank;
    return serves;
}

tutti_status tutti_server_slice_lost(const tutti_server *s, int rank, const char *why, tutti_error *err)
{
    char text[300];

    snprintf(text, sizeof text, "%.299s", why); /* it may be in err */
    return tutti_fail_rank(err, TUTTI_ERR_PEER, rank,
                           "%s %d is lost, and with it its slice of the model, without which '%s' cannot go on; resume "
                           "from a checkpoint (%s)",
                           rank < s->m->workers ? "worker" : "server of rank", rank, s->m->ops->name, text);
}
