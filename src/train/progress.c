/* progress.c: how much of a run is done and how much there is, in samples, epochs and
   evaluations. */
#include <math.h>

#include "train_internal.h"

static uint64_t held_out(const tutti_run *run)
{
    const double asked = run->config->validation,
                 set = (double)tutti_data_shape_of(run->data)->samples[TUTTI_TRAIN];

    return asked > 0 && asked < 1 ? (uint64_t)fmax(1, asked * set) : (uint64_t)asked;
}

uint64_t tutti_train_samples(const tutti_run *run)
{
    return tutti_data_shape_of(run->data)->samples[TUTTI_TRAIN] - held_out(run);
}

tutti_status tutti_train_check_validation(const tutti_run *run, tutti_error *err)
{
    const uint64_t samples = tutti_data_shape_of(run->data)->samples[TUTTI_TRAIN];

    if (held_out(run) >= samples)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "validation is %.12g, but the training set has %llu samples; leave some to train on",
            run->config->validation, (unsigned long long)samples);
    return TUTTI_OK;
}

double tutti_train_epochs(const tutti_run *run)
{
    tutti_figures f;

    tutti_train_figures(run, &f);
    return run->variable_batch ? (double)f.samples / (double)tutti_train_samples(run)
                      : (double)tutti_engine_method(run->engine)->step / run->steps_per_epoch;
}

double tutti_train_left(const tutti_run *run)
{
    tutti_figures f;
    uint64_t done, all;

    tutti_train_figures(run, &f);
    done = run->variable_batch ? f.samples - run->first_samples
                               : tutti_engine_method(run->engine)->step - run->first_step;
    all = run->variable_batch ? run->samples_in_all - run->first_samples
                              : run->steps - run->first_step;
    return done > 0 && all > done ? (double)(all - done) / (double)done : 0;
}

uint64_t tutti_train_evaluates_every(const tutti_run *run)
{
    const tutti_train_config *c = run->config;

    if (run->measured != NULL) /* there is nothing to evaluate */
        return 0;
    return c->eval_every > 0                    ? (uint64_t)c->eval_every * run->step_gradients
           : run->is_async && c->target[0] == 0 ? 0
                                                : tutti_share_steps(&run->share);
}

uint64_t tutti_train_samples_between(const tutti_run *run)
{
    const tutti_train_config *c = run->config;
    const double samples =
        (double)c->eval_every * (double)c->batch * (double)c->accumulate * run->workers;

    return c->eval_every == 0 ? tutti_train_samples(run)
           : samples < 1e18   ? (uint64_t)samples
                              : UINT64_MAX;
}

bool tutti_train_evaluates(const tutti_run *run)
{
    const tutti_train_config *c = run->config;
    const uint64_t every = tutti_train_evaluates_every(run);

    return c->final_eval != TUTTI_FINAL_EVAL_OFF || c->target[0] != 0 ||
           (run->variable_batch ? run->samples_in_all > tutti_train_samples_between(run)
                       : every > 0 && every < run->gradients_in_all);
}

uint64_t tutti_train_first_of_run(const tutti_run *run, const tutti_pass *pass)
{
    return run->parts.first != NULL ? (uint64_t)run->rank << 48 | pass->position
                                    : pass->epoch * tutti_train_samples(run) + pass->position;
}
