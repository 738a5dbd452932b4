/* names.h: the lookup of tutti_lookup with any resolver, for tests. */
#ifndef TUTTI_RUNTIME_NAMES_H
#define TUTTI_RUNTIME_NAMES_H
#include "tutti/runtime.h"
#include <netdb.h>

/* as getaddrinfo; called on a thread of its own */
typedef int tutti_resolver(const char *host, const char *service, const struct addrinfo *hints,
                           struct addrinfo **list);
const char *tutti_lookup_by(tutti_resolver *resolver, const char *host, const char *service,
                            const struct addrinfo *hints, int64_t limit_ns, struct addrinfo **list);
#endif
