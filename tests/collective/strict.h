/* strict.h: a transport for tests: threads of one process under one lock, a send is done only
   when its receive is posted (the strictest reading of transport.h), no windows. What runs on it
   needs no buffering. */
#ifndef TUTTI_TESTS_STRICT_H
#define TUTTI_TESTS_STRICT_H
#include "tutti/transport.h"
extern const tutti_transport_ops tutti_test_strict;
#endif
