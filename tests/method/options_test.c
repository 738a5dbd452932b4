/* Goal: each option of each gossip and each periodic method takes its least value, its greatest and all its choices, and refuses one beyond in a sentence that names it. Method: the methods' own tables, so a new
   option is tested as soon as it is there. Four workers run with what is least or chosen; with what is greatest, which may be a million averagings a gradient, they open and end, and one worker runs. */
#include "trial.h"

/* What an option needs beside itself. */
static const struct { const char *method, *option, *with, *codec; } also[] = { { "lasgd", "max_delay", "local_steps=1000000000", NULL }, { "d-psgd", "gamma", NULL, "topk(ratio=0.1)" },
                                                                               { "rand-psgd", "outstanding", "pace=own", NULL }, { "asr-adpsgd", "seed", "mixing=random-ring", NULL } };
/* Of options that are specs. */
static const struct { const char *option, *good[4], *bad; } specs[] = {
    { "graph", { "ring", "one-peer-exponential", "complete" }, "rign" }, { "mixing", { "random-ring", "ring", "random-matching" }, "rign" }, { "outer", { "sgd(lr=0.7,momentum=0.9)" }, "sdg" },
};

static tutti_status run(const char *method, const char *option, const char *value, int n, int steps, tutti_error *err)
{
    const char *with = NULL, *codec = NULL;
    char spec[300];
    trial t;
    tutti_status status;

    for (size_t k = 0; k < TUTTI_LENGTH(also); k++)
        if (strcmp(also[k].method, method) == 0 && strcmp(also[k].option, option) == 0) {
            with = also[k].with;
            codec = also[k].codec;
        }
    snprintf(spec, sizeof spec, "%s(%s=%s%s%s)", method, option, value, with != NULL ? "," : "", with != NULL ? with : "");
    t = trial_of(spec, "sgd(lr=0.05)", steps);
    t.options.codec = codec;
    status = trial_try(&t, n, err);
    trial_drop(&t);
    return status;
}

static void good(const char *method, const char *option, const char *value, int n, int steps)
{
    tutti_error err;

    if (run(method, option, value, n, steps, &err) != TUTTI_OK)
        fail_msg("%s(%s=%s), %d workers, %d steps: %s", method, option, value, n, steps, err.text);
}

static void bad(const char *method, const char *option, const char *value)
{
    tutti_error err;
    const tutti_status status = run(method, option, value, 4, 2, &err);

    if (status != TUTTI_ERR_USAGE)
        fail_msg("%s(%s=%s) is not refused", method, option, value);
    if (strstr(err.text, method) == NULL || strstr(err.text, value) == NULL || (strstr(err.text, option) == NULL && strcmp(value, "rign") != 0 && strcmp(value, "sdg") != 0))
        fail_msg("%s(%s=%s) is refused without a word on it: %s", method, option, value, err.text);
}

static void number(const tutti_method_ops *m, const tutti_option *o)
{
    char least[40], most[40], below[40], above[40];

    snprintf(least, sizeof least, "%.17g", o->min);
    snprintf(most, sizeof most, o->type == TUTTI_INT ? "%.0f" : "%.17g", o->max);
    snprintf(below, sizeof below, "%.17g", o->type == TUTTI_INT ? o->min - 1 : nextafter(o->min, -1e300));
    snprintf(above, sizeof above, o->type == TUTTI_INT ? "%.0f" : "%.17g", o->type != TUTTI_INT ? nextafter(o->max, 1e300) : o->max + 1 > o->max ? o->max + 1 : o->max + 2); /* 2^53 + 1 is no double */
    good(m->name, o->name, least, 4, 2);
    good(m->name, o->name, most, 4, 0);
    good(m->name, o->name, most, 1, 2);
    bad(m->name, o->name, below);
    bad(m->name, o->name, above);
    bad(m->name, o->name, "x");
}

static void choices(const tutti_method_ops *m, const tutti_option *o)
{
    char text[200], *rest = text;

    snprintf(text, sizeof text, "%s", o->text);
    for (char *word = strsep(&rest, "|"); word != NULL; word = strsep(&rest, "|"))
        good(m->name, o->name, word, 4, 2);
    bad(m->name, o->name, "neither");
}

static void every_option_at_its_least_its_greatest_and_one_beyond(void **state)
{
    int tested = 0;

    (void)state;
    for (size_t i = 0; tutti_methods[i] != NULL; i++) {
        const tutti_method_ops *m = tutti_methods[i];
        if (strcmp(m->family, "gossip") != 0 && strcmp(m->family, "periodic") != 0)
            continue;
        for (const tutti_option *o = m->options; o != NULL && o->name != NULL; o++, tested++) {
            if (o->type == TUTTI_INT || o->type == TUTTI_REAL)
                number(m, o);
            else if (o->type == TUTTI_CHOICE)
                choices(m, o);
            else if (o->type == TUTTI_BOOL) {
                good(m->name, o->name, "on", 4, 2);
                good(m->name, o->name, "off", 4, 2);
                bad(m->name, o->name, "maybe");
            }
            for (size_t k = 0; o->type == TUTTI_SPEC && k < TUTTI_LENGTH(specs); k++)
                if (strcmp(specs[k].option, o->name) == 0) {
                    for (int v = 0; v < 4 && specs[k].good[v] != NULL; v++)
                        good(m->name, o->name, specs[k].good[v], 4, 2);
                    bad(m->name, o->name, specs[k].bad);
                }
        }
    }
    assert_true(tested >= 25);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_option_at_its_least_its_greatest_and_one_beyond) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
