/* clicks.c: parses, writes and draws lines of click logs (clicks.h).

   Truth of the generator:

       logit = bias + spread sqrt(2/3) S_c / sqrt(26) + spread sqrt(1/3) S_i / sqrt(13)

   S_c sums a weight N(0, 1) for each category's value. S_i sums a weight N(0, 1) times a
   standardised integer. Each weight is a function of (seed, field, value). Fields that are missing
   add nothing. So a third of the logit's variance is linear in the integers and two thirds need the
   tables. Rare values (the tail of Zipf's law) can only be learnt by a worker that sees them.
   Categories are the values mapped by a permutation of the 32-bit numbers, one a field, so that
   they look like hashes and never collide.

   Values are drawn by rejection-inversion (Hoermann and Derflinger 1996), which needs no table
   whatever the number of values. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/clicks.h"

enum {
    INTEGERS = TUTTI_CLICKS_INTEGERS,
    CATEGORIES = TUTTI_CLICKS_CATEGORIES,
    FIELDS = 1 + INTEGERS + CATEGORIES
};
/* The high words of the streams of random numbers. */
enum { STREAM_FIELD = 0x636c6b66, STREAM_WEIGHT = 0x636c6b77, STREAM_NAME = 0x636c6b6e };

/* ---- reading ---- */

typedef struct piece { const uint8_t *at; size_t bytes; } piece; /* the text of a field */

/* Parses a decimal number of 32 bits, with or without a sign. */
static bool read_integer(piece f, int32_t *value)
{
    const bool minus = f.bytes > 0 && f.at[0] == '-';
    int64_t v = 0;
    size_t i = minus;

    if (i == f.bytes || f.bytes > 11)
        return false;
    for (; i < f.bytes; i++) {
        if (f.at[i] < '0' || f.at[i] > '9')
            return false;
        v = 10 * v + (f.at[i] - '0');
    }
    v = minus ? -v : v;
    *value = (int32_t)v;
    return v >= INT32_MIN && v <= INT32_MAX;
}

static bool read_hex(piece f, uint32_t *value)
{
    uint32_t v = 0;

    if (f.bytes != 8)
        return false;
    for (size_t i = 0; i < 8; i++) {
        const uint8_t c = f.at[i];
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F')))
            return false;
        v = v << 4 | (uint32_t)(c <= '9' ? c - '0' : (c | 32) - 'a' + 10);
    }
    *value = v;
    return true;
}

static tutti_status bad_field(const char *path, uint64_t line, int i, piece f, const char *wanted,
                              tutti_error *err)
{
    char text[24];
    size_t n = 0;

    for (; n < f.bytes && n < sizeof text - 1; n++)
        text[n] = f.at[n] >= ' ' && f.at[n] < 127 ? (char)f.at[n] : '?';
    text[n] = 0;
    return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                      "'%s', line %" PRIu64 ": field %d is '%s'; it must be %s", path, line, i + 1,
                      text, wanted);
}

/* Reads a field of a line: the label, an integer or a category. */
static tutti_status read_field(tutti_click *click, const char *path, uint64_t line, int fields,
                               piece f, tutti_error *err)
{
    const int category = fields - 1 - INTEGERS;
    if (fields == 0 && (f.bytes != 1 || (f.at[0] != '0' && f.at[0] != '1')))
        return bad_field(path, line, fields, f, "the label, 0 or 1", err);
    if (fields == 0)
        click->label = f.at[0] == '1';
    else if (f.bytes > 0 && fields < FIELDS) {
        if (category < 0 && !read_integer(f, &click->integer[fields - 1]))
            return bad_field(path, line, fields, f, "an integer of 32 bits, or nothing", err);
        if (category >= 0 && !read_hex(f, &click->category[category]))
            return bad_field(path, line, fields, f, "8 hex digits, or nothing", err);
        click->has |= UINT64_C(1) << (fields - 1);
    }
    return TUTTI_OK;
}

tutti_status tutti_click_parse(tutti_click *click, const tutti_click_place *place,
                               const uint8_t *text, uint64_t bytes, size_t *used, tutti_error *err)
{
    const char *path = place->path;
    const uint64_t line = place->line;
    const uint64_t most = bytes < TUTTI_CLICKS_LINE_MOST ? bytes : TUTTI_CLICKS_LINE_MOST;
    const uint8_t *end = memchr(text, '\n', (size_t)most);
    const size_t length = end != NULL ? (size_t)(end - text) : (size_t)most;
    size_t at = 0;
    int fields = 0;

    *used = 0;
    *click = (tutti_click){ 0 };
    if (end == NULL && most < bytes)
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                          "'%s', line %" PRIu64 " has more than %d bytes; it is no click log "
                                                "(label, 13 integers, 26 categories, by tabs)",
                          path, line, TUTTI_CLICKS_LINE_MOST);
    for (;; fields++) {
        const uint8_t *tab = memchr(text + at, '\t', length - at);
        piece f = { text + at, tab != NULL ? (size_t)(tab - text) - at : length - at };
        if (tab == NULL && f.bytes > 0 &&
            f.at[f.bytes - 1] == '\r') /* of another system's line end */
            f.bytes--;
        TUTTI_TRY(read_field(click, path, line, fields, f, err));
        if (tab == NULL)
            break;
        at = (size_t)(tab - text) + 1;
    }
    if (fields + 1 != FIELDS)
        return tutti_fail(
            err, TUTTI_ERR_CORRUPT, 0,
            "'%s', line %" PRIu64
            " has %d fields; a click has %d: label, 13 integers, 26 categories, by tabs",
            path, line, fields + 1, FIELDS);
    *used = length + (end != NULL);
    return TUTTI_OK;
}

float tutti_click_integer(const tutti_click *click, int i)
{
    return click->integer[i] > 0 ? logf(1 + (float)click->integer[i]) : 0;
}

uint32_t tutti_click_row(const tutti_click *click, int category, uint32_t rows)
{
    const uint32_t of[2] = { (uint32_t)category, click->category[category] };
    const uint64_t hash = tutti_hash(of, sizeof of);

    if (!(click->has >> (INTEGERS + category) & 1))
        return 0;
    /* the high half, scaled: no division, and as even */
    return 1 + (uint32_t)(((hash >> 32) * (rows - 1)) >> 32);
}

/* ---- drawing ---- */

static tutti_rng rng_of(const tutti_click_model *m, uint32_t kind, int field, uint64_t step)
{
    return (tutti_rng){ m->seed, (uint64_t)kind << 32 | (uint64_t)field, step };
}

/* H(x) = integral of t^-s from 1 to x, and its inverse; log and exp if s is 1. */
static double integral(double s, double x)
{
    return fabs(s - 1) < 1e-9 ? log(x) : (pow(x, 1 - s) - 1) / (1 - s);
}

static double inverse(double s, double y)
{
    return fabs(s - 1) < 1e-9 ? exp(y) : pow(fmax(1 + (1 - s) * y, 0), 1 / (1 - s));
}

/* Draws a number from 1 to n, k with a probability in proportion to k^-s, with draws `at`, at + 1,
   ... of rng. */
static uint64_t zipf(tutti_rng rng, uint64_t at, double s, uint64_t n)
{
    const double low = integral(s, 1.5) - 1, high = integral(s, (double)n + 0.5);

    for (;; at++) {
        const double u = high + tutti_uniform(rng, at) * (low - high), x = inverse(s, u);
        const double k = fmin(fmax(floor(x + 0.5), 1), (double)n);
        if (u >= integral(s, k + 0.5) - pow(k, -s))
            return (uint64_t)k;
    }
}

/* Draws an integer: log(1 + integer) has mean 2 in an average field, and deviation 1, before the
   integer is rounded. */
static int32_t draw_integer(tutti_rng rng, int field)
{
    const double x = exp(2 + tutti_normal(rng, 2 * (uint64_t)field)) - 1;
    return x <= 0 ? 0 : x > 1e9 ? 1000000000 : (int32_t)x;
}

void tutti_click_draw(const tutti_click_model *m, uint64_t k, tutti_click *click, double *p)
{
    const tutti_rng presence = rng_of(m, STREAM_FIELD, FIELDS, k);
    double of_integers = 0, of_categories = 0;

    *click = (tutti_click){ 0 };
    for (int i = 0; i < INTEGERS + CATEGORIES; i++) {
        const tutti_rng rng = rng_of(m, STREAM_FIELD, i, k);
        if (tutti_uniform(presence, (uint64_t)i) < m->missing)
            continue;
        click->has |= UINT64_C(1) << i;
        if (i < INTEGERS) {
            click->integer[i] = draw_integer(rng, i);
            of_integers += tutti_normal(rng_of(m, STREAM_WEIGHT, i, 0), 0) *
                           ((double)tutti_click_integer(click, i) - 2);
        } else {
            const uint64_t value = zipf(rng, 0, m->zipf, m->values) - 1;
            click->category[i - INTEGERS] =
                (uint32_t)tutti_permuted(rng_of(m, STREAM_NAME, i, 0), UINT64_C(1) << 32, value);
            of_categories += tutti_normal(rng_of(m, STREAM_WEIGHT, i, 0), value);
        }
    }
    *p = 1 / (1 + exp(-(m->bias + m->spread * (sqrt(2.0 / 3 / CATEGORIES) * of_categories +
                                               sqrt(1.0 / 3 / INTEGERS) * of_integers))));
    click->label = tutti_uniform(presence, FIELDS) < *p;
}

size_t tutti_click_print(const tutti_click *click, char *line)
{
    size_t n = (size_t)snprintf(line, TUTTI_CLICKS_LINE_MOST, "%d", click->label);

    for (int i = 0; i < INTEGERS + CATEGORIES; i++) {
        line[n++] = '\t';
        if (!(click->has >> i & 1))
            continue;
        if (i < INTEGERS)
            n += (size_t)snprintf(line + n, TUTTI_CLICKS_LINE_MOST - n, "%" PRId32,
                                  click->integer[i]);
        else
            n += (size_t)snprintf(line + n, TUTTI_CLICKS_LINE_MOST - n, "%08" PRIx32,
                                  click->category[i - INTEGERS]);
    }
    line[n++] = '\n';
    return n;
}

/* ---- the area under the ROC curve ---- */

typedef struct scored { double p; uint8_t label; } scored;

static int by_p(const void *a, const void *b)
{
    const double x = ((const scored *)a)->p, y = ((const scored *)b)->p;
    return x < y ? -1 : x > y;
}

/* Returns the area: pairs of a positive and a negative click in the right order, ties counting
   half, over all such pairs. Click i is y_i positive and 1 - y_i negative, where y_i is its label
   (seen) or, for the expectation, p_i. A click and itself are no pair. s: ascending in p. */
static double area(const scored *s, size_t n, bool seen)
{
    double below = 0, right = 0, positives = 0, negatives = 0, own = 0;

    for (size_t i = 0; i < n;) {
        double plus = 0, minus = 0;
        for (const double p = s[i].p; i < n && s[i].p == p; i++) {
            const double y = seen ? s[i].label : p;
            plus += y;
            minus += 1 - y;
            own += y * (1 - y);
            right -= y * (1 - y) / 2;
        }
        right += plus * (below + minus / 2);
        below += minus;
        positives += plus;
        negatives += minus;
    }
    return right / (positives * negatives - own);
}

tutti_status tutti_click_auc(const double *p, const uint8_t *labels, size_t n, double *expected,
                             double *seen, tutti_error *err)
{
    scored *s = tutti_alloc(n + 1, sizeof *s);

    *expected = *seen = NAN;
    if (s == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "ranking %zu clicks", n);
    for (size_t i = 0; i < n; i++)
        s[i] = (scored){ p[i], labels[i] };
    qsort(s, n, sizeof *s, by_p);
    *expected = area(s, n, false);
    *seen = area(s, n, true);
    tutti_free(s);
    return TUTTI_OK;
}
