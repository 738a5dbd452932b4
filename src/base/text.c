/* text.c: string helpers: copying, looking up an environment variable, parsing sizes, quoting
   untrusted text in messages, suggestions for misspelt names. Contracts: tutti/base.h,
   base_internal.h. */
#include "base_internal.h"
#include "options.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

char *tutti_copy_text(const char *text)
{
    const size_t bytes = strlen(text) + 1;
    char *copy = tutti_alloc(bytes, 1);

    if (copy != NULL)
        memcpy(copy, text, bytes);
    return copy;
}

const char *tutti_variable(char *const *environment, const char *name)
{
    const size_t length = strlen(name);

    for (; environment != NULL && *environment != NULL; environment++)
        if (strncmp(*environment, name, length) == 0 && (*environment)[length] == '=')
            return *environment + length + 1;
    return NULL;
}

tutti_status tutti_bytes_parse(const char *text, size_t length, size_t *bytes, tutti_error *err)
{
    static const char *const units[] = { "", "B", "KiB", "MiB", "GiB" };
    size_t value = 0, digits = 0;
    bool fits = true;

    *bytes = 0;
    for (; digits < length && isdigit((unsigned char)text[digits]); digits++)
        fits = fits && tutti_size_mul(value, 10, &value) &&
               tutti_size_add(value, (size_t)(text[digits] - '0'), &value);
    for (size_t u = 0; digits > 0 && u < TUTTI_LENGTH(units); u++)
        if (strlen(units[u]) == length - digits &&
            memcmp(text + digits, units[u], length - digits) == 0) {
            fits = fits && tutti_size_mul(value, u < 2 ? 1 : (size_t)1 << (10 * (u - 1)), &value);
            if (!fits || value == 0 || value > (size_t)1 << 40)
                return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                                  "size '%s' is out of range; it must be from 1 B to 1024 GiB",
                                  tutti_base_show_span(text, length).text);
            *bytes = value;
            return TUTTI_OK;
        }
    return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                      "'%s' is not a size; write a number of bytes such as 4, 64KiB, 16MiB or 1GiB",
                      tutti_base_show_span(text, length).text);
}

/* Bytes of the UTF-8 character that begins with `lead`; 0: lead is a continuation byte. */
static size_t length_of_character(unsigned char lead)
{
    if (lead < 0x80)
        return 1;
    if (lead < 0xC0)
        return 0;
    if (lead < 0xE0)
        return 2;
    return lead < 0xF0 ? 3 : 4;
}

/* Returns the length of text without a UTF-8 character that is cut off at its end. A character has
   at most three continuation bytes, so at most four bytes are examined. Four continuation bytes are
   not UTF-8: the length is kept. */
size_t tutti_base_whole_characters(const char *text, size_t bytes)
{
    for (size_t back = 0; back < 4 && back < bytes; back++) {
        const size_t length = length_of_character((unsigned char)text[bytes - 1 - back]);

        if (length != 0)
            return length > back + 1 ? bytes - 1 - back : bytes;
    }
    return bytes;
}

enum { SHOWN_BYTES = 120 }; /* the rest of tutti_base_shown has room for "..." */

/* Bytes of the control character at the beginning of text: 1 of ASCII, 2 of U+0080 to U+009F, which
   are C2 80 to C2 9F in UTF-8 (U+009B begins an escape sequence in some terminals); 0: it is no
   control character. */
static size_t control_bytes(const char *text, size_t bytes)
{
    const unsigned char first = (unsigned char)text[0];

    if (first < 0x20 || first == 0x7F)
        return 1;
    return first == 0xC2 && bytes > 1 && (unsigned char)text[1] >= 0x80 &&
                   (unsigned char)text[1] < 0xA0
               ? 2
               : 0;
}

tutti_base_shown tutti_base_show_span(const char *text, size_t bytes)
{
    tutti_base_shown shown;
    const bool cut = bytes > SHOWN_BYTES;
    size_t used = 0;

    if (cut)
        bytes = tutti_base_whole_characters(text, SHOWN_BYTES);
    for (size_t i = 0; i < bytes; used++) {
        const size_t control = control_bytes(text + i, bytes - i);

        shown.text[used] = control > 0 ? '?' : text[i];
        i += control > 0 ? control : 1;
    }
    memcpy(shown.text + used, cut ? "..." : "", cut ? 4 : 1);
    return shown;
}

tutti_base_shown tutti_base_show(const char *text)
{
    /* enough: at most SHOWN_BYTES are shown */
    return tutti_base_show_span(text, strnlen(text, 4096));
}

/* ---- near names ---- */
enum { NEAR_BYTES = 64 }; /* longest name that gets suggestions; bounds edit_distance */

/* Lower case; '-' as '_'. */
static char fold_case(char c)
{
    return c == '-' ? '_' : (char)tolower((unsigned char)c);
}

bool tutti_base_same_name(const char *a, const char *b)
{
    for (; *a != '\0' && *b != '\0'; a++, b++)
        if (*a != *b && !((*a == '-' || *a == '_') && (*b == '-' || *b == '_')))
            return false;
    return *a == *b;
}

/* Edit distance with insertion, deletion, substitution and the exchange of neighbours (optimal
   string alignment: Damerau 1964, restricted), in three rows. n, m <= NEAR_BYTES. */
static int edit_distance(const char *a, size_t n, const char *b, size_t m)
{
    int rows[3][NEAR_BYTES + 1];

    for (size_t j = 0; j <= m; j++)
        rows[0][j] = (int)j;
    for (size_t i = 1; i <= n; i++) {
        int *row = rows[i % 3], *above = rows[(i + 2) % 3], *above2 = rows[(i + 1) % 3];

        row[0] = (int)i;
        for (size_t j = 1; j <= m; j++) {
            const int differ = fold_case(a[i - 1]) != fold_case(b[j - 1]);
            int best = above[j - 1] + differ;

            if (above[j] + 1 < best)
                best = above[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            if (i > 1 && j > 1 && fold_case(a[i - 1]) == fold_case(b[j - 2])
                && fold_case(a[i - 2]) == fold_case(b[j - 1]) && above2[j - 2] + 1 < best)
                best = above2[j - 2] + 1;
            row[j] = best;
        }
    }
    return rows[n % 3][m];
}

static bool begin_alike(const char *a, const char *b, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (fold_case(a[i]) != fold_case(b[i]))
            return false;
    return true;
}

void tutti_base_near_offer(tutti_base_near *near, const char *candidate, size_t candidate_bytes)
{
    const size_t name_bytes = strnlen(near->name, NEAR_BYTES + 1);
    const size_t shorter = name_bytes < candidate_bytes ? name_bytes : candidate_bytes,
                 longer = name_bytes < candidate_bytes ? candidate_bytes : name_bytes;
    int distance, limit;
    size_t at;

    if (shorter == 0 || longer > NEAR_BYTES)
        return;
    /* A candidate is similar if at most a third of the longer name's characters differ (one, in
       names shorter than 6), but not all. A prefix of at least 3 characters is similar, too. */
    distance = edit_distance(near->name, name_bytes, candidate, candidate_bytes);
    limit = longer < 6 ? 1 : (int)(longer / 3);
    if (distance >= (int)longer)
        return;
    if (distance > limit) {
        if (shorter < 3 || !begin_alike(near->name, candidate, shorter))
            return;
        distance = limit;
    }
    for (at = 0; at < near->count && near->best[at].distance <= distance; at++)
        ;
    if (at == TUTTI_LENGTH(near->best))
        return;
    if (near->count < TUTTI_LENGTH(near->best))
        near->count++;
    memmove(&near->best[at + 1], &near->best[at], (near->count - at - 1) * sizeof near->best[0]);
    near->best[at].name = candidate;
    near->best[at].bytes = candidate_bytes;
    near->best[at].distance = distance;
}

void tutti_base_near_print(const tutti_base_near *near, char *out, size_t bytes)
{
    size_t used = 0;

    if (bytes == 0)
        return;
    out[0] = '\0';
    for (size_t i = 0; i < near->count && used < bytes; i++) {
        const char *before = i == 0 ? "; did you mean " : i + 1 == near->count ? " or " : ", ";
        const int length =
            snprintf(out + used, bytes - used, "%s'%.*s'%s", before, (int)near->best[i].bytes,
                     near->best[i].name, i + 1 == near->count ? "?" : "");
        if (length < 0)
            return;
        used += (size_t)length;
    }
}

void tutti_suggest(const char *name, const char *const *names, size_t n, char *out, size_t bytes)
{
    tutti_base_near near = { .name = name };

    for (size_t i = 0; i < n; i++)
        tutti_base_near_offer(&near, names[i], strlen(names[i]));
    tutti_base_near_print(&near, out, bytes);
}
