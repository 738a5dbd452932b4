/* waits.c: how OpenMP threads wait for work. Waiting threads would burn the core of those that
   work. Where each thread has its own core, they spin for some tens of microseconds before they
   sleep: a network of many small pieces (an LSTM's moments) wakes them thousands of times a step.
   Not for longer: on a machine that others use as well the thread that is waited for has often
   lost its core, for milliseconds. A thread that spins meanwhile keeps others from finishing
   their time slice. Measured there (mlp, load 12 on 2 cores, 10 interleaved rounds): 1934
   samples/s with one thread; with two that spin for 1 ms 723, 100 us 1657, 30 us 1955, 10 us
   2395. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "launch_internal.h"

extern char **environ;

#define LOOK_OUT_NS 20000 /* longer than the pauses between two parts of a layer, no longer than it takes to wake */
#define LOOKS_MOST 30000

bool tutti_launch_waits_is_set(char *const *environment)
{
    return tutti_variable(environment, "OMP_WAIT_POLICY") != NULL ||
           tutti_variable(environment, "GOMP_SPINCOUNT") != NULL;
}

/* How often libgomp may check for work before its thread sleeps, for LOOK_OUT_NS: it counts
   checks, and the pause between two takes 3 to 50 ns, depending on the processor. The least of
   some trials, since a core that others use, too, makes them longer. */
int tutti_launch_looks(tutti_runtime *rt)
{
    enum { TRIALS = 16, LOOKS = 500 };
    int64_t least = INT64_MAX, count;

    for (int trial = 0; trial < TRIALS; trial++) {
        const int64_t begin = tutti_now_ns(rt);
        int64_t took;
        for (int i = 0; i < LOOKS; i++)
#if defined(__x86_64__)
            __builtin_ia32_pause();
#else
            __asm__ volatile("" ::: "memory");
#endif
        took = tutti_now_ns(rt) - begin;
        least = took < least ? took : least;
    }
    count = LOOK_OUT_NS * LOOKS / (least > 0 ? least : 1);
    return count < LOOKS_MOST ? (int)count : LOOKS_MOST;
}

void tutti_launch_patient(tutti_runtime *rt, char *const argv[])
{
    char self[4096], count[16];
    const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);

    if (length <= 0 || tutti_launch_waits_is_set(environ))
        return;
    self[length] = '\0';
    snprintf(count, sizeof count, "%d", tutti_launch_looks(rt));
    if (setenv("GOMP_SPINCOUNT", count, 1) == 0)
        execv(self, argv);
}
