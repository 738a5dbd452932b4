/* group.c: groups (comm.h), which are values: the members, their order, and the context and
   sequence from which the tags of their collectives are hashed. */
#include "collective_internal.h"

/* What a group compares in addition. One thread at a time makes the calls of a group, and it alone
   writes its entry. Another group may take an entry that is free at any time: it stores `bits` last
   and they are read first, so bits that are not 0 come with their context or a later one, which is
   the reader's own only in an entry of its own. The list's head publishes an entry's `next`. */
typedef struct tutti_compared {
    _Atomic uint64_t context;
    _Atomic uint32_t bits;        /* 0: the entry is free */
    struct tutti_compared *next;
} tutti_compared;

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

static tutti_compared *compared_of(const tutti_group *g)
{
    tutti_compared *c = atomic_load_explicit(&g->world->compared, memory_order_acquire);

    while (c != NULL && (atomic_load_explicit(&c->bits, memory_order_acquire) == 0 ||
                         atomic_load_explicit(&c->context, memory_order_relaxed) != g->context))
        c = c->next;
    return c;
}

uint32_t tutti_group_compared(const tutti_group *g)
{
    const tutti_compared *c = compared_of(g);

    return c != NULL ? atomic_load_explicit(&c->bits, memory_order_relaxed) : 0;
}

/* Takes a free entry, or adds one. */
static tutti_status add_compared(const tutti_group *g, uint32_t bits, tutti_error *err)
{
    tutti_world *world = g->world;
    tutti_compared *c;

    tutti_lock(world->monitor);
    c = atomic_load_explicit(&world->compared, memory_order_relaxed);
    while (c != NULL && atomic_load_explicit(&c->bits, memory_order_relaxed) != 0)
        c = c->next;
    if (c == NULL && (c = tutti_alloc(1, sizeof *c)) != NULL) {
        c->next = atomic_load_explicit(&world->compared, memory_order_relaxed);
        atomic_store_explicit(&world->compared, c, memory_order_release);
    }
    if (c != NULL) {
        atomic_store_explicit(&c->context, g->context, memory_order_relaxed);
        atomic_store_explicit(&c->bits, bits, memory_order_release);
    }
    tutti_unlock(world->monitor);
    return c != NULL ? TUTTI_OK
                     : tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory for what a group compares");
}

tutti_status tutti_group_compare(const tutti_group *g, uint32_t what, tutti_error *err)
{
    const uint32_t bits = what & ((UINT32_C(1) << TUTTI_COMPARED_BITS) - 1);
    tutti_compared *c = compared_of(g);

    if (c == NULL)
        return bits != 0 ? add_compared(g, bits, err) : TUTTI_OK;
    atomic_store_explicit(&c->bits, bits, memory_order_release);
    return TUTTI_OK;
}

void tutti_compared_close(tutti_world *world)
{
    tutti_compared *c = atomic_load_explicit(&world->compared, memory_order_relaxed);

    while (c != NULL) {
        tutti_compared *next = c->next;
        tutti_free(c);
        c = next;
    }
}
