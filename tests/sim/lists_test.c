/* Goal: a rank's unmatched requests find the partners that messages in order need and end in one
   order, and the work of one message does not grow with the number that waits. Method: partners
   against a walk through everything, over random requests; then a thousand ranks and more that each
   send to all under one tag, as they do when they agree on their members, with a bound on the
   requests that are looked at. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>


#include "../../src/sim/lists.h"

static sim_op request(bool sends, int rank, int peer, uint64_t tag, uint64_t sequence)
{
    sim_op op = { .sends = sends, .rank = rank, .peer = peer, .tag = tag, .sequence = sequence };

    op.posted_ns = (int64_t)sequence / 3;
    return op;
}

/* ---- what partner and earliest mean, by walking through all ---- */
static sim_op *partner_of(sim_op *const *all, size_t n, const sim_op *op)
{
    sim_op *best = NULL;

    for (size_t k = 0; k < n; k++)
        if (all[k]->sends != op->sends && !all[k]->due &&
            (op->sends ? sim_fit(op, all[k]) : sim_fit(all[k], op)) &&
            (best == NULL || all[k]->sequence < best->sequence))
            best = all[k];
    return best;
}

static sim_op *earliest_of(sim_op *const *all, size_t n, const sim_op *recv)
{
    sim_op *best = NULL;

    for (size_t k = 0; k < n; k++) {
        sim_op *const op = all[k];
        if (!op->sends || !sim_fit(op, recv))
            continue;
        if (best == NULL || op->posted_ns < best->posted_ns ||
            (op->posted_ns == best->posted_ns &&
             (op->rank < best->rank || (op->rank == best->rank && op->sequence < best->sequence))))
            best = op;
    }
    return best;
}

static void in_order(const sim_link *lists)
{
    for (int b = 0; b < SIM_BUCKETS; b++)
        for (const sim_link *at = lists[b].next; at != &lists[b] && at->next != &lists[b];
             at = at->next)
            assert_true(SIM_OWNER(sim_op, link, (uintptr_t)at)->sequence <
                        SIM_OWNER(sim_op, link, (uintptr_t)at->next)->sequence);
}

static void test_partners_are_those_of_a_walk_through_all(void **state)
{
    enum { OPS = 3000, RANKS = 7, TAGS = 40 };
    static sim_op ops[OPS];
    sim_op *all[OPS];
    sim_lists lists;
    size_t n = 0;

    (void)state;
    srand(7);
    assert_true(sim_lists_open(&lists));
    for (int k = 0; k < OPS; k++) {
        const bool sends = rand() % 2 == 0;
        /* some come back from a transfer, with the number of their posting */
        const uint64_t sequence = rand() % 8 == 0 ? (uint64_t)k / 2 * 10 + 1 : (uint64_t)k * 10;
        /* tags that differ in the low bits, in the high ones, and in none of those that make the
           lists by tag */
        const uint64_t tag = (uint64_t)(rand() % TAGS) << (k % 2 == 0 ? 0 : 36);
        ops[k] = request(sends, sends ? rand() % RANKS : 0,
                         sends              ? 0
                         : rand() % 6 == 0 ? TUTTI_ANY
                                           : rand() % RANKS,
                         tag, sequence + (uint64_t)(k % 2) * 2);
        assert_ptr_equal(sim_lists_partner(&lists, &ops[k]), partner_of(all, n, &ops[k]));
        if (!sends)
            assert_ptr_equal(sim_lists_earliest(&lists, &ops[k]), earliest_of(all, n, &ops[k]));
        ops[k].due = sends && rand() % 5 == 0;
        sim_lists_insert(&lists, &ops[k]);
        assert_int_equal(ops[k].state, SIM_LISTED);
        all[n++] = &ops[k];
        while (n > 0 && rand() % (k < OPS / 2 ? 3 : 2) == 0) {
            const size_t out = (size_t)rand() % n;
            sim_lists_remove(&lists, all[out]);
            all[out] = all[--n];
        }
        assert_int_equal(lists.n, n);
    }
    in_order(lists.sends);
    in_order(lists.receives);
    sim_lists_close(&lists);
}

static void test_endings_have_one_order(void **state)
{
    /* ascending; tags 1 and 17 are in one list, 2 in the next */
    const sim_op ops[] = { request(true, 5, 0, 1, 30),  request(true, 4, 0, 17, 31),
                           request(true, 1, 0, 2, 7),   request(false, 0, 9, 1, 2),
                           request(false, 0, 8, 17, 3), request(true, 0, 1, 1, 1),
                           request(false, 1, 0, 1, 0) };

    (void)state;
    for (int a = 0; a < 7; a++)
        for (int b = 0; b < 7; b++) {
            const int order = sim_order(&ops[a], &ops[b]);
            assert_int_equal((order > 0) - (order < 0), (a > b) - (a < b));
        }
}

/* The number of requests looked at while a rank gets a message of every other under one tag.
   first: the receives are posted before the sends. backwards: in the other order of ranks. */
static uint64_t work_of(int ranks, bool first, bool backwards)
{
    sim_op *const ops = calloc(2 * (size_t)ranks, sizeof *ops);
    sim_lists lists;
    uint64_t seen;

    assert_non_null(ops);
    assert_true(sim_lists_open(&lists));
    for (int k = 0; k < 2 * ranks; k++) {
        const int turn = k % ranks, rank = backwards && k >= ranks ? ranks - 1 - turn : turn;
        const bool sends = (k >= ranks) == first;
        sim_op *other;
        ops[k] = request(sends, sends ? rank : 0, sends ? 0 : rank, 99, (uint64_t)k);
        other = sim_lists_partner(&lists, &ops[k]);
        assert_int_equal(other != NULL, k >= ranks);
        if (other == NULL)
            sim_lists_insert(&lists, &ops[k]);
        else {
            assert_int_equal(sends ? other->peer : other->rank, rank);
            sim_lists_remove(&lists, other);
        }
    }
    assert_int_equal(lists.n, 0);
    seen = lists.seen;
    sim_lists_close(&lists);
    free(ops);
    return seen;
}

static void test_the_work_of_a_message_does_not_grow(void **state)
{
    (void)state;
    for (int ranks = 64; ranks <= 16384; ranks *= 4)
        for (int way = 0; way < 4; way++) {
            const uint64_t seen = work_of(ranks, way % 2 == 0, way / 2 == 0);
            if (seen > 6 * (uint64_t)ranks)
                fail_msg("%d ranks, way %d: %llu requests are looked at", ranks, way,
                         (unsigned long long)seen);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_partners_are_those_of_a_walk_through_all),
        cmocka_unit_test(test_endings_have_one_order),
        cmocka_unit_test(test_the_work_of_a_message_does_not_grow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
