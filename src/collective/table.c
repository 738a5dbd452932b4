/* table.c: the choice of algorithms by a file (table.h has its format). Only algorithms that keep
   the one order of summation are accepted, so a table changes times, never bits.

   All ranks must choose the same algorithm, so loading a table is a collective. Before the world
   adopts the table, the ranks compare a hash of what they have parsed, by an algorithm that no
   table chooses. The hash is not of the text, so that comments may differ. */
#include "collective_internal.h"
#include "collective/table.h"
#include "runtime/files.h"
#include "tutti/base.h"
#include "tutti/comm.h"
#include <string.h>

#define TABLE_BYTES_MOST ((uint64_t)1 << 20)
#define ANY_NUMBER UINT64_MAX

/* A line of the file. All members have 64 bits, so that the array can be hashed as it is. */
typedef struct rule {
    uint64_t kind;
    uint64_t members, bytes; /* the most members, and the most bytes; ANY_NUMBER: any */
    uint64_t row;            /* of tutti_algorithms */
} rule;

typedef struct tutti_table {
    rule *rules;
    size_t n;
} tutti_table;

static void table_free(tutti_table *t)
{
    if (t == NULL)
        return;
    tutti_free(t->rules);
    tutti_free(t);
}

void tutti_table_close(tutti_world *world)
{
    table_free(world->table);
    world->table = NULL;
}

int tutti_table_choose(const tutti_world *world, tutti_collective kind, int size, size_t bytes,
                       tutti_dtype dtype)
{
    const tutti_table *t = world->table;

    for (size_t k = 0; t != NULL && k < t->n; k++) {
        const rule *r = &t->rules[k];
        if (r->kind == (uint64_t)kind && (uint64_t)size <= r->members && bytes <= r->bytes &&
            tutti_algorithm_serves((int)r->row, size) &&
            tutti_algorithm_fits((int)r->row, dtype, NULL) == TUTTI_OK)
            return (int)r->row;
    }
    return -1;
}

/* ---- reading ---- */

typedef struct place {
    const char *path;
    int line;
} place;

/* The next word of the line into out; false: there is none, or it is too long (*too_long). */
static bool word(const char **at, const char *end, char *out, size_t room, bool *too_long)
{
    size_t length = 0;

    while (*at < end && (**at == ' ' || **at == '\t' || **at == '\r'))
        ++*at;
    for (; *at < end && **at != ' ' && **at != '\t' && **at != '\r'; ++*at, length++)
        if (length + 1 < room)
            out[length] = **at;
    *too_long = length >= room;
    out[length < room ? length : room - 1] = 0;
    return length > 0 && length < room;
}

static tutti_status read_number(const char *text, const char *what, const place *at, uint64_t *out,
                                tutti_error *err)
{
    *out = 0;
    if (strcmp(text, "*") == 0) {
        *out = ANY_NUMBER;
        return TUTTI_OK;
    }
    for (const char *c = text; *c != 0; c++) {
        if (*c < '0' || *c > '9' || *out > (ANY_NUMBER - 9) / 10)
            return tutti_fail(
                err, TUTTI_ERR_USAGE, 0,
                "%s:%d: the most %s are '%s'; write a number below 2^60, or * for any", at->path,
                at->line, what, text);
        *out = 10 * *out + (uint64_t)(*c - '0');
    }
    return TUTTI_OK;
}

static tutti_status read_kind(const char *text, const place *at, uint64_t *out, tutti_error *err)
{
    const char *names[TUTTI_COLLECTIVES];
    char near[120];

    for (int k = 0; k < TUTTI_COLLECTIVES; k++) {
        names[k] = tutti_collective_name((tutti_collective)k);
        if (strcmp(names[k], text) == 0) {
            *out = (uint64_t)k;
            return TUTTI_OK;
        }
    }
    tutti_suggest(text, names, TUTTI_COLLECTIVES, near, sizeof near);
    return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                      "%s:%d: no collective is named '%s'%s; a line is KIND MEMBERS BYTES "
                      "ALGORITHM, such as all-reduce 16 4096 exchange",
                      at->path, at->line, text, near);
}

static tutti_status read_row(const char *text, tutti_collective kind, const place *at,
                             uint64_t *out, tutti_error *err)
{
    const int row = tutti_algorithm_find(kind, text);
    char known[160] = "";

    if (row >= 0 && (tutti_algorithms[row].traits & TUTTI_ANY_ORDER) == 0) {
        *out = (uint64_t)row;
        return TUTTI_OK;
    }
    if (row >= 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "%s:%d: %s '%s' does not keep the one order of summation, and a table "
                          "must not change results; ask for it by name",
                          at->path, at->line, tutti_collective_name(kind), text);
    for (int k = 0; tutti_algorithms[k].name != NULL; k++)
        if (tutti_algorithms[k].kind == kind &&
            (tutti_algorithms[k].traits & TUTTI_ANY_ORDER) == 0) {
            if (known[0] != 0)
                strncat(known, ", ", sizeof known - strlen(known) - 1);
            strncat(known, tutti_algorithms[k].name, sizeof known - strlen(known) - 1);
        }
    return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                      "%s:%d: no algorithm of %s is named '%s'; there are %s", at->path, at->line,
                      tutti_collective_name(kind), text, known);
}

/* *taken false: an empty line. */
static tutti_status read_line(const char *from, const char *end, const place *at, rule *r,
                              bool *taken, tutti_error *err)
{
    char words[4][48], more[8];
    bool too_long;
    int n = 0;
    const char *hash = memchr(from, '#', (size_t)(end - from));

    if (hash != NULL)
        end = hash;
    *taken = false;
    while (n < 4 && word(&from, end, words[n], sizeof words[n], &too_long))
        n++;
    if (n == 0 && !too_long)
        return TUTTI_OK;
    if (n < 4 || word(&from, end, more, sizeof more, &too_long) || too_long)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "%s:%d: not four words; a line is KIND MEMBERS BYTES ALGORITHM, such as all-reduce 16 "
            "4096 exchange",
            at->path, at->line);
    TUTTI_TRY(read_kind(words[0], at, &r->kind, err));
    TUTTI_TRY(read_number(words[1], "members", at, &r->members, err));
    TUTTI_TRY(read_number(words[2], "bytes", at, &r->bytes, err));
    TUTTI_TRY(read_row(words[3], (tutti_collective)r->kind, at, &r->row, err));
    *taken = true;
    return TUTTI_OK;
}

static tutti_status table_read(tutti_table **out, const char *path, const char *text, size_t bytes,
                               tutti_error *err)
{
    const char *const end = bytes > 0 ? text + bytes : text; /* no bytes: no memory either */
    place at = { .path = path };
    size_t lines = 1;
    tutti_status status = TUTTI_OK;
    tutti_table *t = tutti_alloc(1, sizeof *t);

    *out = NULL;
    for (size_t k = 0; k < bytes; k++)
        lines += text[k] == '\n';
    if (t == NULL || (t->rules = tutti_alloc(lines, sizeof *t->rules)) == NULL) {
        table_free(t);
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory for the table '%s' of %zu lines",
                          path, lines);
    }
    for (const char *line = text; line < end && status == TUTTI_OK;) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        bool taken;
        stop = stop != NULL ? stop : end;
        at.line++;
        status = read_line(line, stop, &at, &t->rules[t->n], &taken, err);
        t->n += status == TUTTI_OK && taken;
        line = stop < end ? stop + 1 : end;
    }
    if (status == TUTTI_OK)
        *out = t;
    else
        table_free(t);
    return status;
}

/* ---- loading, together ---- */

static uint64_t table_hash(const tutti_table *t)
{
    return t->n > 0 ? tutti_hash(t->rules, t->n * sizeof *t->rules) >> 1 : 0;
}

/* Compares the value over all ranks. *odd: the lowest rank whose value differs from rank 0's; -1:
   all are equal. *of_zero, *of_odd: the values of rank 0 and of rank *odd. */
static tutti_status compare(tutti_world *world, int64_t mine, int64_t *of_zero, int64_t *of_odd,
                            int *odd, tutti_error *err)
{
    tutti_group g = tutti_group_workers(world, UINT64_C(0x7475747469746162));
    int64_t extremes[2] = { mine, -mine }, *all;
    tutti_status status;

    *of_zero = *of_odd = mine;
    *odd = -1;
    g.sequence = 2 * world->tables++;
    g.uncounted = true;
    g.algorithm = "tree"; /* no table decides; the all-gather has one row only */
    TUTTI_TRY(tutti_allreduce(&g, TUTTI_MAX, tutti_host(extremes, 2, TUTTI_I64), err));
    if (extremes[0] == -extremes[1])
        return TUTTI_OK;
    all = tutti_alloc((size_t)g.size, sizeof *all);
    if (all == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0,
                          "no memory to compare tables of collectives over %d ranks", g.size);
    status = tutti_allgather(&g, tutti_host(&mine, 1, TUTTI_I64),
                             tutti_host(all, (size_t)g.size, TUTTI_I64), err);
    for (int j = g.size - 1; j > 0 && status == TUTTI_OK; j--)
        if (all[j] != all[0]) {
            *odd = j;
            *of_odd = all[j];
        }
    *of_zero = all[0];
    tutti_free(all);
    return status;
}

/* Takes t (NULL: its reading failed with *status); called by all ranks. */
static tutti_status agree(tutti_world *world, tutti_table *t, const char *path, tutti_status status,
                          tutti_error *err)
{
    int64_t zero, other;
    int odd;
    const tutti_status met = compare(world, status != TUTTI_OK ? -1 : (int64_t)table_hash(t), &zero,
                                     &other, &odd, status == TUTTI_OK ? err : NULL);

    if (status == TUTTI_OK && met != TUTTI_OK)
        status = met;
    else if (status == TUTTI_OK && (zero == -1 || other == -1))
        status = tutti_fail_rank(err, TUTTI_ERR_STATE, zero == -1 ? 0 : odd,
                                 "table of collectives '%s': rank %d could not read it", path,
                                 zero == -1 ? 0 : odd);
    else if (status == TUTTI_OK && odd >= 0)
        status =
            tutti_fail_rank(err, TUTTI_ERR_USAGE, odd,
                            "table of collectives '%s': rank %d read another one than rank 0; give "
                            "all ranks the same file",
                            path, odd);
    if (status != TUTTI_OK) {
        table_free(t);
        return status;
    }
    tutti_table_close(world);
    world->table = t;
    return TUTTI_OK;
}

tutti_status tutti_collective_table_text(tutti_world *world, const char *name, const char *text,
                                         size_t bytes, tutti_error *err)
{
    tutti_table *t;
    const tutti_status status = table_read(&t, name, text, bytes, err);

    return agree(world, t, name, status, err);
}

static tutti_status read_file(tutti_runtime *rt, const char *path, char **text, size_t *bytes,
                              tutti_error *err)
{
    tutti_file *f;
    uint64_t size;
    tutti_status status;

    *text = NULL;
    *bytes = 0;
    TUTTI_TRY(tutti_file_open(&f, rt, path, TUTTI_FILE_READ, err));
    size = tutti_file_bytes(f);
    if (size > TABLE_BYTES_MOST)
        status = tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "'%s' has %llu bytes; a table of collectives has at most %llu, so this is another file",
            path, (unsigned long long)size, (unsigned long long)TABLE_BYTES_MOST);
    else if ((*text = tutti_alloc((size_t)size + 1, 1)) == NULL)
        status = tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory for the table '%s' of %llu bytes",
                            path, (unsigned long long)size);
    else
        status = tutti_file_read(f, 0, *text, (size_t)size, err);
    *bytes = (size_t)size;
    (void)tutti_file_close(f, NULL);
    return status;
}

static tutti_status table_of_file(tutti_runtime *rt, const char *path, tutti_table **t,
                                  tutti_error *err)
{
    char *text;
    size_t bytes;
    tutti_status status = read_file(rt, path, &text, &bytes, err);

    *t = NULL;
    if (status == TUTTI_OK)
        status = table_read(t, path, text, bytes, err);
    tutti_free(text);
    return status;
}

tutti_status tutti_collective_table_load(tutti_world *world, const char *path, tutti_error *err)
{
    tutti_table *t;
    const tutti_status status = table_of_file(world->rt, path, &t, err);

    return agree(world, t, path, status, err);
}

tutti_status tutti_collective_table_check(tutti_runtime *rt, const char *path, tutti_error *err)
{
    tutti_table *t;
    const tutti_status status = table_of_file(rt, path, &t, err);

    table_free(t);
    return status;
}
