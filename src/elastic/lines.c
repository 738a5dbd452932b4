/* lines.c: a node's connections. Each is a line of the transport tcp (transport/tcp/line.c). What
   is to be sent waits in queues of this node, not in the line: the line gets one frame when it has
   written the one before. So a process that reads nothing holds NODE_STATES messages of the
   protocol and TUTTI_NODE_QUEUE_BYTES of notes, and no process waits for it. */
#include "node_internal.h"
#include "base/errors.h"
#include <errno.h>
#include <sodium.h>
#include <string.h>
#include <unistd.h>

#define PAUSE_LEAST (20 * TCP_MS) /* shortest back-off of a call */

/* ---- queues ---- */
static node_letter *pop(node_queue *q)
{
    node_letter *const l = q->first;

    if (l == NULL)
        return NULL;
    q->first = l->next;
    if (q->first == NULL)
        q->last = NULL;
    q->count--;
    q->bytes -= l->n;
    return l;
}

static void push(node_queue *q, node_letter *l)
{
    *(q->last != NULL ? &q->last->next : &q->first) = l;
    q->last = l;
    q->count++;
    q->bytes += l->n;
}

static void empty(node_queue *q)
{
    while (q->first != NULL)
        tutti_free(pop(q));
}

bool tutti_node_post(tutti_node *n, const char *address, uint32_t kind, uint64_t tag,
                     const void *bytes, size_t size)
{
    node_out *const o = tutti_node_out(n, address);
    node_letter *const l = o != NULL ? tutti_alloc(1, sizeof *l + size) : NULL;
    node_queue *q;

    if (l == NULL)
        return false;
    q = kind < TUTTI_NODE_KINDS ? &o->states : &o->notes;
    l->kind = kind;
    l->tag = tag;
    l->n = size;
    if (size > 0)
        memcpy(l->bytes, bytes, size);
    if (q == &o->states && q->count == NODE_STATES)
        tutti_free(pop(q));
    push(q, l);
    o->used_ns = tutti_now_ns(n->rt);
    return true;
}

void tutti_node_send_state(void *user, const char *address, const uint8_t *bytes, size_t size)
{
    /* without memory it is lost, as the protocol allows */
    (void)tutti_node_post(user, address, NODE_STATE, 0, bytes, size);
}

void tutti_node_kick(tutti_node *n)
{
    const uint64_t one = 1;

    if (write(n->wake_fd, &one, sizeof one) < 0)
        return; /* it is readable already */
}

/* ---- calls ---- */
static void reset_call(tutti_node *n, node_out *o)
{
    o->call = (tcp_call){ .fd = -1,
                          .to = o->to,
                          .timeout_ns = n->options.dead_ns,
                          .hello = { .low = TCP_VERSION_LOW,
                                     .high = TCP_VERSION_HIGH,
                                     .purpose = TCP_TO_NODE,
                                     .size = 1,
                                     .id = n->options.run } };
}

/* Also grows the array of pointers by doubling. false: no memory. */
static bool grow(void *array, size_t *room, size_t n)
{
    void **const at = array;
    void *more;

    if (n < *room)
        return true;
    more = tutti_alloc(2 * n + 8, sizeof(void *));
    if (more == NULL)
        return false;
    if (n > 0)
        memcpy(more, *at, n * sizeof(void *));
    tutti_free(*at);
    *at = more;
    *room = 2 * n + 8;
    return true;
}

node_out *tutti_node_out(tutti_node *n, const char *address)
{
    node_out *o;

    for (size_t k = 0; k < n->n_out; k++)
        if (strcmp(n->out[k]->address, address) == 0)
            return n->out[k];
    o = tutti_alloc(1, sizeof *o);
    if (o == NULL || strlen(address) >= sizeof o->address ||
        !tutti_tcp_numbers(address, &o->to) || /* a name could block */
        !grow(&n->out, &n->out_room, n->n_out)) {
        tutti_free(o);
        return NULL;
    }
    memcpy(o->address, address, strlen(address) + 1);
    o->line.fd = -1;
    o->used_ns = tutti_now_ns(n->rt);
    o->pause_ns = PAUSE_LEAST;
    reset_call(n, o);
    n->out[n->n_out++] = o;
    return o;
}

static void back_off(tutti_node *n, node_out *o)
{
    o->call.again_ns = tutti_now_ns(n->rt) + o->pause_ns;
    o->pause_ns = 2 * o->pause_ns < NODE_PAUSE_MOST ? 2 * o->pause_ns : NODE_PAUSE_MOST;
}

/* Its process may have ended. */
static void out_ended(tutti_node *n, node_out *o, const char *how)
{
    const tutti_epoch *const e = tutti_membership_epoch(n->m);

    tutti_tcp_line_close(&o->line);
    reset_call(n, o);
    back_off(n, o);
    empty(&o->notes);
    tutti_wake(n->lock); /* there is room again */
    for (int i = 0; i < e->n; i++)
        if (strcmp(e->members[i].address, o->address) == 0)
            tutti_node_lost(n, e->members[i].id, how);
}

static tutti_status introduce(tutti_node *n, node_out *o, tutti_error *err)
{
    tcp_frame f = { .kind = TCP_NOTE, .header = { .kind = NODE_I_AM } };
    uint8_t bytes[8 + TUTTI_ADDRESS_BYTES];
    const size_t length = strlen(n->address);

    node_put64(bytes, n->id);
    memcpy(bytes + 8, n->address, length);
    f.bytes = (uint32_t)(8 + length);
    f.message_id = f.bytes;
    return tutti_tcp_line_send(&o->line, n->rt, &f, bytes, err);
}

/* The call has ended without a connection. */
static void call_failed(tutti_node *n, node_out *o, int64_t pause_ns)
{
    tutti_tcp_hang_up(&o->call.fd);
    reset_call(n, o);
    o->begun_ns = 0;
    if (pause_ns > 0)
        o->pause_ns = pause_ns;
    back_off(n, o);
}

static void connected(tutti_node *n, node_out *o)
{
    tutti_error err = { .rank = -1 };
    const tutti_status status = tutti_tcp_line_open(&o->line, o->call.fd, &o->call.session,
                                                    &n->rules, TCP_REASON_BYTES, NULL);

    sodium_memzero(&o->call, sizeof o->call);
    o->call.fd = -1;
    o->begun_ns = 0;
    o->pause_ns = PAUSE_LEAST;
    o->trouble[0] = '\0';
    if (status != TUTTI_OK) {
        call_failed(n, o, 0);
        return;
    }
    tutti_tcp_unsent(o->line.fd, NODE_UNSENT);
    if (introduce(n, o, &err) != TUTTI_OK)
        out_ended(n, o, err.text);
}

static void call(tutti_node *n, node_out *o, int64_t now)
{
    tutti_error err = { .rank = -1 };
    tutti_status status;

    if (o->call.state == TCP_CALL_IDLE &&
        (now < o->call.again_ns || (o->states.first == NULL && o->notes.first == NULL)))
        return;
    if (o->begun_ns == 0)
        o->begun_ns = now;
    status = tutti_tcp_call_step(&o->call, n->rt, &n->options.key, &n->rules, &err);
    if (status != TUTTI_OK) { /* it has another key, is of another run, or refuses */
        snprintf(o->trouble, sizeof o->trouble, "%.199s", err.text);
        call_failed(n, o, NODE_PAUSE_MOST);
    } else if (o->call.state == TCP_CALL_DONE)
        connected(n, o);
    else if (o->call.state == TCP_CALL_IDLE) {
        o->begun_ns = 0;
        if (o->call.cause != 0)
            snprintf(o->trouble, sizeof o->trouble, "%s: %s", o->address,
                     tutti_errno_text(o->call.cause));
        else
            snprintf(o->trouble, sizeof o->trouble, "%s hangs up: it may have another key",
                     o->address);
        back_off(n, o);
    } else if (now - o->begun_ns > n->options.dead_ns) { /* stopped, or cut off */
        snprintf(o->trouble, sizeof o->trouble, "%s does not answer", o->address);
        call_failed(n, o, 0);
    }
}

/* Hands the next frame to the line, which has written all before. false: there is none. */
static bool next_frame(tutti_node *n, node_out *o, tutti_status *status, tutti_error *err)
{
    node_queue *const q = o->states.first != NULL ? &o->states : &o->notes;
    node_letter *const l = q->first;
    size_t piece;
    tcp_frame f;

    if (l == NULL)
        return false;
    piece = l->n - l->sent;
    if (q == &o->notes && piece > NODE_PIECE)
        piece = NODE_PIECE;
    f = (tcp_frame){ .kind = TCP_NOTE,
                     .bytes = (uint32_t)piece,
                     .tag = l->tag,
                     .send_id = l->sent,
                     .message_id = l->n,
                     .header = { .kind = l->kind } };
    *status = tutti_tcp_line_send(&o->line, n->rt, &f, l->bytes + l->sent, err);
    o->used_ns = tutti_now_ns(n->rt);
    l->sent += piece;
    if (l->sent == l->n) {
        tutti_free(pop(q));
        tutti_wake(n->lock); /* there is room again */
    }
    return true;
}

/* Nothing but an end is to be read from a connection that this node has made. */
static void write_out(tutti_node *n, node_out *o)
{
    tutti_error err = { .rank = -1 };
    tutti_status status =
        o->readable ? tutti_tcp_line_read(&o->line, n->rt, &err) : TUTTI_OK;

    o->readable = false;
    if (status == TUTTI_OK && o->line.in_have > 0)
        status = tutti_fail(&err, TUTTI_ERR_CORRUPT, 0, "a frame came that has no meaning here");
    if (status == TUTTI_OK)
        status = tutti_tcp_line_flush(&o->line, &err);
    while (status == TUTTI_OK && o->line.out_have == 0 && next_frame(n, o, &status, &err))
        continue;
    if (status != TUTTI_OK && status != TUTTI_TIMEOUT)
        out_ended(n, o, err.text);
}

void tutti_node_write(tutti_node *n, int64_t now)
{
    for (size_t k = 0; k < n->n_out; k++) {
        if (n->out[k]->line.fd < 0)
            call(n, n->out[k], now);
        if (n->out[k]->line.fd >= 0)
            write_out(n, n->out[k]);
    }
}

/* ---- the listener ---- */
static uint16_t judge(void *self, const tcp_hello *h)
{
    (void)self;
    (void)h;
    return TCP_WELCOME;
}

static bool admit(void *self, int fd, const tcp_hello *h, const tcp_session *session)
{
    tutti_node *const n = self;
    node_in *const c = grow(&n->in, &n->in_room, n->n_in) ? tutti_alloc(1, sizeof *c) : NULL;

    (void)h;
    if (c == NULL)
        return false;
    if (tutti_tcp_line_open(&c->line, fd, session, &n->rules, NODE_FRAME, NULL) != TUTTI_OK) {
        tutti_free(c);
        return true; /* fd is closed, and the caller calls again */
    }
    c->line.received_ns = tutti_now_ns(n->rt);
    n->in[n->n_in++] = c;
    return true;
}

/* "0.0.0.0" or "::", at which no process can call. */
static bool is_any(const tcp_address *a)
{
    return a->at.ss_family == AF_INET
               ? ((const struct sockaddr_in *)(const void *)&a->at)->sin_addr.s_addr == INADDR_ANY
               : IN6_IS_ADDR_UNSPECIFIED(
                     &((const struct sockaddr_in6 *)(const void *)&a->at)->sin6_addr);
}

tutti_status tutti_node_listen(tutti_node *n, const char *host, int port, tutti_error *err)
{
    char text[80], text_host[256] = "";
    tcp_address at;
    int cause, bound;

    n->rules = (tcp_rules){ .run = tutti_tcp_run_short(&n->options.run), .note_most = NODE_FRAME };
    n->listener.key = &n->options.key;
    n->listener.rules = n->rules;
    n->listener.id = n->options.run;
    n->listener.size = 1;
    n->listener.purpose = TCP_TO_NODE;
    n->listener.timeout_ns = n->options.dead_ns;
    n->listener.judge = judge;
    n->listener.admit = admit;
    n->listener.self = n;
    TUTTI_TRY(tutti_tcp_resolve_host(host, port, true, &at, err));
    cause = tutti_tcp_listen(&at, &n->listener.listening[0]);
    if (cause != 0)
        return tutti_fail(err, TUTTI_ERR_IO, cause,
                          "a member cannot listen at %s, port %d; give an address of this host and "
                          "a free port, or 0 to leave the choice to the kernel",
                          host, port);
    tutti_tcp_address_text(&at, text, sizeof text);
    if (is_any(&at) || strlen(text) >= sizeof n->address)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "'%s' is no address by which others reach this host; give one of its own",
                          host);
    memcpy(n->address, text, strlen(text) + 1);
    (void)tutti_tcp_split(text, text_host, &bound); /* it is what address_text writes */
    memcpy(n->host, text_host, strnlen(text_host, sizeof n->host - 1));
    return tutti_tcp_listener_open(&n->listener, err);
}

/* ---- what to wait for ---- */
nfds_t tutti_node_polled(tutti_node *n, int64_t *until)
{
    const size_t most = 3 + n->n_out + n->n_in;
    nfds_t k = 3;

    n->polled_in = n->polled_out = 0;
    if (most > n->polled_room) {
        tutti_free(n->polled);
        n->polled = tutti_alloc(2 * most, sizeof *n->polled);
        n->polled_room = n->polled != NULL ? 2 * most : 0;
        if (n->polled == NULL)
            return 0;
    }
    n->polled[0] = (struct pollfd){ .fd = n->wake_fd, .events = POLLIN };
    n->polled[1] = (struct pollfd){ .fd = n->listener.epoll, .events = POLLIN };
    n->polled[2] = (struct pollfd){ .fd = n->meet.meet != NULL ? tutti_meet_fd(n->meet.meet) : -1,
                                    .events = POLLIN };
    n->polled_in = n->n_in;
    n->polled_out = n->n_out;
    for (size_t i = 0; i < n->n_in; i++)
        n->polled[k++] = (struct pollfd){ .fd = n->in[i]->line.fd, .events = POLLIN };
    for (size_t i = 0; i < n->n_out; i++) {
        const node_out *const o = n->out[i];
        struct pollfd *const p = &n->polled[k++];
        *p = (struct pollfd){ .fd = -1 };
        if (o->line.fd >= 0)
            *p = (struct pollfd){
                .fd = o->line.fd, .events = (short)(POLLIN | (o->line.out_have > 0 ? POLLOUT : 0))
            };
        else if (o->call.state != TCP_CALL_IDLE)
            *p = (struct pollfd){ .fd = o->call.fd, .events = tutti_tcp_call_events(&o->call) };
        else if ((o->states.first != NULL || o->notes.first != NULL) && o->call.again_ns < *until)
            *until = o->call.again_ns;
    }
    return k;
}

bool tutti_node_pending(const tutti_node *n)
{
    for (size_t k = 0; k < n->n_out; k++)
        if (n->out[k]->line.fd >= 0 &&
            (n->out[k]->states.first != NULL || n->out[k]->notes.first != NULL ||
             n->out[k]->line.out_have > 0))
            return true;
    return false;
}

/* ---- ends ---- */
static void free_out(tutti_node *n, size_t k)
{
    node_out *const o = n->out[k];

    tutti_tcp_hang_up(&o->call.fd);
    sodium_memzero(&o->call, sizeof o->call);
    tutti_tcp_line_close(&o->line);
    empty(&o->states);
    empty(&o->notes);
    tutti_free(o);
    n->out[k] = n->out[--n->n_out];
    tutti_wake(n->lock); /* one may have waited for room */
}

void tutti_node_drop_in(tutti_node *n, size_t k)
{
    tutti_tcp_line_close(&n->in[k]->line);
    tutti_free(n->in[k]->whole);
    tutti_free(n->in[k]);
    n->in[k] = n->in[--n->n_in];
}

void tutti_node_sweep(tutti_node *n, int64_t now)
{
    const int64_t limit =
        10 * n->options.dead_ns > 10000 * TCP_MS ? 10 * n->options.dead_ns : 10000 * TCP_MS;

    for (size_t k = n->n_out; k-- > 0;) {
        tcp_frame bye = { .kind = TCP_NOTE, .header = { .kind = NODE_BYE } };
        if (now - n->out[k]->used_ns <= limit)
            continue;
        (void)tutti_tcp_line_send(&n->out[k]->line, n->rt, &bye, NULL, NULL);
        free_out(n, k);
    }
    for (size_t k = n->n_in; k-- > 0;)
        if (now - n->in[k]->line.received_ns > limit)
            tutti_node_drop_in(n, k);
}

void tutti_node_drop_lines(tutti_node *n)
{
    while (n->n_out > 0)
        free_out(n, n->n_out - 1);
    while (n->n_in > 0)
        tutti_node_drop_in(n, n->n_in - 1);
    tutti_free(n->out);
    tutti_free(n->in);
    tutti_free(n->polled);
}
