/* The contract of a pass with its caller: order of the hooks, when values and gradients may be
   touched, refusals, charging, failures of memory, and what `describe` and `bytes` report. */
#include "allocations.h"
#include "nn_test.h"
#include "kernels/device.h"

static const char *const backend_names[] = { "onednn", "reference" };

/* ---- order ---- */
typedef struct recorder {
    char text[2000];
    int calls, fail_at; /* fail_at: which call fails, from 1; 0: none */
} recorder;

static tutti_status record(recorder *r, const char *what, int index, tutti_error *err)
{
    const size_t used = strlen(r->text);

    snprintf(r->text + used, sizeof r->text - used, "%s%d ", what, index);
    if (++r->calls == r->fail_at)
        return tutti_fail_rank(err, TUTTI_ERR_PEER, 3, "rank 3 died");
    return TUTTI_OK;
}

static tutti_status record_need(void *user, int unit, bool backward, tutti_error *err)
{
    return record(user, backward ? "NEED" : "need", unit, err);
}

static tutti_status record_done(void *user, int unit, bool backward, tutti_error *err)
{
    return record(user, backward ? "DONE" : "done", unit, err);
}

static tutti_status record_ready(void *user, int param, tutti_error *err)
{
    return record(user, "ready", param, err);
}

static tutti_nn_hooks hooks_of(recorder *r)
{
    return (tutti_nn_hooks){
        .user = r, .unit_acquire = record_need, .unit_release = record_done, .grad_ready = record_ready
    };
}

static void hooks_come_in_one_order_whatever_the_number_of_samples(void **state)
{
    static const char cnn[] =
        "need0 need1 done0 done1 need2 done2 need3 done3 "
        "NEED3 ready0 ready1 DONE3 NEED2 ready2 ready3 DONE2 NEED1 NEED0 ready4 ready5 ready6 ready7 DONE1 DONE0 ";
    static const char mlp[] = "need0 done0 need1 done1 need2 done2 NEED2 ready0 ready1 DONE2 NEED1 ready2 ready3 DONE1 "
                              "NEED0 ready4 ready5 DONE0 ";
    static const int64_t sizes[] = { 20, 8, 5, 1, 0, 16 };

    (void)state;
    for (int i = 0; i < 4; i++) {
        const nn_net net = net_of(i < 2 ? "cnn" : "mlp(hidden=8)", 1, 10, 10, 3);
        tutti_nn *nn = open_net(&net, backend_names[i % 2], 20);
        example e = example_of(&net, 20, 1);
        for (size_t s = 0; s < TUTTI_LENGTH(sizes); s++) {
            recorder r = { .calls = 0 };
            const tutti_nn_hooks hooks = hooks_of(&r);
            run_pass(nn, &e, sizes[s], false, &hooks);
            assert_string_equal(r.text, i < 2 ? cnn : mlp);
        }
        example_free(&e);
        tutti_nn_close(nn);
    }
}

static void a_failing_hook_aborts_only_its_own_pass(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        const nn_net net = net_of("cnn", 1, 10, 10, 3);
        const int64_t samples = i < 2 ? 24 : 0; /* three whole tiles: one that fails leaves sums of the others behind */
        tutti_nn *nn = open_net(&net, backend_names[i % 2], 24);
        example e = example_of(&net, 24, 1);
        const double loss = run_pass(nn, &e, 24, false, NULL);
        float *kept = malloc(e.params[6].count * sizeof(float)); /* the first convolution's weights, the last to come */
        int calls = 0;

        memcpy(kept, e.gradients[6], e.params[6].count * sizeof(float));
        for (int fail_at = 1; calls == fail_at - 1; fail_at++) {
            recorder r = { .fail_at = fail_at };
            const tutti_nn_hooks hooks = hooks_of(&r);
            tutti_error err = { 0 };
            double sum = 7;
            const tutti_status status = tutti_nn_pass(
                nn, &(tutti_nn_samples){ .count = samples, .x = e.x, .labels = e.labels },
                &(tutti_nn_step){ 24, false, false, (const float *const *)e.values, e.gradients,
                                  &hooks },
                &sum, &err);
            calls = r.calls;
            if (calls < fail_at) {
                assert_int_equal(status, TUTTI_OK);
                break;
            }
            assert_int_equal(status, TUTTI_ERR_PEER);
            assert_int_equal(err.rank, 3);
            assert_string_equal(err.text, "rank 3 died");
            assert_true(sum == 0);
            assert_true(run_pass(nn, &e, 24, false, NULL) == loss);
            assert_memory_equal(kept, e.gradients[6], e.params[6].count * sizeof(float));
        }
        assert_int_equal(calls, 24);
        free(kept);
        example_free(&e);
        tutti_nn_close(nn);
    }
}

/* ---- residency: values exist only between need and done, gradients
   belong to others after ready ---- */
typedef struct guard { example *e; float **values, **gradients; } guard;

static void set_unit(guard *g, int unit, bool present)
{
    for (int k = 0; k < g->e->count; k++)
        for (size_t i = 0; g->e->params[k].unit == unit && i < g->e->params[k].count; i++)
            g->e->values[k][i] = present ? g->values[k][i] : NAN;
}

static tutti_status guard_need(void *user, int unit, bool backward, tutti_error *err)
{
    (void)backward, (void)err;
    set_unit(user, unit, true);
    return TUTTI_OK;
}

static tutti_status guard_done(void *user, int unit, bool backward, tutti_error *err)
{
    (void)backward, (void)err;
    set_unit(user, unit, false);
    return TUTTI_OK;
}

static tutti_status guard_ready(void *user, int param, tutti_error *err)
{
    guard *g = user;

    (void)err;
    memcpy(g->gradients[param], g->e->gradients[param], g->e->params[param].count * sizeof(float));
    for (size_t i = 0; i < g->e->params[param].count; i++)
        g->e->gradients[param][i] = 777;
    return TUTTI_OK;
}

static void released_values_and_ready_gradients_are_not_accessed(void **state)
{
    static const char *const models[] = { "mlp(hidden=8)", "cnn" };

    (void)state;
    for (int i = 0; i < 4; i++) {
        const nn_net net = net_of(models[i / 2], 1, 10, 10, 3);
        tutti_nn *nn = open_net(&net, backend_names[i % 2], 20);
        example e = example_of(&net, 20, 1), expected = example_of(&net, 20, 1), kept = example_of(&net, 0, 1);
        guard g = { .e = &e, .values = expected.values, .gradients = kept.gradients };
        const tutti_nn_hooks hooks = {
            .user = &g, .unit_acquire = guard_need, .unit_release = guard_done, .grad_ready = guard_ready
        };
        const double loss = run_pass(nn, &expected, 20, false, NULL);

        for (int u = 0; u < net.unit_count; u++)
            set_unit(&g, u, false);
        assert_true(run_pass(nn, &e, 20, false, &hooks) == loss);
        for (int k = 0; k < e.count; k++) {
            assert_memory_equal(kept.gradients[k], expected.gradients[k], e.params[k].count * sizeof(float));
            for (size_t j = 0; j < e.params[k].count; j++)
                assert_true(e.gradients[k][j] == 777);
        }
        example_free(&e);
        example_free(&expected);
        example_free(&kept);
        tutti_nn_close(nn);
    }
}

/* ---- no samples, bad arguments ---- */
static void a_pass_without_samples_writes_zeros_or_adds_nothing(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        const nn_net net = net_of("cnn", 1, 10, 10, 3);
        tutti_nn *nn = open_net(&net, backend_names[i], 4);
        example e = example_of(&net, 0, 1);
        double loss = 5;

        for (int k = 0; k < e.count; k++)
            e.gradients[k][0] = 1;
        assert_int_equal(
            tutti_nn_pass(nn, &(tutti_nn_samples){ .count = 0 },
                          &(tutti_nn_step){ 1, true, false, (const float *const *)e.values,
                                            e.gradients, NULL },
                          &loss, NULL),
            TUTTI_OK);
        assert_true(loss == 0);
        for (int k = 0; k < e.count; k++)
            assert_true(e.gradients[k][0] == 1);
        memset(e.gradients[0], 1, e.params[0].count * sizeof(float));
        assert_int_equal(
            tutti_nn_pass(nn, &(tutti_nn_samples){ .count = 0 },
                          &(tutti_nn_step){ 1, false, false, (const float *const *)e.values,
                                            e.gradients, NULL },
                          &loss, NULL),
            TUTTI_OK);
        for (int k = 0; k < e.count; k++)
            for (size_t j = 0; j < e.params[k].count; j++)
                assert_true(e.gradients[k][j] == 0);
        example_free(&e);
        tutti_nn_close(nn);
    }
}

static void invalid_passes_are_rejected_with_a_message(void **state)
{
    const nn_net net = net_of("mlp(hidden=4)", 1, 3, 3, 3);
    tutti_nn *nn = open_net(&net, NULL, 4);
    example e = example_of(&net, 5, 1);
    const float *const *values = (const float *const *)e.values;
    tutti_error err = { 0 };
    int64_t correct;
    double loss;

    (void)state;
    assert_int_equal(
        tutti_nn_pass(nn, &(tutti_nn_samples){ .count = 5, .x = e.x, .labels = e.labels },
                      &(tutti_nn_step){ 5, false, false, values, e.gradients, NULL }, &loss, &err),
        TUTTI_ERR_USAGE);
    assert_string_equal(err.text, "a pass of 5 samples; the network was opened for 0 to 4");
    assert_int_equal(
        tutti_nn_pass(nn, &(tutti_nn_samples){ .count = -1, .x = e.x, .labels = e.labels },
                      &(tutti_nn_step){ 5, false, false, values, e.gradients, NULL }, &loss, &err),
        TUTTI_ERR_USAGE);
    assert_string_equal(err.text, "a pass of -1 samples; the network was opened for 0 to 4");
    assert_int_equal(
        tutti_nn_pass(nn, &(tutti_nn_samples){ .count = 4, .x = e.x, .labels = e.labels },
                      &(tutti_nn_step){ 0, false, false, values, e.gradients, NULL }, &loss, &err),
        TUTTI_ERR_USAGE);
    assert_string_equal(err.text, "a pass with the divisor 0; it must be positive and finite");
    assert_int_equal(tutti_nn_pass(nn,
                                   &(tutti_nn_samples){ .count = 4, .x = e.x, .labels = e.labels },
                                   &(tutti_nn_step){ NAN, false, false, values, e.gradients, NULL },
                                   &loss, &err),
                     TUTTI_ERR_USAGE);
    assert_int_equal(
        tutti_nn_pass(nn, &(tutti_nn_samples){ .count = 4, .x = e.x, .labels = e.labels },
                      &(tutti_nn_step){ INFINITY, false, false, values, e.gradients, NULL }, &loss,
                      NULL),
        TUTTI_ERR_USAGE);
    e.labels[3] = 3;
    assert_int_equal(
        tutti_nn_pass(nn, &(tutti_nn_samples){ .count = 4, .x = e.x, .labels = e.labels },
                      &(tutti_nn_step){ 4, false, false, values, e.gradients, NULL }, &loss, &err),
        TUTTI_ERR_CORRUPT);
    assert_string_equal(err.text, "the label of sample 3 is 3; the task has classes 0 to 2");
    assert_true(loss == 0);
    assert_int_equal(
        tutti_nn_evaluate(nn, &(tutti_nn_samples){ .count = 4, .x = e.x, .labels = e.labels },
                          values, &loss, &correct, &err),
        TUTTI_ERR_CORRUPT);
    assert_int_equal(
        tutti_nn_evaluate(nn, &(tutti_nn_samples){ .count = -4, .x = e.x, .labels = e.labels },
                          values, &loss, &correct, &err),
        TUTTI_ERR_USAGE);
    assert_string_equal(err.text, "an evaluation of -4 samples");
    assert_int_equal(
        tutti_nn_pass(nn, &(tutti_nn_samples){ .count = 3, .x = e.x, .labels = e.labels },
                      &(tutti_nn_step){ 3, false, false, values, e.gradients, NULL }, &loss, &err),
        TUTTI_OK);
    example_free(&e);
    tutti_nn_close(nn);
    tutti_nn_close(NULL);
}

static void invalid_open_options_are_rejected_with_a_message(void **state)
{
    static const struct { tutti_nn_options options; const char *sentence; } cases[] = {
        { { .backend = "cuda", .batch = 1 }, "there is no backend 'cuda'; backends are onednn, reference" },
        { { .batch = 0 }, "opening a network for passes of 0 samples: it must be from 1 to 1048576" },
        { { .batch = -3 }, "opening a network for passes of -3 samples: it must be from 1 to 1048576" },
        { { .batch = 1 << 21 }, "opening a network for passes of 2097152 samples: it must be from 1 to 1048576" },
        { { .batch = 1, .threads = -1 }, "opening a network for -1 threads: it must be from 1 to 1024" },
        { { .batch = 1, .threads = 1025 }, "opening a network for 1025 threads: it must be from 1 to 1024" },
    };
    const tutti_nn_task task = { 1, 12, 12, 3 };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(cases); i++) {
        tutti_nn *nn = (tutti_nn *)&nn;
        tutti_error err = { 0 };
        assert_int_equal(tutti_nn_open(&nn, "mlp", &task, &cases[i].options, &err), TUTTI_ERR_USAGE);
        assert_null(nn);
        assert_string_equal(err.text, cases[i].sentence);
    }
}

/* A pass of 64 samples, and none of 65. */
static void a_network_opens_without_options_for_64_samples(void **state)
{
    const tutti_nn_task task = { 1, 12, 12, 3 };
    tutti_error err = { 0 };
    tutti_nn *nn;
    nn_net net;
    double loss;

    (void)state;
    assert_int_equal(tutti_nn_net_model(&net, "mlp", &task, &err), TUTTI_OK);
    example e = example_of(&net, 65, 3);
    assert_int_equal(tutti_nn_open(&nn, "mlp", &task, NULL, &err), TUTTI_OK);
    for (int64_t n = 64; n <= 65; n++)
        assert_int_equal(
            tutti_nn_pass(nn, &(tutti_nn_samples){ .count = n, .x = e.x, .labels = e.labels },
                          &(tutti_nn_step){ .divisor = (double)n,
                                            .values = (const float *const *)e.values,
                                            .gradients = e.gradients },
                          &loss, &err),
            n == 64 ? TUTTI_OK : TUTTI_ERR_USAGE);
    example_free(&e);
    tutti_nn_close(nn);
}

/* ---- charging, by a runtime that only counts ---- */
typedef struct account { double flops, bytes; int calls; } account;

static void count_charge(void *self, double flops, double bytes)
{
    account *a = self;
    a->flops += flops;
    a->bytes += bytes;
    a->calls++;
}

static void every_sample_is_charged_with_the_flops_of_its_layers(void **state)
{
    static const tutti_runtime_ops ops = {
        .abi = TUTTI_RUNTIME_ABI, .bytes = sizeof ops, .name = "count", .charge = count_charge
    };

    (void)state;
    for (int i = 0; i < 4; i++) {
        const nn_net net = net_of(i < 2 ? "cnn" : "mlp(hidden=8)", 1, 10, 10, 3);
        account a = { 0 };
        tutti_runtime rt = { .ops = &ops, .self = &a };
        tutti_nn_options options = { .backend = backend_names[i % 2], .batch = 20 };
        example e = example_of(&net, 300, 1);
        double forward, backward, loss;
        int64_t correct;
        tutti_nn *nn;

        assert_int_equal(tutti_device_open_host(&options.device, &rt, TUTTI_CPU_SCALAR, NULL), TUTTI_OK);
        assert_int_equal(tutti_nn_open_net(&nn, &net, &options, NULL), TUTTI_OK);
        assert_int_equal(a.calls, 0);
        tutti_nn_flops(nn, &forward, &backward);
        run_pass(nn, &e, 11, false, NULL);
        assert_true(a.flops == 11 * (forward + backward));
        a.flops = 0;
        run_pass(nn, &e, 0, false, NULL);
        assert_true(a.flops == 0);
        assert_int_equal(
            tutti_nn_evaluate(nn, &(tutti_nn_samples){ .count = 300, .x = e.x, .labels = e.labels },
                              (const float *const *)e.values, &loss, &correct, NULL),
            TUTTI_OK);
        assert_true(a.flops == 300 * forward);
        tutti_nn_close(nn);
        tutti_device_close(options.device);
        example_free(&e);
    }
}

/* ---- memory that runs out ---- */
static void failed_allocations_are_errors_and_later_calls_succeed(void **state)
{
    static const char *const models[] = { "mlp(hidden=8)", "cnn", "quadratic(dim=100)" };

    (void)state;
    for (int i = 0; i < 6; i++) {
        const tutti_nn_task task = { 1, 10, 10, 3 };
        const tutti_nn_options options = { .backend = backend_names[i % 2], .batch = 11 };
        const nn_net net = net_of(models[i / 2], 1, 10, 10, 3);
        example e = example_of(&net, 11, 1);
        const float *const *values = (const float *const *)e.values;
        tutti_status status = TUTTI_ERR_MEMORY;
        tutti_error err = { 0 };
        tutti_nn *nn = NULL;
        int64_t correct;
        double loss;
        int n;

        for (n = 0; status != TUTTI_OK; n++) {
            allocations_left = n;
            status = tutti_nn_open(&nn, models[i / 2], &task, &options, &err);
            allocations_left = -1;
            assert_true(status == TUTTI_OK ? nn != NULL : nn == NULL);
            if (status != TUTTI_OK) {
                assert_int_equal(status, TUTTI_ERR_MEMORY);
                assert_true(strlen(err.text) > 20);
            }
        }
        assert_true(n > 5);
        /* An evaluation and a size that need memory of their own; afterwards everything works. */
        for (n = 0, status = TUTTI_ERR_MEMORY; status != TUTTI_OK; n++) {
            allocations_left = n;
            status = tutti_nn_evaluate(
                nn, &(tutti_nn_samples){ .count = 11, .x = e.x, .labels = e.labels }, values, &loss,
                &correct, NULL);
            allocations_left = -1;
            assert_true(status == TUTTI_OK || status == TUTTI_ERR_MEMORY);
        }
        for (n = 0, status = TUTTI_ERR_MEMORY; status != TUTTI_OK; n++) {
            allocations_left = n;
            status = tutti_nn_pass(
                nn, &(tutti_nn_samples){ .count = 5, .x = e.x, .labels = e.labels },
                &(tutti_nn_step){ 5, false, false, values, e.gradients, NULL }, &loss, NULL);
            allocations_left = -1;
            assert_true(status == TUTTI_OK || status == TUTTI_ERR_MEMORY);
        }
        loss = run_pass(nn, &e, 11, false, NULL);
        {
            tutti_nn *fresh = open_net(&net, backend_names[i % 2], 11);
            assert_true(run_pass(fresh, &e, 11, false, NULL) == loss);
            tutti_nn_close(fresh);
        }
        tutti_nn_close(nn);
        example_free(&e);
    }
}

static void passes_of_known_sizes_allocate_nothing(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        const nn_net net = net_of(i < 2 ? "cnn" : "mlp(hidden=8)", 1, 10, 10, 3);
        tutti_nn *nn = open_net(&net, backend_names[i % 2], 11);
        example e = example_of(&net, 11, 1);

        allocations_left = 0; /* any allocation now would fail the pass: the full batch needs none from the start */
        run_pass(nn, &e, 11, false, NULL);
        allocations_left = -1;
        run_pass(nn, &e, 6, false, NULL);
        allocations_left = 0;
        run_pass(nn, &e, 6, false, NULL);
        run_pass(nn, &e, 11, true, NULL);
        allocations_left = -1;
        example_free(&e);
        tutti_nn_close(nn);
    }
}

/* The full batch and eight other sizes are kept; a ninth takes the place
   of the one not used for longest. */
static void the_least_recently_used_plan_is_evicted(void **state)
{
    const nn_net net = net_of("cnn", 1, 10, 10, 3);
    tutti_nn *nn = open_net(&net, NULL, 30);
    example e = example_of(&net, 30, 1);

    (void)state;
    for (int n = 1; n <= 8; n++)
        run_pass(nn, &e, n, false, NULL);
    allocations_left = 0;
    for (int n = 8; n >= 1; n--)
        run_pass(nn, &e, n, false, NULL);
    run_pass(nn, &e, 30, false, NULL);
    allocations_left = -1;
    run_pass(nn, &e, 9, false, NULL); /* in place of 8 */
    run_pass(nn, &e, 10, false, NULL); /* of 7 */
    allocations_left = 0;
    for (int n = 1; n <= 6; n++)
        run_pass(nn, &e, n, false, NULL);
    run_pass(nn, &e, 9, false, NULL);
    run_pass(nn, &e, 30, false, NULL);
    {
        double loss;
        assert_int_equal(
            tutti_nn_pass(nn, &(tutti_nn_samples){ .count = 8, .x = e.x, .labels = e.labels },
                          &(tutti_nn_step){ 8, false, false, (const float *const *)e.values,
                                            e.gradients, NULL },
                          &loss, NULL),
            TUTTI_ERR_MEMORY); /* was dropped */
    }
    allocations_left = -1;
    example_free(&e);
    tutti_nn_close(nn);
}

/* ---- what a network reports about itself ---- */
static void onednn_primitives_are_named_and_none_is_reference_code(void **state)
{
    static const char *const expected[] = {
        "conv2d 0 forward: ", "conv2d 0 weights: ", "conv2d 3 forward: ", "conv2d 3 weights: ", "conv2d 3 data: ",
        "linear 7 forward: ", "linear 7 weights added: ", "linear 7 data: ", "linear 9 weights: ",
    };
    const nn_net net = net_of("cnn", 1, 28, 28, 10);
    tutti_nn *nn = open_net(&net, NULL, 64);
    char text[8192], cut[64];
    int n;

    (void)state;
    n = tutti_nn_describe(nn, text, sizeof text);
    assert_int_equal(n, strlen(text));
    assert_null(strstr(text, ": ref"));
    /* there the layouts of cnn fit together; AVX2 turns the input for `weights` */
    if (strstr(text, "jit:avx512_core") != NULL)
        assert_null(strstr(text, "input reorder"));
    for (size_t i = 0; i < TUTTI_LENGTH(expected); i++)
        if (strstr(text, expected[i]) == NULL)
            fail_msg("no '%s' in:\n%s", expected[i], text);
    assert_int_equal(tutti_nn_describe(nn, cut, sizeof cut), n);
    assert_int_equal(strlen(cut), sizeof cut - 1);
    assert_memory_equal(cut, text, sizeof cut - 1);
    assert_int_equal(tutti_nn_describe(nn, NULL, 0), n);
    tutti_nn_close(nn);

    nn = open_net(&net, "reference", 1);
    n = tutti_nn_describe(nn, text, sizeof text);
    assert_string_equal(text, "conv2d 0: scalar reference\nconv2d 3: scalar reference\nlinear 7: scalar "
                              "reference\nlinear 9: scalar reference\n");
    assert_int_equal(n, strlen(text));
    tutti_nn_close(nn);
}

/* One arena, of what is needed at one moment. mlp: two outputs and two slopes of 64 x 1024 floats
   never live together, three of the four do, and rows of classes. cnn: outputs of its convolutions
   for 64 images, and tiles of 8 on the way. */
static void network_memory_stays_within_the_design_bounds(void **state)
{
    const nn_net mlp = net_of("mlp", 1, 28, 28, 10), cnn = net_of("cnn", 1, 28, 28, 10);
    tutti_nn *a = open_net(&mlp, NULL, 64), *b = open_net(&cnn, NULL, 64);

    (void)state;
    assert_in_range(tutti_nn_bytes(a), 3 * 64 * 1024 * 4, 1 << 20);
    assert_in_range(tutti_nn_bytes(b), 1 << 20, 4 << 20);
    tutti_nn_close(a);
    tutti_nn_close(b);
}

/* An evaluation of many rows needs more than small batches; a thousand simulated workers must not
   keep it. Later passes ask for no memory. */
static void memory_of_an_evaluation_is_released(void **state)
{
    static const char *const models[] = { "mlp(hidden=64)", "cnn", "logistic" };

    (void)state;
    for (size_t m = 0; m < TUTTI_LENGTH(models); m++)
        for (int64_t batch = 4; batch <= 12; batch += 4) {
            const nn_net net = net_of(models[m], 1, 12, 12, 5);
            tutti_nn *nn = open_net(&net, NULL, batch);
            example e = example_of(&net, 20, 1);
            double loss, before, after;
            int64_t correct;
            size_t bytes;

            before = run_pass(nn, &e, batch, false, NULL);
            assert_int_equal(
                tutti_nn_evaluate(nn,
                                  &(tutti_nn_samples){ .count = 20, .x = e.x, .labels = e.labels },
                                  (const float *const *)e.values, &loss, &correct, NULL),
                TUTTI_OK);
            bytes = tutti_nn_bytes(nn); /* includes a plan of its tiles; a small batch has had none */
            allocations_left = 0;
            after = run_pass(nn, &e, batch, false, NULL);
            allocations_left = -1;
            assert_true(before == after);
            assert_int_equal(
                tutti_nn_evaluate(nn,
                                  &(tutti_nn_samples){ .count = 20, .x = e.x, .labels = e.labels },
                                  (const float *const *)e.values, &loss, &correct, NULL),
                TUTTI_OK);
            assert_int_equal(tutti_nn_bytes(nn), bytes);
            if (batch >= 8) {
                tutti_nn *fresh = open_net(&net, NULL, batch);
                assert_int_equal(tutti_nn_bytes(fresh), bytes);
                tutti_nn_close(fresh);
            }
            example_free(&e);
            tutti_nn_close(nn);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hooks_come_in_one_order_whatever_the_number_of_samples),
        cmocka_unit_test(a_failing_hook_aborts_only_its_own_pass),
        cmocka_unit_test(released_values_and_ready_gradients_are_not_accessed),
        cmocka_unit_test(a_pass_without_samples_writes_zeros_or_adds_nothing),
        cmocka_unit_test(invalid_passes_are_rejected_with_a_message),
        cmocka_unit_test(invalid_open_options_are_rejected_with_a_message),
        cmocka_unit_test(a_network_opens_without_options_for_64_samples),
        cmocka_unit_test(every_sample_is_charged_with_the_flops_of_its_layers),
        cmocka_unit_test(failed_allocations_are_errors_and_later_calls_succeed),
        cmocka_unit_test(passes_of_known_sizes_allocate_nothing),
        cmocka_unit_test(the_least_recently_used_plan_is_evicted),
        cmocka_unit_test(onednn_primitives_are_named_and_none_is_reference_code),
        cmocka_unit_test(network_memory_stays_within_the_design_bounds),
        cmocka_unit_test(memory_of_an_evaluation_is_released),
    };
    return cmocka_run_group_tests_name("nn/hooks", tests, NULL, NULL);
}
