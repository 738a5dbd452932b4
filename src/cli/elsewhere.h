/* elsewhere.h: hosts of a run whose workers come and go (--workers, -H). */
#ifndef TUTTI_CLI_ELSEWHERE_H
#define TUTTI_CLI_ELSEWHERE_H
#include "cli_internal.h"
#include "launch/launch.h"

/* Reads hosts. *here: workers of the first one, on which the run begins; *all: of all. check: is
   that one this machine? TUTTI_ERR_USAGE: it is not, or the list is invalid. Blocks for the name
   service. */
tutti_status tutti_cli_elsewhere_read(const char *hosts, bool check, int *here, int *all,
                                      tutti_error *err);
/* Writes the address of this machine on the route to the other hosts; "": there is none, or they
   are this machine too. Blocks for the name service. */
void tutti_cli_elsewhere_meet(const char *hosts, char *address, size_t bytes);

/* The commands of the workers of the other hosts. */
typedef struct tutti_cli_elsewhere {
    const char *pass, *rsh;      /* set before open: the file of the pass; "": ssh */
    const char *const *command;  /* likewise: NULL-ended; NULL: of a run of `tutti train` */
    bool quiet;
    char self[4096];
    tutti_launch_host *hosts;    /* [n_hosts] */
    int n_hosts;
    void *words;                 /* elsewhere.c */
    tutti_launch_elsewhere *list;
} tutti_cli_elsewhere;

/* Sets `elsewhere` of the options. hosts "": none. Close it also after a failure, when the launcher
   has ended. */
tutti_status tutti_cli_elsewhere_open(tutti_cli_elsewhere *e, tutti_launch_elastic_options *o,
                                      const char *hosts, tutti_error *err);
void tutti_cli_elsewhere_close(tutti_cli_elsewhere *e);
#endif
