/* Goal: processes that come, leave, die, stand still and come back train on, in worlds of their
   epochs, with exact sums, and no agreed step is lost. Those that fail leave to the others what
   they need, and keep them from waiting in vain. Method: real processes on the loopback (trainer.c,
   follower.c), which this one kills and stops; each checks its own sums, model and steps. */
#include "trainer.h"
#include "transport/tcp/connect.h"
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
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
    trainer as;                  /* what all processes have from now on */
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
        print_message("process %d: state %d, epoch %llu of %d, step %llu, acts %d, %llu worlds, %llu comebacks; "
                      "over %d, status %d: %s\n",
                      k, t->state, (unsigned long long)t->epoch, t->n, (unsigned long long)t->step, t->acts,
                      (unsigned long long)t->worlds, (unsigned long long)t->comebacks, t->over, t->status, t->says);
    }
}

static int start(run *r, int rank, int size, const char *contact)
{
    trainer *const t = &r->at[r->n];

    assert_true(r->n < PROCESSES);
    *t = r->as;
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

/* as: what its processes have. */
static void open_run_as(run *r, int founders, const trainer *as)
{
    tutti_meet_options o = { .address = "unix", .size = founders };

    memset(r, 0, sizeof *r);
    r->as = *as;
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

static void open_run(run *r, int founders) { open_run_as(r, founders, &(trainer){ .size = 0 }); }

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

/* ---- followers, and failures ---- */

/* So long that one which fails mostly ends before another that stands still is taken for lost. */
enum { LATE_MS = 5000 };
static const trainer follower = { .follows = true, .dead_ns = LATE_MS * TCP_MS };

static void stop(const run *r, int k) { assert_int_equal(kill(r->at[k].pid, SIGSTOP), 0); }
static void go_on(const run *r, int k) { assert_int_equal(kill(r->at[k].pid, SIGCONT), 0); }

static void wait_a_while(run *r, int ms)
{
    const int64_t until = tutti_now_ns(r->rt) + ms * TCP_MS;

    while (tutti_now_ns(r->rt) < until)
        moment(r);
}

static void fail_one(run *r, int k)
{
    r->at[k].fail = true;
    await_end(r, k);
}

/* One has failed and the two stand still, so the fourth has no majority. With them it has. On a
   slow machine the two may be taken for lost before the first has failed. */
static void those_that_stand_still_count_when_one_fails(void **state)
{
    run r;

    (void)state;
    open_run_as(&r, 4, &follower);
    await_training(&r, 0xf);
    stop(&r, 1);
    stop(&r, 2);
    fail_one(&r, 0);
    AWAIT(&r, strstr(r.at[3].says, " of 4 workers answer") != NULL);
    wait_a_while(&r, 300);
    if (r.at[3].over)
        fail_msg("it has ended: %s", r.at[3].says);
    go_on(&r, 1);
    go_on(&r, 2);
    await_training(&r, 0xe);
    close_run(&r);
}

/* The first two have failed: the other half is no majority without them. */
static void those_that_are_left_end_when_too_many_fail(void **state)
{
    run r;

    (void)state;
    open_run_as(&r, 4, &follower);
    await_training(&r, 0xf);
    stop(&r, 2);
    stop(&r, 3);
    r.at[0].fail = true;
    fail_one(&r, 1);
    await_end(&r, 0);
    for (int k = 2; k < 4; k++)
        go_on(&r, k);
    for (int k = 2; k < 4; k++) {
        await_end(&r, k);
        assert_int_equal(r.at[k].status, TUTTI_ERR_PEER);
        if (strstr(r.at[k].says, "2 have failed, so that those that are left can be no majority") == NULL)
            fail_msg("%s", r.at[k].says);
    }
    close_run(&r);
}

/* Each part of the state takes it a while, and all of them longer than one that fails waits. */
static void one_that_fails_waits_for_one_that_fetches_slowly(void **state)
{
    trainer as = follower;
    run r;

    (void)state;
    as.bytes = 20 << 20; /* in 3 s */
    as.slow = true;
    open_run_as(&r, 1, &as);
    await_training(&r, 0x1);
    r.at[0].stands = true;
    assert_int_equal(join(&r, 0), 1);
    AWAIT(&r, r.at[0].members == 2);
    fail_one(&r, 0);
    await_training(&r, 0x2);
    close_run(&r);
}

/* A resumed run: before its first step one comes and one is lost. */
static void founders_give_the_state_with_which_the_run_begins(void **state)
{
    trainer as = follower;
    run r;

    (void)state;
    as.begins = 40;
    as.bytes = 1 << 20;
    as.stands = true;
    open_run_as(&r, 3, &as);
    AWAIT(&r, r.at[0].members == 3 && r.at[1].members == 3 && r.at[2].members == 3);
    r.as.stands = false;
    assert_int_equal(join(&r, 1), 3);
    AWAIT(&r, r.at[0].members == 4);
    kill_one(&r, 1);
    AWAIT(&r, r.at[0].members == 3 && r.at[2].members == 3);
    assert_int_equal(steps(&r), 0); /* none is made */
    r.at[0].stands = r.at[2].stands = false;
    AWAIT(&r, train(&r, 0xd, 43));
    close_run(&r);
}

/* There is one place, which the founder has. */
static void a_newcomer_of_a_run_that_has_failed_says_so(void **state)
{
    trainer as = follower;
    run r;

    (void)state;
    as.most = 1;
    open_run_as(&r, 1, &as);
    await_training(&r, 0x1);
    r.at[0].stands = true;
    assert_int_equal(join(&r, 0), 1);
    AWAIT(&r, r.at[0].waiting == 1);
    fail_one(&r, 0);
    await_end(&r, 1);
    assert_int_equal(r.at[1].status, TUTTI_ERR_PEER);
    if (strstr(r.at[1].says, "its last workers have failed") == NULL)
        fail_msg("%s", r.at[1].says);
    close_run(&r);
}

/* What is in the file, in `bytes`. */
static void read_file(const char *path, char *text, size_t bytes)
{
    FILE *file = fopen(path, "r");

    assert_non_null(file);
    text[fread(text, 1, bytes - 1, file)] = '\0';
    fclose(file);
}

/* And one that is not there is written. */
static void a_file_that_is_no_pass_is_not_replaced(void **state)
{
    char folder[] = "/tmp/tutti-run-XXXXXX", text[200];
    trainer as = follower;

    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(as.pass, sizeof as.pass, "%s/join", folder);
    for (int there = 0; there < 2; there++) {
        FILE *file = there ? fopen(as.pass, "w") : NULL;
        run r;
        if (file != NULL) {
            fputs("notes\n", file);
            fclose(file);
            assert_int_equal(chmod(as.pass, 0600), 0);
        }
        open_run_as(&r, 1, &as);
        await_training(&r, 0x1);
        read_file(as.pass, text, sizeof text);
        if (there)
            assert_string_equal(text, "notes\n");
        else
            assert_non_null(strstr(text, r.at[0].address));
        close_run(&r);
    }
    unlink(as.pass);
    assert_int_equal(rmdir(folder), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(founders_and_newcomers_train_and_leave),
        cmocka_unit_test(the_killed_are_done_without),
        cmocka_unit_test(one_that_stood_still_comes_back_as_a_newcomer),
        cmocka_unit_test(the_side_without_a_majority_stops),
        cmocka_unit_test(strangers_are_turned_away),
        cmocka_unit_test(those_that_stand_still_count_when_one_fails),
        cmocka_unit_test(those_that_are_left_end_when_too_many_fail),
        cmocka_unit_test(one_that_fails_waits_for_one_that_fetches_slowly),
        cmocka_unit_test(founders_give_the_state_with_which_the_run_begins),
        cmocka_unit_test(a_newcomer_of_a_run_that_has_failed_says_so),
        cmocka_unit_test(a_file_that_is_no_pass_is_not_replaced),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
