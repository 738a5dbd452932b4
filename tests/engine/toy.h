/* toy.h: a client of the engine without a network. It has a quadratic whose gradient is cheap and
   depends on the samples, so every fact about passes, weights, order and state can be checked.
   Ranks are threads (tutti_world_run). A rank reports by its status, the test thread asserts. */
#ifndef TUTTI_TESTS_TOY_H
#define TUTTI_TESTS_TOY_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tutti/tutti.h"
#include "tutti/method.h"

#define TOY_TENSORS 5
/* In a rank's thread: a failed check becomes the rank's failure, with its line. */
#define CHECK(condition) \
    do { \
        if (!(condition)) \
            return tutti_fail(err, TUTTI_ERR_STATE, 0, "line %d: %s", __LINE__, #condition); \
    } while (0)

typedef struct toy {
    tutti_engine_options options;
    size_t count[TOY_TENSORS];   /* elements of each tensor */
    size_t rows[TOY_TENSORS];    /* of the tensor as a matrix; 0: it has one dimension */
    int steps;
    uint64_t order_seed;         /* of the order in which gradients are announced; 0: index order */
    int unused;                  /* tensor that is never announced, or -1 */
    int bad_rank, bad_tensor, bad_step; /* where a NaN is put; bad_rank -1: nowhere */
    uint64_t bad_steps;          /* bit s: in step s, too; bad_rank -2: on all ranks */
    bool own_memory;             /* the client keeps values and gradients itself */
    float *values[TOY_TENSORS], *gradients[TOY_TENSORS];
} toy;

static inline toy toy_default(void)
{
    return (toy){
        .options = { .method = "ddp", .batch = 4, .data_samples = 50, .seed = 3 },
        .count = { 10, 70000, 33, 80001, 7 }, .steps = 7, .unused = -1, .bad_rank = -1,
    };
}

/* Sizes that codecs are tried at: matrices of many and of few rows, and vectors. None is a multiple
   of a bucket. */
static inline toy toy_matrices(void)
{
    toy t = toy_default();

    t.count[1] = 3000, t.count[3] = 2001;
    t.rows[1] = 60, t.rows[3] = 3;
    return t;
}

static inline void toy_initial(void *user, int tensor, float *values)
{
    const toy *t = user;
    for (size_t i = 0; i < t->count[tensor]; i++)
        values[i] =
            (float)tutti_uniform((tutti_rng){ t->options.seed, 100 + (uint64_t)tensor, 0 }, i) -
            0.5f;
}

static inline tutti_status toy_open(tutti_engine **e, tutti_world *world, toy *t, tutti_error *err)
{
    static const char *const names[TOY_TENSORS] = {
        "e.bias", "d.weight", "c.bias", "b.weight", "a.bias",
    };
    tutti_param params[TOY_TENSORS];

    for (int i = 0; i < TOY_TENSORS; i++)
        params[i] = (tutti_param){
            .name = names[i], .dims = t->rows[i] > 0 ? 2 : 1,
            .dim = { t->rows[i] > 0 ? t->rows[i] : t->count[i],
                     t->rows[i] > 0 ? t->count[i] / t->rows[i] : 1 },
            .unit = TOY_TENSORS - 1 - i, .values = t->own_memory ? t->values[i] : NULL,
            .gradient = t->own_memory ? t->gradients[i] : NULL,
        };
    t->options.initial = toy_initial;
    t->options.user = t;
    return tutti_engine_open(e, world, params, TOY_TENSORS, &t->options, err);
}

/* loss of sample s: sum_i (x_i - f(s, i))^2 / 2, f(s, i) = frac of a hash; gradient x_i - f. */
static inline float toy_pull(uint64_t sample, int tensor, size_t i)
{
    const uint64_t h = (sample * 2654435761u + (uint64_t)tensor * 40503u + i) * 0x9E3779B97F4A7C15u;
    return (float)((double)(h >> 40) * 0x1p-24);
}

static inline tutti_status toy_pass(tutti_engine *e, toy *t, const tutti_share *share,
                                    const tutti_pass *p, uint64_t step, tutti_error *err)
{
    int order[TOY_TENSORS];
    uint64_t id[64];
    double loss = 0;
    const int rank = tutti_engine_method(e)->rank;

    CHECK(p->samples <= 64);
    for (int64_t b = 0; b < p->samples; b++)
        id[b] = tutti_share_sample(share, p->epoch, p->position + (uint64_t)b);

    for (int i = 0; i < TOY_TENSORS; i++)
        order[i] = t->order_seed == 0
                       ? i
                       : (int)tutti_permuted((tutti_rng){ t->order_seed + (uint64_t)rank, 1, step },
                                             TOY_TENSORS, (uint64_t)i);
    for (int u = 0; u < TOY_TENSORS; u++) {
        TUTTI_TRY(tutti_engine_unit_acquire(e, u, false, err));
        TUTTI_TRY(tutti_engine_unit_release(e, u, false, err));
    }
    for (int k = 0; k < TOY_TENSORS; k++) {
        const int i = order[k];
        const float *x = t->own_memory ? t->values[i] : tutti_engine_values(e, i);
        float *g = t->own_memory ? t->gradients[i] : tutti_engine_gradient(e, i);
        TUTTI_TRY(tutti_engine_unit_acquire(e, TOY_TENSORS - 1 - i, true, err));
        for (size_t j = 0; j < t->count[i]; j++) {
            double sum = 0;
            for (int64_t b = 0; b < p->samples; b++) {
                const float d = x[j] - toy_pull(id[b], i, j);
                sum += d;
                loss += (double)d * d / 2;
            }
            const float mine = p->divisor > 0 ? (float)(p->scale * sum / (double)p->divisor) : 0;
            g[j] = p->keep && !t->own_memory ? g[j] + mine : mine;
        }
        if ((rank == t->bad_rank || t->bad_rank == -2) && i == t->bad_tensor &&
            ((int)step == t->bad_step || (t->bad_steps >> step & 1) != 0))
            g[t->count[i] / 2] = t->bad_steps != 0 ? INFINITY : NAN;
        if (i != t->unused)
            TUTTI_TRY(tutti_engine_grad_ready(e, i, err));
        TUTTI_TRY(tutti_engine_unit_release(e, TOY_TENSORS - 1 - i, true, err));
    }
    return tutti_engine_pass_end(e, loss, err);
}

static inline tutti_status toy_step(tutti_engine *e, toy *t, tutti_error *err)
{
    const tutti_method *m = tutti_engine_method(e);
    const tutti_share share = {
        t->options.data_samples > 0
            ? t->options.data_samples
            : (uint64_t)(t->options.batch * m->workers *
                         (t->options.accumulate > 0 ? t->options.accumulate : 1)),
        m->workers, t->options.batch, t->options.accumulate > 0 ? t->options.accumulate : 1,
        t->options.seed
    };
    const uint64_t step = m->step;
    tutti_pass p;
    tutti_status status;

    while ((status = tutti_engine_pass_begin(e, &p, err)) == TUTTI_OK)
        TUTTI_TRY(toy_pass(e, t, &share, &p, step, err));
    return status == TUTTI_CLOSED ? tutti_engine_step(e, err) : status;
}

/* A hash of all values as they are now. */
static inline uint64_t toy_hash(tutti_engine *e)
{
    const tutti_method *m = tutti_engine_method(e);
    return tutti_hash(m->x, m->n * sizeof *m->x);
}

#endif
