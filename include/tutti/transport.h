/* transport.h: what a transport (shm, tcp; plug-ins sim and mpi; later nccl) must offer. Everything else is written once, above it. */
#ifndef TUTTI_TRANSPORT_H
#define TUTTI_TRANSPORT_H
#include "device.h"
#include "options.h"

/* A flag and a counter that threads, and with windows processes, share. To C11 they are atomics; C99 and C++ have no common word for those, so there they
   are opaque values of the same size and alignment, to be read by tutti_request_done or handed on. Nothing differs in memory (tests/package compares). */
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
#define TUTTI_TRANSPORT_ABI 4

/* A message is a note (a few integers; small protocols need nothing more) and an optional payload. 40 bytes on the wire. */
typedef struct tutti_note {
    int32_t from;          /* set by the transport */
    uint32_t kind;         /* user's */
    int64_t a, b;          /* user's */
    uint64_t ticket;       /* set by tutti_call; a reply goes to the port of this number */
    uint64_t bytes;        /* payload; set by the transport */
} tutti_note;

/* One message in flight. Caller's memory; still from post until wait_some has said it is done, or cancel. */
typedef struct tutti_request {
    tutti_note note;       /* a received one: what came */
    tutti_status status;   /* valid once done: OK, CORRUPT (payload larger than the room; note.bytes says how large), PEER */
    int rank;              /* of a PEER failure: who is gone, or because of whom (the root). This rank itself only if it was expelled, whomever others blame */
    tutti_flag done;       /* stored with release by whichever thread ends it: who loads true with acquire sees note, status and payload */
    bool posted;           /* zeroed requests are not posted; wait_some counts them as done */
    void *internal[8];
} tutti_request;
/* Has it ended? An acquire load of `done`, in every language; what else the request says may be read after a true. */
static inline bool tutti_request_done(const tutti_request *r) { return __atomic_load_n((const bool *)(const void *)&r->done, __ATOMIC_ACQUIRE); }

/* How a process found its place in a run: by the launcher's environment, or as a thread of transport->run. */
typedef struct tutti_launch {
    int rank, size;
    const char *spec;                   /* "shm" or "shm(option=...)" */
    char *const *environment;           /* as environ */
    void *within;                       /* run()'s own; NULL otherwise */
    tutti_runtime *rt;                  /* of a rank of run(), where the transport brings its own (sim: virtual time); NULL: the caller's */
    /* While open waits for other ranks: told who is missing, 2 s after the beginning and then every 5 s. From a thread
       of the transport's or the caller's, one at a time, never after open has returned. NULL: nobody wants to know. */
    void (*waits)(void *user, const char *line);
    void *user;
} tutti_launch;

/* What a rank learns of a peer. LOST is for good: it died, or was silent for too long, or others have expelled it; whatever comes from it afterwards is thrown
   away. One that left in order is not lost. SILENT is a warning, BACK takes it back. */
typedef enum tutti_peer_change { TUTTI_PEER_LOST = 1, TUTTI_PEER_SILENT, TUTTI_PEER_BACK } tutti_peer_change;
typedef struct tutti_peer_event {
    uint32_t epoch;              /* how many ranks are lost to this rank, this one counted: the epoch of the membership from here on. 0: nobody is */
    int32_t rank;
    tutti_peer_change change;
    int64_t at_ns;               /* of the runtime's clock, when this rank learnt of it */
    char why[200];               /* a sentence, "worker 2 was lost: process 4711 was killed by signal 9 (SIGKILL)"; cut at a whole character, no control characters */
} tutti_peer_event;

struct tutti_world; /* comm.h */
typedef struct tutti_transport_ops {
    uint32_t abi, bytes;                       /* TUTTI_TRANSPORT_ABI, sizeof *this: old and new meet with a message */
    uint32_t runtime_abi, runtime_bytes;       /* TUTTI_RUNTIME_ABI, sizeof(tutti_runtime_ops): each side calls the other's runtime */
    const char *name, *help;
    const tutti_option *options;
    size_t options_bytes;                      /* struct the options are written to */
    tutti_status (*open)(void **t, tutti_runtime *rt, const tutti_launch *launch, tutti_error *err); /* blocks: all ranks */
    void (*close)(void *t);                    /* takes NULL and half-built; blocks for nobody */
    /* Posting never blocks; any thread. `tag` is 64 bits; messages of equal (from, tag) arrive in order; matching is exact on tag,
       on from unless ANY. The payload (host memory, payload.count * its element size bytes) stays untouched by the caller until the
       request is done, also after failure. A payload larger than the posted room: TUTTI_ERR_CORRUPT at the receiver, with both
       sizes. Sending to oneself is legal. Sends are done when the receiver has taken the message, or earlier (small ones). */
    tutti_status (*send)(void *t, tutti_request *r, int to, uint64_t tag, const tutti_note *note, tutti_buffer payload, tutti_error *err);
    tutti_status (*recv)(void *t, tutti_request *r, int from, uint64_t tag, tutti_buffer room, tutti_error *err);
    /* Blocks until at least `need` of r[0..n) are done (need = n: all, 1: any, 0 or deadline 0: a test), *n_done of them in all.
       NULL entries and requests never posted count as done. Gives TUTTI_TIMEOUT when the deadline passed. The first failed
       request's status is NOT returned here; each request has its own. A peer's death ends the requests that need it
       (a receive from ANY only once all other ranks are gone) with TUTTI_ERR_PEER. Waiting threads make the progress: no
       hidden thread is needed and none of our own burns a core when nobody waits. */
    tutti_status (*wait_some)(void *t, tutti_request *const *r, size_t n, size_t need, int64_t deadline_ns, size_t *n_done, tutti_error *err);
    void (*cancel)(void *t, tutti_request *r);    /* after it the memory is the caller's again; a done or unposted one: nothing */
    /* Rank of a peer that failed or was lost, or -1; of the lowest one, or of the rank it failed because of. One that left in
       order does not count. `why` (may be NULL): its last words or how it ended. */
    int (*dead_peer)(void *t, char *why, size_t bytes);
    /* Leaves this rank's last words for the launcher and the peers; called once, before close, on failure. */
    void (*last_words)(void *t, const tutti_error *err);

    /* Optional: memory that all ranks of the run map (same host). A collective call: all ranks in the same order with the same name;
       `bytes` may differ by rank (0: none of mine). Reserved in full before anybody touches it; of_rank: room for size pointers;
       of_rank[rank] is mine, zeroed, 64-byte aligned; until close. NULL member: collectives use messages, engine vectors are private.
       Too little room: TUTTI_ERR_MEMORY on every rank, naming need, have and what mends it. */
    tutti_status (*window)(void *t, const char *name, size_t bytes, void **of_rank, tutti_error *err);
    /* With windows: flags in them. Both or neither; NULL: collectives use messages, windows are for common
       memory only. publish: *word = value (release), then wakes whoever sleeps in await. await: blocks until the word
       has reached value, counted as a wrapping difference (acquire), or `peer` is gone (TUTTI_ERR_PEER, err->rank). */
    void (*publish)(void *t, tutti_word *word, uint32_t value);
    tutti_status (*await)(void *t, int peer, tutti_word *word, uint32_t value, int64_t deadline_ns, tutti_error *err);
    /* Optional: runs rank_main as n ranks of this process (shm: threads; sim: actors), returns when all have ended: OK, or the root
       failure (the first rank that failed by itself, not because of another). NULL: ranks are processes. */
    tutti_status (*run)(tutti_runtime *rt, const tutti_launch *launch, tutti_status (*rank_main)(const tutti_launch *launch, void *arg, tutti_error *err), void *arg, tutti_error *err);
    bool simulated;                            /* ranks live in run() only, on its own runtime in virtual time: a command calls run() itself instead of starting processes */
    /* Optional: the host a rank is on, by a number: ranks with equal numbers share a host, and what they send each other crosses no link. The same on every rank, for
       the transport's life. NULL: all on one, or nobody knows. */
    int (*host)(void *t, int rank);
    /* Optional, both or neither: a rank's loss is not the end of the run. Then the requests and awaits that need a lost rank end with TUTTI_ERR_PEER and its number, and all
       others go on as before; a receive from ANY ends so only once all others are gone. NULL: after a loss the transport promises nothing but clean failure (mpi).
       events: writes at most `room` of what was learnt, from number `first` on, in the order in which it was learnt; gives how many there are in all. Looks before it answers,
       so a loss is learnt without waiting. Each loss is there once and before any request has ended because of it; of warnings (SILENT, BACK) the first 256 are kept. Cheap; any thread.
       expel: `rank` is lost from now on to this rank, and, as far as they can be told, to all others and to itself: its requests and waits then end with TUTTI_ERR_PEER, its own
       number and a sentence with who expelled it and why; its launcher ends its process. Of a rank that is lost or has left already, and of this one: nothing. Any thread.
       Collective calls (window) need all ranks: after a loss they end with TUTTI_ERR_PEER. What a lost rank had sent before stays to be received, small messages whole, large ones not. */
    int (*events)(void *t, int first, tutti_peer_event *out, int room);
    void (*expel)(void *t, int rank, const char *why);
    /* Optional: the node (NUMA) of its host that a rank was bound to when it opened, by the host's number for it: ranks with equal host and node have the same near memory. -1: it was
       bound to none, or nobody knows. The same on every rank, for the transport's life. NULL: nobody knows of any. */
    int (*node)(void *t, int rank);
} tutti_transport_ops;
extern const tutti_transport_ops *const tutti_transports[];            /* NULL-ended registry of the built-in ones */
const tutti_transport_ops *tutti_transport_find(const char *name);     /* of the built-in ones; NULL */
/* The built-in one of that name, or else a plug-in, libtutti_transport_NAME.so, looked for beside this library (or the program that links it statically), then beside the
   running executable where an install puts libraries, then in its ../lib. It exports `const tutti_transport_ops tutti_transport_plugin` and stays loaded. TUTTI_ERR_USAGE: there
   is none, *tried (may be NULL) has where an install would have it, "" for a name that cannot be a file's; or it cannot be loaded or is of another version, with its path in the
   sentence. Allocates. */
tutti_status tutti_transport_load(const char *name, const tutti_transport_ops **out, char *tried, size_t bytes, tutti_error *err);
/* Was it built for the interfaces of this library? TUTTI_ERR_USAGE: it was not; the sentence begins with `whose` ("the transport 'sim'", or a file), and has both numbers. Loading and opening ask this; pure. */
tutti_status tutti_transport_check(const tutti_transport_ops *ops, const char *whose, tutti_error *err);
tutti_status tutti_runtime_check(const tutti_runtime *rt, const char *whose, tutti_error *err); /* of one that somebody else opened */
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
