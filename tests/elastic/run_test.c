/* Goal: processes that come, leave, die, stand still and come back train on, in worlds of their
   epochs, with exact sums, and no agreed step is lost. Method: real processes on the loopback
   (trainer.c), which this one kills and stops; each checks its own sums, model and steps. */
#include "trainer.h"
#include "transport/tcp/connect.h"
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PROCESSES = 8 };

typedef struct run {
    tutti_runtime *rt;
    trainer *at;                 /* [PROCESSES], shared */
    int n;                       /* started */
    tutti_meet *meet;            /* of the founders */
    tutti_run_id id;
    tutti_run_key key;
} run;

/* Also serves the founders' meeting place. */
static void moment(run *r)
{
    struct pollfd polled = { .fd = r->meet != NULL ? tutti_meet_fd(r->meet) : -1, .events = POLLIN };

    poll(&polled, 1, 2);
    if (r->meet != NULL)
        tutti_meet_progress(r->meet, NULL);
}

static void look_for_the_wrong(const run *r)
{
    for (int k = 0; k < r->n; k++)
        if (r->at[k].wrong[0] != '\0')
            fail_msg("process %d: %s", k, r->at[k].wrong);
}

#define AWAIT(r, what) \
    do { \
        const int64_t until = tutti_now_ns((r)->rt) + 60000 * TCP_MS; \
        while (!(what)) { \
            look_for_the_wrong(r); \
            if (tutti_now_ns((r)->rt) >= until) { \
                show(r); \
                fail_msg("not within a minute: %s", #what); \
            } \
            moment(r); \
        } \
    } while (0)

static void show(const run *r)
{
    for (int k = 0; k < r->n; k++) {
        const trainer *const t = &r->at[k];
        print_message("process %d: state %d, epoch %llu of %d, step %llu, acts %d, %llu worlds, %llu comebacks\n", k,
                      t->state, (unsigned long long)t->epoch, t->n, (unsigned long long)t->step, t->acts,
                      (unsigned long long)t->worlds, (unsigned long long)t->comebacks);
    }
}

static int start(run *r, int rank, int size, const char *contact)
{
    trainer *const t = &r->at[r->n];

    assert_true(r->n < PROCESSES);
    t->rank = rank;
    t->size = size;
    t->run = r->id;
    t->key = r->key;
    if (r->meet != NULL)
        tutti_meet_where(r->meet, NULL, t->meet, sizeof t->meet);
    if (contact != NULL)
        snprintf(t->contact, sizeof t->contact, "%s", contact);
    trainer_start(t);
    assert_true(t->pid > 0);
    return r->n++;
}

static int join(run *r, int by) { return start(r, 0, 0, r->at[by].address); }

static void open_run(run *r, int founders)
{
    tutti_meet_options o = { .address = "unix", .size = founders };

    memset(r, 0, sizeof *r);
    assert_int_equal(tutti_runtime_open_posix(&r->rt, NULL), TUTTI_OK);
    r->at = mmap(NULL, PROCESSES * sizeof *r->at, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(r->at != MAP_FAILED);
    tutti_run_id_make(r->rt, &r->id);
    tutti_run_key_make(r->rt, &r->key);
    o.id = r->id;
    o.key = r->key;
    assert_int_equal(tutti_meet_open(&r->meet, r->rt, &o, NULL), TUTTI_OK);
    for (int k = 0; k < founders; k++)
        start(r, k, founders, NULL);
}

static bool has_ended(run *r, int k, int *how)
{
    if (r->at[k].pid > 0 && waitpid(r->at[k].pid, how, WNOHANG) == r->at[k].pid)
        r->at[k].pid = 0;
    return r->at[k].pid == 0;
}

/* It ends by itself, with success. */
static void await_end(run *r, int k)
{
    int how = 0;

    AWAIT(r, has_ended(r, k, &how));
    assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 0);
}

static void close_run(run *r)
{
    for (int k = 0; k < r->n; k++)
        r->at[k].quit = true;
    for (int k = 0; k < r->n; k++)
        await_end(r, k);
    tutti_meet_close(r->meet);
    munmap(r->at, PROCESSES * sizeof *r->at);
    tutti_runtime_close(r->rt);
}

static void kill_one(run *r, int k)
{
    assert_int_equal(kill(r->at[k].pid, SIGKILL), 0);
    assert_int_equal(waitpid(r->at[k].pid, NULL, 0), r->at[k].pid);
    r->at[k].pid = 0;
}

/* Are these, and no others, the members of one epoch, and have all of them made step `step`, which
   each knows to be agreed? */
static bool train(const run *r, unsigned who, uint64_t step)
{
    uint64_t epoch = 0;
    int n = 0;

    for (int k = 0; k < r->n; k++)
        n += who >> k & 1;
    for (int k = 0; k < r->n; k++) {
        const trainer *const t = &r->at[k];
        if ((who >> k & 1) == 0)
            continue;
        if (t->state != TUTTI_MEMBER || !t->acts || t->n != n || t->agreed < step || t->step < step ||
            (epoch != 0 && t->epoch != epoch))
            return false;
        epoch = t->epoch;
    }
    return true;
}

static uint64_t steps(const run *r)
{
    uint64_t most = 0;

    for (int k = 0; k < r->n; k++)
        most = r->at[k].step > most ? r->at[k].step : most;
    return most;
}

/* Waits until these are the members, and have made three more steps. */
static void await_training(run *r, unsigned who)
{
    const uint64_t step = steps(r) + 3;

    AWAIT(r, train(r, who, step));
}

static void founders_and_newcomers_train_and_leave(void **state)
{
    run r;

    (void)state;
    open_run(&r, 3);
    await_training(&r, 0x7);
    assert_int_equal(r.at[0].epoch, 1);
    assert_int_equal(join(&r, 2), 3);    /* by an address of any member */
    await_training(&r, 0xf);
    assert_true(r.at[3].fetched > 0);
    r.at[1].leave = true;
    await_end(&r, 1);
    assert_int_equal(r.at[1].state, TUTTI_LEFT);
    await_training(&r, 0xd);
    r.at[0].leave = true;                /* the one that serves the meeting place */
    await_end(&r, 0);
    await_training(&r, 0xc);
    assert_true(r.at[2].worlds >= 4);    /* one an epoch */
    assert_int_equal(r.at[2].comebacks + r.at[3].comebacks, 0);
    close_run(&r);
}

static void the_killed_are_done_without(void **state)
{
    run r;

    (void)state;
    open_run(&r, 5);
    await_training(&r, 0x1f);
    kill_one(&r, 2);
    await_training(&r, 0x1b);
    kill_one(&r, 0);                     /* the meeting place, and half of them: the lowest is left */
    await_training(&r, 0x1a);
    assert_int_equal(join(&r, 4), 5);
    await_training(&r, 0x3a);
    kill_one(&r, 3);
    kill_one(&r, 4);
    await_training(&r, 0x22);
    close_run(&r);
}

static void one_that_stood_still_comes_back_as_a_newcomer(void **state)
{
    run r;

    (void)state;
    open_run(&r, 3);
    await_training(&r, 0x7);
    assert_int_equal(kill(r.at[1].pid, SIGSTOP), 0);
    await_training(&r, 0x5);
    assert_int_equal(kill(r.at[1].pid, SIGCONT), 0);
    AWAIT(&r, r.at[1].comebacks > 0);
    await_training(&r, 0x7);
    assert_true(r.at[1].fetched > 0);
    close_run(&r);
}

static void the_side_without_a_majority_stops(void **state)
{
    uint64_t step, epoch;
    run r;

    (void)state;
    open_run(&r, 3);
    await_training(&r, 0x7);
    epoch = r.at[0].epoch;
    assert_int_equal(kill(r.at[1].pid, SIGSTOP), 0);
    assert_int_equal(kill(r.at[2].pid, SIGSTOP), 0);
    AWAIT(&r, !r.at[0].acts);
    step = r.at[0].step;
    for (int k = 0; k < 300; k++)
        moment(&r);
    assert_true(!r.at[0].acts && r.at[0].step == step && r.at[0].epoch == epoch);
    assert_int_equal(kill(r.at[1].pid, SIGCONT), 0);
    assert_int_equal(kill(r.at[2].pid, SIGCONT), 0);
    await_training(&r, 0x7);
    close_run(&r);
}

static int call(const char *address)
{
    tcp_address a;
    int fd;

    assert_true(tutti_tcp_numbers(address, &a));
    assert_int_equal(tutti_tcp_connect(&a, &fd), 0);
    return fd;
}

static void strangers_are_turned_away(void **state)
{
    struct pollfd polled = { .events = POLLOUT };
    tutti_run_key right;
    int silent, k;
    run r;

    (void)state;
    open_run(&r, 2);
    await_training(&r, 0x3);
    silent = call(r.at[0].address);      /* says nothing */
    polled.fd = call(r.at[0].address);
    assert_int_equal(poll(&polled, 1, 10000), 1);
    for (k = 0; k < 100; k++)
        (void)!send(polled.fd, "GET / HTTP/1.1\r\n", 16, MSG_NOSIGNAL);
    AWAIT(&r, r.at[0].strangers > 0);
    right = r.key;
    r.key.bytes[5] ^= 1;
    k = join(&r, 0);
    AWAIT(&r, strstr(r.at[k].says, "key") != NULL);
    assert_int_equal(r.at[k].epoch, 0);
    r.key = right;
    await_training(&r, 0x3);
    assert_int_equal(r.at[0].comebacks + r.at[1].comebacks, 0);
    tutti_tcp_hang_up(&silent);
    tutti_tcp_hang_up(&polled.fd);
    close_run(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(founders_and_newcomers_train_and_leave),
        cmocka_unit_test(the_killed_are_done_without),
        cmocka_unit_test(one_that_stood_still_comes_back_as_a_newcomer),
        cmocka_unit_test(the_side_without_a_majority_stops),
        cmocka_unit_test(strangers_are_turned_away),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
