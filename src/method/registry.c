/* registry.c: the built-in methods, a line each. A test compares this list with the files of the folder. */
#include <string.h>

#include "tutti/method.h"

extern const tutti_method_ops tutti_method_ad_psgd, tutti_method_d_psgd, tutti_method_ddp, tutti_method_hetero_ring, tutti_method_gradient_sparsification, tutti_method_local_sgd, tutti_method_nuqsgd, tutti_method_onebit_adam,
    tutti_method_powersgd, tutti_method_qsgd, tutti_method_single, tutti_method_stragglar;

const tutti_method_ops *const tutti_methods[] = {
    &tutti_method_single,
    &tutti_method_ddp,
    &tutti_method_local_sgd,
    &tutti_method_d_psgd,
    &tutti_method_ad_psgd,
    &tutti_method_hetero_ring,
    &tutti_method_stragglar,
    &tutti_method_powersgd,
    &tutti_method_qsgd,
    &tutti_method_nuqsgd,
    &tutti_method_gradient_sparsification,
    &tutti_method_onebit_adam,
    NULL
};

const tutti_method_ops *tutti_method_find(const char *name)
{
    for (size_t i = 0; tutti_methods[i] != NULL; i++)
        if (strcmp(tutti_methods[i]->name, name) == 0)
            return tutti_methods[i];
    return NULL;
}
