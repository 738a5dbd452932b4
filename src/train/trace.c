/* trace.c: gathers the activities of all ranks in one file (trace.json, for Chrome), on one clock.

   Each host has a clock of its own. All ranks call a barrier a few times, and each one records by
   its own clock when it came and when it left. No rank leaves a barrier before all have come.
   So of ranks i and 0, whose clocks are ahead of a true one by a and b:
       came_0 - b <= left_i - a   and   came_i - a <= left_0 - b,
   that is  came_i - left_0 <= a - b <= left_i - came_0.  The tightest bounds over all barriers
   hold. If 0 lies between the bounds, a - b is taken as 0. Else a - b is taken in the middle, and
   the file states by how much that may be wrong ("within_us" of the event "clock"). This is
   measured at the beginning and at the end of a run, since clocks drift: the difference is
   interpolated between the two. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "train_internal.h"

enum { BARRIERS = 16 };

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
                          "trace-steps is '%.80s'; give A:B with whole numbers, A at most B and B at most 1e15, as "
                          "100:119: the first step is 0",
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

/* Measures how far this rank's clock is ahead of index 0's, and by how much that may be wrong.
   Collective. */
static tutti_status compare_clocks(tutti_run *run, int64_t *ahead_ns, int64_t *within_ns, tutti_error *err)
{
    int64_t mine[2 * BARRIERS], first[2 * BARRIERS], least = INT64_MIN, most = INT64_MAX;

    for (int k = 0; k < BARRIERS; k++) {
        mine[2 * k] = tutti_now_ns(run->rt);
        TUTTI_TRY(tutti_barrier(&run->all, err));
        mine[2 * k + 1] = tutti_now_ns(run->rt);
    }
    memcpy(first, mine, sizeof first);
    TUTTI_TRY(tutti_broadcast(&run->all, 0, tutti_host(first, TUTTI_LENGTH(first), TUTTI_I64), err));
    for (int k = 0; k < BARRIERS; k++) {
        const int64_t at_least = mine[2 * k] - first[2 * k + 1], at_most = mine[2 * k + 1] - first[2 * k];
        least = at_least > least ? at_least : least;
        most = at_most < most ? at_most : most;
    }
    *ahead_ns = least <= 0 && most >= 0 ? 0 : least + (most - least) / 2;
    *within_ns = *ahead_ns == 0 ? 0 : (most - least) / 2;
    return TUTTI_OK;
}

/* May ranks have different clocks? Those that share memory or a simulation do not. */
static bool may_differ(const tutti_run *run)
{
    const char *transport = tutti_world_transport(run->world);

    return strcmp(transport, "shm") != 0 && !tutti_world_simulated(transport);
}

static tutti_status begin_clock(tutti_run *run, void *nothing, tutti_error *err)
{
    int64_t within;

    (void)nothing;
    TUTTI_TRY(compare_clocks(run, &run->clock.ahead_ns, &within, err));
    run->clock.at_ns = tutti_now_ns(run->rt);
    run->clock.reference = tutti_train_rank(run, 0);
    return TUTTI_OK;
}

tutti_status tutti_train_trace_begin(tutti_run *run, tutti_error *err)
{
    run->clock.reference = -1;
    return run->config->trace && may_differ(run) ? tutti_train_meet(run, begin_clock, NULL, err) : TUTTI_OK;
}

/* Returns by how much this rank's clock was ahead at at_ns: interpolated between a and b, or that
   of b if they were measured against different ranks. */
static int64_t ahead_at(const tutti_train_clock *a, const tutti_train_clock *b, int64_t at_ns)
{
    if (a->reference != b->reference || b->at_ns <= a->at_ns)
        return b->ahead_ns;
    return a->ahead_ns +
           (int64_t)((double)(b->ahead_ns - a->ahead_ns) * (double)(at_ns - a->at_ns) / (double)(b->at_ns - a->at_ns));
}

/* ---- text ---- */

enum { LINE_BYTES = 320 };
typedef struct lines {
    char *at;
    size_t length;
} lines; /* the buffer is large enough for all lines */

static void put_event(lines *t, const tutti_run *run, const tutti_trace_event *e, int64_t ahead_ns)
{
    const bool instant = e->begin_ns == e->end_ns;
    char name[64], how_long[48];

    if (strcmp(e->what, "ready") == 0 && e->index < run->n_params)
        snprintf(name, sizeof name, "ready %s", run->params[e->index].name);
    else if (strcmp(e->what, "update") == 0)
        snprintf(name, sizeof name, "update");
    else
        snprintf(name, sizeof name, "%s %d", e->what, e->index);
    if (instant)
        snprintf(how_long, sizeof how_long, "\"s\":\"t\"");
    else
        snprintf(how_long, sizeof how_long, "\"dur\":%.3f", (double)(e->end_ns - e->begin_ns) * 1e-3);
    t->length += (size_t)snprintf(t->at + t->length, LINE_BYTES,
                                  "{\"name\":\"%s\",\"cat\":\"%s\",\"ph\":\"%s\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,%s,"
                                  "\"args\":{\"step\":%llu}},\n",
                                  name, e->what, instant ? "i" : "X", run->rank, e->thread,
                                  (double)(e->begin_ns - ahead_ns) * 1e-3, how_long, (unsigned long long)e->step);
}

/* Writes the lines of this rank. */
static tutti_status write_lines(const tutti_run *run, const tutti_train_clock *end, int64_t within_ns, lines *t,
                                tutti_error *err)
{
    const tutti_trace_event *events;
    const size_t n = tutti_engine_trace(run->engine, &events);
    const bool serves = tutti_train_serves(run);

    *t = (lines){ .at = tutti_alloc((n + 4) * LINE_BYTES, 1) };
    if (t->at == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "writing a trace of %zu events", n);
    t->length = (size_t)snprintf(
        t->at, (size_t)4 * LINE_BYTES,
        "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,\"args\":{\"name\":\"%s %d\"}},\n"
        "{\"name\":\"clock\",\"ph\":\"M\",\"pid\":%d,\"args\":{\"ahead_us\":%.3f,\"within_us\":%.3f,\"lost\":%llu}},\n"
        "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":0,\"args\":{\"name\":\"compute\"}},\n"
        "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":1,\"args\":{\"name\":\"lane\"}},\n",
        run->rank, serves ? "server" : "worker", serves ? run->rank - run->workers : run->rank, run->rank,
        (double)end->ahead_ns * 1e-3, (double)within_ns * 1e-3,
        (unsigned long long)tutti_engine_trace_lost(run->engine), run->rank, run->rank);
    for (size_t i = 0; i < n; i++)
        put_event(t, run, &events[i], ahead_at(&run->clock, end, events[i].begin_ns));
    return TUTTI_OK;
}

/* Merges the lines of all ranks into one JSON array, at index 0. It uses collectives, so that all
   ranks learn of a loss. */
static tutti_status gather_lines(tutti_run *run, const lines *mine, tutti_train_trace *trace, tutti_error *err)
{
    const size_t n = (size_t)run->all.size;
    int64_t own[2] = { (int64_t)mine->length, (int64_t)tutti_engine_trace_lost(run->engine) };
    int64_t *counted = tutti_alloc(2 * n, sizeof *counted), lost = 0;
    size_t *counts = tutti_alloc(n, sizeof *counts), length = 2;
    char *all = NULL;
    tutti_status status =
        counts != NULL && counted != NULL
            ? tutti_allgather(&run->all, tutti_host(own, 2, TUTTI_I64), tutti_host(counted, 2 * n, TUTTI_I64), err)
            : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "merging the trace of %zu workers", n);

    for (size_t i = 0; status == TUTTI_OK && i < n; i++) {
        counts[i] = (size_t)counted[2 * i];
        length += counts[i];
        lost += counted[2 * i + 1];
    }
    if (status == TUTTI_OK && run->all.index == 0 && (all = tutti_alloc(length + 2, 1)) == NULL)
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "merging the trace of %zu workers", n);
    if (status == TUTTI_OK)
        status = tutti_gather_parts_v(&run->all, 0, counts, tutti_host(mine->at, mine->length, TUTTI_U8),
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
    tutti_train_clock end = { 0 };
    int64_t within = 0;
    tutti_status status;
    lines mine;

    tutti_free(trace->text); /* of an attempt that a loss has spoilt */
    *trace = (tutti_train_trace){ 0 };
    if (!run->config->trace)
        return TUTTI_OK;
    end.reference = tutti_train_rank(run, 0);
    if (may_differ(run))
        TUTTI_TRY(compare_clocks(run, &end.ahead_ns, &within, err));
    end.at_ns = tutti_now_ns(run->rt);
    TUTTI_TRY(write_lines(run, &end, within, &mine, err));
    status = gather_lines(run, &mine, trace, err);
    tutti_free(mine.at);
    return status;
}
