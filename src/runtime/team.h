/* team.h: a thread pool that divides a loop among its threads. Implemented in team.c. Included by
   src/optim. One loop at a time. */
#ifndef TUTTI_RUNTIME_TEAM_H
#define TUTTI_RUNTIME_TEAM_H
#include "tutti/base.h"
#pragma GCC visibility push(default)

typedef struct tutti_team tutti_team;

/* Opens a pool. name: of its threads. threads: those that run a loop, the caller of tutti_team_run
   included: at least 1. TUTTI_ERR_MEMORY, or what opening a thread returns. */
tutti_status tutti_team_open(tutti_team **out, tutti_runtime *rt, const char *name, int threads,
                             tutti_error *err);
/* Ends the threads. No loop may run. Accepts NULL. */
void tutti_team_close(tutti_team *t);
int tutti_team_threads(const tutti_team *t); /* as given to open */

/* Runs work(arg, first, count) concurrently on parts that cover [0, items), at most one for each
   thread, and blocks until all have returned. The size of each part but the last is a multiple of
   grain (at least 1). With the same items and grain each thread gets the same part every time, so
   that memory stays near the thread that first touched it. */
void tutti_team_run(tutti_team *t, size_t items, size_t grain,
                    void (*work)(void *arg, size_t first, size_t count), void *arg);
#pragma GCC visibility pop
#endif
