/* loader.c: gathers batches in the order of (step, pass) by one thread, ahead of the trainer, into
   a ring of slots.

     slots   depth + 1, as the trainer uses one while `depth` wait. Batch k is in slot k mod slots
     taken   number of batches that the trainer has taken
     made    number of batches that are gathered; taken - 1 <= made <= taken + depth

   The thread gathers without the lock, since the slot that it writes neither waits nor is in use.
   Every pass of every step has a batch, also those of a tail step that have no sample for this
   worker, so that the trainer's loop needs no special case. */
#include "data_internal.h"
#include "base/share.h"
#include <assert.h>
#include <stdio.h>
#include <string.h>

#define DEPTH_MOST 16

struct tutti_loader {
    tutti_runtime *rt;
    const tutti_data *data;
    tutti_share share;
    int worker;
    uint64_t first_step;
    size_t pixels;                  /* values of a sample */
    size_t slots;
    size_t stride;                  /* floats, or tokens, from slot to slot */
    int64_t batch;                  /* most samples of a batch */

    int context;                    /* of a text; else 0 */
    float *x;                       /* [slots x stride]; NULL: a text */
    uint32_t *tokens, *next;        /* [slots x stride], of a text; else NULL */
    size_t tables;                  /* of a click log; else 0 */
    uint32_t *rows;                 /* [slots x batch x tables], of a click log; else NULL */
    uint8_t *labels;                /* [slots x batch]; NULL: a text */
    /* [batch]: scratch of the thread, or of take if there is none */
    uint64_t *ids;
    tutti_batch ready[DEPTH_MOST + 1]; /* [slots] */

    tutti_monitor *monitor;
    tutti_thread *thread;
    /* Without a thread: the next batch, as tutti_loader_seek and _seek_ids have set it. */
    struct { bool set, named; uint64_t step, epoch, position; int64_t pass, samples; } sought;
    uint64_t made, taken;           /* with a thread guarded by monitor */
    bool closing;                   /* guarded by monitor */
};

/* Gathers batch k, counted from first_step, into its slot. */
static void gather_batch(tutti_loader *l, uint64_t k)
{
    const uint64_t passes = tutti_share_passes(&l->share, l->worker) > 0
                                ? (uint64_t)tutti_share_passes(&l->share, l->worker)
                                : 1;
    const uint64_t step = l->sought.set ? l->sought.step : l->first_step + k / passes;
    const int64_t pass = l->sought.set ? l->sought.pass : (int64_t)(k % passes);
    const size_t slot = (size_t)(k % l->slots);
    uint64_t epoch = l->sought.epoch, position = l->sought.position;
    const int64_t samples =
        l->sought.set ? l->sought.samples
                      : tutti_share_pass(&l->share, step, l->worker, pass, &epoch, &position);

    for (int64_t i = 0; i < samples && !l->sought.named; i++)
        l->ids[i] = tutti_share_sample_of(&l->share, l->worker, epoch, position + (uint64_t)i);
    l->ready[slot] = (tutti_batch){ .samples = samples, .step = step, .pass = pass };
    if (l->context > 0) {
        uint32_t *tokens = l->tokens + slot * l->stride, *next = l->next + slot * l->stride;
        tutti_data_gather_tokens(l->data, TUTTI_TRAIN, l->ids, (size_t)samples, tokens, next);
        tutti_charge(l->rt, 0, (double)samples * (double)l->pixels * 2 * sizeof *tokens);
        l->ready[slot].tokens = tokens;
        l->ready[slot].next = next;
    } else {
        float *x = l->x + slot * l->stride;
        uint8_t *labels = l->labels + slot * (size_t)l->batch;
        tutti_data_gather_at(l->data, TUTTI_TRAIN, l->ids, (size_t)samples, step, x, labels);
        tutti_charge(l->rt, 0, (double)samples * (double)l->pixels * (sizeof(float) + 1));
        l->ready[slot].x = x;
        l->ready[slot].labels = labels;
        if (l->tables > 0) {
            uint32_t *rows = l->rows + slot * (size_t)l->batch * l->tables;
            tutti_data_gather_rows(l->data, TUTTI_TRAIN, l->ids, (size_t)samples, rows);
            tutti_charge(l->rt, 0, (double)samples * (double)l->tables * sizeof *rows);
            l->ready[slot].rows = rows;
        }
    }
}

static tutti_status prefetch(void *arg, tutti_error *err)
{
    tutti_loader *l = arg;
    tutti_status status = TUTTI_OK;

    tutti_lock(l->monitor);
    while (!l->closing && status == TUTTI_OK) {
        /* Before the first take nothing is out and one slot more would be free;
           leaving it keeps `depth` the bound. */
        if (l->made == l->taken + l->slots - 1) {
            status = tutti_wait(l->monitor, TUTTI_FOREVER, err);
            continue;
        }
        tutti_unlock(l->monitor);
        gather_batch(l, l->made); /* only this thread changes made */
        tutti_lock(l->monitor);
        l->made++;
        tutti_wake(l->monitor);
    }
    l->closing = true; /* a take that waits must not wait for a thread that has failed */
    tutti_wake(l->monitor);
    tutti_unlock(l->monitor);
    return status;
}

static tutti_status check_attached(const tutti_data *data, const tutti_share *share, int worker,
                                   int depth, tutti_error *err)
{
    if (!tutti_data_attached(data))
        return tutti_fail(err, TUTTI_ERR_STATE, 0, "a loader needs its data attached first");
    if (share->samples < 1 || share->samples > tutti_data_shape_of(data)->samples[TUTTI_TRAIN])
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "the workers would share %llu samples, but the training set has %llu",
                          (unsigned long long)share->samples,
                          (unsigned long long)tutti_data_shape_of(data)->samples[TUTTI_TRAIN]);
    if (share->workers < 1 || worker < 0 || worker >= share->workers)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "worker %d of %d does not exist", worker,
                          share->workers);
    if (share->batch < 1 || share->accumulate < 1)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "batch %lld, accumulate %lld: both must be at least 1",
                          (long long)share->batch, (long long)share->accumulate);
    if (depth < 0 || depth > DEPTH_MOST)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "%d batches cannot be gathered ahead; 0 to %d are possible", depth,
                          DEPTH_MOST);
    return TUTTI_OK;
}

/* Whom a loader feeds: a worker with its share, `depth` batches ahead. */
typedef struct feed {
    const tutti_share *share;
    int worker, depth;
} feed;

/* Sets the sizes of the loader. *room: floats or tokens of all slots. data need not be attached. */
static tutti_status lay_out(tutti_loader *l, const tutti_data *data, const feed *to, size_t *room,
                            tutti_error *err)
{
    const tutti_share *share = to->share;
    const int worker = to->worker, depth = to->depth;
    const tutti_data_shape *shape = tutti_data_shape_of(data);
    size_t floats;

    l->context = shape->context;
    l->tables = (size_t)shape->tables;
    l->pixels = (size_t)shape->channels * (size_t)shape->height * (size_t)shape->width;
    l->slots = (size_t)depth + 1;
    l->batch = tutti_share_batch(share, worker) > 0 ? tutti_share_batch(share, worker) : 1;
    if ((uint64_t)l->batch > share->samples)
        l->batch = (int64_t)share->samples;
    if (!tutti_size_mul((size_t)l->batch, l->pixels, &floats) ||
        !tutti_size_add(floats, 15, &floats) || !tutti_size_mul(floats / 16 * 16, l->slots, room))
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "batches of %lld samples of %zu pixels do not fit in memory; use a smaller batch",
            (long long)l->batch, l->pixels);
    l->stride = floats / 16 * 16; /* each slot begins a cache line */
    return TUTTI_OK;
}

size_t tutti_loader_bytes(const tutti_data *data, const tutti_share *share, int worker, int depth)
{
    tutti_loader l = { 0 };
    size_t room, samples;

    if (lay_out(&l, data, &(feed){ share, worker, depth }, &room, NULL) != TUTTI_OK)
        return SIZE_MAX;
    samples = (size_t)l.batch * l.slots;
    return (l.context > 0 ? 2 * room * sizeof *l.tokens
                          : room * sizeof *l.x + samples * sizeof *l.labels) +
           samples * l.tables * sizeof *l.rows + (size_t)l.batch * sizeof *l.ids;
}

/* Allocates the batches: `room` values or tokens of all slots, and what belongs to them. */
static tutti_status take_room(tutti_loader *l, size_t room, tutti_error *err)
{
    if (l->context > 0) {
        l->tokens = tutti_alloc(room, sizeof *l->tokens);
        l->next = tutti_alloc(room, sizeof *l->next);
    } else {
        l->x = tutti_alloc(room, sizeof(float));
        l->labels = tutti_alloc((size_t)l->batch * l->slots, 1);
    }
    if (l->tables > 0) /* twice as many as values, which fit */
        l->rows = tutti_alloc((size_t)l->batch * l->slots, l->tables * sizeof *l->rows);
    l->ids = tutti_alloc((size_t)l->batch, sizeof *l->ids);
    if (l->ids == NULL ||
        (l->context > 0 ? l->tokens == NULL || l->next == NULL
                        : l->x == NULL || l->labels == NULL) ||
        (l->tables > 0 && l->rows == NULL))
        return tutti_fail(
            err, TUTTI_ERR_MEMORY, 0,
            "no memory for %zu batches of %lld samples of %zu pixels; use a smaller batch",
            l->slots, (long long)l->batch, l->pixels);
    return TUTTI_OK;
}

tutti_status tutti_loader_open(tutti_loader **out, tutti_runtime *rt, const tutti_data *data,
                               const tutti_share *share, int worker, uint64_t first_step, int depth,
                               tutti_error *err)
{
    tutti_status status;
    tutti_loader *l;
    size_t room;

    *out = NULL;
    TUTTI_TRY(check_attached(data, share, worker, depth, err));
    l = tutti_alloc(1, sizeof *l);
    if (l == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory for a loader");
    l->rt = rt;
    l->data = data;
    l->share = *share;
    l->worker = worker;
    l->first_step = first_step;
    status = lay_out(l, data, &(feed){ share, worker, depth }, &room, err);
    if (status != TUTTI_OK)
        goto out;
    status = take_room(l, room, err);
    if (status != TUTTI_OK)
        goto out;
    status = TUTTI_OK;
    if (depth > 0)
        status = tutti_monitor_open(&l->monitor, rt, err);
    if (status == TUTTI_OK && depth > 0)
        status = tutti_thread_open(&l->thread, rt, "tutti-loader", prefetch, l, err);
out:
    if (status == TUTTI_OK)
        *out = l;
    else
        tutti_loader_close(l);
    return status;
}

void tutti_loader_close(tutti_loader *loader)
{
    if (loader == NULL)
        return;
    if (loader->thread != NULL) {
        tutti_lock(loader->monitor);
        loader->closing = true;
        tutti_wake(loader->monitor);
        tutti_unlock(loader->monitor);
        tutti_thread_join(loader->thread, NULL);
    }
    tutti_monitor_close(loader->monitor);
    tutti_free(loader->x);
    tutti_free(loader->tokens);
    tutti_free(loader->next);
    tutti_free(loader->rows);
    tutti_free(loader->labels);
    tutti_free(loader->ids);
    tutti_free(loader);
}

tutti_status tutti_loader_take(tutti_loader *loader, tutti_batch *batch, tutti_error *err)
{
    tutti_loader *l = loader;
    tutti_status status = TUTTI_OK;

    *batch = (tutti_batch){ 0 };
    if (l->thread == NULL) {
        gather_batch(l, l->made++);
        l->sought.set = l->sought.named = false;
        *batch = l->ready[(l->taken++) % l->slots];
        return TUTTI_OK;
    }
    tutti_lock(l->monitor);
    while (l->made == l->taken && !l->closing && status == TUTTI_OK)
        status = tutti_wait(l->monitor, TUTTI_FOREVER, err);
    if (status == TUTTI_OK && l->made == l->taken)
        status = tutti_fail(err, TUTTI_ERR_STATE, 0,
                            "the thread that gathers batches has ended; no batch %llu",
                            (unsigned long long)l->taken);
    if (status == TUTTI_OK) {
        *batch = l->ready[l->taken % l->slots];
        l->taken++;
        tutti_wake(l->monitor);
    }
    tutti_unlock(l->monitor);
    return status;
}

tutti_status tutti_loader_seek(tutti_loader *loader, uint64_t step, int64_t pass, uint64_t epoch,
                               uint64_t position, int64_t samples, tutti_error *err)
{
    tutti_loader *l = loader;

    assert(l->thread == NULL);
    if (samples < 0 || samples > l->batch)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "a batch of %lld samples was asked for; they have up to %lld",
                          (long long)samples, (long long)l->batch);
    l->sought.set = true;
    l->sought.step = step;
    l->sought.pass = pass;
    l->sought.epoch = epoch;
    l->sought.position = position;
    l->sought.samples = samples;
    return TUTTI_OK;
}

void tutti_loader_seek_ids(tutti_loader *loader, const uint64_t *ids)
{
    assert(loader->thread == NULL && loader->sought.set);
    memcpy(loader->ids, ids, (size_t)loader->sought.samples * sizeof *ids);
    loader->sought.named = true;
}
