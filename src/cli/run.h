/* run.h: `tutti run`, as run.c and run_members.c share it. */
#ifndef TUTTI_CLI_RUN_H
#define TUTTI_CLI_RUN_H
#include "cli_internal.h"

typedef struct tutti_cli_run_config {
    int64_t n, servers, threads, min_workers, restarts;
    double start_timeout, grace, stop_timeout, workers_timeout;
    const char *hosts, *rsh, *meet, *exports, *transport, *workers, *pass;
    int on_loss;
    bool pin, tag;
    int least, most; /* of --workers; 0: their number is fixed */
    tutti_cli_hosts from;
} tutti_cli_run_config;

/* Reads --workers, and sets n, least and most. options: those of the command. TUTTI_ERR_USAGE: it
   is no such range, or an option is given that such runs do not have. */
tutti_status tutti_cli_run_members_check(tutti_cli_run_config *c, const tutti_option *options,
                                         tutti_error *err);
/* Is that option another one than in `usual`, which has the defaults? */
bool tutti_cli_run_differs(const char *name, const tutti_option *options,
                           const tutti_cli_run_config *c, const tutti_cli_run_config *usual);
/* Starts the workers, and blocks until all have ended. words: the command, NULL-ended. */
tutti_status tutti_cli_run_members(const tutti_cli_run_config *c, const char *const *words,
                                   tutti_launch_result *result, tutti_error *err);
/* Tells workers that are started from now on by what address others than those of this machine
   reach them; port 0: any; host "": none do. */
void tutti_cli_tell_node(const char *host, int port);
/* run.c. Finds the command's file, in PATH if its name has no '/'. */
tutti_status tutti_cli_find_command(const char *name, char *path, size_t bytes, tutti_error *err);
/* run.c. Workers must not inherit the rank and size of another run. */
void tutti_cli_forget_outer_run(void);
#endif
