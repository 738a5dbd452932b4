/* registry.c: the built-in methods, a line each. A test compares this
   list with the files of the folder. */
#include <string.h>

#include "tutti/method.h"

extern const tutti_method_ops tutti_method_accordion, tutti_method_ad_psgd, tutti_method_alq, tutti_method_amq,
    tutti_method_asgd, tutti_method_asr_adpsgd, tutti_method_ata, tutti_method_backup_workers, tutti_method_d_psgd,
    tutti_method_ddp, tutti_method_dgc, tutti_method_dude_asgd, tutti_method_gradient_sparsification,
    tutti_method_h_adpsgd, tutti_method_hermes, tutti_method_hetero_ring, tutti_method_lasgd, tutti_method_local_sgd,
    tutti_method_nuqsgd, tutti_method_onebit_adam, tutti_method_oscars, tutti_method_parameter_server,
    tutti_method_powersgd, tutti_method_qadam, tutti_method_qsgd, tutti_method_rand_psgd, tutti_method_ringleader_asgd,
    tutti_method_ringmaster_asgd, tutti_method_sgp, tutti_method_signum, tutti_method_single, tutti_method_ssp,
    tutti_method_stragglar;

const tutti_method_ops *const tutti_methods[] = {
    &tutti_method_single,
    &tutti_method_ddp,
    &tutti_method_parameter_server,
    &tutti_method_local_sgd,
    &tutti_method_lasgd,
    &tutti_method_d_psgd,
    &tutti_method_sgp,
    &tutti_method_ad_psgd,
    &tutti_method_rand_psgd,
    &tutti_method_asr_adpsgd,
    &tutti_method_h_adpsgd,
    &tutti_method_asgd,
    &tutti_method_ssp,
    &tutti_method_backup_workers,
    &tutti_method_ringmaster_asgd,
    &tutti_method_ringleader_asgd,
    &tutti_method_dude_asgd,
    &tutti_method_hermes,
    &tutti_method_oscars,
    &tutti_method_hetero_ring,
    &tutti_method_ata,
    &tutti_method_stragglar,
    &tutti_method_powersgd,
    &tutti_method_qsgd,
    &tutti_method_nuqsgd,
    &tutti_method_alq,
    &tutti_method_amq,
    &tutti_method_gradient_sparsification,
    &tutti_method_dgc,
    &tutti_method_accordion,
    &tutti_method_onebit_adam,
    &tutti_method_qadam,
    &tutti_method_signum,
    NULL
};

const tutti_method_ops *tutti_method_find(const char *name)
{
    for (size_t i = 0; tutti_methods[i] != NULL; i++)
        if (strcmp(tutti_methods[i]->name, name) == 0)
            return tutti_methods[i];
    return NULL;
}

bool tutti_method_traits(const char *text, unsigned *traits)
{
    const tutti_method_ops *ops = NULL;
    bool right = false;
    tutti_spec *spec;
    void *self = NULL;

    *traits = 0;
    if (tutti_spec_open(&spec, text, NULL) != TUTTI_OK)
        return false;
    ops = tutti_method_find(tutti_spec_name(spec));
    if (ops != NULL)
        self = tutti_alloc(ops->self_bytes + (ops->self_bytes == 0), 1);
    if (self != NULL)
        right = tutti_spec_apply(spec, "method", ops->options, self, NULL) == TUTTI_OK;
    if (right)
        *traits = ops->traits_of != NULL ? ops->traits_of(self) : ops->traits;
    tutti_free(self);
    tutti_spec_close(spec);
    return right;
}
