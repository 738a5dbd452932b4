/* Goal: networks of images with batch norms, branches and every kind of convolution compute their
   formulas, and keep the promises of nn.h that plain chains keep. Method: the reference against
   central differences of its own loss; oneDNN against the reference on lists that the models do not
   have, with awkward sizes and channels; running statistics from their rule; equal bits of blocks,
   evaluation runs and sums; every allocation failing in turn. */
#include "nn/image.h"
#include "allocations.h"
#include "nn_test.h"
#include "sanitized.h"

#define KIND(k) { .kind = TUTTI_LAYER_##k }
#define CONV_P(n, k, s, p) { .kind = TUTTI_LAYER_CONV2D, .out = n, .kernel = k, .stride = s, .padding = p }
#define BARE(n, k, s, p) { .kind = TUTTI_LAYER_CONV2D, .out = n, .kernel = k, .stride = s, .padding = p, .bare = true }
#define GROUPED(n, k, s, p, g) \
    { \
        .kind = TUTTI_LAYER_CONV2D, .out = n, .kernel = k, .stride = s, .padding = p, .groups = g \
    }
#define NORM KIND(BATCH_NORM)
#define BRANCH KIND(BRANCH)
#define JOIN KIND(JOIN)
#define AVGPOOL KIND(AVGPOOL)

typedef struct list { const char *name; tutti_nn_task task; int count; tutti_layer layers[20]; } list;
static const list lists[] = {
    { "padding alone", { 1, 5, 6, 3 }, 2, { CONV_P(4, 3, 1, 1), LINEAR(3) } },
    { "stride alone", { 2, 7, 9, 3 }, 4, { CONV_P(5, 3, 2, 0), RELU, FLATTEN, LINEAR(3) } },
    { "groups", { 2, 6, 6, 3 }, 5, { CONV_P(16, 3, 1, 1), RELU, GROUPED(32, 3, 2, 1, 2), RELU, LINEAR(3) } },
    { "a group a channel",
      { 1, 7, 7, 3 },
      5,
      { CONV_P(16, 3, 1, 1), NORM, GROUPED(16, 3, 2, 1, 16), AVGPOOL, LINEAR(3) } },
    { "odd groups of odd channels",
      { 1, 6, 5, 4 },
      4,
      { CONV_P(6, 3, 1, 1), GROUPED(9, 3, 1, 2, 3), AVGPOOL, LINEAR(4) } },
    { "norm without relu", { 1, 6, 6, 3 }, 4, { CONV_P(6, 3, 1, 1), NORM, FLATTEN, LINEAR(3) } },
    { "norm of full vectors", { 3, 6, 6, 3 }, 5, { BARE(32, 3, 1, 1), NORM, RELU, AVGPOOL, LINEAR(3) } },
    { "norm, pooling, two linear",
      { 1, 9, 8, 3 },
      8,
      { BARE(16, 3, 1, 1), NORM, RELU, POOL(2), FLATTEN, LINEAR(7), RELU, LINEAR(3) } },
    { "pooling, then norm", { 1, 9, 9, 3 }, 5, { CONV_P(5, 3, 1, 1), POOL(2), NORM, AVGPOOL, LINEAR(3) } },
    { "a block of one shape",
      { 1, 6, 6, 3 },
      13,
      { BARE(16, 3, 1, 1), NORM, RELU, BRANCH, BARE(16, 3, 1, 1), NORM, RELU, BARE(16, 3, 1, 1), NORM, JOIN, RELU,
        AVGPOOL, LINEAR(3) } },
    { "a block that halves and widens",
      { 1, 7, 6, 3 },
      13,
      { BARE(16, 3, 1, 1), NORM, RELU, BRANCH, BARE(32, 3, 2, 1), NORM, RELU, BARE(32, 3, 1, 1), NORM, JOIN, RELU,
        AVGPOOL, LINEAR(3) } },
    { "halving with odd channels",
      { 1, 8, 8, 3 },
      9,
      { CONV_P(5, 3, 1, 1), NORM, BRANCH, CONV_P(20, 3, 2, 1), NORM, JOIN, RELU, FLATTEN, LINEAR(3) } },
    { "from side by side to blocks",
      { 1, 8, 8, 3 },
      9,
      { CONV_P(8, 3, 1, 1), NORM, BRANCH, CONV_P(16, 1, 2, 0), NORM, JOIN, RELU, FLATTEN, LINEAR(3) } },
    { "relu before a join",
      { 1, 6, 6, 3 },
      8,
      { CONV_P(6, 3, 1, 1), BRANCH, CONV_P(6, 3, 1, 1), RELU, JOIN, NORM, AVGPOOL, LINEAR(3) } },
    { "norm and relu before a join",
      { 1, 6, 6, 3 },
      8,
      { CONV_P(6, 3, 1, 1), BRANCH, NORM, RELU, JOIN, RELU, AVGPOOL, LINEAR(3) } },
    { "norm alone in a branch", { 1, 5, 5, 3 }, 6, { CONV_P(6, 3, 1, 1), BRANCH, NORM, JOIN, AVGPOOL, LINEAR(3) } },
    { "pre-activation",
      { 1, 6, 6, 3 },
      14,
      { CONV_P(16, 3, 1, 1), BRANCH, NORM, RELU, BARE(16, 3, 1, 1), NORM, RELU, BARE(16, 3, 1, 1), JOIN, NORM, RELU,
        POOL(2), FLATTEN, LINEAR(3) } },
    { "branches within each other",
      { 1, 6, 6, 3 },
      14,
      { CONV_P(8, 3, 1, 1), RELU, BRANCH, BARE(8, 3, 1, 1), NORM, BRANCH, BARE(8, 3, 1, 1), JOIN, RELU,
        CONV_P(8, 1, 1, 0), JOIN, RELU, FLATTEN, LINEAR(3) } },
    { "pooling in a branch",
      { 1, 6, 6, 3 },
      8,
      { CONV_P(6, 3, 1, 1), BRANCH, CONV_P(12, 1, 1, 0), POOL(2), JOIN, RELU, AVGPOOL, LINEAR(3) } },
    { "a branch of rows",
      { 1, 6, 6, 3 },
      10,
      { CONV_P(6, 3, 1, 1), NORM, RELU, AVGPOOL, BRANCH, LINEAR(6), RELU, JOIN, RELU, LINEAR(3) } },
    { "one place", { 1, 3, 3, 3 }, 5, { CONV_P(16, 3, 1, 0), NORM, RELU, FLATTEN, LINEAR(3) } },
};

static nn_net build(const list *l)
{
    tutti_error err = { 0 };
    nn_net net;

    if (tutti_nn_net_build(&net, l->layers, l->count, &l->task, &err) != TUTTI_OK)
        fail_msg("%s: %s", l->name, err.text);
    assert_non_null(net.image);
    return net;
}

static nn_net model(const char *spec, int side)
{
    return net_of(spec, 1, side, side, 5);
}

/* Norms start at 1 and 0, where their derivatives hide mistakes. */
static example bent(const nn_net *net, int64_t samples, uint64_t seed)
{
    example e = example_of(net, samples, seed);

    for (int k = 0; k < e.count; k++)
        for (size_t i = 0; i < e.params[k].count && e.params[k].fan_in == 0; i++)
            e.values[k][i] += (float)(0.3 * tutti_normal((tutti_rng){ seed, 40 + (uint64_t)k, 0 }, i));
    return e;
}

/* Opens `backend` on a new network: opening takes what a network owns. */
static tutti_nn *open_list(const list *l, const char *backend, int64_t batch)
{
    const nn_net net = build(l);
    return open_net(&net, backend, batch);
}

static double *running_of(tutti_nn *nn, size_t *count)
{
    const float *running = tutti_nn_running(nn, count);
    double *copy = calloc(*count + 1, sizeof *copy);

    for (size_t i = 0; i < *count; i++)
        copy[i] = (double)running[i];
    return copy;
}

/* The central difference of a step h at place i of parameter k. */
static double slope_of(tutti_nn *nn, example *e, int k, size_t i, float h)
{
    const float kept = e->values[k][i], above = kept + h, below = kept - h;
    double up, down;

    e->values[k][i] = above;
    up = run_pass(nn, e, e->samples, false, NULL);
    e->values[k][i] = below;
    down = run_pass(nn, e, e->samples, false, NULL);
    e->values[k][i] = kept;
    return (up - down) / ((double)above - (double)below) / (double)e->samples;
}

/* As gradient_test.c, with h = 2^-14: a norm divides by the spread of few values, and its second
   derivatives are large. Where half the step has another slope a ReLU or a pooling turns over
   within it, and the place shows nothing; these must be few. */
static void reference_gradients_match_central_differences(void **state)
{
    int places = 0, kinks = 0;

    (void)state;
    for (size_t s = 0; s < TUTTI_LENGTH(lists); s += UNLESS_SANITIZED(1, 3)) {
        nn_net net = build(&lists[s]);
        example e = bent(&net, 4, 100 + s);
        tutti_nn *nn = open_net(&net, "reference", 4);
        float *gradients[PARAMS_MAX];
        double most = 0;

        run_pass(nn, &e, 4, false, NULL);
        for (int k = 0; k < e.count; k++) {
            gradients[k] = malloc(e.params[k].count * sizeof(float));
            memcpy(gradients[k], e.gradients[k], e.params[k].count * sizeof(float));
            for (size_t i = 0; i < e.params[k].count; i++)
                most = fmax(most, fabs((double)gradients[k][i]));
        }
        for (int k = 0; k < e.count; k++)
            for (uint64_t draw = 0; draw < 2; draw++, places++) {
                const size_t i =
                    (size_t)(tutti_random((tutti_rng){ s, 77, 0 }, draw * 64 + (uint64_t)k) % e.params[k].count);
                const double slope = slope_of(nn, &e, k, i, 0x1p-14f), half = slope_of(nn, &e, k, i, 0x1p-15f);
                if (fabs(slope - half) > 2e-6 * most)
                    kinks++;
                else if (fabs(slope - (double)gradients[k][i]) > 4e-6 * most)
                    fail_msg("%s: %s[%zu]: slope %.9g, gradient %.9g, largest %.3g", lists[s].name, e.params[k].name, i,
                             slope, (double)gradients[k][i], most);
            }
        for (int k = 0; k < e.count; k++)
            free(gradients[k]);
        example_free(&e);
        tutti_nn_close(nn);
    }
    if (kinks * 20 > places)
        fail_msg("%d of %d places stand at a kink", kinks, places);
}

/* Losses, gradients and running statistics of both, then the loss of an evaluation with these
   statistics. A gradient that cancels exactly (a bias before a norm) keeps the rounding of its
   terms, so differences are measured by the largest norm of any. */
static void compare(tutti_nn *fast, tutti_nn *slow, example *e, int64_t n, const char *name)
{
    example other = example_of(&e->net, 0, 1);
    tutti_error err = { 0 };
    double loss = run_pass(fast, e, n, false, NULL), expected, most = 0;
    int64_t right, expected_right;
    size_t count, again;

    if (tutti_nn_pass(slow, &(tutti_nn_samples){ .count = n, .x = e->x, .labels = e->labels },
                      &(tutti_nn_step){ (double)n, false, false, (const float *const *)e->values,
                                        other.gradients, NULL },
                      &expected, &err) != TUTTI_OK)
        fail_msg("%s", err.text);
    if (!(fabs(loss - expected) <= 3e-6 * fabs(expected)))
        fail_msg("%s, %d samples: loss %.9g, reference %.9g", name, (int)n, loss, expected);
    for (int k = 0; k < e->count; k++) {
        double norm = 0;
        for (size_t i = 0; i < e->params[k].count; i++)
            norm += pow((double)other.gradients[k][i], 2);
        most = fmax(most, sqrt(norm));
    }
    for (int k = 0; k < e->count; k++) {
        double away = 0, norm = 0;
        for (size_t i = 0; i < e->params[k].count; i++) {
            away += pow((double)e->gradients[k][i] - (double)other.gradients[k][i], 2);
            norm += pow((double)other.gradients[k][i], 2);
        }
        if (!(sqrt(away) <= 3e-5 * sqrt(norm) + 3e-6 * most))
            fail_msg("%s, %d samples: %s differs by %.3g, its norm is %.3g, the largest %.3g", name, (int)n,
                     e->params[k].name, sqrt(away), sqrt(norm), most);
    }
    {
        double *a = running_of(fast, &count), *b = running_of(slow, &again);
        assert_int_equal(count, again);
        for (size_t i = 0; i < count; i++)
            if (!(fabs(a[i] - b[i]) <= 1e-5 * (1 + fabs(b[i]))))
                fail_msg("%s, %d samples: running statistic %zu is %.9g, the reference's %.9g", name, (int)n, i, a[i],
                         b[i]);
        free(a);
        free(b);
    }
    assert_int_equal(
        tutti_nn_evaluate(fast, &(tutti_nn_samples){ .count = n, .x = e->x, .labels = e->labels },
                          (const float *const *)e->values, &loss, &right, &err),
        TUTTI_OK);
    assert_int_equal(
        tutti_nn_evaluate(slow, &(tutti_nn_samples){ .count = n, .x = e->x, .labels = e->labels },
                          (const float *const *)e->values, &expected, &expected_right, &err),
        TUTTI_OK);
    if (!(fabs(loss - expected) <= 2e-5 * fabs(expected)) || right != expected_right)
        fail_msg("%s, %d samples: evaluation gives %.9g and %d right, reference %.9g and %d", name, (int)n, loss,
                 (int)right, expected, (int)expected_right);
    example_free(&other);
}

static void onednn_losses_gradients_and_statistics_match_the_reference(void **state)
{
    static const int64_t sizes[] = { 17, 2, 7, 16, 17 };

    (void)state;
    for (size_t s = 0; s < TUTTI_LENGTH(lists); s++) {
        nn_net net = build(&lists[s]);
        example e = bent(&net, 17, 200 + s);
        tutti_nn *fast = open_net(&net, NULL, 17), *slow = open_list(&lists[s], "reference", 17);
        for (size_t i = 0; i < TUTTI_LENGTH(sizes); i++)
            compare(fast, slow, &e, sizes[i], lists[s].name);
        example_free(&e);
        tutti_nn_close(fast);
        tutti_nn_close(slow);
    }
}

static void models_agree_with_the_reference(void **state)
{
    static const char *const models[] = { "resnet(depth=8)", "vgg(small)" };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(models); i++) {
        nn_net net = model(models[i], 8), same = model(models[i], 8);
        example e = bent(&net, 6, 9);
        tutti_nn *fast = open_net(&net, NULL, 6), *slow = open_net(&same, "reference", 6);
        compare(fast, slow, &e, 6, models[i]);
        example_free(&e);
        tutti_nn_close(fast);
        tutti_nn_close(slow);
    }
}

/* ---- running statistics ---- */
/* One channel behind a convolution whose window is a place and whose weight is 1: the
   norm sees the samples themselves. */
static void running_statistics_follow_the_momentum_update(void **state)
{
    static const char *const backends[] = { "onednn", "reference" };
    const list plain = { "plain", { 1, 2, 3, 2 }, 4, { BARE(1, 1, 1, 0), NORM, FLATTEN, LINEAR(2) } };

    (void)state;
    for (size_t which = 0; which < 2; which++) {
        nn_net net = build(&plain);
        example e = example_of(&net, 150, 5);
        tutti_nn *nn = open_net(&net, backends[which], 150);
        double mean = 0, variance = 0, expected_mean = 0, expected_variance = 0;
        int64_t correct;
        double loss;
        size_t count;
        float *running = tutti_nn_running(nn, &count);

        assert_int_equal(count, 2);
        assert_true(running[0] == 0 && running[1] == 1);
        e.values[e.count - 1][0] = 1; /* the convolution's, last in order */
        run_pass(nn, &e, 150, false, NULL);
        for (int first = 0; first < 150; first += 64) { /* blocks of 64, 64, 22 */
            const int n = (150 - first < 64 ? 150 - first : 64) * 6;
            double m = 0, v = 0;
            for (int i = 0; i < n; i++)
                m += (double)e.x[first * 6 + i] / n;
            for (int i = 0; i < n; i++)
                v += pow((double)e.x[first * 6 + i] - m, 2) / (n - 1);
            mean += m * (n / 6) / 150;
            variance += v * (n / 6) / 150;
        }
        expected_mean = 0.1 * mean;
        expected_variance = 0.9 + 0.1 * variance;
        assert_true(fabs((double)running[0] - expected_mean) < 1e-6 &&
                    fabs((double)running[1] - expected_variance) < 1e-6);
        tutti_nn_hold_statistics(nn, true); /* until they are let go */
        run_pass(nn, &e, 150, false, NULL);
        tutti_nn_hold_statistics(nn, false);
        run_pass(nn, &e, 0, false, NULL); /* no samples move nothing, nor does an evaluation or a pass that fails */
        assert_int_equal(
            tutti_nn_evaluate(nn, &(tutti_nn_samples){ .count = 9, .x = e.x, .labels = e.labels },
                              (const float *const *)e.values, &loss, &correct, NULL),
            TUTTI_OK);
        e.labels[70] = 7;
        assert_int_equal(
            tutti_nn_pass(nn, &(tutti_nn_samples){ .count = 150, .x = e.x, .labels = e.labels },
                          &(tutti_nn_step){ 150, false, false, (const float *const *)e.values,
                                            e.gradients, NULL },
                          &loss, NULL),
            TUTTI_ERR_CORRUPT);
        assert_true(fabs((double)running[0] - expected_mean) < 1e-6 &&
                    fabs((double)running[1] - expected_variance) < 1e-6);
        e.labels[70] = 0;
        {
            const float kept = e.x[500];
            e.x[500] = NAN;
            run_pass(nn, &e, 150, false, NULL);
            e.x[500] = kept;
        }
        assert_true(fabs((double)running[0] - expected_mean) < 1e-6 &&
                    fabs((double)running[1] - expected_variance) < 1e-6);
        run_pass(nn, &e, 150, false, NULL);
        assert_true(fabs((double)running[0] - (0.9 * expected_mean + 0.1 * mean)) < 1e-6);
        example_free(&e);
        tutti_nn_close(nn);
    }
}

/* A block of one sample and one place has no spread: the norm gives its bias, and its
   variance stays out of the running one. */
static void a_single_value_does_not_update_the_running_variance(void **state)
{
    static const char *const backends[] = { "onednn", "reference" };

    (void)state;
    for (size_t which = 0; which < 2; which++) {
        const list *one = &lists[TUTTI_LENGTH(lists) - 1];
        nn_net net = build(one);
        example e = bent(&net, 1, 3);
        tutti_nn *nn = open_net(&net, backends[which], 1);
        size_t count;
        const float *running = tutti_nn_running(nn, &count);
        const double loss = run_pass(nn, &e, 1, false, NULL);

        assert_true(isfinite(loss));
        for (size_t c = 0; c < 16; c++)
            assert_true(running[16 + c] == 1 && isfinite(running[c]) && running[c] != 0);
        for (int k = 0; k < e.count; k++)
            for (size_t i = 0; i < e.params[k].count; i++)
                assert_true(isfinite(e.gradients[k][i]));
        example_free(&e);
        tutti_nn_close(nn);
    }
}

/* The caller's memory is used, with what stands in it. */
static void running_statistics_may_use_caller_memory(void **state)
{
    const list *l = &lists[6];
    nn_net net = build(l), same = build(l);
    example e = bent(&net, 9, 3);
    float mine[64];
    tutti_nn *theirs = open_net(&net, NULL, 9), *nn;
    double a, b;
    int64_t correct;
    size_t count;
    const float *other = tutti_nn_running(theirs, &count);

    (void)state;
    assert_int_equal(count, 64);
    run_pass(theirs, &e, 9, false, NULL);
    memcpy(mine, other, sizeof mine);
    assert_int_equal(tutti_nn_open_net(&nn, &same, &(tutti_nn_options){ .batch = 9, .running = mine }, NULL), TUTTI_OK);
    assert_ptr_equal(tutti_nn_running(nn, &count), mine);
    assert_int_equal(
        tutti_nn_evaluate(theirs, &(tutti_nn_samples){ .count = 9, .x = e.x, .labels = e.labels },
                          (const float *const *)e.values, &a, &correct, NULL),
        TUTTI_OK);
    assert_int_equal(
        tutti_nn_evaluate(nn, &(tutti_nn_samples){ .count = 9, .x = e.x, .labels = e.labels },
                          (const float *const *)e.values, &b, &correct, NULL),
        TUTTI_OK);
    assert_true(a == b);
    mine[3] += 1;
    assert_int_equal(
        tutti_nn_evaluate(nn, &(tutti_nn_samples){ .count = 9, .x = e.x, .labels = e.labels },
                          (const float *const *)e.values, &b, &correct, NULL),
        TUTTI_OK);
    assert_true(a != b);
    example_free(&e);
    tutti_nn_close(theirs);
    tutti_nn_close(nn);
}

/* ---- bits ---- */
static float **copies(const example *e)
{
    float **copy = calloc((size_t)e->count, sizeof *copy);

    for (int k = 0; k < e->count; k++) {
        copy[k] = malloc(e->params[k].count * sizeof(float));
        memcpy(copy[k], e->gradients[k], e->params[k].count * sizeof(float));
    }
    return copy;
}

static void free_copies(const example *e, float **copy)
{
    for (int k = 0; k < e->count; k++)
        free(copy[k]);
    free(copy);
}

/* 64 + 64 + 64 + 10 samples: ((0 1)(2 3)); and the statistics of four workers' passes, one block
   each, have for mean those of the one pass. */
static void a_pass_is_bitwise_the_tree_sum_of_blocks(void **state)
{
    const int64_t samples = 202;
    nn_net net = model("resnet(depth=8)", 8), same = model("resnet(depth=8)", 8);
    example e = bent(&net, samples, 3);
    tutti_nn *nn = open_net(&net, NULL, samples), *one = open_net(&same, NULL, 64);
    float **part[4], **whole;
    double loss = run_pass(nn, &e, samples, false, NULL), sum = 0, *mean;
    size_t count;
    double *running = running_of(nn, &count);

    (void)state;
    whole = copies(&e);
    mean = calloc(count, sizeof *mean);
    for (int b = 0; b < 4; b++) {
        const int64_t n = b < 3 ? 64 : 10;
        float *now = tutti_nn_running(one, &count);
        double l;
        for (size_t i = 0; i < count; i++)
            now[i] = 0;
        assert_int_equal(
            tutti_nn_pass(one,
                          &(tutti_nn_samples){ .count = n,
                                               .x = e.x + (size_t)b * 64 * 64,
                                               .labels = e.labels + b * 64 },
                          &(tutti_nn_step){ (double)samples, false, false,
                                            (const float *const *)e.values, e.gradients, NULL },
                          &l, NULL),
            TUTTI_OK);
        for (size_t i = 0; i < count; i++)
            mean[i] += (double)now[i] * (double)n / (double)samples;
        part[b] = copies(&e);
        sum += l;
    }
    assert_true(sum == loss);
    for (int k = 0; k < e.count; k++)
        for (size_t i = 0; i < e.params[k].count; i++)
            if ((part[0][k][i] + part[1][k][i]) + (part[2][k][i] + part[3][k][i]) != whole[k][i])
                fail_msg("%s[%zu] is not the tree of its blocks", e.params[k].name, i);
    for (int i = 0; i < net.image->map_count; i++) {
        const nn_map *m = &net.image->maps[i];
        for (size_t c = 0; c < 2 * m->weights && m->layer.kind == TUTTI_LAYER_BATCH_NORM; c++) {
            const size_t at = m->running + c;
            const double start = c < m->weights ? 0 : 1;
            assert_true(fabs(running[at] - (0.9 * start + mean[at])) < 1e-6 * (1 + fabs(mean[at])));
        }
    }
    for (int b = 0; b < 4; b++)
        free_copies(&e, part[b]);
    free_copies(&e, whole);
    free(mean);
    free(running);
    example_free(&e);
    tutti_nn_close(nn);
    tutti_nn_close(one);
}

static void the_same_call_gives_the_same_bits(void **state)
{
    nn_net net = model("resnet(depth=8)", 9), same = model("resnet(depth=8)", 9);
    example e = bent(&net, 21, 4);
    tutti_nn *a = open_net(&net, NULL, 21), *b = open_net(&same, NULL, 21);
    const double loss = run_pass(a, &e, 21, false, NULL);
    float **first = copies(&e);

    (void)state;
    for (int times = 0; times < 3; times++) {
        run_pass(a, &e, 5 + times, false, NULL); /* a pass of another size between leaves no trace */
        assert_true(run_pass(times % 2 == 0 ? a : b, &e, 21, false, NULL) == loss);
        for (int k = 0; k < e.count; k++)
            assert_memory_equal(first[k], e.gradients[k], e.params[k].count * sizeof(float));
    }
    for (int k = 0; k < e.count; k++) /* added to themselves: twice, exactly */
        memcpy(e.gradients[k], first[k], e.params[k].count * sizeof(float));
    run_pass(a, &e, 21, true, NULL);
    for (int k = 0; k < e.count; k++)
        for (size_t i = 0; i < e.params[k].count; i++)
            if (e.params[k].dims != 2) /* a product that adds sums in another order */
                assert_true(e.gradients[k][i] == 2 * first[k][i]);
    free_copies(&e, first);
    example_free(&e);
    tutti_nn_close(a);
    tutti_nn_close(b);
}

static void evaluation_loss_is_the_sum_of_single_sample_losses(void **state)
{
    nn_net net = model("resnet(depth=8)", 8);
    example e = bent(&net, 100, 4);
    tutti_nn *nn = open_net(&net, NULL, 8);
    double all, sum = 0;
    int64_t right, hits = 0;

    (void)state;
    run_pass(nn, &e, 8, false, NULL);
    assert_int_equal(
        tutti_nn_evaluate(nn, &(tutti_nn_samples){ .count = 100, .x = e.x, .labels = e.labels },
                          (const float *const *)e.values, &all, &right, NULL),
        TUTTI_OK);
    for (int64_t first = 0; first < 100; first += 48) { /* a run of an evaluation adds its samples up by itself */
        double part = 0;
        for (int64_t i = first; i < first + 48 && i < 100; i++) {
            double one;
            int64_t hit;
            assert_int_equal(
                tutti_nn_evaluate(
                    nn,
                    &(tutti_nn_samples){ .count = 1, .x = e.x + i * 64, .labels = e.labels + i },
                    (const float *const *)e.values, &one, &hit, NULL),
                TUTTI_OK);
            part += one;
            hits += hit;
        }
        sum += part;
    }
    assert_true(sum == all);
    assert_int_equal(hits, right);
    example_free(&e);
    tutti_nn_close(nn);
}

static void each_backend_describes_its_kernels(void **state)
{
    static const char *const backends[] = { "onednn", "reference" };
    char text[16384], little[20];

    (void)state;
    for (size_t which = 0; which < 2; which++) {
        nn_net net = model("resnet(depth=8)", 8);
        tutti_nn *nn = open_net(&net, backends[which], 2);
        const int length = tutti_nn_describe(nn, text, sizeof text);
        assert_int_equal(length, strlen(text));
        assert_non_null(strstr(text, "conv2d 0"));
        assert_null(strstr(text, "ref:"));
        assert_int_equal(tutti_nn_describe(nn, little, sizeof little), length);
        assert_int_equal(strlen(little), sizeof little - 1);
        assert_int_equal(tutti_nn_describe(nn, NULL, 0), length);
        tutti_nn_close(nn);
    }
}

/* ---- hooks ---- */
typedef struct heard { int needs, dones, readies, last, in_order; } heard;
static tutti_status on_need(void *user, int unit, bool backward, tutti_error *err)
{
    (void)unit, (void)backward, (void)err;
    ((heard *)user)->needs++;
    return TUTTI_OK;
}
static tutti_status on_done(void *user, int unit, bool backward, tutti_error *err)
{
    (void)unit, (void)backward, (void)err;
    ((heard *)user)->dones++;
    return TUTTI_OK;
}
static tutti_status on_ready(void *user, int param, tutti_error *err)
{
    heard *h = user;
    (void)err;
    h->in_order += param == h->last + 1;
    h->last = param;
    h->readies++;
    return TUTTI_OK;
}

static void units_are_acquired_and_gradients_ready_once_in_order(void **state)
{
    nn_net net = model("resnet(depth=8)", 8);
    example e = bent(&net, 70, 4);
    tutti_nn *nn = open_net(&net, NULL, 70);

    (void)state;
    for (int64_t n = 0; n <= 70; n += 35) {
        heard h = { .last = -1 };
        const tutti_nn_hooks hooks = { &h, on_need, on_done, on_ready };
        run_pass(nn, &e, n, false, &hooks);
        assert_int_equal(h.needs, 2 * net.image->unit_count);
        assert_int_equal(h.dones, 2 * net.image->unit_count);
        assert_int_equal(h.readies, e.count);
        assert_int_equal(h.in_order, e.count);
    }
    example_free(&e);
    tutti_nn_close(nn);
}

/* ---- what is no network ---- */
static void invalid_image_networks_are_rejected_with_a_message(void **state)
{
    static const struct { const char *sentence; list l; } bad[] = {
        { "begins with a conv2d layer", { "", { 1, 6, 6, 3 }, 3, { NORM, AVGPOOL, LINEAR(3) } } },
        { "has stride -1 and padding 0", { "", { 1, 6, 6, 3 }, 3, { CONV_P(4, 3, -1, 0), NORM, LINEAR(3) } } },
        { "it must be below 3", { "", { 1, 6, 6, 3 }, 2, { CONV_P(4, 3, 1, 3), LINEAR(3) } } },
        { "the groups must divide both", { "", { 3, 6, 6, 3 }, 2, { GROUPED(4, 3, 1, 1, 2), LINEAR(3) } } },
        { "does not fit into images of 2x6 with padding 1",
          { "", { 1, 2, 6, 3 }, 2, { CONV_P(4, 5, 1, 1), LINEAR(3) } } },
        { "put convolutions first", { "", { 1, 6, 6, 3 }, 4, { CONV_P(4, 3, 1, 1), AVGPOOL, CONV(4, 1), LINEAR(3) } } },
        { "(batch norm) comes after maps have become rows",
          { "", { 1, 6, 6, 3 }, 4, { CONV_P(4, 3, 1, 1), AVGPOOL, NORM, LINEAR(3) } } },
        { "is never joined", { "", { 1, 6, 6, 3 }, 4, { CONV_P(4, 3, 1, 1), BRANCH, NORM, LINEAR(3) } } },
        { "has no branch to join", { "", { 1, 6, 6, 3 }, 3, { CONV_P(4, 3, 1, 1), JOIN, LINEAR(3) } } },
        { "nothing between it and its branch",
          { "", { 1, 6, 6, 3 }, 4, { CONV_P(4, 3, 1, 1), BRANCH, JOIN, LINEAR(3) } } },
        { "directly follows another",
          { "", { 1, 6, 6, 3 }, 7, { CONV_P(4, 3, 1, 1), BRANCH, BRANCH, NORM, JOIN, JOIN, LINEAR(3) } } },
        { "cannot be added to the 4 x 6 x 6",
          { "", { 1, 6, 6, 3 }, 5, { CONV_P(4, 3, 1, 1), BRANCH, CONV_P(2, 3, 1, 1), JOIN, LINEAR(3) } } },
        { "the body may add channels, and divide both sides by a stride",
          { "", { 1, 6, 6, 3 }, 5, { CONV_P(4, 3, 1, 1), BRANCH, CONV_P(4, 3, 1, 0), JOIN, LINEAR(3) } } },
        { "(relu) must directly follow", { "", { 1, 6, 6, 3 }, 4, { CONV_P(4, 3, 1, 1), AVGPOOL, RELU, LINEAR(3) } } },
        { "these are rows already", { "", { 1, 6, 6, 3 }, 4, { CONV_P(4, 3, 1, 1), AVGPOOL, FLATTEN, LINEAR(3) } } },
        { "must end in a linear layer of as many outputs as the task has classes (3); this one ends in linear with 4",
          { "", { 1, 6, 6, 3 }, 2, { CONV_P(4, 3, 1, 1), LINEAR(4) } } },
        { "this one ends in batch norm with 4", { "", { 1, 6, 6, 3 }, 2, { CONV_P(4, 3, 1, 1), NORM } } },
        { "does not work on images",
          { "", { 1, 6, 6, 3 }, 3, { CONV_P(4, 3, 1, 1), { .kind = TUTTI_LAYER_GELU }, LINEAR(3) } } },
    };
    static const struct { const char *model, *sentence; int side; } specs[] = {
        { "resnet(depth=9)", "it must be 6n + 2",                                   8 },
        { "resnet(depth=2)", "depth",                                               8 },
        { "resnet(width=3)", "width",                                               8 },
        { "vgg(large)",      "small",                                               8 },
        { "vgg",             "vgg needs images of at least 8x8; this task has 7x7", 7 },
    };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(bad); i++) {
        tutti_error err = { 0 };
        nn_net net;
        assert_int_equal(tutti_nn_net_build(&net, bad[i].l.layers, bad[i].l.count, &bad[i].l.task, &err),
                         TUTTI_ERR_USAGE);
        if (strstr(err.text, bad[i].sentence) == NULL)
            fail_msg("'%s' is not in '%s'", bad[i].sentence, err.text);
    }
    for (size_t i = 0; i < TUTTI_LENGTH(specs); i++) {
        const tutti_nn_task task = { 1, specs[i].side, specs[i].side, 5 };
        tutti_error err = { 0 };
        nn_net net;
        assert_int_equal(tutti_nn_net_model(&net, specs[i].model, &task, &err), TUTTI_ERR_USAGE);
        if (strstr(err.text, specs[i].sentence) == NULL)
            fail_msg("'%s' is not in '%s'", specs[i].sentence, err.text);
    }
}

static void models_have_expected_parameter_and_statistic_counts(void **state)
{
    static const struct {
        const char *model;
        int count, statistics;
    } expected[] = { { "resnet(depth=8)", 7 + 14 + 2, 14 }, { "resnet", 19 + 38 + 2, 38 }, { "vgg", 6 + 12 + 4, 12 } };
    const tutti_nn_task task = { 1, 28, 28, 10 };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(expected); i++) {
        static tutti_nn_param params[128];
        static tutti_nn_statistic statistics[128];
        size_t values = 0, running = 0;
        int count, n;
        assert_int_equal(tutti_nn_params(expected[i].model, &task, params, 128, &count, NULL), TUTTI_OK);
        assert_int_equal(tutti_nn_statistics(expected[i].model, &task, statistics, 128, &n, NULL), TUTTI_OK);
        assert_int_equal(count, expected[i].count);
        assert_int_equal(n, expected[i].statistics);
        for (int k = 0; k < count; k++)
            values += params[k].count;
        if (i < 2) { /* n blocks of two convolutions a stage */
            const size_t blocks = i == 0 ? 1 : 3;
            size_t sum = 9 * 16 + 2 * 16 + 64 * 10 + 10;
            for (size_t stage = 0; stage < 3; stage++) {
                const size_t c = (size_t)16 << stage, before = stage > 0 ? c / 2 : c;
                sum += 9 * c * before + (2 * blocks - 1) * 9 * c * c + 2 * blocks * 2 * c;
            }
            assert_int_equal(values, sum);
        }
        for (int k = 0; k < n; k++) {
            assert_int_equal(statistics[k].first, running);
            assert_true(statistics[k].start == (float)(k % 2));
            assert_non_null(strstr(statistics[k].name, k % 2 == 0 ? ".running_mean" : ".running_var"));
            running += statistics[k].count;
        }
        assert_int_equal(tutti_nn_statistics("cnn", &task, NULL, 0, &n, NULL), TUTTI_OK);
        assert_int_equal(n, 0);
    }
}

/* ---- memory that runs out ---- */
static void failed_allocations_are_errors_and_later_calls_succeed(void **state)
{
    const tutti_nn_task task = { 1, 8, 8, 5 };
    const char *const spec = "resnet(depth=8)";
    nn_net net = model(spec, 8);
    example e = bent(&net, 7, 1);
    const float *const *values = (const float *const *)e.values;

    (void)state;
    tutti_nn_net_close(&net);
    for (int backend = 0; backend < 2; backend++) {
        const tutti_nn_options options = { .batch = 7, .backend = backend == 0 ? "onednn" : "reference" };
        tutti_status status = TUTTI_ERR_MEMORY;
        tutti_nn *nn = NULL, *fresh;
        int64_t correct;
        double loss, again;
        int n;
        for (n = 0; status != TUTTI_OK; n++) {
            tutti_error err = { 0 };
            allocations_left = n;
            status = tutti_nn_open(&nn, spec, &task, &options, &err);
            allocations_left = -1;
            assert_true(status == TUTTI_OK || (status == TUTTI_ERR_MEMORY && nn == NULL && err.text[0] != '\0'));
        }
        assert_true(n > 8);
        assert_int_equal(tutti_nn_open(&fresh, spec, &task, &options, NULL), TUTTI_OK);
        for (status = TUTTI_ERR_MEMORY, n = 0; status != TUTTI_OK; n++) { /* a pass of a new size */
            allocations_left = n;
            status = tutti_nn_pass(
                nn, &(tutti_nn_samples){ .count = 3, .x = e.x, .labels = e.labels },
                &(tutti_nn_step){ 3, false, false, values, e.gradients, NULL }, &loss, NULL);
            allocations_left = -1;
        }
        assert_int_equal(
            tutti_nn_pass(fresh, &(tutti_nn_samples){ .count = 3, .x = e.x, .labels = e.labels },
                          &(tutti_nn_step){ 3, false, false, values, e.gradients, NULL }, &again,
                          NULL),
            TUTTI_OK);
        assert_true(loss == again);
        for (status = TUTTI_ERR_MEMORY, n = 0; status != TUTTI_OK; n++) {
            allocations_left = n;
            status = tutti_nn_evaluate(
                nn, &(tutti_nn_samples){ .count = 7, .x = e.x, .labels = e.labels }, values, &loss,
                &correct, NULL);
            allocations_left = -1;
        }
        assert_int_equal(tutti_nn_evaluate(
                             fresh, &(tutti_nn_samples){ .count = 7, .x = e.x, .labels = e.labels },
                             values, &again, &correct, NULL),
                         TUTTI_OK);
        assert_true(loss == again);
        tutti_nn_close(nn);
        tutti_nn_close(fresh);
    }
    example_free(&e);
}

static void passes_of_known_sizes_allocate_nothing(void **state)
{
    nn_net net = model("vgg(small)", 8);
    example e = bent(&net, 9, 1);
    tutti_nn *nn = open_net(&net, NULL, 9);
    int64_t correct;
    double loss;

    (void)state;
    run_pass(nn, &e, 4, false, NULL);
    allocations_left = 0;
    run_pass(nn, &e, 9, false, NULL);
    run_pass(nn, &e, 4, true, NULL);
    run_pass(nn, &e, 9, true, NULL);
    allocations_left = -1;
    assert_int_equal(
        tutti_nn_evaluate(nn, &(tutti_nn_samples){ .count = 9, .x = e.x, .labels = e.labels },
                          (const float *const *)e.values, &loss, &correct, NULL),
        TUTTI_OK);
    run_pass(nn, &e, 9, false, NULL);
    allocations_left = 0;
    run_pass(nn, &e, 9, false, NULL);
    allocations_left = -1;
    example_free(&e);
    tutti_nn_close(nn);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reference_gradients_match_central_differences),
        cmocka_unit_test(onednn_losses_gradients_and_statistics_match_the_reference),
        cmocka_unit_test(models_agree_with_the_reference),
        cmocka_unit_test(running_statistics_follow_the_momentum_update),
        cmocka_unit_test(a_single_value_does_not_update_the_running_variance),
        cmocka_unit_test(running_statistics_may_use_caller_memory),
        cmocka_unit_test(a_pass_is_bitwise_the_tree_sum_of_blocks),
        cmocka_unit_test(the_same_call_gives_the_same_bits),
        cmocka_unit_test(evaluation_loss_is_the_sum_of_single_sample_losses),
        cmocka_unit_test(each_backend_describes_its_kernels),
        cmocka_unit_test(units_are_acquired_and_gradients_ready_once_in_order),
        cmocka_unit_test(invalid_image_networks_are_rejected_with_a_message),
        cmocka_unit_test(models_have_expected_parameter_and_statistic_counts),
        cmocka_unit_test(failed_allocations_are_errors_and_later_calls_succeed),
        cmocka_unit_test(passes_of_known_sizes_allocate_nothing),
    };
    return cmocka_run_group_tests_name("nn/image", tests, NULL, NULL);
}
