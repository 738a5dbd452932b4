/* figures.c: the figures of a rank at the end of a run, as an array of numbers that can be sent or
   written, and their totals over ranks. */
#include <math.h>
#include <string.h>
#include <sys/resource.h>

#include "record/files.h"

const char *const tutti_record_names[TUTTI_RECORD_FIGURES] = {
    "wall_seconds",        "compute_seconds", "comm_seconds",  "exposed_comm_seconds",
    "other_seconds",       "data_seconds",    "bytes_sent",    "messages_sent",
    "peak_rss_bytes",      "steps",           "staleness_max", "staleness_mean",
    "staleness_gradients", "steps_skipped",   "loss_scale",    "restarts",
    "values_bytes",        "gradients_bytes", "states_bytes",  "activations_bytes",
    "buffers_bytes"
};

void tutti_record_take(const tutti_figures *f, double *w)
{
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    w[TUTTI_RECORD_WALL] = (double)f->wall_ns * 1e-9;
    w[TUTTI_RECORD_COMPUTE] = (double)f->compute_ns * 1e-9;
    w[TUTTI_RECORD_COMM] = (double)f->comm_ns * 1e-9;
    w[TUTTI_RECORD_EXPOSED] = (double)f->exposed_ns * 1e-9;
    w[TUTTI_RECORD_OTHER] = (double)f->other_ns * 1e-9;
    w[TUTTI_RECORD_DATA] = (double)f->data_ns * 1e-9;
    w[TUTTI_RECORD_BYTES] = (double)f->bytes_sent;
    w[TUTTI_RECORD_MESSAGES] = (double)f->messages_sent;
    w[TUTTI_RECORD_RSS] = (double)usage.ru_maxrss * 1024;
    w[TUTTI_RECORD_STEPS] = (double)f->own_steps;
    w[TUTTI_RECORD_STALE_MOST] = (double)f->staleness_max;
    w[TUTTI_RECORD_STALE_MEAN] = f->staleness_mean;
    w[TUTTI_RECORD_STALE_OF] = (double)f->staleness_gradients;
    w[TUTTI_RECORD_SKIPPED] = (double)f->skipped;
    w[TUTTI_RECORD_SCALE] = f->loss_scale;
    w[TUTTI_RECORD_RESTARTS] = (double)f->restarts;
}

tutti_status tutti_record_take_memory(const tutti_engine *engine, double *w, tutti_error *err)
{
    const size_t n = tutti_engine_memory(engine, NULL, 0);
    tutti_memory_record *records = tutti_alloc(n + 1, sizeof *records);

    for (int k = 0; k < TUTTI_MEMORY_KINDS; k++)
        w[TUTTI_RECORD_HELD + k] = 0;
    if (records == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "counting the memory of %zu states", n);
    tutti_engine_memory(engine, records, n);
    for (size_t i = 0; i < n; i++)
        w[TUTTI_RECORD_HELD + records[i].kind] += (double)records[i].bytes;
    tutti_free(records);
    return TUTTI_OK;
}

static double held(const double *w)
{
    double total = 0;

    for (int k = 0; k < TUTTI_MEMORY_KINDS; k++)
        total += w[TUTTI_RECORD_HELD + k];
    return total;
}

void tutti_record_add_up(const double *rows, size_t stride, int workers, int ranks,
                         tutti_record_totals *t)
{
    const double *busiest = rows;
    double wall = 0;

    *t = (tutti_record_totals){ .scale = rows[TUTTI_RECORD_SCALE], .most_held = rows };
    for (int i = 0; i < ranks; i++)
        t->bytes += rows[stride * (size_t)i + TUTTI_RECORD_BYTES];
    for (int i = 0; i < workers; i++) {
        const double *w = rows + stride * (size_t)i;
        busiest = w[TUTTI_RECORD_WALL] - w[TUTTI_RECORD_EXPOSED] >
                          busiest[TUTTI_RECORD_WALL] - busiest[TUTTI_RECORD_EXPOSED]
                      ? w
                      : busiest;
        wall = fmax(wall, w[TUTTI_RECORD_WALL]);
        t->skipped = fmax(t->skipped, w[TUTTI_RECORD_SKIPPED]);
        t->scale = fmin(t->scale, w[TUTTI_RECORD_SCALE]);
        t->most_bytes = fmax(t->most_bytes, w[TUTTI_RECORD_BYTES]);
        t->most_messages = fmax(t->most_messages, w[TUTTI_RECORD_MESSAGES]);
        t->most_rss = fmax(t->most_rss, w[TUTTI_RECORD_RSS]);
        t->restarts += w[TUTTI_RECORD_RESTARTS];
        t->stale_sum += w[TUTTI_RECORD_STALE_OF] * w[TUTTI_RECORD_STALE_MEAN];
        t->stale_of += w[TUTTI_RECORD_STALE_OF];
        t->stale_most = fmax(t->stale_most, w[TUTTI_RECORD_STALE_MOST]);
        t->most_held = held(w) > held(t->most_held) ? w : t->most_held;
    }
    memcpy(t->mine, busiest, sizeof t->mine);
    t->mine[TUTTI_RECORD_EXPOSED] += wall - t->mine[TUTTI_RECORD_WALL];
    t->mine[TUTTI_RECORD_WALL] = wall;
}
