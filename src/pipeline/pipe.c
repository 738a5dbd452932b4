/* pipe.c: see pipe.h. A conduit is one direction between two neighbours: a ring of buffers, that
   of micro-batch p at p modulo its length, each with a request.

   No wait can be for ever. Receives of what enters are posted ahead, as many as the stage before
   can have under way, so its sends end whatever this one does. Receives of slopes are posted with
   the forward. A ring is as long as micro-batches can be under way in the earlier of its two
   stages: when p goes forward there, p - length has been through both, so its buffer is free. */
#include "tutti/pipe.h"

typedef struct conduit {
    int peer;                    /* rank; -1: an end of the pipeline */
    uint64_t name;
    int length;
    size_t floats;
    float *memory;
    tutti_request *requests;
    size_t *left;                /* floats that are in a buffer */
    int64_t posted, ended;       /* the last micro-batch whose message was posted, is through */
} conduit;

enum { ENTER, SLOPE, LEAVE, BACK, CONDUITS }; /* received: the first two */

struct tutti_pipe {
    tutti_world *world;
    tutti_pipeline_turns t;
    conduit c[CONDUITS];
    tutti_request *waited[CONDUITS + 1];
    uint64_t messages, bytes;
    bool failed;
};

/* ---- life ---- */
static int under_way(const tutti_pipe_options *o, int stage)
{
    const int behind = o->stages - stage;
    return o->in_flight < behind ? o->in_flight : behind;
}

static tutti_status open_conduit(tutti_pipe *p, int which, const tutti_pipe_options *o, tutti_error *err)
{
    const bool before = which == ENTER || which == BACK, up = which == ENTER || which == LEAVE;
    const int peer = before ? o->stage - 1 : o->stage + 1;
    conduit *c = &p->c[which];

    *c = (conduit){ .peer = -1, .name = 2 * o->key + up };
    if (peer < 0 || peer >= o->stages)
        return TUTTI_OK;
    c->peer = o->ranks[peer];
    c->length = under_way(o, before ? peer : o->stage);
    c->floats = before ? o->enters : o->leaves;
    c->memory = tutti_alloc((size_t)c->length, c->floats * sizeof *c->memory);
    c->requests = tutti_alloc((size_t)c->length, sizeof *c->requests);
    c->left = tutti_alloc((size_t)c->length, sizeof *c->left);
    return c->memory != NULL && c->requests != NULL && c->left != NULL
               ? TUTTI_OK
               : tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory for %d x %zu values between stages; use smaller "
                                                      "micro-batches", c->length, c->floats);
}

static tutti_status check(tutti_world *world, const tutti_pipe_options *o, tutti_error *err)
{
    if (o->stages < 1 || o->stage < 0 || o->stage >= o->stages || o->in_flight < 1)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "stage %d of a pipeline of %d with %d micro-batches in flight",
                          o->stage, o->stages, o->in_flight);
    for (int q = 0; q < o->stages; q++)
        if (o->ranks[q] < 0 || o->ranks[q] >= tutti_world_size(world))
            return tutti_fail(err, TUTTI_ERR_USAGE, 0, "stage %d is on rank %d; there are %d", q, o->ranks[q],
                              tutti_world_size(world));
    if (o->ranks[o->stage] != tutti_world_rank(world) || (o->stage > 0) != (o->enters > 0) ||
        (o->stage < o->stages - 1) != (o->leaves > 0))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "stage %d of %d is opened on rank %d for %zu values that enter and %zu that leave; it is "
                          "that of rank %d", o->stage, o->stages, tutti_world_rank(world), o->enters, o->leaves,
                          o->ranks[o->stage]);
    return TUTTI_OK;
}

tutti_status tutti_pipe_open(tutti_pipe **out, tutti_world *world, const tutti_pipe_options *o, tutti_error *err)
{
    tutti_status status = TUTTI_OK;
    tutti_pipe *p;

    *out = NULL;
    TUTTI_TRY(check(world, o, err));
    p = tutti_alloc(1, sizeof *p);
    if (p == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory for the %zu bytes of a pipeline", sizeof *p);
    p->world = world;
    p->t = (tutti_pipeline_turns){ o->stage, o->stages, o->in_flight, 0, 0 };
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

/* ---- messages ---- */
static int place(const conduit *c, int64_t p)
{
    return (int)(p % c->length);
}

static float *buffer(const conduit *c, int64_t p)
{
    return c->peer < 0 ? NULL : c->memory + (size_t)place(c, p) * c->floats;
}

static tutti_port port(const conduit *c, int64_t p)
{
    return tutti_port_of("pipe", c->name, (uint64_t)p);
}

/* Those of micro-batches up to `last`. */
static tutti_status post_receives(tutti_pipe *pipe, conduit *c, int64_t last, tutti_error *err)
{
    for (int64_t p = c->posted + 1; c->peer >= 0 && p <= last; p++) {
        TUTTI_TRY(tutti_post_recv(pipe->world, &c->requests[place(c, p)], c->peer, port(c, p),
                                  tutti_host(buffer(c, p), c->floats, TUTTI_F32), err));
        c->posted = p;
    }
    return TUTTI_OK;
}

static tutti_status send(tutti_pipe *pipe, conduit *c, int64_t p, size_t floats, tutti_error *err)
{
    if (c->peer < 0)
        return TUTTI_OK;
    TUTTI_TRY(tutti_post_send(pipe->world, &c->requests[place(c, p)], c->peer, port(c, p), NULL,
                              tutti_host(buffer(c, p), floats, TUTTI_F32), err));
    c->posted = p;
    pipe->messages++;
    pipe->bytes += floats * sizeof(float);
    return TUTTI_OK;
}

/* What is through, in order. */
static tutti_status collect(tutti_pipe *pipe, int which, tutti_error *err)
{
    conduit *c = &pipe->c[which];

    while (c->ended < c->posted && tutti_request_done(&c->requests[place(c, c->ended + 1)])) {
        tutti_request *r = &c->requests[place(c, c->ended + 1)];
        TUTTI_TRY(tutti_wait_some(pipe->world, &r, 1, 1, TUTTI_FOREVER, NULL, err));
        if (which == ENTER || which == SLOPE)
            c->left[place(c, c->ended + 1)] = (size_t)r->note.bytes / sizeof(float);
        *r = (tutti_request){ 0 };
        c->ended++;
    }
    return TUTTI_OK;
}

/* The next of each conduit from that one on. */
static size_t list(tutti_pipe *pipe, int from)
{
    size_t n = 0;

    for (int i = from; i < CONDUITS; i++)
        if (pipe->c[i].ended < pipe->c[i].posted)
            pipe->waited[n++] = &pipe->c[i].requests[place(&pipe->c[i], pipe->c[i].ended + 1)];
    return n;
}

/* Whoever asks makes the messages move. */
static tutti_status look(tutti_pipe *pipe, tutti_error *err)
{
    const size_t n = list(pipe, ENTER);

    if (n > 0) {
        const tutti_status status = tutti_wait_some(pipe->world, pipe->waited, n, 0, 0, NULL, err);
        if (status != TUTTI_OK && status != TUTTI_TIMEOUT)
            return status;
    }
    for (int i = 0; i < CONDUITS; i++)
        TUTTI_TRY(collect(pipe, i, err));
    return TUTTI_OK;
}

/* The buffer of p, which a message is about to have, had that of p - length. That one was received,
   but its send may have to be asked once more. */
static tutti_status make_room(tutti_pipe *pipe, int which, int64_t p, tutti_error *err)
{
    conduit *c = &pipe->c[which];

    while (c->peer >= 0 && c->ended < p - c->length) {
        tutti_request *r = &c->requests[place(c, c->ended + 1)];
        TUTTI_TRY(tutti_wait_some(pipe->world, &r, 1, 1, TUTTI_FOREVER, NULL, err));
        TUTTI_TRY(collect(pipe, which, err));
    }
    return TUTTI_OK;
}

/* Until one more of them is through: any, or of the sends alone; or the caller's request. */
static tutti_status wait(tutti_pipe *pipe, int from, const tutti_pipe_work *work, tutti_error *err)
{
    tutti_request *const admits = from == ENTER && work->admits != NULL ? work->admits(work->self) : NULL;
    size_t n = list(pipe, from);
    tutti_status status;

    if (admits != NULL)
        pipe->waited[n++] = admits;
    if (n == 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "stage %d of a pipeline waits for nothing: its turns stopped at "
                                                   "micro-batch %lld", pipe->t.stage, (long long)pipe->t.forwards);
    if (work->waits != NULL)
        work->waits(work->self, true);
    status = tutti_wait_some(pipe->world, pipe->waited, n, 1, TUTTI_FOREVER, NULL, err);
    if (work->waits != NULL)
        work->waits(work->self, false);
    return status;
}

/* ---- turns ---- */
static int slot_of(const tutti_pipe *pipe, int64_t p)
{
    const int behind = pipe->t.stages - pipe->t.stage,
              most = pipe->t.in_flight < behind ? pipe->t.in_flight : behind;
    return (int)((p - 1) % most);
}

static tutti_status forward(tutti_pipe *pipe, const tutti_pipe_work *work, tutti_error *err)
{
    const int64_t p = pipe->t.forwards + 1;
    conduit *in = &pipe->c[ENTER], *out = &pipe->c[LEAVE];
    const size_t entered = in->peer >= 0 ? in->left[place(in, p)] : 0;
    size_t left = 0;

    TUTTI_TRY(make_room(pipe, LEAVE, p, err));
    TUTTI_TRY(work->forward(work->self, p, slot_of(pipe, p), buffer(in, p), entered, buffer(out, p), &left, err));
    pipe->t.forwards = p;
    if (pipe->c[BACK].peer >= 0)
        pipe->c[BACK].left[place(&pipe->c[BACK], p)] = entered;
    TUTTI_TRY(post_receives(pipe, &pipe->c[SLOPE], p, err));
    return send(pipe, out, p, left, err);
}

static tutti_status backward(tutti_pipe *pipe, const tutti_pipe_work *work, tutti_error *err)
{
    const int64_t p = pipe->t.backwards + 1;
    conduit *back = &pipe->c[BACK];
    const size_t entered = back->peer >= 0 ? back->left[place(back, p)] : 0;

    TUTTI_TRY(make_room(pipe, BACK, p, err));
    TUTTI_TRY(work->backward(work->self, p, slot_of(pipe, p), buffer(&pipe->c[SLOPE], p), buffer(back, p), err));
    pipe->t.backwards = p;
    return send(pipe, back, p, entered, err);
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static tutti_status run(tutti_pipe *pipe, int64_t last, const tutti_pipe_work *work, tutti_error *err)
{
    conduit *in = &pipe->c[ENTER], *slopes = &pipe->c[SLOPE];
    tutti_pipeline_turns *t = &pipe->t;

    while (t->backwards < last) {
        int64_t entered, may = last;
        tutti_turn turn;
        TUTTI_TRY(post_receives(pipe, in, least(last, t->forwards + in->length), err));
        TUTTI_TRY(look(pipe, err));
        entered = in->peer >= 0 ? in->ended : last;
        if (work->admitted != NULL && entered > t->forwards)
            may = work->admitted(work->self);
        turn = tutti_pipeline_next(t, least(entered, may), slopes->ended);
        if (turn == TUTTI_TURN_FORWARD)
            TUTTI_TRY(forward(pipe, work, err));
        else if (turn == TUTTI_TURN_BACKWARD)
            TUTTI_TRY(backward(pipe, work, err));
        else if (t->forwards == t->backwards && entered > t->forwards)
            TUTTI_TRY(work->await(work->self, t->forwards + 1, err)); /* no slope comes before it */
        else
            TUTTI_TRY(wait(pipe, ENTER, work, err));
    }
    while (pipe->c[LEAVE].ended < pipe->c[LEAVE].posted || pipe->c[BACK].ended < pipe->c[BACK].posted) {
        TUTTI_TRY(wait(pipe, LEAVE, work, err));
        TUTTI_TRY(look(pipe, err));
    }
    return TUTTI_OK;
}

tutti_status tutti_pipe_run(tutti_pipe *pipe, int64_t last, const tutti_pipe_work *work, tutti_error *err)
{
    tutti_status status;

    if (pipe->failed)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "a pipeline that has failed can only be closed");
    status = run(pipe, last, work, err);
    pipe->failed = status != TUTTI_OK;
    return pipe->failed ? tutti_fail_within(err, status, "stage %d of %d", pipe->t.stage, pipe->t.stages) : TUTTI_OK;
}
