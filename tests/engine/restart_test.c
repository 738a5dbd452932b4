/* Goal: a step that its method restarts (method.h: unit_release gives TUTTI_CLOSED) is computed
   from its first pass again, at the model that the method has put there meanwhile, on the same
   samples, and nothing of what was computed before it counts: neither gradients of earlier passes
   nor what the client has announced since, wherever values and gradients lie and whether or not
   the client can leave a pass. Method: a method that restarts a step several times, each at
   another unit and pass, and moves the model by 1 before it; the gradient is a formula of the
   model as the client sees it; what is dropped is NaN. */
#include "engine/engine_internal.h"
#include "toy.h"

enum { STEPS = 9, UNITS = 2, PASSES = 2, COUNT = 40 };

typedef struct job {
    bool own_memory, leaves;
    float x[STEPS][UNITS * COUNT];
    uint64_t restarts;
} job;

/* Twice in step 2, once in step 1, never in step 0, and so on; in turn
   in each pass, unit and direction. */
typedef struct anew { uint64_t step; int tries; bool before; } anew;

static int tries_of(uint64_t step) { return (int)(step % 3); }

static tutti_status anew_pass(tutti_method *m, tutti_pass *p, tutti_error *err)
{
    anew *s = m->self;

    (void)err;
    if (s->step != m->step)
        *s = (anew){ .step = m->step };
    if (p->index == 0 && s->tries > 0 && s->before)
        for (size_t i = 0; i < m->n; i++)
            m->x[i] += 1;
    s->before = false;
    return TUTTI_OK;
}

static tutti_status anew_unit_release(tutti_method *m, int unit, bool backward, tutti_error *err)
{
    anew *s = m->self;
    const tutti_engine *e = m->engine;
    const uint64_t place = m->step + (uint64_t)s->tries;

    (void)err;
    if (s->tries >= tries_of(m->step) || e->step.pass.index != (int64_t)(place % PASSES) ||
        unit != (int)(place / 2 % UNITS) || backward != (place / 4 % 2 == 0))
        return TUTTI_OK;
    s->tries++;
    s->before = true;
    return TUTTI_CLOSED;
}

static const tutti_method_ops anew_ops = {
    .name = "anew", .self_bytes = sizeof(anew), .pass = anew_pass, .unit_release = anew_unit_release
};
static const tutti_method_ops *const methods[] = { &anew_ops, NULL };

static float wanted(int pass, int i) { return (float)((i * 5 + pass * 9) % 16) / 4; }

/* One pass; `closed`: the step is restarted, and the client leaves if it can. What is computed
   after that is NaN. */
static tutti_status one_pass(job *j, tutti_engine *e, const tutti_pass *p, float (*values)[COUNT],
                             float (*gradients)[COUNT], bool *closed, tutti_error *err)
{
    const tutti_method *m = tutti_engine_method(e);

    *closed = false;
    for (int unit = 0; unit < UNITS; unit++) {
        const tutti_status status = tutti_engine_unit_release(e, unit, false, err);
        *closed |= status == TUTTI_CLOSED;
        TUTTI_TRY(status == TUTTI_CLOSED ? TUTTI_OK : status);
        if (*closed && j->leaves)
            return TUTTI_OK;
    }
    for (int k = 0; k < UNITS; k++) {
        const int unit = UNITS - 1 - k;
        const float *x = j->own_memory ? values[k] : tutti_engine_values(e, k);
        float *g = j->own_memory ? gradients[k] : tutti_engine_gradient(e, k);
        tutti_status status;
        for (int i = 0; i < COUNT; i++) {
            const float mine = *closed ? NAN : (x[i] - wanted((int)p->index, k * COUNT + i)) / PASSES;
            CHECK(x[i] == m->x[m->layout->tensor[k].first + (size_t)i]); /* the client has what the method has */
            g[i] = p->keep && !j->own_memory ? g[i] + mine : mine;
        }
        TUTTI_TRY(tutti_engine_grad_ready(e, k, err));
        status = tutti_engine_unit_release(e, unit, true, err);
        *closed |= status == TUTTI_CLOSED;
        TUTTI_TRY(status == TUTTI_CLOSED ? TUTTI_OK : status);
        if (*closed && j->leaves)
            return TUTTI_OK;
    }
    return tutti_engine_pass_end(e, 1, err);
}

static tutti_status run_rank(tutti_world *world, void *arg, tutti_error *err)
{
    job *j = arg;
    float values[UNITS][COUNT] = { { 0 } }, gradients[UNITS][COUNT] = { { 0 } };
    const tutti_engine_options options = {
        .method = "anew", .optimizer = "sgd(lr=0.5)", .batch = 4, .accumulate = PASSES, .data_samples = 1000
    };
    tutti_param params[UNITS];
    tutti_engine *e;
    tutti_figures figures;

    for (int k = 0; k < UNITS; k++)
        params[k] = (tutti_param){
            .name = k == 0 ? "b" : "a", .dims = 1, .dim = { COUNT }, .unit = UNITS - 1 - k,
            .values = j->own_memory ? values[k] : NULL, .gradient = j->own_memory ? gradients[k] : NULL,
        };
    TUTTI_TRY(tutti_engine_open_from(&e, world, params, UNITS, &options, methods, err));
    for (int s = 0; s < STEPS; s++) {
        const tutti_method *m = tutti_engine_method(e);
        uint64_t position[PASSES] = { 0 };
        int64_t next = 0;
        int passes = 0;
        bool closed = false;
        tutti_pass p;
        tutti_status status;
        while ((status = tutti_engine_pass_begin(e, &p, err)) == TUTTI_OK) {
            CHECK(p.index == (closed ? 0 : next) && p.keep == (p.index > 0) && p.same_values == (p.index > 0) &&
                  p.samples == 4);
            CHECK(passes < PASSES || closed || p.index > 0 || position[0] == p.position);
            if (p.index == 0 && passes > 0)
                CHECK(p.position == position[0]); /* the same samples */
            position[p.index] = p.position;
            TUTTI_TRY(one_pass(j, e, &p, values, gradients, &closed, err));
            next = p.index + 1;
            passes++;
        }
        CHECK(status == TUTTI_CLOSED && !closed && next == PASSES);
        CHECK(m->loss == 2.0 / 8); /* two passes of loss 1 over eight samples: of the last try alone */
        TUTTI_TRY(tutti_engine_step(e, err));
        for (int k = 0; k < UNITS; k++)
            memcpy(j->x[s] + k * COUNT, m->x + m->layout->tensor[k].first, COUNT * sizeof(float));
    }
    tutti_engine_figures(e, &figures);
    j->restarts = figures.restarts;
    tutti_engine_close(e);
    return TUTTI_OK;
}

static void restarted_step_counts_only_its_last_attempt(void **state)
{
    (void)state;
    for (int own = 0; own < 2; own++)
        for (int leaves = 0; leaves < 2; leaves++) {
            job j = { .own_memory = own, .leaves = leaves };
            tutti_error err = { .rank = -1 };
            float x[UNITS * COUNT] = { 0 };
            uint64_t restarts = 0;
            if (tutti_world_run("shm", 1, run_rank, &j, &err) != TUTTI_OK)
                fail_msg("%s memory, %s: %s", own ? "its own" : "the engine's", leaves ? "leaves" : "stays", err.text);
            for (int s = 0; s < STEPS; s++) {
                restarts += (uint64_t)tries_of((uint64_t)s);
                for (int i = 0; i < UNITS * COUNT; i++) {
                    const float at = x[i] + (float)tries_of((uint64_t)s);
                    x[i] = at - 0.5f * ((at - wanted(0, i)) / PASSES + (at - wanted(1, i)) / PASSES);
                    if (!(fabsf(j.x[s][i] - x[i]) < 1e-5f))
                        fail_msg("%s memory, %s: step %d: value %d is %g instead of %g",
                                 own ? "its own" : "the engine's", leaves ? "leaves" : "stays", s, i, (double)j.x[s][i],
                                 (double)x[i]);
                }
            }
            assert_int_equal(j.restarts, restarts);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(restarted_step_counts_only_its_last_attempt),
    };
    return cmocka_run_group_tests_name("engine/restart", tests, NULL, NULL);
}
