/* flushed.h: steps of heterps (docs/methods/heterps.md) as one loop over whole gradients of the
   model of engine/staged_model.h: for each stage each worker's own sum, and their sum. */
#ifndef TUTTI_TESTS_FLUSHED_H
#define TUTTI_TESTS_FLUSHED_H
#include <stdio.h>

#include "engine/staged_model.h"
#include "state/plan.h"
#include "base/machine.h"
#include "kernels/device.h"

enum { MATES_MOST = 8 };
typedef struct flushed {
    /* what is asked for */
    const char *optimizer;
    int count, first[UNITS + 1], width[UNITS], steps;
    bool table;
    tutti_share share;           /* of one worker, in micro-batches */

    float x[STAGED_VALUES];      /* the model at which all arrive */

    tutti_plan *plan;
    tutti_device *device;
    tutti_optim *optim;
    float sum[MATES_MOST][STAGED_VALUES]; /* of the worker of that number in each stage */
    float y[UNITS + 1][SAMPLES_MOST * WIDTH], target[SAMPLES_MOST * WIDTH], d[SAMPLES_MOST * WIDTH];
} flushed;

static inline int flushed_of(const flushed *s, int unit)
{
    int q = 0;

    while (unit >= s->first[q + 1])
        q++;
    return q;
}

static inline void flushed_micro_batch(flushed *s, const tutti_pass *p)
{
    uint32_t ids[TABLE_ROWS];
    bool named[WIDTH];
    float w0[WIDTH];

    staged_named(p, ids, named);
    staged_masked(s->x + staged_place(0, false), named, w0);
    staged_draw(&s->share, p, 1, s->y[0]);
    staged_draw(&s->share, p, 2, s->target);
    for (int u = 0; u < UNITS; u++)
        staged_unit_forward(u == 0 && s->table ? w0 : s->x + staged_place(u, false),
                            s->x + staged_place(u, true), p->samples, s->y[u], s->y[u + 1]);
    staged_loss(s->target, s->y[UNITS], (size_t)p->samples * WIDTH, (double)p->divisor, s->d);
    for (int u = UNITS - 1; u >= 0; u--) {
        float *const g = s->sum[p->index % s->width[flushed_of(s, u)]];
        staged_unit_backward(s->x + staged_place(u, false), p->samples, s->y[u], s->y[u + 1], s->d,
                             true, u == 0 && s->table ? named : NULL, g + staged_place(u, false),
                             g + staged_place(u, true), u > 0 ? s->d : NULL);
    }
}

/* Sums a stage's gradients in pairs, and pairs of pairs. */
static inline void flushed_add(flushed *s, int q)
{
    for (int u = s->first[q]; u < s->first[q + 1]; u++)
        for (int stride = 1; stride < s->width[q]; stride *= 2)
            for (int j = 0; j + stride < s->width[q]; j += 2 * stride)
                for (size_t i = 0, at = staged_place(u, true); i < 2 * WIDTH; i++, at++)
                    s->sum[j][at] += s->sum[j + stride][at];
}

static inline void flushed_step(flushed *s, uint64_t step)
{
    memset(s->sum, 0, sizeof s->sum);
    for (int64_t i = 0; i < s->share.accumulate; i++) {
        tutti_pass p = { .index = i };
        p.samples = tutti_share_pass(&s->share, step, 0, i, &p.epoch, &p.position);
        p.divisor = tutti_share_step(&s->share, step, -1);
        if (p.samples > 0)
            flushed_micro_batch(s, &p);
    }
    for (int q = 0; q < s->count; q++)
        flushed_add(s, q);
    tutti_update(s->optim, 0, STAGED_VALUES, s->x, s->sum[0],
                 &(tutti_rate){ tutti_optim_lr(s->optim), 1, step + 1 });
}

/* Leaves in x the model at the end of the run. false: no memory, or a wrong optimizer. */
static inline bool flushed_run(flushed *s)
{
    const bool well = tutti_device_open_host(&s->device, NULL, tutti_cpu_best(), NULL) ==
                          TUTTI_OK &&
                      tutti_plan_open(&s->plan, STAGED_VALUES, NULL) == TUTTI_OK &&
                      tutti_optim_declare(&s->optim, s->plan, s->optimizer, "o", 0, STAGED_VALUES,
                                          TUTTI_OWN_ZERO, s->device, NULL) == TUTTI_OK &&
                      tutti_plan_carry_out(s->plan, NULL, NULL) == TUTTI_OK;

    for (int k = 0; k < 2 * UNITS; k++)
        staged_initial(NULL, k, s->x + (size_t)k * WIDTH);
    for (int step = 0; step < s->steps && well; step++)
        flushed_step(s, (uint64_t)step);
    tutti_optim_close(s->optim);
    tutti_plan_close(s->plan);
    tutti_device_close(s->device);
    return well;
}

/* The schedule as `tutti plan stages` writes it. */
static inline void flushed_text(const flushed *s, const char *model, char *text, size_t bytes)
{
    size_t at = (size_t)snprintf(
        text, bytes, "{\"schema\": \"tutti-stages-1\", \"model\": \"%s\", \"stages\": [", model);

    for (int q = 0; q < s->count; q++)
        at += (size_t)snprintf(text + at, bytes - at,
                               "%s{\"type\": \"%s\", \"first_layer\": %d, \"end_layer\": %d, "
                               "\"units\": %d, "
                               "\"sparse\": %s, \"first_unit\": %d, \"end_unit\": %d}",
                               q > 0 ? ", " : "", q % 2 == 0 ? "a" : "b", q, q + 1, s->width[q],
                               q == 0 && s->table ? "true" : "false", s->first[q], s->first[q + 1]);
    snprintf(text + at, bytes - at, "]}");
}
#endif
