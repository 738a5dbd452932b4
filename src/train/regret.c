/* regret.c: the dynamic regret of a run on a problem whose optimum is known,
       R = sum over steps t and workers i of f_t(x_i) - f_t(x*_t),
   where x_i is the model of worker i when step t begins, and x*_t the optimum at step t, which
   drifts. f_t is computed from the problem, not from the samples that were drawn. Asynchronous
   workers have no steps in common, so the sum is not defined for them. */
#include <errno.h>

#include "sums.h"
#include "train_internal.h"

tutti_status tutti_train_regret_open(tutti_run *run, tutti_error *err)
{
    const tutti_problem_set *set = tutti_problem_named(run->config->data);
    tutti_problem p;

    if (run->measured != NULL || run->is_async || tutti_train_serves(run) || set == NULL ||
        set->kind != TUTTI_PROBLEM_QUADRATIC)
        return TUTTI_OK;
    TUTTI_TRY(tutti_problem_read(&p, run->config->data, "data", NULL, err));
    run->optimum = tutti_alloc(run->parameters, sizeof *run->optimum);
    run->curvature = tutti_alloc(run->parameters, sizeof *run->curvature);
    if (run->optimum == NULL || run->curvature == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for the optimum of %zu values",
                          run->parameters);
    tutti_problem_spectrum(p.dim, p.condition, run->curvature);
    return TUTTI_OK;
}

void tutti_train_regret_add(tutti_run *run, uint64_t step)
{
    const float *x;
    double sum = 0;

    if (run->optimum == NULL || !tutti_data_optimum(run->data, step, run->optimum))
        return;
    x = run->values[0];
    for (size_t j = 0; j < run->parameters; j++) {
        const double d = (double)x[j] - (double)run->optimum[j];
        sum += run->curvature[j] * d * d / 2;
    }
    tutti_train_sums_regret(run, sum);
}

void tutti_train_regret_close(tutti_run *run)
{
    tutti_free(run->optimum);
    tutti_free(run->curvature);
    run->optimum = NULL;
    run->curvature = NULL;
}
