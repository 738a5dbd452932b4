/* read.c: reading what a checkpoint holds. It is addressed by (state, tensor, owner, elements),
   never by the rank that saved it, so that any number of workers can read it. Keys are read whole,
   since only a whole key's hash shows that it is valid. Each is read once however many targets
   need parts of it. The bytes come from a source (state_internal.h): files here, one open at a
   time, read ahead (stream.c), or memory (image.c). Verifying reads every
   file once, in order, into two hashes: the key's, which names the tensor that is damaged, and
   the file's, which covers the header. */
#include "read.h"
#include "state_internal.h"
#include "tier/tier.h"
#include <stdlib.h>
#include <string.h>

#define KEY_ROOM (TUTTI_STATE_NAME_MOST + 32)

/* ---- reading ---- */

/* Finds the entry of a key in its file. */
static tutti_status find_key(const tutti_checkpoint *c, const tutti_tensor_file *f,
                             const tutti_manifest_state *s, const tutti_manifest_range *r,
                             const tutti_tensor_entry **entry, tutti_error *err)
{
    char key[KEY_ROOM], shown[TUTTI_STATE_SHOWN];
    const tutti_tensor_entry *e;

    tutti_state_key(key, sizeof key, s->state, s->tensor, r->begin);
    tutti_state_shown(shown, key);
    *entry = e = tutti_safetensors_find(f, key);
    if (e == NULL)
        return tutti_fail(
            err, TUTTI_ERR_CORRUPT, 0,
            "'%s' lacks tensor '%s', which the manifest of '%s' lists; use an older checkpoint",
            f->path, shown, c->directory);
    if (e->dtype != s->dtype || e->dims != 1 || e->dim[0] != r->end - r->begin)
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                          "'%s', tensor '%s': %llu bytes of %s, but %llu elements of %s according "
                          "to the manifest; use an older checkpoint",
                          f->path, shown, (unsigned long long)e->bytes, tutti_dtype_name(e->dtype),
                          (unsigned long long)(r->end - r->begin), tutti_dtype_name(s->dtype));
    return TUTTI_OK;
}

static tutti_status damaged(const char *path, const char *key, const tutti_manifest_range *r,
                            uint64_t found, tutti_error *err)
{
    char shown[TUTTI_STATE_SHOWN];

    return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                      "'%s', tensor '%s' (elements [%llu, %llu)) has hash %016llx, but %016llx "
                      "according to the manifest; it was damaged: use an older checkpoint",
                      path, tutti_state_shown(shown, key), (unsigned long long)r->begin,
                      (unsigned long long)r->end, (unsigned long long)found,
                      (unsigned long long)r->hash);
}

static tutti_status open_file(const tutti_checkpoint *c, size_t file, tutti_tensor_file **f,
                              tutti_error *err)
{
    char *path = tutti_state_path_of(c, file);
    tutti_status status;

    *f = NULL;
    if (path == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory to read '%s'", c->directory);
    status = tutti_safetensors_open(f, c->rt, path, err);
    if (status == TUTTI_OK)
        (*f)->alone = c->alone;
    tutti_free(path);
    return status;
}

void tutti_checkpoint_alone(tutti_checkpoint *c)
{
    c->alone = true;
}

/* Targets of one (state, owner). */
typedef struct wanted { const tutti_saved *target; size_t state; } wanted;
typedef tutti_read_job job;

static int by_state(const void *a, const void *b)
{
    const wanted *x = a, *y = b;

    if (x->state != y->state)
        return x->state < y->state ? -1 : 1;
    return x->target->owner < y->target->owner ? -1 : x->target->owner > y->target->owner;
}

static int by_file(const void *a, const void *b)
{
    const job *x = a, *y = b;

    if (x->range->file != y->range->file)
        return x->range->file < y->range->file ? -1 : 1;
    return x->range < y->range ? -1 : x->range > y->range;
}

static int against_state(const void *key, const void *element)
{
    const tutti_saved *t = key;
    const tutti_manifest_state *s = element;

    return tutti_state_order(t->state, t->tensor, s->state, s->tensor);
}

static bool has_owner(const tutti_checkpoint *c, const tutti_manifest_state *s, int owner)
{
    for (size_t k = s->first; k < s->first + s->n; k++)
        if (c->ranges[k].owner == owner)
            return true;
    return s->count == 0;
}

/* Compares the target's request with what was saved. */
static tutti_status resolve(const tutti_checkpoint *c, const tutti_saved *t, wanted *w,
                            tutti_error *err)
{
    const tutti_manifest_state *s =
        c->n_states == 0 ? NULL
                         : bsearch(t, c->states, c->n_states, sizeof *c->states, against_state);
    char state[TUTTI_STATE_SHOWN], tensor[TUTTI_STATE_SHOWN];

    tutti_state_shown(state, t->state);
    tutti_state_shown(tensor, t->tensor);
    if (s == NULL)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "checkpoint '%s' has no '%s/%s'; it was saved with another model, "
                          "method, codec or optimizer",
                          c->directory, state, tensor);
    if (s->dtype != t->dtype)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "checkpoint '%s' has '%s/%s' as %s, this run needs %s; use the settings "
                          "it was saved with",
                          c->directory, state, tensor, tutti_dtype_name(s->dtype),
                          tutti_dtype_name(t->dtype));
    if (s->count != t->count)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "checkpoint '%s' has '%s/%s' with %llu elements, this run needs %llu; "
                          "use the settings it was saved with",
                          c->directory, state, tensor, (unsigned long long)s->count,
                          (unsigned long long)t->count);
    if (!has_owner(c, s, t->owner) && t->owner < 0)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "checkpoint '%s' has '%s/%s' for each rank on its own, this run needs one for all; use "
            "the settings it was saved with",
            c->directory, state, tensor);
    if (!has_owner(c, s, t->owner))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "checkpoint '%s', saved by %d ranks, has no '%s/%s' of rank %d; use the "
                          "settings it was saved with",
                          c->directory, c->world, state, tensor, t->owner);
    if (t->begin > t->end || t->end > t->count ||
        (t->begin < t->end && t->data == NULL && t->tier == NULL))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "no elements [%llu, %llu) of the %llu of '%s/%s' can be read",
                          (unsigned long long)t->begin, (unsigned long long)t->end,
                          (unsigned long long)t->count, state, tensor);
    *w = (wanted){ t, (size_t)(s - c->states) };
    return TUTTI_OK;
}

/* One job for each range that an item needs; jobs NULL: counts only. */
static size_t list_jobs(const tutti_checkpoint *c, const wanted *list, size_t n, job *jobs)
{
    size_t count = 0, end;

    for (size_t first = 0; first < n; first = end) {
        const tutti_manifest_state *s = &c->states[list[first].state];
        for (end = first + 1; end < n && by_state(&list[first], &list[end]) == 0;)
            end++;
        for (size_t k = s->first; k < s->first + s->n; k++) {
            const tutti_manifest_range *r = &c->ranges[k];
            bool needed = false;
            for (size_t t = first; t < end && r->owner == list[first].target->owner && !needed; t++)
                needed = list[t].target->begin < r->end && list[t].target->end > r->begin &&
                         list[t].target->begin < list[t].target->end;
            if (needed && jobs != NULL)
                jobs[count] = (job){ r, list[first].state, first, end - first };
            count += needed;
        }
    }
    return count;
}

/* Copies what target t needs of the piece: bytes [at, at + bytes) of the key
   that begins at element r->begin. */
static tutti_status hand_out(const tutti_saved *t, const tutti_manifest_range *r, uint64_t at,
                             const uint8_t *piece, size_t bytes, tutti_error *err)
{
    const size_t size = tutti_dtype_bytes(t->dtype);
    /* in bytes of the whole tensor */
    const uint64_t first = r->begin * size + at, from = t->begin * size, to = t->end * size;
    const uint64_t low = from > first ? from : first,
                   high = to < first + bytes ? to : first + bytes;

    if (low >= high)
        return TUTTI_OK;
    if (t->data == NULL) {
        tutti_io io = { 0 }, *const one = &io;
        TUTTI_TRY(tutti_tier_write(t->tier, &io, t->at + (low - from), piece + (low - first),
                                   (size_t)(high - low), err));
        return tutti_tier_wait(t->tier, &one, 1, err);
    }
    memcpy((uint8_t *)t->data + (low - from), piece + (low - first), (size_t)(high - low));
    return TUTTI_OK;
}

/* The bytes of one range, which come next, to who wants them. */
static tutti_status take_range(const tutti_checkpoint *c, void *reading, const job *j,
                               const wanted *list, tutti_state_hash *h, tutti_error *err)
{
    const uint64_t whole =
        (j->range->end - j->range->begin) * tutti_dtype_bytes(c->states[j->state].dtype);

    tutti_state_hash_begin(h);
    for (uint64_t at = 0; at < whole;) {
        const uint8_t *piece;
        size_t bytes;
        TUTTI_TRY(c->source->next(reading, &piece, &bytes, err));
        tutti_state_hash_add(h, piece, bytes);
        for (size_t k = 0; k < j->n; k++)
            TUTTI_TRY(hand_out(list[j->first + k].target, j->range, at, piece, bytes, err));
        at += bytes;
    }
    return tutti_state_hash_end(h) == j->range->hash
               ? TUTTI_OK
               : c->source->damaged(c, j, tutti_state_hash_end(h), err);
}

tutti_status tutti_checkpoint_read(tutti_checkpoint *c, const tutti_saved *targets, size_t n,
                                   tutti_error *err)
{
    tutti_status status = TUTTI_OK;
    wanted *list = tutti_alloc(n + 1, sizeof *list);
    tutti_state_hash *h = tutti_state_hash_open();
    job *jobs = NULL;
    size_t n_jobs, end;

    if (c->source == NULL) {
        status = tutti_fail(err, TUTTI_ERR_STATE, 0,
                            "'%s' was parsed from memory; there are no files to read", c->path);
        goto out;
    }
    if (list == NULL || h == NULL) {
        status = tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory to read '%s'", c->directory);
        goto out;
    }
    for (size_t k = 0; k < n && status == TUTTI_OK; k++)
        status = resolve(c, &targets[k], &list[k], err);
    if (status != TUTTI_OK)
        goto out;
    if (n > 0)
        qsort(list, n, sizeof *list, by_state);
    n_jobs = list_jobs(c, list, n, NULL);
    jobs = tutti_alloc(n_jobs + 1, sizeof *jobs);
    if (jobs == NULL) {
        status = tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory to read %zu ranges of '%s'",
                            n_jobs, c->directory);
        goto out;
    }
    list_jobs(c, list, n, jobs);
    if (n_jobs > 0)
        qsort(jobs, n_jobs, sizeof *jobs, by_file);
    for (size_t first = 0; first < n_jobs && status == TUTTI_OK; first = end) {
        void *reading;
        for (end = first + 1; end < n_jobs && jobs[end].range->file == jobs[first].range->file;)
            end++;
        status = c->source->open(&reading, c, jobs + first, end - first, err);
        for (size_t k = first; k < end && status == TUTTI_OK; k++)
            status = take_range(c, reading, &jobs[k], list, h, err);
        c->source->close(reading);
    }
out:
    tutti_state_hash_close(h);
    tutti_free(jobs);
    tutti_free(list);
    return status;
}

/* ---- verifying ---- */

typedef struct expected {
    const tutti_tensor_entry *entry;
    const tutti_manifest_range *range;
} expected;
typedef struct reader {
    const tutti_checkpoint *c;
    tutti_tensor_file *f;
    tutti_state_hash *key, *whole;
    tutti_state_in *in;
} reader;

static int by_place(const void *a, const void *b)
{
    const tutti_tensor_entry *x = ((const expected *)a)->entry, *y = ((const expected *)b)->entry;

    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

/* Ties the file's tensors to the manifest's ranges, one to one; in the order of the file. */
static tutti_status match(const reader *r, uint32_t file, expected *list, tutti_error *err)
{
    const tutti_checkpoint *c = r->c;
    char shown[TUTTI_STATE_SHOWN];

    for (size_t k = 0; k < r->f->n; k++)
        list[k] = (expected){ &r->f->entries[k], NULL };
    for (size_t s = 0; s < c->n_states; s++)
        for (size_t k = c->states[s].first; k < c->states[s].first + c->states[s].n; k++) {
            const tutti_manifest_range *range = &c->ranges[k];
            const tutti_tensor_entry *e;
            if (range->file != file)
                continue;
            TUTTI_TRY(find_key(c, r->f, &c->states[s], range, &e, err));
            list[e - r->f->entries].range = range;
        }
    for (size_t k = 0; k < r->f->n; k++)
        if (list[k].range == NULL)
            return tutti_fail(
                err, TUTTI_ERR_CORRUPT, 0,
                "'%s' has tensor '%s', which the manifest does not list; use an older checkpoint",
                r->f->path, tutti_state_shown(shown, list[k].entry->name));
    if (r->f->n > 0)
        qsort(list, r->f->n, sizeof *list, by_place);
    return TUTTI_OK;
}

/* The next `bytes` of the file into both hashes. */
static tutti_status hash_next(const reader *r, uint64_t bytes, tutti_error *err)
{
    tutti_state_hash_begin(r->key);
    while (bytes > 0) {
        const uint8_t *piece;
        size_t n;
        TUTTI_TRY(tutti_state_in_next(r->in, &piece, &n, err));
        tutti_state_hash_add(r->key, piece, n);
        tutti_state_hash_add(r->whole, piece, n);
        bytes -= n;
    }
    return TUTTI_OK;
}

static tutti_status verify_file(reader *r, uint32_t file, tutti_error *err)
{
    expected *list = tutti_alloc(r->f->n + 1, sizeof *list);
    tutti_state_extent *extents = tutti_alloc(r->f->n + 1, sizeof *extents);
    tutti_status status =
        list == NULL || extents == NULL
            ? tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory to verify '%s'", r->f->path)
            : match(r, file, list, err);
    uint64_t found;

    if (status != TUTTI_OK)
        goto out;
    extents[0] = (tutti_state_extent){ 0, r->f->data };
    for (size_t k = 0; k < r->f->n; k++)
        extents[k + 1] =
            (tutti_state_extent){ r->f->data + list[k].entry->begin, list[k].entry->bytes };
    status = tutti_state_in_open(&r->in, r->c->rt, r->f, extents, r->f->n + 1, err);
    tutti_state_hash_begin(r->whole);
    if (status == TUTTI_OK)
        status = hash_next(r, r->f->data, err);
    for (size_t k = 0; k < r->f->n && status == TUTTI_OK; k++) {
        status = hash_next(r, list[k].entry->bytes, err);
        found = tutti_state_hash_end(r->key);
        if (status == TUTTI_OK && found != list[k].range->hash)
            status = damaged(r->f->path, list[k].entry->name, list[k].range, found, err);
    }
    found = tutti_state_hash_end(r->whole);
    if (status == TUTTI_OK && found != r->c->files[file].hash)
        status = tutti_fail(
            err, TUTTI_ERR_CORRUPT, 0,
            "'%s' has hash %016llx, but %016llx according to the manifest, though all tensors are "
            "sound: its header was damaged; use an older checkpoint",
            r->f->path, (unsigned long long)found, (unsigned long long)r->c->files[file].hash);
out:
    tutti_state_in_close(r->in);
    r->in = NULL;
    tutti_free(extents);
    tutti_free(list);
    return status;
}

static tutti_status files_verify(const tutti_checkpoint *c, tutti_error *err)
{
    tutti_status status = TUTTI_OK;
    reader r = { .c = c, .key = tutti_state_hash_open(), .whole = tutti_state_hash_open() };

    if (r.key == NULL || r.whole == NULL)
        status = tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory to verify '%s'", c->directory);
    for (size_t k = 0; k < c->n_files && status == TUTTI_OK; k++) {
        status = open_file(c, k, &r.f, err);
        if (status == TUTTI_OK && r.f->file_bytes != c->files[k].bytes)
            status = tutti_fail(
                err, TUTTI_ERR_CORRUPT, 0,
                "'%s' has %llu bytes, but %llu according to the manifest; use an older checkpoint",
                r.f->path, (unsigned long long)r.f->file_bytes,
                (unsigned long long)c->files[k].bytes);
        if (status == TUTTI_OK)
            status = verify_file(&r, (uint32_t)k, err);
        tutti_safetensors_close(r.f);
        r.f = NULL;
    }
    tutti_state_hash_close(r.key);
    tutti_state_hash_close(r.whole);
    return status;
}

tutti_status tutti_checkpoint_verify(tutti_checkpoint *c, tutti_error *err)
{
    return c->source != NULL
               ? c->source->verify(c, err)
               : tutti_fail(err, TUTTI_ERR_STATE, 0,
                            "'%s' was parsed from memory; there are no files to verify", c->path);
}

/* ---- ranges from the files of a directory ---- */

typedef struct files_reading {
    tutti_tensor_file *f;
    tutti_state_extent *extents;
    tutti_state_in *in;
} files_reading;

static void files_close(void *reading)
{
    files_reading *r = reading;

    if (r == NULL)
        return;
    tutti_state_in_close(r->in);
    tutti_safetensors_close(r->f);
    tutti_free(r->extents);
    tutti_free(r);
}

static tutti_status files_open(void **reading, const tutti_checkpoint *c, const job *jobs,
                               size_t n, tutti_error *err)
{
    files_reading *r = tutti_alloc(1, sizeof *r);

    *reading = r;
    if (r == NULL || (r->extents = tutti_alloc(n + 1, sizeof *r->extents)) == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory to read %zu tensors of '%s'", n,
                          c->directory);
    TUTTI_TRY(open_file(c, jobs[0].range->file, &r->f, err));
    for (size_t k = 0; k < n; k++) {
        const tutti_tensor_entry *e;
        TUTTI_TRY(find_key(c, r->f, &c->states[jobs[k].state], jobs[k].range, &e, err));
        r->extents[k] = (tutti_state_extent){ r->f->data + e->begin, e->bytes };
    }
    return tutti_state_in_open(&r->in, c->rt, r->f, r->extents, n, err);
}

static tutti_status files_next(void *reading, const uint8_t **piece, size_t *bytes,
                               tutti_error *err)
{
    return tutti_state_in_next(((files_reading *)reading)->in, piece, bytes, err);
}

static tutti_status files_damaged(const tutti_checkpoint *c, const job *j, uint64_t found,
                                  tutti_error *err)
{
    const tutti_manifest_state *s = &c->states[j->state];
    char *path = tutti_state_path_of(c, j->range->file), key[KEY_ROOM];

    tutti_state_key(key, sizeof key, s->state, s->tensor, j->range->begin);
    damaged(path != NULL ? path : c->directory, key, j->range, found, err);
    tutti_free(path);
    return TUTTI_ERR_CORRUPT;
}

const tutti_source tutti_source_files = {
    .open = files_open, .next = files_next, .damaged = files_damaged, .close = files_close,
    .verify = files_verify,
};
