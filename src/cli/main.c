/* main.c: the table of commands, and main(), which calls one of them. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "cli_internal.h"
#include "base/errors.h"
#include "tutti/launch.h"
#include "launch/launch.h"

static const tutti_command commands[] = {
    { "train",
      "[FILE] [--OPTION VALUE ...]",
      "train a network with several workers",
      tutti_cli_train,
      { tutti_train_options } },
    { "join",
      "OUT|PASS|ADDRESS [--key FILE] [-- COMMAND]",
      "take part in a run that is under way, as one more worker (train or run --workers)",
      tutti_cli_join,
      { tutti_cli_join_options } },
    { "leave",
      "OUT|PASS|ADDRESS [RANK] [--key FILE]",
      "have a worker leave a run that is under way, or list the workers (train or run --workers)",
      tutti_cli_dismiss,
      { tutti_cli_leave_options } },
    { "eval",
      "RUN [--data DATA]",
      "loss, accuracy, perplexity of a run's model on a data set",
      tutti_cli_eval,
      { tutti_cli_eval_options },
      .computes = true },
    { "predict",
      "RUN FILE...",
      "which classes a run's model sees in pictures",
      tutti_cli_predict,
      { tutti_cli_predict_options },
      .computes = true },
    { "generate",
      "RUN --prompt TEXT",
      "a text continued by a run's language model",
      tutti_cli_generate,
      { tutti_cli_generate_options },
      .computes = true },
    { "run",
      "-n N|-H HOSTS [...] -- COMMAND",
      "start any command as the workers of a run",
      tutti_cli_run,
      { tutti_cli_run_options } },
    { "methods", "[NAME] [--json]", "catalogue of training methods with their options",
      tutti_cli_methods },
    { "codecs", "[NAME] [--json]", "what gradients may travel as, with options (train --codec)",
      tutti_cli_codecs },
    { "transports", "[NAME] [--json]", "what carries messages, with options (train --transport)",
      tutti_cli_transports },
    { "config",
      "[FILE] [--explain] [--OPTION VALUE ...]",
      "the configuration that `train` would use; --explain: and where each value comes from",
      tutti_cli_config,
      { tutti_train_options } },
    { "plan",
      "[memory|stages] [--OPTION VALUE ...]",
      "before a run: how fast methods would be, what one would take, which worker gets which "
      "layers",
      tutti_cli_plan,
      { tutti_cli_plan_options, tutti_train_options },
      tutti_cli_plans },
    { "topology", "[SPEC] [-n N]",
      "graphs of gossip methods: which workers average, weights, spectral gap",
      tutti_cli_topology },
    { "data", "list|inspect|verify|partition|bpe|tokens|clicks [...]",
      "data sets: what is known, what is in one, parts of one; encodings, token files, click logs",
      tutti_cli_data },
    { "bench",
      "allreduce|step|io|kernels|codec [...]",
      "measure, with ratios to peers and to what the machine can do",
      tutti_cli_bench,
      { NULL },
      tutti_cli_benchmarks },
    { "compare",
      "--methods M,M [--OPTION VALUE ...]",
      "the same training by several methods: one table, one page",
      tutti_cli_compare,
      { tutti_cli_compare_options, tutti_train_options } },
    { "report",
      "DIR",
      "a page of a run: curves, where the time went, bytes, events",
      tutti_cli_report,
      { tutti_cli_report_options } },
    { "why",
      "PID|DIR [--json]",
      "what each rank of a run that hangs is in, and who holds it up",
      tutti_cli_why,
      { tutti_cli_why_options } },
    { "check", "DIR|FILE", "read a run's checkpoints, or weights, and check every hash",
      tutti_cli_check },
    { "convert",
      "FROM TO [--max-shard-size SIZE]",
      "a run's model, or weights, as one safetensors file or a folder of them for others",
      tutti_cli_convert,
      { tutti_cli_convert_options },
      .computes = true },
    { "doctor",
      "[--json] [--python FILE]",
      "what works here, what does not, and what mends it: for reports of bugs, too",
      tutti_cli_doctor,
      { tutti_cli_doctor_options } },
    { "platform", "SPEC > FILE.xml", "write a cluster for simulated runs", tutti_cli_platform },
    { "key", "[FILE]", "make the key that ranks share where no launcher of ours does it",
      tutti_cli_key },
    { "completion", "bash|zsh", "the script by which a shell completes what is typed",
      tutti_cli_completion },
    { "complete", "WORD...", NULL, tutti_cli_complete }, /* what that script asks */
    { "man", "[COMMAND]", NULL, tutti_cli_man }, /* what the build asks, for pages of the manual */
    { "agent", "", NULL,
      tutti_cli_agent }, /* what `train -H` starts on each host; nothing for people */
    { "version", "", "versions of Tutti and of what it runs on", tutti_cli_version },
    { 0 }
};

static void print_commands(FILE *out)
{
    char text[160];

    snprintf(text, sizeof text,
             "Tutti %s: trains neural networks on many workers and spends as little time as "
             "possible waiting for them.",
             tutti_version());
    tutti_cli_wrap(out, "", 0, text);
    putc('\n', out);
    for (const tutti_command *c = commands; c->name != NULL; c++) {
        if (c->help == NULL)
            continue;
        snprintf(text, sizeof text, "  tutti %s %s", c->name, c->arguments);
        text[strlen(text) - (c->arguments[0] == 0)] = 0;
        tutti_cli_wrap(out, text, 30, c->help);
    }
    putc('\n', out);
    tutti_cli_wrap(
        out, "", 0,
        "`tutti help COMMAND` explains one. Exit codes: 0 done, 1 training failed, 2 bad usage or "
        "configuration, 3 a worker was lost and the method could not continue, 128 + signal when "
        "stopped by one.");
}

/* Opens /dev/null for each standard stream that the calling process has closed (>&-). Otherwise the
   next file that is opened would get its number, and messages for the user would be written into
   it. */
static void open_closed_streams(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF &&
            open("/dev/null", O_RDWR) != fd) /* the lowest free number */
            _exit(EXIT_TRAINING); /* without /dev/null, and without a place to say so */
}

/* Returns the exit code of a command that has ended; EXIT_TRAINING if its output was not
   written. */
static int reported(int code)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return code;
    fprintf(stderr, "tutti: cannot write all of it to standard output (%s)\n", tutti_errno_text(errno));
    return code != 0 ? code : EXIT_TRAINING;
}

static int no_such_command(const char *name)
{
    const char *names[32];
    size_t n = 0;
    char near[128];

    for (const tutti_command *c = commands; c->name != NULL && n < TUTTI_LENGTH(names); c++)
        if (c->help != NULL)
            names[n++] = c->name;
    tutti_suggest(name, names, n, near, sizeof near);
    fprintf(stderr, "tutti: there is no command '%s'%s; `tutti --help` lists them\n", name, near);
    return EXIT_USAGE;
}

/* Runs `tutti help COMMAND [MORE]` as `tutti COMMAND [MORE] --help`; `tutti help train all` as
   `tutti train --help all`. */
static int help(int argc, char **argv)
{
    const tutti_command *c = commands;
    const bool more = argc > 1, all = more && strcmp(argv[1], "all") == 0;
    char flag[] = "--help";
    char *words[] = { argv[0], more && !all ? argv[1] : flag,
                      all    ? argv[1]
                      : more ? flag
                             : NULL,
                      NULL };

    while (c->name != NULL && (c->help == NULL || strcmp(c->name, argv[0]) != 0))
        c++;
    if (c->name == NULL)
        return no_such_command(argv[0]);
    if (argc > 2)
        return tutti_cli_usage(c->name, "`tutti help` takes a command and at most one word more");
    return reported(c->run(argc + 1, words));
}

static int run_command(const tutti_command *c, int argc, char **argv)
{
    tutti_runtime *rt;
    tutti_error err;

    if (c->computes && tutti_runtime_open_posix(&rt, &err) == TUTTI_OK) {
        tutti_launch_patient(rt, argv);
        tutti_runtime_close(rt);
    }
    return reported(c->run(argc - 1, argv + 1));
}

int main(int argc, char **argv)
{
    tutti_commands = commands;
    open_closed_streams();
    if (argc > 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0))
        return help(argc - 2, argv + 2);
    if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        strcmp(argv[1], "help") == 0) {
        print_commands(argc < 2 ? stderr : stdout);
        return argc < 2 ? EXIT_USAGE : EXIT_DONE;
    }
    if (strcmp(argv[1], "--version") == 0)
        return tutti_cli_version(argc - 1, argv + 1);
    for (const tutti_command *c = commands; c->name != NULL; c++)
        if (strcmp(argv[1], c->name) == 0)
            return run_command(c, argc, argv);
    return no_such_command(argv[1]);
}
