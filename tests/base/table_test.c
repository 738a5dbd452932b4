/* Goal: a table of options that its writer has got wrong is refused with a sentence that names
   the place and the remedy, before a value is written. Method: a good table, with one thing of it
   changed at a time. */
#include "base_test.h"

#include <math.h>

typedef struct changed {
    const char *option;          /* of subject_options; NULL: nothing is changed */
    tutti_option to;             /* in its place; name NULL: as it was */
    size_t self_bytes;           /* 0: those of the struct */
    const char *sentence;        /* NULL: it is taken */
} changed;

#define AT(member) TUTTI_AT(subject, member)
enum { NOTHING = 999 };

static void mistakes_in_option_tables_are_reported(void **state)
{
    static const changed cases[] = {
        { NULL, { 0 }, 0, NULL },
        { NULL,
          { 0 },
          NOTHING,
          "option 'batch' of its table is to be written to a struct of 0 bytes; set .self_bytes" },
        { NULL,
          { 0 },
          8,
          "option 'rate' of its table is to be written to bytes 8 to 15 of a struct of 8 bytes; set "
          ".self_bytes to the size of the struct that its TUTTI_AT names" },
        { NULL, { 0 }, 28, "option 'wire' of its table is to be written to bytes 28 to 31 of a struct of 28 bytes" },
        { "batch", { "batch", TUTTI_INT, (size_t)-8, 1, 1, 9, NULL, "" }, 0, "option 'batch' of its table is to be" },
        { "batch",
          { "batch", TUTTI_INT, 4, 1, 1, 9, NULL, "" },
          0,
          "to byte 4, where no int can be; give its member's" },
        { "rate",
          { "rate", TUTTI_REAL, AT(batch), 1, 1, 9, NULL, "" },
          0,
          "option 'rate' of its table is written to the same member as 'batch'" },
        { "nesterov",
          { "nesterov", TUTTI_BOOL, AT(rate) + 7, 0, 0, 0, NULL, "" },
          0,
          "option 'nesterov' of its table is written to the same member as 'rate'" },
        { "data",
          { "inner", TUTTI_TEXT, AT(data), 0, 0, 0, NULL, "" },
          0,
          "option 'inner' of its table stands there twice; give one of them another name" },
        { "lr-schedule", { "in-ner", TUTTI_TEXT, AT(schedule), 0, 0, 0, NULL, "" }, 0, NULL },
        { "data",
          { "lr_schedule", TUTTI_TEXT, AT(data), 0, 0, 0, NULL, "" },
          0,
          "option 'lr-schedule' of its table stands there twice" },
        { "batch", { "", TUTTI_INT, AT(batch), 1, 1, 9, NULL, "" }, 0, "option '' of its table can never be given" },
        { "batch",
          { "a b", TUTTI_INT, AT(batch), 1, 1, 9, NULL, "" },
          0,
          "option 'a b' of its table can never be given" },
        { "batch",
          { "2nd", TUTTI_INT, AT(batch), 1, 1, 9, NULL, "" },
          0,
          "option '2nd' of its table can never be given" },
        { "batch",
          { "batch", (tutti_option_type)17, AT(batch), 1, 1, 9, NULL, "" },
          0,
          "has type 17, which is none; take one of TUTTI_INT to TUTTI_SPEC" },
        { "batch",
          { "batch", TUTTI_INT, AT(batch), 0, 1, 9, NULL, "" },
          0,
          "option 'batch' of its table is 0 by default, and it must be from 1 to 9" },
        { "batch", { "batch", TUTTI_INT, AT(batch), 10, 1, 9, NULL, "" }, 0, "is 10 by default" },
        { "batch", { "batch", TUTTI_INT, AT(batch), 9, 1, 9, NULL, "" }, 0, NULL },
        { "batch", { "batch", TUTTI_INT, AT(batch), 1.5, 1, 9, NULL, "" }, 0, "which is no whole number" },
        { "batch", { "batch", TUTTI_INT, AT(batch), 5, 9, 1, NULL, "" }, 0, "has bounds from 9 to 1, which no value" },
        { "rate", { "rate", TUTTI_REAL, AT(rate), 5, 0, 1, NULL, "" }, 0, "is 5 by default" },
        { "rate", { "rate", TUTTI_REAL, AT(rate), 5, 0, 0, NULL, "" }, 0, "it must be from 0 to 0; give it a default" },
        { "rate", { "rate", TUTTI_REAL, AT(rate), NAN, 0, 1, NULL, "" }, 0, "is nan by default" },
        { "rate", { "rate", TUTTI_REAL, AT(rate), 1, 0, INFINITY, NULL, "" }, 0, "has bounds from 0 to inf, which" },
        { "nesterov", { "nesterov", TUTTI_BOOL, AT(nesterov), 2, 0, 0, NULL, "" }, 0, "it must be from 0 to 1" },
        { "wire",
          { "wire", TUTTI_CHOICE, AT(wire), 3, 0, 0, "fp32|fp16|bf16", "" },
          0,
          "option 'wire' of its table is 3 by default, and it must be from 0 to 2" },
        { "wire", { "wire", TUTTI_CHOICE, AT(wire), 0, 0, 0, NULL, "" }, 0, "is a choice of nothing; give its text" },
        { "inner",
          { "inner", TUTTI_SPEC, AT(inner), 0, 0, 0, "sgd(lr=", "" },
          0,
          "option 'inner' of its table has a default that is none: spec 'sgd(lr=': missing ')' at the end" },
        { "rate", { "rate", TUTTI_REAL, AT(rate), 1, 0, 9, NULL, "", "wire=fp16|bf16&nesterov=on&batch>1" }, 0, NULL },
        { "rate",
          { "rate", TUTTI_REAL, AT(rate), 1, 0, 9, NULL, "", "wire=fp64" },
          0,
          "has an effect where 'wire=fp64', which is no condition on an option of this table" },
        { "rate",
          { "rate", TUTTI_REAL, AT(rate), 1, 0, 9, NULL, "", "wier=fp16" },
          0,
          "where 'wier=fp16', which is no" },
        { "rate", { "rate", TUTTI_REAL, AT(rate), 1, 0, 9, NULL, "", "nesterov" }, 0, "where 'nesterov', which is no" },
        { "rate", { "rate", TUTTI_REAL, AT(rate), 1, 0, 9, NULL, "", "wire>1" }, 0, "where 'wire>1', which is no" },
        { "rate", { "rate", TUTTI_REAL, AT(rate), 1, 0, 9, NULL, "", "batch=x" }, 0, "where 'batch=x', which is no" },
        { "rate", { "rate", TUTTI_REAL, AT(rate), 1, 0, 9, NULL, "", "" }, 0, "where '', which is no condition" },
        { "rate", { "rate", TUTTI_REAL, AT(rate), 1, 0, 9, NULL, "", "nesterov=on&" }, 0, "where '', which is no" },
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(cases); k++) {
        const changed *c = &cases[k];
        tutti_option table[TUTTI_LENGTH(subject_options)];
        tutti_error err = { 0 };
        tutti_status status;
        memcpy(table, subject_options, sizeof table);
        for (size_t i = 0; i < TUTTI_LENGTH(table) && c->option != NULL; i++)
            if (table[i].name != NULL && strcmp(table[i].name, c->option) == 0)
                table[i] = c->to;
        status = tutti_options_check(table, "method 'mine'",
                                     c->self_bytes == 0         ? sizeof(subject)
                                     : c->self_bytes == NOTHING ? 0
                                                                : c->self_bytes, &err);
        if (c->sentence == NULL && status != TUTTI_OK)
            fail_msg("case %zu is refused: %s", k, err.text);
        if (c->sentence != NULL && (status != TUTTI_ERR_STATE || strstr(err.text, c->sentence) == NULL))
            fail_msg("case %zu: wanted '%s', got '%s'", k, c->sentence, err.text);
        if (c->sentence != NULL)
            assert_int_equal(strncmp(err.text, "method 'mine': ", 15), 0);
    }
    assert_int_equal(tutti_options_check(NULL, "method 'mine'", 0, NULL), TUTTI_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(mistakes_in_option_tables_are_reported) };

    return cmocka_run_group_tests_name("base/table", tests, NULL, NULL);
}
