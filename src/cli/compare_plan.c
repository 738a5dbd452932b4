/* compare_plan.c: makes, writes and reads the plan of a comparison. Each run is checked as
   `tutti train` would check it, so that a misspelt option is reported before anything runs. A
   combination that a method refuses is excluded and reported; it is an error if nothing remains of
   a method, a codec or a condition. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "compare_internal.h"
#include "base/settings.h"
#include "record/files.h"
#include "runtime/files.h"
#include "data/data.h"
#include "tutti/launch.h"
#include "tutti/method.h"
#include "base/options.h"
#include "collective/world.h"
#include "launch/launch.h"
#include "train/measured.h"

/* ---- one run ---- */

static const char *const ours[] = { "method", "codec", "seed",  "target",     "overwrite",
                                    "quiet",  "meet",  "trace", "trace-steps",
                                    "metrics-port" };

/* Refuses options that are lists here, or that belong to a single start, as options for all
   runs. */
static tutti_status refuse_ours(const tutti_cli_settings *s, bool of_plan, tutti_error *err)
{
    for (size_t i = 0; i < TUTTI_LENGTH(ours); i++)
        if (tutti_settings_origin(s->settings, ours[i], NULL) == TUTTI_FROM_FLAG)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "--%s is %s; `tutti %s --help` lists its options", ours[i],
                              i < 2     ? "a list here: --methods, --codecs"
                              : of_plan ? "none of a plan"
                              : i == 2  ? "a list here: --seeds"
                                        : "none of a comparison",
                              of_plan ? "plan" : "compare");
    return TUTTI_OK;
}

/* Sets an option of the optimizer in its spec. false: it has none of that name. */
static tutti_status tune_optimizer(tutti_cli_settings *s, const char *key, const char *value,
                                   bool *known, tutti_error *err)
{
    tutti_spec *spec;
    const tutti_optim_ops *ops;
    const tutti_option *option;
    char text[4096], what[80];
    void *self = NULL;
    tutti_status status = tutti_spec_open(&spec, s->config.optimizer, err);

    *known = false;
    ops = status == TUTTI_OK ? tutti_optim_find(tutti_spec_name(spec)) : NULL;
    option = ops != NULL ? tutti_option_find(ops->options, key) : NULL;
    if (option != NULL) {
        *known = true;
        snprintf(what, sizeof what, "--grid %s", key);
        self = tutti_alloc(1, ops->self_bytes);
        if (self == NULL)
            status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "reading an optimizer");
        if (status == TUTTI_OK)
            status = tutti_spec_apply(spec, "optimizer", ops->options, self, err);
        if (status == TUTTI_OK)
            status = tutti_option_set(option, what, value, self, err);
        if (status == TUTTI_OK) {
            tutti_spec_print(tutti_spec_name(spec), ops->options, self, text, sizeof text);
            status = tutti_settings_flag(s->settings, "optimizer", text, "--grid", err);
        }
    }
    tutti_free(self);
    tutti_spec_close(spec);
    return status;
}

static tutti_status set_all(tutti_cli_settings *s, json_t *point, const char *flag, bool tunes,
                            tutti_error *err)
{
    const char *key;
    json_t *value;

    json_object_foreach(point, key, value)
    {
        bool known = false;
        char what[96];
        if (tunes)
            TUTTI_TRY(tune_optimizer(s, key, json_string_value(value), &known, err));
        if (known)
            continue;
        for (size_t i = 0; i < TUTTI_LENGTH(ours); i++)
            if (strcmp(ours[i], key) == 0)
                return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                                  "--%s is of '%s', which has a flag of its own or none; `tutti "
                                  "compare --help` lists them",
                                  flag, key);
        snprintf(what, sizeof what, "--%s %.60s", flag, key);
        if (tutti_option_find(tutti_train_options, key) == NULL)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "there is no option '%s' of %strain for --%s; `tutti train --help "
                              "all` lists them",
                              key, tunes ? "the optimizer or of " : "", flag);
        TUTTI_TRY(tutti_settings_flag(s->settings, key, json_string_value(value), what, err));
    }
    return TUTTI_OK;
}

tutti_status tutti_compare_epoch(const tutti_train_config *c, tutti_runtime *rt, double *steps,
                                 tutti_error *err)
{
    char installed[4096];
    const char *const path = tutti_cli_installed(installed, sizeof installed, "data");
    tutti_data *data = NULL;

    TUTTI_TRY(tutti_data_given(tutti_data_open_spec(&data, rt, c->data, path, err), err));
    *steps = (double)tutti_data_shape_of(data)->samples[TUTTI_TRAIN] /
             (double)tutti_train_step_samples(c);
    tutti_data_close(data);
    return TUTTI_OK;
}

/* Sets ten evaluations and reports in a run, unless the user has set how many. */
static tutti_status set_evaluations(tutti_cli_settings *s, tutti_error *err)
{
    char every[32];
    const bool evaluates =
                   tutti_settings_origin(s->settings, "eval-every", NULL) == TUTTI_FROM_DEFAULT,
               reports =
                   tutti_settings_origin(s->settings, "report-every", NULL) == TUTTI_FROM_DEFAULT;
    double steps = (double)s->config.steps, epoch;

    if (!evaluates && !reports)
        return TUTTI_OK;
    if (steps == 0) {
        TUTTI_TRY(tutti_compare_epoch(&s->config, s->rt, &epoch, err));
        steps = (double)s->config.epochs * epoch;
    }
    snprintf(every, sizeof every, "%.0f", fmax(1, floor(steps / 10)));
    if (evaluates)
        TUTTI_TRY(tutti_settings_flag(s->settings, "eval-every", every, "a tenth of the run", err));
    return reports
               ? tutti_settings_flag(s->settings, "report-every", every, "a tenth of the run", err)
               : TUTTI_OK;
}

/* Sets the options of one run: its method, codec, seed, condition and point, over the defaults of
   the method. */
static tutti_status set_choice(tutti_cli_settings *s, const tutti_compare_choice *of, bool of_plan,
                               tutti_error *err)
{
    char seed[32];

    snprintf(seed, sizeof seed, "%lld", (long long)of->seed);
    TUTTI_TRY(tutti_settings_flag(s->settings, "method", of->method, "--methods", err));
    if (of->codec[0] != 0)
        TUTTI_TRY(tutti_settings_flag(s->settings, "codec", of->codec, "--codecs", err));
    TUTTI_TRY(tutti_settings_flag(s->settings, "seed", seed, "--seeds", err));
    TUTTI_TRY(set_all(s, of->condition, "vary", false, err));
    TUTTI_TRY(tutti_cli_method_defaults(s, err));
    /* an optimizer's options are those of the method's own, where it has one */
    TUTTI_TRY(set_all(s, of->point, "grid", true, err));
    if (!of_plan)
        TUTTI_TRY(set_evaluations(s, err));
    return TUTTI_OK;
}

static tutti_status refuse_hosts(const tutti_cli_settings *s, bool of_plan, tutti_error *err)
{
    if (s->config.hosts[0] == 0)
        return TUTTI_OK;
    return tutti_fail(
        err, TUTTI_ERR_USAGE, 0, "%s runs on this machine; omit the hosts, or simulate them: %s",
        of_plan ? "a plan" : "a comparison", of_plan ? "-n and --platform" : "--transport sim");
}

/* The options of `tutti train` for all runs. */
typedef struct typed_options { int argc; char **argv; bool of_plan; } typed_options;

/* Makes the command of one run, and refuses what `train` would refuse. user: typed_options. */
static tutti_status make_words(const void *user, const tutti_compare_choice *of, json_t **words,
                               tutti_error *err)
{
    const typed_options *t = user;
    const bool of_plan = t->of_plan;
    tutti_cli_settings s;
    int64_t threads = 0;
    tutti_status status = tutti_cli_read(&s, t->argc, t->argv, NULL, err);

    *words = NULL;
    if (status == TUTTI_OK)
        status = refuse_ours(&s, of_plan, err);
    if (status == TUTTI_OK)
        status = refuse_hosts(&s, of_plan, err);
    if (status == TUTTI_OK)
        status = set_choice(&s, of, of_plan, err);
    if (status == TUTTI_OK && s.config.transport[0] == 0)
        s.config.transport = "shm";
    if (status == TUTTI_OK)
        status = tutti_world_check(s.config.transport, err);
    if (status == TUTTI_OK && tutti_world_simulated(s.config.transport) && s.config.threads == 0)
        s.config.threads = 1;
    if (status == TUTTI_OK && !of_plan)
        status = tutti_measured_check(&s.config, false, err);
    threads = s.config.threads;
    s.config.target = s.config.resume = s.config.out = "";
    if (status == TUTTI_OK)
        status = tutti_train_check(&s.config, tutti_cores(), err);
    if (status == TUTTI_OK && !of_plan)
        status = tutti_cli_check_void(&s, false, err);
    if (of_plan) /* the command may be typed on another machine, whose cores it is to go by */
        s.config.threads = threads;
    if (status == TUTTI_OK)
        status = tutti_words_of(&s.config, words, err);
    tutti_cli_close(&s);
    return status;
}

/* ---- the plan ---- */

void tutti_compare_lists_drop(tutti_compare_lists *l)
{
    json_decref(l->methods);
    json_decref(l->codecs);
    json_decref(l->conditions);
    json_decref(l->points);
    json_decref(l->seeds);
}

static tutti_status check_specs(const char *kind, const json_t *list, tutti_error *err)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        TUTTI_TRY(tutti_compare_check_spec(kind, json_string_value(json_array_get(list, i)), false,
                                           NULL, err));
    return TUTTI_OK;
}

tutti_status tutti_compare_lists_read(tutti_compare_lists *l, const tutti_compare_config *c,
                                      tutti_error *err)
{
    tutti_compare_by by;
    bool accuracy;
    double value;

    TUTTI_TRY(tutti_compare_by_of(c->by, &by, err));
    TUTTI_TRY(tutti_compare_list("codecs", c->codecs[0] != 0 ? c->codecs : "none", ',', false,
                                 &l->codecs, err));
    TUTTI_TRY(tutti_compare_combine("vary", c->varies, ';', &l->conditions, err));
    TUTTI_TRY(tutti_compare_combine("grid", c->grids, ',', &l->points, err));
    TUTTI_TRY(tutti_compare_seeds(c->seeds, &l->seeds, err));
    return c->target[0] != 0 ? tutti_compare_target(c->target, &by, &accuracy, &value, err) : TUTTI_OK;
}

static tutti_status read_lists(tutti_compare_lists *l, const tutti_compare_config *c,
                               tutti_error *err)
{
    if (c->methods[0] == 0)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "nothing to compare; give --methods ddp,local-sgd (`tutti methods` lists them)");
    TUTTI_TRY(tutti_compare_list("methods", c->methods, ',', false, &l->methods, err));
    TUTTI_TRY(check_specs("method", l->methods, err));
    TUTTI_TRY(tutti_compare_lists_read(l, c, err));
    return check_specs("codec", l->codecs, err);
}

static const char *text_at(const json_t *list, size_t i)
{
    return json_string_value(json_array_get(list, i));
}

/* Refuses a plan in which all rows with one value of a member ("method", "codec", "condition") are
   excluded. */
static tutti_status check_left(const json_t *rows, const json_t *left_out, const char *member,
                               tutti_error *err)
{
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *value = json_object_get(json_array_get(rows, i), member);
        const char *why = NULL;
        bool some = false;
        for (size_t k = 0; k < json_array_size(rows); k++) {
            const json_t *out = NULL;
            if (!json_equal(json_object_get(json_array_get(rows, k), member), value))
                continue;
            for (size_t o = 0; o < json_array_size(left_out) && out == NULL; o++)
                if (json_integer_value(json_object_get(json_array_get(left_out, o), "row")) ==
                    (json_int_t)k)
                    out = json_array_get(left_out, o);
            some = some || out == NULL;
            why = out != NULL && why == NULL ? tutti_history_text(out, "why") : why;
        }
        if (!some)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0, "%s", why);
    }
    return TUTTI_OK;
}

/* Returns whether a row is among the combinations that are left out. */
static bool is_left_out(const json_t *out, size_t r)
{
    for (size_t o = 0; o < json_array_size(out); o++)
        if (json_integer_value(json_object_get(json_array_get(out, o), "row")) == (json_int_t)r)
            return true;
    return false;
}

/* Adds the rows and the excluded combinations to the plan; then the runs, in an order in which
   methods alternate. */
static tutti_status fill_rows(json_t *plan, const tutti_compare_lists *l,
                              const tutti_compare_maker *maker, tutti_error *err)
{
    json_t *rows = json_object_get(plan, "rows"), *out = json_object_get(plan, "left_out"),
           *runs = json_object_get(plan, "runs");
    const size_t n_methods = json_array_size(l->methods), n_codecs = json_array_size(l->codecs),
                 n_conditions = json_array_size(l->conditions),
                 n_rows = n_methods * n_codecs * n_conditions;
    const bool of_plan = maker->of_plan;
    char text[4096], name[32];

    for (int pass = 0; pass < 2; pass++)
        for (size_t s = 0; s < (pass == 0 ? 1 : json_array_size(l->seeds)); s++)
            for (size_t p = 0; p < (pass == 0 ? 1 : json_array_size(l->points)); p++)
                for (size_t r = 0; r < n_rows; r++) {
                    const char *codec = text_at(l->codecs, r / n_methods % n_codecs);
                    const tutti_compare_choice of = { .method = text_at(l->methods, r % n_methods),
                                        .codec = strcmp(codec, "none") == 0 ? "" : codec,
                                        .condition =
                                            json_array_get(l->conditions, r / n_methods / n_codecs),
                                        .point = json_array_get(l->points, p),
                                        .seed = json_integer_value(json_array_get(l->seeds, s)) };
                    json_t *words = NULL;
                    tutti_status status;
                    if (is_left_out(out, r))
                        continue;
                    status = maker->words(maker->user, &of, &words, err);
                    if (pass == 0) {
                        tutti_compare_point(of.condition, text, sizeof text);
                        json_array_append_new(rows,
                                              json_pack("{s:s, s:s, s:s}", "method", of.method,
                                                        "codec", of.codec, "condition", text));
                        if (status == TUTTI_ERR_USAGE && (n_rows > 1 || of_plan))
                            json_array_append_new(out, json_pack("{s:I, s:s}", "row", (json_int_t)r,
                                                                 "why", err->text));
                        else
                            TUTTI_TRY(status);
                        json_decref(words);
                        continue;
                    }
                    TUTTI_TRY(status);
                    snprintf(name, sizeof name, "%04zu", json_array_size(runs));
                    json_array_append_new(runs,
                                          json_pack("{s:s, s:I, s:I, s:I, s:o}", "name", name,
                                                    "row", (json_int_t)r, "point", (json_int_t)p,
                                                    "seed", of.seed, "words", words));
                }
    if (!of_plan) {
        TUTTI_TRY(check_left(rows, out, "method", err));
        TUTTI_TRY(check_left(rows, out, "codec", err));
        TUTTI_TRY(check_left(rows, out, "condition", err));
    }
    for (size_t p = 0; p < json_array_size(l->points); p++) {
        tutti_compare_point(json_array_get(l->points, p), text, sizeof text);
        json_array_append_new(json_object_get(plan, "points"), json_string(text));
    }
    return TUTTI_OK;
}

tutti_status tutti_compare_fill_plan(const tutti_compare_config *c, const tutti_compare_lists *l,
                                     const tutti_compare_maker *maker, json_t *typed, json_t **plan,
                                     tutti_error *err)
{
    char directory[4096];

    if ((double)json_array_size(l->methods) * (double)json_array_size(l->codecs) *
            (double)json_array_size(l->conditions) * (double)json_array_size(l->points) *
            (double)json_array_size(l->seeds) >
        TUTTI_COMPARE_RUNS_MOST)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "these lists make more than %d runs; shorten one",
                          TUTTI_COMPARE_RUNS_MOST);
    if (getcwd(directory, sizeof directory) == NULL)
        return tutti_fail(err, TUTTI_ERR_IO, errno, "finding the working directory");
    *plan = json_pack("{s:i, s:O, s:s, s:s, s:[], s:[], s:[], s:[]}", "version",
                      TUTTI_COMPARE_FORMAT, "command", typed, "directory", directory, "target",
                      c->target, "rows", "points", "left_out", "runs");
    if (c->by != NULL && c->by[0] != 0)
        json_object_set_new(*plan, "by", json_string(c->by));
    return *plan != NULL ? fill_rows(*plan, l, maker, err)
                         : tutti_fail(err, TUTTI_ERR_USAGE, 0,
                                      "the working directory's name is no text in UTF-8");
}

tutti_status tutti_compare_make_plan(const tutti_compare_config *c, int argc, char **argv,
                                     json_t *typed, json_t **plan, tutti_error *err)
{
    const typed_options options = { argc, argv, c->of_plan };
    const tutti_compare_maker maker = { make_words, &options, c->of_plan };
    tutti_compare_lists l = { 0 };
    tutti_status status = read_lists(&l, c, err);

    *plan = NULL;
    if (status == TUTTI_OK)
        status = tutti_compare_fill_plan(c, &l, &maker, typed, plan, err);
    tutti_compare_lists_drop(&l);
    return status;
}

/* ---- the file ---- */

tutti_status tutti_compare_write_plan(tutti_runtime *rt, const char *directory, const json_t *plan,
                                      tutti_error *err)
{
    char *text = json_dumps(plan, JSON_INDENT(1));
    tutti_status status =
        text != NULL ? tutti_record_write(rt, directory, "plan.json", text, strlen(text), err)
                     : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "writing plan.json");

    free(text);
    return status;
}

static bool all_strings(const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (!json_is_string(json_array_get(list, i)))
            return false;
    return true;
}

/* Checks a run of a file's plan: its row, its point, its name and its words. */
static bool is_run(const json_t *run, size_t rows, size_t points)
{
    const json_t *words = json_object_get(run, "words");
    const json_int_t row = json_integer_value(json_object_get(run, "row")),
                     point = json_integer_value(json_object_get(run, "point"));
    const char *name = tutti_history_text(run, "name");
    bool good = row >= 0 && row < (json_int_t)rows && point >= 0 && point < (json_int_t)points &&
                name[0] != 0 && name[strspn(name, "0123456789")] == 0 && strlen(name) < 16 &&
                json_array_size(words) >= 2;
    return good && all_strings(words);
}

/* Checks a file that may have been edited: everything that is used later without a check. */
static bool is_plan(const json_t *plan)
{
    const json_t *rows = json_object_get(plan, "rows"), *points = json_object_get(plan, "points"),
                 *runs = json_object_get(plan, "runs"), *out = json_object_get(plan, "left_out");
    bool good = json_is_string(json_object_get(plan, "directory")) &&
                json_is_string(json_object_get(plan, "target")) &&
                json_is_array(json_object_get(plan, "command")) && json_is_array(out) &&
                json_array_size(rows) > 0 && json_array_size(rows) <= TUTTI_COMPARE_RUNS_MOST &&
                json_array_size(points) > 0 && json_array_size(runs) <= TUTTI_COMPARE_RUNS_MOST;

    good = good && all_strings(json_object_get(plan, "command")) && all_strings(points) &&
           all_strings(json_object_get(plan, "script")) &&
           all_strings(json_object_get(plan, "options"));
    for (size_t i = 0; good && i < json_array_size(out); i++) {
        const json_int_t row = json_integer_value(json_object_get(json_array_get(out, i), "row"));
        good = row >= 0 && row < (json_int_t)json_array_size(rows);
    }
    for (size_t i = 0; good && i < json_array_size(runs); i++) {
        good = is_run(json_array_get(runs, i), json_array_size(rows), json_array_size(points));
    }
    return good;
}

tutti_status tutti_compare_read_plan(tutti_runtime *rt, const char *directory, json_t **plan,
                                     tutti_error *err)
{
    char path[4200], *text;
    json_error_t why;
    size_t bytes;
    json_int_t format;

    *plan = NULL;
    if (strlen(directory) > 3000)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "the directory's name has %zu bytes; at most 3000 are possible",
                          strlen(directory));
    snprintf(path, sizeof path, "%s/plan.json", directory);
    if (!tutti_file_exists(rt, path))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "%s holds no comparison: it has no plan.json; give the --out of `tutti "
                          "compare`",
                          directory);
    TUTTI_TRY(tutti_history_read(rt, path, &text, &bytes, err));
    *plan = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &why);
    tutti_free(text);
    if (*plan == NULL)
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0, "%s:%d: %s", path, why.line, why.text);
    format = json_integer_value(json_object_get(*plan, "version"));
    if (format == TUTTI_COMPARE_FORMAT && is_plan(*plan))
        return TUTTI_OK;
    json_decref(*plan);
    *plan = NULL;
    return format > TUTTI_COMPARE_FORMAT
               ? tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                            "%s is of a newer version of Tutti; continue with that", path)
               : tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                            "%s is no plan of a comparison, or was changed by hand", path);
}

void tutti_compare_label(const json_t *row, char *text, size_t bytes)
{
    const char *codec = tutti_history_text(row, "codec");

    snprintf(text, bytes, "%s%s%s", tutti_history_text(row, "method"),
             codec[0] != 0 ? " with " : "", codec);
}
