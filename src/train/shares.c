/* shares.c: --batch-share: how many samples of a pass each worker takes.

     even          the same
     w0:w1:...     in these proportions
     auto          by measured speed, so that all finish together: a worker that needs t seconds a
                   sample gets a share in proportion to 1/t
     data          in proportion to the workers' parts of the data, so that with a partition every
                   sample counts equally

   The samples of a step stay the same, only the workers that compute them change; gradients are
   weighted by samples, so the mean is exact. Times are smoothed, and shares move only when the
   slowest worker would gain 3 %. `auto` follows the clock, so its bits are those of the shares it
   chose, which a checkpoint keeps. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "train_internal.h"

enum { FIRST_LOOK = 3 }; /* steps */

tutti_status tutti_train_parse_shares(const char *text, int64_t workers, double *weight, bool *automatic,
                                      tutti_error *err)
{
    double sum = 0;
    int64_t n = 0;

    *automatic = strcmp(text, "auto") == 0;
    if (*automatic || strcmp(text, "data") == 0 || strcmp(text, "even") == 0) {
        for (int64_t r = 0; r < workers && weight != NULL; r++)
            weight[r] = 1;
        return TUTTI_OK;
    }
    for (const char *at = text;; n++) {
        char *end;
        const double w = strtod(at, &end);
        if (end == at || !(w >= 0 && w <= 1e9) || (*end != ':' && *end != 0))
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "batch-share is '%.80s'; write even, auto, data, or a weight for each worker: w0:w1:...",
                              text);
        if (n < workers && weight != NULL)
            weight[n] = w;
        sum += w;
        if (*end == 0)
            break;
        at = end + 1;
    }
    if (++n != workers || !(sum > 0))
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "batch-share is '%.80s': %lld weights with a sum of %g for %lld workers; give each worker one, not all 0",
            text, (long long)n, sum, (long long)workers);
    return TUTTI_OK;
}

/* Sets run->batch_of unless shares are even. */
tutti_status tutti_train_shares_open(tutti_run *run, tutti_error *err)
{
    const tutti_train_config *c = run->config;
    const int n = run->workers;
    double *weight;
    tutti_status status;

    if (strcmp(c->batch_share, "even") == 0 || n == 1)
        return TUTTI_OK;
    weight = tutti_alloc((size_t)n, sizeof *weight);
    run->batch_of = tutti_alloc((size_t)n, sizeof *run->batch_of);
    run->sample_seconds = tutti_alloc((size_t)n, sizeof *run->sample_seconds);
    if (weight == NULL || run->batch_of == NULL || run->sample_seconds == NULL)
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for the shares of %d workers", n);
    else
        status = tutti_train_parse_shares(c->batch_share, n, weight, &run->automatic_shares, err);
    for (int r = 0; status == TUTTI_OK && run->parts.first != NULL && strcmp(c->batch_share, "data") == 0 && r < n; r++)
        weight[r] = (double)(run->parts.first[r + 1] - run->parts.first[r]);
    if (status == TUTTI_OK)
        tutti_share_apportion(c->batch * n, n, weight,
                              run->automatic_shares || strcmp(c->batch_share, "data") == 0 ? 1 : 0, run->batch_of);
    tutti_free(weight);
    return status;
}

/* The time that the slowest worker needs for a pass. */
static double pass_seconds(const int64_t *batch_of, const double *seconds, int n)
{
    double most = 0;
    for (int r = 0; r < n; r++)
        most = (double)batch_of[r] * seconds[r] > most ? (double)batch_of[r] * seconds[r] : most;
    return most;
}

static tutti_status gather_times(tutti_run *run, void *mine, tutti_error *err)
{
    return tutti_allgather(&run->all, tutti_host(mine, 2, TUTTI_F64),
                           tutti_host(run->figures_of, 2 * (size_t)run->all.size, TUTTI_F64), err);
}

/* After `done` steps: measures, and moves the shares when that pays. Collective; all compute the
   same from the same figures. Where the run continues after a loss the shares stay as they were
   then: no worker computes the lost worker's share. */
tutti_status tutti_train_shares_adapt(tutti_run *run, uint64_t done, tutti_error *err)
{
    const int n = tutti_train_working(run);
    const uint64_t here = done - run->first_step;
    tutti_figures f;
    tutti_doing was;
    double mine[2];
    int64_t *next;
    tutti_status status;

    if (!run->automatic_shares || (here != FIRST_LOOK && here % TUTTI_SHARES_SETTLE != 0) || done >= run->steps ||
        n < run->workers)
        return TUTTI_OK;
    was = tutti_engine_doing(run->engine, TUTTI_DOING_REPORT);
    tutti_engine_figures(run->engine, &f);
    mine[0] = (double)(f.compute_ns - run->shares_compute_ns) * 1e-9;
    mine[1] = run->shares_samples;
    run->shares_compute_ns = f.compute_ns;
    run->shares_samples = 0;
    status = tutti_train_meet(run, gather_times, mine, err);
    next = tutti_alloc((size_t)n, 2 * sizeof *next); /* rare: not within a step */
    if (status == TUTTI_OK && tutti_train_working(run) < n) {
        tutti_free(next);
        tutti_engine_doing(run->engine, was);
        return TUTTI_OK;
    }
    if (status == TUTTI_OK && next == NULL)
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for the shares of %d workers", n);
    if (status == TUTTI_OK) {
        double *speed = (double *)(void *)(next + n);
        for (int r = 0; r < n; r++) {
            const double t = run->figures_of[2 * r + 1] > 0 ? run->figures_of[2 * r] / run->figures_of[2 * r + 1]
                                                            : run->sample_seconds[r];
            run->sample_seconds[r] =
                run->sample_seconds[r] > 0 && here > FIRST_LOOK ? 0.5 * run->sample_seconds[r] + 0.5 * t : t;
            speed[r] = run->sample_seconds[r] > 0 ? 1 / run->sample_seconds[r] : 1;
        }
        tutti_share_apportion(run->config->batch * n, n, speed, 1, next);
        if (pass_seconds(next, run->sample_seconds, n) <
            0.97 * pass_seconds(run->share.batch_of, run->sample_seconds, n))
            status = tutti_engine_reshare(run->engine, next, err);
    }
    tutti_free(next);
    tutti_engine_doing(run->engine, was);
    return status;
}
