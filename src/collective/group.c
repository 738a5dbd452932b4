/* group.c: groups (comm.h), which are values: the members, their order, and the context and
   sequence from which the tags of their collectives are hashed. */
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

int tutti_group_rank(const tutti_group *g, int index)
{
    return g->ranks != NULL ? g->ranks[index] : index;
}

static int label_of(const tutti_group *g, const int *label, int index)
{
    return label[tutti_group_rank(g, index)];
}

/* Returns the number of members with each label, if that is the same power of two for all labels
   and members with equal labels are adjacent. 0: another layout, only one label, or a member has
   none. */
static int block_of(const tutti_group *g, const int *label)
{
    int q = 0;

    while (q < g->size && label_of(g, label, q) == label_of(g, label, 0))
        q++;
    if (label_of(g, label, 0) < 0 || q == g->size || (q & (q - 1)) != 0 || g->size % q != 0)
        return 0;
    for (int k = q; k < g->size; k++)
        if (label_of(g, label, k) < 0 ||
            (k % q == 0) == (label_of(g, label, k) == label_of(g, label, k - 1)))
            return 0;
    return q;
}

int tutti_group_local(const tutti_group *g)
{
    return g->world->host != NULL ? block_of(g, g->world->host) : 0;
}

static bool several_hosts(const tutti_group *g)
{
    for (int k = 1; k < g->size && g->world->host != NULL; k++)
        if (label_of(g, g->world->host, k) != label_of(g, g->world->host, 0))
            return true;
    return false;
}

int tutti_group_node(const tutti_group *g, int local)
{
    const int q = g->world->node != NULL && (local > 0 || !several_hosts(g))
                      ? block_of(g, g->world->node)
                      : 0;

    return q > 1 && q != local ? q : 0;
}

tutti_group tutti_group_workers(tutti_world *world, uint64_t context)
{
    return tutti_group_of(world, NULL, 0, context);
}

/* The turn is mixed into the context as well: a turn may hold any number of collectives without
   colliding with the sequence of the next. */
tutti_group tutti_group_keyed(const tutti_group *group, uint64_t key, uint32_t turn)
{
    const uint64_t words[3] = { group->context, key, turn };
    tutti_group g = *group;

    g.context = tutti_hash(words, sizeof words);
    g.sequence = turn;
    return g;
}
