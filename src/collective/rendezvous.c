/* rendezvous.c: the rendezvous table: entries in shared memory, published and followed
   (rendezvous.h describes the life of an entry). */
#include "rendezvous.h"
#include "base/pause.h"
#include <string.h>
#include <unistd.h>

#define WINDOW_WAIT_NS (INT64_C(10) * 1000000000)
#define TABLE_WAIT_NS (INT64_C(60) * 1000000000)
#define POLL_NS (INT64_C(20) * 1000)
#define POLLS_A_ROUND 64 /* of all ranks, whether they are gone */
#define VERDICT_NS (INT64_C(200) * 1000000)
#define WORDS_A_LINE 8
#define LOOK_NS (INT64_C(2) * 1000000) /* with a timeout: between two looks for an alarm */
#ifndef TUTTI_RENDEZVOUS_GLANCES /* fewer in the explorer, where every check is a choice of the thread to run */
#define TUTTI_RENDEZVOUS_GLANCES 16
#define TUTTI_RENDEZVOUS_PATIENCE 512 /* some microseconds */
#define TUTTI_RENDEZVOUS_CORES sysconf(_SC_NPROCESSORS_ONLN)
#endif

tutti_status tutti_rendezvous_open(tutti_world *world, tutti_error *err)
{
    tutti_rendezvous *rendezvous = tutti_alloc(1, sizeof *rendezvous);

    if (rendezvous == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0,
                          "no memory for the rendezvous table of a world");
    world->rendezvous = rendezvous;
    rendezvous->of_rank = tutti_alloc((size_t)world->size, sizeof *rendezvous->of_rank);
    if (rendezvous->of_rank == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0,
                          "no memory for the rendezvous table of a world");
    TUTTI_TRY(world->ops->window(world->transport, "tutti.board",
                                 sizeof(tutti_rendezvous_table) +
                                     (size_t)world->size * sizeof *rendezvous->mine->finished,
                                 (void **)rendezvous->of_rank, err));
    rendezvous->mine = rendezvous->of_rank[world->rank];
    rendezvous->crowded = world->size > TUTTI_RENDEZVOUS_CORES;
    /* relaxed, here and below: a guess */
    atomic_store_explicit(&rendezvous->patience, TUTTI_RENDEZVOUS_PATIENCE, memory_order_relaxed);
    return TUTTI_OK;
}

void tutti_rendezvous_close(tutti_world *world)
{
    if (world->rendezvous == NULL)
        return;
    tutti_free(world->rendezvous->of_rank);
    tutti_free(world->rendezvous);
    world->rendezvous = NULL;
}

void tutti_rendezvous_window(tutti_world *world, uint32_t window, size_t bytes)
{
    /* Relaxed: a peer reads it only after an entry that names the window, whose tag it acquired. */
    if (world->rendezvous != NULL)
        atomic_store_explicit(&world->rendezvous->mine->window_bytes[window], bytes,
                              memory_order_relaxed);
}

uint64_t tutti_rendezvous_window_of(const tutti_world *world, int rank, uint32_t window)
{
    /* relaxed: all have met since, in making the window */
    return atomic_load_explicit(&world->rendezvous->of_rank[rank]->window_bytes[window],
                                memory_order_relaxed);
}

/* The table's own lock among the threads of this rank, held for some instructions: one
   read-modify-write where a monitor takes two and the calls to reach them, which would be a tenth
   of a small collective. A thread that finds it taken tries again for a while; the holder may
   have lost its core, so then it sleeps. */
static void enter(const tutti_world *world)
{
    /* acquire: pairs with the release in leave */
    for (int n = 0; atomic_exchange_explicit(&world->rendezvous->held, true, memory_order_acquire);
         n++)
        if (n < TUTTI_RENDEZVOUS_GLANCES)
            tutti_pause();
        else
            tutti_sleep_until(world->rt, tutti_now_ns(world->rt) + POLL_NS);
}

static void leave(const tutti_world *world)
{
    atomic_store_explicit(&world->rendezvous->held, false, memory_order_release);
}

/* Wakes the threads that wait for this rank. Under the lock, since publish stores: two threads
   might store in the wrong order. */
static void raise_version(tutti_world *world)
{
    tutti_rendezvous_table *mine = world->rendezvous->mine;
    /* relaxed: under the lock */
    const uint32_t next = atomic_load_explicit(&mine->version, memory_order_relaxed) + 1;

    world->ops->publish(world->transport, &mine->version, next);
}

void tutti_rendezvous_wake(const tutti_call *call)
{
    tutti_world *world = call->group->world;

    /* acq_rel: a waiter that adds itself later sees all that was published before; one that did
       earlier is seen here */
    if (atomic_fetch_add_explicit(&world->rendezvous->mine->waiters, 0, memory_order_acq_rel) == 0)
        return;
    enter(world);
    raise_version(world);
    leave(world);
}

/* Returns the place of a group among those that a rank has given up lately; -1: it is not there.
   acquire: what that rank did in the group is done. */
static int given_up(const tutti_rendezvous_table *table, uint64_t context)
{
    const uint32_t n = atomic_load_explicit(&table->n_aborted, memory_order_acquire);

    for (uint32_t k = n > TUTTI_ABORTED_GROUPS ? n - TUTTI_ABORTED_GROUPS : 0; k < n; k++)
        if (atomic_load_explicit(&table->aborted[k % TUTTI_ABORTED_GROUPS], memory_order_acquire) ==
            context)
            return (int)(k % TUTTI_ABORTED_GROUPS);
    return -1;
}

/* Have all members finished with entry k? */
static bool is_free(const tutti_world *world, int k)
{
    tutti_rendezvous_slot *slot = &world->rendezvous->slots[k];

    for (; slot->left > 0; slot->left--) {
        const tutti_rendezvous_table *reader =
            world->rendezvous->of_rank[slot->ranks[slot->left - 1]];
        /* acquire: pairs with the release in finish; the last reader has read before I write */
        if (atomic_load_explicit(&reader->finished[world->rank][k], memory_order_acquire) ==
            slot->serial)
            continue;
        if (given_up(reader, slot->context) < 0)
            return false;
        slot->cut = true;
    }
    /* acquire: pairs with the release in tutti_rendezvous_release */
    return !slot->cut || atomic_load_explicit(&world->rendezvous->released[k],
                                              memory_order_acquire) == slot->tag;
}

/* The `finished` words of eight entries share a cache line, which their readers write in call
   after call. So it is read once for all of them: with the first entry, when the readers have
   long finished with the others. */
static void sweep(const tutti_world *world, int first)
{
    for (int k = first + 1; first % WORDS_A_LINE == 0 && k < first + WORDS_A_LINE; k++)
        (void)is_free(world, k);
}

/* The entry that a call tries first. Each group cycles through the entries of one line of
   `finished` words: few entries, so that their lines stay in the caches of both sides, and few
   collisions when several groups call at a time. */
static int preferred(const tutti_call *call)
{
    const uint64_t mixed = call->group->context * UINT64_C(0x9e3779b97f4a7c15);

    return (int)(mixed >> 40) % (TUTTI_RENDEZVOUS_ENTRIES / WORDS_A_LINE) * WORDS_A_LINE +
           (int)(call->turn % WORDS_A_LINE);
}

/* Number of a free entry, or -1. */
static int free_entry(const tutti_call *call)
{
    const tutti_world *world = call->group->world;
    tutti_rendezvous *rendezvous = world->rendezvous;
    bool elsewhere = false;

    for (int k = 0; k < TUTTI_RENDEZVOUS_ENTRIES && rendezvous->displaced != 0; k++)
        if ((rendezvous->displaced >> k & 1) != 0) {
            if (is_free(world, k))
                rendezvous->displaced &= ~(UINT32_C(1) << k);
            else
                elsewhere = elsewhere || rendezvous->slots[k].tag == call->tag;
        }
    if (!elsewhere && is_free(world, preferred(call))) {
        sweep(world, preferred(call));
        return preferred(call);
    }
    for (int k = 0; k < TUTTI_RENDEZVOUS_ENTRIES; k++)
        if (k != preferred(call) && is_free(world, k)) {
            rendezvous->displaced |= UINT32_C(1) << k;
            return k;
        }
    return -1;
}

static void remember(const tutti_call *call, int k)
{
    tutti_rendezvous *rendezvous = call->group->world->rendezvous;
    tutti_rendezvous_slot *slot = &rendezvous->slots[k];

    slot->tag = call->tag;
    slot->context = call->group->context;
    slot->given_up = slot->cut = false;
    /* relaxed: under the lock. The same tag may come again. */
    atomic_store_explicit(&rendezvous->released[k], 0, memory_order_relaxed);
    slot->serial = ++rendezvous->published;
    slot->left = 0;
    for (int j = 0; j < call->group->size; j++)
        if (j != call->group->index)
            slot->ranks[slot->left++] = tutti_call_rank(call, j);
}

/* Of a member that has given up with a timeout: its verdict may be on its way. */
static tutti_status await_verdict(const tutti_call *call)
{
    return call->watch == NULL
               ? TUTTI_OK
               : tutti_watch_hear(call->watch, tutti_now_ns(call->group->world->rt) + VERDICT_NS);
}

/* Fails if that rank has given up the group: then it will not publish any further entry. */
static tutti_status aborted(const tutti_call *call, int rank, tutti_error *err)
{
    const tutti_rendezvous_table *table = call->group->world->rendezvous->of_rank[rank];
    const tutti_world *world = call->group->world;
    const int at = given_up(table, call->group->context);
    char why[300];
    int gone;

    if (at < 0)
        return TUTTI_OK;
    gone = atomic_load_explicit(&table->aborted_for[at], memory_order_relaxed);
    TUTTI_TRY(await_verdict(call));
    tutti_call_receive_cause(call, gone);
    if (gone >= 0 && world->ops->dead_peer(world->transport, why, sizeof why) == gone)
        return tutti_fail_rank(err, TUTTI_ERR_PEER, gone,
                               "%s of %zu elements over %d members: rank %d is gone: %s",
                               tutti_collective_name(call->kind), call->count, call->group->size,
                               gone, why);
    return tutti_fail_rank(err, TUTTI_ERR_PEER, gone,
                           "%s of %zu elements over %d members: rank %d does not take part, since "
                           "rank %d failed in an earlier one; see what rank %d has written",
                           tutti_collective_name(call->kind), call->count, call->group->size, rank,
                           gone, gone);
}

/* A rank that is gone reads nothing any more, and waits for no call of its own to say so. Returns
   whether entries have become free of readers by that. */
static bool forget_gone(const tutti_call *call)
{
    tutti_world *world = call->group->world;
    tutti_rendezvous *rendezvous = world->rendezvous;
    bool any = false;

    for (int r = 0; r < world->size; r++) {
        tutti_word *const version = &rendezvous->of_rank[r]->version;
        const uint32_t seen = atomic_load_explicit(version, memory_order_acquire);
        if (r == world->rank || world->ops->await(world->transport, r, version, seen + 1,
                                                  tutti_now_ns(world->rt), NULL) != TUTTI_ERR_PEER)
            continue;
        enter(world);
        for (int k = 0; k < TUTTI_RENDEZVOUS_ENTRIES; k++) {
            tutti_rendezvous_slot *slot = &rendezvous->slots[k];
            const int had = slot->left;
            slot->left = 0;
            for (int n = 0; n < had; n++)
                if (slot->ranks[n] != r)
                    slot->ranks[slot->left++] = slot->ranks[n];
            slot->cut = slot->cut || slot->left < had;
            any = any || slot->left < had;
        }
        leave(world);
    }
    return any;
}

/* Fails if no entry may ever become free: a member is gone, or a member has given up the group and
   finishes with no entry of it. */
static tutti_status unread(const tutti_call *call, tutti_error *err)
{
    const tutti_world *world = call->group->world;
    char why[200];
    const int dead = world->ops->dead_peer(world->transport, why, sizeof why);

    for (int j = 0; j < call->group->size; j++) {
        if (dead >= 0 && tutti_call_rank(call, j) == dead)
            return tutti_fail_rank(err, TUTTI_ERR_PEER, dead, "%s: rank %d is gone: %s",
                                   tutti_collective_name(call->kind), dead, why);
        if (j != call->group->index)
            TUTTI_TRY(aborted(call, tutti_call_rank(call, j), err));
    }
    if (call->watch == NULL)
        return TUTTI_OK;
    TUTTI_TRY(tutti_watch_hear(call->watch, 0));
    return tutti_now_ns(world->rt) < call->expires_ns ? TUTTI_OK : tutti_watch_expired(call->watch);
}

/* Fails if all entries have been of given-up groups for long: members that have not come may never
   do. */
static tutti_status stuck(const tutti_call *call, int64_t since_ns, tutti_error *err)
{
    const tutti_world *world = call->group->world;
    const tutti_rendezvous_slot *slots = world->rendezvous->slots;
    int n = 0, rank = -1;

    if (tutti_now_ns(world->rt) - since_ns < TABLE_WAIT_NS)
        return TUTTI_OK;
    enter(world);
    for (; n < TUTTI_RENDEZVOUS_ENTRIES && slots[n].given_up && slots[n].left > 0; n++)
        rank = slots[n].ranks[slots[n].left - 1];
    leave(world);
    if (n < TUTTI_RENDEZVOUS_ENTRIES)
        return TUTTI_OK;
    return tutti_fail_rank(err, TUTTI_ERR_STATE, rank,
                           "%s of %zu elements over %d members: the last %d collectives of this rank "
                           "have all failed, and rank %d has neither made nor given up its part of "
                           "them; make the same collectives in the same order on all ranks",
                           tutti_collective_name(call->kind), call->count, call->group->size, n,
                           rank);
}

bool tutti_rendezvous_read(const tutti_call *call, int j)
{
    const tutti_world *world = call->group->world;
    const int k = preferred(call), rank = tutti_call_rank(call, j);
    const tutti_rendezvous_slot *slot = &world->rendezvous->slots[k];
    bool read = true;

    enter(world);
    for (int n = 0; n < slot->left; n++)
        if (slot->ranks[n] == rank) /* relaxed: nothing is done with the entry */
            read = atomic_load_explicit(&world->rendezvous->of_rank[rank]->finished[world->rank][k],
                                        memory_order_relaxed) == slot->serial;
    leave(world);
    return read;
}

tutti_status tutti_rendezvous_publish(const tutti_call *call, const tutti_where *where,
                                      const void *payload, size_t bytes, tutti_entry **out,
                                      tutti_error *err)
{
    tutti_world *world = call->group->world;
    tutti_rendezvous *rendezvous = world->rendezvous;
    tutti_entry *entry;
    uint64_t serial;
    int64_t since_ns = 0;
    int k;

    *out = NULL;
    enter(world);
    for (uint32_t n = 0; (k = free_entry(call)) < 0; n++) {
        /* Readers lag by as many collectives as there are entries: only a sender without an echo
           (a broadcast's root) gets here, or one whose collectives have failed. */
        leave(world);
        since_ns = since_ns == 0 ? tutti_now_ns(world->rt) : since_ns;
        TUTTI_TRY(unread(call, err));
        TUTTI_TRY(stuck(call, since_ns, err));
        if (n % POLLS_A_ROUND != 0 || !forget_gone(call))
            tutti_sleep_until(world->rt, tutti_now_ns(world->rt) + POLL_NS);
        enter(world);
    }
    /* and so it is mine alone until all have finished with it; filled without the lock, since
       releasing the lock would wait for the cache line */
    remember(call, k);
    serial = rendezvous->slots[k].serial;
    leave(world);
    entry = &rendezvous->mine->entries[k];
    /* A reader must not take the old tag for valid together with the new serial:
       it reads tag, serial, tag again. release in `serial` orders the zero before it for a reader
       that acquires it. */
    atomic_store_explicit(&entry->tag, 0, memory_order_relaxed);
    atomic_store_explicit(&entry->serial, serial, memory_order_release);
    atomic_store_explicit(&entry->phase, 1, memory_order_relaxed);
    entry->what = tutti_call_what(call);
    entry->shape = tutti_call_shape(call);
    entry->count = call->count;
    if (where != NULL)
        entry->where = *where;
    if (bytes > 0)
        memcpy(entry->payload, payload, bytes);
    /* publishes all of it; pairs with the acquire in look */
    atomic_store_explicit(&entry->tag, call->tag, memory_order_release);
    *out = entry;
    return TUTTI_OK;
}

void tutti_rendezvous_advance(tutti_entry *mine, uint32_t phase)
{
    /* release: publishes what this member has written into windows; pairs with the acquire in
       follow */
    atomic_store_explicit(&mine->phase, phase, memory_order_release);
}

void tutti_rendezvous_release(const tutti_call *call, const tutti_entry *mine)
{
    tutti_rendezvous *rendezvous = call->group->world->rendezvous;

    /* Once all members have finished with it the entry may be another call's, whose tag is another
       one. */
    atomic_store_explicit(&rendezvous->released[mine - rendezvous->mine->entries], call->tag,
                          memory_order_release);
}

void tutti_rendezvous_abandon(const tutti_call *call, tutti_entry *mine, int gone)
{
    tutti_world *world = call->group->world;
    const tutti_rendezvous *rendezvous = world->rendezvous;

    enter(world);
    /* else all members have finished with it, and another thread has filled it for its call */
    if (rendezvous->slots[mine - rendezvous->mine->entries].tag == call->tag) {
        mine->gone = gone;
        tutti_rendezvous_advance(mine, TUTTI_ABANDONED);
    }
    leave(world);
    tutti_rendezvous_wake(call);
}

void tutti_rendezvous_abort_group(const tutti_call *call, int gone)
{
    tutti_world *world = call->group->world;
    tutti_rendezvous_table *mine;
    uint32_t n;

    if (world->rendezvous == NULL)
        return;
    mine = world->rendezvous->mine;
    enter(world);
    n = atomic_load_explicit(&mine->n_aborted, memory_order_relaxed);  /* relaxed: under the lock */
    atomic_store_explicit(&mine->aborted_for[n % TUTTI_ABORTED_GROUPS], gone, memory_order_relaxed);
    /* release: also of an older group's place, which another rank may be looking at */
    atomic_store_explicit(&mine->aborted[n % TUTTI_ABORTED_GROUPS], call->group->context,
                          memory_order_release);
    /* pairs with the acquire in aborted */
    atomic_store_explicit(&mine->n_aborted, n + 1, memory_order_release);
    /* Entries that no member reads any more are taken back now: later the record of ranks that gave
       up may be overwritten. */
    for (int k = 0; k < TUTTI_RENDEZVOUS_ENTRIES; k++) {
        tutti_rendezvous_slot *slot = &world->rendezvous->slots[k];
        slot->given_up = slot->given_up || slot->context == call->group->context;
        (void)is_free(world, k);
    }
    leave(world);
    tutti_rendezvous_wake(call);
}

/* Returns entry k of a rank if it is this call's and I have not finished with it; *serial: its
   serial. */
static tutti_entry *find_entry(const tutti_call *call, int rank, int k, uint64_t *serial)
{
    const tutti_rendezvous *rendezvous = call->group->world->rendezvous;
    tutti_entry *entry = &rendezvous->of_rank[rank]->entries[k];

    if (atomic_load_explicit(&entry->tag, memory_order_acquire) != call->tag)
        return NULL;
    *serial = atomic_load_explicit(&entry->serial, memory_order_acquire);
    /* relaxed: this rank wrote it. The tag once more: see publish. */
    if (atomic_load_explicit(&rendezvous->mine->finished[rank][k], memory_order_relaxed) ==
            *serial ||
        atomic_load_explicit(&entry->tag, memory_order_acquire) != call->tag)
        return NULL;
    return entry;
}

/* A call made again may have several entries; the earliest is meant. A scan may pass its place
   before it is published and then find a later one further on; but what was published before the
   one found is seen by a second scan. */
static tutti_entry *search(const tutti_call *call, int rank)
{
    tutti_entry *first = NULL, *entry;
    uint64_t lowest = 0, serial;

    for (int scan = 0; scan == 0 || (scan == 1 && first != NULL); scan++)
        for (int k = 0; k < TUTTI_RENDEZVOUS_ENTRIES; k++)
            if ((entry = find_entry(call, rank, k, &serial)) != NULL &&
                (first == NULL || serial < lowest)) {
                first = entry;
                lowest = serial;
            }
    return first;
}

bool tutti_rendezvous_has(const tutti_call *call, int j)
{
    return search(call, tutti_call_rank(call, j)) != NULL;
}

/* looks: how many checks to make. learn: adapts that number to whether they were enough. */
static uint32_t looks(const tutti_call *call, bool patient)
{
    tutti_rendezvous *rendezvous = call->group->world->rendezvous;

    if (rendezvous->crowded)
        return 1;
    return patient ? atomic_load_explicit(&rendezvous->patience, memory_order_relaxed)
                   : TUTTI_RENDEZVOUS_GLANCES;
}

static void learn(const tutti_call *call, uint32_t had, bool enough)
{
    uint32_t next = enough ? 2 * had : had / 2;

    if (call->group->world->rendezvous->crowded)
        return;
    if (next > TUTTI_RENDEZVOUS_PATIENCE || next < TUTTI_RENDEZVOUS_GLANCES)
        next = enough ? TUTTI_RENDEZVOUS_PATIENCE : TUTTI_RENDEZVOUS_GLANCES;
    if (next != had)
        atomic_store_explicit(&call->group->world->rendezvous->patience, next,
                              memory_order_relaxed);
}

tutti_entry *tutti_rendezvous_poll(const tutti_call *call, int j, bool patient)
{
    const uint32_t most = looks(call, patient);
    const int rank = tutti_call_rank(call, j);
    tutti_entry *entry = NULL;
    uint64_t serial;

    for (uint32_t n = 0;
         n < most && (entry = find_entry(call, rank, preferred(call), &serial)) == NULL; n++)
        tutti_pause();
    if (patient)
        learn(call, most, entry != NULL);
    return entry;
}

bool tutti_rendezvous_poll_phase(const tutti_call *call, tutti_entry *entry, uint32_t phase,
                                 bool patient)
{
    const uint32_t most = looks(call, patient);
    bool reached = false;

    for (uint32_t n = 0;
         n < most &&
         !(reached = atomic_load_explicit(&entry->phase, memory_order_acquire) >= phase);
         n++)
        tutti_pause();
    if (patient)
        learn(call, most, reached);
    return reached;
}

/* With a timeout the wait is cut into short ones: in between alarms are taken. The caller looks
   again after each. */
static tutti_status await_version(const tutti_call *call, int rank, uint32_t seen, tutti_error *err)
{
    tutti_world *world = call->group->world;
    tutti_rendezvous_table *table = world->rendezvous->of_rank[rank];
    int64_t until = TUTTI_FOREVER;
    tutti_status status;

    if (call->watch != NULL) {
        const int64_t now = tutti_now_ns(world->rt);
        status = tutti_watch_hear(call->watch, 0);
        /* All others have left, perhaps after they have written what I wait for. */
        if (status != TUTTI_OK && !call->watch->alarmed &&
            atomic_load_explicit(&table->version, memory_order_acquire) != seen)
            return TUTTI_OK;
        TUTTI_TRY(status);
        if (now >= call->expires_ns)
            return tutti_watch_expired(call->watch);
        until = call->expires_ns - now < LOOK_NS ? call->expires_ns : now + LOOK_NS;
    }
    status = world->ops->await(world->transport, rank, &table->version, seen + 1, until, err);
    if (status == TUTTI_OK || (status == TUTTI_TIMEOUT && call->watch != NULL))
        return TUTTI_OK;
    /* Gone, but perhaps after it has written what I wait for: what a rank has published stays
       valid. */
    if (status == TUTTI_ERR_PEER &&
        atomic_load_explicit(&table->version, memory_order_acquire) != seen)
        return TUTTI_OK;
    return tutti_fail_within(err, status, "%s of %zu elements over %d members",
                             tutti_collective_name(call->kind), call->count, call->group->size);
}

/* Counts this thread among the waiters. acq_rel: see tutti_rendezvous_wake. */
static tutti_rendezvous_table *wait_for(const tutti_call *call, int rank)
{
    tutti_rendezvous_table *table = call->group->world->rendezvous->of_rank[rank];

    atomic_fetch_add_explicit(&table->waiters, 1, memory_order_acq_rel);
    return table;
}

static tutti_status waited(tutti_rendezvous_table *table, tutti_status status)
{
    atomic_fetch_add_explicit(&table->waiters, UINT32_MAX, memory_order_relaxed); /* minus 1 */
    return status;
}

tutti_status tutti_rendezvous_await(const tutti_call *call, int j, tutti_entry **out,
                                    tutti_error *err)
{
    const int rank = tutti_call_rank(call, j);
    tutti_rendezvous_table *table = wait_for(call, rank);
    tutti_status status;

    for (;;) {
        /* before the search: nothing is missed */
        const uint32_t seen = atomic_load_explicit(&table->version, memory_order_acquire);
        *out = search(call, rank);
        if (*out != NULL)
            return waited(table, TUTTI_OK);
        status = aborted(call, rank, err);
        if (status != TUTTI_OK) {
            /* what it published before is there by now; it may have come after the search */
            *out = search(call, rank);
            return waited(table, *out != NULL ? TUTTI_OK : status);
        }
        status = await_version(call, rank, seen, err);
        if (status != TUTTI_OK)
            return waited(table, status);
    }
}

tutti_status tutti_rendezvous_await_phase(const tutti_call *call, int j, tutti_entry *entry,
                                          uint32_t phase, tutti_error *err)
{
    const int rank = tutti_call_rank(call, j);
    tutti_rendezvous_table *rendezvous = NULL;
    tutti_status status = TUTTI_OK;

    while (status == TUTTI_OK &&
           atomic_load_explicit(&entry->phase, memory_order_acquire) < phase) {
        uint32_t seen;
        if (rendezvous == NULL)
            rendezvous = wait_for(call, rank);
        /* before the second check, as above */
        seen = atomic_load_explicit(&rendezvous->version, memory_order_acquire);
        if (atomic_load_explicit(&entry->phase, memory_order_acquire) < phase)
            status = await_version(call, rank, seen, err);
    }
    if (rendezvous != NULL)
        (void)waited(rendezvous, status);
    if (status == TUTTI_OK &&
        atomic_load_explicit(&entry->phase, memory_order_acquire) == TUTTI_ABANDONED) {
        TUTTI_TRY(await_verdict(call));
        return tutti_fail_rank(
            err, TUTTI_ERR_PEER, entry->gone,
            "%s of %zu elements over %d members: rank %d gave up because of rank %d",
            tutti_collective_name(call->kind), call->count, call->group->size, rank, entry->gone);
    }
    return status;
}

void tutti_rendezvous_finish(const tutti_call *call, int j, const tutti_entry *entry)
{
    const tutti_rendezvous *rendezvous = call->group->world->rendezvous;
    const int rank = tutti_call_rank(call, j);
    /* constant until I have finished */
    const uint64_t serial =
        atomic_load_explicit(&((tutti_entry *)(uintptr_t)entry)->serial, memory_order_relaxed);

    /* release: I have read; pairs with the acquire in is_free */
    atomic_store_explicit(
        &rendezvous->mine->finished[rank][entry - rendezvous->of_rank[rank]->entries], serial,
        memory_order_release);
}

int tutti_rendezvous_stage_acquire(const tutti_world *world)
{
    tutti_rendezvous *rendezvous = world->rendezvous;
    int stage = -1;

    enter(world);
    for (int k = 0; k < TUTTI_STAGES && stage < 0; k++)
        if (!rendezvous->stage_used[k])
            stage = k;
    if (stage >= 0)
        rendezvous->stage_used[stage] = true;
    leave(world);
    return stage;
}

void tutti_rendezvous_stage_release(const tutti_world *world, int stage)
{
    if (stage < 0)
        return;
    enter(world);
    world->rendezvous->stage_used[stage] = false;
    leave(world);
}

tutti_status tutti_rendezvous_reach(const tutti_call *call, int j, const tutti_where *where,
                                    size_t bytes, unsigned char **out, tutti_error *err)
{
    tutti_world *world = call->group->world;
    const int rank = tutti_call_rank(call, j);
    tutti_rendezvous_table *rendezvous = world->rendezvous->of_rank[rank];
    int64_t deadline = 0;
    uint64_t room;

    *out = NULL;
    if (where->reach == TUTTI_REACH_STAGE && where->offset < TUTTI_STAGES) {
        *out = rendezvous->stages[where->offset][0];
        return TUTTI_OK;
    }
    if (where->reach != TUTTI_REACH_WINDOW || where->window >= TUTTI_WINDOWS)
        return tutti_fail_rank(err, TUTTI_ERR_CORRUPT, rank,
                               "rank %d announces a vector in window %u of %d", rank, where->window,
                               TUTTI_WINDOWS);
    /* The peer may have returned from tutti_world_window while another thread of mine is at its
       last instructions there. */
    while (atomic_load_explicit(&world->n_windows, memory_order_acquire) <= where->window) {
        deadline = deadline == 0 ? tutti_now_ns(world->rt) + WINDOW_WAIT_NS : deadline;
        if (tutti_now_ns(world->rt) > deadline)
            return tutti_fail_rank(err, TUTTI_ERR_STATE, rank,
                                   "rank %d uses window %u, which this rank has not made; all "
                                   "ranks must make the same windows in the same order",
                                   rank, where->window);
        tutti_sleep_until(world->rt, tutti_now_ns(world->rt) + POLL_NS);
    }
    /* relaxed: ordered by the entry's tag */
    room = atomic_load_explicit(&rendezvous->window_bytes[where->window], memory_order_relaxed);
    if (where->offset > room || bytes > room - where->offset)
        return tutti_fail_rank(
            err, TUTTI_ERR_CORRUPT, rank,
            "rank %d announces %zu bytes at %llu of window %u, which has %llu bytes", rank, bytes,
            (unsigned long long)where->offset, where->window, (unsigned long long)room);
    *out = (unsigned char *)world->windows[where->window].of_rank[rank] + where->offset;
    return TUTTI_OK;
}
