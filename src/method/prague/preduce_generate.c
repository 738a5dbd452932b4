/* preduce_generate.c: the generator's part of partial all-reduce (preduce_internal.h): answers the
   requests of all workers, and decides which worker generates.

   1. The generator is the lowest worker that is not dismissed: all workers below it are.
   2. A worker that loses the connection to the generator dismisses it. Then it sends all others,
      once, the rank that generates now and the last group that it was assigned to (REPORT). They
      do the same. So all workers follow the one that has dismissed most, also if only one
      connection has failed and the dismissed generator is alive.
   3. The new generator begins when all surviving workers have reported to it. Then it knows which
      groups have started. A member that does not know of its group, because the answer was lost
      with the old generator, receives it from the new one. Groups that were planned and have not
      started are forgotten. A worker that has left reports that, too, since it sends no more
      requests.
   4. A worker ignores the answer of a dismissed generator (ask_generator in preduce.c).
   5. A dismissed generator that is alive answers the workers that wait for it with the rank of the
      next one (MOVED).
   6. Messages belong to a phase, which begins at quiescence. A loss at that time causes messages
      while other workers begin the next phase. A message of a past phase is ignored; a message of
      a phase that has not begun here yet is kept for it.
   7. A generator that only some workers have dismissed may have assigned the others to a group, or
      had them repeat one. They wait there for members that the next generator has assigned to
      another group. Groups are begun in ascending order of id, so a worker that has begun a later
      group gives up the earlier one. Groups are given up, too, by a worker that has left, and when
      all generators are dismissed, since then it is assigned to no group any more. */
#include <errno.h>
#include <string.h>

#include "preduce_internal.h"
#include "preduce.h"

enum { ROOMS_MOST = 64 };

static tutti_status no_memory(const tutti_preduce *p, tutti_error *err)
{
    return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening method '%s'", p->m->ops->name);
}

/* ---- which worker generates ---- */

/* Dismisses all workers below that rank, and those after them that are lost. The caller holds the
   lock. */
static void dismiss(tutti_preduce *p, int below)
{
    below = below > p->view ? below : p->view;
    while (below < p->m->workers && tutti_engine_misses(p->m->engine, below))
        below++;
    p->view = below;
}

/* Releases the lock. If `view` has risen above `before`, wakes `tell`. */
static void unlock_and_announce(tutti_preduce *p, int before)
{
    const bool news = p->view > before;

    tutti_unlock(p->lock);
    if (news)
        tutti_round_post(p->m, p->service[TELL], 1);
}

void tutti_preduce_dismiss(tutti_preduce *p, int below)
{
    int before;

    tutti_lock(p->lock);
    before = p->view;
    dismiss(p, below);
    unlock_and_announce(p, before);
}

int tutti_preduce_view(tutti_preduce *p)
{
    int now;

    tutti_lock(p->lock);
    now = p->view;
    tutti_unlock(p->lock);
    return now;
}

/* Sends `view` and the last group to all workers, unless that view was sent already. */
static tutti_status announce(tutti_preduce *p, tutti_error *err)
{
    tutti_method *m = p->m;
    tutti_header report = { .kind = REPORT };
    bool news;
    int n;

    tutti_lock(p->lock);
    news = p->view > p->spread;
    p->spread = p->view;
    report.a = p->last.id;
    report.b = p->phase << 32 | (int64_t)p->view << 3 | (int64_t)p->last.apart << 2 |
               (int64_t)p->left << 1 | p->last.kept;
    n = p->last.n;
    memcpy(p->report_members, p->last.member, (size_t)n * sizeof *p->report_members);
    tutti_unlock(p->lock);
    for (int r = 0; r < m->workers && news; r++) {
        tutti_header note = report;
        tutti_status status;
        if (tutti_engine_misses(m->engine,
                                r)) /* to this worker, too: its own generator thread needs it */
            continue;
        status = tutti_rpc_call(m, p->service[GENERATE], r, &note,
                                tutti_host(p->report_members, (size_t)n, TUTTI_I32),
                                tutti_nothing(), err);
        if (status != TUTTI_OK && !tutti_is_left_out(m, status, err))
            return status;
    }
    return TUTTI_OK;
}

tutti_status tutti_preduce_tell(tutti_preduce *p, tutti_error *err)
{
    tutti_status status;

    if (p->groups == NULL)
        return TUTTI_OK;
    while ((status = tutti_round_next(p->m, p->service[TELL], false, err)) == TUTTI_OK) {
        tutti_preduce_dismiss(p, 0);
        TUTTI_TRY(announce(p, err));
    }
    return status;
}

/* ---- the generator ---- */

static tutti_request_queue *queue_of(const tutti_preduce *p)
{
    return tutti_request_queue_of(p->m->engine, p->service[GENERATE]);
}

static tutti_status send_answer(tutti_preduce *p, int worker, const tutti_header *note,
                                const int *member, int n, tutti_error *err)
{
    const tutti_header request = p->held[worker].note;

    p->held[worker].note.kind = 0;
    tutti_engine_answered(p->m->engine, &request);
    return tutti_requests_reply(queue_of(p), &request, note, 1,
                                tutti_host((void *)member, (size_t)n, TUTTI_I32), NULL, err);
}

static tutti_status send_group(void *to, const tutti_groups_answer *a, tutti_error *err)
{
    const tutti_header note = { .kind = a->decision,
                                .a = a->id,
                                .b = a->n + (a->apart ? APART : 0) };
    return send_answer(to, a->worker, &note, a->member, a->n, err);
}

/* Copies a worker's list of members from a request's payload. */
static tutti_status copy_members(tutti_preduce *p, int **to, int *n, const tutti_header *note,
                                 const int *in, tutti_error *err)
{
    if (*to == NULL && (*to = tutti_alloc((size_t)p->m->workers, sizeof **to)) == NULL)
        return no_memory(p, err);
    *n = (int)(note->bytes / sizeof *in);
    for (int k = 0; k < *n; k++)
        if (in[k] < 0 || in[k] >= p->m->workers)
            return tutti_fail_rank(
                err, TUTTI_ERR_CORRUPT, note->from,
                "worker %d reports a group with member %d of %d workers; all workers must run one "
                "version",
                note->from, in[k], p->m->workers);
    if (*n > 0)
        memcpy(*to, in, note->bytes);
    return TUTTI_OK;
}

static tutti_status serve_held(tutti_preduce *p, int worker, tutti_error *err)
{
    const tutti_preduce_held *h = &p->held[worker];
    const int64_t now_ns = tutti_now_ns(p->m->rt);

    if (h->note.kind == 0)
        return TUTTI_OK;
    if (h->note.kind == OVER)
        return tutti_groups_over(
            p->groups, worker,
            &(tutti_groups_last){
                .id = h->note.a, .member = h->member, .n = h->n, .apart = h->note.b >= APART },
            (int)(h->note.b % APART) - 1, now_ns, err);
    return tutti_groups_request(p->groups, worker, h->note.a, tutti_preduce_unpack(h->note.b),
                                h->note.kind == LEAVE, now_ns, err);
}

/* Removes the workers that this worker misses from all groups. */
static tutti_status handle_losses(tutti_preduce *p, tutti_error *err)
{
    for (int r = 0; r < p->m->workers; r++)
        if (!p->known[r] && tutti_engine_misses(p->m->engine, r)) {
            p->known[r] = true;
            if (p->held[r].note.kind != 0)
                tutti_engine_answered(p->m->engine, &p->held[r].note);
            p->held[r].note.kind = 0;
            if (p->generates)
                TUTTI_TRY(tutti_groups_lost(p->groups, r, tutti_now_ns(p->m->rt), err));
        }
    return TUTTI_OK;
}

static bool all_have_reported(tutti_preduce *p)
{
    bool all = true;

    tutti_lock(p->lock);
    for (int r = 0; r < p->m->workers; r++)
        all = all && (p->known[r] || (p->report_phase[r] == p->of_phase && p->received[r] >= p->m->rank));
    tutti_unlock(p->lock);
    return all;
}

/* This worker generates once all survivors have reported what they know. */
static tutti_status take_over(tutti_preduce *p, tutti_error *err)
{
    tutti_method *m = p->m;

    if (p->generates || tutti_preduce_view(p) != m->rank)
        return TUTTI_OK;
    if (!all_have_reported(p))
        return TUTTI_OK;
    tutti_groups_clear(p->groups);
    p->generates = true;
    for (int r = 0; r < m->workers; r++)
        if (p->known[r])
            TUTTI_TRY(tutti_groups_lost(p->groups, r, tutti_now_ns(m->rt), err));
    for (int r = 0; r < m->workers; r++) {
        const tutti_preduce_notice *const t = &p->report[r];
        const tutti_groups_last last = {
            .id = t->id, .member = t->member, .n = t->n, .kept = t->kept, .apart = t->apart
        };
        if (!p->known[r])
            TUTTI_TRY(tutti_groups_report(p->groups, r, &last, err));
    }
    for (int r = 0; r < m->workers; r++)
        if (!p->known[r] && p->report[r].left)
            TUTTI_TRY(tutti_groups_left(p->groups, r, tutti_now_ns(m->rt), err));
    for (int r = 0; r < m->workers; r++)
        TUTTI_TRY(serve_held(p, r, err));
    return TUTTI_OK;
}

/* If this worker is dismissed, it sends the workers that wait for it to the next generator. */
static tutti_status step_down(tutti_preduce *p, tutti_error *err)
{
    const tutti_header moved = { .kind = MOVED, .a = tutti_preduce_view(p) };

    if (moved.a <= p->m->rank)
        return TUTTI_OK;
    p->generates = false;
    for (int r = 0; r < p->m->workers; r++)
        if (p->held[r].note.kind != 0)
            TUTTI_TRY(send_answer(p, r, &moved, NULL, 0, err));
    return TUTTI_OK;
}

void tutti_preduce_note(tutti_preduce *p)
{
    p->made[p->n_made++ % MADE] = p->last.id;
}

/* Returns true if this worker has begun a later group and not this one. Of a group that it does not
   remember it assumes that it has begun. The caller holds the lock. */
static bool is_passed_over(const tutti_preduce *p, int64_t id)
{
    const uint64_t n = p->n_made < MADE ? p->n_made : MADE;
    bool begun = false, remembers = p->n_made <= MADE;

    for (uint64_t k = 0; k < n; k++) {
        begun = begun || p->made[k] == id;
        remembers = remembers || p->made[k] < id;
    }
    return id < p->last.id && remembers && !begun;
}

/* Returns true for a group with this worker that another worker was assigned to, and that this
   worker has not begun and never will: another generator has assigned it to a later group, it has
   left, or no worker generates any more. The first attempts of a schedule need no generator. The
   caller holds the lock. */
static bool is_stillborn(const tutti_preduce *p, const tutti_preduce_notice *t)
{
    const bool silent = (p->left || p->view == p->m->workers) && p->last.id < t->id &&
                        !(p->fixed && tutti_groups_attempt(t->id) == 0);
    bool mine = false;

    for (int k = 0; k < t->n; k++)
        mine = mine || t->member[k] == p->m->rank;
    return mine && t->n > 1 && !t->kept && !t->given_up && (silent || is_passed_over(p, t->id));
}

void tutti_preduce_give_up(tutti_preduce *p)
{
    tutti_lock(p->lock);
    for (int r = 0; r < p->m->workers; r++) {
        tutti_preduce_notice *const t = &p->report[r];
        tutti_group group;
        if (!is_stillborn(p, t))
            continue;
        group = tutti_group_of(p->m->world, t->member, t->n,
                               tutti_port_of("preduce", (uint64_t)t->id, 0));
        tutti_group_give_up(&group, p->m->rank);
        t->given_up = true; /* once is enough */
    }
    tutti_unlock(p->lock);
}

static tutti_status receive_report(tutti_preduce *p, const tutti_header *note, const int *in,
                                   tutti_error *err)
{
    tutti_preduce_notice *const t = &p->report[note->from];
    const int64_t phase = note->b >> 32;
    tutti_status status = TUTTI_OK;
    int before;

    tutti_lock(p->lock);
    before = p->view;
    if (phase == p->of_phase) {
        *t = (tutti_preduce_notice){
            .id = note->a,
            .kept = note->b & 1,
            .left = note->b >> 1 & 1,
            .apart = note->b >> 2 & 1,
            .member = t->member,
        };
        status = copy_members(p, &t->member, &t->n, note, in, err);
    }
    if (phase >= p->phase) {
        p->report_phase[note->from] = phase;
        p->received[note->from] = (int)((note->b & UINT32_MAX) >> 3);
    }
    if (phase == p->phase)
        dismiss(p, p->received[note->from]);
    unlock_and_announce(p, before);
    return status == TUTTI_OK ? tutti_rpc_reply(p->m, note, NULL, err) : status;
}

static tutti_status receive_request(tutti_preduce *p, const tutti_header *note, const int *in,
                                    tutti_error *err)
{
    const int from = note->from;

    if (note->bytes % sizeof *in != 0 || note->kind < ASK || note->kind > REPORT)
        return tutti_fail_rank(
            err, TUTTI_ERR_CORRUPT, from,
            "worker %d asks for something that is no group; all workers must run one version",
            from);
    if (p->known[from]) {
        /* lost since its request was received: it takes part in nothing any more */
        tutti_engine_answered(p->m->engine, note);
        return TUTTI_OK;
    }
    if (note->kind == REPORT)
        return receive_report(p, note, in, err);
    p->held[from].note = *note;
    TUTTI_TRY(copy_members(p, &p->held[from].member, &p->held[from].n, note, in, err));
    /* a worker that asks this one has dismissed all below it */
    tutti_preduce_dismiss(p, p->m->rank);
    return p->generates && tutti_preduce_view(p) == p->m->rank ? serve_held(p, from, err)
                                                               : TUTTI_OK;
}

/* Resets the state of this thread when the client has begun a new phase. */
static tutti_status follow_phase(tutti_preduce *p, tutti_error *err)
{
    bool is_new;
    int first = p->m->workers;

    tutti_lock(p->lock);
    is_new = p->phase > p->of_phase;
    p->of_phase = p->phase;
    for (int r = p->m->workers - 1; r >= 0 && is_new; r--) {
        p->known[r] = p->gone[r];
        p->report[r] = (tutti_preduce_notice){ .member = p->report[r].member };
        first = p->gone[r] ? first : r;
    }
    tutti_unlock(p->lock);
    if (!is_new)
        return TUTTI_OK;
    p->generates = first == p->m->rank;
    tutti_groups_clear(p->groups);
    for (int r = 0; r < p->m->workers; r++) {
        p->held[r].note.kind = 0;
        if (p->known[r])
            TUTTI_TRY(tutti_groups_lost(p->groups, r, 0, err));
    }
    return TUTTI_OK;
}

tutti_status tutti_preduce_generate(tutti_preduce *p, tutti_error *err)
{
    tutti_engine *e = p->m->engine;
    tutti_header note;
    void *in;
    tutti_status status;

    if (p->groups == NULL)
        return TUTTI_OK;
    for (;;) {
        const int64_t due_ns = p->generates ? tutti_groups_due(p->groups) : TUTTI_FOREVER;
        status = tutti_engine_serve(e, p->service[GENERATE], &note, &in, due_ns, err);
        if (status != TUTTI_OK && status != TUTTI_TIMEOUT)
            return status;
        TUTTI_TRY(follow_phase(p, err));
        TUTTI_TRY(handle_losses(p, err));
        if (status == TUTTI_TIMEOUT)
            TUTTI_TRY(p->generates ? tutti_groups_late(p->groups, tutti_now_ns(p->m->rt), err)
                                   : TUTTI_OK);
        else if (!tutti_engine_is_pending(e, &note))
            TUTTI_TRY(receive_request(p, &note, in, err));
        TUTTI_TRY(step_down(p, err));
        TUTTI_TRY(take_over(p, err));
        tutti_preduce_give_up(p);
    }
}

/* ---- a phase ---- */

tutti_status tutti_preduce_generator_open(tutti_preduce *p, tutti_error *err)
{
    tutti_method *m = p->m;
    const size_t n = (size_t)m->workers;

    p->rooms = m->workers < ROOMS_MOST ? m->workers : ROOMS_MOST;
    p->gone = tutti_alloc(n, sizeof *p->gone);
    p->known = tutti_alloc(n, sizeof *p->known);
    p->held = tutti_alloc(n, sizeof *p->held);
    p->received = tutti_alloc(n, sizeof *p->received);
    p->report_phase = tutti_alloc(n, sizeof *p->report_phase);
    p->report = tutti_alloc(n, sizeof *p->report);
    p->report_members = tutti_alloc(n, sizeof *p->report_members);
    p->in = tutti_alloc((size_t)p->rooms * n, sizeof *p->in);
    p->out = tutti_alloc((size_t)p->rooms * n, sizeof *p->out);
    if (p->gone == NULL || p->known == NULL || p->held == NULL || p->received == NULL ||
        p->report_phase == NULL || p->report == NULL || p->report_members == NULL ||
        p->in == NULL || p->out == NULL)
        return no_memory(p, err);
    TUTTI_TRY(tutti_groups_open(&p->groups,
                                &(tutti_groups_setup){
                                    .workers = m->workers,
                                    .kind = (tutti_groups_kind)p->o->generator,
                                    .size = p->size,
                                    /* a group of all waits for all anyway */
                                    .filter = p->size < m->workers ? p->o->filter_threshold : 0,
                                    .machine = p->machine,
                                    .timeout_ns = (int64_t)(p->o->group_timeout * 1e9),
                                    .rank = m->rank,
                                    .seed = m->rng.seed,
                                    .draws = &p->draws,
                                    .lag = p->lag,
                                    .answer = send_group,
                                    .to = p,
                                },
                                err));
    return tutti_requests_open(tutti_request_queue_of(m->engine, p->service[GENERATE]), m->engine,
                               p->service[GENERATE],
                               &(tutti_requests_setup){ .buffers = p->rooms,
                                                        .copies = p->rooms,
                                                        .in = p->in,
                                                        .out = p->out,
                                                        .in_bytes = n * sizeof *p->in,
                                                        .out_bytes = n * sizeof *p->out,
                                                        .at_once = true },
                               err);
}

void tutti_preduce_generator_close(tutti_preduce *p)
{
    tutti_groups_close(p->groups);
    for (int r = 0; r < p->m->workers; r++) {
        if (p->held != NULL)
            tutti_free(p->held[r].member);
        if (p->report != NULL)
            tutti_free(p->report[r].member);
    }
    tutti_free(p->gone);
    tutti_free(p->known);
    tutti_free(p->held);
    tutti_free(p->received);
    tutti_free(p->report_phase);
    tutti_free(p->report);
    tutti_free(p->report_members);
    tutti_free(p->in);
    tutti_free(p->out);
}

void tutti_preduce_generator_begin(tutti_preduce *p)
{
    const int first = tutti_engine_first(p->m->engine);

    tutti_lock(p->lock);
    p->phase++;
    p->n_made = 0;
    p->last = (tutti_preduce_notice){ .member = p->last.member };
    p->left = false;
    p->view = p->spread = first;
    for (int r = 0; r < p->m->workers; r++) {
        p->gone[r] = !tutti_engine_has(p->m->engine, r);
        if (p->report_phase[r] == p->phase)
            dismiss(p, p->received[r]);
    }
    unlock_and_announce(p, first);
}
