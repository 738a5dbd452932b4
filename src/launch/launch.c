/* launch.c: starts the workers and watches them to their end. The launcher computes nothing. It
   sleeps in poll() on a pidfd a worker and on its signals, so a death is seen when the kernel knows
   it. What the kernel does not tell, it looks at twice a second (stopped.c).

   What happens when

     a worker ends well           nothing more.
     a worker ends badly          it is written down in the shared memory and all bells ring:
                                  survivors end by themselves with TUTTI_ERR_PEER. Those that are
                                  left after the grace are killed.
                                  In a run that goes on there is no grace while enough are left. The
                                  loss is told at once, that of one that failed by itself 0.2 s
                                  later. If it has told the others, they end with it, and say so by
                                  then.
     a worker is stopped          over shared memory: the others are warned, then it is killed,
                                  which is a bad end.
     a worker has said its last   it is killed after the grace, in a run that goes on too, which
     words and does not end       would wait for it at the end.
     the user sends a signal      SIGTERM to all, the rest as above; a second one kills at once.
     the last worker has ended    what workers have started and left is ended too (adopt.c).
     the launcher is killed       the kernel kills the workers (start.c); the shared memory has no
                                  name and goes with them.

   The sentence is about the root: a worker that was killed, else the first that failed by itself,
   else the first echo. */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "../transport/shm/shm_region.h"
#include "launch_internal.h"
#include "tutti/meet.h"

extern char **environ;

#define NS_PER_MS 1000000
#define OWN_FILES 8             /* open beside those of workers: streams, region, signals, a pipe at a start */
#define GRACE_NS ((int64_t)1000 * NS_PER_MS)
#define SILENCE_NS INT64_C(3000000000)
#define LOOK_NS ((int64_t)500 * NS_PER_MS)
#define TURN_NS ((int64_t)10 * NS_PER_MS)   /* between two looks at what is being ended */
#define REAP_NS ((int64_t)10000 * NS_PER_MS) /* and at what has ended by itself */
#define ECHOES_NS ((int64_t)200 * NS_PER_MS)
/* A terminal sends SIGINT to the workers and to the launcher, one after the other: how long to wait
   for our own when a worker died of one. */
#define ECHO_NS ((int64_t)50 * NS_PER_MS)

/* The more guilty, the lower. */
typedef enum { GUILT_KILLED, GUILT_OWN, GUILT_ECHO, GUILT_OURS, GUILT_NONE } guilt;

typedef struct launch_worker {
    pid_t pid;
    int pidfd;                   /* -1: not started, or reaped */
    int killed_by;               /* a signal of ours, or 0 */
    int exit_code, signal;       /* how it ended */
    guilt guilt;
    bool passed_over;            /* lost in a run that goes on */
    bool swept;                  /* and what it had started has ended too */
    /* it has failed by itself and ended, which is a loss from then on;
       0: it has not, or is one already */
    int64_t lost_at;
    int64_t words_ns;            /* when it was seen that it has said its last words; 0: not yet */
    launch_stopped stopped;
} launch_worker;

typedef struct launcher {
    const tutti_launch_options *options;
    tutti_launch_result *result;
    tutti_runtime *rt;
    tutti_shm_region region;
    launch_start start;
    launch_worker *workers;
    cpu_set_t *cores;            /* NULL: not pinned */
    /* [workers]: the signals; [workers + 1]: the meeting place; then two a worker, of `lines` */
    struct pollfd *polled;
    launch_lines *lines;         /* two a worker; NULL: they write where we do */
    int alive;
    launch_signals signals;
    tutti_meet *meet;            /* where workers over tcp meet; NULL: they share memory */
    tutti_launch_options as_given; /* but with the meeting place in the environment */
    char **environment;          /* that one */
    char meet_text[4][160];      /* its variables */
    int user_signal;             /* the first, or 0 */
    int64_t heard_at;            /* when it came */
    bool failed_first;           /* a loss was seen before the user's signal */
    int lost;                    /* workers that are passed over, and the one that was too many */
    bool too_few;                /* that one */
    char host[64];               /* this one's name */
    int64_t look_at, looked_at;  /* when the workers are looked at next, and were last; TUTTI_FOREVER: never */
    int64_t kill_at;             /* end of the grace; TUTTI_FOREVER: nothing is wrong, or it has passed */
    bool grace_over, hurried;    /* hurried: by a second signal */
    launch_adopted adopted;      /* of options->ends_all */
    int64_t adopted_at;          /* when it is looked at next; TUTTI_FOREVER: never */
} launcher;

/* ---- signals ---- */
static void send_one(launch_worker *w, int signal)
{
    if (w->pidfd >= 0) {
        syscall(SYS_pidfd_send_signal, w->pidfd, signal, NULL, 0);
        w->killed_by = signal;
    }
}

static void send_all(launcher *l, int signal)
{
    for (int r = 0; r < l->options->workers; r++)
        send_one(&l->workers[r], signal);
}

static void tell(const launcher *l, int rank, bool ended)
{
    const launch_worker *w = &l->workers[rank];
    const bool ours = w->signal != 0 && (w->killed_by == w->signal || w->killed_by == SIGKILL);

    if (l->options->told != NULL)
        l->options->told(l->options->user, l->options->first + rank, w->pid, ended, w->exit_code, ours ? 0 : w->signal);
}

static int64_t grace(const launcher *l)
{
    return l->options->grace_ns > 0 ? l->options->grace_ns : GRACE_NS;
}

static int64_t silence(const launcher *l)
{
    return l->options->silence_ns > 0 ? l->options->silence_ns : SILENCE_NS;
}

static void begin_grace(launcher *l, int64_t grace_ns)
{
    if (l->kill_at == TUTTI_FOREVER && !l->grace_over)
        l->kill_at = tutti_now_ns(l->rt) + grace_ns;
}

static void hear_signals(launcher *l)
{
    int heard;

    while ((heard = tutti_launch_signals_next(&l->signals)) != 0) {
        const int64_t now = tutti_now_ns(l->rt);
        if (l->user_signal == 0) {
            l->user_signal = heard;
            l->heard_at = now;
            l->failed_first = l->result->noticed_ns != 0;
            send_all(l, SIGTERM);
            begin_grace(l, l->options->stop_ns > 0 ? l->options->stop_ns : grace(l));
        } else if (l->options->stop_ns == 0 || now - l->heard_at >= TUTTI_LAUNCH_ECHO_NS) {
            l->hurried = true;
            send_all(l, SIGKILL);
        }
    }
}

/* ---- ends ---- */

/* What a worker has said of itself: in the shared memory, or at the meeting place. */
typedef struct words { uint32_t state; tutti_status status; int blame; int64_t order; const char *text; } words;

static words words_of(const launcher *l, int rank)
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
        return (words){ same[met->state], met->status, met->blame, met->order, met->words };
    return (words){ state, (tutti_status)line->status, line->blame, line->order, line->words };
}

static guilt judge(const launcher *l, const launch_worker *w, int rank)
{
    const words said = words_of(l, rank);
    const bool ours = w->signal != 0 && (w->killed_by == w->signal || w->killed_by == SIGKILL);

    if (w->stopped.ended_ns != 0)
        return GUILT_KILLED;
    if (w->signal != 0 && !(ours && said.state == TUTTI_SHM_FAILED)) /* else we ended what had failed already */
        return ours ? GUILT_OURS : GUILT_KILLED;
    if (said.state == TUTTI_SHM_FAILED)
        return said.status == TUTTI_ERR_PEER ? GUILT_ECHO : GUILT_OWN;
    return w->exit_code == 0 && said.state != TUTTI_SHM_RUNNING ? GUILT_NONE : GUILT_OWN;
}

/* Has it failed only because another did? Of a worker of a run that goes on that
   means: this is the end of the run. */
static bool is_echo(words said, int rank)
{
    return said.state == TUTTI_SHM_FAILED && said.status == TUTTI_ERR_PEER && said.blame >= 0 && said.blame != rank;
}

static bool ends_others(const launcher *l, int rank)
{
    for (int r = 0; r < l->options->workers; r++) {
        const words said = words_of(l, r);
        if (r != rank && is_echo(said, r) && said.blame == rank)
            return true;
    }
    return false;
}

/* Have all that are left failed by themselves at once, as when none can write a
   checkpoint? That is no loss after a loss. */
static bool all_fail(const launcher *l, int rank)
{
    int others = 0;

    for (int r = 0; r < l->options->workers; r++) {
        if (r == rank || l->workers[r].passed_over)
            continue;
        others++;
        if (words_of(l, r).state != TUTTI_SHM_FAILED)
            return false;
    }
    return others > 0;
}

/* May the run go on without it? It must have been a member; and a command
   line that it refuses is everybody's. */
static bool can_go_on(const launcher *l, int rank, uint32_t before)
{
    const words said = words_of(l, rank);
    /* of a part, somebody else knows who has met */
    const bool member = before != TUTTI_SHM_ABSENT || l->options->size > 0;
    const bool needed = l->options->size == 0 && rank >= l->options->workers - l->options->servers; /* it only serves */
    /* it had ended its part: what goes wrong then is no loss but a
       defect, to be seen in the exit code */
    const bool left = before == TUTTI_SHM_CLOSED;

    return l->options->goes_on && member && !needed && !left && l->user_signal == 0 && l->kill_at == TUTTI_FOREVER &&
           !l->grace_over && !(said.state == TUTTI_SHM_FAILED && said.status == TUTTI_ERR_USAGE) &&
           !is_echo(said, rank);
}

static void describe(const launcher *l, int rank, char *text, size_t bytes)
{
    if (l->meet != NULL)
        tutti_meet_describe(l->meet, rank, text, bytes);
    else
        tutti_shm_describe(&l->region, rank, text, bytes);
}

/* A loss that is known for good. */
static void lost(launcher *l, int rank, uint32_t before)
{
    launch_worker *w = &l->workers[rank];
    const int left = l->options->workers - l->options->servers - l->lost - 1;
    const bool few = left < l->options->least; /* whether the others end over it as well or not */
    const bool goes_on = can_go_on(l, rank, before) && (few || (!ends_others(l, rank) && !all_fail(l, rank)));
    char text[500], line[600];

    w->lost_at = 0;
    if (w->passed_over)
        return;
    if (goes_on && !few) {
        w->passed_over = true;
        l->lost++;
        if (l->adopted.on)
            l->adopted_at = tutti_now_ns(l->rt);
        describe(l, rank, text, sizeof text);
        snprintf(line, sizeof line, "%s; the run goes on with %d worker%s", text, left, left == 1 ? "" : "s");
        if (l->options->lost != NULL)
            l->options->lost(l->options->user, line);
        return;
    }
    if (goes_on) {
        l->too_few = true;
        l->lost++;
    }
    if (l->result->noticed_ns == 0)
        l->result->noticed_ns = tutti_now_ns(l->rt);
    begin_grace(l, grace(l));
}

/* It is gone and reaped: writes down how, for the survivors and for the sentence at the end. */
static void ended(launcher *l, int rank)
{
    launch_worker *w = &l->workers[rank];
    const uint32_t state = words_of(l, rank).state;
    const char *when = state == TUTTI_SHM_ABSENT    ? " before it had joined the run"
                       : state == TUTTI_SHM_RUNNING ? ""
                                                    : " after it had left the run";
    tutti_error why = { .rank = -1 };

    w->guilt = judge(l, w, rank);
    if (w->passed_over && w->guilt == GUILT_OURS) /* that is why */
        return;
    if (w->guilt == GUILT_NONE) {
        /* one that never joined: let nobody wait for it */
        tutti_shm_depart(&l->region, rank, TUTTI_SHM_CLOSED, NULL, 0);
        return;
    }
    if (w->stopped.ended_ns != 0)
        tutti_fail(&why, TUTTI_ERR_STATE, 0,
                   "process %ld on host '%s' had been stopped (SIGSTOP) for %.1f s and was ended", (long)w->pid,
                   l->host, (double)w->stopped.ended_ns / 1e9);
    else if (w->signal != 0)
        tutti_fail(&why, TUTTI_ERR_STATE, 0, "process %ld was killed by signal %d (SIG%s)%s", (long)w->pid, w->signal,
                   tutti_launch_signal_name(w->signal), when);
    else if (w->exit_code == 0)
        tutti_fail(&why, TUTTI_ERR_STATE, 0, "process %ld exited with code 0 in the middle of the run", (long)w->pid);
    else
        tutti_fail(&why, TUTTI_ERR_STATE, 0, "process %ld exited with code %d%s; its own output may say why",
                   (long)w->pid, w->exit_code, when);
    tutti_shm_depart(&l->region, rank, state == TUTTI_SHM_CLOSED ? TUTTI_SHM_FAILED : TUTTI_SHM_LOST, &why, w->signal);
    if (l->meet != NULL)
        tutti_meet_lost(l->meet, rank, &why, w->signal);
    if (l->options->goes_on && state == TUTTI_SHM_FAILED)
        w->lost_at = tutti_now_ns(l->rt) + ECHOES_NS;
    else if (w->guilt != GUILT_OURS || w->stopped.expelled_ns != 0)
        lost(l, rank, state);
}

static void reap(launcher *l, int rank)
{
    launch_worker *w = &l->workers[rank];
    int status = 0;
    pid_t got;

    do
        got = waitpid(w->pid, &status, WNOHANG);
    while (got < 0 && errno == EINTR);
    if (got == 0)
        return;
    close(w->pidfd);
    w->pidfd = -1;
    l->alive--;
    if (got < 0) /* somebody else in this process has reaped it; its last words still say whether it left in order */
        w->exit_code = words_of(l, rank).state == TUTTI_SHM_CLOSED ? 0 : 255;
    else if (WIFSIGNALED(status))
        w->signal = WTERMSIG(status);
    else
        w->exit_code = WEXITSTATUS(status);
    tell(l, rank, true);
    ended(l, rank);
}

/* ---- watching ---- */
static int milliseconds_to(const launcher *l)
{
    const int64_t meet_ns = l->meet != NULL ? tutti_meet_wait_ns(l->meet) : TUTTI_FOREVER;
    int64_t left = TUTTI_FOREVER;

    if (l->kill_at != TUTTI_FOREVER)
        left = l->kill_at - tutti_now_ns(l->rt);
    for (int r = 0; r < l->options->workers; r++)
        if (l->workers[r].lost_at != 0 && l->workers[r].lost_at - tutti_now_ns(l->rt) < left)
            left = l->workers[r].lost_at - tutti_now_ns(l->rt);
    if (l->look_at != TUTTI_FOREVER && l->look_at - tutti_now_ns(l->rt) < left)
        left = l->look_at - tutti_now_ns(l->rt);
    if (l->adopted_at != TUTTI_FOREVER && l->adopted_at - tutti_now_ns(l->rt) < left)
        left = l->adopted_at - tutti_now_ns(l->rt);
    if (left > meet_ns)
        left = meet_ns;
    if (left == TUTTI_FOREVER)
        return -1;
    left = left < 0 ? 0 : (left + NS_PER_MS - 1) / NS_PER_MS;
    return left > INT_MAX ? INT_MAX : (int)left;
}

/* The meeting place, and what it has heard: a worker that fell
   silent is a loss like one that ended. */
static void serve(launcher *l)
{
    if (l->meet == NULL)
        return;
    tutti_meet_progress(l->meet, NULL); /* late workers are told, and end by themselves with a sentence */
    for (int rank; (rank = tutti_meet_event(l->meet)) >= 0;) {
        const tutti_meet_rank *met = tutti_meet_rank_of(l->meet, rank);
        launch_worker *w = &l->workers[rank];
        if (met->state < TUTTI_MEET_FAILED)
            continue;
        /* silent, or expelled: it must never come back */
        if (met->state == TUTTI_MEET_LOST && w->pidfd >= 0 && l->options->goes_on) {
            w->stopped.expelled_ns = tutti_now_ns(l->rt);
            send_one(w, SIGKILL);
        }
        if (met->state == TUTTI_MEET_FAILED && l->options->goes_on)
            continue; /* its end follows */
        if (!l->options->goes_on && l->result->noticed_ns == 0)
            l->result->noticed_ns = met->noticed_ns;
        lost(l, rank, tutti_meet_complete(l->meet) ? TUTTI_SHM_RUNNING : TUTTI_SHM_ABSENT);
    }
}

/* What no descriptor tells: which worker has failed and does not end, was expelled, or, over shared
   memory, is stopped. A launcher that was stopped itself (the whole job, by Ctrl-Z) has seen
   nothing of that time. */
static void look(launcher *l)
{
    const int64_t now = tutti_now_ns(l->rt);
    const bool was_away = now - l->looked_at > 3 * LOOK_NS;

    l->looked_at = now;
    l->look_at = now + LOOK_NS;
    for (int r = 0; r < l->options->workers; r++) {
        launch_worker *w = &l->workers[r];
        char how[300];
        bool kill_it = false;
        if (w->pidfd < 0)
            continue;
        if (words_of(l, r).state == TUTTI_SHM_FAILED) {
            w->words_ns = w->words_ns != 0 && !was_away ? w->words_ns : now;
            kill_it = now - w->words_ns >= grace(l);
        } else if (l->meet != NULL) {
            continue; /* silence is heard there */
        } else if (tutti_shm_expelled(&l->region, r, how, sizeof how)) {
            /* one look to end by itself, with a sentence of its own */
            kill_it = w->stopped.expelled_ns != 0;
            w->stopped.expelled_ns = now;
        } else
            kill_it = tutti_launch_stopped_look(&w->stopped, w->pid, silence(l), now, was_away);
        tutti_shm_stopped(&l->region, r, w->stopped.warned);
        if (kill_it)
            send_one(w, SIGKILL);
    }
}

static void hear_lines(const launcher *l, int rank)
{
    for (int stream = 1; l->lines != NULL && stream <= 2; stream++)
        tutti_launch_lines_read(&l->lines[2 * rank + stream - 1], l->options->output, l->options->user,
                                l->options->first + rank, stream);
}

/* ---- what workers leave behind ---- */
static bool is_worker(void *user, pid_t pid)
{
    const launcher *l = user;

    for (int r = 0; r < l->options->workers; r++)
        if (l->workers[r].pidfd >= 0 && l->workers[r].pid == pid)
            return true;
    return false;
}

static void look_after(launcher *l)
{
    int left = 0;

    tutti_launch_adopt_reap(&l->adopted);
    for (int r = 0; r < l->options->workers; r++) {
        launch_worker *w = &l->workers[r];
        if (!w->passed_over || w->pidfd >= 0 || w->swept)
            continue;
        w->swept = tutti_launch_adopt_end(&l->adopted, SIGKILL, l->options->first + r) == 0;
        left += !w->swept;
    }
    l->adopted_at = tutti_now_ns(l->rt) + (left > 0 ? TURN_NS : REAP_NS);
}

/* No worker is left. Those that a signal's time to save is for have it here too. */
static void end_what_is_left(launcher *l)
{
    const int64_t now = tutti_now_ns(l->rt);
    const int64_t until = l->grace_over || l->hurried ? now
                          : l->kill_at != TUTTI_FOREVER ? l->kill_at : now + grace(l);

    while (tutti_launch_adopt_end(&l->adopted,
                                  tutti_now_ns(l->rt) >= until || l->hurried ? SIGKILL : SIGTERM, -1) > 0) {
        poll(&(struct pollfd){ .fd = l->signals.fd, .events = POLLIN }, 1, TURN_NS / NS_PER_MS);
        hear_signals(l);
        for (int r = 0; r < l->options->workers; r++)
            hear_lines(l, r);
    }
}

static void watch(launcher *l)
{
    const int n = l->options->workers, n_lines = l->lines != NULL ? 2 * n : 0;

    while (l->alive > 0) {
        const int before = l->alive;
        for (int r = 0; r < n; r++)
            l->polled[r] = (struct pollfd){ .fd = l->workers[r].pidfd, .events = POLLIN }; /* -1 is passed over */
        l->polled[n] = (struct pollfd){ .fd = l->signals.fd, .events = POLLIN };
        l->polled[n + 1] = (struct pollfd){ .fd = l->meet != NULL ? tutti_meet_fd(l->meet) : -1, .events = POLLIN };
        for (int k = 0; k < n_lines; k++)
            l->polled[n + 2 + k] = (struct pollfd){ .fd = l->lines[k].fd, .events = POLLIN };
        if (poll(l->polled, (nfds_t)(n + 2 + n_lines), milliseconds_to(l)) < 0 && errno != EINTR && errno != EAGAIN &&
            errno != ENOMEM)
            send_all(l, SIGKILL); /* cannot be; but never wait for what we cannot see */
        hear_signals(l); /* before the deaths: those that the user wanted are not losses */
        serve(l);        /* and before them too: last words come before the end of the worker */
        for (int r = 0; r < n; r++) {
            hear_lines(l, r); /* what it wrote comes before its end */
            if (l->workers[r].pidfd >= 0 && l->polled[r].revents != 0)
                reap(l, r);
            if (l->workers[r].lost_at != 0 && tutti_now_ns(l->rt) >= l->workers[r].lost_at)
                lost(l, r, TUTTI_SHM_FAILED);
        }
        if (tutti_now_ns(l->rt) >= l->look_at)
            look(l);
        if (l->user_signal != 0 && l->alive < before) /* a wrapper has ended at once: its program has to hear it, too */
            tutti_launch_adopt_end(&l->adopted, SIGTERM, -1);
        if (tutti_now_ns(l->rt) >= l->adopted_at)
            look_after(l);
        if (l->kill_at != TUTTI_FOREVER && tutti_now_ns(l->rt) >= l->kill_at) {
            send_all(l, SIGKILL);
            l->kill_at = TUTTI_FOREVER;
            l->grace_over = true;
        }
    }
    for (int r = 0; r < n; r++)
        if (l->workers[r].lost_at != 0)
            lost(l, r, TUTTI_SHM_FAILED);
    end_what_is_left(l);
}

/* ---- the result ---- */
static int culprit_of(const launcher *l)
{
    int culprit = -1;

    for (int r = 0; r < l->options->workers; r++) {
        const guilt mine = l->workers[r].guilt;
        if (mine == GUILT_NONE || (l->workers[r].passed_over && !l->too_few && !ends_others(l, r)))
            continue;
        if (culprit < 0 || mine < l->workers[culprit].guilt ||
            (mine == l->workers[culprit].guilt && words_of(l, r).order < words_of(l, culprit).order))
            culprit = r;
    }
    return culprit;
}

static bool is_users(int signal)
{
    return signal == SIGINT || signal == SIGTERM || signal == SIGHUP;
}

static int exit_code_of(const launch_worker *w, words said)
{
    if (w->guilt == GUILT_KILLED || w->guilt == GUILT_OURS)
        return 3;
    if (said.state == TUTTI_SHM_FAILED && said.status == TUTTI_ERR_USAGE)
        return 2;
    if (said.state == TUTTI_SHM_FAILED && said.status == TUTTI_ERR_PEER)
        return 3;
    if (said.state == TUTTI_SHM_LOST && w->exit_code == 0)
        return 3;
    return w->exit_code == 2 || w->exit_code == 3 ? w->exit_code : 1; /* its own word for what kind of failure it was */
}

static void conclude(launcher *l)
{
    tutti_launch_result *result = l->result;
    const int rank = culprit_of(l);
    const launch_worker *w = rank < 0 ? NULL : &l->workers[rank];
    words said;

    if (w != NULL && w->guilt == GUILT_KILLED && is_users(w->signal) && l->user_signal == 0) {
        struct pollfd polled = { .fd = l->signals.fd, .events = POLLIN };
        if (poll(&polled, 1, (int)(ECHO_NS / NS_PER_MS)) > 0)
            hear_signals(l);
    }
    if (l->user_signal != 0 && (!l->failed_first || w == NULL || (w->guilt == GUILT_KILLED && is_users(w->signal)))) {
        result->exit_code = 128 + l->user_signal;
        snprintf(result->text, sizeof result->text, "stopped by signal %d (SIG%s)", l->user_signal,
                 tutti_launch_signal_name(l->user_signal));
        return;
    }
    if (w == NULL)
        return;
    said = words_of(l, rank);
    result->exit_code = exit_code_of(w, said);
    result->rank = l->options->first + rank;
    result->pid = w->pid;
    result->signal = w->signal;
    if (said.state == TUTTI_SHM_FAILED)
        snprintf(result->text, sizeof result->text, "worker %d: %.*s", result->rank, TUTTI_SHM_WORDS - 1,
                 tutti_launch_own_words(result->rank, said.text));
    else
        describe(l, rank, result->text, sizeof result->text);
    if (said.state != TUTTI_SHM_FAILED && l->options->size == 0 && rank >= l->options->workers - l->options->servers) {
        const size_t used = strlen(result->text);
        snprintf(result->text + used, sizeof result->text - used,
                 "; it was server %d of %d, and its slice of the model is gone with it",
                 rank - (l->options->workers - l->options->servers), l->options->servers);
    }
    if (l->too_few) {
        const size_t used = strlen(result->text);
        snprintf(result->text + used, sizeof result->text - used,
                 "; %d of %d workers were left, fewer than the %d of min-workers",
                 l->options->workers - l->options->servers - l->lost, l->options->workers - l->options->servers,
                 l->options->least);
    }
}

/* ---- opening and closing ---- */
/* The workers' variables carry the key in the environment of
   children, which only this user can read. */
static tutti_status open_meet(launcher *l, tutti_error *err)
{
    tutti_meet_options m = { .address = "unix", .size = l->options->workers, .silence_ns = silence(l) };
    char *const *given = l->options->environment != NULL ? l->options->environment : environ;
    char where[120], id[TUTTI_RUN_ID_TEXT], key[TUTTI_RUN_KEY_TEXT];
    tutti_status status;
    size_t n = 0, kept = 0;

    tutti_run_id_make(l->rt, &m.id);
    tutti_run_key_make(l->rt, &m.key);
    tutti_run_id_text(&m.id, id);
    tutti_run_key_text(&m.key, key);
    status = tutti_meet_open(&l->meet, l->rt, &m, err);
    tutti_run_key_wipe(&m.key);
    if (status != TUTTI_OK)
        return status;
    while (given[n] != NULL)
        n++;
    l->environment = tutti_alloc(n + TUTTI_LENGTH(l->meet_text) + 1, sizeof *l->environment);
    if (l->environment == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "starting %d workers with %zu variables", l->options->workers,
                          n);
    for (size_t i = 0; i < n; i++) { /* those of an outer run are not handed on */
        if (strncmp(given[i], TUTTI_MEET_VARIABLE, strlen(TUTTI_MEET_VARIABLE)) != 0 &&
            strncmp(given[i], "TUTTI_RUN_", 10) != 0)
            l->environment[kept++] = given[i];
    }
    tutti_meet_where(l->meet, NULL, where, sizeof where);
    snprintf(l->meet_text[0], sizeof *l->meet_text, TUTTI_MEET_VARIABLE "=%s", where);
    snprintf(l->meet_text[1], sizeof *l->meet_text, TUTTI_MEET_VARIABLE_ID "=%s", id);
    snprintf(l->meet_text[2], sizeof *l->meet_text, TUTTI_MEET_VARIABLE_KEY "=%s", key);
    snprintf(l->meet_text[3], sizeof *l->meet_text, TUTTI_MEET_VARIABLE_AT_0 "=0"); /* it is here */
    for (size_t i = 0; i < TUTTI_LENGTH(l->meet_text); i++)
        l->environment[kept++] = l->meet_text[i];
    l->as_given.environment = l->environment;
    return TUTTI_OK;
}

/* All workers are watched by one poll, which takes no more entries than files may be open: beyond
   that the end of those that have started would not be seen. */
static tutti_status check_files(const tutti_launch_options *o, tutti_error *err)
{
    const rlim_t files = (rlim_t)o->workers * (o->output != NULL ? 3 : 1) + OWN_FILES;
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < files)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "watching %d workers needs %llu open files, and the limit is %llu; "
                          "raise it (ulimit -n %llu), or use fewer workers", o->workers, (unsigned long long)files,
                          (unsigned long long)limit.rlim_cur, (unsigned long long)files);
    return TUTTI_OK;
}

static tutti_status prepare(launcher *l, tutti_error *err)
{
    const tutti_launch_options *o = l->options;
    const int threads = o->threads > 0 ? o->threads : 1, local_size = o->local_size > 0 ? o->local_size : o->workers;
    const size_t n = o->workers > 0 ? (size_t)o->workers : 0;

    if (o->argv == NULL || o->argv[0] == NULL)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "no program to start; give the path of one and its arguments");
    if (o->size > 0 && (o->first < 0 || o->first > o->size - o->workers || o->meet))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "%d workers from rank %d on are no part of %d that meet elsewhere",
                          o->workers, o->first, o->size);
    if (o->local_first < 0 || o->local_first > local_size - o->workers)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "%d workers from worker %d on are no part of %d that share this machine's cores", o->workers,
                          o->local_first, local_size);
    if (o->workers < 1 || o->workers > TUTTI_SHM_RANKS)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "%d workers asked for; one host takes from 1 to %d", o->workers,
                          TUTTI_SHM_RANKS);
    TUTTI_TRY(check_files(o, err));
    TUTTI_TRY(tutti_runtime_open_posix(&l->rt, err));
    l->workers = tutti_alloc(n, sizeof *l->workers);
    l->polled = tutti_alloc(3 * n + 2, sizeof *l->polled);
    if (o->output != NULL)
        l->lines = tutti_alloc(2 * n, sizeof *l->lines);
    for (size_t k = 0; l->lines != NULL && k < 2 * n; k++)
        l->lines[k].fd = -1;
    if (o->pin)
        l->cores = tutti_alloc(n, sizeof *l->cores);
    if (l->workers == NULL || l->polled == NULL || (o->pin && l->cores == NULL) ||
        (o->output != NULL && l->lines == NULL))
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "watching %d workers", o->workers);
    for (size_t r = 0; r < n; r++)
        l->workers[r] = (launch_worker){ .pid = -1, .pidfd = -1, .guilt = GUILT_NONE };
    if (o->pin)
        TUTTI_TRY(tutti_launch_pin(l->cores, o->workers, o->local_first, local_size, threads, err));
    TUTTI_TRY(tutti_shm_region_open(&l->region, o->workers, (int64_t)local_size * threads <= tutti_cores(), err));
    TUTTI_TRY(tutti_launch_signals_take(&l->signals, err));
    l->as_given = *o;
    if (o->ends_all) {
        TUTTI_TRY(tutti_launch_adopt_begin(&l->adopted, is_worker, l, err));
        l->adopted_at = tutti_now_ns(l->rt) + REAP_NS;
    }
    gethostname(l->host, sizeof l->host - 1);
    l->looked_at = tutti_now_ns(l->rt);
    if (o->size == 0 && o->workers > 1) /* of a part, somebody else hears its words */
        l->look_at = l->looked_at + LOOK_NS;
    if (o->meet)
        TUTTI_TRY(open_meet(l, err));
    TUTTI_TRY(tutti_launch_start_open(&l->start, l->rt, &l->as_given, l->region.fd, &l->signals.before, err));
    if (o->size > 0)
        snprintf(l->start.size_text, sizeof l->start.size_text, "%s=%d", TUTTI_SHM_VARIABLE_SIZE, o->size);
    return TUTTI_OK;
}

static tutti_status start_all(launcher *l, tutti_error *err)
{
    for (int r = 0; r < l->options->workers; r++) {
        launch_worker *w = &l->workers[r];
        int theirs[2] = { -1, -1 };
        tutti_status status = TUTTI_OK;
        for (int k = 0; k < 2 && l->lines != NULL && status == TUTTI_OK; k++)
            if (!tutti_launch_lines_open(&l->lines[2 * r + k], &theirs[k]))
                status = tutti_fail(err, TUTTI_ERR_IO, errno,
                                    "no pipe for the output of worker %d; raise the limit of open files (ulimit -n)",
                                    l->options->first + r);
        if (status == TUTTI_OK)
            status = tutti_launch_start_worker(&l->start, l->options->first + r,
                                               l->cores != NULL ? &l->cores[r] : NULL, l->lines != NULL ? theirs : NULL,
                                               &w->pid, &w->pidfd, err);
        for (int k = 0; k < 2; k++)
            if (theirs[k] >= 0)
                close(theirs[k]);
        if (status == TUTTI_OK) {
            l->alive++;
            tell(l, r, false);
            continue;
        }
        if (w->pid > 0) { /* it runs but cannot be watched */
            kill(w->pid, SIGKILL);
            waitpid(w->pid, NULL, 0);
        }
        send_all(l, SIGKILL);
        watch(l);
        return status;
    }
    return TUTTI_OK;
}

static void launcher_close(launcher *l)
{
    tutti_launch_adopt_close(&l->adopted);
    tutti_launch_start_close(&l->start);
    tutti_launch_signals_release(&l->signals);
    tutti_meet_close(l->meet);
    tutti_free(l->environment);
    tutti_shm_region_close(&l->region);
    for (int k = 0; l->lines != NULL && k < 2 * l->options->workers; k++)
        tutti_launch_lines_close(&l->lines[k], l->options->output, l->options->user, l->options->first + k / 2,
                                 k % 2 + 1);
    tutti_free(l->lines);
    tutti_free(l->cores);
    tutti_free(l->polled);
    tutti_free(l->workers);
    tutti_runtime_close(l->rt);
}

tutti_status tutti_launch_run(const tutti_launch_options *options, tutti_launch_result *result, tutti_error *err)
{
    launcher l = { .options = options,
                   .result = result,
                   .region = { .fd = -1, .owned = true },
                   .signals = { .fd = -1 },
                   .look_at = TUTTI_FOREVER,
                   .adopted_at = TUTTI_FOREVER,
                   .kill_at = TUTTI_FOREVER };
    tutti_error own = { .rank = -1 };
    tutti_status status;

    *result = (tutti_launch_result){ .rank = -1 };
    status = prepare(&l, &own);
    if (status == TUTTI_OK)
        status = start_all(&l, &own);
    if (status == TUTTI_OK) {
        watch(&l);
        conclude(&l);
    } else {
        *result = (tutti_launch_result){ .exit_code = status == TUTTI_ERR_USAGE ? 2 : 1, .rank = -1 };
        snprintf(result->text, sizeof result->text, "%s", own.text);
        if (err != NULL)
            *err = own;
    }
    launcher_close(&l);
    return status;
}
