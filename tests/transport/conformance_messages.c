/* conformance_messages.c: contents, order, matching, waiting. */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "conformance_internal.h"

static const int awkward[] = { 1, 2, 3, 7, 11 };
#define FOR_EACH_SIZE(n) for (size_t i_ = 0; i_ < TUTTI_LENGTH(awkward) && ((n) = awkward[i_], true); i_++)
enum { GUARD = 32 };

static tutti_buffer bytes_of(void *data, size_t bytes) { return tutti_host(data, bytes, TUTTI_U8); }

/* Goal: every payload arrives whole, with its header, and nothing is written beyond it. Method:
   all to all and to oneself, sizes round every edge, guard bytes behind the buffer; receives
   posted before the sends on even ranks, after them on odd ones. */
static tutti_status exchange(rank_context *c, size_t bytes, uint64_t tag, tutti_error *err)
{
    const size_t n = (size_t)c->size;
    tutti_request *requests = calloc(2 * n, sizeof *requests), **list = calloc(2 * n, sizeof *list);
    unsigned char *out = malloc(n * (bytes + GUARD)), *in = malloc(n * (bytes + GUARD));
    tutti_status status = TUTTI_OK;

    memset(in, 0xEE, n * (bytes + GUARD));
    for (int half = 0; half < 2; half++) {
        for (size_t r = 0; r < n && status == TUTTI_OK; r++) {
            const tutti_header note = {
                .from = -5, .kind = 3, .a = INT64_MIN + (int64_t)r, .b = c->rank, .ticket = UINT64_MAX - tag, .bytes = 1
            };
            if (half == c->rank % 2) {
                list[r] = &requests[r];
                status = c->ops->recv(c->t, list[r], (int)r, tag, bytes_of(in + r * (bytes + GUARD), bytes), err);
            } else {
                list[n + r] = &requests[n + r];
                fill(out + r * bytes, bytes, (uint64_t)c->rank * 1000 + r);
                status = c->ops->send(c->t, list[n + r], (int)r, tag, &note, bytes_of(out + r * bytes, bytes), err);
            }
        }
    }
    if (status == TUTTI_OK)
        status = wait_all(c, list, 2 * n, err);
    for (size_t r = 0; r < n && status == TUTTI_OK; r++) {
        const tutti_header *got = &requests[r].note;
        bool well = requests[r].status == TUTTI_OK && requests[n + r].status == TUTTI_OK;
        well = well && got->from == (int)r && got->kind == 3 && got->a == INT64_MIN + c->rank && got->b == (int64_t)r &&
               got->ticket == UINT64_MAX - tag && got->bytes == bytes;
        well = well && filled(in + r * (bytes + GUARD), bytes, r * 1000 + (uint64_t)c->rank);
        for (size_t k = 0; k < GUARD; k++)
            well = well && in[r * (bytes + GUARD) + bytes + k] == 0xEE;
        if (!well)
            status = tutti_fail(err, TUTTI_ERR_STATE, 0, "%zu bytes from rank %zu to rank %d did not arrive as sent",
                                bytes, r, c->rank);
    }
    free(requests);
    free(list);
    free(out);
    free(in);
    return status;
}

static tutti_status exchange_sizes(rank_context *c, tutti_error *err)
{
    static const size_t plain[] = { 0, 1, 2, 63, 64, 65, 4095, 4096, 4097, 100000 };
    uint64_t tag = 0;

    for (size_t i = 0; i < TUTTI_LENGTH(plain); i++)
        TUTTI_TRY(exchange(c, plain[i], tag++, err));
    for (size_t i = 0; c->subject->edges[i] != 0; i++) {
        if (c->size > 3 && c->subject->edges[i] > 100000)
            continue;
        for (size_t d = 0; d < 3; d++)
            TUTTI_TRY(exchange(c, c->subject->edges[i] - 1 + d, tag++, err));
    }
    return c->size <= 3 ? exchange(c, (size_t)UNLESS_SANITIZED(10, 2) << 20, tag, err) : TUTTI_OK;
}

static void payloads_of_all_sizes_arrive_whole(const conformance_subject *s)
{
    int n;
    FOR_EACH_SIZE(n)
        all_well(s, n, 1, exchange_sizes);
}

/* Goal: messages of one sender and one tag arrive in the order of posting, whatever their sizes. */
static tutti_status keep_order(rank_context *c, tutti_error *err)
{
    enum { COUNT = 120, MOST = 700000 };
    const int to = (c->rank + 1) % c->size, from = (c->rank + c->size - 1) % c->size;
    const tutti_rng sizes = rng_of(c, 50);
    tutti_request *requests = calloc(2 * COUNT, sizeof *requests), *list[2 * COUNT];
    unsigned char *payload = malloc(MOST), *in = malloc(MOST);
    tutti_status status = TUTTI_OK;
    size_t done;

    memset(payload, 5, MOST);
    for (size_t i = 0; i < 2 * COUNT; i++)
        list[i] = &requests[i];
    for (size_t i = 0; i < COUNT && status == TUTTI_OK; i++) {
        const tutti_header note = { .a = (int64_t)i };
        status =
            c->ops->send(c->t, &requests[i], to, 9, &note, bytes_of(payload, size_from(c->subject, sizes, i)), err);
    }
    for (size_t i = 0; i < COUNT && status == TUTTI_OK; i++) {
        if (i % 7 == 3) /* let some come before their receive */
            status = c->ops->wait_some(c->t, list, COUNT, 0, 0, &done, err);
        if (status == TUTTI_OK)
            status = c->ops->recv(c->t, &requests[COUNT + i], from, 9, bytes_of(in, MOST), err);
    }
    if (status == TUTTI_OK)
        status = wait_all(c, list, 2 * COUNT, err);
    for (size_t i = 0; i < COUNT && status == TUTTI_OK; i++) {
        const tutti_request *r = &requests[COUNT + i];
        if (r->status != TUTTI_OK || r->note.a != (int64_t)i || r->note.bytes != size_from(c->subject, sizes, i))
            status = tutti_fail(err, TUTTI_ERR_STATE, 0, "receive %zu of rank %d got message %lld", i, c->rank,
                                (long long)r->note.a);
    }
    free(requests);
    free(payload);
    free(in);
    return status;
}

static void messages_of_one_sender_and_tag_keep_their_order(const conformance_subject *s)
{
    int n;
    FOR_EACH_SIZE(n)
        all_well(s, n, 11, keep_order);
}

/* Goal: a receive takes its own tag only. Method: many tags, received in the reverse order of
   sending; near tags differ in every bit position. */
static tutti_status match_tags(rank_context *c, tutti_error *err)
{
    const int to = (c->rank + 1) % c->size, from = (c->rank + c->size - 1) % c->size;
    tutti_request sends[64], *list[64];
    tutti_status status = TUTTI_OK;
    int64_t word = 0;

    memset(sends, 0, sizeof sends);
    for (int bit = 0; bit < 64 && status == TUTTI_OK; bit++) {
        const tutti_header note = { .a = bit };
        list[bit] = &sends[bit];
        status = c->ops->send(c->t, list[bit], to, UINT64_C(1) << bit, &note, tutti_nothing(), err);
    }
    for (int bit = 63; bit >= 0 && status == TUTTI_OK; bit--) {
        status = recv_word(c, from, UINT64_C(1) << bit, &word, err);
        if (status == TUTTI_OK && word != bit)
            status = tutti_fail(err, TUTTI_ERR_STATE, 0, "the receive of tag bit %d took the message of bit %lld", bit,
                                (long long)word);
    }
    if (status == TUTTI_OK)
        status = wait_all(c, list, 64, err);
    for (int bit = 0; bit < 64; bit++)
        c->ops->cancel(c->t, &sends[bit]); /* they end with this function */
    return status;
}

static void a_receive_matches_its_own_tag_only(const conformance_subject *s)
{
    int n;
    FOR_EACH_SIZE(n)
        all_well(s, n, 1, match_tags);
}

/* Goal: a receive takes messages of its own sender only, and one from ANY takes those of any
   sender, each sender's in order. */
static tutti_status match_any(rank_context *c, tutti_error *err)
{
    enum { EACH = 20 };
    int64_t next[64] = { 0 }, word;

    if (c->rank != 0) {
        for (int64_t i = 0; i < EACH; i++)
            TUTTI_TRY(send_word(c, 0, 4, i, err));
        return send_word(c, 0, 5, c->rank, err);
    }
    for (int i = 0; i < EACH * (c->size - 1); i++) {
        tutti_request r = { 0 };
        TUTTI_TRY(c->ops->recv(c->t, &r, TUTTI_ANY, 4, tutti_nothing(), err));
        TUTTI_TRY(wait_one(c, &r, err));
        CHECK(r.status == TUTTI_OK && r.note.from > 0 && r.note.from < c->size);
        CHECK(r.note.a == next[r.note.from]++);
    }
    for (int r = c->size - 1; r > 0; r--) {
        TUTTI_TRY(recv_word(c, r, 5, &word, err));
        CHECK(word == r);
    }
    return TUTTI_OK;
}

static void a_receive_from_any_matches_every_sender(const conformance_subject *s)
{
    int n;
    FOR_EACH_SIZE(n)
        all_well(s, n, 1, match_any);
}

/* Goal: the counting of wait_some. */
static tutti_status count_done(rank_context *c, tutti_error *err)
{
    const int to = (c->rank + 1) % c->size, from = (c->rank + c->size - 1) % c->size;
    tutti_request a = { 0 }, b = { 0 }, unposted = { 0 }, *list[4] = { &a, NULL, &unposted, &b };
    size_t done = 99;
    tutti_status status;

    CHECK(c->ops->wait_some(c->t, NULL, 0, 0, TUTTI_FOREVER, &done, err) == TUTTI_OK && done == 0);
    TUTTI_TRY(c->ops->recv(c->t, &a, from, 1, tutti_nothing(), err));
    TUTTI_TRY(c->ops->recv(c->t, &b, from, 2, tutti_nothing(), err));
    CHECK(c->ops->wait_some(c->t, list, 4, 2, TUTTI_FOREVER, &done, err) == TUTTI_OK && done == 2);
    CHECK(c->ops->wait_some(c->t, list, 4, 0, 0, &done, err) == TUTTI_OK && done == 2);
    CHECK(c->ops->wait_some(c->t, list, 4, 3, 0, &done, err) == TUTTI_TIMEOUT && done == 2);
    status = c->ops->wait_some(c->t, list, 4, 3, soon(c, 5), &done, err);
    CHECK(status == TUTTI_TIMEOUT && done == 2);
    CHECK(!a.done && !b.done && a.posted && b.posted);
    TUTTI_TRY(meet(c, 3, err));

    TUTTI_TRY(send_word(c, to, 2, 22, err));
    TUTTI_TRY(c->ops->wait_some(c->t, list, 4, 3, soon(c, 60000), &done, err));
    CHECK(done == 3 && b.done && !a.done && b.note.a == 22);
    TUTTI_TRY(meet(c, 4, err));
    TUTTI_TRY(send_word(c, to, 1, 11, err));
    TUTTI_TRY(c->ops->wait_some(c->t, list, 4, 4, soon(c, 60000), &done, err));
    CHECK(done == 4 && a.done && a.note.a == 11);
    return TUTTI_OK;
}

static void wait_some_counts_completed_requests_and_keeps_its_deadline(const conformance_subject *s)
{
    int n;
    FOR_EACH_SIZE(n)
        all_well(s, n, 1, count_done);
}

/* Goal: bad calls are refused with a sentence and leave nothing posted. */
static tutti_status misuse(rank_context *c, tutti_error *err)
{
    tutti_request r = { 0 };
    tutti_error said = { 0 };
    unsigned char byte = 0;

    CHECK(c->ops->send(c->t, &r, c->size, 1, NULL, tutti_nothing(), &said) == TUTTI_ERR_USAGE && !r.posted);
    CHECK(strstr(said.text, "worker 2") != NULL && strstr(said.text, "0 to 1") != NULL);
    CHECK(c->ops->send(c->t, &r, TUTTI_ANY, 1, NULL, tutti_nothing(), &said) == TUTTI_ERR_USAGE && !r.posted);
    CHECK(c->ops->recv(c->t, &r, -2, 1, tutti_nothing(), &said) == TUTTI_ERR_USAGE && !r.posted);
    CHECK(c->ops->send(c->t, &r, 0, 1, NULL, tutti_host(NULL, 4, TUTTI_F32), &said) == TUTTI_ERR_USAGE && !r.posted);
    CHECK(c->ops->recv(c->t, &r, 0, 1, tutti_host(&byte, SIZE_MAX / 2, TUTTI_F32), &said) == TUTTI_ERR_USAGE &&
          !r.posted);
    TUTTI_TRY(c->ops->recv(c->t, &r, c->rank, 1, tutti_nothing(), err));
    CHECK(c->ops->recv(c->t, &r, c->rank, 1, tutti_nothing(), &said) == TUTTI_ERR_STATE && r.posted);
    CHECK(strstr(said.text, "in flight") != NULL);
    c->ops->cancel(c->t, &r);
    CHECK(!r.posted);
    c->ops->cancel(c->t, &r); /* nothing */
    return TUTTI_OK;
}

static void invalid_transport_calls_are_rejected_with_a_message(const conformance_subject *s)
{
    all_well(s, 2, 1, misuse);
}

/* Goal: a refused call leaves the request as it was, to the byte, and the other side receives
   nothing. Method: each bad call on a request that is zeroed, done and in flight; then a message
   of the same tag. */
static tutti_status refuse_all(rank_context *c, tutti_request *r, tutti_status expected, tutti_error *err)
{
    static unsigned char byte;
    const int other = 1 - c->rank;
    const struct { int peer; tutti_buffer b; } bad[] = {
        { c->size, tutti_nothing() },
        { -2, tutti_nothing() },
        { other, tutti_host(NULL, 4, TUTTI_F32) },
        { other, tutti_host(&byte, SIZE_MAX / 2, TUTTI_F32) },
        { other, tutti_host(&byte, 1, TUTTI_U8) }, /* only the last is refused for the request's sake alone */
    };
    const size_t n = TUTTI_LENGTH(bad) - (expected == TUTTI_ERR_USAGE);
    unsigned char before[sizeof *r];
    tutti_error said;

    memcpy(before, r, sizeof *r);
    for (size_t k = 0; k < n; k++) {
        CHECK(c->ops->send(c->t, r, bad[k].peer, 5, NULL, bad[k].b, &said) == expected);
        CHECK(c->ops->recv(c->t, r, bad[k].peer, 5, bad[k].b, &said) == expected);
        CHECK(memcmp(before, r, sizeof *r) == 0);
    }
    return TUTTI_OK;
}

static tutti_status refused(rank_context *c, tutti_error *err)
{
    const tutti_header note = { .a = 7 };
    tutti_request r = { 0 }, s = { 0 };
    int64_t word = 0;

    TUTTI_TRY(refuse_all(c, &r, TUTTI_ERR_USAGE, err));
    c->ops->cancel(c->t, &r); /* nothing */
    TUTTI_TRY(wait_one(c, &r, err));
    TUTTI_TRY(c->ops->recv(c->t, &r, c->rank, 6, tutti_nothing(), err));
    TUTTI_TRY(refuse_all(c, &r, TUTTI_ERR_STATE, err));
    TUTTI_TRY(c->ops->send(c->t, &s, c->rank, 6, &note, tutti_nothing(), err));
    TUTTI_TRY(wait_one(c, &r, err)); /* it was in flight all the time */
    TUTTI_TRY(wait_one(c, &s, err));
    CHECK(r.status == TUTTI_OK && r.note.a == 7);
    TUTTI_TRY(refuse_all(c, &r, TUTTI_ERR_USAGE, err));
    CHECK(tutti_request_done(&r) && r.note.a == 7);
    s = (tutti_request){ 0 };
    TUTTI_TRY(c->ops->send(c->t, &s, 1 - c->rank, 5, &note, tutti_nothing(), err));
    TUTTI_TRY(recv_word(c, 1 - c->rank, 5, &word, err));
    CHECK(word == 7);
    return wait_one(c, &s, err);
}

static void a_refused_call_leaves_the_request_as_it_was(const conformance_subject *s)
{
    all_well(s, 2, 1, refused);
}

/* Goal: a call that fails for want of memory posts nothing. There is nothing in flight and
   nothing to cancel, the other side receives nothing, and the request may be posted again.
   Method: post without memory until it is needed. The seed selects what: 0 receives, 1 sends. */
enum { POSTS_MOST = 4096, POSTED_BYTES = 70000 };

static tutti_status post(rank_context *c, tutti_request *r, unsigned char *data, tutti_error *err)
{
    const tutti_buffer b = tutti_host(data, POSTED_BYTES, TUTTI_U8);

    return c->seed == 0 ? c->ops->recv(c->t, r, 1, 5, b, err) : c->ops->send(c->t, r, 1, 5, NULL, b, err);
}

static tutti_status post_without_memory(rank_context *c, tutti_request *r, unsigned char *data, tutti_error *err)
{
    tutti_status status = TUTTI_OK;
    tutti_error said;
    size_t n = 0, done = 0;

    while (status == TUTTI_OK && n < POSTS_MOST) {
        c->subject->starve(true);
        status = post(c, &r[n], data, &said);
        c->subject->starve(false);
        n += status == TUTTI_OK;
    }
    CHECK(status == TUTTI_ERR_MEMORY && said.status == status && said.text[0] != '\0');
    CHECK(!r[n].posted);
    c->ops->cancel(c->t, &r[n]);
    CHECK(c->ops->wait_some(c->t, &(tutti_request *){ &r[n] }, 1, 1, 0, &done, err) == TUTTI_OK && done == 1);
    TUTTI_TRY(post(c, &r[n], data, err));
    CHECK(r[n].posted);
    for (size_t k = 0; k <= n; k++)
        c->ops->cancel(c->t, &r[k]);
    TUTTI_TRY(meet(c, 6, err)); /* the other one receives only now, what is still there */
    return send_word(c, 1, 5, 4711, err);
}

static tutti_status starved(rank_context *c, tutti_error *err)
{
    tutti_request *r = calloc(POSTS_MOST + 1, sizeof *r);
    unsigned char *data = calloc(1, POSTED_BYTES);
    tutti_status status = TUTTI_OK;
    int64_t word = 0;

    if (c->rank == 0)
        status = post_without_memory(c, r, data, err);
    else {
        status = meet(c, 6, err);
        if (status == TUTTI_OK)
            status = recv_word(c, 0, 5, &word, err);
        if (status == TUTTI_OK && word != 4711)
            status = tutti_fail(err, TUTTI_ERR_STATE, 0, "a message came that was not posted, or was taken back");
    }
    if (status == TUTTI_OK)
        status = meet(c, 7, err);
    for (size_t k = 0; k <= POSTS_MOST; k++)
        c->ops->cancel(c->t, &r[k]);
    free(data);
    free(r);
    return status;
}

static void a_call_without_memory_posts_nothing(const conformance_subject *s)
{
    for (uint64_t seed = 0; seed < 2 && s->starve != NULL; seed++)
        all_well(s, 2, seed, starved);
}

/* Goal: a payload larger than the receive's buffer is CORRUPT at the receiver with its size, done
   at the sender, and harms no other. */
static tutti_status too_large(rank_context *c, tutti_error *err)
{
    static const size_t sizes[] = { 2, 100, 5000, 3000000 };
    const int to = (c->rank + 1) % c->size, from = (c->rank + c->size - 1) % c->size;
    unsigned char *out = malloc(3000000), small[65];
    tutti_status status = TUTTI_OK;

    memset(out, 1, 3000000);
    for (size_t i = 0; i < 2 * TUTTI_LENGTH(sizes) && status == TUTTI_OK; i++) {
        const size_t bytes = sizes[i / 2], room = bytes < 64 ? bytes - 1 : 64;
        tutti_request a = { 0 }, b = { 0 }, *list[2] = { &a, &b };
        memset(small, 0xEE, sizeof small);
        if (i % 2 == 0)
            status = c->ops->recv(c->t, &b, from, 1, bytes_of(small, room), err);
        if (status == TUTTI_OK)
            status = c->ops->send(c->t, &a, to, 1, NULL, bytes_of(out, bytes), err);
        if (status == TUTTI_OK && i % 2 == 1)
            status = meet(c, 1000 + i, err);
        if (status == TUTTI_OK && i % 2 == 1)
            status = c->ops->recv(c->t, &b, from, 1, bytes_of(small, room), err);
        if (status == TUTTI_OK)
            status = wait_all(c, list, 2, err);
        if (status == TUTTI_OK && (a.status != TUTTI_OK || b.status != TUTTI_ERR_CORRUPT || b.note.bytes != bytes ||
                                   b.note.from != from || small[room] != 0xEE))
            status = tutti_fail(err, TUTTI_ERR_STATE, 0, "%zu bytes into %zu: sender %s, receiver %s, %llu bytes",
                                bytes, room, tutti_status_name(a.status), tutti_status_name(b.status),
                                (unsigned long long)b.note.bytes);
        b = (tutti_request){ 0 };
        if (status == TUTTI_OK)
            status = c->ops->recv(c->t, &b, from, 1, tutti_nothing(), err);
        if (status == TUTTI_OK)
            status = send_word(c, to, 1, 5, err);
        if (status == TUTTI_OK)
            status = wait_one(c, &b, err);
        c->ops->cancel(c->t, &b);
    }
    free(out);
    return status;
}

static void an_oversized_payload_is_reported_with_its_size(const conformance_subject *s)
{
    int n;
    FOR_EACH_SIZE(n)
        all_well(s, n, 1, too_large);
}

/* Goal: nothing is lost when far more is posted than any ring holds. */
static tutti_status flood(rank_context *c, tutti_error *err)
{
    enum { COUNT = 1500 };
    const int to = (c->rank + 1) % c->size, from = (c->rank + c->size - 1) % c->size;
    tutti_request *requests = calloc(COUNT, sizeof *requests), **list = calloc(COUNT, sizeof *list);
    unsigned char payload[300];
    tutti_status status = TUTTI_OK;
    int64_t word;

    memset(payload, 3, sizeof payload);
    for (size_t i = 0; i < COUNT && status == TUTTI_OK; i++) {
        const tutti_header note = { .a = (int64_t)i };
        list[i] = &requests[i];
        status = c->ops->send(c->t, list[i], to, i % 3, &note, bytes_of(payload, i % 200), err);
    }
    for (int64_t i = 0; i < COUNT && status == TUTTI_OK; i++) {
        tutti_request r = { 0 };
        status = c->ops->recv(c->t, &r, from, (uint64_t)i % 3, bytes_of(payload, sizeof payload), err);
        if (status == TUTTI_OK)
            status = wait_one(c, &r, err);
        word = r.note.a;
        if (status == TUTTI_OK && (r.status != TUTTI_OK || word != i))
            status =
                tutti_fail(err, TUTTI_ERR_STATE, 0, "message %lld came instead of %lld", (long long)word, (long long)i);
    }
    if (status == TUTTI_OK)
        status = wait_all(c, list, COUNT, err);
    free(requests);
    free(list);
    return status;
}

static void a_flood_loses_nothing(const conformance_subject *s)
{
    int n;
    FOR_EACH_SIZE(n)
        all_well(s, n, 1, flood);
}

/* Goal: several threads of a rank have each its own traffic; each is woken for its own. */
typedef struct thread_arg { rank_context *c; uint64_t index; } thread_arg;

static tutti_status thread_traffic(void *arg, tutti_error *err)
{
    const thread_arg *a = arg;
    rank_context *c = a->c;
    const int to = (c->rank + 1) % c->size, from = (c->rank + c->size - 1) % c->size;
    const tutti_rng sizes = rng_of(c, a->index);
    unsigned char *out = malloc(600000), *in = malloc(600000);
    tutti_status status = TUTTI_OK;

    for (uint64_t i = 0; i < 40 && status == TUTTI_OK; i++) {
        const size_t bytes = size_from(c->subject, sizes, i);
        tutti_request s = { 0 }, r = { 0 };
        fill(out, bytes, a->index * 100 + i);
        status = c->ops->send(c->t, &s, to, a->index, NULL, bytes_of(out, bytes), err);
        if (status == TUTTI_OK)
            status = c->ops->recv(c->t, &r, from, a->index, bytes_of(in, 600000), err);
        if (status == TUTTI_OK)
            status = wait_one(c, &r, err);
        if (status == TUTTI_OK)
            status = wait_one(c, &s, err);
        if (status == TUTTI_OK &&
            (r.status != TUTTI_OK || r.note.bytes != bytes || !filled(in, bytes, a->index * 100 + i)))
            status = tutti_fail(err, TUTTI_ERR_STATE, 0, "thread %llu of rank %d got something else",
                                (unsigned long long)a->index, c->rank);
    }
    free(out);
    free(in);
    return status;
}

static tutti_status many_threads(rank_context *c, tutti_error *err)
{
    enum { THREADS = 4 };
    thread_arg args[THREADS];
    tutti_thread *threads[THREADS] = { NULL };
    tutti_status status = TUTTI_OK;

    for (uint64_t i = 0; i < THREADS && status == TUTTI_OK; i++) {
        args[i] = (thread_arg){ c, i };
        status = tutti_thread_open(&threads[i], c->rt, "traffic", thread_traffic, &args[i], err);
    }
    for (int i = 0; i < THREADS; i++) {
        const tutti_status joined = tutti_thread_join(threads[i], status == TUTTI_OK ? err : NULL);
        if (status == TUTTI_OK)
            status = joined;
    }
    return status;
}

static void threads_of_a_rank_do_not_disturb_each_other(const conformance_subject *s)
{
    all_well(s, 1, 3, many_threads);
    all_well(s, 2, 4, many_threads);
    all_well(s, 3, 5, many_threads);
}

/* Goal: a thread that sleeps is woken by what another thread of its rank does. */
static tutti_status sleeper(void *arg, tutti_error *err)
{
    rank_context *c = arg;
    int64_t word;

    TUTTI_TRY(recv_word(c, c->rank, 1, &word, err));
    CHECK(word == 33);
    return TUTTI_OK;
}

static tutti_status wake_own_thread(rank_context *c, tutti_error *err)
{
    tutti_thread *thread;
    const int64_t start = tutti_now_ns(c->rt);

    TUTTI_TRY(tutti_thread_open(&thread, c->rt, "sleeper", sleeper, c, err));
    tutti_sleep_until(c->rt, soon(c, 30));
    TUTTI_TRY(send_word(c, c->rank, 1, 33, err));
    TUTTI_TRY(tutti_thread_join(thread, err));
    CHECK(tutti_now_ns(c->rt) - start < (int64_t)20000000000); /* before its own deadline */
    return meet(c, 2, err);
}

static void a_thread_is_woken_by_its_own_rank(const conformance_subject *s)
{
    all_well(s, 1, 1, wake_own_thread);
    all_well(s, 3, 1, wake_own_thread);
}

/* Goal: any traffic arrives as sent. Method: a schedule that all ranks draw from the seed; each
   posts its part in an order of its own, in batches, and checks every byte. */
static tutti_status random_traffic(rank_context *c, tutti_error *err)
{
    enum { MESSAGES = 120, ROOM = 600001 };
    const tutti_rng draw = rng_of(c, 77), order = rng_of(c, 1000 + (uint64_t)c->rank);
    tutti_request *requests = calloc(2 * MESSAGES, sizeof *requests), **list = calloc(2 * MESSAGES, sizeof *list);
    unsigned char **memory = calloc(2 * MESSAGES, sizeof *memory);
    tutti_status status = TUTTI_OK;
    size_t done;

    for (uint64_t k = 0; k < 2 * MESSAGES && status == TUTTI_OK; k++) {
        const uint64_t place = tutti_permuted(order, 2 * MESSAGES, k), i = place / 2;
        const int from = (int)(tutti_random(draw, 4 * i) % (uint64_t)c->size),
                  to = (int)(tutti_random(draw, 4 * i + 1) % (uint64_t)c->size);
        const size_t bytes = size_from(c->subject, draw, 4 * i + 2);
        const tutti_header note = { .b = (int64_t)i };
        if (place % 2 == 0 && from == c->rank) {
            memory[place] = malloc(bytes + 1);
            fill(memory[place], bytes, i);
            list[place] = &requests[place];
            status = c->ops->send(c->t, list[place], to, 100 + i, &note, bytes_of(memory[place], bytes), err);
        } else if (place % 2 == 1 && to == c->rank) {
            memory[place] = malloc(ROOM);
            list[place] = &requests[place];
            status = c->ops->recv(c->t, list[place], from, 100 + i, bytes_of(memory[place], ROOM), err);
        }
        if (status == TUTTI_OK && tutti_random(order, 5000 + k) % 4 == 0)
            status = c->ops->wait_some(c->t, list, 2 * MESSAGES, 0, 0, &done, err);
    }
    if (status == TUTTI_OK)
        status = wait_all(c, list, 2 * MESSAGES, err);
    for (uint64_t i = 0; i < MESSAGES && status == TUTTI_OK; i++) {
        const tutti_request *r = list[2 * i + 1];
        const size_t bytes = size_from(c->subject, draw, 4 * i + 2);
        if (r != NULL && (r->status != TUTTI_OK || r->note.b != (int64_t)i || r->note.bytes != bytes ||
                          !filled(memory[2 * i + 1], bytes, i)))
            status = tutti_fail(err, TUTTI_ERR_STATE, 0, "message %llu of %zu bytes did not arrive as sent",
                                (unsigned long long)i, bytes);
    }
    for (size_t k = 0; k < 2 * MESSAGES; k++)
        free(memory[k]);
    free(memory);
    free(requests);
    free(list);
    return status;
}

static void random_traffic_arrives_as_sent(const conformance_subject *s)
{
    int n;
    for (uint64_t seed = 0; seed < 3; seed++) {
        FOR_EACH_SIZE(n)
            all_well(s, n, seed, random_traffic);
    }
}

/* Goal: no rank burns a core while it waits. Method: the CPU time of a thread that waits 300 ms,
   for a message that does come and for one that does not. */
static int64_t cpu_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static tutti_status idle_wait(rank_context *c, tutti_error *err)
{
    tutti_request r = { 0 }, *list = &r;
    int64_t start;
    size_t done;

    TUTTI_TRY(meet(c, 1, err));
    if (c->rank == 0)
        tutti_sleep_until(c->rt, soon(c, 300));
    start = cpu_ns();
    TUTTI_TRY(meet(c, 2, err));
    CHECK(c->rank == 0 || cpu_ns() - start < 30000000);
    TUTTI_TRY(c->ops->recv(c->t, &r, TUTTI_ANY, 3, tutti_nothing(), err));
    start = cpu_ns();
    CHECK(c->ops->wait_some(c->t, &list, 1, 1, soon(c, 300), &done, err) == TUTTI_TIMEOUT);
    CHECK(cpu_ns() - start < 30000000);
    c->ops->cancel(c->t, &r);
    return meet(c, 4, err); /* one that leaves earlier ends the others' ANY */
}

static void a_waiting_rank_burns_no_core(const conformance_subject *s)
{
    all_well(s, 2, 1, idle_wait);
    all_well(s, 7, 1, idle_wait);
}

const conformance_test conformance_messages[] = {
    { "payloads_of_all_sizes_arrive_whole", payloads_of_all_sizes_arrive_whole, false },
    { "messages_of_one_sender_and_tag_keep_their_order", messages_of_one_sender_and_tag_keep_their_order, false },
    { "a_receive_matches_its_own_tag_only", a_receive_matches_its_own_tag_only, false },
    { "a_receive_from_any_matches_every_sender", a_receive_from_any_matches_every_sender, false },
    { "wait_some_counts_completed_requests_and_keeps_its_deadline",
      wait_some_counts_completed_requests_and_keeps_its_deadline, false },
    { "invalid_transport_calls_are_rejected_with_a_message", invalid_transport_calls_are_rejected_with_a_message,
      false },
    { "a_refused_call_leaves_the_request_as_it_was", a_refused_call_leaves_the_request_as_it_was, false },
    { "a_call_without_memory_posts_nothing", a_call_without_memory_posts_nothing, false },
    { "an_oversized_payload_is_reported_with_its_size",
      an_oversized_payload_is_reported_with_its_size, false },
    { "a_flood_loses_nothing", a_flood_loses_nothing, false },
    { "threads_of_a_rank_do_not_disturb_each_other", threads_of_a_rank_do_not_disturb_each_other, false },
    { "a_thread_is_woken_by_its_own_rank", a_thread_is_woken_by_its_own_rank, false },
    { "random_traffic_arrives_as_sent", random_traffic_arrives_as_sent, false },
    { "a_waiting_rank_burns_no_core", a_waiting_rank_burns_no_core, false },
    { NULL, NULL, false },
};
