/* why_internal.h: what the files of `tutti why` share. Each section is named after the file that
   implements it. */
#ifndef TUTTI_CLI_WHY_INTERNAL_H
#define TUTTI_CLI_WHY_INTERNAL_H
#include "cli_internal.h"
#include "runtime/activity.h"

/* A rank of this host, with its record; or a member of an elastic run that is in no world. */
typedef struct why_rank {
    tutti_activity_view view;    /* about.rank -1: such a member */
    long process;                /* its number here, which in a container is another within */
    char state;                  /* of /proc/PID/stat: 'T': stopped; 0: not known */
    bool replaced;               /* another record stands for it */
} why_rank;

typedef struct why_found {
    tutti_runtime *rt;           /* while it is open */
    why_rank *ranks;             /* [n], those of one run, by rank; then members without a world */
    int n, room;
    int64_t now_ns;              /* when they were read */
    int damaged;                 /* records that cannot be read */
    bool asked_damaged;          /* one of them is of the process that was asked for, or below it */
    char why_damaged[400];       /* the sentence about the first, or about that one */
    long asked;                  /* the process; 0: a directory was */
} why_found;

/* ---- why_find.c ---- */

/* Finds the ranks of a run on this host: of the process `given` or its descendants, or of a run
   that has `given` as its directory. TUTTI_ERR_USAGE: there is none, with a sentence. Call
   tutti_why_close also after a failure. */
tutti_status tutti_why_find(why_found *found, const char *given, tutti_error *err);
void tutti_why_close(why_found *found);

/* ---- why_say.c ---- */

enum { WHY_TEXT = 1200 };
/* Writes what a rank is in: "all-reduce 7 of 1000 elements, with ranks 0, 1". seconds: since
   when. */
void tutti_why_describe(const why_found *found, const why_rank *rank, char *text, size_t bytes,
                        double *seconds);
/* Writes the diagnosis, a sentence or more; certain: false: only what is seen, no cause. */
void tutti_why_diagnose(const why_found *found, char *text, size_t bytes, bool *certain);
#endif
