/* shards_whole.c: shards whose step is made as a whole or not at all (engine_options.commit), and
   copies of them.

   A worker that is lost takes its slots with it. So each worker has those of the worker after it,
   too (cyclically, in its node group), and n workers go on after the loss of any that do not stand
   next to each other. Copies are kept by making the same update again: an update goes element by
   element, so with the same gradient it has the same bits.

     exchange   reduce-scatter of a piece, then the sum of shard w goes to worker w - 1 as well: 1
                value for each of the shard. Slots would be as many as the optimiser has
     step       checks; slots are kept in `before`; each worker updates its shard and its copy; new
                values of all shards are gathered in g, whose gradient is used up by then
     question   commit (engine/commit.c). Until here a failure puts the slots back
     update     x := g

   Where gradients are held by piece (held.c) there is no such g: `next` is for the values, and the
   next worker's shards of the gradient have memory of their own. They are sent in a step's last
   pass, which completes the sum.

   Two steps. When a worker is lost in the midst of a step some of the others have made it and some
   have not, and the run goes on from one of the two steps. Values and counters of that step are on
   each worker that has it, but every slot is on two workers only. So both must be able to give
   their slots of either step: `before` has those of the step before, or after a failure those that
   the step would have had. These are the same slots that a worker which has made the step has,
   since to make it one needs the new values of all.

   Where values are held by unit (units.c), this worker's shards of them are one vector more, kept,
   copied and updated like the slots, and no values are gathered. A barrier ensures what the gather
   does: all have updated their shards before one makes the step.

   With neither slots (sgd) nor such values nothing is copied. Node groups are copies of each
   other. */
#include <errno.h>

#include "sharded.h"
#include "optim/optim.h"

static size_t n_pieces(const tutti_shards *s)
{
    return (size_t)s->e->layout.n_pieces;
}

/* No worker has all values. */
static bool has_units(const tutti_shards *s)
{
    return s->e->m.held == TUTTI_HELD_BY_UNIT;
}

/* The number of vectors that are in shards and copied: the slots, and values by unit. */
static int vectors(const tutti_shards *s)
{
    const tutti_optim *o = s->e->m.optim;

    return o->ops->slots(o->self) + (has_units(s) ? 1 : 0);
}

static float *vector(const tutti_shards *s, int i)
{
    return has_units(s) && i + 1 == vectors(s) ? tutti_units_of(s->e)->x : s->e->m.optim->slot[i];
}

/* Is the next worker's shard before this worker's? */
static bool copy_is_first(const tutti_shards *s)
{
    return s->index + 1 == s->team;
}

size_t tutti_shards_value_at(const tutti_shards *s, size_t k)
{
    if (s->copied == NULL)
        return s->at[k];
    return s->at[k] + s->copied_at[k] + (copy_is_first(s) ? s->copied[k].count : 0);
}

size_t tutti_shards_copy_at(const tutti_shards *s, size_t k)
{
    return s->at[k] + s->copied_at[k] + (copy_is_first(s) ? 0 : s->mine[k].count);
}

void tutti_shards_whole_close(tutti_shards *s)
{
    tutti_free(s->copied);
    tutti_free(s->both);
    tutti_free(s->sent);
    tutti_free(s->copied_at);
    s->copied = s->both = NULL;
    s->sent = s->copied_at = NULL;
}

static bool is_held(const tutti_shards *s)
{
    return s->e->m.held != TUTTI_HELD_WHOLE;
}

/* The new values of all shards of a piece. */
static float *next_values(const tutti_shards *s, size_t k)
{
    return (is_held(s) ? s->next : s->e->m.g) + s->e->pieces[k].first;
}

/* The gradient of what this worker copies of a piece. */
static float *copied_gradient(const tutti_shards *s, size_t k)
{
    return is_held(s) ? s->copied_g + s->e->pieces[k].first / (size_t)s->team + k * TUTTI_ENGINE_PART_OVER
                      : s->e->m.g + s->copied[k].first;
}

static void cut_piece(tutti_shards *s, size_t k)
{
    const size_t team = (size_t)s->team, next = (size_t)(s->index + 1) % team,
                 last = ((size_t)s->index + team - 1) % team;
    const tutti_piece *p = &s->e->pieces[k];
    size_t *const sent = s->sent + k * 2 * team;
    const tutti_range copied = { p->first + tutti_engine_part_at(p->count, s->team, (int)next),
                                 s->counts[k * team + next] };

    s->copied[k] = copied;
    s->copied_at[k] = k > 0 ? s->copied_at[k - 1] + s->copied[k - 1].count : 0;
    s->both[2 * k] = copy_is_first(s) ? copied : s->mine[k];
    s->both[2 * k + 1] = copy_is_first(s) ? s->mine[k] : copied;
    sent[last] = s->mine[k].count;
    sent[team + next] = copied.count;
}

tutti_status tutti_shards_whole_cut(tutti_shards *s, tutti_error *err)
{
    const size_t n = n_pieces(s);

    if (s->team == 1 || s->ranks != NULL) /* it has all, or other node groups have the same */
        return TUTTI_OK;
    s->copied = tutti_alloc(n, sizeof *s->copied);
    s->both = tutti_alloc(2 * n, sizeof *s->both);
    s->sent = tutti_alloc(2 * n * (size_t)s->team, sizeof *s->sent);
    s->copied_at = tutti_alloc(n, sizeof *s->copied_at);
    if (s->copied == NULL || s->both == NULL || s->sent == NULL || s->copied_at == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for the copies of %zu shards", n);
    for (size_t k = 0; k < n; k++)
        cut_piece(s, k);
    return TUTTI_OK;
}

void tutti_shards_whole_declare(tutti_shards *s)
{
    tutti_engine *e = s->e;

    if (vectors(s) == 0) /* nothing to copy */
        tutti_shards_whole_close(s);
    for (size_t k = 0; k < n_pieces(s); k++) {
        const size_t copied = s->copied != NULL ? s->copied[k].count : 0;
        s->most = s->mine[k].count > s->most ? s->mine[k].count : s->most;
        s->most = copied > s->most ? copied : s->most;
    }
    s->beside = TUTTI_NO_STEP;
    tutti_declare(e->plan,
                  &(tutti_state){ .name = "shards.before",
                                  .keep = TUTTI_SCRATCH,
                                  .dtype = TUTTI_F32,
                                  .count = (size_t)vectors(s) * e->m.optim->count },
                  &s->before);
    tutti_declare(e->plan,
                  &(tutti_state){ .name = "shards.fresh",
                                  .keep = TUTTI_SCRATCH,
                                  .dtype = TUTTI_F32,
                                  .count = s->most },
                  &s->fresh);
    if (is_held(s) && !has_units(s))
        tutti_declare_vector(e->plan, "shards.next", TUTTI_SCRATCH, &s->next);
    if (is_held(s) && s->copied != NULL)
        tutti_declare(e->plan,
                      &(tutti_state){ .name = "shards.copied",
                                      .keep = TUTTI_SCRATCH,
                                      .dtype = TUTTI_F32,
                                      .count = e->m.n / (size_t)s->team +
                                               (n_pieces(s) + 1) * TUTTI_ENGINE_PART_OVER },
                      &s->copied_g);
}

tutti_status tutti_shards_whole_exchange(tutti_engine *e, tutti_piece *p, tutti_error *err)
{
    const tutti_shards *s = tutti_shards_of(e);
    const size_t k = (size_t)p->index;

    if (s->copied == NULL || e->step.pass.more)
        return TUTTI_OK;
    return tutti_alltoall_v(
        &p->group, s->sent + k * 2 * (size_t)s->team,
        tutti_f32(e->m.device, tutti_shard_gradient(e, p->index), s->mine[k].count),
        tutti_f32(e->m.device, copied_gradient(s, k), s->copied[k].count), err);
}

/* ---- a step ---- */

static void keep_vectors(const tutti_shards *s)
{
    const size_t count = s->e->m.optim->count;

    for (int i = 0; i < vectors(s); i++)
        tutti_copy(s->e->m.device, count, vector(s, i), s->before + (size_t)i * count);
}

/* Exchanges the vectors and s->before, by way of s->fresh. */
static void swap_vectors(const tutti_shards *s)
{
    tutti_device *d = s->e->m.device;
    const size_t count = s->e->m.optim->count;

    for (int i = 0; i < vectors(s); i++)
        for (size_t at = 0, n; at < count; at += n) {
            float *const now = vector(s, i) + at, *const before = s->before + (size_t)i * count + at;
            n = count - at < s->most ? count - at : s->most;
            tutti_copy(d, n, now, s->fresh);
            tutti_copy(d, n, before, now);
            tutti_copy(d, n, s->fresh, before);
        }
}

/* s->fresh := the new values of that range. x is not written, the slots are. */
static void update_range(const tutti_shards *s, const tutti_range *r, const float *gradient,
                         const tutti_rate *rate)
{
    const tutti_method *m = &s->e->m;

    tutti_copy(m->device, r->count, m->x + r->first, s->fresh);
    tutti_update(m->optim, r->first, r->count, s->fresh, gradient, rate);
}

/* This worker's new shards. What it copies gets new slots; its values come from the worker whose
   they are. */
static void update_shards(const tutti_shards *s, const tutti_rate *rate)
{
    for (size_t k = 0; k < n_pieces(s); k++) {
        const size_t at = s->mine[k].first - s->e->pieces[k].first;
        update_range(s, &s->mine[k], tutti_shard_gradient(s->e, (int)k), rate);
        tutti_copy(s->e->m.device, s->mine[k].count, s->fresh, next_values(s, k) + at);
        if (s->copied != NULL)
            update_range(s, &s->copied[k], copied_gradient(s, k), rate);
    }
}

/* Held by unit: the new values of this worker's shards, and of its copies. */
static void update_values(const tutti_shards *s, const tutti_rate *rate)
{
    tutti_optim *o = s->e->m.optim;
    float *const x = tutti_units_of(s->e)->x;

    for (size_t k = 0; k < n_pieces(s); k++) {
        tutti_update(o, s->mine[k].first, s->mine[k].count, x + tutti_shards_value_at(s, k),
                     tutti_shard_gradient(s->e, (int)k), rate);
        if (s->copied != NULL)
            tutti_update(o, s->copied[k].first, s->copied[k].count, x + tutti_shards_copy_at(s, k),
                         copied_gradient(s, k), rate);
    }
}

/* Held by unit: in place of the gather, which ends when all have updated their shards. */
static tutti_status all_have_updated(const tutti_shards *s, tutti_error *err)
{
    tutti_engine *e = s->e;
    tutti_group g = tutti_group_keyed(&s->inside, tutti_port_of("shards updated", 0, 0),
                                      (uint32_t)e->groups.steps);
    const tutti_doing was = tutti_engine_doing(e, TUTTI_DOING_EXPOSED);
    const tutti_status status = s->team > 1 ? tutti_barrier(&g, err) : TUTTI_OK;

    tutti_engine_doing(e, was);
    return status;
}

/* Gathers the new values of all workers. */
static tutti_status gather_next(const tutti_shards *s, tutti_error *err)
{
    tutti_engine *e = s->e;
    const tutti_method *m = &e->m;
    const tutti_doing was = tutti_engine_doing(e, TUTTI_DOING_EXPOSED);
    tutti_status status = TUTTI_OK;

    for (size_t k = 0; k < n_pieces(s) && status == TUTTI_OK; k++) {
        tutti_piece *p = &e->pieces[k];
        float *const next = next_values(s, k), *const mine = next + (s->mine[k].first - p->first);
        status = tutti_allgather_v(&p->group, s->counts + k * (size_t)s->team,
                                   tutti_f32(m->device, mine, s->mine[k].count),
                                   tutti_f32(m->device, next, p->count), err);
    }
    tutti_engine_doing(e, was);
    return status;
}

tutti_status tutti_shards_whole_update(tutti_shards *s, const tutti_rate *rate,
                                       const tutti_engine_verdict *found, tutti_error *err)
{
    tutti_engine *e = s->e;
    const uint64_t done = e->counts.progress.step;
    tutti_status status = TUTTI_OK;

    keep_vectors(s);
    if (!found->bad && has_units(s)) {
        update_values(s, rate);
        status = all_have_updated(s, err);
    } else if (!found->bad) {
        update_shards(s, rate);
        status = gather_next(s, err);
    }
    if (status == TUTTI_OK)
        status = tutti_engine_found(e, found, err);
    s->beside = status == TUTTI_OK ? done : done + 1;
    if (status != TUTTI_OK)
        swap_vectors(s);
    for (size_t k = 0; k < n_pieces(s) && status == TUTTI_OK && !found->bad && !has_units(s); k++)
        tutti_copy(e->m.device, e->pieces[k].count, next_values(s, k), e->pieces[k].x);
    return status;
}

/* ---- what is where ---- */

bool tutti_shards_whole_is_copy(const tutti_shards *s, tutti_range r)
{
    size_t low = 0, high = s->copied != NULL ? n_pieces(s) : 0;

    while (high - low > 1) { /* the last piece that begins at it or before */
        const size_t middle = low + (high - low) / 2;
        if (s->e->pieces[middle].first <= r.first)
            low = middle;
        else
            high = middle;
    }
    return high > low && r.first >= s->copied[low].first &&
           r.first - s->copied[low].first < s->copied[low].count;
}

int tutti_shards_whole_copies(const void *self)
{
    const tutti_shards *s = self;

    return s->copied != NULL ? 1 : 0;
}

void *tutti_shards_whole_beside(const void *self, const void *memory, uint64_t *step)
{
    const tutti_shards *s = self;

    if (s->beside == TUTTI_NO_STEP || s->before == NULL)
        return NULL;
    *step = s->beside;
    for (int i = 0; i < vectors(s); i++)
        if (memory == (const void *)vector(s, i))
            return s->before + (size_t)i * s->e->m.optim->count;
    return NULL;
}
