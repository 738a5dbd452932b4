/* offload.c: an update outside the device (steps.h). Ren, Rajbhandari, Yazdani Aminabadi, Ruwase,
   Yang, Zhang, Li, He, "ZeRO-Offload: Democratizing Billion-Scale Model Training", USENIX ATC
   2021: what the update needs of a worker's shards (masters, slots and their mean gradient) is
   kept away from the device, which computes and has the values.

     exchange   the mean of my shards goes to the host as each piece is reduced (shards.c)
     step       checks, norm and scale; masters and slots stream through tiles (optim/placed.c), and
                new values go to x with each tile; then to all workers (shards.c)

   Held by unit (units.c), with all of it in the tier: the device has only those values and
   gradients that are in use. The masters are then the values, and if the tier is a disk a mean
   goes to it through staging buffers in memory, so that some are written while the next is
   reduced.

   Delayed (section 5.3). Update i runs on a thread of its own during step i + 1, on the masters,
   which x follows at the end of that step. So the gradient of step i + 1 is computed before
   update i:

       step i      x_i = x_(i-1) - u(g(x_(i-1)))                          i < W
       step W      g_W at x_(W-1); update W is started, x stays
       step i > W  g_i at x_(i-2); x := x_(i-1); update i is started

   The gradient then has two buffers, one that the update reads and one that pieces are written
   to. A checkpoint waits for the running update: the masters are one update ahead of x, and both
   are saved, so no gradient is. At the end x follows. */
#include <errno.h>
#include <string.h>

#include "sharded.h"
#include "engine/lane.h"
#include "optim/placed.h"
#include "runtime/files.h"
#include "tier/tier.h"
#include "offload.h"

tutti_offload *tutti_offload_of(const tutti_engine *e)
{
    return tutti_facility_self(&e->m, &tutti_offload_mode);
}

static tutti_status no_memory(const tutti_engine *e, tutti_error *err)
{
    return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for the update of %d pieces",
                      e->layout.n_pieces);
}

/* ---- masters and x ---- */

/* Lists the parts of the update: my shards, with this step's gradient. */
static void list_parts(tutti_engine *e, bool with_x)
{
    const int n = e->layout.n_pieces;
    const bool by_unit = tutti_units_of(e) != NULL;
    tutti_update_part *part = tutti_offload_of(e)->part;

    for (int k = 0; k < n; k++) { /* the last piece is needed first */
        const tutti_range *mine = &tutti_shards_of(e)->mine[n - 1 - k];
        float *const x = by_unit ? tutti_units_filled(e, n - 1 - k) : e->m.x + mine->first;
        part[k] = (tutti_update_part){ mine->first, mine->count, tutti_shard_gradient(e, n - 1 - k),
                                       with_x ? x : NULL };
    }
}

/* Masters := x, for my shards. */
static tutti_status fill_values(tutti_engine *e, tutti_error *err)
{
    tutti_offload *offload = tutti_offload_of(e);

    list_parts(e, true);
    for (int k = 0; k < e->layout.n_pieces; k++)
        if (offload->part[k].count > 0)
            TUTTI_TRY(tutti_placed_take(offload->placed, &offload->part[k], err));
    offload->filled = true;
    return TUTTI_OK;
}

static void gather_part(void *arg, size_t part)
{
    tutti_engine *e = arg;

    tutti_shards_start_gather(e, e->layout.n_pieces - 1 - (int)part);
}

/* x follows the masters, and is gathered by all workers. */
static tutti_status follow(tutti_engine *e, tutti_error *err)
{
    tutti_offload *offload = tutti_offload_of(e);

    for (int k = e->layout.n_pieces - 1; k >= 0; k--) {
        const tutti_range *mine = &tutti_shards_of(e)->mine[k];
        const tutti_update_part part = { mine->first, mine->count, NULL, e->m.x + mine->first };
        if (mine->count > 0)
            TUTTI_TRY(tutti_placed_give(offload->placed, &part, err));
        tutti_shards_start_gather(e, k);
    }
    offload->now.ahead = 0;
    e->values_changed = true;
    return TUTTI_OK;
}

/* Waits for the running update. */
static tutti_status await_update(tutti_engine *e, tutti_error *err)
{
    tutti_offload *offload = tutti_offload_of(e);
    const tutti_doing was = tutti_engine_expose(e);
    const tutti_status status = tutti_job_wait(offload->lane, &offload->job, err);

    tutti_engine_doing(e, was);
    return status;
}

/* ---- gradients in a tier without addresses ---- */

/* The number of staging buffers. All gradients of a unit arrive at its end, within the time of a
   copy, and the disk writes them while the next unit is computed. So there is a buffer for each
   piece of a unit, and one for the next, as long as that is little memory. */
static int count_staging(const tutti_engine *e)
{
    tutti_offload *offload = tutti_offload_of(e);
    int most = 2;

    for (int i = 0; i < e->layout.n_units; i++) {
        const tutti_engine_span *of = &tutti_units_of(e)->unit[i].pieces;
        most = of->end - of->first >= most ? of->end - of->first + 1 : most;
    }
    return most < (int)TUTTI_LENGTH(offload->io) ? most : (int)TUTTI_LENGTH(offload->io);
}

/* Bytes of one staging buffer: a shard begins in it at the same offset in a block as in the tier,
   which allows direct transfers. */
static size_t staging_bytes(const tutti_engine *e)
{
    tutti_shards *shards = tutti_shards_of(e);
    size_t largest = 0;

    for (int k = 0; k < e->layout.n_pieces; k++)
        largest = shards->mine[k].count > largest ? shards->mine[k].count : largest;
    return (largest * sizeof(float) + TUTTI_FILE_BLOCK - 1) / TUTTI_FILE_BLOCK * TUTTI_FILE_BLOCK +
           TUTTI_FILE_BLOCK;
}

static size_t staging_total(const tutti_engine *e)
{
    return (size_t)count_staging(e) * staging_bytes(e);
}

static uint64_t place_of(const tutti_engine *e, int piece)
{
    return tutti_offload_of(e)->g.at + tutti_shards_of(e)->at[piece] * sizeof(float);
}

/* The address of a piece's shard in staging buffer k. */
static float *staging_at(const tutti_engine *e, int k, int piece)
{
    tutti_offload *offload = tutti_offload_of(e);
    const size_t within = (size_t)(place_of(e, piece) % TUTTI_FILE_BLOCK);

    return offload->staging + ((size_t)k * offload->staging_bytes + within) / sizeof(float);
}

/* Waits until the transfer of staging buffer k has ended. */
static tutti_status await_staging(tutti_engine *e, int k, tutti_error *err)
{
    tutti_offload *offload = tutti_offload_of(e);
    tutti_io *const one = &offload->io[k];

    return tutti_tier_wait(offload->g.tier, &one, 1, err);
}

static tutti_status await_all_staging(tutti_engine *e, tutti_error *err)
{
    for (int k = 0; k < tutti_offload_of(e)->n_staging; k++)
        TUTTI_TRY(await_staging(e, k, err));
    return TUTTI_OK;
}

/* True if gradients are in a tier without addresses: then the exchange has work even with one
   worker. */
static bool exchanges_alone(const void *self)
{
    const tutti_offload *o = self;

    return tutti_units_of(o->e) != NULL && o->g.memory == NULL;
}

float *tutti_offload_staged(const tutti_engine *e, int piece)
{
    const tutti_offload *o = tutti_offload_of(e);

    return o != NULL && o->staging != NULL ? staging_at(e, 0, piece) : NULL;
}

tutti_status tutti_offload_stage(tutti_engine *e, int piece, bool adds, float **to,
                                 tutti_error *err)
{
    tutti_offload *o = tutti_offload_of(e);
    const size_t count = tutti_shards_of(e)->mine[piece].count;

    if (o == NULL || o->staging == NULL)
        return TUTTI_OK;
    o->brought = -1;
    *to = staging_at(e, o->next, piece);
    if (!adds || count == 0)
        return await_staging(e, o->next, err);
    /* what is read may still be being written from another buffer */
    TUTTI_TRY(await_all_staging(e, err));
    TUTTI_TRY(tutti_tier_read(o->g.tier, &o->io[o->next], place_of(e, piece), *to,
                              count * sizeof(float), err));
    return await_staging(e, o->next, err);
}

tutti_status tutti_offload_write(tutti_engine *e, int piece, float *from, tutti_error *err)
{
    tutti_offload *o = tutti_offload_of(e);
    const size_t count = tutti_shards_of(e)->mine[piece].count;
    tutti_io *io;

    if (o == NULL || o->staging == NULL || count == 0)
        return TUTTI_OK;
    io = &o->io[o->next];
    o->next = (o->next + 1) % o->n_staging;
    return tutti_tier_write(o->g.tier, io, place_of(e, piece), from, count * sizeof(float), err);
}

tutti_status tutti_offload_read(tutti_engine *e, int piece, tutti_error *err)
{
    tutti_offload *o = tutti_offload_of(e);

    if (o == NULL || o->staging == NULL || o->brought == piece)
        return TUTTI_OK;
    TUTTI_TRY(await_all_staging(e, err));
    TUTTI_TRY(tutti_tier_read(o->g.tier, &o->io[0], place_of(e, piece), staging_at(e, 0, piece),
                              tutti_shards_of(e)->mine[piece].count * sizeof(float), err));
    TUTTI_TRY(await_staging(e, 0, err));
    o->brought = piece;
    return TUTTI_OK;
}

/* ---- open, close, rest ---- */

/* The masters are the values, which are present. */
static tutti_status open_by_unit(tutti_engine *e, tutti_error *err)
{
    tutti_offload *o = tutti_offload_of(e);
    void *room;

    o->masters = tutti_units_of(e)->place;
    o->filled = true;
    o->brought = -1;
    if (o->g.memory != NULL)
        return TUTTI_OK;
    TUTTI_TRY(tutti_arena_take(e->memory.host, "g.rooms", staging_total(e), TUTTI_FILE_BLOCK, &room,
                               err));
    o->staging = room;
    o->n_staging = count_staging(e);
    o->staging_bytes = staging_bytes(e);
    tutti_tier_pin(o->g.tier, room, staging_total(e));
    return TUTTI_OK;
}

static tutti_status open_offload(void *self, tutti_error *err)
{
    tutti_offload *o = self;
    tutti_engine *e = o->e;
    tutti_units *units = tutti_units_of(e);
    const tutti_placed_options tiles = { o->options.tile_bytes, o->options.threads,
                                         units != NULL ? &o->g : NULL };

    tutti_shards_of(e)->g = o->g.memory;
    tutti_optim_placed(e->m.optim);
    if (units != NULL)
        TUTTI_TRY(open_by_unit(e, err));
    o->part = tutti_alloc((size_t)e->layout.n_pieces, sizeof *o->part);
    if (o->part == NULL)
        return no_memory(e, err);
    if (o->options.delayed)
        TUTTI_TRY(tutti_lane_open(&o->lane, e->rt, "update", e->options.lane < 0 ? 0 : 1, err));
    return tutti_placed_open(&o->placed, e->m.optim, &o->masters, e->rt, &tiles, e->memory.host,
                             err);
}

/* The tiles that an update streams through, and gradients in transit. */
static size_t list_memory(const void *self, tutti_memory_record *records)
{
    const tutti_offload *o = self;
    const tutti_engine *e = o->e;
    const bool by_unit = tutti_units_of(e) != NULL;
    const tutti_placed_options tiles = { o->options.tile_bytes, o->options.threads,
                                         by_unit ? &o->g : NULL };

    if (strcmp(o->options.tier, "host") == 0)
        return 0;
    records[0] = (tutti_memory_record){ "tiles", TUTTI_MEMORY_BUFFERS,
                                        tutti_placed_bytes(e->m.optim, &tiles) +
                                            (by_unit ? staging_total(e) : 0) };
    return 1;
}

/* Ends the running update, which reads the shards. */
static void stop(void *self)
{
    tutti_offload *o = self;

    tutti_lane_close(o->lane);
    o->lane = NULL;
}

static void close_offload(void *self)
{
    tutti_offload *o = self;

    for (int k = 0; k < o->n_staging; k++) {
        tutti_io *const one = &o->io[k];
        tutti_tier_wait(o->g.tier, &one, 1, NULL);
    }
    tutti_arena_give(o->e->memory.host, o->staging);
    tutti_placed_close(o->placed);
    tutti_free(o->part);
    tutti_free(o);
}

/* In a resumed run the masters may be ahead, and were loaded; else they equal x. */
static tutti_status fill_masters(void *self, tutti_error *err)
{
    tutti_engine *e = ((tutti_offload *)self)->e;
    tutti_offload *offload = tutti_offload_of(e);

    return offload->filled || offload->now.ahead != 0 ? TUTTI_OK : fill_values(e, err);
}

static tutti_status offload_arrive(void *self, tutti_error *err)
{
    tutti_engine *e = ((tutti_offload *)self)->e;

    return tutti_offload_of(e)->options.delayed ? await_update(e, err) : TUTTI_OK;
}

tutti_status tutti_offload_declare(tutti_method *m, tutti_plan *plan,
                                   const tutti_offload_options *options, tutti_error *err)
{
    tutti_engine *e = m->engine;
    tutti_offload *o;

    if (m->held == TUTTI_HELD_BY_UNIT && options->delayed)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method '%s' would delay updates of values that it holds by unit, which "
                          "have no memory of their own next to the masters",
                          m->ops->name);
    if (m->held == TUTTI_HELD_BY_UNIT)
        m->lane_width = 1; /* means go through the buffers one after the other */
    else
        m->held = TUTTI_HELD_BY_PIECE;
    o = tutti_alloc(1, sizeof *o);
    if (o == NULL)
        return no_memory(e, err);
    o->e = e;
    o->options = *options;
    tutti_facility_add(m, &tutti_offload_mode, o); /* before the shards, which ask for it */
    TUTTI_TRY(tutti_shards_declare(m, plan, err));
    if (m->held == TUTTI_HELD_BY_UNIT)
        return TUTTI_OK;
    tutti_declare(plan,
                  &(tutti_state){ .name = "masters",
                                  .keep = options->delayed ? TUTTI_SLICE : TUTTI_SCRATCH,
                                  .dtype = TUTTI_F32,
                                  .count = m->optim->count,
                                  .ranges = m->optim->ranges,
                                  .n_ranges = m->optim->n_ranges,
                                  .placed = true,
                                  .tier = options->tier },
                  &o->masters);
    if (options->delayed)
        tutti_declare_value(plan, "engine.offload", TUTTI_SAME, &o->now, sizeof o->now);
    return TUTTI_OK;
}

/* ---- a step ---- */

static tutti_status update_beside(tutti_job *job, tutti_error *err)
{
    tutti_engine *e = job->owner;
    tutti_offload *offload = tutti_offload_of(e);

    return tutti_placed_update(offload->placed, offload->part, (size_t)e->layout.n_pieces,
                               &offload->rate, NULL, NULL, err);
}

/* Starts the update, which overlaps the next step, whose pieces go to the other half. */
static void start_update(tutti_engine *e, const tutti_rate *rate)
{
    tutti_offload *o = tutti_offload_of(e);

    list_parts(e, false);
    o->rate = *rate;
    o->job = (tutti_job){ .run = update_beside, .owner = e };
    o->now.ahead = 1;
    o->filled = true;
    o->second_half = !o->second_half;
    tutti_shards_of(e)->g = (float *)o->g.memory + (o->second_half ? e->m.optim->count : 0);
    tutti_lane_start(o->lane, &o->job);
}

tutti_status tutti_offload_step(tutti_method *m, tutti_error *err)
{
    tutti_engine *e = m->engine;
    tutti_units *units = tutti_units_of(e);
    tutti_offload *o = tutti_offload_of(e);
    tutti_rate rate;
    bool skip;

    TUTTI_TRY(await_all_staging(e, err));
    TUTTI_TRY(tutti_base_check(m, &rate, &skip, err));
    if (o->options.delayed)
        TUTTI_TRY(await_update(e, err));
    if (o->now.ahead != 0)
        TUTTI_TRY(follow(e, err));
    if (skip)
        return TUTTI_OK;
    if (o->options.delayed && m->step >= o->options.warmup) {
        start_update(e, &rate);
        return TUTTI_OK;
    }
    if (units != NULL)
        TUTTI_TRY(tutti_units_fill(e, err));
    list_parts(e, true);
    return tutti_placed_update(o->placed, o->part, (size_t)e->layout.n_pieces, &rate,
                               units != NULL ? NULL : gather_part, e, err);
}

/* Completes the delayed updates. Once all workers are quiescent, x has every update. */
static tutti_status drain(void *self, bool *due, tutti_error *err)
{
    tutti_engine *e = ((tutti_offload *)self)->e;

    *due = false;
    if (tutti_offload_of(e)->now.ahead == 0)
        return TUTTI_OK;
    TUTTI_TRY(await_update(e, err));
    TUTTI_TRY(tutti_by_piece_rest(e, err));
    return follow(e, err); /* all quiesce after it */
}

const tutti_facility_ops tutti_offload_mode = { .open = open_offload,
                                                .stop = stop,
                                                .close = close_offload,
                                                .begin = fill_masters,
                                                .arrive = offload_arrive,
                                                .exchanges_alone = exchanges_alone,
                                                .drain = drain,
                                                .memory = list_memory };
