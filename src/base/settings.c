/* settings.c: the values of one table, each with the strongest origin that has set it. A weaker
   one is still checked: a mistake in a file should not stay hidden until the flag that overrides
   it is omitted. */
#include "base_internal.h"
#include "base/settings.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

tutti_status tutti_settings_open(tutti_settings **out, const tutti_option *options, void *self,
                                 tutti_error *err)
{
    size_t count = 0;
    tutti_settings *s;

    while (options[count].name != NULL)
        count++;
    tutti_options_default(options, self);
    *out = s = tutti_alloc(1, sizeof *s + count * sizeof s->entries[0]);
    if (s == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening settings of %zu options", count);
    s->options = options;
    s->self = self;
    s->count = count;
    return TUTTI_OK;
}

void tutti_settings_close(tutti_settings *s)
{
    if (s == NULL)
        return;
    for (size_t i = 0; i < s->count; i++) {
        tutti_free(s->entries[i].where);
        tutti_free(s->entries[i].text);
    }
    tutti_free(s);
}

tutti_status tutti_base_settings_set(tutti_settings *s, const tutti_option *option,
                                     tutti_origin origin, const char *value, const char *where,
                                     tutti_error *err)
{
    const bool is_text = option->type == TUTTI_TEXT || option->type == TUTTI_SPEC;
    struct tutti_base_setting *entry = &s->entries[option - s->options];
    char *kept_where, *kept_text = NULL;
    tutti_base_value parsed;

    TUTTI_TRY(tutti_base_option_parse(option, where, value, &parsed, err));
    if (origin < entry->origin ||
        (s->filter != NULL && !s->filter(s->filter_user, option, value, where)))
        return TUTTI_OK;

    kept_where = tutti_copy_text(where);
    if (is_text)
        parsed.text = kept_text = tutti_copy_text(value);
    if (kept_where == NULL || (is_text && kept_text == NULL)) {
        tutti_free(kept_where);
        tutti_free(kept_text);
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "%s: setting option '%s'", where,
                          option->name);
    }
    tutti_base_option_store(option, &parsed, s->self);
    tutti_free(entry->where);
    tutti_free(entry->text);
    entry->where = kept_where;
    entry->text = kept_text;
    entry->origin = origin;
    return TUTTI_OK;
}

/* Whether variable "PREFIXNAME=..." is for `option`; gives its value. */
static const char *variable_value(const char *variable, const char *prefix, const char *option)
{
    const size_t bytes = strlen(prefix);

    if (strncmp(variable, prefix, bytes) != 0)
        return NULL;
    for (variable += bytes; *option != '\0'; option++, variable++)
        if (*variable != (*option == '-' ? '_' : (char)toupper((unsigned char)*option)))
            return NULL;
    return *variable == '=' ? variable + 1 : NULL;
}

tutti_status tutti_settings_environment(tutti_settings *s, const char *prefix,
                                        char *const *environment, tutti_error *err)
{
    for (size_t i = 0; i < s->count; i++) {
        for (char *const *variable = environment; *variable != NULL; variable++) {
            const char *value = variable_value(*variable, prefix, s->options[i].name);
            char where[160]; /* prefixes and names are constants of programs */

            if (value == NULL)
                continue;
            snprintf(where, sizeof where, "%.*s", (int)(value - 1 - *variable), *variable);
            TUTTI_TRY(tutti_base_settings_set(s, &s->options[i], TUTTI_FROM_ENVIRONMENT, value,
                                              where, err));
            break; /* the first of several, as getenv() */
        }
    }
    return TUTTI_OK;
}

tutti_status tutti_settings_flag(tutti_settings *s, const char *name, const char *value,
                                 const char *where, tutti_error *err)
{
    const tutti_option *option = tutti_option_find(s->options, name);

    if (option == NULL)
        return tutti_base_option_unknown(s->options, where, "option", name, err);
    return tutti_base_settings_set(s, option, TUTTI_FROM_FLAG, value, where, err);
}

tutti_status tutti_settings_default(tutti_settings *s, const char *name, const char *value,
                                    const char *where, tutti_error *err)
{
    const tutti_option *option = tutti_option_find(s->options, name);

    if (option == NULL)
        return tutti_base_option_unknown(s->options, where, "option", name, err);
    return tutti_base_settings_set(s, option, TUTTI_FROM_DEFAULT, value, where, err);
}

tutti_status tutti_settings_complete(tutti_settings *s, const char *name, const char *value,
                                     const char *where, tutti_error *err)
{
    const char *before;
    const tutti_origin origin = tutti_settings_origin(s, name, &before);
    const tutti_option *option = tutti_option_find(s->options, name);
    char both[4400]; /* a file's path and line, and a method's name */

    if (option == NULL)
        return tutti_base_option_unknown(s->options, where, "option", name, err);
    snprintf(both, sizeof both, "%s%s%s", before, before[0] != 0 ? " and " : "", where);
    return tutti_base_settings_set(s, option, origin, value, both, err);
}

tutti_origin tutti_settings_origin(const tutti_settings *s, const char *name, const char **where)
{
    const tutti_option *option = tutti_option_find(s->options, name);
    const struct tutti_base_setting *entry =
        option != NULL ? &s->entries[option - s->options] : NULL;

    if (where != NULL)
        *where = entry != NULL && entry->where != NULL ? entry->where : "";
    return entry != NULL ? entry->origin : TUTTI_FROM_DEFAULT;
}
