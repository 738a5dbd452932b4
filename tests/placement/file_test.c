/* Goal: files are read as written, and each mistake in one is named with its place. Method: one
   good text of each kind, and texts with one thing changed. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "placement/placement.h"

static const char resources[] =
    "{\"schema\": \"tutti-resources-1\", \"batch\": 64, \"examples\": 1e6, \"floor\": 2000,\n"
    " \"types\": [{\"name\": \"cpu\", \"price\": 0.04, \"units\": 100},\n"
    "  {\"name\": \"gpu\", \"price\": 2.42, \"units\": 8, \"flops\": 1e12, \"bandwidth\": 1e9,\n"
    "   \"compute_share\": 0.9}],\n"
    " \"layers\": [{\"name\": \"emb\", \"kind\": \"tables\", \"values\": 1e9, \"on\": {\n"
    "   \"cpu\": {\"compute\": 0.1, \"communicate\": 0.2, \"compute_with\": {\"2\": 0.06, \"4\": 0.04}},\n"
    "   \"gpu\": {\"compute\": 0.2, \"communicate\": 0.3, \"communicate_share\": 0.5}}},\n"
    "  {\"name\": \"fc\", \"enters\": 400, \"on\": {\"cpu\": {\"compute\": 4, \"communicate\": 0.1},\n"
    "   \"gpu\": {\"compute\": 0.1, \"communicate\": 0.1}}}]}";

static const char schedule[] =
    "{\"schema\": \"tutti-stages-1\", \"model\": \"ctr\", \"stages\": [\n"
    " {\"type\": \"cpu\", \"first_layer\": 0, \"end_layer\": 1, \"units\": 12, \"sparse\": true,"
    " \"first_unit\": 0, \"end_unit\": 2},\n"
    " {\"type\": \"gpu\", \"first_layer\": 1, \"end_layer\": 4, \"units\": 2, \"sparse\": false,"
    " \"first_unit\": 2, \"end_unit\": 5}]}";

/* The text with the first `from` as `to`. */
static const char *changed(const char *text, const char *from, const char *to)
{
    static char out[4096];
    const char *at = strstr(text, from);

    assert_non_null(at);
    snprintf(out, sizeof out, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    return out;
}

static void resources_are_read(void **state)
{
    static tutti_placement_problem p;
    tutti_placement_speed speed[TUTTI_PLACEMENT_TYPES_MOST];
    tutti_error err;

    (void)state;
    assert_int_equal(tutti_placement_parse("r.json", resources, strlen(resources), &p, speed, &err), TUTTI_OK);
    assert_int_equal(p.types, 2);
    assert_int_equal(p.layers, 2);
    assert_int_equal(p.type[1].units, 8);
    assert_float_equal(p.floor, 2000, 0);
    assert_float_equal(speed[1].flops, 1e12, 0);
    assert_float_equal(speed[1].compute_share, 0.9, 0);
    assert_string_equal(p.layer[0].kind, "tables");
    assert_float_equal(p.time[0][0].compute_share, 0.8, 1e-12);
    assert_float_equal(p.time[0][1].communicate_share, 0.5, 0);
    assert_float_equal(p.time[1][0].compute_share, 1, 0);
}

static void mistakes_in_resources_are_named(void **state)
{
    static const char *const cases[][3] = {
        { "tutti-resources-1", "x", "its schema is 'x'; it must be" },
        { "\"floor\": 2000", "\"flor\": 2000", "there is no member 'flor'; did you mean 'floor'" },
        { "\"floor\": 2000", "\"floor\": \"2000\"", "'floor' must be a number" },
        { "\"units\": 100", "\"units\": 0", "type 'cpu': 'units' must be a whole number from 1 to" },
        { "\"price\": 0.04", "\"price\": -0.04", "a unit of 'cpu' costs -0.04 an hour" },
        { "\"name\": \"gpu\"", "\"name\": \"cpu\"", "there is a type 'cpu' before it" },
        { "\"name\": \"gpu\"", "\"name\": \"\"", "'name' must be text of 1 to 31 bytes" },
        { "\"name\": \"emb\"", "\"name\": \"e\\u001b[2J\"", "'name' has a control character" },
        { "\"gpu\": {\"compute\": 0.2", "\"tpu\": {\"compute\": 0.2", "layer 'emb' on 'gpu': its times are missing" },
        { "\"compute\": 0.2", "\"compute\": -0.2", "layer 'emb' on 'gpu': compute is -0.2" },
        { "\"communicate_share\": 0.5", "\"communicate_share\": 1.5", "they must be from 0 to 1" },
        { "{\"2\": 0.06, \"4\": 0.04}", "{\"1\": 0.06}", "layer 'emb' on 'cpu'" },
        { "{\"2\": 0.06, \"4\": 0.04}", "{\"2\": -1}", "'compute_with' of 2 units must be seconds" },
        { "{\"2\": 0.06, \"4\": 0.04}", "{\"2\": 1}, \"compute_share\": 1", "specify the same value; give one" },
        { "\"layers\": [", "\"layers\": 3, \"x\": [", "there is no member 'x'" },
        { "\"types\": [", "\"types\": [3, ", "it must be an object" },
        { "{\"schema\"", "{{\"schema\"", "no JSON" },
    };
    static tutti_placement_problem p;
    tutti_placement_speed speed[TUTTI_PLACEMENT_TYPES_MOST];
    tutti_error err;

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(cases); i++) {
        const char *text = changed(resources, cases[i][0], cases[i][1]);
        assert_int_equal(tutti_placement_parse("r.json", text, strlen(text), &p, speed, &err), TUTTI_ERR_USAGE);
        if (strstr(err.text, cases[i][2]) == NULL || strncmp(err.text, "r.json", 6) != 0)
            fail_msg("case %zu: %s", i, err.text);
    }
    for (size_t bytes = 0; bytes < strlen(resources); bytes++) /* cut anywhere */
        assert_int_equal(tutti_placement_parse("r.json", resources, bytes, &p, speed, &err), TUTTI_ERR_USAGE);
}

static void schedules_are_read(void **state)
{
    tutti_placement_schedule s;
    tutti_error err;

    (void)state;
    assert_int_equal(tutti_placement_read("s.json", schedule, strlen(schedule), &s, &err), TUTTI_OK);
    assert_int_equal(s.stages, 2);
    assert_int_equal(s.layers, 4);
    assert_string_equal(s.model, "ctr");
    assert_true(s.stage[0].sparse && !s.stage[1].sparse);
    assert_int_equal(s.stage[0].units, 12);
    assert_int_equal(s.unit[1], 2);
    assert_int_equal(s.unit[2], 5);
}

static void mistakes_in_schedules_are_named(void **state)
{
    static const char *const cases[][3] = {
        { "tutti-stages-1", "tutti-stages-9", "its schema is 'tutti-stages-9'" },
        { "\"first_layer\": 1", "\"first_layer\": 2", "stage 1: it has layers 2 to 3; stages follow one another" },
        { "\"end_layer\": 4", "\"end_layer\": 1", "stage 1: it has layers 1 to 0" },
        { "\"type\": \"gpu\"", "\"type\": \"cpu\"", "it is on 'cpu' as the stage before" },
        { "\"units\": 12", "\"units\": 1.5", "stage 0: 'units' must be a whole number" },
        { "\"sparse\": true", "\"sparse\": 1", "'sparse' must be true or false" },
        { "\"first_unit\": 2", "\"first_unit\": 3", "it begins with unit 3, and the stage before ends at 2" },
        { "\"first_unit\": 0", "\"first_unit\": 1", "it begins with unit 1; stages follow one another, from unit 0" },
        { "\"end_unit\": 5", "\"end_unit\": 2", "it ends at unit 2, where it begins" },
        { "\"stages\": [", "\"stages\": [], \"x\": [", "'stages' must be a list of 1 to" },
        { "\"model\": \"ctr\"", "\"model\": 7", "'model' must be text" },
    };
    tutti_placement_schedule s;
    tutti_error err;

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(cases); i++) {
        const char *text = changed(schedule, cases[i][0], cases[i][1]);
        assert_int_equal(tutti_placement_read("s.json", text, strlen(text), &s, &err), TUTTI_ERR_USAGE);
        if (strstr(err.text, cases[i][2]) == NULL)
            fail_msg("case %zu: %s", i, err.text);
    }
    for (size_t bytes = 0; bytes < strlen(schedule); bytes++)
        assert_int_equal(tutti_placement_read("s.json", schedule, bytes, &s, &err), TUTTI_ERR_USAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resources_are_read),
        cmocka_unit_test(mistakes_in_resources_are_named),
        cmocka_unit_test(schedules_are_read),
        cmocka_unit_test(mistakes_in_schedules_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
