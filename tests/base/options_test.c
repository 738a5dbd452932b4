/* Goal: every value that a table allows is read and printed so that it reads back equal; every
   other one is refused with a sentence that names value, place and mend. */
#include "base_test.h"
#include "base/numbers.h"
#include "base/options.h"

#include <float.h>
#include <limits.h>
#include <locale.h>
#include <math.h>

static void assert_refused(const char *option, const char *value, const char *sentence)
{
    subject self, before;
    tutti_error err;

    memset(&self, 0x5A, sizeof self);
    tutti_options_default(subject_options, &self);
    before = self;
    assert_int_equal(tutti_option_set(subject_option(option), "method 'ddp'", value, &self, &err), TUTTI_ERR_USAGE);
    assert_string_equal(err.text, sentence);
    assert_memory_equal(&self, &before, sizeof self); /* a refusal writes nothing */
    assert_int_equal(tutti_option_set(subject_option(option), "method 'ddp'", value, &self, NULL), TUTTI_ERR_USAGE);
}

static subject set(const char *option, const char *value)
{
    tutti_error err = { 0 };
    subject self;

    memset(&self, 0x5A, sizeof self);
    tutti_options_default(subject_options, &self);
    if (tutti_option_set(subject_option(option), "test", value, &self, &err) != TUTTI_OK)
        fail_msg("%s = %s: %s", option, value, err.text);
    for (size_t i = 0; i < sizeof self.guard; i++)
        assert_int_equal(self.guard[i], 0x5A);
    return self;
}

static void defaults_come_from_the_table(void **state)
{
    subject self;

    (void)state;
    memset(&self, 0x5A, sizeof self);
    tutti_options_default(subject_options, &self);
    assert_int_equal(self.batch, 32);
    assert_true(self.rate == 0.1);
    assert_false(self.nesterov);
    assert_int_equal(self.wire, 1);
    assert_string_equal(self.data, "");
    assert_string_equal(self.inner, "sgd");
    assert_string_equal(self.schedule, "");
    assert_int_equal(self.guard[0], 0x5A);
}

static void allowed_values_are_written(void **state)
{
    (void)state;
    assert_int_equal(set("batch", "1").batch, 1);
    assert_int_equal(set("batch", "4096").batch, 4096);
    assert_int_equal(set("batch", "+0064").batch, 64);
    assert_true(set("rate", "1e-3").rate == 1e-3);
    assert_true(set("rate", ".5").rate == 0.5);
    assert_true(set("rate", "5.").rate == 5);
    assert_true(set("rate", "10").rate == 10);
    assert_true(set("rate", "0").rate == 0);
    assert_true(set("rate", "1E0").rate == 1);
    assert_true(set("rate", "1e-999").rate == 0);
    assert_true(set("wide", "-1.5e+300").wide == -1.5e300);
    assert_true(set("nesterov", "true").nesterov && set("nesterov", "on").nesterov && set("nesterov", "yes").nesterov
                && set("nesterov", "1").nesterov && set("nesterov", "True").nesterov);
    assert_true(!set("nesterov", "false").nesterov && !set("nesterov", "off").nesterov &&
                !set("nesterov", "no").nesterov && !set("nesterov", "0").nesterov);
    assert_int_equal(set("wire", "fp32").wire, 0);
    assert_int_equal(set("wire", "bf16").wire, 2);
    assert_string_equal(set("data", "any text, (even this").data, "any text, (even this");
    assert_string_equal(set("data", "").data, "");
    assert_string_equal(set("inner", "adam(lr=0.1,betas=0.9:0.99)").inner, "adam(lr=0.1,betas=0.9:0.99)");
    assert_string_equal(set("lr-schedule", "").schedule, "");
    assert_string_equal(set("lr-schedule", "none").schedule, ""); /* as it is shown */
    assert_string_equal(set("inner", "none").inner, "none");
}

/* "auto|on|off" was on or off before it had a third position, and files state it in the words of
   a bool. */
static void a_choice_of_on_and_off_accepts_boolean_text(void **state)
{
    static const struct {
        const char *word;
        int index;
    } words[] = { { "off", 0 }, { "on", 1 },   { "all", 2 }, { "false", 0 }, { "No", 0 },
                  { "0", 0 },   { "true", 1 }, { "YES", 1 }, { "1", 1 } };
    static const tutti_option option = { "eval", TUTTI_CHOICE, 0, 1, 0, 0, "off|on|all", "which" };
    tutti_error err;
    int value;

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(words); i++) {
        value = -1;
        assert_int_equal(tutti_option_set(&option, "t", words[i].word, &value, &err), TUTTI_OK);
        assert_int_equal(value, words[i].index);
    }
    assert_int_equal(tutti_option_set(&option, "t", "2", &value, &err), TUTTI_ERR_USAGE);
    assert_string_equal(err.text, "t: option 'eval' is '2'; it must be off, on or all (which)");
    assert_refused("wire", "true",
                   "method 'ddp': option 'wire' is 'true'; it must be fp32, fp16 or bf16 (format of messages)");
}

static void numbers_out_of_range_are_refused(void **state)
{
    (void)state;
    assert_refused("batch", "-3", "method 'ddp': option 'batch' is -3; it must be from 1 to 4096 (samples per rank)");
    assert_refused("batch", "0", "method 'ddp': option 'batch' is 0; it must be from 1 to 4096 (samples per rank)");
    assert_refused("batch", "4097",
                   "method 'ddp': option 'batch' is 4097; it must be from 1 to 4096 (samples per rank)");
    assert_refused("batch", "9223372036854775808",
                   "method 'ddp': option 'batch' is 9223372036854775808; it must be from 1 to 4096 (samples per rank)");
    assert_refused("rate", "10.000000000000002",
                   "method 'ddp': option 'rate' is 10.000000000000002; it must be from 0 to 10 (learning rate)");
    assert_refused("rate", "-1e-300",
                   "method 'ddp': option 'rate' is -1e-300; it must be from 0 to 10 (learning rate)");
    assert_refused("wide", "1e999", "method 'ddp': option 'wide' is 1e999; it must be from -1e308 to 1e308");
}

static void invalid_numbers_are_rejected(void **state)
{
    static const char *const texts[] = {
        "", " 3", "3 ", "64k", "0x10", "--3", "+", "three", "3.", "1e2", "3\n", "\xEF\xBC\x93",
    };
    static const char *const reals[] = {
        "", " 3", "3 ", "inf", "nan", "-inf", "0x1p3", "1e", "1e+", ".", "-", "1,5", "1.2.3", "1f", "e5",
    };
    char sentence[300];

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(texts); i++) {
        snprintf(sentence, sizeof sentence,
                 "method 'ddp': option 'batch' is '%s'; it must be a whole number from 1 to 4096 (samples per rank)",
                 strcmp(texts[i], "3\n") == 0 ? "3?" : texts[i]); /* control characters do not reach a terminal */
        assert_refused("batch", texts[i], sentence);
    }
    for (size_t i = 0; i < TUTTI_LENGTH(reals); i++) {
        snprintf(sentence, sizeof sentence,
                 "method 'ddp': option 'rate' is '%s'; it must be a number from 0 to 10 (learning rate)", reals[i]);
        assert_refused("rate", reals[i], sentence);
    }
}

static void control_characters_do_not_reach_a_terminal(void **state)
{
    static const struct { const char *text, *shown; } cases[] = {
        { "3\x1B[2J", "3?[2J" },
        { "3\x7F", "3?" },
        { "3\xC2\x80", "3?" },
        { "3\xC2\x9B" "2J", "3?2J" }, /* U+009B: CSI */
        { "3\xC2\x9F\xC2\x9F", "3??" },
        { "3\xC2\xA0", "3\xC2\xA0" },
        { "3\xC3\x9B", "3\xC3\x9B" },  /* a letter whose second byte is 9B */
        { "3\xC2", "3\xC2" },
    };
    char sentence[300];
    tutti_error err;
    size_t bytes;

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(cases); i++) {
        snprintf(sentence, sizeof sentence,
                 "method 'ddp': option 'batch' is '%s'; it must be a whole number from 1 to 4096 (samples per rank)",
                 cases[i].shown);
        assert_refused("batch", cases[i].text, sentence);
        snprintf(sentence, sizeof sentence,
                 "'%s' is not a size; write a number of bytes such as 4, 64KiB, 16MiB or 1GiB", cases[i].shown);
        bytes = 7;
        assert_int_equal(tutti_bytes_parse(cases[i].text, strlen(cases[i].text), &bytes, &err), TUTTI_ERR_USAGE);
        assert_string_equal(err.text, sentence);
        assert_int_equal(bytes, 0);
    }
}

static void sizes_are_parsed(void **state)
{
    static const struct { const char *text; size_t bytes; } cases[] = {
        { "1", 1 },           { "4B", 4 },          { "007", 7 },           { "64KiB", (size_t)64 << 10 },
        { "16MiB", 16 << 20 }, { "1GiB", 1 << 30 }, { "1024GiB", (size_t)1 << 40 },
    };
    static const char *const invalid[] = { "", "KiB", "4k", "4KB", "4 KiB", "-4", "0x4", "1TiB", "4KiBs" };
    static const char *const outside[] = { "0", "0GiB", "1025GiB", "1099511627777", "99999999999999999999" };
    size_t bytes;

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(cases); i++) {
        assert_int_equal(tutti_bytes_parse(cases[i].text, strlen(cases[i].text), &bytes, NULL), TUTTI_OK);
        assert_true(bytes == cases[i].bytes);
    }
    assert_int_equal(tutti_bytes_parse("4KiB,8", 4, &bytes, NULL), TUTTI_OK); /* text need not end with 0 */
    assert_true(bytes == 4096);
    for (size_t i = 0; i < TUTTI_LENGTH(invalid); i++)
        assert_int_equal(tutti_bytes_parse(invalid[i], strlen(invalid[i]), &bytes, NULL), TUTTI_ERR_USAGE);
    for (size_t i = 0; i < TUTTI_LENGTH(outside); i++)
        assert_int_equal(tutti_bytes_parse(outside[i], strlen(outside[i]), &bytes, NULL), TUTTI_ERR_USAGE);
}

/* A length above INT_MAX is given without that much memory: what is behind the first 120 bytes of a
   text that is no size is not read. */
static void a_long_size_is_truncated_in_the_message(void **state)
{
    const size_t lengths[] = { 121, 255, (size_t)INT_MAX + 2 };
    char text[256], shown[128], sentence[400];
    tutti_error err;
    size_t bytes;

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(lengths); i++) {
        memset(text, 'k', sizeof text - 1);
        text[sizeof text - 1] = '\0';
        memset(shown, 'k', 120);
        memcpy(shown + 120, "...", 4);
        snprintf(sentence, sizeof sentence,
                 "'%s' is not a size; write a number of bytes such as 4, 64KiB, 16MiB or 1GiB", shown);
        assert_int_equal(tutti_bytes_parse(text, lengths[i], &bytes, &err), TUTTI_ERR_USAGE);
        assert_string_equal(err.text, sentence);
    }
    memset(text, '9', sizeof text - 1);
    memset(shown, '9', 120);
    snprintf(sentence, sizeof sentence, "size '%s' is out of range; it must be from 1 B to 1024 GiB", shown);
    assert_int_equal(tutti_bytes_parse(text, sizeof text - 1, &bytes, &err), TUTTI_ERR_USAGE);
    assert_string_equal(err.text, sentence);
}

static void errors_for_other_types_list_the_allowed_values(void **state)
{
    (void)state;
    assert_refused("nesterov", "maybe",
                   "method 'ddp': option 'nesterov' is 'maybe'; it must be true or false (look ahead)");
    assert_refused("nesterov", "", "method 'ddp': option 'nesterov' is ''; it must be true or false (look ahead)");
    assert_refused("wire", "fp23",
                   "method 'ddp': option 'wire' is 'fp23'; it must be fp32, fp16 or bf16 (format of messages); "
                   "did you mean 'fp32'?");
    assert_refused("wire", "", "method 'ddp': option 'wire' is ''; it must be fp32, fp16 or bf16 (format of messages)");
    assert_refused("wire", "fp32|fp16",
                   "method 'ddp': option 'wire' is 'fp32|fp16'; it must be fp32, fp16 or bf16 (format of messages); "
                   "did you mean 'fp32'?");
    assert_refused("wire", "double",
                   "method 'ddp': option 'wire' is 'double'; it must be fp32, fp16 or bf16 (format of messages)");
    assert_refused("inner", "adam(", "method 'ddp': option 'inner': spec 'adam(': missing ')' at the end");
    assert_refused("inner", "", "method 'ddp': option 'inner': spec '' is empty; write a name or name(key=value,...)");
    assert_refused("lr-schedule", "3",
                   "method 'ddp': option 'lr-schedule': spec '3': a name must begin with a letter (byte 1); "
                   "write name(key=value,...)");
}

static void a_real_is_finite_even_without_bounds(void **state)
{
    typedef struct { double value; } real;
    static const tutti_option all = { "value", TUTTI_REAL, TUTTI_AT(real, value), 0, -INFINITY, INFINITY, NULL, "" };
    tutti_error err;
    real r;

    (void)state;
    assert_int_equal(tutti_option_set(&all, "t", "-1e308", &r, &err), TUTTI_OK);
    assert_int_equal(tutti_option_set(&all, "t", "1e309", &r, &err), TUTTI_ERR_USAGE);
    assert_int_equal(tutti_option_set(&all, "t", "-1e309", &r, &err), TUTTI_ERR_USAGE);
    assert_string_equal(err.text, "t: option 'value' is -1e309; it must be from -inf to inf");
}

/* The whole range of int64_t and bounds that no integer of it reaches. */
static void integers_are_compared_exactly(void **state)
{
    typedef struct { int64_t value; } whole;
    static const tutti_option all = { "value", TUTTI_INT, TUTTI_AT(whole, value), 0, -0x1p63, 0x1p63, NULL, "" };
    static const tutti_option fine = { "value", TUTTI_INT, TUTTI_AT(whole, value), 0, -0x1p53, 0x1p53, NULL, "" };
    static const tutti_option none = { "value", TUTTI_INT, TUTTI_AT(whole, value), 0, 0x1p63, 0x1p64, NULL, "" };
    static const tutti_option between = { "value", TUTTI_INT, TUTTI_AT(whole, value), 0, 0.5, 1.5, NULL, "" };
    whole w;

    (void)state;
    assert_int_equal(tutti_option_set(&all, "t", "9223372036854775807", &w, NULL), TUTTI_OK);
    assert_true(w.value == INT64_MAX);
    assert_int_equal(tutti_option_set(&all, "t", "-9223372036854775808", &w, NULL), TUTTI_OK);
    assert_true(w.value == INT64_MIN);
    assert_int_equal(tutti_option_set(&all, "t", "9223372036854775808", &w, NULL), TUTTI_ERR_USAGE);
    assert_int_equal(tutti_option_set(&all, "t", "-9223372036854775809", &w, NULL), TUTTI_ERR_USAGE);
    assert_int_equal(tutti_option_set(&fine, "t", "9007199254740992", &w, NULL), TUTTI_OK);
    assert_int_equal(tutti_option_set(&fine, "t", "9007199254740993", &w, NULL), TUTTI_ERR_USAGE);
    assert_int_equal(tutti_option_set(&fine, "t", "-9007199254740993", &w, NULL), TUTTI_ERR_USAGE);
    assert_int_equal(tutti_option_set(&none, "t", "9223372036854775807", &w, NULL), TUTTI_ERR_USAGE);
    assert_int_equal(tutti_option_set(&between, "t", "1", &w, NULL), TUTTI_OK);
    assert_int_equal(tutti_option_set(&between, "t", "0", &w, NULL), TUTTI_ERR_USAGE);
    assert_int_equal(tutti_option_set(&between, "t", "2", &w, NULL), TUTTI_ERR_USAGE);
}

static void assert_printed(double value, const char *text)
{
    const tutti_option *option = subject_option("wide");
    subject self = { .wide = value };
    char out[64];

    assert_int_equal(tutti_option_print(option, &self, out, sizeof out), strlen(text));
    assert_string_equal(out, text);
}

static void reals_are_printed_in_their_shortest_form(void **state)
{
    const tutti_option *option = subject_option("wide");

    (void)state;
    assert_printed(0, "0");
    assert_printed(-0.0, "-0");
    assert_printed(0.1, "0.1");
    assert_printed(0.001, "0.001");
    assert_printed(1e-5, "1e-5");
    assert_printed(100, "100");
    assert_printed(4096, "4096");
    assert_printed(0.0625, "0.0625");
    assert_printed(1234567, "1234567");
    assert_printed(1e15, "1000000000000000");
    assert_printed(1e16, "1e16");
    assert_printed(1.0 / 3, "0.3333333333333333");
    assert_printed(0.1 + 0.2, "0.30000000000000004");
    assert_printed(-6.02214076e23, "-6.02214076e23");
    assert_printed(5e-324, "5e-324");
    assert_printed(DBL_MAX, "1.7976931348623157e308");
    assert_printed(9007199254740993.0, "9007199254740992");

    for (uint64_t i = 0; i < 50000; i++) { /* every finite double reads back equal, all
                                              exponents with equal probability */
        const uint64_t bits = tutti_random((tutti_rng){ 1, 0, 0 }, i);
        subject self = { 0 }, back = { 0 };
        char out[64];
        memcpy(&self.wide, &bits, sizeof bits);
        if (!isfinite(self.wide) || fabs(self.wide) > 1e308)
            continue;
        tutti_option_print(option, &self, out, sizeof out);
        assert_int_equal(tutti_option_set(option, "t", out, &back, NULL), TUTTI_OK);
        assert_memory_equal(&self.wide, &back.wide, sizeof self.wide);
    }
}

static void every_type_is_printed_and_read_back(void **state)
{
    static const struct { const char *option, *value, *printed; } cases[] = {
        { "batch", "0012", "12" }, { "nesterov", "on", "true" }, { "nesterov", "0", "false" },
        { "wire", "bf16", "bf16" }, { "data", "a:b", "a:b" }, { "data", "a,b", "\"a,b\"" },
        { "data", "say \"a\\b\"", "\"say \\\"a\\\\b\\\"\"" }, { "data", " a", "\" a\"" }, { "data", "a=b c", "a=b c" },
        { "inner", "adam(lr=1)", "adam(lr=1)" }, { "inner", "adam(\"x\") ", "\"adam(\\\"x\\\") \"" },
    };
    char out[64];

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(cases); i++) {
        const subject self = set(cases[i].option, cases[i].value);
        assert_int_equal(tutti_option_print(subject_option(cases[i].option), &self, out, sizeof out),
                         strlen(cases[i].printed));
        assert_string_equal(out, cases[i].printed);
    }
}

static void printing_returns_the_untruncated_length(void **state)
{
    const subject self = set("data", "0123456789");
    char out[12];

    (void)state;
    for (size_t room = 0; room <= sizeof out; room++) {
        memset(out, 'x', sizeof out);
        assert_int_equal(tutti_option_print(subject_option("data"), &self, room == 0 ? NULL : out, room), 10);
        if (room > 0) {
            assert_int_equal(strlen(out), room - 1 < 10 ? room - 1 : 10);
            assert_memory_equal(out, "0123456789", strlen(out));
        }
        for (size_t i = room; i < sizeof out; i++)
            assert_int_equal(out[i], 'x');
    }
}

/* A number at the beginning of a text, as in r0:r1:..., and where it ends. */
static void a_number_begins_a_text(void **state)
{
    static const struct { const char *text; size_t length; double value; } numbers[] = {
        { "1.5:2", 3, 1.5 }, { "-2e3,", 4, -2000 }, { "+.5", 3, 0.5 }, { "3Gbps", 1, 3 },   { "1e", 1, 1 },
        { "2e+x", 1, 2 },    { "0x10", 1, 0 },      { "1,5", 1, 1 },   { "1.2.3", 3, 1.2 }, { "1e3ms", 3, 1000 },
    };
    static const char *const none[] = { "", " 1", "inf", "nan", ".", "-", "e5", ":1", "+-1" };
    char longest[200];
    const char *end;
    double value;

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(numbers); i++)
        if (!tutti_number_begins(numbers[i].text, &value, &end) || end != numbers[i].text + numbers[i].length ||
            value != numbers[i].value)
            fail_msg("'%s' is read as %g", numbers[i].text, value);
    for (size_t i = 0; i < TUTTI_LENGTH(none); i++)
        if (tutti_number_begins(none[i], &value, &end))
            fail_msg("'%s' is read as %g", none[i], value);
    memset(longest, '1', sizeof longest);
    longest[127] = ':';
    assert_true(tutti_number_begins(longest, &value, &end) && end == longest + 127 && value > 1e126 && value < 2e126);
    longest[127] = '1';
    longest[128] = '\0';
    assert_false(tutti_number_begins(longest, &value, &end));
}

/* The decimal point is '.' in a process whose locale says ','; skipped
   where the machine has no such locale. */
static void the_locale_of_the_process_does_not_matter(void **state)
{
    const char *end;
    double value;

    (void)state;
    if (setlocale(LC_ALL, "de_DE.UTF-8") == NULL && setlocale(LC_ALL, "fr_FR.UTF-8") == NULL)
        skip();
    assert_true(set("rate", "0.5").rate == 0.5);
    assert_true(tutti_number_begins("0.5,1", &value, &end) && value == 0.5 && *end == ',');
    assert_printed(0.25, "0.25");
    setlocale(LC_ALL, "C");
}

static void the_thread_locale_is_not_changed(void **state)
{
    (void)state;
    set("rate", "0.5");
    assert_true(uselocale((locale_t)0) == LC_GLOBAL_LOCALE);
    assert_printed(0.25, "0.25");
    assert_printed(1e-9, "1e-9");
    assert_true(uselocale((locale_t)0) == LC_GLOBAL_LOCALE);
}

static void names_are_found_with_dashes_or_underscores(void **state)
{
    (void)state;
    assert_ptr_equal(tutti_option_find(subject_options, "lr_schedule"),
                     tutti_option_find(subject_options, "lr-schedule"));
    assert_non_null(tutti_option_find(subject_options, "lr_schedule"));
    assert_null(tutti_option_find(subject_options, "lr"));
    assert_null(tutti_option_find(subject_options, ""));
    assert_null(tutti_option_find(subject_options, "batc"));
    assert_null(tutti_option_find(subject_options, "batch2"));
    assert_string_equal(tutti_option_type_name(TUTTI_INT), "int");
    assert_string_equal(tutti_option_type_name(TUTTI_SPEC), "spec");
}

static void near_names_are_suggested(void **state)
{
    static const char *const names[] = {
        "lr", "lrs", "momentum", "batch", "bucket_mb", "compress", "hatch", "latch", "patch",
    };
    static const struct { const char *name, *hint; } cases[] = {
        { "bach", "; did you mean 'batch'?" },
        { "abtch", "; did you mean 'batch'?" }, /* neighbours exchanged */
        { "lrz", "; did you mean 'lr' or 'lrs'?" },
        { "atch", "; did you mean 'batch', 'hatch' or 'latch'?" }, /* the first three of four equals */
        { "buket-mb", "; did you mean 'bucket_mb'?" },
        { "MOMENTUM", "; did you mean 'momentum'?" },
        { "compressor", "; did you mean 'compress'?" },
        { "bucket", "; did you mean 'bucket_mb'?" },
        { "zzz", "" }, { "", "" }, { "x", "" },
    };
    char long_name[200], out[128];

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(cases); i++) {
        tutti_suggest(cases[i].name, names, TUTTI_LENGTH(names), out, sizeof out);
        assert_string_equal(out, cases[i].hint);
    }
    memset(long_name, 'b', sizeof long_name);
    long_name[sizeof long_name - 1] = '\0';
    tutti_suggest(long_name, names, TUTTI_LENGTH(names), out, sizeof out);
    assert_string_equal(out, "");
    for (size_t room = 1; room < 30; room++) {
        memset(out, 'x', sizeof out);
        tutti_suggest("lrz", names, TUTTI_LENGTH(names), out, room);
        assert_true(strlen(out) < room);
        assert_int_equal(out[room], 'x');
    }
}

static void options_of_an_empty_table_are_rejected(void **state)
{
    static const tutti_option none[] = { { 0 } };
    tutti_spec *spec;
    tutti_error err;
    char nothing;

    (void)state;
    for (int k = 0; k < 2; k++) {
        assert_int_equal(tutti_spec_open(&spec, "mean(lr=1)", &err), TUTTI_OK);
        assert_int_equal(tutti_spec_apply(spec, "method 'mean'", k == 0 ? NULL : none, &nothing, &err),
                         TUTTI_ERR_USAGE);
        assert_string_equal(err.text, "method 'mean': unknown option 'lr'; there are none");
        tutti_spec_close(spec);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_come_from_the_table),
        cmocka_unit_test(allowed_values_are_written),
        cmocka_unit_test(a_choice_of_on_and_off_accepts_boolean_text),
        cmocka_unit_test(numbers_out_of_range_are_refused),
        cmocka_unit_test(invalid_numbers_are_rejected),
        cmocka_unit_test(control_characters_do_not_reach_a_terminal),
        cmocka_unit_test(sizes_are_parsed),
        cmocka_unit_test(a_long_size_is_truncated_in_the_message),
        cmocka_unit_test(errors_for_other_types_list_the_allowed_values),
        cmocka_unit_test(a_real_is_finite_even_without_bounds),
        cmocka_unit_test(integers_are_compared_exactly),
        cmocka_unit_test(reals_are_printed_in_their_shortest_form),
        cmocka_unit_test(every_type_is_printed_and_read_back),
        cmocka_unit_test(printing_returns_the_untruncated_length),
        cmocka_unit_test(a_number_begins_a_text),
        cmocka_unit_test(the_locale_of_the_process_does_not_matter),
        cmocka_unit_test(the_thread_locale_is_not_changed),
        cmocka_unit_test(names_are_found_with_dashes_or_underscores),
        cmocka_unit_test(near_names_are_suggested),
        cmocka_unit_test(options_of_an_empty_table_are_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
