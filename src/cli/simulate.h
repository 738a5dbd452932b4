/* simulate.h: the simulated workers of `tutti train`. Implemented in simulate.c. Included by
   train.c. */
#ifndef TUTTI_CLI_SIMULATE_H
#define TUTTI_CLI_SIMULATE_H
#include "cli_internal.h"

/* Runs all of them, in this process. started_ns: when the command began. Returns the exit code;
   a failure is printed. Blocks. */
int tutti_cli_simulate(tutti_cli_settings *s, int64_t started_ns, tutti_error *err);
#endif
