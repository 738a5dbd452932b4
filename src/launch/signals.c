/* signals.c: the signals by which a user ends a run, as a descriptor for poll; the status of a
   child that may have ended; and two functions for messages about how a worker ended. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>
#include "launch.h"
#include "launch_internal.h"

/* Signals that the process ignores (nohup, a background job) stay ignored. SIGCHLD must not be
   ignored: children could not be waited for. */
tutti_status tutti_launch_signals_take(launch_signals *s, tutti_error *err)
{
    static const int wanted[] = { SIGINT, SIGTERM, SIGHUP };
    struct sigaction now, plain = { .sa_handler = SIG_DFL };
    sigset_t set;

    sigemptyset(&set);
    for (size_t i = 0; i < TUTTI_LENGTH(wanted); i++) {
        if (sigaction(wanted[i], NULL, &now) == 0 && now.sa_handler != SIG_IGN)
            sigaddset(&set, wanted[i]);
    }
    sigaction(SIGCHLD, &plain, &s->child_before);
    pthread_sigmask(SIG_BLOCK, &set, &s->before);
    s->masked = true;
    s->fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (s->fd < 0)
        return tutti_fail(err, TUTTI_ERR_IO, errno,
                          "cannot watch for signals; raise the limit of open files (ulimit -n)");
    return TUTTI_OK;
}

int tutti_launch_signals_next(launch_signals *s)
{
    struct signalfd_siginfo info;

    return s->fd >= 0 && read(s->fd, &info, sizeof info) == (ssize_t)sizeof info
               ? (int)info.ssi_signo
               : 0;
}

void tutti_launch_signals_release(launch_signals *s)
{
    if (s->fd >= 0) {
        while (tutti_launch_signals_next(s) !=
               0) /* a signal that came at the very end needs no more than the return of
                                                     the caller */
            continue;
        close(s->fd);
        s->fd = -1;
    }
    if (s->masked) {
        pthread_sigmask(SIG_SETMASK, &s->before, NULL);
        sigaction(SIGCHLD, &s->child_before, NULL);
        s->masked = false;
    }
}

pid_t tutti_launch_reap(pid_t pid, int *status)
{
    pid_t got;

    do
        got = waitpid(pid, status, WNOHANG);
    while (got < 0 && errno == EINTR);
    return got;
}

const char *tutti_launch_report_text(int rank, const char *report)
{
    char name[32];
    const int n = snprintf(name, sizeof name, "worker %d: ", rank);

    return strncmp(report, name, (size_t)n) == 0 ? report + n : report;
}

/* The name as in `kill -KILL`, not the C library's description, which depends on the locale. glibc
   has it since 2.32. */
const char *tutti_launch_signal_name(int number)
{
#define NAME(of) [SIG##of] = #of
    static const char *const names[] = {
        NAME(HUP), NAME(INT), NAME(QUIT), NAME(ILL), NAME(TRAP), NAME(ABRT), NAME(BUS), NAME(FPE),
        NAME(KILL), NAME(USR1), NAME(SEGV), NAME(USR2), NAME(PIPE), NAME(ALRM), NAME(TERM),
        NAME(STKFLT), NAME(CHLD), NAME(CONT), NAME(STOP), NAME(TSTP), NAME(TTIN), NAME(TTOU),
        NAME(URG), NAME(XCPU), NAME(XFSZ), NAME(VTALRM), NAME(PROF), NAME(WINCH), NAME(POLL),
        NAME(PWR), NAME(SYS)
    };
#undef NAME

    return number > 0 && (size_t)number < TUTTI_LENGTH(names) ? names[number] : "?";
}
