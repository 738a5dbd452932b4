/* gather.h: ranks of one host that Tutti's launcher did not start. */
#ifndef TUTTI_LAUNCH_GATHER_H
#define TUTTI_LAUNCH_GATHER_H
#include "tutti/launch.h"
#pragma GCC visibility push(default)

/* *out := `environment` and, where the process has a place in a run, the TUTTI_ variables that
   give it to a transport, unless they are set already: TUTTI_RANK, TUTTI_SIZE, TUTTI_MEET,
   TUTTI_MEET_AT_RANK_0, TUTTI_RUN_ID. One block: tutti_free it. Its strings are borrowed from
   `environment` or lie within. */
tutti_status tutti_launch_place_environment(const tutti_launch_place *place,
                                            char *const *environment, char ***out,
                                            tutti_error *err);

/* Can the ranks of this place find each other over tcp? TUTTI_ERR_USAGE with a remedy: there is
   no rendezvous address, or they have no common key, and they are not on one host, where they
   could gather. */
tutti_status tutti_launch_place_meets(const tutti_launch_place *place, char *const *environment,
                                      tutti_error *err);

/* Do these ranks have to gather before they open that transport ("shm", "tcp")? Yes if they are
   several on one host, and have no memory from Tutti's launcher (shm), or no key (tcp). Pure. */
bool tutti_launch_gathers(const tutti_launch_place *place, const char *transport,
                          char *const *environment);

/* The ranks find each other in a private directory of this user ($XDG_RUNTIME_DIR/tutti or
   /tmp/tutti-UID). There they get what Tutti's launcher would have given them: the memory of the
   run (shm), or a key and a rendezvous address (tcp). With shm a thread watches the other ranks'
   processes until close. Blocks until all ranks are present.

   environment: that of tutti_launch_place_environment. wait_ns: timeout for all to arrive; 0: 60
   s. waits, user: as in tutti_launch (transport.h).

   TUTTI_ERR_USAGE: the directory is not private to this user, or another process has this rank.
   TUTTI_ERR_PEER: some ranks have not arrived in time, or one has ended meanwhile. TUTTI_ERR_IO:
   rank 0 has not arrived in time. Allocates. */
tutti_status tutti_launch_gather(tutti_launch_gathering **out, const tutti_launch_place *place,
                                 const char *transport, char *const *environment, int64_t wait_ns,
                                 void (*waits)(void *user, const char *line), void *user,
                                 tutti_error *err);
/* The environment for opening the transport. It borrows strings of the given environment. */
char *const *tutti_launch_gathered(const tutti_launch_gathering *g);
void tutti_launch_gather_close(tutti_launch_gathering *g); /* after the transport; accepts NULL */

/* Host `index` of a list as Slurm writes it, "gpu[01-03,7],login": names in order, TUTTI_CLOSED
   past the end. TUTTI_ERR_USAGE: not such a list. */
tutti_status tutti_launch_host_at(const char *list, int64_t index, char *name, size_t bytes,
                                  tutti_error *err);
#pragma GCC visibility pop
#endif
