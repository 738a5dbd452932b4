/* hosts.c: the launcher of a run over several hosts (tutti_launch_hosts). On each host ssh, or the
   command of --rsh, starts an agent (agent.c). The agent gets its job by its standard input, since
   any user can read command lines. The launcher serves the workers' meeting place (meet.h), so it
   receives the failure report of each worker and notifies all workers when one ends.

   The stages of a host

     STARTING   the command runs, the agent has not answered
     ANSWERED   the agent's greeting has come: version, cores. The job is sent once every host has
                answered, since the number of threads depends on all
     RUNNING    the job was sent
     DONE       the agent's last frame has come
     GONE       the command has ended and its output is read to the end

   What happens when

     a worker fails           its agent reports how it ended. The meeting place notifies the others,
                              which end by themselves. Those that run after the grace period are
                              killed.
     a host is lost           the command ends (ssh notices in 15 s), or its workers are silent at
                              the meeting place; its workers are lost.
     a worker is lost, and    the loss is reported at once, and no grace period begins. The process
     the run continues        is killed, if its agent can be reached: the others do not wait for it.
     the user sends a signal  all agents send SIGTERM to their workers; then as above. A second
                              signal kills at once.
     the launcher is killed   the inputs of all agents close, and they end everything. */
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "hosts_internal.h"
#include "launch.h"

#define NS_PER_MS ((int64_t)1000000)
#define NS_PER_S ((int64_t)1000000000)
#define GRACE_NS NS_PER_S
#define START_NS (60 * NS_PER_S)
#define MISSING_FIRST_NS (2 * NS_PER_S)
#define MISSING_NEXT_NS (5 * NS_PER_S)
/* The agent of a lost worker waits for its own grace period and then reports how its workers ended;
   the launcher waits so much longer. */
#define REPORT_NS (300 * NS_PER_MS)
/* ---- messages for the user ---- */
static void print_line(const far_launcher *l, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void print_line(const far_launcher *l, const char *format, ...)
{
    char text[LINE];
    va_list args;
    int n;

    va_start(args, format);
    n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    l->options->output(l->options->user, 2, text, (size_t)(n < LINE ? n : LINE - 1));
}

/* "rank 3" or "ranks 2 to 3" */
static const char *ranks_of(const tutti_launch_host *h, char *text, size_t bytes)
{
    if (h->workers == 1)
        snprintf(text, bytes, "rank %d", h->first);
    else
        snprintf(text, bytes, "ranks %d to %d", h->first, h->first + h->workers - 1);
    return text;
}

/* ---- ends ---- */
static void stop_all(far_launcher *l)
{
    const int64_t now = tutti_now_ns(l->rt);

    if (l->stopping)
        return;
    l->stopping = true;
    for (int i = 0; i < l->n; i++) {
        if (l->hosts[i].in >= 0) {
            close(l->hosts[i].in); /* the end of the input means K, even in the middle of a job */
            l->hosts[i].in = -1;
        }
    }
    l->kill_at = TUTTI_FOREVER;
    l->force_at = now + GRACE_NS;
}

void tutti_launch_far_give_up(far_launcher *l, int exit_code, const char *format, ...)
{
    va_list args;

    if (!l->failed && l->user_signal == 0) {
        l->failed = true;
        l->result->exit_code = exit_code;
        va_start(args, format);
        vsnprintf(l->result->text, sizeof l->result->text, format, args);
        va_end(args);
    }
    stop_all(l);
}

static void begin_grace(far_launcher *l, int64_t grace_ns)
{
    if (l->kill_at == TUTTI_FOREVER && !l->stopping)
        l->kill_at = tutti_now_ns(l->rt) + (grace_ns > 0 ? grace_ns : GRACE_NS) + REPORT_NS;
}

void tutti_launch_far_noticed(far_launcher *l)
{
    if (l->result->noticed_ns == 0)
        l->result->noticed_ns = tutti_now_ns(l->rt);
    begin_grace(l, l->options->grace_ns);
}

/* ---- the end of a host ---- */
static void rsh_ended(far_launcher *l, far_host *h)
{
    char how[200], ranks[60];

    /* another process may still have the pipe open, so its end is not waited for */
    if (h->out >= 0 ? tutti_launch_far_read_out(l, h) : false) {
        close(h->out);
        h->out = -1;
    }
    if (h->err >= 0)
        tutti_launch_far_read_err(l, h);
    if (h->rsh_line.n > 0)
        snprintf(h->last_error, sizeof h->last_error, "%.*s", (int)h->rsh_line.n, h->rsh_line.text);
    tutti_launch_far_flush(l, h, 2, &h->rsh_line);
    tutti_launch_far_flush(l, h, 1, &h->out_line);
    tutti_launch_far_flush(l, h, 2, &h->err_line);
    if (WIFSIGNALED(h->rsh_status))
        snprintf(how, sizeof how, "was killed by signal %d (SIG%s)", WTERMSIG(h->rsh_status),
                 tutti_launch_signal_name(WTERMSIG(h->rsh_status)));
    else
        snprintf(how, sizeof how, "ended with code %d", WEXITSTATUS(h->rsh_status));
    if (h->stage < RUNNING)
        tutti_launch_far_give_up(
            l, 1, "host %s (%s): '%s' %s before Tutti answered there%s%.200s; %s must work there",
            h->spec->name, ranks_of(h->spec, ranks, sizeof ranks), l->rsh[0], how,
            h->last_error[0] != '\0' ? ": " : "", h->last_error, l->command);
    else if (h->stage == RUNNING) {
        for (int r = h->spec->first;
             r < h->spec->first + h->spec->workers && !l->stopping && l->user_signal == 0; r++) {
            char text[800];
            snprintf(text, sizeof text, "host %s is gone: '%.120s' %s%s%.150s", h->spec->name,
                     l->rsh[0], how, h->last_error[0] != '\0' ? ": " : "", h->last_error);
            if (!l->workers[r].ended)
                tutti_launch_far_lost(l, r, text, 0);
            if (l->meet == NULL)
                tutti_launch_far_give_up(l, 3, "%s", text);
        }
    }
    h->stage = GONE;
}

static void reap_host(far_launcher *l, far_host *h)
{
    const pid_t got = tutti_launch_reap(h->pid, &h->rsh_status);

    if (got == 0)
        return;
    close(h->pidfd);
    h->pidfd = -1;
    h->pid = -1;
    rsh_ended(l, h);
    for (int *fd = (int[]){ 0 }, i = 0; i < 3; i++) {
        fd = i == 0 ? &h->in : i == 1 ? &h->out : &h->err;
        if (*fd >= 0)
            close(*fd);
        *fd = -1;
    }
}

/* ---- which workers have not joined ---- */
static int missing_of(const far_launcher *l, const far_host *h, char *text, size_t bytes)
{
    int n = 0;
    size_t used = 0;

    text[0] = '\0';
    for (int r = h->spec->first; r < h->spec->first + h->spec->workers; r++) {
        if (l->meet == NULL || l->workers[r].ended ||
            tutti_meet_rank_of(l->meet, r)->state != TUTTI_MEET_ABSENT)
            continue;
        if (used < bytes)
            used += (size_t)snprintf(text + used, bytes - used, "%s%d", n > 0 ? ", " : "", r);
        n++;
    }
    return n;
}

/* Lists which workers have not joined: "host b (ranks 2 to 3) has not answered". Returns how
   many. */
static int list_missing(const far_launcher *l, char *text, size_t bytes)
{
    int missing = 0;
    size_t used = 0;
    char ranks[200];

    text[0] = '\0';
    for (int i = 0; i < l->n; i++) {
        const far_host *h = &l->hosts[i];
        int n = 0;
        if (h->stage == STARTING)
            n = h->spec->workers;
        else if (h->stage == RUNNING || h->stage == DONE)
            n = missing_of(l, h, ranks, sizeof ranks);
        if (n == 0)
            continue;
        if (used < bytes) {
            char own[60];
            if (h->stage == STARTING)
                used += (size_t)snprintf(text + used, bytes - used,
                                         "%shost %s (%s) has not answered", missing > 0 ? "; " : "",
                                         h->spec->name, ranks_of(h->spec, own, sizeof own));
            else
                used +=
                    (size_t)snprintf(text + used, bytes - used,
                                     "%sfrom host %s rank%s %s %s not come to the meeting place",
                                     missing > 0 ? "; " : "", h->spec->name, n > 1 ? "s" : "",
                                     ranks, n > 1 ? "have" : "has");
        }
        missing += n;
    }
    return missing;
}

static bool gathered(const far_launcher *l)
{
    for (int i = 0; i < l->n; i++)
        if (l->hosts[i].stage < RUNNING)
            return false;
    return l->meet == NULL || tutti_meet_complete(l->meet);
}

static bool none_left(const far_launcher *l)
{
    for (int r = 0; r < l->size; r++)
        if (!l->workers[r].ended && !l->workers[r].lost)
            return false;
    return true;
}

/* In a run that ends: are all remaining workers on hosts on which a worker is lost whose end the
   agent has not reported? Such a host may be cut off, and waiting does not make it answer. */
static bool only_silence_left(const far_launcher *l)
{
    bool left = false;

    for (int r = 0; r < l->size && l->meet != NULL; r++) {
        const int host = l->workers[r].host;
        bool silent = false;
        if (l->workers[r].ended)
            continue;
        for (int k = 0; k < l->size; k++)
            silent = silent || (l->workers[k].host == host && !l->workers[k].ended &&
                                tutti_meet_rank_of(l->meet, k)->state == TUTTI_MEET_LOST);
        if (!silent)
            return false;
        left = true;
    }
    return left;
}

/* Tells which hosts are missing, now and then; in the end the run is given up. */
static void check_missing(far_launcher *l, int64_t now)
{
    char text[500];
    if (now >= l->give_up_at) {
        l->give_up_at = TUTTI_FOREVER;
        if (list_missing(l, text, sizeof text) > 0)
            tutti_launch_far_give_up(l, 1,
                                     "after %.3g s %s; raise --start-timeout if that was too short",
                                     (double)(now - l->began) / (double)NS_PER_S, text);
    } else if (now >= l->missing_at) {
        l->missing_at = now + MISSING_NEXT_NS;
        if (list_missing(l, text, sizeof text) > 0)
            print_line(l, "tutti: %.0f s: %s\n", (double)(now - l->began) / (double)NS_PER_S, text);
    }
}

static void check_clock(far_launcher *l)
{
    const int64_t now = tutti_now_ns(l->rt);

    if (gathered(l) || l->stopping)
        l->missing_at = l->give_up_at = TUTTI_FOREVER;
    check_missing(l, now);
    /* a host that is cut off cannot report that its workers have ended */
    if (l->lost > 0 && l->kill_at == TUTTI_FOREVER && !l->stopping && none_left(l))
        l->kill_at = now + GRACE_NS + REPORT_NS;
    if (l->result->noticed_ns != 0 && now >= l->result->noticed_ns + REPORT_NS && !l->stopping &&
        only_silence_left(l)) {
        stop_all(l);
        l->force_at = now + REPORT_NS;
    }
    if (now >= l->kill_at)
        stop_all(l);
    if (now >= l->force_at) {
        l->force_at = now + GRACE_NS;
        for (int i = 0; i < l->n; i++)
            if (l->hosts[i].pid > 0)
                kill(l->hosts[i].pid, SIGKILL);
    }
}

/* ---- watching ---- */
static void read_signals(far_launcher *l)
{
    int next_signal;

    while ((next_signal = tutti_launch_signals_next(&l->signals)) != 0) {
        const int64_t now = tutti_now_ns(l->rt);
        if (l->user_signal != 0) {
            if (l->options->stop_ns == 0 || now - l->signal_at >= TUTTI_LAUNCH_ECHO_NS)
                stop_all(l);
            continue;
        }
        l->user_signal = next_signal;
        l->signal_at = now;
        l->failed_first = l->failed || l->result->noticed_ns != 0;
        for (int i = 0; i < l->n; i++) {
            if (l->hosts[i].stage < RUNNING || l->hosts[i].job != NULL)
                stop_all(l); /* not all have begun: there is no worker to end in order */
            else if (l->hosts[i].in >= 0 && write(l->hosts[i].in, "T", 1) != 1)
                continue; /* it reads no more: its end is seen, or its workers' time is limited */
        }
        begin_grace(l, l->options->stop_ns > 0 ? l->options->stop_ns : l->options->grace_ns);
    }
}

static void serve_meeting(far_launcher *l)
{
    if (l->meet == NULL)
        return;
    tutti_meet_progress(l->meet, NULL); /* its deadline to gather is give_up_at, too */
    for (int rank; (rank = tutti_meet_event(l->meet)) >= 0;) {
        const tutti_meet_state state = tutti_meet_rank_of(l->meet, rank)->state;
        if (state == TUTTI_MEET_FAILED || state == TUTTI_MEET_LOST) {
            l->workers[rank].report_until = 0;
            if (l->user_signal == 0 && state == TUTTI_MEET_FAILED)
                tutti_launch_far_failed(l, rank);
            else if (l->user_signal == 0)
                tutti_launch_far_loss(l, rank);
        }
    }
}

/* Returns when the first worker has something due, if that is before `at`; else `at`. */
static int64_t first_due(const far_launcher *l, int64_t at)
{
    for (int r = 0; r < l->size; r++)
        if (l->workers[r].report_until != 0 && l->workers[r].report_until < at)
            at = l->workers[r].report_until;
    for (int r = 0; r < l->size; r++)
        if (l->workers[r].lost_at != 0 && l->workers[r].lost_at < at)
            at = l->workers[r].lost_at;
    return at;
}

static int milliseconds_to(const far_launcher *l)
{
    const int64_t now = tutti_now_ns(l->rt);
    int64_t at = l->missing_at;

    at = l->give_up_at < at ? l->give_up_at : at;
    at = l->kill_at < at ? l->kill_at : at;
    at = l->force_at < at ? l->force_at : at;
    if (l->result->noticed_ns != 0 && now < l->result->noticed_ns + REPORT_NS &&
        l->result->noticed_ns + REPORT_NS < at)
        at = l->result->noticed_ns + REPORT_NS;
    at = first_due(l, at);
    if (l->meet != NULL && at > now + tutti_meet_wait_ns(l->meet))
        at = now + tutti_meet_wait_ns(l->meet);
    if (at == TUTTI_FOREVER)
        return -1;
    at = at <= now ? 0 : (at - now + NS_PER_MS - 1) / NS_PER_MS;
    return at > INT_MAX ? INT_MAX : (int)at;
}

static bool any_left(const far_launcher *l)
{
    for (int i = 0; i < l->n; i++)
        if (l->hosts[i].stage != GONE)
            return true;
    return false;
}

/* Lists what is waited for: signals, the meeting, and four descriptors of each host. Returns their
   number. */
static nfds_t list_polled(far_launcher *l)
{
    struct pollfd *p = l->polled;
    *p++ = (struct pollfd){ .fd = l->signals.fd, .events = POLLIN };
    *p++ = (struct pollfd){ .fd = l->meet != NULL ? tutti_meet_fd(l->meet) : -1, .events = POLLIN };
    for (int i = 0; i < l->n; i++) {
        const far_host *h = &l->hosts[i];
        *p++ = (struct pollfd){ .fd = h->out, .events = POLLIN };
        *p++ = (struct pollfd){ .fd = h->err, .events = POLLIN };
        *p++ = (struct pollfd){ .fd = h->pidfd, .events = POLLIN };
        *p++ = (struct pollfd){ .fd = h->job != NULL ? h->in : -1, .events = POLLOUT };
    }
    return (nfds_t)(p - l->polled);
}

/* Serves a host: sends its job, passes on what it prints, and sees its end. */
static void serve_host(far_launcher *l, int i)
{
    far_host *h = &l->hosts[i];
    const struct pollfd *q = &l->polled[2 + 4 * i];
    if (q[3].revents != 0)
        tutti_launch_far_push_job(h);
    if (h->out >= 0 && q[0].revents != 0 && !tutti_launch_far_read_out(l, h)) {
        close(h->out);
        h->out = -1;
    }
    if (h->err >= 0 && q[1].revents != 0 && !tutti_launch_far_read_err(l, h)) {
        close(h->err);
        h->err = -1;
    }
    if (h->pidfd >= 0 && q[2].revents != 0)
        reap_host(l, h);
}

static bool all_answered(const far_launcher *l)
{
    for (int i = 0; i < l->n; i++)
        if (l->hosts[i].stage != ANSWERED)
            return false;
    return true;
}

static tutti_status watch_hosts(far_launcher *l, tutti_error *err)
{
    bool sent = false;

    while (any_left(l)) {
        const nfds_t n = list_polled(l);
        if (poll(l->polled, n, milliseconds_to(l)) < 0 && errno != EINTR && errno != EAGAIN &&
            errno != ENOMEM)
            stop_all(l);
        read_signals(l);
        serve_meeting(l); /* failure reports before ends */
        for (int i = 0; i < l->n; i++)
            serve_host(l, i);
        tutti_launch_far_silent_ends(l);
        if (!sent && !l->stopping && l->user_signal == 0 && all_answered(l)) {
            sent = true;
            if (tutti_launch_far_send_jobs(l, err) != TUTTI_OK)
                tutti_launch_far_give_up(l, err->status == TUTTI_ERR_USAGE ? 2 : 1, "%s",
                                         err->text);
        }
        check_clock(l);
    }
    return TUTTI_OK;
}

/* Allocates the records of hosts and workers, and what is received from each host. */
static tutti_status open_records(far_launcher *l, tutti_error *err)
{
    const tutti_launch_hosts_options *o = l->options;
    l->hosts = tutti_alloc((size_t)l->n, sizeof *l->hosts);
    for (int i = 0; l->hosts != NULL && i < l->n; i++) /* can be closed from here on */
        l->hosts[i] = (far_host){ .spec = &o->hosts[i],
                                  .pid = -1,
                                  .pidfd = -1,
                                  .in = -1,
                                  .out = -1,
                                  .err = -1,
                                  .result = { .rank = -1 } };
    l->workers = tutti_alloc((size_t)l->size, sizeof *l->workers);
    l->polled = tutti_alloc(2 + 4 * (size_t)l->n, sizeof *l->polled);
    if (l->hosts == NULL || l->workers == NULL || l->polled == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "watching %d hosts", l->n);
    for (int i = 0; i < l->n; i++) {
        const far_host *h = &l->hosts[i];
        for (int r = h->spec->first; r < h->spec->first + h->spec->workers && r < l->size; r++)
            l->workers[r].host = i;
    }
    for (int i = 0; i < l->n; i++) {
        l->hosts[i].received = tutti_alloc(RECEIVE_BYTES + 1, 1);
        if (l->hosts[i].received == NULL)
            return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "watching %d hosts", l->n);
    }
    return TUTTI_OK;
}

/* ---- opening and closing ---- */
static tutti_status prepare(far_launcher *l, tutti_error *err)
{
    const tutti_launch_hosts_options *o = l->options;
    const char *rsh = o->rsh != NULL && o->rsh[0] != '\0'
                          ? o->rsh
                          : "ssh -T -x -a -o BatchMode=yes -o ClearAllForwardings=yes -o "
                            "ServerAliveInterval=5 -o ServerAliveCountMax=3 --";

    if (o->argv == NULL || o->argv[0] == NULL || o->agent == NULL || o->directory == NULL ||
        o->n_hosts < 1)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "no program to start, no agent, no directory or no host; give all of them");
    TUTTI_TRY(tutti_runtime_open_posix(&l->rt, err));
    l->n = o->n_hosts;
    for (int i = 0; i < l->n; i++)
        l->size += o->hosts[i].workers;
    TUTTI_TRY(tutti_launch_far_command(o->agent, l->command, sizeof l->command, err));
    TUTTI_TRY(tutti_launch_split_command(rsh, 2, &l->rsh, &l->n_rsh, err));
    TUTTI_TRY(open_records(l, err));
    return tutti_launch_signals_take(&l->signals, err);
}

static void launcher_close(far_launcher *l)
{
    for (int i = 0; l->hosts != NULL && i < l->n; i++) {
        far_host *h = &l->hosts[i];
        tutti_launch_far_job_close(h);
        tutti_free(h->received);
        if (h->in >= 0)
            close(h->in);
        if (h->out >= 0)
            close(h->out);
        if (h->err >= 0)
            close(h->err);
        if (h->pidfd >= 0)
            close(h->pidfd);
    }
    tutti_meet_close(l->meet);
    tutti_launch_signals_release(&l->signals);
    tutti_free(l->hosts);
    tutti_free(l->workers);
    tutti_free(l->polled);
    tutti_free(l->rsh);
    tutti_runtime_close(l->rt);
}

tutti_status tutti_launch_hosts(const tutti_launch_hosts_options *options,
                                tutti_launch_result *result, tutti_error *err)
{
    far_launcher l = { .options = options,
                       .result = result,
                       .signals = { .fd = -1 },
                       .kill_at = TUTTI_FOREVER,
                       .force_at = TUTTI_FOREVER };
    struct sigaction pipe_before, ignore = { .sa_handler = SIG_IGN };
    tutti_error own = { .rank = -1 };
    tutti_status status;

    *result = (tutti_launch_result){ .rank = -1 };
    /* writing to an agent that has ended must not kill this process */
    sigaction(SIGPIPE, &ignore, &pipe_before);
    status = prepare(&l, &own);
    if (status == TUTTI_OK) {
        tutti_launch_far_routes(&l);
        l.began = tutti_now_ns(l.rt);
        l.missing_at = l.began + MISSING_FIRST_NS;
        l.give_up_at = l.began + (options->start_ns > 0 ? options->start_ns : START_NS);
        for (int i = 0; i < l.n && status == TUTTI_OK; i++)
            status = tutti_launch_far_start(&l, &l.hosts[i], &own);
        if (status != TUTTI_OK) {
            tutti_launch_far_give_up(&l, status == TUTTI_ERR_USAGE ? 2 : 1, "%s", own.text);
            for (int i = 0; i < l.n; i++)
                if (l.hosts[i].pid < 0)
                    l.hosts[i].stage = GONE;
        }
        watch_hosts(&l, &own);
        tutti_launch_far_conclude(&l);
    } else {
        result->exit_code = status == TUTTI_ERR_USAGE ? 2 : 1;
        snprintf(result->text, sizeof result->text, "%s", own.text);
    }
    if (status != TUTTI_OK && err != NULL)
        *err = own;
    launcher_close(&l);
    sigaction(SIGPIPE, &pipe_before, NULL);
    return status;
}
