/* manifest.c: manifest.json, the text that makes a directory a checkpoint. Keys are sorted and
   nothing in it depends on time or host, so equal saves give equal bytes. Its last member is the
   XXH3-64 of every byte before that member:

     { "facts": {...},
       "files": [{"bytes", "rank", "xxh3"}],
       "format": "tutti-checkpoint",
       "states": [{"count", "dtype", "keep",
                   "ranges": [{"begin", "end", "file", "owner", "xxh3"}], "state", "tensor"}],
       "step", "version", "world", "xxh3": "0123456789abcdef" }

   "file" counts in files; a file's name follows from its rank and the world, so no path is ever
   taken from a file. States are sorted by (state, tensor), ranges by (owner, begin), and must tile
   [0, count) for every owner. */
#include "state_internal.h"
#include "parse.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FORMAT "tutti-checkpoint"
#define FORMAT_VERSION 1
#define MEND "the manifest is damaged; use an older checkpoint"

/* The text after the bytes that the seal covers. */
#define SEAL_BEFORE ",\n \"xxh3\": \""
#define SEAL_AFTER "\"\n}\n"
#define SEAL_BYTES (sizeof SEAL_BEFORE - 1 + 16 + sizeof SEAL_AFTER - 1)

void tutti_state_file_name(char out[TUTTI_STATE_FILE_NAME], int rank, int world)
{
    snprintf(out, TUTTI_STATE_FILE_NAME, "rank-%05d-of-%05d.safetensors", rank, world);
}

void tutti_state_key(char *out, size_t room, const char *state, const char *tensor, uint64_t begin)
{
    snprintf(out, room, "%s/%s@%llu", state, tensor, (unsigned long long)begin);
}

int tutti_state_order(const char *state, const char *tensor, const char *other_state,
                      const char *other_tensor)
{
    const int order = strcmp(state, other_state);
    return order != 0 ? order : strcmp(tensor, other_tensor);
}

/* True if state of this `keep` can belong to `owner`; -1: to all ranks. */
static bool owner_fits(tutti_keep keep, int owner, int world)
{
    switch (keep) {
    case TUTTI_SAME: case TUTTI_SLICE: return owner == -1;
    default: return owner >= 0 && owner < world;
    }
}

static bool keep_of(const char *name, tutti_keep *keep)
{
    static const tutti_keep known[] = { TUTTI_SAME, TUTTI_SLICE, TUTTI_OWN_MEAN, TUTTI_OWN_SUM,
                                        TUTTI_OWN_ZERO };

    for (size_t k = 0; k < TUTTI_LENGTH(known); k++)
        if (strcmp(name, tutti_keep_name(known[k])) == 0) {
            *keep = known[k];
            return true;
        }
    return false;
}

/* ---- checking ---- */

/* The ranges of one owner tile [0, count). *k: from its first range to behind its last. */
static tutti_status check_owner(const tutti_checkpoint *c, const tutti_manifest_state *s, size_t *k,
                                const char *what, tutti_error *err)
{
    const int owner = c->ranges[*k].owner;
    char state[TUTTI_STATE_SHOWN], tensor[TUTTI_STATE_SHOWN], whose[32] = "";
    uint64_t at = 0;

    tutti_state_shown(state, s->state);
    tutti_state_shown(tensor, s->tensor);
    if (owner >= 0)
        snprintf(whose, sizeof whose, " of rank %d", owner);
    for (; *k < s->first + s->n && c->ranges[*k].owner == owner; ++*k) {
        const tutti_manifest_range *r = &c->ranges[*k];
        if (r->begin >= r->end || r->end > s->count)
            return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                              "%s: '%s/%s'%s has a range [%llu, %llu) of %llu elements", what,
                              state, tensor, whose, (unsigned long long)r->begin,
                              (unsigned long long)r->end, (unsigned long long)s->count);
        if (r->begin < at)
            return tutti_fail(
                err, TUTTI_ERR_CORRUPT, 0,
                "%s: '%s/%s'%s has elements from %llu in two ranges; each must be saved once", what,
                state, tensor, whose, (unsigned long long)r->begin);
        if (r->begin > at)
            return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                              "%s: '%s/%s'%s lacks elements [%llu, %llu) of %llu", what, state,
                              tensor, whose, (unsigned long long)at, (unsigned long long)r->begin,
                              (unsigned long long)s->count);
        at = r->end;
    }
    if (at < s->count)
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                          "%s: '%s/%s'%s lacks elements [%llu, %llu) of %llu", what, state, tensor,
                          whose, (unsigned long long)at, (unsigned long long)s->count,
                          (unsigned long long)s->count);
    return TUTTI_OK;
}

static tutti_status check_state(const tutti_checkpoint *c, const tutti_manifest_state *s,
                                const char *what, tutti_error *err)
{
    char state[TUTTI_STATE_SHOWN], tensor[TUTTI_STATE_SHOWN];
    int before = -2;
    size_t bytes;

    tutti_state_shown(state, s->state);
    tutti_state_shown(tensor, s->tensor);
    if (s->state[0] == '\0' || strchr(s->state, '/') != NULL || strchr(s->tensor, '@') != NULL ||
        !tutti_state_utf8(s->state) || !tutti_state_utf8(s->tensor) ||
        strlen(s->state) + strlen(s->tensor) + 24 > TUTTI_STATE_NAME_MOST)
        return tutti_fail(
            err, TUTTI_ERR_CORRUPT, 0,
            "%s: no state can be named '%s/%s' (UTF-8, no '/' in the state, no '@' in the tensor, "
            "at most %d bytes in all)",
            what, state, tensor, TUTTI_STATE_NAME_MOST - 24);
    if (!tutti_size_mul((size_t)s->count, tutti_dtype_bytes(s->dtype), &bytes) ||
        s->count > INT64_MAX)
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                          "%s: '%s/%s' has %llu elements, more than memory can hold", what, state,
                          tensor, (unsigned long long)s->count);
    if (s->n == 0 && s->count > 0)
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0, "%s: '%s/%s' lacks elements [0, %llu) of %llu",
                          what, state, tensor, (unsigned long long)s->count,
                          (unsigned long long)s->count);
    for (size_t k = s->first; k < s->first + s->n;) {
        const int owner = c->ranges[k].owner;
        if (!owner_fits(s->keep, owner, c->world))
            return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                              "%s: '%s/%s' is kept '%s' and cannot be owned by rank %d of %d", what,
                              state, tensor, tutti_keep_name(s->keep), owner, c->world);
        if (owner <= before)
            return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                              "%s: '%s/%s' has its ranges out of order at owner %d", what, state,
                              tensor, owner);
        before = owner;
        TUTTI_TRY(check_owner(c, s, &k, what, err));
    }
    return TUTTI_OK;
}

/* No range exceeds its file: otherwise a short manifest could describe tensors that no file could
   hold. */
static tutti_status check_room(const tutti_checkpoint *c, const char *what, tutti_error *err)
{
    tutti_status status = TUTTI_OK;
    uint64_t *left = tutti_alloc(c->n_files + 1, sizeof *left);

    if (left == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory to check %s", what);
    for (size_t k = 0; k < c->n_files; k++)
        left[k] = c->files[k].bytes;
    for (size_t s = 0; s < c->n_states && status == TUTTI_OK; s++)
        for (size_t k = c->states[s].first;
             k < c->states[s].first + c->states[s].n && status == TUTTI_OK; k++) {
            const tutti_manifest_range *r = &c->ranges[k];
            /* checked against count before */
            const uint64_t bytes = (r->end - r->begin) * tutti_dtype_bytes(c->states[s].dtype);
            if (bytes > left[r->file])
                status = tutti_fail(
                    err, TUTTI_ERR_CORRUPT, 0,
                    "%s: the file of rank %d has %llu bytes, fewer than its ranges need", what,
                    c->files[r->file].rank, (unsigned long long)c->files[r->file].bytes);
            else
                left[r->file] -= bytes;
        }
    tutti_free(left);
    return status;
}

tutti_status tutti_manifest_check(const tutti_checkpoint *c, const char *what, tutti_error *err)
{
    for (size_t k = 0; k < c->n_states; k++) {
        const tutti_manifest_state *s = &c->states[k];
        if (k > 0 && tutti_state_order(s[-1].state, s[-1].tensor, s->state, s->tensor) >= 0) {
            char state[TUTTI_STATE_SHOWN], tensor[TUTTI_STATE_SHOWN];
            return tutti_fail(err, TUTTI_ERR_CORRUPT, 0, "%s: '%s/%s' stands twice or out of order",
                              what, tutti_state_shown(state, s->state),
                              tutti_state_shown(tensor, s->tensor));
        }
        TUTTI_TRY(check_state(c, s, what, err));
    }
    return check_room(c, what, err);
}

/* ---- printing ---- */

static json_t *hash_json(uint64_t hash)
{
    char text[17];

    tutti_state_hex(text, hash);
    return json_string(text);
}

static json_t *files_json(const tutti_checkpoint *c)
{
    json_t *files = json_array();

    for (size_t k = 0; k < c->n_files && files != NULL; k++) {
        const tutti_manifest_file *f = &c->files[k];
        if (json_array_append_new(files, json_pack("{s:I, s:i, s:o}", "bytes", (json_int_t)f->bytes,
                                                   "rank", f->rank, "xxh3", hash_json(f->hash))) !=
            0) {
            json_decref(files);
            return NULL;
        }
    }
    return files;
}

static json_t *ranges_json(const tutti_checkpoint *c, const tutti_manifest_state *s)
{
    json_t *ranges = json_array();

    for (size_t k = s->first; k < s->first + s->n && ranges != NULL; k++) {
        const tutti_manifest_range *r = &c->ranges[k];
        if (json_array_append_new(ranges, json_pack("{s:I, s:I, s:I, s:i, s:o}", "begin",
                                                    (json_int_t)r->begin, "end", (json_int_t)r->end,
                                                    "file", (json_int_t)r->file, "owner", r->owner,
                                                    "xxh3", hash_json(r->hash))) != 0) {
            json_decref(ranges);
            return NULL;
        }
    }
    return ranges;
}

static json_t *states_json(const tutti_checkpoint *c)
{
    json_t *states = json_array();

    for (size_t k = 0; k < c->n_states && states != NULL; k++) {
        const tutti_manifest_state *s = &c->states[k];
        if (json_array_append_new(
                states,
                json_pack("{s:I, s:s, s:s, s:o, s:s, s:s}", "count", (json_int_t)s->count, "dtype",
                          tutti_dtype_name(s->dtype), "keep", tutti_keep_name(s->keep), "ranges",
                          ranges_json(c, s), "state", s->state, "tensor", s->tensor)) != 0) {
            json_decref(states);
            return NULL;
        }
    }
    return states;
}

tutti_status tutti_manifest_print(const tutti_checkpoint *c, char **text, size_t *bytes,
                                  tutti_error *err)
{
    tutti_status status = TUTTI_OK;
    json_t *facts = NULL, *root = NULL;
    char hash[17];
    size_t json;

    *text = NULL;
    *bytes = 0;
    status = tutti_state_json(&facts, c->facts, strlen(c->facts), "the checkpoint's facts", err);
    if (status == TUTTI_OK && !json_is_object(facts))
        status = tutti_fail(err, TUTTI_ERR_USAGE, 0, "the checkpoint's facts are no JSON object");
    if (status != TUTTI_OK)
        goto out;
    root = json_pack("{s:O, s:o, s:s, s:i, s:o, s:I, s:s, s:i}", "facts", facts, "files",
                     files_json(c), "format", FORMAT, "format_version", FORMAT_VERSION, "states",
                     states_json(c), "step", (json_int_t)c->step, "version", tutti_version(),
                     "world", c->world);
    json = root == NULL ? 0 : json_dumpb(root, NULL, 0, JSON_SORT_KEYS | JSON_INDENT(1));
    if (json == 0 || (*text = tutti_alloc(json + SEAL_BYTES + 1, 1)) == NULL) {
        status =
            tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory for the manifest of '%s' (%zu ranges)",
                       c->path, c->n_ranges);
        goto out;
    }
    json_dumpb(root, *text, json, JSON_SORT_KEYS | JSON_INDENT(1));
    json -= 2; /* the last "\n}" is appended again after the seal */
    tutti_state_hex(hash, tutti_hash(*text, json));
    *bytes = json + SEAL_BYTES;
    snprintf(*text + json, SEAL_BYTES + 1, SEAL_BEFORE "%s" SEAL_AFTER, hash);
    if (*bytes > TUTTI_STATE_MANIFEST_MOST) {
        status = tutti_fail(err, TUTTI_ERR_USAGE, 0,
                            "the manifest '%s' would have %zu bytes, more than the %llu we read; "
                            "save fewer tensors or ranges",
                            c->path, *bytes, (unsigned long long)TUTTI_STATE_MANIFEST_MOST);
        tutti_free(*text);
        *text = NULL;
        *bytes = 0;
    }
out:
    json_decref(facts);
    json_decref(root);
    return status;
}

/* ---- parsing ---- */

static tutti_status bad(const tutti_checkpoint *c, const char *place, size_t k, tutti_error *err)
{
    return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                      "'%s': %s %zu is not what the format requires; " MEND, c->path, place, k);
}

static bool take_int(const json_t *value, int *to, int most)
{
    if (!json_is_integer(value) || json_integer_value(value) < -1 ||
        json_integer_value(value) > most)
        return false;
    *to = (int)json_integer_value(value);
    return true;
}

static bool take_hash(const json_t *value, uint64_t *hash)
{
    return json_is_string(value) && tutti_state_unhex(json_string_value(value), hash);
}

static tutti_status take_files(tutti_checkpoint *c, const json_t *files, tutti_error *err)
{
    const size_t n = json_array_size(files);

    if (!json_is_array(files) || n > (size_t)c->world)
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0, "'%s' lists %zu files of %d ranks; " MEND,
                          c->path, n, c->world);
    c->files = tutti_alloc(n + 1, sizeof *c->files);
    if (c->files == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory for the %zu files of '%s'", n,
                          c->path);
    for (size_t k = 0; k < n; k++) {
        const json_t *o = json_array_get(files, k);
        tutti_manifest_file *f = &c->files[k];
        if (json_object_size(o) != 3 ||
            !tutti_state_count(json_object_get(o, "bytes"), &f->bytes) ||
            !take_int(json_object_get(o, "rank"), &f->rank, c->world - 1) || f->rank < 0 ||
            !take_hash(json_object_get(o, "xxh3"), &f->hash) || (k > 0 && f->rank <= f[-1].rank))
            return bad(c, "file", k, err);
    }
    c->n_files = n;
    return TUTTI_OK;
}

static tutti_status take_ranges(tutti_checkpoint *c, tutti_manifest_state *s, const json_t *ranges,
                                size_t at, tutti_error *err)
{
    s->first = c->n_ranges;
    for (size_t k = 0; k < json_array_size(ranges); k++) {
        const json_t *o = json_array_get(ranges, k);
        tutti_manifest_range *r = &c->ranges[c->n_ranges];
        uint64_t file;
        if (json_object_size(o) != 5 ||
            !tutti_state_count(json_object_get(o, "begin"), &r->begin) ||
            !tutti_state_count(json_object_get(o, "end"), &r->end) ||
            !tutti_state_count(json_object_get(o, "file"), &file) || file >= c->n_files ||
            !take_int(json_object_get(o, "owner"), &r->owner, c->world - 1) ||
            !take_hash(json_object_get(o, "xxh3"), &r->hash))
            return bad(c, "a range of state", at, err);
        r->file = (uint32_t)file;
        c->n_ranges++;
        s->n++;
    }
    return TUTTI_OK;
}

static tutti_status take_states(tutti_checkpoint *c, const json_t *states, tutti_error *err)
{
    const size_t n = json_array_size(states);
    size_t ranges = 0;

    if (!json_is_array(states))
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0, "'%s' lists no states; " MEND, c->path);
    for (size_t k = 0; k < n; k++) /* of elements that the text has: no more than its bytes */
        ranges += json_array_size(json_object_get(json_array_get(states, k), "ranges"));
    c->states = tutti_alloc(n + 1, sizeof *c->states);
    c->ranges = tutti_alloc(ranges + 1, sizeof *c->ranges);
    if (c->states == NULL || c->ranges == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory for the %zu ranges of '%s'", ranges,
                          c->path);
    for (size_t k = 0; k < n; k++) {
        const json_t *o = json_array_get(states, k), *list = json_object_get(o, "ranges");
        const char *dtype = json_string_value(json_object_get(o, "dtype")),
                   *keep = json_string_value(json_object_get(o, "keep"));
        const char *state = json_string_value(json_object_get(o, "state")),
                   *tensor = json_string_value(json_object_get(o, "tensor"));
        tutti_manifest_state *s = &c->states[k];

        if (json_object_size(o) != 6 || !json_is_array(list) || state == NULL || tensor == NULL ||
            dtype == NULL || keep == NULL || !tutti_state_dtype(dtype, &s->dtype) ||
            !keep_of(keep, &s->keep) || !tutti_state_count(json_object_get(o, "count"), &s->count))
            return bad(c, "state", k, err);
        c->n_states = k + 1;
        s->state = tutti_copy_text(state);
        s->tensor = tutti_copy_text(tensor);
        if (s->state == NULL || s->tensor == NULL)
            return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory for the %zu states of '%s'", n,
                              c->path);
        TUTTI_TRY(take_ranges(c, s, list, k, err));
    }
    return TUTTI_OK;
}

static tutti_status take_facts(tutti_checkpoint *c, const json_t *facts, tutti_error *err)
{
    const size_t bytes =
        json_is_object(facts) ? json_dumpb(facts, NULL, 0, JSON_SORT_KEYS | JSON_COMPACT) : 0;

    if (bytes == 0)
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0, "'%s' has no facts; " MEND, c->path);
    c->facts = tutti_alloc(bytes + 1, 1);
    if (c->facts == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory (%zu bytes) for the facts of '%s'",
                          bytes, c->path);
    json_dumpb(facts, c->facts, bytes, JSON_SORT_KEYS | JSON_COMPACT);
    return TUTTI_OK;
}

static tutti_status take_manifest(tutti_checkpoint *c, const json_t *root, tutti_error *err)
{
    const char *format = json_string_value(json_object_get(root, "format"));
    const json_t *version = json_object_get(root, "format_version");
    char what[300];

    if (format == NULL || strcmp(format, FORMAT) != 0)
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                          "'%s' does not call itself \"" FORMAT "\"; it is another kind of file",
                          c->path);
    if (!json_is_integer(version) || json_integer_value(version) != FORMAT_VERSION)
        return tutti_fail(
            err, TUTTI_ERR_CORRUPT, 0,
            "'%s' has format version %lld, this library reads %d; use the version that wrote it",
            c->path, (long long)json_integer_value(version), FORMAT_VERSION);
    if (!tutti_state_count(json_object_get(root, "step"), &c->step))
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0, "'%s' has no step; " MEND, c->path);
    if (!take_int(json_object_get(root, "world"), &c->world, 99999) || c->world < 1)
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                          "'%s' does not state how many ranks saved it; " MEND, c->path);
    TUTTI_TRY(take_facts(c, json_object_get(root, "facts"), err));
    TUTTI_TRY(take_files(c, json_object_get(root, "files"), err));
    TUTTI_TRY(take_states(c, json_object_get(root, "states"), err));
    snprintf(what, sizeof what, "'%s'", c->path);
    return tutti_manifest_check(c, what, err);
}

static tutti_status check_seal(const char *path, const char *text, size_t bytes, tutti_error *err)
{
    const char *seal;
    char digits[17] = "";
    uint64_t said, found;

    if (bytes > TUTTI_STATE_MANIFEST_MOST)
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0, "'%s' has %zu bytes; at most %llu are read",
                          path, bytes, (unsigned long long)TUTTI_STATE_MANIFEST_MOST);
    if (bytes < SEAL_BYTES)
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                          "'%s' has %zu bytes, fewer than any manifest; " MEND, path, bytes);
    seal = text + (bytes - SEAL_BYTES);
    memcpy(digits, seal + sizeof SEAL_BEFORE - 1, 16);
    if (memcmp(seal, SEAL_BEFORE, sizeof SEAL_BEFORE - 1) != 0 ||
        memcmp(seal + sizeof SEAL_BEFORE - 1 + 16, SEAL_AFTER, sizeof SEAL_AFTER - 1) != 0 ||
        !tutti_state_unhex(digits, &said))
        return tutti_fail(
            err, TUTTI_ERR_CORRUPT, 0,
            "'%s' does not end with its hash; it was cut short or edited: use an older checkpoint",
            path);
    found = tutti_hash(text, bytes - SEAL_BYTES);
    if (found != said)
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                          "'%s' has hash %016llx but states %016llx; it was damaged or edited: use "
                          "an older checkpoint",
                          path, (unsigned long long)found, (unsigned long long)said);
    return TUTTI_OK;
}

tutti_status tutti_checkpoint_parse(tutti_checkpoint **out, const char *path, const char *text,
                                    size_t bytes, tutti_error *err)
{
    tutti_status status;
    tutti_checkpoint *c;
    json_t *root = NULL;
    char what[300];

    *out = NULL;
    TUTTI_TRY(check_seal(path, text, bytes, err));
    c = tutti_alloc(1, sizeof *c);
    if (c == NULL || (c->path = tutti_copy_text(path)) == NULL) {
        status = tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory to open '%s'", path);
        goto out;
    }
    snprintf(what, sizeof what, "manifest '%s'", path);
    status = tutti_state_json(&root, text, bytes, what, err);
    if (status == TUTTI_OK)
        status = take_manifest(c, root, err);
out:
    json_decref(root);
    if (status == TUTTI_OK)
        *out = c;
    else
        tutti_checkpoint_close(c);
    return status;
}

void tutti_checkpoint_close(tutti_checkpoint *c)
{
    if (c == NULL)
        return;
    for (size_t k = 0; k < c->n_states; k++) {
        tutti_free(c->states[k].state);
        tutti_free(c->states[k].tensor);
    }
    tutti_free(c->states);
    tutti_free(c->ranges);
    tutti_free((void *)c->memory);
    tutti_free(c->files);
    tutti_free(c->facts);
    tutti_free(c->directory);
    tutti_free(c->path);
    tutti_free(c);
}

uint64_t tutti_checkpoint_step(const tutti_checkpoint *c)
{
    return c->step;
}

bool tutti_checkpoint_has(const tutti_checkpoint *c, const char *state)
{
    for (size_t k = 0; k < c->n_states; k++)
        if (strcmp(c->states[k].state, state) == 0)
            return true;
    return false;
}

int tutti_checkpoint_world(const tutti_checkpoint *c)
{
    return c->world;
}

const char *tutti_checkpoint_facts(const tutti_checkpoint *c)
{
    return c->facts;
}

bool tutti_checkpoint_piece(const tutti_checkpoint *c, size_t i, tutti_saved *piece)
{
    size_t low = 0, high = c->n_states; /* the state that has range i is in [low, high) */

    memset(piece, 0, sizeof *piece);
    if (i >= c->n_ranges)
        return false;
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        if (c->states[middle].first <= i)
            low = middle;
        else
            high = middle;
    }
    const tutti_manifest_state *s = &c->states[low];
    const tutti_manifest_range *r = &c->ranges[i];
    *piece = (tutti_saved){ .state = s->state,
                            .tensor = s->tensor,
                            .keep = s->keep,
                            .dtype = s->dtype,
                            .owner = r->owner,
                            .count = s->count,
                            .begin = r->begin,
                            .end = r->end };
    return true;
}
