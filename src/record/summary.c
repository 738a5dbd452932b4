/* summary.c: the members of summary.json and of the lines of metrics.jsonl that follow from an
   engine and from figures of ranks. */
#include <math.h>

#include "record/files.h"
#include "tutti/method.h"

json_t *tutti_record_number_if(bool known, double value)
{
    return known && isfinite(value) ? json_real(value) : json_null();
}

json_t *tutti_record_number(double value)
{
    return tutti_record_number_if(true, value);
}

json_t *tutti_record_memory(const double *w)
{
    json_t *o = json_object();
    double total = 0;

    for (int k = 0; k < TUTTI_MEMORY_KINDS; k++) {
        const double bytes = w[TUTTI_RECORD_HELD + k];
        json_object_set_new(o, tutti_memory_name((tutti_memory)k), json_integer((json_int_t)bytes));
        total += bytes;
    }
    json_object_set_new(o, "total", json_integer((json_int_t)total));
    return o;
}

json_t *tutti_record_worker(int rank, const double *w)
{
    return json_pack("{s:i, s:I, s:f, s:f, s:f, s:f, s:f, s:I}", "worker", rank, "steps",
                     (json_int_t)w[TUTTI_RECORD_STEPS], "wall_seconds", w[TUTTI_RECORD_WALL],
                     "compute_seconds", w[TUTTI_RECORD_COMPUTE], "exposed_comm_seconds",
                     w[TUTTI_RECORD_EXPOSED], "other_seconds", w[TUTTI_RECORD_OTHER],
                     "data_seconds", w[TUTTI_RECORD_DATA], "bytes_sent",
                     (json_int_t)w[TUTTI_RECORD_BYTES]);
}

json_t *tutti_record_server(int server, int rank, const double *w)
{
    return json_pack("{s:i, s:i, s:I, s:I, s:I, s:o}", "server", server, "rank", rank, "bytes_sent",
                     (json_int_t)w[TUTTI_RECORD_BYTES], "messages_sent",
                     (json_int_t)w[TUTTI_RECORD_MESSAGES], "peak_rss_bytes",
                     (json_int_t)w[TUTTI_RECORD_RSS], "memory", tutti_record_memory(w));
}

void tutti_record_put_times(json_t *o, const tutti_record_totals *t)
{
    const double *mine = t->mine;

    json_object_set_new(o, "wall_seconds", json_real(mine[TUTTI_RECORD_WALL]));
    json_object_set_new(o, "compute_seconds", json_real(mine[TUTTI_RECORD_COMPUTE]));
    json_object_set_new(o, "comm_seconds", json_real(mine[TUTTI_RECORD_COMM]));
    json_object_set_new(o, "exposed_comm_seconds", json_real(mine[TUTTI_RECORD_EXPOSED]));
    json_object_set_new(o, "other_seconds", json_real(mine[TUTTI_RECORD_OTHER]));
    json_object_set_new(o, "data_seconds", json_real(mine[TUTTI_RECORD_DATA]));
    json_object_set_new(o, "bytes_sent_total", json_integer((json_int_t)t->bytes));
    json_object_set_new(o, "bytes_sent_per_worker", json_integer((json_int_t)t->most_bytes));
    json_object_set_new(o, "messages_sent_per_worker", json_integer((json_int_t)t->most_messages));
}

json_t *tutti_record_pairs(const tutti_histogram *h)
{
    json_t *pairs = json_array();

    for (int bin = 0; bin < TUTTI_HISTOGRAM_BINS; bin++)
        if (h->count[bin] > 0)
            json_array_append_new(pairs, json_pack("[I, I]", (json_int_t)tutti_histogram_least(bin),
                                                   (json_int_t)h->count[bin]));
    return pairs;
}

json_t *tutti_record_edges(int64_t most)
{
    json_t *edges = json_array();

    if (most <= TUTTI_HISTOGRAM_EXACT)
        return edges;
    for (int bin = TUTTI_HISTOGRAM_EXACT + 1; bin < TUTTI_HISTOGRAM_BINS; bin++) {
        json_array_append_new(edges, json_integer((json_int_t)tutti_histogram_least(bin)));
        if ((int64_t)tutti_histogram_least(bin) > most)
            break;
    }
    return edges;
}

/* ---- what a method has reported ---- */

/* Sets member `name` of o to value (worker -1), or the worker's element of the array `name`, which
   has an element for each worker: null where the method reported none. */
static void set_figure(json_t *o, const char *name, int worker, int workers, json_t *value)
{
    json_t *row = json_object_get(o, name);

    if (worker < 0) {
        json_object_set_new(o, name, value);
        return;
    }
    if (row == NULL) {
        row = json_array();
        for (int r = 0; r < workers; r++)
            json_array_append_new(row, json_null());
        json_object_set_new(o, name, row);
    }
    json_array_set_new(row, (size_t)worker, value);
}

/* Inserts [at, value] into the pairs, which are sorted by `at`. A method may report them in any
   order. */
static void insert_pair(json_t *pairs, int64_t at, json_t *value)
{
    size_t k = json_array_size(pairs);

    while (k > 0 && json_integer_value(json_array_get(json_array_get(pairs, k - 1), 0)) > at)
        k--;
    json_array_insert_new(pairs, k, json_pack("[I, o]", (json_int_t)at, value));
}

json_t *tutti_record_method_figures(const tutti_engine *engine, int workers, bool lists)
{
    const tutti_metric_record *metrics;
    const int n = tutti_engine_metrics(engine, &metrics);
    json_t *o = json_object();

    for (int i = 0; i < n; i++) {
        const tutti_metric_record *m = &metrics[i];
        json_t *value, *pairs;
        if (m->at >= 0 && !lists)
            continue;
        value = tutti_record_number(m->value);
        if (m->at < 0) {
            set_figure(o, m->name, m->worker, workers, value);
            continue;
        }
        pairs = m->worker < 0 ? json_object_get(o, m->name)
                              : json_array_get(json_object_get(o, m->name), (size_t)m->worker);
        if (!json_is_array(pairs))
            set_figure(o, m->name, m->worker, workers, pairs = json_array());
        insert_pair(pairs, m->at, value);
    }
    return o;
}

json_t *tutti_record_payload(const tutti_engine *engine)
{
    const uint64_t *bytes = tutti_engine_payload(engine);
    const tutti_layout *layout = tutti_engine_method(engine)->layout;
    json_t *array = bytes != NULL ? json_array() : json_null();

    for (int i = 0; bytes != NULL && i < layout->n_tensors; i++)
        json_array_append_new(array, json_pack("{s:s, s:I, s:I}", "tensor", layout->tensor[i].name,
                                               "params", (json_int_t)layout->tensor[i].count,
                                               "bytes", (json_int_t)bytes[i]));
    return array;
}

json_t *tutti_record_codec(const tutti_engine *engine, int tensor)
{
    const tutti_codec_record *records = tutti_engine_codec_records(engine),
                             *r = records != NULL ? &records[tensor] : NULL;
    const tutti_tensor *t = &tutti_engine_method(engine)->layout->tensor[tensor];
    json_t *o;

    if (r == NULL || r->step == 0)
        return NULL;
    o = json_pack("{s:I, s:s, s:I, s:s, s:I, s:f, s:o, s:o, s:o, s:f, s:f, s:o}", "step",
                  (json_int_t)r->step, "tensor", t->name, "params", (json_int_t)t->count, "codec",
                  r->codec, "bytes", (json_int_t)r->bytes, "bits", r->bits, "norm",
                  tutti_record_number(r->norm), "rho", tutti_record_number(r->rho), "lost",
                  tutti_record_number(r->lost), "density", r->density, "union_density",
                  r->union_density, "residual", tutti_record_number(r->residual));
    for (int k = 0; k < r->n_figures; k++) {
        const tutti_codec_figure *f = &r->figure[k];
        json_t *counts = f->n > 1 ? json_array() : NULL;
        for (size_t i = 0; counts != NULL && i < f->n; i++)
            json_array_append_new(counts, json_integer((json_int_t)f->value[i]));
        json_object_set_new(o, f->name, counts != NULL ? counts : tutti_record_number(f->value[0]));
    }
    return o;
}

json_t *tutti_record_codecs(const tutti_engine *engine)
{
    const int n = tutti_engine_method(engine)->layout->n_tensors;
    json_t *array = json_array();

    for (int i = 0; i < n; i++) {
        json_t *row = tutti_record_codec(engine, i);
        if (row != NULL)
            json_array_append_new(array, row);
    }
    if (json_array_size(array) > 0)
        return array;
    json_decref(array);
    return json_null();
}

json_t *tutti_record_report(const tutti_record_line *l)
{
    const tutti_figures *f = l->figures;

    return json_pack(
        "{s:I, s:o, s:o, s:o, s:o, s:o, s:f, s:f, s:f, s:f, s:o, s:I, s:o, s:o, s:o}", "step",
        (json_int_t)l->step, "epoch", l->epoch, "samples", l->samples, "train_loss",
        tutti_record_number(l->train_loss), "lr", tutti_record_number(l->lr), "samples_per_second",
        l->samples_per_second, "wall_seconds", (double)f->wall_ns * 1e-9, "compute_seconds",
        (double)f->compute_ns * 1e-9, "exposed_comm_seconds", (double)f->exposed_ns * 1e-9,
        "other_seconds", (double)f->other_ns * 1e-9, "bytes_sent_total",
        tutti_record_number(l->bytes), "steps_skipped", (json_int_t)l->skipped, "loss_scale",
        tutti_record_number_if(l->scale > 0, l->scale), "compute_seconds_by_worker", l->compute,
        "wait_seconds_by_worker", l->wait);
}
