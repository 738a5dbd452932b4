/* conformance_cancels.c: taking back what was posted, at every stage of a message's way. */
#include <stdlib.h>
#include <string.h>
#include "conformance_internal.h"

enum { CANCEL_ROUNDS = 8 };

static tutti_buffer bytes_of(void *data, size_t bytes) { return tutti_host(data, bytes, TUTTI_U8); }

/* A message too large to get through completely while a few control messages are exchanged. How
   large that is depends on the machine's buffers and on which rank is held up for how long, so it
   is found by trial: the rank that cancels something reports to the other whether it was through
   already; then both begin again with twice as much. */
enum { MUCH = 4 << 20, TOO_MUCH = 1 << 30, TOLD = 99 };
typedef struct transfer { size_t bytes; unsigned char *data, *trap; } transfer;

static tutti_status grow(transfer *t, tutti_error *err)
{
    t->bytes = t->bytes == 0 ? MUCH : 2 * t->bytes;
    free(t->data);
    free(t->trap);
    t->data = t->trap = NULL;
    if (t->bytes > TOO_MUCH)
        return tutti_fail(err, TUTTI_ERR_STATE, 0,
                          "a message of %zu bytes was through when it was to be taken back midway", t->bytes / 2);
    t->data = malloc(t->bytes);
    t->trap = malloc(t->bytes);
    return t->data != NULL && t->trap != NULL
               ? TUTTI_OK
               : tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory for a message of %zu bytes", t->bytes);
}

static void drop(transfer *t)
{
    free(t->data);
    free(t->trap);
}

/* From rank `who`, which has seen it, to the other. */
static tutti_status tell(rank_context *c, int who, bool *through, tutti_error *err)
{
    int64_t word = *through;

    if (c->rank == who)
        return send_word(c, 1 - who, TOLD, word, err);
    TUTTI_TRY(recv_word(c, who, TOLD, &word, err));
    *through = word != 0;
    return TUTTI_OK;
}

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

/* Goal: the same in the middle of a transfer. Method: rank 0 sends much and makes progress only
   between control messages; rank 1 cancels after a few control messages, and at last receives the
   message whole, in its place before a later one. */
static tutti_status receive_midway(rank_context *c, transfer *t, tutti_error *err)
{
    tutti_request big = { 0 }, later = { 0 };
    const tutti_header note = { .a = 4711 };
    int64_t word = 0;

    for (int round = 0; round < CANCEL_ROUNDS; round++) {
        tutti_request r = { 0 };
        bool through = t->bytes == 0;
        if (!through && c->rank == 1)
            TUTTI_TRY(c->ops->recv(c->t, &r, 0, 1, bytes_of(t->trap, t->bytes), err));
        for (int i = 0; i < round && !through; i++)
            TUTTI_TRY(meet(c, 2, err));
        if (!through) {
            through = r.done;
            if (c->rank == 1)
                c->ops->cancel(c->t, &r);
            TUTTI_TRY(tell(c, 1, &through, err));
            if (through && c->rank == 1 && (r.status != TUTTI_OK || !filled(t->trap, t->bytes, 1)))
                return tutti_fail(err, TUTTI_ERR_STATE, 0,
                                  "a message was through when its receive was cancelled, and is not whole");
            if (c->rank == 1)
                memset(t->trap, 0xEE, 4096);
            if (!through)
                continue;
            if (c->rank == 0)
                TUTTI_TRY(wait_one(c, &big, err));
        }
        TUTTI_TRY(grow(t, err));
        if (c->rank == 0) {
            fill(t->data, t->bytes, 1);
            big = (tutti_request){ 0 };
            TUTTI_TRY(c->ops->send(c->t, &big, 1, 1, NULL, bytes_of(t->data, t->bytes), err));
        }
        round--;
    }
    if (c->rank == 0) {
        TUTTI_TRY(c->ops->send(c->t, &later, 1, 1, &note, tutti_nothing(), err));
        TUTTI_TRY(meet(c, 3, err));
        TUTTI_TRY(wait_one(c, &big, err));
        return wait_one(c, &later, err);
    }
    TUTTI_TRY(meet(c, 3, err));
    TUTTI_TRY(c->ops->recv(c->t, &big, TUTTI_ANY, 1, bytes_of(t->data, t->bytes), err));
    TUTTI_TRY(recv_word(c, 0, 1, &word, err));
    TUTTI_TRY(wait_one(c, &big, err));
    if (big.status != TUTTI_OK || big.note.bytes != t->bytes || !filled(t->data, t->bytes, 1) || word != 4711)
        return tutti_fail(err, TUTTI_ERR_STATE, 0, "a message did not survive that its receive was cancelled midway");
    for (int i = 0; i < 4096; i++)
        if (t->trap[i] != 0xEE)
            return tutti_fail(err, TUTTI_ERR_STATE, 0, "a cancelled receive's room was written to");
    return TUTTI_OK;
}

static tutti_status cancel_receive_midway(rank_context *c, tutti_error *err)
{
    transfer t = { 0 };
    const tutti_status status = receive_midway(c, &t, err);

    drop(&t);
    return status;
}

static void a_receive_cancelled_midway_leaves_the_message_whole(const conformance_subject *s)
{
    all_well(s, 2, 1, cancel_receive_midway);
}

/* Goal: with two receives posted, cancelling the one in transfer gives the message to the other. */
static tutti_status pass_on_with(rank_context *c, transfer *t, tutti_error *err)
{
    for (bool through = true; through;) {
        tutti_request first = { 0 }, second = { 0 };
        TUTTI_TRY(grow(t, err));
        fill(t->data, t->bytes, 2);
        if (c->rank == 0)
            TUTTI_TRY(c->ops->send(c->t, &first, 1, 1, NULL, bytes_of(t->data, t->bytes), err));
        else {
            TUTTI_TRY(c->ops->recv(c->t, &first, 0, 1, bytes_of(t->trap, t->bytes), err));
            memset(t->data, 0, t->bytes);
            TUTTI_TRY(c->ops->recv(c->t, &second, 0, 1, bytes_of(t->data, t->bytes), err));
        }
        for (int i = 0; i < 3; i++)
            TUTTI_TRY(meet(c, 2, err));
        through = first.done;
        if (c->rank == 1) {
            c->ops->cancel(c->t, through ? &second : &first);
            memset(t->trap, 0xEE, t->bytes);
        }
        TUTTI_TRY(tell(c, 1, &through, err));
        if (c->rank == 0)
            TUTTI_TRY(wait_one(c, &first, err));
        else if (!through) {
            TUTTI_TRY(wait_one(c, &second, err));
            if (second.status != TUTTI_OK || !filled(t->data, t->bytes, 2) || t->trap[0] != 0xEE ||
                t->trap[t->bytes - 1] != 0xEE)
                return tutti_fail(err, TUTTI_ERR_STATE, 0, "the second receive did not get what the first gave up");
        }
    }
    return TUTTI_OK;
}

static tutti_status pass_on(rank_context *c, tutti_error *err)
{
    transfer t = { 0 };
    const tutti_status status = pass_on_with(c, &t, err);

    drop(&t);
    return status;
}

static void a_cancelled_receives_message_goes_to_the_next(const conformance_subject *s)
{
    all_well(s, 2, 1, pass_on);
}

/* Goal: a cancelled send vanishes: unmatched, or in mid-transfer, when its receive then waits for
   the next message. The sender's memory is its own again at once. */
static tutti_status send_midway(rank_context *c, transfer *t, tutti_error *err)
{
    unsigned char small[8];

    fill(small, sizeof small, 9);
    TUTTI_TRY(grow(t, err));
    for (int round = 0; round < CANCEL_ROUNDS; round++) {
        tutti_request r = { 0 }, s = { 0 };
        bool through;
        if (c->rank == 0) {
            fill(t->data, t->bytes, 3);
            TUTTI_TRY(c->ops->send(c->t, &r, 1, 1, NULL, bytes_of(t->data, t->bytes), err));
        } else if (round % 2 == 0)
            TUTTI_TRY(c->ops->recv(c->t, &r, 0, 1, bytes_of(t->data, t->bytes), err));
        for (int i = 0; i < round; i++)
            TUTTI_TRY(meet(c, 2, err));
        through = r.done;
        if (c->rank == 0) {
            c->ops->cancel(c->t, &r);
            memset(t->data, 0xBB, t->bytes);
        }
        TUTTI_TRY(tell(c, 0, &through, err));
        if (c->rank == 0) {
            TUTTI_TRY(c->ops->send(c->t, &s, 1, 1, NULL, bytes_of(small, sizeof small), err));
            TUTTI_TRY(wait_one(c, &s, err));
        } else {
            if (round % 2 == 1)
                TUTTI_TRY(c->ops->recv(c->t, &r, 0, 1, bytes_of(t->data, t->bytes), err));
            TUTTI_TRY(wait_one(c, &r, err));
            /* it had all come before its sender learned of that */
            if (r.status == TUTTI_OK && r.note.bytes == t->bytes && filled(t->data, t->bytes, 3)) {
                through = true;
                r = (tutti_request){ 0 };
                TUTTI_TRY(c->ops->recv(c->t, &r, 0, 1, bytes_of(t->data, t->bytes), err));
                TUTTI_TRY(wait_one(c, &r, err));
            } else if (through)
                return tutti_fail(err, TUTTI_ERR_STATE, 0,
                                  "round %d: a message was through when it was to be taken back, and is not whole",
                                  round);
            if (r.status != TUTTI_OK || r.note.bytes != sizeof small || !filled(t->data, sizeof small, 9))
                return tutti_fail(err, TUTTI_ERR_STATE, 0,
                                  "round %d: the receive got %llu bytes instead of the message after the cancelled one",
                                  round, (unsigned long long)r.note.bytes);
        }
        TUTTI_TRY(tell(c, 1, &through, err));
        TUTTI_TRY(meet(c, 3, err));
        if (through) {
            TUTTI_TRY(grow(t, err));
            round--;
        }
    }
    return TUTTI_OK;
}

static tutti_status cancel_send(rank_context *c, tutti_error *err)
{
    transfer t = { 0 };
    const tutti_status status = send_midway(c, &t, err);

    drop(&t);
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

/* Goal: cancelling at random moments, both ends at once, loses nothing and corrupts nothing.
   Method: rank 0 sends numbered messages, sometimes takes one back and sends it again; rank 1
   receives with random short deadlines. Every number arrives once, in order, whole: a send that
   is taken back either has not arrived or reports that it is done. */
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
        const tutti_header note = { .a = i };
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
            if (c->rank == 1 && !r.done) /* else it came between the deadline and the cancel, and is taken */
                continue;
        }
        if (status == TUTTI_OK && r.status != TUTTI_OK)
            status = tutti_fail(err, TUTTI_ERR_STATE, 0, "message %lld ended with '%s'", (long long)i,
                                tutti_status_name(r.status));
        if (status == TUTTI_OK && c->rank == 1 &&
            (r.note.a != i || r.note.bytes != bytes || !filled(data, bytes, (uint64_t)i)))
            status = tutti_fail(err, TUTTI_ERR_STATE, 0, "message %lld came in the place of %lld, or damaged",
                                (long long)r.note.a, (long long)i);
        i++;
    }
    free(data);
    return status;
}

static void receives_with_short_deadlines_lose_nothing(const conformance_subject *s)
{
    for (uint64_t seed = 0; seed < UNLESS_SANITIZED(4, 2); seed++)
        all_well(s, 2, seed, random_cancels);
}

/* Goal: cancels from both ends at random: no crash, no hang, and afterwards all works. Contents are
   not the matter here: a message whose send is cancelled may or may not have come. */
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

static void random_cancels_do_not_break_the_transport(const conformance_subject *s)
{
    for (uint64_t seed = 0; seed < 6; seed++)
        all_well(s, 1 + (int)seed, seed, storm);
}

const conformance_test conformance_cancels[] = {
    { "a_cancelled_receive_has_consumed_nothing", a_cancelled_receive_has_consumed_nothing, false },
    { "a_receive_cancelled_midway_leaves_the_message_whole", a_receive_cancelled_midway_leaves_the_message_whole,
      false },
    { "a_cancelled_receives_message_goes_to_the_next", a_cancelled_receives_message_goes_to_the_next, false },
    { "a_cancelled_send_vanishes_and_its_receive_waits_on", a_cancelled_send_vanishes_and_its_receive_waits_on, false },
    { "a_cancelled_send_to_oneself_vanishes", a_cancelled_send_to_oneself_vanishes, false },
    { "receives_with_short_deadlines_lose_nothing", receives_with_short_deadlines_lose_nothing, false },
    { "random_cancels_do_not_break_the_transport", random_cancels_do_not_break_the_transport, false },
    { NULL, NULL, false },
};
