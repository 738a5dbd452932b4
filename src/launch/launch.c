/* launch.c: starts the workers and watches them to their end. The launcher computes nothing; it sleeps in poll() on a pidfd a
   worker and on its signals, so a death is seen when the kernel knows it.

   What happens when
     a worker ends well           nothing more.
     a worker ends badly          it is written down in the shared memory and all bells ring: survivors end by themselves with
                                  TUTTI_ERR_PEER. Who is left after the grace is killed.
     the user sends a signal      SIGTERM to all, the rest as above; a second one kills at once.
     the launcher is killed       the kernel kills the workers (start.c); the shared memory has no name and goes with them.

   The sentence is about the root: a worker that was killed, else the first that failed by itself, else the first echo. */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "../transport/shm/shm_region.h"
#include "launch_internal.h"

#define NS_PER_MS 1000000
#define GRACE_NS ((int64_t)1000 * NS_PER_MS)
/* A terminal sends SIGINT to the workers and to the launcher, one after the other: how long to wait for our own when a
   worker died of one. */
#define ECHO_NS ((int64_t)50 * NS_PER_MS)

/* The more guilty, the lower. */
typedef enum { GUILT_KILLED, GUILT_OWN, GUILT_ECHO, GUILT_OURS, GUILT_NONE } guilt;

typedef struct launch_worker {
    pid_t pid;
    int pidfd;                   /* -1: not started, or reaped */
    int killed_by;               /* a signal of ours, or 0 */
    int exit_code, signal;       /* how it ended */
    guilt guilt;
} launch_worker;

typedef struct launcher {
    const tutti_launch_options *options;
    tutti_launch_result *result;
    tutti_runtime *rt;
    tutti_shm_region region;
    launch_start start;
    launch_worker *workers;
    cpu_set_t *cores;            /* NULL: not pinned */
    struct pollfd *polled;       /* [workers]: the signals */
    int alive;
    sigset_t before;
    struct sigaction child_before;
    bool masked;
    int signals;                 /* descriptor */
    int user_signal;             /* the first, or 0 */
    bool failed_first;           /* a loss was seen before the user's signal */
    int64_t kill_at;             /* end of the grace; TUTTI_FOREVER: nothing is wrong, or it has passed */
    bool grace_over;
} launcher;

/* ---- signals ---- */
/* What the user ignores (nohup, a background job) stays ignored. SIGCHLD must not be, or there is nothing to wait for. */
static tutti_status take_signals(launcher *l, tutti_error *err)
{
    static const int wanted[] = { SIGINT, SIGTERM, SIGHUP };
    struct sigaction now, plain = { .sa_handler = SIG_DFL };
    sigset_t set;

    sigemptyset(&set);
    for (size_t i = 0; i < TUTTI_LENGTH(wanted); i++) {
        if (sigaction(wanted[i], NULL, &now) == 0 && now.sa_handler != SIG_IGN)
            sigaddset(&set, wanted[i]);
    }
    sigaction(SIGCHLD, &plain, &l->child_before);
    pthread_sigmask(SIG_BLOCK, &set, &l->before);
    l->masked = true;
    l->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (l->signals < 0)
        return tutti_fail(err, TUTTI_ERR_IO, errno, "cannot watch for signals; raise the limit of open files (ulimit -n)");
    return TUTTI_OK;
}

static void send_all(launcher *l, int signal)
{
    for (int r = 0; r < l->options->workers; r++) {
        launch_worker *w = &l->workers[r];
        if (w->pidfd >= 0) {
            syscall(SYS_pidfd_send_signal, w->pidfd, signal, NULL, 0);
            w->killed_by = signal;
        }
    }
}

static void begin_grace(launcher *l)
{
    if (l->kill_at == TUTTI_FOREVER && !l->grace_over)
        l->kill_at = tutti_now_ns(l->rt) + (l->options->grace_ns > 0 ? l->options->grace_ns : GRACE_NS);
}

static void hear_signals(launcher *l)
{
    struct signalfd_siginfo info;

    while (read(l->signals, &info, sizeof info) == (ssize_t)sizeof info) {
        if (l->user_signal == 0) {
            l->user_signal = (int)info.ssi_signo;
            l->failed_first = l->result->noticed_ns != 0;
            send_all(l, SIGTERM);
            begin_grace(l);
        } else
            send_all(l, SIGKILL);
    }
}

/* ---- ends ---- */
static guilt judge(const launcher *l, const launch_worker *w, int rank)
{
    const tutti_shm_rank *line = &l->region.header->ranks[rank];
    const uint32_t state = atomic_load_explicit(&line->state, memory_order_acquire);

    if (w->signal != 0)
        return w->killed_by == w->signal || w->killed_by == SIGKILL ? GUILT_OURS : GUILT_KILLED;
    if (state == TUTTI_SHM_FAILED)
        return line->status == TUTTI_ERR_PEER ? GUILT_ECHO : GUILT_OWN;
    return w->exit_code == 0 && state != TUTTI_SHM_RUNNING ? GUILT_NONE : GUILT_OWN;
}

/* "KILL"; the name that people type, not the C library's prose in the language of the place. */
static const char *signal_name(int number)
{
    const char *name = sigabbrev_np(number);
    return name != NULL ? name : "?";
}

/* It is gone and reaped: writes down how, for the survivors and for the sentence at the end. */
static void ended(launcher *l, int rank)
{
    launch_worker *w = &l->workers[rank];
    const uint32_t state = atomic_load_explicit(&l->region.header->ranks[rank].state, memory_order_acquire);
    const char *when = state == TUTTI_SHM_ABSENT ? " before it had joined the run" : state == TUTTI_SHM_RUNNING ? "" : " after it had left the run";
    tutti_error why = { .rank = -1 };

    w->guilt = judge(l, w, rank);
    if (w->guilt == GUILT_NONE) {
        tutti_shm_depart(&l->region, rank, TUTTI_SHM_CLOSED, NULL, 0); /* one that never joined: let nobody wait for it */
        return;
    }
    if (w->signal != 0)
        tutti_fail(&why, TUTTI_ERR_STATE, 0, "process %ld was killed by signal %d (SIG%s)%s", (long)w->pid, w->signal, signal_name(w->signal), when);
    else if (w->exit_code == 0)
        tutti_fail(&why, TUTTI_ERR_STATE, 0, "process %ld exited with code 0 in the middle of the run", (long)w->pid);
    else
        tutti_fail(&why, TUTTI_ERR_STATE, 0, "process %ld exited with code %d%s; its own output may say why", (long)w->pid, w->exit_code, when);
    tutti_shm_depart(&l->region, rank, state == TUTTI_SHM_CLOSED ? TUTTI_SHM_FAILED : TUTTI_SHM_LOST, &why, w->signal);
    if (w->guilt == GUILT_OURS)
        return;
    if (l->result->noticed_ns == 0)
        l->result->noticed_ns = tutti_now_ns(l->rt);
    begin_grace(l);
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
    if (got < 0) /* somebody else in this process has reaped it; the region still knows whether it left in order */
        w->exit_code = atomic_load_explicit(&l->region.header->ranks[rank].state, memory_order_acquire) == TUTTI_SHM_CLOSED ? 0 : 255;
    else if (WIFSIGNALED(status))
        w->signal = WTERMSIG(status);
    else
        w->exit_code = WEXITSTATUS(status);
    ended(l, rank);
}

/* ---- watching ---- */
static int milliseconds_to(const launcher *l)
{
    int64_t left;

    if (l->kill_at == TUTTI_FOREVER)
        return -1;
    left = (l->kill_at - tutti_now_ns(l->rt) + NS_PER_MS - 1) / NS_PER_MS;
    return left < 0 ? 0 : left > INT_MAX ? INT_MAX : (int)left;
}

static void watch(launcher *l)
{
    const int n = l->options->workers;

    while (l->alive > 0) {
        for (int r = 0; r < n; r++)
            l->polled[r] = (struct pollfd){ .fd = l->workers[r].pidfd, .events = POLLIN }; /* -1 is passed over */
        l->polled[n] = (struct pollfd){ .fd = l->signals, .events = POLLIN };
        if (poll(l->polled, (nfds_t)n + 1, milliseconds_to(l)) < 0 && errno != EINTR && errno != EAGAIN && errno != ENOMEM)
            send_all(l, SIGKILL); /* cannot be; but never wait for what we cannot see */
        hear_signals(l); /* before the deaths: those that the user wanted are not losses */
        for (int r = 0; r < n; r++) {
            if (l->workers[r].pidfd >= 0 && l->polled[r].revents != 0)
                reap(l, r);
        }
        if (l->kill_at != TUTTI_FOREVER && tutti_now_ns(l->rt) >= l->kill_at) {
            send_all(l, SIGKILL);
            l->kill_at = TUTTI_FOREVER;
            l->grace_over = true;
        }
    }
}

/* ---- the result ---- */
static int culprit_of(const launcher *l)
{
    int culprit = -1;

    for (int r = 0; r < l->options->workers; r++) {
        const guilt mine = l->workers[r].guilt;
        if (mine == GUILT_NONE)
            continue;
        if (culprit < 0 || mine < l->workers[culprit].guilt ||
            (mine == l->workers[culprit].guilt && l->region.header->ranks[r].order < l->region.header->ranks[culprit].order))
            culprit = r;
    }
    return culprit;
}

static bool is_users(int signal)
{
    return signal == SIGINT || signal == SIGTERM || signal == SIGHUP;
}

static int exit_code_of(const launch_worker *w, const tutti_shm_rank *line, uint32_t state)
{
    if (w->guilt == GUILT_KILLED || w->guilt == GUILT_OURS)
        return 3;
    if (state == TUTTI_SHM_FAILED && line->status == TUTTI_ERR_USAGE)
        return 2;
    if (state == TUTTI_SHM_FAILED && line->status == TUTTI_ERR_PEER)
        return 3;
    if (state == TUTTI_SHM_LOST && w->exit_code == 0)
        return 3;
    return w->exit_code == 2 || w->exit_code == 3 ? w->exit_code : 1; /* its own word for what kind of failure it was */
}

static void conclude(launcher *l)
{
    tutti_launch_result *result = l->result;
    const int rank = culprit_of(l);
    const launch_worker *w = rank < 0 ? NULL : &l->workers[rank];
    uint32_t state;

    if (w != NULL && w->guilt == GUILT_KILLED && is_users(w->signal) && l->user_signal == 0) {
        struct pollfd polled = { .fd = l->signals, .events = POLLIN };
        if (poll(&polled, 1, (int)(ECHO_NS / NS_PER_MS)) > 0)
            hear_signals(l);
    }
    if (l->user_signal != 0 && (!l->failed_first || w == NULL || (w->guilt == GUILT_KILLED && is_users(w->signal)))) {
        result->exit_code = 128 + l->user_signal;
        snprintf(result->text, sizeof result->text, "stopped by signal %d (SIG%s)", l->user_signal, signal_name(l->user_signal));
        return;
    }
    if (w == NULL)
        return;
    state = atomic_load_explicit(&l->region.header->ranks[rank].state, memory_order_acquire);
    result->exit_code = exit_code_of(w, &l->region.header->ranks[rank], state);
    result->rank = rank;
    result->pid = w->pid;
    result->signal = w->signal;
    if (state == TUTTI_SHM_FAILED)
        snprintf(result->text, sizeof result->text, "worker %d: %.*s", rank, TUTTI_SHM_WORDS - 1, l->region.header->ranks[rank].words);
    else
        tutti_shm_describe(&l->region, rank, result->text, sizeof result->text);
}

/* ---- opening and closing ---- */
static tutti_status prepare(launcher *l, tutti_error *err)
{
    const tutti_launch_options *o = l->options;
    const int threads = o->threads > 0 ? o->threads : 1;
    const size_t n = o->workers > 0 ? (size_t)o->workers : 0;

    if (o->argv == NULL || o->argv[0] == NULL)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "no program to start; give the path of one and its arguments");
    if (o->workers < 1 || o->workers > TUTTI_SHM_RANKS)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "%d workers asked for; one host takes from 1 to %d", o->workers, TUTTI_SHM_RANKS);
    TUTTI_TRY(tutti_runtime_open_posix(&l->rt, err));
    l->workers = tutti_alloc(n, sizeof *l->workers);
    l->polled = tutti_alloc(n + 1, sizeof *l->polled);
    if (o->pin)
        l->cores = tutti_alloc(n, sizeof *l->cores);
    if (l->workers == NULL || l->polled == NULL || (o->pin && l->cores == NULL))
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "watching %d workers", o->workers);
    for (size_t r = 0; r < n; r++)
        l->workers[r] = (launch_worker){ .pid = -1, .pidfd = -1, .guilt = GUILT_NONE };
    if (o->pin)
        TUTTI_TRY(tutti_launch_pin(l->cores, o->workers, threads, err));
    TUTTI_TRY(tutti_shm_region_open(&l->region, o->workers, (int64_t)o->workers * threads <= tutti_cores(), err));
    TUTTI_TRY(take_signals(l, err));
    return tutti_launch_start_open(&l->start, o, l->region.fd, &l->before, err);
}

static tutti_status start_all(launcher *l, tutti_error *err)
{
    for (int r = 0; r < l->options->workers; r++) {
        launch_worker *w = &l->workers[r];
        const tutti_status status = tutti_launch_start_worker(&l->start, r, l->cores != NULL ? &l->cores[r] : NULL, &w->pid, &w->pidfd, err);
        if (status == TUTTI_OK) {
            l->alive++;
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
    struct signalfd_siginfo info;

    tutti_launch_start_close(&l->start);
    if (l->signals >= 0) {
        while (read(l->signals, &info, sizeof info) > 0) /* one that came at the very end has been answered by our return */
            continue;
        close(l->signals);
    }
    if (l->masked) {
        pthread_sigmask(SIG_SETMASK, &l->before, NULL);
        sigaction(SIGCHLD, &l->child_before, NULL);
    }
    tutti_shm_region_close(&l->region);
    tutti_free(l->cores);
    tutti_free(l->polled);
    tutti_free(l->workers);
    tutti_runtime_close(l->rt);
}

tutti_status tutti_launch_run(const tutti_launch_options *options, tutti_launch_result *result, tutti_error *err)
{
    launcher l = { .options = options, .result = result, .region = { .fd = -1, .owned = true }, .signals = -1, .kill_at = TUTTI_FOREVER };
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
