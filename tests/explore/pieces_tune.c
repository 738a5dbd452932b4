/* Pieces: a run that tunes itself. A step's time follows from the schedule, so points are chosen,
   given up and measured again in a different way for each seed: all workers have the same knobs
   in every step, and the model of a run without. */
#include "explore.h"
#include "tutti/tutti.h"
#include "tutti/method/steps.h"
#include <string.h>

enum { STEPS = 24, COUNT = 40 };

typedef struct common {
    double size[STEPS + 1];      /* in each step, as the first that began it has it */
    bool has[STEPS + 1];
    float x[COUNT];              /* at the end, of the first that is there */
    bool ended;
} common;

static common *common_of(const explore_case *c)
{
    return (common *)(void *)c->shared;
}

typedef struct toy { double size; } toy;

static tutti_status apply(tutti_method *m, const double *value, tutti_error *err)
{
    (void)err;
    ((toy *)m->self)->size = value[0];
    return TUTTI_OK;
}

static tutti_status declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    static const tutti_knob size = { .name = "size", .low = 1, .high = 9, .multiple = 1, .first = 3 };
    const tutti_tune_options o = { .tuner = { .knobs = &size, .n_knobs = 1, .points = 4, .drawn = 2, .xi = 0.1 },
                                   .drop = m->rng.seed % 2, .steps = 2, .apply = apply };

    return tutti_tune_declare(m, plan, &o, err);
}

static tutti_status exchange(tutti_method *m, tutti_piece *p, tutti_error *err)
{
    explore_dawdle((int64_t)(1e6 * ((const toy *)m->self)->size));
    return tutti_base_exchange(m, p, err);
}

static const tutti_method_ops method = {
    .name = "toy", .title = "", .authors = "", .family = "all-reduce", .axes = { "", "", "", "", "", "" },
    .self_bytes = sizeof(toy), .traits = TUTTI_REPLICAS_EQUAL, .declare = declare, .exchange = exchange,
};

static tutti_status one_step(tutti_engine *e, common *s, int step, tutti_error *err)
{
    const tutti_method *m = tutti_engine_method(e);
    const toy *self = m->self;
    tutti_pass p;
    tutti_status status;

    while ((status = tutti_engine_pass_begin(e, &p, err)) == TUTTI_OK) {
        if (!s->has[step])
            s->size[step] = self->size;
        s->has[step] = true;
        EXPLORE_CHECK(s->size[step] == self->size);
        explore_dawdle(1000000);
        for (int i = 0; i < COUNT; i++)
            m->g[i] = m->x[i] - (float)((m->rank * 3 + i + step) % 8);
        TUTTI_TRY(tutti_engine_grad_ready(e, 0, err));
        TUTTI_TRY(tutti_engine_pass_end(e, 0, err));
    }
    return status == TUTTI_CLOSED ? tutti_engine_step(e, err) : status;
}

static tutti_status tune(tutti_world *world, explore_case *c, tutti_error *err)
{
    static const tutti_method_ops *const methods[] = { &method, NULL };
    const tutti_param param = { .name = "x", .dims = 1, .dim = { COUNT } };
    const tutti_engine_options options = { .method = "toy", .optimizer = "sgd(lr=0.125)", .seed = c->seed };
    common *const s = common_of(c);
    tutti_engine *e = NULL;
    tutti_status status = tutti_engine_open_from(&e, world, &param, 1, &options, methods, err);

    for (int k = 0; k < STEPS && status == TUTTI_OK; k++)
        status = one_step(e, s, k, err);
    if (status == TUTTI_OK)
        status = tutti_engine_finish(e, err);
    if (status == TUTTI_OK) {
        if (!s->ended)
            memcpy(s->x, tutti_engine_values(e, 0), sizeof s->x);
        s->ended = true;
        if (memcmp(s->x, tutti_engine_values(e, 0), sizeof s->x) != 0)
            status = tutti_fail(err, TUTTI_ERR_STATE, 0, "models differ");
    }
    tutti_engine_close(e);
    return status;
}

const explore_piece explore_tune_pieces[] = {
    { .name = "tune",
      .help = "a run that tunes itself: the same knobs on all workers in every step; equal models",
      .least = 2,
      .most = 5,
      .rank_main = tune },
    { .name = "tune-dies",
      .help = "a rank is killed while a run tunes itself: all others end",
      .least = 2,
      .most = 4,
      .rank_main = tune,
      .deaths = true,
      .steps = 1500 },
    { 0 }
};
