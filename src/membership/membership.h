/* membership.h: which workers take part in a run, agreed on by the workers themselves.

   A run is a sequence of epochs. An epoch has fixed members and a step at which it begins. The next
   epoch is one decision of a majority of the members of this one: admission, announced leaving,
   loss and return are the same change. docs/design/membership.md has states, messages and reasons.

   The protocol is pure. It has no thread, no clock and no input or output of its own. The caller
   passes in the time, the messages that arrive and what its engine has done; messages go out
   through `send`. All memory is taken in open. One caller at a time; a lock is the caller's.

   The engine of a worker
     - takes part in steps only while tutti_membership_acts is true;
     - asks tutti_membership_step before it applies a step, and drops the step if the answer is no;
     - fetches the state of the epoch from a member that holds it, where it does not hold it itself,
       and then calls tutti_membership_hold;
     - looks at state and epoch after every call. Nothing is called back but `send`. */
#ifndef TUTTI_MEMBERSHIP_H
#define TUTTI_MEMBERSHIP_H
#include "tutti/base.h"
#pragma GCC visibility push(default)

enum {
    TUTTI_MEMBERS_MAX = 1024,
    TUTTI_ADDRESS_BYTES = 64,    /* an address as text, its NUL included: "10.0.0.2:41234" */
    TUTTI_CONTACTS_MAX = 16,     /* addresses that a newcomer begins with */
    TUTTI_MEMBERSHIP_BYTES = 80 << 10 /* most bytes of a message */
};

typedef struct tutti_member {
    uint64_t id;                 /* of a process, drawn as it starts; not 0; no two are equal */
    uint32_t rank;               /* given at admission; no other process of the run ever has it */
    bool holds;                  /* has the state of the epoch's step as the epoch begins */
    char address[TUTTI_ADDRESS_BYTES];
} tutti_member;

typedef struct tutti_epoch {
    uint64_t number;             /* 1 is that of the founders */
    uint64_t step;               /* steps done as it begins */
    uint32_t next_rank;          /* the next newcomer's */
    int n;                       /* members: 1 .. TUTTI_MEMBERS_MAX */
    tutti_member members[TUTTI_MEMBERS_MAX]; /* ranks ascend; the order is the order of sums */
} tutti_epoch;

/* May n of its members decide the next epoch? More than half; or half, if the member of the lowest
   rank is among them (first). */
bool tutti_epoch_majority(const tutti_epoch *e, int n, bool first);

typedef struct tutti_membership_options {
    uint8_t run[16];             /* id of the run; messages of another are dropped and counted */
    uint64_t id;                 /* this process */
    const char *address;         /* where it listens; copied */
    /* Most members of an epoch: more newcomers have to wait. The same for all members. 0:
       TUTTI_MEMBERS_MAX. */
    int most;

    /* Every heartbeat_ns something is sent to each member. A member not heard of for dead_ns is
       suspected. dead_ns >= 3 heartbeat_ns. A change that stands still for retry_ns is taken over
       by another member. A change without a loss waits for the end of a step: three times as long
       as the last one took, boundary_ns at least, and 20 times that at most. */
    int64_t heartbeat_ns, dead_ns, retry_ns, boundary_ns;

    /* Sends one message. It may be lost, duplicated, and overtaken by others. `bytes` is valid
       during the call. It must not call into the same membership. */
    void (*send)(void *user, const char *address, const uint8_t *bytes, size_t n);
    void *user;
} tutti_membership_options;

typedef enum tutti_membership_state {
    TUTTI_NEWCOMER,              /* in no epoch; asks to be admitted */
    TUTTI_MEMBER,                /* in its epoch, as far as it knows */
    TUTTI_LEFT,                  /* left as it had asked to; the process may end */
    TUTTI_REMOVED                /* the others went on without it; it may come back, as a newcomer
                                    with a new id */
} tutti_membership_state;

typedef struct tutti_membership tutti_membership;

/* Opens a founder: `founders` is epoch 1, the same for all founders, with this process in it.
   TUTTI_ERR_USAGE names what is wrong with it or with the options. now_ns: any clock that does not
   run backwards. */
tutti_status tutti_membership_found(tutti_membership **out, const tutti_membership_options *options,
                                    const tutti_epoch *founders, int64_t now_ns, tutti_error *err);
/* Opens a newcomer that knows the addresses of n members (1 .. TUTTI_CONTACTS_MAX), of which one
   that is right will do. */
tutti_status tutti_membership_join(tutti_membership **out, const tutti_membership_options *options,
                                   const char *const *contacts, int n, int64_t now_ns,
                                   tutti_error *err);
void tutti_membership_close(tutti_membership *m);

/* ---- what happens. now_ns never decreases. ---- */
/* A message has arrived. TUTTI_ERR_CORRUPT: it is none of this protocol's, nothing has changed. */
tutti_status tutti_membership_receive(tutti_membership *m, int64_t now_ns, const uint8_t *bytes,
                                      size_t n, tutti_error *err);
/* Time has passed. Returns when to call this next. */
int64_t tutti_membership_tick(tutti_membership *m, int64_t now_ns);
/* The transport has lost a member or a newcomer: it is suspected at once, until it is heard of
   again. */
void tutti_membership_lost(tutti_membership *m, int64_t now_ns, uint64_t id);

/* ---- what the engine does ---- */
/* May this member apply step `step`, larger than the last one? true: its state is that of `step`
   from now on. false: it must not, since the epoch is ending or this member does not act. */
bool tutti_membership_step(tutti_membership *m, int64_t now_ns, uint64_t step);
/* A member that does not hold the epoch's state has fetched it, of `step`, the epoch's or a later
   one, from a member of the same epoch. false: the epoch is ending or has ended; the copy counts as
   none. */
bool tutti_membership_hold(tutti_membership *m, int64_t now_ns, uint64_t step);
/* A newcomer's copy is so near that it can be admitted. Until then nobody waits for it. */
void tutti_membership_ready(tutti_membership *m, int64_t now_ns);
/* This member wants to leave. It goes on until it has TUTTI_LEFT. */
void tutti_membership_leave(tutti_membership *m, int64_t now_ns);

/* This member asks for the next epoch, also with the same members, since work is to be divided
   otherwise. The next one is not asked for when it begins. */
void tutti_membership_renew(tutti_membership *m, int64_t now_ns);

/* ---- what is so ---- */
tutti_membership_state tutti_membership_state_of(const tutti_membership *m);
/* The epoch that it is in. NEWCOMER, LEFT, REMOVED: the newest that it has heard of (number 0:
   none), whose addresses are where to ask. Valid until the next call that takes now_ns. */
const tutti_epoch *tutti_membership_epoch(const tutti_membership *m);
/* Does it have the state of its epoch? */
bool tutti_membership_holds(const tutti_membership *m);
/* May it take part in steps: it is a member, holds the state, and has not agreed to end the epoch?
   One that suspects another soon ends the epoch, at the latest by a change of its own. So one that
   is cut off stops. */
bool tutti_membership_acts(const tutti_membership *m);
/* Do all members of its epoch that are not lost want to leave? Then none needs the next one. */
bool tutti_membership_all_leave(const tutti_membership *m);
/* Newcomers that could be admitted now, and wait for a place or for a change: ids, at most `most`.
   Returns their number. */
int tutti_membership_waiting(const tutti_membership *m, uint64_t *ids, int most);
/* How many members of its epoch answer, itself among them. *majority: may they decide the next
   epoch? *first: is none of a lower rank among them that holds the state? Not of a member: 0, true,
   false. */
int tutti_membership_answering(const tutti_membership *m, bool *majority, bool *first);
/* The last step of which this member knows that a majority of the epoch has it: no later epoch
   begins before it. */
uint64_t tutti_membership_agreed(const tutti_membership *m);
/* Messages that were dropped, since they were of another run. */
uint64_t tutti_membership_strangers(const tutti_membership *m);
/* Writes a sentence about what it does or waits for: "epoch 7, step 120: 4 of 5 members answer". */
void tutti_membership_describe(const tutti_membership *m, char *text, size_t bytes);
#pragma GCC visibility pop
#endif
