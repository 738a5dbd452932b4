/* Goal: what a method may ask of a client beyond gradients of the configured passes: the loss of
   the model as it stands on samples held out (tutti_evaluate), and passes that it adds, each over
   samples of its own choice, with updates between them. Method: methods of this file, and clients
   with the engine's memory and with their own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tutti/tutti.h"
#include "tutti/method/steps.h"
#include "engine/calls.h"

enum { COUNT = 100, STEPS = 3, PASSES = 4, BATCH = 8 };
#define CHECK(condition) \
    do { \
        if (!(condition)) \
            return tutti_fail(err, TUTTI_ERR_STATE, 0, "line %d: %s", __LINE__, #condition); \
    } while (0)
static const double rate = 0.25;
static const int64_t slept_ns = 2000000;

typedef struct client {
    bool own_memory, closes_late;
    const char *loss_scale;
    int64_t accumulate;
    float values[COUNT], gradient[COUNT];
    tutti_engine *e;
    int evaluations, updates;
    bool in_pass;                /* asks from within pass() */
} client;
static client *asked;            /* the one of a run of one worker */

static double loss_of(const float *x)
{
    double sum = 0;
    for (int i = 0; i < COUNT; i++)
        sum += (double)x[i] * (i % 7);
    return sum;
}

static tutti_status evaluate(void *user, double *loss, tutti_error *err)
{
    client *c = user;
    tutti_runtime *rt = tutti_engine_method(c->e)->rt;

    (void)err;
    c->evaluations++;
    tutti_sleep_until(rt, tutti_now_ns(rt) + slept_ns);
    *loss = loss_of(c->own_memory ? c->values : tutti_engine_values(c->e, 0));
    return TUTTI_OK;
}

static void initial(void *user, int tensor, float *values)
{
    (void)user;
    (void)tensor;
    for (int i = 0; i < COUNT; i++)
        values[i] = (float)i;
}

/* ---- methods ---- */

static tutti_status asks_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    (void)plan;
    return tutti_evaluate_declare(m, err);
}

static tutti_status asks_step(tutti_method *m, tutti_error *err)
{
    for (int k = 0; k < 2; k++) { /* twice, since the model has changed in between */
        const int64_t before = tutti_computed_ns(m);
        double loss;
        TUTTI_TRY(k == 0 ? tutti_base_step(m, err) : TUTTI_OK);
        if (k == 1)
            tutti_scale(m->device, m->n, 0.5f, m->x);
        TUTTI_TRY(tutti_evaluate(m, &loss, err));
        CHECK(loss == loss_of(m->x));
        CHECK(tutti_computed_ns(m) - before >= slept_ns);
    }
    return TUTTI_OK;
}

static tutti_status asks_pass(tutti_method *m, tutti_pass *p, tutti_error *err)
{
    double loss;

    (void)p;
    return asked->in_pass ? tutti_evaluate(m, &loss, err) : TUTTI_OK;
}

static const tutti_method_ops asks = { .name = "asks", .declare = asks_declare, .pass = asks_pass, .step = asks_step };

/* A step is PASSES passes, over 1, 2, ... samples from place 100 k on, each followed by an
   update. */
static tutti_status adds_pass(tutti_method *m, tutti_pass *p, tutti_error *err)
{
    tutti_rate now;
    bool skip;

    if (p->index > 0) {
        TUTTI_TRY(tutti_base_check(m, &now, &skip, err));
        CHECK(!skip && m->loss == 3);
        tutti_update(m->optim, 0, m->n, m->x, m->g, &now);
        asked->updates++;
        CHECK(p->samples == 0 || p->index < m->share->accumulate);
    }
    p->samples = p->divisor = p->index + 1;
    p->epoch = 5;
    p->position = 100 * (uint64_t)p->index;
    p->keep = p->same_values = p->exchange = false;
    p->more = p->index + 1 < PASSES;
    return TUTTI_OK;
}

static const tutti_method_ops adds = { .name = "adds", .pass = adds_pass };

/* ---- the client: a gradient of 1, times the scale ---- */

static tutti_status step(client *c, int passes, bool added, tutti_error *err)
{
    const tutti_method *m = tutti_engine_method(c->e);
    float *g = c->own_memory ? c->gradient : tutti_engine_gradient(c->e, 0);
    const float *x = c->own_memory ? c->values : tutti_engine_values(c->e, 0);
    float first = x[3];
    tutti_pass p;
    tutti_status status;
    int n = 0;

    while ((status = tutti_engine_pass_begin(c->e, &p, err)) == TUTTI_OK) {
        if (n == 0)
            first = x[3];
        if (added) {
            CHECK(p.index == n && p.samples == n + 1 && p.epoch == 5 && p.position == 100 * (uint64_t)n && !p.keep &&
                  !p.exchange && p.more == (n + 1 < passes));
            /* what the passes before this one have led to */
            CHECK(fabs((double)first - (double)x[3] - rate * n) < 1e-6 && x[3] == m->x[3]);
        }
        for (int i = 0; i < COUNT; i++)
            g[i] = (float)p.scale;
        TUTTI_TRY(tutti_engine_grad_ready(c->e, 0, err));
        TUTTI_TRY(tutti_engine_pass_end(c->e, 3.0 * (double)p.samples, err));
        n++;
        if (n < passes && c->closes_late)
            CHECK(tutti_engine_step(c->e, NULL) == TUTTI_ERR_STATE);
    }
    if (status != TUTTI_CLOSED)
        return status;
    CHECK(n == passes);
    TUTTI_TRY(tutti_engine_step(c->e, err));
    if (added)
        CHECK(fabs((double)first - (double)m->x[3] - rate * passes) < 1e-6);
    return TUTTI_OK;
}

typedef struct run { client *c; const tutti_method_ops *ops; bool held_out; } run;

static tutti_status rank_main(tutti_world *world, void *arg, tutti_error *err)
{
    const run *r = arg;
    client *c = r->c;
    const tutti_method_ops *const methods[] = { r->ops, NULL };
    const tutti_param param = {
        .name = "w", .dims = 1, .dim = { COUNT }, .values = c->own_memory ? c->values : NULL,
        .gradient = c->own_memory ? c->gradient : NULL,
    };
    tutti_status status;

    asked = c;
    initial(NULL, 0, c->values);
    status = tutti_engine_open_from(&c->e, world, &param, 1,
                                    &(tutti_engine_options){
                                        .method = r->ops->name, .optimizer = "sgd(lr=0.25)", .batch = BATCH,
                                        .accumulate = c->accumulate, .loss_scale = c->loss_scale, .initial = initial,
                                        .user = c, .evaluate = r->held_out ? evaluate : NULL,
                                    },
                                    methods, err);
    for (int k = 0; k < STEPS && status == TUTTI_OK; k++)
        status = step(c, r->ops == &adds ? PASSES : 1, r->ops == &adds, err);
    if (status == TUTTI_OK)
        status = tutti_engine_finish(c->e, err);
    tutti_engine_close(c->e);
    return status;
}

static tutti_status try(client *c, const tutti_method_ops *ops, bool held_out, tutti_error *err)
{
    *err = (tutti_error){ .rank = -1 };
    return tutti_world_run("shm", 1, rank_main, &(run){ c, ops, held_out }, err);
}

static void method_can_evaluate_the_current_model_with_either_client(void **state)
{
    (void)state;
    for (int own = 0; own < 2; own++) {
        client c = { .own_memory = own == 1 };
        tutti_error err;
        if (try(&c, &asks, true, &err) != TUTTI_OK)
            fail_msg("%s", err.text);
        assert_int_equal(c.evaluations, 2 * STEPS);
    }
}

static void evaluation_requires_validation_data_and_a_legal_time(void **state)
{
    client c = { .in_pass = true };
    tutti_error err;

    (void)state;
    assert_int_equal(try(&c, &asks, false, &err), TUTTI_ERR_USAGE);
    assert_string_equal(err.text, "method 'asks' goes by the model's loss on samples that are held out of training, "
                                  "and there are none; give --validation N, say 1000 (engine_options.evaluate)");
    assert_int_equal(try(&c, &asks, true, &err), TUTTI_ERR_STATE);
    assert_string_equal(err.text,
                        "method 'asks': tutti_evaluate is legal within step, after tutti_evaluate_declare (steps.h)");
    assert_int_equal(c.evaluations, 0);
}

static void method_may_add_passes_and_updates_under_loss_scaling(void **state)
{
    static const char *const scales[] = { NULL, "static(scale=1024)", "dynamic(init=256,interval=2)" };

    (void)state;
    for (int own = 0; own < 2; own++)
        for (size_t k = 0; k < TUTTI_LENGTH(scales); k++)
            /* passes that it adds to the configured ones, and takes away from them */
            for (int64_t accumulate = 1; accumulate <= PASSES + 1; accumulate += 2) {
                client c = { .own_memory = own == 1, .loss_scale = scales[k], .accumulate = accumulate };
                tutti_error err;
                if (try(&c, &adds, false, &err) != TUTTI_OK)
                    fail_msg("%s, accumulate %lld: %s", scales[k] == NULL ? "unscaled" : scales[k],
                             (long long)accumulate, err.text);
                assert_int_equal(c.updates, STEPS * (PASSES - 1));
            }
}

static void a_step_ends_when_its_passes_are_over_and_not_before(void **state)
{
    client c = { .closes_late = true, .accumulate = 1 };
    tutti_error err;

    (void)state;
    if (try(&c, &adds, false, &err) != TUTTI_OK)
        fail_msg("%s", err.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(method_can_evaluate_the_current_model_with_either_client),
        cmocka_unit_test(evaluation_requires_validation_data_and_a_legal_time),
        cmocka_unit_test(method_may_add_passes_and_updates_under_loss_scaling),
        cmocka_unit_test(a_step_ends_when_its_passes_are_over_and_not_before),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
