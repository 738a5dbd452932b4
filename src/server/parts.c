/* parts.c: which ranks serve, and which part of a range of the flat space each has.

   Dedicated servers (--servers) have all shards, one each, and workers serve only if the method
   mixes (setup.mixed). The launcher places them: it starts them after the workers, round-robin
   over the hosts.
   If only some of the workers serve, they are taken round-robin from the hosts, in order of rank,
   so that servers share as few links as possible. Shards are assigned by rank, so that the shards
   of all, in order of rank, are x.

   Pieces may go to servers whole (setup.undivided, assign.c).

   With nodes and rails (tutti_server_setup) a piece is split twice: into slots, one per rail, and
   each slot over the nodes that serve. There server k is of rail k mod rails. A dedicated server
   has a part of every slot. Slots and parts differ by a unit at most, so parts of all slots do. */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "server_internal.h"
#include "optim/optim.h"
#include "server.h"

/* The first element, in a range of `count`, of a part that has `before` of `all` shares before it.
   In tables it is rounded to a row, since a row is read and written by one server. */
static size_t cut_range(const tutti_server *s, size_t before, size_t all, size_t first,
                        size_t count)
{
    const size_t unit = s->setup.even ? TUTTI_SERVER_EVEN : TUTTI_SERVER_ALIGNMENT,
                 units = s->setup.even ? (count + unit - 1) / unit : count / unit;

    return before == all ? count
                         : tutti_slice_cut(s->m, first + units * before / all * unit) - first;
}

/* Of `all` shares, those from `before` up to `after`. */
typedef struct bounds {
    size_t before, after, all;
} bounds;

static size_t between(const tutti_server *s, const bounds *of, size_t first, size_t count,
                      size_t *part_first)
{
    const size_t begin = cut_range(s, of->before, of->all, first, count);

    *part_first = first + begin;
    return cut_range(s, of->after, of->all, first, count) - begin;
}

/* Part k of n equal ones. */
static size_t part(const tutti_server *s, int k, int n, size_t first, size_t count,
                   size_t *part_first)
{
    return between(s, &(bounds){ (size_t)k, (size_t)k + 1, (size_t)n }, first, count, part_first);
}

size_t tutti_server_part(const tutti_server *s, int k, size_t first, size_t count,
                         size_t *part_first)
{
    if (s->owner != NULL) {
        *part_first = first;
        return tutti_server_owner(s, first) == k ? count : 0;
    }
    if (s->before != NULL)
        return between(s, &(bounds){ s->before[k], s->before[k + 1], s->before[s->servers] }, first,
                       count, part_first);
    return part(s, k, s->servers, first, count, part_first);
}

size_t tutti_server_most(const tutti_server *s, size_t count)
{
    size_t largest = 0;

    if (s->setup.undivided)
        return count;
    if (s->before == NULL)
        return count / (size_t)s->servers;
    for (int k = 0; k < s->servers; k++)
        largest =
            s->before[k + 1] - s->before[k] > largest ? s->before[k + 1] - s->before[k] : largest;
    return (size_t)((double)count * (double)largest / (double)s->before[s->servers]) + 1;
}

bool tutti_server_is_large(const tutti_server *s, int k)
{
    return s->before != NULL && !s->setup.undivided && s->before[k + 1] - s->before[k] > s->least;
}

/* How many pieces are sent at a time (setup.turns): with whole pieces one per server, else one,
   and to servers whose part is r times the least, r. Half of the lane's threads are for pieces
   that have been sent. */
static void set_turns(tutti_server *s, size_t most)
{
    const size_t half = s->m->lane_width > 1 ? (size_t)s->m->lane_width / 2 : 1,
                 ratio = s->least > 0 ? (most + s->least / 2) / s->least : 1,
                 whole = s->setup.undivided ? (size_t)s->servers : 1;

    s->turns[0].width = (int)(whole < half ? whole : half);
    s->turns[1].width = (int)(ratio < half ? ratio : half);
}

tutti_status tutti_server_weigh(tutti_server *s, tutti_error *err)
{
    const uint32_t *parts = s->setup.parts;
    uint32_t most = 0;

    set_turns(s, 0);
    assert(!s->setup.undivided || (s->setup.pieces && s->setup.rails == 1));
    if (parts == NULL)
        return TUTTI_OK;
    assert(s->setup.rails == 1);
    s->before = tutti_alloc((size_t)s->servers + 1, sizeof *s->before);
    if (s->before == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening the servers of method '%s'",
                          s->m->ops->name);
    for (int k = 0; k < s->servers; k++)
        s->before[k + 1] = s->before[k] + parts[k];
    /* units of a model are below 2^40 */
    assert(s->before[s->servers] > 0 && s->before[s->servers] < 1 << 24);
    for (int k = 0; k < s->servers; k++) {
        most = parts[k] > most ? parts[k] : most;
        s->least = parts[k] > 0 && (s->least == 0 || parts[k] < s->least) ? parts[k] : s->least;
    }
    set_turns(s, most);
    s->setup.parts = NULL; /* it belongs to the caller */
    return TUTTI_OK;
}

/* ---- nodes and rails ---- */

/* Sums of a node must be subtrees of the one order of summation. */
static tutti_status check_node(const tutti_method *m, int node, tutti_error *err)
{
    if ((node & (node - 1)) == 0 || node == m->workers)
        return TUTTI_OK;
    return tutti_fail(
        err, TUTTI_ERR_USAGE, 0,
        "node has %d workers, and sums of that many do not occur in the order in which all methods "
        "sum; nodes have 1, 2, 4, 8, ... workers, or all of them: give node=none, or another "
        "number",
        node);
}

tutti_status tutti_server_node(const tutti_method *m, const char *value, int *node, char *why,
                               size_t bytes, tutti_error *err)
{
    const bool chosen = strcmp(value, "auto") == 0;
    tutti_error no = { .rank = -1 };
    tutti_status status = tutti_team_parse(m, "node", chosen ? "machine" : value, node, &no);

    if (status == TUTTI_OK)
        status = check_node(m, *node, &no);
    snprintf(why, bytes, "%.*s", chosen && status != TUTTI_OK ? (int)bytes - 1 : 0, no.text);
    if (status != TUTTI_OK && chosen)
        *node = 1;
    return status == TUTTI_OK || chosen ? TUTTI_OK : tutti_fail(err, status, 0, "%s", no.text);
}


int tutti_server_rail(const tutti_server *s, int worker, const tutti_piece *p)
{
    return s->setup.node == 1 || p->rows != NULL ? -1 : worker % s->setup.node;
}

size_t tutti_server_slot(const tutti_server *s, int rail, size_t first, size_t count,
                         size_t *slot_first)
{
    *slot_first = first + count;
    return rail < s->setup.rails ? part(s, rail, s->setup.rails, first, count, slot_first) : 0;
}

size_t tutti_server_part_of(const tutti_server *s, int k, int rail, size_t first, size_t count,
                            size_t *part_first)
{
    const int rails = s->setup.rails;

    if (rail < 0)
        return tutti_server_part(s, k, first, count, part_first);
    count = tutti_server_slot(s, rail, first, count, &first);
    if (s->m->servers > 0 || rails == 1)
        return tutti_server_part(s, k, first, count, part_first);
    *part_first = first;
    return k % rails == rail ? part(s, k / rails, s->servers / rails, first, count, part_first) : 0;
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
    return tutti_slice_words_most(&slice);
}

int tutti_server_count(const tutti_server *s)
{
    return s->servers;
}

int tutti_server_index(const tutti_server *s)
{
    return s->index;
}

/* Takes, round-robin over the hosts, the next node that does not serve yet; without nodes, the
   next worker. A node's round is its index on its host; hosts are visited in order of rank.
   Result: the first workers of the serving nodes, ascending. */
static void choose_nodes(tutti_server *s, int wanted)
{
    const tutti_method *m = s->m;
    const int node = s->setup.node, nodes = m->workers / node;
    int taken = 0;

    for (; wanted == nodes && taken < wanted; taken++) /* all of them: nothing to choose */
        s->member[taken] = taken * node;
    for (int turn = 0; taken < wanted; turn++)
        for (int i = 0; i < nodes && taken < wanted; i++) {
            int before = 0;
            for (int j = 0; j < i; j++)
                before +=
                    tutti_world_host(m->world, j * node) == tutti_world_host(m->world, i * node);
            if (before == turn)
                s->member[taken++] = i * node;
        }
    for (int i = 1; i < taken; i++) /* sort by rank */
        for (int k = i; k > 0 && s->member[k] < s->member[k - 1]; k--) {
            const int w = s->member[k];
            s->member[k] = s->member[k - 1];
            s->member[k - 1] = w;
        }
}

void tutti_server_place(tutti_server *s)
{
    const tutti_method *m = s->m;
    /* that serve */
    const int rails = s->setup.rails, only = m->servers, workers = s->servers - only;

    choose_nodes(s, workers / rails);
    for (int k = workers - 1; k > 0; k--) /* a node's rails are its first workers */
        s->member[k] = s->member[k / rails] + k % rails;
    for (int k = 0; k < only; k++)
        s->member[workers + k] = m->workers + k;
    s->index = -1;
    for (int k = 0; k < s->servers; k++)
        if (s->member[k] == m->rank)
            s->index = k;
}

bool tutti_server_is_at(const tutti_server *s, int rank)
{
    bool serves = false;

    for (int i = 1; i <= s->standby.ranks; i++)
        serves = serves || s->candidate[i] == rank;
    for (int k = 0; k < s->servers; k++)
        serves = serves ||
                 (s->member[k] == rank && (s->before == NULL || s->before[k + 1] > s->before[k]));
    return serves;
}

#define SLICE_LOST "is lost, and with it its slice of the model"

tutti_status tutti_server_slice_lost(const tutti_server *s, int rank, const char *why,
                                     tutti_error *err)
{
    tutti_peer_event event;
    char text[300];

    if (s->standby.ranks > 0)
        return tutti_server_standby_without(s, rank, why, err);
    /* a worker that has reported this error itself failed because of another, and is not the
       cause */
    for (int i = 0; tutti_world_events(s->m->world, i, &event, 1) > i; i++)
        if (event.change == TUTTI_PEER_LOST && event.rank != s->m->rank &&
            tutti_server_is_at(s, event.rank) && strstr(event.why, SLICE_LOST) == NULL) {
            rank = event.rank;
            why = event.why;
            break;
        }
    snprintf(text, sizeof text, "%.299s", why); /* it may be in err */
    return tutti_fail_rank(
        err, TUTTI_ERR_PEER, rank,
        "%s %d " SLICE_LOST ", without which '%s' cannot continue; resume from a checkpoint (%s)",
        rank < s->m->workers ? "worker" : "server of rank", rank, s->m->ops->name, text);
}
