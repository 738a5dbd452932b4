/* safetensors_write.c: writes files in the format safetensors. Tensors are ordered by descending
   element size, then by name, so that each is aligned for its type. The header is padded with
   spaces so that the first tensor begins at a multiple of 64 bytes. Equal contents give equal
   files, since nothing depends on time or host. The file appears under its name only when it is
   complete and synced. */
#include "state_internal.h"
#include "runtime/files.h"
#include "tier/tier.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ALIGNMENT 64
#define PIECE \
    ((size_t)256 \
     << 10) /* hashed twice and copied on its way to the disk, while it is in the cache */

static int by_size_then_name(const void *a, const void *b)
{
    const tutti_tensor_entry *x = *(tutti_tensor_entry *const *)a,
                             *y = *(tutti_tensor_entry *const *)b;
    const size_t xs = tutti_dtype_bytes(x->dtype), ys = tutti_dtype_bytes(y->dtype);

    return xs != ys ? (xs > ys ? -1 : 1) : strcmp(x->name, y->name);
}

/* Sorts the tensors, checks their names, and sets their positions in the file. */
static tutti_status lay_out(const char *path, tutti_tensor_entry **order, size_t n,
                            tutti_error *err)
{
    char shown[TUTTI_STATE_SHOWN];
    size_t at = 0;

    for (size_t k = 0; k < n; k++) {
        tutti_tensor_entry *e = order[k];
        size_t bytes = tutti_dtype_bytes(e->dtype);
        bool fits = true;

        tutti_state_shown(shown, e->name);
        if (!tutti_state_utf8(e->name) || strlen(e->name) > TUTTI_STATE_NAME_MOST ||
            strcmp(e->name, "__metadata__") == 0)
            return tutti_fail(
                err, TUTTI_ERR_USAGE, 0,
                "cannot write '%s': '%s' is no name for a tensor (UTF-8, at most %d bytes, not "
                "__metadata__)",
                path, tutti_state_utf8(shown) ? shown : "(not UTF-8)", TUTTI_STATE_NAME_MOST);
        if (e->dims < 0 || e->dims > TUTTI_SAFETENSORS_DIMS)
            return tutti_fail(
                err, TUTTI_ERR_USAGE, 0,
                "cannot write '%s': tensor '%s' has %d dimensions; 0 to %d are possible", path,
                shown, e->dims, TUTTI_SAFETENSORS_DIMS);
        for (int d = 0; d < e->dims; d++)
            fits =
                fits && e->dim[d] <= INT64_MAX && tutti_size_mul(bytes, (size_t)e->dim[d], &bytes);
        e->begin = at;
        e->bytes = bytes;
        if (!fits || !tutti_size_add(at, bytes, &at) || at > INT64_MAX)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "cannot write '%s': tensor '%s' is larger than a file can be", path,
                              shown);
        if (bytes > 0 && e->data == NULL && e->tier == NULL && e->bring == NULL && e->copy == NULL)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "cannot write '%s': tensor '%s' has %zu bytes and no data", path,
                              shown, bytes);
    }
    return TUTTI_OK;
}

/* Compares by name: in the file's order equal names need not be adjacent, if their types differ. */
static int by_name(const void *a, const void *b)
{
    return strcmp((*(tutti_tensor_entry *const *)a)->name, (*(tutti_tensor_entry *const *)b)->name);
}

static tutti_status check_unique(const char *path, tutti_tensor_entry **order, size_t n,
                                 tutti_error *err)
{
    char shown[TUTTI_STATE_SHOWN];

    if (n > 0)
        qsort(order, n, sizeof *order, by_name);
    for (size_t k = 1; k < n; k++)
        if (strcmp(order[k - 1]->name, order[k]->name) == 0)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "cannot write '%s': two tensors are named '%s'", path,
                              tutti_state_shown(shown, order[k]->name));
    return TUTTI_OK;
}

static json_t *entry_json(const tutti_tensor_entry *e)
{
    json_t *shape = json_array(), *object = NULL;
    bool failed = shape == NULL;

    for (int d = 0; d < e->dims && !failed; d++)
        failed = json_array_append_new(shape, json_integer((json_int_t)e->dim[d])) != 0;
    if (!failed)
        object =
            json_pack("{s:s, s:O, s:[I, I]}", "dtype", tutti_dtype_name(e->dtype), "shape", shape,
                      "data_offsets", (json_int_t)e->begin, (json_int_t)(e->begin + e->bytes));
    json_decref(shape);
    return object;
}

/* [n] tensors, in the order in which they are written. */
typedef struct tensors {
    tutti_tensor_entry **order;
    size_t n;
} tensors;
/* The header of a file, with its length. */
typedef struct header {
    char *text;
    size_t bytes;
} header;
/* Of the whole file, and of a tensor. */
typedef struct hashes {
    tutti_state_hash *whole, *own;
} hashes;

/* Adds the metadata, which are pairs. *out_of_memory: there was none for them. */
static tutti_status add_metadata(json_t *root, const char *path, const char *const *metadata,
                                 bool *out_of_memory, tutti_error *err)
{
    json_t *texts;
    bool failed;
    failed =
        (texts = json_object()) == NULL || json_object_set_new(root, "__metadata__", texts) != 0;
    for (size_t k = 0; !failed && metadata[k] != NULL; k += 2) {
        if (metadata[k + 1] == NULL || !tutti_state_utf8(metadata[k]) ||
            !tutti_state_utf8(metadata[k + 1]) || json_object_get(texts, metadata[k]) != NULL)
            return tutti_fail(
                err, TUTTI_ERR_USAGE, 0,
                "cannot write '%s': metadata are pairs of UTF-8 texts with different keys; pair "
                "%zu is not",
                path, k / 2 + 1);
        failed = json_object_set_new(texts, metadata[k], json_string(metadata[k + 1])) != 0;
    }
    *out_of_memory = failed;
    return TUTTI_OK;
}

/* The 8 bytes of length, the JSON, and spaces up to the alignment. */
static tutti_status print_header(const char *path, const tensors *of, const char *const *metadata,
                                 header *to, tutti_error *err)
{
    tutti_tensor_entry **order = of->order;
    const size_t n = of->n;
    tutti_status status = TUTTI_OK;
    json_t *root = json_object();
    bool failed = root == NULL;
    size_t json, whole;

    to->text = NULL;
    to->bytes = 0;
    if (metadata != NULL && metadata[0] != NULL && !failed) {
        status = add_metadata(root, path, metadata, &failed, err);
        if (status != TUTTI_OK)
            goto out;
    }
    for (size_t k = 0; k < n && !failed; k++)
        failed = json_object_set_new(root, order[k]->name, entry_json(order[k])) != 0;
    json = failed ? 0 : json_dumpb(root, NULL, 0, JSON_COMPACT | JSON_PRESERVE_ORDER);
    if (json == 0) {
        status = tutti_fail(err, TUTTI_ERR_MEMORY, 0,
                            "no memory for the header of '%s' (%zu tensors)", path, n);
        goto out;
    }
    whole = (8 + json + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (whole - 8 > TUTTI_STATE_HEADER_MOST) {
        status = tutti_fail(err, TUTTI_ERR_USAGE, 0,
                            "cannot write '%s': the header of %zu tensors has %zu bytes, more than "
                            "the %llu we read; use fewer tensors or several files",
                            path, n, whole - 8, (unsigned long long)TUTTI_STATE_HEADER_MOST);
        goto out;
    }
    to->text = tutti_alloc(whole, 1);
    if (to->text == NULL) {
        status = tutti_fail(err, TUTTI_ERR_MEMORY, 0,
                            "no memory (%zu bytes) for the header of '%s'", whole, path);
        goto out;
    }
    memset(to->text, ' ', whole);
    for (int k = 0; k < 8; k++)
        to->text[k] = (char)((whole - 8) >> 8 * k & 0xff);
    json_dumpb(root, to->text + 8, json, JSON_COMPACT | JSON_PRESERVE_ORDER);
    to->bytes = whole;
    tutti_state_seal(to->text, to->bytes);
out:
    json_decref(root);
    return status;
}

/* The hash of the whole file and that of this tensor (NULL: of the header, which has none). */
static tutti_status write_hashed(tutti_state_out *out, tutti_state_hash *whole,
                                 tutti_state_hash *own, const void *data, size_t bytes,
                                 tutti_error *err)
{
    const char *at = data;

    while (bytes > 0) {
        const size_t piece = bytes < PIECE ? bytes : PIECE;
        tutti_state_hash_add(whole, at, piece);
        if (own != NULL)
            tutti_state_hash_add(own, at, piece);
        TUTTI_TRY(tutti_state_out_add(out, at, piece, err));
        at += piece;
        bytes -= piece;
    }
    return TUTTI_OK;
}

static tutti_status read_tier(const tutti_tensor_entry *e, uint64_t offset, void *to, size_t bytes,
                              tutti_error *err)
{
    tutti_io io = { 0 }, *const one = &io;

    TUTTI_TRY(tutti_tier_read(e->tier, &io, e->at + offset, to, bytes, err));
    return tutti_tier_wait(e->tier, &one, 1, err);
}

/* Writes an entry whose values are in a tier or are copied, through a buffer of PIECE bytes. */
static tutti_status write_in_pieces(tutti_state_out *out, tutti_state_hash *whole,
                                    tutti_state_hash *own, const tutti_tensor_entry *e,
                                    void *buffer, tutti_error *err)
{
    for (uint64_t done = 0; done < e->bytes;) {
        const size_t piece = e->bytes - done < PIECE ? (size_t)(e->bytes - done) : PIECE;
        TUTTI_TRY(e->tier != NULL ? read_tier(e, done, buffer, piece, err)
                                  : e->copy(e->with, e, done, buffer, piece, err));
        TUTTI_TRY(write_hashed(out, whole, own, buffer, piece, err));
        done += piece;
    }
    return TUTTI_OK;
}

/* The values come in pieces: they are in a tier, or are copied. */
static bool in_pieces(const tutti_tensor_entry *e)
{
    return e->bytes > 0 && e->data == NULL && (e->tier != NULL || e->bring == NULL);
}

/* Allocates a buffer for pieces of values. *buffer: NULL if no values come in pieces. */
static tutti_status open_buffer(tutti_tensor_entry **order, size_t n, void **buffer,
                                tutti_error *err)
{
    *buffer = NULL;
    for (size_t k = 0; k < n; k++)
        if (in_pieces(order[k])) {
            *buffer = tutti_alloc(PIECE, 1);
            return *buffer != NULL ? TUTTI_OK
                                   : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM,
                                                "no memory (%d bytes) to read '%s'",
                                                (int)PIECE, order[k]->name);
        }
    return TUTTI_OK;
}

/* Writes everything to `part` and syncs it. */
static tutti_status write_part(tutti_runtime *rt, const char *part, const header *head,
                               const tensors *of, const hashes *h, tutti_error *err)
{
    tutti_tensor_entry **order = of->order;
    const size_t n = of->n;
    tutti_state_hash *whole = h->whole, *own = h->own;
    tutti_state_out *out;
    const uint64_t bytes = head->bytes + (n == 0 ? 0 : order[n - 1]->begin + order[n - 1]->bytes);
    void *buffer;
    tutti_status status = tutti_state_out_open(&out, rt, part, bytes, err), closed;

    TUTTI_TRY(status);
    status = open_buffer(order, n, &buffer, err);
    if (status == TUTTI_OK)
        status = write_hashed(out, whole, NULL, head->text, head->bytes, err);
    for (size_t k = 0; k < n && status == TUTTI_OK; k++) {
        const void *data = order[k]->data;
        tutti_state_hash_begin(own);
        if (data == NULL && order[k]->bytes > 0 && !in_pieces(order[k]))
            status = order[k]->bring(order[k]->with, order[k], &data, err);
        if (status == TUTTI_OK)
            status = in_pieces(order[k])
                         ? write_in_pieces(out, whole, own, order[k], buffer, err)
                         : write_hashed(out, whole, own, data, (size_t)order[k]->bytes, err);
        order[k]->hash = tutti_state_hash_end(own);
    }
    tutti_free(buffer);
    closed = tutti_state_out_close(out, status == TUTTI_OK, status == TUTTI_OK ? err : NULL);
    return status == TUTTI_OK ? closed : status;
}

/* The order and the places of the entries in the file. */
static tutti_status arrange(const char *path, const tensors *of, tutti_tensor_entry *entries,
                            tutti_error *err)
{
    for (size_t k = 0; k < of->n; k++)
        of->order[k] = &entries[k];
    TUTTI_TRY(check_unique(path, of->order, of->n, err));
    if (of->n > 0)
        qsort(of->order, of->n, sizeof *of->order, by_size_then_name);
    return lay_out(path, of->order, of->n, err);
}

tutti_status tutti_safetensors_write(tutti_runtime *rt, const char *path,
                                     tutti_tensor_entry *entries, size_t n,
                                     const char *const *metadata, uint64_t *hash, tutti_error *err)
{
    tutti_status status;
    const tensors of = { tutti_alloc(n + 1, sizeof *of.order), n };
    tutti_state_hash *whole = tutti_state_hash_open(), *own = tutti_state_hash_open();
    char *part = tutti_alloc(strlen(path) + sizeof ".part", 1);
    header head = { NULL, 0 };

    if (hash != NULL)
        *hash = 0;
    if (of.order == NULL || part == NULL || whole == NULL || own == NULL) {
        status = tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory to write '%s'", path);
        goto out;
    }
    sprintf(part, "%s.part", path);
    status = arrange(path, &of, entries, err);
    if (status == TUTTI_OK)
        status = print_header(path, &of, metadata, &head, err);
    if (status == TUTTI_OK)
        status = tutti_file_remove(rt, part, err);
    if (status != TUTTI_OK)
        goto out;
    status = write_part(rt, part, &head, &of, &(hashes){ whole, own }, err);
    if (status == TUTTI_OK)
        status = tutti_file_rename(rt, part, path, err);
    if (status != TUTTI_OK)
        tutti_file_remove(rt, part, NULL);
    else if (hash != NULL)
        *hash = tutti_state_hash_end(whole);
out:
    tutti_free(of.order);
    tutti_free(part);
    tutti_free(head.text);
    tutti_state_hash_close(whole);
    tutti_state_hash_close(own);
    return status;
}
