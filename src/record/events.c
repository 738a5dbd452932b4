/* events.c: the events of a run, for summary.json. Most events are the same on all workers, or are
   recorded by worker 0 alone: these come from it. Others are known to one worker only (`own`), such
   as the groups in which it averaged; they are added to the list. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "record/files.h"

static json_t *object_of(const tutti_event_record *e)
{
    json_t *o =
        json_pack("{s:I, s:s, s:s}", "step", (json_int_t)e->step, "kind", e->kind, "text", e->text);

    if (e->worker >= 0)
        json_object_set_new(o, "rank", json_integer(e->worker));
    if (e->worker >= 0 && !e->own)
        json_object_set_new(o, "epoch", json_integer(e->epoch));
    return o;
}

json_t *tutti_record_events(const tutti_engine *engine, bool own)
{
    const tutti_event_record *events;
    const int n = tutti_engine_events(engine, &events);
    json_t *array = json_array();

    for (int i = 0; i < n; i++)
        if (!own || events[i].own)
            json_array_append_new(array, object_of(&events[i]));
    return array;
}

/* ---- one list, sorted by step ---- */

typedef struct placed { json_t *event; json_int_t step; size_t at; } placed;

static int by_step(const void *a, const void *b)
{
    const placed *x = a, *y = b;

    return x->step != y->step ? (x->step > y->step) - (x->step < y->step)
                              : (x->at > y->at) - (x->at < y->at);
}

tutti_status tutti_record_events_sort(json_t *events, tutti_error *err)
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

void tutti_record_events_add(json_t *to, json_t *seen, const json_t *from)
{
    json_t *event;
    size_t i;

    json_array_foreach(from, i, event) {
        json_t *same = json_copy(event); /* but for what it took each member */
        char *text;
        json_object_del(same, "seconds");
        text = json_dumps(same, JSON_COMPACT);
        json_decref(same);
        if (text != NULL && json_object_get(seen, text) == NULL) {
            json_object_set_new(seen, text, json_true());
            json_array_append(to, event);
        }
        free(text);
    }
}
