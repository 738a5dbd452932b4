/* conformance.h: what every transport must do, as one suite. A transport's own test gives its table
   and a way to start n ranks, and inherits all of it:

       int main(void) { return conformance_run(&(conformance_subject){ .ops =
       tutti_transport_find("shm"), .run = ... }); }

   A rank's body reports by status and sentence (CHECK below), never by cmocka's assertions: ranks
   are threads or processes of their own. */
#ifndef TUTTI_TESTS_CONFORMANCE_H
#define TUTTI_TESTS_CONFORMANCE_H
#include "tutti/transport.h"

typedef tutti_status (*conformance_rank_main)(const tutti_launch *launch, void *arg,
                                              tutti_error *err);

typedef struct conformance_subject {
    const char *name;            /* "shm, ranks are threads" */
    const tutti_transport_ops *ops;
    /* n ranks in rank_main; gives the run's root failure. `arg` may be copied into another
       process: results come by status. */
    tutti_status (*run)(tutti_runtime *rt, int n, conformance_rank_main rank_main, void *arg,
                        tutti_error *err);
    /* a rank dies by SIGKILL; else by leaving a failure report and returning */
    bool processes;
    bool strict;                 /* every send is a rendezvous: done only when taken */
    /* processes that are stopped are noticed, by the transport or by what run() does meanwhile */
    bool hears_silence;
    /* From now on the calling thread gets no memory from tutti_alloc, or gets some again. NULL: the
       test cannot see to that. */
    void (*starve)(bool on);
    /* sizes in bytes at which this transport changes its ways; ends with 0 */
    size_t edges[8];
} conformance_subject;
int conformance_run(const conformance_subject *subject); /* number of failed tests */

/* For bodies of ranks, here and in a transport's own tests. */
#define CHECK(condition) \
    do { \
        if (!(condition)) \
            return tutti_fail(err, TUTTI_ERR_STATE, 0, "%s:%d: not so: %s", __FILE__, __LINE__, \
                              #condition); \
    } while (0)
#endif
