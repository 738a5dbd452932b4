/* saving.c: a checkpoint that is written in the background, while the client continues to train.

   tutti_engine_save_begin copies what this rank saves to separate memory, and a thread writes the
   copy by the protocol of every save (src/state/save.c). So the files are those of a save that
   blocks, and a crash leaves what it leaves there. Why the protocol may run during training:

   1. It has messages over ports, and no collective. The ports are those of a context of each save's
      own. The client's groups, and their sequence numbers, are not used.
   2. The thread reads the copy and nothing of the engine. Names of states and tensors live as long
      as the engine, and the list of ranks is a copy, since a loss changes the members' list.
   3. Its messages are not counted (tutti_group.uncounted): when they are sent depends on time.
   4. Rank 0 is the first to know how the save has ended; other ranks know it at other moments. So
      no rank returns the outcome before a call at which all wait: the next save, save_end, part.

   A rank that cannot copy, for lack of memory or because its states are on a disk, takes part
   within the call: it writes the engine's own memory, and its client waits. Its messages are the
   same, so the clients of other ranks need not wait.

   A save during which a worker is lost is not repeated. The lost worker's copy is gone, and the
   other copies divide the states among all workers, the lost one included. The next save is
   complete. */
#include <errno.h>
#include <string.h>

#include "calls.h"
#include "engine_internal.h"
#include "saved.h"
#include "state/parse.h"

enum { LINE = 64 }; /* bytes; each item of the copy begins at a multiple of it */

/* ---- the copy ---- */

static size_t bytes_of(const tutti_saved *item)
{
    return (size_t)(item->end - item->begin) * tutti_dtype_bytes(item->dtype);
}

static size_t room_of(const tutti_saved *item)
{
    return (bytes_of(item) + LINE - 1) / LINE * LINE;
}

/* Replaces `memory` if it has less than n elements. Then the contents are lost. */
static bool reserve(void **memory, size_t *room, size_t n, size_t size)
{
    if (n <= *room)
        return true;
    tutti_free(*memory);
    *memory = tutti_alloc(n, size);
    *room = *memory != NULL ? n : 0;
    return *memory != NULL;
}

/* Is it in memory that can be copied at once? States are on a disk for lack of memory. */
static tutti_status check_place(const tutti_saved *item, tutti_error *err)
{
    return bytes_of(item) == 0 || item->data != NULL
               ? TUTTI_OK
               : tutti_fail(err, TUTTI_ERR_USAGE, 0, "'%s/%s' is on a disk", item->state,
                            item->tensor);
}

static tutti_status copy_all(tutti_engine_saving *b, const items *list, tutti_error *err)
{
    void *copies = b->copies, *memory = b->memory;
    size_t need = 0, at = 0;
    bool there;

    for (size_t k = 0; k < list->count; k++) {
        TUTTI_TRY(check_place(&list->at[k], err));
        need += room_of(&list->at[k]); /* no overflow: it is in memory */
    }
    there = reserve(&copies, &b->copies_room, list->count, sizeof *b->copies) &&
            reserve(&memory, &b->memory_room, need, 1);
    b->copies = copies;
    b->memory = memory;
    if (!there)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "there is no memory for a copy (%zu bytes)",
                          need);
    for (size_t k = 0; k < list->count; k++) {
        const tutti_saved *item = &list->at[k];
        b->copies[k] = *item;
        if (bytes_of(item) == 0) /* data may be NULL */
            continue;
        b->copies[k].data = b->memory + at;
        memcpy(b->copies[k].data, item->data, bytes_of(item));
        at += room_of(item);
    }
    b->items = b->copies;
    return TUTTI_OK;
}

/* ---- the job ---- */

/* On the lane's thread, or on the client's. It allocates, unlike jobs of a step. */
static tutti_status write_all(tutti_job *job, tutti_error *err)
{
    const tutti_engine_saving *b = job->owner;

    return tutti_checkpoint_save_group(&b->group, b->directory, b->step, b->items, b->n, b->facts,
                                       b->keep, err);
}

/* Sets all members that the job reads except its items. facts is taken over. */
static tutti_status describe(tutti_engine *e, const char *directory, char *facts, int keep,
                             tutti_error *err)
{
    tutti_engine_saving *b = &e->saving;
    const tutti_group *all = &e->m.everyone;
    void *ranks = b->ranks;
    bool there = true;

    tutti_free(b->directory);
    tutti_free(b->facts);
    b->directory = tutti_copy_text(directory);
    b->facts = facts;
    b->keep = keep;
    b->step = e->counts.progress.step;
    b->group = tutti_group_keyed(all, tutti_port_of("asynchronous save", b->saves.begun, 0), 0);
    b->group.uncounted = true;
    b->saves.begun++;
    if (all->ranks != NULL) {
        there = reserve(&ranks, &b->ranks_room, (size_t)all->size, sizeof *b->ranks);
        b->ranks = ranks;
        b->group.ranks = b->ranks;
    }
    if (b->directory == NULL || !there)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "listing the state to save");
    if (all->ranks != NULL)
        memcpy(b->ranks, all->ranks, (size_t)all->size * sizeof *b->ranks);
    b->job = (tutti_job){ .run = write_all, .owner = b };
    return TUTTI_OK;
}

/* Counts how a save has ended, and decides whether that is a failure. */
static tutti_status ended(tutti_engine *e, tutti_status status, const tutti_error *why,
                          tutti_error *err)
{
    tutti_engine_saving *b = &e->saving;

    if (status == TUTTI_OK)
        b->saves.written++;
    else if (!tutti_is_left_out(&e->m, status, why)) {
        if (err != NULL)
            *err = *why;
    } else {
        tutti_event_of(&e->m, why->rank, "checkpoint",
                       "step %llu has no checkpoint, since a worker was lost while it was written; "
                       "the one before stays (%s)",
                       (unsigned long long)b->step, why->text);
        status = TUTTI_OK;
    }
    return status;
}

/* Writes the items in place, for the reason `why`. */
static tutti_status write_at_once(tutti_engine *e, const items *list, const tutti_error *why,
                                  tutti_error *err)
{
    tutti_engine_saving *b = &e->saving;
    tutti_error other = { .rank = -1 };
    const int64_t since = tutti_now_ns(e->rt);
    tutti_status status;

    if (b->saves.blocked++ == 0)
        tutti_event_of(&e->m, e->m.rank, "checkpoint",
                       "rank %d trains on only when its part of a checkpoint is written: %s",
                       e->m.rank, why->text);
    b->items = list->at;
    status = write_all(&b->job, &other);
    b->items = NULL;
    b->saves.write_ns += tutti_now_ns(e->rt) - since;
    return ended(e, status, &other, err);
}

static tutti_status start(tutti_engine *e, const items *list, tutti_error *err)
{
    tutti_engine_saving *b = &e->saving;
    tutti_error why = { .rank = -1 };
    const int64_t since = tutti_now_ns(e->rt);
    tutti_status status = copy_all(b, list, &why);

    b->saves.copy_ns += tutti_now_ns(e->rt) - since;
    b->n = list->count;
    if (status == TUTTI_OK && b->lane == NULL)
        status = tutti_lane_open(&b->lane, e->rt, "checkpoint", 1, &why);
    if (status != TUTTI_OK)
        return write_at_once(e, list, &why, err);
    b->under_way = true;
    tutti_lane_start(b->lane, &b->job);
    return TUTTI_OK;
}

/* ---- the client's calls ---- */

tutti_status tutti_engine_saving_wait(tutti_engine *e, tutti_error *err)
{
    tutti_engine_saving *b = &e->saving;
    tutti_error why = { .rank = -1 };
    tutti_doing was;
    int64_t since;
    tutti_status status;

    if (!b->under_way)
        return TUTTI_OK;
    was = tutti_engine_doing(e, TUTTI_DOING_OUTSIDE);
    tutti_engine_is_in(e, "checkpoint", -1);
    since = tutti_now_ns(e->rt);
    b->saves.waited += !tutti_job_over(b->lane, &b->job);
    status = tutti_job_wait(b->lane, &b->job, &why);
    b->under_way = false;
    b->saves.wait_ns += tutti_now_ns(e->rt) - since;
    b->saves.write_ns += b->job.ended_ns - b->job.started_ns;
    tutti_engine_mark_step(e, "checkpoint", -1, 2, b->step, b->job.started_ns, b->job.ended_ns);
    tutti_engine_doing(e, was);
    return ended(e, status, &why, err);
}

/* All ranks have waited for the last save. They agree on the remaining workers, so that a loss
   before the next save does not spoil it. */
static tutti_status agree(tutti_engine *e, tutti_error *err)
{
    const tutti_doing was = tutti_engine_doing(e, TUTTI_DOING_OUTSIDE);
    bool again; /* nothing has to be repeated */
    const tutti_status status = tutti_engine_settle(e, TUTTI_OK, &again, err);

    tutti_engine_doing(e, was);
    return status;
}

tutti_status tutti_engine_saving_over(tutti_engine *e, tutti_error *err)
{
    return e->saving.saves.begun > 0 ? agree(e, err) : TUTTI_OK;
}

/* Is this a moment at which all ranks may wait together? */
static bool is_between_steps(const tutti_engine *e)
{
    return e->stage == STAGE_READY || e->stage == STAGE_SHOWN || e->stage == STAGE_FINISHED;
}

tutti_status tutti_engine_save_begin(tutti_engine *e, const char *directory, const char *facts,
                                     int keep, tutti_error *err)
{
    items list = { 0 };
    extras x = { 0 };
    const int64_t since = tutti_now_ns(e->rt);
    tutti_doing was;
    tutti_status status;

    if (e->stage != STAGE_READY && e->stage != STAGE_FINISHED)
        return tutti_engine_out_of_order(err, "save_begin");
    TUTTI_TRY(tutti_engine_saving_wait(e, err));
    TUTTI_TRY(tutti_engine_collect(e, err));
    TUTTI_TRY(tutti_engine_quiesce(e, err));
    TUTTI_TRY(agree(e, err));
    was = tutti_engine_doing(e, TUTTI_DOING_OUTSIDE);
    tutti_engine_is_in(e, "checkpoint", -1);
    status = tutti_saved_list(e, facts, NULL, &list, &x, err);
    if (status == TUTTI_OK) {
        char *const taken = x.facts;
        x.facts = NULL;
        status = describe(e, directory, taken, keep, err);
    }
    if (status == TUTTI_OK)
        status = start(e, &list, err);
    tutti_saved_drop(&list, &x);
    tutti_engine_doing(e, was);
    tutti_engine_mark(e, "checkpoint", -1, 0, since, tutti_now_ns(e->rt));
    return status;
}

tutti_status tutti_engine_save_end(tutti_engine *e, tutti_error *err)
{
    return is_between_steps(e) ? tutti_engine_saving_wait(e, err)
                               : tutti_engine_out_of_order(err, "save_end");
}

void tutti_engine_saves(const tutti_engine *e, tutti_saves *saves)
{
    const tutti_engine_saving *b = &e->saving;

    *saves = b->saves;
    saves->bytes = tutti_engine_saving_bytes(e);
    saves->under_way = b->under_way && !tutti_job_over(b->lane, &b->job);
}

uint64_t tutti_engine_saving_bytes(const tutti_engine *e)
{
    return e->saving.memory_room + e->saving.copies_room * sizeof *e->saving.copies;
}

void tutti_engine_saving_close(tutti_engine *e)
{
    tutti_engine_saving *b = &e->saving;

    tutti_lane_close(b->lane);
    tutti_free(b->ranks);
    tutti_free(b->directory);
    tutti_free(b->facts);
    tutti_free(b->copies);
    tutti_free(b->memory);
    *b = (tutti_engine_saving){ 0 };
}
