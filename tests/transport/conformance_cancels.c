/* conformance_cancels.c: taking back what was posted, at every stage of a message's way. */
#include <stdlib.h>
#include <string.h>
#include "conformance_internal.h"

enum { CANCEL_ROUNDS = 8 };

static tutti_buffer bytes_of(void *data, size_t bytes) { return tutti_host(data, bytes, TUTTI_U8); }
static size_t much_of(const rank_context *c) { return c->subject->much != 0 ? c->subject->much : (size_t)6 << 20; }

/* Goal: a cancelled receive has consumed nothing; its memory is not touched again. */
static tutti_status cancel_unmatched(rank_context *c, tutti_error *err)
{
    const int to = (c->rank + 1) % c->size, from = (c->rank + c->size - 1) % c->size;
    static const size_t sizes[] = { 1, 150, 70000 };
    unsigned char *out = malloc(70000), *in = malloc(70000);
    tutti_status status = TUTTI_OK;

    for (size_t i = 0; i < TUTTI_LENGTH(sizes) && status == TUTTI_OK; i++) {
        tutti_request r = { 0 }, s = { 0 }, *list = &r;
        size_t done;
        fill(out, sizes[i], i);
        memset(in, 0xEE, sizes[i]);
        status = c->ops->recv(c->t, &r, from, i, bytes_of(in, sizes[i]), err);
        if (status == TUTTI_OK && c->ops->wait_some(c->t, &list, 1, 1, soon(c, 1), &done, err) != TUTTI_TIMEOUT)
            status = tutti_fail(err, TUTTI_ERR_STATE, 0, "a receive was done before the send");
        c->ops->cancel(c->t, &r);
        if (status == TUTTI_OK)
            status = meet(c, 500, err);
        if (status == TUTTI_OK)
            status = c->ops->send(c->t, &s, to, i, NULL, bytes_of(out, sizes[i]), err);
        if (status == TUTTI_OK)
            status = meet(c, 501, err);
        if (status == TUTTI_OK && (r.done || in[0] != 0xEE))
            status = tutti_fail(err, TUTTI_ERR_STATE, 0, "a cancelled receive took a message");
        r = (tutti_request){ 0 };
        if (status == TUTTI_OK)
            status = c->ops->recv(c->t, &r, from, i, bytes_of(in, sizes[i]), err);
        if (status == TUTTI_OK)
            status = wait_one(c, &r, err);
        if (status == TUTTI_OK)
            status = wait_one(c, &s, err);
        if (status == TUTTI_OK && !filled(in, sizes[i], i))
            status = tutti_fail(err, TUTTI_ERR_STATE, 0, "%zu bytes did not arrive after a cancel", sizes[i]);
    }
    free(out);
    free(in);
    return status;
}

static void a_cancelled_receive_has_consumed_nothing(const conformance_subject *s)
{
    all_well(s, 1, 1, cancel_unmatched);
    all_well(s, 2, 1, cancel_unmatched);
    all_well(s, 7, 1, cancel_unmatched);
}

/* Goal: the same in the middle of a transfer. Method: rank 0 sends far more than any ring holds and makes progress only
   between words; rank 1 cancels after a few words, and at last receives the message whole, in its place before a later one. */
static tutti_status cancel_receive_midway(rank_context *c, tutti_error *err)
{
    const size_t much = much_of(c);
    unsigned char *data = malloc(much), *trap = malloc(much);
    tutti_status status = TUTTI_OK;
    tutti_request big = { 0 }, later = { 0 };

    if (c->rank == 0) {
        const tutti_note note = { .a = 4711 };
        fill(data, much, 1);
        status = c->ops->send(c->t, &big, 1, 1, NULL, bytes_of(data, much), err);
        if (status == TUTTI_OK)
            status = c->ops->send(c->t, &later, 1, 1, &note, tutti_nothing(), err);
    }
    for (int round = 0; round < CANCEL_ROUNDS && status == TUTTI_OK; round++) {
        tutti_request r = { 0 };
        if (c->rank == 1)
            status = c->ops->recv(c->t, &r, 0, 1, bytes_of(trap, much), err);
        for (int word = 0; word < round && status == TUTTI_OK; word++)
            status = meet(c, 2, err);
        if (c->rank == 1) {
            if (r.done && status == TUTTI_OK)
                status = tutti_fail(err, TUTTI_ERR_STATE, 0, "the message is through already: it is too small for this test");
            c->ops->cancel(c->t, &r);
            memset(trap, 0xEE, 4096);
        }
    }
    if (status == TUTTI_OK)
        status = meet(c, 3, err);
    if (c->rank == 0 && status == TUTTI_OK)
        status = wait_one(c, &big, err);
    if (c->rank == 0 && status == TUTTI_OK)
        status = wait_one(c, &later, err);
    c->ops->cancel(c->t, &later);
    if (c->rank == 1 && status == TUTTI_OK) {
        int64_t word = 0;
        status = c->ops->recv(c->t, &big, TUTTI_ANY, 1, bytes_of(data, much), err);
        if (status == TUTTI_OK)
            status = recv_word(c, 0, 1, &word, err);
        if (status == TUTTI_OK)
            status = wait_one(c, &big, err);
        if (status == TUTTI_OK && (big.status != TUTTI_OK || big.note.bytes != much || !filled(data, much, 1) || word != 4711))
            status = tutti_fail(err, TUTTI_ERR_STATE, 0, "a message did not survive that its receive was cancelled midway");
        for (int i = 0; i < 4096 && status == TUTTI_OK; i++) {
            if (trap[i] != 0xEE)
                status = tutti_fail(err, TUTTI_ERR_STATE, 0, "a cancelled receive's room was written to");
        }
    }
    free(data);
    free(trap);
    return status;
}

static void a_receive_cancelled_midway_leaves_the_message_whole(const conformance_subject *s)
{
    all_well(s, 2, 1, cancel_receive_midway);
}

/* Goal: with two receives posted, cancelling the one in transfer gives the message to the other. */
static tutti_status pass_on(rank_context *c, tutti_error *err)
{
    const size_t much = much_of(c);
    unsigned char *data = malloc(much), *trap = malloc(much);
    tutti_request first = { 0 }, second = { 0 };
    tutti_status status = TUTTI_OK;

    fill(data, much, 2);
    if (c->rank == 0)
        status = c->ops->send(c->t, &first, 1, 1, NULL, bytes_of(data, much), err);
    else {
        status = c->ops->recv(c->t, &first, 0, 1, bytes_of(trap, much), err);
        memset(data, 0, much);
        if (status == TUTTI_OK)
            status = c->ops->recv(c->t, &second, 0, 1, bytes_of(data, much), err);
    }
    for (int i = 0; i < 3 && status == TUTTI_OK; i++)
        status = meet(c, 2, err);
    if (c->rank == 1 && status == TUTTI_OK) {
        c->ops->cancel(c->t, &first);
        memset(trap, 0xEE, much);
        status = wait_one(c, &second, err);
        if (status == TUTTI_OK && (second.status != TUTTI_OK || !filled(data, much, 2) || trap[0] != 0xEE || trap[much - 1] != 0xEE))
            status = tutti_fail(err, TUTTI_ERR_STATE, 0, "the second receive did not get what the first gave up");
    } else if (status == TUTTI_OK)
        status = wait_one(c, &first, err);
    free(data);
    free(trap);
    return status;
}

static void a_message_given_up_goes_to_the_next_receive(const conformance_subject *s)
{
    all_well(s, 2, 1, pass_on);
}

/* Goal: a cancelled send vanishes: unmatched, or in mid-transfer, when its receive goes on to wait for the next message. The
   sender's memory is its own again at once. */
static tutti_status cancel_send(rank_context *c, tutti_error *err)
{
    const size_t much = much_of(c);
    unsigned char *data = malloc(much), small[8];
    tutti_status status = TUTTI_OK;

    for (int round = 0; round < CANCEL_ROUNDS && status == TUTTI_OK; round++) {
        tutti_request r = { 0 };
        if (c->rank == 0) {
            fill(data, much, 3);
            status = c->ops->send(c->t, &r, 1, 1, NULL, bytes_of(data, much), err);
        } else if (round % 2 == 0)
            status = c->ops->recv(c->t, &r, 0, 1, bytes_of(data, much), err);
        for (int word = 0; word < round && status == TUTTI_OK; word++)
            status = meet(c, 2, err);
        if (c->rank == 0) {
            tutti_request s = { 0 };
            if (r.done && status == TUTTI_OK)
                status = tutti_fail(err, TUTTI_ERR_STATE, 0, "the message is through already: it is too small for this test");
            c->ops->cancel(c->t, &r);
            memset(data, 0xBB, much);
            fill(small, sizeof small, 9);
            if (status == TUTTI_OK)
                status = c->ops->send(c->t, &s, 1, 1, NULL, bytes_of(small, sizeof small), err);
            if (status == TUTTI_OK)
                status = wait_one(c, &s, err);
        } else {
            if (round % 2 == 1 && status == TUTTI_OK)
                status = c->ops->recv(c->t, &r, 0, 1, bytes_of(data, much), err);
            if (status == TUTTI_OK)
                status = wait_one(c, &r, err);
            if (status == TUTTI_OK && (r.status != TUTTI_OK || r.note.bytes != sizeof small || !filled(data, sizeof small, 9)))
                status = tutti_fail(err, TUTTI_ERR_STATE, 0, "round %d: the receive got %llu bytes instead of the message after the cancelled one", round, (unsigned long long)r.note.bytes);
        }
        if (status == TUTTI_OK)
            status = meet(c, 3, err);
    }
    free(data);
    return status;
}

static void a_cancelled_send_vanishes_and_its_receive_waits_on(const conformance_subject *s)
{
    all_well(s, 2, 1, cancel_send);
}

/* Goal: to oneself too. */
static tutti_status cancel_to_self(rank_context *c, tutti_error *err)
{
    unsigned char *out = malloc(100000), *in = malloc(100000);
    tutti_request s = { 0 }, r = { 0 }, *list[2] = { &s, &r };
    tutti_status status;

    fill(out, 100000, 5);
    status = c->ops->send(c->t, &s, c->rank, 1, NULL, bytes_of(out, 100000), err);
    c->ops->cancel(c->t, &s);
    fill(out, 100000, 6);
    if (status == TUTTI_OK)
        status = c->ops->send(c->t, &s, c->rank, 1, NULL, bytes_of(out, 100000), err);
    if (status == TUTTI_OK)
        status = c->ops->recv(c->t, &r, c->rank, 1, bytes_of(in, 100000), err);
    if (status == TUTTI_OK)
        status = wait_all(c, list, 2, err);
    if (status == TUTTI_OK && !filled(in, 100000, 6))
        status = tutti_fail(err, TUTTI_ERR_STATE, 0, "the cancelled message came");
    free(out);
    free(in);
    return status;
}

static void a_cancelled_send_to_oneself_vanishes(const conformance_subject *s)
{
    all_well(s, 1, 1, cancel_to_self);
    all_well(s, 3, 1, cancel_to_self);
}

/* Goal: cancelling at random moments, both ends at once, loses nothing and corrupts nothing. Method: rank 0 sends numbered
   messages, sometimes takes one back and sends it again; rank 1 receives with random short deadlines. Every number arrives
   once, in order, whole: a send that is taken back either has not arrived or says that it is done. */
static tutti_status random_cancels(rank_context *c, tutti_error *err)
{
    enum { COUNT = 60, MOST = 2000000 };
    const tutti_rng draw = rng_of(c, (uint64_t)c->rank);
    unsigned char *data = malloc(MOST);
    tutti_status status = TUTTI_OK;
    uint64_t k = 0;
    size_t done;

    for (int64_t i = 0; i < COUNT && status == TUTTI_OK;) {
        const size_t bytes = (size_t)(tutti_random(rng_of(c, 9), (uint64_t)i) % MOST);
        const tutti_note note = { .a = i };
        tutti_request r = { 0 }, *list = &r;
        const int64_t patience = (int64_t)(tutti_random(draw, k++) % 300000);
        if (c->rank == 0) {
            fill(data, bytes, (uint64_t)i);
            status = c->ops->send(c->t, &r, 1, 1, &note, bytes_of(data, bytes), err);
        } else
            status = c->ops->recv(c->t, &r, 0, 1, bytes_of(data, MOST), err);
        if (status != TUTTI_OK)
            break;
        status = c->ops->wait_some(c->t, &list, 1, 1, tutti_now_ns(c->rt) + patience, &done, err);
        if (status == TUTTI_TIMEOUT && k % 4 == 0) { /* always giving up would never end */
            status = wait_one(c, &r, err);
        } else if (status == TUTTI_TIMEOUT) {
            status = TUTTI_OK;
            if (c->rank == 1)
                c->ops->cancel(c->t, &r);
            else
                status = wait_one(c, &r, err);
            if (c->rank == 1)
                continue;
        }
        if (status == TUTTI_OK && r.status != TUTTI_OK)
            status = tutti_fail(err, TUTTI_ERR_STATE, 0, "message %lld ended with '%s'", (long long)i, tutti_status_name(r.status));
        if (status == TUTTI_OK && c->rank == 1 && (r.note.a != i || r.note.bytes != bytes || !filled(data, bytes, (uint64_t)i)))
            status = tutti_fail(err, TUTTI_ERR_STATE, 0, "message %lld came in the place of %lld, or damaged", (long long)r.note.a, (long long)i);
        i++;
    }
    free(data);
    return status;
}

static void receives_with_short_deadlines_lose_nothing(const conformance_subject *s)
{
    for (uint64_t seed = 0; seed < 4; seed++)
        all_well(s, 2, seed, random_cancels);
}

/* Goal: cancels from both ends at random: no crash, no hang, and afterwards all works. Contents are not the matter here: a
   message whose send is cancelled may or may not have come. */
static tutti_status storm(rank_context *c, tutti_error *err)
{
    enum { COUNT = 200, MOST = 700000, SLOTS = 6 };
    const tutti_rng draw = rng_of(c, 40 + (uint64_t)c->rank);
    unsigned char *memory = malloc((size_t)SLOTS * MOST);
    tutti_request slots[SLOTS], *list[SLOTS];
    tutti_status status = TUTTI_OK;
    size_t done;

    memset(slots, 0, sizeof slots);
    memset(memory, 1, (size_t)SLOTS * MOST);
    for (uint64_t i = 0; i < COUNT && status == TUTTI_OK; i++) {
        const uint64_t d = tutti_random(draw, i);
        const size_t slot = d % SLOTS;
        const int peer = (int)((d >> 8) % (uint64_t)c->size);
        const tutti_buffer b = bytes_of(memory + slot * MOST, (d >> 24) % MOST);
        for (size_t k = 0; k < SLOTS; k++)
            list[k] = &slots[k];
        if (slots[slot].posted && !slots[slot].done)
            c->ops->cancel(c->t, &slots[slot]);
        else if ((d >> 16) % 2 == 0)
            status = c->ops->send(c->t, &slots[slot], peer, (d >> 20) % 2, NULL, b, err);
        else
            status = c->ops->recv(c->t, &slots[slot], (d >> 21) % 4 == 0 ? TUTTI_ANY : peer, (d >> 20) % 2, b, err);
        if (status == TUTTI_OK)
            status = c->ops->wait_some(c->t, list, SLOTS, 0, 0, &done, err);
    }
    for (size_t k = 0; k < SLOTS; k++)
        c->ops->cancel(c->t, &slots[k]);
    for (uint64_t tag = 100; tag < 110 && status == TUTTI_OK; tag++)
        status = meet(c, tag, err);
    free(memory);
    return status;
}

static void a_storm_of_cancels_leaves_all_in_order(const conformance_subject *s)
{
    for (uint64_t seed = 0; seed < 6; seed++)
        all_well(s, 1 + (int)seed, seed, storm);
}

const conformance_test conformance_cancels[] = {
    { "a_cancelled_receive_has_consumed_nothing", a_cancelled_receive_has_consumed_nothing, false },
    { "a_receive_cancelled_midway_leaves_the_message_whole", a_receive_cancelled_midway_leaves_the_message_whole, false },
    { "a_message_given_up_goes_to_the_next_receive", a_message_given_up_goes_to_the_next_receive, false },
    { "a_cancelled_send_vanishes_and_its_receive_waits_on", a_cancelled_send_vanishes_and_its_receive_waits_on, false },
    { "a_cancelled_send_to_oneself_vanishes", a_cancelled_send_to_oneself_vanishes, false },
    { "receives_with_short_deadlines_lose_nothing", receives_with_short_deadlines_lose_nothing, false },
    { "a_storm_of_cancels_leaves_all_in_order", a_storm_of_cancels_leaves_all_in_order, false },
    { NULL, NULL, false },
};
