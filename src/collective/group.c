/* Groups are values: who, in which order, and what their tags are mixed from. */
#include "collective_internal.h"

tutti_group tutti_group_of(tutti_world *world, const int *ranks, int n, uint64_t context)
{
    tutti_group g = { .world = world, .ranks = ranks, .size = n, .index = -1, .context = context };

    if (ranks == NULL) {
        g.size = world->size;
        g.index = world->rank;
        return g;
    }
    for (int k = 0; k < n && g.index < 0; k++)
        if (ranks[k] == world->rank)
            g.index = k;
    return g;
}

static int host_of(const tutti_group *g, int index)
{
    return g->world->host[g->ranks != NULL ? g->ranks[index] : index];
}

int tutti_group_local(const tutti_group *g)
{
    int q = 0;

    if (g->world->host == NULL)
        return 0;
    while (q < g->size && host_of(g, q) == host_of(g, 0))
        q++;
    if (q == g->size || (q & (q - 1)) != 0 || g->size % q != 0)
        return 0;
    for (int k = q; k < g->size; k++)
        if ((k % q == 0) == (host_of(g, k) == host_of(g, k - 1)))
            return 0;
    return q;
}

tutti_group tutti_group_workers(tutti_world *world, uint64_t context)
{
    return tutti_group_of(world, NULL, 0, context);
}

/* The turn goes into the context as well: a turn may hold any number of collectives without meeting the sequence of the next. */
tutti_group tutti_group_keyed(const tutti_group *group, uint64_t key, uint32_t turn)
{
    const uint64_t words[3] = { group->context, key, turn };
    tutti_group g = *group;

    g.context = tutti_hash(words, sizeof words);
    g.sequence = turn;
    return g;
}
