/* team.h: thread pools: a loop divided among waiting threads. One loop at a time. */
#ifndef TUTTI_RUNTIME_TEAM_H
#define TUTTI_RUNTIME_TEAM_H
#include "tutti/runtime.h"
#pragma GCC visibility push(default)

typedef struct tutti_team tutti_team;

/* threads: including the caller of run, at least 1. Only during start-up (allocates). */
tutti_status tutti_team_open(tutti_team **out, tutti_runtime *rt, const char *name, int threads,
                             tutti_error *err);
void tutti_team_close(tutti_team *t);
int tutti_team_threads(const tutti_team *t);

/* Runs work(arg, first, count) on parts that cover [0, items), one per thread, each but the last
   a multiple of `grain`. The same parts run on the same threads each time, so that memory stays
   near the thread that touched it first. Blocks. */
void tutti_team_run(tutti_team *t, size_t items, size_t grain,
                    void (*work)(void *arg, size_t first, size_t count), void *arg);
#pragma GCC visibility pop
#endif
