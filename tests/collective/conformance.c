/* Goal: on this transport every collective gives the serial tree's bits on every member, moves
   exactly the bytes its list prescribes, survives odd groups, threads and sizes, and reports
   disagreement and death instead of hanging. Method: ranks as threads; each computes by itself
   what must come out. Ranks are not cmocka's thread: they report failures as a status and a
   sentence. */
#include "conformance_internal.h"
#include "collective/world.h"
#include <sys/mman.h>

static const int sizes[] = { 1, 2, 3, 4, 5, 7, 8, 11, 16, 17 };
#define LARGE 100003

void run_ranks(under_test *t, int p, tutti_status (*rank_main)(tutti_world *, void *, tutti_error *))
{
    tutti_error err = { 0 };
    tutti_status status;

    assert_true(p <= t->largest);
    t->p = p;
    atomic_store(&t->counter, 0);
    status = t->ops != NULL ? tutti_world_run_on(t->ops, t->spec, p, rank_main, t, &err)
                            : tutti_world_run(t->spec, p, rank_main, t, &err);
    if (status != TUTTI_OK)
        fail_msg("%d ranks on %s: %s", p, t->spec, err.text);
}

/* ---- one all-reduce in one memory by one algorithm ---- */

static const char *const memory_names[] = { "private", "window", "unaligned", "mixed" };

tutti_status memory_open(rank_memory *m, tutti_world *world, tutti_error *err)
{
    void *window;

    TUTTI_TRY(tutti_world_window(world, "vectors", VECTOR_BYTES, &window, err));
    m->window = window;
    m->private = tutti_alloc(VECTOR_BYTES, 1);
    m->expected = tutti_alloc(VECTOR_BYTES, 1);
    return TUTTI_OK;
}

void memory_close(rank_memory *m)
{
    tutti_free(m->private);
    tutti_free(m->expected);
}

unsigned char *vector_of(const rank_memory *m, memory_kind kind, int rank, size_t element)
{
    if (kind == WINDOW || (kind == MIXED && rank % 2 == 1))
        return m->window + 128;
    return kind == UNALIGNED ? m->private + 3 * element : m->private;
}

/* What this rank has sent to each other one since the last call must be what the list
   prescribes. */
tutti_status check_traffic(const tutti_group *g, tutti_collective kind, size_t count, const size_t *counts, int root,
                           tutti_dtype dtype, counts_sent *sent, tutti_error *err)
{
    const size_t element = tutti_dtype_bytes(dtype);
    tutti_schedule *list;
    int row, straggler;

    TUTTI_TRY(tutti_algorithm_wished(g->algorithm, kind, g->size, &row, &straggler, err));
    row =
        row >= 0 ? row : tutti_algorithm_choose(kind, g->size, 0, 0, counts != NULL ? count / (size_t)g->size : count);
    if ((dtype == TUTTI_BF16 || dtype == TUTTI_F16) && (tutti_algorithms[row].traits & TUTTI_PARTIAL_SUMS) != 0)
        row = tutti_algorithm_find(kind, "direct");
    const tutti_schedule_key key = { kind, row, g->size, g->index, straggler >= 0 ? straggler : root, count, counts };
    TUTTI_TRY(tutti_schedule_open(&list, &key, err));
    for (int j = 0; j < g->size; j++) {
        const int rank = g->ranks != NULL ? g->ranks[j] : j;
        uint64_t elements, messages, bytes_now, messages_now;
        if (j == g->index)
            continue;
        tutti_schedule_sent(list, j, &elements, &messages);
        tutti_world_sent(g->world, rank, &bytes_now, &messages_now);
        if (bytes_now - sent->bytes[rank] != elements * element || messages_now - sent->messages[rank] != messages) {
            tutti_schedule_close(list);
            return tutti_fail(
                err, TUTTI_ERR_NUMBER, 0,
                "%s '%s' of %zu over %d: index %d sent %d %llu bytes in %llu messages, the list says %llu in %llu",
                tutti_collective_name(kind), tutti_algorithms[row].name, count, g->size, g->index, j,
                (unsigned long long)(bytes_now - sent->bytes[rank]),
                (unsigned long long)(messages_now - sent->messages[rank]), (unsigned long long)(elements * element),
                (unsigned long long)messages);
        }
        sent->bytes[rank] = bytes_now;
        sent->messages[rank] = messages_now;
    }
    tutti_schedule_close(list);
    return TUTTI_OK;
}

void take_counts(tutti_world *world, counts_sent *c)
{
    for (int rank = 0; rank < tutti_world_size(world); rank++)
        tutti_world_sent(world, rank, &c->bytes[rank], &c->messages[rank]);
}

tutti_status one_allreduce(tutti_group *g, const rank_memory *m, counts_sent *sent, tutti_dtype dtype, int op,
                           size_t count, memory_kind kind, const unsigned char *expected, tutti_error *err)
{
    const size_t element = tutti_dtype_bytes(dtype);
    const int rank = tutti_world_rank(g->world);
    unsigned char *x = vector_of(m, kind, rank, element);
    size_t where;

    values_fill(dtype, op, 1, rank, 0, count, x);
    memset(x + count * element, 0xa5, 64); /* a guard behind */
    if (op == VALUES_WEIGHTED)
        TUTTI_TRY(tutti_allreduce_weighted(g, values_weight(rank), tutti_host(x, count, dtype), err));
    else
        TUTTI_TRY(tutti_allreduce(g, (tutti_reduction)op, tutti_host(x, count, dtype), err));
    CHECK(values_equal(dtype, x, expected, count, &where),
          "all-reduce '%s' of %zu %s, operation %d, %s memory, %d ranks: element %zu of rank %d is wrong",
          g->algorithm != NULL ? g->algorithm : "(chosen)", count, tutti_dtype_name(dtype), op, memory_names[kind],
          g->size, where, rank);
    for (int k = 0; k < 64; k++)
        CHECK(x[count * element + (size_t)k] == 0xa5, "all-reduce of %zu %s writes behind the vector", count,
              tutti_dtype_name(dtype));
    return check_traffic(g, TUTTI_ALLREDUCE, count, NULL, 0, dtype, sent, err);
}

static const char *const algorithms[] = { NULL, "exchange", "doubling", "tree", "direct", "halving" };
enum { DOUBLING = 2, TREE = 3, HALVING = 5 /* needs a power of two */ };

static tutti_status allreduce_small_main(tutti_world *world, void *arg, tutti_error *err)
{
    under_test *t = arg;
    const size_t p = (size_t)t->p, counts[] = { 0, 1, 2, p - 1, p, p + 1, 7 * p + 3 };
    static const tutti_dtype dtypes[] = { TUTTI_F32, TUTTI_F64, TUTTI_BF16, TUTTI_F16,
                                          TUTTI_I32, TUTTI_I64, TUTTI_U8,   TUTTI_I8 };
    tutti_group g = tutti_group_workers(world, 1);
    counts_sent sent;
    rank_memory m;

    TUTTI_TRY(memory_open(&m, world, err));
    take_counts(world, &sent);
    for (size_t c = 0; c < TUTTI_LENGTH(counts); c++)
        for (size_t d = 0; d < TUTTI_LENGTH(dtypes); d++)
            for (int op = TUTTI_SUM; op <= VALUES_WEIGHTED; op++) {
                if ((op == TUTTI_MEAN && d >= 4) || (op == VALUES_WEIGHTED && d > 0))
                    continue;
                values_reduce(dtypes[d], op, 1, t->p, NULL, 0, counts[c], m.expected);
                for (size_t a = 0; a < TUTTI_LENGTH(algorithms); a++) {
                    const bool partial = a == DOUBLING || a == TREE || a == HALVING,
                               narrow = dtypes[d] == TUTTI_BF16 || dtypes[d] == TUTTI_F16;
                    if ((a == HALVING && (t->p & (t->p - 1)) != 0) || (partial && narrow))
                        continue;
                    g.algorithm = algorithms[a];
                    /* every memory meets every algorithm, over the counts */
                    TUTTI_TRY(one_allreduce(&g, &m, &sent, dtypes[d], op, counts[c],
                                            (memory_kind)((c + d + a + (size_t)op) % MEMORIES), m.expected, err));
                }
            }
    memory_close(&m);
    return TUTTI_OK;
}

static void small_allreduces_match_the_tree_sum_bitwise(void **state)
{
    for (size_t s = 0; s < TUTTI_LENGTH(sizes) && sizes[s] <= ((under_test *)*state)->largest; s++)
        run_ranks(*state, sizes[s], allreduce_small_main);
}

static void expect_large(under_test *t, int p)
{
    for (int k = 0; k < 2; k++) {
        t->expected[k] = tutti_alloc(LARGE, sizeof(float));
        values_reduce(TUTTI_F32, k == 0 ? TUTTI_SUM : VALUES_WEIGHTED, 1, p, NULL, 0, LARGE, t->expected[k]);
    }
}

static void expect_nothing(under_test *t)
{
    for (int k = 0; k < 2; k++) {
        tutti_free(t->expected[k]);
        t->expected[k] = NULL;
    }
}

static tutti_status allreduce_large_main(tutti_world *world, void *arg, tutti_error *err)
{
    under_test *t = arg;
    tutti_group g = tutti_group_workers(world, 1);
    counts_sent sent;
    rank_memory m;

    TUTTI_TRY(memory_open(&m, world, err));
    take_counts(world, &sent);
    for (int kind = 0; kind < MEMORIES; kind++) {
        g.algorithm = NULL;
        TUTTI_TRY(one_allreduce(&g, &m, &sent, TUTTI_F32, TUTTI_SUM, LARGE, (memory_kind)kind, t->expected[0], err));
        TUTTI_TRY(
            one_allreduce(&g, &m, &sent, TUTTI_F32, VALUES_WEIGHTED, LARGE, (memory_kind)kind, t->expected[1], err));
        g.algorithm = algorithms[1 + kind];
        TUTTI_TRY(one_allreduce(&g, &m, &sent, TUTTI_F32, TUTTI_SUM, LARGE, (memory_kind)kind, t->expected[0], err));
        TUTTI_TRY(
            one_allreduce(&g, &m, &sent, TUTTI_F32, VALUES_WEIGHTED, LARGE, (memory_kind)kind, t->expected[1], err));
    }
    g.algorithm = NULL; /* other types, around the border between small and large */
    for (size_t count = 1023; count <= 1025; count++)
        for (int op = TUTTI_SUM; op <= TUTTI_MIN; op++)
            for (int kind = 0; kind < MEMORIES; kind++) {
                values_reduce(TUTTI_F64, op, 1, t->p, NULL, 0, count, m.expected);
                TUTTI_TRY(one_allreduce(&g, &m, &sent, TUTTI_F64, op, count, (memory_kind)kind, m.expected, err));
            }
    memory_close(&m);
    return TUTTI_OK;
}

static void large_allreduces_match_the_tree_sum_bitwise(void **state)
{
    static const int some[] = { 1, 2, 3, 4, 7, 16 };
    under_test *t = *state;

    for (size_t s = 0; s < TUTTI_LENGTH(some) && some[s] <= t->largest; s++) {
        expect_large(t, some[s]);
        run_ranks(t, some[s], allreduce_large_main);
        expect_nothing(t);
    }
}

/* ---- the other kinds ---- */

static tutti_status one_reduce_scatter(tutti_group *g, const rank_memory *m, counts_sent *sent, tutti_dtype dtype,
                                       int op, size_t count, memory_kind kind, bool own_part, tutti_error *err)
{
    const size_t element = tutti_dtype_bytes(dtype), whole = count * (size_t)g->size;
    const int rank = tutti_world_rank(g->world);
    unsigned char *x = vector_of(m, kind, rank, element),
                  *mine = own_part ? x + (size_t)g->index * count * element : m->private + VECTOR_BYTES / 2;
    size_t where;

    values_fill(dtype, op, 2, rank, 0, whole, x);
    TUTTI_TRY(
        tutti_reduce_scatter(g, (tutti_reduction)op, tutti_host(x, whole, dtype), tutti_host(mine, count, dtype), err));
    values_reduce(dtype, op, 2, g->size, g->ranks, (size_t)g->index * count, count, m->expected);
    CHECK(values_equal(dtype, mine, m->expected, count, &where),
          "reduce-scatter of %zu %s a part, operation %d, %s memory, %d members: element %zu is wrong", count,
          tutti_dtype_name(dtype), op, memory_names[kind], g->size, where);
    return check_traffic(g, TUTTI_REDUCE_SCATTER, count, NULL, 0, dtype, sent, err);
}

static tutti_status one_allgather(tutti_group *g, const rank_memory *m, counts_sent *sent, tutti_dtype dtype,
                                  size_t count, memory_kind kind, bool own_part, tutti_error *err)
{
    const size_t element = tutti_dtype_bytes(dtype);
    const int rank = tutti_world_rank(g->world);
    unsigned char *all = vector_of(m, kind, rank, element),
                  *mine = own_part ? all + (size_t)g->index * count * element : m->private + VECTOR_BYTES / 2;
    size_t where;

    memset(all, 0x77, count * (size_t)g->size * element);
    values_fill(dtype, TUTTI_SUM, 3, rank, 0, count, mine);
    TUTTI_TRY(tutti_allgather(g, tutti_host(mine, count, dtype), tutti_host(all, count * (size_t)g->size, dtype), err));
    for (int j = 0; j < g->size; j++) {
        values_fill(dtype, TUTTI_SUM, 3, g->ranks != NULL ? g->ranks[j] : j, 0, count, m->expected);
        CHECK(values_equal(dtype, all + (size_t)j * count * element, m->expected, count, &where),
              "all-gather of %zu %s a part, %s memory, %d members: element %zu of part %d is wrong", count,
              tutti_dtype_name(dtype), memory_names[kind], g->size, where, j);
    }
    return check_traffic(g, TUTTI_ALLGATHER, count, NULL, 0, dtype, sent, err);
}

tutti_status one_broadcast(tutti_group *g, const rank_memory *m, counts_sent *sent, tutti_dtype dtype, size_t count,
                           int root, memory_kind kind, tutti_error *err)
{
    const size_t element = tutti_dtype_bytes(dtype);
    const int rank = tutti_world_rank(g->world), root_rank = g->ranks != NULL ? g->ranks[root] : root;
    unsigned char *x = vector_of(m, kind, rank, element);
    size_t where;

    values_fill(dtype, TUTTI_SUM, 4, rank, 0, count, x);
    TUTTI_TRY(tutti_broadcast(g, root, tutti_host(x, count, dtype), err));
    values_fill(dtype, TUTTI_SUM, 4, root_rank, 0, count, m->expected);
    CHECK(values_equal(dtype, x, m->expected, count, &where),
          "broadcast '%s' of %zu %s from %d, %s memory, %d members: element %zu is wrong",
          g->algorithm != NULL ? g->algorithm : "(chosen)", count, tutti_dtype_name(dtype), root, memory_names[kind],
          g->size, where);
    return check_traffic(g, TUTTI_BROADCAST, count, NULL, root, dtype, sent, err);
}

/* Processes without windows share no counter, but they share their host's clock: no member leaves
   a barrier before the last one has come. */
static tutti_status barrier_by_the_clock(tutti_group *g, tutti_error *err)
{
    tutti_runtime *rt = tutti_world_runtime(g->world);
    int64_t mine[2], times[P_MAX][2];

    mine[0] = tutti_now_ns(rt);
    TUTTI_TRY(tutti_barrier(g, err));
    mine[1] = tutti_now_ns(rt);
    g->algorithm = NULL;
    TUTTI_TRY(
        tutti_allgather(g, tutti_host(mine, 2, TUTTI_I64), tutti_host(times, 2 * (size_t)g->size, TUTTI_I64), err));
    for (int i = 0; i < g->size; i++)
        for (int j = 0; j < g->size; j++)
            CHECK(times[i][1] >= times[j][0], "a barrier of %d ranks let rank %d through %lld ns before rank %d came",
                  g->size, i, (long long)(times[j][0] - times[i][1]), j);
    return TUTTI_OK;
}

static tutti_status other_kinds_main(tutti_world *world, void *arg, tutti_error *err)
{
    under_test *t = arg;
    const size_t p = (size_t)t->p, counts[] = { 0, 1, 2, p - 1, p, p + 1, 7 * p + 3, 1200, 6001 };
    static const tutti_dtype dtypes[] = { TUTTI_F32, TUTTI_U8, TUTTI_F64, TUTTI_BF16, TUTTI_I64 };
    static const char *const broadcasts[] = { NULL, "flat", "tree", "scatter" };
    static const char *const barriers[] = { NULL, "exchange", "dissemination" };
    tutti_group g = tutti_group_workers(world, 2);
    counts_sent sent;
    rank_memory m;
    void *common;
    bool fill;

    TUTTI_TRY(memory_open(&m, world, err));
    TUTTI_TRY(tutti_world_common(world, "entered", sizeof(atomic_int), &common, &fill, err));
    atomic_int *const entered = world->ops->window != NULL ? common : t->processes ? NULL : &t->counter;
    take_counts(world, &sent);
    for (size_t c = 0; c < TUTTI_LENGTH(counts); c++)
        for (int kind = 0; kind < MEMORIES; kind++) {
            const size_t k = c + (size_t)kind;
            g.algorithm = NULL;
            TUTTI_TRY(one_reduce_scatter(&g, &m, &sent, TUTTI_F32, (int)(k % 4), counts[c], (memory_kind)kind,
                                         k % 2 == 0, err));
            TUTTI_TRY(one_allgather(&g, &m, &sent, dtypes[k % 5], counts[c], (memory_kind)kind, k % 2 == 1, err));
            for (size_t a = 0; a < TUTTI_LENGTH(broadcasts); a++) {
                g.algorithm = broadcasts[a];
                TUTTI_TRY(one_broadcast(&g, &m, &sent, dtypes[(k + a) % 5], counts[c], (int)((k + a) % p),
                                        (memory_kind)kind, err));
            }
        }
    for (int round = 1; round <= 30; round++) {
        g.algorithm = barriers[round % 3];
        if (entered == NULL) {
            TUTTI_TRY(barrier_by_the_clock(&g, err));
            continue;
        }
        atomic_fetch_add(entered, 1);
        TUTTI_TRY(tutti_barrier(&g, err));
        CHECK(atomic_load(entered) >= round * t->p, "a barrier of %d ranks let somebody through", t->p);
        TUTTI_TRY(check_traffic(&g, TUTTI_BARRIER, 0, NULL, 0, TUTTI_U8, &sent, err));
    }
    memory_close(&m);
    return TUTTI_OK;
}

static void the_other_collectives_are_exact_too(void **state)
{
    for (size_t s = 0; s < TUTTI_LENGTH(sizes) && sizes[s] <= ((under_test *)*state)->largest; s++)
        run_ranks(*state, sizes[s], other_kinds_main);
}

/* ---- groups ---- */

static tutti_status groups_main(tutti_world *world, void *arg, tutti_error *err)
{
    static const int odd[] = { 5, 1, 3, 7 }, even[] = { 6, 0, 4 }, late[] = { 7, 6, 5, 4, 3, 2 }, alone[] = { 2 };
    static const struct { const int *ranks; int n; } members[] = { { odd, 4 }, { even, 3 }, { late, 6 }, { alone, 1 } };
    static const size_t counts[] = { 1, 30, 1030, 5000 };
    counts_sent sent;
    rank_memory m;
    size_t where;

    (void)arg;
    TUTTI_TRY(memory_open(&m, world, err));
    for (size_t round = 0; round < 4; round++)
        for (size_t k = 0; k < TUTTI_LENGTH(members); k++) {
            /* one context: the sets overlap only in turn */
            tutti_group g = tutti_group_of(world, members[k].ranks, members[k].n, 77);
            const memory_kind kind = (memory_kind)((round + k) % MEMORIES);
            float *x = (float *)(void *)vector_of(&m, kind, tutti_world_rank(world), 4);
            if (g.index < 0)
                continue;
            g = tutti_group_keyed(&g, k, (uint32_t)round);
            values_fill(TUTTI_F32, TUTTI_MEAN, 5, tutti_world_rank(world), 0, counts[round], x);
            TUTTI_TRY(tutti_allreduce(&g, TUTTI_MEAN, tutti_f32(NULL, x, counts[round]), err));
            values_reduce(TUTTI_F32, TUTTI_MEAN, 5, g.size, g.ranks, 0, counts[round], m.expected);
            CHECK(values_equal(TUTTI_F32, x, m.expected, counts[round], &where),
                  "group %zu, round %zu: element %zu is wrong", k, round, where);
            take_counts(world, &sent);
            TUTTI_TRY(one_broadcast(&g, &m, &sent, TUTTI_F32, counts[round], g.size - 1, kind, err));
            TUTTI_TRY(one_reduce_scatter(&g, &m, &sent, TUTTI_F32, TUTTI_SUM, counts[round], kind, false, err));
            TUTTI_TRY(one_allgather(&g, &m, &sent, TUTTI_F32, counts[round], kind, false, err));
        }
    memory_close(&m);
    return TUTTI_OK;
}

static void subgroups_sum_in_their_own_rank_order(void **state)
{
    run_ranks(*state, 8, groups_main);
}

/* Two threads a rank; even ranks run keys 0.. on the first and 100.. on the
   second, odd ranks the other way round. */
typedef struct lane {
    tutti_world *world;
    uint64_t key;
    unsigned char *memory, *expected;
    bool window;
} lane;

static tutti_status lane_main(void *arg, tutti_error *err)
{
    static const size_t counts[] = { 3, 2000, 70000, 700, 0, 1500 };
    lane *l = arg;
    const tutti_group all = tutti_group_workers(l->world, 9);
    size_t where;

    for (uint32_t turn = 0; turn < 6; turn++)
        for (uint64_t k = 0; k < 3; k++) {
            const size_t count = counts[(turn + k + l->key) % 6];
            tutti_group g = tutti_group_keyed(&all, l->key + k, turn);
            values_fill(TUTTI_F32, TUTTI_SUM, l->key + k, tutti_world_rank(l->world), 0, count, l->memory);
            TUTTI_TRY(tutti_allreduce(&g, TUTTI_SUM, tutti_host(l->memory, count, TUTTI_F32), err));
            values_reduce(TUTTI_F32, TUTTI_SUM, l->key + k, g.size, NULL, 0, count < 300 ? count : 300, l->expected);
            CHECK(values_equal(TUTTI_F32, l->memory, l->expected, count < 300 ? count : 300, &where),
                  "lane %llu, turn %u: element %zu is wrong", (unsigned long long)l->key, turn, where);
            TUTTI_TRY(tutti_broadcast(&g, (int)k % g.size, tutti_host(l->memory, count, TUTTI_F32), err));
            TUTTI_TRY(tutti_barrier(&g, err));
        }
    return TUTTI_OK;
}

static tutti_status lanes_main(tutti_world *world, void *arg, tutti_error *err)
{
    const bool swap = tutti_world_rank(world) % 2 == 1;
    tutti_thread *other;
    rank_memory m;
    tutti_status status, joined;
    tutti_error theirs = { 0 };

    (void)arg;
    TUTTI_TRY(memory_open(&m, world, err));
    lane a = { world, swap ? 100 : 0, m.private, m.expected, false };
    lane b = { world, swap ? 0 : 100, m.window, m.expected + VECTOR_BYTES / 2, true };
    TUTTI_TRY(tutti_thread_open(&other, tutti_world_runtime(world), "lane", lane_main, &b, err));
    status = lane_main(&a, err);
    joined = tutti_thread_join(other, &theirs);
    if (status == TUTTI_OK && joined != TUTTI_OK) {
        status = joined;
        *err = theirs;
    }
    memory_close(&m);
    return status;
}

static void threads_with_different_keys_do_not_interfere(void **state)
{
    static const int some[] = { 2, 3, 5 };

    for (size_t s = 0; s < TUTTI_LENGTH(some); s++)
        run_ranks(*state, some[s], lanes_main);
}

/* ---- the same bits, whatever the timing ---- */

static tutti_status repeat_main(tutti_world *world, void *arg, tutti_error *err)
{
    under_test *t = arg;
    const int rank = tutti_world_rank(world);
    tutti_group g = tutti_group_workers(world, 3);
    uint64_t first = 0;
    rank_memory m;

    TUTTI_TRY(memory_open(&m, world, err));
    for (uint32_t k = 0; k < 200; k++) {
        const memory_kind kind = (memory_kind)(k % MEMORIES);
        const size_t count = 1900;
        unsigned char *x = vector_of(&m, kind, rank, 4);
        uint64_t bits;
        values_fill(TUTTI_F32, TUTTI_SUM, 6, rank, 0, count, x);
        if (tutti_random((tutti_rng){ 7, (uint64_t)rank, k }, 0) % 16 == 0)
            tutti_sleep_until(tutti_world_runtime(world), tutti_now_ns(tutti_world_runtime(world)) + 100000);
        g.algorithm = algorithms[k / 4 % 5];
        TUTTI_TRY(tutti_allreduce(&g, TUTTI_SUM, tutti_host(x, count, TUTTI_F32), err));
        bits = tutti_hash(x, count * 4);
        first = k == 0 ? bits : first;
        CHECK(bits == first, "repetition %u on rank %d gives other bits", k, rank);
    }
    atomic_store(&t->bits[rank], first);
    memory_close(&m);
    return TUTTI_OK;
}

/* ring and stragglar: an order of their own, so integers are exact, floats the same bits on all
   members and close to the tree's. */
static tutti_status own_order_main(tutti_world *world, void *arg, tutti_error *err)
{
    under_test *t = arg;
    const size_t p = (size_t)t->p, counts[] = { 0, 1, p + 1, 16 * p - 16, 16 * p + 5, 3001 };
    tutti_group g = tutti_group_workers(world, 31), plain = tutti_group_workers(world, 32);
    char algorithm[64];
    counts_sent sent;
    rank_memory m;

    TUTTI_TRY(memory_open(&m, world, err));
    for (int k = 0; k < 2 * t->p + 1; k++) {
        const size_t count = counts[k % 6];
        const memory_kind kind = (memory_kind)(k % MEMORIES);
        unsigned char *x = vector_of(&m, kind, g.index, 4);
        int64_t least, most;
        if (k == 2 * t->p)
            snprintf(algorithm, sizeof algorithm, "ring(order=any)");
        else
            snprintf(algorithm, sizeof algorithm, "stragglar%s( straggler = %d ,order=any)",
                     k % 2 == 0 ? "" : "-greedy", k / 2);
        g.algorithm = algorithm;
        take_counts(world, &sent);
        values_reduce(TUTTI_I32, TUTTI_SUM, 1, t->p, NULL, 0, count, m.expected);
        TUTTI_TRY(one_allreduce(&g, &m, &sent, TUTTI_I32, TUTTI_SUM, count, kind, m.expected, err));
        values_fill(TUTTI_F32, TUTTI_SUM, 1, g.index, 0, count, x);
        TUTTI_TRY(tutti_allreduce_weighted(&g, values_weight(g.index), tutti_host(x, count, TUTTI_F32), err));
        least = most = (int64_t)(tutti_hash(x, count * 4) >> 1);
        TUTTI_TRY(tutti_allreduce(&plain, TUTTI_MIN, tutti_host(&least, 1, TUTTI_I64), err));
        TUTTI_TRY(tutti_allreduce(&plain, TUTTI_MAX, tutti_host(&most, 1, TUTTI_I64), err));
        CHECK(least == most, "'%s' of %zu over %d: bits differ between members", algorithm, count, t->p);
    }
    memory_close(&m);
    return TUTTI_OK;
}

static void any_order_sums_agree_on_all_ranks_bitwise(void **state)
{
    for (size_t s = 0; s < TUTTI_LENGTH(sizes) && sizes[s] <= ((under_test *)*state)->largest; s++)
        run_ranks(*state, sizes[s], own_order_main);
}

static void two_hundred_repetitions_give_equal_bits_on_all_ranks(void **state)
{
    static const int some[] = { 3, 4 };
    under_test *t = *state;

    for (size_t s = 0; s < TUTTI_LENGTH(some); s++) {
        run_ranks(t, some[s], repeat_main);
        for (int r = 1; r < some[s]; r++)
            assert_true(atomic_load(&t->bits[r]) == atomic_load(&t->bits[0]));
    }
}

tutti_status collective_conformance_rank(tutti_world *world, tutti_error *err)
{
    /* leaving_main last: rank 1 of three goes. table_main knows what up to five members take when
       no table prescribes otherwise. */
    static tutti_status (*const mains[])(tutti_world *, void *, tutti_error *) = {
        ports_main,       allreduce_small_main, allreduce_large_main, other_kinds_main, parts_main,
        large_parts_main, table_main,           lanes_main,           own_order_main,   repeat_main,
        double_main,      again_main,           common_main,          leaving_main,
    };
    static under_test t;
    tutti_status status = TUTTI_OK;

    t.p = tutti_world_size(world);
    t.processes = true;
    expect_large(&t, t.p);
    for (size_t k = 0; k < TUTTI_LENGTH(mains) && status == TUTTI_OK; k++)
        if ((mains[k] != leaving_main || t.p == 3) && (mains[k] != table_main || t.p <= 5))
            status = mains[k](world, &t, err);
    expect_nothing(&t);
    return status;
}

int collective_conformance(const tutti_transport_ops *ops, const char *spec, int largest)
{
    /* Shared: a transport may run its ranks in a child. */
    under_test *const t = mmap(NULL, sizeof *t, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct CMUnitTest tests[] = {
        cmocka_unit_test(ports_carry_headers_and_payloads),
        cmocka_unit_test(small_allreduces_match_the_tree_sum_bitwise),
        cmocka_unit_test(large_allreduces_match_the_tree_sum_bitwise),
        cmocka_unit_test(the_other_collectives_are_exact_too),
        cmocka_unit_test(subgroups_sum_in_their_own_rank_order),
        cmocka_unit_test(reductions_parts_and_all_to_all_are_exact),
        cmocka_unit_test(large_parts_are_exact),
        cmocka_unit_test(part_collectives_work_on_subgroups),
        cmocka_unit_test(members_with_mismatched_counts_are_named),
        cmocka_unit_test(invalid_part_calls_are_rejected_with_a_message),
        cmocka_unit_test(a_table_changes_the_algorithm_but_not_the_result),
        cmocka_unit_test(tables_that_differ_or_are_wrong_are_refused),
        cmocka_unit_test(threads_with_different_keys_do_not_interfere),
        cmocka_unit_test(any_order_sums_agree_on_all_ranks_bitwise),
        cmocka_unit_test(two_hundred_repetitions_give_equal_bits_on_all_ranks),
        cmocka_unit_test(small_host_values_are_reduced),
        cmocka_unit_test(a_group_made_again_does_not_mix_with_the_first),
        cmocka_unit_test(invalid_collective_calls_are_rejected_with_a_message),
        cmocka_unit_test(insisting_on_windows_works_or_is_refused),
        cmocka_unit_test(mismatched_calls_are_reported_with_both_versions),
        cmocka_unit_test(a_failed_member_ends_other_calls_with_its_rank),
        cmocka_unit_test(a_departed_rank_ends_only_calls_that_need_it),
        cmocka_unit_test(survivors_learn_the_lost_rank_and_continue),
        cmocka_unit_test(a_member_that_fails_and_lives_on_keeps_no_other_waiting),
        cmocka_unit_test(failed_groups_take_no_place_from_others),
        cmocka_unit_test(a_timeout_names_the_missing_rank_on_all_members),
        cmocka_unit_test(a_timeout_of_different_roots_names_no_member),
        cmocka_unit_test(a_timeout_does_not_change_what_ends_in_time),
        cmocka_unit_test(common_memory_is_filled_once_and_seen_by_all),
    };

    if (t == MAP_FAILED)
        return 1;
    t->ops = ops;
    t->spec = spec;
    t->largest = largest;
    for (size_t k = 0; k < TUTTI_LENGTH(tests); k++)
        tests[k].initial_state = t;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
