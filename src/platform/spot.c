/* spot.c: draws when hosts are taken away and given back (spot.h).

   The hosts are in places: zones, data centres. Each place has its own events, a Poisson process.
   An event takes several hosts of its place at once, as many as a table says, of those that are
   there; it takes none if none is. What an event has taken comes back together, after a time that
   is lognormal. So the neighbours of a host are lost with it much more often than by chance.

   The values are those of public traces. Parcae (Duan et al., 2024, arXiv 2403.14097), 32 hosts of
   one kind for 11.4 hours: 6.95 events an hour, whose sizes are `few`; 7.4 events an hour in which
   hosts came back; 24.0 hosts there on average. Of SkyPilot, 16 hosts: 0.31 to
   0.50 events an hour; 85 to 93 % of them took at least two hosts, up to all 16 (`bulk`). Times
   until hosts of one zone came back: a median of 23 to 42 minutes, and 5 to 15 times that at the
   90th percentile. */
#include "platform/spot.h"
#include "base/options.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { HOSTS_MOST = 16384, HOURS_MOST = 1000, EVENTS_MOST = 1000 };
typedef enum { FEW, BULK } sizes;

typedef struct values {
    int64_t n, places, seed;
    int size;
    double hours, events, back, spread;
} values;

/* A host at a time. Times are whole milliseconds, so that no libm's last bit shows. */
typedef struct change { int64_t ms, host; bool up; } change;
typedef struct changes { change *all; size_t n, capacity; } changes;

#define AT(member) TUTTI_AT(values, member)
const tutti_option tutti_spot_options[] = {
    { "n", TUTTI_INT, AT(n), 8, 1, HOSTS_MOST, NULL, "hosts, which are those of workers 0, 1, ..." },
    { "places", TUTTI_INT, AT(places), 1, 1, HOSTS_MOST, NULL,
      "places, as equal as possible, with hosts that follow each other; each has its own events" },
    { "hours", TUTTI_REAL, AT(hours), 1, 0.001, HOURS_MOST, NULL, "of the trace" },
    { "events", TUTTI_REAL, AT(events), 7, 0, EVENTS_MOST, NULL,
      "an hour and place that take hosts away: 7 is busy, 0.4 calm" },
    { "size", TUTTI_CHOICE, AT(size), FEW, 0, 0, "few|bulk",
      "hosts that an event takes: few: one in half of the events, at most 6; bulk: one in a tenth "
      "of them, else any number from 2 to all that are there" },
    { "back", TUTTI_REAL, AT(back), 20, 0.001, 100000, NULL,
      "minutes until half of the events' hosts have come back" },
    { "spread", TUTTI_REAL, AT(spread), 5, 1, 100, NULL,
      "times those minutes until nine tenths have" },
    { "seed", TUTTI_INT, AT(seed), 0, 0, 9007199254740992.0, NULL, "of all draws" },
    { 0 }
};

static bool append(changes *list, int64_t ms, int64_t host, bool up)
{
    if (list->n == list->capacity) {
        const size_t capacity = list->capacity > 0 ? 2 * list->capacity : 256;
        change *more = tutti_alloc(capacity, sizeof *more);
        if (more == NULL)
            return false;
        if (list->n > 0)
            memcpy(more, list->all, list->n * sizeof *more);
        tutti_free(list->all);
        list->all = more;
        list->capacity = capacity;
    }
    list->all[list->n++] = (change){ ms, host, up };
    return true;
}

/* What comes back comes first: a host may be taken again at that moment. */
static int by_time(const void *left, const void *right)
{
    const change *a = left, *b = right;

    if (a->ms != b->ms)
        return a->ms < b->ms ? -1 : 1;
    if (a->up != b->up)
        return a->up ? -1 : 1;
    return (a->host > b->host) - (a->host < b->host);
}

/* How many of `there` hosts, at least 1, an event takes. */
static int64_t draw_size(const values *v, int64_t there, double u)
{
    static const int few[] = { 39, 13, 15, 7, 1, 4 }; /* of 79 events: those that took 1, 2, ... */
    double left = u * 79;
    int64_t size = 1;

    if (v->size == BULK)
        size = u < 0.1 ? 1 : 2 + (int64_t)((u - 0.1) / 0.9 * (double)(there - 1));
    for (size_t k = 0; v->size == FEW && k + 1 < TUTTI_LENGTH(few) && left >= few[k]; k++, size++)
        left -= few[k];
    return size < there ? size : there;
}

/* The events of a place, whose hosts are first to first + n - 1. there, back: [n], for this
   function. */
static bool draw_place(const values *v, int64_t first, int64_t n, uint64_t place, int64_t *there,
                       int64_t *back, changes *list)
{
    tutti_rng rng = { (uint64_t)v->seed, UINT64_C(0x73706f74) + (place << 40), 0 };
    const double end = v->hours * 3600e3, sigma = log(v->spread) / 1.2815515655446004;
    double at = 0, away;

    memset(back, 0, (size_t)n * sizeof *back);
    for (; v->events > 0; rng.step++) {
        int64_t alive = 0, size, until, ms;
        at += -log1p(-tutti_uniform(rng, 0)) / v->events * 3600e3;
        if (at >= end)
            break;
        ms = (int64_t)at;
        for (int64_t k = 0; k < n; k++)
            if (back[k] <= ms)
                there[alive++] = k;
        if (alive == 0)
            continue;
        size = draw_size(v, alive, tutti_uniform(rng, 1));
        away = v->back * 60e3 * exp(sigma * tutti_normal(rng, 2));
        until = ms + 1 + (int64_t)(away < end ? away : end);
        for (int64_t k = 0; k < size; k++) {
            const int64_t pick =
                k + (int64_t)(tutti_uniform(rng, 3 + (uint64_t)k) * (double)(alive - k));
            const int64_t host = there[pick];
            there[pick] = there[k];
            back[host] = until;
            if (!append(list, ms, first + host, false) ||
                ((double)until < end && !append(list, until, first + host, true)))
                return false;
        }
    }
    return true;
}

static tutti_status draw_all(const values *v, changes *list, tutti_error *err)
{
    int64_t *scratch = tutti_alloc(2 * (size_t)v->n, sizeof *scratch);
    bool fits = scratch != NULL;

    for (int64_t p = 0; p < v->places && fits; p++) {
        const int64_t first = p * v->n / v->places, last = (p + 1) * v->n / v->places;
        fits = draw_place(v, first, last - first, (uint64_t)p, scratch, scratch + v->n, list);
    }
    tutti_free(scratch);
    if (!fits)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "drawing the losses of %lld hosts",
                          (long long)v->n);
    if (list->n > 0)
        qsort(list->all, list->n, sizeof *list->all, by_time);
    return TUTTI_OK;
}

tutti_status tutti_spot_print(FILE *out, const char *text, tutti_error *err)
{
    char canonical[512];
    values v = { 0 };
    changes list = { .n = 0 };
    tutti_spec *spec;
    tutti_status status = tutti_spec_open(&spec, text, err);

    if (status == TUTTI_OK && strcmp(tutti_spec_name(spec), TUTTI_SPOT_NAME) != 0)
        status = tutti_fail(err, TUTTI_ERR_USAGE, 0, "'%.60s' is no trace of losses; write %s(...)",
                            tutti_spec_name(spec), TUTTI_SPOT_NAME);
    if (status == TUTTI_OK)
        status = tutti_spec_apply(spec, TUTTI_SPOT_NAME, tutti_spot_options, &v, err);
    if (status == TUTTI_OK && v.places > v.n)
        status = tutti_fail(err, TUTTI_ERR_USAGE, 0,
                            "spot has %lld hosts in %lld places; each place needs a host",
                            (long long)v.n, (long long)v.places);
    if (status == TUTTI_OK)
        status = draw_all(&v, &list, err);
    if (status == TUTTI_OK) {
        tutti_spec_print(TUTTI_SPOT_NAME, tutti_spot_options, &v, canonical, sizeof canonical);
        fprintf(out, "# tutti platform '%s'\n# SECONDS WORKER down|up\n", canonical);
        for (size_t k = 0; k < list.n; k++)
            fprintf(out, "%lld.%03lld %lld %s\n", (long long)(list.all[k].ms / 1000),
                    (long long)(list.all[k].ms % 1000), (long long)list.all[k].host,
                    list.all[k].up ? "up" : "down");
        if (ferror(out))
            status = tutti_fail(err, TUTTI_ERR_IO, 0, "writing losses; is the disk full?");
    }
    tutti_free(list.all);
    tutti_spec_close(spec);
    return status;
}
