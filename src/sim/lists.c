/* lists.c: the unmatched requests of a rank: inserting, and finding partners. */
#include "lists.h"

enum { SLOTS_FIRST = 16 };

/* ---- the index ---- */
/* sender: of a send its rank; of a receive whom it is from, or TUTTI_ANY. */
static sim_link *slot(sim_lists *l, bool sends, uint64_t tag, int sender)
{
    uint64_t key = (tag ^ (uint64_t)(sender + 2) << 1 ^ sends) * UINT64_C(0x9e3779b97f4a7c15);

    key = (key ^ key >> 32) * UINT64_C(0xff51afd7ed558ccd);
    return &l->index[(key ^ key >> 32) & (l->slots - 1)];
}

static int sender_of(const sim_op *op)
{
    return op->sends ? op->rank : op->peer;
}

static void insert_by_key(sim_lists *l, sim_op *op)
{
    sim_link *const head = slot(l, op->sends, op->tag, sender_of(op)), *before = head;

    while (before->prev != head && SIM_OWNER(sim_op, key, before->prev)->sequence > op->sequence) {
        before = before->prev;
        l->seen++;
    }
    sim_list_insert(before, &op->key);
}

static sim_link *make_index(size_t slots)
{
    sim_link *index = tutti_alloc(slots, sizeof *index);

    for (size_t k = 0; index != NULL && k < slots; k++)
        sim_list_init(&index[k]);
    return index;
}

/* Without memory for more slots the lists of the index become longer, no more. */
static void enlarge(sim_lists *l)
{
    sim_link *const more = make_index(2 * l->slots);

    if (more == NULL)
        return;
    tutti_free(l->index);
    l->index = more;
    l->slots *= 2;
    for (int b = 0; b < 2 * SIM_BUCKETS; b++) {
        sim_link *const head = b < SIM_BUCKETS ? &l->sends[b] : &l->receives[b - SIM_BUCKETS];
        for (sim_link *at = head->next; at != head; at = at->next)
            insert_by_key(l, SIM_OWNER(sim_op, link, at));
    }
}

/* The first that is not due with that tag and sender. */
static sim_op *first(sim_lists *l, bool sends, uint64_t tag, int sender)
{
    sim_link *const head = slot(l, sends, tag, sender);

    for (sim_link *at = head->next; at != head; at = at->next) {
        sim_op *const op = SIM_OWNER(sim_op, key, at);
        l->seen++;
        if (op->sends == sends && op->tag == tag && sender_of(op) == sender && !op->due)
            return op;
    }
    return NULL;
}

/* ---- from open to close ---- */
bool sim_lists_open(sim_lists *l)
{
    *l = (sim_lists){ .index = make_index(SLOTS_FIRST), .slots = SLOTS_FIRST };
    for (int b = 0; b < SIM_BUCKETS; b++) {
        sim_list_init(&l->sends[b]);
        sim_list_init(&l->receives[b]);
    }
    return l->index != NULL;
}

void sim_lists_close(sim_lists *l)
{
    tutti_free(l->index);
    l->index = NULL;
}

void sim_lists_insert(sim_lists *l, sim_op *op)
{
    sim_link *const head = sim_lists_of(op->sends ? l->sends : l->receives, op->tag),
                   *before = head;

    if (l->n == l->slots)
        enlarge(l);
    while (before->prev != head && SIM_OWNER(sim_op, link, before->prev)->sequence > op->sequence) {
        before = before->prev;
        l->seen++;
    }
    sim_list_insert(before, &op->link);
    insert_by_key(l, op);
    l->n++;
    op->state = SIM_LISTED;
    op->transfer = NULL;
}

void sim_lists_remove(sim_lists *l, sim_op *op)
{
    l->n--;
    sim_list_remove(&op->link);
    sim_list_remove(&op->key);
}

/* ---- partners ---- */
static int bucket(uint64_t tag)
{
    return (int)((tag ^ tag >> 32) % SIM_BUCKETS);
}

sim_link *sim_lists_of(sim_link *lists, uint64_t tag)
{
    return &lists[bucket(tag)];
}

int sim_order(const sim_op *a, const sim_op *b)
{
    const int at_a = a->sends ? a->peer : a->rank, at_b = b->sends ? b->peer : b->rank;

    if (at_a != at_b)
        return at_a < at_b ? -1 : 1;
    if (a->sends != b->sends)
        return a->sends ? -1 : 1;
    if (bucket(a->tag) != bucket(b->tag))
        return bucket(a->tag) - bucket(b->tag);
    return (a->sequence > b->sequence) - (a->sequence < b->sequence);
}

bool sim_fit(const sim_op *send, const sim_op *recv)
{
    return send->tag == recv->tag && (recv->peer == TUTTI_ANY || recv->peer == send->rank);
}

sim_op *sim_lists_partner(sim_lists *l, const sim_op *op)
{
    sim_link *head;

    if (op->sends) {
        sim_op *const own = first(l, false, op->tag, op->rank),
                     *const any = first(l, false, op->tag, TUTTI_ANY);
        return own == NULL || (any != NULL && any->sequence < own->sequence) ? any : own;
    }
    if (op->peer != TUTTI_ANY)
        return first(l, true, op->tag, op->peer);
    head = sim_lists_of(l->sends, op->tag);
    for (sim_link *at = head->next; at != head; at = at->next) {
        sim_op *const send = SIM_OWNER(sim_op, link, at);
        l->seen++;
        if (sim_fit(send, op) && !send->due)
            return send;
    }
    return NULL;
}

/* Of one rank the first posted: both kinds of lists are in that order. */
static bool is_earlier(const sim_op *a, const sim_op *b)
{
    return b == NULL || a->posted_ns < b->posted_ns ||
           (a->posted_ns == b->posted_ns && a->rank < b->rank);
}

sim_op *sim_lists_earliest(sim_lists *l, const sim_op *recv)
{
    const bool any = recv->peer == TUTTI_ANY;
    sim_link *const head =
        any ? sim_lists_of(l->sends, recv->tag) : slot(l, true, recv->tag, recv->peer);
    sim_op *best = NULL;

    for (sim_link *at = head->next; at != head; at = at->next) {
        sim_op *const op = any ? SIM_OWNER(sim_op, link, at) : SIM_OWNER(sim_op, key, at);
        l->seen++;
        if (op->sends && sim_fit(op, recv) && is_earlier(op, best))
            best = op;
    }
    return best;
}
