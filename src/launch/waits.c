/* waits.c: how OpenMP threads wait for work. By default they sleep, since a thread that spins takes
   the core from threads that work. If each thread has its own core, they spin for SPIN_NS before
   they sleep: a network of many small parts (the time steps of an LSTM) wakes them thousands of
   times a step. They do not spin for longer: on a machine that others use as well, the thread that
   is waited for has often lost its core for milliseconds, and a spinning thread keeps others from
   getting it back (docs/design/transports.md has the measurement). */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "base/pause.h"
#include "launch_internal.h"
#include "launch.h"

extern char **environ;

#define SPIN_NS \
    20000 /* longer than the pauses within a layer, no longer than waking a thread takes */
#define SPIN_COUNT_MOST 30000 /* limit on GOMP_SPINCOUNT */

bool tutti_launch_waits_is_set(char *const *environment)
{
    return tutti_variable(environment, "OMP_WAIT_POLICY") != NULL ||
           tutti_variable(environment, "GOMP_SPINCOUNT") != NULL;
}

/* libgomp counts its checks for work, and the pause between two takes 3 to 50 ns, depending on the
   processor. So that pause is measured: the least of some trials, since other processes on the core
   make it longer. */
int tutti_launch_spin_count(tutti_runtime *rt)
{
    enum { TRIALS = 16, PAUSES = 500 };
    int64_t least = INT64_MAX, count;

    for (int trial = 0; trial < TRIALS; trial++) {
        const int64_t begin = tutti_now_ns(rt);
        int64_t took;
        for (int i = 0; i < PAUSES; i++)
            tutti_pause();
        took = tutti_now_ns(rt) - begin;
        least = took < least ? took : least;
    }
    count = SPIN_NS * PAUSES / (least > 0 ? least : 1);
    return count < SPIN_COUNT_MOST ? (int)count : SPIN_COUNT_MOST;
}

void tutti_launch_patient(tutti_runtime *rt, char *const argv[])
{
    char self[4096], count[16];
    const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);

    if (length <= 0 || tutti_launch_waits_is_set(environ))
        return;
    self[length] = '\0';
    snprintf(count, sizeof count, "%d", tutti_launch_spin_count(rt));
    if (setenv("GOMP_SPINCOUNT", count, 1) == 0)
        execv(self, argv);
}
