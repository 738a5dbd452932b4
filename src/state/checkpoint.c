/* checkpoint.c: opening one checkpoint, and finding the newest that is whole. What a directory
   holds is believed only after the manifest's hash and the sizes of all its files have been
   compared; reading compares the rest (read.c). */
#include "state_internal.h"
#include "runtime/files.h"
#include "parse.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- opening ---- */

static tutti_status read_text(tutti_runtime *rt, const char *path, char **text, size_t *bytes,
                              tutti_error *err)
{
    tutti_file *file;
    tutti_status status = tutti_file_open(&file, rt, path, TUTTI_FILE_READ, err);

    *text = NULL;
    *bytes = 0;
    if (status != TUTTI_OK)
        return status;
    if (tutti_file_bytes(file) > TUTTI_STATE_MANIFEST_MOST)
        status = tutti_fail(err, TUTTI_ERR_CORRUPT, 0, "'%s' has %llu bytes; at most %llu are read",
                            path, (unsigned long long)tutti_file_bytes(file),
                            (unsigned long long)TUTTI_STATE_MANIFEST_MOST);
    else if ((*text = tutti_alloc((size_t)tutti_file_bytes(file) + 1, 1)) == NULL)
        status = tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory (%llu bytes) to read '%s'",
                            (unsigned long long)tutti_file_bytes(file), path);
    else
        status = tutti_file_read(file, 0, *text, (size_t)tutti_file_bytes(file), err);
    if (status == TUTTI_OK)
        *bytes = (size_t)tutti_file_bytes(file);
    tutti_file_close(file, NULL);
    return status;
}

char *tutti_state_path_of(const tutti_checkpoint *c, size_t file)
{
    char name[TUTTI_STATE_FILE_NAME];

    tutti_state_file_name(name, c->files[file].rank, c->world);
    return tutti_state_join(c->directory, name);
}

static tutti_status check_sizes(const tutti_checkpoint *c, tutti_error *err)
{
    for (size_t k = 0; k < c->n_files; k++) {
        char *path = tutti_state_path_of(c, k);
        tutti_file *file = NULL;
        tutti_status status =
            path == NULL
                ? tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory to open '%s'", c->directory)
                : tutti_file_open(&file, c->rt, path, TUTTI_FILE_READ, err);
        if (status == TUTTI_OK && tutti_file_bytes(file) != c->files[k].bytes)
            status = tutti_fail(
                err, TUTTI_ERR_CORRUPT, 0,
                "'%s' has %llu bytes, but %llu according to the manifest; use an older checkpoint",
                path, (unsigned long long)tutti_file_bytes(file),
                (unsigned long long)c->files[k].bytes);
        tutti_file_close(file, NULL);
        tutti_free(path);
        TUTTI_TRY(status);
    }
    return TUTTI_OK;
}

tutti_status tutti_checkpoint_open(tutti_checkpoint **out, tutti_runtime *rt, const char *directory,
                                   tutti_error *err)
{
    tutti_status status;
    tutti_checkpoint *c = NULL;
    char *path = tutti_state_join(directory, "manifest.json"), *text = NULL;
    size_t bytes;

    *out = NULL;
    if (path == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory to open '%s'", directory);
    status = read_text(rt, path, &text, &bytes, err);
    if (status == TUTTI_OK)
        status = tutti_checkpoint_parse(&c, path, text, bytes, err);
    if (status == TUTTI_OK) {
        c->rt = rt;
        c->source = &tutti_source_files;
        c->directory = tutti_copy_text(directory);
        status = c->directory == NULL
                     ? tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory to open '%s'", directory)
                     : check_sizes(c, err);
    }
    tutti_free(text);
    tutti_free(path);
    if (status == TUTTI_OK)
        *out = c;
    else
        tutti_checkpoint_close(c);
    return status;
}

/* ---- finding ---- */

/* "-old" is a step that was being replaced by a save of the same step; it counts,
   after the step itself (commit.c). */
static bool step_of(const char *name, uint64_t *step, bool *old)
{
    size_t digits = 0;

    *step = 0;
    *old = false;
    if (strncmp(name, "step-", 5) != 0)
        return false;
    for (name += 5; *name >= '0' && *name <= '9'; name++, digits++)
        *step = *step * 10 + (uint64_t)(*name - '0');
    *old = strcmp(name, "-old") == 0;
    return digits >= 8 && digits <= 18 && (*old || *name == '\0');
}

static tutti_status note_step(void *user, const char *name, tutti_error *err)
{
    tutti_found_steps *list = user;
    tutti_found_step s = { 0 };

    if (!step_of(name, &s.step, &s.old))
        return TUTTI_OK;
    if (list->n == list->room) {
        const size_t room = list->room == 0 ? 16 : 2 * list->room;
        tutti_found_step *more = tutti_alloc(room, sizeof *more);
        if (more == NULL)
            return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory to list %zu checkpoints", room);
        if (list->n > 0)
            memcpy(more, list->at, list->n * sizeof *more);
        tutti_free(list->at);
        list->at = more;
        list->room = room;
    }
    s.name = tutti_copy_text(name);
    if (s.name == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory to list %zu checkpoints",
                          list->n + 1);
    list->at[list->n++] = s;
    return TUTTI_OK;
}

static int newest_first(const void *a, const void *b)
{
    const tutti_found_step *x = a, *y = b;

    if (x->step != y->step)
        return x->step > y->step ? -1 : 1;
    return (int)x->old - (int)y->old;
}

tutti_status tutti_state_list_steps(tutti_runtime *rt, const char *directory,
                                    tutti_found_steps *list, tutti_error *err)
{
    tutti_status status;

    *list = (tutti_found_steps){ 0 };
    status = tutti_directory_list(rt, directory, note_step, list, err);
    if (list->n > 0)
        qsort(list->at, list->n, sizeof *list->at, newest_first);
    return status;
}

void tutti_state_free_steps(tutti_found_steps *list)
{
    for (size_t k = 0; k < list->n; k++)
        tutti_free(list->at[k].name);
    tutti_free(list->at);
    *list = (tutti_found_steps){ 0 };
}

/* Appends "name: why\n" if all of it fits. */
static void note_skipped(char *skipped, size_t bytes, const char *name, const char *why)
{
    const size_t used = skipped == NULL || bytes == 0 ? 0 : strlen(skipped);

    if (skipped != NULL && used < bytes &&
        (size_t)snprintf(skipped + used, bytes - used, "%s: %s\n", name, why) >= bytes - used)
        skipped[used] = '\0';
}

/* Memory for a text. */
typedef struct text_room {
    char *at;
    size_t bytes;
} text_room;

/* The newest valid one of `directory`; TUTTI_CLOSED: no name is that of a checkpoint. */
static tutti_status find_in(tutti_runtime *rt, const char *directory, text_room found,
                            text_room skipped, tutti_error *err)
{
    tutti_found_steps list;
    tutti_error first = { 0 };
    tutti_status status = tutti_state_list_steps(rt, directory, &list, err);
    bool done = false;

    if (status == TUTTI_OK && list.n == 0)
        status = TUTTI_CLOSED;
    for (size_t k = 0; k < list.n && status == TUTTI_OK && !done; k++) {
        tutti_checkpoint *c = NULL;
        tutti_error why = { 0 };
        char *path = tutti_state_join(directory, list.at[k].name);
        tutti_status opened = path == NULL ? tutti_fail(&why, TUTTI_ERR_MEMORY, 0,
                                                        "no memory to open '%s'", directory)
                                           : tutti_checkpoint_open(&c, rt, path, &why);
        tutti_checkpoint_close(c);
        if (opened == TUTTI_OK) {
            const int length = snprintf(found.at, found.bytes, "%s", path);
            done = length >= 0 && (size_t)length < found.bytes;
            if (!done)
                status = tutti_fail(err, TUTTI_ERR_USAGE, 0,
                                    "the path '%s' is longer than the %zu bytes allowed", path,
                                    found.bytes);
        } else if (opened == TUTTI_ERR_MEMORY) { /* no reason to take an older one */
            status = opened;
            if (err != NULL)
                *err = why;
        } else {
            note_skipped(skipped.at, skipped.bytes, list.at[k].name, why.text);
            if (first.status == TUTTI_OK)
                first = why;
        }
        tutti_free(path);
    }
    if (status == TUTTI_OK && !done)
        status = tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                            "none of the %zu checkpoints in '%s' is whole; of the newest: %s",
                            list.n, directory, first.text);
    tutti_state_free_steps(&list);
    return status;
}

tutti_status tutti_checkpoint_find(tutti_runtime *rt, const char *path, char *found, size_t bytes,
                                   char *skipped, size_t skipped_bytes, tutti_error *err)
{
    tutti_status status;
    char *below = tutti_state_join(path, "checkpoints"),
         *manifest = tutti_state_join(path, "manifest.json");

    if (bytes > 0)
        found[0] = '\0';
    if (skipped != NULL && skipped_bytes > 0)
        skipped[0] = '\0';
    if (below == NULL || manifest == NULL) {
        status =
            tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory to look for checkpoints in '%s'", path);
        goto out;
    }
    if (tutti_file_exists(rt, manifest)) {
        /* a checkpoint asked for by its own name: no other will do */
        tutti_checkpoint *c;
        status = tutti_checkpoint_open(&c, rt, path, err);
        tutti_checkpoint_close(c);
        if (status == TUTTI_OK && strlen(path) >= bytes)
            status = tutti_fail(err, TUTTI_ERR_USAGE, 0,
                                "the path '%s' is longer than the %zu bytes allowed", path, bytes);
        if (status == TUTTI_OK)
            strcpy(found, path);
        goto out;
    }
    if (!tutti_file_exists(rt, path)) {
        status = tutti_fail(err, TUTTI_ERR_USAGE, ENOENT, "no checkpoint at '%s'", path);
        goto out;
    }
    status =
        find_in(rt, path, (text_room){ found, bytes }, (text_room){ skipped, skipped_bytes }, err);
    if (status == TUTTI_CLOSED && tutti_file_exists(rt, below))
        status = find_in(rt, below, (text_room){ found, bytes },
                         (text_room){ skipped, skipped_bytes }, err);
    if (status == TUTTI_CLOSED)
        status =
            tutti_fail(err, TUTTI_ERR_USAGE, 0,
                       "no checkpoint in '%s': neither a manifest.json, nor a folder step-..., nor "
                       "any in checkpoints/; give a run's --out or a checkpoint's own folder",
                       path);
out:
    tutti_free(below);
    tutti_free(manifest);
    return status;
}
