/* merge_members.c: makes one trace of the parts of members (member.c). A part has the member's
   events, and lines of its own by which one knows in which epochs it was, and how it went. Of these
   lines spans and events are made here. A member that was killed has written none of its end: it is
   lost if another one was in a later epoch; else it may still train. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "record_internal.h"
#include "merge.h"

/* ---- the lines of a part ---- */

typedef struct own_line {
    enum { OTHER, IN, OVER, GONE } kind;
    int64_t at_ns;
    uint64_t epoch, step;        /* IN */
    int workers;                 /* IN */
    bool ended;                  /* OVER */
    char how[24];                /* GONE */
} own_line;

static uint64_t number_of(const json_t *args, const char *name)
{
    return (uint64_t)json_integer_value(json_object_get(args, name));
}

static own_line read_own(const char *line, size_t length)
{
    static const char *const begins[] = { [IN] = TUTTI_RECORD_IN_EPOCH,
                                          [OVER] = TUTTI_RECORD_OUT_OF_EPOCH,
                                          [GONE] = TUTTI_RECORD_GONE };
    own_line l = { .kind = GONE };
    const json_t *args;
    const char *how;
    json_t *o;

    while (l.kind != OTHER && (length < strlen(begins[l.kind]) + 2 ||
                               memcmp(line, begins[l.kind], strlen(begins[l.kind])) != 0))
        l.kind--;
    if (l.kind == OTHER)
        return l;
    o = json_loadb(line, length - 2, 0, NULL); /* without ",\n" */
    args = json_object_get(o, "args");
    if (!json_is_object(args))
        l.kind = OTHER;
    l.at_ns = json_integer_value(json_object_get(args, "at_ns"));
    l.epoch = number_of(args, "epoch");
    l.step = number_of(args, "step");
    l.workers = (int)json_integer_value(json_object_get(args, "workers"));
    l.ended = json_is_true(json_object_get(args, "ended"));
    how = json_string_value(json_object_get(args, "how"));
    snprintf(l.how, sizeof l.how, "%s", how != NULL ? how : "");
    json_decref(o);
    return l;
}

/* ---- what is made of them ---- */

/* A part, while spans and events are added behind its text. Times are on its member's clock. */
typedef struct part {
    int worker;
    const char *text, *end;
    uint64_t newest;             /* the last epoch of any member */
    tutti_record_bytes out;
    own_line in;                 /* the last epoch of this one; epoch 0: none */
    bool inside;                 /* it is not over */
    bool ended;                  /* the run has, as far as this member knows */
    bool gone;
} part;

static void add_span(part *p, int64_t end_ns, bool cut)
{
    char line[TUTTI_RECORD_LINE], at[TUTTI_RECORD_US], us[TUTTI_RECORD_US];
    const int n = snprintf(
        line, sizeof line,
        "{\"name\":\"epoch %llu\",\"cat\":\"epoch\",\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":%s,"
        "\"dur\":%s,\"args\":{\"epoch\":%llu,\"step\":%llu,\"workers\":%d%s}},\n",
        (unsigned long long)p->in.epoch, p->worker, TUTTI_RECORD_MEMBERS_THREAD,
        tutti_record_us(at, p->in.at_ns),
        tutti_record_us(us, end_ns > p->in.at_ns ? end_ns - p->in.at_ns : 0),
        (unsigned long long)p->in.epoch, (unsigned long long)p->in.step, p->in.workers,
        cut ? ",\"cut\":true" : "");

    tutti_record_add(&p->out, line, (size_t)n);
    p->inside = false;
}

/* what: join, leave, loss, failure. */
static void add_instant(part *p, const char *what, int64_t at_ns)
{
    char line[TUTTI_RECORD_LINE], at[TUTTI_RECORD_US];
    const int n = snprintf(line, sizeof line,
                           "{\"name\":\"%s\",\"cat\":\"members\",\"ph\":\"i\",\"pid\":%d,\"tid\":%d,"
                           "\"ts\":%s,\"s\":\"p\",\"args\":{\"worker\":%d,\"epoch\":%llu}},\n",
                           what, p->worker, TUTTI_RECORD_MEMBERS_THREAD, tutti_record_us(at, at_ns),
                           p->worker, (unsigned long long)p->in.epoch);

    tutti_record_add(&p->out, line, (size_t)n);
}

/* When the last event of the part has ended. */
static int64_t last_ns(const part *p)
{
    int64_t last = p->in.at_ns;
    size_t length;

    for (const char *at = p->text; tutti_record_whole_line(at, p->end, &length); at += length) {
        const int64_t ended = tutti_record_ended_ns(at, length);
        last = ended > last ? ended : last;
    }
    return last;
}

static void take_line(part *p, const own_line *l)
{
    if (l->kind == IN) {
        if (p->inside) /* it went on without having written its end: a line was lost */
            add_span(p, l->at_ns, true);
        if (p->in.epoch == 0 && l->epoch > 1) {
            p->in = *l;
            add_instant(p, "join", l->at_ns);
        }
        p->in = *l;
        p->inside = true;
    } else if (l->kind == OVER && p->inside) {
        add_span(p, l->at_ns, false);
        p->ended = l->ended;
    } else if (l->kind == GONE) {
        add_instant(p, l->how, l->at_ns);
        p->gone = true;
    }
}

/* Adds spans and events behind the text. */
static tutti_status add_membership(part *p, tutti_error *err)
{
    size_t length;

    for (const char *at = p->text; tutti_record_whole_line(at, p->end, &length); at += length) {
        const own_line l = read_own(at, length);
        tutti_record_add(&p->out, at, length);
        if (l.kind != OTHER)
            take_line(p, &l);
    }
    if (p->inside || (p->in.epoch > 0 && p->in.epoch < p->newest && !p->gone && !p->ended)) {
        const int64_t at_ns = last_ns(p);
        if (p->inside)
            add_span(p, at_ns, true);
        if (p->in.epoch < p->newest && !p->gone)
            add_instant(p, "loss", at_ns);
    }
    return p->out.failed ? tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM,
                                      "memory to merge the part of worker %d", p->worker)
                         : TUTTI_OK;
}

/* ---- all parts ---- */

typedef struct parts {
    tutti_runtime *rt;
    char folder[TUTTI_RECORD_PATH];
    int n, most;                 /* how many; the largest worker that has one */
    uint64_t newest;
    tutti_record_merged to;
} parts;

static tutti_status count_part(void *user, const char *name, tutti_error *err)
{
    parts *all = user;
    const int worker = tutti_record_rank_of(TUTTI_RECORD_TRACE, name);

    (void)err;
    all->n += worker >= 0;
    all->most = worker > all->most ? worker : all->most;
    return TUTTI_OK;
}

static tutti_status find_newest(parts *all, int worker, const char *text, size_t bytes,
                                tutti_error *err)
{
    size_t length;

    (void)worker;
    (void)err;
    for (const char *at = text; tutti_record_whole_line(at, text + bytes, &length); at += length) {
        const own_line l = read_own(at, length);
        if (l.kind == IN && l.epoch > all->newest)
            all->newest = l.epoch;
    }
    return TUTTI_OK;
}

static tutti_status merge_part(parts *all, int worker, const char *text, size_t bytes,
                               tutti_error *err)
{
    part p = { .worker = worker, .text = text, .end = text + bytes, .newest = all->newest };
    tutti_status status = add_membership(&p, err);

    if (status == TUTTI_OK)
        status = tutti_record_merge_text(&all->to, worker, (const char *)p.out.at, p.out.n, err);
    tutti_free(p.out.at);
    return status;
}

/* Calls `each` with the text of each part, in the order of the workers. */
static tutti_status each_part(parts *all,
                              tutti_status (*each)(parts *all, int worker, const char *text,
                                                   size_t bytes, tutti_error *err),
                              tutti_error *err)
{
    for (int worker = 0; worker <= all->most; worker++) {
        char path[TUTTI_RECORD_PATH], *text;
        size_t bytes;
        tutti_status status;
        tutti_record_path(path, all->folder, TUTTI_RECORD_TRACE, worker);
        if (!tutti_file_exists(all->rt, path))
            continue;
        TUTTI_TRY(tutti_record_read(all->rt, path, (size_t)1 << 30, &text, &bytes, err));
        status = each(all, worker, text, bytes, err);
        tutti_free(text);
        TUTTI_TRY(status);
    }
    return TUTTI_OK;
}

tutti_status tutti_record_merge_members(tutti_runtime *rt, const char *folder, int *n,
                                        uint64_t *lost, tutti_error *err)
{
    parts all = { .rt = rt, .most = -1 };
    char path[TUTTI_RECORD_PATH];
    tutti_status status;

    *n = 0;
    *lost = 0;
    snprintf(all.folder, sizeof all.folder, "%.4000s/" TUTTI_RECORD_PARTS, folder);
    if (!tutti_file_exists(rt, all.folder))
        return TUTTI_OK;
    TUTTI_TRY(tutti_directory_list(rt, all.folder, count_part, &all, err));
    if (all.n == 0)
        return TUTTI_OK;
    TUTTI_TRY(each_part(&all, find_newest, err));
    all.to.workers = all.most + 1;
    snprintf(path, sizeof path, "%.4000s/trace.json", folder);
    TUTTI_TRY(tutti_file_begin(&all.to.file, rt, path, true, err));
    status = each_part(&all, merge_part, err);
    *n = all.n;
    *lost = all.to.lost;
    return tutti_record_merge_end(&all.to, status, err);
}
