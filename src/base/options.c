/* options.c: values of options: defaults, parsing with a sentence that states what is allowed, and
   where an option has an effect. numbers.c reads and prints numbers, option_print.c options. */
#include "base_internal.h"
#include "options.h"

#include <assert.h>
#include <ctype.h>
#include <math.h>
#include <string.h>
#include <strings.h>

const char *tutti_option_type_name(tutti_option_type type)
{
    switch (type) {
    case TUTTI_INT:    return "int";
    case TUTTI_REAL:   return "real";
    case TUTTI_BOOL:   return "bool";
    case TUTTI_CHOICE: return "choice";
    case TUTTI_TEXT:   return "text";
    case TUTTI_SPEC:   return "spec";
    }
    return "unknown";
}

const tutti_option *tutti_option_find(const tutti_option *options, const char *name)
{
    for (; options != NULL && options->name != NULL; options++)
        if (tutti_base_same_name(options->name, name))
            return options;
    return NULL;
}

tutti_base_value tutti_base_option_initial(const tutti_option *option)
{
    tutti_base_value value = { 0 };

    switch (option->type) {
    case TUTTI_INT:    value.integer = (int64_t)option->initial; break;
    case TUTTI_REAL:   value.real = option->initial; break;
    case TUTTI_BOOL:   value.truth = option->initial != 0; break;
    case TUTTI_CHOICE: value.choice = (int)option->initial; break;
    case TUTTI_TEXT:
    case TUTTI_SPEC:   value.text = option->text != NULL ? option->text : ""; break;
    }
    return value;
}

void tutti_base_option_store(const tutti_option *option, const tutti_base_value *value, void *self)
{
    void *at = (char *)self + option->offset;

    switch (option->type) {
    case TUTTI_INT:    *(int64_t *)at = value->integer; break;
    case TUTTI_REAL:   *(double *)at = value->real; break;
    case TUTTI_BOOL:   *(bool *)at = value->truth; break;
    case TUTTI_CHOICE: *(int *)at = value->choice; break;
    case TUTTI_TEXT:
    case TUTTI_SPEC:   *(const char **)at = value->text; break;
    }
}

tutti_base_value tutti_base_option_stored(const tutti_option *option, const void *self)
{
    const void *at = (const char *)self + option->offset;
    tutti_base_value value = { 0 };

    switch (option->type) {
    case TUTTI_INT:    value.integer = *(const int64_t *)at; break;
    case TUTTI_REAL:   value.real = *(const double *)at; break;
    case TUTTI_BOOL:   value.truth = *(const bool *)at; break;
    case TUTTI_CHOICE: value.choice = *(const int *)at; break;
    case TUTTI_TEXT:
    case TUTTI_SPEC:   value.text = *(const char *const *)at; break;
    }
    if ((option->type == TUTTI_TEXT || option->type == TUTTI_SPEC) && value.text == NULL)
        value.text = "";
    return value;
}

void tutti_options_default(const tutti_option *options, void *self)
{
    for (; options != NULL && options->name != NULL; options++) {
        const tutti_base_value value = tutti_base_option_initial(options);
        tutti_base_option_store(options, &value, self);
    }
}

/* ---- choices: "a|b|c" ---- */

bool tutti_base_next_choice(const char **rest, const char **choice, size_t *bytes)
{
    if (*rest == NULL)
        return false;
    *choice = *rest;
    *bytes = strcspn(*rest, "|");
    *rest = (*rest)[*bytes] == '|' ? *rest + *bytes + 1 : NULL;
    return true;
}

static bool find_choice(const char *choices, const char *value, int *out)
{
    const char *choice;
    size_t bytes;

    for (int i = 0; tutti_base_next_choice(&choices, &choice, &bytes); i++)
        if (strlen(value) == bytes && memcmp(choice, value, bytes) == 0) {
            *out = i;
            return true;
        }
    return false;
}

static bool read_bool(const char *value, bool *out)
{
    static const char *const words[2][4] = { { "false", "off", "no", "0" },
                                             { "true", "on", "yes", "1" } };

    for (int truth = 0; truth < 2; truth++)
        for (size_t i = 0; i < TUTTI_LENGTH(words[0]); i++)
            if (strcasecmp(value, words[truth][i]) == 0) {
                *out = truth;
                return true;
            }
    return false;
}

/* A switch that has got a third position still takes all the words of a switch: files
   and scripts of before have them.
 */
static bool read_choice(const char *choices, const char *value, int *out)
{
    bool truth;

    return find_choice(choices, value, out) ||
           (read_bool(value, &truth) && find_choice(choices, truth ? "on" : "off", out));
}

/* ---- parsing ---- */

/* Prints what is allowed, to follow "it must be ". `form`: also which kind of number. */
static void print_allowed(const tutti_option *option, bool form, char *out, size_t bytes)
{
    char low[80], high[80];
    const char *rest = option->text, *choice;
    size_t length, used = 0;

    out[0] = '\0';
    switch (option->type) {
    case TUTTI_INT:
    case TUTTI_REAL:
        tutti_base_print_bound(option, option->min, low, sizeof low);
        tutti_base_print_bound(option, option->max, high, sizeof high);
        snprintf(out, bytes, "%sfrom %s to %s",
                 !form                       ? ""
                 : option->type == TUTTI_INT ? "a whole number "
                                             : "a number ",
                 low, high);
        break;
    case TUTTI_BOOL:
        snprintf(out, bytes, "true or false");
        break;
    case TUTTI_CHOICE:
        for (bool first = true;
             used < bytes && tutti_base_next_choice(&rest, &choice, &length); first = false)
            used += (size_t)snprintf(out + used, bytes - used, "%s%.*s",
                                     first          ? ""
                                     : rest != NULL ? ", "
                                                    : " or ",
                                     (int)length, choice);
        break;
    case TUTTI_TEXT:
    case TUTTI_SPEC:
        break;
    }
}

/* The subject of a sentence about the value: "run.yaml:1: option 'batch'". A flag and
   a variable are the option's name
 * themselves: "--batch". */
typedef struct { char text[256]; } subject_of_value;

static subject_of_value subject(const tutti_option *option, const char *what)
{
    const size_t name = strlen(option->name), bytes = strlen(what);
    subject_of_value s;
    bool same = bytes > name && !isalnum((unsigned char)what[bytes - name - 1]);

    for (size_t i = 0; same && i < name; i++) {
        const char c = what[bytes - name + i];
        same = c == '_' || c == '-' ? option->name[i] == '_' || option->name[i] == '-'
                                    : tolower((unsigned char)c) == option->name[i];
    }
    if (same)
        snprintf(s.text, sizeof s.text, "%s", what);
    else
        snprintf(s.text, sizeof s.text, "%s: option '%s'", what, option->name);
    return s;
}

/* quotes: "'" round a value that has not even the form, "" round a number out of range. */
static tutti_status fail_value(const tutti_option *option, const char *what, const char *value,
                               bool form, tutti_error *err)
{
    const bool help = option->help != NULL && option->help[0] != '\0';
    char allowed[256], hint[128] = "";

    if (err == NULL)
        return TUTTI_ERR_USAGE;
    print_allowed(option, form, allowed, sizeof allowed);
    if (option->type == TUTTI_CHOICE) {
        tutti_base_near near = { .name = value };
        const char *rest = option->text, *choice;
        size_t bytes;

        while (tutti_base_next_choice(&rest, &choice, &bytes))
            tutti_base_near_offer(&near, choice, bytes);
        tutti_base_near_print(&near, hint, sizeof hint);
    }
    return tutti_fail(err, TUTTI_ERR_USAGE, 0, "%s is %s%s%s; it must be %s%s%s%s%s",
                      subject(option, what).text, form ? "'" : "", tutti_base_show(value).text,
                      form ? "'" : "", allowed, help ? " (" : "", help ? option->help : "",
                      help ? ")" : "", hint);
}

/* Exact also where a double cannot hold the integer. */
static bool integer_within(int64_t value, double min, double max)
{
    return (min < -0x1p63 || (min < 0x1p63 && value >= (int64_t)ceil(min)))
        && (max >= 0x1p63 || (max >= -0x1p63 && value <= (int64_t)floor(max)));
}

/* Reads a number, and checks its bounds. */
static tutti_status parse_number(const tutti_option *option, const char *what, const char *value,
                                 tutti_base_value *out, tutti_error *err)
{
    bool huge;

    if (option->type == TUTTI_INT) {
        if (!tutti_base_read_integer(value, &out->integer, &huge))
            return fail_value(option, what, value, true, err);
        if (huge || !integer_within(out->integer, option->min, option->max))
            return fail_value(option, what, value, false, err);
        return TUTTI_OK;
    }
    if (!tutti_base_read_real(value, &out->real))
        return fail_value(option, what, value, true, err);
    if (!isfinite(out->real) || out->real < option->min || out->real > option->max)
        return fail_value(option, what, value, false, err);
    return TUTTI_OK;
}

tutti_status tutti_base_option_parse(const tutti_option *option, const char *what,
                                     const char *value, tutti_base_value *out, tutti_error *err)
{
    *out = tutti_base_option_initial(option);
    switch (option->type) {
    case TUTTI_INT:
    case TUTTI_REAL:
        return parse_number(option, what, value, out, err);
    case TUTTI_BOOL:
        if (!read_bool(value, &out->truth))
            return fail_value(option, what, value, true, err);
        break;
    case TUTTI_CHOICE:
        if (!read_choice(option->text, value, &out->choice))
            return fail_value(option, what, value, true, err);
        break;
    case TUTTI_TEXT:
        out->text = value;
        break;
    case TUTTI_SPEC:
        /* "" means "none", where the table itself has it; so does the word, which is what it is
           shown as. */
        if (out->text[0] == '\0' && strcmp(value, "none") == 0)
            value = "";
        if (value[0] != '\0' || out->text[0] != '\0')
            TUTTI_TRY(tutti_fail_within(err, tutti_base_spec_check(value, err), "%s",
                                        subject(option, what).text));
        out->text = value;
        break;
    }
    return TUTTI_OK;
}

/* ---- where an option has an effect ---- */

static bool is_default(const tutti_option *option, const void *self)
{
    const tutti_base_value now = tutti_base_option_stored(option, self);
    const tutti_base_value then = tutti_base_option_initial(option);

    switch (option->type) {
    case TUTTI_INT:    return now.integer == then.integer;
    case TUTTI_REAL:   return now.real == then.real;
    case TUTTI_BOOL:   return now.truth == then.truth;
    case TUTTI_CHOICE: return now.choice == then.choice;
    case TUTTI_TEXT:
    case TUTTI_SPEC:   break;
    }
    return strcmp(now.text, then.text) == 0;
}

/* Is it the value that `text` means? */
static bool is_value(const tutti_option *option, const char *text, const tutti_base_value *value)
{
    double number;
    int index;
    bool truth;

    switch (option->type) {
    case TUTTI_INT:
        return tutti_base_read_real(text, &number) && (double)value->integer == number;
    case TUTTI_REAL:
        return tutti_base_read_real(text, &number) && value->real == number;
    case TUTTI_BOOL:   return read_bool(text, &truth) && truth == value->truth;
    case TUTTI_CHOICE: return read_choice(option->text, text, &index) && index == value->choice;
    case TUTTI_TEXT:
    case TUTTI_SPEC:   break;
    }
    /* a value that was not given is also shown as none */
    return strcmp(text, value->text[0] != 0 ? value->text : "none") == 0;
}

/* One condition, "name=a|b" or "name>number"; *on: the option that it is about. */
static bool holds(const tutti_option *options, const char *condition, size_t bytes,
                  const void *self, const tutti_option **on)
{
    const size_t name = strcspn(condition, "=>");
    char word[64], wanted[64];
    tutti_base_value value;
    double least;

    snprintf(word, sizeof word, "%.*s", (int)name, condition);
    snprintf(wanted, sizeof wanted, "%.*s", (int)(bytes - name - 1), condition + name + 1);
    *on = tutti_option_find(options, word);
    assert(*on != NULL);
    value = tutti_base_option_stored(*on, self);
    if (condition[name] == '>') {
        const bool number = tutti_base_read_real(wanted, &least);
        assert(number);
        (void)number;
        return ((*on)->type == TUTTI_INT ? (double)value.integer : value.real) > least;
    }
    for (const char *rest = wanted, *choice = NULL;
         tutti_base_next_choice(&rest, &choice, &bytes);) {
        char one[64];
        snprintf(one, sizeof one, "%.*s", (int)bytes, choice);
        if (is_value(*on, one, &value))
            return true;
    }
    return false;
}

const char *tutti_base_next_condition(const char *at)
{
    const char *joined = strchr(at, '&');

    return joined != NULL ? joined + 1 : NULL;
}

bool tutti_option_holds(const tutti_option *options, const char *when, const void *self)
{
    const tutti_option *on;

    for (const char *at = when; at != NULL; at = tutti_base_next_condition(at))
        if (!holds(options, at, strcspn(at, "&"), self, &on))
            return false;
    return true;
}

tutti_status tutti_base_option_has_effect(const tutti_option *options, const tutti_option *option,
                                          const char *what, const void *self, tutti_error *err)
{
    const tutti_option *on;
    char now[80];

    if (option->when == NULL || is_default(option, self))
        return TUTTI_OK;
    for (const char *at = option->when; at != NULL; at = tutti_base_next_condition(at)) {
        const size_t bytes = strcspn(at, "&");
        if (holds(options, at, bytes, self, &on))
            continue;
        tutti_option_print(on, self, now, sizeof now);
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "%s: option '%s' has no effect with %s=%s; it needs %.*s, or omit it",
                          what, option->name, on->name, now, (int)bytes, at);
    }
    return TUTTI_OK;
}

tutti_status tutti_option_set(const tutti_option *option, const char *what, const char *value,
                              void *self, tutti_error *err)
{
    tutti_base_value parsed;

    TUTTI_TRY(tutti_base_option_parse(option, what, value, &parsed, err));
    tutti_base_option_store(option, &parsed, self);
    return TUTTI_OK;
}

tutti_status tutti_base_option_unknown(const tutti_option *options, const char *what,
                                       const char *kind, const char *name, tutti_error *err)
{
    tutti_base_near near = { .name = name };
    char hint[256];
    size_t used = 0;

    if (err == NULL)
        return TUTTI_ERR_USAGE;
    for (const tutti_option *o = options; o != NULL && o->name != NULL; o++)
        tutti_base_near_offer(&near, o->name, strlen(o->name));
    tutti_base_near_print(&near, hint, sizeof hint);
    if (near.count == 0) {
        used = (size_t)snprintf(hint, sizeof hint, "%s",
                                options == NULL || options->name == NULL ? "; there are none"
                                                                         : "; there are ");
        for (const tutti_option *o = options; o != NULL && o->name != NULL && used < sizeof hint;
             o++)
            used += (size_t)snprintf(hint + used, sizeof hint - used, "%s%s",
                                     o == options        ? ""
                                     : o[1].name != NULL ? ", "
                                                         : " and ",
                                     o->name);
    }
    return tutti_fail(err, TUTTI_ERR_USAGE, 0, "%s: unknown %s '%s'%s", what, kind,
                      tutti_base_show(name).text, hint);
}
