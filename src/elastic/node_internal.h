/* node_internal.h: what the files of a node share (node.h lists them).

   Threads. There is one lock, node.lock, with one condition.

     1. What stands below `under the lock` is read and written under it only; what stands above is
        constant while the thread runs.
     2. The thread holds the lock while it works. It releases it while it waits for descriptors, and
        while it calls on_note. Nothing that is called under the lock waits.
     3. Only the thread accepts, reads, writes, and removes connections, and only it touches the
        meeting place. Clients append to `out` and to queues. So a pointer to a connection stays
        valid on the thread while it has released the lock.
     4. No client's function is called under the lock. */
#ifndef TUTTI_ELASTIC_NODE_INTERNAL_H
#define TUTTI_ELASTIC_NODE_INTERNAL_H
#include "node.h"
#include "transport/tcp/connect.h"
#include <poll.h>

enum {
    NODE_STATES = 32,            /* messages of the protocol that wait for one process; of more the
                                    oldest is dropped, since the newest says more */
    NODE_PIECE = 64 << 10,       /* bytes of a piece of a note */
    NODE_FRAME = TUTTI_MEMBERSHIP_BYTES, /* most payload bytes of a frame */
    NODE_CONNECTIONS = 256,      /* descriptors that are made sure of as a node opens */
    NODE_UNSENT = 128 << 10,     /* bytes in the kernel behind which a heartbeat waits */
    PLACE_BYTES = 8 + 16         /* of a NODE_PLACE, before the text */
};
#define NODE_PAUSE_MOST (1000 * TCP_MS) /* longest back-off of a call */

/* Kinds of notes of the node's own. */
typedef enum node_kind {
    NODE_I_AM = 1,               /* the first on a connection: id (8), address */
    NODE_STATE,                  /* a message of src/membership */
    NODE_BYE,                    /* this connection is closed since it is not used any more */
    NODE_WHERE,                  /* to the lowest member: where does epoch `tag` meet? */
    NODE_PLACE                   /* its answer: epoch (8), id of the meeting (16), TUTTI_MEET */
} node_kind;

typedef struct node_letter {
    struct node_letter *next;
    uint32_t kind;
    uint64_t tag;
    size_t n, sent;              /* bytes; of which are handed to the connection */
    uint8_t bytes[];
} node_letter;
typedef struct node_queue {
    node_letter *first, *last;
    int count;
    size_t bytes;
} node_queue;

/* The connection to a process, by its address. */
typedef struct node_out {
    char address[TUTTI_ADDRESS_BYTES];
    tcp_address to;
    tcp_call call;               /* while it is not connected */
    tcp_line line;               /* fd -1: not connected */
    int64_t pause_ns;            /* back-off after the next failure */
    int64_t used_ns;             /* when a message for it was last queued, or handed to the line */
    int64_t begun_ns;            /* when the call left IDLE; 0: it is IDLE */
    bool readable;               /* thread only: poll has reported it */
    node_queue states, notes;    /* states go first */
    char trouble[200];           /* why the last call failed; "": it did not */
} node_out;

/* A connection from a process. */
typedef struct node_in {
    tcp_line line;
    uint64_t id;                 /* 0: has not sent its id */
    char address[TUTTI_ADDRESS_BYTES];
    bool bye;
    bool readable;               /* thread only: poll has reported it */
    /* The note whose pieces are arriving; n 0: none. */
    uint8_t *whole;
    size_t n, have;
    uint32_t kind;
    uint64_t tag;
} node_in;

/* The meeting place of an epoch, where this node serves it. Thread only. */
typedef struct node_meet {
    tutti_meet *meet;            /* NULL: none */
    uint64_t epoch;
    int n;
    uint64_t members[TUTTI_MEMBERS_MAX]; /* ids, by rank */
} node_meet;

/* Where the lowest member of an epoch serves its meeting place. */
typedef struct node_place {
    uint64_t epoch;              /* 0: none is known */
    tutti_run_id id;
    char where[80];
    tutti_error failed;          /* this node could not open it; status OK: it could */
} node_place;

struct tutti_node {
    tutti_runtime *rt;
    tutti_monitor *lock;         /* woken when `view`, `place` or the room in a queue changes */
    tutti_thread *thread;
    int wake_fd;                 /* an eventfd: the thread is to look */
    tutti_node_options options;  /* host is not kept */
    uint64_t id;
    char host[TUTTI_ADDRESS_BYTES]; /* the address without port and brackets */
    char address[TUTTI_ADDRESS_BYTES];
    tcp_rules rules;

    /* Thread only. */
    node_meet meet;
    struct pollfd *polled;       /* wake_fd, listener, meeting place; in; out */
    size_t polled_room, polled_in, polled_out;
    int64_t sweep_ns;            /* when to sweep next */

    /* Under the lock. */
    bool stop;
    tcp_listener listener;
    tutti_membership *m;
    tutti_node_view view;
    int64_t tick_ns;             /* when the protocol is to be called next */
    node_out **out;              /* [n_out] */
    node_in **in;                /* [n_in] */
    size_t n_out, out_room, n_in, in_room;
    uint64_t meet_wanted;        /* epoch whose meeting place this node is to open; 0: none */
    node_place place;
    /* The newest world. world_fd is readable once it is to end; the transport has a copy. */
    int world_fd;                /* an eventfd; -1: there was none */
    uint64_t world_epoch;
    bool opening;                /* tutti_node_world is at work */
};

static inline void node_put64(uint8_t *to, uint64_t x)
{
    for (int k = 0; k < 8; k++)
        to[k] = (uint8_t)(x >> (8 * k));
}
static inline uint64_t node_get64(const uint8_t *from)
{
    uint64_t x = 0;

    for (int k = 0; k < 8; k++)
        x |= (uint64_t)from[k] << (8 * k);
    return x;
}

/* ---- lines.c. Under the lock. ---- */
/* Finds the connection to an address, or makes one. NULL: no memory, or no valid address. */
node_out *tutti_node_out(tutti_node *n, const char *address);
/* Queues a letter; false: no memory. A state may push an older one out. */
bool tutti_node_post(tutti_node *n, const char *address, uint32_t kind, uint64_t tag,
                     const void *bytes, size_t size);
/* tutti_membership_options.send. */
void tutti_node_send_state(void *user, const char *address, const uint8_t *bytes, size_t n);
/* Makes the thread look at what was queued. */
void tutti_node_kick(tutti_node *n);
/* Sets host, address and rules, too. */
tutti_status tutti_node_listen(tutti_node *n, const char *host, int port, tutti_error *err);
/* One pass over the calls and the queues. */
void tutti_node_write(tutti_node *n, int64_t now);
/* Fills n->polled; returns its entries, 0: no memory. *until is lowered to when a call is due. */
nfds_t tutti_node_polled(tutti_node *n, int64_t *until);
/* Is anything still to be written to one that is connected? */
bool tutti_node_pending(const tutti_node *n);
/* Drops what is unused or silent for too long. */
void tutti_node_sweep(tutti_node *n, int64_t now);
void tutti_node_drop_in(tutti_node *n, size_t k);
void tutti_node_drop_lines(tutti_node *n);

/* ---- serve.c ---- */
tutti_status tutti_node_serve(void *node, tutti_error *err); /* the thread */
/* The protocol was called: notices what has changed, and wakes who waits. Under the lock. */
void tutti_node_changed(tutti_node *n);
/* The address of a process, or NULL. Under the lock. */
const char *tutti_node_address_of(const tutti_node *n, uint64_t id);
void tutti_node_lost(tutti_node *n, uint64_t id, const char *how); /* under the lock */

/* ---- epochs.c. Under the lock. ---- */
/* The thread's part: opens the meeting place that is wanted, serves it, closes that of an epoch
   that has ended. */
void tutti_node_meet_progress(tutti_node *n);
void tutti_node_meet_lost(tutti_node *n, uint64_t id, const char *how); /* the thread's */
/* The view has changed: ends the newest world if its epoch has ended. */
void tutti_node_end_worlds(tutti_node *n);
void tutti_node_on_where(tutti_node *n, const node_in *from, uint64_t epoch);
/* false: it is no answer of this kind. */
bool tutti_node_on_place(tutti_node *n, const node_in *from, const uint8_t *bytes, size_t size);
#endif
