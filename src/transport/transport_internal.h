/* transport_internal.h: the tables of the built-in transports, which registry.c lists. */
#ifndef TUTTI_TRANSPORT_INTERNAL_H
#define TUTTI_TRANSPORT_INTERNAL_H
#include "tutti/transport.h"
extern const tutti_transport_ops tutti_transport_shm; /* shm/shm.c */
extern const tutti_transport_ops tutti_transport_tcp; /* tcp/tcp.c */
#endif
