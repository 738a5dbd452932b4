/* pipe.c: the messages and the schedule of a stage (tutti/method/pipeline.h, tutti_pipe). A conduit
   is one direction between two neighbouring stages: a ring of buffers, each with a request. The
   buffer of micro-batch i is the one at i modulo the ring's length. i counts the micro-batches of
   this rank, p those of the pipeline: the port of a message contains p.

   No wait can be endless. Receives of inputs are posted ahead, as many as the previous stage can
   have in flight, so its sends complete whatever this stage does. Receives of slopes (gradients of
   outputs) are posted with the forward. A ring is as long as the number of micro-batches that can
   be in flight in the earlier of its two stages: when i goes forward there, i - length has passed
   both stages, so its buffer is free.

   With widths a rank alternates with the other ranks of its stage, and one may be late. Then more
   messages may be in flight to this rank than it has posted receives for. No rank waits for these
   sends before the end: their buffers are those of micro-batches that have had no backward yet.
   The first unfinished micro-batch is never delayed, since every rank works in order. */
#include "pipeline/plan.h"
#include "tutti/method/pipeline.h"
#include "pipe.h"

#include <string.h>

typedef struct conduit {
    int width;                   /* ranks of the other stage; 0: an end of the pipeline */
    int *peers;                  /* [width]: these ranks */
    uint64_t name;               /* part of the port of its messages */
    int length;                  /* number of buffers */
    size_t floats;               /* size of a buffer */
    float *memory;               /* [length][floats] */
    tutti_request *requests;     /* [length] */
    size_t *left;                /* [length]: floats that are in the buffer */
    int64_t posted;              /* last micro-batch whose message was posted */
    int64_t ended;               /* last micro-batch whose message is complete */
} conduit;

/* Received from the previous stage: ENTER, inputs; from the next: SLOPE, gradients of outputs. Sent
   to the next: LEAVE, outputs; to the previous: BACK, gradients of inputs. */
enum { ENTER, SLOPE, LEAVE, BACK, CONDUITS };

struct tutti_pipe {
    tutti_world *world;
    int stage, stages, width, member, slots;
    int64_t period;
    tutti_pipeline_schedule t;
    conduit c[CONDUITS];
    tutti_request *waited[CONDUITS + 1];
    uint64_t messages, bytes;
    bool failed;
};

/* ---- life ---- */
static int width_of(const tutti_pipe_options *o, int stage)
{
    return o->width != NULL ? o->width[stage] : 1;
}

/* Returns the index in options->ranks of the first rank of that stage. */
static int place_of(const tutti_pipe_options *o, int stage)
{
    int n = 0;

    for (int q = 0; q < stage; q++)
        n += width_of(o, q);
    return n;
}

int tutti_pipe_slots(const tutti_pipe_options *o, int stage)
{
    const int behind = place_of(o, o->stages) - place_of(o, stage), k = width_of(o, stage),
              most = behind / k + (behind % k > 0);
    return o->in_flight < most ? o->in_flight : most;
}

static int greater(int a, int b)
{
    return a > b ? a : b;
}

/* Returns the number of buffers of a conduit. peer: the other stage. */
static int length_of(const tutti_pipe_options *o, int which, int peer)
{
    const int mine = tutti_pipe_slots(o, o->stage), theirs = tutti_pipe_slots(o, peer);

    if (which == SLOPE || which == LEAVE)
        return mine;
    if (which == BACK)
        return greater(mine, theirs);
    return width_of(o, peer) == width_of(o, o->stage)
               ? theirs
               : theirs * width_of(o, peer) / width_of(o, o->stage) + 2;
}

static tutti_status open_conduit(tutti_pipe *p, int which, const tutti_pipe_options *o,
                                 tutti_error *err)
{
    const bool before = which == ENTER || which == BACK, up = which == ENTER || which == LEAVE;
    const int peer = before ? o->stage - 1 : o->stage + 1;
    conduit *c = &p->c[which];

    *c = (conduit){ .name = 2 * o->key + up };
    if (peer < 0 || peer >= o->stages)
        return TUTTI_OK;
    c->width = width_of(o, peer);
    c->length = length_of(o, which, peer);
    c->floats = before ? o->enters : o->leaves;
    c->peers = tutti_alloc((size_t)c->width, sizeof *c->peers);
    c->memory = tutti_alloc((size_t)c->length, c->floats * sizeof *c->memory);
    c->requests = tutti_alloc((size_t)c->length, sizeof *c->requests);
    c->left = tutti_alloc((size_t)c->length, sizeof *c->left);
    if (c->peers == NULL || c->memory == NULL || c->requests == NULL || c->left == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0,
                          "no memory for %d x %zu values between stages; use smaller micro-batches",
                          c->length, c->floats);
    memcpy(c->peers, o->ranks + place_of(o, peer), (size_t)c->width * sizeof *c->peers);
    return TUTTI_OK;
}

static tutti_status check_options(tutti_world *world, const tutti_pipe_options *o, tutti_error *err)
{
    int mine;

    if (o->stages < 1 || o->stage < 0 || o->stage >= o->stages || o->in_flight < 1)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "stage %d of a pipeline of %d with %d micro-batches in flight", o->stage,
                          o->stages, o->in_flight);
    for (int q = 0; q < o->stages; q++) {
        if (width_of(o, q) < 1 || (o->width != NULL && width_of(o, q) > o->period))
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "stage %d is on %d ranks, and %lld micro-batches go round", q,
                              width_of(o, q), (long long)o->period);
        for (int k = 0; k < width_of(o, q); k++)
            if (o->ranks[place_of(o, q) + k] < 0 ||
                o->ranks[place_of(o, q) + k] >= tutti_world_size(world))
                return tutti_fail(err, TUTTI_ERR_USAGE, 0, "stage %d is on rank %d; there are %d",
                                  q, o->ranks[place_of(o, q) + k], tutti_world_size(world));
    }
    if (o->member < 0 || o->member >= width_of(o, o->stage))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "member %d of stage %d, which is on %d ranks",
                          o->member, o->stage, width_of(o, o->stage));
    mine = o->ranks[place_of(o, o->stage) + o->member];
    if (mine != tutti_world_rank(world) || (o->stage > 0) != (o->enters > 0) ||
        (o->stage < o->stages - 1) != (o->leaves > 0))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "stage %d of %d is opened on rank %d for %zu values that enter and %zu "
                          "that leave; it is that of rank %d",
                          o->stage, o->stages, tutti_world_rank(world), o->enters, o->leaves, mine);
    return TUTTI_OK;
}

tutti_status tutti_pipe_open(tutti_pipe **out, tutti_world *world, const tutti_pipe_options *o,
                             tutti_error *err)
{
    tutti_status status = TUTTI_OK;
    tutti_pipe *p;

    *out = NULL;
    TUTTI_TRY(check_options(world, o, err));
    p = tutti_alloc(1, sizeof *p);
    if (p == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory for the %zu bytes of a pipeline",
                          sizeof *p);
    p->world = world;
    p->stage = o->stage;
    p->stages = o->stages;
    p->width = width_of(o, o->stage);
    p->member = o->member;
    p->period = o->width != NULL ? o->period : 1;
    p->slots = tutti_pipe_slots(o, o->stage);
    /* the schedule of the first stage of a pipeline with p->slots micro-batches in flight; the last
       stage has no stage behind it */
    p->t =
        (tutti_pipeline_schedule){ .stages = o->stage == o->stages - 1 ? 1 : greater(2, p->slots),
                                   .in_flight = p->slots };
    for (int i = 0; i < CONDUITS && status == TUTTI_OK; i++)
        status = open_conduit(p, i, o, err);
    if (status != TUTTI_OK) {
        tutti_pipe_close(p);
        return status;
    }
    *out = p;
    return TUTTI_OK;
}

void tutti_pipe_close(tutti_pipe *p)
{
    if (p == NULL)
        return;
    for (int i = 0; i < CONDUITS; i++) {
        conduit *c = &p->c[i];
        for (int k = 0; k < c->length && c->requests != NULL; k++)
            if (c->requests[k].posted)
                tutti_cancel(p->world, &c->requests[k]);
        tutti_free(c->peers);
        tutti_free(c->memory);
        tutti_free(c->requests);
        tutti_free(c->left);
    }
    tutti_free(p);
}

void tutti_pipe_sent(const tutti_pipe *p, uint64_t *messages, uint64_t *bytes)
{
    *messages = p->messages;
    *bytes = p->bytes;
}

/* ---- which micro-batches are mine ---- */
/* My micro-batches in a period. */
static int64_t mine_of(const tutti_pipe *pipe)
{
    return (pipe->period - pipe->member + pipe->width - 1) / pipe->width;
}

/* The pipeline's number of my i-th, from 1 on. */
static int64_t number_of(const tutti_pipe *pipe, int64_t i)
{
    const int64_t each = mine_of(pipe);
    return (i - 1) / each * pipe->period + pipe->member + (i - 1) % each * pipe->width + 1;
}

/* The number of the first p micro-batches that are mine. */
static int64_t mine_until(const tutti_pipe *pipe, int64_t p)
{
    const int64_t rest = p % pipe->period - pipe->member;
    return p / pipe->period * mine_of(pipe) +
           (rest > 0 ? (rest + pipe->width - 1) / pipe->width : 0);
}

static int peer_of(const tutti_pipe *pipe, const conduit *c, int64_t i)
{
    return c->peers[(number_of(pipe, i) - 1) % pipe->period % c->width];
}

/* ---- messages ---- */
static int entry_of(const conduit *c, int64_t i)
{
    return (int)(i % c->length);
}

static float *buffer(const conduit *c, int64_t i)
{
    return c->width == 0 ? NULL : c->memory + (size_t)entry_of(c, i) * c->floats;
}

static tutti_port port(const tutti_pipe *pipe, const conduit *c, int64_t i)
{
    return tutti_port_of("pipe", c->name, (uint64_t)number_of(pipe, i));
}

/* Posts the receives of my micro-batches up to `last`. */
static tutti_status post_receives(tutti_pipe *pipe, conduit *c, int64_t last, tutti_error *err)
{
    for (int64_t i = c->posted + 1; c->width > 0 && i <= last; i++) {
        TUTTI_TRY(tutti_post_recv(pipe->world, &c->requests[entry_of(c, i)], peer_of(pipe, c, i),
                                  port(pipe, c, i), tutti_host(buffer(c, i), c->floats, TUTTI_F32),
                                  err));
        c->posted = i;
    }
    return TUTTI_OK;
}

static tutti_status send(tutti_pipe *pipe, conduit *c, int64_t i, size_t floats, tutti_error *err)
{
    if (c->width == 0)
        return TUTTI_OK;
    TUTTI_TRY(tutti_post_send(pipe->world, &c->requests[entry_of(c, i)], peer_of(pipe, c, i),
                              port(pipe, c, i), NULL, tutti_host(buffer(c, i), floats, TUTTI_F32),
                              err));
    c->posted = i;
    pipe->messages++;
    pipe->bytes += floats * sizeof(float);
    return TUTTI_OK;
}

/* Collects completed messages, in order. */
static tutti_status collect(tutti_pipe *pipe, int which, tutti_error *err)
{
    conduit *c = &pipe->c[which];

    while (c->ended < c->posted && tutti_request_done(&c->requests[entry_of(c, c->ended + 1)])) {
        tutti_request *r = &c->requests[entry_of(c, c->ended + 1)];
        TUTTI_TRY(tutti_wait_some(pipe->world, &r, 1, 1, TUTTI_FOREVER, NULL, err));
        if (which == ENTER || which == SLOPE)
            c->left[entry_of(c, c->ended + 1)] = (size_t)r->note.bytes / sizeof(float);
        *r = (tutti_request){ 0 };
        c->ended++;
    }
    return TUTTI_OK;
}

/* The next of each conduit from that one on. */
static size_t list_waits(tutti_pipe *pipe, int from)
{
    size_t n = 0;

    for (int i = from; i < CONDUITS; i++)
        if (pipe->c[i].ended < pipe->c[i].posted)
            pipe->waited[n++] = &pipe->c[i].requests[entry_of(&pipe->c[i], pipe->c[i].ended + 1)];
    return n;
}

/* Makes progress on the messages and collects those that have completed. */
static tutti_status poll_messages(tutti_pipe *pipe, tutti_error *err)
{
    const size_t n = list_waits(pipe, ENTER);

    if (n > 0) {
        const tutti_status status = tutti_wait_some(pipe->world, pipe->waited, n, 0, 0, NULL, err);
        if (status != TUTTI_OK && status != TUTTI_TIMEOUT)
            return status;
    }
    for (int i = 0; i < CONDUITS; i++)
        TUTTI_TRY(collect(pipe, i, err));
    return TUTTI_OK;
}

/* The buffer of i, which a message is about to have, had that of i - length. That message was
   received, but its send may have to be tested once more. */
static tutti_status make_room(tutti_pipe *pipe, int which, int64_t i, tutti_error *err)
{
    conduit *c = &pipe->c[which];

    while (c->width > 0 && c->ended < i - c->length) {
        tutti_request *r = &c->requests[entry_of(c, c->ended + 1)];
        TUTTI_TRY(tutti_wait_some(pipe->world, &r, 1, 1, TUTTI_FOREVER, NULL, err));
        TUTTI_TRY(collect(pipe, which, err));
    }
    return TUTTI_OK;
}

/* Until one more of them is through: any, or of the sends alone; or the caller's request. */
static tutti_status wait(tutti_pipe *pipe, int from, const tutti_pipe_work *work, tutti_error *err)
{
    tutti_request *const admits =
        from == ENTER && work->admits != NULL ? work->admits(work->self) : NULL;
    size_t n = list_waits(pipe, from);
    tutti_status status;

    if (admits != NULL)
        pipe->waited[n++] = admits;
    if (n == 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "stage %d of a pipeline waits for nothing: its turns stopped at "
                          "micro-batch %lld",
                          pipe->stage, (long long)pipe->t.forwards);
    if (work->waits != NULL)
        work->waits(work->self, true);
    status = tutti_wait_some(pipe->world, pipe->waited, n, 1, TUTTI_FOREVER, NULL, err);
    if (work->waits != NULL)
        work->waits(work->self, false);
    return status;
}

/* ---- turns ---- */
static int slot_of(const tutti_pipe *pipe, int64_t i)
{
    return (int)((i - 1) % pipe->slots);
}

static tutti_status forward(tutti_pipe *pipe, const tutti_pipe_work *work, tutti_error *err)
{
    const int64_t i = pipe->t.forwards + 1;
    conduit *in = &pipe->c[ENTER], *out = &pipe->c[LEAVE];
    const size_t entered = in->width > 0 ? in->left[entry_of(in, i)] : 0;
    size_t left = 0;

    TUTTI_TRY(make_room(pipe, LEAVE, i, err));
    TUTTI_TRY(work->forward(work->self, number_of(pipe, i), slot_of(pipe, i), buffer(in, i),
                            entered, buffer(out, i), &left, err));
    pipe->t.forwards = i;
    if (pipe->c[BACK].width > 0)
        pipe->c[BACK].left[entry_of(&pipe->c[BACK], i)] = entered;
    TUTTI_TRY(post_receives(pipe, &pipe->c[SLOPE], i, err));
    return send(pipe, out, i, left, err);
}

static tutti_status backward(tutti_pipe *pipe, const tutti_pipe_work *work, tutti_error *err)
{
    const int64_t i = pipe->t.backwards + 1;
    conduit *back = &pipe->c[BACK];
    const size_t entered = back->width > 0 ? back->left[entry_of(back, i)] : 0;

    TUTTI_TRY(make_room(pipe, BACK, i, err));
    TUTTI_TRY(work->backward(work->self, number_of(pipe, i), slot_of(pipe, i),
                             buffer(&pipe->c[SLOPE], i), buffer(back, i), err));
    pipe->t.backwards = i;
    return send(pipe, back, i, entered, err);
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t admitted(const tutti_pipe *pipe, const tutti_pipe_work *work)
{
    const int64_t p = work->admitted(work->self);
    return p == INT64_MAX ? p : mine_until(pipe, p);
}

static tutti_status run_batch(tutti_pipe *pipe, int64_t last, const tutti_pipe_work *work,
                              tutti_error *err)
{
    conduit *in = &pipe->c[ENTER], *slopes = &pipe->c[SLOPE];
    tutti_pipeline_schedule *t = &pipe->t;

    while (t->backwards < last) {
        int64_t entered, may = last;
        tutti_pipeline_action next;
        TUTTI_TRY(post_receives(pipe, in, least(last, t->forwards + in->length), err));
        TUTTI_TRY(poll_messages(pipe, err));
        entered = in->width > 0 ? in->ended : last;
        if (work->admitted != NULL && entered > t->forwards)
            may = admitted(pipe, work);
        next = tutti_pipeline_next(t, least(entered, may), slopes->ended);
        if (next == TUTTI_PIPELINE_FORWARD)
            TUTTI_TRY(forward(pipe, work, err));
        else if (next == TUTTI_PIPELINE_BACKWARD)
            TUTTI_TRY(backward(pipe, work, err));
        else if (t->forwards == t->backwards && entered > t->forwards)
            /* no slope comes before it */
            TUTTI_TRY(work->await(work->self, number_of(pipe, t->forwards + 1), err));
        else
            TUTTI_TRY(wait(pipe, ENTER, work, err));
    }
    while (pipe->c[LEAVE].ended < pipe->c[LEAVE].posted ||
           pipe->c[BACK].ended < pipe->c[BACK].posted) {
        TUTTI_TRY(wait(pipe, LEAVE, work, err));
        TUTTI_TRY(poll_messages(pipe, err));
    }
    return TUTTI_OK;
}

tutti_status tutti_pipe_run(tutti_pipe *pipe, int64_t last, const tutti_pipe_work *work,
                            tutti_error *err)
{
    tutti_status status;

    if (pipe->failed)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "a pipeline that has failed can only be closed");
    status = run_batch(pipe, mine_until(pipe, last), work, err);
    pipe->failed = status != TUTTI_OK;
    return pipe->failed
               ? tutti_fail_within(err, status, "stage %d of %d", pipe->stage, pipe->stages)
               : TUTTI_OK;
}
