/* The algorithms: each writes the list of steps of one member (schedule.h has the format).

   Sources: Thakur, Rabenseifner, Gropp, "Optimization of Collective Communication Operations in MPICH", IJHPCA 19(1), 2005 (binomial
   tree, recursive doubling, scatter + all-gather broadcast); Hensgen, Finkel, Manber 1988 (dissemination barrier).
   Differences: sums keep DESIGN's one order. Its tree, split at the largest power of two below p, is the binomial tree: index i is
   the lower operand of i + 2^k when i is a multiple of 2^(k+1). So the binomial reduction and recursive doubling keep it
   with the lower index as the left operand, and an owner that holds all p inputs adds them in one SUM. Ring and Rabenseifner's
   halving with the farthest partner first do not keep it and are absent.

   Recursive doubling for any p, not only powers of two: in round k the blocks of 2^k indexes meet pairwise; the last
   block may be short (m members) and then member o of the full block hears from member o mod m, so a member of the short block may
   send several times. Rounds: ceil(lg p), as for powers of two. */
#include "schedule.h"
#include <assert.h>
#include <string.h>

struct tutti_builder {
    tutti_schedule *s;
    size_t room_steps, room_terms;
    int p, i;               /* size, index */
    size_t n;               /* count */
    bool failed;            /* no memory */
};

static void *grown(void *old, size_t have, size_t *room, size_t size)
{
    const size_t more = *room == 0 ? 16 : 2 * *room;
    void *memory = tutti_alloc(more, size);

    if (memory == NULL)
        return NULL;
    if (have > 0)
        memcpy(memory, old, have * size);
    tutti_free(old);
    *room = more;
    return memory;
}

static tutti_step *add_step(tutti_builder *b, tutti_step_kind kind, size_t count)
{
    tutti_schedule *s = b->s;
    tutti_step *step;

    if (b->failed)
        return NULL;
    if (s->n_steps == b->room_steps) {
        tutti_step *steps = grown(s->steps, s->n_steps, &b->room_steps, sizeof *steps);
        if (steps == NULL) {
            b->failed = true;
            return NULL;
        }
        s->steps = steps;
    }
    step = &s->steps[s->n_steps++];
    memset(step, 0, sizeof *step);
    step->kind = kind;
    step->count = count;
    return step;
}

static tutti_ref at(tutti_place place, size_t element)
{
    tutti_ref ref = { place, element };
    return ref;
}

/* An empty slice of a vector that is not empty is not sent. A collective of no elements at all still sends its (empty) messages:
   their notes are how members notice that they passed different counts. */
static bool skipped(const tutti_builder *b, size_t count)
{
    return count == 0 && b->n != 0;
}

static void add_send(tutti_builder *b, int peer, uint32_t round, tutti_ref from, size_t count)
{
    tutti_step *step;

    if (skipped(b, count) || (step = add_step(b, TUTTI_STEP_SEND, count)) == NULL)
        return;
    step->peer = peer;
    step->round = round;
    step->from = from;
    b->s->requests++;
}

static void add_recv(tutti_builder *b, int peer, uint32_t round, tutti_ref to, size_t count)
{
    tutti_step *step;

    if (skipped(b, count) || (step = add_step(b, TUTTI_STEP_RECV, count)) == NULL)
        return;
    step->peer = peer;
    step->round = round;
    step->to = to;
    b->s->requests++;
}

/* Waits for the requests [first, end). */
static void add_wait(tutti_builder *b, size_t first, size_t end)
{
    tutti_step *step;

    if (end == first || (step = add_step(b, TUTTI_STEP_WAIT, 0)) == NULL)
        return;
    step->first = first;
    step->n = end - first;
}

static void add_term(tutti_builder *b, tutti_ref term)
{
    tutti_schedule *s = b->s;

    if (b->failed)
        return;
    if (s->n_terms == b->room_terms) {
        tutti_ref *terms = grown(s->terms, s->n_terms, &b->room_terms, sizeof *terms);
        if (terms == NULL) {
            b->failed = true;
            return;
        }
        s->terms = terms;
    }
    s->terms[s->n_terms++] = term;
}

/* Sums the terms added since `first`. */
static void add_sum(tutti_builder *b, size_t first, tutti_ref to, size_t count)
{
    tutti_step *step;

    if (count == 0 || (step = add_step(b, TUTTI_STEP_SUM, count)) == NULL)
        return;
    step->to = to;
    step->first = first;
    step->n = b->s->n_terms - first;
    if (step->n > b->s->most_terms)
        b->s->most_terms = step->n;
}

static void add_copy(tutti_builder *b, tutti_ref to, tutti_ref from, size_t count)
{
    tutti_step *step;

    if (count == 0 || (step = add_step(b, TUTTI_STEP_COPY, count)) == NULL)
        return;
    step->to = to;
    step->from = from;
}

static void need_scratch(tutti_builder *b, size_t elements)
{
    if (elements > b->s->scratch)
        b->s->scratch = elements;
}

size_t tutti_slice(size_t count, int size, int i)
{
    const size_t line = 16, lines = count / line + (count % line != 0), p = (size_t)size, k = (size_t)i;
    const size_t base = lines / p, extra = lines % p;
    const size_t first = (k * base + (k < extra ? k : extra)) * line;

    return first < count ? first : count;
}

static size_t slice_count(size_t count, int size, int i)
{
    return tutti_slice(count, size, i + 1) - tutti_slice(count, size, i);
}

/* Down the binomial tree from virtual index 0 (virtual = index less root, modulo p). A pair meets once in this direction: one round does. */
static void down_tree(tutti_builder *b, int root, uint32_t round)
{
    const int p = b->p, v = (b->i - root + p) % p;
    const size_t before = b->s->requests;
    int bit = 1;

    while (bit < p && (v & bit) == 0)
        bit <<= 1;
    if (v != 0) {
        add_recv(b, (v - bit + root) % p, round, at(TUTTI_VECTOR, 0), b->n);
        add_wait(b, before, b->s->requests);
    }
    const size_t sends = b->s->requests;
    for (bit >>= 1; bit > 0; bit >>= 1)
        if (v + bit < p)
            add_send(b, (v + bit + root) % p, round, at(TUTTI_VECTOR, 0), b->n);
    add_wait(b, sends, b->s->requests);
}

static void allreduce_tree(tutti_builder *b)
{
    uint32_t round = 0;

    need_scratch(b, b->p > 1 ? b->n : 0);
    for (int bit = 1; bit < b->p; bit <<= 1, round++) {
        const size_t request = b->s->requests;
        if (b->i & bit) {
            add_send(b, b->i - bit, round, at(TUTTI_VECTOR, 0), b->n);
            add_wait(b, request, b->s->requests);
            break;
        }
        if (b->i + bit < b->p) {
            const size_t term = b->s->n_terms;
            add_recv(b, b->i + bit, round, at(TUTTI_SCRATCH, 0), b->n);
            add_wait(b, request, b->s->requests);
            add_term(b, at(TUTTI_VECTOR, 0));
            add_term(b, at(TUTTI_SCRATCH, 0));
            add_sum(b, term, at(TUTTI_VECTOR, 0), b->n);
        }
    }
    down_tree(b, 0, 32);
}

static void allreduce_doubling(tutti_builder *b)
{
    uint32_t round = 0;

    need_scratch(b, b->p > 1 ? b->n : 0);
    for (int length = 1; length < b->p; length <<= 1, round++) {
        const int block = b->i / length, mine = block * length, theirs = (block ^ 1) * length, o = b->i - mine;
        const int here = b->p - mine < length ? b->p - mine : length;
        const int there = b->p - theirs < length ? b->p - theirs : length;
        const size_t request = b->s->requests, term = b->s->n_terms;
        if (there <= 0)
            continue;
        add_recv(b, theirs + o % there, round, at(TUTTI_SCRATCH, 0), b->n);
        for (int q = o; q < there; q += here)
            add_send(b, theirs + q, round, at(TUTTI_VECTOR, 0), b->n);
        add_wait(b, request, b->s->requests);
        add_term(b, at(mine < theirs ? TUTTI_VECTOR : TUTTI_SCRATCH, 0));
        add_term(b, at(mine < theirs ? TUTTI_SCRATCH : TUTTI_VECTOR, 0));
        add_sum(b, term, at(TUTTI_VECTOR, 0), b->n);
    }
}

/* Receives from everybody but me: peer j's `count` elements into slot j (less one beyond me) of the scratch memory; terms in index
   order, with `own` at my place. */
static void recv_slots(tutti_builder *b, uint32_t round, tutti_ref own, size_t count)
{
    size_t slot = 0;

    for (int j = 0; j < b->p; j++) {
        if (j == b->i) {
            add_term(b, own);
            continue;
        }
        add_recv(b, j, round, at(TUTTI_SCRATCH, slot), count);
        add_term(b, at(TUTTI_SCRATCH, slot));
        slot += count;
    }
    need_scratch(b, slot);
}

/* Peers in the order i+1, i+2, ...: not all members start with the same one. */
static int peer_after(const tutti_builder *b, int k)
{
    return (b->i + k) % b->p;
}

static void allreduce_exchange(tutti_builder *b)
{
    const size_t request = b->s->requests, term = b->s->n_terms;

    recv_slots(b, 0, at(TUTTI_VECTOR, 0), b->n);
    for (int k = 1; k < b->p; k++)
        add_send(b, peer_after(b, k), 0, at(TUTTI_VECTOR, 0), b->n);
    add_wait(b, request, b->s->requests);
    add_sum(b, term, at(TUTTI_VECTOR, 0), b->n);
}

static void allreduce_direct(tutti_builder *b)
{
    size_t begin = 0;
    uint32_t round = 0;

    do {
        const size_t length = b->n - begin < TUTTI_SEGMENT ? b->n - begin : TUTTI_SEGMENT;
        const size_t mine = begin + tutti_slice(length, b->p, b->i), count = slice_count(length, b->p, b->i);
        const size_t received = b->s->requests, term = b->s->n_terms;
        size_t sent, again;

        recv_slots(b, round, at(TUTTI_VECTOR, mine), count);
        sent = b->s->requests;
        for (int k = 1; k < b->p; k++) {
            const int j = peer_after(b, k);
            add_send(b, j, round, at(TUTTI_VECTOR, begin + tutti_slice(length, b->p, j)), slice_count(length, b->p, j));
        }
        again = b->s->requests;
        add_wait(b, received, sent);
        add_sum(b, term, at(TUTTI_VECTOR, mine), count);
        add_wait(b, sent, again); /* what I sent is received over now */
        for (int k = 1; k < b->p; k++) {
            const int j = peer_after(b, k);
            add_recv(b, j, round + 1, at(TUTTI_VECTOR, begin + tutti_slice(length, b->p, j)), slice_count(length, b->p, j));
        }
        for (int k = 1; k < b->p; k++)
            add_send(b, peer_after(b, k), round + 1, at(TUTTI_VECTOR, mine), count);
        add_wait(b, again, b->s->requests);
        begin += length;
        round += 2;
    } while (begin < b->n);
}

static void reduce_scatter_direct(tutti_builder *b)
{
    size_t begin = 0;
    uint32_t round = 0;

    do {
        /* Each owner holds p - 1 slots of this length. */
        const size_t most = TUTTI_SEGMENT / (size_t)b->p + 1;
        const size_t length = b->n - begin < most ? b->n - begin : most;
        const size_t received = b->s->requests, term = b->s->n_terms;
        size_t sent;

        recv_slots(b, round, at(TUTTI_VECTOR, (size_t)b->i * b->n + begin), length);
        sent = b->s->requests;
        for (int k = 1; k < b->p; k++) {
            const int j = peer_after(b, k);
            add_send(b, j, round, at(TUTTI_VECTOR, (size_t)j * b->n + begin), length);
        }
        add_wait(b, received, sent);
        add_sum(b, term, at(TUTTI_PART, begin), length);
        add_wait(b, sent, b->s->requests);
        begin += length;
        round++;
    } while (begin < b->n);
}

static void allgather_direct(tutti_builder *b)
{
    const size_t request = b->s->requests;

    for (int k = 1; k < b->p; k++) {
        const int j = peer_after(b, k);
        add_recv(b, j, 0, at(TUTTI_VECTOR, (size_t)j * b->n), b->n);
    }
    for (int k = 1; k < b->p; k++)
        add_send(b, peer_after(b, k), 0, at(TUTTI_PART, 0), b->n);
    add_copy(b, at(TUTTI_VECTOR, (size_t)b->i * b->n), at(TUTTI_PART, 0), b->n);
    add_wait(b, request, b->s->requests);
}

static void broadcast_tree(tutti_builder *b)
{
    down_tree(b, b->s->key.root, 0);
}

static void broadcast_flat(tutti_builder *b)
{
    const int root = b->s->key.root;
    const size_t request = b->s->requests;

    if (b->i != root)
        add_recv(b, root, 0, at(TUTTI_VECTOR, 0), b->n);
    else
        for (int k = 1; k < b->p; k++)
            add_send(b, peer_after(b, k), 0, at(TUTTI_VECTOR, 0), b->n);
    add_wait(b, request, b->s->requests);
}

/* Slice v belongs to virtual index v; the root keeps slice 0. Round 0: root to v, slice v; round 1: v to everybody but the root. */
static void broadcast_scatter(tutti_builder *b)
{
    const int p = b->p, root = b->s->key.root, v = (b->i - root + p) % p;
    const size_t mine = tutti_slice(b->n, p, v), count = slice_count(b->n, p, v), request = b->s->requests;
    size_t others;

    if (v == 0)
        for (int w = 1; w < p; w++)
            add_send(b, (w + root) % p, 0, at(TUTTI_VECTOR, tutti_slice(b->n, p, w)), slice_count(b->n, p, w));
    else
        add_recv(b, root, 0, at(TUTTI_VECTOR, mine), count);
    others = b->s->requests;
    if (v != 0)
        for (int k = 1; k < p; k++) {
            const int w = (v + k) % p;
            add_recv(b, (w + root) % p, 1, at(TUTTI_VECTOR, tutti_slice(b->n, p, w)), slice_count(b->n, p, w));
        }
    if (v != 0)
        add_wait(b, request, others); /* my slice, before I pass it on */
    for (int k = 1; k < p; k++)
        if ((v + k) % p != 0)
            add_send(b, (v + k + root) % p, 1, at(TUTTI_VECTOR, mine), count);
    add_wait(b, v != 0 ? others : request, b->s->requests);
}

static void barrier_dissemination(tutti_builder *b)
{
    uint32_t round = 0;

    for (int distance = 1; distance < b->p; distance <<= 1, round++) {
        const size_t request = b->s->requests;
        add_recv(b, (b->i - distance + b->p) % b->p, round, at(TUTTI_VECTOR, 0), 0);
        add_send(b, (b->i + distance) % b->p, round, at(TUTTI_VECTOR, 0), 0);
        add_wait(b, request, b->s->requests);
    }
}

/* An exchange of nothing. */
static void barrier_exchange(tutti_builder *b)
{
    allreduce_exchange(b);
}

const tutti_algorithm tutti_algorithms[] = {
    { TUTTI_ALLREDUCE, "exchange", "all inputs to all, who sum themselves: one round, n (p-1) a member; few members, small vectors", allreduce_exchange },
    { TUTTI_ALLREDUCE, "doubling", "recursive doubling: ceil(lg p) rounds, about n lg p a member; many members, small vectors", allreduce_doubling },
    { TUTTI_ALLREDUCE, "tree", "binomial reduction and broadcast: 2 ceil(lg p) rounds, 2n (p-1) in all; many members, medium vectors", allreduce_tree },
    { TUTTI_ALLREDUCE, "direct", "reduce-scatter to the owners of slices, all-gather: 2n (p-1)/p a member; all else", allreduce_direct },
    { TUTTI_REDUCE_SCATTER, "direct", "each part from all to its owner: n (p-1)/p a member", reduce_scatter_direct },
    { TUTTI_ALLGATHER, "direct", "each part from its owner to all", allgather_direct },
    { TUTTI_BROADCAST, "flat", "root to each: one round; few members, small vectors", broadcast_flat },
    { TUTTI_BROADCAST, "tree", "binomial: ceil(lg p) rounds; many members, small vectors", broadcast_tree },
    { TUTTI_BROADCAST, "scatter", "slices to their owners, all-gather: about 2n from the root; large vectors", broadcast_scatter },
    { TUTTI_BARRIER, "exchange", "a word from each to each: one round; few members", barrier_exchange },
    { TUTTI_BARRIER, "dissemination", "ceil(lg p) rounds; many members", barrier_dissemination },
    { TUTTI_BARRIER, NULL, NULL, NULL },
};

const char *tutti_collective_name(tutti_collective kind)
{
    static const char *const names[TUTTI_COLLECTIVES] = { "all-reduce", "reduce-scatter", "all-gather", "broadcast", "barrier" };

    return names[kind];
}

int tutti_algorithm_find(tutti_collective kind, const char *name)
{
    for (int k = 0; tutti_algorithms[k].name != NULL; k++)
        if (tutti_algorithms[k].kind == kind && strcmp(tutti_algorithms[k].name, name) == 0)
            return k;
    return -1;
}

/* Up to 16 members a round of p - 1 small messages costs less than lg p rounds one after the other; up to 64 members the p - 1 slices
   of a vector are worth a message each, beyond that from 1024 elements a slice. */
int tutti_algorithm_choose(tutti_collective kind, int size, size_t count)
{
    const bool few = size <= 16, small = count <= 1024;
    const bool sliced = size <= 64 || count / (size_t)size >= 1024;
    const char *name = "direct";

    switch (kind) {
    case TUTTI_ALLREDUCE:
        name = small ? (few ? "exchange" : "doubling") : sliced ? "direct" : "tree";
        break;
    case TUTTI_BROADCAST:
        name = small ? (few ? "flat" : "tree") : sliced ? "scatter" : "tree";
        break;
    case TUTTI_BARRIER:
        name = few ? "exchange" : "dissemination";
        break;
    case TUTTI_REDUCE_SCATTER:
    case TUTTI_ALLGATHER:
        break;
    }
    return tutti_algorithm_find(kind, name);
}

tutti_status tutti_schedule_open(tutti_schedule **out, const tutti_schedule_key *key, tutti_error *err)
{
    tutti_builder b = { .p = key->size, .i = key->index, .n = key->count };

    assert(key->size > 0 && key->index >= 0 && key->index < key->size && key->root >= 0 && key->root < key->size);
    assert(tutti_algorithms[key->algorithm].kind == key->kind);
    *out = NULL;
    b.s = tutti_alloc(1, sizeof *b.s);
    if (b.s != NULL) {
        b.s->key = *key;
        tutti_algorithms[key->algorithm].build(&b);
    }
    if (b.s == NULL || b.failed) {
        tutti_schedule_close(b.s);
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory for the steps of a %s of %zu elements over %d members",
                          tutti_collective_name(key->kind), key->count, key->size);
    }
    *out = b.s;
    return TUTTI_OK;
}

void tutti_schedule_close(tutti_schedule *s)
{
    if (s == NULL)
        return;
    tutti_free(s->steps);
    tutti_free(s->terms);
    tutti_free(s);
}
