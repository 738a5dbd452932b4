/* membership_internal.h: what the files of this folder share.
     epoch.c       epochs as values: majorities, the next one of given promises
     wire.c        messages as bytes
     change.c      one decision: promises, acceptances, and the member that proposes
     membership.c  the public functions; heartbeats, suspicion, adopting an epoch
     describe.c    sentences, the agreed step */
#ifndef TUTTI_MEMBERSHIP_INTERNAL_H
#define TUTTI_MEMBERSHIP_INTERNAL_H
#include "membership.h"

enum {
    HEADER_BYTES = 64,           /* of a message; then its sender's address, then the epoch */
    EPOCH_BYTES = 24, MEMBER_BYTES = 14, /* before the members; of one, before its address */
    MESSAGE_BYTES = HEADER_BYTES + TUTTI_ADDRESS_BYTES + EPOCH_BYTES +
                    TUTTI_MEMBERS_MAX * (MEMBER_BYTES + TUTTI_ADDRESS_BYTES),
    NEWCOMERS_MAX = 256          /* newcomers that are remembered at one time */
};

_Static_assert((int)MESSAGE_BYTES <= (int)TUTTI_MEMBERSHIP_BYTES, "callers make room for one");

/* ---- messages ---- */
typedef enum message_kind {
    JOIN = 1,                    /* newcomer to members: let me in (ready: now) */
    HEARTBEAT,                   /* member to member: step, holds, leaving */
    PREPARE,                     /* phase 1a: promise to end the epoch, once step `step` is done */
    PROMISE,                     /* phase 1b */
    ACCEPT,                      /* phase 2a: the next epoch */
    ACCEPTED,                    /* phase 2b */
    RECORD                       /* an epoch that is decided */
} message_kind;

/* A ballot is a round and the rank of the member whose it is. 0: none. */
static inline uint64_t ballot_of(uint64_t round, uint32_t rank) { return round << 32 | rank; }

typedef struct message {
    message_kind kind;
    uint8_t run[16];
    uint64_t id;                 /* of the sender */
    uint64_t number;             /* of the sender's epoch; of a newcomer: that it has heard of */
    uint64_t step, ballot;
    uint64_t accepted;           /* PROMISE: ballot of the epoch that was accepted, or 0 */
    bool holds, leaving, ready, renews;
    char address[TUTTI_ADDRESS_BYTES]; /* of the sender */
} message;

/* Encodes; `out` has MESSAGE_BYTES. epoch: of RECORD, of ACCEPT, and of PROMISE with accepted != 0;
   else NULL. Returns the bytes. */
size_t tutti_membership_write(uint8_t *out, const message *w, const tutti_epoch *epoch);
/* Decodes any bytes. A message without an epoch gets one of 0 members. */
tutti_status tutti_membership_read(message *w, tutti_epoch *epoch, const uint8_t *bytes, size_t n,
                                   tutti_error *err);

/* ---- epochs ---- */
int tutti_epoch_find(const tutti_epoch *e, uint64_t id);   /* index of a member; -1: none */
void tutti_epoch_copy(tutti_epoch *to, const tutti_epoch *from);
/* Numbers, ranks, ids, addresses in order, and some member that holds the state? */
tutti_status tutti_epoch_check(const tutti_epoch *e, tutti_error *err);

/* What a member knows of another one, by index in the epoch. */
typedef struct peer {
    int64_t heard_ns;
    bool lost;                   /* says the transport, since it was last heard of */
    bool holds, leaving, renews;
    uint64_t step;
    bool promised, accepted;     /* the ballot of this member */
} peer;
typedef struct newcomer {
    uint64_t id;
    int64_t heard_ns;
    bool ready, lost;
    char address[TUTTI_ADDRESS_BYTES];
} newcomer;

typedef enum { IDLE, PREPARING, ACCEPTING } proposer_phase;

struct tutti_membership {
    tutti_membership_options options;
    char address[TUTTI_ADDRESS_BYTES];
    tutti_membership_state state;
    int64_t now_ns, beat_ns;     /* beat_ns: of the next heartbeat */
    uint64_t strangers;
    bool ready, leaving, holds;
    uint64_t step;               /* of the state that it holds */
    int64_t stepped_ns, step_ns; /* when it has made one in this epoch, or 0; how long one takes */
    int me;                      /* MEMBER: its index in epoch */
    int n_contacts, n_newcomers;

    /* the decision of the next epoch. All 0 as an epoch begins. */
    uint64_t promised;           /* nothing is accepted below it. Not 0: the epoch is ending */
    uint64_t accepted;           /* ballot of `value`, or 0 */
    uint64_t deferred;           /* ballot of a promise that waits for deferred_step, or 0 */
    uint64_t deferred_step;
    int64_t deferred_until_ns;
    uint64_t round;              /* the largest that it has seen */
    proposer_phase phase;
    uint64_t ballot;             /* its own, of phase */
    uint64_t ballot_step;        /* PREPARING: step to finish first; 0: none */
    uint64_t best;               /* the largest accepted ballot of the promises, of `proposal` */
    int64_t patience_ns;         /* when it takes a change over; 0: there is none */

    char contacts[TUTTI_CONTACTS_MAX][TUTTI_ADDRESS_BYTES];
    newcomer newcomers[NEWCOMERS_MAX];
    peer peers[TUTTI_MEMBERS_MAX];
    tutti_epoch epoch, value, proposal;
    tutti_epoch in;              /* of the message that is being handled */
    uint8_t out[MESSAGE_BYTES];
};

/* The epoch after m's, of the promises that it has. false: no member that promised holds the
   state. */
bool tutti_epoch_next(tutti_epoch *next, const tutti_membership *m);

/* membership.c */
void tutti_membership_send(tutti_membership *m, const char *address, message *w,
                           const tutti_epoch *epoch);
void tutti_membership_send_all(tutti_membership *m, message *w, const tutti_epoch *epoch);
bool tutti_membership_is_suspected(const tutti_membership *m, int i);
bool tutti_membership_admits(const tutti_membership *m, const newcomer *a);
static inline int most_members(const tutti_membership *m)
{
    return m->options.most > 0 ? m->options.most : TUTTI_MEMBERS_MAX;
}
void tutti_membership_learn(tutti_membership *m, const tutti_epoch *decided);

/* change.c */
void tutti_membership_prepare(tutti_membership *m, uint64_t ballot, uint64_t step, int from);
void tutti_membership_promise(tutti_membership *m, const message *w, const tutti_epoch *value,
                              int from);
void tutti_membership_accept(tutti_membership *m, uint64_t ballot, const tutti_epoch *value,
                             int from);
void tutti_membership_accepted(tutti_membership *m, uint64_t ballot, int from);
void tutti_membership_resend(tutti_membership *m);
/* Begins, continues or takes over a change, where there is cause for it. After every input. */
void tutti_membership_change(tutti_membership *m);
#endif
