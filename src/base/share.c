/* share.c: which samples a worker uses when (data-sharding.md, rule T). A step uses positions [k G, (k + 1) G) of its epoch's
   order, G = workers B A; the order is a keyed permutation of the samples, so nothing is stored and any step is found in O(1).
   The order does not know the workers: the k-th global batch is the same for every number of them that keeps G. */
#include "tutti/share.h"

#include <assert.h>
#include <math.h>

/* Draws of the order have a stream of their own; part of what a resumed run relies on. */
#define ORDER_STREAM UINT64_C(0x6f72646572) /* "order" */

/* Samples a full step uses. Too large a product is as good as all samples: every step is then an epoch's last. */
static uint64_t full_step(const tutti_share *s)
{
    size_t g;

    assert(s->workers > 0 && s->batch > 0 && s->accumulate > 0);
    if (!tutti_size_mul((size_t)s->batch, (size_t)s->accumulate, &g) || !tutti_size_mul(g, (size_t)s->workers, &g))
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

int64_t tutti_share_batch(const tutti_share *s, int worker)
{
    return s->batch_of != NULL ? s->batch_of[worker] : s->batch;
}

/* Samples of a pass that workers below this one have. */
static uint64_t below(const tutti_share *s, int worker)
{
    uint64_t sum = 0;

    if (s->batch_of == NULL)
        return (uint64_t)worker * (uint64_t)s->batch;
    for (int q = 0; q < worker; q++)
        sum += (uint64_t)s->batch_of[q];
    return sum;
}

/* floor(a b / c) for c > 0 and a result below 2^64. */
static uint64_t scale(uint64_t a, uint64_t b, uint64_t c)
{
    return (uint64_t)((unsigned __int128)a * b / c);
}

/* A worker's part of a last step of `total` samples: contiguous, the first total mod workers have one more. */
static uint64_t tail_part(const tutti_share *s, uint64_t total, int worker, uint64_t *first)
{
    const uint64_t pass = (uint64_t)s->workers * (uint64_t)s->batch;

    if (s->batch_of != NULL) {
        *first = scale(total, below(s, worker), pass);
        return scale(total, below(s, worker + 1), pass) - *first;
    }
    const uint64_t each = total / (uint64_t)s->workers, extra = total % (uint64_t)s->workers, r = (uint64_t)worker;

    *first = r * each + (r < extra ? r : extra);
    return each + (r < extra);
}

int64_t tutti_share_pass(const tutti_share *s, uint64_t step, int worker, int64_t pass, uint64_t *epoch, uint64_t *position)
{
    uint64_t first, part_first;
    const uint64_t total = step_place(s, step, epoch, &first), b = (uint64_t)tutti_share_batch(s, worker), a = (uint64_t)pass;
    uint64_t part, used;

    assert(worker >= 0 && worker < s->workers && pass >= 0 && pass < s->accumulate);
    if (total == full_step(s)) {
        *position = first + a * (uint64_t)s->workers * (uint64_t)s->batch + below(s, worker);
        return (int64_t)b;
    }
    part = tail_part(s, total, worker, &part_first);
    used = b == 0 || a > part / b ? part : a * b; /* a * b <= part does not overflow */
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
    if (total < full_step(s))
        return (int64_t)tail_part(s, total, worker, &first);
    return tutti_share_batch(s, worker) * s->accumulate;
}

uint64_t tutti_share_sample(const tutti_share *s, uint64_t epoch, uint64_t position)
{
    const tutti_rng rng = { s->seed, ORDER_STREAM, epoch };

    assert(position < s->samples);
    return tutti_permuted(rng, s->samples, position);
}

void tutti_share_apportion(int64_t total, int workers, const double *weight, int64_t least, int64_t *part)
{
    const int64_t free_part = total - least * workers;
    int64_t left = free_part;
    double sum = 0;

    assert(workers > 0 && free_part >= 0);
    for (int r = 0; r < workers; r++)
        sum += weight[r];
    for (int r = 0; r < workers; r++) {
        part[r] = (int64_t)((double)free_part * (weight[r] / sum));
        left -= part[r];
    }
    for (; left != 0; left -= left > 0 ? 1 : -1) { /* the furthest from its due gets the next one; rounding may also have given one too many */
        int who = 0;
        double most = -INFINITY;
        for (int r = 0; r < workers; r++) {
            const double off = (left > 0 ? 1 : -1) * ((double)free_part * (weight[r] / sum) - (double)part[r]);
            if (off > most && (left > 0 || part[r] > 0)) {
                most = off;
                who = r;
            }
        }
        part[who] += left > 0 ? 1 : -1;
    }
    for (int r = 0; r < workers; r++)
        part[r] += least;
}
