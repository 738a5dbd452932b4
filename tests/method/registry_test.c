/* Goal: the registry lists every method file and nothing else, and each row is complete. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <dirent.h>
#include <string.h>

#include "tutti/method.h"

static void every_file_of_the_folder_is_a_row_and_every_row_a_file(void **state)
{
    DIR *folder = opendir(TUTTI_SOURCE_DIR "/src/method");
    struct dirent *entry;
    int files = 0, rows = 0;

    (void)state;
    assert_non_null(folder);
    while ((entry = readdir(folder)) != NULL) {
        char name[256];
        char *dot;
        snprintf(name, sizeof name, "%s", entry->d_name);
        dot = strrchr(name, '.');
        if (dot == NULL || strcmp(dot, ".c") != 0 || strcmp(name, "registry.c") == 0)
            continue;
        *dot = 0;
        files++;
        if (tutti_method_find(name) == NULL)
            fail_msg("src/method/%s.c is not in the registry", name);
    }
    closedir(folder);
    while (tutti_methods[rows] != NULL)
        rows++;
    assert_int_equal(files, rows);
}

static void every_row_is_complete(void **state)
{
    (void)state;
    for (size_t i = 0; tutti_methods[i] != NULL; i++) {
        const tutti_method_ops *m = tutti_methods[i];
        assert_ptr_equal(tutti_method_find(m->name), m);
        assert_true(m->title[0] != 0 && m->authors[0] != 0 && m->family[0] != 0 && m->year > 1980);
        assert_non_null(m->axes.topology);
        assert_non_null(m->axes.synchrony);
        assert_non_null(m->axes.codec);
        assert_non_null(m->axes.update);
        for (const tutti_option *o = m->options; o != NULL && o->name != NULL; o++) {
            assert_true(o->help != NULL && o->help[0] != 0);
            if (o->type == TUTTI_INT || o->type == TUTTI_REAL)
                assert_true(o->min <= o->initial && o->initial <= o->max);
        }
    }
    assert_null(tutti_method_find("no-such-method"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_file_of_the_folder_is_a_row_and_every_row_a_file),
        cmocka_unit_test(every_row_is_complete),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
