/* Goal: the lists that know hosts and their nodes give the tree's sums on every layout of equal
   hosts, and cross between hosts, and between nodes, as rarely as they promise. Method: the
   checker proves the lists of whole groups; traffic between every two members is counted from the
   lists and compared with the formulas, in exact elements. */
#include "collective/schedule.h"
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define P_MAX 32
typedef struct layout { int p, q, node; } layout; /* members, a host, a node (0: they do not count) */
static const layout layouts[] = {
    { 2, 2, 0 },  { 4, 2, 0 },  { 6, 2, 0 },   { 8, 2, 0 },   { 8, 4, 0 }, { 12, 4, 0 }, { 14, 2, 0 },  { 16, 8, 0 },
    { 20, 4, 0 }, { 24, 8, 0 }, { 32, 16, 0 }, { 5, 1, 0 },   { 4, 4, 0 }, { 8, 4, 2 },  { 16, 8, 2 },  { 16, 8, 4 },
    { 12, 4, 2 }, { 20, 4, 2 }, { 24, 8, 2 },  { 32, 16, 4 }, { 4, 4, 2 }, { 6, 6, 2 },  { 12, 12, 4 }, { 16, 16, 2 },
};
static const tutti_collective kinds[] = { TUTTI_ALLREDUCE, TUTTI_REDUCE_SCATTER, TUTTI_ALLGATHER };

/* pattern 0: counts that differ, some of them 0; else equal parts. */
static void open_lists(tutti_schedule **lists, tutti_collective kind, layout l, size_t count, bool own_counts)
{
    size_t counts[P_MAX], sum = 0;

    for (int j = 0; j < l.p; j++)
        sum += counts[j] = (size_t)(j * 7 % 5) * (count / 3 + 1);
    for (int i = 0; i < l.p; i++) {
        tutti_schedule_key key = { kind,
                                   tutti_algorithm_find(kind, "hierarchy"),
                                   l.p,
                                   i,
                                   0,
                                   own_counts ? sum : count,
                                   own_counts ? counts : NULL,
                                   l.q < l.p ? l.q : 0,
                                   l.node };
        tutti_error err = { 0 };
        if (tutti_schedule_open(&lists[i], &key, &err) != TUTTI_OK)
            fail_msg("%s", err.text);
    }
}

static void close_lists(tutti_schedule **lists, int p)
{
    for (int i = 0; i < p; i++)
        tutti_schedule_close(lists[i]);
}

static void schedules_of_every_layout_are_verified(void **state)
{
    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(kinds); k++)
        for (size_t l = 0; l < TUTTI_LENGTH(layouts); l++) {
            const size_t p = (size_t)layouts[l].p, counts[] = { 0, 1, 2, p, 16 * p - 1, 16 * p + 3, 35 * p };
            for (size_t c = 0; c < TUTTI_LENGTH(counts); c++)
                for (int own = 0; own <= (kinds[k] != TUTTI_ALLREDUCE); own++) {
                    tutti_schedule *lists[P_MAX];
                    tutti_error err = { 0 };
                    open_lists(lists, kinds[k], layouts[l], p > 16 && counts[c] > 80 ? 80 : counts[c], own);
                    if (tutti_schedule_check((const tutti_schedule *const *)lists, layouts[l].p, &err) != TUTTI_OK)
                        fail_msg("%s of %zu over %d members, %d a host, %d a node: %s", tutti_collective_name(kinds[k]),
                                 counts[c], layouts[l].p, layouts[l].q, layouts[l].node, err.text);
                    close_lists(lists, layouts[l].p);
                }
        }
}

static uint64_t to_host(tutti_schedule *const *lists, layout l, int from, int host)
{
    uint64_t sum = 0;

    for (int j = host * l.q; j < (host + 1) * l.q; j++) {
        uint64_t elements, messages;
        tutti_schedule_sent(lists[from], j, &elements, &messages);
        /* between hosts: to the member at the same place */
        assert_true(elements == 0 || j / l.q == from / l.q || j % l.q == from % l.q);
        sum += elements;
    }
    return sum;
}

/* All-reduce: each member of a host sends 2 n/(q P) to its counterpart of each other host (of two
   hosts: n/q). All-gather: each part goes to each other host once; reduce-scatter: one sum for
   each part. Counts divide evenly here; segments make no difference. */
static void each_element_crosses_between_hosts_once(void **state)
{
    static const layout some[] = {
        { 4, 2, 0 }, { 8, 2, 0 }, { 8, 4, 0 }, { 12, 4, 0 }, { 32, 16, 0 }, { 8, 4, 2 }, { 16, 8, 2 }, { 16, 8, 4 },
        { 12, 4, 2 }, { 32, 16, 4 },
    };

    (void)state;
    for (size_t l = 0; l < TUTTI_LENGTH(some); l++) {
        const int hosts = some[l].p / some[l].q;
        const size_t n = (size_t)some[l].p * 16 * 3 * 5 * 1000;
        for (size_t k = 0; k < TUTTI_LENGTH(kinds); k++) {
            const size_t each = kinds[k] == TUTTI_ALLREDUCE ? 2 * n / (size_t)(some[l].q * hosts) : n;
            tutti_schedule *lists[P_MAX];
            open_lists(lists, kinds[k], some[l], n, false);
            for (int i = 0; i < some[l].p; i++)
                for (int host = 0; host < hosts; host++)
                    if (host != i / some[l].q)
                        assert_int_equal(to_host(lists, some[l], i, host), each);
            close_lists(lists, some[l].p);
        }
    }
}

/* Inside a host the same holds of its nodes. What all members of a node send to the members of
   another of their host: of an all-reduce over m nodes 2 n/m (each half sends every slice once);
   of a reduce-scatter, for each other host and for their own, the sums of the parts that belong
   to members of that node or to their counterparts on that host; of an all-gather those parts.
   Between the nodes of a host a member sends only to its counterpart at the same place of the
   other node, and members of other hosts receive as much as without nodes. */
static void each_element_crosses_between_nodes_once(void **state)
{
    static const layout some[] = {
        { 4, 4, 2 }, { 16, 16, 4 }, { 16, 16, 2 }, { 6, 6, 2 }, { 8, 4, 2 }, { 16, 8, 2 }, { 32, 16, 4 },
    };

    (void)state;
    for (size_t l = 0; l < TUTTI_LENGTH(some); l++) {
        const int nodes = some[l].q / some[l].node, hosts = some[l].p / some[l].q;
        const size_t n = (size_t)some[l].p * 16 * 3 * 5 * 1000;
        for (size_t k = 0; k < TUTTI_LENGTH(kinds); k++) {
            const size_t all = kinds[k] == TUTTI_ALLREDUCE ? 2 * n / (size_t)nodes : n * (size_t)(some[l].node * hosts);
            tutti_schedule *lists[P_MAX];
            open_lists(lists, kinds[k], some[l], n, false);
            for (int from = 0; from < nodes * hosts; from++)
                for (int to = 0; to < nodes * hosts; to++) {
                    uint64_t crossed = 0, elements, messages;
                    for (int i = from * some[l].node;
                         i < (from + 1) * some[l].node && from != to && from / nodes == to / nodes; i++)
                        for (int j = to * some[l].node; j < (to + 1) * some[l].node; j++) {
                            tutti_schedule_sent(lists[i], j, &elements, &messages);
                            assert_true(elements == 0 || i % some[l].node == j % some[l].node);
                            crossed += elements;
                        }
                    assert_int_equal(crossed, from != to && from / nodes == to / nodes ? all : 0);
                }
            close_lists(lists, some[l].p);
        }
    }
}

static void scratch_memory_is_bounded(void **state)
{
    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(kinds); k++)
        for (size_t l = 0; l < TUTTI_LENGTH(layouts); l++) {
            tutti_schedule *lists[P_MAX];
            open_lists(lists, kinds[k], layouts[l], (size_t)1 << 26, false);
            for (int i = 0; i < layouts[l].p; i++)
                assert_in_range(lists[i]->scratch, 0, 2 * TUTTI_SEGMENT + 64 * P_MAX);
            close_lists(lists, layouts[l].p);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(schedules_of_every_layout_are_verified),
        cmocka_unit_test(each_element_crosses_between_hosts_once),
        cmocka_unit_test(each_element_crosses_between_nodes_once),
        cmocka_unit_test(scratch_memory_is_bounded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
