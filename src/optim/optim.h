/* optim.h: optimisers as the engine and servers use them. Implemented by optim.c and registry.c. */
#ifndef TUTTI_OPTIM_OPTIM_H
#define TUTTI_OPTIM_OPTIM_H
#include "tutti/method.h"
#pragma GCC visibility push(default)

extern const tutti_optim_ops *const tutti_optims[]; /* registry; NULL-ended */
bool tutti_optim_by_rows(const tutti_optim *o); /* false for NULL */
bool tutti_optim_lazy(const tutti_optim *o);    /* likewise */
#pragma GCC visibility pop
#endif
