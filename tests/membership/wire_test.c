/* Goal: messages are the bytes that wire.c draws; what is cut or damaged is refused, and changes
   nothing. Method: a message whose bytes are written out; every truncation, every bit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "membership/membership_internal.h"
#include <stdlib.h>
#include <string.h>

static tutti_epoch *three(void)
{
    tutti_epoch *const e = calloc(1, sizeof *e);

    *e = (tutti_epoch){ .number = 7, .step = 120, .next_rank = 9, .n = 3 };
    for (int i = 0; i < 3; i++) {
        tutti_member *const a = &e->members[i];
        *a = (tutti_member){ .id = 0x100 + (uint64_t)i, .rank = (uint32_t)(2 + 3 * i), .holds = i != 1 };
        snprintf(a->address, sizeof a->address, "10.0.0.%d:4100", i + 1);
    }
    return e;
}

static message of_kind(message_kind kind)
{
    message w = { .kind = kind, .run = "a run of tests", .id = 0x100, .number = 7, .step = 118, .ballot = 0x300000002,
                  .holds = true, .leaving = true, .address = "10.0.0.1:4100" };

    if (kind == ACCEPT || kind == PROMISE)
        w.number = 6; /* they carry the epoch after that of their sender */
    if (kind == PROMISE)
        w.accepted = 0x200000002;
    return w;
}

static size_t write_kind(uint8_t *out, message_kind kind, const tutti_epoch *e)
{
    const message w = of_kind(kind);

    return tutti_membership_write(out, &w, kind == RECORD || kind == ACCEPT || kind == PROMISE ? e : NULL);
}

static void heartbeat_has_these_bytes(void **state)
{
    static const uint8_t expected[] = {
        'T', 'M', 1, 2, 3, 13, 0, 0,
        'a', ' ', 'r', 'u', 'n', ' ', 'o', 'f', ' ', 't', 'e', 's', 't', 's', 0, 0,
        0, 1, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 118, 0, 0, 0, 0, 0, 0, 0,
        2, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        '1', '0', '.', '0', '.', '0', '.', '1', ':', '4', '1', '0', '0' };
    uint8_t *const bytes = calloc(1, MESSAGE_BYTES);

    (void)state;
    assert_int_equal(write_kind(bytes, HEARTBEAT, NULL), sizeof expected);
    assert_memory_equal(bytes, expected, sizeof expected);
    free(bytes);
}

static void messages_of_all_kinds_come_back(void **state)
{
    tutti_epoch *const e = three(), *const back = calloc(1, sizeof *back);
    uint8_t *const bytes = calloc(1, MESSAGE_BYTES), *const again = calloc(1, MESSAGE_BYTES);
    message w;

    (void)state;
    for (message_kind kind = JOIN; kind <= RECORD; kind++) {
        const size_t n = write_kind(bytes, kind, e);
        assert_int_equal(tutti_membership_read(&w, back, bytes, n, NULL), TUTTI_OK);
        assert_int_equal(w.kind, kind);
        assert_int_equal(back->n, kind == RECORD || kind == ACCEPT || kind == PROMISE ? 3 : 0);
        assert_int_equal(tutti_membership_write(again, &w, back->n > 0 ? back : NULL), n);
        assert_memory_equal(again, bytes, n);
    }
    free(e);
    free(back);
    free(bytes);
    free(again);
}

/* The copy ends where the bytes end, so that the address sanitizer sees a read past them. */
static tutti_status read_exactly(const uint8_t *bytes, size_t n, tutti_epoch *e, tutti_error *err)
{
    uint8_t *const copy = malloc(n > 0 ? n : 1);
    message w;
    tutti_status status;

    memcpy(copy, bytes, n);
    status = tutti_membership_read(&w, e, copy, n, err);
    free(copy);
    return status;
}

static void cut_messages_are_refused(void **state)
{
    tutti_epoch *const e = three(), *const back = calloc(1, sizeof *back);
    uint8_t *const bytes = calloc(1, MESSAGE_BYTES + 1);
    tutti_error err;

    (void)state;
    for (message_kind kind = JOIN; kind <= RECORD; kind++) {
        const size_t n = write_kind(bytes, kind, e);
        for (size_t cut = 0; cut < n; cut++) {
            assert_int_equal(read_exactly(bytes, cut, back, &err), TUTTI_ERR_CORRUPT);
            assert_non_null(strstr(err.text, "members"));
        }
        assert_int_equal(read_exactly(bytes, n + 1, back, &err), TUTTI_ERR_CORRUPT);
    }
    free(e);
    free(back);
    free(bytes);
}

/* A bit may give another message, which is well formed then; lengths are never believed. */
static void damaged_messages_are_refused_or_well_formed(void **state)
{
    tutti_epoch *const e = three(), *const back = calloc(1, sizeof *back);
    uint8_t *const bytes = calloc(1, MESSAGE_BYTES);
    int refused = 0, taken = 0;

    (void)state;
    for (message_kind kind = JOIN; kind <= RECORD; kind++) {
        const size_t n = write_kind(bytes, kind, e);
        for (size_t bit = 0; bit < 8 * n; bit++) {
            bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
            if (read_exactly(bytes, n, back, NULL) == TUTTI_OK) {
                assert_true(back->n == 0 || tutti_epoch_check(back, NULL) == TUTTI_OK);
                taken++;
            } else
                refused++;
            bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        }
    }
    assert_true(refused > 1000 && taken > 0);
    free(e);
    free(back);
    free(bytes);
}

static void a_count_of_members_is_not_believed(void **state)
{
    tutti_epoch *const e = three(), *const back = calloc(1, sizeof *back);
    uint8_t *const bytes = calloc(1, MESSAGE_BYTES);
    const size_t n = write_kind(bytes, RECORD, e);
    uint8_t *const count = bytes + HEADER_BYTES + strlen("10.0.0.1:4100") + 20;
    tutti_error err;

    (void)state;
    memset(count, 0xff, 4);
    assert_int_equal(read_exactly(bytes, n, back, &err), TUTTI_ERR_CORRUPT);
    assert_string_equal(err.text, "a message about 4294967295 members is cut: 81 bytes are left for them");
    memcpy(count, (const uint8_t[]){ 0, 4, 0, 0 }, 4); /* TUTTI_MEMBERS_MAX, which are not there */
    assert_int_equal(read_exactly(bytes, n, back, &err), TUTTI_ERR_CORRUPT);
    memset(count, 0, 4);
    assert_int_equal(read_exactly(bytes, n, back, &err), TUTTI_ERR_CORRUPT);
    free(e);
    free(back);
    free(bytes);
}

static void an_address_has_no_nul_in_it(void **state)
{
    tutti_epoch *const e = three(), *const back = calloc(1, sizeof *back);
    uint8_t *const bytes = calloc(1, MESSAGE_BYTES);
    const size_t n = write_kind(bytes, RECORD, e);

    (void)state;
    for (size_t k = 0; k < strlen("10.0.0.1:4100"); k++) {
        uint8_t *const at = bytes + HEADER_BYTES + k, was = *at;
        *at = 0;
        assert_int_equal(read_exactly(bytes, n, back, NULL), TUTTI_ERR_CORRUPT);
        *at = was;
        bytes[n - 1 - k] = 0; /* of the last member */
        assert_int_equal(read_exactly(bytes, n, back, NULL), TUTTI_ERR_CORRUPT);
        write_kind(bytes, RECORD, e);
    }
    free(e);
    free(back);
    free(bytes);
}

static void the_largest_message_fits(void **state)
{
    tutti_epoch *const e = calloc(1, sizeof *e), *const back = calloc(1, sizeof *back);
    uint8_t *const bytes = calloc(1, MESSAGE_BYTES);
    message w = of_kind(RECORD);
    size_t n;

    (void)state;
    *e = (tutti_epoch){ .number = 7, .next_rank = UINT32_MAX, .n = TUTTI_MEMBERS_MAX };
    memset(w.address, 'x', TUTTI_ADDRESS_BYTES - 1);
    for (int i = 0; i < e->n; i++) {
        e->members[i] = (tutti_member){ .id = (uint64_t)i + 1, .rank = (uint32_t)i, .holds = true };
        memset(e->members[i].address, 'y', TUTTI_ADDRESS_BYTES - 1);
    }
    n = tutti_membership_write(bytes, &w, e);
    assert_true(n <= MESSAGE_BYTES);
    assert_int_equal(read_exactly(bytes, n, back, NULL), TUTTI_OK);
    assert_int_equal(back->n, TUTTI_MEMBERS_MAX);
    free(e);
    free(back);
    free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heartbeat_has_these_bytes),
        cmocka_unit_test(messages_of_all_kinds_come_back),
        cmocka_unit_test(cut_messages_are_refused),
        cmocka_unit_test(damaged_messages_are_refused_or_well_formed),
        cmocka_unit_test(a_count_of_members_is_not_believed),
        cmocka_unit_test(an_address_has_no_nul_in_it),
        cmocka_unit_test(the_largest_message_fits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
