/* Goal: what a caller sees of the membership of a run: sentences about wrong use, majorities, the
   step at which an epoch begins, admission and leaving by single messages. Method: a few members
   whose messages the test carries. Schedules with faults are the pieces epochs-* of explore. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "membership/membership_internal.h"
#include <stdlib.h>
#include <string.h>

enum { MEMBERS = 5, QUEUE = 256, MS = 1000000 };

typedef struct letter { int to; size_t n; uint8_t *bytes; } letter;
typedef struct world {
    tutti_membership *m[MEMBERS];
    tutti_membership_options options[MEMBERS];
    char address[MEMBERS][8];
    letter queue[QUEUE];
    int n_queue;
    int64_t now_ns;
} world;

static void keep(void *user, const char *address, const uint8_t *bytes, size_t n)
{
    world *const w = user;
    letter *const l = &w->queue[w->n_queue++];

    assert_true(w->n_queue < QUEUE);
    *l = (letter){ .to = address[1] - '0', .n = n, .bytes = malloc(n) };
    memcpy(l->bytes, bytes, n);
}

/* Carries all messages, and what is sent because of them, until there is none. */
static void carry(world *w)
{
    for (int k = 0; k < w->n_queue; k++) {
        const letter l = w->queue[k];
        if (w->m[l.to] != NULL)
            assert_int_equal(tutti_membership_receive(w->m[l.to], w->now_ns, l.bytes, l.n, NULL), TUTTI_OK);
        free(l.bytes);
    }
    w->n_queue = 0;
}

static void prepare(world *w)
{
    memset(w, 0, sizeof *w);
    w->now_ns = MS;
    for (int i = 0; i < MEMBERS; i++) {
        snprintf(w->address[i], sizeof w->address[i], "s%d", i);
        w->options[i] = (tutti_membership_options){ .run = "run", .id = (uint64_t)i + 1, .address = w->address[i],
                                                    .heartbeat_ns = 100 * MS, .dead_ns = 1000LL * MS,
                                                    .retry_ns = 500 * MS, .boundary_ns = 500 * MS,
                                                    .send = keep, .user = w };
    }
}

static tutti_epoch *founders_of(int n)
{
    tutti_epoch *const e = calloc(1, sizeof *e);

    *e = (tutti_epoch){ .number = 1, .next_rank = (uint32_t)n, .n = n };
    for (int i = 0; i < n; i++) {
        e->members[i] = (tutti_member){ .id = (uint64_t)i + 1, .rank = (uint32_t)i, .holds = true };
        snprintf(e->members[i].address, sizeof e->members[i].address, "s%d", i);
    }
    return e;
}

static void found(world *w, int n)
{
    tutti_epoch *const e = founders_of(n);

    prepare(w);
    for (int i = 0; i < n; i++)
        assert_int_equal(tutti_membership_found(&w->m[i], &w->options[i], e, 0, NULL), TUTTI_OK);
    carry(w);
    free(e);
}

static void join(world *w, int i, int at)
{
    const char *const contacts[] = { w->address[at] };

    assert_int_equal(tutti_membership_join(&w->m[i], &w->options[i], contacts, 1, 0, NULL), TUTTI_OK);
    (void)tutti_membership_tick(w->m[i], MS);
    carry(w);
}

static void end(world *w)
{
    for (int k = 0; k < w->n_queue; k++)
        free(w->queue[k].bytes);
    for (int i = 0; i < MEMBERS; i++)
        tutti_membership_close(w->m[i]);
}

static void wrong_use_is_named(void **state)
{
    world w;
    tutti_epoch *const e = founders_of(2);
    tutti_membership *m;
    tutti_error err;

    (void)state;
    prepare(&w);
    assert_int_equal(tutti_membership_found(&m, &w.options[3], e, 0, &err), TUTTI_ERR_USAGE);
    assert_null(m);
    assert_string_equal(err.text, "process 4 is not among the 2 founders of the run; it can join");
    w.options[0].dead_ns = 250 * MS;
    assert_int_equal(tutti_membership_found(&m, &w.options[0], e, 0, &err), TUTTI_ERR_USAGE);
    assert_string_equal(err.text, "heartbeat 0.100 s, dead 0.250 s, retry 0.500 s, boundary 0.500 s: dead is at least "
                                  "three heartbeats, and none is negative");
    w.options[0].address = "";
    assert_int_equal(tutti_membership_found(&m, &w.options[0], e, 0, &err), TUTTI_ERR_USAGE);
    assert_string_equal(err.text, "the address '' of a member has not 1 to 63 characters");
    w.options[1].id = 0;
    assert_int_equal(tutti_membership_join(&m, &w.options[1], &w.options[1].address, 1, 0, &err), TUTTI_ERR_USAGE);
    assert_string_equal(err.text, "the id of a process is 0; draw another one");
    assert_int_equal(tutti_membership_join(&m, &w.options[2], NULL, 0, 0, &err), TUTTI_ERR_USAGE);
    assert_string_equal(err.text, "0 addresses of members are given; 1 to 16 are possible");
    e->members[1].rank = 0;
    assert_int_equal(tutti_membership_found(&m, &w.options[2], e, 0, &err), TUTTI_ERR_USAGE);
    assert_string_equal(err.text, "member 1 of epoch 1 has rank 0; ranks ascend and are below 2");
    e->members[1] = e->members[0];
    assert_int_equal(tutti_membership_found(&m, &w.options[2], e, 0, &err), TUTTI_ERR_USAGE);
    assert_string_equal(err.text, "member 1 of epoch 1 has id 1, which is 0 or another's");
    e->n = 1;
    e->members[0].holds = false;
    assert_int_equal(tutti_membership_found(&m, &w.options[2], e, 0, &err), TUTTI_ERR_USAGE);
    assert_string_equal(err.text, "no member of epoch 1 holds the state of step 0");
    free(e);
}

static void two_majorities_always_meet(void **state)
{
    (void)state;
    for (int n = 1; n <= 9; n++) {
        const tutti_epoch e = { .n = n };
        for (int k = 0; k <= n; k++)
            for (int first = 0; first < 2; first++)
                /* of a set and what is not in it one is, since one of them has the first member */
                assert_int_equal(tutti_epoch_majority(&e, k, first) + tutti_epoch_majority(&e, n - k, !first), 1);
    }
}

/* Of five members: the steps that those have that promised, -1: no promise. */
static uint64_t begins_at(const int steps[MEMBERS], tutti_epoch *next)
{
    tutti_membership *const m = calloc(1, sizeof *m);
    tutti_epoch *const e = founders_of(MEMBERS);
    uint64_t step;

    tutti_epoch_copy(&m->epoch, e);
    for (int i = 0; i < MEMBERS; i++)
        m->peers[i] = (peer){ .promised = steps[i] >= 0, .holds = true,
                              .step = steps[i] >= 0 ? (uint64_t)steps[i] : 0 };
    assert_true(tutti_epoch_next(next, m));
    step = next->step;
    free(m);
    free(e);
    return step;
}

static void an_epoch_begins_at_a_step_that_is_safe_and_that_most_have(void **state)
{
    tutti_epoch *const next = calloc(1, sizeof *next);

    (void)state;
    assert_int_equal(begins_at((const int[]){ 4, 4, 4, 4, 4 }, next), 4);
    assert_int_equal(next->n, 5);
    /* one is ahead, and the lost one may be, too: two are no majority */
    assert_int_equal(begins_at((const int[]){ 5, 4, 4, 4, -1 }, next), 4);
    assert_int_equal(next->n, 4);
    assert_false(next->members[0].holds);
    assert_true(next->members[1].holds && next->members[2].holds && next->members[3].holds);
    /* two are ahead and one is lost: a majority may have it */
    assert_int_equal(begins_at((const int[]){ 5, 4, 4, 5, -1 }, next), 5);
    assert_int_equal(begins_at((const int[]){ 5, 4, 4, -1, -1 }, next), 5);
    /* most are ahead, though none has to be */
    assert_int_equal(begins_at((const int[]){ 5, 5, 5, 4, 4 }, next), 5);
    /* own steps: the third largest is what a majority has */
    assert_int_equal(begins_at((const int[]){ 9, 8, 7, 6, 5 }, next), 9);
    free(next);
}

static void a_single_founder_admits_those_that_are_ready(void **state)
{
    world w;
    const tutti_epoch *e;

    (void)state;
    found(&w, 1);
    join(&w, 1, 0);
    join(&w, 2, 0);
    assert_int_equal(tutti_membership_state_of(w.m[1]), TUTTI_NEWCOMER);
    assert_int_equal(tutti_membership_epoch(w.m[1])->number, 1); /* whose members it can ask for the state */
    tutti_membership_ready(w.m[1], MS);
    carry(&w);
    assert_true(tutti_membership_step(w.m[0], MS, 1)); /* the change waits for the end of a step */
    assert_int_equal(tutti_membership_epoch(w.m[0])->number, 1);
    assert_true(tutti_membership_step(w.m[0], MS, 2));
    carry(&w); /* no time passes: the decision is announced */
    e = tutti_membership_epoch(w.m[1]);
    assert_int_equal(tutti_membership_state_of(w.m[1]), TUTTI_MEMBER);
    assert_int_equal(e->number, 2);
    assert_int_equal(e->step, 2);
    assert_int_equal(e->n, 2);
    assert_int_equal(e->members[1].id, 2);
    assert_int_equal(e->members[1].rank, 1);
    assert_false(tutti_membership_acts(w.m[1]));
    assert_true(tutti_membership_hold(w.m[1], MS, 2));
    assert_true(tutti_membership_acts(w.m[1]));
    assert_int_equal(tutti_membership_state_of(w.m[2]), TUTTI_NEWCOMER); /* not ready */
    end(&w);
}

/* Of all that there are. */
static void pass_time(world *w, int64_t ns)
{
    for (const int64_t until = w->now_ns + ns; w->now_ns < until; carry(w)) {
        w->now_ns += 100 * MS;
        for (int i = 0; i < MEMBERS; i++)
            if (w->m[i] != NULL)
                (void)tutti_membership_tick(w->m[i], w->now_ns);
    }
}

/* They take four times boundary_ns. */
static void a_change_waits_for_the_end_of_long_steps(void **state)
{
    world w;

    (void)state;
    found(&w, 2);
    for (uint64_t step = 1; step <= 5; step++) {
        pass_time(&w, 2000LL * MS);
        for (int i = 0; i < 2; i++)
            assert_true(tutti_membership_step(w.m[i], w.now_ns, step));
        if (step == 3) {
            join(&w, 2, 0);
            tutti_membership_ready(w.m[2], w.now_ns);
            carry(&w);
        }
    }
    carry(&w);
    assert_int_equal(tutti_membership_epoch(w.m[2])->number, 2);
    assert_int_equal(tutti_membership_epoch(w.m[2])->step, 5);
    end(&w);
}

/* Two places for three: the third one waits, and no epoch follows because of it. */
static void a_full_run_lets_newcomers_wait(void **state)
{
    world w;
    tutti_epoch *const e = founders_of(1);

    (void)state;
    prepare(&w);
    for (int i = 0; i < MEMBERS; i++)
        w.options[i].most = 2;
    assert_int_equal(tutti_membership_found(&w.m[0], &w.options[0], e, 0, NULL), TUTTI_OK);
    free(e);
    for (int i = 1; i < 3; i++) {
        join(&w, i, 0);
        tutti_membership_ready(w.m[i], MS);
        carry(&w);
    }
    for (uint64_t step = 1; step <= 2; step++)
        assert_true(tutti_membership_step(w.m[0], MS, step));
    carry(&w);
    assert_int_equal(tutti_membership_epoch(w.m[0])->number, 2);
    assert_int_equal(tutti_membership_epoch(w.m[0])->n, 2);
    assert_int_equal(tutti_membership_state_of(w.m[1]), TUTTI_MEMBER);
    assert_int_equal(tutti_membership_state_of(w.m[2]), TUTTI_NEWCOMER);
    assert_true(tutti_membership_hold(w.m[1], MS, 2));
    for (uint64_t step = 3; step <= 9; step++)
        for (int i = 0; i < 2; i++) {
            assert_true(tutti_membership_step(w.m[i], MS, step));
            carry(&w);
        }
    assert_int_equal(tutti_membership_epoch(w.m[0])->number, 2);
    end(&w);
}

static void a_leaver_goes_and_its_rank_with_it(void **state)
{
    world w;
    char text[200];

    (void)state;
    found(&w, 3);
    tutti_membership_leave(w.m[1], MS);
    carry(&w);
    for (uint64_t step = 1; step <= 2; step++)
        for (int i = 0; i < 3; i++)
            assert_true(tutti_membership_step(w.m[i], MS, step));
    carry(&w);
    assert_int_equal(tutti_membership_state_of(w.m[1]), TUTTI_LEFT);
    tutti_membership_describe(w.m[1], text, sizeof text);
    assert_string_equal(text, "this worker has left, in epoch 2");
    assert_int_equal(tutti_membership_epoch(w.m[2])->n, 2);
    assert_int_equal(tutti_membership_epoch(w.m[2])->members[1].rank, 2);
    tutti_membership_ready(w.m[0], MS);
    join(&w, 3, 2);
    tutti_membership_ready(w.m[3], MS);
    carry(&w);
    for (uint64_t step = 3; step <= 4; step++)
        for (int i = 0; i < 3; i += 2)
            (void)tutti_membership_step(w.m[i], MS, step);
    carry(&w);
    assert_int_equal(tutti_membership_epoch(w.m[3])->members[2].rank, 3);
    end(&w);
}

static void an_epoch_that_a_member_asks_for_has_the_same_members(void **state)
{
    world w;

    (void)state;
    found(&w, 3);
    tutti_membership_renew(w.m[2], MS);
    carry(&w);
    assert_int_equal(tutti_membership_epoch(w.m[0])->number, 1); /* not within a step */
    for (uint64_t step = 1; step <= 6; step++) {
        for (int i = 0; i < 3; i++)
            assert_true(tutti_membership_step(w.m[i], MS, step));
        carry(&w);
    }
    for (int i = 0; i < 3; i++) {
        const tutti_epoch *const e = tutti_membership_epoch(w.m[i]);
        assert_true(e->number == 2 && e->n == 3 && e->step == 2 && e->next_rank == 3);
        for (int k = 0; k < 3; k++)
            assert_true(e->members[k].rank == (uint32_t)k && e->members[k].holds);
    }
    end(&w);
}

/* One that is lost needs no next epoch either. */
static void all_leave_as_soon_as_each_wants_to_or_is_lost(void **state)
{
    world w;

    (void)state;
    found(&w, 3);
    for (int i = 0; i < 2; i++) {
        assert_false(tutti_membership_all_leave(w.m[0]));
        tutti_membership_leave(w.m[i], MS);
    }
    assert_false(tutti_membership_all_leave(w.m[0]));
    tutti_membership_leave(w.m[2], MS);
    carry(&w);
    for (int i = 0; i < 3; i++)
        assert_true(tutti_membership_all_leave(w.m[i]) &&
                    tutti_membership_state_of(w.m[i]) == TUTTI_MEMBER);
    end(&w);
    found(&w, 2);
    tutti_membership_leave(w.m[0], MS);
    assert_false(tutti_membership_all_leave(w.m[0]));
    tutti_membership_lost(w.m[0], MS, tutti_membership_epoch(w.m[0])->members[1].id);
    assert_true(tutti_membership_all_leave(w.m[0]));
    end(&w);
}

static void the_side_without_a_majority_stops_and_says_so(void **state)
{
    world w;
    char text[300];
    bool majority, first;

    (void)state;
    found(&w, 5);
    for (int i = 0; i < 5; i++)
        assert_true(tutti_membership_step(w.m[i], MS, 1));
    w.now_ns = 100LL * MS;
    for (int i = 0; i < 5; i++)
        (void)tutti_membership_tick(w.m[i], w.now_ns);
    carry(&w);
    assert_int_equal(tutti_membership_agreed(w.m[4]), 1);
    for (uint64_t id = 1; id <= 4; id++) {
        tutti_membership_lost(w.m[4], w.now_ns, id);
        assert_int_equal(tutti_membership_answering(w.m[4], &majority, &first), 5 - id);
        assert_true(majority == (id < 3) && first == (id == 4));
    }
    for (int k = 1; k < 20; k++)
        (void)tutti_membership_tick(w.m[4], w.now_ns + k * 100LL * MS);
    assert_false(tutti_membership_acts(w.m[4]));
    assert_false(tutti_membership_step(w.m[4], 5000LL * MS, 2));
    tutti_membership_describe(w.m[4], text, sizeof text);
    assert_string_equal(text, "epoch 1, step 1: 1 of 5 members answer, which is no majority; this worker waits, and "
                              "the last step that it knows to be agreed is 1");
    end(&w);
}

static size_t of_epoch_2(uint8_t *bytes, message_kind kind, const tutti_epoch *e)
{
    const message w = { .kind = kind, .run = "run", .id = 2, .number = 2, .address = "s1" };

    return tutti_membership_write(bytes, &w, e);
}

/* The announcement was lost, and so were all that the newcomer knew. */
static void a_newcomer_asks_whoever_knows_of_a_later_epoch(void **state)
{
    world w;
    uint8_t *const bytes = calloc(1, MESSAGE_BYTES);
    const char *const contacts[] = { "s4" };
    size_t n;

    (void)state;
    prepare(&w);
    assert_int_equal(tutti_membership_join(&w.m[0], &w.options[0], contacts, 1, 0, NULL), TUTTI_OK);
    n = of_epoch_2(bytes, HEARTBEAT, NULL);
    assert_int_equal(tutti_membership_receive(w.m[0], 1, bytes, n, NULL), TUTTI_OK);
    assert_int_equal(w.n_queue, 1);
    assert_int_equal(w.queue[0].to, 1);
    assert_int_equal(w.queue[0].bytes[3], JOIN);
    free(bytes);
    end(&w);
}

/* What members of a later epoch send to one that is behind shows that they are there. */
static void members_of_a_later_epoch_are_not_silent(void **state)
{
    world w;
    uint8_t *const bytes = calloc(1, MESSAGE_BYTES);
    tutti_epoch *const e = founders_of(2);

    (void)state;
    found(&w, 3);
    e->number = 2;
    e->next_rank = 3;
    assert_int_equal(tutti_membership_receive(w.m[0], 900LL * MS, bytes, of_epoch_2(bytes, HEARTBEAT, NULL), NULL),
                     TUTTI_OK);
    assert_int_equal(tutti_membership_receive(w.m[0], 990LL * MS, bytes, of_epoch_2(bytes, RECORD, e), NULL), TUTTI_OK);
    (void)tutti_membership_tick(w.m[0], 1500LL * MS);
    assert_int_equal(tutti_membership_epoch(w.m[0])->number, 2);
    assert_true(tutti_membership_acts(w.m[0])); /* it suspects nobody, and begins no change */
    (void)tutti_membership_tick(w.m[0], 2000LL * MS);
    assert_int_equal(tutti_membership_epoch(w.m[0])->number, 3); /* now it does, as the first of two */
    free(e);
    free(bytes);
    end(&w);
}

static void other_runs_and_damage_change_nothing(void **state)
{
    world w;
    message stray = { .kind = PREPARE, .run = "another run", .id = 2, .number = 1, .ballot = 1ULL << 32 | 1,
                      .address = "s1" };
    uint8_t *const bytes = calloc(1, MESSAGE_BYTES);
    tutti_error err;
    size_t n;

    (void)state;
    found(&w, 3);
    n = tutti_membership_write(bytes, &stray, NULL);
    assert_int_equal(tutti_membership_receive(w.m[0], MS, bytes, n, NULL), TUTTI_OK);
    assert_int_equal(tutti_membership_strangers(w.m[0]), 1);
    assert_int_equal(tutti_membership_receive(w.m[0], MS, bytes, n - 1, &err), TUTTI_ERR_CORRUPT);
    assert_true(tutti_membership_acts(w.m[0]));
    memcpy(stray.run, w.options[0].run, sizeof stray.run);
    n = tutti_membership_write(bytes, &stray, NULL);
    assert_int_equal(tutti_membership_receive(w.m[0], MS, bytes, n, NULL), TUTTI_OK);
    assert_false(tutti_membership_acts(w.m[0])); /* the same message, of this run */
    free(bytes);
    end(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_use_is_named),
        cmocka_unit_test(two_majorities_always_meet),
        cmocka_unit_test(an_epoch_begins_at_a_step_that_is_safe_and_that_most_have),
        cmocka_unit_test(a_single_founder_admits_those_that_are_ready),
        cmocka_unit_test(a_change_waits_for_the_end_of_long_steps),
        cmocka_unit_test(a_full_run_lets_newcomers_wait),
        cmocka_unit_test(a_leaver_goes_and_its_rank_with_it),
        cmocka_unit_test(an_epoch_that_a_member_asks_for_has_the_same_members),
        cmocka_unit_test(all_leave_as_soon_as_each_wants_to_or_is_lost),
        cmocka_unit_test(the_side_without_a_majority_stops_and_says_so),
        cmocka_unit_test(a_newcomer_asks_whoever_knows_of_a_later_epoch),
        cmocka_unit_test(members_of_a_later_epoch_are_not_silent),
        cmocka_unit_test(other_runs_and_damage_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
