/* store.c: the memory of activations of stages (stages.h). A freed buffer is kept in a list of its
   size: micro-batches are equal, so the next one allocates buffers of the same sizes. */
#include "stage.h"

/* The header of a buffer, in the cache line before its memory; next: used while the buffer is
   free. */
typedef struct chunk {
    struct chunk *next;
} chunk;
/* Free buffers of one size. */
typedef struct free_list {
    size_t bytes;
    chunk *first;
} free_list;

struct tutti_nn_store {
    size_t bound, used, used_most, held, held_most;
    free_list *lists;
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
        while (s->lists[i].first != NULL && s->held > most) {
            chunk *c = s->lists[i].first;
            s->lists[i].first = c->next;
            s->held -= s->lists[i].bytes;
            tutti_free(c);
        }
}

void tutti_nn_store_close(tutti_nn_store *s)
{
    if (s == NULL)
        return;
    clear(s, 0);
    tutti_free(s->lists);
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
static free_list *list_of(tutti_nn_store *s, size_t bytes)
{
    for (int i = 0; i < s->count; i++)
        if (s->lists[i].bytes == bytes)
            return &s->lists[i];
    if (s->count == s->capacity) {
        const int capacity = s->capacity > 0 ? 2 * s->capacity : 16;
        free_list *more = tutti_alloc((size_t)capacity, sizeof *more);
        if (more == NULL)
            return NULL;
        for (int i = 0; i < s->count; i++)
            more[i] = s->lists[i];
        tutti_free(s->lists);
        s->lists = more;
        s->capacity = capacity;
    }
    s->lists[s->count] = (free_list){ .bytes = bytes };
    return &s->lists[s->count++];
}

static void *fail_full(const tutti_nn_store *s, size_t bytes, tutti_error *err)
{
    tutti_fail(err, TUTTI_ERR_MEMORY, 0,
               "%zu bytes of activations in addition to the %zu of micro-batches under way are "
               "more than %s%zu; use fewer micro-batches at a time, smaller ones, more stages, or "
               "recompute=on",
               bytes, s->used, s->bound > 0 ? "the bound of " : "there is memory for, ",
               s->bound > 0 ? s->bound : bytes);
    return NULL;
}

void *tutti_nn_store_alloc(tutti_nn_store *s, size_t wanted, tutti_error *err)
{
    const size_t bytes = lines(wanted);
    free_list *list = list_of(s, bytes);
    chunk *c = list != NULL ? list->first : NULL;

    if (list == NULL || (s->bound > 0 && (bytes > s->bound || s->used > s->bound - bytes)))
        return fail_full(s, bytes, err);
    if (c != NULL) {
        list->first = c->next;
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
    free_list *list = list_of(s, lines(wanted)); /* made by the allocation */
    chunk *c = (chunk *)(void *)((char *)memory - NN_ARENA_LINE);

    c->next = list->first;
    list->first = c;
    s->used -= list->bytes;
}
