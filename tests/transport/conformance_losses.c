/* conformance_losses.c: ranks that are lost while the others continue, for transports that
   outlive that: events, several losses, expulsion, silence. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "conformance_internal.h"

static tutti_buffer bytes_of(void *data, size_t bytes) { return tutti_host(data, bytes, TUTTI_U8); }
static bool is_in(unsigned set, int rank) { return (set >> rank & 1) != 0; }

/* Waits, by looking only, until there are `wanted` events of that kind; gives the last of them. */
static tutti_status await_events(rank_context *c, tutti_peer_change change, int wanted, tutti_peer_event *last,
                                 tutti_error *err)
{
    const int64_t until = soon(c, 30000);

    for (;;) {
        int seen = 0;
        tutti_peer_event event;
        for (int i = 0; c->ops->events(c->t, i, &event, 1) > i; i++)
            if (event.change == change) {
                seen++;
                *last = event;
            }
        if (seen >= wanted)
            return TUTTI_OK;
        if (tutti_now_ns(c->rt) > until)
            return tutti_fail(err, TUTTI_ERR_STATE, 0, "rank %d has seen %d of %d events of kind %d", c->rank, seen,
                              wanted, (int)change);
        tutti_sleep_until(c->rt, soon(c, 1));
    }
}

/* The losses are those of the set, each once, with epochs 1, 2, ...;
   nothing else was learnt but warnings. */
static tutti_status check_losses(rank_context *c, unsigned victims, tutti_error *err)
{
    tutti_peer_event event;
    unsigned seen = 0;
    uint32_t epoch = 0;
    char why[400];

    for (int i = 0; c->ops->events(c->t, i, &event, 1) > i; i++) {
        if (event.change != TUTTI_PEER_LOST)
            continue;
        CHECK(event.rank >= 0 && event.rank < c->size && is_in(victims, event.rank) && !is_in(seen, event.rank));
        CHECK(event.epoch == ++epoch && event.at_ns <= tutti_now_ns(c->rt) &&
              event.at_ns > tutti_now_ns(c->rt) - INT64_C(120000000000));
        snprintf(why, sizeof why, "worker %d ", event.rank);
        CHECK(strncmp(event.why, why, strlen(why)) == 0);
        seen |= 1u << event.rank;
    }
    CHECK(seen == victims);
    CHECK(c->ops->events(c->t, 1000000, &event, 1) >= (int)epoch && c->ops->events(c->t, 0, NULL, 0) >= (int)epoch);
    return TUTTI_OK;
}

/* Two rounds of control messages between all members of the set. All at once: a strict
   transport's send is over only when it is received. */
static tutti_status meet_members(rank_context *c, unsigned members, uint64_t tag, tutti_error *err)
{
    for (uint64_t round = 0; round < 2; round++) {
        const tutti_header note = { .kind = 7, .a = c->rank * 10 + (int64_t)round };
        tutti_request r[16], *list[16];
        size_t n = 0;
        tutti_status status = TUTTI_OK;
        memset(r, 0, sizeof r);
        for (int peer = 0; peer < c->size && status == TUTTI_OK; peer++) {
            if (peer == c->rank || !is_in(members, peer))
                continue;
            list[n] = &r[2 * peer];
            status = c->ops->send(c->t, list[n++], peer, tag + round, &note, tutti_nothing(), err);
            list[n] = &r[2 * peer + 1];
            if (status == TUTTI_OK)
                status = c->ops->recv(c->t, list[n++], peer, tag + round, tutti_nothing(), err);
        }
        if (status == TUTTI_OK)
            status = wait_all(c, list, n, err);
        for (size_t k = 0; k < n; k++)
            c->ops->cancel(c->t, list[k]);
        TUTTI_TRY(status);
        for (size_t k = 0; k < n; k++) {
            const int peer = (int)(list[k] - r) / 2;
            if (list[k]->status != TUTTI_OK)
                return tutti_fail_rank(err, list[k]->status, list[k]->rank,
                                       "a word between members %d and %d ended with '%s' because of worker %d", c->rank,
                                       peer, tutti_status_name(list[k]->status), list[k]->rank);
            CHECK((list[k] - r) % 2 == 0 || list[k]->note.a == peer * 10 + (int64_t)round);
        }
    }
    return TUTTI_OK;
}

/* Goal: each loss is an event, learnt without waiting for anything. Method: ranks leave the world
   of the living one after the other, the first rank too; after each the others see it, meet, and
   continue, down to the last. */
static tutti_status one_after_the_other(rank_context *c, tutti_error *err)
{
    unsigned lost = 0;

    for (int k = 0; k < c->size - 1; k++) {
        const int victim = (int)((c->seed + (uint64_t)k) % (uint64_t)c->size);
        tutti_peer_event event;
        TUTTI_TRY(meet_members(c, ~lost, (uint64_t)k * 2 + 1, err));
        if (c->rank == victim)
            return die(c, err);
        lost |= 1u << victim;
        TUTTI_TRY(await_events(c, TUTTI_PEER_LOST, k + 1, &event, err));
        CHECK(event.rank == victim && event.epoch == (uint32_t)k + 1);
        CHECK(strstr(event.why, c->subject->processes ? "signal 9 (Killed)" : "as the test wants it") != NULL);
        TUTTI_TRY(check_losses(c, lost, err));
    }
    return TUTTI_OK;
}

static unsigned all_but(int n, int survivor) { return ((1u << n) - 1) & ~(1u << survivor); }

static void each_loss_is_an_event_and_the_others_continue(const conformance_subject *s)
{
    some_die(s, 2, 0, all_but(2, 1), one_after_the_other);
    some_die(s, 3, 2, all_but(3, 1), one_after_the_other);
    some_die(s, 7, 5, all_but(7, 4), one_after_the_other);
}

/* Goal: ranks may be killed at any moment, several and together, and the others exchange
   everything among themselves. Method: all with all in rounds of random sizes; each victim dies
   in a random round after a random number of its posts, with all its requests in flight. Between
   survivors every request is done and whole, in every round, and receives from ANY are only ever
   served by messages that were sent whole. */
enum { ROUNDS = 10, MOST = 300000 };
static unsigned victims_of(const rank_context *c)
{
    const unsigned n = (unsigned)c->size, most = (1u << n) - 1;
    const unsigned drawn = (unsigned)(tutti_random((tutti_rng){ c->seed, 77, 0 }, 0) & most);

    return drawn == most ? most & ~(1u << (c->seed % n)) : drawn == 0 ? 1u << (c->seed % n) : drawn;
}

static tutti_status under_load(rank_context *c, tutti_error *err)
{
    const tutti_rng draw = rng_of(c, 30 + (uint64_t)c->rank), sizes = rng_of(c, 8);
    const size_t n = (size_t)c->size;
    const unsigned victims = victims_of(c);
    const bool dies = is_in(victims, c->rank);
    const uint64_t last_round = tutti_random(draw, 0) % ROUNDS, last_post = tutti_random(draw, 1) % (2 * n);
    tutti_request *requests = calloc(2 * n, sizeof *requests), **list = calloc(2 * n, sizeof *list);
    unsigned char *memory = malloc(2 * n * MOST);
    tutti_peer_event event;
    tutti_status status = TUTTI_OK;
    int count = 0;

    for (uint64_t round = 0; round < ROUNDS && status == TUTTI_OK; round++) {
        memset(requests, 0, 2 * n * sizeof *requests);
        for (size_t k = 0; k < 2 * n && status == TUTTI_OK; k++) {
            const int peer = (int)(k / 2);
            const size_t mine = (size_t)(tutti_random(sizes, round * n + (uint64_t)c->rank) % MOST);
            list[k] = &requests[k];
            if (dies && round == last_round && k == last_post) {
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
            const int peer = (int)(k / 2);
            if (is_in(victims, peer) && list[k]->status == TUTTI_ERR_PEER && is_in(victims, list[k]->rank))
                continue;
            if (list[k]->status != TUTTI_OK)
                status =
                    tutti_fail(err, TUTTI_ERR_STATE, 0, "a request of rank %d with rank %d ended with '%s', rank %d",
                               c->rank, peer, tutti_status_name(list[k]->status), list[k]->rank);
            else if (k % 2 == 1 && (list[k]->note.bytes != bytes || list[k]->note.from != peer ||
                                    !filled(memory + k * MOST, bytes, round * 100 + k / 2)))
                status = tutti_fail(err, TUTTI_ERR_STATE, 0, "rank %d got damaged data from rank %d", c->rank, peer);
        }
    }
    for (int r = 0; r < c->size; r++)
        count += is_in(victims, r);
    if (status == TUTTI_OK)
        status = await_events(c, TUTTI_PEER_LOST, count, &event, err);
    if (status == TUTTI_OK)
        status = check_losses(c, victims, err);
    if (status == TUTTI_OK)
        status = meet_members(c, ~victims, 1000, err);
    for (size_t k = 0; k < 2 * n; k++)
        c->ops->cancel(c->t, &requests[k]);
    free(requests);
    free(list);
    free(memory);
    return status;
}

static void survivors_lose_no_messages_when_ranks_are_killed(const conformance_subject *s)
{
    static const int sizes[] = { 2, 3, 5, 7 };

    for (size_t i = 0; i < TUTTI_LENGTH(sizes); i++)
        for (uint64_t seed = 0; seed < UNLESS_SANITIZED(10, 4); seed++) {
            const rank_context c = { .size = sizes[i], .seed = seed };
            some_die(s, sizes[i], seed, victims_of(&c), under_load);
        }
}

/* Goal: a receive from ANY that was just being filled by a rank that
   dies goes back, and others serve it. */
static tutti_status any_is_served_by_others(rank_context *c, tutti_error *err)
{
    enum { BIG = 8 << 20, SMALL = 5000 };
    unsigned char *room = malloc(BIG), *data = calloc(1, BIG);
    tutti_request any = { 0 }, r = { 0 };
    tutti_peer_event event;
    tutti_status status = TUTTI_OK;

    if (c->rank == 0) {
        status = c->ops->recv(c->t, &any, TUTTI_ANY, 1, bytes_of(room, BIG), err);
        if (status == TUTTI_OK)
            status = send_word(c, 1, 2, 0, err);
        if (status == TUTTI_OK)
            status = await_events(c, TUTTI_PEER_LOST, 1, &event, err);
        if (status == TUTTI_OK && any.done && any.status != TUTTI_OK)
            status = tutti_fail(err, TUTTI_ERR_STATE, 0, "a receive from any ended with '%s' though worker 2 is there",
                                tutti_status_name(any.status));
        if (status == TUTTI_OK)
            status = send_word(c, 2, 3, 0, err);
        if (status == TUTTI_OK)
            status = wait_one(c, &any, err);
        if (status == TUTTI_OK &&
            !(any.status == TUTTI_OK && ((any.note.from == 2 && any.note.bytes == SMALL && filled(room, SMALL, 9)) ||
                                         (any.note.from == 1 && any.note.bytes == BIG))))
            status = tutti_fail(err, TUTTI_ERR_STATE, 0, "'%s', %d bytes from %d", tutti_status_name(any.status),
                                (int)any.note.bytes, any.note.from);
        c->ops->cancel(c->t, &any);
        if (status == TUTTI_OK)
            status = send_word(c, 2, 4, any.note.from, err);
    } else if (c->rank == 1) {
        status = c->ops->send(c->t, &r, 0, 1, NULL, bytes_of(data, BIG), err);
        if (status == TUTTI_OK)
            status = recv_word(c, 0, 2, NULL, err);
        if (status == TUTTI_OK)
            status = die(c, err);
        c->ops->cancel(c->t, &r);
    } else {
        fill(data, SMALL, 9);
        status = recv_word(c, 0, 3, NULL, err);
        if (status == TUTTI_OK)
            status = c->ops->send(c->t, &r, 0, 1, NULL, bytes_of(data, SMALL), err);
        if (status == TUTTI_OK)
            status = recv_word(c, 0, 4, NULL, err);
        c->ops->cancel(c->t, &r);
    }
    free(room);
    free(data);
    return status;
}

static void receive_from_any_is_reposted_when_its_sender_dies(const conformance_subject *s)
{
    for (uint64_t seed = 0; seed < 5; seed++)
        some_die(s, 3, seed, 1u << 1, any_is_served_by_others);
}

/* Goal: an expelled rank learns which rank expelled it and why, whatever it does then; the others
   continue without it; what it sends later reaches no rank. The seed is 8 times the number of
   ranks that expel it at once, plus its rank. */
static tutti_status expel(rank_context *c, tutti_error *err)
{
    enum { BIG = 4 << 20 };
    const int victim = (int)(c->seed % 8), expellers = (int)(c->seed / 8);
    unsigned char *data = calloc(1, BIG);
    tutti_peer_event event;
    tutti_request r[3];
    tutti_status status = meet_members(c, ~0u, 1, err);

    memset(r, 0, sizeof r);
    if (c->rank == victim && status == TUTTI_OK) {
        tutti_request *list[3] = { &r[0], &r[1], &r[2] };
        tutti_error told = { .rank = -1 };
        size_t done;
        const int other = (victim + 1) % c->size;
        status = c->ops->recv(c->t, &r[0], other, 50, tutti_nothing(), err);
        if (status == TUTTI_OK)
            status = c->ops->send(c->t, &r[1], other, 51, NULL, bytes_of(data, BIG), err); /* no rank receives it */
        if (status == TUTTI_OK)
            status = c->ops->recv(c->t, &r[2], TUTTI_ANY, 52, tutti_nothing(), err);
        for (int k = 0; k < 3 && status == TUTTI_OK; k++) {
            const tutti_status waited = c->ops->wait_some(c->t, list, 3, 3, soon(c, 60000), &done, &told);
            if (waited != TUTTI_ERR_PEER || told.rank != c->rank ||
                strstr(told.text, "has expelled it: it is in the way") == NULL ||
                strstr(told.text, "no member of the run any more") == NULL)
                status = tutti_fail(err, TUTTI_ERR_STATE, 0, "the expelled one heard '%s', rank %d: %s",
                                    tutti_status_name(waited), told.rank, told.text);
        }
        for (int k = 0; k < 3 && status == TUTTI_OK; k++)
            if (!r[k].done || r[k].status != TUTTI_ERR_PEER || r[k].rank != c->rank)
                status = tutti_fail(err, TUTTI_ERR_STATE, 0, "request %d of the expelled one ended with '%s', rank %d",
                                    k, tutti_status_name(r[k].status), r[k].rank);
        for (int k = 0; k < 2 && status == TUTTI_OK; k++) { /* later ones end at once */
            memset(&r[k], 0, sizeof r[k]);
            status = k == 0 ? c->ops->send(c->t, &r[k], other, 60, NULL, tutti_nothing(), err)
                            : c->ops->recv(c->t, &r[k], other, 60, tutti_nothing(), err);
            if (status == TUTTI_OK && (!r[k].done || r[k].status != TUTTI_ERR_PEER || r[k].rank != c->rank))
                status =
                    tutti_fail(err, TUTTI_ERR_STATE, 0, "a later request of the expelled one ended with '%s', rank %d",
                               tutti_status_name(r[k].status), r[k].rank);
        }
        for (int k = 0; k < 3; k++)
            c->ops->cancel(c->t, &r[k]);
        free(data);
        return status != TUTTI_OK ? status : tutti_fail_rank(err, TUTTI_ERR_PEER, c->rank, "%s", told.text);
    }
    free(data);
    TUTTI_TRY(status);
    TUTTI_TRY(meet_members(c, ~(1u << victim), 500, err)); /* no rank waits for a message of it any more */
    c->ops->expel(c->t, c->rank, "nobody expels itself");
    if ((c->rank - victim - 1 + c->size) % c->size < expellers)
        c->ops->expel(c->t, victim, "it is in the way");
    TUTTI_TRY(await_events(c, TUTTI_PEER_LOST, 1, &event, err));
    c->ops->expel(c->t, victim, "it was in the way"); /* nothing */
    /* the expeller's reason, or the failure report with which it left */
    CHECK(event.rank == victim && strstr(event.why, "has expelled it: it is in the way") != NULL);
    TUTTI_TRY(c->ops->recv(c->t, &r[0], victim, 60, tutti_nothing(), err));
    TUTTI_TRY(wait_one(c, &r[0], err));
    CHECK(r[0].status == TUTTI_ERR_PEER && r[0].rank == victim);
    TUTTI_TRY(meet_members(c, ~(1u << victim), 100, err));
    return check_losses(c, 1u << victim, err);
}

static void an_expelled_rank_is_notified_and_the_others_continue(const conformance_subject *s)
{
    for (uint64_t victim = 0; victim < 3; victim++)
        for (uint64_t expellers = 1; expellers <= 2; expellers++)
            some_die(s, 3, expellers * 8 + victim, 1u << victim, expel);
    some_die(s, 7, 6 * 8 + 4, 1u << 4, expel);
    some_die(s, 2, 1 * 8 + 0, 1u << 0, expel);
}

/* Goal: a rank that is blamed by one that has failed is not notified that it is expelled itself.
   Method: the victim leaves with a failure report that blames rank 0, which lives. */
static tutti_status blames_the_first(rank_context *c, tutti_error *err)
{
    const int victim = (int)c->seed;
    tutti_peer_event event;
    tutti_request r[2] = { 0 };
    char why[200];

    TUTTI_TRY(meet_members(c, ~0u, 1, err));
    if (c->rank == victim)
        return tutti_fail_rank(err, TUTTI_ERR_PEER, 0,
                               "worker %d dies as the test wants it, and says that worker 0 did it", victim);
    TUTTI_TRY(c->ops->recv(c->t, &r[0], victim, 50, tutti_nothing(), err));
    TUTTI_TRY(wait_one(c, &r[0], err));
    TUTTI_TRY(await_events(c, TUTTI_PEER_LOST, 1, &event, err));
    TUTTI_TRY(c->ops->recv(c->t, &r[1], victim, 51, tutti_nothing(), err)); /* after it is known */
    TUTTI_TRY(wait_one(c, &r[1], err));
    for (int k = 0; k < 2; k++)
        /* the failure report may come after the end */
        CHECK(r[k].status == TUTTI_ERR_PEER && (r[k].rank == victim || (r[k].rank == 0 && c->rank != 0)));
    CHECK(c->rank != 0 ||
          (c->ops->dead_peer(c->t, why, sizeof why) == victim && strstr(why, "says that worker 0 did it") != NULL));
    return meet_members(c, ~(1u << victim), 100, err);
}

static void a_blamed_rank_is_not_expelled(const conformance_subject *s)
{
    some_die(s, 3, 1, 1u << 1, blames_the_first);
    some_die(s, 4, 3, 1u << 3, blames_the_first);
    some_die(s, 2, 1, 1u << 1, blames_the_first);
}

/* Goal: flags of live ranks come through after a loss, and a wait for the dead one's ends. */
static tutti_status flags_after_a_loss(rank_context *c, tutti_error *err)
{
    const int victim = (int)(c->seed % (uint64_t)c->size);
    void *parts[8];
    tutti_error told = { .rank = -1 };

    TUTTI_TRY(c->ops->window(c->t, "flags", 64, parts, err));
    if (c->rank == victim)
        return die(c, err);
    CHECK(c->ops->await(c->t, victim, parts[victim], 1, soon(c, 60000), &told) == TUTTI_ERR_PEER &&
          told.rank == victim);
    for (uint32_t round = 1; round < 200; round++) {
        c->ops->publish(c->t, parts[c->rank], round);
        for (int r = 0; r < c->size; r++)
            if (r != victim)
                TUTTI_TRY(c->ops->await(c->t, r, parts[r], round, soon(c, 60000), err));
    }
    CHECK(c->ops->window(c->t, "more", 64, parts, &told) == TUTTI_ERR_PEER && told.rank == victim); /* needs all */
    return meet_members(c, ~(1u << victim), 100, err);
}

static void flags_of_surviving_ranks_arrive_after_a_loss(const conformance_subject *s)
{
    for (uint64_t seed = 0; seed < 3; seed++)
        some_die(s, 3, seed, 1u << seed, flags_after_a_loss);
    some_die(s, 7, 3, 1u << 3, flags_after_a_loss);
}

/* Goal: a process that is stopped is silent, then back; stopped for longer it is lost, to all,
   and is notified of that when it continues. The seed selects which. */
static tutti_status silence(rank_context *c, tutti_error *err)
{
    const int victim = c->size - 1;
    const bool for_good = c->seed == 1;
    tutti_peer_event event;
    int64_t pid;

    TUTTI_TRY(meet_members(c, ~0u, 1, err));
    if (c->rank == victim) {
        tutti_error told = { .rank = -1 };
        tutti_request r = { 0 }, *list = &r;
        size_t done;
        TUTTI_TRY(send_word(c, 0, 10, getpid(), err));
        if (!for_good)
            return meet_members(c, ~0u, 20, err);
        TUTTI_TRY(c->ops->recv(c->t, &r, 0, 11, tutti_nothing(), err));
        CHECK(c->ops->wait_some(c->t, &list, 1, 1, soon(c, 60000), &done, &told) == TUTTI_ERR_PEER &&
              told.rank == c->rank && strstr(told.text, "no member of the run any more") != NULL);
        return told.status;
    }
    if (c->rank == 0) {
        TUTTI_TRY(recv_word(c, victim, 10, &pid, err));
        kill((pid_t)pid, SIGSTOP);
    }
    TUTTI_TRY(await_events(c, TUTTI_PEER_SILENT, 1, &event, err));
    CHECK(event.rank == victim && event.epoch == 0 && strstr(event.why, "silent") != NULL);
    if (for_good) {
        TUTTI_TRY(await_events(c, TUTTI_PEER_LOST, 1, &event, err));
        CHECK(event.rank == victim && event.epoch == 1 && strstr(event.why, "silent") != NULL);
        TUTTI_TRY(meet_members(c, ~(1u << victim), 20, err));
        if (c->rank == 0)
            kill((pid_t)pid, SIGCONT);
        return TUTTI_OK;
    }
    if (c->rank != 0)
        TUTTI_TRY(send_word(c, 0, 12, 0, err)); /* all have seen it */
    for (int r = 1; c->rank == 0 && r < victim; r++)
        TUTTI_TRY(recv_word(c, r, 12, NULL, err));
    if (c->rank == 0)
        kill((pid_t)pid, SIGCONT);
    TUTTI_TRY(await_events(c, TUTTI_PEER_BACK, 1, &event, err));
    CHECK(event.rank == victim && event.epoch == 0);
    TUTTI_TRY(meet_members(c, ~0u, 20, err));
    return check_losses(c, 0, err);
}

static void a_stopped_process_is_silent_then_back_or_lost(const conformance_subject *s)
{
    if (!s->hears_silence)
        return;
    all_well(s, 3, 0, silence);
    some_die(s, 4, 1, 1u << 3, silence);
}

const conformance_test conformance_losses[] = {
    { "each_loss_is_an_event_and_the_others_continue", each_loss_is_an_event_and_the_others_continue, false, false,
      true },
    { "survivors_lose_no_messages_when_ranks_are_killed",
      survivors_lose_no_messages_when_ranks_are_killed, false, false, true },
    { "receive_from_any_is_reposted_when_its_sender_dies", receive_from_any_is_reposted_when_its_sender_dies,
      false, false, true },
    { "a_blamed_rank_is_not_expelled", a_blamed_rank_is_not_expelled, false, false, true },
    { "an_expelled_rank_is_notified_and_the_others_continue", an_expelled_rank_is_notified_and_the_others_continue,
      false, false, true },
    { "flags_of_surviving_ranks_arrive_after_a_loss", flags_of_surviving_ranks_arrive_after_a_loss, false, true,
      true },
    { "a_stopped_process_is_silent_then_back_or_lost", a_stopped_process_is_silent_then_back_or_lost, false, false,
      true },
    { NULL, NULL, false, false, false },
};
