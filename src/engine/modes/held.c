/* held.c: gradients that are held by piece (m->held): there is no g of the whole model. A piece
   has memory for its gradient from when it gets the first tensor's until its exchange is over,
   which stores what this worker keeps elsewhere (shards.c). This is "Pos+g" of Rajbhandari et al.
   2020 (section 5.2), whose buckets of constant size are these buffers.

   Two buffers are enough if gradients arrive in the order of the parameters: one fills while the
   other is exchanged. The client waits for the older one when both are taken. If no exchange is
   in flight no buffer would be returned: gradients have arrived in another order, and incomplete
   pieces have all buffers. Then one more is allocated, and kept.

   With logical shares the second half of a buffer receives this worker's part of all gradients of a
   pass, which logical.c adds.

   Passes of a step are exchanged one by one, each to its end, and added up where this worker
   keeps its part. So each pass sends as much as a step, and the sum has other bits than one over
   passes first. All workers make equally many passes, if need be without samples. */
#include <errno.h>

#include "sharded.h"
#include "engine/refuse.h"
#include "tier/tier.h"

enum { BUFFERS = 2 };

tutti_held_pieces *tutti_held_of(const tutti_engine *e)
{
    return tutti_facility_self(&e->m, &tutti_held_mode);
}

tutti_status tutti_held_declare(tutti_method *m, tutti_error *err)
{
    tutti_engine *e = m->engine;
    tutti_held_pieces *h;

    TUTTI_TRY(tutti_refuse_method(m, "hold gradients by piece",
                                  TUTTI_WHOLE_GRADIENT | TUTTI_SAMPLES_AGAIN | TUTTI_ENCODED |
                                      TUTTI_SIZES_STEPS,
                                  err));
    h = tutti_alloc(1, sizeof *h);
    if (h == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for the gradients of %d pieces",
                          e->layout.n_pieces);
    h->e = e;
    tutti_facility_add(m, &tutti_held_mode, h);
    for (int k = 0; k < e->layout.n_pieces; k++)
        if (e->pieces[k].count > h->room)
            h->room = e->pieces[k].count;
    h->room = h->stride = (h->room + 15) / 16 * 16;
    if (e->division.share.logical != 0)
        h->stride += (h->room / (size_t)m->workers + TUTTI_ENGINE_PART_OVER) * (size_t)m->workers /
                     16 * 16;
    h->buffers = e->layout.n_pieces < BUFFERS ? e->layout.n_pieces : BUFFERS;
    h->free = tutti_alloc((size_t)e->layout.n_pieces, sizeof *h->free);
    h->more = tutti_alloc((size_t)e->layout.n_pieces, sizeof *h->more);
    if (h->free == NULL || h->more == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for the gradients of %d pieces",
                          e->layout.n_pieces);
    tutti_declare(e->plan,
                  &(tutti_state){ .name = "g.buffers",
                                  .keep = TUTTI_SCRATCH,
                                  .dtype = TUTTI_F32,
                                  .count = (size_t)h->buffers * h->stride,
                                  .shared = true },
                  &h->memory);
    return tutti_monitor_open(&h->lock, e->rt, err);
}

static tutti_status cut(void *self, tutti_error *err)
{
    tutti_held_pieces *h = self;

    (void)err;
    for (int i = 0; i < h->buffers; i++)
        h->free[h->n_free++] = h->memory + (size_t)i * h->stride;
    return TUTTI_OK;
}

static void close_held(void *self)
{
    tutti_held_pieces *h = self;

    tutti_monitor_close(h->lock);
    for (int i = 0; i < h->n_more; i++)
        tutti_arena_give(h->e->memory.device, h->more[i]);
    tutti_free(h->more);
    tutti_free(h->free);
    tutti_free(h);
}

/* Allocates one more buffer. */
static tutti_status another(tutti_held_pieces *h, tutti_piece *p, tutti_error *err)
{
    void *one;

    TUTTI_TRY(
        tutti_fail_within(err,
                          tutti_arena_take(h->e->memory.device, "g.buffers",
                                           h->stride * sizeof(float), TUTTI_ARENA_ALIGN, &one, err),
                          "gradients of another piece (%zu values), which come in another order "
                          "than parameters stand",
                          h->room));
    h->more[h->n_more++] = p->g = one;
    h->buffers++;
    return TUTTI_OK;
}

/* Gives a piece memory before a gradient is written to it. */
static tutti_status fill_piece(void *self, tutti_piece *p, tutti_error *err)
{
    tutti_held_pieces *h = self;
    tutti_status status = TUTTI_OK;

    if (p->g != NULL)
        return TUTTI_OK;
    tutti_lock(h->lock);
    if (h->n_free == 0 && h->under_way > 0) {
        const tutti_doing was = tutti_engine_doing(h->e, TUTTI_DOING_EXPOSED);
        while (h->n_free == 0 && h->under_way > 0 && status == TUTTI_OK)
            status = tutti_wait(h->lock, TUTTI_FOREVER, err);
        tutti_engine_doing(h->e, was);
    }
    if (status == TUTTI_OK && h->n_free > 0)
        p->g = h->free[--h->n_free];
    tutti_unlock(h->lock);
    if (status == TUTTI_OK && p->g == NULL)
        status = another(h, p, err);
    if (status == TUTTI_OK && h->stride > h->room)
        h->e->piece_state[p->index].received = p->g + h->room;
    return status;
}

static void start_piece(void *self, tutti_piece *p)
{
    tutti_held_pieces *h = self;

    (void)p;
    tutti_lock(h->lock);
    h->under_way++;
    tutti_unlock(h->lock);
}

static void end_piece(void *self, tutti_piece *p, tutti_status status)
{
    tutti_held_pieces *h = self;

    (void)status;
    tutti_lock(h->lock);
    h->under_way--;
    h->free[h->n_free++] = p->g;
    p->g = NULL;
    tutti_wake(h->lock);
    tutti_unlock(h->lock);
}

static size_t list_memory(const void *self, tutti_memory_record *records)
{
    const tutti_held_pieces *h = self;

    records[0] = (tutti_memory_record){ "g.more", TUTTI_MEMORY_GRADIENTS,
                                        (uint64_t)h->n_more * h->stride * sizeof(float) };
    return 1;
}

const tutti_facility_ops tutti_held_mode = { .close = close_held,
                                             .cut = cut,
                                             .fill_piece = fill_piece,
                                             .start_piece = start_piece,
                                             .end_piece = end_piece,
                                             .memory = list_memory };

size_t tutti_held_bytes(const tutti_method *m)
{
    const tutti_held_pieces *h = tutti_held_of(m->engine);

    return h == NULL ? m->n * sizeof(float) : (size_t)h->buffers * h->stride * sizeof(float);
}
