/* node.c: opening and closing a node, and what its client calls. */
#include "node_internal.h"
#include <errno.h>
#include <sodium.h>
#include <string.h>
#include <sys/eventfd.h>

/* ---- options ---- */
tutti_status tutti_node_options_of(tutti_node_options *out, char *const *environment,
                                   tutti_error *err)
{
    const char *id = tutti_variable(environment, TUTTI_MEET_VARIABLE_ID),
               *key = tutti_variable(environment, TUTTI_MEET_VARIABLE_KEY),
               *file = tutti_variable(environment, TUTTI_MEET_VARIABLE_KEY_FILE);

    *out = (tutti_node_options){ 0 };
    if (id == NULL || (key == NULL && file == NULL))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "a member of an elastic run needs %s, which all members share, and it is "
                          "not set",
                          id == NULL
                              ? TUTTI_MEET_VARIABLE_ID
                              : TUTTI_MEET_VARIABLE_KEY " or " TUTTI_MEET_VARIABLE_KEY_FILE);
    if (key != NULL && file != NULL)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "both " TUTTI_MEET_VARIABLE_KEY " and " TUTTI_MEET_VARIABLE_KEY_FILE
                          " are set; unset one of them");
    TUTTI_TRY(tutti_run_id_parse(&out->run, id, err));
    return key != NULL ? tutti_run_key_parse(&out->key, key, err)
                       : tutti_run_key_read(&out->key, file, err);
}

static int64_t or_else(int64_t ns, int64_t initial)
{
    return ns != 0 ? ns : initial;
}

/* ---- opening ---- */
/* All but the protocol and the thread. */
static tutti_status open_parts(tutti_node *n, const tutti_node_options *o, tutti_error *err)
{
    const char *const host = o->host != NULL && o->host[0] != '\0' ? o->host : "127.0.0.1";

    n->options = *o;
    n->options.host = NULL;
    n->options.heartbeat_ns = or_else(o->heartbeat_ns, 100 * TCP_MS);
    n->options.dead_ns = or_else(o->dead_ns, 1000 * TCP_MS);
    n->options.retry_ns = or_else(o->retry_ns, 500 * TCP_MS);
    n->options.boundary_ns = or_else(o->boundary_ns, 500 * TCP_MS);
    if (sodium_init() < 0)
        return tutti_fail(err, TUTTI_ERR_STATE, 0,
                          "libsodium cannot start: the system gives no random numbers");
    if (o->port < 0 || o->port > 65535)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "port %d cannot be: ports are 1 to 65535, 0 leaves the choice to the "
                          "kernel",
                          o->port);
    TUTTI_TRY(tutti_tcp_descriptors(NODE_CONNECTIONS, NODE_CONNECTIONS / 2, err));
    TUTTI_TRY(tutti_runtime_open_posix(&n->rt, err));
    n->listener.rt = n->rt;
    TUTTI_TRY(tutti_monitor_open(&n->lock, n->rt, err));
    n->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (n->wake_fd < 0)
        return tutti_fail(err, TUTTI_ERR_IO, errno,
                          "no descriptor for a member; raise the limit of open files (ulimit -n)");
    while (n->id == 0)
        tutti_entropy(n->rt, &n->id, sizeof n->id);
    return tutti_node_listen(n, host, o->port, err);
}

static tutti_status open_node(tutti_node **out, const tutti_node_options *o, tutti_error *err)
{
    tutti_node *const n = tutti_alloc(1, sizeof *n);
    tutti_status status;

    *out = NULL;
    if (n == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "no memory for a member of a run");
    n->wake_fd = n->world_fd = n->listener.epoll = -1;
    n->listener.listening[0] = n->listener.listening[1] = -1;
    status = open_parts(n, o, err);
    if (status == TUTTI_OK)
        *out = n;
    else
        tutti_node_close(n);
    return status;
}

static tutti_membership_options protocol_of(tutti_node *n)
{
    tutti_membership_options o = { .id = n->id,
                                   .address = n->address,
                                   .heartbeat_ns = n->options.heartbeat_ns,
                                   .dead_ns = n->options.dead_ns,
                                   .retry_ns = n->options.retry_ns,
                                   .boundary_ns = n->options.boundary_ns,
                                   .most = n->options.most,
                                   .send = tutti_node_send_state,
                                   .user = n };

    memcpy(o.run, n->options.run.bytes, sizeof o.run);
    return o;
}

static tutti_status start(tutti_node *n, tutti_error *err)
{
    tutti_node_changed(n);
    return tutti_thread_open(&n->thread, n->rt, "tutti-node", tutti_node_serve, n, err);
}

/* ---- founders ---- */
typedef struct founder {         /* as it travels in the all-gather */
    uint64_t id;                 /* 0: it has failed */
    char address[TUTTI_ADDRESS_BYTES];
} founder;

/* Fails on all ranks, with the lowest one that has failed, if any has. own: this rank's error. */
static tutti_status all_well(const founder *all, int n, tutti_status own, tutti_error *err)
{
    if (own != TUTTI_OK)
        return own;
    for (int r = 0; r < n; r++)
        if (all[r].id == 0)
            return tutti_fail_rank(err, TUTTI_ERR_PEER, r,
                                   "worker %d cannot take part in an elastic run; its own message "
                                   "says why",
                                   r);
    return TUTTI_OK;
}

static tutti_status exchange(tutti_world *world, const founder *mine, founder *all,
                             tutti_error *err)
{
    const size_t n = (size_t)tutti_world_size(world);
    tutti_group g = tutti_group_workers(world, tutti_port_of("elastic/found", 0, 0));
    founder own = *mine;

    return tutti_allgather(
        &g, (tutti_buffer){ NULL, &own, sizeof own, TUTTI_U8 },
        (tutti_buffer){ NULL, all, n * sizeof own, TUTTI_U8 }, err);
}

static void write_epoch(tutti_epoch *e, uint64_t step, const founder *all, int n)
{
    e->number = 1;
    e->step = step;
    e->n = n;
    e->next_rank = (uint32_t)n;
    for (int r = 0; r < n; r++) {
        e->members[r] = (tutti_member){ .id = all[r].id, .rank = (uint32_t)r, .holds = true };
        memcpy(e->members[r].address, all[r].address, sizeof all[r].address);
        e->members[r].address[sizeof all[r].address - 1] = '\0';
    }
}

/* Opens the protocol and the thread of a founder. */
static tutti_status found(tutti_node *n, const founder *all, int size, tutti_error *err)
{
    const tutti_membership_options o = protocol_of(n);
    tutti_epoch *const e = tutti_alloc(1, sizeof *e);
    tutti_status status;

    if (e == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "no memory for the members of a run");
    write_epoch(e, n->options.step, all, size);
    status = tutti_membership_found(&n->m, &o, e, tutti_now_ns(n->rt), err);
    tutti_free(e);
    return status == TUTTI_OK ? start(n, err) : status;
}

/* Twice: when all listen, and when all have begun. */
static tutti_status found_all(tutti_node **node, tutti_world *world,
                              const tutti_node_options *options, founder *all, tutti_error *err)
{
    const int size = tutti_world_size(world);
    founder mine = { 0 };
    tutti_status status = open_node(node, options, err);

    if (status == TUTTI_OK) {
        mine.id = (*node)->id;
        memcpy(mine.address, (*node)->address, sizeof mine.address);
    }
    TUTTI_TRY(exchange(world, &mine, all, status == TUTTI_OK ? err : NULL));
    TUTTI_TRY(all_well(all, size, status, err));
    status = found(*node, all, size, err);
    mine.id = status == TUTTI_OK ? mine.id : 0;
    TUTTI_TRY(exchange(world, &mine, all, status == TUTTI_OK ? err : NULL));
    return all_well(all, size, status, err);
}

tutti_status tutti_node_found(tutti_node **out, tutti_world *world,
                              const tutti_node_options *options, tutti_error *err)
{
    const int size = tutti_world_size(world);
    tutti_node *n = NULL;
    tutti_status status;
    founder *all;

    *out = NULL;
    if (size > TUTTI_MEMBERS_MAX)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "an elastic run of %d workers cannot be; %d are possible", size,
                          TUTTI_MEMBERS_MAX);
    all = tutti_alloc((size_t)size, sizeof *all);
    if (all == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "no memory for the members of a run");
    status = found_all(&n, world, options, all, err);
    tutti_free(all);
    if (status == TUTTI_OK)
        *out = n;
    else
        tutti_node_close(n);
    return status;
}

/* ---- newcomers ---- */
/* Resolves an address here, since the thread must not wait for the name service. */
static tutti_status contact_of(const char *text, char address[TUTTI_ADDRESS_BYTES],
                               tutti_error *err)
{
    char host[256], numbers[80];
    tcp_address at;
    int port;

    if (!tutti_tcp_split(text, host, &port))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "'%.200s' is no address of a member: write host:port or [IPv6 "
                          "address]:port",
                          text);
    TUTTI_TRY(tutti_tcp_resolve_host(host, port, false, &at, err));
    tutti_tcp_address_text(&at, numbers, sizeof numbers);
    if (strlen(numbers) >= TUTTI_ADDRESS_BYTES)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "the address '%s' is longer than %d characters",
                          numbers, TUTTI_ADDRESS_BYTES - 1);
    memcpy(address, numbers, strlen(numbers) + 1);
    return TUTTI_OK;
}

static tutti_status join(tutti_node *n, const char *const *contacts, int count, tutti_error *err)
{
    const tutti_membership_options o = protocol_of(n);
    char texts[TUTTI_CONTACTS_MAX][TUTTI_ADDRESS_BYTES];
    const char *addresses[TUTTI_CONTACTS_MAX];

    for (int k = 0; k < count && k < TUTTI_CONTACTS_MAX; k++) {
        TUTTI_TRY(contact_of(contacts[k], texts[k], err));
        addresses[k] = texts[k];
    }
    TUTTI_TRY(tutti_membership_join(&n->m, &o, addresses, count, tutti_now_ns(n->rt), err));
    return start(n, err);
}

tutti_status tutti_node_join(tutti_node **out, const char *const *contacts, int count,
                             const tutti_node_options *options, tutti_error *err)
{
    tutti_node *n = NULL;
    tutti_status status;

    *out = NULL;
    TUTTI_TRY(open_node(&n, options, err));
    status = join(n, contacts, count, err);
    if (status == TUTTI_OK)
        *out = n;
    else
        tutti_node_close(n);
    return status;
}

/* ---- closing ---- */
void tutti_node_close(tutti_node *n)
{
    if (n == NULL)
        return;
    if (n->thread != NULL) {
        tutti_lock(n->lock);
        n->stop = true;
        tutti_node_kick(n);
        tutti_unlock(n->lock);
        tutti_thread_join(n->thread, NULL);
    }
    tutti_meet_close(n->meet.meet);
    tutti_node_drop_lines(n);
    tutti_tcp_listener_close(&n->listener);
    tutti_membership_close(n->m);
    tutti_tcp_hang_up(&n->wake_fd);
    tutti_tcp_hang_up(&n->world_fd);
    tutti_run_key_wipe(&n->options.key);
    tutti_monitor_close(n->lock);
    tutti_runtime_close(n->rt);
    tutti_free(n);
}

/* ---- what is so ---- */
static void look(const tutti_node *n, tutti_node_view *view)
{
    *view = n->view;
    view->agreed = tutti_membership_agreed(n->m);
}

void tutti_node_look(tutti_node *n, tutti_node_view *view)
{
    tutti_lock(n->lock);
    look(n, view);
    tutti_unlock(n->lock);
}

tutti_status tutti_node_wait(tutti_node *n, uint64_t seen, int64_t deadline_ns,
                             tutti_node_view *view, tutti_error *err)
{
    tutti_status status = TUTTI_OK;

    tutti_lock(n->lock);
    while (status == TUTTI_OK && n->view.changes == seen)
        status = tutti_wait(n->lock, deadline_ns, err);
    if (n->view.changes != seen)
        status = TUTTI_OK;
    look(n, view);
    tutti_unlock(n->lock);
    return status;
}

int64_t tutti_node_now(tutti_node *n) { return tutti_now_ns(n->rt); }
uint64_t tutti_node_id(const tutti_node *n) { return n->id; }
uint64_t tutti_node_run(const tutti_node *n)
{
    return tutti_hash(n->options.run.bytes, sizeof n->options.run.bytes);
}
const char *tutti_node_address(const tutti_node *n) { return n->address; }

void tutti_node_epoch(tutti_node *n, tutti_epoch *epoch)
{
    tutti_lock(n->lock);
    *epoch = *tutti_membership_epoch(n->m);
    tutti_unlock(n->lock);
}

int tutti_node_waiting(tutti_node *n, uint64_t *ids, int most)
{
    int count;

    tutti_lock(n->lock);
    count = tutti_membership_waiting(n->m, ids, most);
    tutti_unlock(n->lock);
    return count;
}

void tutti_node_describe(tutti_node *n, char *text, size_t bytes)
{
    const char *trouble = NULL;
    size_t used;

    tutti_lock(n->lock);
    tutti_membership_describe(n->m, text, bytes);
    for (size_t k = 0; k < n->n_out && n->view.state == TUTTI_NEWCOMER && n->view.epoch == 0; k++)
        if (n->out[k]->trouble[0] != '\0')
            trouble = n->out[k]->trouble;
    used = strnlen(text, bytes);
    if (trouble != NULL && used < bytes)
        snprintf(text + used, bytes - used, " (%s)", trouble);
    tutti_unlock(n->lock);
}

uint64_t tutti_node_strangers(tutti_node *n)
{
    uint64_t strangers;

    tutti_lock(n->lock);
    strangers = n->listener.turned_away;
    tutti_unlock(n->lock);
    return strangers;
}

static void add_socket(int *fds, int most, int *count, int fd)
{
    if (fd >= 0 && *count < most)
        fds[(*count)++] = fd;
}

int tutti_node_sockets(tutti_node *n, int *fds, int most)
{
    int count = 0;

    tutti_lock(n->lock);
    for (int k = 0; k < 2; k++)
        add_socket(fds, most, &count, n->listener.listening[k]);
    for (int k = 0; k < TCP_STRANGERS && n->listener.epoll >= 0; k++)
        add_socket(fds, most, &count, n->listener.strangers[k].fd);
    for (size_t k = 0; k < n->n_in; k++)
        add_socket(fds, most, &count, n->in[k]->line.fd);
    for (size_t k = 0; k < n->n_out; k++) {
        add_socket(fds, most, &count, n->out[k]->line.fd);
        add_socket(fds, most, &count, n->out[k]->call.fd);
    }
    tutti_unlock(n->lock);
    return count;
}

/* ---- what the engine does ---- */
/* Ends a call of the protocol, whose messages the thread is to send. */
static void called(tutti_node *n)
{
    tutti_node_changed(n);
    tutti_node_kick(n);
    tutti_unlock(n->lock);
}

bool tutti_node_step(tutti_node *n, uint64_t epoch, uint64_t step)
{
    bool may;

    tutti_lock(n->lock);
    may = n->view.epoch == epoch && tutti_membership_step(n->m, tutti_now_ns(n->rt), step);
    called(n);
    return may;
}

bool tutti_node_hold(tutti_node *n, uint64_t step)
{
    bool holds;

    tutti_lock(n->lock);
    holds = tutti_membership_hold(n->m, tutti_now_ns(n->rt), step);
    called(n);
    return holds;
}

void tutti_node_ready(tutti_node *n)
{
    tutti_lock(n->lock);
    tutti_membership_ready(n->m, tutti_now_ns(n->rt));
    called(n);
}

void tutti_node_leave(tutti_node *n)
{
    tutti_lock(n->lock);
    tutti_membership_leave(n->m, tutti_now_ns(n->rt));
    called(n);
}

void tutti_node_renew(tutti_node *n, uint64_t epoch)
{
    tutti_lock(n->lock);
    if (n->view.epoch == epoch)
        tutti_membership_renew(n->m, tutti_now_ns(n->rt));
    called(n);
}

/* ---- notes ---- */
/* Waits for room in the queue for that process. *address: valid under the lock. */
static tutti_status wait_for_room(tutti_node *n, uint64_t to, size_t size, int64_t deadline_ns,
                                  const char **address, tutti_error *err)
{
    for (;;) {
        const node_out *o; /* found again after each wait: it may have been dropped */
        *address = tutti_node_address_of(n, to);
        if (*address == NULL)
            return tutti_fail(err, TUTTI_ERR_PEER, 0,
                              "process %llx is no member, and has not called",
                              (unsigned long long)to);
        o = tutti_node_out(n, *address);
        if (o == NULL)
            return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "no memory to call %s, or no address",
                              *address);
        if (o->notes.bytes + size <= TUTTI_NODE_QUEUE_BYTES)
            return TUTTI_OK;
        if (deadline_ns == 0 || tutti_wait(n->lock, deadline_ns, NULL) == TUTTI_TIMEOUT)
            return tutti_fail(err, TUTTI_TIMEOUT, 0, "%zu bytes wait for %s, and %zu more are too "
                              "many", o->notes.bytes, *address, size);
    }
}

tutti_status tutti_node_send(tutti_node *n, uint64_t to, uint32_t kind, uint64_t tag,
                             const void *bytes, size_t size, int64_t deadline_ns, tutti_error *err)
{
    const char *address;
    tutti_status status;

    if (kind < TUTTI_NODE_KINDS || size > TUTTI_NODE_NOTE_BYTES)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "a note of kind %u with %zu bytes cannot be: kinds begin at %d, and it "
                          "has at most %d bytes",
                          kind, size, TUTTI_NODE_KINDS, TUTTI_NODE_NOTE_BYTES);
    tutti_lock(n->lock);
    status = wait_for_room(n, to, size, deadline_ns, &address, err);
    if (status == TUTTI_OK && !tutti_node_post(n, address, kind, tag, bytes, size))
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "no memory for a note of %zu bytes",
                            size);
    tutti_node_kick(n);
    tutti_unlock(n->lock);
    return status;
}
