/* The public functions: what comes in, who is there, and the epoch that is adopted. change.c has
   the decision. */
#include "membership_internal.h"
#include <string.h>

/* ---- out ---- */

void tutti_membership_send(tutti_membership *m, const char *address, message *w, const tutti_epoch *epoch)
{
    memcpy(w->run, m->options.run, sizeof w->run);
    memcpy(w->address, m->address, sizeof w->address);
    w->id = m->options.id;
    w->number = w->kind == RECORD ? epoch->number : m->epoch.number;
    m->options.send(m->options.user, address, m->out, tutti_membership_write(m->out, w, epoch));
}

void tutti_membership_send_all(tutti_membership *m, message *w, const tutti_epoch *epoch)
{
    for (int i = 0; i < m->epoch.n; i++)
        if (i != m->me)
            tutti_membership_send(m, m->epoch.members[i].address, w, epoch);
}

static void send_record(tutti_membership *m, const char *address)
{
    message w = { .kind = RECORD };

    tutti_membership_send(m, address, &w, &m->epoch);
}

static message heartbeat(const tutti_membership *m)
{
    return (message){ .kind = HEARTBEAT,
                      .step = m->step,
                      .holds = m->holds,
                      .leaving = m->leaving,
                      .renews = m->peers[m->me].renews };
}

static void ask_to_join(tutti_membership *m)
{
    message w = { .kind = JOIN, .ready = m->ready };

    for (int k = 0; k < m->n_contacts; k++)
        tutti_membership_send(m, m->contacts[k], &w, NULL);
    for (int i = 0; i < m->epoch.n; i++)
        tutti_membership_send(m, m->epoch.members[i].address, &w, NULL);
}

static void beat(tutti_membership *m)
{
    message w = heartbeat(m);

    m->beat_ns = m->now_ns + m->options.heartbeat_ns;
    if (m->state == TUTTI_NEWCOMER)
        ask_to_join(m);
    else if (m->state == TUTTI_MEMBER) {
        tutti_membership_send_all(m, &w, NULL);
        tutti_membership_resend(m);
    }
}

/* ---- who is there ---- */

bool tutti_membership_is_suspected(const tutti_membership *m, int i)
{
    const peer *const p = &m->peers[i];

    return i != m->me && (p->lost || m->now_ns - p->heard_ns > m->options.dead_ns);
}

/* It asks with each heartbeat. One that has been silent for three is not worth a majority that may
   need it. */
bool tutti_membership_admits(const tutti_membership *m, const newcomer *a)
{
    return a->ready && !a->lost && m->now_ns - a->heard_ns <= 3 * m->options.heartbeat_ns;
}

int tutti_membership_waiting(const tutti_membership *m, uint64_t *ids, int most)
{
    int n = 0;

    for (int k = 0; k < m->n_newcomers && n < most; k++)
        if (tutti_membership_admits(m, &m->newcomers[k]))
            ids[n++] = m->newcomers[k].id;
    return n;
}

static int newcomer_find(const tutti_membership *m, uint64_t id)
{
    for (int k = 0; k < m->n_newcomers; k++)
        if (m->newcomers[k].id == id)
            return k;
    return -1;
}

/* The place of one that has not been heard of for longest is taken if there is no other. */
static int newcomer_place(tutti_membership *m)
{
    int oldest = 0;

    if (m->n_newcomers < NEWCOMERS_MAX)
        return m->n_newcomers++;
    for (int k = 1; k < m->n_newcomers; k++)
        if (m->newcomers[k].heard_ns < m->newcomers[oldest].heard_ns)
            oldest = k;
    return oldest;
}

static void on_join(tutti_membership *m, const message *w)
{
    int k = newcomer_find(m, w->id);

    if (w->number < m->epoch.number)
        send_record(m, w->address);
    if (tutti_epoch_find(&m->epoch, w->id) >= 0)
        return;
    if (k < 0) {
        k = newcomer_place(m);
        m->newcomers[k].id = w->id;
        m->newcomers[k].ready = false;
        memcpy(m->newcomers[k].address, w->address, sizeof w->address);
    }
    m->newcomers[k].heard_ns = m->now_ns;
    m->newcomers[k].lost = false;
    m->newcomers[k].ready = m->newcomers[k].ready || w->ready;
}

static void forget_admitted(tutti_membership *m)
{
    for (int k = 0; k < m->n_newcomers;)
        if (tutti_epoch_find(&m->epoch, m->newcomers[k].id) >= 0)
            m->newcomers[k] = m->newcomers[--m->n_newcomers];
        else
            k++;
}

/* ---- epochs ---- */

/* What is known of the members of the epoch that begins. A silence goes on, so that a member that
   dies in a change is not given the time once more; one that the transport has lost stays lost. In
   place: a member of both epochs stands where it stood before or further to the front, and
   newcomers stand last. */
static void know_members(tutti_membership *m, const tutti_epoch *decided)
{
    for (int i = 0; i < decided->n; i++) {
        const tutti_member *const a = &decided->members[i];
        const int was = m->state == TUTTI_MEMBER ? tutti_epoch_find(&m->epoch, a->id) : -1,
                  k = newcomer_find(m, a->id);
        peer p = { .heard_ns = m->now_ns, .holds = a->holds, .step = decided->step };
        if (was >= 0) {
            p.heard_ns = m->peers[was].heard_ns;
            p.lost = m->peers[was].lost;
        } else if (k >= 0) {
            p.heard_ns = m->newcomers[k].heard_ns;
            p.lost = m->newcomers[k].lost;
        }
        m->peers[i] = p;
    }
}

static void adopt(tutti_membership *m, const tutti_epoch *decided, int me)
{
    know_members(m, decided);
    tutti_epoch_copy(&m->epoch, decided);
    m->state = TUTTI_MEMBER;
    m->me = me;
    m->holds = m->epoch.members[me].holds;
    m->step = m->epoch.step;
    m->promised = m->accepted = m->deferred = m->round = 0;
    m->stepped_ns = 0; /* the time of a change is none of a step */
    m->phase = IDLE;
    m->patience_ns = 0;
    m->peers[me].leaving = m->leaving;
    forget_admitted(m);
    beat(m);
}

void tutti_membership_learn(tutti_membership *m, const tutti_epoch *decided)
{
    const int me = tutti_epoch_find(decided, m->options.id);

    if (decided->number <= m->epoch.number)
        return;
    if (me >= 0) {
        adopt(m, decided, me);
        return;
    }
    tutti_epoch_copy(&m->epoch, decided);
    m->holds = false;
    if (m->state == TUTTI_MEMBER)
        m->state = m->leaving ? TUTTI_LEFT : TUTTI_REMOVED;
}

/* ---- in ---- */

static void on_heartbeat(peer *p, const message *w)
{
    if (w->step > p->step)
        p->step = w->step;
    p->holds = p->holds || w->holds;
    p->leaving = p->leaving || w->leaving;
    p->renews = p->renews || w->renews;
}

static void mark_alive(tutti_membership *m, int i)
{
    m->peers[i].heard_ns = m->now_ns;
    m->peers[i].lost = false;
}

/* From a member of the same epoch. */
static void dispatch(tutti_membership *m, const message *w, int from)
{
    mark_alive(m, from);
    switch (w->kind) {
    case HEARTBEAT: on_heartbeat(&m->peers[from], w); break;
    case PREPARE: tutti_membership_prepare(m, w->ballot, w->step, from); break;
    case PROMISE: tutti_membership_promise(m, w, &m->in, from); break;
    case ACCEPT: tutti_membership_accept(m, w->ballot, &m->in, from); break;
    case ACCEPTED: tutti_membership_accepted(m, w->ballot, from); break;
    case JOIN:
    case RECORD: break; /* handled before */
    }
}

/* The sender knows of a later epoch. What this one sends makes it answer with the record. */
static void ask_for_record(tutti_membership *m, const char *address)
{
    message w =
        m->state == TUTTI_MEMBER ? heartbeat(m) : (message){ .kind = JOIN, .ready = m->ready };

    tutti_membership_send(m, address, &w, NULL);
}

static void handle(tutti_membership *m, const message *w)
{
    const int from = tutti_epoch_find(&m->epoch, w->id);

    if (w->kind == RECORD)
        tutti_membership_learn(m, &m->in);
    else if (w->kind == JOIN && m->state == TUTTI_MEMBER)
        on_join(m, w);
    else if (w->kind == JOIN)
        return; /* one newcomer cannot help another */
    else if (w->number > m->epoch.number) {
        if (from >= 0)
            mark_alive(m, from); /* it may be a member of the later epoch, too */
        ask_for_record(m, w->address);
    } else if (w->number < m->epoch.number && m->state == TUTTI_MEMBER)
        send_record(m, w->address); /* the sender has missed something, or is out */
    else if (from >= 0 && m->state == TUTTI_MEMBER)
        dispatch(m, w, from);
}

tutti_status tutti_membership_receive(tutti_membership *m, int64_t now_ns, const uint8_t *bytes,
                                      size_t n, tutti_error *err)
{
    message w;

    TUTTI_TRY(tutti_membership_read(&w, &m->in, bytes, n, err));
    m->now_ns = now_ns;
    if (memcmp(w.run, m->options.run, sizeof w.run) != 0) {
        m->strangers++;
        return TUTTI_OK;
    }
    if (m->state == TUTTI_LEFT || m->state == TUTTI_REMOVED || w.id == m->options.id)
        return TUTTI_OK;
    handle(m, &w);
    tutti_membership_change(m);
    return TUTTI_OK;
}

int64_t tutti_membership_tick(tutti_membership *m, int64_t now_ns)
{
    m->now_ns = now_ns;
    if (now_ns >= m->beat_ns)
        beat(m);
    tutti_membership_change(m);
    return m->beat_ns;
}

void tutti_membership_lost(tutti_membership *m, int64_t now_ns, uint64_t id)
{
    const int i = tutti_epoch_find(&m->epoch, id), k = newcomer_find(m, id);

    m->now_ns = now_ns;
    if (m->state == TUTTI_MEMBER && i >= 0)
        m->peers[i].lost = true;
    if (k >= 0)
        m->newcomers[k].lost = true;
    tutti_membership_change(m);
}

/* ---- the engine ---- */

bool tutti_membership_step(tutti_membership *m, int64_t now_ns, uint64_t step)
{
    m->now_ns = now_ns;
    if (!tutti_membership_acts(m) || step <= m->step)
        return false;
    if (m->stepped_ns != 0)
        m->step_ns = now_ns - m->stepped_ns;
    m->stepped_ns = now_ns;
    m->step = m->peers[m->me].step = step;
    tutti_membership_change(m);
    return true;
}

bool tutti_membership_hold(tutti_membership *m, int64_t now_ns, uint64_t step)
{
    m->now_ns = now_ns;
    if (m->state != TUTTI_MEMBER || m->holds || m->promised != 0 || step < m->epoch.step)
        return false;
    m->holds = m->peers[m->me].holds = true;
    m->step = m->peers[m->me].step = step;
    tutti_membership_change(m);
    return true;
}

void tutti_membership_ready(tutti_membership *m, int64_t now_ns)
{
    m->now_ns = now_ns;
    m->ready = true;
    if (m->state == TUTTI_NEWCOMER)
        beat(m);
}

void tutti_membership_leave(tutti_membership *m, int64_t now_ns)
{
    m->now_ns = now_ns;
    m->leaving = true;
    if (m->state == TUTTI_NEWCOMER)
        m->state = TUTTI_LEFT;
    if (m->state != TUTTI_MEMBER)
        return;
    m->peers[m->me].leaving = true;
    beat(m);
    tutti_membership_change(m);
}

void tutti_membership_renew(tutti_membership *m, int64_t now_ns)
{
    m->now_ns = now_ns;
    if (m->state != TUTTI_MEMBER)
        return;
    m->peers[m->me].renews = true;
    beat(m);
    tutti_membership_change(m);
}

/* ---- open, close ---- */

static tutti_status check_options(const tutti_membership_options *o, tutti_error *err)
{
    if (o->id == 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "the id of a process is 0; draw another one");
    if (o->address == NULL || o->address[0] == '\0' || strlen(o->address) >= TUTTI_ADDRESS_BYTES)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "the address '%s' of a member has not 1 to %d characters",
                          o->address != NULL ? o->address : "", TUTTI_ADDRESS_BYTES - 1);
    if (o->heartbeat_ns < 1 || o->dead_ns / 3 < o->heartbeat_ns || o->retry_ns < 1 ||
        o->boundary_ns < 0)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "heartbeat %.3f s, dead %.3f s, retry %.3f s, boundary %.3f s: dead is at least three "
            "heartbeats, and none is negative",
            (double)o->heartbeat_ns * 1e-9, (double)o->dead_ns * 1e-9, (double)o->retry_ns * 1e-9,
            (double)o->boundary_ns * 1e-9);
    return TUTTI_OK;
}

static tutti_status membership_open(tutti_membership **out, const tutti_membership_options *options,
                                    int64_t now_ns, tutti_error *err)
{
    *out = NULL;
    TUTTI_TRY(check_options(options, err));
    *out = tutti_alloc(1, sizeof **out);
    if (*out == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no %zu bytes for the members of a run",
                          sizeof **out);
    (*out)->options = *options;
    (*out)->options.address = (*out)->address;
    memcpy((*out)->address, options->address, strlen(options->address) + 1);
    (*out)->now_ns = (*out)->beat_ns = now_ns;
    return TUTTI_OK;
}

tutti_status tutti_membership_found(tutti_membership **out, const tutti_membership_options *options,
                                    const tutti_epoch *founders, int64_t now_ns, tutti_error *err)
{
    int me;

    *out = NULL;
    TUTTI_TRY(tutti_epoch_check(founders, err));
    me = tutti_epoch_find(founders, options->id);
    if (me < 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "process %llx is not among the %d founders of the run; it can join",
                          (unsigned long long)options->id, founders->n);
    TUTTI_TRY(membership_open(out, options, now_ns, err));
    adopt(*out, founders, me);
    return TUTTI_OK;
}

tutti_status tutti_membership_join(tutti_membership **out, const tutti_membership_options *options,
                                   const char *const *contacts, int n, int64_t now_ns,
                                   tutti_error *err)
{
    *out = NULL;
    if (n < 1 || n > TUTTI_CONTACTS_MAX)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "%d addresses of members are given; 1 to %d are possible", n,
                          TUTTI_CONTACTS_MAX);
    for (int k = 0; k < n; k++)
        if (contacts[k][0] == '\0' || strlen(contacts[k]) >= TUTTI_ADDRESS_BYTES)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "the address '%s' to join at has not 1 to %d characters", contacts[k],
                              TUTTI_ADDRESS_BYTES - 1);
    TUTTI_TRY(membership_open(out, options, now_ns, err));
    for (int k = 0; k < n; k++)
        memcpy((*out)->contacts[k], contacts[k], strlen(contacts[k]) + 1);
    (*out)->n_contacts = n;
    return TUTTI_OK;
}

void tutti_membership_close(tutti_membership *m)
{
    tutti_free(m);
}
