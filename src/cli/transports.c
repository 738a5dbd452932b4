/* transports.c: `tutti transports`: lists and explains the transports, from their registry. */
#include <string.h>

#include "cli_internal.h"
#include "tutti/transport.h"
#include "transport/registry.h"

/* Lists the built-in transports, then the plug-ins of this installation. */
static const tutti_transport_ops *transport(size_t i)
{
    static const char *const plugins[] = { "mpi", "sim" };
    size_t built_in = 0;

    while (tutti_transports[built_in] != NULL)
        if (built_in++ == i)
            return tutti_transports[i];
    for (size_t k = 0, at = built_in; k < TUTTI_LENGTH(plugins); k++) {
        const tutti_transport_ops *ops;
        if (tutti_transport_load(plugins[k], &ops, NULL, 0, NULL) == TUTTI_OK && at++ == i)
            return ops;
    }
    return NULL;
}

static const char *transport_name(size_t i)
{
    return transport(i) != NULL ? transport(i)->name : NULL;
}

static const char *transport_group(size_t i)
{
    return tutti_transport_find(transport_name(i)) != NULL ? "built-in" : "plug-in";
}

static const char *group_title(const char *group)
{
    return strcmp(group, "built-in") == 0 ? "Built in" : "Plug-ins that are installed";
}

static json_t *transport_json(size_t i)
{
    const tutti_transport_ops *ops = transport(i);
    json_t *options = json_array();

    for (const tutti_option *o = ops->options; o != NULL && o->name != NULL; o++)
        json_array_append_new(options, tutti_cli_option_json(o));
    return json_pack("{s:s, s:s, s:s, s:b, s:b, s:o}", "name", ops->name, "help", ops->help, "kind",
                     transport_group(i), "survives_losses", ops->events != NULL, "simulated",
                     ops->simulated, "options", options);
}

static void print_one(size_t i)
{
    const tutti_transport_ops *ops = transport(i);

    printf("%s: %s\n  %s; %s\n", ops->name, ops->help,
           strcmp(transport_group(i), "built-in") == 0 ? "built in" : "a plug-in",
           ops->events != NULL ? "a run can continue after the loss of a worker"
                               : "the loss of a worker ends the run");
    if (ops->options != NULL && ops->options[0].name != NULL) {
        printf("\n  option               type   default                    meaning\n");
        tutti_cli_print_options(stdout, ops->options, false);
    }
}

static void line(size_t i, char *text, size_t bytes)
{
    snprintf(text, bytes, "%s", transport(i)->help);
}

int tutti_cli_transports(int argc, char **argv)
{
    static const tutti_cli_catalogue catalogue = {
        .command = "transports",
        .kind = "transport",
        .room = 12,
        .help = "Lists what carries messages between workers, or explains one with its options. "
                "Use: tutti train --transport 'tcp(peer-timeout=30)'.",
        .advice = "`tutti transports NAME` explains one. Without --transport it is shm on this "
                  "machine and tcp over several hosts.",
        .name = transport_name,
        .json = transport_json,
        .print = print_one,
        .group = transport_group,
        .group_title = group_title,
        .line = line,
    };
    return tutti_cli_list(&catalogue, argc, argv);
}
