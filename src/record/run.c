/* run.c: the record of a run while it lasts: this rank's trace, and at rank 0 metrics.jsonl.

   Events are converted to text once and appended to the rank's own file after each step, with the
   times of its own clock. merge.c puts them on one clock, by the lines "measured". */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "record_internal.h"
#include "collective/compare.h"
#include "tutti/method.h"
#include "base/options.h"

struct tutti_record {
    tutti_engine *engine;
    const tutti_method *m;
    tutti_runtime *rt;
    char folder[TUTTI_RECORD_PATH / 2];
    uint64_t report_every;
    bool samples;
    bool together;               /* workers make their steps together, and none may be lost */
    tutti_group workers;         /* for the exchanges of tutti_record_step; with `together` */
    tutti_record_clock clock;    /* as last measured */
    tutti_file *trace;           /* this rank's; NULL: a write has failed */
    tutti_record_rows *metrics;  /* at rank 0; NULL: likewise */
    unsigned forms;              /* in which rows are written too, as bits (log_to.c) */
    char *text;                  /* lines that were not written yet; [room] */
    size_t length, room;
    size_t events;               /* of the engine that are in `text` or written */
    uint64_t spans, lost;        /* of the client: written; beyond TUTTI_RECORD_EVENTS */
    uint64_t steps;              /* calls of tutti_record_step */
    uint64_t codec_reported;     /* step of the last lines of report_codec() */
    double loss_sum, losses;     /* since the last line of metrics.jsonl */
    double *rows;                /* [workers][REPORTED]: scratch of report() */
    tutti_figures reported;      /* at that line */
    int64_t reported_ns;
};

/* ---- lines of the trace ---- */

/* Makes room for `bytes` more bytes of text. */
static tutti_status make_room(tutti_record *r, size_t bytes, tutti_error *err)
{
    const size_t room = 2 * (r->room + bytes);
    char *more;

    if (r->length + bytes <= r->room)
        return TUTTI_OK;
    more = tutti_alloc(room, 1);
    if (more == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for %zu bytes of a trace", room);
    if (r->length > 0)
        memcpy(more, r->text, r->length);
    tutti_free(r->text);
    r->text = more;
    r->room = room;
    return TUTTI_OK;
}

static tutti_status add_event(tutti_record *r, const tutti_trace_event *e, tutti_error *err)
{
    const tutti_layout *layout = r->m->layout;
    const char *tensor =
        e->index >= 0 && e->index < layout->n_tensors ? layout->tensor[e->index].name : NULL;

    TUTTI_TRY(make_room(r, TUTTI_RECORD_LINE, err));
    r->length += tutti_record_event(r->text + r->length, r->m->rank, tensor, e, 0);
    return TUTTI_OK;
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

static tutti_status add_clock(tutti_record *r, tutti_error *err)
{
    const tutti_record_clock *c = &r->clock;

    TUTTI_TRY(make_room(r, TUTTI_RECORD_LINE, err));
    r->length += (size_t)snprintf(
        r->text + r->length, TUTTI_RECORD_LINE,
        "{\"name\":\"measured\",\"ph\":\"M\",\"pid\":%d,\"args\":{\"reference\":%d,"
        "\"at_ns\":%lld,\"ahead_ns\":%lld,\"within_ns\":%lld,\"lost\":%llu}},\n",
        r->m->rank, c->reference, (long long)c->at_ns, (long long)c->ahead_ns,
        (long long)c->within_ns,
        (unsigned long long)(r->lost + tutti_engine_trace_lost(r->engine)));
    return TUTTI_OK;
}

/* Stops writing after a failure. */
static tutti_status stopped(tutti_record *r, tutti_status status)
{
    if (status != TUTTI_OK) {
        tutti_file_close(r->trace, NULL);
        tutti_record_rows_close(r->metrics, NULL);
        r->trace = NULL;
        r->metrics = NULL;
    }
    return status;
}

static tutti_status write_text(tutti_record *r, tutti_error *err)
{
    const size_t length = r->length;

    r->length = 0;
    return r->trace != NULL && length > 0
               ? stopped(r, tutti_file_write(r->trace, r->text, length, err))
               : TUTTI_OK;
}

tutti_status tutti_record_span(tutti_record *r, const char *what, int64_t begin_ns, int64_t end_ns,
                               tutti_error *err)
{
    tutti_figures f;

    if (r->trace == NULL)
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
    const double seconds = (double)(tutti_now_ns(r->rt) - r->reported_ns) * 1e-9;
    double sum[REPORTED] = { 0 }, skipped = 0, scale = rows[SCALE];

    for (int i = 0; i < n; i++) {
        for (int k = 0; k < REPORTED; k++)
            sum[k] += rows[i * REPORTED + k];
        skipped = fmax(skipped, rows[i * REPORTED + SKIPPED]);
        scale = fmin(scale, rows[i * REPORTED + SCALE]);
    }
    return stopped(
        r, tutti_record_put(
               r->metrics,
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
    r->reported_ns = tutti_now_ns(r->rt);
    return status;
}

/* Writes what was measured of rank 0's codec since the last call: a line for each tensor. */
static tutti_status report_codec(tutti_record *r, tutti_error *err)
{
    const tutti_codec_record *records =
        r->metrics != NULL ? tutti_engine_codec_records(r->engine) : NULL;
    uint64_t last = r->codec_reported;

    for (int i = 0; records != NULL && i < r->m->layout->n_tensors; i++) {
        if (records[i].step <= r->codec_reported)
            continue;
        last = records[i].step;
        TUTTI_TRY(stopped(r, tutti_record_put(r->metrics, tutti_record_codec(r->engine, i), err)));
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
        return write_text(r, err);
    was = tutti_engine_doing(r->engine, TUTTI_DOING_REPORT);
    if (measures)
        met = tutti_record_clock_compare(&r->workers, &r->clock, err);
    if (met == TUTTI_OK && measures)
        status = status == TUTTI_OK ? add_clock(r, err) : status;
    if (met == TUTTI_OK && due && (r->together || r->m->rank == 0))
        met = report(r, !r->together, err);
    tutti_engine_doing(r->engine, was);
    if (met != TUTTI_OK)
        return met;
    return status == TUTTI_OK ? write_text(r, err) : stopped(r, status);
}

/* ---- beginning and end ---- */

/* Is this a file that a record writes? */
static bool is_ours(const char *name)
{
    static const char *const files[] = { "config.json", "summary.json", "trace.json", "report.html",
                                         "merging" };

    for (size_t i = 0; i < TUTTI_LENGTH(files); i++)
        if (strcmp(name, files[i]) == 0)
            return true;
    return tutti_record_rows_is(name) || tutti_record_rank_of(TUTTI_RECORD_TRACE, name) >= 0 ||
           tutti_record_rank_of(TUTTI_RECORD_CLOSED, name) >= 0;
}

typedef struct looked { tutti_record *r; bool overwrite; } looked;

/* Removes a file of an earlier record, or refuses the folder. */
static tutti_status take_name(void *user, const char *name, tutti_error *err)
{
    const looked *l = user;
    char path[TUTTI_RECORD_PATH];

    if (!l->overwrite)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "the trace's folder %s is not empty: it has '%.200s'; give this run "
                          "another one, or say that an earlier record may be removed (overwrite)",
                          l->r->folder, name);
    if (!is_ours(name))
        return TUTTI_OK;
    snprintf(path, sizeof path, "%s/%.255s", l->r->folder, name);
    return tutti_file_remove(l->r->rt, path, err);
}

static tutti_status take_folder(tutti_record *r, const tutti_record_options *o, tutti_error *err)
{
    looked l = { r, o->overwrite };

    if (o->folder == NULL || o->folder[0] == 0 || strlen(o->folder) >= sizeof r->folder)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "the trace's folder has a name of %zu bytes; give 1 to %zu",
                          o->folder != NULL ? strlen(o->folder) : (size_t)0, sizeof r->folder - 1);
    snprintf(r->folder, sizeof r->folder, "%s", o->folder);
    if (!tutti_file_exists(r->rt, r->folder))
        return tutti_directory_make(r->rt, r->folder, err);
    return tutti_directory_list(r->rt, r->folder, take_name, &l, err);
}

static tutti_status write_config(const tutti_record *r, const char *facts, tutti_error *err)
{
    const tutti_method *m = r->m;
    const char *codec = tutti_exchange_codec(m);
    json_error_t why;
    json_t *o = facts != NULL ? json_loads(facts, JSON_REJECT_DUPLICATES, &why) : json_object();
    char spec[1024];
    size_t parameters = 0;

    if (!json_is_object(o)) {
        const bool read = o != NULL;
        json_decref(o);
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "the facts of a record are no object of JSON: %s",
                          read ? "they have another type" : why.text);
    }
    for (int k = 0; k < m->layout->n_tensors; k++)
        parameters += m->layout->tensor[k].count;
    tutti_spec_print(m->ops->name, m->ops->options, m->self, spec, sizeof spec);
    json_object_set_new(o, "method", json_string(spec));
    json_object_set_new(o, "codec", json_string(codec != NULL ? codec : ""));
    json_object_set_new(o, "transport", json_string(tutti_world_transport(m->world)));
    json_object_set_new(o, "n", json_integer(m->workers));
    json_object_set_new(o, "servers", json_integer(m->servers));
    json_object_set_new(o, "params", json_integer((json_int_t)parameters));
    return tutti_record_write_object(r->rt, r->folder, "config.json", o, err);
}

static tutti_status make_files(tutti_record *r, const tutti_record_options *o, tutti_error *err)
{
    char path[TUTTI_RECORD_PATH];

    tutti_record_path(path, r->folder, TUTTI_RECORD_TRACE, r->m->rank);
    TUTTI_TRY(tutti_file_open(&r->trace, r->rt, path, TUTTI_FILE_CREATE, err));
    TUTTI_TRY(make_room(r, (size_t)5 * TUTTI_RECORD_LINE, err));
    r->length = (size_t)snprintf(r->text, TUTTI_RECORD_LINE, "[\n");
    r->length += tutti_record_head(r->text + r->length, r->m->rank, r->m->workers, &r->clock, 0);
    TUTTI_TRY(write_text(r, err));
    if (r->m->rank != 0)
        return TUTTI_OK;
    TUTTI_TRY(write_config(r, o->facts, err));
    return tutti_record_rows_begin(
        &r->metrics, &(tutti_record_place){ r->rt, r->folder, r->forms, o->metrics_port }, false, 0,
        err);
}

/* All ranks continue, or all fail: `mine` is this rank's, with its sentence in *err. text: has to
   be the same on all. */
static tutti_status agree(tutti_group *all, tutti_status mine, const char *text, tutti_error *err)
{
    if (all->size == 1)
        return mine;
    if (mine == TUTTI_OK)
        return tutti_compare_text(all, text, err);
    tutti_compare_refuse(all, err, err);
    return mine;
}

/* Removes what a run that is refused has written. */
static void leave_nothing(tutti_record *r)
{
    char path[TUTTI_RECORD_PATH];

    if (r->trace == NULL)
        return;
    stopped(r, TUTTI_ERR_USAGE);
    tutti_record_path(path, r->folder, TUTTI_RECORD_TRACE, r->m->rank);
    tutti_file_remove(r->rt, path, NULL);
    if (r->m->rank != 0)
        return;
    snprintf(path, sizeof path, "%s/config.json", r->folder);
    tutti_file_remove(r->rt, path, NULL);
    tutti_record_rows_remove(&(tutti_record_place){ .rt = r->rt, .folder = r->folder }, NULL);
}

static void drop(tutti_record *r)
{
    tutti_free(r->text);
    tutti_free(r->rows);
    tutti_free(r);
}

static tutti_status begin(tutti_record *r, const tutti_record_options *o, tutti_error *err)
{
    tutti_group all = tutti_group_keyed(&r->m->everyone, tutti_port_of("record", 0, 0), 0);
    char text[TUTTI_RECORD_PATH];
    tutti_status status;

    r->rows = tutti_alloc((size_t)r->m->workers * REPORTED, sizeof *r->rows);
    if (r->rows == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for the figures of %d workers",
                          r->m->workers);
    all.uncounted = true;
    snprintf(text, sizeof text,
             "trace=%.2000s\nreport every=%llu\nlog-to=%.200s\nmetrics-port=%.80s\n",
             o->folder != NULL ? o->folder : "", (unsigned long long)r->report_every,
             o->log_to != NULL ? o->log_to : "", o->metrics_port != NULL ? o->metrics_port : "");
    status = tutti_record_log_to(o->log_to, &r->forms, err);
    if (status == TUTTI_OK)
        status = tutti_record_port_check(o->metrics_port, r->m->rank == 0, err);
    TUTTI_TRY(agree(&all, status == TUTTI_OK ? take_folder(r, o, err) : status, text, err));
    if (tutti_record_clocks_differ(r->m->world))
        TUTTI_TRY(tutti_record_clock_compare(&all, &r->clock, err));
    else
        r->clock.at_ns = tutti_now_ns(r->rt);
    TUTTI_TRY(agree(&all, make_files(r, o, err), text, err));
    return add_clock(r, err);
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
    r->rt = m->rt;
    r->report_every = options->report_every > 0 ? options->report_every : 50;
    r->samples = options->samples;
    r->together = m->rank < m->workers && (m->traits & TUTTI_REPLICAS_EQUAL) != 0 &&
                  (m->traits & TUTTI_ASYNC) == 0 && !tutti_engine_fault_tolerant(engine);
    r->workers = tutti_group_keyed(&m->all, tutti_port_of("record", 1, 0), 0);
    r->workers.uncounted = true;
    status = begin(r, options, err);
    tutti_engine_figures(engine, &r->reported);
    r->reported_ns = tutti_now_ns(r->rt);
    if (status == TUTTI_OK) {
        *out = r;
        return TUTTI_OK;
    }
    leave_nothing(r);
    drop(r);
    return status;
}

static tutti_status end(tutti_record *r, bool ended, tutti_error *err)
{
    tutti_figures f;

    if (r->trace == NULL)
        return TUTTI_OK;
    TUTTI_TRY(add_events(r, err));
    TUTTI_TRY(add_clock(r, err));
    TUTTI_TRY(write_text(r, err));
    tutti_engine_figures(r->engine, &f);
    if (ended && r->m->rank == 0 && f.steps > r->reported.steps)
        TUTTI_TRY(report(r, true, err));
    return ended ? tutti_record_write_closed(r->engine, r->folder, r->samples, err) : TUTTI_OK;
}

tutti_status tutti_record_close(tutti_record *r, bool ended, tutti_error *err)
{
    tutti_status status;
    bool wrote;

    if (r == NULL)
        return TUTTI_OK;
    wrote = r->trace != NULL && ended;
    status = end(r, ended, err);
    for (int k = 0; k < 2; k++) {
        tutti_error *why = status == TUTTI_OK ? err : NULL;
        const tutti_status closing = k == 0 ? tutti_file_close(r->trace, why)
                                            : tutti_record_rows_close(r->metrics, why);
        status = status == TUTTI_OK ? closing : status;
    }
    if (status == TUTTI_OK && wrote)
        status = tutti_record_merge_if_last(r->rt, r->folder, r->m->workers + r->m->servers, err);
    drop(r);
    return status;
}
