/* Goal: settings come from file, environment and flags with the stated precedence and origin, and a
   file that is no flat mapping of known options is refused with its line. YAML and JSON are held to
   the same sentences where they can be. */
#include "base_test.h"
#include "base/settings.h"

#include <stdlib.h>
#include <unistd.h>

#define TEXT(literal) literal, sizeof literal - 1

static tutti_settings *open_settings(subject *self)
{
    tutti_settings *s;
    tutti_error err;

    memset(self, 0x5A, sizeof *self);
    assert_int_equal(tutti_settings_open(&s, subject_options, self, &err), TUTTI_OK);
    return s;
}

static void assert_origin(const tutti_settings *s, const char *name, tutti_origin origin, const char *where)
{
    const char *found;

    assert_int_equal(tutti_settings_origin(s, name, &found), origin);
    assert_string_equal(found, where);
    assert_int_equal(tutti_settings_origin(s, name, NULL), origin);
}

/* The text stands in memory of exactly its size, so that a read past its end is seen. */
static tutti_status read_text(tutti_settings *s, const char *path, const char *text, size_t bytes, tutti_error *err)
{
    char *exact = malloc(bytes + (bytes == 0));
    tutti_status status;

    memcpy(exact, text, bytes);
    status = tutti_settings_text(s, path, exact, bytes, err);
    free(exact);
    return status;
}

static void assert_refused(const char *path, const char *text, size_t bytes, const char *sentence)
{
    subject self;
    tutti_settings *s = open_settings(&self);
    tutti_error err = { .text = "accepted" };

    assert_int_equal(read_text(s, path, text, bytes, &err), TUTTI_ERR_USAGE);
    assert_string_equal(err.text, sentence);
    assert_int_equal(read_text(s, path, text, bytes, NULL), TUTTI_ERR_USAGE);
    tutti_settings_close(s);
}

static void opening_writes_the_defaults(void **state)
{
    subject self;
    tutti_settings *s = open_settings(&self);

    (void)state;
    assert_int_equal(self.batch, 32);
    assert_string_equal(self.data, "");
    assert_string_equal(self.inner, "sgd");
    assert_origin(s, "batch", TUTTI_FROM_DEFAULT, "");
    assert_origin(s, "unknown", TUTTI_FROM_DEFAULT, "");
    tutti_settings_close(s);
    tutti_settings_close(NULL);
}

static void yaml_values_are_parsed_with_line_numbers(void **state)
{
    static const char text[] = "# a run\nbatch: 64\nrate: \"0.5\"\n\nnesterov: yes\nwire: 'bf16'\n"
                               "lr_schedule: cosine(warmup=3, floor=0.1)\ndata: |\n  two\n  lines\n";
    subject self;
    tutti_settings *s = open_settings(&self);
    tutti_error err;

    (void)state;
    assert_int_equal(read_text(s, "run.yaml", TEXT(text), &err), TUTTI_OK);
    assert_int_equal(self.batch, 64);
    assert_true(self.rate == 0.5);
    assert_true(self.nesterov);
    assert_int_equal(self.wire, 2);
    assert_string_equal(self.schedule, "cosine(warmup=3, floor=0.1)");
    assert_string_equal(self.data, "two\nlines\n");
    assert_origin(s, "batch", TUTTI_FROM_FILE, "run.yaml:2");
    assert_origin(s, "lr-schedule", TUTTI_FROM_FILE, "run.yaml:7");
    assert_origin(s, "inner", TUTTI_FROM_DEFAULT, "");
    assert_int_equal(self.guard[0], 0x5A);
    tutti_settings_close(s);
}

static void json_values_are_parsed_with_line_numbers(void **state)
{
    static const char text[] = " \n{ \"batch\": 64.0, \"rate\": 5e-1,\n\n  \"nesterov\": true, \"wire\": \"bf16\",\n"
                               "\"data\"\n : \"x\\\",\\\"y: [{,}]\\\\\", \"wide\": 3\n,\"inner\":\"adam(1)\"}\n";
    subject self;
    tutti_settings *s = open_settings(&self);
    tutti_error err;

    (void)state;
    assert_int_equal(read_text(s, "run.json", TEXT(text), &err), TUTTI_OK);
    assert_int_equal(self.batch, 64);
    assert_true(self.rate == 0.5);
    assert_true(self.nesterov);
    assert_int_equal(self.wire, 2);
    assert_string_equal(self.data, "x\",\"y: [{,}]\\");
    assert_true(self.wide == 3);
    assert_string_equal(self.inner, "adam(1)");
    assert_origin(s, "batch", TUTTI_FROM_FILE, "run.json:2");
    assert_origin(s, "rate", TUTTI_FROM_FILE, "run.json:2");
    assert_origin(s, "wire", TUTTI_FROM_FILE, "run.json:4");
    assert_origin(s, "data", TUTTI_FROM_FILE, "run.json:5");
    assert_origin(s, "wide", TUTTI_FROM_FILE, "run.json:6");
    assert_origin(s, "inner", TUTTI_FROM_FILE, "run.json:7");
    tutti_settings_close(s);
}

static void empty_files_set_nothing(void **state)
{
    static const char *const texts[] = { "", "\n\n", "# nothing\n", "---\n", "--- {}\n", "{}", "~\n" };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(texts); i++) {
        subject self;
        tutti_settings *s = open_settings(&self);
        tutti_error err = { 0 };
        if (read_text(s, "run.yaml", texts[i], strlen(texts[i]), &err) != TUTTI_OK)
            fail_msg("'%s': %s", texts[i], err.text);
        assert_int_equal(self.batch, 32);
        tutti_settings_close(s);
    }
}

static void invalid_yaml_settings_are_rejected_with_their_position(void **state)
{
    (void)state;
    assert_refused("run.yaml", TEXT("batch: 1\n\nbach: 2\n"), "run.yaml:3: unknown key 'bach'; did you mean 'batch'?");
    assert_refused("run.yaml", TEXT("batch: -3\n"),
                   "run.yaml:1: option 'batch' is -3; it must be from 1 to 4096 (samples per rank)");
    assert_refused("run.yaml", TEXT("a\tb: 3\n"),
                   "run.yaml:1: unknown key 'a?b'; there are batch, rate, wide, nesterov, wire, data, inner "
                   "and lr-schedule");
    assert_refused("run.yaml", TEXT("batch: 1\nrate: 1\nbatch: 2\n"),
                   "run.yaml:3: key 'batch' is given twice, first in line 1; keep one");
    assert_refused("run.yaml", TEXT("lr_schedule: a\nlr-schedule: a\n"),
                   "run.yaml:2: key 'lr-schedule' is given twice, first in line 1; keep one");
    assert_refused("run.yaml", TEXT("batch: [1, 2]\n"),
                   "run.yaml:1: option 'batch' is a list; it must be one value (quote it if it is meant as text)");
    assert_refused("run.yaml", TEXT("batch:\n  a: 1\n"),
                   "run.yaml:2: option 'batch' is a mapping; it must be one value (quote it if it is meant as text)");
    assert_refused("run.yaml", TEXT("batch: &x 1\nrate: *x\n"),
                   "run.yaml:2: option 'rate' is an alias; it must be one value (quote it if it is meant as text)");
    assert_refused("run.yaml", TEXT("? [a]\n: 1\n"), "run.yaml:1: a key must be the name of an option");
    assert_refused("run.yaml", TEXT("data:\n"), "run.yaml:1: option 'data' has no value; give one or remove the line");
    assert_refused("run.yaml", TEXT("data: ~\n"),
                   "run.yaml:1: option 'data' has no value; give one or remove the line");
    assert_refused("run.yaml", TEXT("data: \"a\\0b\"\n"), "run.yaml:1: the value holds a zero byte; remove it");
    assert_refused("run.yaml", TEXT("- batch\n"),
                   "run.yaml:1: settings must be a mapping; write one 'name: value' a line");
    assert_refused("run.yaml", TEXT("batch\n"),
                   "run.yaml:1: settings must be a mapping; write one 'name: value' a line");
    assert_refused("run.yaml", TEXT("batch: 1\n---\nrate: 1\n"),
                   "run.yaml:2: a second document begins; settings are one mapping");
    assert_refused("run.yaml", TEXT("inner: adam(\n"),
                   "run.yaml:1: option 'inner': spec 'adam(': missing ')' at the end");
    assert_refused("run.yaml", TEXT("batch: 1\nrate: \"x\n"),
                   "run.yaml:3: no YAML: while scanning a quoted scalar: found unexpected end of stream; "
                   "write one 'name: value' a line");
    assert_refused("run.yaml", TEXT("batch: 1\n\xFF\n"),
                   "run.yaml: no YAML: invalid leading UTF-8 octet at byte 10; save the file as UTF-8 text");
    assert_refused("run.yaml",
                   TEXT("\xFF\xFE"
                        "b\0a\0t\0c\0h\0:\0 \0"
                        "2\0\n\0"),
                   "run.yaml: the text is UTF-16; save the file as UTF-8 text");
    assert_refused("run.yaml",
                   TEXT("\xFE\xFF"
                        "\0b\0a\0t\0c\0h\0:\0 \0"
                        "2\0\n"),
                   "run.yaml: the text is UTF-16; save the file as UTF-8 text");
    assert_refused("run.yaml",
                   TEXT("b\0a\0t\0c\0h\0:\0 \0"
                        "2\0\n\0"),
                   "run.yaml: no YAML: control characters are not allowed at byte 2; save the file as UTF-8 text");
}

static void invalid_json_settings_are_rejected_with_their_line(void **state)
{
    (void)state;
    assert_refused("run.json", TEXT("{\"batch\": 1,\n\"bach\": 2}"),
                   "run.json:2: unknown key 'bach'; did you mean 'batch'?");
    assert_refused("run.json", TEXT("{\n\"batch\": -3}"),
                   "run.json:2: option 'batch' is -3; it must be from 1 to 4096 (samples per rank)");
    assert_refused("run.json", TEXT("{\"batch\": 1.5}"),
                   "run.json:1: option 'batch' is '1.5'; it must be a whole number from 1 to 4096 (samples per rank)");
    assert_refused("run.json", TEXT("{\"batch\": true}"),
                   "run.json:1: option 'batch' is 'true'; it must be a whole number from 1 to 4096 (samples per rank)");
    assert_refused("run.json", TEXT("{\"batch\": 1,\n\"batch\": 1}"),
                   "run.json:2: a key is given twice (duplicate object key near '\"batch\"'); keep one");
    assert_refused("run.json", TEXT("{\"lr_schedule\": \"a\",\n\"lr-schedule\": \"a\"}"),
                   "run.json:2: key 'lr-schedule' is given twice, first in line 1; keep one");
    assert_refused("run.json", TEXT("{\"rate\": 1, \"batch\":\n [1]}"),
                   "run.json:1: option 'batch' is a list; it must be one value (quote it if it is meant as text)");
    assert_refused("run.json", TEXT("{\"batch\": {}}"),
                   "run.json:1: option 'batch' is an object; it must be one value (quote it if it is meant as text)");
    assert_refused("run.json", TEXT("{\"data\": null}"),
                   "run.json:1: option 'data' has no value; give one or remove the line");
    assert_refused("run.json", TEXT("{\"data\": 3}"), "run.json:1: option 'data' is 3; it must be text, in quotes");
    assert_refused(
        "run.json", TEXT("{batch: 1}"),
        "run.json:1: no JSON: string or '}' expected near 'batch'; settings that begin with '{' are read as JSON");
    assert_refused("run.json", TEXT("{\"batch\": 1\n"),
                   "run.json:2: no JSON: '}' expected near end of file; settings that begin with '{' are read as JSON");
    assert_refused("run.json", TEXT("{}\n{}"),
                   "run.json:2: no JSON: end of file expected near '{'; settings that begin with '{' are read as JSON");
}

static void deep_nesting_and_alias_bombs_are_rejected(void **state)
{
    static const char bomb[] =
        "a: &a [x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nc: [*b,*b,*b,*b,*b,*b,*b,*b]\n";
    static const char starts[] = "[{";
    char *deep = malloc(1 << 20);
    tutti_error err;
    subject self;
    tutti_settings *s = open_settings(&self);

    (void)state;
    assert_int_equal(read_text(s, "x", TEXT(bomb), &err), TUTTI_ERR_USAGE);
    for (size_t i = 0; i < 2; i++) {
        memset(deep, starts[i], 1 << 20);
        assert_int_equal(read_text(s, "x", deep, 1 << 20, &err), TUTTI_ERR_USAGE);
        memcpy(deep, "batch: ", 7);
        assert_int_equal(read_text(s, "x", deep, 1 << 20, &err), TUTTI_ERR_USAGE);
    }
    for (size_t i = 0; i < 1 << 20; i++)
        deep[i] = "{\"a\":"[i % 5];
    assert_int_equal(read_text(s, "x", deep, 1 << 20, &err), TUTTI_ERR_USAGE);
    free(deep);
    tutti_settings_close(s);
}

static void a_text_over_a_mebibyte_is_refused(void **state)
{
    char *text = malloc((1 << 20) + 1);
    subject self;
    tutti_settings *s = open_settings(&self);
    tutti_error err;

    (void)state;
    memset(text, '\n', (1 << 20) + 1);
    memcpy(text, "batch: 8", 8);
    assert_int_equal(tutti_settings_text(s, "run.yaml", text, 1 << 20, &err), TUTTI_OK);
    assert_int_equal(self.batch, 8);
    assert_int_equal(tutti_settings_text(s, "run.yaml", text, (1 << 20) + 1, &err), TUTTI_ERR_USAGE);
    assert_string_equal(err.text, "run.yaml: larger than 1048576 bytes (1 MiB); settings are one 'name: value' a line");
    free(text);
    tutti_settings_close(s);
}

/* All six orders of calls give the same values and origins. */
static void a_flag_beats_the_environment_beats_a_file(void **state)
{
    static const int orders[6][3] = { { 0, 1, 2 }, { 0, 2, 1 }, { 1, 0, 2 }, { 1, 2, 0 }, { 2, 0, 1 }, { 2, 1, 0 } };
    char batch[] = "TUTTI_BATCH=2", rate[] = "TUTTI_RATE=2", data[] = "TUTTI_DATA=env", other[] = "TUTTI_NO_OPTION=9",
         near[] = "TUTTI_BATCHES=9", bare[] = "TUTTI_WIRE", lower[] = "TUTTI_nesterov=1", twice[] = "TUTTI_BATCH=99",
         schedule[] = "TUTTI_LR_SCHEDULE=b";
    char *environment[] = { other, batch, near, rate, data, bare, lower, twice, schedule, NULL };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(orders); i++) {
        subject self;
        tutti_settings *s = open_settings(&self);
        tutti_error err;
        for (int j = 0; j < 3; j++) {
            if (orders[i][j] == 0)
                assert_int_equal(read_text(s, "f", TEXT("batch: 1\nrate: 1\ndata: file\nwire: fp32"), &err), TUTTI_OK);
            else if (orders[i][j] == 1)
                assert_int_equal(tutti_settings_environment(s, "TUTTI_", environment, &err), TUTTI_OK);
            else {
                assert_int_equal(tutti_settings_flag(s, "batch", "3", "--batch", &err), TUTTI_OK);
                assert_int_equal(tutti_settings_flag(s, "data", "flag", "--data", &err), TUTTI_OK);
            }
        }
        assert_int_equal(self.batch, 3);
        assert_true(self.rate == 2);
        assert_int_equal(self.wire, 0);
        assert_string_equal(self.data, "flag");
        assert_string_equal(self.schedule, "b");
        assert_false(self.nesterov);
        assert_origin(s, "batch", TUTTI_FROM_FLAG, "--batch");
        assert_origin(s, "rate", TUTTI_FROM_ENVIRONMENT, "TUTTI_RATE");
        assert_origin(s, "data", TUTTI_FROM_FLAG, "--data");
        assert_origin(s, "wire", TUTTI_FROM_FILE, "f:4");
        assert_origin(s, "lr_schedule", TUTTI_FROM_ENVIRONMENT, "TUTTI_LR_SCHEDULE");
        assert_origin(s, "nesterov", TUTTI_FROM_DEFAULT, "");
        tutti_settings_close(s);
    }
}

static void the_later_of_equal_origins_wins(void **state)
{
    subject self;
    tutti_settings *s = open_settings(&self);
    tutti_error err;

    (void)state;
    assert_int_equal(read_text(s, "a", TEXT("batch: 1\ndata: x"), &err), TUTTI_OK);
    assert_int_equal(read_text(s, "b", TEXT("\nbatch: 2\ndata: y"), &err), TUTTI_OK);
    assert_int_equal(self.batch, 2);
    assert_string_equal(self.data, "y");
    assert_origin(s, "batch", TUTTI_FROM_FILE, "b:2");
    tutti_settings_close(s);
}

static void overridden_values_are_still_validated(void **state)
{
    subject self;
    tutti_settings *s = open_settings(&self);
    tutti_error err;

    (void)state;
    assert_int_equal(tutti_settings_flag(s, "batch", "3", "--batch", &err), TUTTI_OK);
    assert_int_equal(read_text(s, "f", TEXT("batch: 0"), &err), TUTTI_ERR_USAGE);
    assert_string_equal(err.text, "f:1: option 'batch' is 0; it must be from 1 to 4096 (samples per rank)");
    assert_int_equal(self.batch, 3);
    tutti_settings_close(s);
}

static void setting_errors_name_the_flag_or_variable(void **state)
{
    char bad[] = "TUTTI_BATCH=many";
    char *environment[] = { bad, NULL };
    subject self;
    tutti_settings *s = open_settings(&self);
    tutti_error err;

    (void)state;
    assert_int_equal(tutti_settings_environment(s, "TUTTI_", environment, &err), TUTTI_ERR_USAGE);
    assert_string_equal(err.text, "TUTTI_BATCH is 'many'; it must be a whole number from 1 to 4096 (samples per rank)");
    assert_int_equal(tutti_settings_flag(s, "bach", "1", "--bach", &err), TUTTI_ERR_USAGE);
    assert_string_equal(err.text, "--bach: unknown option 'bach'; did you mean 'batch'?");
    assert_int_equal(tutti_settings_flag(s, "wire", "fp8", "--wire", &err), TUTTI_ERR_USAGE);
    assert_string_equal(err.text, "--wire is 'fp8'; it must be fp32, fp16 or bf16 (format of messages)");
    assert_int_equal(tutti_settings_flag(s, "batch", "-1", "--batch", &err), TUTTI_ERR_USAGE);
    assert_string_equal(err.text, "--batch is -1; it must be from 1 to 4096 (samples per rank)");
    assert_int_equal(tutti_settings_flag(s, "lr-schedule", "3", "--lr_schedule", &err), TUTTI_ERR_USAGE);
    assert_string_equal(err.text,
                        "--lr_schedule: spec '3': a name must begin with a letter (byte 1); write name(key=value,...)");
    /* Nothing but the whole name is the option's. */
    assert_int_equal(tutti_settings_flag(s, "batch", "-1", "--abatch", &err), TUTTI_ERR_USAGE);
    assert_string_equal(err.text, "--abatch: option 'batch' is -1; it must be from 1 to 4096 (samples per rank)");
    tutti_settings_close(s);
}

static void a_custom_default_applies_to_unset_options(void **state)
{
    char variable[] = "TUTTI_RATE=2";
    char *environment[] = { variable, NULL };
    tutti_error err = { .text = "" };

    (void)state;
    for (int last = 0; last < 2; last++) { /* before the others, or after them */
        subject self;
        tutti_settings *s = open_settings(&self);
        for (int turn = 0; turn < 2; turn++) {
            if (turn == last) {
                assert_int_equal(tutti_settings_default(s, "batch", "7", "default of toy", &err), TUTTI_OK);
                assert_int_equal(tutti_settings_default(s, "rate", "5", "default of toy", &err), TUTTI_OK);
                assert_int_equal(tutti_settings_default(s, "data", "toy", "default of toy", &err), TUTTI_OK);
                assert_int_equal(tutti_settings_default(s, "lr-schedule", "c", "default of toy", &err), TUTTI_OK);
            } else {
                assert_int_equal(read_text(s, "f", TEXT("lr-schedule: b"), &err), TUTTI_OK);
                assert_int_equal(tutti_settings_environment(s, "TUTTI_", environment, &err), TUTTI_OK);
                assert_int_equal(tutti_settings_flag(s, "data", "flag", "--data", &err), TUTTI_OK);
            }
        }
        assert_int_equal(self.batch, 7);
        assert_origin(s, "batch", TUTTI_FROM_DEFAULT, "default of toy");
        assert_true(self.rate == 2);
        assert_origin(s, "rate", TUTTI_FROM_ENVIRONMENT, "TUTTI_RATE");
        assert_string_equal(self.data, "flag");
        assert_origin(s, "data", TUTTI_FROM_FLAG, "--data");
        assert_string_equal(self.schedule, "b");
        assert_origin(s, "lr-schedule", TUTTI_FROM_FILE, "f:1");
        assert_origin(s, "wire", TUTTI_FROM_DEFAULT, "");
        assert_int_equal(tutti_settings_default(s, "batch", "0", "default of toy", &err), TUTTI_ERR_USAGE);
        assert_string_equal(err.text,
                            "default of toy: option 'batch' is 0; it must be from 1 to 4096 (samples per rank)");
        assert_int_equal(tutti_settings_default(s, "bach", "1", "default of toy", &err), TUTTI_ERR_USAGE);
        assert_string_equal(err.text, "default of toy: unknown option 'bach'; did you mean 'batch'?");
        tutti_settings_close(s);
    }
}

static void the_first_of_duplicate_variables_wins(void **state)
{
    char first[] = "TUTTI_BATCH=2", second[] = "TUTTI_BATCH=many";
    char *environment[] = { first, second, NULL };
    subject self;
    tutti_settings *s = open_settings(&self);

    (void)state;
    assert_int_equal(tutti_settings_environment(s, "TUTTI_", environment, NULL), TUTTI_OK);
    assert_int_equal(self.batch, 2);
    tutti_settings_close(s);
}

static void texts_are_copied(void **state)
{
    char value[] = "abc", where[] = "--data", variable[] = "TUTTI_INNER=adam";
    char *environment[] = { variable, NULL };
    subject self;
    tutti_settings *s = open_settings(&self);

    (void)state;
    assert_int_equal(tutti_settings_flag(s, "data", value, where, NULL), TUTTI_OK);
    assert_int_equal(tutti_settings_environment(s, "TUTTI_", environment, NULL), TUTTI_OK);
    memset(value, 'x', 3);
    memset(where, 'x', 3);
    memset(variable, 'x', 16);
    assert_string_equal(self.data, "abc");
    assert_string_equal(self.inner, "adam");
    assert_origin(s, "data", TUTTI_FROM_FLAG, "--data");
    tutti_settings_close(s);
}

static void files_are_read_or_refused_with_their_path(void **state)
{
    char folder[] = "/tmp/tutti_settings_XXXXXX", path[64], missing[64], sentence[300];
    subject self;
    tutti_settings *s = open_settings(&self);
    tutti_error err;
    FILE *f;

    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/run.yaml", folder);
    snprintf(missing, sizeof missing, "%s/none.yaml", folder);

    f = fopen(path, "w");
    assert_non_null(f);
    fputs("batch: 77\n", f);
    fclose(f);
    assert_int_equal(tutti_settings_file(s, path, &err), TUTTI_OK);
    assert_int_equal(self.batch, 77);

    f = fopen(path, "w");
    for (int i = 0; i < (1 << 20) + 1; i++)
        putc('\n', f);
    fclose(f);
    assert_int_equal(tutti_settings_file(s, path, &err), TUTTI_ERR_USAGE);
    assert_non_null(strstr(err.text, "run.yaml: larger than 1048576 bytes"));

    assert_int_equal(tutti_settings_file(s, missing, &err), TUTTI_ERR_USAGE);
    snprintf(sentence, sizeof sentence, "cannot open settings file '%s'; check the path (No such file or directory)",
             missing);
    assert_string_equal(err.text, sentence);
    assert_int_equal(tutti_settings_file(s, folder, &err), TUTTI_ERR_USAGE);
    snprintf(sentence, sizeof sentence, "cannot read settings file '%s'; check that it is a file (Is a directory)",
             folder);
    assert_string_equal(err.text, sentence);

    unlink(path);
    rmdir(folder);
    tutti_settings_close(s);
}

/* Drops `batch`, whatever it is; counts the options that it is given. */
static bool leaves_batch(void *user, const tutti_option *option, const char *value, const char *where)
{
    int *shown = user;

    assert_true(value[0] != '\0' && strchr(where, ':') != NULL);
    ++*shown;
    return strcmp(option->name, "batch") != 0;
}

static void a_filter_sees_pending_settings_and_may_skip_them(void **state)
{
    char path[] = "/tmp/tutti-filter-XXXXXX";
    const int fd = mkstemp(path);
    subject self;
    tutti_settings *s = open_settings(&self);
    tutti_error err;
    int shown = 0;

    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(dprintf(fd, "batch: 8\nrate: 0.5\ndata: d\n"), 27);
    close(fd);
    assert_int_equal(tutti_settings_flag(s, "data", "mine", "--data", &err), TUTTI_OK);
    assert_int_equal(tutti_settings_file_filtered(s, path, leaves_batch, &shown, &err), TUTTI_OK);
    assert_int_equal(shown, 2); /* the flag hides the third */
    assert_int_equal(self.batch, 32);
    assert_true(self.rate == 0.5);
    assert_string_equal(self.data, "mine");
    assert_origin(s, "batch", TUTTI_FROM_DEFAULT, "");
    assert_int_equal(tutti_settings_file(s, path, &err), TUTTI_OK); /* the filter was that call's */
    assert_int_equal(self.batch, 8);
    assert_int_equal(shown, 2);
    unlink(path);
    tutti_settings_close(s);
}

static void a_long_path_is_shortened_at_its_start(void **state)
{
    char path[600];
    subject self;
    tutti_settings *s = open_settings(&self);
    tutti_error err;

    (void)state;
    memset(path, 'p', sizeof path);
    memcpy(path + sizeof path - 10, "/run.yaml", 10);
    assert_int_equal(read_text(s, path, TEXT("batch: 0"), &err), TUTTI_ERR_USAGE);
    assert_memory_equal(err.text, "...ppp", 6);
    assert_non_null(strstr(err.text, "/run.yaml:1: option 'batch' is 0; it must be from 1 to 4096 (samples per rank)"));
    tutti_settings_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opening_writes_the_defaults),
        cmocka_unit_test(yaml_values_are_parsed_with_line_numbers),
        cmocka_unit_test(json_values_are_parsed_with_line_numbers),
        cmocka_unit_test(empty_files_set_nothing),
        cmocka_unit_test(invalid_yaml_settings_are_rejected_with_their_position),
        cmocka_unit_test(invalid_json_settings_are_rejected_with_their_line),
        cmocka_unit_test(deep_nesting_and_alias_bombs_are_rejected),
        cmocka_unit_test(a_text_over_a_mebibyte_is_refused),
        cmocka_unit_test(a_flag_beats_the_environment_beats_a_file),
        cmocka_unit_test(the_later_of_equal_origins_wins),
        cmocka_unit_test(overridden_values_are_still_validated),
        cmocka_unit_test(setting_errors_name_the_flag_or_variable),
        cmocka_unit_test(a_custom_default_applies_to_unset_options),
        cmocka_unit_test(the_first_of_duplicate_variables_wins),
        cmocka_unit_test(texts_are_copied),
        cmocka_unit_test(files_are_read_or_refused_with_their_path),
        cmocka_unit_test(a_filter_sees_pending_settings_and_may_skip_them),
        cmocka_unit_test(a_long_path_is_shortened_at_its_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
