/* conformance_windows.c: memory that all ranks map, and flags in it. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include "conformance_internal.h"

enum { RANKS_MOST = 16 };
static const int awkward[] = { 1, 2, 3, 7, 11 };
#define FOR_EACH_SIZE(n) for (size_t i_ = 0; i_ < TUTTI_LENGTH(awkward) && ((n) = awkward[i_], true); i_++)

/* Goal: each rank's part is zeroed, aligned, its own to write and everybody's to read;
   parts differ in size, some are empty. */
static tutti_status share(rank_context *c, tutti_error *err)
{
    static const size_t sizes[][3] = { { 1, 70000, 0 }, { 4096, 4097, 4095 }, { 3000000, 64, 0 } };

    for (size_t w = 0; w < TUTTI_LENGTH(sizes); w++) {
        const size_t bytes = sizes[w][c->rank % 3];
        void *parts[RANKS_MOST];
        unsigned char *mine;
        TUTTI_TRY(c->ops->window(c->t, "test", bytes, parts, err));
        mine = parts[c->rank];
        CHECK(bytes == 0 || (mine != NULL && (uintptr_t)mine % 64 == 0));
        for (size_t i = 0; i < bytes; i++)
            CHECK(mine[i] == 0);
        if (bytes > 0)
            fill(mine, bytes, (uint64_t)c->rank + 10 * w);
        TUTTI_TRY(meet(c, w, err));
        for (int r = 0; r < c->size; r++)
            CHECK(filled(parts[r], sizes[w][r % 3], (uint64_t)r + 10 * w));
    }
    return TUTTI_OK;
}

static void windows_are_zeroed_aligned_and_shared(const conformance_subject *s)
{
    int n;
    FOR_EACH_SIZE(n)
        all_well(s, n, 1, share);
}

/* Goal: what cannot be is refused on every rank, with need and mend, and a
   window that can be opens afterwards. */
static tutti_status refuse(rank_context *c, tutti_error *err)
{
    const uint64_t too_much = UINT64_C(1) << 45;
    tutti_error said = { 0 };
    void *parts[RANKS_MOST];

    CHECK(c->ops->window(c->t, "huge", c->rank == c->size - 1 ? too_much : 100, parts, &said) == TUTTI_ERR_MEMORY);
    CHECK(parts[0] == NULL);
    CHECK(strstr(said.text, "'huge'") != NULL && strstr(said.text, "bytes") != NULL &&
          strstr(said.text, "MiB") != NULL && strstr(said.text, "use fewer workers") != NULL);
    CHECK(c->ops->window(c->t, "overflow", SIZE_MAX - 10, parts, &said) == TUTTI_ERR_MEMORY);
    if (c->size > 1) {
        CHECK(c->ops->window(c->t, c->rank == 1 ? "other" : "one", 10, parts, &said) == TUTTI_ERR_STATE);
        CHECK(strstr(said.text, "'one'") != NULL && strstr(said.text, "'other'") != NULL &&
              strstr(said.text, "worker 1") != NULL);
    }
    return share(c, err);
}

static void an_oversized_window_is_rejected_on_every_rank(const conformance_subject *s)
{
    all_well(s, 1, 1, refuse);
    all_well(s, 2, 1, refuse);
    all_well(s, 7, 1, refuse);
}

/* Goal: publish and await order plain data and lose no wake-up. Method: a token with a plain word
   next to the flag goes round; the values pass 2^32. */
static tutti_status ring(rank_context *c, tutti_error *err)
{
    typedef struct { _Atomic uint32_t flag; uint32_t word; } place;
    const int laps = 300, from = (c->rank + c->size - 1) % c->size;
    const uint32_t start = UINT32_MAX - 100;
    void *parts[RANKS_MOST];
    place *mine, *theirs;

    TUTTI_TRY(c->ops->window(c->t, "ring", sizeof(place), parts, err));
    mine = parts[c->rank];
    theirs = parts[from];
    c->ops->publish(c->t, &mine->flag, start);
    TUTTI_TRY(meet(c, 1, err));
    for (uint32_t lap = 1; lap <= (uint32_t)laps; lap++) {
        if (c->rank != 0 || lap > 1)
            TUTTI_TRY(c->ops->await(c->t, from, &theirs->flag, start + lap - (c->rank == 0), soon(c, 60000), err));
        CHECK(lap == 1 || theirs->word == 7 * (lap - (c->rank == 0)));
        mine->word = 7 * lap;
        c->ops->publish(c->t, &mine->flag, start + lap);
        if (lap % 50 == (uint32_t)c->rank)
            tutti_sleep_until(c->rt, soon(c, 1)); /* so that some sleep in the kernel */
        TUTTI_TRY(c->ops->await(c->t, from, &theirs->flag, start + lap, soon(c, 60000), err));
        TUTTI_TRY(meet(c, 2, err)); /* the word may be written again */
    }
    CHECK(c->ops->await(c->t, from, &theirs->flag, start, 0, err) == TUTTI_OK); /* long passed */
    CHECK(c->ops->await(c->t, from, &theirs->flag, start + (uint32_t)laps + 1, soon(c, 2), err) == TUTTI_TIMEOUT);
    return meet(c, 3, err);
}

static void publishing_a_flag_orders_preceding_writes(const conformance_subject *s)
{
    int n;
    FOR_EACH_SIZE(n)
        all_well(s, n, 1, ring);
}

/* Goal: a rank that awaits a word serves its messages meanwhile: rank 1 publishes only after it
   has received a large one from rank 0. */
static tutti_status serve_while_awaiting(rank_context *c, tutti_error *err)
{
    enum { BIG = 3 << 20 };
    unsigned char *data = malloc(BIG);
    tutti_request r = { 0 };
    void *parts[RANKS_MOST];
    tutti_status status;

    fill(data, BIG, 1);
    status = c->ops->window(c->t, "flags", sizeof(_Atomic uint32_t), parts, err);
    if (status == TUTTI_OK && c->rank == 0) {
        status = c->ops->send(c->t, &r, 1, 1, NULL, tutti_host(data, BIG, TUTTI_U8), err);
        if (status == TUTTI_OK)
            status = c->ops->await(c->t, 1, parts[1], 1, soon(c, 60000), err);
        if (status == TUTTI_OK)
            status = wait_one(c, &r, err);
    } else if (status == TUTTI_OK) {
        status = c->ops->recv(c->t, &r, 0, 1, tutti_host(data, BIG, TUTTI_U8), err);
        if (status == TUTTI_OK)
            status = wait_one(c, &r, err);
        c->ops->publish(c->t, parts[1], 1);
    }
    free(data);
    return status;
}

static void an_awaiting_rank_progresses_its_messages(const conformance_subject *s)
{
    all_well(s, 2, 1, serve_while_awaiting);
}

/* Goal: threads of a rank that await words, and one that waits for messages, do not take each
   other's wake-ups. Method: each thread's token goes round by itself, with a plain word next to
   it. */
enum { TOKENS = 3, LAPS = 50 };
typedef struct token { _Atomic uint32_t flag; uint32_t word; } token;
typedef struct carrier { rank_context *c; token *mine, *theirs; tutti_status status; tutti_error err; } carrier;

static tutti_status carry(void *arg, tutti_error *err)
{
    carrier *a = arg;
    rank_context *c = a->c;
    const int from = (c->rank + c->size - 1) % c->size;

    for (uint32_t lap = 1; lap <= LAPS; lap++) {
        const uint32_t awaited = lap - (c->rank == 0);
        if (awaited > 0)
            a->status = c->ops->await(c->t, from, &a->theirs->flag, awaited, soon(c, 60000), &a->err);
        if (a->status == TUTTI_OK && c->rank != 0 && a->theirs->word != lap)
            a->status = tutti_fail(&a->err, TUTTI_ERR_STATE, 0, "lap %u came with %u", lap, a->theirs->word);
        if (a->status != TUTTI_OK)
            break;
        a->mine->word = lap;
        c->ops->publish(c->t, &a->mine->flag, lap);
    }
    (void)err;
    return TUTTI_OK;
}

static tutti_status carry_tokens(rank_context *c, tutti_error *err)
{
    const int from = (c->rank + c->size - 1) % c->size, to = (c->rank + 1) % c->size;
    tutti_thread *threads[TOKENS] = { NULL };
    tutti_status status = TUTTI_OK;
    carrier carriers[TOKENS];
    void *parts[RANKS_MOST];
    int64_t word;

    TUTTI_TRY(c->ops->window(c->t, "tokens", TOKENS * sizeof(token), parts, err));
    for (int k = 0; k < TOKENS && status == TUTTI_OK; k++) {
        carriers[k] = (carrier){ .c = c, .mine = (token *)parts[c->rank] + k, .theirs = (token *)parts[from] + k };
        status = tutti_thread_open(&threads[k], c->rt, "carrier", carry, &carriers[k], err);
    }
    for (int lap = 0; lap < LAPS && status == TUTTI_OK; lap++) {
        if (c->rank == 0) /* the word goes round as well: a send may wait for its receive */
            status = send_word(c, to, 1, lap, err);
        if (status == TUTTI_OK)
            status = recv_word(c, from, 1, &word, err);
        if (status == TUTTI_OK && c->rank != 0)
            status = send_word(c, to, 1, lap, err);
    }
    for (int k = 0; k < TOKENS; k++) {
        if (threads[k] != NULL)
            tutti_thread_join(threads[k], NULL);
        if (threads[k] != NULL && status == TUTTI_OK && carriers[k].status != TUTTI_OK) {
            *err = carriers[k].err;
            status = carriers[k].status;
        }
    }
    TUTTI_TRY(status);
    return meet(c, 2, err);
}

static void flag_and_message_waiters_do_not_steal_wakeups(const conformance_subject *s)
{
    all_well(s, 2, 1, carry_tokens);
    all_well(s, 3, 1, carry_tokens);
}

/* Goal: awaiting a dead rank ends with PEER; what it had published counts. */
static tutti_status await_the_dead(rank_context *c, tutti_error *err)
{
    const int victim = c->size - 1;
    tutti_error said = { 0 };
    void *parts[RANKS_MOST];

    TUTTI_TRY(c->ops->window(c->t, "flags", sizeof(_Atomic uint32_t), parts, err));
    if (c->rank == victim) {
        c->ops->publish(c->t, parts[victim], 3);
        tutti_sleep_until(c->rt, soon(c, 10));
        return die(c, err);
    }
    CHECK(c->ops->await(c->t, victim, parts[victim], 4, soon(c, 60000), &said) == TUTTI_ERR_PEER &&
          said.rank == victim);
    CHECK(strstr(said.text, "worker") != NULL);
    return c->ops->await(c->t, victim, parts[victim], 3, TUTTI_FOREVER, err);
}

static void awaiting_a_dead_rank_ends(const conformance_subject *s)
{
    dies(s, 2, 1, 1, await_the_dead);
    dies(s, 7, 1, 6, await_the_dead);
}

/* Goal: the loss of a rank that dies while windows are being opened is reported to the others. */
static tutti_status die_in_window(rank_context *c, tutti_error *err)
{
    tutti_error said = { 0 };
    void *parts[RANKS_MOST];

    TUTTI_TRY(c->ops->window(c->t, "first", 100, parts, err));
    if (c->rank == 0)
        return die(c, err);
    CHECK(c->ops->window(c->t, "second", 100, parts, &said) == TUTTI_ERR_PEER && said.rank == 0);
    CHECK(parts[c->rank] == NULL);
    return TUTTI_OK;
}

static void opening_a_window_fails_after_a_rank_died(const conformance_subject *s)
{
    dies(s, 2, 1, 0, die_in_window);
    dies(s, 3, 1, 0, die_in_window);
}

/* Goal: closing ends an await of another thread of the rank. */
typedef struct { rank_context *c; _Atomic uint32_t *word; tutti_status status; } waiter;

static tutti_status await_in_vain(void *arg, tutti_error *err)
{
    waiter *w = arg;

    w->status = w->c->ops->await(w->c->t, w->c->rank, w->word, 1, TUTTI_FOREVER, err);
    return TUTTI_OK;
}

static tutti_status close_while_awaiting(rank_context *c, tutti_error *err)
{
    waiter w = { .c = c };
    tutti_thread *thread;
    void *parts[RANKS_MOST];

    TUTTI_TRY(c->ops->window(c->t, "flags", sizeof(_Atomic uint32_t), parts, err));
    w.word = parts[c->rank];
    TUTTI_TRY(tutti_thread_open(&thread, c->rt, "waiter", await_in_vain, &w, err));
    tutti_sleep_until(c->rt, soon(c, 20));
    c->ops->close(c->t);
    c->t = NULL;
    TUTTI_TRY(tutti_thread_join(thread, err));
    CHECK(w.status == TUTTI_CLOSED);
    return TUTTI_OK;
}

static void closing_ends_an_await(const conformance_subject *s)
{
    all_well(s, 1, 1, close_while_awaiting);
    all_well(s, 3, 1, close_while_awaiting);
}

const conformance_test conformance_windows[] = {
    { "windows_are_zeroed_aligned_and_shared", windows_are_zeroed_aligned_and_shared, true },
    { "an_oversized_window_is_rejected_on_every_rank", an_oversized_window_is_rejected_on_every_rank, true },
    { "publishing_a_flag_orders_preceding_writes", publishing_a_flag_orders_preceding_writes,
      true, true },
    { "an_awaiting_rank_progresses_its_messages", an_awaiting_rank_progresses_its_messages, true, true },
    { "flag_and_message_waiters_do_not_steal_wakeups",
      flag_and_message_waiters_do_not_steal_wakeups, true, true },
    { "awaiting_a_dead_rank_ends", awaiting_a_dead_rank_ends, true, true },
    { "opening_a_window_fails_after_a_rank_died", opening_a_window_fails_after_a_rank_died, true },
    { "closing_ends_an_await", closing_ends_an_await, true, true },
    { NULL, NULL, false },
};
