/* window.c: the collectives through shared memory: what the lists "exchange", "direct", "flat"
   and "scatter" do, without messages. The bits are the same, and the same traffic is counted:
   what a member reads from a peer, or a peer writes for it, counts as sent by that peer,
   partitioned as in the list.

   Reduce-scatters and all-gathers with parts of different sizes are done as large ones, which
   read where the others' vectors and parts are: entries of the rendezvous table have no space for
   them.

   Small (at most 1024 elements): each member's input travels in its entry of the rendezvous table
   and every member computes alone: one synchronisation. Bound: the latency of a cache line from
   each member to each other (up to 24 bytes), then of n more bytes in sequence.

   Large all-reduce: every member announces where its vector lies. Each adds its slice of all p
   vectors and writes the sum into all p of them in the same pass. When all have finished, every
   vector is complete: two synchronisations, no scratch memory. Bound: p n bytes read and p n
   written by p members, from the second-level cache, the third or memory, depending on the size
   of the vectors.

   Writing to all was chosen over "every member fetches the finished slices". The lines of all
   vectors have just been read, so the writes need no second trip to memory (p n read and p n
   written, against 2 p n read with the fetch), and no member has to wait until others have
   fetched. It is safe because in this phase only this member reads those ranges. Stores are
   ordinary ones, not non-temporal, because the lines are in a cache already.

   A vector outside of windows passes through a stage, two halves in the window of the member's
   table: chunk c in half c mod 2. Only what others add goes there, (p - 1)/p of the chunk. The
   owner of a slice reads it from there, and puts the sums back in the same place; of my own slice
   the sum goes straight into my vector. One synchronisation a chunk: phase c + 1 means "my
   results of chunk c - 1 are written and my input of chunk c is there", so copying in and out
   overlaps with the others' adding. Members with a vector in a window take part without copies. A
   member that has neither window nor stage (all are in use) announces that, and all use messages
   instead: no member ever waits for a stage.

   Bound: n bytes read and n written of memory a member, and (p - 1)/p n through another core's
   cache in each direction: staged, fetched and added; the sums put back, fetched. The
   alternative, to stage all of a vector and have each member add it for itself, would write
   nothing back but move 2 n a member.

   bench/limits/shm_limit.c does both without groups, tags, types or deaths; bench compares. */
#include "rendezvous.h"
#include <string.h>

/* of each of the p vectors of a reduce-scatter; up to 64 of them in a second-level cache */
#define TILE_BYTES ((size_t)8 << 10)

typedef struct meeting {
    const tutti_call *call;
    tutti_world *world;
    int size, index;
    tutti_entry *own;                           /* what I have published; NULL: nothing */
    tutti_where where;                          /* what I announce if the vectors are large */
    tutti_entry *entries[TUTTI_RENDEZVOUS_MEMBERS]; /* [index]: mine; no longer to be used once the
                                                   others may have cleared it */
    unsigned char *base[TUTTI_RENDEZVOUS_MEMBERS]; /* start of the vector or stage of each */
    bool staged[TUTTI_RENDEZVOUS_MEMBERS];
    double weights[TUTTI_RENDEZVOUS_MEMBERS];
    bool weighted;
    uint32_t phase;                             /* that others must reach; 1: publish an entry; 0: I
                                                   wait until mine can be published */
    tutti_odd odd;                              /* the call that differs */
    tutti_error *err;                           /* never NULL */
} meeting;

bool tutti_window_serves(const tutti_call *call)
{
    return call->group->world->rendezvous != NULL &&
           call->group->size <= TUTTI_RENDEZVOUS_MEMBERS &&
           (tutti_algorithms[call->algorithm].traits & TUTTI_WINDOWED) != 0;
}

static tutti_status compare(meeting *m, int j, const tutti_entry *theirs)
{
    const tutti_status status = tutti_call_compare(m->call, tutti_call_rank(m->call, j), theirs->what, theirs->count,
                                                   theirs->shape, m->err);

    if (status != TUTTI_OK)
        m->odd = (tutti_odd){ theirs->what, theirs->count };
    return status;
}

/* Waits for all other members' entries, then compares: so that every member learns of a
   difference, and none leaves before the others have read its entry. */
static tutti_status meet(meeting *m)
{
    tutti_status status = TUTTI_OK;

    m->phase = 1;
    for (int k = 1; k < m->size; k++)
        m->entries[(m->index + k) % m->size] =
            tutti_rendezvous_poll(m->call, (m->index + k) % m->size, false);
    tutti_rendezvous_wake(m->call);
    for (int k = 1; k < m->size; k++) {
        const int j = (m->index + k) % m->size;
        if (m->entries[j] == NULL && (m->entries[j] = tutti_rendezvous_poll(m->call, j, true)) == NULL)
            TUTTI_TRY(tutti_rendezvous_await(m->call, j, &m->entries[j], m->err));
    }
    for (int j = 0; j < m->size && status == TUTTI_OK; j++)
        if (j != m->index)
            status = compare(m, j, m->entries[j]);
    return status;
}

/* Elements of my input and where it is. */
static const unsigned char *input(const tutti_call *call, size_t *count)
{
    *count =
        call->kind == TUTTI_REDUCE_SCATTER ? call->count * (size_t)call->group->size : call->count;
    return call->kind == TUTTI_ALLGATHER ? call->part : call->vector;
}

/* Not with parts of different sizes. */
static bool is_small(const tutti_call *call)
{
    size_t count;

    if (call->count > TUTTI_INLINE_COUNT || call->counts != NULL)
        return false;
    (void)input(call, &count);
    return count <= TUTTI_INLINE_COUNT;
}

/* Sets the bits of the members that this one waits for. */
static void absent(const tutti_watch *w, uint64_t *set)
{
    const meeting *m = w->of;
    const bool root_only = m->call->kind == TUTTI_BROADCAST && is_small(m->call) && m->phase > 0;

    for (int j = 0; j < m->size; j++)
        if (j != m->index && (!root_only || j == m->call->root) &&
            !(m->phase == 0   ? tutti_rendezvous_read(m->call, j)
              : m->phase == 1 ? tutti_rendezvous_has(m->call, j)
                              : tutti_rendezvous_poll_phase(m->call, m->entries[j], m->phase, false)))
            set[j / 64] |= UINT64_C(1) << j % 64;
}

static void part_company(const meeting *m)
{
    for (int j = 0; j < m->size; j++)
        if (j != m->index && m->entries[j] != NULL)
            tutti_rendezvous_finish(m->call, j, m->entries[j]);
}

/* Advances to the phase and waits until all others have reached it. */
static tutti_status advance_all(meeting *m, uint32_t phase)
{
    bool all = true;

    m->phase = phase;
    tutti_rendezvous_advance(m->entries[m->index], phase);
    for (int k = 1; k < m->size; k++)
        all = tutti_rendezvous_poll_phase(m->call, m->entries[(m->index + k) % m->size], phase,
                                          false) &&
              all;
    tutti_rendezvous_wake(m->call);
    for (int k = 1; k < m->size; k++) {
        const int j = (m->index + k) % m->size;
        if (!all)
            (void)tutti_rendezvous_poll_phase(m->call, m->entries[j], phase, true);
        TUTTI_TRY(tutti_rendezvous_await_phase(m->call, j, m->entries[j], phase, m->err));
    }
    return TUTTI_OK;
}

/* ---- small ---- */

static tutti_status small_broadcast(meeting *m)
{
    const tutti_call *call = m->call;
    const size_t bytes = call->count * call->element;
    tutti_entry *root;
    tutti_status status;

    if (call->group->index == call->root) {
        status = tutti_rendezvous_publish(call, NULL, call->vector, bytes, &m->own, m->err);
        tutti_rendezvous_wake(call);
        return status;
    }
    m->phase = 1;
    root = tutti_rendezvous_poll(call, call->root, true);
    if (root == NULL)
        TUTTI_TRY(tutti_rendezvous_await(call, call->root, &root, m->err));
    status = compare(m, call->root, root);
    if (status == TUTTI_OK)
        tutti_reduce_copy(root->payload, call->vector, bytes);
    tutti_rendezvous_finish(call, call->root, root);
    return status;
}

static void small_finish(const meeting *m)
{
    const tutti_call *call = m->call;
    const size_t bytes = call->count * call->element;
    const size_t offset = call->kind == TUTTI_REDUCE_SCATTER ? (size_t)m->index * bytes : 0;
    const void *terms[TUTTI_RENDEZVOUS_MEMBERS];

    if (bytes == 0)
        return;
    if (call->kind == TUTTI_ALLGATHER) {
        for (int j = 0; j < m->size; j++)
            tutti_reduce_copy(j == m->index ? call->part : m->entries[j]->payload,
                              call->vector + (size_t)j * bytes, bytes);
        return;
    }
    /* My own input is read from the vector itself: others may have cleared my entry, and another
       thread may have taken it. */
    for (int j = 0; j < m->size; j++)
        terms[j] = (j == m->index ? call->vector : m->entries[j]->payload) + offset;
    tutti_reduce_tree(m->world->device, call->dtype, call->op, call->count, m->size, terms, NULL,
                      call->kind == TUTTI_REDUCE_SCATTER ? call->part : call->vector);
}

static tutti_status small(meeting *m)
{
    const tutti_call *call = m->call;
    tutti_status status;
    size_t count;
    const unsigned char *from = input(call, &count);

    if (call->kind == TUTTI_BROADCAST)
        return small_broadcast(m);
    if (call->weight != 1.0)
        tutti_reduce_scale(m->world->device, call->dtype, count, call->weight, call->vector);
    TUTTI_TRY(tutti_rendezvous_publish(call, NULL, from, count * call->element,
                                       &m->own, m->err));
    status = meet(m);
    if (status == TUTTI_OK)
        small_finish(m);
    if (status == TUTTI_OK || status == TUTTI_ERR_STATE)
        part_company(m);
    return status;
}

/* ---- large ---- */

/* Mine is read from my own memory: when the others change to messages they clear my entry at
   once, and another thread of mine may fill it. */
static const tutti_where *where_of(const meeting *m, int j)
{
    return j == m->index ? &m->where : &m->entries[j]->where;
}

/* part_count: elements of part j. part_first: where it begins in the whole. */
static size_t part_count(const tutti_call *call, int j)
{
    return call->counts != NULL ? call->counts[j] : call->count;
}

static size_t part_first(const tutti_call *call, int j)
{
    size_t first = 0;

    if (call->counts == NULL)
        return (size_t)j * call->count;
    for (int k = 0; k < j; k++)
        first += call->counts[k];
    return first;
}

/* Bytes that member j makes accessible. */
static size_t shown_bytes(const tutti_call *call, int j)
{
    const size_t count = call->kind == TUTTI_ALLGATHER        ? part_count(call, j)
                         : call->kind == TUTTI_REDUCE_SCATTER ? part_first(call, call->group->size)
                                                              : call->count;
    return count * call->element;
}

static void take_bases(meeting *m, tutti_status *status, bool *all_reach, bool *any_staged)
{
    *all_reach = true;
    *any_staged = m->weighted = false;
    for (int j = 0; j < m->size; j++) {
        const tutti_where *where = where_of(m, j);
        if (where->reach == TUTTI_REACH_NONE)
            *all_reach = false;
        m->staged[j] = where->reach == TUTTI_REACH_STAGE;
        *any_staged = *any_staged || m->staged[j];
        m->weights[j] = where->weight;
        m->weighted = m->weighted || where->weight != 1.0;
    }
    for (int j = 0; j < m->size && *all_reach && *status == TUTTI_OK; j++)
        *status = tutti_rendezvous_reach(m->call, j, where_of(m, j), shown_bytes(m->call, j),
                                         &m->base[j], m->err);
}

/* The offset of chunk c in a stage. */
static size_t half_of(size_t c)
{
    return (c % 2) * TUTTI_STAGE_BYTES;
}

/* Chunk c of member j as this member accesses it; for my own, the vector itself, wherever it
   lies. */
static unsigned char *chunk_of(const meeting *m, int j, size_t c, size_t chunk_bytes)
{
    if (j == m->index)
        return m->call->vector + c * chunk_bytes;
    return m->base[j] + (m->staged[j] ? half_of(c) : c * chunk_bytes);
}

/* My slice of each segment of the `count` elements of chunk c, into all vectors. */
static void add_slices(const meeting *m, size_t c, size_t chunk, size_t count)
{
    const tutti_call *call = m->call;
    const size_t element = call->element;
    unsigned char *base[TUTTI_RENDEZVOUS_MEMBERS];
    void *slices[TUTTI_RENDEZVOUS_MEMBERS];

    for (int j = 0; j < m->size; j++)
        base[j] = chunk_of(m, j, c, chunk * element);
    for (size_t begin = 0; begin < count; begin += TUTTI_SEGMENT) {
        const size_t length = count - begin < TUTTI_SEGMENT ? count - begin : TUTTI_SEGMENT;
        const size_t first = begin + tutti_slice(length, m->size, m->index),
                     end = begin + tutti_slice(length, m->size, m->index + 1);
        for (int j = 0; j < m->size; j++)
            slices[j] = base[j] + first * element;
        tutti_reduce_tree_all(m->world->device, call->dtype, call->op, end - first, m->size, slices,
                              m->weighted ? m->weights : NULL, m->index);
    }
}

static size_t chunk_count(const tutti_call *call, size_t c, size_t chunk)
{
    return call->count - c * chunk < chunk ? call->count - c * chunk : chunk;
}

/* The slices of chunk c that others add: from my vector into my stage, or their sums back. A chunk
   of a stage is less than a segment. */
static void move_slices(const tutti_call *call, unsigned char *stage, size_t c, bool back)
{
    const size_t chunk = TUTTI_STAGE_BYTES / call->element, count = chunk_count(call, c, chunk);
    const size_t ends[4] = { 0, tutti_slice(count, call->group->size, call->group->index),
                             tutti_slice(count, call->group->size, call->group->index + 1), count };
    unsigned char *const half = stage + half_of(c), *const vector =
                                                        call->vector + c * chunk * call->element;

    for (int k = 0; k < 4; k += 2) {
        const size_t at = ends[k] * call->element, bytes = (ends[k + 1] - ends[k]) * call->element;
        tutti_reduce_copy((back ? half : vector) + at, (back ? vector : half) + at, bytes);
    }
}

static tutti_status allreduce_chunks(meeting *m, size_t chunk)
{
    const tutti_call *call = m->call;
    const size_t chunks = (call->count + chunk - 1) / chunk;
    unsigned char *const stage = m->staged[m->index] ? m->base[m->index] : NULL;

    add_slices(m, 0, chunk, chunk_count(call, 0, chunk));
    for (size_t c = 1; c <= chunks; c++) {
        if (c < chunks && stage != NULL)
            move_slices(call, stage, c, false);
        TUTTI_TRY(advance_all(m, (uint32_t)c + 1));
        if (c < chunks)
            add_slices(m, c, chunk, chunk_count(call, c, chunk));
        if (stage != NULL)
            move_slices(call, stage, c - 1, true);
    }
    return TUTTI_OK;
}

static tutti_status large_reduce_scatter(meeting *m)
{
    const tutti_call *call = m->call;
    const size_t element = call->element, tile = TILE_BYTES / element,
                 count = part_count(call, m->index), mine = part_first(call, m->index);
    const void *terms[TUTTI_RENDEZVOUS_MEMBERS];

    for (size_t first = 0, n; first < count; first += n) {
        n = count - first < tile ? count - first : tile;
        for (int j = 0; j < m->size; j++)
            terms[j] = m->base[j] + (mine + first) * element;
        tutti_reduce_tree(m->world->device, call->dtype, call->op, n, m->size, terms,
                          m->weighted ? m->weights : NULL, call->part + first * element);
    }
    return advance_all(m, 2); /* I have read */
}

static tutti_status large_allgather(meeting *m)
{
    const tutti_call *call = m->call;

    for (int k = 0; k < m->size; k++) {
        const int j = (m->index + k) % m->size;
        tutti_reduce_copy(j == m->index ? call->part : m->base[j], call->vector + part_first(call, j) * call->element,
                          part_count(call, j) * call->element);
    }
    return advance_all(m, 2); /* I have read */
}

/* Broadcasts as the list "scatter" does: virtual index v fetches slice v from the root, then the
   others' slices from their owners. */
static tutti_status large_broadcast(meeting *m)
{
    const tutti_call *call = m->call;
    const int p = m->size, root = call->root, v = (m->index - root + p) % p;

    if (v != 0) {
        const size_t first = tutti_slice(call->count, p, v) * call->element,
                     end = tutti_slice(call->count, p, v + 1) * call->element;
        tutti_reduce_copy(m->base[root] + first, call->vector + first, end - first);
    }
    m->phase = 2;
    tutti_rendezvous_advance(m->entries[m->index], 2); /* my slice is there */
    tutti_rendezvous_wake(call);
    for (int k = 1; k < p && v != 0; k++) {
        const int w = (v + k) % p, j = (w + root) % p;
        const size_t first = tutti_slice(call->count, p, w) * call->element,
                     end = tutti_slice(call->count, p, w + 1) * call->element;
        TUTTI_TRY(tutti_rendezvous_await_phase(call, j, m->entries[j], 2, m->err));
        tutti_reduce_copy(m->base[j] + first, call->vector + first, end - first);
    }
    return advance_all(m, 3); /* I have read */
}

static tutti_status large(meeting *m, bool *handled, int *stage)
{
    const tutti_call *call = m->call;
    const size_t stage_chunk = TUTTI_STAGE_BYTES / call->element;
    const unsigned char *shown = call->kind == TUTTI_ALLGATHER ? call->part : call->vector;
    const size_t bytes = shown_bytes(call, m->index);
    tutti_where *where = &m->where;
    int window;
    bool all_reach, any_staged;
    tutti_status status;

    *where = (tutti_where){ .weight = call->weight, .reach = TUTTI_REACH_NONE };
    window = tutti_windows_find(m->world, shown, bytes, &where->offset);
    if (window >= 0) {
        where->reach = TUTTI_REACH_WINDOW;
        where->window = (uint32_t)window;
    } else if (call->kind == TUTTI_ALLREDUCE &&
               (*stage = tutti_rendezvous_stage_acquire(m->world)) >= 0) {
        where->reach = TUTTI_REACH_STAGE;
        where->offset = (uint64_t)*stage;
        move_slices(call, m->world->rendezvous->mine->stages[*stage][0], 0, false);
    }
    TUTTI_TRY(tutti_rendezvous_publish(call, where, NULL, 0, &m->own, m->err));
    m->entries[m->index] = m->own;
    status = meet(m);
    if (status == TUTTI_ERR_STATE) { /* every member has learnt of the disagreement, or will */
        part_company(m);
        return status;
    }
    if (status == TUTTI_OK)
        take_bases(m, &status, &all_reach, &any_staged);
    *handled = status != TUTTI_OK || all_reach;
    if (status == TUTTI_OK && *handled) {
        if (call->kind == TUTTI_ALLREDUCE)
            status = allreduce_chunks(m, any_staged ? stage_chunk : call->count);
        else if (call->kind == TUTTI_REDUCE_SCATTER)
            status = large_reduce_scatter(m);
        else if (call->kind == TUTTI_ALLGATHER)
            status = large_allgather(m);
        else
            status = large_broadcast(m);
    }
    if (status == TUTTI_OK)
        part_company(m);
    else
        tutti_rendezvous_abandon(call, m->entries[m->index], m->err->rank >= 0 ? m->err->rank : m->world->rank);
    return status;
}

bool tutti_window_listless(const tutti_call *call)
{
    return (tutti_algorithms[call->algorithm].traits & TUTTI_ALL_TO_EACH) != 0 && is_small(call);
}

/* s NULL: of an exchange, all to each. */
static void account(const tutti_call *call, const tutti_schedule *s)
{
    if (s != NULL)
        tutti_call_account(call, s);
    for (int j = 0; j < call->group->size && s == NULL && !call->group->uncounted; j++)
        if (j != call->group->index)
            tutti_world_account(call->group->world, tutti_call_rank(call, j),
                                call->count * call->element, 1);
}

static tutti_status meet_and_part(meeting *m, const tutti_schedule *s, bool *handled)
{
    const tutti_call *call = m->call;
    tutti_status status;
    int stage = -1;

    *handled = is_small(call);
    status = *handled ? small(m) : large(m, handled, &stage);
    if (m->own != NULL)
        tutti_rendezvous_release(call, m->own);
    if (call->watch != NULL)
        status = tutti_watch_close(call->watch, status);
    /* After a failure a peer may still write into the stage: it is lost to this world, as the
       group is. A member that was let through this collective may be in a later one already, and
       wait for me there, in shared memory or for a message: it is notified. So it is of a
       disagreement, since the root of a small broadcast has not waited for it. */
    if (status == TUTTI_OK)
        tutti_rendezvous_stage_release(m->world, stage);
    else
        tutti_call_give_up(call, status, m->err->rank, &m->odd);
    if (status == TUTTI_OK && *handled)
        account(call, s);
    return status;
}

tutti_status tutti_window_run(const tutti_call *call, const tutti_schedule *s, bool *handled,
                              tutti_error *err)
{
    tutti_error own;
    meeting m; /* its arrays are long, and a small call needs little of them: not zeroed */

    m.call = call;
    m.world = call->group->world;
    m.size = call->group->size;
    m.index = call->group->index;
    m.err = err != NULL ? err : &own;
    m.err->rank = -1;
    m.phase = 0;
    m.own = NULL;
    m.odd = (tutti_odd){ 0 };
    if (call->group->timeout_ns > 0) {
        tutti_call watched = *call;
        tutti_watch watch = { .call = &watched, .waits = absent, .of = &m, .err = m.err };
        watched.watch = &watch;
        m.call = &watched;
        const tutti_status status = tutti_watch_open(&watch);
        if (status != TUTTI_OK) {
            tutti_call_give_up(call, status, -1, &m.odd);
            return status;
        }
        return meet_and_part(&m, s, handled);
    }
    return meet_and_part(&m, s, handled);
}
