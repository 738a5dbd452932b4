/* store.c: see stages.h. A buffer that is given back goes into a list of its size: micro-batches
   are equal, so the next one asks for the same sizes. */
#include "stage.h"

typedef struct chunk {
    struct chunk *next;
} chunk; /* in a line before the memory */
typedef struct shelf {
    size_t bytes;
    chunk *first;
} shelf;

struct tutti_nn_store {
    size_t bound, used, used_most, held, held_most;
    shelf *shelves;
    int count, capacity;
};

tutti_status tutti_nn_store_open(tutti_nn_store **out, size_t bound, tutti_error *err)
{
    *out = tutti_alloc(1, sizeof **out);
    if (*out == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory for a store of activations");
    (*out)->bound = bound;
    return TUTTI_OK;
}

/* Frees unused buffers until at most `most` bytes are held. */
static void clear(tutti_nn_store *s, size_t most)
{
    for (int i = 0; i < s->count && s->held > most; i++)
        while (s->shelves[i].first != NULL && s->held > most) {
            chunk *c = s->shelves[i].first;
            s->shelves[i].first = c->next;
            s->held -= s->shelves[i].bytes;
            tutti_free(c);
        }
}

void tutti_nn_store_close(tutti_nn_store *s)
{
    if (s == NULL)
        return;
    clear(s, 0);
    tutti_free(s->shelves);
    tutti_free(s);
}

void tutti_nn_store_figures_of(const tutti_nn_store *s, tutti_nn_store_figures *figures)
{
    *figures = (tutti_nn_store_figures){ s->bound, s->used, s->used_most, s->held_most };
}

static size_t lines(size_t bytes)
{
    return (bytes + NN_ARENA_LINE - 1) / NN_ARENA_LINE * NN_ARENA_LINE;
}

/* NULL: there is no memory for one more. */
static shelf *shelf_of(tutti_nn_store *s, size_t bytes)
{
    for (int i = 0; i < s->count; i++)
        if (s->shelves[i].bytes == bytes)
            return &s->shelves[i];
    if (s->count == s->capacity) {
        const int capacity = s->capacity > 0 ? 2 * s->capacity : 16;
        shelf *more = tutti_alloc((size_t)capacity, sizeof *more);
        if (more == NULL)
            return NULL;
        for (int i = 0; i < s->count; i++)
            more[i] = s->shelves[i];
        tutti_free(s->shelves);
        s->shelves = more;
        s->capacity = capacity;
    }
    s->shelves[s->count] = (shelf){ .bytes = bytes };
    return &s->shelves[s->count++];
}

static void *fail_full(const tutti_nn_store *s, size_t bytes, tutti_error *err)
{
    tutti_fail(err, TUTTI_ERR_MEMORY, 0,
               "%zu bytes of activations in addition to the %zu of micro-batches under way are more than %s%zu; use "
               "fewer micro-batches at a time, smaller ones, more stages, or recompute=on",
               bytes, s->used, s->bound > 0 ? "the bound of " : "there is memory for, ",
               s->bound > 0 ? s->bound : bytes);
    return NULL;
}

void *tutti_nn_store_alloc(tutti_nn_store *s, size_t wanted, tutti_error *err)
{
    const size_t bytes = lines(wanted);
    shelf *place = shelf_of(s, bytes);
    chunk *c = place != NULL ? place->first : NULL;

    if (place == NULL || (s->bound > 0 && (bytes > s->bound || s->used > s->bound - bytes)))
        return fail_full(s, bytes, err);
    if (c != NULL) {
        place->first = c->next;
    } else {
        if (s->bound > 0)
            clear(s, s->bound - bytes);
        c = tutti_alloc(1, bytes + NN_ARENA_LINE);
        if (c == NULL)
            return fail_full(s, bytes, err);
        s->held += bytes;
        s->held_most = s->held > s->held_most ? s->held : s->held_most;
    }
    s->used += bytes;
    s->used_most = s->used > s->used_most ? s->used : s->used_most;
    return (char *)c + NN_ARENA_LINE;
}

void tutti_nn_store_free(tutti_nn_store *s, void *memory, size_t wanted)
{
    shelf *place = shelf_of(s, lines(wanted)); /* there since it was taken */
    chunk *c = (chunk *)(void *)((char *)memory - NN_ARENA_LINE);

    c->next = place->first;
    place->first = c;
    s->used -= place->bytes;
}
