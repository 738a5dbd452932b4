/* cores.c: how many cores this process may use (tutti_cores), and which. The affinity of the
   process says so, which cpusets, taskset and batch systems set; a container's quota may allow less
   time.

   Two processes may compete for a core if they run under one kernel and their affinities have a
   core in common. The boot id identifies the kernel. It differs on each machine and in each
   virtual machine, and is the same in all containers and namespaces of one, whatever names,
   networks and /etc/machine-id (a copy of the image's) they have. CPU numbers are the kernel's,
   too. Affinities are compared in addition, since containers of one machine often have cores that
   no other has. */
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "launch_internal.h"
#include "base/machine.h"
#include "launch.h"

int tutti_cores(void)
{
    const int quota = tutti_machine_quota();
    cpu_set_t set;
    long n;

    if (sched_getaffinity(0, sizeof set, &set) == 0)
        n = CPU_COUNT(&set);
    else
        n = sysconf(_SC_NPROCESSORS_ONLN); /* a machine with more cores than a cpu_set_t has */
    return n < 1 ? 1 : n < quota ? (int)n : quota;
}

void tutti_launch_cores_text(char text[static LAUNCH_CORES_TEXT])
{
    const int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    cpu_set_t set;
    ssize_t n = 0;
    size_t used;

    if (fd >= 0) {
        n = read(fd, text, 36);
        close(fd);
    }
    text[n > 0 ? n : 0] = '\0';
    used = strspn(text, "0123456789abcdefABCDEF-");
    if (used != 36) {
        snprintf(text, LAUNCH_CORES_TEXT, "-");
        return;
    }
    text[used++] = '/';
    /* more cores than a cpu_set_t has, as every process of this machine will find */
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        text[used++] = 'f';
    else {
        int last = CPU_SETSIZE - 1;
        while (last > 0 && !CPU_ISSET(last, &set))
            last--;
        for (int c = 0; c <= last; c += 4)
            text[used++] =
                "0123456789abcdef"[(CPU_ISSET(c, &set) != 0) | (CPU_ISSET(c + 1, &set) != 0) << 1 |
                                   (CPU_ISSET(c + 2, &set) != 0) << 2 |
                                   (CPU_ISSET(c + 3, &set) != 0) << 3];
    }
    text[used] = '\0';
}

static int digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : 0;
}

bool tutti_launch_cores_shared(const char *a, const char *b)
{
    const size_t kernel = strcspn(a, "/");

    if (a[kernel] == '\0' || strncmp(a, b, kernel + 1) != 0)
        return false;
    for (size_t i = kernel + 1; a[i] != '\0' && b[i] != '\0'; i++)
        if ((digit(a[i]) & digit(b[i])) != 0)
            return true;
    return false;
}
