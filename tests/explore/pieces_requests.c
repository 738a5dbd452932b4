/* Pieces: the request queue, in which services take requests and answer them
   (src/engine/service/requests.c), with few buffers and fewer copies, so that services wait for
   both; or with buffers that are kept, as few as suffice. A worker that asks knows what it must
   get. */
#include "engine/engine_internal.h"
#include "explore.h"

enum { COUNT = 40, STEPS = 6, ROOMS_MOST = 3, COPIES_MOST = 2, HELD_MOST = 4 };

typedef struct toy {
    float in[EXPLORE_RANKS * COUNT], out[COPIES_MOST * COUNT], values[COUNT], mine[COUNT], got[EXPLORE_RANKS][COUNT];
    tutti_header held[HELD_MOST];
    int n_held;
    tutti_engine_call call[EXPLORE_RANKS];
} toy;

static explore_case *the_case; /* a method's ops have no place for it; a process has one run */

/* The answer to a worker that asks in a step, whichever others share that answer: a number of the
   step. */
static float number_of(int64_t step, size_t i)
{
    return (float)(step * 100 + (int64_t)i);
}

static tutti_status answer_held(tutti_method *m, tutti_error *err)
{
    toy *t = m->self;
    tutti_engine *e = m->engine;
    tutti_header notes[HELD_MOST];

    for (int k = 0; k < t->n_held; k++) {
        notes[k] = (tutti_header){ .a = t->held[0].a };
        tutti_engine_answered(e, &t->held[k]);
    }
    for (size_t i = 0; i < COUNT; i++)
        t->values[i] = number_of(t->held[0].a, i);
    TUTTI_TRY(tutti_requests_reply(&e->services.at[0].queue, t->held, notes, t->n_held,
                                   tutti_host(t->values, COUNT, TUTTI_F32), NULL, err));
    for (size_t i = 0; i < COUNT; i++)
        t->values[i] = -1;
    t->n_held = 0;
    return TUTTI_OK;
}

/* Each request is answered by itself, or two of one step at once. */
static tutti_status serve(tutti_method *m, tutti_error *err)
{
    toy *t = m->self;
    tutti_engine *e = m->engine;
    const bool two = explore_draw(the_case, "two", 2) == 0 && m->workers % 2 == 0;
    tutti_header note;
    void *in;
    tutti_status status;

    while ((status = tutti_engine_serve(e, 0, &note, &in, TUTTI_FOREVER, err)) == TUTTI_OK) {
        const float *sent = in;
        EXPLORE_EXPECT(note.bytes == COUNT * sizeof *sent, "%llu bytes came from worker %d",
                       (unsigned long long)note.bytes, note.from);
        for (size_t i = 0; i < COUNT; i++)
            EXPLORE_EXPECT(sent[i] == (float)note.from + number_of(note.a, i),
                           "element %zu of worker %d is %g in step %lld", i, note.from, (double)sent[i],
                           (long long)note.a);
        explore_dawdle(1000);
        for (size_t i = 0; i < COUNT; i++)
            EXPLORE_EXPECT(sent[i] == (float)note.from + number_of(note.a, i), "element %zu of worker %d has become %g",
                           i, note.from, (double)sent[i]);
        t->held[t->n_held++] = note;
        if (!two || t->n_held == 2)
            TUTTI_TRY(answer_held(m, err));
    }
    return status;
}

/* Every worker sends requests to every one, itself too. Where two are answered at once all meet
   after each step. */
static tutti_status step(tutti_method *m, tutti_error *err)
{
    toy *t = m->self;
    tutti_engine *e = m->engine;
    tutti_group all = tutti_group_keyed(&m->all, 5, (uint32_t)m->step);
    tutti_header note[EXPLORE_RANKS] = { 0 };
    tutti_buffer request[EXPLORE_RANKS], reply[EXPLORE_RANKS];
    tutti_request *each[EXPLORE_RANKS];
    int member[EXPLORE_RANKS];

    for (size_t i = 0; i < COUNT; i++)
        t->mine[i] = (float)m->rank + number_of((int64_t)m->step, i);
    for (int r = 0; r < m->workers; r++) {
        member[r] = r;
        note[r].a = (int64_t)m->step;
        request[r] = tutti_host(t->mine, COUNT, TUTTI_F32);
        reply[r] = tutti_host(t->got[r], COUNT, TUTTI_F32);
    }
    TUTTI_TRY(tutti_engine_calls(e, 0, m->workers, member, note, request, NULL, reply, t->call, each, err));
    for (int r = 0; r < m->workers; r++)
        for (size_t i = 0; i < COUNT; i++)
            EXPLORE_EXPECT(t->got[r][i] == number_of((int64_t)m->step, i),
                           "worker %d has answered %g as element %zu in step %llu", r, (double)t->got[r][i], i,
                           (unsigned long long)m->step);
    return explore_draw(the_case, "two", 2) == 0 ? tutti_barrier(&all, err) : TUTTI_OK;
}

static tutti_status open_queue(tutti_method *m, tutti_error *err)
{
    toy *t = m->self;
    tutti_engine *e = m->engine;
    const bool keeps = explore_draw(the_case, "keeps", 2) == 0, two = explore_draw(the_case, "two", 2) == 0;
    const int few = 1 + (int)explore_draw(the_case, "rooms", ROOMS_MOST);
    const tutti_requests_setup setup = {
        /* if requests are answered in pairs, none may wait for a buffer */
        .buffers = keeps && two ? m->workers : few,
        .copies = keeps ? 0 : 1 + (int)explore_draw(the_case, "copies", COPIES_MOST), .in = t->in, .out = t->out,
        .in_bytes = sizeof t->values, .out_bytes = sizeof t->values, .keep_until_answered = keeps,
    };
    return tutti_requests_open(&e->services.at[0].queue, e, 0, &setup, err);
}

static const tutti_service services[] = { { "serve", serve }, { 0 } };
static const tutti_method_ops ops = {
    .name = "toy", .self_bytes = sizeof(toy), .traits = TUTTI_OWNS_UPDATE, .services = services, .open = open_queue,
    .step = step,
};
static const tutti_method_ops *const methods[] = { &ops, NULL };

static tutti_status requests(tutti_world *world, explore_case *c, tutti_error *err)
{
    const tutti_param param = { .name = "w", .dims = 1, .dim = { 4 } };
    tutti_engine *e;
    tutti_status status;

    the_case = c;
    status = tutti_engine_open_from(&e, world, &param, 1, &(tutti_engine_options){ .method = "toy", .batch = 1 },
                                    methods, err);
    for (int k = 0; k < STEPS && status == TUTTI_OK; k++) {
        tutti_pass p;
        while ((status = tutti_engine_pass_begin(e, &p, err)) == TUTTI_OK) {
            TUTTI_TRY(tutti_engine_grad_ready(e, 0, err));
            TUTTI_TRY(tutti_engine_pass_end(e, 0, err));
        }
        status = status == TUTTI_CLOSED ? tutti_engine_step(e, err) : status;
        if (status == TUTTI_OK && k == STEPS / 2) {
            status = tutti_engine_eval_begin(e, err);
            status = status == TUTTI_OK ? tutti_engine_eval_end(e, err) : status;
        }
    }
    status = status == TUTTI_OK ? tutti_engine_finish(e, err) : status;
    tutti_engine_close(e);
    return status;
}

const explore_piece explore_requests_pieces[] = {
    { .name = "requests",
      .help = "many requests at few rooms, answers from few copies: each gets its own",
      .least = 2,
      .most = 6,
      .rank_main = requests },
    { .name = "requests-die",
      .help = "the same while a rank is killed: all others end",
      .least = 2,
      .most = 5,
      .rank_main = requests,
      .deaths = true,
      .steps = 4000 },
    { 0 },
};
