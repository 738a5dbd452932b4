/* table.c: checks, when a codec is opened, that its table has all functions that its form needs.
   So a function that its author has forgotten causes an error message, and no call through NULL
   within a step. */
#include "codec_internal.h"
#include <stdio.h>

typedef struct need { const char *member; bool there; } need;

static tutti_status check_needs(const tutti_codec_ops *ops, const char *form, const need *needs,
                                size_t n, tutti_error *err)
{
    for (size_t k = 0; k < n; k++)
        if (!needs[k].there)
            return tutti_fail(err, TUTTI_ERR_STATE, 0,
                              "codec '%s' %s, for which its table needs .%s", ops->name, form,
                              needs[k].member);
    return TUTTI_OK;
}

tutti_status tutti_codec_check_mean(const tutti_codec_ops *ops, unsigned traits, tutti_error *err)
{
    if ((traits & TUTTI_CODEC_JOINT) == 0 || ops->choose != NULL)
        return TUTTI_OK;
    if (ops->rounds > 0)
        return tutti_fail(err, TUTTI_ERR_STATE, 0,
                          "codec '%s' has sums of numbers (.rounds) and the trait "
                          "TUTTI_CODEC_JOINT, which is for codecs of messages",
                          ops->name);
    return check_needs(ops, "has the trait TUTTI_CODEC_JOINT",
                       &(need){ "mean", ops->mean != NULL }, 1, err);
}

tutti_status tutti_codec_check_table(const tutti_codec_ops *ops, tutti_error *err)
{
    const need all[] = { { "paper", ops->paper != NULL }, { "help", ops->help != NULL },
                         { "options", ops->options != NULL }, { "traits", ops->traits != NULL } },
               message[] = { { "bound", ops->bound != NULL }, { "encode", ops->encode != NULL },
                             { "decode_add", ops->decode_add != NULL } },
               linear[] = { { "width", ops->width != NULL }, { "fold", ops->fold != NULL },
                            { "mine", ops->mine != NULL }, { "unfold", ops->unfold != NULL } };
    char what[80];
    size_t inner = 0;

    TUTTI_TRY(check_needs(ops, "is in a list", all, TUTTI_LENGTH(all), err));
    snprintf(what, sizeof what, "codec '%.60s'", ops->name);
    TUTTI_TRY(tutti_options_check(ops->options, what, ops->self_bytes, err));
    for (const tutti_option *o = ops->options; o->name != NULL; o++)
        inner += o->type == TUTTI_SPEC;
    if (inner > TUTTI_LENGTH(((tutti_codec *)0)->inner))
        return tutti_fail(err, TUTTI_ERR_STATE, 0,
                          "codec '%s' has %zu options of type spec, which are codecs inside of it; "
                          "there may be at most %zu",
                          ops->name, inner, TUTTI_LENGTH(((tutti_codec *)0)->inner));
    if (ops->choose != NULL)
        return inner > 0 ? TUTTI_OK
                         : tutti_fail(err, TUTTI_ERR_STATE, 0,
                                      "codec '%s' wraps others (.choose), for which it needs an "
                                      "option of type spec for each",
                                      ops->name);
    if (ops->rounds == 0)
        return check_needs(ops, "is messages", message, TUTTI_LENGTH(message), err);
    if (ops->number == NULL && ops->dtype != TUTTI_F32 && ops->dtype != TUTTI_F16 &&
        ops->dtype != TUTTI_BF16)
        return tutti_fail(err, TUTTI_ERR_STATE, 0,
                          "codec '%s' has sums of numbers of a type that cannot be summed; set "
                          ".dtype to TUTTI_F32, TUTTI_F16 or TUTTI_BF16",
                          ops->name);
    return check_needs(ops, "has sums of numbers (.rounds)", linear, TUTTI_LENGTH(linear), err);
}
