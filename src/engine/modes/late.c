/* late.c: the exchange of a step overlaps the computation of the next ones (tutti_late_declare).
   With L = `steps`, at the end of step t, on the client's thread:

     wait       until the exchange of step t - L is over; its slot has the sum
     swap       g <-> slot: g is what is applied now, the slot has this step's gradient
     start      the exchange of step t, one job of a thread that exchanges whole steps, in order
     step()     with g, as ever; while nothing is due yet it is not called

   So L slots in addition to g are all the memory: the sheet's K buffers for K = L + 1. A gradient
   is moved once, overlapping nothing. Slots are in shared windows like g, so that workers of a
   host sum them in place.

   The job takes everything from its slot: step, weight, rate, loss scale, groups. It reads
   nothing of the engine that the client's thread writes meanwhile. In order:
     1. The loss scale is divided out, and all of the gradient is checked. So a worker that ends
        the run has not begun to exchange, and the others wait for it in nothing but their first
        piece.
     2. The codec's step begins. No view of another step is in progress, since the steps go one by
        one.
     3. Pieces go through the method's exchange, through the engine's lane if that is wider than
        one, so that one is encoded while the one before it is sent.
     4. If steps may be skipped all workers vote, and a codec's states are restored. It has to be
        here: the exchange of the next step begins with them.
   Messages of the codec are queued for the client's thread, which owns the run's events.

   A failure is reported when its gradient is due, or when all quiesce. Until then no other
   exchange begins, so none waits for a worker that has gone.

   When the run is quiescent no job is running and a slot has the sum, the same on all workers: it
   is saved as such, with its rate and its vote, and resumed by any number of workers. Rates and
   counts of updates (tutti_rate_now) are those of the gradient: `lag` is the number of steps by
   which updates are behind. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "engine/engine_internal.h"
#include "engine/refuse.h"
#include "engine/lane.h"
#include "late.h"
#include "optim/optim.h"

enum { SWAP = 1024 };

typedef struct late_line { struct late_line *next; char *kind, *text; } late_line;

/* One exchange. The client's thread owns it until it starts, and again once it was waited for. */
typedef struct late late;
typedef struct late_slot {
    late *of;
    tutti_engine *e;
    int index;
    tutti_job job;
    tutti_piece *pieces;         /* [n_pieces]: copies of the engine's, with g, group, step and
                                    weight of this exchange */
    tutti_engine_piece *state;   /* [n_pieces]: jobs on the engine's lane, and non-finite numbers */
    tutti_group sums, votes;     /* groups of the pieces' sums, and of the vote */
    tutti_engine_begun begun;    /* the step */
    double scale;                /* the loss scale of its gradient */
    int64_t vote;                /* its result (tutti_engine_vote) */
    bool under_way;              /* started, and not waited for */
    tutti_status status;         /* how the exchange ended */
    tutti_error error;
    late_line *reported;         /* messages of the codec, the last first */
} late_slot;

struct late {
    tutti_engine *e;
    int steps;                   /* number of steps by which a gradient is applied late */
    uint64_t from;
    bool drains;
    /* [steps][n], declared: the gradient of slot step modulo `steps` */
    float *g[TUTTI_LATE_MOST];
    struct {                     /* declared */
        uint64_t first, pending; /* the pending gradients are those of `pending` steps from
                                    `first` on */
        uint64_t lag;            /* number of steps by which updates are behind */
        tutti_applied_gradient of[TUTTI_LATE_MOST];
    } now;
    late_slot *slot;             /* [steps] */
    tutti_lane *lane;            /* the exchanges of whole steps, in order */
    bool ends;                   /* the run is ending: pending gradients are drained */
    tutti_applied_gradient in_g;  /* the one that is applied */
    int64_t waited_ns;
};

/* ---- an exchange; on the late lane, or on the client's thread if there is none ---- */

static void keep_line(void *with, const char *kind, const char *text)
{
    late_slot *s = with;
    late_line *line = tutti_alloc(1, sizeof *line);

    if (line == NULL || (line->kind = tutti_copy_text(kind)) == NULL ||
        (line->text = tutti_copy_text(text)) == NULL) {
        if (line != NULL)
            tutti_free(line->kind);
        tutti_free(line); /* as with events: without memory the line is lost, not the run */
        return;
    }
    line->next = s->reported;
    s->reported = line;
}

static tutti_status check_all(late_slot *s, tutti_error *err)
{
    tutti_engine *e = s->e;

    for (int k = 0; k < e->layout.n_pieces; k++) {
        tutti_engine_unscale(e, &s->pieces[k], s->scale);
        TUTTI_TRY(tutti_engine_check_piece(e, &s->pieces[k], &s->state[k].bad, err));
    }
    return TUTTI_OK;
}

static tutti_status exchange_piece(tutti_job *job, tutti_error *err)
{
    const late_slot *s = job->owner;
    tutti_engine *e = s->e;
    tutti_piece *p = &s->pieces[job->index];
    tutti_status status = TUTTI_CLOSED; /* an earlier piece has failed, and reports why */

    if (!e->failure.flag)
        status = e->m.ops->exchange(&e->m, p, err);
    if (status == TUTTI_OK)
        status = tutti_engine_check_decoded(e, p, &s->state[job->index].bad, err);
    if (status != TUTTI_OK)
        e->failure.flag = true;
    return status;
}

static tutti_status exchange_pieces(late_slot *s, tutti_error *err)
{
    tutti_engine *e = s->e;
    tutti_status status = TUTTI_OK;

    for (int k = 0; k < e->layout.n_pieces && status == TUTTI_OK; k++) {
        tutti_job *job = &s->state[k].job;
        if (e->m.lane_width > 1)
            tutti_lane_start(e->lane, job);
        else {
            job->started_ns = tutti_now_ns(e->rt);
            status = exchange_piece(job, err);
            job->ended_ns = tutti_now_ns(e->rt);
        }
    }
    for (int k = 0; k < e->layout.n_pieces && e->m.lane_width > 1; k++) {
        tutti_error why;
        const tutti_status one = tutti_job_wait(e->lane, &s->state[k].job, &why);
        if (one == TUTTI_OK || (status != TUTTI_OK && status != TUTTI_CLOSED))
            continue;
        status = one;
        *err = why;
    }
    return status;
}

static tutti_status exchange_step(late_slot *s, tutti_error *err)
{
    tutti_engine *e = s->e;

    TUTTI_TRY(check_all(s, err));
    TUTTI_TRY(tutti_engine_exchange_begin(&s->begun, err));
    TUTTI_TRY(exchange_pieces(s, err));
    s->vote = 0;
    if (!tutti_engine_may_skip(e))
        return TUTTI_OK;
    TUTTI_TRY(tutti_engine_vote(e, s->state, s->begun.step, &s->votes, &s->vote, err));
    if (s->vote > 0)
        tutti_engine_exchange_left_out(e, s->begun.step);
    return TUTTI_OK;
}

static tutti_status run_exchange(tutti_job *job, tutti_error *err)
{
    late_slot *s = job->owner;
    tutti_status status = TUTTI_CLOSED; /* an earlier step has failed, and is reported first */

    if (!s->e->failure.flag)
        status = exchange_step(s, err);
    if (status != TUTTI_OK)
        s->e->failure.flag = true;
    return status;
}

/* ---- from open to close ---- */

/* Tables are sent whole. */
static tutti_status open_slot(late *l, int k, tutti_error *err)
{
    tutti_engine *e = l->e;
    late_slot *s = &l->slot[k];
    const size_t n = (size_t)e->layout.n_pieces;

    s->of = l;
    s->e = e;
    s->index = k;
    s->job = (tutti_job){ .run = run_exchange, .owner = s, .index = k };
    s->pieces = tutti_alloc(n, sizeof *s->pieces);
    s->state = tutti_alloc(n, sizeof *s->state);
    if (s->pieces == NULL || s->state == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM,
                          "memory for the late exchange of %zu pieces", n);
    for (size_t i = 0; i < n; i++) {
        s->pieces[i] = e->pieces[i];
        s->pieces[i].g = l->g[k] + e->pieces[i].first;
        s->pieces[i].rows = NULL;
        s->state[i] =
            (tutti_engine_piece){ .job = { .run = exchange_piece, .owner = s, .index = (int)i },
                                  .engine = e };
    }
    return TUTTI_OK;
}

static tutti_status prepare(void *self, tutti_error *err)
{
    late *l = self;

    l->slot = tutti_alloc((size_t)l->steps, sizeof *l->slot);
    if (l->slot == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for %d late exchanges", l->steps);
    for (int k = 0; k < l->steps; k++)
        TUTTI_TRY(open_slot(l, k, err));
    return tutti_lane_open(&l->lane, l->e->rt, "late", l->e->m.lane_width > 0, err);
}

static void drop_lines(late_slot *s)
{
    for (late_line *line = s->reported, *next; line != NULL; line = next) {
        next = line->next;
        tutti_free(line->kind);
        tutti_free(line->text);
        tutti_free(line);
    }
    s->reported = NULL;
}

/* Blocks until what was started has ended. */
static void stop(void *self)
{
    late *l = self;

    tutti_lane_close(l->lane);
    l->lane = NULL;
}

static void close_late(void *self)
{
    late *l = self;

    for (int k = 0; k < l->steps && l->slot != NULL; k++) {
        drop_lines(&l->slot[k]);
        tutti_free(l->slot[k].pieces);
        tutti_free(l->slot[k].state);
    }
    tutti_free(l->slot);
    tutti_free(l);
}

/* ---- the client's thread ---- */

static bool is_late(const void *self)
{
    const late *l = self;

    return l->e->counts.progress.step >= l->from;
}

/* Records the codec's messages as events, in order. `text` may be as long as a replay needs. */
static void tell_lines(tutti_engine *e, late_slot *s)
{
    late_line *first = NULL;

    for (late_line *line = s->reported, *next; line != NULL; line = next) {
        next = line->next;
        line->next = first;
        first = line;
    }
    s->reported = first;
    for (late_line *line = first; line != NULL; line = line->next)
        tutti_engine_note(
            e, &(tutti_event_record){ .kind = line->kind, .text = line->text, .worker = -1 });
    drop_lines(s);
}

/* Waits until the exchange is over; its result stays in the slot. */
static void join(late_slot *s)
{
    tutti_engine *e = s->e;
    tutti_doing was;
    int64_t begin;

    if (!s->under_way)
        return;
    was = tutti_engine_expose(e);
    begin = tutti_now_ns(e->rt);
    s->status = tutti_job_wait(s->of->lane, &s->job, &s->error);
    s->of->waited_ns += tutti_now_ns(e->rt) - begin;
    tutti_engine_doing(e, was);
    s->under_way = false;
    s->of->now.of[s->index].vote = s->vote;
    e->clock.comm_ns += s->job.ended_ns - s->job.started_ns;
    for (int k = 0; k < e->layout.n_pieces && s->status == TUTTI_OK; k++)
        tutti_engine_mark(e, "exchange", k, 1, s->state[k].job.started_ns,
                          s->state[k].job.ended_ns);
    tell_lines(e, s);
}

static tutti_status ended(const late_slot *s, tutti_error *err)
{
    if (s->status != TUTTI_OK && err != NULL)
        *err = s->error;
    return s->status;
}

static late_slot *slot_of(late *l, uint64_t step)
{
    return &l->slot[step % (uint64_t)l->steps];
}

static void settle(void *self, bool measured)
{
    late *l = self;
    bool wait = !measured;

    for (uint64_t k = 0; k < l->now.pending; k++)
        wait = wait || tutti_engine_exchange_measures(l->e, l->now.first + k);
    for (uint64_t k = 0; k < l->now.pending && wait && l->slot != NULL; k++)
        join(slot_of(l, l->now.first + k));
}

/* Reports the oldest failure, since that one failed first. */
static tutti_status quiesce(void *self, tutti_error *err)
{
    late *l = self;

    settle(l, false);
    for (uint64_t k = 0; k < l->now.pending; k++)
        TUTTI_TRY(ended(slot_of(l, l->now.first + k), err));
    return TUTTI_OK;
}

static void swap(tutti_device *d, size_t n, float *a, float *b)
{
    float held[SWAP];

    for (size_t at = 0, some; at < n; at += some) {
        some = n - at < SWAP ? n - at : SWAP;
        memcpy(held, a + at, some * sizeof *a);
        memcpy(a + at, b + at, some * sizeof *a);
        memcpy(b + at, held, some * sizeof *a);
    }
    tutti_device_charge(d, 0, 4.0 * sizeof(float) * (double)n);
}

/* g has changed in rows that are not known. */
static void forget_rows(tutti_engine *e)
{
    for (int i = 0; i < e->layout.n_tensors; i++)
        if (e->tensors[i].row_sparse)
            tutti_engine_rows_all(e, i);
}

/* Starts the exchange of the slot's gradient, which is this step's. */
static void start_exchange(late_slot *s, double lr)
{
    tutti_engine *e = s->e;
    const tutti_method *m = &e->m;
    const uint32_t turn = (uint32_t)e->groups.steps;

    for (int k = 0; k < e->layout.n_pieces; k++) {
        tutti_piece *p = &s->pieces[k];
        p->group = tutti_group_keyed(&m->all, (uint64_t)k + 1, turn);
        p->group.algorithm = e->sums.collective;
        p->step = e->counts.progress.step;
        p->weight = m->weight;
    }
    s->sums = tutti_group_keyed(&m->all, tutti_port_of("late sums", 0, 0), turn);
    s->votes = tutti_group_keyed(&m->all, tutti_port_of("late votes", 0, 0), turn);
    s->scale = e->scaler.now.scale;
    s->begun = (tutti_engine_begun){ .e = e,
                                     .group = &s->sums,
                                     .step = e->counts.progress.step,
                                     .epoch = m->epoch,
                                     .lr = lr,
                                     .say = m->rank == 0 ? keep_line : NULL,
                                     .with = s };
    s->status = TUTTI_OK;
    s->under_way = true;
    if (m->lane_width > 0)
        tutti_lane_start(s->of->lane, &s->job);
    else { /* there is no thread for it: it runs here */
        const tutti_doing was = tutti_engine_doing(e, TUTTI_DOING_EXPOSED);
        tutti_lane_start(s->of->lane, &s->job);
        tutti_engine_doing(e, was);
        s->of->waited_ns += s->job.ended_ns - s->job.started_ns;
    }
}

/* g now holds the exchanged gradient `of`. */
static void apply_gradient(late *l, const tutti_applied_gradient *of)
{
    tutti_engine *e = l->e;

    l->in_g = *of;
    e->step.applied = &l->in_g;
    e->m.lr = of->lr;
    /* checked, unscaled, and the same on all workers */
    e->step.exchanged = e->step.taken_in = true;
    forget_rows(e);
}

/* This step's gradient is sent off, and g receives the one that is due. */
static tutti_status exchange(void *self, bool *due, tutti_error *err)
{
    late *l = self;
    tutti_engine *e = l->e;
    const size_t n = e->layout.used;
    const tutti_applied_gradient fresh = { .step = e->counts.progress.step,
                                           .lr = e->m.lr,
                                           .scale = e->scaler.now.scale };
    late_slot *s = slot_of(l, fresh.step);
    tutti_applied_gradient *of = &l->now.of[s->index];

    *due = l->now.pending == (uint64_t)l->steps;
    if (*due) {
        join(s);
        TUTTI_TRY(ended(s, err));
        swap(e->m.device, n, e->m.g, l->g[s->index]);
        apply_gradient(l, of);
    } else {
        tutti_copy(e->m.device, n, e->m.g, l->g[s->index]);
        l->now.pending++;
        l->now.lag++;
    }
    *of = fresh;
    l->now.first = fresh.step + 1 - l->now.pending;
    start_exchange(s, fresh.lr);
    return TUTTI_OK;
}

static tutti_status drain(void *self, bool *due, tutti_error *err)
{
    late *l = self;
    tutti_engine *e = l->e;
    late_slot *s;

    *due = l->drains && l->now.pending > 0;
    if (!*due) {
        TUTTI_TRY(quiesce(l, err));
        l->now.pending = 0;
        return TUTTI_OK;
    }
    s = slot_of(l, l->now.first);
    join(s);
    TUTTI_TRY(ended(s, err));
    tutti_copy(e->m.device, e->layout.used, l->g[s->index], e->m.g);
    apply_gradient(l, &l->now.of[s->index]);
    l->now.first++;
    l->now.pending--;
    l->ends = true;
    return TUTTI_OK;
}

static void updated(void *self)
{
    late *l = self;

    if (l->e->step.applied != NULL && l->ends) /* this update has no step of its own */
        l->now.lag--;
}

static uint64_t count_behind(const void *self)
{
    return ((const late *)self)->now.lag;
}

/* ---- the method's side ---- */

static const tutti_facility_ops facility = { .provides = TUTTI_LATE_GRADIENTS,
                                             .excludes = TUTTI_MERGES_STEPS | TUTTI_WHOLE_GRADIENT,
                                             .close = close_late,
                                             .arrive = quiesce,
                                             .prepare = prepare,
                                             .stop = stop,
                                             .exchanges = is_late,
                                             .exchange = exchange,
                                             .updated = updated,
                                             .drain = drain,
                                             .settle = settle,
                                             .behind = count_behind };

tutti_status tutti_late_declare(tutti_method *m, tutti_plan *plan, int steps, uint64_t from,
                                bool drain, tutti_error *err)
{
    static const tutti_conflict whole_tables = {
        TUTTI_ASKED_LAZY,
        "sends tables' gradients whole, and which rows a late one has touched is not known", NULL,
        ", or take ddp"
    };
    tutti_engine *e = m->engine;
    late *l;

    if (steps == 0)
        return TUTTI_OK;
    if (steps > TUTTI_LATE_MOST)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method '%s' applies gradients %d steps late; the most is %d",
                          m->ops->name, steps, TUTTI_LATE_MOST);
    TUTTI_TRY(tutti_refuse_method(m, "apply gradients some steps late",
                                  TUTTI_NO_EXCHANGE | TUTTI_OWN_MODELS | TUTTI_SERVER_SUMS, err));
    TUTTI_TRY(tutti_refuse(m, &whole_tables, 1, err));
    l = tutti_alloc(1, sizeof *l);
    if (l == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for %d late exchanges", steps);
    l->e = e;
    l->steps = steps;
    l->from = from;
    l->drains = drain;
    tutti_facility_add(m, &facility, l);
    for (int k = 0; k < steps; k++) {
        char name[32];
        snprintf(name, sizeof name, "engine.late-%d", k);
        tutti_declare(plan,
                      &(tutti_state){ .name = name,
                                      .keep = TUTTI_SAME,
                                      .dtype = TUTTI_F32,
                                      .count = m->n,
                                      .placed = true,
                                      .shared = true },
                      &l->g[k]);
    }
    tutti_declare_value(plan, "engine.late", TUTTI_SAME, &l->now, sizeof l->now);
    tutti_declare_value(plan, "engine.history", TUTTI_SAME, &e->counts.history,
                        sizeof e->counts.history);
    return TUTTI_OK;
}

uint64_t tutti_late_step(const tutti_method *m)
{
    return tutti_engine_gradient_step(m->engine);
}

/* Drained gradients are applied as if the run continued. */
uint64_t tutti_late_age(const tutti_method *m)
{
    const late *l = tutti_facility_self(m, &facility);

    return l != NULL && l->e->step.applied != NULL ? (uint64_t)l->steps : 0;
}

bool tutti_late_overlaps(const tutti_method *m)
{
    return tutti_facility_self(m, &facility) != NULL && m->lane_width > 0;
}

int64_t tutti_late_waited_ns(const tutti_method *m)
{
    const late *l = tutti_facility_self(m, &facility);

    return l != NULL ? l->waited_ns : 0;
}
