/* serve.c: the thread of a node. One pass: the protocol's time, what is to be written, a wait for
   the descriptors without the lock, what has arrived. */
#include "node_internal.h"
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SWEEP_NS (1000 * TCP_MS)  /* how often unused connections are looked for */
#define LINGER_NS (200 * TCP_MS)  /* most that closing waits until the last messages are written */

/* ---- what has changed ---- */
static int index_of(const tutti_epoch *e, uint64_t id)
{
    for (int i = 0; i < e->n; i++)
        if (e->members[i].id == id)
            return i;
    return -1;
}

void tutti_node_changed(tutti_node *n)
{
    const tutti_epoch *const e = tutti_membership_epoch(n->m);
    const tutti_node_view was = n->view;

    n->view = (tutti_node_view){ .changes = was.changes,
                                 .state = tutti_membership_state_of(n->m),
                                 .epoch = e->number,
                                 .step = e->step,
                                 .n = e->n,
                                 .index = index_of(e, n->id),
                                 .holds = tutti_membership_holds(n->m),
                                 .acts = tutti_membership_acts(n->m),
                                 .all_leave = tutti_membership_all_leave(n->m),
                                 .agreed = tutti_membership_agreed(n->m) };
    n->view.answer = tutti_membership_answering(n->m, &n->view.majority, &n->view.first);
    if (n->view.state == was.state && n->view.epoch == was.epoch && n->view.step == was.step &&
        n->view.n == was.n && n->view.index == was.index && n->view.holds == was.holds &&
        n->view.acts == was.acts && n->view.all_leave == was.all_leave &&
        n->view.answer == was.answer && n->view.majority == was.majority &&
        n->view.first == was.first)
        return;
    n->view.changes++;
    tutti_node_end_worlds(n);
    tutti_wake(n->lock);
}

const char *tutti_node_address_of(const tutti_node *n, uint64_t id)
{
    const tutti_epoch *const e = tutti_membership_epoch(n->m);
    const int i = index_of(e, id);

    if (i >= 0)
        return e->members[i].address;
    for (size_t k = n->n_in; k-- > 0;) /* the newest first */
        if (n->in[k]->id == id)
            return n->in[k]->address;
    return NULL;
}

void tutti_node_lost(tutti_node *n, uint64_t id, const char *how)
{
    tutti_membership_lost(n->m, tutti_now_ns(n->rt), id);
    tutti_node_meet_lost(n, id, how);
    tutti_node_changed(n);
}

/* ---- what arrives ---- */
static bool on_i_am(node_in *c, const uint8_t *bytes, size_t size)
{
    if (c->id != 0 || size < 8 + 1 || size - 8 >= sizeof c->address || node_get64(bytes) == 0)
        return false;
    for (size_t k = 8; k < size; k++)
        if (bytes[k] <= ' ' || bytes[k] > '~')
            return false;
    c->id = node_get64(bytes);
    memcpy(c->address, bytes + 8, size - 8);
    return true;
}

/* A note of the node's own, which comes whole. */
static bool on_own(tutti_node *n, node_in *c, const tcp_frame *f, const uint8_t *bytes)
{
    if (f->send_id != 0 || f->message_id != f->bytes || (c->id == 0 && f->header.kind != NODE_I_AM))
        return false;
    switch (f->header.kind) {
    case NODE_I_AM: return on_i_am(c, bytes, f->bytes);
    case NODE_STATE:
        if (tutti_membership_receive(n->m, tutti_now_ns(n->rt), bytes, f->bytes, NULL) != TUTTI_OK)
            return false;
        tutti_node_changed(n);
        return true;
    case NODE_BYE: c->bye = true; return true;
    case NODE_WHERE: tutti_node_on_where(n, c, f->tag); return true;
    case NODE_PLACE: return tutti_node_on_place(n, c, bytes, f->bytes);
    default: return false;
    }
}

static void deliver(tutti_node *n, node_in *c)
{
    const tutti_node_note note = {
        .from = c->id, .kind = c->kind, .tag = c->tag, .bytes = c->whole, .n = c->n
    };

    tutti_unlock(n->lock);
    if (n->options.on_note != NULL)
        n->options.on_note(n->options.user, &note);
    tutti_lock(n->lock);
    tutti_free(c->whole);
    c->whole = NULL;
    c->n = c->have = 0;
}

/* A piece of a client's note. */
static bool on_piece(tutti_node *n, node_in *c, const tcp_frame *f, const uint8_t *bytes)
{
    const uint64_t size = f->message_id;

    if (c->id == 0 || size > TUTTI_NODE_NOTE_BYTES || f->send_id != c->have ||
        f->bytes > size - c->have || (f->bytes == 0 && size > 0))
        return false;
    if (c->have > 0 && (f->header.kind != c->kind || f->tag != c->tag || size != c->n))
        return false;
    if (c->have == 0) {
        c->kind = f->header.kind;
        c->tag = f->tag;
        c->n = (size_t)size;
        c->whole = size > 0 ? tutti_alloc((size_t)size, 1) : NULL;
        if (size > 0 && c->whole == NULL)
            return false; /* no memory: the note is lost, and the sender calls again */
    }
    if (f->bytes > 0)
        memcpy(c->whole + c->have, bytes, f->bytes);
    c->have += f->bytes;
    if (c->have == c->n)
        deliver(n, c);
    return true;
}

/* Reads what has come on one connection. false: it has ended, or what came is not of a node. */
static bool read_in(tutti_node *n, node_in *c, tutti_error *err)
{
    const tutti_status ended = tutti_tcp_line_read(&c->line, n->rt, err);
    tutti_status status;
    const uint8_t *bytes;
    tcp_frame f;

    while (tutti_tcp_line_next(&c->line, &f, &bytes, &status, err)) {
        const bool known = f.kind == TCP_NOTE && (f.header.kind < TUTTI_NODE_KINDS
                                                      ? on_own(n, c, &f, bytes)
                                                      : on_piece(n, c, &f, bytes));
        if (!known) {
            (void)tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                             "a frame of kind %u came that has no meaning here", f.kind);
            return false;
        }
        if (n->stop)
            return true;
    }
    return status == TUTTI_OK && ended == TUTTI_OK;
}

/* A connection has ended: its process is lost, if it has not announced that it closes it, and has
   no other one. */
static void in_ended(tutti_node *n, size_t k, const char *how)
{
    const uint64_t id = n->in[k]->bye ? 0 : n->in[k]->id;

    tutti_node_drop_in(n, k);
    for (size_t i = 0; i < n->n_in && id != 0; i++)
        if (n->in[i]->id == id)
            return;
    if (id != 0)
        tutti_node_lost(n, id, how);
}

/* From the last one to the first: one that is dropped is replaced by the last one. */
static void read_all(tutti_node *n)
{
    for (size_t k = n->n_in; k-- > 0 && !n->stop;) {
        tutti_error err = { .rank = -1 };
        const bool readable = n->in[k]->readable;
        n->in[k]->readable = false;
        if (readable && !read_in(n, n->in[k], &err))
            in_ended(n, k, err.text);
    }
}

/* ---- waiting ---- */
static void drain(int fd)
{
    uint64_t count;

    if (read(fd, &count, sizeof count) < 0)
        return; /* it was not written */
}

static void note_readable(tutti_node *n)
{
    const struct pollfd *const in = n->polled + 3, *const out = in + n->polled_in;

    for (size_t k = 0; k < n->polled_in; k++)
        n->in[k]->readable = in[k].revents != 0;
    for (size_t k = 0; k < n->polled_out; k++)
        n->out[k]->readable = (out[k].revents & ~POLLOUT) != 0;
}

/* Waits until something has happened, without the lock. */
static void wait_for(tutti_node *n, int64_t until)
{
    const nfds_t entries = tutti_node_polled(n, &until);
    const int64_t left = until - tutti_now_ns(n->rt), ns = left > 0 ? left : 0;
    const struct timespec t = { ns / 1000000000, ns % 1000000000 };
    int ready;

    tutti_unlock(n->lock);
    if (entries == 0) { /* no memory: again after a moment */
        tutti_sleep_until(n->rt, tutti_now_ns(n->rt) + TCP_MS);
        ready = 0;
    } else
        ready = ppoll(n->polled, entries, &t, NULL);
    tutti_lock(n->lock);
    if (ready > 0)
        note_readable(n);
}

static void tick(tutti_node *n, int64_t now)
{
    if (now >= n->tick_ns) {
        n->tick_ns = tutti_membership_tick(n->m, now);
        tutti_node_changed(n);
    }
    if (now >= n->sweep_ns) {
        n->sweep_ns = now + SWEEP_NS;
        tutti_node_sweep(n, now);
    }
}

static void pass(tutti_node *n)
{
    int64_t until;

    tick(n, tutti_now_ns(n->rt));
    tutti_node_meet_progress(n);
    tutti_node_write(n, tutti_now_ns(n->rt));
    until = n->tick_ns < n->sweep_ns ? n->tick_ns : n->sweep_ns;
    if (n->meet.meet != NULL) {
        const int64_t due = tutti_now_ns(n->rt) + tutti_meet_wait_ns(n->meet.meet);
        until = due < until ? due : until;
    }
    wait_for(n, until);
    drain(n->wake_fd);
    read_all(n);
    tutti_tcp_listener_serve(&n->listener); /* always: it has a clock */
}

tutti_status tutti_node_serve(void *node, tutti_error *err)
{
    tutti_node *const n = node;
    int64_t until;

    (void)err;
    tutti_lock(n->lock);
    while (!n->stop)
        pass(n);
    until = tutti_now_ns(n->rt) + LINGER_NS; /* a decision may be on its way */
    while (tutti_node_pending(n) && tutti_now_ns(n->rt) < until) {
        tutti_node_write(n, tutti_now_ns(n->rt));
        tutti_unlock(n->lock);
        tutti_sleep_until(n->rt, tutti_now_ns(n->rt) + TCP_MS);
        tutti_lock(n->lock);
    }
    tutti_unlock(n->lock);
    return TUTTI_OK;
}
