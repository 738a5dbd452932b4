/* names.h: the addresses of a host, with a time limit. Implemented in names.c. Included by
   src/transport/tcp, src/launch and src/cli. */
#ifndef TUTTI_RUNTIME_NAMES_H
#define TUTTI_RUNTIME_NAMES_H
#include "tutti/base.h"
#include <netdb.h>
#pragma GCC visibility push(default)

/* Looks up the addresses of a host, as getaddrinfo does. Returns NULL, and *list, to be freed by
   freeaddrinfo; or the reason of a failure, as a constant string, and *list is NULL. Blocks for the
   name service, TUTTI_LOOKUP_NS at most. Addresses in numbers need no lookup, and `localhost` is
   the loopback address (RFC 6761, 6.3). It needs no runtime, since simulated hosts are not looked
   up. */
#define TUTTI_LOOKUP_NS (INT64_C(5) * 1000000000)
const char *tutti_lookup(const char *host, const char *service, const struct addrinfo *hints,
                         struct addrinfo **list);

/* Does no other host reach it, whatever its port: 127.0.0.0/8 or ::1? */
bool tutti_is_loopback(const struct sockaddr *at);
#pragma GCC visibility pop

/* tutti_lookup with another resolver and time limit, for tests; it always calls the resolver. The
   resolver is called as getaddrinfo, on a thread that may outlive the call. */
typedef int tutti_resolver(const char *host, const char *service, const struct addrinfo *hints,
                           struct addrinfo **list);
const char *tutti_lookup_by(tutti_resolver *resolver, const char *host, const char *service,
                            const struct addrinfo *hints, int64_t limit_ns, struct addrinfo **list);
#endif
