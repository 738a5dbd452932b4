/* waves.c: see waves.h. A worker has one push under way at a time, with or without a pull, to each
   server of its stage. So a server has a room for each pipeline, and a request stays in it until it
   is answered: at distance 0 that is where what was pushed waits for the others.

   A clock is the number of waves that were pushed, of the whole run. So a gate's number
   (tutti_wave_gate) is what is asked for. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "../engine/engine_facility.h"
#include "tutti/waves.h"

/* A pipeline, as the server's thread knows it. */
typedef struct pusher {
    int64_t clock;
    bool asks;                   /* its request is kept */
    int64_t wants;               /* the least clock with which it is answered; 0: at once */
    tutti_note note;
    const float *in;             /* distance 0: what it has pushed and was not added yet */
} pusher;

struct tutti_waves {
    tutti_method *m;
    tutti_waves_options o;
    int *worker;                 /* pipelines */
    tutti_range *part;           /* pipelines: of m->own, from its first element on */
    size_t most;                 /* elements of the largest part */

    /* the server's */
    float *values;               /* my part; declared, as are the next */
    float *rooms;
    pusher *pusher;              /* pipelines */
    tutti_note *requests, *answers; /* pipelines: scratch */
    int64_t apart;

    /* the client's */
    tutti_engine_call *call;     /* pipelines */
    tutti_request **each;
    int pending;                 /* calls under way */
    bool pulls;
    int64_t clock;
};

/* ---- from declare to close ---- */

static const tutti_facility_ops facility; /* at the end */

static tutti_status take_memory(tutti_waves *w, tutti_error *err)
{
    const size_t n = (size_t)w->o.pipelines;

    w->worker = tutti_alloc(n, sizeof *w->worker);
    w->part = tutti_alloc(n, sizeof *w->part);
    w->pusher = tutti_alloc(n, sizeof *w->pusher);
    w->requests = tutti_alloc(n, sizeof *w->requests);
    w->answers = tutti_alloc(n, sizeof *w->answers);
    w->call = tutti_alloc(n, sizeof *w->call);
    w->each = tutti_alloc(n, sizeof *w->each);
    return w->worker != NULL && w->part != NULL && w->pusher != NULL && w->requests != NULL && w->answers != NULL &&
                   w->call != NULL && w->each != NULL
               ? TUTTI_OK
               : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening the servers of %d pipelines", w->o.pipelines);
}

/* Evenly, at multiples of a cache line. */
static void cut(tutti_waves *w)
{
    enum { LINE = 16 };
    const size_t n = (size_t)w->o.pipelines, lines = (w->m->own.count + LINE - 1) / LINE;

    for (size_t k = 0; k < n; k++) {
        size_t first = lines * k / n * LINE, end = lines * (k + 1) / n * LINE;
        end = end < w->m->own.count ? end : w->m->own.count;
        first = first < end ? first : end;
        w->part[k] = (tutti_range){ first, end - first };
        w->most = end - first > w->most ? end - first : w->most;
    }
}

tutti_status tutti_waves_declare(tutti_waves **out, tutti_method *m, tutti_plan *plan,
                                 const tutti_waves_options *options, tutti_error *err)
{
    tutti_waves *w = *out = tutti_alloc(1, sizeof *w);
    size_t mine;

    if (w == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening the servers of method '%s'", m->ops->name);
    w->m = m;
    w->o = *options;
    tutti_facility_add(m, &facility, w);
    TUTTI_TRY(take_memory(w, err));
    memcpy(w->worker, options->worker, (size_t)options->pipelines * sizeof *w->worker);
    cut(w);
    mine = w->part[m->member].count;
    tutti_declare(plan, &(tutti_state){ .name = "waves.values", .keep = TUTTI_SCRATCH, .dtype = TUTTI_F32,
                                        .count = mine }, &w->values);
    tutti_declare(plan, &(tutti_state){ .name = "waves.rooms", .keep = TUTTI_SCRATCH, .dtype = TUTTI_F32,
                                        .count = mine * (size_t)options->pipelines }, &w->rooms);
    return TUTTI_OK;
}

static tutti_status open_waves(void *self, tutti_error *err)
{
    tutti_waves *w = self;
    tutti_engine *e = w->m->engine;
    const tutti_desk_setup desk = { .rooms = w->o.pipelines,
                                    .in = w->rooms,
                                    .in_bytes = w->part[w->m->member].count * sizeof(float),
                                    .keeps = true };

    return desk.in_bytes == 0 ? TUTTI_OK
                              : tutti_desk_open(tutti_engine_desk_of(e, w->o.service), e, w->o.service, &desk, err);
}

static void close_waves(void *self)
{
    tutti_waves *w = self;

    for (int k = 0; w->call != NULL && k < w->pending; k++)
        tutti_engine_call_drop(w->m->engine, &w->call[k]);
    tutti_free(w->worker);
    tutti_free(w->part);
    tutti_free(w->pusher);
    tutti_free(w->requests);
    tutti_free(w->answers);
    tutti_free(w->call);
    tutti_free(w->each);
    tutti_free(w);
}

/* All have what the run has come to. */
static tutti_status release(void *self, tutti_error *err)
{
    tutti_waves *w = self;
    const tutti_range mine = w->part[w->m->member];

    (void)err;
    w->clock = (int64_t)w->m->step * w->o.step;
    for (int v = 0; v < w->o.pipelines; v++)
        w->pusher[v] = (pusher){ .clock = w->clock };
    tutti_copy(w->m->device, mine.count, w->m->own_x + mine.first, w->values);
    return TUTTI_OK;
}

/* ---- the server ---- */

static int64_t least_clock(const tutti_waves *w)
{
    int64_t least = w->pusher[0].clock;

    for (int v = 1; v < w->o.pipelines; v++)
        least = w->pusher[v].clock < least ? w->pusher[v].clock : least;
    return least;
}

/* How far that pipeline is ahead of the last. */
static void measure(tutti_waves *w, int of)
{
    for (int v = 0; v < w->o.pipelines; v++) {
        const int64_t ahead = w->pusher[of].clock + (w->pusher[of].in != NULL) -
                              (w->pusher[v].clock + (w->pusher[v].in != NULL));
        w->apart = ahead > w->apart ? ahead : w->apart;
    }
}

static void add(tutti_waves *w, const float *in)
{
    tutti_add(w->m->device, w->part[w->m->member].count, in, w->values);
}

/* Distance 0: what all have pushed of the wave, in the order of pipelines. */
static void add_wave(tutti_waves *w)
{
    for (int v = 0; v < w->o.pipelines; v++)
        if (w->pusher[v].in == NULL)
            return;
    for (int v = 0; v < w->o.pipelines; v++) {
        add(w, w->pusher[v].in);
        w->pusher[v].in = NULL;
        w->pusher[v].clock++;
    }
}

/* Those that wait for no more, or for a clock that is there; those with values at once. */
static tutti_status answer(tutti_waves *w, bool values, int64_t clock, tutti_error *err)
{
    tutti_engine *e = w->m->engine;
    int n = 0;

    for (int v = 0; v < w->o.pipelines; v++) {
        pusher *p = &w->pusher[v];
        if (!p->asks || p->in != NULL || values != (p->wants > 0) || p->wants > clock)
            continue;
        p->asks = false;
        w->requests[n] = p->note;
        w->answers[n] = (tutti_note){ .a = clock };
        tutti_engine_answered(e, &w->requests[n++]);
    }
    return n == 0 ? TUTTI_OK
                  : tutti_desk_answer(tutti_engine_desk_of(e, w->o.service), w->requests, w->answers, n,
                                      values ? tutti_f32(w->m->device, w->values, w->part[w->m->member].count)
                                             : tutti_nothing(),
                                      NULL, err);
}

static tutti_status take(tutti_waves *w, const tutti_note *note, const float *in, tutti_error *err)
{
    int64_t least;
    pusher *p;
    int v = 0;

    while (v < w->o.pipelines && w->worker[v] != note->from)
        v++;
    if (v == w->o.pipelines || w->pusher[v].asks || note->a != w->pusher[v].clock)
        return tutti_fail(err, TUTTI_ERR_STATE, 0, "worker %d pushed wave %lld to a server of a stage out of its turn",
                          note->from, (long long)note->a);
    p = &w->pusher[v];
    p->asks = true;
    p->wants = note->b;
    p->note = *note;
    if (w->o.distance == 0) {
        p->in = in;
        measure(w, v);
        add_wave(w);
    } else {
        add(w, in);
        p->clock++;
        measure(w, v);
    }
    least = least_clock(w);
    TUTTI_TRY(answer(w, false, least, err));
    return answer(w, true, least, err);
}

tutti_status tutti_waves_run(tutti_waves *w, tutti_error *err)
{
    tutti_status status = TUTTI_OK;
    tutti_note note;
    void *in;

    if (w == NULL || w->part[w->m->member].count == 0)
        return TUTTI_OK;
    while (status == TUTTI_OK) {
        status = tutti_engine_serve(w->m->engine, w->o.service, &note, &in, TUTTI_FOREVER, err);
        if (status == TUTTI_OK)
            status = take(w, &note, in, err);
    }
    return status;
}

/* ---- the client ---- */

/* Those under way; the clock is the least that was told. */
static tutti_status end_calls(tutti_waves *w, tutti_error *err)
{
    tutti_engine *e = w->m->engine;
    tutti_status status = TUTTI_OK;
    int64_t clock = INT64_MAX;

    if (w->pending > 0)
        status = tutti_engine_calls_wait(e, &w->call[0], w->each, w->pending, err);
    for (int k = 0; k < w->pending; k++) {
        tutti_note note;
        if (status == TUTTI_OK)
            status = tutti_engine_call_end(e, &w->call[k], &note, err);
        else
            tutti_engine_call_drop(e, &w->call[k]);
        if (status == TUTTI_OK)
            clock = note.a < clock ? note.a : clock;
    }
    if (status == TUTTI_OK && w->pulls && w->pending > 0)
        w->clock = clock;
    w->pending = 0;
    w->pulls = false;
    return status;
}

tutti_status tutti_waves_push(tutti_waves *w, int64_t wave, const float *sum, int64_t clock, float *into,
                              tutti_error *err)
{
    tutti_method *m = w->m;

    TUTTI_TRY(end_calls(w, err));
    w->pulls = clock > 0;
    for (int k = 0; k < w->o.pipelines; k++) {
        const tutti_range part = w->part[k];
        tutti_note note = { .a = wave, .b = clock };
        if (part.count == 0)
            continue;
        w->call[w->pending] = (tutti_engine_call){ 0 };
        w->each[w->pending] = &w->call[w->pending].reply;
        TUTTI_TRY(tutti_engine_call_start(m->engine, &w->call[w->pending], w->o.service, w->worker[k], &note,
                                          tutti_f32(m->device, (float *)(uintptr_t)sum + part.first, part.count), 0,
                                          w->pulls ? tutti_f32(m->device, into + part.first, part.count)
                                                   : tutti_nothing(),
                                          err));
        w->pending++;
    }
    return TUTTI_OK;
}

bool tutti_waves_pulls(const tutti_waves *w)
{
    return w->pulls;
}

tutti_request *tutti_waves_awaited(tutti_waves *w)
{
    for (int k = 0; k < w->pending; k++)
        if (!tutti_request_done(&w->call[k].reply))
            return &w->call[k].reply;
    return NULL;
}

bool tutti_waves_ready(tutti_waves *w)
{
    return tutti_waves_awaited(w) == NULL;
}

tutti_status tutti_waves_await(tutti_waves *w, tutti_error *err)
{
    return end_calls(w, err);
}

int64_t tutti_waves_clock(const tutti_waves *w)
{
    return w->clock;
}

int64_t tutti_waves_apart(const tutti_waves *w)
{
    return w->apart;
}

static tutti_status arrive(void *self, tutti_error *err)
{
    return end_calls(self, err);
}

static const tutti_facility_ops facility = {
    .open = open_waves, .close = close_waves, .arrive = arrive, .release = release
};
