/* The board: entries in shared memory, published and followed (board.h has the life of an entry). */
#include "board.h"
#include <string.h>

#define WINDOW_WAIT_NS (INT64_C(10) * 1000000000)
#define POLL_NS (INT64_C(20) * 1000)

tutti_status tutti_board_open(tutti_world *world, tutti_error *err)
{
    tutti_board *board = tutti_alloc(1, sizeof *board);

    if (board == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory for the board of a world");
    world->board = board;
    TUTTI_TRY(tutti_monitor_open(&board->monitor, world->rt, err));
    board->of_rank = tutti_alloc((size_t)world->size, sizeof *board->of_rank);
    if (board->of_rank == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory for the board of a world");
    TUTTI_TRY(world->ops->window(world->transport, "tutti.board", sizeof(tutti_board_memory), (void **)board->of_rank, err));
    board->mine = board->of_rank[world->rank];
    return TUTTI_OK;
}

void tutti_board_close(tutti_world *world)
{
    if (world->board == NULL)
        return;
    tutti_monitor_close(world->board->monitor);
    tutti_free(world->board->of_rank);
    tutti_free(world->board);
    world->board = NULL;
}

void tutti_board_window(tutti_world *world, uint32_t window, size_t bytes)
{
    /* Relaxed: a peer reads it only after an entry that names the window, whose tag it acquired. */
    if (world->board != NULL)
        atomic_store_explicit(&world->board->mine->window_bytes[window], bytes, memory_order_relaxed);
}

static uint64_t others(const tutti_call *call)
{
    const int size = call->group->size;
    const uint64_t all = size == TUTTI_BOARD_MEMBERS ? UINT64_MAX : (UINT64_C(1) << size) - 1;

    return all & ~(UINT64_C(1) << call->group->index);
}

/* Wakes whoever waits for this rank. Under the monitor, since publish stores: two threads might store in the wrong order. */
static void raise_version(tutti_world *world)
{
    tutti_board_memory *mine = world->board->mine;
    const uint32_t next = atomic_load_explicit(&mine->version, memory_order_relaxed) + 1; /* relaxed: under the monitor */

    world->ops->publish(world->transport, &mine->version, next);
}

/* Number of a free entry, or -1. */
static int free_entry(tutti_board *board)
{
    for (int k = 0; k < TUTTI_BOARD_ENTRIES; k++)
        /* acquire: pairs with the release in clear; the last reader has read before I write */
        if (atomic_load_explicit(&board->mine->waiting[k], memory_order_acquire) == 0)
            return k;
    return -1;
}

tutti_status tutti_board_publish(const tutti_call *call, const tutti_announcement *said, const void *payload, size_t bytes, tutti_entry **out,
                                 tutti_error *err)
{
    tutti_world *world = call->group->world;
    tutti_board *board = world->board;
    tutti_board_memory *mine = board->mine;
    tutti_entry *entry;
    int k;

    *out = NULL;
    tutti_lock(board->monitor);
    while ((k = free_entry(board)) < 0) {
        /* Readers lag by as many collectives as there are entries: only a sender without an echo (a broadcast's root) gets here. */
        char why[200];
        const int dead = world->ops->dead_peer(world->transport, why, sizeof why);
        tutti_unlock(board->monitor);
        if (dead >= 0)
            return tutti_fail_rank(err, TUTTI_ERR_PEER, dead, "%s: rank %d is gone: %s", tutti_collective_name(call->kind), dead, why);
        tutti_sleep_until(world->rt, tutti_now_ns(world->rt) + POLL_NS);
        tutti_lock(board->monitor);
    }
    /* A reader must not take the old tag for valid together with the new bits: it reads tag, bits, tag again. release in
       `waiting` orders the zero before the bits for a reader that acquires them. */
    atomic_store_explicit(&mine->tags[k], 0, memory_order_relaxed);
    entry = &mine->entries[k];
    atomic_store_explicit(&entry->phase, 1, memory_order_relaxed);
    entry->said = *said;
    entry->said.serial = ++board->published;
    if (bytes > 0)
        memcpy(entry->payload, payload, bytes);
    atomic_store_explicit(&mine->waiting[k], others(call), memory_order_release);
    atomic_store_explicit(&mine->tags[k], call->tag, memory_order_release); /* publishes all of it; pairs with the acquire in search */
    raise_version(world);
    tutti_unlock(board->monitor);
    *out = entry;
    return TUTTI_OK;
}

void tutti_board_advance(const tutti_call *call, tutti_entry *mine, uint32_t phase)
{
    tutti_world *world = call->group->world;

    /* release: publishes what this member has written into windows; pairs with the acquire in follow */
    atomic_store_explicit(&mine->phase, phase, memory_order_release);
    tutti_lock(world->board->monitor);
    raise_version(world);
    tutti_unlock(world->board->monitor);
}

void tutti_board_abandon(const tutti_call *call, tutti_entry *mine, int gone)
{
    mine->gone = gone;
    tutti_board_advance(call, mine, TUTTI_ABANDONED);
}

static tutti_entry *search(const tutti_call *call, tutti_board_memory *board)
{
    const uint64_t bit = UINT64_C(1) << call->group->index;
    tutti_entry *first = NULL;

    for (int k = 0; k < TUTTI_BOARD_ENTRIES; k++) {
        tutti_entry *entry = &board->entries[k];
        if (atomic_load_explicit(&board->tags[k], memory_order_acquire) == call->tag &&
            (atomic_load_explicit(&board->waiting[k], memory_order_acquire) & bit) != 0 &&
            atomic_load_explicit(&board->tags[k], memory_order_acquire) == call->tag &&
            (first == NULL || entry->said.serial < first->said.serial))
            first = entry;
    }
    return first;
}

static tutti_status await_version(const tutti_call *call, int rank, uint32_t seen, tutti_error *err)
{
    tutti_world *world = call->group->world;
    tutti_board_memory *board = world->board->of_rank[rank];
    const tutti_status status = world->ops->await(world->transport, rank, &board->version, seen + 1, TUTTI_FOREVER, err);

    if (status == TUTTI_OK)
        return TUTTI_OK;
    /* Gone, but perhaps after it has written what I wait for: what a rank has published stays valid. */
    if (status == TUTTI_ERR_PEER && atomic_load_explicit(&board->version, memory_order_acquire) != seen)
        return TUTTI_OK;
    return tutti_fail_within(err, status, "%s of %zu elements over %d members", tutti_collective_name(call->kind), call->count,
                             call->group->size);
}

tutti_status tutti_board_find(const tutti_call *call, int j, tutti_entry **out, tutti_error *err)
{
    const int rank = tutti_call_rank(call, j);
    tutti_board_memory *board = call->group->world->board->of_rank[rank];

    for (;;) {
        const uint32_t seen = atomic_load_explicit(&board->version, memory_order_acquire); /* before the search: nothing is missed */
        *out = search(call, board);
        if (*out != NULL)
            return TUTTI_OK;
        TUTTI_TRY(await_version(call, rank, seen, err));
    }
}

tutti_status tutti_board_follow(const tutti_call *call, int j, tutti_entry *entry, uint32_t phase, tutti_error *err)
{
    const int rank = tutti_call_rank(call, j);
    tutti_board_memory *board = call->group->world->board->of_rank[rank];

    for (;;) {
        const uint32_t seen = atomic_load_explicit(&board->version, memory_order_acquire);
        const uint32_t reached = atomic_load_explicit(&entry->phase, memory_order_acquire);
        if (reached == TUTTI_ABANDONED)
            return tutti_fail_rank(err, TUTTI_ERR_PEER, entry->gone, "%s of %zu elements over %d members: rank %d gave up because of rank %d",
                                   tutti_collective_name(call->kind), call->count, call->group->size, rank, entry->gone);
        if (reached >= phase)
            return TUTTI_OK;
        TUTTI_TRY(await_version(call, rank, seen, err));
    }
}

void tutti_board_clear(const tutti_call *call, int j, const tutti_entry *entry)
{
    tutti_board_memory *board = call->group->world->board->of_rank[tutti_call_rank(call, j)];
    const uint64_t bit = UINT64_C(1) << call->group->index;

    /* release: I have read; pairs with the acquire in free_entry */
    atomic_fetch_and_explicit(&board->waiting[entry - board->entries], ~bit, memory_order_release);
}

int tutti_board_stage_take(tutti_board *board)
{
    int stage = -1;

    tutti_lock(board->monitor);
    for (int k = 0; k < TUTTI_STAGES && stage < 0; k++)
        if (!board->stage_used[k])
            stage = k;
    if (stage >= 0)
        board->stage_used[stage] = true;
    tutti_unlock(board->monitor);
    return stage;
}

void tutti_board_stage_give(tutti_board *board, int stage)
{
    if (stage < 0)
        return;
    tutti_lock(board->monitor);
    board->stage_used[stage] = false;
    tutti_unlock(board->monitor);
}

tutti_status tutti_board_reach(const tutti_call *call, int j, const tutti_announcement *said, size_t bytes, unsigned char **out, tutti_error *err)
{
    tutti_world *world = call->group->world;
    const int rank = tutti_call_rank(call, j);
    tutti_board_memory *board = world->board->of_rank[rank];
    const int64_t deadline = tutti_now_ns(world->rt) + WINDOW_WAIT_NS;
    uint64_t room;

    *out = NULL;
    if (said->reach == TUTTI_REACH_STAGE && said->offset < TUTTI_STAGES) {
        *out = board->stages[said->offset][0];
        return TUTTI_OK;
    }
    if (said->reach != TUTTI_REACH_WINDOW || said->window >= TUTTI_WINDOWS)
        return tutti_fail_rank(err, TUTTI_ERR_CORRUPT, rank, "rank %d announces a vector in window %u of %d", rank, said->window, TUTTI_WINDOWS);
    /* The peer may be through tutti_world_window while another thread of mine is on its last instructions in there. */
    while (atomic_load_explicit(&world->n_windows, memory_order_acquire) <= said->window) {
        if (tutti_now_ns(world->rt) > deadline)
            return tutti_fail_rank(err, TUTTI_ERR_STATE, rank, "rank %d uses window %u, which this rank has not made; all ranks must make the "
                                   "same windows in the same order", rank, said->window);
        tutti_sleep_until(world->rt, tutti_now_ns(world->rt) + POLL_NS);
    }
    room = atomic_load_explicit(&board->window_bytes[said->window], memory_order_relaxed); /* relaxed: ordered by the entry's tag */
    if (said->offset > room || bytes > room - said->offset)
        return tutti_fail_rank(err, TUTTI_ERR_CORRUPT, rank, "rank %d announces %zu bytes at %llu of window %u, which has %llu bytes", rank,
                               bytes, (unsigned long long)said->offset, said->window, (unsigned long long)room);
    *out = (unsigned char *)world->windows[said->window].of_rank[rank] + said->offset;
    return TUTTI_OK;
}
