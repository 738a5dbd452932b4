/* image.c: the state of a run in memory. A checkpoint that is opened on an image has the manifest
   that the image's pieces would have in a directory (merge.c), and its ranges are read from memory.
   As from files, each is compared with its hash when it is read. */
#include "state/image.h"
#include "state_internal.h"
#include "tier/tier.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

int tutti_image_order(const tutti_saved *a, const tutti_saved *b)
{
    const int order = tutti_state_order(a->state, a->tensor, b->state, b->tensor);

    if (order != 0)
        return order;
    if (a->owner != b->owner)
        return a->owner < b->owner ? -1 : 1;
    if (a->begin != b->begin)
        return a->begin < b->begin ? -1 : 1;
    return a->end < b->end ? -1 : a->end > b->end;
}

/* ---- copying ---- */

static int by_order(const void *a, const void *b)
{
    return tutti_image_order(a, b);
}

static tutti_status copy_piece(tutti_saved *to, const tutti_saved *from, uint64_t *hash,
                               tutti_error *err)
{
    const size_t bytes = (size_t)tutti_image_bytes(from);
    tutti_io io = { 0 }, *const one = &io;

    *to = *from;
    to->state = tutti_copy_text(from->state);
    to->tensor = tutti_copy_text(from->tensor);
    to->data = tutti_alloc(bytes + 1, 1);
    to->tier = NULL;
    to->at = 0;
    if (to->state == NULL || to->tensor == NULL || to->data == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM,
                          "no memory for a copy of '%s/%s' (%zu bytes)", from->state, from->tensor,
                          bytes);
    if (bytes > 0 && from->data != NULL)
        memcpy(to->data, from->data, bytes);
    else if (bytes > 0) {
        TUTTI_TRY(tutti_tier_read(from->tier, &io, from->at, to->data, bytes, err));
        TUTTI_TRY(tutti_tier_wait(from->tier, &one, 1, err));
    }
    *hash = tutti_hash(to->data, bytes);
    return TUTTI_OK;
}

tutti_status tutti_image_copy(tutti_image **out, const tutti_image *of, const tutti_saved *items,
                              size_t n, tutti_error *err)
{
    tutti_image *image = tutti_alloc(1, sizeof *image);
    tutti_saved *sorted = tutti_alloc(n + 1, sizeof *sorted);
    tutti_status status = TUTTI_OK;

    *out = NULL;
    if (image != NULL) {
        image->step = of->step;
        image->rank = of->rank;
        image->world = of->world;
        image->workers = of->workers;
        image->whole = of->whole;
        image->copies = of->copies;
        image->facts = tutti_copy_text(of->facts);
        image->pieces = tutti_alloc(n + 1, sizeof *image->pieces);
        image->hash = tutti_alloc(n + 1, sizeof *image->hash);
    }
    if (sorted == NULL || image == NULL || image->facts == NULL || image->pieces == NULL ||
        image->hash == NULL)
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "no memory for a list of %zu tensors",
                            n);
    if (status == TUTTI_OK && n > 0) {
        memcpy(sorted, items, n * sizeof *items);
        qsort(sorted, n, sizeof *sorted, by_order);
    }
    for (size_t k = 0; k < n && status == TUTTI_OK; k++) {
        image->n = k + 1; /* also half a piece is freed */
        status = copy_piece(&image->pieces[k], &sorted[k], &image->hash[k], err);
    }
    tutti_free(sorted);
    if (status == TUTTI_OK)
        *out = image;
    else
        tutti_image_close(image);
    return status;
}

/* Merges the pieces of both, whose memory `to` has then. Their lists are freed. */
static void take_pieces(tutti_image *to, tutti_image *from, tutti_saved *pieces, uint64_t *hash)
{
    const size_t n = to->n + from->n;
    size_t a = 0, b = 0;

    for (size_t k = 0; k < n; k++) {
        const bool mine = b == from->n || (a < to->n && tutti_image_order(&to->pieces[a],
                                                                          &from->pieces[b]) <= 0);
        pieces[k] = mine ? to->pieces[a] : from->pieces[b];
        hash[k] = mine ? to->hash[a++] : from->hash[b++];
    }
    tutti_free(to->pieces);
    tutti_free(to->hash);
    to->pieces = pieces;
    to->hash = hash;
    to->n = n;
    from->n = 0;
}

tutti_status tutti_image_add(tutti_image *image, const tutti_saved *items, size_t n,
                             tutti_error *err)
{
    const tutti_image of = { .world = 1, .workers = 1, .facts = (char[]){ "" } };
    tutti_image *more;
    tutti_saved *pieces;
    uint64_t *hash;
    tutti_status status;

    TUTTI_TRY(tutti_image_copy(&more, &of, items, n, err));
    pieces = tutti_alloc(image->n + n + 1, sizeof *pieces);
    hash = tutti_alloc(image->n + n + 1, sizeof *hash);
    status = pieces != NULL && hash != NULL
                 ? TUTTI_OK
                 : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "no memory for a list of %zu tensors",
                              image->n + n);
    if (status == TUTTI_OK)
        take_pieces(image, more, pieces, hash);
    else {
        tutti_free(pieces);
        tutti_free(hash);
    }
    tutti_image_close(more);
    return status;
}

void tutti_image_close(tutti_image *image)
{
    if (image == NULL)
        return;
    for (size_t k = 0; k < image->n; k++) {
        tutti_free((void *)image->pieces[k].state);
        tutti_free((void *)image->pieces[k].tensor);
        tutti_free(image->pieces[k].data);
    }
    tutti_free(image->pieces);
    tutti_free(image->hash);
    tutti_free(image->facts);
    tutti_free(image);
}

/* ---- reading it as a checkpoint ---- */

typedef struct memory_reading {
    const tutti_checkpoint *c;
    const tutti_read_job *jobs;
    size_t at;                   /* the next one */
} memory_reading;

static tutti_status missing(const tutti_checkpoint *c, const tutti_manifest_state *s,
                            const tutti_manifest_range *r, tutti_error *err)
{
    char state[TUTTI_STATE_SHOWN], tensor[TUTTI_STATE_SHOWN];

    return tutti_fail(err, TUTTI_ERR_STATE, 0,
                      "%s: elements [%llu, %llu) of '%s/%s' were not fetched, but are needed",
                      c->path, (unsigned long long)r->begin, (unsigned long long)r->end,
                      tutti_state_shown(state, s->state), tutti_state_shown(tensor, s->tensor));
}

static tutti_status memory_open(void **reading, const tutti_checkpoint *c,
                                const tutti_read_job *jobs, size_t n, tutti_error *err)
{
    memory_reading *r;

    *reading = NULL;
    for (size_t k = 0; k < n; k++)
        if (c->memory[jobs[k].range - c->ranges] == NULL)
            return missing(c, &c->states[jobs[k].state], jobs[k].range, err);
    *reading = r = tutti_alloc(1, sizeof *r);
    if (r == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "no memory to read %s", c->path);
    *r = (memory_reading){ c, jobs, 0 };
    return TUTTI_OK;
}

/* All of a range at once. */
static tutti_status memory_next(void *reading, const uint8_t **piece, size_t *bytes,
                                tutti_error *err)
{
    memory_reading *r = reading;
    const tutti_read_job *job = &r->jobs[r->at++];

    (void)err;
    *piece = r->c->memory[job->range - r->c->ranges];
    *bytes = (size_t)(job->range->end - job->range->begin) *
             tutti_dtype_bytes(r->c->states[job->state].dtype);
    return TUTTI_OK;
}

static tutti_status memory_damaged(const tutti_checkpoint *c, const tutti_read_job *job,
                                   uint64_t found, tutti_error *err)
{
    const tutti_manifest_state *s = &c->states[job->state];
    char state[TUTTI_STATE_SHOWN], tensor[TUTTI_STATE_SHOWN];

    return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                      "%s: elements [%llu, %llu) of '%s/%s' have hash %016llx, but had %016llx when "
                      "the state was copied; memory was damaged: fetch the state again",
                      c->path, (unsigned long long)job->range->begin,
                      (unsigned long long)job->range->end, tutti_state_shown(state, s->state),
                      tutti_state_shown(tensor, s->tensor), (unsigned long long)found,
                      (unsigned long long)job->range->hash);
}

static void memory_close(void *reading)
{
    tutti_free(reading);
}

static tutti_status memory_verify(const tutti_checkpoint *c, tutti_error *err)
{
    for (size_t s = 0; s < c->n_states; s++)
        for (size_t k = c->states[s].first; k < c->states[s].first + c->states[s].n; k++) {
            const tutti_manifest_range *r = &c->ranges[k];
            const size_t bytes =
                (size_t)(r->end - r->begin) * tutti_dtype_bytes(c->states[s].dtype);
            uint64_t found;
            if (c->memory[k] == NULL)
                return missing(c, &c->states[s], r, err);
            found = tutti_hash(c->memory[k], bytes);
            if (found != r->hash)
                return memory_damaged(c, &(tutti_read_job){ .range = r, .state = s }, found, err);
        }
    return TUTTI_OK;
}

static const tutti_source source_memory = {
    .open = memory_open, .next = memory_next, .damaged = memory_damaged, .close = memory_close,
    .verify = memory_verify,
};

/* The manifest: all is in one "file", of rank 0. merge.c keeps the order of the pieces, which is
   its own, and lists no range for those without elements. */
static tutti_status manifest_of(tutti_checkpoint **out, const tutti_image *image, const char *name,
                                tutti_error *err)
{
    tutti_saved_piece *pieces = tutti_alloc(image->n + 1, sizeof *pieces);
    tutti_manifest_file file = { 0 };
    tutti_status status;

    *out = NULL;
    if (pieces == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "no memory for a list of %zu tensors",
                          image->n);
    for (size_t k = 0; k < image->n; k++) {
        const tutti_saved *p = &image->pieces[k];
        pieces[k] = (tutti_saved_piece){
            .state = p->state, .tensor = p->tensor, .keep = p->keep, .dtype = p->dtype,
            .count = p->count,
            .range = { .begin = p->begin, .end = p->end, .hash = image->hash[k],
                       .owner = p->owner },
        };
        file.bytes += tutti_image_bytes(p);
    }
    status = tutti_manifest_merge(out, name, pieces, image->n, &file, 1, err);
    tutti_free(pieces);
    return status;
}

tutti_status tutti_image_checkpoint(tutti_checkpoint **out, const tutti_image *image,
                                    tutti_error *err)
{
    char name[64];
    tutti_checkpoint *c = NULL;
    size_t at = 0;
    tutti_status status;

    *out = NULL;
    snprintf(name, sizeof name, "state of step %llu in memory", (unsigned long long)image->step);
    status = manifest_of(&c, image, name, err);
    if (status == TUTTI_OK) {
        c->step = image->step;
        c->world = image->world;
        c->source = &source_memory;
        c->facts = tutti_copy_text(image->facts);
        c->directory = tutti_copy_text(name);
        c->memory = tutti_alloc(c->n_ranges + 1, sizeof *c->memory);
        status = c->facts == NULL || c->directory == NULL || c->memory == NULL
                     ? tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "no memory to open the %s", name)
                     : tutti_manifest_check(c, name, err);
    }
    for (size_t k = 0; k < image->n && status == TUTTI_OK; k++)
        if (image->pieces[k].begin < image->pieces[k].end)
            c->memory[at++] = image->pieces[k].data;
    if (status == TUTTI_OK)
        *out = c;
    else
        tutti_checkpoint_close(c);
    return status;
}
