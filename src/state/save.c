/* save.c: a checkpoint written by all ranks at once. Three rounds over ports:
   1. every rank reports that it could begin (disk space, valid items) and rank 0 makes the
      directory;
   2. every rank writes its file and reports what is in it;
   3. rank 0 combines the pieces, commits (commit.c) and sends the outcome.
   A failure of one rank is returned on all, with the rank in the sentence. Rank 0 receives the
   ranks' reports in order and always all of them, so that no rank still writes when it cleans
   up. */
#include "save_internal.h"
#include "runtime/files.h"
#include "parse.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- round one: may it begin ---- */

static uint64_t bytes_of(const tutti_saved *item)
{
    return (item->end - item->begin) * tutti_dtype_bytes(item->dtype);
}

static tutti_status check_item(const saver *s, const tutti_saved *i, uint64_t *need,
                               tutti_error *err)
{
    char state[TUTTI_STATE_SHOWN], tensor[TUTTI_STATE_SHOWN];
    size_t bytes;

    tutti_state_shown(state, i->state);
    tutti_state_shown(tensor, i->tensor);
    if (i->keep < TUTTI_SAME || i->keep >= TUTTI_SCRATCH)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "'%s/%s' is kept '%s', which is not saved",
                          state, tensor, tutti_keep_name(i->keep));
    if (i->owner != -1 && i->owner != s->rank)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "'%s/%s' is rank %d's own and only that rank can save it", state, tensor,
                          i->owner);
    if (i->begin > i->end || i->end > i->count ||
        (i->begin < i->end && i->data == NULL && i->tier == NULL))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "'%s/%s' has no elements [%llu, %llu) of %llu to save", state, tensor,
                          (unsigned long long)i->begin, (unsigned long long)i->end,
                          (unsigned long long)i->count);
    if (i->count > INT64_MAX ||
        !tutti_size_mul((size_t)i->count, tutti_dtype_bytes(i->dtype), &bytes))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "'%s/%s' has %llu elements, more than memory can hold", state, tensor,
                          (unsigned long long)i->count);
    *need += bytes_of(i) + 512; /* and its text in the header and the manifest */
    return TUTTI_OK;
}

static tutti_status check_facts(const saver *s, tutti_error *err)
{
    json_t *facts;
    tutti_status status =
        tutti_state_json(&facts, s->facts, strlen(s->facts), "text of the checkpoint's facts", err);

    if (status == TUTTI_OK && !json_is_object(facts))
        status = tutti_fail(err, TUTTI_ERR_USAGE, 0, "the checkpoint's facts are no JSON object");
    json_decref(facts);
    return status == TUTTI_ERR_CORRUPT ? TUTTI_ERR_USAGE : status;
}

/* Computes the bytes that this rank needs and those that its file system has left. */
static tutti_status prepare(const saver *s, uint64_t *need, uint64_t *left, tutti_error *err)
{
    char *place;
    tutti_status status;

    *need = *left = 0;
    if (s->step > UINT64_C(999999999999999999))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "step %llu has more digits than a checkpoint's name",
                          (unsigned long long)s->step);
    TUTTI_TRY(check_facts(s, err));
    for (size_t k = 0; k < s->n; k++)
        TUTTI_TRY(check_item(s, &s->items[k], need, err));
    place = tutti_commit_nearest(s->rt, s->dir);
    if (place == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory to check the free space at '%s'",
                          s->dir);
    status = tutti_space_left(s->rt, place, left, err);
    tutti_free(place);
    return status;
}

/* Rank 0: what all need together against the least that any rank sees, since they share the
   directory. */
static tutti_status weigh(saver *s, tutti_error *why)
{
    uint64_t total = 65536, least = UINT64_MAX, print0 = 0;
    int who = 0;

    for (int r = 0; r < s->size; r++) {
        const uint64_t need = tutti_save_get_number(&s->received[r]),
                       left = tutti_save_get_number(&s->received[r]),
                       print = tutti_save_get_number(&s->received[r]);
        total = need > UINT64_MAX / 2 - total ? UINT64_MAX / 2 : total + need;
        if (left < least) {
            least = left;
            who = r;
        }
        if (r == 0)
            print0 = print;
        if (print != print0)
            return tutti_fail_rank(
                why, TUTTI_ERR_STATE, rank_of(s, r),
                "cannot save the checkpoint of step %llu: rank %d saves another step or other "
                "facts than rank %d; all must save the same",
                (unsigned long long)s->step, rank_of(s, r), rank_of(s, 0));
    }
    total += total / 50;
    if (total <= least)
        return TUTTI_OK;
    return tutti_fail_rank(why, TUTTI_ERR_IO, rank_of(s, who),
                           "cannot save the checkpoint of step %llu: it needs %llu bytes and rank "
                           "%d sees %llu left at '%s'; free space there or keep fewer checkpoints",
                           (unsigned long long)s->step, (unsigned long long)total, rank_of(s, who),
                           (unsigned long long)least, s->dir);
}

static tutti_status begin_save(saver *s, uint64_t *id, tutti_error *err)
{
    message m = { 0 };
    tutti_error why = { .rank = -1 };
    uint64_t need, left;
    tutti_status status;

    *id = 0;
    if (s->rank == 0)
        tutti_commit_clean(s->rt, s->dir);
    status = prepare(s, &need, &left, &why);
    tutti_save_put_outcome(&m, status, &why);
    tutti_save_put_number(&m, need);
    tutti_save_put_number(&m, left);
    tutti_save_put_number(&m, tutti_hash(s->facts, strlen(s->facts)) ^ s->step);
    status = tutti_save_send_report(s, &m, err);
    tutti_free(m.data);
    TUTTI_TRY(status);
    if (s->rank != 0)
        return tutti_save_await_decision(s, id, err);
    why = (tutti_error){ .rank = -1 };
    status = tutti_save_receive_all(s, &why);
    if (status == TUTTI_OK)
        status = weigh(s, &why);
    tutti_save_free_reports(s);
    if (status == TUTTI_OK) {
        tutti_error other = { .rank = -1 };
        tutti_status made;
        tutti_entropy(s->rt, id, sizeof *id);
        made = tutti_commit_open(&s->commit, s->rt, s->dir, s->step, *id, &other);
        if (made == TUTTI_OK)
            made = tutti_commit_begin(&s->commit, &other);
        tutti_save_take_worse(&status, &why, 0, made, &other, s);
    }
    return tutti_save_decide(s, status, &why, *id, err);
}

/* ---- round two: every rank writes ---- */

/* Writes this rank's file (none if it has no elements to save) into tmp, and gives its size and
   hash and its items' hashes. */
static tutti_status write_file(const saver *s, uint64_t *bytes, uint64_t *hash,
                               uint64_t *item_hashes, tutti_error *err)
{
    char name[TUTTI_STATE_FILE_NAME], step[24], *path, *keys, *at;
    const char *metadata[] = { "format", "tutti-checkpoint", "step", step, NULL };
    tutti_tensor_entry *entries = tutti_alloc(s->n + 1, sizeof *entries);
    tutti_status status = TUTTI_OK;
    tutti_file *file = NULL;
    size_t room = 1, n = 0;

    *bytes = *hash = 0;
    for (size_t k = 0; k < s->n; k++)
        room += strlen(s->items[k].state) + strlen(s->items[k].tensor) + 24;
    tutti_state_file_name(name, s->rank, s->size);
    snprintf(step, sizeof step, "%llu", (unsigned long long)s->step);
    path = tutti_state_join(s->commit.tmp, name);
    keys = at = tutti_alloc(room, 1);
    if (entries == NULL || path == NULL || keys == NULL) {
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "listing %zu tensors to save", s->n);
        goto out;
    }
    for (size_t k = 0; k < s->n; k++) {
        const tutti_saved *i = &s->items[k];
        if (i->begin == i->end)
            continue;
        tutti_state_key(at, (size_t)(keys + room - at), i->state, i->tensor, i->begin);
        entries[n++] = (tutti_tensor_entry){
            .name = at, .dtype = i->dtype, .dims = 1, .dim = { i->end - i->begin }, .data = i->data,
            .tier = i->tier, .at = i->at
        };
        at += strlen(at) + 1;
    }
    if (n == 0)
        goto out;
    status = tutti_safetensors_write(s->rt, path, entries, n, metadata, hash, err);
    if (status == TUTTI_OK)
        /* each host for itself: rank 0's sync may not reach another's cache */
        status = tutti_directory_sync(s->rt, s->commit.tmp, err);
    if (status == TUTTI_OK)
        status = tutti_file_open(&file, s->rt, path, TUTTI_FILE_READ, err);
    if (status == TUTTI_OK)
        *bytes = tutti_file_bytes(file);
    tutti_file_close(file, NULL);
    for (size_t k = 0, e = 0; k < s->n; k++)
        if (s->items[k].begin < s->items[k].end)
            item_hashes[k] = entries[e++].hash;
out:
    tutti_free(entries);
    tutti_free(path);
    tutti_free(keys);
    return status;
}

static void put_items(message *m, const saver *s, const uint64_t *hashes)
{
    tutti_save_put_number(m, s->n);
    for (size_t k = 0; k < s->n; k++) {
        const tutti_saved *i = &s->items[k];
        tutti_save_put_text(m, i->state);
        tutti_save_put_text(m, i->tensor);
        tutti_save_put_number(m, (uint64_t)i->keep);
        tutti_save_put_number(m, (uint64_t)i->dtype);
        tutti_save_put_number(m, (uint64_t)(int64_t)i->owner);
        tutti_save_put_number(m, i->count);
        tutti_save_put_number(m, i->begin);
        tutti_save_put_number(m, i->end);
        tutti_save_put_number(m, hashes[k]);
    }
}

/* Reads the rest of a rank's report to pieces, of which `at` are there, and at most `total`. */
static tutti_status read_pieces(saver *s, int r, tutti_saved_piece *pieces, uint64_t *at,
                                uint64_t total, tutti_error *why)
{
    message *m = &s->received[r];
    while (m->at < m->n && !m->failed && *at < total) {
        tutti_saved_piece *p = &pieces[(*at)++];
        p->state = tutti_save_get_text(m);
        p->tensor = tutti_save_get_text(m);
        p->keep = (tutti_keep)tutti_save_get_number(m);
        p->dtype = (tutti_dtype)tutti_save_get_number(m);
        p->range.owner = (int)(int64_t)tutti_save_get_number(m);
        p->count = tutti_save_get_number(m);
        p->range.begin = tutti_save_get_number(m);
        p->range.end = tutti_save_get_number(m);
        p->range.hash = tutti_save_get_number(m);
        p->rank = r;
    }
    if (m->failed || m->at < m->n)
        return tutti_fail_rank(why, TUTTI_ERR_CORRUPT, r,
                               "rank %d's list of what it saves is not what it should be", r);
    return TUTTI_OK;
}

/* Rank 0: the reports laid side by side (merge.c), and the commit. */
static tutti_status conclude(saver *s, tutti_error *why)
{
    tutti_checkpoint *c = NULL;
    tutti_saved_piece *pieces;
    tutti_manifest_file *files = tutti_alloc((size_t)s->size + 1, sizeof *files);
    uint64_t total = 0, at = 0;
    size_t n_files = 0;
    tutti_status status = TUTTI_OK;

    for (int r = 0; r < s->size; r++) {
        const uint64_t bytes = tutti_save_get_number(&s->received[r]),
                       hash = tutti_save_get_number(&s->received[r]),
                       n = tutti_save_get_number(&s->received[r]);
        if (bytes > 0 && files != NULL)
            files[n_files++] = (tutti_manifest_file){ r, bytes, hash };
        total += n > s->received[r].n ? 0 : n; /* an item has more bytes than one */
    }
    pieces = tutti_alloc((size_t)total + 1, sizeof *pieces);
    if (files == NULL || pieces == NULL)
        status = tutti_fail(why, TUTTI_ERR_MEMORY, ENOMEM, "listing the %llu tensors of all ranks",
                            (unsigned long long)total);
    for (int r = 0; r < s->size && status == TUTTI_OK; r++)
        status = read_pieces(s, r, pieces, &at, total, why);
    if (status == TUTTI_OK)
        status = tutti_manifest_merge(&c, s->commit.final, pieces, (size_t)at, files, n_files, why);
    if (status == TUTTI_OK) {
        c->step = s->step;
        c->world = s->size;
        c->facts = tutti_copy_text(s->facts);
        status =
            c->facts == NULL
                ? tutti_fail(why, TUTTI_ERR_MEMORY, ENOMEM, "no memory for the checkpoint's facts")
                : tutti_manifest_check(c, "the ranks' parts do not make a whole", why);
        if (status == TUTTI_ERR_CORRUPT) /* nothing is damaged: the caller's items are wrong */
            status = TUTTI_ERR_USAGE;
    }
    if (status == TUTTI_OK)
        status = tutti_commit_finish(&s->commit, c, why);
    tutti_checkpoint_close(c);
    tutti_free(files);
    tutti_free(pieces);
    return status;
}

static tutti_status write_and_conclude(saver *s, uint64_t id, tutti_error *err)
{
    message m = { 0 };
    tutti_error why = { .rank = -1 };
    uint64_t bytes = 0, hash = 0, nothing, *hashes = tutti_alloc(s->n + 1, sizeof *hashes);
    tutti_status status =
        s->rank == 0 ? TUTTI_OK : tutti_commit_open(&s->commit, s->rt, s->dir, s->step, id, &why);

    if (status == TUTTI_OK && hashes == NULL)
        status = tutti_fail(&why, TUTTI_ERR_MEMORY, ENOMEM, "listing %zu tensors to save", s->n);
    if (status == TUTTI_OK)
        status = write_file(s, &bytes, &hash, hashes, &why);
    tutti_save_put_outcome(&m, status, &why);
    tutti_save_put_number(&m, bytes);
    tutti_save_put_number(&m, hash);
    if (status == TUTTI_OK)
        put_items(&m, s, hashes);
    tutti_free(hashes);
    status = tutti_save_send_report(s, &m, err);
    tutti_free(m.data);
    if (s->rank != 0) {
        TUTTI_TRY(status);
        return tutti_save_await_decision(s, &nothing, err);
    }
    why = (tutti_error){ .rank = -1 };
    status = tutti_save_receive_all(s, &why);
    if (status == TUTTI_OK) {
        tutti_error other = { .rank = -1 };
        tutti_status ended = conclude(s, &other);
        tutti_save_take_worse(&status, &why, other.rank >= 0 ? other.rank : 0, ended, &other, s);
    }
    tutti_save_free_reports(s);
    if (status != TUTTI_OK)
        tutti_commit_drop(&s->commit);
    return tutti_save_decide(s, status, &why, 0, err);
}

static tutti_status save(saver *s, int keep, tutti_error *err)
{
    tutti_status status = TUTTI_OK;
    uint64_t id;

    if (s->rank == 0 && (s->received = tutti_alloc((size_t)s->size, sizeof *s->received)) == NULL) {
        tutti_error why = { .rank = -1 };
        tutti_save_receive_none(s);
        status = tutti_fail_rank(&why, TUTTI_ERR_MEMORY, rank_of(s, 0),
                                 "cannot save the checkpoint of step %llu: rank %d: no memory",
                                 (unsigned long long)s->step, rank_of(s, 0));
        return tutti_save_decide(s, status, &why, 0, err);
    }
    status = begin_save(s, &id, err);
    if (status == TUTTI_OK)
        status = write_and_conclude(s, id, err);
    if (status == TUTTI_OK && s->rank == 0) {
        tutti_commit_retire(&s->commit, keep);
        tutti_commit_drop(&s->commit);
    }
    tutti_save_free_reports(s);
    tutti_free(s->received);
    tutti_commit_close(&s->commit);
    return status;
}

tutti_status tutti_checkpoint_save_through(tutti_world *world, tutti_runtime *files,
                                           const char *dir, uint64_t step, const tutti_saved *items,
                                           size_t n, const char *facts, int keep, tutti_error *err)
{
    saver s = { .world = world,
                .rt = files,
                .rank = tutti_world_rank(world),
                .size = tutti_world_size(world),
                .dir = dir,
                .facts = facts,
                .step = step,
                .items = items,
                .n = n,
                .report = tutti_port_of("checkpoint.report", step, 0),
                .verdict = tutti_port_of("checkpoint.verdict", step, 0) };

    return save(&s, keep, err);
}

tutti_status tutti_checkpoint_save_group(const tutti_group *group, const char *dir, uint64_t step,
                                         const tutti_saved *items, size_t n, const char *facts,
                                         int keep, tutti_error *err)
{
    saver s = { .world = group->world,
                .rt = tutti_world_runtime(group->world),
                .ranks = group->ranks,
                .uncounted = group->uncounted,
                .rank = group->index,
                .size = group->size,
                .dir = dir,
                .facts = facts,
                .step = step,
                .items = items,
                .n = n,
                .report = tutti_port_of("checkpoint.report", step, group->context),
                .verdict = tutti_port_of("checkpoint.verdict", step, group->context) };

    return save(&s, keep, err);
}

tutti_status tutti_checkpoint_save(tutti_world *world, const char *dir, uint64_t step,
                                   const tutti_saved *items, size_t n, const char *facts, int keep,
                                   tutti_error *err)
{
    return tutti_checkpoint_save_through(world, tutti_world_runtime(world), dir, step, items, n,
                                         facts, keep, err);
}
