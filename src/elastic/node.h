/* node.h: a node, one per process of an elastic run: a thread that carries the protocol of
   src/membership between processes, over authenticated connections, and other messages beside it.
   docs/design/membership.md has states and reasons.

     node.c    opening, closing, what the client calls
     serve.c   the thread: time, incoming messages, losses
     lines.c   connections: the listener, calls to others, queues
     epochs.c  the world of an epoch, and its meeting place

   A node listens at one address, and calls the address of each process that it sends to. So between
   two nodes there are two connections, one for each direction. Both are set up by the handshake of
   the transport tcp (transport/tcp/wire.h) under the key of the run. A caller without the key, or
   of another run, gets no answer and is counted (tutti_node_strangers).

   Threads: all functions but close may be called from any thread. on_note is called on the node's
   thread, one call at a time, and must not block. It may call this node, but what blocks or
   closes. */
#ifndef TUTTI_ELASTIC_NODE_H
#define TUTTI_ELASTIC_NODE_H
#include "membership/membership.h"
#include "transport/meet.h"
#include "tutti/comm.h"
#pragma GCC visibility push(default)

typedef struct tutti_node tutti_node;

enum {
    /* Kinds of notes: those of clients begin here; lower ones are the node's own. State transfer
       (state.h) has 16 to 31. */
    TUTTI_NODE_KINDS = 16,
    TUTTI_NODE_NOTE_BYTES = 16 << 20, /* most bytes of a note */
    TUTTI_NODE_QUEUE_BYTES = 32 << 20 /* most bytes of notes that wait for one process */
};

/* A message between two clients of nodes. */
typedef struct tutti_node_note {
    uint64_t from;               /* id of the process that sent it (tutti_member.id) */
    uint32_t kind;               /* TUTTI_NODE_KINDS and above */
    uint64_t tag;                /* the clients' own: for example the number of a request */
    const uint8_t *bytes;        /* valid during the call; NULL if n is 0 */
    size_t n;                    /* up to TUTTI_NODE_NOTE_BYTES */
} tutti_node_note;

typedef struct tutti_node_options {
    tutti_run_id run;            /* of all processes of the run */
    tutti_run_key key;           /* the same; the node wipes its copy at close */
    /* The address of this host, by which the others reach it: "10.0.0.2", "::1", a name. The node
       listens there. NULL or "": 127.0.0.1. */
    const char *host;
    int port;                    /* 0: the kernel chooses */
    /* As in tutti_membership_options. 0: 100 ms, 1 s, 500 ms, 500 ms. */
    int64_t heartbeat_ns, dead_ns, retry_ns, boundary_ns;
    int most;                    /* members of the run, as there */
    uint64_t step;               /* of a founder: the step at which the run begins, equal on all */
    /* NULL: notes to this process are dropped. */
    void (*on_note)(void *user, const tutti_node_note *note);
    void *user;
} tutti_node_options;

/* Sets run and key from TUTTI_RUN_ID, and TUTTI_RUN_KEY or TUTTI_RUN_KEY_FILE (meet.h), and all
   else to 0. environment: as environ. TUTTI_ERR_USAGE: one is missing or is invalid. */
tutti_status tutti_node_options_of(tutti_node_options *out, char *const *environment,
                                   tutti_error *err);

/* Opens the node of a founder. All ranks of the world call it, with equal run, key and times. The
   ids and addresses are exchanged over the world, which is that of epoch 1: rank r is member r, all
   hold the state of its step. Blocks for two all-gathers. The options are copied, the world is
   not kept. If it fails on one rank it fails on all, with a sentence that names the rank. */
tutti_status tutti_node_found(tutti_node **out, tutti_world *world,
                              const tutti_node_options *options, tutti_error *err);

/* Opens the node of a newcomer that knows the addresses "host:port" of n members, 1 to
   TUTTI_CONTACTS_MAX. It returns at once (names of hosts are looked up before) and asks until it is
   admitted. No member may answer for ever: wait with a deadline, tutti_node_describe says why. */
tutti_status tutti_node_join(tutti_node **out, const char *const *contacts, int n,
                             const tutti_node_options *options, tutti_error *err);

/* Ends the thread and closes all connections, after 0.2 s at most for what is to be written. A
   member that has not left is suspected by the others at once. Threads in other functions of this
   node must have returned. Worlds of tutti_node_world are closed before. Accepts NULL. */
void tutti_node_close(tutti_node *node);

/* ---- what is so ---- */
typedef struct tutti_node_view {
    uint64_t changes;            /* increases whenever anything below but `agreed` has changed */
    tutti_membership_state state;
    uint64_t epoch, step;        /* number and first step of the newest epoch that it knows; 0 */
    int n, index;                /* members of that epoch; this one's index there, or -1 */
    bool holds, acts, all_leave; /* membership.h */
    int answer;                  /* tutti_membership_answering, as the next two */
    bool majority, first;
    uint64_t agreed;             /* tutti_membership_agreed */
} tutti_node_view;
void tutti_node_look(tutti_node *node, tutti_node_view *view);
/* Blocks until view.changes differs from `seen`, or until deadline_ns on tutti_node_now. `view` is
   set in both cases. TUTTI_TIMEOUT. */
tutti_status tutti_node_wait(tutti_node *node, uint64_t seen, int64_t deadline_ns,
                             tutti_node_view *view, tutti_error *err);
int64_t tutti_node_now(tutti_node *node);
/* Copies the epoch (tutti_membership_epoch). Some 80 KB: not on a small stack. */
void tutti_node_epoch(tutti_node *node, tutti_epoch *epoch);
/* As tutti_membership_waiting. */
int tutti_node_waiting(tutti_node *node, uint64_t *ids, int most);
uint64_t tutti_node_id(const tutti_node *node);            /* this process's */
uint64_t tutti_node_run(const tutti_node *node);           /* of the run, for `tutti why` */
const char *tutti_node_address(const tutti_node *node);    /* "127.0.0.1:41234" */
/* A sentence about what it does or waits for; of a newcomer without an answer also why its last
   call failed. */
void tutti_node_describe(tutti_node *node, char *text, size_t bytes);
/* Writes its sockets, at most `most`, and returns their number. A process that forks has its child
   close them. */
int tutti_node_sockets(tutti_node *node, int *fds, int most);
/* Callers that were turned away, since they did not have the key or were of another run. */
uint64_t tutti_node_strangers(tutti_node *node);

/* ---- what the engine does: as the functions of membership.h ---- */
/* epoch: that of the world in which the step was computed. false: also if the node is in another
   one by now, whose members need not have that step. */
bool tutti_node_step(tutti_node *node, uint64_t epoch, uint64_t step);
bool tutti_node_hold(tutti_node *node, uint64_t step);
void tutti_node_ready(tutti_node *node);
void tutti_node_leave(tutti_node *node);
void tutti_node_renew(tutti_node *node, uint64_t epoch); /* if it is the newest */

/* ---- notes ---- */
/* Sends a note to a process: a member, or one that has called this node. The bytes are copied.
   Blocks while TUTTI_NODE_QUEUE_BYTES wait for that process, until deadline_ns; 0: not at all, as
   on_note must. OK: the note is queued. It arrives at most once, and after those that were sent
   before it to the same process. It is lost if the connection breaks, so a request needs a time
   limit and is sent again. Notes are sent in pieces, between which messages of the protocol pass.
   TUTTI_TIMEOUT: no room. TUTTI_ERR_PEER: no such process is known. TUTTI_ERR_USAGE: kind or
   size. */
tutti_status tutti_node_send(tutti_node *node, uint64_t to, uint32_t kind, uint64_t tag,
                             const void *bytes, size_t n, int64_t deadline_ns, tutti_error *err);

/* ---- the world of an epoch ---- */
/* Opens a world over the members of the node's present epoch, which has to be `epoch`: rank =
   index in the order of the epoch, size = its members. All members call it, once an epoch. spec: of
   the transport tcp; NULL: "tcp". The lowest member serves the meeting place within its node, and
   tells the others where it is. Blocks until all members are present.

   The world ends with its epoch: as soon as this node knows that the epoch has ended, operations
   that wait end with TUTTI_ERR_PEER. Before that they end as those of any world over tcp that has
   lost a rank. The world is the caller's to close, before the node.

   TUTTI_CLOSED: the node is in another epoch, its epoch has ended meanwhile, or its end is decided:
   look again. TUTTI_ERR_PEER: a member was lost while it opened; the next epoch will follow.
   TUTTI_ERR_STATE: it was opened before. Others: as tutti_world_open. */
tutti_status tutti_node_world(tutti_world **out, tutti_node *node, uint64_t epoch,
                              const char *spec, tutti_error *err);
#pragma GCC visibility pop
#endif
