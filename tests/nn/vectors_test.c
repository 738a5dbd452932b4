/* Both backends against PyTorch: vectors.py says how vectors.h is made and by which formulas
   parameters and samples are filled. */
#include "nn_test.h"
#include "vectors.h"

static void fill(example *e)
{
    for (int k = 0; k < e->count; k++) {
        const size_t fan_in = e->params[k].fan_in > 0 ? e->params[k].fan_in : 1;
        /* its place among the parameters in PyTorch's order: those of earlier units,
           and of its own the ones before it */
        int forward = 0;
        for (int j = 0; j < e->count; j++)
            forward += e->params[j].unit < e->params[k].unit || (e->params[j].unit == e->params[k].unit && j < k);
        for (size_t i = 0; i < e->params[k].count; i++)
            e->values[k][i] = (float)(sin(0.37 * (double)i + 1.3 * forward) / sqrt((double)fan_in));
    }
    for (size_t i = 0; i < (size_t)e->samples * sample_values(&e->net); i++)
        e->x[i] = (float)(sin(0.11 * (double)i) + cos(0.017 * (double)i));
    for (int64_t i = 0; i < e->samples; i++)
        e->labels[i] = (uint8_t)((7 * i + 3) % VECTOR_CLASSES);
}

static void near(const char *backend, const char *model, const char *name, const char *what, double got,
                 double expected, double tolerance)
{
    if (!(fabs(got - expected) <= tolerance))
        fail_msg("%s, %s, %s: %s is %.9g, PyTorch has %.9g", backend, model, name, what, got, expected);
}

/* Tolerances are 1e-5 of a tensor's norm for the norm and single elements and, for a sum of
   n values, of norm sqrt(n), its largest. With batch norms 1e-4: rounding in a layer moves
   the statistics of all that follow. */
static void check(const char *backend)
{
    for (size_t v = 0; v < TUTTI_LENGTH(vectors); v++) {
        const vector_net *expected = &vectors[v];
        const nn_net net = net_of(expected->model, 1, VECTOR_SIDE, VECTOR_SIDE, VECTOR_CLASSES);
        tutti_nn *nn = open_net(&net, backend, expected->samples);
        example e = example_of(&net, expected->samples, 0);
        int64_t correct;
        const double bound = net.image != NULL ? 1e-4 : 1e-5;
        double loss;

        fill(&e);
        assert_int_equal(e.count, expected->count);
        loss = run_pass(nn, &e, expected->samples, false, NULL);
        near(backend, expected->model, "pass", "loss", loss, expected->loss, 1e-5 * expected->loss);
        for (int k = 0; k < e.count; k++) {
            const vector_tensor *t = &expected->tensors[k];
            const float *g = e.gradients[k];
            const size_t n = e.params[k].count, places[] = { 0, n / 3, n / 2, n - 1 };
            double sum = 0, square = 0;

            assert_string_equal(e.params[k].name, t->name);
            assert_int_equal(n, t->count);
            for (size_t i = 0; i < n; i++) {
                sum += (double)g[i];
                square += (double)g[i] * (double)g[i];
            }
            near(backend, expected->model, t->name, "norm", sqrt(square), t->norm, bound * t->norm);
            near(backend, expected->model, t->name, "sum", sum, t->sum, bound * t->norm * sqrt((double)n));
            for (int i = 0; i < 4; i++)
                near(backend, expected->model, t->name, "an element", (double)g[places[i]], t->at[i], bound * t->norm);
        }
        assert_int_equal(
            tutti_nn_evaluate(
                nn, &(tutti_nn_samples){ .count = expected->samples, .x = e.x, .labels = e.labels },
                (const float *const *)e.values, &loss, &correct, NULL),
            TUTTI_OK);
        near(backend, expected->model, "evaluation", "loss", loss, expected->after, 1e-5 * expected->after);
        assert_int_equal(correct, expected->correct);
        example_free(&e);
        tutti_nn_close(nn);
    }
}

static void the_reference_agrees_with_pytorch(void **state)
{
    (void)state;
    check("reference");
}

static void onednn_agrees_with_pytorch(void **state)
{
    (void)state;
    check("onednn");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_reference_agrees_with_pytorch),
        cmocka_unit_test(onednn_agrees_with_pytorch),
    };
    return cmocka_run_group_tests_name("nn/vectors", tests, NULL, NULL);
}
