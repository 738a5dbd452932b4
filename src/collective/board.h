/* board.h: where the members of a group on one host meet. Each rank has a board in a shared window of its own: entries that it
   writes and the others read. Between board.c (entries) and window.c (the collectives on them).

   An entry belongs to one collective of one group, found by its tag. Life of an entry, all in its owner's window:

     free (waiting = 0) -> owner: tag = 0, fields, payload, waiting = a bit for each other member, tag = the collective's (release)
       -> members: find it by tag (acquire), read, follow `phase` -> each clears its bit (release) -> free

   Tags may come again (a group made twice), even while others still read the entry before: a member's own bit tells which
   entries it has finished with, and of several left the one with the lowest serial is meant. Tags and bits lie close together, away from
   the payloads, since they are searched. Whoever waits for anything of rank r waits for one word, r's `version`, which r raises
   after every entry and phase it publishes; a death of r ends that wait. */
#ifndef TUTTI_COLLECTIVE_BOARD_H
#define TUTTI_COLLECTIVE_BOARD_H
#include "collective_internal.h"

#define TUTTI_BOARD_ENTRIES 32
#define TUTTI_ABANDONED UINT32_MAX
#define TUTTI_STAGES 2                           /* collectives on foreign memory at one time; more go over messages */
#define TUTTI_STAGE_BYTES ((size_t)256 << 10)    /* of one half; see window.c */

typedef enum { TUTTI_REACH_NONE, TUTTI_REACH_WINDOW, TUTTI_REACH_STAGE } tutti_reach; /* how others reach my vector */

typedef struct tutti_announcement { /* written before the tag is published, constant until the entry is free */
    uint64_t serial;        /* set by publish: the owner's count */
    uint32_t what;
    int64_t shape;
    uint64_t count;
    double weight;
    tutti_reach reach;
    uint32_t window;        /* REACH_WINDOW: number of the window */
    uint64_t offset;        /* bytes in that window; REACH_STAGE: number of the stage */
} tutti_announcement;

typedef struct tutti_entry {
    _Alignas(64) _Atomic uint32_t phase;    /* owner only writes; starts at 1; TUTTI_ABANDONED: it gave up */
    int gone;                               /* then: because of this rank; published by phase */
    tutti_announcement said;
    _Alignas(64) unsigned char payload[8 * TUTTI_INLINE_COUNT];
} tutti_entry;

typedef struct tutti_board_memory {         /* one a rank, in its window */
    _Alignas(64) _Atomic uint32_t version;  /* only its rank writes, under board->monitor */
    _Alignas(64) _Atomic uint64_t tags[TUTTI_BOARD_ENTRIES];     /* only its rank writes */
    _Alignas(64) _Atomic uint64_t waiting[TUTTI_BOARD_ENTRIES];  /* bit i: member i has not finished with this entry */
    _Alignas(64) _Atomic uint64_t window_bytes[TUTTI_WINDOWS]; /* sizes of its windows, for checking offsets */
    tutti_entry entries[TUTTI_BOARD_ENTRIES];
    _Alignas(64) unsigned char stages[TUTTI_STAGES][2][TUTTI_STAGE_BYTES];
} tutti_board_memory;

typedef struct tutti_board {
    tutti_monitor *monitor;                 /* among the threads of this rank: entries, stages, version */
    tutti_board_memory **of_rank;
    tutti_board_memory *mine;
    bool stage_used[TUTTI_STAGES];          /* under monitor */
    uint64_t published;                     /* under monitor */
} tutti_board;

/* Fills a free entry (payload: `bytes` of it) with phase 1. Blocks while all entries are in use. */
tutti_status tutti_board_publish(const tutti_call *call, const tutti_announcement *said, const void *payload, size_t bytes, tutti_entry **out,
                                 tutti_error *err);
void tutti_board_advance(const tutti_call *call, tutti_entry *mine, uint32_t phase);
/* This member gives up because of rank `gone`: whoever follows it hears so. It may live on, and its death would never end their waiting. */
void tutti_board_abandon(const tutti_call *call, tutti_entry *mine, int gone);
/* Blocks until member j has an entry for this call, resp. until it has reached phase. */
tutti_status tutti_board_find(const tutti_call *call, int j, tutti_entry **out, tutti_error *err);
tutti_status tutti_board_follow(const tutti_call *call, int j, tutti_entry *entry, uint32_t phase, tutti_error *err);
/* This member has finished with member j's entry. */
void tutti_board_clear(const tutti_call *call, int j, const tutti_entry *entry);
int tutti_board_stage_take(tutti_board *board);   /* -1: none is free */
void tutti_board_stage_give(tutti_board *board, int stage);
/* Start of [offset, offset + bytes) of member j's window as announced; TUTTI_ERR_CORRUPT when it does not lie inside. */
tutti_status tutti_board_reach(const tutti_call *call, int j, const tutti_announcement *said, size_t bytes, unsigned char **out, tutti_error *err);
#endif
