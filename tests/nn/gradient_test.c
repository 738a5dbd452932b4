/* The gradients: the reference backend against central differences of its own loss, the oneDNN
   backend against the reference, and what must agree bit for bit. */
#include "nn_test.h"
#include "sanitized.h"

/* Goal: every derivative of the reference is that of the function it computes. Method: its loss is
   a function of float parameters computed in double, so (L(w + h) - L(w - h)) / 2h has an error of
   h^2 from the cubic term and 1e-16 L / h from rounding: with h = 2^-16 both stay below 1e-9; the
   gradient itself is rounded to float. Some places of every tensor are taken. A place where the
   step crosses a kink of ReLU or pooling would show; the seeds here have none. */
static void reference_gradients_match_central_differences(void **state)
{
    (void)state;
    for (size_t s = 0; s < TUTTI_LENGTH(sample_nets); s++) {
        const nn_net net = net_from(&sample_nets[s]);
        const int64_t n = 4;
        const tutti_rng rng = { .seed = s, .stream = 77 };
        tutti_nn *nn = open_net(&net, "reference", n);
        example e = example_of(&net, n, 100 + s);
        float *gradients[PARAMS_MAX];

        run_pass(nn, &e, n, false, NULL);
        for (int k = 0; k < e.count; k++) {
            gradients[k] = calloc(e.params[k].count, sizeof(float));
            memcpy(gradients[k], e.gradients[k], e.params[k].count * sizeof(float));
        }
        for (int k = 0; k < e.count; k++) {
            double norm = 0;
            for (size_t i = 0; i < e.params[k].count; i++)
                norm = fmax(norm, fabs((double)gradients[k][i]));
            for (uint64_t draw = 0; draw < UNLESS_SANITIZED(12, 2); draw++) {
                const size_t i = (size_t)(tutti_random(rng, draw * 64 + (uint64_t)k) % e.params[k].count);
                const float kept = e.values[k][i], above = kept + 0x1p-16f, below = kept - 0x1p-16f;
                double up, down, slope;
                e.values[k][i] = above;
                up = run_pass(nn, &e, n, false, NULL);
                e.values[k][i] = below;
                down = run_pass(nn, &e, n, false, NULL);
                e.values[k][i] = kept;
                slope = (up - down) / ((double)above - (double)below) / (double)n;
                if (fabs(slope - (double)gradients[k][i]) > 1e-6 * norm + 1e-9)
                    fail_msg("%s: %s[%zu]: slope %.9g, gradient %.9g", sample_nets[s].name, e.params[k].name, i, slope,
                             (double)gradients[k][i]);
            }
        }
        for (int k = 0; k < e.count; k++)
            free(gradients[k]);
        example_free(&e);
        tutti_nn_close(nn);
    }
}

/* One pass of each backend on the same example; `at` for messages. */
static void compare(tutti_nn *fast, tutti_nn *slow, example *e, int64_t n, const char *at)
{
    example r = example_of(&e->net, 0, 1);
    double loss, expected;

    for (int k = 0; k < e->count; k++)
        memcpy(r.values[k], e->values[k], e->params[k].count * sizeof(float));
    loss = run_pass(fast, e, n, false, NULL);
    {
        tutti_error err = { 0 };
        if (tutti_nn_pass(slow, &(tutti_nn_samples){ .count = n, .x = e->x, .labels = e->labels },
                          &(tutti_nn_step){ (double)n, false, false, (const float *const *)r.values,
                                            r.gradients, NULL },
                          &expected, &err) != TUTTI_OK)
            fail_msg("%s", err.text);
    }
    if (!(fabs(loss - expected) <= 1e-6 * fabs(expected)))
        fail_msg("%s, %d samples: loss %.9g, reference %.9g", at, (int)n, loss, expected);
    for (int k = 0; k < e->count; k++) {
        const double d = distance(e->gradients[k], r.gradients[k], e->params[k].count);
        if (!(d <= 1e-5))
            fail_msg("%s, %d samples: %s differs by %.3g of its norm", at, (int)n, e->params[k].name, d);
    }
    example_free(&r);
}

static void onednn_matches_the_reference_on_all_sample_networks(void **state)
{
    static const int64_t sizes[] = { 64, 1, 7, 8, 9, 63, 16, 2, 64 };

    (void)state;
    for (size_t s = 0; s < TUTTI_LENGTH(sample_nets); s++) {
        const nn_net net = net_from(&sample_nets[s]);
        tutti_nn *fast = open_net(&net, NULL, 64), *slow = open_net(&net, "reference", 64);
        example e = example_of(&net, 64, 200 + s);
        for (size_t i = 0; i < TUTTI_LENGTH(sizes); i++)
            compare(fast, slow, &e, sizes[i], sample_nets[s].name);
        example_free(&e);
        tutti_nn_close(fast);
        tutti_nn_close(slow);
    }
}

static void onednn_matches_the_reference_on_random_networks(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 20; seed++) {
        const tutti_rng rng = { .seed = seed, .stream = 5 };
        const tutti_nn_task task = { 1 + (int)(tutti_random(rng, 0) % 5), 8 + (int)(tutti_random(rng, 1) % 9),
                                     8 + (int)(tutti_random(rng, 2) % 9), 2 + (int)(tutti_random(rng, 3) % 12) };
        const bool pool = tutti_random(rng, 4) % 2 == 1, relu = tutti_random(rng, 5) % 2 == 1;
        const int64_t batch = 1 + (int64_t)(tutti_random(rng, 6) % 40);
        tutti_layer layers[8];
        tutti_error err = { 0 };
        char at[64];
        nn_net net;
        int n = 0;

        layers[n++] = (tutti_layer)CONV(1 + (int)(tutti_random(rng, 7) % 40), 1 + (int)(tutti_random(rng, 8) % 5));
        if (relu)
            layers[n++] = (tutti_layer)RELU;
        if (pool)
            layers[n++] = (tutti_layer)POOL(2 + (int)(tutti_random(rng, 9) % 2));
        layers[n++] = (tutti_layer)CONV(1 + (int)(tutti_random(rng, 10) % 20), 1);
        layers[n++] = (tutti_layer)FLATTEN;
        layers[n++] = (tutti_layer)LINEAR(task.classes);
        if (tutti_nn_net_build(&net, layers, n, &task, &err) != TUTTI_OK)
            fail_msg("seed %d: %s", (int)seed, err.text);
        {
            tutti_nn *fast = open_net(&net, "onednn", batch), *slow = open_net(&net, "reference", batch);
            example e = example_of(&net, batch, 300 + seed);
            snprintf(at, sizeof at, "seed %d", (int)seed);
            compare(fast, slow, &e, batch, at);
            example_free(&e);
            tutti_nn_close(fast);
            tutti_nn_close(slow);
        }
    }
}

static void real_cnn_and_mlp_agree_with_the_reference(void **state)
{
    static const char *const models[] = { "mlp(hidden=128)", "cnn" };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(models); i++) {
        const nn_net net = net_of(models[i], 1, 28, 28, 10);
        tutti_nn *fast = open_net(&net, NULL, 11), *slow = open_net(&net, "reference", 11);
        example e = example_of(&net, 11, 9);
        compare(fast, slow, &e, 11, models[i]);
        example_free(&e);
        tutti_nn_close(fast);
        tutti_nn_close(slow);
    }
}

/* The sum of two passes in one buffer is rounded once more than each pass: 1e-6 of the norm is far
   above that and far below a missing tile. */
static void adding_gives_the_sum_of_two_passes(void **state)
{
    static const char *const backends[] = { "onednn", "reference" };

    (void)state;
    for (size_t s = 0; s < TUTTI_LENGTH(sample_nets) * 2; s++) {
        const nn_net net = net_from(&sample_nets[s / 2]);
        tutti_nn *nn = open_net(&net, backends[s % 2], 21);
        example a = example_of(&net, 21, 1), b = example_of(&net, 13, 2), both = example_of(&net, 0, 3);
        for (int k = 0; k < a.count; k++) {
            memcpy(b.values[k], a.values[k], a.params[k].count * sizeof(float));
            free(both.gradients[k]);
            both.gradients[k] = calloc(a.params[k].count, sizeof(float));
        }
        run_pass(nn, &a, 21, false, NULL);
        run_pass(nn, &b, 13, false, NULL);
        for (int k = 0; k < a.count; k++)
            for (size_t i = 0; i < a.params[k].count; i++)
                both.gradients[k][i] = a.gradients[k][i] + b.gradients[k][i];
        run_pass(nn, &a, 21, false, NULL);
        for (int k = 0; k < a.count; k++)
            memcpy(b.gradients[k], a.gradients[k], a.params[k].count * sizeof(float));
        run_pass(nn, &b, 13, true, NULL);
        for (int k = 0; k < a.count; k++)
            if (distance(b.gradients[k], both.gradients[k], a.params[k].count) > 1e-6)
                fail_msg("%s on %s: %s", sample_nets[s / 2].name, backends[s % 2], a.params[k].name);
        example_free(&a);
        example_free(&b);
        example_free(&both);
        tutti_nn_close(nn);
    }
}

static float **copy_gradients(const example *e)
{
    float **copy = calloc((size_t)e->count, sizeof *copy);

    for (int k = 0; k < e->count; k++) {
        copy[k] = malloc(e->params[k].count * sizeof(float));
        memcpy(copy[k], e->gradients[k], e->params[k].count * sizeof(float));
    }
    return copy;
}

static void assert_same_bits(const example *e, float **copy)
{
    for (int k = 0; k < e->count; k++)
        assert_memory_equal(copy[k], e->gradients[k], e->params[k].count * sizeof(float));
}

static void free_copy(const example *e, float **copy)
{
    for (int k = 0; k < e->count; k++)
        free(copy[k]);
    free(copy);
}

static void the_same_call_gives_the_same_bits(void **state)
{
    const nn_net net = net_of("cnn", 1, 14, 14, 10);
    tutti_nn *a = open_net(&net, NULL, 21), *b = open_net(&net, NULL, 21);
    example e = example_of(&net, 21, 4);
    const double loss = run_pass(a, &e, 21, false, NULL);
    float **first = copy_gradients(&e);

    (void)state;
    for (int times = 0; times < 3; times++) {
        assert_true(run_pass(a, &e, 21, false, NULL) == loss);
        assert_same_bits(&e, first);
        run_pass(a, &e, 5 + times, false, NULL); /* a pass of another size between leaves no trace */
        assert_true(run_pass(b, &e, 21, false, NULL) == loss);
        assert_same_bits(&e, first);
    }
    free_copy(&e, first);
    example_free(&e);
    tutti_nn_close(a);
    tutti_nn_close(b);
}

/* More sizes than plans are kept, so that some are dropped and made again. */
static void plans_that_were_dropped_come_back_with_the_same_bits(void **state)
{
    enum { SIZES = 20 };
    const nn_net net = net_of("cnn", 1, 10, 10, 3);
    tutti_nn *nn = open_net(&net, NULL, SIZES);
    example e = example_of(&net, SIZES, 4);
    float **first[SIZES + 1];
    double loss[SIZES + 1];

    (void)state;
    for (int n = 1; n <= SIZES; n++) {
        loss[n] = run_pass(nn, &e, n, false, NULL);
        first[n] = copy_gradients(&e);
    }
    for (int n = 1; n <= SIZES; n++) {
        const int size = 1 + n * 7 % SIZES;
        assert_true(run_pass(nn, &e, size, false, NULL) == loss[size]);
        assert_same_bits(&e, first[size]);
    }
    for (int n = 1; n <= SIZES; n++)
        free_copy(&e, first[n]);
    example_free(&e);
    tutti_nn_close(nn);
}

static void same_weights_passes_stay_correct_after_weight_changes(void **state)
{
    const nn_net net = net_of("cnn", 1, 12, 12, 5);
    tutti_nn *nn = open_net(&net, NULL, 11);
    example e = example_of(&net, 11, 4);
    const float *const *values = (const float *const *)e.values;
    double loss = run_pass(nn, &e, 11, false, NULL), again, other;
    float **first = copy_gradients(&e);
    const int k = nn_weight(&net, 1);
    int64_t correct;

    (void)state;
    assert_int_equal(
        tutti_nn_pass(nn, &(tutti_nn_samples){ .count = 11, .x = e.x, .labels = e.labels },
                      &(tutti_nn_step){ 11, false, true, values, e.gradients, NULL }, &again, NULL),
        TUTTI_OK);
    assert_true(again == loss);
    assert_same_bits(&e, first);

    e.values[k][5] += 1; /* an evaluation with other values, then the old ones under same_weights */
    assert_int_equal(
        tutti_nn_evaluate(nn, &(tutti_nn_samples){ .count = 11, .x = e.x, .labels = e.labels },
                          values, &other, &correct, NULL),
        TUTTI_OK);
    assert_true(other != loss);
    e.values[k][5] -= 1;
    assert_int_equal(
        tutti_nn_pass(nn, &(tutti_nn_samples){ .count = 11, .x = e.x, .labels = e.labels },
                      &(tutti_nn_step){ 11, false, true, values, e.gradients, NULL }, &again, NULL),
        TUTTI_OK);
    assert_true(fabs(again - loss) <= 1e-6 * loss);

    e.values[k][5] += 1;
    assert_int_equal(tutti_nn_pass(nn,
                                   &(tutti_nn_samples){ .count = 11, .x = e.x, .labels = e.labels },
                                   &(tutti_nn_step){ 11, false, false, values, e.gradients, NULL },
                                   &other, NULL),
                     TUTTI_OK);
    assert_true(fabs(other - loss) > 1e-4 * loss);

    /* Values change, a pass without samples declares that, the next one relies on it. */
    e.values[k][5] += 1;
    assert_int_equal(
        tutti_nn_pass(nn, &(tutti_nn_samples){ .count = 0, .x = e.x, .labels = e.labels },
                      &(tutti_nn_step){ 11, true, false, values, e.gradients, NULL }, &again, NULL),
        TUTTI_OK);
    assert_int_equal(
        tutti_nn_pass(nn, &(tutti_nn_samples){ .count = 11, .x = e.x, .labels = e.labels },
                      &(tutti_nn_step){ 11, false, true, values, e.gradients, NULL }, &again, NULL),
        TUTTI_OK);
    assert_true(again != other);
    free_copy(&e, first);
    example_free(&e);
    tutti_nn_close(nn);
}

static void loss_does_not_overflow_and_nan_propagates(void **state)
{
    static const char *const backends[] = { "onednn", "reference" };
    const nn_net net = net_from(&sample_nets[0]);

    (void)state;
    for (int i = 0; i < 2; i++) {
        tutti_nn *nn = open_net(&net, backends[i], 3);
        example e = example_of(&net, 3, 4);
        int64_t correct;
        double loss;
        for (size_t j = 0; j < e.params[1].count; j++)
            e.values[1][j] = j == 2 ? 3e4f : -3e4f;
        memset(e.labels, 2, 3);
        assert_true(run_pass(nn, &e, 3, false, NULL) == 0);
        memset(e.labels, 1, 3);
        loss = run_pass(nn, &e, 3, false, NULL);
        assert_true(fabs(loss - 3 * 6e4) < 100);
        e.values[1][0] = NAN;
        assert_true(isnan(run_pass(nn, &e, 3, false, NULL)));
        memset(e.labels, 0, 3);
        assert_int_equal(
            tutti_nn_evaluate(nn, &(tutti_nn_samples){ .count = 3, .x = e.x, .labels = e.labels },
                              (const float *const *)e.values, &loss, &correct, NULL),
            TUTTI_OK);
        assert_int_equal(correct, 0);
        assert_true(isnan(loss));
        example_free(&e);
        tutti_nn_close(nn);
    }
}

/* With all weights 0 every class is as likely: the loss is
   log(classes), the guess the lowest class. */
static void ties_go_to_the_lowest_class(void **state)
{
    static const char *const backends[] = { "onednn", "reference" };
    const nn_net net = net_of("cnn", 1, 10, 10, 7);

    (void)state;
    for (int i = 0; i < 2; i++) {
        tutti_nn *nn = open_net(&net, backends[i], 3);
        example e = example_of(&net, 300, 4);
        int64_t correct, zeros = 0;
        double loss;
        for (int k = 0; k < e.count; k++)
            memset(e.values[k], 0, e.params[k].count * sizeof(float));
        for (int s = 0; s < 300; s++)
            zeros += e.labels[s] == 0;
        assert_int_equal(
            tutti_nn_evaluate(nn, &(tutti_nn_samples){ .count = 300, .x = e.x, .labels = e.labels },
                              (const float *const *)e.values, &loss, &correct, NULL),
            TUTTI_OK);
        assert_int_equal(correct, zeros);
        assert_true(fabs(loss - 300 * log(7)) < 1e-9);
        example_free(&e);
        tutti_nn_close(nn);
    }
}

/* A 2x2 convolution that copies its upper left pixel, over a picture whose two largest copies are
   equal but have different neighbours: the weights' gradient shows which of the two was taken.
   PyTorch takes the first, row by row. */
static void pooling_takes_the_first_of_equal_values(void **state)
{
    static const char *const backends[] = { "onednn", "reference" };
    static const sample_net copy = { "copy", { 1, 3, 3, 2 }, 5, { CONV(1, 2), RELU, POOL(2), FLATTEN, LINEAR(2) } };
    static const float pictures[2][9] = { { 1, 1, 5, 0, 0, 0, 0, 0, 0 }, { 0, 1, 4, 1, 0.5f, 0, 6, 0, 0 } };
    static const float expected[2][4] = { { 1, 1, 0, 0 }, { 1, 4, 0.5f, 0 } };
    const nn_net net = net_from(&copy);

    (void)state;
    for (int i = 0; i < 4; i++) {
        tutti_nn *nn = open_net(&net, backends[i % 2], 1);
        example e = example_of(&net, 1, 4);
        const float *g = e.gradients[2];
        memcpy(e.x, pictures[i / 2], sizeof pictures[0]);
        memset(e.values[2], 0, 4 * sizeof(float));
        e.values[2][0] = 1;
        e.values[3][0] = 0;
        run_pass(nn, &e, 1, false, NULL);
        assert_true(g[0] != 0);
        for (int j = 0; j < 4; j++)
            assert_true(fabs((double)g[j] * (double)expected[i / 2][0] - (double)g[0] * (double)expected[i / 2][j]) <=
                        1e-6 * fabs((double)g[0]));
        example_free(&e);
        tutti_nn_close(nn);
    }
}

static void evaluation_agrees_with_the_reference(void **state)
{
    static const char *const models[] = { "mlp(hidden=40)", "cnn" };
    static const int64_t sizes[] = { 0, 1, 5, 8, 143, 144, 145, 300 };

    (void)state;
    for (size_t m = 0; m < TUTTI_LENGTH(models); m++) {
        const nn_net net = net_of(models[m], 1, 12, 12, 5);
        tutti_nn *fast = open_net(&net, NULL, 3), *slow = open_net(&net, "reference", 3);
        example e = example_of(&net, 300, 4);
        for (size_t i = 0; i < TUTTI_LENGTH(sizes); i++) {
            double loss, expected;
            int64_t correct, right;
            assert_int_equal(
                tutti_nn_evaluate(
                    fast, &(tutti_nn_samples){ .count = sizes[i], .x = e.x, .labels = e.labels },
                    (const float *const *)e.values, &loss, &correct, NULL),
                TUTTI_OK);
            assert_int_equal(
                tutti_nn_evaluate(
                    slow, &(tutti_nn_samples){ .count = sizes[i], .x = e.x, .labels = e.labels },
                    (const float *const *)e.values, &expected, &right, NULL),
                TUTTI_OK);
            assert_true(fabs(loss - expected) <= 1e-6 * expected);
            assert_int_equal(correct, right);
        }
        example_free(&e);
        tutti_nn_close(fast);
        tutti_nn_close(slow);
    }
}

/* Goal: a sample's loss has the same bits whatever stands round it. Method: the losses of single
   evaluations, added in order within each run as the backend does, give the sum of the whole
   exactly. Widths that fill no block and inputs longer than a kernel's. */
static void sample_losses_do_not_depend_on_evaluation_batch_size(void **state)
{
    static const struct {
        const char *model;
        int side;
    } cases[] = { { "mlp(hidden=40)", 12 }, { "mlp(hidden=64)", 28 }, { "cnn", 12 } };
    static const int64_t sizes[] = { 3, 8, 100, 143, 144, 145, 300 };
    const int64_t run = tutti_nn_onednn.eval_samples;

    (void)state;
    for (size_t m = 0; m < TUTTI_LENGTH(cases); m++) {
        const nn_net net = net_of(cases[m].model, 1, cases[m].side, cases[m].side, 5);
        tutti_nn *nn = open_net(&net, NULL, 3);
        example e = example_of(&net, 300, 4);
        double single[300], loss;
        int64_t correct;
        for (int i = 0; i < 300; i++)
            assert_int_equal(
                tutti_nn_evaluate(nn,
                                  &(tutti_nn_samples){ .count = 1,
                                                       .x = e.x + (size_t)i * sample_values(&net),
                                                       .labels = e.labels + i },
                                  (const float *const *)e.values, &single[i], &correct, NULL),
                TUTTI_OK);
        for (size_t s = 0; s < TUTTI_LENGTH(sizes); s++) {
            double total = 0;
            for (int64_t first = 0; first < sizes[s]; first += run) {
                double sum = 0;
                for (int64_t i = first; i < first + run && i < sizes[s]; i++)
                    sum += single[i];
                total += sum;
            }
            assert_int_equal(
                tutti_nn_evaluate(
                    nn, &(tutti_nn_samples){ .count = sizes[s], .x = e.x, .labels = e.labels },
                    (const float *const *)e.values, &loss, &correct, NULL),
                TUTTI_OK);
            if (loss != total)
                fail_msg("%s, %d samples: %.17g, one by one %.17g", cases[m].model, (int)sizes[s], loss, total);
        }
        example_free(&e);
        tutti_nn_close(nn);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reference_gradients_match_central_differences),
        cmocka_unit_test(onednn_matches_the_reference_on_all_sample_networks),
        cmocka_unit_test(onednn_matches_the_reference_on_random_networks),
        cmocka_unit_test(real_cnn_and_mlp_agree_with_the_reference),
        cmocka_unit_test(adding_gives_the_sum_of_two_passes),
        cmocka_unit_test(the_same_call_gives_the_same_bits),
        cmocka_unit_test(plans_that_were_dropped_come_back_with_the_same_bits),
        cmocka_unit_test(same_weights_passes_stay_correct_after_weight_changes),
        cmocka_unit_test(loss_does_not_overflow_and_nan_propagates),
        cmocka_unit_test(ties_go_to_the_lowest_class),
        cmocka_unit_test(pooling_takes_the_first_of_equal_values),
        cmocka_unit_test(evaluation_agrees_with_the_reference),
        cmocka_unit_test(sample_losses_do_not_depend_on_evaluation_batch_size),
    };
    return cmocka_run_group_tests_name("nn/gradient", tests, NULL, NULL);
}
