/* events.c: gathers the events of a run for summary.json. Most events are the same on all workers,
   or are recorded by worker 0 alone: these come from index 0. Others are known to one worker only
   (`own`), such as the groups in which it averaged. Every other rank sends these to index 0. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "train_internal.h"

static json_t *object_of(const tutti_event_record *e)
{
    json_t *o = json_pack("{s:I, s:s, s:s}", "step", (json_int_t)e->step, "kind", e->kind, "text", e->text);

    if (e->worker >= 0)
        json_object_set_new(o, "rank", json_integer(e->worker));
    if (e->worker >= 0 && !e->own)
        json_object_set_new(o, "epoch", json_integer(e->epoch));
    return o;
}

static json_t *events_of(const tutti_run *run, bool own)
{
    const tutti_event_record *events;
    const int n = tutti_engine_events(run->engine, &events);
    json_t *array = json_array();

    for (int i = 0; i < n; i++)
        if (!own || events[i].own)
            json_array_append_new(array, object_of(&events[i]));
    return array;
}

static json_t *passed_over(const tutti_run *run)
{
    json_t *array = json_array();

    for (const char *line = run->passed_over; line != NULL && *line != 0; line = strchr(line, '\n') + 1)
        json_array_append_new(array, json_pack("{s:I, s:s, s:s%}", "step", (json_int_t)run->first_step, "kind",
                                               "damaged-checkpoint", "text", line, strcspn(line, "\n")));
    return array;
}

/* ---- one list, sorted by step ---- */

typedef struct placed { json_t *event; json_int_t step; size_t at; } placed;

static int by_step(const void *a, const void *b)
{
    const placed *x = a, *y = b;

    return x->step != y->step ? (x->step > y->step) - (x->step < y->step) : (x->at > y->at) - (x->at < y->at);
}

/* Sorts events by step; those of one step keep their order. */
static tutti_status sort(json_t *events, tutti_error *err)
{
    const size_t n = json_array_size(events);
    placed *all = tutti_alloc(n + 1, sizeof *all);

    if (all == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for %zu events", n);
    for (size_t i = 0; i < n; i++) {
        json_t *event = json_incref(json_array_get(events, i));
        all[i] = (placed){ event, json_integer_value(json_object_get(event, "step")), i };
    }
    qsort(all, n, sizeof *all, by_step);
    json_array_clear(events);
    for (size_t i = 0; i < n; i++)
        json_array_append_new(events, all[i].event);
    tutti_free(all);
    return TUTTI_OK;
}

/* Adds the events of `from` that are not in `to` yet. seen: has the texts of those in `to` as
   keys. */
static void add_new(json_t *to, json_t *seen, const json_t *from)
{
    json_t *event;
    size_t i;

    json_array_foreach(from, i, event) {
        char *text = json_dumps(event, JSON_COMPACT);
        if (text != NULL && json_object_get(seen, text) == NULL) {
            json_object_set_new(seen, text, json_true());
            json_array_append(to, event);
        }
        free(text);
    }
}

tutti_status tutti_train_events_gather(tutti_run *run, json_t **events, tutti_error *err)
{
    const bool first = run->all.index == 0;
    json_t *mine = events_of(run, !first), *seen;
    char *text = first ? NULL : json_dumps(mine, JSON_COMPACT);
    void *all = NULL;
    size_t *begin = tutti_alloc((size_t)run->all.size + 1, sizeof *begin);
    tutti_status status =
        begin != NULL && (first || text != NULL)
            ? tutti_train_gather_lists(run, tutti_host(text, text != NULL ? strlen(text) : 0, TUTTI_U8), begin,
                                       &all, err)
            : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for the events of %d workers", run->all.size);

    json_decref(*events); /* of an attempt that a loss has spoilt */
    *events = NULL;
    if (status == TUTTI_OK && first) {
        *events = passed_over(run);
        seen = json_object();
        add_new(*events, seen, mine);
        for (int k = 1; k < run->all.size; k++) {
            json_t *theirs = json_loadb((const char *)all + begin[k], begin[k + 1] - begin[k], 0, NULL);
            add_new(*events, seen, theirs);
            json_decref(theirs);
        }
        json_decref(seen);
        status = sort(*events, err);
    }
    free(text);
    json_decref(mine);
    tutti_free(all);
    tutti_free(begin);
    return status;
}
