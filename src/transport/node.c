/* node.c: the NUMA node of the calling thread (node.h). The kernel reports the node on which the
   thread runs at this moment. The thread stays on that node if all CPUs that it may use (which the
   launcher, taskset, a batch system or mpirun has set) are of that node, which the names in /sys
   show: /sys/devices/system/node/node1/cpu17. A thread that may run on several nodes has no local
   memory. */
#include <sched.h>
#include <stdio.h>
#include "node.h"
#include "runtime/files.h"

int tutti_node_here(tutti_runtime *rt)
{
    unsigned cpu, node;
    cpu_set_t mine;
    char path[80];

    CPU_ZERO(&mine);
    /* the first fails on hosts with more than 1024 CPUs */
    if (sched_getaffinity(0, sizeof mine, &mine) != 0 || getcpu(&cpu, &node) != 0)
        return -1;
    for (int k = 0; k < CPU_SETSIZE; k++) {
        if (!CPU_ISSET(k, &mine))
            continue;
        snprintf(path, sizeof path, "/sys/devices/system/node/node%u/cpu%d", node, k);
        if (!tutti_file_exists(rt, path))
            return -1;
    }
    return (int)node;
}
