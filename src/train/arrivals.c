/* arrivals.c: --stream: samples arrive at each worker at a given rate, and a worker computes a pass
   once all samples of the pass have arrived. Which samples a pass has, and their weights, are the
   same as without a stream. So a stream changes no bit of `ddp`, only the time.

   --stream-buffer is how many samples may wait; samples that arrive while the buffer is full are
   dropped. A buffer of one batch is the truncation of ScaDLES (when a batch is taken, the rest is
   dropped), and a buffer without limit is its persistence. Dropped samples are only counted: the
   order of the samples that are trained on does not change, since samples arrive in random order.

   Times are those of tutti_now_ns: virtual in simulated runs. A run begins with an empty buffer,
   also when it resumes from a checkpoint. Samples arrive during exchanges and evaluations too. */
#include <stdlib.h>
#include <string.h>

#include "train_internal.h"
#include "base/numbers.h"
#include "base/share.h"

/* Parses --stream. *rate: set to the rate of that worker; NULL: only check. */
static tutti_status parse(const char *text, int64_t workers, int worker, double *rate,
                          tutti_error *err)
{
    int64_t n = 0;

    for (const char *at = text;; n++) {
        const char *end;
        double r;
        if (!tutti_number_begins(at, &r, &end) || !(r >= 1e-6 && r <= 1e9) || (*end != ':' && *end != 0))
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "stream is '%.80s'; write the samples a second of every worker, or "
                              "of each: r0:r1:..., from 1e-6 to 1e9",
                              text);
        if (rate != NULL && (n == worker || n == 0)) /* a single rate is for all workers */
            *rate = r;
        if (*end == 0)
            break;
        at = end + 1;
    }
    if (++n != 1 && n != workers)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "stream is '%.80s': %lld rates for %lld workers; give one, or one a worker", text,
            (long long)n, (long long)workers);
    return TUTTI_OK;
}

tutti_status tutti_train_check_stream(const tutti_train_config *c, tutti_error *err)
{
    if (c->stream[0] == 0 && c->stream_buffer > 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "stream-buffer is %lld, but without stream no samples come and wait; "
                          "give the rates, --stream R0:R1:...",
                          (long long)c->stream_buffer);
    return c->stream[0] != 0 ? parse(c->stream, c->n, 0, NULL, err) : TUTTI_OK;
}

tutti_status tutti_train_stream_open(tutti_run *run, tutti_error *err)
{
    const tutti_train_config *c = run->config;
    const int64_t all = c->batch * run->workers;
    double rate = 0;

    if (c->stream[0] == 0)
        return TUTTI_OK;
    for (int r = 0; r < run->workers && c->stream_buffer > 0; r++) {
        const int64_t batch = run->automatic_shares ? all : tutti_share_batch(&run->share, r);
        if (batch > c->stream_buffer)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "stream-buffer is %lld, but a pass of worker %d %s %lld samples, "
                              "which never wait at once; give at least as many, or 0 to keep all",
                              (long long)c->stream_buffer, r,
                              run->automatic_shares ? "may have" : "has", (long long)batch);
    }
    TUTTI_TRY(parse(c->stream, run->workers, run->rank, &rate, err));
    run->arrivals.rate = rate;
    return TUTTI_OK;
}

void tutti_train_stream_begin(tutti_run *run)
{
    tutti_arrivals_begin(&run->arrivals, run->arrivals.rate, (uint64_t)run->config->stream_buffer,
                         tutti_now_ns(run->rt));
}

void tutti_train_stream_take(tutti_run *run, int64_t samples)
{
    if (run->config->stream[0] != 0)
        tutti_arrivals_take(&run->arrivals, run->rt, (uint64_t)samples);
}

void tutti_train_stream_describe(const tutti_run *run, const tutti_arrivals *a, json_t *row)
{
    if (run->config->stream[0] == 0)
        return;
    json_object_set_new(row, "stream_rate", json_real(a->rate));
    json_object_set_new(row, "stream_arrived", json_integer((json_int_t)a->arrived));
    json_object_set_new(row, "stream_dropped", json_integer((json_int_t)a->dropped));
    json_object_set_new(row, "stream_waiting",
                        json_integer((json_int_t)(a->arrived - a->taken - a->dropped)));
    json_object_set_new(row, "stream_wait_seconds", json_real((double)a->waited_ns * 1e-9));
}
