/* plan.c: `tutti plan`: predicts properties of a run before it is begun. Calls the subcommands
   (plan_*.c). */
#include <string.h>

#include "cli_internal.h"

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
    for (const tutti_command *p = tutti_cli_plans; p->name != NULL; p++) {
        char text[160];
        snprintf(text, sizeof text, "  tutti plan %s %s", p->name, p->arguments);
        tutti_cli_wrap(out, text, 30, p->help);
    }
    fprintf(out, "\n`tutti plan NAME --help` explains one.\n");
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
