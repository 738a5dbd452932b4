/* agent.c: the agent of a run over several hosts (`tutti agent`). ssh or a similar command starts
   it on each host. It reads a job, starts the host's workers by tutti_launch_run in a child
   process, and passes data between them and the launcher, by the protocol of launch_internal.h:
   frames out, commands in. When its input closes, it ends everything that it has started.

   There are two processes because both block: the child in tutti_launch_run, the agent in poll. The
   child is killed if the agent dies (PR_SET_PDEATHSIG), and the workers if the child dies. */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "runtime/names.h"
#include "tutti/base.h"
#include "tutti/launch.h"
#include "launch_internal.h"
#include "launch.h"
#include "base/errors.h"

enum {
    MOST_MEETS = 8,
    TURN_MS = 10,                /* between two looks at what is left of the workers */
    CONNECT_MS = 3000            /* for one address of the launcher */
};

typedef struct job {
    char *text;                  /* NAME=VALUE strings, each with a 0 at its end. The run's key is
                                    among them. The strings below point into it */
    size_t bytes;
    const char **argv;           /* NULL-ended */
    size_t n_argv;
    const char *directory, *host, *meets[MOST_MEETS];
    size_t n_meets;
    long workers, first, size, local_first, local_size, threads, pin, grace_ms, stop_ms, silence_ms;
    long continue_on_loss, torch, tag;
} job;

/* ---- reading and writing whole ---- */
static bool read_all(int fd, void *to, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        const ssize_t n = read(fd, (char *)to + at, bytes - at);
        if (n > 0)
            at += (size_t)n;
        else if (n == 0 || errno != EINTR)
            return false;
    }
    return true;
}

static bool write_all(int fd, const void *from, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        const ssize_t n = write(fd, (const char *)from + at, bytes - at);
        if (n > 0)
            at += (size_t)n;
        else if (n < 0 && errno != EINTR)
            return false;
    }
    return true;
}

/* Writes a frame: its head (type and length, little-endian) and its body. */
static bool frame(int fd, char type, const void *body, size_t bytes)
{
    uint8_t head[TUTTI_AGENT_HEAD] = { (uint8_t)type, (uint8_t)bytes, (uint8_t)(bytes >> 8),
                                       (uint8_t)(bytes >> 16), (uint8_t)(bytes >> 24) };

    return write_all(fd, head, sizeof head) && write_all(fd, body, bytes);
}

static bool frame_text(int fd, char type, const char *text)
{
    return frame(fd, type, text, strlen(text));
}

/* ---- the job ---- */

/* Sets a field that is a number. false: there is none of that name, or the value is no number. */
static bool set_number(job *j, const char *name, size_t length, const char *value)
{
    static const struct { const char *name; size_t at;
    } numbers[] = {
        { "workers", offsetof(job, workers) },
        { "first", offsetof(job, first) },
        { "size", offsetof(job, size) },
        { "threads", offsetof(job, threads) },
        { "pin", offsetof(job, pin) },
        { "grace", offsetof(job, grace_ms) },
        { "stop", offsetof(job, stop_ms) },
        { "silence", offsetof(job, silence_ms) },
        { "goes_on", offsetof(job, continue_on_loss) },
        { "local_first", offsetof(job, local_first) },
        { "local_size", offsetof(job, local_size) },
        { "torch", offsetof(job, torch) },
        { "tag", offsetof(job, tag) },
    };
    char *end;
    for (size_t i = 0; i < TUTTI_LENGTH(numbers); i++) {
        if (strlen(numbers[i].name) == length && strncmp(name, numbers[i].name, length) == 0) {
            errno = 0;
            *(long *)(void *)((char *)j + numbers[i].at) = strtol(value, &end, 10);
            if (errno == 0 && end != value && *end == '\0')
                return true;
        }
    }
    return false;
}

static tutti_status set_field(job *j, const char *name, size_t length, const char *value,
                              tutti_error *err)
{
    if (set_number(j, name, length, value))
        return TUTTI_OK;
    if (length == 3 && strncmp(name, "arg", 3) == 0)
        j->argv[j->n_argv++] = value;
    else if (length == 3 && strncmp(name, "env", 3) == 0)
        /* the job's text stays until the end */
        return putenv((char *)(uintptr_t)value) == 0
                   ? TUTTI_OK
                   : tutti_fail(err, TUTTI_ERR_MEMORY, errno, "taking over a variable");
    else if (length == 3 && strncmp(name, "dir", 3) == 0)
        j->directory = value;
    else if (length == 4 && strncmp(name, "host", 4) == 0)
        j->host = value;
    else if (length == 4 && strncmp(name, "meet", 4) == 0 && j->n_meets < MOST_MEETS)
        j->meets[j->n_meets++] = value;
    else
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                          "the job that came has a line '%.40s' that this agent does not know; "
                          "install the same version of Tutti on every host",
                          name);
    return TUTTI_OK;
}

/* Reads the text of a job, to j->text. */
static tutti_status read_text(int in, job *j, tutti_error *err)
{
    char line[64];
    size_t at = 0;
    long bytes = 0;
    while (at + 1 < sizeof line) {
        if (!read_all(in, line + at, 1))
            return tutti_fail(err, TUTTI_ERR_IO, 0,
                              "the launcher went away before it had sent a job");
        if (line[at++] == '\n')
            break;
    }
    line[at] = '\0';
    if (sscanf(line, "JOB %8ld\n", &bytes) != 1 || bytes < 1 || bytes > TUTTI_AGENT_JOB ||
        line[at - 1] != '\n')
        return tutti_fail(
            err, TUTTI_ERR_CORRUPT, 0,
            "what came is no job; `tutti agent` is started by `tutti train -H`, not by hand");
    j->text = tutti_alloc((size_t)bytes + 1, 1);
    if (j->text == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "reading a job of %ld bytes", bytes);
    if (!read_all(in, j->text, (size_t)bytes))
        return tutti_fail(err, TUTTI_ERR_IO, 0, "the launcher went away within the job");
    j->bytes = (size_t)bytes;
    return TUTTI_OK;
}

/* Has the job all that it needs, with numbers that are in range? */
static bool is_whole(const job *j)
{
    return j->n_argv > 0 && j->directory != NULL && j->host != NULL && j->workers >= 1 &&
           j->first >= 0 && j->size >= 1 && j->first <= j->size - j->workers &&
           j->size <= INT32_MAX && j->local_first >= 0 &&
           j->local_first <= j->local_size - j->workers && j->local_size <= INT32_MAX;
}

static tutti_status read_job(int in, job *j, tutti_error *err)
{
    size_t strings = 0;

    TUTTI_TRY(read_text(in, j, err));
    for (size_t i = 0; i < j->bytes; i++)
        strings += j->text[i] == '\0';
    j->argv = tutti_alloc(strings + 1, sizeof *j->argv);
    if (j->argv == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "reading a job of %zu strings", strings);
    for (const char *p = j->text; p < j->text + j->bytes; p += strlen(p) + 1) {
        const char *equal = strchr(p, '=');
        if (equal == NULL)
            return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                              "the job that came has a line without a value; install the same "
                              "version of Tutti on every host");
        TUTTI_TRY(set_field(j, p, (size_t)(equal - p), equal + 1, err));
    }
    if (!is_whole(j))
        return tutti_fail(
            err, TUTTI_ERR_CORRUPT, 0,
            "the job that came is not whole; install the same version of Tutti on every host");
    return TUTTI_OK;
}

/* ---- which route to the meeting place ---- */

/* Connects once to "10.0.0.1:80", "[fe80::1]:80" or "name:80". Returns why it fails; NULL: it does
   not. */
static const char *cannot_connect(const char *where)
{
    char host[256];
    const char *colon = strrchr(where, ':'), *why = "no address";
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *list = NULL;
    size_t length;

    if (colon == NULL)
        return why;
    length = (size_t)(colon - where);
    if (where[0] == '[' && length >= 2) {
        where++;
        length -= 2;
    }
    if (length >= sizeof host)
        return why;
    memcpy(host, where, length);
    host[length] = '\0';
    why = tutti_lookup(host, colon + 1, &hints, &list);
    if (why != NULL)
        return why;
    why = "no address";
    for (const struct addrinfo *a = list; a != NULL && why != NULL; a = a->ai_next) {
        const int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        struct pollfd polled = { .fd = fd, .events = POLLOUT };
        int cause = fd < 0 ? errno : 0;
        socklen_t bytes = sizeof cause;
        if (fd < 0) {
            why = tutti_errno_text(cause);
            continue;
        }
        if (connect(fd, a->ai_addr, a->ai_addrlen) != 0)
            cause = errno;
        if (cause == EINPROGRESS) {
            if (poll(&polled, 1, CONNECT_MS) <= 0)
                cause = ETIMEDOUT;
            else
                getsockopt(fd, SOL_SOCKET, SO_ERROR, &cause, &bytes);
        }
        why = cause == 0 ? NULL : tutti_errno_text(cause);
        close(fd);
    }
    freeaddrinfo(list);
    return why;
}

/* Writes TUTTI_MEET=ADDRESS, with the first of the launcher's addresses that this host reaches. */
static tutti_status choose_meet(const job *j, char *text, size_t bytes, tutti_error *err)
{
    char tried[240] = "";
    size_t used = 0;

    text[0] = '\0';
    for (size_t i = 0; i < j->n_meets; i++) {
        const char *why = cannot_connect(j->meets[i]);
        if (why == NULL) {
            snprintf(text, bytes, "TUTTI_MEET=%s", j->meets[i]);
            return TUTTI_OK;
        }
        if (used < sizeof tried)
            used += (size_t)snprintf(tried + used, sizeof tried - used, "%s%.80s (%s)",
                                     i > 0 ? ", " : "", j->meets[i], why);
    }
    return j->n_meets == 0
               ? TUTTI_OK
               : tutti_fail(
                     err, TUTTI_ERR_IO, 0,
                     "cannot reach the launcher at %s; allow that connection in firewalls, or give "
                     "--meet with an address that this host reaches",
                     tried);
}

/* ---- the child: workers ---- */
typedef struct reporter { int fd; int64_t memory_kills; } reporter;

/* tutti_launch_options.on_worker: a worker has been started ('s') or has ended ('d'). */
static void report_worker(void *user, int rank, long pid, bool ended, int code, int signal)
{
    const reporter *r = user;
    char text[80];

    if (ended)
        snprintf(text, sizeof text, "%d %ld %d %d %d", rank, pid, code, signal,
                 tutti_launch_for_memory(signal, r->memory_kills));
    else
        snprintf(text, sizeof text, "%d %ld", rank, pid);
    frame_text(r->fd, ended ? 'd' : 's', text);
}

/* tutti_launch_options.output: writes a line with the rank in front. */
static void tagged(void *user, int rank, int stream, const char *line, size_t bytes)
{
    char text[LAUNCH_LINE + 32];
    const int n = snprintf(text, sizeof text, "[%d] ", rank);

    (void)user;
    memcpy(text + n, line, bytes); /* at most LAUNCH_LINE and its end */
    write_all(stream, text, (size_t)n + bytes);
}

/* Does not return. Frames go through a pipe: the other process copies them out as they are. */
static void run_workers(const job *j, int output, int errors, int events, pid_t parent)
{
    tutti_launch_result result;
    reporter r = { events, tutti_launch_memory_kills("") };
    char text[sizeof result.text + 120];
    const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent || null < 0 || dup2(null, 0) < 0 || dup2(output, 1) < 0 ||
        dup2(errors, 2) < 0)
        _exit(127);
    /* a signal of a terminal reaches the launcher, which sends a command */
    signal(SIGINT, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    signal(SIGPIPE, SIG_DFL);
    tutti_launch_run(&(tutti_launch_options){ .workers = (int)j->workers,
                                              .threads = (int)j->threads,
                                              .argv = j->argv,
                                              .pin = j->pin != 0,
                                              .grace_ns = j->grace_ms * 1000000,
                                              .stop_ns = j->stop_ms * 1000000,
                                              .silence_ns = j->silence_ms * 1000000,
                                              .first = (int)j->first,
                                              .size = (int)j->size,
                                              .local_first = (int)j->local_first,
                                              .local_size = (int)j->local_size,
                                              .continue_on_loss = j->continue_on_loss != 0,
                                              .torch = j->torch != 0,
                                              .ends_all = true,
                                              .output = j->tag != 0 ? tagged : NULL,
                                              .on_worker = report_worker,
                                              .user = &r },
                     &result, NULL);
    snprintf(text, sizeof text, "%d %d %ld %d %s", result.exit_code, result.rank, result.pid,
             result.signal, result.text);
    frame_text(events, 'r', text);
    _exit(0);
}

/* ---- between the launcher and the child ---- */
typedef struct between {
    int in, out, output, errors, events; /* the last three: our ends; -1: closed */
    pid_t child;
    bool reported;               /* the last frame went out */
    /* of the workers, in order of rank; -1: not started, or ended. Not their numbers,
       which others may have after them */
    int *pidfds;
    long first, workers;
    long naming;                 /* the rank after an X, as far as it has been received; -1: none */
    uint8_t held[2 * (TUTTI_AGENT_FRAME + TUTTI_AGENT_HEAD)]; /* events not yet whole */
    size_t n_held;
    launch_adopted adopted;      /* what a child that was killed could not end */
} between;

/* Sends what is there of the workers' output as a frame. False: the launcher is gone. */
static bool pass_output(between *b, int *fd, char type)
{
    char chunk[TUTTI_AGENT_FRAME];
    const ssize_t n = read(*fd, chunk, sizeof chunk);

    if (n > 0)
        return frame(b->out, type, chunk, (size_t)n);
    if (n == 0 || (errno != EINTR && errno != EAGAIN)) {
        close(*fd);
        *fd = -1;
    }
    return true;
}

/* Opens a pidfd of that process if it is a child of this agent's child. -1: it is not; the process
   has ended, and its pid was reused. */
static int open_worker(const between *b, pid_t pid)
{
    char path[40], text[512];
    const int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    struct pollfd ended = { .fd = fd, .events = POLLIN };
    const char *name_end;
    long parent = -1;
    ssize_t n = -1;
    int stat;

    snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
    stat = fd >= 0 ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (stat >= 0) {
        n = read(stat, text, sizeof text - 1);
        close(stat);
    }
    text[n > 0 ? n : 0] = '\0';
    name_end = strrchr(text, ')'); /* of the program's name, which may have anything in it */
    /* the process lives, so what was read before was about it */
    if (name_end != NULL && sscanf(name_end, ") %*c %20ld", &parent) == 1 &&
        parent == (long)b->child && poll(&ended, 1, 0) == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

/* Records which worker runs as which process, as the child reports it. */
static void note_worker(between *b, const uint8_t *h, size_t bytes)
{
    char text[80];
    long rank, pid;
    int *at;

    if ((h[0] != 's' && h[0] != 'd') || bytes - TUTTI_AGENT_HEAD >= sizeof text)
        return;
    memcpy(text, h + TUTTI_AGENT_HEAD, bytes - TUTTI_AGENT_HEAD);
    text[bytes - TUTTI_AGENT_HEAD] = '\0';
    if (sscanf(text, "%9ld %19ld", &rank, &pid) != 2 || rank < b->first ||
        rank >= b->first + b->workers)
        return;
    at = &b->pidfds[rank - b->first];
    if (*at >= 0)
        close(*at);
    *at = h[0] == 's' ? open_worker(b, (pid_t)pid) : -1;
}

/* Sends the frames that the child has written, as far as they are whole. False: the launcher is
   gone. */
static bool pass_events(between *b)
{
    const ssize_t n = read(b->events, b->held + b->n_held, sizeof b->held - b->n_held);
    size_t at = 0;

    if (n <= 0) {
        if (n < 0 && (errno == EINTR || errno == EAGAIN))
            return true;
        close(b->events);
        b->events = -1;
        return true;
    }
    b->n_held += (size_t)n;
    while (b->n_held - at >= TUTTI_AGENT_HEAD) {
        const uint8_t *h = b->held + at;
        const size_t bytes =
            TUTTI_AGENT_HEAD + ((size_t)h[1] | (size_t)h[2] << 8 | (size_t)h[3] << 16);
        if (b->n_held - at < bytes)
            break;
        if (h[0] == 'r') { /* the workers' output is sent before the last frame */
            while (b->output >= 0 &&
                   poll(&(struct pollfd){ .fd = b->output, .events = POLLIN }, 1, 0) > 0 &&
                   pass_output(b, &b->output, 'o'))
                continue;
            while (b->errors >= 0 &&
                   poll(&(struct pollfd){ .fd = b->errors, .events = POLLIN }, 1, 0) > 0 &&
                   pass_output(b, &b->errors, 'e'))
                continue;
            b->reported = true;
        }
        note_worker(b, h, bytes);
        if (!write_all(b->out, h, bytes))
            return false;
        at += bytes;
    }
    b->n_held -= at;
    memmove(b->held, b->held + at, b->n_held);
    return true;
}

/* Executes the launcher's letters (launch_internal.h): T, K, X and a rank. Returns false if the
   agent must end everything. */
static bool receive_command(between *b)
{
    char letters[64];
    const ssize_t n = read(b->in, letters, sizeof letters);

    if (n < 0 && errno == EINTR)
        return true;
    for (ssize_t i = 0; i < n; i++) {
        const char c = letters[i];
        if (c == 'T')
            kill(b->child, SIGTERM);
        else if (c == 'K')
            return false;
        else if (c == 'X')
            b->naming = 0;
        else if (c >= '0' && c <= '9' && b->naming >= 0 && b->naming < INT32_MAX / 10)
            b->naming = 10 * b->naming + (c - '0');
        else if (c == ';') {
            if (b->naming >= b->first && b->naming < b->first + b->workers &&
                b->pidfds[b->naming - b->first] >= 0)
                syscall(SYS_pidfd_send_signal, b->pidfds[b->naming - b->first], SIGKILL, NULL, 0);
            b->naming = -1;
        }
    }
    return n > 0;
}

/* Waits for the child's end, ends all that is left of its processes, and reports an end that it has
   not reported. going: false: kills it first, and reports nothing. */
static void end_child(between *b, bool going)
{
    int status = 0;
    char text[80];
    if (!going)
        kill(b->child, SIGKILL);
    while (waitpid(b->child, &status, 0) < 0 && errno == EINTR)
        continue;
    /* the workers were killed with it, and their orphans are children of this process */
    while (tutti_launch_adopt_end(&b->adopted, SIGKILL, -1) > 0)
        poll(NULL, 0, TURN_MS);
    tutti_launch_adopt_close(&b->adopted);
    if (going && !b->reported) {
        snprintf(text, sizeof text, "%d its launcher ended with status %#x and reported nothing",
                 TUTTI_ERR_STATE, (unsigned)status);
        frame_text(b->out, 'x', text);
    }
}

/* Passes data both ways until the child or the launcher has ended. Returns the exit code. */
static int pass_all(between *b)
{
    bool going = true;

    while (going && b->events >= 0) { /* the child's end closes events */
        struct pollfd polled[] = { { .fd = b->in, .events = POLLIN },
                                   { .fd = b->events, .events = POLLIN },
                                   { .fd = b->output, .events = POLLIN },
                                   { .fd = b->errors, .events = POLLIN } };
        if (poll(polled, TUTTI_LENGTH(polled), -1) < 0 && errno != EINTR)
            break;
        if (polled[2].revents != 0)
            going = pass_output(b, &b->output, 'o');
        if (going && polled[3].revents != 0)
            going = pass_output(b, &b->errors, 'e');
        if (going && polled[1].revents != 0)
            going = pass_events(b);
        if (going && polled[0].revents != 0)
            going = receive_command(b);
    }
    end_child(b, going);
    return going && b->reported ? 0 : 1;
}

/* Starts the child, with pipes for the workers' output and errors and for its frames. */
static tutti_status start_child(const job *j, between *b, tutti_error *err)
{
    int pipes[3][2];
    const pid_t parent = getpid();

    b->pidfds = tutti_alloc((size_t)j->workers, sizeof *b->pidfds);
    if (b->pidfds == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "watching %ld workers", j->workers);
    for (long r = 0; r < j->workers; r++)
        b->pidfds[r] = -1;
    for (size_t i = 0; i < 3; i++) {
        if (pipe2(pipes[i], O_CLOEXEC) != 0)
            /* the process ends: nothing to close */
            return tutti_fail(
                err, TUTTI_ERR_IO, errno,
                "no pipe for the workers' output; raise the limit of open files (ulimit -n)");
    }
    TUTTI_TRY(tutti_launch_adopt_begin(&b->adopted, NULL, NULL, err));
    b->child = fork();
    if (b->child < 0)
        return tutti_fail(err, TUTTI_ERR_IO, errno,
                          "no process for the workers; raise the limit of processes (ulimit -u)");
    if (b->child == 0)
        run_workers(j, pipes[0][1], pipes[1][1], pipes[2][1], parent);
    for (size_t i = 0; i < 3; i++)
        close(pipes[i][1]);
    b->first = j->first;
    b->workers = j->workers;
    b->output = pipes[0][0];
    b->errors = pipes[1][0];
    b->events = pipes[2][0];
    return TUTTI_OK;
}

/* Greets the launcher: version, cores, and the address that this host was reached by. */
static bool greet(int out)
{
    const char *connection = getenv("SSH_CONNECTION");
    const int length = connection != NULL ? (int)strcspn(connection, " ") : 0;
    char text[600 + LAUNCH_CORES_TEXT], cores[LAUNCH_CORES_TEXT];
    tutti_launch_cores_text(cores);
    snprintf(text, sizeof text, "\n" TUTTI_AGENT_GREETING "%s %d %.*s %s\n", tutti_version(),
             tutti_cores(), length > 0 && length < 100 ? length : 1,
             length > 0 && length < 100 ? connection : "-", cores);
    return write_all(out, text, strlen(text));
}

int tutti_launch_agent(int in, int out)
{
    static const char *const outer[] = { "TUTTI_RANK",           "TUTTI_SIZE",   "TUTTI_MEET",
                                         "TUTTI_MEET_AT_RANK_0", "TUTTI_RUN_ID", "TUTTI_RUN_KEY",
                                         "TUTTI_RUN_KEY_FILE",   "TUTTI_SHM_FD" };
    between b = { .in = in, .out = out, .output = -1, .errors = -1, .events = -1, .naming = -1 };
    job j = { 0 };
    tutti_error err = { .rank = -1 };
    tutti_status status;
    char text[600 + LAUNCH_CORES_TEXT], meet[340] = "";
    int code = 1;

    signal(SIGINT, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    if (!greet(out))
        return 1;
    for (size_t i = 0; i < TUTTI_LENGTH(outer); i++) /* of a run that the agent was started in */
        unsetenv(outer[i]);
    status = read_job(in, &j, &err);
    if (status == TUTTI_OK && chdir(j.directory) != 0)
        status = tutti_fail(
            &err, TUTTI_ERR_USAGE, errno,
            "there is no directory '%.200s' to work in; start from one that every host has",
            j.directory);
    if (status == TUTTI_OK)
        status = choose_meet(&j, meet, sizeof meet, &err);
    if (status == TUTTI_OK && meet[0] != '\0')
        putenv(meet);
    if (status == TUTTI_OK)
        status = start_child(&j, &b, &err);
    if (status == TUTTI_OK)
        code = pass_all(&b);
    else {
        snprintf(text, sizeof text, "%d %s", status, err.text);
        frame_text(out, 'x', text);
    }
    clearenv(); /* the environment points into it */
    if (j.text != NULL)
        explicit_bzero(j.text, j.bytes);
    tutti_free(j.text);
    tutti_free(j.argv);
    for (long r = 0; b.pidfds != NULL && r < b.workers; r++)
        if (b.pidfds[r] >= 0)
            close(b.pidfds[r]);
    tutti_free(b.pidfds);
    return code;
}
