/* cgroup.c: the limits on CPU time and memory of this process' control groups, which containers and
   batch systems set.

   /proc/self/cgroup names the process' group, one line for each hierarchy: "0::/a/b" of version 2,
   "4:memory:/a/b" of version 1. The groups are folders below /sys/fs/cgroup. Version 1 has one
   folder for each controller; a host with both versions has version 2 in "unified". A limit also
   holds for all groups below, so all folders from the root to the group are read, and the least
   limit counts. A container often sees a path that does not exist in it, and its own group as the
   root. So folders that do not exist are skipped, and the root is always read. */
#include "base_internal.h"
#include "machine.h"

#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_BYTES = 4608 };

/* All of a small file, ended with 0; "" if it cannot be read. */
static void read_small(const char *path, char *text, size_t bytes)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = 0;
    size_t have = 0;

    while (fd >= 0 && have + 1 < bytes && (n = read(fd, text + have, bytes - 1 - have)) > 0)
        have += (size_t)n;
    if (fd >= 0)
        close(fd);
    text[have] = '\0';
}

/* A number that begins `text`; INFINITY for none ("max", "-1", nothing). */
static double parse_limit(const char *text)
{
    return *text >= '0' && *text <= '9' ? strtod(text, NULL) : INFINITY;
}

/* The limit in one folder. */
typedef double (*limit_of)(const char *folder);

/* cpu.max: "QUOTA PERIOD" or "max PERIOD", in us. */
static double cpus_2(const char *folder)
{
    char path[PATH_BYTES], text[80];
    char *period;

    snprintf(path, sizeof path, "%s/cpu.max", folder);
    read_small(path, text, sizeof text);
    period = strchr(text, ' ');
    return period != NULL && parse_limit(period + 1) > 0
               ? parse_limit(text) / parse_limit(period + 1)
               : INFINITY;
}

static double cpus_1(const char *folder)
{
    char path[PATH_BYTES], quota[40], period[40];

    snprintf(path, sizeof path, "%s/cpu.cfs_quota_us", folder);
    read_small(path, quota, sizeof quota);
    snprintf(path, sizeof path, "%s/cpu.cfs_period_us", folder);
    read_small(path, period, sizeof period);
    if (parse_limit(quota) > 0 && parse_limit(period) > 0 && isfinite(parse_limit(period)))
        return parse_limit(quota) / parse_limit(period);
    return INFINITY;
}

static double memory_2(const char *folder)
{
    char path[PATH_BYTES], text[40];

    snprintf(path, sizeof path, "%s/memory.max", folder);
    read_small(path, text, sizeof text);
    return parse_limit(text);
}

static double memory_1(const char *folder)
{
    char path[PATH_BYTES], text[40];

    snprintf(path, sizeof path, "%s/memory.limit_in_bytes", folder);
    read_small(path, text, sizeof text);
    return parse_limit(text);
}

/* The least limit from `top` down to the group `path` within it. */
static double least(const char *top, const char *path, limit_of of)
{
    char folder[PATH_BYTES];
    double result = of(top);

    for (const char *end = path; *end != '\0';) {
        end += 1 + strcspn(end + 1, "/");
        if (snprintf(folder, sizeof folder, "%s%.*s", top, (int)(end - path), path) <
            (int)sizeof folder)
            result = fmin(result, of(folder));
    }
    return result;
}

/* Is `name` one of the list of `bytes` bytes with commas between? */
static bool lists(const char *list, size_t bytes, const char *name)
{
    const size_t length = strlen(name);

    for (size_t at = 0; at + length <= bytes; at++)
        if ((at == 0 || list[at - 1] == ',') && strncmp(list + at, name, length) == 0 &&
            (at + length == bytes || list[at + length] == ','))
            return true;
    return false;
}

/* The least limit of all hierarchies that this process is in. */
static double limit(const char *root, const char *controller, limit_of of_1, limit_of of_2)
{
    char text[8192], path[PATH_BYTES], top[PATH_BYTES];
    double result = INFINITY;
    char *rest = text, *line;

    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    read_small(path, text, sizeof text);
    while ((line = strsep(&rest, "\n")) != NULL) {
        char *list = strchr(line, ':'), *group = list != NULL ? strchr(list + 1, ':') : NULL;
        if (group == NULL || group[1] != '/')
            continue;
        if (group == list + 1) { /* version 2 */
            static const char *const tops[] = { "", "/unified" };
            for (size_t i = 0; i < TUTTI_LENGTH(tops); i++) {
                snprintf(top, sizeof top, "%s/sys/fs/cgroup%s", root, tops[i]);
                result = fmin(result, least(top, group + 1, of_2));
            }
        } else if (lists(list + 1, (size_t)(group - list - 1), controller)) {
            /* folders: of each, of the list, or both */
            snprintf(top, sizeof top, "%s/sys/fs/cgroup/%s", root, controller);
            result = fmin(result, least(top, group + 1, of_1));
            snprintf(top, sizeof top, "%s/sys/fs/cgroup/%.*s", root, (int)(group - list - 1),
                     list + 1);
            result = fmin(result, least(top, group + 1, of_1));
        }
    }
    return result;
}

int tutti_base_quota_of(const char *root)
{
    const double cpus = limit(root, "cpu", cpus_1, cpus_2);

    return cpus < 1 ? 1 : cpus < INT_MAX ? (int)cpus : INT_MAX;
}

size_t tutti_base_memory_of(const char *root)
{
    const double bytes = limit(root, "memory", memory_1, memory_2);

    /* version 1 writes "no limit" as a number near 2^63 */
    return bytes < 0x1p62 ? (size_t)bytes : SIZE_MAX;
}

int tutti_machine_quota(void)
{
    return tutti_base_quota_of("");
}

size_t tutti_machine_bytes(void)
{
    const size_t here = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    const size_t ours = tutti_base_memory_of("");

    return ours < here ? ours : here;
}
