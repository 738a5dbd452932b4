/* socket.c: sockets and addresses. Every socket is non-blocking and closed on exec. Buffer sizes
   are left to the kernel, which tunes them to the connection. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/tcp.h>
#include <linux/sockios.h>
#include <math.h>
#include <net/if.h>
#include <netdb.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include "tcp_internal.h"
#include "runtime/names.h"

static const struct sockaddr_in *as4(const tcp_address *a)
{
    return (const struct sockaddr_in *)(const void *)&a->at;
}
static const struct sockaddr_in6 *as6(const tcp_address *a)
{
    return (const struct sockaddr_in6 *)(const void *)&a->at;
}
static const struct sockaddr_un *as_local(const tcp_address *a)
{
    return (const struct sockaddr_un *)(const void *)&a->at;
}

void tutti_tcp_address_text(const tcp_address *a, char *text, size_t bytes)
{
    char host[INET6_ADDRSTRLEN] = "?", scope[IF_NAMESIZE + 1] = "";

    if (a->at.ss_family == AF_UNIX)
        snprintf(text, bytes, "unix:%.*s",
                 (int)(a->bytes - offsetof(struct sockaddr_un, sun_path) - 1),
                 as_local(a)->sun_path + 1);
    else if (a->at.ss_family == AF_INET) {
        inet_ntop(AF_INET, &as4(a)->sin_addr, host, sizeof host);
        snprintf(text, bytes, "%s:%d", host, ntohs(as4(a)->sin_port));
    } else if (a->at.ss_family == AF_INET6) {
        inet_ntop(AF_INET6, &as6(a)->sin6_addr, host, sizeof host);
        if (as6(a)->sin6_scope_id != 0) {
            scope[0] = '%';
            if (if_indextoname(as6(a)->sin6_scope_id, scope + 1) == NULL)
                scope[0] = '\0';
        }
        snprintf(text, bytes, "[%s%s]:%d", host, scope, ntohs(as6(a)->sin6_port));
    } else
        snprintf(text, bytes, "?");
}

int tutti_tcp_address_port(const tcp_address *a)
{
    return a->at.ss_family == AF_INET    ? ntohs(as4(a)->sin_port)
           : a->at.ss_family == AF_INET6 ? ntohs(as6(a)->sin6_port)
                                         : 0;
}

void tutti_tcp_address_local(tcp_address *a, const char *name)
{
    struct sockaddr_un *un = (struct sockaddr_un *)(void *)&a->at;

    memset(a, 0, sizeof *a);
    un->sun_family = AF_UNIX;
    /* the leading NUL: a name that is no file */
    snprintf(un->sun_path + 1, sizeof un->sun_path - 1, "%s", name);
    a->bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(un->sun_path + 1));
}

/* Returns NULL, or why there is no such address. */
static const char *look_up(const char *host, int port, int flags, tcp_address *out)
{
    const struct addrinfo hints = { .ai_socktype = SOCK_STREAM,
                                    .ai_flags = AI_NUMERICSERV | flags };
    struct addrinfo *found;
    const char *failed;
    char service[16];

    memset(out, 0, sizeof *out);
    snprintf(service, sizeof service, "%d", port);
    failed = tutti_lookup(host, service, &hints, &found);
    if (failed != NULL)
        return failed;
    memcpy(&out->at, found->ai_addr, found->ai_addrlen);
    out->bytes = found->ai_addrlen;
    freeaddrinfo(found);
    return NULL;
}

tutti_status tutti_tcp_resolve_host(const char *host, int port, bool to_bind, tcp_address *out,
                                    tutti_error *err)
{
    const char *failed = look_up(host, port, to_bind ? AI_PASSIVE : 0, out);

    return failed == NULL
               ? TUTTI_OK
               : tutti_fail(err, TUTTI_ERR_IO, 0,
                            "no address is known for the host '%.200s': %s; give one in numbers, "
                            "or mend the name service", host, failed);
}

/* Returns whether a place is "unix:NAME". */
static bool is_local(const char *text)
{
    return strncmp(text, "unix:", 5) == 0 && text[5] != '\0' && strlen(text + 5) < 16;
}

bool tutti_tcp_split(const char *text, char host[256], int *port)
{
    const char *colon = strrchr(text, ':'), *from = text;
    size_t length;
    char *end;
    long number;

    length = colon != NULL ? (size_t)(colon - text) : 0;
    if (length >= 2 && text[0] == '[' && text[length - 1] == ']') {
        from++;
        length -= 2;
    } else if (length > 0 && memchr(text, ':', length) != NULL)
        length = 0; /* an IPv6 address without brackets */
    number = colon != NULL ? strtol(colon + 1, &end, 10) : 0;
    if (length == 0 || length >= 256 || number < 1 || number > 65535 || *end != '\0')
        return false;
    memcpy(host, from, length);
    host[length] = '\0';
    *port = (int)number;
    return true;
}

bool tutti_tcp_numbers(const char *text, tcp_address *out)
{
    char host[256];
    int port;

    memset(out, 0, sizeof *out);
    return tutti_tcp_split(text, host, &port) && look_up(host, port, AI_NUMERICHOST, out) == NULL;
}

tutti_status tutti_tcp_resolve(const char *text, tcp_address *out, tutti_error *err)
{
    char host[256];
    int port;

    memset(out, 0, sizeof *out);
    if (is_local(text)) {
        tutti_tcp_address_local(out, text + 5);
        return TUTTI_OK;
    }
    if (!tutti_tcp_split(text, host, &port))
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            TUTTI_MEET_VARIABLE
            "='%.200s' is no place to meet: write host:port, [IPv6 address]:port or unix:NAME",
            text);
    return tutti_tcp_resolve_host(host, port, false, out, err);
}

static int open_socket(int family, int *fd)
{
    *fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    return *fd < 0 ? errno : 0;
}

void tutti_tcp_hang_up(int *fd)
{
    const int saved = errno;

    if (*fd >= 0)
        close(*fd);
    *fd = -1;
    errno = saved;
}

static int bind_and_listen(int fd, tcp_address *a, socklen_t bytes)
{
    if (bind(fd, (const struct sockaddr *)&a->at, bytes) != 0 || listen(fd, SOMAXCONN) != 0)
        return errno;
    a->bytes = sizeof a->at;
    return getsockname(fd, (struct sockaddr *)&a->at, &a->bytes) == 0 ? 0 : errno;
}

int tutti_tcp_listen(tcp_address *a, int *fd)
{
    const int on = 1;
    int cause = open_socket(a->at.ss_family, fd);

    if (cause != 0)
        return cause;
    /* a port that was asked for may still have connections of an earlier run in TIME_WAIT */
    if (tutti_tcp_address_port(a) != 0)
        setsockopt(*fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    cause = bind_and_listen(*fd, a, a->bytes);
    if (cause != 0)
        tutti_tcp_hang_up(fd);
    return cause;
}

int tutti_tcp_listen_local(char name[16], int *fd)
{
    tcp_address a = { .at = { .ss_family = AF_UNIX }, .bytes = sizeof(sa_family_t) };
    int cause = open_socket(AF_UNIX, fd);

    if (name[0] != '\0')
        /* else the family only: the kernel finds a free abstract name */
        tutti_tcp_address_local(&a, name);
    name[0] = '\0';
    if (cause != 0)
        return cause;
    cause = bind_and_listen(*fd, &a, a.bytes);
    if (cause == 0)
        snprintf(name, 16, "%.*s", (int)(a.bytes - offsetof(struct sockaddr_un, sun_path) - 1),
                 as_local(&a)->sun_path + 1);
    else
        tutti_tcp_hang_up(fd);
    return cause;
}

int tutti_tcp_connect(const tcp_address *a, int *fd)
{
    int cause = open_socket(a->at.ss_family, fd);

    if (cause != 0)
        return cause;
    if (connect(*fd, (const struct sockaddr *)&a->at, a->bytes) != 0 && errno != EINPROGRESS) {
        cause = errno;
        tutti_tcp_hang_up(fd);
    }
    return cause;
}

/* The kernel counts from the first retransmission of a loss episode, also where bytes are
   acknowledged meanwhile: a shorter limit ends healthy connections over a full link. */
void tutti_tcp_tune(int fd, bool local, int64_t peer_timeout_ns)
{
    const int64_t longest_ms = TCP_SILENCE_FACTOR * (peer_timeout_ns / TCP_MS);
    const int milliseconds = longest_ms < INT_MAX ? (int)longest_ms : INT_MAX;
    const int on = 1;

    if (local)
        return;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &milliseconds, sizeof milliseconds);
}

/* The delay is what is queued divided by the connection's rate, plus the round-trip time, which
   includes the queues of others on the same link. A connection with few bytes queued shows
   nothing of the link's rate. */
bool tutti_tcp_backlog(int fd, tcp_backlog *out)
{
    enum { CLOSED = 7 }; /* TCP_CLOSE of netinet/tcp.h, which linux/tcp.h does not go with */
    struct tcp_info info = { 0 };
    socklen_t bytes = sizeof info;
    int queued = 0;

    *out = (tcp_backlog){ .queued = 0 };
    if (fd < 0 || getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0 ||
        info.tcpi_state == CLOSED)
        return false;
    if (ioctl(fd, SIOCOUTQ, &queued) == 0 && queued > 0)
        out->queued = (uint64_t)queued;
    out->acked = info.tcpi_bytes_acked;
    out->late_ns = (int64_t)info.tcpi_rtt * 1000;
    if (out->queued >= TCP_BACKLOG_BYTES && info.tcpi_delivery_rate > 0)
        out->late_ns += (int64_t)((double)out->queued / (double)info.tcpi_delivery_rate * 1e9);
    return true;
}

/* The factor 31/32 a tick halves the maximum in ten seconds: a link that was full a moment ago will
   be full again in the next step. */
void tutti_tcp_update_late(int64_t *late_ns, int64_t seen_ns, int64_t most_ns)
{
    *late_ns -= *late_ns / 32;
    if (*late_ns < seen_ns)
        *late_ns = seen_ns < most_ns ? seen_ns : most_ns;
}

double tutti_tcp_rate(int fd)
{
    struct tcp_info info = { 0 };
    socklen_t bytes = sizeof info;

    return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) == 0
               ? (double)info.tcpi_delivery_rate
               : HUGE_VAL;
}

/* Local sockets do not have this option; the size of their buffer limits them. */
void tutti_tcp_unsent(int fd, size_t bytes)
{
    const int most = (int)bytes;

    setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &most, sizeof most);
}

bool tutti_tcp_same_user(int fd)
{
    struct ucred peer;
    socklen_t bytes = sizeof peer;

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 &&
           (peer.uid == geteuid() || peer.uid == 0);
}

void tutti_tcp_host_name(char name[64])
{
    memset(name, 0, 64);
    if (gethostname(name, 63) != 0 || name[0] == '\0')
        strcpy(name, "unnamed");
    for (char *c = name; *c != '\0'; c++)
        *c = *c <= ' ' || *c > '~' ? '?' : *c;
}
