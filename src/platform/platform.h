/* platform.h: clusters for simulated runs: specs of the shapes that papers use, written as
   SimGrid platforms (XML, version 4.1). Hosts are named w0, w1 ..., with leading zeros so that
   their order by name is that of their numbers. Worker i belongs on host i. */
#ifndef TUTTI_PLATFORM_H
#define TUTTI_PLATFORM_H
#include "tutti/base.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* Writes the platform of a spec, "cluster(n=64,rate=25Gbps,latency=10us)", to `out` (a file, a
   memory file), at its position; not flushed. The same spec yields the same bytes.
   TUTTI_ERR_USAGE: a bad spec; nothing is written. Allocates. */
tutti_status tutti_platform_print(FILE *out, const char *spec, tutti_error *err);

/* Shape i of the table, for help and docs; false beyond the end. */
bool tutti_platform_shape(int i, const char **name, const char **title,
                          const tutti_option **options);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
