/* tcp_strangers_test.c: programs that are not of the run, and ranks that send nonsense. Goal: no
   program without the key is accepted as a rank; none of them holds more than its slot, delays
   the run or ends it; and what a rank with the key sends is checked all the same. Method: raw
   sockets at the port of a meeting place while a run is being set up, and a rank played by this
   test (tcp_help.h). */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "tcp_help.h"
#include "together.h"

static int setup(void **state) { return tutti_runtime_open_posix((tutti_runtime **)state, NULL) == TUTTI_OK ? 0 : -1; }
static int teardown(void **state) { tutti_runtime_close(*state); return 0; }

static int knock(const run_of *run)
{
    tcp_address a;
    int fd;

    assert_int_equal(tutti_tcp_resolve(run->where, &a, NULL), TUTTI_OK);
    assert_int_equal(tutti_tcp_connect(&a, &fd), 0);
    return fd;
}

/* Everything of `bytes` is taken by the kernel once the connection stands. */
static void say(const run_of *run, int fd, const void *what, size_t bytes)
{
    struct pollfd polled = { .fd = fd, .events = POLLOUT };

    (void)run;
    assert_int_equal(poll(&polled, 1, 10000), 1);
    if (send(fd, what, bytes, MSG_NOSIGNAL) != (ssize_t)bytes)
        assert_true(errno == EPIPE || errno == ECONNRESET); /* turned away already */
}

/* How many bytes come before the other side hangs up; -1: it does not within 10 s. */
static ssize_t heard_until_hung_up(int fd, uint8_t *to, size_t room)
{
    size_t got = 0;

    for (;;) {
        struct pollfd polled = { .fd = fd, .events = POLLIN };
        ssize_t n;
        if (poll(&polled, 1, 10000) != 1)
            return -1;
        n = recv(fd, to + got, room - got, 0);
        if (n <= 0)
            return (ssize_t)got;
        got += (size_t)n;
    }
}

/* Both ranks of the run meet after all, and a message goes round. */
static tutti_status exchange(void *t, tutti_runtime *rt, void *arg, tutti_error *err)
{
    tutti_request s = { 0 }, r = { 0 }, *list[2] = { &s, &r };
    const int rank = *(const int *)arg;
    size_t done;

    TUTTI_TRY(tcp()->send(t, &s, 1 - rank, 1, NULL, tutti_nothing(), err));
    TUTTI_TRY(tcp()->recv(t, &r, 1 - rank, 1, tutti_nothing(), err));
    TUTTI_TRY(tcp()->wait_some(t, list, 2, 2, tutti_now_ns(rt) + 60000 * TCP_MS, &done, err));
    CHECK(s.status == TUTTI_OK && r.status == TUTTI_OK);
    return TUTTI_OK;
}

static void comes_about(run_of *run)
{
    static int numbers[2] = { 0, 1 };
    real_rank ranks[2];

    for (int r = 0; r < 2; r++)
        rank_start(&ranks[r], run, r, "tcp(local=tcp)", exchange, &numbers[r]);
    for (int r = 0; r < 2; r++) {
        if (rank_end(&ranks[r]) != TUTTI_OK)
            fail_msg("rank %d: %s", r, ranks[r].err.text);
    }
}

static void unauthenticated_connection_state_is_below_four_kilobytes(void **state)
{
    (void)state;
    assert_true(sizeof(tcp_stranger) < 4096);
}

static void garbage_is_turned_away_unanswered(void **state)
{
    uint8_t noise[600], answer[64];
    tcp_hello h;
    run_of run;

    run_open(&run, *state, "127.0.0.1", 2, 0);
    for (uint64_t k = 0; k < 40; k++) {
        const int fd = knock(&run);
        for (size_t i = 0; i < sizeof noise; i++)
            noise[i] = (uint8_t)tutti_random((tutti_rng){ k, 1, 0 }, i);
        if (k % 4 == 1)
            memcpy(noise, "GET / HTTP/1.1\r\n\r\n", 18);
        if (k % 4 == 2) { /* right in all but one bit of its MAC */
            fake_hello(&run, 1, &h);
            tutti_tcp_hello_write(&h, &run.options.key, noise);
            noise[TCP_HELLO_BYTES - 1 - k / 4] ^= 1;
        }
        say(&run, fd, noise, k % 4 == 3 ? TCP_HELLO_BYTES : sizeof noise);
        assert_int_equal(heard_until_hung_up(fd, answer, sizeof answer), 0);
        close(fd);
    }
    assert_true(run_strangers(&run) >= 40);
    assert_int_equal(run_missing(&run), 2);
    comes_about(&run);
    run_close(&run);
}

/* One that sends nothing, or byte after byte, is disconnected after 5 s. */
static void slow_unauthenticated_connections_are_closed(void **state)
{
    uint8_t answer[8];
    int64_t start;
    run_of run;
    int fds[3];

    run_open(&run, *state, "127.0.0.1", 2, 0);
    start = tutti_now_ns(*state);
    for (int i = 0; i < 3; i++)
        fds[i] = knock(&run);
    for (int k = 0; k < 50; k++) {
        say(&run, fds[1], "T", 1);
        pause_ms(*state, 20);
    }
    for (int i = 0; i < 3; i++) {
        assert_int_equal(heard_until_hung_up(fds[i], answer, sizeof answer), 0);
        close(fds[i]);
    }
    assert_true(tutti_now_ns(*state) - start < 50000 * TCP_MS);
    comes_about(&run);
    run_close(&run);
}

/* More than there are slots, and more all the time, while the ranks come. */
typedef struct flood { run_of *run; _Atomic bool stop; _Atomic int made; } flood;

static tutti_status pour(void *arg, tutti_error *err)
{
    flood *f = arg;
    tcp_address a;
    int fds[200], n = 0;

    TUTTI_TRY(tutti_tcp_resolve(f->run->where, &a, err));
    memset(fds, -1, sizeof fds);
    while (!atomic_load(&f->stop)) {
        tutti_tcp_hang_up(&fds[n]);
        if (tutti_tcp_connect(&a, &fds[n]) == 0)
            atomic_fetch_add(&f->made, 1);
        n = (n + 1) % 200;
        pause_ms(f->run->rt, 1);
    }
    for (int i = 0; i < 200; i++)
        tutti_tcp_hang_up(&fds[i]);
    return TUTTI_OK;
}

static void a_flood_of_connections_does_not_block_ranks(void **state)
{
    tutti_thread *thread;
    flood f = { 0 };
    run_of run;

    run_open(&run, *state, "127.0.0.1", 2, 0);
    f.run = &run;
    assert_int_equal(tutti_thread_open(&thread, *state, "flood", pour, &f, NULL), TUTTI_OK);
    while (atomic_load(&f.made) < 150)
        pause_ms(*state, 1);
    comes_about(&run);
    atomic_store(&f.stop, true);
    tutti_thread_join(thread, NULL);
    assert_true(run_strangers(&run) > 50);
    run_close(&run);
}

/* A stranger has recorded a whole handshake of rank 1 and replays it. */
static void a_replayed_handshake_is_turned_away(void **state)
{
    uint8_t hello[TCP_HELLO_BYTES], answer[TCP_ANSWER_BYTES], proof[TCP_PROOF_BYTES], first[TCP_FRAME_BYTES + 1];
    uint64_t strangers;
    run_of run;
    tcp_hello h;
    int fd;

    run_open(&run, *state, "127.0.0.1", 2, 0);
    fake_hello(&run, 1, &h);
    tutti_tcp_hello_write(&h, &run.options.key, hello);
    fd = knock(&run);
    say(&run, fd, hello, sizeof hello);
    for (size_t got = 0; got < sizeof answer; pause_ms(*state, 1)) {
        const ssize_t n = recv(fd, answer + got, sizeof answer - got, 0);
        got += n > 0 ? (size_t)n : 0;
    }
    tutti_tcp_proof_write(&run.options.key, hello, answer, proof);
    say(&run, fd, proof, sizeof proof);
    for (size_t got = 0; got < TCP_FRAME_BYTES; pause_ms(*state, 1)) { /* the real one is taken */
        const ssize_t n = recv(fd, first + got, sizeof first - got, 0);
        got += n > 0 ? (size_t)n : 0;
    }
    close(fd);
    while (run_missing(&run) != 2)
        pause_ms(*state, 1);
    pause_ms(*state, 100);
    strangers = run_strangers(&run);

    fd = knock(&run);
    say(&run, fd, hello, sizeof hello);
    say(&run, fd, proof, sizeof proof);
    /* an answer to any caller with the key; not accepted */
    assert_int_equal(heard_until_hung_up(fd, first, sizeof first), TCP_ANSWER_BYTES);
    close(fd);
    assert_int_equal(run_strangers(&run), strangers + 1);
    assert_int_equal(run_missing(&run), 2);
    comes_about(&run);
    run_close(&run);
}

/* Each learns as much as it may know, and the run is set up after all. */
static void ranks_with_wrong_run_key_or_size_are_rejected(void **state)
{
    real_rank r;
    run_of run;

    run_open(&run, *state, "127.0.0.1", 2, 0);
    r = (real_rank){ .run = &run, .spec = "tcp", .key = run.options.key, .id = run.options.id, .size = 2 };
    r.key.bytes[31] ^= 1;
    rank_begin(&r);
    assert_int_equal(rank_end(&r), TUTTI_ERR_IO);
    assert_says(r.err.text, "it belongs to another run or has another key");
    assert_true(run_strangers(&run) >= TCP_TRIES);

    r.key = run.options.key;
    r.id.bytes[15] ^= 1; /* which no frame has: only HELLO does */
    rank_begin(&r);
    assert_int_equal(rank_end(&r), TUTTI_ERR_IO);
    assert_says(r.err.text, "it belongs to another run or has another key");

    r.id = run.options.id;
    r.size = 3;
    rank_begin(&r);
    assert_int_equal(rank_end(&r), TUTTI_ERR_USAGE);
    assert_says(r.err.text, "has no place for worker 0 of 3: its run is of 2; compare TUTTI_SIZE and TUTTI_RANK");
    assert_int_equal(run_missing(&run), 2);
    comes_about(&run);
    run_close(&run);
}

static void a_rank_can_be_claimed_only_once(void **state)
{
    fake_rank first = { .control.fd = -1, .peer.fd = -1 };
    tcp_call c = { .fd = -1 };
    real_rank r;
    run_of run;

    run_open(&run, *state, "127.0.0.1", 2, 0);
    assert_int_equal(tutti_tcp_resolve(run.where, &c.to, NULL), TUTTI_OK);
    fake_hello(&run, 1, &c.hello);
    fake_call(&run, &c);
    rank_start(&r, &run, 1, "tcp", NULL, NULL);
    assert_int_equal(rank_end(&r), TUTTI_ERR_STATE);
    assert_says(r.err.text, "the place of worker 1 is taken already");
    close(c.fd); /* it had not identified itself: the place is free again */
    pause_ms(*state, 200);
    comes_about(&run);
    fake_close(&first);
    run_close(&run);
}

static void incompatible_protocol_versions_are_reported_with_both_ranges(void **state)
{
    tcp_call c = { .fd = -1 };
    const tcp_rules rules = { 0 };
    tutti_error err = { 0 };
    tutti_status status = TUTTI_OK;
    run_of run;

    run_open(&run, *state, "127.0.0.1", 2, 0);
    assert_int_equal(tutti_tcp_resolve(run.where, &c.to, NULL), TUTTI_OK);
    fake_hello(&run, 1, &c.hello);
    c.hello.low = 7;
    c.hello.high = 9;
    for (int i = 0; i < 10000 && status == TUTTI_OK; i++) {
        status = tutti_tcp_call_step(&c, *state, &run.options.key, &rules, &err);
        pause_ms(*state, 1);
    }
    tutti_tcp_hang_up(&c.fd);
    assert_int_equal(status, TUTTI_ERR_USAGE);
    assert_says(err.text, "speaks versions 1 to 1 of the protocol, this worker 7 to 9; install the same version");
    comes_about(&run);
    run_close(&run);
}

/* ---- a rank that has the key and sends nonsense ---- */
typedef enum {
    BAD_MAC,
    AGAIN,
    BAD_KIND,
    BAD_RUN,
    TOO_LONG,
    EXTRA_CREDIT,
    BAD_PAYLOAD,
    BAD_PIECE,
    BAD_STRAIGHT,
    MEET_FRAME,
    FALSE_WORDS,
    HANG_UP,
    EARLIER_EPOCH,
    NO_EPOCH,
    NONSENSES
} nonsense;
static const char *const told[NONSENSES] = {
    [BAD_MAC] = "that it did not write",
    [AGAIN] = "that it did not write",
    [BAD_KIND] = "of kind 99",
    [BAD_RUN] = "came in run",
    [TOO_LONG] = "it may have",
    [EXTRA_CREDIT] = "credits",
    [BAD_PAYLOAD] = "not those that were sent",
    [BAD_PIECE] = "bytes 0 to 2047 of a message are not those that were sent",
    [BAD_STRAIGHT] = "of a message are not those that were sent",
    [MEET_FRAME] = "no meaning between workers",
    [FALSE_WORDS] = "failure report is invalid",
    [HANG_UP] = "without a word",
    [EARLIER_EPOCH] = "a frame of epoch 0 came after one of epoch 1",
    [NO_EPOCH] = "whose epochs are 0 to 2",
};

static void put(fake_rank *f, tcp_frame *frame, const void *payload, nonsense what)
{
    uint8_t bytes[TCP_FRAME_BYTES + 4096];

    tutti_tcp_frame_write(frame, &f->rules, bytes);
    if (what == BAD_RUN)
        bytes[0] ^= 1;
    tutti_tcp_seal(&f->peer.session, bytes);
    if (what == BAD_MAC)
        bytes[TCP_SEAL_OFFSET + 3] ^= 4;
    if (what != TOO_LONG && frame->bytes > 0)
        memcpy(bytes + TCP_FRAME_BYTES, payload, frame->bytes);
    for (int k = 0; k < (what == AGAIN ? 2 : 1); k++)
        say(f->run, f->peer.fd, bytes, TCP_FRAME_BYTES + (what != TOO_LONG ? frame->bytes : 0));
}

/* Rank 0 clears the large message of the other; a piece of it comes with a flipped bit. */
static void send_bad_piece(fake_rank *f)
{
    tcp_frame announce = { .kind = TCP_ANNOUNCE, .tag = 1, .send_id = 77, .header = { .bytes = 8192 } }, frame = { 0 };
    uint8_t piece[4096];
    const uint8_t *payload;
    tutti_status status;

    memset(piece, 5, sizeof piece);
    put(f, &announce, NULL, NONSENSES);
    while (frame.kind != TCP_CLEAR) {
        pause_ms(f->run->rt, 1);
        assert_int_equal(tutti_tcp_line_read(&f->peer, f->run->rt, NULL), TUTTI_OK);
        tutti_tcp_line_next(&f->peer, &frame, &payload, &status, NULL);
    }
    frame = (tcp_frame){
        .kind = TCP_DATA, .bytes = 2048, .message_id = frame.message_id,
        .hash = tutti_tcp_hash_data(f->peer.session.send_seed, piece, 2048),
    };
    piece[1000] ^= 1;
    put(f, &frame, piece, NONSENSES);
}

/* A message of tag 1 with wrong bytes, which goes straight to the receive that waits for it: its
   frame comes first. */
static void send_bad_message(fake_rank *f)
{
    tcp_frame frame = { .kind = TCP_ANNOUNCE, .tag = 1, .bytes = 4096, .header.bytes = 4096, .hash = 12345 };
    const uint8_t payload[4096] = { 0 };

    pause_ms(f->run->rt, 100);
    put(f, &frame, NULL, TOO_LONG);
    pause_ms(f->run->rt, 100);
    say(f->run, f->peer.fd, payload, sizeof payload);
}

static void send_nonsense(fake_rank *f, nonsense what)
{
    tcp_frame frame = { .kind = TCP_BEAT };
    uint8_t payload[300] = { 0 };

    switch (what) {
    case BAD_KIND: frame.kind = 99; break;
    case TOO_LONG: frame = (tcp_frame){ .kind = TCP_ANNOUNCE, .bytes = 100000, .header.bytes = 100000 }; break;
    case EXTRA_CREDIT: frame.credit = 5; break;
    case BAD_PAYLOAD:
        frame = (tcp_frame){ .kind = TCP_ANNOUNCE, .tag = 1, .bytes = 300, .header.bytes = 300, .hash = 12345 };
        break;
    case BAD_PIECE: send_bad_piece(f); return;
    case BAD_STRAIGHT: send_bad_message(f); return;
    case MEET_FRAME: frame.kind = TCP_SHUT; break;
    case FALSE_WORDS:
        frame = (tcp_frame){
            .kind = TCP_DEPART, .message_id = TUTTI_MEET_LOST,
            .hash = tutti_tcp_hash_control(f->peer.session.send_key, "", 0),
        };
        break;
    case EARLIER_EPOCH: /* after one that has gone on, and again the same */
        for (int k = 0; k < 2; k++) {
            f->rules.epoch = 1;
            put(f, &frame, payload, NONSENSES);
        }
        f->rules.epoch = 0;
        break;
    case NO_EPOCH: f->rules.epoch = 3; break;
    case HANG_UP: tutti_tcp_line_close(&f->peer); tutti_tcp_line_close(&f->control); return;
    default: break;
    }
    put(f, &frame, payload, what);
}

static tutti_status receive_from_1(void *t, tutti_runtime *rt, void *arg, tutti_error *err)
{
    tutti_request r = { 0 }, *list = &r;
    static unsigned char room[16384];
    size_t done;
    char why[400];

    (void)arg;
    TUTTI_TRY(tcp()->recv(t, &r, 1, 1, tutti_host(room, sizeof room, TUTTI_U8), err));
    TUTTI_TRY(tcp()->wait_some(t, &list, 1, 1, tutti_now_ns(rt) + 60000 * TCP_MS, &done, err));
    CHECK(r.status == TUTTI_ERR_PEER && r.rank == 1);
    CHECK(tcp()->dead_peer(t, why, sizeof why) == 1);
    return tutti_fail_rank(err, TUTTI_ERR_PEER, 1, "%s", why);
}

static void invalid_frames_from_a_rank_end_its_connection(void **state)
{
    for (nonsense what = 0; what < NONSENSES; what++) {
        fake_rank fake;
        real_rank r;
        run_of run;
        run_open(&run, *state, "unix", 2, 0);
        rank_start(&r, &run, 0, "tcp", receive_from_1, NULL);
        fake_join(&fake, &run, 1);
        send_nonsense(&fake, what);
        assert_int_equal(rank_end(&r), TUTTI_ERR_PEER);
        assert_says(r.err.text, "worker 1 was lost: ");
        assert_says(r.err.text, told[what]);
        assert_null(strstr(r.err.text, "bytes 1 to")); /* the tag is no offset */
        /* the meeting place has seen it too */
        for (int i = 0; what == HANG_UP && i < 10000 && run_state(&run, 1) != TUTTI_MEET_LOST; i++)
            pause_ms(*state, 1);
        assert_int_equal(run_state(&run, 1), what == HANG_UP ? TUTTI_MEET_LOST : TUTTI_MEET_RUNNING);
        fake_close(&fake);
        run_close(&run);
    }
}

/* Control messages about messages that never existed are dropped. */
static void strange_ids_are_dropped(void **state)
{
    static const uint32_t kinds[] = { TCP_CLEAR, TCP_TAKEN, TCP_REWIND, TCP_WITHDRAW };
    static int zero = 0;
    uint8_t piece[100] = { 0 };
    fake_rank fake;
    real_rank r;
    run_of run;

    run_open(&run, *state, "unix", 2, 0);
    rank_start(&r, &run, 0, "tcp", exchange, &zero);
    fake_join(&fake, &run, 1);
    for (uint64_t i = 0; i < 200; i++) {
        tcp_frame frame = {
            .kind = kinds[i % 4], .send_id = i < 100 ? i : i << 32 | i % 3, .message_id = i % 7 << 32 | i,
        };
        put(&fake, &frame, NULL, NONSENSES);
        frame = (tcp_frame){ .kind = TCP_DATA, .bytes = sizeof piece, .message_id = i, .tag = i << 60 };
        put(&fake, &frame, piece, NONSENSES);
    }
    put(&fake, &(tcp_frame){ .kind = TCP_ANNOUNCE, .tag = 1 }, NULL, NONSENSES);
    if (rank_end(&r) != TUTTI_OK)
        fail_msg("%s", r.err.text);
    fake_close(&fake);
    run_close(&run);
}

/* A rank that keeps sending unrequested messages: its credit is bounded, and so is the memory. */
static void exceeding_the_message_credit_ends_the_connection(void **state)
{
    uint8_t payload[300] = { 1 };
    fake_rank fake;
    real_rank r;
    run_of run;

    run_open(&run, *state, "unix", 2, 0);
    rank_start(&r, &run, 0, "tcp", receive_from_1, NULL);
    fake_join(&fake, &run, 1);
    for (uint64_t i = 0; i <= TCP_CREDITS; i++)
        put(&fake,
            &(tcp_frame){ .kind = TCP_ANNOUNCE, .tag = 9, .bytes = sizeof payload, .header.bytes = sizeof payload },
            payload, NONSENSES);
    assert_int_equal(rank_end(&r), TUTTI_ERR_PEER);
    assert_says(r.err.text, "more than 16 messages that no receive had asked for");
    fake_close(&fake);
    run_close(&run);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unauthenticated_connection_state_is_below_four_kilobytes),
        cmocka_unit_test(garbage_is_turned_away_unanswered),
        cmocka_unit_test(slow_unauthenticated_connections_are_closed),
        cmocka_unit_test(a_flood_of_connections_does_not_block_ranks),
        cmocka_unit_test(a_replayed_handshake_is_turned_away),
        cmocka_unit_test(ranks_with_wrong_run_key_or_size_are_rejected),
        cmocka_unit_test(a_rank_can_be_claimed_only_once),
        cmocka_unit_test(incompatible_protocol_versions_are_reported_with_both_ranges),
        cmocka_unit_test(invalid_frames_from_a_rank_end_its_connection),
        cmocka_unit_test(strange_ids_are_dropped),
        cmocka_unit_test(exceeding_the_message_credit_ends_the_connection),
    };

    return together(tests, TUTTI_LENGTH(tests), setup, teardown, argc > 1 ? argv[1] : NULL);
}
