/* clock.c: measures the client thread's time, and writes the trace. The thread always has exactly
   one activity, and the time of every change is recorded. So compute + exposed + other is the wall
   time, without a remainder. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "collective/noted.h"
#include "engine_internal.h"
#include "hooks.h"
#include "calls.h"

enum { SHORTEST_WAIT_NS = 1000 }; /* that a trace has */

static bool is_excluded(tutti_doing what)
{
    return what == TUTTI_DOING_REPORT || what == TUTTI_DOING_OUTSIDE;
}

/* What the client has sent so far. The messages of services are subtracted: they do not belong to
   the client's activity. They are posted and counted under the monitor. */
static void sent_by_client(tutti_engine *e, uint64_t *bytes, uint64_t *messages)
{
    if (e->services.monitor != NULL)
        tutti_lock(e->services.monitor);
    tutti_world_sent(e->world, TUTTI_ANY, bytes, messages);
    *bytes -= e->services.bytes;
    *messages -= e->services.messages;
    if (e->services.monitor != NULL)
        tutti_unlock(e->services.monitor);
}

void tutti_engine_clock_start(tutti_engine *e)
{
    tutti_engine_clock *c = &e->clock;

    if (c->running || c->ended_ns != 0)
        return;
    c->running = true;
    c->doing = TUTTI_DOING_OTHER;
    c->started_ns = c->since_ns = tutti_now_ns(e->rt);
    sent_by_client(e, &c->bytes_at_start, &c->messages_at_start);
}

void tutti_engine_clock_stop(tutti_engine *e)
{
    tutti_engine_doing(e, TUTTI_DOING_OUTSIDE);
    e->clock.ended_ns = e->clock.since_ns;
    e->clock.running = false;
}

void tutti_engine_is_in(tutti_engine *e, const char *what, int unit)
{
    tutti_activity_client(tutti_world_activity(e->world), what, unit, e->counts.progress.step);
}

tutti_doing tutti_engine_doing(tutti_engine *e, tutti_doing what)
{
    static const char *const names[] = { "compute",        "wait for others", "data",
                                         "between passes", "report",          "outside steps" };
    tutti_engine_clock *c = &e->clock;
    const tutti_doing was = c->doing;
    int64_t now;

    if (!c->running || what == was)
        return was;
    if (is_excluded(what) && !is_excluded(was))
        tutti_facilities_settle(e, false); /* the bytes are the method's */
    now = tutti_now_ns(e->rt);
    c->spent_ns[was] += now - c->since_ns;
    if (was == TUTTI_DOING_EXPOSED && e->m.everyone.size > 1 &&
        now - c->since_ns >= SHORTEST_WAIT_NS)
        tutti_engine_mark(e, "wait", -1, 0, c->since_ns, now);
    c->since_ns = now;
    c->doing = what;
    tutti_engine_is_in(e, names[what], -1);
    if (is_excluded(what) != is_excluded(was)) {
        uint64_t bytes, messages;
        sent_by_client(e, &bytes, &messages);
        if (is_excluded(what)) {
            c->bytes_since = bytes;
            c->messages_since = messages;
        } else {
            c->bytes_excluded += bytes - c->bytes_since;
            c->messages_excluded += messages - c->messages_since;
        }
    }
    return was;
}

int64_t tutti_engine_worked_ns(const tutti_engine *e)
{
    const tutti_engine_clock *c = &e->clock;
    int64_t worked = c->running && !is_excluded(c->doing) ? tutti_now_ns(e->rt) - c->since_ns : 0;

    for (int what = 0; what <= TUTTI_DOING_OUTSIDE; what++)
        worked += is_excluded((tutti_doing)what) ? 0 : c->spent_ns[what];
    return worked;
}

/* The time of a collective within an evaluation counts as the evaluation's. */
tutti_doing tutti_engine_expose(tutti_engine *e)
{
    return is_excluded(e->clock.doing) ? e->clock.doing
                                       : tutti_engine_doing(e, TUTTI_DOING_EXPOSED);
}

void tutti_engine_comm(tutti_engine *e, const char *what, int thread, int64_t begin_ns,
                       int64_t end_ns)
{
    if (!e->clock.running || is_excluded(e->clock.doing))
        return;
    e->clock.comm_ns += end_ns - begin_ns;
    tutti_engine_mark(e, what, 0, thread, begin_ns, end_ns);
}

/* The number of this worker's own steps. If replicas are equal all workers make every step. */
static uint64_t own_steps(const tutti_engine *e)
{
    if ((e->m.traits & TUTTI_REPLICAS_EQUAL) == 0)
        return e->counts.own.steps - e->counts.sat_out;
    return e->m.rank < e->m.workers ? e->counts.progress.step : 0;
}

uint64_t *tutti_engine_skipped(tutti_engine *e)
{
    return e->m.traits & TUTTI_REPLICAS_EQUAL ? &e->counts.progress.skipped
                                              : &e->counts.own.skipped;
}

void tutti_engine_figures(tutti_engine *e, tutti_figures *f)
{
    tutti_engine_clock *c = &e->clock;
    uint64_t bytes, messages;
    int64_t end = c->ended_ns;

    *f = (tutti_figures){ .gradients = e->is_async ? e->pace.agreed : e->counts.progress.step,
                          .steps = e->counts.progress.step,
                          .samples = e->counts.progress.samples,
                          .skipped = *tutti_engine_skipped(e),
                          .loss_scale = e->scaler.on ? e->scaler.now.scale : 0,
                          .own_steps = own_steps(e),
                          .restarts = e->counts.history.restarts,
                          .staleness = &e->counts.history.stale };
    if (c->started_ns == 0)
        return;
    if (c->running) { /* bring the account up to date */
        const tutti_doing was = c->doing;
        end = tutti_now_ns(e->rt);
        c->spent_ns[was] += end - c->since_ns;
        c->since_ns = end;
    }
    f->wall_ns = end - c->started_ns - c->spent_ns[TUTTI_DOING_OUTSIDE];
    f->compute_ns = c->spent_ns[TUTTI_DOING_COMPUTE];
    f->exposed_ns = c->spent_ns[TUTTI_DOING_EXPOSED];
    f->data_ns = c->spent_ns[TUTTI_DOING_DATA];
    f->other_ns = f->data_ns + c->spent_ns[TUTTI_DOING_OTHER] + c->spent_ns[TUTTI_DOING_REPORT];
    f->comm_ns = c->comm_ns;
    if (is_excluded(c->doing)) {
        /* also once the clock has stopped: what is sent after the drain does not count */
        bytes = c->bytes_since;
        messages = c->messages_since;
    } else
        sent_by_client(e, &bytes, &messages);
    f->bytes_sent = bytes - c->bytes_at_start - c->bytes_excluded;
    f->messages_sent = messages - c->messages_at_start - c->messages_excluded;
    f->staleness_max = e->counts.history.stale_most;
    f->staleness_mean = e->counts.history.stale_n > 0
                            ? e->counts.history.stale_sum / (double)e->counts.history.stale_n
                            : 0;
    f->staleness_gradients = e->counts.history.stale_n;
    if (e->services.monitor != NULL)
        tutti_lock(e->services.monitor);
    f->bytes_sent += e->services.bytes;
    f->messages_sent += e->services.messages - e->services.own_messages;
    f->comm_ns += e->services.comm_ns;
    if (e->services.monitor != NULL)
        tutti_unlock(e->services.monitor);
}

void tutti_discarded(tutti_method *m)
{
    tutti_engine *e = m->engine;

    e->services.discarded += (uint64_t)m->samples;
    e->snapshots.samples -= (uint64_t)m->samples; /* the end of the step will add them */
}

void tutti_sit_out_declare(tutti_method *m, tutti_plan *plan)
{
    tutti_engine *e = m->engine;
    tutti_declare_late_value(plan, "engine.sat-out", TUTTI_OWN_ZERO, &e->counts.sat_out,
                             sizeof e->counts.sat_out);
}

void tutti_sit_out(tutti_method *m)
{
    ((tutti_engine *)m->engine)->counts.sat_out++;
    tutti_discarded(m);
}

void tutti_stale(tutti_method *m, uint64_t staleness)
{
    tutti_engine *e = m->engine;

    if (staleness > e->counts.history.stale_most)
        e->counts.history.stale_most = staleness;
    e->counts.history.stale_sum += (double)staleness;
    e->counts.history.stale_n++;
    tutti_histogram_add(&e->counts.history.stale, staleness);
}

int64_t tutti_computed_ns(const tutti_method *m)
{
    const tutti_engine *e = m->engine;
    const tutti_engine_clock *c = &e->clock;

    return c->spent_ns[TUTTI_DOING_COMPUTE] +
           (c->running && c->doing == TUTTI_DOING_COMPUTE ? tutti_now_ns(e->rt) - c->since_ns : 0);
}

int64_t tutti_engine_exposed_ns(const tutti_engine *e)
{
    const tutti_engine_clock *c = &e->clock;

    return c->spent_ns[TUTTI_DOING_EXPOSED] +
           (c->running && c->doing == TUTTI_DOING_EXPOSED ? tutti_now_ns(e->rt) - c->since_ns : 0);
}

void tutti_engine_mark(tutti_engine *e, const char *what, int index, int thread, int64_t begin_ns,
                       int64_t end_ns)
{
    tutti_engine_mark_step(e, what, index, thread, e->counts.progress.step, begin_ns, end_ns);
}

void tutti_engine_mark_step(tutti_engine *e, const char *what, int index, int thread, uint64_t step,
                            int64_t begin_ns, int64_t end_ns)
{
    const tutti_engine_options *o = &e->options;

    if (o->trace_events == 0 || step < o->trace_first ||
        (o->trace_steps > 0 && step - o->trace_first >= o->trace_steps))
        return;
    if (e->records.n_trace == o->trace_events) {
        e->records.trace_lost++;
        return;
    }
    e->records.trace[e->records.n_trace++] = (tutti_trace_event){ .what = what,
                                                                  .index = index,
                                                                  .thread = (uint8_t)thread,
                                                                  .step = step,
                                                                  .begin_ns = begin_ns,
                                                                  .end_ns = end_ns };
}

size_t tutti_engine_trace(const tutti_engine *e, const tutti_trace_event **events)
{
    *events = e->records.trace;
    return e->records.n_trace;
}

uint64_t tutti_engine_trace_lost(const tutti_engine *e)
{
    return e->records.trace_lost;
}

void tutti_event(tutti_method *m, const char *kind, const char *format, ...)
{
    char text[512];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    tutti_engine_note(m->engine, &(tutti_event_record){ .kind = kind, .text = text, .worker = -1 });
}

void tutti_event_of(tutti_method *m, int worker, const char *kind, const char *format, ...)
{
    char text[512];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    tutti_engine_note(m->engine, &(tutti_event_record){
                                     .kind = kind, .text = text, .worker = worker, .own = true });
}

/* Events are rare and may allocate; when there is no memory the event is lost, not the run. */
void tutti_engine_note(tutti_engine *e, const tutti_event_record *what)
{
    char *copy;

    if (e->records.n_events == e->records.room_events) {
        const int room = e->records.room_events == 0 ? 16 : 2 * e->records.room_events;
        tutti_event_record *more = tutti_alloc((size_t)room, sizeof *more);
        if (more == NULL)
            return;
        for (int i = 0; i < e->records.n_events; i++)
            more[i] = e->records.events[i];
        tutti_free(e->records.events);
        e->records.events = more;
        e->records.room_events = room;
    }
    copy = tutti_copy_text(what->text);
    if (copy == NULL)
        return;
    e->records.events[e->records.n_events] = *what;
    e->records.events[e->records.n_events].step = e->counts.progress.step;
    e->records.events[e->records.n_events++].text = copy;
}

int tutti_engine_events(const tutti_engine *e, const tutti_event_record **events)
{
    *events = e->records.events;
    return e->records.n_events;
}

/* The slot of that metric, or the free one for it. By hash: histograms of many workers have a
   hundred thousand metrics. There is always a free slot. */
static int *find_metric(const tutti_engine *e, const char *name, int worker, int64_t at)
{
    const uint64_t words[3] = { tutti_hash(name, strlen(name)), (uint64_t)worker, (uint64_t)at };
    size_t k = (size_t)tutti_hash(words, sizeof words) & (e->records.metric_slots - 1);

    for (; e->records.metric_at[k] > 0; k = (k + 1) & (e->records.metric_slots - 1)) {
        const tutti_metric_record *reported = &e->records.metrics[e->records.metric_at[k] - 1];
        if (reported->worker == worker && reported->at == at && strcmp(reported->name, name) == 0)
            break;
    }
    return &e->records.metric_at[k];
}

static bool grow_metrics(tutti_engine *e)
{
    const int room = e->records.room_metrics == 0 ? 16 : 2 * e->records.room_metrics;
    tutti_metric_record *more = tutti_alloc((size_t)room, sizeof *more);
    int *slots = tutti_alloc(2 * (size_t)room, sizeof *slots);

    if (more == NULL || slots == NULL) {
        tutti_free(more);
        tutti_free(slots);
        return false;
    }
    for (int i = 0; i < e->records.n_metrics; i++)
        more[i] = e->records.metrics[i];
    tutti_free(e->records.metrics);
    tutti_free(e->records.metric_at);
    e->records.metrics = more;
    e->records.metric_at = slots;
    e->records.room_metrics = room;
    e->records.metric_slots = 2 * (size_t)room;
    for (int i = 0; i < e->records.n_metrics; i++)
        *find_metric(e, more[i].name, more[i].worker, more[i].at) = i + 1;
    return true;
}

void tutti_metric(tutti_method *m, const char *name, int worker, double value)
{
    tutti_metric_at(m, name, worker, -1, value);
}

void tutti_metric_at(tutti_method *m, const char *name, int worker, int64_t at, double value)
{
    tutti_engine *e = m->engine;
    int *slot = e->records.metric_slots > 0 ? find_metric(e, name, worker, at) : NULL;

    if (slot != NULL && *slot > 0) {
        e->records.metrics[*slot - 1].value = value;
        return;
    }
    if (e->records.n_metrics == e->records.room_metrics) {
        /* without memory the metric is lost, not the run */
        if (!grow_metrics(e))
            return;
        slot = find_metric(e, name, worker, at);
    }
    e->records.metrics[e->records.n_metrics++] = (tutti_metric_record){ name, worker, value, at };
    *slot = e->records.n_metrics;
}

void tutti_metric_histogram(tutti_method *m, const char *name, int worker, const tutti_histogram *h)
{
    for (int bin = 0; bin < TUTTI_HISTOGRAM_BINS; bin++)
        if (h->count[bin] > 0)
            tutti_metric_at(m, name, worker, (int64_t)tutti_histogram_least(bin),
                            (double)h->count[bin]);
}

/* A name that lives as long as the engine; NULL without memory. */
static const char *keep_name(tutti_engine *e, const char *name)
{
    char **more, *copy;

    for (int i = 0; i < e->records.n_names; i++)
        if (strcmp(e->records.names[i], name) == 0)
            return e->records.names[i];
    copy = tutti_copy_text(name);
    more = tutti_alloc((size_t)e->records.n_names + 1, sizeof *more);
    if (copy == NULL || more == NULL) {
        tutti_free(copy);
        tutti_free(more);
        return NULL;
    }
    for (int i = 0; i < e->records.n_names; i++)
        more[i] = e->records.names[i];
    tutti_free(e->records.names);
    e->records.names = more;
    return more[e->records.n_names++] = copy;
}

tutti_group tutti_engine_metrics_group(const tutti_engine *e)
{
    return tutti_group_keyed(&e->m.everyone, tutti_port_of("metrics", 0, 0), 0);
}

/* The summary is written by a worker, so the metrics are sent to all. */
tutti_status tutti_engine_tell_metrics(tutti_engine *e, tutti_error *err)
{
    tutti_method *m = &e->m;
    tutti_group group = tutti_engine_metrics_group(e);
    tutti_status status = TUTTI_OK;

    group.uncounted = true;
    for (int from = m->all.size; from < group.size && status == TUTTI_OK; from++) {
        const bool mine = group.index == from;
        int64_t n = mine ? e->records.n_metrics : 0;
        char (*names)[TUTTI_METRIC_NAME];
        double *values; /* worker, at, value */
        TUTTI_TRY(tutti_broadcast(&group, from, tutti_host(&n, 1, TUTTI_I64), err));
        if (n < 0 || n > 1 << 20)
            return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                              "a server reports %lld figures; all processes must run one version",
                              (long long)n);
        names = tutti_alloc((size_t)n + 1, sizeof *names);
        values = tutti_alloc(3 * (size_t)n + 1, sizeof *values);
        if (names == NULL || values == NULL)
            status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM,
                                "memory for the %lld figures of a server", (long long)n);
        for (int i = 0; i < n && mine && status == TUTTI_OK; i++) {
            snprintf(names[i], sizeof names[i], "%s", e->records.metrics[i].name);
            values[3 * i] = e->records.metrics[i].worker;
            values[3 * i + 1] = (double)e->records.metrics[i].at;
            values[3 * i + 2] = e->records.metrics[i].value;
        }
        if (n > 0 && status == TUTTI_OK)
            status = tutti_broadcast(&group, from,
                                     tutti_host(names, (size_t)n * sizeof *names, TUTTI_U8), err);
        if (n > 0 && status == TUTTI_OK)
            status =
                tutti_broadcast(&group, from, tutti_host(values, 3 * (size_t)n, TUTTI_F64), err);
        for (int i = 0; i < n && !mine && status == TUTTI_OK; i++) {
            const char *name;
            names[i][TUTTI_METRIC_NAME - 1] = 0;
            name = keep_name(e, names[i]);
            if (name != NULL && values[3 * i] >= -1 && values[3 * i] < m->workers &&
                values[3 * i + 1] >= -1 && values[3 * i + 1] < 0x1p62)
                tutti_metric_at(m, name, (int)values[3 * i], (int64_t)values[3 * i + 1],
                                values[3 * i + 2]);
        }
        tutti_free(names);
        tutti_free(values);
    }
    return status;
}

int tutti_engine_metrics(const tutti_engine *e, const tutti_metric_record **metrics)
{
    *metrics = e->records.metrics;
    return e->records.n_metrics;
}
