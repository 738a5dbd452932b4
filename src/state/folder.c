/* folder.c: opens a folder of safetensors files with an index as if it were one file. The index is
   a JSON object: {"metadata": {"total_size": bytes}, "weight_map": {tensor: file}}. It and the
   files are not trusted; what has to hold is in folder.h. */
#include "folder.h"
#include "state_internal.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MEND "fetch the folder again, or save it again where it comes from"
#define ENDING ".safetensors"

typedef struct folder {
    tutti_runtime *rt;
    const char *path;
    char *index;                  /* path of the index */
    json_t *root, *names;         /* names: of the files, each with its number */
    const json_t *map;            /* tensor -> file */
    tutti_tensor_file *f;
} folder;

static int by_name(const void *a, const void *b)
{
    return strcmp(((const tutti_tensor_entry *)a)->name, ((const tutti_tensor_entry *)b)->name);
}

/* ---- the index ---- */

static tutti_status no_memory(const folder *d, tutti_error *err)
{
    return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "no memory to open '%s'", d->path);
}

static tutti_status parse_index(folder *d, char *text, size_t bytes, tutti_error *err)
{
    char what[300];

    d->f->sealed = tutti_state_seal_of(text, bytes);
    if (d->f->sealed == TUTTI_SEAL_BROKEN)
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                          "'%s' does not have the hash that is written in it: it was changed or "
                          "damaged; " MEND,
                          d->index);
    snprintf(what, sizeof what, "'%s'", d->index);
    TUTTI_TRY(tutti_state_json(&d->root, text, bytes, what, err));
    d->map = json_object_get(d->root, "weight_map");
    if (!json_is_object(d->map))
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                          "'%s' has no weight_map, which says what file has which tensor; " MEND,
                          d->index);
    return TUTTI_OK;
}

static tutti_status read_index(folder *d, tutti_error *err)
{
    tutti_file *file;
    char *text = NULL;
    uint64_t bytes;
    tutti_status status;

    TUTTI_TRY(tutti_file_open(&file, d->rt, d->index, TUTTI_FILE_READ, err));
    bytes = tutti_file_bytes(file);
    if (bytes > TUTTI_STATE_MANIFEST_MOST)
        status = tutti_fail(err, TUTTI_ERR_CORRUPT, 0, "'%s' has %llu bytes; at most %llu are read",
                            d->index, (unsigned long long)bytes,
                            (unsigned long long)TUTTI_STATE_MANIFEST_MOST);
    else if ((text = tutti_alloc((size_t)bytes + 1, 1)) == NULL)
        status = no_memory(d, err);
    else
        status = bytes == 0 ? TUTTI_OK : tutti_file_read(file, 0, text, (size_t)bytes, err);
    tutti_file_close(file, NULL);
    if (status == TUTTI_OK)
        status = parse_index(d, text, (size_t)bytes, err);
    tutti_free(text);
    return status;
}

/* A file in the folder itself: no path leads out of it. */
static bool is_plain(const char *name)
{
    const size_t n = strlen(name), ending = sizeof ENDING - 1;

    if (n <= ending || n > 255 || strcmp(name + n - ending, ENDING) != 0 || name[0] == '.')
        return false;
    for (const char *c = name; *c != 0; c++)
        if (*c == '/' || *c == '\\' || (unsigned char)*c < ' ' || *c == 0x7f)
            return false;
    return true;
}

static tutti_status list_files(folder *d, tutti_error *err)
{
    char shown[TUTTI_STATE_SHOWN], shown_file[TUTTI_STATE_SHOWN];
    const char *tensor;
    json_t *file;

    d->names = json_object();
    if (d->names == NULL)
        return no_memory(d, err);
    json_object_foreach((json_t *)(uintptr_t)d->map, tensor, file) {
        const char *name = json_string_value(file);
        if (name == NULL || !is_plain(name))
            return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                              "'%s': tensor '%s' is said to be in '%s', which is no name of a "
                              "safetensors file in this folder; such an index is not followed",
                              d->index, tutti_state_shown(shown, tensor),
                              tutti_state_shown(shown_file, name != NULL ? name : "(no text)"));
        if (json_object_get(d->names, name) == NULL &&
            json_object_set_new(d->names, name,
                                json_integer((json_int_t)json_object_size(d->names))) != 0)
            return no_memory(d, err);
    }
    return TUTTI_OK;
}

/* ---- the files ---- */

static tutti_status open_part(folder *d, const char *name, tutti_error *err)
{
    char *path = tutti_state_join(d->path, name);
    tutti_status status;

    if (path == NULL)
        return no_memory(d, err);
    if (!tutti_file_exists(d->rt, path))
        status = tutti_fail(err, TUTTI_ERR_CORRUPT, ENOENT,
                            "'%s' names '%s', which is not in the folder; " MEND, d->index, name);
    else
        status = tutti_safetensors_open(&d->f->parts[d->f->n_parts], d->rt, path, err);
    d->f->n_parts += status == TUTTI_OK;
    tutti_free(path);
    return status;
}

/* Adds the tensors of a file. base: bytes of data of the files before it. */
static tutti_status take_part(folder *d, const char *name, const tutti_tensor_file *part,
                              uint64_t base, tutti_error *err)
{
    char shown[TUTTI_STATE_SHOWN];

    for (size_t k = 0; k < part->n; k++) {
        const tutti_tensor_entry *e = &part->entries[k];
        const char *where = json_string_value(json_object_get(d->map, e->name));
        tutti_state_shown(shown, e->name);
        if (where == NULL)
            return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                              "'%s' has tensor '%s', which '%s' does not list; " MEND, part->path,
                              shown, d->index);
        if (strcmp(where, name) != 0)
            return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                              "'%s' has tensor '%s', which '%s' lists in '%s': it may be in one "
                              "file only; " MEND,
                              part->path, shown, d->index, where);
        d->f->entries[d->f->n] = *e;
        d->f->entries[d->f->n++].begin += base;
    }
    return TUTTI_OK;
}

/* All files have been taken, so what lacks is in none. */
static tutti_status check_complete(const folder *d, tutti_error *err)
{
    char shown[TUTTI_STATE_SHOWN];
    const char *tensor;
    json_t *file;

    json_object_foreach((json_t *)(uintptr_t)d->map, tensor, file)
        if (tutti_safetensors_find(d->f, tensor) == NULL)
            return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                              "'%s' lists tensor '%s' in '%s', which does not have it; " MEND,
                              d->index, tutti_state_shown(shown, tensor), json_string_value(file));
    return TUTTI_OK;
}

/* Some writers print the number as a real one. */
static tutti_status check_total(const folder *d, uint64_t bytes, tutti_error *err)
{
    const json_t *total = json_object_get(json_object_get(d->root, "metadata"), "total_size");

    if (total == NULL ||
        (json_is_integer(total) && (uint64_t)json_integer_value(total) == bytes) ||
        (json_is_real(total) && json_real_value(total) == (double)bytes))
        return TUTTI_OK;
    if (!json_is_number(total))
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0, "'%s' has a total_size that is no number",
                          d->index);
    return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                      "'%s' has total_size %.0f, but its tensors have %llu bytes; " MEND
                      ", or correct that number if it is what is wrong",
                      d->index, json_number_value(total), (unsigned long long)bytes);
}

static tutti_status merge_parts(folder *d, tutti_error *err)
{
    const char *name;
    json_t *number;
    size_t n = 0, bytes = 0;

    for (size_t k = 0; k < d->f->n_parts; k++)
        n += d->f->parts[k]->n;
    d->f->entries = tutti_alloc(n + 1, sizeof *d->f->entries);
    if (d->f->entries == NULL)
        return no_memory(d, err);
    json_object_foreach(d->names, name, number) {
        const tutti_tensor_file *part = d->f->parts[json_integer_value(number)];
        TUTTI_TRY(take_part(d, name, part, bytes, err));
        if (!tutti_size_add(bytes, (size_t)(part->file_bytes - part->data), &bytes))
            return tutti_fail(err, TUTTI_ERR_CORRUPT, 0, "'%s' has more than 64 bits of bytes",
                              d->path);
    }
    if (d->f->n > 0)
        qsort(d->f->entries, d->f->n, sizeof *d->f->entries, by_name);
    TUTTI_TRY(check_complete(d, err));
    return check_total(d, bytes, err);
}

static tutti_status open_parts(folder *d, tutti_error *err)
{
    const char *name;
    json_t *number;

    d->f->parts = tutti_alloc(json_object_size(d->names) + 1, sizeof(tutti_tensor_file *));
    if (d->f->parts == NULL)
        return no_memory(d, err);
    json_object_foreach(d->names, name, number)
        TUTTI_TRY(open_part(d, name, err));
    return merge_parts(d, err);
}

static tutti_status open_folder(tutti_tensor_file **out, tutti_runtime *rt, const char *path,
                                tutti_error *err)
{
    folder d = { .rt = rt, .path = path, .index = tutti_state_join(path, TUTTI_TENSORS_INDEX) };
    tutti_status status = TUTTI_OK;

    d.f = tutti_alloc(1, sizeof *d.f);
    if (d.f == NULL || d.index == NULL || (d.f->path = tutti_copy_text(path)) == NULL)
        status = no_memory(&d, err);
    if (status == TUTTI_OK)
        status = read_index(&d, err);
    if (status == TUTTI_OK)
        status = list_files(&d, err);
    if (status == TUTTI_OK)
        status = open_parts(&d, err);
    json_decref(d.root);
    json_decref(d.names);
    tutti_free(d.index);
    if (status == TUTTI_OK)
        *out = d.f;
    else
        tutti_safetensors_close(d.f);
    return status;
}

/* ---- opening ---- */

static tutti_status stop(void *user, const char *name, tutti_error *err)
{
    (void)user;
    (void)name;
    (void)err;
    return TUTTI_CLOSED;
}

static tutti_status look(bool *directory, tutti_runtime *rt, const char *path, tutti_error *err)
{
    tutti_error why = { .rank = -1 };
    const tutti_status status = tutti_directory_list(rt, path, stop, NULL, &why);

    *directory = status == TUTTI_OK || status == TUTTI_CLOSED;
    if (status == TUTTI_ERR_MEMORY && err != NULL)
        *err = why;
    return status == TUTTI_ERR_MEMORY ? status : TUTTI_OK;
}

tutti_status tutti_tensors_open(tutti_tensor_file **out, tutti_runtime *rt, const char *path,
                                tutti_error *err)
{
    char *single, *index;
    bool directory;
    tutti_status status;

    *out = NULL;
    TUTTI_TRY(look(&directory, rt, path, err));
    if (!directory)
        return tutti_safetensors_open(out, rt, path, err);
    single = tutti_state_join(path, TUTTI_TENSORS_FILE);
    index = tutti_state_join(path, TUTTI_TENSORS_INDEX);
    if (single == NULL || index == NULL)
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "no memory to open '%s'", path);
    else if (tutti_file_exists(rt, single)) /* first, as transformers has it */
        status = tutti_safetensors_open(out, rt, single, err);
    else if (tutti_file_exists(rt, index))
        status = open_folder(out, rt, path, err);
    else
        status = tutti_fail(err, TUTTI_ERR_USAGE, 0,
                            "'%s' has neither " TUTTI_TENSORS_FILE " nor " TUTTI_TENSORS_INDEX
                            "; give a safetensors file, or a folder as save_pretrained writes it",
                            path);
    tutti_free(single);
    tutti_free(index);
    return status;
}
