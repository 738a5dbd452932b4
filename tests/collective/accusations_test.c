/* Goal: collections of accusations are sets, and their tables bring them over as they are; a table
   that is none is refused; a few accusations among thousands of ranks are a short table. Method:
   against a plain table of all pairs, over random accusations. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "../../src/collective/accusations.h"

static void opened(tutti_accusations *a, int size) { assert_true(tutti_accusations_open(a, size)); }

static void is(const tutti_accusations *a, const bool *pairs)
{
    int n = 0;

    for (int whom = 0; whom < a->size; whom++) {
        bool any = false;
        for (int who = 0; who < a->size; who++) {
            assert_int_equal(tutti_accuses(a, who, whom), pairs[who * a->size + whom]);
            any = any || pairs[who * a->size + whom];
        }
        if (any)
            assert_int_equal(a->accused[n++], whom);
    }
    assert_int_equal(a->n, n);
}

static void test_collections_are_those_of_all_pairs(void **state)
{
    (void)state;
    srand(3);
    for (int size = 1; size <= 33; size++) {
        tutti_accusations a, b, c;
        bool pairs[33 * 33] = { false }, members[33];
        uint8_t table[33 * 9];
        opened(&a, size);
        opened(&b, size);
        opened(&c, size);
        for (int turn = 0; turn < 40; turn++) {
            const int who = rand() % size, whom = rand() % size;
            int accusers = 0;
            tutti_accuse(turn % 2 == 0 ? &a : &b, who, whom);
            tutti_accusations_merge(&a, &b);
            pairs[who * size + whom] = true;
            is(&a, pairs);
            assert_true(tutti_accusations_same(&a, &b) == tutti_accusations_same(&b, &a));
            for (int r = 0; r < size; r++) {
                members[r] = rand() % 2 == 0;
                accusers += members[r] && pairs[r * size + whom];
            }
            assert_int_equal(tutti_accusers(&a, whom, members), accusers);
            tutti_accusations_pack(&a, table);
            assert_true(tutti_accusations_unpack(&c, table, tutti_accusations_bytes(&a)));
            is(&c, pairs);
            assert_true(tutti_accusations_same(&a, &c));
        }
        tutti_accusations_clear(&c);
        assert_false(tutti_accusations_same(&a, &c));
        is(&c, (bool[33 * 33]){ false });
        tutti_accusations_close(&a);
        tutti_accusations_close(&b);
        tutti_accusations_close(&c);
    }
}

static void test_what_is_no_table_is_refused(void **state)
{
    /* of 10 ranks: number, row of 2 bytes */
    static const uint8_t good[] = { 3, 0, 0, 0, 1, 2, 9, 0, 0, 0, 0, 1 };
    static const struct { size_t at; uint8_t value; } bad[] = {
        { 0, 9 },   /* the same rank twice */
        { 6, 2 },   /* not ascending */
        { 6, 10 },  /* there is no rank 10 */
        { 9, 1 },   /* nor that one */
        { 9, 255 }, /* nor one that would be negative */
        { 5, 4 },   /* accused by rank 10 */
        { 11, 0 },  /* without an accuser */
    };
    tutti_accusations a;

    (void)state;
    opened(&a, 10);
    assert_true(tutti_accusations_unpack(&a, good, sizeof good));
    assert_int_equal(a.n, 2);
    assert_true(tutti_accuses(&a, 0, 3) && tutti_accuses(&a, 9, 3) && tutti_accuses(&a, 8, 9));
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        uint8_t table[sizeof good];
        memcpy(table, good, sizeof good);
        table[bad[k].at] = bad[k].value;
        if (tutti_accusations_unpack(&a, table, sizeof table))
            fail_msg("byte %zu as %d is taken", bad[k].at, bad[k].value);
        assert_int_equal(a.n, 0);
    }
    for (size_t bytes = 1; bytes < sizeof good; bytes++)
        assert_true(tutti_accusations_unpack(&a, good, bytes) == (bytes == 6));
    assert_true(tutti_accusations_unpack(&a, NULL, 0));
    tutti_accusations_close(&a);
}

static void test_a_few_losses_are_a_short_table(void **state)
{
    tutti_accusations a;

    (void)state;
    opened(&a, 4096);
    for (int who = 3; who < 4096; who++)
        for (int whom = 0; whom < 3; whom++)
            tutti_accuse(&a, who, whom * 1000);
    assert_int_equal(tutti_accusations_bytes(&a), 3 * (4 + 4096 / 8));
    tutti_accusations_close(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_collections_are_those_of_all_pairs),
        cmocka_unit_test(test_what_is_no_table_is_refused),
        cmocka_unit_test(test_a_few_losses_are_a_short_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
