/* spec.c: the grammar of specs.

       spec   = name [ "(" [ arg { "," arg } ] ")" ]
       arg    = [ name "=" ] value
       value  = quoted | text in which brackets balance, without "," outside of them
       quoted = '"' { any character, '\' before '"' and '\' } '"'
       name   = letter { letter | digit | "_" | "-" | "." }

   A value is kept as text: its meaning is that of its option. A value that is itself a spec is
   read when its owner opens it. So only one level is taken apart at a time; inside it, only
   brackets and quotes are counted. A quote has its meaning only where a value can begin (after
   "(", "," or "="). That holds at every level, so inner and outer reading agree on what is text.

   The reader below takes one argument after the other and allocates nothing. It runs once to check
   and count, then once more to fill a spec, which is one allocation: the struct, its arguments,
   then their text. */
#include "base_internal.h"
#include "options.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

enum { SPEC_BYTES = 4096, SPEC_LEVELS = 16 };

struct tutti_spec {
    const char *name;
    size_t count;
    struct spec_arg { const char *key, *value; } args[]; /* key NULL: by position */
};

typedef struct {
    const char *text, *p;    /* p: the next byte to read */
    size_t count;            /* args read */
    bool keyed, end;
    const char *name, *key, *value; /* of the arg read last; key NULL: by position */
    size_t name_bytes, key_bytes, value_bytes;
    bool quoted;             /* value has escapes */
} reader;

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool is_name(char c)
{
    return is_letter(c) || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.';
}

static void skip_blanks(reader *r)
{
    while (is_blank(*r->p))
        r->p++;
}

static size_t position(const reader *r) /* bytes are counted from 1 for people */
{
    return (size_t)(r->p - r->text) + 1;
}

static tutti_status fail_end(const reader *r, const char *missing, tutti_error *err)
{
    return tutti_fail(err, TUTTI_ERR_USAGE, 0, "spec '%s': missing '%s' at the end",
                      tutti_base_show(r->text).text, missing);
}

/* Skips from an opening quote to after the closing one. */
static tutti_status skip_quoted(reader *r, tutti_error *err)
{
    for (r->p++; *r->p != '"'; r->p++) {
        if (*r->p == '\\' && r->p[1] != '\0')
            r->p++;
        else if (*r->p == '\0')
            return fail_end(r, "\"", err);
    }
    r->p++;
    return TUTTI_OK;
}

/* Reads a value in quotes; p stands at the first one. */
static tutti_status read_quoted(reader *r, tutti_error *err)
{
    TUTTI_TRY(skip_quoted(r, err));
    r->value++;
    r->value_bytes = (size_t)(r->p - r->value) - 1;
    skip_blanks(r);
    if (*r->p != '\0' && *r->p != ',' && *r->p != ')')
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "spec '%s': text after the closing quote at byte %zu; put ',' or ')' there",
            tutti_base_show(r->text).text, position(r));
    return *r->p == '\0' ? fail_end(r, ")", err) : TUTTI_OK;
}

/* Ends the value at p, without the blanks before it. */
static void end_value(reader *r)
{
    r->value_bytes = (size_t)(r->p - r->value);
    while (r->value_bytes > 0 && is_blank(r->value[r->value_bytes - 1]))
        r->value_bytes--;
}

/* p stands at the first byte of the value; afterwards at the "," or ")" behind it. */
static tutti_status read_value(reader *r, tutti_error *err)
{
    size_t level = 1; /* the bracket we are in */
    char before = '=';

    r->value = r->p;
    r->quoted = *r->p == '"';
    if (r->quoted)
        return read_quoted(r, err);
    while (level > 1 || (*r->p != ',' && *r->p != ')')) {
        const char c = *r->p;

        if (c == '\0')
            return fail_end(r, ")", err);
        if (c == '"' && (before == '(' || before == ',' || before == '=')) {
            TUTTI_TRY(skip_quoted(r, err));
            before = c;
            continue;
        }
        if (c == '(' && ++level > SPEC_LEVELS)
            return tutti_fail(
                err, TUTTI_ERR_USAGE, 0,
                "spec '%s': more than %d levels of brackets at byte %zu; nest less deeply",
                tutti_base_show(r->text).text, SPEC_LEVELS, position(r));
        if (c == ')')
            level--;
        if (!is_blank(c))
            before = c;
        r->p++;
    }
    end_value(r);
    return TUTTI_OK;
}

/* Reads the next arg and what follows it; `end` after the last. */
static tutti_status read_arg(reader *r, tutti_error *err)
{
    const char *start;

    skip_blanks(r);
    start = r->p;
    while (is_name(*r->p))
        r->p++;
    r->key = start;
    r->key_bytes = (size_t)(r->p - start);
    skip_blanks(r);
    if (*r->p == '=') {
        if (r->key_bytes == 0)
            return tutti_fail(
                err, TUTTI_ERR_USAGE, 0,
                "spec '%s': no option name before '=' at byte %zu; write name(key=value,...)",
                tutti_base_show(r->text).text, position(r));
        r->p++;
        skip_blanks(r);
    } else {
        r->key = NULL;
        r->key_bytes = 0;
        r->p = start;
    }

    TUTTI_TRY(read_value(r, err));
    r->count++;
    if (r->key == NULL && r->value_bytes == 0 && !r->quoted)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "spec '%s': argument %zu is empty at byte %zu; remove the ',' or give a value",
            tutti_base_show(r->text).text, r->count, position(r));
    if (r->key == NULL && r->keyed)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "spec '%s': argument %zu ('%s') has no name but follows one that has; write key=value",
            tutti_base_show(r->text).text, r->count,
            tutti_base_show_span(r->value, r->value_bytes).text);
    r->keyed = r->key != NULL;

    if (*r->p == ')')
        r->end = true;
    r->p++;
    return TUTTI_OK;
}

/* Reads the name and, if it has arguments, what comes before the first. */
static tutti_status read_name(reader *r, tutti_error *err)
{
    skip_blanks(r);
    if (*r->p == '\0')
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "spec '%s' is empty; write a name or name(key=value,...)",
                          tutti_base_show(r->text).text);
    if (!is_letter(*r->p))
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "spec '%s': a name must begin with a letter (byte %zu); write name(key=value,...)",
            tutti_base_show(r->text).text, position(r));
    r->name = r->p;
    while (is_name(*r->p))
        r->p++;
    r->name_bytes = (size_t)(r->p - r->name);
    skip_blanks(r);
    if (*r->p == '\0') {
        r->end = true;
        return TUTTI_OK;
    }
    if (*r->p != '(')
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "spec '%s': unexpected text after the name at byte %zu; write name(key=value,...)",
            tutti_base_show(r->text).text, position(r));
    r->p++;
    skip_blanks(r);
    if (*r->p == ')') {
        r->end = true;
        r->p++;
    }
    return TUTTI_OK;
}

/* Reads the whole of `text`, which leaves in r the name and the count. */
static tutti_status parse_text(reader *r, const char *text, tutti_error *err)
{
    *r = (reader){ .text = text, .p = text };
    if (strnlen(text, SPEC_BYTES + 1) > SPEC_BYTES)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "spec '%s' is longer than %d bytes; shorten it",
                          tutti_base_show(text).text, SPEC_BYTES);
    TUTTI_TRY(read_name(r, err));
    while (!r->end)
        TUTTI_TRY(read_arg(r, err));
    skip_blanks(r);
    if (*r->p != '\0')
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "spec '%s': text after the closing ')' at byte %zu; remove it",
                          tutti_base_show(text).text, position(r));
    return TUTTI_OK;
}

tutti_status tutti_base_spec_check(const char *text, tutti_error *err)
{
    reader r;

    return parse_text(&r, text, err);
}

/* Copies a token to *at, ends it with 0 and steps on. */
static const char *keep(char **at, const char *text, size_t bytes, bool escapes)
{
    const char *start = *at;

    for (size_t i = 0; i < bytes; i++) {
        if (escapes && text[i] == '\\' && i + 1 < bytes)
            i++;
        *(*at)++ = text[i];
    }
    *(*at)++ = '\0';
    return start;
}

tutti_status tutti_spec_open(tutti_spec **out, const char *text, tutti_error *err)
{
    /* each token has a byte of syntax behind it, or the end: so their zeros fit */
    size_t bytes = strlen(text) + 1;
    char *at;
    tutti_spec *spec;
    reader r;

    *out = NULL;
    TUTTI_TRY(parse_text(&r, text, err));
    /* small: the text has at most 4096 bytes */
    spec = tutti_alloc(1, sizeof *spec + r.count * sizeof spec->args[0] + bytes);
    if (spec == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening spec '%s'",
                          tutti_base_show(text).text);
    at = (char *)&spec->args[r.count];
    r = (reader){ .text = text, .p = text };
    (void)read_name(&r, NULL); /* neither can fail now */
    spec->name = keep(&at, r.name, r.name_bytes, false);
    while (!r.end) {
        (void)read_arg(&r, NULL);
        spec->args[spec->count].key = r.key == NULL ? NULL : keep(&at, r.key, r.key_bytes, false);
        spec->args[spec->count].value = keep(&at, r.value, r.value_bytes, r.quoted);
        spec->count++;
    }
    assert((size_t)(at - (char *)&spec->args[spec->count]) <= bytes);
    *out = spec;
    return TUTTI_OK;
}

void tutti_spec_close(tutti_spec *spec)
{
    tutti_free(spec);
}

const char *tutti_spec_name(const tutti_spec *spec)
{
    return spec->name;
}

size_t tutti_spec_count(const tutti_spec *spec)
{
    return spec->count;
}

/* The options that a spec may set. */
typedef struct accepted {
    const tutti_option *options;
    size_t n;
} accepted;

/* The option that arg i sets. */
static tutti_status find_option(const tutti_spec *spec, size_t i, const char *what,
                                const accepted *of, const tutti_option **out, tutti_error *err)
{
    const tutti_option *options = of->options;
    const size_t options_count = of->n;
    const char *key = spec->args[i].key;

    *out = NULL;
    if (key == NULL) {
        if (i >= options_count)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "%s: argument %zu ('%s') is one too many; it takes at most %zu", what,
                              i + 1, tutti_base_show(spec->args[i].value).text, options_count);
        *out = &options[i];
        return TUTTI_OK;
    }
    *out = tutti_option_find(options, key);
    return *out != NULL ? TUTTI_OK : tutti_base_option_unknown(options, what, "option", key, err);
}

static size_t count_of(const tutti_option *options)
{
    size_t n = 0;

    while (options != NULL && options[n].name != NULL)
        n++;
    return n;
}

const tutti_option *tutti_spec_arg(const tutti_spec *spec, const tutti_option *options, size_t i,
                                   const char **value)
{
    const tutti_option *option;

    *value = spec->args[i].value;
    (void)find_option(spec, i, "", &(accepted){ options, count_of(options) }, &option, NULL);
    return option;
}

tutti_status tutti_spec_apply(const tutti_spec *spec, const char *what, const tutti_option *options,
                              void *self, tutti_error *err)
{
    const size_t options_count = count_of(options);

    tutti_options_default(options, self);
    for (size_t i = 0; i < spec->count; i++) {
        const tutti_option *option, *earlier;

        TUTTI_TRY(find_option(spec, i, what, &(accepted){ options, options_count }, &option, err));
        /* Quadratic, but an arg that is not a repetition has an option of its
           own: i stays below options_count. */
        for (size_t j = 0; j < i; j++) {
            TUTTI_TRY(
                find_option(spec, j, what, &(accepted){ options, options_count }, &earlier, err));
            if (earlier == option)
                return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                                  "%s: option '%s' is given twice, as '%s' and as '%s'; keep one",
                                  what, option->name, tutti_base_show(spec->args[j].value).text,
                                  tutti_base_show(spec->args[i].value).text);
        }
        TUTTI_TRY(tutti_option_set(option, what, spec->args[i].value, self, err));
    }
    for (size_t i = 0; i < spec->count; i++) {
        const tutti_option *option;
        TUTTI_TRY(find_option(spec, i, what, &(accepted){ options, options_count }, &option, err));
        TUTTI_TRY(tutti_base_option_has_effect(options, option, what, self, err));
    }
    return TUTTI_OK;
}
