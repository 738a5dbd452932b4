/* rendezvous.h: the rendezvous table, in shared memory, of ranks on one host. Each rank has such a
   table in a shared window of its own: entries that it writes and the others read. It is the
   layer between rendezvous.c (entries) and window.c (the collectives on them).

   An entry belongs to one collective of one group, found by its tag. Life of an entry:

     free
       -> owner: tag = 0, serial, fields, payload, tag = the collective's (release)
       -> members: find it by tag (acquire), read, follow `phase`
       -> each: finished[owner][entry] = serial, in its own table (release)
       -> free once all members' words of `finished` have the serial

   Tags may come again (a group made twice), even while others still read the entry before. A
   member's own `finished` shows which entries it has finished with; of several left, the one with
   the lowest serial is meant. So no rank ever writes a cache line that another owns. One
   collective costs one line from each member to each other: tag, fields and the first 24 bytes of
   payload share it.

   A member looks first at the entry that the call's `turn` prefers, and finds it there unless
   that entry was in use. The owner does not put a tag there while an older entry of that tag lies
   elsewhere unread.

   Waiting: a member polls the word it needs some hundred times at most. Then it counts itself in
   `waiters` of the owner's table and waits for one word, the owner's `version`; a death of the
   owner ends that wait. Publishing and advancing are plain stores without a wake-up. Before an
   owner waits or leaves, it wakes the others: it reads its `waiters`, and raises `version` only
   if there are some. Both change `waiters` by read-modify-write, so one of the two sees the
   other. */
#ifndef TUTTI_COLLECTIVE_RENDEZVOUS_H
#define TUTTI_COLLECTIVE_RENDEZVOUS_H
#include "collective_internal.h"

#define TUTTI_RENDEZVOUS_ENTRIES 32
#define TUTTI_ABANDONED UINT32_MAX
/* The number of groups that a rank records as given up, the last ones: engine/pieces.c gives up
   three a thread of a lane at most, and engine/members.c three a loss. */
#define TUTTI_ABORTED_GROUPS 256
#define TUTTI_STAGES 2                           /* collectives on foreign memory at one time; more
                                                    go over messages */
#define TUTTI_STAGE_BYTES ((size_t)256 << 10)    /* of one half; see window.c */

/* how others reach my vector */
typedef enum { TUTTI_REACH_NONE, TUTTI_REACH_WINDOW, TUTTI_REACH_STAGE } tutti_reach;

/* written before the tag is published, constant until the entry is free */
typedef struct tutti_where {
    double weight;
    uint64_t offset;        /* bytes in that window; REACH_STAGE: number of the stage */
    tutti_reach reach;
    uint32_t window;        /* REACH_WINDOW: number of the window */
} tutti_where;

typedef struct tutti_entry {
    _Alignas(64) _Atomic uint64_t tag;      /* owner only writes what is in here */
    _Atomic uint64_t serial;                /* the owner's count of entries */
    _Atomic uint32_t phase;                 /* starts at 1; TUTTI_ABANDONED: it gave up */
    uint32_t what;                          /* what, shape, count: see tutti_call_compare */
    int64_t shape;
    uint64_t count;
    union {
        tutti_where where;                  /* large */
        unsigned char payload[8 * TUTTI_INLINE_COUNT]; /* small */
    };
    int gone;                               /* abandoned: the rank that caused it; published by
                                               phase */
} tutti_entry;

/* One a rank, in its window; only its rank writes, except waiters. */
typedef struct tutti_rendezvous_table {
    _Alignas(64) _Atomic uint32_t version;  /* under the table's lock, held */
    /* Threads of other ranks on their way to await version; too high a count costs time only. */
    _Alignas(64) _Atomic uint32_t waiters;
    /* Sizes of its windows, for checking offsets. */
    _Alignas(64) _Atomic uint64_t window_bytes[TUTTI_WINDOWS];

    /* Groups (contexts) that this rank has given up over messages, and the rank that caused it.
       Without this record a member that waits for this rank in shared memory, in a later
       collective of the group, would wait for ever. n_aborted counts all; number k lies at k
       modulo TUTTI_ABORTED_GROUPS. Written under the table's lock; release: publishes the pair. */
    _Alignas(64) _Atomic uint32_t n_aborted;
    _Atomic uint64_t aborted[TUTTI_ABORTED_GROUPS];
    _Atomic int aborted_for[TUTTI_ABORTED_GROUPS];

    tutti_entry entries[TUTTI_RENDEZVOUS_ENTRIES];
    _Alignas(4096) unsigned char stages[TUTTI_STAGES][2][TUTTI_STAGE_BYTES];
    /* [owner]: serials of its entries that this rank has finished with. */
    _Alignas(64) _Atomic uint64_t finished[][TUTTI_RENDEZVOUS_ENTRIES];
} tutti_rendezvous_table;

typedef struct tutti_rendezvous_slot {      /* what the owner remembers of an entry; under `held` */
    uint64_t tag, serial;
    int left;                               /* how many of `ranks` are not known to have finished */
    int ranks[TUTTI_RENDEZVOUS_MEMBERS];
} tutti_rendezvous_slot;

/* crowded: there are more ranks than cores. Polling takes the core from the rank that is waited
   for, so there is one check, then the wait. */
typedef struct tutti_rendezvous {
    _Alignas(64) _Atomic bool held;         /* lock among the threads of this rank; see enter() */
    tutti_rendezvous_table **of_rank;
    tutti_rendezvous_table *mine;
    bool crowded;
    _Atomic uint32_t patience;              /* checks before a wait: doubles when they were
                                               enough, halves when they were not */
    /* Under held. */
    tutti_rendezvous_slot slots[TUTTI_RENDEZVOUS_ENTRIES];
    uint32_t displaced;                     /* bit k: entry k was not the preferred one, and not all
                                               have finished */
    bool stage_used[TUTTI_STAGES];
    uint64_t published;
} tutti_rendezvous;

/* Fills a free entry with phase 1 and `where`, or with `bytes` of payload if where is NULL.
   Blocks while all entries are in use. Wakes no member. */
tutti_status tutti_rendezvous_publish(const tutti_call *call, const tutti_where *where,
                                      const void *payload, size_t bytes, tutti_entry **out,
                                      tutti_error *err);
void tutti_rendezvous_advance(tutti_entry *mine, uint32_t phase); /* wakes no member */
/* wakes the members that wait; to be called after the calls that wake none, before waiting and
   before leaving */
void tutti_rendezvous_wake(const tutti_call *call);
/* This member gives up because of rank `gone`; all that follow this entry learn of it. The member
   may live on, so its death would never end their waiting. */
void tutti_rendezvous_abandon(const tutti_call *call, tutti_entry *mine, int gone);
/* glance: looks for member j's entry; glance_phase: checks that its phase is reached; for a
   moment, or, if patient, for as long as has paid off lately. NULL, or false: not yet. */
tutti_entry *tutti_rendezvous_poll(const tutti_call *call, int j, bool patient);
bool tutti_rendezvous_poll_phase(const tutti_call *call, tutti_entry *entry, uint32_t phase,
                                 bool patient);
/* find: blocks until member j has an entry for this call; follow: until it has reached phase. */
tutti_status tutti_rendezvous_await(const tutti_call *call, int j, tutti_entry **out,
                                    tutti_error *err);
tutti_status tutti_rendezvous_await_phase(const tutti_call *call, int j, tutti_entry *entry,
                                          uint32_t phase, tutti_error *err);
/* This member has finished with member j's entry. */
void tutti_rendezvous_finish(const tutti_call *call, int j, const tutti_entry *entry);
int tutti_rendezvous_stage_acquire(const tutti_world *world); /* -1: none is free */
void tutti_rendezvous_stage_release(const tutti_world *world, int stage);
/* Start of [offset, offset + bytes) of member j's window as announced; TUTTI_ERR_CORRUPT when it
   does not lie inside. */
tutti_status tutti_rendezvous_reach(const tutti_call *call, int j, const tutti_where *where,
                                    size_t bytes, unsigned char **out, tutti_error *err);
#endif
