/* preduce.c: a worker's part of partial all-reduce (preduce.h): Luo, He, Zhuo, Qian, "Prague",
   ASPLOS 2020; docs/methods/prague.md. Four threads take part:

     client     x <- s; computes the gradient at x; s <- s - eta opt(g); every sync_every gradients
                it requests a P-Reduce from its service, and waits for it (with overlap: for the
                one before it)
     reduce     requests a group from the generator, which answers (id, members): u <- s;
                a <- mean of u over the members, by a collective of the group with that id;
                s <- s + (a - u)
     generate   on the worker that generates: answers the requests of all workers
     tell       after losses: sends all workers the rank that generates now

   s is the model, protected by a lock; x is a copy. If the client has not changed s since u was
   copied, s becomes a itself, so members have the same bits. Otherwise only the difference is
   added: no gradient is lost.

   Only control messages go through the generator: a request and its answer, 4 bytes per member. A
   worker's next request implies that its last P-Reduce has ended, so no other message reports it.

   The end of a phase. A worker that makes no more steps reports so (LEAVE), and makes the groups
   that are planned with it. No new group is planned with it. So no group remains at quiescence.

   Losses, in a fault-tolerant run.

   1. A loss within a P-Reduce. The P-Reduce fails for some members, and may succeed for others. So
      each member reports how its part ended and waits for the generator's verdict
      (groups_verdict.c). The thread `reduce` waits, and the client does not; u is kept for this.
      If the P-Reduce does not count, all members undo the difference, and the survivors repeat it.
   2. A loss of the generator. Another worker takes over, and an answer of a dismissed generator is
      ignored (preduce_generate.c).

   A worker that is suspended is not lost. Groups that have not started continue without it after
   group_timeout; a worker suspended in the middle of a P-Reduce delays the others of that
   group. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "preduce_internal.h"
#include "engine/facility.h"
#include "preduce.h"
#include "engine/calls.h"

enum { LOG_FIRST = 64 };

static tutti_status no_memory(const tutti_preduce *p, tutti_error *err)
{
    return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening method '%s'", p->m->ops->name);
}

bool tutti_preduce_is_static(const tutti_preduce_options *options)
{
    return options->generator == TUTTI_GROUPS_STATIC;
}

/* ---- declare, open, close ---- */

/* Numbers the machines from 0 on, in the order of their first workers. */
static tutti_status find_machines(tutti_preduce *p, tutti_error *err)
{
    const tutti_method *m = p->m;
    const char *value = p->o->inter_intra;
    const bool by_host = strcmp(value, "auto") == 0;
    long each = 0;
    char *end;
    int machines = 0;

    if (strcmp(value, "off") == 0 || m->workers == 1)
        return TUTTI_OK;
    errno = 0;
    if (!by_host) {
        each = strtol(value, &end, 10);
        if (errno != 0 || end == value || *end != 0 || each < 2 || each >= m->workers)
            return tutti_fail(
                err, TUTTI_ERR_USAGE, 0,
                "method '%s': inter_intra is '%.40s'; it must be auto, off, or how many workers of "
                "consecutive ranks make a machine: 2 to %d of these %d",
                m->ops->name, value, m->workers - 1, m->workers);
    }
    p->machine = tutti_alloc((size_t)m->workers, sizeof *p->machine);
    if (p->machine == NULL)
        return no_memory(p, err);
    for (int r = 0; r < m->workers; r++) {
        int first = 0;
        while (by_host ? tutti_world_host(m->world, first) != tutti_world_host(m->world, r)
                       : first / each != r / each)
            first++;
        p->machine[r] = first == r ? machines++ : p->machine[first];
    }
    if (machines == 1 || machines == m->workers) {
        tutti_free(p->machine);
        p->machine = NULL;
    }
    return TUTTI_OK;
}

static tutti_status find_rows(tutti_preduce *p, tutti_error *err)
{
    const int n = p->m->workers;

    p->period = tutti_groups_period(n, p->size, p->machine);
    p->row = tutti_alloc(p->period * (size_t)n, sizeof *p->row);
    p->row_n = tutti_alloc(p->period, sizeof *p->row_n);
    if (p->row == NULL || p->row_n == NULL)
        return no_memory(p, err);
    for (uint64_t k = 0; k < p->period; k++)
        p->row_n[k] =
            tutti_groups_row(n, p->size, p->machine, k, p->m->rank, p->row + k * (uint64_t)n);
    return tutti_fail_within(err, tutti_groups_check(n, p->size, p->machine, &p->lambda, err),
                             "method '%s'", p->m->ops->name);
}

static const tutti_facility_ops facility; /* at the end */

tutti_status tutti_preduce_declare(tutti_preduce **out, tutti_method *m, tutti_plan *plan,
                                   const tutti_preduce_options *options, const int services[3],
                                   tutti_error *err)
{
    const int usual = m->workers <= 4 ? m->workers < 2 ? m->workers : 2 : 3;
    tutti_preduce *p = tutti_alloc(1, sizeof *p);

    *out = p;
    if (p == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening method '%s'", m->ops->name);
    p->m = m;
    p->o = options;
    tutti_facility_add(m, &facility, p);
    tutti_engine_declare_history(m->engine);
    memcpy(p->service, services, sizeof p->service);
    p->fixed = tutti_preduce_is_static(options);
    p->size = options->group_size > 0 ? (int)options->group_size : usual;
    p->overlaps = options->overlap == TUTTI_PREDUCE_AUTO ? !p->fixed && p->size < m->workers
                                                         : options->overlap == TUTTI_PREDUCE_ON;
    if (options->group_size == 1)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method '%s': group_size is 1, and a group of one averages nothing; it "
                          "must be 2 to the number of workers, or 0 for %d",
                          m->ops->name, usual);
    if (p->size > m->workers)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method '%s': group_size is %d and there are %d workers; ask for no more "
                          "than that, or for 0",
                          m->ops->name, p->size, m->workers);
    if (m->workers > TUTTI_GROUPS_WORKERS_MOST)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method '%s': there are %d workers, and groups are of %d at most",
                          m->ops->name, m->workers, TUTTI_GROUPS_WORKERS_MOST);
    tutti_declare_vector(plan, "preduce.s", TUTTI_SCRATCH, &p->s); /* x holds it at quiescence */
    tutti_declare_value(plan, "preduce.gradients", TUTTI_OWN_ZERO, &p->gradients,
                        sizeof p->gradients);
    if (m->workers == 1)
        return TUTTI_OK;
    TUTTI_TRY(find_machines(p, err));
    if (p->fixed)
        TUTTI_TRY(find_rows(p, err));
    tutti_declare_vector(plan, "preduce.sent", TUTTI_SCRATCH, &p->sent);
    tutti_declare_vector(plan, "preduce.mean", TUTTI_SCRATCH, &p->mean);
    tutti_declare_value(plan, "preduce.syncs", TUTTI_OWN_ZERO, &p->syncs, sizeof p->syncs);
    tutti_declare_value(plan, "preduce.reduced", TUTTI_OWN_ZERO, &p->reduced, sizeof p->reduced);
    tutti_declare_value(plan, "preduce.draws", TUTTI_OWN_ZERO, &p->draws, sizeof p->draws);
    tutti_declare(plan,
                  &(tutti_state){ .name = "preduce.lag",
                                  .keep = TUTTI_OWN_ZERO,
                                  .dtype = TUTTI_I64,
                                  .count = (size_t)m->workers,
                                  .of_workers = true },
                  &p->lag);
    return TUTTI_OK;
}

/* Warns that groups of all workers are not smaller than all. */
static void warn_of_all(const tutti_preduce *p)
{
    const int n = p->m->workers;

    if (p->size < n || p->m->rank != 0)
        return;
    if (n == 2)
        tutti_event(p->m, "groups-of-all",
                    "both workers are in every group, so each waits for the slower one; groups are "
                    "smaller than all from 3 workers on");
    else
        tutti_event(p->m, "groups-of-all",
                    "group_size is %d, so all %d workers are in every group, and each waits for "
                    "the slowest; give a smaller group_size, or 0 for %d",
                    p->size, n, n <= 4 ? 2 : 3);
}

static tutti_status open_preduce(void *self, tutti_error *err)
{
    tutti_preduce *p = self;
    const size_t n = (size_t)p->m->workers;

    TUTTI_TRY(tutti_monitor_open(&p->lock, p->m->rt, err));
    if (n == 1)
        return TUTTI_OK;
    p->last.member = tutti_alloc(n, sizeof *p->last.member);
    p->next = tutti_alloc(n, sizeof *p->next);
    if (p->last.member == NULL || p->next == NULL)
        return no_memory(p, err);
    warn_of_all(p);
    if (p->fixed)
        tutti_metric(p->m, "schedule_leaves", -1, p->lambda);
    return tutti_preduce_generator_open(p, err);
}

static void close_preduce(void *self)
{
    tutti_preduce *p = self;

    tutti_monitor_close(p->lock);
    tutti_preduce_generator_close(p);
    for (size_t k = 0; k < p->logged; k++)
        tutti_free(p->log[k].member);
    tutti_free(p->log);
    tutti_free(p->machine);
    tutti_free(p->row);
    tutti_free(p->row_n);
    tutti_free(p->last.member);
    tutti_free(p->next);
    tutti_free(p);
}

/* ---- client thread ---- */

static void tell_figures(tutti_preduce *p)
{
    tutti_method *m = p->m;
    const tutti_groups_figures *f = tutti_groups_figures_of(p->groups);

    if (p->fixed)
        return;
    tutti_metric(m, "groups", -1, (double)f->groups);
    tutti_metric(m, "conflicts", -1, (double)f->conflicts);
    tutti_metric(m, "skipped", -1, (double)f->nothing);
    tutti_metric(m, "made_again", -1, (double)f->again);
    tutti_metric(m, "left_out", -1, (double)f->left_out);
    tutti_metric(m, "wait_for_go", -1,
                 f->waits > 0 ? (double)f->wait_ns * 1e-9 / (double)f->waits : 0);
    for (int r = 0; r < m->workers; r++)
        tutti_metric(m, "requests", r, (double)tutti_groups_requests_of(p->groups, r));
}

static void tell_log(tutti_preduce *p)
{
    for (size_t k = 0; k < p->logged; k++) {
        const tutti_preduce_entry *e = &p->log[k];
        char list[400] = "";
        for (int j = 0, used = 0; j < e->n && used < (int)sizeof list - 16; j++)
            used += snprintf(list + used, sizeof list - (size_t)used, j > 0 ? ",%d" : "%d",
                             e->member[j]);
        tutti_event_of(p->m, p->m->rank, e->counts ? "group" : "spoilt group",
                       "%lld by %d: %s from %lld to %lld ns", (long long)e->id, p->m->rank, list,
                       (long long)e->begin_ns, (long long)e->end_ns);
        tutti_free(e->member);
    }
    p->logged = 0;
}

static tutti_status quiesce(void *self, tutti_error *err)
{
    tutti_preduce *p = self;

    (void)err;
    tutti_copy(p->m->device, p->m->n, p->s, p->m->x);
    if (p->groups != NULL) {
        tell_figures(p);
        tell_log(p);
    }
    return TUTTI_OK;
}

static tutti_status preduce_resume(void *self, tutti_error *err)
{
    tutti_preduce *p = self;

    (void)err;
    tutti_copy(p->m->device, p->m->n, p->m->x, p->s);
    p->leaves = false;
    p->due = 0;
    p->computed_ns = 0;
    p->free_ns = tutti_now_ns(p->m->rt);
    if (p->groups != NULL)
        tutti_preduce_generator_begin(p);
    return TUTTI_OK;
}

void tutti_preduce_read(tutti_preduce *p)
{
    tutti_lock(p->lock);
    tutti_copy(p->m->device, p->m->n, p->s, p->m->x);
    p->seen = p->averaged;
    tutti_unlock(p->lock);
}

static void count_move(tutti_preduce *p)
{
    tutti_lock(p->lock);
    p->moved++;
    tutti_unlock(p->lock);
}

tutti_status tutti_preduce_update(tutti_preduce *p, tutti_error *err)
{
    tutti_method *m = p->m;
    uint64_t staleness;

    tutti_lock(p->lock);
    staleness = p->averaged - p->seen;
    tutti_unlock(p->lock);
    tutti_stale(m, staleness);
    count_move(p);
    TUTTI_TRY(tutti_base_step_on(m, p->s, p->lock, 1, err));
    count_move(p);
    p->computed_ns += tutti_now_ns(m->rt) - p->free_ns;
    p->free_ns = tutti_now_ns(m->rt);
    if (++p->gradients % p->o->sync_every != 0 || m->workers == 1)
        return TUTTI_OK;
    tutti_lock(p->lock);
    p->due++;
    p->syncs++;
    p->takes_ns = p->computed_ns;
    tutti_unlock(p->lock);
    tutti_round_post(m, p->service[REDUCE], 1);
    TUTTI_TRY(tutti_round_await(m, p->service[REDUCE], p->overlaps ? 1 : 0, err));
    p->computed_ns = 0;
    p->free_ns = tutti_now_ns(m->rt);
    return TUTTI_OK;
}

void tutti_preduce_leave(tutti_preduce *p)
{
    if (p->fixed || p->m->workers == 1)
        return;
    tutti_lock(p->lock);
    p->leaves = true;
    tutti_unlock(p->lock);
    tutti_round_post(p->m, p->service[REDUCE], 1);
}

/* ---- P-Reduce ---- */

/* Asks the generator, and the next one as long as it is replaced. *decision: its answer; MOVED: no
   worker generates any more. After GO and AGAIN p->last is the group. */
static tutti_status ask_generator(tutti_preduce *p, const tutti_header *question,
                                  tutti_buffer payload, uint32_t *decision, tutti_error *err)
{
    tutti_method *m = p->m;

    for (;;) {
        const int to = tutti_preduce_view(p);
        tutti_header note = *question;
        tutti_status status;
        bool moved;
        *decision = MOVED;
        if (to == m->workers)
            return TUTTI_OK;
        status = tutti_rpc_call(m, p->service[GENERATE], to, &note, payload,
                                tutti_host(p->next, (size_t)m->workers, TUTTI_I32), err);
        if (tutti_is_left_out(m, status, err)) {
            tutti_preduce_dismiss(p, to + 1);
            continue;
        }
        if (status != TUTTI_OK)
            return status;
        if (note.kind == MOVED) {
            tutti_preduce_dismiss(p, (int)note.a);
            continue;
        }
        tutti_lock(p->lock);
        moved = p->view != to; /* a group that the new generator does not know of does not begin */
        if (!moved && (note.kind == TUTTI_GROUPS_GO || note.kind == TUTTI_GROUPS_AGAIN)) {
            p->last.id = note.a;
            p->last.n = (int)(note.b % APART);
            p->last.apart = note.b >= APART;
            p->last.kept = false;
            memcpy(p->last.member, p->next, (size_t)p->last.n * sizeof *p->last.member);
            tutti_preduce_note(p);
        }
        p->last.kept = p->last.kept || (!moved && note.kind == TUTTI_GROUPS_KEEP);
        p->left =
            p->left || (!moved && question->kind == LEAVE && note.kind == TUTTI_GROUPS_NOTHING);
        if (!moved && note.kind == TUTTI_GROUPS_UNDO)
            p->last.n = 0; /* it is over, and does not count */
        tutti_unlock(p->lock);
        if (moved)
            continue;
        tutti_preduce_give_up(p);
        *decision = note.kind;
        return TUTTI_OK;
    }
}

static void log_one(tutti_preduce *p, int64_t begin_ns, bool counts)
{
    const tutti_preduce_notice *t = &p->last;
    tutti_preduce_entry *e;

    if (p->logged == p->log_room) {
        const size_t room = p->log_room > 0 ? 2 * p->log_room : LOG_FIRST;
        tutti_preduce_entry *more = tutti_alloc(room, sizeof *more);
        if (more == NULL)
            return;
        if (p->logged > 0)
            memcpy(more, p->log, p->logged * sizeof *more);
        tutti_free(p->log);
        p->log = more;
        p->log_room = room;
    }
    e = &p->log[p->logged];
    *e = (tutti_preduce_entry){ .id = t->id,
                                .begin_ns = begin_ns,
                                .end_ns = tutti_now_ns(p->m->rt),
                                .n = t->n,
                                .counts = counts };
    e->member = tutti_alloc((size_t)t->n, sizeof *e->member);
    if (e->member == NULL)
        return;
    memcpy(e->member, t->member, (size_t)t->n * sizeof *e->member);
    p->logged++;
}

/* mean := the mean of what the members have sent; s is unchanged. *before: p->moved when s was
   read. */
static tutti_status average(tutti_preduce *p, uint64_t *before, tutti_error *err)
{
    enum { MANY = 1 << 14 }; /* elements; from this size on the automatically chosen algorithm
                                sends no more than "direct" */
    tutti_method *m = p->m;
    const size_t d = m->layout->used;
    tutti_group group = tutti_group_of(m->world, p->last.member, p->last.n,
                                       tutti_port_of("preduce", (uint64_t)p->last.id, 0));

    group.apart = p->last.apart;
    group.algorithm = d < MANY ? "direct" : NULL;
    tutti_lock(p->lock);
    tutti_copy(m->device, m->n, p->s, p->sent);
    *before = p->moved;
    tutti_unlock(p->lock);
    return tutti_allreduce_from(&group, TUTTI_MEAN, tutti_f32(m->device, p->sent, d),
                                tutti_f32(m->device, p->mean, d), err);
}

/* Adds to - from to s. If the client has not changed s since `before`, s becomes `to` itself. */
static void move_model(tutti_preduce *p, const float *to, const float *from, uint64_t before)
{
    tutti_lock(p->lock);
    if (p->moved == before && before % 2 == 0)
        tutti_copy(p->m->device, p->m->layout->used, to, p->s);
    else
        tutti_add_diff(p->m->device, p->m->layout->used, 1, to, from, p->s);
    p->averaged++;
    tutti_unlock(p->lock);
}

/* Runs the P-Reduce of p->last until it counts or no other member is left for it. */
static tutti_status run_preduce(tutti_preduce *p, tutti_error *err)
{
    tutti_method *m = p->m;
    const int64_t begin_ns = tutti_now_ns(m->rt);
    uint32_t decision;

    do {
        const int64_t from_ns = tutti_now_ns(m->rt);
        uint64_t before;
        const tutti_status status = average(p, &before, err);
        const bool well = status == TUTTI_OK;
        tutti_header over = { .kind = OVER,
                              .a = p->last.id,
                              .b = (well ? 0 : 1 + err->rank) + (p->last.apart ? APART : 0) };
        if (!well && !tutti_is_left_out(m, status, err))
            return status;
        p->reduced.ns[p->reduced.n++ % REDUCES] = tutti_now_ns(m->rt) - from_ns;
        if (well)
            move_model(p, p->mean, p->sent, before);
        decision = TUTTI_GROUPS_KEEP;
        if (p->o->log)
            log_one(p, from_ns, well);
        if (tutti_engine_fault_tolerant(m->engine))
            TUTTI_TRY(ask_generator(p, &over,
                                    tutti_host(p->last.member, (size_t)p->last.n, TUTTI_I32),
                                    &decision, err));
        if (well && (decision == TUTTI_GROUPS_AGAIN || decision == TUTTI_GROUPS_UNDO)) {
            move_model(p, p->sent, p->mean, before);
            if (p->o->log && p->logged > 0)
                p->log[p->logged - 1].counts = false;
        }
    } while (decision == TUTTI_GROUPS_AGAIN);
    tutti_engine_service_comm(m->engine, begin_ns);
    return TUTTI_OK;
}

/* Runs the group that the schedule has for this sync, without the lost workers, as agreed. */
static tutti_status make_row(tutti_preduce *p, int64_t sync, tutti_error *err)
{
    const uint64_t phase = (uint64_t)(sync - 1) % p->period;
    const int *row = p->row + phase * (uint64_t)p->m->workers;
    int n = 0;

    tutti_lock(p->lock);
    for (int k = 0; k < p->row_n[phase]; k++)
        if (tutti_engine_has(p->m->engine, row[k]))
            p->last.member[n++] = row[k];
    if (n > 1) {
        p->last.n = n;
        p->last.id = tutti_groups_id(sync, p->last.member[0]);
        p->last.kept = false;
        p->last.apart = n < p->row_n[phase];
        tutti_preduce_note(p);
    }
    tutti_unlock(p->lock);
    return n > 1 ? run_preduce(p, err) : TUTTI_OK;
}

int64_t tutti_preduce_pack(tutti_groups_times takes)
{
    const float ns[2] = { (float)takes.computes_ns, (float)takes.reduces_ns };
    int64_t bits;

    memcpy(&bits, ns, sizeof bits);
    return bits;
}

tutti_groups_times tutti_preduce_unpack(int64_t bits)
{
    float ns[2];

    memcpy(ns, &bits, sizeof ns);
    return (tutti_groups_times){ ns[0] >= 0 && ns[0] < 1e18F ? (int64_t)ns[0] : 0,
                                 ns[1] >= 0 && ns[1] < 1e18F ? (int64_t)ns[1] : 0 };
}

/* The least duration of its last P-Reduces, which is this worker's own, whichever the other
   members: with a slow link none is short. */
static int64_t least_reduce(const tutti_preduce *p)
{
    int64_t least_ns = INT64_MAX;

    for (int k = 0; k < REDUCES; k++)
        least_ns = p->reduced.ns[k] < least_ns ? p->reduced.ns[k] : least_ns;
    return least_ns;
}

static tutti_status sync_once(tutti_preduce *p, tutti_error *err)
{
    tutti_header note = { .kind = LEAVE };
    uint32_t decision;

    tutti_lock(p->lock);
    note.a = p->syncs - p->due + (p->due > 0);
    if (p->due > 0) {
        p->due--;
        note.kind = ASK;
    }
    note.b = tutti_preduce_pack((tutti_groups_times){ p->takes_ns, least_reduce(p) });
    tutti_unlock(p->lock);
    if (p->fixed)
        return make_row(p, note.a, err);
    do {
        TUTTI_TRY(ask_generator(p, &note, tutti_nothing(), &decision, err));
        if (decision == TUTTI_GROUPS_GO)
            TUTTI_TRY(run_preduce(p, err));
    } while (note.kind == LEAVE && decision == TUTTI_GROUPS_GO);
    return TUTTI_OK;
}

tutti_status tutti_preduce_reduce(tutti_preduce *p, tutti_error *err)
{
    tutti_status status;

    if (p->groups == NULL)
        return TUTTI_OK;
    while ((status = tutti_round_next(p->m, p->service[REDUCE], false, err)) == TUTTI_OK)
        TUTTI_TRY(sync_once(p, err));
    return status;
}

static const tutti_facility_ops facility = {
    .open = open_preduce, .close = close_preduce, .quiesce = quiesce, .resume = preduce_resume
};
