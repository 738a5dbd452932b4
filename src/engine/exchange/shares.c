/* shares.c: logical shares (logical.c) through a codec that makes sums. Each share is encoded by
   itself, with a residual of its own, so no bit depends on which worker computes it, nor on how
   many workers there are. What travels are sums over shares, in the one tree: as many bytes as
   without shares where the tree over the blocks is that over workers, and else what logical.c says,
   of the codec's numbers in place of the gradient's.

     each share, as it is computed    D_s = V w_s g_s + e_s, kept as e_s, and its round 0
     the last one                     the mean of round 0 over all shares; then, round by round,
                                      that of each share and the mean of it
     then                             e_s less what was sent of D_s, for each share; the mean is
                                      decoded once

   A round of a share is divided by V before it is added, as a mean over V workers is (reduce.c). So
   with V workers of a share each the bits are those without shares.

   A later round may need D_s, which is in the residual. Of a codec without one it is copied (`x`).
   A fold may also change the mean of the round before (codec.h), identically on all workers: so
   each share's fold is given that mean as it arrived. Scratch memory, which a codec keeps from
   fold to unfold, is of a share.

   Steps as a whole (options.commit). Residuals and factors change while pieces are exchanged. So
   the states are copied when the step begins (`kept`, which is there for skipped steps, too). A
   failure puts them back. Members of a lost epoch have one of two steps, and only one worker has a
   share's state. So each can give both (as in modes/shards_whole.c): one that has made the step has
   those of the step before in `kept`; one that has not, but has exchanged all pieces, has there
   what the step would have made. All have exchanged theirs before one commits, and all have
   committed before one begins the next step, which takes `kept`. So a step has two barriers.

   A share that is not finite passes its residual by, as a worker's gradient does. Its later rounds
   are NaN, as the mean of round 0 is: the step is skipped, or ends the run. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "exchange_internal.h"
#include "engine/logical.h"
#include "state/plan.h"

enum { ALIGNED = 64 };
/* shares.stage: no step is under way; its pieces are being exchanged; they are exchanged; and it is
   known whether it will be skipped. */
enum { BETWEEN, CHANGING, EXCHANGED, GOOD, BAD };

/* ---- what can be encoded by share ---- */

static bool makes_other_than_floats(const tutti_codec *c)
{
    return c->ops->rounds > 0 && tutti_exchange_is_no_float_sum(c);
}

/* Does it learn from the gradients of each worker? */
static bool adapts(const tutti_codec *c)
{
    bool found = c->ops->watch != NULL || (tutti_codec_traits(c) & TUTTI_CODEC_MERGES) != 0;

    for (size_t i = 0; !found && i < TUTTI_LENGTH(c->inner); i++)
        found = c->inner[i] != NULL && adapts(c->inner[i]);
    return found;
}

/* Has the codec a state that is neither the same on all workers nor that of shares? */
static bool keeps_by_worker(const tutti_engine *e)
{
    const tutti_engine_exchange *x = e->sums.exchange;
    bool found = false;

    for (size_t i = x->first_state; i < x->first_state + x->n_states; i++) {
        const tutti_keep keep = tutti_plan_state(e->plan, i, NULL)->keep;
        found = found || (keep != TUTTI_SAME && keep != TUTTI_SCRATCH && keep != TUTTI_SLICE);
    }
    return found;
}

const char *tutti_exchange_shares_against(const tutti_engine *e, const char **mend)
{
    const tutti_engine_exchange *x = e->sums.exchange;

    *mend = "take a codec that makes sums of float32 (powersgd, randomk)";
    if (x == NULL || e->division.rounds || e->m.ops->exchange != tutti_base_exchange ||
        tutti_exchange_leaf(x->codec, tutti_exchange_is_message) != NULL)
        return "it would encode the gradient of each worker, which depends on their number";
    if (tutti_exchange_leaf(x->codec, makes_other_than_floats) != NULL) {
        *mend = "send float32 (factor_dtype=fp32)";
        return "it would round sums to 16 bits on their way, and which sums travel depends on the "
               "number of workers";
    }
    return adapts(x->codec)     ? "it adapts to the gradient of each worker, which depends on their "
                                  "number"
           : keeps_by_worker(e) ? "it keeps a state of each worker, and not of each share"
                                : NULL;
}

/* ---- memory ---- */

/* The most that a round of a tensor has, or its scratch memory, under any of the codecs. */
static size_t most_of(const tutti_codec *c, tutti_view v, bool scratch)
{
    size_t most = 0;

    for (size_t i = 0; c->ops->choose != NULL && i < TUTTI_LENGTH(c->inner); i++) {
        const size_t inner = c->inner[i] != NULL ? most_of(c->inner[i], v, scratch) : 0;
        most = inner > most ? inner : most;
    }
    for (int late = 0; late < 2 && c->ops->choose == NULL; late++) {
        v.step = late ? TUTTI_EXCHANGE_LATE : 0;
        for (int r = 0; r < (scratch ? 1 : c->ops->rounds); r++) {
            const size_t n = !scratch                 ? c->ops->width(c, &v, r)
                             : c->ops->scratch != NULL ? c->ops->scratch(c, &v)
                                                       : 0;
            most = n > most ? n : most;
        }
    }
    return most;
}

static bool has_later_rounds(const tutti_codec *c)
{
    return c->ops->rounds > 1;
}

tutti_status tutti_exchange_shares_declare(tutti_engine *e, size_t *width, tutti_error *err)
{
    tutti_engine_exchange *x = e->sums.exchange;
    tutti_exchange_shares *s = &x->shares;
    const size_t n = (size_t)x->space.n_tensors, mine = (size_t)tutti_plan_shares_of(e->plan)->mine;
    tutti_state memory = { .name = "codec.shares", .keep = TUTTI_SCRATCH, .dtype = TUTTI_U8 };

    s->width_at = tutti_alloc(n + 1, sizeof *s->width_at);
    s->scratch_at = tutti_alloc(n + 1, sizeof *s->scratch_at);
    s->folded = tutti_alloc(mine * n, sizeof *s->folded);
    s->finite = tutti_alloc(mine * n, sizeof *s->finite);
    if (s->width_at == NULL || s->scratch_at == NULL || s->folded == NULL || s->finite == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for %zu logical shares", mine);
    s->mine = (int)mine;
    s->all = e->options.elastic_shares;
    s->beside = TUTTI_EXCHANGE_NO_STEP;
    for (size_t t = 0; t < n; t++) {
        s->width_at[t + 1] = s->width_at[t] + most_of(x->codec, x->tensor[t], false);
        s->scratch_at[t + 1] =
            s->scratch_at[t] +
            (most_of(x->codec, x->tensor[t], true) + ALIGNED - 1) / ALIGNED * ALIGNED;
    }
    *width = s->width_at[n];
    memory.count = mine * s->scratch_at[n];
    if (memory.count > 0)
        tutti_declare(e->plan, &memory, &s->scratch);
    memory = (tutti_state){ .name = "codec.shares-x",
                            .keep = TUTTI_SCRATCH,
                            .dtype = TUTTI_F32,
                            .count = mine * e->layout.used };
    if (x->codec->ops->before == NULL && tutti_exchange_leaf(x->codec, has_later_rounds) != NULL)
        tutti_declare(e->plan, &memory, &s->x);
    return TUTTI_OK;
}

void tutti_exchange_shares_close(tutti_exchange_shares *s)
{
    tutti_free(s->width_at);
    tutti_free(s->scratch_at);
    tutti_free(s->folded);
    tutti_free(s->finite);
}

/* ---- a share ---- */

/* A piece, while a share of it is encoded. */
typedef struct coded {
    tutti_engine *e;
    tutti_piece *p;
    tutti_exchange_job job;
} coded;

static size_t entry(const coded *c, const tutti_exchange_unit *u, int at)
{
    return (size_t)at * (size_t)c->job.exchange->space.n_tensors + (size_t)u->view.tensor;
}

/* The unit is of that share from now on. */
static void turn_to(const coded *c, tutti_exchange_unit *u, int at)
{
    const tutti_engine_exchange *x = c->job.exchange;
    const tutti_exchange_shares *s = &x->shares;

    u->view.stage = -at;
    u->scratch = s->scratch == NULL ? NULL
                                    : s->scratch + (size_t)at * s->scratch_at[x->space.n_tensors] +
                                          s->scratch_at[u->view.tensor];
}

/* p->g becomes what a codec sees of the share, as in the exchange of workers (exchange.c). */
static void weigh(const coded *c, uint64_t step, int at)
{
    const float scale =
        (float)(tutti_logical_weight(c->e, step, at) * c->job.exchange->shares.all);

    if (scale != 1)
        tutti_scale(c->e->m.device, c->p->count, scale, c->p->g);
}

/* Applies the wrappers and makes round 0 of the share whose gradient is in p->g. */
static void fold_first(const coded *c, int at)
{
    tutti_engine_exchange *x = c->job.exchange;
    const tutti_exchange_shares *s = &x->shares;
    tutti_device *d = x->space.device;

    for (int i = 0; i < c->job.n_units; i++) {
        tutti_exchange_unit *u = &c->job.unit[i];
        const float *folded = u->y;
        turn_to(c, u, at);
        u->finite = u->n_wrappers > 0 && tutti_finite(d, u->view.count, u->y);
        if (u->finite)
            folded = tutti_codec_fold_first(x->codec, &u->view, u->y, u->scratch, u->wire);
        else
            u->codec->ops->fold(u->codec, &u->view, 0, u->y, u->scratch, u->wire);
        if (folded == u->y && s->x != NULL) {
            float *const copy = s->x + (size_t)at * c->e->layout.used + u->view.first;
            tutti_copy(d, u->view.count, u->y, copy);
            folded = copy;
        }
        s->folded[entry(c, u, at)] = folded != u->y ? folded : NULL;
        s->finite[entry(c, u, at)] = u->finite;
    }
}

/* The numbers of a round, which are contiguous. Returns how many. */
static size_t round_of(const coded *c, int round, float **first)
{
    size_t count = 0;

    *first = NULL;
    for (int i = 0; i < c->job.n_units; i++) {
        const tutti_exchange_unit *u = &c->job.unit[i];
        const size_t n = tutti_exchange_round_width(u, round);
        if (n > 0 && *first == NULL)
            *first = u->wire[round];
        count += n;
    }
    return count;
}

/* Adds a round of the share to the others; of the last one, the mean over all shares. */
static tutti_status add_round(const coded *c, int round, int at, tutti_error *err)
{
    const tutti_engine_exchange *x = c->job.exchange;
    tutti_logical_vector v = { .first = x->shares.width_at[c->p->first_tensor],
                               .index = c->p->index,
                               .group = &c->p->group };
    const float part = 1.0f / (float)x->shares.all;

    v.count = round_of(c, round, &v.x);
    if (v.count == 0)
        return TUTTI_OK;
    if (part != 1)
        tutti_scale(c->e->m.device, v.count, part, v.x);
    return tutti_logical_add(c->e, &v, at, err);
}

/* Takes a slot for the piece. TUTTI_OK: the caller gives it back. */
static tutti_status open_job(coded *c, uint64_t step, tutti_error *err)
{
    tutti_status status;

    c->job = (tutti_exchange_job){ .exchange = c->e->sums.exchange, .group = &c->p->group };
    c->job.slot = tutti_exchange_take_slot(c->job.exchange, err);
    if (c->job.slot == NULL)
        return TUTTI_ERR_STATE;
    status = tutti_exchange_set_up(&c->job, c->p, step, err);
    if (status == TUTTI_OK)
        status = tutti_exchange_reserve_linear(&c->job, err);
    if (status != TUTTI_OK)
        tutti_exchange_give_slot(c->job.exchange, c->job.slot);
    return status;
}

tutti_status tutti_exchange_share(tutti_engine *e, tutti_piece *p, int at, tutti_error *err)
{
    coded c = { .e = e, .p = p };
    const uint64_t step = e->counts.progress.step;
    tutti_status status;

    TUTTI_TRY(open_job(&c, step, err));
    weigh(&c, step, at);
    fold_first(&c, at);
    status = add_round(&c, 0, at, err);
    tutti_exchange_give_slot(c.job.exchange, c.job.slot);
    return status;
}

/* ---- the last share ---- */

static void fold_later(const coded *c, int round, int at)
{
    for (int i = 0; i < c->job.n_units; i++) {
        tutti_exchange_unit *u = &c->job.unit[i];
        const float *x = c->job.exchange->shares.folded[entry(c, u, at)];
        const size_t n = tutti_exchange_round_width(u, round);
        turn_to(c, u, at);
        if (n > 0 && x != NULL)
            u->codec->ops->fold(u->codec, &u->view, round, x, u->scratch, u->wire);
        else if (n > 0)
            tutti_fill(c->e->m.device, n, NAN, u->wire[round]);
    }
}

/* The rounds after the first, each of all shares of this worker. */
static tutti_status later_rounds(const coded *c, tutti_error *err)
{
    tutti_device *d = c->e->m.device;
    const int mine = c->job.exchange->shares.mine;
    float *before, *now;

    for (int r = 1; r < TUTTI_EXCHANGE_ROUNDS && round_of(c, r, &now) > 0; r++) {
        const size_t n = round_of(c, r - 1, &before);
        TUTTI_TRY(tutti_exchange_grow(&c->job.slot->send, n, sizeof *before, err));
        tutti_copy(d, n, before, c->job.slot->send.at);
        for (int at = 0; at < mine; at++) {
            if (at > 0)
                tutti_copy(d, n, c->job.slot->send.at, before);
            fold_later(c, r, at);
            TUTTI_TRY(add_round(c, r, at, err));
        }
    }
    return TUTTI_OK;
}

/* Takes from each share's residual what was sent of it, and decodes the mean. */
static void decode(const coded *c)
{
    const tutti_exchange_shares *s = &c->job.exchange->shares;

    for (int i = 0; i < c->job.n_units; i++) {
        tutti_exchange_unit *u = &c->job.unit[i];
        const bool finite = tutti_exchange_wire_is_finite(c->e->m.device, u);
        for (int r = 0; r < u->codec->ops->rounds; r++)
            c->job.exchange->payload[u->view.tensor] +=
                tutti_exchange_round_width(u, r) * sizeof(float);
        for (int at = 0; at < s->mine; at++) {
            const float *x = s->folded[entry(c, u, at)];
            turn_to(c, u, at);
            if (finite && s->finite[entry(c, u, at)] && x != NULL)
                tutti_codec_sent_rounds(c->job.exchange->codec, &u->view, x, u->scratch, u->wire);
        }
        u->codec->ops->unfold(u->codec, &u->view, u->scratch, u->wire, u->y);
    }
    tutti_exchange_unwrap(&c->job);
}

tutti_status tutti_exchange_last_share(tutti_engine *e, tutti_piece *p, tutti_error *err)
{
    const int last = e->sums.exchange->shares.mine - 1;
    coded c = { .e = e, .p = p };
    tutti_status status;

    tutti_logical_ends(e, p->index);
    TUTTI_TRY(open_job(&c, p->step, err));
    weigh(&c, p->step, last);
    fold_first(&c, last);
    status = add_round(&c, 0, last, err);
    if (status == TUTTI_OK)
        status = later_rounds(&c, err);
    if (status == TUTTI_OK)
        decode(&c);
    tutti_exchange_give_slot(c.job.exchange, c.job.slot);
    return status;
}

/* ---- steps as a whole ---- */

bool tutti_exchange_has_shares(const tutti_engine *e)
{
    return e->sums.exchange != NULL && e->sums.exchange->shares.mine > 0;
}

static bool is_whole(const tutti_engine *e)
{
    return tutti_exchange_has_shares(e) && e->options.commit != NULL;
}

void tutti_exchange_shares_begin(tutti_engine_exchange *x)
{
    x->shares.stage = CHANGING;
    x->shares.beside = TUTTI_EXCHANGE_NO_STEP;
}

static tutti_status wait_for_all(tutti_engine *e, const char *port, tutti_error *err)
{
    tutti_group g =
        tutti_group_keyed(&e->m.all, tutti_port_of(port, 0, 0), (uint32_t)e->groups.steps);
    const tutti_doing was = tutti_engine_doing(e, TUTTI_DOING_EXPOSED);
    const tutti_status status = e->m.workers > 1 ? tutti_barrier(&g, err) : TUTTI_OK;

    tutti_engine_doing(e, was);
    return status;
}

tutti_status tutti_exchange_shares_ready(tutti_engine *e, tutti_error *err)
{
    return is_whole(e) ? wait_for_all(e, "shares ready", err) : TUTTI_OK;
}

tutti_status tutti_exchange_shares_exchanged(tutti_engine *e, tutti_error *err)
{
    if (!is_whole(e))
        return TUTTI_OK;
    e->sums.exchange->shares.stage = EXCHANGED;
    return wait_for_all(e, "shares encoded", err);
}

void tutti_exchange_shares_found(tutti_engine *e, bool bad)
{
    if (is_whole(e) && e->sums.exchange->shares.stage == EXCHANGED)
        e->sums.exchange->shares.stage = bad ? BAD : GOOD;
}

void tutti_exchange_shares_over(tutti_engine *e)
{
    if (!is_whole(e))
        return;
    e->sums.exchange->shares.stage = BETWEEN;
    e->sums.exchange->shares.beside = e->counts.progress.step - 1;
}

/* Jobs of the lane may still be encoding, with states that are about to be put back. */
static void wait_for_pieces(tutti_engine *e)
{
    for (int k = 0; k < e->layout.n_pieces; k++) {
        tutti_engine_piece *s = &e->piece_state[k];
        if (s->pending && s->on_lane)
            tutti_engine_piece_over(e, k, tutti_job_wait(e->lane, &s->job, NULL));
    }
}

void tutti_exchange_shares_undo(tutti_engine *e)
{
    tutti_engine_exchange *x = e->sums.exchange;
    bool made;

    if (!is_whole(e) || x->shares.stage == BETWEEN || e->commit.changes)
        return;
    wait_for_pieces(e);
    made = x->shares.stage == GOOD ||
           (x->shares.stage == EXCHANGED && !tutti_engine_may_skip(e));
    if (made)
        tutti_exchange_swap_states(e, x->kept);
    else
        tutti_exchange_keep_states(e, x->kept, true);
    /* a step that is skipped changes none */
    x->shares.beside = made || x->shares.stage == BAD ? e->counts.progress.step + 1 : TUTTI_EXCHANGE_NO_STEP;
    x->shares.stage = BETWEEN;
}

void *tutti_exchange_shares_beside(const tutti_engine *e, const void *memory, uint64_t *step)
{
    const tutti_engine_exchange *x = e->sums.exchange;

    if (!is_whole(e) || x->shares.beside == TUTTI_EXCHANGE_NO_STEP)
        return NULL;
    *step = x->shares.beside;
    return tutti_exchange_kept_of(e, x->kept, memory);
}
