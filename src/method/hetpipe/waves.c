/* waves.c: the parameter servers of waves.h. A worker has one push in flight at a time, with or
   without a pull: a request to each server of each of its segments. So a server has a receive
   buffer for each pipeline and segment, and a request stays in it until it is answered: at
   distance 0 the pushed values wait there for the other pipelines' pushes. Segments are
   independent of each other, and are pushed in ascending order.

   A clock is the number of waves that were pushed in the whole run, as tutti_wave_gate counts
   them. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "engine/engine_facility.h"
#include "engine/facility.h"
#include "waves.h"

/* A pipeline's state in a segment. Server thread. */
typedef struct pusher {
    int64_t clock;               /* waves that the pipeline has pushed */
    bool asks;                   /* it has sent a request that is not answered yet */
    int64_t wants;               /* the least clock at which that request is answered; 0: at once */
    tutti_header note;           /* that request's header */
    const float *in;             /* distance 0: pushed values that are not added yet; else NULL */
} pusher;

/* A range of m->own that the same workers hold, one per pipeline. Ranges are relative to the first
   element of m->own. */
typedef struct segment {
    uint32_t index;              /* index among all segments of the flat space */
    tutti_range own;             /* the segment */
    int *worker;                 /* [pipelines]: the rank that holds it */
    tutti_range *part;           /* [pipelines]: the part that this rank serves */
    float *values;               /* server thread: values of the part that this worker serves */
    pusher *pusher;              /* [pipelines]: server thread */
} segment;

struct tutti_waves {
    tutti_method *m;
    tutti_waves_options o;
    segment *segment;            /* [segments]: those of m->own, ascending */
    int segments;
    int calls;                   /* segments x pipelines */
    int *worker;                 /* [segments][pipelines]: memory of the segments' arrays */
    tutti_range *part;           /* [segments][pipelines]: likewise */
    pusher *pusher;              /* [segments][pipelines]: likewise */
    size_t mine;                 /* number of elements that this worker serves */

    /* server thread */
    float *values;               /* [mine] */
    float *rooms;                /* [pipelines x mine]: receive buffers of pushes */
    tutti_header *requests, *answers; /* [pipelines]: scratch */
    int64_t apart;               /* largest difference of two clocks so far */

    /* client thread */
    tutti_engine_call *call;     /* [calls]: the first `pending` are in flight */
    tutti_request **each;        /* [calls]: the reply request of each */
    int pending;
    bool pulls;                  /* they include a pull */
    int64_t clock;               /* the least clock, as last pulled */
};

/* ---- from declare to close ---- */

static const tutti_facility_ops facility; /* at the end */

static bool take_memory(tutti_waves *w)
{
    const size_t n = (size_t)w->calls;

    w->segment = tutti_alloc((size_t)w->segments, sizeof *w->segment);
    w->worker = tutti_alloc(n, sizeof *w->worker);
    w->part = tutti_alloc(n, sizeof *w->part);
    w->pusher = tutti_alloc(n, sizeof *w->pusher);
    w->requests = tutti_alloc((size_t)w->o.pipelines, sizeof *w->requests);
    w->answers = tutti_alloc((size_t)w->o.pipelines, sizeof *w->answers);
    w->call = tutti_alloc(n, sizeof *w->call);
    w->each = tutti_alloc(n, sizeof *w->each);
    return w->segment != NULL && w->worker != NULL && w->part != NULL && w->pusher != NULL &&
           w->requests != NULL && w->answers != NULL && w->call != NULL && w->each != NULL;
}

/* Divides a segment into one part per pipeline, equal up to a cache line. */
static void share_out(const segment *s, int pipelines)
{
    enum { LINE = 16 };
    const size_t n = (size_t)pipelines, lines = (s->own.count + LINE - 1) / LINE;

    for (size_t k = 0; k < n; k++) {
        size_t first = lines * k / n * LINE, end = lines * (k + 1) / n * LINE;
        end = end < s->own.count ? end : s->own.count;
        first = first < end ? first : end;
        s->part[k] = (tutti_range){ s->own.first + first, end - first };
    }
}

/* Returns the end of the segment that begins at element `first`: the next end of any stage. */
static size_t end_of_segment(const tutti_waves_options *o, size_t first)
{
    size_t end = SIZE_MAX;

    for (int i = 0; i < o->pipelines * o->stages; i++) {
        const size_t its = o->range[i].first + o->range[i].count;
        end = its > first && its < end ? its : end;
    }
    return end;
}

/* Returns the rank that holds the element in that pipeline. */
static int worker_with(const tutti_waves_options *o, int pipeline, size_t element)
{
    int i = pipeline * o->stages;

    while (element < o->range[i].first || element >= o->range[i].first + o->range[i].count)
        i++;
    return o->worker[i];
}

static bool is_mine(const tutti_waves *w, size_t element)
{
    return element >= w->m->own.first && element < w->m->own.first + w->m->own.count;
}

/* Writes the segments of m->own to `to`; NULL: only counts them. Returns their number. */
static int list_segments(const tutti_waves *w, const tutti_waves_options *o, segment *to)
{
    size_t all = 0;
    int n = 0;

    for (int q = 0; q < o->stages; q++)
        all += o->range[q].count;
    for (size_t first = 0, index = 0, end; first < all; first = end, index++) {
        end = end_of_segment(o, first);
        if (!is_mine(w, first))
            continue;
        if (to != NULL) {
            segment *const s = &to[n];
            *s = (segment){ .index = (uint32_t)index,
                            .own = { first - w->m->own.first, end - first },
                            .worker = w->worker + n * o->pipelines,
                            .part = w->part + n * o->pipelines,
                            .pusher = w->pusher + n * o->pipelines };
            for (int v = 0; v < o->pipelines; v++)
                s->worker[v] = worker_with(o, v, first);
            share_out(s, o->pipelines);
        }
        n++;
    }
    return n;
}

/* Returns the part of segment k that this worker serves. */
static tutti_range my_part(const tutti_waves *w, int k)
{
    return w->segment[k].part[w->m->member];
}

tutti_status tutti_waves_declare(tutti_waves **out, tutti_method *m, tutti_plan *plan,
                                 const tutti_waves_options *options, tutti_error *err)
{
    tutti_waves *w = *out = tutti_alloc(1, sizeof *w);

    if (w == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening the servers of method '%s'",
                          m->ops->name);
    w->m = m;
    w->o = *options;
    w->o.worker = NULL; /* they belong to the caller */
    w->o.range = NULL;
    w->segments = list_segments(w, options, NULL);
    w->calls = w->segments * options->pipelines;
    tutti_facility_add(m, &facility, w);
    if (!take_memory(w))
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening the servers of %d pipelines",
                          options->pipelines);
    list_segments(w, options, w->segment);
    for (int k = 0; k < w->segments; k++)
        w->mine += my_part(w, k).count;
    tutti_declare(
        plan,
        &(tutti_state){
            .name = "waves.values", .keep = TUTTI_SCRATCH, .dtype = TUTTI_F32, .count = w->mine },
        &w->values);
    tutti_declare(plan,
                  &(tutti_state){ .name = "waves.rooms",
                                  .keep = TUTTI_SCRATCH,
                                  .dtype = TUTTI_F32,
                                  .count = w->mine * (size_t)options->pipelines },
                  &w->rooms);
    return TUTTI_OK;
}

/* Opens a receive buffer for each pipeline in each segment that this worker serves a part of. The
   buffers for one worker's pushes are in the order in which it sends them. bytes, of: scratch of
   w->calls entries. */
static tutti_status open_queue(tutti_waves *w, size_t *bytes, int *of, tutti_error *err)
{
    tutti_engine *e = w->m->engine;
    tutti_requests_setup queue = {
        .sources = of, .in = w->rooms, .bytes = bytes, .keep_until_answered = true
    };

    if (bytes == NULL || of == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "rooms for %d pushes", w->calls);
    for (int k = 0; k < w->segments; k++)
        for (int v = 0; v < w->o.pipelines && my_part(w, k).count > 0; v++) {
            bytes[queue.buffers] = my_part(w, k).count * sizeof(float);
            of[queue.buffers++] = w->segment[k].worker[v];
        }
    return tutti_requests_open(tutti_request_queue_of(e, w->o.service), e, w->o.service, &queue,
                               err);
}

static tutti_status open_waves(void *self, tutti_error *err)
{
    tutti_waves *w = self;
    size_t *bytes, at = 0;
    int *of;
    tutti_status status;

    for (int k = 0; k < w->segments; k++) {
        w->segment[k].values = w->values + at;
        at += my_part(w, k).count;
    }
    if (w->mine == 0)
        return TUTTI_OK;
    bytes = tutti_alloc((size_t)w->calls, sizeof *bytes);
    of = tutti_alloc((size_t)w->calls, sizeof *of);
    status = open_queue(w, bytes, of, err);
    tutti_free(bytes);
    tutti_free(of);
    return status;
}

static void close_waves(void *self)
{
    tutti_waves *w = self;

    for (int k = 0; w->call != NULL && k < w->pending; k++)
        tutti_engine_call_drop(w->m->engine, &w->call[k]);
    tutti_free(w->segment);
    tutti_free(w->worker);
    tutti_free(w->part);
    tutti_free(w->pusher);
    tutti_free(w->requests);
    tutti_free(w->answers);
    tutti_free(w->call);
    tutti_free(w->each);
    tutti_free(w);
}

/* Starts the servers. All workers have the same model. */
static tutti_status waves_resume(void *self, tutti_error *err)
{
    tutti_waves *w = self;

    (void)err;
    w->clock = (int64_t)w->m->step * w->o.step;
    for (int i = 0; i < w->calls; i++)
        w->pusher[i] = (pusher){ .clock = w->clock };
    for (int k = 0; k < w->segments; k++)
        tutti_copy(w->m->device, my_part(w, k).count, w->m->own_x + my_part(w, k).first,
                   w->segment[k].values);
    return TUTTI_OK;
}

/* ---- the server ---- */

static int64_t least_clock(const tutti_waves *w, const segment *s)
{
    int64_t least = s->pusher[0].clock;

    for (int v = 1; v < w->o.pipelines; v++)
        least = s->pusher[v].clock < least ? s->pusher[v].clock : least;
    return least;
}

/* Updates w->apart with the number of waves that pipeline `of` is ahead of the others. */
static void measure(tutti_waves *w, const segment *s, int of)
{
    for (int v = 0; v < w->o.pipelines; v++) {
        const int64_t ahead = s->pusher[of].clock + (s->pusher[of].in != NULL) -
                              (s->pusher[v].clock + (s->pusher[v].in != NULL));
        w->apart = ahead > w->apart ? ahead : w->apart;
    }
}

static void add_push(tutti_waves *w, const segment *s, const float *in)
{
    tutti_add(w->m->device, s->part[w->m->member].count, in, s->values);
}

/* Distance 0: once all pipelines have pushed the wave, adds their pushes in the order of
   pipelines. */
static void add_wave(tutti_waves *w, const segment *s)
{
    for (int v = 0; v < w->o.pipelines; v++)
        if (s->pusher[v].in == NULL)
            return;
    for (int v = 0; v < w->o.pipelines; v++) {
        add_push(w, s, s->pusher[v].in);
        s->pusher[v].in = NULL;
        s->pusher[v].clock++;
    }
}

/* Answers the pending requests whose clock is reached, those with values (pulls) or those without
   (pushes only). */
static tutti_status answer_pulls(tutti_waves *w, const segment *s, bool values, int64_t clock,
                                 tutti_error *err)
{
    tutti_engine *e = w->m->engine;
    int n = 0;

    for (int v = 0; v < w->o.pipelines; v++) {
        pusher *p = &s->pusher[v];
        if (!p->asks || p->in != NULL || values != (p->wants > 0) || p->wants > clock)
            continue;
        p->asks = false;
        w->requests[n] = p->note;
        w->answers[n] = (tutti_header){ .a = clock };
        tutti_engine_answered(e, &w->requests[n++]);
    }
    return n == 0 ? TUTTI_OK
                  : tutti_requests_reply(
                        tutti_request_queue_of(e, w->o.service), w->requests, w->answers, n,
                        values ? tutti_f32(w->m->device, s->values, s->part[w->m->member].count)
                               : tutti_nothing(),
                        NULL, err);
}

static tutti_status receive_push(tutti_waves *w, const tutti_header *note, const float *in,
                                 tutti_error *err)
{
    const segment *s = w->segment;
    int64_t least;
    pusher *p;
    int v = 0;

    while (s < w->segment + w->segments && s->index != note->kind)
        s++;
    while (s < w->segment + w->segments && v < w->o.pipelines && s->worker[v] != note->from)
        v++;
    if (s == w->segment + w->segments || v == w->o.pipelines || s->pusher[v].asks ||
        note->a != s->pusher[v].clock || note->bytes != s->part[w->m->member].count * sizeof(float))
        return tutti_fail(
            err, TUTTI_ERR_STATE, 0,
            "worker %d pushed wave %lld of segment %lu to a server of a stage out of its turn",
            note->from, (long long)note->a, (unsigned long)note->kind);
    p = &s->pusher[v];
    p->asks = true;
    p->wants = note->b;
    p->note = *note;
    if (w->o.distance == 0) {
        p->in = in;
        measure(w, s, v);
        add_wave(w, s);
    } else {
        add_push(w, s, in);
        p->clock++;
        measure(w, s, v);
    }
    least = least_clock(w, s);
    TUTTI_TRY(answer_pulls(w, s, false, least, err));
    return answer_pulls(w, s, true, least, err);
}

tutti_status tutti_waves_run(tutti_waves *w, tutti_error *err)
{
    tutti_status status = TUTTI_OK;
    tutti_header note;
    void *in;

    if (w == NULL || w->mine == 0)
        return TUTTI_OK;
    while (status == TUTTI_OK) {
        status = tutti_engine_serve(w->m->engine, w->o.service, &note, &in, TUTTI_FOREVER, err);
        if (status == TUTTI_OK)
            status = receive_push(w, &note, in, err);
    }
    return status;
}

/* ---- the client ---- */

/* Waits for the calls in flight. After a pull w->clock is the least clock of the answers. */
static tutti_status end_calls(tutti_waves *w, tutti_error *err)
{
    tutti_engine *e = w->m->engine;
    tutti_status status = TUTTI_OK;
    int64_t clock = INT64_MAX;

    if (w->pending > 0)
        status = tutti_engine_calls_wait(e, &w->call[0], w->each, w->pending, err);
    for (int k = 0; k < w->pending; k++) {
        tutti_header note;
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

tutti_status tutti_waves_push(tutti_waves *w, int64_t wave, const float *sum, int64_t clock,
                              float *into, tutti_error *err)
{
    tutti_method *m = w->m;

    TUTTI_TRY(end_calls(w, err));
    w->pulls = clock > 0;
    for (int i = 0; i < w->calls; i++) {
        const tutti_range part = w->part[i];
        tutti_header note = { .kind = w->segment[i / w->o.pipelines].index, .a = wave, .b = clock };
        if (part.count == 0)
            continue;
        w->call[w->pending] = (tutti_engine_call){ 0 };
        w->each[w->pending] = &w->call[w->pending].reply;
        TUTTI_TRY(tutti_engine_call_start(
            m->engine, &w->call[w->pending], w->o.service, w->worker[i], &note,
            tutti_f32(m->device, (float *)(uintptr_t)sum + part.first, part.count), 0,
            w->pulls ? tutti_f32(m->device, into + part.first, part.count) : tutti_nothing(), err));
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

static tutti_status waves_arrive(void *self, tutti_error *err)
{
    return end_calls(self, err);
}

static const tutti_facility_ops facility = {
    .open = open_waves, .close = close_waves, .arrive = waves_arrive, .resume = waves_resume
};
