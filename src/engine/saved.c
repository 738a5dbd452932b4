/* saved.c: declared state <-> checkpoint. After losses those who are left write it as a run of so many workers, their indexes for ranks. A placed vector is saved by tensor and range, so that later it can be cut anew for another number of
   workers; what is the same everywhere is saved once, each worker writing its n-th of it; what is a worker's own carries its rank. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "engine_internal.h"

typedef struct items { tutti_saved *at; size_t count, room; } items;

static tutti_status add(items *list, const tutti_saved *item, tutti_error *err)
{
    if (list->count == list->room) {
        const size_t room = list->room == 0 ? 64 : 2 * list->room;
        tutti_saved *more = tutti_alloc(room, sizeof *more);
        if (more == NULL)
            return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "listing the state to save");
        if (list->count > 0)
            memcpy(more, list->at, list->count * sizeof *more);
        tutti_free(list->at);
        list->at = more;
        list->room = room;
    }
    list->at[list->count++] = *item;
    return TUTTI_OK;
}

/* The part [low, high) of the flat space of one placed vector, cut at tensors. */
static tutti_status add_placed(const tutti_engine *e, items *list, const tutti_state *s, char *memory, int owner, size_t low, size_t high, tutti_error *err)
{
    const size_t size = tutti_dtype_bytes(s->dtype);

    for (int i = 0; i < e->layout.n_tensors; i++) {
        const tutti_tensor *t = &e->tensors[i];
        const size_t from = low > t->first ? low : t->first, to = high < t->first + t->count ? high : t->first + t->count;
        if (from < to)
            TUTTI_TRY(add(list, &(tutti_saved){ .state = s->name, .tensor = t->name, .keep = s->keep, .dtype = s->dtype, .owner = owner, .count = t->count,
                                                .begin = from - t->first, .end = to - t->first, .data = memory + (from - s->first) * size }, err));
    }
    return TUTTI_OK;
}

/* What this rank saves, or (reading) what it needs. own: what each worker has one of, too; not so of a checkpoint of another number of workers. recut: not what goes by the number of servers. Who only serves has slices
   and nothing of its own, and x as it was. */
static tutti_status collect(const tutti_engine *e, items *list, bool reading, bool own, bool recut, tutti_error *err)
{
    const tutti_method *m = &e->m;
    const bool serves = m->rank >= m->workers;
    const size_t workers = (size_t)m->all.size, index = serves ? workers : (size_t)m->all.index;
    const size_t share = (m->n + workers - 1) / workers, low = share * index, high = low + share < m->n ? low + share : m->n;

    for (size_t i = 0; i < tutti_plan_count(e->plan); i++) {
        void *memory;
        const tutti_state *s = tutti_plan_state(e->plan, i, &memory);
        const bool same = s->keep == TUTTI_SAME, mine = !same && s->keep != TUTTI_SLICE;
        const int owner = mine ? m->all.index : -1;
        if (s->keep == TUTTI_SCRATCH || s->count == 0 || (mine && (serves || !own)) || (recut && tutti_engine_server_recuts(e, memory)))
            continue;
        if (s->placed) {
            const size_t end = s->first + s->count;
            const bool whole = reading || !same;
            TUTTI_TRY(add_placed(e, list, s, memory, owner, whole || low < s->first ? s->first : low, whole || high > end ? end : high, err));
        } else if (reading || !same || index == 0)
            TUTTI_TRY(add(list, &(tutti_saved){ .state = s->name, .tensor = "", .keep = s->keep, .dtype = s->dtype, .owner = owner, .count = s->of > 0 ? s->of : s->count,
                                                .begin = s->first, .end = s->first + s->count, .data = memory }, err));
    }
    return TUTTI_OK;
}

/* facts, which are a JSON object, and, after losses, who is left: "members":[0,1,3]. Gives NULL without memory; the caller frees it. */
static char *facts_now(const tutti_engine *e, const char *facts)
{
    const size_t length = strlen(facts), end = length > 0 ? length - 1 : 0;
    const bool whole = e->members == NULL || tutti_members_epoch(e->members) == 0 || facts[end] != '}';
    char *text = tutti_alloc(length + 32 + (whole ? 0 : 12 * (size_t)e->m.workers), 1), *at = text;

    if (text == NULL)
        return NULL;
    if (whole)
        return strcpy(text, facts);
    memcpy(text, facts, end);
    at += end;
    at += sprintf(at, "%s\"members\":[", strchr(facts, ':') != NULL ? "," : "");
    for (int i = 0; i < e->m.all.size; i++)
        at += sprintf(at, "%s%d", i > 0 ? "," : "", e->m.all.ranks[i]);
    strcpy(at, "]}");
    return text;
}

/* How many ranks only serve, and how many slices there are: what a reader needs to know before it can read the rest. */
static tutti_saved parts_item(int64_t parts[2])
{
    return (tutti_saved){ .state = "engine.servers", .tensor = "", .keep = TUTTI_SAME, .dtype = TUTTI_I64, .owner = -1, .count = 2, .begin = 0, .end = 2, .data = parts };
}

/* By those who are there, as last agreed. */
static tutti_status save_once(tutti_engine *e, const char *directory, const char *facts, int keep, tutti_error *err)
{
    char *text = facts_now(e, facts);
    tutti_group group = tutti_group_keyed(&e->m.everyone, tutti_port_of("save", 0, 0), 0);
    items list = { 0 };
    int64_t parts[2];
    const tutti_saved of_servers = parts_item(parts);
    tutti_status status = text != NULL ? collect(e, &list, false, true, false, err) : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "listing the state to save");

    tutti_engine_server_parts(e, parts);
    if (status == TUTTI_OK && e->server != NULL && group.index == 0)
        status = add(&list, &of_servers, err);
    if (status == TUTTI_OK && e->members != NULL)
        status = tutti_checkpoint_save_group(&group, directory, e->progress.step, list.at, list.count, text, keep, err);
    else if (status == TUTTI_OK)
        status = tutti_checkpoint_save(e->world, directory, e->progress.step, list.at, list.count, text, keep, err);
    tutti_free(list.at);
    tutti_free(text);
    return status;
}

tutti_status tutti_engine_save(tutti_engine *e, const char *directory, const char *facts, int keep, tutti_error *err)
{
    tutti_doing was;
    bool again;
    tutti_status status;

    if (e->stage != STAGE_READY && e->stage != STAGE_FINISHED)
        return tutti_fail(err, TUTTI_ERR_STATE, 0, "save is legal between steps only (engine.h)");
    status = tutti_engine_quiet(e, err);
    was = tutti_engine_doing(e, TUTTI_DOING_OUTSIDE);
    if (status == TUTTI_OK)
        do {
            again = false;
            status = save_once(e, directory, facts, keep, err);
            if (status == TUTTI_OK || status == TUTTI_ERR_PEER) /* else others may wait for it in there: see tutti_engine_settle */
                status = tutti_engine_settle(e, status, &again, err);
        } while (status == TUTTI_OK && again);
    tutti_engine_doing(e, was);
    return status;
}

/* Client state of another number of workers: the mean of those who had had samples. */
static tutti_status load_mean(tutti_engine *e, tutti_checkpoint *checkpoint, int saved_by, tutti_error *err)
{
    const size_t n = e->options.own_values;
    float *one = tutti_alloc(n + 1, sizeof *one);
    double *sum = tutti_alloc(n + 1, sizeof *sum);
    tutti_status status = one != NULL && sum != NULL ? TUTTI_OK : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "room for the client state of another worker");

    for (int k = 0; k < saved_by && status == TUTTI_OK; k++) {
        const tutti_saved item = { .state = "client", .tensor = "", .keep = TUTTI_OWN_MEAN, .dtype = TUTTI_F32, .owner = k, .count = n + 1, .begin = 0, .end = n + 1, .data = one };
        status = tutti_checkpoint_read(checkpoint, &item, 1, err);
        for (size_t i = 0; i <= n && one[n] > 0 && status == TUTTI_OK; i++)
            sum[i] += (double)one[i];
    }
    for (size_t i = 0; i <= n && status == TUTTI_OK && sum[n] > 0; i++)
        e->own_state[i] = (float)(sum[i] / sum[n]);
    tutti_free(one);
    tutti_free(sum);
    return status;
}

/* ---- another number of workers ---- */

/* The mean of what the workers had, or of a sum the elements that I own. What starts from 0 is 0 already. */
static tutti_status load_changed(tutti_engine *e, tutti_checkpoint *checkpoint, int saved_by, const tutti_state *s, float *to, tutti_error *err)
{
    float *one = tutti_alloc(s->count, sizeof *one);
    double *sum = tutti_alloc(s->count, sizeof *sum);
    tutti_status status = one != NULL && sum != NULL ? TUTTI_OK : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "room for '%s' of another worker", s->name);

    for (int k = 0; k < saved_by && status == TUTTI_OK; k++) {
        items list = { 0 };
        status = add_placed(e, &list, s, (char *)one, k, s->first, s->first + s->count, err);
        if (status == TUTTI_OK)
            status = tutti_checkpoint_read(checkpoint, list.at, list.count, err);
        for (size_t i = 0; i < s->count && status == TUTTI_OK; i++)
            sum[i] += (double)one[i];
        tutti_free(list.at);
    }
    for (int t = 0; t < e->layout.n_tensors && status == TUTTI_OK; t++)
        for (size_t i = 0; i < e->tensors[t].count; i++) {
            const size_t at = e->tensors[t].first + i - s->first;
            const bool mine = s->keep == TUTTI_OWN_MEAN || tutti_exchange_owner(t, e->tensors[t].count, i, e->m.workers) == e->m.rank;
            to[at] = mine ? (float)(s->keep == TUTTI_OWN_MEAN ? sum[at] / saved_by : sum[at]) : 0;
        }
    tutti_free(one);
    tutti_free(sum);
    return status;
}

/* States of each worker, from a checkpoint of another number of them. `reads` false: whether that is possible. */
static tutti_status change_workers(tutti_engine *e, tutti_checkpoint *checkpoint, int saved_by, bool reads, tutti_error *err)
{
    for (size_t i = 0; i < tutti_plan_count(e->plan); i++) {
        void *memory;
        const tutti_state *s = tutti_plan_state(e->plan, i, &memory);
        if (memory == (void *)e->own_state || (s->keep != TUTTI_OWN_SUM && s->keep != TUTTI_OWN_MEAN))
            continue;
        if (!s->placed || s->dtype != TUTTI_F32 || s->first != 0 || s->count != e->m.n)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0, "the checkpoint was saved by %d workers, and each has '%s' of its own, which would be lost with a worker; resume it with -n %d instead of %d", saved_by, s->name,
                              saved_by, e->m.workers);
        if (reads && e->m.rank < e->m.workers)
            TUTTI_TRY(load_changed(e, checkpoint, saved_by, s, memory, err));
    }
    return reads && e->own_state != NULL && e->m.rank < e->m.workers ? load_mean(e, checkpoint, saved_by, err) : TUTTI_OK;
}

tutti_status tutti_engine_load(tutti_engine *e, tutti_checkpoint *checkpoint, tutti_error *err)
{
    int64_t parts[2], saved_parts[2] = { 0 };
    const tutti_saved of_servers = parts_item(saved_parts);
    items list = { 0 };
    bool recut;
    int saved_by;
    tutti_status status;

    if (e->stage != STAGE_READY || e->clock.started_ns != 0)
        return tutti_fail(err, TUTTI_ERR_STATE, 0, "load is legal before the first pass only (engine.h)");
    tutti_engine_server_parts(e, parts);
    if (tutti_checkpoint_has(checkpoint, of_servers.state))
        TUTTI_TRY(tutti_checkpoint_read(checkpoint, &of_servers, 1, err));
    if (saved_parts[0] < 0 || saved_parts[0] >= tutti_checkpoint_world(checkpoint))
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0, "the checkpoint was saved by %d ranks, and says that %lld of them only served", tutti_checkpoint_world(checkpoint), (long long)saved_parts[0]);
    saved_by = tutti_checkpoint_world(checkpoint) - (int)saved_parts[0];
    recut = e->server != NULL && saved_parts[1] != parts[1] && saved_by == e->m.workers;
    if (saved_by != e->m.workers && !(e->m.traits & TUTTI_REPLICAS_EQUAL))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "the checkpoint was saved by %d workers and each worker of '%s' has a state of its own; resume it with "
                          "-n %d instead of %d", saved_by, e->m.ops->name, saved_by, e->m.workers);
    if (saved_by != e->m.workers)
        TUTTI_TRY(change_workers(e, checkpoint, saved_by, false, err));
    status = collect(e, &list, true, saved_by == e->m.workers, recut, err);
    if (status == TUTTI_OK)
        status = tutti_checkpoint_read(checkpoint, list.at, list.count, err);
    if (status == TUTTI_OK && recut)
        status = tutti_engine_server_load(e, checkpoint, saved_parts[1], err);
    if (status == TUTTI_OK && e->passes_of != NULL)
        status = tutti_fail_within(err, tutti_engine_check_deal(e, e->passes_of, err), "the checkpoint was saved with another cut of a step");
    if (status == TUTTI_OK && e->own_pace)
        tutti_engine_pace_loaded(e);
    tutti_engine_scaler_loaded(e);
    tutti_free(list.at);
    if (status == TUTTI_OK && saved_by != e->m.workers)
        status = change_workers(e, checkpoint, saved_by, true, err);
    e->m.step = e->agreed_step = e->progress.step;
    e->values_changed = true;
    return status;
}
