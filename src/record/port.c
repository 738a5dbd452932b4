/* port.c: the latest figures of a run at http://ADDRESS:PORT/metrics, for Prometheus.

   One thread answers. It waits for its sockets only, and never for the run: it copies the text that
   is shown under a lock, and the run puts a new one in its place. Any program may connect.
   A request has 4 KiB and 2 s, a reply 10 s, and there are 16 connections; others wait in the
   kernel's queue. So a client that is slow, silent or sends anything else delays other clients by a
   few seconds, and the run not at all. What is sent is not secret, and nothing can be changed.

   The subset of HTTP (RFC 9112): GET and HEAD of /metrics, HTTP/1.0 and 1.1, one request a
   connection. A socket is the medium of this file, so it calls poll and send itself. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "record_internal.h"
#include "runtime/clock.h"

enum { CONNECTIONS = 16, BACKLOG = 64 };
static const int64_t ms = 1000000, read_ns = 2000000000, write_ns = 10000000000,
                     drain_ns = 1000000000, rest_ns = 1000000000;

typedef enum { READS, WRITES, DRAINS } stage;

typedef struct connection {
    int fd;                      /* -1: free */
    stage stage;
    int64_t until_ns;            /* is closed then, whatever it is doing */
    size_t have, sent;           /* bytes of request and of reply */
    tutti_record_bytes reply;
    char request[TUTTI_RECORD_REQUEST];
} connection;

struct tutti_record_port {
    tutti_runtime *rt;
    tutti_thread *thread;
    tutti_monitor *lock;
    int listener, stop;          /* stop: an eventfd; readable: the thread ends */
    tutti_record_bytes text;     /* under lock */
    int64_t rests_until_ns;      /* thread only: the next accept; there were no descriptors */
    connection of[CONNECTIONS];  /* thread only, but in open and close */
};

/* ---- places ---- */

typedef struct address {
    struct sockaddr_storage at;
    socklen_t bytes;
} address;

/* Reads the address of a host in numbers. */
static bool read_host(const char *host, in_port_t port, address *a)
{
    struct sockaddr_in *four = (struct sockaddr_in *)(void *)&a->at;
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)(void *)&a->at;
    const size_t n = strlen(host);
    char inner[64];

    *a = (address){ .bytes = sizeof *four };
    if (n > 2 && n < sizeof inner && host[0] == '[' && host[n - 1] == ']') {
        snprintf(inner, sizeof inner, "%.*s", (int)(n - 2), host + 1);
        six->sin6_family = AF_INET6;
        six->sin6_port = port;
        a->bytes = sizeof *six;
        return inet_pton(AF_INET6, inner, &six->sin6_addr) == 1;
    }
    four->sin_family = AF_INET;
    four->sin_port = port;
    return inet_pton(AF_INET, strcmp(host, "localhost") == 0 ? "127.0.0.1" : host,
                     &four->sin_addr) == 1;
}

/* Reads PORT or ADDRESS:PORT. */
static bool read_place(const char *where, address *a)
{
    const char *colon = strrchr(where, ':'), *number = colon != NULL ? colon + 1 : where;
    const size_t digits = strspn(number, "0123456789"),
                 length = colon != NULL ? (size_t)(colon - where) : 0;
    char host[64] = "127.0.0.1";
    long port;

    if (digits == 0 || digits > 5 || number[digits] != 0 || length >= sizeof host)
        return false;
    if (colon != NULL)
        snprintf(host, sizeof host, "%.*s", (int)length, where);
    port = strtol(number, NULL, 10);
    return port >= 1 && port <= 65535 && read_host(host, htons((uint16_t)port), a);
}

static tutti_status find_place(const char *where, address *a, tutti_error *err)
{
    if (read_place(where, a))
        return TUTTI_OK;
    return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                      "metrics-port is '%.80s'; give a port from 1 to 65535, which this host alone "
                      "can reach, or one of its addresses in numbers with it: 0.0.0.0:9400, "
                      "[::1]:9400",
                      where);
}

/* Says why the place cannot be had. */
static tutti_status refused(const char *where, int cause, tutti_error *err)
{
    const char *mend = cause == EADDRINUSE      ? "another program, or another run of this one, has "
                                                  "it; choose another port"
                       : cause == EADDRNOTAVAIL ? "it is no address of this host; give one that it "
                                                  "has, or 0.0.0.0 for all of them"
                       : cause == EACCES ? "ports below 1024 are not for users; choose a higher one"
                                         : "choose another one";

    return tutti_fail(err, TUTTI_ERR_USAGE, cause, "metrics-port %.80s cannot be had: %s", where,
                      mend);
}

/* Sets *fd to a socket that listens. */
static tutti_status listen_at(const char *where, int *fd, tutti_error *err)
{
    const int on = 1;
    address a;

    TUTTI_TRY(find_place(where, &a, err));
    *fd = socket(a.at.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (*fd < 0)
        return refused(where, errno, err);
    /* connections of an earlier run may be in TIME_WAIT; another listener is still found */
    setsockopt(*fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(*fd, (const struct sockaddr *)&a.at, a.bytes) != 0 || listen(*fd, BACKLOG) != 0) {
        const int cause = errno;
        close(*fd);
        *fd = -1;
        return refused(where, cause, err);
    }
    return TUTTI_OK;
}

tutti_status tutti_record_port_check(const char *where, bool binds, tutti_error *err)
{
    address a;
    int fd;

    if (where == NULL || where[0] == 0)
        return TUTTI_OK;
    if (!binds)
        return find_place(where, &a, err);
    TUTTI_TRY(listen_at(where, &fd, err));
    close(fd);
    return TUTTI_OK;
}

/* ---- requests ---- */

/* A line of a request has no bytes but these, and '\r' at its end. */
static bool is_plain(const char *line, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if ((line[i] < ' ' || line[i] > '~') && (line[i] != '\r' || i + 1 < n))
            return false;
    return true;
}

/* Is the end of the headers there: an empty line? */
static bool is_whole(const char *text, size_t n)
{
    return memmem(text, n, "\n\r\n", 3) != NULL || memmem(text, n, "\n\n", 2) != NULL;
}

static bool equals(const char *at, size_t n, const char *text)
{
    return n == strlen(text) && memcmp(at, text, n) == 0;
}

/* Is it /metrics, also behind http://HOST, with any query? */
static bool is_metrics(const char *target, size_t n)
{
    static const char scheme[] = "http://";
    const char *query = memchr(target, '?', n);

    if (query != NULL)
        n = (size_t)(query - target);
    if (n >= sizeof scheme - 1 && memcmp(target, scheme, sizeof scheme - 1) == 0) {
        const char *host = target + sizeof scheme - 1,
                   *path = memchr(host, '/', n - (sizeof scheme - 1));
        if (path == NULL)
            return false;
        n -= (size_t)(path - target);
        target = path;
    }
    return equals(target, n, "/metrics");
}

/* Returns the code for METHOD TARGET VERSION. */
static int read_line(const char *line, size_t n, bool *head)
{
    const char *target = memchr(line, ' ', n), *version, *end = line + n;
    size_t method;

    if (target == NULL || target == line)
        return 400;
    method = (size_t)(target++ - line);
    version = memchr(target, ' ', (size_t)(end - target));
    if (version == NULL || version == target)
        return 400;
    version++;
    if (end - version != 8 || memcmp(version, "HTTP/", 5) != 0)
        return 400;
    if (!equals(version, 8, "HTTP/1.0") && !equals(version, 8, "HTTP/1.1"))
        return 505;
    *head = equals(line, method, "HEAD");
    if (!*head && !equals(line, method, "GET"))
        return 405;
    return is_metrics(target, (size_t)(version - 1 - target)) ? 200 : 404;
}

int tutti_record_request(const char *text, size_t n, bool *head)
{
    const char *end = n > 0 ? memchr(text, '\n', n) : NULL;
    size_t line = end != NULL ? (size_t)(end - text) : n;
    int code;

    *head = false;
    if (!is_plain(text, line))
        return 400;
    if (end == NULL)
        return n < TUTTI_RECORD_REQUEST ? 0 : 431;
    line -= line > 0 && text[line - 1] == '\r';
    code = read_line(text, line, head);
    if (code != 200 || is_whole(text, n))
        return code;
    return n < TUTTI_RECORD_REQUEST ? 0 : 431;
}

/* ---- replies ---- */

static const struct {
    int code;
    const char *reason, *body;   /* body NULL: the text */
} replies[] = {
    { 200, "OK", NULL },
    { 404, "Not Found", "the figures are at /metrics\n" },
    { 405, "Method Not Allowed", "figures can be read (GET), and nothing else\n" },
    { 431, "Request Header Fields Too Large", "a request has at most 4 KiB\n" },
    { 505, "HTTP Version Not Supported", "the version is HTTP/1.1\n" },
    { 400, "Bad Request", "this is no request of HTTP\n" }, /* and what is not in this table */
};

static void put_reply(tutti_record_port *p, connection *c, int code, bool head)
{
    const char *body;
    char begin[320];
    size_t k = 0, bytes;

    while (k + 1 < TUTTI_LENGTH(replies) && replies[k].code != code)
        k++;
    body = replies[k].body;
    tutti_lock(p->lock);
    bytes = body != NULL ? strlen(body) : p->text.n;
    snprintf(begin, sizeof begin,
             "HTTP/1.1 %d %s\r\n"
             "Content-Type: text/plain; %scharset=utf-8\r\n"
             "Content-Length: %zu\r\n"
             "%s"
             "Connection: close\r\n\r\n",
             replies[k].code, replies[k].reason, body == NULL ? "version=0.0.4; " : "", bytes,
             code == 405 ? "Allow: GET, HEAD\r\n" : "");
    tutti_record_add(&c->reply, begin, strlen(begin));
    if (!head)
        tutti_record_add(&c->reply, body != NULL ? body : (const char *)p->text.at, bytes);
    tutti_unlock(p->lock);
}

/* ---- connections: thread only ---- */

/* A forked process may still have it open: it is over there, too. */
static void close_socket(int fd)
{
    if (fd < 0)
        return;
    shutdown(fd, SHUT_RDWR);
    close(fd);
}

static void hang_up(connection *c)
{
    close_socket(c->fd);
    tutti_free(c->reply.at);
    c->reply = (tutti_record_bytes){ 0 };
    c->fd = -1;
}

/* Has a call failed for good? */
static bool is_over(ssize_t n)
{
    return n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR;
}

static void write_on(tutti_record_port *p, connection *c)
{
    const ssize_t n =
        send(c->fd, c->reply.at + c->sent, c->reply.n - c->sent, MSG_NOSIGNAL | MSG_DONTWAIT);

    if (is_over(n)) {
        hang_up(c);
        return;
    }
    c->sent += n > 0 ? (size_t)n : 0;
    if (c->sent < c->reply.n)
        return;
    /* to close with bytes unread would reset the connection, and the reply might be lost */
    shutdown(c->fd, SHUT_WR);
    c->stage = DRAINS;
    c->until_ns = tutti_now_ns(p->rt) + drain_ns;
}

static void read_on(tutti_record_port *p, connection *c)
{
    const ssize_t n =
        recv(c->fd, c->request + c->have, sizeof c->request - c->have, MSG_DONTWAIT);
    bool head;
    int code;

    if (n == 0 || is_over(n)) {
        hang_up(c); /* before the request was whole */
        return;
    }
    c->have += n > 0 ? (size_t)n : 0;
    code = tutti_record_request(c->request, c->have, &head);
    if (code == 0)
        return;
    put_reply(p, c, code, head);
    if (c->reply.failed) {
        hang_up(c);
        return;
    }
    c->stage = WRITES;
    c->until_ns = tutti_now_ns(p->rt) + write_ns;
    write_on(p, c);
}

static void drain(connection *c)
{
    char text[1024];
    const ssize_t n = recv(c->fd, text, sizeof text, MSG_DONTWAIT);

    if (n == 0 || is_over(n))
        hang_up(c);
}

static void go_on(tutti_record_port *p, connection *c)
{
    switch (c->stage) {
    case READS: read_on(p, c); break;
    case WRITES: write_on(p, c); break;
    default: drain(c);
    }
}

static connection *free_one(tutti_record_port *p)
{
    for (int i = 0; i < CONNECTIONS; i++)
        if (p->of[i].fd < 0)
            return &p->of[i];
    return NULL;
}

static void take_one(tutti_record_port *p)
{
    connection *c = free_one(p);
    const int64_t now = tutti_now_ns(p->rt);
    int fd;

    if (c == NULL)
        return;
    fd = accept4(p->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
        if (is_over(-1) && errno != ECONNABORTED) /* no descriptors: poll would return at once */
            p->rests_until_ns = now + rest_ns;
        return;
    }
    c->fd = fd;
    c->stage = READS;
    c->have = c->sent = 0;
    c->until_ns = now + read_ns;
}

/* Closes what has had its time. Sets what is waited for, and returns for how many milliseconds; -1:
   for ever. */
static int prepare_wait(tutti_record_port *p, struct pollfd fds[CONNECTIONS + 2])
{
    const int64_t now = tutti_now_ns(p->rt);
    int64_t until = TUTTI_FOREVER;
    bool rests;

    for (int i = 0; i < CONNECTIONS; i++) {
        connection *c = &p->of[i];
        if (c->fd >= 0 && now >= c->until_ns)
            hang_up(c);
        if (c->fd >= 0 && c->until_ns < until)
            until = c->until_ns;
        fds[i] = (struct pollfd){ .fd = c->fd, .events = c->stage == WRITES ? POLLOUT : POLLIN };
    }
    rests = now < p->rests_until_ns;
    if (rests && p->rests_until_ns < until)
        until = p->rests_until_ns;
    fds[CONNECTIONS] = (struct pollfd){ .fd = rests || free_one(p) == NULL ? -1 : p->listener,
                                        .events = POLLIN };
    fds[CONNECTIONS + 1] = (struct pollfd){ .fd = p->stop, .events = POLLIN };
    return until == TUTTI_FOREVER ? -1 : (int)((until - now) / ms) + 1;
}

static tutti_status serve(void *arg, tutti_error *err)
{
    tutti_record_port *p = arg;
    struct pollfd fds[CONNECTIONS + 2];

    for (;;) {
        const int wait = prepare_wait(p, fds);
        if (poll(fds, CONNECTIONS + 2, wait) < 0) {
            if (errno == EINTR)
                continue;
            return tutti_fail(err, TUTTI_ERR_IO, errno, "waiting for requests of figures");
        }
        if (fds[CONNECTIONS + 1].revents != 0)
            return TUTTI_OK;
        for (int i = 0; i < CONNECTIONS; i++)
            if (fds[i].revents != 0)
                go_on(p, &p->of[i]);
        if (fds[CONNECTIONS].revents != 0)
            take_one(p);
    }
}

/* ---- beginning and end ---- */

/* Nothing is open in it yet. */
static tutti_record_port *blank(tutti_runtime *rt)
{
    tutti_record_port *p = tutti_alloc(1, sizeof *p);

    if (p == NULL)
        return NULL;
    p->rt = rt;
    p->listener = p->stop = -1;
    for (int i = 0; i < CONNECTIONS; i++)
        p->of[i].fd = -1;
    return p;
}

static tutti_status open_all(tutti_record_port *p, const char *where, tutti_error *err)
{
    TUTTI_TRY(listen_at(where, &p->listener, err));
    p->stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (p->stop < 0)
        return tutti_fail(err, TUTTI_ERR_IO, errno, "opening what ends the thread of metrics-port");
    TUTTI_TRY(tutti_monitor_open(&p->lock, p->rt, err));
    return tutti_thread_open(&p->thread, p->rt, "tutti metrics", serve, p, err);
}

tutti_status tutti_record_port_open(tutti_record_port **out, tutti_runtime *rt, const char *where,
                                    tutti_error *err)
{
    tutti_record_port *p;
    tutti_status status;

    *out = NULL;
    if (tutti_clock_is_common(rt))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "metrics-port is '%.80s', but the run is simulated, and its time is "
                          "virtual; use log-to",
                          where);
    p = blank(rt);
    if (p == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for metrics-port %.80s", where);
    status = open_all(p, where, err);
    if (status == TUTTI_OK)
        *out = p;
    else
        tutti_record_port_close(p);
    return status;
}

tutti_status tutti_record_port_show(tutti_record_port *p, const void *text, size_t bytes,
                                    tutti_error *err)
{
    tutti_record_bytes now = { 0 }, before;

    tutti_record_add(&now, text, bytes);
    if (now.failed)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for %zu bytes of figures", bytes);
    tutti_lock(p->lock);
    before = p->text;
    p->text = now;
    tutti_unlock(p->lock);
    tutti_free(before.at);
    return TUTTI_OK;
}

void tutti_record_port_close(tutti_record_port *p)
{
    static const uint64_t one = 1;

    if (p == NULL)
        return;
    if (p->thread != NULL) {
        while (write(p->stop, &one, sizeof one) < 0 && errno == EINTR)
            ;
        tutti_thread_join(p->thread, NULL);
    }
    for (int i = 0; i < CONNECTIONS; i++)
        hang_up(&p->of[i]);
    close_socket(p->listener);
    if (p->stop >= 0)
        close(p->stop);
    if (p->lock != NULL)
        tutti_monitor_close(p->lock);
    tutti_free(p->text.at);
    tutti_free(p);
}
