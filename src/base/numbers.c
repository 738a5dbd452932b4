/* numbers.c: numbers of options as text. They are read and written with '.' whatever the locale of
   the process: the library may live in a program that has set one. */
#include "base_internal.h"
#include "numbers.h"

#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

bool tutti_base_read_integer(const char *text, int64_t *out, bool *huge)
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

/* Returns the end of [+-]digits[.digits][e[+-]digits] at the beginning of a text, with a digit on
   one side of the point; NULL: no number begins it. */
static const char *end_of_real(const char *text)
{
    const char *p = text + (*text == '-' || *text == '+'), *digits = p, *exponent;
    size_t count;

    p = skip_digits(p);
    count = (size_t)(p - digits);
    if (*p == '.') {
        digits = ++p;
        p = skip_digits(p);
        count += (size_t)(p - digits);
    }
    if (count == 0)
        return NULL;
    if (*p != 'e' && *p != 'E')
        return p;
    exponent = p + 1;
    exponent += *exponent == '-' || *exponent == '+';
    return is_digit(*exponent) ? skip_digits(exponent) : p;
}

/* strtod() alone would take hexadecimal, infinities, NaN and leading white space. */
bool tutti_base_read_real(const char *text, double *out)
{
    const char *end = end_of_real(text);
    const int kept = errno;
    locale_t before;

    if (end == NULL || *end != '\0')
        return false;
    before = plain_locale();
    *out = strtod(text, NULL);
    uselocale(before);
    errno = kept;
    return true;
}

bool tutti_number_begins(const char *text, double *out, const char **end)
{
    char number[128];

    *end = end_of_real(text);
    if (*end == NULL || (size_t)(*end - text) >= sizeof number)
        return false;
    memcpy(number, text, (size_t)(*end - text));
    number[*end - text] = '\0';
    return tutti_base_read_real(number, out);
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
        if (!tutti_base_read_real(one, &value) || !(value > 0 && value <= 1e9))
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

void tutti_base_print_bound(const tutti_option *option, double value, char *out, size_t bytes)
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
            if (tutti_base_read_real(rounded, &value) && value >= option->min)
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
