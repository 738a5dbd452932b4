/* closed.c: a rank's file of its end, and the summary of all of them. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "record_internal.h"
#include "tutti/method.h"

/* ---- one rank ---- */

static json_t *figures_of(const double *w)
{
    json_t *o = json_object();

    for (int k = 0; k < TUTTI_RECORD_FIGURES; k++)
        json_object_set_new(o, tutti_record_names[k], tutti_record_number(w[k]));
    return o;
}

tutti_status tutti_record_write_end(const tutti_record_trace *t, const tutti_record_end *end,
                                    tutti_error *err)
{
    double w[TUTTI_RECORD_FIGURES] = { 0 };
    char name[64];

    tutti_record_take(end->figures, w);
    snprintf(name, sizeof name, TUTTI_RECORD_CLOSED, t->rank);
    return tutti_record_write_object(
        t->rt, t->folder, name,
        json_pack("{s:i, s:i, s:i, s:I, s:n, s:s, s:o, s:[], s:o, s:o, s:O*}", "rank", t->rank, "workers",
                  t->workers, "servers", t->ranks - t->workers, "steps",
                  (json_int_t)end->figures->steps, "samples", "version", tutti_version(), "figures",
                  figures_of(w), "staleness", "events", end->events, "calls", end->calls, "logged",
                  end->logged),
        err);
}

tutti_status tutti_record_write_closed(tutti_engine *engine, const char *folder, bool samples,
                                       json_t *logged, tutti_error *err)
{
    const tutti_method *m = tutti_engine_method(engine);
    double w[TUTTI_RECORD_FIGURES];
    tutti_figures f;
    char name[64];
    json_t *o;

    tutti_engine_figures(engine, &f);
    tutti_record_take(&f, w);
    TUTTI_TRY(tutti_record_take_memory(engine, w, err));
    o = json_pack("{s:i, s:i, s:i, s:I, s:o, s:s, s:o, s:o, s:o}", "rank", m->rank, "workers",
                  m->workers, "servers", m->servers, "steps", (json_int_t)f.steps, "samples",
                  samples ? json_integer((json_int_t)f.samples) : json_null(), "version",
                  tutti_version(), "figures", figures_of(w), "staleness",
                  tutti_record_pairs(f.staleness), "events", tutti_record_events(engine, m->rank != 0));
    if (m->rank == 0) {
        json_object_set_new(o, "method_figures",
                            tutti_record_method_figures(engine, m->workers, true));
        json_object_set_new(o, "payload_by_tensor", tutti_record_payload(engine));
        json_object_set_new(o, "codec_report", tutti_record_codecs(engine));
        if (logged != NULL)
            json_object_set(o, "logged", logged);
    }
    snprintf(name, sizeof name, TUTTI_RECORD_CLOSED, m->rank);
    return tutti_record_write_object(m->rt, folder, name, o, err);
}

/* ---- all ranks ---- */

typedef struct closed {
    int workers, ranks;
    json_t *config;
    json_t **of;                 /* [ranks]: their files */
    double *rows;                /* [ranks][TUTTI_RECORD_FIGURES] */
    tutti_record_totals totals;
} closed;

static tutti_status read_object(tutti_runtime *rt, const char *path, json_t **out, tutti_error *err)
{
    char *text;
    size_t bytes;

    TUTTI_TRY(tutti_record_read(rt, path, (size_t)1 << 30, &text, &bytes, err));
    *out = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, NULL);
    tutti_free(text);
    if (json_is_object(*out))
        return TUTTI_OK;
    json_decref(*out);
    *out = NULL;
    return tutti_fail(err, TUTTI_ERR_CORRUPT, 0, "%s is not an object of JSON, as a run writes it",
                      path);
}

static tutti_status read_rank(closed *c, tutti_runtime *rt, const char *folder, int rank,
                              tutti_error *err)
{
    char path[TUTTI_RECORD_PATH];
    const json_t *figures;

    tutti_record_path(path, folder, TUTTI_RECORD_CLOSED, rank);
    TUTTI_TRY(read_object(rt, path, &c->of[rank], err));
    figures = json_object_get(c->of[rank], "figures");
    for (int k = 0; k < TUTTI_RECORD_FIGURES; k++)
        c->rows[rank * TUTTI_RECORD_FIGURES + k] =
            json_number_value(json_object_get(figures, tutti_record_names[k]));
    if (json_integer_value(json_object_get(c->of[rank], "workers")) +
            json_integer_value(json_object_get(c->of[rank], "servers")) !=
        c->ranks)
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                          "%s is of a run with another number of ranks than %d", path, c->ranks);
    return TUTTI_OK;
}

static json_t *copy(const json_t *o, const char *name)
{
    json_t *value = json_object_get(o, name);

    return value != NULL ? json_incref(value) : json_null();
}

static void put_settings(json_t *o, const closed *c)
{
    const char *spec = json_string_value(json_object_get(c->config, "method")), *codec =
        json_string_value(json_object_get(c->config, "codec"));
    json_t *members = json_array();

    for (int r = 0; r < c->workers; r++)
        json_array_append_new(members, json_integer(r));
    json_object_set_new(o, "method",
                        spec != NULL ? json_stringn(spec, strcspn(spec, "(")) : json_null());
    json_object_set_new(o, "method_spec", copy(c->config, "method"));
    json_object_set_new(o, "codec", json_string(codec != NULL && codec[0] != 0 ? codec : "fp32"));
    json_object_set_new(o, "transport", copy(c->config, "transport"));
    json_object_set_new(o, "workers", json_integer(c->workers));
    json_object_set_new(o, "members", members);
    json_object_set_new(o, "servers", json_integer(c->ranks - c->workers));
    json_object_set_new(o, "script", copy(c->config, "script"));
    json_object_set_new(o, "model", copy(c->config, "model"));
    json_object_set_new(o, "params", copy(c->config, "params"));
    json_object_set_new(o, "optimizer", copy(c->config, "optimizer"));
}

static void put_course(json_t *o, const closed *c)
{
    const tutti_record_totals *t = &c->totals;
    const json_t *samples = json_object_get(c->of[0], "samples");
    const double wall = t->mine[TUTTI_RECORD_WALL];

    json_object_set_new(o, "steps", copy(c->of[0], "steps"));
    json_object_set_new(o, "steps_skipped", json_integer((json_int_t)t->skipped));
    json_object_set_new(o, "loss_scale", tutti_record_number_if(t->scale > 0, t->scale));
    json_object_set_new(o, "samples", copy(c->of[0], "samples"));
    tutti_record_put_times(o, t);
    json_object_set_new(o, "samples_per_second",
                        tutti_record_number_if(json_is_number(samples) && wall > 0,
                                               json_number_value(samples) / wall));
}

/* Adds what the script has logged last: of a test as `tutti train` names it, and all by name. */
static void put_logged(json_t *o, const closed *c)
{
    static const char *const tests[] = { "test_loss", "test_accuracy" };
    json_t *logged = json_object_get(c->of[0], "logged");
    char name[64];

    if (!json_is_object(logged))
        return;
    for (size_t i = 0; i < TUTTI_LENGTH(tests); i++)
        if (json_object_get(logged, tests[i]) != NULL) {
            snprintf(name, sizeof name, "final_%s", tests[i]);
            json_object_set(o, name, json_object_get(logged, tests[i]));
        }
    json_object_set(o, "logged", logged);
}

static json_t *by_worker(const closed *c)
{
    json_t *array = json_array();

    for (int r = 0; r < c->workers; r++) {
        const double *w = c->rows + (size_t)r * TUTTI_RECORD_FIGURES;
        json_t *row = tutti_record_worker(r, w);
        json_object_set_new(row, "memory", tutti_record_memory(w));
        json_object_set_new(row, "steps_skipped",
                            json_integer((json_int_t)w[TUTTI_RECORD_SKIPPED]));
        json_object_set_new(
            row, "loss_scale",
            tutti_record_number_if(w[TUTTI_RECORD_SCALE] > 0, w[TUTTI_RECORD_SCALE]));
        json_object_set_new(row, "staleness", copy(c->of[r], "staleness"));
        json_array_append_new(array, row);
    }
    return array;
}

static json_t *by_server(const closed *c)
{
    json_t *array = json_array();

    for (int r = c->workers; r < c->ranks; r++)
        json_array_append_new(
            array,
            tutti_record_server(r - c->workers, r, c->rows + (size_t)r * TUTTI_RECORD_FIGURES));
    return array;
}

/* Adds the histograms of all workers. */
static void put_staleness(json_t *o, const closed *c, tutti_histogram *sum)
{
    const tutti_record_totals *t = &c->totals;
    json_t *pair;
    size_t i;

    for (int r = 0; r < c->workers; r++) {
        json_array_foreach(json_object_get(c->of[r], "staleness"), i, pair) {
            const json_int_t value = json_integer_value(json_array_get(pair, 0));
            sum->count[tutti_histogram_bin(value > 0 ? (uint64_t)value : 0)] +=
                (uint64_t)json_integer_value(json_array_get(pair, 1));
        }
    }
    json_object_set_new(o, "staleness", tutti_record_pairs(sum));
    json_object_set_new(o, "histogram_edges", tutti_record_edges((int64_t)t->stale_most));
    json_object_set_new(o, "staleness_max", json_integer((json_int_t)t->stale_most));
    json_object_set_new(o, "staleness_mean",
                        json_real(t->stale_of > 0 ? t->stale_sum / t->stale_of : 0));
}

static tutti_status put_rest(json_t *o, const closed *c, tutti_error *err)
{
    tutti_histogram *sum = tutti_alloc(1, sizeof *sum);
    json_t *events, *seen;

    if (sum == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for the delays of %d workers",
                          c->workers);
    json_object_set_new(o, "peak_rss_bytes_per_worker",
                        json_integer((json_int_t)c->totals.most_rss));
    json_object_set_new(o, "memory", tutti_record_memory(c->totals.most_held));
    put_staleness(o, c, sum);
    tutti_free(sum);
    json_object_set_new(o, "restarts", json_integer((json_int_t)c->totals.restarts));
    json_object_set_new(o, "method_figures", copy(c->of[0], "method_figures"));
    json_object_set_new(o, "simulated", json_false());
    json_object_set_new(o, "by_worker", by_worker(c));
    json_object_set_new(o, "by_server", by_server(c));
    json_object_set_new(o, "payload_by_tensor", copy(c->of[0], "payload_by_tensor"));
    json_object_set_new(o, "codec_report", copy(c->of[0], "codec_report"));
    if (json_object_get(c->of[0], "calls") != NULL)
        json_object_set_new(o, "calls", copy(c->of[0], "calls"));
    json_object_set_new(o, "events", events = json_array());
    json_object_set_new(o, "version", copy(c->of[0], "version"));
    seen = json_object();
    for (int r = 0; r < c->ranks; r++)
        tutti_record_events_add(events, seen, json_object_get(c->of[r], "events"));
    json_decref(seen);
    return tutti_record_events_sort(events, err);
}

static tutti_status write_summary(closed *c, tutti_runtime *rt, const char *folder,
                                  tutti_error *err)
{
    json_t *o = json_object();
    tutti_status status;

    put_settings(o, c);
    put_course(o, c);
    put_logged(o, c);
    status = put_rest(o, c, err);
    if (status == TUTTI_OK)
        return tutti_record_write_object(rt, folder, "summary.json", o, err);
    json_decref(o);
    return status;
}

tutti_status tutti_record_summarise(tutti_runtime *rt, const char *folder, int ranks,
                                    tutti_error *err)
{
    closed c = { .ranks = ranks,
                 .of = tutti_alloc((size_t)ranks, sizeof *c.of),
                 .rows = tutti_alloc((size_t)ranks * TUTTI_RECORD_FIGURES, sizeof *c.rows) };
    char path[TUTTI_RECORD_PATH];
    tutti_status status = c.of != NULL && c.rows != NULL
                              ? TUTTI_OK
                              : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM,
                                           "memory for the figures of %d ranks", ranks);

    snprintf(path, sizeof path, "%s/config.json", folder);
    if (status == TUTTI_OK)
        status = read_object(rt, path, &c.config, err);
    for (int r = 0; r < ranks && status == TUTTI_OK; r++)
        status = read_rank(&c, rt, folder, r, err);
    if (status == TUTTI_OK) {
        const json_int_t workers = json_integer_value(json_object_get(c.of[0], "workers"));
        c.workers = workers >= 1 && workers <= ranks ? (int)workers : ranks;
        tutti_record_add_up(c.rows, TUTTI_RECORD_FIGURES, c.workers, ranks, &c.totals);
        status = write_summary(&c, rt, folder, err);
    }
    for (int r = 0; r < ranks && c.of != NULL; r++)
        json_decref(c.of[r]);
    json_decref(c.config);
    tutti_free(c.of);
    tutti_free(c.rows);
    return status;
}
