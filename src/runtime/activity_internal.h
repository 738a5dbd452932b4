/* activity_internal.h: the layout of the record of activity.h. Included by activity.c and
   activity_read.c. All words are of this machine: nobody else can read it. */
#ifndef TUTTI_RUNTIME_ACTIVITY_INTERNAL_H
#define TUTTI_RUNTIME_ACTIVITY_INTERNAL_H
#include <stdatomic.h>
#include "activity.h"

#define TUTTI_ACTIVITY_MAGIC UINT64_C(0x336f646974747574) /* "tuttido3": changes with the layout */

enum { TUTTI_ACTIVITY_WORDS = sizeof(tutti_activity_entry) / sizeof(uint64_t) };
_Static_assert(sizeof(tutti_activity_entry) % sizeof(uint64_t) == 0, "an entry is whole words");

/* An entry under a seqlock. One writer at a time. */
typedef struct activity_lock {
    _Atomic uint64_t turn;       /* odd: it is being written */
    _Atomic uint64_t word[TUTTI_ACTIVITY_WORDS]; /* a tutti_activity_entry; word[0] is 0: none */
} activity_lock;

/* The last things that ended in one slot, whose thread alone writes them: event k is at k modulo
   TUTTI_ACTIVITY_EVENTS. One ring for all slots would need a locked instruction where a collective
   ends, and that waits until the stores of the collective have reached the other core. */
typedef struct activity_past {
    _Atomic uint64_t n;          /* written so far */
    activity_lock event[TUTTI_ACTIVITY_EVENTS];
} activity_past;

typedef struct activity_record {
    uint64_t magic, bytes;       /* of all this */
    tutti_activity_about about;
    _Atomic uint64_t run;        /* takes the place of that of `about`; 0: it does not */
    _Atomic uint32_t has_folder; /* stored with release after `folder` was written */
    char folder[1024];
    _Atomic uint32_t taken[TUTTI_ACTIVITY_SLOTS]; /* 1: a thread has this slot */
    activity_lock now[TUTTI_ACTIVITY_SLOTS];
    activity_past past[TUTTI_ACTIVITY_SLOTS];
} activity_record;
_Static_assert(sizeof(activity_record) % sizeof(uint64_t) == 0, "a record is whole words");
#endif
