/* trace.c: gathers the activities of all ranks in one file (trace.json, for Chrome), on one clock:
   clocks are compared (record/files.h) at the beginning and at the end of a run. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "trace.h"
#include "trace_part.h"
#include "train_internal.h"

/* Parses "A:B". false: malformed, or "", which means all steps. */
static bool steps_of(const char *text, uint64_t *first, uint64_t *last)
{
    char *end;

    *first = *last = 0;
    if (*text < '0' || *text > '9')
        return false;
    *first = strtoull(text, &end, 10);
    if (*end != ':' || end[1] < '0' || end[1] > '9')
        return false;
    *last = strtoull(end + 1, &end, 10);
    return *end == 0 && *first <= *last && *last <= (uint64_t)1e15;
}

tutti_status tutti_train_check_trace(tutti_train_config *c, tutti_error *err)
{
    uint64_t first, last;

    if (c->trace_steps[0] == 0)
        return TUTTI_OK;
    if (!steps_of(c->trace_steps, &first, &last))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "trace-steps is '%.80s'; give A:B with whole numbers, A at most B and B "
                          "at most 1e15, as 100:119: the first step is 0",
                          c->trace_steps);
    c->trace = true;
    return TUTTI_OK;
}

void tutti_train_trace_steps(const tutti_train_config *c, uint64_t *first, uint64_t *steps)
{
    uint64_t last;

    *steps = steps_of(c->trace_steps, first, &last) ? last - *first + 1 : 0;
}

/* ---- clocks ---- */

static tutti_status begin_clock(tutti_run *run, void *nothing, tutti_error *err)
{
    (void)nothing;
    return run->part != NULL ? tutti_train_part_clock(run, err)
                             : tutti_record_clock_compare(&run->all, &run->clock, err);
}

tutti_status tutti_train_trace_begin(tutti_run *run, tutti_error *err)
{
    run->clock.reference = -1;
    return run->config->trace && tutti_record_clocks_differ(run->world)
               ? tutti_train_meet(run, begin_clock, NULL, err)
               : TUTTI_OK;
}

/* ---- text ---- */

typedef struct lines {
    char *at;
    size_t length;
} lines; /* the buffer is large enough for all lines */

/* Writes the lines of this rank. */
static tutti_status write_lines(const tutti_run *run, const tutti_record_clock *end, lines *t,
                                tutti_error *err)
{
    const tutti_record_clock clocks[] = { run->clock, *end };
    const tutti_trace_event *events;
    const size_t n = tutti_engine_trace(run->engine, &events);

    *t = (lines){ .at = tutti_alloc((n + 5) * TUTTI_RECORD_LINE, 1) };
    if (t->at == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "writing a trace of %zu events", n);
    t->length = tutti_record_head(t->at, run->rank, run->workers, end,
                                  tutti_engine_trace_lost(run->engine));
    for (size_t i = 0; i < n; i++) {
        const tutti_trace_event *e = &events[i];
        const char *tensor =
            e->index >= 0 && e->index < run->n_params ? run->params[e->index].name : NULL;
        t->length += tutti_record_event(t->at + t->length, run->rank, tensor, e,
                                        tutti_record_clock_ahead(clocks, 2, e->begin_ns));
    }
    return TUTTI_OK;
}

/* Merges the lines of all ranks into one JSON array, at index 0. It uses collectives, so that all
   ranks learn of a loss. */
static tutti_status gather_lines(tutti_run *run, const lines *mine, tutti_train_trace *trace,
                                 tutti_error *err)
{
    const size_t n = (size_t)run->all.size;
    int64_t own[2] = { (int64_t)mine->length, (int64_t)tutti_engine_trace_lost(run->engine) };
    int64_t *counted = tutti_alloc(2 * n, sizeof *counted), lost = 0;
    size_t *counts = tutti_alloc(n, sizeof *counts), length = 2;
    char *all = NULL;
    tutti_status status =
        counts != NULL && counted != NULL
            ? tutti_allgather(&run->all, tutti_host(own, 2, TUTTI_I64),
                              tutti_host(counted, 2 * n, TUTTI_I64), err)
            : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "merging the trace of %zu workers", n);

    for (size_t i = 0; status == TUTTI_OK && i < n; i++) {
        counts[i] = (size_t)counted[2 * i];
        length += counts[i];
        lost += counted[2 * i + 1];
    }
    if (status == TUTTI_OK && run->all.index == 0 && (all = tutti_alloc(length + 2, 1)) == NULL)
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "merging the trace of %zu workers", n);
    if (status == TUTTI_OK)
        status = tutti_gather_parts_v(
            &run->all, 0, counts, tutti_host(mine->at, mine->length, TUTTI_U8),
            all != NULL ? tutti_host(all + 2, length - 2, TUTTI_U8) : tutti_nothing(), err);
    if (status == TUTTI_OK && all != NULL) {
        memcpy(all, "[\n", 2);
        memcpy(all + length - 2, "\n]\n", 3); /* over the last comma and line end */
        *trace = (tutti_train_trace){ all, length + 1, (uint64_t)lost };
    } else
        tutti_free(all);
    tutti_free(counts);
    tutti_free(counted);
    return status;
}

tutti_status tutti_train_trace_gather(tutti_run *run, tutti_train_trace *trace, tutti_error *err)
{
    tutti_record_clock end = { 0 };
    tutti_status status;
    lines mine;

    tutti_free(trace->text); /* of an attempt that a loss has spoilt */
    *trace = (tutti_train_trace){ 0 };
    if (!run->config->trace)
        return TUTTI_OK;
    if (run->part != NULL)
        return tutti_train_part_gather(run, err);
    end.reference = tutti_train_rank(run, 0);
    end.at_ns = tutti_now_ns(run->rt);
    if (tutti_record_clocks_differ(run->world))
        TUTTI_TRY(tutti_record_clock_compare(&run->all, &end, err));
    TUTTI_TRY(write_lines(run, &end, &mine, err));
    status = gather_lines(run, &mine, trace, err);
    tutti_free(mine.at);
    return status;
}
