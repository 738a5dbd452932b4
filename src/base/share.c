/* share.c: which samples a worker uses when (data-sharding.md, rule T). A step uses positions [k G, (k + 1) G) of its epoch's
   order, G = workers B A; the order is a keyed permutation of the samples, so nothing is stored and any step is found in O(1).
   The order does not know the workers: the k-th global batch is the same for every number of them that keeps G. */
#include "tutti/share.h"

#include <assert.h>

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

/* A worker's part of a last step of `total` samples: contiguous, the first total mod workers have one more. */
static uint64_t tail_part(const tutti_share *s, uint64_t total, int worker, uint64_t *first)
{
    const uint64_t each = total / (uint64_t)s->workers, extra = total % (uint64_t)s->workers, r = (uint64_t)worker;

    *first = r * each + (r < extra ? r : extra);
    return each + (r < extra);
}

int64_t tutti_share_pass(const tutti_share *s, uint64_t step, int worker, int64_t pass, uint64_t *epoch, uint64_t *position)
{
    uint64_t first, part_first;
    const uint64_t total = step_place(s, step, epoch, &first), b = (uint64_t)s->batch, a = (uint64_t)pass;
    uint64_t part, used;

    assert(worker >= 0 && worker < s->workers && pass >= 0 && pass < s->accumulate);
    if (total == full_step(s)) {
        *position = first + (a * (uint64_t)s->workers + (uint64_t)worker) * b;
        return s->batch;
    }
    part = tail_part(s, total, worker, &part_first);
    used = a > part / b ? part : a * b; /* a * b <= part does not overflow */
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
    return (int64_t)(total == full_step(s) ? total / (uint64_t)s->workers : tail_part(s, total, worker, &first));
}

uint64_t tutti_share_sample(const tutti_share *s, uint64_t epoch, uint64_t position)
{
    const tutti_rng rng = { s->seed, ORDER_STREAM, epoch };

    assert(position < s->samples);
    return tutti_permuted(rng, s->samples, position);
}
