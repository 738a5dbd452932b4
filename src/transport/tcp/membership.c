/* membership.c: the state of each rank, as one rank or the meeting place knows it: which have left,
   failed or are lost, why, and which rank caused it (tcp_membership). The rules of blame are those
   of shm/region.c. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include "tcp_internal.h"

tutti_status tutti_tcp_membership_open(tcp_membership *r, int size, tutti_error *err)
{
    r->size = size;
    r->failures = 0;
    r->ranks = tutti_alloc((size_t)size, sizeof *r->ranks);
    if (r->ranks == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "no memory to keep account of %d workers",
                          size);
    for (int k = 0; k < size; k++)
        r->ranks[k].blame = r->ranks[k].host = -1;
    return TUTTI_OK;
}

void tutti_tcp_membership_close(tcp_membership *r)
{
    tutti_free(r->ranks);
    r->ranks = NULL;
}

void tutti_tcp_departure_of(tcp_departure *d, int rank, tutti_meet_state state,
                            const tutti_error *why, int signal, int size)
{
    *d = (tcp_departure){ .rank = rank, .state = state, .blame = -1, .signal = signal };
    if (state == TUTTI_MEET_LEFT || why == NULL)
        return;
    if (why->status == TUTTI_ERR_PEER && why->rank >= 0 && why->rank < size && why->rank != rank)
        d->blame = why->rank;
    d->status = why->status;
    snprintf(d->reason, sizeof d->reason, "%s", why->text);
}

bool tutti_tcp_membership_depart(tcp_membership *r, const tcp_departure *d, int64_t now_ns)
{
    tutti_meet_rank *line = &r->ranks[d->rank];

    if (line->state >= TUTTI_MEET_FAILED ||
        (line->state == TUTTI_MEET_LEFT && d->state == TUTTI_MEET_LEFT))
        return false;
    line->state = d->state;
    line->blame = -1;
    if (d->state == TUTTI_MEET_LEFT)
        return true;
    line->blame = d->blame;
    line->status = d->status;
    line->signal = d->signal;
    line->order = r->failures++;
    line->noticed_ns = now_ns;
    snprintf(line->reason, sizeof line->reason, "%s", d->reason);
    return true;
}

int tutti_tcp_membership_root(const tcp_membership *r, int rank)
{
    int root = rank;

    /* Two that blame each other are as guilty as each other: stop after as many steps as there are
       ranks. */
    for (int steps = 0; steps < r->size; steps++) {
        const int blame = r->ranks[root].state >= TUTTI_MEET_FAILED ? r->ranks[root].blame : -1;
        if (blame < 0)
            return root;
        root = blame;
    }
    return rank;
}

int tutti_tcp_membership_culprit(const tcp_membership *r)
{
    int culprit = -1;
    int64_t least = INT64_MAX;

    for (int k = 0; k < r->size; k++) {
        const tutti_meet_rank *line = &r->ranks[k];
        int64_t guilt;
        if (line->state < TUTTI_MEET_FAILED)
            continue;
        guilt = line->state == TUTTI_MEET_LOST && line->signal != 0 ? 0
                : line->status != TUTTI_ERR_PEER                    ? 1
                                                                    : 2;
        guilt = guilt << 32 | line->order;
        if (guilt < least) {
            least = guilt;
            culprit = k;
        }
    }
    return culprit;
}

void tutti_tcp_membership_describe(const tcp_membership *r, int rank, char *text, size_t bytes)
{
    const tutti_meet_rank *line = &r->ranks[rank];
    tutti_error cut; /* tutti_fail cuts at a whole character */

    switch (line->state) {
    case TUTTI_MEET_FAILED:
        tutti_fail(&cut, TUTTI_ERR_PEER, 0, "worker %d failed: %s", rank, line->reason);
        break;
    case TUTTI_MEET_LOST:
        tutti_fail(&cut, TUTTI_ERR_PEER, 0, "worker %d was lost: %s", rank, line->reason);
        break;
    case TUTTI_MEET_LEFT:
        tutti_fail(&cut, TUTTI_ERR_PEER, 0, "worker %d has left the run", rank);
        break;
    default: /* its end is not known here, though another rank may have reported that it failed because of this one */
        tutti_fail(&cut, TUTTI_ERR_PEER, 0, "worker %d is gone, as other workers report", rank);
        for (int k = 0; k < r->size; k++) {
            if (r->ranks[k].state >= TUTTI_MEET_FAILED && r->ranks[k].blame == rank) {
                tutti_fail(&cut, TUTTI_ERR_PEER, 0,
                           "worker %d was lost, according to the failure report of worker %d: %s",
                           rank, k, r->ranks[k].reason);
                break;
            }
        }
        break;
    }
    if (bytes > 0)
        snprintf(text, bytes, "%s", cut.text);
}
