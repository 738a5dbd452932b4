/* shm_region.h: the region, which is the memory that all ranks of a run on one host share.
   Implemented in region.c. Included by the files of the transport shm, which the ranks run, and by
   src/launch: by the launcher, which is the ranks' parent and records how they end, and by
   gather.c and beside.c, which do the same for ranks that have another parent.

   The region is one file in memory without a name (memfd). If all ranks are threads of one process
   it is ordinary memory of that process. Its layout:

       header with the rank records | expulsions | pairs | memory of the pairs' rings |
       windows, appended later by window.c

   For each ordered pair (sender, receiver) there are two rings, each with one process that writes
   and one that reads. The control ring has entries of fixed size (shm_entry): small messages,
   announcements of large ones, control messages. The data ring has the bytes of large messages. A
   ring's head (bytes or entries read) and tail (written) only grow, and wrap at 2^32; the position
   in the ring is the counter modulo the ring's size, a power of two.

   A process may be killed at any instruction. There is no lock in this memory, hence none that
   stays held, and a reader finds whole entries up to the published tail.

   A rank may be expelled from the run while its process lives. Several ranks may expel one at the
   same time, so no rank writes into another's record, `expelled` excepted. A rank that expels
   another

     1. gets the next number of an expulsion;
     2. writes which rank expels, and why, into the expulsion of that number;
     3. sets `expelled` of the other rank by one compare-and-exchange, in which the first one wins.

   If it is killed in between, that number is not used. */
#ifndef TUTTI_SHM_REGION_H
#define TUTTI_SHM_REGION_H
#include <stdatomic.h>
#include "tutti/transport.h"

/* The environment variables by which the launcher passes the region's descriptor (inherited), the
   rank and the number of ranks to a worker. */
#define TUTTI_SHM_VARIABLE_FD "TUTTI_SHM_FD"
#define TUTTI_SHM_VARIABLE_RANK "TUTTI_RANK"
#define TUTTI_SHM_VARIABLE_SIZE "TUTTI_SIZE"

#define TUTTI_SHM_MAGIC UINT32_C(0x74757469)
#define TUTTI_SHM_VERSION 2u
#define TUTTI_SHM_RANKS 1024     /* most ranks of a run; the number of rings grows with its
                                    square */
#define TUTTI_SHM_LINE 64        /* bytes of a cache line */
#define TUTTI_SHM_INLINE 184     /* most payload bytes of a small message: they are in its entry */
#define TUTTI_SHM_REASON_BYTES 512 /* of a failure report, the NUL included */

/* The state of a rank. It only grows. */
typedef enum tutti_shm_state {
    TUTTI_SHM_ABSENT,            /* has not joined */
    TUTTI_SHM_RUNNING,
    TUTTI_SHM_CLOSED,            /* left in order; may still become FAILED */
    TUTTI_SHM_FAILED,            /* left with a failure report */
    TUTTI_SHM_LOST               /* ended without a report, and its parent wrote how; or expelled */
} tutti_shm_state;

/* An expulsion. by: the rank that expels, or TUTTI_SHM_PARENT. */
typedef struct tutti_shm_expulsion { int32_t by; char why[204]; } tutti_shm_expulsion;
enum { TUTTI_SHM_PARENT = -1 };

/* The record of a rank. */
typedef struct tutti_shm_rank {
    /* How the rank ended. Written by the rank itself, or by its parent once it cannot run any more;
       `state` last, with release. blame, order, status and reason are valid if state is FAILED or
       LOST, signal if it is LOST. */
    _Alignas(TUTTI_SHM_LINE) _Atomic uint32_t state;
    _Atomic int32_t pid;
    int32_t node;                /* NUMA node (tutti_node_here) when it joined, or -1; published by
                                    the first barrier */
    int32_t blame;               /* the rank that caused its failure, or -1 */
    uint32_t order;              /* its number among the failures of the run: 0, 1, ... */
    uint32_t status;             /* tutti_status of the failure */
    int32_t signal;              /* the signal that killed it, or 0 */
    char reason[TUTTI_SHM_REASON_BYTES]; /* its failure report, or how it was lost */
    _Atomic uint32_t expelled;   /* 0: not expelled; else 1 + the number of the expulsion. Set once,
                                    by any rank or the parent, with release */
    _Atomic uint32_t stopped;    /* 1: its process is stopped (SIGSTOP); see tutti_shm_stopped */

    /* Another rank that has something for this one adds 1 to `wakeups`, a futex word, and then
       wakes its threads if `sleepers` is not 0. */
    _Alignas(TUTTI_SHM_LINE) _Atomic uint32_t wakeups;
    _Atomic uint32_t sleepers;   /* threads of this rank in, or about to enter, the futex wait */
    _Atomic uint32_t awaiting;   /* those of them that wait for a word of a window */

    /* Barriers of all ranks (tutti_shm_meet), when they open and for windows: the rank writes its
       data, then `step` with release. */
    _Alignas(TUTTI_SHM_LINE) _Atomic uint32_t step; /* barriers that the rank has entered */
    int32_t window_cause;        /* errno of reserving its part, or 0 */
    int32_t window_map_cause;    /* errno of mapping the window, or 0 */
    uint64_t window_bytes;       /* of its part */
    char window_name[48];
} tutti_shm_rank;

/* The counters of the two rings of an ordered pair (sender, receiver). */
typedef struct tutti_shm_pair {
    /* Written by the sender; `starved` is reset by the receiver. tail: entries (control) or bytes
       (data) published since the start. starved: 1: the sender must be woken when there is space
       again. */
    _Alignas(TUTTI_SHM_LINE) _Atomic uint32_t control_tail;
    _Atomic uint32_t data_tail, control_starved, data_starved;
    /* Written by the receiver. head: entries or bytes that were read since the start. */
    _Alignas(TUTTI_SHM_LINE) _Atomic uint32_t control_head;
    _Atomic uint32_t data_head;
} tutti_shm_pair;

typedef struct tutti_shm_header {
    uint32_t magic, version;     /* TUTTI_SHM_MAGIC, TUTTI_SHM_VERSION */
    uint64_t bytes;              /* of the region without windows */
    int32_t size;                /* number of ranks */
    uint32_t spin;               /* 1: each rank has a core of its own, so short waits may poll */
    uint32_t control_entries;    /* of each control ring; a power of two */
    uint32_t data_bytes;         /* of each data ring; a power of two */
    uint64_t expulsions_offset;  /* from the region's start: tutti_shm_expulsion[2 * size] */
    uint64_t pairs_offset;       /* tutti_shm_pair[size * (size - 1)] */
    uint64_t rings_offset;       /* for each pair its control ring, then its data ring */
    /* Grows by 1 whenever a rank leaves, is expelled, is stopped or continues. */
    _Alignas(TUTTI_SHM_LINE) _Atomic uint32_t changes;
    _Atomic uint32_t failures;   /* ranks FAILED or LOST; the next tutti_shm_rank.order */
    _Atomic uint32_t expulsions; /* expulsions begun. Those after the first 2 * size are not
                                    recorded; they still count */
    /* Threads of all ranks that sleep in tutti_shm_await: while it is 0, tutti_shm_publish costs
       one store and one load. */
    _Alignas(TUTTI_SHM_LINE) _Atomic uint32_t awaiting;
    _Alignas(TUTTI_SHM_LINE) tutti_shm_rank ranks[]; /* [size] */
} tutti_shm_header;

/* A process's view of the region. */
typedef struct tutti_shm_region {
    int fd;                      /* -1: ordinary memory of this process */
    bool owned;                  /* tutti_shm_region_close unmaps it and closes fd */
    tutti_shm_header *header;    /* the mapping; NULL: none */
} tutti_shm_region;

#pragma GCC visibility push(default)
/* Creates and maps a region for `size` ranks. spin: for tutti_shm_header.spin. The descriptor is
   closed on exec. TUTTI_ERR_USAGE, TUTTI_ERR_IO, TUTTI_ERR_MEMORY: *out is closed. */
tutti_status tutti_shm_region_open(tutti_shm_region *out, int size, bool spin, tutti_error *err);
/* Does the same for ranks that are threads of this process, in ordinary memory. */
tutti_status tutti_shm_region_own(tutti_shm_region *out, int size, bool spin, tutti_error *err);
/* Maps the region that a parent has created, after checking that fd is such a region and that rank
   and size fit it. Takes fd over on success. TUTTI_ERR_USAGE, TUTTI_ERR_CORRUPT (another layout),
   TUTTI_ERR_MEMORY. */
tutti_status tutti_shm_region_attach(tutti_shm_region *out, int fd, int rank, int size,
                                     tutti_error *err);
/* Unmaps and closes it, if owned. Leaves errno alone. May be called again. */
void tutti_shm_region_close(tutti_shm_region *region);

/* Records how a rank ended (state: CLOSED, FAILED or LOST) and wakes all ranks. why: NULL: no
   reason. signal: that killed it, or 0. A rank that is FAILED or LOST stays so, and one that is
   CLOSED can only become FAILED. Called by the rank itself, or by its parent once the rank cannot
   run. */
void tutti_shm_depart(const tutti_shm_region *region, int rank, tutti_shm_state state,
                      const tutti_error *why, int signal);
/* Returns the state of a rank; LOST if it is expelled, whatever its record says. An acquire: what
   the rank had sent before is visible. */
tutti_shm_state tutti_shm_state_of(const tutti_shm_region *region, int rank);
/* Expels `rank` from the run. by: the calling rank, or TUTTI_SHM_PARENT. why: copied. false: the
   rank had left, failed or been lost already. Any process of the run may call it at any time. */
bool tutti_shm_expel(const tutti_shm_region *region, int rank, int by, const char *why);
/* Writes how a rank was expelled: "worker 0 has expelled it: ...". false: it was not; text is as
   before. */
bool tutti_shm_expelled(const tutti_shm_region *region, int rank, char *text, size_t bytes);
/* Records whether the process of a rank is stopped, and wakes all ranks on a change. Called by the
   process that watches it: its parent, or another rank (launch/beside.c). */
void tutti_shm_stopped(const tutti_shm_region *region, int rank, bool stopped);
/* Returns the rank that caused the end of `rank`: follows `blame` from rank to rank and returns the
   last one; `rank` itself for a cycle. */
int tutti_shm_root(const tutti_shm_region *region, int rank);
/* Returns the rank that caused the failure of the run: the first that was killed by a signal, else
   the first that failed by itself or was expelled, else the first that failed because of another.
   -1: none has failed or is lost. */
int tutti_shm_culprit(const tutti_shm_region *region);
/* Writes a sentence about a rank's state: "worker 2 was lost: killed by signal 9 (SIGKILL)",
   "worker 2 failed: ...", "worker 2 has left the run", "worker 2 is there". */
void tutti_shm_describe(const tutti_shm_region *region, int rank, char *text, size_t bytes);

/* Reserves memory for [offset, offset + bytes) of the file, so that touching it cannot fail.
   Returns 0 or an errno. */
int tutti_shm_reserve(int fd, uint64_t offset, uint64_t bytes);
/* Wakes the threads of one rank, and of all ranks. */
void tutti_shm_wake(tutti_shm_rank *rank);
void tutti_shm_wake_all(tutti_shm_header *header);
#pragma GCC visibility pop
#endif
