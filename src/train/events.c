/* events.c: gathers the events of a run at index 0, for summary.json: index 0's own, and those that
   only one other worker knows of, which that one sends. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "gather.h"
#include "train_internal.h"

static json_t *passed_over(const tutti_run *run)
{
    json_t *array = json_array();

    for (const char *line = run->passed_over; line != NULL && *line != 0;
         line = strchr(line, '\n') + 1)
        json_array_append_new(
            array, json_pack("{s:I, s:s, s:s%}", "step", (json_int_t)run->first_step, "kind",
                             "damaged-checkpoint", "text", line, strcspn(line, "\n")));
    return array;
}

json_t *tutti_train_events(const tutti_run *run, bool own)
{
    json_t *now = tutti_record_events(run->engine, own), *all;

    if (own && run->events_before == NULL)
        return now;
    all = run->events_before != NULL ? json_copy(run->events_before) : passed_over(run);
    json_array_extend(all, now);
    json_decref(now);
    return all;
}

tutti_status tutti_train_events_gather(tutti_run *run, json_t **events, tutti_error *err)
{
    const bool first = run->all.index == 0;
    json_t *mine = tutti_train_events(run, !first), *seen;
    char *text = first ? NULL : json_dumps(mine, JSON_COMPACT);
    void *all = NULL;
    size_t *begin = tutti_alloc((size_t)run->all.size + 1, sizeof *begin);
    tutti_status status =
        begin != NULL && (first || text != NULL)
            ? tutti_train_gather_lists(run,
                                       tutti_host(text, text != NULL ? strlen(text) : 0, TUTTI_U8),
                                       begin, &all, err)
            : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for the events of %d workers",
                         run->all.size);

    json_decref(*events); /* of an attempt that a loss has spoilt */
    *events = NULL;
    if (status == TUTTI_OK && first) {
        *events = json_array();
        seen = json_object();
        tutti_record_events_add(*events, seen, mine);
        for (int k = 1; k < run->all.size; k++) {
            json_t *theirs =
                json_loadb((const char *)all + begin[k], begin[k + 1] - begin[k], 0, NULL);
            tutti_record_events_add(*events, seen, theirs);
            json_decref(theirs);
        }
        json_decref(seen);
        status = tutti_record_events_sort(*events, err);
    }
    free(text);
    json_decref(mine);
    tutti_free(all);
    tutti_free(begin);
    return status;
}
