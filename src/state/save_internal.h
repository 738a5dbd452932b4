/* save_internal.h: what save.c (what is saved, and how) and save_round.c (the messages between
   ranks about it) share. */
#ifndef TUTTI_STATE_SAVE_INTERNAL_H
#define TUTTI_STATE_SAVE_INTERNAL_H
#include "state_internal.h"

/* 64-bit little-endian numbers and texts with a 0 at the end. failed: no memory, or read past the
   end. */
typedef struct message { uint8_t *data; size_t n, room, at; bool failed; } message;
void tutti_save_put_number(message *m, uint64_t number);
void tutti_save_put_text(message *m, const char *text);
void tutti_save_put_outcome(message *m, tutti_status status, const tutti_error *why);
uint64_t tutti_save_get_number(message *m);
const char *tutti_save_get_text(message *m);

typedef struct saver {
    tutti_world *world;
    tutti_runtime *rt;
    const int *ranks;             /* of the members; NULL: all */
    int rank, size;               /* indexes among the members, here and below, but in sentences and
                                     errors */
    const char *dir, *facts;
    uint64_t step;
    const tutti_saved *items;
    size_t n;
    tutti_port report, verdict;
    tutti_commit commit;
    message *received;            /* rank 0: size of them, this round's reports */
} saver;

static inline int rank_of(const saver *s, int index)
{
    return s->ranks != NULL ? s->ranks[index] : index;
}

/* Keeps one failure of the round, the cause of the others: the first that is not a peer's
   loss. */
void tutti_save_take_worse(tutti_status *status, tutti_error *why, int rank, tutti_status other,
                           const tutti_error *other_why, const saver *s);
/* Sends the report, or on rank 0 keeps it. Takes ownership of m's memory. */
tutti_status tutti_save_say(saver *s, message *m, tutti_error *err);
/* Rank 0: receives all reports of the round; each begins with the rank's outcome. */
tutti_status tutti_save_receive_all(saver *s, tutti_error *why);
/* Rank 0 without memory: receives all reports unread, since a sender may wait until its report is
   received. */
void tutti_save_receive_none(saver *s);
void tutti_save_forget(saver *s); /* the reports */
/* Sends rank 0's decision on the round to all. A lost rank need not receive it. A rank that
   cannot be notified for another reason must not be left waiting while the others continue: then
   rank 0 fails too, whatever the decision was. */
tutti_status tutti_save_decide(saver *s, tutti_status status, const tutti_error *why,
                               uint64_t number, tutti_error *err);
tutti_status tutti_save_await_decision(saver *s, uint64_t *number, tutti_error *err);
#endif
