/* registry.h: the built-in transports, and the check of a runtime's version. Implemented by
   registry.c and version.c. */
#ifndef TUTTI_TRANSPORT_REGISTRY_H
#define TUTTI_TRANSPORT_REGISTRY_H
#include "tutti/transport.h"
#pragma GCC visibility push(default)

extern const tutti_transport_ops *const tutti_transports[]; /* the built-in ones; NULL-ended */
const tutti_transport_ops *tutti_transport_find(const char *name); /* a built-in one, or NULL */

/* tutti_transport_check for a runtime that the caller has opened. */
tutti_status tutti_runtime_check(const tutti_runtime *rt, const char *whose, tutti_error *err);
#pragma GCC visibility pop
#endif
