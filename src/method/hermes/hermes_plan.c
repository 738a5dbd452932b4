/* hermes_plan.c: computes the round sizes of hermes_plan.h. */
#include <math.h>
#include <stdlib.h>

#include "hermes_plan.h"

/* mini-batches that a worker may get: 2, 4, ..., 64 */
enum { SIZES = 6, MOST_BATCHES = 1 << 24 };

int64_t tutti_hermes_batches(int64_t batch, double samples)
{
    const double batches = floor(samples / (double)batch + 0.5);
    return batches < 1 ? 1 : batches > MOST_BATCHES ? MOST_BATCHES : (int64_t)batches;
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int tutti_hermes_sort(const double *seconds, int workers, int but, double *sorted)
{
    int n = 0;

    for (int r = 0; r < workers; r++)
        if (r != but && seconds[r] > 0)
            sorted[n++] = seconds[r];
    qsort(sorted, (size_t)n, sizeof *sorted, ascending);
    return n;
}

double tutti_hermes_quantile(const double *sorted, int n, double q)
{
    const double at = q * (n - 1);
    const int below = (int)at;
    return below + 1 < n ? sorted[below] + (at - below) * (sorted[below + 1] - sorted[below])
                         : sorted[below];
}

bool tutti_hermes_outside(const double *seconds, int workers, int i, double *sorted)
{
    const int n = tutti_hermes_sort(seconds, workers, i, sorted);
    const double q1 = tutti_hermes_quantile(sorted, n, 0.25),
                 q3 = tutti_hermes_quantile(sorted, n, 0.75), t = seconds[i];
    return t >= q3 + 1.5 * (q3 - q1) || t <= q1 - 1.5 * (q3 - q1);
}

/* A round takes t = E k DSS / MBS seconds: E passes over DSS samples in mini-batches of MBS, k the
   seconds of an update. Chooses the mini-batch nearest to the old one whose chunk is within
   bounds; if there is none, the one whose round is nearest to the median. */
void tutti_hermes_fit(const hermes_bounds *bounds, double seconds, double median, int64_t size[2])
{
    const int64_t batch = bounds->batch;
    int64_t *batches = &size[0], *minibatch = &size[1], best_batches = *batches, best = *minibatch;
    const double epochs = (double)bounds->passes, most = (double)bounds->most * (double)batch;
    const double k = seconds * (double)*minibatch / (epochs * (double)*batches * (double)batch);
    double best_off = INFINITY, best_far = INFINITY;
    bool best_fits = false;

    for (int c = -1; c < SIZES; c++) { /* -1: the present one */
        const int64_t candidate = c < 0 ? *minibatch : (int64_t)2 << c;
        const double wanted = median * (double)candidate / (epochs * k),
                     samples = fmin(wanted, most);
        const int64_t given = tutti_hermes_batches(batch, samples);
        const double off = fabs(epochs * k * (double)(given * batch) / (double)candidate - median),
                     far = fabs(log2((double)candidate / (double)*minibatch));
        const bool fits = wanted <= most && wanted >= 0.5 * (double)batch;
        if (candidate > bounds->minibatch_most || (best_fits && !fits) ||
            (fits == best_fits && (fits ? far >= best_far : off >= best_off)))
            continue;
        best_fits = fits;
        best_off = off;
        best_far = far;
        best_batches = given;
        best = candidate;
    }
    *batches = best_batches;
    *minibatch = best;
}

uint32_t tutti_hermes_encode(const int64_t size[2])
{
    uint32_t code = 0;

    for (int c = 0; c < SIZES; c++)
        code = size[1] == (int64_t)2 << c ? 1 + (uint32_t)c : code;
    return (uint32_t)size[0] << 3 | code;
}

void tutti_hermes_decode(uint32_t code, int64_t *batches, int64_t *minibatch)
{
    *batches = (int64_t)(code >> 3);
    *minibatch = (code & 7) == 0 ? 0 : (int64_t)1 << (code & 7);
}
