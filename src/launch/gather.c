/* gather.c: sets up ranks of one host and one user that another launcher than Tutti's has started.
   They get what Tutti's launcher would have given them:

     shm   the descriptor of the run's shared memory, and the pids of all ranks, for beside.c
     tcp   a key, and the address of a meeting place if their launcher gave none

   Rank 0 listens at the run's socket (private.c) until each of the other ranks has connected and
   sent its rank. Then it makes these things, sends them to all, and removes the socket. Both sides
   ask the kernel for the user at the other end, and refuse other users. So the run is as protected
   as the processes of a user are from those of others, root excepted. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "../transport/shm/shm_region.h"
#include "launch_internal.h"
#include "launch/gather.h"
#include "transport/meet.h"
#include "base/machine.h"
#include "launch.h"

#define WAIT_NS INT64_C(60000000000)
#define REPORT_NS INT64_C(2000000000)
#define REPORT_AGAIN_NS INT64_C(5000000000)
#define TICK_NS INT64_C(200000000)
#define CALL_AGAIN_NS INT64_C(10000000)
enum { STRANGERS = 8,           /* most connections at rank 0 whose rank has not come */
       ADDED = 4,               /* most variables that are added to the environment */
       ADDED_BYTES = 128 };     /* of one of them */

struct tutti_launch_gathering {
    tutti_runtime *rt;
    launch_beside *beside;
    char **environment;
    char added[ADDED][ADDED_BYTES];
};

typedef struct gatherer {
    tutti_launch_gathering *g;
    const tutti_launch_place *place;
    bool memory;                 /* true: shm; false: tcp */
    launch_private at;
    char name[40];               /* of the run's socket */
    pid_t launcher;              /* of these ranks; 0: not known */
    unsigned long long launcher_began; /* tutti_launch_began of it */
    int64_t wait_ns, deadline_ns, report_ns;
    void (*waits)(void *user, const char *line);
    void *user;
    int listening;               /* rank 0: the listening socket; else -1 */
    struct pollfd *polled; /* [size + STRANGERS]. Rank 0: `listening`; the connection of each other
                                    rank; connections whose rank has not come. Other ranks: [0] is
                                    the connection with rank 0 */
    launch_rank *ranks;          /* [size] */
    cpu_set_t cores;             /* rank 0: of all ranks together */
    int missing;                 /* rank 0: ranks that have not come */
    launch_answer got;           /* what rank 0 sends to all */
    int fd;                      /* of the shared memory; -1: none */
} gatherer;

/* ---- which run ---- */
static void name_run(gatherer *f, char *const *environment)
{
    const tutti_launch_place *p = f->place;
    const char *id = tutti_variable(environment, "TUTTI_RUN_ID"),
               *mark = tutti_launch_place_mark(p, environment);
    char text[sizeof p->run + sizeof p->meet + 200];
    int n;

    if (mark != NULL)
        f->launcher = tutti_launch_launcher(mark, &f->launcher_began);
    n = snprintf(text, sizeof text, "a %s %s %.40s %d %s %ld %llu", p->run, p->meet,
                 id != NULL ? id : "", p->size, f->memory ? "shm" : "tcp", (long)f->launcher,
                 f->launcher_began);
    snprintf(f->name, sizeof f->name, "%016llx", (unsigned long long)tutti_hash(text, (size_t)n));
    text[0] = 'b';
    snprintf(f->name + 16, sizeof f->name - 16, "%016llx",
             (unsigned long long)tutti_hash(text, (size_t)n));
}

/* Fails if the launcher of these ranks has ended. */
static tutti_status check_launcher(const gatherer *f, tutti_error *err)
{
    if (f->launcher != 0 && tutti_launch_began(f->launcher) != f->launcher_began)
        return tutti_fail(err, TUTTI_ERR_PEER, 0,
                          "%s (process %ld) has ended while worker %d waited for the others",
                          f->place->name, (long)f->launcher, f->place->rank);
    return TUTTI_OK;
}

static void pause_for(struct pollfd *polled, nfds_t n, int64_t ns)
{
    const struct timespec t = { ns / 1000000000, ns % 1000000000 };

    ppoll(polled, n, &t, NULL);
}

/* ---- rank 0 ---- */
/* "1, 3 to 5"; a person does not read more than some of them. */
static void list_missing(const gatherer *f, char *text, size_t bytes)
{
    size_t used = 0;
    int shown = 0, last;

    text[0] = '\0';
    for (int r = 1; r < f->place->size && used < bytes; r = last + 1) {
        last = r;
        if (f->polled[r].fd >= 0)
            continue;
        while (last + 1 < f->place->size && f->polled[last + 1].fd < 0)
            last++;
        if (shown++ == 12) {
            snprintf(text + used, bytes - used, " and others");
            return;
        }
        used += (size_t)snprintf(text + used, bytes - used, last > r ? "%s%d to %d" : "%s%d",
                                 shown > 1 ? ", " : "", r, last);
    }
}

static int first_missing(const gatherer *f)
{
    int r = 1;

    while (r < f->place->size - 1 && f->polled[r].fd >= 0)
        r++;
    return r;
}

static void report_missing(gatherer *f, int64_t now)
{
    char missing[200], line[300];

    if (f->waits == NULL || now < f->report_ns)
        return;
    f->report_ns = now + REPORT_AGAIN_NS;
    list_missing(f, missing, sizeof missing);
    snprintf(line, sizeof line, "waiting for ranks of this host that have not come: %s of %d",
             missing, f->place->size);
    f->waits(f->user, line);
}

/* Sends an answer, if the socket takes it at once; a rank that does not get it sees the connection
   end. */
static void send_answer(int to, const launch_answer *a, const launch_rank *ranks, int n, int fd)
{
    union { struct cmsghdr head; char bytes[CMSG_SPACE(sizeof(int))]; } control;
    struct iovec parts[] = { { (void *)(uintptr_t)a, sizeof *a },
                             { (void *)(uintptr_t)ranks, (size_t)n * sizeof *ranks } };
    struct msghdr message = { .msg_iov = parts, .msg_iovlen = TUTTI_LENGTH(parts) };

    if (fd >= 0) {
        memset(&control, 0, sizeof control);
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof control.bytes;
        control.head.cmsg_level = SOL_SOCKET;
        control.head.cmsg_type = SCM_RIGHTS;
        control.head.cmsg_len = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(&control.head), &fd, sizeof fd);
    }
    while (sendmsg(to, &message, MSG_NOSIGNAL) < 0 && errno == EINTR)
        continue;
}

static void turn_away(int fd, const char *why)
{
    launch_answer a = { LAUNCH_GATHER, .status = TUTTI_ERR_USAGE, .rank = -1 };

    snprintf(a.text, sizeof a.text, "%s", why);
    send_answer(fd, &a, NULL, 0, -1);
    close(fd);
}

static void accept_callers(gatherer *f)
{
    struct pollfd *const callers = f->polled + f->place->size;

    for (int i = 0; i < STRANGERS; i++) {
        pid_t pid;
        if (callers[i].fd >= 0)
            continue;
        callers[i].fd = accept4(f->listening, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (callers[i].fd < 0)
            return;
        if (!tutti_launch_peer(callers[i].fd, &pid)) {
            close(callers[i].fd);
            callers[i].fd = -1;
        }
    }
}

/* Reads which rank a caller is. */
static void receive_hello(gatherer *f, struct pollfd *caller)
{
    const int size = f->place->size, fd = caller->fd;
    launch_rank from = { 0 };
    launch_hello h;
    char why[sizeof ((tutti_error *)0)->text];
    const ssize_t n = recv(fd, &h, sizeof h, 0);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    caller->fd = -1;
    if (n <= 0) {
        close(fd);
        return;
    }
    if (!tutti_launch_hello_valid(&h, (size_t)n, size, why, sizeof why)) {
        turn_away(fd, why);
        return;
    }
    tutti_launch_peer(fd, &from.pid);
    from.began = tutti_launch_began(from.pid);
    if (f->polled[h.rank].fd >= 0)
        snprintf(why, sizeof why, "the place of worker %d of %d is taken already, by process %ld",
                 (int)h.rank, size, (long)f->ranks[h.rank].pid);
    else if (from.pid == 0 || from.began == 0)
        snprintf(why, sizeof why,
                 "worker %d and worker 0 do not see each other's processes, as in two containers; "
                 "give `--transport tcp`, TUTTI_MEET=HOST:PORT and TUTTI_RUN_KEY_FILE=FILE to all",
                 (int)h.rank);
    if (why[0] != '\0') {
        turn_away(fd, why);
        return;
    }
    f->polled[h.rank].fd = fd;
    f->ranks[h.rank] = from;
    CPU_OR(&f->cores, &f->cores, &h.cores);
    f->missing--;
}

/* Are there as many cores as threads of all ranks? Launchers bind ranks to cores, so the cores of
   all ranks are counted, not those of rank 0. */
static bool have_cores(const gatherer *f, char *const *environment)
{
    const char *text = tutti_variable(environment, "OMP_NUM_THREADS");
    const int threads =
        text != NULL && text[0] >= '1' && text[0] <= '9' ? (int)strtol(text, NULL, 10) : 1;
    const int cores = CPU_COUNT(&f->cores), quota = tutti_machine_quota();

    return (int64_t)f->place->size * threads <= (cores < quota ? cores : quota);
}

static tutti_status gather_all(gatherer *f, tutti_error *err)
{
    const int size = f->place->size;
    char missing[200];

    TUTTI_TRY(tutti_launch_private_listen(&f->at, f->name, &f->listening, err));
    f->polled[0].fd = f->listening;
    while (f->missing > 0) {
        const int64_t now = tutti_now_ns(f->g->rt);
        report_missing(f, now);
        if (now >= f->deadline_ns) {
            list_missing(f, missing, sizeof missing);
            return tutti_fail_rank(err, TUTTI_ERR_PEER, first_missing(f),
                                   "%d of %d workers had not come within %g s, on this host and of "
                                   "this user: %s; have they all been started?",
                                   f->missing, size, (double)f->wait_ns / 1e9, missing);
        }
        TUTTI_TRY(check_launcher(f, err));
        pause_for(f->polled, (nfds_t)size + STRANGERS, TICK_NS);
        for (int r = 1; r < size; r++) {
            char c;
            errno = 0;
            if (f->polled[r].fd >= 0 && f->polled[r].revents != 0 &&
                recv(f->polled[r].fd, &c, 1, 0) <= 0 && errno != EAGAIN && errno != EINTR)
                return tutti_fail_rank(err, TUTTI_ERR_PEER, r,
                                       "worker %d (process %ld) ended before all had met", r,
                                       (long)f->ranks[r].pid);
        }
        for (int i = size; i < size + STRANGERS; i++)
            if (f->polled[i].fd >= 0 && f->polled[i].revents != 0)
                receive_hello(f, &f->polled[i]);
        accept_callers(f);
    }
    return TUTTI_OK;
}

/* Makes what all ranks get. */
static tutti_status make_answer(gatherer *f, launch_answer *a, char *const *environment,
                                tutti_error *err)
{
    tutti_shm_region region;
    tutti_run_key key;
    uint8_t name[7];

    if (f->memory) {
        TUTTI_TRY(tutti_shm_region_open(&region, f->place->size, have_cores(f, environment), err));
        f->fd = fcntl(region.fd, F_DUPFD_CLOEXEC, 0);
        tutti_shm_region_close(&region);
        return f->fd >= 0
                   ? TUTTI_OK
                   : tutti_fail(err, TUTTI_ERR_IO, errno,
                                "handing out the shared memory of %d workers", f->place->size);
    }
    tutti_run_key_make(f->g->rt, &key);
    tutti_run_key_text(&key, a->key);
    tutti_run_key_wipe(&key);
    if (f->place->meet[0] != '\0')
        return TUTTI_OK;
    /* a local socket without a file, which rank 0's transport opens */
    tutti_entropy(f->g->rt, name, sizeof name);
    snprintf(a->meet, sizeof a->meet, "unix:%02x%02x%02x%02x%02x%02x%02x", name[0], name[1],
             name[2], name[3], name[4], name[5], name[6]);
    return TUTTI_OK;
}

static tutti_status be_rank_0(gatherer *f, char *const *environment, tutti_error *err)
{
    const int size = f->place->size;
    tutti_error own = { .rank = -1 };
    launch_answer *a = &f->got;
    tutti_status status;

    f->missing = size - 1;
    f->ranks[0] = (launch_rank){ getpid(), tutti_launch_began(getpid()) };
    if (sched_getaffinity(0, sizeof f->cores, &f->cores) != 0)
        CPU_ZERO(&f->cores);
    status = gather_all(f, &own);
    /* the socket is removed before any rank continues: a rank that opens a second world must not
       connect to this one */
    tutti_launch_private_leave(&f->at, f->name, &f->listening);
    f->polled[0].fd = -1;
    *a = (launch_answer){ LAUNCH_GATHER, .rank = -1 };
    if (status == TUTTI_OK)
        status = make_answer(f, a, environment, &own);
    a->status = (int32_t)status;
    if (status != TUTTI_OK) {
        a->rank = own.rank >= 0 ? own.rank : 0;
        snprintf(a->text, sizeof a->text, "%s", own.text);
        if (err != NULL)
            *err = own;
    }
    for (int r = 1; r < size; r++)
        if (f->polled[r].fd >= 0)
            send_answer(f->polled[r].fd, a, f->ranks, status == TUTTI_OK ? size : 0, f->fd);
    return status;
}

/* ---- the others ---- */
static tutti_status call(gatherer *f, tutti_error *err)
{
    bool reported = f->waits == NULL;
    pid_t pid;

    for (;;) {
        const int64_t now = tutti_now_ns(f->g->rt);
        const int cause = tutti_launch_private_connect(&f->at, f->name, &f->polled[0].fd);
        if (cause == 0)
            break;
        if (cause != ENOENT && cause != ECONNREFUSED && cause != EAGAIN && cause != EINTR)
            return tutti_fail(err, TUTTI_ERR_IO, cause,
                              "worker %d cannot call worker 0 at '%.200s/%s'", f->place->rank,
                              f->at.path, f->name);
        if (now >= f->deadline_ns)
            return tutti_fail(err, TUTTI_ERR_IO, 0,
                              "worker %d has not found worker 0 on this host within %g s (%s, at "
                              "'%.200s'); has it been started here, by the same user?",
                              f->place->rank, (double)f->wait_ns / 1e9, f->place->found,
                              f->at.path);
        if (!reported && now >= f->report_ns) {
            char line[160];
            snprintf(line, sizeof line, "worker %d waits for worker 0, which has not come",
                     f->place->rank);
            f->waits(f->user, line);
            reported = true;
        }
        TUTTI_TRY(check_launcher(f, err));
        pause_for(NULL, 0, CALL_AGAIN_NS);
    }
    if (!tutti_launch_peer(f->polled[0].fd, &pid))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "a process of another user answers at '%.200s/%s'; remove it", f->at.path,
                          f->name);
    return TUTTI_OK;
}

/* The descriptor that came with a message, or -1. */
static int descriptor_of(struct msghdr *message)
{
    const struct cmsghdr *c = CMSG_FIRSTHDR(message);
    int fd = -1;

    if (c != NULL && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS &&
        c->cmsg_len == CMSG_LEN(sizeof fd))
        memcpy(&fd, CMSG_DATA(c), sizeof fd);
    return fd;
}

static tutti_status receive_answer(gatherer *f, tutti_error *err)
{
    const size_t table = (size_t)f->place->size * sizeof *f->ranks;
    union { struct cmsghdr head; char bytes[CMSG_SPACE(sizeof(int))]; } control;
    struct iovec parts[] = { { &f->got, sizeof f->got }, { f->ranks, table } };
    struct msghdr message = { .msg_iov = parts,
                              .msg_iovlen = TUTTI_LENGTH(parts),
                              .msg_control = control.bytes,
                              .msg_controllen = sizeof control.bytes };
    /* rank 0 gives up before that time, unless it is stopped */
    const int64_t until = tutti_now_ns(f->g->rt) + f->wait_ns + REPORT_NS;
    ssize_t n;

    for (;;) {
        n = recvmsg(f->polled[0].fd, &message, MSG_CMSG_CLOEXEC);
        if (n >= 0 || (errno != EAGAIN && errno != EINTR))
            break;
        if (tutti_now_ns(f->g->rt) >= until)
            return tutti_fail_rank(err, TUTTI_ERR_IO, 0,
                                   "worker 0 has not answered worker %d within %g s",
                                   f->place->rank, (double)f->wait_ns / 1e9);
        TUTTI_TRY(check_launcher(f, err));
        pause_for(f->polled, 1, TICK_NS);
    }
    if (n <= 0)
        return tutti_fail_rank(err, TUTTI_ERR_PEER, 0, "worker 0 ended before all had met");
    f->fd = descriptor_of(&message);
    return tutti_launch_answer_check(&f->got, (size_t)n, f->place->size, f->memory && f->fd < 0,
                                     err);
}

static tutti_status be_another(gatherer *f, tutti_error *err)
{
    launch_hello h = { LAUNCH_GATHER, .rank = f->place->rank, .size = f->place->size };

    if (sched_getaffinity(0, sizeof h.cores, &h.cores) != 0)
        CPU_ZERO(&h.cores);
    TUTTI_TRY(call(f, err));
    if (send(f->polled[0].fd, &h, sizeof h, MSG_NOSIGNAL) < 0)
        return tutti_fail_rank(err, TUTTI_ERR_PEER, 0, "worker 0 ended before all had met");
    return receive_answer(f, err);
}

/* ---- all ---- */
/* Writes what the transport reads: the same as after Tutti's launcher. */
static tutti_status write_environment(gatherer *f, char *const *given, tutti_error *err)
{
    tutti_launch_gathering *g = f->g;
    size_t n = 0, kept = 0, added = 0;

    while (given[n] != NULL)
        n++;
    g->environment = tutti_alloc(n + ADDED + 1, sizeof *g->environment);
    if (g->environment == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "copying an environment of %zu variables",
                          n);
    for (size_t i = 0; i < n; i++)
        if (strncmp(given[i], TUTTI_SHM_VARIABLE_FD "=", sizeof TUTTI_SHM_VARIABLE_FD) != 0)
            g->environment[kept++] = given[i];
    if (f->memory)
        snprintf(g->added[added++], ADDED_BYTES, TUTTI_SHM_VARIABLE_FD "=%d", f->fd);
    else
        snprintf(g->added[added++], ADDED_BYTES, TUTTI_MEET_VARIABLE_KEY "=%s", f->got.key);
    if (f->got.meet[0] != '\0') {
        snprintf(g->added[added++], ADDED_BYTES, TUTTI_MEET_VARIABLE "=%s", f->got.meet);
        snprintf(g->added[added++], ADDED_BYTES, TUTTI_MEET_VARIABLE_AT_0 "=1");
        snprintf(g->added[added++], ADDED_BYTES, TUTTI_MEET_VARIABLE_ID "=%s", f->name);
    }
    for (size_t i = 0; i < added; i++)
        g->environment[kept++] = g->added[i];
    return TUTTI_OK;
}

static tutti_status gather_hellos(gatherer *f, char *const *environment, tutti_error *err)
{
    const int size = f->place->size, all = size + STRANGERS;

    if (size > TUTTI_SHM_RANKS)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "%d workers asked for; one host takes from 1 to %d", size,
                          TUTTI_SHM_RANKS);
    TUTTI_TRY(tutti_runtime_open_posix(&f->g->rt, err));
    f->polled = tutti_alloc((size_t)all, sizeof *f->polled);
    f->ranks = tutti_alloc((size_t)size, sizeof *f->ranks);
    for (int i = 0; f->polled != NULL && i < all; i++)
        f->polled[i] = (struct pollfd){ .fd = -1, .events = POLLIN };
    if (f->polled == NULL || f->ranks == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "gathering %d workers", size);
    f->deadline_ns = tutti_now_ns(f->g->rt) + f->wait_ns;
    f->report_ns = tutti_now_ns(f->g->rt) + REPORT_NS;
    name_run(f, environment);
    TUTTI_TRY(tutti_launch_private_directory(environment, &f->at, err));
    TUTTI_TRY(f->place->rank == 0 ? be_rank_0(f, environment, err) : be_another(f, err));
    if (f->memory)
        TUTTI_TRY(tutti_launch_beside_open(&f->g->beside, f->g->rt, f->fd, f->place->rank, size,
                                           f->ranks, err));
    return write_environment(f, environment, err);
}

tutti_status tutti_launch_gather(tutti_launch_gathering **out, const tutti_launch_place *place,
                                 const char *transport, char *const *environment, int64_t wait_ns,
                                 void (*waits)(void *user, const char *line), void *user,
                                 tutti_error *err)
{
    gatherer f = { .place = place,
                   .memory = strcmp(transport, "shm") == 0,
                   .at = { .directory = -1 },
                   .wait_ns = wait_ns > 0 ? wait_ns : WAIT_NS,
                   .waits = waits,
                   .user = user,
                   .listening = -1,
                   .fd = -1 };
    tutti_status status;

    *out = NULL;
    f.g = tutti_alloc(1, sizeof *f.g);
    if (f.g == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "gathering %d workers", place->size);
    status = gather_hellos(&f, environment, err);
    for (int i = 1 - (place->rank != 0); f.polled != NULL && i < place->size + STRANGERS; i++)
        if (f.polled[i].fd >= 0)
            close(f.polled[i].fd);
    tutti_launch_private_leave(&f.at, f.name, &f.listening);
    tutti_launch_private_close(&f.at);
    tutti_free(f.polled);
    tutti_free(f.ranks);
    explicit_bzero(f.got.key, sizeof f.got.key);
    if (status == TUTTI_OK)
        *out = f.g;
    else {
        if (f.fd >= 0)
            close(f.fd);
        tutti_launch_gather_close(f.g);
    }
    return status;
}

char *const *tutti_launch_gathered(const tutti_launch_gathering *g)
{
    return g->environment;
}

void tutti_launch_gather_close(tutti_launch_gathering *g)
{
    if (g == NULL)
        return;
    tutti_launch_beside_close(g->beside);
    explicit_bzero(g->added, sizeof g->added);
    tutti_free(g->environment);
    tutti_runtime_close(g->rt);
    tutti_free(g);
}
