/* share.c: which samples a worker uses when.

   A step uses positions [k G, (k + 1) G) of its epoch's order, G = workers B A. The order is a
   keyed permutation of the samples, so nothing is stored and any step is found in O(1). The order
   does not depend on the workers: the k-th global batch is the same for every number of them that
   keeps G.

   The parts' passes (base.h) alternate, each in an order that is such a permutation too. Batch
   sizes are a function of the step, so how many samples a worker has taken before a step is one
   as well, and nothing is stored either.

   Logical shares are the workers of a larger run: all about them is asked of that run, and a
   worker of this one has a block of its workers, or every n-th. */
#include "tutti/base.h"
#include "share.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

/* Draws of the order have a stream of their own; part of what a resumed run relies on. */
#define ORDER_STREAM UINT64_C(0x6f72646572) /* "order" */
#define PART_STREAM UINT64_C(0x70617274)    /* "part" */

/* Passes of all workers in a full step, where they are counted one by one. */
static uint64_t all_passes(const tutti_share *s)
{
    uint64_t sum = 0;

    for (int q = 0; q < s->workers; q++)
        sum += (uint64_t)s->passes_of[q];
    return sum;
}

/* Samples a full step uses. Too large a product is as good as all samples:
   every step is then an epoch's last. */
static uint64_t full_step(const tutti_share *s)
{
    size_t g;

    assert(s->workers > 0 && s->batch > 0 && s->accumulate > 0);
    if (s->passes_of != NULL)
        return tutti_size_mul((size_t)s->batch, (size_t)all_passes(s), &g) ? g : UINT64_MAX;
    if (!tutti_size_mul((size_t)s->batch, (size_t)s->accumulate, &g) ||
        !tutti_size_mul(g, (size_t)(s->logical != 0 ? abs(s->logical) : s->workers), &g))
        return UINT64_MAX;
    return g;
}

uint64_t tutti_share_steps(const tutti_share *s)
{
    const uint64_t g = full_step(s);

    return s->samples / g + (s->samples % g != 0);
}

/* The step's place in its epoch: first position and number of samples. */
static uint64_t step_place(const tutti_share *s, uint64_t step, uint64_t *epoch, uint64_t *first)
{
    const uint64_t g = full_step(s), steps = tutti_share_steps(s);

    assert(s->samples > 0);
    *epoch = step / steps;
    *first = step % steps * g; /* below samples, hence no overflow */
    return s->samples - *first < g ? s->samples - *first : g;
}

/* The sum over the workers below this one: samples of a pass, or shares, or with passes_of
   passes. */
static uint64_t below(const tutti_share *s, int worker)
{
    const int64_t *of = s->passes_of != NULL ? s->passes_of : s->batch_of;
    uint64_t sum = 0;

    if (of == NULL)
        return (uint64_t)worker * (uint64_t)s->batch;
    for (int q = 0; q < worker; q++)
        sum += (uint64_t)of[q];
    return sum;
}

int64_t tutti_share_batch(const tutti_share *s, int worker)
{
    return s->batch_of != NULL && s->logical == 0 ? s->batch_of[worker] : s->batch;
}

int64_t tutti_share_passes(const tutti_share *s, int worker)
{
    int blocks;

    if (s->passes_of != NULL)
        return s->passes_of[worker];
    tutti_share_logical(s, worker, &blocks);
    return blocks * s->accumulate;
}

int tutti_share_logical(const tutti_share *s, int worker, int *count)
{
    const int all = abs(s->logical);
    int each, extra;

    *count = 1;
    if (all == 0)
        return worker;
    assert(all >= s->workers && s->passes_of == NULL && s->parts == NULL);
    if (s->batch_of != NULL) {
        assert(s->logical > 0);
        *count = (int)s->batch_of[worker];
        return (int)below(s, worker);
    }
    each = all / s->workers;
    extra = all % s->workers;
    *count = each + (worker < extra);
    return s->logical < 0 ? worker : worker * each + (worker < extra ? worker : extra);
}

int tutti_share_stride(const tutti_share *s)
{
    return s->logical < 0 ? s->workers : 1;
}

tutti_share tutti_share_in_blocks(const tutti_share *s)
{
    tutti_share of = *s;

    of.logical = abs(s->logical);
    return of;
}

tutti_share tutti_share_by_logical(const tutti_share *s)
{
    tutti_share of = *s;

    of.workers = s->logical != 0 ? abs(s->logical) : s->workers;
    of.batch_of = s->logical != 0 ? NULL : s->batch_of;
    of.logical = 0;
    return of;
}

/* Passes of a full step that stand before pass `pass` of this worker. */
static uint64_t passes_before(const tutti_share *s, int worker, int64_t pass)
{
    uint64_t sum = 0;

    for (int q = 0; q < s->workers; q++) {
        const int64_t has = s->passes_of[q];
        sum += (uint64_t)(has < pass ? has : pass) + (q < worker && has > pass);
    }
    return sum;
}

/* floor(a b / c) for c > 0 and a result below 2^64. */
static uint64_t scale(uint64_t a, uint64_t b, uint64_t c)
{
    return (uint64_t)((unsigned __int128)a * b / c);
}

/* A worker's part of a last step of `total` samples: contiguous, the first
   total mod workers have one more. */
static uint64_t tail_part(const tutti_share *s, uint64_t total, int worker, uint64_t *first)
{
    if (s->batch_of != NULL || s->passes_of != NULL) {
        const uint64_t all = below(s, s->workers);
        *first = scale(total, below(s, worker), all);
        return scale(total, below(s, worker + 1), all) - *first;
    }
    const uint64_t each = total / (uint64_t)s->workers, extra = total % (uint64_t)s->workers,
                   r = (uint64_t)worker;

    *first = r * each + (r < extra ? r : extra);
    return each + (r < extra);
}

/* Samples that the worker has taken from its part before this step. 2^64 are never reached: a
   sample takes longer than a nanosecond. */
static uint64_t taken_before(const tutti_share *s, uint64_t step, int worker)
{
    const uint64_t steps = tutti_share_steps(s),
                   full = (uint64_t)(tutti_share_batch(s, worker) * s->accumulate),
                   tail = s->samples % full_step(s);
    uint64_t first;
    const uint64_t epoch =
        (steps - (tail != 0)) * full + (tail != 0 ? tail_part(s, tail, worker, &first) : 0);

    return step / steps * epoch + step % steps * full;
}

/* Returns how many of a part's samples the a passes of b samples before have used. */
static uint64_t used_before(uint64_t part, uint64_t a, uint64_t b)
{
    return b == 0 || a > part / b ? part : a * b; /* a * b <= part does not overflow */
}

int64_t tutti_share_pass(const tutti_share *s, uint64_t step, int worker, int64_t pass,
                         uint64_t *epoch, uint64_t *position)
{
    uint64_t first, part_first;
    const uint64_t total = step_place(s, step, epoch, &first),
                   b = (uint64_t)tutti_share_batch(s, worker), a = (uint64_t)pass;
    uint64_t part, used;

    assert(worker >= 0 && worker < s->workers && pass >= 0 &&
           (s->passes_of != NULL || pass < tutti_share_passes(s, worker)));
    if (s->logical != 0) {
        const tutti_share shares = tutti_share_by_logical(s);
        int mine;
        const int of = tutti_share_logical(s, worker, &mine) +
                       (int)(pass / s->accumulate) * tutti_share_stride(s);
        return tutti_share_pass(&shares, step, of, pass % s->accumulate, epoch, position);
    }
    if (s->parts != NULL) {
        assert(s->passes_of == NULL);
        part = (uint64_t)tutti_share_step(s, step, worker);
        used = used_before(part, a, b);
        *position = taken_before(s, step, worker) + used;
        return (int64_t)(part - used < b ? part - used : b);
    }
    if (total == full_step(s) && s->passes_of != NULL) {
        *position = first + passes_before(s, worker, pass) * b;
        return pass < s->passes_of[worker] ? (int64_t)b : 0;
    }
    if (total == full_step(s)) {
        *position = first + a * (uint64_t)s->workers * (uint64_t)s->batch + below(s, worker);
        return (int64_t)b;
    }
    part = tail_part(s, total, worker, &part_first);
    used = used_before(part, a, b);
    *position = first + part_first + used;
    return (int64_t)(part - used < b ? part - used : b);
}

int64_t tutti_share_step(const tutti_share *s, uint64_t step, int worker)
{
    uint64_t epoch, first;
    const uint64_t total = step_place(s, step, &epoch, &first);

    assert(worker >= -1 && worker < s->workers);
    if (worker < 0)
        return (int64_t)total;
    if (s->logical != 0) {
        const tutti_share shares = tutti_share_by_logical(s);
        int mine;
        const int at = tutti_share_logical(s, worker, &mine);
        int64_t samples = 0;
        for (int i = 0; i < mine; i++)
            samples += tutti_share_step(&shares, step, at + i * tutti_share_stride(s));
        return samples;
    }
    if (total < full_step(s))
        return (int64_t)tail_part(s, total, worker, &first);
    return tutti_share_batch(s, worker) * tutti_share_passes(s, worker);
}

uint64_t tutti_share_sample(const tutti_share *s, uint64_t epoch, uint64_t position)
{
    const tutti_rng rng = { s->seed, ORDER_STREAM, epoch };

    assert(s->parts == NULL && position < s->samples);
    return tutti_permuted(rng, s->samples, position);
}

uint64_t tutti_share_sample_of(const tutti_share *s, int worker, uint64_t epoch, uint64_t position)
{
    if (s->parts == NULL)
        return tutti_share_sample(s, epoch, position);
    const uint64_t begin = s->parts->first[worker], n = s->parts->first[worker + 1] - begin;
    const tutti_rng rng = { s->seed, PART_STREAM, position / n };

    return s->parts->sample[begin + tutti_permuted(rng, n, position % n)];
}

/* The dues of workers: shares of `open` by weight, of those above the limit. */
typedef struct dues {
    int workers;
    const double *weight;
    double limit, sum;
    int64_t open, least;
} dues;

/* Returns the worker that is furthest from its due, which is weight[r] / sum of `open`: below it
   (gets) or above it, among those with more weight than `limit` and, if above, more than the least.
 */
static int furthest(const dues *d, const int64_t *part, bool gets)
{
    const double *weight = d->weight;
    int who = 0;
    double most = -INFINITY;
    for (int r = 0; r < d->workers; r++) {
        const double off =
            (gets ? 1 : -1) * ((double)d->open * (weight[r] / d->sum) - (double)part[r]);
        if (weight[r] > d->limit && off > most && (gets || part[r] > d->least)) {
            most = off;
            who = r;
        }
    }
    return who;
}

void tutti_share_apportion(int64_t total, int workers, const double *weight, int64_t least,
                           int64_t *part)
{
    double limit = -1, sum = 0; /* weights up to the limit get the least; sum: of the others */
    int64_t open = total, left; /* what the others share */
    bool found = true;

    assert(workers > 0 && least >= 0 && total >= least * workers);
    while (found) { /* a worker with the least takes from the others' due: look again */
        double next = limit;
        open = total;
        sum = 0;
        for (int r = 0; r < workers; r++) {
            open -= weight[r] > limit ? 0 : least;
            sum += weight[r] > limit ? weight[r] : 0;
        }
        for (int r = 0; r < workers; r++)
            if (weight[r] > next && (double)open * (weight[r] / sum) < (double)least)
                next = weight[r];
        found = next > limit;
        limit = next;
    }
    left = open;
    for (int r = 0; r < workers; r++) {
        part[r] = weight[r] > limit ? (int64_t)((double)open * (weight[r] / sum)) : least;
        left -= weight[r] > limit ? part[r] : 0;
    }
    /* the furthest from its due gets the next one; rounding may also have given one too many */
    for (; left != 0 && sum > 0; left -= left > 0 ? 1 : -1) {
        const int who =
            furthest(&(dues){ workers, weight, limit, sum, open, least }, part, left > 0);
        part[who] += left > 0 ? 1 : -1;
    }
}
