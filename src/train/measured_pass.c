/* measured_pass.c: the passes of a measured network in a simulated run. They compute nothing, but
   take the measured time, and call the hooks that a pass through a network calls when the measured
   one reached that place. Gradients are random, as in a planned run (dry.c).

   The time is that of the file's batch; passes over other numbers of samples cost in proportion.
   --step-time S makes forward and backward together take S. An update took its time once in a step,
   after the exchange and before the next forward; so the first pass of a step begins with it. What
   the simulated update itself costs by the platform's speed comes in addition. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "train_internal.h"
#include "collective/world.h"

tutti_status tutti_measured_check(const tutti_train_config *c, bool planned, tutti_error *err)
{
    const struct {
        const char *name;
        bool given;
    } refused[] = {
        { "validation", c->validation > 0 },
        { "target", c->target[0] != 0 },
        { "init", c->init[0] != 0 },
        { "resume", c->resume[0] != 0 },
        { "checkpoint-every", c->checkpoint_every > 0 },
        { "precision", c->precision != TUTTI_PRECISION_FP32 },
    };

    if (!tutti_measured_named(c->model))
        return TUTTI_OK;
    if (!planned || !tutti_world_simulated(c->transport) || c->final_eval != TUTTI_FINAL_EVAL_OFF)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "model is '%.120s', which has the shapes and times of a network and none "
                          "of its layers, so that it cannot train; `tutti plan` simulates methods "
                          "with it",
                          c->model);
    for (size_t i = 0; i < TUTTI_LENGTH(refused); i++)
        if (refused[i].given)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "%s is given, but model '%.120s' has shapes and times alone, and no "
                              "values or losses; leave %s out",
                              refused[i].name, c->model, refused[i].name);
    return TUTTI_OK;
}

uint64_t tutti_measured_activations(const tutti_measured_model *m, int64_t samples)
{
    return (uint64_t)fmin((double)m->activation_bytes * (double)samples / (double)m->batch + 0.5,
                          0x1p62);
}

tutti_status tutti_measured_begin(tutti_run *run, tutti_error *err)
{
    size_t most = 0;

    for (int k = 0; k < run->n_params; k++)
        most = run->params[k].count > most ? run->params[k].count : most;
    run->draws = tutti_train_draws(run);
    if (run->hands_over)
        run->handed = tutti_alloc(most, sizeof *run->handed);
    if (run->draws == NULL || (run->hands_over && run->handed == NULL))
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for the gradients of %.120s",
                          run->config->model);
    for (int k = 0; k < run->n_params && run->hands_over; k++)
        run->gradients[k] = run->handed;
    run->activations = tutti_measured_activations(run->measured, tutti_train_most_samples(run));
    return tutti_engine_use_device(run->engine, run->activations, err);
}

void tutti_measured_end(tutti_run *run)
{
    tutti_free(run->draws);
    tutti_free(run->handed);
    run->draws = run->handed = NULL;
}

/* Where a pass is: in forward, then in backward. */
typedef struct course {
    tutti_run *run;
    const tutti_pass *pass;
    const tutti_batch *batch;
    const tutti_nn_hooks *hooks;
    double ns; /* of virtual time that a second of the file takes */
    double at; /* seconds since forward, or backward, began */
} course;

/* What is pending is paid by the next hook that ends a part of the computation. */
static void spend_until(course *c, double at)
{
    c->run->pending_ns += (at - c->at) * c->ns;
    c->at = at;
}

static tutti_status forward(course *c, tutti_error *err)
{
    const tutti_measured_model *m = c->run->measured;

    spend_until(c, m->needed[0]);
    tutti_train_stretch(c->run);
    for (int u = 0; u < m->units; u++) {
        TUTTI_TRY(c->hooks->unit_acquire(c->hooks->user, u, false, err));
        spend_until(c, u + 1 < m->units ? m->needed[u + 1] : m->forward);
        TUTTI_TRY(c->hooks->unit_release(c->hooks->user, u, false, err));
    }
    return TUTTI_OK;
}

static void write_gradient(const course *c, int k)
{
    const tutti_run *run = c->run;
    const size_t n = run->params[k].count;

    if (c->batch->samples > 0)
        tutti_train_draw_gradient(run, run->draws, c->pass, k,
                                  &(tutti_drawn_gradient){ run->gradients[k], n, c->pass->keep });
    else if (!c->pass->keep)
        memset(run->gradients[k], 0, n * sizeof *run->gradients[k]);
}

static tutti_status backward(course *c, tutti_error *err)
{
    const tutti_measured_model *m = c->run->measured;
    const tutti_nn_param *p = c->run->params;

    c->at = 0;
    for (int k = 0; k < m->n; k++) {
        if (k == 0 || p[k - 1].unit != p[k].unit)
            TUTTI_TRY(c->hooks->unit_acquire(c->hooks->user, p[k].unit, true, err));
        spend_until(c, m->ready[k]);
        write_gradient(c, k);
        TUTTI_TRY(c->hooks->grad_ready(c->hooks->user, k, err));
        if (k == m->n - 1)
            spend_until(c, m->backward);
        if (k == m->n - 1 || p[k + 1].unit != p[k].unit)
            TUTTI_TRY(c->hooks->unit_release(c->hooks->user, p[k].unit, true, err));
    }
    return TUTTI_OK;
}

tutti_status tutti_measured_pass(tutti_run *run, const tutti_pass *pass, const tutti_batch *batch,
                                 const tutti_nn_hooks *hooks, double *loss, tutti_error *err)
{
    const tutti_measured_model *m = run->measured;
    const double given = run->config->step_time, whole = m->forward + m->backward,
                 share = given > 0
                             ? given / whole * (double)batch->samples / (double)run->config->batch
                             : (double)batch->samples / (double)m->batch;
    course c = { run, pass, batch, hooks, share * 1e9, 0 };

    if (pass->index == 0)
        run->pending_ns += m->optimizer * 1e9;
    TUTTI_TRY(forward(&c, err));
    for (int64_t i = 0; pass->losses != NULL && i < batch->samples; i++)
        pass->losses[i] = 1 + tutti_train_drawn(run->draws, (size_t)i);
    *loss = (double)batch->samples;
    return backward(&c, err);
}
