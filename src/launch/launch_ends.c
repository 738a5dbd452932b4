/* launch_ends.c: judges how the workers of one host have ended: what each has reported, which of
   them caused the failure, after which losses a run continues, and the launcher's result: exit code
   and error message. */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include "launch.h"
#include "launcher.h"

#define NS_PER_MS 1000000
/* Workers that fail because another one has failed report so within this time of its end. After
   that it is decided whether the run continues without that worker (lost_at). */
#define ECHOES_NS ((int64_t)200 * NS_PER_MS)
/* A terminal sends SIGINT to the workers and to the launcher, one after the other. If a worker was
   killed by a signal of the user, the launcher waits this long for its own. */
#define ECHO_NS ((int64_t)50 * NS_PER_MS)

worker_report tutti_launch_near_report(const launcher *l, int rank)
{
    static const uint32_t same[] = { [TUTTI_MEET_ABSENT] = TUTTI_SHM_ABSENT,
                                     [TUTTI_MEET_RUNNING] = TUTTI_SHM_RUNNING,
                                     [TUTTI_MEET_LEFT] = TUTTI_SHM_CLOSED,
                                     [TUTTI_MEET_FAILED] = TUTTI_SHM_FAILED,
                                     [TUTTI_MEET_LOST] = TUTTI_SHM_LOST };
    const tutti_shm_rank *line = &l->region.header->ranks[rank];
    const uint32_t state = atomic_load_explicit(&line->state, memory_order_acquire);
    const tutti_meet_rank *met = l->meet != NULL ? tutti_meet_rank_of(l->meet, rank) : NULL;

    if (met != NULL)
        return (worker_report){ same[met->state], met->status, met->blame, met->order,
                                met->reason };
    return (worker_report){ state, (tutti_status)line->status, line->blame, line->order,
                            line->reason };
}

static guilt judge_worker(const launcher *l, const launch_worker *w, int rank)
{
    const worker_report report = tutti_launch_near_report(l, rank);
    const bool ours = w->signal != 0 && (w->killed_by == w->signal || w->killed_by == SIGKILL);

    if (w->stopped.ended_ns != 0)
        return GUILT_KILLED;
    /* a worker that had reported its failure before the launcher killed it is judged by the
       report */
    if (w->signal != 0 && !(ours && report.state == TUTTI_SHM_FAILED))
        return ours ? GUILT_OURS : GUILT_KILLED;
    if (report.state == TUTTI_SHM_FAILED)
        return report.status == TUTTI_ERR_PEER ? GUILT_ECHO : GUILT_OWN;
    return w->exit_code == 0 && report.state != TUTTI_SHM_RUNNING ? GUILT_NONE : GUILT_OWN;
}

/* Has it failed only because another did? A worker of a run that continues after losses does so
   only if the run cannot continue: then this is the end of the run. */
static bool is_echo(worker_report report, int rank)
{
    return report.state == TUTTI_SHM_FAILED && report.status == TUTTI_ERR_PEER &&
           report.blame >= 0 && report.blame != rank;
}

/* Has another failed only because of this one? */
static bool ends_others(const launcher *l, int rank)
{
    for (int r = 0; r < l->options->workers; r++) {
        const worker_report report = tutti_launch_near_report(l, r);
        if (r != rank && is_echo(report, r) && report.blame == rank)
            return true;
    }
    return false;
}

/* Have all other remaining workers reported a failure, too, as when none can write a checkpoint?
   Then the run has failed; the workers are not lost one after another. */
static bool all_fail(const launcher *l, int rank)
{
    int others = 0;

    for (int r = 0; r < l->options->workers; r++) {
        if (r == rank || l->workers[r].continued_without)
            continue;
        others++;
        if (tutti_launch_near_report(l, r).state != TUTTI_SHM_FAILED)
            return false;
    }
    return others > 0;
}

/* May the run continue without this worker? Not if it never joined, is needed (a server), had left
   in order, or failed because the run cannot continue (is_echo); and a command line that one worker
   refuses is wrong for all. before: its state before its end. */
static bool can_continue(const launcher *l, int rank, uint32_t before)
{
    const worker_report report = tutti_launch_near_report(l, rank);
    /* with size > 0 this host has a part of the run: whether the workers have met is known to the
       launcher of all hosts (hosts_losses.c) */
    const bool member = before != TUTTI_SHM_ABSENT || l->options->size > 0;
    /* it only serves */
    const bool needed = l->options->size == 0 && rank >= l->options->workers - l->options->servers;
    /* it had left the run in order: a failure after that is a defect, which the exit code must
       show */
    const bool left = before == TUTTI_SHM_CLOSED;

    return l->options->continue_on_loss && member && !needed && !left && l->user_signal == 0 &&
           l->kill_at == TUTTI_FOREVER && !l->grace_over &&
           !(report.state == TUTTI_SHM_FAILED && report.status == TUTTI_ERR_USAGE) &&
           !is_echo(report, rank);
}

static void describe(const launcher *l, int rank, char *text, size_t bytes)
{
    if (l->meet != NULL)
        tutti_meet_describe(l->meet, rank, text, bytes);
    else
        tutti_shm_describe(&l->region, rank, text, bytes);
}

void tutti_launch_near_lost(launcher *l, int rank, uint32_t before)
{
    launch_worker *w = &l->workers[rank];
    const int left = l->options->workers - l->options->servers - l->lost - 1;
    const bool few = left < l->options->least; /* ends the run, whatever the others report */
    const bool continue_on_loss =
        can_continue(l, rank, before) && (few || (!ends_others(l, rank) && !all_fail(l, rank)));
    char text[500], line[600];

    w->lost_at = 0;
    if (w->continued_without)
        return;
    if (continue_on_loss && !few) {
        w->continued_without = true;
        l->lost++;
        if (l->adopted.on)
            l->adopted_at = tutti_now_ns(l->rt);
        describe(l, rank, text, sizeof text);
        snprintf(line, sizeof line, "%s; if the others can, the run continues with %d worker%s",
                 text, left, left == 1 ? "" : "s");
        if (l->options->lost != NULL)
            l->options->lost(l->options->user, line);
        return;
    }
    if (continue_on_loss) {
        l->too_few = true;
        l->lost++;
    }
    tutti_launch_near_noticed(l);
}

/* Writes how a worker's process ended. when: in which part of the run. */
static void describe_process(const launcher *l, const launch_worker *w, const char *when,
                             tutti_error *why)
{
    if (w->stopped.ended_ns != 0)
        tutti_fail(why, TUTTI_ERR_STATE, 0,
                   "process %ld on host '%s' had been stopped (SIGSTOP) for %.1f s and was ended",
                   (long)w->pid, l->host, (double)w->stopped.ended_ns / 1e9);
    else if (w->signal != 0)
        tutti_fail(why, TUTTI_ERR_STATE, 0, "process %ld was killed by signal %d (SIG%s)%s%s",
                   (long)w->pid, w->signal, tutti_launch_signal_name(w->signal), when,
                   tutti_launch_for_memory(w->signal, l->memory_kills) ? tutti_launch_memory_hint
                                                                       : "");
    else if (w->exit_code == 0)
        tutti_fail(why, TUTTI_ERR_STATE, 0,
                   "process %ld exited with code 0 in the middle of the run", (long)w->pid);
    else
        tutti_fail(why, TUTTI_ERR_STATE, 0,
                   "process %ld exited with code %d%s; its own output may give the reason",
                   (long)w->pid, w->exit_code, when);
}

void tutti_launch_near_ended(launcher *l, int rank)
{
    launch_worker *w = &l->workers[rank];
    const uint32_t state = tutti_launch_near_report(l, rank).state;
    const char *when = state == TUTTI_SHM_ABSENT    ? " before it had joined the run"
                       : state == TUTTI_SHM_RUNNING ? ""
                                                    : " after it had left the run";
    tutti_error why = { .rank = -1 };

    w->guilt = judge_worker(l, w, rank);
    if (w->continued_without &&
        w->guilt == GUILT_OURS) /* ended because the run continues without it */
        return;
    if (w->guilt == GUILT_NONE) {
        /* has an effect if it never joined: from now on no worker waits for it */
        tutti_shm_depart(&l->region, rank, TUTTI_SHM_CLOSED, NULL, 0);
        return;
    }
    describe_process(l, w, when, &why);
    tutti_shm_depart(&l->region, rank,
                     state == TUTTI_SHM_CLOSED ? TUTTI_SHM_FAILED : TUTTI_SHM_LOST, &why,
                     w->signal);
    if (l->meet != NULL)
        tutti_meet_lost(l->meet, rank, &why, w->signal);
    if (l->options->continue_on_loss && state == TUTTI_SHM_FAILED)
        w->lost_at = tutti_now_ns(l->rt) + ECHOES_NS;
    else if (w->guilt != GUILT_OURS || w->stopped.expelled_ns != 0)
        tutti_launch_near_lost(l, rank, state);
}

/* ---- the result ---- */
/* The rank that the result is about: the most guilty, of equals the first that failed; or -1 */
static int culprit_of(const launcher *l)
{
    int culprit = -1;

    for (int r = 0; r < l->options->workers; r++) {
        const guilt mine = l->workers[r].guilt;
        if (mine == GUILT_NONE ||
            (l->workers[r].continued_without && !l->too_few && !ends_others(l, r)))
            continue;
        if (culprit < 0 || mine < l->workers[culprit].guilt ||
            (mine == l->workers[culprit].guilt &&
             tutti_launch_near_report(l, r).order < tutti_launch_near_report(l, culprit).order))
            culprit = r;
    }
    return culprit;
}

static bool is_users(int signal)
{
    return signal == SIGINT || signal == SIGTERM || signal == SIGHUP;
}

static int exit_code_of(const launch_worker *w, worker_report report)
{
    if (w->guilt == GUILT_KILLED || w->guilt == GUILT_OURS)
        return 3;
    if (report.state == TUTTI_SHM_FAILED && report.status == TUTTI_ERR_USAGE)
        return 2;
    if (report.state == TUTTI_SHM_FAILED && report.status == TUTTI_ERR_PEER)
        return 3;
    if (report.state == TUTTI_SHM_LOST && w->exit_code == 0)
        return 3;
    /* the code shows the kind of failure */
    return w->exit_code == 2 || w->exit_code == 3 ? w->exit_code : 1;
}

/* Writes in words why the run has ended: by this worker. */
static void describe_end(launcher *l, int rank, worker_report report)
{
    tutti_launch_result *result = l->result;
    if (report.state == TUTTI_SHM_FAILED && result->exit_code == 2) /* usage: names no worker */
        snprintf(result->text, sizeof result->text, "%.*s", TUTTI_SHM_REASON_BYTES - 1,
                 report.text);
    else if (report.state == TUTTI_SHM_FAILED)
        snprintf(result->text, sizeof result->text, "worker %d: %.*s", result->rank,
                 TUTTI_SHM_REASON_BYTES - 1, tutti_launch_report_text(result->rank, report.text));
    else
        describe(l, rank, result->text, sizeof result->text);
    if (report.state != TUTTI_SHM_FAILED && l->options->size == 0 &&
        rank >= l->options->workers - l->options->servers) {
        const size_t used = strlen(result->text);
        snprintf(result->text + used, sizeof result->text - used,
                 "; it was server %d of %d, and its slice of the model is gone with it",
                 rank - (l->options->workers - l->options->servers), l->options->servers);
    }
    if (l->too_few) {
        const size_t used = strlen(result->text);
        snprintf(result->text + used, sizeof result->text - used,
                 "; %d of %d workers were left, fewer than the %d of min-workers",
                 l->options->workers - l->options->servers - l->lost,
                 l->options->workers - l->options->servers, l->options->least);
    }
}

void tutti_launch_near_conclude(launcher *l)
{
    tutti_launch_result *result = l->result;
    const int rank = culprit_of(l);
    const launch_worker *w = rank < 0 ? NULL : &l->workers[rank];
    worker_report report;

    if (w != NULL && w->guilt == GUILT_KILLED && is_users(w->signal) && l->user_signal == 0) {
        struct pollfd polled = { .fd = l->signals.fd, .events = POLLIN };
        if (poll(&polled, 1, (int)(ECHO_NS / NS_PER_MS)) > 0)
            tutti_launch_near_read_signals(l);
    }
    if (l->user_signal != 0 &&
        (!l->failed_first || w == NULL || (w->guilt == GUILT_KILLED && is_users(w->signal)))) {
        result->exit_code = 128 + l->user_signal;
        snprintf(result->text, sizeof result->text, "stopped by signal %d (SIG%s)", l->user_signal,
                 tutti_launch_signal_name(l->user_signal));
        return;
    }
    if (w == NULL)
        return;
    report = tutti_launch_near_report(l, rank);
    result->exit_code = exit_code_of(w, report);
    result->rank = l->options->first + rank;
    result->pid = w->pid;
    result->signal = w->signal;
    describe_end(l, rank, report);
}
