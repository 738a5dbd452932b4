/* rule.h: access to options of the run's optimiser, for methods that need their values (dgc, gut,
   slowmo, quasi-global.h). All of it is in this file. */
#ifndef TUTTI_METHOD_RULE_H
#define TUTTI_METHOD_RULE_H
#include <string.h>
#include "tutti/method.h"

/* A smaller learning rate counts as 0, and nothing is divided by it. */
#define RULE_LEAST_RATE 1e-12

/* Returns an option of type TUTTI_REAL. The optimiser must have an option of that name. */
static inline double rule_real(const tutti_optim *o, const char *option)
{
    const char *at = (const char *)o->self + tutti_option_find(o->ops->options, option)->offset;
    double value;

    memcpy(&value, at, sizeof value);
    return value;
}

/* Returns an option of type TUTTI_BOOL. The optimiser must have an option of that name. */
static inline bool rule_flag(const tutti_optim *o, const char *option)
{
    return *((const bool *)o->self + tutti_option_find(o->ops->options, option)->offset);
}
#endif
