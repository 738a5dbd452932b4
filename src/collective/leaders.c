/* leaders.c: collectives through leaders, the first member of each node group: BAGUA's
   hierarchical communication (Gan et al., VLDB 2022, arXiv 2107.01499). The tree of a sum is split
   at powers of two. So if the size of a node group is a power of two, the group is a whole branch
   of the tree, and the sum is the same to the bit as without leaders. */
#include <errno.h>

#include "collective_internal.h"
#include "collective/leaders.h"

tutti_status tutti_leaders_open(tutti_leaders *l, const tutti_group *g, int team, const char *name,
                                tutti_error *err)
{
    const int teams = g->size / team, mine = g->index / team;

    l->ranks = tutti_alloc((size_t)(team + teams), sizeof *l->ranks);
    if (l->ranks == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for node groups of %d members",
                          team);
    for (int j = 0; j < team; j++)
        l->ranks[j] = tutti_group_rank(g, mine * team + j);
    for (int k = 0; k < teams; k++)
        l->ranks[team + k] = tutti_group_rank(g, k * team);
    l->inside = tutti_group_of(g->world, l->ranks, team, tutti_port_of(name, 1, 0));
    l->between = tutti_group_of(g->world, l->ranks + team, teams, tutti_port_of(name, 2, 0));
    return TUTTI_OK;
}

void tutti_leaders_close(tutti_leaders *l)
{
    tutti_free(l->ranks);
    l->ranks = NULL;
}

tutti_leaders tutti_leaders_keyed(const tutti_leaders *l, uint64_t key, uint32_t turn)
{
    return (tutti_leaders){ .inside = tutti_group_keyed(&l->inside, key, turn),
                            .between = tutti_group_keyed(&l->between, key, turn) };
}

tutti_status tutti_leaders_sum(tutti_leaders *l, float weight, tutti_buffer x, tutti_error *err)
{
    if (weight != 1)
        tutti_scale(x.device, x.count, weight, x.data);
    TUTTI_TRY(tutti_reduce(&l->inside, TUTTI_SUM, 0, x, err));
    if (l->between.index >= 0)
        TUTTI_TRY(tutti_allreduce(&l->between, TUTTI_SUM, x, err));
    return tutti_leaders_give(l, x, err);
}

tutti_status tutti_leaders_take(tutti_leaders *l, tutti_buffer in, tutti_buffer x, tutti_error *err)
{
    return tutti_reduce_from(&l->inside, TUTTI_MEAN, 0, in, x, err);
}

tutti_status tutti_leaders_give(tutti_leaders *l, tutti_buffer x, tutti_error *err)
{
    return tutti_broadcast(&l->inside, 0, x, err);
}
