/* option_print.c: options and specs as text. Lengths count what does not fit, too, as those of
   snprintf. */
#include "base_internal.h"
#include "options.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

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
        for (int i = 0; tutti_base_next_choice(&rest, &choice, &bytes); i++)
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
    const tutti_base_value value = tutti_base_option_stored(option, self);
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
        const tutti_base_value value = tutti_base_option_stored(o, self);
        const tutti_base_value initial = tutti_base_option_initial(o);

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
