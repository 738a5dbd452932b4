/* hostlist.h: hosts that stand in a file or that a command prints (tutti_launch_hosts_moves), read
   while the launcher does other things. */
#ifndef TUTTI_LAUNCH_HOSTLIST_H
#define TUTTI_LAUNCH_HOSTLIST_H
#include <signal.h>
#include <sys/types.h>
#include "launch.h"

/* fd and pidfd, -1 while there is none, are readable when a step may find something. */
typedef struct launch_hostlist {
    const char *source;
    int fd, pidfd;
    pid_t pid;                   /* of the command; 0: none runs */
    int64_t kill_at;             /* 0: it was killed, or none runs */
    char *text;                  /* [n] of [bytes]: what has come */
    size_t n, bytes;
} launch_hostlist;

/* Begins to read. mask: of the command. After a failure it is closed. */
tutti_status tutti_launch_hostlist_begin(launch_hostlist *l, const char *source,
                                         const sigset_t *mask, int64_t now, tutti_error *err);
/* *done: all has come, or it has failed, and it is closed. *hosts: tutti_free it. */
tutti_status tutti_launch_hostlist_step(launch_hostlist *l, int64_t now, bool *done,
                                        tutti_launch_host **hosts, int *n, tutti_error *err);
/* Ends the command, and what it has started. */
void tutti_launch_hostlist_close(launch_hostlist *l);
#endif
