/* units.c: values that are held by unit (m->held): no worker has x of the whole model. A worker
   has its shard of every piece (shards.c), and all values of a unit between acquire and release
   of that unit. This is "Pos+g+p" of Rajbhandari, Rasley, Ruwase, He, "ZeRO: Memory Optimizations
   Toward Training Trillion Parameter Models", SC 2020, section 5.3.

     acquire  all-gather of the unit's pieces into a buffer, unless they are there or being gathered
     release  the buffer is free again
     step     shards are updated (shards.c); gathered values that are kept become stale

   Prefetch. The order in which a step acquires its units is taken to be that of the step before.
   So while the client computes with a unit, the next unit's values are gathered concurrently, on
   a lane of their own. One unit is prefetched at a time: as many units are present as the client
   needs at once, and one more. Without a lane nothing would be gained, and none is prefetched. If
   the order has changed, the rest of the step runs without prefetch, and its order is the
   expected one from then on.

   Shards may be on a disk (offload.c; Rajbhandari, Ruwase, Rasley, Smith, He, "ZeRO-Infinity:
   Breaking the GPU Memory Wall for Extreme Scale Deep Learning", SC 2021, section 6). A unit's
   shards are read into its buffer before it is gathered, each worker reading its own, so that all
   disks work for each unit. Reads proceed by themselves: they are issued ahead even without a
   lane, and the gather then waits for the acquire. How many units to prefetch depends on how long
   a read takes, so on bytes: small units share a buffer and count as one. What a step needs first
   is not read: the update, which has it in a tile, leaves it in the buffer (part.x of method.h).

   The order of the first step is not known yet. It is assumed to be forward through all units and
   back.

   A unit of few values may keep its gathered values until the next update: this takes memory, but
   the unit is sent once a step instead of twice.

   A client that does not promise the same order on all workers (engine_options.same_order) could
   make two workers wait for each other, each in the gather of another unit. So before each gather
   all workers send each other, in eight bytes, which unit it is of, and at the end of a pass that
   there are no more.

   Outside of passes (evaluations, export, checkpoints of other kinds) all workers need the same
   units in the same order, and nothing is prefetched.

   Methods that run a pipeline schedule (drive.c) use only this last part: a worker has no shards,
   but the units of its stage. A unit that is acquired is sent by the worker that has it, into
   memory that is allocated until the release. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "sharded.h"
#include "units.h"
#include "engine/lane.h"
#include "runtime/files.h"
#include "tier/tier.h"
#include "drive.h"

tutti_units *tutti_units_of(const tutti_engine *e)
{
    return tutti_facility_self(&e->m, &tutti_units_mode);
}

/* ---- declare, open, close ---- */

static tutti_status no_memory(const tutti_engine *e, tutti_error *err)
{
    return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for the values of %d units",
                      e->layout.n_units);
}

static tutti_status list_units(tutti_engine *e, tutti_error *err)
{
    tutti_units *s = tutti_alloc(1, sizeof *s);

    if (s == NULL)
        return no_memory(e, err);
    s->e = e;
    tutti_facility_add(&e->m, &tutti_units_mode, s);
    if (!e->options.needs)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method '%s' holds values by unit, but this client does not report when "
                          "it needs which unit (tutti_engine_unit_acquire, engine_options.needs); "
                          "take a client that does, or a method that has all values (of zero: "
                          "stage=2)",
                          e->m.ops->name);
    s->compares = e->m.workers > 1 && !e->options.same_order;
    s->unit = tutti_alloc((size_t)e->layout.n_units, sizeof *s->unit);
    s->words = tutti_alloc(2 * (size_t)e->m.workers, sizeof *s->words);
    return s->unit != NULL && s->words != NULL ? TUTTI_OK : no_memory(e, err);
}

/* Finds where each unit is: its tensors are contiguous, and pieces end with it (layout.c). */
static tutti_status find_units(tutti_engine *e, tutti_error *err)
{
    tutti_units *s = tutti_units_of(e);

    for (int i = 0; i < e->layout.n_tensors; i++) {
        const tutti_tensor *t = &e->tensors[i];
        tutti_unit *u = &s->unit[t->unit];
        if (u->pieces.end > 0 && t->first != u->first + u->count)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "method '%s' holds values by unit, but of unit %d '%s' stands apart "
                              "from the tensors before it; give the tensors of a unit one behind "
                              "the other",
                              e->m.ops->name, t->unit, t->name);
        if (e->params[i].values != NULL)
            return tutti_fail(
                err, TUTTI_ERR_USAGE, 0,
                "method '%s' holds values by unit, but the client has memory of its own for '%s', "
                "which would be all of it; read values where the engine has them, between need and "
                "done",
                e->m.ops->name, t->name);
        if (u->pieces.end == 0) {
            u->first = t->first;
            u->pieces.first = e->pieces_of[i].first;
        }
        u->count += t->count;
        u->pieces.end = e->pieces_of[i].end;
    }
    return TUTTI_OK;
}

static int *grown(const tutti_engine *e, int room, tutti_error *err)
{
    int *more = tutti_alloc((size_t)room, sizeof *more);

    if (more == NULL)
        no_memory(e, err);
    return more;
}

/* The assumed order of the first step: forward, and back. */
static tutti_status guess_order(tutti_engine *e, tutti_error *err)
{
    tutti_units *s = tutti_units_of(e);

    s->room_seen = 2 * e->layout.n_units;
    s->seen = grown(e, s->room_seen, err);
    if (s->seen == NULL)
        return TUTTI_ERR_MEMORY;
    for (int i = 0; i < e->layout.n_units; i++)
        s->seen[i] = s->seen[s->room_seen - 1 - i] = i;
    s->n_seen = s->room_seen;
    return TUTTI_OK;
}

/* Its jobs look for this facility and for the shards. */
static void stop(void *self)
{
    tutti_units *s = self;

    tutti_lane_close(s->lane);
    s->lane = NULL;
}

static void close_units(void *self)
{
    tutti_units *s = self;
    tutti_engine *e = s->e;

    for (int k = 0; s->io != NULL && k < e->layout.n_pieces; k++) {
        /* their memory is about to be freed */
        tutti_io *const one = &s->io[k];
        tutti_tier_wait(s->place.tier, &one, 1, NULL);
    }
    tutti_free(s->io);
    for (int i = 0; s->unit != NULL && i < e->layout.n_units; i++)
        if (s->unit[i].apart)
            tutti_arena_give(e->memory.device, s->unit[i].values);
    if (s->charged)
        tutti_arena_refund(e->memory.device, s->more_name, s->reserve);
    tutti_free(s->unit);
    tutti_free(s->seen);
    tutti_free(s->words);
    tutti_free(s);
}

static tutti_status cut(void *self, tutti_error *err)
{
    tutti_units *s = self;
    tutti_engine *e = s->e;
    float *kept = s->kept;

    if (s->reserve > 0)
        TUTTI_TRY(
            tutti_arena_charge(e->memory.device, tutti_units_of(e)->more_name, s->reserve, err));
    s->charged = s->reserve > 0;
    if (tutti_offload_of(e) != NULL && (s->x = s->place.memory) == NULL &&
        (s->io = tutti_alloc((size_t)e->layout.n_pieces, sizeof *s->io)) == NULL)
        return no_memory(e, err);
    for (int i = 0; i < e->layout.n_units; i++) {
        tutti_unit *u = &s->unit[i];
        u->engine = e;
        if (!u->keeps)
            continue;
        u->home = kept;
        kept += tutti_unit_lines(u->count);
    }
    if (s->io != NULL)
        tutti_tier_pin(s->place.tier, s->memory, (size_t)s->buffers * s->room * sizeof *s->memory);
    return tutti_lane_open(&s->lane, e->rt, "values", s->overlaps ? 1 : 0, err);
}

/* Reports what the steps have moved to and from a tier. */
static void tell_tier(tutti_engine *e)
{
    const tutti_units *s = tutti_units_of(e);
    tutti_tier_sum sum;

    if (s->io == NULL || !e->clock.running)
        return;
    sum = tutti_tier_count(s->place.tier);
    tutti_metric(&e->m, "tier_read_bytes", -1, (double)(sum.read - s->before.read));
    tutti_metric(&e->m, "tier_written_bytes", -1, (double)(sum.written - s->before.written));
}

static tutti_status start_of_run(void *self, tutti_error *err)
{
    tutti_engine *e = ((tutti_units *)self)->e;
    tutti_units *units = tutti_units_of(e);

    (void)err;
    if (units->io != NULL && !units->begun)
        units->before = tutti_tier_count(units->place.tier);
    units->begun = true;
    return TUTTI_OK;
}

static tutti_status units_arrive(void *self, tutti_error *err)
{
    tutti_engine *e = ((tutti_units *)self)->e;

    TUTTI_TRY(tutti_units_rest(e, err));
    tell_tier(e);
    return TUTTI_OK;
}

tutti_status tutti_units_declare(tutti_engine *e, size_t keep, tutti_error *err)
{
    tutti_offload *offload = tutti_offload_of(e);
    tutti_shards *shards = tutti_shards_of(e);
    const bool several = shards->team > 1, /* else this worker has all values */
               copies = shards->copied != NULL;
    size_t kept = 0, count = 0;
    tutti_units *s;

    TUTTI_TRY(list_units(e, err));
    s = tutti_units_of(e);
    s->more_name = "x.more";
    TUTTI_TRY(find_units(e, err));
    s->overlaps = e->m.lane_width > 0 && e->options.lane >= 0 && (several || offload != NULL);
    s->ahead = offload != NULL && (s->overlaps || strcmp(offload->options.tier, "host") != 0)
                   ? offload->options.ahead
                   : s->overlaps;
    TUTTI_TRY(guess_order(e, err));
    for (int i = 0; i < e->layout.n_units; i++) {
        tutti_unit *u = &s->unit[i];
        u->keeps = u->count <= keep;
        if (u->keeps)
            kept += tutti_unit_lines(u->count);
        else if (tutti_unit_lines(u->count) > s->room)
            s->room = tutti_unit_lines(u->count);
    }
    s->buffers = s->room == 0 ? 0 : 1 + s->ahead;
    if (offload != NULL && strcmp(offload->options.tier, "host") != 0)
        s->room += TUTTI_FILE_BLOCK / sizeof(float); /* shift */
    for (int k = 0; k < e->layout.n_pieces; k++)
        count += shards->mine[k].count + (copies ? shards->copied[k].count : 0);
    tutti_declare(e->plan,
                  &(tutti_state){ .name = "x",
                                  .keep = TUTTI_SLICE,
                                  .dtype = TUTTI_F32,
                                  .count = count,
                                  .ranges = copies ? shards->both : shards->mine,
                                  .n_ranges = (size_t)e->layout.n_pieces * (copies ? 2 : 1),
                                  .placed = true,
                                  .tier = offload != NULL ? offload->options.tier : NULL },
                  offload != NULL ? (void *)&s->place : (void *)&s->x);
    if (kept > 0)
        tutti_declare(e->plan,
                      &(tutti_state){ .name = "x.kept",
                                      .keep = TUTTI_SCRATCH,
                                      .dtype = TUTTI_F32,
                                      .count = kept,
                                      .shared = several },
                      &s->kept);
    if (s->buffers > 0)
        tutti_declare(e->plan,
                      &(tutti_state){ .name = "x.buffers",
                                      .keep = TUTTI_SCRATCH,
                                      .dtype = TUTTI_F32,
                                      .count = (size_t)s->buffers * s->room,
                                      .shared = several },
                      &s->memory);
    return TUTTI_OK;
}

/* Stages are whole units, and include the elements between them. An evaluation that would not fit
   in memory is refused while opening: memory for the largest unit is reserved from there on. */
tutti_status tutti_units_declare_evaluations(tutti_engine *e, tutti_error *err)
{
    tutti_units *units;

    TUTTI_TRY(list_units(e, err));
    units = tutti_units_of(e);
    units->more_name = "shown";
    units->drives = true;
    for (int i = 0; i < e->layout.n_units; i++) {
        const tutti_range r = tutti_drive_range(&e->m, i, i + 1);
        units->unit[i].first = r.first;
        units->unit[i].count = r.count;
        if (r.count * sizeof(float) > units->reserve)
            units->reserve = r.count * sizeof(float);
    }
    return TUTTI_OK;
}

/* ---- the order of a step ---- */

/* Prefetches the units that are needed next, as far as allowed. It stops at a unit that is
   acquired now and will be needed again: its values are released in between. */
static tutti_status look_ahead(tutti_engine *e, tutti_error *err)
{
    const tutti_units *s = tutti_units_of(e);

    for (int at = s->at; !s->records && at < s->n_seen && s->ahead > 0; at++) {
        const tutti_unit *u = &s->unit[s->seen[at]];
        if (u->values != NULL && u->needs > 0 && !u->keeps)
            return TUTTI_OK;
        if (u->values != NULL)
            continue;
        TUTTI_TRY(tutti_unit_start(e, s->seen[at], true, err));
        if (u->values == NULL) /* no buffer is free */
            return TUTTI_OK;
    }
    return TUTTI_OK;
}

static tutti_status follow(tutti_engine *e, int unit, tutti_error *err)
{
    tutti_units *s = tutti_units_of(e);

    if (!s->records && s->at < s->n_seen && s->seen[s->at] == unit) {
        s->at++;
        return TUTTI_OK;
    }
    s->records = true;
    s->n_seen = s->at;
    if (s->n_seen == s->room_seen) {
        int *more = grown(e, 2 * s->room_seen, err);
        if (more == NULL)
            return TUTTI_ERR_MEMORY;
        memcpy(more, s->seen, (size_t)s->n_seen * sizeof *more);
        tutti_free(s->seen);
        s->seen = more;
        s->room_seen *= 2;
    }
    s->seen[s->n_seen++] = unit;
    s->at = s->n_seen;
    return TUTTI_OK;
}

static tutti_status need_unit(tutti_engine *e, int unit, tutti_error *err)
{
    tutti_unit *u = &tutti_units_of(e)->unit[unit];
    const bool in_pass = e->stage == STAGE_PASS;

    if (in_pass)
        TUTTI_TRY(follow(e, unit, err));
    if (u->values == NULL)
        TUTTI_TRY(tutti_unit_start(e, unit, false, err));
    else if (u->posted)
        tutti_unit_gather(e, u);
    u->needs++;
    TUTTI_TRY(tutti_unit_await(e, u, err));
    return in_pass ? look_ahead(e, err) : TUTTI_OK;
}

/* A unit that comes from a tier and is needed again before any unit that is absent would be read
   again for nothing, so it stays: the layers that forward ends with and backward begins with. */
static bool is_near(const tutti_engine *e, const tutti_unit *u)
{
    const tutti_units *s = tutti_units_of(e);
    int at = s->at;

    while (at < s->n_seen && s->unit[s->seen[at]].values != NULL && &s->unit[s->seen[at]] != u)
        at++;
    return s->io != NULL && e->stage == STAGE_PASS && !s->records && at < s->n_seen &&
           &s->unit[s->seen[at]] == u;
}

static tutti_status done_unit(tutti_engine *e, int unit, tutti_error *err)
{
    tutti_unit *u = &tutti_units_of(e)->unit[unit];

    if (u->needs == 0 || --u->needs > 0)
        return TUTTI_OK;
    if (!u->keeps && !is_near(e, u))
        tutti_unit_release(e, u);
    return e->stage == STAGE_PASS ? look_ahead(e, err) : TUTTI_OK;
}

static void first_unit(tutti_engine *e)
{
    tutti_units *units = tutti_units_of(e);

    units->records = units->n_seen == 0;
    units->at = 0;
}

/* Waits for the gathers in flight, and releases what was prefetched in vain. */
static tutti_status drop(tutti_engine *e, bool kept, tutti_error *err)
{
    for (int i = 0; i < e->layout.n_units; i++) {
        tutti_unit *u = &tutti_units_of(e)->unit[i];
        TUTTI_TRY(tutti_unit_await(e, u, err));
        if (u->values != NULL && u->needs == 0 && !u->filled && (kept || !u->keeps))
            tutti_unit_release(e, u);
    }
    return TUTTI_OK;
}

static tutti_status end_pass(void *self, tutti_error *err)
{
    tutti_units *s = self;
    tutti_engine *e = s->e;
    tutti_doing was;
    tutti_status status;

    TUTTI_TRY(drop(e, false, err));
    s->n_seen = s->at;
    s->records = false;
    if (s->resident_peak > s->resident_reported) {
        s->resident_reported = s->resident_peak;
        tutti_metric(&e->m, "units_live", -1, s->resident_peak);
        tutti_metric(&e->m, "values_live", -1, (double)s->live_values_most);
    }
    if (!s->compares)
        return TUTTI_OK;
    was = tutti_engine_expose(e);
    status = tutti_units_compare(e, TUTTI_UNITS_END, s->order_seq++, s->words, err);
    tutti_engine_doing(e, was);
    return status == TUTTI_CLOSED ? TUTTI_OK : status; /* step() reports the failure */
}

/* May units of the next step be gathered now? With commit nothing is in flight between steps, where
   a worker gives its state to others: a loss would fail it. */
static bool goes_on(const tutti_engine *e)
{
    return e->m.steps > 0 && e->counts.progress.step + 1 < e->m.steps && e->options.commit == NULL;
}

/* The values present are those of before the update: drops them and starts at the first unit
   again. */
static tutti_status begin_anew(tutti_engine *e, tutti_error *err)
{
    TUTTI_TRY(drop(e, true, err));
    first_unit(e);
    return TUTTI_OK;
}

tutti_status tutti_units_fill(tutti_engine *e, tutti_error *err)
{
    tutti_units *s = tutti_units_of(e);
    tutti_status status;

    if (s->io == NULL || !goes_on(e))
        return TUTTI_OK;
    TUTTI_TRY(begin_anew(e, err));
    s->fills = true;
    status = look_ahead(e, err);
    s->fills = false;
    return status;
}

float *tutti_units_filled(const tutti_engine *e, int piece)
{
    const tutti_unit *u = &tutti_units_of(e)->unit[e->tensors[e->pieces[piece].first_tensor].unit];

    return u->filled ? tutti_unit_shard(e, u, piece) : NULL;
}

/* The update has left my shards in these units: begins their gathers. */
static void begin_filled(tutti_engine *e)
{
    const tutti_units *s = tutti_units_of(e);

    for (int at = 0; at < s->n_seen; at++) {
        tutti_unit *u = &s->unit[s->seen[at]];
        if (!u->filled)
            continue;
        u->filled = false;
        u->posted = true;
        if (s->overlaps)
            tutti_unit_gather(e, u);
    }
}

static tutti_status values_replaced(void *self, tutti_error *err)
{
    tutti_engine *e = ((tutti_units *)self)->e;

    TUTTI_TRY(begin_anew(e, err));
    begin_filled(e);
    return goes_on(e) ? look_ahead(e, err) : TUTTI_OK;
}

tutti_status tutti_units_rest(tutti_engine *e, tutti_error *err)
{
    tutti_units *units = tutti_units_of(e);
    tutti_status status = TUTTI_OK;

    for (int i = 0; units != NULL && i < e->layout.n_units; i++) {
        const tutti_status one =
            tutti_unit_await(e, &units->unit[i], status == TUTTI_OK ? err : NULL);
        status = status == TUTTI_OK ? one : status;
    }
    return status;
}

/* ---- values ---- */

static float *values_of(const void *self, int tensor)
{
    const tutti_engine *e = ((const tutti_units *)self)->e;
    const tutti_tensor *t = &e->tensors[tensor];
    const tutti_unit *u = &tutti_units_of(e)->unit[t->unit];

    return u->values != NULL && u->needs > 0 ? u->values + (t->first - u->first) : NULL;
}

size_t tutti_units_bytes(const tutti_method *m)
{
    const tutti_engine *e = m->engine;
    tutti_units *units = tutti_units_of(e);
    size_t kept = 0;

    for (int i = 0; units != NULL && i < e->layout.n_units; i++)
        kept += units->unit[i].keeps ? tutti_unit_lines(units->unit[i].count) : 0;
    return (units != NULL ? (size_t)units->buffers * units->room + kept : 0) * sizeof(float);
}

static tutti_status begin_pass(void *self, const tutti_pass *next, tutti_error *err)
{
    (void)next;
    (void)err;
    first_unit(((tutti_units *)self)->e);
    return TUTTI_OK;
}

static tutti_status acquire(void *self, int unit, tutti_error *err)
{
    return need_unit(((tutti_units *)self)->e, unit, err);
}

static tutti_status release_unit(void *self, int unit, bool backward, tutti_error *err)
{
    (void)backward;
    return done_unit(((tutti_units *)self)->e, unit, err);
}

static void settle(void *self, bool measured)
{
    if (!measured)
        tutti_units_rest(((tutti_units *)self)->e, NULL);
}

static size_t list_memory(const void *self, tutti_memory_record *records)
{
    const tutti_units *s = self;
    const uint64_t most = s->more_most * sizeof(float);

    records[0] =
        (tutti_memory_record){ s->more_name, s->drives ? TUTTI_MEMORY_BUFFERS : TUTTI_MEMORY_VALUES,
                               most > s->reserve ? most : s->reserve };
    return 1;
}

const tutti_facility_ops tutti_units_mode = { .close = close_units,
                                              .stop = stop,
                                              .cut = cut,
                                              .begin = start_of_run,
                                              .arrive = units_arrive,
                                              .settle = settle,
                                              .initial = tutti_units_initial,
                                              .values = values_of,
                                              .values_replaced = values_replaced,
                                              .begin_pass = begin_pass,
                                              .acquire = acquire,
                                              .release = release_unit,
                                              .end_pass = end_pass,
                                              .start_piece = tutti_units_start_piece,
                                              .begin_piece = tutti_units_begin_piece,
                                              .memory = list_memory };
