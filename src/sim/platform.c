/* platform.c: starts SimGrid with the hosts and links of a run. SimGrid reads XML files only and
   aborts on an invalid one, so a user's file is tried in a forked child first. The default platform
   is written to a memory file.

   SimGrid's defaults modify latency and bandwidth to model TCP. With the settings here a message
   takes exactly latency + bytes / bandwidth (tests/sim/sim_test.c). */
#include <errno.h>
#include <ctype.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include "sim_internal.h"

#if defined(__SANITIZE_ADDRESS__)
#define CONTEXTS "thread" /* the only kind of stacks that the address sanitizer follows */
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define CONTEXTS "thread"
#endif
#endif
#ifdef CONTEXTS
#define THREADS true
#else
#define CONTEXTS "raw"
#define THREADS false
#endif

/* Actors that are threads run one at a time, each waking the next, which takes two to three
   times as long from core to core. */
static void stay_on_this_core(void)
{
    const int here = sched_getcpu();
    cpu_set_t set;

    if (here < 0 || here >= CPU_SETSIZE)
        return;
    CPU_ZERO(&set);
    CPU_SET(here, &set);
    sched_setaffinity(0, sizeof set, &set);
}

static void start_engine(bool quiet)
{
    static const char *const arguments[] = {
        "tutti",
        "--cfg=network/model:CM02",
        "--cfg=network/TCP-gamma:0",
        "--cfg=network/crosstraffic:no",
        ("--cfg=contexts/factory:" CONTEXTS),
        "--cfg=surf/precision:1e-12",
        "--cfg=tracing:no", /* a platform's <config> may ask for a file anywhere; what is set here takes precedence */
        "--log=root.threshold:critical",
        "--log=root.app:file:/dev/null",
    };
    char *argv[TUTTI_LENGTH(arguments) + 1];
    int argc = quiet ? (int)TUTTI_LENGTH(arguments) : (int)TUTTI_LENGTH(arguments) - 2;
    struct sigaction interrupt, fault;

    for (size_t k = 0; k < TUTTI_LENGTH(arguments); k++)
        argv[k] = (char *)(uintptr_t)arguments[k];
    argv[argc] = NULL;
    if (THREADS) /* with a sanitizer only */
        stay_on_this_core();
    /* A library leaves its program's signals alone; SimGrid does not. */
    sigaction(SIGINT, NULL, &interrupt);
    sigaction(SIGSEGV, NULL, &fault);
    simgrid_init(&argc, argv);
    sigaction(SIGINT, &interrupt, NULL);
    sigaction(SIGSEGV, &fault, NULL);
}

/* ---- the bare platform: 100 Gflop/s, 10 Gbit/s in each direction, 50 us from host to host: a
   route passes two links ---- */
static tutti_status write_default(int ranks, int *fd, tutti_error *err)
{
    FILE *file = NULL;
    const int made = memfd_create("tutti-platform", MFD_CLOEXEC);
    bool well;

    *fd = made;
    if (made >= 0)
        file = fdopen(dup(made), "w");
    if (file == NULL)
        return tutti_fail(err, TUTTI_ERR_IO, errno, "writing the platform of %d hosts into memory",
                          ranks);
    fprintf(
        file,
        "<?xml version='1.0'?>\n"
        "<!DOCTYPE platform SYSTEM \"https://simgrid.org/simgrid.dtd\">\n"
        "<platform version=\"4.1\">\n"
        "<cluster id=\"tutti\" prefix=\"worker-\" suffix=\"\" radical=\"0-%d\" speed=\"100Gf\" "
        "bw=\"1.25GBps\" "
        "lat=\"25us\" sharing_policy=\"SPLITDUPLEX\" loopback_bw=\"10GBps\" loopback_lat=\"0\"/>\n"
        "</platform>\n",
        ranks - 1);
    well = ferror(file) == 0;
    if (fclose(file) != 0 || !well)
        return tutti_fail(err, TUTTI_ERR_IO, errno, "writing the platform of %d hosts into memory",
                          ranks);
    return TUTTI_OK;
}

/* ---- the user's ---- */
/* SimGrid's complaint about it: its first error, without the logger's mark ("[0.000000]
   ./src/xbt/exception.cpp:95: [xbt_exception/ERROR] "), the exception's type and where that was
   met; what follows is a farewell or a backtrace. If it ended without a message, a text that says
   so. */
static void complaint(const char *text, char *out, size_t bytes)
{
    static const char *const levels[] = { "/ERROR] ", "/CRITICAL] " };
    const char *said = NULL;

    for (size_t k = 0; k < TUTTI_LENGTH(levels); k++) {
        const char *const at = strstr(text, levels[k]);
        if (at != NULL && (said == NULL || at < said))
            said = at + strlen(levels[k]);
    }
    if (said == NULL)
        said = text + strspn(text, "\n ");
    if (strncmp(said, "Uncaught exception ", 19) == 0 && strstr(said, ": ") != NULL)
        said = strstr(said, ": ") + 2;
    snprintf(out, bytes, "%.*s", (int)strcspn(said, "\n"),
             said[0] != '\0' ? said : "it ends without saying why");
}

/* "cluster(8)", "wan": what `tutti platform` takes rather than a file's name. */
static bool is_spec(const char *text)
{
    const size_t n = strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-");

    return n > 0 && (text[n] == '\0' || (text[n] == '(' && text[strlen(text) - 1] == ')'));
}

static tutti_status check_readable(const char *file, tutti_error *err)
{
    if (access(file, R_OK) != 0 && is_spec(file))
        return tutti_fail(
            err, TUTTI_ERR_USAGE, errno,
            "cannot read the platform '%.200s', which is to be a file; write one with tutti "
            "platform '%.200s' > FILE",
            file, file);
    if (access(file, R_OK) != 0)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, errno,
            "cannot read the platform '%s'; check the path given to sim(platform=...)", file);
    return TUTTI_OK;
}

static tutti_status try_in_child(const char *file, tutti_error *err)
{
    char said[8192], line[320];
    size_t n = 0;
    int ends[2], how = 0;
    pid_t child;

    TUTTI_TRY(check_readable(file, err));
    if (pipe(ends) != 0)
        return tutti_fail(err, TUTTI_ERR_IO, errno, "trying the platform '%s'", file);
    child = fork();
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        signal(SIGABRT, SIG_DFL);
        start_engine(false);
        simgrid_load_platform(file);
        _exit(0);
    }
    close(ends[1]);
    for (ssize_t got;
         child > 0 && n < sizeof said - 1 &&
         ((got = read(ends[0], said + n, sizeof said - 1 - n)) > 0 || (got < 0 && errno == EINTR));)
        n += got > 0 ? (size_t)got : 0;
    close(ends[0]);
    if (child < 0)
        return tutti_fail(err, TUTTI_ERR_IO, errno, "trying the platform '%s'", file);
    while (waitpid(child, &how, 0) < 0 && errno == EINTR)
        continue;
    if (WIFEXITED(how) && WEXITSTATUS(how) == 0)
        return TUTTI_OK;
    said[n] = '\0';
    complaint(said, line, sizeof line);
    return tutti_fail(err, TUTTI_ERR_USAGE, 0, "SimGrid refuses the platform '%s': %s", file, line);
}

/* "node-2" before "node-10". */
static int by_name(const void *a, const void *b)
{
    const char *x = sg_host_get_name(*(const sg_host_t *)a),
               *y = sg_host_get_name(*(const sg_host_t *)b);

    while (*x != '\0' && *y != '\0') {
        if (isdigit((unsigned char)*x) && isdigit((unsigned char)*y)) {
            char *past_x, *past_y;
            const unsigned long long p = strtoull(x, &past_x, 10), q = strtoull(y, &past_y, 10);
            if (p != q)
                return p < q ? -1 : 1;
            x = past_x;
            y = past_y;
            continue;
        }
        if (*x != *y)
            break;
        x++;
        y++;
    }
    return (int)(unsigned char)*x - (int)(unsigned char)*y;
}

tutti_status sim_platform_load(const char *file, int ranks, bool spare, sg_host_t **hosts,
                               size_t *n, tutti_error *err)
{
    char path[64];
    int fd = -1;

    *hosts = NULL;
    *n = 0;
    if (file[0] == '\0') {
        const tutti_status status = write_default(ranks + spare, &fd, err);
        if (status != TUTTI_OK) {
            if (fd >= 0)
                close(fd);
            return status;
        }
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        file = path;
    } else
        TUTTI_TRY(try_in_child(file, err));
    start_engine(true);
    simgrid_load_platform(file);
    if (fd >= 0)
        close(fd);
    *n = sg_host_count();
    *hosts = sg_host_list(); /* malloc'ed */
    qsort(*hosts, *n, sizeof **hosts, by_name);
    if (*n < (size_t)ranks)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "the platform '%s' has %zu hosts for %d workers; every worker needs one: "
                          "add hosts, or use fewer workers",
                          file, *n, ranks);
    return TUTTI_OK;
}
