/* init.c: --init: a run begins with the weights of a file. Rank 0 reads each tensor when the engine
   requests its initial values, and the engine distributes them as it distributes random initial
   values. So this works with every method and number of workers. Running statistics, which each
   worker has for itself, are broadcast. A run that begins with a state ignores the file. */
#include <errno.h>

#include "train_internal.h"
#include "weights.h"

static bool wanted(const tutti_run *run)
{
    return run->config->init[0] != 0 && run->config->resume[0] == 0 && run->dry == NULL &&
           run->epoch.from == NULL;
}

tutti_status tutti_train_init_open(tutti_run *run, tutti_error *err)
{
    const tutti_tensors of = { run->params, run->n_params, run->statistics, run->n_statistics };

    run->init.status = TUTTI_OK;
    return wanted(run) && run->rank == 0
               ? tutti_fail_within(err,
                                   tutti_data_given(tutti_train_weights_open(
                                                        &run->init.file, run->rt, run->config->init,
                                                        run->config->model, &of, err),
                                                    err),
                                   "init")
               : TUTTI_OK;
}

void tutti_train_init_read(tutti_run *run, int tensor, float *values)
{
    const tutti_nn_param *p = &run->params[tensor];

    if (run->init.status == TUTTI_OK)
        run->init.status =
            tutti_data_given(tutti_train_weights_read(run->init.file, run->config->init, p->name,
                                                      p->count, values, &run->init.err),
                             &run->init.err);
}

tutti_status tutti_train_init_settle(tutti_run *run, tutti_error *err)
{
    size_t count = 0;
    float *all;
    tutti_status status = run->init.status;

    if (!wanted(run))
        return TUTTI_OK;
    if (status != TUTTI_OK)
        return tutti_fail(err, status, 0, "init: %s", run->init.err.text);
    for (int k = 0; k < run->n_statistics; k++)
        count += run->statistics[k].count;
    if (count == 0)
        return TUTTI_OK;
    all = tutti_alloc(count, sizeof *all);
    if (all == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for %zu running statistics",
                          count);
    for (int k = 0; k < run->n_statistics && run->init.file != NULL && status == TUTTI_OK; k++)
        status = tutti_data_given(
            tutti_train_weights_read(run->init.file, run->config->init, run->statistics[k].name,
                                     run->statistics[k].count, all + run->statistics[k].first, err),
            err);
    if (status == TUTTI_OK)
        status = tutti_broadcast(&run->all, 0, tutti_host(all, count, TUTTI_F32), err);
    for (size_t i = 0;
         i < count && status == TUTTI_OK && tutti_engine_client_state(run->engine) != NULL; i++)
        tutti_engine_client_state(run->engine)[i] = all[i];
    tutti_free(all);
    return status;
}

void tutti_train_init_close(tutti_run *run)
{
    tutti_safetensors_close(run->init.file);
    run->init.file = NULL;
}
