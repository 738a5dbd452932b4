/* Collectives that know hosts: links between hosts are slow and shared by all members of a host, so what is to cross one crosses it once.

   Source: the hierarchical form of the sheet on collectives: reduce-scatter over the q members of a host, all-reduce of each slice over the P members that hold
   it, all-gather over the host. Between hosts a member sends 2n/q (P-1)/P elements, all q at once. Order of summation: hosts are aligned blocks of q members, a
   power of two, so the sum of a block is a subtree of DESIGN's one order, and the tree over blocks is the rest of it. Hosts that are not alike (key->local 0)
   have no such lists.

   Two hosts exchange whole slices: the same bytes as slices of slices, in one round. */
#include "builder.h"

typedef struct hosts {
    int q, n;               /* members a host, hosts */
    int host, at;           /* mine, and my place there */
} hosts;

static hosts hosts_of(const tutti_builder *b)
{
    const int local = b->s->key.local, q = local > 0 ? local : b->p;
    const hosts h = { q, b->p / q, b->i / q, b->i % q };

    return h;
}

static void inside(tutti_builder *b, const hosts *h)
{
    tutti_build_narrow(b, h->q, h->at, h->host * h->q, 1);
}

static void between(tutti_builder *b, const hosts *h)
{
    tutti_build_narrow(b, h->n, h->host, h->at, h->q);
}

void tutti_build_allreduce_hierarchy(tutti_builder *b)
{
    const hosts h = hosts_of(b);
    size_t begin = 0;
    uint32_t round = 0;

    do {
        const size_t length = b->n - begin < TUTTI_SEGMENT ? b->n - begin : TUTTI_SEGMENT;
        const size_t mine = begin + tutti_slice(length, h.q, h.at), count = tutti_slice_count(length, h.q, h.at);
        inside(b, &h);
        tutti_build_sum_slices(b, begin, length, round);
        between(b, &h);
        if (h.n == 2) {
            tutti_build_exchange(b, mine, count, round + 1);
        } else if (h.n > 2) {
            tutti_build_sum_slices(b, mine, count, round + 1);
            tutti_build_spread_slices(b, mine, count, round + 2);
        }
        inside(b, &h);
        tutti_build_spread_slices(b, begin, length, round + 3);
        begin += length;
        round += 4;
    } while (begin < b->n);
}

/* Where a segment of a reduce-scatter stands, and how its scratch memory is laid out: what comes of mates, sums for other hosts, sums from other hosts. */
typedef struct segment {
    hosts h;
    size_t begin, most;     /* of each part: elements [begin, begin + most) */
    size_t sums, others;    /* where in the scratch memory */
    uint32_t round;
} segment;

static size_t rest(const tutti_builder *b, const segment *s, int j)
{
    const size_t count = tutti_part_count(b, 0, j), left = count > s->begin ? count - s->begin : 0;

    return left < s->most ? left : s->most;
}

/* Is there a message for this part? The first one of a part is sent even if it is empty: who thinks otherwise hears it. */
static bool spoken_of(const tutti_builder *b, const segment *s, int j)
{
    return s->begin == 0 || rest(b, s, j) > 0;
}

/* The members of my host send each other their inputs of host `to`'s parts; each adds those of the part at its own place into `sum`. */
static void sum_inside(tutti_builder *b, const segment *s, int to, uint32_t round, tutti_ref sum)
{
    const hosts *h = &s->h;
    const int j = to * h->q + h->at;
    const size_t request = b->s->requests, term = b->s->n_terms;

    inside(b, h);
    for (int k = 1; k < h->q; k++) {
        const int mate = tutti_peer_after(b, k), theirs = to * h->q + mate;
        if (spoken_of(b, s, theirs))
            tutti_build_send(b, mate, round, tutti_at(TUTTI_VECTOR, tutti_part_at(b, 0, theirs) + s->begin), rest(b, s, theirs));
    }
    if (spoken_of(b, s, j))
        tutti_build_slots(b, round, tutti_at(TUTTI_VECTOR, tutti_part_at(b, 0, j) + s->begin), rest(b, s, j));
    tutti_build_wait(b, request, b->s->requests);
    tutti_build_sum(b, term, sum, rest(b, s, j));
    between(b, h);
}

static void reduce_scatter_segment(tutti_builder *b, const segment *s)
{
    const hosts *h = &s->h;
    const int mine = h->host * h->q + h->at;
    const size_t request = b->s->requests, count = rest(b, s, mine);

    between(b, h);
    for (int host = 0, k = 0; host < h->n; host++)
        if (host != h->host && spoken_of(b, s, mine))
            tutti_build_recv(b, host, s->round, tutti_at(TUTTI_SCRATCH, s->others + (size_t)k++ * s->most), count);
    const size_t received = b->s->requests;
    for (int k = 1; k < h->n; k++)
        sum_inside(b, s, tutti_peer_after(b, k), s->round + (uint32_t)k, tutti_at(TUTTI_SCRATCH, s->sums + (size_t)(k - 1) * s->most));
    const size_t first = b->s->requests;
    for (int k = 1; k < h->n; k++) { /* they travel while I do my own host's */
        const int to = tutti_peer_after(b, k), j = to * h->q + h->at;
        if (spoken_of(b, s, j))
            tutti_build_send(b, to, s->round, tutti_at(TUTTI_SCRATCH, s->sums + (size_t)(k - 1) * s->most), rest(b, s, j));
    }
    const size_t sent = b->s->requests;
    sum_inside(b, s, h->host, s->round + (uint32_t)h->n, tutti_at(TUTTI_PART, s->begin));
    tutti_build_wait(b, request, received);
    const size_t term = b->s->n_terms;
    for (int host = 0, k = 0; host < h->n; host++)
        tutti_build_term(b, host == h->host ? tutti_at(TUTTI_PART, s->begin) : tutti_at(TUTTI_SCRATCH, s->others + (size_t)k++ * s->most));
    if (h->n > 1)
        tutti_build_sum(b, term, tutti_at(TUTTI_PART, s->begin), count);
    tutti_build_wait(b, first, sent);
}

void tutti_build_reduce_scatter_hierarchy(tutti_builder *b)
{
    segment s = { .h = hosts_of(b), .most = TUTTI_SEGMENT / (size_t)b->p + 1 };
    const int p = b->p;
    size_t longest = 0;

    for (int j = 0; j < p; j++)
        longest = tutti_part_count(b, 0, j) > longest ? tutti_part_count(b, 0, j) : longest;
    s.most = longest < s.most ? longest : s.most;
    s.sums = (size_t)(s.h.q - 1) * s.most;
    s.others = s.sums + (size_t)(s.h.n - 1) * s.most;
    tutti_build_scratch(b, s.others + (size_t)(s.h.n - 1) * s.most);
    do {
        reduce_scatter_segment(b, &s);
        s.begin += s.most;
        s.round += (uint32_t)s.h.n + 1;
    } while (s.begin < longest);
}

/* The part of member (host, at) goes to the members (any host, at), and each of them passes it on inside its host, its own host's parts first: those need not
   wait for what crosses. */
void tutti_build_allgather_hierarchy(tutti_builder *b)
{
    const hosts h = hosts_of(b);
    const int me = b->i;
    const size_t request = b->s->requests;

    between(b, &h);
    for (int k = 1; k < h.n; k++) {
        const int j = tutti_peer_after(b, k) * h.q + h.at;
        tutti_build_recv(b, tutti_peer_after(b, k), 0, tutti_at(TUTTI_VECTOR, tutti_part_at(b, 0, j)), tutti_part_count(b, 0, j));
    }
    const size_t received = b->s->requests;
    for (int k = 1; k < h.n; k++)
        tutti_build_send(b, tutti_peer_after(b, k), 0, tutti_at(TUTTI_PART, 0), tutti_part_count(b, 0, me));
    tutti_build_copy(b, tutti_at(TUTTI_VECTOR, tutti_part_at(b, 0, me)), tutti_at(TUTTI_PART, 0), tutti_part_count(b, 0, me));
    inside(b, &h);
    for (int k = 0; k < h.n; k++) {
        const int host = (h.host + k) % h.n, passed = host * h.q + h.at;
        for (int m = 1; m < h.q; m++) {
            const int j = host * h.q + tutti_peer_after(b, m);
            tutti_build_recv(b, tutti_peer_after(b, m), 1 + (uint32_t)host, tutti_at(TUTTI_VECTOR, tutti_part_at(b, 0, j)), tutti_part_count(b, 0, j));
        }
        if (k == 1)
            tutti_build_wait(b, request, received);
        for (int m = 1; m < h.q; m++)
            tutti_build_send(b, tutti_peer_after(b, m), 1 + (uint32_t)host, k == 0 ? tutti_at(TUTTI_PART, 0) : tutti_at(TUTTI_VECTOR, tutti_part_at(b, 0, passed)),
                             tutti_part_count(b, 0, passed));
    }
    tutti_build_wait(b, h.n > 1 ? received : request, b->s->requests);
}
