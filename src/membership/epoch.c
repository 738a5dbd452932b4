/* Epochs as values.

   Majorities of one epoch meet: two sets of more than half do, and of two halves only one has the
   member of the lowest rank (weighted voting, Gifford, "Weighted Voting for Replicated Data", SOSP
   1979, with half a vote more for one member). So of two members one may be lost, if it is the
   right one. */
#include "membership_internal.h"
#include <string.h>

int tutti_epoch_find(const tutti_epoch *e, uint64_t id)
{
    for (int i = 0; i < e->n; i++)
        if (e->members[i].id == id)
            return i;
    return -1;
}

void tutti_epoch_copy(tutti_epoch *to, const tutti_epoch *from)
{
    to->number = from->number;
    to->step = from->step;
    to->next_rank = from->next_rank;
    to->n = from->n;
    memcpy(to->members, from->members, (size_t)from->n * sizeof *from->members);
}

bool tutti_epoch_majority(const tutti_epoch *e, int n, bool first)
{
    return 2 * n > e->n || (2 * n == e->n && first);
}

static bool is_address(const char *text)
{
    const size_t length = strnlen(text, TUTTI_ADDRESS_BYTES);

    for (size_t k = 0; k < length; k++)
        if (text[k] <= ' ' || text[k] > '~')
            return false;
    return length > 0 && length < TUTTI_ADDRESS_BYTES;
}

tutti_status tutti_epoch_check(const tutti_epoch *e, tutti_error *err)
{
    int holders = 0;

    if (e->number < 1)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "an epoch has number 0; the first one is 1");
    if (e->n < 1 || e->n > TUTTI_MEMBERS_MAX)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "epoch %llu has %d members; 1 to %d are possible",
                          (unsigned long long)e->number, e->n, TUTTI_MEMBERS_MAX);
    for (int i = 0; i < e->n; i++) {
        const tutti_member *const a = &e->members[i];
        if (a->id == 0 || tutti_epoch_find(e, a->id) != i)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "member %d of epoch %llu has id %llx, which is 0 or another's", i,
                              (unsigned long long)e->number, (unsigned long long)a->id);
        if (a->rank >= e->next_rank || (i > 0 && a->rank <= e->members[i - 1].rank))
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "member %d of epoch %llu has rank %u; ranks ascend and are below %u",
                              i, (unsigned long long)e->number, a->rank, e->next_rank);
        if (!is_address(a->address))
            return tutti_fail(
                err, TUTTI_ERR_USAGE, 0,
                "member %d of epoch %llu has no address of 1 to %d printable characters", i,
                (unsigned long long)e->number, TUTTI_ADDRESS_BYTES - 1);
        holders += a->holds;
    }
    if (holders == 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "no member of epoch %llu holds the state of step %llu",
                          (unsigned long long)e->number, (unsigned long long)e->step);
    return TUTTI_OK;
}

/* ---- the next epoch ---- */

static void append(tutti_epoch *next, const tutti_member *member)
{
    next->members[next->n++] = *member;
}

/* Members that promised, in their order. `leavers`: those that want to leave, and hold the newest
   state, too. Returns how many hold it. */
static int keep_members(tutti_epoch *next, const tutti_membership *m, bool leavers)
{
    int holders = 0;

    next->n = 0;
    for (int i = 0; i < m->epoch.n; i++) {
        const peer *const p = &m->peers[i];
        const bool holds = p->holds && p->step == next->step;
        tutti_member member = m->epoch.members[i];
        if (!p->promised || (p->leaving && !(leavers && holds)))
            continue;
        member.holds = holds;
        holders += holds;
        append(next, &member);
    }
    return holders;
}

/* Those that are ready, have been heard of lately, and are in no order but that of their ids. */
static void admit_newcomers(tutti_epoch *next, const tutti_membership *m)
{
    uint64_t last = 0;

    while (next->n < most_members(m)) {
        const newcomer *least = NULL;
        tutti_member member = { .holds = false };
        for (int k = 0; k < m->n_newcomers; k++) {
            const newcomer *const a = &m->newcomers[k];
            if (tutti_membership_admits(m, a) && a->id > last && (least == NULL || a->id < least->id))
                least = a;
        }
        if (least == NULL)
            return;
        member.id = last = least->id;
        member.rank = next->next_rank++;
        memcpy(member.address, least->address, sizeof member.address);
        append(next, &member);
    }
}

/* Could a majority have that step: those that promised and have it, and all that did not promise?
   Who promised makes no step any more, so it will not be so later if it is not so now. */
static bool may_be_agreed(const tutti_membership *m, uint64_t step)
{
    bool first = false;
    int n = 0;

    for (int i = 0; i < m->epoch.n; i++) {
        const peer *const p = &m->peers[i];
        const bool has = !p->promised || (p->holds && p->step >= step);
        n += has;
        first = first || (i == 0 && has);
    }
    return tutti_epoch_majority(&m->epoch, n, first);
}

static int holders_of(const tutti_membership *m, uint64_t step)
{
    int n = 0;

    for (int i = 0; i < m->epoch.n; i++)
        n += m->peers[i].promised && m->peers[i].holds && m->peers[i].step == step;
    return n;
}

/* Of the steps that are not before one that may be agreed, that which most members have. A later
   step of a few is made once more; else all would depend on those few. */
static int choose_step(const tutti_membership *m, uint64_t *chosen)
{
    uint64_t least = m->epoch.step;
    int most = 0;

    for (int i = 0; i < m->epoch.n; i++)
        if (m->peers[i].promised && m->peers[i].holds && m->peers[i].step > least &&
            may_be_agreed(m, m->peers[i].step))
            least = m->peers[i].step;
    for (int i = 0; i < m->epoch.n; i++) {
        const uint64_t step = m->peers[i].step;
        const int n = holders_of(m, step);
        if (step >= least && (n > most || (n == most && n > 0 && step > *chosen))) {
            *chosen = step;
            most = n;
        }
    }
    return most;
}

bool tutti_epoch_next(tutti_epoch *next, const tutti_membership *m)
{
    next->number = m->epoch.number + 1;
    next->next_rank = m->epoch.next_rank;
    if (choose_step(m, &next->step) == 0)
        return false;
    /* The state must not leave with those that have it: they stay for one epoch more. */
    if (keep_members(next, m, false) == 0)
        (void)keep_members(next, m, true);
    admit_newcomers(next, m);
    return true;
}
