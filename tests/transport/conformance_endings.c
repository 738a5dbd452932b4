/* conformance_endings.c: ranks that leave and ranks that die. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include "conformance_internal.h"

static tutti_buffer bytes_of(void *data, size_t bytes) { return tutti_host(data, bytes, TUTTI_U8); }

/* Goal: what a rank sent before it left is received; what it cannot send any
   more ends with PEER and its rank. */
static tutti_status leave_early(rank_context *c, tutti_error *err)
{
    enum { COUNT = 30 };
    tutti_request r = { 0 };
    char why[100];

    if (c->rank == 1) {
        for (int64_t i = 0; i < COUNT; i++)
            TUTTI_TRY(send_word(c, 0, 1, i, err));
        return TUTTI_OK;
    }
    if (c->rank == 0) {
        TUTTI_TRY(c->ops->recv(c->t, &r, 1, 2, tutti_nothing(), err)); /* never sent */
        if (!c->subject->strict) { /* else it does not leave before its messages are received */
            TUTTI_TRY(wait_one(c, &r, err));
            CHECK(r.status == TUTTI_ERR_PEER && r.rank == 1);
        }
        for (int64_t i = 0, word; i < COUNT; i++) {
            TUTTI_TRY(recv_word(c, 1, 1, &word, err));
            CHECK(word == i);
        }
        TUTTI_TRY(wait_one(c, &r, err));
        CHECK(r.status == TUTTI_ERR_PEER && r.rank == 1);
        r = (tutti_request){ 0 };
        TUTTI_TRY(c->ops->recv(c->t, &r, 1, 1, tutti_nothing(), err));
        TUTTI_TRY(wait_one(c, &r, err));
        CHECK(r.status == TUTTI_ERR_PEER && r.rank == 1);
        r = (tutti_request){ 0 };
        TUTTI_TRY(c->ops->send(c->t, &r, 1, 1, NULL, tutti_nothing(), err));
        TUTTI_TRY(wait_one(c, &r, err));
        CHECK(r.status == TUTTI_ERR_PEER && r.rank == 1);
        CHECK(c->ops->dead_peer(c->t, why, sizeof why) == -1); /* it left in order */
        for (int i = 2; i < c->size; i++)
            TUTTI_TRY(send_word(c, i, 3, 0, err));
    } else
        TUTTI_TRY(recv_word(c, 0, 3, NULL, err));
    return TUTTI_OK;
}

static void messages_sent_before_departure_are_received(const conformance_subject *s)
{
    all_well(s, 2, 1, leave_early);
    all_well(s, 7, 1, leave_early);
}

static tutti_status meet_without(rank_context *c, int victim, uint64_t tag, tutti_error *err)
{
    const int hub = victim == 0;

    for (int peer = 0; peer < c->size && c->rank == hub; peer++)
        if (peer != hub && peer != victim)
            TUTTI_TRY(recv_word(c, peer, tag, NULL, err));
    if (c->rank != hub) {
        TUTTI_TRY(send_word(c, hub, tag, 0, err));
        return recv_word(c, hub, tag, NULL, err);
    }
    for (int peer = 0; peer < c->size; peer++)
        if (peer != hub && peer != victim)
            TUTTI_TRY(send_word(c, peer, tag, 0, err));
    return TUTTI_OK;
}

/* Goal: every kind of request that needs a dead rank ends with PEER and its rank: small and large
   sends, receives, one in transfer; those that do not need it continue; a receive from ANY ends
   only when no other rank is left. */
static tutti_status need_the_dead(rank_context *c, tutti_error *err)
{
    enum { BIG = 4 << 20 };
    const int victim = c->size - 1;
    unsigned char *data = calloc(1, BIG);
    tutti_request r[4], any = { 0 }, *list[4];
    tutti_status status;
    char why[200];

    memset(r, 0, sizeof r);
    for (int i = 0; i < 4; i++)
        list[i] = &r[i];
    if (c->rank == victim) {
        /* Takes part of rank 0's large message, then dies. */
        status = c->ops->recv(c->t, &r[0], 0, 1, bytes_of(data, BIG), err);
        for (int peer = 0; peer < victim && status == TUTTI_OK; peer++)
            status = recv_word(c, peer, 9, NULL, err);
        if (status == TUTTI_OK)
            status = die(c, err);
        c->ops->cancel(c->t, &r[0]);
        free(data);
        return status;
    }
    status = c->ops->send(c->t, &r[0], victim, 1, NULL, bytes_of(data, BIG), err);
    if (status == TUTTI_OK)
        status = c->ops->send(c->t, &r[1], victim, 2, NULL, bytes_of(data, BIG), err);
    if (status == TUTTI_OK)
        status = c->ops->recv(c->t, &r[2], victim, 3, tutti_nothing(), err);
    if (status == TUTTI_OK)
        status = c->ops->recv(c->t, &r[3], victim, 4, bytes_of(data, 0), err);
    if (status == TUTTI_OK)
        status = c->ops->recv(c->t, &any, TUTTI_ANY, 5, tutti_nothing(), err);
    if (status == TUTTI_OK)
        status = send_word(c, victim, 9, 0, err);
    if (status == TUTTI_OK)
        status = wait_all(c, list, 4, err);
    /* the first may have got through */
    for (int i = c->rank == 0 && r[0].status == TUTTI_OK ? 1 : 0; i < 4 && status == TUTTI_OK; i++) {
        if (r[i].status != TUTTI_ERR_PEER || r[i].rank != victim)
            status = tutti_fail(err, TUTTI_ERR_STATE, 0, "request %d of rank %d ended with '%s', rank %d", i, c->rank,
                                tutti_status_name(r[i].status), r[i].rank);
    }
    free(data);
    TUTTI_TRY(status);
    CHECK(c->ops->dead_peer(c->t, why, sizeof why) == victim);
    CHECK(strstr(why, c->subject->processes ? "signal 9 (Killed)" : "as the test wants it") != NULL);
    if (c->size == 2) { /* no other rank is left */
        TUTTI_TRY(wait_one(c, &any, err));
        CHECK(any.status == TUTTI_ERR_PEER && any.rank == victim);
        return TUTTI_OK;
    }
    CHECK(!any.done || any.status == TUTTI_OK); /* a fast survivor's message may be there */
    TUTTI_TRY(send_word(c, (c->rank + 1) % victim, 5, 42, err)); /* the survivors have their ring */
    TUTTI_TRY(wait_one(c, &any, err));
    CHECK(any.status == TUTTI_OK && any.note.a == 42);
    /* No rank leaves before all have theirs: else the last one's ANY could end by that. */
    return meet_without(c, victim, 6, err);
}

static void requests_with_a_dead_rank_end_and_others_continue(const conformance_subject *s)
{
    dies(s, 2, 1, 1, need_the_dead);
    dies(s, 3, 1, 2, need_the_dead);
    dies(s, 7, 1, 6, need_the_dead);
}

/* Goal: a rank that receives from ANY when no other is left is notified of that, whether it asked
   before the last one went or asks afterwards, and whether they left or died; what has come, or
   comes from itself, is received. */
static tutti_status nobody_left(rank_context *c, tutti_error *err)
{
    tutti_request before = { 0 }, own = { 0 };
    int64_t word;

    if (c->rank != 0)
        return send_word(c, 0, 1, c->rank, err);
    TUTTI_TRY(c->ops->recv(c->t, &before, TUTTI_ANY, 2, tutti_nothing(), err));
    if (!c->subject->strict) /* else no rank leaves before its message is received */
        TUTTI_TRY(wait_one(c, &before, err));
    for (int i = 1; i < c->size; i++) { /* asked when all are gone: their words are here */
        TUTTI_TRY(recv_word(c, TUTTI_ANY, 1, &word, err));
        CHECK(word > 0 && word < c->size);
    }
    TUTTI_TRY(wait_one(c, &before, err));
    CHECK(before.status == TUTTI_ERR_PEER && before.rank > 0 && before.rank < c->size);
    for (uint64_t tag = 1; tag < 4; tag++) {
        tutti_request after = { 0 };
        TUTTI_TRY(c->ops->recv(c->t, &after, TUTTI_ANY, tag, tutti_nothing(), err));
        TUTTI_TRY(wait_one(c, &after, err));
        CHECK(after.status == TUTTI_ERR_PEER && after.rank > 0 && after.rank < c->size);
    }
    TUTTI_TRY(c->ops->send(c->t, &own, 0, 3, &(tutti_header){ .a = 7 }, tutti_nothing(), err));
    TUTTI_TRY(recv_word(c, TUTTI_ANY, 3, &word, err));
    CHECK(word == 7);
    return wait_one(c, &own, err);
}

static tutti_status nobody_lives(rank_context *c, tutti_error *err)
{
    tutti_request from = { 0 }, any = { 0 };

    if (c->rank == 1) {
        TUTTI_TRY(recv_word(c, 0, 1, NULL, err));
        return die(c, err);
    }
    TUTTI_TRY(send_word(c, 1, 1, 0, err));
    TUTTI_TRY(c->ops->recv(c->t, &from, 1, 2, tutti_nothing(), err));
    TUTTI_TRY(wait_one(c, &from, err));
    CHECK(from.status == TUTTI_ERR_PEER && from.rank == 1);
    TUTTI_TRY(c->ops->recv(c->t, &any, TUTTI_ANY, 2, tutti_nothing(), err)); /* it is known to be dead */
    TUTTI_TRY(wait_one(c, &any, err));
    CHECK(any.status == TUTTI_ERR_PEER && any.rank == 1);
    return TUTTI_OK;
}

static void a_receive_from_any_ends_when_no_rank_remains(const conformance_subject *s)
{
    static const int sizes[] = { 2, 3, 7 };

    for (size_t i = 0; i < TUTTI_LENGTH(sizes); i++)
        all_well(s, sizes[i], 1, nobody_left);
    dies(s, 2, 1, 1, nobody_lives);
}

/* Goal: a rank may die at any moment. Method: all exchange with all in rounds of random sizes;
   the victim dies in a random round after a random number of its posts. In each round every
   request of a survivor is done or PEER by the victim; data that is OK is whole. A rank that has
   only small messages to and from the victim may learn of its death a round later than the
   others, so all go through all rounds; in the last one survivors still wait for a message from
   it. */
static tutti_status random_death(rank_context *c, tutti_error *err)
{
    enum { ROUNDS = 12, MOST = 300000 };
    const tutti_rng draw = rng_of(c, 3), sizes = rng_of(c, 8);
    const size_t n = (size_t)c->size;
    const int victim = (int)(c->seed % n);
    const uint64_t last_round = tutti_random(draw, 0) % ROUNDS, last_post = tutti_random(draw, 1) % (2 * n);
    tutti_request *requests = calloc(2 * n, sizeof *requests), **list = calloc(2 * n, sizeof *list);
    unsigned char *memory = malloc(2 * n * MOST);
    tutti_status status = TUTTI_OK;
    bool dead = false;

    for (uint64_t round = 0; round <= ROUNDS && status == TUTTI_OK; round++) {
        const bool farewell = round == ROUNDS;
        memset(requests, 0, 2 * n * sizeof *requests);
        for (size_t k = 0; k < 2 * n && status == TUTTI_OK; k++) {
            const int peer = (int)(k / 2);
            const size_t mine = (size_t)(tutti_random(sizes, round * n + (uint64_t)c->rank) % MOST);
            list[k] = &requests[k];
            if (farewell && peer == victim && k % 2 == 0)
                continue;
            if (c->rank == victim && round == last_round && k == last_post) {
                status = die(c, err);
                break;
            }
            if (k % 2 == 0) {
                fill(memory + k * MOST, mine, round * 100 + (uint64_t)c->rank);
                status = c->ops->send(c->t, list[k], peer, round, NULL, bytes_of(memory + k * MOST, mine), err);
            } else
                status = c->ops->recv(c->t, list[k], peer, round, bytes_of(memory + k * MOST, MOST), err);
        }
        if (status == TUTTI_OK)
            status = wait_all(c, list, 2 * n, err);
        for (size_t k = 0; k < 2 * n && status == TUTTI_OK; k++) {
            const size_t bytes = (size_t)(tutti_random(sizes, round * n + k / 2) % MOST);
            if (!list[k]->posted)
                continue;
            if (list[k]->status == TUTTI_ERR_PEER && list[k]->rank == victim && (int)(k / 2) == victim)
                dead = true;
            else if (list[k]->status != TUTTI_OK)
                status =
                    tutti_fail(err, TUTTI_ERR_STATE, 0, "a request of rank %d with rank %zu ended with '%s', rank %d",
                               c->rank, k / 2, tutti_status_name(list[k]->status), list[k]->rank);
            else if (k % 2 == 1 &&
                     (list[k]->note.bytes != bytes || !filled(memory + k * MOST, bytes, round * 100 + k / 2)))
                status = tutti_fail(err, TUTTI_ERR_STATE, 0, "rank %d got damaged data from rank %zu", c->rank, k / 2);
        }
    }
    if (status == TUTTI_OK && !dead)
        status = tutti_fail(err, TUTTI_ERR_STATE, 0, "rank %d never heard that rank %d died", c->rank, victim);
    for (size_t k = 0; k < 2 * n; k++)
        c->ops->cancel(c->t, &requests[k]);
    free(requests);
    free(list);
    free(memory);
    return status;
}

static void a_rank_may_die_at_any_moment(const conformance_subject *s)
{
    static const int sizes[] = { 2, 3, 7 };
    /* else ranks_may_be_killed_at_any_moment has more of them */
    const uint64_t seeds = s->ops->events == NULL ? 12 : 4;

    for (size_t i = 0; i < TUTTI_LENGTH(sizes); i++) {
        for (uint64_t seed = 0; seed < seeds; seed++)
            dies(s, sizes[i], seed, (int)(seed % (uint64_t)sizes[i]), random_death);
    }
}

/* Goal: a third rank names the root. Rank 2 dies; rank 1 fails because
   of it; rank 0 only knows rank 1. */
static tutti_status chain(rank_context *c, tutti_error *err)
{
    tutti_request r = { 0 };
    char why[200];

    if (c->rank == 2) {
        TUTTI_TRY(recv_word(c, 0, 1, NULL, err));
        return die(c, err);
    }
    if (c->rank == 0)
        TUTTI_TRY(send_word(c, 2, 1, 0, err));
    TUTTI_TRY(c->ops->recv(c->t, &r, c->rank == 0 ? 1 : 2, 2, tutti_nothing(), err));
    TUTTI_TRY(wait_one(c, &r, err));
    CHECK(r.status == TUTTI_ERR_PEER && r.rank == 2);
    CHECK(c->ops->dead_peer(c->t, why, sizeof why) == 2 && strstr(why, "worker 2 ") != NULL);
    return c->rank == 0 ? TUTTI_OK : tutti_fail_rank(err, TUTTI_ERR_PEER, 2, "worker 1 cannot go on without worker 2");
}

static void a_third_rank_learns_the_root_failure(const conformance_subject *s)
{
    for (int i = 0; i < 5; i++)
        dies(s, 3, 1, 2, chain);
}

/* Goal: closing ends what is in flight, also for other threads of the rank that wait. */
typedef struct waiter { rank_context *c; tutti_request r; atomic_bool begun; } waiter;

static tutti_status wait_in_vain(void *arg, tutti_error *err)
{
    waiter *w = arg;
    tutti_request *list = &w->r;
    size_t done;

    atomic_store(&w->begun, true);
    return w->c->ops->wait_some(w->c->t, &list, 1, 1, TUTTI_FOREVER, &done, err);
}

static tutti_status close_in_flight(rank_context *c, tutti_error *err)
{
    enum { BIG = 1 << 20 };
    const int next = (c->rank + 1) % c->size;
    unsigned char *out = calloc(1, BIG), *in = malloc(BIG), *vain = malloc(BIG);
    tutti_request r[3];
    waiter w = { .c = c };
    tutti_thread *thread = NULL;
    tutti_status status, joined;

    memset(r, 0, sizeof r);
    status = c->ops->recv(c->t, &w.r, next, 1, tutti_nothing(), err);
    if (status == TUTTI_OK)
        status = tutti_thread_open(&thread, c->rt, "waiter", wait_in_vain, &w, err);
    if (status == TUTTI_OK)
        status = c->ops->send(c->t, &r[0], next, 2, NULL, bytes_of(out, BIG), err);
    if (status == TUTTI_OK)
        status = c->ops->recv(c->t, &r[1], TUTTI_ANY, 2, bytes_of(in, BIG), err);
    if (status == TUTTI_OK)
        status = c->ops->recv(c->t, &r[2], TUTTI_ANY, 3, bytes_of(vain, BIG), err);
    while (thread != NULL && !atomic_load(&w.begun)) /* a call after close is none that may be */
        tutti_sleep_until(c->rt, soon(c, 1));
    tutti_sleep_until(c->rt, soon(c, 20));
    c->ops->close(c->t);
    c->t = NULL;
    joined = thread != NULL ? tutti_thread_join(thread, err) : TUTTI_OK;
    if (status == TUTTI_OK)
        status = joined;
    if (status == TUTTI_OK && !(r[0].done && r[1].done && r[2].done && w.r.done))
        status = tutti_fail(err, TUTTI_ERR_STATE, 0, "closing left a request in flight");
    if (status == TUTTI_OK && r[2].status != TUTTI_CLOSED && r[2].status != TUTTI_ERR_PEER)
        status =
            tutti_fail(err, TUTTI_ERR_STATE, 0, "closing ended a request with '%s'", tutti_status_name(r[2].status));
    free(out);
    free(in);
    free(vain);
    return status;
}

static void closing_ends_requests_in_flight(const conformance_subject *s)
{
    all_well(s, 1, 1, close_in_flight);
    all_well(s, 2, 1, close_in_flight);
    all_well(s, 3, 1, close_in_flight);
}

const conformance_test conformance_endings[] = {
    { "messages_sent_before_departure_are_received", messages_sent_before_departure_are_received, false },
    { "requests_with_a_dead_rank_end_and_others_continue", requests_with_a_dead_rank_end_and_others_continue,
      false },
    { "a_receive_from_any_ends_when_no_rank_remains", a_receive_from_any_ends_when_no_rank_remains,
      false },
    { "a_rank_may_die_at_any_moment", a_rank_may_die_at_any_moment, false },
    { "a_third_rank_learns_the_root_failure", a_third_rank_learns_the_root_failure, false },
    { "closing_ends_requests_in_flight", closing_ends_requests_in_flight, false },
    { NULL, NULL, false },
};
