/* Goal: the collectives with a root or with parts (reduce, gather, scatter, all-to-all, and those
   with counts) give exact bits and bytes for all sizes, roots, types, memories, in place and not;
   members with other counts are named in an error; a table changes which list runs and nothing
   else. Method: see conformance.c. Values of another rank can be computed by each. */
#include "conformance_internal.h"
#include "collective/table.h"

#define HALF (VECTOR_BYTES / 2)

static int rank_of(const tutti_group *g, int index)
{
    return g->ranks != NULL ? g->ranks[index] : index;
}

static const char *name_of(const tutti_group *g)
{
    return g->algorithm != NULL ? g->algorithm : "(chosen)";
}

/* ---- one call, checked ---- */

typedef struct trial {
    tutti_group *g;
    const rank_memory *m;
    counts_sent *sent;
    tutti_dtype dtype;
    memory_kind kind;
    bool in_place;
} trial;

/* all or to a root (-1: all). */
static tutti_status one_reduction(const trial *t, int op, int root, size_t count, tutti_error *err)
{
    tutti_group *g = t->g;
    const tutti_dtype dtype = t->dtype;
    const int rank = tutti_world_rank(g->world);
    unsigned char *const x = vector_of(t->m, t->kind, rank, tutti_dtype_bytes(dtype));
    unsigned char *const in = t->in_place ? x : t->m->private + HALF;
    const tutti_buffer from = tutti_host(in, count, dtype), to = tutti_host(x, count, dtype);
    size_t where;

    values_fill(dtype, op, 1, rank, 0, count, in);
    if (root < 0)
        TUTTI_TRY(t->in_place ? tutti_allreduce(g, (tutti_reduction)op, to, err)
                              : tutti_allreduce_from(g, (tutti_reduction)op, from, to, err));
    else
        TUTTI_TRY(t->in_place ? tutti_reduce(g, (tutti_reduction)op, root, to, err)
                              : tutti_reduce_from(g, (tutti_reduction)op, root, from, to, err));
    if (root < 0 || g->index == root) {
        values_reduce(dtype, op, 1, g->size, g->ranks, 0, count, t->m->expected);
        CHECK(values_equal(dtype, x, t->m->expected, count, &where),
              "reduction '%s' of %zu %s to %d of %d, operation %d: element %zu is wrong", name_of(g), count,
              tutti_dtype_name(dtype), root, g->size, op, where);
    }
    values_fill(dtype, op, 1, rank, 0, count, t->m->expected);
    CHECK(t->in_place || memcmp(in, t->m->expected, count * tutti_dtype_bytes(dtype)) == 0,
          "a reduction of %zu changed its input", count);
    return check_traffic(g, root < 0 ? TUTTI_ALLREDUCE : TUTTI_REDUCE, count, NULL, root < 0 ? 0 : root, dtype, t->sent,
                         err);
}

/* Where part j begins and what it has, with counts or with equal parts. */
static size_t before(const size_t *counts, size_t equal, int j)
{
    size_t at = 0;

    for (int k = 0; k < j; k++)
        at += counts != NULL ? counts[k] : equal;
    return at;
}

static tutti_status check_whole(const trial *t, uint64_t seed, const size_t *counts, size_t equal,
                                const unsigned char *all, const char *what, tutti_error *err)
{
    const size_t element = tutti_dtype_bytes(t->dtype);
    size_t where;

    for (int j = 0; j < t->g->size; j++) {
        const size_t n = counts != NULL ? counts[j] : equal;
        values_fill(t->dtype, TUTTI_SUM, seed, rank_of(t->g, j), 0, n, t->m->expected);
        CHECK(values_equal(t->dtype, all + before(counts, equal, j) * element, t->m->expected, n, &where),
              "%s '%s' over %d: element %zu of part %d of %zu %s is wrong", what, name_of(t->g), t->g->size, where, j,
              n, tutti_dtype_name(t->dtype));
    }
    return TUTTI_OK;
}

/* root -1: to all. */
static tutti_status one_gather(const trial *t, int root, const size_t *counts, size_t equal, tutti_error *err)
{
    tutti_group *g = t->g;
    const size_t element = tutti_dtype_bytes(t->dtype), n = counts != NULL ? counts[g->index] : equal,
                 total = before(counts, equal, g->size);
    const int rank = tutti_world_rank(g->world);
    const bool has_all = root < 0 || root == g->index;
    unsigned char *const all = vector_of(t->m, t->kind, rank, element);
    unsigned char *const mine =
        t->in_place && has_all ? all + before(counts, equal, g->index) * element : t->m->private + HALF;
    const tutti_buffer part = tutti_host(mine, n, t->dtype),
                       whole = has_all ? tutti_host(all, total, t->dtype) : tutti_nothing();

    memset(all, 0x77, total * element);
    values_fill(t->dtype, TUTTI_SUM, 7, rank, 0, n, mine);
    if (root < 0)
        TUTTI_TRY(counts != NULL ? tutti_allgather_v(g, counts, part, whole, err)
                                 : tutti_allgather(g, part, whole, err));
    else
        TUTTI_TRY(counts != NULL ? tutti_gather_parts_v(g, root, counts, part, whole, err)
                                 : tutti_gather_parts(g, root, part, whole, err));
    if (has_all)
        TUTTI_TRY(check_whole(t, 7, counts, equal, all, "gather", err));
    return check_traffic(g, root < 0 ? TUTTI_ALLGATHER : TUTTI_GATHER, counts != NULL ? total : equal, counts,
                         root < 0 ? 0 : root, t->dtype, t->sent, err);
}

static tutti_status one_scatter(const trial *t, int root, const size_t *counts, size_t equal, tutti_error *err)
{
    tutti_group *g = t->g;
    const size_t element = tutti_dtype_bytes(t->dtype), n = counts != NULL ? counts[g->index] : equal,
                 total = before(counts, equal, g->size);
    const size_t at = before(counts, equal, g->index);
    unsigned char *const all = vector_of(t->m, t->kind, tutti_world_rank(g->world), element);
    unsigned char *const mine = t->in_place && root == g->index ? all + at * element : t->m->private + HALF;
    const tutti_buffer part = tutti_host(mine, n, t->dtype),
                       whole = root == g->index ? tutti_host(all, total, t->dtype) : tutti_nothing();
    size_t where;

    memset(mine, 0x77, n * element);
    if (root == g->index)
        values_fill(t->dtype, TUTTI_SUM, 8, rank_of(g, root), 0, total, all);
    TUTTI_TRY(counts != NULL ? tutti_scatter_parts_v(g, root, counts, whole, part, err)
                             : tutti_scatter_parts(g, root, whole, part, err));
    values_fill(t->dtype, TUTTI_SUM, 8, rank_of(g, root), at, n, t->m->expected);
    CHECK(values_equal(t->dtype, mine, t->m->expected, n, &where),
          "scatter '%s' of %zu %s from %d of %d: element %zu is wrong", name_of(g), n, tutti_dtype_name(t->dtype), root,
          g->size, where);
    return check_traffic(g, TUTTI_SCATTER, counts != NULL ? total : equal, counts, root, t->dtype, t->sent, err);
}

static tutti_status one_reduce_scatter_v(const trial *t, int op, const size_t *counts, tutti_error *err)
{
    tutti_group *g = t->g;
    const size_t element = tutti_dtype_bytes(t->dtype), n = counts[g->index], total = before(counts, 0, g->size),
                 at = before(counts, 0, g->index);
    const int rank = tutti_world_rank(g->world);
    unsigned char *const x = vector_of(t->m, t->kind, rank, element);
    unsigned char *const mine = t->in_place ? x + at * element : t->m->private + HALF;
    size_t where;

    values_fill(t->dtype, op, 2, rank, 0, total, x);
    TUTTI_TRY(tutti_reduce_scatter_v(g, (tutti_reduction)op, counts, tutti_host(x, total, t->dtype),
                                     tutti_host(mine, n, t->dtype), err));
    values_reduce(t->dtype, op, 2, g->size, g->ranks, at, n, t->m->expected);
    CHECK(values_equal(t->dtype, mine, t->m->expected, n, &where),
          "reduce-scatter of %zu of %zu %s over %d, operation %d: element %zu is wrong", n, total,
          tutti_dtype_name(t->dtype), g->size, op, where);
    return check_traffic(g, TUTTI_REDUCE_SCATTER, total, counts, 0, t->dtype, t->sent, err);
}

static void pair_counts(int p, int i, size_t round, size_t *counts)
{
    for (int j = 0; j < p; j++) {
        counts[j] = tutti_random((tutti_rng){ round, (uint64_t)i, (uint64_t)p }, (uint64_t)j) % 5 * (round % 7);
        counts[p + j] = tutti_random((tutti_rng){ round, (uint64_t)j, (uint64_t)p }, (uint64_t)i) % 5 * (round % 7);
    }
}

/* counts NULL: equal parts. Element e of what i sends j is element e + 1000 j of i's values. */
static tutti_status one_alltoall(const trial *t, const size_t *counts, size_t equal, tutti_error *err)
{
    tutti_group *g = t->g;
    const int p = g->size;
    const size_t element = tutti_dtype_bytes(t->dtype), sends = before(counts, equal, p),
                 takes = before(counts != NULL ? counts + p : NULL, equal, p);
    unsigned char *const in = vector_of(t->m, t->kind, tutti_world_rank(g->world), element);
    unsigned char *const out = t->in_place ? in : t->m->private + HALF;
    size_t where;

    for (int j = 0; j < p; j++)
        values_fill(t->dtype, TUTTI_SUM, 9, tutti_world_rank(g->world), 1000 * (size_t)j,
                    counts != NULL ? counts[j] : equal, in + before(counts, equal, j) * element);
    if (counts != NULL)
        TUTTI_TRY(tutti_alltoall_v(g, counts, tutti_host(in, sends, t->dtype), tutti_host(out, takes, t->dtype), err));
    else
        TUTTI_TRY(tutti_alltoall(g, tutti_host(in, sends, t->dtype), tutti_host(out, takes, t->dtype), err));
    for (int j = 0; j < p; j++) {
        const size_t n = counts != NULL ? counts[p + j] : equal;
        values_fill(t->dtype, TUTTI_SUM, 9, rank_of(g, j), 1000 * (size_t)g->index, n, t->m->expected);
        CHECK(values_equal(t->dtype, out + before(counts != NULL ? counts + p : NULL, equal, j) * element,
                           t->m->expected, n, &where),
              "all-to-all '%s' over %d: element %zu of %zu %s from %d is wrong", name_of(g), p, where, n,
              tutti_dtype_name(t->dtype), j);
    }
    return check_traffic(g, TUTTI_ALLTOALL, counts != NULL ? 0 : equal, counts, 0, t->dtype, t->sent, err);
}

/* ---- all of them ---- */

static const tutti_dtype all_types[] = { TUTTI_F32, TUTTI_BF16, TUTTI_F16, TUTTI_F64,
                                         TUTTI_I32, TUTTI_I64,  TUTTI_U8,  TUTTI_I8 };

static bool has_mean(tutti_dtype dtype)
{
    return dtype != TUTTI_I32 && dtype != TUTTI_I64 && dtype != TUTTI_U8 && dtype != TUTTI_I8;
}

/* Lengths that differ by member, some of them 0. */
static size_t some_counts(int p, size_t about, size_t *counts)
{
    size_t total = 0;

    for (int j = 0; j < p; j++)
        total += counts[j] = (size_t)j % 3 == 1 ? 0 : about / 2 + (size_t)j;
    return total;
}

/* Every type and operation; algorithms, roots and memories take turns over counts and sizes. */
static tutti_status every_reduction(trial *t, size_t count, size_t round, tutti_error *err)
{
    static const char *const names[] = { NULL, "flat", "tree", "direct" };

    for (size_t d = 0; d < TUTTI_LENGTH(all_types); d++)
        for (int op = TUTTI_SUM; op <= TUTTI_MIN; op++) {
            const size_t k = round + d + (size_t)op;
            const bool narrow = all_types[d] == TUTTI_BF16 || all_types[d] == TUTTI_F16;
            if (op == TUTTI_MEAN && !has_mean(all_types[d]))
                continue;
            t->dtype = all_types[d];
            t->g->algorithm = names[(k + k / 4) % 4];
            if (narrow && t->g->algorithm == names[2])
                t->g->algorithm = names[3];
            t->kind = (memory_kind)((round + d) % MEMORIES);
            t->in_place = k % 2 == 0;
            TUTTI_TRY(one_reduction(t, op, (int)(k % (size_t)t->g->size), count, err));
            t->g->algorithm = NULL;
            t->in_place = op % 2 == 1;
            if (k % 4 == 0)
                TUTTI_TRY(one_reduction(t, op, -1, count, err));
        }
    return TUTTI_OK;
}

static tutti_status every_move(trial *t, size_t count, size_t round, tutti_error *err)
{
    static const char *const trees[] = { NULL, "flat", "tree" };
    static const char *const exchanges[] = { NULL, "direct", "pairwise", "dissemination" };
    const int p = t->g->size;
    size_t counts[2 * P_MAX];

    for (size_t k = 0; k < 3; k++) {
        t->dtype = all_types[(3 * round + k) % TUTTI_LENGTH(all_types)];
        t->kind = (memory_kind)((round + k) % MEMORIES);
        t->in_place = (round + k + (size_t)p) % 2 == 0;
        (void)some_counts(p, count, counts);
        t->g->algorithm = trees[k % 3];
        const int root = (int)((round + 3 * k) % (size_t)p);
        TUTTI_TRY(one_gather(t, root, NULL, count, err));
        TUTTI_TRY(one_gather(t, root, counts, 0, err));
        TUTTI_TRY(one_scatter(t, root, NULL, count, err));
        TUTTI_TRY(one_scatter(t, root, counts, 0, err));
        t->g->algorithm = exchanges[(round + k) % 4];
        TUTTI_TRY(one_gather(t, -1, counts, 0, err));
        TUTTI_TRY(one_reduce_scatter_v(
            t, (int)(k + round) % 4 == TUTTI_MEAN && !has_mean(t->dtype) ? TUTTI_SUM : (int)(k + round) % 4, counts,
            err));
        TUTTI_TRY(one_alltoall(t, NULL, count, err));
        pair_counts(p, t->g->index, round + k, counts);
        TUTTI_TRY(one_alltoall(t, counts, 0, err));
    }
    t->g->algorithm = NULL;
    return TUTTI_OK;
}

tutti_status parts_main(tutti_world *world, void *arg, tutti_error *err)
{
    under_test *u = arg;
    const size_t p = (size_t)u->p, counts[] = { 0, 1, 2, p - 1, p, p + 1, 7 * p + 3 };
    tutti_group g = tutti_group_workers(world, 40);
    counts_sent sent;
    rank_memory m;
    trial t = { .g = &g, .m = &m, .sent = &sent };

    TUTTI_TRY(memory_open(&m, world, err));
    take_counts(world, &sent);
    for (size_t c = 0; c < TUTTI_LENGTH(counts); c++) {
        TUTTI_TRY(every_reduction(&t, counts[c], c, err));
        TUTTI_TRY(every_move(&t, counts[c], c, err));
    }
    memory_close(&m);
    return TUTTI_OK;
}

void reductions_parts_and_all_to_all_are_exact(void **state)
{
    static const int some[] = { 1, 2, 3, 5, 7, 8, 16, 17 };
    under_test *t = *state;

    if (strcmp(t->spec, "strict") == 0)
        for (int p = 1; p <= t->largest; p++)
            run_ranks(t, p, parts_main);
    else
        for (size_t s = 0; s < TUTTI_LENGTH(some) && some[s] <= t->largest; s++)
            run_ranks(t, some[s], parts_main);
}

#define LARGE 100003 /* elements, of the whole */

tutti_status large_parts_main(tutti_world *world, void *arg, tutti_error *err)
{
    under_test *u = arg;
    const size_t p = (size_t)u->p;
    static const tutti_dtype dtypes[] = { TUTTI_F32, TUTTI_BF16, TUTTI_U8 };
    static const char *const names[] = { NULL, "flat", "direct" };
    tutti_group g = tutti_group_workers(world, 41);
    size_t counts[P_MAX];
    counts_sent sent;
    rank_memory m;
    trial t = { .g = &g, .m = &m, .sent = &sent };

    TUTTI_TRY(memory_open(&m, world, err));
    take_counts(world, &sent);
    for (size_t d = 0; d < TUTTI_LENGTH(dtypes); d++) {
        t.dtype = dtypes[d];
        t.in_place = d % 2 == 1;
        t.kind = d == 0 ? WINDOW : d == 1 ? PRIVATE : UNALIGNED;
        g.algorithm = names[d];
        TUTTI_TRY(one_reduction(&t, TUTTI_SUM, (int)(d % p), LARGE, err));
        g.algorithm = NULL;
        TUTTI_TRY(one_reduction(&t, d == 2 ? TUTTI_MAX : TUTTI_MEAN, -1, LARGE, err));
        (void)some_counts((int)p, LARGE / p, counts);
        TUTTI_TRY(one_gather(&t, (int)(p - 1), counts, 0, err));
        TUTTI_TRY(one_scatter(&t, 0, counts, 0, err));
        TUTTI_TRY(one_gather(&t, -1, counts, 0, err));
        TUTTI_TRY(one_reduce_scatter_v(&t, TUTTI_SUM, counts, err));
        TUTTI_TRY(one_alltoall(&t, NULL, LARGE / p, err));
    }
    memory_close(&m);
    return TUTTI_OK;
}

void large_parts_are_exact(void **state)
{
    static const int some[] = { 1, 2, 3, 8 };

    for (size_t s = 0; s < TUTTI_LENGTH(some); s++)
        run_ranks(*state, some[s], large_parts_main);
}

static tutti_status groups_main(tutti_world *world, void *arg, tutti_error *err)
{
    static const int odd[] = { 5, 1, 3 }, back[] = { 7, 6, 5, 4, 3, 2, 1, 0 };
    const struct { const int *ranks; int n; } groups[] = { { odd, 3 }, { back, 8 }, { odd + 1, 1 } };
    counts_sent sent;
    rank_memory m;

    (void)arg;
    TUTTI_TRY(memory_open(&m, world, err));
    for (size_t k = 0; k < TUTTI_LENGTH(groups); k++)
        for (size_t round = 0; round < 3; round++) {
            tutti_group g = tutti_group_of(world, groups[k].ranks, groups[k].n, 50 + k);
            trial t = { .g = &g, .m = &m, .sent = &sent };
            g.sequence = 1000 * (uint32_t)round;
            if (g.index < 0)
                continue;
            take_counts(world, &sent);
            TUTTI_TRY(every_reduction(&t, 20 + round, round, err));
            TUTTI_TRY(every_move(&t, 9 * round, round, err));
        }
    memory_close(&m);
    return TUTTI_OK;
}

void part_collectives_work_on_subgroups(void **state)
{
    run_ranks(*state, 8, groups_main);
}

/* ---- disagreement ---- */

/* Rank 1 assumes another length of a part: in a part with the same total, where the parts are
   others' too; in one with another total; and where it takes a part for empty. */
static tutti_status disagree(const under_test *t, tutti_group *g, float *x, tutti_error *err)
{
    const bool odd_one = g->index == 1;
    size_t counts[2 * P_MAX] = { 0 };

    for (int j = 0; j < 2 * g->size; j++)
        counts[j] = 4;
    switch (t->variant) {
    case 0: /* the same sum */
        if (odd_one) {
            counts[0] = 3;
            counts[1] = 5;
        }
        return tutti_allgather_v(g, counts, tutti_f32(NULL, x + 100, counts[g->index]),
                                 tutti_f32(NULL, x, 4 * (size_t)g->size), err);
    case 1: /* another sum */
        counts[1] = odd_one ? 7 : 4;
        return tutti_reduce_scatter_v(g, TUTTI_SUM, counts, tutti_f32(NULL, x, 4 * (size_t)g->size + (odd_one ? 3 : 0)),
                                      tutti_f32(NULL, x + 100, counts[g->index]), err);
    case 2: /* rank 1 sends rank 0 more than that expects */
        counts[0] = odd_one ? 6 : 4;
        return tutti_alltoall_v(g, counts, tutti_f32(NULL, x, 4 * (size_t)g->size + (odd_one ? 2 : 0)),
                                tutti_f32(NULL, x + 100, 4 * (size_t)g->size), err);
    case 3: /* rank 1 sends rank 0 nothing, which expects something */
        counts[0] = odd_one ? 0 : 4;
        return tutti_alltoall_v(g, counts, tutti_f32(NULL, x, 4 * (size_t)g->size - (odd_one ? 4 : 0)),
                                tutti_f32(NULL, x + 100, 4 * (size_t)g->size), err);
    case 4: /* the same total, and its own part is what all assume */
        if (odd_one && g->size > 3) {
            counts[2] = 3;
            counts[3] = 5;
        } else if (odd_one) {
            counts[0] = 3;
            counts[1] = 5;
        }
        return tutti_allgather_v(g, counts, tutti_f32(NULL, x + 100, counts[g->index]),
                                 tutti_f32(NULL, x, 4 * (size_t)g->size), err);
    case 5: /* the same sum */
        if (odd_one) {
            counts[0] = 5;
            counts[1] = 3;
        }
        return tutti_reduce_scatter_v(g, TUTTI_SUM, counts, tutti_f32(NULL, x, 4 * (size_t)g->size),
                                      tutti_f32(NULL, x + 100, counts[g->index]), err);
    default: /* the root is 0, and rank 1's part has another length */
        counts[1] = odd_one ? 9 : 4;
        return tutti_gather_parts_v(g, 0, counts, tutti_f32(NULL, x + 100, counts[g->index]),
                                    g->index == 0 ? tutti_f32(NULL, x, 4 * (size_t)g->size) : tutti_nothing(), err);
    }
}

static tutti_status disagree_main(tutti_world *world, void *arg, tutti_error *err)
{
    under_test *t = arg;
    tutti_group g = tutti_group_workers(world, 42);
    rank_memory m;
    tutti_status status;

    TUTTI_TRY(memory_open(&m, world, err));
    status = disagree(t, &g, (float *)(void *)m.private, &t->errors[g.index]);
    memory_close(&m);
    *err = t->errors[g.index];
    return status;
}

void members_with_mismatched_counts_are_named(void **state)
{
    static const char *const said[] = {
        "but with other counts of parts; all members of a group must make the same calls", "F32 in all",
        "sends 6 F32 to rank 0, which expects 4 of it; all members must agree on the counts",
        "sends 0 F32 to rank 0, which expects 4 of it", "but with other counts of parts",
        "but with other counts of parts", "gather ('flat') of "
    };
    under_test *t = *state;

    for (t->variant = 0; t->variant < (int)TUTTI_LENGTH(said); t->variant++)
        for (t->p = 2; t->p <= 4; t->p++) {
            tutti_error err = { 0 };
            bool named = false;
            memset(t->errors, 0, sizeof t->errors);
            assert_int_equal(t->ops != NULL ? tutti_world_run_on(t->ops, t->spec, t->p, disagree_main, t, &err)
                                            : tutti_world_run(t->spec, t->p, disagree_main, t, &err),
                             TUTTI_ERR_STATE);
            for (int r = 0; r < t->p; r++)
                named = named || (strstr(t->errors[r].text, said[t->variant]) != NULL &&
                                  strstr(t->errors[r].text, "rank 1") != NULL);
            if (!named)
                fail_msg("variant %d, %d ranks: nobody says '%s'; rank 0: %s", t->variant, t->p, said[t->variant],
                         t->errors[0].text);
        }
}

static tutti_status wrong_main(tutti_world *world, void *arg, tutti_error *err)
{
    tutti_group g = tutti_group_workers(world, 43);
    const size_t two[] = { 2, 2 }, five[] = { 2, 3 }, huge[] = { SIZE_MAX / 2, SIZE_MAX / 2 }, self[] = { 1, 1, 2, 2 };
    const size_t me = (size_t)g.index;
    const uint32_t sequence = g.sequence;
    tutti_error e = { 0 };
    float x[16] = { 0 }, y[16];

    (void)arg;
#define REFUSED(call, sentence) \
    CHECK((call) == TUTTI_ERR_USAGE && strstr(e.text, sentence) != NULL, "refusal: %s", e.text)
    REFUSED(tutti_reduce(&g, TUTTI_SUM, 2, tutti_f32(NULL, x, 4), &e), "reduce with root 2: the members are 0 to 1");
    REFUSED(tutti_gather_parts(&g, -1, tutti_f32(NULL, x, 4), tutti_f32(NULL, y, 8), &e), "gather with root -1");
    REFUSED(tutti_scatter_parts(&g, g.index, tutti_f32(NULL, y, 7), tutti_f32(NULL, x, 4), &e),
            "scatter: a part of 4 F32 and a whole of 7 F32 over 2 members");
    REFUSED(tutti_gather_parts_v(&g, g.index, NULL, tutti_f32(NULL, x, 4), tutti_f32(NULL, y, 8), &e),
            "no counts are given");
    REFUSED(tutti_scatter_parts_v(&g, g.index, NULL, tutti_f32(NULL, y, 8), tutti_f32(NULL, x, 4), &e),
            "no counts are given");
    REFUSED(tutti_allgather_v(&g, five, tutti_f32(NULL, x, 9), tutti_f32(NULL, y, 5), &e),
            g.index == 0 ? "the count of member 0, which this is, is 2" : "the count of member 1, which this is, is 3");
    REFUSED(tutti_allgather_v(&g, five, tutti_f32(NULL, x, five[me]), tutti_f32(NULL, y, 6), &e),
            "all-gather: parts of 5 F32 in all and a whole of 6 F32");
    REFUSED(tutti_allgather_v(&g, huge, tutti_f32(NULL, x, huge[me]), tutti_f32(NULL, y, 6), &e),
            "more than there are addresses");
    REFUSED(tutti_allgather_v(&g, two, tutti_f32(NULL, y + 1, 2), tutti_f32(NULL, y, 4), &e), "overlaps the whole");
    REFUSED(tutti_gather_parts(&g, g.index, tutti_f32(NULL, y + 1, 2), tutti_f32(NULL, y, 4), &e),
            "overlaps the whole");
    REFUSED(tutti_reduce_scatter_v(&g, TUTTI_SUM, NULL, tutti_f32(NULL, y, 4), tutti_f32(NULL, x, 2), &e),
            "no counts are given");
    REFUSED(tutti_alltoall(&g, tutti_f32(NULL, x, 3), tutti_f32(NULL, y, 3), &e),
            "all-to-all from 3 F32 into 3 F32 over 2 members");
    REFUSED(tutti_alltoall(&g, tutti_f32(NULL, x, 4), tutti_host(y, 4, TUTTI_I32), &e), "into 4 I32");
    REFUSED(tutti_alltoall(&g, tutti_f32(NULL, x, 4), tutti_f32(NULL, x + 1, 4), &e), "overlap");
    REFUSED(tutti_alltoall_v(&g, NULL, tutti_f32(NULL, x, 4), tutti_f32(NULL, y, 4), &e), "no counts are given");
    REFUSED(tutti_alltoall_v(&g, self, tutti_f32(NULL, x, 3), tutti_f32(NULL, y, 4), &e),
            "but the counts send 2 and receive 4");
    REFUSED(tutti_alltoall_v(&g, self, tutti_f32(NULL, x, 2), tutti_f32(NULL, y, 4), &e),
            "sends itself 1 F32 and expects 2 of itself");
    REFUSED(tutti_allreduce_from(&g, TUTTI_SUM, tutti_f32(NULL, x, 4), tutti_f32(NULL, x + 1, 4), &e), "overlap");
    REFUSED(tutti_allreduce_from(&g, TUTTI_SUM, tutti_f32(NULL, x, 4), tutti_f32(NULL, y, 5), &e),
            "all-reduce from 4 F32 into 5 F32");
    REFUSED(tutti_reduce_from(&g, TUTTI_SUM, 0, tutti_host(x, 4, TUTTI_I32), tutti_f32(NULL, y, 4), &e),
            "reduce from 4 I32 into 4 F32");
    REFUSED(tutti_reduce(&g, TUTTI_MEAN, 0, tutti_host(x, 4, TUTTI_U8), &e), "a mean needs BF16, F16, F32 or F64");
    CHECK(g.sequence == sequence, "a call that was refused counts: %u", g.sequence);
    g.algorithm = "tree";
    REFUSED(tutti_reduce(&g, TUTTI_SUM, 0, tutti_host(x, 4, TUTTI_F16), &e),
            "reduce 'tree' sends partial sums, which F16 would round");
    g.algorithm = NULL;
    return tutti_barrier(&g, err);
}

void invalid_part_calls_are_rejected_with_a_message(void **state)
{
    run_ranks(*state, 2, wrong_main);
}

/* ---- tables ---- */

#define LOAD(text) tutti_collective_table_text(world, "table", text, strlen(text), err)

static tutti_status sent_messages(tutti_group *g, size_t count, const rank_memory *m, uint64_t *messages,
                                  uint64_t *hash, tutti_error *err)
{
    uint64_t bytes, first;
    unsigned char *const x = m->private;

    tutti_world_sent(g->world, TUTTI_ANY, &bytes, &first);
    values_fill(TUTTI_F32, TUTTI_SUM, 3, g->index, 0, count, x);
    TUTTI_TRY(tutti_allreduce(g, TUTTI_SUM, tutti_host(x, count, TUTTI_F32), err));
    tutti_world_sent(g->world, TUTTI_ANY, &bytes, messages);
    *messages -= first;
    *hash = tutti_hash(x, count * 4);
    return TUTTI_OK;
}

/* The messages show which list ran: "exchange" 4, "doubling" of the members 0 .. 4 their own,
   "direct" up to 8. "halving" is for powers of two: others take the next line that fits. Two
   members send one message by whatever list the line for them names. */
tutti_status table_main(tutti_world *world, void *arg, tutti_error *err)
{
    static const struct { const char *text, *small, *large;
    } tables[] = {
        { "", "exchange", "direct" },
        { "# nothing\n\n   \n", "exchange", "direct" },
        { "all-reduce * * tree\n", "tree", "tree" },
        { "all-reduce 2 * tree\nall-reduce * 400 doubling # small\r\nall-reduce * * halving\nall-reduce\t9 1000000 "
          "exchange",
          "doubling", "exchange" },
        { "all-reduce * 399 doubling\nbroadcast * * tree", "exchange", "direct" },
    };
    under_test *t = arg;
    tutti_group g = tutti_group_workers(world, 44);
    uint64_t hashes[2] = { 0 };
    counts_sent sent;
    rank_memory m;

    TUTTI_TRY(memory_open(&m, world, err));
    for (size_t k = 0; k < TUTTI_LENGTH(tables); k++) {
        TUTTI_TRY(LOAD(tables[k].text));
        for (int large = 0; large < 2; large++) {
            const size_t count = large ? 3000 : 100;
            const bool halves =
                large && t->p > 2 && (t->p & (t->p - 1)) == 0 && strstr(tables[k].text, "halving") != NULL;
            const char *const name = halves ? "halving" : large ? tables[k].large : tables[k].small;
            const tutti_schedule_key key = {
                TUTTI_ALLREDUCE, tutti_algorithm_find(TUTTI_ALLREDUCE, name), t->p, g.index, 0, count
            };
            uint64_t messages, hash, expected = 0;
            tutti_schedule *list;
            TUTTI_TRY(tutti_schedule_open(&list, &key, err));
            for (int j = 0; j < t->p; j++) {
                uint64_t e, n;
                tutti_schedule_sent(list, j, &e, &n);
                expected += n;
            }
            tutti_schedule_close(list);
            TUTTI_TRY(sent_messages(&g, count, &m, &messages, &hash, err));
            hashes[large] = k == 0 ? hash : hashes[large];
            CHECK(messages == expected, "table %zu, %zu elements: %llu messages, but '%s' has %llu", k, count,
                  (unsigned long long)messages, name, (unsigned long long)expected);
            CHECK(hash == hashes[large], "table %zu, %zu elements: other bits", k, count);
        }
    }
    TUTTI_TRY(LOAD("all-reduce * * doubling\n")); /* 16-bit types take what adds all at once */
    take_counts(world, &sent);
    trial one = { &g, &m, &sent, TUTTI_BF16, WINDOW, true };
    TUTTI_TRY(one_reduction(&one, TUTTI_SUM, -1, 100, err));
    TUTTI_TRY(LOAD("")); /* as it was */
    memory_close(&m);
    return TUTTI_OK;
}

void a_table_changes_the_algorithm_but_not_the_result(void **state)
{
    run_ranks(*state, 3, table_main);
    run_ranks(*state, 5, table_main);
}

static tutti_status wrong_tables_main(tutti_world *world, void *arg, tutti_error *err)
{
    static const struct { const char *text, *sentence; } wrong[] = {
        { "all-reduce 2 3\n", "table:1: not four words; a line is KIND MEMBERS BYTES ALGORITHM" },
        { "\nall-reduce 2 3 tree tree\n", "table:2: not four words" },
        { "all-reduce 2 3 tree 123456789012345678901234567890\n", "table:1: not four words" },
        { "123456789012345678901234567890123456789012345678901234567890", "table:1: not four words" },
        { "all-redice 2 3 tree\n", "table:1: no collective is named 'all-redice'" },
        { "all-reduce -2 3 tree\n", "table:1: the most members are '-2'; write a number below 2^60, or * for any" },
        { "all-reduce 2 3e tree\n", "the most bytes are '3e'" },
        { "all-reduce 2 99999999999999999999999 tree\n", "the most bytes are" },
        { "all-reduce 2 3 flat\n",
          "table:1: no algorithm of all-reduce is named 'flat'; there are exchange, doubling, tree, direct, halving" },
        { "all-reduce 2 3 ring\n", "table:1: all-reduce 'ring' does not keep the one order of summation" },
    };
    const int rank = tutti_world_rank(world);
    char other[40];
    tutti_group g = tutti_group_workers(world, 45);
    tutti_error e = { 0 };

    (void)arg;
    for (size_t k = 0; k < TUTTI_LENGTH(wrong); k++)
        CHECK(tutti_collective_table_text(world, "table", wrong[k].text, strlen(wrong[k].text), &e) ==
                      TUTTI_ERR_USAGE &&
                  strstr(e.text, wrong[k].sentence) != NULL,
              "wrong table %zu: %s", k, e.text);
    CHECK(tutti_collective_table_load(world, "/nowhere/table", &e) == TUTTI_ERR_IO &&
              strstr(e.text, "'/nowhere/table'") != NULL,
          "no file: %s", e.text);
    snprintf(other, sizeof other, "all-reduce * %d tree", rank == 2 ? 5 : 6);
    CHECK(
        tutti_collective_table_text(world, "table", other, strlen(other), &e) == TUTTI_ERR_USAGE && e.rank == 2 &&
            strstr(e.text,
                   "table of collectives 'table': rank 2 read another one than rank 0; give all ranks the same file") !=
                NULL,
        "other: %s", e.text);
    if (rank == 1)
        CHECK(LOAD("nothing") == TUTTI_ERR_USAGE, "rank 1 took it");
    else
        CHECK(tutti_collective_table_text(world, "table", "", 0, &e) == TUTTI_ERR_STATE && e.rank == 1 &&
                  strstr(e.text, "rank 1 could not read it") != NULL,
              "one fails: %s", e.text);
    return tutti_barrier(&g, err);
}

void tables_that_differ_or_are_wrong_are_refused(void **state)
{
    run_ranks(*state, 3, wrong_tables_main);
}
