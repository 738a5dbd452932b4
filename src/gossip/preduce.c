/* preduce.c: partial all-reduce (Luo, He, Zhuo, Qian, "Prague", ASPLOS 2020;
   docs/methods/prague.md): the protocol around the group generator, which is groups.c.

     client     x <- s; its gradient; s <- s - eta opt(g); every sync_every gradients it owes
                its service a sync, and waits for it (overlap: for the one before)
     reduce     asks the generator, and is told (id, members): u <- s; a <- mean of u over the
                members, an ordinary collective of the group of that id; s <- s + (a - u)
     generate   on the generator's worker: answers what all `reduce` ask
     tell       after losses: says to all which worker generates now

   s is the model, under `door`; x is the snapshot. Where the client did nothing to s meanwhile, s
   takes a itself, so members have the same bits. What it did stays otherwise: no gradient is lost.

   Only words go through the generator: a request and its answer, 4 bytes a member. A worker's next
   request says that its last P-Reduce is over, so nobody says that besides.

   The end of a phase. A worker that makes no more steps says so (leave), and makes what is planned
   with it. Nobody plans with it any more. So nothing is left undone when all is quiet.

   Losses, in a run that goes on after them.

   1. Within a P-Reduce it is spoilt for some members, and others may be through. So each says how
      its part ended and waits for the generator's verdict (groups.c), `reduce` and not the
      client's own work: that is what u is kept for. If it does not count, all take the difference
      back, and those that are left make it again.
   2. Of the generator. Another is the lowest worker that is not dismissed: all below it are.
      A worker that loses the generator dismisses it, and tells all others, once, who generates
      now, and the group that it was told of last. They do the same. So all follow whoever has
      dismissed most, also where only one connection has failed and the dismissed one lives. The
      new one begins when all that are there have told it, and knows then which groups have
      started: a member that has not heard of its group, because the answer was lost with the old
      generator, hears of it
      from the new one. What was planned and not started is forgotten. An answer of a dismissed
      generator is not taken.

   A worker that is stopped is not lost. Groups that have not started go on without it after
   group_timeout; one in the middle of a P-Reduce holds up the others of that group. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../engine/engine_facility.h"
#include "groups.h"
#include "tutti/gossip.h"

enum { REDUCE, GENERATE, TELL }; /* of the three services */
/* Kinds of requests. ASK: a = number of the request. LEAVE: likewise; no more steps. OVER: a = id,
   b = 1 + whom the member lost, 0: it went well; its payload the members. WORD: a = id of the last
   group, b = who generates now << 1 | it counts; its payload the members. Of answers:
   tutti_groups_word,
   with a = id, b = members, and MOVED: a = who generates now. */
enum { ASK = 1, LEAVE, OVER, WORD };
enum { MOVED = 16, APART = 1 << 24 };
enum { LOG_FIRST = 64, ROOMS_MOST = 64 };

typedef struct told {            /* a group that a worker was told of */
    int64_t id;                  /* 0: none yet */
    int n;
    int *member;                 /* workers */
    bool kept, apart;
} told;

typedef struct held {            /* what a worker has asked, and the generator has not answered */
    tutti_note note;             /* kind 0: nothing */
    int n;
    int *member;                 /* of OVER; workers, taken when needed */
} held;

typedef struct entry {           /* of the log */
    int64_t id, begin_ns, end_ns;
    int n;
    bool counts;
    int *member;
} entry;

struct tutti_preduce {
    tutti_method *m;
    const tutti_preduce_options *o;
    int service[3];
    int size;                    /* of a group */
    int *machine;                /* workers; NULL: no rounds by machine */
    bool fixed;                  /* by schedule */
    int *row, *row_n;            /* period x workers, period: my groups */
    uint64_t period;
    double lambda;               /* what a cycle leaves */
    tutti_monitor *door;

    float *s, *sent, *mean;      /* n each; s under door, the others of `reduce` */
    uint64_t moved;              /* twice the client's updates of s, odd within one; under door */
    uint64_t averaged;           /* of s so far; under door */
    uint64_t seen;               /* averaged at the snapshot; client's */
    int64_t gradients;           /* declared: of mine, client's */
    int64_t syncs;               /* declared: asked for; under door */
    int64_t due;                 /* of them, not begun; under door */
    bool leaves;                 /* under door */
    told last, next;             /* last under door, next scratch of `reduce` */
    int view;                    /* who generates; workers: nobody; under door */
    int spread;                  /* the last that I have told of; of `tell` */
    int *word;                   /* twice workers: members, as `tell` and as `reduce` send them */

    entry *log;                  /* under door */
    size_t logged, log_room;

    /* of the generator's thread, and of the client's when all is quiet */
    tutti_groups *groups;
    uint64_t draws;              /* declared */
    int64_t *count;              /* declared; workers */
    bool generates;
    bool *known;                 /* workers: that it is lost */
    held *held;                  /* workers */
    int *heard;                  /* workers: who generates now, by their word */
    told *report;                /* workers */
    int *in, *out;               /* rooms of requests, copies of answers: rooms x workers */
    int rooms;
};

static tutti_status no_memory(const tutti_preduce *p, tutti_error *err)
{
    return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening method '%s'", p->m->ops->name);
}

bool tutti_preduce_is_static(const tutti_preduce_options *options)
{
    return options->generator == TUTTI_GROUPS_STATIC;
}

/* ---- declare, open, close ---- */

/* Numbers of machines, from 0 on by their first worker. */
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
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "method '%s': inter_intra is '%.40s'; it must be auto, off, or how many workers of "
                              "consecutive ranks make a machine: 2 to %d of these %d",
                              m->ops->name, value, m->workers - 1, m->workers);
    }
    p->machine = tutti_alloc((size_t)m->workers, sizeof *p->machine);
    if (p->machine == NULL)
        return no_memory(p, err);
    for (int r = 0; r < m->workers; r++) {
        int first = 0;
        while (by_host ? tutti_world_host(m->world, first) != tutti_world_host(m->world, r) : first / each != r / each)
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
        p->row_n[k] = tutti_groups_row(n, p->size, p->machine, k, p->m->rank, p->row + k * (uint64_t)n);
    return tutti_fail_within(err, tutti_groups_check(n, p->size, p->machine, &p->lambda, err), "method '%s'",
                             p->m->ops->name);
}

static const tutti_facility_ops facility; /* at the end */

tutti_status tutti_preduce_declare(tutti_preduce **out, tutti_method *m, tutti_plan *plan,
                                   const tutti_preduce_options *options, const int services[3], tutti_error *err)
{
    enum { USUAL = 3 };
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
    p->size = options->group_size > 0 ? (int)options->group_size : m->workers < USUAL ? m->workers : USUAL;
    if (options->group_size == 1)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method '%s': group_size is 1, and a group of one averages nothing; it must be 2 to the "
                          "number of workers, or 0 for %d", m->ops->name, USUAL);
    if (p->size > m->workers)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method '%s': group_size is %d and there are %d workers; ask for no more than that, or for "
                          "0", m->ops->name, p->size, m->workers);
    tutti_declare_vector(plan, "preduce.s", TUTTI_SCRATCH, &p->s); /* x has it when all is quiet */
    tutti_declare_value(plan, "preduce.gradients", TUTTI_OWN_ZERO, &p->gradients, sizeof p->gradients);
    if (m->workers == 1)
        return TUTTI_OK;
    TUTTI_TRY(find_machines(p, err));
    if (p->fixed)
        TUTTI_TRY(find_rows(p, err));
    tutti_declare_vector(plan, "preduce.sent", TUTTI_SCRATCH, &p->sent);
    tutti_declare_vector(plan, "preduce.mean", TUTTI_SCRATCH, &p->mean);
    tutti_declare_value(plan, "preduce.syncs", TUTTI_OWN_ZERO, &p->syncs, sizeof p->syncs);
    tutti_declare_value(plan, "preduce.draws", TUTTI_OWN_ZERO, &p->draws, sizeof p->draws);
    tutti_declare(plan,
                  &(tutti_state){ .name = "preduce.count", .keep = TUTTI_OWN_ZERO, .dtype = TUTTI_I64,
                                  .count = (size_t)m->workers },
                  &p->count);
    return TUTTI_OK;
}

static tutti_status answer(void *to, const tutti_groups_answer *a, tutti_error *err);

static tutti_status open_preduce(void *self, tutti_error *err)
{
    tutti_preduce *p = self;
    tutti_method *m = p->m;
    const size_t n = (size_t)m->workers;

    TUTTI_TRY(tutti_monitor_open(&p->door, m->rt, err));
    if (n == 1)
        return TUTTI_OK;
    p->rooms = m->workers < ROOMS_MOST ? m->workers : ROOMS_MOST;
    p->known = tutti_alloc(n, sizeof *p->known);
    p->held = tutti_alloc(n, sizeof *p->held);
    p->heard = tutti_alloc(n, sizeof *p->heard);
    p->report = tutti_alloc(n, sizeof *p->report);
    p->word = tutti_alloc(2 * n, sizeof *p->word);
    p->last.member = tutti_alloc(n, sizeof *p->last.member);
    p->next.member = tutti_alloc(n, sizeof *p->next.member);
    p->in = tutti_alloc((size_t)p->rooms * n, sizeof *p->in);
    p->out = tutti_alloc((size_t)p->rooms * n, sizeof *p->out);
    if (p->known == NULL || p->held == NULL || p->heard == NULL || p->report == NULL || p->word == NULL ||
        p->last.member == NULL || p->next.member == NULL || p->in == NULL || p->out == NULL)
        return no_memory(p, err);
    TUTTI_TRY(tutti_groups_open(&p->groups,
                                &(tutti_groups_setup){
                                    .workers = m->workers,
                                    .kind = (tutti_groups_kind)p->o->generator,
                                    .size = p->size,
                                    .filter = p->o->filter_threshold,
                                    .machine = p->machine,
                                    .timeout_ns = (int64_t)(p->o->group_timeout * 1e9),
                                    .rank = m->rank,
                                    .seed = m->rng.seed,
                                    .draws = &p->draws,
                                    .count = p->count,
                                    .answer = answer,
                                    .to = p,
                                },
                                err));
    if (p->fixed)
        tutti_metric(m, "schedule_leaves", -1, p->lambda);
    return tutti_desk_open(tutti_engine_desk_of(m->engine, p->service[GENERATE]), m->engine, p->service[GENERATE],
                           &(tutti_desk_setup){ .rooms = p->rooms, .copies = p->rooms, .in = p->in, .out = p->out,
                                                .in_bytes = n * sizeof *p->in, .out_bytes = n * sizeof *p->out,
                                                .at_once = true },
                           err);
}

static void close_preduce(void *self)
{
    tutti_preduce *p = self;

    tutti_monitor_close(p->door);
    tutti_groups_close(p->groups);
    for (int r = 0; r < p->m->workers; r++) {
        if (p->held != NULL)
            tutti_free(p->held[r].member);
        if (p->report != NULL)
            tutti_free(p->report[r].member);
    }
    for (size_t k = 0; k < p->logged; k++)
        tutti_free(p->log[k].member);
    tutti_free(p->log);
    tutti_free(p->machine);
    tutti_free(p->row);
    tutti_free(p->row_n);
    tutti_free(p->known);
    tutti_free(p->held);
    tutti_free(p->heard);
    tutti_free(p->report);
    tutti_free(p->word);
    tutti_free(p->last.member);
    tutti_free(p->next.member);
    tutti_free(p->in);
    tutti_free(p->out);
    tutti_free(p);
}

/* ---- client thread ---- */

static void tell_figures(tutti_preduce *p)
{
    tutti_method *m = p->m;
    const tutti_groups_figures *f = tutti_groups_look(p->groups);

    if (p->fixed)
        return;
    tutti_metric(m, "groups", -1, (double)f->groups);
    tutti_metric(m, "conflicts", -1, (double)f->conflicts);
    tutti_metric(m, "skipped", -1, (double)f->nothing);
    tutti_metric(m, "made_again", -1, (double)f->again);
    tutti_metric(m, "left_out", -1, (double)f->left_out);
    tutti_metric(m, "wait_for_go", -1, f->waits > 0 ? (double)f->wait_ns * 1e-9 / (double)f->waits : 0);
    for (int r = 0; r < m->workers; r++)
        tutti_metric(m, "requests", r, (double)tutti_groups_asked(p->groups, r));
}

static void tell_log(tutti_preduce *p)
{
    for (size_t k = 0; k < p->logged; k++) {
        const entry *e = &p->log[k];
        char list[400] = "";
        for (int j = 0, used = 0; j < e->n && used < (int)sizeof list - 16; j++)
            used += snprintf(list + used, sizeof list - (size_t)used, j > 0 ? ",%d" : "%d", e->member[j]);
        tutti_event(p->m, e->counts ? "group" : "spoilt group", "%lld by %d: %s from %lld to %lld ns", (long long)e->id,
                    p->m->rank, list, (long long)e->begin_ns, (long long)e->end_ns);
        tutti_free(e->member);
    }
    p->logged = 0;
}

static tutti_status hold(void *self, tutti_error *err)
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

static tutti_status release(void *self, tutti_error *err)
{
    tutti_preduce *p = self;
    tutti_engine *e = p->m->engine;

    tutti_copy(p->m->device, p->m->n, p->m->x, p->s);
    p->leaves = false;
    p->due = 0;
    if (p->groups == NULL)
        return TUTTI_OK;
    p->last = (told){ .member = p->last.member };
    p->view = p->spread = tutti_engine_first(e);
    p->generates = p->view == p->m->rank;
    tutti_groups_clear(p->groups);
    for (int r = 0; r < p->m->workers; r++) {
        p->known[r] = !tutti_engine_has(e, r);
        p->heard[r] = -1;
        p->held[r].note.kind = 0;
        if (p->known[r])
            TUTTI_TRY(tutti_groups_lost(p->groups, r, 0, err));
    }
    return TUTTI_OK;
}

void tutti_preduce_read(tutti_preduce *p)
{
    tutti_lock(p->door);
    tutti_copy(p->m->device, p->m->n, p->s, p->m->x);
    p->seen = p->averaged;
    tutti_unlock(p->door);
}

static void count_move(tutti_preduce *p)
{
    tutti_lock(p->door);
    p->moved++;
    tutti_unlock(p->door);
}

tutti_status tutti_preduce_update(tutti_preduce *p, tutti_error *err)
{
    tutti_method *m = p->m;
    uint64_t staleness;

    tutti_lock(p->door);
    staleness = p->averaged - p->seen;
    tutti_unlock(p->door);
    tutti_stale(m, staleness);
    count_move(p);
    TUTTI_TRY(tutti_base_step_on(m, p->s, p->door, 1, err));
    count_move(p);
    if (++p->gradients % p->o->sync_every != 0 || m->workers == 1)
        return TUTTI_OK;
    tutti_lock(p->door);
    p->due++;
    p->syncs++;
    tutti_unlock(p->door);
    tutti_owe(m, p->service[REDUCE], 1);
    return tutti_await_rounds(m, p->service[REDUCE], p->o->overlap ? 1 : 0, err);
}

void tutti_preduce_leave(tutti_preduce *p)
{
    if (p->fixed || p->m->workers == 1)
        return;
    tutti_lock(p->door);
    p->leaves = true;
    tutti_unlock(p->door);
    tutti_owe(p->m, p->service[REDUCE], 1);
}

/* ---- who generates ---- */

/* All below are dismissed, and whoever I miss. */
static void dismiss(tutti_preduce *p, int below)
{
    bool news;

    tutti_lock(p->door);
    below = below > p->view ? below : p->view;
    while (below < p->m->workers && tutti_engine_misses(p->m->engine, below))
        below++;
    news = below > p->view;
    p->view = below;
    tutti_unlock(p->door);
    if (news)
        tutti_owe(p->m, p->service[TELL], 1);
}

static int view(tutti_preduce *p)
{
    int now;

    tutti_lock(p->door);
    now = p->view;
    tutti_unlock(p->door);
    return now;
}

static tutti_status tell_all(tutti_preduce *p, tutti_error *err)
{
    tutti_method *m = p->m;
    tutti_note word = { .kind = WORD };
    int n;

    tutti_lock(p->door);
    p->spread = p->view;
    word.a = p->last.id;
    word.b = (int64_t)p->view << 1 | p->last.kept;
    n = p->last.n;
    memcpy(p->word, p->last.member, (size_t)n * sizeof *p->word);
    tutti_unlock(p->door);
    for (int r = 0; r < m->workers; r++) {
        tutti_note note = word;
        tutti_status status;
        if (tutti_engine_misses(m->engine, r)) /* to myself, too: what generates here hears of it */
            continue;
        status = tutti_call(m, p->service[GENERATE], r, &note, tutti_host(p->word, (size_t)n, TUTTI_I32),
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
    while ((status = tutti_round(p->m, p->service[TELL], false, err)) == TUTTI_OK) {
        if (view(p) < p->m->workers && tutti_engine_misses(p->m->engine, view(p)))
            dismiss(p, view(p) + 1);
        if (view(p) > p->spread)
            TUTTI_TRY(tell_all(p, err));
    }
    return status;
}

/* ---- P-Reduce ---- */

/* Asks the generator, whoever that is in the end. *word: its answer; MOVED: nobody generates any
   more. What GO and AGAIN bring is p->last then. */
static tutti_status ask(tutti_preduce *p, const tutti_note *question, tutti_buffer payload, uint32_t *word,
                        tutti_error *err)
{
    tutti_method *m = p->m;

    for (;;) {
        const int to = view(p);
        tutti_note note = *question;
        tutti_status status;
        bool moved;
        *word = MOVED;
        if (to == m->workers)
            return TUTTI_OK;
        status = tutti_call(m, p->service[GENERATE], to, &note, payload,
                            tutti_host(p->next.member, (size_t)m->workers, TUTTI_I32), err);
        if (tutti_is_left_out(m, status, err)) {
            dismiss(p, to + 1);
            continue;
        }
        if (status != TUTTI_OK)
            return status;
        if (note.kind == MOVED) {
            dismiss(p, (int)note.a);
            continue;
        }
        tutti_lock(p->door);
        moved = p->view != to; /* what the new one does not know of does not begin */
        if (!moved && (note.kind == TUTTI_GROUPS_GO || note.kind == TUTTI_GROUPS_AGAIN)) {
            p->last.id = note.a;
            p->last.n = (int)(note.b % APART);
            p->last.apart = note.b >= APART;
            p->last.kept = false;
            memcpy(p->last.member, p->next.member, (size_t)p->last.n * sizeof *p->last.member);
        }
        p->last.kept = p->last.kept || (!moved && note.kind == TUTTI_GROUPS_KEEP);
        tutti_unlock(p->door);
        if (moved)
            continue;
        *word = note.kind;
        return TUTTI_OK;
    }
}

static void log_one(tutti_preduce *p, int64_t begin_ns, bool counts)
{
    const told *t = &p->last;
    entry *e;

    if (p->logged == p->log_room) {
        const size_t room = p->log_room > 0 ? 2 * p->log_room : LOG_FIRST;
        entry *more = tutti_alloc(room, sizeof *more);
        if (more == NULL)
            return;
        if (p->logged > 0)
            memcpy(more, p->log, p->logged * sizeof *more);
        tutti_free(p->log);
        p->log = more;
        p->log_room = room;
    }
    e = &p->log[p->logged];
    *e = (entry){ .id = t->id, .begin_ns = begin_ns, .end_ns = tutti_now_ns(p->m->rt), .n = t->n, .counts = counts };
    e->member = tutti_alloc((size_t)t->n, sizeof *e->member);
    if (e->member == NULL)
        return;
    memcpy(e->member, t->member, (size_t)t->n * sizeof *e->member);
    p->logged++;
}

/* mean := over the members, of what each has sent; s is left as it is. *before: p->moved when s
   was read. */
static tutti_status average(tutti_preduce *p, uint64_t *before, tutti_error *err)
{
    enum { MANY = 1 << 14 }; /* elements; from there on what is chosen sends no more than "direct" */
    tutti_method *m = p->m;
    const size_t d = m->layout->used;
    tutti_group group = tutti_group_of(m->world, p->last.member, p->last.n,
                                       tutti_port_of("preduce", (uint64_t)p->last.id, 0));

    group.apart = p->last.apart;
    group.algorithm = d < MANY ? "direct" : NULL;
    tutti_lock(p->door);
    tutti_copy(m->device, m->n, p->s, p->sent);
    *before = p->moved;
    tutti_unlock(p->door);
    return tutti_allreduce_from(&group, TUTTI_MEAN, tutti_f32(m->device, p->sent, d), tutti_f32(m->device, p->mean, d),
                                err);
}

/* s takes what `to` has more than `from`. Nothing was done to it since `before`: it is `to`. */
static void take(tutti_preduce *p, const float *to, const float *from, uint64_t before)
{
    tutti_lock(p->door);
    if (p->moved == before && before % 2 == 0)
        tutti_copy(p->m->device, p->m->layout->used, to, p->s);
    else
        tutti_add_diff(p->m->device, p->m->layout->used, 1, to, from, p->s);
    p->averaged++;
    tutti_unlock(p->door);
}

/* The P-Reduce of p->last, until it counts or nobody is left for it. */
static tutti_status make(tutti_preduce *p, tutti_error *err)
{
    tutti_method *m = p->m;
    const int64_t begin_ns = tutti_now_ns(m->rt);
    uint32_t word;

    do {
        const int64_t from_ns = tutti_now_ns(m->rt);
        uint64_t before;
        const tutti_status status = average(p, &before, err);
        const bool well = status == TUTTI_OK;
        tutti_note over = { .kind = OVER, .a = p->last.id, .b = well ? 0 : 1 + err->rank };
        if (!well && !tutti_is_left_out(m, status, err))
            return status;
        if (well)
            take(p, p->mean, p->sent, before);
        memcpy(p->next.member, p->last.member, (size_t)p->last.n * sizeof *p->next.member);
        word = TUTTI_GROUPS_KEEP;
        if (p->o->log)
            log_one(p, from_ns, well);
        if (tutti_engine_goes_on(m->engine)) {
            const int n = p->last.n;
            int *const members = p->word + m->workers;
            memcpy(members, p->last.member, (size_t)n * sizeof *members);
            TUTTI_TRY(ask(p, &over, tutti_host(members, (size_t)n, TUTTI_I32), &word, err));
        }
        if (well && (word == TUTTI_GROUPS_AGAIN || word == TUTTI_GROUPS_UNDO)) {
            take(p, p->sent, p->mean, before);
            if (p->o->log && p->logged > 0)
                p->log[p->logged - 1].counts = false;
        }
    } while (word == TUTTI_GROUPS_AGAIN);
    tutti_engine_service_comm(m->engine, begin_ns);
    return TUTTI_OK;
}

/* The group that the schedule has for this sync, without who is lost, as agreed. */
static tutti_status make_row(tutti_preduce *p, int64_t sync, tutti_error *err)
{
    const uint64_t phase = (uint64_t)(sync - 1) % p->period;
    const int *row = p->row + phase * (uint64_t)p->m->workers;
    int n = 0;

    tutti_lock(p->door);
    for (int k = 0; k < p->row_n[phase]; k++)
        if (tutti_engine_has(p->m->engine, row[k]))
            p->last.member[n++] = row[k];
    if (n > 1) {
        p->last.n = n;
        p->last.id = sync << 24 | (int64_t)p->last.member[0] << 8;
        p->last.kept = false;
        p->last.apart = n < p->row_n[phase];
    }
    tutti_unlock(p->door);
    return n > 1 ? make(p, err) : TUTTI_OK;
}

static tutti_status sync_once(tutti_preduce *p, tutti_error *err)
{
    tutti_note note = { .kind = LEAVE };
    uint32_t word;

    tutti_lock(p->door);
    note.a = p->syncs - p->due + (p->due > 0);
    if (p->due > 0) {
        p->due--;
        note.kind = ASK;
    }
    tutti_unlock(p->door);
    if (p->fixed)
        return make_row(p, note.a, err);
    do {
        TUTTI_TRY(ask(p, &note, tutti_nothing(), &word, err));
        if (word == TUTTI_GROUPS_GO)
            TUTTI_TRY(make(p, err));
    } while (note.kind == LEAVE && word == TUTTI_GROUPS_GO);
    return TUTTI_OK;
}

tutti_status tutti_preduce_reduce(tutti_preduce *p, tutti_error *err)
{
    tutti_status status;

    if (p->groups == NULL)
        return TUTTI_OK;
    while ((status = tutti_round(p->m, p->service[REDUCE], false, err)) == TUTTI_OK)
        TUTTI_TRY(sync_once(p, err));
    return status;
}

/* ---- the generator ---- */

static tutti_engine_desk *desk_of(const tutti_preduce *p)
{
    return tutti_engine_desk_of(p->m->engine, p->service[GENERATE]);
}

static tutti_status send_answer(tutti_preduce *p, int worker, const tutti_note *note, const int *member, int n,
                                tutti_error *err)
{
    const tutti_note request = p->held[worker].note;

    p->held[worker].note.kind = 0;
    tutti_engine_answered(p->m->engine, &request);
    return tutti_desk_answer(desk_of(p), &request, note, 1, tutti_host((void *)member, (size_t)n, TUTTI_I32), NULL,
                             err);
}

static tutti_status answer(void *to, const tutti_groups_answer *a, tutti_error *err)
{
    const tutti_note note = { .kind = a->word, .a = a->id, .b = a->n + (a->apart ? APART : 0) };
    return send_answer(to, a->worker, &note, a->member, a->n, err);
}

/* A worker's list of members, of a request's payload. */
static tutti_status copy_members(tutti_preduce *p, int **to, int *n, const tutti_note *note, const int *in,
                                 tutti_error *err)
{
    if (*to == NULL && (*to = tutti_alloc((size_t)p->m->workers, sizeof **to)) == NULL)
        return no_memory(p, err);
    *n = (int)(note->bytes / sizeof *in);
    for (int k = 0; k < *n; k++)
        if (in[k] < 0 || in[k] >= p->m->workers)
            return tutti_fail_rank(err, TUTTI_ERR_CORRUPT, note->from,
                                   "worker %d tells of a group with member %d of %d workers; all workers must run one "
                                   "version", note->from, in[k], p->m->workers);
    if (*n > 0)
        memcpy(*to, in, note->bytes);
    return TUTTI_OK;
}

static tutti_status serve_held(tutti_preduce *p, int worker, tutti_error *err)
{
    const held *h = &p->held[worker];
    const int64_t now_ns = tutti_now_ns(p->m->rt);

    if (h->note.kind == 0)
        return TUTTI_OK;
    if (h->note.kind == OVER)
        return tutti_groups_over(p->groups, worker, h->note.a, h->member, h->n, (int)h->note.b - 1, now_ns, err);
    return tutti_groups_request(p->groups, worker, h->note.a, h->note.kind == LEAVE, now_ns, err);
}

/* Whoever I miss leaves all groups. */
static tutti_status hear_losses(tutti_preduce *p, tutti_error *err)
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

/* This worker generates once all that are there have told it what they know. */
static tutti_status take_over(tutti_preduce *p, tutti_error *err)
{
    tutti_method *m = p->m;

    if (p->generates || view(p) != m->rank)
        return TUTTI_OK;
    for (int r = 0; r < m->workers; r++)
        if (!p->known[r] && p->heard[r] < m->rank)
            return TUTTI_OK;
    tutti_groups_clear(p->groups);
    p->generates = true;
    for (int r = 0; r < m->workers; r++)
        if (p->known[r])
            TUTTI_TRY(tutti_groups_lost(p->groups, r, tutti_now_ns(m->rt), err));
    for (int r = 0; r < m->workers; r++)
        if (!p->known[r])
            TUTTI_TRY(tutti_groups_report(p->groups, r, p->report[r].id, p->report[r].member, p->report[r].n,
                                          p->report[r].kept, err));
    for (int r = 0; r < m->workers; r++)
        TUTTI_TRY(serve_held(p, r, err));
    return TUTTI_OK;
}

/* Dismissed: whoever waits asks the next. */
static tutti_status step_down(tutti_preduce *p, tutti_error *err)
{
    const tutti_note moved = { .kind = MOVED, .a = view(p) };

    if (moved.a <= p->m->rank)
        return TUTTI_OK;
    p->generates = false;
    for (int r = 0; r < p->m->workers; r++)
        if (p->held[r].note.kind != 0)
            TUTTI_TRY(send_answer(p, r, &moved, NULL, 0, err));
    return TUTTI_OK;
}

static tutti_status hear_request(tutti_preduce *p, const tutti_note *note, const int *in, tutti_error *err)
{
    const int from = note->from;

    if (note->bytes % sizeof *in != 0 || note->kind < ASK || note->kind > WORD)
        return tutti_fail_rank(err, TUTTI_ERR_CORRUPT, from,
                               "worker %d asks for something that is no group; all workers must run one version", from);
    if (p->known[from]) { /* lost since it was served: it has no part in anything any more */
        tutti_engine_answered(p->m->engine, note);
        return TUTTI_OK;
    }
    if (note->kind == WORD) {
        told *const r = &p->report[from];
        r->id = note->a;
        r->kept = note->b & 1;
        TUTTI_TRY(copy_members(p, &r->member, &r->n, note, in, err));
        p->heard[from] = (int)(note->b >> 1);
        dismiss(p, p->heard[from]);
        return tutti_reply(p->m, note, NULL, err);
    }
    p->held[from].note = *note;
    TUTTI_TRY(copy_members(p, &p->held[from].member, &p->held[from].n, note, in, err));
    dismiss(p, p->m->rank); /* whoever asks me has dismissed all below */
    return p->generates && view(p) == p->m->rank ? serve_held(p, from, err) : TUTTI_OK;
}

tutti_status tutti_preduce_generate(tutti_preduce *p, tutti_error *err)
{
    tutti_engine *e = p->m->engine;
    tutti_note note;
    void *in;
    tutti_status status;

    if (p->groups == NULL)
        return TUTTI_OK;
    for (;;) {
        const int64_t due_ns = p->generates ? tutti_groups_due(p->groups) : TUTTI_FOREVER;
        status = tutti_engine_serve(e, p->service[GENERATE], &note, &in, due_ns, err);
        if (status != TUTTI_OK && status != TUTTI_TIMEOUT)
            return status;
        TUTTI_TRY(hear_losses(p, err));
        if (status == TUTTI_TIMEOUT)
            TUTTI_TRY(p->generates ? tutti_groups_late(p->groups, tutti_now_ns(p->m->rt), err) : TUTTI_OK);
        else if (!tutti_engine_is_owed(e, &note))
            TUTTI_TRY(hear_request(p, &note, in, err));
        TUTTI_TRY(step_down(p, err));
        TUTTI_TRY(take_over(p, err));
    }
}

static const tutti_facility_ops facility = {
    .open = open_preduce, .close = close_preduce, .hold = hold, .release = release
};
