/* merge.c: makes one trace of the files of ranks, on rank 0's clock. The files may have been cut
   off in the middle of a line, since a rank may be killed; such a line is left out. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "record_internal.h"
#include "merge.h"

/* Most measurements of a rank's clock that are used. They are made at steps 1, 2, 4 ..., so this is
   far more than a run makes. */
enum { CLOCKS = 256 };

/* ---- names of files ---- */

/* Sets name to that of a rank's file. Each of the two forms is given to snprintf as a constant,
   which the compiler can check. */
static void put_name(char name[64], const char *form, int rank)
{
    snprintf(name, 64,
             strcmp(form, TUTTI_RECORD_TRACE) == 0 ? TUTTI_RECORD_TRACE : TUTTI_RECORD_CLOSED,
             rank);
}

int tutti_record_rank_of(const char *form, const char *name)
{
    const char *digits = name + (strchr(form, '%') - form);
    char again[64];
    long rank;

    if (strlen(name) >= sizeof again || strncmp(name, form, (size_t)(digits - name)) != 0)
        return -1;
    rank = strtol(digits, NULL, 10);
    if (rank < 0 || rank >= TUTTI_RECORD_RANKS)
        return -1;
    put_name(again, form, (int)rank); /* "trace-3.json" and "trace-00003.json.tmp" are not of it */
    return strcmp(again, name) == 0 ? (int)rank : -1;
}

void tutti_record_path(char path[TUTTI_RECORD_PATH], const char *folder, const char *form, int rank)
{
    char name[64];

    put_name(name, form, rank);
    snprintf(path, TUTTI_RECORD_PATH, "%.4000s/%s", folder, name);
}

/* ---- which files there are ---- */

typedef struct found {
    int traces, closed;          /* files of the form TUTTI_RECORD_TRACE, TUTTI_RECORD_CLOSED */
    int most;                    /* largest rank with a trace */
    bool merged;                 /* file TUTTI_RECORD_MERGED */
} found;

static tutti_status count_name(void *user, const char *name, tutti_error *err)
{
    found *f = user;
    const int rank = tutti_record_rank_of(TUTTI_RECORD_TRACE, name);

    (void)err;
    f->traces += rank >= 0;
    f->most = rank > f->most ? rank : f->most;
    f->closed += tutti_record_rank_of(TUTTI_RECORD_CLOSED, name) >= 0;
    f->merged = f->merged || strcmp(name, TUTTI_RECORD_MERGED) == 0;
    return TUTTI_OK;
}

/* ---- the trace of one rank ---- */

/* Writes lines that end with ",\n", but not the ",\n" of the last one: whether another line follows
   is known at the next call, or at the end of the array. */
static tutti_status write_lines(tutti_record_merged *to, const char *text, size_t length, tutti_error *err)
{
    if (length <= 2)
        return TUTTI_OK;
    TUTTI_TRY(tutti_file_write(to->file, to->begun ? ",\n" : "[\n", 2, err));
    to->begun = true;
    return tutti_file_write(to->file, text, length - 2, err);
}

bool tutti_record_whole_line(const char *at, const char *end, size_t *length)
{
    /* of an empty text `at` is NULL */
    const char *newline = at != end ? memchr(at, '\n', (size_t)(end - at)) : NULL;

    if (newline == NULL)
        return false;
    *length = (size_t)(newline - at) + 1;
    return true;
}

/* Adds the measurement of a line whose event is named "measured". *lost: as its rank counted lost
   events by then. */
static void take_clock(const char *line, size_t length, tutti_record_clock *clocks, int *n,
                       uint64_t *lost)
{
    json_t *o = json_loadb(line, length - 2, 0, NULL);
    const json_t *args = json_object_get(o, "args");

    if (json_is_object(args)) {
        *n -= *n == CLOCKS; /* all are used: it replaces the last one */
        clocks[(*n)++] = (tutti_record_clock){
            .reference = (int)json_integer_value(json_object_get(args, "reference")),
            .at_ns = json_integer_value(json_object_get(args, "at_ns")),
            .ahead_ns = json_integer_value(json_object_get(args, "ahead_ns")),
            .within_ns = json_integer_value(json_object_get(args, "within_ns")),
        };
        *lost = (uint64_t)json_integer_value(json_object_get(args, "lost"));
    }
    json_decref(o);
}

/* Reads a time as lines.c writes it: microseconds, with three decimals at most, whatever the locale
   is. *end: behind it. false: it is another text, or a time that no trace has. */
static bool read_us(const char *text, int64_t *ns, const char **end)
{
    const char *at = text + (*text == '-'), *const first = at;
    int64_t us = 0, thousandths = 0;

    for (; *at >= '0' && *at <= '9' && at - first < 15; at++)
        us = us * 10 + (*at - '0');
    if (at == first)
        return false;
    if (*at == '.') {
        at++;
        for (int64_t worth = 100; *at >= '0' && *at <= '9' && worth > 0; at++, worth /= 10)
            thousandths += worth * (*at - '0');
    }
    *ns = (*text == '-' ? -1 : 1) * (us * 1000 + thousandths);
    *end = at;
    return true;
}

/* Copies the line of an event to `to` with its time on rank 0's clock. Returns the length of the
   copy, at most `length` + TUTTI_RECORD_US; 0: it is no event with a time. */
static size_t put_event(char *to, const char *line, size_t length, const tutti_record_clock *clocks,
                        int n)
{
    static const char key[] = ",\"ts\":";
    char copy[TUTTI_RECORD_LINE], at[TUTTI_RECORD_US], *ts;
    const char *end;
    int64_t at_ns;

    if (length < 3 || length >= sizeof copy || line[0] != '{' ||
        memcmp(line + length - 3, "},\n", 3) != 0)
        return 0;
    memcpy(copy, line, length);
    copy[length] = 0;
    ts = strstr(copy, key);
    if (ts == NULL || !read_us(ts + sizeof key - 1, &at_ns, &end) || *end != ',')
        return 0;
    *ts = 0;
    tutti_record_us(at, at_ns - tutti_record_clock_ahead(clocks, n, at_ns));
    return (size_t)snprintf(to, length + TUTTI_RECORD_US, "%s%s%s%s", copy, key, at, end);
}

int64_t tutti_record_ended_ns(const char *line, size_t length)
{
    static const char ts[] = ",\"ts\":", dur[] = ",\"dur\":";
    const char *at = memmem(line, length, ts, sizeof ts - 1), *end;
    int64_t begin_ns, lasts_ns;

    if (at == NULL || !read_us(at + sizeof ts - 1, &begin_ns, &end))
        return INT64_MIN;
    at = memmem(line, length, dur, sizeof dur - 1);
    return at != NULL && read_us(at + sizeof dur - 1, &lasts_ns, &end) ? begin_ns + lasts_ns
                                                                      : begin_ns;
}

/* Its clock is read first: a time between two measurements needs the later one, which stands behind
   it. */
tutti_status tutti_record_merge_text(tutti_record_merged *to, int rank, const char *text,
                                     size_t bytes, tutti_error *err)
{
    static const char clock_line[] = "{\"name\":\"measured\",";
    tutti_record_clock clocks[CLOCKS] = { { .reference = 0 } };
    const char *const end = text + bytes;
    size_t length, used, lines = 0;
    uint64_t lost = 0;
    int n = 0;
    char *out;
    tutti_status status;

    for (const char *at = text; tutti_record_whole_line(at, end, &length); at += length, lines++)
        if (length > sizeof clock_line && memcmp(at, clock_line, sizeof clock_line - 1) == 0)
            take_clock(at, length, clocks, &n, &lost);
    n = n > 0 ? n : 1; /* never measured: clocks[0], which is 0 ahead */
    out = tutti_alloc(bytes + lines * TUTTI_RECORD_US + (size_t)5 * TUTTI_RECORD_LINE, 1);
    if (out == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "merging the trace of rank %d (%zu bytes)",
                          rank, bytes);
    used = tutti_record_head(out, rank, to->workers, &clocks[n - 1], lost);
    for (const char *at = text; tutti_record_whole_line(at, end, &length); at += length)
        used += put_event(out + used, at, length, clocks, n);
    to->lost += lost;
    status = write_lines(to, out, used, err);
    tutti_free(out);
    return status;
}

tutti_status tutti_record_merge_end(tutti_record_merged *to, tutti_status status, tutti_error *err)
{
    if (status == TUTTI_OK)
        status = tutti_file_write(to->file, "\n]\n", 3, err);
    return tutti_file_end(to->file, status, err);
}

static tutti_status merge_traces(tutti_runtime *rt, const char *folder, const found *f, int workers,
                                 tutti_error *err)
{
    tutti_record_merged to = { .workers = workers };
    char path[TUTTI_RECORD_PATH];
    tutti_status status;

    snprintf(path, sizeof path, "%.4000s/trace.json", folder);
    TUTTI_TRY(tutti_file_begin(&to.file, rt, path, true, err));
    status = TUTTI_OK;
    for (int r = 0; r <= f->most && status == TUTTI_OK; r++) {
        char *text;
        size_t bytes;
        tutti_record_path(path, folder, TUTTI_RECORD_TRACE, r);
        if (!tutti_file_exists(rt, path))
            continue;
        status = tutti_record_read(rt, path, (size_t)1 << 30, &text, &bytes, err);
        if (status == TUTTI_OK)
            status = tutti_record_merge_text(&to, r, text, bytes, err);
        tutti_free(text);
    }
    return tutti_record_merge_end(&to, status, err);
}

/* ---- the folder ---- */

/* Sets *workers and *ranks to how many the run has, by its config.json. */
static tutti_status read_size(tutti_runtime *rt, const char *folder, int *workers, int *ranks,
                              tutti_error *err)
{
    char path[TUTTI_RECORD_PATH], *text;
    size_t bytes;
    json_t *o;
    json_int_t n, servers;

    snprintf(path, sizeof path, "%.4000s/config.json", folder);
    TUTTI_TRY(tutti_record_read(rt, path, (size_t)1 << 30, &text, &bytes, err));
    o = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, NULL);
    tutti_free(text);
    n = json_integer_value(json_object_get(o, "n"));
    servers = json_integer_value(json_object_get(o, "servers"));
    json_decref(o);
    if (n < 1 || servers < 0 || n > TUTTI_RECORD_RANKS || servers > TUTTI_RECORD_RANKS - n)
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                          "%s does not say how many workers the run has (n)", path);
    *workers = (int)n;
    *ranks = (int)(n + servers);
    return TUTTI_OK;
}

/* Removes a file of the folder. */
static tutti_status remove_file(tutti_runtime *rt, const char *folder, const char *name,
                                tutti_error *err)
{
    char path[TUTTI_RECORD_PATH];

    snprintf(path, sizeof path, "%.4000s/%s", folder, name);
    return tutti_file_remove(rt, path, err);
}

/* The files of ranks are merged, and go; what says that they are merged goes last. A process that
   is killed meanwhile leaves that, and the next one removes the rest: what is left must not replace
   the trace of all. A process that was killed while it merged has left its claim. */
static tutti_status remove_files(tutti_runtime *rt, const char *folder, int ranks, tutti_error *err)
{
    static const char *const forms[] = { TUTTI_RECORD_CLOSED, TUTTI_RECORD_TRACE };
    char path[TUTTI_RECORD_PATH];

    for (size_t k = 0; k < TUTTI_LENGTH(forms); k++)
        for (int r = 0; r < ranks; r++) {
            tutti_record_path(path, folder, forms[k], r);
            TUTTI_TRY(tutti_file_remove(rt, path, err));
        }
    TUTTI_TRY(remove_file(rt, folder, TUTTI_RECORD_MERGING, err));
    return remove_file(rt, folder, TUTTI_RECORD_MERGED, err);
}

static tutti_status mark_merged(tutti_runtime *rt, const char *folder, tutti_error *err)
{
    char path[TUTTI_RECORD_PATH];
    tutti_file *mark;

    snprintf(path, sizeof path, "%.4000s/%s", folder, TUTTI_RECORD_MERGED);
    TUTTI_TRY(tutti_file_open(&mark, rt, path, TUTTI_FILE_CREATE, err));
    return tutti_file_close(mark, err);
}

tutti_status tutti_record_merge(tutti_runtime *rt, const char *folder, int *ranks, int *closed,
                                tutti_error *err)
{
    found f = { .most = -1 };
    int workers;

    *ranks = *closed = 0;
    if (strlen(folder) > 4000)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "the folder's name has %zu bytes; at most 4000 are possible",
                          strlen(folder));
    if (!tutti_file_exists(rt, folder))
        return TUTTI_OK;
    TUTTI_TRY(tutti_directory_list(rt, folder, count_name, &f, err));
    if (f.merged) {
        int all;
        TUTTI_TRY(read_size(rt, folder, &workers, &all, err));
        return remove_files(rt, folder, all, err);
    }
    if (f.traces == 0)
        return TUTTI_OK;
    TUTTI_TRY(read_size(rt, folder, &workers, ranks, err));
    *closed = f.closed;
    TUTTI_TRY(merge_traces(rt, folder, &f, workers, err));
    if (f.closed < *ranks)
        return TUTTI_OK;
    TUTTI_TRY(tutti_record_summarise(rt, folder, *ranks, err));
    TUTTI_TRY(mark_merged(rt, folder, err));
    return remove_files(rt, folder, *ranks, err);
}

tutti_status tutti_record_merge_if_last(tutti_runtime *rt, const char *folder, int ranks,
                                        tutti_error *err)
{
    found f = { .most = -1 };
    char path[TUTTI_RECORD_PATH];
    tutti_file *claim;
    tutti_status status;
    int all, closed;

    TUTTI_TRY(tutti_directory_list(rt, folder, count_name, &f, err));
    if (f.closed < ranks)
        return TUTTI_OK;
    /* Two ranks may find all files at the same time: the one that creates this file merges. If
       another one has done all of it by then, no traces are left, and nothing is done. */
    snprintf(path, sizeof path, "%.4000s/%s", folder, TUTTI_RECORD_MERGING);
    if (tutti_file_open(&claim, rt, path, TUTTI_FILE_CREATE, NULL) != TUTTI_OK)
        return TUTTI_OK;
    tutti_file_close(claim, NULL);
    status = tutti_record_merge(rt, folder, &all, &closed, err);
    tutti_file_remove(rt, path, NULL);
    return status;
}
