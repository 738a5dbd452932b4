/* member.h: a worker of a run whose workers come and go, as member.c and join.c share it. */
#ifndef TUTTI_CLI_MEMBER_H
#define TUTTI_CLI_MEMBER_H
#include "cli_internal.h"
#include "train/nodes.h"

typedef struct tutti_cli_member {
    tutti_cli_settings *s;
    int rank;                    /* among the workers of its launcher */
    int tell_fd;                 /* the pipe to it; -1: there is none */
    bool newcomer;
    tutti_world *founders;       /* a founder: where they meet */
    tutti_launch_pass pass;      /* a newcomer's */
    const char *contacts[TUTTI_LAUNCH_CONTACTS];
    char kept[4200];             /* the file of the pass, which members keep */
    char host[TUTTI_ADDRESS_BYTES]; /* by which others reach it; "": this machine only */
    tutti_train_nodes how;
    const char *data_hash;       /* join.c: that of the run's data; NULL: not compared */
} tutti_cli_member;

/* The file of the pass of a run with that --out. */
void tutti_cli_pass_of(const char *out, char *path, size_t bytes);
/* Splits "HOST:PORT", "[::1]:PORT" or "HOST"; *port: 0: none. */
tutti_status tutti_cli_split_address(const char *text, char *host, size_t bytes, int *port,
                                     tutti_error *err);
/* Splits --meet likewise, for workers that come and go. Refuses a name that is a loopback address
   here, as a host's own name often is: newcomers would connect with themselves. Blocks for the name
   service. */
tutti_status tutti_cli_split_meet(const char *text, char *host, size_t bytes, int *port,
                                  tutti_error *err);
/* join.c. Is no run under way with that pass? TUTTI_ERR_USAGE: a member of one answers; the
   sentence ends with `mends`. A claim of its directory may be gone with the launcher that had it.
   Blocks for FREE_MS, if there is such a file and no answer. */
tutti_status tutti_cli_check_free(const char *pass, const char *mends, tutti_error *err);
/* Makes m->how point to the addresses of m->pass. */
void tutti_cli_member_contacts(tutti_cli_member *m);
/* join.c. Sets the pass from the arguments of a command: the directory of a run, or an address and
   the file of --key. */
tutti_status tutti_cli_member_find(tutti_cli_member *m, const char *key, const char *where,
                                   tutti_error *err);
/* join.c. Sets the address by which the others reach this machine: that of --meet, or "": that on
   the route to the first contact. */
tutti_status tutti_cli_member_host(tutti_cli_member *m, const char *meet, tutti_error *err);
/* Takes part. Before: how.node has run and key, and founders or contacts are set. *ended: it has
   seen the end of the run; else it has left. */
tutti_status tutti_cli_member_train(tutti_cli_member *m, const tutti_train_io *io, bool *ended,
                                    tutti_error *err);
void tutti_cli_member_close(tutti_cli_member *m);
#endif
