/* layered.c: see layered.h. */
#include "layered.h"

int tutti_nn_life(nn_lives *l, size_t bytes, int moment)
{
    if (bytes == 0)
        return NN_NONE;
    l->buffer[l->count] = (nn_buffer){ .bytes = bytes, .first = moment, .last = moment };
    return l->count++;
}

void tutti_nn_touch(nn_lives *l, int buffer, int moment)
{
    if (buffer != NN_NONE && l->buffer[buffer].last < moment)
        l->buffer[buffer].last = moment;
}

/* ---- plans ---- */
static void close_plan(nn_layered *l, nn_plan *p)
{
    l->ops->drop(l->self, p);
    *p = (nn_plan){ 0 };
}

static nn_plan *place_of_plan(nn_layered *l, int64_t samples, bool train)
{
    nn_plan *oldest = &l->others[0];

    if (!train)
        return &l->evaluation;
    if (samples == l->block)
        return &l->full;
    for (int i = 0; i < NN_PLANS; i++) {
        if (l->others[i].used != 0 && l->others[i].samples == samples)
            return &l->others[i];
        if (l->others[i].used < oldest->used)
            oldest = &l->others[i];
    }
    return oldest;
}

static tutti_status make_plan(nn_layered *l, int64_t samples, bool train, tutti_error *err)
{
    nn_plan *p = place_of_plan(l, samples, train);

    if (p->used == 0 || p->samples != samples) {
        tutti_status status;
        close_plan(l, p);
        p->samples = samples;
        status = l->ops->build(l->self, p, train, err);
        if (status != TUTTI_OK) {
            close_plan(l, p);
            return status;
        }
    }
    p->used = ++l->clock;
    l->plan = p;
    return TUTTI_OK;
}

/* ---- memory ---- */
static tutti_status resize(nn_layered *l, size_t bytes, tutti_error *err)
{
    tutti_free(l->arena);
    l->arena_bytes = 0;
    l->arena = tutti_alloc(1, bytes);
    if (l->arena == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory for %zu bytes of activations; use a smaller batch",
                          bytes);
    l->arena_bytes = bytes;
    return TUTTI_OK;
}

/* Buffers that live from forward to backward get memory of their own. */
static void take_out(nn_layered *l, nn_lives *lives)
{
    l->kept_count = 0;
    for (int i = 0; i < lives->count; i++) {
        nn_buffer *b = &lives->buffer[i];
        if (b->first >= lives->turn || b->last < lives->turn)
            continue;
        l->kept[l->kept_count++] =
            (nn_kept){ b->bytes, l->ops->unit_of(l->self, b->first), l->ops->unit_of(l->self, b->last) };
        b->kept = l->kept_count;
        b->bytes = 0;
    }
}

static tutti_status prepare(nn_layered *l, int64_t samples, bool train, tutti_error *err)
{
    nn_lives *lives = l->lives[train];

    TUTTI_TRY(make_plan(l, samples, train, err));
    if (!lives->made) {
        lives->count = 0;
        l->ops->lay_out(l->self, train);
        if (l->stage && train)
            take_out(l, lives);
        TUTTI_TRY(tutti_nn_arena_plan(lives->buffer, lives->count, &lives->end, err));
        lives->made = true;
    }
    if (l->arena_bytes < lives->end)
        TUTTI_TRY(resize(l, lives->end, err));
    l->now = lives;
    return TUTTI_OK;
}

tutti_status tutti_nn_layered_begin(nn_layered *l, int64_t samples, bool train, int64_t *filled, tutti_error *err)
{
    const int before = tutti_nn_dn_enter(l->core);

    *filled = train ? samples : l->piece;
    return tutti_nn_dn_leave(before, prepare(l, *filled, train, err));
}

/* ---- life ---- */
tutti_status tutti_nn_layered_open(nn_layered *l, const nn_settings *settings, size_t buffers, tutti_error *err)
{
    int64_t filled;

    for (int k = 0; k < 2; k++) {
        l->lives[k]->buffer = tutti_alloc(buffers, sizeof *l->lives[k]->buffer);
        if (l->lives[k]->buffer == NULL)
            return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory to plan the places of %zu buffers", buffers);
        l->lives[k]->room = (int)buffers;
    }
    if (l->stage) {
        l->kept = tutti_alloc(buffers, sizeof *l->kept);
        if (l->kept == NULL)
            return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory for a list of %zu buffers", buffers);
    }
    TUTTI_TRY(tutti_nn_dn_core_open(l->core, settings, err));
    return tutti_nn_layered_begin(l, l->block, true, &filled, err);
}

void tutti_nn_layered_close(nn_layered *l)
{
    close_plan(l, &l->full);
    close_plan(l, &l->evaluation);
    for (int i = 0; i < NN_PLANS; i++)
        close_plan(l, &l->others[i]);
    for (int k = 0; k < 2; k++)
        tutti_free(l->lives[k]->buffer);
    tutti_free(l->kept);
    tutti_free(l->arena);
    tutti_nn_dn_core_close(l->core);
}

void tutti_nn_layered_evaluated(nn_layered *l)
{
    if (l->lives[true]->made && l->arena_bytes > l->lives[true]->end)
        resize(l, l->lives[true]->end, NULL); /* without memory now the next run asks for it */
}

size_t tutti_nn_layered_bytes(const nn_layered *l)
{
    return 2 * (size_t)l->lives[true]->room * sizeof(nn_buffer) + tutti_nn_dn_copies_bytes(l->core) + l->arena_bytes;
}
