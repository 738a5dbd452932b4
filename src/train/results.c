/* results.c: writes the files of a run's end: summary.json, model.safetensors (model.c) and
   trace.json (trace.c). Each file appears as a whole or not at all. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "delays.h"
#include "gather.h"
#include "say.h"
#include "sums.h"
#include "trace.h"
#include "trace_part.h"
#include "train_internal.h"
#include "runtime/files.h"
#include "base/share.h"
#include "collective/world.h"

/* ---- summary ---- */

static json_t *members_of(const tutti_run *run)
{
    json_t *array = json_array();

    for (int i = 0; i < tutti_train_working(run); i++)
        json_array_append_new(array, json_integer(tutti_train_rank(run, i)));
    return array;
}

/* The figures that each rank sends at the end, of this process: those of record/files.h, and the
   trainer's own. */
enum {
    RATE = TUTTI_RECORD_FIGURES,
    ARRIVED,
    TAKEN,
    DROPPED,
    WAITED,
    REGRET,
    FIGURES
};
_Static_assert((int)FIGURES <= (int)TUTTI_TRAIN_FIGURES,
               "run->figures_of has space for a row of them");

/* Returns a row for each worker that is left, and prints the rows if there are at most 16. all: the
   figures, a row for each index. */
static json_t *by_worker(const tutti_run *run, const double *all, const tutti_train_delays *stale)
{
    const int working = tutti_train_working(run);
    json_t *array = json_array();

    if (working > 1 && working <= 16)
        tutti_train_say(run, 0,
                        "  worker    steps   computing     waiting       other        sent");
    for (int i = 0; i < working; i++) {
        const double *w = all + FIGURES * i;
        const int r = tutti_train_rank(run, i);
        json_t *row = tutti_record_worker(r, w);
        json_array_append_new(array, row);
        json_object_set_new(row, "batch", json_integer(tutti_share_batch(&run->share, r)));
        json_object_set_new(row, "memory", tutti_record_memory(w));
        json_object_set_new(row, "steps_skipped",
                            json_integer((json_int_t)w[TUTTI_RECORD_SKIPPED]));
        json_object_set_new(
            row, "loss_scale",
            tutti_record_number_if(w[TUTTI_RECORD_SCALE] > 0, w[TUTTI_RECORD_SCALE]));
        json_object_set_new(row, "staleness", tutti_train_delays_of(stale, i));
        json_object_set_new(row, "passes", json_integer(tutti_share_passes(&run->share, r)));
        tutti_train_partition_describe(run, r, row);
        tutti_train_stream_describe(run,
                                    &(tutti_arrivals){ .rate = w[RATE],
                                                       .arrived = (uint64_t)w[ARRIVED],
                                                       .taken = (uint64_t)w[TAKEN],
                                                       .dropped = (uint64_t)w[DROPPED],
                                                       .waited_ns = (int64_t)w[WAITED] },
                                    row);
        if (working > 1 && working <= 16)
            tutti_train_say(run, 0, "  %6d %8.0f  %8.2f s  %8.2f s  %8.2f s  %7.1f MB", r,
                            w[TUTTI_RECORD_STEPS], w[TUTTI_RECORD_COMPUTE], w[TUTTI_RECORD_EXPOSED],
                            w[TUTTI_RECORD_OTHER], w[TUTTI_RECORD_BYTES] * 1e-6);
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
        json_array_append_new(array, tutti_record_server(r - run->workers, r, w));
    }
    return array;
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

    tutti_train_figures(run, f);
    tutti_record_take(f, mine);
    mine[RATE] = run->arrivals.rate;
    mine[ARRIVED] = (double)run->arrivals.arrived;
    mine[TAKEN] = (double)run->arrivals.taken;
    mine[DROPPED] = (double)run->arrivals.dropped;
    mine[WAITED] = (double)run->arrivals.waited_ns;
    mine[REGRET] = tutti_train_sums_regret_of(run);
    TUTTI_TRY(tutti_train_memory(run, held, err));
    for (int k = 0; k < TUTTI_MEMORY_KINDS; k++)
        mine[TUTTI_RECORD_HELD + k] = (double)held[k];
    TUTTI_TRY(tutti_train_gather(run, mine, FIGURES, err));
    TUTTI_TRY(tutti_train_delays_gather(run, f->staleness, &r->stale, err));
    TUTTI_TRY(tutti_train_events_gather(run, &r->events, err));
    return tutti_train_trace_gather(run, &r->trace, err);
}

/* Sums over the workers what only the trainer has of them. */
static double regret_of(const tutti_run *run)
{
    double sum = 0;

    for (int i = 0; i < tutti_train_working(run); i++)
        sum += run->figures_of[FIGURES * i + REGRET];
    return sum;
}

static void keep_totals(tutti_run *run, const tutti_figures *f, const tutti_record_totals *t)
{
    run->totals.wall = t->mine[TUTTI_RECORD_WALL];
    run->totals.compute = t->mine[TUTTI_RECORD_COMPUTE];
    run->totals.exposed = t->mine[TUTTI_RECORD_EXPOSED];
    run->totals.other = t->mine[TUTTI_RECORD_OTHER];
    run->totals.bytes = t->bytes;
    run->totals.memory = t->most_rss;
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
    json_object_set_new(
        o, "codec",
        json_string(tutti_exchange_codec(m) != NULL ? tutti_exchange_codec(m) : "fp32"));
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
    json_object_set_new(o, "elastic_shares", json_integer(c->elastic_shares));
    json_object_set_new(o, "partition", json_string(c->partition));
    json_object_set_new(o, "stream", c->stream[0] != 0 ? json_string(c->stream) : json_null());
    json_object_set_new(o, "accumulate", json_integer(c->accumulate));
    json_object_set_new(o, "seed", json_integer(c->seed));
    json_object_set_new(o, "threads", json_integer(c->threads));
}

static void put_course(json_t *o, const tutti_run *run, const tutti_figures *f,
                       const tutti_record_totals *t)
{
    const double wall = t->mine[TUTTI_RECORD_WALL];

    json_object_set_new(
        o, "epochs",
        json_real(run->variable_batch
                      ? tutti_train_epochs(run)
                      : (double)f->gradients / (double)run->step_gradients / run->steps_per_epoch));
    json_object_set_new(o, "steps", json_integer((json_int_t)f->steps));
    json_object_set_new(o, "resumed_at_step",
                        run->first_step > 0 ? json_integer((json_int_t)run->first_step)
                                            : json_null());
    json_object_set_new(o, "steps_skipped", json_integer((json_int_t)t->skipped));
    json_object_set_new(o, "precision", json_string(tutti_train_precision_name(run->config)));
    json_object_set_new(o, "precision_native",
                        json_boolean(run->nn == NULL || !tutti_nn_widens(run->nn)));
    json_object_set_new(o, "loss_scale", tutti_record_number_if(t->scale > 0, t->scale));
    json_object_set_new(o, "samples", json_integer((json_int_t)f->samples));
    tutti_record_put_times(o, t);
    json_object_set_new(o, "samples_per_second",
                        json_real(wall > 0 ? (double)(f->samples - run->first_samples) / wall : 0));
}

static void put_quality(json_t *o, const tutti_run *run)
{
    const tutti_train_config *c = run->config;

    json_object_set_new(o, "dynamic_regret",
                        tutti_record_number_if(run->optimum != NULL, regret_of(run)));
    json_object_set_new(o, "final_train_loss",
                        tutti_record_number_if(c->final_eval, run->train_loss));
    json_object_set_new(o, "final_train_samples",
                        c->final_eval ? json_integer((json_int_t)run->train_samples) : json_null());
    json_object_set_new(o, "final_test_loss",
                        tutti_record_number_if(c->final_eval, run->test_loss));
    json_object_set_new(o, "worst_test_loss",
                        tutti_record_number_if(c->final_eval, run->worst.loss));
    json_object_set_new(
        o, "worst_test_accuracy",
        tutti_record_number_if(c->final_eval && run->worst.accuracy >= 0, run->worst.accuracy));
    json_object_set_new(o, "worst_worker",
                        run->worst.worker >= 0 ? json_integer(run->worst.worker) : json_null());
    json_object_set_new(o, "consensus_distance",
                        tutti_record_number_if(c->final_eval, run->consensus_distance));
    json_object_set_new(
        o, "final_test_accuracy",
        tutti_record_number_if(c->final_eval && run->test_accuracy >= 0, run->test_accuracy));
    json_object_set_new(o, "final_test_auc",
                        tutti_record_number_if(c->final_eval && run->test_auc >= 0, run->test_auc));
}

/* Figures of this rank's asynchronous checkpoints; null without checkpoint-async. */
static json_t *saves_of(const tutti_run *run)
{
    json_t *o;
    tutti_saves s;

    if (!run->config->checkpoint_async)
        return json_null();
    o = json_object();
    tutti_engine_saves(run->engine, &s);
    json_object_set_new(o, "begun", json_integer((json_int_t)s.begun));
    json_object_set_new(o, "written", json_integer((json_int_t)s.written));
    json_object_set_new(o, "waited_for", json_integer((json_int_t)s.waited));
    json_object_set_new(o, "blocked", json_integer((json_int_t)s.blocked));
    json_object_set_new(o, "copy_bytes", json_integer((json_int_t)s.bytes));
    json_object_set_new(o, "copy_seconds", json_real((double)s.copy_ns * 1e-9));
    json_object_set_new(o, "wait_seconds", json_real((double)s.wait_ns * 1e-9));
    json_object_set_new(o, "write_seconds", json_real((double)s.write_ns * 1e-9));
    return o;
}

static void put_rest(json_t *o, const tutti_run *run, const results *r,
                     const tutti_record_totals *t)
{
    const tutti_train_config *c = run->config;
    tutti_runtime *const host = run->io->host != NULL ? run->io->host : run->rt;

    json_object_set_new(o, "peak_rss_bytes_per_worker", json_integer((json_int_t)t->most_rss));
    json_object_set_new(o, "memory", tutti_record_memory(t->most_held));
    json_object_set_new(o, "staleness", tutti_train_delays_of_all(run, &r->stale));
    json_object_set_new(o, "histogram_edges", tutti_train_delays_edges(run, &r->stale));
    json_object_set_new(o, "staleness_max", json_integer((json_int_t)t->stale_most));
    json_object_set_new(o, "staleness_mean",
                        json_real(t->stale_of > 0 ? t->stale_sum / t->stale_of : 0));
    json_object_set_new(o, "restarts", json_integer((json_int_t)t->restarts));
    json_object_set_new(o, "method_figures",
                        tutti_record_method_figures(run->engine, run->workers, true));
    json_object_set_new(o, "async_checkpoints", saves_of(run));
    json_object_set_new(o, "target", c->target[0] != 0 ? json_string(c->target) : json_null());
    json_object_set_new(o, "time_to_target_seconds",
                        tutti_record_number_if(run->time_to_target >= 0, run->time_to_target));
    json_object_set_new(o, "simulated",
                        json_boolean(tutti_world_simulated(tutti_world_transport(run->world))));
    json_object_set_new(o, "host_seconds",
                        json_real((double)(tutti_now_ns(host) - run->io->started_ns) * 1e-9));
    json_object_set_new(o, "by_worker", by_worker(run, run->figures_of, &r->stale));
    json_object_set_new(o, "by_server", by_server(run, run->figures_of));
    json_object_set_new(o, "payload_by_tensor", tutti_record_payload(run->engine));
    json_object_set_new(o, "codec_report", tutti_record_codecs(run->engine));
    json_object_set(o, "events", r->events);
    json_object_set_new(o, "version", json_string(tutti_version()));
}

/* Index 0 writes the files from the figures of all ranks. */
static tutti_status write_results(tutti_run *run, const results *r, tutti_error *err)
{
    const char *const folder = run->config->out;
    tutti_record_totals t;
    json_t *o;

    if (run->config->trace && run->part == NULL)
        TUTTI_TRY(
            tutti_record_write(run->rt, folder, "trace.json", r->trace.text, r->trace.length, err));
    if (r->trace.lost > 0)
        tutti_train_say(run, 0,
                        "note: trace.json lacks %llu events that its buffer could not hold; "
                        "--trace-steps A:B traces fewer steps",
                        (unsigned long long)r->trace.lost);
    tutti_record_add_up(run->figures_of, FIGURES, tutti_train_working(run), run->all.size, &t);
    t.bytes = tutti_train_told_bytes(run, t.bytes);
    keep_totals(run, &r->f, &t);
    if (!run->by_unit)
        TUTTI_TRY(tutti_train_write_model(run, err));

    o = json_object();
    put_settings(o, run);
    put_course(o, run, &r->f, &t);
    put_quality(o, run);
    put_rest(o, run, r, &t);
    TUTTI_TRY(tutti_record_write_object(run->rt, folder, "summary.json", o, err));
    tutti_train_part_merge(run);
    return TUTTI_OK;
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
