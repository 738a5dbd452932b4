/* elastic_hosts.c: the workers of other hosts in a run whose workers come and go. Which hosts there
   are is read again where it stands in a file, every second, or a command prints it, 5 s after it
   has ended (hostlist.h):

     a host is listed             its workers are started, up to `most` in all.
     it is not, or with fewer     twice, since a file may be read while it is written: those above
     workers                      the number are asked to leave.
     it is listed again           its workers are started again; earlier losses do not count.
     the list cannot be read      a sentence, once; hosts stay as they are.

   Workers of this host begin the run, and stay whatever its line says later. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "elastic_internal.h"

#define MS INT64_C(1000000)
enum { FILE_MS = 1000, COMMAND_MS = 5000, MISSES = 2 };

int tutti_launch_elastic_places(const tutti_launch_elastic_options *o)
{
    int n = 0;

    if (o->source != NULL) /* some may still be leaving when others come */
        return 2 * o->most;
    for (int h = 1; h < o->n_hosts; h++)
        n += o->hosts[h].workers;
    return n;
}

void tutti_launch_elastic_free_place(worker *w)
{
    if (w->wanted || w->missed < MISSES || w->pidfd >= 0)
        return;
    w->host[0] = '\0';
    w->missed = w->started_again = w->soon = 0;
    w->start_at = 0;
}

/* It leaves in order, which is no loss. */
static void dismiss(worker *w)
{
    w->start_at = 0;
    if (w->pidfd >= 0) {
        w->ours = true;
        syscall(SYS_pidfd_send_signal, w->pidfd, SIGTERM, NULL, 0);
    }
    tutti_launch_elastic_free_place(w);
}

/* A worker more on that host, at a free place. */
static bool add(elastic *e, const char *host)
{
    for (int k = e->options->workers; k < e->n; k++) {
        worker *w = &e->workers[k];
        if (w->host[0] != '\0')
            continue;
        w->argv = e->options->command(e->options->commands, host);
        if (w->argv == NULL)
            return false;
        snprintf(w->host, sizeof w->host, "%s", host);
        w->wanted = true;
        w->missed = w->started_again = w->soon = 0;
        w->start_at = tutti_now_ns(e->rt);
        return true;
    }
    return false;
}

/* Marks those of a host that are in the run, at most that many, and returns how many there are. */
static int keep(elastic *e, const char *host, int workers)
{
    int have = 0;

    for (int k = e->options->workers; k < e->n && have < workers; k++) {
        worker *w = &e->workers[k];
        if (strcmp(w->host, host) == 0 && w->missed < MISSES) {
            w->wanted = true;
            w->missed = 0;
            have++;
        }
    }
    return have;
}

/* Starts that many more there, as far as places are free; returns how many. */
static int start_more(elastic *e, const char *host, int n)
{
    char line[300];
    int added = 0;

    while (added < n && add(e, host))
        added++;
    if (added > 0 && e->options->source != NULL) {
        snprintf(line, sizeof line, "host %.128s is listed: %d worker%s there", host, added,
                 added == 1 ? " is started" : "s are started");
        say(e, line);
    }
    return added;
}

/* Those of that host leave that too few lists have. */
static void drop(elastic *e, int first)
{
    char host[sizeof e->workers->host], line[300];
    int n = 0;

    snprintf(host, sizeof host, "%s", e->workers[first].host);
    for (int k = first; k < e->n; k++) {
        worker *w = &e->workers[k];
        if (strcmp(w->host, host) != 0 || w->wanted || w->missed != MISSES)
            continue;
        w->missed++; /* asked once */
        n += w->pidfd >= 0;
        dismiss(w);
    }
    if (n == 0)
        return;
    snprintf(line, sizeof line, "host %.128s is no longer listed with so many workers: %d leave%s", host,
             n, n == 1 ? "s" : "");
    say(e, line);
}

static int wanted(const elastic *e, const char *host)
{
    int n = 0;

    for (int k = e->options->workers; k < e->n; k++)
        n += e->workers[k].wanted && strcmp(e->workers[k].host, host) == 0;
    return n;
}

static int least(int a, int b)
{
    return a < b ? a : b;
}

void tutti_launch_elastic_take_hosts(elastic *e, const tutti_launch_host *hosts, int n)
{
    const char *const here = n > 0 ? e->options->hosts[0].name : "";
    const int most = e->options->source != NULL ? e->options->most - e->options->workers : e->n;
    int kept = 0, there = 0;

    for (int k = e->options->workers; k < e->n; k++)
        e->workers[k].wanted = false;
    for (int h = 0; h < n; h++)
        if (strcmp(hosts[h].name, here) != 0)
            kept += keep(e, hosts[h].name, least(hosts[h].workers, most - kept));
    for (int k = e->options->workers; k < e->n; k++)
        if (e->workers[k].host[0] != '\0' && !e->workers[k].wanted && e->workers[k].missed < MISSES)
            e->workers[k].missed++;
    for (int k = e->options->workers; k < e->n; k++)
        if (e->workers[k].host[0] != '\0' && e->workers[k].missed == MISSES)
            drop(e, k);
    for (int k = e->options->workers; k < e->n; k++)
        there += e->workers[k].host[0] != '\0' && e->workers[k].missed < MISSES;
    for (int h = 0; h < n; h++)
        if (strcmp(hosts[h].name, here) != 0)
            there += start_more(e, hosts[h].name,
                                least(hosts[h].workers - wanted(e, hosts[h].name), most - there));
}

/* Once, until it can be read again. */
static void complain(elastic *e, const tutti_error *why)
{
    char line[TUTTI_LAUNCH_LINE];

    snprintf(line, sizeof line, "%.1000s; hosts stay as they are until it can be read", why->text);
    if (!e->list_failed)
        say(e, line);
    e->list_failed = true;
}

void tutti_launch_elastic_read_hosts(elastic *e)
{
    const int64_t now = tutti_now_ns(e->rt);
    tutti_error why = { .rank = -1 };
    tutti_launch_host *hosts = NULL;
    tutti_status status = TUTTI_OK;
    bool done = true;
    int n = 0;

    if (e->options->source == NULL || !e->met)
        return;
    if (e->ended || e->user_signal != 0) {
        tutti_launch_hostlist_close(&e->list);
        return;
    }
    if (e->list.fd < 0 && e->list.pid <= 0) {
        if (now < e->list_at)
            return;
        status = tutti_launch_hostlist_begin(&e->list, e->options->source, &e->signals.before, now, &why);
    }
    if (status == TUTTI_OK)
        status = tutti_launch_hostlist_step(&e->list, now, &done, &hosts, &n, &why);
    if (!done)
        return;
    e->list_at = now + (e->options->source[0] == '@' ? FILE_MS : COMMAND_MS) * MS;
    if (status == TUTTI_OK) {
        e->list_failed = false;
        tutti_launch_elastic_take_hosts(e, hosts, n);
    } else
        complain(e, &why);
    tutti_free(hosts);
}
