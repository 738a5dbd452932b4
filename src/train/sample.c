/* sample.c: converts logits to probabilities, and draws from them. Implements tutti_sample and
   tutti_probabilities of trained.h. */
#include <math.h>
#include <stdlib.h>

#include "train_internal.h"

void tutti_probabilities(const float *logits, size_t n, double *p)
{
    double most = -INFINITY, sum = 0;

    for (size_t k = 0; k < n; k++)
        most = (double)logits[k] > most ? (double)logits[k] : most;
    for (size_t k = 0; k < n; k++)
        sum += p[k] = exp((double)logits[k] - most);
    for (size_t k = 0; k < n; k++)
        p[k] /= sum;
}

/* Returns the index of the largest logit, the lowest of equal ones; -1: all are NaN. */
static int64_t largest(const float *logits, size_t n)
{
    int64_t best = -1;

    for (size_t k = 0; k < n; k++)
        if (!isnan(logits[k]) && (best < 0 || logits[k] > logits[best]))
            best = (int64_t)k;
    return best;
}

static int falling(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;

    return (x < y) - (x > y);
}

/* Returns the k-th largest value that is not NaN. scratch: n floats. */
static float kth_largest(const float *logits, size_t n, size_t k, float *scratch)
{
    size_t numbers = 0;

    for (size_t i = 0; i < n; i++)
        if (!isnan(logits[i]))
            scratch[numbers++] = logits[i];
    qsort(scratch, numbers, sizeof *scratch, falling);
    return scratch[k < numbers ? k - 1 : numbers - 1];
}

int64_t tutti_sample(const tutti_sampling *how, const float *logits, size_t n, uint64_t index,
                     float *scratch)
{
    const int64_t best = largest(logits, n);
    const bool some = how->top_k > 0 && (uint64_t)how->top_k < n;
    const tutti_rng draw = { how->seed, UINT64_C(0x67656e65) /* "gene" */, 0 };
    double sum = 0, at;
    size_t above = 0, equal;
    float least;
    int64_t last = best;

    if (best < 0 || how->temperature <= 0)
        return best;
    least = some ? kth_largest(logits, n, (size_t)how->top_k, scratch) : -INFINITY;
    for (size_t k = 0; k < n; k++)
        above += logits[k] > least;
    for (int pass = 0; pass < 2; pass++) {
        equal = some ? (size_t)how->top_k - above : n;
        at = pass == 0 ? 0 : tutti_uniform(draw, index) * sum;
        for (size_t k = 0; k < n; k++) {
            const bool in = logits[k] > least || (logits[k] == least && equal > 0);
            const double p =
                in ? exp(((double)logits[k] - (double)logits[best]) / how->temperature) : 0;
            equal -= in && logits[k] == least;
            if (pass == 0)
                sum += p;
            else if (in && (at -= p) < 0)
                return (int64_t)k;
            last = in && p > 0 ? (int64_t)k : last;
        }
    }
    return last; /* rounding has left a rest of the sum */
}
