/* rule.h: what methods read from the run's optimiser. */
#ifndef TUTTI_METHOD_RULE_H
#define TUTTI_METHOD_RULE_H
#include <string.h>
#include "tutti/method.h"

/* A learning rate below it counts as 0: nothing is divided by it. */
#define RULE_LEAST_RATE 1e-12

/* A numeric option of the optimiser, which must have it. */
static inline double rule_real(const tutti_optim *o, const char *option)
{
    const char *at = (const char *)o->self + tutti_option_find(o->ops->options, option)->offset;
    double value;

    memcpy(&value, at, sizeof value);
    return value;
}

static inline bool rule_flag(const tutti_optim *o, const char *option)
{
    return *((const bool *)o->self + tutti_option_find(o->ops->options, option)->offset);
}
#endif
