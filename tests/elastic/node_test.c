/* Goal: a node refuses what is wrong before it begins; notes arrive once, whole and in order, and
   never block or hang their sender; what a holder of the key sends beyond the protocol ends its
   connection only. Method: nodes of one process, and a caller that writes frames by hand. */
#include "collective/world.h"
#include "elastic/node.h"
#include "transport/tcp/connect.h"
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MS TCP_MS
enum { KIND = TUTTI_NODE_KINDS, LARGE = TUTTI_NODE_NOTE_BYTES };

typedef struct inbox {           /* what on_note has got */
    _Atomic int n;
    _Atomic bool hold;           /* it waits while this is set */
    _Atomic bool held;           /* it has waited */
    uint64_t from, tags[64];
    uint32_t kind;
    size_t bytes;
    bool right;                  /* the bytes are those of fill() */
} inbox;

static tutti_run_id run;
static tutti_run_key key;
static tutti_runtime *rt;

static int open_all(void **state)
{
    (void)state;
    assert_int_equal(tutti_runtime_open_posix(&rt, NULL), TUTTI_OK);
    tutti_run_id_make(rt, &run);
    tutti_run_key_make(rt, &key);
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    tutti_runtime_close(rt);
    return 0;
}

static void says(const tutti_error *err, const char *words)
{
    if (strstr(err->text, words) == NULL)
        fail_msg("'%s' lacks '%s'", err->text, words);
}

#define AWAIT(what) \
    do { \
        const int64_t until = tutti_now_ns(rt) + 60000 * MS; \
        while (!(what)) { \
            if (tutti_now_ns(rt) >= until) \
                fail_msg("not within a minute: %s", #what); \
            tutti_sleep_until(rt, tutti_now_ns(rt) + MS); \
        } \
    } while (0)

static uint8_t byte_of(size_t k, uint64_t tag) { return (uint8_t)(k * 7 + (k >> 8) + tag); }

static void fill(uint8_t *bytes, size_t n, uint64_t tag)
{
    for (size_t k = 0; k < n; k++)
        bytes[k] = byte_of(k, tag);
}

static void take(void *user, const tutti_node_note *note)
{
    inbox *const b = user;

    while (b->hold) {
        b->held = true;
        usleep(1000);
    }
    b->from = note->from;
    b->kind = note->kind;
    b->bytes = note->n;
    b->right = (note->bytes == NULL) == (note->n == 0);
    for (size_t k = 0; k < note->n; k++)
        b->right = b->right && note->bytes[k] == byte_of(k, note->tag);
    b->tags[b->n % 64] = note->tag;
    b->n++;
}

static tutti_node_options options(inbox *b)
{
    return (tutti_node_options){ .run = run,
                                 .key = key,
                                 .heartbeat_ns = 20 * MS,
                                 .dead_ns = 2000 * MS,
                                 .boundary_ns = 50 * MS,
                                 .on_note = b != NULL ? take : NULL,
                                 .user = b };
}

static tutti_node *found(const tutti_node_options *o)
{
    tutti_error err = { .rank = -1 };
    tutti_world *world;
    tutti_node *n;

    assert_int_equal(tutti_world_open(&world, "shm", &err), TUTTI_OK);
    if (tutti_node_found(&n, world, o, &err) != TUTTI_OK)
        fail_msg("%s", err.text);
    tutti_world_close(world);
    return n;
}

static tutti_node *join(const tutti_node *by, const tutti_node_options *o)
{
    const char *const contact = tutti_node_address(by);
    tutti_error err = { .rank = -1 };
    tutti_node *n;

    if (tutti_node_join(&n, &contact, 1, o, &err) != TUTTI_OK)
        fail_msg("%s", err.text);
    return n;
}

static tutti_node_view look(tutti_node *n)
{
    tutti_node_view view;

    tutti_node_look(n, &view);
    return view;
}

/* Two members of one epoch. */
typedef struct pair { tutti_node *a, *b; inbox at_a, at_b; } pair;
static void open_pair(pair *p)
{
    const tutti_node_options a = options(&p->at_a), b = options(&p->at_b);

    memset(p, 0, sizeof *p);
    p->a = found(&a);
    p->b = join(p->a, &b);
    tutti_node_ready(p->b);
    AWAIT(look(p->a).n == 2 && look(p->b).n == 2);
}

static void close_pair(pair *p)
{
    tutti_node_close(p->a);
    tutti_node_close(p->b);
}

/* ---- opening ---- */
static void options_are_checked(void **state)
{
    static char id[64] = "TUTTI_RUN_ID=", text[80] = "TUTTI_RUN_KEY=";
    char *const none[] = { NULL }, *const no_key[] = { id, NULL },
               *const both[] = { id, text, (char[]){ "TUTTI_RUN_KEY_FILE=/nowhere" }, NULL },
               *const good[] = { id, text, NULL };
    tutti_error err = { .rank = -1 };
    tutti_node_options o;

    (void)state;
    tutti_run_id_text(&run, id + strlen(id));
    tutti_run_key_text(&key, text + strlen(text));
    assert_int_equal(tutti_node_options_of(&o, none, &err), TUTTI_ERR_USAGE);
    says(&err, "TUTTI_RUN_ID");
    assert_int_equal(tutti_node_options_of(&o, no_key, &err), TUTTI_ERR_USAGE);
    says(&err, "TUTTI_RUN_KEY or TUTTI_RUN_KEY_FILE");
    assert_int_equal(tutti_node_options_of(&o, both, &err), TUTTI_ERR_USAGE);
    says(&err, "unset one");
    assert_int_equal(tutti_node_options_of(&o, good, &err), TUTTI_OK);
    assert_memory_equal(&o.run, &run, sizeof run);
    assert_memory_equal(&o.key, &key, sizeof key);
}

static void refused(tutti_node_options o, const char *contact, int n, const char *words)
{
    const char *contacts[TUTTI_CONTACTS_MAX + 1];
    tutti_error err = { .rank = -1 };
    tutti_node *node;

    for (int k = 0; k <= TUTTI_CONTACTS_MAX; k++)
        contacts[k] = contact;
    assert_int_not_equal(tutti_node_join(&node, contacts, n, &o, &err), TUTTI_OK);
    assert_null(node);
    says(&err, words);
}

static void what_is_wrong_is_refused(void **state)
{
    const tutti_node_options good = options(NULL);
    tutti_error err = { .rank = -1 };
    tutti_node_options o = good;
    tutti_world *world;
    tutti_node *n;

    (void)state;
    refused(good, "10.0.0.1", 1, "host:port");
    refused(good, "10.0.0.1:0", 1, "host:port");
    refused(good, "unix:x", 1, "host:port");
    refused(good, "127.0.0.1:1", 0, "1 to 16");
    refused(good, "127.0.0.1:1", 17, "1 to 16");
    o.host = "0.0.0.0";
    refused(o, "127.0.0.1:1", 1, "reach this host");
    o.host = "192.0.2.1"; /* no address of any host */
    refused(o, "127.0.0.1:1", 1, "192.0.2.1");
    o = good;
    o.port = 65536;
    refused(o, "127.0.0.1:1", 1, "65535");
    o = good;
    o.dead_ns = 2 * o.heartbeat_ns;
    refused(o, "127.0.0.1:1", 1, "three heartbeats");
    assert_int_equal(tutti_world_open(&world, "shm", &err), TUTTI_OK);
    assert_int_equal(tutti_node_found(&n, world, &o, &err), TUTTI_ERR_USAGE);
    assert_null(n);
    says(&err, "three heartbeats");
    tutti_world_close(world);
}

/* One of three cannot listen: all fail, and name it. */
static tutti_status found_one(tutti_world *world, void *arg, tutti_error *err)
{
    tutti_node_options o = options(NULL);
    tutti_error mine = { .rank = -1 };
    _Atomic int *const failed = arg;
    tutti_node *n;

    (void)err;
    if (tutti_world_rank(world) == 1)
        o.dead_ns = 1;
    if (tutti_node_found(&n, world, &o, &mine) == TUTTI_OK)
        tutti_node_close(n);
    else if (strstr(mine.text, tutti_world_rank(world) == 1 ? "three heartbeats" : "worker 1") != NULL)
        ++*failed;
    return TUTTI_OK;
}

static void founders_fail_together(void **state)
{
    tutti_error err = { .rank = -1 };
    _Atomic int failed = 0;

    (void)state;
    assert_int_equal(tutti_world_run("tcp", 3, found_one, (void *)&failed, &err), TUTTI_OK);
    assert_int_equal(failed, 3);
}

static void a_newcomer_says_why_nobody_answers(void **state)
{
    const char *const nobody = "127.0.0.1:1";
    const tutti_node_options o = options(NULL);
    tutti_error err = { .rank = -1 };
    char text[300] = "";
    tutti_node_view view;
    tutti_node *n;

    (void)state;
    assert_int_equal(tutti_node_join(&n, &nobody, 1, &o, NULL), TUTTI_OK);
    AWAIT((tutti_node_describe(n, text, sizeof text), strstr(text, "127.0.0.1:1: Connection refused")) != NULL);
    tutti_node_look(n, &view);
    assert_true(view.state == TUTTI_NEWCOMER && view.epoch == 0 && view.index == -1 && !view.acts);
    assert_int_equal(tutti_node_wait(n, view.changes, tutti_node_now(n) + 30 * MS, &view, &err), TUTTI_TIMEOUT);
    assert_false(tutti_node_step(n, 0, 1));
    assert_int_equal(tutti_node_send(n, 5, KIND, 0, NULL, 0, 0, &err), TUTTI_ERR_PEER);
    tutti_node_leave(n);
    assert_int_equal(look(n).state, TUTTI_LEFT);
    tutti_node_close(n);
    tutti_node_close(NULL);
}

/* ---- notes ---- */
static void notes_arrive_whole_and_in_order(void **state)
{
    uint8_t *const bytes = malloc(LARGE);
    pair p;

    (void)state;
    assert_non_null(bytes);
    open_pair(&p);
    for (uint64_t tag = 0; tag < 60; tag++) {
        const size_t n = tag == 3 ? LARGE : tag * 4099 % 200000; /* 0: without bytes */
        fill(bytes, n, tag);
        assert_int_equal(tutti_node_send(p.a, tutti_node_id(p.b), KIND + (uint32_t)tag % 3, tag, bytes, n,
                                         tutti_node_now(p.a) + 60000 * MS, NULL), TUTTI_OK);
        AWAIT(tag % 16 != 0 || p.at_b.n == (int)tag + 1);
        assert_true(tag % 16 != 0 || (p.at_b.right && p.at_b.bytes == n && p.at_b.from == tutti_node_id(p.a)));
    }
    AWAIT(p.at_b.n == 60);
    for (uint64_t tag = 0; tag < 60; tag++)
        assert_int_equal(p.at_b.tags[tag], tag);
    assert_true(p.at_b.right);
    assert_int_equal(tutti_node_send(p.b, tutti_node_id(p.a), UINT32_MAX, 7, NULL, 0, 0, NULL), TUTTI_OK);
    AWAIT(p.at_a.n == 1);
    assert_true(p.at_a.kind == UINT32_MAX && p.at_a.bytes == 0 && p.at_a.right);
    free(bytes);
    close_pair(&p);
}

static void a_sender_waits_for_room_no_longer_than_it_wants(void **state)
{
    uint8_t *const bytes = calloc(1, LARGE);
    tutti_error err = { .rank = -1 };
    tutti_status status = TUTTI_OK;
    int64_t before;
    pair p;
    int sent;

    (void)state;
    assert_non_null(bytes);
    open_pair(&p);
    p.at_b.hold = true;
    assert_int_equal(tutti_node_send(p.a, tutti_node_id(p.b), KIND, 0, bytes, LARGE, 0, NULL), TUTTI_OK);
    AWAIT(p.at_b.held); /* it reads no more; what follows fills the kernel, and the queue */
    for (sent = 1; sent < 64 && status == TUTTI_OK; sent += status == TUTTI_OK)
        status = tutti_node_send(p.a, tutti_node_id(p.b), KIND, 0, bytes, LARGE, 0, &err);
    assert_int_equal(status, TUTTI_TIMEOUT);
    says(&err, "bytes wait for");
    do { /* the kernel may have taken another one */
        before = tutti_node_now(p.a);
        status = tutti_node_send(p.a, tutti_node_id(p.b), KIND, 0, bytes, LARGE, before + 50 * MS, NULL);
        sent += status == TUTTI_OK;
    } while (status == TUTTI_OK && sent < 64);
    assert_int_equal(status, TUTTI_TIMEOUT);
    assert_true(tutti_node_now(p.a) >= before + 50 * MS);
    assert_int_equal(tutti_node_send(p.a, tutti_node_id(p.b), KIND - 1, 0, bytes, 1, 0, &err), TUTTI_ERR_USAGE);
    says(&err, "kinds begin at 16");
    assert_int_equal(tutti_node_send(p.a, tutti_node_id(p.b), KIND, 0, bytes, LARGE + 1, 0, NULL), TUTTI_ERR_USAGE);
    assert_int_equal(tutti_node_send(p.a, 12345, KIND, 0, bytes, 1, 0, &err), TUTTI_ERR_PEER);
    says(&err, "no member");
    p.at_b.hold = false;
    assert_int_equal(tutti_node_send(p.a, tutti_node_id(p.b), KIND, 0, bytes, LARGE,
                                     tutti_node_now(p.a) + 60000 * MS, NULL), TUTTI_OK);
    AWAIT(p.at_b.n == sent + 1);
    p.at_b.hold = true; /* a node is closed while its peer reads nothing */
    for (int k = 0; k < 3; k++)
        tutti_node_send(p.a, tutti_node_id(p.b), KIND, 0, bytes, LARGE, 0, NULL);
    before = tutti_node_now(p.b);
    tutti_node_close(p.a);
    assert_true(tutti_node_now(p.b) - before < 10000 * MS);
    p.at_b.hold = false;
    tutti_node_close(p.b);
    free(bytes);
}

/* ---- worlds ---- */
static void a_member_opens_one_world_an_epoch(void **state)
{
    tutti_error err = { .rank = -1 };
    tutti_world *world;
    double x[1] = { 4 };
    tutti_group g;
    pair p;

    (void)state;
    memset(&p, 0, sizeof p);
    p.a = found(&(tutti_node_options){ .run = run, .key = key });
    assert_int_equal(tutti_node_world(&world, p.a, 2, NULL, &err), TUTTI_CLOSED);
    assert_null(world);
    assert_int_equal(tutti_node_world(&world, p.a, 1, "tcp(streams=9999)", &err), TUTTI_ERR_USAGE);
    tutti_node_close(p.a);
    p.a = found(&(tutti_node_options){ .run = run, .key = key });
    assert_int_equal(tutti_node_world(&world, p.a, 1, NULL, &err), TUTTI_OK);
    g = tutti_group_workers(world, 1);
    assert_int_equal(tutti_allreduce(&g, TUTTI_SUM, (tutti_buffer){ NULL, x, 1, TUTTI_F64 }, &err), TUTTI_OK);
    assert_true(x[0] == 4 && tutti_world_size(world) == 1);
    tutti_world_close(world);
    assert_int_equal(tutti_node_world(&world, p.a, 1, NULL, &err), TUTTI_ERR_STATE);
    says(&err, "one an epoch");
    tutti_node_close(p.a);
}

typedef struct opener {          /* a thread that opens the world of an epoch */
    tutti_node *node;
    uint64_t epoch;
    _Atomic bool begun;
    tutti_status status;
    tutti_error err;
} opener;
static tutti_status open_world(void *arg, tutti_error *err)
{
    opener *const o = arg;
    tutti_world *world;

    (void)err;
    o->begun = true;
    o->status = tutti_node_world(&world, o->node, o->epoch, NULL, &o->err);
    tutti_world_close(world);
    return TUTTI_OK;
}

/* Its thread opens a world, and waits in it for a member that makes no step. */
static tutti_status wait_in_world(void *arg, tutti_error *err)
{
    opener *const o = arg;
    tutti_world *world;
    double x[1] = { 1 };
    tutti_group g;

    (void)err;
    o->status = tutti_node_world(&world, o->node, o->epoch, NULL, &o->err);
    if (o->status != TUTTI_OK)
        return TUTTI_OK;
    g = tutti_group_workers(world, 1);
    o->begun = true;
    o->status = tutti_allreduce(&g, TUTTI_SUM, (tutti_buffer){ NULL, x, 1, TUTTI_F64 }, &o->err);
    tutti_world_close(world);
    return TUTTI_OK;
}

/* Nobody is lost, and nobody closes its world: a newcomer is admitted. */
static void waits_end_with_the_epoch(void **state)
{
    const tutti_node_options o = options(NULL);
    tutti_error err = { .rank = -1 };
    opener waits = { 0 };
    tutti_world *world;
    tutti_thread *thread;
    tutti_node *third;
    pair p;

    (void)state;
    open_pair(&p);
    assert_true(tutti_node_hold(p.b, 0));
    waits.node = p.a;
    waits.epoch = look(p.a).epoch;
    assert_int_equal(tutti_thread_open(&thread, rt, "waits", wait_in_world, &waits, NULL), TUTTI_OK);
    if (tutti_node_world(&world, p.b, waits.epoch, NULL, &err) != TUTTI_OK)
        fail_msg("%s", err.text);
    AWAIT(waits.begun);
    third = join(p.a, &o);
    tutti_node_ready(third);
    assert_int_equal(tutti_thread_join(thread, NULL), TUTTI_OK);
    assert_int_equal(waits.status, TUTTI_ERR_PEER);
    says(&waits.err, "goes on with other members");
    AWAIT(look(p.b).n == 3);
    tutti_world_close(world);
    tutti_node_close(third);
    close_pair(&p);
}

static void a_change_wakes_those_who_wait(void **state)
{
    const tutti_node_options o = options(NULL);
    tutti_node *const a = found(&o), *const b = join(a, &o);
    const int64_t until = tutti_node_now(a) + 60000 * MS;
    tutti_node_view view = look(a);

    (void)state;
    tutti_node_ready(b);
    while (view.n < 2)
        assert_int_equal(tutti_node_wait(a, view.changes, until, &view, NULL), TUTTI_OK);
    assert_true(tutti_node_now(a) < until);
    assert_true(view.index == 0 && view.holds && view.acts);
    tutti_node_close(b);
    tutti_node_close(a);
}

/* The other one never opens it: the opening ends with the epoch, on either of them. */
static void opening_ends_with_the_epoch(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        opener o = { 0 };
        tutti_thread *thread;
        pair p;
        open_pair(&p);
        assert_true(tutti_node_hold(p.b, 0));
        o.node = k == 0 ? p.a : p.b;
        o.epoch = look(o.node).epoch;
        assert_int_equal(tutti_thread_open(&thread, rt, "opener", open_world, &o, NULL), TUTTI_OK);
        AWAIT(o.begun);
        usleep(50000);
        tutti_node_leave(k == 0 ? p.b : p.a);
        assert_int_equal(tutti_thread_join(thread, NULL), TUTTI_OK);
        assert_int_equal(o.status, TUTTI_CLOSED);
        says(&o.err, "has ended");
        close_pair(&p);
    }
}

/* ---- a caller with the key ---- */
typedef struct caller { tcp_line line; tcp_rules rules; } caller;
static void caller_open(caller *c, const tutti_node *to)
{
    tcp_call call = { .fd = -1,
                      .timeout_ns = 3000 * MS,
                      .hello = { .low = TCP_VERSION_LOW,
                                 .high = TCP_VERSION_HIGH,
                                 .purpose = TCP_TO_NODE,
                                 .size = 1,
                                 .id = run } };

    c->rules = (tcp_rules){ .run = tutti_tcp_run_short(&run), .note_most = 1 << 20 };
    assert_true(tutti_tcp_numbers(tutti_node_address(to), &call.to));
    while (call.state != TCP_CALL_DONE) {
        struct pollfd polled = { .fd = call.fd, .events = tutti_tcp_call_events(&call) };
        poll(&polled, 1, 5);
        assert_int_equal(tutti_tcp_call_step(&call, rt, &key, &c->rules, NULL), TUTTI_OK);
    }
    assert_int_equal(tutti_tcp_line_open(&c->line, call.fd, &call.session, &c->rules, 1 << 20, NULL), TUTTI_OK);
}

static void say(caller *c, uint32_t kind, uint64_t tag, uint64_t whole, uint64_t offset, const void *bytes,
                uint32_t n)
{
    tcp_frame f = { .kind = TCP_NOTE,
                    .bytes = n,
                    .tag = tag,
                    .send_id = offset,
                    .message_id = whole,
                    .header = { .kind = kind } };

    assert_int_equal(tutti_tcp_line_send(&c->line, rt, &f, bytes, NULL), TUTTI_OK);
    tutti_tcp_line_flush(&c->line, NULL);
}

static const uint8_t i_am[] = { 1, 2, 3, 4, 5, 6, 7, 8, '1', '2', '7', '.', '0', '.', '0', '.', '1', ':', '9' };
static void introduce(caller *c) { say(c, 1, 0, sizeof i_am, 0, i_am, sizeof i_am); }

/* The node ends the connection, and nothing else. */
static void dropped(caller *c)
{
    tutti_error err = { .rank = -1 };

    AWAIT(tutti_tcp_line_read(&c->line, rt, &err) != TUTTI_OK);
    tutti_tcp_line_close(&c->line);
}

/* Where an epoch meets is believed of its lowest member only. */
static void another_meeting_place_is_not_believed(void **state)
{
    uint8_t place[8 + 16 + 11] = { 0 };
    tutti_error err = { .rank = -1 };
    opener first = { 0 };
    tutti_thread *thread;
    tutti_world *world;
    inbox *at;
    caller c;
    pair p;

    (void)state;
    open_pair(&p);
    at = &p.at_b;
    assert_true(tutti_node_hold(p.b, 0));
    first.node = p.a;
    first.epoch = look(p.b).epoch;
    place[0] = (uint8_t)first.epoch;
    memcpy(place + 24, "127.0.0.1:9", 11);
    caller_open(&c, p.b);
    introduce(&c);
    say(&c, 5, 0, sizeof place, 0, place, sizeof place);
    say(&c, KIND, 0, 0, 0, NULL, 0);
    AWAIT(at->n == 1); /* it has read both */
    assert_int_equal(tutti_thread_open(&thread, rt, "opener", open_world, &first, NULL), TUTTI_OK);
    if (tutti_node_world(&world, p.b, first.epoch, NULL, &err) != TUTTI_OK)
        fail_msg("%s", err.text);
    assert_int_equal(tutti_thread_join(thread, NULL), TUTTI_OK);
    assert_int_equal(first.status, TUTTI_OK);
    tutti_world_close(world);
    tutti_tcp_line_close(&c.line);
    close_pair(&p);
}

static void frames_beyond_the_protocol_end_their_connection(void **state)
{
    static const struct { uint32_t kind; uint64_t whole, offset; uint32_t n; const char *what; } wrong[] = {
        { 9, 0, 0, 0, "an unknown kind of the node's own" },
        { 1, sizeof i_am, 0, sizeof i_am, "says twice who it is" },
        { 2, 10, 0, 10, "no message of the protocol" },
        { 2, 20, 0, 10, "a piece of a message of the protocol" },
        { 5, 10, 0, 10, "a short address of a meeting place" },
        { KIND, (uint64_t)LARGE + 1, 0, 10, "a note that is too large" },
        { KIND, 20, 10, 10, "begins in the middle" },
        { KIND, 5, 0, 10, "more than the whole" },
        { KIND, 20, 0, 0, "a piece without bytes" },
    };
    static const uint8_t zeros[TUTTI_MEMBERSHIP_BYTES + 1];
    inbox at = { 0 };
    const tutti_node_options o = options(&at);
    tutti_node *const n = found(&o);
    tutti_node_view view;
    caller c;

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(wrong); k++) {
        caller_open(&c, n);
        introduce(&c);
        say(&c, wrong[k].kind, 1, wrong[k].whole, wrong[k].offset, wrong[k].n == sizeof i_am ? i_am : zeros,
            wrong[k].n);
        dropped(&c);
    }
    caller_open(&c, n); /* pieces of two notes */
    introduce(&c);
    say(&c, KIND, 1, 20, 0, zeros, 10);
    say(&c, KIND, 2, 20, 10, zeros, 10);
    dropped(&c);
    caller_open(&c, n); /* does not say who it is */
    say(&c, KIND, 1, 10, 0, zeros, 10);
    dropped(&c);
    caller_open(&c, n); /* says who it is in pieces */
    say(&c, 1, 0, sizeof i_am + 9, 0, i_am, sizeof i_am);
    dropped(&c);
    caller_open(&c, n); /* larger than any frame of a node */
    introduce(&c);
    say(&c, 2, 0, sizeof zeros, 0, zeros, sizeof zeros);
    dropped(&c);
    assert_int_equal(at.n, 0);
    caller_open(&c, n); /* a right one */
    introduce(&c);
    say(&c, KIND, 9, 2, 0, (const uint8_t[]){ byte_of(0, 9), byte_of(1, 9) }, 2);
    AWAIT(at.n == 1);
    assert_true(at.right && at.from == UINT64_C(0x0807060504030201));
    tutti_tcp_line_close(&c.line);
    tutti_node_look(n, &view);
    assert_false(tutti_node_step(n, 2, 1)); /* it was computed in the world of another epoch */
    assert_true(view.acts && view.epoch == 1 && tutti_node_step(n, 1, 1));
    tutti_node_close(n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_are_checked),
        cmocka_unit_test(what_is_wrong_is_refused),
        cmocka_unit_test(founders_fail_together),
        cmocka_unit_test(a_newcomer_says_why_nobody_answers),
        cmocka_unit_test(notes_arrive_whole_and_in_order),
        cmocka_unit_test(a_sender_waits_for_room_no_longer_than_it_wants),
        cmocka_unit_test(a_member_opens_one_world_an_epoch),
        cmocka_unit_test(opening_ends_with_the_epoch),
        cmocka_unit_test(waits_end_with_the_epoch),
        cmocka_unit_test(a_change_wakes_those_who_wait),
        cmocka_unit_test(another_meeting_place_is_not_believed),
        cmocka_unit_test(frames_beyond_the_protocol_end_their_connection),
    };

    return cmocka_run_group_tests(tests, open_all, close_all);
}
