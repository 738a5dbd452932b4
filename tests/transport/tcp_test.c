/* tcp_test.c: what is tcp's own: keys, finding the run, the meeting place, silence, memory.
   Strangers are in tcp_strangers_test.c. Linked with --wrap=tutti_alloc. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "sanitized.h"
#include "tcp_help.h"
#include "together.h"

/* ---- the n-th allocation of the library fails ---- */
static _Atomic long allocations, fail_at; /* 0: none */
void *__real_tutti_alloc(size_t count, size_t size);
void *__wrap_tutti_alloc(size_t count, size_t size);
void *__wrap_tutti_alloc(size_t count, size_t size)
{
    return atomic_fetch_add(&allocations, 1) + 1 == atomic_load(&fail_at) ? NULL : __real_tutti_alloc(count, size);
}

/* The thread sanitizer cannot follow a fork of a process with threads. */
enum { FORKS = !SANITIZED_THREAD };

static int setup(void **state) { return tutti_runtime_open_posix((tutti_runtime **)state, NULL) == TUTTI_OK ? 0 : -1; }
static int teardown(void **state) { tutti_runtime_close(*state); return 0; }

/* ---- keys ---- */
static void ids_and_keys_are_read_back_as_written(void **state)
{
    tutti_run_key key, back;
    tutti_run_id id, same;
    char text[TUTTI_RUN_KEY_TEXT];
    tutti_error err = { 0 };

    tutti_run_key_make(*state, &key);
    tutti_run_key_text(&key, text);
    assert_int_equal(strlen(text), 64);
    assert_int_equal(tutti_run_key_parse(&back, text, NULL), TUTTI_OK);
    assert_memory_equal(&key, &back, sizeof key);
    tutti_run_id_make(*state, &id);
    tutti_run_id_text(&id, text);
    assert_int_equal(tutti_run_id_parse(&same, text, NULL), TUTTI_OK);
    assert_memory_equal(&id, &same, sizeof id);
    tutti_run_key_wipe(&key);
    assert_true(sodium_is_zero(key.bytes, sizeof key.bytes));
    assert_int_equal(tutti_run_key_parse(&back, "12ab", &err), TUTTI_ERR_USAGE);
    assert_string_equal(err.text, "the run's key (TUTTI_RUN_KEY) is not 64 hexadecimal digits: it has 4 characters");
    tutti_run_key_text(&back, text);
    text[63] = 'g';
    assert_int_equal(tutti_run_key_parse(&back, text, &err), TUTTI_ERR_USAGE);
    assert_null(strstr(err.text, text)); /* not the key itself */
    assert_int_equal(tutti_run_id_parse(&same, "xyz", &err), TUTTI_ERR_USAGE);
    assert_string_equal(err.text, "'xyz' is no run id: it has 32 hexadecimal digits (TUTTI_RUN_ID)");
}

static void a_key_file_that_others_can_read_is_refused(void **state)
{
    char path[] = "/tmp/tcp-test-XXXXXX", text[TUTTI_RUN_KEY_TEXT];
    tutti_run_key key, back;
    tutti_error err = { 0 };
    const int fd = mkstemp(path);

    tutti_run_key_make(*state, &key);
    tutti_run_key_text(&key, text);
    assert_int_equal(write(fd, text, 64), 64);
    assert_int_equal(tutti_run_key_read(&back, path, &err), TUTTI_OK);
    assert_memory_equal(&key, &back, sizeof key);
    assert_int_equal(write(fd, "\n", 1), 1);
    assert_int_equal(tutti_run_key_read(&back, path, &err), TUTTI_OK);
    fchmod(fd, 0640);
    assert_int_equal(tutti_run_key_read(&back, path, &err), TUTTI_ERR_USAGE);
    assert_says(err.text, "can be read or changed by others (mode 0640");
    assert_says(err.text, "chmod 600");
    fchmod(fd, 0600);
    assert_int_equal(write(fd, "1", 1), 1);
    assert_int_equal(tutti_run_key_read(&back, path, &err), TUTTI_ERR_USAGE);
    assert_says(err.text, "is not 64 hexadecimal digits");
    close(fd);
    unlink(path);
    assert_int_equal(tutti_run_key_read(&back, path, &err), TUTTI_ERR_USAGE);
    assert_says(err.text, "cannot read the run's key from '/tmp/tcp-test-");
    assert_int_equal(tutti_run_key_read(&back, "/tmp", &err), TUTTI_ERR_USAGE);
    assert_says(err.text, "which is no file");
}

/* ---- finding the run ---- */
static tutti_status open_with(tutti_runtime *rt, int rank, int size, const char *spec, char **environment,
                              tutti_error *err)
{
    const tutti_launch launch = { .rank = rank, .size = size, .spec = spec, .environment = environment };
    void *t;
    const tutti_status status = tcp()->open(&t, rt, &launch, err);

    tcp()->close(t);
    return status;
}

static void invalid_meeting_place_settings_are_rejected(void **state)
{
    static char id[] = "TUTTI_RUN_ID=00112233445566778899aabbccddeeff",
                key[] = "TUTTI_RUN_KEY=00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
    static char file[] = "TUTTI_RUN_KEY_FILE=/nowhere/key", place[] = "TUTTI_MEET=127.0.0.1:1",
                name[] = "TUTTI_MEET=no-such-host.invalid:1",
                closed[] = "TUTTI_MEET=unix:closed", bad[] = "TUTTI_MEET=::1:77";
    const struct { char *environment[5]; const char *spec, *says; tutti_status status;
    } cases[] = {
        { { NULL },
          "tcp",
          "worker 1 of 2 does not know where to meet the others: TUTTI_MEET is not set; start the workers with the "
          "launcher",
          TUTTI_ERR_USAGE },
        { { place, NULL }, "tcp", "TUTTI_MEET is set, but not TUTTI_RUN_ID", TUTTI_ERR_USAGE },
        { { place, id, NULL },
          "tcp",
          "TUTTI_MEET is set, but not TUTTI_RUN_KEY or TUTTI_RUN_KEY_FILE",
          TUTTI_ERR_USAGE },
        { { place, id, key, file, NULL },
          "tcp",
          "both TUTTI_RUN_KEY and TUTTI_RUN_KEY_FILE are set; unset one of them",
          TUTTI_ERR_USAGE },
        { { place, id, file, NULL }, "tcp", "cannot read the run's key from '/nowhere/key'", TUTTI_ERR_USAGE },
        { { bad, id, key, NULL },
          "tcp",
          "TUTTI_MEET='::1:77' is no place to meet: write host:port, [IPv6 address]:port or unix:NAME",
          TUTTI_ERR_USAGE },
        { { place, id, key, NULL },
          "tcp(open-timeout=0.3)",
          "worker 1 did not reach the meeting place at 127.0.0.1:1 within 0.3 s (TUTTI_MEET); is the launcher running, "
          "and does it listen there? (Connection refused)",
          TUTTI_ERR_IO },
        { { closed, id, key, NULL }, /* at once, and not after a minute */
          "tcp",
          "worker 1 finds the meeting place at unix:closed (TUTTI_MEET) closed: all workers have met there, or the "
          "launcher has ended. Over tcp a process can open one world only in a run",
          TUTTI_ERR_STATE },
        { { name, id, key, NULL },
          "tcp(open-timeout=0.3)",
          "no address is known for the host 'no-such-host.invalid'",
          TUTTI_ERR_IO },
        { { NULL }, "tcp(streams=99)", "streams", TUTTI_ERR_USAGE },
    };

    for (size_t i = 0; i < TUTTI_LENGTH(cases); i++) {
        tutti_error err = { 0 };
        assert_int_equal(open_with(*state, 1, 2, cases[i].spec, (char **)(uintptr_t)cases[i].environment, &err),
                         cases[i].status);
        assert_says(err.text, cases[i].says);
    }
}

static tutti_status nothing(void *t, tutti_runtime *rt, void *arg, tutti_error *err)
{
    (void)t; (void)rt; (void)arg; (void)err;
    return TUTTI_OK;
}

static void a_rank_may_be_alone(void **state)
{
    tutti_request s = { 0 }, r = { 0 }, *list[2] = { &s, &r };
    const tutti_launch launch = { .size = 1, .spec = "tcp" };
    char out[1000], in[1000];
    tutti_error err = { 0 };
    size_t done;
    void *t;

    memset(out, 7, sizeof out);
    assert_int_equal(tcp()->open(&t, *state, &launch, &err), TUTTI_OK);
    assert_int_equal(tcp()->send(t, &s, 0, 1, NULL, tutti_host(out, sizeof out, TUTTI_U8), &err), TUTTI_OK);
    assert_int_equal(tcp()->recv(t, &r, 0, 1, tutti_host(in, sizeof in, TUTTI_U8), &err), TUTTI_OK);
    assert_int_equal(tcp()->wait_some(t, list, 2, 2, TUTTI_FOREVER, &done, &err), TUTTI_OK);
    assert_memory_equal(in, out, sizeof in);
    assert_int_equal(tcp()->dead_peer(t, NULL, 0), -1);
    tcp()->close(t);
}

/* As torchrun starts them: a port that all know, and only rank 0 to serve it. */
static void rank_0_may_serve_the_meeting_place(void **state)
{
    char meet[64], at_0[] = "TUTTI_MEET_AT_RANK_0=1",
                   key[] = "TUTTI_RUN_KEY=00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff",
                   id[] = "TUTTI_RUN_ID=00112233445566778899aabbccddeeff";
    char *environment[] = { meet, at_0, key, id, NULL };
    tcp_address a;
    int fd = -1, how;
    pid_t pids[3];

    if (!FORKS)
        skip();
    /* a port that is free now, below those (from 32768 on) that the
       kernel gives to others meanwhile */
    for (int k = 0; fd < 0 && k < 1000; k++) {
        assert_int_equal(tutti_tcp_resolve_host("127.0.0.1", 15000 + (getpid() * 7 + k) % 17000, true, &a, NULL),
                         TUTTI_OK);
        tutti_tcp_listen(&a, &fd);
    }
    assert_true(fd >= 0);
    snprintf(meet, sizeof meet, "TUTTI_MEET=127.0.0.1:%d", tutti_tcp_address_port(&a));
    close(fd);
    for (int r = 2; r >= 0; r--) { /* rank 0 comes last */
        pids[r] = fork();
        if (pids[r] == 0) {
            const tutti_launch launch = { .rank = r, .size = 3, .spec = "tcp", .environment = environment };
            tutti_request s = { 0 }, q = { 0 }, *list[2] = { &s, &q };
            tutti_error err = { 0 };
            size_t done;
            void *t;
            tutti_status status = tcp()->open(&t, *state, &launch, &err);
            if (status == TUTTI_OK)
                status = tcp()->send(t, &s, (r + 1) % 3, 1, NULL, tutti_nothing(), &err);
            if (status == TUTTI_OK)
                status = tcp()->recv(t, &q, (r + 2) % 3, 1, tutti_nothing(), &err);
            if (status == TUTTI_OK)
                status = tcp()->wait_some(t, list, 2, 2, tutti_now_ns(*state) + 60000 * TCP_MS, &done, &err);
            if (r > 0)
                pause_ms(*state, 100 * r); /* rank 0 leaves first: no harm */
            tcp()->close(t);
            if (status != TUTTI_OK || q.status != TUTTI_OK)
                fprintf(stderr, "rank %d: %s\n", r, err.text);
            _exit(status == TUTTI_OK && q.status == TUTTI_OK ? 0 : 1);
        }
        pause_ms(*state, 50);
    }
    for (int r = 0; r < 3; r++) {
        assert_int_equal(waitpid(pids[r], &how, 0), pids[r]);
        assert_int_equal(how, 0);
    }
}

/* ---- the meeting place ---- */
static void the_meeting_place_tracks_present_and_missing_ranks(void **state)
{
    real_rank ranks[3];
    int missing[3], events = 0;
    run_of run;

    run_open(&run, *state, "unix", 3, 0);
    assert_int_equal(run_missing(&run), 3);
    rank_start(&ranks[2], &run, 2, "tcp", nothing, NULL);
    while (run_missing(&run) != 2)
        pause_ms(*state, 1);
    tutti_lock(run.lock);
    assert_int_equal(tutti_meet_missing(run.meet, missing, 3), 2);
    assert_int_equal(missing[0], 0);
    assert_int_equal(missing[1], 1);
    assert_int_equal(tutti_meet_event(run.meet), 2);
    assert_int_equal(tutti_meet_event(run.meet), -1);
    assert_false(tutti_meet_complete(run.meet));
    assert_int_equal(tutti_meet_host_of(run.meet, 2), 0);
    assert_int_equal(tutti_meet_host_of(run.meet, 1), -1);
    assert_int_equal(tutti_meet_rank_of(run.meet, 2)->pid, getpid());
    assert_says(tutti_meet_rank_of(run.meet, 2)->address, "unix:");
    tutti_unlock(run.lock);
    for (int r = 0; r < 2; r++)
        rank_start(&ranks[r], &run, r, "tcp", nothing, NULL);
    for (int r = 0; r < 3; r++)
        assert_int_equal(rank_end(&ranks[r]), TUTTI_OK);
    for (int r = 0; r < 3; r++)
        while (run_state(&run, r) != TUTTI_MEET_LEFT)
            pause_ms(*state, 1);
    tutti_lock(run.lock);
    assert_true(tutti_meet_complete(run.meet));
    assert_int_equal(tutti_meet_culprit(run.meet), -1);
    while (tutti_meet_event(run.meet) >= 0)
        events++;
    assert_int_equal(events, 5); /* two more came, three left */
    tutti_unlock(run.lock);
    run_close(&run);
}

static void a_meeting_place_timeout_names_the_missing_ranks(void **state)
{
    real_rank r;
    run_of run;

    run_open(&run, *state, "unix", 4, 400 * TCP_MS);
    rank_start(&r, &run, 1, "tcp", nothing, NULL);
    assert_int_equal(rank_end(&r), TUTTI_ERR_PEER);
    assert_says(
        r.err.text,
        "the run did not come about: 3 of 4 workers had not come to the meeting place when its time was up: 0, 2, 3;");
    run_close(&run);
}

static void unavailable_listen_addresses_are_rejected(void **state)
{
    tutti_meet_options o = { .address = "127.0.0.1", .size = 2 };
    tutti_meet *first, *second;
    tutti_error err = { 0 };

    assert_int_equal(tutti_meet_open(&first, *state, &o, &err), TUTTI_OK);
    o.port = tutti_meet_port(first);
    assert_true(o.port > 0);
    assert_int_equal(tutti_meet_open(&second, *state, &o, &err), TUTTI_ERR_IO);
    assert_null(second);
    assert_says(
        err.text,
        "another program has the port; take another, or 0 to leave the choice to the kernel (Address already in use)");
    tutti_meet_close(first);
    o.port = 0;
    o.address = "192.0.2.77"; /* an address of no host */
    assert_int_equal(tutti_meet_open(&second, *state, &o, &err), TUTTI_ERR_IO);
    assert_says(err.text, "cannot meet at 192.0.2.77, port 0; give an address of this host");
    o.size = 0;
    assert_int_equal(tutti_meet_open(&second, *state, &o, &err), TUTTI_ERR_USAGE);
    tutti_meet_close(NULL);
}

/* Forty runs at once on one host: no port is asked for twice. */
static void many_runs_can_start_concurrently(void **state)
{
    enum { RUNS = 20 };
    static run_of runs[RUNS];
    static real_rank ranks[RUNS][2];

    for (int k = 0; k < RUNS; k++)
        run_open(&runs[k], *state, k % 2 == 0 ? "127.0.0.1" : "unix", 2, 0);
    for (int k = 0; k < RUNS; k++)
        for (int r = 0; r < 2; r++)
            rank_start(&ranks[k][r], &runs[k], r, k % 2 == 0 ? "tcp(local=tcp)" : "tcp", nothing, NULL);
    for (int k = 0; k < RUNS; k++) {
        for (int r = 0; r < 2; r++)
            if (rank_end(&ranks[k][r]) != TUTTI_OK)
                fail_msg("%s", ranks[k][r].err.text);
        run_close(&runs[k]);
    }
}

/* ---- silence ---- */
typedef struct silence { _Atomic int ready; _Atomic int64_t stopped_ns; } silence;

static tutti_status wait_for_word(void *t, tutti_runtime *rt, void *arg, tutti_error *err)
{
    tutti_request r = { 0 }, *list = &r;
    silence *s = arg;
    size_t done;
    char why[400];

    atomic_fetch_add(&s->ready, 1);
    TUTTI_TRY(tcp()->recv(t, &r, 2, 1, tutti_nothing(), err));
    TUTTI_TRY(tcp()->wait_some(t, &list, 1, 1, tutti_now_ns(rt) + 60000 * TCP_MS, &done, err));
    CHECK(r.status == TUTTI_ERR_PEER && r.rank == 2);
    CHECK(tutti_now_ns(rt) - atomic_load(&s->stopped_ns) < 30000 * TCP_MS); /* ten times the promise */
    CHECK(tcp()->dead_peer(t, why, sizeof why) == 2 && strstr(why, "silent for") != NULL);
    return TUTTI_OK;
}

/* A stopped process answers nothing while its kernel still acknowledges: only the missing
   heartbeats show it. One that computes for long is not silent. */
static void a_stopped_rank_is_lost_and_a_busy_one_is_not(void **state)
{
    silence *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    tutti_meet_options options = { .address = "unix", .size = 3 };
    tutti_meet *meet;
    char where[80], meet_text[120], id[TUTTI_RUN_ID_TEXT], key[TUTTI_RUN_KEY_TEXT], id_text[80], key_text[120];
    char *environment[] = { meet_text, id_text, key_text, NULL };
    int64_t until;
    bool stopped = false;
    pid_t pids[3];
    int left = 2, how;

    if (!FORKS)
        skip();
    tutti_run_id_make(*state, &options.id);
    tutti_run_key_make(*state, &options.key);
    assert_int_equal(tutti_meet_open(&meet, *state, &options, NULL), TUTTI_OK);
    tutti_meet_where(meet, NULL, where, sizeof where);
    tutti_run_id_text(&options.id, id);
    tutti_run_key_text(&options.key, key);
    snprintf(meet_text, sizeof meet_text, "TUTTI_MEET=%s", where);
    snprintf(id_text, sizeof id_text, "TUTTI_RUN_ID=%s", id);
    snprintf(key_text, sizeof key_text, "TUTTI_RUN_KEY=%s", key);
    for (int r = 0; r < 3; r++) {
        pids[r] = fork();
        if (pids[r] == 0) {
            const tutti_launch launch = { .rank = r, .size = 3, .spec = "tcp", .environment = environment };
            tutti_error err = { 0 };
            tutti_status status;
            void *t;
            status = tcp()->open(&t, *state, &launch, &err);
            if (status == TUTTI_OK && r == 2) {
                atomic_fetch_add(&shared->ready, 1);
                for (volatile unsigned long k = 0;; k++) /* computes for ever, and waits for nothing */
                    continue;
            }
            if (status == TUTTI_OK)
                status = wait_for_word(t, *state, shared, &err);
            if (status != TUTTI_OK)
                fprintf(stderr, "rank %d: %s\n", r, err.text);
            tcp()->close(t);
            _exit(status == TUTTI_OK ? 0 : 1);
        }
    }
    until = tutti_now_ns(*state) + 100000 * TCP_MS;
    while (left > 0 && tutti_now_ns(*state) < until) {
        struct pollfd polled = { .fd = tutti_meet_fd(meet), .events = POLLIN };
        static int64_t busy_since;
        poll(&polled, 1, 5);
        tutti_meet_progress(meet, NULL);
        if (atomic_load(&shared->ready) == 3 && busy_since == 0)
            busy_since = tutti_now_ns(*state);
        /* longer than a silence: and all are there */
        if (!stopped && busy_since != 0 && tutti_now_ns(*state) - busy_since > 4500 * TCP_MS) {
            for (int r = 0; r < 3; r++)
                assert_int_equal(tutti_meet_rank_of(meet, r)->state, TUTTI_MEET_RUNNING);
            atomic_store(&shared->stopped_ns, tutti_now_ns(*state));
            kill(pids[2], SIGSTOP);
            stopped = true;
        }
        for (int r = 0; r < 2; r++) {
            if (pids[r] > 0 && waitpid(pids[r], &how, WNOHANG) == pids[r]) {
                assert_int_equal(how, 0);
                pids[r] = 0;
                left--;
            }
        }
    }
    assert_int_equal(left, 0);
    until = tutti_now_ns(*state) + 30000 * TCP_MS;
    while (tutti_meet_rank_of(meet, 2)->state != TUTTI_MEET_LOST && tutti_now_ns(*state) < until) {
        pause_ms(*state, 5);
        tutti_meet_progress(meet, NULL);
    }
    assert_int_equal(tutti_meet_rank_of(meet, 2)->state, TUTTI_MEET_LOST);
    assert_says(tutti_meet_rank_of(meet, 2)->reason, "silent for");
    kill(pids[2], SIGKILL);
    waitpid(pids[2], &how, 0);
    tutti_meet_close(meet);
    munmap(shared, sizeof *shared);
}

/* ---- memory ---- */
enum { MOST = 300000, SLOTS = 4 };
typedef struct { _Atomic long before, after; int rounds; _Atomic int at; } counts;

static tutti_status one_round(void *t, const tutti_launch *launch, tutti_runtime *rt, int n, unsigned char *out,
                              unsigned char *in, tutti_error *err)
{
    static const size_t sizes[SLOTS] = { 0, 200, 9000, MOST };
    tutti_request requests[2 * SLOTS], *list[2 * SLOTS];
    const int to = (launch->rank + 1) % n, from = (launch->rank + n - 1) % n;
    tutti_status status = TUTTI_OK;
    size_t done;

    memset(requests, 0, sizeof requests);
    for (size_t i = 0; i < SLOTS && status == TUTTI_OK; i++) {
        list[i] = &requests[i];
        status = tcp()->send(t, list[i], to, i, NULL, tutti_host(out, sizes[i], TUTTI_U8), err);
    }
    for (size_t i = 0; i < SLOTS && status == TUTTI_OK; i++) {
        list[SLOTS + i] = &requests[SLOTS + i];
        status = tcp()->recv(t, list[SLOTS + i], from, i, tutti_host(in, sizes[i], TUTTI_U8), err);
    }
    if (status == TUTTI_OK)
        status = tcp()->wait_some(t, list, 2 * SLOTS, 2 * SLOTS, tutti_now_ns(rt) + 60000 * TCP_MS, &done, err);
    for (size_t i = 0; i < 2 * SLOTS; i++) {
        if (status == TUTTI_OK && requests[i].status != TUTTI_OK)
            status = tutti_fail_rank(err, requests[i].status, requests[i].rank,
                                     "request %zu ended because of worker %d", i, requests[i].rank);
        tcp()->cancel(t, &requests[i]);
    }
    return status;
}

static tutti_status count_allocations(const tutti_launch *launch, void *arg, tutti_error *err)
{
    unsigned char *out = calloc(1, MOST), *in = malloc(MOST);
    counts *c = arg;
    tutti_runtime *rt;
    tutti_status status;
    void *t = NULL;

    status = tutti_runtime_open_posix(&rt, err);
    if (status == TUTTI_OK)
        status = tcp()->open(&t, rt, launch, err);
    for (int k = 0; k < 3 + c->rounds && status == TUTTI_OK; k++) {
        if (k == 3 && launch->rank == 0)
            c->before = atomic_load(&allocations);
        status = one_round(t, launch, rt, launch->size, out, in, err);
        if (k == c->rounds && launch->rank == 0)
            c->after = atomic_load(&allocations);
    }
    if (status != TUTTI_OK && t != NULL)
        tcp()->failure_report(t, err);
    if (t != NULL)
        tcp()->close(t);
    tutti_runtime_close(rt);
    free(in);
    free(out);
    return status;
}

static void nothing_is_allocated_in_a_steady_state(void **state)
{
    for (int n = 1; n <= 5; n += 2) {
        const tutti_launch launch = { .size = n, .spec = "tcp" };
        counts c = { .rounds = 60 };
        tutti_error err = { 0 };
        if (tcp()->run(*state, &launch, count_allocations, &c, &err) != TUTTI_OK)
            fail_msg("%s", err.text);
        assert_int_equal(c.before, c.after);
        assert_true(c.before > 0);
    }
}

/* ---- wake-ups ---- */
enum { SLEEPERS = 5, TURNS = 2000 };
typedef struct { void *t; tutti_runtime *rt; int tag; long woken; tutti_status status; } sleeper;

/* Waits for the one message that comes after all the others. */
static tutti_status sleeps(void *arg, tutti_error *err)
{
    sleeper *s = arg;
    tutti_request request = { 0 }, *list[1] = { &request };
    struct rusage before, after;
    size_t done;

    getrusage(RUSAGE_THREAD, &before);
    s->status = tcp()->recv(s->t, &request, 1, (uint64_t)s->tag, tutti_host(NULL, 0, TUTTI_U8), err);
    if (s->status == TUTTI_OK)
        s->status = tcp()->wait_some(s->t, list, 1, 1, tutti_now_ns(s->rt) + 60000 * TCP_MS, &done, err);
    tcp()->cancel(s->t, &request);
    getrusage(RUSAGE_THREAD, &after);
    s->woken = after.ru_nvcsw - before.ru_nvcsw;
    return s->status;
}

static tutti_status turns(void *t, tutti_runtime *rt, int rank, tutti_error *err)
{
    for (int k = 0; k < TURNS + SLEEPERS * rank; k++) {
        const bool sends = k >= TURNS || k % 2 == rank;
        tutti_request request = { 0 }, *list[1] = { &request };
        const uint64_t tag = k < TURNS ? 0 : (uint64_t)(k - TURNS + 1);
        tutti_status status = sends ? tcp()->send(t, &request, 1 - rank, tag, NULL, tutti_host(NULL, 0, TUTTI_U8), err)
                                    : tcp()->recv(t, &request, 1 - rank, tag, tutti_host(NULL, 0, TUTTI_U8), err);
        if (status == TUTTI_OK)
            status = tcp()->wait_some(t, list, 1, 1, tutti_now_ns(rt) + 60000 * TCP_MS, NULL, err);
        tcp()->cancel(t, &request);
        TUTTI_TRY(status);
    }
    return TUTTI_OK;
}

/* Rank 0 with threads that wait while another one talks. */
static tutti_status talks_while_others_sleep(const tutti_launch *launch, void *arg, tutti_error *err)
{
    sleeper *sleepers = arg;
    tutti_thread *threads[SLEEPERS] = { NULL };
    tutti_runtime *rt;
    tutti_status status;
    void *t = NULL;

    status = tutti_runtime_open_posix(&rt, err);
    if (status == TUTTI_OK)
        status = tcp()->open(&t, rt, launch, err);
    for (int i = 0; i < SLEEPERS && status == TUTTI_OK && launch->rank == 0; i++) {
        sleepers[i] = (sleeper){ .t = t, .rt = rt, .tag = i + 1 };
        status = tutti_thread_open(&threads[i], rt, "sleeper", sleeps, &sleepers[i], err);
    }
    if (status == TUTTI_OK)
        status = turns(t, rt, launch->rank, err);
    if (status != TUTTI_OK && t != NULL)
        tcp()->failure_report(t, err);
    for (int i = 0; i < SLEEPERS; i++)
        if (threads[i] != NULL)
            tutti_thread_join(threads[i], NULL);
    if (t != NULL)
        tcp()->close(t);
    tutti_runtime_close(rt);
    return status;
}

/* Of the threads that wait one polls, and wakes for every message. The others sleep on. */
static void a_thread_that_waits_is_not_woken_for_others_messages(void **state)
{
    const tutti_launch launch = { .size = 2, .spec = "tcp(spin=0)" };
    sleeper sleepers[SLEEPERS];
    tutti_error err = { 0 };
    int busy = 0;

    if (tcp()->run(*state, &launch, talks_while_others_sleep, sleepers, &err) != TUTTI_OK)
        fail_msg("%s", err.text);
    for (int i = 0; i < SLEEPERS; i++) {
        assert_int_equal(sleepers[i].status, TUTTI_OK);
        busy += sleepers[i].woken > TURNS / 20;
    }
    assert_true(busy <= 1);
}

/* ---- a slow line ---- */
enum { LONG_ONE = 4 << 20, SHORT_ONE = 128 << 10, LINE_RATE = 4 << 20 }; /* the long one takes a second */
typedef struct { bool over[2]; } crossing;

/* Rank 0 sends a long message; rank 1 begins one of its own when that is well under way. Neither
   is sent before the other side has asked for it, in a control message that travels in the
   direction of the other message. */
static tutti_status crosses(void *t, int rank, tutti_runtime *rt, crossing *c, tutti_error *err)
{
    const unsigned rate = LINE_RATE;
    const size_t mine = rank == 0 ? LONG_ONE : SHORT_ONE, theirs = LONG_ONE + SHORT_ONE - mine;
    unsigned char *memory = tutti_alloc(LONG_ONE + SHORT_ONE, 1);
    tutti_request out = { 0 }, in = { 0 }, *const came[1] = { &in }, *const both[2] = { &in, &out };
    tutti_status status = TUTTI_OK;
    size_t done;

    CHECK(memory != NULL);
    CHECK(setsockopt(((tcp_endpoint *)t)->peers[1 - rank].links[0].fd, SOL_SOCKET, SO_MAX_PACING_RATE, &rate,
                     sizeof rate) == 0);
    status = tcp()->recv(t, &in, 1 - rank, 1, tutti_host(memory + mine, theirs, TUTTI_U8), err);
    if (status == TUTTI_OK && rank == 1 && /* it makes the progress meanwhile */
        tcp()->wait_some(t, came, 1, 1, tutti_now_ns(rt) + 250 * TCP_MS, &done, NULL) != TUTTI_TIMEOUT)
        status = tutti_fail(err, TUTTI_ERR_STATE, 0, "the long message was not long");
    if (status == TUTTI_OK)
        status = tcp()->send(t, &out, 1 - rank, 1, NULL, tutti_host(memory, mine, TUTTI_U8), err);
    if (status == TUTTI_OK)
        status = tcp()->wait_some(t, came, 1, 1, tutti_now_ns(rt) + 60000 * TCP_MS, &done, err);
    c->over[rank] = tutti_request_done(&out);
    if (status == TUTTI_OK)
        status = tcp()->wait_some(t, both, 2, 2, tutti_now_ns(rt) + 60000 * TCP_MS, &done, err);
    tcp()->cancel(t, &in);
    tcp()->cancel(t, &out);
    tutti_free(memory);
    return status;
}

static tutti_status crosses_as_rank(const tutti_launch *launch, void *arg, tutti_error *err)
{
    tutti_runtime *rt;
    tutti_status status;
    void *t = NULL;

    status = tutti_runtime_open_posix(&rt, err);
    if (status == TUTTI_OK)
        status = tcp()->open(&t, rt, launch, err);
    if (status == TUTTI_OK)
        status = crosses(t, launch->rank, rt, arg, err);
    if (status != TUTTI_OK && t != NULL)
        tcp()->failure_report(t, err);
    if (t != NULL)
        tcp()->close(t);
    tutti_runtime_close(rt);
    return status;
}

/* Else a line that can be busy both ways would be so one way at a time. */
static void sending_does_not_wait_for_an_incoming_message(void **state)
{
    const tutti_launch launch = { .size = 2, .spec = "tcp(local=tcp)" };
    crossing c = { 0 };
    tutti_error err = { 0 };

    if (tcp()->run(*state, &launch, crosses_as_rank, &c, &err) != TUTTI_OK)
        fail_msg("%s", err.text);
    assert_false(c.over[0]);
    assert_true(c.over[1]);
}

/* Method: fail the 1st, 2nd, 3rd ... allocation until the run needs no more. No hang, no leak
   (the address sanitizer sees), and a status that fits what happened. */
static void any_allocation_may_fail(void **state)
{
    long k;
    tutti_status status = TUTTI_ERR_MEMORY;

    for (k = 1; k < 300; k++) {
        const tutti_launch launch = { .size = 3, .spec = "tcp" };
        counts c = { .rounds = 0 };
        tutti_error err = { 0 };
        atomic_store(&allocations, 0);
        atomic_store(&fail_at, k);
        status = tcp()->run(*state, &launch, count_allocations, &c, &err);
        atomic_store(&fail_at, 0);
        if (status == TUTTI_OK && atomic_load(&allocations) < k)
            break;
        /* IO: the meeting place had none for its end of the line */
        if (status != TUTTI_OK && status != TUTTI_ERR_MEMORY && status != TUTTI_ERR_PEER && status != TUTTI_ERR_IO)
            fail_msg("allocation %ld: %s: %s", k, tutti_status_name(status), err.text);
    }
    assert_int_equal(status, TUTTI_OK);
    assert_true(k > 30);
}

static tutti_status come_unless_one(const tutti_launch *launch, void *arg, tutti_error *err)
{
    tutti_runtime *rt;
    tutti_status status;
    void *t;

    if (launch->rank == 1)
        return *(tutti_status *)arg; /* never opens, and reports nothing */
    TUTTI_TRY(tutti_runtime_open_posix(&rt, err));
    status = tcp()->open(&t, rt, launch, err);
    if (status == TUTTI_OK)
        tcp()->close(t);
    tutti_runtime_close(rt);
    return status;
}

static void a_rank_that_never_joins_does_not_hang_others(void **state)
{
    const tutti_launch launch = { .size = 3, .spec = "tcp" };
    tutti_status says = TUTTI_ERR_USAGE;
    tutti_error err = { 0 };

    assert_int_equal(tcp()->run(*state, &launch, come_unless_one, &says, &err), TUTTI_ERR_USAGE);
    assert_string_equal(err.text, "worker 1 ended with 'usage' and no sentence");
    says = TUTTI_OK;
    assert_int_equal(tcp()->run(*state, &launch, come_unless_one, &says, &err), TUTTI_ERR_PEER);
    assert_string_equal(err.text, "worker 1 has left the run");
    assert_int_equal(err.rank, 1);
}

/* ---- which ranks are missing, while open waits ---- */
typedef struct heard {
    int n;
    char line[4][480];
} heard;

static void hear_line(void *user, const char *line)
{
    heard *h = user;

    if (h->n < (int)TUTTI_LENGTH(h->line))
        snprintf(h->line[h->n], sizeof *h->line, "%s", line);
    h->n++;
}

static void missing_ranks_are_reported_without_a_launcher(void **state)
{
    static char at_0[] = "TUTTI_MEET_AT_RANK_0=1",
                key[] = "TUTTI_RUN_KEY=00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff",
                id[] = "TUTTI_RUN_ID=00112233445566778899aabbccddeeff";
    char meet[80], place[64], host[64], wanted[240];
    char *environment[] = { meet, at_0, key, id, NULL };
    tcp_address a;
    int fd = -1;

    for (int k = 0; fd < 0 && k < 1000; k++) {
        assert_int_equal(tutti_tcp_resolve_host("127.0.0.1", 15000 + (getpid() * 7 + k) % 17000, true, &a, NULL),
                         TUTTI_OK);
        tutti_tcp_listen(&a, &fd);
    }
    assert_true(fd >= 0);
    tutti_tcp_address_text(&a, place, sizeof place);
    snprintf(meet, sizeof meet, "TUTTI_MEET=%s", place);
    close(fd);
    gethostname(host, sizeof host);
    for (int rank = 1; rank >= 0; rank--) { /* the one that should call rank 0, then the one that should be called */
        heard h = { .n = 0 };
        const tutti_launch launch = {
            .rank = rank, .size = 4, .spec = "tcp(open-timeout=3)", .environment = environment, .waits = hear_line,
            .user = &h,
        };
        tutti_error err = { 0 };
        const int64_t begin = tutti_now_ns(*state);
        void *t;
        assert_int_equal(tcp()->open(&t, *state, &launch, &err), rank == 0 ? TUTTI_ERR_PEER : TUTTI_ERR_IO);
        assert_true(tutti_now_ns(*state) - begin >= 2900 * TCP_MS);
        assert_int_equal(h.n, 1); /* after 2 s, and not again within 3 */
        if (rank == 0)
            snprintf(wanted, sizeof wanted,
                     "waiting for ranks that have not come to the meeting place: 1 to 3 of 4; here are: 0 on %s", host);
        else
            snprintf(wanted, sizeof wanted,
                     "worker 1 waits for worker 0, which is to serve the meeting place at %s: Connection refused",
                     place);
        assert_string_equal(h.line[0], wanted);
    }
}

/* ---- open files ---- */
static void open_file_limit_errors_state_the_required_number(void **state)
{
    tutti_meet_options options = { .address = "unix", .size = 200 };
    int how;
    pid_t pid;

    if (!FORKS)
        skip();
    tutti_run_id_make(*state, &options.id);
    tutti_run_key_make(*state, &options.key);
    pid = fork();
    if (pid == 0) {
        struct rlimit limit = { .rlim_cur = 60, .rlim_max = 2000 };
        tutti_error err = { 0 };
        unsigned long long need = 0, hard = 0;
        tutti_meet *meet;
        const char *at;
        bool well = setrlimit(RLIMIT_NOFILE, &limit) == 0 &&
                    tutti_meet_open(&meet, *state, &options, &err) == TUTTI_OK; /* the soft limit gives way */
        tutti_meet_close(meet);
        well = well && getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur > 400;
        limit.rlim_cur = limit.rlim_max = 300;
        well = well && setrlimit(RLIMIT_NOFILE, &limit) == 0 &&
               tutti_meet_open(&meet, *state, &options, &err) == TUTTI_ERR_IO;
        at = well ? strstr(err.text, "a process of a run of 200 workers over tcp needs ") : NULL;
        well = at != NULL && sscanf(at,
                                    "a process of a run of 200 workers over tcp needs %llu open files, and the hard "
                                    "limit of this one is %llu; raise it (ulimit -Hn",
                                    &need, &hard) == 2;
        well = well && need > 400 && need < 700 && hard == 300;
        if (well) { /* and by a worker, before it looks for the others */
            static char place[] = "TUTTI_MEET=127.0.0.1:1", at_0[] = "TUTTI_MEET_AT_RANK_0=1";
            char *environment[] = { place, at_0, NULL };
            well = open_with(*state, 1, 400, "tcp", environment, &err) == TUTTI_ERR_IO &&
                   strstr(err.text, "a run of 400 workers over tcp needs ") != NULL;
        }
        if (!well)
            fprintf(stderr, "%s\n", err.text);
        _exit(well ? 0 : 1);
    }
    waitpid(pid, &how, 0);
    assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_and_keys_are_read_back_as_written),
        cmocka_unit_test(a_key_file_that_others_can_read_is_refused),
        cmocka_unit_test(invalid_meeting_place_settings_are_rejected),
        cmocka_unit_test(a_rank_may_be_alone),
        cmocka_unit_test(rank_0_may_serve_the_meeting_place),
        cmocka_unit_test(a_stopped_rank_is_lost_and_a_busy_one_is_not),
        cmocka_unit_test(the_meeting_place_tracks_present_and_missing_ranks),
        cmocka_unit_test(a_meeting_place_timeout_names_the_missing_ranks),
        cmocka_unit_test(unavailable_listen_addresses_are_rejected),
        cmocka_unit_test(many_runs_can_start_concurrently),
        cmocka_unit_test(nothing_is_allocated_in_a_steady_state),
        cmocka_unit_test(a_thread_that_waits_is_not_woken_for_others_messages),
        cmocka_unit_test(sending_does_not_wait_for_an_incoming_message),
        cmocka_unit_test(any_allocation_may_fail),
        cmocka_unit_test(a_rank_that_never_joins_does_not_hang_others),
        cmocka_unit_test(missing_ranks_are_reported_without_a_launcher),
        cmocka_unit_test(open_file_limit_errors_state_the_required_number),
    };

    return together(tests, TUTTI_LENGTH(tests), setup, teardown, argc > 1 ? argv[1] : NULL);
}
