/* machine.h: what this process may use of the machine: memory, cores, instruction sets. Implemented
   by cgroup.c and cpu.c. */
#ifndef TUTTI_BASE_MACHINE_H
#define TUTTI_BASE_MACHINE_H
#include "tutti/base.h"
#pragma GCC visibility push(default)

/* What this process may use of the machine. bytes: its memory, or the limit of control groups (a
   container's, a batch system's) if that is less. quota: the number of cores whose time those
   allow, rounded down, at least 1; INT_MAX where they set no limit. */
size_t tutti_machine_bytes(void);
int tutti_machine_quota(void);

/* AVX2 means AVX2+FMA+F16C; AVX512 means F+BW+DQ+VL. OS support included. */
tutti_cpu tutti_cpu_best(void);
/* "scalar"; "avx2" or "avx512" on x86-64; "neon" on arm64; "unknown": a level that this
   architecture does not have. */
const char *tutti_cpu_name(tutti_cpu cpu);
#pragma GCC visibility pop
#endif
