/* options.c: values of options: defaults, parsing with a sentence that states what is allowed,
   printing. Numbers are read and written with '.' whatever the locale of the process: the library
   may live in a program that has set one. */
#include "base_internal.h"
#include "options.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
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

static tutti_base_value initial_value(const tutti_option *option)
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

static tutti_base_value stored_value(const tutti_option *option, const void *self)
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
        const tutti_base_value value = initial_value(options);
        tutti_base_option_store(options, &value, self);
    }
}

/* ---- numbers ---- */

/* newlocale() with "C" gives glibc's constant object: no memory, nothing to fail. */
static locale_t plain_locale(void)
{
    return uselocale(newlocale(LC_ALL_MASK, "C", (locale_t)0));
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static const char *skip_digits(const char *p)
{
    while (is_digit(*p))
        p++;
    return p;
}

/* [+-]digits; `huge` if it does not fit: it is a number then, though out of every range. */
static bool read_integer(const char *text, int64_t *out, bool *huge)
{
    const char *digits = text + (*text == '-' || *text == '+');
    const int kept = errno;
    long long value;

    if (!is_digit(*digits) || *skip_digits(digits) != '\0')
        return false;
    errno = 0;
    value = strtoll(text, NULL, 10);
    *huge = errno == ERANGE;
    errno = kept;
    *out = value;
    return true;
}

/* [+-]digits[.digits][e[+-]digits], with a digit on one side of the point. strtod() alone would
   take hexadecimal, infinities, NaN and leading white space. */
static bool read_real(const char *text, double *out)
{
    const char *p = text + (*text == '-' || *text == '+'), *digits = p;
    const int kept = errno;
    size_t count;
    locale_t before;

    p = skip_digits(p);
    count = (size_t)(p - digits);
    if (*p == '.') {
        digits = ++p;
        p = skip_digits(p);
        count += (size_t)(p - digits);
    }
    if (count == 0)
        return false;
    if (*p == 'e' || *p == 'E') {
        p++;
        p += *p == '-' || *p == '+';
        if (!is_digit(*p))
            return false;
        p = skip_digits(p);
    }
    if (*p != '\0')
        return false;
    before = plain_locale();
    *out = strtod(text, NULL);
    uselocale(before);
    errno = kept;
    return true;
}

int tutti_option_positives(const char *text, double *values, int room)
{
    int n = 0;

    for (const char *at = text; *at != '\0'; n++) {
        const size_t length = strcspn(at, ":");
        char one[64];
        double value;
        if (length >= sizeof one || (at[length] == ':' && at[length + 1] == '\0'))
            return -1;
        memcpy(one, at, length);
        one[length] = '\0';
        if (!read_real(one, &value) || !(value > 0 && value <= 1e9))
            return -1;
        if (n < room)
            values[n] = value;
        at += length + (at[length] == ':');
    }
    return n;
}

int tutti_base_print_real(double value, char out[TUTTI_BASE_REAL_BYTES])
{
    const locale_t before = plain_locale();
    int digits = 1, exponent, length;
    char *e;

    if (!isfinite(value)) {
        length = snprintf(out, TUTTI_BASE_REAL_BYTES, "%s",
                          isnan(value) ? "nan"
                          : value > 0  ? "inf"
                                       : "-inf");
        uselocale(before);
        return length;
    }
    for (;; digits++) { /* 17 digits always suffice (IEEE 754-2008, 5.12.2) */
        length = snprintf(out, TUTTI_BASE_REAL_BYTES, "%.*e", digits - 1, value);
        if (digits == 17 || strtod(out, NULL) == value)
            break;
    }
    e = strchr(out, 'e');
    exponent = atoi(e + 1);
    if (exponent >= -4 && exponent < 16)
        length = snprintf(out, TUTTI_BASE_REAL_BYTES, "%.*f",
                          digits - 1 > exponent ? digits - 1 - exponent : 0, value);
    else /* "1e-09" is written "1e-9" */
        length = (int)(e - out) +
                 snprintf(e, TUTTI_BASE_REAL_BYTES - (size_t)(e - out), "e%d", exponent);
    uselocale(before);
    return length;
}

/* ---- choices: "a|b|c" ---- */

/* The next choice of *rest; false after the last. */
static bool next_choice(const char **rest, const char **choice, size_t *bytes)
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

    for (int i = 0; next_choice(&choices, &choice, &bytes); i++)
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

/* A bound as a person would write it: 1e9, and not 9.5367431640625e-7 but 9.54e-7 (rounded up, so
   that it is allowed); of a size in MiB with its bytes. */
static void print_bound(const tutti_option *option, double value, char *out, size_t bytes)
{
    const size_t name = strlen(option->name);
    char text[TUTTI_BASE_REAL_BYTES];
    size_t used;

    if (tutti_base_print_real(value, text) > 10 && value > 0 && value < 1) {
        const double unit = pow(10, floor(log10(value)) - 2);
        tutti_base_print_real(value, text);
        for (double digits = ceil(value / unit);; digits++) {
            char rounded[32];
            const locale_t before = plain_locale();
            snprintf(rounded, sizeof rounded, "%.2e", digits * unit);
            uselocale(before);
            if (read_real(rounded, &value) && value >= option->min)
                break;
        }
        tutti_base_print_real(value, text);
    }
    used = (size_t)snprintf(out, bytes, "%s", text);
    if (used < bytes && name > 3 && strcmp(option->name + name - 3, "_mb") == 0 && value > 0 &&
        value < 1.0 / 1024)
        snprintf(out + used, bytes - used, " (%.0f byte%s)", floor(value * 1048576),
                 value * 1048576 < 2 ? "" : "s");
}

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
        print_bound(option, option->min, low, sizeof low);
        print_bound(option, option->max, high, sizeof high);
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
        for (bool first = true; used < bytes && next_choice(&rest, &choice, &length); first = false)
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

        while (next_choice(&rest, &choice, &bytes))
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
        if (!read_integer(value, &out->integer, &huge))
            return fail_value(option, what, value, true, err);
        if (huge || !integer_within(out->integer, option->min, option->max))
            return fail_value(option, what, value, false, err);
        return TUTTI_OK;
    }
    if (!read_real(value, &out->real))
        return fail_value(option, what, value, true, err);
    if (!isfinite(out->real) || out->real < option->min || out->real > option->max)
        return fail_value(option, what, value, false, err);
    return TUTTI_OK;
}

tutti_status tutti_base_option_parse(const tutti_option *option, const char *what,
                                     const char *value, tutti_base_value *out, tutti_error *err)
{
    *out = initial_value(option);
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
    const tutti_base_value now = stored_value(option, self), then = initial_value(option);

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
    case TUTTI_INT:    return read_real(text, &number) && (double)value->integer == number;
    case TUTTI_REAL:   return read_real(text, &number) && value->real == number;
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
    value = stored_value(*on, self);
    if (condition[name] == '>') {
        const bool number = read_real(wanted, &least);
        assert(number);
        (void)number;
        return ((*on)->type == TUTTI_INT ? (double)value.integer : value.real) > least;
    }
    for (const char *rest = wanted, *choice = NULL; next_choice(&rest, &choice, &bytes);) {
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

/* ---- printing: as snprintf, lengths count what does not fit too ---- */

typedef struct { char *out; size_t bytes, used; } writer;

static void write_text(writer *w, const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++, w->used++)
        if (w->used + 1 < w->bytes)
            w->out[w->used] = text[i];
}

static void put_text(writer *w, const char *text)
{
    write_text(w, text, strlen(text));
}

static int put_end(writer *w)
{
    if (w->bytes > 0)
        w->out[w->used < w->bytes ? w->used : w->bytes - 1] = '\0';
    return (int)w->used;
}

/* A value that a spec would not read back as it stands is written in double quotes: one with blanks
   at its ends or with one of the characters `syntax`. */
static void put_quoted(writer *w, const char *text, const char *syntax)
{
    static const char blanks[] = " \t\r\n";
    const size_t bytes = strlen(text);

    if (bytes == 0 || (strpbrk(text, syntax) == NULL && strchr(blanks, text[0]) == NULL &&
                       strchr(blanks, text[bytes - 1]) == NULL)) {
        write_text(w, text, bytes);
        return;
    }
    write_text(w, "\"", 1);
    for (; *text != '\0'; text++) {
        if (*text == '"' || *text == '\\')
            write_text(w, "\\", 1);
        write_text(w, text, 1);
    }
    write_text(w, "\"", 1);
}

static void put_value(writer *w, const tutti_option *option, const tutti_base_value *value)
{
    const char *rest = option->text, *choice;
    char number[TUTTI_BASE_REAL_BYTES];
    size_t bytes;

    switch (option->type) {
    case TUTTI_INT:
        snprintf(number, sizeof number, "%" PRId64, value->integer);
        put_text(w, number);
        break;
    case TUTTI_REAL:
        tutti_base_print_real(value->real, number);
        put_text(w, number);
        break;
    case TUTTI_BOOL:
        put_text(w, value->truth ? "true" : "false");
        break;
    case TUTTI_CHOICE:
        for (int i = 0; next_choice(&rest, &choice, &bytes); i++)
            if (i == value->choice)
                write_text(w, choice, bytes);
        break;
    case TUTTI_TEXT:
        put_quoted(w, value->text, ",()\"");
        break;
    case TUTTI_SPEC: /* its own syntax balances */
        put_quoted(w, value->text, "");
        break;
    }
}

int tutti_option_print(const tutti_option *option, const void *self, char *out, size_t bytes)
{
    const tutti_base_value value = stored_value(option, self);
    writer w = { out, bytes, 0 };

    put_value(&w, option, &value);
    return put_end(&w);
}

static bool same_value(const tutti_option *option, const tutti_base_value *a,
                       const tutti_base_value *b)
{
    switch (option->type) {
    case TUTTI_INT:    return a->integer == b->integer;
    case TUTTI_REAL:   return a->real == b->real && signbit(a->real) == signbit(b->real);
    case TUTTI_BOOL:   return a->truth == b->truth;
    case TUTTI_CHOICE: return a->choice == b->choice;
    case TUTTI_TEXT:
    case TUTTI_SPEC:   return strcmp(a->text, b->text) == 0;
    }
    return false;
}

int tutti_spec_print(const char *name, const tutti_option *options, const void *self, char *out,
                     size_t bytes)
{
    const char *before = "(";
    writer w = { out, bytes, 0 };

    put_text(&w, name);
    for (const tutti_option *o = options; o != NULL && o->name != NULL; o++) {
        const tutti_base_value value = stored_value(o, self), initial = initial_value(o);

        if (same_value(o, &value, &initial))
            continue;
        put_text(&w, before);
        for (const char *c = o->name; *c != '\0'; c++)
            write_text(&w, *c == '-' ? "_" : c, 1);
        put_text(&w, "=");
        put_value(&w, o, &value);
        before = ",";
    }
    if (before[0] == ',')
        put_text(&w, ")");
    return put_end(&w);
}
