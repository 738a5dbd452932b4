/* started.c: what `tutti train` and `tutti run` share when they start workers: how workers are
   distributed over hosts, and what is printed of them. */
#include <errno.h>
#include <string.h>

#include "cli_internal.h"
#include "tutti/launch.h"
#include "base/settings.h"
#include "collective/world.h"
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

/* ---- options that another one makes void ---- */

static bool has_checkpoints(const tutti_train_config *c)
{
    return c->checkpoint_every > 0 || c->checkpoint_on_signal;
}

static bool is_written(const tutti_train_config *c)
{
    return has_checkpoints(c) || !c->checkpoint_async;
}

static bool has_hosts(const tutti_train_config *c)
{
    return c->hosts[0] != 0;
}

static bool has_others(const tutti_train_config *c)
{
    return c->hosts[0] != 0 || c->workers[0] != 0;
}

static bool is_real(const tutti_train_config *c)
{
    return !tutti_world_simulated(c->transport);
}

static bool may_overwrite(const tutti_train_config *c)
{
    return c->out[0] != 0 || c->resume[0] != 0 || !c->overwrite;
}

/* A simulated run without failures has no losses, whatever this number is. */
static bool may_go_on(const tutti_train_config *c)
{
    return c->continue_on_loss || c->min_workers == 1 || !is_real(c);
}

/* Options that do nothing where counts() does not hold. by_run: that depends on what a comparison
   sets for each of its runs. */
static const struct {
    const char *name;
    bool (*counts)(const tutti_train_config *c);
    bool by_run;
    const char *needs;
} voids[] = {
    { "checkpoint-keep", has_checkpoints, false,
      "without checkpoints; give checkpoint-every too, or omit it" },
    { "checkpoint-async", is_written, false,
      "without checkpoints; give checkpoint-every too, or omit it" },
    { "rsh", has_hosts, false, "without other hosts; give -H HOST:N,HOST:N too, or omit it" },
    { "meet", has_others, false,
      "on one machine; give -H HOST:N,HOST:N, or workers, FEWEST:MOST, too, or omit it" },
    { "start-timeout", is_real, true, "in a simulated run, whose workers are all there; omit it" },
    { "min-workers", may_go_on, true,
      "where the run ends with the first loss; give on-loss=continue, with a method that can, or "
      "omit it" },
    { "overwrite", may_overwrite, true,
      "for the new directory that the run makes; give --out too, or omit it" },
};

bool tutti_cli_is_void(const char *name, const tutti_train_config *config)
{
    for (size_t k = 0; k < TUTTI_LENGTH(voids); k++)
        if (strcmp(name, voids[k].name) == 0)
            return !voids[k].counts(config);
    return false;
}

tutti_status tutti_cli_check_void(const tutti_cli_settings *s, bool one, tutti_error *err)
{
    for (size_t k = 0; k < TUTTI_LENGTH(voids); k++)
        if ((one || !voids[k].by_run) && !voids[k].counts(&s->config) &&
            tutti_settings_origin(s->settings, voids[k].name, NULL) == TUTTI_FROM_FLAG)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0, "%s is given, and it does nothing %s",
                              voids[k].name, voids[k].needs);
    return TUTTI_OK;
}
