/* refuse.c: implements refuse.h: makes the error messages for what a method cannot be combined
   with: options of the run, and what it does itself. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "engine_internal.h"
#include "base/options.h"
#include "optim/optim.h"
#include "refuse.h"

/* True if the run requests `asked`. Then `what` describes the request, and *undo how to withdraw
   it. */
static bool asks(const tutti_engine *e, tutti_asked asked, char what[128], const char **undo)
{
    switch (asked) {
    case TUTTI_ASKED_CLIENT:
        snprintf(what, 128, "optimizer is 'client'");
        *undo = "give its rule, as sgd(lr=0.05,momentum=0.9) (in Python tutti.torch.prepare does "
                "so for SGD, Adam and AdamW)";
        return e->client.updates;
    case TUTTI_ASKED_CLIP:
        snprintf(what, 128, "clip-norm is %g", e->options.clip_norm);
        *undo = "leave clip-norm at 0";
        return e->options.clip_norm > 0;
    case TUTTI_ASKED_SKIPS:
        snprintf(what, 128, "%s may skip a step", e->scaler.on ? "loss-scale" : "nonfinite=skip");
        *undo = e->scaler.on ? "leave it off" : "leave nonfinite at stop";
        return e->scaler.on || e->options.nonfinite == TUTTI_NONFINITE_SKIP;
    case TUTTI_ASKED_CODEC:
        if (tutti_exchange_codec(&e->m) == NULL)
            return false;
        snprintf(what, 128, "codec is '%.80s'", tutti_exchange_codec(&e->m));
        *undo = "omit codec";
        return true;
    case TUTTI_ASKED_COMMIT:
        snprintf(what, 128, "each step is to be made as a whole or not at all (commit)");
        *undo = "leave commit out";
        return e->options.commit != NULL;
    case TUTTI_ASKED_LAZY:
        snprintf(what, 128, "optimizer is lazy");
        *undo = "omit lazy";
        return tutti_optim_lazy(e->m.optim);
    case TUTTI_ASKED_BATCH_SHARE:
        snprintf(what, 128, "batch-share cuts a step by worker");
        *undo = "omit batch-share";
        return e->options.batch_of != NULL;
    case TUTTI_ASKED_PARTITION:
        snprintf(what, 128, "partition gives each worker samples of its own");
        *undo = "leave partition at iid";
        return e->options.parts != NULL;
    case TUTTI_ASKED_STREAM:
        snprintf(what, 128, "stream is given");
        *undo = "omit stream";
        return e->options.streams;
    case TUTTI_ASKED_BATCH_NORMS:
        snprintf(what, 128, "the model has batch norms, whose statistics are of a whole pass");
        *undo = "take a model without";
        return e->options.own_values > 0;
    }
    return false;
}

tutti_status tutti_refuse(const tutti_method *m, const tutti_conflict *rows, size_t n,
                          tutti_error *err)
{
    tutti_engine *e = m->engine;
    char what[128];
    const char *undo;

    for (const tutti_conflict *c = rows; c < rows + n; c++)
        if (asks(e, c->asked, what, &undo))
            return tutti_fail(err, TUTTI_ERR_USAGE, 0, "%s%s, but method '%s' %s; %s%s", what,
                              c->about != NULL ? c->about : "", m->ops->name, c->does, undo,
                              c->otherwise != NULL ? c->otherwise : "");
    for (const tutti_conflict *c = rows; c < rows + n; c++)
        e->refused |= 1u << c->asked;
    return TUTTI_OK;
}

tutti_status tutti_refuse_method(const tutti_method *m, const char *would, unsigned excluded,
                                 tutti_error *err)
{
    const char *does = tutti_method_does(m, excluded);

    return does == NULL ? TUTTI_OK
                        : tutti_fail(err, TUTTI_ERR_USAGE, 0, "method '%s' would %s, but it %s",
                                     m->ops->name, would, does);
}

/* ---- rules ---- */

/* Prints the value that `name` stands for; returns whether there is one. */
static bool print_value(const tutti_method *m, const char *name, char *out, size_t bytes)
{
    const tutti_engine *e = m->engine;
    const struct { const char *name; long long value; } numbers[] = {
        { "workers", m->workers },
        { "batch", m->share->batch },
        { "accumulate", m->share->accumulate },
    };
    const struct { const char *name, *value; } texts[] = {
        { "codec", e->options.codec },
        { "codec_hierarchy", e->options.codec_hierarchy },
        { "optimizer", e->options.optimizer },
        { "lr_schedule", e->options.lr_schedule },
    };
    const tutti_option *option = tutti_option_find(m->ops->options, name);

    if (strcmp(name, "method") == 0)
        return snprintf(out, bytes, "method '%s'", m->ops->name) > 0;
    if (option != NULL && m->self != NULL)
        return tutti_option_print(option, m->self, out, bytes) >= 0;
    for (size_t k = 0; k < TUTTI_LENGTH(numbers); k++)
        if (strcmp(name, numbers[k].name) == 0)
            return snprintf(out, bytes, "%lld", numbers[k].value) > 0;
    for (size_t k = 0; k < TUTTI_LENGTH(texts); k++)
        if (strcmp(name, texts[k].name) == 0)
            return snprintf(out, bytes, "%s", texts[k].value) >= 0;
    return false;
}

/* Writes the sentence, with values in place of names in braces. */
static void print_sentence(const tutti_method *m, const char *sentence, char *out, size_t bytes)
{
    size_t used = 0;

    out[0] = 0;
    while (*sentence != 0 && used < bytes) {
        const size_t plain = strcspn(sentence, "{");
        char name[48], value[96] = "";
        size_t braced = 0; /* with its braces */
        if (sentence[plain] != 0) {
            braced = strcspn(sentence + plain, "}") + 1;
            snprintf(name, sizeof name, "%.*s", (int)braced - 2, sentence + plain + 1);
            const bool known = print_value(m, name, value, sizeof value);
            assert(known);
            (void)known;
        }
        used += (size_t)snprintf(out + used, bytes - used, "%.*s%s", (int)plain, sentence, value);
        sentence += plain + braced;
    }
}

tutti_status tutti_refuse_rules(const tutti_method *m, const tutti_rule *rules, size_t n,
                                tutti_error *err)
{
    char text[sizeof err->text];

    for (size_t k = 0; k < n; k++) {
        /* also of a rule that is kept, so that a wrong name in it is found */
        print_sentence(m, rules[k].sentence, text, sizeof text);
        if (rules[k].broken)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0, "%s", text);
    }
    return TUTTI_OK;
}
