/* safetensors.c: reads files in the format safetensors (github.com/huggingface/safetensors, README
   "Format"). The content of the file is not trusted: every length is compared with the file's size
   before it is used, nothing larger than the header is allocated, and the ranges must tile the data
   section exactly. The writer is safetensors_write.c. */
#include "state_internal.h"
#include "runtime/files.h"
#include "parse.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MEND "the file is damaged or not a safetensors file"

static int by_name(const void *a, const void *b)
{
    return strcmp(((const tutti_tensor_entry *)a)->name, ((const tutti_tensor_entry *)b)->name);
}

static int by_place(const void *a, const void *b)
{
    const tutti_tensor_entry *x = a, *y = b;

    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    if (x->bytes != y->bytes) /* empty ones first: the next begins at the same byte */
        return x->bytes < y->bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* Copies a text to the end of f->text; it fits since all texts were measured. */
static char *keep_text(tutti_tensor_file *f, size_t *used, const char *text)
{
    char *kept = f->text + *used;

    strcpy(kept, text);
    *used += strlen(text) + 1;
    return kept;
}

static tutti_status take_metadata(tutti_tensor_file *f, json_t *object, size_t *used,
                                  tutti_error *err)
{
    char shown[TUTTI_STATE_SHOWN];
    const char *key;
    json_t *value;

    json_object_foreach(object, key, value) {
        f->metadata[2 * f->pairs] = keep_text(f, used, key);
        if (!json_is_string(value))
            return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                              "'%s' has metadata '%s' that is no text; " MEND, f->path,
                              tutti_state_shown(shown, key));
        f->metadata[2 * f->pairs + 1] = keep_text(f, used, json_string_value(value));
        f->pairs++;
    }
    return TUTTI_OK;
}

static tutti_status take_shape(const tutti_tensor_file *f, tutti_tensor_entry *e,
                               const json_t *shape, const char *shown, tutti_error *err)
{
    size_t bytes = tutti_dtype_bytes(e->dtype);
    bool empty = false;

    if (!json_is_array(shape))
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0, "'%s', tensor '%s': no shape; " MEND, f->path,
                          shown);
    if (json_array_size(shape) > TUTTI_SAFETENSORS_DIMS)
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                          "'%s', tensor '%s': %zu dimensions; at most %d are read", f->path, shown,
                          json_array_size(shape), TUTTI_SAFETENSORS_DIMS);
    e->dims = (int)json_array_size(shape);
    for (int k = 0; k < e->dims; k++) {
        if (!tutti_state_count(json_array_get(shape, (size_t)k), &e->dim[k]))
            return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                              "'%s', tensor '%s': dimension %d is no whole number from 0 up; " MEND,
                              f->path, shown, k + 1);
        empty = empty || e->dim[k] == 0;
    }
    for (int k = 0; k < e->dims && !empty; k++)
        if (!tutti_size_mul(bytes, (size_t)e->dim[k], &bytes))
            return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                              "'%s', tensor '%s': the shape's product overflows 64 bits at "
                              "dimension %d (%llu); " MEND,
                              f->path, shown, k + 1, (unsigned long long)e->dim[k]);
    e->bytes = empty ? 0 : bytes;
    return TUTTI_OK;
}

static tutti_status take_tensor(tutti_tensor_file *f, const char *name, const json_t *object,
                                size_t *used, tutti_error *err)
{
    tutti_tensor_entry *e = &f->entries[f->n];
    char shown[TUTTI_STATE_SHOWN], shown_dtype[TUTTI_STATE_SHOWN];
    const uint64_t section = f->file_bytes - f->data;
    const json_t *offsets, *dtype;
    uint64_t end;

    tutti_state_shown(shown, name);
    if (strlen(name) > TUTTI_STATE_NAME_MOST)
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                          "'%s', tensor '%s': the name has %zu bytes; at most %d are read", f->path,
                          shown, strlen(name), TUTTI_STATE_NAME_MOST);
    if (!json_is_object(object))
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                          "'%s', tensor '%s': no object with dtype, shape and data_offsets; " MEND,
                          f->path, shown);
    e->name = keep_text(f, used, name);

    dtype = json_object_get(object, "dtype");
    if (!json_is_string(dtype))
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0, "'%s', tensor '%s': no dtype; " MEND, f->path,
                          shown);
    if (!tutti_state_dtype(json_string_value(dtype), &e->dtype))
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                          "'%s', tensor '%s': dtype '%s' is not read (F64, F32, F16, BF16, I64, "
                          "I32, U8, I8 are); convert the file",
                          f->path, shown, tutti_state_shown(shown_dtype, json_string_value(dtype)));
    TUTTI_TRY(take_shape(f, e, json_object_get(object, "shape"), shown, err));
    offsets = json_object_get(object, "data_offsets");
    if (!json_is_array(offsets) || json_array_size(offsets) != 2 ||
        !tutti_state_count(json_array_get(offsets, 0), &e->begin) ||
        !tutti_state_count(json_array_get(offsets, 1), &end))
        return tutti_fail(
            err, TUTTI_ERR_CORRUPT, 0,
            "'%s', tensor '%s': data_offsets are not two whole numbers from 0 up; " MEND, f->path,
            shown);
    if (json_object_size(object) != 3)
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                          "'%s', tensor '%s': %zu members where dtype, shape and data_offsets are "
                          "all the format has; " MEND,
                          f->path, shown, json_object_size(object));
    if (end < e->begin || end > section)
        return tutti_fail(
            err, TUTTI_ERR_CORRUPT, 0,
            "'%s', tensor '%s': range [%llu, %llu) does not lie in the %llu bytes of data; the "
            "file was cut short or its header is damaged",
            f->path, shown, (unsigned long long)e->begin, (unsigned long long)end,
            (unsigned long long)section);
    if (end - e->begin != e->bytes)
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                          "'%s', tensor '%s': range [%llu, %llu) has %llu bytes, shape and dtype "
                          "ask for %llu; " MEND,
                          f->path, shown, (unsigned long long)e->begin, (unsigned long long)end,
                          (unsigned long long)(end - e->begin), (unsigned long long)e->bytes);
    f->n++;
    return TUTTI_OK;
}

/* The ranges tile the data section: none overlaps, none is missing.
   Leaves the entries sorted by name. */
static tutti_status check_tiling(tutti_tensor_file *f, tutti_error *err)
{
    char shown[TUTTI_STATE_SHOWN];
    uint64_t at = 0;

    if (f->n > 0)
        qsort(f->entries, f->n, sizeof *f->entries, by_place);
    for (size_t k = 0; k < f->n; k++) {
        const tutti_tensor_entry *e = &f->entries[k];
        if (e->begin != at)
            return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                              "'%s', tensor '%s': begins at %llu of the data, but the tensor "
                              "before it ends at %llu (%s); " MEND,
                              f->path, tutti_state_shown(shown, e->name),
                              (unsigned long long)e->begin, (unsigned long long)at,
                              e->begin < at ? "they overlap" : "a hole");
        at = e->begin + e->bytes;
    }
    if (at != f->file_bytes - f->data)
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                          "'%s' has %llu bytes of data, but its tensors end at %llu; bytes were "
                          "added, or its header is damaged",
                          f->path, (unsigned long long)(f->file_bytes - f->data),
                          (unsigned long long)at);
    if (f->n > 0)
        qsort(f->entries, f->n, sizeof *f->entries, by_name);
    return TUTTI_OK;
}

static tutti_status take_header(tutti_tensor_file *f, json_t *root, tutti_error *err)
{
    json_t *metadata = json_object_get(root, "__metadata__"), *value;
    size_t bytes = 1, used = 0;
    const char *key;

    if (metadata != NULL && !json_is_object(metadata))
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                          "'%s' has __metadata__ that is no object; " MEND, f->path);
    json_object_foreach(root, key,
                        value) /* all texts together are shorter than the header: no overflow */
        bytes += strlen(key) + 1;
    json_object_foreach(metadata, key, value) bytes +=
        strlen(key) + 1 + (json_is_string(value) ? strlen(json_string_value(value)) + 1 : 0);
    f->text = tutti_alloc(bytes, 1);
    f->entries = tutti_alloc(json_object_size(root) + 1, sizeof *f->entries);
    f->metadata = tutti_alloc(2 * json_object_size(metadata) + 1, sizeof *f->metadata);
    if (f->text == NULL || f->entries == NULL || f->metadata == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory for the %zu tensors of '%s'",
                          json_object_size(root), f->path);
    TUTTI_TRY(take_metadata(f, metadata, &used, err));
    json_object_foreach(root, key, value)
        if (value != metadata)
            TUTTI_TRY(take_tensor(f, key, value, &used, err));
    return check_tiling(f, err);
}

/* Files that users give by mistake, recognised by their first bytes. */
static tutti_status another_kind(const char *path, const uint8_t *head, size_t have,
                                 tutti_error *err)
{
    static const struct { const char *begins; size_t bytes; const char *is, *mend;
    } kinds[] = {
        { "PK\3\4", 4, "a zip archive, as torch.save writes",
          "load it in PyTorch and save its state_dict with safetensors.torch.save_file" },
        { "\x80\2", 2, "a pickle, as torch.save used to write",
          "load it in PyTorch and save its state_dict with safetensors.torch.save_file" },
        { "\x80\3", 2, "a pickle", "load it in Python and save it with safetensors" },
        { "\x80\4", 2, "a pickle", "load it in Python and save it with safetensors" },
        { "\x80\5", 2, "a pickle", "load it in Python and save it with safetensors" },
        { "\x93NUMPY", 6, "an array of NumPy", "save it with safetensors.numpy.save_file" },
        { "\x89HDF", 4, "an HDF5 file",
          "load it where it comes from and save it with safetensors" },
        { "GGUF", 4, "a GGUF file", "take the safetensors files that it was made of" },
        { "version ", 8, "a pointer of Git LFS and not the file itself",
          "fetch that: git lfs pull" },
    };

    for (size_t k = 0; k < TUTTI_LENGTH(kinds); k++)
        if (have >= kinds[k].bytes && memcmp(head, kinds[k].begins, kinds[k].bytes) == 0)
            return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                              "'%s' is %s, but weights are read from a safetensors file; %s", path,
                              kinds[k].is, kinds[k].mend);
    return TUTTI_OK;
}

static tutti_status check_length(const char *path, const uint8_t *head, size_t have,
                                 uint64_t file_bytes, uint64_t *length, tutti_error *err)
{
    *length = 0;
    if (file_bytes < 8 || have < 8)
        return tutti_fail(
            err, TUTTI_ERR_CORRUPT, 0,
            "'%s' has %llu bytes, fewer than the 8 that give a safetensors file's header length; "
            "it was cut short",
            path, (unsigned long long)(have < file_bytes ? have : file_bytes));
    for (int k = 7; k >= 0; k--)
        *length = *length << 8 | head[k];
    if (*length > file_bytes - 8) /* else those bytes are a length */
        TUTTI_TRY(another_kind(path, head, have, err));
    if (*length > TUTTI_STATE_HEADER_MOST)
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                          "'%s' claims a header of %llu bytes; at most %llu are read; " MEND, path,
                          (unsigned long long)*length, (unsigned long long)TUTTI_STATE_HEADER_MOST);
    if (*length > file_bytes - 8)
        return tutti_fail(
            err, TUTTI_ERR_CORRUPT, 0,
            "'%s' claims a header of %llu bytes, but only %llu follow; it was cut short", path,
            (unsigned long long)*length, (unsigned long long)(file_bytes - 8));
    return TUTTI_OK;
}

tutti_status tutti_safetensors_parse(tutti_tensor_file **out, const char *path, const uint8_t *head,
                                     size_t have, uint64_t file_bytes, tutti_error *err)
{
    tutti_status status;
    tutti_tensor_file *f;
    json_t *root = NULL;
    char what[300];
    uint64_t length;

    *out = NULL;
    TUTTI_TRY(check_length(path, head, have, file_bytes, &length, err));
    if (have - 8 < length)
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                          "'%s': %zu of the header's %llu bytes are there; it was cut short", path,
                          have - 8, (unsigned long long)length);
    if (length == 0 || head[8] != '{')
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                          "'%s' has a header that does not begin with '{'; " MEND, path);
    f = tutti_alloc(1, sizeof *f);
    if (f == NULL || (f->path = tutti_copy_text(path)) == NULL) {
        status = tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory to open '%s'", path);
        goto out;
    }
    f->data = 8 + length;
    f->file_bytes = file_bytes;
    snprintf(what, sizeof what, "header of '%s'", path);
    status = tutti_state_json(&root, (const char *)head + 8, (size_t)length, what, err);
    if (status == TUTTI_OK)
        status = take_header(f, root, err);
out:
    json_decref(root);
    if (status == TUTTI_OK)
        *out = f;
    else
        tutti_safetensors_close(f);
    return status;
}

tutti_status tutti_safetensors_open(tutti_tensor_file **out, tutti_runtime *rt, const char *path,
                                    tutti_error *err)
{
    tutti_file *file = NULL;
    uint8_t eight[8] = { 0 }, *head = NULL;
    uint64_t length, bytes;
    tutti_status status = tutti_file_open(&file, rt, path, TUTTI_FILE_READ, err);

    *out = NULL;
    if (status != TUTTI_OK)
        return status;
    bytes = tutti_file_bytes(file);
    if (bytes >= 8)
        status = tutti_file_read(file, 0, eight, 8, err);
    if (status == TUTTI_OK)
        status = check_length(path, eight, 8, bytes, &length, err);
    if (status != TUTTI_OK)
        goto out;
    head = tutti_alloc((size_t)(8 + length), 1);
    if (head == NULL) {
        status =
            tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory (%llu bytes) for the header of '%s'",
                       (unsigned long long)length, path);
        goto out;
    }
    status = tutti_file_read(file, 0, head, (size_t)(8 + length), err);
    if (status == TUTTI_OK)
        status = tutti_safetensors_parse(out, path, head, (size_t)(8 + length), bytes, err);
out:
    tutti_free(head);
    if (status == TUTTI_OK)
        (*out)->file = file;
    else
        tutti_file_close(file, NULL);
    return status;
}

void tutti_safetensors_close(tutti_tensor_file *f)
{
    if (f == NULL)
        return;
    tutti_file_close(f->file, NULL);
    for (size_t k = 0; k < f->n_parts; k++)
        tutti_safetensors_close(f->parts[k]);
    tutti_free(f->parts);
    tutti_free(f->entries);
    tutti_free(f->metadata);
    tutti_free(f->text);
    tutti_free(f->path);
    tutti_free(f);
}

size_t tutti_safetensors_count(const tutti_tensor_file *f)
{
    return f->n;
}

const tutti_tensor_entry *tutti_safetensors_entry(const tutti_tensor_file *f, size_t i)
{
    return i < f->n ? &f->entries[i] : NULL;
}

const tutti_tensor_entry *tutti_safetensors_find(const tutti_tensor_file *f, const char *name)
{
    const tutti_tensor_entry wanted = { .name = name };

    return f->n == 0 ? NULL : bsearch(&wanted, f->entries, f->n, sizeof *f->entries, by_name);
}

const char *tutti_safetensors_metadata(const tutti_tensor_file *f, const char *key)
{
    for (size_t k = 0; k < f->pairs; k++)
        if (strcmp(f->metadata[2 * k], key) == 0)
            return f->metadata[2 * k + 1];
    return NULL;
}

/* The file that has byte *at of the data; *at becomes a place in its own. */
static const tutti_tensor_file *part_of(const tutti_tensor_file *f, uint64_t *at)
{
    size_t k = 0;

    if (f->n_parts == 0)
        return f;
    for (; k + 1 < f->n_parts && *at >= f->parts[k]->file_bytes - f->parts[k]->data; k++)
        *at -= f->parts[k]->file_bytes - f->parts[k]->data;
    return f->parts[k];
}

tutti_status tutti_safetensors_read(tutti_tensor_file *f, const tutti_tensor_entry *e,
                                    uint64_t offset, void *to, size_t bytes, tutti_error *err)
{
    char shown[TUTTI_STATE_SHOWN];
    uint64_t at = e->begin;
    const tutti_tensor_file *part = part_of(f, &at);

    if (bytes > 0 && part->file == NULL)
        return tutti_fail(err, TUTTI_ERR_STATE, 0,
                          "'%s' was parsed from memory; there is no file to read tensors from",
                          f->path);
    if (offset > e->bytes || bytes > e->bytes - offset)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "'%s', tensor '%s': bytes [%llu, %llu + %zu) were asked for, it has %llu",
                          f->path, tutti_state_shown(shown, e->name), (unsigned long long)offset,
                          (unsigned long long)offset, bytes, (unsigned long long)e->bytes);
    return bytes == 0 ? TUTTI_OK
                      : tutti_file_read(part->file, part->data + at + offset, to, bytes, err);
}
