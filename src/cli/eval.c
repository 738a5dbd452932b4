/* eval.c: `tutti eval RUN`: evaluates the model of a run or of a checkpoint on a data set. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli_internal.h"
#include "tutti/launch.h"
#include "train/trained.h"
#include "launch/launch.h"

typedef struct eval_config {
    const char *data, *logits;
    int split;
    int64_t samples, threads;
    bool json;
} eval_config;
#define AT(member) TUTTI_AT(eval_config, member)
const tutti_option tutti_cli_eval_options[] = {
    { "data", TUTTI_TEXT, AT(data), 0, 0, 0, "",
      "as `tutti train` takes it; none: what the run was trained on" },
    { "split", TUTTI_CHOICE, AT(split), 0, 0, 0, "test|train|all", "which samples of it" },
    { "samples", TUTTI_INT, AT(samples), 0, 0, 1e15, NULL,
      "how many of them, from the first; 0: all" },
    { "logits", TUTTI_TEXT, AT(logits), 0, 0, 0, "",
      "write what the model gives for each sample, and the labels, to this safetensors file" },
    { "threads", TUTTI_INT, AT(threads), 0, 0, 1024, NULL,
      "compute threads; 0: as many as there are cores" },
    { "json", TUTTI_BOOL, AT(json), 0, 0, 1, NULL, "print one JSON object" },
    { 0 }
};

tutti_status tutti_cli_one_run(const char *command, int argc, char **argv,
                               const tutti_option *options, const char **run, tutti_error *err)
{
    const char *names[32];
    size_t n = 0;
    char near[120];

    *run = argc > 1 ? argv[1] : NULL;
    for (const tutti_option *o = options; o->name != NULL && n < TUTTI_LENGTH(names); o++)
        names[n++] = o->name;
    for (int i = 1; i < argc; i++)
        if (argv[i][0] == '-' && argv[i][1] != 0) {
            tutti_suggest(argv[i] + strspn(argv[i], "-"), names, n, near, sizeof near);
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "there is no option '%.80s'%s; `tutti %s --help` lists them", argv[i],
                              near, command);
        }
    if (argc < 2)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "which run? give its directory, the --out of `tutti train`");
    return TUTTI_OK;
}

static json_t *json_number(double value, bool known)
{
    return known && isfinite(value) ? json_real(value) : json_null();
}

static tutti_status print_json(const tutti_trained *t, const eval_config *c,
                               const tutti_evaluation *e, tutti_error *err)
{
    static const char *const splits[] = { "test", "train", "all" };
    const tutti_trained_facts *f = tutti_trained_facts_of(t);
    json_t *o = json_object();
    char *text;

    json_object_set_new(o, "weights", json_string(tutti_trained_weights(t)));
    json_object_set_new(o, "model", json_string(f->model));
    json_object_set_new(o, "params", json_integer((json_int_t)tutti_trained_parameters(t)));
    json_object_set_new(o, "data", json_string(c->data[0] != 0 ? c->data : f->data));
    json_object_set_new(o, "split", json_string(splits[c->split]));
    json_object_set_new(o, "samples", json_integer((json_int_t)e->samples));
    json_object_set_new(o, "loss", json_number(e->loss, true));
    json_object_set_new(o, "accuracy", json_number(e->accuracy, e->accuracy >= 0));
    json_object_set_new(o, "perplexity", json_number(exp(e->loss), e->tokens));
    json_object_set_new(o, "auc", json_number(e->auc, e->auc >= 0));
    text = json_dumps(o, JSON_INDENT(2) | JSON_REAL_PRECISION(12));
    json_decref(o);
    if (text == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "printing the evaluation");
    puts(text);
    free(text);
    return TUTTI_OK;
}

static void print_plain(const tutti_trained *t, const eval_config *c, const tutti_evaluation *e)
{
    static const char *const splits[] = { "test set", "training set", "all of it" };
    const tutti_trained_facts *f = tutti_trained_facts_of(t);

    printf("%s: %s, %zu parameters\n%s, %s: %llu samples\n", tutti_trained_weights(t), f->model,
           tutti_trained_parameters(t), c->data[0] != 0 ? c->data : f->data, splits[c->split],
           (unsigned long long)e->samples);
    printf("  loss        %.6g\n  accuracy    %.6g\n", e->loss, e->accuracy);
    if (e->tokens)
        printf("  perplexity  %.6g\n", exp(e->loss));
    if (e->auc >= 0)
        printf("  AUC         %.6g\n", e->auc);
    if (c->logits[0] != 0)
        printf("  logits      %s\n", c->logits);
}

static tutti_status evaluate(const char *run, const eval_config *c, tutti_error *err)
{
    static const tutti_trained_split splits[] = { TUTTI_SPLIT_TEST, TUTTI_SPLIT_TRAIN,
                                                  TUTTI_SPLIT_ALL };
    tutti_runtime *rt;
    tutti_trained *t = NULL;
    tutti_evaluation e;
    char installed[4096];
    tutti_status status = tutti_runtime_open_posix(&rt, err);

    if (status == TUTTI_OK)
        status =
            tutti_trained_open(&t, rt, run, c->threads > 0 ? (int)c->threads : tutti_cores(), err);
    if (status == TUTTI_OK)
        status = tutti_trained_evaluate(t, c->data[0] != 0 ? c->data : NULL,
                                        tutti_cli_installed(installed, sizeof installed, "data"),
                                        splits[c->split], (uint64_t)c->samples,
                                        c->logits[0] != 0 ? c->logits : NULL, &e, err);
    if (status == TUTTI_OK && c->json)
        status = print_json(t, c, &e, err);
    else if (status == TUTTI_OK)
        print_plain(t, c, &e);
    tutti_trained_close(t);
    tutti_runtime_close(rt);
    return status;
}

static void print_help(void)
{
    printf("tutti eval RUN [--data DATA] [--split test|train|all] [--samples N] [--logits FILE] "
           "[--threads T] [--json]\n\n");
    tutti_cli_wrap(stdout, "", 0,
                   "Loss, accuracy and, of texts, perplexity of the model that RUN has left: the "
                   "directory of a run (its model.safetensors, else its newest checkpoint), one "
                   "checkpoint, or a safetensors file in a run's directory. Images are normalised "
                   "as those of the run were.");
    printf("\n  option               type   default                    meaning\n");
    tutti_cli_print_options(stdout, tutti_cli_eval_options, true);
}

int tutti_cli_eval(int argc, char **argv)
{
    tutti_error err = { .rank = -1 };
    eval_config c;
    const char *run = NULL;
    bool help = false;
    tutti_status status;

    tutti_options_default(tutti_cli_eval_options, &c);
    status = tutti_cli_take_flags(&(tutti_flag_table){ tutti_cli_eval_options, NULL, &c }, &argc,
                                  argv, &help, &err);
    if (status == TUTTI_OK && help) {
        print_help();
        return EXIT_DONE;
    }
    if (status == TUTTI_OK)
        status = tutti_cli_one_run("eval", argc, argv, tutti_cli_eval_options, &run, &err);
    if (status == TUTTI_OK && argc > 2)
        status = tutti_fail(&err, TUTTI_ERR_USAGE, 0, "two runs, '%.80s' and '%.80s'; give one",
                            argv[1], argv[2]);
    if (status == TUTTI_OK)
        status = evaluate(run, &c, &err);
    return status == TUTTI_OK ? EXIT_DONE : tutti_cli_fail(&err);
}
