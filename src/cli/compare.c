/* compare.c: `tutti compare`: the same work by several methods.

   C does all but the pictures:
     compare_plan.c     the lists become a plan: which runs there are, and their commands, each
                        checked before anything runs; DIR/plan.json
     compare_runs.c     each run is a child, `tutti train` with its words, into DIR/runs/NAME; what
                        has a whole summary.json is not run again, so a comparison that was cut off
                        goes on. Methods take turns: a machine that slows down slows down all
     compare_findings.c reads the runs back: the best point of each row, ranges, the front
     compare_results.c  writes table and CSV files, and compare_page.c the page, from the same cells
   gnuplot, a child, draws the pictures (plot.c). Nothing is written by Python, which the user of
   the command may not have. A run is a process of its own, also under sim: one that fails fails
   alone, and its memory is given back. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "compare_internal.h"
#include "tutti/launch.h"

#define AT(member) TUTTI_AT(tutti_compare_config, member)
const tutti_option tutti_cli_compare_options[] = {
    { "methods", TUTTI_TEXT, AT(methods), 0, 0, 0, "", "methods with their options, by commas: ddp,local-sgd(8)" },
    { "codecs", TUTTI_TEXT, AT(codecs), 0, 0, 0, "",
      "codecs, by commas, each with every method; none: as they are; default: none alone" },
    { "vary", TUTTI_TEXT, AT(vary), 0, 0, 0, "",
      "conditions: an option of train and its values, by semicolons: 'slow=;0:5', 'n=4;16', "
      "'partition=iid;class(k=2)', 'platform=lan.xml;wan.xml'; several times: all combinations" },
    { "grid", TUTTI_TEXT, AT(grid), 0, 0, 0, "",
      "tuning, the same for each: an option of the optimizer, or of train, and its values, by commas: "
      "lr=0.02,0.05,0.1; several times: all combinations; the best one of each is compared" },
    { "seeds", TUTTI_TEXT, AT(seeds), 0, 0, 0, "3", "how many, from 0 on; or a list: 4,8,15" },
    { "target", TUTTI_TEXT, AT(target), 0, 0, 0, "",
      "accuracy=A or loss=L on the test set, to which time and bytes are told; runs go on beyond it; "
      "default: the highest whole percent that at least half of what is compared reaches with each seed" },
    { "out", TUTTI_TEXT, AT(out), 0, 0, 0, "compare", "directory of the comparison" },
    { "resume", TUTTI_TEXT, AT(resume), 0, 0, 0, "", "go on with the comparison in that directory" },
    { "jobs", TUTTI_INT, AT(jobs), 0, 0, 256, NULL,
      "runs at a time; 0: of simulated ones as many as there are cores, within the memory; others go one by one" },
    { "pictures", TUTTI_BOOL, AT(pictures), 1, 0, 1, NULL, "draw them, by gnuplot; off: a page with tables alone" },
    { "quiet", TUTTI_BOOL, AT(quiet), 0, 0, 1, NULL, "say nothing but the table and errors" },
    { 0 }
};

static void print_help(void)
{
    printf("tutti compare [FILE] --methods M,M [--OPTION VALUE ...] [--TRAIN-OPTION VALUE ...]\n"
           "tutti compare --resume DIR\n\n");
    tutti_cli_wrap(
        stdout, "", 0,
        "Trains the same by several methods and compares them: loss and accuracy against time, steps and bytes, "
        "time and bytes to a target with their ranges over seeds, the workers' waiting, and which of them no "
        "other beats in both time and bytes. All other options are those of `tutti train` and hold for all.");
    printf("\n  option               type   default                    meaning\n");
    tutti_cli_print_options(stdout, tutti_cli_compare_options, true);
    putchar('\n');
    tutti_cli_wrap(stdout, "", 0,
                   "DIR receives table.txt, results.csv (a line each that is compared), runs.csv (a line a run), "
                   "compare.html, plan.json, and runs/ with what each run has left.");
    printf("\nExamples:\n"
           "  tutti compare --methods ddp,local-sgd,ad-psgd --transport sim -n 16 --slow 0:5\n"
           "  tutti compare --methods ddp,d-psgd --codecs none,fp16 --grid lr=0.02,0.05,0.1 \\\n"
           "                --vary 'slow=;0:5' --transport sim -n 8 --target accuracy=0.9 --out grid\n");
}

/* --grid and --vary may come several times. */
static tutti_status take(void *user, const tutti_option *option, const char *value, tutti_error *err)
{
    tutti_compare_config *c = user;
    json_t *list = strcmp(option->name, "grid") == 0 ? c->grids : strcmp(option->name, "vary") == 0 ? c->varies : NULL;
    char what[80];

    snprintf(what, sizeof what, "--%s", option->name);
    if (list == NULL)
        return tutti_option_set(option, what, value, c, err);
    if (json_array_append_new(list, json_string(value)) != 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "%s is no text in UTF-8", what);
    return TUTTI_OK;
}

/* A flag that neither this command nor train has. */
static tutti_status check_flags(int argc, char **argv, tutti_error *err)
{
    const char *names[160];
    size_t n = 0;
    char near[160];

    for (const tutti_option *o = tutti_cli_compare_options; o->name != NULL; o++)
        names[n++] = o->name;
    for (const tutti_option *o = tutti_train_options; o->name != NULL && n < TUTTI_LENGTH(names); o++)
        names[n++] = o->name;
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(argv[i], "="), argv[i]);
        if (strncmp(name, "--", 2) != 0 || tutti_option_find(tutti_train_options, name + 2) != NULL ||
            tutti_cli_known_elsewhere(name + 2) != NULL)
            continue;
        tutti_suggest(name + 2, names, n, near, sizeof near);
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "there is no option '%s'%s; `tutti compare --help` lists its own, "
                          "`tutti train --help all` the others",
                          name, near);
    }
    return TUTTI_OK;
}

/* The flags of a comparison that goes on are those of its plan. */
static tutti_status check_resumed(const tutti_compare_config *c, int argc, char **argv, tutti_error *err)
{
    if (argc > 1 || c->methods[0] != 0 || c->codecs[0] != 0 || c->target[0] != 0 || strcmp(c->seeds, "3") != 0 ||
        strcmp(c->out, "compare") != 0 || json_array_size(c->grids) + json_array_size(c->varies) > 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "--resume goes on with a comparison as it was planned, and '%.80s' would change it; "
                          "give another --out for another comparison",
                          argc > 1 ? argv[1] : "what is compared");
    return TUTTI_OK;
}

static tutti_status plan_it(const tutti_compare_config *c, tutti_runtime *rt, int argc, char **argv, json_t *typed,
                            json_t **plan, tutti_error *err)
{
    char path[4200];

    if (c->resume[0] != 0) {
        TUTTI_TRY(check_resumed(c, argc, argv, err));
        return tutti_compare_read_plan(rt, c->resume, plan, err);
    }
    TUTTI_TRY(check_flags(argc, argv, err));
    if (strlen(c->out) == 0 || strlen(c->out) > 3000)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "the name of --out has %zu bytes; give one of 1 to 3000",
                          strlen(c->out));
    snprintf(path, sizeof path, "%s/plan.json", c->out);
    if (tutti_file_exists(rt, path))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "%s holds a comparison; go on with it (tutti compare --resume %s), or give another --out",
                          c->out, c->out);
    return tutti_compare_make_plan(c, argc, argv, typed, plan, err);
}

static tutti_status compare(const tutti_compare_config *c, tutti_runtime *rt, int argc, char **argv, json_t *typed,
                            int *code, tutti_error *err)
{
    const char *const directory = c->resume[0] != 0 ? c->resume : c->out;
    tutti_launch_claim *claim = NULL;
    json_t *plan = NULL;
    int failed = 0, stopped = 0;
    tutti_status status = c->pictures ? tutti_plot_check(err) : TUTTI_OK;

    if (status == TUTTI_OK)
        status = plan_it(c, rt, argc, argv, typed, &plan, err);
    if (status == TUTTI_OK)
        status = tutti_launch_claim_open(&claim, rt, directory, err);
    if (status == TUTTI_OK && c->resume[0] == 0)
        status = tutti_compare_write_plan(rt, directory, plan, err);
    if (status == TUTTI_OK)
        status = tutti_compare_run_all(rt, directory, plan, (int)c->jobs, c->quiet, NULL, &failed, &stopped, err);
    if (status == TUTTI_OK && stopped != 0) {
        fprintf(stderr, "tutti: stopped by signal %d (SIG%s); to go on: tutti compare --resume ", stopped,
                sigabbrev_np(stopped));
        tutti_word_print(stderr, directory);
        putc('\n', stderr);
        *code = 128 + stopped;
    } else if (status == TUTTI_OK) {
        status = tutti_compare_results(rt, directory, plan, c->pictures, err);
        *code = failed > 0 ? EXIT_TRAINING : EXIT_DONE;
        if (status == TUTTI_OK && failed > 0)
            fprintf(stderr, "tutti: %d of %zu runs have failed; the table says why\n", failed,
                    json_array_size(json_object_get(plan, "runs")));
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
        status = tutti_cli_take_flags(tutti_cli_compare_options, &argc, argv, take, &c, &help, &err);
    if (status == TUTTI_OK && help)
        print_help();
    else if (status == TUTTI_OK) {
        tutti_cli_keep_running();
        status = compare(&c, rt, argc, argv, typed, &code, &err);
    }
    if (status != TUTTI_OK)
        code = tutti_cli_fail(&err);
    json_decref(c.grids);
    json_decref(c.varies);
    json_decref(typed);
    tutti_runtime_close(rt);
    return code;
}
