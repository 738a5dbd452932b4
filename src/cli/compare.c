/* compare.c: `tutti compare`: the same training, or the same script, by several methods.

     compare_plan.c     makes the plan: which runs there are, and their commands, each checked
                        before anything runs; writes DIR/plan.json
     compare_script.c   makes the plan where a script is compared, whose command is behind "--"
     compare_runs.c     runs each as a child process, `tutti train` with its words, in
                        DIR/runs/NAME. A run with a summary.json is not run again, so an
                        interrupted comparison continues. Methods alternate, so that a machine
                        that slows down slows down all of them
     compare_record.c   checks what the run of a script has left
     compare_findings.c reads the results: the best point of each row, ranges, the front
     compare_results.c  writes the tables, and compare_page.c the page, from the same cells

   gnuplot, a child process, draws the pictures (plot.c). No Python is used, since the user may not
   have it. Each run is a process of its own, also in simulation, so that a failure does not affect
   the others and its memory is freed. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "compare_internal.h"
#include "runtime/files.h"
#include "tutti/launch.h"
#include "base/options.h"
#include "launch/launch.h"

#define AT(member) TUTTI_AT(tutti_compare_config, member)
const tutti_option tutti_cli_compare_options[] = {
    { "methods", TUTTI_TEXT, AT(methods), 0, 0, 0, "",
      "methods with their options, by commas: ddp,local-sgd(8)" },
    { "codecs", TUTTI_TEXT, AT(codecs), 0, 0, 0, "",
      "codecs, by commas, each with every method; none: as they are; default: none alone" },
    { "vary", TUTTI_TEXT, AT(vary), 0, 0, 0, "",
      "conditions: an option of train and its values, by semicolons: 'slow=;0:5', 'n=4;16', "
      "'partition=iid;class(k=2)', 'platform=lan.xml;wan.xml'; several times: all combinations" },
    { "grid", TUTTI_TEXT, AT(grid), 0, 0, 0, "",
      "tuning, the same for each: an option of the optimizer, or of train, and its values, by "
      "commas: lr=0.02,0.05,0.1; several times: all combinations; the best one of each is "
      "compared" },
    { "seeds", TUTTI_TEXT, AT(seeds), 0, 0, 0, "3", "how many, from 0 on; or a list: 4,8,15" },
    { "target", TUTTI_TEXT, AT(target), 0, 0, 0, "",
      "accuracy=A or loss=L on the test set, up to which time and bytes are reported; runs "
      "continue beyond it; default: the highest whole percent that at least half of what is "
      "compared reaches with each seed" },
    { "by", TUTTI_TEXT, AT(by), 0, 0, 0, "",
      "figure of evaluations by which runs are compared: max:f1 or min:val/loss, as the script "
      "logs it, or test_loss, test_accuracy, test_auc, train_loss; the target is NAME=V then; "
      "default: loss and accuracy of the test, and the training loss where no run has a test" },
    { "out", TUTTI_TEXT, AT(out), 0, 0, 0, "compare", "directory of the comparison" },
    { "resume", TUTTI_TEXT, AT(resume), 0, 0, 0, "", "continue the comparison in that directory" },
    { "jobs", TUTTI_INT, AT(jobs), 0, 0, 256, NULL,
      "runs at a time; 0: of simulated ones as many as there are cores, within the memory; others "
      "go one by one" },
    { "timeout", TUTTI_REAL, AT(timeout), 0, 0, 1e7, NULL,
      "scripts: seconds after which a run is ended, and counts as failed; 0: no limit" },
    { "pictures", TUTTI_BOOL, AT(pictures), 1, 0, 1, NULL,
      "draw them, by gnuplot; off: a page with only tables" },
    { "quiet", TUTTI_BOOL, AT(quiet), 0, 0, 1, NULL, "print only the table and errors" },
    { 0 }
};

static void print_help(void)
{
    printf("tutti compare [FILE] --methods M,M [--OPTION VALUE ...] [--TRAIN-OPTION VALUE ...]\n"
           "tutti compare METHOD [METHOD ...] [--OPTION VALUE ...] [--RUN-OPTION VALUE ...] -- "
           "COMMAND ... {method} ... {seed}\n"
           "tutti compare --resume DIR [as before -- COMMAND ...]\n\n");
    tutti_cli_wrap(stdout, "", 0,
                   "Trains the same by several methods and compares them: loss and accuracy "
                   "against time, steps and bytes, time and bytes to a target with their ranges "
                   "over seeds, the workers' waiting, and which of them no other beats in both "
                   "time and bytes. All other options are those of `tutti train` and hold for "
                   "all.");
    putchar('\n');
    tutti_cli_wrap(stdout, "", 0,
                   "With -- it compares a script of your own, which records its run by tutti.torch "
                   "or as docs/COMPARE.md says. Each run is `tutti run` of the command, in whose "
                   "words {method}, {seed}, {codec} and the names of --grid and --vary are "
                   "replaced; {{ and }} are braces. All other options are those of `tutti run`.");
    printf("\n  option               type   default                    meaning\n");
    tutti_cli_print_options(stdout, tutti_cli_compare_options, true);
    putchar('\n');
    tutti_cli_wrap(stdout, "", 0,
                   "DIR receives table.txt, results.csv (a line each that is compared), runs.csv "
                   "(a line a run), compare.html, plan.json, and runs/ with what each run has "
                   "left.");
    printf("\nExamples:\n"
           "  tutti compare --methods ddp,local-sgd,ad-psgd --transport sim -n 16 --slow 0:5\n"
           "  tutti compare --methods ddp,d-psgd --codecs none,fp16 --grid lr=0.02,0.05,0.1 \\\n"
           "                --vary 'slow=;0:5' --transport sim -n 8 --target accuracy=0.9 --out "
           "grid\n"
           "  tutti compare ddp 'local-sgd(period=8)' --seeds 3 -n 4 -- \\\n"
           "                python train.py --method {method} --seed {seed}\n");
}

/* --grid and --vary may come several times. */
static tutti_status append_entry(void *user, const tutti_option *option, const char *value,
                                 tutti_error *err)
{
    tutti_compare_config *c = user;
    json_t *list = strcmp(option->name, "grid") == 0   ? c->grids
                   : strcmp(option->name, "vary") == 0 ? c->varies
                                                       : NULL;
    char what[80];

    snprintf(what, sizeof what, "--%s", option->name);
    if (list == NULL)
        return tutti_option_set(option, what, value, c, err);
    if (json_array_append_new(list, json_string(value)) != 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "%s is no text in UTF-8", what);
    return TUTTI_OK;
}

/* Reports a flag that neither this command nor train has. */
static tutti_status check_flags(int argc, char **argv, tutti_error *err)
{
    const char *names[160];
    size_t n = 0;
    char near[160];

    for (const tutti_option *o = tutti_cli_compare_options; o->name != NULL; o++)
        names[n++] = o->name;
    for (const tutti_option *o = tutti_train_options; o->name != NULL && n < TUTTI_LENGTH(names);
         o++)
        names[n++] = o->name;
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(argv[i], "="), argv[i]);
        if (strncmp(name, "--", 2) != 0 ||
            tutti_option_find(tutti_train_options, name + 2) != NULL ||
            tutti_cli_known_elsewhere(name + 2) != NULL)
            continue;
        tutti_suggest(name + 2, names, n, near, sizeof near);
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "there is no option '%s'%s; `tutti compare --help` lists its own, `tutti "
                          "train --help all` the others",
                          name, near);
    }
    return TUTTI_OK;
}

/* ---- resuming ---- */

/* Is word k of a run's a flag of train's, with its value in the next word? */
static const tutti_option *flag_of(const json_t *words, size_t k)
{
    const char *flag = json_string_value(json_array_get(words, k));
    const size_t dashes = strspn(flag, "-");

    if (k + 1 >= json_array_size(words) || dashes != (strlen(flag + dashes) == 1 ? 1 : 2))
        return NULL;
    return tutti_option_find(tutti_train_options, flag + dashes);
}

/* Calls `each` for each value of the plan that reaches beyond the folder (folder.c), until a call
   returns true. Returns whether one did. */
static bool any_reach(const json_t *plan,
                      bool (*each)(void *user, const tutti_option *o, const char *value,
                                   const tutti_option *by),
                      void *user)
{
    const json_t *runs = json_object_get(plan, "runs");

    for (size_t i = 0; i < json_array_size(runs); i++) {
        const json_t *words = json_object_get(json_array_get(runs, i), "words");
        for (size_t k = 2; k < json_array_size(words); k += 2) {
            const tutti_option *o = flag_of(words, k);
            const char *value = json_string_value(json_array_get(words, k + 1));
            const tutti_option *by = o != NULL ? tutti_cli_reach(o, value) : NULL;
            if (by != NULL && each(user, o, value, by))
                return true;
        }
    }
    return false;
}

/* A flag in addition to --resume DIR, with its value in the same word or in the next one. */
typedef struct typed_again {
    int argc;
    char **argv;
    tutti_error *err;
    char name[64];
    const char *value;
} typed_again;

/* Returns the index of the next argument. */
static int read_again(typed_again *t, int at)
{
    const char *word = t->argv[at], *equals = strchr(word, '=');

    snprintf(t->name, sizeof t->name, "%.*s", (int)strcspn(word, "="), word);
    t->value = equals != NULL ? equals + 1 : at + 1 < t->argc ? t->argv[at + 1] : "";
    return equals != NULL ? at + 1 : at + 2;
}

static bool is_that(void *user, const tutti_option *o, const char *value, const tutti_option *by)
{
    const typed_again *t = user;

    (void)by;
    return strncmp(t->name, "--", 2) == 0 && strcmp(t->name + 2, o->name) == 0 &&
           strcmp(t->value, value) == 0;
}

static bool not_given(void *user, const tutti_option *o, const char *value, const tutti_option *by)
{
    typed_again *t = user;

    for (int i = 1; i < t->argc;) {
        i = read_again(t, i);
        if (is_that(t, o, value, by))
            return false;
    }
    tutti_fail(t->err, TUTTI_ERR_USAGE, 0,
               "plan.json has %s '%.300s'%s%s%s %s; such a value counts only when it is given "
               "again, behind --resume: --%s '%.300s'",
               o->name, value, by != o ? ", whose '" : "", by != o ? by->name : "",
               by != o ? "'" : ", which", by->reach, o->name, value);
    return true;
}

/* Checks a plan that is resumed, and the flags with it, which may only repeat those of the plan. A
   plan may come from a stranger, so its runs must be `tutti train` with flags and values, and
   values that reach beyond the folder must be given again. */
static tutti_status check_resumed(const tutti_compare_config *c, const json_t *plan, int argc,
                                  char **argv, tutti_error *err)
{
    const json_t *runs = json_object_get(plan, "runs");
    typed_again typed = { .argc = argc, .argv = argv, .err = err };

    for (size_t i = 0; i < json_array_size(runs); i++) {
        const json_t *words = json_object_get(json_array_get(runs, i), "words");
        bool good = strcmp(json_string_value(json_array_get(words, 0)), "tutti") == 0 &&
                    strcmp(json_string_value(json_array_get(words, 1)), "train") == 0;
        for (size_t k = 2; good && k < json_array_size(words); k += 2)
            good = flag_of(words, k) != NULL;
        if (!good)
            return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                              "run %s of %s/plan.json is no `tutti train` with flags and their "
                              "values; the plan was changed by hand: start again with another "
                              "--out",
                              tutti_history_text(json_array_get(runs, i), "name"), c->resume);
    }
    for (int i = 1; i < argc;) {
        const int at = i;
        i = read_again(&typed, i);
        if (!any_reach(plan, is_that, &typed))
            return tutti_fail(
                err, TUTTI_ERR_USAGE, 0,
                "--resume continues a comparison as it was planned, and '%.80s' would change it; "
                "give another --out for another comparison",
                argv[at]);
    }
    if (c->methods[0] != 0 || c->codecs[0] != 0 || c->target[0] != 0 || c->by[0] != 0 ||
        strcmp(c->seeds, "3") != 0 || strcmp(c->out, "compare") != 0 ||
        json_array_size(c->grids) + json_array_size(c->varies) > 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "--resume continues a comparison as it was planned, and 'what is "
                          "compared' would change it; give another --out for another comparison");
    return any_reach(plan, not_given, &typed) ? TUTTI_ERR_USAGE : TUTTI_OK;
}

typedef struct passed { const char *flags[64]; const char *values[64]; size_t n; } passed;

static bool tell_once(void *user, const tutti_option *o, const char *value, const tutti_option *by)
{
    passed *t = user;

    (void)by;
    for (size_t i = 0; i < t->n; i++)
        if (strcmp(t->flags[i], o->name) == 0 && strcmp(t->values[i], value) == 0)
            return false;
    if (t->n == TUTTI_LENGTH(t->flags))
        return true;
    t->flags[t->n] = o->name;
    t->values[t->n++] = value;
    fprintf(stderr, " --%s ", o->name);
    tutti_word_print(stderr, value);
    return false;
}

/* The flags of train in the command line, and all of it as it was typed. */
typedef struct asked {
    int argc;
    char **argv;
    json_t *typed;
} asked;

/* Checks a plan of a script that is resumed: the same words have to be there again. */
static tutti_status check_script(const tutti_compare_config *c, const json_t *plan,
                                 const asked *of, bool given, tutti_error *err)
{
    json_t *again = NULL;
    tutti_status status =
        given ? tutti_compare_script_plan(c, of->argc, of->argv, of->typed, &again, err) : TUTTI_OK;

    if (status == TUTTI_OK)
        status = tutti_compare_script_again(plan, again, c->resume, err);
    json_decref(again);
    return status;
}

static tutti_status plan_it(const tutti_compare_config *c, tutti_runtime *rt, const asked *of,
                            json_t **plan, tutti_error *err)
{
    char path[4200];

    const bool script = tutti_compare_script_at(of->argc, of->argv) < of->argc;

    if (c->timeout > 0 && !script)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "--timeout is for scripts, whose command is behind --; leave it out");
    if (c->resume[0] != 0) {
        TUTTI_TRY(tutti_compare_read_plan(rt, c->resume, plan, err));
        if (json_object_get(*plan, "script") != NULL)
            return check_script(c, *plan, of, script, err);
        if (script)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "%.3000s holds a comparison of `tutti train`; leave the command "
                              "behind -- out",
                              c->resume);
        return check_resumed(c, *plan, of->argc, of->argv, err);
    }
    if (!script)
        TUTTI_TRY(check_flags(of->argc, of->argv, err));
    if (strlen(c->out) == 0 || strlen(c->out) > 3000)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "the name of --out has %zu bytes; give one of 1 to 3000", strlen(c->out));
    snprintf(path, sizeof path, "%s/plan.json", c->out);
    if (tutti_file_exists(rt, path))
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "%s holds a comparison; continue it (tutti compare --resume %s), or give another --out",
            c->out, c->out);
    snprintf(path, sizeof path, "%s/runs", c->out);
    if (script && tutti_file_exists(rt, path))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "%s holds runs of a comparison whose plan.json is gone; give another "
                          "--out, or remove it",
                          c->out);
    return script ? tutti_compare_script_plan(c, of->argc, of->argv, of->typed, plan, err)
                  : tutti_compare_make_plan(c, of->argc, of->argv, of->typed, plan, err);
}

static tutti_status compare(const tutti_compare_config *c, tutti_runtime *rt, const asked *of,
                            int *code, tutti_error *err)
{
    const char *const directory = c->resume[0] != 0 ? c->resume : c->out;
    tutti_launch_claim *claim = NULL;
    json_t *plan = NULL;
    int failed = 0, stopped = 0;
    tutti_status status = c->pictures ? tutti_plot_check(err) : TUTTI_OK;

    if (status == TUTTI_OK)
        status = plan_it(c, rt, of, &plan, err);
    if (status == TUTTI_OK)
        status = tutti_launch_claim_open(&claim, rt, directory, err);
    if (status == TUTTI_OK && c->resume[0] == 0)
        status = tutti_compare_write_plan(rt, directory, plan, err);
    if (status == TUTTI_OK)
        status = tutti_compare_run_all(
            rt,
            &(tutti_compare_runs){ directory, plan, (int)c->jobs, c->quiet, NULL, c->timeout },
            &failed, &stopped, err);
    if (status == TUTTI_OK && stopped != 0) {
        fprintf(stderr, "tutti: stopped by signal %d (SIG%s); to continue: ", stopped,
                tutti_launch_signal_name(stopped));
        if (json_object_get(plan, "script") != NULL)
            tutti_compare_script_resume(stderr, plan, directory);
        else {
            fputs("tutti compare --resume ", stderr);
            tutti_word_print(stderr, directory);
            any_reach(plan, tell_once, &(passed){ .n = 0 });
        }
        putc('\n', stderr);
        *code = 128 + stopped;
    } else if (status == TUTTI_OK) {
        status = tutti_compare_results(rt, directory, plan, c->pictures, err);
        *code = failed > 0 ? EXIT_TRAINING : EXIT_DONE;
        if (status == TUTTI_OK && failed > 0)
            fprintf(stderr, "tutti: %d of %zu runs have failed; the table gives the reasons\n",
                    failed, json_array_size(json_object_get(plan, "runs")));
    }
    json_decref(plan);
    tutti_launch_claim_close(claim);
    return status;
}

int tutti_cli_compare(int argc, char **argv)
{
    tutti_error err = { .rank = -1 };
    tutti_compare_config c = { .grids = json_array(), .varies = json_array() };
    tutti_runtime *rt = NULL;
    json_t *typed = json_array();
    bool help = false;
    int code = EXIT_DONE;
    tutti_status status = tutti_runtime_open_posix(&rt, &err);

    json_array_append_new(typed, json_string("tutti"));
    for (int i = 0; i < argc; i++)
        if (json_array_append_new(typed, json_string(argv[i])) != 0 && status == TUTTI_OK)
            status = tutti_fail(&err, TUTTI_ERR_USAGE, 0, "argument %d is no text in UTF-8", i);
    tutti_options_default(tutti_cli_compare_options, &c);
    if (status == TUTTI_OK)
        status =
            tutti_cli_take_flags(&(tutti_flag_table){ tutti_cli_compare_options, append_entry, &c },
                                 &argc, argv, &help, &err);
    if (status == TUTTI_OK && help)
        print_help();
    else if (status == TUTTI_OK) {
        tutti_cli_keep_running();
        status = compare(&c, rt, &(asked){ argc, argv, typed }, &code, &err);
    }
    if (status != TUTTI_OK)
        code = tutti_cli_fail(&err);
    json_decref(c.grids);
    json_decref(c.varies);
    json_decref(typed);
    tutti_runtime_close(rt);
    return code;
}
