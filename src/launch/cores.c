/* cores.c: how many cores this process may use: its affinity, which cpusets, taskset and batch systems set. */
#include <sched.h>
#include <unistd.h>
#include "tutti/launch.h"

int tutti_cores(void)
{
    cpu_set_t set;
    long n;

    if (sched_getaffinity(0, sizeof set, &set) == 0)
        return CPU_COUNT(&set);
    n = sysconf(_SC_NPROCESSORS_ONLN); /* a machine with more cores than a cpu_set_t has */
    return n > 0 ? (int)n : 1;
}
