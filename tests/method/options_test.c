/* Goal: each option of each method and of each codec takes its least value, its greatest and all
   its choices, and refuses one beyond in a sentence that names it. Method: the tables themselves,
   so a new option is tested as soon as it is there; one whose kind needs values that no table has
   (a text, a spec) fails until it has a row here. Four workers run with what is least or chosen;
   with what is greatest, which may be a million averagings a gradient, they open and end, and one
   worker runs. A codec runs under ddp. What an option needs in addition comes from its `when`;
   what is required by a check beyond the tables, from a row of `also`. */
#include "trial.h"
#include "tutti/codec.h"
#include "tutti/method.h"
#include "base/options.h"
#include "codec/codec.h"
#include "sanitized.h"

/* at: "<" with the least value, ">" with the greatest, a text with that choice, NULL with any.
   with: options of the same table except for the one that is tested, in place of what its `when`
   says; batch, accumulate: of the run; opens: with the greatest no step is made, which would take
   days. The first row that fits counts. */
static const struct also {
    const char *of, *option, *at, *with[3], *codec;
    int64_t batch, accumulate;
    bool opens;
} also[] = {
    { "ddp", "bucket_mb", "<", { "first_bucket_mb=9.5367431640625e-07" } },
    { "ddp", "first_bucket_mb", ">", { "bucket_mb=65536" } },
    { "parameter-server", "bucket_mb", "<", { "first_bucket_mb=9.5367431640625e-07" } },
    { "parameter-server", "first_bucket_mb", ">", { "bucket_mb=65536" } },
    { "zero", "bucket_mb", "<", { "first_bucket_mb=9.5367431640625e-07" } },
    { "zero", "first_bucket_mb", ">", { "bucket_mb=65536" } },
    { "zero-infinity", "bucket_mb", "<", { "first_bucket_mb=9.5367431640625e-07" } },
    { "zero-infinity", "first_bucket_mb", ">", { "bucket_mb=65536" } },
    { "zero-offload", "bucket_mb", "<", { "first_bucket_mb=9.5367431640625e-07" } },
    { "zero-offload", "first_bucket_mb", ">", { "bucket_mb=65536" } },
    { "parallax", "bucket_mb", "<", { "first_bucket_mb=9.5367431640625e-07" } },
    { "parallax", "first_bucket_mb", ">", { "bucket_mb=65536" } },
    { "lasgd", "max_delay", NULL, { "local_steps=1000000000" } },
    { "diloco", "fragments", NULL, { "period=60" } },
    { "diloco", "order", NULL, { "fragments=2" } },
    { "diloco", "delay", ">", { "period=1000001" } },
    { "decoupled-diloco", "grace", NULL, { "quorum=1" } },
    { "decoupled-diloco", "report", NULL, { "quorum=1" } },
    { "slowmo", "gamma", NULL, { "base=d-psgd" }, "topk(ratio=0.1)" },
    { "d-psgd", "gamma", NULL, { NULL }, "topk(ratio=0.1)" },
    { "qg-dsgdm", "gamma", NULL, { NULL }, "topk(ratio=0.1)" },
    { "gut", "gamma", NULL, { NULL }, "topk(ratio=0.1)" },
    { "saddle", "gamma", NULL, { NULL }, "topk(ratio=0.1)" },
    { "dabmd", "consensus", ">", { "graph=ring" } },
    { "hop", "staleness", ">", { "max_gap=1024" } },
    { "hop", "staleness_weights", NULL, { "staleness=1" } },
    { "pipe-sgd", "lr_scale", NULL, { "width=2" } },
    { "pipe-sgd", "drain", NULL, { "width=2" } },
    { "hop", "skip", "on", { "backup=1" } },
    { "hop", "trigger", NULL, { "skip=on", "backup=1" } },
    { "hop", "max_jump", NULL, { "skip=on", "backup=1", "max_gap=1024" } },
    { "hermes", "local_passes", ">", { "minibatch=1", "chunk=1" }, NULL, 1, 1, true },
    { "hermes", "chunk", ">", { "minibatch=1" }, NULL, 1048576, 1, true },
    { "hermes", "chunk_most", ">", { "minibatch=1", "chunk=4", "local_passes=2" }, NULL, 1048576, 1 },
    { "hermes", "minibatch", ">", { "chunk=1048576" }, NULL, 1048576, 1, true },
    { "hermes", NULL, NULL, { "minibatch=1", "chunk=4", "local_passes=2" } },
    { "hetero-ring", "allocation", "static", { "shares=1:2:1:2" } },
    { "hetero-ring", "shares", NULL, { "allocation=static" } },
    { "hetero-ring", "micro_batches", ">", { NULL }, NULL, 250, 1000000, true },
    { "hetero-ring", "micro_batch", ">", { "micro_batches=4" }, NULL, 16777216, 1, true },
    { "ata", "allocation", "ata", { "bound=1" } },
    { "ata", "allocation", "fixed", { "seconds=1:2:1:2" } },
    { "ata", "tasks", ">", { NULL }, NULL, 250, 1000000, true },
    { "ata", "bound", "<", { "allocation=uniform" } }, /* none */
    { "ata", "width_scale", NULL, { "allocation=ata-empirical" } },
    { "ata", "forget", NULL, { "allocation=ata-empirical" } },
    { "scadles", "simulate_clock", NULL, { "window_s=0.001", "batch_min=1" } },
    { "scadles", "rate_low", NULL, { "simulate_clock=on", "rate_high=1000000000" } },
    { "scadles", "rate_high", NULL, { "simulate_clock=on", "rate_low=0.001" } },
    { "scadles", "batch_min", NULL, { "simulate_clock=on", "batch_max=16777216" } },
    { "scadles", "batch_max", NULL, { "simulate_clock=on", "batch_min=1" } },
    { "scadles", "cap", NULL, { "simulate_clock=on", "policy=cap", "batch_min=1" } },
    { "scadles", "inject_alpha", "<", { "simulate_clock=on" } }, /* none */
    { "scadles", "inject_beta", "<", { "simulate_clock=on" } },
    { "scadles", "inject_alpha", NULL, { "simulate_clock=on", "inject_beta=0.5" } },
    { "scadles", "inject_beta", NULL, { "simulate_clock=on", "inject_alpha=0.5" } },
    { "scadles", NULL, NULL, { "simulate_clock=on" } },
    { "byteps", "feedback", NULL, { NULL }, "topk(ratio=0.5)" },
    { "accordion", "period_low", ">", { "mode=localsteps", "period_high=1000000000" } },
    { "accordion", "low", NULL, { "high=topk(ratio=0.001)" } },
    { "accordion", "high", NULL, { "low=topk(ratio=0.9)" } },
    { "nuqsgd", "multiplier", "<", { "bits=3" } },
    { "alq", "first", ">", { "second=0" } },
    { "amq", "first", ">", { "second=0" } },
};
/* Codecs that are nothing without another. */
static const struct also inside[] = {
    { "ef", "nesterov", NULL, { "codec=topk(ratio=0.1)", "momentum=0.5" } },
    { "ef", "flush", NULL, { "codec=topk(ratio=0.1)", "flush_every=2" } },
    { "ef", NULL, NULL, { "codec=topk(ratio=0.1)" } },
    { "large", NULL, NULL, { "codec=topk(ratio=0.1)" } },
    { "ef21", NULL, NULL, { "codec=topk(ratio=0.1)" } },
    { "accordion", "dense", NULL, { "low=topk(ratio=0.9)", "high=topk(ratio=0.001)", "dry_run=on" } },
    { "accordion", NULL, NULL, { "low=topk(ratio=0.9)", "high=topk(ratio=0.001)" } },
};
/* What the number of workers bounds more closely than the table can: with 4 of them. */
static const struct {
    const char *of, *option; /* of NULL: any */
    int most;
} bounded[] = {
    { "diloco", "fragments", 3 }, /* of three units */
    { "hop", "backup", 2 }, { NULL, "servers", 4 },        { NULL, "softsync", 4 },   { NULL, "backup", 3 },
    { NULL, "standby", 3 },
    { NULL, "group", 4 },   { "prague", "group_size", 4 }, { "herring", "rails", 4 },
};
/* Values of texts and specs, and one that is none. */
static const struct values {
    const char *of, *option, *good[4], *bad;
} values[] = {
    { "gut", "graph", { "ring", "exponential", "complete" }, "rign" },
    { "hop", "graph", { "ring", "double-ring", "exponential" }, "one-peer-exponential" },
    { NULL, "graph", { "ring", "one-peer-exponential", "complete" }, "rign" },
    { NULL, "mixing", { "random-ring", "ring", "random-matching" }, "rign" },
    { NULL, "outer", { "sgd(lr=0.7,momentum=0.9)", "none" }, "sdg" },
    { "bagua", "hierarchical", { "auto", "off", "1", "2" }, "3" },
    { "h-adpsgd", "super_learner", { "machine", "1", "2", "4" }, "3" },
    { "herring", "node", { "auto", "none", "2", "machine" }, "3" },
    { "parallax", "node", { "auto", "none", "2", "machine" }, "3" },
    { "zero", "group", { "machine", "none", "1", "2" }, "3" },
    { "byteps", "node", { "auto", "none", "2", "machine" }, "3" },
    { "hetero-ring", "shares", { "1:1:1:1", "3:1:2:2" }, "1:2" },
    { "hetero-ring", "adapt_every", { "1", "1000000000", "epoch" }, "0" },
    { "biased-local-sgd", "steps", { "auto", "9:1:9:9" }, "1:2" },
    { "zero-infinity", "tier", { "host", "nvme(path=/tmp,direct=off)", "nvme(path=/tmp,direct=off,depth=1)" }, "hots" },
    { "zero-offload", "tier", { "host", "nvme(path=/tmp,direct=off)", "nvme(path=/tmp,direct=off,depth=1)" }, "hots" },
    { "ata", "seconds", { "1:2:3:4", "1e-9:1e9:1:1" }, "1:2" },
    { "prague", "inter_intra", { "auto", "off", "2" }, "yes" },
    { "decoupled-diloco", "quorum", { "all", "1", "4" }, "5" },
    { "stragglar", "straggler", { "auto", "0", "3" }, "4" },
    { "scadles", "rates", { "uniform", "normal", "5:6:7:8" }, "1:2" },
    { "dabmd", "record", { "/tmp/tutti-options-record" }, "/nowhere/record" },
    { "dabmd", "replay", { "/tmp/tutti-options-record" }, "/nowhere/record" }, /* the one just written */
    { "scadles", "record", { "/tmp/tutti-options-scadles" }, "/nowhere/record" },
    { "scadles", "replay", { "/tmp/tutti-options-scadles" }, "/nowhere/record" },
    { NULL, "replay", { "1.l", "0.h:1.l" }, "1.x" },
    { NULL, "exclude", { "b", "*:?" }, "z" },
    { NULL, "warmup_ratios", { "0.5", "1:0.25:0.25" }, "2" },
    { NULL, "codec", { "topk", "fp16", "sign" }, "tokp" },
    { NULL, "small", { "fp32", "int8" }, "ft32" },
    { NULL, "flush", { "fp32", "bf16" }, "ft32" },
    { NULL, "dense", { "fp32", "bf16" }, "ft32" },
    { NULL, "low", { "topk(ratio=0.5)", "topk" }, "tokp" },
    { NULL, "high", { "topk(ratio=0.5)", "topk" }, "tokp" },
};
/* Choices, and greatest numbers, that the model of this test cannot have, and the error
   sentence. */
static const struct {
    const char *of, *option, *value, *sentence;
} unfit[] = {
    { "bagua", "peer_selection", "ring", "method 'd-psgd(graph=ring)' is a ring at full precision" },
    { "herring", "placement", "dedicated", "no rank only serves; give --servers N" },
    { "scadles", "inject_alpha", "1", "all workers draw from one common set" },
    { "scadles", "inject_beta", "1", "all workers draw from one common set" },
    { "dabmd", "mirror", "entropy", "is for a model that is one point of the probability simplex" },
};
static int failures;

/* A table and what it stands in: a method, or a codec under ddp. */
typedef struct table {
    const char *name;
    const tutti_option *options;
    bool codec;
} table;

static const char *end_of(const tutti_option *o, const char *value)
{
    const double number = strtod(value, NULL);

    return o->type != TUTTI_INT && o->type != TUTTI_REAL ? NULL
           : number <= o->min                            ? "<"
           : number >= o->max                            ? ">"
                                                         : NULL;
}

static const struct also *find_in(const struct also *rows, size_t n, const table *t, const tutti_option *o,
                                  const char *value)
{
    const char *end = end_of(o, value);

    for (size_t k = 0; k < n; k++)
        if (strcmp(rows[k].of, t->name) == 0 && (rows[k].option == NULL || strcmp(rows[k].option, o->name) == 0) &&
            (rows[k].at == NULL || strcmp(rows[k].at, value) == 0 || (end != NULL && strcmp(rows[k].at, end) == 0)))
            return &rows[k];
    return NULL;
}

static const struct also *find(const table *t, const tutti_option *o, const char *value)
{
    const struct also *a = t->codec ? find_in(inside, TUTTI_LENGTH(inside), t, o, value) : NULL;

    return a != NULL ? a : find_in(also, TUTTI_LENGTH(also), t, o, value);
}

/* `,solver=closed` for the condition "solver=closed"; for "select=randk|blockk" the first choice;
   for "momentum>0" a value that fits. */
static void meet(const table *t, const char *when, char *out, size_t bytes)
{
    char text[200], *rest = text;

    out[0] = 0;
    if (when == NULL)
        return;
    snprintf(text, sizeof text, "%s", when);
    for (char *word = strsep(&rest, "&"); word != NULL; word = strsep(&rest, "&")) {
        char *sign = strpbrk(word, "=>"), *bar;
        const bool more = *sign == '>';
        *sign = 0;
        if ((bar = strchr(sign + 1, '|')) != NULL)
            *bar = 0;
        if (more) {
            const tutti_option *on = tutti_option_find(t->options, word);
            const double between = 0.5 * (strtod(sign + 1, NULL) + on->max);
            snprintf(out + strlen(out), bytes - strlen(out), on->type == TUTTI_INT ? ",%s=%.0f" : ",%s=%g", word,
                     between);
        } else
            snprintf(out + strlen(out), bytes - strlen(out), ",%s=%s", word, sign + 1);
    }
}

static double constant(trial *t, int rank, const float *x)
{
    (void)t;
    (void)rank;
    return (double)x[0] * (double)x[0] + 1;
}

static tutti_status run(const table *of, const tutti_option *o, const char *value, int n, int steps, tutti_error *err)
{
    const struct also *a = find(of, o, value);
    const size_t name = strlen(o->name);
    char spec[400], when[200];
    trial t;
    tutti_status status;

    meet(of, a == NULL || a->with[0] == NULL ? o->when : NULL, when, sizeof when);
    snprintf(spec, sizeof spec, "%s(%s=%s%s", of->name, o->name, value, when);
    for (size_t k = 0; a != NULL && k < TUTTI_LENGTH(a->with) && a->with[k] != NULL; k++)
        if (strncmp(a->with[k], o->name, name) != 0 || a->with[k][name] != '=')
            snprintf(spec + strlen(spec), sizeof spec - strlen(spec), ",%s", a->with[k]);
    snprintf(spec + strlen(spec), sizeof spec - strlen(spec), ")");
    t = trial_of(of->codec ? "ddp" : spec, "sgd(lr=0.001)", steps);
    t.options.codec = of->codec ? spec : a != NULL ? a->codec : NULL;
    t.options.data_samples = 64;
    t.options.names = true;
    t.held_out = constant;
    if (a != NULL && a->batch > 0)
        t.options.batch = a->batch;
    if (a != NULL && a->accumulate > 0)
        t.options.accumulate = a->accumulate;
    status = trial_try(&t, n, err);
    trial_drop(&t);
    return status;
}

static void good(const table *of, const tutti_option *o, const char *value, int n, int steps)
{
    tutti_error err;

    if (run(of, o, value, n, steps, &err) != TUTTI_OK) {
        print_error("%s(%s=%s), %d workers, %d steps: %s\n", of->name, o->name, value, n, steps, err.text);
        failures++;
    }
}

static void bad(const table *of, const tutti_option *o, const char *value, int n)
{
    tutti_error err;
    const tutti_status status = run(of, o, value, n, 2, &err);

    if (status != TUTTI_ERR_USAGE) {
        print_error("%s(%s=%s) is not refused\n", of->name, o->name, value);
        failures++;
    } else if (strstr(err.text, value) == NULL ||
               ((strstr(err.text, of->name) == NULL || strstr(err.text, o->name) == NULL) && o->type != TUTTI_SPEC)) {
        print_error("%s(%s=%s) is refused without a word on it: %s\n", of->name, o->name, value, err.text);
        failures++;
    }
}

static bool is_unfit(const table *of, const tutti_option *o, const char *value)
{
    tutti_error err;

    for (size_t k = 0; k < TUTTI_LENGTH(unfit); k++)
        if (strcmp(unfit[k].of, of->name) == 0 && strcmp(unfit[k].option, o->name) == 0 &&
            strcmp(unfit[k].value, value) == 0) {
            assert_int_equal(run(of, o, value, 4, 2, &err), TUTTI_ERR_USAGE);
            assert_non_null(strstr(err.text, unfit[k].sentence));
            return true;
        }
    return false;
}

static void number(const table *of, const tutti_option *o)
{
    char least[40], most[40], below[40], above[40];

    snprintf(least, sizeof least, "%.17g", o->min);
    snprintf(most, sizeof most, o->type == TUTTI_INT ? "%.0f" : "%.17g", o->max);
    snprintf(below, sizeof below, "%.17g", o->type == TUTTI_INT ? o->min - 1 : nextafter(o->min, -1e300));
    /* 2^53 + 1 is no double */
    snprintf(above, sizeof above, o->type == TUTTI_INT ? "%.0f" : "%.17g",
             o->type != TUTTI_INT  ? nextafter(o->max, 1e300)
             : o->max + 1 > o->max ? o->max + 1
                                   : o->max + 2);
    good(of, o, least, 4, 2);
    if (is_unfit(of, o, most))
        most[0] = 0;
    for (size_t k = 0; k < TUTTI_LENGTH(bounded); k++)
        if (!of->codec && most[0] != 0 && strcmp(bounded[k].option, o->name) == 0 &&
            (bounded[k].of == NULL || strcmp(bounded[k].of, of->name) == 0)) {
            char one[40];
            snprintf(one, sizeof one, "%d", bounded[k].most);
            good(of, o, one, 4, 2);
            snprintf(one, sizeof one, "%d", bounded[k].most + 1);
            bad(of, o, one, 4);
            bad(of, o, most, 4);
            most[0] = 0;
        }
    if (most[0] != 0)
        good(of, o, most, 4, 0);
    if (most[0] != 0 && (find(of, o, most) == NULL || !find(of, o, most)->opens))
        good(of, o, most, 1, 2);
    bad(of, o, below, 1);
    bad(of, o, above, 1);
    bad(of, o, "x", 1);
}

static void choices(const table *of, const tutti_option *o)
{
    char text[200], *rest = text;

    snprintf(text, sizeof text, "%s", o->text);
    for (char *word = strsep(&rest, "|"); word != NULL; word = strsep(&rest, "|"))
        if (!is_unfit(of, o, word))
            good(of, o, word, 4, 2);
    bad(of, o, "neither", 1);
}

static void words(const table *of, const tutti_option *o)
{
    for (size_t k = 0; k < TUTTI_LENGTH(values); k++)
        if ((values[k].of == NULL || strcmp(values[k].of, of->name) == 0) && strcmp(values[k].option, o->name) == 0) {
            for (int v = 0; v < 4 && values[k].good[v] != NULL; v++)
                good(of, o, values[k].good[v], 4, 2);
            bad(of, o, values[k].bad, 4);
            return;
        }
    print_error("%s: '%s' is a %s; give `values` of this test some\n", of->name, o->name,
                tutti_option_type_name(o->type));
    failures++;
}

static int walk(const char *name, const tutti_option *options, bool codec)
{
    const table of = { name, options, codec };
    int tested = 0;

    for (const tutti_option *o = options; o != NULL && o->name != NULL; o++, tested++) {
        if (o->type == TUTTI_INT || o->type == TUTTI_REAL)
            number(&of, o);
        else if (o->type == TUTTI_CHOICE)
            choices(&of, o);
        else if (o->type == TUTTI_BOOL) {
            good(&of, o, "on", 4, 2);
            good(&of, o, "off", 4, 2);
            bad(&of, o, "maybe", 1);
        } else
            words(&of, o);
    }
    return tested;
}

static void option_bounds_of_every_method_are_enforced(void **state)
{
    int tested = 0;

    (void)state;
    failures = 0;
    for (size_t i = 0; tutti_methods[i] != NULL; i++)
        if (i % UNLESS_SANITIZED(1, 3) == 0 && tutti_methods[i]->drive == NULL)
            /* those need a client of their own: method/hetpipe, method/wavelet */
            tested += walk(tutti_methods[i]->name, tutti_methods[i]->options, false);
    remove("/tmp/tutti-options-record");
    remove("/tmp/tutti-options-scadles");
    assert_true(tested >= UNLESS_SANITIZED(190, 40));
    assert_int_equal(failures, 0);
}

static void option_bounds_of_every_codec_are_enforced(void **state)
{
    int tested = 0;

    (void)state;
    failures = 0;
    for (size_t i = 0; tutti_codecs[i] != NULL; i++)
        tested += walk(tutti_codecs[i]->name, tutti_codecs[i]->options, true);
    assert_true(tested >= 85);
    assert_int_equal(failures, 0);
}

/* Bounds as a person would write them. */
static void sizes_are_formatted_for_reading(void **state)
{
    int found = 0;

    (void)state;
    for (size_t i = 0; tutti_methods[i] != NULL; i++) {
        char spec[80];
        tutti_error err = { .text = "" };
        const tutti_option *o = tutti_option_find(tutti_methods[i]->options, "bucket_mb");
        if (o == NULL || tutti_methods[i]->drive != NULL)
            continue;
        found++;
        snprintf(spec, sizeof spec, "%s(bucket_mb=0)", tutti_methods[i]->name);
        trial t = trial_of(spec, "sgd(lr=0.001)", 1);
        if (trial_try(&t, 1, &err) != TUTTI_ERR_USAGE ||
            strstr(err.text, "it must be from 9.54e-7 (1 byte) to 65536") == NULL)
            fail_msg("%s: %s", spec, err.text);
        trial_drop(&t);
    }
    assert_true(found >= 10);
}

/* An option that changes nothing given another option's value is a mistake of the caller. */
static void options_without_effect_are_rejected(void **state)
{
    static const struct {
        const char *spec, *says;
    } cases[] = {
        { "saddle(variant=n,period=3)", "option 'period' has no effect with variant=n; it needs variant=q" },
        { "saddle(variant=n,decay=0.5)", "option 'decay' has no effect with variant=n; it needs variant=q" },
        { "zero-offload(delay_warmup=3)",
          "option 'delay_warmup' has no effect with delayed=false; it needs delayed=on" },
        { "wavelet(sync_rounds=2)",
          "option 'sync_rounds' has no effect with sync_mode=shared; it needs sync_mode=average" },
        { "pipe-sgd(width=1,lr_scale=0.5)", "option 'lr_scale' has no effect with width=1; it needs width>1" },
        { "pipe-sgd(width=1,drain=off)", "option 'drain' has no effect with width=1; it needs width>1" },
        { "hop(staleness_weights=uniform)", "option 'staleness_weights' has no effect with staleness=0" },
        { "hermes(beta=0,lambda=3)", "option 'lambda' has no effect with beta=0; it needs beta>0" },
        { "parallax(partitions=2,search_warmup=3)",
          "option 'search_warmup' has no effect with partitions=2; it needs partitions=0" },
        { "parallax(partitions=2,search_steps=3)", "option 'search_steps' has no effect with partitions=2" },
        { "hetero-ring(allocation=equal,adapt_every=7)",
          "option 'adapt_every' has no effect with allocation=equal; it needs allocation=adaptive" },
        { "scadles(inject_alpha=0.5)",
          "option 'inject_alpha' has no effect with inject_beta=0; it needs inject_beta>0" },
        { "scadles(inject_beta=0.5)",
          "option 'inject_beta' has no effect with inject_alpha=0; it needs inject_alpha>0" },
        { "heterps(schedule=s.json,stages=2)",
          "option 'stages' has no effect with schedule=s.json; it needs schedule=none, or omit it" },
        { "scadles(rates=5,rate_low=3)",
          "option 'rate_low' has no effect with rates=5; it needs rates=uniform|normal" },
        { "scadles(rates=5:6:5:6,rate_high=30)", "option 'rate_high' has no effect with rates=5:6:5:6" },
    };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(cases); i++) {
        trial t = trial_of(cases[i].spec, "sgd(lr=0.001)", 1);
        tutti_error err = { .text = "" };
        if (trial_try(&t, 4, &err) != TUTTI_ERR_USAGE || strstr(err.text, cases[i].says) == NULL)
            fail_msg("%s: %s", cases[i].spec, err.text);
        trial_drop(&t);
    }
}

/* A method with both sizes refuses a first bucket that is the larger one, and states so among its
   constraints. One that is not given follows bucket_mb. */
static void first_bucket_must_not_exceed_the_bucket_size(void **state)
{
    static const struct {
        const char *sizes;
        bool fits;
    } cases[] = {
        { "bucket_mb=2,first_bucket_mb=3", false },
        { "bucket_mb=2,first_bucket_mb=2", true },
        { "bucket_mb=0.5", true },
    };
    int found = 0;

    (void)state;
    for (size_t i = 0; tutti_methods[i] != NULL; i++) {
        const tutti_method_ops *m = tutti_methods[i];
        const char *const *c = m->constraints;
        if (tutti_option_find(m->options, "first_bucket_mb") == NULL)
            continue;
        found++;
        for (size_t k = 0; k < TUTTI_LENGTH(cases); k++) {
            char spec[100], why[200];
            tutti_error err;
            trial t;
            tutti_status status;
            snprintf(spec, sizeof spec, "%s(%s)", m->name, cases[k].sizes);
            snprintf(why, sizeof why,
                     "method '%s': first_bucket_mb is 3 but bucket_mb is only 2; the first bucket may "
                     "not be the larger one",
                     m->name);
            t = trial_of(spec, "sgd(lr=0.001)", 1);
            status = trial_try(&t, 4, &err);
            trial_drop(&t);
            if (cases[k].fits && status != TUTTI_OK)
                fail_msg("%s: %s", spec, err.text);
            if (!cases[k].fits && (status != TUTTI_ERR_USAGE || strstr(err.text, why) == NULL))
                fail_msg("%s is not refused with a sentence on it", spec);
        }
        while (*c != NULL && strcmp(*c, "first_bucket_mb may not exceed bucket_mb") != 0)
            c++;
        if (*c == NULL)
            fail_msg("the constraints of %s do not say it", m->name);
    }
    assert_int_equal(found, 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(option_bounds_of_every_method_are_enforced),
                                        cmocka_unit_test(option_bounds_of_every_codec_are_enforced),
                                        cmocka_unit_test(options_without_effect_are_rejected),
                                        cmocka_unit_test(sizes_are_formatted_for_reading),
                                        cmocka_unit_test(first_bucket_must_not_exceed_the_bucket_size) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
