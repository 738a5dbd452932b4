/* started.c: what `tutti train` and `tutti run` share when they start workers: how workers are
   distributed over hosts, and what is printed of them. */
#include <errno.h>
#include <string.h>

#include "cli_internal.h"
#include "tutti/launch.h"
#include "launch/launch.h"

/* Ranks that only serve are the last ones. So each host gets a second entry for its servers, except
   the last host, whose servers follow its workers directly. */
tutti_status tutti_cli_place_servers(tutti_launch_host **all, int *n_hosts, int servers,
                                     int workers, tutti_error *err)
{
    const int n = *n_hosts;
    tutti_launch_host *hosts;
    int first = workers;

    if (servers == 0)
        return TUTTI_OK;
    hosts = tutti_alloc(2 * (size_t)n, sizeof *hosts);
    if (hosts == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "placing %d servers on %d hosts", servers,
                          n);
    memcpy(hosts, *all, (size_t)n * sizeof *hosts);
    for (int k = 0; k < n && k < servers; k++) { /* from the last host on */
        const int here = servers / n + (k < servers % n);
        if (k == 0)
            hosts[n - 1].workers += here;
        else {
            hosts[*n_hosts] = hosts[n - 1 - k];
            hosts[*n_hosts].first = first;
            hosts[(*n_hosts)++].workers = here;
        }
        first += here;
    }
    tutti_free(*all);
    *all = hosts;
    return TUTTI_OK;
}

void tutti_cli_keep_left(const tutti_cli_savers *of, tutti_launch_host *hosts, int *n_hosts,
                         int *workers)
{
    const bool same = of->began == *workers;
    int kept = 0, first = 0;

    if (of->n == 0 || of->n >= *workers)
        return;
    for (int h = 0; h < *n_hosts; h++) {
        tutti_launch_host *const to = &hosts[kept];
        int left = of->n - first < hosts[h].workers ? of->n - first : hosts[h].workers;
        if (same) {
            left = 0;
            for (int k = 0; k < of->n; k++)
                left += of->rank[k] >= hosts[h].first &&
                        of->rank[k] < hosts[h].first + hosts[h].workers;
        }
        if (left == 0)
            continue;
        *to = hosts[h];
        to->first = first;
        to->workers = left;
        first += left;
        kept++;
    }
    *n_hosts = kept;
    *workers = of->n;
}

void tutti_cli_show_output(void *user, int stream, const char *text, size_t bytes)
{
    FILE *to = stream == 1 ? stdout : stderr;

    (void)user;
    fwrite(text, 1, bytes, to);
    if (stream == 1)
        tutti_cli_flush(NULL);
    else
        fflush(to);
}

void tutti_cli_show_loss(void *user, const char *line)
{
    (void)user;
    fprintf(stderr, "tutti: %s\n", line);
}
