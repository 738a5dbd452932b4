/* rendezvous.h: the rendezvous table, by which ranks on one host find each other's vectors in
   shared memory. Included by rendezvous.c, which implements it, and window.c, which makes the
   collectives with it.

   Each rank has a table in a shared window of its own. It has entries that only this rank ("the
   owner") writes and the other ranks read. An entry is for one collective of one group, which is
   identified by its tag. Life of an entry:

     free
       -> the owner stores tag = 0, serial, the other members, payload, and tag = the collective's
          (release)
       -> each other member of the group finds the entry by its tag (acquire), reads it, and
          follows `phase`
       -> each of them stores finished[owner][entry] = serial in its own table (release)
       -> the entry is free again once the `finished` of all of them have the serial, or they have
          given up the group or are gone, and the owner's call has ended: none will read it

   No rank ever writes a cache line that another rank owns. One collective costs one line from each
   member to each other: tag, the other members and the first 24 bytes of payload share a line.

   A tag may come again (a group that is made twice), even while other members still read an older
   entry with that tag. A member's own `finished` tells it which entries it has finished with; of
   several remaining ones with the tag, that of the lowest serial is meant.

   A member looks first at the entry that the call's `turn` prefers. The owner uses that entry
   unless it is in use, or an older entry with the same tag is elsewhere and not all have finished
   with it.

   Waiting: a member polls the number that it needs for some hundred times at most. Then it adds
   itself to `waiters` of the owner's table and waits for one number, the owner's `version`; the
   owner's death ends that wait, too. Publishing an entry and advancing its phase are plain stores,
   which wake no member. So before an owner waits or returns, it must wake the others: it reads its
   `waiters` and raises `version` only if there are any. Both sides change `waiters` by
   read-modify-write, so one of the two sees what the other has stored. */
#ifndef TUTTI_COLLECTIVE_RENDEZVOUS_H
#define TUTTI_COLLECTIVE_RENDEZVOUS_H
#include "collective_internal.h"

#define TUTTI_RENDEZVOUS_ENTRIES 32
#define TUTTI_ABANDONED UINT32_MAX               /* a phase: the owner has given up */
/* The number of given-up groups that a rank records, the latest ones. engine/pieces.c gives up at
   most three for each thread of a lane, and engine/members.c three for each loss. */
#define TUTTI_ABORTED_GROUPS 256
#define TUTTI_STAGES 2                           /* stages of a rank: collectives at a time whose
                                                    vector is in no window; further ones use
                                                    messages */
#define TUTTI_STAGE_BYTES ((size_t)256 << 10)    /* of each of the two halves of a stage
                                                    (window.c) */

/* How other members reach this member's vector: not at all, in a window, or through a stage. */
typedef enum { TUTTI_REACH_NONE, TUTTI_REACH_WINDOW, TUTTI_REACH_STAGE } tutti_reach;

/* Where a member's vector is. Written before the tag is stored, constant until the entry is
   free. */
typedef struct tutti_where {
    double weight;          /* the member's weight in the sum */
    uint64_t offset;        /* REACH_WINDOW: in bytes; REACH_STAGE: index of the stage */
    tutti_reach reach;
    uint32_t window;        /* REACH_WINDOW: index of the window */
} tutti_where;

/* Only the owner of the table writes an entry. */
typedef struct tutti_entry {
    _Alignas(64) _Atomic uint64_t tag;      /* of the collective; 0: being filled */
    _Atomic uint64_t serial;                /* number of this publication among the owner's */
    _Atomic uint32_t phase;                 /* from 1 on; TUTTI_ABANDONED */
    uint32_t what;                          /* what, shape and count: of the owner's call
                                               (tutti_call_compare) */
    int64_t shape;
    uint64_t count;
    union {
        tutti_where where;                  /* large calls */
        unsigned char payload[8 * TUTTI_INLINE_COUNT]; /* small calls: the member's input */
    };
    int gone;                               /* phase TUTTI_ABANDONED: the rank that is the cause;
                                               published by `phase` */
} tutti_entry;

/* A rank's table, in its window. Only that rank writes it, except `waiters`. */
typedef struct tutti_rendezvous_table {
    _Alignas(64) _Atomic uint32_t version;  /* raised to wake waiters; written under `held` */
    /* Threads of other ranks that wait for `version`, or are about to. If it is too high, that
       only costs time. */
    _Alignas(64) _Atomic uint32_t waiters;
    /* Sizes of the rank's windows, by which offsets are checked. */
    _Alignas(64) _Atomic uint64_t window_bytes[TUTTI_WINDOWS];

    /* The groups (contexts) that this rank has given up, and for each the rank that was the
       cause. Without this record a member that waits for this rank in
       shared memory, in a later collective of the group, would wait for ever. n_aborted counts all
       of them; number k is at index k modulo TUTTI_ABORTED_GROUPS. Written under `held`; n_aborted
       is stored with release, which publishes the pair. */
    _Alignas(64) _Atomic uint32_t n_aborted;
    _Atomic uint64_t aborted[TUTTI_ABORTED_GROUPS];
    _Atomic int aborted_for[TUTTI_ABORTED_GROUPS];

    tutti_entry entries[TUTTI_RENDEZVOUS_ENTRIES];
    _Alignas(4096) unsigned char stages[TUTTI_STAGES][2][TUTTI_STAGE_BYTES];
    /* [size][entries]: for each owner and entry of its table, the serial with which this rank has
       finished last. */
    _Alignas(64) _Atomic uint64_t finished[][TUTTI_RENDEZVOUS_ENTRIES];
} tutti_rendezvous_table;

/* What an owner remembers of an entry of its own, in private memory; under `held`. */
typedef struct tutti_rendezvous_slot {
    uint64_t tag, serial, context;          /* context: of the group */
    bool given_up;                          /* this rank has given up that group since */
    bool cut;                               /* a member will not finish with it: it is gone, or has
                                               given up the group. This rank's own call may still be
                                               under way when no member reads it */
    int left;                               /* ranks[0, left) are not known to have finished */
    int ranks[TUTTI_RENDEZVOUS_MEMBERS];    /* the other members of the group */
} tutti_rendezvous_slot;

/* This rank's state, in private memory. */
typedef struct tutti_rendezvous {
    _Alignas(64) _Atomic bool held;         /* lock among the threads of this rank (rendezvous.c:
                                               enter, leave) */
    tutti_rendezvous_table **of_rank;       /* [size]: every rank's table */
    tutti_rendezvous_table *mine;           /* of_rank[rank] */
    bool crowded;                           /* there are more ranks than cores: polling would take
                                               the core from the rank that is waited for, so a
                                               member polls once and then waits */
    _Atomic uint32_t patience;              /* polls before a wait: doubled when they were enough,
                                               halved when not */
    /* under `held` */
    tutti_rendezvous_slot slots[TUTTI_RENDEZVOUS_ENTRIES];
    uint32_t displaced;                     /* bit k: entry k was not the preferred one of its
                                               call, and not all members have finished with it */
    bool stage_used[TUTTI_STAGES];
    uint64_t published;                     /* the last serial */
    /* of each entry the tag of the call that has ended on this rank; written without the lock */
    _Atomic uint64_t released[TUTTI_RENDEZVOUS_ENTRIES];
} tutti_rendezvous;

/* In these functions j is the index of another member of the call's group. */

/* Fills a free entry of this rank's table, in phase 1, with `where`, or if that is NULL with
   `bytes` of payload, and sets *out to it. Blocks while all entries are in use. Wakes no
   member. TUTTI_ERR_STATE: for a long time all of them have been of groups that this rank has
   given up and others have not. */
tutti_status tutti_rendezvous_publish(const tutti_call *call, const tutti_where *where,
                                      const void *payload, size_t bytes, tutti_entry **out,
                                      tutti_error *err);
/* This rank's call does not use its entry any more. After tutti_rendezvous_abandon, before this
   member gives up the group. */
void tutti_rendezvous_release(const tutti_call *call, const tutti_entry *mine);
/* Returns whether member j has read the entry that this call's would take the place of, or needs
   not. A guess: other threads of this rank may use it. */
bool tutti_rendezvous_read(const tutti_call *call, int j);
/* Returns whether member j has an entry for this call. */
bool tutti_rendezvous_has(const tutti_call *call, int j);
/* Sets the phase of an entry of this rank. Wakes no member. */
void tutti_rendezvous_advance(tutti_entry *mine, uint32_t phase);
/* Wakes the members that wait for this rank. Call it after functions that wake none, before this
   member waits or returns. */
void tutti_rendezvous_wake(const tutti_call *call);
/* Gives up because of rank `gone`: sets the phase TUTTI_ABANDONED, and wakes the members. This
   member may live on, so its death would never end their waits. */
void tutti_rendezvous_abandon(const tutti_call *call, tutti_entry *mine, int gone);
/* Returns member j's entry for this call if it is the preferred one; NULL: not yet. Polls for a
   moment; patient: for as long as has been enough lately. */
tutti_entry *tutti_rendezvous_poll(const tutti_call *call, int j, bool patient);
/* Returns whether an entry has reached `phase`; polls likewise. */
bool tutti_rendezvous_poll_phase(const tutti_call *call, tutti_entry *entry, uint32_t phase,
                                 bool patient);
/* Blocks until member j has an entry for this call, and sets *out to it. TUTTI_ERR_PEER: its rank
   is gone, or has given up the group. */
tutti_status tutti_rendezvous_await(const tutti_call *call, int j, tutti_entry **out,
                                    tutti_error *err);
/* Blocks until member j's entry has reached `phase`. TUTTI_ERR_PEER likewise. */
tutti_status tutti_rendezvous_await_phase(const tutti_call *call, int j, tutti_entry *entry,
                                          uint32_t phase, tutti_error *err);
/* Records that this member has finished with member j's entry. */
void tutti_rendezvous_finish(const tutti_call *call, int j, const tutti_entry *entry);
/* Reserves one of this rank's stages and returns its index; -1: none is free. Any thread. */
int tutti_rendezvous_stage_acquire(const tutti_world *world);
/* Frees it. stage -1: does nothing. */
void tutti_rendezvous_stage_release(const tutti_world *world, int stage);
/* Sets *out to the address of member j's vector of `bytes` bytes, as `where` announces it.
   TUTTI_ERR_CORRUPT: it does not lie inside the window. */
tutti_status tutti_rendezvous_reach(const tutti_call *call, int j, const tutti_where *where,
                                    size_t bytes, unsigned char **out, tutti_error *err);
#endif
