/* place.h: the directory that a schedule of a piece saves its checkpoints in, in which all of its
   processes find each other's, and its removal. Included by the pieces that save. */
#ifndef TUTTI_EXPLORE_PLACE_H
#define TUTTI_EXPLORE_PLACE_H
#include "explore.h"
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static inline void explore_place(const explore_case *c, char *out, size_t bytes)
{
    const char *const base = getenv("TMPDIR");

    snprintf(out, bytes, "%s/tutti-explore-%ld-%llu", base != NULL ? base : "/tmp", (long)getpid(),
             (unsigned long long)c->seed);
}

static inline int explore_remove_entry(const char *path, const struct stat *about, int kind,
                                       struct FTW *at)
{
    (void)about, (void)kind, (void)at;
    return remove(path);
}

/* With all that is in it. It may not be there. */
static inline void explore_place_remove(const char *directory)
{
    (void)nftw(directory, explore_remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}
#endif
