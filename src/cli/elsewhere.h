/* elsewhere.h: hosts of a run (-H): where they stand, and those of one whose workers come and go
   (--workers). */
#ifndef TUTTI_CLI_ELSEWHERE_H
#define TUTTI_CLI_ELSEWHERE_H
#include "cli_internal.h"
#include "launch/launch.h"

/* Replaces *hosts by the list, where it stands in a file or a command prints it
   (tutti_launch_hosts_moves), and notes that in h, to which the list belongs: tutti_free its text.
   TUTTI_ERR_USAGE: it cannot be read, or names no host. Blocks for at most 60 s. */
tutti_status tutti_cli_hosts_read(tutti_cli_hosts *h, const char **hosts, tutti_error *err);
/* As that, for a run whose workers come and go, workers being FEWEST:MOST: the list begins with
   this machine. *n: those of it, with which the run begins; 0 before: no -n is given.
   TUTTI_ERR_USAGE: it is not there, or numbers do not agree. Blocks for the name service too. */
tutti_status tutti_cli_elsewhere_check(tutti_cli_hosts *h, const char **hosts, const char *workers,
                                       int64_t *n, tutti_error *err);
/* Writes the address of this machine on the route to the other hosts; "": there is none, or they
   are this machine too. Blocks for the name service. */
void tutti_cli_elsewhere_meet(const char *hosts, char *address, size_t bytes);

/* The commands of the workers of the other hosts. */
typedef struct tutti_cli_elsewhere {
    const char *pass, *rsh;      /* set before open: the file of the pass; "": ssh */
    const char *const *command;  /* likewise: NULL-ended; NULL: of a run of `tutti train` */
    bool quiet;
    char self[4096], rsh_word[700];
    tutti_launch_host *hosts;
    struct tutti_cli_far *list;  /* elsewhere.c: one a host */
} tutti_cli_elsewhere;

/* Sets what the options have of hosts. hosts "": none; of: where they stand; most: workers of the
   run. Close it also after a failure, when the launcher has ended. */
tutti_status tutti_cli_elsewhere_open(tutti_cli_elsewhere *e, tutti_launch_elastic_options *o,
                                      const char *hosts, const tutti_cli_hosts *of, int most,
                                      tutti_error *err);
void tutti_cli_elsewhere_close(tutti_cli_elsewhere *e);
#endif
