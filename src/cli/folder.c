/* folder.c: which settings of a folder are used. The config.json of a run and the plan.json of a
   comparison contain the settings with which they continue. But a folder may come from a stranger.
   So options whose values reach beyond the folder (tutti_option.reach) are used only if the user of
   this command gives them: on the command line, in the environment or in a settings file named
   there. The folder's values of such options are reported once, with the arguments that would set
   them again. */
#include <errno.h>
#include <string.h>

#include "cli_internal.h"
#include "base/settings.h"
#include "tutti/launch.h"
#include "base/options.h"
#include "launch/launch.h"

static bool is_default(const tutti_option *option, const char *value)
{
    if (option->type == TUTTI_BOOL) /* switches are off by default */
        return strcmp(value, "false") == 0;
    return strcmp(value, option->text != NULL ? option->text : "") == 0;
}

const tutti_option *tutti_cli_reach(const tutti_option *option, const char *value)
{
    const tutti_option *by = NULL, *inner;
    tutti_spec *spec = NULL;

    if (option->reach != NULL)
        return is_default(option, value) ? NULL : option;
    if ((option->type != TUTTI_SPEC && option->type != TUTTI_TEXT) ||
        tutti_spec_open(&spec, value, NULL) != TUTTI_OK)
        return NULL; /* no spec, as a file's name: it is read, at most */
    inner = tutti_cli_options_of(option->name, tutti_spec_name(spec));
    for (size_t i = 0; i < tutti_spec_count(spec) && by == NULL; i++) {
        const char *given;
        const tutti_option *o = tutti_spec_arg(spec, inner, i, &given);
        by = o != NULL ? tutti_cli_reach(o, given) : NULL; /* at most as deep as specs nest */
    }
    tutti_spec_close(spec);
    return by;
}

bool tutti_cli_leave(void *settings, const tutti_option *option, const char *value,
                     const char *where)
{
    tutti_cli_settings *s = settings;
    const tutti_option *by = tutti_cli_reach(option, value);
    tutti_cli_left *left = by != NULL ? tutti_alloc(1, sizeof *left) : NULL;

    if (left != NULL) { /* without memory it is not taken either, and what follows fails for that */
        left->option = option;
        left->by = by;
        snprintf(left->where, sizeof left->where, "%s", where);
        snprintf(left->value, sizeof left->value, "%s", value);
        left->next = s->left;
        s->left = left;
    }
    return by == NULL;
}

/* Prints a flag as a user would type it. */
static void print_flag(FILE *out, const tutti_option *option, const char *value)
{
    fprintf(out, "%s%s", strlen(option->name) == 1 ? "-" : "--", option->name);
    if (option->type == TUTTI_BOOL)
        return;
    putc(' ', out);
    tutti_word_print(out, value);
}

tutti_status tutti_cli_given_again(tutti_cli_settings *s, tutti_error *err)
{
    for (tutti_cli_left **at = &s->left; *at != NULL;) {
        tutti_cli_left *const left = *at;
        if (tutti_settings_origin(s->settings, left->option->name, NULL) == TUTTI_FROM_DEFAULT) {
            if (left->by != left->option) /* the rest of the spec is needed, and it is one value */
                return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                                  "%s: %s is '%.300s', whose '%s' %s; such a value counts only "
                                  "when it is given again: --%s '%.300s'",
                                  left->where, left->option->name, left->value, left->by->name,
                                  left->by->reach, left->option->name, left->value);
            at = &left->next;
            continue;
        }
        *at = left->next;
        tutti_free(left);
    }
    return TUTTI_OK;
}

void tutti_cli_say_left(const tutti_cli_settings *s)
{
    for (const tutti_cli_left *left = s->left; left != NULL; left = left->next) {
        fprintf(stderr,
                "tutti: %s: %s is '%.300s', which %s and is not taken from a run's folder; if you "
                "mean it: ",
                left->where, left->option->name, left->value, left->by->reach);
        print_flag(stderr, left->option, left->value);
        putc('\n', stderr);
    }
}

void tutti_cli_forget_left(tutti_cli_settings *s)
{
    while (s->left != NULL) {
        tutti_cli_left *const left = s->left;
        s->left = left->next;
        tutti_free(left);
    }
}

/* "a:2,b:1": hosts with the workers that are left. */
static void print_hosts(FILE *out, const char *text, const tutti_cli_savers *left)
{
    tutti_launch_host *hosts = NULL;
    int n = 0, workers = 0, before = 0;
    char all[4096] = "";
    size_t used = 0;

    if (tutti_launch_parse_hosts(text, &hosts, &n, &workers, NULL) == TUTTI_OK) {
        before = workers;
        tutti_cli_keep_left(left, hosts, &n, &workers);
    }
    for (int h = 0; h < n && workers < before && used < sizeof all; h++)
        used += (size_t)snprintf(all + used, sizeof all - used, "%s%s:%d", h > 0 ? "," : "",
                                 hosts[h].name, hosts[h].workers);
    tutti_word_print(out, used > 0 && used < sizeof all ? all : text);
    tutti_free(hosts);
}

void tutti_cli_print_resume(const tutti_cli_settings *s, FILE *out)
{
    static const char *const of_the_start[] = { "out", "resume" };
    const tutti_train_config *c = &s->config;
    tutti_cli_savers left;

    left.n = tutti_train_savers(s->rt, s->out, &left.began, left.rank);
    fputs("tutti train --resume ", out);
    tutti_word_print(out, s->out);
    if (c->most > 0) {
        fputs(" --workers ", out);
        tutti_word_print(out, c->workers);
    } else if (left.n > 0 && left.n != c->n && c->hosts[0] == 0)
        fprintf(out, " -n %d", left.n);
    for (const tutti_option *o = tutti_train_options; o->name != NULL; o++) {
        const char *value;
        bool skip = o->type != TUTTI_TEXT && o->type != TUTTI_SPEC;
        for (size_t i = 0; i < TUTTI_LENGTH(of_the_start); i++)
            skip = skip || strcmp(o->name, of_the_start[i]) == 0;
        value = skip ? "" : *(const char *const *)(const void *)((const char *)c + o->offset);
        if (skip || tutti_cli_reach(o, value) == NULL)
            continue;
        putc(' ', out);
        if (strcmp(o->name, "hosts") == 0) {
            fputs("-H ", out);
            print_hosts(out, value, &left);
        } else
            print_flag(out, o, value);
    }
}
