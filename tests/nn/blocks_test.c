/* Goal: a pass of many blocks of 64 samples gives the bits of its blocks' gradients added in the
   binary tree, so that splitting a batch over workers changes nothing; hooks are called once a unit
   whatever the number of blocks; and no more gradient sets are held than the tree needs. Method:
   random small networks, passes of 2 to 8 blocks with tails, both backends, written and added. */
#include "nn_test.h"

enum { BLOCK = 64 };

static void tree(float **part, int first, int n, size_t count, float *out)
{
    int half = 1;
    if (n == 1) {
        memcpy(out, part[first], count * sizeof *out);
        return;
    }
    while (2 * half < n)
        half *= 2;
    float *right = calloc(count, sizeof *right);
    tree(part, first, half, count, out);
    tree(part, first + half, n - half, count, right);
    for (size_t i = 0; i < count; i++)
        out[i] += right[i];
    free(right);
}

static void check(const char *model, const tutti_nn_task *task, const char *backend, int64_t samples, bool add)
{
    nn_net net;
    tutti_nn *nn, *small;
    tutti_error err;
    const int blocks = (int)((samples + BLOCK - 1) / BLOCK);
    double loss, sum = 0;

    assert_int_equal(tutti_nn_net_model(&net, model, task, &err), TUTTI_OK);
    example e = example_of(&net, samples, (uint64_t)samples);
    assert_int_equal(tutti_nn_open_net(&nn, &net, &(tutti_nn_options){ .backend = backend, .batch = samples }, &err),
                     TUTTI_OK);
    assert_int_equal(
        tutti_nn_open_net(&small, &net,
                          &(tutti_nn_options){ .backend = backend, .batch = samples < BLOCK ? samples : BLOCK }, &err),
        TUTTI_OK);
    float *part[PARAMS_MAX][8], *before[PARAMS_MAX];
    for (int k = 0; k < e.count; k++) {
        before[k] = calloc(e.params[k].count, sizeof(float));
        for (size_t i = 0; i < e.params[k].count; i++)
            e.gradients[k][i] = before[k][i] = add ? (float)tutti_normal((tutti_rng){ 9, (uint64_t)k, 0 }, i) : NAN;
    }
    for (int b = 0; b < blocks; b++) {
        float *gradients[PARAMS_MAX];
        double one;
        const int64_t n = b + 1 < blocks ? BLOCK : samples - (int64_t)b * BLOCK;
        for (int k = 0; k < e.count; k++)
            gradients[k] = part[k][b] = calloc(e.params[k].count, sizeof(float));
        assert_int_equal(
            tutti_nn_pass(small,
                          &(tutti_nn_samples){ .count = n,
                                               .x = e.x + (size_t)b * BLOCK * sample_values(&net),
                                               .labels = e.labels + (size_t)b * BLOCK },
                          &(tutti_nn_step){ (double)samples, false, false,
                                            (const float *const *)e.values, gradients, NULL },
                          &one, &err),
            TUTTI_OK);
        sum += one;
    }
    assert_int_equal(
        tutti_nn_pass(nn, &(tutti_nn_samples){ .count = samples, .x = e.x, .labels = e.labels },
                      &(tutti_nn_step){ (double)samples, add, false, (const float *const *)e.values,
                                        e.gradients, NULL },
                      &loss, &err),
        TUTTI_OK);
    assert_true(loss == sum);
    for (int k = 0; k < e.count && blocks > 1; k++) {
        float *expect = calloc(e.params[k].count, sizeof *expect);
        tree(part[k], 0, blocks, e.params[k].count, expect);
        for (size_t i = 0; i < e.params[k].count && add; i++)
            expect[i] = before[k][i] + expect[i];
        if (memcmp(expect, e.gradients[k], e.params[k].count * sizeof *expect) != 0)
            fail_msg("%s on %s, %lld samples%s: %s differs", model, backend, (long long)samples, add ? ", added" : "",
                     e.params[k].name);
        free(expect);
    }
    for (int k = 0; k < e.count; k++) {
        for (int b = 0; b < blocks; b++)
            free(part[k][b]);
        free(before[k]);
    }
    tutti_nn_close(nn);
    tutti_nn_close(small);
    example_free(&e);
}

static void a_pass_is_bitwise_the_tree_sum_of_blocks(void **state)
{
    static const int64_t samples[] = { 65, 128, 150, 192, 256, 300, 384, 448, 500 };
    const tutti_nn_task task = { 1, 12, 12, 5 };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(samples); i++)
        for (int add = 0; add < 2; add++) {
            check("mlp(hidden=24)", &task, "onednn", samples[i], add);
            check("mlp(hidden=24)", &task, "reference", samples[i], add);
            check("cnn", &task, "onednn", samples[i], add);
        }
}

/* One worker's 256 samples and four workers' 64: divisors a power of two apart,
   weights a quarter: the same bits. */
static void four_workers_with_64_samples_match_one_with_256(void **state)
{
    const tutti_nn_task task = { 1, 28, 28, 10 };
    nn_net net;
    tutti_nn *one, *four;
    tutti_error err;
    double loss;
    float *part[PARAMS_MAX][4];

    (void)state;
    assert_int_equal(tutti_nn_net_model(&net, "mlp(hidden=96)", &task, &err), TUTTI_OK);
    example e = example_of(&net, 256, 3);
    assert_int_equal(tutti_nn_open_net(&one, &net, &(tutti_nn_options){ .batch = 256 }, &err), TUTTI_OK);
    assert_int_equal(tutti_nn_open_net(&four, &net, &(tutti_nn_options){ .batch = 64 }, &err), TUTTI_OK);
    assert_int_equal(
        tutti_nn_pass(one, &(tutti_nn_samples){ .count = 256, .x = e.x, .labels = e.labels },
                      &(tutti_nn_step){ 256, false, false, (const float *const *)e.values,
                                        e.gradients, NULL },
                      &loss, &err),
        TUTTI_OK);
    for (int w = 0; w < 4; w++) {
        float *gradients[PARAMS_MAX];
        for (int k = 0; k < e.count; k++)
            gradients[k] = part[k][w] = calloc(e.params[k].count, sizeof(float));
        assert_int_equal(
            tutti_nn_pass(four,
                          &(tutti_nn_samples){ .count = 64,
                                               .x = e.x + (size_t)w * 64 * 784,
                                               .labels = e.labels + w * 64 },
                          &(tutti_nn_step){ 64, false, false, (const float *const *)e.values,
                                            gradients, NULL },
                          &loss, &err),
            TUTTI_OK);
    }
    for (int k = 0; k < e.count; k++) {
        for (size_t i = 0; i < e.params[k].count; i++) {
            const float sum =
                (0.25f * part[k][0][i] + 0.25f * part[k][1][i]) + (0.25f * part[k][2][i] + 0.25f * part[k][3][i]);
            assert_true(sum == e.gradients[k][i]);
        }
        for (int w = 0; w < 4; w++)
            free(part[k][w]);
    }
    tutti_nn_close(one);
    tutti_nn_close(four);
    example_free(&e);
}

/* What a pass of that many blocks needs in addition to activations: sets of gradients, one less
   than the tree has levels, for the caller's is one of them, and space for the largest layer. */
static void gradient_buffers_are_as_few_as_the_tree_needs(void **state)
{
    static const struct { int64_t batch; size_t sets; } rows[] = {
        { 128, 0 }, { 192, 0 }, { 256, 1 }, { 448, 1 }, { 512, 2 }, { 1024, 3 }
    };
    const tutti_nn_task task = { 1, 12, 12, 5 };
    const size_t layer = 160 * 160 + 160, all = 144 * 160 + 160 + layer + 160 * 5 + 5, slack = 4096;

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(rows); i++) {
        tutti_nn *one, *nn;
        nn_net net;
        double loss;
        assert_int_equal(tutti_nn_open(&one, "mlp(hidden=160)", &task, &(tutti_nn_options){ .batch = 64 }, NULL),
                         TUTTI_OK);
        assert_int_equal(
            tutti_nn_open(&nn, "mlp(hidden=160)", &task, &(tutti_nn_options){ .batch = rows[i].batch }, NULL),
            TUTTI_OK);
        const size_t bytes = tutti_nn_bytes(nn);
        assert_in_range(bytes - tutti_nn_bytes(one), (rows[i].sets * all + layer) * 4,
                        (rows[i].sets * all + layer) * 4 + slack);
        /* the gradients that a pass adds to come in addition */
        assert_int_equal(tutti_nn_net_model(&net, "mlp(hidden=160)", &task, NULL), TUTTI_OK);
        example e = example_of(&net, rows[i].batch, 5);
        assert_int_equal(
            tutti_nn_pass(
                nn, &(tutti_nn_samples){ .count = rows[i].batch, .x = e.x, .labels = e.labels },
                &(tutti_nn_step){ 1, true, false, (const float *const *)e.values, e.gradients,
                                  NULL },
                &loss, NULL),
            TUTTI_OK);
        assert_int_equal(tutti_nn_bytes(nn), bytes + all * 4);
        tutti_nn_close(nn);
        /* and from the beginning, where passes are known to add */
        assert_int_equal(tutti_nn_open(&nn, "mlp(hidden=160)", &task,
                                       &(tutti_nn_options){ .batch = rows[i].batch, .adds = true }, NULL),
                         TUTTI_OK);
        assert_int_equal(tutti_nn_bytes(nn), bytes + all * 4);
        assert_int_equal(
            tutti_nn_pass(
                nn, &(tutti_nn_samples){ .count = rows[i].batch, .x = e.x, .labels = e.labels },
                &(tutti_nn_step){ 1, true, false, (const float *const *)e.values, e.gradients,
                                  NULL },
                &loss, NULL),
            TUTTI_OK);
        assert_int_equal(tutti_nn_bytes_most(nn), bytes + all * 4);
        example_free(&e);
        tutti_nn_close(one);
        tutti_nn_close(nn);
    }
}

/* An evaluation computes more samples at a time than a pass of four, and gives that back. */
static void peak_memory_counts_buffers_an_evaluation_freed(void **state)
{
    const tutti_nn_task task = { 1, 12, 12, 5 };
    const size_t layers = (160 + 160 + 5) * sizeof(float);
    tutti_nn *nn;
    nn_net net;
    int64_t correct;
    double loss;

    (void)state;
    assert_int_equal(tutti_nn_net_model(&net, "mlp(hidden=160)", &task, NULL), TUTTI_OK);
    example e = example_of(&net, 64, 5);
    assert_int_equal(tutti_nn_open(&nn, "mlp(hidden=160)", &task, &(tutti_nn_options){ .batch = 4 }, NULL), TUTTI_OK);
    const size_t bytes = tutti_nn_bytes(nn);
    assert_int_equal(tutti_nn_bytes_most(nn), bytes);
    assert_int_equal(
        tutti_nn_evaluate(nn, &(tutti_nn_samples){ .count = 64, .x = e.x, .labels = e.labels },
                          (const float *const *)e.values, &loss, &correct, NULL),
        TUTTI_OK);
    assert_int_equal(tutti_nn_bytes(nn), bytes);
    assert_in_range(tutti_nn_bytes_most(nn), bytes + 16 * layers, bytes + 256 * layers);
    example_free(&e);
    tutti_nn_close(nn);
}

typedef struct calls { char text[512]; } calls;

static tutti_status note(calls *c, char what, int unit, bool backward)
{
    const size_t at = strlen(c->text);
    snprintf(c->text + at, sizeof c->text - at, "%c%d%c ", what, unit, backward ? 'b' : 'f');
    return TUTTI_OK;
}
static tutti_status on_need(void *user, int unit, bool backward, tutti_error *err)
{
    (void)err;
    return note(user, 'n', unit, backward);
}
static tutti_status on_done(void *user, int unit, bool backward, tutti_error *err)
{
    (void)err;
    return note(user, 'd', unit, backward);
}
static tutti_status on_ready(void *user, int param, tutti_error *err)
{
    (void)err;
    return note(user, 'r', param, true);
}

static void hooks_are_called_once_however_many_blocks(void **state)
{
    const tutti_nn_task task = { 1, 12, 12, 5 };
    nn_net net;
    tutti_nn *nn;
    tutti_error err;
    double loss;
    calls c = { "" };
    const tutti_nn_hooks hooks = { &c, on_need, on_done, on_ready };

    (void)state;
    assert_int_equal(tutti_nn_net_model(&net, "mlp(hidden=8)", &task, &err), TUTTI_OK);
    example e = example_of(&net, 200, 1);
    assert_int_equal(tutti_nn_open_net(&nn, &net, &(tutti_nn_options){ .batch = 200 }, &err), TUTTI_OK);
    assert_int_equal(
        tutti_nn_pass(nn, &(tutti_nn_samples){ .count = 200, .x = e.x, .labels = e.labels },
                      &(tutti_nn_step){ 200, false, false, (const float *const *)e.values,
                                        e.gradients, &hooks },
                      &loss, &err),
        TUTTI_OK);
    assert_string_equal(c.text, "n0f n1f n2f d0f d1f d2f n2b r0b r1b d2b n1b r2b r3b d1b n0b r4b r5b d0b ");
    tutti_nn_close(nn);
    example_free(&e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pass_is_bitwise_the_tree_sum_of_blocks),
        cmocka_unit_test(four_workers_with_64_samples_match_one_with_256),
        cmocka_unit_test(gradient_buffers_are_as_few_as_the_tree_needs),
        cmocka_unit_test(peak_memory_counts_buffers_an_evaluation_freed),
        cmocka_unit_test(hooks_are_called_once_however_many_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
