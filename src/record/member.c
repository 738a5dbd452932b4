/* member.c: the part of a trace that a member writes of a run whose workers come and go.

   No process sees such a run from its beginning to its end, and one may be killed in it. So each
   writes what it does to a file of its own while the run lasts: FOLDER/trace-parts/trace-00003.json
   for worker 3, whose number no other process of the run ever has. merge_members.c makes one trace
   of what is there, at any time. FOLDER/trace-parts/run.json has the number of the run: a worker
   that comes later from another host may see no folder of that name, or that of another run. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "record_internal.h"

enum {
    EPOCHS = 10000,                  /* most of a part */
    EVENT = 160,                     /* bytes of a usual event */
    BUFFERED = 1 << 16,              /* bytes of text from which on it is written */
    WAITS_MS = 200                   /* and for how long fewer are kept at most */
};

struct tutti_record_part {
    tutti_record_trace t;            /* its folder is that of the parts */
    size_t left;                     /* events that it still takes */
    uint64_t lost, told;             /* events that it did not take; of those, in its last clock */
    int epochs;
    int64_t written_ns;
};

/* ---- the folder of the parts ---- */

static tutti_status folder_of(char path[TUTTI_RECORD_PATH / 2], const char *folder,
                              tutti_error *err)
{
    const int n = snprintf(path, TUTTI_RECORD_PATH / 2, "%s/" TUTTI_RECORD_PARTS, folder);

    return n < TUTTI_RECORD_PATH / 2
               ? TUTTI_OK
               : tutti_fail(err, TUTTI_ERR_USAGE, 0,
                            "the run's folder has a name of %zu bytes; with a trace at most %zu are "
                            "possible",
                            strlen(folder), TUTTI_RECORD_PATH / 2 - sizeof TUTTI_RECORD_PARTS - 1);
}

typedef struct place { tutti_runtime *rt; const char *folder; } place;

static tutti_status remove_part(void *user, const char *name, tutti_error *err)
{
    const place *in = user;
    char path[TUTTI_RECORD_PATH];

    if (strcmp(name, "run.json") != 0 && tutti_record_rank_of(TUTTI_RECORD_TRACE, name) < 0)
        return TUTTI_OK;
    snprintf(path, sizeof path, "%s/%.255s", in->folder, name);
    return tutti_file_remove(in->rt, path, err);
}

tutti_status tutti_record_parts_remove(tutti_runtime *rt, const char *folder, tutti_error *err)
{
    char path[TUTTI_RECORD_PATH / 2];
    place in = { rt, path };

    if (folder_of(path, folder, NULL) != TUTTI_OK || !tutti_file_exists(rt, path))
        return TUTTI_OK;
    TUTTI_TRY(tutti_directory_list(rt, path, remove_part, &in, err));
    (void)tutti_file_remove(rt, path, NULL); /* what else is there is not of a run, and stays */
    return TUTTI_OK;
}

tutti_status tutti_record_parts_begin(tutti_runtime *rt, const char *folder, uint64_t run,
                                      tutti_error *err)
{
    char path[TUTTI_RECORD_PATH / 2], number[24];

    TUTTI_TRY(folder_of(path, folder, err));
    TUTTI_TRY(tutti_directory_make(rt, path, err));
    snprintf(number, sizeof number, "%016llx", (unsigned long long)run);
    return tutti_record_write_object(rt, path, "run.json", json_pack("{s:s}", "run", number), err);
}

/* Is it the folder of that run? */
static bool is_of(tutti_runtime *rt, const char *folder, uint64_t run)
{
    char path[TUTTI_RECORD_PATH], *text = NULL;
    const char *number;
    size_t bytes;
    json_t *o;
    bool is;

    snprintf(path, sizeof path, "%s/run.json", folder);
    if (tutti_record_read(rt, path, 4096, &text, &bytes, NULL) != TUTTI_OK)
        return false;
    o = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, NULL);
    number = json_string_value(json_object_get(o, "run"));
    is = number != NULL && strtoull(number, NULL, 16) == run;
    json_decref(o);
    tutti_free(text);
    return is;
}

typedef struct counted { const char *folder; tutti_runtime *rt; uint64_t bytes; } counted;

static tutti_status count_bytes(void *user, const char *name, tutti_error *err)
{
    counted *c = user;
    char path[TUTTI_RECORD_PATH];
    tutti_file *file = NULL;

    if (tutti_record_rank_of(TUTTI_RECORD_TRACE, name) < 0)
        return TUTTI_OK;
    snprintf(path, sizeof path, "%s/%.255s", c->folder, name);
    TUTTI_TRY(tutti_file_open(&file, c->rt, path, TUTTI_FILE_READ, err));
    c->bytes += tutti_file_bytes(file);
    return tutti_file_close(file, NULL);
}

/* How many events a new part takes. Without a limit for all, a run to which workers come for weeks
   would have a trace that no program loads. */
static tutti_status count_left(const tutti_record_trace *t, const tutti_record_member *of,
                               size_t *left, tutti_error *err)
{
    const uint64_t all = (uint64_t)of->most * (uint64_t)of->most_workers;
    counted c = { .folder = t->folder, .rt = t->rt };
    uint64_t used;

    TUTTI_TRY(tutti_directory_list(t->rt, t->folder, count_bytes, &c, err));
    used = c.bytes / EVENT;
    *left = used >= all ? 0 : all - used < of->most ? (size_t)(all - used) : of->most;
    return TUTTI_OK;
}

/* ---- a part ---- */

static tutti_status begin(tutti_record_part *p, const tutti_record_member *of, tutti_error *err)
{
    tutti_record_trace *t = &p->t;
    char path[TUTTI_RECORD_PATH], host[256] = "";

    TUTTI_TRY(folder_of(t->folder, of->folder, err));
    if (!is_of(t->rt, t->folder, of->run))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "%.300s is not there, or is of another run, so this process does not see "
                          "the run's folder; share it among the hosts, under the same name",
                          t->folder);
    TUTTI_TRY(count_left(t, of, &p->left, err));
    tutti_record_path(path, t->folder, TUTTI_RECORD_TRACE, t->rank);
    TUTTI_TRY(tutti_file_open(&t->file, t->rt, path, TUTTI_FILE_CREATE, err));
    TUTTI_TRY(tutti_record_trace_room(t, (size_t)8 * TUTTI_RECORD_LINE, err));
    if (gethostname(host, sizeof host - 1) != 0 || host[0] == 0)
        snprintf(host, sizeof host, "unknown host");
    t->length = (size_t)snprintf(t->text, TUTTI_RECORD_LINE, "[\n");
    t->length += tutti_record_head(t->text + t->length, t->rank, t->workers, &t->clock, 0);
    t->length += tutti_record_process_line(t->text + t->length, t->rank, host, (long)getpid());
    t->length += tutti_record_thread_line(t->text + t->length, t->rank, TUTTI_RECORD_MEMBERS_THREAD,
                                          "epochs");
    return tutti_record_part_write(p, true, err);
}

tutti_status tutti_record_part_open(tutti_record_part **out, const tutti_record_member *of,
                                    tutti_error *err)
{
    tutti_record_part *p = tutti_alloc(1, sizeof *p);
    tutti_status status;

    *out = NULL;
    if (p == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for a worker's part of a trace");
    p->t = (tutti_record_trace){
        .rt = of->rt, .rank = of->worker, .workers = of->worker + 1, .ranks = of->worker + 1
    };
    status = begin(p, of, err);
    if (status == TUTTI_OK)
        *out = p;
    else
        tutti_record_part_close(p, NULL, NULL);
    return status;
}

size_t tutti_record_part_left(const tutti_record_part *p)
{
    return p != NULL ? p->left : 0;
}

tutti_status tutti_record_part_clock(tutti_record_part *p, const tutti_record_clock *clock,
                                     tutti_error *err)
{
    p->t.clock = *clock;
    p->told = p->lost;
    return tutti_record_trace_clock(&p->t, p->lost, err);
}

tutti_status tutti_record_part_in(tutti_record_part *p, uint64_t epoch, uint64_t step, int workers,
                                  tutti_error *err)
{
    if (p->epochs == EPOCHS) {
        p->lost++;
        return TUTTI_OK;
    }
    p->epochs++;
    TUTTI_TRY(tutti_record_trace_room(&p->t, TUTTI_RECORD_LINE, err));
    p->t.length += (size_t)snprintf(
        p->t.text + p->t.length, TUTTI_RECORD_LINE,
        TUTTI_RECORD_IN_EPOCH "\"ph\":\"M\",\"pid\":%d,\"args\":{\"at_ns\":%lld,\"epoch\":%llu,"
                              "\"step\":%llu,\"workers\":%d}},\n",
        p->t.rank, (long long)tutti_now_ns(p->t.rt), (unsigned long long)epoch,
        (unsigned long long)step, workers);
    return tutti_record_part_write(p, true, err);
}

tutti_status tutti_record_part_over(tutti_record_part *p, bool ended, uint64_t lost,
                                    tutti_error *err)
{
    p->lost += lost;
    TUTTI_TRY(tutti_record_trace_room(&p->t, TUTTI_RECORD_LINE, err));
    p->t.length += (size_t)snprintf(
        p->t.text + p->t.length, TUTTI_RECORD_LINE,
        TUTTI_RECORD_OUT_OF_EPOCH "\"ph\":\"M\",\"pid\":%d,\"args\":{\"at_ns\":%lld,\"ended\":%s}},\n",
        p->t.rank, (long long)tutti_now_ns(p->t.rt), ended ? "true" : "false");
    if (p->told < p->lost)
        TUTTI_TRY(tutti_record_part_clock(p, &p->t.clock, err));
    return tutti_record_part_write(p, true, err);
}

tutti_status tutti_record_part_add(tutti_record_part *p, const char *tensor,
                                   const tutti_trace_event *e, tutti_error *err)
{
    if (p->left == 0) {
        p->lost++;
        return TUTTI_OK;
    }
    p->left--;
    TUTTI_TRY(tutti_record_trace_room(&p->t, TUTTI_RECORD_LINE, err));
    p->t.length += tutti_record_event(p->t.text + p->t.length, p->t.rank, tensor, e, 0);
    return TUTTI_OK;
}

tutti_status tutti_record_part_write(tutti_record_part *p, bool now, tutti_error *err)
{
    const int64_t at_ns = tutti_now_ns(p->t.rt);

    if (!now && p->t.length < BUFFERED && at_ns - p->written_ns < WAITS_MS * INT64_C(1000000))
        return TUTTI_OK;
    p->written_ns = at_ns;
    return tutti_record_trace_write(&p->t, err);
}

static tutti_status write_gone(tutti_record_part *p, const char *gone, tutti_error *err)
{
    TUTTI_TRY(tutti_record_trace_room(&p->t, TUTTI_RECORD_LINE, err));
    p->t.length += (size_t)snprintf(
        p->t.text + p->t.length, TUTTI_RECORD_LINE,
        TUTTI_RECORD_GONE "\"ph\":\"M\",\"pid\":%d,\"args\":{\"at_ns\":%lld,\"how\":\"%.20s\"}},\n",
        p->t.rank, (long long)tutti_now_ns(p->t.rt), gone);
    return TUTTI_OK;
}

tutti_status tutti_record_part_close(tutti_record_part *p, const char *gone, tutti_error *err)
{
    tutti_status status = TUTTI_OK;

    if (p == NULL)
        return TUTTI_OK;
    if (gone != NULL)
        status = write_gone(p, gone, err);
    if (status == TUTTI_OK)
        status = tutti_record_trace_write(&p->t, err);
    status = tutti_record_trace_close(&p->t, status, false, err);
    tutti_free(p);
    return status;
}
