/* Goal: passes that look again at the samples of the one before (tutti.h: tutti_pass.again): the
   client is notified of that and given the same place in the order, with the values that the
   method has put there, wherever these lie; the losses and samples of the first pass alone count;
   gradients within a step come without the loss scale when they are asked for; clients that
   compute every batch once are refused. Method: a method that looks three times, at x, x + 1 and
   x + 2. */
#include "engine/engine_internal.h"
#include "toy.h"
#include "engine/calls.h"

enum { STEPS = 3, LOOKS = 3, COUNT = 20 };

typedef struct job { bool own_memory, once; const char *scale; } job;
typedef struct thrice { float *kept; double sum; } thrice;

static tutti_status thrice_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    (void)err;
    tutti_declare_vector(plan, "thrice.kept", TUTTI_SCRATCH, &((thrice *)m->self)->kept);
    return TUTTI_OK;
}

static tutti_status thrice_pass(tutti_method *m, tutti_pass *p, tutti_error *err)
{
    thrice *s = m->self;

    CHECK(!p->again && p->samples == (p->index == 0 ? m->samples : 0) && p->divisor == m->samples);
    p->more = p->index + 1 < LOOKS;
    if (p->index == 0) {
        tutti_copy(m->device, m->n, m->x, s->kept);
        s->sum = 0;
        return TUTTI_OK;
    }
    tutti_base_unscale(m);
    s->sum += (double)m->g[0];
    for (size_t i = 0; i < m->layout->used; i++)
        m->x[i] = s->kept[i] + (float)p->index;
    p->again = true;
    p->samples = m->samples;
    p->keep = p->same_values = false;
    return TUTTI_OK;
}

static tutti_status thrice_step(tutti_method *m, tutti_error *err)
{
    const thrice *s = m->self;

    CHECK(m->loss == 1.25); /* mean of the first pass's alone */
    CHECK(s->sum == 2 * (double)s->kept[0] + 1 && m->g[0] == s->kept[0] + 2);
    tutti_copy(m->device, m->n, s->kept, m->x);
    return tutti_base_step(m, err);
}

static const tutti_method_ops thrice_ops = {
    .name = "thrice", .self_bytes = sizeof(thrice), .traits = TUTTI_RECOMPUTES, .declare = thrice_declare,
    .pass = thrice_pass, .step = thrice_step,
};
static const tutti_method_ops *const methods[] = { &thrice_ops, NULL };

static tutti_status run_rank(tutti_world *world, void *arg, tutti_error *err)
{
    const job *j = arg;
    float values[COUNT] = { 0 }, gradient[COUNT] = { 0 };
    const tutti_param param = { .name = "a", .dims = 1, .dim = { COUNT },
                                .values = j->own_memory ? values : NULL, .gradient = j->own_memory ? gradient : NULL };
    const tutti_engine_options options = { .method = "thrice", .optimizer = "sgd(lr=0.5)", .batch = 4,
                                           .data_samples = 100, .once = j->once, .loss_scale = j->scale };
    tutti_engine *e;
    tutti_figures figures;

    TUTTI_TRY(tutti_engine_open_from(&e, world, &param, 1, &options, methods, err));
    for (int s = 0; s < STEPS; s++) {
        const tutti_method *m = tutti_engine_method(e);
        float start = 0;
        uint64_t epoch = 0, position = 0;
        tutti_pass p;
        tutti_status status;
        for (int k = 0; (status = tutti_engine_pass_begin(e, &p, err)) == TUTTI_OK; k++) {
            const float *x = j->own_memory ? values : tutti_engine_values(e, 0);
            float *g = j->own_memory ? gradient : tutti_engine_gradient(e, 0);
            CHECK(p.again == (k > 0) && p.samples == 4 && p.divisor == 4);
            if (k == 0) {
                start = x[0];
                epoch = p.epoch;
                position = p.position;
            }
            CHECK(p.epoch == epoch && p.position == position && x[0] == start + (float)k);
            for (int i = 0; i < COUNT; i++) /* the gradient of x^2 / 2 */
                g[i] = (float)p.scale * x[i];
            TUTTI_TRY(tutti_engine_grad_ready(e, 0, err));
            TUTTI_TRY(tutti_engine_pass_end(e, k == 0 ? 5 : 1e9, err));
        }
        CHECK(status == TUTTI_CLOSED);
        TUTTI_TRY(tutti_engine_step(e, err));
        CHECK(m->x[0] == start - 0.5f * (start + 2));
    }
    tutti_engine_figures(e, &figures);
    CHECK(figures.samples == STEPS * 4);
    tutti_engine_close(e);
    return TUTTI_OK;
}

static void samples_are_recomputed_as_often_as_the_method_requests(void **state)
{
    static const char *const scales[] = { "off", "static(scale=1024)" };

    (void)state;
    for (int own = 0; own < 2; own++)
        for (size_t k = 0; k < TUTTI_LENGTH(scales); k++) {
            job j = { .own_memory = own, .scale = scales[k] };
            tutti_error err = { .rank = -1 };
            if (tutti_world_run("shm", 1, run_rank, &j, &err) != TUTTI_OK)
                fail_msg("%s memory, loss scale %s: %s", own ? "its own" : "the engine's", scales[k], err.text);
        }
}

static void a_client_that_computes_every_batch_once_is_refused(void **state)
{
    job j = { .once = true };
    tutti_error err = { .rank = -1 };

    (void)state;
    assert_int_equal(tutti_world_run("shm", 1, run_rank, &j, &err), TUTTI_ERR_USAGE);
    assert_non_null(strstr(err.text, "method 'thrice' computes the samples of a step again at other values, but this "
                                     "client computes every batch once; take a method that needs one pass"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(samples_are_recomputed_as_often_as_the_method_requests),
        cmocka_unit_test(a_client_that_computes_every_batch_once_is_refused),
    };
    return cmocka_run_group_tests_name("engine/again", tests, NULL, NULL);
}
