/* shares.c: --batch-share: how the samples of a pass are divided among the workers.

     even          all workers compute the same number of samples
     w0:w1:...     in these proportions
     auto          by measured speed, so that all finish together: a worker that needs t seconds a
                   sample gets a share in proportion to 1/t
     data          in proportion to the sizes of the workers' partitions, so that each sample is
                   used equally often

   With logical shares (--elastic-shares) these are dealt, one or more to each worker, and no bit
   depends on it. auto is then for workers that come and go: shares are dealt as an epoch of
   the members begins, and where it is worthwhile they ask for the next one.

   Shares do not change which samples a step has, only which worker computes them. Gradients are
   weighted by their number of samples, so the mean is exact. Under auto, times per sample are
   smoothed, and shares change only if the predicted time of a pass falls by more than 3 %. auto
   depends on measured times, so two runs may choose different shares and then differ in rounding.
   A checkpoint saves the shares. */
#include <errno.h>
#include <string.h>

#include "train_internal.h"
#include "base/options.h"

/* auto: steps before the first measurement; later ones come every TUTTI_SHARES_SETTLE steps */
enum { FIRST_MEASUREMENT = 3 };

/* Parses one weight of w0:w1:..., the first `length` characters of text. false: malformed. */
static bool read_weight(const char *text, size_t length, double *weight)
{
    static const tutti_option option = { "weight", TUTTI_REAL,    0,    0,   0, 1e9,
                                         NULL,     "of a worker", NULL, NULL };
    char one[64];

    if (length >= sizeof one)
        return false;
    memcpy(one, text, length);
    one[length] = 0;
    return tutti_option_set(&option, "batch-share", one, weight, NULL) == TUTTI_OK;
}

tutti_status tutti_train_parse_shares(const char *text, int64_t workers, double *weight,
                                      bool *automatic, tutti_error *err)
{
    double sum = 0;
    int64_t n = 0;

    *automatic = strcmp(text, "auto") == 0;
    if (*automatic || strcmp(text, "data") == 0 || strcmp(text, "even") == 0) {
        for (int64_t r = 0; r < workers && weight != NULL; r++)
            weight[r] = 1;
        return TUTTI_OK;
    }
    for (const char *at = text;;) {
        const size_t length = strcspn(at, ":");
        double w = 0;
        if (!read_weight(at, length, &w))
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "batch-share is '%.80s'; write even, auto, data, or a weight for "
                              "each worker: w0:w1:...",
                              text);
        if (n < workers && weight != NULL)
            weight[n] = w;
        n++;
        sum += w;
        if (at[length] == 0)
            break;
        at += length + 1;
    }
    if (n != workers || !(sum > 0))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "batch-share is '%.80s': it has %lld weights (sum %g) for %lld workers; "
                          "give one weight for each worker, at least one above 0",
                          text, (long long)n, sum, (long long)workers);
    return TUTTI_OK;
}

/* What is divided: logical shares, or the samples of a pass; and the least that a worker gets. */
static int64_t total_of(const tutti_run *run, int64_t *least)
{
    const tutti_train_config *c = run->config;
    const bool logical = c->elastic_shares > 0;

    *least = logical || run->automatic_shares || strcmp(c->batch_share, "data") == 0 ? 1 : 0;
    return logical ? c->elastic_shares : c->batch * run->workers;
}

/* Sets run->sample_seconds to what the members have measured in earlier epochs, and weight to their
   speeds. Those that have measured nothing count as the others' mean. Collective. */
static tutti_status gather_speeds(tutti_run *run, double *weight, tutti_error *err)
{
    const int n = run->workers;
    double sum = 0, known = 0;

    TUTTI_TRY(tutti_allgather(&run->all, tutti_host(&run->own_sample_seconds, 1, TUTTI_F64),
                              tutti_host(run->sample_seconds, (size_t)n, TUTTI_F64), err));
    for (int r = 0; r < n; r++)
        if (run->sample_seconds[r] >= 0) {
            sum += run->sample_seconds[r];
            known++;
        }
    for (int r = 0; r < n && sum > 0; r++)
        weight[r] = 1 / (run->sample_seconds[r] > 0 ? run->sample_seconds[r] : sum / known);
    return TUTTI_OK;
}

tutti_status tutti_train_shares_open(tutti_run *run, tutti_error *err)
{
    const tutti_train_config *c = run->config;
    const bool by_data = strcmp(c->batch_share, "data") == 0;
    const int n = run->workers;
    int64_t total, least;
    double *weight;
    tutti_status status;

    if (strcmp(c->batch_share, "even") == 0 || n == 1)
        return TUTTI_OK;
    weight = tutti_alloc((size_t)n, sizeof *weight);
    run->batch_of = tutti_alloc((size_t)n, sizeof *run->batch_of);
    run->sample_seconds = tutti_alloc((size_t)n, sizeof *run->sample_seconds);
    for (int r = 0; run->sample_seconds != NULL && r < n; r++)
        run->sample_seconds[r] = -1;
    if (weight == NULL || run->batch_of == NULL || run->sample_seconds == NULL)
        status =
            tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for the shares of %d workers", n);
    else
        status = tutti_train_parse_shares(c->batch_share, n, weight, &run->automatic_shares, err);
    if (status == TUTTI_OK && by_data && run->parts.first != NULL)
        for (int r = 0; r < n; r++)
            weight[r] = (double)(run->parts.first[r + 1] - run->parts.first[r]);
    if (status == TUTTI_OK && run->automatic_shares && run->epoch.number > 0)
        status = gather_speeds(run, weight, err);
    total = total_of(run, &least);
    if (status == TUTTI_OK)
        tutti_share_apportion(total, n, weight, least, run->batch_of);
    tutti_free(weight);
    return status;
}

bool tutti_train_speeds(const double *sample_seconds, int n, double *speed)
{
    for (int r = 0; r < n; r++) {
        if (sample_seconds[r] < 0)
            return false;
        /* the clock's resolution */
        speed[r] = 1 / (sample_seconds[r] > 1e-9 ? sample_seconds[r] : 1e-9);
    }
    return true;
}

/* Returns the time that the slowest worker needs for a pass. */
static double pass_seconds(const int64_t *batch_of, const double *seconds, int n)
{
    double most = 0;
    for (int r = 0; r < n; r++)
        most = (double)batch_of[r] * seconds[r] > most ? (double)batch_of[r] * seconds[r] : most;
    return most;
}

/* Gathers {compute seconds, samples} of every worker into run->figures_of. */
static tutti_status gather_times(tutti_run *run, void *mine, tutti_error *err)
{
    return tutti_allgather(&run->all, tutti_host(mine, 2, TUTTI_F64),
                           tutti_host(run->figures_of, 2 * (size_t)run->all.size, TUTTI_F64), err);
}

/* Updates run->sample_seconds with the times in run->figures_of. */
static void smooth_times(tutti_run *run, int n)
{
    for (int r = 0; r < n; r++) {
        const double seconds = run->figures_of[2 * r], samples = run->figures_of[2 * r + 1],
                     previous = run->sample_seconds[r];
        if (samples > 0)
            run->sample_seconds[r] =
                previous < 0 ? seconds / samples : 0.5 * previous + 0.5 * (seconds / samples);
    }
}

/* Logical shares: asks for an epoch with another division, by which a pass takes `part` of its
   time, if that is much less, or for the second time a tenth less: a change costs some steps'
   time. */
static void ask_for_division(tutti_run *run, double part, uint64_t done)
{
    const bool asks = part < 0.75 || (part < 0.9 && run->shares_were_slow);

    run->shares_were_slow = part < 0.9;
    if (asks && run->epoch.divides != NULL && done + TUTTI_SHARES_SETTLE < run->steps)
        run->epoch.divides(run->epoch.user);
}

/* Changes the engine's shares, or asks for an epoch with others, if that is worthwhile after `done`
   steps. All workers compute the same shares. */
static tutti_status change_shares(tutti_run *run, int n, uint64_t done, tutti_error *err)
{
    /* allocated here because this runs rarely, between steps */
    int64_t *new_shares = tutti_alloc((size_t)n, sizeof *new_shares);
    double *speed = tutti_alloc((size_t)n, sizeof *speed);
    tutti_status status = TUTTI_OK;

    if (new_shares == NULL || speed == NULL)
        status =
            tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for the shares of %d workers", n);
    else if (tutti_train_speeds(run->sample_seconds, n, speed)) {
        int64_t least, total = total_of(run, &least);
        double part;
        tutti_share_apportion(total, n, speed, least, new_shares);
        part = pass_seconds(new_shares, run->sample_seconds, n) /
               pass_seconds(run->share.batch_of, run->sample_seconds, n);
        if (run->config->elastic_shares > 0)
            ask_for_division(run, part, done);
        else if (part < 0.97)
            status = tutti_engine_reshare(run->engine, new_shares, err);
    }
    tutti_free(new_shares);
    tutti_free(speed);
    return status;
}

/* Called after `done` steps. With auto: gathers all workers' times since the last call, and changes
   the shares if that is worthwhile. Collective; every worker computes the same shares from the same
   data. After a loss the shares stay as they are, so the lost worker's samples are not computed. */
tutti_status tutti_train_shares_adapt(tutti_run *run, uint64_t done, tutti_error *err)
{
    const int n = tutti_train_working(run);
    const uint64_t steps_here = done - run->first_step; /* steps of this process */
    tutti_figures f;
    tutti_doing previous;
    double mine[2];
    tutti_status status;

    if (!run->automatic_shares || n == 1 ||
        (steps_here != FIRST_MEASUREMENT && steps_here % TUTTI_SHARES_SETTLE != 0) ||
        done >= run->steps || n < run->workers)
        return TUTTI_OK;
    previous = tutti_engine_doing(run->engine, TUTTI_DOING_REPORT);
    tutti_train_figures(run, &f);
    mine[0] = (double)(f.compute_ns - run->shares_compute_ns) * 1e-9;
    mine[1] = run->shares_samples;
    run->shares_compute_ns = f.compute_ns;
    run->shares_samples = 0;
    status = tutti_train_meet(run, gather_times, mine, err);
    if (status == TUTTI_OK && tutti_train_working(run) == n) {
        smooth_times(run, n);
        run->own_sample_seconds = run->sample_seconds[run->rank];
        status = change_shares(run, n, done, err);
    }
    tutti_engine_doing(run->engine, previous);
    return status;
}
