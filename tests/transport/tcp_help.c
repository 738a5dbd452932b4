#include "tcp_help.h"
#include "transport/registry.h"
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

const tutti_transport_ops *tcp(void) { return tutti_transport_find("tcp"); }

void assert_says(const char *text, const char *wanted)
{
    if (strstr(text, wanted) == NULL)
        fail_msg("'%s' should contain '%s'", text, wanted);
}

void pause_ms(tutti_runtime *rt, int64_t ms) { tutti_sleep_until(rt, tutti_now_ns(rt) + ms * TCP_MS); }

/* ---- the meeting place ---- */
static tutti_status serve(void *arg, tutti_error *err)
{
    run_of *r = arg;

    (void)err;
    while (!atomic_load(&r->stop)) {
        struct pollfd polled = { .fd = tutti_meet_fd(r->meet), .events = POLLIN };
        poll(&polled, 1, 5);
        tutti_lock(r->lock);
        tutti_meet_progress(r->meet, NULL);
        tutti_unlock(r->lock);
    }
    return TUTTI_OK;
}

void run_open(run_of *r, tutti_runtime *rt, const char *address, int size, int64_t gather_ns)
{
    tutti_error err;

    memset(r, 0, sizeof *r);
    r->rt = rt;
    r->options = (tutti_meet_options){ .address = address, .size = size, .gather_ns = gather_ns };
    tutti_run_id_make(rt, &r->options.id);
    tutti_run_key_make(rt, &r->options.key);
    if (tutti_meet_open(&r->meet, rt, &r->options, &err) != TUTTI_OK)
        fail_msg("%s", err.text);
    tutti_meet_where(r->meet, NULL, r->where, sizeof r->where);
    assert_int_equal(tutti_monitor_open(&r->lock, rt, NULL), TUTTI_OK);
    assert_int_equal(tutti_thread_open(&r->server, rt, "meet", serve, r, NULL), TUTTI_OK);
}

void run_close(run_of *r)
{
    atomic_store(&r->stop, true);
    tutti_thread_join(r->server, NULL);
    tutti_meet_close(r->meet);
    tutti_monitor_close(r->lock);
}

int run_missing(run_of *r)
{
    int missing;

    tutti_lock(r->lock);
    missing = tutti_meet_missing(r->meet, NULL, 0);
    tutti_unlock(r->lock);
    return missing;
}

uint64_t run_strangers(run_of *r)
{
    uint64_t strangers;

    tutti_lock(r->lock);
    strangers = tutti_meet_strangers(r->meet);
    tutti_unlock(r->lock);
    return strangers;
}

tutti_meet_state run_state(run_of *r, int rank)
{
    tutti_meet_state state;

    tutti_lock(r->lock);
    state = tutti_meet_rank_of(r->meet, rank)->state;
    tutti_unlock(r->lock);
    return state;
}

/* ---- real ranks ---- */
static tutti_status rank_thread(void *arg, tutti_error *err)
{
    real_rank *r = arg;
    tcp_within within = { .id = r->id, .key = r->key };
    const tutti_launch launch = { .rank = r->rank, .size = r->size, .spec = r->spec, .within = &within };
    void *t;

    (void)err;
    snprintf(within.where, sizeof within.where, "%s", r->run->where);
    r->status = tcp()->open(&t, r->run->rt, &launch, &r->err);
    if (r->status != TUTTI_OK)
        return TUTTI_OK;
    if (r->body != NULL)
        r->status = r->body(t, r->run->rt, r->arg, &r->err);
    if (r->status != TUTTI_OK)
        tcp()->failure_report(t, &r->err);
    tcp()->close(t);
    return TUTTI_OK;
}

void rank_begin(real_rank *r)
{
    assert_int_equal(tutti_thread_open(&r->thread, r->run->rt, "rank", rank_thread, r, NULL), TUTTI_OK);
}

void rank_start(real_rank *r, run_of *run, int rank, const char *spec, rank_work body, void *arg)
{
    *r = (real_rank){
        .run = run, .rank = rank, .spec = spec, .body = body, .arg = arg, .key = run->options.key,
        .id = run->options.id, .size = run->options.size,
    };
    rank_begin(r);
}

tutti_status rank_end(real_rank *r)
{
    tutti_thread_join(r->thread, NULL);
    return r->status;
}

/* ---- a rank by hand ---- */
void fake_hello(const run_of *run, int rank, tcp_hello *h)
{
    *h = (tcp_hello){
        .low = TCP_VERSION_LOW, .high = TCP_VERSION_HIGH, .purpose = TCP_TO_MEET, .from = rank,
        .size = run->options.size, .id = run->options.id,
    };
    tutti_entropy(run->rt, h->nonce, sizeof h->nonce);
}

void fake_call(const run_of *run, tcp_call *c)
{
    const tcp_rules rules = { .run = tutti_tcp_run_short(&run->options.id) };
    tutti_error err = { .rank = -1 };

    for (int i = 0; i < 20000 && c->state != TCP_CALL_DONE; i++) {
        if (tutti_tcp_call_step(c, run->rt, &run->options.key, &rules, &err) != TUTTI_OK)
            fail_msg("%s", err.text);
        if (c->state != TCP_CALL_DONE)
            pause_ms(run->rt, 1);
    }
    assert_int_equal(c->state, TCP_CALL_DONE);
}

void fake_join(fake_rank *f, run_of *run, int rank)
{
    tcp_call c = { .fd = -1, .timeout_ns = 3000 * TCP_MS };
    tcp_entry mine = { .rank = rank, .pid = 1, .host_name = "fake" }, first;
    tcp_frame frame = { .kind = TCP_JOIN, .bytes = TCP_ENTRY_BYTES };
    const uint8_t *payload;
    uint8_t bytes[TCP_ENTRY_BYTES];
    tutti_status status;
    bool table = false;

    *f = (fake_rank){
        .run = run, .rank = rank,
        .rules = {
            .run = tutti_tcp_run_short(&run->options.id), .eager_most = 16384, .chunk_most = 262144,
            .table_bytes = (uint32_t)run->options.size * TCP_ENTRY_BYTES,
        },
    };
    assert_int_equal(tutti_tcp_resolve(run->where, &c.to, NULL), TUTTI_OK);
    fake_hello(run, rank, &c.hello);
    fake_call(run, &c);
    assert_int_equal(tutti_tcp_line_open(&f->control, c.fd, &c.session, &f->rules, TCP_CHUNK_MOST, NULL), TUTTI_OK);
    tutti_tcp_entry_write(&mine, bytes);
    assert_int_equal(tutti_tcp_line_send(&f->control, run->rt, &frame, bytes, NULL), TUTTI_OK);
    for (int i = 0; i < 20000 && !table; i++) {
        pause_ms(run->rt, 1);
        assert_int_equal(tutti_tcp_line_read(&f->control, run->rt, NULL), TUTTI_OK);
        while (!table && tutti_tcp_line_next(&f->control, &frame, &payload, &status, NULL)) {
            if (frame.kind == TCP_TABLE)
                table = tutti_tcp_entry_read(payload, &first);
        }
    }
    assert_true(table);
    c = (tcp_call){ .fd = -1, .timeout_ns = 3000 * TCP_MS };
    tutti_tcp_address_local(&c.to, first.local);
    fake_hello(run, rank, &c.hello);
    c.hello.purpose = TCP_TO_PEER;
    fake_call(run, &c);
    assert_int_equal(tutti_tcp_line_open(&f->peer, c.fd, &c.session, &f->rules, TCP_CHUNK_MOST, NULL), TUTTI_OK);
}

void fake_close(fake_rank *f)
{
    tutti_tcp_line_close(&f->peer);
    tutti_tcp_line_close(&f->control);
}
