/* lines.c: reads the output of workers line by line, for a launcher that shows which worker wrote
   each line. A line longer than LAUNCH_LINE is split. All that a worker has written before its end
   is read; what its children write later is not. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>
#include "launch_internal.h"

bool tutti_launch_lines_open(launch_lines *l, int *theirs)
{
    int ends[2];

    *theirs = -1;
    l->fd = -1;
    l->n = 0;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return false;
    fcntl(ends[0], F_SETFL, O_NONBLOCK); /* for the reading side; the worker's side blocks */
    l->fd = ends[0];
    *theirs = ends[1];
    return true;
}

static void emit_bytes(launch_lines *l, size_t bytes, launch_line_fn *output, void *user, int rank,
                       int stream)
{
    output(user, rank, stream, l->text, bytes);
    l->n -= bytes;
    memmove(l->text, l->text + bytes, l->n);
}

/* All whole lines; what is left if `last`. */
static void give_lines(launch_lines *l, bool last, launch_line_fn *output, void *user, int rank,
                       int stream)
{
    const char *end;

    while ((end = memchr(l->text, '\n', l->n)) != NULL)
        emit_bytes(l, (size_t)(end - l->text) + 1, output, user, rank, stream);
    if (l->n == LAUNCH_LINE || (last && l->n > 0)) {
        l->text[l->n++] = '\n';
        emit_bytes(l, l->n, output, user, rank, stream);
    }
}

void tutti_launch_lines_read(launch_lines *l, launch_line_fn *output, void *user, int rank,
                             int stream)
{
    while (l->fd >= 0) {
        const ssize_t n = read(l->fd, l->text + l->n, LAUNCH_LINE - l->n);
        if (n > 0) {
            l->n += (size_t)n;
            give_lines(l, false, output, user, rank, stream);
        } else if (n < 0 && errno == EINTR)
            continue;
        else if (n < 0 && errno == EAGAIN)
            return;
        else
            tutti_launch_lines_close(l, output, user, rank, stream);
    }
}

void tutti_launch_lines_close(launch_lines *l, launch_line_fn *output, void *user, int rank,
                              int stream)
{
    if (l->fd < 0)
        return;
    close(l->fd);
    l->fd = -1;
    give_lines(l, true, output, user, rank, stream);
}
