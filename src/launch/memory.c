/* memory.c: was a worker killed for want of memory? The kernel then kills a process by SIGKILL and
   says so in its log, which most users cannot read. But it counts such kills in each control group:
   oom_kill in memory.events (version 2) or memory.oom_control (version 1). Workers are usually in
   the launcher's group. So a worker that was killed while the count grew was most likely killed for
   want of memory, and the message says that it is likely. If no group can be seen, the message does
   not mention memory. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include "launch_internal.h"

/* Returns the number after "oom_kill " in the file; -1: there is none. */
static int64_t count_in(const char *path)
{
    FILE *file = fopen(path, "re");
    char line[128];
    int64_t n = -1;

    while (file != NULL && n < 0 && fgets(line, sizeof line, file) != NULL)
        if (sscanf(line, "oom_kill %19" SCNd64, &n) != 1)
            n = -1;
    if (file != NULL)
        fclose(file);
    return n;
}

/* Returns the count of a group below `top`; or of `top` itself, as a container sees its own group
   there; -1: none. */
static int64_t count_of(const char *root, const char *top, const char *group, const char *name)
{
    char path[4608];
    int64_t n;

    snprintf(path, sizeof path, "%s/sys/fs/cgroup%s%s/%s", root, top, group, name);
    n = count_in(path);
    if (n < 0) {
        snprintf(path, sizeof path, "%s/sys/fs/cgroup%s/%s", root, top, name);
        n = count_in(path);
    }
    return n;
}

int64_t tutti_launch_memory_kills(const char *root)
{
    char line[4200], *group;
    int64_t most = -1;
    FILE *file;

    snprintf(line, sizeof line, "%s/proc/self/cgroup", root);
    file = fopen(line, "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        /* "0::/a/b", "4:memory:/a/b" */
        static const char *const tops[] = { "", "/unified", "/memory" };
        const bool is_2 = strncmp(line, "0::/", 4) == 0;
        line[strcspn(line, "\n")] = '\0';
        group = strstr(line, ":/");
        if (group == NULL || (!is_2 && strstr(line, ":memory:/") == NULL))
            continue;
        for (int k = is_2 ? 0 : 2; k < (is_2 ? 2 : 3); k++) {
            const int64_t n = count_of(root, tops[k], strcmp(group + 1, "/") == 0 ? "" : group + 1,
                                       is_2 ? "memory.events" : "memory.oom_control");
            most = n > most ? n : most;
        }
    }
    if (file != NULL)
        fclose(file);
    return most;
}

bool tutti_launch_for_memory(int signal, int64_t before)
{
    return signal == SIGKILL && before >= 0 && tutti_launch_memory_kills("") > before;
}

const char tutti_launch_memory_hint[] = ", as the kernel does for want of memory, and has done "
                                        "here since the run began: take fewer workers or smaller "
                                        "batches, or give the run more memory";
