/* flags.c: takes the flags of a command's own table out of its arguments, among which there may be
   flags of other tables. */
#include <string.h>

#include "cli_internal.h"
#include "base/options.h"

static tutti_status set(void *user, const tutti_option *option, const char *value, tutti_error *err)
{
    char what[80];

    snprintf(what, sizeof what, "--%s", option->name);
    return tutti_option_set(option, what, value, user, err);
}

const char *tutti_cli_flag_value(const tutti_option *option, const char *given, int argc,
                                 char **argv, int *at)
{
    if (given != NULL)
        return given;
    if (option->type == TUTTI_BOOL && option->initial == 0) {
        const char *next = *at + 1 < argc ? argv[*at + 1] : "";
        return strcmp(next, "on") == 0 || strcmp(next, "off") == 0 ? argv[++*at] : "true";
    }
    return *at + 1 < argc ? argv[++*at] : NULL;
}

tutti_status tutti_cli_take_flags(const tutti_flag_table *table, int *argc, char **argv, bool *help,
                                  tutti_error *err)
{
    int kept = 1;

    for (int i = 1; i < *argc; i++) {
        const bool flag = strncmp(argv[i], "--", 2) == 0;
        const size_t length = flag ? strcspn(argv[i] + 2, "=") : 0;
        const char *value = flag && argv[i][2 + length] == '=' ? argv[i] + 3 + length : NULL;
        const tutti_option *option;
        char name[64];
        if (strcmp(argv[i], "--") == 0) { /* what comes behind is no flag */
            while (i < *argc)
                argv[kept++] = argv[i++];
            break;
        }
        if (strcmp(argv[i], "-h") == 0 || strcmp(argv[i], "--help") == 0) {
            *help = true;
            return TUTTI_OK;
        }
        snprintf(name, sizeof name, "%.*s", (int)(length < sizeof name ? length : sizeof name - 1),
                 argv[i] + 2 * flag);
        option = flag ? tutti_option_find(table->options, name) : NULL;
        if (option == NULL) {
            argv[kept++] = argv[i];
            continue;
        }
        value = tutti_cli_flag_value(option, value, *argc, argv, &i);
        if (value == NULL)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0, "option '--%s' needs a value: %s",
                              option->name, option->help);
        TUTTI_TRY((table->each != NULL ? table->each : set)(table->user, option, value, err));
    }
    argv[ *argc = kept] = NULL;
    return TUTTI_OK;
}
