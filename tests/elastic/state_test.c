/* Goal: a newcomer gets a state from the memory of several members, to the byte, whatever becomes
   of some of them. Nothing damaged is taken, and what cannot be had is named.
   Method: images of the ranks of a small run, and requests that the test answers itself, in order,
   late, damaged or not at all (newcomer.h). Holders that differ, and manifests, are in
   manifest_test.c, random orders of all of it are the piece `state-fetch` of the explorer. The
   state of a real run is in tests/engine/image_test.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "newcomer.h"

/* ---- sources that are sound ---- */

static void one_holder_of_a_whole_state_is_enough(void **state)
{
    newcomer *n = newcomer_open();

    (void)state;
    assert_int_equal(tutti_fetch_state_of(n->f), TUTTI_FETCH_STUCK);
    add(n, 1, image_of(3, 1, 0)); /* of three: it has nothing but what all have */
    assert_int_equal(tutti_fetch_state_of(n->f), TUTTI_FETCHING);
    answer_some(n, QUEUE);
    assert_int_equal(n->asked[0], ALL_RANGES - 1); /* x/w and b, of 20 bytes */
    assert_fetched(n, 3, 0);
    newcomer_close(n);
}

static void each_range_is_asked_once_of_one_of_several(void **state)
{
    newcomer *n = newcomer_open();

    (void)state;
    for (uint64_t id = 1; id <= 4; id++)
        add(n, id, image_of(4, (int)id - 1, 0));
    answer_some(n, QUEUE);
    assert_int_equal(asked_in_all(n), ALL_RANGES - 1);
    for (int k = 0; k < 4; k++)
        assert_true(n->asked[k] >= 4); /* as many as one may owe */
    assert_int_equal(n->most_owed, 4);
    assert_fetched(n, 4, 0);
    newcomer_close(n);
}

/* What only one has is asked of it first; the others share what all have. */
static void shards_and_states_of_each_worker_come_from_their_ranks(void **state)
{
    (void)state;
    for (int world = 1; world <= 4; world++)
        for (int with = 0; with <= 3; with++) {
            newcomer *n = newcomer_open();
            for (int r = world - 1; r >= 0; r--) {
                assert_true(r == world - 1 || with == 0 || tutti_fetch_state_of(n->f) != TUTTI_FETCHED);
                add(n, (uint64_t)r + 1, image_of(world, r, with));
                answer_some(n, QUEUE);
            }
            assert_fetched(n, world, with);
            newcomer_close(n);
        }
}

static bool but_b(void *user, const tutti_saved *p)
{
    (void)user;
    return strcmp(p->state, "b") != 0;
}

static void what_is_not_wanted_is_listed_and_not_fetched(void **state)
{
    newcomer *n = newcomer_open();
    float b[5];
    tutti_saved target = piece("b", "", TUTTI_SAME, 5);
    tutti_image *image = NULL;
    tutti_checkpoint *c = NULL;
    tutti_error err = { 0 };

    (void)state;
    tutti_fetch_close(n->f);
    assert_int_equal(tutti_fetch_open(&n->f,
                                      &(tutti_fetch_options){ .of = n->of, .most = 4 * WIDE, .stall_ns = STALL,
                                                              .window = 1, .wants = but_b, .request = ask,
                                                              .user = n },
                                      NULL),
                     TUTTI_OK);
    add(n, 1, image_of(1, 0, 0));
    answer_some(n, QUEUE);
    assert_int_equal(n->asked[0], X_RANGES);
    assert_int_equal(n->most_owed, 1);
    assert_int_equal(tutti_fetch_take(n->f, &image, NULL), TUTTI_OK);
    assert_int_equal(tutti_image_checkpoint(&c, image, NULL), TUTTI_OK);
    target.data = b;
    assert_int_equal(tutti_checkpoint_read(c, &target, 1, &err), TUTTI_ERR_STATE);
    assert_string_equal(err.text, "state of step 12 in memory: elements [0, 5) of 'b/' were not fetched, but are "
                                  "needed");
    assert_int_equal(tutti_checkpoint_verify(c, NULL), TUTTI_ERR_STATE);
    tutti_checkpoint_close(c);
    tutti_image_close(image);
    newcomer_close(n);
}

/* ---- damage ---- */

static void a_damaged_range_is_fetched_again(void **state)
{
    newcomer *n = newcomer_open();
    tutti_error err = { 0 };

    (void)state;
    add(n, 1, image_of(1, 0, 0));
    answer_some(n, 1);
    for (int k = 0; k < 2; k++) {
        assert_int_equal(answer(n, take(n, 0), true, &err), TUTTI_ERR_CORRUPT);
        assert_non_null(strstr(err.text, "as it came from 1; it is fetched again"));
    }
    answer_some(n, QUEUE);
    assert_int_equal(n->asked[0], ALL_RANGES - 1 + 2);
    assert_fetched(n, 1, 0);
    newcomer_close(n);
}

/* After the third: no memory and no link damages so much. */
static void a_holder_that_sends_damaged_ranges_is_asked_no_more(void **state)
{
    newcomer *n = newcomer_open();
    tutti_error err = { 0 };
    int asked;

    (void)state;
    add(n, 1, image_of(2, 0, 0));
    answer_some(n, 1);
    for (int k = 0; k < 3; k++)
        assert_int_equal(answer(n, take(n, 0), true, &err), TUTTI_ERR_CORRUPT);
    assert_non_null(strstr(err.text, "from 1, for the third time: it is asked no more"));
    assert_int_equal(tutti_fetch_state_of(n->f), TUTTI_FETCH_STUCK);
    assert_described(n, "state of step 12: 0 of 1020 bytes are here, 0 of 1 holders are left; nobody that is left "
                        "has the rest");
    forget(n, 1);
    asked = n->asked[0];
    add(n, 2, image_of(2, 1, 0));
    answer_some(n, QUEUE);
    assert_int_equal(n->asked[0], asked);
    assert_int_equal(n->asked[1], ALL_RANGES - 1);
    assert_fetched(n, 2, 0);
    newcomer_close(n);
}

static void a_range_of_another_length_or_number_is_damaged(void **state)
{
    newcomer *n = newcomer_open();
    tutti_error err = { 0 };
    request r;
    const void *at;
    size_t bytes;

    (void)state;
    add(n, 1, image_of(1, 0, 0));
    answer_some(n, 1);
    r = n->queue[0];
    assert_true(tutti_elastic_range(n->image[0], &n->of, r.range, &at, &bytes));
    assert_int_equal(tutti_fetch_range(n->f, 0, 1, r.range, at, bytes - 1, NULL), TUTTI_ERR_CORRUPT);
    assert_int_equal(tutti_fetch_range(n->f, 0, 1, ALL_RANGES - 1, at, bytes, NULL), TUTTI_ERR_CORRUPT);
    assert_false(tutti_elastic_range(n->image[0], &n->of, ALL_RANGES - 1, &at, &bytes));
    assert_int_equal(tutti_fetch_range(n->f, 0, 9, 0, at, bytes, &err), TUTTI_ERR_CORRUPT);
    assert_string_equal(err.text, "a range of state came from 9, which was not asked");
    answer_some(n, QUEUE);
    assert_fetched(n, 1, 0);
    newcomer_close(n);
}

static void memory_that_is_damaged_later_is_found_when_it_is_read(void **state)
{
    tutti_image *image = image_of(1, 0, 0);
    tutti_saved target = piece("x", "w", TUTTI_SAME, WIDE);
    float x[WIDE];
    tutti_checkpoint *c = NULL;
    tutti_error err = { 0 };

    (void)state;
    assert_string_equal(image->pieces[1].state, "x");
    ((uint8_t *)image->pieces[1].data)[5] ^= 1;
    assert_int_equal(tutti_image_checkpoint(&c, image, NULL), TUTTI_OK);
    target.data = x;
    assert_int_equal(tutti_checkpoint_read(c, &target, 1, &err), TUTTI_ERR_CORRUPT);
    assert_non_null(strstr(err.text, "state of step 12 in memory: elements [0, 250) of 'x/w' have hash"));
    assert_non_null(strstr(err.text, "fetch the state again"));
    assert_int_equal(tutti_checkpoint_verify(c, NULL), TUTTI_ERR_CORRUPT);
    tutti_checkpoint_close(c);
    tutti_image_close(image);
}

/* ---- holders that go, or stand still ---- */

static void what_a_lost_holder_owes_is_asked_of_others(void **state)
{
    newcomer *n = newcomer_open();
    int before;

    (void)state;
    for (uint64_t id = 1; id <= 2; id++)
        add(n, id, image_of(2, (int)id - 1, 0));
    answer_some(n, 2 + 6); /* both manifests, three ranges of each */
    assert_int_equal(n->owed[0], 4);
    before = asked_in_all(n);
    forget(n, 1);
    tutti_fetch_lost(n->f, 0, 1);
    tutti_fetch_lost(n->f, 0, 1); /* is no news */
    answer_some(n, QUEUE);
    assert_int_equal(asked_in_all(n), ALL_RANGES - 1 + 4); /* nothing that was here */
    assert_true(asked_in_all(n) > before);
    assert_fetched(n, 2, 0);
    newcomer_close(n);
}

static void a_fetch_goes_on_where_it_was(void **state)
{
    newcomer *n = newcomer_open();
    uint64_t here, needed;

    (void)state;
    add(n, 1, image_of(2, 0, SHARDS));
    add(n, 2, image_of(2, 1, SHARDS));
    answer_some(n, 2 + 10);
    tutti_fetch_progress(n->f, &here, &needed);
    assert_int_equal(here, 9 * RANGE + 20); /* ten ranges, one of them b */
    assert_int_equal(needed, 2 * 4 * WIDE + 20);
    for (uint64_t id = 1; id <= 2; id++) {
        forget(n, id);
        tutti_fetch_lost(n->f, 0, id);
    }
    assert_int_equal(tutti_fetch_state_of(n->f), TUTTI_FETCH_STUCK);
    assert_true(tutti_fetch_tick(n->f, 1) == INT64_MAX);
    assert_described(n, "state of step 12: 596 of 2020 bytes are here, 0 of 2 holders are left; nobody that is left "
                        "has the rest");
    memset(n->asked, 0, sizeof n->asked);
    add(n, 2, image_of(2, 1, SHARDS)); /* the same one is back, and a process with the first one's state */
    add(n, 5, image_of(2, 0, SHARDS));
    answer_some(n, QUEUE);
    assert_int_equal(asked_in_all(n), X_RANGES + 1 + 8 + 8 - 10);
    assert_fetched(n, 2, SHARDS);
    newcomer_close(n);
}

static void a_holder_that_stands_still_is_passed_over(void **state)
{
    newcomer *n = newcomer_open();
    request late;

    (void)state;
    add(n, 1, image_of(2, 0, 0));
    add(n, 2, image_of(2, 1, 0));
    answer_some(n, 2);
    n->now_ns = STALL - 1;
    while (n->queued > 4) { /* holder 1 answers nothing */
        size_t k = 0;
        while (n->queue[k].holder == 1)
            k++;
        assert_int_equal(answer(n, take(n, k), false, NULL), TUTTI_OK);
    }
    assert_int_equal(tutti_fetch_state_of(n->f), TUTTI_FETCHING);
    assert_true(tutti_fetch_tick(n->f, n->now_ns) == STALL);
    assert_int_equal(n->queued, 4);
    n->now_ns = STALL;
    assert_true(tutti_fetch_tick(n->f, n->now_ns) == 2 * STALL);
    assert_int_equal(n->asked[1], ALL_RANGES - 1); /* all four of holder 2 */
    late = take(n, 0);
    assert_int_equal(answer(n, late, false, NULL), TUTTI_OK); /* what comes late counts, too */
    n->now_ns++;
    for (size_t k = 0; k < n->queued;) {
        const request r = n->queue[k];
        if (r.holder == 1)
            k++;
        else
            assert_int_equal(answer(n, take(n, k), false, NULL), TUTTI_OK);
    }
    assert_fetched(n, 2, 0);
    newcomer_close(n);
}

/* The only holder of something is asked for one range each time, until it answers again. */
static void a_holder_that_stands_still_is_asked_again(void **state)
{
    newcomer *n = newcomer_open();
    int64_t next;

    (void)state;
    add(n, 1, image_of(1, 0, 0));
    next = tutti_fetch_tick(n->f, 0);
    assert_true(next == STALL);
    n->now_ns = next;
    next = tutti_fetch_tick(n->f, n->now_ns); /* the manifest again */
    assert_true(next == 2 * STALL);
    assert_int_equal(n->queued, 2);
    answer_some(n, 2); /* the second one is not needed */
    assert_int_equal(n->asked[0], 4);
    forget(n, 1);
    for (int k = 1; k <= 3; k++) {
        n->now_ns += STALL;
        next = tutti_fetch_tick(n->f, n->now_ns);
        assert_true(next == n->now_ns + STALL);
        assert_int_equal(n->asked[0], 4 + k);
        assert_int_equal(n->queued, 1);
        assert_int_equal(tutti_fetch_state_of(n->f), TUTTI_FETCHING);
        if (k < 3)
            forget(n, 1);
    }
    answer_some(n, QUEUE);
    assert_fetched(n, 1, 0);
    newcomer_close(n);
}

/* ---- what is missing ---- */

static void a_shard_that_nobody_has_is_named(void **state)
{
    newcomer *n = newcomer_open();

    (void)state;
    add(n, 1, image_of(3, 0, SHARDS));
    add(n, 2, image_of(3, 2, SHARDS));
    answer_some(n, QUEUE);
    assert_int_equal(tutti_fetch_state_of(n->f), TUTTI_FETCH_STUCK);
    assert_described(n, "state of step 12: 1688 of 1688 bytes are here, 2 of 2 holders are left; what rank 1 of 3 had "
                        "is nowhere");
    add(n, 3, image_of(3, 1, OWNED)); /* that rank, and it has nothing of m, and a state of its own */
    answer_some(n, QUEUE);
    assert_int_equal(tutti_fetch_state_of(n->f), TUTTI_FETCH_STUCK);
    assert_described(n, "state of step 12: 1716 of 1716 bytes are here, 3 of 3 holders are left; nobody has all of "
                        "'client/' (owner 0)");
    newcomer_close(n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_holder_of_a_whole_state_is_enough),
        cmocka_unit_test(each_range_is_asked_once_of_one_of_several),
        cmocka_unit_test(shards_and_states_of_each_worker_come_from_their_ranks),
        cmocka_unit_test(what_is_not_wanted_is_listed_and_not_fetched),
        cmocka_unit_test(a_damaged_range_is_fetched_again),
        cmocka_unit_test(a_holder_that_sends_damaged_ranges_is_asked_no_more),
        cmocka_unit_test(a_range_of_another_length_or_number_is_damaged),
        cmocka_unit_test(memory_that_is_damaged_later_is_found_when_it_is_read),
        cmocka_unit_test(what_a_lost_holder_owes_is_asked_of_others),
        cmocka_unit_test(a_fetch_goes_on_where_it_was),
        cmocka_unit_test(a_holder_that_stands_still_is_passed_over),
        cmocka_unit_test(a_holder_that_stands_still_is_asked_again),
        cmocka_unit_test(a_shard_that_nobody_has_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
