/* Goal: a state arrives by notes, from all that hold a part of it; a holder without it, one that is
   silent, and one with another state end nothing but their part, or the fetch with a sentence.
   Method: four nodes of one process; the last one fetches from the others. */
#include "elastic/carry.h"
#include "transport/tcp/connect.h"
#include "newcomer.h"
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define MS TCP_MS
enum { NODES = 4, FETCHES = NODES - 1, NOTE_RANGE = TUTTI_NODE_KINDS + 2 };

typedef struct peer {
    tutti_node *node;
    tutti_carrier *carrier;
    _Atomic bool silent;         /* it drops what arrives */
    _Atomic int hears;           /* requests until it is silent; 0: it does not become so */
    _Atomic uint64_t ranges, bytes; /* of state that have come as notes, and their bytes */
    _Atomic int offer_at;        /* with the request of that number it has another image on offer; 0: never */
    tutti_image *instead;
} peer;

static peer peers[NODES];
static tutti_runtime *rt;
static int64_t stall_ns = 100 * MS;
static uint64_t later;           /* steps past that of newcomer.c: answers to an earlier test are of another step */

static void offer(int k, tutti_image *image);

static void on_note(void *user, const tutti_node_note *note)
{
    peer *p = user;

    if (note->kind == NOTE_RANGE) {
        p->ranges++;
        p->bytes += note->n - 8;
    }
    if (p->offer_at > 0 && --p->offer_at == 0)
        offer((int)(p - peers), p->instead);
    if (!p->silent)
        assert_true(tutti_carrier_note(p->carrier, note));
    if (p->hears > 0 && --p->hears == 0)
        p->silent = true;
}

static void open_peer(int k, const tutti_run_id *run, const tutti_run_key *key)
{
    const tutti_node_options o = { .run = *run, .key = *key, .heartbeat_ns = 20 * MS, .dead_ns = 2000 * MS,
                                   .boundary_ns = 50 * MS, .on_note = on_note, .user = &peers[k] };
    const char *contact = k > 0 ? tutti_node_address(peers[0].node) : NULL;
    tutti_error err = { .rank = -1 };
    tutti_world *world = NULL;
    tutti_status status;

    assert_int_equal(tutti_carrier_open(&peers[k].carrier, rt, &err), TUTTI_OK);
    if (k == 0) {
        assert_int_equal(tutti_world_open(&world, "shm", &err), TUTTI_OK);
        status = tutti_node_found(&peers[k].node, world, &o, &err);
    } else
        status = tutti_node_join(&peers[k].node, &contact, 1, &o, &err);
    tutti_world_close(world);
    if (status != TUTTI_OK)
        fail_msg("%s", err.text);
    if (k > 0)
        tutti_node_ready(peers[k].node);
    tutti_carrier_use(peers[k].carrier, peers[k].node);
}

/* Until all are members of one epoch, as each of them knows. No step is made: the state that they
   hold is that of the beginning. */
static void await_members(void)
{
    const int64_t until = tutti_now_ns(rt) + 60000 * MS;
    int there = 0;

    while (there < NODES) {
        there = 0;
        for (int k = 0; k < NODES; k++) {
            tutti_node_view view;
            tutti_node_look(peers[k].node, &view);
            if (view.state == TUTTI_MEMBER && !view.holds)
                (void)tutti_node_hold(peers[k].node, view.step);
            there += view.state == TUTTI_MEMBER && view.n == NODES;
        }
        if (tutti_now_ns(rt) >= until)
            fail_msg("%d of %d nodes are members of one epoch within a minute", there, NODES);
        tutti_sleep_until(rt, tutti_now_ns(rt) + MS);
    }
}

static int open_all(void **state)
{
    tutti_run_id run;
    tutti_run_key key;

    (void)state;
    assert_int_equal(tutti_runtime_open_posix(&rt, NULL), TUTTI_OK);
    tutti_run_id_make(rt, &run);
    tutti_run_key_make(rt, &key);
    for (int k = 0; k < NODES; k++)
        open_peer(k, &run, &key);
    await_members();
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    for (int k = 0; k < NODES; k++)
        tutti_carrier_use(peers[k].carrier, NULL);
    for (int k = NODES - 1; k >= 0; k--)
        tutti_node_close(peers[k].node);
    for (int k = 0; k < NODES; k++)
        tutti_carrier_close(peers[k].carrier);
    tutti_runtime_close(rt);
    return 0;
}

static int begin_test(void **state)
{
    (void)state;
    later += 2;
    return 0;
}

static tutti_elastic_state state_of_test(void)
{
    tutti_elastic_state of = state_of_run();

    of.step += later;
    return of;
}

static void offer(int k, tutti_image *image)
{
    const tutti_elastic_state of = state_of_test();
    tutti_error err = { .rank = -1 };

    if (image != NULL)
        image->step = of.step;
    if (tutti_carrier_offer(peers[k].carrier, image, &of, &err) != TUTTI_OK)
        fail_msg("%s", err.text);
}

/* It has the state of the step after. */
static void offer_later(int k)
{
    tutti_elastic_state of = state_of_test();
    tutti_image *image = image_of(FETCHES, k, SHARDS);

    image->step = ++of.step;
    assert_int_equal(tutti_carrier_offer(peers[k].carrier, image, &of, NULL), TUTTI_OK);
}

static tutti_status fetch(bool (*ends)(void *), void *user, tutti_image **image, tutti_error *err)
{
    uint64_t holders[FETCHES];

    for (int k = 0; k < FETCHES; k++)
        holders[k] = tutti_node_id(peers[k].node);
    return tutti_carrier_fetch(peers[FETCHES].carrier,
                               &(tutti_carried){ .of = state_of_test(), .holders = holders, .n = FETCHES,
                                                 .most = 1 << 20, .stall_ns = stall_ns, .ends = ends, .user = user },
                               image, err);
}

/* Closes it. */
static void assert_arrived(tutti_image *image, int with)
{
    image->step -= later; /* newcomer.c's */
    assert_state(image, FETCHES, with);
    tutti_image_close(image);
}

static void assert_arrives(int with)
{
    tutti_error err = { .rank = -1 };
    tutti_image *image;

    if (fetch(NULL, NULL, &image, &err) != TUTTI_OK)
        fail_msg("%s", err.text);
    assert_arrived(image, with);
}

static void a_state_comes_from_all_that_hold_a_part(void **state)
{
    (void)state;
    for (int k = 0; k < FETCHES; k++)
        offer(k, image_of(FETCHES, k, SHARDS | OWNED));
    assert_arrives(SHARDS | OWNED);
    assert_int_equal(tutti_carrier_offered(peers[1].carrier)->rank, 1);
}

static void holders_without_it_are_passed_over(void **state)
{
    (void)state;
    offer(0, NULL);
    peers[1].silent = true;
    offer(1, image_of(FETCHES, 1, 0));
    offer(2, image_of(FETCHES, 2, 0));
    assert_arrives(0);
    peers[1].silent = false;
}

static void a_part_that_none_has_is_named(void **state)
{
    tutti_error err = { .rank = -1 };
    tutti_image *image;

    (void)state;
    offer(0, image_of(FETCHES, 0, SHARDS));
    offer_later(1);
    offer(2, image_of(FETCHES, 2, SHARDS));
    assert_int_equal(fetch(NULL, NULL, &image, &err), TUTTI_ERR_PEER);
    assert_null(image);
    assert_true(strlen(err.text) > 0);
}

/* It has the state of the step after, and of that step rank `rank`'s part of a run of `world`. */
static void offer_beside(int k, int world, int rank)
{
    const tutti_elastic_state of = state_of_test();
    tutti_image *image = image_of(world, rank, SHARDS);

    image->facts[0] = 0;
    image->step = of.step;
    assert_int_equal(tutti_carrier_offer_beside(peers[k].carrier, image, &of, NULL), TUTTI_OK);
    offer_later(k);
}

/* One has a part, this process another, and what is missing is with one that has a later state. */
static tutti_status fetch_with_others(tutti_image **image, tutti_error *err)
{
    const uint64_t holders[] = { tutti_node_id(peers[0].node), tutti_node_id(peers[FETCHES].node) },
                   others[] = { tutti_node_id(peers[1].node), tutti_node_id(peers[2].node) };

    offer(0, image_of(FETCHES, 0, SHARDS));
    offer(FETCHES, image_of(FETCHES, 2, SHARDS));
    return tutti_carrier_fetch(peers[FETCHES].carrier,
                               &(tutti_carried){ .of = state_of_test(), .holders = holders, .n = 2, .others = others,
                                                 .n_others = 2, .most = 1 << 20, .stall_ns = stall_ns },
                               image, err);
}

static void parts_of_a_neighbouring_step_complete_a_state(void **state)
{
    tutti_error err = { .rank = -1 };
    tutti_image *image;

    (void)state;
    offer_beside(1, FETCHES, 1);
    if (fetch_with_others(&image, &err) != TUTTI_OK)
        fail_msg("%s", err.text);
    assert_arrived(image, SHARDS);
}

static uint64_t bytes_of(const tutti_image *image, const char *state)
{
    uint64_t bytes = 0;

    for (size_t k = 0; k < image->n; k++)
        if (strcmp(image->pieces[k].state, state) == 0)
            bytes += tutti_image_bytes(&image->pieces[k]);
    return bytes;
}

/* What this process has itself, and all have, is not sent: to the byte, with any order of notes. */
static void what_this_process_has_is_not_sent(void **state)
{
    const uint64_t holders[] = { tutti_node_id(peers[0].node), tutti_node_id(peers[1].node),
                                 tutti_node_id(peers[FETCHES].node) };
    tutti_error err = { .rank = -1 };
    tutti_image *image;
    uint64_t missing = 0;

    (void)state;
    for (int k = 0; k < 2; k++) {
        offer(k, image_of(FETCHES, k, SHARDS));
        missing += bytes_of(tutti_carrier_offered(peers[k].carrier), "m");
    }
    offer(FETCHES, image_of(FETCHES, 2, SHARDS));
    peers[FETCHES].ranges = peers[FETCHES].bytes = 0;
    if (tutti_carrier_fetch(peers[FETCHES].carrier,
                            &(tutti_carried){ .of = state_of_test(), .holders = holders, .n = 3, .most = 1 << 20,
                                              .stall_ns = 60000 * MS },
                            &image, &err) != TUTTI_OK)
        fail_msg("%s", err.text);
    assert_arrived(image, SHARDS);
    assert_true(missing > 0 && peers[FETCHES].bytes == missing);
    offer(FETCHES, NULL);
}

/* While others fetch a holder of a part gets the rest, and the whole takes the place of that. */
static void ranges_are_those_of_the_manifest_that_was_sent(void **state)
{
    (void)state;
    for (int at = 2; at <= 5; at++) { /* the first request is for the manifest */
        tutti_error err = { .rank = -1 };
        later += 2;
        for (int k = 0; k < FETCHES; k++)
            offer(k, image_of(FETCHES, k, SHARDS));
        if (fetch(NULL, NULL, &peers[2].instead, &err) != TUTTI_OK)
            fail_msg("%s", err.text);
        peers[2].offer_at = at;
        assert_arrives(SHARDS);
        assert_int_equal(peers[2].offer_at, 0);
        assert_ptr_equal(tutti_carrier_offered(peers[2].carrier), peers[2].instead);
    }
}

/* What a holder lacks is with a process that is asked last, and has it as its own state; another
   one of those does not exist any more. */
static void those_that_are_no_members_any_more_are_asked(void **state)
{
    const uint64_t holders[] = { tutti_node_id(peers[0].node), tutti_node_id(peers[2].node) },
                   others[] = { 12345, tutti_node_id(peers[1].node) };
    tutti_error err = { .rank = -1 };
    tutti_image *image;

    (void)state;
    for (int k = 0; k < FETCHES; k++)
        offer(k, image_of(FETCHES, k, SHARDS));
    for (int with = 2; with >= 1; with--) {
        const int64_t began = tutti_now_ns(rt);
        const tutti_status status =
            tutti_carrier_fetch(peers[FETCHES].carrier,
                                &(tutti_carried){ .of = state_of_test(), .holders = holders, .n = 2, .others = others,
                                                  .n_others = with, .most = 1 << 20, .stall_ns = stall_ns },
                                &image, &err);
        assert_int_equal(status, with == 2 ? TUTTI_OK : TUTTI_ERR_PEER);
        if (with == 2)
            assert_arrived(image, SHARDS);
        else
            assert_true(tutti_now_ns(rt) - began < 2000 * MS);
    }
}

static bool is_silent_for_long(void *user)
{
    int64_t *const until = user;

    if (*until != 0 && tutti_now_ns(rt) > *until) {
        *until = 0;
        offer(1, peers[1].instead);
        peers[1].silent = false;
    }
    return false;
}

/* It has listed its part, is silent for longer than one that does not answer is waited for, and
   then has the whole. */
static void one_of_those_that_has_the_whole_by_then_is_asked_again(void **state)
{
    const uint64_t holders[] = { tutti_node_id(peers[0].node), tutti_node_id(peers[2].node) },
                   others[] = { tutti_node_id(peers[1].node) };
    tutti_error err = { .rank = -1 };
    tutti_image *image;
    int64_t until;

    (void)state;
    for (int k = 0; k < FETCHES; k++)
        offer(k, image_of(FETCHES, k, SHARDS));
    if (fetch(NULL, NULL, &peers[1].instead, &err) != TUTTI_OK)
        fail_msg("%s", err.text);
    peers[1].hears = 1; /* that for its manifest */
    until = tutti_now_ns(rt) + 3300 * MS;
    if (tutti_carrier_fetch(peers[FETCHES].carrier,
                            &(tutti_carried){ .of = state_of_test(), .holders = holders, .n = 2, .others = others,
                                              .n_others = 1, .most = 1 << 20, .stall_ns = stall_ns,
                                              .ends = is_silent_for_long, .user = &until },
                            &image, &err) != TUTTI_OK)
        fail_msg("%s", err.text);
    assert_arrived(image, SHARDS);
    assert_int_equal(until, 0);
}

static void one_that_has_left_is_needed_until_the_others_have_the_state(void **state)
{
    const uint64_t members[] = { tutti_node_id(peers[1].node), tutti_node_id(peers[2].node) },
                   left = tutti_node_id(peers[0].node);
    const int64_t long_ns = 3600 * 1000 * MS;
    tutti_carrier *const c = peers[0].carrier;

    (void)state;
    assert_true(tutti_carrier_is_needed(c, 7, members, 2, 0));
    tutti_carrier_tell_have(peers[1].carrier, 6, &left, 1); /* of the epoch before */
    tutti_carrier_tell_have(peers[1].carrier, 7, &left, 1);
    while (tutti_carrier_is_needed(c, 7, members, 2, 0)) /* and no request comes */
        tutti_sleep_until(rt, tutti_now_ns(rt) + MS);
    assert_true(tutti_carrier_is_needed(c, 7, members, 2, long_ns));
    tutti_carrier_tell_have(peers[2].carrier, 7, &left, 1);
    while (tutti_carrier_is_needed(c, 7, members, 2, long_ns))
        tutti_sleep_until(rt, tutti_now_ns(rt) + MS);
    assert_true(tutti_carrier_is_needed(c, 8, members, 2, 0));
}

/* They contradict the state's, and are no replica that has diverged. */
static void parts_of_other_workers_are_passed_over(void **state)
{
    tutti_error err = { .rank = -1 };
    tutti_image *image;

    (void)state;
    offer_beside(1, FETCHES + 1, 1);
    assert_int_equal(fetch_with_others(&image, &err), TUTTI_ERR_PEER);
    assert_non_null(strstr(err.text, "what rank 1 of 3 had is nowhere"));
    offer(FETCHES, NULL);
}

static void states_that_differ_are_refused(void **state)
{
    tutti_error err = { .rank = -1 };
    tutti_image *image;

    (void)state;
    offer(0, image_of(FETCHES, 0, SHARDS));
    offer(1, image_of(FETCHES + 1, 1, SHARDS));
    peers[2].silent = true; /* so that neither is complete before the other one has answered */
    assert_int_equal(fetch(NULL, NULL, &image, &err), TUTTI_ERR_STATE);
    assert_null(image);
    peers[2].silent = false;
}

/* The holders make their images a while after they were asked; too long a wait ends the fetch. */
static bool offers_later(void *user)
{
    const int asked = ++*(int *)user;

    for (int k = 0; k < FETCHES && asked == 5; k++)
        offer(k, image_of(FETCHES, k, SHARDS));
    return asked > 3000;
}

/* The state arrives, and no question is asked twice. */
static void assert_arrives_later(bool (*ends)(void *))
{
    tutti_error err = { .rank = -1 };
    tutti_image *image;
    int asked = 0;

    for (int k = 0; k < FETCHES; k++)
        offer(k, NULL);
    stall_ns = 600000 * MS;
    if (fetch(ends, &asked, &image, &err) != TUTTI_OK)
        fail_msg("%s", err.text);
    assert_true(asked >= 5);
    assert_arrived(image, SHARDS);
    stall_ns = 100 * MS;
}

static void one_that_has_it_later_answers_then(void **state)
{
    (void)state;
    assert_arrives_later(offers_later);
}

/* As above. Meanwhile others ask the holders for the step after, or before. */
static bool others_ask_too(void *user)
{
    const tutti_elastic_state of = state_of_test();

    for (int k = 0; k < FETCHES && *(int *)user == 2; k++) {
        uint8_t ask[8 + 1 + 8] = { 0 };
        for (int i = 0; i < 8; i++)
            ask[i] = (uint8_t)((of.step + (k == 0 ? -1 : 1)) >> 8 * i);
        assert_int_equal(tutti_node_send(peers[(k + 1) % FETCHES].node, tutti_node_id(peers[k].node), TUTTI_NODE_KINDS,
                                         TUTTI_FETCH_MANIFEST, ask, sizeof ask, 0, NULL), TUTTI_OK);
    }
    return offers_later(user);
}

static void one_that_asked_is_answered_whatever_others_ask_for(void **state)
{
    (void)state;
    assert_arrives_later(others_ask_too);
}

static bool at_once(void *user)
{
    return ++*(int *)user > 3;
}

static void a_fetch_ends_when_it_is_not_needed(void **state)
{
    tutti_error err = { .rank = -1 };
    tutti_image *image;
    int asked = 0;

    (void)state;
    for (int k = 0; k < FETCHES; k++)
        peers[k].silent = true;
    assert_int_equal(fetch(at_once, &asked, &image, &err), TUTTI_CLOSED);
    assert_true(asked == 4 && image == NULL);
    for (int k = 0; k < FETCHES; k++)
        peers[k].silent = false;
}

static void a_process_is_told_what_run_it_is(void **state)
{
    tutti_error err = { .rank = -1 };
    char *text;

    (void)state;
    assert_int_equal(tutti_carrier_ask(peers[3].carrier, 50 * MS, &text, &err), TUTTI_TIMEOUT);
    assert_true(text == NULL && strstr(err.text, "no member told in 0.1 s what run this is") != NULL);
    assert_int_equal(tutti_carrier_about(peers[1].carrier, "{\"n\": 3}", &err), TUTTI_OK);
    assert_int_equal(tutti_carrier_ask(peers[3].carrier, 30000 * MS, &text, &err), TUTTI_OK);
    assert_string_equal(text, "{\"n\": 3}");
    tutti_free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_state_comes_from_all_that_hold_a_part, begin_test),
        cmocka_unit_test_setup(holders_without_it_are_passed_over, begin_test),
        cmocka_unit_test_setup(a_part_that_none_has_is_named, begin_test),
        cmocka_unit_test_setup(parts_of_a_neighbouring_step_complete_a_state, begin_test),
        cmocka_unit_test_setup(parts_of_other_workers_are_passed_over, begin_test),
        cmocka_unit_test_setup(what_this_process_has_is_not_sent, begin_test),
        cmocka_unit_test_setup(ranges_are_those_of_the_manifest_that_was_sent, begin_test),
        cmocka_unit_test_setup(those_that_are_no_members_any_more_are_asked, begin_test),
        cmocka_unit_test_setup(one_of_those_that_has_the_whole_by_then_is_asked_again, begin_test),
        cmocka_unit_test(one_that_has_left_is_needed_until_the_others_have_the_state),
        cmocka_unit_test_setup(states_that_differ_are_refused, begin_test),
        cmocka_unit_test_setup(one_that_has_it_later_answers_then, begin_test),
        cmocka_unit_test_setup(one_that_asked_is_answered_whatever_others_ask_for, begin_test),
        cmocka_unit_test_setup(a_fetch_ends_when_it_is_not_needed, begin_test),
        cmocka_unit_test(a_process_is_told_what_run_it_is),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
