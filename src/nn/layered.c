/* layered.c: implements layered.h. */
#include "layered.h"

int tutti_nn_buffer_new(nn_buffer_table *l, size_t bytes, int moment)
{
    if (bytes == 0)
        return NN_NONE;
    l->buffer[l->count] = (nn_buffer){ .bytes = bytes, .first = moment, .last = moment };
    return l->count++;
}

void tutti_nn_buffer_extend(nn_buffer_table *l, int buffer, int moment)
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

static nn_plan *slot_of_plan(nn_layered *l, int64_t samples, bool train)
{
    nn_plan *oldest = &l->others[0];

    if (!train)
        return &l->evaluation;
    if (samples == l->block)
        return &l->full;
    for (int i = 0; i < NN_PLANS; i++) {
        if (l->others[i].last_used != 0 && l->others[i].samples == samples)
            return &l->others[i];
        if (l->others[i].last_used < oldest->last_used)
            oldest = &l->others[i];
    }
    return oldest;
}

static tutti_status make_plan(nn_layered *l, int64_t samples, bool train, tutti_error *err)
{
    nn_plan *p = slot_of_plan(l, samples, train);

    if (p->last_used == 0 || p->samples != samples) {
        tutti_status status;
        close_plan(l, p);
        p->samples = samples;
        status = l->ops->build(l->self, p, train, err);
        if (status != TUTTI_OK) {
            close_plan(l, p);
            return status;
        }
    }
    p->last_used = ++l->clock;
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
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0,
                          "no memory for %zu bytes of activations; use a smaller batch", bytes);
    l->arena_bytes = bytes;
    return TUTTI_OK;
}

/* Takes buffers that live from forward to backward out of the arena. */
static void separate_kept(nn_layered *l, nn_buffer_table *table)
{
    l->kept_count = 0;
    for (int i = 0; i < table->count; i++) {
        nn_buffer *b = &table->buffer[i];
        if (b->first >= table->backward_begin || b->last < table->backward_begin)
            continue;
        l->kept[l->kept_count++] = (nn_kept){ b->bytes, l->ops->unit_of(l->self, b->first),
                                              l->ops->unit_of(l->self, b->last) };
        b->kept = l->kept_count;
        b->bytes = 0;
    }
}

static tutti_status prepare(nn_layered *l, int64_t samples, bool train, tutti_error *err)
{
    nn_buffer_table *table = l->tables[train];

    TUTTI_TRY(make_plan(l, samples, train, err));
    if (!table->made) {
        table->count = 0;
        l->ops->lay_out(l->self, train);
        if (l->stage && train)
            separate_kept(l, table);
        TUTTI_TRY(tutti_nn_arena_plan(table->buffer, table->count, &table->end, err));
        table->made = true;
    }
    if (l->arena_bytes < table->end)
        TUTTI_TRY(resize(l, table->end, err));
    l->table = table;
    return TUTTI_OK;
}

tutti_status tutti_nn_layered_begin(nn_layered *l, int64_t samples, bool train, int64_t *filled,
                                    tutti_error *err)
{
    const int before = tutti_nn_dn_enter(l->core);

    *filled = train ? samples : l->eval_samples;
    return tutti_nn_dn_leave(before, prepare(l, *filled, train, err));
}

/* ---- opening and closing ---- */
tutti_status tutti_nn_layered_open(nn_layered *l, const nn_settings *settings, size_t buffers,
                                   tutti_error *err)
{
    int64_t filled;

    for (int k = 0; k < 2; k++) {
        l->tables[k]->buffer = tutti_alloc(buffers, sizeof *l->tables[k]->buffer);
        if (l->tables[k]->buffer == NULL)
            return tutti_fail(err, TUTTI_ERR_MEMORY, 0,
                              "no memory to plan the places of %zu buffers", buffers);
        l->tables[k]->capacity = (int)buffers;
    }
    if (l->stage) {
        l->kept = tutti_alloc(buffers, sizeof *l->kept);
        if (l->kept == NULL)
            return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory for a list of %zu buffers",
                              buffers);
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
        tutti_free(l->tables[k]->buffer);
    tutti_free(l->kept);
    tutti_free(l->arena);
    tutti_nn_dn_core_close(l->core);
}

void tutti_nn_layered_evaluated(nn_layered *l)
{
    if (l->tables[true]->made && l->arena_bytes > l->tables[true]->end)
        resize(l, l->tables[true]->end, NULL); /* if there is no memory, the next run tries again */
}

size_t tutti_nn_layered_bytes(const nn_layered *l)
{
    return 2 * (size_t)l->tables[true]->capacity * sizeof(nn_buffer) +
           tutti_nn_dn_copies_bytes(l->core) + l->arena_bytes;
}
