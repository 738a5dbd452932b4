/* save_internal.h: a rank's state while a checkpoint is saved, and the messages about it. Included
   by save.c, which decides what is saved and when, and save_round.c, which implements these
   functions.

   Saving has rounds. In a round each rank sends a report to rank 0: whether its part has
   succeeded, and what it has saved. Then rank 0 sends its decision on all of them to each rank.
   Blocks; one thread. */
#ifndef TUTTI_STATE_SAVE_INTERNAL_H
#define TUTTI_STATE_SAVE_INTERNAL_H
#include "state_internal.h"

/* A text of numbers (64 bits, little-endian) and strings (ended by 0), being written or read. */
typedef struct message {
    uint8_t *data;
    size_t n, room;               /* bytes written; capacity */
    size_t at;                    /* position of reading */
    bool failed;                  /* there was no memory, or reading went past the end */
} message;
void tutti_save_put_number(message *m, uint64_t number);
void tutti_save_put_text(message *m, const char *text);
void tutti_save_put_outcome(message *m, tutti_status status, const tutti_error *why);
/* Return the next number, or string (in m->data); after a failure 0, or "". */
uint64_t tutti_save_get_number(message *m);
const char *tutti_save_get_text(message *m);

typedef struct saver {
    tutti_world *world;
    tutti_runtime *rt;
    const int *ranks;             /* [size]: ranks of the members, which save; NULL: all ranks
                                     do */
    bool uncounted;               /* tutti_world_sent does not count the messages */
    int rank, size;               /* index of this rank among the members, and their number. In
                                     this header a "rank" is such an index; in messages to users it
                                     is a rank of the world */
    const char *dir, *facts;      /* the caller's */
    uint64_t step;
    const tutti_saved *items;     /* [n]: what this rank saves; the caller's */
    size_t n;
    tutti_port report, verdict;   /* ports of reports, and of decisions */
    tutti_commit commit;          /* rank 0's */
    message *received;            /* [size], on rank 0: the reports of this round; else NULL */
} saver;

/* Returns the rank of a member in the world. */
static inline int rank_of(const saver *s, int index)
{
    return s->ranks != NULL ? s->ranks[index] : index;
}

/* Keeps in *status and *why the failure of a round that is the cause of the others: the first that
   is not the loss of a peer. rank: the rank whose outcome `other` is, for the message. */
void tutti_save_take_worse(tutti_status *status, tutti_error *why, int rank, tutti_status other,
                           const tutti_error *other_why, const saver *s);
/* Sends this rank's report to rank 0; on rank 0 stores it, which takes the memory of m. */
tutti_status tutti_save_send_report(saver *s, message *m, tutti_error *err);
/* On rank 0: receives all reports of the round, and returns the worst outcome in them, with its
   error in *why. */
tutti_status tutti_save_receive_all(saver *s, tutti_error *why);
/* On rank 0, if it has no memory for reports: receives and drops all of them, since a sender may
   block until its report is received. */
void tutti_save_receive_none(saver *s);
/* Frees the reports of the round. */
void tutti_save_free_reports(saver *s);
/* On rank 0: sends its decision (status, *why, number) to all ranks, and returns it. A lost rank
   need not receive it. If another rank cannot be notified, rank 0 fails as well, so that no rank
   waits while the others continue. */
tutti_status tutti_save_decide(saver *s, tutti_status status, const tutti_error *why,
                               uint64_t number, tutti_error *err);
/* On the other ranks: receives rank 0's decision, and returns its status. */
tutti_status tutti_save_await_decision(saver *s, uint64_t *number, tutti_error *err);
#endif
