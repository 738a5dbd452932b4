/* saved.c: servers and checkpoints. Values, slots and versions are ranges of x, or one per shard,
   and can be loaded by any number of servers. State that depends on the workers, and x itself,
   cannot: with other shards or other workers all begin at the servers' model, each shard at the
   highest version of those that it overlaps. */
#include <errno.h>

#include "server_internal.h"
#include "engine/facility.h"

void tutti_server_read_first(tutti_server *s)
{
    for (int w = 0; s->read != NULL && w < s->m->workers; w++)
        tutti_copy(s->m->device, s->count, s->values, s->read + (size_t)w * s->count);
}

int64_t tutti_server_slices(const void *self)
{
    const tutti_server *s = self;
    return s->setup.pieces ? 0 : s->servers;
}

/* True if the run is resumed with other shards or other workers: then all begin at the servers'
   model. */
static bool begins_anew(const tutti_server *s, const tutti_saved_run *run)
{
    return run->slices != tutti_server_slices(s) || run->resized || (run->changed && s->setup.anew);
}

/* True if `memory` is not loaded when the run begins at the servers' model: state of servers, or of
   what workers have received from them, that is no range of x, and the workers' own x. */
bool tutti_server_recuts(const void *self, const tutti_saved_run *run, const void *memory)
{
    const tutti_server *s = self;
    bool one_of_them =
        memory == (const void *)s->got || memory == (const void *)s->read ||
        memory == (const void *)s->seconds ||
        (memory == (const void *)s->m->x && (s->m->traits & TUTTI_REPLICAS_EQUAL) == 0);

    for (int i = 0; i < s->n_counts; i++)
        one_of_them = one_of_them || memory == (const void *)*s->counts[i].slot;
    return memory != NULL && one_of_them && begins_anew(s, run);
}

/* The greatest value of the old shards that this shard overlaps; of all, where parts are not
   equal, since they are not saved. old: n. */
static int64_t of_slice(const tutti_server *s, const int64_t *old, int64_t n, int64_t k)
{
    const bool equal = s->before == NULL;
    const int64_t first = equal ? k * n / s->servers : 0,
                  last = equal ? ((k + 1) * n - 1) / s->servers : n - 1;
    int64_t most = 0;

    for (int64_t j = first; j <= last; j++)
        most = old[j] > most ? old[j] : most;
    return most;
}

static tutti_status read_counts(const tutti_server *s, tutti_checkpoint *checkpoint, int64_t *old,
                                int64_t n, tutti_error *err)
{
    for (int i = 0; i < s->n_counts; i++) {
        const tutti_saved item = { .state = s->counts[i].name,
                                   .tensor = "",
                                   .keep = TUTTI_SLICE,
                                   .dtype = TUTTI_I64,
                                   .owner = -1,
                                   .count = (uint64_t)n,
                                   .begin = 0,
                                   .end = (uint64_t)n,
                                   .data = old };
        TUTTI_TRY(tutti_checkpoint_read(checkpoint, &item, 1, err));
        if (s->index >= 0)
            **s->counts[i].slot = of_slice(s, old, n, s->index);
        for (int64_t k = 0; k < s->servers && s->counts[i].slot == &s->version; k++)
            s->got[k] = of_slice(s, old, n, k);
    }
    return TUTTI_OK;
}

/* The values that a worker had been sent before cannot be restored from shards that no longer
   exist. */
static tutti_status read_model(const tutti_server *s, tutti_checkpoint *checkpoint,
                               tutti_error *err)
{
    const tutti_layout *l = s->m->layout;

    for (int i = 0; i < l->n_tensors && s->m->x != NULL; i++) {
        const tutti_tensor *t = &l->tensor[i];
        const tutti_saved item = { .state = "server.values",
                                   .tensor = t->name,
                                   .keep = TUTTI_SLICE,
                                   .dtype = TUTTI_F32,
                                   .owner = -1,
                                   .count = t->count,
                                   .begin = 0,
                                   .end = t->count,
                                   .data = s->m->x + t->first };
        TUTTI_TRY(tutti_checkpoint_read(checkpoint, &item, 1, err));
    }
    return TUTTI_OK;
}

tutti_status tutti_server_load(void *self, tutti_checkpoint *checkpoint, const tutti_saved_run *run,
                               tutti_error *err)
{
    tutti_server *s = self;
    int64_t *old;
    tutti_status status;

    if (!begins_anew(s, run) || s->setup.pieces || (s->m->traits & TUTTI_REPLICAS_EQUAL) != 0)
        return TUTTI_OK;
    if (run->slices < 1 || run->slices > 1 << 20)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "the checkpoint has no slices of servers, as method '%s' needs them; it "
                          "was saved by another method",
                          s->m->ops->name);
    old = tutti_alloc((size_t)run->slices, sizeof *old);
    if (old == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "reading the counts of %lld slices",
                          (long long)run->slices);
    status = read_counts(s, checkpoint, old, run->slices, err);
    tutti_free(old);
    if (status == TUTTI_OK)
        status = read_model(s, checkpoint, err);
    if (status == TUTTI_OK)
        tutti_server_read_first(s);
    return status;
}
