/* Goal: lists whose parts have counts of their own are right for every small group, root and
   pattern of counts; lists that end at a root keep the one order for every root; what they send is
   what the formulas say; the checker notices faults in them. Method: as schedule_test.c. */
#include "collective/schedule.h"
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#define P_MAX 17

/* What `from` sends `to` in pattern k: nothing at all; one pair only; one member's part
   only; more and more; many lengths. */
static size_t sent_by(int pattern, int p, int from, int to)
{
    const uint64_t draw = tutti_random((tutti_rng){ 5, (uint64_t)from, (uint64_t)p }, (uint64_t)to);

    switch (pattern) {
    case 0: return 0;
    case 1: return from == p - 1 && to == 0 ? 3 : 0;
    case 2: return to == p / 2 ? 20 : 0;
    case 3: return (size_t)to;
    default: return draw % 3 == 0 ? 0 : draw % 37;
    }
}
enum { PATTERNS = 5 };

static size_t fill_counts(tutti_collective kind, int pattern, int p, int i, size_t *counts)
{
    size_t sum = 0;

    for (int j = 0; j < p; j++) {
        counts[j] = kind == TUTTI_ALLTOALL ? sent_by(pattern, p, i, j) : sent_by(pattern, p, p - 1, j);
        if (kind == TUTTI_ALLTOALL)
            counts[p + j] = sent_by(pattern, p, j, i);
        else
            sum += counts[j];
    }
    return sum;
}

/* pattern -1: equal parts of `count`. */
static void open_lists(tutti_schedule **lists, int row, int p, int root, int pattern, size_t count)
{
    for (int i = 0; i < p; i++) {
        size_t counts[2 * P_MAX];
        tutti_schedule_key key = { tutti_algorithms[row].kind, row, p, i, root, count };
        if (pattern >= 0) {
            key.count = fill_counts(key.kind, pattern, p, i, counts);
            key.counts = counts;
        }
        assert_int_equal(tutti_schedule_open(&lists[i], &key, NULL), TUTTI_OK);
        memset(counts, 0xff, sizeof counts); /* the list has its own copy */
    }
}

static void close_lists(tutti_schedule **lists, int p)
{
    for (int i = 0; i < p; i++)
        tutti_schedule_close(lists[i]);
}

static bool has_root(tutti_collective kind)
{
    return kind == TUTTI_REDUCE || kind == TUTTI_GATHER || kind == TUTTI_SCATTER;
}

static void every_schedule_with_counts_is_verified(void **state)
{
    tutti_schedule *lists[P_MAX];

    (void)state;
    for (int row = 0; tutti_algorithms[row].name != NULL; row++)
        for (int p = 1; p <= P_MAX && tutti_counts_of(tutti_algorithms[row].kind, 1) > 0; p++)
            for (int pattern = 0; pattern < PATTERNS; pattern++)
                for (int root = 0; root < (has_root(tutti_algorithms[row].kind) ? p : 1); root++) {
                    tutti_error err = { 0 };
                    open_lists(lists, row, p, root, pattern, 0);
                    if (tutti_schedule_check((const tutti_schedule *const *)lists, p, &err) != TUTTI_OK)
                        fail_msg("pattern %d, root %d: %s", pattern, root, err.text);
                    close_lists(lists, p);
                }
}

static void a_reduction_keeps_the_order_for_every_root(void **state)
{
    static const char *const names[] = { "flat", "tree", "direct" };
    tutti_schedule *lists[P_MAX];

    (void)state;
    for (size_t a = 0; a < TUTTI_LENGTH(names); a++)
        for (int p = 1; p <= P_MAX; p++)
            for (int root = 0; root < p; root++) {
                tutti_error err = { 0 };
                open_lists(lists, tutti_algorithm_find(TUTTI_REDUCE, names[a]), p, root, -1, 37);
                if (tutti_schedule_check((const tutti_schedule *const *)lists, p, &err) != TUTTI_OK)
                    fail_msg("root %d: %s", root, err.text);
                close_lists(lists, p);
            }
}

static void all_sent(const tutti_schedule *list, int p, uint64_t *elements, uint64_t *messages)
{
    *elements = *messages = 0;
    for (int j = 0; j < p; j++) {
        uint64_t e, m;
        tutti_schedule_sent(list, j, &e, &m);
        *elements += e;
        *messages += m;
    }
}

static void expect_sent(tutti_collective kind, const char *name, int p, int root, size_t n, int i, uint64_t elements,
                        uint64_t messages)
{
    const tutti_schedule_key key = { kind, tutti_algorithm_find(kind, name), p, i, root, n };
    tutti_schedule *list;
    uint64_t e, m;

    assert_int_equal(tutti_schedule_open(&list, &key, NULL), TUTTI_OK);
    all_sent(list, p, &e, &m);
    if (e != elements || m != messages)
        fail_msg("%s '%s' of %zu over %d, root %d: member %d sends %llu in %llu messages instead of %llu in %llu",
                 tutti_collective_name(kind), name, n, p, root, i, (unsigned long long)e, (unsigned long long)m,
                 (unsigned long long)elements, (unsigned long long)messages);
    tutti_schedule_close(list);
}

/* A message a round, and one more where the parts from i on go round the end. */
static uint64_t doublings(int p, int i)
{
    uint64_t messages = 0;

    for (int d = 1; d < p; d *= 2)
        messages += 1 + (i + (2 * d < p ? d : p - d) > p);
    return messages;
}

static void traffic_matches_the_formulas(void **state)
{
    const size_t n = 48 * 17;

    (void)state;
    for (int p = 1; p <= P_MAX; p++)
        for (int root = 0; root < p; root++)
            for (int i = 0; i < p; i++) {
                const int v = (i - root + p) % p;
                int subtree = 1, children = 0;
                const uint64_t one = i != root, others = (uint64_t)p - 1;
                while (subtree < p && (v & subtree) == 0)
                    subtree *= 2;
                for (int bit = 1; bit < subtree; bit *= 2)
                    children += v + bit < p;
                subtree = v + subtree < p ? subtree : p - v;
                expect_sent(TUTTI_REDUCE, "flat", p, root, n, i, one * n, one);
                /* each but the root hands on one vector */
                expect_sent(TUTTI_REDUCE, "tree", p, root, n, i, one * n, one);
                expect_sent(TUTTI_GATHER, "flat", p, root, n, i, one * n, one);
                expect_sent(TUTTI_SCATTER, "flat", p, root, n, i, (1 - one) * others * n, (1 - one) * others);
                expect_sent(TUTTI_GATHER, "tree", p, root, n, i, one * (uint64_t)subtree * n, one);
                expect_sent(TUTTI_SCATTER, "tree", p, root, n, i, (uint64_t)(subtree - 1) * n, (uint64_t)children);
                if (root != 0)
                    continue;
                expect_sent(TUTTI_ALLGATHER, "direct", p, 0, n, i, others * n, others);
                expect_sent(TUTTI_ALLGATHER, "dissemination", p, 0, n, i, others * n, doublings(p, i));
                expect_sent(TUTTI_ALLTOALL, "direct", p, 0, n, i, others * n, others);
                expect_sent(TUTTI_ALLTOALL, "pairwise", p, 0, n, i, others * n, others);
            }
    for (int i = 0; i < 4; i++) /* slices of 48: three to their owners, and one to the root */
        expect_sent(TUTTI_REDUCE, "direct", 4, 2, 192, i, i == 2 ? 144 : 192, i == 2 ? 3 : 4);
}

/* The root of a tree takes ceil(lg p) messages, not p - 1. */
static void tree_roots_receive_at_most_log_p_messages(void **state)
{
    static const tutti_collective kinds[] = { TUTTI_REDUCE, TUTTI_GATHER };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(kinds); k++)
        for (int p = 1; p <= P_MAX; p++)
            for (int root = 0; root < p; root++) {
                const tutti_schedule_key key = { kinds[k], tutti_algorithm_find(kinds[k], "tree"), p, root, root, 5 };
                tutti_schedule *list;
                int received = 0, lg = 0;
                assert_int_equal(tutti_schedule_open(&list, &key, NULL), TUTTI_OK);
                for (size_t s = 0; s < list->n_steps; s++)
                    received += list->steps[s].kind == TUTTI_STEP_RECV;
                while (1 << lg < p)
                    lg++;
                assert_true(received <= lg);
                assert_true(p == 1 || received > 0);
                tutti_schedule_close(list);
            }
}

/* ---- mutants ---- */

static tutti_step *step_of(tutti_schedule *s, tutti_step_kind kind)
{
    for (size_t k = 0; k < s->n_steps; k++)
        if (s->steps[k].kind == kind)
            return &s->steps[k];
    fail_msg("no such step");
    abort(); /* not reached; the compiler does not know */
}

static void swap_terms(tutti_schedule **l)
{
    const tutti_step *sum = step_of(l[2], TUTTI_STEP_SUM);
    const tutti_ref first = l[2]->terms[sum->first];

    l[2]->terms[sum->first] = l[2]->terms[sum->first + 1];
    l[2]->terms[sum->first + 1] = first;
}
static void wrong_part(tutti_schedule **l) { step_of(l[2], TUTTI_STEP_RECV)->to.at += 1; }
static void wrong_copy(tutti_schedule **l) { step_of(l[2], TUTTI_STEP_COPY)->from.at += 1; }
static void shorter(tutti_schedule **l) { step_of(l[3], TUTTI_STEP_SEND)->count--; }
static void other_peer(tutti_schedule **l) { step_of(l[3], TUTTI_STEP_SEND)->peer = 1; }

static void the_checker_notices(tutti_collective kind, const char *name, int pattern,
                                void (*mutate)(tutti_schedule **lists), const char *sentence)
{
    tutti_schedule *lists[5];
    tutti_error err = { 0 };

    open_lists(lists, tutti_algorithm_find(kind, name), 5, has_root(kind) ? 2 : 0, pattern, 40);
    mutate(lists);
    if (tutti_schedule_check((const tutti_schedule *const *)lists, 5, &err) != TUTTI_ERR_STATE ||
        strstr(err.text, sentence) == NULL)
        fail_msg("%s '%s': '%s' lacks '%s'", tutti_collective_name(kind), name, err.text, sentence);
    close_lists(lists, 5);
}

static void mutants_are_caught(void **state)
{
    (void)state;
    the_checker_notices(TUTTI_REDUCE, "flat", -1, swap_terms, "does not end as promised");
    the_checker_notices(TUTTI_REDUCE, "tree", -1, swap_terms, "does not end as promised");
    the_checker_notices(TUTTI_REDUCE, "tree", -1, other_peer, "deadlock");
    the_checker_notices(TUTTI_GATHER, "flat", 3, wrong_part, "in flight");
    the_checker_notices(TUTTI_GATHER, "tree", -1, wrong_part, "in flight");
    the_checker_notices(TUTTI_SCATTER, "flat", 3, wrong_copy, "does not end as promised");
    the_checker_notices(TUTTI_GATHER, "flat", 3, shorter, "another length");
    the_checker_notices(TUTTI_ALLGATHER, "direct", 3, wrong_copy, "outside the memory");
    the_checker_notices(TUTTI_ALLTOALL, "direct", 3, wrong_copy, "does not end as promised");
    the_checker_notices(TUTTI_ALLTOALL, "pairwise", -1, shorter, "another length");
    the_checker_notices(TUTTI_REDUCE_SCATTER, "direct", 3, swap_terms, "does not end as promised");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_schedule_with_counts_is_verified),
        cmocka_unit_test(a_reduction_keeps_the_order_for_every_root),
        cmocka_unit_test(traffic_matches_the_formulas),
        cmocka_unit_test(tree_roots_receive_at_most_log_p_messages),
        cmocka_unit_test(mutants_are_caught),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
