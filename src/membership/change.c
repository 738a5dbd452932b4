/* One decision: the epoch after this one.

   It is single-decree Paxos among the members of this epoch (Lamport, "Paxos Made Simple", 2001,
   section 2.2); that each configuration decides the next one is the chain of Lamport, Malkhi and
   Zhou, "Reconfiguring a State Machine", SIGACT News 41(1), 2010, section 3. What is added:

     - A promise ends the epoch for the member that gives it: it applies no step any more. It names
       the step that it holds. So the promises of a majority tell which steps a majority may have,
       and the next epoch does not begin before those: no agreed step is lost.
     - A change without a loss names a step that is to be done first, so that no computation is
       thrown away. The promise is deferred until then.
     - The members of the next epoch are those that have promised. To promise is the sign of life.
     - Nothing is written to disk. A process that ends takes its promises with it, and as its id is
       never used again it cannot contradict them.

   The proposer is the member of the lowest rank that is not suspected. Another one takes over when
   that one is suspected, or when nothing has moved for a time that grows with its position, which
   is also how members agree that do not suspect the same ones. */
#include "membership_internal.h"

enum { BOUNDARY_MOST = 20 };     /* times boundary_ns */

static int owner_of(const tutti_membership *m, uint64_t ballot)
{
    for (int i = 0; i < m->epoch.n; i++)
        if (m->epoch.members[i].rank == (uint32_t)ballot)
            return i;
    return -1;
}

static void see_ballot(tutti_membership *m, uint64_t ballot)
{
    if (ballot >> 32 > m->round)
        m->round = ballot >> 32;
}

/* The largest ballot that this member has promised, or will promise when a step is done. */
static uint64_t pledged(const tutti_membership *m)
{
    return m->deferred > m->promised ? m->deferred : m->promised;
}

/* Its place among those that are not suspected. */
static int position(const tutti_membership *m)
{
    int before = 0;

    for (int i = 0; i < m->me; i++)
        before += !tutti_membership_is_suspected(m, i);
    return before;
}

/* How long a change without a loss waits for the end of a step, before which one more may have to
   be made. */
static int64_t boundary(const tutti_membership *m)
{
    const int64_t least = m->options.boundary_ns, most = BOUNDARY_MOST * least,
                  steps = 3 * m->step_ns;

    return steps < least ? least : steps > most ? most : steps;
}

static void wait_for_others(tutti_membership *m)
{
    m->phase = IDLE;
    m->patience_ns = m->now_ns + (1 + position(m)) * m->options.retry_ns;
}

static void note_promise(tutti_membership *m, int from, const message *w, const tutti_epoch *value)
{
    peer *const p = &m->peers[from];

    p->promised = true;
    p->step = w->step;
    p->holds = w->holds;
    p->leaving = w->leaving;
    if (w->accepted > m->best) {
        m->best = w->accepted;
        tutti_epoch_copy(&m->proposal, value);
    }
}

/* Also a second time, if the message was lost: what it says cannot have changed. */
static void give_promise(tutti_membership *m, uint64_t ballot)
{
    message w = { .kind = PROMISE, .ballot = ballot, .accepted = m->accepted };
    const int to = owner_of(m, ballot);

    m->promised = ballot;
    m->deferred = 0;
    w.step = m->step;
    w.holds = m->holds;
    w.leaving = m->leaving;
    if (to == m->me)
        note_promise(m, to, &w, &m->value);
    else if (to >= 0)
        tutti_membership_send(m, m->epoch.members[to].address, &w, m->accepted != 0 ? &m->value : NULL);
}

void tutti_membership_prepare(tutti_membership *m, uint64_t ballot, uint64_t step, int from)
{
    see_ballot(m, ballot);
    if (ballot < pledged(m))
        return;
    if (from != m->me && ballot != pledged(m)) {
        wait_for_others(m);
        m->patience_ns += step != 0 ? boundary(m) : 0;
    }
    if (m->promised != 0 || step <= m->step) {
        give_promise(m, ballot);
        return;
    }
    if (m->deferred == 0)
        m->deferred_until_ns = m->now_ns + boundary(m);
    m->deferred = ballot;
    m->deferred_step = step;
}

void tutti_membership_promise(tutti_membership *m, const message *w, const tutti_epoch *value, int from)
{
    if (m->phase == PREPARING && w->ballot == m->ballot)
        note_promise(m, from, w, value);
}

void tutti_membership_accept(tutti_membership *m, uint64_t ballot, const tutti_epoch *value, int from)
{
    message w = { .kind = ACCEPTED, .ballot = ballot };

    see_ballot(m, ballot);
    if (ballot < pledged(m))
        return;
    if (from != m->me && ballot != m->accepted)
        wait_for_others(m);
    m->promised = m->accepted = ballot;
    m->deferred = 0;
    tutti_epoch_copy(&m->value, value);
    if (from == m->me)
        m->peers[from].accepted = true;
    else
        tutti_membership_send(m, m->epoch.members[from].address, &w, NULL);
}

void tutti_membership_accepted(tutti_membership *m, uint64_t ballot, int from)
{
    if (m->phase == ACCEPTING && ballot == m->ballot)
        m->peers[from].accepted = true;
}

/* ---- the proposer ---- */

static bool any_suspected(const tutti_membership *m)
{
    for (int i = 0; i < m->epoch.n; i++)
        if (tutti_membership_is_suspected(m, i))
            return true;
    return false;
}

/* The step that all can still reach together, past those that are in work; 0: now, since no step
   can be completed any more. */
static uint64_t step_to_finish(const tutti_membership *m)
{
    uint64_t newest = m->step;

    for (int i = 0; i < m->epoch.n; i++) {
        if (tutti_membership_is_suspected(m, i))
            return 0;
        if (m->peers[i].step > newest)
            newest = m->peers[i].step;
    }
    return m->promised != 0 ? 0 : newest + 2;
}

static void begin(tutti_membership *m)
{
    message w = { .kind = PREPARE };

    m->ballot = ballot_of(m->round + 1, m->epoch.members[m->me].rank);
    m->ballot_step = step_to_finish(m);
    m->phase = PREPARING;
    m->best = 0;
    for (int i = 0; i < m->epoch.n; i++)
        m->peers[i].promised = m->peers[i].accepted = false;
    w.ballot = m->ballot;
    w.step = m->ballot_step;
    tutti_membership_prepare(m, m->ballot, m->ballot_step, m->me);
    tutti_membership_send_all(m, &w, NULL);
}

static bool majority_promised(const tutti_membership *m)
{
    int n = 0;

    for (int i = 0; i < m->epoch.n; i++) {
        if (!m->peers[i].promised && !tutti_membership_is_suspected(m, i))
            return false; /* it answers: it is to be in the next epoch */
        n += m->peers[i].promised;
    }
    return tutti_epoch_majority(&m->epoch, n, m->peers[0].promised);
}

static bool majority_accepted(const tutti_membership *m)
{
    int n = 0;

    for (int i = 0; i < m->epoch.n; i++)
        n += m->peers[i].accepted;
    return tutti_epoch_majority(&m->epoch, n, m->peers[0].accepted);
}

static void announce(tutti_membership *m)
{
    message w = { .kind = RECORD };

    tutti_membership_send_all(m, &w, &m->proposal);
    for (int i = 0; i < m->proposal.n; i++)
        if (tutti_epoch_find(&m->epoch, m->proposal.members[i].id) < 0)
            tutti_membership_send(m, m->proposal.members[i].address, &w, &m->proposal);
}

static void advance(tutti_membership *m)
{
    message w = { .kind = ACCEPT, .ballot = m->ballot };

    if (m->phase == PREPARING) {
        if (!majority_promised(m) || (m->best == 0 && !tutti_epoch_next(&m->proposal, m)))
            return;
        m->phase = ACCEPTING;
        tutti_membership_accept(m, m->ballot, &m->proposal, m->me);
        tutti_membership_send_all(m, &w, &m->proposal);
    }
    if (m->phase == ACCEPTING && majority_accepted(m)) {
        m->phase = IDLE;
        announce(m);
        tutti_membership_learn(m, &m->proposal);
    }
}

void tutti_membership_resend(tutti_membership *m)
{
    message w = { .kind = m->phase == PREPARING ? PREPARE : ACCEPT, .ballot = m->ballot };

    if (m->phase == IDLE)
        return;
    w.step = m->phase == PREPARING ? m->ballot_step : 0;
    for (int i = 0; i < m->epoch.n; i++)
        if (i != m->me && !(m->phase == PREPARING ? m->peers[i].promised : m->peers[i].accepted))
            tutti_membership_send(m, m->epoch.members[i].address, &w,
                                  m->phase == PREPARING ? NULL : &m->proposal);
}

/* ---- when ---- */

/* Somebody wants to leave, and there is a member that stays and holds the state. */
static bool leave_is_due(const tutti_membership *m)
{
    bool leaves = false, stays = false;

    for (int i = 0; i < m->epoch.n; i++) {
        const peer *const p = &m->peers[i];
        leaves = leaves || p->leaving;
        stays = stays || (!p->leaving && p->holds && !tutti_membership_is_suspected(m, i));
    }
    return leaves && stays;
}

static bool admission_is_due(const tutti_membership *m)
{
    for (int k = 0; k < m->n_newcomers && m->epoch.n < most_members(m); k++)
        if (tutti_membership_admits(m, &m->newcomers[k]))
            return true;
    return false;
}

static bool renewal_is_due(const tutti_membership *m)
{
    for (int i = 0; i < m->epoch.n; i++)
        if (m->peers[i].renews)
            return true;
    return false;
}

static bool change_is_due(const tutti_membership *m)
{
    return pledged(m) != 0 || any_suspected(m) || leave_is_due(m) || admission_is_due(m) ||
           renewal_is_due(m);
}

/* Is it this member's turn without a wait: the first of those that answer, and no other member that
   answers is at it? */
static bool is_proposer(const tutti_membership *m)
{
    const int owner = pledged(m) != 0 ? owner_of(m, pledged(m)) : -1;

    return position(m) == 0 && (owner < 0 || tutti_membership_is_suspected(m, owner));
}

void tutti_membership_change(tutti_membership *m)
{
    if (m->state != TUTTI_MEMBER)
        return;
    if (m->deferred != 0 && (m->step >= m->deferred_step || m->now_ns >= m->deferred_until_ns))
        give_promise(m, m->deferred);
    if (m->phase == PREPARING && m->ballot_step != 0 && any_suspected(m))
        begin(m); /* that step cannot be done any more */
    if (m->phase == IDLE && !change_is_due(m))
        m->patience_ns = 0;
    else if (m->phase == IDLE) {
        if (m->patience_ns == 0)
            wait_for_others(m);
        if (is_proposer(m) || m->now_ns >= m->patience_ns)
            begin(m);
    }
    advance(m);
}
