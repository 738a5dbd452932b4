/* trace.c: the option `fail` as the name of a file, "@FILE": when hosts are taken away and given
   back, as `tutti platform 'spot(...)'` writes it. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "sim_internal.h"
#include "base/numbers.h"

typedef struct trace {
    const char *path;
    int line;                     /* of the file, from 1 */
    double at;                    /* s: that of the last line */
    bool *down;                   /* [size]: the worker's last line says so */
} trace;

static const char *skip_spaces(const char *text) { return text + strspn(text, " \t\r\n"); }

/* Reads one line that is neither empty nor a comment. */
static tutti_status read_line(sim_run *run, trace *t, const char *text, tutti_error *err)
{
    const char *past = text;
    const size_t shown = strcspn(text, "\r\n");
    char *end = NULL;
    double at = -1;
    long rank = -1;
    bool down = false, known = false;

    if (tutti_number_begins(text, &at, &past) && (*past == ' ' || *past == '\t')) {
        const char *const begin = past;
        rank = strtol(past, &end, 10);
        past = skip_spaces(end);
        down = strncmp(past, "down", 4) == 0;
        known = end > begin && (*end == ' ' || *end == '\t') &&
                (down || strncmp(past, "up", 2) == 0) &&
                *skip_spaces(past + (down ? 4 : 2)) == '\0';
    }
    if (!known || !(at >= 0) || !isfinite(at) || rank < 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "fail: %.200s, line %d is '%.*s'; write SECONDS WORKER down|up, with "
                          "seconds of virtual time from 0 on",
                          t->path, t->line, shown < 80 ? (int)shown : 80, text);
    if (rank >= run->size)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "fail: %.200s, line %d: there is no worker %ld: with %d workers they are "
                          "0 to %d",
                          t->path, t->line, rank, run->size, run->size - 1);
    if (at < t->at)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "fail: %.200s, line %d is of %.9g s and the line before of %.9g s; write "
                          "the lines in order of time",
                          t->path, t->line, at, t->at);
    if (t->down[rank] == down)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "fail: %.200s, line %d: worker %ld is %s already", t->path, t->line, rank,
                          down ? "down" : "up");
    t->at = at;
    t->down[rank] = down;
    if (down && !isfinite(run->ranks[rank].fails_at)) {
        run->ranks[rank].fails_at = at;
        run->faults++;
    }
    return TUTTI_OK;
}

tutti_status sim_trace_read(sim_run *run, const char *path, tutti_error *err)
{
    trace t = { .path = path, .down = tutti_alloc((size_t)run->size, sizeof(bool)) };
    char *text = NULL;
    size_t room = 0;
    tutti_status status = TUTTI_OK;
    FILE *file = t.down != NULL ? fopen(path, "re") : NULL;

    if (t.down == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "reading '%.200s'", path);
    if (file == NULL)
        status = tutti_fail(err, TUTTI_ERR_USAGE, errno,
                            "fail: cannot read '%.200s'; `tutti platform 'spot(n=%d)' > FILE` "
                            "makes such a file",
                            path, run->size);
    errno = 0;
    while (status == TUTTI_OK && getline(&text, &room, file) >= 0) {
        const char *begin = skip_spaces(text);
        t.line++;
        if (*begin != '\0' && *begin != '#')
            status = read_line(run, &t, begin, err);
    }
    if (status == TUTTI_OK && !feof(file))
        status = tutti_fail(err, TUTTI_ERR_IO, errno, "fail: reading '%.200s'", path);
    if (file != NULL)
        fclose(file);
    free(text);
    tutti_free(t.down);
    return status;
}
