/* doctor_child.c: calls a function in a child process, since the call may crash or never return,
   and gives back what it has printed. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "doctor_internal.h"

/* The child: calls run with standard output and standard error going to the pipe `ends`. It has a
   process group of its own, so that whatever it starts can be killed with it. */
static _Noreturn void run_child(const int *ends, pid_t parent, void (*run)(void *user), void *user)
{
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    /* the parent may have ended before prctl, which then sends nothing */
    if (getppid() != parent || dup2(ends[1], STDOUT_FILENO) < 0 || dup2(ends[1], STDERR_FILENO) < 0)
        _exit(127);
    close(ends[0]);
    close(ends[1]);
    run(user);
    fflush(NULL);
    _exit(0);
}

/* Reads what the child prints, until the last process that could write to the pipe has closed it.
   What is longer than out->text is read and dropped: a full pipe would block the child. false: the
   pipe was still open at the time `until`. */
static bool read_answer(tutti_runtime *rt, int fd, int64_t until, tutti_doctor_answer *out)
{
    char rest[4096];
    size_t n = 0;

    for (;;) {
        const int64_t left = until - tutti_now_ns(rt);
        struct pollfd end = { .fd = fd, .events = POLLIN };
        const size_t room = sizeof out->text - 1 - n;
        ssize_t got;
        if (left <= 0)
            return false;
        if (poll(&end, 1, (int)(left / 1000000) + 1) <= 0)
            continue;
        got = read(fd, room > 0 ? out->text + n : rest, room > 0 ? room : sizeof rest);
        if (got == 0 || (got < 0 && errno != EINTR))
            return true;
        if (got > 0 && room > 0)
            n += (size_t)got;
    }
}

/* Waits for the end of a child that has closed the pipe. false: it had not ended at `until`. */
static bool ends_by(tutti_runtime *rt, pid_t child, int64_t until, int *status)
{
    for (;;) {
        const pid_t ended = waitpid(child, status, WNOHANG);
        if (ended == child || (ended < 0 && errno != EINTR))
            return true;
        if (tutti_now_ns(rt) >= until)
            return false;
        poll(NULL, 0, 1);
    }
}

void tutti_doctor_ask(tutti_runtime *rt, int64_t limit_ns, void (*run)(void *user), void *user,
                      tutti_doctor_answer *out)
{
    const int64_t until = tutti_now_ns(rt) + limit_ns;
    const pid_t parent = getpid();
    int ends[2], status = 0;
    pid_t child;

    memset(out, 0, sizeof *out);
    out->code = -1;
    fflush(stdout); /* else the child would have the text, too, and print it */
    if (pipe(ends) != 0)
        return;
    child = fork();
    if (child == 0)
        run_child(ends, parent, run, user);
    close(ends[1]);
    if (child > 0) {
        setpgid(child, child); /* as the child does, since either may be first */
        out->late = !read_answer(rt, ends[0], until, out) || !ends_by(rt, child, until, &status);
        if (out->late) {
            kill(-child, SIGKILL);
            while (waitpid(child, &status, 0) < 0 && errno == EINTR)
                ;
        }
        kill(-child, SIGKILL); /* what it has started and left behind */
        out->code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    }
    close(ends[0]);
}
