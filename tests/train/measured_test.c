/* Goal: the file of a measured network is read as written, and each mistake in one is named with
   its place. Method: one good text, and texts with one thing changed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "train/measured.h"

static const char net[] =
    "{\"schema\": \"tutti-measured-1\", \"module\": \"Net\", \"batch\": 8, \"forward_seconds\": 0.5,\n"
    " \"backward_seconds\": 1, \"optimizer_seconds\": 0.25, \"activation_bytes\": 100, \"tensors\": [\n"
    " {\"name\": \"fc.bias\", \"shape\": [10], \"dtype\": \"float32\", \"needed_seconds\": 0.4,\n"
    "  \"ready_seconds\": 0.125},\n"
    " {\"name\": \"fc.weight\", \"shape\": [10, 4], \"dtype\": \"float16\", \"needed_seconds\": 0.3,\n"
    "  \"ready_seconds\": 0.25},\n"
    " {\"name\": \"conv.weight\", \"shape\": [4, 3, 2, 2, 5], \"dtype\": \"float32\", \"needed_seconds\": 0.1,\n"
    "  \"ready_seconds\": 0.75},\n"
    " {\"name\": \"scale\", \"shape\": [], \"dtype\": \"bfloat16\", \"ready_seconds\": 1}]}";

/* The text with the first `from` as `to`. */
static const char *changed(const char *from, const char *to)
{
    static char out[4096];
    const char *at = strstr(net, from);

    assert_non_null(at);
    snprintf(out, sizeof out, "%.*s%s%s", (int)(at - net), net, to, at + strlen(from));
    return out;
}

static void tensors_are_in_units_from_the_input_on(void **state)
{
    static const int unit[] = { 2, 2, 1, 0 }, dims[] = { 1, 2, 4, 1 };
    static const size_t count[] = { 10, 40, 240, 1 };
    static const double needed[] = { 0, 0.1, 0.3 };
    tutti_measured_model *m;
    tutti_error err;

    (void)state;
    assert_int_equal(tutti_measured_parse(&m, "m.json", net, strlen(net), &err), TUTTI_OK);
    assert_string_equal(m->module, "Net");
    assert_int_equal(m->batch, 8);
    assert_float_equal(m->forward, 0.5, 0);
    assert_float_equal(m->backward, 1, 0);
    assert_float_equal(m->optimizer, 0.25, 0);
    assert_int_equal(tutti_measured_activations(m, 20), 250);
    assert_int_equal(m->n, 4);
    assert_int_equal(m->units, 3);
    for (int k = 0; k < m->n; k++) {
        assert_int_equal(m->param[k].unit, unit[k]);
        assert_int_equal(m->param[k].dims, dims[k]);
        assert_int_equal(m->param[k].count, count[k]);
    }
    for (int u = 0; u < m->units; u++)
        assert_float_equal(m->needed[u], needed[u], 0);
    assert_int_equal(m->param[2].dim[3], 10); /* of more than four sizes the last are one */
    assert_string_equal(m->name[2], "conv.weight");
    assert_float_equal(m->ready[2], 0.75, 0);
    tutti_measured_close(m);
    tutti_measured_close(NULL);
}

static void mistakes_are_named_with_their_place(void **state)
{
    static const struct {
        const char *from, *to, *say;
    } wrong[] = {
        { "tutti-measured-1", "tutti-stages-1", "m.json: its schema is 'tutti-stages-1'; it must be" },
        { "\"batch\": 8", "\"batch\": 0", "m.json: 'batch' must be a whole number from 1 to 1048576" },
        { "\"batch\": 8", "\"batch\": 8.5", "'batch' must be a whole number" },
        { "\"batch\": 8, ", "", "'batch' must be a whole number" },
        { "\"batch\": 8", "\"bach\": 8", "there is no member 'bach'; did you mean 'batch'" },
        { "\"forward_seconds\": 0.5", "\"forward_seconds\": -1", "'forward_seconds' must be a number of seconds" },
        { "\"backward_seconds\": 1", "\"backward_seconds\": \"1\"", "'backward_seconds' must be a number" },
        { "\"optimizer_seconds\": 0.25", "\"optimizer_seconds\": 1e9", "'optimizer_seconds' must be a number" },
        { "\"activation_bytes\": 100", "\"activation_bytes\": -1", "'activation_bytes' must be a whole number" },
        { "\"module\": \"Net\"", "\"module\": 5", "'module' must be text of 1 to 512 bytes" },
        { "\"fc.bias\"", "\"fc.weight\"", "two tensors are named 'fc.weight'; a shared one stands there once" },
        { "\"fc.bias\"", "\"\"", "m.json: tensors, number 1: 'name' must be text" },
        { "\"fc.bias\"", "\"a\\u0007\"", "'name' has a control character" },
        { "[10, 4]", "[10, 0]", "tensors, number 2: 'shape' has sizes that are whole numbers from 1 on" },
        { "[10, 4]", "[1099511627776, 1099511627776]", "its number 2 is not so" },
        { "[10, 4]", "[1099511627776]", "tensors, number 2: with it there are more than 2^40 values" },
        { "[10, 4]", "[1,1,1,1,1,1,1,1,1]", "'shape' must be a list of 0 to 8 sizes" },
        { "[10, 4]", "40", "'shape' must be a list" },
        { "float16", "int8", "tensors, number 2: 'dtype' must be \"float32\"" },
        { "\"needed_seconds\": 0.4", "\"needed_seconds\": 0.6",
          "'needed_seconds' is 0.6, after the end of forward at 0.5" },
        { "0.75", "1.5", "tensors, number 3: 'ready_seconds' is 1.5, after the end of backward at 1" },
        { "0.75", "0.2", "tensors must stand in the order in which their gradients become ready" },
        { ",\n  \"ready_seconds\": 0.75", "", "tensors, number 3: 'ready_seconds' must be a number of seconds" },
        { "\"tensors\": [", "\"tensors\": [5, ", "tensors, number 1: it must be an object with 'name'" },
        { "\"tensors\": [", "\"tensors\": [", NULL },
    };
    tutti_measured_model *m;
    tutti_error err;

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(wrong); i++) {
        const char *text = changed(wrong[i].from, wrong[i].to);
        const tutti_status status = tutti_measured_parse(&m, "m.json", text, strlen(text), &err);
        if (wrong[i].say == NULL) {
            assert_int_equal(status, TUTTI_OK);
            tutti_measured_close(m);
            continue;
        }
        assert_int_equal(status, TUTTI_ERR_USAGE);
        assert_null(m);
        if (strstr(err.text, wrong[i].say) == NULL || strncmp(err.text, "m.json: ", 8) != 0)
            fail_msg("'%s' and not '%s'", err.text, wrong[i].say);
    }
    assert_int_equal(tutti_measured_parse(&m, "m.json", "{", 1, &err), TUTTI_ERR_USAGE);
    assert_non_null(strstr(err.text, "m.json: no JSON: "));
    assert_int_equal(tutti_measured_parse(&m, "m.json", "[]", 2, &err), TUTTI_ERR_USAGE);
    assert_int_equal(tutti_measured_parse(&m, "m.json", "", (16 << 20) + 1, &err), TUTTI_ERR_USAGE);
    assert_non_null(strstr(err.text, "at most 16777216 (16 MiB)"));
    assert_int_equal(
        tutti_measured_parse(&m, "m.json",
                             "{\"schema\":\"tutti-measured-1\",\"batch\":1,\"forward_seconds\":0,"
                             "\"backward_seconds\":0,\"tensors\":[]}",
                             strlen("{\"schema\":\"tutti-measured-1\",\"batch\":1,\"forward_seconds\":0,"
                                    "\"backward_seconds\":0,\"tensors\":[]}"), &err),
        TUTTI_ERR_USAGE);
    assert_non_null(strstr(err.text, "forward and backward take no time"));
}

static void the_spec_is_known_by_its_name(void **state)
{
    (void)state;
    assert_true(tutti_measured_named("measured"));
    assert_true(tutti_measured_named(" measured (file=a.json)"));
    assert_false(tutti_measured_named("measured2(file=a.json)"));
    assert_false(tutti_measured_named("mlp(hidden=16)"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_are_in_units_from_the_input_on),
        cmocka_unit_test(mistakes_are_named_with_their_place),
        cmocka_unit_test(the_spec_is_known_by_its_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
