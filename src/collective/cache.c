/* cache.c: a world's cache of lists of steps and of scratch memory, so that a collective that has
   run before allocates nothing.

   Lists: the cache has sets of eight lists; the hash of a key selects the set. A new list replaces
   the least recently used one of its set, and is written into the memory of that one. If all eight
   are in use by other threads, the list is made for this call only. The counts of parts do not
   enter the hash, because they may differ in each call (rows of a table, encoded gradients): eight
   lists written in rotation soon reach their final size, whereas lists in all sets would continue
   to grow.

   Scratch: a list of the blocks that are not in use. A call takes the smallest block that
   suffices; if none does, the largest is replaced by a larger one. There are never more blocks
   than threads that have run collectives concurrently. */
#include "collective_internal.h"
#include <string.h>

static bool same_counts(const tutti_schedule_key *a, const tutti_schedule_key *b)
{
    if (a->counts == NULL || b->counts == NULL)
        return a->counts == b->counts;
    return memcmp(a->counts, b->counts, tutti_counts_of(a->kind, a->size) * sizeof *a->counts) == 0;
}

static bool same(const tutti_schedule_key *a, const tutti_schedule_key *b)
{
    return a->kind == b->kind && a->algorithm == b->algorithm && a->size == b->size &&
           a->index == b->index && a->root == b->root && a->count == b->count &&
           a->local == b->local && a->node == b->node && same_counts(a, b);
}

static tutti_schedule **set_of(tutti_world *world, const tutti_schedule_key *key)
{
    const uint64_t words[7] = { (uint64_t)key->kind, (uint64_t)key->algorithm,
                                (uint64_t)key->size, (uint64_t)key->index,
                                (uint64_t)key->root, key->counts != NULL ? 0 : key->count,
                                key->counts != NULL };

    return world->schedules[tutti_hash(words, sizeof words) % TUTTI_CACHE_SETS];
}

/* Under the monitor. */
static tutti_schedule *find_schedule(tutti_schedule *const *set, const tutti_schedule_key *key)
{
    for (int way = 0; way < TUTTI_CACHE_WAYS; way++)
        if (set[way] != NULL && set[way]->written && same(&set[way]->key, key))
            return set[way];
    return NULL;
}

/* Under the monitor: the place of an absent list or of the idle one longest unused; NULL: all are
   in use. */
static tutti_schedule **find_free(tutti_schedule **set)
{
    tutti_schedule **oldest = NULL;

    for (int way = 0; way < TUTTI_CACHE_WAYS; way++) {
        if (set[way] == NULL)
            return &set[way];
        if (set[way]->users == 0 && (oldest == NULL || set[way]->used < (*oldest)->used))
            oldest = &set[way];
    }
    return oldest;
}

/* Under the monitor: a list to write on, in its place in the set if there is one for it. NULL: no
   memory. */
static tutti_schedule *blank(tutti_schedule **set)
{
    tutti_schedule **const room = find_free(set), *s;

    if (room != NULL && *room != NULL) {
        (*room)->written = false;
        return *room;
    }
    s = tutti_alloc(1, sizeof *s);
    if (s != NULL && room != NULL) {
        s->cached = true;
        *room = s;
    }
    return s;
}

tutti_status tutti_schedule_borrow(tutti_world *world, const tutti_schedule_key *key,
                                   tutti_schedule **out, tutti_error *err)
{
    tutti_schedule **const set = set_of(world, key), *s;
    tutti_status status;
    bool written;

    *out = NULL;
    tutti_lock(world->monitor);
    s = find_schedule(set, key);
    if (s == NULL)
        s = blank(set);
    written = s != NULL && s->written;
    if (s != NULL) {
        s->users++;
        s->used = ++world->borrowed;
    }
    tutti_unlock(world->monitor);
    if (s == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory for a %s over %d members",
                          tutti_collective_name(key->kind), key->size);
    /* not under the lock: long lists take a while. Another thread that wants the same meanwhile
       writes its own */
    status = written ? TUTTI_OK : tutti_schedule_write(s, key, err);
    if (status != TUTTI_OK) {
        tutti_schedule_return(world, s);
        return status;
    }
    if (!written) {
        tutti_lock(world->monitor);
        s->written = true;
        tutti_unlock(world->monitor);
    }
    *out = s;
    return TUTTI_OK;
}

void tutti_schedule_return(tutti_world *world, tutti_schedule *s)
{
    bool ours;

    if (s == NULL)
        return;
    tutti_lock(world->monitor);
    s->users--;
    ours = !s->cached;
    tutti_unlock(world->monitor);
    if (ours)
        tutti_schedule_close(s);
}

static void scratch_close(tutti_scratch *scratch)
{
    if (scratch == NULL)
        return;
    tutti_free(scratch->memory);
    tutti_free(scratch->request);
    tutti_free(scratch->pointer);
    tutti_free(scratch->expected);
    tutti_free(scratch->term);
    tutti_free(scratch);
}

/* At least half as much again each time, so that slowly growing calls do not allocate each. */
static tutti_status scratch_grow(tutti_scratch *scratch, size_t bytes, size_t requests,
                                 size_t terms, tutti_error *err)
{
    if (bytes > scratch->bytes) {
        const size_t more = scratch->bytes + scratch->bytes / 2;
        tutti_free(scratch->memory);
        scratch->bytes = more > bytes ? more : bytes;
        scratch->memory = tutti_alloc(scratch->bytes, 1);
    }
    if (requests > scratch->requests) {
        tutti_free(scratch->request);
        tutti_free(scratch->pointer);
        tutti_free(scratch->expected);
        scratch->requests = requests;
        scratch->request = tutti_alloc(requests, sizeof *scratch->request);
        scratch->pointer = tutti_alloc(requests, sizeof *scratch->pointer);
        scratch->expected = tutti_alloc(requests, sizeof *scratch->expected);
    }
    if (terms > scratch->terms) {
        tutti_free(scratch->term);
        scratch->terms = terms;
        scratch->term = tutti_alloc(terms, sizeof *scratch->term);
    }
    if ((scratch->bytes > 0 && scratch->memory == NULL) ||
        (scratch->terms > 0 && scratch->term == NULL) ||
        (scratch->requests > 0 &&
         (scratch->request == NULL || scratch->pointer == NULL || scratch->expected == NULL)))
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0,
                          "no memory for a collective's %zu bytes of scratch; use smaller pieces",
                          bytes);
    return TUTTI_OK;
}

tutti_status tutti_scratch_borrow(tutti_world *world, size_t bytes, size_t requests, size_t terms,
                                  tutti_scratch **out, tutti_error *err)
{
    tutti_scratch *scratch, **best = NULL;
    tutti_status status;

    *out = NULL;
    tutti_lock(world->monitor);
    for (tutti_scratch **s = &world->scratch; *s != NULL; s = &(*s)->next)
        if (best == NULL ||
            ((*best)->bytes < bytes ? (*s)->bytes > (*best)->bytes
                                    : (*s)->bytes >= bytes && (*s)->bytes < (*best)->bytes))
            best = s;
    scratch = best != NULL ? *best : NULL;
    if (best != NULL)
        *best = scratch->next;
    tutti_unlock(world->monitor);
    if (scratch == NULL)
        scratch = tutti_alloc(1, sizeof *scratch);
    if (scratch == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory for a collective's scratch");
    status = scratch_grow(scratch, bytes, requests, terms, err);
    if (status != TUTTI_OK)
        scratch_close(scratch);
    else
        *out = scratch;
    return status;
}

void tutti_scratch_return(tutti_world *world, tutti_scratch *scratch)
{
    if (scratch == NULL)
        return;
    tutti_lock(world->monitor);
    scratch->next = world->scratch;
    world->scratch = scratch;
    tutti_unlock(world->monitor);
}

void tutti_cache_close(tutti_world *world)
{
    for (int set = 0; set < TUTTI_CACHE_SETS; set++)
        for (int way = 0; way < TUTTI_CACHE_WAYS; way++)
            tutti_schedule_close(world->schedules[set][way]);
    while (world->scratch != NULL) {
        tutti_scratch *next = world->scratch->next;
        scratch_close(world->scratch);
        world->scratch = next;
    }
}
