/* carry.h: the state of a run goes from members to a newcomer as notes of their nodes: state.h
   decides what is asked of whom, node.h carries it. Implemented by carry*.c.

   A member offers an image of its state. Its node's thread answers requests for it, while the
   member trains on. One that needs the state fetches it from those that hold it.

   Threads: any may call. fetch is one call at a time. */
#ifndef TUTTI_ELASTIC_CARRY_H
#define TUTTI_ELASTIC_CARRY_H
#include "elastic/node.h"
#include "elastic/state.h"
#pragma GCC visibility push(default)

typedef struct tutti_carrier tutti_carrier;

/* rt: its clock and lock; borrowed. */
tutti_status tutti_carrier_open(tutti_carrier **out, tutti_runtime *rt, tutti_error *err);
/* After the node is closed. Accepts NULL. */
void tutti_carrier_close(tutti_carrier *c);

/* on_note of the node's options; `carrier` is its user. It takes notes of the kinds 16 to 31, and
   returns false for others, which are the client's. */
bool tutti_carrier_note(void *carrier, const tutti_node_note *note);
/* The node by which it sends, as soon as that is open; NULL: none any more, before that is
   closed. */
void tutti_carrier_use(tutti_carrier *c, tutti_node *node);

/* From now on this image is given to those that ask for its step; `of` says how it is cut. The
   carrier owns it and closes the one before; image NULL: nothing is given. On failure the image
   stays the caller's, and the one before stays on offer. */
tutti_status tutti_carrier_offer(tutti_carrier *c, tutti_image *image,
                                 const tutti_elastic_state *of, tutti_error *err);
/* This image without facts is given in addition to those that ask for any part of the state of its
   step (tutti_engine_image_beside). NULL: none. As above, it is the carrier's, also on failure. */
tutti_status tutti_carrier_offer_beside(tutti_carrier *c, tutti_image *image,
                                        const tutti_elastic_state *of, tutti_error *err);
/* Has something of what is on offer been asked for within the last for_ns? */
bool tutti_carrier_is_asked(tutti_carrier *c, int64_t for_ns);
/* The image on offer; NULL: none. The carrier's, until the next offer. */
const tutti_image *tutti_carrier_offered(const tutti_carrier *c);

/* The answer of this process to those that ask what run it is: a text, copied. Call it before the
   node is open. TUTTI_ERR_MEMORY; TUTTI_ERR_USAGE: it is longer than a note. */
tutti_status tutti_carrier_about(tutti_carrier *c, const char *text, tutti_error *err);
/* Asks the members that its node knows for that text, one after the other, for limit_ns at most.
   Also by a newcomer, before it is ready. *text: tutti_free it; NULL on failure. TUTTI_TIMEOUT:
   none has answered; the sentence says what the node knows. Blocks. */
tutti_status tutti_carrier_ask(tutti_carrier *c, int64_t limit_ns, char **text, tutti_error *err);

/* Tells those processes that this one has all of the state of that epoch: they have left, and need
   not give it any of it. */
void tutti_carrier_tell_have(tutti_carrier *c, uint64_t epoch, const uint64_t *ids, int n);
/* Do these members of that epoch need what is on offer? Not after all of them have sent
   tutti_carrier_tell_have, nor after the first of them has and no request came for quiet_ns. */
bool tutti_carrier_is_needed(tutti_carrier *c, uint64_t epoch, const uint64_t *ids, int n,
                             int64_t quiet_ns);

/* Sends the process of that id a note by which it leaves. It may be lost: look at the epochs. */
void tutti_carrier_dismiss(tutti_carrier *c, uint64_t id);
/* Has this process received such a note? */
bool tutti_carrier_dismissed(tutti_carrier *c);

/* Sends the process of that id a note that the run has ended: with its results, or (failed) since
   its last members have failed. It may be lost. */
void tutti_carrier_tell_end(tutti_carrier *c, uint64_t id, bool failed);
/* Has this process received such a note? *failed: the second kind. */
bool tutti_carrier_ended(tutti_carrier *c, bool *failed);
/* Sends the process of that id a note that this member of that epoch ends by an error, and that the
   others have not agreed on an epoch without it. It may be lost. */
void tutti_carrier_tell_failure(tutti_carrier *c, uint64_t epoch, uint64_t id);
/* Has this process received such a note of that epoch from the member of that id? */
bool tutti_carrier_has_failed(tutti_carrier *c, uint64_t epoch, uint64_t id);

typedef struct tutti_carried {
    tutti_elastic_state of;      /* the state, as those that hold it cut it */
    const uint64_t *holders;     /* [n]: ids of the processes that hold it, or a part of it. This
                                    process may be one: what it has on offer is taken first, and no
                                    other is asked for it */
    int n;
    const uint64_t *others;      /* [n_others]: ids of processes that may have a part of it, since
                                    their state is that of a neighbouring step, or they are no
                                    members any more. They are asked if the holders do not have all,
                                    and are passed over if they do not answer for 3 s */
    int n_others;
    uint64_t most;               /* bytes that may be taken */
    int64_t stall_ns;            /* as of tutti_fetch_options; 0: 1 s */
    /* Asked every few ms: has the reason to fetch it ended, such as the epoch? It must not call the
       carrier. NULL: no. */
    bool (*ends)(void *user);
    void *user;
} tutti_carried;
/* Fetches a state. Blocks. *image: tutti_image_close it; NULL on failure.
     TUTTI_CLOSED     `ends` returned true
     TUTTI_ERR_PEER   no process that is left has what is missing; one may have it later
     TUTTI_ERR_STATE  two of them have different states
     others           as tutti_fetch_open */
tutti_status tutti_carrier_fetch(tutti_carrier *c, const tutti_carried *what, tutti_image **image,
                                 tutti_error *err);
#pragma GCC visibility pop
#endif
