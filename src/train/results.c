/* results.c: writes the files of a run's end: summary.json, model.safetensors (model.c) and
   trace.json (trace.c). Each file appears as a whole or not at all. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "train_internal.h"
#include "runtime/files.h"

/* ---- summary ---- */

static json_t *real_or_null(bool known, double value)
{
    return known && isfinite(value) ? json_real(value) : json_null();
}

/* Sets member `name` of o to value (worker -1), or the worker's element of the array `name`, which
   has an element for each worker: null where the method reported none. */
static void set_figure(const tutti_run *run, json_t *o, const char *name, int worker, json_t *value)
{
    json_t *row = json_object_get(o, name);

    if (worker < 0) {
        json_object_set_new(o, name, value);
        return;
    }
    if (row == NULL) {
        row = json_array();
        for (int r = 0; r < run->workers; r++)
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

json_t *tutti_train_method_figures(const tutti_run *run, bool lists)
{
    const tutti_metric_record *metrics;
    const int n = tutti_engine_metrics(run->engine, &metrics);
    json_t *o = json_object();

    for (int i = 0; i < n; i++) {
        const tutti_metric_record *m = &metrics[i];
        json_t *value, *pairs;
        if (m->at >= 0 && !lists)
            continue;
        value = real_or_null(true, m->value);
        if (m->at < 0) {
            set_figure(run, o, m->name, m->worker, value);
            continue;
        }
        pairs = m->worker < 0 ? json_object_get(o, m->name)
                              : json_array_get(json_object_get(o, m->name), (size_t)m->worker);
        if (!json_is_array(pairs))
            set_figure(run, o, m->name, m->worker, pairs = json_array());
        insert_pair(pairs, m->at, value);
    }
    return o;
}

static json_t *members_of(const tutti_run *run)
{
    json_t *array = json_array();

    for (int i = 0; i < tutti_train_working(run); i++)
        json_array_append_new(array, json_integer(tutti_train_rank(run, i)));
    return array;
}

/* The figures that each rank sends at the end, of this process. */
enum {
    WALL,
    COMPUTE,
    COMM,
    EXPOSED,
    OTHER,
    DATA,
    BYTES,
    MESSAGES,
    MEMORY,
    STEPS,
    STALE_MOST,
    STALE_MEAN,
    STALE_OF,
    SKIPPED,
    SCALE,
    RATE,
    ARRIVED,
    TAKEN,
    DROPPED,
    WAITED,
    RESTARTS,
    REGRET,
    HELD,                        /* bytes of each kind */
    FIGURES = HELD + TUTTI_MEMORY_KINDS
};
_Static_assert((int)FIGURES <= (int)TUTTI_TRAIN_FIGURES, "run->figures_of has space for a row of them");

/* Returns a rank's memory by kind. peak_rss_bytes is more: it includes the program, its libraries
   and the transport. */
static json_t *memory_of(const double *w)
{
    json_t *o = json_object();
    double total = 0;

    for (int k = 0; k < TUTTI_MEMORY_KINDS; k++) {
        json_object_set_new(o, tutti_memory_name((tutti_memory)k), json_integer((json_int_t)w[HELD + k]));
        total += w[HELD + k];
    }
    json_object_set_new(o, "total", json_integer((json_int_t)total));
    return o;
}

/* Returns the memory of the worker that has the most. */
static json_t *memory_of_most(const tutti_run *run)
{
    const double *most = run->figures_of;
    double bytes = -1;

    for (int i = 0; i < tutti_train_working(run); i++) {
        const double *w = run->figures_of + FIGURES * i;
        double total = 0;
        for (int k = 0; k < TUTTI_MEMORY_KINDS; k++)
            total += w[HELD + k];
        most = total > bytes ? w : most;
        bytes = total > bytes ? total : bytes;
    }
    return memory_of(most);
}

/* Returns a row for each worker that is left, and prints the rows if there are at most 16. all: the
   figures, a row for each index. */
static json_t *by_worker(const tutti_run *run, const double *all, const tutti_train_delays *stale)
{
    const int working = tutti_train_working(run);
    json_t *array = json_array();

    if (working > 1 && working <= 16)
        tutti_train_say(run, 0, "  worker    steps   computing     waiting       other        sent");
    for (int i = 0; i < working; i++) {
        const double *w = all + FIGURES * i;
        const int r = tutti_train_rank(run, i);
        json_array_append_new(array, json_pack("{s:i, s:I, s:f, s:f, s:f, s:f, s:f, s:I}", "worker", r,
                                               "steps", (json_int_t)w[STEPS], "wall_seconds", w[WALL],
                                               "compute_seconds", w[COMPUTE], "exposed_comm_seconds", w[EXPOSED],
                                               "other_seconds", w[OTHER], "data_seconds", w[DATA],
                                               "bytes_sent", (json_int_t)w[BYTES]));
        json_object_set_new(json_array_get(array, (size_t)i), "batch", json_integer(tutti_share_batch(&run->share, r)));
        json_object_set_new(json_array_get(array, (size_t)i), "memory", memory_of(w));
        json_object_set_new(json_array_get(array, (size_t)i), "steps_skipped", json_integer((json_int_t)w[SKIPPED]));
        json_object_set_new(json_array_get(array, (size_t)i), "loss_scale", real_or_null(w[SCALE] > 0, w[SCALE]));
        json_object_set_new(json_array_get(array, (size_t)i), "staleness", tutti_train_delays_of(stale, i));
        json_object_set_new(json_array_get(array, (size_t)i), "passes",
                            json_integer(tutti_share_passes(&run->share, r)));
        tutti_train_partition_describe(run, r, json_array_get(array, (size_t)i));
        tutti_train_stream_describe(run,
                                    &(tutti_arrivals){ .rate = w[RATE],
                                                       .arrived = (uint64_t)w[ARRIVED],
                                                       .taken = (uint64_t)w[TAKEN],
                                                       .dropped = (uint64_t)w[DROPPED],
                                                       .waited_ns = (int64_t)w[WAITED] },
                                    json_array_get(array, (size_t)i));
        if (working > 1 && working <= 16)
            tutti_train_say(run, 0, "  %6d %8.0f  %8.2f s  %8.2f s  %8.2f s  %7.1f MB", r, w[STEPS], w[COMPUTE],
                            w[EXPOSED], w[OTHER], w[BYTES] * 1e-6);
    }
    return array;
}

/* Returns a row for each rank that only serves. */
static json_t *by_server(const tutti_run *run, const double *all)
{
    json_t *array = json_array();

    for (int i = tutti_train_working(run); i < run->all.size; i++) {
        const double *w = all + FIGURES * i;
        const int r = tutti_train_rank(run, i);
        json_array_append_new(array, json_pack("{s:i, s:i, s:I, s:I, s:I}", "server", r - run->workers, "rank", r,
                                               "bytes_sent", (json_int_t)w[BYTES],
                                               "messages_sent", (json_int_t)w[MESSAGES],
                                               "peak_rss_bytes", (json_int_t)w[MEMORY]));
        json_object_set_new(json_array_get(array, json_array_size(array) - 1), "memory", memory_of(w));
    }
    return array;
}

/* Returns how many bytes worker 0's codec has made of each tensor's gradients in this process;
   null: there is no codec. */
static json_t *payload_by_tensor(const tutti_run *run)
{
    const uint64_t *bytes = tutti_engine_payload(run->engine);
    json_t *array = bytes != NULL ? json_array() : json_null();

    for (int i = 0; bytes != NULL && i < run->n_params; i++)
        json_array_append_new(array, json_pack("{s:s, s:I, s:I}", "tensor", run->params[i].name,
                                               "params", (json_int_t)run->params[i].count,
                                               "bytes", (json_int_t)bytes[i]));
    return array;
}

/* Returns the codec's effect on each tensor as it was last measured; null: it was not measured. */
static json_t *codec_report(const tutti_run *run)
{
    json_t *array = json_array();

    for (int i = 0; i < run->n_params; i++) {
        json_t *row = tutti_train_codec_record(run, i);
        if (row != NULL)
            json_array_append_new(array, row);
    }
    if (json_array_size(array) > 0)
        return array;
    json_decref(array);
    return json_null();
}

/* What is gathered for the files, in addition to run->figures_of. */
typedef struct results {
    tutti_figures f;                 /* this rank's */
    tutti_train_delays stale;
    json_t *events;
    tutti_train_trace trace;
} results;

static tutti_status gather_results(tutti_run *run, void *arg, tutti_error *err)
{
    results *r = arg;
    tutti_figures *const f = &r->f;
    double mine[FIGURES];
    uint64_t held[TUTTI_MEMORY_KINDS];
    struct rusage usage;

    tutti_engine_figures(run->engine, f);
    getrusage(RUSAGE_SELF, &usage);
    mine[WALL] = (double)f->wall_ns * 1e-9;
    mine[COMPUTE] = (double)f->compute_ns * 1e-9;
    mine[COMM] = (double)f->comm_ns * 1e-9;
    mine[EXPOSED] = (double)f->exposed_ns * 1e-9;
    mine[OTHER] = (double)f->other_ns * 1e-9;
    mine[DATA] = (double)f->data_ns * 1e-9;
    mine[BYTES] = (double)f->bytes_sent;
    mine[MESSAGES] = (double)f->messages_sent;
    mine[MEMORY] = (double)usage.ru_maxrss * 1024;
    mine[STEPS] = (double)f->own_steps;
    mine[STALE_MOST] = (double)f->staleness_max;
    mine[STALE_MEAN] = f->staleness_mean;
    mine[STALE_OF] = (double)f->staleness_gradients;
    mine[SKIPPED] = (double)f->skipped;
    mine[SCALE] = f->loss_scale;
    mine[RATE] = run->arrivals.rate;
    mine[ARRIVED] = (double)run->arrivals.arrived;
    mine[TAKEN] = (double)run->arrivals.taken;
    mine[DROPPED] = (double)run->arrivals.dropped;
    mine[WAITED] = (double)run->arrivals.waited_ns;
    mine[RESTARTS] = (double)f->restarts;
    mine[REGRET] = run->regret;
    TUTTI_TRY(tutti_train_memory(run, held, err));
    for (int k = 0; k < TUTTI_MEMORY_KINDS; k++)
        mine[HELD + k] = (double)held[k];
    TUTTI_TRY(tutti_train_gather(run, mine, FIGURES, err));
    TUTTI_TRY(tutti_train_delays_gather(run, f->staleness, &r->stale, err));
    TUTTI_TRY(tutti_train_events_gather(run, &r->events, err));
    return tutti_train_trace_gather(run, &r->trace, err);
}

/* The figures of all workers, combined. Times are those of one worker, so that they add up: of the
   busiest, which waits least. If workers wait for each other, its waiting time is the cost of the
   exchange; the waiting time of the others includes their smaller load. */
typedef struct totals {
    double mine[FIGURES];          /* the busiest worker's, but WALL is the longest of all workers */
    double bytes;                  /* sent by all ranks */
    double most_bytes, most_messages, most_memory; /* the largest of a worker */
    double stale_most, stale_sum, stale_of; /* staleness of all gradients: largest, sum, their number */
    double restarts, regret;       /* sums over workers */
    double skipped, scale;         /* workers may differ: most steps skipped, least loss scale */
} totals;

static void add_up(const tutti_run *run, totals *t)
{
    const double *const all = run->figures_of, *busiest = all;
    double wall = 0;

    *t = (totals){ .scale = all[SCALE] };
    for (int i = 0; i < run->all.size; i++)
        t->bytes += all[FIGURES * i + BYTES];
    for (int i = 0; i < tutti_train_working(run); i++) {
        const double *w = all + FIGURES * i;
        busiest = w[WALL] - w[EXPOSED] > busiest[WALL] - busiest[EXPOSED] ? w : busiest;
        wall = w[WALL] > wall ? w[WALL] : wall;
        t->skipped = fmax(t->skipped, w[SKIPPED]);
        t->scale = fmin(t->scale, w[SCALE]);
        t->most_bytes = w[BYTES] > t->most_bytes ? w[BYTES] : t->most_bytes;
        t->most_messages = w[MESSAGES] > t->most_messages ? w[MESSAGES] : t->most_messages;
        t->most_memory = w[MEMORY] > t->most_memory ? w[MEMORY] : t->most_memory;
        t->restarts += w[RESTARTS];
        t->regret += w[REGRET];
        t->stale_sum += w[STALE_OF] * w[STALE_MEAN];
        t->stale_of += w[STALE_OF];
        t->stale_most = w[STALE_MOST] > t->stale_most ? w[STALE_MOST] : t->stale_most;
    }
    memcpy(t->mine, busiest, sizeof t->mine);
    t->mine[EXPOSED] += wall - t->mine[WALL];
    t->mine[WALL] = wall;
}

static void keep_totals(tutti_run *run, const tutti_figures *f, const totals *t)
{
    run->totals.wall = t->mine[WALL];
    run->totals.compute = t->mine[COMPUTE];
    run->totals.exposed = t->mine[EXPOSED];
    run->totals.other = t->mine[OTHER];
    run->totals.bytes = t->bytes;
    run->totals.memory = t->most_memory;
    run->totals.samples = f->samples - run->first_samples;
    run->totals.steps = f->steps - run->first_step;
}

/* The four functions that follow add the members of summary.json, in this order: settings of the
   run; its length and costs; the quality of the model; further figures. */
static void put_settings(json_t *o, const tutti_run *run)
{
    const tutti_train_config *c = run->config;
    const tutti_method *m = tutti_engine_method(run->engine);

    json_object_set_new(o, "method", json_string(m->ops->name));
    json_object_set_new(o, "method_spec", json_string(c->method));
    json_object_set_new(o, "codec", json_string(tutti_exchange_codec(m) != NULL ? tutti_exchange_codec(m) : "fp32"));
    json_object_set_new(o, "transport", json_string(tutti_world_transport(run->world)));
    json_object_set_new(o, "workers", json_integer(run->workers));
    json_object_set_new(o, "members", members_of(run));
    json_object_set_new(o, "servers", json_integer(m->servers));
    json_object_set_new(o, "model", json_string(c->model));
    json_object_set_new(o, "data", json_string(c->data));
    json_object_set_new(o, "params", json_integer((json_int_t)run->parameters));
    json_object_set_new(o, "optimizer", json_string(c->optimizer));
    json_object_set_new(o, "lr_schedule", json_string(c->lr_schedule));
    json_object_set_new(o, "collective", json_string(c->collective));
    json_object_set_new(o, "batch", json_integer(c->batch));
    json_object_set_new(o, "batch_share", json_string(c->batch_share));
    json_object_set_new(o, "partition", json_string(c->partition));
    json_object_set_new(o, "stream", c->stream[0] != 0 ? json_string(c->stream) : json_null());
    json_object_set_new(o, "accumulate", json_integer(c->accumulate));
    json_object_set_new(o, "seed", json_integer(c->seed));
    json_object_set_new(o, "threads", json_integer(c->threads));
}

static void put_course(json_t *o, const tutti_run *run, const tutti_figures *f, const totals *t)
{
    const double *mine = t->mine;

    json_object_set_new(o, "epochs",
                        json_real(run->variable_batch
                                      ? tutti_train_epochs(run)
                                      : (double)f->gradients / (double)run->step_gradients / run->steps_per_epoch));
    json_object_set_new(o, "steps", json_integer((json_int_t)f->steps));
    json_object_set_new(o, "resumed_at_step",
                        run->first_step > 0 ? json_integer((json_int_t)run->first_step) : json_null());
    json_object_set_new(o, "steps_skipped", json_integer((json_int_t)t->skipped));
    json_object_set_new(o, "precision", json_string(tutti_train_precision_name(run->config)));
    json_object_set_new(o, "precision_native", json_boolean(!tutti_nn_widens(run->nn)));
    json_object_set_new(o, "loss_scale", real_or_null(t->scale > 0, t->scale));
    json_object_set_new(o, "samples", json_integer((json_int_t)f->samples));
    json_object_set_new(o, "wall_seconds", json_real(mine[WALL]));
    json_object_set_new(o, "compute_seconds", json_real(mine[COMPUTE]));
    json_object_set_new(o, "comm_seconds", json_real(mine[COMM]));
    json_object_set_new(o, "exposed_comm_seconds", json_real(mine[EXPOSED]));
    json_object_set_new(o, "other_seconds", json_real(mine[OTHER]));
    json_object_set_new(o, "data_seconds", json_real(mine[DATA]));
    json_object_set_new(o, "bytes_sent_total", json_integer((json_int_t)t->bytes));
    json_object_set_new(o, "bytes_sent_per_worker", json_integer((json_int_t)t->most_bytes));
    json_object_set_new(o, "messages_sent_per_worker", json_integer((json_int_t)t->most_messages));
    json_object_set_new(o, "samples_per_second",
                        json_real(mine[WALL] > 0 ? (double)(f->samples - run->first_samples) / mine[WALL] : 0));
}

static void put_quality(json_t *o, const tutti_run *run, const totals *t)
{
    const tutti_train_config *c = run->config;

    json_object_set_new(o, "dynamic_regret", real_or_null(run->optimum != NULL, t->regret));
    json_object_set_new(o, "final_train_loss", real_or_null(c->final_eval, run->train_loss));
    json_object_set_new(o, "final_train_samples",
                        c->final_eval ? json_integer((json_int_t)run->train_samples) : json_null());
    json_object_set_new(o, "final_test_loss", real_or_null(c->final_eval, run->test_loss));
    json_object_set_new(o, "worst_test_loss", real_or_null(c->final_eval, run->worst.loss));
    json_object_set_new(o, "worst_test_accuracy",
                        real_or_null(c->final_eval && run->worst.accuracy >= 0, run->worst.accuracy));
    json_object_set_new(o, "worst_worker", run->worst.worker >= 0 ? json_integer(run->worst.worker) : json_null());
    json_object_set_new(o, "consensus_distance", real_or_null(c->final_eval, run->consensus_distance));
    json_object_set_new(o, "final_test_accuracy",
                        real_or_null(c->final_eval && run->test_accuracy >= 0, run->test_accuracy));
    json_object_set_new(o, "final_test_auc", real_or_null(c->final_eval && run->test_auc >= 0, run->test_auc));
}

static void put_rest(json_t *o, const tutti_run *run, const results *r, const totals *t)
{
    const tutti_train_config *c = run->config;
    tutti_runtime *const host = run->io->host != NULL ? run->io->host : run->rt;

    json_object_set_new(o, "peak_rss_bytes_per_worker", json_integer((json_int_t)t->most_memory));
    json_object_set_new(o, "memory", memory_of_most(run));
    json_object_set_new(o, "staleness", tutti_train_delays_of_all(run, &r->stale));
    json_object_set_new(o, "histogram_edges", tutti_train_delays_edges(run, &r->stale));
    json_object_set_new(o, "staleness_max", json_integer((json_int_t)t->stale_most));
    json_object_set_new(o, "staleness_mean", json_real(t->stale_of > 0 ? t->stale_sum / t->stale_of : 0));
    json_object_set_new(o, "restarts", json_integer((json_int_t)t->restarts));
    json_object_set_new(o, "method_figures", tutti_train_method_figures(run, true));
    json_object_set_new(o, "target", c->target[0] != 0 ? json_string(c->target) : json_null());
    json_object_set_new(o, "time_to_target_seconds", real_or_null(run->time_to_target >= 0, run->time_to_target));
    json_object_set_new(o, "simulated", json_boolean(tutti_world_simulated(tutti_world_transport(run->world))));
    json_object_set_new(o, "host_seconds", json_real((double)(tutti_now_ns(host) - run->io->started_ns) * 1e-9));
    json_object_set_new(o, "by_worker", by_worker(run, run->figures_of, &r->stale));
    json_object_set_new(o, "by_server", by_server(run, run->figures_of));
    json_object_set_new(o, "payload_by_tensor", payload_by_tensor(run));
    json_object_set_new(o, "codec_report", codec_report(run));
    json_object_set(o, "events", r->events);
    json_object_set_new(o, "version", json_string(tutti_version()));
}

/* Index 0 writes the files from the figures of all ranks. */
static tutti_status write_results(tutti_run *run, const results *r, tutti_error *err)
{
    const char *const folder = run->config->out;
    totals t;
    json_t *o;
    char *text;
    tutti_status status;

    if (run->config->trace)
        TUTTI_TRY(tutti_train_write_file(run->rt, folder, "trace.json", r->trace.text, r->trace.length, err));
    if (r->trace.lost > 0)
        tutti_train_say(run, 0, "note: trace.json lacks %llu events that its buffer could not hold; "
                        "--trace-steps A:B traces fewer steps", (unsigned long long)r->trace.lost);
    add_up(run, &t);
    keep_totals(run, &r->f, &t);
    if (!run->by_unit)
        TUTTI_TRY(tutti_train_write_model(run, err));

    o = json_object();
    put_settings(o, run);
    put_course(o, run, &r->f, &t);
    put_quality(o, run, &t);
    put_rest(o, run, r, &t);
    text = json_dumps(o, JSON_INDENT(2) | JSON_REAL_PRECISION(12));
    json_decref(o);
    if (text == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "writing summary.json");
    status = tutti_train_write_file(run->rt, folder, "summary.json", text, strlen(text), err);
    free(text);
    return status;
}

/* Index 0 may be lost before it has written all files: then the next index 0 writes all of them
   again, in place of those that are there. */
tutti_status tutti_train_results(tutti_run *run, tutti_error *err)
{
    results r = { 0 };
    tutti_status status, wrote = TUTTI_OK;
    int writer;

    do {
        status = tutti_train_meet(run, gather_results, &r, err);
        writer = tutti_train_rank(run, 0);
        if (status == TUTTI_OK && run->by_unit)
            wrote = tutti_train_write_model(run, err);
        if (status == TUTTI_OK && wrote == TUTTI_OK && run->all.index == 0)
            wrote = write_results(run, &r, err);
        if (status == TUTTI_OK)
            status = tutti_train_written(run, wrote, err);
    } while (status == TUTTI_OK && tutti_train_rank(run, 0) != writer);
    json_decref(r.events);
    tutti_free(r.trace.text);
    tutti_train_delays_drop(&r.stale);
    return status;
}
