/* recursion.h: hetpipe's recursion at distance 0 (docs/methods/hetpipe.md), as one loop over whole
   gradients of the model of engine/staged_model.h. */
#ifndef TUTTI_TESTS_RECURSION_H
#define TUTTI_TESTS_RECURSION_H
#include <stdio.h>

#include "engine/staged_model.h"
#include "state/plan.h"
#include "base/machine.h"
#include "kernels/device.h"

enum { PIPELINES_MOST = 8, WINDOW_MOST = 8 };
typedef struct recursion {
    /* what is asked for */
    const char *optimizer;
    int pipelines, window, steps, waves; /* waves: of a step */
    bool sum;                            /* waves are added as they are, not their mean */
    tutti_share share;                   /* of pipelines, in micro-batches */

    /* w_p at p mod window; what servers have; the model at which all arrive */
    float version[PIPELINES_MOST][WINDOW_MOST][STAGED_VALUES], server[STAGED_VALUES];

    tutti_plan *plan;
    tutti_device *device;
    tutti_optim *optim[PIPELINES_MOST];
    uint64_t updates[PIPELINES_MOST];
    float y[UNITS + 1][SAMPLES_MOST * WIDTH], target[SAMPLES_MOST * WIDTH], d[SAMPLES_MOST * WIDTH];
    float g[STAGED_VALUES], before[STAGED_VALUES], diff[STAGED_VALUES];
} recursion;

/* The gradient of that micro-batch at x, of the whole model. */
static inline void recursion_gradient(recursion *r, const tutti_pass *p, const float *x)
{
    staged_draw(&r->share, p, 1, r->y[0]);
    staged_draw(&r->share, p, 2, r->target);
    for (int u = 0; u < UNITS; u++)
        staged_unit_forward(x + staged_place(u, false), x + staged_place(u, true), p->samples,
                            r->y[u], r->y[u + 1]);
    staged_loss(r->target, r->y[UNITS], (size_t)p->samples * WIDTH, (double)p->divisor, r->d);
    for (int u = UNITS - 1; u >= 0; u--)
        staged_unit_backward(x + staged_place(u, false), p->samples, r->y[u], r->y[u + 1], r->d,
                             false, NULL, r->g + staged_place(u, false),
                             r->g + staged_place(u, true),
                             u > 0 ? r->d : NULL);
}

/* Micro-batch p of pipeline v, from 1 on: w_p. */
static inline void recursion_micro_batch(recursion *r, int v, int64_t p)
{
    const int64_t passes = r->share.accumulate;
    float *const to = r->version[v][p % r->window];
    const float *const from = r->version[v][(p - 1) % r->window];
    tutti_pass pass = { .index = (p - 1) % passes };

    pass.samples = pass.divisor = tutti_share_pass(&r->share, (uint64_t)((p - 1) / passes), v,
                                                   pass.index, &pass.epoch, &pass.position);
    if (pass.samples > 0)
        recursion_gradient(r, &pass, to); /* at w_{p-W} */
    memmove(to, from, sizeof r->server);
    if (pass.samples > 0)
        tutti_update(r->optim[v], 0, STAGED_VALUES, to, r->g,
                     &(tutti_rate){ tutti_optim_lr(r->optim[v]), 1, ++r->updates[v] });
}

static inline bool recursion_open(recursion *r)
{
    bool well = tutti_device_open_host(&r->device, NULL, tutti_cpu_best(), NULL) == TUTTI_OK &&
                tutti_plan_open(&r->plan, STAGED_VALUES, NULL) == TUTTI_OK;

    for (int v = 0; v < r->pipelines && well; v++) {
        char prefix[16];
        snprintf(prefix, sizeof prefix, "o%d", v);
        well = tutti_optim_declare(&r->optim[v], r->plan, r->optimizer, prefix, 0, STAGED_VALUES,
                                   TUTTI_OWN_ZERO, r->device, NULL) == TUTTI_OK;
    }
    return well && tutti_plan_carry_out(r->plan, NULL, NULL) == TUTTI_OK;
}

/* Leaves in `server` the model at the end of the run. false: no memory, or a wrong optimizer. */
static inline bool recursion_run(recursion *r)
{
    const float share = r->sum ? 1 : 1.0F / (float)r->pipelines;
    const bool well = recursion_open(r);

    for (int k = 0; k < 2 * UNITS; k++)
        staged_initial(NULL, k, r->server + (size_t)k * WIDTH);
    for (int v = 0; v < r->pipelines; v++)
        for (int j = 0; j < r->window; j++)
            memcpy(r->version[v][j], r->server, sizeof r->server);
    for (int64_t c = 0; c < (int64_t)r->steps * r->waves && well; c++) {
        memcpy(r->before, r->server, sizeof r->server);
        for (int v = 0; v < r->pipelines; v++) {
            for (int64_t p = c * r->window + 1; p <= (c + 1) * r->window; p++)
                recursion_micro_batch(r, v, p);
            tutti_diff(r->device, STAGED_VALUES, share, r->version[v][0], r->before, r->diff);
            tutti_add(r->device, STAGED_VALUES, r->diff, r->server);
        }
        if (r->pipelines == 1) /* no other pipeline adds to it */
            memcpy(r->server, r->version[0][0], sizeof r->server);
        for (int v = 0; v < r->pipelines; v++)
            memcpy(r->version[v][0], r->server, sizeof r->server);
    }
    for (int v = 0; v < r->pipelines; v++)
        tutti_optim_close(r->optim[v]);
    tutti_plan_close(r->plan);
    tutti_device_close(r->device);
    return well;
}
#endif
