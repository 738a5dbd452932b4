/* events_test.c: what is recorded of peers, and the rule by which one side of a divided run
   continues. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include "transport/events.h"

static void losses_are_always_noted_and_warnings_up_to_a_bound(void **state)
{
    enum { SIZE = 5 };
    tutti_peer_event out[8];
    tutti_events e;

    (void)state;
    assert_int_equal(tutti_events_open(&e, SIZE, NULL), TUTTI_OK);
    assert_int_equal(tutti_events_read(&e, 0, out, 8), 0);
    for (int i = 0; i < 3 * TUTTI_EVENTS_WARNINGS; i++)
        tutti_events_record(&e, 1, i % 2 == 0 ? TUTTI_PEER_SILENT : TUTTI_PEER_BACK, i, "a warning");
    for (int r = 1; r < SIZE; r++)
        tutti_events_record(&e, r, TUTTI_PEER_LOST, 1000 + r, "a loss");
    assert_int_equal(tutti_events_read(&e, TUTTI_EVENTS_WARNINGS - 1, out, 3), TUTTI_EVENTS_WARNINGS + SIZE - 1);
    assert_true(out[0].change == TUTTI_PEER_BACK && out[0].epoch == 0 && out[0].at_ns == TUTTI_EVENTS_WARNINGS - 1);
    assert_true(out[1].change == TUTTI_PEER_LOST && out[1].epoch == 1 && out[1].rank == 1 && out[1].at_ns == 1001);
    assert_true(out[2].change == TUTTI_PEER_LOST && out[2].epoch == 2 && out[2].rank == 2);
    memset(out, 7, sizeof out);
    assert_int_equal(tutti_events_read(&e, TUTTI_EVENTS_WARNINGS + SIZE - 2, out, 8), TUTTI_EVENTS_WARNINGS + SIZE - 1);
    assert_true(out[0].epoch == SIZE - 1 && out[1].epoch != SIZE); /* nothing behind the last */
    memset(out, 7, sizeof out);
    assert_int_equal(tutti_events_read(&e, -1, out, 8), TUTTI_EVENTS_WARNINGS + SIZE - 1);
    assert_int_equal(out[0].rank, 0x07070707); /* there is no such number */
    tutti_events_close(&e);
    tutti_events_close(&e);
}

static void event_texts_are_truncated_and_control_characters_removed(void **state)
{
    char to[8];

    (void)state;
    tutti_events_copy(to, sizeof to, "a\x1b[1m\n\x7f");
    assert_string_equal(to, "a [1m  ");
    tutti_events_copy(to, sizeof to, "1234567");
    assert_string_equal(to, "1234567");
    tutti_events_copy(to, sizeof to, "123456\xc3\xa9");
    assert_string_equal(to, "123456");
    tutti_events_copy(to, sizeof to, "1234\xe2\x82\xac" "5");
    assert_string_equal(to, "1234\xe2\x82\xac");
    tutti_events_copy(to, sizeof to, "12345\xe2\x82\xac");
    assert_string_equal(to, "12345");
    tutti_events_copy(to, 1, "x");
    assert_string_equal(to, "");
}

/* Goal: of two sides exactly one continues, of three at most one, whichever ranks are dead.
   Method: every division of up to 7 ranks into dead and two or three sides. */
static void at_most_one_of_disjoint_partitions_continues(void **state)
{
    (void)state;
    for (int n = 1; n <= 7; n++) {
        int divisions = 1;
        for (int r = 0; r < n; r++)
            divisions *= 4;
        for (int d = 0; d < divisions; d++) {
            bool here[3][7] = { { false } }, dead[7] = { false };
            int members[3] = { 0 }, going = 0, sides = 0, most = 0, best = -1;
            for (int r = 0, rest = d; r < n; r++, rest /= 4) {
                if (rest % 4 == 3)
                    dead[r] = true;
                else {
                    here[rest % 4][r] = true;
                    members[rest % 4]++;
                }
            }
            for (int s = 0; s < 3; s++) {
                sides += members[s] > 0;
                if (members[s] > most) {
                    most = members[s];
                    best = s;
                }
            }
            for (int s = 0; s < 3; s++) {
                const bool on = members[s] > 0 && tutti_events_side_continues(n, here[s], dead);
                going += on;
                if (on)
                    assert_int_equal(members[s], members[best]); /* a smaller side never */
            }
            assert_true(going <= 1);
            if (sides == 1 || sides == 2)
                assert_int_equal(going, 1);
        }
    }
}

static void the_half_with_the_lowest_rank_continues(void **state)
{
    static const bool low[4] = { true, false, false, true }, high[4] = { false, true, true, false },
                      nobody[4] = { false };
    static const bool one[4] = { false, true, false, false }, zero_is_dead[4] = { true, false, false, false };

    (void)state;
    assert_true(tutti_events_side_continues(4, low, nobody));
    assert_false(tutti_events_side_continues(4, high, nobody));
    assert_true(tutti_events_side_continues(4, high, zero_is_dead)); /* 1 and 2 of 1, 2, 3 */
    assert_false(tutti_events_side_continues(4, one, zero_is_dead));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_are_always_noted_and_warnings_up_to_a_bound),
        cmocka_unit_test(event_texts_are_truncated_and_control_characters_removed),
        cmocka_unit_test(at_most_one_of_disjoint_partitions_continues),
        cmocka_unit_test(the_half_with_the_lowest_rank_continues),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
