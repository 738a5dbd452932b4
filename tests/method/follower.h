/* follower.h: wavelet's recursions (docs/methods/wavelet.md), each as one loop over whole gradients
   of the model of engine/staged_model.h. */
#ifndef TUTTI_TESTS_FOLLOWER_H
#define TUTTI_TESTS_FOLLOWER_H
#include <stdio.h>

#include "engine/staged_model.h"
#include "state/plan.h"
#include "base/machine.h"
#include "kernels/device.h"

enum { FOLLOWED_WAVES = 4, FOLLOWED_MOST = 12, FOLLOWED_WORKERS = 8 };
enum { SHARED, AVERAGE, ACCUMULATE };
static const char *const follower_modes[] = { "shared", "average", "accumulate" };

/* sync_rounds is average's only. */
static inline void follower_spec(char *spec, size_t bytes, int waves, int stages, int mode,
                                 int rounds)
{
    const int n = snprintf(spec, bytes, "wavelet(waves=%d,stages=%d,sync_mode=%s", waves, stages,
                           follower_modes[mode]);

    if (mode == AVERAGE)
        snprintf(spec + n, bytes - (size_t)n, ",sync_rounds=%d)", rounds);
    else
        snprintf(spec + n, bytes - (size_t)n, ")");
}

typedef struct follower {
    const char *optimizer;
    int pipelines, stages, waves, mode, rounds;
    tutti_share share;
    tutti_plan *plan;
    tutti_device *device;
    tutti_optim *optim[FOLLOWED_WAVES];
    uint64_t updates[FOLLOWED_WAVES];
    float x[FOLLOWED_MOST + 1][STAGED_VALUES], model[FOLLOWED_WAVES][STAGED_VALUES];
    float g[FOLLOWED_WORKERS][STAGED_VALUES], more[STAGED_VALUES];
    float y[UNITS + 1][SAMPLES_MOST * WIDTH], target[SAMPLES_MOST * WIDTH], d[SAMPLES_MOST * WIDTH];
} follower;

/* The gradient of a micro-batch at x, written, or added to. */
static inline void follower_gradient(follower *f, const tutti_pass *p, const float *x, float *g)
{
    staged_draw(&f->share, p, 1, f->y[0]);
    staged_draw(&f->share, p, 2, f->target);
    for (int u = 0; u < UNITS; u++)
        staged_unit_forward(x + staged_place(u, false), x + staged_place(u, true), p->samples,
                            f->y[u], f->y[u + 1]);
    staged_loss(f->target, f->y[UNITS], (size_t)p->samples * WIDTH, (double)p->divisor, f->d);
    for (int u = UNITS - 1; u >= 0; u--)
        staged_unit_backward(x + staged_place(u, false), p->samples, f->y[u], f->y[u + 1], f->d,
                             p->keep, NULL, g + staged_place(u, false), g + staged_place(u, true),
                             u > 0 ? f->d : NULL);
}

static inline bool follower_is_of(const follower *f, int64_t pass, int wave)
{
    return wave < 0 || pass / f->stages % f->waves == wave;
}

static inline int64_t follower_samples(const follower *f, uint64_t step, int v, int wave)
{
    uint64_t epoch, position;
    int64_t sum = 0;

    for (int64_t i = 0; i < f->share.accumulate; i++)
        if (follower_is_of(f, i, wave))
            sum += tutti_share_pass(&f->share, step, v, i, &epoch, &position);
    return sum;
}

/* g[v] := the sum over a wave's passes, in their order (-1: over all of them), or adds it. */
static inline void follower_sum_passes(follower *f, uint64_t step, int v, int wave,
                                       int64_t divisor, const float *x, float *to)
{
    memset(to, 0, sizeof f->more);
    for (int64_t i = 0, first = 1; i < f->share.accumulate; i++) {
        tutti_pass p = { .index = i, .divisor = divisor };
        if (!follower_is_of(f, i, wave))
            continue;
        p.samples = tutti_share_pass(&f->share, step, v, i, &p.epoch, &p.position);
        if (p.samples == 0)
            continue;
        p.keep = !first;
        follower_gradient(f, &p, x, to);
        first = 0;
    }
}

/* The tree over the pipelines, split at the largest power of two below their number. */
static inline void follower_tree(follower *f, int first, int n)
{
    int half = 1;

    if (n == 1)
        return;
    while (2 * half < n)
        half *= 2;
    follower_tree(f, first, half);
    follower_tree(f, first + half, n - half);
    for (size_t k = 0; k < STAGED_VALUES; k++)
        f->g[first][k] += f->g[first + half][k];
}

/* g[0] := the mean of that wave's gradients at x (-1: of all passes); false: no worker has
   samples. */
static inline bool follower_mean(follower *f, uint64_t step, int wave, const float *x)
{
    int64_t all = 0;

    for (int v = 0; v < f->pipelines; v++)
        all += follower_samples(f, step, v, wave);
    for (int v = 0; v < f->pipelines; v++) {
        const int64_t mine = follower_samples(f, step, v, wave);
        follower_sum_passes(f, step, v, f->mode == ACCUMULATE ? 0 : wave, mine, x, f->g[v]);
        for (int w = 1; w < f->waves && f->mode == ACCUMULATE; w++) {
            follower_sum_passes(f, step, v, w, mine, x, f->more);
            for (size_t k = 0; k < STAGED_VALUES; k++)
                f->g[v][k] += f->more[k];
        }
        for (size_t k = 0; k < STAGED_VALUES && f->pipelines > 1; k++)
            f->g[v][k] *= (float)((double)mine / (double)all);
    }
    follower_tree(f, 0, f->pipelines);
    return all > 0;
}

static inline void follower_update(follower *f, int wave, float *x)
{
    tutti_update(f->optim[wave], 0, STAGED_VALUES, x, f->g[0],
                 &(tutti_rate){ tutti_optim_lr(f->optim[wave]), 1, ++f->updates[wave] });
}

static inline void follower_mean_of_models(follower *f, float *to)
{
    memmove(to, f->model[0], sizeof f->more);
    for (int w = 1; w < f->waves; w++)
        for (size_t k = 0; k < STAGED_VALUES; k++)
            to[k] += f->model[w][k];
    for (size_t k = 0; k < STAGED_VALUES; k++)
        to[k] *= 1 / (float)f->waves;
}

static inline void follower_one_step(follower *f, int t)
{
    const int late = t - f->waves + 1;

    if (f->mode != AVERAGE) {
        follower_mean(f, (uint64_t)t, -1, f->mode == SHARED ? f->x[late > 0 ? late : 0] : f->x[t]);
        memcpy(f->x[t + 1], f->x[t], sizeof f->more);
        follower_update(f, 0, f->x[t + 1]);
        return;
    }
    for (int w = 0; w < f->waves; w++)
        if (follower_mean(f, (uint64_t)t, w, f->model[w]))
            follower_update(f, w, f->model[w]);
    if ((t + 1) % f->rounds == 0) {
        follower_mean_of_models(f, f->x[t + 1]);
        for (int w = 0; w < f->waves; w++)
            memcpy(f->model[w], f->x[t + 1], sizeof f->more);
    } else
        follower_mean_of_models(f, f->x[t + 1]);
}

/* For a run with these options (optimizer, batch, accumulate, samples, seed). */
static inline void follower_set(follower *f, const tutti_engine_options *o, int ranks, int stages,
                                int waves, int mode, int rounds)
{
    const int64_t share = mode == SHARED ? 1 : waves,
                  accumulate = o->accumulate > 0 ? o->accumulate : 1;

    f->optimizer = o->optimizer;
    f->pipelines = ranks / stages;
    f->stages = stages;
    f->waves = waves;
    f->mode = mode;
    f->rounds = rounds;
    f->share = (tutti_share){ .samples = o->data_samples, .workers = f->pipelines,
                              .batch = o->batch / share,
                              .accumulate = accumulate * stages * share, .seed = o->seed };
}

static inline bool follower_open(follower *f)
{
    bool well = tutti_device_open_host(&f->device, NULL, tutti_cpu_best(), NULL) == TUTTI_OK &&
                tutti_plan_open(&f->plan, STAGED_VALUES, NULL) == TUTTI_OK;

    for (int w = 0; w < f->waves && well; w++) {
        char prefix[16];
        snprintf(prefix, sizeof prefix, "o%d", w);
        well = tutti_optim_declare(&f->optim[w], f->plan, f->optimizer, prefix, 0, STAGED_VALUES,
                                   TUTTI_OWN_ZERO, f->device, NULL) == TUTTI_OK;
    }
    return well && tutti_plan_carry_out(f->plan, NULL, NULL) == TUTTI_OK;
}

/* x[steps] is the model at its end. false: no memory, or a wrong optimizer. */
static inline bool follower_run(follower *f, int steps)
{
    const bool well = follower_open(f);

    for (int k = 0; k < 2 * UNITS; k++)
        staged_initial(NULL, k, f->x[0] + (size_t)k * WIDTH);
    for (int w = 0; w < f->waves; w++)
        memcpy(f->model[w], f->x[0], sizeof f->more);
    for (int t = 0; t < steps && well; t++)
        follower_one_step(f, t);
    for (int w = 0; w < f->waves; w++)
        tutti_optim_close(f->optim[w]);
    tutti_plan_close(f->plan);
    tutti_device_close(f->device);
    return well;
}
#endif
