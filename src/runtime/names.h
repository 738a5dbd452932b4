/* names.h: addresses of hosts. */
#ifndef TUTTI_RUNTIME_NAMES_H
#define TUTTI_RUNTIME_NAMES_H
#include "tutti/base.h"
#include <netdb.h>
#pragma GCC visibility push(default)

/* The addresses of a host, as from getaddrinfo; free *list by freeaddrinfo. On failure *list is
   NULL and the result is the reason, as a constant string. Blocks for as long as the name service
   takes, 5 s at most. Numeric addresses need no lookup, and `localhost` is the loopback address
   without one (RFC 6761, 6.3). It needs no runtime: hosts have names outside of simulations
   only. */
#define TUTTI_LOOKUP_NS (INT64_C(5) * 1000000000)
const char *tutti_lookup(const char *host, const char *service, const struct addrinfo *hints,
                         struct addrinfo **list);
#pragma GCC visibility pop

/* tutti_lookup with any resolver, for tests. A resolver is called as getaddrinfo, on a thread of
   its own. */
typedef int tutti_resolver(const char *host, const char *service, const struct addrinfo *hints,
                           struct addrinfo **list);
const char *tutti_lookup_by(tutti_resolver *resolver, const char *host, const char *service,
                            const struct addrinfo *hints, int64_t limit_ns, struct addrinfo **list);
#endif
