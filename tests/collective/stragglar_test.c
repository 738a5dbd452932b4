/* Goal: what docs/methods/stragglar.md promises holds for the lists of every group: rounds, one
   send and one receipt a round, which members exchange when, exact traffic, every choice of
   straggler. Method: read off the lists; sums and their equality on all members are the
   checker's. */
#include "collective/schedule.h"
#include "tutti/comm.h"
#include "collective/stragglar.h"
#include "sanitized.h"
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#define P_MAX 256
static const char *const names[] = { "stragglar", "stragglar-greedy" };

typedef struct lists {
    tutti_schedule *of[P_MAX];
    int p, straggler;
    size_t n;
} lists;

static void open_lists(lists *l, const char *name, int p, int straggler, size_t n)
{
    *l = (lists){ .p = p, .straggler = straggler, .n = n };
    for (int i = 0; i < p; i++) {
        const tutti_schedule_key key = {
            TUTTI_ALLREDUCE, tutti_algorithm_find(TUTTI_ALLREDUCE, name), p, i, straggler, n
        };
        assert_int_equal(tutti_schedule_open(&l->of[i], &key, NULL), TUTTI_OK);
    }
}

static void close_lists(lists *l)
{
    for (int i = 0; i < l->p; i++)
        tutti_schedule_close(l->of[i]);
}

static void prove(lists *l)
{
    tutti_error err = { 0 };

    if (tutti_schedule_check((const tutti_schedule *const *)l->of, l->p, &err) != TUTTI_OK)
        fail_msg("straggler %d: %s", l->straggler, err.text);
}

static int lg_up(int n)
{
    int lg = 0;

    while (1 << lg < n)
        lg++;
    return lg;
}

static int logical(const lists *l, int i)
{
    return i == l->straggler ? l->p - 1 : i < l->straggler ? i : i - 1;
}

/* Rounds of phase 2: those after the p - 2 of phase 1. Fails if a member sends or receives twice
   in a round, or with the wrong peer in phase 1. */
static int rounds_of(const lists *l)
{
    int last = -1;

    for (int i = 0; i < l->p; i++) {
        int sent_in = -1, received_in = -1;
        for (size_t k = 0; k < l->of[i]->n_steps; k++) {
            const tutti_step *s = &l->of[i]->steps[k];
            int *before = s->kind == TUTTI_STEP_SEND ? &sent_in : &received_in;
            if (s->kind != TUTTI_STEP_SEND && s->kind != TUTTI_STEP_RECV)
                continue;
            assert_true((int)s->round > *before); /* at most one a round, and rounds in order */
            *before = (int)s->round;
            last = (int)s->round > last ? (int)s->round : last;
            if ((int)s->round < l->p - 2)
                assert_true(i != l->straggler && s->peer != l->straggler); /* phase 1 is the early members' */
        }
    }
    return last + 1 - (l->p - 2);
}

/* The straggler's t-th message each way is the exchange of chunk t with early member t in
   round t; it receives nothing else. */
static void the_straggler_exchanges_each_chunk_once(const lists *l)
{
    const tutti_schedule *s = l->of[l->straggler];
    int received = 0, sent = 0;

    for (size_t k = 0; k < s->n_steps; k++) {
        const tutti_step *step = &s->steps[k];
        const int t = step->kind == TUTTI_STEP_RECV ? received : sent;
        if (step->kind != TUTTI_STEP_SEND && step->kind != TUTTI_STEP_RECV)
            continue;
        if (step->kind == TUTTI_STEP_RECV || t < l->p - 1) {
            assert_int_equal(logical(l, step->peer), t);
            assert_int_equal(step->round, l->p - 2 + t);
            if (step->kind == TUTTI_STEP_SEND)
                assert_int_equal(step->from.at, tutti_slice(l->n, l->p - 1, t));
        }
        received += step->kind == TUTTI_STEP_RECV;
        sent += step->kind == TUTTI_STEP_SEND;
    }
    assert_int_equal(received, l->p - 1);
    assert_true(sent >= l->p - 1);
}

/* In phase 2 each member receives n - 1 chunks, n (n-1) in all; in phase 1 each early member
   sends its right neighbour n - 2. */
static void traffic_is_exact(const lists *l, size_t chunk)
{
    size_t all = 0;

    for (int i = 0; i < l->p; i++) {
        size_t phase[2] = { 0, 0 };
        for (size_t k = 0; k < l->of[i]->n_steps; k++) {
            const tutti_step *step = &l->of[i]->steps[k];
            if (step->kind != TUTTI_STEP_RECV)
                continue;
            assert_int_equal(step->count, chunk);
            phase[(int)step->round >= l->p - 2]++;
            if ((int)step->round < l->p - 2)
                assert_int_equal(logical(l, step->peer), (logical(l, i) + l->p - 2) % (l->p - 1));
        }
        assert_int_equal(phase[0], i == l->straggler ? 0 : l->p - 2);
        assert_int_equal(phase[1], l->p - 1);
        all += phase[1];
    }
    assert_int_equal(all, l->p * (l->p - 1));
}

static void powers_of_two_need_the_papers_number_of_rounds(void **state)
{
    static const int expected[] = { 1, 4, 9, 18, 35, 68, 133, 262 };
    lists l;

    (void)state;
    for (int k = 0, p = 2; p <= UNLESS_SANITIZED(256, 64); p *= 2, k++) {
        open_lists(&l, "stragglar", p, p / 3, 16 * (size_t)(p - 1));
        assert_int_equal(rounds_of(&l), expected[k]);
        the_straggler_exchanges_each_chunk_once(&l);
        traffic_is_exact(&l, 16);
        if (p <= 64)
            prove(&l);
        close_lists(&l);
    }
}

/* n - 2 + ceil(lg n), or one more where no seed does better. */
static void other_member_counts_need_at_most_one_more_round(void **state)
{
    lists l;

    (void)state;
    for (int p = 3; p <= UNLESS_SANITIZED(64, 33); p += UNLESS_SANITIZED(1, 2)) {
        if (p > 34 && p != 45 && p != 56 && p != 57 && p < 63)
            continue; /* large lists take long; these are both sides of each border */
        const bool one_more = p == 15 || p == 16 || (p >= 27 && p <= 32) || p >= 57;
        open_lists(&l, "stragglar-greedy", p, p - 1, 16 * (size_t)(p - 1));
        assert_int_equal(rounds_of(&l), p - 2 + lg_up(p) + one_more);
        assert_int_equal(tutti_stragglar_rounds(p, true), rounds_of(&l));
        the_straggler_exchanges_each_chunk_once(&l);
        traffic_is_exact(&l, 16);
        if (p <= 33)
            prove(&l);
        close_lists(&l);
    }
    open_lists(&l, "stragglar", 96, 0, 16 * 95); /* without a stored seed; the authors' matching: 108 */
    assert_int_equal(rounds_of(&l), 96 - 2 + 7);
    assert_int_equal(tutti_stragglar_rounds(96, false), rounds_of(&l));
    close_lists(&l);
}

/* Beyond the table of seeds, by the lists of some members: writing all of them takes minutes. */
static void reported_rounds_match_the_schedules(void **state)
{
    (void)state;
    for (int p = 2; p <= 64; p += UNLESS_SANITIZED(1, 5)) {
        const bool one_more = p == 15 || p == 16 || (p >= 27 && p <= 32) || p >= 57, power = (p & (p - 1)) == 0;
        assert_int_equal(tutti_stragglar_rounds(p, true), p - 2 + lg_up(p) + one_more);
        assert_int_equal(tutti_stragglar_rounds(p, false), p - 2 + lg_up(p) + (one_more && !power));
    }
    for (int p = 65; p <= 128; p += UNLESS_SANITIZED(9, 63)) {
        const int rounds = tutti_stragglar_rounds(p, true);
        assert_int_equal(tutti_stragglar_rounds(p, false), p == 128 ? p - 2 + 7 : rounds);
        assert_true(rounds >= p - 2 + lg_up(p) && rounds <= p - 2 + lg_up(p) + 2);
        for (int i = 0; i < 3; i++) {
            const size_t n = 16 * (size_t)(p - 1);
            const int greedy = tutti_algorithm_find(TUTTI_ALLREDUCE, names[1]);
            const tutti_schedule_key key = { TUTTI_ALLREDUCE, greedy, p, i * (p - 1) / 2, 0, n };
            tutti_schedule *list;
            assert_int_equal(tutti_schedule_open(&list, &key, NULL), TUTTI_OK);
            for (size_t k = 0; k < list->n_steps; k++)
                assert_true((int)list->steps[k].round < p - 2 + rounds);
            tutti_schedule_close(list);
        }
    }
}

static void every_member_may_be_the_straggler(void **state)
{
    lists l;

    (void)state;
    for (int p = 2; p <= 17; p++)
        for (size_t a = 0; a < TUTTI_LENGTH(names); a++)
            for (int straggler = 0; straggler < p; straggler++) {
                open_lists(&l, names[a], p, straggler, 16 * (size_t)(p - 1));
                prove(&l);
                the_straggler_exchanges_each_chunk_once(&l);
                close_lists(&l);
            }
}

/* Unequal chunks, empty ones too: right, and nothing is touched beyond the end. */
static void any_count_is_served(void **state)
{
    lists l;

    (void)state;
    for (int p = 2; p <= 12; p++)
        for (size_t n = 0; n < 16 * (size_t)p + 40; n += n < 20 ? 1 : 13) {
            open_lists(&l, "stragglar", p, (int)n % p, n);
            prove(&l);
            assert_true(rounds_of(&l) <= p - 2 + lg_up(p));
            close_lists(&l);
        }
}

/* The published four rounds for four: {0-3: c0}, {1-3: c1, 0->2: c0}, {2-3: c2, 0-1}, {3->1: c2,
   0-2}. */
static void four_members_follow_the_example(void **state)
{
    static const struct { int from, to, chunk, round;
    } expected[] = {
        { 0, 3, 0, 0 }, { 3, 0, 0, 0 }, { 1, 3, 1, 1 }, { 3, 1, 1, 1 }, { 0, 2, 0, 1 }, { 2, 3, 2, 2 },
        { 3, 2, 2, 2 }, { 0, 1, 0, 2 }, { 1, 0, 1, 2 }, { 3, 1, 2, 3 }, { 0, 2, 1, 3 }, { 2, 0, 2, 3 },
    };
    size_t found = 0, all = 0;
    lists l;

    (void)state;
    open_lists(&l, "stragglar", 4, 3, 48);
    for (int i = 0; i < 4; i++)
        for (size_t k = 0; k < l.of[i]->n_steps; k++) {
            const tutti_step *s = &l.of[i]->steps[k];
            if (s->kind != TUTTI_STEP_SEND || s->round < 2)
                continue;
            all++;
            for (size_t e = 0; e < TUTTI_LENGTH(expected); e++)
                found += expected[e].from == i && expected[e].to == s->peer && expected[e].round == (int)s->round - 2 &&
                         tutti_slice(48, 3, expected[e].chunk) == s->from.at;
        }
    assert_int_equal(all, TUTTI_LENGTH(expected));
    assert_int_equal(found, TUTTI_LENGTH(expected));
    close_lists(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(powers_of_two_need_the_papers_number_of_rounds),
        cmocka_unit_test(other_member_counts_need_at_most_one_more_round),
        cmocka_unit_test(reported_rounds_match_the_schedules),
        cmocka_unit_test(every_member_may_be_the_straggler),
        cmocka_unit_test(any_count_is_served),
        cmocka_unit_test(four_members_follow_the_example),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
