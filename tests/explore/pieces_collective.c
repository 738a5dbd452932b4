/* Pieces: collectives of all kinds and algorithms, over messages and over shared memory; several
   groups in flight on lanes; a rank that fails or dies in the middle. Values are small integers
   in floats, so that a sum is exact in any order. */
#include "explore.h"
#include "collective/schedule.h"
#include "engine/lane.h"
#include "collective/world.h"
#include <stdio.h>
#include <string.h>

static const int64_t second = 1000000000;
enum { MOST = 200000 }; /* elements: four chunks of a stage */

static float value(uint64_t round, int rank, size_t i)
{
    return (float)((int)((round * 7919 + (uint64_t)rank * 104729 + i * 31) % 2039) - 1000);
}

static float sum_of(uint64_t round, const int *ranks, int n, size_t i)
{
    float sum = 0;

    for (int r = 0; r < n; r++)
        sum += value(round, ranks != NULL ? ranks[r] : r, i);
    return sum;
}

static uint64_t draw_of(const explore_case *c, const char *what, uint64_t round, uint64_t n)
{
    char name[48];

    snprintf(name, sizeof name, "%s %llu", what, (unsigned long long)round);
    return explore_draw(c, name, n);
}

/* A row of the table that serves the kind and size, by the round's draw; NULL, which selects
   shared memory, two times in three where there is one, else one in three. The texts stay valid:
   groups borrow them. */
static const char *algorithm_of(const explore_case *c, tutti_collective kind, uint64_t round, int size)
{
    enum { ROWS = 64 };
    static char texts[ROWS][EXPLORE_RANKS][64];
    int rows[ROWS];
    uint64_t n = 0;

    for (int k = 0; tutti_algorithms[k].name != NULL && k < ROWS; k++)
        if (tutti_algorithms[k].kind == kind && tutti_algorithm_serves(k, size))
            rows[n++] = k;
    if (n == 0 || draw_of(c, "named", round, 3) < (c->windows ? 2 : 1))
        return NULL;
    const int row = rows[draw_of(c, "algorithm", round, n)], late = (int)draw_of(c, "straggler", round, (uint64_t)size);
    const unsigned traits = tutti_algorithms[row].traits;
    char *const text = texts[row][late];
    snprintf(text, sizeof texts[0][0],
             traits & TUTTI_SINGLES_OUT ? "%s(straggler=%d,order=any)"
             : traits & TUTTI_ANY_ORDER ? "%s(order=any)"
                                        : "%s",
             tutti_algorithms[row].name, late);
    return text;
}

static size_t count_of(const explore_case *c, uint64_t round)
{
    static const size_t counts[] = { 1, 5, 64, 333, 1024, 1025, 3000, 5000 };

    return counts[draw_of(c, "count", round, TUTTI_LENGTH(counts))];
}

/* ---- one call, checked ---- */
static tutti_status one_allreduce(tutti_group *g, uint64_t round, float *x, size_t count, tutti_error *err)
{
    const int rank = tutti_world_rank(g->world);

    for (size_t i = 0; i < count; i++)
        x[i] = value(round, rank, i);
    TUTTI_TRY(tutti_allreduce(g, TUTTI_SUM, tutti_host(x, count, TUTTI_F32), err));
    for (size_t i = 0; i < count; i++)
        EXPLORE_EXPECT(x[i] == sum_of(round, g->ranks, g->size, i),
                       "worker %d: all-reduce '%s' of %zu over %d, round %llu: element %zu is %g instead of %g", rank,
                       g->algorithm != NULL ? g->algorithm : "(chosen)", count, g->size, (unsigned long long)round, i,
                       (double)x[i], (double)sum_of(round, g->ranks, g->size, i));
    return TUTTI_OK;
}

static tutti_status one_broadcast(tutti_group *g, uint64_t round, int root, float *x, size_t count, tutti_error *err)
{
    const int rank = tutti_world_rank(g->world), from = g->ranks != NULL ? g->ranks[root] : root;

    for (size_t i = 0; i < count; i++)
        x[i] = value(round, rank, i);
    TUTTI_TRY(tutti_broadcast(g, root, tutti_host(x, count, TUTTI_F32), err));
    for (size_t i = 0; i < count; i++)
        EXPLORE_EXPECT(x[i] == value(round, from, i),
                       "worker %d: broadcast '%s' of %zu from %d of %d, round %llu: element %zu is wrong", rank,
                       g->algorithm != NULL ? g->algorithm : "(chosen)", count, root, g->size,
                       (unsigned long long)round, i);
    return TUTTI_OK;
}

static tutti_status one_allgather(tutti_group *g, uint64_t round, float *x, size_t count, tutti_error *err)
{
    const int rank = tutti_world_rank(g->world);
    float *const mine = x + (size_t)g->index * count;

    memset(x, 0, count * (size_t)g->size * sizeof *x);
    for (size_t i = 0; i < count; i++)
        mine[i] = value(round, rank, i);
    TUTTI_TRY(
        tutti_allgather(g, tutti_host(mine, count, TUTTI_F32), tutti_host(x, count * (size_t)g->size, TUTTI_F32), err));
    for (int j = 0; j < g->size; j++)
        for (size_t i = 0; i < count; i++)
            EXPLORE_EXPECT(x[(size_t)j * count + i] == value(round, g->ranks != NULL ? g->ranks[j] : j, i),
                           "worker %d: all-gather of %zu over %d, round %llu: element %zu of part %d is wrong", rank,
                           count, g->size, (unsigned long long)round, i, j);
    return TUTTI_OK;
}

static tutti_status one_reduce_scatter(tutti_group *g, uint64_t round, float *x, size_t count, tutti_error *err)
{
    const int rank = tutti_world_rank(g->world);
    float *const mine = x + (size_t)g->index * count;

    for (size_t i = 0; i < count * (size_t)g->size; i++)
        x[i] = value(round, rank, i);
    TUTTI_TRY(tutti_reduce_scatter(g, TUTTI_SUM, tutti_host(x, count * (size_t)g->size, TUTTI_F32),
                                   tutti_host(mine, count, TUTTI_F32), err));
    for (size_t i = 0; i < count; i++)
        EXPLORE_EXPECT(mine[i] == sum_of(round, g->ranks, g->size, (size_t)g->index * count + i),
                       "worker %d: reduce-scatter of %zu over %d, round %llu: element %zu is wrong", rank, count,
                       g->size, (unsigned long long)round, i);
    return TUTTI_OK;
}

/* shared[rank] is the last barrier that the rank has reached. */
static tutti_status one_barrier(tutti_group *g, explore_case *c, uint32_t round, tutti_error *err)
{
    uint32_t *const at = (uint32_t *)(void *)c->shared;
    const int rank = tutti_world_rank(g->world);

    at[rank] = round;
    TUTTI_TRY(tutti_barrier(g, err));
    for (int j = 0; j < g->size; j++)
        EXPLORE_EXPECT(at[g->ranks != NULL ? g->ranks[j] : j] >= round,
                       "worker %d: barrier '%s' %u over %d let it through before worker %d came", rank,
                       g->algorithm != NULL ? g->algorithm : "(chosen)", round, g->size,
                       g->ranks != NULL ? g->ranks[j] : j);
    return TUTTI_OK;
}

/* ---- memory: a vector in a window or not, by rank ---- */
static tutti_status memory_open(tutti_world *world, const explore_case *c, size_t count, void **window, float **own,
                                float **x, tutti_error *err)
{
    const uint64_t where = explore_draw(c, "memory", 3); /* window, own, by rank */

    *own = NULL;
    TUTTI_TRY(tutti_world_window(world, "vector", (count + 16) * sizeof(float), window, err));
    *own = tutti_alloc(count + 16, sizeof **own);
    *x = where == 0 || (where == 2 && tutti_world_rank(world) % 2 == 0) ? *window : *own;
    return *own != NULL ? TUTTI_OK : tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory");
}

static tutti_status several(tutti_world *world, explore_case *c, tutti_collective kind, bool any, uint32_t rounds,
                            tutti_error *err)
{
    tutti_group g = tutti_group_workers(world, 3);
    const size_t most = 5000 * EXPLORE_RANKS;
    void *window;
    float *own, *x;
    tutti_status status = memory_open(world, c, most, &window, &own, &x, err);

    for (uint32_t round = 1; round <= rounds && status == TUTTI_OK; round++) {
        /* those over shared memory */
        const tutti_collective now = any ? (tutti_collective)draw_of(c, "kind", round, TUTTI_BARRIER + 1) : kind;
        const int root = (int)draw_of(c, "root", round, (uint64_t)g.size);
        const size_t count = count_of(c, round);
        g.algorithm = algorithm_of(c, now, round, g.size);
        switch (now) {
        case TUTTI_ALLREDUCE: status = one_allreduce(&g, round, x, count, err); break;
        case TUTTI_REDUCE_SCATTER: status = one_reduce_scatter(&g, round, x, count, err); break;
        case TUTTI_ALLGATHER: status = one_allgather(&g, round, x, count, err); break;
        case TUTTI_BROADCAST: status = one_broadcast(&g, round, root, x, count, err); break;
        case TUTTI_BARRIER: status = one_barrier(&g, c, round, err); break;
        default: break; /* see parts */
        }
    }
    tutti_free(own);
    return status;
}

/* ---- with a root, or with parts of their own lengths, some of them empty ---- */
static size_t part_of(const explore_case *c, uint64_t round, int from, int to)
{
    return (size_t)draw_of(c, "part", 10000 * round + 100 * (uint64_t)from + (uint64_t)to, 4) * 7;
}

static tutti_status one_reduce(tutti_group *g, uint64_t round, int root, float *x, size_t count, tutti_error *err)
{
    for (size_t i = 0; i < count; i++)
        x[i] = value(round, g->index, i);
    TUTTI_TRY(tutti_reduce(g, TUTTI_SUM, root, tutti_host(x, count, TUTTI_F32), err));
    for (size_t i = 0; i < count && g->index == root; i++)
        EXPLORE_EXPECT(x[i] == sum_of(round, NULL, g->size, i),
                       "worker %d: reduce '%s' of %zu over %d, round %llu: element %zu is %g", root,
                       g->algorithm != NULL ? g->algorithm : "(chosen)", count, g->size, (unsigned long long)round, i,
                       (double)x[i]);
    return TUTTI_OK;
}

/* Element i of member j's part is value(round, j, i) when it is gathered, and value(round, root,
   50 j + i) when it was scattered. */
static tutti_status one_move(tutti_group *g, const explore_case *c, tutti_collective kind, uint64_t round, int root,
                             float *x, tutti_error *err)
{
    size_t counts[EXPLORE_RANKS], at[EXPLORE_RANKS + 1] = { 0 };
    const bool scatter = kind == TUTTI_SCATTER, all = kind == TUTTI_ALLGATHER || g->index == root;
    float part[32], *mine = draw_of(c, "in place", round, 2) == 0 ? part : x;

    for (int j = 0; j < g->size; j++) {
        counts[j] = part_of(c, round, 0, j);
        at[j + 1] = at[j] + counts[j];
    }
    mine = mine == x && all ? x + at[g->index] : part;
    const tutti_buffer one = tutti_host(mine, counts[g->index], TUTTI_F32),
                       whole = all ? tutti_host(x, at[g->size], TUTTI_F32) : tutti_nothing();
    for (size_t i = 0; i < counts[g->index]; i++)
        mine[i] = value(round, g->index, i);
    for (int j = 0; j < g->size && scatter && all; j++)
        for (size_t i = 0; i < counts[j]; i++)
            x[at[j] + i] = value(round, root, 50 * (size_t)j + i);
    TUTTI_TRY(kind == TUTTI_ALLGATHER ? tutti_allgather_v(g, counts, one, whole, err)
              : scatter               ? tutti_scatter_parts_v(g, root, counts, whole, one, err)
                                      : tutti_gather_parts_v(g, root, counts, one, whole, err));
    for (size_t i = 0; i < counts[g->index] && scatter; i++)
        EXPLORE_EXPECT(mine[i] == value(round, root, 50 * (size_t)g->index + i),
                       "worker %d: scatter '%s' over %d, round %llu: element %zu is %g", g->index,
                       g->algorithm != NULL ? g->algorithm : "(chosen)", g->size, (unsigned long long)round, i,
                       (double)mine[i]);
    for (int j = 0; j < g->size && !scatter && all; j++)
        for (size_t i = 0; i < counts[j]; i++)
            EXPLORE_EXPECT(x[at[j] + i] == value(round, j, i),
                           "worker %d: gather '%s' over %d, round %llu: element %zu of part %d is %g", g->index,
                           g->algorithm != NULL ? g->algorithm : "(chosen)", g->size, (unsigned long long)round, i, j,
                           (double)x[at[j] + i]);
    return TUTTI_OK;
}

/* Element i of what j sends k is value(round, j, 50 k + i). */
static tutti_status one_alltoall(tutti_group *g, const explore_case *c, uint64_t round, float *x, tutti_error *err)
{
    size_t counts[2 * EXPLORE_RANKS], sends = 0, takes = 0;
    float out[EXPLORE_RANKS * 32], *const to = draw_of(c, "in place", round, 2) == 0 ? x : out;
    const int p = g->size;

    for (int j = 0; j < p; j++) {
        counts[j] = part_of(c, round, g->index, j);
        counts[p + j] = part_of(c, round, j, g->index);
        for (size_t i = 0; i < counts[j]; i++)
            x[sends + i] = value(round, g->index, 50 * (size_t)j + i);
        sends += counts[j];
        takes += counts[p + j];
    }
    TUTTI_TRY(tutti_alltoall_v(g, counts, tutti_host(x, sends, TUTTI_F32), tutti_host(to, takes, TUTTI_F32), err));
    takes = 0;
    for (int j = 0; j < p; j++)
        for (size_t i = 0; i < counts[p + j]; i++, takes++)
            EXPLORE_EXPECT(to[takes] == value(round, j, 50 * (size_t)g->index + i),
                           "worker %d: all-to-all '%s' over %d, round %llu: element %zu from %d is %g", g->index,
                           g->algorithm != NULL ? g->algorithm : "(chosen)", p, (unsigned long long)round, i, j,
                           (double)to[takes]);
    return TUTTI_OK;
}

static tutti_status parts_of(tutti_world *world, explore_case *c, tutti_collective least, tutti_collective last,
                             uint32_t rounds, tutti_error *err)
{
    tutti_group g = tutti_group_workers(world, 12);
    float x[3000];

    for (uint64_t round = 1; round <= rounds; round++) {
        const tutti_collective now =
            (tutti_collective)((uint64_t)least + draw_of(c, "kind", round, (uint64_t)(last - least) + 1));
        const int root = (int)draw_of(c, "root", round, (uint64_t)g.size);
        g.algorithm = algorithm_of(c, now, round, g.size);
        TUTTI_TRY(now == TUTTI_REDUCE     ? one_reduce(&g, round, root, x, count_of(c, round) % 3000, err)
                  : now == TUTTI_ALLTOALL ? one_alltoall(&g, c, round, x, err)
                                          : one_move(&g, c, now, round, root, x, err));
        if (now != TUTTI_ALLTOALL && now != TUTTI_REDUCE && round % 2 == 0)
            TUTTI_TRY(one_move(&g, c, TUTTI_ALLGATHER, round, 0, x, err));
    }
    return TUTTI_OK;
}

static tutti_status parts(tutti_world *world, explore_case *c, tutti_error *err)
{
    return parts_of(world, c, TUTTI_REDUCE, TUTTI_ALLTOALL, 6, err);
}
static tutti_status reduce(tutti_world *world, explore_case *c, tutti_error *err)
{
    return parts_of(world, c, TUTTI_REDUCE, TUTTI_REDUCE, 4, err);
}
static tutti_status alltoall(tutti_world *world, explore_case *c, tutti_error *err)
{
    return parts_of(world, c, TUTTI_ALLTOALL, TUTTI_ALLTOALL, 5, err);
}

static tutti_status barrier(tutti_world *world, explore_case *c, tutti_error *err)
{
    return several(world, c, TUTTI_BARRIER, false, 6, err);
}
static tutti_status allreduce(tutti_world *world, explore_case *c, tutti_error *err)
{
    return several(world, c, TUTTI_ALLREDUCE, false, 4, err);
}
static tutti_status broadcast(tutti_world *world, explore_case *c, tutti_error *err)
{
    return several(world, c, TUTTI_BROADCAST, false, 5, err);
}
static tutti_status allgather(tutti_world *world, explore_case *c, tutti_error *err)
{
    return several(world, c, TUTTI_ALLGATHER, false, 4, err);
}
static tutti_status reduce_scatter(tutti_world *world, explore_case *c, tutti_error *err)
{
    return several(world, c, TUTTI_REDUCE_SCATTER, false, 4, err);
}
static tutti_status mixture(tutti_world *world, explore_case *c, tutti_error *err)
{
    return several(world, c, TUTTI_BARRIER, true, 8, err);
}

/* Broadcasts have no echo: a root may be as far ahead as the rendezvous table has entries, and
   further. */
static tutti_status far_ahead(tutti_world *world, explore_case *c, tutti_error *err)
{
    tutti_group g = tutti_group_workers(world, 4);
    float x[8];

    for (uint64_t round = 1; round <= 70; round++)
        TUTTI_TRY(one_broadcast(&g, round, 0, x, 1 + round % 8, err));
    return one_barrier(&g, c, 71, err);
}

/* Vectors longer than a stage: its halves are used again. */
static tutti_status long_vector(tutti_world *world, explore_case *c, tutti_error *err)
{
    tutti_group g = tutti_group_workers(world, 5);
    void *window;
    float *own, *x;
    tutti_status status = memory_open(world, c, MOST, &window, &own, &x, err);

    for (uint64_t round = 1; round <= 2 && status == TUTTI_OK; round++)
        status = one_allreduce(&g, round, x, MOST - (size_t)(explore_draw(c, "less", 3) * 50000), err);
    tutti_free(own);
    return status;
}

/* ---- several collectives at once, on the lanes of a rank ---- */
enum { PIECES = 5, TURNS = 3 };
typedef struct piece_job { tutti_job job; tutti_group group; uint64_t round; float *x; size_t count; } piece_job;

static tutti_status run_piece(tutti_job *job, tutti_error *err)
{
    piece_job *const p = job->owner;

    return one_allreduce(&p->group, p->round, p->x, p->count, err);
}

/* Where ranks die, some of those that have learned of it leave at once and some stay until all
   survivors have ended their collectives: neither may leave another rank waiting. */
static void linger(tutti_world *world, const explore_case *c, uint64_t one_in)
{
    tutti_request out[EXPLORE_RANKS] = { 0 }, in[EXPLORE_RANKS] = { 0 }, *one;
    const int rank = tutti_world_rank(world);

    if (one_in != UINT64_MAX && draw_of(c, "leaves", (uint64_t)rank, one_in) == 0)
        return;
    for (int r = 0; r < c->ranks; r++) {
        if (r == rank ||
            tutti_post_send(world, &out[r], r, tutti_port_of("over", 0, 0), NULL, tutti_nothing(), NULL) != TUTTI_OK)
            continue;
        (void)tutti_post_recv(world, &in[r], r, tutti_port_of("over", 0, 0), tutti_nothing(), NULL);
    }
    for (int r = 0; r < c->ranks; r++) {
        one = &in[r];
        (void)tutti_wait_some(world, &one, 1, 1, TUTTI_FOREVER, NULL, NULL);
        one = &out[r];
        (void)tutti_wait_some(world, &one, 1, 1, TUTTI_FOREVER, NULL, NULL);
    }
}

static tutti_status keyed(tutti_world *world, explore_case *c, tutti_error *err)
{
    tutti_group all = tutti_group_workers(world, 6);
    piece_job jobs[PIECES] = { 0 };
    tutti_lane *lane;
    void *window;
    float *own, *x;
    tutti_status status;

    TUTTI_TRY(memory_open(world, c, PIECES * 4096, &window, &own, &x, err));
    /* the same on all: 0 runs here */
    status = tutti_lane_open(&lane, tutti_world_runtime(world), "pieces", (int)explore_draw(c, "width", 4), err);
    /* With deaths one turn, in which every rank makes every call: a rank that makes no call
       because it knows more leaves others waiting. */
    for (uint32_t turn = 1; turn <= (c->piece->deaths ? 1 : TURNS) && status == TUTTI_OK; turn++) {
        for (int k = 0; k < PIECES; k++) {
            jobs[k].group = tutti_group_keyed(&all, (uint64_t)k + 1, turn);
            jobs[k].group.algorithm = algorithm_of(c, TUTTI_ALLREDUCE, (uint64_t)k, all.size);
            jobs[k].round = 100 * turn + (uint64_t)k;
            jobs[k].x = x + 4096 * k;
            jobs[k].count = count_of(c, 10 + (uint64_t)k) % 4096 + 1;
            jobs[k].job.run = run_piece;
            jobs[k].job.owner = &jobs[k];
            tutti_lane_start(lane, &jobs[k].job);
        }
        for (int k = 0; k < PIECES; k++) {
            const tutti_status one = tutti_job_wait(lane, &jobs[k].job, status == TUTTI_OK ? err : NULL);
            status = status == TUTTI_OK ? one : status;
        }
        if (status == TUTTI_OK && !c->piece->deaths && explore_draw(c, "beside", 2) == 0)
            status = one_barrier(&all, c, turn, err);
    }
    tutti_lane_close(lane);
    if (c->piece->deaths)
        linger(world, c, 3);
    tutti_free(own);
    return status;
}

/* Two groups that share ranks, each on a thread of its own; and one that
   comes again with the same context. */
typedef struct side { tutti_world *world; explore_case *c; const int *ranks; int n; uint64_t context; } side;
static tutti_status run_side(void *arg, tutti_error *err)
{
    const side *const s = arg;
    float x[1100];

    for (uint64_t round = 1; round <= 4; round++) {
        tutti_group g = tutti_group_of(s->world, s->ranks, s->n, s->context);
        g.sequence = (uint32_t)round * 10;
        g.algorithm = algorithm_of(s->c, TUTTI_ALLREDUCE, round + s->context, g.size);
        if (g.index >= 0)
            TUTTI_TRY(one_allreduce(&g, round * 100 + s->context, x, round % 2 == 0 ? 1100 : 7, err));
    }
    return TUTTI_OK;
}

static tutti_status two_groups(tutti_world *world, explore_case *c, tutti_error *err)
{
    static const int back[] = { 2, 1, 0 };
    side sides[2] = { { world, c, back, 3, 1000 }, { world, c, NULL, 0, 2000 } };
    tutti_thread *thread;
    tutti_status status, other;

    TUTTI_TRY(tutti_thread_open(&thread, tutti_world_runtime(world), "other group", run_side, &sides[0], err));
    status = run_side(&sides[1], err);
    other = tutti_thread_join(thread, status == TUTTI_OK ? err : NULL);
    return status == TUTTI_OK ? other : status;
}

/* Threads of a rank in shared memory at the same time, each with a group of its own. */
static tutti_status run_rendezvous(void *arg, tutti_error *err)
{
    const side *const s = arg;
    tutti_group g = tutti_group_workers(s->world, s->context);
    float x[1100];

    for (uint64_t round = 1; round <= 6; round++)
        TUTTI_TRY(one_allreduce(&g, round * 100 + s->context, x, draw_of(s->c, "large", round, 3) > 0 ? 1100 : 7, err));
    return TUTTI_OK;
}

static tutti_status rendezvous_threads(tutti_world *world, explore_case *c, tutti_error *err)
{
    side sides[3];
    tutti_thread *threads[3];
    tutti_status status = TUTTI_OK;

    for (int k = 0; k < 3; k++) {
        sides[k] = (side){ world, c, NULL, 0, 3000 + (uint64_t)k };
        TUTTI_TRY(tutti_thread_open(&threads[k], tutti_world_runtime(world), "board", run_rendezvous, &sides[k], err));
    }
    for (int k = 0; k < 3; k++) {
        const tutti_status one = tutti_thread_join(threads[k], status == TUTTI_OK ? err : NULL);
        status = status == TUTTI_OK ? one : status;
    }
    return status;
}

/* ---- failures ---- */
/* One collective of several phases over shared memory, a death in it, and survivors that
   continue. */
static tutti_status dies_in_rendezvous(tutti_world *world, explore_case *c, tutti_error *err)
{
    tutti_group g = tutti_group_workers(world, 9);
    const uint64_t kind = explore_draw(c, "kind", 3);
    void *window;
    float *x;
    tutti_status status;

    TUTTI_TRY(tutti_world_window(world, "vector", 5000 * 5 * sizeof(float), &window, err));
    x = kind == 2 ? tutti_alloc(140000, sizeof *x) : window;
    status = kind == 0   ? one_broadcast(&g, 1, 0, x, 5000, err)
             : kind == 1 ? one_allgather(&g, 1, x, 5000, err)
                         : one_allreduce(&g, 1, x, 140000, err);
    linger(world, c, 3);
    if (kind == 2)
        tutti_free(x);
    return status;
}

/* One rank gives up of its own accord between two collectives: each of the others learns which
   rank it was, in the same or a later call, or gets through all. */
static tutti_status gives_up(tutti_world *world, explore_case *c, tutti_error *err)
{
    const int coward = (int)explore_draw(c, "coward", (uint64_t)c->ranks);
    const uint64_t at = 1 + explore_draw(c, "at", 5);
    tutti_group g = tutti_group_workers(world, 7);
    float x[1500];

    for (uint64_t round = 1; round <= 6; round++) {
        if (tutti_world_rank(world) == coward && round == at)
            return tutti_fail(err, TUTTI_ERR_IO, 0, "the disk of worker %d is full", coward);
        g.algorithm = algorithm_of(c, TUTTI_ALLREDUCE, round, g.size);
        TUTTI_TRY(one_allreduce(&g, round, x, draw_of(c, "large", round, 2) == 0 ? 10 : 1500, err));
    }
    return TUTTI_OK;
}

static tutti_status judge_gives_up(const explore_case *c, tutti_error *err)
{
    const int coward = (int)explore_draw(c, "coward", (uint64_t)c->ranks);

    for (int r = 0; r < c->ranks; r++) {
        if (r == coward) {
            EXPLORE_EXPECT(c->rank[r].status == TUTTI_ERR_IO, "worker %d gave up and ended with '%s'", r,
                           tutti_status_name(c->rank[r].status));
            continue;
        }
        EXPLORE_EXPECT(c->rank[r].status == TUTTI_ERR_PEER, "worker %d ended with '%s' although worker %d gave up: %s",
                       r, tutti_status_name(c->rank[r].status), coward, c->rank[r].err.text);
        EXPLORE_EXPECT(c->rank[r].err.rank == coward, "worker %d blames worker %d instead of worker %d: %s", r,
                       c->rank[r].err.rank, coward, c->rank[r].err.text);
    }
    return TUTTI_OK;
}

/* One rank makes another call: it and all others learn that calls differ, or that a rank gave up
   because of it. */
static tutti_status disagrees(tutti_world *world, explore_case *c, tutti_error *err)
{
    const int odd = (int)explore_draw(c, "odd", (uint64_t)c->ranks);
    tutti_group g = tutti_group_workers(world, 8);
    float x[3000];

    g.algorithm = algorithm_of(c, TUTTI_ALLREDUCE, 1, g.size);
    TUTTI_TRY(one_allreduce(&g, 1, x, 40, err));
    return one_allreduce(&g, 2, x, tutti_world_rank(world) == odd ? 41 : 40, err);
}

/* One rank sends its neighbour less than the neighbour expects, or nothing. A rank that has all
   that it expects may have ended before it could learn of it. */
static tutti_status disagrees_on_counts(tutti_world *world, explore_case *c, tutti_error *err)
{
    const int odd = (int)explore_draw(c, "odd", (uint64_t)c->ranks);
    tutti_group g = tutti_group_workers(world, 13);
    size_t counts[2 * EXPLORE_RANKS];
    float x[EXPLORE_RANKS * 8], y[EXPLORE_RANKS * 4];

    TUTTI_TRY(one_alltoall(&g, c, 1, x, err));
    for (int j = 0; j < 2 * g.size; j++)
        counts[j] = 4;
    if (g.index == odd)
        counts[(odd + 1) % g.size] = 2 * (size_t)explore_draw(c, "other", 2);
    g.algorithm = algorithm_of(c, TUTTI_ALLTOALL, 1, g.size);
    return tutti_alltoall_v(
        &g, counts,
        tutti_host(x, 4 * (size_t)g.size - (g.index == odd ? 4 - counts[(odd + 1) % g.size] : 0), TUTTI_F32),
        tutti_host(y, 4 * (size_t)g.size, TUTTI_F32), err);
}

static tutti_status judge_disagrees_on_counts(const explore_case *c, tutti_error *err)
{
    const int odd = (int)explore_draw(c, "odd", (uint64_t)c->ranks), deceived = (odd + 1) % c->ranks;

    EXPLORE_EXPECT(c->rank[deceived].status == TUTTI_ERR_STATE && c->rank[deceived].err.rank == odd,
                   "worker %d ended with '%s', rank %d, although worker %d sent too little", deceived,
                   tutti_status_name(c->rank[deceived].status), c->rank[deceived].err.rank, odd);
    for (int r = 0; r < c->ranks; r++)
        EXPLORE_EXPECT(c->rank[r].status == TUTTI_OK || c->rank[r].status == TUTTI_ERR_STATE ||
                           c->rank[r].status == TUTTI_ERR_PEER,
                       "worker %d ended with '%s'", r, tutti_status_name(c->rank[r].status));
    return TUTTI_OK;
}

static tutti_status judge_disagrees(const explore_case *c, tutti_error *err)
{
    for (int r = 0; r < c->ranks; r++)
        EXPLORE_EXPECT(c->rank[r].status == TUTTI_ERR_STATE || c->rank[r].status == TUTTI_ERR_PEER,
                       "worker %d ended with '%s' although the calls differ", r, tutti_status_name(c->rank[r].status));
    return TUTTI_OK;
}

/* A collective of several phases over shared memory, a death in it, then one over messages in the
   same group: a survivor that was let through the first waits there for one that was not. */
static tutti_status dies_between(tutti_world *world, explore_case *c, tutti_error *err)
{
    tutti_group g = tutti_group_workers(world, 14);
    void *window;
    float *x;
    tutti_status status;

    TUTTI_TRY(tutti_world_window(world, "vector", 1100 * EXPLORE_RANKS * sizeof(float), &window, err));
    x = window;
    g.timeout_ns = explore_draw(c, "limited", 3) == 0 ? 10 * second : 0;
    status = explore_draw(c, "kind", 2) == 0 ? one_broadcast(&g, 1, 0, x, 1100, err)
                                             : one_allgather(&g, 1, x, 1100, err);
    g.algorithm = explore_draw(c, "name", 2) == 0 ? "direct" : "tree";
    if (status == TUTTI_OK)
        status = one_allreduce(&g, 2, x, 40, err);
    linger(world, c, 8);
    return status;
}

/* ---- timeouts ---- */

enum { ROUNDS = 4 };

/* Where ranks end: shared memory behind that of barriers. */
static uint32_t *last_rounds(const explore_case *c)
{
    return (uint32_t *)(void *)c->shared + EXPLORE_RANKS;
}

static uint64_t late_round(const explore_case *c)
{
    return 1 + explore_draw(c, "at", ROUNDS);
}

/* In one round each rank sleeps before its call, for as long as it says. */
static tutti_status with_timeout(tutti_world *world, explore_case *c, int64_t sleeps_ns, tutti_error *err)
{
    tutti_group g = tutti_group_workers(world, 15);
    const tutti_collective kind = (tutti_collective)explore_draw(c, "kind", TUTTI_BARRIER + 1);
    const size_t count = count_of(c, 1);
    void *window;
    float *own, *x;
    tutti_status status = memory_open(world, c, 5000 * EXPLORE_RANKS, &window, &own, &x, err);

    g.timeout_ns = second;
    for (uint32_t round = 1; round <= ROUNDS && status == TUTTI_OK; round++) {
        g.algorithm = algorithm_of(c, kind, round, g.size);
        last_rounds(c)[tutti_world_rank(world)] = round;
        if (round == late_round(c))
            tutti_sleep_until(tutti_world_runtime(world), tutti_now_ns(tutti_world_runtime(world)) + sleeps_ns);
        switch (kind) {
        case TUTTI_ALLREDUCE: status = one_allreduce(&g, round, x, count, err); break;
        case TUTTI_REDUCE_SCATTER: status = one_reduce_scatter(&g, round, x, count, err); break;
        case TUTTI_ALLGATHER: status = one_allgather(&g, round, x, count, err); break;
        case TUTTI_BROADCAST: status = one_broadcast(&g, round, 0, x, count, err); break;
        default: status = one_barrier(&g, c, round, err); break;
        }
    }
    if (status == TUTTI_OK) { /* a member that was let through */
        last_rounds(c)[tutti_world_rank(world)] = ROUNDS + 1;
        status = one_barrier(&g, c, ROUNDS + 1, err);
    }
    linger(world, c, UINT64_MAX);
    tutti_free(own);
    return status;
}

/* Some ranks, not all, stay away for twenty times the timeout. */
static bool stays_away(const explore_case *c, int rank)
{
    const int first = (int)explore_draw(c, "late", (uint64_t)c->ranks);

    return rank == first || (c->ranks > 2 && rank == (first + 1) % c->ranks && explore_draw(c, "both", 2) == 0);
}

/* The others come together, or within 0.6 s: the time of the first is over before theirs. */
static tutti_status late(tutti_world *world, explore_case *c, tutti_error *err)
{
    const int rank = tutti_world_rank(world);

    return with_timeout(world, c,
                        stays_away(c, rank)                      ? 20 * second
                        : explore_draw(c, "together", 2) == 0
                            ? 0
                            : (int64_t)draw_of(c, "comes", (uint64_t)rank, 7) * second / 10,
                        err);
}

/* All name the same ones of those that stay away: the ones that are waited for, at least one. */
static tutti_status judge_late(const explore_case *c, tutti_error *err)
{
    const char *const text = strstr(c->rank[0].err.text, "; missing: ");

    for (int r = 0; r < c->ranks; r++)
        EXPLORE_EXPECT(!stays_away(c, r) || last_rounds(c)[r] == late_round(c),
                       "worker %d came to round %u although that before had failed", r, last_rounds(c)[r]);
    for (int r = 0; r < c->ranks; r++) {
        const char *const theirs = strstr(c->rank[r].err.text, "; missing: ");
        EXPLORE_EXPECT(c->rank[r].status == TUTTI_TIMEOUT && c->rank[r].err.rank >= 0 &&
                           stays_away(c, c->rank[r].err.rank) && theirs != NULL,
                       "worker %d ended with '%s', rank %d: %s", r, tutti_status_name(c->rank[r].status),
                       c->rank[r].err.rank, c->rank[r].err.text);
        EXPLORE_EXPECT(strcmp(theirs, text) == 0, "worker 0 says '%s', but worker %d '%s'", text, r, theirs);
        for (int k = 0; k < c->ranks; k++) {
            char name[24];
            snprintf(name, sizeof name, "rank %d ", k);
            EXPLORE_EXPECT(strstr(theirs, name) == NULL || stays_away(c, k),
                           "worker %d is there, and worker %d says '%s'", k, r, theirs);
        }
    }
    return TUTTI_OK;
}

/* A rank comes when the times of the others are just over, or about to be. */
static int64_t just_late_ns(const explore_case *c)
{
    return explore_draw(c, "close", 2) == 0 ? second + (int64_t)explore_draw(c, "sleeps", 1000) * 100
                                            : second + (int64_t)explore_draw(c, "sleeps", 1000) * 1600000;
}

static tutti_status just_late(tutti_world *world, explore_case *c, tutti_error *err)
{
    const int who = (int)explore_draw(c, "late", (uint64_t)c->ranks);

    return with_timeout(world, c, tutti_world_rank(world) == who ? just_late_ns(c) : 0, err);
}

/* All that fail name the same rank: the late one, unless it was let through to a later call. */
static tutti_status judge_just_late(const explore_case *c, tutti_error *err)
{
    const int who = (int)explore_draw(c, "late", (uint64_t)c->ranks);

    for (int r = 0; r < c->ranks; r++)
        for (int k = 0; k < r; k++)
            EXPLORE_EXPECT(c->rank[r].status == TUTTI_OK || c->rank[k].status == TUTTI_OK ||
                               c->rank[r].err.rank == c->rank[k].err.rank,
                           "worker %d blames worker %d, and worker %d blames worker %d", r, c->rank[r].err.rank, k,
                           c->rank[k].err.rank);
    for (int r = 0; r < c->ranks; r++)
        EXPLORE_EXPECT(c->rank[r].status == TUTTI_OK || c->rank[r].err.rank == who ||
                           just_late_ns(c) < second + 3 * (second / 10) ||
                           (c->rank[r].err.rank == -1 && last_rounds(c)[who] > late_round(c)),
                       "worker %d blames worker %d instead of worker %d: %s", r, c->rank[r].err.rank, who,
                       c->rank[r].err.text);
    for (int r = 0; r < c->ranks; r++)
        EXPLORE_EXPECT(c->rank[r].status == TUTTI_OK || c->rank[r].status == TUTTI_TIMEOUT,
                       "worker %d ended with '%s': %s", r, tutti_status_name(c->rank[r].status), c->rank[r].err.text);
    return TUTTI_OK;
}

/* A single call over messages, a death in it; of the survivors, which learn of it one from
   another, some leave at once. */
static tutti_status dies_in_tree(tutti_world *world, explore_case *c, tutti_error *err)
{
    static const char *const names[] = { "tree", "tree", "doubling" };
    tutti_group g = tutti_group_workers(world, 11);
    float x[40];
    tutti_status status;

    g.algorithm = names[explore_draw(c, "name", TUTTI_LENGTH(names))];
    status = one_allreduce(&g, 1, x, 40, err);
    linger(world, c, 2);
    return status;
}

/* Sums one after the other in one group: the loss that fails one of them on some ranks may let
   others through to the next. */
static tutti_status dies_in_a_row(tutti_world *world, explore_case *c, tutti_error *err)
{
    tutti_group g = tutti_group_workers(world, 13);
    float x[2];
    tutti_status status = TUTTI_OK;

    for (uint64_t k = 0; k < 6 && status == TUTTI_OK; k++)
        status = one_allreduce(&g, k, x, 2, err);
    linger(world, c, 4);
    return status;
}

const explore_piece explore_collective_pieces[] = {
    { .name = "barrier",
      .help = "barriers of all algorithms, and on the board",
      .least = 2,
      .most = 7,
      .rank_main = barrier },
    { .name = "allreduce-messages",
      .help = "all-reduces of all algorithms",
      .least = 2,
      .most = 8,
      .rank_main = allreduce,
      .carrier = EXPLORE_MESSAGES },
    { .name = "allreduce-board",
      .help = "all-reduces on the board, small and large, beside named algorithms",
      .least = 2,
      .most = 5,
      .rank_main = allreduce,
      .carrier = EXPLORE_WINDOWS },
    { .name = "allreduce-long",
      .help = "all-reduces longer than a stage of the board",
      .least = 2,
      .most = 3,
      .rank_main = long_vector },
    { .name = "broadcast", .help = "broadcasts from any root", .least = 2, .most = 7, .rank_main = broadcast },
    { .name = "broadcast-ahead",
      .help = "a root far ahead of the others",
      .least = 2,
      .most = 4,
      .rank_main = far_ahead },
    { .name = "allgather", .help = "all-gathers in place", .least = 2, .most = 6, .rank_main = allgather },
    { .name = "reduce-scatter",
      .help = "reduce-scatters in place",
      .least = 2,
      .most = 6,
      .rank_main = reduce_scatter },
    { .name = "mixture",
      .help = "eight collectives of any kind in a row",
      .least = 2,
      .most = 6,
      .rank_main = mixture },
    { .name = "reduce",
      .help = "reductions to any root",
      .least = 2,
      .most = 8,
      .rank_main = reduce,
      .carrier = EXPLORE_MESSAGES },
    { .name = "parts",
      .help = "reduce, gather, scatter and all-to-all, parts of unequal lengths",
      .least = 2,
      .most = 7,
      .rank_main = parts },
    { .name = "all-to-all",
      .help = "all-to-alls of unequal parts, in place and not",
      .least = 2,
      .most = 6,
      .rank_main = alltoall },
    { .name = "keyed-groups",
      .help = "five all-reduces at once on a lane of 0 to 3 threads, several turns",
      .least = 2,
      .most = 4,
      .rank_main = keyed },
    { .name = "two-groups",
      .help = "two groups with common members on two threads, made anew each time",
      .least = 3,
      .most = 5,
      .rank_main = two_groups },
    { .name = "board-threads",
      .help = "three threads of each rank on the board at the same time",
      .least = 2,
      .most = 3,
      .rank_main = rendezvous_threads,
      .carrier = EXPLORE_WINDOWS },
    { .name = "gives-up",
      .help = "a rank fails between collectives: all hear of it",
      .least = 2,
      .most = 5,
      .rank_main = gives_up,
      .judge = judge_gives_up },
    { .name = "disagrees",
      .help = "a rank makes another call: all hear of it",
      .least = 2,
      .most = 5,
      .rank_main = disagrees,
      .judge = judge_disagrees },
    { .name = "disagrees-on-counts",
      .help = "a rank sends less than its neighbour expects: it is named, and nobody hangs",
      .least = 2,
      .most = 5,
      .rank_main = disagrees_on_counts,
      .judge = judge_disagrees_on_counts },
    { .name = "dies-in-parts",
      .help = "a rank is killed in a reduce, gather, scatter or all-to-all: all others end",
      .least = 2,
      .most = 5,
      .rank_main = parts,
      .deaths = true },
    { .name = "dies-in-collective",
      .help = "a rank is killed while collectives run: all others end",
      .least = 2,
      .most = 5,
      .rank_main = mixture,
      .deaths = true },
    { .name = "dies-in-tree",
      .help = "a rank is killed in an all-reduce over messages; some survivors leave, some live on",
      .least = 5,
      .most = 12,
      .rank_main = dies_in_tree,
      .carrier = EXPLORE_MESSAGES,
      .deaths = true,
      .steps = 250 },
    { .name = "dies-in-a-row",
      .help = "a rank is killed in one of several small all-reduces over messages; most survivors live on",
      .least = 3,
      .most = 5,
      .rank_main = dies_in_a_row,
      .carrier = EXPLORE_MESSAGES,
      .deaths = true,
      .steps = 300 },
    { .name = "dies-on-board",
      .help = "a rank is killed in a collective of several phases on the board; survivors live on",
      .least = 3,
      .most = 5,
      .rank_main = dies_in_rendezvous,
      .carrier = EXPLORE_WINDOWS,
      .deaths = true,
      .steps = 700 },
    { .name = "late",
      .help = "ranks stay away for longer than the group's timeout: all name them",
      .least = 2,
      .most = 7,
      .rank_main = late,
      .judge = judge_late },
    { .name = "just-late",
      .help = "a rank comes when the timeout of the others is just over: nobody hangs",
      .least = 2,
      .most = 6,
      .rank_main = just_late,
      .judge = judge_just_late },
    { .name = "dies-between",
      .help = "a rank is killed in a collective on the board, before one over messages; most survivors live on",
      .least = 3,
      .most = 6,
      .rank_main = dies_between,
      .carrier = EXPLORE_WINDOWS,
      .deaths = true,
      .steps = 500 },
    { .name = "dies-beside-lanes",
      .help = "a rank is killed while several collectives are in flight",
      .least = 3,
      .most = 5,
      .rank_main = keyed,
      .deaths = true },
    { 0 },
};
