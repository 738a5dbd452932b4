/* Pieces: a run with logical shares, by the methods that have them, against the tree of sums
   computed alone, to the bit: whatever the number of workers, the pieces and their threads, and the
   order of messages. */
#include "explore.h"
#include "tutti/method.h"
#include "tutti/tutti.h"
#include <stdio.h>

enum { STEPS = 4, TENSORS = 3, SIZE = 352, SHARES = 13, SAMPLES = 200 };
static const size_t count[TENSORS] = { 192, 64, 96 };

/* Of one sample. Sums of these depend on the order of adding. */
static float pull(uint64_t position, size_t i)
{
    const uint64_t draw = tutti_random((tutti_rng){ position + 1, 7, 5 }, i);

    return (float)((double)(draw >> 11) * 0x1p-53 - 0.5) * (float)(1 + draw % 1000) / 300;
}

/* g := or += what a pass adds of samples [position, position + n). */
static void add_pass(float *g, size_t i, uint64_t position, int64_t n, int64_t divisor, bool keep)
{
    float sum = 0;

    for (int64_t k = 0; k < n; k++)
        sum += pull(position + (uint64_t)k, i);
    sum = divisor > 0 ? sum / (float)divisor : 0;
    *g = keep ? *g + sum : sum;
}

/* ---- computed alone ---- */

/* The tree over n of the values, split at the largest power of two below n. */
static float tree(const float *values, int n)
{
    int half = 1;

    if (n == 1)
        return values[0];
    while (2 * half < n)
        half *= 2;
    return tree(values, half) + tree(values + half, n - half);
}

static float mean_gradient(const tutti_share *shares, uint64_t step, size_t i)
{
    const int64_t all = tutti_share_step(shares, step, -1);
    float part[SHARES];

    for (int v = 0; v < shares->workers; v++) {
        const int64_t mine = tutti_share_step(shares, step, v);
        for (int64_t a = 0; a < shares->accumulate; a++) {
            uint64_t epoch, position;
            const int64_t n = tutti_share_pass(shares, step, v, a, &epoch, &position);
            add_pass(&part[v], i, position, n, mine, a > 0);
        }
        part[v] *= (float)((double)mine / (double)all);
    }
    return tree(part, shares->workers);
}

/* ---- the run ---- */

static tutti_status one_step(tutti_engine *e, tutti_error *err)
{
    const tutti_method *const m = tutti_engine_method(e);
    tutti_pass p;
    tutti_status status;

    while ((status = tutti_engine_pass_begin(e, &p, err)) == TUTTI_OK) {
        for (int k = 0; k < TENSORS; k++) {
            const tutti_tensor *const t = &m->layout->tensor[k];
            for (size_t i = t->first; i < t->first + t->count; i++)
                add_pass(&m->g[i], i, p.position, p.samples, p.divisor, p.keep);
            explore_dawdle(200);
            TUTTI_TRY(tutti_engine_grad_ready(e, k, err));
        }
        TUTTI_TRY(tutti_engine_pass_end(e, 0, err));
    }
    return status == TUTTI_CLOSED ? tutti_engine_step(e, err) : status;
}

static tutti_status train(tutti_engine *e, const tutti_share *shares, tutti_error *err)
{
    const tutti_method *const m = tutti_engine_method(e);
    float x[SIZE] = { 0 };

    for (uint64_t s = 0; s < STEPS; s++) {
        TUTTI_TRY(one_step(e, err));
        for (size_t i = 0; i < SIZE; i++)
            x[i] -= mean_gradient(shares, s, i);
    }
    TUTTI_TRY(tutti_engine_finish(e, err));
    for (size_t i = 0; i < SIZE; i++)
        EXPLORE_EXPECT(m->x[i] == x[i], "%s, %d shares: worker %d of %d has x[%zu] = %.9g instead of %.9g",
                       m->ops->name, shares->workers, m->rank, m->workers, i, (double)m->x[i], (double)x[i]);
    return TUTTI_OK;
}

static tutti_status logical_shares(tutti_world *world, explore_case *c, tutti_error *err)
{
    static const char *const methods[] = { "ddp(bucket_mb=0.0005,first_bucket_mb=0.0002)",
                                           "zero(bucket_mb=0.0005,first_bucket_mb=0.0002)",
                                           "bytescheduler(partition_mb=0.0003,credit_mb=0.0008,fuse_mb=0.0001)" };
    static const char *const names[TENSORS] = { "c", "b", "a" };
    const int shares = c->ranks + (int)explore_draw(c, "shares", (uint64_t)(SHARES - c->ranks + 1));
    const tutti_engine_options options = {
        .method = methods[explore_draw(c, "method", TUTTI_LENGTH(methods))], .optimizer = "sgd(lr=1)", .batch = 2,
        .accumulate = 1 + (int64_t)explore_draw(c, "passes", 2), .data_samples = SAMPLES, .elastic_shares = shares,
        .lane = (int)explore_draw(c, "lane", 3), /* 0: the method's */
    };
    const tutti_share alone = { .samples = SAMPLES, .workers = shares, .batch = options.batch,
                                .accumulate = options.accumulate };
    tutti_param params[TENSORS];
    tutti_engine *e = NULL;
    tutti_status status;

    for (int k = 0; k < TENSORS; k++)
        params[k] = (tutti_param){ .name = names[k], .dims = 1, .dim = { count[k] }, .unit = TENSORS - 1 - k };
    status = tutti_engine_open(&e, world, params, TENSORS, &options, err);
    if (status == TUTTI_OK)
        status = train(e, &alone, err);
    tutti_engine_close(e);
    return status;
}

const explore_piece explore_logical_pieces[] = {
    { .name = "logical-shares", .help = "shares of a step, of which workers have several", .least = 1, .most = 6,
      .rank_main = logical_shares },
    { 0 }
};
