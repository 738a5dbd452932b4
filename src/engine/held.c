/* held.c: gradients that are held by piece (m->held): there is no g of the whole model. A piece
   has memory for its gradient from when it gets the first tensor's until its exchange is over,
   which stores what this worker keeps elsewhere (shards.c). This is "Pos+g" of Rajbhandari et al.
   2020 (section 5.2), whose buckets of constant size are these buffers.

   Two buffers are enough if gradients arrive in the order of the parameters: one fills while the
   other is exchanged. The client waits for the older one when both are taken. If no exchange is
   in flight no buffer would be returned: gradients have arrived in another order, and incomplete
   pieces have all buffers. Then one more is allocated, and kept.

   Passes of a step are exchanged one by one, each to its end, and added up where this worker
   keeps its part. So each pass sends as much as a step, and the sum has other bits than one over
   passes first. All workers make equally many passes, if need be without samples. */
#include <errno.h>

#include "engine_internal.h"
#include "tier/tier.h"

enum { BUFFERS = 2 };

static tutti_status refuse_held(const tutti_engine *e, tutti_error *err)
{
    const tutti_method *m = &e->m;
    const char *why = !e->shards.on                     ? "has no place for what its exchange leaves"
                      : m->whole                        ? "looks at the whole gradient before it is exchanged"
                      : (m->traits & TUTTI_RECOMPUTES) != 0  ? "may look at a step's samples again"
                      : tutti_exchange_codec(m) != NULL ? "sends gradients through a codec"
                                                        : tutti_facility_does(m, TUTTI_SIZES_STEPS);

    return why == NULL ? TUTTI_OK
                       : tutti_fail(err, TUTTI_ERR_USAGE, 0, "method '%s' would hold gradients by piece, but it %s",
                                    m->ops->name, why);
}

tutti_status tutti_engine_held_check(tutti_engine *e, tutti_error *err)
{
    tutti_method *m = &e->m;

    if (m->held == TUTTI_HELD_WHOLE)
        return TUTTI_OK;
    TUTTI_TRY(refuse_held(e, err));
    for (int k = 0; k < e->layout.n_pieces; k++)
        if (e->pieces[k].count > e->held.room)
            e->held.room = e->pieces[k].count;
    e->held.room = (e->held.room + 15) / 16 * 16;
    e->held.buffers = e->layout.n_pieces < BUFFERS ? e->layout.n_pieces : BUFFERS;
    e->held.free = tutti_alloc((size_t)e->layout.n_pieces, sizeof *e->held.free);
    e->held.more = tutti_alloc((size_t)e->layout.n_pieces, sizeof *e->held.more);
    if (e->held.free == NULL || e->held.more == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for the gradients of %d pieces", e->layout.n_pieces);
    tutti_declare(e->plan,
                  &(tutti_state){ .name = "g.buffers",
                                  .keep = TUTTI_SCRATCH,
                                  .dtype = TUTTI_F32,
                                  .count = (size_t)e->held.buffers * e->held.room,
                                  .shared = true },
                  &e->held.memory);
    return tutti_monitor_open(&e->held.lock, e->rt, err);
}

void tutti_engine_held_open(tutti_engine *e)
{
    for (int i = 0; i < e->held.buffers && e->m.held != TUTTI_HELD_WHOLE; i++)
        e->held.free[e->held.n_free++] = e->held.memory + (size_t)i * e->held.room;
}

void tutti_engine_held_close(tutti_engine *e)
{
    tutti_monitor_close(e->held.lock);
    for (int i = 0; i < e->held.n_more; i++)
        tutti_arena_give(e->device, e->held.more[i]);
    tutti_free(e->held.more);
    tutti_free(e->held.free);
}

/* Allocates one more buffer. */
static tutti_status another(tutti_engine *e, tutti_piece *p, tutti_error *err)
{
    void *one;

    TUTTI_TRY(tutti_fail_within(
        err, tutti_arena_take(e->device, "g.buffers", e->held.room * sizeof(float), TUTTI_ARENA_ALIGN, &one, err),
        "gradients of another piece (%zu values), which come in another order than parameters stand", e->held.room));
    e->held.more[e->held.n_more++] = p->g = one;
    e->held.buffers++;
    return TUTTI_OK;
}

tutti_status tutti_engine_hold(tutti_engine *e, int k, tutti_error *err)
{
    tutti_piece *p = &e->pieces[k];
    tutti_status status = TUTTI_OK;

    if (e->m.held == TUTTI_HELD_WHOLE || p->g != NULL)
        return TUTTI_OK;
    tutti_lock(e->held.lock);
    if (e->held.n_free == 0 && e->held.under_way > 0) {
        const tutti_doing was = tutti_engine_doing(e, TUTTI_DOING_EXPOSED);
        while (e->held.n_free == 0 && e->held.under_way > 0 && status == TUTTI_OK)
            status = tutti_wait(e->held.lock, TUTTI_FOREVER, err);
        tutti_engine_doing(e, was);
    }
    if (status == TUTTI_OK && e->held.n_free > 0)
        p->g = e->held.free[--e->held.n_free];
    tutti_unlock(e->held.lock);
    return status != TUTTI_OK || p->g != NULL ? status : another(e, p, err);
}

void tutti_engine_held_starts(tutti_engine *e)
{
    if (e->m.held == TUTTI_HELD_WHOLE)
        return;
    tutti_lock(e->held.lock);
    e->held.under_way++;
    tutti_unlock(e->held.lock);
}

void tutti_engine_let_go(tutti_engine *e, int k)
{
    tutti_piece *p = &e->pieces[k];

    if (e->m.held == TUTTI_HELD_WHOLE)
        return;
    tutti_lock(e->held.lock);
    e->held.under_way--;
    e->held.free[e->held.n_free++] = p->g;
    p->g = NULL;
    tutti_wake(e->held.lock);
    tutti_unlock(e->held.lock);
}

bool tutti_engine_adds_up(const tutti_engine *e)
{
    return e->m.held != TUTTI_HELD_WHOLE && e->pass.index > 0;
}

size_t tutti_held_bytes(const tutti_method *m)
{
    const tutti_engine *e = m->engine;

    return m->held == TUTTI_HELD_WHOLE ? m->n * sizeof(float) : (size_t)e->held.buffers * e->held.room * sizeof(float);
}
