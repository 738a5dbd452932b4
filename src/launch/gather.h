/* gather.h: setting up ranks that another launcher than Tutti's has started: their environment,
   and, for ranks of one host, the memory or key that Tutti's launcher would have given them.
   Implemented in gather.c and place.c. Included by src/collective, which opens the world of such a
   rank.

   A place (tutti_launch_place, launch.h) is the rank of a process, the number of ranks, and what
   its launcher says about their hosts and their meeting place. */
#ifndef TUTTI_LAUNCH_GATHER_H
#define TUTTI_LAUNCH_GATHER_H
#include "tutti/launch.h"
#include "launch.h"
#pragma GCC visibility push(default)

/* Sets *out to a copy of `environment` with the variables by which a transport finds the process'
   place in a run, unless they are set already or the place is empty: TUTTI_RANK, TUTTI_SIZE,
   TUTTI_MEET, TUTTI_MEET_AT_RANK_0, TUTTI_RUN_ID. *out is one block, NULL-ended: tutti_free it. Its
   strings are those of `environment`, or are in the block. TUTTI_ERR_MEMORY. */
tutti_status tutti_launch_place_environment(const tutti_launch_place *place,
                                            char *const *environment, char ***out,
                                            tutti_error *err);

/* Checks that the ranks of this place can find each other over tcp. TUTTI_ERR_USAGE, with a remedy:
   they are not all on one host, and have no address of a meeting place or no common key. */
tutti_status tutti_launch_place_meets(const tutti_launch_place *place, char *const *environment,
                                      tutti_error *err);

/* Returns whether these ranks must gather (tutti_launch_gather) before they open that transport
   ("shm", "tcp"): if they are several on one host, and have no shared memory (shm) or no key (tcp)
   from Tutti's launcher. Depends on the arguments only. */
bool tutti_launch_gathers(const tutti_launch_place *place, const char *transport,
                          char *const *environment);

/* Gathers the ranks of one host and one user: they find each other in a private directory of this
   user ($XDG_RUNTIME_DIR/tutti or /tmp/tutti-UID), and rank 0 sends the others the shared memory of
   the run (shm), or a key and the address of a meeting place (tcp). With shm a thread then watches
   the processes of the other ranks until close. Blocks until all ranks are present.

   environment: from tutti_launch_place_environment; it must outlive *out. wait_ns: time for all
   ranks to come; 0: 60 s. waits, user: as in tutti_launch (transport.h).

   TUTTI_ERR_USAGE: the directory is not private to this user, or another process has this rank.
   TUTTI_ERR_PEER: some ranks have not come in time, or one has ended meanwhile. TUTTI_ERR_IO: rank
   0 has not come in time. *out is NULL then. */
tutti_status tutti_launch_gather(tutti_launch_gathering **out, const tutti_launch_place *place,
                                 const char *transport, char *const *environment, int64_t wait_ns,
                                 void (*waits)(void *user, const char *line), void *user,
                                 tutti_error *err);
/* Returns the environment with which to open the transport, valid until close. */
char *const *tutti_launch_gathered(const tutti_launch_gathering *g);
/* Ends the watching thread and frees g; to be called after the transport is closed. Accepts
   NULL. */
void tutti_launch_gather_close(tutti_launch_gathering *g);

/* Writes the name of host number `index`, from 0, of a list as Slurm writes it:
   "gpu[01-03,7],login". TUTTI_CLOSED: the list has fewer hosts. TUTTI_ERR_USAGE: not such a
   list. */
tutti_status tutti_launch_host_at(const char *list, int64_t index, char *name, size_t bytes,
                                  tutti_error *err);
#pragma GCC visibility pop
#endif
