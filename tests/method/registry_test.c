/* Goal: the registry lists every method file and nothing else, and each row is complete. A
   method is METHOD.c, or a folder of that name where it has facilities of its own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <dirent.h>
#include <stdio.h>
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
        if (dot != NULL && (strcmp(dot, ".c") != 0 || strcmp(name, "registry.c") == 0))
            continue;
        if (dot != NULL)
            *dot = 0;
        files++;
        if (tutti_method_find(name) == NULL)
            fail_msg("src/method/%s: there is no method '%s' in the registry", entry->d_name, name);
    }
    closedir(folder);
    while (tutti_methods[rows] != NULL)
        rows++;
    assert_int_equal(files, rows);
}

/* METHOD(ad_psgd) is "ad-psgd" with docs/methods/ad-psgd.md, in the order of the list. */
static void every_line_of_the_list_is_a_row_with_a_page(void **state)
{
    static const char *const listed[] = {
#define METHOD(name) #name,
#include "method/methods.def"
#undef METHOD
    };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(listed); i++) {
        const char *name = tutti_methods[i] != NULL ? tutti_methods[i]->name : "";
        char as_listed[64], page[512];
        FILE *file;
        snprintf(as_listed, sizeof as_listed, "%s", name);
        for (char *c = strchr(as_listed, '-'); c != NULL; c = strchr(c, '-'))
            *c = '_';
        assert_string_equal(as_listed, listed[i]);
        snprintf(page, sizeof page, TUTTI_SOURCE_DIR "/docs/methods/%s.md", name);
        file = fopen(page, "r");
        if (file == NULL)
            fail_msg("method '%s' has no page %s", name, page);
        fclose(file);
    }
    assert_null(tutti_methods[TUTTI_LENGTH(listed)]);
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
        cmocka_unit_test(every_line_of_the_list_is_a_row_with_a_page),
        cmocka_unit_test(every_row_is_complete),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
