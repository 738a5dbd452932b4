/* follow.h: a process that takes part in a run whose members come, leave and are lost. It follows
   the epochs that its node agrees on with the others, has the state of the run or gets it, and
   opens the world of each epoch (docs/design/membership.md). What the state is, and how a step is
   made, is its client's: the trainer's (train/nodes.h), or any program's (tutti/comm.h).

     follow.c       the node, the epochs
     follow_state.c what it has of the state, and gets
     follow_wait.c  what it waits for when there is no world for it, and how that ends
     follow_pass.c  the file by which others join

   The client:

     while the run has not ended: tutti_follower_next; works in that world, and asks
       tutti_follower_commit before each step; when the world fails: tutti_follower_over, with the
       state of the last whole step
     tutti_follower_end, or _fail; tutti_follower_close

   Threads: one calls. */
#ifndef TUTTI_ELASTIC_FOLLOW_H
#define TUTTI_ELASTIC_FOLLOW_H
#include "elastic/carry.h"
#pragma GCC visibility push(default)

typedef struct tutti_follower tutti_follower;

typedef struct tutti_follow_options {
    tutti_node_options node;     /* on_note and user are the follower's */
    tutti_world *founders;       /* a founder: the world of all of them; NULL: a newcomer, with */
    /* A founder: the state of the step at which the run begins (--resume), with the same step on
       all; the follower's, also on failure. NULL: step 0. */
    tutti_image *image;
    const char *const *contacts; /* [n]: addresses of members, 1 to TUTTI_CONTACTS_MAX */
    int n;
    const char *transport; /* of the worlds of epochs: "tcp(...)"; NULL: "tcp" */
    int least;             /* workers with which it works; with fewer it waits for others */
    int64_t admission_ns;  /* a newcomer that is not admitted for so long gives up; 0: 60 s */
    /* With fewer workers than `least`, or without a majority of its epoch, it waits for others for
       so long; 0: 10 minutes. */
    int64_t lack_ns;
    uint64_t most;     /* bytes of a state that may be taken */
    const char *pass;  /* the file of the run's pass (launch/launch.h), which has the addresses of
                          members from then on, and is removed when the run ends; NULL: none */
    bool pass_stays;   /* it is not removed */
    const char *about; /* sent to those that ask what is trained; NULL: nothing */
    const char *folder; /* the run's directory, for `tutti why`; NULL: none */
    /* A newcomer, before it asks to be admitted: does it fit what a member has sent as its `about`?
       If not, tutti_follower_next fails as this does. NULL: it is not asked. */
    tutti_status (*fits)(void *user, const char *about, tutti_error *err);
    /* All functions may be NULL. leaves: asked in each step and each wait: is this process to
       leave? It may then end, without a step being lost. */
    bool (*leaves)(void *user);
    /* The node is open: others may join by this address. */
    void (*listens)(void *user, const char *address);
    void (*say)(void *user, const char *line); /* what it waits for */
    /* The run ends without others, and this is its last state. Of several one is asked, and none
       where each has a part of the state only. */
    tutti_status (*save)(void *user, const tutti_image *image, tutti_error *err);
    bool saves_at_leave; /* also when all members leave because they are asked to */
    bool program_saves;  /* `save` leaves it to a program whether the state is saved */
    /* Writes what the user can do then. saves: save is to be called yet. */
    void (*mends)(void *user, bool saves, char *text, size_t bytes);
    void *user;
} tutti_follow_options;

/* Opens the node. The options are copied, what they point to is borrowed. TUTTI_ERR_USAGE: as
   tutti_node_found and tutti_node_join. */
tutti_status tutti_follower_open(tutti_follower **out, tutti_runtime *rt,
                                 const tutti_follow_options *options, tutti_error *err);
/* After all worlds are closed. Accepts NULL. */
void tutti_follower_close(tutti_follower *f);

typedef struct tutti_turn {
    tutti_world *world;       /* of the epoch's members, the client's to close; NULL: this process
                                    has left the run */
    uint64_t epoch, step;     /* the epoch, and the step at which it begins */
    uint64_t run;             /* as tutti_node_run */
    int64_t worker;           /* this process's tutti_member.rank */
    int64_t agreed_ns;        /* when this process had its state, and went to its meeting place */
    const tutti_image *image; /* the state of that step, until the first one is committed or
                                    tutti_follower_over; NULL: step 0 */
} tutti_turn;
/* Waits for the next epoch with this process as a member, gets its state, and opens its world.
   TUTTI_TIMEOUT: a newcomer is not admitted. TUTTI_ERR_PEER: others were missing for lack_ns;
   `save` was called on one process. TUTTI_ERR_STATE: members have different states. Blocks. */
tutti_status tutti_follower_next(tutti_follower *f, tutti_turn *turn, tutti_error *err);

/* May this step (from 0) be made? false: the epoch ends. All that the members send each other in
   the step has arrived. */
bool tutti_follower_commit(tutti_follower *f, uint64_t step);
/* Leaves the run if this process is to, as commit does: for a client that calls commit after some
   steps only. false: all leave, and the run ends. */
bool tutti_follower_stays(tutti_follower *f);
/* Could one be made? false: the epoch of the last turn ends, so that computing a step would be in
   vain. A change without a loss is agreed with the end of a step, and the member learns it
   there. */
bool tutti_follower_acts(tutti_follower *f);

/* Asks for the next epoch, also with the same members, if that of the last turn is the newest. It
   ends that epoch as a newcomer does. */
void tutti_follower_renew(tutti_follower *f);

/* The client has closed the world of this turn. image: the state of a whole step that is left, or a
   part of it, which is given to those that need it; NULL: the turn's. beside: what it has of a
   neighbouring step, and others may lack; NULL: nothing. Both are the follower's now, also
   on failure. */
tutti_status tutti_follower_over(tutti_follower *f, tutti_image *image, tutti_image *beside,
                                 tutti_error *err);

/* Tells the other members that the run has ended, and needs nothing of them. One that has missed
   the end, and has no majority without those that have left, then leaves too. */
void tutti_follower_tell_end(tutti_follower *f);

/* As tutti_node_sockets. */
int tutti_follower_sockets(tutti_follower *f, int *fds, int most);

/* The run has ended here: leaves it. Others may need this process to agree on an epoch in which its
   end is made again, so it waits until it has left, for 5 s at most. */
void tutti_follower_end(tutti_follower *f);

/* This process ends by an error of its own: leaves the run in order, so that those that are left
   are a majority, and have its state if they lack it (tutti_follower_over before, where there is
   one). Waits until it has left, and they have its part of the state: for 2 s, or 20 s at most
   while it is asked for that, and not for others that do not answer. If it has not left then it
   tells them so: they end if those that have not failed can be no majority. */
void tutti_follower_fail(tutti_follower *f);
#pragma GCC visibility pop
#endif
