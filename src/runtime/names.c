/* names.c: looks up host names with a time limit (names.h). getaddrinfo has no limit: with servers
   that do not answer it takes as long as /etc/resolv.conf says (30 s and more), and it cannot be
   interrupted. So it runs on a detached thread, and the caller stops waiting after the limit. The
   one that finishes last, caller or thread, frees what they share; a process may end while the
   thread still waits. getaddrinfo_a works in the same way inside, but a request that cannot be
   cancelled keeps using the caller's memory. Addresses in numbers are read at once, without a
   thread. */
#include "names.h"
#include "runtime/names.h"
#include "base/errors.h"
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <strings.h>
#include <time.h>

_Static_assert(TUTTI_LOOKUP_NS == INT64_C(5000000000), "a sentence below states this time");

typedef struct lookup {
    pthread_mutex_t lock;
    pthread_cond_t over;
    tutti_resolver *resolver;
    struct addrinfo hints, *list;  /* list and below: under the lock */
    int code, cause;               /* getaddrinfo's, and errno where that is EAI_SYSTEM */
    bool done;
    int users;                     /* the thread, and the caller that waits */
    char *service, host[];         /* service: behind the host */
} lookup;

static void leave(lookup *l)
{
    const bool last = --l->users == 0;

    pthread_mutex_unlock(&l->lock);
    if (!last)
        return;
    if (l->list != NULL)
        freeaddrinfo(l->list);
    pthread_cond_destroy(&l->over);
    pthread_mutex_destroy(&l->lock);
    tutti_free(l);
}

static void *resolve(void *arg)
{
    lookup *l = arg;
    struct addrinfo *list = NULL;
    const int code = l->resolver(l->host, l->service, &l->hints, &list), cause = errno;

    pthread_mutex_lock(&l->lock);
    l->list = code == 0 ? list : NULL;
    l->code = code;
    l->cause = cause;
    l->done = true;
    pthread_cond_signal(&l->over);
    leave(l);
    return NULL;
}

/* 0, or an errno: then nothing runs and *l is still the caller's alone. Signals
   are for the threads of the program. */
static int start_lookup(lookup *l)
{
    pthread_attr_t detached;
    sigset_t all, before;
    pthread_t thread;
    int cause = pthread_attr_init(&detached);

    if (cause != 0)
        return cause;
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    l->users = 2;
    cause = pthread_create(&thread, &detached, resolve, l);
    if (cause != 0)
        l->users = 1;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&detached);
    return cause;
}

static lookup *make_lookup(tutti_resolver *resolver, const char *host, const char *service,
                           const struct addrinfo *hints)
{
    const size_t bytes = strlen(host) + 1, more = strlen(service) + 1;
    lookup *l = tutti_alloc(1, sizeof *l + bytes + more);
    pthread_condattr_t monotonic;

    if (l == NULL)
        return NULL;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->over, &monotonic);
    pthread_condattr_destroy(&monotonic);
    l->resolver = resolver;
    l->hints = *hints;
    memcpy(l->host, host, bytes);
    l->service = l->host + bytes;
    memcpy(l->service, service, more);
    return l;
}

static const char *why(int code, int cause)
{
    return code == EAI_SYSTEM ? tutti_errno_text(cause) : gai_strerror(code);
}

const char *tutti_lookup_by(tutti_resolver *resolver, const char *host, const char *service,
                            const struct addrinfo *hints, int64_t limit_ns, struct addrinfo **list)
{
    const char *failed = NULL;
    struct timespec until;
    int64_t at;
    int cause;
    lookup *l;

    *list = NULL;
    l = make_lookup(resolver, host, service, hints);
    if (l == NULL)
        return why(EAI_MEMORY, 0);
    clock_gettime(CLOCK_MONOTONIC, &until);
    at = (int64_t)until.tv_sec * 1000000000 + until.tv_nsec + limit_ns;
    until = (struct timespec){ .tv_sec = at / 1000000000, .tv_nsec = at % 1000000000 };
    cause = start_lookup(l);
    pthread_mutex_lock(&l->lock);
    if (cause != 0) {
        l->users = 1;
        failed = tutti_errno_text(cause);
    }
    while (failed == NULL && !l->done &&
           pthread_cond_timedwait(&l->over, &l->lock, &until) != ETIMEDOUT)
        ;
    if (failed == NULL && !l->done)
        failed = "the name service gives no answer within 5 s";
    if (failed == NULL && l->code != 0)
        failed = why(l->code, l->cause);
    if (failed == NULL) {
        *list = l->list;
        l->list = NULL;
    }
    leave(l);
    return failed;
}

/* RFC 6761, 6.3: `localhost` is the loopback address. A minimal system has no /etc/hosts with
   that entry, and there a name server would be asked. */
static const char *without_names(const char *host, const struct addrinfo *hints)
{
    if (host == NULL || strcasecmp(host, "localhost") != 0)
        return host;
    return hints->ai_family == AF_INET6 ? "::1" : "127.0.0.1";
}

const char *tutti_lookup(const char *host, const char *service, const struct addrinfo *hints,
                         struct addrinfo **list)
{
    struct addrinfo numeric = *hints;
    int code;

    numeric.ai_flags |= AI_NUMERICHOST;
    *list = NULL;
    code = getaddrinfo(without_names(host, hints), service, &numeric, list);
    if (code == 0)
        return NULL;
    *list = NULL;
    if (code != EAI_NONAME || (hints->ai_flags & AI_NUMERICHOST) != 0)
        return why(code, errno);
    return tutti_lookup_by(getaddrinfo, host, service, hints, TUTTI_LOOKUP_NS, list);
}

bool tutti_is_loopback(const struct sockaddr *at)
{
    const struct sockaddr_in *four = (const struct sockaddr_in *)(const void *)at;
    const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)(const void *)at;

    return at->sa_family == AF_INET ? ntohl(four->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET
                                    : at->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&six->sin6_addr);
}
