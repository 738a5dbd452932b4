/* commit.c: what rank 0 does to the directory of checkpoints. The order of events is the promise:

     DIR and its parents are made and synced
     tmp-STEP-ID/ gets every rank's file (each synced, renamed, the directory synced)
     and the manifest (synced, renamed)
     tmp- is synced; renamed to step-STEP; DIR is synced          <- here the checkpoint exists
     older checkpoints go, manifest first

   Until the last rename nothing has the name of a checkpoint. If step-STEP is there already, it is
   renamed to step-STEP-old before and removed afterwards; find() takes -old for a checkpoint too,
   so that in between there is always one. A failure before the promise is kept undoes the renames.
   A failure to remove what is old is no failure of the save: the next one tries again. Directories
   tmp- of other saves are dead, since a run saves one checkpoint at a time. */
#include "state_internal.h"
#include "runtime/files.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

tutti_status tutti_commit_open(tutti_commit *c, tutti_runtime *rt, const char *dir, uint64_t step,
                               uint64_t id, tutti_error *err)
{
    char name[64];

    *c = (tutti_commit){ .rt = rt, .dir = dir, .step = step };
    snprintf(name, sizeof name, "tmp-%08llu-%016llx", (unsigned long long)step,
             (unsigned long long)id);
    c->tmp = tutti_state_join(dir, name);
    snprintf(name, sizeof name, "step-%08llu", (unsigned long long)step);
    c->final = tutti_state_join(dir, name);
    snprintf(name, sizeof name, "step-%08llu-old", (unsigned long long)step);
    c->old = tutti_state_join(dir, name);
    if (c->tmp == NULL || c->final == NULL || c->old == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "cannot save a checkpoint in '%s'", dir);
    return TUTTI_OK;
}

void tutti_commit_close(tutti_commit *c)
{
    tutti_free(c->tmp);
    tutti_free(c->final);
    tutti_free(c->old);
    *c = (tutti_commit){ 0 };
}

/* ---- directories ---- */

/* Removes the last component; "" has become "/" or ".". */
static void cut_component(char *path)
{
    size_t n = strlen(path);
    const bool absolute = path[0] == '/';

    while (n > 0 && path[n - 1] == '/')
        n--;
    while (n > 0 && path[n - 1] != '/')
        n--;
    while (n > 0 && path[n - 1] == '/')
        n--;
    if (n == 0)
        path[n++] = absolute ? '/' : '.';
    path[n] = '\0';
}

char *tutti_commit_nearest(tutti_runtime *rt, const char *dir)
{
    char *place = tutti_state_join(dir, ""); /* one byte more than dir: "." fits */

    while (place != NULL && strcmp(place, ".") != 0 && strcmp(place, "/") != 0 &&
           !tutti_file_exists(rt, place))
        cut_component(place);
    return place;
}

/* Makes DIR with its parents, so that a loss of power does not take them away
   again: each one's entry is synced. */
static tutti_status make_durable(tutti_runtime *rt, const char *dir, tutti_error *err)
{
    char *level = tutti_state_join(dir, ""), *stop = tutti_commit_nearest(rt, dir);
    tutti_status status =
        level == NULL || stop == NULL
            ? tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "cannot make directory '%s'", dir)
            : tutti_directory_make(rt, dir, err);

    while (status == TUTTI_OK && strcmp(level, stop) != 0) {
        cut_component(level);
        status = tutti_directory_sync(rt, level, err);
    }
    tutti_free(level);
    tutti_free(stop);
    return status;
}

tutti_status tutti_commit_begin(tutti_commit *c, tutti_error *err)
{
    TUTTI_TRY(make_durable(c->rt, c->dir, err));
    return tutti_directory_make(c->rt, c->tmp, err);
}

/* ---- removing ---- */

/* "rank-00003-of-00008.safetensors", perhaps with ".part", or a
   manifest: names that only a save gives. */
static bool is_ours(const char *name)
{
    static const char pattern[] = "rank-ddddd-of-ddddd.safetensors";
    size_t k = 0;

    if (strcmp(name, "manifest.json") == 0 || strcmp(name, "manifest.json.part") == 0)
        return true;
    for (; pattern[k] != '\0'; k++)
        if (pattern[k] == 'd' && (k > 4 && k < 20) ? name[k] < '0' || name[k] > '9'
                                                   : name[k] != pattern[k])
            return false;
    return name[k] == '\0' || strcmp(name + k, ".part") == 0;
}

typedef struct removal { tutti_runtime *rt; const char *directory; } removal;

static tutti_status remove_one(void *user, const char *name, tutti_error *err)
{
    const removal *r = user;
    char *path;

    (void)err;
    if (is_ours(name) && (path = tutti_state_join(r->directory, name)) != NULL) {
        tutti_file_remove(r->rt, path, NULL);
        tutti_free(path);
    }
    return TUTTI_OK;
}

/* The manifest first: what is half removed must not be found. A file that is not ours
   stays, and its directory with it. */
static void remove_checkpoint(tutti_runtime *rt, const char *directory)
{
    removal r = { rt, directory };
    char *manifest = tutti_state_join(directory, "manifest.json");

    if (manifest != NULL && tutti_file_remove(rt, manifest, NULL) == TUTTI_OK) {
        tutti_directory_list(rt, directory, remove_one, &r, NULL);
        tutti_file_remove(rt, directory, NULL);
    }
    tutti_free(manifest);
}

static tutti_status clean_one(void *user, const char *name, tutti_error *err)
{
    const removal *r = user;
    char *path;

    (void)err;
    if (strncmp(name, "tmp-", 4) == 0 && (path = tutti_state_join(r->directory, name)) != NULL) {
        remove_checkpoint(r->rt, path);
        tutti_free(path);
    }
    return TUTTI_OK;
}

void tutti_commit_clean(tutti_runtime *rt, const char *dir)
{
    removal r = { rt, dir };

    if (tutti_file_exists(rt, dir))
        tutti_directory_list(rt, dir, clean_one, &r, NULL);
}

/* Where a damaged checkpoint of the same step is put meanwhile; NULL: no memory. */
static char *dead_of(const tutti_commit *c)
{
    char *dead = tutti_state_join(c->tmp, "");

    if (dead != NULL)
        dead[strlen(dead) - 1] = '~';
    return dead;
}

void tutti_commit_drop(const tutti_commit *c)
{
    char *dead = dead_of(c);

    remove_checkpoint(c->rt, c->tmp);
    if (dead != NULL)
        remove_checkpoint(c->rt, dead);
    tutti_free(dead);
}

/* True if the checkpoint is complete. *sure is false if that could not be determined; then the
   checkpoint must not be removed. */
static bool is_whole(tutti_runtime *rt, const char *path, bool *sure)
{
    tutti_checkpoint *c;
    tutti_error why = { 0 };
    const tutti_status status = tutti_checkpoint_open(&c, rt, path, &why);

    tutti_checkpoint_close(c);
    *sure = status == TUTTI_OK || status == TUTTI_ERR_CORRUPT || why.cause == ENOENT;
    return status == TUTTI_OK;
}

void tutti_commit_retire(tutti_commit *c, int keep)
{
    tutti_found_steps list;
    int kept = 1; /* the new one, wherever it is in the order */
    bool have_last = false;
    uint64_t last = 0;

    if (tutti_state_list_steps(c->rt, c->dir, &list, NULL) == TUTTI_OK)
        for (size_t k = 0; k < list.n; k++) {
            const tutti_found_step *s = &list.at[k];
            char *path = tutti_state_join(c->dir, s->name);
            const bool own = s->step == c->step && !s->old;
            bool sure = true, stays = path == NULL || own;

            if (!stays && s->step != c->step && keep <= 0) {
                stays = true;
            } else if (!stays && s->step != c->step && !(have_last && s->step == last)) {
                /* else it is an -old whose step is there */
                const bool whole = is_whole(c->rt, path, &sure);
                stays = !sure || (whole && kept < keep);
                kept += whole && stays;
                have_last = have_last || (whole && stays);
                last = whole && stays ? s->step : last;
            }
            if (!stays)
                remove_checkpoint(c->rt, path);
            tutti_free(path);
        }
    tutti_state_free_steps(&list);
}

/* ---- making the checkpoint ---- */

static tutti_status write_manifest(const tutti_commit *c, const char *text, size_t bytes,
                                   tutti_error *err)
{
    char *path = tutti_state_join(c->tmp, "manifest.json"),
         *part = tutti_state_join(c->tmp, "manifest.json.part");
    tutti_file *file = NULL;
    tutti_status status, closed;

    if (path == NULL || part == NULL) {
        status =
            tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "cannot write the manifest of '%s'", c->tmp);
        goto out;
    }
    status = tutti_file_open(&file, c->rt, part, TUTTI_FILE_CREATE, err);
    if (status == TUTTI_OK)
        status = tutti_file_write(file, text, bytes, err);
    if (status == TUTTI_OK)
        status = tutti_file_sync(file, err);
    closed = tutti_file_close(file, status == TUTTI_OK ? err : NULL);
    if (status == TUTTI_OK)
        status = closed;
    if (status == TUTTI_OK)
        status = tutti_file_rename(c->rt, part, path, err);
    if (status == TUTTI_OK)
        status = tutti_directory_sync(c->rt, c->tmp, err);
out:
    tutti_free(path);
    tutti_free(part);
    return status;
}

/* Checks that every file is where the manifest will name it. A rank that has written to a disk of
   its own is found here. */
static tutti_status check_files(const tutti_commit *c, const tutti_checkpoint *m, tutti_error *err)
{
    for (size_t k = 0; k < m->n_files; k++) {
        char name[TUTTI_STATE_FILE_NAME], *path;
        bool there;
        tutti_state_file_name(name, m->files[k].rank, m->world);
        path = tutti_state_join(c->tmp, name);
        there = path != NULL && tutti_file_exists(c->rt, path);
        tutti_free(path);
        if (path == NULL)
            return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "cannot check the files in '%s'",
                              c->tmp);
        if (!there)
            return tutti_fail_rank(err, TUTTI_ERR_USAGE, m->files[k].rank,
                                   "rank %d has written '%s', but rank 0 does not see it in '%s'; "
                                   "all ranks must save to one file system they share",
                                   m->files[k].rank, name, c->tmp);
    }
    return TUTTI_OK;
}

/* Renames the directory that has the checkpoint's name, if there is one. *aside: it was renamed to
   c->old, and must be renamed back if the save fails. */
static tutti_status move_aside(const tutti_commit *c, bool *aside, tutti_error *err)
{
    bool sure;

    *aside = false;
    if (!tutti_file_exists(c->rt, c->final))
        return TUTTI_OK;
    if (is_whole(c->rt, c->final, &sure) || !sure) {
        /* left by a save that died after its promise: older than what it is replaced by */
        if (tutti_file_exists(c->rt, c->old))
            remove_checkpoint(c->rt, c->old);
        TUTTI_TRY(tutti_file_rename(c->rt, c->final, c->old, err));
        *aside = true;
    } else { /* damaged: an -old of it may be the better one and stays; the name tmp- has no right to be found */
        char *dead = dead_of(c);
        tutti_status status;
        if (dead == NULL)
            return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "cannot replace '%s'", c->final);
        status = tutti_file_rename(c->rt, c->final, dead, err);
        tutti_free(dead);
        TUTTI_TRY(status);
    }
    return TUTTI_OK;
}

tutti_status tutti_commit_finish(tutti_commit *c, const tutti_checkpoint *m, tutti_error *err)
{
    bool aside = false, there = false;
    char *text = NULL;
    size_t bytes;
    tutti_status status = check_files(c, m, err);

    if (status == TUTTI_OK)
        status = tutti_manifest_print(m, &text, &bytes, err);
    if (status == TUTTI_OK)
        status = write_manifest(c, text, bytes, err);
    tutti_free(text);
    if (status == TUTTI_OK)
        status = move_aside(c, &aside, err);
    if (status == TUTTI_OK &&
        aside) /* the step under its old name is durable before the new one takes its place */
        status = tutti_directory_sync(c->rt, c->dir, err);
    if (status == TUTTI_OK)
        status = tutti_file_rename(c->rt, c->tmp, c->final, err);
    there = status == TUTTI_OK;
    if (status == TUTTI_OK)
        status = tutti_directory_sync(c->rt, c->dir, err);
    if (status != TUTTI_OK) {
        /* visible but perhaps not durable is no checkpoint: back to what was */
        if (there)
            tutti_file_rename(c->rt, c->final, c->tmp, NULL);
        if (aside)
            tutti_file_rename(c->rt, c->old, c->final, NULL);
        if (there || aside)
            tutti_directory_sync(c->rt, c->dir, NULL);
    }
    return status;
}
