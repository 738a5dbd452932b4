/* node.c: the host and the NUMA node of the calling thread (node.h). The kernel reports the node on
   which the thread runs at this moment. The thread stays on that node if all CPUs that it may use
   (which the launcher, taskset, a batch system or mpirun has set) are of that node, which the names
   in /sys show: /sys/devices/system/node/node1/cpu17. A thread that may run on several nodes has no
   local memory. */
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "node.h"
#include "runtime/files.h"

int tutti_node_here(tutti_runtime *rt)
{
    unsigned cpu, node;
    cpu_set_t mine;
    char path[80];

    CPU_ZERO(&mine);
    /* the first fails on hosts with more than 1024 CPUs */
    if (sched_getaffinity(0, sizeof mine, &mine) != 0 ||
        syscall(SYS_getcpu, &cpu, &node, NULL) != 0) /* getcpu would need glibc 2.29 */
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

void tutti_host_here(tutti_runtime *rt, uint8_t id[16])
{
    char boot[64], net[64];
    const int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    const ssize_t boot_bytes = fd >= 0 ? read(fd, boot, sizeof boot) : -1;
    const ssize_t net_bytes = readlink("/proc/self/ns/net", net, sizeof net);

    if (fd >= 0)
        close(fd);
    if (boot_bytes <= 0 || net_bytes <= 0) {
        tutti_entropy(rt, id, 16);
        return;
    }
    const uint64_t both[] = { tutti_hash(boot, (size_t)boot_bytes),
                              tutti_hash(net, (size_t)net_bytes) };
    memcpy(id, both, 16);
}
