/* platform.h: descriptions of clusters for simulated runs. A spec of a cluster's shape, of those
   that papers use, is written as a SimGrid platform (XML, version 4.1). Implemented in platform.c.
   Included by the command (src/cli/platform.c, plan_measure.c). Hosts are named w0, w1, ..., with
   leading zeros, so that their order by name is that of their numbers; worker i runs on host i. */
#ifndef TUTTI_PLATFORM_H
#define TUTTI_PLATFORM_H
#include "tutti/base.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* Writes the platform of a spec, as "cluster(n=64,rate=25Gbps,latency=10us)", to `out` at its
   position, without flushing. The same spec gives the same bytes. TUTTI_ERR_USAGE: an invalid spec;
   nothing is written. */
tutti_status tutti_platform_print(FILE *out, const char *spec, tutti_error *err);

/* Gets shape i, from 0, of the table of shapes: its name in a spec, a title and its options, all
   constant. For help and docs. false: i is beyond the last. */
bool tutti_platform_shape(int i, const char **name, const char **title,
                          const tutti_option **options);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
