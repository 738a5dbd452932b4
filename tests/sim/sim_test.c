/* Goal: the simulator's time is that of the platform, its order is fixed, and a run that never ends
   is reported with a message. Method: small runs, a forked child each; ranks report by status and
   message, values come back through shared memory. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>
#include "collective/collective_internal.h"
#include "forked.h"
#include "collective/world.h"

#define CHECK(condition) \
    do { \
        if (!(condition)) \
            return tutti_fail(err, TUTTI_ERR_STATE, 0, "%s:%d: not so: %s", __FILE__, __LINE__, #condition); \
    } while (0)
enum { BIG = 16 << 20 };

typedef struct rank { const tutti_transport_ops *ops; tutti_runtime *rt; void *t; int rank, size; } rank;
/* unmet: a CHECK's words: a run that has lost a rank tells of that first */
typedef struct body { tutti_status (*run)(rank *r, void *arg, tutti_error *err); void *arg; char *unmet; } body;

static tutti_status rank_main(const tutti_launch *launch, void *arg, tutti_error *err)
{
    const body *b = arg;
    rank r = { .ops = forked_sim(), .rt = launch->rt, .rank = launch->rank, .size = launch->size };
    tutti_status status;

    TUTTI_TRY(r.ops->open(&r.t, r.rt, launch, err));
    status = b->run(&r, b->arg, err);
    if (status != TUTTI_OK && strstr(err->text, ": not so: ") != NULL && b->unmet[0] == '\0')
        snprintf(b->unmet, 480, "%s", err->text);
    if (status != TUTTI_OK)
        r.ops->failure_report(r.t, err);
    r.ops->close(r.t);
    return status;
}

static tutti_status run_on(const char *spec, int n, tutti_status (*run)(rank *r, void *arg, tutti_error *err),
                           void *arg, tutti_error *err)
{
    body b = { run, arg, mmap(NULL, 480, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0) };
    tutti_status status;

    assert_true(b.unmet != MAP_FAILED);
    memset(err, 0, sizeof *err);
    status = forked_ranks(spec, n, rank_main, &b, err);
    if (b.unmet[0] != '\0')
        fail_msg("%s", b.unmet);
    munmap(b.unmet, 480);
    return status;
}

static void well(const char *spec, int n, tutti_status (*run)(rank *r, void *arg, tutti_error *err), void *arg)
{
    tutti_error err;

    if (run_on(spec, n, run, arg, &err) != TUTTI_OK)
        fail_msg("%s", err.text);
}

static void *shared(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    assert_true(memory != MAP_FAILED);
    return memory;
}

static tutti_status one(rank *r, tutti_request *request, tutti_error *err)
{
    size_t done;

    TUTTI_TRY(r->ops->wait_some(r->t, &request, 1, 1, TUTTI_FOREVER, &done, err));
    return request->status == TUTTI_OK
               ? TUTTI_OK
               : tutti_fail_rank(err, request->status, request->rank, "a request ended with '%s' because of worker %d",
                                 tutti_status_name(request->status), request->rank);
}

static tutti_status move(rank *r, bool send, int peer, uint64_t tag, void *data, size_t bytes, tutti_error *err)
{
    tutti_request request = { 0 };

    TUTTI_TRY(send ? r->ops->send(r->t, &request, peer, tag, NULL, tutti_host(data, bytes, TUTTI_U8), err)
                   : r->ops->recv(r->t, &request, peer, tag, tutti_host(data, bytes, TUTTI_U8), err));
    return one(r, &request, err);
}

/* ---- time ---- */
static const size_t sizes[] = { 0, 1, 1024, 64 << 10, 1 << 20, BIG };

/* latency + (payload + 40) / bandwidth, to a nanosecond; of both directions at once as well. */
static tutti_status timed(rank *r, void *arg, tutti_error *err)
{
    unsigned char *out = calloc(1, BIG), *in = calloc(1, BIG);

    (void)arg;
    for (size_t k = 0; k < 2 * TUTTI_LENGTH(sizes); k++) {
        const size_t bytes = sizes[k / 2];
        const bool both = k % 2 == 1;
        const int64_t start = tutti_now_ns(r->rt), expected = llround((50e-6 + (double)(bytes + 40) / 1.25e9) * 1e9);
        tutti_request s = { 0 }, g = { 0 };
        int64_t took;
        if (both || r->rank == 0)
            TUTTI_TRY(r->ops->send(r->t, &s, 1 - r->rank, k, NULL, tutti_host(out, bytes, TUTTI_U8), err));
        if (both || r->rank == 1)
            TUTTI_TRY(r->ops->recv(r->t, &g, 1 - r->rank, k, tutti_host(in, bytes, TUTTI_U8), err));
        if (s.posted)
            TUTTI_TRY(one(r, &s, err));
        if (g.posted)
            TUTTI_TRY(one(r, &g, err));
        took = tutti_now_ns(r->rt) - start;
        if (llabs(took - expected) > 1)
            return tutti_fail(err, TUTTI_ERR_NUMBER, 0, "%zu bytes %s took %lld ns instead of %lld", bytes,
                              both ? "both ways" : "one way", (long long)took, (long long)expected);
    }
    free(out);
    free(in);
    return TUTTI_OK;
}

static void a_message_costs_latency_and_bytes_by_bandwidth(void **state)
{
    (void)state;
    well("sim", 2, timed, NULL);
}

/* The clock counts charged flops at once; a message posted after them starts after them, one
   posted before does not wait for them. */
static tutti_status charged(rank *r, void *arg, tutti_error *err)
{
    const int64_t start = tutti_now_ns(r->rt), wire = llround((50e-6 + 40 / 1.25e9) * 1e9);
    tutti_request a = { 0 }, b = { 0 };

    (void)arg;
    if (r->rank == 0) {
        TUTTI_TRY(r->ops->send(r->t, &a, 1, 1, NULL, tutti_nothing(), err));
        tutti_charge(r->rt, 1e11, 1e30); /* a second; memory traffic is free */
        CHECK(tutti_now_ns(r->rt) - start == 1000000000);
        TUTTI_TRY(r->ops->send(r->t, &b, 1, 2, NULL, tutti_nothing(), err));
        TUTTI_TRY(one(r, &b, err));
        CHECK(a.done);
        CHECK(llabs(tutti_now_ns(r->rt) - start - 1000000000 - wire) <= 1);
        return TUTTI_OK;
    }
    TUTTI_TRY(move(r, false, 0, 1, NULL, 0, err));
    CHECK(llabs(tutti_now_ns(r->rt) - start - wire) <= 1);
    TUTTI_TRY(move(r, false, 0, 2, NULL, 0, err));
    CHECK(llabs(tutti_now_ns(r->rt) - start - 1000000000 - wire) <= 1);
    return TUTTI_OK;
}

static void charged_compute_time_delays_later_messages(void **state)
{
    (void)state;
    well("sim", 2, charged, NULL);
}

/* ---- order ---- */
typedef struct story { uint64_t hash[2]; } story;
typedef struct listener { rank *r; uint64_t *hash; uint64_t index; tutti_monitor *m; int *turn; } listener;

static tutti_status listen(void *arg, tutti_error *err)
{
    listener *l = arg;

    for (uint64_t k = 0; k < 20; k++) {
        tutti_request g = { 0 };
        uint64_t words[4];
        TUTTI_TRY(l->r->ops->recv(l->r->t, &g, TUTTI_ANY, l->index, tutti_nothing(), err));
        TUTTI_TRY(one(l->r, &g, err));
        tutti_lock(l->m);
        tutti_charge(l->r->rt, 1e6 * (double)(k % 3), 0);
        words[0] = *l->hash;
        words[1] = (uint64_t)tutti_now_ns(l->r->rt);
        words[2] = (uint64_t)g.note.from;
        words[3] = l->index;
        *l->hash = tutti_hash(words, sizeof words);
        tutti_unlock(l->m);
    }
    return TUTTI_OK;
}

static tutti_status tell_story(rank *r, void *arg, tutti_error *err)
{
    uint64_t *hash = arg;

    if (r->rank == 0) {
        tutti_thread *threads[3];
        listener l[3];
        tutti_monitor *m;
        TUTTI_TRY(tutti_monitor_open(&m, r->rt, err));
        for (uint64_t k = 0; k < 3; k++) {
            l[k] = (listener){ .r = r, .hash = hash, .index = k, .m = m };
            TUTTI_TRY(tutti_thread_open(&threads[k], r->rt, "listener", listen, &l[k], err));
        }
        for (int k = 0; k < 3; k++)
            TUTTI_TRY(tutti_thread_join(threads[k], err));
        tutti_monitor_close(m);
        return TUTTI_OK;
    }
    for (uint64_t k = 0; k < 15; k++) /* 4 senders x 15 = 3 listeners x 20 */
        TUTTI_TRY(move(r, true, 0, k % 3, NULL, 0, err));
    return TUTTI_OK;
}

static void equal_runs_are_equal_to_the_nanosecond(void **state)
{
    story *s = shared(sizeof *s);

    (void)state;
    for (int k = 0; k < 2; k++)
        well("sim", 5, tell_story, &s->hash[k]);
    assert_true(s->hash[0] != 0 && s->hash[0] == s->hash[1]);
    munmap(s, sizeof *s);
}

/* Two send to rank 0 in one nanosecond, itself one of them; late: a bit a rank, which is then woken
   by a thread of its own, so it comes later within that nanosecond. */
typedef struct alarm_clock { tutti_runtime *rt; tutti_monitor *m; bool rings; } alarm_clock;
typedef struct order { unsigned late; uint64_t hash; } order;

static tutti_status ring(void *arg, tutti_error *err)
{
    alarm_clock *a = arg;

    (void)err;
    tutti_sleep_until(a->rt, INT64_C(2000000000));
    tutti_lock(a->m);
    a->rings = true;
    tutti_wake(a->m);
    tutti_unlock(a->m);
    return TUTTI_OK;
}

static tutti_status sleep_by_an_alarm(rank *r, tutti_error *err)
{
    alarm_clock a = { .rt = r->rt };
    tutti_thread *thread;

    TUTTI_TRY(tutti_monitor_open(&a.m, r->rt, err));
    TUTTI_TRY(tutti_thread_open(&thread, r->rt, "alarm", ring, &a, err));
    tutti_lock(a.m);
    while (!a.rings)
        tutti_wait(a.m, TUTTI_FOREVER, NULL);
    tutti_unlock(a.m);
    TUTTI_TRY(tutti_thread_join(thread, err));
    tutti_monitor_close(a.m);
    return TUTTI_OK;
}

static tutti_status send_at_once(rank *r, void *arg, tutti_error *err)
{
    order *o = arg;
    tutti_request s = { 0 };

    if (o->late >> r->rank & 1)
        TUTTI_TRY(sleep_by_an_alarm(r, err));
    else
        tutti_sleep_until(r->rt, INT64_C(2000000000));
    CHECK(tutti_now_ns(r->rt) == INT64_C(2000000000));
    TUTTI_TRY(r->ops->send(r->t, &s, 0, 1, NULL, tutti_nothing(), err));
    tutti_sleep_until(r->rt, INT64_C(2000001000));
    for (int k = 0; k < 2 && r->rank == 0; k++) {
        tutti_request g = { 0 };
        uint64_t words[3];
        TUTTI_TRY(r->ops->recv(r->t, &g, TUTTI_ANY, 1, tutti_nothing(), err));
        TUTTI_TRY(one(r, &g, err));
        words[0] = o->hash;
        words[1] = (uint64_t)tutti_now_ns(r->rt);
        words[2] = (uint64_t)g.note.from;
        o->hash = tutti_hash(words, sizeof words);
    }
    return one(r, &s, err);
}

static void arrival_order_within_a_nanosecond_changes_nothing(void **state)
{
    order *o = shared(4 * sizeof *o);

    (void)state;
    for (unsigned late = 0; late < 4; late++) {
        o[late].late = late;
        well("sim", 2, send_at_once, &o[late]);
        assert_true(o[late].hash != 0 && o[late].hash == o[0].hash);
    }
    munmap(o, 4 * sizeof *o);
}

/* ---- what never ends ---- */
static tutti_status wait_in_a_ring(rank *r, void *arg, tutti_error *err)
{
    (void)arg;
    return move(r, true, (r->rank + 1) % r->size, 7, NULL, 0, err); /* all send, none receives */
}

static void deadlock_report_names_the_waiting_workers(void **state)
{
    tutti_error err;

    (void)state;
    assert_int_equal(run_on("sim", 3, wait_in_a_ring, NULL, &err), TUTTI_ERR_STATE);
    assert_non_null(
        strstr(err.text, "deadlock at 0.000000000 s of virtual time: 3 of 3 workers wait and none can continue: "));
    assert_non_null(strstr(err.text, "worker 0 (worker-0) sends to worker 1, tag 0000000000000007, and it is not "
                                     "received; worker 1 (worker-1) sends to worker 2"));
}

static tutti_status wait_on_a_monitor(rank *r, void *arg, tutti_error *err)
{
    tutti_monitor *m;

    (void)arg;
    TUTTI_TRY(tutti_monitor_open(&m, r->rt, err));
    tutti_lock(m);
    return tutti_wait(m, TUTTI_FOREVER, err);
}

static void waiting_forever_on_a_monitor_is_reported(void **state)
{
    tutti_error err;

    (void)state;
    assert_int_equal(run_on("sim", 1, wait_on_a_monitor, NULL, &err), TUTTI_ERR_STATE);
    assert_non_null(strstr(err.text, "worker 0 (worker-0) waits on a monitor"));
}

static tutti_status poll_messages(rank *r, void *arg, tutti_error *err)
{
    tutti_request g = { 0 }, *list = &g;
    size_t done = 0;
    tutti_status status = r->ops->recv(r->t, &g, 1, 1, tutti_nothing(), err);

    (void)arg;
    if (r->rank == 1)
        tutti_sleep_until(r->rt, tutti_now_ns(r->rt) + 1000);
    while (status == TUTTI_OK && r->rank == 0 && done == 0)
        status = r->ops->wait_some(r->t, &list, 1, 0, 0, &done, err);
    r->ops->cancel(r->t, &g);
    return status;
}

static tutti_status poll_clock(rank *r, void *arg, tutti_error *err)
{
    (void)arg;
    (void)err;
    while (tutti_now_ns(r->rt) < INT64_MAX / 2)
        ;
    return TUTTI_OK;
}

static void a_loop_that_polls_without_waiting_fails(void **state)
{
    tutti_error err;

    (void)state;
    assert_int_equal(run_on("sim", 2, poll_messages, NULL, &err), TUTTI_ERR_STATE);
    assert_non_null(strstr(err.text, "tested its messages 1000000 times"));
    assert_int_equal(run_on("sim", 2, poll_clock, NULL, &err), TUTTI_ERR_STATE);
    assert_non_null(strstr(err.text, "read the clock 1000000 times"));
}

/* ---- platforms and failures ---- */
static void write_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

/* The message has it, with the path in place of each %s, and nothing of SimGrid's sources. */
static void assert_platform_sentence(const tutti_error *err, const char *path, const char *format)
{
    char wanted[1024];

    snprintf(wanted, sizeof wanted, format, path, path);
    if (strstr(err->text, wanted) == NULL || strstr(err->text, ".cpp") != NULL)
        fail_msg("not '%s' but '%s'", wanted, err->text);
}

#define HEAD \
    "<?xml version='1.0'?>\n<!DOCTYPE platform SYSTEM \"https://simgrid.org/simgrid.dtd\">\n<platform " \
    "version=\"4.1\">\n<zone id=\"z\" routing=\"Full\">\n"
#define TAIL "</zone></platform>\n"

/* Rank 1's host fails at 2 s, with a message of rank 0 in transfer, one of rank 2 unmatched.
   arg: when the others learn of it. */
static tutti_status outlive(rank *r, void *arg, tutti_error *err)
{
    tutti_request g = { 0 };
    char why[200];
    size_t done;
    tutti_request *list = &g;
    tutti_peer_event event;

    if (r->rank == 1) {
        unsigned char *memory = calloc(1, BIG);
        (void)move(r, false, 0, 1, memory, BIG, err); /* 16 s: it dies in here */
        return tutti_fail(err, TUTTI_ERR_STATE, 0, "a dead worker spoke");
    }
    if (r->rank == 0) {
        unsigned char *memory = calloc(1, BIG);
        TUTTI_TRY(r->ops->send(r->t, &g, 1, 1, NULL, tutti_host(memory, BIG, TUTTI_U8), err));
    } else
        TUTTI_TRY(r->ops->recv(r->t, &g, 1, 2, tutti_nothing(), err));
    TUTTI_TRY(r->ops->wait_some(r->t, &list, 1, 1, TUTTI_FOREVER, &done, err));
    CHECK(g.status == TUTTI_ERR_PEER && g.rank == 1);
    CHECK(tutti_now_ns(r->rt) == 1000000000 + *(const int64_t *)arg);
    CHECK(r->ops->events(r->t, 0, &event, 1) == 1 && event.rank == 1 && event.epoch == 1 &&
          event.change == TUTTI_PEER_LOST && event.at_ns == tutti_now_ns(r->rt));
    CHECK(strcmp(event.why, "worker 1 was lost: its host 'h1' failed at 2.000000000 s of virtual time") == 0);
    CHECK(r->ops->dead_peer(r->t, why, sizeof why) == 1);
    CHECK(strcmp(why, "worker 1 was lost: its host 'h1' failed at 2.000000000 s of virtual time") == 0);
    if (r->rank == 0) /* the survivors go on */
        return move(r, true, 2, 3, NULL, 0, err);
    return move(r, false, 0, 3, NULL, 0, err);
}

static void failing_host_is_reported_as_a_lost_peer(void **state)
{
    char directory[] = "/tmp/tutti-sim-XXXXXX", path[64], profile[64], spec[96], text[2000];
    int64_t heard = INT64_C(2000000000);
    tutti_error err;

    (void)state;
    assert_non_null(mkdtemp(directory));
    snprintf(path, sizeof path, "%s/p.xml", directory);
    snprintf(profile, sizeof profile, "%s/down.txt", directory);
    snprintf(spec, sizeof spec, "sim(platform=%s,peer-timeout=0)", path);
    write_file(profile, "2.0 0\n");
    snprintf(text, sizeof text,
             HEAD "<host id=\"h0\" speed=\"1Gf\"/><host id=\"h1\" speed=\"1Gf\" state_file=\"down.txt\"/><host "
                  "id=\"h2\" speed=\"1Gf\"/>\n"
                  "<link id=\"l\" bandwidth=\"1MBps\" latency=\"1ms\" sharing_policy=\"FATPIPE\"/>\n"
                  "<route src=\"h0\" dst=\"h1\"><link_ctn id=\"l\"/></route><route src=\"h0\" dst=\"h2\"><link_ctn "
                  "id=\"l\"/></route><route src=\"h1\" dst=\"h2\"><link_ctn id=\"l\"/></route>\n" TAIL);
    write_file(path, text);
    assert_int_equal(run_on(spec, 3, outlive, &heard, &err), TUTTI_ERR_PEER);
    assert_string_equal(err.text, "worker 1 was lost: its host 'h1' failed at 2.000000000 s of virtual time");
    assert_int_equal(err.rank, 1);
    snprintf(spec, sizeof spec, "sim(platform=%s)", path); /* as tcp's peer-timeout */
    heard = INT64_C(5000000000);
    assert_int_equal(run_on(spec, 3, outlive, &heard, &err), TUTTI_ERR_PEER);
    assert_string_equal(err.text, "worker 1 was lost: its host 'h1' failed at 2.000000000 s of virtual time");

    /* Too few hosts; nonsense; nothing. */
    assert_int_equal(run_on(spec, 4, outlive, &heard, &err), TUTTI_ERR_USAGE);
    assert_non_null(strstr(err.text, "has 3 hosts for 4 workers"));
    write_file(path, HEAD "<hoost id=\"h0\"/>\n" TAIL);
    assert_int_equal(run_on(spec, 1, outlive, &heard, &err), TUTTI_ERR_USAGE);
    assert_platform_sentence(&err, path, "SimGrid refuses the platform '%s': Parse error at %s:5: Invalid XML");
    write_file(path, HEAD "<host id=\"h0\" speed=\"1zz\"/>\n" TAIL);
    assert_int_equal(run_on(spec, 1, outlive, &heard, &err), TUTTI_ERR_USAGE);
    assert_platform_sentence(&err, path, "SimGrid refuses the platform '%s': Parse error at %s:5: unknown unit: zz");
    write_file(path, HEAD "<host id=\"h0\" speed=\"1Gf\"/><host id=\"h0\" speed=\"1Gf\"/>\n" TAIL);
    assert_int_equal(run_on(spec, 1, outlive, &heard, &err), TUTTI_ERR_USAGE);
    assert_platform_sentence(&err, path,
                             "SimGrid refuses the platform '%s': Refusing to create a second host named 'h0'.");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(run_on(spec, 1, outlive, &heard, &err), TUTTI_ERR_USAGE);
    assert_non_null(strstr(err.text, "cannot read the platform"));
    unlink(profile);
    rmdir(directory);
}

/* With three ranks the link between the first two fails: these lose each other, and rank 2 loses
   none. With two ranks the first may continue: the other is no member any more. */
static tutti_status cut_off(rank *r, void *arg, tutti_error *err)
{
    unsigned char *memory = calloc(1, BIG);
    tutti_request g = { 0 }, *list = &g;
    tutti_error told = { .rank = -1 };
    tutti_peer_event event;
    char why[200];
    size_t done;

    (void)arg;
    if (r->rank == 2) {
        TUTTI_TRY(move(r, false, 0, 2, NULL, 0, err));
        TUTTI_TRY(move(r, false, 1, 2, NULL, 0, err));
        CHECK(r->ops->events(r->t, 0, &event, 1) == 0);
        free(memory);
        return TUTTI_OK;
    }
    TUTTI_TRY(r->rank == 0 ? r->ops->send(r->t, &g, 1, 1, NULL, tutti_host(memory, BIG, TUTTI_U8), err)
                           : r->ops->recv(r->t, &g, 0, 1, tutti_host(memory, BIG, TUTTI_U8), err));
    if (r->size == 2 && r->rank == 1) {
        CHECK(r->ops->wait_some(r->t, &list, 1, 1, TUTTI_FOREVER, &done, &told) == TUTTI_ERR_PEER && told.rank == 1 &&
              strstr(told.text, "no member of the run any more: links have failed") != NULL);
        CHECK(g.done && g.status == TUTTI_ERR_PEER);
        free(memory);
        return TUTTI_OK;
    }
    TUTTI_TRY(r->ops->wait_some(r->t, &list, 1, 1, TUTTI_FOREVER, &done, err));
    free(memory);
    CHECK(g.status == TUTTI_ERR_PEER && g.rank == 1 - r->rank);
    CHECK(tutti_now_ns(r->rt) == 1000000000 + INT64_C(3000000000));
    CHECK(r->ops->dead_peer(r->t, why, sizeof why) == 1 - r->rank &&
          strstr(why, "a link to it failed at 3.000000000 s") != NULL);
    CHECK(r->ops->events(r->t, 0, &event, 1) == 1 && event.rank == 1 - r->rank && event.change == TUTTI_PEER_LOST &&
          strcmp(event.why, why) == 0);
    g = (tutti_request){ 0 };
    TUTTI_TRY(r->ops->recv(r->t, &g, 1 - r->rank, 7, tutti_nothing(), err)); /* what comes later ends as well */
    TUTTI_TRY(r->ops->wait_some(r->t, &list, 1, 1, TUTTI_FOREVER, &done, err));
    CHECK(g.status == TUTTI_ERR_PEER && g.rank == 1 - r->rank);
    return r->size == 2 ? TUTTI_OK : move(r, true, 2, 2, NULL, 0, err);
}

static void failing_link_disconnects_its_endpoints(void **state)
{
    char directory[] = "/tmp/tutti-sim-XXXXXX", path[64], profile[64], spec[96], text[2000];
    tutti_error err;

    (void)state;
    assert_non_null(mkdtemp(directory));
    snprintf(path, sizeof path, "%s/p.xml", directory);
    snprintf(profile, sizeof profile, "%s/down.txt", directory);
    snprintf(spec, sizeof spec, "sim(platform=%s)", path);
    write_file(profile, "3.0 0\n");
    snprintf(text, sizeof text,
             HEAD "<host id=\"h0\" speed=\"1Gf\"/><host id=\"h1\" speed=\"1Gf\"/><host id=\"h2\" speed=\"1Gf\"/><link "
                  "id=\"l\" bandwidth=\"1MBps\" latency=\"1ms\" state_file=\"down.txt\"/>\n"
                  "<link id=\"m\" bandwidth=\"1MBps\" latency=\"1ms\"/><route src=\"h0\" dst=\"h1\"><link_ctn "
                  "id=\"l\"/></route><route src=\"h0\" dst=\"h2\"><link_ctn id=\"m\"/></route>"
                  "<route src=\"h1\" dst=\"h2\"><link_ctn id=\"m\"/></route>\n" TAIL);
    write_file(path, text);
    well(spec, 3, cut_off, NULL);
    assert_int_equal(run_on(spec, 2, cut_off, NULL, &err), TUTTI_ERR_STATE);
    assert_string_equal(err.text, "links have failed that cut it off from half of the workers or more");
    unlink(path);
    unlink(profile);
    rmdir(directory);
}

/* ---- fail=RANK@SECONDS ---- */
/* Rank 1 fails at 1 s in the middle of a message that rank 0 receives from any rank; rank 2 has
   the next one ready. It is received when the loss is known, not before. */
static tutti_status served_by_another(rank *r, void *arg, tutti_error *err)
{
    unsigned char *memory = calloc(1, BIG);
    tutti_request any = { 0 };
    tutti_peer_event event;

    (void)arg;
    tutti_sleep_until(r->rt, 1000000000 + (r->rank == 2 ? INT64_C(999000000) : INT64_C(990000000)));
    if (r->rank != 0) {
        TUTTI_TRY(move(r, true, 0, 1, memory, r->rank == 1 ? BIG : 100, err)); /* 13 ms */
        CHECK(r->rank == 2);
    } else {
        TUTTI_TRY(r->ops->recv(r->t, &any, TUTTI_ANY, 1, tutti_host(memory, BIG, TUTTI_U8), err));
        TUTTI_TRY(one(r, &any, err));
        CHECK(any.note.from == 2 && any.note.bytes == 100);
        CHECK(tutti_now_ns(r->rt) > 1000000000 + INT64_C(4000000000) &&
              tutti_now_ns(r->rt) < 1000000000 + INT64_C(4001000000));
        CHECK(r->ops->events(r->t, 0, &event, 1) == 1 &&
              strcmp(event.why, "worker 1 was lost: its host 'worker-1' failed at 1.000000000 s of virtual time") == 0);
    }
    free(memory);
    return TUTTI_OK;
}

/* Each rank sends each other a number in each of 400 rounds of 1 ms and counts what it receives;
   the remaining ranks receive from each other to the end. arg: for each rank the number of rounds
   in which it received from all. */
static tutti_status rounds_of_all(rank *r, void *arg, tutti_error *err)
{
    uint64_t *trace = arg;
    tutti_request requests[32], *list[32];
    int64_t numbers[32];
    size_t done;

    for (uint64_t round = 0; round < 400; round++) {
        tutti_peer_event event;
        tutti_sleep_until(r->rt, 1000000000 + (int64_t)(round + 1) * 1000000);
        memset(requests, 0, sizeof requests);
        for (int k = 0; k < 2 * r->size; k++) {
            list[k] = &requests[k];
            numbers[k] = (int64_t)round * 100 + r->rank;
            TUTTI_TRY(k % 2 == 0
                          ? r->ops->send(r->t, list[k], k / 2, round, NULL, tutti_host(&numbers[k], 1, TUTTI_I64), err)
                          : r->ops->recv(r->t, list[k], k / 2, round, tutti_host(&numbers[k], 1, TUTTI_I64), err));
        }
        TUTTI_TRY(r->ops->wait_some(r->t, list, (size_t)r->size * 2, (size_t)r->size * 2, TUTTI_FOREVER, &done, err));
        for (int k = 1; k < 2 * r->size; k += 2) {
            CHECK(list[k]->status == TUTTI_OK ? numbers[k] == (int64_t)round * 100 + k / 2
                                              : list[k]->status == TUTTI_ERR_PEER && list[k]->rank == k / 2);
            trace[r->rank] = trace[r->rank] * 31 + (uint64_t)list[k]->status * 8 + (uint64_t)tutti_now_ns(r->rt);
        }
        for (int i = 0; r->ops->events(r->t, i, &event, 1) > i; i++)
            CHECK(event.epoch == (uint32_t)i + 1 && event.at_ns <= tutti_now_ns(r->rt));
    }
    return TUTTI_OK;
}

static void injected_failures_occur_and_survivors_continue(void **state)
{
    /* at once, all but one; two of two watchers with the watched; one
       after the other; after the end; alone */
    static const struct { int n; const char *fail;
    } cases[] = {
        { 4, "fail=0@0.0123456:1@0.0123456:3@0.0123456" },
        { 7, "fail=1@0.05:2@0.05:3@0.05:4@0.01" },
        { 5, "fail=4@0.001:0@0.2:2@0.3501" },
        { 3, "fail=1@0" },
        { 2, "fail=1@1000" },
        { 1, "fail=0@5" },
    };
    uint64_t *trace = shared(16 * sizeof *trace), first[16];
    tutti_error err;

    (void)state;
    assert_int_equal(run_on("sim(fail=1@1)", 3, served_by_another, NULL, &err), TUTTI_ERR_PEER);
    assert_string_equal(err.text, "worker 1 was lost: its host 'worker-1' failed at 1.000000000 s of virtual time");
    for (size_t k = 0; k < TUTTI_LENGTH(cases); k++)
        for (int twice = 0; twice < 2; twice++) {
            char spec[100];
            snprintf(spec, sizeof spec, "sim(%s,peer-timeout=0.02)", cases[k].fail);
            memset(trace, 0, 16 * sizeof *trace);
            if (run_on(spec, cases[k].n, rounds_of_all, trace, &err) != TUTTI_OK &&
                (err.status != TUTTI_ERR_PEER || (strstr(err.text, "was lost: its host 'worker-") == NULL &&
                                                  strstr(err.text, "opening the run") == NULL)))
                fail_msg("%s: %s", spec, err.text);
            /* the run reports whom it lost; a time after its end never comes */
            assert_true((err.text[0] == '\0') == (k >= 4));
            if (twice)
                assert_memory_equal(first, trace, sizeof first);
            memcpy(first, trace, sizeof first);
        }
    munmap(trace, 16 * sizeof *trace);
}

static void invalid_fault_options_are_rejected(void **state)
{
    static const char *const wrong[][2] = {
        { "1", "write RANK@SECONDS" },
        { "1@", "write RANK@SECONDS" },
        { "@1", "fail: cannot read '1'" },
        { "1@-1", "write RANK@SECONDS" },
        { "1@nan", "write RANK@SECONDS" },
        { "1@inf", "write RANK@SECONDS" },
        { "-1@2", "write RANK@SECONDS" },
        { "1@2:", "write RANK@SECONDS" },
        { "1@2:2", "write RANK@SECONDS" },
        { "1@2x", "write RANK@SECONDS" },
        { "3@1", "no worker 3: with 3 workers they are 0 to 2" },
        { "99999999999999999999@1", "no worker" },
        { "1@2:0@3:1@4", "worker 1 cannot fail twice" },
    };
    tutti_error err;

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(wrong); k++) {
        char spec[100];
        snprintf(spec, sizeof spec, "sim(fail=%s)", wrong[k][0]);
        assert_int_equal(run_on(spec, 3, served_by_another, NULL, &err), TUTTI_ERR_USAGE);
        if (strstr(err.text, wrong[k][1]) == NULL)
            fail_msg("%s: %s", spec, err.text);
    }
}

/* ---- one a process; only inside of run ---- */
static tutti_status nothing(const tutti_launch *launch, void *arg, tutti_error *err)
{
    (void)launch;
    (void)arg;
    (void)err;
    return TUTTI_OK;
}

static tutti_status twice(void *arg, tutti_error *err)
{
    const tutti_launch launch = { .size = 2, .spec = "sim" };
    tutti_runtime *rt;
    void *t;

    (void)arg;
    TUTTI_TRY(tutti_runtime_open_posix(&rt, err));
    CHECK(forked_sim()->open(&t, rt, &launch, err) == TUTTI_ERR_USAGE && t == NULL);
    TUTTI_TRY(forked_sim()->run(rt, &launch, nothing, NULL, err));
    return forked_sim()->run(rt, &launch, nothing, NULL, err);
}

static void a_process_can_run_only_one_simulation(void **state)
{
    tutti_error err;

    (void)state;
    assert_int_equal(forked(twice, NULL, &err), TUTTI_ERR_STATE);
    assert_non_null(strstr(err.text, "fork before the first"));
}

static void plugin_is_found_only_by_its_exact_name(void **state)
{
    const tutti_transport_ops *ops;
    char tried[400];
    tutti_error err;

    (void)state;
    assert_int_equal(tutti_transport_load("sim", &ops, tried, sizeof tried, &err), TUTTI_OK);
    assert_string_equal(ops->name, "sim");
    assert_true(ops->simulated && ops->publish == NULL);
    assert_true(tutti_world_simulated("sim(seed=3)") && !tutti_world_simulated("shm") &&
                !tutti_world_simulated("simm") && !tutti_world_simulated(""));
    assert_int_equal(tutti_transport_load("simm", &ops, tried, sizeof tried, &err), TUTTI_ERR_USAGE);
    assert_null(ops);
    assert_non_null(strstr(tried, "/../lib/libtutti_transport_simm.so"));
    assert_int_equal(tutti_transport_load("../lib/sim", &ops, tried, sizeof tried, &err), TUTTI_ERR_USAGE);
    assert_string_equal(tried, "");
    assert_int_equal(tutti_world_check("sim(platfrom=x)", &err), TUTTI_ERR_USAGE);
    assert_non_null(strstr(err.text, "did you mean 'platform'"));
}

/* ---- how much there may be ---- */
/* Goal: a transfer that finds no wire waits for one and arrives. Method: all workers exchange a
   number with worker 0 at once, many more than it has wires. */
enum { CROWD = 256, EACH = 4 };

static tutti_status crowd(rank *r, void *arg, tutti_error *err)
{
    tutti_request *requests = tutti_alloc((size_t)CROWD * EACH * 2, sizeof *requests),
                  **all = tutti_alloc((size_t)CROWD * EACH * 2, sizeof *all);
    int *values = tutti_alloc((size_t)CROWD * EACH * 2, sizeof *values);
    size_t n = 0, done = 0;
    tutti_status status = requests != NULL && all != NULL && values != NULL ? TUTTI_OK : TUTTI_ERR_MEMORY;

    (void)arg;
    for (int peer = r->rank == 0 ? 1 : 0; status == TUTTI_OK && peer < (r->rank == 0 ? CROWD : 1); peer++)
        for (int k = 0; k < EACH && status == TUTTI_OK; k++) {
            const uint64_t tag = 100 + (uint64_t)k;
            values[n] = 1000 * r->rank + 10 * peer + k;
            status = r->ops->send(r->t, &requests[n], peer, tag, NULL, tutti_host(&values[n], 1, TUTTI_I32), err);
            all[n] = &requests[n];
            n++;
            if (status == TUTTI_OK)
                status = r->ops->recv(r->t, &requests[n], peer, tag, tutti_host(&values[n], 1, TUTTI_I32), err);
            all[n] = &requests[n];
            n++;
        }
    if (status == TUTTI_OK)
        status = r->ops->wait_some(r->t, all, n, n, TUTTI_FOREVER, &done, err);
    for (size_t k = 0; status == TUTTI_OK && k < n; k++) {
        const int peer = r->rank == 0 ? 1 + (int)k / (2 * EACH) : 0, turn = (int)k / 2 % EACH;
        if (requests[k].status != TUTTI_OK || (k % 2 == 1 && values[k] != 1000 * peer + 10 * r->rank + turn))
            status = tutti_fail(err, TUTTI_ERR_STATE, 0, "worker %d has %d of worker %d, turn %d", r->rank, values[k],
                                peer, turn);
    }
    tutti_free(requests);
    tutti_free(all);
    tutti_free(values);
    return status;
}

/* A request may stand twice among those waited for: it counts twice, and the wait ends. */
static tutti_status named_twice(rank *r, void *arg, tutti_error *err)
{
    tutti_request send = { 0 }, recv = { 0 }, *const all[] = { &recv, &send, &recv, NULL };
    int out = 7 + r->rank, in = 0;
    size_t done = 0;

    (void)arg;
    TUTTI_TRY(r->ops->recv(r->t, &recv, 1 - r->rank, 5, tutti_host(&in, 1, TUTTI_I32), err));
    TUTTI_TRY(r->ops->send(r->t, &send, 1 - r->rank, 5, NULL, tutti_host(&out, 1, TUTTI_I32), err));
    TUTTI_TRY(r->ops->wait_some(r->t, all, 4, 4, TUTTI_FOREVER, &done, err));
    CHECK(done == 4 && in == 8 - r->rank);
    return TUTTI_OK;
}

static void one_wait_may_list_a_request_twice(void **state)
{
    (void)state;
    well("sim", 2, named_twice, NULL);
}

static void more_concurrent_messages_than_wires_all_arrive(void **state)
{
    (void)state;
    well("sim", CROWD, crowd, NULL);
}

static void workers_beyond_the_memory_map_limit_are_rejected(void **state)
{
    FILE *file = fopen("/proc/sys/vm/max_map_count", "r");
    char expected[400];
    long long areas = 0;
    tutti_error err;

    (void)state;
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%lld", &areas), 1);
    fclose(file);
    if (areas >= 2100152)
        skip();
    snprintf(expected, sizeof expected,
             "a simulation of 65536 workers needs up to 2100152 memory areas and this system allows a process %lld; "
             "simulate fewer workers, or raise the limit: "
             "sysctl vm.max_map_count=3673016",
             areas);
    assert_int_equal(run_on("sim", 65536, crowd, NULL, &err), TUTTI_ERR_USAGE);
    assert_string_equal(err.text, expected);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_costs_latency_and_bytes_by_bandwidth),
        cmocka_unit_test(charged_compute_time_delays_later_messages),
        cmocka_unit_test(equal_runs_are_equal_to_the_nanosecond),
        cmocka_unit_test(arrival_order_within_a_nanosecond_changes_nothing),
        cmocka_unit_test(deadlock_report_names_the_waiting_workers),
        cmocka_unit_test(waiting_forever_on_a_monitor_is_reported),
        cmocka_unit_test(a_loop_that_polls_without_waiting_fails),
        cmocka_unit_test(failing_host_is_reported_as_a_lost_peer),
        cmocka_unit_test(failing_link_disconnects_its_endpoints),
        cmocka_unit_test(injected_failures_occur_and_survivors_continue),
        cmocka_unit_test(invalid_fault_options_are_rejected),
        cmocka_unit_test(one_wait_may_list_a_request_twice),
        cmocka_unit_test(more_concurrent_messages_than_wires_all_arrive),
        cmocka_unit_test(workers_beyond_the_memory_map_limit_are_rejected),
        cmocka_unit_test(a_process_can_run_only_one_simulation),
        cmocka_unit_test(plugin_is_found_only_by_its_exact_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
