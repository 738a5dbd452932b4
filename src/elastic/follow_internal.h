/* follow_internal.h: what the files of a follower share (follow.h lists them). */
#ifndef TUTTI_ELASTIC_FOLLOW_INTERNAL_H
#define TUTTI_ELASTIC_FOLLOW_INTERNAL_H
#include "follow.h"
#include "runtime/activity.h"

#define FOLLOW_MS INT64_C(1000000)
enum {
    ADMISSION_MS = 60000,
    ASK_MS = 200,
    DEAD_MS = 1000,
    LEAVING_MS = 5000,
    FAILING_MS = 2000, /* one that fails waits at most until it has left, or as long after it was
                          asked for its state */
    SENT_MS = 100,
    LACK_MS = 600000,
    SAY_MS = 3000,
    LINGER_MS = 20000, /* that one which has left, or fails, gives of its state at most */
    QUIET_MS = 1000    /* and after which it is not asked any more */
};

/* A wait for others to come back. */
typedef struct tutti_follow_wait {
    bool lasts;
    bool reported;    /* a line was printed */
    int64_t since_ns;
} tutti_follow_wait;

struct tutti_follower {
    tutti_follow_options o;
    tutti_carrier *carrier;
    bool rest;           /* what is on offer was put together of parts for this epoch's beginning */
    uint64_t *worked;    /* [n_worked], room for TUTTI_MEMBERS_MAX: ids of the members of the last
                            world. Some may have left since */
    int n_worked;
    uint64_t told;       /* the last epoch for which tutti_follower_tell_left sent its notes */
    tutti_follow_wait missing; /* no member has all of the state of the epoch, nor have all
                                  together */
    tutti_node *node;
    tutti_epoch *newest; /* scratch, too large for a stack */
    uint64_t epoch;      /* whose state it fetches, or in whose world it works */
    uint64_t spent;      /* the epoch whose world has ended, or could not be opened; 0 */
    int64_t spent_ns;    /* since when */
    uint64_t spent_step; /* at which it began */
    uint64_t few;        /* the epoch that has too few workers; 0 */
    int few_n;           /* how many it has */
    int64_t few_ns;      /* since when it waits for others; goes on when more of them go */
    tutti_follow_wait alone; /* too few answer to decide an epoch */
    int64_t opened_ns;   /* since when the node is open */
    bool ready, leaving; /* the node knows */
    bool pass_failed;    /* the pass could not be written, and a line was printed */
    bool fits;           /* a member has sent what is trained, and this process fits it */
    tutti_activity *record; /* what it is in while it has no world, for `tutti why`; NULL: none */
    const char *in;      /* the text that is there; NULL: none */
};

/* ---- follow_wait.c ---- */

/* Notes in its record what it is in from now on: a constant. */
void tutti_follower_note(tutti_follower *f, const char *what, uint64_t step);
/* Waits a moment for another view. */
void tutti_follower_wait(tutti_follower *f, const tutti_node_view *view);
/* There are fewer workers than the run is to have. TUTTI_ERR_PEER: for too long. */
tutti_status tutti_follower_wait_for_more(tutti_follower *f, const tutti_node_view *view,
                                          tutti_error *err);
/* Those that answer cannot decide the next epoch. TUTTI_ERR_PEER: for too long. */
tutti_status tutti_follower_wait_for_majority(tutti_follower *f, const tutti_node_view *view,
                                              tutti_error *err);
/* Those that are left do not have all of the state of the epoch, for the reason `why`.
   TUTTI_ERR_PEER: for too long. */
tutti_status tutti_follower_wait_for_state(tutti_follower *f, const tutti_node_view *view,
                                           const char *why, tutti_error *err);
/* Before this process ends without the others: has its client save its state, if it has all of it.
   Of several that answer the first does. Blocks. */
tutti_status tutti_follower_save(tutti_follower *f, const tutti_node_view *view, tutti_error *err);

/* ---- follow_pass.c ---- */

/* Others join by the addresses of this epoch from now on. */
void tutti_follower_write_pass(tutti_follower *f);
/* The run has ended. */
void tutti_follower_remove_pass(const tutti_follower *f);

/* ---- follow_state.c ---- */

/* Puts an image on offer, or closes it. */
tutti_status tutti_follower_offer(tutti_follower *f, tutti_image *image, tutti_error *err);
/* It has no state any more, or (keeps_part) only the part of one that others may lack. */
tutti_status tutti_follower_drop(tutti_follower *f, bool keeps_part, tutti_error *err);
/* The world of the epoch is open. */
void tutti_follower_note_members(tutti_follower *f);
/* It needs nothing of those that have left since the last world: tells them so, once an epoch. */
void tutti_follower_tell_left(tutti_follower *f, const tutti_node_view *view);
/* It has left: waits until the others have its part of the state, or until then, in ns. */
void tutti_follower_linger(tutti_follower *f, int64_t until);
/* Gets the state of the epoch, or finds that it is not to be had yet. */
tutti_status tutti_follower_get_state(tutti_follower *f, const tutti_node_view *view,
                                      tutti_error *err);
/* Does it have more than a part of the state that the node says it holds? If not: gets the rest. */
bool tutti_follower_has_all(const tutti_follower *f, const tutti_node_view *view);
tutti_status tutti_follower_get_rest(tutti_follower *f, const tutti_node_view *view,
                                     tutti_error *err);
/* The image that an epoch of this step begins with. NULL: no step is done. */
tutti_status tutti_follower_find_image(const tutti_follower *f, uint64_t step,
                                       const tutti_image **image, tutti_error *err);
#endif
