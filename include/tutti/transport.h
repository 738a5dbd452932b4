/* transport.h: the interface that a transport implements. All layers above are independent of the
   transport. Built in: shm (one host), tcp (any hosts). Plug-ins: sim (virtual time), mpi. */
#ifndef TUTTI_TRANSPORT_H
#define TUTTI_TRANSPORT_H
#include "base.h"
#include <stdatomic.h>

/* A flag and a counter that threads share, and with windows processes too. In C11 they are
   atomics. C99 and C++ have no type in common with them. There they are opaque values of the same
   size and alignment: read them with tutti_request_done, or pass them on. The layout in memory is
   the same (tests/package compares). */
#if !defined(__cplusplus) && defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L
typedef _Atomic bool tutti_flag;
typedef _Atomic uint32_t tutti_word;
#else
typedef struct tutti_flag { bool opaque; } tutti_flag;
typedef struct tutti_word { uint32_t opaque; } tutti_word;
#endif

#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

#define TUTTI_ANY (-1)
#define TUTTI_TRANSPORT_ABI 5

/* A message is a header (tutti_header) and an optional payload. The header is a few integers, 40
   bytes when sent; small protocols need no payload. */
typedef struct tutti_header {
    int32_t from;          /* set by the transport */
    uint32_t kind;         /* free for the user */
    int64_t a, b;          /* free for the user */
    uint64_t ticket;       /* set by tutti_rpc_call; a reply goes to the port of this number */
    uint64_t bytes;        /* payload; set by the transport */
} tutti_header;

/* One message in flight. The memory is the caller's. It must not move or change from posting
   until wait_some has reported it done, or until cancel. A zeroed request is not posted. */
typedef struct tutti_request {
    tutti_header note;     /* of a receive: the header received */
    /* Valid once done. OK; CORRUPT: the payload is larger than the receive buffer, note.bytes is
       its size; PEER: a rank that it needs is lost; CLOSED: the transport was closed meanwhile. */
    tutti_status status;
    /* With PEER: the rank that is lost or caused the loss; this rank only if it was expelled. */
    int rank;
    /* Stored with release by the thread that completes the request. An acquire load that returns
       true makes note, status and payload visible. */
    tutti_flag done;
    bool posted;           /* wait_some counts requests that are not posted as done */
    void *internal[8];
} tutti_request;
/* Is it done? An acquire load of `done`, in every language: if true, the rest may be read. */
static inline bool tutti_request_done(const tutti_request *r)
{
    return __atomic_load_n((const bool *)(const void *)&r->done, __ATOMIC_ACQUIRE);
}

/* The place of a process in a run, found in the launcher's environment or given by transport->run.

   waits: reports which ranks are missing while open waits for them: 2 s after the beginning, then
   every 5 s. It is called on a thread of the transport or on the caller's, one call at a time,
   and never after open has returned. NULL: no reports. */
typedef struct tutti_launch {
    int rank, size;
    const char *spec;         /* "shm" or "shm(option=...)" */
    char *const *environment; /* as environ */
    void *within;             /* for use by run(); NULL otherwise */
    tutti_runtime *rt;        /* the transport's own runtime (sim); NULL: the caller's */
    void (*waits)(void *user, const char *line);
    void *user;
} tutti_launch;

/* A change of a peer's state. LOST is permanent (it died, was silent for too long, or expelled):
   later messages of it are discarded. Not for one that left in order. BACK withdraws SILENT. */
typedef enum tutti_peer_change {
    TUTTI_PEER_LOST = 1,
    TUTTI_PEER_SILENT,
    TUTTI_PEER_BACK
} tutti_peer_change;
typedef struct tutti_peer_event {
    /* Epoch of the membership from this event on: the number of ranks that this rank knows to be
       lost, the one of this event included. 0: none. */
    uint32_t epoch;
    int32_t rank;
    tutti_peer_change change;
    int64_t at_ns;            /* of the runtime's clock, when this rank learnt of it */
    /* A sentence: "worker 2 was lost: process 4711 was killed by signal 9 (SIGKILL)". Truncated
       at a whole character; no control characters. */
    char why[200];
} tutti_peer_event;

struct tutti_world; /* comm.h */
/* ---- the table of a transport. Members are in the order of the table's versions; the comments
   of optional ones state the behaviour without them. ---- */
typedef struct tutti_transport_ops {
    uint32_t abi, bytes;                 /* TUTTI_TRANSPORT_ABI, sizeof *this */
    uint32_t runtime_abi, runtime_bytes; /* TUTTI_RUNTIME_ABI, sizeof(tutti_runtime_ops) */
    const char *name, *help;
    const tutti_option *options;
    size_t options_bytes;                /* of the struct that the options are written to */

    /* Blocks until all ranks are present. */
    tutti_status (*open)(void **t, tutti_runtime *rt, const tutti_launch *launch, tutti_error *err);
    /* Accepts NULL and a partly opened transport. Waits for no rank. Requests end: TUTTI_CLOSED. */
    void (*close)(void *t);

    /* ---- messages: any thread of the rank ---- */
    /* send and recv post `r` and return at once: posting never blocks.

       Matching is exact on the 64 bits of `tag`, and on `from` unless that is TUTTI_ANY. Messages
       of equal (from, tag) arrive in the order in which they were sent. Sending to oneself is
       legal. A send is done when the receiver has taken the message; a small one maybe earlier.

       note: copied; NULL: all zero. payload, room (the receive buffer): host memory, count times
       the element's size bytes. The caller must not touch them until the request is done, also if
       it ends with a failure. A payload that is larger than the receive buffer ends the receive
       with TUTTI_ERR_CORRUPT, with both sizes.

       OK: the request is posted, and it ends exactly once, maybe before the call returns. A
       failure: nothing was posted. Nothing is in flight, there is nothing to cancel or to wait
       for, the other side receives nothing, and the buffer is the caller's again. The request is
       then as follows:
         TUTTI_ERR_USAGE   No such rank, no such memory. *r is as it was before the call.
         TUTTI_ERR_STATE   It is still in flight. *r is as it was, and stays in flight.
         Others            No memory, or a medium that has failed. *r is not posted, and may be
                           posted again. */
    tutti_status (*send)(void *t, tutti_request *r, int to, uint64_t tag, const tutti_header *note,
                         tutti_buffer payload, tutti_error *err);
    tutti_status (*recv)(void *t, tutti_request *r, int from, uint64_t tag, tutti_buffer room,
                         tutti_error *err);
    /* Blocks until at least `need` of r[0..n) are done. need = n: all; 1: any; 0, or a deadline
       of 0: only tests. *n_done: how many are done in total. Entries that are NULL or not posted
       count as done. TUTTI_TIMEOUT: the deadline passed.

       The status of a failed request is NOT returned here: each request has its own. The loss of
       a peer ends the requests that need it with TUTTI_ERR_PEER; a receive from TUTTI_ANY ends so
       only once all other ranks are lost or have left.

       Progress is made by the waiting threads. No hidden thread is needed, and no thread of the
       transport may occupy a core while no thread waits. */
    tutti_status (*wait_some)(void *t, tutti_request *const *r, size_t n, size_t need,
                              int64_t deadline_ns, size_t *n_done, tutti_error *err);
    /* Afterwards the memory is the caller's again. Does nothing for a request that is done or not
       posted. A cancelled receive has consumed no message. */
    void (*cancel)(void *t, tutti_request *r);

    /* ---- endings ---- */
    /* The lowest rank that failed or was lost, or the rank that caused its failure; -1: none. A
       rank that left in order does not count. why (may be NULL): its report, or how it ended. */
    int (*dead_peer)(void *t, char *why, size_t bytes);
    /* This rank's failure report, for launcher and peers. Called once, on failure, before close. */
    void (*failure_report)(void *t, const tutti_error *err);

    /* ---- memory that all ranks of the run map (same host). Optional ---- */
    /* A collective call: all ranks, in the same order, with the same name. `bytes` may differ by
       rank; 0: this rank has no window. of_rank: an array of `size` pointers; of_rank[rank] is
       this rank's. The memory is zeroed, 64-byte aligned, and lives until close. Between
       processes it is reserved in full before any rank touches it. Between ranks of one process
       it is ordinary memory of that process. Not enough memory: TUTTI_ERR_MEMORY on every rank,
       with the bytes needed, the bytes available and a remedy. NULL member: collectives use
       messages, and the engine's vectors are private. */
    tutti_status (*window)(void *t, const char *name, size_t bytes, void **of_rank,
                           tutti_error *err);
    /* Flags in windows; both or neither. NULL: collectives use messages, and windows serve as
       common memory only.
       publish: *word = value (release), then wakes the threads that sleep in await. */
    void (*publish)(void *t, tutti_word *word, uint32_t value);
    /* Blocks until the word has reached `value`, compared as a wrapping difference (acquire), or
       until `peer` is lost (TUTTI_ERR_PEER, err->rank). */
    tutti_status (*await)(void *t, int peer, tutti_word *word, uint32_t value, int64_t deadline_ns,
                          tutti_error *err);

    /* ---- ranks that are no processes. Optional ---- */
    /* Runs rank_main as n ranks of this process (shm: threads; sim: actors) and returns when all
       have ended. Returns OK or the root failure: that of the first rank that failed by itself,
       not because of another. NULL: ranks are processes. */
    tutti_status (*run)(tutti_runtime *rt, const tutti_launch *launch,
                        tutti_status (*rank_main)(const tutti_launch *launch, void *arg,
                                                  tutti_error *err),
                        void *arg, tutti_error *err);
    /* Ranks exist only in run(), on the transport's own runtime in virtual time. A command then
       calls run() itself instead of starting processes. */
    bool simulated;

    /* Optional: the host of a rank, as a number. Ranks with equal numbers share a host, and
       messages between them use no network link. The same on every rank, for the transport's
       life. NULL: all ranks are on one host, or the hosts are unknown. */
    int (*host)(void *t, int rank);

    /* ---- a rank's loss is not the end of the run. Optional, both or neither ---- */

    /* With the two members below the requests and awaits that need a lost rank end with
       TUTTI_ERR_PEER and its number. All others continue as before. Messages that a lost rank had
       sent before can still be received, if they are small; large ones cannot. Collective calls
       (window) need all ranks, so after a loss they end with TUTTI_ERR_PEER. NULL: after a loss the
       transport guarantees only clean failure (mpi). */
    /* Writes the events from number `first` on, in the order in which they were detected, as many
       as `out` has space for. Returns how many there are in total. It checks for losses first, so
       one is detected without waiting. Each loss is listed once, before any request has ended
       because of it. Of warnings (SILENT, BACK) the first 256 are kept. Cheap; any thread. */
    int (*events)(void *t, int first, tutti_peer_event *out, int room);
    /* From now on `rank` is lost to this rank, and to all others and to itself as far as they can
       be notified. Its own requests and waits then end with TUTTI_ERR_PEER, its own number and a
       sentence that states which rank expelled it and why. Its launcher ends its process. Does
       nothing for a rank that is lost or has left already, or for this rank. Any thread. */
    void (*expel)(void *t, int rank, const char *why);

    /* Optional: the NUMA node to which a rank was bound when it opened, by its host's number.
       Ranks with equal host and node have the same local memory. -1: the rank was bound to none,
       or the node is unknown. The same on every rank, for the transport's life. NULL: nodes are
       unknown. */
    int (*node)(void *t, int rank);
} tutti_transport_ops;

/* The built-in transport of that name, or else a plug-in, libtutti_transport_NAME.so.

   The plug-in is searched for in the folder of this library, or of the program that links it
   statically; then in the running executable's folder, where an install puts libraries; then in
   its ../lib. It exports `const tutti_transport_ops tutti_transport_plugin` and stays loaded.

   TUTTI_ERR_USAGE, one of two:
     1. There is none. *tried (may be NULL) is then the path at which an install would have it, ""
        for a name that cannot be a file name.
     2. It cannot be loaded, or is of another version. The sentence has its path. Allocates. */
tutti_status tutti_transport_load(const char *name, const tutti_transport_ops **out, char *tried,
                                  size_t bytes, tutti_error *err);

/* Is the transport of these interfaces? TUTTI_ERR_USAGE if not: the sentence begins with `whose`
   ("the transport 'sim'", or a file) and has both numbers. Loading and opening call this. Pure. */
tutti_status tutti_transport_check(const tutti_transport_ops *ops, const char *whose,
                                   tutti_error *err);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
