/* Goal: every algorithm's lists are right for every small group, proved by the checker; the
   checker itself notices each kind of fault; traffic counted from the lists equals the closed
   formulas. Method: all kinds and algorithms over awkward sizes and counts, then one mutation at
   a time of a list that was right. */
#include "collective/schedule.h"
#include "sanitized.h"
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define P_MAX 33

static const int sizes[] = { 1, 2, 3, 4, 5, 6, 7, 8, 11, 16, 17, 33 };

static void open_lists(tutti_schedule **lists, tutti_collective kind, int algorithm, int p, int root, size_t count)
{
    for (int i = 0; i < p; i++) {
        const tutti_schedule_key key = { kind, algorithm, p, i, root, count };
        assert_int_equal(tutti_schedule_open(&lists[i], &key, NULL), TUTTI_OK);
    }
}

static void close_lists(tutti_schedule **lists, int p)
{
    for (int i = 0; i < p; i++)
        tutti_schedule_close(lists[i]);
}

static void every_schedule_of_every_group_is_verified(void **state)
{
    (void)state;
    for (int row = 0; tutti_algorithms[row].name != NULL; row++)
        for (size_t s = 0; s < TUTTI_LENGTH(sizes); s += UNLESS_SANITIZED(1, 2)) {
            const int p = sizes[s];
            const size_t counts[] = {
                0, 1, 2, (size_t)p - 1, (size_t)p, (size_t)p + 1, (size_t)(7 * p + 3), (size_t)(33 * p)
            };
            const tutti_collective of = tutti_algorithms[row].kind;
            const bool special = of == TUTTI_BROADCAST || of == TUTTI_REDUCE || of == TUTTI_GATHER ||
                                 of == TUTTI_SCATTER || (tutti_algorithms[row].traits & TUTTI_SINGLES_OUT) != 0;
            if (!tutti_algorithm_serves(row, p))
                continue;
            for (size_t c = 0; c < TUTTI_LENGTH(counts); c++) {
                const tutti_collective kind = tutti_algorithms[row].kind;
                const size_t count = kind == TUTTI_BARRIER ? 0 : p > 16 && counts[c] > 64 ? 64 : counts[c];
                for (int root = 0; root < (special ? p : 1); root += 1 + p / 5) {
                    tutti_schedule *lists[P_MAX];
                    tutti_error err = { 0 };
                    open_lists(lists, kind, row, p, root, count);
                    if (tutti_schedule_check((const tutti_schedule *const *)lists, p, &err) != TUTTI_OK)
                        fail_msg("%s", err.text);
                    close_lists(lists, p);
                }
            }
        }
}

static void sent(tutti_schedule *const *lists, int from, int to, uint64_t elements, uint64_t messages)
{
    uint64_t e, m;

    tutti_schedule_sent(lists[from], to, &e, &m);
    assert_int_equal(e, elements);
    assert_int_equal(m, messages);
}

static uint64_t slice(size_t n, int p, int i)
{
    return tutti_slice(n, p, i + 1) - tutti_slice(n, p, i);
}

/* direct: i sends j its input of slice j and the result of slice i. exchange: n to each. Both for
   every pair. tree: n up and n down every edge of the binomial tree. */
static void traffic_matches_the_formulas(void **state)
{
    static const size_t counts[] = { 1, 16, 17, 100, 1000, 12345, 2 * TUTTI_SEGMENT };
    tutti_schedule *lists[P_MAX];

    (void)state;
    for (size_t s = 0; s < TUTTI_LENGTH(sizes); s++)
        for (size_t c = 0; c < TUTTI_LENGTH(counts); c++) {
            const int p = sizes[s];
            const size_t n = counts[c];
            open_lists(lists, TUTTI_ALLREDUCE, tutti_algorithm_find(TUTTI_ALLREDUCE, "direct"), p, 0, n);
            for (int i = 0; i < p; i++)
                for (int j = 0; j < p; j++) {
                    const size_t segments = n > TUTTI_SEGMENT ? 2 : 1, part = n / segments; /* of 2 equal segments */
                    if (i != j)
                        sent(lists, i, j, segments * (slice(part, p, j) + slice(part, p, i)),
                             segments * ((slice(part, p, j) > 0) + (slice(part, p, i) > 0)));
                }
            close_lists(lists, p);
            open_lists(lists, TUTTI_ALLREDUCE, tutti_algorithm_find(TUTTI_ALLREDUCE, "exchange"), p, 0, n);
            for (int i = 0; i < p; i++)
                for (int j = 0; j < p; j++)
                    if (i != j)
                        sent(lists, i, j, n, 1);
            close_lists(lists, p);
            open_lists(lists, TUTTI_ALLREDUCE, tutti_algorithm_find(TUTTI_ALLREDUCE, "tree"), p, 0, n);
            for (int i = 0; i < p; i++)
                for (int j = 0; j < p; j++)
                    if (i != j) {
                        const bool edge = (i & (i - 1)) == j || (j & (j - 1)) == i; /* parent: without the lowest bit */
                        sent(lists, i, j, edge ? n : 0, edge);
                    }
            close_lists(lists, p);
        }
}

/* No message goes twice over a pair in one round of doubling with a
   power of two: lg p sends of n each. */
static void doubling_sends_lg_p_vectors_for_powers_of_two(void **state)
{
    tutti_schedule *lists[P_MAX];

    (void)state;
    for (int p = 2, lg = 1; p <= 32; p *= 2, lg++) {
        open_lists(lists, TUTTI_ALLREDUCE, tutti_algorithm_find(TUTTI_ALLREDUCE, "doubling"), p, 0, 10);
        for (int i = 0; i < p; i++) {
            uint64_t all = 0, messages = 0;
            for (int j = 0; j < p; j++) {
                uint64_t e, m;
                tutti_schedule_sent(lists[i], j, &e, &m);
                all += e;
                messages += m;
            }
            assert_int_equal(all, 10 * lg);
            assert_int_equal(messages, lg);
        }
        close_lists(lists, p);
    }
}

static void slices_cover_the_vector_in_whole_lines(void **state)
{
    (void)state;
    for (size_t n = 0; n < 2000; n += n < 100 ? 1 : 37)
        for (int p = 1; p < 70; p++) {
            size_t least = SIZE_MAX, most = 0;
            assert_int_equal(tutti_slice(n, p, 0), 0);
            assert_int_equal(tutti_slice(n, p, p), n);
            for (int i = 0; i < p; i++) {
                const size_t first = tutti_slice(n, p, i), end = tutti_slice(n, p, i + 1);
                assert_true(first <= end);
                assert_true(first % 16 == 0 || first == n);
                least = end - first < least ? end - first : least;
                most = end - first > most ? end - first : most;
            }
            assert_true(most - least < 32); /* a line more, and the last one may be short */
        }
}

static void scratch_memory_of_direct_is_bounded(void **state)
{
    const tutti_collective kinds[] = { TUTTI_ALLREDUCE, TUTTI_REDUCE_SCATTER, TUTTI_REDUCE };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(kinds); k++)
        for (size_t s = 0; s < TUTTI_LENGTH(sizes); s++) {
            const tutti_schedule_key key = { kinds[k],       tutti_algorithm_find(kinds[k], "direct"), sizes[s], 0, 0,
                                             (size_t)1 << 26 };
            tutti_schedule *list;
            assert_int_equal(tutti_schedule_open(&list, &key, NULL), TUTTI_OK);
            assert_true(list->scratch <= TUTTI_SEGMENT + 64 * P_MAX);
            tutti_schedule_close(list);
        }
}

static void the_choice_depends_on_kind_size_and_count(void **state)
{
    (void)state;
#define CHOSEN(kind, p, n) tutti_algorithms[tutti_algorithm_choose(kind, p, 0, 0, n)].name
    assert_string_equal(CHOSEN(TUTTI_ALLREDUCE, 4, 1024), "exchange");
    assert_string_equal(CHOSEN(TUTTI_ALLREDUCE, 4, 1025), "direct");
    assert_string_equal(CHOSEN(TUTTI_ALLREDUCE, 17, 1024), "doubling");
    assert_string_equal(CHOSEN(TUTTI_ALLREDUCE, 100, 5000), "tree");
    assert_string_equal(CHOSEN(TUTTI_ALLREDUCE, 100, 102400), "direct");
    assert_string_equal(CHOSEN(TUTTI_ALLREDUCE, 64, 102400), "direct");
    assert_string_equal(CHOSEN(TUTTI_ALLREDUCE, 128, 1024), "doubling");
    assert_string_equal(CHOSEN(TUTTI_ALLREDUCE, 128, 5000), "halving");
    assert_string_equal(CHOSEN(TUTTI_ALLREDUCE, 128, 5000000), "halving");
    assert_string_equal(CHOSEN(TUTTI_BROADCAST, 100, 10), "tree");
    assert_string_equal(CHOSEN(TUTTI_BROADCAST, 8, 10), "flat");
    assert_string_equal(CHOSEN(TUTTI_BROADCAST, 8, 100000), "scatter");
    assert_string_equal(CHOSEN(TUTTI_BARRIER, 16, 0), "exchange");
    assert_string_equal(CHOSEN(TUTTI_BARRIER, 17, 0), "dissemination");
    assert_string_equal(CHOSEN(TUTTI_REDUCE_SCATTER, 5, 0), "direct");
    assert_string_equal(CHOSEN(TUTTI_ALLGATHER, 64, 1), "direct");
    assert_string_equal(CHOSEN(TUTTI_ALLGATHER, 65, 1023), "dissemination");
    assert_string_equal(CHOSEN(TUTTI_ALLGATHER, 500, 1024), "direct");
    assert_string_equal(CHOSEN(TUTTI_REDUCE, 16, 1024), "flat");
    assert_string_equal(CHOSEN(TUTTI_REDUCE, 17, 1024), "tree");
    assert_string_equal(CHOSEN(TUTTI_REDUCE, 17, 1025), "direct");
    assert_string_equal(CHOSEN(TUTTI_REDUCE, 100, 5000), "tree");
    assert_string_equal(CHOSEN(TUTTI_GATHER, 17, 1024), "tree");
    assert_string_equal(CHOSEN(TUTTI_GATHER, 17, 1025), "flat");
    assert_string_equal(CHOSEN(TUTTI_SCATTER, 16, 1), "flat");
    assert_string_equal(CHOSEN(TUTTI_ALLTOALL, 64, 1), "direct");
    assert_string_equal(CHOSEN(TUTTI_ALLTOALL, 65, 1), "pairwise");
}

/* A list that does not keep the one order of summation is never chosen, whatever the group and
   the count. */
static void chosen_algorithms_keep_the_summation_order(void **state)
{
    (void)state;
    for (int kind = 0; kind < TUTTI_COLLECTIVES; kind++)
        for (int p = 1; p <= 1024; p++)
            for (size_t n = 0; n < (size_t)1 << 26; n = 3 * n + 1) {
                const int row = tutti_algorithm_choose((tutti_collective)kind, p, (int)(n % 3), (int)(n % 5), n);
                assert_true((tutti_algorithms[row].traits & TUTTI_ANY_ORDER) == 0);
                assert_true(tutti_algorithm_serves(row, p));
            }
}

/* ring and halving: 2 n (p-1)/p elements a member where slices are even, to
   the neighbour or to lg p partners. */
static void ring_and_halving_traffic_matches_the_formulas(void **state)
{
    tutti_schedule *lists[P_MAX];

    (void)state;
    for (size_t s = 0; s < TUTTI_LENGTH(sizes); s++) {
        const int p = sizes[s];
        const uint64_t even = 48; /* elements of a slice */
        open_lists(lists, TUTTI_ALLREDUCE, tutti_algorithm_find(TUTTI_ALLREDUCE, "ring"), p, 0, even * (uint64_t)p);
        for (int i = 0; i < p; i++)
            for (int j = 0; j < p; j++)
                if (i != j)
                    sent(lists, i, j, j == (i + 1) % p ? 2 * (uint64_t)(p - 1) * even : 0,
                         j == (i + 1) % p ? 2 * (uint64_t)(p - 1) : 0);
        close_lists(lists, p);
        if ((p & (p - 1)) != 0)
            continue;
        open_lists(lists, TUTTI_ALLREDUCE, tutti_algorithm_find(TUTTI_ALLREDUCE, "halving"), p, 0, even * (uint64_t)p);
        for (int i = 0; i < p; i++)
            for (int j = 0; j < p; j++) {
                const int bit = i ^ j; /* the nearest partner gets half of the vector, the next one a quarter ... */
                if (i != j)
                    sent(lists, i, j, (bit & (bit - 1)) == 0 ? even * (uint64_t)(p / bit) : 0,
                         (bit & (bit - 1)) == 0 ? 2 : 0);
            }
        close_lists(lists, p);
    }
}

/* The lists let a transport answer for one large message before it sends another in the same
   direction (builder.c). Broadcasts and trees go in one direction at a time. */
static void exchanges_post_sends_before_receives(void **state)
{
    static const struct {
        tutti_collective kind;
        const char *name;
    } rows[] = { { TUTTI_ALLREDUCE, "exchange" },      { TUTTI_ALLREDUCE, "direct" },
                 { TUTTI_ALLREDUCE, "halving" },       { TUTTI_ALLREDUCE, "ring" },
                 { TUTTI_REDUCE_SCATTER, "direct" },   { TUTTI_ALLGATHER, "direct" },
                 { TUTTI_ALLGATHER, "dissemination" }, { TUTTI_ALLTOALL, "direct" },
                 { TUTTI_ALLTOALL, "pairwise" } };

    (void)state;
    for (size_t a = 0; a < TUTTI_LENGTH(rows); a++)
        for (int p = 2; p <= 8; p++) {
            const int row = tutti_algorithm_find(rows[a].kind, rows[a].name);
            tutti_schedule *lists[8];
            if (!tutti_algorithm_serves(row, p))
                continue;
            open_lists(lists, rows[a].kind, row, p, 0, 1000);
            for (int i = 0; i < p; i++) {
                size_t received = 0, sent_behind = 0;
                for (size_t k = 0; k < lists[i]->n_steps; k++) { /* between two waits */
                    const tutti_step_kind kind = lists[i]->steps[k].kind;
                    received = kind == TUTTI_STEP_WAIT ? 0 : received + (kind == TUTTI_STEP_RECV);
                    sent_behind += kind == TUTTI_STEP_SEND && received > 0;
                }
                assert_int_equal(sent_behind, 0);
            }
            close_lists(lists, p);
        }
}

/* ---- mutants ---- */

static tutti_step *step_of(tutti_schedule *s, tutti_step_kind kind, int nth)
{
    for (size_t k = 0; k < s->n_steps; k++)
        if (s->steps[k].kind == kind && nth-- == 0)
            return &s->steps[k];
    fail_msg("no such step");
    abort(); /* not reached; the compiler does not know */
}

static void swap_terms(tutti_schedule **l)
{
    tutti_step *sum = step_of(l[1], TUTTI_STEP_SUM, 0);
    const tutti_ref first = l[1]->terms[sum->first];

    l[1]->terms[sum->first] = l[1]->terms[sum->first + 1];
    l[1]->terms[sum->first + 1] = first;
}
static void swap_terms_of_the_straggler(tutti_schedule **l)
{
    tutti_schedule *one = l[1];

    l[1] = l[0];
    swap_terms(l);
    l[1] = one;
}
static void drop_term(tutti_schedule **l) { step_of(l[1], TUTTI_STEP_SUM, 0)->n--; }
static void sum_twice(tutti_schedule **l)
{
    tutti_step *sum = step_of(l[1], TUTTI_STEP_SUM, 0);

    l[1]->terms[sum->first] = l[1]->terms[sum->first + 1];
}
static void other_round(tutti_schedule **l) { step_of(l[2], TUTTI_STEP_SEND, 0)->round += 100; }
static void other_peer(tutti_schedule **l)
{
    tutti_step *send = step_of(l[2], TUTTI_STEP_SEND, 0);

    send->peer = (send->peer + 1) % 5 == 2 ? (send->peer + 2) % 5 : (send->peer + 1) % 5;
}
static void shorter(tutti_schedule **l) { step_of(l[2], TUTTI_STEP_SEND, 0)->count--; }
static void no_wait(tutti_schedule **l)
{
    tutti_step *wait = step_of(l[2], TUTTI_STEP_WAIT, 0);

    memset(wait, 0, sizeof *wait);
    wait->kind = TUTTI_STEP_COPY;
}
static void to_itself(tutti_schedule **l) { step_of(l[2], TUTTI_STEP_SEND, 0)->peer = 2; }
static void outside(tutti_schedule **l) { step_of(l[2], TUTTI_STEP_SEND, 0)->from.at += 1000; }
static void wait_early(tutti_schedule **l)
{
    /* The wait moves before the last message that it covers: it waits for a message that is not
       posted yet. */
    for (size_t k = 1; k < l[2]->n_steps; k++)
        if (l[2]->steps[k].kind == TUTTI_STEP_WAIT) {
            const tutti_step wait = l[2]->steps[k];
            l[2]->steps[k] = l[2]->steps[k - 1];
            l[2]->steps[k - 1] = wait;
            return;
        }
}

static void the_checker_notices(tutti_collective kind, const char *name, void (*mutate)(tutti_schedule **lists),
                                const char *sentence)
{
    tutti_schedule *lists[5];
    tutti_error err = { 0 };

    open_lists(lists, kind, tutti_algorithm_find(kind, name), 5, 0, kind == TUTTI_BARRIER ? 0 : 100);
    mutate(lists);
    if (tutti_schedule_check((const tutti_schedule *const *)lists, 5, &err) != TUTTI_ERR_STATE ||
        strstr(err.text, sentence) == NULL)
        fail_msg("%s '%s': '%s' lacks '%s'", tutti_collective_name(kind), name, err.text, sentence);
    close_lists(lists, 5);
}

static void mutants_are_caught(void **state)
{
    static const char *const algorithms[] = { "exchange", "direct" };

    (void)state;
    for (size_t a = 0; a < TUTTI_LENGTH(algorithms); a++) {
        the_checker_notices(TUTTI_ALLREDUCE, algorithms[a], swap_terms, "does not end as promised");
        the_checker_notices(TUTTI_ALLREDUCE, algorithms[a], drop_term, "does not end as promised");
        the_checker_notices(TUTTI_ALLREDUCE, algorithms[a], sum_twice, "does not end as promised");
        the_checker_notices(TUTTI_ALLREDUCE, algorithms[a], other_round, "deadlock");
        the_checker_notices(TUTTI_ALLREDUCE, algorithms[a], shorter, "another length");
        the_checker_notices(TUTTI_ALLREDUCE, algorithms[a], to_itself, "to itself");
        the_checker_notices(TUTTI_ALLREDUCE, algorithms[a], outside, "outside");
    }
    the_checker_notices(TUTTI_ALLREDUCE, "stragglar", swap_terms_of_the_straggler, "another sum than on member 0");
    the_checker_notices(TUTTI_ALLREDUCE, "ring", drop_term, "does not have every member once");
    the_checker_notices(TUTTI_ALLREDUCE, "ring", sum_twice, "does not have every member once");
    the_checker_notices(TUTTI_ALLREDUCE, "ring", other_round, "deadlock");
    the_checker_notices(TUTTI_ALLREDUCE, "stragglar", drop_term, "does not have every member once");
    the_checker_notices(TUTTI_ALLREDUCE, "stragglar", sum_twice, "does not have every member once");
    the_checker_notices(TUTTI_ALLREDUCE, "stragglar", shorter, "another length");
    the_checker_notices(TUTTI_ALLREDUCE, "exchange", wait_early, "not posted");
    the_checker_notices(TUTTI_ALLREDUCE, "exchange", no_wait, "still being received");
    the_checker_notices(TUTTI_BROADCAST, "scatter", no_wait, "in flight");
    the_checker_notices(TUTTI_BROADCAST, "tree", other_peer, "deadlock");
    the_checker_notices(TUTTI_BARRIER, "dissemination", other_round, "deadlock");
    the_checker_notices(TUTTI_ALLGATHER, "direct", no_wait, "no step waits for");
}

/* Two members that send before they receive: right with buffers, a deadlock under rendezvous. */
static void sending_before_receiving_is_a_deadlock(void **state)
{
    tutti_schedule *lists[2];
    tutti_error err = { 0 };

    (void)state;
    open_lists(lists, TUTTI_ALLREDUCE, tutti_algorithm_find(TUTTI_ALLREDUCE, "exchange"), 2, 0, 4);
    for (int i = 0; i < 2; i++) { /* send, recv, wait(0..2), sum -> send, wait(0..1), recv, wait(1..2), sum */
        tutti_step *old = lists[i]->steps, *steps = tutti_alloc(5, sizeof *steps);
        assert_int_equal(lists[i]->n_steps, 4);
        steps[0] = old[0];
        steps[1] = (tutti_step){ .kind = TUTTI_STEP_WAIT, .first = 0, .n = 1 };
        steps[2] = old[1];
        steps[3] = (tutti_step){ .kind = TUTTI_STEP_WAIT, .first = 1, .n = 1 };
        steps[4] = old[3];
        lists[i]->steps = steps;
        lists[i]->n_steps = 5;
        tutti_free(old);
    }
    assert_int_equal(tutti_schedule_check((const tutti_schedule *const *)lists, 2, &err), TUTTI_ERR_STATE);
    assert_non_null(strstr(err.text, "deadlock"));
    close_lists(lists, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_schedule_of_every_group_is_verified),
        cmocka_unit_test(traffic_matches_the_formulas),
        cmocka_unit_test(doubling_sends_lg_p_vectors_for_powers_of_two),
        cmocka_unit_test(slices_cover_the_vector_in_whole_lines),
        cmocka_unit_test(scratch_memory_of_direct_is_bounded),
        cmocka_unit_test(the_choice_depends_on_kind_size_and_count),
        cmocka_unit_test(chosen_algorithms_keep_the_summation_order),
        cmocka_unit_test(ring_and_halving_traffic_matches_the_formulas),
        cmocka_unit_test(exchanges_post_sends_before_receives),
        cmocka_unit_test(mutants_are_caught),
        cmocka_unit_test(sending_before_receiving_is_a_deadlock),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
