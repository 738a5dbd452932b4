/* Goal: networks of categories compute PyTorch's numbers and their formulas, and keep the
   promises of nn.h: the tree over blocks to the bit, with whole gradients as well as with
   rows, rows named exactly, nothing else touched, evaluations that do not depend on how they
   are split, and error sentences. Method: categories.h from PyTorch (categories.py); an
   oracle in double that only goes forward, and central differences of its loss; every
   allocation failing in turn. */
#include "nn/sequence.h"
#include "allocations.h"
#include "nn_test.h"
#include "categories.h"

enum { PARAMS = 12 };

typedef struct clicks {
    tutti_nn_task task;
    int count;
    int64_t samples;
    tutti_nn_param p[PARAMS];
    float *values[PARAMS], *gradients[PARAMS], *x;
    uint32_t *rows;
    uint8_t *labels;
} clicks;

static clicks clicks_of(const char *model, int tables, uint32_t rows, int width, int64_t samples, uint64_t seed)
{
    clicks c = { .task = { 1, 1, width, 2, 0, tables, rows }, .samples = samples };
    tutti_error err = { 0 };

    if (tutti_nn_params(model, &c.task, c.p, PARAMS, &c.count, &err) != TUTTI_OK)
        fail_msg("%s", err.text);
    for (int k = 0; k < c.count; k++) {
        const tutti_rng rng = { .seed = seed, .stream = 77 + (uint64_t)k };
        c.values[k] = calloc(c.p[k].count, sizeof(float));
        c.gradients[k] = calloc(c.p[k].count, sizeof(float));
        for (size_t i = 0; i < c.p[k].count; i++) /* of a size at which every layer bends */
            c.values[k][i] = (float)(tutti_normal(rng, i) *
                                     (c.p[k].fan_in > 0 && c.p[k].dims == 2 ? 1.3 / sqrt((double)c.p[k].fan_in) : 0.7));
    }
    c.x = calloc((size_t)samples * (size_t)width + 1, sizeof *c.x);
    c.rows = calloc((size_t)samples * (size_t)tables + 1, sizeof *c.rows);
    c.labels = calloc((size_t)samples + 1, 1);
    for (size_t i = 0; i < (size_t)samples * (size_t)width; i++)
        c.x[i] = (float)tutti_normal((tutti_rng){ seed, 3, 0 }, i);
    for (size_t i = 0; i < (size_t)samples * (size_t)tables; i++)
        c.rows[i] = (uint32_t)(tutti_random((tutti_rng){ seed, 4, 0 }, i) % rows);
    for (size_t i = 0; i < (size_t)samples; i++)
        c.labels[i] = tutti_random((tutti_rng){ seed, 5, 0 }, i) % 2;
    return c;
}

static void clicks_free(clicks *c)
{
    for (int k = 0; k < c->count; k++) {
        free(c->values[k]);
        free(c->gradients[k]);
    }
    free(c->x);
    free(c->rows);
    free(c->labels);
}

static tutti_nn *open_model(const char *model, const tutti_nn_task *task, int64_t batch)
{
    tutti_error err = { 0 };
    tutti_nn *nn;

    if (tutti_nn_open(&nn, model, task, &(tutti_nn_options){ .batch = batch }, &err) != TUTTI_OK)
        fail_msg("%s", err.text);
    return nn;
}

/* Samples [first, first + n) of c into `gradients`. */
static double pass(tutti_nn *nn, const clicks *c, int64_t first, int64_t n, double divisor, bool add,
                   float *const *gradients, const tutti_nn_hooks *hooks)
{
    tutti_error err = { 0 };
    double loss;

    if (tutti_nn_pass_rows(nn,
                           &(tutti_nn_samples){ .count = n,
                                                .x = c->x + first * c->task.width,
                                                .labels = c->labels + first,
                                                .rows = c->rows + first * c->task.tables },
                           &(tutti_nn_step){ divisor, add, false, (const float *const *)c->values,
                                             gradients, hooks },
                           &loss, &err) != TUTTI_OK)
        fail_msg("%s", err.text);
    return loss;
}

/* ---- PyTorch ---- */
static void near(const char *model, const char *name, const char *what, double got, double expected, double tolerance)
{
    if (!(fabs(got - expected) <= tolerance))
        fail_msg("%s, %s: %s is %.9g, PyTorch has %.9g", model, name, what, got, expected);
}

/* Tolerances as in tokens_test.c. */
static void losses_logits_and_gradients_match_pytorch(void **state)
{
    (void)state;
    for (size_t v = 0; v < TUTTI_LENGTH(category_nets); v++) {
        const category_net *e = &category_nets[v];
        clicks c = clicks_of(e->model, e->tables, e->rows, e->values, e->samples, 1);
        tutti_nn *nn = open_model(e->model, &c.task, e->samples);
        float *logits = calloc((size_t)e->samples, sizeof *logits);
        double loss, overall = 0;
        int64_t correct;

        assert_int_equal(c.count, e->count);
        for (int k = 0; k < c.count; k++)
            for (size_t i = 0; i < c.p[k].count; i++) {
                const double wave = sin(0.37 * (double)i + 1.3 * k);
                c.values[k][i] = (float)(c.p[k].row_sparse  ? wave
                                         : c.p[k].dims == 1 ? wave / 4
                                                            : 2 * wave / sqrt((double)c.p[k].cols));
            }
        for (size_t s = 0; s < (size_t)e->samples; s++) {
            for (size_t t = 0; t < (size_t)e->tables; t++)
                c.rows[s * (size_t)e->tables + t] = (uint32_t)((7 * s * s + 3 * s * t + 5 * t + 1) % e->rows);
            for (size_t j = 0; j < (size_t)e->values; j++)
                c.x[s * (size_t)e->values + j] = (float)sin(1.1 * (double)s + 0.7 * (double)j);
            c.labels[s] = s * s % 3 == 1;
        }
        near(e->model, "pass", "loss", pass(nn, &c, 0, e->samples, (double)e->samples, false, c.gradients, NULL),
             e->loss, 1e-5 * e->loss);
        for (int k = 0; k < c.count; k++)
            overall += pow(e->tensors[k].norm, 2);
        for (int k = 0; k < c.count; k++) {
            const category_tensor *t = &e->tensors[k];
            const double tolerance = 2e-5 * t->norm + 2e-7 * sqrt(overall);
            double sum = 0, square = 0;
            assert_string_equal(c.p[k].name, t->name);
            assert_int_equal(c.p[k].count, t->count);
            for (size_t i = 0; i < t->count; i++) {
                sum += (double)c.gradients[k][i];
                square += pow((double)c.gradients[k][i], 2);
            }
            near(e->model, t->name, "norm", sqrt(square), t->norm, tolerance);
            near(e->model, t->name, "sum", sum, t->sum, tolerance * sqrt((double)t->count));
            for (int i = 0; i < 4; i++)
                near(e->model, t->name, "an element", (double)c.gradients[k][t->place[i]], t->at[i], tolerance);
        }
        assert_int_equal(
            tutti_nn_evaluate_rows(
                nn,
                &(tutti_nn_samples){
                    .count = e->samples, .x = c.x, .labels = c.labels, .rows = c.rows },
                (const float *const *)c.values, &(tutti_nn_score){ &loss, &correct, logits }, NULL),
            TUTTI_OK);
        near(e->model, "evaluation", "loss", loss, e->loss, 1e-5 * e->loss);
        assert_int_equal(correct, e->correct);
        near(e->model, "evaluation", "the first logit", (double)logits[0], e->logits[0],
             1e-5 * (1 + fabs(e->logits[0])));
        near(e->model, "evaluation", "the last logit", (double)logits[e->samples - 1], e->logits[1],
             1e-5 * (1 + fabs(e->logits[1])));
        tutti_nn_close(nn);
        free(logits);
        clicks_free(&c);
    }
}

/* ---- the oracle: forward only, in double ---- */
static double oracle_loss(const clicks *c, int dim, int layers, int moved, size_t place, double by)
{
    double loss = 0;

    for (int64_t s = 0; s < c->samples; s++) {
        double a[600], b[600];
        size_t wide = 0;
        const int table = c->count - 1;
        for (int t = 0; t < c->task.tables; t++)
            for (int j = 0; j < dim; j++) {
                const size_t i = ((size_t)t * c->task.rows + c->rows[s * c->task.tables + t]) * (size_t)dim + (size_t)j;
                a[wide++] = (double)c->values[table][i] + (moved == table && place == i ? by : 0);
            }
        for (int j = 0; j < c->task.width; j++)
            a[wide++] = (double)c->x[s * c->task.width + j];
        for (int l = layers; l >= 0; l--) { /* parameters stand last layer first */
            const size_t out = c->p[2 * l].rows;
            assert_int_equal(c->p[2 * l].cols, wide);
            for (size_t o = 0; o < out; o++) {
                b[o] = (double)c->values[2 * l + 1][o] + (moved == 2 * l + 1 && place == o ? by : 0);
                for (size_t i = 0; i < wide; i++)
                    b[o] +=
                        ((double)c->values[2 * l][o * wide + i] + (moved == 2 * l && place == o * wide + i ? by : 0)) *
                        a[i];
            }
            for (size_t o = 0; o < out; o++)
                a[o] = l > 0 ? fmax(b[o], 0) : b[o];
            wide = out;
        }
        loss += fmax(a[0], 0) + log1p(exp(-fabs(a[0]))) - (c->labels[s] ? a[0] : 0);
    }
    return loss;
}

static void losses_and_gradients_match_the_formulas(void **state)
{
    static const struct { int tables; uint32_t rows; int width, dim, layers, hidden; int64_t samples;
    } cases[] = {
        { 1, 2, 1, 1, 0, 1, 1 },      { 3, 5, 2, 4, 1, 7, 9 },    { 26, 40, 13, 8, 2, 33, 64 },
        { 2, 300, 6, 17, 3, 16, 71 }, { 7, 3, 1, 5, 2, 48, 200 },
    };

    (void)state;
    for (size_t v = 0; v < TUTTI_LENGTH(cases); v++) {
        char model[80];
        snprintf(model, sizeof model, "ctr(dim=%d,layers=%d,hidden=%d)", cases[v].dim, cases[v].layers,
                 cases[v].hidden);
        clicks c = clicks_of(model, cases[v].tables, cases[v].rows, cases[v].width, cases[v].samples, 10 + v);
        tutti_nn *nn = open_model(model, &c.task, cases[v].samples);
        const double loss = pass(nn, &c, 0, c.samples, 1, false, c.gradients, NULL),
                     expected = oracle_loss(&c, cases[v].dim, cases[v].layers, -1, 0, 0);

        if (!(fabs(loss - expected) <= 1e-5 * expected))
            fail_msg("%s: loss %.9g instead of %.9g", model, loss, expected);
        for (int k = 0; k < c.count; k++)
            for (int trial = 0; trial < 12; trial++) {
                size_t i = (size_t)(tutti_random((tutti_rng){ v, 9, (uint64_t)k }, (uint64_t)trial) % c.p[k].count);
                const double h = 1e-5;
                if (c.p[k].row_sparse && trial % 2 == 0) /* one that is looked up, of any table */
                    i = ((size_t)(trial % c.task.tables) * c.task.rows + c.rows[trial % c.task.tables]) *
                            (size_t)cases[v].dim +
                        (size_t)(trial % cases[v].dim);
                const double up = oracle_loss(&c, cases[v].dim, cases[v].layers, k, i, h),
                             down = oracle_loss(&c, cases[v].dim, cases[v].layers, k, i, -h),
                             slope = (up - down) / (2 * h);
                /* a ReLU may turn over within h, seldom by much */
                if (!(fabs((double)c.gradients[k][i] - slope) <= 2e-4 * (1 + fabs(slope))))
                    fail_msg("%s, %s, element %zu: gradient %.9g, the loss rises by %.9g", model, c.p[k].name, i,
                             (double)c.gradients[k][i], slope);
            }
        tutti_nn_close(nn);
        clicks_free(&c);
    }
}

/* ---- blocks, rows, adding ---- */
typedef struct told { const clicks *c; const uint32_t *ids; size_t n; uint32_t kept[8000]; int calls, dense; } told;

static tutti_status on_ready(void *user, int param, tutti_error *err)
{
    told *t = user;
    (void)err;
    t->dense++;
    assert_false(t->c->p[param].row_sparse);
    return TUTTI_OK;
}

static tutti_status on_ready_rows(void *user, int param, const uint32_t *ids, size_t n, tutti_error *err)
{
    told *t = user;
    (void)err;
    assert_true(t->c->p[param].row_sparse && n <= TUTTI_LENGTH(t->kept));
    memcpy(t->kept, ids, n * sizeof *ids);
    t->n = n;
    t->calls++;
    return TUTTI_OK;
}

static float **same_shape(const clicks *c)
{
    float **g = calloc((size_t)c->count, sizeof *g);
    for (int k = 0; k < c->count; k++)
        g[k] = calloc(c->p[k].count, sizeof(float));
    return g;
}

static void drop(const clicks *c, float **g)
{
    for (int k = 0; k < c->count; k++)
        free(g[k]);
    free(g);
}

static void check_equal(const clicks *c, float *const *a, float *const *b, const char *what)
{
    for (int k = 0; k < c->count; k++)
        if (memcmp(a[k], b[k], c->p[k].count * sizeof(float)) != 0)
            fail_msg("%s: %s differs", what, c->p[k].name);
}

/* Blocks of 64 and a tree over them: 450 samples have 8 blocks, the last one short; every prefix
   is another tree. Whole gradients and rows have the same bits, and rows name exactly what they
   touched: a NaN that stands in any other row stays. */
static void dense_and_row_gradients_are_tree_sums_of_blocks(void **state)
{
    static const int64_t sizes[] = { 1, 63, 64, 65, 128, 129, 200, 256, 320, 385, 450 };
    const char *model = "ctr(dim=3,layers=1,hidden=10)";
    clicks c = clicks_of(model, 4, 150, 2, 450, 5);
    const int table = c.count - 1;
    tutti_nn *nn = open_model(model, &c.task, 450), *small = open_model(model, &c.task, 64);
    float **tree[9], **g = same_shape(&c);
    static told t;

    (void)state;
    t.c = &c;
    for (int i = 0; i < 9; i++)
        tree[i] = same_shape(&c);
    for (size_t v = 0; v < TUTTI_LENGTH(sizes); v++) {
        const int64_t n = sizes[v], blocks = (n + 63) / 64;
        const tutti_nn_hooks hooks = { .user = &t, .grad_ready = on_ready, .grad_ready_rows = on_ready_rows };
        bool named[600] = { 0 };
        size_t distinct = 0, at = 0;
        double loss = 0;

        for (int64_t b = 0; b < blocks; b++)
            loss += pass(small, &c, b * 64, n - b * 64 < 64 ? n - b * 64 : 64, (double)n, false, tree[b], NULL);
        for (int64_t width = 1; width < blocks; width *= 2)
            for (int64_t b = 0; b + width < blocks; b += 2 * width)
                for (int k = 0; k < c.count; k++)
                    for (size_t i = 0; i < c.p[k].count; i++)
                        tree[b][k][i] += tree[b + width][k][i];
        memset(g[table], 0x7f, c.p[table].count * sizeof(float)); /* what stood there does not matter */
        assert_true(pass(nn, &c, 0, n, (double)n, false, g, NULL) == loss);
        check_equal(&c, g, tree[0], "whole gradients");

        for (int64_t i = 0; i < n * 4; i++)
            named[i % 4 * 150 + c.rows[i]] = true;
        for (size_t r = 0; r < 600; r++) {
            for (int j = 0; j < 3; j++)
                g[table][3 * r + (size_t)j] = named[r] ? 0 : NAN;
            distinct += named[r];
        }
        t.calls = t.dense = 0;
        assert_true(pass(nn, &c, 0, n, (double)n, false, g, &hooks) == loss);
        assert_int_equal(t.calls, 1);
        assert_int_equal(t.dense, c.count - 1);
        assert_int_equal(t.n, distinct);
        for (size_t r = 0; r < 600; r++)
            if (named[r]) {
                assert_int_equal(t.kept[at++], r);
                assert_memory_equal(&g[table][3 * r], &tree[0][table][3 * r], 3 * sizeof(float));
            } else
                assert_true(isnan(g[table][3 * r]) && isnan(g[table][3 * r + 2]));
        for (int k = 0; k < table; k++)
            assert_memory_equal(g[k], tree[0][k], c.p[k].count * sizeof(float));
    }
    for (int i = 0; i < 9; i++)
        drop(&c, tree[i]);
    drop(&c, g);
    tutti_nn_close(nn);
    tutti_nn_close(small);
    clicks_free(&c);
}

static void gradients_accumulate_and_empty_passes_give_zeros(void **state)
{
    const char *model = "ctr(dim=2,layers=2,hidden=6)";
    clicks c = clicks_of(model, 3, 20, 4, 300, 8);
    tutti_nn *nn = open_model(model, &c.task, 200);
    float **a = same_shape(&c), **b = same_shape(&c), **sum = same_shape(&c);
    static told t;
    const tutti_nn_hooks hooks = { .user = &t, .grad_ready = on_ready, .grad_ready_rows = on_ready_rows };

    (void)state;
    t.c = &c;
    pass(nn, &c, 0, 200, 300, false, a, NULL);
    pass(nn, &c, 200, 100, 300, false, b, NULL);
    pass(nn, &c, 0, 200, 300, false, sum, NULL);
    pass(nn, &c, 200, 100, 300, true, sum, NULL);
    for (int k = 0; k < c.count; k++)
        for (size_t i = 0; i < c.p[k].count; i++)
            a[k][i] += b[k][i];
    /* several blocks are summed before they are added, a single one into what is there:
       products of layers then round otherwise */
    check_equal(&c, sum, a, "a pass of two blocks added");
    pass(nn, &c, 200, 0, 1, true, sum, NULL);
    check_equal(&c, sum, a, "no samples added");
    t.calls = t.dense = 0;
    pass(nn, &c, 200, 0, 1, true, sum, &hooks);
    check_equal(&c, sum, a, "no rows added");
    assert_int_equal(t.calls, 1);
    assert_int_equal(t.n, 0);
    pass(nn, &c, 0, 0, 1, false, sum, NULL);
    for (int k = 0; k < c.count; k++)
        for (size_t i = 0; i < c.p[k].count; i++)
            assert_true(sum[k][i] == 0);
    drop(&c, a);
    drop(&c, b);
    drop(&c, sum);
    tutti_nn_close(nn);
    clicks_free(&c);
}

/* ---- evaluation ---- */
static void logits_do_not_depend_on_evaluation_batch_size(void **state)
{
    const char *model = "ctr(dim=5,hidden=40)";
    clicks c = clicks_of(model, 6, 30, 3, 1500, 3);
    tutti_nn *nn = open_model(model, &c.task, 64);
    float *whole = calloc(1500, sizeof *whole), one[7];
    double loss, sum = 0, part;
    int64_t correct, hits, right = 0;

    (void)state;
    assert_int_equal(
        tutti_nn_evaluate_rows(
            nn, &(tutti_nn_samples){ .count = 1500, .x = c.x, .labels = c.labels, .rows = c.rows },
            (const float *const *)c.values, &(tutti_nn_score){ &loss, &correct, whole }, NULL),
        TUTTI_OK);
    for (int64_t at = 0; at < 1500; at += 211) {
        const int64_t n = 1500 - at < 7 ? 1500 - at : 7;
        assert_int_equal(tutti_nn_evaluate_rows(nn,
                                                &(tutti_nn_samples){ .count = n,
                                                                     .x = c.x + at * 3,
                                                                     .labels = c.labels + at,
                                                                     .rows = c.rows + at * 6 },
                                                (const float *const *)c.values,
                                                &(tutti_nn_score){ &part, &hits, one }, NULL),
                         TUTTI_OK);
        assert_memory_equal(one, whole + at, (size_t)n * sizeof *one);
    }
    for (int64_t i = 0; i < 1500; i++) {
        sum += fmax((double)whole[i], 0) + log1p(exp(-fabs((double)whole[i]))) - (c.labels[i] ? (double)whole[i] : 0);
        right += (whole[i] > 0) == c.labels[i];
    }
    assert_true(fabs(sum - loss) < 1e-5 * sum);
    assert_int_equal(correct, right);
    assert_int_equal(
        tutti_nn_evaluate_rows(
            nn, &(tutti_nn_samples){ .count = 1500, .x = c.x, .labels = c.labels, .rows = c.rows },
            (const float *const *)c.values, &(tutti_nn_score){ &part, &hits, NULL }, NULL),
        TUTTI_OK);
    assert_true(part == loss && hits == correct);
    free(whole);
    tutti_nn_close(nn);
    clicks_free(&c);
}

/* Far from 0 a logit's loss is its size and its slope 0 or 1, without overflow. */
static void extreme_logits_stay_finite_and_nan_propagates(void **state)
{
    const char *model = "ctr(layers=0,dim=1)";
    clicks c = clicks_of(model, 1, 2, 1, 4, 1);
    tutti_nn *nn = open_model(model, &c.task, 4);
    const float x[] = { 200, -200, 200, -200 };

    (void)state;
    memcpy(c.x, x, sizeof x);
    memcpy(c.labels, (uint8_t[]){ 1, 0, 0, 1 }, 4);
    c.values[0][0] = 0;
    c.values[0][1] = 1;
    c.values[1][0] = 0;
    assert_true(fabs(pass(nn, &c, 0, 4, 4, false, c.gradients, NULL) - 400) < 1e-3);
    assert_true(fabs((double)c.gradients[0][1] - 100) < 1e-3); /* (0 + 0 + 200 + 200) / 4 */
    c.values[1][0] = NAN;
    assert_true(isnan(pass(nn, &c, 0, 4, 4, false, c.gradients, NULL)));
    assert_true(isnan(c.gradients[1][0]));
    tutti_nn_close(nn);
    clicks_free(&c);
}

/* ---- refusals ---- */
static void refused_model(const char *model, tutti_nn_task task, const char *sentence)
{
    tutti_error err = { 0 };
    int count = 9;

    assert_int_equal(tutti_nn_params(model, &task, NULL, 0, &count, &err), TUTTI_ERR_USAGE);
    assert_int_equal(count, 0);
    if (strstr(err.text, sentence) == NULL)
        fail_msg("'%s' does not contain '%s'", err.text, sentence);
}

static void unsuitable_tasks_and_layers_are_rejected(void **state)
{
    const tutti_nn_task log = { 1, 1, 13, 2, 0, 26, 1000 };
    const tutti_layer tables = { .kind = TUTTI_LAYER_TABLES, .out = 4 };
    const tutti_layer twice[] = { tables, tables, LINEAR(1) }, two[] = { tables, LINEAR(2) },
                      none[] = { tables, RELU, LINEAR(1) },
                      embedding[] = { { .kind = TUTTI_LAYER_EMBEDDING, .out = 4 }, LINEAR(1) };
    static const struct {
        int count;
        const char *sentence;
    } lists[] = { { 3, "one of frames with frames, one of categories with tables" },
                  { 2, "must end in a linear layer of one output, the logit; this one ends in linear with 2" },
                  { 3, "layer 1 (relu) must follow a linear layer" } };
    const tutti_layer *const layers[] = { twice, two, none };
    tutti_error err = { 0 };
    nn_net net;

    (void)state;
    refused_model("ctr", (tutti_nn_task){ 1, 28, 28, 10 },
                  "ctr needs samples with categories, and this task's have none");
    refused_model("ctr(tables=25)", log, "ctr with tables=25 on data of 26 categories; leave tables out");
    refused_model("ctr(rows=999)", log, "ctr with rows=999 on categories that are hashed to 1000 rows");
    refused_model("mlp", log, "this network takes values only, and the task has 26 categories; ctr takes categories");
    refused_model("gpt", log, "gpt needs windows of tokens");
    refused_model("ctr", (tutti_nn_task){ 1, 1, 13, 3, 0, 26, 1000 }, "classes 2");
    refused_model("ctr", (tutti_nn_task){ 1, 1, 13, 2, 5, 26, 1000 }, "without a context");
    refused_model("ctr", (tutti_nn_task){ 1, 1, 13, 2, 0, 26, 4000000000u },
                  "26 tables of 4000000000 rows of 16 values");
    refused_model("ctr(dim=65536)", log, "26 tables of 1000 rows of 65536 values");
    for (size_t i = 0; i < TUTTI_LENGTH(lists); i++) {
        assert_int_equal(tutti_nn_net_build(&net, layers[i], lists[i].count, &log, &err), TUTTI_ERR_USAGE);
        if (strstr(err.text, lists[i].sentence) == NULL)
            fail_msg("'%s' does not contain '%s'", err.text, lists[i].sentence);
    }
    assert_int_equal(tutti_nn_net_build(&net, embedding, 2, &log, &err), TUTTI_ERR_USAGE);
    assert_true(tutti_nn_takes_categories("ctr(dim=3)") && !tutti_nn_takes_categories("gpt") &&
                !tutti_nn_takes_categories("cttr") && !tutti_nn_takes_tokens("ctr"));
}

static void invalid_passes_are_rejected_with_a_message(void **state)
{
    clicks c = clicks_of("ctr", 3, 5, 2, 4, 1);
    tutti_nn *nn = open_model("ctr", &c.task, 4),
             *images = open_model("mlp(hidden=3)", &(tutti_nn_task){ 1, 2, 2, 3 }, 2);
    const float *const *values = (const float *const *)c.values;
    tutti_error err = { 0 };
    int64_t correct;
    double loss;

    (void)state;
    c.rows[7] = 5;
    assert_int_equal(
        tutti_nn_pass_rows(
            nn, &(tutti_nn_samples){ .count = 4, .x = c.x, .labels = c.labels, .rows = c.rows },
            &(tutti_nn_step){ 4, false, false, values, c.gradients, NULL }, &loss, &err),
        TUTTI_ERR_CORRUPT);
    assert_string_equal(err.text, "category 1 of sample 2 is row 5; its table has rows 0 to 4");
    assert_int_equal(
        tutti_nn_evaluate_rows(
            nn, &(tutti_nn_samples){ .count = 4, .x = c.x, .labels = c.labels, .rows = c.rows },
            values, &(tutti_nn_score){ &loss, &correct, NULL }, &err),
        TUTTI_ERR_CORRUPT);
    c.rows[7] = 4;
    c.labels[3] = 2;
    assert_int_equal(
        tutti_nn_pass_rows(
            nn, &(tutti_nn_samples){ .count = 4, .x = c.x, .labels = c.labels, .rows = c.rows },
            &(tutti_nn_step){ 4, false, false, values, c.gradients, NULL }, &loss, &err),
        TUTTI_ERR_CORRUPT);
    assert_string_equal(err.text, "the label of sample 3 is 2; the task has classes 0 to 1");
    c.labels[3] = 1;
    assert_int_equal(
        tutti_nn_pass(nn, &(tutti_nn_samples){ .count = 4, .x = c.x, .labels = c.labels },
                      &(tutti_nn_step){ 4, false, false, values, c.gradients, NULL }, &loss, &err),
        TUTTI_ERR_USAGE);
    assert_string_equal(err.text, "a pass of images or vectors through a network that takes categories");
    assert_int_equal(
        tutti_nn_pass_rows(
            images, &(tutti_nn_samples){ .count = 0, .x = c.x, .labels = c.labels, .rows = c.rows },
            &(tutti_nn_step){ 4, false, false, values, c.gradients, NULL }, &loss, &err),
        TUTTI_ERR_USAGE);
    assert_string_equal(err.text, "a pass of categories through a network that takes images or vectors");
    pass(nn, &c, 0, 4, 4, false, c.gradients, NULL);
    tutti_nn_close(images);
    tutti_nn_close(nn);
    clicks_free(&c);
}

/* ---- memory that runs out ---- */
static void failed_allocations_are_errors_and_steps_allocate_nothing(void **state)
{
    const char *model = "ctr(dim=2,hidden=8)";
    clicks c = clicks_of(model, 3, 50, 2, 200, 1);
    tutti_status status = TUTTI_ERR_MEMORY;
    tutti_error err = { 0 };
    tutti_nn *nn = NULL;
    double loss;
    int n;

    (void)state;
    for (n = 0; status != TUTTI_OK; n++) {
        allocations_left = n;
        status = tutti_nn_open(&nn, model, &c.task, &(tutti_nn_options){ .batch = 200 }, &err);
        allocations_left = -1;
        assert_true(status == TUTTI_OK ? nn != NULL : nn == NULL && status == TUTTI_ERR_MEMORY);
    }
    assert_true(n > 15);
    loss = pass(nn, &c, 0, 200, 200, false, c.gradients, NULL); /* a plan for the short block */
    allocations_left = 0;
    assert_true(pass(nn, &c, 0, 200, 200, false, c.gradients, NULL) == loss);
    allocations_left = -1;
    tutti_nn_close(nn);
    clicks_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_logits_and_gradients_match_pytorch),
        cmocka_unit_test(losses_and_gradients_match_the_formulas),
        cmocka_unit_test(dense_and_row_gradients_are_tree_sums_of_blocks),
        cmocka_unit_test(gradients_accumulate_and_empty_passes_give_zeros),
        cmocka_unit_test(logits_do_not_depend_on_evaluation_batch_size),
        cmocka_unit_test(extreme_logits_stay_finite_and_nan_propagates),
        cmocka_unit_test(unsuitable_tasks_and_layers_are_rejected),
        cmocka_unit_test(invalid_passes_are_rejected_with_a_message),
        cmocka_unit_test(failed_allocations_are_errors_and_steps_allocate_nothing),
    };
    return cmocka_run_group_tests_name("nn/categories", tests, NULL, NULL);
}
