/* events.c: the list of changes of peers' states, and the majority rule (events.h). */
#include <errno.h>
#include <string.h>
#include "events.h"

tutti_status tutti_events_open(tutti_events *e, int size, tutti_error *err)
{
    *e = (tutti_events){ .n = 0 };
    e->at = tutti_alloc((size_t)size + TUTTI_EVENTS_WARNINGS, sizeof *e->at);
    return e->at != NULL ? TUTTI_OK
                         : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM,
                                      "no memory to note what happens to %d workers", size);
}

void tutti_events_close(tutti_events *e)
{
    tutti_free(e->at);
    *e = (tutti_events){ .n = 0 };
}

void tutti_events_copy(char *to, size_t capacity, const char *from)
{
    size_t length = strlen(from);

    if (length >= capacity) {
        length = capacity - 1;
        while (length > 0 &&
               ((unsigned char)from[length] & 0xc0) == 0x80) /* in the middle of a character */
            length--;
    }
    for (size_t i = 0; i < length; i++)
        to[i] = (unsigned char)from[i] < ' ' || from[i] == 0x7f ? ' ' : from[i];
    to[length] = '\0';
}

void tutti_events_record(tutti_events *e, int rank, tutti_peer_change change, int64_t now_ns,
                         const char *why)
{
    tutti_peer_event *event;

    if (change != TUTTI_PEER_LOST && e->warnings >= TUTTI_EVENTS_WARNINGS)
        return;
    if (change == TUTTI_PEER_LOST)
        e->lost++;
    else
        e->warnings++;
    event = &e->at[e->n++];
    *event =
        (tutti_peer_event){ .epoch = e->lost, .rank = rank, .change = change, .at_ns = now_ns };
    tutti_events_copy(event->why, sizeof event->why, why);
}

int tutti_events_read(const tutti_events *e, int first, tutti_peer_event *out, int capacity)
{
    for (int i = 0; i < capacity && first >= 0 && first < e->n - i; i++)
        out[i] = e->at[first + i];
    return e->n;
}

bool tutti_events_side_continues(int size, const bool *here, const bool *dead)
{
    int alive = 0, ours = 0, lowest = -1;

    for (int r = 0; r < size; r++) {
        if (dead[r] && !here[r])
            continue;
        if (lowest < 0)
            lowest = r;
        alive++;
        ours += here[r];
    }
    return 2 * ours > alive || (2 * ours == alive && lowest >= 0 && here[lowest]);
}
