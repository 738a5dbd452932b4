/* match_queue.c: see match_queue.h. */
#include "match_queue.h"

void tutti_match_queue_init(match_queue *q)
{
    for (int b = 0; b < MATCH_BUCKETS; b++) {
        match_list_init(&q->posted[b]);
        match_list_init(&q->unexpected[b]);
    }
    q->sequence = 0;
}

static match_link *bucket_of(match_link *buckets, uint64_t tag)
{
    /* Fibonacci hashing; ports are hashes already, tests' tags are not */
    return &buckets[(tag * UINT64_C(0x9E3779B97F4A7C15)) >> 56];
}

match_waiting *tutti_match_posted(match_queue *q, int from, uint64_t tag)
{
    match_link *bucket = bucket_of(q->posted, tag);

    for (match_link *at = bucket->next; at != bucket; at = at->next) {
        match_waiting *w = MATCH_OWNER(match_waiting, link, at);
        if (w->tag == tag && (w->peer == from || w->peer == TUTTI_ANY))
            return w;
    }
    return NULL;
}

match_waiting *tutti_match_unexpected(match_queue *q, int from, uint64_t tag)
{
    match_link *bucket = bucket_of(q->unexpected, tag);

    for (match_link *at = bucket->next; at != bucket; at = at->next) {
        match_waiting *w = MATCH_OWNER(match_waiting, link, at);
        if (w->tag == tag && (w->peer == from || from == TUTTI_ANY))
            return w;
    }
    return NULL;
}

/* What has just come belongs at the end, so the search begins there. */
static void insert(match_link *bucket, match_waiting *w)
{
    match_link *before = bucket;

    while (before->prev != bucket && MATCH_OWNER(match_waiting, link, before->prev)->sequence > w->sequence)
        before = before->prev;
    match_list_insert(before, &w->link);
}

void tutti_match_post(match_queue *q, match_waiting *w)
{
    insert(bucket_of(q->posted, w->tag), w);
}

void tutti_match_keep(match_queue *q, match_waiting *w)
{
    insert(bucket_of(q->unexpected, w->tag), w);
}

match_waiting *tutti_match_next(match_link *buckets, const match_waiting *after)
{
    match_link *bucket = after != NULL ? bucket_of(buckets, after->tag) : buckets;
    match_link *at = after != NULL ? after->link.next : bucket->next;

    while (at == bucket) {
        if (++bucket == buckets + MATCH_BUCKETS)
            return NULL;
        at = bucket->next;
    }
    return MATCH_OWNER(match_waiting, link, at);
}

/* ---- requests ---- */
tutti_status tutti_match_check(const char *doing, const tutti_request *r, int size, int peer, bool any, tutti_buffer b,
                               size_t *bytes, tutti_error *err)
{
    *bytes = 0;
    if (r->posted && !atomic_load_explicit(&r->done, memory_order_acquire))
        return tutti_fail(err, TUTTI_ERR_STATE, 0,
                          "%s with a request that is still in flight; wait for it or cancel it first", doing);
    if ((peer < 0 || peer >= size) && !(any && peer == TUTTI_ANY))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "%s worker %d of a run of %d; there are workers 0 to %d", doing,
                          peer, size, size - 1);
    if (!tutti_size_mul(b.count, tutti_dtype_bytes(b.dtype), bytes) || (b.data == NULL && *bytes > 0))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "%s worker %d: %zu elements of %s at %p are no memory", doing, peer,
                          b.count, tutti_dtype_name(b.dtype), b.data);
    return TUTTI_OK;
}

void tutti_match_begin(tutti_request *r)
{
    r->status = TUTTI_OK;
    r->rank = -1;
    atomic_store_explicit(&r->done, false, memory_order_relaxed); /* nobody waits for it yet */
    r->posted = true;
    r->internal[0] = NULL;
}

void tutti_match_finish(tutti_request *r, tutti_status status, int rank)
{
    r->status = status;
    r->rank = rank;
    r->internal[0] = NULL;
    /* publishes the result; pairs with an acquire load by the owner */
    atomic_store_explicit(&r->done, true, memory_order_release);
}
