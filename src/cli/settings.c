/* settings.c: reads the trainer's settings from arguments, environment and files. The flags are the
   table of options. getopt_long is not used, because it accepts any prefix of a flag for the flag,
   and a misspelt flag must be an error with a suggestion. */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli_internal.h"
#include "base/settings.h"
#include "runtime/files.h"
#include "tutti/method.h"
#include "base/options.h"
#include "train/measured.h"

static tutti_status no_such_flag(const char *flag, const char *const *extra, tutti_error *err)
{
    const char *names[128], *ours = tutti_cli_known_elsewhere(flag);
    size_t n = 0;
    char near[160];

    if (ours != NULL)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "there is no option '--%.80s'; here it is %s; `tutti train --help all` lists them",
            flag, ours);
    for (const tutti_option *o = tutti_train_options; o->name != NULL && n < TUTTI_LENGTH(names);
         o++)
        names[n++] = o->name;
    for (size_t i = 0; extra != NULL && extra[i] != NULL && n < TUTTI_LENGTH(names); i++)
        names[n++] = extra[i];
    tutti_suggest(flag, names, n, near, sizeof near);
    return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                      "there is no option '--%.80s'%s; `tutti train --help all` lists them", flag,
                      near);
}

/* Takes --help, --help=all or --help all. value: after the '=', or NULL. */
static tutti_status take_help(tutti_cli_settings *s, const char *value, int argc, char **argv,
                              int *at, tutti_error *err)
{
    s->help = true;
    if (value == NULL && *at + 1 < argc && strcmp(argv[*at + 1], "all") == 0)
        value = argv[++*at];
    s->help_all = value != NULL && strcmp(value, "all") == 0;
    return value == NULL || s->help_all
               ? TUTTI_OK
               : tutti_fail(err, TUTTI_ERR_USAGE, 0,
                            "--help is '%.80s'; write --help, or --help all for all options",
                            value);
}

/* Notes a switch of the command's own. false: `name` is none. */
static bool take_extra(tutti_cli_settings *s, const char *name, const char *const *extra)
{
    for (unsigned i = 0; extra != NULL && extra[i] != NULL; i++)
        if (strcmp(name, extra[i]) == 0) {
            s->extra |= 1u << i;
            return true;
        }
    return false;
}

/* Splits --name[=value]. *value: NULL: there is none. false: no name is that long. */
static bool split_long(const char *arg, char name[64], const char **value)
{
    const size_t length = strcspn(arg + 2, "=");
    if (length >= 64)
        return false;
    memcpy(name, arg + 2, length);
    name[length] = 0;
    *value = arg[2 + length] == '=' ? arg + 3 + length : NULL;
    return true;
}

/* The name and the value of a short option: -n4, -n=4; *value NULL: the next word. */
static tutti_status split_short(const char *arg, const char **name, const char **value,
                                tutti_error *err)
{
    if (arg[1] != 'n' && arg[1] != 'H')
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "there is no option '%.40s'; the only short ones are -n (workers), "
                          "-H (hosts) and -h",
                          arg);
    *name = arg[1] == 'n' ? "n" : "hosts";
    *value = arg[2] == '=' ? arg + 3 : arg[2] != 0 ? arg + 2 : NULL;
    return TUTTI_OK;
}

/* Takes the flag at argv[*at], with its value: --name=value, --name value, -n4, -n 4; switches
   (booleans that are off by default) need no value. *at: index of its last word on return. */
static tutti_status take_argument(tutti_cli_settings *s, int argc, char **argv, int *at,
                                  const char *const *extra, tutti_error *err)
{
    const char *arg = argv[*at];
    char long_name[64], where[72];
    const char *name = long_name, *value = NULL;
    const tutti_option *option;

    if (strcmp(arg, "-h") == 0) {
        s->help = true;
        return TUTTI_OK;
    }
    if (arg[1] != '-')
        TUTTI_TRY(split_short(arg, &name, &value, err));
    else if (!split_long(arg, long_name, &value))
        return no_such_flag(arg + 2, extra, err);
    else if (strcmp(name, "help") == 0)
        return take_help(s, value, argc, argv, at, err);
    else if (take_extra(s, name, extra))
        return TUTTI_OK;
    option = tutti_option_find(tutti_train_options, name);
    if (option == NULL)
        return no_such_flag(name, extra, err);
    value = tutti_cli_flag_value(option, value, argc, argv, at);
    if (value == NULL)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "option '%.60s' needs a value: %s", arg,
                          option->help);
    snprintf(where, sizeof where, "%s%s", arg[1] == '-' ? "--" : "-", arg[1] == 'H' ? "H" : name);
    return tutti_settings_flag(s->settings, option->name, value, where, err);
}

/* Finds the directory of the run that `resume` belongs to: `resume` itself or a folder above it. */
static bool run_of(const tutti_cli_settings *s, const char *resume, char *run, size_t bytes)
{
    static const char *const up[] = { "", "/..", "/../.." };
    char path[4096];

    for (size_t i = 0; i < TUTTI_LENGTH(up); i++) {
        snprintf(run, bytes, "%s%s", resume, up[i]);
        snprintf(path, sizeof path, "%s/config.json", run);
        if (tutti_file_exists(s->rt, path))
            return true;
    }
    return false;
}

/* Variables that begin with TUTTI_ and are no options, grouped by their readers. Names that end
   with '_' are prefixes. */
static const char *const variables[] = {
    /* the library's */
    "TUTTI_DATA",
    "TUTTI_CPU",
    "TUTTI_NODES",
    /* a place in a run: launch.h, meet.h */
    "TUTTI_RANK",
    "TUTTI_SIZE",
    "TUTTI_MEET",
    "TUTTI_MEET_AT_RANK_0",
    "TUTTI_RUN_ID",
    "TUTTI_RUN_KEY",
    "TUTTI_RUN_KEY_FILE",
    "TUTTI_TAKE_PART",
    /* our launcher's, for its workers */
    "TUTTI_SHM_FD",
    "TUTTI_LAUNCHED",
    "TUTTI_TELL",
    "TUTTI_JOIN",
    "TUTTI_JOIN_PASS",
    "TUTTI_KEEPS_PASS",
    "TUTTI_STARTED_NS",
    /* the Python package's */
    "TUTTI_LIBRARY",
    /* measuring, and the peers */
    "TUTTI_PYTHON",
    "TUTTI_BENCH_FD",
    "TUTTI_PEER_",
    "TUTTI_PEERS_BUILD",
    /* the project's tests */
    "TUTTI_BUILD",
    "TUTTI_MPI",
    "TUTTI_TEST_",
};

/* Writes TUTTI_LR_SCHEDULE for lr-schedule, as tutti_settings_environment does. */
static void variable_of(const tutti_option *option, char *name, size_t bytes)
{
    snprintf(name, bytes, "TUTTI_%s", option->name);
    for (char *c = name; *c != '\0'; c++)
        *c = *c == '-' ? '_' : (char)toupper((unsigned char)*c);
}

static bool is_variable(const char *entry, size_t length)
{
    char name[64];

    for (size_t i = 0; i < TUTTI_LENGTH(variables); i++) {
        const size_t n = strlen(variables[i]);
        if (strncmp(entry, variables[i], n) == 0 && (n == length || variables[i][n - 1] == '_'))
            return true;
    }
    if (length >= sizeof name)
        return false;
    for (const tutti_option *o = tutti_train_options; o->name != NULL; o++) {
        variable_of(o, name, sizeof name);
        if (strlen(name) == length && strncmp(entry, name, length) == 0)
            return true;
    }
    return false;
}

/* Adds a name to the suggestions if it is similar to the entry, both without the prefix TUTTI_,
   which would make all names similar. */
static void offer(const char *name, const char *entry, const char **names, size_t *n)
{
    const char *const rest = name + strlen("TUTTI_");
    char near[160];

    tutti_suggest(entry + strlen("TUTTI_"), &rest, 1, near, sizeof near);
    if (near[0] != '\0')
        names[(*n)++] = name;
}

/* Refuses a variable that begins with TUTTI_ and that nothing reads, which may be misspelt. */
static tutti_status check_environment(tutti_error *err)
{
    enum { MOST = 128, BYTES = 64 };
    char options[MOST][BYTES], near[160], shown[BYTES];
    const char *names[MOST + TUTTI_LENGTH(variables)];
    size_t n = 0, k = 0;

    for (char *const *entry = environ; *entry != NULL; entry++) {
        const size_t length = strcspn(*entry, "=");
        if (strncmp(*entry, "TUTTI_", strlen("TUTTI_")) != 0 || is_variable(*entry, length))
            continue;
        snprintf(shown, sizeof shown, "%.*s", (int)length, *entry);
        for (const tutti_option *o = tutti_train_options; o->name != NULL && k < MOST; o++, k++) {
            variable_of(o, options[k], BYTES);
            if (strcmp(o->name, "data") != 0) /* TUTTI_DATA is in the other list */
                offer(options[k], shown, names, &n);
        }
        for (size_t i = 0; i < TUTTI_LENGTH(variables); i++)
            offer(variables[i], shown, names, &n);
        tutti_suggest(shown, names, n, near, sizeof near);
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "the environment has %s, which nothing reads%s; unset it, or give it the "
                          "name of an option (`tutti train --help`) in capitals behind TUTTI_",
                          shown, near);
    }
    return TUTTI_OK;
}

/* Reads TUTTI_NAME for each option --name but TUTTI_DATA, which is the folder of data sets. */
static tutti_status from_environment(tutti_cli_settings *s, tutti_error *err)
{
    size_t n = 0, kept = 0;
    char **some;
    tutti_status status;

    while (environ[n] != NULL)
        n++;
    some = tutti_alloc(n + 1, sizeof *some);
    if (some == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "reading the environment");
    for (size_t i = 0; i < n; i++)
        if (strncmp(environ[i], "TUTTI_DATA=", 11) != 0)
            some[kept++] = environ[i];
    status = tutti_settings_environment(s->settings, "TUTTI_", some, err);
    tutti_free(some);
    return status == TUTTI_OK ? check_environment(err) : status;
}

/* Replaces --resume auto by --out if a checkpoint is there, else by "". A damaged checkpoint is an
   error, and no reason to begin from scratch. */
static tutti_status resolve_resume(tutti_cli_settings *s, bool *automatic, tutti_error *err)
{
    tutti_error found = { .rank = -1 };
    char path[4096];
    tutti_status status;

    if (s->config.resume[0] == 0 &&
        tutti_settings_origin(s->settings, "resume", NULL) != TUTTI_FROM_DEFAULT)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "resume is empty; give a run's --out, one of its checkpoints, or auto, "
                          "or omit it");
    *automatic = strcmp(s->config.resume, "auto") == 0;
    if (!*automatic)
        return TUTTI_OK;
    if (s->config.out[0] == 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "resume is 'auto', which looks for a checkpoint in --out, and there is "
                          "no --out; give it too");
    status = tutti_checkpoint_find(s->rt, s->config.out, path, sizeof path, NULL, 0, &found);
    s->config.resume = status == TUTTI_OK ? s->config.out : "";
    return status == TUTTI_OK || status == TUTTI_ERR_USAGE
               ? TUTTI_OK
               : tutti_fail(err, status, 0, "%s", found.text);
}

/* Sets s->savers from the checkpoint, if the user gives no number of workers, and always with
   --resume auto, where the same command line begins a run and continues it. Workers that come and
   go (--workers) are any number. */
static void count_savers(tutti_cli_settings *s, bool automatic)
{
    const char *where;
    const tutti_origin from = tutti_settings_origin(s->settings, "n", &where);
    const bool is_given = from > TUTTI_FROM_FILE || s->config.hosts[0] != 0 ||
                          (from == TUTTI_FROM_FILE && s->file != NULL &&
                           strncmp(where, s->file, strlen(s->file)) == 0);

    if (s->config.workers[0] == 0 && (automatic || !is_given))
        s->savers.n = tutti_train_savers(s->rt, s->config.resume, &s->savers.began, s->savers.rank);
}

/* Callback: is this option of the run's config.json taken? A run whose workers came and went is
   resumed with a fixed number of them. */
static bool take_saved(void *settings, const tutti_option *option, const char *value,
                       const char *where)
{
    return strcmp(option->name, "workers") != 0 && tutti_cli_leave(settings, option, value, where);
}

/* Reads the settings of the run that resume names, and again what overrides them. *saved: whether
   the transport is that run's. */
static tutti_status read_resumed(tutti_cli_settings *s, bool automatic, bool *saved,
                                 tutti_error *err)
{
    const char *where;
    char run[2048], path[4096];
    if (run_of(s, s->config.resume, run, sizeof run)) {
        snprintf(path, sizeof path, "%s/config.json", run);
        TUTTI_TRY(tutti_settings_file_filtered(s->settings, path, take_saved, s, err));
        *saved = tutti_settings_origin(s->settings, "transport", NULL) == TUTTI_FROM_FILE;
        if (s->config.out[0] == 0)
            snprintf(s->out, sizeof s->out, "%s", run);
        if (s->file != NULL) { /* the later one wins */
            TUTTI_TRY(tutti_settings_file(s->settings, s->file, err));
            tutti_settings_origin(s->settings, "transport", &where);
            *saved = *saved && strncmp(where, s->file, strlen(s->file)) != 0;
            s->config.resume = automatic ? s->config.out : s->config.resume;
        }
        TUTTI_TRY(tutti_cli_given_again(s, err));
    }
    return TUTTI_OK;
}

/* The times of a measured network are those of its batch, which is then the default. */
static tutti_status take_batch(tutti_cli_settings *s, tutti_error *err)
{
    tutti_measured_model *measured;
    char batch[24];

    if (!tutti_measured_named(s->config.model) ||
        tutti_settings_origin(s->settings, "batch", NULL) != TUTTI_FROM_DEFAULT)
        return TUTTI_OK;
    TUTTI_TRY(tutti_measured_open(&measured, s->rt, s->config.model, err));
    snprintf(batch, sizeof batch, "%lld", (long long)measured->batch);
    tutti_measured_close(measured);
    return tutti_settings_default(s->settings, "batch", batch, "as measured", err);
}

tutti_status tutti_cli_read(tutti_cli_settings *s, int argc, char **argv, const char *const *extra,
                            tutti_error *err)
{
    bool only_files = false, saved = false, automatic;

    memset(s, 0, sizeof *s);
    TUTTI_TRY(tutti_runtime_open_posix(&s->rt, err));
    TUTTI_TRY(tutti_settings_open(&s->settings, tutti_train_options, &s->config, err));
    TUTTI_TRY(from_environment(s, err));
    for (int i = 1; i < argc; i++) {
        if (!only_files && strcmp(argv[i], "--") == 0)
            only_files = true;
        else if (!only_files && argv[i][0] == '-' && argv[i][1] != 0)
            TUTTI_TRY(take_argument(s, argc, argv, &i, extra, err));
        else if (s->file != NULL)
            return tutti_fail(
                err, TUTTI_ERR_USAGE, 0,
                "two configuration files, '%.80s' and '%.80s'; give one (flags begin with --)",
                s->file, argv[i]);
        else
            s->file = argv[i];
    }
    if (s->help)
        return TUTTI_OK;
    if (s->file != NULL) /* it may contain resume, and out */
        TUTTI_TRY(tutti_settings_file(s->settings, s->file, err));
    TUTTI_TRY(resolve_resume(s, &automatic, err));
    if (s->config.resume[0] != 0) { /* continue with that run's settings, unless overridden */
        TUTTI_TRY(read_resumed(s, automatic, &saved, err));
        count_savers(s, automatic);
    }
    s->transport_saved = saved;
    if (s->config.out[0] != 0)
        snprintf(s->out, sizeof s->out, "%s", s->config.out);
    tutti_train_pair(&s->config,
                     tutti_settings_origin(s->settings, "model", NULL) != TUTTI_FROM_DEFAULT,
                     tutti_settings_origin(s->settings, "data", NULL) != TUTTI_FROM_DEFAULT);
    return take_batch(s, err);
}

/* Sets an option that the user has not set to the method's default, or completes a value that the
   user has given. */
static tutti_status set_default(tutti_cli_settings *s, const tutti_method_ops *method,
                                const char *option, const char *where, tutti_error *err)
{
    const tutti_option *const o = tutti_option_find(tutti_train_options, option);
    const bool given = tutti_settings_origin(s->settings, option, NULL) != TUTTI_FROM_DEFAULT;
    char value[TUTTI_METHOD_DEFAULT_BYTES], now[TUTTI_METHOD_DEFAULT_BYTES] = "";

    if (given)
        tutti_option_print(o, &s->config, now, sizeof now);
    if (!tutti_method_default_of(method, s->config.method, option, now, (int)s->config.n, value))
        return TUTTI_OK;
    return given ? tutti_settings_complete(s->settings, option, value, where, err)
                 : tutti_settings_default(s->settings, option, value, where, err);
}

tutti_status tutti_cli_method_defaults(tutti_cli_settings *s, tutti_error *err)
{
    char name[64], where[96];
    const tutti_method_ops *method;

    snprintf(name, sizeof name, "%.*s", (int)strcspn(s->config.method, "("), s->config.method);
    method = tutti_method_find(name);
    if (method == NULL) /* reported elsewhere */
        return TUTTI_OK;
    snprintf(where, sizeof where, "default of %s", method->name);
    for (const tutti_method_default *d = method->defaults; d != NULL && d->option != NULL; d++) {
        bool again = false; /* an earlier row has asked for all rows of the option */
        for (const tutti_method_default *before = method->defaults; before < d; before++)
            again = again || strcmp(before->option, d->option) == 0;
        if (!again)
            TUTTI_TRY(set_default(s, method, d->option, where, err));
    }
    return TUTTI_OK;
}

void tutti_cli_close(tutti_cli_settings *s)
{
    tutti_cli_forget_left(s);
    tutti_free(s->hosts.text);
    tutti_settings_close(s->settings);
    tutti_runtime_close(s->rt);
}

/* Writes all that a choice may be, "a|b|c", the default first. */
static void print_choices(const tutti_option *o, char *value, size_t bytes)
{
    const char *first = o->text;
    size_t used;

    for (int i = 0; i < (int)o->initial; i++)
        first = strchr(first, '|') + 1;
    used = (size_t)snprintf(value, bytes, "%.*s", (int)strcspn(first, "|"), first);
    for (const char *at = o->text; *at != 0 && used < bytes; at += strcspn(at, "|"), at += *at != 0)
        if (at != first)
            used += (size_t)snprintf(value + used, bytes - used, "|%.*s", (int)strcspn(at, "|"), at);
}

/* Writes the default of an option as the table shows it; of a choice all that it may be. */
static void print_default(const tutti_option *o, char *value, size_t bytes)
{
    switch (o->type) {
    case TUTTI_INT:
    case TUTTI_REAL:
        snprintf(value, bytes, "%.12g", o->initial);
        break;
    case TUTTI_BOOL:
        snprintf(value, bytes, "%s", o->initial != 0 ? "on" : "off");
        break;
    case TUTTI_CHOICE:
        print_choices(o, value, bytes);
        break;
    default:
        snprintf(value, bytes, "%s", o->text != NULL && o->text[0] != 0 ? o->text : "none");
    }
}

void tutti_cli_print_options(FILE *out, const tutti_option *options, bool flags)
{
    for (const tutti_option *o = options; o != NULL && o->name != NULL; o++) {
        char name[64], value[256] = "", line[360];
        print_default(o, value, sizeof value);
        snprintf(name, sizeof name, "%s%s",
                 !flags                 ? ""
                 : strlen(o->name) == 1 ? "-"
                                        : "--",
                 o->name);
        snprintf(line, sizeof line, "  %-20s %-6s %-26s", name, tutti_option_type_name(o->type),
                 value);
        if (tutti_cli_columns(STDOUT_FILENO) == 0 || /* for a program or a page: a row a line */
            strlen(line) + 1 + strlen(o->help) <= (size_t)tutti_cli_page_width())
            fprintf(out, "%s %s\n", line, o->help);
        else { /* below, where a line has space for more than a word or two */
            for (size_t n = strlen(line); n > 0 && line[n - 1] == ' '; n--)
                line[n - 1] = 0;
            fprintf(out, "%s\n", line);
            tutti_cli_wrap(out, "", 30, o->help);
        }
    }
}
