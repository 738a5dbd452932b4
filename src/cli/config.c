/* config.c: `tutti config`: prints the settings that `tutti train` with the same arguments would
   use, and where each value comes from. */
#include <string.h>

#include "elsewhere.h"
#include "base/settings.h"
#include "tutti/launch.h"
#include "base/options.h"

/* Sets the number of workers as `train` does: from the hosts, unless -n alone was given, and from a
   checkpoint that only that number can resume. */
static tutti_status count_workers(tutti_cli_settings *s, tutti_error *err)
{
    const bool n_given = tutti_settings_origin(s->settings, "n", NULL) == TUTTI_FROM_FLAG;
    const bool hosts_given = tutti_settings_origin(s->settings, "hosts", NULL) == TUTTI_FROM_FLAG;
    tutti_launch_host *hosts = NULL;
    int n_hosts, workers = (int)s->config.n;

    if (s->config.hosts[0] != 0 && (hosts_given || !n_given)) {
        TUTTI_TRY(tutti_cli_hosts_read(&s->hosts, &s->config.hosts, err));
        TUTTI_TRY(tutti_launch_parse_hosts(s->config.hosts, &hosts, &n_hosts, &workers, err));
    }
    if (hosts != NULL && s->config.workers[0] != 0)
        workers = hosts[0].workers; /* with which the run begins */
    if (s->savers.n > 0 && s->savers.n < workers)
        workers = s->savers.n;
    s->config.n = workers;
    tutti_free(hosts);
    return TUTTI_OK;
}

static void explain(const tutti_cli_settings *s)
{
    static const char *const origins[] = { "default", "file", "environment", "flag" };

    for (const tutti_option *o = tutti_train_options; o->name != NULL; o++) {
        char value[256];
        const char *where;
        const tutti_origin origin = tutti_settings_origin(s->settings, o->name, &where);
        tutti_option_print(o, &s->config, value, sizeof value);
        if (origin == TUTTI_FROM_DEFAULT && where[0] != 0)
            printf("%-18s %-32s %s\n", o->name, value, where);
        else
            printf("%-18s %-32s %-12s %s\n", o->name, value[0] != 0 ? value : "-", origins[origin],
                   where);
    }
}

int tutti_cli_config(int argc, char **argv)
{
    static const char *const extra[] = { "explain", NULL };
    tutti_error err = { .rank = -1 };
    tutti_cli_settings s;
    char *json = NULL;
    tutti_status status = tutti_cli_read(&s, argc, argv, extra, &err);

    if (status == TUTTI_OK && !s.help) {
        tutti_cli_say_left(&s);
        status = count_workers(&s, &err);
    }
    if (status == TUTTI_OK && !s.help)
        status = tutti_cli_method_defaults(&s, &err);
    if (status == TUTTI_OK && s.help)
        printf("tutti config [FILE] [--explain] [--OPTION VALUE ...]\n\nPrints the configuration "
               "that `tutti train` with the same arguments would use, as JSON (a file for it).\n"
               "--explain: a line an option with its value and where it comes from: flag, "
               "environment, file with line, default of the method, or default.\n");
    else if (status == TUTTI_OK && s.extra != 0)
        explain(&s);
    else if (status == TUTTI_OK) {
        status = tutti_train_config_json(&s.config, &json, &err);
        if (status == TUTTI_OK)
            puts(json);
    }
    tutti_free(json);
    tutti_cli_close(&s);
    return status == TUTTI_OK ? EXIT_DONE : tutti_cli_fail(&err);
}
