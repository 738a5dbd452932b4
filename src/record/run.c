/* run.c: the record of a client of the engine while its run lasts: the engine's events, the
   client's spans, and rows of figures after steps. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "record_internal.h"
#include "tutti/method.h"
#include "base/options.h"

struct tutti_record {
    tutti_engine *engine;
    const tutti_method *m;
    tutti_record_trace t;
    uint64_t report_every;
    bool samples;
    bool together;               /* workers make their steps together, and none may be lost */
    tutti_group workers;         /* for the exchanges of tutti_record_step; with `together` */
    size_t events;               /* of the engine that are in the trace */
    uint64_t spans, lost;        /* of the client: written; beyond TUTTI_RECORD_EVENTS */
    uint64_t steps;              /* calls of tutti_record_step */
    uint64_t codec_reported;     /* step of the last lines of report_codec() */
    double loss_sum, losses;     /* since the last line of metrics.jsonl */
    json_t *logged;              /* the last figures of evaluations; NULL: none */
    double *rows;                /* [workers][REPORTED]: scratch of report() */
    tutti_figures reported;      /* at that line */
    int64_t reported_ns;
};

/* ---- lines of the trace ---- */

static tutti_status add_event(tutti_record *r, const tutti_trace_event *e, tutti_error *err)
{
    const tutti_layout *layout = r->m->layout;
    const char *tensor =
        e->index >= 0 && e->index < layout->n_tensors ? layout->tensor[e->index].name : NULL;

    TUTTI_TRY(tutti_record_trace_room(&r->t, TUTTI_RECORD_LINE, err));
    r->t.length += tutti_record_event(r->t.text + r->t.length, r->m->rank, tensor, e, 0);
    return TUTTI_OK;
}

/* Events and spans that are not in the trace. */
static uint64_t lost(const tutti_record *r)
{
    return r->lost + tutti_engine_trace_lost(r->engine);
}

/* Adds the engine's events since the last call. */
static tutti_status add_events(tutti_record *r, tutti_error *err)
{
    const tutti_trace_event *events;
    const size_t n = tutti_engine_trace(r->engine, &events);

    for (; r->events < n; r->events++)
        TUTTI_TRY(add_event(r, &events[r->events], err));
    return TUTTI_OK;
}

tutti_status tutti_record_span(tutti_record *r, const char *what, int64_t begin_ns, int64_t end_ns,
                               tutti_error *err)
{
    tutti_figures f;

    if (r->t.file == NULL)
        return TUTTI_OK;
    if (r->spans == TUTTI_RECORD_EVENTS) {
        r->lost++;
        return TUTTI_OK;
    }
    r->spans++;
    tutti_engine_figures(r->engine, &f);
    return add_event(
        r,
        &(tutti_trace_event){
            .what = what, .index = -1, .step = f.steps, .begin_ns = begin_ns, .end_ns = end_ns },
        err);
}

/* ---- metrics.jsonl ---- */

void tutti_record_loss(tutti_record *r, double loss)
{
    r->loss_sum += loss;
    r->losses++;
}

tutti_status tutti_record_log(tutti_record *r, const char *figures, tutti_error *err)
{
    tutti_figures f;
    json_t *o, *line;

    TUTTI_TRY(tutti_record_logged(figures, &o, err));
    if (r == NULL || r->m->rank != 0) {
        json_decref(o);
        return TUTTI_OK;
    }
    tutti_engine_figures(r->engine, &f);
    if (r->logged == NULL)
        r->logged = json_object();
    json_object_update(r->logged, o);
    line = tutti_record_logged_line(&f, r->samples,
                                    r->t.ranks == 1 ? (double)f.bytes_sent : (double)NAN, o);
    json_decref(o);
    return tutti_record_trace_stopped(&r->t, tutti_record_put(r->t.rows, line, err));
}

/* The figures that each worker sends for a line. BYTES, SKIPPED and SCALE are the latest values,
   the others count since the last line. */
enum { LOSS, LOSSES, BYTES, COMPUTE, WAIT, SKIPPED, SCALE, REPORTED };

static json_t *by_worker(const double *rows, int n, int what)
{
    json_t *array = json_array();

    for (int i = 0; i < n; i++)
        json_array_append_new(array, json_real(rows[i * REPORTED + what]));
    return array;
}

/* Writes a line from the figures of n workers. */
static tutti_status write_line(tutti_record *r, const tutti_figures *f, const double *rows, int n,
                               tutti_error *err)
{
    const double seconds = (double)(tutti_now_ns(r->t.rt) - r->reported_ns) * 1e-9;
    double sum[REPORTED] = { 0 }, skipped = 0, scale = rows[SCALE];

    for (int i = 0; i < n; i++) {
        for (int k = 0; k < REPORTED; k++)
            sum[k] += rows[i * REPORTED + k];
        skipped = fmax(skipped, rows[i * REPORTED + SKIPPED]);
        scale = fmin(scale, rows[i * REPORTED + SCALE]);
    }
    return tutti_record_trace_stopped(
        &r->t, tutti_record_put(
               r->t.rows,
               tutti_record_report(&(tutti_record_line){
                   .step = f->steps,
                   .epoch = json_null(),
                   .samples = r->samples ? json_integer((json_int_t)f->samples) : json_null(),
                   .samples_per_second =
                       tutti_record_number_if(r->samples && seconds > 0,
                                              (double)(f->samples - r->reported.samples) / seconds),
                   .train_loss = sum[LOSSES] > 0 ? sum[LOSS] / sum[LOSSES] : (double)NAN,
                   .lr = r->m->lr > 0 ? r->m->lr : (double)NAN,
                   .figures = f,
                   .bytes = n == r->m->workers ? sum[BYTES]
                                               : (double)NAN, /* else it would need a meeting */
                   .skipped = skipped,
                   .scale = scale,
                   .compute = by_worker(rows, n, COMPUTE),
                   .wait = by_worker(rows, n, WAIT) }),
               err));
}

/* Makes a line; alone: of rank 0's figures. */
static tutti_status report(tutti_record *r, bool alone, tutti_error *err)
{
    const bool first = r->m->rank == 0;
    const int n = alone ? 1 : r->workers.size;
    double mine[REPORTED];
    tutti_figures f;
    tutti_status status = TUTTI_OK;

    tutti_engine_figures(r->engine, &f);
    mine[LOSS] = r->loss_sum;
    mine[LOSSES] = r->losses;
    mine[BYTES] = (double)f.bytes_sent;
    mine[COMPUTE] = (double)(f.compute_ns - r->reported.compute_ns) * 1e-9;
    mine[WAIT] = (double)(f.exposed_ns - r->reported.exposed_ns) * 1e-9;
    mine[SKIPPED] = (double)f.skipped;
    mine[SCALE] = f.loss_scale;
    memcpy(r->rows, mine, sizeof mine);
    if (!alone)
        status = tutti_gather_parts(
            &r->workers, 0, tutti_host(mine, REPORTED, TUTTI_F64),
            first ? tutti_host(r->rows, (size_t)n * REPORTED, TUTTI_F64) : tutti_nothing(), err);
    if (status == TUTTI_OK && first)
        status = write_line(r, &f, r->rows, n, err);
    r->loss_sum = r->losses = 0;
    r->reported = f;
    r->reported_ns = tutti_now_ns(r->t.rt);
    return status;
}

/* Writes what was measured of rank 0's codec since the last call: a line for each tensor. */
static tutti_status report_codec(tutti_record *r, tutti_error *err)
{
    const tutti_codec_record *records =
        r->t.rows != NULL ? tutti_engine_codec_records(r->engine) : NULL;
    uint64_t last = r->codec_reported;

    for (int i = 0; records != NULL && i < r->m->layout->n_tensors; i++) {
        if (records[i].step <= r->codec_reported)
            continue;
        last = records[i].step;
        TUTTI_TRY(tutti_record_trace_stopped(
            &r->t, tutti_record_put(r->t.rows, tutti_record_codec(r->engine, i), err)));
    }
    r->codec_reported = last;
    return TUTTI_OK;
}

static bool is_power_of_two(uint64_t n)
{
    return (n & (n - 1)) == 0;
}

tutti_status tutti_record_step(tutti_record *r, tutti_error *err)
{
    const uint64_t n = ++r->steps;
    const bool due = n % r->report_every == 0 || (n < r->report_every && is_power_of_two(n)),
               measures =
                   r->together && is_power_of_two(n) && tutti_record_clocks_differ(r->m->world);
    tutti_status status = add_events(r, err), met = TUTTI_OK;
    tutti_doing was;

    if (status == TUTTI_OK)
        status = report_codec(r, err);
    if (status == TUTTI_OK && !due && !measures)
        return tutti_record_trace_write(&r->t, err);
    was = tutti_engine_doing(r->engine, TUTTI_DOING_REPORT);
    if (measures)
        met = tutti_record_clock_compare(&r->workers, &r->t.clock, err);
    if (met == TUTTI_OK && measures)
        status = status == TUTTI_OK ? tutti_record_trace_clock(&r->t, lost(r), err) : status;
    if (met == TUTTI_OK && due && (r->together || r->m->rank == 0))
        met = report(r, !r->together, err);
    tutti_engine_doing(r->engine, was);
    if (met != TUTTI_OK)
        return met;
    return status == TUTTI_OK ? tutti_record_trace_write(&r->t, err) : tutti_record_trace_stopped(&r->t, status);
}

/* ---- beginning and end ---- */

/* Sets *config to the members of config.json. */
static tutti_status config_of(const tutti_method *m, const char *facts, json_t **config,
                              tutti_error *err)
{
    const char *codec = tutti_exchange_codec(m);
    char spec[1024];
    size_t parameters = 0;
    json_t *o;

    TUTTI_TRY(tutti_record_facts(facts, config, err));
    o = *config;
    for (int k = 0; k < m->layout->n_tensors; k++)
        parameters += m->layout->tensor[k].count;
    tutti_spec_print(m->ops->name, m->ops->options, m->self, spec, sizeof spec);
    json_object_set_new(o, "method", json_string(spec));
    json_object_set_new(o, "codec", json_string(codec != NULL ? codec : ""));
    json_object_set_new(o, "transport", json_string(tutti_world_transport(m->world)));
    json_object_set_new(o, "n", json_integer(m->workers));
    json_object_set_new(o, "servers", json_integer(m->servers));
    json_object_set_new(o, "params", json_integer((json_int_t)parameters));
    return TUTTI_OK;
}

static tutti_status begin(tutti_record *r, const tutti_record_options *o, tutti_error *err)
{
    tutti_group all = tutti_group_keyed(&r->m->everyone, tutti_port_of("record", 0, 0), 0);
    json_t *config;
    tutti_status status;

    r->rows = tutti_alloc((size_t)r->m->workers * REPORTED, sizeof *r->rows);
    if (r->rows == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for the figures of %d workers",
                          r->m->workers);
    all.uncounted = true;
    status = config_of(r->m, o->facts, &config, err);
    return tutti_record_trace_open(&r->t, &all, o, config, status, err);
}

tutti_status tutti_record_open(tutti_record **out, tutti_engine *engine,
                               const tutti_record_options *options, tutti_error *err)
{
    const tutti_method *m = tutti_engine_method(engine);
    tutti_record *r = tutti_alloc(1, sizeof *r);
    tutti_error none = { .rank = -1 };
    tutti_status status;

    *out = NULL;
    err = err != NULL ? err : &none;
    if (r == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for the record of a run");
    r->engine = engine;
    r->m = m;
    r->t = (tutti_record_trace){
        .rt = m->rt, .rank = m->rank, .workers = m->workers, .ranks = m->workers + m->servers
    };
    r->report_every = options->report_every > 0 ? options->report_every : 50;
    r->samples = options->samples;
    r->together = m->rank < m->workers && (m->traits & TUTTI_REPLICAS_EQUAL) != 0 &&
                  (m->traits & TUTTI_ASYNC) == 0 && !tutti_engine_fault_tolerant(engine);
    r->workers = tutti_group_keyed(&m->all, tutti_port_of("record", 1, 0), 0);
    r->workers.uncounted = true;
    status = begin(r, options, err);
    tutti_engine_figures(engine, &r->reported);
    r->reported_ns = tutti_now_ns(r->t.rt);
    if (status == TUTTI_OK) {
        *out = r;
        return TUTTI_OK;
    }
    tutti_record_trace_leave_nothing(&r->t);
    tutti_free(r->t.text);
    tutti_free(r->rows);
    tutti_free(r);
    return status;
}

static tutti_status end(tutti_record *r, bool ended, tutti_error *err)
{
    tutti_figures f;

    if (r->t.file == NULL)
        return TUTTI_OK;
    TUTTI_TRY(add_events(r, err));
    TUTTI_TRY(tutti_record_trace_clock(&r->t, lost(r), err));
    TUTTI_TRY(tutti_record_trace_write(&r->t, err));
    tutti_engine_figures(r->engine, &f);
    if (ended && r->m->rank == 0 && f.steps > r->reported.steps)
        TUTTI_TRY(report(r, true, err));
    return ended ? tutti_record_write_closed(r->engine, r->t.folder, r->samples, r->logged, err)
                 : TUTTI_OK;
}

tutti_status tutti_record_close(tutti_record *r, bool ended, tutti_error *err)
{
    tutti_status status;

    if (r == NULL)
        return TUTTI_OK;
    status = tutti_record_trace_close(&r->t, end(r, ended, err), ended, err);
    json_decref(r->logged);
    tutti_free(r->rows);
    tutti_free(r);
    return status;
}
