/* descriptors.c: the limit of open files. Each connection needs a descriptor, so a run of many
   workers may need more than the shell's soft limit. The soft limit protects programs that use
   select(), which this library does not: it is raised, up to the hard limit. If the hard limit is
   too low, that is reported before any connection is made. */
#include <dirent.h>
#include <errno.h>
#include <sys/resource.h>
#include "tcp_internal.h"

enum { SPARE = 64 }; /* files of the program, and callers whose handshake is not finished */

static size_t open_now(void)
{
    DIR *folder = opendir("/proc/self/fd");
    size_t n = 0;

    while (folder != NULL && readdir(folder) != NULL)
        n++;
    if (folder != NULL)
        closedir(folder);
    return n;
}

tutti_status tutti_tcp_descriptors(size_t connections, int size, tutti_error *err)
{
    const rlim_t need = open_now() + connections + SPARE;
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= need)
        return TUTTI_OK;
    if (limit.rlim_max < need)
        return tutti_fail(err, TUTTI_ERR_IO, 0,
                          "a process of a run of %d workers over tcp needs %llu open files, and "
                          "the hard limit of this one is %llu; raise it (ulimit -Hn %llu), or use "
                          "fewer workers",
                          size, (unsigned long long)need, (unsigned long long)limit.rlim_max,
                          (unsigned long long)need);
    limit.rlim_cur = need;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
        return tutti_fail(err, TUTTI_ERR_IO, errno,
                          "a process of a run of %d workers over tcp needs %llu open files; raise "
                          "the limit (ulimit -n %llu)",
                          size, (unsigned long long)need, (unsigned long long)need);
    return TUTTI_OK;
}
