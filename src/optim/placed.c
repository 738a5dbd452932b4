/* placed.c: an update of what is in a tier: masters (the weights that the rule updates) and the
   slots stream through tiles, so that the device holds none of them (ZeRO-Offload, Ren et al.,
   USENIX ATC 2021, section 5). A tile of masters and slots is read, updated by
   tutti_update_tiled, which writes the new weights to where they are used in the same pass, and
   written back.

   The gradient may be in the tier, too. It is one more stream, which is read only.

   There are three sets of tiles, used in rotation: while one is updated, the next is read and the
   one before is written. A tier that has addresses is updated where it is.

   Tiles are split at multiples of `tile` of what the slots cover, so that those inside a range
   go straight between disk and memory. In memory a tile begins as far from a block as in the
   tier. */
#include <assert.h>
#include <errno.h>
#include "optim_internal.h"
#include "optim/placed.h"
#include "runtime/files.h"
#include "runtime/team.h"
#include "tier/tier.h"

enum { SETS = 3, STREAMS = 2 + TUTTI_SLOTS_MAX, LEAST = 16384 /* bytes of a tile */ };

/* A tile that is read, updated or written. */
typedef struct tile {
    size_t part;                   /* the part that it belongs to */
    size_t first, count;           /* its elements; count 0: there is no tile */
    size_t at;                     /* its first element in what the slots cover */
    bool last;                     /* it is the last of its part */
    tutti_io io[STREAMS], *list[STREAMS];
    char *room[STREAMS];           /* memory of each stream */
} tile;

struct tutti_placed {
    tutti_optim *o;
    tutti_place stream[STREAMS];   /* [reads]: masters, slots, and the gradient if it is read */
    int streams;                   /* the first of them, which are also written: all but the
                                      gradient */
    int reads;
    size_t elements;               /* elements of a tile */
    tutti_arena *host;
    void *memory;                  /* NULL: the tier has addresses */
    tile tile[SETS];
    tutti_team *team;
    uint64_t updated;
};

/* No more than there are. */
static size_t elements_of(const tutti_optim *o, const tutti_placed_options *options)
{
    const size_t all = o->count * sizeof(float),
                 bytes = options->tile_bytes < all ? options->tile_bytes : all;

    return (bytes / LEAST + (bytes % LEAST != 0 || bytes == 0)) * LEAST / sizeof(float);
}

static size_t room_of(size_t elements)
{
    return elements * sizeof(float) + TUTTI_FILE_BLOCK;
}

size_t tutti_placed_bytes(const tutti_optim *o, const tutti_placed_options *options)
{
    const int reads = 1 + o->ops->slots(o->self) + (options->gradients != NULL);

    return SETS * (size_t)reads * room_of(elements_of(o, options));
}

static tutti_status take_tiles(tutti_placed *p, tutti_error *err)
{
    const size_t room = room_of(p->elements);
    char *at;

    TUTTI_TRY(tutti_arena_take(p->host, "tiles", SETS * (size_t)p->reads * room, TUTTI_FILE_BLOCK,
                               &p->memory, err));
    at = p->memory;
    for (int k = 0; k < SETS; k++)
        for (int s = 0; s < p->reads; s++, at += room)
            p->tile[k].room[s] = at;
    tutti_tier_pin(p->stream[0].tier, p->memory, SETS * (size_t)p->reads * room);
    return TUTTI_OK;
}

tutti_status tutti_placed_open(tutti_placed **out, tutti_optim *o, const tutti_place *masters,
                               tutti_runtime *rt, const tutti_placed_options *options,
                               tutti_arena *host, tutti_error *err)
{
    tutti_placed *p = tutti_alloc(1, sizeof *p);
    tutti_status status = TUTTI_OK;

    *out = NULL;
    if (p == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening the update of what is in a tier");
    p->o = o;
    p->host = host;
    p->elements = elements_of(o, options);
    p->stream[p->streams++] = *masters;
    for (int k = 0; k < o->ops->slots(o->self); k++)
        p->stream[p->streams++] = o->place[k];
    p->reads = p->streams;
    if (options->gradients != NULL && options->gradients->memory == NULL)
        p->stream[p->reads++] = *options->gradients;
    for (int k = 0; k < SETS; k++)
        for (int s = 0; s < STREAMS; s++)
            p->tile[k].list[s] = &p->tile[k].io[s];
    if (masters->memory == NULL)
        status = take_tiles(p, err);
    if (status == TUTTI_OK && options->threads > 1)
        status = tutti_team_open(&p->team, rt, "update", options->threads, err);
    if (status == TUTTI_OK)
        *out = p;
    else
        tutti_placed_close(p);
    return status;
}

void tutti_placed_close(tutti_placed *p)
{
    if (p == NULL)
        return;
    tutti_team_close(p->team);
    tutti_arena_give(p->host, p->memory);
    tutti_free(p);
}

uint64_t tutti_placed_updated(const tutti_placed *p)
{
    return p->updated;
}

/* The index, in what the slots cover, of element `first` of the model. */
static size_t place_of(const tutti_optim *o, size_t first)
{
    const size_t k = tutti_optim_range_at(o, first);

    return o->at[k] + (first - o->ranges[k].first);
}

/* The tile after t; false: there is none. */
static bool next_tile(const tutti_placed *p, const tutti_update_part *parts, size_t n, tile *t,
                      const tile *before)
{
    size_t part = before != NULL ? before->part + before->last : 0, left, border;
    const bool within = before != NULL && !before->last;

    while (part < n && parts[part].count == 0)
        part++;
    if (part == n)
        return false;
    t->part = part;
    t->first = within ? before->first + before->count : parts[part].first;
    t->at = place_of(p->o, t->first);
    left = parts[part].first + parts[part].count - t->first;
    border = p->elements - t->at % p->elements;
    t->count = left < border ? left : border;
    t->last = t->count == left;
    return true;
}

static float *tile_memory(const tutti_placed *p, const tile *t, int s)
{
    const uint64_t at = p->stream[s].at + t->at * sizeof(float);

    return p->stream[s].memory != NULL ? (float *)p->stream[s].memory + t->at
                                       : (float *)(void *)(t->room[s] + at % TUTTI_FILE_BLOCK);
}

/* Posts all streams of a tile; nothing where the tier has addresses. */
static tutti_status post_tile(tutti_placed *p, tile *t, bool write, tutti_error *err)
{
    for (int s = 0; s < (write ? p->streams : p->reads) && p->memory != NULL; s++) {
        const uint64_t at = p->stream[s].at + t->at * sizeof(float);
        TUTTI_TRY((write ? tutti_tier_write(p->stream[s].tier, &t->io[s], at, tile_memory(p, t, s),
                                            t->count * sizeof(float), err)
                         : tutti_tier_read(p->stream[s].tier, &t->io[s], at, tile_memory(p, t, s),
                                           t->count * sizeof(float), err)));
    }
    return TUTTI_OK;
}

static tutti_status await_tile(tutti_placed *p, tile *t, tutti_error *err)
{
    return p->memory != NULL ? tutti_tier_wait(p->stream[0].tier, t->list, (size_t)p->reads, err)
                             : TUTTI_OK;
}

static void update_tile(tutti_placed *p, const tile *t, const tutti_update_part *part,
                        const tutti_rate *rate)
{
    const size_t offset = t->first - part->first;
    const float *const g = p->reads > p->streams ? tile_memory(p, t, p->streams) : part->g + offset;
    const tutti_buffer to =
        part->x == NULL ? (tutti_buffer){ 0 } : tutti_f32(p->o->device, part->x + offset, t->count);
    tutti_range range = { t->first, t->count };
    size_t zero = 0;
    tutti_optim here = *p->o; /* as if the tile were all that there is */

    here.ranges = &range;
    here.n_ranges = 1;
    here.at = &zero;
    here.count = t->count;
    for (int s = 1; s < p->streams; s++)
        here.slot[s - 1] = tile_memory(p, t, s);
    tutti_update_tiled(&here, t->first, t->count, tile_memory(p, t, 0), g, rate, to, p->team);
    p->updated += t->count;
}

tutti_status tutti_placed_update(tutti_placed *p, const tutti_update_part *parts, size_t n,
                                 const tutti_rate *rate, void (*over)(void *arg, size_t part),
                                 void *arg, tutti_error *err)
{
    tutti_status status = TUTTI_OK;
    size_t k = 0, finished = 0; /* finished: parts that are over and reported, empty ones too */
    bool more = next_tile(p, parts, n, &p->tile[0], NULL);

    if (more)
        status = post_tile(p, &p->tile[0], false, err);
    while (more && status == TUTTI_OK) {
        tile *now = &p->tile[k % SETS], *next = &p->tile[(k + 1) % SETS];
        status = await_tile(p, next, err); /* it is being written, as the tile of two before */
        more = status == TUTTI_OK && next_tile(p, parts, n, next, now);
        if (more)
            status = post_tile(p, next, false, err);
        if (status == TUTTI_OK)
            status = await_tile(p, now, err);
        if (status != TUTTI_OK)
            break;
        update_tile(p, now, &parts[now->part], rate);
        for (; over != NULL && finished < now->part + now->last; finished++)
            over(arg, finished);
        status = post_tile(p, now, true, err);
        k++;
    }
    for (; over != NULL && status == TUTTI_OK && finished < n; finished++)
        over(arg, finished);
    for (int s = 0; s < SETS; s++) { /* nothing of ours is under way on return */
        tutti_error why = { .rank = -1 };
        const tutti_status ended = await_tile(p, &p->tile[s], &why);
        if (ended != TUTTI_OK && status == TUTTI_OK) {
            status = ended;
            if (err != NULL)
                *err = why;
        }
    }
    return status;
}

/* Copies the masters of a part to or from x, which does not change in that time. */
static tutti_status move(tutti_placed *p, const tutti_update_part *part, bool write,
                         tutti_error *err)
{
    tutti_place *const m = &p->stream[0];
    const size_t at = part->count > 0 ? place_of(p->o, part->first) : 0,
                 bytes = part->count * sizeof(float);
    tutti_io io = { 0 }, *const one = &io;

    TUTTI_TRY(write
                  ? tutti_tier_write(m->tier, &io, m->at + at * sizeof(float), part->x, bytes, err)
                  : tutti_tier_read(m->tier, &io, m->at + at * sizeof(float), part->x, bytes, err));
    return tutti_tier_wait(m->tier, &one, 1, err);
}

tutti_status tutti_placed_take(tutti_placed *p, const tutti_update_part *part, tutti_error *err)
{
    return move(p, part, true, err);
}

tutti_status tutti_placed_give(tutti_placed *p, const tutti_update_part *part, tutti_error *err)
{
    return move(p, part, false, err);
}
