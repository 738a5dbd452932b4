/* The quadratic: closed forms, both backends, blocks, hooks, and the
   models of the synthetic problems. */
#include "nn_test.h"
#include "problem/problem.h"

static const char *const backend_names[] = { "onednn", "reference" };

static nn_net quadratic_of(int dim, double condition, bool simplex)
{
    const tutti_nn_task task = { 1, 1, dim, 1 };
    char model[80];
    tutti_error err = { 0 };
    nn_net net;

    snprintf(model, sizeof model, "quadratic(dim=%d,condition=%.17g,simplex=%s)", dim, condition,
             simplex ? "on" : "off");
    if (tutti_nn_net_model(&net, model, &task, &err) != TUTTI_OK)
        fail_msg("%s", err.text);
    return net;
}

/* x of the example drawn, since the initial values of a quadratic are all equal. */
static example drawn(const nn_net *net, int64_t samples, uint64_t seed)
{
    example e = example_of(net, samples, seed);

    for (size_t j = 0; j < e.params[0].count; j++)
        e.values[0][j] = (float)tutti_normal((tutti_rng){ .seed = seed, .stream = 7 }, j);
    return e;
}

/* Goal: gradient lambda_j mean(x_j - xi_j), loss 1/2 sum lambda (x - xi)^2. Method: the formulas
   in long double; the gradient is the float nearest to a sum of 64 or fewer differences, exact
   except for two roundings in double and one in float: 1e-7 relative to the largest term. */
static void gradient_and_loss_are_the_closed_form(void **state)
{
    static const int dims[] = { 1, 2, 15, 16, 17, 33, 100, 131 };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(dims); i++)
        for (int64_t samples = 1; samples <= 64; samples += 21) {
            const nn_net net = quadratic_of(dims[i], 1000, false);
            tutti_nn *nn = open_net(&net, NULL, 64);
            example e = drawn(&net, samples, i);
            const double loss = run_pass(nn, &e, samples, false, NULL);
            long double wanted = 0;

            for (int j = 0; j < dims[i]; j++) {
                const long double lambda = dims[i] > 1 ? powl(1000, -(long double)j / (dims[i] - 1)) : 1;
                long double sum = 0, size = 0;
                for (int64_t s = 0; s < samples; s++) {
                    const long double d = (long double)e.values[0][j] - (long double)e.x[s * dims[i] + j];
                    sum += d;
                    size += fabsl(d);
                    wanted += lambda * d * d / 2;
                }
                assert_true(fabsl((long double)e.gradients[0][j] - lambda * sum / samples) <=
                            1e-7L * lambda * size / samples);
            }
            assert_true(fabsl((long double)loss - wanted) <= 1e-13L * wanted);
            example_free(&e);
            tutti_nn_close(nn);
        }
}

/* Central differences of a quadratic are exact except for rounding: (f(x + h) - f(x - h)) / 2h, h
   a power of two. */
static void gradient_is_the_difference_quotient_of_the_loss(void **state)
{
    (void)state;
    for (int b = 0; b < 2; b++) {
        const nn_net net = quadratic_of(20, 50, false);
        tutti_nn *nn = open_net(&net, backend_names[b], 30);
        example e = drawn(&net, 30, 5);
        const float h = 0x1p-7f;

        run_pass(nn, &e, 30, false, NULL);
        for (int j = 0; j < 20; j++) {
            const float at = e.values[0][j];
            double f[2], mine = (double)e.gradients[0][j];
            int64_t correct;
            for (int side = 0; side < 2; side++) {
                e.values[0][j] = side == 0 ? at - h : at + h;
                assert_int_equal(
                    tutti_nn_evaluate(
                        nn, &(tutti_nn_samples){ .count = 30, .x = e.x, .labels = e.labels },
                        (const float *const *)e.values, &f[side], &correct, NULL),
                    TUTTI_OK);
                assert_int_equal(correct, 0);
            }
            e.values[0][j] = at;
            assert_true(fabs((f[1] - f[0]) / (2 * (double)h) / 30 - mine) <= 1e-6 * (1 + fabs(mine)));
        }
        example_free(&e);
        tutti_nn_close(nn);
    }
}

static void both_backends_give_the_same_bits(void **state)
{
    static const struct { int dim; int64_t samples; bool add;
    } cases[] = {
        { 1, 1, false },    { 7, 3, true },      { 16, 64, false },  { 50, 65, false },
        { 100, 200, true }, { 131, 300, false }, { 1000, 17, true },
    };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(cases); i++) {
        const nn_net net = quadratic_of(cases[i].dim, 1e4, false);
        float *gradient[2];
        double loss[2], sum[2];
        for (int b = 0; b < 2; b++) {
            tutti_nn *nn = open_net(&net, backend_names[b], cases[i].samples);
            example e = drawn(&net, cases[i].samples, i);
            int64_t correct;
            for (int j = 0; j < cases[i].dim; j++)
                e.gradients[0][j] = (float)j;
            loss[b] = run_pass(nn, &e, cases[i].samples, cases[i].add, NULL);
            assert_int_equal(
                tutti_nn_evaluate(
                    nn,
                    &(tutti_nn_samples){ .count = cases[i].samples < 60 ? cases[i].samples : 60,
                                         .x = e.x,
                                         .labels = e.labels },
                    (const float *const *)e.values, &sum[b], &correct, NULL),
                TUTTI_OK);
            gradient[b] = e.gradients[0];
            e.gradients[0] = NULL;
            example_free(&e);
            tutti_nn_close(nn);
        }
        assert_memory_equal(gradient[0], gradient[1], (size_t)cases[i].dim * sizeof(float));
        assert_true(loss[0] == loss[1] && sum[0] == sum[1]);
        free(gradient[0]);
        free(gradient[1]);
    }
}

/* 1 x 256 = 2 x 128 = 4 x 64, as workers would average them, with the weights of the tree. */
static void any_split_of_a_batch_gives_the_same_bits(void **state)
{
    enum { DIM = 37 };
    const nn_net net = quadratic_of(DIM, 100, false);
    tutti_nn *nn = open_net(&net, NULL, 256);
    example e = drawn(&net, 256, 3);
    float part[4][DIM], whole[DIM];
    double loss;

    (void)state;
    run_pass(nn, &e, 256, false, NULL);
    memcpy(whole, e.gradients[0], sizeof whole);
    for (int workers = 2; workers <= 4; workers *= 2) {
        for (int w = 0; w < workers; w++) {
            float *g = part[w];
            assert_int_equal(
                tutti_nn_pass(nn,
                              &(tutti_nn_samples){ .count = 256 / workers,
                                                   .x = e.x + (size_t)w * (256 / workers) * DIM,
                                                   .labels = e.labels },
                              &(tutti_nn_step){ 256 / workers, false, false,
                                                (const float *const *)e.values, &g, NULL },
                              &loss, NULL),
                TUTTI_OK);
        }
        for (int j = 0; j < DIM; j++) {
            const float a = 1.0f / (float)workers;
            const float sum = workers == 2 ? a * part[0][j] + a * part[1][j]
                                           : (a * part[0][j] + a * part[1][j]) + (a * part[2][j] + a * part[3][j]);
            assert_true(sum == whole[j]);
        }
    }
    example_free(&e);
    tutti_nn_close(nn);
}

/* Goal: with one sample (no noise) gradient descent contracts direction j by 1 - lr lambda_j a
   step. Method: 60 steps against the closed form x_t = xi + (1 - lr lambda)^t (x_0 - xi); each step
   rounds twice, an error the later steps shrink or keep: below 60 x 2 roundings of |xi| + |x_0|. */
static void gradient_descent_converges_at_the_rate_of_each_direction(void **state)
{
    enum { DIM = 24, STEPS = 60 };
    static const float rates[] = { 0.1f, 0.5f, 1, 1.9f };

    (void)state;
    for (size_t r = 0; r < TUTTI_LENGTH(rates); r++) {
        const nn_net net = quadratic_of(DIM, 100, false);
        tutti_nn *nn = open_net(&net, NULL, 1);
        example e = example_of(&net, 1, r);
        double lambda[DIM];

        tutti_problem_spectrum(DIM, 100, lambda);
        assert_true(lambda[0] == 1 && fabs(lambda[DIM - 1] - 0.01) < 1e-15);
        for (int t = 0; t < STEPS; t++) {
            run_pass(nn, &e, 1, false, NULL);
            for (int j = 0; j < DIM; j++)
                e.values[0][j] -= rates[r] * e.gradients[0][j];
        }
        for (int j = 0; j < DIM; j++) {
            const double xi = (double)e.x[j], wanted = xi + pow(1 - (double)rates[r] * lambda[j], STEPS) * (0 - xi);
            assert_true(fabs((double)e.values[0][j] - wanted) <= 2 * STEPS * 0x1p-24 * 2 * fabs(xi));
        }
        example_free(&e);
        tutti_nn_close(nn);
    }
}

typedef struct calls { char text[128]; } calls;

static tutti_status note(calls *c, char what, int unit, char way)
{
    const size_t at = strlen(c->text);
    snprintf(c->text + at, sizeof c->text - at, "%c%d%c ", what, unit, way);
    return TUTTI_OK;
}
static tutti_status on_need(void *user, int unit, bool backward, tutti_error *err)
{
    (void)err;
    return note(user, 'n', unit, backward ? 'b' : 'f');
}
static tutti_status on_done(void *user, int unit, bool backward, tutti_error *err)
{
    (void)err;
    return note(user, 'd', unit, backward ? 'b' : 'f');
}
static tutti_status on_ready(void *user, int param, tutti_error *err) { (void)err; return note(user, 'r', param, 'b'); }

static void hooks_see_one_unit_with_one_parameter(void **state)
{
    static const int64_t samples[] = { 0, 5, 64, 200 };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(samples); i++) {
        const nn_net net = quadratic_of(9, 10, false);
        tutti_nn *nn = open_net(&net, backend_names[i % 2], 200);
        example e = drawn(&net, 200, 1);
        calls c = { "" };
        const tutti_nn_hooks hooks = { &c, on_need, on_done, on_ready };

        e.gradients[0][4] = 5;
        run_pass(nn, &e, samples[i], false, &hooks);
        assert_string_equal(c.text, "n0f d0f n0b r0b d0b ");
        assert_true(samples[i] > 0 || e.gradients[0][4] == 0);
        example_free(&e);
        tutti_nn_close(nn);
    }
}

static void a_quadratic_has_one_parameter_named_x_a_loss_and_no_accuracy(void **state)
{
    const nn_net net = quadratic_of(40, 100, true), plain = quadratic_of(40, 100, false);
    tutti_nn *nn = open_net(&net, NULL, 8);
    const nn_net linear = net_of("logistic", 1, 28, 28, 10);
    tutti_nn *classifier = open_net(&linear, NULL, 8);
    tutti_nn_param p[2];
    double forward, backward;
    float values[40];
    char text[100];

    (void)state;
    assert_int_equal(nn_param_count(&net), 1);
    tutti_nn_net_params(&net, p, 2);
    assert_string_equal(p[0].name, "x");
    assert_true(p[0].dims == 1 && p[0].dim[0] == 40 && p[0].count == 40 && p[0].rows == 40 && p[0].cols == 1 &&
                p[0].unit == 0 && p[0].fan_in == 0);
    tutti_nn_initialise(&p[0], 1, 99, values);
    for (int j = 0; j < 40; j++)
        assert_true(values[j] == 1.0f / 40);
    tutti_nn_net_params(&plain, p, 2);
    tutti_nn_initialise(&p[0], 1, 99, values);
    for (int j = 0; j < 40; j++)
        assert_true(values[j] == 0);
    tutti_nn_flops(nn, &forward, &backward);
    assert_true(forward == 80 && backward == 80);
    assert_false(tutti_nn_classifies(nn));
    assert_true(tutti_nn_classifies(classifier));
    tutti_nn_describe(nn, text, sizeof text);
    assert_string_equal(text, "quadratic 0: own loop\n");
    assert_true(tutti_nn_bytes(nn) < 8192); /* the network itself: no engine, no activations */
    tutti_nn_close(nn);
    tutti_nn_close(classifier);
}

static void a_nan_value_reaches_the_loss(void **state)
{
    (void)state;
    for (int b = 0; b < 2; b++) {
        const nn_net net = quadratic_of(20, 10, false);
        tutti_nn *nn = open_net(&net, backend_names[b], 4);
        example e = drawn(&net, 4, 1);

        e.values[0][17] = NAN;
        assert_true(isnan(run_pass(nn, &e, 4, false, NULL)));
        assert_true(isnan(e.gradients[0][17]) && !isnan(e.gradients[0][16]));
        example_free(&e);
        tutti_nn_close(nn);
    }
}

static void refused(const char *model, tutti_nn_task task, const char *sentence)
{
    tutti_error err = { 0 };
    int count;

    assert_int_equal(tutti_nn_params(model, &task, NULL, 0, &count, &err), TUTTI_ERR_USAGE);
    assert_string_equal(err.text, sentence);
}

static void quadratics_that_do_not_fit_are_refused(void **state)
{
    const tutti_nn_task task = { 1, 1, 6, 2 };
    const tutti_layer two[] = { { .kind = TUTTI_LAYER_QUADRATIC, .out = 6, .condition = 1 },
                                { TUTTI_LAYER_RELU, 0, 0 } },
                      late[] = { { TUTTI_LAYER_LINEAR, 6, 0 },
                                 { .kind = TUTTI_LAYER_QUADRATIC, .out = 6, .condition = 1 } },
                      flat[] = { { .kind = TUTTI_LAYER_QUADRATIC, .out = 6, .condition = NAN } };
    tutti_error err;
    nn_net net;

    (void)state;
    refused("quadratic(dim=5)", task, "a quadratic of dim 5 on samples of 6 values; give it the dim of its data");
    refused("quadratic(dim=0)", task,
            "model 'quadratic': option 'dim' is 0; it must be from 1 to 16384 (values of a sample)");
    refused("quadratic(6,0.5)", task,
            "model 'quadratic': option 'condition' is 0.5; it must be from 1 to 1000000000000 (largest curvature over "
            "the smallest; the "
            "largest is 1, so lr < 2 is stable)");
    refused("quadratic(dm=6)", task, "model 'quadratic': unknown option 'dm'; did you mean 'dim'?");
    assert_int_equal(tutti_nn_net_build(&net, two, 2, &task, &err), TUTTI_ERR_USAGE);
    assert_string_equal(err.text, "a quadratic is a network by itself, without other layers; this one has 2 layers");
    assert_int_equal(tutti_nn_net_build(&net, late, 2, &task, &err), TUTTI_ERR_USAGE);
    assert_string_equal(err.text, "layer 1 (quadratic) is a network by itself and follows no other layer");
    assert_int_equal(tutti_nn_net_build(&net, flat, 1, &task, &err), TUTTI_ERR_USAGE);
    assert_string_equal(err.text, "a quadratic of condition nan; it must be 1 or more and finite");
}

static void logistic_is_one_linear_layer_on_any_task(void **state)
{
    const tutti_nn_task mnist = { 1, 28, 28, 10 }, small = { 1, 1, 20, 2 };
    tutti_nn_param p[2];
    int count;

    (void)state;
    assert_int_equal(tutti_nn_params("logistic", &mnist, p, 2, &count, NULL), TUTTI_OK);
    assert_int_equal(count, 2);
    assert_string_equal(p[0].name, "0.weight");
    assert_int_equal(p[0].count, 7840);
    assert_int_equal(tutti_nn_params("logistic(dim=20,noise=0.2)", &small, p, 2, &count, NULL), TUTTI_OK);
    assert_int_equal(p[0].count, 40);
    assert_int_equal(p[1].count, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradient_and_loss_are_the_closed_form),
        cmocka_unit_test(gradient_is_the_difference_quotient_of_the_loss),
        cmocka_unit_test(both_backends_give_the_same_bits),
        cmocka_unit_test(any_split_of_a_batch_gives_the_same_bits),
        cmocka_unit_test(gradient_descent_converges_at_the_rate_of_each_direction),
        cmocka_unit_test(hooks_see_one_unit_with_one_parameter),
        cmocka_unit_test(a_quadratic_has_one_parameter_named_x_a_loss_and_no_accuracy),
        cmocka_unit_test(a_nan_value_reaches_the_loss),
        cmocka_unit_test(quadratics_that_do_not_fit_are_refused),
        cmocka_unit_test(logistic_is_one_linear_layer_on_any_task),
    };
    return cmocka_run_group_tests_name("nn/quadratic", tests, NULL, NULL);
}
