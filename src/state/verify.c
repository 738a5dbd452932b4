/* verify.c: compares files of tensors with the hashes that they have in themselves (folder.h). */
#include "folder.h"
#include "state_internal.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define PIECE ((size_t)256 << 10)
#define MEND "take another copy of it, or convert it again"

typedef struct checking {
    tutti_tensor_file *f;
    json_t *hashes;               /* name -> 16 digits */
    tutti_state_hash *hash;
    uint8_t *buffer;              /* [PIECE] */
} checking;

/* The header is as it was when it was written, so the hashes in it are, too. */
static tutti_status check_header(const tutti_tensor_file *f, tutti_error *err)
{
    char *header = tutti_alloc((size_t)f->data + 1, 1);
    tutti_status status;

    if (header == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "no memory to verify '%s'", f->path);
    status = tutti_file_read(f->file, 0, header, (size_t)f->data, err);
    if (status == TUTTI_OK &&
        tutti_state_seal_of(header, (size_t)f->data) != TUTTI_SEAL_WHOLE)
        status = tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                            "'%s': its header does not have the hash that is written in it: it was "
                            "changed or damaged; " MEND,
                            f->path);
    tutti_free(header);
    return status;
}

static tutti_status check_tensor(const checking *c, const tutti_tensor_entry *e, tutti_error *err)
{
    const char *text = json_string_value(json_object_get(c->hashes, e->name));
    char shown[TUTTI_STATE_SHOWN];
    uint64_t wanted, found;

    tutti_state_shown(shown, e->name);
    if (text == NULL || !tutti_state_unhex(text, &wanted))
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0, "'%s' has no hash of tensor '%s'; " MEND,
                          c->f->path, shown);
    tutti_state_hash_begin(c->hash);
    for (uint64_t at = 0; at < e->bytes;) {
        const size_t n = e->bytes - at < PIECE ? (size_t)(e->bytes - at) : PIECE;
        TUTTI_TRY(tutti_safetensors_read(c->f, e, at, c->buffer, n, err));
        tutti_state_hash_add(c->hash, c->buffer, n);
        at += n;
    }
    found = tutti_state_hash_end(c->hash);
    if (found == wanted)
        return TUTTI_OK;
    return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                      "'%s', tensor '%s': bytes [%llu, %llu) of the file have hash %016llx, but "
                      "%016llx was written: they are damaged; " MEND,
                      c->f->path, shown, (unsigned long long)(c->f->data + e->begin),
                      (unsigned long long)(c->f->data + e->begin + e->bytes),
                      (unsigned long long)found, (unsigned long long)wanted);
}

/* hashed: the file has hashes. */
static tutti_status check_file(checking *c, bool *hashed, tutti_error *err)
{
    const char *hashes = tutti_safetensors_metadata(c->f, TUTTI_STATE_HASHES),
               *seal = tutti_safetensors_metadata(c->f, TUTTI_STATE_SEAL);
    char what[300];

    *hashed = hashes != NULL || seal != NULL;
    if (!*hashed)
        return TUTTI_OK;
    TUTTI_TRY(check_header(c->f, err));
    if (hashes == NULL)
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0, "'%s' has no " TUTTI_STATE_HASHES "; " MEND,
                          c->f->path);
    snprintf(what, sizeof what, "the hashes in '%s'", c->f->path);
    json_decref(c->hashes);
    TUTTI_TRY(tutti_state_json(&c->hashes, hashes, strlen(hashes), what, err));
    for (size_t k = 0; k < c->f->n; k++)
        TUTTI_TRY(check_tensor(c, &c->f->entries[k], err));
    return TUTTI_OK;
}

/* An index and its files have hashes together: else a changed key could make them vanish. */
static tutti_status check_folder(checking *c, tutti_tensor_file *folder, bool *hashed,
                                 tutti_error *err)
{
    *hashed = folder->sealed == TUTTI_SEAL_WHOLE;
    for (size_t k = 0; k < folder->n_parts; k++) {
        bool its;
        c->f = folder->parts[k];
        TUTTI_TRY(check_file(c, &its, err));
        if (its != *hashed)
            return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                              "'%s' has %s, but the index of its folder has %s: one of them is "
                              "damaged or of another folder; " MEND,
                              c->f->path, its ? "hashes" : "no hashes", its ? "none" : "one");
    }
    return TUTTI_OK;
}

tutti_status tutti_tensors_verify(tutti_tensor_file *f, bool *hashed, tutti_error *err)
{
    checking c = { .f = f, .hash = tutti_state_hash_open(), .buffer = tutti_alloc(PIECE, 1) };
    tutti_status status;

    *hashed = false;
    if (c.hash == NULL || c.buffer == NULL)
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "no memory to verify '%s'", f->path);
    else
        status = f->n_parts > 0 ? check_folder(&c, f, hashed, err) : check_file(&c, hashed, err);
    json_decref(c.hashes);
    tutti_state_hash_close(c.hash);
    tutti_free(c.buffer);
    return status;
}
