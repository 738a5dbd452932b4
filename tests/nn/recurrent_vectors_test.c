/* Networks with LSTMs against PyTorch: recurrent.py says how recurrent.h is made and by which
   formulas parameters and samples are filled. */
#include "nn/sequence.h"
#include "nn_test.h"
#include "recurrent.h"

static void near(const char *model, const char *name, const char *what, double got, double expected, double tolerance)
{
    if (!(fabs(got - expected) <= tolerance))
        fail_msg("%s, %s: %s is %.9g, PyTorch has %.9g", model, name, what, got, expected);
}

static void fill(const tutti_nn_param *p, int k, float *values)
{
    for (size_t i = 0; i < p->count; i++) {
        const double wave = sin(0.37 * (double)i + 1.3 * k);
        values[i] = (float)(p->dims == 1                       ? wave / 4
                            : strcmp(p->name, "e.weight") == 0 ? wave
                                                               : 2 * wave / sqrt((double)p->cols));
    }
}

typedef struct samples { uint32_t *tokens, *next; float *x; uint8_t *labels; } samples;

static samples samples_of(const tutti_nn_task *task, size_t count)
{
    const size_t n = count * (size_t)(task->context > 0 ? task->context : task->height * task->width);
    samples s = { calloc(n, sizeof(uint32_t)), calloc(n, sizeof(uint32_t)), calloc(n, sizeof(float)),
                  calloc(count, 1) };

    for (size_t i = 0; i < n; i++) {
        s.tokens[i] = (uint32_t)((7 * i * i + 3 * i + 1) % (size_t)task->classes);
        s.next[i] = (uint32_t)((5 * i + i * i + 2) % (size_t)task->classes);
        s.x[i] = (float)sin(0.61 * (double)i + 0.2);
    }
    for (size_t i = 0; i < count; i++)
        s.labels[i] = (uint8_t)((3 * i + 1) % (size_t)task->classes);
    return s;
}

/* Tolerances as in tokens_test.c. */
static void check_net(const recurrent_net *expected)
{
    const samples s = samples_of(&expected->task, (size_t)expected->samples);
    float *values[32], *gradients[32];
    tutti_nn_param p[32];
    tutti_error err = { 0 };
    double loss, overall = 0;
    int64_t correct;
    tutti_nn *nn;
    int count;

    assert_int_equal(tutti_nn_params(expected->model, &expected->task, p, 32, &count, NULL), TUTTI_OK);
    assert_int_equal(count, expected->count);
    for (int k = 0; k < count; k++) {
        values[k] = calloc(p[k].count, sizeof(float));
        gradients[k] = calloc(p[k].count, sizeof(float));
        fill(&p[k], k, values[k]);
        overall += pow(expected->tensors[k].norm, 2);
    }
    overall = sqrt(overall);
    if (tutti_nn_open(&nn, expected->model, &expected->task,
                      &(tutti_nn_options){ .batch = expected->samples }, &err) != TUTTI_OK ||
        (expected->task.context > 0
             ? tutti_nn_pass_tokens(
                   nn,
                   &(tutti_nn_samples){
                       .count = expected->samples, .tokens = s.tokens, .next = s.next },
                   &(tutti_nn_step){ (double)expected->samples, false, false,
                                     (const float *const *)values, gradients, NULL },
                   &loss, &err)
             : tutti_nn_pass(
                   nn,
                   &(tutti_nn_samples){ .count = expected->samples, .x = s.x, .labels = s.labels },
                   &(tutti_nn_step){ (double)expected->samples, false, false,
                                     (const float *const *)values, gradients, NULL },
                   &loss, &err)) != TUTTI_OK)
        fail_msg("%s", err.text);
    near(expected->model, "pass", "loss", loss, expected->loss, 1e-5 * expected->loss);
    for (int k = 0; k < count; k++) {
        const recurrent_tensor *t = &expected->tensors[k];
        const size_t m = p[k].count, places[] = { 0, m / 3, m / 2, m - 1 };
        const double tolerance = 2e-5 * t->norm + 2e-7 * overall;
        double sum = 0, square = 0;

        assert_string_equal(p[k].name, t->name);
        assert_int_equal(m, t->count);
        for (size_t i = 0; i < m; i++) {
            sum += (double)gradients[k][i];
            square += (double)gradients[k][i] * (double)gradients[k][i];
        }
        near(expected->model, t->name, "norm", sqrt(square), t->norm, tolerance);
        near(expected->model, t->name, "sum", sum, t->sum, tolerance * sqrt((double)m));
        for (int i = 0; i < 4; i++)
            near(expected->model, t->name, "an element", (double)gradients[k][places[i]], t->at[i], tolerance);
    }
    assert_int_equal(
        expected->task.context > 0
            ? tutti_nn_evaluate_tokens(nn,
                                       &(tutti_nn_samples){ .count = expected->samples,
                                                            .tokens = s.tokens,
                                                            .next = s.next },
                                       (const float *const *)values, &loss, &correct, NULL)
            : tutti_nn_evaluate(
                  nn,
                  &(tutti_nn_samples){ .count = expected->samples, .x = s.x, .labels = s.labels },
                  (const float *const *)values, &loss, &correct, NULL),
        TUTTI_OK);
    near(expected->model, "evaluation", "loss", loss, expected->loss, 1e-5 * expected->loss);
    assert_int_equal(correct, expected->correct);
    tutti_nn_close(nn);
    for (int k = 0; k < count; k++) {
        free(values[k]);
        free(gradients[k]);
    }
    free(s.tokens);
    free(s.next);
    free(s.x);
    free(s.labels);
}

static void losses_and_gradients_match_pytorch(void **state)
{
    (void)state;
    for (size_t v = 0; v < TUTTI_LENGTH(recurrent_nets); v++)
        check_net(&recurrent_nets[v]);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(losses_and_gradients_match_pytorch) };
    return cmocka_run_group_tests_name("nn/recurrent_vectors", tests, NULL, NULL);
}
