/* registry.c: the optimisers, a line each. A test compares the table with the files of this
   folder. */
#include "optim_internal.h"
#include "optim.h"
#include <string.h>

const tutti_optim_ops *const tutti_optims[] = {
    &tutti_optim_sgd,
    &tutti_optim_adam,
    &tutti_optim_adamw,
    NULL,
};

const tutti_optim_ops *tutti_optim_find(const char *name)
{
    for (size_t i = 0; tutti_optims[i] != NULL; i++)
        if (strcmp(tutti_optims[i]->name, name) == 0)
            return tutti_optims[i];
    return NULL;
}
