/* unit_values.c: the memory of a unit's values, and how they come there: reads from a tier, gathers
   and, at the beginning of a run, the first ones (units.c). */
#include <errno.h>
#include <stdio.h>

#include "sharded.h"
#include "units.h"
#include "engine/lane.h"
#include "runtime/files.h"
#include "tier/tier.h"
#include "offload.h"

/* ---- buffers; client thread ---- */

size_t tutti_unit_lines(size_t count)
{
    return (count + 15) / 16 * 16;
}

static void count_live(tutti_engine *e, const tutti_unit *u, bool comes)
{
    tutti_units *s = tutti_units_of(e);

    s->resident += comes ? 1 : -1;
    s->live_values = comes ? s->live_values + u->count : s->live_values - u->count;
    s->resident_peak = s->resident > s->resident_peak ? s->resident : s->resident_peak;
    s->live_values_most =
        s->live_values > s->live_values_most ? s->live_values : s->live_values_most;
}

void tutti_unit_release(tutti_engine *e, tutti_unit *u)
{
    tutti_units *units = tutti_units_of(e);

    if (u->apart) {
        tutti_arena_give(e->memory.device, u->values);
        units->more -= u->count;
        if (units->more == 0 && units->reserve > 0) /* reserve the memory just freed */
            units->charged = tutti_arena_charge(e->memory.device, units->more_name, units->reserve,
                                                NULL) == TUTTI_OK;
    } else if (!u->keeps && --units->buffer[u->buffer].units == 0)
        units->buffer[u->buffer].taken = 0;
    count_live(e, u, false);
    u->apart = u->posted = u->filled = u->failed = false;
    u->values = NULL;
}

/* The address of piece k's values in the memory of a unit's values. */
static float *piece_in(const tutti_engine *e, const tutti_unit *u, int k)
{
    return u->values + (e->pieces[k].first - u->first);
}

float *tutti_unit_shard(const tutti_engine *e, const tutti_unit *u, int k)
{
    return u->values + (tutti_shards_of(e)->mine[k].first - u->first);
}

/* Starts reads of my shards of a unit into its buffer; does not wait. */
static tutti_status read(tutti_engine *e, tutti_unit *u, tutti_error *err)
{
    tutti_shards *shards = tutti_shards_of(e);
    tutti_units *s = tutti_units_of(e);

    for (int k = u->pieces.first; k < u->pieces.end; k++)
        if (shards->mine[k].count > 0)
            TUTTI_TRY(tutti_tier_read(
                s->place.tier, &s->io[k], s->place.at + shards->at[k] * sizeof(float),
                tutti_unit_shard(e, u, k), shards->mine[k].count * sizeof(float), err));
    return TUTTI_OK;
}

static tutti_status read_ends(tutti_engine *e, const tutti_unit *u, tutti_error *err)
{
    tutti_units *s = tutti_units_of(e);

    for (int k = u->pieces.first; k < u->pieces.end; k++) {
        tutti_io *const one = &s->io[k];
        TUTTI_TRY(tutti_fail_within(err, tutti_tier_wait(s->place.tier, &one, 1, err),
                                    "values of unit %d", (int)(u - s->unit)));
    }
    return TUTTI_OK;
}

/* A failure is kept: the client may do something else while gathers are waited for (settle). */
static tutti_status await_gather(tutti_engine *e, tutti_unit *u, tutti_error *err)
{
    tutti_error why = { 0 };
    const tutti_status status = tutti_job_wait(tutti_units_of(e)->lane, &u->job, &why);

    u->pending = false;
    u->failed = status != TUTTI_OK;
    tutti_by_piece_keep(e, status, &why);
    if (status != TUTTI_OK && err != NULL)
        *err = why;
    return status;
}

/* An exchange was not begun because another has failed: returns that failure. It is either a
   gather that has not been waited for, or one that was kept. */
static tutti_status what_failed(tutti_engine *e, tutti_error *err)
{
    tutti_units *units = tutti_units_of(e);

    for (int i = 0; i < e->layout.n_units; i++) {
        tutti_unit *u = &units->unit[i];
        const tutti_status status = u->pending ? await_gather(e, u, err) : TUTTI_OK;
        if (status != TUTTI_OK && status != TUTTI_CLOSED)
            return status;
    }
    return tutti_by_piece_rest(e, err);
}

tutti_status tutti_unit_await(tutti_engine *e, tutti_unit *u, tutti_error *err)
{
    tutti_units *units = tutti_units_of(e);
    tutti_doing was;
    tutti_status status;

    if (u->posted)
        return read_ends(e, u, err);
    if (!u->pending)
        return u->failed ? tutti_by_piece_kept(e, err) : TUTTI_OK;
    was = tutti_engine_expose(e);
    status = await_gather(e, u, err);
    tutti_engine_doing(e, was);
    if (status == TUTTI_OK && u->is_timed) {
        e->clock.comm_ns += u->job.ended_ns - u->job.started_ns;
        tutti_engine_mark(e, "gather", u->job.index, units->overlaps, u->job.started_ns,
                          u->job.ended_ns);
    }
    return status == TUTTI_CLOSED ? what_failed(e, err) : status;
}

/* The offset from `at` at which u's values begin: it is chosen so that the unit's first shard has
   the same offset in a block here as in the tier, which allows direct transfers. Less than a
   block, and different on each worker. */
static size_t shift(const tutti_engine *e, const tutti_unit *u, const float *at)
{
    tutti_units *units = tutti_units_of(e);
    tutti_shards *shards = tutti_shards_of(e);
    int piece = u->pieces.first;
    uint64_t there;

    while (piece < u->pieces.end && shards->mine[piece].count == 0)
        piece++;
    if (units->io == NULL || piece == u->pieces.end)
        return 0;
    there =
        units->place.at + (shards->at[piece] - (shards->mine[piece].first - u->first)) * sizeof *at;
    return (size_t)((there - (uintptr_t)at) % TUTTI_FILE_BLOCK) / sizeof *at;
}

/* Takes a free buffer or (shared, if units come from a tier) one in which other units have left
   space; the same on all workers. */
static bool take_buffer(tutti_engine *e, tutti_unit *u, bool shared)
{
    tutti_units *s = tutti_units_of(e);
    const size_t takes =
        tutti_unit_lines(u->count) + (s->io != NULL ? TUTTI_FILE_BLOCK / sizeof *s->memory : 0);
    int k = 0;

    while (k < s->buffers &&
           ((s->buffer[k].units > 0) != shared || takes > s->room - s->buffer[k].taken))
        k++;
    if (k == s->buffers || (shared && s->io == NULL))
        return false;
    u->buffer = k;
    u->values = s->memory + (size_t)k * s->room + s->buffer[k].taken;
    u->values += shift(e, u, u->values);
    s->buffer[k].units++;
    s->buffer[k].taken += takes;
    return true;
}

/* Counts the buffers and separate allocations that hold no unit that is acquired now. */
static int buffers_ahead(const tutti_engine *e)
{
    const tutti_units *s = tutti_units_of(e);
    bool needed[1 + TUTTI_AHEAD_MOST] = { false };
    int ahead = 0;

    for (int i = 0; i < e->layout.n_units; i++) {
        const tutti_unit *u = &s->unit[i];
        if (u->values != NULL && u->apart)
            ahead += u->needs == 0;
        else if (u->values != NULL && !u->keeps && u->needs > 0)
            needed[u->buffer] = true;
    }
    for (int k = 0; k < s->buffers; k++)
        ahead += s->buffer[k].units > 0 && !needed[k];
    return ahead;
}

static tutti_status take_apart(tutti_engine *e, tutti_unit *u, tutti_error *err)
{
    tutti_units *s = tutti_units_of(e);
    void *one;

    if (s->charged)
        tutti_arena_refund(e->memory.device, s->more_name, s->reserve);
    s->charged = false;
    TUTTI_TRY(tutti_arena_take(e->memory.device, s->more_name, u->count * sizeof(float),
                               TUTTI_ARENA_ALIGN, &one, err));
    u->values = one;
    u->apart = true;
    s->more += u->count;
    s->more_most = s->more > s->more_most ? s->more : s->more_most;
    return TUTTI_OK;
}

/* Finds memory for a unit's values: its own, a buffer, the buffer of a unit that was prefetched
   in vain, or a new allocation. A unit to be prefetched may get none. */
tutti_status tutti_unit_place(tutti_engine *e, tutti_unit *u, bool ahead, tutti_error *err)
{
    tutti_units *s = tutti_units_of(e);
    bool there = u->keeps || take_buffer(e, u, true) ||
                 ((!ahead || buffers_ahead(e) < s->ahead) && take_buffer(e, u, false));

    for (int i = 0; !ahead && !there && i < e->layout.n_units; i++) {
        tutti_unit *other = &s->unit[i];
        if (other->values == NULL || other->needs > 0 || other->keeps || other->apart)
            continue;
        TUTTI_TRY(tutti_unit_await(e, other, err));
        tutti_unit_release(e, other);
        there = take_buffer(e, u, true) || take_buffer(e, u, false);
    }
    if (u->keeps)
        u->values = u->home;
    else if (!there && ahead &&
             (buffers_ahead(e) >= s->ahead || take_apart(e, u, NULL) != TUTTI_OK))
        return TUTTI_OK;
    else if (!there && !ahead)
        TUTTI_TRY(tutti_fail_within(err, take_apart(e, u, err),
                                    "values of unit %d, which is needed together with %d others",
                                    (int)(u - s->unit), s->resident));
    count_live(e, u, true);
    return TUTTI_OK;
}

/* ---- gathers ---- */

/* Describes what a worker does; a unit is named by its first tensor. */
static const char *describe_unit(const tutti_engine *e, int64_t what, char *text, size_t room)
{
    int i = 0;

    if (what <= TUTTI_UNITS_END) {
        snprintf(text, room, what == TUTTI_UNITS_END ? "needs no more" : "exchanges a gradient");
        return text;
    }
    while (i < e->layout.n_tensors && e->tensors[i].unit != what)
        i++;
    snprintf(text, room, "needs unit %lld ('%s')", (long long)what,
             i < e->layout.n_tensors ? e->tensors[i].name : "");
    return text;
}

static tutti_status another(const tutti_engine *e, int64_t mine, int who, int64_t theirs,
                            tutti_error *err)
{
    char here[160], there[160];

    return tutti_fail(err, TUTTI_ERR_STATE, 0,
                      "worker %d %s where worker %d %s, in step %llu; under method '%s' all "
                      "workers need the same units in the same order",
                      e->m.rank, describe_unit(e, mine, here, sizeof here), who,
                      describe_unit(e, theirs, there, sizeof there),
                      (unsigned long long)e->counts.progress.step, e->m.ops->name);
}

/* Notifies members of the group that wait for this worker that it does not join. */
static void give_up(tutti_engine *e, tutti_group *g, tutti_status status)
{
    tutti_group_give_up(g, status == TUTTI_CLOSED ? (int)e->failure.by : e->m.rank);
}

/* All workers send each other what they are about to do next, and check that it is the same.
   words: one of each worker. */
tutti_status tutti_units_compare(tutti_engine *e, int64_t what, uint32_t turn, int64_t *words,
                                 tutti_error *err)
{
    tutti_group g = tutti_group_keyed(&e->m.all, tutti_port_of("unit order", 0, 0), turn);
    int64_t mine = what;
    tutti_status status = e->failure.flag ? TUTTI_CLOSED : TUTTI_OK;

    if (status == TUTTI_OK)
        status = tutti_allgather(&g, tutti_host(&mine, 1, TUTTI_I64),
                                 tutti_host(words, (size_t)e->m.workers, TUTTI_I64), err);
    if (status != TUTTI_OK)
        give_up(e, &g, status);
    for (int w = 0; w < e->m.workers && status == TUTTI_OK; w++)
        if (words[w] != what)
            return another(e, what, w, words[w], err);
    return status;
}

/* The sequence number of an order message. */
static uint32_t next_turn(tutti_units *s)
{
    return s->compares ? s->order_seq++ : 0;
}

void tutti_units_start_piece(void *self, tutti_piece *p)
{
    tutti_units *s = self;

    s->e->piece_state[p->index].order_seq = next_turn(s);
}

/* Checks that all workers are about to exchange this piece. */
tutti_status tutti_units_begin_piece(void *self, tutti_piece *p, tutti_error *err)
{
    const tutti_units *s = self;

    return s->compares ? tutti_units_compare(s->e, TUTTI_UNITS_END - 1 - p->index,
                                             s->e->piece_state[p->index].order_seq,
                                             s->words + s->e->m.workers, err)
                       : TUTTI_OK;
}

static tutti_status gather_unit(tutti_engine *e, tutti_unit *u, tutti_error *err)
{
    tutti_units *units = tutti_units_of(e);
    const tutti_shards *of = tutti_shards_of(e);
    int team;

    if (units->compares)
        TUTTI_TRY(tutti_units_compare(e, u - units->unit, u->order_seq, units->words, err));
    if (units->drives)
        return tutti_drive_broadcast_unit(e, (int)(u - units->unit),
                                          (tutti_range){ u->first, u->count }, u->values, &u->group,
                                          err);
    if (units->x == NULL)
        TUTTI_TRY(read_ends(e, u, err));
    team = of->team;
    for (int k = u->pieces.first; k < u->pieces.end; k++) {
        float *const mine = tutti_unit_shard(e, u, k);
        if (units->x != NULL)
            tutti_copy(e->m.device, of->mine[k].count,
                       units->x + tutti_shards_value_at(of, (size_t)k), mine);
        if (team > 1)
            TUTTI_TRY(tutti_allgather_v(
                &u->group, of->counts + (size_t)k * (size_t)team,
                tutti_f32(e->m.device, mine, of->mine[k].count),
                tutti_f32(e->m.device, piece_in(e, u, k), e->pieces[k].count), err));
    }
    return TUTTI_OK;
}

/* Lane thread or client thread: touches only this unit's buffer. TUTTI_CLOSED: another exchange has
   failed. */
static tutti_status gather_job(tutti_job *job, tutti_error *err)
{
    tutti_unit *u = job->owner;
    tutti_engine *e = u->engine;
    const tutti_status status = e->failure.flag ? TUTTI_CLOSED : gather_unit(e, u, err);

    if (status != TUTTI_OK && e->m.workers > 1)
        give_up(e, &u->group, status);
    tutti_engine_breaks(e, status, err);
    return status;
}

void tutti_unit_gather(tutti_engine *e, tutti_unit *u)
{
    tutti_units *units = tutti_units_of(e);
    const int unit = (int)(u - units->unit);
    tutti_doing was;

    u->posted = false;
    u->group = tutti_group_keyed(units->drives ? &e->m.all : &tutti_shards_of(e)->inside,
                                 (uint64_t)1 << 40 | (uint64_t)unit, u->turn);
    if (!units->drives) /* a broadcast has no choice */
        u->group.algorithm = e->sums.collective;
    u->turn += units->drives ? 1 : (uint32_t)(u->pieces.end - u->pieces.first);
    u->order_seq = next_turn(units);
    u->is_timed = e->clock.running && e->clock.doing != TUTTI_DOING_OUTSIDE &&
                  e->clock.doing != TUTTI_DOING_REPORT;
    u->job = (tutti_job){ .run = gather_job, .owner = u, .index = unit };
    u->pending = true;
    /* without a thread it is over now */
    was = units->overlaps ? e->clock.doing : tutti_engine_expose(e);
    tutti_lane_start(units->lane, &u->job);
    tutti_engine_doing(e, was);
}

/* Reads my shards and begins the gather. If it is a prefetch and there is no thread for gathers,
   the gather begins when the unit is acquired. */
tutti_status tutti_unit_start(tutti_engine *e, int unit, bool ahead, tutti_error *err)
{
    tutti_units *units = tutti_units_of(e);
    tutti_unit *u = &units->unit[unit];

    TUTTI_TRY(tutti_unit_place(e, u, ahead, err));
    if (u->values == NULL)
        return TUTTI_OK;
    u->filled = ahead && units->fills;
    if (u->filled)
        return TUTTI_OK;
    if (units->x == NULL) {
        u->posted = true;
        TUTTI_TRY(read(e, u, err));
    }
    if (units->overlaps || !ahead)
        tutti_unit_gather(e, u);
    return TUTTI_OK;
}

/* ---- the first values ---- */

/* All values of the unit are there. */
static tutti_status keep_shards(tutti_engine *e, const tutti_unit *u, tutti_error *err)
{
    tutti_units *s = tutti_units_of(e);
    const tutti_shards *of = tutti_shards_of(e);

    for (int k = u->pieces.first; k < u->pieces.end; k++) {
        tutti_io io = { 0 }, *const one = &io;
        if (s->x != NULL) {
            tutti_copy(e->m.device, of->mine[k].count, tutti_unit_shard(e, u, k),
                       s->x + tutti_shards_value_at(of, (size_t)k));
            if (of->copied != NULL)
                tutti_copy(e->m.device, of->copied[k].count,
                           u->values + (of->copied[k].first - u->first),
                           s->x + tutti_shards_copy_at(of, (size_t)k));
            continue;
        }
        if (of->mine[k].count > 0)
            TUTTI_TRY(tutti_tier_write(s->place.tier, &io, s->place.at + of->at[k] * sizeof(float),
                                       tutti_unit_shard(e, u, k), of->mine[k].count * sizeof(float),
                                       err));
        TUTTI_TRY(tutti_tier_wait(s->place.tier, &one, 1, err));
    }
    return TUTTI_OK;
}

tutti_status tutti_units_initial(void *self, tutti_group *workers, bool *done, tutti_error *err)
{
    tutti_engine *e = ((tutti_units *)self)->e;

    if (((tutti_units *)self)->drives) /* the stages do that */
        return TUTTI_OK;
    *done = true;
    for (int i = 0; i < e->layout.n_units; i++) {
        tutti_unit *u = &tutti_units_of(e)->unit[i];
        if (u->count == 0)
            continue;
        TUTTI_TRY(tutti_unit_place(e, u, false, err));
        tutti_fill(e->m.device, u->count, 0, u->values);
        for (int k = 0; k < e->layout.n_tensors && e->m.rank == 0 && e->options.initial != NULL;
             k++)
            if (e->tensors[k].unit == i)
                e->options.initial(e->options.user, k,
                                   u->values + (e->tensors[k].first - u->first));
        if (e->m.workers > 1)
            TUTTI_TRY(
                tutti_broadcast(workers, 0, tutti_f32(e->m.device, u->values, u->count), err));
        TUTTI_TRY(keep_shards(e, u, err));
        tutti_unit_release(e, u);
    }
    return TUTTI_OK;
}
