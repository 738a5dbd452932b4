/* match_queue.c: the functions of match_queue.h that are not inline. */
#include "match_queue.h"

void tutti_match_queue_init(match_queue *q)
{
    for (int b = 0; b < MATCH_BUCKETS; b++) {
        match_list_init(&q->posted[b]);
        match_list_init(&q->unexpected[b]);
    }
    q->sequence = 0;
}

match_waiting *tutti_match_next(match_link *buckets, const match_waiting *after)
{
    match_link *bucket = after != NULL ? match_bucket(buckets, after->tag) : buckets;
    match_link *at = after != NULL ? after->link.next : bucket->next;

    while (at == bucket) {
        if (++bucket == buckets + MATCH_BUCKETS)
            return NULL;
        at = bucket->next;
    }
    return MATCH_OWNER(match_waiting, link, at);
}

tutti_status tutti_match_check(const match_post *of, const tutti_request *r, int size,
                               tutti_buffer b, size_t *bytes, tutti_error *err)
{
    const char *doing = of->doing;
    const int peer = of->peer;
    const bool any = of->any;

    *bytes = 0;
    if (r->posted && !atomic_load_explicit(&r->done, memory_order_acquire))
        return tutti_fail(
            err, TUTTI_ERR_STATE, 0,
            "%s with a request that is still in flight; wait for it or cancel it first", doing);
    if ((peer < 0 || peer >= size) && !(any && peer == TUTTI_ANY))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "%s worker %d of a run of %d; there are workers 0 to %d", doing, peer,
                          size, size - 1);
    if (!tutti_size_mul(b.count, tutti_dtype_bytes(b.dtype), bytes) ||
        (b.data == NULL && *bytes > 0))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "%s worker %d: %zu elements of %s at %p are no memory", doing, peer,
                          b.count, tutti_dtype_name(b.dtype), b.data);
    return TUTTI_OK;
}
