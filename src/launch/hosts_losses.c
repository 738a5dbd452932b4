/* hosts_losses.c: handles the loss of a worker in a run over several hosts: how the launcher learns
   of it, what is reported, and whether the run continues without the worker. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "hosts_internal.h"
#include "launch.h"

/* How long to wait for the failure report of a worker that has exited with a code: the report comes
   to the meeting place over another connection than the agent's frame. */
#define REPORT_WAIT_NS ((int64_t)200000000)

/* Has it failed only because another did? For a worker of a run that continues after losses that
   means: this is the end of the run. */
static bool is_echo(const tutti_meet_rank *m, int rank)
{
    return m->state == TUTTI_MEET_FAILED && m->status == TUTTI_ERR_PEER && m->blame >= 0 &&
           m->blame != rank;
}

static bool ends_others(const far_launcher *l, int rank)
{
    for (int r = 0; r < l->size; r++)
        if (r != rank && is_echo(tutti_meet_rank_of(l->meet, r), r) &&
            tutti_meet_rank_of(l->meet, r)->blame == rank)
            return true;
    return false;
}

/* Have all that are left failed by themselves at once, as when none can write a
   checkpoint? That is no loss after a loss. */
static bool all_fail(const far_launcher *l, int rank)
{
    int others = 0;

    for (int r = 0; r < l->size; r++) {
        if (r == rank || l->workers[r].lost)
            continue;
        others++;
        if (tutti_meet_rank_of(l->meet, r)->state != TUTTI_MEET_FAILED)
            return false;
    }
    return others > 0;
}

/* Returns whether this rank was a member of a run that is to continue after losses, and whose loss
   is no end that the user or the command line has made. */
static bool was_member(const far_launcher *l, const tutti_meet_rank *m, int rank)
{
    const tutti_launch_hosts_options *o = l->options;

    return o->continue_on_loss && rank < l->size - o->servers && tutti_meet_complete(l->meet) &&
           l->user_signal == 0 && !l->stopping && l->kill_at == TUTTI_FOREVER &&
           !(m->state == TUTTI_MEET_FAILED && m->status == TUTTI_ERR_USAGE);
}

/* Must the loss of this worker end the run? The run may continue only if it was a member; and a
   command line that it refuses is wrong for all. */
void tutti_launch_far_loss(far_launcher *l, int rank)
{
    const tutti_launch_hosts_options *o = l->options;
    const tutti_meet_rank *m = l->meet != NULL ? tutti_meet_rank_of(l->meet, rank) : NULL;
    const int left = l->size - o->servers - l->lost - 1;
    const bool few = left < o->least; /* whether the others end over it as well or not */
    const bool continue_on_loss = m != NULL && was_member(l, m, rank) && !is_echo(m, rank) &&
                                  (few || (!ends_others(l, rank) && !all_fail(l, rank)));
    far_worker *w = &l->workers[rank];
    char text[500], message[640];

    w->lost_at = 0;
    if (w->lost)
        return;
    if (!continue_on_loss || few) {
        l->too_few = l->too_few || continue_on_loss;
        l->lost += continue_on_loss;
        tutti_launch_far_noticed(l);
        return;
    }
    w->lost = true;
    l->lost++;
    tutti_meet_describe(l->meet, rank, text, sizeof text);
    snprintf(message, sizeof message,
             "tutti: %s; if the others can, the run continues with %d worker%s\n", text, left,
             left == 1 ? "" : "s");
    l->options->output(l->options->user, 2, message, strlen(message));
    if (!w->ended && m->state == TUTTI_MEET_LOST && l->hosts[w->host].in >= 0) {
        const int n = snprintf(text, sizeof text, "X%d;", rank);
        if (write(l->hosts[w->host].in, text, (size_t)n) != n)
            return; /* the agent is gone: its workers go with it */
    }
}

void tutti_launch_far_failed(far_launcher *l, int rank)
{
    if (l->options->continue_on_loss) /* if it has notified the others, they end with it, and have
                                         reported so by then */
        l->workers[rank].lost_at = tutti_now_ns(l->rt) + REPORT_WAIT_NS;
    else
        tutti_launch_far_loss(l, rank);
}

void tutti_launch_far_lost(far_launcher *l, int rank, const char *how, int signal)
{
    tutti_error why = { .rank = rank };

    if (l->first.text[0] == '\0') {
        l->first = (tutti_launch_result){ .exit_code = signal == 0 ? 1 : 3,
                                          .rank = rank,
                                          .pid = l->workers[rank].pid,
                                          .signal = signal };
        snprintf(l->first.text, sizeof l->first.text, "worker %d was lost: %s", rank, how);
    }

    tutti_fail(&why, TUTTI_ERR_STATE, 0, "%s", how);
    if (l->meet != NULL)
        tutti_meet_lost(l->meet, rank, &why, signal);
    tutti_launch_far_loss(l, rank);
}

void tutti_launch_far_ended(far_launcher *l, far_worker *w, int rank, int code, int signal,
                            bool for_memory)
{
    char how[440];
    const char *host = l->hosts[w->host].spec->name;

    w->ended = true;
    w->code = code;
    w->signal = signal;
    if (l->user_signal != 0 || l->stopping || w->lost)
        return;
    if (signal != 0) {
        snprintf(how, sizeof how, "process %ld on host %s was killed by signal %d (SIG%s)%s",
                 w->pid, host, signal, tutti_launch_signal_name(signal),
                 for_memory ? tutti_launch_memory_hint : "");
        tutti_launch_far_lost(l, rank, how, signal);
    } else if (code != 0)
        w->report_until = tutti_now_ns(l->rt) + REPORT_WAIT_NS;
}

void tutti_launch_far_silent_ends(far_launcher *l)
{
    for (int r = 0; r < l->size; r++) {
        far_worker *w = &l->workers[r];
        char how[300];
        if (w->lost_at != 0 && tutti_now_ns(l->rt) >= w->lost_at)
            tutti_launch_far_loss(l, r);
        if (w->report_until == 0 || tutti_now_ns(l->rt) < w->report_until)
            continue;
        w->report_until = 0;
        snprintf(how, sizeof how,
                 "process %ld on host %s exited with code %d; its own output may give the reason",
                 w->pid, l->hosts[w->host].spec->name, w->code);
        tutti_launch_far_lost(l, r, how, 0);
    }
}
