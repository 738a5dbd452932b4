/* Models and their parameters: tables, names, shapes, refusals, the initial values. */
#include "nn_test.h"

static void check_param(const tutti_nn_param *p, const char *name, int unit, int dims, size_t a, size_t b, size_t c,
                        size_t d, size_t fan_in)
{
    assert_string_equal(p->name, name);
    assert_int_equal(p->unit, unit);
    assert_int_equal(p->dims, dims);
    assert_int_equal(p->dim[0], a);
    assert_int_equal(p->dim[1], b);
    assert_int_equal(p->dim[2], c);
    assert_int_equal(p->dim[3], d);
    assert_int_equal(p->fan_in, fan_in);
    assert_int_equal(p->rows, a);
    assert_int_equal(p->cols, dims == 1 ? 1 : fan_in);
    assert_int_equal(p->count, p->rows * p->cols);
}

static size_t total(const tutti_nn_param *p, int count)
{
    size_t sum = 0;

    for (int k = 0; k < count; k++)
        sum += p[k].count;
    return sum;
}

static const tutti_nn_task mnist = { 1, 28, 28, 10 };

static void mlp_has_the_parameters_of_pytorch_in_ready_order(void **state)
{
    tutti_nn_param p[6];
    int count;

    (void)state;
    assert_int_equal(tutti_nn_params("mlp", &mnist, p, 6, &count, NULL), TUTTI_OK);
    assert_int_equal(count, 6);
    assert_int_equal(total(p, 6), 1863690);
    check_param(&p[0], "4.weight", 2, 2, 10, 1024, 0, 0, 1024);
    check_param(&p[1], "4.bias", 2, 1, 10, 0, 0, 0, 1024);
    check_param(&p[2], "2.weight", 1, 2, 1024, 1024, 0, 0, 1024);
    check_param(&p[3], "2.bias", 1, 1, 1024, 0, 0, 0, 1024);
    check_param(&p[4], "0.weight", 0, 2, 1024, 784, 0, 0, 784);
    check_param(&p[5], "0.bias", 0, 1, 1024, 0, 0, 0, 784);
}

static void cnn_has_the_parameters_of_pytorch_in_ready_order(void **state)
{
    tutti_nn_param p[8];
    int count;

    (void)state;
    assert_int_equal(tutti_nn_params("cnn", &mnist, p, 8, &count, NULL), TUTTI_OK);
    assert_int_equal(count, 8);
    assert_int_equal(total(p, 8), 225034);
    check_param(&p[0], "9.weight", 3, 2, 10, 128, 0, 0, 128);
    check_param(&p[1], "9.bias", 3, 1, 10, 0, 0, 0, 128);
    check_param(&p[2], "7.weight", 2, 2, 128, 1600, 0, 0, 1600);
    check_param(&p[3], "7.bias", 2, 1, 128, 0, 0, 0, 1600);
    check_param(&p[4], "3.weight", 1, 4, 64, 32, 3, 3, 288);
    check_param(&p[5], "3.bias", 1, 1, 64, 0, 0, 0, 288);
    check_param(&p[6], "0.weight", 0, 4, 32, 1, 3, 3, 9);
    check_param(&p[7], "0.bias", 0, 1, 32, 0, 0, 0, 9);
}

static void parameter_count_is_returned_for_any_array_size(void **state)
{
    tutti_nn_param p[3] = { { .name = "" }, { .name = "" }, { .name = "kept" } };
    int count;

    (void)state;
    assert_int_equal(tutti_nn_params("mlp(hidden=16)", &mnist, p, 2, &count, NULL), TUTTI_OK);
    assert_int_equal(count, 6);
    assert_string_equal(p[1].name, "4.bias");
    assert_string_equal(p[2].name, "kept");
    assert_int_equal(tutti_nn_params("cnn", &mnist, NULL, 0, &count, NULL), TUTTI_OK);
    assert_int_equal(count, 8);
}

static void an_option_changes_the_width(void **state)
{
    tutti_nn_param p[6];
    int count;

    (void)state;
    assert_int_equal(tutti_nn_params("mlp(16)", &mnist, p, 6, &count, NULL), TUTTI_OK);
    assert_int_equal(total(p, 6), 784 * 16 + 16 + 16 * 16 + 16 + 16 * 10 + 10);
}

static void check_refusal(const char *model, tutti_nn_task task, const char *sentence)
{
    tutti_error err = { 0 };
    int count = 99;

    assert_int_equal(tutti_nn_params(model, &task, NULL, 0, &count, &err), TUTTI_ERR_USAGE);
    assert_int_equal(err.status, TUTTI_ERR_USAGE);
    assert_int_equal(count, 0);
    if (strstr(err.text, sentence) == NULL)
        fail_msg("'%s' does not contain '%s'", err.text, sentence);
}

static void mismatched_models_and_tasks_are_rejected_with_a_message(void **state)
{
    (void)state;
    check_refusal("cnn", (tutti_nn_task){ 1, 4, 4, 10 }, "cnn needs images of at least 10x10; this task has 4x4");
    check_refusal("cnn", (tutti_nn_task){ 1, 28, 9, 10 }, "cnn needs images of at least 10x10; this task has 28x9");
    check_refusal("cmn", mnist, "there is no model 'cmn'; did you mean 'cnn'?");
    check_refusal("alexnet", mnist, "models are mlp, cnn, quadratic, logistic, gpt, wordlm, blstm, resnet, vgg");
    check_refusal("mlp(hidden=0)", mnist, "hidden");
    check_refusal("mlp(hidden=65537)", mnist, "65536");
    check_refusal("mlp(width=3)", mnist, "model 'mlp'");
    check_refusal("cnn(3)", mnist, "model 'cnn'");
    check_refusal("mlp(", mnist, "model 'mlp('");
    check_refusal("mlp", (tutti_nn_task){ 0, 28, 28, 10 }, "0 x 28 x 28");
    check_refusal("mlp", (tutti_nn_task){ 1, -1, 28, 10 }, "1 x -1 x 28");
    check_refusal("mlp", (tutti_nn_task){ 16384, 16384, 16384, 10 }, "more than 268435456 are not supported");
    check_refusal("mlp", (tutti_nn_task){ 1, 28, 28, 1 },
                  "a task of 1 classes: labels are bytes, so it must be from 2 to 256");
    check_refusal("mlp", (tutti_nn_task){ 1, 28, 28, 257 }, "257 classes");
    check_refusal("mlp(hidden=65536)", (tutti_nn_task){ 1, 4096, 4096, 10 },
                  "tensors of more than 268435456 values are not supported");
}

static void smallest_cnn_images_reduce_to_one_pixel(void **state)
{
    const nn_net net = net_of("cnn", 1, 10, 10, 10);

    (void)state;
    assert_int_equal(net.units[1].out.height, 1);
    assert_int_equal(net.units[1].out.width, 1);
    assert_int_equal(net.units[2].fan_in, 64);
}

/* ---- lists of layers that no model makes today ---- */
static void check_list(const tutti_layer *layers, int count, const char *sentence)
{
    const tutti_nn_task task = { 1, 8, 8, 3 };
    tutti_error err = { 0 };
    nn_net net;

    assert_int_equal(tutti_nn_net_build(&net, layers, count, &task, &err), TUTTI_ERR_USAGE);
    if (strstr(err.text, sentence) == NULL)
        fail_msg("'%s' does not contain '%s'", err.text, sentence);
}

static void lists_of_layers_that_make_no_network_are_refused(void **state)
{
    static const tutti_layer relu_first[] = { RELU, LINEAR(3) }, twice[] = { LINEAR(4), RELU, RELU, LINEAR(3) },
                             pool_of_rows[] = { LINEAR(4), POOL(2), LINEAR(3) },
                             late_conv[] = { LINEAR(4), CONV(4, 1), LINEAR(3) },
                             flat_conv[] = { CONV(4, 3), FLATTEN, CONV(4, 1), LINEAR(3) },
                             flat_pool[] = { CONV(4, 3), FLATTEN, POOL(1), LINEAR(3) },
                             wide[] = { CONV(4, 9), LINEAR(3) }, wide_pool[] = { CONV(4, 3), POOL(7), LINEAR(3) },
                             no_end[] = { LINEAR(3), RELU }, classes[] = { LINEAR(4) }, none[] = { LINEAR(0) },
                             kind[] = { LINEAR(4), { (tutti_layer_kind)99, 1, 1 }, LINEAR(3) },
                             zero_kernel[] = { CONV(4, 0), LINEAR(3) },
                             zero_pool[] = { CONV(4, 3), POOL(0), LINEAR(3) };

    (void)state;
    check_list(relu_first, 2, "layer 0 (relu) has no linear or conv2d layer before it");
    check_list(twice, 4, "layer 2 (relu) follows another relu");
    check_list(pool_of_rows, 3, "layer 1 (maxpool2d) must follow a conv2d layer");
    check_list(late_conv, 3, "layer 1 (conv2d) comes after a linear layer");
    check_list(flat_conv, 4, "layer 2 (conv2d) comes after a flatten; it needs images");
    check_list(flat_pool, 4, "layer 2 (maxpool2d) comes after a flatten; it needs images");
    check_list(wide, 2, "layer 0 (conv2d): a window of 9x9 does not fit into images of 8x8");
    check_list(wide_pool, 3, "layer 1 (maxpool2d): a window of 7x7 does not fit into images of 6x6");
    check_list(no_end, 2, "ends in relu");
    check_list(classes, 1, "as many outputs as the task has classes (3); this one ends in linear with 4");
    check_list(none, 1, "layer 0 (linear) has 0 outputs");
    check_list(kind, 3, "layer 1 is of the unknown kind 99");
    check_list(zero_kernel, 2, "0x0");
    check_list(zero_pool, 3, "0x0");
    check_list(classes, 0, "a network of 0 layers");
    {
        tutti_layer many[33];
        for (size_t i = 0; i < TUTTI_LENGTH(many); i++)
            many[i] = (tutti_layer)LINEAR(3);
        check_list(many, 33, "a network of 33 layers");
    }
}

/* Goal: PyTorch's distribution: uniform in +-1/sqrt(fan_in). Method: bounds exactly; mean and
   variance of 802,816 draws within five standard errors: those of the mean are sigma/sqrt(n), of
   the variance of a uniform law sigma^2 sqrt(0.8/n). */
static void initial_values_are_uniform_within_inverse_root_fan_in(void **state)
{
    tutti_nn_param p[6];
    float *w;
    double bound, mean = 0, square = 0, variance, low = 0, high = 0;
    int count;

    (void)state;
    assert_int_equal(tutti_nn_params("mlp", &mnist, p, 6, &count, NULL), TUTTI_OK);
    bound = 1 / sqrt((double)p[4].fan_in);
    w = calloc(p[4].count, sizeof *w);
    tutti_nn_initialise(&p[4], 0, 42, w);
    for (size_t i = 0; i < p[4].count; i++) {
        assert_true(fabs((double)w[i]) <= bound * (1 + 1e-7));
        mean += (double)w[i];
        square += (double)w[i] * (double)w[i];
        low = fmin(low, (double)w[i]);
        high = fmax(high, (double)w[i]);
    }
    mean /= (double)p[4].count;
    variance = square / (double)p[4].count - mean * mean;
    assert_true(fabs(mean) < 5 * bound / sqrt(3.0 * (double)p[4].count));
    assert_true(fabs(variance / (bound * bound / 3) - 1) < 5 * sqrt(0.8 / (double)p[4].count));
    assert_true(low < -0.999 * bound && high > 0.999 * bound);
    free(w);
}

static void initial_values_follow_seed_and_index_and_nothing_else(void **state)
{
    tutti_nn_param p[6];
    float a[16], b[16], c[16], d[16];
    int count;

    (void)state;
    assert_int_equal(tutti_nn_params("mlp(hidden=16)", &mnist, p, 6, &count, NULL), TUTTI_OK);
    assert_int_equal(p[3].count, 16);
    tutti_nn_initialise(&p[3], 3, 7, a);
    tutti_nn_initialise(&p[3], 3, 7, b);
    tutti_nn_initialise(&p[3], 3, 8, c);
    tutti_nn_initialise(&p[3], 1, 7, d);
    assert_memory_equal(a, b, sizeof a);
    for (int i = 0; i < 16; i++) {
        const tutti_rng rng = { .seed = 7, .stream = 3, .step = 0 };
        assert_true(a[i] != c[i] && a[i] != d[i]);
        assert_true(a[i] == (float)((2 * tutti_uniform(rng, (uint64_t)i) - 1) / 4));
    }
}

static void every_registered_model_has_a_name_a_title_and_layers(void **state)
{
    int n = 0;

    (void)state;
    for (; tutti_models[n] != NULL; n++) {
        int count;
        assert_true(strlen(tutti_models[n]->name) > 0 && strlen(tutti_models[n]->title) > 0);
        const bool quadratic = strcmp(tutti_models[n]->name, "quadratic") == 0; /* the dim of its data, no other */
        const bool tokens = tutti_models[n]->tokens;
        const tutti_nn_task windows = { .classes = 10, .context = 28 }, clicks = { 1, 1, 13, 2, 0, 26, 100 };
        assert_int_equal(tutti_nn_params(quadratic ? "quadratic(dim=784)" : tutti_models[n]->name,
                                         tokens                        ? &windows
                                         : tutti_models[n]->categories ? &clicks
                                                                       : &mnist,
                                         NULL, 0, &count, NULL),
                         TUTTI_OK);
        assert_true(count > 0);
    }
    assert_true(n >= 10);
}

static void the_flops_of_a_sample_are_those_of_its_products(void **state)
{
    const nn_net mlp = net_of("mlp", 1, 28, 28, 10), cnn = net_of("cnn", 1, 28, 28, 10);
    const double mlp_first = 784.0 * 1024, mlp_rest = 1024.0 * 1024 + 1024 * 10;
    const double cnn_first = 26.0 * 26 * 32 * 9, cnn_rest = 11.0 * 11 * 64 * 32 * 9 + 1600 * 128 + 128 * 10;
    double forward, backward;
    tutti_nn *nn;

    (void)state;
    nn = open_net(&mlp, "reference", 1);
    tutti_nn_flops(nn, &forward, &backward);
    assert_true(forward == 2 * (mlp_first + mlp_rest) && backward == 2 * mlp_first + 4 * mlp_rest);
    tutti_nn_close(nn);
    nn = open_net(&cnn, "reference", 1);
    tutti_nn_flops(nn, &forward, &backward);
    assert_true(forward == 2 * (cnn_first + cnn_rest) && backward == 2 * cnn_first + 4 * cnn_rest);
    tutti_nn_close(nn);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mlp_has_the_parameters_of_pytorch_in_ready_order),
        cmocka_unit_test(cnn_has_the_parameters_of_pytorch_in_ready_order),
        cmocka_unit_test(parameter_count_is_returned_for_any_array_size),
        cmocka_unit_test(an_option_changes_the_width),
        cmocka_unit_test(mismatched_models_and_tasks_are_rejected_with_a_message),
        cmocka_unit_test(smallest_cnn_images_reduce_to_one_pixel),
        cmocka_unit_test(lists_of_layers_that_make_no_network_are_refused),
        cmocka_unit_test(initial_values_are_uniform_within_inverse_root_fan_in),
        cmocka_unit_test(initial_values_follow_seed_and_index_and_nothing_else),
        cmocka_unit_test(every_registered_model_has_a_name_a_title_and_layers),
        cmocka_unit_test(the_flops_of_a_sample_are_those_of_its_products),
    };
    return cmocka_run_group_tests_name("nn/models", tests, NULL, NULL);
}
