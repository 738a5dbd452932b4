/* Goal: specs are read as the grammar defines them, what is no spec is refused with the place,
   and a printed spec reads back equal. */
#include "base_test.h"
#include "base/options.h"

#include <stdlib.h>

/* Opens and applies; the spec stays open in *spec, since texts of *self point into it. */
static tutti_status apply(const char *text, tutti_spec **spec, subject *self, tutti_error *err)
{
    tutti_status status = tutti_spec_open(spec, text, err);

    memset(self, 0x5A, sizeof *self);
    if (status == TUTTI_OK)
        status = tutti_spec_apply(*spec, "method 'ddp'", subject_options, self, err);
    for (size_t i = 0; i < sizeof self->guard; i++)
        assert_int_equal(self->guard[i], 0x5A);
    return status;
}

static void assert_refused(const char *text, const char *sentence)
{
    tutti_spec *spec;
    tutti_error err;
    subject self;

    assert_int_equal(apply(text, &spec, &self, &err), TUTTI_ERR_USAGE);
    assert_string_equal(err.text, sentence);
    tutti_spec_close(spec);
    assert_int_equal(apply(text, &spec, &self, NULL), TUTTI_ERR_USAGE);
    tutti_spec_close(spec);
}

static void a_name_alone_is_a_spec(void **state)
{
    static const char *const texts[] = { "ddp", "ddp()", " ddp ( ) ", "\tddp\n" };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(texts); i++) {
        tutti_spec *spec;
        subject self;
        assert_int_equal(apply(texts[i], &spec, &self, NULL), TUTTI_OK);
        assert_string_equal(tutti_spec_name(spec), "ddp");
        assert_int_equal(tutti_spec_count(spec), 0);
        assert_int_equal(self.batch, 32);
        assert_string_equal(self.inner, "sgd");
        tutti_spec_close(spec);
    }
    tutti_spec_close(NULL);
}

static void arguments_go_by_position_and_by_name(void **state)
{
    tutti_spec *spec;
    tutti_error err;
    subject self;

    (void)state;
    assert_int_equal(apply("ddp(64, 0.5 , data = a b:c , lr_schedule=cosine( x(y(\"),(\")),warmup=3) ,nesterov=on)",
                           &spec, &self, &err),
                     TUTTI_OK);
    assert_int_equal(tutti_spec_count(spec), 5);
    assert_int_equal(self.batch, 64);
    assert_true(self.rate == 0.5);
    assert_string_equal(self.data, "a b:c");
    assert_string_equal(self.schedule, "cosine( x(y(\"),(\")),warmup=3)");
    assert_true(self.nesterov);
    assert_int_equal(self.wire, 1);
    tutti_spec_close(spec);
}

static void arguments_report_their_option_and_value(void **state)
{
    static const struct { const char *option, *value; } expected[] = {
        { "batch", "8" }, { "inner", "sgd(0.1)" }, { NULL, "x" }
    };
    tutti_spec *spec;
    tutti_error err;

    (void)state;
    assert_int_equal(tutti_spec_open(&spec, "ddp(8,inner=sgd(0.1),other=x)", &err), TUTTI_OK);
    assert_int_equal(tutti_spec_count(spec), 3);
    for (size_t i = 0; i < 3; i++) {
        const char *value;
        const tutti_option *o = tutti_spec_arg(spec, subject_options, i, &value);
        assert_string_equal(value, expected[i].value);
        assert_ptr_equal(o, expected[i].option != NULL ? subject_option(expected[i].option) : NULL);
        assert_null(tutti_spec_arg(spec, NULL, i, &value)); /* an empty table has none */
        assert_string_equal(value, expected[i].value);
    }
    tutti_spec_close(spec);
}

static void quoted_values_may_hold_anything(void **state)
{
    tutti_spec *spec;
    tutti_error err;
    subject self;

    (void)state;
    assert_int_equal(apply("ddp(data=\" a,b)(=\\\"c\\\\ \" ,inner=\"adam(lr=1)\")", &spec, &self, &err), TUTTI_OK);
    assert_string_equal(self.data, " a,b)(=\"c\\ ");
    assert_string_equal(self.inner, "adam(lr=1)");
    tutti_spec_close(spec);
    assert_int_equal(apply("ddp(data=)", &spec, &self, &err), TUTTI_OK);
    assert_string_equal(self.data, "");
    tutti_spec_close(spec);
    assert_int_equal(apply("ddp(data=5\" disc=x)", &spec, &self, &err),
                     TUTTI_OK); /* a quote inside a text is a letter */
    assert_string_equal(self.data, "5\" disc=x");
    tutti_spec_close(spec);
}

static void the_spec_keeps_nothing_of_the_callers_text(void **state)
{
    char text[] = "ddp(data=abc,inner=adam)";
    tutti_spec *spec;
    subject self;

    (void)state;
    assert_int_equal(apply(text, &spec, &self, NULL), TUTTI_OK);
    memset(text, 'x', sizeof text - 1);
    assert_string_equal(tutti_spec_name(spec), "ddp");
    assert_string_equal(self.data, "abc");
    assert_string_equal(self.inner, "adam");
    tutti_spec_close(spec);
}

static void malformed_specs_are_rejected_with_the_position(void **state)
{
    (void)state;
    assert_refused("", "spec '' is empty; write a name or name(key=value,...)");
    assert_refused("  ", "spec '  ' is empty; write a name or name(key=value,...)");
    assert_refused("(3)", "spec '(3)': a name must begin with a letter (byte 1); write name(key=value,...)");
    assert_refused(" 3d", "spec ' 3d': a name must begin with a letter (byte 2); write name(key=value,...)");
    assert_refused("adam(lr=0.1", "spec 'adam(lr=0.1': missing ')' at the end");
    assert_refused("adam(", "spec 'adam(': missing ')' at the end");
    assert_refused("adam(a(b)", "spec 'adam(a(b)': missing ')' at the end");
    assert_refused("adam(\"a)", "spec 'adam(\"a)': missing '\"' at the end");
    assert_refused("adam(\"a\\\")", "spec 'adam(\"a\\\")': missing '\"' at the end");
    assert_refused("adam(\"a\"", "spec 'adam(\"a\"': missing ')' at the end");
    assert_refused("adam(b(\"a)", "spec 'adam(b(\"a)': missing '\"' at the end");
    assert_refused("adam(\"a\" b)",
                   "spec 'adam(\"a\" b)': text after the closing quote at byte 10; put ',' or ')' there");
    assert_refused("adam lr=0.1",
                   "spec 'adam lr=0.1': unexpected text after the name at byte 6; write name(key=value,...)");
    assert_refused("adam)", "spec 'adam)': unexpected text after the name at byte 5; write name(key=value,...)");
    assert_refused("adam()x", "spec 'adam()x': text after the closing ')' at byte 7; remove it");
    assert_refused("adam(1))", "spec 'adam(1))': text after the closing ')' at byte 8; remove it");
    assert_refused("adam(,)", "spec 'adam(,)': argument 1 is empty at byte 6; remove the ',' or give a value");
    assert_refused("adam(1,)", "spec 'adam(1,)': argument 2 is empty at byte 8; remove the ',' or give a value");
    assert_refused("adam(=1)", "spec 'adam(=1)': no option name before '=' at byte 6; write name(key=value,...)");
    assert_refused(
        "adam(batch=1,0.1)",
        "spec 'adam(batch=1,0.1)': argument 2 ('0.1') has no name but follows one that has; write key=value");
}

static void arguments_violating_the_option_table_are_rejected(void **state)
{
    (void)state;
    assert_refused("ddp(bach=1)", "method 'ddp': unknown option 'bach'; did you mean 'batch'?");
    assert_refused(
        "ddp(qqq=1)",
        "method 'ddp': unknown option 'qqq'; there are batch, rate, wide, nesterov, wire, data, inner and lr-schedule");
    assert_refused("ddp(batch=1,batch=2)", "method 'ddp': option 'batch' is given twice, as '1' and as '2'; keep one");
    assert_refused("ddp(1,batch=2)", "method 'ddp': option 'batch' is given twice, as '1' and as '2'; keep one");
    assert_refused("ddp(lr_schedule=a,lr-schedule=b)",
                   "method 'ddp': option 'lr-schedule' is given twice, as 'a' and as 'b'; keep one");
    assert_refused("ddp(1,1,1,1,fp32,a,b,c,d)", "method 'ddp': argument 9 ('d') is one too many; it takes at most 8");
    assert_refused("ddp(batch=-3)", "method 'ddp': option 'batch' is -3; it must be from 1 to 4096 (samples per rank)");
    assert_refused("ddp(batch=)",
                   "method 'ddp': option 'batch' is ''; it must be a whole number from 1 to 4096 (samples per rank)");
    assert_refused(
        "ddp(inner=a(=1))",
        "method 'ddp': option 'inner': spec 'a(=1)': no option name before '=' at byte 3; write name(key=value,...)");
    assert_refused("ddp(inner=a(b)c)",
                   "method 'ddp': option 'inner': spec 'a(b)c': text after the closing ')' at byte 5; remove it");
}

static void the_limits_are_4096_bytes_and_16_levels(void **state)
{
    char text[5000];
    tutti_spec *spec;
    tutti_error err;

    (void)state;
    for (size_t bytes = 4095; bytes <= 4098; bytes++) {
        memset(text, 'a', bytes);
        text[bytes] = '\0';
        assert_int_equal(tutti_spec_open(&spec, text, &err), bytes <= 4096 ? TUTTI_OK : TUTTI_ERR_USAGE);
        if (bytes > 4096)
            assert_non_null(strstr(err.text, "aaa...' is longer than 4096 bytes; shorten it"));
        else
            assert_int_equal(strlen(tutti_spec_name(spec)), bytes);
        tutti_spec_close(spec);
    }
    for (size_t levels = 15; levels <= 18; levels++) {
        text[0] = '\0';
        for (size_t i = 0; i < levels; i++)
            strcat(text, "a(");
        for (size_t i = 0; i < levels; i++)
            strcat(text, ")");
        assert_int_equal(tutti_spec_open(&spec, text, &err), levels <= 16 ? TUTTI_OK : TUTTI_ERR_USAGE);
        if (levels > 16)
            assert_non_null(strstr(err.text, "more than 16 levels of brackets at byte 34; nest less deeply"));
        tutti_spec_close(spec);
    }
}

/* As many arguments as 4096 bytes hold: memory is sized by the count. */
static void a_spec_full_of_arguments_is_opened(void **state)
{
    char text[4097] = "a(";
    tutti_spec *spec;
    subject self;
    tutti_error err;

    (void)state;
    for (size_t i = 2; i + 2 < 4096; i += 2)
        memcpy(text + i, "1,", 3);
    memcpy(text + 4094, "1)", 3);
    assert_int_equal(tutti_spec_open(&spec, text, &err), TUTTI_OK);
    assert_int_equal(tutti_spec_count(spec), 2047);
    assert_int_equal(tutti_spec_apply(spec, "x", subject_options, &self, &err), TUTTI_ERR_USAGE);
    tutti_spec_close(spec);
}

static void only_non_default_values_are_printed(void **state)
{
    static const struct { const char *text, *printed; } cases[] = {
        { "ddp", "ddp" },
        { "ddp(32,0.1,0,off,fp16,,)", NULL },
        { "ddp(batch=32,rate=1e-1)", "ddp" },
        { "ddp(64)", "ddp(batch=64)" },
        { "ddp(lr-schedule=cosine(3),wire=bf16,nesterov=1)", "ddp(nesterov=true,wire=bf16,lr_schedule=cosine(3))" },
        { "ddp(data=\"a,b\")", "ddp(data=\"a,b\")" },
        { "ddp(wide=-0)", "ddp(wide=-0)" },
    };
    char out[128];

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(cases); i++) {
        tutti_spec *spec;
        subject self;
        if (cases[i].printed == NULL) {
            assert_int_equal(apply(cases[i].text, &spec, &self, NULL), TUTTI_ERR_USAGE);
        } else {
            assert_int_equal(apply(cases[i].text, &spec, &self, NULL), TUTTI_OK);
            assert_int_equal(tutti_spec_print("ddp", subject_options, &self, out, sizeof out),
                             strlen(cases[i].printed));
            assert_string_equal(out, cases[i].printed);
        }
        tutti_spec_close(spec);
    }
}

/* Random values, hostile texts among them: print, open, apply, and everything is equal. */
static void a_printed_spec_reads_back_equal(void **state)
{
    static const char letters[] = "ab,()\"\\= \t:=\xC3\xA9";
    static const char *const specs[] = { "sgd", "adam(lr=0.1)", "a(\"(\",b=c(\"\\\"\"))", "a( b , c )" };

    (void)state;
    for (uint64_t round = 0; round < 20000; round++) {
        const tutti_rng rng = { 12, 0, round };
        char data[12], text[2048];
        subject self = { 0 }, back;
        tutti_spec *spec;
        tutti_error err;
        uint64_t i = 0;

        tutti_options_default(subject_options, &self);
        self.batch = 1 + (int64_t)(tutti_random(rng, i++) % 4096);
        self.rate = 10 * tutti_uniform(rng, i++);
        self.wide = tutti_normal(rng, i) * 1e20;
        self.nesterov = tutti_random(rng, i++) % 2;
        self.wire = (int)(tutti_random(rng, i++) % 3);
        self.inner = specs[tutti_random(rng, i++) % TUTTI_LENGTH(specs)];
        data[tutti_random(rng, i++) % sizeof data] = '\0';
        for (size_t j = 0; j < sizeof data; j++)
            data[j] = letters[tutti_random(rng, i++) % (sizeof letters - 1)];
        data[tutti_random(rng, i++) % sizeof data] = '\0';
        self.data = data;

        assert_true(tutti_spec_print("ddp", subject_options, &self, text, sizeof text) < (int)sizeof text);
        if (apply(text, &spec, &back, &err) != TUTTI_OK)
            fail_msg("%s: %s", text, err.text);
        assert_int_equal(back.batch, self.batch);
        assert_memory_equal(&back.rate, &self.rate, sizeof self.rate);
        assert_memory_equal(&back.wide, &self.wide, sizeof self.wide);
        assert_int_equal(back.nesterov, self.nesterov);
        assert_int_equal(back.wire, self.wire);
        assert_string_equal(back.data, self.data);
        assert_string_equal(back.inner, self.inner);
        tutti_spec_close(spec);
    }
}

/* Every prefix of a rich spec, in memory of exactly its size: refused or read, never past its
   end. */
static void every_prefix_is_handled(void **state)
{
    static const char whole[] = " ddp ( 64 ,0.5, data = \"a\\\"b\" , inner=adam(x(y),\"(\") , lr_schedule = c ) ";
    size_t read = 0;

    (void)state;
    for (size_t bytes = 0; bytes < sizeof whole; bytes++) {
        char *text = malloc(bytes + 1);
        tutti_spec *spec;
        tutti_error err;
        subject self;
        memcpy(text, whole, bytes);
        text[bytes] = '\0';
        read += apply(text, &spec, &self, &err) == TUTTI_OK;
        tutti_spec_close(spec);
        free(text);
    }
    assert_int_equal(read, 6); /* " d", " dd", " ddp", " ddp ", and the whole without and with its last blank */
}

typedef struct dependent { int kind; bool on; double share; int64_t count, least; const char *text; } dependent;
static const tutti_option dependent_options[] = {
    { "kind", TUTTI_CHOICE, TUTTI_AT(dependent, kind), 0, 0, 0, "plain|drawn|fitted", "" },
    { "on", TUTTI_BOOL, TUTTI_AT(dependent, on), 0, 0, 1, NULL, "" },
    { "share", TUTTI_REAL, TUTTI_AT(dependent, share), 0, 0, 1, NULL, "" },
    { "count", TUTTI_INT, TUTTI_AT(dependent, count), 4, 1, 100, NULL, "", "kind=drawn|fitted" },
    { "least", TUTTI_INT, TUTTI_AT(dependent, least), 1, 1, 100, NULL, "", "on=yes&share>0.25" },
    { "text", TUTTI_TEXT, TUTTI_AT(dependent, text), 0, 0, 0, "a", "", "on=off" },
    { 0 }
};

static void options_without_effect_are_rejected_in_any_order(void **state)
{
    static const struct { const char *spec, *sentence;
    } cases[] = {
        { "x(kind=drawn,count=5)", NULL },
        { "x(count=5,kind=fitted)", NULL },
        { "x(count=4)", NULL },
        { "x(kind=plain)", NULL },
        { "x(least=2,on=true,share=0.5)", NULL },
        { "x(text=b)", NULL },
        { "x(text=a,on=on)", NULL },
        { "x(count=5)",
          "method 'x': option 'count' has no effect with kind=plain; it needs kind=drawn|fitted, or omit it" },
        { "x(count=5,kind=plain)",
          "method 'x': option 'count' has no effect with kind=plain; it needs kind=drawn|fitted, or omit it" },
        { "x(least=2,on=true,share=0.25)",
          "method 'x': option 'least' has no effect with share=0.25; it needs share>0.25, or omit it" },
        { "x(least=2,share=0.5)",
          "method 'x': option 'least' has no effect with on=false; it needs on=yes, or omit it" },
        { "x(on=on,text=b)",
          "method 'x': option 'text' has no effect with on=true; it needs on=off, or omit it" },
    };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(cases); i++) {
        tutti_spec *spec;
        tutti_error err = { .rank = -1 };
        dependent self;
        assert_int_equal(tutti_spec_open(&spec, cases[i].spec, NULL), TUTTI_OK);
        assert_int_equal(tutti_spec_apply(spec, "method 'x'", dependent_options, &self, &err),
                         cases[i].sentence == NULL ? TUTTI_OK : TUTTI_ERR_USAGE);
        if (cases[i].sentence != NULL)
            assert_string_equal(err.text, cases[i].sentence);
        tutti_spec_close(spec);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_name_alone_is_a_spec),
        cmocka_unit_test(arguments_go_by_position_and_by_name),
        cmocka_unit_test(arguments_report_their_option_and_value),
        cmocka_unit_test(quoted_values_may_hold_anything),
        cmocka_unit_test(the_spec_keeps_nothing_of_the_callers_text),
        cmocka_unit_test(malformed_specs_are_rejected_with_the_position),
        cmocka_unit_test(arguments_violating_the_option_table_are_rejected),
        cmocka_unit_test(the_limits_are_4096_bytes_and_16_levels),
        cmocka_unit_test(a_spec_full_of_arguments_is_opened),
        cmocka_unit_test(only_non_default_values_are_printed),
        cmocka_unit_test(a_printed_spec_reads_back_equal),
        cmocka_unit_test(every_prefix_is_handled),
        cmocka_unit_test(options_without_effect_are_rejected_in_any_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
