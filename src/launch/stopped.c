/* stopped.c: is a worker stopped, by SIGSTOP or a terminal, and for how long? Over shared memory
   there are no heartbeats, so a stopped worker looks like one that computes, except to the kernel,
   which shows the state T in /proc/PID/stat. A worker that a debugger has stopped (t) does not
   count, nor does one that waits for a disk or for memory (D), which is only slow. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "launch_internal.h"

static bool is_stopped(pid_t pid)
{
    char path[40], text[512];
    const char *end;
    ssize_t n;
    int fd;

    snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    n = read(fd, text, sizeof text - 1);
    close(fd);
    text[n > 0 ? n : 0] = '\0';
    end = strrchr(text, ')'); /* of the program's name, which may have anything in it */
    return end != NULL && end[1] == ' ' && end[2] == 'T';
}

bool tutti_launch_stopped_check(launch_stopped *s, pid_t pid, int64_t silence_ns, int64_t now_ns,
                                bool was_away)
{
    if (!is_stopped(pid)) {
        s->since_ns = 0;
        s->warned = false;
        return false;
    }
    if (s->since_ns == 0 || was_away)
        s->since_ns = now_ns;
    /* The process stopped at most half a second before this was seen, and the next check is half a
       second away. So with 3 s it is ended 2.5 to 3 s after it stopped. */
    s->warned = now_ns - s->since_ns >= silence_ns / 3;
    if (now_ns - s->since_ns < silence_ns / 6 * 5)
        return false;
    s->ended_ns = now_ns - s->since_ns;
    return true;
}
