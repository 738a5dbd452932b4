/* table.c: checks that a table of options is consistent (tutti_options_check). If its author has
   forgotten a member, values would be written beyond the struct, or a default would be a value that
   is not allowed. */
#include "base_internal.h"
#include "options.h"

#include <ctype.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

enum { NAME_BYTES = 63 }; /* the longest name that fits into `when` */

typedef struct table {
    const tutti_option *options;
    const char *what;
    size_t self_bytes;
} table;

#define WRONG(t, o, format, ...) \
    tutti_fail(err, TUTTI_ERR_STATE, 0, "%s: option '%s' of its table " format, (t)->what, \
               tutti_base_show((o)->name).text, __VA_ARGS__)

bool tutti_base_is_name(const char *text)
{
    size_t n = 0;

    if (text == NULL || !((text[0] >= 'a' && text[0] <= 'z') || (text[0] >= 'A' && text[0] <= 'Z')))
        return false;
    while (text[n] != 0 && (isalnum((unsigned char)text[n]) || strchr("_-.", text[n]) != NULL))
        n++;
    return text[n] == 0 && n <= NAME_BYTES;
}

static size_t bytes_of(tutti_option_type type)
{
    switch (type) {
    case TUTTI_INT:    return sizeof(int64_t);
    case TUTTI_REAL:   return sizeof(double);
    case TUTTI_BOOL:   return sizeof(bool);
    case TUTTI_CHOICE: return sizeof(int);
    case TUTTI_TEXT:
    case TUTTI_SPEC:   return sizeof(const char *);
    }
    return 0;
}

/* Each has a place of its own within the struct. */
static tutti_status check_place(const table *t, const tutti_option *o, tutti_error *err)
{
    const size_t bytes = bytes_of(o->type);

    if (bytes == 0)
        return WRONG(t, o, "has type %d, which is none; take one of TUTTI_INT to TUTTI_SPEC",
                     (int)o->type);
    if (t->self_bytes == 0)
        return WRONG(
            t, o, "%s",
            "is to be written to a struct of 0 bytes; set .self_bytes to the size of the struct");
    if (o->offset > t->self_bytes || bytes > t->self_bytes - o->offset)
        return WRONG(t, o,
                     "is to be written to bytes %zu to %zu of a struct of %zu bytes; set "
                     ".self_bytes to the size of the struct that its TUTTI_AT names",
                     o->offset, o->offset + bytes - 1, t->self_bytes);
    if (o->offset % bytes != 0)
        return WRONG(t, o,
                     "is to be written to byte %zu, where no %s can be; give its member's place "
                     "with TUTTI_AT",
                     o->offset, tutti_option_type_name(o->type));
    for (const tutti_option *p = t->options; p != o; p++) {
        if (tutti_base_same_name(p->name, o->name))
            return WRONG(t, o, "%s", "stands there twice; give one of them another name");
        if (o->offset < p->offset + bytes_of(p->type) && p->offset < o->offset + bytes)
            return WRONG(t, o,
                         "is written to the same member as '%s'; give each a member of its own",
                         p->name);
    }
    return TUTTI_OK;
}

static int choices_in(const char *text)
{
    int n = 1;

    for (; *text != 0; text++)
        n += *text == '|';
    return n;
}

static tutti_status check_spec(const table *t, const tutti_option *o, tutti_error *err)
{
    tutti_error why = { .rank = -1 };

    if (o->text != NULL && o->text[0] != 0 && tutti_base_spec_check(o->text, &why) != TUTTI_OK)
        return WRONG(t, o, "has a default that is none: %.300s", why.text);
    return TUTTI_OK;
}

/* A default is a value that might have been given. */
static tutti_status check_default(const table *t, const tutti_option *o, tutti_error *err)
{
    char low[TUTTI_BASE_REAL_BYTES], high[TUTTI_BASE_REAL_BYTES], initial[TUTTI_BASE_REAL_BYTES];
    double min = o->min, max = o->max;

    if (o->type == TUTTI_TEXT)
        return TUTTI_OK;
    if (o->type == TUTTI_SPEC)
        return check_spec(t, o, err);
    if (o->type == TUTTI_BOOL) {
        min = 0;
        max = 1;
    } else if (o->type == TUTTI_CHOICE) {
        if (o->text == NULL || o->text[0] == 0)
            return WRONG(t, o, "%s", "is a choice of nothing; give its text, \"a|b\"");
        min = 0;
        max = choices_in(o->text) - 1;
    }
    tutti_base_print_real(min, low);
    tutti_base_print_real(max, high);
    tutti_base_print_real(o->initial, initial);
    if (!isfinite(min) || !isfinite(max) || min > max)
        return WRONG(t, o, "has bounds from %s to %s, which no value is within; give .min and .max",
                     low, high);
    if (!(o->initial >= min && o->initial <= max))
        return WRONG(t, o, "is %s by default, and it must be from %s to %s; give it a default or "
                     "bounds that agree", initial, low, high);
    if (o->type != TUTTI_REAL && o->initial != floor(o->initial))
        return WRONG(t, o, "is %s by default, which is no whole number", initial);
    return TUTTI_OK;
}

static bool is_condition(const tutti_option *options, const char *at, size_t bytes)
{
    const size_t name = strcspn(at, "=>&");
    const tutti_option *on = NULL;
    char word[NAME_BYTES + 1], wanted[NAME_BYTES + 1], *rest = wanted;
    bool sound =
        name > 0 && name <= NAME_BYTES && name + 1 < bytes && bytes - name - 1 <= NAME_BYTES;

    if (sound) {
        tutti_option number = { .name = "number", .type = TUTTI_REAL, .min = -1e300, .max = 1e300 };
        tutti_base_value value;
        memcpy(word, at, name);
        word[name] = 0;
        memcpy(wanted, at + name + 1, bytes - name - 1);
        wanted[bytes - name - 1] = 0;
        on = tutti_option_find(options, word);
        if (at[name] == '>')
            sound = on != NULL && (on->type == TUTTI_INT || on->type == TUTTI_REAL) &&
                    tutti_base_option_parse(&number, "", wanted, &value, NULL) == TUTTI_OK;
        else
            sound = on != NULL && (on->type != TUTTI_CHOICE || on->text != NULL);
        for (char *one; sound && at[name] == '=' && (one = strsep(&rest, "|")) != NULL;)
            sound = tutti_base_option_parse(on, "", one, &value, NULL) == TUTTI_OK;
    }
    return sound;
}

/* The first part of `when` that is none; NULL: there is none such. */
static const char *no_condition(const tutti_option *options, const char *when)
{
    for (const char *at = when; at != NULL; at = tutti_base_next_condition(at))
        if (!is_condition(options, at, strcspn(at, "&")))
            return at;
    return NULL;
}

bool tutti_option_is_condition(const tutti_option *options, const char *when)
{
    return no_condition(options, when) == NULL;
}

static tutti_status check_when(const table *t, const tutti_option *o, tutti_error *err)
{
    const char *at = no_condition(t->options, o->when);
    const size_t bytes = at != NULL ? strcspn(at, "&") : 0;

    return at == NULL ? TUTTI_OK
                      : WRONG(t, o,
                              "has an effect where '%.*s', which is no condition on an option of "
                              "this table; write \"switch=on\", \"choice=a|b\", \"text=word\", "
                              "\"number=0\" or \"number>0\"",
                              (int)(bytes < 80 ? bytes : 80), at);
}

tutti_status tutti_options_check(const tutti_option *options, const char *what, size_t self_bytes,
                                 tutti_error *err)
{
    const table t = { options, what, self_bytes };

    for (const tutti_option *o = options; o != NULL && o->name != NULL; o++) {
        if (!tutti_base_is_name(o->name))
            return WRONG(
                &t, o,
                "can never be given: a name has a letter, then letters, digits, '_', '-' and '.', "
                "at most %d in all",
                NAME_BYTES);
        TUTTI_TRY(check_place(&t, o, err));
        TUTTI_TRY(check_default(&t, o, err));
    }
    for (const tutti_option *o = options; o != NULL && o->name != NULL; o++)
        TUTTI_TRY(check_when(&t, o, err));
    return TUTTI_OK;
}
