/* defaults.c: what the run's own options are under a method, where nobody has said anything. A
   method writes them as rows that a reader can scan; what grows or shrinks with the workers is a
   number with /n behind it, "sgd(lr=0.1/n)". */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "tutti/method.h"

/* Bytes of the number that `at` begins with, if "/n" follows it; else 0. */
static size_t over_n(const char *at)
{
    const size_t digits = strspn(at, "0123456789."), end = digits + 2;

    return digits > 0 && at[digits] == '/' && at[digits + 1] == 'n' && !isalnum((unsigned char)at[end]) ? digits : 0;
}

/* "0.2" and 4: "0.05". In no locale, since it is read again as an option is. */
static void divide(const char *number, size_t digits, int workers, char *out, size_t bytes)
{
    static const tutti_option option = {
        .name = "number", .type = TUTTI_REAL, .max = 1e30, .help = "over the workers"
    };
    char text[32];
    double value = 0;

    snprintf(text, sizeof text, "%.*s", (int)digits, number);
    tutti_option_set(&option, "default", text, &value, NULL); /* digits and a point: it is one */
    value /= workers;
    tutti_option_print(&option, &value, out, bytes);
}

bool tutti_method_default_of(const tutti_method_ops *ops, const char *option, int workers,
                             char value[TUTTI_METHOD_DEFAULT_BYTES])
{
    const tutti_method_default *row = ops->defaults;
    size_t used = 0;
    bool inside = false; /* a name or a number has begun before this character */

    while (row != NULL && row->option != NULL && strcmp(row->option, option) != 0)
        row++;
    if (row == NULL || row->option == NULL)
        return false;
    for (const char *at = row->value; *at != 0 && used + 40 < TUTTI_METHOD_DEFAULT_BYTES;) {
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
    return true;
}
