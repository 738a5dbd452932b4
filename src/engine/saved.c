/* saved.c: declared state <-> checkpoint.

   What is saved. After losses the remaining workers write it as a run of that many workers, with
   their indexes as ranks, and record which workers they are.
   1. A placed vector is saved by tensor and range, so that later it can be partitioned again for
      another number of workers. Ranges that several workers have (shards in node groups) are saved
      once.
   2. State that is the same everywhere is saved once, each worker writing its n-th of it.
   3. A worker's own state carries its index.
   4. State with a part for each worker has one for lost workers, too.

   How other workers load it. As many as were left: each has its own states as they were. Another
   number:
   1. if values are at servers, all begin at the servers' model, as with other servers;
   2. if replicas are equal, so is their state;
   3. else only a method that declares that it can (`resized`) loads it.
   A part goes with its worker: to the rank that it had, if there are at least as many workers as
   at the beginning of the run; else the remaining ones close the gaps. Then the method makes a
   state of it (`resized`). In asynchronous runs gradients are counted per worker, and the number
   of steps is what stays. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "engine_internal.h"
#include "hooks.h"
#include "image.h"
#include "saved.h"
#include "collective/members.h"
#include "collective/world.h"
#include "engine/facility.h"
#include "state/plan.h"
#include "state/parse.h"
#include "state/read.h"

static char *facts_now(tutti_engine *e, const char *facts); /* below */

void tutti_saved_drop(items *list, extras *x)
{
    tutti_free(list->at);
    tutti_free(x->facts);
    tutti_free(x->members);
    *list = (items){ 0 };
    *x = (extras){ 0 };
}

static tutti_status add_members(const tutti_engine *e, items *list, int64_t *numbers,
                                tutti_error *err)
{
    const tutti_saved item =
        tutti_saved_numbers(SAVED_MEMBERS, 1 + (uint64_t)e->m.all.size, numbers);

    numbers[0] = e->m.workers;
    for (int i = 0; i < e->m.all.size; i++)
        numbers[1 + i] = e->m.all.ranks[i];
    return tutti_saved_append(list, &item, err);
}

/* With logical shares client state is the same on all workers (logical.c), so each has that of all:
   a worker that is lost takes nothing with it. */
static bool is_of_all(const tutti_engine *e, const void *memory)
{
    return e->options.elastic_shares > 0 && memory == e->own_values.now;
}

static tutti_status add_of_all(const tutti_engine *e, items *list, tutti_error *err)
{
    for (size_t k = 0, n = list->count; k < n; k++) {
        tutti_saved item = list->at[k];
        const int mine = item.owner;
        for (int i = 0; i < e->m.all.size && is_of_all(e, item.data); i++) {
            item.owner = i;
            if (i != mine)
                TUTTI_TRY(tutti_saved_append(list, &item, err));
        }
    }
    return TUTTI_OK;
}

/* Has each rank all of every state? One whose shard is empty does not. */
static bool each_has_all(const tutti_engine *e)
{
    bool all = true;

    for (size_t i = 0; i < tutti_plan_count(e->plan); i++) {
        void *memory;
        const tutti_keep keep = tutti_plan_state(e->plan, i, &memory)->keep;
        all = all && (keep == TUTTI_SAME || keep == TUTTI_SCRATCH || is_of_all(e, memory));
    }
    return all || e->m.everyone.size == 1;
}

tutti_status tutti_saved_list(tutti_engine *e, const char *facts, const savers *whole, items *list,
                              extras *x, tutti_error *err)
{
    const bool lost = e->losses.members != NULL && tutti_members_epoch(e->losses.members) > 0,
               adds = whole != NULL || e->m.everyone.index == 0;
    bool slices;

    *x = (extras){ .facts = facts_now(e, facts), .team = tutti_exchange_team(e) };
    if (lost)
        x->members = tutti_alloc(1 + (size_t)e->m.workers, sizeof *x->members);
    if (x->facts == NULL || (lost && x->members == NULL))
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "listing the state to save");
    TUTTI_TRY(tutti_saved_collect(e, list, NULL, whole, err));
    if (whole != NULL)
        TUTTI_TRY(add_of_all(e, list, err));
    x->parts[0] = e->m.servers;
    slices = tutti_facilities_slices(e, &x->parts[1]);
    if (slices && adds) {
        const tutti_saved of_servers = tutti_saved_numbers(SAVED_SERVERS, 2, x->parts);
        TUTTI_TRY(tutti_saved_append(list, &of_servers, err));
    }
    if (x->team > 1 && adds) {
        const tutti_saved of_team = tutti_saved_numbers(SAVED_TEAM, 1, &x->team);
        TUTTI_TRY(tutti_saved_append(list, &of_team, err));
    }
    return lost && adds ? add_members(e, list, x->members, err) : TUTTI_OK;
}

/* Saves a checkpoint, by the members as last agreed. */
static tutti_status save_once(tutti_engine *e, const char *directory, const char *facts, int keep,
                              tutti_error *err)
{
    tutti_group group = tutti_group_keyed(&e->m.everyone, tutti_port_of("save", 0, 0), 0);
    items list = { 0 };
    extras x = { 0 };
    tutti_status status = tutti_saved_list(e, facts, NULL, &list, &x, err);

    if (status == TUTTI_OK && e->losses.members != NULL)
        status = tutti_checkpoint_save_group(&group, directory, e->counts.progress.step, list.at,
                                             list.count, x.facts, keep, err);
    else if (status == TUTTI_OK)
        status = tutti_checkpoint_save(e->world, directory, e->counts.progress.step, list.at,
                                       list.count, x.facts, keep, err);
    tutti_saved_drop(&list, &x);
    return status;
}

tutti_status tutti_engine_image(tutti_engine *e, const char *facts, tutti_image **image,
                                tutti_error *err)
{
    savers same = { .began = e->m.workers, .left = e->m.all.size };
    const bool left = tutti_engine_commit_left(e);
    items list = { 0 };
    extras x = { 0 };
    tutti_status status;

    *image = NULL;
    if (e->stage != STAGE_READY && e->stage != STAGE_FINISHED && !left)
        return tutti_engine_out_of_order(err, "image");
    TUTTI_TRY(tutti_engine_collect(e, err));
    if (!left)
        TUTTI_TRY(tutti_engine_quiesce(e, err));
    tutti_facilities_slices(e, &same.run.slices);
    status = tutti_saved_list(e, facts, &same, &list, &x, err);
    if (status == TUTTI_OK)
        status = tutti_image_copy(image,
                                  &(tutti_image){ .step = e->counts.progress.step,
                                                  .rank = e->m.everyone.index,
                                                  .world = e->m.everyone.size,
                                                  .workers = e->m.all.size,
                                                  .copies = tutti_facilities_copies(e),
                                                  .whole = each_has_all(e),
                                                  .facts = x.facts },
                                  list.at, list.count, err);
    tutti_saved_drop(&list, &x);
    return status;
}

/* Lists the states that this worker has of a step next to its own. *step: which. *known: it has
   some, if only empty parts: then no other worker has to wait for what was here. */
static tutti_status list_beside(const tutti_engine *e, items *list, uint64_t *step, bool *known,
                                tutti_error *err)
{
    *known = false;
    for (size_t i = 0; i < tutti_plan_count(e->plan); i++) {
        void *memory;
        const tutti_state *s = tutti_plan_state(e->plan, i, &memory);
        const bool part = s->keep == TUTTI_SLICE && (s->ranges != NULL || s->of > 0);
        void *const there = part ? tutti_facilities_beside(e, memory, step) : NULL;
        *known = *known || there != NULL;
        if (there != NULL && s->ranges != NULL)
            TUTTI_TRY(tutti_saved_ranges(e, list, s, (tutti_place){ .memory = there }, true, err));
        else if (there != NULL)
            TUTTI_TRY(tutti_saved_unplaced(list, s, (tutti_place){ .memory = there }, -1, err));
    }
    return TUTTI_OK;
}

tutti_status tutti_engine_image_beside(tutti_engine *e, tutti_image **image, tutti_error *err)
{
    char none[] = "";
    items list = { 0 };
    uint64_t step = 0;
    bool known;
    tutti_status status;

    *image = NULL;
    if (e->stage != STAGE_READY && e->stage != STAGE_FINISHED && !tutti_engine_commit_left(e))
        return tutti_engine_out_of_order(err, "image_beside");
    status = list_beside(e, &list, &step, &known, err);
    if (status == TUTTI_OK && known)
        status = tutti_image_copy(image,
                                  &(tutti_image){ .step = step,
                                                  .rank = e->m.everyone.index,
                                                  .world = e->m.everyone.size,
                                                  .workers = e->m.all.size,
                                                  .copies = tutti_facilities_copies(e),
                                                  .facts = none },
                                  list.at, list.count, err);
    tutti_free(list.at);
    return status;
}

tutti_status tutti_engine_save(tutti_engine *e, const char *directory, const char *facts, int keep,
                               tutti_error *err)
{
    const int64_t since = tutti_now_ns(e->rt);
    tutti_doing was;
    bool again;
    tutti_status status;

    if (e->stage != STAGE_READY && e->stage != STAGE_FINISHED)
        return tutti_engine_out_of_order(err, "save");
    status = tutti_engine_saving_wait(e, err);
    if (status == TUTTI_OK)
        status = tutti_engine_collect(e, err);
    if (status == TUTTI_OK)
        status = tutti_engine_quiesce(e, err);
    if (status == TUTTI_OK)
        status = tutti_engine_saving_over(e, err);
    was = tutti_engine_doing(e, TUTTI_DOING_OUTSIDE);
    tutti_engine_is_in(e, "checkpoint", -1);
    if (status == TUTTI_OK)
        do {
            again = false;
            status = save_once(e, directory, facts, keep, err);
            /* otherwise others may wait for this worker in there: see tutti_engine_settle */
            if (status == TUTTI_OK || status == TUTTI_ERR_PEER)
                status = tutti_engine_settle(e, status, &again, err);
        } while (status == TUTTI_OK && again);
    tutti_engine_doing(e, was);
    tutti_engine_mark(e, "checkpoint", -1, 0, since, tutti_now_ns(e->rt));
    return status;
}

/* Client state of another number of workers: the mean over those that had had samples. */
static tutti_status load_mean(tutti_engine *e, tutti_checkpoint *checkpoint, int saved_by,
                              tutti_error *err)
{
    const size_t n = e->options.own_values;
    float *one = tutti_alloc(n + 1, sizeof *one);
    double *sum = tutti_alloc(n + 1, sizeof *sum);
    tutti_status status = one != NULL && sum != NULL
                              ? TUTTI_OK
                              : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM,
                                           "memory for the client state of another worker");

    for (int k = 0; k < saved_by && status == TUTTI_OK; k++) {
        const tutti_saved item = { .state = "client",
                                   .tensor = "",
                                   .keep = TUTTI_OWN_MEAN,
                                   .dtype = TUTTI_F32,
                                   .owner = k,
                                   .count = n + 1,
                                   .begin = 0,
                                   .end = n + 1,
                                   .data = one };
        status = tutti_checkpoint_read(checkpoint, &item, 1, err);
        for (size_t i = 0; i <= n && one[n] > 0 && status == TUTTI_OK; i++)
            sum[i] += (double)one[i];
    }
    for (size_t i = 0; i <= n && status == TUTTI_OK && sum[n] > 0; i++)
        e->own_values.now[i] = (float)(sum[i] / sum[n]);
    tutti_free(one);
    tutti_free(sum);
    return status;
}

/* ---- another number of workers ---- */

/* Loads the mean of the workers' states, or of a sum the elements that this worker owns. State
   that starts from 0 is 0 already. */
static tutti_status load_changed(tutti_engine *e, tutti_checkpoint *checkpoint, int saved_by,
                                 const tutti_state *s, float *to, tutti_error *err)
{
    float *one = tutti_alloc(s->count, sizeof *one);
    double *sum = tutti_alloc(s->count, sizeof *sum);
    tutti_status status = one != NULL && sum != NULL
                              ? TUTTI_OK
                              : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM,
                                           "memory for '%s' of another worker", s->name);

    for (int k = 0; k < saved_by && status == TUTTI_OK; k++) {
        items list = { 0 };
        status = tutti_saved_range(e, &list,
                                   &(placed){ s, (tutti_place){ .memory = one }, s->first, k },
                                   s->first, s->first + s->count, err);
        if (status == TUTTI_OK)
            status = tutti_checkpoint_read(checkpoint, list.at, list.count, err);
        for (size_t i = 0; i < s->count && status == TUTTI_OK; i++)
            sum[i] += (double)one[i];
        tutti_free(list.at);
    }
    for (int t = 0; t < e->layout.n_tensors && status == TUTTI_OK; t++)
        for (size_t i = 0; i < e->tensors[t].count; i++) {
            const size_t at = e->tensors[t].first + i - s->first;
            const bool mine =
                s->keep == TUTTI_OWN_MEAN ||
                tutti_exchange_owner(e, t, i) == e->m.rank;
            to[at] = mine ? (float)(s->keep == TUTTI_OWN_MEAN ? sum[at] / saved_by : sum[at]) : 0;
        }
    tutti_free(one);
    tutti_free(sum);
    return status;
}

/* States of each worker, from a checkpoint of another number of them. `reads`
   false: whether that is possible. */
static tutti_status change_workers(tutti_engine *e, tutti_checkpoint *checkpoint, const savers *by,
                                   bool reads, tutti_error *err)
{
    for (size_t i = 0; i < tutti_plan_count(e->plan); i++) {
        void *memory;
        const tutti_state *s = tutti_plan_state(e->plan, i, &memory);
        if (memory == (void *)e->own_values.now ||
            (s->keep != TUTTI_OWN_SUM && s->keep != TUTTI_OWN_MEAN) ||
            (s->count == 0 && e->m.rank >= e->m.workers) ||
            tutti_facilities_recut(e, &by->run, memory))
            continue;
        if (!s->placed || s->dtype != TUTTI_F32 || s->first != 0 || s->count != e->m.n)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "the checkpoint was saved by %d workers, and each has '%s' of its "
                              "own, which would be lost with a worker; resume it with -n %d "
                              "instead of %d",
                              by->left, s->name, by->left, e->m.workers);
        if (reads && e->m.rank < e->m.workers)
            TUTTI_TRY(load_changed(e, checkpoint, by->left, s, memory, err));
    }
    return reads && e->own_values.now != NULL && e->m.rank < e->m.workers
               ? load_mean(e, checkpoint, by->left, err)
               : TUTTI_OK;
}

/* Reads which workers saved the checkpoint. left: their number. */
static tutti_status read_savers(const tutti_engine *e, tutti_checkpoint *checkpoint, int left,
                                savers *by, tutti_error *err)
{
    static const char state[] = SAVED_MEMBERS;
    const uint64_t count = 1 + (uint64_t)left;
    int64_t *numbers = tutti_alloc((size_t)count, sizeof *numbers);
    const tutti_saved item = tutti_saved_numbers(state, count, numbers);
    tutti_status status = TUTTI_OK;

    *by = (savers){ .began = left,
                    .left = left,
                    .rank = tutti_alloc((size_t)left, sizeof *by->rank) };
    if (numbers == NULL || by->rank == NULL)
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM,
                            "memory to read which workers saved the checkpoint");
    for (int k = 0; k < left && status == TUTTI_OK; k++)
        by->rank[k] = k;
    if (status == TUTTI_OK && tutti_checkpoint_has(checkpoint, state)) {
        status = tutti_checkpoint_read(checkpoint, &item, 1, err);
        by->began = status == TUTTI_OK && numbers[0] >= left && numbers[0] <= INT32_MAX
                        ? (int)numbers[0]
                        : 0;
        for (int k = 0; k < left && status == TUTTI_OK; k++) {
            by->rank[k] = numbers[1 + k];
            if (by->rank[k] < (k > 0 ? by->rank[k - 1] + 1 : 0) || by->rank[k] >= by->began)
                status = tutti_fail(
                    err, TUTTI_ERR_CORRUPT, 0,
                    "according to the checkpoint, %lld workers began its run, and worker %lld was "
                    "number %d of the %d that were left; use an older one",
                    (long long)numbers[0], (long long)by->rank[k], k + 1, left);
        }
    }
    tutti_free(numbers);
    by->run.resized = left != e->m.workers;
    by->run.changed = by->run.resized || by->began != e->m.workers;
    return status;
}

/* Another number of workers is allowed if no worker has state of its own, or all can begin with
   the servers' values, or the method can convert its state. */
static tutti_status check_number(const tutti_engine *e, const savers *by, tutti_error *err)
{
    char of_them[48] = "";
    int64_t slices;

    tutti_facilities_slices(e, &slices);
    if (!by->run.resized || (e->m.traits & TUTTI_REPLICAS_EQUAL) != 0 || slices > 0 ||
        e->m.ops->resized != NULL)
        return TUTTI_OK;
    if (by->began > by->left)
        snprintf(of_them, sizeof of_them, ", which were left of %d,", by->began);
    return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                      "the checkpoint was saved by %d workers%s and each worker of '%s' has a "
                      "state of its own; resume it with -n %d instead of %d",
                      by->left, of_them, e->m.ops->name, by->left, e->m.workers);
}

/* ---- the facts of a checkpoint ---- */

/* True if a checkpoint saved now can be resumed by the same number of workers only. */
static bool for_as_many(tutti_engine *e)
{
    savers other = { .began = e->m.workers,
                     .left = e->m.all.size,
                     .run = { .resized = true, .changed = true } };

    tutti_facilities_slices(e, &other.run.slices);
    return check_number(e, &other, NULL) != TUTTI_OK ||
           change_workers(e, NULL, &other, false, NULL) != TUTTI_OK;
}

/* Returns `facts`, which is a JSON object, extended by what the engine knows: "members":[0,1,3],
   after losses, the remaining workers; "as_many":true, if no other number of workers can resume
   it. NULL without memory; the caller frees it. */
static char *facts_now(tutti_engine *e, const char *facts)
{
    const size_t length = strlen(facts), end = length > 0 ? length - 1 : 0;
    const bool lost = e->losses.members != NULL && tutti_members_epoch(e->losses.members) > 0;
    char *text = tutti_alloc(length + 64 + (lost ? 12 * (size_t)e->m.workers : 0), 1), *at = text;
    const char *comma = strchr(facts, ':') != NULL ? "," : "";

    if (text == NULL)
        return NULL;
    if (facts[end] != '}')
        return strcpy(text, facts);
    memcpy(text, facts, end);
    at += end;
    if (lost) {
        at += sprintf(at, "%s\"members\":[", comma);
        for (int i = 0; i < e->m.all.size; i++)
            at += sprintf(at, "%s%d", i > 0 ? "," : "", e->m.all.ranks[i]);
        at += sprintf(at, "]");
        comma = ",";
    }
    if (for_as_many(e))
        at += sprintf(at, "%s\"as_many\":true", comma);
    strcpy(at, "}");
    return text;
}

/* ---- access to declared state in place ---- */

tutti_status tutti_engine_state(tutti_engine *e, const tutti_saved **pieces, size_t *n,
                                tutti_error *err)
{
    savers same = { .began = e->m.workers, .left = e->m.workers };
    const bool left = tutti_engine_commit_left(e);
    items list = { 0 };
    tutti_status status;

    *pieces = NULL;
    *n = 0;
    if (e->stage != STAGE_READY && !left &&
        (e->stage != STAGE_SHOWN || e->kept != NULL || e->snapshots.shown > 0))
        return tutti_engine_out_of_order(err, "state");
    for (size_t i = 0; i < tutti_plan_count(e->plan); i++) {
        const tutti_place *place = tutti_plan_place(e->plan, i);
        if (place != NULL && place->memory == NULL &&
            tutti_plan_state(e->plan, i, NULL)->keep != TUTTI_SCRATCH)
            return tutti_fail(
                err, TUTTI_ERR_USAGE, 0,
                "state '%s' is in tier '%s', which has no addresses; save a checkpoint "
                "(tutti_engine_save), or keep it in tier 'host'",
                tutti_plan_state(e->plan, i, NULL)->name, tutti_plan_state(e->plan, i, NULL)->tier);
    }
    TUTTI_TRY(tutti_engine_collect(e, err));
    if (!left)
        TUTTI_TRY(tutti_engine_quiesce(e, err));
    if (e->losses.members != NULL && tutti_members_epoch(e->losses.members) > 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "%d of %d workers are left, and what the others had of the state is "
                          "lost; save a checkpoint (tutti_engine_save), which records the workers "
                          "that are left",
                          e->m.all.size, e->m.workers);
    tutti_facilities_slices(e, &same.run.slices);
    status = tutti_saved_collect(e, &list, NULL, &same, err);
    tutti_free(e->state_pieces);
    e->state_pieces = list.at;
    if (status == TUTTI_OK) {
        *pieces = list.at;
        *n = list.count;
    }
    return status;
}

/* Declared state was replaced by that of another run, which began with `workers` workers. */
static tutti_status taken_over(tutti_engine *e, int workers, tutti_error *err)
{
    TUTTI_TRY(tutti_facilities_values_replaced(e, err));
    if (e->is_async)
        tutti_engine_pace_loaded(e, workers);
    tutti_engine_scaler_loaded(e);
    e->m.step = e->losses.agreed_step = e->counts.progress.step;
    e->values_changed = true;
    e->client.holds = e->client.away = false;
    tutti_engine_hand_out(e);
    return TUTTI_OK;
}

tutti_status tutti_engine_state_written(tutti_engine *e, tutti_error *err)
{
    if (e->stage != STAGE_READY || e->clock.started_ns != 0)
        return tutti_fail(err, TUTTI_ERR_STATE, 0,
                          "state is written before the first pass only (tutti.h)");
    TUTTI_TRY(tutti_facilities_loaded(e, err));
    return taken_over(e, e->m.workers, err);
}

static tutti_status load(tutti_engine *e, tutti_checkpoint *checkpoint, const savers *by,
                         tutti_error *err)
{
    items list = { 0 };
    tutti_status status =
        by->run.resized ? change_workers(e, checkpoint, by, false, err) : TUTTI_OK;

    if (status == TUTTI_OK)
        status = tutti_saved_collect(e, &list, checkpoint, by, err);
    if (status == TUTTI_OK)
        status = tutti_checkpoint_read(checkpoint, list.at, list.count, err);
    tutti_free(list.at);
    TUTTI_TRY(status);
    /* progress.step determines how long the run continues and where its samples are */
    if (e->counts.progress.step != tutti_checkpoint_step(checkpoint) ||
        (!e->is_async && e->counts.progress.skipped >
                             e->counts.progress.step)) /* asynchronous runs skip single gradients */
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                          "the checkpoint is of step %llu, and its state is of step %llu, %llu of "
                          "them skipped; use another one",
                          (unsigned long long)tutti_checkpoint_step(checkpoint),
                          (unsigned long long)e->counts.progress.step,
                          (unsigned long long)e->counts.progress.skipped);
    if (by->run.resized)
        TUTTI_TRY(change_workers(e, checkpoint, by, true, err));
    TUTTI_TRY(tutti_facilities_load(e, checkpoint, &by->run, err));
    TUTTI_TRY(tutti_facilities_loaded(e, err));
    return by->run.changed && e->m.ops->resized != NULL
               ? e->m.ops->resized(&e->m, by->began, by->left, err)
               : TUTTI_OK;
}

/* Is no other rank on this worker's host? */
static bool is_alone(const tutti_engine *e)
{
    const int host = tutti_world_host(e->world, tutti_world_rank(e->world));
    int there = 0;

    for (int r = 0; r < tutti_world_size(e->world); r++)
        there += tutti_world_host(e->world, r) == host;
    return there == 1;
}

tutti_status tutti_engine_load(tutti_engine *e, tutti_checkpoint *checkpoint, tutti_error *err)
{
    int64_t saved_parts[2] = { 0 }, saved_team = 1;
    const tutti_saved of_servers = tutti_saved_numbers(SAVED_SERVERS, 2, saved_parts),
                      of_team = tutti_saved_numbers(SAVED_TEAM, 1, &saved_team);
    savers by = { 0 };
    tutti_status status;

    if (e->stage != STAGE_READY || e->clock.started_ns != 0)
        return tutti_fail(err, TUTTI_ERR_STATE, 0,
                          "load is legal before the first pass only (tutti.h)");
    if (is_alone(e))
        tutti_checkpoint_alone(checkpoint);
    if (tutti_checkpoint_has(checkpoint, of_servers.state))
        TUTTI_TRY(tutti_checkpoint_read(checkpoint, &of_servers, 1, err));
    if (saved_parts[0] < 0 || saved_parts[0] >= tutti_checkpoint_world(checkpoint))
        return tutti_fail(
            err, TUTTI_ERR_CORRUPT, 0,
            "the checkpoint was saved by %d ranks, and states that %lld of them only served",
            tutti_checkpoint_world(checkpoint), (long long)saved_parts[0]);
    if (tutti_checkpoint_has(checkpoint, of_team.state))
        TUTTI_TRY(tutti_checkpoint_read(checkpoint, &of_team, 1, err));
    TUTTI_TRY(tutti_exchange_check_saved_team(
        e, saved_team, tutti_checkpoint_world(checkpoint) - (int)saved_parts[0], err));
    status = read_savers(e, checkpoint, tutti_checkpoint_world(checkpoint) - (int)saved_parts[0],
                         &by, err);
    by.run.slices = saved_parts[1];
    if (status == TUTTI_OK)
        status = check_number(e, &by, err);
    if (status == TUTTI_OK)
        status = load(e, checkpoint, &by, err);
    tutti_free(by.rank);
    TUTTI_TRY(status); /* the same engine may be given another checkpoint */
    return taken_over(e, by.began, err);
}
