/* folder_write.c: writes tensors to one safetensors file, or to a folder of several with an index,
   with hashes (folder.h). A header comes before the values whose hashes it has, so each tensor is
   read twice: for its hash, and to be written; both must give the same. All is written beside the
   path and renamed when it is on the disk. */
#include "folder.h"
#include "state_internal.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PIECE ((size_t)256 << 10)
#define UNFINISHED ".unfinished" /* not .part, which the writer of a file uses */
enum { FILE_NAME = 64 };

typedef struct writing {
    tutti_runtime *rt;
    tutti_tensors_target *to;
    tutti_tensor_entry *entries;  /* [n] */
    size_t n;
    uint64_t *hashes;             /* [n], as first read */
    size_t *first;                /* [files + 1]: file k has entries [first[k], first[k + 1]) */
    char *path, *part;            /* the target without a '/' at its end; where it is written */
    json_t *map;                  /* weight_map */
} writing;

static tutti_status no_memory(const writing *w, tutti_error *err)
{
    return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "no memory to write '%s'", w->to->path);
}

/* ---- the first reading ---- */

static tutti_status take_bytes(writing *w, tutti_tensor_entry *e, tutti_error *err)
{
    char shown[TUTTI_STATE_SHOWN];
    size_t bytes = tutti_dtype_bytes(e->dtype);
    bool fits = true;

    for (int d = 0; d < e->dims; d++)
        fits = fits && tutti_size_mul(bytes, (size_t)e->dim[d], &bytes);
    if (!fits)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "cannot write '%s': tensor '%s' is larger than a file can be", w->path,
                          tutti_state_shown(shown, e->name));
    e->bytes = bytes;
    w->to->bytes += bytes;
    return TUTTI_OK;
}

static tutti_status hash_one(tutti_tensor_entry *e, tutti_state_hash *h, void *buffer,
                             tutti_error *err)
{
    tutti_state_hash_begin(h);
    if (e->data != NULL)
        tutti_state_hash_add(h, e->data, (size_t)e->bytes);
    for (uint64_t at = 0; at < e->bytes && e->data == NULL;) {
        const size_t n = e->bytes - at < PIECE ? (size_t)(e->bytes - at) : PIECE;
        TUTTI_TRY(e->copy(e->with, e, at, buffer, n, err));
        tutti_state_hash_add(h, buffer, n);
        at += n;
    }
    return TUTTI_OK;
}

static tutti_status hash_all(writing *w, tutti_error *err)
{
    tutti_state_hash *h = tutti_state_hash_open();
    void *buffer = tutti_alloc(PIECE, 1);
    tutti_status status = h == NULL || buffer == NULL ? no_memory(w, err) : TUTTI_OK;

    for (size_t k = 0; k < w->n && status == TUTTI_OK; k++) {
        status = take_bytes(w, &w->entries[k], err);
        if (status == TUTTI_OK)
            status = hash_one(&w->entries[k], h, buffer, err);
        if (status == TUTTI_OK)
            w->hashes[k] = tutti_state_hash_end(h);
    }
    tutti_state_hash_close(h);
    tutti_free(buffer);
    return status;
}

/* ---- files ---- */

/* A file is full when another tensor would exceed its bytes. */
static void divide(writing *w)
{
    uint64_t used = 0;

    w->to->files = 0;
    for (size_t k = 0; k < w->n; k++) {
        if (k == 0 || (w->to->most > 0 && used > 0 && used + w->entries[k].bytes > w->to->most)) {
            w->first[w->to->files++] = k;
            used = 0;
        }
        used += w->entries[k].bytes;
    }
    if (w->n == 0)
        w->first[w->to->files++] = 0;
    w->first[w->to->files] = w->n;
}

/* The JSON text of the hashes of entries [begin, end); to be freed by free(). NULL: no memory. */
static char *hashes_text(const writing *w, size_t begin, size_t end)
{
    json_t *all = json_object();
    bool failed = all == NULL;
    char hash[17], *text;

    for (size_t k = begin; k < end && !failed; k++) {
        tutti_state_hex(hash, w->hashes[k]);
        failed = json_object_set_new(all, w->entries[k].name, json_string(hash)) != 0;
    }
    text = failed ? NULL : json_dumps(all, JSON_COMPACT | JSON_SORT_KEYS);
    json_decref(all);
    return text;
}

static tutti_status write_file(writing *w, const char *path, size_t begin, size_t end,
                               tutti_error *err)
{
    char shown[TUTTI_STATE_SHOWN], *hashes = hashes_text(w, begin, end);
    const char *metadata[] = { "format",         "pt",   TUTTI_STATE_HASHES, hashes,
                               TUTTI_STATE_SEAL, TUTTI_STATE_UNSEALED, NULL };
    tutti_status status;

    if (hashes == NULL)
        return no_memory(w, err);
    status = tutti_safetensors_write(w->rt, path, w->entries + begin, end - begin, metadata, NULL,
                                     err);
    free(hashes);
    for (size_t k = begin; k < end && status == TUTTI_OK; k++)
        if (w->entries[k].hash != w->hashes[k])
            status = tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                                "tensor '%s' changed while '%s' was written; try again when "
                                "nothing writes to where it comes from",
                                tutti_state_shown(shown, w->entries[k].name), w->path);
    return status;
}

static void file_name(const writing *w, size_t k, char name[FILE_NAME])
{
    snprintf(name, FILE_NAME, "model-%05zu-of-%05zu.safetensors", k + 1, w->to->files);
}

static tutti_status write_shard(writing *w, size_t k, tutti_error *err)
{
    char name[FILE_NAME], *path;
    tutti_status status;

    file_name(w, k, name);
    path = tutti_state_join(w->part, name);
    status = path == NULL ? no_memory(w, err)
                          : write_file(w, path, w->first[k], w->first[k + 1], err);
    tutti_free(path);
    for (size_t e = w->first[k]; e < w->first[k + 1] && status == TUTTI_OK; e++)
        if (json_object_set_new(w->map, w->entries[e].name, json_string(name)) != 0)
            status = no_memory(w, err);
    return status;
}

static tutti_status put_index(const writing *w, const char *path, const char *text,
                              tutti_error *err)
{
    tutti_file *file;
    tutti_status status;

    TUTTI_TRY(tutti_file_begin(&file, w->rt, path, false, err));
    status = tutti_file_write(file, text, strlen(text), err);
    if (status == TUTTI_OK)
        status = tutti_file_write(file, "\n", 1, err);
    if (status == TUTTI_OK)
        status = tutti_file_sync(file, err);
    return tutti_file_end(file, status, err);
}

/* The hash is that of the text with the line's end. */
static tutti_status write_index(writing *w, tutti_error *err)
{
    json_t *root = json_pack("{s:{s:I, s:s}, s:O}", "metadata", "total_size",
                             (json_int_t)w->to->bytes, TUTTI_STATE_SEAL, TUTTI_STATE_UNSEALED,
                             "weight_map", w->map);
    char *json = root == NULL ? NULL : json_dumps(root, JSON_INDENT(2) | JSON_SORT_KEYS);
    char *path = tutti_state_join(w->part, TUTTI_TENSORS_INDEX), *text = NULL;
    tutti_status status = TUTTI_OK;

    if (json != NULL)
        text = tutti_state_join(json, ""); /* a byte more: the '/' becomes the line's end */
    if (text == NULL || path == NULL)
        status = no_memory(w, err);
    else {
        const size_t n = strlen(json);
        text[n] = '\n';
        tutti_state_seal(text, n + 1);
        text[n] = 0;
        status = put_index(w, path, text, err);
    }
    json_decref(root);
    free(json);
    tutti_free(text);
    tutti_free(path);
    return status;
}

/* ---- the folder ---- */

static tutti_status remove_ours(void *user, const char *name, tutti_error *err)
{
    const writing *w = user;
    char *path;

    (void)err;
    if (strncmp(name, "model", 5) != 0)
        return TUTTI_OK;
    path = tutti_state_join(w->part, name);
    if (path != NULL)
        tutti_file_remove(w->rt, path, NULL);
    tutti_free(path);
    return TUTTI_OK;
}

/* Removes what an interrupted call has left; other files in the folder make that fail. */
static tutti_status remove_part(writing *w, tutti_error *err)
{
    if (!tutti_file_exists(w->rt, w->part))
        return TUTTI_OK;
    if (w->to->most > 0)
        TUTTI_TRY(tutti_directory_list(w->rt, w->part, remove_ours, w, err));
    return tutti_file_remove(w->rt, w->part, err);
}

static tutti_status write_folder(writing *w, tutti_error *err)
{
    tutti_status status = tutti_directory_make(w->rt, w->part, err);

    for (size_t k = 0; k < w->to->files && status == TUTTI_OK; k++)
        status = write_shard(w, k, err);
    if (status == TUTTI_OK)
        status = write_index(w, err);
    return status == TUTTI_OK ? tutti_directory_sync(w->rt, w->part, err) : status;
}

/* Makes the path appear, and its entry in the folder above durable. */
static tutti_status finish(const writing *w, tutti_error *err)
{
    char *above = tutti_copy_text(w->path), *slash;
    tutti_status status;

    if (above == NULL)
        return no_memory(w, err);
    slash = strrchr(above, '/');
    status = tutti_file_rename(w->rt, w->part, w->path, err);
    if (slash != NULL && slash != above)
        *slash = 0;
    if (status == TUTTI_OK)
        status = tutti_directory_sync(w->rt, slash == NULL ? "." : slash == above ? "/" : above,
                                      err);
    tutti_free(above);
    return status;
}

static tutti_status write_all(writing *w, tutti_error *err)
{
    tutti_status status = hash_all(w, err);

    TUTTI_TRY(status);
    divide(w);
    TUTTI_TRY(remove_part(w, err));
    status = w->to->most > 0 ? write_folder(w, err) : write_file(w, w->part, 0, w->n, err);
    if (status == TUTTI_OK)
        status = finish(w, err);
    if (status != TUTTI_OK)
        remove_part(w, NULL);
    return status;
}

static tutti_status set_paths(writing *w, tutti_error *err)
{
    size_t n;

    w->path = tutti_copy_text(w->to->path);
    if (w->path == NULL)
        return no_memory(w, err);
    n = strlen(w->path);
    while (n > 1 && w->path[n - 1] == '/')
        w->path[--n] = 0;
    if (tutti_file_exists(w->rt, w->path))
        return tutti_fail(err, TUTTI_ERR_USAGE, EEXIST,
                          "'%s' is there already, and nothing is written over it; name another, or "
                          "remove it",
                          w->path);
    w->part = tutti_alloc(n + sizeof UNFINISHED, 1);
    if (w->part == NULL)
        return no_memory(w, err);
    sprintf(w->part, "%s" UNFINISHED, w->path);
    return TUTTI_OK;
}

tutti_status tutti_tensors_write(tutti_runtime *rt, tutti_tensors_target *to,
                                 tutti_tensor_entry *entries, size_t n, tutti_error *err)
{
    writing w = { .rt = rt, .to = to, .entries = entries, .n = n, .map = json_object() };
    tutti_status status = TUTTI_OK;

    to->files = 0;
    to->bytes = 0;
    w.hashes = tutti_alloc(n + 1, sizeof *w.hashes);
    w.first = tutti_alloc(n + 2, sizeof *w.first);
    if (w.hashes == NULL || w.first == NULL || w.map == NULL)
        status = no_memory(&w, err);
    if (status == TUTTI_OK)
        status = set_paths(&w, err);
    if (status == TUTTI_OK)
        status = write_all(&w, err);
    json_decref(w.map);
    tutti_free(w.hashes);
    tutti_free(w.first);
    tutti_free(w.path);
    tutti_free(w.part);
    return status;
}
