/* epochs.c: the world of an epoch. Its members meet at a meeting place of the transport tcp, which
   the lowest member serves on its node's thread. It is opened when that member opens its world. The
   member sends all others where it is, and answers those that ask, since notes may be lost.

   How a world ends. Each node has a descriptor for its newest world, which the transport watches
   (tcp_within.stop). It is written as soon as the node knows that the epoch has ended. So no
   node waits for another, and a member that is cut off ends its own waits. */
#include "node_internal.h"
#include "collective/noted.h"
#include "collective/world.h"
#include "transport/registry.h"
#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

extern char **environ;

static bool is_in(const tutti_node *n, uint64_t epoch)
{
    return n->view.state == TUTTI_MEMBER && n->view.epoch == epoch;
}

/* ---- the meeting place: the thread ---- */
static void post_place(tutti_node *n, const char *address)
{
    uint8_t bytes[PLACE_BYTES + sizeof n->place.where];
    const size_t length = strlen(n->place.where);

    node_put64(bytes, n->place.epoch);
    memcpy(bytes + 8, n->place.id.bytes, sizeof n->place.id.bytes);
    memcpy(bytes + PLACE_BYTES, n->place.where, length);
    /* without memory it is lost: the other one asks again */
    (void)tutti_node_post(n, address, NODE_PLACE, 0, bytes, PLACE_BYTES + length);
}

static void drop_meet(tutti_node *n)
{
    tutti_meet_close(n->meet.meet);
    n->meet.meet = NULL;
}

static void open_meet(tutti_node *n)
{
    const tutti_epoch *const e = tutti_membership_epoch(n->m);
    tutti_meet_options o = {
        .address = n->host, .size = n->view.n, .key = n->options.key
    };

    drop_meet(n);
    n->place = (node_place){ .epoch = n->meet_wanted, .failed = { .rank = -1 } };
    tutti_run_id_make(n->rt, &n->place.id);
    o.id = n->place.id;
    if (tutti_meet_open(&n->meet.meet, n->rt, &o, &n->place.failed) == TUTTI_OK) {
        tutti_meet_where(n->meet.meet, NULL, n->place.where, sizeof n->place.where);
        n->meet.epoch = n->place.epoch;
        n->meet.n = e->n;
        for (int i = 0; i < e->n; i++)
            n->meet.members[i] = e->members[i].id;
        for (int i = 1; i < e->n; i++)
            post_place(n, e->members[i].address);
    }
    tutti_run_key_wipe(&o.key);
    tutti_wake(n->lock);
}

void tutti_node_meet_progress(tutti_node *n)
{
    if (n->meet.meet != NULL && !is_in(n, n->meet.epoch))
        drop_meet(n);
    if (n->meet_wanted != 0 && is_in(n, n->meet_wanted))
        open_meet(n);
    n->meet_wanted = 0;
    if (n->meet.meet != NULL) /* TUTTI_TIMEOUT: those that wait there were notified, and end */
        (void)tutti_meet_progress(n->meet.meet, NULL);
}

void tutti_node_meet_lost(tutti_node *n, uint64_t id, const char *how)
{
    tutti_error why = { .rank = -1 };

    if (n->meet.meet == NULL)
        return;
    (void)tutti_fail(&why, TUTTI_ERR_PEER, 0, "its connection with another member has ended: %s",
                     how);
    for (int r = 0; r < n->meet.n; r++)
        if (n->meet.members[r] == id)
            tutti_meet_lost(n->meet.meet, r, &why, 0);
}

void tutti_node_on_where(tutti_node *n, const node_in *from, uint64_t epoch)
{
    if (n->meet.meet != NULL && n->meet.epoch == epoch && is_in(n, epoch))
        post_place(n, from->address);
}

bool tutti_node_on_place(tutti_node *n, const node_in *from, const uint8_t *bytes, size_t size)
{
    const tutti_epoch *const e = tutti_membership_epoch(n->m);
    const size_t length = size >= PLACE_BYTES ? size - PLACE_BYTES : 0;

    if (length == 0 || length >= sizeof n->place.where)
        return false;
    for (size_t k = PLACE_BYTES; k < size; k++)
        if (bytes[k] <= ' ' || bytes[k] > '~')
            return false;
    /* of another epoch: this node, or that one, is behind, and asks again */
    if (!is_in(n, node_get64(bytes)) || e->members[0].id != from->id)
        return true;
    n->place = (node_place){ .epoch = e->number, .failed = { .rank = -1 } };
    memcpy(n->place.id.bytes, bytes + 8, sizeof n->place.id.bytes);
    memcpy(n->place.where, bytes + PLACE_BYTES, length);
    tutti_wake(n->lock);
    return true;
}

/* ---- the end of a world ---- */
void tutti_node_end_worlds(tutti_node *n)
{
    const bool over = !is_in(n, n->world_epoch);
    /* it has promised to end the epoch: no step can follow in it */
    const bool promised = n->view.holds && !n->view.acts;
    const uint64_t one = 1;

    if (n->world_fd >= 0 && (over || (n->opening && promised)) &&
        write(n->world_fd, &one, sizeof one) < 0)
        return; /* it is readable already */
}

/* ---- opening a world: a client's thread ---- */
static tutti_status has_ended(uint64_t epoch, tutti_error *err)
{
    return tutti_fail(err, TUTTI_CLOSED, 0,
                      "epoch %llu has ended, or its end is decided; look at the next one",
                      (unsigned long long)epoch);
}

/* Is it worth to go on opening? */
static bool goes_on(const tutti_node *n, uint64_t epoch)
{
    return is_in(n, epoch) && (!n->view.holds || n->view.acts);
}

static tutti_status begin(tutti_node *n, uint64_t epoch, tutti_error *err)
{
    int fd;

    if (!goes_on(n, epoch))
        return has_ended(epoch, err);
    if (n->opening || n->world_epoch == epoch)
        return tutti_fail(err, TUTTI_ERR_STATE, 0,
                          "the world of epoch %llu is open, or was; each member opens one an epoch",
                          (unsigned long long)epoch);
    fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fd < 0)
        return tutti_fail(err, TUTTI_ERR_IO, errno,
                          "no descriptor for a world; raise the limit of open files (ulimit -n)");
    tutti_tcp_hang_up(&n->world_fd);
    n->world_fd = fd;
    n->world_epoch = epoch;
    n->opening = true;
    if (n->view.index == 0)
        n->meet_wanted = epoch;
    return TUTTI_OK;
}

/* Waits until it is known where the members meet. */
static tutti_status find_place(tutti_node *n, uint64_t epoch, tutti_error *err)
{
    while (goes_on(n, epoch) && n->place.epoch != epoch) {
        const tutti_epoch *const e = tutti_membership_epoch(n->m);
        if (n->view.index > 0)
            (void)tutti_node_post(n, e->members[0].address, NODE_WHERE, epoch, NULL, 0);
        tutti_node_kick(n);
        (void)tutti_wait(n->lock, tutti_now_ns(n->rt) + n->options.heartbeat_ns, NULL);
    }
    if (!goes_on(n, epoch))
        return has_ended(epoch, err);
    if (n->place.failed.status != TUTTI_OK && err != NULL)
        *err = n->place.failed;
    return n->place.failed.status;
}

tutti_status tutti_node_world(tutti_world **out, tutti_node *n, uint64_t epoch, const char *spec,
                              tutti_error *err)
{
    tutti_launch launch = { .spec = spec != NULL ? spec : "tcp", .environment = environ };
    tcp_within within = { .stop = &n->world_fd };
    tutti_status status;

    *out = NULL;
    tutti_lock(n->lock);
    status = begin(n, epoch, err);
    if (status != TUTTI_OK) {
        tutti_unlock(n->lock);
        return status;
    }
    status = find_place(n, epoch, err);
    within.id = n->place.id;
    within.key = n->options.key;
    memcpy(within.where, n->place.where, sizeof within.where);
    launch.rank = n->view.index;
    launch.size = n->view.n;
    launch.within = &within;
    tutti_unlock(n->lock);
    if (status == TUTTI_OK)
        status = tutti_world_open_on(out, tutti_transport_find("tcp"), &launch, NULL, err);
    tutti_run_key_wipe(&within.key);
    if (status == TUTTI_OK)
        tutti_world_run_number(*out, tutti_node_run(n));
    tutti_lock(n->lock);
    n->opening = false;
    if (status != TUTTI_OK && (status == TUTTI_CLOSED || !goes_on(n, epoch)))
        status = has_ended(epoch, err);
    tutti_unlock(n->lock);
    return status;
}
