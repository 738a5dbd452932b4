/* tcp_losses_test.c: divided runs. Ranks stop hearing each other in every direction that a test
   wants, while all live; exactly one side continues, whether a launcher's meeting place decides
   or each side counts. A way is cut by taking its connection out of the receiver's epoll: what
   comes is never read, as if it had never come. */
#include <linux/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>
#include "tcp_help.h"
#include "together.h"

enum { MOST = 7 };
typedef struct division {
    int size;
    const char *sides;           /* a letter a rank: ranks of equal letters are connected */
    bool counts;                 /* no arbiter: rank 0 serves the meeting place, which is not asked */
    const char *goes_on;         /* the side that does */
    bool pair;                   /* only ranks 1 and 2 are not connected */
} division;

typedef struct member { const division *d; int rank; _Atomic int *ready; int lost; char told[480]; } member;

static int setup(void **state) { return tutti_runtime_open_posix((tutti_runtime **)state, NULL) == TUTTI_OK ? 0 : -1; }
static int teardown(void **state) { tutti_runtime_close(*state); return 0; }

static bool hear_each_other(const division *d, int a, int b)
{
    return d->pair ? !((a == 1 && b == 2) || (a == 2 && b == 1)) : d->sides[a] == d->sides[b];
}

static int losses(void *t)
{
    tutti_peer_event event;
    int lost = 0;

    for (int i = 0; tcp()->events(t, i, &event, 1) > i; i++)
        lost += event.change == TUTTI_PEER_LOST;
    return lost;
}

static tutti_status divided(void *t, tutti_runtime *rt, void *arg, tutti_error *err)
{
    const int64_t until = tutti_now_ns(rt) + 60000 * TCP_MS;
    tcp_endpoint *e = t;
    member *m = arg;
    int others = 0;

    tutti_lock(e->lock);
    e->at_rank_0 = m->d->counts;
    for (int r = 0; r < m->d->size; r++) {
        struct epoll_event nothing = { 0 };
        if (r != m->rank && !hear_each_other(m->d, m->rank, r))
            epoll_ctl(e->epoll, EPOLL_CTL_DEL, e->peers[r].links[0].fd, &nothing);
        others += m->d->sides[r] != m->d->goes_on[0];
    }
    tutti_unlock(e->lock);
    atomic_fetch_add(m->ready, 1);
    while (tutti_now_ns(rt) < until) {
        size_t done;
        const tutti_status status = tcp()->wait_some(t, NULL, 0, 0, 0, &done, err);
        if (status != TUTTI_OK) {
            snprintf(m->told, sizeof m->told, "%s", err->text);
            return status;
        }
        m->lost = losses(t);
        if (m->lost == others && m->d->sides[m->rank] == m->d->goes_on[0] && atomic_load(m->ready) > m->d->size)
            return TUTTI_OK;
        pause_ms(rt, 2);
    }
    return tutti_fail(err, TUTTI_TIMEOUT, 0, "rank %d knows of %d losses, and still runs", m->rank, m->lost);
}

static void divide(tutti_runtime *rt, const division *d)
{
    real_rank ranks[MOST];
    member members[MOST];
    _Atomic int ready = 0;
    run_of run;
    int stopped = 0, goes = 0;

    run_open(&run, rt, "unix", d->size, 0);
    for (int r = 0; r < d->size; r++) {
        members[r] = (member){ .d = d, .rank = r, .ready = &ready };
        rank_start(&ranks[r], &run, r, "tcp(peer-timeout=1)", divided, &members[r]);
    }
    for (int r = 0; r < d->size; r++) /* those of the other sides end by themselves; then the others may */
        if (d->sides[r] != d->goes_on[0]) {
            if (rank_end(&ranks[r]) != TUTTI_ERR_PEER || ranks[r].err.rank != r)
                fail_msg("%s: rank %d ended with '%s', rank %d: %s", d->sides, r, tutti_status_name(ranks[r].status),
                         ranks[r].err.rank, ranks[r].err.text);
            assert_says(members[r].told, "is no member of the run any more: ");
            assert_says(members[r].told, d->counts ? "receives from only" : "continues, ");
            stopped++;
        }
    atomic_store(&ready, d->size + 1);
    for (int r = 0; r < d->size; r++)
        if (d->sides[r] == d->goes_on[0]) {
            if (rank_end(&ranks[r]) != TUTTI_OK)
                fail_msg("%s: rank %d ended with '%s': %s", d->sides, r, tutti_status_name(ranks[r].status),
                         ranks[r].err.text);
            assert_int_equal(members[r].lost, stopped);
            goes++;
        }
    assert_int_equal(goes + stopped, d->size);
    run_close(&run);
}

static const struct { int size; const char *sides, *goes_on;
} divisions[] = {
    { 2, "ab", "a" },    { 4, "aabb", "a" }, { 4, "abba", "a" },    { 3, "abb", "b" },
    { 5, "aabbb", "b" }, { 4, "abbb", "b" }, { 7, "bbbabab", "b" },
};

static void the_meeting_place_keeps_the_larger_partition(void **state)
{
    for (size_t i = 0; i < TUTTI_LENGTH(divisions); i++)
        divide(*state, &(division){ divisions[i].size, divisions[i].sides, false, divisions[i].goes_on, false });
}

static void without_a_launcher_ranks_keep_the_larger_partition(void **state)
{
    for (size_t i = 0; i < TUTTI_LENGTH(divisions); i++)
        divide(*state, &(division){ divisions[i].size, divisions[i].sides, true, divisions[i].goes_on, false });
}

/* A single way that is cut costs the higher of the two. */
static void of_two_disconnected_ranks_the_higher_is_expelled(void **state)
{
    divide(*state, &(division){ 4, "aaba", false, "a", true });
}

/* ---- how long a silence may last: by clocks that the test holds, so that the bound is
   looked at and not ten times it ---- */
#define EXPECT(condition) \
    do { \
        if (!(condition)) { \
            status = tutti_fail(err, TUTTI_ERR_STATE, 0, "line %d: %s", __LINE__, #condition); \
            goto out; \
        } \
    } while (0)
static const double timeout = 60; /* so long that the real clock never finds what the test asks for */

static int64_t seconds(double s) { return (int64_t)(s * 1e9); }

/* Worker 1 joins and sends no more. After a third of the time there is a warning, five sixths and
   a tick end it; an arbiter has a second to answer. */
static tutti_status judges_silence(void *t, tutti_runtime *rt, void *arg, tutti_error *err)
{
    const bool counts = *(const bool *)arg;
    tutti_status status = TUTTI_OK;
    tcp_endpoint *e = t;
    tcp_peer *p = &e->peers[1];
    int64_t heard;
    char why[480];

    (void)rt;
    tutti_lock(e->lock);
    e->at_rank_0 = counts;
    heard = p->received_ns;
    EXPECT(e->options.peer_timeout == timeout);
    EXPECT(!tutti_tcp_silence(e, 1, heard + seconds(0.33 * timeout)) && !p->silent);
    EXPECT(!tutti_tcp_silence(e, 1, heard + seconds(0.34 * timeout)) && p->silent);
    EXPECT(!tutti_tcp_silence(e, 1, heard + seconds(0.83 * timeout)) && p->silent);
    if (!counts) {
        EXPECT(!tutti_tcp_silence(e, 1, heard + seconds(0.84 * timeout)));
        EXPECT(!tutti_tcp_silence(e, 1, heard + seconds(0.84 * timeout + 0.99)));
        EXPECT(tutti_tcp_silence(e, 1, heard + seconds(0.84 * timeout + 1.01)));
    } else
        EXPECT(tutti_tcp_silence(e, 1, heard + seconds(0.84 * timeout)));
    EXPECT(e->match.peers[1].gone);
out:
    tutti_unlock(e->lock);
    if (status == TUTTI_OK && (tcp()->dead_peer(t, why, sizeof why) != 1 ||
                               strstr(why, counts ? "silent for 50.4 s" : "silent for 51.4 s") == NULL))
        status = tutti_fail(err, TUTTI_ERR_STATE, 0, "the words are '%s'", why);
    return status;
}

static tutti_status looks_at_its_options(void *t, tutti_runtime *rt, void *arg, tutti_error *err)
{
    (void)rt;
    (void)arg;
    return ((tcp_endpoint *)t)->options.peer_timeout == 3 ? TUTTI_OK
                                                          : tutti_fail(err, TUTTI_ERR_STATE, 0, "the promise is 3 s");
}

static void a_silent_peer_is_lost_after_peer_timeout(void **state)
{
    for (int k = 0; k < 3; k++) {
        const bool counts = k == 1;
        real_rank r;
        fake_rank f;
        run_of run;
        run_open(&run, *state, "unix", 2, 0);
        rank_start(&r, &run, 0, k < 2 ? "tcp(peer-timeout=60)" : "tcp", k < 2 ? judges_silence : looks_at_its_options,
                   (void *)(uintptr_t)&counts);
        fake_join(&f, &run, 1);
        if (rank_end(&r) != TUTTI_OK)
            fail_msg("%s", r.err.text);
        fake_close(&f);
        run_close(&run);
    }
}

/* ---- lines that are full ---- */
/* What this rank sees of its lines, and the longest delay that a peer has reported, excuse a
   silence of worker 1, up to ten times peer-timeout. So does progress in what the other's kernel
   accepts of a large send. */
static tutti_status excuses(void *t, tutti_runtime *rt, void *arg, tutti_error *err)
{
    tutti_status status = TUTTI_OK;
    tcp_endpoint *e = t;
    tcp_peer *p = &e->peers[1];
    int64_t heard;
    char why[480];

    (void)arg;
    (void)rt;
    tutti_lock(e->lock);
    e->at_rank_0 = true;
    heard = p->received_ns;
    EXPECT(tutti_tcp_patience_ns(e) == seconds(timeout));
    p->acked_ns = heard + seconds(40);
    EXPECT(!tutti_tcp_silence(e, 1, heard + seconds(40 + 0.83 * timeout)));
    e->late_ns = seconds(12);
    p->late_ns = seconds(18);
    EXPECT(tutti_tcp_patience_ns(e) == seconds(90));
    p->acked_ns = 0;
    EXPECT(!tutti_tcp_silence(e, 1, heard + seconds(0.33 * 90)) && !p->silent);
    EXPECT(!tutti_tcp_silence(e, 1, heard + seconds(0.83 * 90)) && p->silent);
    e->late_ns = seconds(9 * timeout);
    p->late_ns = seconds(3600);
    p->acked_ns = heard + seconds(0.83 * 10 * timeout);
    EXPECT(!tutti_tcp_silence(e, 1, heard + seconds(0.83 * 10 * timeout)));
    EXPECT(tutti_tcp_silence(e, 1, heard + seconds(0.84 * 10 * timeout)));
out:
    tutti_unlock(e->lock);
    if (status == TUTTI_OK &&
        (tcp()->dead_peer(t, why, sizeof why) != 1 || strstr(why, "tcp(peer-timeout=60)") == NULL))
        status = tutti_fail(err, TUTTI_ERR_STATE, 0, "the words are '%s'", why);
    return status;
}

static void a_congested_link_extends_peer_timeout_up_to_tenfold(void **state)
{
    real_rank r;
    fake_rank f;
    run_of run;

    run_open(&run, *state, "unix", 2, 0);
    rank_start(&r, &run, 0, "tcp(peer-timeout=60)", excuses, NULL);
    fake_join(&f, &run, 1);
    if (rank_end(&r) != TUTTI_OK)
        fail_msg("%s", r.err.text);
    fake_close(&f);
    run_close(&run);
}

typedef struct frozen { _Atomic bool ready, end; } frozen;

static tutti_status is_stopped(void *t, tutti_runtime *rt, void *arg, tutti_error *err)
{
    tcp_endpoint *e = t;
    frozen *f = arg;

    tutti_lock(e->lock);
    atomic_store(&f->ready, true);
    while (!atomic_load(&f->end))
        pause_ms(rt, 1);
    tutti_unlock(e->lock);
    return tutti_fail(err, TUTTI_ERR_STATE, 0, "it was sent what is no frame");
}

static bool queue_moves_to(tutti_runtime *rt, int fd, bool less, uint64_t bound)
{
    tcp_backlog look = { 0 };

    for (int i = 0; i < 5000; i++) {
        if (tutti_tcp_backlog(fd, &look) && (less ? look.queued < bound : look.queued >= bound))
            return true;
        pause_ms(rt, 1);
    }
    return false;
}

/* Worker 1 is stopped, and its kernel takes what we send until its buffer is full: that counts for
   once. What it takes of a heartbeat does not. */
static tutti_status sees_what_is_taken(void *t, tutti_runtime *rt, void *arg, tutti_error *err)
{
    static uint8_t block[64 << 10];
    tutti_status status = TUTTI_OK;
    tcp_endpoint *e = t;
    tcp_peer *p = &e->peers[1];
    frozen *f = arg;
    const int fd = p->links[0].fd;
    int64_t late = seconds(8);
    int milliseconds = 0;
    socklen_t bytes = sizeof milliseconds;
    tcp_backlog look;

    while (!atomic_load(&f->ready))
        pause_ms(rt, 1);
    tutti_lock(e->lock);
    tutti_tcp_measure(e, seconds(1));
    EXPECT(p->acked_ns == 0);
    EXPECT(send(fd, block, 112, 0) == 112 && queue_moves_to(rt, fd, true, 1));
    tutti_tcp_measure(e, seconds(2));
    EXPECT(p->acked_ns == 0);
    while (send(fd, block, sizeof block, 0) > 0 || queue_moves_to(rt, fd, true, TCP_BACKLOG_BYTES))
        pause_ms(rt, 5);
    EXPECT(queue_moves_to(rt, fd, false, TCP_BACKLOG_BYTES));
    tutti_tcp_measure(e, seconds(3));
    EXPECT(p->acked_ns == seconds(3));
    for (int i = 0; i < 100; i++) /* what is still in flight */
        pause_ms(rt, 5);
    tutti_tcp_measure(e, seconds(4));
    tutti_tcp_measure(e, seconds(5));
    EXPECT(p->acked_ns < seconds(5));
    /* the kernel ends no connection before this rank would */
    EXPECT(getsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &milliseconds, &bytes) == 0 &&
           milliseconds == TCP_SILENCE_FACTOR * 60 * 1000);
    EXPECT(tutti_tcp_backlog(fd, &look) && look.queued >= TCP_BACKLOG_BYTES && look.acked > 0 && look.late_ns > 0);
    EXPECT(!tutti_tcp_backlog(e->wake_fd, &look) && look.late_ns == 0);
    /* what was seen is forgotten slowly, what is worse counts at once, and no more than may be */
    tutti_tcp_update_late(&late, 0, seconds(9));
    EXPECT(late == seconds(8) / 32 * 31);
    tutti_tcp_update_late(&late, seconds(20), seconds(9));
    EXPECT(late == seconds(9));
out:
    tutti_unlock(e->lock);
    atomic_store(&f->end, true);
    return status;
}

static void accepted_bytes_of_a_large_send_count_as_progress(void **state)
{
    frozen f = { .ready = false };
    real_rank ranks[2];
    run_of run;

    run_open(&run, *state, "127.0.0.1", 2, 0);
    rank_start(&ranks[0], &run, 0, "tcp(local=tcp,peer-timeout=60)", sees_what_is_taken, &f);
    rank_start(&ranks[1], &run, 1, "tcp(local=tcp,peer-timeout=60)", is_stopped, &f);
    if (rank_end(&ranks[0]) != TUTTI_OK)
        fail_msg("%s", ranks[0].err.text);
    rank_end(&ranks[1]);
    run_close(&run);
}

/* ---- the order in which the losses are learned ---- */
typedef struct heard { bool in_time; _Atomic bool end; } heard;

/* Worker 1 reports that it gives up because of worker 2, before anything is known of that one. */
static tutti_status hears_of_a_survivor_first(void *t, tutti_runtime *rt, void *arg, tutti_error *err)
{
    const tcp_departure first = { 1, 2, 0, TUTTI_MEET_FAILED, TUTTI_ERR_PEER, "rank 2 is gone" },
                        why = { 2, -1, 9, TUTTI_MEET_LOST, TUTTI_ERR_PEER, "killed by signal 9" };
    heard *h = arg;
    tutti_request request = { 0 };
    tutti_status status = TUTTI_OK;
    tcp_endpoint *e = t;
    char words[480];

    TUTTI_TRY(tcp()->recv(t, &request, 1, 1, tutti_host(NULL, 0, TUTTI_U8), err));
    tutti_lock(e->lock);
    tutti_tcp_departed(e, &first, TCP_BY_ITSELF);
    e->passed_ns = e->peers[1].reported_ns + TCP_PATIENCE_NS - 1;
    tutti_tcp_judge(e);
    EXPECT(!e->match.peers[1].gone && !atomic_load(&request.done));
    if (h->in_time)
        tutti_tcp_departed(e, &why, TCP_BY_MEET);
    else
        e->passed_ns++;
    tutti_tcp_judge(e);
    EXPECT(e->match.peers[1].gone && atomic_load(&request.done));
    EXPECT(request.status == TUTTI_ERR_PEER && request.rank == 2);
out:
    tutti_unlock(e->lock);
    tcp()->cancel(t, &request);
    if (status == TUTTI_OK &&
        (tcp()->dead_peer(t, words, sizeof words) != 2 ||
         strcmp(words, h->in_time ? "worker 2 was lost: killed by signal 9"
                                  : "worker 2 was lost, according to the failure report of worker 1: "
                                    "rank 2 is gone") != 0))
        status = tutti_fail(err, TUTTI_ERR_STATE, 0, "the words are '%s'", words);
    atomic_store(&h->end, true);
    (void)rt;
    return status;
}

static tutti_status stays(void *t, tutti_runtime *rt, void *arg, tutti_error *err)
{
    (void)t;
    (void)err;
    while (!atomic_load((_Atomic bool *)arg))
        pause_ms(rt, 1);
    return TUTTI_OK;
}

static void aborted_peer_is_lost_after_root_cause_is_known(void **state)
{
    for (int k = 0; k < 2; k++) {
        heard h = { .in_time = k == 0 };
        real_rank ranks[3];
        run_of run;
        run_open(&run, *state, "unix", 3, 0);
        rank_start(&ranks[0], &run, 0, "tcp", hears_of_a_survivor_first, &h);
        for (int r = 1; r < 3; r++)
            rank_start(&ranks[r], &run, r, "tcp", stays, &h.end);
        if (rank_end(&ranks[0]) != TUTTI_OK)
            fail_msg("%s", ranks[0].err.text);
        for (int r = 1; r < 3; r++)
            rank_end(&ranks[r]); /* it has learned that it is lost, or leaves before: both are well */
        run_close(&run);
    }
}

/* Worker 2 has connected to this one, falls silent, and never connects to worker 1, which waits
   for it: worker 1 is connected to this one and healthy. */
static tutti_status loses_the_silent_one(void *t, tutti_runtime *rt, void *arg, tutti_error *err)
{
    tutti_peer_event first = { .rank = -1 };

    (void)arg;
    for (int i = 0; i < 20000 && tcp()->events(t, 0, &first, 1) == 0; i++)
        pause_ms(rt, 1);
    return first.rank == 2 ? TUTTI_OK
                           : tutti_fail(err, TUTTI_ERR_STATE, 0, "the first event is of worker %d: %s", first.rank,
                                        first.rank >= 0 ? first.why : "there is none");
}

static void a_rank_that_waits_for_another_to_connect_is_not_silent(void **state)
{
    _Atomic bool end = true;
    real_rank ranks[2];
    fake_rank f;
    run_of run;

    run_open(&run, *state, "unix", 3, 0);
    rank_start(&ranks[0], &run, 0, "tcp(peer-timeout=1)", loses_the_silent_one, NULL);
    rank_start(&ranks[1], &run, 1, "tcp(peer-timeout=1)", stays, &end);
    fake_join(&f, &run, 2);
    if (rank_end(&ranks[0]) != TUTTI_OK)
        fail_msg("%s", ranks[0].err.text);
    assert_int_equal(rank_end(&ranks[1]), TUTTI_ERR_PEER);
    fake_close(&f);
    run_close(&run);
}

/* A runtime whose clock advances when the test advances it. Its waits are those of the real one,
   so it may be used only by code that never waits until a time: a meeting place. */
static _Atomic int64_t held_ns;
static int64_t held_now(void *self) { (void)self; return atomic_load(&held_ns); }

/* Steps of less than half of its patience: else it has slept itself, and forgives. */
static tutti_meet_state after(run_of *run, double step)
{
    tutti_meet_state state;

    tutti_lock(run->lock);
    atomic_fetch_add(&held_ns, seconds(step));
    tutti_meet_progress(run->meet, NULL);
    state = tutti_meet_rank_of(run->meet, 1)->state;
    tutti_unlock(run->lock);
    return state;
}

static void meeting_place_declares_silent_ranks_lost_in_three_seconds(void **state)
{
    tutti_runtime *real = *state;
    tutti_runtime_ops ops = *real->ops;
    tutti_runtime held = { &ops, real->self };
    _Atomic bool end = false;
    real_rank r;
    fake_rank f;
    run_of run;

    ops.now = held_now;
    atomic_store(&held_ns, tutti_now_ns(real));
    run_open(&run, &held, "unix", 2, 0);
    run.rt = real; /* the ranks' */
    rank_start(&r, &run, 0, "tcp(peer-timeout=3600)", stays, &end);
    fake_join(&f, &run, 1);
    assert_int_equal(after(&run, 0), TUTTI_MEET_RUNNING);
    assert_int_equal(after(&run, 1.2), TUTTI_MEET_RUNNING);
    assert_int_equal(after(&run, 1.2), TUTTI_MEET_RUNNING);
    assert_int_equal(after(&run, 0.2), TUTTI_MEET_LOST);
    assert_says(tutti_meet_rank_of(run.meet, 1)->reason, "it has been silent for 2.6 s");
    atomic_store(&end, true);
    rank_end(&r); /* it has learned that it is alone, or leaves before: both are well */
    fake_close(&f);
    run_close(&run);
}

/* Closing an endpoint waits for bytes that are not acknowledged, and those never are. */
static void a_connection_that_was_reset_has_no_backlog(void **state)
{
    static const char bytes[1 << 16];
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t length = sizeof at;
    const int listener = socket(AF_INET, SOCK_STREAM, 0), from = socket(AF_INET, SOCK_STREAM, 0);
    tcp_backlog look;
    int to;

    assert_int_equal(bind(listener, (struct sockaddr *)&at, length), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &length), 0);
    assert_int_equal(connect(from, (struct sockaddr *)&at, length), 0);
    to = accept(listener, NULL, NULL);
    assert_true(to >= 0);
    while (send(from, bytes, sizeof bytes, MSG_DONTWAIT) > 0)
        continue;
    assert_true(tutti_tcp_backlog(from, &look) && look.queued > 0);
    close(to); /* with bytes that it has not read */
    for (int k = 0; k < 10000 && tutti_tcp_backlog(from, &look); k++)
        pause_ms(*state, 1);
    assert_false(tutti_tcp_backlog(from, &look));
    assert_true(look.queued == 0);
    close(from);
    close(listener);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_meeting_place_keeps_the_larger_partition, setup, teardown),
        cmocka_unit_test_setup_teardown(without_a_launcher_ranks_keep_the_larger_partition, setup, teardown),
        cmocka_unit_test_setup_teardown(of_two_disconnected_ranks_the_higher_is_expelled, setup, teardown),
        cmocka_unit_test_setup_teardown(a_silent_peer_is_lost_after_peer_timeout, setup, teardown),
        cmocka_unit_test_setup_teardown(a_connection_that_was_reset_has_no_backlog, setup, teardown),
        cmocka_unit_test_setup_teardown(a_congested_link_extends_peer_timeout_up_to_tenfold, setup, teardown),
        cmocka_unit_test_setup_teardown(accepted_bytes_of_a_large_send_count_as_progress, setup, teardown),
        cmocka_unit_test_setup_teardown(
            aborted_peer_is_lost_after_root_cause_is_known, setup, teardown),
        cmocka_unit_test_setup_teardown(a_rank_that_waits_for_another_to_connect_is_not_silent, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(meeting_place_declares_silent_ranks_lost_in_three_seconds, setup,
                                        teardown),
    };

    return together(tests, TUTTI_LENGTH(tests), NULL, NULL, argc > 1 ? argv[1] : NULL);
}
