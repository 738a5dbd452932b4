/* Networks of tokens against PyTorch: tokens.py says how tokens.h is made and by which formulas
   parameters and tokens are filled. */
#include "nn/sequence.h"
#include "nn_test.h"
#include "tokens.h"

static void near(const char *model, const char *name, const char *what, double got, double expected, double tolerance)
{
    if (!(fabs(got - expected) <= tolerance))
        fail_msg("%s, %s: %s is %.9g, PyTorch has %.9g", model, name, what, got, expected);
}

static void fill(const tutti_nn_param *p, int k, float *values)
{
    const bool table = strcmp(p->name, "e.weight") == 0 || strcmp(p->name, "pe.weight") == 0;

    for (size_t i = 0; i < p->count; i++) {
        const double wave = sin(0.37 * (double)i + 1.3 * k);
        values[i] = (float)(p->start > 0   ? 1 + wave / 4
                            : p->dims == 1 ? wave / 4
                            : table        ? wave
                                           : 2 * wave / sqrt((double)p->cols));
    }
}

/* Tolerances: 1e-5 of the loss; 2e-5 of a tensor's norm for the norm and single elements and, for
   a sum of n values, of norm sqrt(n), its largest; plus 2e-7 of all tensors' norm, which is what
   remains of sums that cancel: the slope of a key's bias is exactly 0. */
static void losses_and_gradients_match_pytorch(void **state)
{
    (void)state;
    for (size_t v = 0; v < TUTTI_LENGTH(token_nets); v++) {
        const token_net *expected = &token_nets[v];
        const tutti_nn_task task = { .classes = expected->vocabulary, .context = expected->context };
        const size_t n = (size_t)(expected->samples * expected->context);
        uint32_t *tokens = calloc(n, sizeof *tokens), *next = calloc(n, sizeof *next);
        float *values[32], *gradients[32];
        tutti_nn_param p[32];
        tutti_error err = { 0 };
        double loss, overall = 0;
        int64_t correct;
        tutti_nn *nn;
        int count;

        assert_int_equal(tutti_nn_params(expected->model, &task, p, 32, &count, NULL), TUTTI_OK);
        assert_int_equal(count, expected->count);
        for (int k = 0; k < count; k++) {
            values[k] = calloc(p[k].count, sizeof(float));
            gradients[k] = calloc(p[k].count, sizeof(float));
            fill(&p[k], k, values[k]);
        }
        for (size_t i = 0; i < n; i++) {
            tokens[i] = (uint32_t)((7 * i * i + 3 * i + 1) % (size_t)expected->vocabulary);
            next[i] = (uint32_t)((5 * i + i * i + 2) % (size_t)expected->vocabulary);
        }
        if (tutti_nn_open(&nn, expected->model, &task,
                          &(tutti_nn_options){ .batch = expected->samples }, &err) != TUTTI_OK ||
            tutti_nn_pass_tokens(
                nn,
                &(tutti_nn_samples){ .count = expected->samples, .tokens = tokens, .next = next },
                &(tutti_nn_step){ (double)expected->samples, false, false,
                                  (const float *const *)values, gradients, NULL },
                &loss, &err) != TUTTI_OK)
            fail_msg("%s", err.text);
        near(expected->model, "pass", "loss", loss, expected->loss, 1e-5 * expected->loss);
        for (int k = 0; k < count; k++)
            overall += pow(expected->tensors[k].norm, 2);
        overall = sqrt(overall);
        for (int k = 0; k < count; k++) {
            const token_tensor *t = &expected->tensors[k];
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
            tutti_nn_evaluate_tokens(
                nn,
                &(tutti_nn_samples){ .count = expected->samples, .tokens = tokens, .next = next },
                (const float *const *)values, &loss, &correct, NULL),
            TUTTI_OK);
        near(expected->model, "evaluation", "loss", loss, expected->loss, 1e-5 * expected->loss);
        assert_int_equal(correct, expected->correct);
        tutti_nn_close(nn);
        for (int k = 0; k < count; k++) {
            free(values[k]);
            free(gradients[k]);
        }
        free(tokens);
        free(next);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(losses_and_gradients_match_pytorch) };
    return cmocka_run_group_tests_name("nn/tokens", tests, NULL, NULL);
}
