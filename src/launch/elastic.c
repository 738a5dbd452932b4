/* elastic.c: starts the workers of this host for a run whose workers come and go, and those that
   are lost again (tutti_launch_elastic).

   The workers agree with each other on the members of the run. The launcher starts processes,
   passes signals on, and reports losses. The founders meet in shared memory; all later messages
   are those of their nodes. Workers report to the launcher by one pipe, a line each:

     3 at 10.0.0.2:41234          worker 3 has joined, and others reach it there
     3 in 1 7                     worker 3 is rank 1 of epoch 7 (not from `tutti train`)
     3 ended                      worker 3 has seen the end of the run
     3 refused                    worker 3 does not fit the run, and says why by itself
     3 says ...                   a sentence for the user

   What happens when

     a worker ends in order       nothing: it has left, or the run has ended.
     a worker is lost             it is started again after a while, as a newcomer, which gets the
                                  state from the others. That is 1 s, and doubles with each loss
                                  within 10 s of its begin, since it may fail by itself; a loss
                                  after that resets it. It is not started if it has refused its
                                  command line, has ended since too few others are left, has been
                                  lost too often, or no other worker of this host is left.
     a founder refuses the run    the others are asked to leave.
     a founder is lost before     the others end, since the first epoch is of all founders.
     all have met
     the user sends a signal      SIGTERM to all workers: they leave. A second one kills at once.
     the launcher is killed       the kernel kills its workers (start.c); others continue.
     a worker sees the end of     those that do not are asked to leave after a while, newcomers
     the run                      sooner than members, which may have to make the end again. It may
                                  do more, and is not disturbed in that.
     no member is left            newcomers are asked to leave, and none is started.
     a worker of another host     it is started when the founders have met, by a command of this
                                  host, and is a newcomer as any other. Where hosts are read again
                                  (elastic_hosts.c), it leaves when its host is no longer listed.
     all workers have ended       so has the launcher. 0 if rank 0 of the newest epoch has seen the
                                  end, or was none of this host, and none has failed after that.

   `tutti join` uses it for one worker, which is a newcomer of a run elsewhere. */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "elastic_internal.h"

#define MS INT64_C(1000000)
enum { LEAVE_MS = 30000, STOPPED_MS = 3000, CHECK_MS = 500, WAIT_MS = 1000, WAIT_MOST_MS = 30000 };
enum { ENDED_MS = 6000, AGAIN_MS = 30000 };
enum { LASTED_MS = 10000 }; /* in the run, after which a loss is none of its own making */
enum { REFUSED = 2, LOST = 3 }; /* exit codes of a worker */

static void send_all(elastic *e, int signal)
{
    e->killed = e->killed || signal == SIGKILL;
    for (int k = 0; k < e->n; k++) {
        e->workers[k].start_at = 0;
        e->workers[k].ours = e->workers[k].ours || signal == SIGKILL;
        if (e->workers[k].pidfd >= 0)
            syscall(SYS_pidfd_send_signal, e->workers[k].pidfd, signal, NULL, 0);
    }
}

static void read_signals(elastic *e)
{
    int signal;

    while ((signal = tutti_launch_signals_next(&e->signals)) != 0) {
        const int64_t now = tutti_now_ns(e->rt);
        if (e->user_signal == 0) {
            e->user_signal = signal;
            e->signal_at = now;
            e->kill_at =
                now + (e->options->leave_ns != 0 ? e->options->leave_ns : LEAVE_MS * MS);
            send_all(e, SIGTERM);
        } else if (now - e->signal_at >= TUTTI_LAUNCH_ECHO_NS)
            send_all(e, SIGKILL);
    }
}

/* ---- the pass ---- */

/* It has the addresses of the founders. Members of later epochs write theirs (elastic/follow.h). */
static void write_pass(elastic *e)
{
    tutti_launch_pass pass = { .id = e->options->id, .key = e->options->key };
    tutti_error why = { .rank = -1 };

    for (int k = 0; k < e->n && pass.n < TUTTI_LAUNCH_CONTACTS; k++)
        if (e->workers[k].pidfd >= 0 && !e->workers[k].newcomer && e->workers[k].address[0] != '\0')
            snprintf(pass.at[pass.n++], sizeof *pass.at, "%s", e->workers[k].address);
    if (pass.n > 0 && tutti_launch_pass_write(&pass, e->options->pass, &why) != TUTTI_OK)
        say(e, why.text);
    tutti_run_key_wipe(&pass.key);
    e->pass = pass;
}

/* Removes the pass after the run, or if it is still the launcher's own: else workers of other
   launchers go on, and have theirs. */
static void remove_pass(const elastic *e)
{
    tutti_launch_pass there;
    bool own = tutti_launch_pass_read(&there, e->options->pass, NULL) == TUTTI_OK &&
               memcmp(&there.id, &e->options->id, sizeof there.id) == 0;

    tutti_run_key_wipe(&there.key);
    if (own && !e->ended)
        own = there.n == e->pass.n && memcmp(there.at, e->pass.at, sizeof there.at) == 0;
    if (own)
        unlink(e->options->pass);
}

/* Its end is no loss. */
static void end_one(worker *w)
{
    w->ours = true;
    syscall(SYS_pidfd_send_signal, w->pidfd, SIGTERM, NULL, 0);
}

/* The run has ended, and its pass is gone: one that was started again and does not listen yet would
   fail for want of it. */
static void end_the_late(elastic *e)
{
    for (int k = 0; k < e->n; k++) {
        worker *w = &e->workers[k];
        if (w->pidfd < 0 || !w->newcomer || w->elsewhere || w->address[0] != '\0' || w->done)
            continue;
        end_one(w);
    }
}

static void take_line(elastic *e, const char *line)
{
    char address[64];
    unsigned long long epoch;
    int k, place, at = 0;

    if (sscanf(line, "%d says %n", &k, &at) == 1 && at > 0)
        say(e, line + at);
    else if (sscanf(line, "%d in %d %llu", &k, &place, &epoch) == 3 && k >= 0 && k < e->n) {
        e->workers[k].in = e->placed = true;
        e->workers[k].place = place;
        e->workers[k].epoch = epoch;
        if (epoch > e->newest) /* its rank 0 writes the results again */
            e->first = e->whole = false;
        if (epoch >= e->newest) { /* else it was stopped, or has had no time to say so */
            e->newest = epoch;
            e->first = e->first || place == 0;
        }
    }
    else if (sscanf(line, "%d at %63s", &k, address) == 2 && k >= 0 && k < e->n) {
        snprintf(e->workers[k].address, sizeof e->workers[k].address, "%s", address);
        e->workers[k].begun_at = tutti_now_ns(e->rt);
        if (!e->options->joins && !e->workers[k].newcomer)
            write_pass(e);
        if (!e->met && e->user_signal == 0 && e->options->source == NULL)
            tutti_launch_elastic_take_hosts(e, e->options->hosts, e->options->n_hosts);
        e->met = true;
    } else if (strstr(line, " refused") != NULL && sscanf(line, "%d", &k) == 1 && k >= 0 && k < e->n)
        e->workers[k].refused = true;
    else if (strstr(line, " ended") != NULL && sscanf(line, "%d", &k) == 1 && k >= 0 && k < e->n) {
        e->workers[k].done = true;
        e->whole = e->whole || !e->workers[k].in ||
                   (e->workers[k].place == 0 && e->workers[k].epoch == e->newest);
        if (!e->ended) {
            e->ended_at = tutti_now_ns(e->rt);
            end_the_late(e);
        }
        e->ended = true;
    }
}

static void read_tells(elastic *e)
{
    ssize_t n;

    while ((n = read(e->tells[0], e->told + e->n_told, sizeof e->told - 1 - e->n_told)) > 0) {
        char *line = e->told, *end;
        e->told[e->n_told += (size_t)n] = '\0';
        for (; (end = strchr(line, '\n')) != NULL; line = end + 1) {
            *end = '\0';
            take_line(e, line);
        }
        e->n_told = strlen(line);
        memmove(e->told, line, e->n_told);
        if (e->n_told == sizeof e->told - 1) /* no line of ours */
            e->n_told = 0;
    }
}

/* ---- ends ---- */

/* Is it in the run, as far as the launcher knows? Founders are as soon as they have met. */
static bool is_member(const elastic *e, const worker *w)
{
    return w->pidfd >= 0 && w->address[0] != '\0' && (w->in || !w->newcomer || !e->placed);
}

/* No worker of this host is in the run, so none could admit a newcomer. */
static void end_the_waiting(elastic *e)
{
    for (int k = 0; k < e->n; k++) {
        worker *w = &e->workers[k];
        if (w->elsewhere) /* it may be in the run */
            continue;
        w->start_at = 0;
        if (w->pidfd < 0 || !w->newcomer || w->done)
            continue;
        end_one(w);
    }
}

/* Decides whether a lost worker is started again, and writes the end of the sentence. meant: it has
   ended by itself, and would again. */
static void decide(elastic *e, int k, bool meant, char *text, size_t bytes)
{
    worker *w = &e->workers[k];
    const int64_t now = tutti_now_ns(e->rt);
    int wait_ms = WAIT_MS;
    bool others = false;

    for (int i = 0; i < e->n; i++)
        others = others || is_member(e, &e->workers[i]);
    if (!others && e->met && !e->ended)
        end_the_waiting(e);
    if (!others || meant || e->user_signal != 0 || e->ended ||
        w->started_again >= e->options->restarts) {
        snprintf(text, bytes, "%s", others && !e->ended ? "; the run goes on without it" : "");
        return;
    }
    if (now - w->begun_at >= LASTED_MS * MS)
        w->soon = 0;
    for (int i = 0; i < w->soon && wait_ms < WAIT_MOST_MS; i++)
        wait_ms *= 2;
    wait_ms = wait_ms < WAIT_MOST_MS ? wait_ms : WAIT_MOST_MS;
    w->started_again++;
    w->soon++;
    w->start_at = now + wait_ms * MS;
    snprintf(text, bytes, "; the run goes on, and it is started again in %d s", wait_ms / 1000);
}

static void on_loss(elastic *e, int k, int status)
{
    worker *w = &e->workers[k];
    const bool killed = WIFSIGNALED(status);
    const int number = killed ? WTERMSIG(status) : WEXITSTATUS(status);
    char after[120], line[500];
    tutti_error why = { .rank = -1 };

    if (w->elsewhere)
        tutti_fail(&why, TUTTI_ERR_STATE, 0, "its command, on host %.80s, ended with %s %d",
                   w->host, killed ? "signal" : "code", number);
    else if (killed)
        tutti_fail(&why, TUTTI_ERR_STATE, 0, "process %ld was killed by signal %d (SIG%s)",
                   (long)w->pid, number, tutti_launch_signal_name(number));
    else
        tutti_fail(&why, TUTTI_ERR_STATE, 0, "process %ld exited with code %d", (long)w->pid,
                   number);
    if (!w->elsewhere)
        tutti_shm_depart(&e->region, k, TUTTI_SHM_LOST, &why, killed ? number : 0);
    if (w->ours)
        return;
    if (w->done && e->code_after == 0) {
        e->code_after = killed ? LOST : number;
        snprintf(e->why_after, sizeof e->why_after, "worker %d failed after the end of the run: %.200s",
                 k, why.text);
    }
    if (w->done)
        return;
    if (e->code == 0) {
        e->code = killed ? LOST : number;
        if (e->options->joins)
            snprintf(e->why, sizeof e->why, "this worker was lost: %.80s%s", why.text,
                     killed || number != LOST
                         ? ""
                         : "; too few others were left, as a line above says, or the code is the "
                           "command's own; `tutti join` brings it back while the run goes on");
        else
            snprintf(e->why, sizeof e->why, "worker %d was lost: %.250s", k, why.text);
    }
    e->printed = e->printed || (k == 0 && !killed && number == REFUSED &&
                                (w->refused || !e->options->script));
    if (e->options->joins)
        return;
    if (!killed && number == REFUSED && w->started_again == 0 && !w->elsewhere) {
        send_all(e, SIGTERM); /* the run is refused, by one worker perhaps: a file that it reads */
        return;
    }
    decide(e, k, !killed && (number == REFUSED || number == LOST), after, sizeof after);
    if (!killed && number == LOST) /* its own sentence says what becomes of the run */
        after[0] = '\0';
    snprintf(line, sizeof line, "worker %d was lost: %.250s%s", k, why.text, after);
    if (e->met)
        say(e, line);
}

static void reap(elastic *e, int k)
{
    worker *w = &e->workers[k];
    int status = 0;
    const pid_t got = tutti_launch_reap(w->pid, &status);

    if (got == 0)
        return;
    close(w->pidfd);
    w->pidfd = -1;
    w->address[0] = '\0';
    e->alive--;
    if (got > 0 && status != 0)
        on_loss(e, k, status);
    if (w->elsewhere)
        tutti_launch_elastic_free_place(w);
}

/* ---- watching ---- */

/* The run has ended. A worker that is stopped would be waited for for ever. */
static void end_the_stopped(elastic *e)
{
    for (int k = 0; k < e->n && e->ended; k++) {
        worker *w = &e->workers[k];
        if (w->pidfd >= 0 && tutti_launch_stopped_check(&w->stopped, w->pid, STOPPED_MS * MS,
                                                        tutti_now_ns(e->rt), false)) {
            w->ours = true;
            syscall(SYS_pidfd_send_signal, w->pidfd, SIGKILL, NULL, 0);
        }
    }
}

static int milliseconds(const elastic *e)
{
    const int64_t now = tutti_now_ns(e->rt);
    int64_t at = e->ended ? now + CHECK_MS * MS : INT64_MAX;

    if (e->kill_at != 0 && e->kill_at < at)
        at = e->kill_at;
    if (e->options->source != NULL && e->met && at > now + CHECK_MS * MS)
        at = now + CHECK_MS * MS;
    for (int k = 0; k < e->n; k++)
        if (e->workers[k].start_at != 0 && e->workers[k].start_at < at)
            at = e->workers[k].start_at;
    if (at == INT64_MAX)
        return -1;
    return at <= now ? 0 : (int)((at - now + MS - 1) / MS);
}

static bool is_due(const elastic *e)
{
    for (int k = 0; k < e->n; k++)
        if (e->workers[k].start_at != 0)
            return true;
    return false;
}

/* Asks members, or all others. Workers of `tutti train` do not say that they are members. */
static void ask_to_leave(elastic *e, bool members)
{
    for (int k = 0; k < e->n; k++) {
        worker *w = &e->workers[k];
        const bool member = e->placed && is_member(e, w);
        if (w->pidfd < 0 || w->done || member != members)
            continue;
        w->ours = w->ours || (e->placed && !member); /* it may not listen for signals yet */
        syscall(SYS_pidfd_send_signal, w->pidfd, SIGTERM, NULL, 0);
    }
}

/* The run has ended. A newcomer that has not been admitted would ask for a while. A member that has
   not seen the end is making it again, with others or alone, and would wait for a majority. */
static void end_the_rest(elastic *e)
{
    const int64_t since = e->ended ? tutti_now_ns(e->rt) - e->ended_at : 0;

    if (!e->asked && since >= ENDED_MS * MS) {
        e->asked = true;
        ask_to_leave(e, false);
    }
    if (!e->asked_members && since >= AGAIN_MS * MS) {
        e->asked_members = true;
        ask_to_leave(e, true);
    }
}

static void watch(elastic *e)
{
    while (e->alive > 0 || is_due(e)) {
        for (int k = 0; k < e->n; k++)
            e->polled[k] = (struct pollfd){ .fd = e->workers[k].pidfd, .events = POLLIN };
        e->polled[e->n] = (struct pollfd){ .fd = e->signals.fd, .events = POLLIN };
        e->polled[e->n + 1] = (struct pollfd){ .fd = e->tells[0], .events = POLLIN };
        e->polled[e->n + 2] = (struct pollfd){ .fd = e->list.fd, .events = POLLIN };
        e->polled[e->n + 3] = (struct pollfd){ .fd = e->list.pidfd, .events = POLLIN };
        if (poll(e->polled, (nfds_t)e->n + 4, milliseconds(e)) < 0 && errno != EINTR &&
            errno != EAGAIN && errno != ENOMEM)
            send_all(e, SIGKILL); /* cannot happen; without poll they could not be watched */
        read_signals(e);
        read_tells(e); /* before the ends: a worker tells first */
        for (int k = 0; k < e->n; k++)
            if (e->workers[k].pidfd >= 0 && e->polled[k].revents != 0)
                reap(e, k);
        tutti_launch_elastic_read_hosts(e);
        tutti_launch_elastic_start_due(e);
        end_the_stopped(e);
        end_the_rest(e);
        if (e->kill_at != 0 && tutti_now_ns(e->rt) >= e->kill_at) {
            e->kill_at = 0;
            send_all(e, SIGKILL);
        }
    }
    read_tells(e);
}

/* All have ended with 0. */
static void conclude_left(const elastic *e, const char *left, tutti_launch_result *result)
{
    if (!e->met)
        result->exit_code = 1;
    snprintf(result->text, sizeof result->text, "%s",
             e->met ? left
                    : "the command has ended without having taken part in the run: a script does by "
                      "prepare(elastic=True)");
}

static void conclude_joined(const elastic *e, tutti_launch_result *result)
{
    if (e->ended) {
        result->exit_code = e->code_after;
        snprintf(result->text, sizeof result->text, "%s", e->why_after);
    } else if (e->user_signal != 0 && (e->killed || e->code != 0)) {
        result->exit_code = 128 + e->user_signal;
        snprintf(result->text, sizeof result->text, "stopped by signal %d (SIG%s)%s", e->user_signal,
                 tutti_launch_signal_name(e->user_signal),
                 e->killed ? "; it had not left the run, and was killed" : "");
    } else if (e->code != 0) {
        result->exit_code = e->code;
        snprintf(result->text, sizeof result->text, "%s", e->printed ? "" : e->why);
    } else
        conclude_left(e, TUTTI_LAUNCH_LEFT, result);
}

static void conclude(const elastic *e, tutti_launch_result *result)
{
    if (e->options->joins)
        conclude_joined(e, result);
    else if (e->ended) {
        result->exit_code = e->code_after;
        snprintf(result->text, sizeof result->text, "%s", e->why_after);
        if (!e->whole && !e->first && e->code_after == 0)
            snprintf(result->text, sizeof result->text,
                     "rank 0 at the end was a worker that has joined: what it has written is on its "
                     "machine");
        else if (!e->whole && e->code_after == 0) {
            result->exit_code = LOST;
            snprintf(result->text, sizeof result->text,
                     "the first worker was lost as the run ended: what it was to write after that may "
                     "be missing");
        }
    } else if (e->user_signal != 0) {
        result->exit_code = 128 + e->user_signal;
        snprintf(result->text, sizeof result->text, "stopped by signal %d (SIG%s)", e->user_signal,
                 tutti_launch_signal_name(e->user_signal));
    } else if (e->code == REFUSED && e->printed)
        result->exit_code = e->code;
    else if (e->code != 0) {
        result->exit_code = e->code;
        snprintf(result->text, sizeof result->text,
                 "%s%s", e->why,
                 e->met ? "; no worker of this machine is left" : ", before all workers had met");
    } else
        conclude_left(e, "all workers of this machine have left the run; it goes on if there are others", result);
}

/* ---- opening and closing ---- */

static void elastic_close(elastic *e)
{
    if (e->met && !e->options->joins)
        remove_pass(e);
    tutti_launch_hostlist_close(&e->list);
    tutti_launch_start_close(&e->founders);
    tutti_launch_start_close(&e->newcomers);
    tutti_launch_signals_release(&e->signals);
    for (int k = 0; k < 2; k++) {
        if (e->tells[k] >= 0)
            close(e->tells[k]);
        tutti_free(e->environment[k]);
    }
    explicit_bzero(e->text[KEY], sizeof e->text[KEY]);
    tutti_shm_region_close(&e->region);
    tutti_free(e->polled);
    tutti_free(e->cores);
    tutti_free(e->workers);
    tutti_runtime_close(e->rt);
}

tutti_status tutti_launch_elastic(const tutti_launch_elastic_options *options,
                                  tutti_launch_result *result, tutti_error *err)
{
    elastic *e = tutti_alloc(1, sizeof *e);
    tutti_status status;

    *result = (tutti_launch_result){ .rank = -1 };
    if (e == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "watching %d workers", options->workers);
    *e = (elastic){ .options = options,
                    .n = options->workers + tutti_launch_elastic_places(options),
                    .list = { .fd = -1, .pidfd = -1 },
                    .region = { .fd = -1, .owned = true },
                    .signals = { .fd = -1 },
                    .tells = { -1, -1 } };
    status = tutti_launch_elastic_prepare(e, err);
    if (status == TUTTI_OK) {
        status = tutti_launch_elastic_begin(e, err);
        if (status != TUTTI_OK)
            send_all(e, SIGKILL);
        watch(e);
    }
    if (status == TUTTI_OK)
        conclude(e, result);
    elastic_close(e);
    tutti_free(e);
    return status;
}
