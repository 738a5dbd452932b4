/* launch_internal.h: what the files of this room share. launch.c watches; start.c makes one worker; pin.c knows the cores. */
#ifndef TUTTI_LAUNCH_INTERNAL_H
#define TUTTI_LAUNCH_INTERNAL_H
#include <sched.h>
#include <signal.h>
#include <sys/types.h>
#include "tutti/launch.h"

/* ---- pin.c ---- */
/* sets[r]: the cores of worker r. Uses hwloc, which takes milliseconds and reads /sys; only called when pinning is wanted. */
tutti_status tutti_launch_pin(cpu_set_t *sets, int workers, int threads, tutti_error *err);

/* ---- start.c ---- */
typedef struct launch_start {
    const char *const *argv;
    char **environment;          /* of the children; [rank_at] changes with each */
    size_t rank_at;
    char rank_text[32], size_text[32], fd_text[32], threads_text[40];
    int fd;                      /* of the shared region: the one descriptor that is handed on */
    const sigset_t *mask;        /* the signal mask to give back to the child */
    pid_t parent;
} launch_start;

tutti_status tutti_launch_start_open(launch_start *s, const tutti_launch_options *options, int fd, const sigset_t *mask, tutti_error *err);
void tutti_launch_start_close(launch_start *s);
/* Returns once the program runs, or with the reason why it cannot. cores may be NULL. */
tutti_status tutti_launch_start_worker(const launch_start *s, int rank, const cpu_set_t *cores, pid_t *pid, int *pidfd, tutti_error *err);
#endif
