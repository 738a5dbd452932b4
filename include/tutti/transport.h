/* transport.h: what a transport must offer. Everything above it is written once, for all of them.
   Built in: shm (one host), tcp (any hosts). Plug-ins: sim (virtual time), mpi. */
#ifndef TUTTI_TRANSPORT_H
#define TUTTI_TRANSPORT_H
#include "device.h"
#include "options.h"

/* A flag and a counter that threads share, and with windows processes too. To C11 they are atomics.
   C99 and C++ have no common word for those. There they are opaque values of the same size and
   alignment: read them with tutti_request_done, or hand them on. Nothing differs in memory
   (tests/package compares). */
#if !defined(__cplusplus) && defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L
#include <stdatomic.h>
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

/* A message is a note and an optional payload. The note is a few integers, 40 bytes on the wire;
   small protocols need nothing more. */
typedef struct tutti_note {
    int32_t from;          /* set by the transport */
    uint32_t kind;         /* user's */
    int64_t a, b;          /* user's */
    uint64_t ticket;       /* set by tutti_call; a reply goes to the port of this number */
    uint64_t bytes;        /* payload; set by the transport */
} tutti_note;

/* One message in flight. The memory is the caller's. It must not move or change from the posting
   until wait_some has said that it is done, or until cancel. A zeroed request is not posted. */
typedef struct tutti_request {
    tutti_note note;       /* of a receive: what came */
    /* Valid once done. OK; CORRUPT: the payload is larger than the room, note.bytes says how large;
       PEER: a rank that it needs is gone; CLOSED: the transport was closed meanwhile. */
    tutti_status status;
    /* Of PEER: the rank that is gone, or the rank because of which it is (the root). It is this
       rank itself only if this rank was expelled, whomever others blame. */
    int rank;
    /* Stored with release by the thread that ends the request. A load with acquire that gives true
       makes note, status and payload visible. */
    tutti_flag done;
    bool posted;           /* wait_some counts requests that are not posted as done */
    void *internal[8];
} tutti_request;
/* Has it ended? An acquire load of `done`, in every language. After a true everything else that the
   request says may be read. */
static inline bool tutti_request_done(const tutti_request *r)
{
    return __atomic_load_n((const bool *)(const void *)&r->done, __ATOMIC_ACQUIRE);
}

/* How a process found its place in a run: by the launcher's environment, or as a rank of
   transport->run.

   waits: told which ranks are missing while open waits for them: 2 s after the beginning, then
   every 5 s. It is called by a thread of the transport or by the caller's, one at a time, and never
   after open has returned. NULL: nobody wants to know. */
typedef struct tutti_launch {
    int rank, size;
    const char *spec;         /* "shm" or "shm(option=...)" */
    char *const *environment; /* as environ */
    void *within;             /* run()'s own; NULL otherwise */
    tutti_runtime *rt;        /* where the transport brings its own (sim); NULL: the caller's */
    void (*waits)(void *user, const char *line);
    void *user;
} tutti_launch;

/* What a rank learns of a peer. LOST is for good: the peer died, was silent for too long, or was
   expelled by others. Whatever comes from it afterwards is thrown away. A peer that left in order
   is not lost. SILENT is a warning, BACK takes it back. */
typedef enum tutti_peer_change {
    TUTTI_PEER_LOST = 1,
    TUTTI_PEER_SILENT,
    TUTTI_PEER_BACK
} tutti_peer_change;
typedef struct tutti_peer_event {
    /* Epoch of the membership from here on: how many ranks are lost to this rank, this one
       included. 0: none. */
    uint32_t epoch;
    int32_t rank;
    tutti_peer_change change;
    int64_t at_ns;            /* of the runtime's clock, when this rank learnt of it */
    /* A sentence: "worker 2 was lost: process 4711 was killed by signal 9 (SIGKILL)". Cut at a
       whole character; no control characters. */
    char why[200];
} tutti_peer_event;

struct tutti_world; /* comm.h */
/* ---- the table of a transport. Members are in the order of the table's versions; optional ones
   say what holds without them. ---- */
typedef struct tutti_transport_ops {
    uint32_t abi, bytes;                 /* TUTTI_TRANSPORT_ABI, sizeof *this */
    uint32_t runtime_abi, runtime_bytes; /* TUTTI_RUNTIME_ABI, sizeof(tutti_runtime_ops) */
    const char *name, *help;
    const tutti_option *options;
    size_t options_bytes;                /* of the struct that the options are written to */

    /* Blocks until all ranks are there. */
    tutti_status (*open)(void **t, tutti_runtime *rt, const tutti_launch *launch, tutti_error *err);
    /* Takes NULL and what open left half built. Waits for no other rank. What is in flight ends
       with TUTTI_CLOSED. */
    void (*close)(void *t);

    /* ---- messages: any thread of the rank ---- */
    /* Both post `r` and return at once: posting never blocks.

       Matching is exact on the 64 bits of `tag`, and on `from` unless that is TUTTI_ANY. Messages
       of equal (from, tag) arrive in the order in which they were sent. Sending to oneself is
       legal. A send is done when the receiver has taken the message, or earlier (small ones).

       note: copied; NULL: all zero. payload, room: host memory, count times the element's size
       bytes. The caller leaves them alone until the request is done, also if it ends with a
       failure. A payload that is larger than the room ends the receive with TUTTI_ERR_CORRUPT,
       with both sizes.

       OK: the request is posted, and it ends exactly once, maybe before the call returns.
       A failure: nothing was posted. Nothing is in flight, there is nothing to cancel or to wait
       for, the other side hears nothing, and payload or room are the caller's again. Of the request
       this holds:
         TUTTI_ERR_USAGE   No such rank, no such memory. *r is as it was before the call.
         TUTTI_ERR_STATE   It is still in flight. *r is as it was, and stays in flight.
         Others            No memory, or a medium that has failed. *r is not posted, and may be
                           posted again. */
    tutti_status (*send)(void *t, tutti_request *r, int to, uint64_t tag, const tutti_note *note,
                         tutti_buffer payload, tutti_error *err);
    tutti_status (*recv)(void *t, tutti_request *r, int from, uint64_t tag, tutti_buffer room,
                         tutti_error *err);
    /* Blocks until at least `need` of r[0..n) are done. need = n: all; 1: any; 0, or a deadline of
       0: only a test. *n_done: how many are done in all. Entries that are NULL or not posted count
       as done. TUTTI_TIMEOUT: the deadline passed.

       The status of a failed request is NOT returned here: each request has its own. The death of
       a peer ends the requests that need it with TUTTI_ERR_PEER; a receive from TUTTI_ANY ends so
       only once all other ranks are gone.

       The threads that wait make the progress. No hidden thread is needed, and none of the
       transport's own burns a core while nobody waits. */
    tutti_status (*wait_some)(void *t, tutti_request *const *r, size_t n, size_t need,
                              int64_t deadline_ns, size_t *n_done, tutti_error *err);
    /* After it the memory is the caller's again. Nothing for a request that is done or not
       posted. A cancelled receive has consumed no message. */
    void (*cancel)(void *t, tutti_request *r);

    /* ---- endings ---- */
    /* The lowest rank that failed or was lost, or the rank because of which it failed; -1: none.
       One that left in order does not count. why (may be NULL): its last words, or how it ended. */
    int (*dead_peer)(void *t, char *why, size_t bytes);
    /* Leaves this rank's last words for the launcher and the peers. Called once, on failure, before
       close. */
    void (*last_words)(void *t, const tutti_error *err);

    /* ---- memory that all ranks of the run map (same host). Optional ---- */
    /* A collective call: all ranks, in the same order, with the same name. `bytes` may differ by
       rank; 0: none of mine. of_rank: room for size pointers; of_rank[rank] is mine. The memory is
       zeroed, 64-byte aligned, and lives until close. Of processes it is reserved in full before
       anybody touches it. Of ranks of one process it is that process's own, as what it allocates.
       Too little room: TUTTI_ERR_MEMORY on every rank, naming need, have and what mends it.
       NULL member: collectives use messages, and the engine's vectors are private. */
    tutti_status (*window)(void *t, const char *name, size_t bytes, void **of_rank,
                           tutti_error *err);
    /* Flags in windows; both or neither. NULL: collectives use messages, and windows serve as
       common memory only.
       publish: *word = value (release), then wakes those that sleep in await. */
    void (*publish)(void *t, tutti_word *word, uint32_t value);
    /* Blocks until the word has reached `value`, counted as a wrapping difference (acquire), or
       until `peer` is gone (TUTTI_ERR_PEER, err->rank). */
    tutti_status (*await)(void *t, int peer, tutti_word *word, uint32_t value, int64_t deadline_ns,
                          tutti_error *err);

    /* ---- ranks that are no processes. Optional ---- */
    /* Runs rank_main as n ranks of this process (shm: threads; sim: actors) and returns when all
       have ended. Gives OK or the root failure: that of the first rank that failed by itself, not
       because of another. NULL: ranks are processes. */
    tutti_status (*run)(tutti_runtime *rt, const tutti_launch *launch,
                        tutti_status (*rank_main)(const tutti_launch *launch, void *arg,
                                                  tutti_error *err),
                        void *arg, tutti_error *err);
    /* Ranks live in run() only, on its own runtime in virtual time. A command then calls run()
       itself instead of starting processes. */
    bool simulated;

    /* Optional: the host of a rank, as a number. Ranks with equal numbers share a host, and what
       they send each other crosses no link. The same on every rank, for the transport's life.
       NULL: all ranks are on one host, or nobody knows. */
    int (*host)(void *t, int rank);

    /* ---- a rank's loss is not the end of the run. Optional, both or neither ----
       With them the requests and awaits that need a lost rank end with TUTTI_ERR_PEER and its
       number. All others go on as before. What a lost rank had sent before stays to be received:
       small messages whole, large ones not. Collective calls (window) need all ranks, so after a
       loss they end with TUTTI_ERR_PEER.
       NULL: after a loss the transport promises nothing but clean failure (mpi). */
    /* Writes what was learnt, from number `first` on, in the order in which it was learnt: at most
       `room` events. Gives how many there are in all. It looks before it answers, so a loss is
       learnt without waiting. Each loss is there once, before any request has ended because of it.
       Of warnings (SILENT, BACK) the first 256 are kept. Cheap; any thread. */
    int (*events)(void *t, int first, tutti_peer_event *out, int room);
    /* From now on `rank` is lost to this rank, and as far as they can be told to all others and to
       itself. Its own requests and waits then end with TUTTI_ERR_PEER, its own number and a
       sentence that says which rank expelled it and why. Its launcher ends its process. Nothing
       for a rank that is lost or has left already, and for this one. Any thread. */
    void (*expel)(void *t, int rank, const char *why);

    /* Optional: the NUMA node of its host that a rank was bound to when it opened, by the host's
       number for it. Ranks with equal host and node have the same near memory. -1: the rank was
       bound to none, or nobody knows. The same on every rank, for the transport's life.
       NULL: nobody knows of any. */
    int (*node)(void *t, int rank);
} tutti_transport_ops;

extern const tutti_transport_ops *const tutti_transports[]; /* the built-in ones; NULL-ended */
const tutti_transport_ops *tutti_transport_find(const char *name); /* a built-in one, or NULL */

/* The built-in transport of that name, or else a plug-in, libtutti_transport_NAME.so.

   The plug-in is looked for beside this library, or beside the program that links it statically.
   Then beside the running executable, where an install puts libraries; then in its ../lib. It
   exports `const tutti_transport_ops tutti_transport_plugin` and stays loaded.

   TUTTI_ERR_USAGE, one of two:
     1. There is none. *tried (may be NULL) is then where an install would have it, "" for a name
        that cannot be a file's.
     2. It cannot be loaded, or is of another version. The sentence has its path.
   Allocates. */
tutti_status tutti_transport_load(const char *name, const tutti_transport_ops **out, char *tried,
                                  size_t bytes, tutti_error *err);

/* Was the transport built for the interfaces of this library? TUTTI_ERR_USAGE if not: the sentence
   begins with `whose` ("the transport 'sim'", or a file) and has both numbers. Loading and opening
   ask this. Pure. */
tutti_status tutti_transport_check(const tutti_transport_ops *ops, const char *whose,
                                   tutti_error *err);

/* The same of a runtime that somebody else has opened. */
tutti_status tutti_runtime_check(const tutti_runtime *rt, const char *whose, tutti_error *err);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
