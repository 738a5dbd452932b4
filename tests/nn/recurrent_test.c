/* Goal: networks with LSTMs, of tokens and of frames, compute their formulas and keep every
   promise of nn.h. Method: an oracle in double that only goes forward, from the formulas of
   PyTorch's LSTM, and central differences of its loss; one direction and both, alone and stacked,
   in branches, awkward widths and lengths from 1 on; equal bits of blocks, of evaluations however
   they are split, of sums. */
#include "nn/sequence.h"
#include "allocations.h"
#include "nn_test.h"

enum { NODES_MAX = 16 };

/* ---- examples: tokens or frames ---- */
typedef struct sample {
    nn_net net;
    int count;
    int64_t samples;
    float **values, **gradients;
    uint32_t *tokens, *next;
    float *x;
    uint8_t *labels;
} sample;

static sample sample_of(const nn_net *net, int64_t samples, uint64_t seed)
{
    const nn_sequence *s = net->sequence;
    const size_t n = (size_t)(samples * s->context);
    sample t = { .net = *net, .count = s->param_count, .samples = samples };

    t.values = calloc((size_t)t.count, sizeof *t.values);
    t.gradients = calloc((size_t)t.count, sizeof *t.gradients);
    for (int k = 0; k < t.count; k++) {
        const tutti_nn_param *p = &s->params[k];
        t.values[k] = calloc(p->count, sizeof(float));
        t.gradients[k] = calloc(p->count, sizeof(float));
        for (size_t i = 0; i < p->count; i++)
            t.values[k][i] = (float)((double)p->start +
                                     tutti_normal((tutti_rng){ seed, 77 + (uint64_t)k, 0 }, i) *
                                         (p->dims == 2 ? 0.9 / sqrt((double)(p->fan_in > 0 ? p->fan_in : 1)) : 0.3));
    }
    t.tokens = calloc(n, sizeof *t.tokens);
    t.next = calloc(n, sizeof *t.next);
    t.x = calloc(n * (size_t)(s->tokens ? 1 : s->width), sizeof *t.x);
    t.labels = calloc((size_t)samples, 1);
    for (size_t i = 0; i < n && s->tokens; i++) {
        t.tokens[i] = (uint32_t)(tutti_random((tutti_rng){ seed, 5, 0 }, i) % (uint64_t)s->classes);
        t.next[i] = (uint32_t)(tutti_random((tutti_rng){ seed, 6, 0 }, i) % (uint64_t)s->classes);
    }
    for (size_t i = 0; i < n * (size_t)s->width && !s->tokens; i++)
        t.x[i] = (float)tutti_normal((tutti_rng){ seed, 7, 0 }, i);
    for (int64_t i = 0; i < samples && !s->tokens; i++)
        t.labels[i] = (uint8_t)(tutti_random((tutti_rng){ seed, 8, 0 }, (uint64_t)i) % (uint64_t)s->classes);
    return t;
}

static void sample_free(sample *t)
{
    for (int k = 0; k < t->count; k++) {
        free(t->values[k]);
        free(t->gradients[k]);
    }
    free(t->values);
    free(t->gradients);
    free(t->tokens);
    free(t->next);
    free(t->x);
    free(t->labels);
}

/* Samples [first, first + n). */
static double pass_from(tutti_nn *nn, const sample *t, int64_t first, int64_t n, double divisor, bool add,
                        const tutti_nn_hooks *hooks)
{
    const nn_sequence *s = t->net.sequence;
    const int64_t at = first * s->context;
    const float *const *values = (const float *const *)t->values;
    tutti_error err = { 0 };
    double loss;
    const tutti_status status =
        s->tokens
            ? tutti_nn_pass_tokens(
                  nn,
                  &(tutti_nn_samples){ .count = n, .tokens = t->tokens + at, .next = t->next + at },
                  &(tutti_nn_step){ divisor, add, false, values, t->gradients, hooks }, &loss, &err)
            : tutti_nn_pass(nn,
                            &(tutti_nn_samples){ .count = n,
                                                 .x = t->x + at * s->width,
                                                 .labels = t->labels + first },
                            &(tutti_nn_step){ divisor, add, false, values, t->gradients, hooks },
                            &loss, &err);

    if (status != TUTTI_OK)
        fail_msg("%s", err.text);
    return loss;
}

static double pass(tutti_nn *nn, const sample *t, int64_t n, bool add)
{
    return pass_from(nn, t, 0, n, n > 0 ? (double)n : 1, add, NULL);
}

static double evaluate(tutti_nn *nn, const sample *t, int64_t first, int64_t n, int64_t *correct)
{
    const nn_sequence *s = t->net.sequence;
    const int64_t at = first * s->context;
    const float *const *values = (const float *const *)t->values;
    tutti_error err = { 0 };
    double loss;
    const tutti_status status =
        s->tokens
            ? tutti_nn_evaluate_tokens(
                  nn,
                  &(tutti_nn_samples){ .count = n, .tokens = t->tokens + at, .next = t->next + at },
                  values, &loss, correct, &err)
            : tutti_nn_evaluate(nn,
                                &(tutti_nn_samples){ .count = n,
                                                     .x = t->x + at * s->width,
                                                     .labels = t->labels + first },
                                values, &loss, correct, &err);

    if (status != TUTTI_OK)
        fail_msg("%s", err.text);
    return loss;
}

static nn_net build(const tutti_layer *layers, int count, const tutti_nn_task *task)
{
    tutti_error err = { 0 };
    nn_net net;

    if (tutti_nn_net_build(&net, layers, count, task, &err) != TUTTI_OK)
        fail_msg("%s", err.text);
    return net;
}

static nn_net model(const char *spec, const tutti_nn_task *task)
{
    tutti_error err = { 0 };
    nn_net net;

    if (tutti_nn_net_model(&net, spec, task, &err) != TUTTI_OK)
        fail_msg("%s", err.text);
    return net;
}

static tutti_nn_task words(int context, int vocabulary)
{
    return (tutti_nn_task){ .classes = vocabulary, .context = context };
}
static tutti_nn_task frames(int length, int width, int classes)
{
    return (tutti_nn_task){ 1, length, width, classes, 0 };
}

/* ---- the oracle: rows window by window ---- */
typedef struct oracle { double *row[NODES_MAX]; } oracle;

static double value_at(const sample *t, int k, size_t i, int moved, size_t place, double by)
{
    return (double)t->values[k][i] + (k == moved && i == place ? by : 0);
}
#define V(k, i) value_at(t, k, i, moved, place, by)

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

static void oracle_lstm(const sample *t, const nn_node *n, const double *x, double *y, int moved, size_t place,
                        double by)
{
    const size_t in = (size_t)n->in, width = (size_t)n->layer.out, out = (size_t)n->out, length = (size_t)n->length;

    for (int d = 0; d < (n->layer.both ? 2 : 1); d++)
        for (size_t w = 0; w < (size_t)t->samples; w++) {
            double h[64] = { 0 }, c[64] = { 0 }, gate[4][64];
            const int k = n->param + 4 * d;
            for (size_t step = 0; step < length; step++) {
                const size_t row = w * length + (d == 0 ? step : length - 1 - step);
                for (size_t g = 0; g < 4 * width; g++) {
                    double sum = V(k + 2, g) + V(k + 3, g);
                    for (size_t j = 0; j < in; j++)
                        sum += V(k, g * in + j) * x[row * in + j];
                    for (size_t j = 0; j < width; j++)
                        sum += V(k + 1, g * width + j) * h[j];
                    gate[g / width][g % width] = g / width == 2 ? tanh(sum) : sigmoid(sum);
                }
                for (size_t j = 0; j < width; j++) {
                    c[j] = gate[1][j] * c[j] + gate[0][j] * gate[2][j];
                    y[row * out + (size_t)d * width + j] = h[j] = gate[3][j] * tanh(c[j]);
                }
            }
        }
}

static double oracle_loss(oracle *o, const sample *t, int moved, size_t place, double by)
{
    const nn_sequence *s = t->net.sequence;
    const nn_node *last = &s->nodes[s->node_count - 1];
    double loss = 0;

    for (int i = 0; i < s->node_count; i++) {
        const nn_node *n = &s->nodes[i];
        const size_t in = (size_t)n->in, out = (size_t)n->out, rows = (size_t)(t->samples * n->length);
        const double *x = i > 0 ? o->row[i - 1] : NULL;
        double *y = o->row[i];
        if (n->layer.kind == TUTTI_LAYER_LSTM)
            oracle_lstm(t, n, x, y, moved, place, by);
        for (size_t r = 0; r < rows && n->layer.kind != TUTTI_LAYER_LSTM; r++)
            for (size_t c = 0; c < out; c++) {
                double v = 0;
                switch (n->layer.kind) {
                case TUTTI_LAYER_EMBEDDING: v = V(n->param, t->tokens[r] * out + c); break;
                case TUTTI_LAYER_FRAMES: v = (double)t->x[r * out + c]; break;
                case TUTTI_LAYER_GELU: v = x[r * in + c] * 0.5 * erfc(-x[r * in + c] / sqrt(2)); break;
                case TUTTI_LAYER_BRANCH: v = x[r * in + c]; break;
                case TUTTI_LAYER_JOIN: v = x[r * in + c] + o->row[n->partner][r * in + c]; break;
                case TUTTI_LAYER_MEAN:
                    for (int k = 0; k < n[-1].length; k++)
                        v += x[(r * (size_t)n[-1].length + (size_t)k) * in + c] / n[-1].length;
                    break;
                case TUTTI_LAYER_LINEAR:
                    v = n->params == 2 ? V(n->param + 1, c) : 0;
                    for (size_t j = 0; j < in; j++)
                        v += V(n->param, c * in + j) * x[r * in + j];
                    break;
                default: fail_msg("the oracle has no %s", tutti_nn_layer_name(n->layer.kind));
                }
                y[r * out + c] = v;
            }
    }
    for (size_t r = 0; r < (size_t)(t->samples * last->length); r++) {
        const double *y = o->row[s->node_count - 1] + r * (size_t)s->classes;
        double most = y[0], total = 0;
        for (int c = 0; c < s->classes; c++)
            most = fmax(most, y[c]);
        for (int c = 0; c < s->classes; c++)
            total += exp(y[c] - most);
        loss += (log(total) + most - y[s->tokens ? t->next[r] : t->labels[r]]) / last->length;
    }
    return loss;
}

/* Loss to 2e-6 of itself; elements of every gradient against central differences to 3e-5 of the
   tensor's largest and of 1e-3 of all tensors' largest. */
static void check(const char *name, nn_net net, int64_t samples, uint64_t seed)
{
    const nn_sequence *s = net.sequence;
    sample t = sample_of(&net, samples, seed);
    tutti_nn *nn = open_net(&net, NULL, samples);
    oracle o = { { NULL } };
    double loss, exact, overall = 0;
    int64_t correct;

    assert_true(s->node_count <= NODES_MAX);
    for (int i = 0; i < s->node_count; i++)
        o.row[i] = calloc((size_t)(samples * s->context) * (size_t)s->nodes[i].out, sizeof(double));
    loss = pass(nn, &t, samples, false);
    exact = oracle_loss(&o, &t, -1, 0, 0);
    if (!(fabs(loss - exact) <= 2e-6 * exact))
        fail_msg("%s: the loss is %.9g, not %.9g", name, loss, exact);
    if (!(fabs(evaluate(nn, &t, 0, samples, &correct) - exact) <= 2e-6 * exact))
        fail_msg("%s: the evaluated loss is not %.9g", name, exact);
    for (int k = 0; k < t.count; k++)
        for (size_t i = 0; i < s->params[k].count; i++)
            overall = fmax(overall, fabs((double)t.gradients[k][i]));
    for (int k = 0; k < t.count; k++) {
        const tutti_nn_param *p = &s->params[k];
        double most = 1e-3 * overall;
        for (size_t i = 0; i < p->count; i++)
            most = fmax(most, fabs((double)t.gradients[k][i]));
        for (uint64_t j = 0; j < 8; j++) {
            const size_t i = j == 0   ? 0
                             : j == 1 ? p->count - 1
                                      : tutti_random((tutti_rng){ seed, 9, (uint64_t)k }, j) % p->count;
            const double h = 1e-4, slope = (oracle_loss(&o, &t, k, i, h) - oracle_loss(&o, &t, k, i, -h)) / (2 * h) /
                                           (double)samples;
            if (!(fabs(slope - (double)t.gradients[k][i]) <= 3e-5 * most + 1e-8))
                fail_msg("%s, %s[%zu]: the gradient is %.9g, the slope %.9g (largest %.3g)", name, p->name, i,
                         (double)t.gradients[k][i], slope, most);
        }
    }
    tutti_nn_close(nn);
    for (int i = 0; i < NODES_MAX; i++)
        free(o.row[i]);
    sample_free(&t);
}

static const tutti_layer embed = { .kind = TUTTI_LAYER_EMBEDDING, .out = 6 }, input = { .kind = TUTTI_LAYER_FRAMES },
                         mean = { .kind = TUTTI_LAYER_MEAN }, branch = { .kind = TUTTI_LAYER_BRANCH },
                         join = { .kind = TUTTI_LAYER_JOIN }, gelu = { .kind = TUTTI_LAYER_GELU },
                         lstm5 = { .kind = TUTTI_LAYER_LSTM, .out = 5 }, lstm6 = { .kind = TUTTI_LAYER_LSTM, .out = 6 },
                         lstm1 = { .kind = TUTTI_LAYER_LSTM, .out = 1 },
                         both3 = { .kind = TUTTI_LAYER_LSTM, .out = 3, .both = true },
                         both17 = { .kind = TUTTI_LAYER_LSTM, .out = 17, .both = true },
                         to6 = { .kind = TUTTI_LAYER_LINEAR, .out = 6 },
                         head = { .kind = TUTTI_LAYER_LINEAR, .out = 9 };

static void losses_and_gradients_match_the_formulas(void **state)
{
    const struct { const char *name; int count; tutti_layer layers[NODES_MAX];
    } of_tokens[] = {
        { "one lstm", 3, { embed, lstm5, head } },
        { "width 1", 3, { embed, lstm1, head } },
        { "both directions", 3, { embed, both17, head } },
        { "stacked", 5, { embed, lstm5, both3, lstm1, head } },
        { "as a branch", 5, { embed, branch, lstm6, join, head } },
        { "both as a branch, and gelu", 7, { embed, gelu, branch, both3, join, gelu, head } },
        { "between linear layers", 5, { embed, to6, lstm5, to6, head } },
    }, of_frames[] = {
        { "frames", 4, { input, both3, mean, head } },
        { "no lstm", 3, { input, mean, head } },
        { "mean, then more", 7, { input, to6, both17, lstm5, mean, to6, head } },
        { "gelu at the end", 6, { input, lstm5, gelu, mean, gelu, head } },
        { "branch before the mean", 7, { input, to6, branch, lstm6, join, mean, head } },
    };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(of_tokens); i++)
        for (int length = 1; length <= 9; length += 4) {
            const tutti_nn_task task = words(length, 9);
            check(of_tokens[i].name, build(of_tokens[i].layers, of_tokens[i].count, &task),
                  1 + (int64_t)(i + (size_t)length) % 4, 100 + i);
        }
    for (size_t i = 0; i < TUTTI_LENGTH(of_frames); i++)
        for (int length = 2; length <= 8; length += 3) {
            const tutti_nn_task task = frames(length, 4, 9);
            check(of_frames[i].name, build(of_frames[i].layers, of_frames[i].count, &task),
                  1 + (int64_t)(i + (size_t)length) % 4, 200 + i);
        }
    check("wordlm", model("wordlm(dim=6,hidden=6)", &(tutti_nn_task){ .classes = 11, .context = 7 }), 3, 1);
    check("wordlm projected", model("wordlm(dim=6,hidden=10)", &(tutti_nn_task){ .classes = 11, .context = 7 }), 3, 2);
    check("wordlm over three chunks",
          model("wordlm(dim=4,hidden=3)", &(tutti_nn_task){ .classes = 9001, .context = 2 }), 2, 3);
    check("blstm", model("blstm(layers=2,hidden=5)", &(tutti_nn_task){ 1, 6, 7, 4, 0 }), 5, 4);
}

/* ---- bits ---- */
static float **copy_gradients(const sample *t)
{
    float **copy = calloc((size_t)t->count, sizeof *copy);

    for (int k = 0; k < t->count; k++) {
        copy[k] = calloc(t->net.sequence->params[k].count, sizeof(float));
        memcpy(copy[k], t->gradients[k], t->net.sequence->params[k].count * sizeof(float));
    }
    return copy;
}

static void free_gradients(const sample *t, float **copy)
{
    for (int k = 0; k < t->count; k++)
        free(copy[k]);
    free(copy);
}

/* 300 rows a window: blocks of two. Seven windows are ((0 1)(2 3)) ((4 5)(6)). */
static void a_pass_is_bitwise_the_tree_sum_of_blocks(void **state)
{
    const tutti_nn_task tasks[] = { words(300, 11), frames(300, 5, 11) };
    const char *const models[] = { "wordlm(dim=5,hidden=8)", "blstm(layers=2,hidden=6)" };

    (void)state;
    for (int m = 0; m < 2; m++) {
        nn_net net = model(models[m], &tasks[m]);
        tutti_nn *nn = open_net(&net, NULL, 7);
        sample t = sample_of(&net, 7, 3);
        float **part[4], **all;
        double sum = 0, loss = pass(nn, &t, 7, false);

        all = copy_gradients(&t);
        for (int b = 0; b < 4; b++) {
            sum += pass_from(nn, &t, 2 * b, b < 3 ? 2 : 1, 7, false, NULL);
            part[b] = copy_gradients(&t);
        }
        assert_true(loss == sum);
        for (int k = 0; k < t.count; k++)
            for (size_t i = 0; i < net.sequence->params[k].count; i++) {
                const float tree = (part[0][k][i] + part[1][k][i]) + (part[2][k][i] + part[3][k][i]);
                if (all[k][i] != tree)
                    fail_msg("%s, %s[%zu]: %.9g, not %.9g", models[m], net.sequence->params[k].name, i,
                             (double)all[k][i], (double)tree);
            }
        pass(nn, &t, 7, false); /* what ran between leaves nothing behind */
        for (int k = 0; k < t.count; k++)
            assert_memory_equal(t.gradients[k], all[k], net.sequence->params[k].count * sizeof(float));
        for (int b = 0; b < 4; b++)
            free_gradients(&t, part[b]);
        free_gradients(&t, all);
        tutti_nn_close(nn);
        sample_free(&t);
    }
}

/* A sample's mask is a function of its place in the run: blocks that are given the places of
   their samples give the bits of the whole. Gradients are those of the very losses. */
static void dropout_masks_depend_on_the_sample_not_its_row(void **state)
{
    const tutti_layer drop = { .kind = TUTTI_LAYER_DROPOUT, .rate = 0.4 };
    const tutti_layer of_tokens[] = { embed, drop, lstm5, drop, head },
                      of_frames[] = { input, drop, both3, drop, mean, drop, head };
    const tutti_nn_task tasks[] = { words(300, 9), frames(300, 5, 9) };

    (void)state;
    for (int m = 0; m < 2; m++) {
        nn_net net = build(m == 0 ? of_tokens : of_frames, m == 0 ? 5 : 7, &tasks[m]);
        tutti_nn *nn = open_net(&net, NULL, 7);
        sample t = sample_of(&net, 7, 3);
        double sum = 0, all, other;

        tutti_nn_draw(nn, 17, 101);
        other = pass(nn, &t, 7, false);
        tutti_nn_draw(nn, 17, 100);
        all = pass(nn, &t, 7, false);
        assert_true(all != other);
        for (int k = 0; k < t.count; k++)
            for (int j = 0; j < 3; j++) {
                const size_t n = net.sequence->params[k].count,
                             i = tutti_random((tutti_rng){ 4, 9, (uint64_t)k }, (uint64_t)j) % n;
                const float h = 0.02f, before = t.values[k][i], expected = t.gradients[k][i];
                double most = 1e-3, up, down;
                for (size_t e = 0; e < n; e++)
                    most = fmax(most, fabs((double)t.gradients[k][e]));
                t.values[k][i] = before + h;
                up = pass(nn, &t, 7, false);
                t.values[k][i] = before - h;
                down = pass(nn, &t, 7, false);
                t.values[k][i] = before;
                pass(nn, &t, 7, false);
                if (!(fabs((up - down) / (2 * (double)h) / 7 - (double)expected) <= 0.01 * most))
                    fail_msg("net %d, %s[%zu]: the gradient is %.9g, the slope %.9g", m, net.sequence->params[k].name,
                             i, (double)expected, (up - down) / (2 * (double)h) / 7);
            }
        for (int b = 0; b < 4; b++) {
            tutti_nn_draw(nn, 17, 100 + 2 * (uint64_t)b);
            sum += pass_from(nn, &t, 2 * b, b < 3 ? 2 : 1, 7, false, NULL);
        }
        assert_true(all == sum);
        tutti_nn_close(nn);
        sample_free(&t);
    }
}

static void adding_passes_accumulate_gradients(void **state)
{
    const tutti_nn_task tasks[] = { words(9, 31), frames(9, 5, 31), frames(2, 5, 7), words(1, 6) };
    const char *const models[] = {
        "wordlm(dim=12,hidden=7)", "blstm(layers=2,hidden=6)", "blstm(layers=1,hidden=6)", "wordlm(dim=4,hidden=4)",
    };

    (void)state;
    for (size_t m = 0; m < TUTTI_LENGTH(tasks); m++) {
        nn_net net = model(models[m], &tasks[m]);
        tutti_nn *nn = open_net(&net, NULL, 4);
        sample t = sample_of(&net, 4, 8);
        float **once;

        pass(nn, &t, 4, false);
        once = copy_gradients(&t);
        pass(nn, &t, 4, true);
        for (int k = 0; k < t.count; k++) {
            double most = 0;
            for (size_t i = 0; i < net.sequence->params[k].count; i++)
                most = fmax(most, fabs((double)once[k][i]));
            for (size_t i = 0; i < net.sequence->params[k].count; i++)
                if (!(fabs((double)t.gradients[k][i] - 2 * (double)once[k][i]) <= 1e-5 * most))
                    fail_msg("%s, %s[%zu]: %.9g after %.9g", models[m], net.sequence->params[k].name, i,
                             (double)t.gradients[k][i], (double)once[k][i]);
        }
        free_gradients(&t, once);
        tutti_nn_close(nn);
        sample_free(&t);
    }
}

/* 130 samples are three runs of 48, the last one filled up. The loss of each by
   itself: sums of the same doubles. */
static void sample_losses_do_not_depend_on_evaluation_batch_size(void **state)
{
    const tutti_nn_task tasks[] = { words(16, 31), words(35, 31), frames(8, 6, 5) };
    const char *const models[] = {
        "wordlm(dim=24,hidden=20)", "wordlm(dim=24,hidden=16)", "blstm(layers=2,hidden=19)",
    };

    (void)state;
    for (size_t m = 0; m < TUTTI_LENGTH(tasks); m++) {
        nn_net net = model(models[m], &tasks[m]);
        tutti_nn *nn = open_net(&net, NULL, 3);
        sample t = sample_of(&net, 130, 3);
        double alone[130], sum = 0, all;
        int64_t hits = 0, correct;

        all = evaluate(nn, &t, 0, 130, &correct);
        for (int64_t i = 0; i < 130; i++) {
            int64_t hit;
            sum += alone[i] = evaluate(nn, &t, i, 1, &hit);
            hits += hit;
        }
        assert_true(fabs(all - sum) <= 1e-12 * all);
        assert_int_equal(correct, hits);
        for (int64_t i = 0; i + 2 < 130; i += 9) {
            int64_t hit;
            assert_true(fabs(evaluate(nn, &t, i, 3, &hit) - (alone[i] + alone[i + 1] + alone[i + 2])) <=
                        1e-13 * (alone[i] + alone[i + 1] + alone[i + 2]));
        }
        tutti_nn_close(nn);
        sample_free(&t);
    }
}

/* ---- hooks, parameters ---- */
typedef struct calls { char text[1024]; } calls;

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

static void hooks_come_in_one_order_whatever_the_number_of_samples(void **state)
{
    const tutti_layer layers[] = { input, lstm5, mean, head };
    const tutti_nn_task task = frames(4, 3, 9);

    (void)state;
    for (int64_t n = 0; n <= 3; n++) {
        nn_net net = build(layers, 4, &task);
        tutti_nn *nn = open_net(&net, NULL, 3);
        sample t = sample_of(&net, 3, 1);
        calls c = { "" };
        pass_from(nn, &t, 0, n, 3, false, &(tutti_nn_hooks){ &c, on_need, on_done, on_ready });
        assert_string_equal(c.text, "n0f d0f n1f d1f n1b r0b r1b d1b n0b r2b r3b r4b r5b d0b ");
        for (int k = 0; k < t.count && n == 0; k++)
            for (size_t i = 0; i < net.sequence->params[k].count; i++)
                assert_true(t.gradients[k][i] == 0);
        tutti_nn_close(nn);
        sample_free(&t);
    }
}

static void parameters_have_pytorch_names_shapes_and_init_range(void **state)
{
    static const struct { const char *name; size_t rows, cols; } expected[] = {
        { "head.weight", 10, 64 }, { "head.bias", 10, 1 }, { "lstm.1.weight_ih_l0", 128, 64 },
        { "lstm.1.weight_hh_l0", 128, 32 }, { "lstm.1.bias_ih_l0", 128, 1 }, { "lstm.1.bias_hh_l0", 128, 1 },
        { "lstm.1.weight_ih_l0_reverse", 128, 64 }, { "lstm.1.weight_hh_l0_reverse", 128, 32 },
        { "lstm.1.bias_ih_l0_reverse", 128, 1 }, { "lstm.1.bias_hh_l0_reverse", 128, 1 },
        { "lstm.0.weight_ih_l0", 128, 20 }, { "lstm.0.weight_hh_l0", 128, 32 },
    };
    const tutti_nn_task task = frames(30, 20, 10), text = words(4, 50);
    tutti_nn_param p[32];
    float *v[32];
    int count;

    (void)state;
    assert_int_equal(tutti_nn_params("blstm(2,32)", &task, p, 32, &count, NULL), TUTTI_OK);
    assert_int_equal(count, 18);
    for (size_t k = 0; k < TUTTI_LENGTH(expected); k++) {
        assert_string_equal(p[k].name, expected[k].name);
        assert_int_equal(p[k].rows, expected[k].rows);
        assert_int_equal(p[k].cols, expected[k].cols);
    }
    for (int k = 0; k < count; k++) { /* uniform within 1 / sqrt(hidden), no two tensors equal */
        double most = 0;
        v[k] = calloc(p[k].count, sizeof(float));
        tutti_nn_initialise(&p[k], 2 * p[k].unit + (p[k].dims == 1), 5, v[k]);
        for (size_t i = 0; i < p[k].count; i++)
            most = fmax(most, fabs((double)v[k][i]));
        assert_true(k < 2 || (most <= 1 / sqrt(32) * (1 + 1e-7) && most > 0.9 / sqrt(32)));
        for (int j = 0; j < k; j++)
            if (p[j].count == p[k].count)
                assert_memory_not_equal(v[j], v[k], p[k].count * sizeof(float));
    }
    for (int k = 0; k < count; k++)
        free(v[k]);
    assert_int_equal(tutti_nn_params("wordlm(50,8,8)", &text, p, 32, &count, NULL), TUTTI_OK);
    assert_int_equal(count, 2 + 4 + 1);
    assert_int_equal(tutti_nn_params("wordlm(50,8,16)", &text, p, 32, &count, NULL), TUTTI_OK);
    assert_int_equal(count, 2 + 2 + 4 + 1);
    assert_string_equal(p[2].name, "p.weight");
    assert_int_equal(p[2].cols, 16);
}

/* ---- refusals ---- */
static void refused_list(const tutti_layer *layers, int count, tutti_nn_task task, const char *sentence)
{
    tutti_error err = { 0 };
    nn_net net;

    assert_int_equal(tutti_nn_net_build(&net, layers, count, &task, &err), TUTTI_ERR_USAGE);
    assert_null(net.sequence);
    if (strstr(err.text, sentence) == NULL)
        fail_msg("'%s' does not contain '%s'", err.text, sentence);
}

static void refused_model(const char *spec, tutti_nn_task task, const char *sentence)
{
    tutti_error err = { 0 };
    int count;

    assert_int_equal(tutti_nn_params(spec, &task, NULL, 0, &count, &err), TUTTI_ERR_USAGE);
    if (strstr(err.text, sentence) == NULL)
        fail_msg("'%s' does not contain '%s'", err.text, sentence);
}

static void invalid_recurrent_networks_are_rejected(void **state)
{
    const tutti_layer attention = { .kind = TUTTI_LAYER_ATTENTION, .heads = 1 },
                      positions = { .kind = TUTTI_LAYER_POSITIONS }, none = { .kind = TUTTI_LAYER_LSTM },
                      wide = { .kind = TUTTI_LAYER_LSTM, .out = 1 << 19 };
    const tutti_layer turned[] = { embed, { .kind = TUTTI_LAYER_ROTARY, .heads = 1 }, lstm5, head },
                      knot[] = { input, mean, { .kind = TUTTI_LAYER_LINEAR, .out = 9, .bare = true, .tied = true } };
    const tutti_layer mixed[] = { embed, lstm5, attention, head }, placed[] = { embed, positions, lstm5, head },
                      framed[] = { input, attention, mean, head }, meant[] = { embed, lstm5, mean, head },
                      twice[] = { input, mean, mean, head }, many[] = { input, lstm5, head },
                      late[] = { embed, input, head }, cut[] = { input, to6, branch, lstm6, mean, join, head },
                      zero[] = { embed, none, head }, huge[] = { embed, wide, head }, ends[] = { input, mean, to6 },
                      plain[] = { input, mean, head };

    (void)state;
    refused_list(mixed, 4, words(4, 9),
                 "layer 2 (attention) takes rows window by window, and this network has them moment by moment, for its "
                 "lstm; leave one of them out");
    refused_list(turned, 4, words(4, 9), "layer 1 (rotary) takes rows window by window");
    refused_list(placed, 4, words(4, 9), "layer 1 (positions) takes rows window by window");
    refused_list(framed, 4, frames(4, 6, 9), "moment by moment, for its frames");
    refused_list(meant, 4, words(4, 9), "layer 2 (mean): every token has a label");
    refused_list(twice, 4, frames(4, 6, 9), "layer 2 (mean): there is one row a sample already");
    refused_list(many, 3, frames(4, 6, 9),
                 "a network of frames ends with 4 rows a sample, which has one label; it needs a mean layer");
    refused_list(
        late, 3, words(4, 9),
        "layer 1 (frames): a network of tokens begins with an embedding and has no other, one of frames with frames");
    refused_list(cut, 7, frames(4, 6, 9), "layer 4 (mean) stands in the branch of layer 2, which is not joined yet");
    refused_list(zero, 3, words(4, 9), "layer 1 (lstm) has a matrix of 0 x 6; widths must be from 1");
    refused_list(huge, 3, words(4, 9), "layer 1 (lstm) has a matrix of 2097152 x 524288");
    refused_list(knot, 3, frames(4, 6, 9), "layer 2 (linear) is tied to the embedding's matrix");
    refused_list(ends, 3, frames(4, 6, 9),
                 "a network of frames must end in a linear layer of as many outputs as there are classes (9); this one "
                 "ends in linear with 6");
    refused_list(plain, 3, (tutti_nn_task){ 3, 4, 6, 9, 0 },
                 "a network of frames on samples of 3 x 4 x 6 values: it takes samples of one channel");
    refused_list(plain, 3, frames(4, 6, 1), "classes");
    refused_list(plain, 3, words(4, 9), "this network takes images or vectors, and the task has windows of 4 tokens");
    refused_model("wordlm", frames(28, 28, 10),
                  "wordlm needs windows of tokens; this task has samples of 1 x 28 x 28 values");
    refused_model("wordlm(vocab=300)", words(4, 256),
                  "wordlm with vocab=300 on data of 256 different tokens; leave vocab out");
    refused_model("blstm", words(4, 9),
                  "blstm needs samples of frames, and the task has windows of 4 tokens; wordlm takes tokens");
    refused_model("blstm", frames(1, 20, 9),
                  "blstm needs samples of several frames; this task has samples of 1 x 1 x 20 values");
    refused_model("blstm(layers=0)", frames(5, 20, 9), "layers");
    assert_true(tutti_nn_takes_tokens("wordlm"));
    assert_false(tutti_nn_takes_tokens("blstm"));
}

static void labels_that_are_no_class_are_refused(void **state)
{
    const tutti_nn_task task = frames(4, 3, 5);
    nn_net net = model("blstm(1,4)", &task);
    tutti_nn *nn = open_net(&net, NULL, 3);
    sample t = sample_of(&net, 3, 1);
    tutti_error err = { 0 };
    double loss;

    (void)state;
    t.labels[1] = 5;
    assert_int_equal(
        tutti_nn_pass(
            nn, &(tutti_nn_samples){ .count = 3, .x = t.x, .labels = t.labels },
            &(tutti_nn_step){ 3, false, false, (const float *const *)t.values, t.gradients, NULL },
            &loss, &err),
        TUTTI_ERR_CORRUPT);
    assert_string_equal(err.text, "the label of sample 1 is 5; the task has classes 0 to 4");
    assert_int_equal(
        tutti_nn_pass_tokens(
            nn, &(tutti_nn_samples){ .count = 0, .tokens = t.tokens, .next = t.next },
            &(tutti_nn_step){ 3, false, false, (const float *const *)t.values, t.gradients, NULL },
            &loss, &err),
        TUTTI_ERR_USAGE);
    tutti_nn_close(nn);
    sample_free(&t);
}

/* ---- memory that runs out ---- */
static void failed_opens_are_errors_and_steps_allocate_nothing(void **state)
{
    const tutti_nn_task tasks[] = { words(300, 7), frames(300, 5, 7) };
    const char *const models[] = { "wordlm(dim=5,hidden=8)", "blstm(layers=2,hidden=6)" };

    (void)state;
    for (int m = 0; m < 2; m++) {
        nn_net net = model(models[m], &tasks[m]);
        sample t = sample_of(&net, 5, 1);
        tutti_status status = TUTTI_ERR_MEMORY;
        tutti_nn *nn = NULL, *fresh;
        int64_t correct;
        double loss;
        int n;

        for (n = 0; status != TUTTI_OK; n++) {
            allocations_left = n;
            status = tutti_nn_open(&nn, models[m], &tasks[m], &(tutti_nn_options){ .batch = 5 }, NULL);
            allocations_left = -1;
            assert_true(status == TUTTI_OK ? nn != NULL : nn == NULL && status == TUTTI_ERR_MEMORY);
        }
        assert_true(n > 12);
        evaluate(nn, &t, 0, 5, &correct);
        pass(nn, &t, 1, false);
        loss = pass(nn, &t, 5, false);
        allocations_left = 0; /* of sizes known by now */
        assert_true(pass(nn, &t, 5, false) == loss);
        pass(nn, &t, 1, true);
        allocations_left = -1;
        fresh = open_net(&net, NULL, 5);
        assert_true(pass(fresh, &t, 5, false) == loss);
        assert_int_equal(tutti_nn_bytes(nn), tutti_nn_bytes(fresh)); /* what the evaluation took was given back */
        tutti_nn_close(fresh);
        tutti_nn_close(nn);
        sample_free(&t);
    }
}

static void describe_lists_lstm_products_without_reference_kernels(void **state)
{
    const tutti_nn_task task = frames(16, 12, 10);
    nn_net net = model("blstm(2,64)", &task);
    tutti_nn *nn = open_net(&net, NULL, 16);
    char lines[8192];
    const int n = tutti_nn_describe(nn, lines, sizeof lines);

    (void)state;
    assert_int_equal(n, strlen(lines));
    assert_null(strstr(lines, ": ref"));
    assert_non_null(strstr(lines, "lstm 1 moment: "));
    assert_non_null(strstr(lines, "lstm 2 hidden weights: "));
    assert_non_null(strstr(lines, "lstm 2 data added: "));
    tutti_nn_close(nn);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_and_gradients_match_the_formulas),
        cmocka_unit_test(a_pass_is_bitwise_the_tree_sum_of_blocks),
        cmocka_unit_test(dropout_masks_depend_on_the_sample_not_its_row),
        cmocka_unit_test(adding_passes_accumulate_gradients),
        cmocka_unit_test(sample_losses_do_not_depend_on_evaluation_batch_size),
        cmocka_unit_test(hooks_come_in_one_order_whatever_the_number_of_samples),
        cmocka_unit_test(parameters_have_pytorch_names_shapes_and_init_range),
        cmocka_unit_test(invalid_recurrent_networks_are_rejected),
        cmocka_unit_test(labels_that_are_no_class_are_refused),
        cmocka_unit_test(failed_opens_are_errors_and_steps_allocate_nothing),
        cmocka_unit_test(describe_lists_lstm_products_without_reference_kernels),
    };
    return cmocka_run_group_tests_name("nn/recurrent", tests, NULL, NULL);
}
