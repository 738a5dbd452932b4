/* activity.h: what a rank is in now, and its last events, in a record that other processes of the
   same user can read while the rank hangs (`tutti why`). Implemented in activity.c (the rank's
   side) and activity_read.c (the reader's). Included by collective, engine and cli.

   The record is an unnamed file in memory (memfd), which a reader opens by /proc/PID/fd. So it has
   no name that could be left behind: it ends with its process, however that ends. The rank writes
   it by plain stores, without a lock and without a system call. Each entry is a seqlock: its number
   of turns is odd while it is written.

   Functions of the rank's side accept NULL for a record that could not be made, and do nothing. Any
   thread may call them. */
#ifndef TUTTI_RUNTIME_ACTIVITY_H
#define TUTTI_RUNTIME_ACTIVITY_H
#include "tutti/base.h"
#pragma GCC visibility push(default)

typedef struct tutti_activity tutti_activity;

#define TUTTI_ACTIVITY_FILE "tutti-activity" /* the name of the memfd */
enum {
    TUTTI_ACTIVITY_SLOTS = 16,   /* things that a rank can be in at one time; 0: its client's */
    TUTTI_ACTIVITY_EVENTS = 64,  /* the last events that are kept */
    TUTTI_ACTIVITY_RANKS = 1024, /* ranks whose host is known */
    TUTTI_ACTIVITY_MEMBERS = 64  /* ranks that `members` can name */
};

typedef enum tutti_activity_kind {
    TUTTI_ACTIVITY_CLIENT = 1,   /* what the client thread does: compute, forward, ... */
    TUTTI_ACTIVITY_EXCHANGE,     /* a job of the engine: the exchange of piece `index` */
    TUTTI_ACTIVITY_COLLECTIVE,   /* a call of all members of a group */
    TUTTI_ACTIVITY_MESSAGE       /* it waits for `peer`, to send or to receive a message */
} tutti_activity_kind;

/* What a thread is in. Texts are truncated to their room. */
typedef struct tutti_activity_entry {
    char what[24];               /* "all-reduce", "forward", "exchange"; ended by a 0 */
    char of[40];                 /* name of a tensor; "": none */
    uint64_t call;               /* of a collective: equal on its members, and on no other call */
    uint64_t group;              /* of a collective: equal for all calls of the group */
    uint64_t members;            /* of a collective: bit r: rank r is one; 0: unknown */
    uint64_t step;               /* of the client; else 0 */
    uint64_t count;              /* elements */
    uint32_t number;             /* of a collective within its group */
    int32_t index;               /* of a unit or piece; -1: none */
    int32_t peer;                /* a rank; -1: none */
    uint32_t kind;               /* tutti_activity_kind */
    int64_t since_ns;            /* CLOCK_MONOTONIC, which the processes of a host have in common */
    int64_t ended_ns;            /* 0: it goes on */
} tutti_activity_entry;

/* About the rank; it does not change. */
typedef struct tutti_activity_about {
    int64_t process, opened_ns;
    uint64_t run;                /* equal for the ranks of a run on this host */
    int32_t rank, size;          /* of a world; -1, 0: of a member of an elastic run, whose worlds
                                    have records of their own */
    char transport[16];
    uint64_t here[TUTTI_ACTIVITY_RANKS / 64]; /* bit r: rank r is on this host */
} tutti_activity_about;

/* ---- the rank's side ---- */

/* Makes the record. NULL: the system has no such files, or no descriptor is left. */
tutti_activity *tutti_activity_open(const tutti_activity_about *about);
void tutti_activity_close(tutti_activity *a);
/* Another number of the run than `about` has. */
void tutti_activity_run(tutti_activity *a, uint64_t run);
/* Names the run's directory, by which `tutti why DIR` finds the rank. Once. */
void tutti_activity_folder(tutti_activity *a, const char *directory);
/* Begins `what`, whose times are set here; returns its slot, for leave. -1: no slot is free. */
int tutti_activity_enter(tutti_activity *a, const tutti_activity_entry *what);
/* Ends it: it is an event now. A slot of -1 is accepted. */
void tutti_activity_leave(tutti_activity *a, int slot);
/* What the client is in from now on. index: -1: none. Calls come from one thread at a time. */
void tutti_activity_client(tutti_activity *a, const char *what, int index, uint64_t step);
/* Returns the record's bytes, for a reader in this process; *bytes: how many. NULL: none. */
const void *tutti_activity_bytes(const tutti_activity *a, size_t *bytes);

/* ---- the reader's side ---- */

typedef struct tutti_activity_view {
    tutti_activity_about about;
    char folder[1024];           /* "": not given */
    tutti_activity_entry now[TUTTI_ACTIVITY_SLOTS]; /* [n_now], the client's first */
    int n_now;
    int changing;                /* entries that were being written; they are left out */
    tutti_activity_entry events[TUTTI_ACTIVITY_EVENTS]; /* [n_events], by end, oldest first */
    int n_events;
    uint64_t events_ever;
} tutti_activity_view;

/* Bytes of a record. */
size_t tutti_activity_size(void);
/* Reads a record from two copies of it, the second made after the first: an entry counts if it is
   the same in both. The bytes need not be a record. TUTTI_ERR_CORRUPT: they are none. */
tutti_status tutti_activity_read(tutti_activity_view *view, const void *first, const void *second,
                                 size_t bytes, tutti_error *err);
/* Reads the record of this process itself. */
tutti_status tutti_activity_own(const tutti_activity *a, tutti_activity_view *view,
                                tutti_error *err);
#pragma GCC visibility pop
#endif
