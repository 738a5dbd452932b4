/* plan_methods.c: `tutti plan`: predicts how fast each method would be in a run.

   Nothing is computed by a formula. Each method trains for some steps in the simulator, with its
   own code and messages, in a child process (compare_runs.c). The hosts and links come from a
   platform file; without one this machine is measured (plan_measure.c). The table is made from the
   figures of the runs (plan_findings.c). */
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench_internal.h"
#include "base/settings.h"
#include "plan_internal.h"
#include "record/files.h"
#include "runtime/files.h"
#include "tutti/launch.h"
#include "tutti/method.h"
#include "collective/world.h"
#include "launch/launch.h"
#include "method/registry.h"

typedef struct plan_config {
    const char *methods, *codecs, *platform, *slow, *out;
    double step_time, minutes;
    int64_t over, jobs;
    bool profile, json, quiet;
} plan_config;
#define AT(member) TUTTI_AT(plan_config, member)
const tutti_option tutti_cli_plan_options[] = {
    { "methods", TUTTI_TEXT, AT(methods), 0, 0, 0, "",
      "with their options, by commas: ddp,local-sgd(8); default: all" },
    { "codecs", TUTTI_TEXT, AT(codecs), 0, 0, 0, "",
      "by commas, each with every method that takes one; none: as they are; default: none alone" },
    { "platform", TUTTI_TEXT, AT(platform), 0, 0, 0, "",
      "hosts and links, a file as of `tutti platform`; default: this machine, which is measured" },
    { "step-time", TUTTI_REAL, AT(step_time), 0, 0, 1e9, NULL,
      "seconds of a pass over a worker's batch; 0: as measured, or by the speed of the platform's "
      "hosts" },
    { "profile", TUTTI_BOOL, AT(profile), 0, 0, 1, NULL,
      "with a platform: measure here what a pass takes, instead of going by the speed of its "
      "hosts" },
    { "slow", TUTTI_TEXT, AT(slow), 0, 0, 0, "",
      "workers that compute slower, 3:5,7:2, as of `tutti train`" },
    { "over", TUTTI_INT, AT(over), 24, 1, 100000, NULL,
      "steps to simulate of each method, at least: of one that sends in some steps only, whole "
      "periods; behind those in which it settles, if these are at most ten times as many" },
    { "minutes", TUTTI_REAL, AT(minutes), 10, 0.01, 10000, NULL,
      "for all simulations; methods that are not simulated by then are listed" },
    { "jobs", TUTTI_INT, AT(jobs), 0, 0, 256, NULL,
      "simulations at a time; 0: as many as cores, within the memory" },
    { "out", TUTTI_TEXT, AT(out), 0, 0, 0, "",
      "directory that keeps plan.json and the simulated runs; default: none" },
    { "json", TUTTI_BOOL, AT(json), 0, 0, 1, NULL, "as JSON; docs/PLAN.md has its members" },
    { "quiet", TUTTI_BOOL, AT(quiet), 0, 0, 1, NULL, "print only the table and errors" },
    { 0 }
};

static void print_help(void)
{
    printf(
        "tutti plan [--OPTION VALUE ...] [--TRAIN-OPTION VALUE ...]\n"
        "tutti plan SCRIPT.py [--OPTION VALUE ...] [--TRAIN-OPTION VALUE ...] [-- ARGUMENTS]\n\n");
    tutti_cli_wrap(
        stdout, "", 0,
        "How fast methods would be in a run, before it starts. Each trains for some simulated "
        "steps, with its own code and messages. They are listed by the time of a step, which is "
        "not the time to an accuracy (the plan begins with the comparison that measures that), "
        "with the share of it in which workers wait, memory, what is sent, what is known of their "
        "effect on training, a reason and the command. Those that cannot do this run are listed "
        "with the reason. All other options are those of `tutti train`. --model 'measured(file=F)' "
        "is a network of a script, by its shapes and times, as tutti.plan of Python measures it. "
        "SCRIPT.py is run by Python, as one process with ARGUMENTS, until some of its passes are "
        "timed; these are planned with.");
    printf("\n  option               type   default                    meaning\n");
    tutti_cli_print_options(stdout, tutti_cli_plan_options, true);
    printf(
        "\nExamples:\n"
        "  tutti plan --model cnn -n 4\n"
        "  tutti platform 'cluster(n=16,rate=1Gbps)' > lan.xml\n"
        "  tutti plan --model mlp -n 16 --platform lan.xml --step-time 0.01 --slow 3:5 --methods "
        "ddp,ad-psgd,powersgd\n"
        "  tutti plan --model 'measured(file=net.json)' -n 16 --platform lan.xml\n"
        "\n`tutti plan memory --help`: what one method would take of memory and wire.\n"
        "`tutti plan stages --help`: layers to types of resources, so that a run costs least.\n");
}

tutti_status tutti_plan_of(const tutti_plan_flags *flags, const char *methods, const char *codecs,
                           json_t **plan, tutti_error *err)
{
    tutti_compare_config c = {
        .methods = methods, .codecs = codecs, .seeds = "1", .target = "", .by = "", .of_plan = true
    };
    json_t *typed = json_array();
    const char **words;
    int n = 0;
    tutti_status status;

    while (flags->more != NULL && flags->more[n] != NULL)
        n++;
    *plan = NULL;
    c.grids = json_array();
    c.varies = json_array();
    words = tutti_alloc((size_t)(flags->argc + n) + 1, sizeof *words);
    if (words != NULL && typed != NULL && c.grids != NULL && c.varies != NULL) {
        for (int i = 0; i < flags->argc; i++)
            words[i] = flags->argv[i];
        for (int i = 0; i < n; i++)
            words[flags->argc + i] = flags->more[i];
        status = tutti_compare_make_plan(&c, flags->argc + n, (char **)(uintptr_t)words, typed,
                                         plan, err);
    } else
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "reading the options of a plan");
    tutti_free(words);
    json_decref(c.grids);
    json_decref(c.varies);
    json_decref(typed);
    return status;
}

/* Lists all methods that train with several workers, the default. */
static char *all_methods(void)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);

    for (size_t i = 0; out != NULL && tutti_methods[i] != NULL; i++)
        if (strcmp(tutti_methods[i]->family, "baseline") != 0)
            fprintf(out, "%s%s", ftell(out) > 0 ? "," : "", tutti_methods[i]->name);
    if (out != NULL)
        fclose(out);
    return text;
}

typedef struct work {
    const plan_config *config;
    const tutti_train_config *run;
    tutti_runtime *rt;
    int argc;
    char **argv; /* flags of `tutti train` */
    const char *directory;
    const char *methods;
    bool optimizer; /* was given */
    tutti_measured_model *known; /* the model, if it is a measured one; else NULL */
    int signal;
} work;

/* Appends a row of ddp with shares by speed, the simplest remedy for unequal workers, to a plan
   that has ddp and several workers with even shares. Not of a script, which has its own batches. */
static tutti_status add_shares(const work *w, const char **more, size_t n, json_t *plan,
                               tutti_error *err)
{
    json_t *rows = json_object_get(plan, "rows"), *runs = json_object_get(plan, "runs"),
           *other = NULL;
    const json_t *out;
    const json_int_t at = (json_int_t)json_array_size(rows);
    bool is_there = false, whole = true;
    char name[32];

    for (size_t i = 0; i < json_array_size(rows); i++)
        is_there =
            is_there || strcmp(tutti_history_text(json_array_get(rows, i), "method"), "ddp") == 0;
    if (!is_there || w->known != NULL || w->run->n < 2 || strcmp(w->run->batch_share, "even") != 0)
        return TUTTI_OK;
    more[n++] = "--batch-share";
    more[n++] = "auto";
    more[n] = NULL;
    TUTTI_TRY(tutti_plan_of(&(tutti_plan_flags){ w->argc, w->argv, more }, "ddp", "", &other, err));
    whole = json_array_append_new(rows, json_pack("{s:s, s:s, s:s}", "method", "ddp", "codec", "",
                                                  "condition", "batch-share=auto")) == 0;
    out = json_array_get(json_object_get(other, "left_out"), 0);
    if (out != NULL)
        whole = json_array_append_new(json_object_get(plan, "left_out"),
                                      json_pack("{s:I, s:s}", "row", at, "why",
                                                tutti_history_text(out, "why"))) == 0 &&
                whole;
    for (size_t i = 0; i < json_array_size(json_object_get(other, "runs")) && whole; i++) {
        json_t *run = json_array_get(json_object_get(other, "runs"), i);
        snprintf(name, sizeof name, "%04zu", json_array_size(runs));
        whole = json_object_set_new(run, "row", json_integer(at)) == 0 &&
                json_object_set_new(run, "name", json_string(name)) == 0 &&
                json_array_append(runs, run) == 0;
    }
    json_decref(other);
    return whole ? TUTTI_OK : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for the plan");
}

static void set_word(json_t *words, const char *flag, uint64_t value)
{
    char text[24];

    snprintf(text, sizeof text, "%llu", (unsigned long long)value);
    for (size_t i = 0; i + 1 < json_array_size(words); i++)
        if (strcmp(json_string_value(json_array_get(words, i)), flag) == 0)
            json_array_set_new(words, i + 1, json_string(text));
}

static void put_number(json_t *run, const char *name, uint64_t number)
{
    char text[24];

    snprintf(text, sizeof text, "%llu", (unsigned long long)number);
    json_object_set_new(run, name, json_string(text));
}

/* Makes a run long enough to have --over steps or more, in whole periods (tutti_method_repeats),
   after the first ones that differ (tutti_method_settles). epoch: its steps. With logical shares a
   step of the run may be a round of several (`local`). */
static void lengthen(const work *w, const json_t *row, uint64_t epoch, json_t *run)
{
    const char *method = tutti_history_text(row, "method");
    tutti_train_config of = *w->run;
    const uint64_t over = (uint64_t)w->config->over, most = TUTTI_PLAN_LOOKS * over;
    const uint64_t repeats = tutti_method_repeats(method);
    uint64_t local, steps = tutti_plan_whole(over, repeats), settles = 0, settled, before;

    of.method = method;
    local = (uint64_t)(tutti_train_passes(&of) / of.accumulate);
    steps = (steps + local - 1) / local * local;
    do { /* of a share of the run, which is longer then */
        before = settles;
        settles = tutti_method_settles(method, before + steps, epoch);
    } while (settles > before && settles <= most);
    if (strcmp(tutti_history_text(row, "condition"), "batch-share=auto") == 0)
        settles = settles > TUTTI_SHARES_SETTLE ? settles : TUTTI_SHARES_SETTLE;
    settled = settles <= most ? settles : 0;
    set_word(json_object_get(run, "words"), "--steps", (settled + steps) / local);
    if (settled > 0)
        set_word(json_object_get(run, "words"), "--report-every", settled);
    put_number(run, "settled", settled);
    put_number(run, "settles", settles);
    put_number(run, "steps", steps);
    put_number(run, "repeats", repeats);
}

/* Makes all runs long enough. */
static tutti_status look_long_enough(const work *w, json_t *plan, tutti_error *err)
{
    const json_t *rows = json_object_get(plan, "rows");
    double epoch;
    json_t *run;
    size_t i;

    TUTTI_TRY(tutti_compare_epoch(w->run, w->rt, &epoch, err));
    json_array_foreach(json_object_get(plan, "runs"), i, run)
    {
        lengthen(w, json_array_get(rows, tutti_compare_index(run, "row")), (uint64_t)ceil(epoch),
                 run);
    }
    return TUTTI_OK;
}

/* Makes the plan of the runs that the user would start. Called before measuring, so that runs that
   would be refused are not measured. */
static tutti_status list_asked(const work *w, json_t **asked, tutti_error *err)
{
    const plan_config *c = w->config;
    const char *more[12];
    char pass[32];
    const json_t *left_out;
    size_t n = 0;

    snprintf(pass, sizeof pass, "%.9g", c->step_time);
    if (tutti_world_simulated(w->run->transport)) { /* there the conditions are the run's own */
        const char *const flags[][2] = { { "--platform", c->platform },
                                         { "--slow", c->slow },
                                         { "--step-time", pass } };
        for (size_t i = 0; i < TUTTI_LENGTH(flags); i++)
            if (flags[i][1][0] != 0 && (i < 2 || c->step_time > 0)) {
                more[n++] = flags[i][0];
                more[n++] = flags[i][1];
            }
    }
    more[n] = NULL;
    TUTTI_TRY(tutti_plan_of(&(tutti_plan_flags){ w->argc, w->argv, more }, w->methods, c->codecs,
                            asked, err));
    TUTTI_TRY(add_shares(w, more, n, *asked, err));
    left_out = json_object_get(*asked, "left_out");
    if (json_array_size(left_out) < json_array_size(json_object_get(*asked, "rows")))
        return TUTTI_OK;
    return tutti_fail(err, TUTTI_ERR_USAGE, 0, "%s",
                      tutti_history_text(json_array_get(left_out, 0), "why"));
}

static tutti_status simulate(work *w, const tutti_measured *m, json_t **plan, bool **cut,
                             tutti_error *err)
{
    const plan_config *c = w->config;
    char over[24], pass[32], path[4200];
    const char *more[32] = { "--steps",        over,         "--eval-every",       "0",
                             "--report-every", "1000000000", "--checkpoint-every", "0",
                             "--final-eval",   "off",        "--threads",          "1" };
    size_t n = 12;
    int failed;

    snprintf(over, sizeof over, "%lld", (long long)c->over);
    snprintf(pass, sizeof pass, "%.9g",
             c->step_time > 0 || m == NULL || w->known != NULL ? c->step_time
             : m->platform[0] == 0                             ? m->pass_seconds + m->update_seconds
                                                               : m->pass_seconds);
    snprintf(path, sizeof path, "%s", c->platform);
    if (m != NULL && m->platform[0] != 0)
        snprintf(path, sizeof path, "%s/platform.xml", w->directory);
    if (!tutti_world_simulated(w->run->transport)) {
        more[n++] = "--transport";
        more[n++] = "sim";
    }
    if (path[0] != 0) {
        more[n++] = "--platform";
        more[n++] = path;
    }
    if (c->slow[0] != 0) {
        more[n++] = "--slow";
        more[n++] = c->slow;
    }
    more[n++] = "--step-time";
    more[n++] = pass;
    more[n] = NULL;
    TUTTI_TRY(tutti_plan_of(&(tutti_plan_flags){ w->argc, w->argv, more }, w->methods, c->codecs,
                            plan, err));
    TUTTI_TRY(add_shares(w, more, n, *plan, err));
    TUTTI_TRY(look_long_enough(w, *plan, err));
    *cut = tutti_alloc(json_array_size(json_object_get(*plan, "runs")) + 1, sizeof **cut);
    if (*cut == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for the plan");
    return tutti_compare_run_all(
        w->rt,
        &(tutti_compare_runs){ w->directory, *plan, (int)c->jobs, c->quiet || c->json,
                               &(tutti_compare_limit){ c->minutes * 60, *cut } },
        &failed, &w->signal, err);
}

static tutti_status show(const work *w, const tutti_plan_findings *f, tutti_error *err)
{
    json_t *o = tutti_plan_json(f);
    char *text = o != NULL ? json_dumps(o, JSON_INDENT(2) | JSON_REAL_PRECISION(15)) : NULL;
    tutti_status status =
        text != NULL ? TUTTI_OK : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "showing a plan");

    if (status == TUTTI_OK && w->config->out[0] != 0)
        status = tutti_record_write(w->rt, w->directory, "plan.json", text, strlen(text), err);
    if (status == TUTTI_OK &&
        f->n == 0) /* none has an answer: the first one's reason is the message */
        status = tutti_fail(err, TUTTI_ERR_USAGE, 0, "no method was simulated; %s: %s",
                            tutti_history_text(json_array_get(f->refused, 0), "method"),
                            tutti_history_text(json_array_get(f->refused, 0), "why"));
    if (status == TUTTI_OK && w->config->json)
        puts(text);
    else if (status == TUTTI_OK)
        status = tutti_plan_print(f, err);
    free(text);
    json_decref(o);
    return status;
}

static tutti_status plan_it(work *w, tutti_error *err)
{
    const plan_config *c = w->config;
    const bool links = c->platform[0] == 0 && !tutti_world_simulated(w->run->transport),
               measures = links || (c->profile && c->step_time == 0);
    json_t *asked = NULL, *simulated = NULL;
    tutti_measured m = { 0 };
    bool *cut = NULL;
    tutti_status status = list_asked(w, &asked, err);

    if (status == TUTTI_OK && measures)
        status = tutti_plan_measure(&m,
                                    &(tutti_plan_measurement){ w->rt, w->run, w->argc, w->argv,
                                                               w->directory, &w->signal, w->known },
                                    links, err);
    if (status == TUTTI_OK && w->signal == 0)
        status = simulate(w, measures ? &m : NULL, &simulated, &cut, err);
    if (status == TUTTI_OK && w->signal == 0) {
        tutti_plan_findings f = { .config = w->run,
                                  .measured = measures ? &m : NULL,
                                  .platform = c->platform,
                                  .slow = c->slow,
                                  .step_time = c->step_time,
                                  .script = w->known == NULL           ? NULL
                                            : w->known->module[0] != 0 ? w->known->module
                                                                       : w->run->model,
                                  .optimizer = w->optimizer,
                                  .over = c->over };
        status = tutti_plan_find(
            &f, w->rt, &(tutti_plan_simulated){ asked, simulated, w->directory, cut }, err);
        if (status == TUTTI_OK)
            status = show(w, &f, err);
        tutti_plan_drop(&f);
    }
    tutti_free(cut);
    json_decref(asked);
    json_decref(simulated);
    return status;
}

/* Makes the plan in --out, or in a temporary folder, which is removed at the end. */
static tutti_status plan_somewhere(work *w, tutti_error *err)
{
    const char *const out = w->config->out, *const temporary = getenv("TMPDIR");
    tutti_bench_folder folder = { .made = false };
    tutti_launch_claim *claim = NULL;
    char path[4200];
    tutti_status status;

    if (out[0] != 0) {
        if (strlen(out) > 3000)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "the name of --out has %zu bytes; give one of at most 3000",
                              strlen(out));
        snprintf(path, sizeof path, "%s/runs", out);
        if (access(path, F_OK) == 0)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0, "%s holds runs already; give another --out",
                              out);
        TUTTI_TRY(tutti_launch_claim_open(&claim, w->rt, out, err));
        w->directory = out;
        status = plan_it(w, err);
        tutti_launch_claim_close(claim);
        return status;
    }
    TUTTI_TRY(tutti_bench_folder_make(
        &folder, temporary != NULL && temporary[0] != 0 ? temporary : "/tmp", err));
    sigprocmask(SIG_SETMASK, &folder.mask, NULL); /* the runs receive the signals, and end */
    w->directory = folder.path;
    status = plan_it(w, err);
    tutti_bench_folder_remove(&folder);
    return status;
}

/* Checks settings once that each of the methods would otherwise report. */
static tutti_status check_cluster(const plan_config *c, const tutti_train_config *run,
                                  tutti_runtime *rt, tutti_error *err)
{
    if (c->platform[0] != 0 && !tutti_file_exists(rt, c->platform))
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "there is no platform file '%.200s'; `tutti platform SPEC > FILE` makes one",
            c->platform);
    if (run->hosts[0] != 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "hosts is '%.200s', and a plan is made on this machine alone; give -n, "
                          "and their network as --platform",
                          run->hosts);
    if (c->profile && tutti_world_simulated(run->transport))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "profile measures passes of a real run, and the transport is '%.80s'; "
                          "leave it out, or give --platform with a transport of this machine",
                          run->transport);
    if (c->profile && tutti_measured_named(run->model))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "profile measures passes here, and model '%.120s' has its own times; "
                          "leave profile out",
                          run->model);
    return tutti_world_check(c->platform[0] != 0 ? "sim" : run->transport, err);
}

int tutti_cli_plan_methods(int argc, char **argv)
{
    tutti_error err = { .rank = -1 };
    plan_config c = { 0 };
    tutti_cli_settings s = { 0 };
    work w = { .config = &c };
    char *all = NULL;
    bool help = false;
    tutti_status status = TUTTI_OK;

    tutti_options_default(tutti_cli_plan_options, &c);
    status = tutti_cli_take_flags(&(tutti_flag_table){ tutti_cli_plan_options, NULL, &c }, &argc,
                                  argv, &help, &err);
    if (status == TUTTI_OK && help)
        print_help();
    else if (status == TUTTI_OK) {
        tutti_cli_keep_running();
        status = tutti_cli_read(&s, argc, argv, NULL, &err);
        if (status == TUTTI_OK && s.config.transport[0] == 0)
            s.config.transport = "shm";
        if (status == TUTTI_OK)
            status = check_cluster(&c, &s.config, s.rt, &err);
        if (status == TUTTI_OK && tutti_measured_named(s.config.model))
            status = tutti_measured_open(&w.known, s.rt, s.config.model, &err);
        all = all_methods();
        if (status == TUTTI_OK && all == NULL)
            status = tutti_fail(&err, TUTTI_ERR_MEMORY, ENOMEM, "listing the methods");
        w.run = &s.config;
        w.optimizer = status == TUTTI_OK &&
                      tutti_settings_origin(s.settings, "optimizer", NULL) != TUTTI_FROM_DEFAULT;
        w.rt = s.rt;
        w.argc = argc;
        w.argv = argv;
        w.methods = c.methods[0] != 0 ? c.methods : all;
        if (status == TUTTI_OK)
            status = plan_somewhere(&w, &err);
    }
    free(all);
    tutti_measured_close(w.known);
    tutti_cli_close(&s);
    if (w.signal != 0) {
        fprintf(stderr, "tutti: stopped by signal %d (SIG%s), before there was a plan\n", w.signal,
                tutti_launch_signal_name(w.signal));
        return 128 + w.signal;
    }
    return status == TUTTI_OK ? EXIT_DONE : tutti_cli_fail(&err);
}
