/* What is so: the state, the agreed step, a sentence. */
#include "membership_internal.h"

tutti_membership_state tutti_membership_state_of(const tutti_membership *m)
{
    return m->state;
}

const tutti_epoch *tutti_membership_epoch(const tutti_membership *m)
{
    return &m->epoch;
}

bool tutti_membership_holds(const tutti_membership *m)
{
    return m->holds;
}

uint64_t tutti_membership_strangers(const tutti_membership *m)
{
    return m->strangers;
}

bool tutti_membership_acts(const tutti_membership *m)
{
    return m->state == TUTTI_MEMBER && m->holds && m->promised == 0;
}

bool tutti_membership_all_leave(const tutti_membership *m)
{
    for (int i = 0; i < m->epoch.n; i++)
        if (!m->peers[i].leaving && !tutti_membership_is_suspected(m, i))
            return false;
    return m->state == TUTTI_MEMBER;
}

int tutti_membership_answering(const tutti_membership *m, bool *majority, bool *first)
{
    int n = 0, before = 0;

    *majority = true;
    *first = false;
    if (m->state != TUTTI_MEMBER)
        return 0;
    for (int i = 0; i < m->epoch.n; i++) {
        const bool answers = !tutti_membership_is_suspected(m, i);
        n += answers;
        before += answers && i < m->me && m->peers[i].holds;
    }
    *majority = tutti_epoch_majority(&m->epoch, n, !tutti_membership_is_suspected(m, 0));
    *first = before == 0;
    return n;
}

static bool majority_has(const tutti_membership *m, uint64_t step)
{
    int n = 0;

    for (int i = 0; i < m->epoch.n; i++)
        n += m->peers[i].holds && m->peers[i].step >= step;
    return tutti_epoch_majority(&m->epoch, n, m->peers[0].holds && m->peers[0].step >= step);
}

uint64_t tutti_membership_agreed(const tutti_membership *m)
{
    uint64_t agreed = m->epoch.step;

    for (int i = 0; i < m->epoch.n && m->state == TUTTI_MEMBER; i++)
        if (m->peers[i].step > agreed && majority_has(m, m->peers[i].step))
            agreed = m->peers[i].step;
    return agreed;
}

static void describe_member(const tutti_membership *m, char *text, size_t bytes)
{
    const unsigned long long number = m->epoch.number, step = m->step,
                             agreed = tutti_membership_agreed(m);
    bool majority, first;
    const int n = tutti_membership_answering(m, &majority, &first);

    if (!majority)
        snprintf(text, bytes,
                 "epoch %llu, step %llu: %d of %d members answer, which is no majority; this "
                 "worker waits, and the last step that it knows to be agreed is %llu",
                 number, step, n, m->epoch.n, agreed);
    else if (m->promised != 0)
        snprintf(text, bytes,
                 "epoch %llu, step %llu: the members agree on the next epoch; %d of %d answer",
                 number, step, n, m->epoch.n);
    else if (!m->holds)
        snprintf(text, bytes, "epoch %llu: this worker fetches the state of step %llu", number,
                 step);
    else
        snprintf(text, bytes, "epoch %llu, step %llu: %d of %d members answer", number, step, n,
                 m->epoch.n);
}

void tutti_membership_describe(const tutti_membership *m, char *text, size_t bytes)
{
    const unsigned long long number = m->epoch.number;

    switch (m->state) {
    case TUTTI_MEMBER: describe_member(m, text, bytes); break;
    case TUTTI_LEFT: snprintf(text, bytes, "this worker has left, in epoch %llu", number); break;
    case TUTTI_REMOVED:
        snprintf(text, bytes, "epoch %llu is without this worker; it can come back as a newcomer",
                 number);
        break;
    case TUTTI_NEWCOMER:
        if (number == 0)
            snprintf(text, bytes, "this worker asks to join, and no member has answered");
        else
            snprintf(text, bytes, "this worker waits to be admitted after epoch %llu%s", number,
                     m->ready ? "" : ", when its copy of the state is ready");
        break;
    }
}
