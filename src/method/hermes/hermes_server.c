/* hermes_server.c: the server of method hermes (hermes.h), on its service thread: which worker may
   push, how a push changes the model, and how much data each worker takes for a round. */
#include <math.h>
#include <string.h>

#include "hermes.h"
#include "server/server.h"

enum { MEDIAN_EVERY = 10 };

static double value_of(int64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* ---- sizes (hermes_plan.h) ---- */

static int workers_left(const tutti_method *m)
{
    const hermes *s = m->self;
    int n = 0;

    for (int r = 0; r < m->workers; r++)
        n += tutti_server_has(s->server, r);
    return n;
}

static void report(tutti_method *m, int i, double seconds)
{
    hermes *s = m->self;
    const hermes_bounds bounds = tutti_hermes_bounds(m);
    const int here = workers_left(m);
    int n;

    s->round_seconds[i] = fmax(seconds, 1e-9);
    if (s->resize == OFF)
        return;
    s->global.reports++;
    n = tutti_hermes_sort(s->round_seconds, m->workers, -1, s->sorted);
    if (n == here && (s->global.reported == 0 ||
                      s->global.reports - s->global.reported >= (int64_t)MEDIAN_EVERY * here)) {
        s->global.median = tutti_hermes_quantile(s->sorted, n, 0.5);
        s->global.reported = s->global.reports;
    }
    if (s->size[2 * i] == 0) {
        s->size[2 * i] = tutti_hermes_first_batches(m);
        s->size[2 * i + 1] = s->minibatch;
    }
    if (n == here && here > 1 && tutti_hermes_outside(s->round_seconds, m->workers, i, s->sorted))
        tutti_hermes_fit(&bounds, s->round_seconds[i], s->global.median, &s->size[2 * i]);
}

/* Returns the encoded size of worker i's next round; 0: it is unchanged. */
static uint32_t sizes_of(const hermes *s, int i)
{
    return s->resize == OFF || s->size[2 * i] == 0 ? 0 : tutti_hermes_encode(&s->size[2 * i]);
}

/* ---- models ---- */

static tutti_status merge_model(tutti_method *m, const tutti_server_request *r, tutti_error *err)
{
    hermes *s = m->self;
    const double loss = fmax(value_of(r->b), least_loss);
    /* inverse_loss: (1 / L_i) / (1 / L + 1 / L_i) */
    const float weight = (float)(s->global.merges == 0 ? 1
                                 : s->merge == MEAN    ? 0.5
                                                       : s->global.loss / (s->global.loss + loss));
    const float *model = r->in;

    if (s->wire == FP16) {
        tutti_copy(m->device, r->count, r->in, s->model);
        tutti_add(m->device, r->count, s->start + r->first, s->model);
        model = s->model;
    }
    tutti_server_blend(s->server, weight, model);
    /* until the worker reports it */
    s->global.loss = (1 - (double)weight) * s->global.loss + (double)weight * loss;
    s->global.merges++;
    if (s->wire == FP32)
        return tutti_server_give(s->server, &r->note, 1, 0, err);
    tutti_diff(m->device, r->count, 1, tutti_server_values(s->server), s->start + r->first,
               s->model);
    return tutti_server_give_own(s->server, &r->note, 1, 0, s->model, err);
}

/* Returns the time from which on a push that is granted now is late; TUTTI_FOREVER: never. */
static int64_t late_at(const tutti_method *m)
{
    const hermes *s = m->self;
    double seconds;
    int n;

    if (s->late_after == 0)
        return TUTTI_FOREVER;
    n = tutti_hermes_sort(s->push_seconds, m->workers, -1, s->sorted);
    /* Too few pushes: rounds are taken instead. A single push may be that of the server's own rank,
       which uses no link. A worker that may push has reported a round. */
    if (n < 2 || 2 * n < m->workers)
        n = tutti_hermes_sort(s->round_seconds, m->workers, -1, s->sorted);
    seconds = (double)s->late_after * tutti_hermes_quantile(s->sorted, n, 0.5);
    return seconds < 1e9 ? tutti_now_ns(m->rt) + (int64_t)(seconds * 1e9) : TUTTI_FOREVER;
}

/* Allows a worker to push. */
static tutti_status grant(tutti_method *m, const tutti_header *request, tutti_error *err)
{
    hermes *s = m->self;

    s->turn = 1 + request->from;
    s->grants[request->from] = (struct hermes_grant){ tutti_now_ns(m->rt), false };
    tutti_server_wake_at(s->server, late_at(m));
    return tutti_server_answer(s->server, request, 1, sizes_of(s, request->from), NULL, 0, err);
}

/* Allows the next worker in the queue to push. */
static tutti_status next_turn(tutti_method *m, tutti_error *err)
{
    hermes *s = m->self;

    s->turn = 0;
    tutti_server_wake_at(s->server, TUTTI_FOREVER);
    if (s->waiting == 0)
        return TUTTI_OK;
    s->waiting--;
    s->first = (s->first + 1) % m->workers;
    return grant(m, &s->queue[(s->first + m->workers - 1) % m->workers], err);
}

tutti_status tutti_hermes_due(tutti_method *m, tutti_error *err)
{
    hermes *s = m->self;

    if (s->turn < 1)
        return TUTTI_OK;
    s->grants[s->turn - 1].late = true;
    return next_turn(m, err);
}

/* Ends a worker's push: it has reported the loss of the model that it was sent. That model is w if
   no worker has pushed since (delay 0). */
static tutti_status end_turn(tutti_method *m, const tutti_server_request *r, tutti_error *err)
{
    hermes *s = m->self;
    const int i = r->worker;
    const bool had_it = s->turn == 1 + i;

    if (r->delay == 0) {
        s->global.loss = fmax(value_of(r->b), least_loss);
        s->global.since_least =
            s->global.least > 0 && s->global.loss > s->global.least ? s->global.since_least + 1 : 0;
        s->global.least = s->global.since_least == 0 ? s->global.loss : s->global.least;
    }
    s->push_seconds[i] = fmax((double)(tutti_now_ns(m->rt) - s->grants[i].began_ns) * 1e-9, 1e-9);
    s->grants[i].late = false;
    TUTTI_TRY(tutti_server_answer(s->server, &r->note, 1,
                                  s->patience > 0 && s->global.since_least >= s->patience ? ENOUGH : GO_ON, NULL, 0,
                                  err));
    return had_it ? next_turn(m, err) : TUTTI_OK;
}

tutti_status tutti_hermes_lose(tutti_method *m, int worker, tutti_error *err)
{
    hermes *s = m->self;
    int kept = 0;

    s->round_seconds[worker] = s->push_seconds[worker] = 0;
    s->grants[worker].late = false;
    for (int k = 0; k < s->waiting; k++) {
        const tutti_header note = s->queue[(s->first + k) % m->workers];
        if (note.from != worker)
            s->queue[(s->first + kept++) % m->workers] = note;
    }
    s->waiting = kept;
    return s->turn == 1 + worker ? next_turn(m, err) : TUTTI_OK;
}

/* Returns true if this worker may push now, or its push is late. */
static bool has_turn(const hermes *s, int worker)
{
    return s->turn == 1 + worker || s->grants[worker].late;
}

tutti_status tutti_hermes_rule(tutti_method *m, const tutti_server_request *r, tutti_error *err)
{
    hermes *s = m->self;

    if (r->kind > LOSS || (r->kind >= PUSH && !has_turn(s, r->worker)) ||
        (r->kind == PUSH) != (r->in != NULL) || !isfinite(value_of(r->b)))
        return tutti_fail_rank(err, TUTTI_ERR_CORRUPT, r->worker,
                               "worker %d sent a request of kind %lu out of turn; all workers must "
                               "run one version and one checkpoint",
                               r->worker, (unsigned long)r->kind);
    if (r->kind == PUSH)
        return merge_model(m, r, err);
    if (r->kind == LOSS)
        return end_turn(m, r, err);
    report(m, r->worker, value_of(r->b));
    if (r->kind == MINOR)
        return tutti_server_answer(s->server, &r->note, 1, sizes_of(s, r->worker), NULL, 0, err);
    if (s->turn == 0)
        return grant(m, &r->note, err);
    s->queue[(s->first + s->waiting++) % m->workers] = r->note;
    return TUTTI_OK;
}

tutti_status tutti_hermes_serve(tutti_method *m, tutti_error *err)
{
    const hermes *s = m->self;
    return tutti_server_run(s->server, err);
}
