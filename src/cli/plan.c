/* plan.c: `tutti plan`: predicts properties of a run before it is begun. Calls the subcommands
   (plan_*.c). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli_internal.h"
#include "base/errors.h"

const tutti_command tutti_cli_plans[] = {
    { "memory",
      "[FILE] [--OPTION VALUE ...]",
      "bytes of values, gradients, states, activations and buffers on each rank, and what a step "
      "sends",
      tutti_cli_plan_memory,
      { tutti_train_options } },
    { "stages", "--resources FILE [--OPTION VALUE ...]",
      "layers to types of resources and numbers of units, so that a run costs least above a floor "
      "of examples a second",
      tutti_cli_plan_stages },
    { 0 }
};

static void print_plans(FILE *out)
{
    fprintf(out, "tutti plan: what a run would be like, with the arguments of `tutti train`\n\n");
    tutti_cli_wrap(
        out, "  tutti plan --OPTION VALUE ...", 30,
        "how fast methods would be, with reasons and commands; `tutti plan --help` explains it");
    tutti_cli_wrap(out, "  tutti plan SCRIPT.py [--OPTION VALUE ...] [-- ARGUMENTS]", 30,
                   "the same for a script that trains with PyTorch: its first passes are timed");
    for (const tutti_command *p = tutti_cli_plans; p->name != NULL; p++) {
        char text[160];
        snprintf(text, sizeof text, "  tutti plan %s %s", p->name, p->arguments);
        tutti_cli_wrap(out, text, 30, p->help);
    }
    fprintf(out, "\n`tutti plan NAME --help` explains one.\n");
}

/* Is it the name of a script of Python? */
static bool is_script(const char *word)
{
    const size_t n = strlen(word);

    return n > 3 && strcmp(word + n - 3, ".py") == 0;
}

/* Becomes Python, which times the script's passes and runs this program for the plan of them
   (python/tutti/torch/_script.py). argv[1]: the script. Returns where there is no Python. */
static int plan_script(int argc, char **argv)
{
    const char *const home = getenv("VIRTUAL_ENV");
    const bool in_home = home != NULL && home[0] != 0;
    char self[4096], python[4096];
    const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    const char **words = tutti_alloc((size_t)argc + 4, sizeof *words);
    int cause;

    if (length <= 0 || words == NULL) {
        tutti_free(words);
        return tutti_cli_usage("plan", "the script '%.200s' cannot be run", argv[1]);
    }
    self[length] = 0;
    snprintf(python, sizeof python, "%s%s", in_home ? home : "python3",
             in_home ? "/bin/python" : "");
    words[0] = python;
    words[1] = "-m";
    words[2] = "tutti.torch._script";
    words[3] = self;
    for (int i = 1; i < argc; i++)
        words[3 + i] = argv[i];
    execvp(python, (char *const *)(uintptr_t)words); /* exec changes none of them */
    cause = errno;
    tutti_free(words);
    return tutti_cli_usage("plan", "a script is run by '%.200s', which cannot be started (%s)",
                           python, tutti_errno_text(cause));
}

int tutti_cli_plan(int argc, char **argv)
{
    const char *names[TUTTI_LENGTH(tutti_cli_plans)];
    size_t n = 0;
    char near[128];

    if (argc < 2) {
        print_plans(stderr);
        return EXIT_USAGE;
    }
    if (is_script(argv[1]))
        return plan_script(argc, argv);
    if (argv[1][0] == '-')
        return tutti_cli_plan_methods(argc, argv);
    for (const tutti_command *p = tutti_cli_plans; p->name != NULL; p++) {
        if (strcmp(p->name, argv[1]) == 0)
            return p->run(argc - 1, argv + 1);
        names[n++] = p->name;
    }
    tutti_suggest(argv[1], names, n, near, sizeof near);
    return tutti_cli_usage("plan", "there is no plan of '%s'%s", argv[1], near);
}
