/* builder.c: the functions by which algorithms write the list of one member (builder.h), and the
   schedules that hold these lists: write, open, close, tutti_slice.

   A member that sends to another one and receives from it posts the send first. A large message
   may wait for a control message of its receiver (tcp's CLEAR), and that control message should
   not wait behind the megabytes that the receiver sends the same way. If both post their sends
   first, a member that receives its CLEAR has already received the other's announcement and has
   answered it. */
#include "builder.h"
#include <assert.h>
#include <string.h>

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
    if (s->n_steps == s->room_steps) {
        tutti_step *steps = grown(s->steps, s->n_steps, &s->room_steps, sizeof *steps);
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

/* An empty slice of a vector that is not empty is not sent. A collective of no elements at all
   still sends its (empty) messages: by their headers members detect that they passed different
   counts. */
static bool skipped(const tutti_builder *b, size_t count)
{
    return count == 0 && b->n != 0 && b->first[0] == NULL;
}

void tutti_build_narrow(tutti_builder *b, int p, int i, int base, int stride)
{
    b->p = p;
    b->i = i;
    b->base = base;
    b->stride = stride;
}

void tutti_build_send(tutti_builder *b, int peer, uint32_t round, tutti_ref from, size_t count)
{
    tutti_step *step;

    if (skipped(b, count) || (step = add_step(b, TUTTI_STEP_SEND, count)) == NULL)
        return;
    step->peer = b->base + peer * b->stride;
    step->round = round;
    step->from = from;
    b->s->requests++;
}

void tutti_build_recv(tutti_builder *b, int peer, uint32_t round, tutti_ref to, size_t count)
{
    tutti_step *step;

    if (skipped(b, count) || (step = add_step(b, TUTTI_STEP_RECV, count)) == NULL)
        return;
    step->peer = b->base + peer * b->stride;
    step->round = round;
    step->to = to;
    b->s->requests++;
}

/* Waits for the requests [first, end). */
void tutti_build_wait(tutti_builder *b, size_t first, size_t end)
{
    tutti_step *step;

    if (end == first || (step = add_step(b, TUTTI_STEP_WAIT, 0)) == NULL)
        return;
    step->first = first;
    step->n = end - first;
}

void tutti_build_term(tutti_builder *b, tutti_ref term)
{
    tutti_schedule *s = b->s;

    if (b->failed)
        return;
    if (s->n_terms == s->room_terms) {
        tutti_ref *terms = grown(s->terms, s->n_terms, &s->room_terms, sizeof *terms);
        if (terms == NULL) {
            b->failed = true;
            return;
        }
        s->terms = terms;
    }
    s->terms[s->n_terms++] = term;
}

/* Sums the terms added since `first`. */
void tutti_build_sum(tutti_builder *b, size_t first, tutti_ref to, size_t count)
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

void tutti_build_copy(tutti_builder *b, tutti_ref to, tutti_ref from, size_t count)
{
    tutti_step *step;

    if (count == 0 || (step = add_step(b, TUTTI_STEP_COPY, count)) == NULL)
        return;
    step->to = to;
    step->from = from;
}

void tutti_build_scratch(tutti_builder *b, size_t elements)
{
    if (elements > b->s->scratch)
        b->s->scratch = elements;
}

size_t tutti_slice(size_t count, int size, int i)
{
    const size_t line = 16, lines = count / line + (count % line != 0), p = (size_t)size,
                 k = (size_t)i;
    const size_t base = lines / p, extra = lines % p;
    const size_t first = (k * base + (k < extra ? k : extra)) * line;

    return first < count ? first : count;
}

size_t tutti_slice_count(size_t count, int size, int i)
{
    return tutti_slice(count, size, i + 1) - tutti_slice(count, size, i);
}

void tutti_build_move(tutti_builder *b, uint32_t round, int chunks, const tutti_move *move)
{
    const size_t request = b->s->requests, term = b->s->n_terms;
    const size_t count = move->from >= 0 ? tutti_slice_count(b->n, chunks, move->in) : 0;
    const tutti_ref mine = tutti_at(TUTTI_IN_VECTOR,
                                    move->from >= 0 ? tutti_slice(b->n, chunks, move->in) : 0),
                    theirs = tutti_at(TUTTI_IN_SCRATCH, 0);

    if (move->received != TUTTI_REPLACE)
        tutti_build_scratch(b, count);
    if (move->to >= 0)
        tutti_build_send(b, move->to, round,
                         tutti_at(TUTTI_IN_VECTOR, tutti_slice(b->n, chunks, move->out)),
                         tutti_slice_count(b->n, chunks, move->out));
    if (move->from >= 0)
        tutti_build_recv(b, move->from, round, move->received == TUTTI_REPLACE ? mine : theirs,
                         count);
    tutti_build_wait(b, request, b->s->requests);
    if (count == 0 || move->received == TUTTI_REPLACE)
        return;
    tutti_build_term(b, move->received == TUTTI_ADD_LEFT ? theirs : mine);
    tutti_build_term(b, move->received == TUTTI_ADD_LEFT ? mine : theirs);
    tutti_build_sum(b, term, mine, count);
}

void tutti_build_slots(tutti_builder *b, uint32_t round, tutti_ref own, size_t count)
{
    size_t slot = 0;

    for (int j = 0; j < b->p; j++) {
        if (j == b->i) {
            tutti_build_term(b, own);
            continue;
        }
        tutti_build_recv(b, j, round, tutti_at(TUTTI_IN_SCRATCH, slot), count);
        tutti_build_term(b, tutti_at(TUTTI_IN_SCRATCH, slot));
        slot += count;
    }
    tutti_build_scratch(b, slot);
}

/* Lists of large groups are long and are kept: the memory left over by growing is freed, once. It
   is no error if that fails. */
static void trim(tutti_schedule *s)
{
    tutti_step *steps = s->n_steps < s->room_steps ? tutti_alloc(s->n_steps, sizeof *steps) : NULL;

    if (steps == NULL)
        return;
    memcpy(steps, s->steps, s->n_steps * sizeof *steps);
    tutti_free(s->steps);
    s->steps = steps;
    s->room_steps = s->n_steps;
}

/* The schedule's own copy of the counts, and behind it where each part begins. The caller has
   seen that the sums do not overflow. */
static bool take_counts(tutti_builder *b, const tutti_schedule_key *key)
{
    const size_t p = (size_t)key->size,
                 n = key->counts != NULL ? tutti_counts_of(key->kind, key->size) : 0,
                 words = n + 2 * (p + 1);
    tutti_schedule *const s = b->s;
    size_t *first;

    if (n == 0)
        return true;
    if (words > s->room_counts) {
        tutti_free(s->counts);
        s->counts = tutti_alloc(words, sizeof *s->counts);
        s->room_counts = s->counts != NULL ? words : 0;
    }
    if (s->counts == NULL)
        return false;
    memcpy(s->counts, key->counts, n * sizeof *s->counts);
    s->key.counts = s->counts;
    first = s->counts + n;
    first[0] = first[p + 1] = 0;
    for (size_t k = 0; k < n; k++)
        first[k + k / p + 1] = first[k + k / p] + key->counts[k];
    b->first[0] = first;
    b->first[1] = first + p + 1;
    return true;
}

tutti_status tutti_schedule_write(tutti_schedule *s, const tutti_schedule_key *key,
                                  tutti_error *err)
{
    const bool fresh = s->steps == NULL;
    tutti_builder b = { .s = s, .p = key->size, .i = key->index, .stride = 1, .n = key->count };

    assert(key->size > 0 && key->index >= 0 && key->index < key->size && key->root >= 0 &&
           key->root < key->size);
    assert(tutti_algorithms[key->algorithm].kind == key->kind &&
           tutti_algorithm_serves(key->algorithm, key->size));
    s->key = *key;
    s->key.counts = NULL;
    s->n_steps = s->n_terms = s->requests = s->scratch = s->most_terms = 0;
    b.failed = !take_counts(&b, key);
    if (!b.failed)
        tutti_algorithms[key->algorithm].build(&b);
    if (b.failed)
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0,
                          "no memory for the steps of a %s of %zu elements over %d members",
                          tutti_collective_name(key->kind), key->count, key->size);
    if (fresh)
        trim(s);
    return TUTTI_OK;
}

tutti_status tutti_schedule_open(tutti_schedule **out, const tutti_schedule_key *key,
                                 tutti_error *err)
{
    tutti_schedule *s = tutti_alloc(1, sizeof *s);
    tutti_status status;

    *out = NULL;
    if (s == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory for a %s over %d members",
                          tutti_collective_name(key->kind), key->size);
    status = tutti_schedule_write(s, key, err);
    if (status != TUTTI_OK)
        tutti_schedule_close(s);
    else
        *out = s;
    return status;
}

void tutti_schedule_close(tutti_schedule *s)
{
    if (s == NULL)
        return;
    tutti_free(s->steps);
    tutti_free(s->terms);
    tutti_free(s->counts);
    tutti_free(s);
}

void tutti_build_sum_slices(tutti_builder *b, size_t begin, size_t length, uint32_t round)
{
    const tutti_ref mine = tutti_at(TUTTI_IN_VECTOR, begin + tutti_slice(length, b->p, b->i));
    const size_t count = tutti_slice_count(length, b->p, b->i), sent = b->s->requests,
                 term = b->s->n_terms;
    size_t received;

    for (int k = 1; k < b->p; k++) {
        const int j = tutti_peer_after(b, k);
        tutti_build_send(b, j, round,
                         tutti_at(TUTTI_IN_VECTOR, begin + tutti_slice(length, b->p, j)),
                         tutti_slice_count(length, b->p, j));
    }
    received = b->s->requests;
    tutti_build_slots(b, round, mine, count);
    tutti_build_wait(b, received, b->s->requests);
    tutti_build_sum(b, term, mine, count);
    tutti_build_wait(b, sent, received); /* what I sent is received over now */
}

void tutti_build_spread_slices(tutti_builder *b, size_t begin, size_t length, uint32_t round)
{
    const size_t request = b->s->requests, mine = begin + tutti_slice(length, b->p, b->i),
                 count = tutti_slice_count(length, b->p, b->i);

    for (int k = 1; k < b->p; k++)
        tutti_build_send(b, tutti_peer_after(b, k), round, tutti_at(TUTTI_IN_VECTOR, mine), count);
    for (int k = 1; k < b->p; k++) {
        const int j = tutti_peer_after(b, k);
        tutti_build_recv(b, j, round,
                         tutti_at(TUTTI_IN_VECTOR, begin + tutti_slice(length, b->p, j)),
                         tutti_slice_count(length, b->p, j));
    }
    tutti_build_wait(b, request, b->s->requests);
}

void tutti_build_exchange(tutti_builder *b, size_t begin, size_t length, uint32_t round)
{
    const size_t request = b->s->requests, term = b->s->n_terms;

    for (int k = 1; k < b->p; k++)
        tutti_build_send(b, tutti_peer_after(b, k), round, tutti_at(TUTTI_IN_VECTOR, begin),
                         length);
    tutti_build_slots(b, round, tutti_at(TUTTI_IN_VECTOR, begin), length);
    tutti_build_wait(b, request, b->s->requests);
    tutti_build_sum(b, term, tutti_at(TUTTI_IN_VECTOR, begin), length);
}
