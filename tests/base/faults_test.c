/* Goal: no memory is an ordinary result. Method: tutti_alloc is wrapped at link time; the 1st, 2nd,
   3rd ... allocation fails until the call succeeds. After each failure the object still closes and
   still works. AddressSanitizer sees what leaks. */
#include "base_test.h"
#include "base/settings.h"

#include <stdlib.h>

#define NEVER SIZE_MAX

static size_t until_failure = NEVER; /* this many allocations succeed, one fails, the later ones succeed */

void *__real_tutti_alloc(size_t count, size_t size);
void *__wrap_tutti_alloc(size_t count, size_t size);

void *__wrap_tutti_alloc(size_t count, size_t size)
{
    if (until_failure != NEVER && until_failure-- == 0)
        return NULL; /* which leaves NEVER */
    return __real_tutti_alloc(count, size);
}

static void opening_a_spec_without_memory_fails_cleanly(void **state)
{
    tutti_status status = TUTTI_ERR_MEMORY;
    size_t failures = 0;

    (void)state;
    for (size_t k = 0; status != TUTTI_OK; k++) {
        tutti_spec *spec = (tutti_spec *)&status;
        tutti_error err;
        until_failure = k;
        status = tutti_spec_open(&spec, "adam(lr=0.1,inner=a(b))", &err);
        until_failure = NEVER;
        if (status != TUTTI_OK) {
            failures++;
            assert_int_equal(status, TUTTI_ERR_MEMORY);
            assert_null(spec);
            assert_string_equal(err.text, "opening spec 'adam(lr=0.1,inner=a(b))' (Cannot allocate memory)");
        }
        tutti_spec_close(spec);
    }
    assert_int_equal(failures, 1);
}

static void failed_allocations_keep_setting_values_and_origins_consistent(void **state)
{
    static const char *const texts[] = {
        "batch: 8\ndata: new\ninner: adam\n", "{\"batch\": 8, \"data\": \"new\", \"inner\": \"adam\"}",
    };

    (void)state;
    for (size_t t = 0; t < TUTTI_LENGTH(texts); t++) {
        tutti_status status = TUTTI_ERR_MEMORY;
        size_t failures = 0;
        for (size_t k = 0; status != TUTTI_OK; k++) {
            tutti_settings *s = NULL;
            tutti_error err;
            subject self;
            const char *where;
            assert_int_equal(tutti_settings_open(&s, subject_options, &self, &err), TUTTI_OK);
            assert_int_equal(tutti_settings_text(s, "old", "data: old\n", 10, &err), TUTTI_OK);
            until_failure = k;
            status = tutti_settings_text(s, "run", texts[t], strlen(texts[t]), &err);
            until_failure = NEVER;
            tutti_settings_origin(s, "data", &where);
            if (status != TUTTI_OK) {
                failures++;
                assert_int_equal(status, TUTTI_ERR_MEMORY);
                assert_non_null(strstr(err.text, ": setting option '"));
                /* A value and its origin change together or not at all. */
                assert_string_equal(where, strcmp(self.data, "old") == 0 ? "old:1" : t == 0 ? "run:2" : "run:1");
            } else {
                assert_string_equal(self.data, "new");
                assert_string_equal(self.inner, "adam");
                assert_int_equal(self.batch, 8);
            }
            tutti_settings_close(s);
        }
        assert_int_equal(failures, 5); /* one place each, two texts */
    }
}

static void opening_settings_or_a_file_without_memory_fails_cleanly(void **state)
{
    tutti_settings *s = (tutti_settings *)&s;
    tutti_error err;
    subject self;

    (void)state;
    until_failure = 0;
    assert_int_equal(tutti_settings_open(&s, subject_options, &self, &err), TUTTI_ERR_MEMORY);
    assert_null(s);
    assert_int_equal(self.batch, 32);
    until_failure = 1;
    assert_int_equal(tutti_settings_open(&s, subject_options, &self, &err), TUTTI_OK);
    assert_int_equal(tutti_settings_file(s, "/dev/null", &err), TUTTI_ERR_MEMORY);
    assert_string_equal(err.text, "reading settings file '/dev/null' (Cannot allocate memory)");
    until_failure = NEVER;
    assert_int_equal(tutti_settings_file(s, "/dev/null", &err), TUTTI_OK);
    tutti_settings_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opening_a_spec_without_memory_fails_cleanly),
        cmocka_unit_test(failed_allocations_keep_setting_values_and_origins_consistent),
        cmocka_unit_test(opening_settings_or_a_file_without_memory_fails_cleanly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
