/* Goal: the table of a codec that lacks what its form needs is refused with a sentence; that of
   every codec which there is is whole. Method: good tables, with one thing taken away at a time. */
#include "subject.h"

#include "codec/codec_internal.h"
#include "codec/registry.h"
#include "codec/codec.h"

static void expect(const tutti_codec_ops *ops, const char *sentence)
{
    tutti_error err = { 0 };

    assert_int_equal(tutti_codec_check_table(ops, &err), TUTTI_ERR_STATE);
    if (strstr(err.text, sentence) == NULL)
        fail_msg("wanted '%s', got '%s'", sentence, err.text);
}

static void every_codec_table_is_complete(void **state)
{
    tutti_error err;

    (void)state;
    for (size_t i = 0; tutti_codecs[i] != NULL; i++)
        if (tutti_codec_check_table(tutti_codecs[i], &err) != TUTTI_OK)
            fail_msg("%s", err.text);
}

/* Of a codec that is dct but for `mean` and `rounds`, and has the trait of mean=senders. */
static void expect_mean(bool mean, int rounds, const char *sentence)
{
    tutti_codec_ops ops = tutti_codec_dct;
    tutti_error err = { 0 };

    ops.mean = mean ? ops.mean : NULL;
    ops.rounds = rounds;
    assert_int_equal(tutti_codec_check_mean(&ops, 0, &err), TUTTI_OK);
    assert_int_equal(tutti_codec_check_mean(&ops, TUTTI_CODEC_JOINT, &err),
                     sentence == NULL ? TUTTI_OK : TUTTI_ERR_STATE);
    if (sentence != NULL && strstr(err.text, sentence) == NULL)
        fail_msg("wanted '%s', got '%s'", sentence, err.text);
}

#define WITHOUT(codec, member, sentence)    \
    do {                                    \
        tutti_codec_ops less = codec;       \
        less.member = 0;                    \
        expect(&less, sentence);            \
    } while (0)

static void missing_codec_table_entries_are_rejected(void **state)
{
    static const tutti_option four[] = {
        { "a", TUTTI_SPEC, 0, 0, 0, 0, "", "" }, { "b", TUTTI_SPEC, 8, 0, 0, 0, "", "" },
        { "c", TUTTI_SPEC, 16, 0, 0, 0, "", "" }, { "d", TUTTI_SPEC, 24, 0, 0, 0, "", "" }, { 0 }
    };
    tutti_codec_ops ops;

    (void)state;
    WITHOUT(tutti_codec_topk, options, "codec 'topk' is in a list, for which its table needs .options");
    WITHOUT(tutti_codec_topk, paper, "its table needs .paper");
    WITHOUT(tutti_codec_topk, help, "its table needs .help");
    WITHOUT(tutti_codec_topk, traits, "its table needs .traits");
    WITHOUT(tutti_codec_topk, self_bytes,
            "codec 'topk': option 'ratio' of its table is to be written to a struct of 0");
    WITHOUT(tutti_codec_topk, bound, "codec 'topk' is messages, for which its table needs .bound");
    WITHOUT(tutti_codec_topk, encode, "its table needs .encode");
    WITHOUT(tutti_codec_topk, decode_add, "its table needs .decode_add");
    WITHOUT(tutti_codec_powersgd, rounds, "codec 'powersgd' is messages, for which its table needs .bound");
    WITHOUT(tutti_codec_powersgd, width,
            "codec 'powersgd' has sums of numbers (.rounds), for which its table needs .w");
    WITHOUT(tutti_codec_powersgd, fold, "its table needs .fold");
    WITHOUT(tutti_codec_powersgd, mine, "its table needs .mine");
    WITHOUT(tutti_codec_powersgd, unfold, "its table needs .unfold");
    WITHOUT(tutti_codec_ef, choose, "codec 'ef' is messages, for which its table needs .bound");
    ops = tutti_codec_ef;
    ops.options = tutti_codec_fp32.options;
    expect(&ops, "codec 'ef' wraps others (.choose), for which it needs an option of type spec for each");
    ops.options = four;
    ops.self_bytes = 32;
    expect(&ops, "codec 'ef' has 4 options of type spec, which are codecs inside of it; there may be at most 3");
    expect_mean(true, 0, NULL);
    expect_mean(false, 0, "codec 'dct' has the trait TUTTI_CODEC_JOINT, for which its table needs .mean");
    expect_mean(true, 1, "codec 'dct' has sums of numbers (.rounds) and the trait TUTTI_CODEC_JOINT");
    ops = tutti_codec_fp32;
    ops.dtype = TUTTI_I64;
    expect(&ops, "codec 'fp32' has sums of numbers of a type that cannot be summed; set .dtype");
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_codec_table_is_complete),
                                        cmocka_unit_test(missing_codec_table_entries_are_rejected) };

    return cmocka_run_group_tests_name("codec/table", tests, NULL, NULL);
}
