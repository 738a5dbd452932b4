#include <math.h>
#include <string.h>
#include "logical_job.h"
#include "rough.h"

static const size_t count[TENSORS] = { 700, 33, 337, 131 };

static void fill(void *user, int tensor, float *values)
{
    (void)user;
    for (size_t i = 0; i < count[tensor]; i++)
        values[i] = (float)tutti_uniform((tutti_rng){ 9, 100 + (uint64_t)tensor, 0 }, i) - 0.5f;
}

static int unit_of(int tensor)
{
    return TENSORS - 1 - tensor;
}

tutti_status job_values(tutti_engine *e, float x[SIZE], tutti_error *err)
{
    const tutti_layout *layout = tutti_engine_method(e)->layout;

    for (int k = TENSORS - 1; k >= 0; k--) {
        TUTTI_TRY(tutti_engine_unit_acquire(e, unit_of(k), false, err));
        memcpy(x + layout->tensor[k].first, tutti_engine_values(e, k), count[k] * sizeof *x);
        TUTTI_TRY(tutti_engine_unit_release(e, unit_of(k), false, err));
    }
    return TUTTI_OK;
}

static tutti_status forward(tutti_engine *e, tutti_error *err)
{
    for (int u = 0; u < TENSORS; u++) {
        TUTTI_TRY(tutti_engine_unit_acquire(e, u, false, err));
        TUTTI_TRY(tutti_engine_unit_release(e, u, false, err));
    }
    return TUTTI_OK;
}

static tutti_status announce(job *j, tutti_engine *e, const tutti_pass *p, int k, tutti_error *err)
{
    const uint64_t step = tutti_engine_method(e)->step;
    float own[700], *const whole = tutti_engine_gradient(e, k), *const g = whole != NULL ? whole : own;

    for (size_t i = 0; i < count[k]; i++) {
        float sum = 0;
        for (int64_t s = 0; s < p->samples; s++) {
            const uint64_t at = p->position + (uint64_t)s;
            sum += rough(p->epoch, at, i + (size_t)k * 1000) +
                   ((int)at == j->bad_position && (int)step == j->bad_step && i == 7 ? INFINITY : 0);
        }
        sum = p->samples > 0 ? sum * (float)p->scale / (float)p->divisor : 0;
        g[i] = p->keep ? g[i] + sum : sum;
    }
    return whole != NULL ? tutti_engine_grad_ready(e, k, err)
                         : tutti_engine_grad_ready_from(e, k, own, TUTTI_F32, err);
}

float job_moves(float own, uint64_t epoch, uint64_t position, size_t i)
{
    return 0.75f * own + 0.25f * rough(epoch, position, 5000 + i);
}

tutti_status job_step(job *j, tutti_engine *e, tutti_error *err)
{
    tutti_pass p;
    tutti_status status;

    while ((status = tutti_engine_pass_begin(e, &p, err)) == TUTTI_OK) {
        for (int64_t s = 0; s < p.samples && p.epoch == 0; s++)
            j->taken[p.position + (uint64_t)s]++;
        for (size_t i = 0; i < j->options.own_values && p.samples > 0; i++) {
            float *own = tutti_engine_client_state(e);
            own[i] = job_moves(own[i], p.epoch, p.position, i);
        }
        TUTTI_TRY(forward(e, err));
        for (int k = 0; k < TENSORS; k++) {
            TUTTI_TRY(tutti_engine_unit_acquire(e, unit_of(k), true, err));
            TUTTI_TRY(announce(j, e, &p, k, err));
            TUTTI_TRY(tutti_engine_unit_release(e, unit_of(k), true, err));
        }
        TUTTI_TRY(tutti_engine_pass_end(e, (double)p.samples, err));
    }
    return status == TUTTI_CLOSED ? tutti_engine_step(e, err) : status;
}

tutti_status job_open(tutti_engine **e, tutti_world *world, job *j, tutti_error *err)
{
    static const char *const names[TENSORS] = { "d", "c", "b", "a" };
    tutti_param params[TENSORS];
    tutti_engine_options options = j->options;

    for (int k = 0; k < TENSORS; k++)
        params[k] = (tutti_param){ .name = names[k], .dims = 1, .dim = { count[k] }, .unit = unit_of(k) };
    if (j->matrices) {
        params[0] = (tutti_param){ .name = names[0], .dims = 2, .dim = { 28, 25 }, .unit = unit_of(0) };
        params[1] = (tutti_param){ .name = names[1], .dims = 2, .dim = { 3, 11 }, .unit = unit_of(1) };
    }
    options.initial = fill;
    options.user = j;
    return tutti_engine_open(e, world, params, TENSORS, &options, err);
}

job job_of(const char *method, int shares)
{
    return (job){ .options = { .method = method, .optimizer = "sgd(lr=0.1,momentum=0.9)", .batch = 2,
                               .data_samples = SAMPLES, .seed = 3, .elastic_shares = shares,
                               .needs = true, .same_order = true },
                  .bad_position = -1, .bad_step = -1 };
}
