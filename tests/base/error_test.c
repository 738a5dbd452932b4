/* Goal: every failure leaves a status, a whole sentence and an untouched errno. Method: texts
   of every length round the limit. */
#include "base_test.h"

#include <errno.h>
#include <wchar.h>
#include "base/errors.h"

static void fail_sets_every_error_field(void **state)
{
    tutti_error err;

    (void)state;
    memset(&err, 0xAA, sizeof err);
    assert_int_equal(tutti_fail(&err, TUTTI_ERR_USAGE, 0, "option '%s' is %d", "lr", 3), TUTTI_ERR_USAGE);
    assert_int_equal(err.status, TUTTI_ERR_USAGE);
    assert_int_equal(err.rank, -1);
    assert_int_equal(err.cause, 0);
    assert_string_equal(err.text, "option 'lr' is 3");

    assert_int_equal(tutti_fail_rank(&err, TUTTI_ERR_PEER, 7, "rank %d left", 7), TUTTI_ERR_PEER);
    assert_int_equal(err.status, TUTTI_ERR_PEER);
    assert_int_equal(err.rank, 7);
    assert_string_equal(err.text, "rank 7 left");
}

static void errno_text_is_appended_to_the_message(void **state)
{
    tutti_error err;

    (void)state;
    assert_int_equal(tutti_fail(&err, TUTTI_ERR_IO, ENOSPC, "cannot write '%s'", "a"), TUTTI_ERR_IO);
    assert_string_equal(err.text, "cannot write 'a' (No space left on device)");
    assert_int_equal(err.cause, ENOSPC);
    tutti_fail(&err, TUTTI_ERR_IO, 12345, "odd");
    assert_string_equal(err.text, "odd (Unknown error 12345)");
}

static void every_error_of_the_system_has_a_text_that_stays(void **state)
{
    const char *full = tutti_errno_text(ENOSPC);
    char unknown[64];

    (void)state;
    assert_string_equal(full, "No space left on device");
    assert_string_equal(tutti_errno_text(0), "Success");
    for (int number = -1; number <= 4096; number++) {
        const char *text = tutti_errno_text(number), *known = strerrordesc_np(number);
        snprintf(unknown, sizeof unknown, "Unknown error %d", number);
        assert_non_null(text);
        assert_string_equal(text, known != NULL ? known : unknown);
    }
    assert_string_equal(full, "No space left on device");
}

static void errno_survives_a_failure_and_a_free(void **state)
{
    tutti_error err;

    (void)state;
    errno = 77;
    tutti_fail(&err, TUTTI_ERR_IO, ENOENT, "%s", "x");
    assert_int_equal(errno, 77);
    tutti_fail_rank(&err, TUTTI_ERR_PEER, 1, "x");
    assert_int_equal(errno, 77);
    tutti_fail_within(&err, TUTTI_ERR_PEER, "y");
    assert_int_equal(errno, 77);
    tutti_fail(&err, TUTTI_ERR_IO, 0, "value %ls", L"\xD800"); /* no character: printf itself fails, and sets errno */
    assert_int_equal(errno, 77);
    assert_string_equal(err.text, "value %ls");
    tutti_free(NULL);
    tutti_free(tutti_alloc(1 << 22, 1));
    assert_int_equal(errno, 77);
}

static void a_null_error_pointer_is_accepted(void **state)
{
    (void)state;
    assert_int_equal(tutti_fail(NULL, TUTTI_ERR_IO, 2, "x"), TUTTI_ERR_IO);
    assert_int_equal(tutti_fail_rank(NULL, TUTTI_TIMEOUT, 2, "x"), TUTTI_TIMEOUT);
    assert_int_equal(tutti_fail_within(NULL, TUTTI_CLOSED, "x"), TUTTI_CLOSED);
}

static void callers_prefix_error_messages_with_context(void **state)
{
    tutti_error err;

    (void)state;
    tutti_fail_rank(&err, TUTTI_ERR_PEER, 3, "no answer");
    assert_int_equal(tutti_fail_within(&err, err.status, "step %d", 12), TUTTI_ERR_PEER);
    assert_string_equal(err.text, "step 12: no answer");
    assert_int_equal(err.rank, 3);
    assert_int_equal(tutti_fail_within(&err, TUTTI_OK, "nothing"), TUTTI_OK);
    assert_string_equal(err.text, "step 12: no answer");
    /* A sentence may quote the one that it replaces. */
    tutti_fail(&err, TUTTI_ERR_STATE, 0, "again, %s", err.text);
    assert_string_equal(err.text, "again, step 12: no answer");
}

/* Whether text is whole UTF-8 characters of 1 to 4 bytes. */
static int is_whole(const char *text)
{
    const unsigned char *p = (const unsigned char *)text;

    while (*p != 0) {
        int more = *p < 0x80 ? 0 : *p < 0xC0 ? -1 : *p < 0xE0 ? 1 : *p < 0xF0 ? 2 : 3;
        if (more < 0)
            return 0;
        for (p++; more > 0; more--, p++)
            if ((*p & 0xC0) != 0x80)
                return 0;
    }
    return 1;
}

static void long_texts_are_cut_at_a_whole_character(void **state)
{
    static const char *const letters[] = { "x", "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x99\x82" };
    static const char cause[] = " (No such file or directory)";
    char text[1200];
    tutti_error err;

    (void)state;
    for (size_t l = 0; l < TUTTI_LENGTH(letters); l++) {
        const size_t width = strlen(letters[l]);
        for (size_t shift = 0; shift < 5; shift++) {
            memset(text, 'a', shift);
            text[shift] = '\0';
            while (strlen(text) + width < sizeof text - 1)
                strcat(text, letters[l]);
            memset(err.text, 0x7F, sizeof err.text);
            tutti_fail(&err, TUTTI_ERR_IO, 0, "%s", text);
            assert_true(is_whole(err.text));
            /* no more is lost than a character */
            assert_in_range(strlen(err.text), sizeof err.text - width, sizeof err.text - 1);
            assert_memory_equal(err.text, text, strlen(err.text));

            tutti_fail(&err, TUTTI_ERR_IO, ENOENT, "%s", text);
            assert_true(is_whole(err.text));
            assert_string_equal(err.text + strlen(err.text) - strlen(cause), cause);

            tutti_fail_within(&err, TUTTI_ERR_IO, "%.*s", (int)shift, text);
            assert_true(is_whole(err.text));
            tutti_fail_within(&err, TUTTI_ERR_IO, "%s", text);
            assert_true(is_whole(err.text));
        }
    }
    for (size_t n = sizeof err.text - 3; n < sizeof err.text + 3; n++) { /* the limit itself */
        memset(text, 'b', n);
        text[n] = '\0';
        tutti_fail(&err, TUTTI_ERR_IO, 0, "%s", text);
        assert_int_equal(strlen(err.text), n < sizeof err.text ? n : sizeof err.text - 1);
    }
}

static void text_that_is_no_utf8_is_cut_all_the_same(void **state)
{
    char text[1000];
    tutti_error err;

    (void)state;
    memset(text, 0x80, sizeof text);
    text[sizeof text - 1] = '\0';
    tutti_fail(&err, TUTTI_ERR_IO, 0, "%s", text);
    assert_int_equal(strlen(err.text), sizeof err.text - 1);
}

static void every_status_has_a_name_of_its_own(void **state)
{
    (void)state;
    for (int a = TUTTI_OK; a <= TUTTI_ERR_NUMBER; a++) {
        assert_string_not_equal(tutti_status_name((tutti_status)a), "unknown");
        for (int b = TUTTI_OK; b < a; b++)
            assert_string_not_equal(tutti_status_name((tutti_status)a), tutti_status_name((tutti_status)b));
    }
    assert_string_equal(tutti_status_name(TUTTI_ERR_CORRUPT), "corrupt");
    assert_string_equal(tutti_status_name((tutti_status)99), "unknown");
}

static void library_version_matches_the_header(void **state)
{
    char version[32];

    (void)state;
    snprintf(version, sizeof version, "%d.%d.%d", TUTTI_VERSION_MAJOR, TUTTI_VERSION_MINOR, TUTTI_VERSION_PATCH);
    assert_string_equal(tutti_version(), version);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fail_sets_every_error_field),
        cmocka_unit_test(errno_text_is_appended_to_the_message),
        cmocka_unit_test(every_error_of_the_system_has_a_text_that_stays),
        cmocka_unit_test(errno_survives_a_failure_and_a_free),
        cmocka_unit_test(a_null_error_pointer_is_accepted),
        cmocka_unit_test(callers_prefix_error_messages_with_context),
        cmocka_unit_test(long_texts_are_cut_at_a_whole_character),
        cmocka_unit_test(text_that_is_no_utf8_is_cut_all_the_same),
        cmocka_unit_test(every_status_has_a_name_of_its_own),
        cmocka_unit_test(library_version_matches_the_header),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
