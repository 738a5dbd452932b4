/* spot.h: when the hosts of a simulated cluster are taken away and given back, as spot instances
   are: a text that a seed determines. Implemented in spot.c. Included by the command
   (src/cli/platform.c). The simulator reads such a text as `fail=@FILE` (src/sim/trace.c). */
#ifndef TUTTI_PLATFORM_SPOT_H
#define TUTTI_PLATFORM_SPOT_H
#include "tutti/base.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* The name in a spec, and its options. */
#define TUTTI_SPOT_NAME "spot"
extern const tutti_option tutti_spot_options[];

/* Writes the trace of a spec, as "spot(n=64,places=8,hours=2)", to `out`: lines "SECONDS WORKER
   down|up" in ascending order of time, after comments. A worker is up at the beginning, and its
   lines alternate. The same spec gives the same bytes. TUTTI_ERR_USAGE: an invalid spec; nothing is
   written. */
tutti_status tutti_spot_print(FILE *out, const char *spec, tutti_error *err);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
