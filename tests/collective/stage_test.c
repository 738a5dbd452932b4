/* Goal: all-reduces of foreign memory give the tree's bits at every length, alignment and mixture
   of memories, whatever chunks they travel in, and call after call on the same stages. Method:
   ranks as threads and lengths at the edges of a stage's halves, each rank's vector where the draw
   puts it: malloc's memory off the line, or a window. The expected bits are computed from all
   ranks' inputs by the tree written out. */
#include "collective/rendezvous.h"
#include "tutti/comm.h"
#include "collective/world.h"
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#define HALF (TUTTI_STAGE_BYTES / sizeof(float)) /* elements of a chunk */
#define MOST (4 * HALF + 64)
#define SHIFTS 16                                /* elements a vector may begin off a line */

typedef enum { FOREIGN, REGISTERED, MIXED } memory;
typedef struct stage_case { memory where; tutti_reduction op; } stage_case;

static float input(int rank, size_t k, uint64_t turn)
{
    const uint64_t mixed = (k * 2654435761u + (uint64_t)rank * 40503u + turn * 97u) % 100003u;

    return ((float)mixed - 50000.0f) / (float)(1u << (mixed % 20)); /* sums of these round */
}

/* The tree over ranks [first, first + n). */
static float tree(int first, int n, size_t k, uint64_t turn, float weight)
{
    int half = 1;

    if (n == 1)
        return weight * input(first, k, turn);
    while (2 * half < n)
        half *= 2;
    return tree(first, half, k, turn, weight) + tree(first + half, n - half, k, turn, weight);
}

static uint32_t bits(float x)
{
    uint32_t word;

    memcpy(&word, &x, sizeof word);
    return word;
}

static tutti_status one(tutti_group *g, const stage_case *c, float *x, size_t count, uint64_t turn, tutti_error *err)
{
    const int rank = tutti_world_rank(g->world);
    const float weight = c->op == TUTTI_MEAN ? 1.0f / (float)g->size : 1.0f;

    for (size_t k = 0; k < count; k++)
        x[k] = input(rank, k, turn);
    x[count] = 12345.0f;
    TUTTI_TRY(tutti_allreduce(g, c->op, tutti_host(x, count, TUTTI_F32), err));
    for (size_t k = 0; k < count; k += count - k > 70 && k > 40 ? 13 : 1) {
        const float expected = tree(0, g->size, k, turn, weight);
        if (bits(x[k]) != bits(expected))
            return tutti_fail(err, TUTTI_ERR_CORRUPT, 0, "element %zu of %zu over %d ranks is %a, not %a", k, count,
                              g->size, (double)x[k], (double)expected);
    }
    if (x[count] != 12345.0f)
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0, "the element behind %zu elements was written", count);
    return TUTTI_OK;
}

static tutti_status rank_main(tutti_world *world, void *arg, tutti_error *err)
{
    static const size_t counts[] = { 1025,          HALF - 1, HALF,         HALF + 1,     1500,
                                     2 * HALF - 17, 2 * HALF, 2 * HALF + 1, 3 * HALF + 5, 4 * HALF };
    const stage_case *c = arg;
    const int rank = tutti_world_rank(world);
    float *own = tutti_alloc(MOST + SHIFTS + 1, sizeof *own);
    tutti_group g = tutti_group_workers(world, 5);
    tutti_status status = TUTTI_OK;
    void *window;

    if (own == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory");
    status = tutti_world_window(world, "vector", (MOST + SHIFTS + 1) * sizeof *own, &window, err);
    for (size_t k = 0; k < TUTTI_LENGTH(counts) && status == TUTTI_OK; k++) {
        const bool shared = c->where == REGISTERED || (c->where == MIXED && (rank + (int)k) % 2 == 0);
        float *x = (shared ? (float *)window : own) + (k * 5 + (size_t)rank * 3) % SHIFTS;
        status = one(&g, c, x, counts[k], k, err);
    }
    /* the same stages at once again, with no member in step with another */
    for (uint64_t turn = 100; turn < 140 && status == TUTTI_OK; turn++)
        status = one(&g, c, own + turn % 3, 1025 + (turn % 7) * 31, turn, err);
    tutti_free(own);
    return status;
}

static void run(int ranks, memory where, tutti_reduction op)
{
    stage_case c = { where, op };
    tutti_error err = { 0 };

    if (tutti_world_run("shm", ranks, rank_main, &c, &err) != TUTTI_OK)
        fail_msg("%d ranks: %s", ranks, err.text);
}

static void unregistered_vectors_are_summed_in_tree_order(void **state)
{
    (void)state;
    run(2, FOREIGN, TUTTI_SUM);
    run(3, FOREIGN, TUTTI_SUM);
    run(5, FOREIGN, TUTTI_SUM);
}

static void means_of_unregistered_vectors_scale_before_summing(void **state)
{
    (void)state;
    run(2, FOREIGN, TUTTI_MEAN);
    run(3, FOREIGN, TUTTI_MEAN);
}

/* More members than the fused kernel has registers for; and a slice of a chunk ends between
   lines. */
static void sums_over_many_members_keep_the_tree_order(void **state)
{
    (void)state;
    run(9, FOREIGN, TUTTI_SUM);
    run(9, MIXED, TUTTI_MEAN);
}

/* Types and operations without a kernel of their own go by tiles: lengths at the tiles' edges,
   for integers a wrong tree would give the same sum, so each member's input is marked in bits of
   its own; and minima of doubles. */
static tutti_status other_types(tutti_world *world, void *arg, tutti_error *err)
{
    /* of 8 bytes */
    static const size_t tile = 1024, counts[] = { tile + 1,     2 * tile - 1, 2 * tile,
                                                  2 * tile + 1, 5 * tile - 3, TUTTI_STAGE_BYTES / 8 + 100 };
    const int p = tutti_world_size(world), rank = tutti_world_rank(world);
    const size_t most = TUTTI_STAGE_BYTES / 8 + 101;
    tutti_group g = tutti_group_workers(world, 6);
    int64_t *whole;
    double *real;
    void *window;

    TUTTI_TRY(tutti_world_window(world, "words", 2 * most * sizeof *whole, &window, err));
    whole = *(const bool *)arg ? window : tutti_alloc(2 * most, sizeof *whole);
    if (whole == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory");
    real = (double *)(void *)(whole + most);
    for (size_t c = 0; c < TUTTI_LENGTH(counts); c++) {
        const size_t n = counts[c];
        for (size_t k = 0; k < n; k++) {
            whole[k] = (int64_t)(k % 251) << 8 * rank;
            real[k] = (double)((k * 7 + (size_t)rank * 3) % 11);
        }
        whole[n] = -1;
        real[n] = -1;
        TUTTI_TRY(tutti_allreduce(&g, TUTTI_SUM, tutti_host(whole, n, TUTTI_I64), err));
        TUTTI_TRY(tutti_allreduce(&g, TUTTI_MIN, tutti_host(real, n, TUTTI_F64), err));
        for (size_t k = 0; k < n; k++) {
            double least = 11;
            int64_t sum = 0;
            for (int r = 0; r < p; r++) {
                const double other = (double)((k * 7 + (size_t)r * 3) % 11);
                least = other < least ? other : least;
                sum += (int64_t)(k % 251) << 8 * r;
            }
            if (whole[k] != sum || real[k] != least)
                return tutti_fail(err, TUTTI_ERR_CORRUPT, 0, "element %zu of %zu is %lld and %g, not %lld and %g", k, n,
                                  (long long)whole[k], real[k], (long long)sum, least);
        }
        if (whole[n] != -1 || real[n] != -1)
            return tutti_fail(err, TUTTI_ERR_CORRUPT, 0, "what is behind %zu elements was written", n);
    }
    if (whole != window)
        tutti_free(whole);
    return TUTTI_OK;
}

static void integer_sums_and_minima_are_exact(void **state)
{
    (void)state;
    for (int p = 2; p <= 3; p++)
        for (int shared = 0; shared < 2; shared++) {
            bool where = shared != 0;
            tutti_error err = { 0 };
            if (tutti_world_run("shm", p, other_types, &where, &err) != TUTTI_OK)
                fail_msg("%d ranks: %s", p, err.text);
        }
}

static void registered_and_unregistered_vectors_can_be_mixed(void **state)
{
    (void)state;
    run(2, MIXED, TUTTI_SUM);
    run(3, MIXED, TUTTI_MEAN);
    run(2, REGISTERED, TUTTI_MEAN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unregistered_vectors_are_summed_in_tree_order),
        cmocka_unit_test(means_of_unregistered_vectors_scale_before_summing),
        cmocka_unit_test(registered_and_unregistered_vectors_can_be_mixed),
        cmocka_unit_test(sums_over_many_members_keep_the_tree_order),
        cmocka_unit_test(integer_sums_and_minima_are_exact),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
