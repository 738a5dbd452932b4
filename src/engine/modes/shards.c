/* shards.c: each worker updates its shard of every piece (steps.h). Rajbhandari, Rasley, Ruwase,
   He, "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", SC 2020, section 5:
   state that all replicas hold equally is partitioned over them, and an all-reduce is a
   reduce-scatter followed by an all-gather, so the update fits in between.

     exchange   reduce-scatter of a piece: its shards' sums, each at its worker
     step       the checks, and each worker's update of its shards
     overlap    all-gather of x, piece by piece, while the next step's forward computes:
                unit_acquire waits for the pieces that overlap its unit (by_piece.c), no others

   Every piece is partitioned, not the flat space once (as in the paper): so each reduce-scatter
   keeps all links busy, and none sends a whole piece to one owner. The borders are those of an
   all-reduce that does the same (collective/builder.c), at lines of 64 bytes, so each pair of
   workers exchanges as many bytes as in it.

   The norm of the gradient, for clip-norm, has the same bits as if one worker computed it from
   the whole gradient (norm.c). Its blocks are 4096 elements of the flat space, and borders of
   shards lie anywhere. So if a block has several owners, the owner of its first element adds it
   up, and receives the others' elements: for the N - 1 borders of a piece, 16 KiB each at most.
   Then all workers receive the sums, 8 bytes a block, and add them in order.

   Node groups. A piece may be partitioned over the workers of a node group only, such as those of
   one machine; the groups are replicas of each other (Zhang et al., "MiCS: Near-linear Scaling
   for Training Gigantic Model on Public Cloud", VLDB 2022; hybrid sharding of Zhao et al. 2023,
   PyTorch FSDP). After the reduce-scatter inside the group, the workers that have the same shard
   sum it, one worker of each group. A tree of sums is split at powers of two, so with a power of
   two of workers a group is a branch of it, and the sum has its bits. Values and the norm are
   computed inside each group: all groups have the same. */
#include <errno.h>
#include <string.h>

#include "sharded.h"
#include "engine/hooks.h"
#include "engine/refuse.h"
#include "collective/table.h"
#include "optim/placed.h"
#include "engine/calls.h"
#include "optim/optim.h"

tutti_shards *tutti_shards_of(const tutti_engine *e)
{
    return tutti_facility_self(&e->m, &tutti_shards_mode);
}

/* ---- the partition ---- */

/* The part of a block of the norm that one worker of a group has: elements of one piece. */
typedef struct stretch {
    int piece, worker;
    size_t first, count, block;
} stretch;

/* The next stretch, in the order of the flat space; false: it was the last. Zeroed at first. */
static bool next_stretch(const tutti_engine *e, stretch *s)
{
    const int workers = tutti_shards_of(e)->team;
    const size_t at = s->first + s->count;

    while (s->piece < e->layout.n_pieces) {
        const tutti_piece *p = &e->pieces[s->piece];
        const size_t end = p->first + tutti_engine_part_at(p->count, workers, s->worker + 1),
                     block = at / TUTTI_NORM_BLOCK, until = (block + 1) * TUTTI_NORM_BLOCK;
        if (at < end) {
            s->first = at;
            s->count = (end < until ? end : until) - at;
            s->block = block;
            return true;
        }
        s->worker = (s->worker + 1) % workers;
        s->piece += s->worker == 0;
    }
    return false;
}

size_t tutti_shards_count(const tutti_method *m, int worker)
{
    const tutti_engine *e = m->engine;
    const tutti_shards *shards = tutti_shards_of(e);
    size_t count = 0;

    for (int k = 0; k < e->layout.n_pieces; k++) {
        const size_t *of = shards->counts + k * shards->team;
        count += of[worker % shards->team] + (shards->copied != NULL ? of[(worker + 1) % shards->team] : 0);
    }
    return count;
}

/* The memory of the mean of this worker's shard of a piece, valid from the piece's exchange on. */
static float *gradient_of(const tutti_engine *e, int piece)
{
    const tutti_shards *shards = tutti_shards_of(e);
    float *const looked_at = tutti_offload_staged(e, piece); /* it is in a tier */

    if (looked_at != NULL)
        return looked_at;
    return e->m.held != TUTTI_HELD_WHOLE ? shards->g + shards->at[piece]
                                         : e->m.g + shards->mine[piece].first;
}

float *tutti_shard_gradient(const tutti_engine *e, int piece)
{
    return gradient_of(e, piece);
}

/* The memory of the mean for a stretch of the shard. */
static float *gradient_at(const tutti_engine *e, const stretch *s)
{
    return gradient_of(e, s->piece) + (s->first - tutti_shards_of(e)->mine[s->piece].first);
}

/* ---- declare and close ---- */

static tutti_status no_memory(const tutti_engine *e, tutti_error *err)
{
    return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for the shards of %d pieces",
                      e->layout.n_pieces);
}

/* Plans which worker adds up each block, and how many elements it receives from each other
   worker. */
static tutti_status plan_norm(tutti_engine *e, tutti_error *err)
{
    tutti_shards *s = tutti_shards_of(e);
    const size_t workers = (size_t)s->team, me = (size_t)s->index;
    size_t out = 0, in = 0;
    int adds = 0;
    stretch at = { 0 };

    s->blocks = (e->layout.used + TUTTI_NORM_BLOCK - 1) / TUTTI_NORM_BLOCK;
    s->adder = tutti_alloc(s->blocks, sizeof *s->adder);
    s->moved = tutti_alloc(2 * workers, sizeof *s->moved);
    s->blocks_of = tutti_alloc(workers, sizeof *s->blocks_of);
    s->cursor = tutti_alloc(workers, sizeof *s->cursor);
    s->sums = tutti_alloc(s->blocks, sizeof *s->sums);
    s->all_sums = tutti_alloc(s->blocks, sizeof *s->all_sums);
    if (s->adder == NULL || s->moved == NULL || s->blocks_of == NULL || s->cursor == NULL ||
        s->sums == NULL || s->all_sums == NULL)
        return no_memory(e, err);
    while (next_stretch(e, &at)) {
        if (at.first % TUTTI_NORM_BLOCK == 0) {
            adds = at.worker;
            s->adder[at.block] = adds;
            s->blocks_of[adds]++;
        }
        if (adds == at.worker)
            continue;
        if (adds == (int)me)
            s->moved[workers + (size_t)at.worker] += at.count;
        if (at.worker == (int)me)
            s->moved[adds] += at.count;
    }
    for (size_t w = 0; w < workers; w++) {
        out += s->moved[w];
        in += s->moved[workers + w];
    }
    s->n_out = out;
    s->n_in = in;
    s->out = tutti_alloc(out + 1, sizeof *s->out);
    s->in = tutti_alloc(in + 1, sizeof *s->in);
    return s->out != NULL && s->in != NULL ? TUTTI_OK : no_memory(e, err);
}

static void close_shards(void *self)
{
    tutti_shards *s = self;

    tutti_free(s->ranks);
    tutti_free(s->mine);
    tutti_free(s->at);
    tutti_free(s->counts);
    tutti_shards_whole_close(s);
    tutti_free(s->adder);
    tutti_free(s->moved);
    tutti_free(s->blocks_of);
    tutti_free(s->cursor);
    tutti_free(s->sums);
    tutti_free(s->all_sums);
    tutti_free(s->out);
    tutti_free(s->in);
    tutti_free(s);
}

/* Those of the method; adds them if there are none yet. */
static tutti_status find_shards(tutti_method *m, tutti_shards **out, tutti_error *err)
{
    tutti_shards *s = tutti_shards_of(m->engine);

    if (s == NULL) {
        s = tutti_alloc(1, sizeof *s);
        if (s == NULL)
            return no_memory(m->engine, err);
        s->e = m->engine;
        tutti_facility_add(m, &tutti_shards_mode, s);
    }
    *out = s;
    return TUTTI_OK;
}

tutti_status tutti_shards_group(tutti_method *m, const char *option, const char *value,
                                tutti_error *err)
{
    const tutti_engine *e = m->engine;
    tutti_shards *s = NULL;
    int team = m->workers;

    if (strcmp(value, "none") != 0)
        TUTTI_TRY(tutti_fail_within(err, tutti_team_parse(m, option, value, &team, err),
                                    "method '%s'", m->ops->name));
    if (team < m->workers && (team & (team - 1)) != 0)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "method '%s': %s is %.40s, and sums over %d workers in teams of %d would have other "
            "bits than over all; take a power of two that divides %d, or none, which is one team "
            "of all",
            m->ops->name, option, value, m->workers, team, m->workers);
    if (e->sums.collective != NULL && team < m->workers)
        TUTTI_TRY(tutti_fail_within(
            err, tutti_algorithm_check(e->sums.collective, m->workers / team, err),
            "collective, among the workers of %d teams (%s)", m->workers / team, option));
    TUTTI_TRY(find_shards(m, &s, err));
    s->team = team;
    return TUTTI_OK;
}

/* Finds the members of my node group, and the workers with my index in the other groups. */
static tutti_status find_teams(tutti_engine *e, tutti_error *err)
{
    tutti_shards *s = tutti_shards_of(e);
    const tutti_group *all = &e->m.all;
    int teams;

    s->team = s->team > 0 ? s->team : e->m.workers;
    s->index = e->m.rank % s->team;
    s->inside = *all;
    teams = e->m.workers / s->team;
    if (teams == 1)
        return TUTTI_OK;
    s->ranks = tutti_alloc((size_t)(s->team + teams), sizeof *s->ranks);
    if (s->ranks == NULL)
        return no_memory(e, err);
    for (int j = 0; j < s->team; j++)
        s->ranks[j] = tutti_group_rank(all, e->m.rank - s->index + j);
    for (int k = 0; k < teams; k++)
        s->ranks[s->team + k] = tutti_group_rank(all, k * s->team + s->index);
    s->inside = tutti_group_of(e->world, s->ranks, s->team, tutti_port_of("shards", 1, 0));
    s->between = tutti_group_of(e->world, s->ranks + s->team, teams, tutti_port_of("shards", 2, 0));
    return TUTTI_OK;
}

tutti_status tutti_shards_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    static const tutti_conflict whole_buffers = { TUTTI_ASKED_CLIENT, "cuts them over the workers",
                                                  ", whose buffers are whole on each worker",
                                                  ", or take ddp" };
    static const tutti_conflict whole_tables = {
        TUTTI_ASKED_LAZY,
        "sends tables' gradients whole, and which rows a step has touched is not known", NULL,
        ", or take ddp"
    };
    tutti_engine *e = m->engine;
    tutti_offload *offload = tutti_offload_of(e);
    tutti_shards *s = NULL;
    size_t all = 0;

    TUTTI_TRY(tutti_refuse_method(m, "update a shard of each piece on each worker",
                                  TUTTI_WHOLE_SLOTS | TUTTI_OWN_MODELS | TUTTI_NO_EXCHANGE |
                                      TUTTI_ROW_SUMS | TUTTI_PIECE_UPDATES | TUTTI_PIECE_ORDER |
                                      TUTTI_MERGES_STEPS | TUTTI_LATE_GRADIENTS,
                                  err));
    TUTTI_TRY(tutti_refuse(m, &whole_buffers, 1, err));
    TUTTI_TRY(tutti_engine_cut(e, err));
    TUTTI_TRY(find_shards(m, &s, err));
    TUTTI_TRY(find_teams(e, err));
    s->mine = tutti_alloc((size_t)e->layout.n_pieces, sizeof *s->mine);
    s->counts = tutti_alloc((size_t)e->layout.n_pieces * (size_t)s->team, sizeof *s->counts);
    s->at = tutti_alloc((size_t)e->layout.n_pieces, sizeof *s->at);
    if (s->mine == NULL || s->counts == NULL || s->at == NULL)
        return no_memory(e, err);
    for (int k = 0; k < e->layout.n_pieces; k++) {
        const tutti_piece *p = &e->pieces[k];
        for (int w = 0; w < s->team; w++)
            s->counts[k * s->team + w] = tutti_engine_part_at(p->count, s->team, w + 1) -
                                         tutti_engine_part_at(p->count, s->team, w);
        s->mine[k].first = p->first + tutti_engine_part_at(p->count, s->team, s->index);
        s->mine[k].count = s->counts[k * s->team + s->index];
        s->at[k] = all;
        all += s->mine[k].count;
    }
    if (offload != NULL)
        tutti_declare(
            plan,
            &(tutti_state){ .name = "g",
                            .keep = TUTTI_SCRATCH,
                            .dtype = TUTTI_F32,
                            .tier = m->held == TUTTI_HELD_BY_UNIT ? offload->options.tier : "host",
                            .count = offload->options.delayed ? 2 * all : all },
            &offload->g);
    else if (m->held != TUTTI_HELD_WHOLE)
        tutti_declare(
            plan,
            &(tutti_state){ .name = "g", .keep = TUTTI_SCRATCH, .dtype = TUTTI_F32, .count = all },
            &s->g);
    if (e->options.commit != NULL && offload == NULL)
        TUTTI_TRY(tutti_shards_whole_cut(s, err));
    TUTTI_TRY(tutti_optim_declare_ranges(
        &m->optim, plan,
        &(tutti_optim_request){ e->options.optimizer, "optim",
                                s->copied != NULL ? s->both : s->mine,
                                (size_t)e->layout.n_pieces * (s->copied != NULL ? 2 : 1), false,
                                offload != NULL ? offload->options.tier : NULL, m->device },
        err));
    TUTTI_TRY(tutti_refuse(m, &whole_tables, 1, err));
    e->rate.base = tutti_optim_lr(m->optim);
    if (e->options.commit != NULL)
        tutti_shards_whole_declare(s);
    if (m->held == TUTTI_HELD_BY_UNIT)
        TUTTI_TRY(tutti_units_declare(e, m->keep_values, err));
    return e->options.clip_norm > 0 ? plan_norm(e, err) : TUTTI_OK;
}

/* ---- a step ---- */

static void start_piece(void *self, tutti_piece *p)
{
    tutti_engine *e = ((tutti_shards *)self)->e;
    const tutti_shards *shards = tutti_shards_of(e);
    tutti_group *const between = &e->piece_state[p->index].between;
    /* the same on all workers, even if each piece may be exchanged in every pass; worker 0 has as
       many as any */
    const uint32_t turn = (uint32_t)(e->groups.steps *
                                     (uint64_t)tutti_share_passes(&e->division.share, 0)) +
                          (e->m.held != TUTTI_HELD_WHOLE ? (uint32_t)e->step.pass.index : 0);

    p->group = tutti_group_keyed(&shards->inside, (uint64_t)p->index + 1, turn);
    if (shards->between.size < 2)
        return;
    *between = tutti_group_keyed(&shards->between, (uint64_t)p->index + 1, turn);
    between->algorithm = e->sums.collective;
}

/* Sums my shard over the node groups. If my group has failed, the workers that wait for me there
   are notified. */
static tutti_status sum_of_teams(tutti_engine *e, const tutti_piece *p, float *shard,
                                 tutti_status status, tutti_error *err)
{
    const tutti_shards *shards = tutti_shards_of(e);
    tutti_group *const between = &e->piece_state[p->index].between;

    if (shards->between.size < 2)
        return status;
    if (status == TUTTI_OK)
        return tutti_allreduce(between, TUTTI_SUM, tutti_f32(e->m.device, shard, shards->mine[p->index].count), err);
    tutti_group_give_up(between, tutti_engine_failed_by(e, status, err));
    return status;
}

/* shard := the sum of my shard over the workers of my group. */
static tutti_status sum_in_team(tutti_engine *e, tutti_piece *p, float *shard, tutti_error *err)
{
    const tutti_shards *shards = tutti_shards_of(e);
    bool done;

    TUTTI_TRY(tutti_facilities_sum(e, p, shard, &done, err));
    if (done)
        return TUTTI_OK;
    if ((float)p->weight != 1)
        tutti_scale(e->m.device, p->count, (float)p->weight, p->g);
    return tutti_reduce_scatter_v(&p->group, TUTTI_SUM, shards->counts + p->index * shards->team,
                                  tutti_f32(e->m.device, p->g, p->count),
                                  tutti_f32(e->m.device, shard, shards->mine[p->index].count), err);
}

tutti_status tutti_shards_exchange(tutti_method *m, tutti_piece *p, tutti_error *err)
{
    tutti_engine *e = m->engine;
    const tutti_shards *shards = tutti_shards_of(e);
    const tutti_range *mine = &shards->mine[p->index];
    const bool adds = tutti_engine_adds_up(e);
    float *to = gradient_of(e, p->index), *sum;
    tutti_status status;

    status = tutti_offload_stage(e, p->index, adds, &to, err);
    sum = adds ? p->g + (mine->first - p->first) : to;
    if (status == TUTTI_OK)
        status = sum_in_team(e, p, sum, err);
    TUTTI_TRY(sum_of_teams(e, p, sum, status, err));
    if (adds)
        tutti_add(m->device, mine->count, sum, to);
    TUTTI_TRY(tutti_shards_whole_exchange(e, p, err));
    return tutti_offload_write(e, p->index, to, err);
}

/* Exchanges border elements: sends those that others add up, and receives those that this worker
   does. */
static tutti_status move_borders(tutti_engine *e, tutti_group *g, tutti_error *err)
{
    tutti_shards *s = tutti_shards_of(e);
    size_t at = 0;
    stretch of = { 0 };

    for (int w = 0; w < s->team; w++) {
        s->cursor[w] = at;
        at += s->moved[w];
    }
    while (next_stretch(e, &of)) {
        const int adds = s->adder[of.block];
        if (of.worker != s->index || adds == s->index)
            continue;
        TUTTI_TRY(tutti_offload_read(e, of.piece, err));
        memcpy(s->out + s->cursor[adds], gradient_at(e, &of), of.count * sizeof *s->out);
        s->cursor[adds] += of.count;
    }
    return tutti_alltoall_v(g, s->moved, tutti_f32(e->m.device, s->out, s->n_out),
                            tutti_f32(e->m.device, s->in, s->n_in), err);
}

/* The sums of the blocks that this worker adds up, in their order. */
static tutti_status add_blocks(tutti_engine *e, tutti_error *err)
{
    tutti_shards *s = tutti_shards_of(e);
    float block[TUTTI_NORM_BLOCK];
    size_t at = 0, held = 0, n = 0;
    stretch of = { 0 };

    for (int w = 0; w < s->team; w++) {
        s->cursor[w] = at;
        at += s->moved[s->team + w];
    }
    for (bool more = next_stretch(e, &of); more;) {
        const stretch was = of;
        const float *from;
        if (s->adder[of.block] == s->index && of.worker == s->index)
            TUTTI_TRY(tutti_offload_read(e, of.piece, err));
        from = s->adder[of.block] != s->index ? NULL
               : of.worker == s->index        ? gradient_at(e, &of)
                                              : s->in + s->cursor[of.worker];
        more = next_stretch(e, &of);
        if (from == NULL)
            continue;
        if (was.worker != s->index)
            s->cursor[was.worker] += was.count;
        if (held == 0 && (!more || of.block != was.block)) { /* the whole block is mine */
            s->sums[n++] = tutti_norm2(e->m.device, was.count, from);
            continue;
        }
        memcpy(block + held, from, was.count * sizeof *block);
        held += was.count;
        if (more && of.block == was.block)
            continue;
        s->sums[n++] = tutti_norm2(e->m.device, held, block);
        held = 0;
    }
    return TUTTI_OK;
}

static tutti_status sum_norm2(void *self, double *norm2, tutti_error *err)
{
    tutti_shards *s = self;
    tutti_engine *e = s->e;
    tutti_group g =
        tutti_group_keyed(&s->inside, tutti_port_of("norm", 0, 0), (uint32_t)e->groups.steps);
    const tutti_doing was = tutti_engine_doing(e, TUTTI_DOING_EXPOSED);
    size_t at = 0;
    tutti_status status = move_borders(e, &g, err);

    if (status == TUTTI_OK)
        status = add_blocks(e, err);
    if (status == TUTTI_OK)
        status = tutti_allgather_v(&g, s->blocks_of,
                                   tutti_host(s->sums, s->blocks_of[s->index], TUTTI_F64),
                                   tutti_host(s->all_sums, s->blocks, TUTTI_F64), err);
    tutti_engine_doing(e, was);
    TUTTI_TRY(status);
    for (int w = 0; w < s->team; w++) {
        s->cursor[w] = at;
        at += s->blocks_of[w];
    }
    *norm2 = 0;
    for (size_t b = 0; b < s->blocks; b++)
        *norm2 += s->all_sums[s->cursor[s->adder[b]]++];
    return TUTTI_OK;
}

static tutti_status gather(tutti_engine *e, tutti_piece *p, tutti_error *err)
{
    const tutti_shards *shards = tutti_shards_of(e);
    const tutti_range *mine = &shards->mine[p->index];

    return tutti_allgather_v(&p->group, shards->counts + p->index * shards->team,
                             tutti_f32(e->m.device, p->x + (mine->first - p->first), mine->count),
                             tutti_f32(e->m.device, p->x, p->count), err);
}

/* Of the elements from `before` on of all that a group has: those of this group's part. A copy of
   another worker's shard is not saved. */
static tutti_range saved_part(const void *self, const tutti_state *state, size_t k, size_t before)
{
    const tutti_engine *e = ((const tutti_shards *)self)->e;
    const tutti_shards *shards = tutti_shards_of(e);
    const tutti_range r = state->ranges[k];
    const bool several = shards->ranks != NULL;
    const int teams = several ? shards->between.size : 1,
              mine = several ? shards->between.index : 0;
    const size_t first = tutti_engine_part_at(state->count, teams, mine),
                 end = tutti_engine_part_at(state->count, teams, mine + 1),
                 low = first > before ? first - before : 0,
                 high = end > before ? end - before : 0;

    if (tutti_shards_whole_is_copy(shards, r))
        return (tutti_range){ r.first, 0 };
    return (tutti_range){ r.first + (low < r.count ? low : r.count),
                          low < high && low < r.count ? (high < r.count ? high : r.count) - low : 0 };
}

/* The job that gathers the updated values of a piece. TUTTI_CLOSED: it was not begun, since another
   exchange has failed here. */
static tutti_status gather_piece(tutti_job *job, tutti_error *err)
{
    tutti_engine_piece *s = job->owner;
    tutti_engine *e = s->engine;
    tutti_piece *p = &e->pieces[job->index];
    const tutti_status status = e->failure.flag ? TUTTI_CLOSED : gather(e, p, err);

    if (status == TUTTI_CLOSED)
        tutti_engine_give_up_piece(e, s, p, status, err);
    tutti_engine_piece_ended(e, s, status, err);
    return status;
}

/* Reuses the group and the job of the piece's exchange, which is over. */
void tutti_shards_start_gather(tutti_engine *e, int k)
{
    tutti_engine_piece *s = &e->piece_state[k];

    s->job.run = gather_piece;
    s->pending = s->on_lane = s->gathers = true;
    tutti_by_piece_of(e)->left++;
    tutti_engine_give_to_lane(e, s);
}

tutti_status tutti_shards_step(tutti_method *m, tutti_error *err)
{
    tutti_engine *e = m->engine;
    tutti_units *units = tutti_units_of(e);
    tutti_shards *shards = tutti_shards_of(e);
    tutti_engine_verdict found;
    tutti_rate rate;

    TUTTI_TRY(tutti_engine_find(e, &rate, &found, err));
    if (shards->before != NULL)
        return tutti_shards_whole_update(shards, &rate, &found, err);
    TUTTI_TRY(tutti_engine_found(e, &found, err));
    if (found.bad)
        return TUTTI_OK;
    for (int k = e->layout.n_pieces - 1; k >= 0; k--) { /* the last is needed first */
        const tutti_range *mine = &shards->mine[k];
        float *const x = units != NULL ? units->x + shards->at[k] : m->x + mine->first;
        tutti_update(m->optim, mine->first, mine->count, x, gradient_of(e, k), &rate);
        if (units == NULL)
            tutti_shards_start_gather(e, k);
    }
    return TUTTI_OK;
}

/* Everything is declared: what the others of these modes need. */
static tutti_status declared(void *self, tutti_error *err)
{
    tutti_shards *s = self;
    tutti_method *m = &s->e->m;

    if (s->mine == NULL)
        return tutti_fail(err, TUTTI_ERR_STATE, 0,
                          "method '%s' has groups of shards (tutti_shards_group) and no shards "
                          "(tutti_shards_declare)",
                          m->ops->name);
    if (m->held != TUTTI_HELD_WHOLE)
        TUTTI_TRY(tutti_held_declare(m, err));
    return tutti_by_piece_overlap(m, err);
}

const tutti_facility_ops tutti_shards_mode = { .provides = TUTTI_SHARDS_UPDATES,
                                               .declared = declared,
                                               .close = close_shards,
                                               .start_piece = start_piece,
                                               .norm2 = sum_norm2,
                                               .copies = tutti_shards_whole_copies,
                                               .beside = tutti_shards_whole_beside,
                                               .saved_part = saved_part };
