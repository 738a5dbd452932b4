/* check.h: checks of single engine options, for a front end that refuses them before it starts
   workers. Implemented by options.c and scaler.c. */
#ifndef TUTTI_ENGINE_CHECK_H
#define TUTTI_ENGINE_CHECK_H
#include "tutti/tutti.h"
#pragma GCC visibility push(default)

/* TUTTI_ERR_USAGE: `collective` is neither "auto" nor "allgather" nor "alltoall" nor an algorithm
   for that number of workers. */
tutti_status tutti_collective_check(const char *collective, int workers, tutti_error *err);

/* TUTTI_ERR_USAGE: `text` is not a valid value of the option loss_scale. */
tutti_status tutti_loss_scale_check(const char *text, tutti_error *err);
#pragma GCC visibility pop
#endif
