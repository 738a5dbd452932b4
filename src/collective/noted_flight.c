/* noted_flight.c: the flight record: what a rank is in and its last events, as a file next to the
   error that has ended the run. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "collective_internal.h"
#include "noted.h"
#include "runtime/files.h"

enum { LINE = 400, LINES = TUTTI_ACTIVITY_SLOTS + TUTTI_ACTIVITY_EVENTS + 8 };

typedef struct page {
    char *text;
    size_t n, room;
} page;

static void put(page *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(page *p, const char *format, ...)
{
    va_list args;
    int n;

    va_start(args, format);
    n = vsnprintf(p->text + p->n, p->room - p->n, format, args);
    va_end(args);
    p->n += n > 0 && (size_t)n < p->room - p->n ? (size_t)n : 0;
}

/* A text of the record as JSON's: what would need an escape is a '?'. */
static const char *plain(const char *from, char to[64])
{
    size_t k = 0;

    for (; from[k] != '\0' && k < 63; k++)
        to[k] = (unsigned char)from[k] < ' ' || (unsigned char)from[k] > '~' || from[k] == '"' ||
                        from[k] == '\\'
                    ? '?'
                    : from[k];
    to[k] = '\0';
    return to;
}

/* Times are in seconds before now_ns. */
static void put_entry(page *p, const tutti_activity_entry *e, int64_t now_ns, bool last)
{
    static const char *const kinds[] = { "client", "exchange", "collective", "message" };
    char what[64], of[64];

    put(p,
        "    {\"kind\": \"%s\", \"what\": \"%s\", \"of\": \"%s\", \"number\": %u, \"elements\": "
        "%llu, \"index\": %d, \"peer\": %d, \"step\": %llu, \"call\": \"%016llx\", \"began_ago\": "
        "%.3f",
        kinds[e->kind - 1], plain(e->what, what), plain(e->of, of), e->number,
        (unsigned long long)e->count, e->index, e->peer, (unsigned long long)e->step,
        (unsigned long long)e->call, (double)(now_ns - e->since_ns) * 1e-9);
    if (e->ended_ns != 0)
        put(p, ", \"took\": %.3f", (double)(e->ended_ns - e->since_ns) * 1e-9);
    put(p, "}%s\n", last ? "" : ",");
}

static void put_all(page *p, const tutti_activity_view *v, int64_t now_ns)
{
    put(p, "{\n  \"rank\": %d, \"size\": %d, \"process\": %lld, \"transport\": \"%s\", "
        "\"events_ever\": %llu,\n  \"now\": [\n",
        v->about.rank, v->about.size, (long long)v->about.process, v->about.transport,
        (unsigned long long)v->events_ever);
    for (int k = 0; k < v->n_now; k++)
        put_entry(p, &v->now[k], now_ns, k + 1 == v->n_now);
    put(p, "  ],\n  \"events\": [\n");
    for (int k = 0; k < v->n_events; k++)
        put_entry(p, &v->events[k], now_ns, k + 1 == v->n_events);
    put(p, "  ]\n}\n");
}

static tutti_status write_page(tutti_runtime *rt, const char *path, const page *p, tutti_error *err)
{
    tutti_file *file;
    tutti_status status, closed;

    /* of an earlier run; CREATE says if it could not be removed */
    (void)tutti_file_remove(rt, path, NULL);
    TUTTI_TRY(tutti_file_open(&file, rt, path, TUTTI_FILE_CREATE, err));
    status = tutti_file_write(file, p->text, p->n, err);
    closed = tutti_file_close(file, status == TUTTI_OK ? err : NULL);
    return status == TUTTI_OK ? closed : status;
}

tutti_status tutti_world_flight(tutti_world *world, const char *directory, tutti_error *err)
{
    char path[4200];
    tutti_activity_view *view = tutti_alloc(1, sizeof *view);
    page p = { .text = tutti_alloc(LINES, LINE), .room = (size_t)LINES * LINE };
    tutti_status status =
        view != NULL && p.text != NULL
            ? tutti_activity_own(world->activity, view, err)
            : tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory for the flight record");

    if (status == TUTTI_OK) {
        snprintf(path, sizeof path, "%s/flight-%d.json", directory, world->rank);
        put_all(&p, view, tutti_now_ns(world->rt));
        status = write_page(world->rt, path, &p, err);
    }
    tutti_free(view);
    tutti_free(p.text);
    return status;
}
