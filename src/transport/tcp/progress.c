/* progress.c: one pass over the connections, waiting for requests, and the service thread.

   The threads that wait make the progress. The first one whose wait is not over becomes the poller.
   Without the lock it polls for `spin` microseconds, if every worker of this host has a core, and
   then sleeps in epoll until a socket or the endpoint's eventfd is readable. Each of the other
   threads sleeps on its own monitor (tcp_sleeper).

   A thread that completes requests wakes the threads whose wait is over, and no others: a method
   may have five threads that wait, and waking all of them for each message costs tens of thousands
   of wake-ups a second (docs/CLUSTERS.md). The poller, when its wait is over, wakes one of the
   others, which continues to poll.

   Which peers are gone is decided in losses.c. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "tcp_internal.h"

enum { EVENTS = 64 };
#define UNCERTAIN_NS (10 * TCP_MS) /* how often an uncertain peer is checked */

static uint64_t links_of(const tcp_endpoint *e)
{
    return (uint64_t)e->size * (uint64_t)e->options.streams;
}

/* ---- the meeting place ---- */
static void control_ended(tcp_endpoint *e, const char *how, bool in_order)
{
    tutti_tcp_line_close(&e->control);
    if (in_order || e->at_rank_0 || e->departed)
        return; /* if rank 0 serves the meeting place, the connection with rank 0 shows its end */
    e->orphaned = true;
    snprintf(e->orphaned_why, sizeof e->orphaned_why, "%.200s", how);
    tutti_tcp_wake_all(e); /* all waits end with an error */
}

static void receive_control(tcp_endpoint *e)
{
    tutti_error why = { .rank = -1 }, wrong = { .rank = -1 };
    const tutti_status ended = tutti_tcp_line_read(&e->control, e->rt, &why);
    tutti_status status = TUTTI_OK;
    const uint8_t *payload;
    tcp_departure d;
    tcp_frame frame;

    while (status == TUTTI_OK &&
           tutti_tcp_line_next(&e->control, &frame, &payload, &status, &wrong)) {
        if (frame.kind == TCP_DEPART && tutti_tcp_departure_read(&frame, payload, e->size, &d))
            tutti_tcp_departed(e, &d, TCP_BY_MEET);
        else if (frame.kind == TCP_SHUT) {
            control_ended(e, "", true);
            return;
        } else if (frame.kind == TCP_BEAT)
            e->control.late_ns = tutti_tcp_reported_late(&frame);
        else
            status = tutti_fail(&wrong, TUTTI_ERR_CORRUPT, 0,
                                "a frame of kind %u came that has no meaning here", frame.kind);
    }
    if (status != TUTTI_OK)
        control_ended(e, wrong.text, false);
    else if (ended != TUTTI_OK)
        control_ended(e, why.text, false);
}

/* ---- one pass ---- */
static void handle(tcp_endpoint *e, const struct epoll_event *events, int n)
{
    const uint64_t links = links_of(e);

    e->passed_ns = tutti_now_ns(e->rt);
    for (int i = 0; i < n && !e->closing; i++) {
        const uint64_t what = events[i].data.u64;
        uint64_t count;
        if (what == links) {
            if (e->control.fd >= 0)
                receive_control(e);
        } else if (what == links + 2) {
            epoll_ctl(e->epoll, EPOLL_CTL_DEL, e->ended_fd, NULL); /* it stays readable */
            tutti_tcp_exclude_self(e, "the run goes on with other members");
        } else if (what > links) {
            if (e->poller_wait !=
                NULL) /* the eventfd was written for the poller, which must still find it written */
                continue;
            if (read(e->wake_fd, &count, sizeof count) < 0)
                continue; /* reset */
        } else {
            if (events[i].events & ~(uint32_t)EPOLLOUT)
                tutti_tcp_link_read(e, &e->links[what]);
            if ((events[i].events & EPOLLOUT) && e->links[what].fd >= 0)
                tutti_tcp_link_write(e, &e->links[what]);
        }
    }
    if (e->uncertain > 0 && !e->closing)
        tutti_tcp_judge(e);
}

void tutti_tcp_pass(tcp_endpoint *e)
{
    struct epoll_event events[EVENTS];
    const int n = e->size > 1 || e->control.fd >= 0 ? epoll_wait(e->epoll, events, EVENTS, 0) : 0;

    handle(e, events, n > 0 ? n : 0);
}

static void wake_poller(const tcp_endpoint *e)
{
    const uint64_t one = 1;

    if (write(e->wake_fd, &one, sizeof one) < 0)
        return; /* the counter is full, so the poller wakes in any case */
}

/* ---- threads that wait while another one polls ---- */
static bool is_over(const tcp_wait *w)
{
    return match_count_done(w->request, w->n) >= w->need;
}

static void wake_sleeper(tcp_sleeper *sleeper)
{
    tutti_lock(sleeper->wakeup);
    sleeper->woken = true;
    tutti_wake(sleeper->wakeup);
    tutti_unlock(sleeper->wakeup);
}

void tutti_tcp_wake(tcp_endpoint *e)
{
    if (e->notified == e->match.completions)
        return;
    e->notified = e->match.completions;
    if (e->poller_wait != NULL && is_over(e->poller_wait))
        wake_poller(e);
    for (tcp_sleeper *sleeper = e->sleepers; sleeper != NULL; sleeper = sleeper->next)
        if (!sleeper->woken && is_over(sleeper->wait))
            wake_sleeper(sleeper);
}

void tutti_tcp_wake_all(tcp_endpoint *e)
{
    if (e->poller_wait != NULL)
        wake_poller(e);
    for (tcp_sleeper *sleeper = e->sleepers; sleeper != NULL; sleeper = sleeper->next)
        wake_sleeper(sleeper);
}

/* A thread that was woken already polls by itself, or wakes the next when it leaves. */
static void wake_one(const tcp_endpoint *e)
{
    for (const tcp_sleeper *sleeper = e->sleepers; sleeper != NULL; sleeper = sleeper->next)
        if (sleeper->woken)
            return;
    if (e->sleepers != NULL)
        wake_sleeper(e->sleepers);
}

static tutti_status get_sleeper(tcp_endpoint *e, tcp_sleeper **out, tutti_error *err)
{
    tcp_sleeper *sleeper = e->free_sleepers;
    tutti_status status;

    *out = sleeper;
    if (sleeper != NULL) {
        e->free_sleepers = sleeper->next;
        return TUTTI_OK;
    }
    sleeper = tutti_alloc(1, sizeof *sleeper);
    if (sleeper == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM,
                          "worker %d cannot let one more thread wait", e->rank);
    status = tutti_monitor_open(&sleeper->wakeup, e->rt, err);
    if (status == TUTTI_OK)
        *out = sleeper;
    else
        tutti_free(sleeper);
    return status;
}

/* Sleeps until the wait is over, a thread is needed to poll, or until_ns. The lock is released
   meanwhile. */
static tutti_status sleep_until_woken(tcp_endpoint *e, const tcp_wait *wait, int64_t until_ns,
                                      tutti_error *err)
{
    tcp_sleeper *sleeper, **at;

    TUTTI_TRY(get_sleeper(e, &sleeper, err));
    sleeper->woken = false;
    sleeper->wait = wait;
    sleeper->next = e->sleepers;
    e->sleepers = sleeper;
    tutti_unlock(e->lock);
    tutti_lock(sleeper->wakeup);
    while (!sleeper->woken && tutti_wait(sleeper->wakeup, until_ns, NULL) == TUTTI_OK)
        continue;
    tutti_unlock(sleeper->wakeup);
    tutti_lock(e->lock);
    for (at = &e->sleepers; *at != sleeper; at = &(*at)->next)
        continue;
    *at = sleeper->next;
    sleeper->next = e->free_sleepers;
    e->free_sleepers = sleeper;
    return TUTTI_OK;
}

void tutti_tcp_close_sleepers(tcp_endpoint *e)
{
    while (e->free_sleepers != NULL) {
        tcp_sleeper *sleeper = e->free_sleepers;
        e->free_sleepers = sleeper->next;
        tutti_monitor_close(sleeper->wakeup);
        tutti_free(sleeper);
    }
}

/* ---- waiting ---- */
#ifndef SYS_epoll_pwait2
#define SYS_epoll_pwait2 441 /* on all architectures */
#endif

static int sleep_in_epoll(const tcp_endpoint *e, struct epoll_event *events, int64_t ns)
{
    const struct timespec t = { ns / 1000000000, ns % 1000000000 };
    /* not by the C library, whose oldest that is enough for everything else has no such function */
    int n = (int)syscall(SYS_epoll_pwait2, e->epoll, events, EVENTS, &t, NULL, (size_t)0);

    if (n < 0 && errno == ENOSYS) {
        /* Linux before 5.11: an epoll can itself be polled, to the nanosecond */
        struct pollfd polled = { .fd = e->epoll, .events = POLLIN };
        n = ppoll(&polled, 1, &t, NULL) > 0 ? epoll_wait(e->epoll, events, EVENTS, 0) : 0;
    }
    return n;
}

/* One iteration of the poller. The lock is released meanwhile. */
static void poll_once(tcp_endpoint *e, const tcp_wait *wait, int64_t until_ns)
{
    struct epoll_event events[EVENTS];
    int n = 0;

    e->poller_wait = wait;
    tutti_unlock(e->lock);
    if (e->options.spin > 0) {
        const int64_t spin_until = tutti_now_ns(e->rt) + e->options.spin * 1000;
        do
            n = epoll_wait(e->epoll, events, EVENTS, 0);
        while (n == 0 && tutti_now_ns(e->rt) < spin_until);
    }
    if (n == 0) {
        const int64_t left = until_ns - tutti_now_ns(e->rt);
        n = sleep_in_epoll(e, events, left < 0 ? 0 : left > 1000 * TCP_MS ? 1000 * TCP_MS : left);
    }
    tutti_lock(e->lock);
    e->poller_wait = NULL;
    handle(e, events, n > 0 ? n : 0);
}

tutti_status tutti_tcp_wait_some(void *t, tutti_request *const *r, size_t n, size_t need,
                                 int64_t deadline_ns, size_t *n_done, tutti_error *err)
{
    tcp_endpoint *e = t;
    const tcp_wait wait = { r, n, need < n ? need : n };
    tutti_status status = TUTTI_OK;
    bool looked;
    size_t done;

    tutti_lock(e->lock);
    e->waiting++;
    /* if the requests are done, the sockets are not checked: that would cost a system call */
    looked = n > 0 && match_count_done(r, n) >= (wait.need > 0 ? wait.need : n);
    for (;;) {
        int64_t now, until = deadline_ns;
        if ((!looked || e->uncertain > 0) && !e->closing)
            tutti_tcp_pass(e);
        looked = true;
        tutti_tcp_wake(e);
        done = match_count_done(r, n);
        if (e->excluded) {
            status = tutti_fail_rank(err, TUTTI_ERR_PEER, e->rank, "%s", e->excluded_why);
            break;
        }
        if (done >= wait.need)
            break;
        if (e->orphaned) {
            status = tutti_fail(err, TUTTI_ERR_PEER, 0,
                                "worker %d has lost its launcher (the meeting place): %s", e->rank,
                                e->orphaned_why);
            break;
        }
        now = tutti_now_ns(e->rt);
        if (now >= deadline_ns) {
            status = tutti_fail(
                err, TUTTI_TIMEOUT, 0,
                "%zu of %zu messages were done when the deadline passed; %zu were needed", done, n,
                wait.need);
            break;
        }
        if (e->uncertain > 0 && now + UNCERTAIN_NS < until)
            until = now + UNCERTAIN_NS;
        if (e->poller_wait == NULL && !e->closing)
            poll_once(e, &wait, until);
        else
            status = sleep_until_woken(e, &wait, until, err);
        if (status != TUTTI_OK)
            break;
    }
    e->waiting--;
    if (e->poller_wait == NULL)
        wake_one(e);
    tutti_unlock(e->lock);
    if (n_done != NULL)
        *n_done = done;
    return status;
}

/* ---- leaving ---- */
void tutti_tcp_announce_departure(tcp_endpoint *e, const tutti_error *why)
{
    tcp_departure d;
    const void *reason;
    tcp_frame frame;

    if (e->departed)
        return;
    e->departed = true;
    tutti_tcp_departure_of(&d, e->rank, why != NULL ? TUTTI_MEET_FAILED : TUTTI_MEET_LEFT, why, 0,
                           e->size);
    tutti_tcp_membership_depart(&e->membership, &d, tutti_now_ns(e->rt));
    tutti_tcp_departure_frame(&d, &frame, &reason);
    tutti_tcp_line_send(&e->control, e->rt, &frame, reason, NULL);
    for (int r = 0; r < e->size; r++) {
        tcp_peer *p = &e->peers[r];
        if (r == e->rank || e->match.peers[r].gone || p->links[0].fd < 0)
            continue;
        p->final_frame_chosen = p->depart_pending = true;
        if (!p->links[0].blocked)
            tutti_tcp_link_write(e, &p->links[0]);
    }
}

/* ---- the service thread ---- */
static void tick(tcp_endpoint *e, bool slept)
{
    const int64_t now = tutti_now_ns(e->rt);
    tcp_frame beat = { .kind = TCP_BEAT, .progress = e->match.completions };

    tutti_tcp_measure(e, now);
    beat.tag = (uint64_t)e->late_ns;
    for (int r = 0; r < e->size && !e->excluded; r++) {
        tcp_peer *p = &e->peers[r];
        tcp_link *l = r != e->rank ? &p->links[0] : NULL;
        if (l == NULL || e->match.peers[r].gone || l->fd < 0)
            continue;
        if (slept)
            p->received_ns = now;
        if (tutti_tcp_silence(e, r, now))
            continue;
        p->beat_due = true;
        if (!l->blocked && !l->write_ended)
            tutti_tcp_link_write(e, l);
    }
    if (e->control.fd >= 0 && !e->departed)
        tutti_tcp_line_send(&e->control, e->rt, &beat, NULL, NULL);
    else if (e->control.fd >= 0)
        tutti_tcp_line_flush(&e->control, NULL);
}

int64_t tutti_tcp_period_ns(const tcp_endpoint *e)
{
    const int64_t sixth = (int64_t)(e->options.peer_timeout * 1e9 / 6);

    return sixth < TCP_TICK ? sixth : TCP_TICK;
}

/* Ticks once a period, and serves the meeting place if this rank has it. */
tutti_status tutti_tcp_serve(void *arg, tutti_error *err)
{
    tcp_endpoint *e = arg;
    const int64_t period = tutti_tcp_period_ns(e);
    int64_t next = tutti_now_ns(e->rt) + period;

    (void)err;
    for (;;) {
        struct pollfd polled[2] = { { .fd = e->stop, .events = POLLIN },
                                    { .fd = e->meet != NULL ? tutti_meet_fd(e->meet) : -1,
                                      .events = POLLIN } };
        const int64_t now = tutti_now_ns(e->rt),
                      meet = e->meet != NULL ? tutti_meet_wait_ns(e->meet) : TCP_TICK;
        const int64_t left = next - now < meet ? next - now : meet;
        const struct timespec t = { 0, left < 0          ? 0
                                       : left > TCP_TICK ? (long)TCP_TICK
                                                         : (long)left };
        if (ppoll(polled, 2, &t, NULL) > 0 && polled[0].revents != 0)
            return TUTTI_OK;
        if (e->meet != NULL) {
            tutti_meet_progress(e->meet, NULL);
            tutti_tcp_report_missing(e);
        }
        if (tutti_now_ns(e->rt) < next)
            continue;
        tutti_lock(e->lock);
        if (e->opened && !e->closing) {
            const int64_t late = tutti_now_ns(e->rt) - next;
            tutti_tcp_pass(e);
            /* this thread itself did not run: silence meanwhile is held against no rank */
            tick(e, late > (int64_t)(e->options.peer_timeout * 5e8));
            tutti_tcp_wake(e);
        }
        tutti_unlock(e->lock);
        next = tutti_now_ns(e->rt) + period;
    }
}
