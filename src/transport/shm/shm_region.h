/* shm_region.h: the memory that all ranks of a run on one host share, and what the launcher may
   do with it. It is used by the shm transport (the ranks) and by the launch module (their parent)
   only.

   The region is one nameless file in memory (memfd), or, where all ranks are threads of one
   process, memory of that process. It begins

       header | rank records | expulsions | pairs | bodies of the pairs' rings | ...
       windows, appended later by shm/window.c

   For each ordered pair (sender, receiver) there are two rings, each with one writing and one
   reading process. `control` has entries of fixed size: small messages, announcements of large
   ones, answers. `data` carries the bytes of large ones. All counters only grow and wrap at 2^32;
   a ring's position is the counter modulo its size, a power of two.

   Another process may be killed at any instruction. What is found here then is whole entries up
   to the published tail. There is no lock in this memory, hence none that can be left held.

   A rank may be given up while its process lives (expelled). Any rank may do that to any other at
   the same time, so no rank writes into another's record. A rank that expels another

     1. takes the next number;
     2. writes at that place which rank expels, and why;
     3. sets `expelled` of the other by one exchange, which the first wins.

   If it is killed in between, a number is wasted. */
#ifndef TUTTI_SHM_REGION_H
#define TUTTI_SHM_REGION_H
#include <stdatomic.h>
#include "tutti/transport.h"

/* How the launcher passes the region to its children. The descriptor is inherited; the caller of
   open() reads rank and size. */
#define TUTTI_SHM_VARIABLE_FD "TUTTI_SHM_FD"
#define TUTTI_SHM_VARIABLE_RANK "TUTTI_RANK"
#define TUTTI_SHM_VARIABLE_SIZE "TUTTI_SIZE"

#define TUTTI_SHM_MAGIC UINT32_C(0x74757469)
#define TUTTI_SHM_VERSION 2u
/* most workers of one host; the rings of more would not fit any memory */
#define TUTTI_SHM_RANKS 1024
#define TUTTI_SHM_LINE 64
#define TUTTI_SHM_INLINE 184     /* payload bytes that travel within a control entry */
#define TUTTI_SHM_WORDS 512

/* of a rank; only ever grows, except that CLOSED may become FAILED */
typedef enum tutti_shm_state {
    TUTTI_SHM_ABSENT,            /* not yet joined */
    TUTTI_SHM_RUNNING,
    TUTTI_SHM_CLOSED,            /* left normally */
    TUTTI_SHM_FAILED,            /* left with a failure report */
    TUTTI_SHM_LOST               /* ended without a report, and its parent wrote how; or expelled */
} tutti_shm_state;

/* by: a rank, or TUTTI_SHM_PARENT */
typedef struct tutti_shm_expulsion { int32_t by; char why[204]; } tutti_shm_expulsion;
enum { TUTTI_SHM_PARENT = -1 };

typedef struct tutti_shm_rank {
    /* What happened to it. Written by the rank, or by its parent once it is gone; `state` last,
       with release. blame, order, status and words are valid from FAILED on, signal when LOST. */
    _Alignas(TUTTI_SHM_LINE) _Atomic uint32_t state;
    _Atomic int32_t pid;
    int32_t node;                /* NUMA node that it was bound to when it joined, or -1; published
                                    by `step` in the first meeting */
    int32_t blame;               /* rank it failed because of, or -1 */
    uint32_t order;              /* its place among the failures of the run, from 0 */
    uint32_t status;             /* tutti_status of the failure report */
    int32_t signal;              /* that killed it, or 0 */
    char words[TUTTI_SHM_WORDS];
    _Atomic uint32_t expelled;   /* 0, or 1 + the number of the expulsion, its place in the array if
                                    it has one; set once, by any rank or the parent, with release */
    _Atomic uint32_t stopped;    /* 1: its parent sees that it is stopped; 0: not (any more) */

    /* Any rank with news for this one adds 1 to `wakeups`, then wakes it if `sleepers` is not 0. */
    _Alignas(TUTTI_SHM_LINE) _Atomic uint32_t wakeups;
    _Atomic uint32_t sleepers;   /* threads of this rank in, or about to enter, the futex_wait */
    _Atomic uint32_t awaiting;   /* those of them that wait for a word of a window */

    /* Meetings of all ranks (open, windows): the rank writes its data, then `step` with
       release. */
    _Alignas(TUTTI_SHM_LINE) _Atomic uint32_t step;
    int32_t window_cause;        /* errno of its reservation, or 0 */
    int32_t window_map_cause;    /* errno of its mapping, or 0 */
    uint64_t window_bytes;
    char window_name[48];
} tutti_shm_rank;

typedef struct tutti_shm_pair {
    /* Written by the sender. tail: published entries. starved: it must be woken when there is
       space again. */
    _Alignas(TUTTI_SHM_LINE) _Atomic uint32_t control_tail;
    _Atomic uint32_t data_tail, control_starved, data_starved;
    /* Written by the receiver. */
    _Alignas(TUTTI_SHM_LINE) _Atomic uint32_t control_head;
    _Atomic uint32_t data_head;
} tutti_shm_pair;

typedef struct tutti_shm_header {
    uint32_t magic, version;
    uint64_t bytes;              /* of the region without windows */
    int32_t size;                /* ranks */
    uint32_t spin;               /* each rank has a core of its own: short waits may poll */
    uint32_t control_entries, data_bytes; /* of each pair; powers of two */
    uint64_t expulsions_at, pairs_at, rings_at; /* offsets */
    /* Changes with every rank that leaves, is expelled, stops or continues. */
    _Alignas(TUTTI_SHM_LINE) _Atomic uint32_t changes;
    _Atomic uint32_t failures;   /* the source of tutti_shm_rank.order */
    _Atomic uint32_t expulsions; /* numbers taken; there is space for 2 * size entries */
    /* Threads of all ranks asleep in await(): while it is 0 publish() costs one store and one
       load. */
    _Alignas(TUTTI_SHM_LINE) _Atomic uint32_t awaiting;
    _Alignas(TUTTI_SHM_LINE) tutti_shm_rank ranks[];
} tutti_shm_header;

typedef struct tutti_shm_region {
    int fd;                      /* -1: the process's own memory */
    bool owned;                  /* unmap and close with it */
    tutti_shm_header *header;
} tutti_shm_region;

#pragma GCC visibility push(default)
/* Makes and maps the region of `size` ranks. `spin`: see the header. The descriptor is
   close-on-exec. */
tutti_status tutti_shm_region_open(tutti_shm_region *out, int size, bool spin, tutti_error *err);
/* The same for ranks that are threads of this process: its own memory, for which the kernel
   provides only the pages that are touched. No other process can find it. */
tutti_status tutti_shm_region_own(tutti_shm_region *out, int size, bool spin, tutti_error *err);
/* Maps the region a parent has made, after checking that it is one. */
tutti_status tutti_shm_region_attach(tutti_shm_region *out, int fd, int rank, int size,
                                     tutti_error *err);
void tutti_shm_region_close(tutti_shm_region *region);

/* Records how a rank ended and wakes all others. Has no effect on one that is already FAILED or
   LOST, nor makes CLOSED LOST. Called by the rank itself, or by its parent after the rank can no
   longer run. */
void tutti_shm_depart(const tutti_shm_region *region, int rank, tutti_shm_state state,
                      const tutti_error *why, int signal);
/* The state of a rank: `state`, but LOST of one that was expelled before it left. Acquires what
   it sent before. */
tutti_shm_state tutti_shm_state_of(const tutti_shm_region *region, int rank);
/* Gives `rank` up for all, as rank `by` or as TUTTI_SHM_PARENT; false: it had left, or was lost,
   already. May be called by any rank or the parent at any time. */
bool tutti_shm_expel(const tutti_shm_region *region, int rank, int by, const char *why);
/* "worker 0 has expelled it: ..." of one that was; false: it was not. */
bool tutti_shm_expelled(const tutti_shm_region *region, int rank, char *text, size_t bytes);
/* Called by its parent: whether it is stopped. All ranks are woken on a change. */
void tutti_shm_stopped(const tutti_shm_region *region, int rank, bool stopped);
/* The rank that `rank`'s end goes back to: itself, unless it failed because of another. */
int tutti_shm_root(const tutti_shm_region *region, int rank);
/* The rank whose failure is the run's: one that was killed before the first that failed by
   itself, and that before the first that failed; -1: none. */
int tutti_shm_culprit(const tutti_shm_region *region);
/* "worker 2 was lost: killed by signal 9 (SIGKILL)", "worker 2 failed: ...", "worker 2 has left the
   run". */
void tutti_shm_describe(const tutti_shm_region *region, int rank, char *text, size_t bytes);

/* Reserves [offset, offset + bytes) of the file, so that touching it cannot fail: 0 or an
   errno. */
int tutti_shm_reserve(int fd, uint64_t offset, uint64_t bytes);
void tutti_shm_wake(tutti_shm_rank *rank);
void tutti_shm_ring_all(tutti_shm_header *header);
#pragma GCC visibility pop
#endif
