/* logical.c: logical shares (engine_options.elastic_shares). A step is cut into V shares, V fixed
   for the run; each worker computes a block of them, equally many or by speed (batch_of), and the
   mean gradient has the same bits whichever worker computes which share. So a run has the same bits
   with 1 to V workers, and when it is resumed with another number. They are those of V workers
   without logical shares.

     g_s            gradient of share s: the mean over its samples, which the share determines
     w_s            samples of s / samples of the step
     sum            the tree over w_0 g_0, ..., w_(V-1) g_(V-1), each product rounded once, split at
                    the largest power of two (docs/design/numbers.md)

   A worker adds what of this tree lies in its block: nodes whose parent does not. It computes its
   shares in their order and adds two nodes as soon as they are the children of one, so it keeps few
   of them (`level`).

   Between workers there are two ways.
     1. If every block is a node and the tree over them is that over workers, as with V = n 2^k: the
        usual all-reduce, or reduce-scatter.
     2. Else every piece is divided evenly, each worker sends all its nodes of a part to the part's
        owner, the owner adds them in the tree, and the parts are gathered. With k_r nodes worker
        r sends k_r (c - c_r) values of a piece of c of which c_r are its own, and an all-gather
        follows.
   Both send each element at least once to its owner, and k_r is 1 to 4 in most divisions. What was
   considered instead is in docs/design/membership.md.

   Levels that are sent are stored owner by owner, so that they are what the all-to-all sends.

   If gradients are held by piece (held.c) there is no memory for nodes of whole pieces. So worker r
   computes the shares r, r + n, r + 2n, ..., and each pass is exchanged: the owner of a part
   receives it of the shares jn, ..., (j + 1) n - 1, and adds them in this order to its nodes of the
   shares before, at most lg V. Each share is sent once, and the nodes that an owner keeps are of
   its parts only.

   Where gradients go through a codec that makes sums, each share is encoded by itself, and its
   rounds go through the tree in place of a gradient (exchange/shares.c).

   Client state (own_values), as running statistics of batch norms, begins each share of a step as
   the step began. After the step it is the mean over the shares that have samples, the same on all
   workers. Each worker gathers that of all shares, V times the state, and adds it in the tree. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/share.h"
#include "engine_internal.h"
#include "logical.h"
#include "logical_tree.h"
#include "optim/optim.h"
#include "exchange/exchange.h"
#include "refuse.h"

typedef struct logical {
    tutti_engine *e;
    int shares;                  /* V */
    int first, mine;             /* this worker's shares: [first, first + mine) */
    bool direct;                 /* the tree over the blocks is that over workers (way 1) */
    /* [mine]: nodes that are kept when the gradient of a share is there */
    int *depth;
    int *joins;                  /* [mine]: how many of them it is then added to */
    int levels;                  /* the most nodes that are kept */
    int sent;                    /* nodes that this worker sends; 0: `direct` */
    size_t n;                    /* elements of what is added: of a gradient, or of the longest
                                    rounds of a codec */
    float *cut;                  /* declared, sent x n: levels below `sent`, piece by piece and
                                    within a piece part by part */
    float *rest;                 /* declared, (levels - sent) x n: the levels above */
    int *nodes_of;               /* [workers]: number of nodes of each worker */
    int nodes;                   /* the sum */
    tutti_logical_node *node;    /* [nodes]: of all workers, in ascending order */
    float *in;                   /* declared: the nodes of this worker's part of every piece. Held
                                    by piece: those from the second on of the shares before, each
                                    of all its parts */
    size_t *counts;              /* [most pieces][3 x workers]: elements sent to, received from, and
                                    owned by each worker */
    float *state;                /* declared, (1 + V) x state_size: the client's state when the step
                                    began, and after each share, worker by worker; NULL: none */
    size_t state_size;           /* own_values, and 1 if the share has samples */
    size_t *state_counts;        /* [workers]: elements of `state` of each worker's shares */
    tutti_engine_bad *bad;       /* [most pieces]: a number that is not finite in an earlier share
                                    of the step */
} logical;

static tutti_status no_memory(const logical *s, tutti_error *err)
{
    return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for %d logical shares", s->shares);
}

static void close_logical(void *self)
{
    logical *s = self;

    tutti_free(s->depth);
    tutti_free(s->joins);
    tutti_free(s->nodes_of);
    tutti_free(s->node);
    tutti_free(s->counts);
    tutti_free(s->state_counts);
    tutti_free(s->bad);
    tutti_free(s);
}

static bool is_held(const logical *s)
{
    return s->e->m.held != TUTTI_HELD_WHOLE;
}

/* ---- a share ---- */

/* The share that this worker computes in that place. */
static int share_at(const logical *s, int at)
{
    return s->first + at * tutti_share_stride(&s->e->division.share);
}

/* The weight of this worker's share in that place: its part of the step's samples. */
static double weight_of(const logical *s, uint64_t step, int at)
{
    const tutti_share of = tutti_share_by_logical(&s->e->division.share);

    return (double)tutti_share_step(&of, step, share_at(s, at)) /
           (double)tutti_share_step(&of, step, -1);
}

/* p->g, of this worker's share in that place, becomes what is added. */
static void weigh_share(const logical *s, const tutti_piece *p, uint64_t step, int at)
{
    const float weight = (float)weight_of(s, step, at);

    if (weight != 1)
        tutti_scale(s->e->m.device, p->count, weight, p->g);
}

static tutti_logical_vector gradient_of(tutti_piece *p)
{
    return (tutti_logical_vector){ p->g, p->first, p->count, p->index, &p->group };
}

/* The first element of part `index` of that many. */
static size_t part_at(const logical *s, size_t count, int index)
{
    return tutti_engine_part_at(count, s->e->m.workers, index);
}

/* level := v->x, or else v->x := level + v->x. */
static void move_level(const logical *s, const tutti_logical_vector *v, int level, bool store)
{
    tutti_device *d = s->e->m.device;
    const bool cut = level < s->sent;

    for (int w = 0; w < (cut ? s->e->m.workers : 1); w++) {
        const size_t first = cut ? part_at(s, v->count, w) : 0,
                     count = (cut ? part_at(s, v->count, w + 1) : v->count) - first;
        float *const at =
                         cut ? s->cut + (size_t)s->sent * (v->first + first) + (size_t)level * count
                             : s->rest + (size_t)(level - s->sent) * s->n + v->first,
                     *const x = v->x + first;
        if (store)
            tutti_copy(d, count, x, at);
        else
            tutti_add(d, count, at, x);
    }
}

/* v->x is of this worker's share `at`: adds it to the nodes with which it makes larger ones.
   Returns the number of nodes that are kept in addition. */
static int join_share(const logical *s, const tutti_logical_vector *v, int at)
{
    for (int k = 1; k <= s->joins[at]; k++)
        move_level(s, v, s->depth[at] - k, false);
    return s->depth[at] - s->joins[at];
}

/* v->x is of a share that is not this worker's last one. */
static void keep_share(const logical *s, const tutti_logical_vector *v, int at)
{
    move_level(s, v, join_share(s, v, at), true);
}

/* Keeps the first number of a step that is not finite, by piece. */
static tutti_status check_share(const logical *s, int piece, int at, tutti_error *err)
{
    tutti_engine_bad *bad = &s->bad[piece];

    if (at > 0 && bad->found)
        return TUTTI_OK;
    TUTTI_TRY(tutti_engine_check_gradient(s->e, piece, err));
    *bad = s->e->piece_state[piece].bad;
    return TUTTI_OK;
}

/* The client's state after the share that a worker computes in that place. */
static float *state_of(const logical *s, int worker, int at)
{
    const tutti_share blocks = tutti_share_in_blocks(&s->e->division.share);
    int mine;
    const int first = tutti_share_logical(&blocks, worker, &mine);

    return s->state + (size_t)(1 + first + at) * s->state_size;
}

static tutti_status begin_pass(void *self, const tutti_pass *pass, tutti_error *err)
{
    const logical *s = self;
    tutti_engine *e = s->e;

    (void)err;
    if (s->state != NULL && pass->index == 0)
        tutti_copy(e->m.device, s->state_size, e->own_values.now, s->state);
    else if (s->state != NULL && pass->index % e->division.share.accumulate == 0)
        tutti_copy(e->m.device, s->state_size, s->state, e->own_values.now);
    return TUTTI_OK;
}

static void keep_state(const logical *s, int at)
{
    const tutti_engine *e = s->e;
    const tutti_share of = tutti_share_by_logical(&e->division.share);
    const bool any = tutti_share_step(&of, e->counts.progress.step, share_at(s, at)) > 0;
    float *const state = state_of(s, e->m.rank, at);

    tutti_copy(e->m.device, s->state_size, e->own_values.now, state);
    if (!any)
        tutti_fill(e->m.device, s->state_size, 0, state);
    state[s->state_size - 1] = any;
}

/* Each worker gathers the client's state after all shares of the step. Before, it waits until all
   have the state of their shares. */
static tutti_status exchange_rest(void *self, tutti_error *err)
{
    const logical *s = self;
    tutti_engine *e = s->e;
    tutti_device *d = e->m.device;
    tutti_group g =
        tutti_group_keyed(&e->m.all, tutti_port_of("shares", 0, 0), (uint32_t)e->groups.steps);
    tutti_doing was;
    tutti_status status;

    TUTTI_TRY(tutti_exchange_shares_exchanged(e, err));
    if (s->state == NULL)
        return TUTTI_OK;
    was = tutti_engine_doing(e, TUTTI_DOING_EXPOSED);
    status = tutti_allgather_v(
        &g, s->state_counts, tutti_f32(d, state_of(s, e->m.rank, 0), s->state_counts[e->m.rank]),
        tutti_f32(d, state_of(s, 0, 0), (size_t)s->shares * s->state_size), err);
    tutti_engine_doing(e, was);
    return status;
}

/* The step is over: the client's state becomes the mean over the shares with samples. */
static tutti_status end_step(void *self, tutti_error *err)
{
    const logical *s = self;
    tutti_device *d = s->e->m.device;
    const tutti_share *share = &s->e->division.share;
    const float *all[TUTTI_LOGICAL_MOST];
    float *const now = s->e->own_values.now;

    tutti_exchange_shares_over(s->e);
    (void)err;
    if (s->state == NULL)
        return TUTTI_OK;
    for (int w = 0, mine; w < s->e->m.workers; w++) {
        const int first = tutti_share_logical(share, w, &mine);
        for (int i = 0; i < mine; i++)
            all[first + i * tutti_share_stride(share)] = state_of(s, w, i);
    }
    tutti_tree_sum(d, s->state_size, s->shares, all, NULL, now);
    /* no step is without samples */
    tutti_scale(d, s->state_size - 1, 1 / now[s->state_size - 1], now);
    now[s->state_size - 1] = 1;
    return TUTTI_OK;
}

/* After each share but the last one, whose pieces are exchanged as they become ready, as those of
   every share are that is held by piece. */
static tutti_status end_pass(void *self, tutti_error *err)
{
    const logical *s = self;
    tutti_engine *e = s->e;
    const int64_t index = e->step.pass.index, each = e->division.share.accumulate;
    const int at = (int)(index / each);

    if ((index + 1) % each == 0 && s->state != NULL && at < s->mine)
        keep_state(s, at);
    if ((index + 1) % each != 0 || at + 1 == s->mine || is_held(s))
        return TUTTI_OK;
    for (int k = 0; k < e->layout.n_pieces; k++) {
        tutti_piece *p = &e->pieces[k];
        tutti_engine_unscale(e, p, e->scaler.now.scale);
        TUTTI_TRY(check_share(s, k, at, err));
        if (e->sums.exchange != NULL)
            TUTTI_TRY(tutti_exchange_share(e, p, at, err));
        else {
            const tutti_logical_vector v = gradient_of(p);
            weigh_share(s, p, e->counts.progress.step, at);
            keep_share(s, &v, at);
        }
    }
    return TUTTI_OK;
}

/* ---- between workers ---- */

/* Adds the nodes below `of` in s->in, from *next on, and returns where the sum is: in place of its
   first node. own: elements of each. */
static float *add_nodes(const logical *s, tutti_logical_node of, float *in, size_t own, int *next)
{
    const int half = of.count > 1 ? tutti_logical_split(of.count) : 0;
    float *left, *right;

    if (s->node[*next].first == of.first && s->node[*next].count == of.count)
        return in + (size_t)(*next)++ * own;
    left = add_nodes(s, (tutti_logical_node){ of.first, half }, in, own, next);
    right = add_nodes(s, (tutti_logical_node){ of.first + half, of.count - half }, in, own, next);
    tutti_add(s->e->m.device, own, right, left);
    return left;
}

/* The offset of this worker's part of a vector in memory for its parts of all of them. first: of
   the vector, which is of piece `index`. Parts are rounded up. */
static size_t part_place(const logical *s, size_t first, int index)
{
    return first / (size_t)s->e->m.workers + (size_t)index * TUTTI_ENGINE_PART_OVER;
}

static size_t part_room(const logical *s)
{
    return s->n / (size_t)s->e->m.workers +
           ((size_t)tutti_engine_most_pieces(s->e) + 1) * TUTTI_ENGINE_PART_OVER;
}

/* By way of the parts' owners. */
static tutti_status sum_by_parts(const logical *s, const tutti_logical_vector *v, float *part,
                                 tutti_error *err)
{
    const tutti_engine *e = s->e;
    tutti_device *d = e->m.device;
    const int n = e->m.workers;
    const size_t first = part_at(s, v->count, e->m.rank),
                 own = part_at(s, v->count, e->m.rank + 1) - first;
    size_t *const to = s->counts + (size_t)v->index * 3 * (size_t)n, *const from = to + n,
                  *const owned = from + n;
    float *const in = s->in + (size_t)s->nodes * part_place(s, v->first, v->index),
                 *const result = part != NULL ? part : v->x + first;
    int next = 0;

    for (int w = 0; w < n; w++) {
        owned[w] = part_at(s, v->count, w + 1) - part_at(s, v->count, w);
        to[w] = (size_t)s->sent * owned[w];
        from[w] = (size_t)s->nodes_of[w] * own;
    }
    TUTTI_TRY(tutti_alltoall_v(
        v->group, to,
        tutti_f32(d, s->cut + (size_t)s->sent * v->first, (size_t)s->sent * v->count),
        tutti_f32(d, in, (size_t)s->nodes * own), err));
    tutti_copy(d, own, add_nodes(s, (tutti_logical_node){ 0, s->shares }, in, own, &next), result);
    return part != NULL ? TUTTI_OK
                        : tutti_allgather_v(v->group, owned, tutti_f32(d, result, own),
                                            tutti_f32(d, v->x, v->count), err);
}

/* `from`, one after the other: this worker's part of the shares first, ..., first + count - 1. Adds
   them to the nodes of the shares before; `part` is the first. */
static void count_up(const logical *s, const tutti_piece *p, tutti_logical_node shares, float *part,
                     float *from)
{
    tutti_device *d = s->e->m.device;
    const size_t own =
        part_at(s, p->count, s->e->m.rank + 1) - part_at(s, p->count, s->e->m.rank);
    tutti_logical_node kept[TUTTI_LOGICAL_NODES + 1];
    float *level[TUTTI_LOGICAL_NODES + 1], *at[TUTTI_LOGICAL_NODES + 1];
    int n = tutti_logical_nodes(s->shares, (tutti_logical_node){ 0, shares.first }, kept);

    for (int k = 0; k <= TUTTI_LOGICAL_NODES; k++)
        at[k] = level[k] = k == 0 || k >= s->levels ? part
                                                    : s->in + (size_t)(k - 1) * part_room(s) +
                                                          part_place(s, p->first, p->index);
    for (int i = 0; i < shares.count; i++) {
        kept[n] = (tutti_logical_node){ shares.first + i, 1 };
        at[n] = from + (size_t)i * own;
        for (n++; n > 1 && tutti_logical_joins(s->shares, kept[n - 2], kept[n - 1]); n--) {
            tutti_add(d, own, at[n - 1], at[n - 2]);
            kept[n - 2].count += kept[n - 1].count;
        }
    }
    for (int k = 0; k < n; k++)
        if (at[k] != level[k])
            tutti_copy(d, own, at[k], level[k]);
}

/* Held by piece: a pass, in which each of the first workers has a share. A worker without one sends
   nothing, since even 0 may change a sum, of -0. */
static tutti_status sum_pass(const logical *s, tutti_piece *p, float *part, tutti_error *err)
{
    tutti_engine *e = s->e;
    const int n = e->m.workers, at = (int)e->step.pass.index, first = at * n,
              count = s->shares - first < n ? s->shares - first : n;
    const size_t own = part_at(s, p->count, e->m.rank + 1) - part_at(s, p->count, e->m.rank);
    size_t *const to = s->counts + (size_t)p->index * 3 * (size_t)n, *const from = to + n;
    float *const received = e->piece_state[p->index].received;

    if (at < s->mine)
        weigh_share(s, p, p->step, at);
    for (int w = 0; w < n; w++) {
        to[w] = at < s->mine ? part_at(s, p->count, w + 1) - part_at(s, p->count, w) : 0;
        from[w] = w < count ? own : 0;
    }
    TUTTI_TRY(tutti_alltoall_v(&p->group, to,
                               tutti_f32(e->m.device, p->g, at < s->mine ? p->count : 0),
                               tutti_f32(e->m.device, received, (size_t)count * own), err));
    count_up(s, p, (tutti_logical_node){ first, count }, part, received);
    return TUTTI_OK;
}

static tutti_status sum_directly(const logical *s, const tutti_logical_vector *v, float *part,
                                 tutti_error *err)
{
    const tutti_engine *e = s->e;
    const int n = e->m.workers;
    const tutti_buffer whole = tutti_f32(e->m.device, v->x, v->count);
    size_t *const owned = s->counts + (size_t)v->index * 3 * (size_t)n;

    if (part == NULL)
        return tutti_allreduce(v->group, TUTTI_SUM, whole, err);
    for (int w = 0; w < n; w++)
        owned[w] = part_at(s, v->count, w + 1) - part_at(s, v->count, w);
    return tutti_reduce_scatter_v(v->group, TUTTI_SUM, owned, whole,
                                  tutti_f32(e->m.device, part, owned[e->m.rank]), err);
}

/* v->x is of this worker's last share: the sum over all shares. */
static tutti_status sum_of_all(const logical *s, const tutti_logical_vector *v, float *part,
                               tutti_error *err)
{
    const int depth = join_share(s, v, s->mine - 1);

    if (s->direct)
        return sum_directly(s, v, part, err);
    move_level(s, v, depth, true);
    return sum_by_parts(s, v, part, err);
}

/* The last share's gradient is there: what was found in an earlier one counts for the step. */
static void take_over_bad(const logical *s, int piece)
{
    if (s->mine > 1 && s->bad[piece].found)
        s->e->piece_state[piece].bad = s->bad[piece];
}

static tutti_status sum(void *self, tutti_piece *p, float *part, tutti_error *err)
{
    const logical *s = self;
    const tutti_logical_vector v = gradient_of(p);

    if (is_held(s))
        return sum_pass(s, p, part, err);
    take_over_bad(s, p->index);
    weigh_share(s, p, p->step, s->mine - 1);
    return sum_of_all(s, &v, part, err);
}

/* ---- for codecs ---- */

static const tutti_facility_ops logical_shares; /* below */

static const logical *shares_of(const tutti_engine *e)
{
    return tutti_facility_self(&e->m, &logical_shares);
}

double tutti_logical_weight(const tutti_engine *e, uint64_t step, int at)
{
    return weight_of(shares_of(e), step, at);
}

void tutti_logical_ends(const tutti_engine *e, int piece)
{
    take_over_bad(shares_of(e), piece);
}

tutti_status tutti_logical_add(const tutti_engine *e, const tutti_logical_vector *v, int at,
                               tutti_error *err)
{
    const logical *s = shares_of(e);

    if (at + 1 == s->mine)
        return sum_of_all(s, v, NULL, err);
    keep_share(s, v, at);
    return TUTTI_OK;
}

/* ---- steps as a whole ---- */

static void undo(void *self)
{
    tutti_exchange_shares_undo(((const logical *)self)->e);
}

static void *beside(const void *self, const void *memory, uint64_t *step)
{
    return tutti_exchange_shares_beside(((const logical *)self)->e, memory, step);
}

/* ---- declaring ---- */

/* Which nodes this worker keeps when each of its shares is there. */
static void plan_levels(logical *s)
{
    tutti_logical_node kept[TUTTI_LOGICAL_NODES + 1];
    int n = 0;

    for (int i = 0; i < s->mine; i++) {
        tutti_logical_node now = { s->first + i, 1 };
        s->depth[i] = n;
        while (n > 0 && tutti_logical_joins(s->shares, kept[n - 1], now)) {
            now = (tutti_logical_node){ kept[n - 1].first, kept[n - 1].count + now.count };
            n--;
            s->joins[i]++;
        }
        kept[n++] = now;
        s->levels = (i + 1 < s->mine || !s->direct) && n > s->levels ? n : s->levels;
    }
}

/* Held by piece: the most nodes that an owner keeps between two passes. */
static void plan_passes(logical *s)
{
    tutti_logical_node nodes[TUTTI_LOGICAL_NODES];

    for (int first = s->e->m.workers; first < s->shares; first += s->e->m.workers) {
        const int n = tutti_logical_nodes(s->shares, (tutti_logical_node){ 0, first }, nodes);
        s->levels = n > s->levels ? n : s->levels;
    }
}

/* Finds each worker's nodes. */
static tutti_status plan_nodes(logical *s, tutti_error *err)
{
    const tutti_engine *e = s->e;
    tutti_logical_node blocks[TUTTI_LOGICAL_MOST], nodes[TUTTI_LOGICAL_NODES];

    for (int w = 0; w < e->m.workers; w++) {
        blocks[w].first = tutti_share_logical(&e->division.share, w, &blocks[w].count);
        s->nodes_of[w] = tutti_logical_nodes(s->shares, blocks[w], nodes);
        s->nodes += s->nodes_of[w];
    }
    s->direct = tutti_logical_is_workers(s->shares, e->m.workers, blocks);
    s->sent = s->direct ? 0 : s->nodes_of[e->m.rank];
    s->node = tutti_alloc((size_t)s->nodes, sizeof *s->node);
    if (s->node == NULL)
        return no_memory(s, err);
    for (int w = 0, at = 0; w < e->m.workers; w++) {
        const int n = tutti_logical_nodes(s->shares, blocks[w], nodes);
        for (int k = 0; k < n; k++)
            s->node[at++] = nodes[k];
    }
    return TUTTI_OK;
}

static const char adds_shares[] =
                      "adds the gradients of logical shares here (elastic-shares, workers)",
                  omit_those[] = ", or those";

/* A codec of gradients encodes each share by itself; others are refused. */
static tutti_status refuse_codec(const tutti_engine *e, tutti_error *err)
{
    const char *mend, *against = tutti_exchange_shares_against(e, &mend);
    char about[160];
    const tutti_conflict codec = { TUTTI_ASKED_CODEC, adds_shares, about, omit_those };

    if (against == NULL || e->sums.exchange == NULL || e->options.codec[0] != 0) {
        snprintf(about, sizeof about, ", and %s", against != NULL ? against : "");
        return against != NULL ? tutti_refuse(&e->m, &codec, 1, err) : TUTTI_OK;
    }
    return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                      "elastic-shares is %d, but method '%s' has a codec, and %s; %s, or omit "
                      "elastic-shares",
                      e->options.elastic_shares, e->m.ops->name, against, mend);
}

static tutti_status refuse_logical(const tutti_engine *e, tutti_error *err)
{
    static const tutti_conflict conflicts[] = {
        { TUTTI_ASKED_PARTITION, adds_shares, NULL, omit_those },
        { TUTTI_ASKED_LAZY, adds_shares,
          ", and which rows a sum over some shares has is not known", omit_those },
    };
    const char *why =
        (e->m.traits & TUTTI_LOGICAL_SHARES) == 0 ? "does more in a step than to add gradients, or "
                                                    "its options do, and what it does depends "
                                                    "on the number of workers"
        : e->options.accumulate > 1 && e->m.held != TUTTI_HELD_WHOLE
            ? "holds gradients by piece, so that a share is of one pass: give accumulate=1 and as "
              "many times more shares"
        : e->options.batch_of != NULL && e->m.held != TUTTI_HELD_WHOLE
            ? "holds gradients by piece, so that shares are dealt to the workers in turn: omit "
              "batch-share"
        : e->sums.exchange != NULL && (e->sums.codec_team > 1 || e->options.codec_report > 0 ||
                                       e->options.codec_cost != TUTTI_CODEC_COST_OFF)
            ? "has a codec, which encodes each share: leave codec-cost, codec-report and "
              "codec-hierarchy off"
        : e->sums.collective != NULL && strstr(e->sums.collective, "order=any") != NULL
            ? "cannot have them with a collective that adds in an order of its own (order=any)"
            : NULL;

    if (why != NULL)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "elastic-shares is %d, but method '%s' %s; or omit elastic-shares "
                          "(docs/design/membership.md)",
                          e->options.elastic_shares, e->m.ops->name, why);
    TUTTI_TRY(tutti_refuse(&e->m, conflicts, TUTTI_LENGTH(conflicts), err));
    return refuse_codec(e, err);
}

/* Declares memory for that many numbers, if there are any. */
static void declare_floats(tutti_engine *e, const char *name, size_t count, float **at)
{
    if (count > 0)
        tutti_declare(
            e->plan,
            &(tutti_state){
                .name = name, .keep = TUTTI_SCRATCH, .dtype = TUTTI_F32, .count = count },
            at);
}

/* Declares the memory for the client's state. */
static tutti_status declare_state(logical *s, tutti_error *err)
{
    tutti_engine *e = s->e;
    int mine;

    if (e->options.own_values == 0)
        return TUTTI_OK;
    s->state_size = e->options.own_values + 1;
    s->state_counts = tutti_alloc((size_t)e->m.workers, sizeof *s->state_counts);
    if (s->state_counts == NULL)
        return no_memory(s, err);
    for (int w = 0; w < e->m.workers; w++) {
        tutti_share_logical(&e->division.share, w, &mine);
        s->state_counts[w] = (size_t)mine * s->state_size;
    }
    declare_floats(e, "logical.client", (size_t)(1 + s->shares) * s->state_size, &s->state);
    return TUTTI_OK;
}

static const tutti_facility_ops logical_shares = { .close = close_logical,
                                                   .begin_pass = begin_pass,
                                                   .end_pass = end_pass,
                                                   .sum = sum,
                                                   .exchange_rest = exchange_rest,
                                                   .undo = undo,
                                                   .beside = beside,
                                                   .end_step = end_step };

tutti_status tutti_engine_logical_declare(tutti_engine *e, tutti_error *err)
{
    const size_t workers = (size_t)e->m.workers;
    size_t pieces;
    logical *s;

    if (e->options.elastic_shares == 0)
        return TUTTI_OK;
    TUTTI_TRY(refuse_logical(e, err));
    if (e->division.rounds && tutti_method_does(&e->m, TUTTI_MAKES_ROUNDS) == NULL)
        return tutti_fail(err, TUTTI_ERR_STATE, 0,
                          "method '%s' has TUTTI_LOGICAL_SHARES without TUTTI_REPLICAS_EQUAL, so its "
                          "steps are rounds with logical shares; call tutti_rounds_declare "
                          "(modes/rounds.h)",
                          e->m.ops->name);
    TUTTI_TRY(tutti_engine_cut(e, err));
    pieces = (size_t)tutti_engine_most_pieces(e);
    s = tutti_alloc(1, sizeof *s);
    if (s == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for %d logical shares",
                          e->options.elastic_shares);
    s->e = e;
    s->shares = e->options.elastic_shares;
    s->n = e->m.n;
    e->division.share.logical = is_held(s) ? -s->shares : s->shares;
    tutti_facility_add(&e->m, &logical_shares, s);
    s->first = tutti_share_logical(&e->division.share, e->m.rank, &s->mine);
    s->depth = tutti_alloc((size_t)s->mine, sizeof *s->depth);
    s->joins = tutti_alloc((size_t)s->mine, sizeof *s->joins);
    s->nodes_of = tutti_alloc(workers, sizeof *s->nodes_of);
    s->bad = tutti_alloc(pieces, sizeof *s->bad);
    s->counts = tutti_alloc(pieces, 3 * workers * sizeof *s->counts);
    if (s->depth == NULL || s->joins == NULL || s->nodes_of == NULL || s->bad == NULL ||
        s->counts == NULL)
        return no_memory(s, err);
    if (is_held(s)) {
        plan_passes(s);
        declare_floats(e, "logical.in", (s->levels > 1 ? (size_t)s->levels - 1 : 0) * part_room(s), &s->in);
        return declare_state(s, err);
    }
    TUTTI_TRY(plan_nodes(s, err));
    plan_levels(s);
    TUTTI_TRY(declare_state(s, err));
    if (e->sums.exchange != NULL)
        TUTTI_TRY(tutti_exchange_shares_declare(e, &s->n, err));
    declare_floats(e, "logical.cut", (size_t)s->sent * s->n, &s->cut);
    declare_floats(e, "logical.in", s->sent > 0 ? (size_t)s->nodes * part_room(s) : 0, &s->in);
    declare_floats(e, "logical.rest", s->levels > s->sent ? (size_t)(s->levels - s->sent) * s->n : 0,
                   &s->rest);
    return TUTTI_OK;
}
