/* output.c: standard output, whose reader may close it before a run ends (`tutti train ... |
   head`), or whose disk may be full. The results of a run are its files, so the run continues. It
   reports once, on standard error, that its output is lost, and discards further output. */
#include <errno.h>
#include <signal.h>
#include <string.h>

#include "cli_internal.h"
#include "base/errors.h"

void tutti_cli_keep_running(void)
{
    signal(SIGPIPE, SIG_IGN); /* writes give EPIPE instead */
}

tutti_status tutti_cli_flush(tutti_error *err)
{
    if (fflush(stdout) == 0)
        return TUTTI_OK;
    if (errno == EPIPE)
        fprintf(
            stderr,
            "tutti: standard output was closed; the run continues, its results are in its files\n");
    else
        fprintf(stderr,
                "tutti: cannot write to standard output (%s); the run continues, its results are "
                "in its files\n",
                tutti_errno_text(errno));
    if (freopen("/dev/null", "w", stdout) == NULL)
        return tutti_fail(err, TUTTI_ERR_IO, errno,
                          "opening /dev/null in place of standard output");
    return TUTTI_OK;
}
