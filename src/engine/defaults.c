/* defaults.c: the defaults of the run's own options under a method. A method writes them as rows
   that a reader can scan; what is divided by the number of workers is a number with /n after it,
   "sgd(lr=0.1/n)". A row may hold under a condition on the method's own options. One on the row's
   option itself makes it a completion: it adds to what is given. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "engine_internal.h"
#include "base/options.h"
#include "method/registry.h"

/* Bytes of the number that `at` begins with, if "/n" follows it; else 0. */
static size_t over_n(const char *at)
{
    const size_t digits = strspn(at, "0123456789."), end = digits + 2;

    return digits > 0 && at[digits] == '/' && at[digits + 1] == 'n' &&
                   !isalnum((unsigned char)at[end])
               ? digits
               : 0;
}

/* "0.2" and 4: "0.05". Independent of the locale, since it is parsed again as an option. */
static void divide(const char *number, size_t digits, int workers, char *out, size_t bytes)
{
    static const tutti_option option = {
        .name = "number", .type = TUTTI_REAL, .max = 1e30, .help = "over the workers"
    };
    char text[32];
    double value = 0;

    snprintf(text, sizeof text, "%.*s", (int)digits, number);
    /* digits and a point: always a number */
    tutti_option_set(&option, "default", text, &value, NULL);
    value /= workers;
    tutti_option_print(&option, &value, out, bytes);
}

/* The row's value, for that many workers. */
static void written_for(const char *from, int workers, char value[TUTTI_METHOD_DEFAULT_BYTES])
{
    size_t used = 0;
    bool inside = false; /* a name or a number has begun before this character */

    for (const char *at = from; *at != 0 && used + 40 < TUTTI_METHOD_DEFAULT_BYTES;) {
        const size_t digits = inside ? 0 : over_n(at);
        if (digits > 0) {
            divide(at, digits, workers, value + used, 40);
            used += strlen(value + used);
            at += digits + 2;
        } else {
            inside = isalnum((unsigned char)*at) || *at == '.';
            value[used++] = *at++;
        }
    }
    value[used] = 0;
}

/* ---- conditions ---- */

/* The next of the conditions joined by '&'; *rest: the remainder; false after the last. */
static bool next_condition(const char **rest, char one[TUTTI_METHOD_DEFAULT_LONGEST])
{
    const size_t bytes = *rest != NULL ? strcspn(*rest, "&") : 0;

    if (*rest == NULL)
        return false;
    snprintf(one, TUTTI_METHOD_DEFAULT_LONGEST, "%.*s", (int)bytes, *rest);
    *rest = (*rest)[bytes] == '&' ? *rest + bytes + 1 : NULL;
    return true;
}

/* The names that a condition requires of a given value, "adam|adamw"; NULL: it is on the
   method. */
static const char *names_in(const char *condition, const char *option)
{
    const size_t bytes = strlen(option);

    return strncmp(condition, option, bytes) == 0 && condition[bytes] == '=' ? condition + bytes + 1
                                                                             : NULL;
}

bool tutti_method_default_completes(const tutti_method_default *row)
{
    char one[TUTTI_METHOD_DEFAULT_LONGEST];

    for (const char *rest = row->when; next_condition(&rest, one);)
        if (names_in(one, row->option) != NULL)
            return true;
    return false;
}

bool tutti_method_default_can_hold(const tutti_method_ops *ops, const tutti_method_default *row)
{
    char one[TUTTI_METHOD_DEFAULT_LONGEST];

    if (row->when != NULL && strlen(row->when) >= sizeof one)
        return false;
    for (const char *rest = row->when; next_condition(&rest, one);) {
        const char *names = names_in(one, row->option);
        const bool sound = names != NULL ? names[0] != 0 && strcmp(row->option, "optimizer") == 0
                                         : tutti_option_is_condition(ops->options, one);
        if (!sound)
            return false;
    }
    return true;
}

/* True if `name` is one of `names`, as "a|b". */
static bool is_among(const char *name, const char *names)
{
    const size_t bytes = strlen(name);

    for (const char *at = names; at != NULL;
         at = strchr(at, '|') != NULL ? strchr(at, '|') + 1 : NULL)
        if (strncmp(at, name, bytes) == 0 && (at[bytes] == '|' || at[bytes] == 0))
            return true;
    return false;
}

/* True if the row holds for a method with these options. given: the spec that was given for the
   row's option; NULL: none. */
static bool row_holds(const tutti_method_ops *ops, const tutti_method_default *row,
                      const void *self, const tutti_spec *given)
{
    char one[TUTTI_METHOD_DEFAULT_LONGEST];

    if (tutti_method_default_completes(row) != (given != NULL))
        return false;
    for (const char *rest = row->when; next_condition(&rest, one);) {
        const char *names = names_in(one, row->option);
        if (names != NULL ? !is_among(tutti_spec_name(given), names)
                          : !tutti_option_holds(ops->options, one, self))
            return false;
    }
    return true;
}

static const tutti_method_default *find_row(const tutti_method_ops *ops, const char *method,
                                            const char *option, const tutti_spec *given)
{
    const tutti_method_default *row = NULL;
    tutti_spec *spec;
    void *self = tutti_alloc(ops->self_bytes + (ops->self_bytes == 0), 1);

    if (tutti_spec_open(&spec, method, NULL) == TUTTI_OK && self != NULL &&
        tutti_spec_apply(spec, "method", ops->options, self, NULL) == TUTTI_OK)
        for (row = ops->defaults; row->option != NULL; row++)
            if (strcmp(row->option, option) == 0 && row_holds(ops, row, self, given))
                break;
    tutti_spec_close(spec);
    tutti_free(self);
    return row != NULL && row->option != NULL ? row : NULL;
}

/* ---- completing a given value ---- */

static bool has_arg(const tutti_spec *spec, const tutti_option *options, const tutti_option *wanted)
{
    const char *value;

    for (size_t i = 0; i < tutti_spec_count(spec); i++)
        if (tutti_spec_arg(spec, options, i, &value) == wanted)
            return true;
    return false;
}

/* Completes `text` by the options of `value` that it does not set; false: it sets them all. */
static bool complete(const char *text, const tutti_spec *given,
                     char value[TUTTI_METHOD_DEFAULT_BYTES])
{
    const tutti_optim_ops *const rule = tutti_optim_find(tutti_spec_name(given));
    const char *const end = strrchr(text, ')'), *argument;
    char added[2 * TUTTI_METHOD_DEFAULT_LONGEST] = "";
    size_t used = 0;
    tutti_spec *more;

    if (rule == NULL || tutti_spec_open(&more, value, NULL) != TUTTI_OK)
        return false;
    for (size_t i = 0; i < tutti_spec_count(more); i++) {
        const tutti_option *const o = tutti_spec_arg(more, rule->options, i, &argument);
        if (o != NULL && !has_arg(given, rule->options, o))
            used += (size_t)snprintf(added + used, sizeof added - used, "%s%s=%s",
                                     used > 0 ? "," : "", o->name, argument);
    }
    tutti_spec_close(more);
    if (tutti_spec_count(given) == 0)
        snprintf(value, TUTTI_METHOD_DEFAULT_BYTES, "%s(%s)", tutti_spec_name(given), added);
    else
        snprintf(value, TUTTI_METHOD_DEFAULT_BYTES, "%.*s,%s)", (int)(end - text), text, added);
    return used > 0;
}

bool tutti_method_default_of(const tutti_method_ops *ops, const char *spec, const char *option,
                             const char *given, int workers, char value[TUTTI_METHOD_DEFAULT_BYTES])
{
    const bool is_given = given != NULL && given[0] != 0;
    const tutti_method_default *row;
    tutti_spec *now = NULL;
    bool found;

    if (ops->defaults == NULL || (is_given && tutti_spec_open(&now, given, NULL) != TUTTI_OK))
        return false;
    row = find_row(ops, spec, option, now);
    if (row != NULL)
        written_for(row->value, workers, value);
    found = row != NULL && (now == NULL || complete(given, now, value));
    tutti_spec_close(now);
    return found;
}
