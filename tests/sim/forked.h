/* forked.h: a process has one simulation, so a test that wants one forks. The child's result is
   returned as status and message. */
#ifndef TUTTI_TESTS_FORKED_H
#define TUTTI_TESTS_FORKED_H
#include "tutti/transport.h"
/* call(arg) in a child. A child that ends otherwise: TUTTI_ERR_IO with how. */
tutti_status forked(tutti_status (*call)(void *arg, tutti_error *err), void *arg, tutti_error *err);
/* rank_main(launch) as n ranks of the transport `spec` in a child. */
tutti_status forked_ranks(const char *spec, int n,
                          tutti_status (*rank_main)(const tutti_launch *launch, void *arg,
                                                    tutti_error *err),
                          void *arg, tutti_error *err);
const tutti_transport_ops *forked_sim(void); /* the plug-in's table */
#endif
