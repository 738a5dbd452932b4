/* join.h: `tutti join`, as join.c, join_script.c and join_there.c share it. */
#ifndef TUTTI_CLI_JOIN_H
#define TUTTI_CLI_JOIN_H
#include "member.h"

typedef struct tutti_cli_join_script {
    const char *where;           /* the run, as the command line has it */
    const char *told;            /* a member's answer, which begins with TUTTI_LAUNCH_SCRIPT */
    char *const *command;        /* NULL-ended */
    int threads;                 /* 0: as many as the others have */
} tutti_cli_join_script;

typedef struct tutti_cli_join_there {
    const char *host, *rsh;
    const char *const *own;      /* NULL-ended: options of `tutti join` there */
    char *const *command;        /* NULL-ended; NULL: of a run of `tutti train` */
} tutti_cli_join_there;

/* Is it the name of one host, for one worker? TUTTI_ERR_USAGE: it is not. */
tutti_status tutti_cli_join_there_check(const char *host, tutti_error *err);
/* Runs the worker on that host, and blocks until it has ended. After tutti_cli_member_find. *code:
   what the process is to end with. Output comes here. */
tutti_status tutti_cli_join_there_run(const tutti_cli_member *m, const tutti_cli_join_there *how,
                                      int *code, tutti_error *err);

/* Starts the command as a worker of the run, and blocks until it has ended. After
   tutti_cli_member_find and tutti_cli_member_host. *code: what the process is to end with. */
tutti_status tutti_cli_join_script_run(const tutti_cli_member *m, const tutti_cli_join_script *how,
                                       int *code, tutti_error *err);
#endif
