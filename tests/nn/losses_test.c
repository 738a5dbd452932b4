/* Goal: tutti_nn_losses gives each sample's own loss: of every kind of network and backend, in
   passes of several blocks. Method: they sum to loss_sum; each is the loss_sum of a pass over that
   sample alone, where a sample does not depend on its block (batch norms); what is not asked for is
   not written, and no other bit of a pass depends on the question. */
#include "kinds.h"

static void per_sample_losses_match_single_sample_passes(void **state)
{
    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(kinds); c++) {
        static tutti_nn_param params[MOST];
        float *values[MOST], *gradients[MOST], *before[MOST], losses[N + 1];
        samples s = samples_of(&kinds[c].task);
        tutti_error err = { 0 };
        tutti_nn *nn;
        double sum, added = 0;
        int count;

        if (tutti_nn_params(kinds[c].model, &s.task, params, MOST, &count, &err) != TUTTI_OK || count > MOST)
            fail_msg("%s: %s", kinds[c].model, err.text);
        for (int k = 0; k < count; k++) {
            values[k] = calloc(params[k].count, sizeof(float));
            gradients[k] = calloc(params[k].count, sizeof(float));
            before[k] = calloc(params[k].count, sizeof(float));
            tutti_nn_initialise(&params[k], 2 * params[k].unit + (params[k].dims == 1), 5, values[k]);
        }
        if (tutti_nn_open(&nn, kinds[c].model, &s.task,
                          &(tutti_nn_options){ .backend = kinds[c].backend, .batch = N }, &err) != TUTTI_OK)
            fail_msg("%s: %s", kinds[c].model, err.text);
        sum = pass_over(nn, &s, 0, N, values, before, NULL);
        for (int i = 0; i <= N; i++)
            losses[i] = -7;
        tutti_nn_losses(nn, losses);
        assert_true(pass_over(nn, &s, 0, N, values, gradients, NULL) == sum);
        assert_true(losses[N] == -7);
        for (int k = 0; k < count; k++)
            assert_memory_equal(gradients[k], before[k], params[k].count * sizeof(float));
        tutti_nn_losses(nn, NULL);
        for (int i = 0; i < N; i++) {
            const float told = losses[i];
            added += (double)told;
            if (i % 43 != 0 || kinds[c].normed)
                continue;
            const double alone = pass_over(nn, &s, (size_t)i, 1, values, gradients, NULL);
            if (!(fabs((double)told - alone) <= 1e-5 * (1 + fabs(alone))))
                fail_msg("%s: the loss of sample %d is %g, and %g alone", kinds[c].model, i, (double)told, alone);
            assert_true(losses[i] == told); /* those of this pass were not asked for */
        }
        if (!(fabs(added - sum) <= 1e-6 * (1 + fabs(sum))))
            fail_msg("%s: losses sum to %.9g, not to %.9g", kinds[c].model, added, sum);
        tutti_nn_close(nn);
        for (int k = 0; k < count; k++) {
            free(values[k]);
            free(gradients[k]);
            free(before[k]);
        }
        samples_free(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(per_sample_losses_match_single_sample_passes) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
