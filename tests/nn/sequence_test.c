/* Goal: networks of tokens compute their formulas, and keep every promise of nn.h that
   networks of images keep. Method: an oracle in double that only goes forward, layer by layer
   from the formulas of math.h, and central differences of its loss; lists of layers that gpt
   does not have; awkward widths, contexts and vocabularies; equal bits of blocks, evaluation runs
   and sums; every allocation failing in turn. */
#include "nn/math/math.h"
#include "nn/sequence.h"
#include "allocations.h"
#include "nn_test.h"
#include "kernels/device.h"

enum { NODES_MAX = 40, VALUES_MAX = 200000 };

/* ---- examples ---- */
typedef struct text {
    nn_net net;
    int count;
    int64_t samples;
    float **values, **gradients;
    uint32_t *tokens, *next;
} text;

static text text_of(const nn_net *net, int64_t samples, uint64_t seed)
{
    const nn_sequence *s = net->sequence;
    const size_t n = (size_t)(samples * s->context);
    text t = { .net = *net, .count = s->param_count, .samples = samples };

    t.values = calloc((size_t)t.count, sizeof *t.values);
    t.gradients = calloc((size_t)t.count, sizeof *t.gradients);
    for (int k = 0; k < t.count; k++) {
        const tutti_nn_param *p = &s->params[k];
        const tutti_rng rng = { .seed = seed, .stream = 77 + (uint64_t)k };
        t.values[k] = calloc(p->count, sizeof(float));
        t.gradients[k] = calloc(p->count, sizeof(float));
        for (size_t i = 0; i < p->count; i++) /* of a size at which every layer bends */
            t.values[k][i] = (float)((double)p->start +
                                     tutti_normal(rng, i) *
                                         (p->dims == 2 ? 0.9 / sqrt((double)(p->fan_in > 0 ? p->fan_in : 1)) : 0.3));
    }
    t.tokens = calloc(n + 1, sizeof *t.tokens);
    t.next = calloc(n + 1, sizeof *t.next);
    for (size_t i = 0; i < n; i++) {
        t.tokens[i] = (uint32_t)(tutti_random((tutti_rng){ seed, 5, 0 }, i) % (uint64_t)s->classes);
        t.next[i] = (uint32_t)(tutti_random((tutti_rng){ seed, 6, 0 }, i) % (uint64_t)s->classes);
    }
    return t;
}

static void text_free(text *t)
{
    for (int k = 0; k < t->count; k++) {
        free(t->values[k]);
        free(t->gradients[k]);
    }
    free(t->values);
    free(t->gradients);
    free(t->tokens);
    free(t->next);
}

static double pass(tutti_nn *nn, const text *t, int64_t n, bool add, const tutti_nn_hooks *hooks)
{
    tutti_error err = { 0 };
    double loss;

    if (tutti_nn_pass_tokens(
            nn, &(tutti_nn_samples){ .count = n, .tokens = t->tokens, .next = t->next },
            &(tutti_nn_step){ n > 0 ? (double)n : 1, add, false, (const float *const *)t->values,
                              t->gradients, hooks },
            &loss, &err) != TUTTI_OK)
        fail_msg("%s", err.text);
    return loss;
}

/* Opens net for the test and the network under test; what net owns goes over to *nn. */
static nn_net build(const tutti_layer *layers, int count, int context, int vocabulary)
{
    const tutti_nn_task task = { .classes = vocabulary, .context = context };
    tutti_error err = { 0 };
    nn_net net;

    if (tutti_nn_net_build(&net, layers, count, &task, &err) != TUTTI_OK)
        fail_msg("%s", err.text);
    return net;
}

static nn_net gpt_net(const char *spec, int context, int vocabulary)
{
    const tutti_nn_task task = { .classes = vocabulary, .context = context };
    tutti_error err = { 0 };
    nn_net net;

    if (tutti_nn_net_model(&net, spec, &task, &err) != TUTTI_OK)
        fail_msg("%s", err.text);
    return net;
}

/* ---- the oracle ---- */
/* row: output of each node, rows x out. kept: of a dropout, what each value is multiplied by. Of
   the draws the oracle takes on faith only that they are those of tutti_nn_dropout for (seed, 2^32
   + layer, first + sample), which nn.h and sequence_run.c promise. */
typedef struct oracle { double *row[NODES_MAX]; float *kept[NODES_MAX]; } oracle;
enum { DRAW_SEED = 5, DRAW_FIRST = 1000 };

static double value_at(const text *t, int k, size_t i, int moved, size_t place, double by)
{
    return (double)t->values[k][i] + (k == moved && i == place ? by : 0);
}
#define V(k, i) value_at(t, k, i, moved, place, by)

static void oracle_attention(const nn_node *n, int context, size_t row, const double *x, double *y)
{
    const int width = n->out / n->layer.heads, at = (int)(row % (size_t)context);
    const size_t first = row - (size_t)at, in = (size_t)n->in;

    for (int h = 0; h < n->layer.heads; h++) {
        double score[64], most = -INFINITY, total = 0;
        for (int j = 0; j <= at; j++) {
            score[j] = 0;
            for (int c = 0; c < width; c++)
                score[j] += x[row * in + (size_t)(h * width + c)] *
                            x[(first + (size_t)j) * in + (size_t)(n->out + h * width + c)];
            score[j] /= sqrt((double)width);
            most = fmax(most, score[j]);
        }
        for (int j = 0; j <= at; j++)
            total += score[j] = exp(score[j] - most);
        for (int c = 0; c < width; c++) {
            double sum = 0;
            for (int j = 0; j <= at; j++)
                sum += score[j] / total * x[(first + (size_t)j) * in + (size_t)(2 * n->out + h * width + c)];
            y[row * (size_t)n->out + (size_t)(h * width + c)] = sum;
        }
    }
}

/* Queries and keys of a row, pair by pair. */
static void oracle_rotary(const nn_node *n, int context, size_t row, const double *x, double *y)
{
    const int dim = n->in / 3, width = dim / n->layer.heads, half = width / 2;

    for (int c = 0; c < n->in; c++)
        y[c] = x[c];
    for (int c = 0; c < 2 * dim; c++) {
        const int j = c % width % half, other = c % width < half ? c + half : c - half;
        const double angle = (double)(row % (size_t)context) * pow(10000, -2.0 * j / width);
        y[c] = c % width < half ? x[c] * cos(angle) - x[other] * sin(angle) : x[c] * cos(angle) + x[other] * sin(angle);
    }
}

/* Mean over the tokens of the windows' losses, summed; parameter
   `moved` moved by `by` at one place. */
static double oracle_loss(oracle *o, const text *t, int moved, size_t place, double by)
{
    const nn_sequence *s = t->net.sequence;
    const size_t rows = (size_t)(t->samples * s->context);
    double loss = 0;

    for (int i = 0; i < s->node_count; i++) {
        const nn_node *n = &s->nodes[i];
        const size_t in = (size_t)n->in, out = (size_t)n->out;
        const size_t stride = n->layer.kind == TUTTI_LAYER_LINEAR ? (size_t)n->wide : out, column = (size_t)n->column;
        const double *x = i > 0 ? o->row[i - 1 - n->layer.tile] : NULL,
                     *branch = n->layer.kind == TUTTI_LAYER_JOIN ? o->row[n->partner] : NULL;
        double *y = o->row[i];
        if (n->layer.tile > 0) /* columns of tiles before it */
            memcpy(y, o->row[i - 1], rows * stride * sizeof *y);
        for (size_t r = 0; r < rows; r++) {
            double mean = 0, variance = 0;
            if (n->layer.kind == TUTTI_LAYER_ATTENTION)
                oracle_attention(n, s->context, r, x, y);
            if (n->layer.kind == TUTTI_LAYER_ROTARY)
                oracle_rotary(n, s->context, r, x + r * in, y + r * out);
            for (size_t c = 0; c < in && n->layer.kind == TUTTI_LAYER_LAYER_NORM; c++)
                mean += x[r * in + c] / (double)in;
            for (size_t c = 0;
                 c < in && (n->layer.kind == TUTTI_LAYER_LAYER_NORM || n->layer.kind == TUTTI_LAYER_RMS_NORM); c++)
                variance += pow(x[r * in + c] - mean, 2) / (double)in;
            for (size_t c = 0; c < out; c++) {
                double v = 0;
                switch (n->layer.kind) {
                case TUTTI_LAYER_EMBEDDING: v = V(n->param, t->tokens[r] * out + c); break;
                case TUTTI_LAYER_POSITIONS: v = x[r * in + c] + V(n->param, r % (size_t)s->context * out + c); break;
                case TUTTI_LAYER_LAYER_NORM:
                    v = (x[r * in + c] - mean) / sqrt(variance + 1e-5) * V(n->param, c) + V(n->param + 1, c);
                    break;
                case TUTTI_LAYER_RMS_NORM: v = x[r * in + c] / sqrt(variance + 1e-5) * V(n->param, c); break;
                case TUTTI_LAYER_DROPOUT: v = x[r * in + c] * (double)o->kept[i][r * in + c]; break;
                case TUTTI_LAYER_GELU: v = x[r * in + c] * 0.5 * erfc(-x[r * in + c] / sqrt(2)); break;
                case TUTTI_LAYER_BRANCH: v = x[r * in + c]; break;
                case TUTTI_LAYER_JOIN: v = x[r * in + c] + branch[r * in + c]; break;
                case TUTTI_LAYER_LINEAR:
                    v = n->params == 2 ? V(n->param + 1, c) : 0;
                    for (size_t j = 0; j < in; j++)
                        v += V(n->param, c * in + j) * x[r * in + j];
                    break;
                default: continue;
                }
                y[r * stride + column + c] = v;
            }
        }
    }
    for (size_t r = 0; r < rows; r++) {
        const double *y = o->row[s->node_count - 1] + r * (size_t)s->classes;
        double most = y[0], total = 0;
        for (int c = 0; c < s->classes; c++)
            most = fmax(most, y[c]);
        for (int c = 0; c < s->classes; c++)
            total += exp(y[c] - most);
        loss += (log(total) + most - y[t->next[r]]) / s->context;
    }
    return loss;
}

static oracle oracle_open(const text *t)
{
    const nn_sequence *s = t->net.sequence;
    oracle o = { { NULL }, { NULL } };

    assert_true(s->node_count <= NODES_MAX);
    for (int i = 0; i < s->node_count; i++) {
        const nn_node *node = &s->nodes[i];
        const size_t width = (size_t)(node->layer.kind == TUTTI_LAYER_LINEAR ? node->wide : node->out),
                     sample = (size_t)s->context * width, n = (size_t)t->samples * sample;
        tutti_device *d;
        o.row[i] = calloc(n, sizeof(double));
        if (s->nodes[i].layer.kind != TUTTI_LAYER_DROPOUT)
            continue;
        assert_int_equal(tutti_device_open_host(&d, NULL, TUTTI_CPU_SCALAR, NULL), TUTTI_OK);
        o.kept[i] = calloc(n, sizeof(float));
        for (size_t k = 0; k < n; k++)
            o.kept[i][k] = 1;
        for (size_t w = 0; w < (size_t)t->samples; w++)
            tutti_nn_dropout(nn_math_of(TUTTI_CPU_SCALAR), d,
                             (tutti_rng){ DRAW_SEED, ((uint64_t)1 << 32) + (uint64_t)i, DRAW_FIRST + w }, 0, sample,
                             (float)s->nodes[i].layer.rate, o.kept[i] + w * sample, o.kept[i] + w * sample);
        tutti_device_close(d);
    }
    return o;
}

static void oracle_close(oracle *o)
{
    for (int i = 0; i < NODES_MAX; i++) {
        free(o->row[i]);
        free(o->kept[i]);
    }
}

/* Loss to 2e-6 of itself; a few elements of every gradient against central differences to
   3e-5 of the tensor's largest of them and of 1e-2 of all tensors' (a sum that cancels, as
   the key's bias does exactly, keeps the rounding of its terms: 3e-7 of the largest is
   less than three of its last digits). */
static void check_against_oracle(const char *name, nn_net net, int64_t samples, uint64_t seed)
{
    text t = text_of(&net, samples, seed);
    oracle o = oracle_open(&t);
    tutti_nn *nn = open_net(&net, NULL, samples);
    const double exact = oracle_loss(&o, &t, -1, 0, 0);
    double overall = 0, loss;

    tutti_nn_draw(nn, DRAW_SEED, DRAW_FIRST);
    loss = pass(nn, &t, samples, false, NULL);

    if (!(fabs(loss - exact) <= 2e-6 * exact))
        fail_msg("%s: the loss is %.9g, not %.9g", name, loss, exact);
    for (int k = 0; k < t.count; k++)
        for (size_t i = 0; i < net.sequence->params[k].count; i++)
            overall = fmax(overall, fabs((double)t.gradients[k][i]));
    for (int k = 0; k < t.count; k++) {
        const tutti_nn_param *p = &net.sequence->params[k];
        double most = 1e-2 * overall;
        for (size_t i = 0; i < p->count; i++)
            most = fmax(most, fabs((double)t.gradients[k][i]));
        for (int j = 0; j < 6; j++) {
            const size_t i = j == 0   ? 0
                             : j == 1 ? p->count - 1
                             : j == 2 && p->unit == 0
                                 ? t.tokens[0] * p->cols
                                 : tutti_random((tutti_rng){ seed, 9, (uint64_t)k }, (uint64_t)j) % p->count;
            const double h = 1e-4, slope = (oracle_loss(&o, &t, k, i, h) - oracle_loss(&o, &t, k, i, -h)) / (2 * h) /
                                           (double)samples;
            if (!(fabs(slope - (double)t.gradients[k][i]) <= 3e-5 * most + 1e-8))
                fail_msg("%s, %s[%zu]: the gradient is %.9g, the slope %.9g (largest %.3g)", name, p->name, i,
                         (double)t.gradients[k][i], slope, most);
        }
    }
    tutti_nn_close(nn);
    oracle_close(&o);
    text_free(&t);
}

static const tutti_layer embed = { .kind = TUTTI_LAYER_EMBEDDING, .out = 6 },
                         positions = { .kind = TUTTI_LAYER_POSITIONS }, norm = { .kind = TUTTI_LAYER_LAYER_NORM },
                         branch = { .kind = TUTTI_LAYER_BRANCH }, join = { .kind = TUTTI_LAYER_JOIN },
                         gelu = { .kind = TUTTI_LAYER_GELU }, attention = { .kind = TUTTI_LAYER_ATTENTION, .heads = 3 },
                         attention1 = { .kind = TUTTI_LAYER_ATTENTION, .heads = 1 },
                         to6 = { .kind = TUTTI_LAYER_LINEAR, .out = 6 },
                         to18 = { .kind = TUTTI_LAYER_LINEAR, .out = 18 }, rms = { .kind = TUTTI_LAYER_RMS_NORM },
                         rotary3 = { .kind = TUTTI_LAYER_ROTARY, .heads = 3 },
                         rotary1 = { .kind = TUTTI_LAYER_ROTARY, .heads = 1 },
                         drop = { .kind = TUTTI_LAYER_DROPOUT, .rate = 0.4 },
                         tied = { .kind = TUTTI_LAYER_LINEAR, .out = 9, .bare = true, .tied = true },
                         to11 = { .kind = TUTTI_LAYER_LINEAR, .out = 11 },
                         head = { .kind = TUTTI_LAYER_LINEAR, .out = 9, .bare = true },
                         biased = { .kind = TUTTI_LAYER_LINEAR, .out = 9 };

#define TILE(n, of, columns) { .kind = TUTTI_LAYER_LINEAR, .out = columns, .tile = n, .tiles = of }

static void losses_and_gradients_match_the_formulas(void **state)
{
    (void)state;
    const struct { const char *name; int count; tutti_layer layers[16]; } lists[] = {
        { "the least", 2, { embed, biased } },
        { "positions, no branch", 4, { embed, positions, norm, head } },
        { "gelu before join", 7, { embed, branch, norm, to6, gelu, join, head } },
        { "attention before join", 7, { embed, branch, to18, attention, join, norm, biased } },
        { "norm before join", 8, { embed, positions, branch, to6, norm, join, gelu, head } },
        { "branch without a norm", 8, { embed, branch, to11, gelu, to6, join, norm, head } },
        { "branches within each other", 13,
          { embed, branch, norm, to6, branch, to11, gelu, to6, join, norm, to6, join, head } },
        { "branch after linear", 9, { embed, to6, branch, norm, gelu, to6, join, gelu, head } },
        { "two norms, one head", 10, { embed, positions, norm, norm, branch, to18, attention1, to6, join, biased } },
        { "tied to the embedding", 2, { embed, tied } },
        { "tied, with a branch", 8, { embed, positions, branch, norm, to6, join, rms, tied } },
        { "rms norms", 8, { embed, rms, branch, rms, to6, join, rms, head } },
        { "rms before join", 7, { embed, branch, to6, rms, join, gelu, head } },
        { "rotary of three heads and of one", 13,
          { embed, branch, to18, rotary3, attention, to6, join, to18, rotary1, attention1, norm, to6, head } },
        { "dropout on a branch", 9, { embed, drop, branch, norm, to6, drop, join, norm, biased } },
        { "dropout where outputs are kept", 11,
          { embed, branch, drop, to18, attention, drop, to6, join, drop, norm, head } },
        { "dropout before join", 8, { embed, branch, to18, attention, drop, join, drop, tied } },
        { "dropout twice", 8, { embed, drop, drop, branch, to6, gelu, join, head } },
        { "tiles, one of them narrow", 6, { embed, TILE(0, 3, 5), TILE(1, 3, 1), TILE(2, 3, 4), gelu, head } },
        { "tiles before attention, gelu and join", 13,
          { embed, branch, TILE(0, 2, 10), TILE(1, 2, 8), rotary3, attention, TILE(0, 2, 3), TILE(1, 2, 3), join,
            TILE(0, 2, 4), TILE(1, 2, 5), norm, head } },
        { "branch after branch's end", 12,
          { embed, branch, norm, to6, join, branch, norm, to18, attention, join, norm, head } },
    };
    for (size_t i = 0; i < TUTTI_LENGTH(lists); i++)
        for (int context = 1; context <= 7; context += 3)
            check_against_oracle(lists[i].name, build(lists[i].layers, lists[i].count, context, 9), 1 + (int64_t)i % 3,
                                 100 + i);
    check_against_oracle("gpt", gpt_net("gpt(layers=2,dim=12,heads=3)", 5, 17), 3, 1);
    check_against_oracle("gpt of one head", gpt_net("gpt(layers=1,dim=16,heads=1)", 33, 7), 2, 2);
    check_against_oracle("gpt with all options",
                         gpt_net("gpt(layers=2,dim=12,heads=3,dropout=0.2,positions=rotary,norm=rms,tied=on)", 5, 17),
                         3, 4);
    check_against_oracle("gpt in tiles", gpt_net("gpt(layers=1,dim=12,heads=3,tiles=5)", 5, 17), 3, 6);
    check_against_oracle("gpt of width 1", gpt_net("gpt(layers=1,dim=4,heads=4)", 4, 3), 2, 3);
}

/* Logits are taken 4096 classes at a time. */
static void large_vocabularies_in_chunks_match_the_formulas(void **state)
{
    (void)state;
    check_against_oracle("one chunk", gpt_net("gpt(layers=1,dim=4,heads=1)", 2, 4096), 2, 4);
    check_against_oracle("a chunk and one class", gpt_net("gpt(layers=1,dim=4,heads=1)", 2, 4097), 2, 5);
    check_against_oracle("three chunks", gpt_net("gpt(layers=1,dim=4,heads=1)", 2, 9001), 2, 6);
    {
        const tutti_layer layers[] = { embed, { .kind = TUTTI_LAYER_LINEAR, .out = 5000 } };
        check_against_oracle("chunks with a bias", build(layers, 2, 3, 5000), 2, 7);
        check_against_oracle("chunks of a tied matrix", gpt_net("gpt(layers=1,dim=4,heads=1,tied=on)", 2, 4097), 2, 8);
    }
}

/* ---- bits ---- */
static float **copy_gradients(const text *t)
{
    float **copy = calloc((size_t)t->count, sizeof *copy);

    for (int k = 0; k < t->count; k++) {
        copy[k] = calloc(t->net.sequence->params[k].count, sizeof(float));
        memcpy(copy[k], t->gradients[k], t->net.sequence->params[k].count * sizeof(float));
    }
    return copy;
}

static void free_gradients(const text *t, float **copy)
{
    for (int k = 0; k < t->count; k++)
        free(copy[k]);
    free(copy);
}

/* A context of 300 has blocks of two windows: seven windows are ((0 1)(2 3)) ((4 5)(6)). */
static void check_tree(const char *model)
{
    nn_net net = gpt_net(model, 300, 11);
    tutti_nn *nn = open_net(&net, NULL, 7);
    text t = text_of(&net, 7, 3);
    float **part[4], **first = NULL;
    double sum = 0;

    for (int add = 0; add < 2; add++) {
        double loss = pass(nn, &t, 7, add, NULL);
        if (add == 0)
            first = copy_gradients(&t);
        for (int b = 0; b < 4 && add == 0; b++) {
            text some = t;
            double one;
            some.tokens += b * 600;
            some.next += b * 600;
            assert_int_equal(tutti_nn_pass_tokens(nn,
                                                  &(tutti_nn_samples){ .count = b < 3 ? 2 : 1,
                                                                       .tokens = some.tokens,
                                                                       .next = some.next },
                                                  &(tutti_nn_step){ 7, false, false,
                                                                    (const float *const *)t.values,
                                                                    t.gradients, NULL },
                                                  &one, NULL),
                             TUTTI_OK);
            part[b] = copy_gradients(&t);
            sum += one;
        }
        assert_true(loss == sum);
        for (int k = 0; k < t.count; k++)
            for (size_t i = 0; i < net.sequence->params[k].count; i++) {
                const float tree = (part[0][k][i] + part[1][k][i]) + (part[2][k][i] + part[3][k][i]);
                if (add == 0 && first[k][i] != tree)
                    fail_msg("%s[%zu]: %.9g, not %.9g", net.sequence->params[k].name, i, (double)first[k][i],
                             (double)tree);
                if (add == 1 && t.gradients[k][i] != part[3][k][i] + tree) /* on what the last block left */
                    fail_msg("added, %s[%zu]: %.9g", net.sequence->params[k].name, i, (double)t.gradients[k][i]);
            }
    }
    for (int b = 0; b < 4; b++)
        free_gradients(&t, part[b]);
    free_gradients(&t, first);
    tutti_nn_close(nn);
    text_free(&t);
}

static void a_pass_is_bitwise_the_tree_sum_of_blocks(void **state)
{
    (void)state;
    check_tree("gpt(layers=1,dim=8,heads=2)");
    check_tree("gpt(layers=1,dim=8,heads=2,tied=on)");
}

/* Masks belong to samples: not to the pass, the block or the place in them. And a network whose
   rate is 0 has the bits of one without dropout. */
static void dropped_values_depend_on_the_sample_alone(void **state)
{
    nn_net net = gpt_net("gpt(layers=1,dim=8,heads=2,dropout=0.3)", 300, 11),
           plain = gpt_net("gpt(layers=1,dim=8,heads=2)", 300, 11);
    tutti_nn *nn = open_net(&net, NULL, 4), *kept = open_net(&plain, NULL, 4);
    text t = text_of(&net, 4, 3);
    double all, other, one, sum = 0, whole, again;
    float **once, **half = NULL;
    int64_t correct;

    (void)state;
    tutti_nn_draw(nn, 7, 100);
    all = pass(nn, &t, 4, false, NULL);
    once = copy_gradients(&t);
    assert_true(pass(nn, &t, 4, false, NULL) == all);
    tutti_nn_draw(nn, 7, 101);
    other = pass(nn, &t, 4, false, NULL);
    assert_true(other != all);
    tutti_nn_draw(nn, 8, 100);
    assert_true(pass(nn, &t, 4, false, NULL) != all);
    for (uint64_t b = 0; b < 2; b++) {
        text some = t;
        some.tokens += b * 600;
        some.next += b * 600;
        tutti_nn_draw(nn, 7, 100 + 2 * b);
        assert_int_equal(
            tutti_nn_pass_tokens(
                nn, &(tutti_nn_samples){ .count = 2, .tokens = some.tokens, .next = some.next },
                &(tutti_nn_step){ 4, false, false, (const float *const *)t.values, t.gradients,
                                  NULL },
                &one, NULL),
            TUTTI_OK);
        sum += one;
        if (b == 0)
            half = copy_gradients(&t);
    }
    assert_true(sum == all);
    for (int k = 0; k < t.count; k++)
        for (size_t i = 0; i < net.sequence->params[k].count; i++)
            assert_true(once[k][i] == half[k][i] + t.gradients[k][i]);
    assert_int_equal(tutti_nn_evaluate_tokens(
                         nn, &(tutti_nn_samples){ .count = 4, .tokens = t.tokens, .next = t.next },
                         (const float *const *)t.values, &whole, &correct, NULL),
                     TUTTI_OK);
    assert_int_equal(tutti_nn_evaluate_tokens(
                         kept,
                         &(tutti_nn_samples){ .count = 4, .tokens = t.tokens, .next = t.next },
                         (const float *const *)t.values, &again, &correct, NULL),
                     TUTTI_OK);
    assert_true(whole == again);
    free_gradients(&t, once);
    free_gradients(&t, half);
    tutti_nn_close(kept);
    tutti_nn_close(nn);
    text_free(&t);
}

/* Within a block a pass that adds need not round as an addition of the finished gradient
   would, but agrees to its last digits. */
static void adding_passes_accumulate_gradients(void **state)
{
    nn_net net = gpt_net("gpt(layers=2,dim=12,heads=3,dropout=0.1,norm=rms,positions=rotary,tied=on)", 9, 4500);
    tutti_nn *nn = open_net(&net, NULL, 4);
    text t = text_of(&net, 4, 8);
    float **once;

    (void)state;
    pass(nn, &t, 4, false, NULL);
    once = copy_gradients(&t);
    pass(nn, &t, 4, true, NULL);
    for (int k = 0; k < t.count; k++) {
        double most = 0;
        for (size_t i = 0; i < net.sequence->params[k].count; i++)
            most = fmax(most, fabs((double)once[k][i]));
        for (size_t i = 0; i < net.sequence->params[k].count; i++)
            assert_true(fabs((double)t.gradients[k][i] - 2 * (double)once[k][i]) <= 1e-5 * most);
    }
    pass(nn, &t, 4, false, NULL);
    for (int k = 0; k < t.count; k++)
        assert_memory_equal(t.gradients[k], once[k], net.sequence->params[k].count * sizeof(float));
    free_gradients(&t, once);
    tutti_nn_close(nn);
    text_free(&t);
}

static void window_losses_do_not_depend_on_evaluation_batch_size(void **state)
{
    static const int contexts[] = { 1, 5, 16, 100 };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(contexts); c++) {
        nn_net net = gpt_net("gpt(layers=1,dim=24,heads=2)", contexts[c], 31);
        tutti_nn *nn = open_net(&net, NULL, 3);
        text t = text_of(&net, 40, 3);
        const size_t context = (size_t)contexts[c];
        double all, sum = 0, one;
        int64_t correct, hits = 0, some;

        assert_int_equal(tutti_nn_evaluate_tokens(
                             nn,
                             &(tutti_nn_samples){ .count = 40, .tokens = t.tokens, .next = t.next },
                             (const float *const *)t.values, &all, &correct, NULL),
                         TUTTI_OK);
        for (size_t w = 0; w < 40; w++) {
            double again;
            assert_int_equal(
                tutti_nn_evaluate_tokens(nn,
                                         &(tutti_nn_samples){ .count = 1,
                                                              .tokens = t.tokens + w * context,
                                                              .next = t.next + w * context },
                                         (const float *const *)t.values, &one, &some, NULL),
                TUTTI_OK);
            sum += one;
            hits += some;
            if (w < 39) {
                assert_int_equal(
                    tutti_nn_evaluate_tokens(nn,
                                             &(tutti_nn_samples){ .count = 2,
                                                                  .tokens = t.tokens + w * context,
                                                                  .next = t.next + w * context },
                                             (const float *const *)t.values, &again, &some, NULL),
                    TUTTI_OK);
                assert_int_equal(tutti_nn_evaluate_tokens(
                                     nn,
                                     &(tutti_nn_samples){ .count = 1,
                                                          .tokens = t.tokens + (w + 1) * context,
                                                          .next = t.next + (w + 1) * context },
                                     (const float *const *)t.values, &all, &some, NULL),
                                 TUTTI_OK);
                assert_true(fabs(again - (one + all)) <= 1e-13 * again); /* two sums in double */
            }
        }
        assert_int_equal(tutti_nn_evaluate_tokens(
                             nn,
                             &(tutti_nn_samples){ .count = 40, .tokens = t.tokens, .next = t.next },
                             (const float *const *)t.values, &all, &correct, NULL),
                         TUTTI_OK);
        assert_true(fabs(all - sum) <= 1e-12 * all);
        assert_int_equal(correct, hits);
        tutti_nn_close(nn);
        text_free(&t);
    }
}

/* ---- hooks ---- */
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

/* A tied matrix stays needed from the embedding to the head, and is
   announced once, with the embedding. */
static void hooks_come_in_one_order_whatever_the_number_of_samples(void **state)
{
    const tutti_layer apart[] = { embed, positions, norm, head }, together[] = { embed, positions, norm, tied };
    static const char *const orders[] = {
        "n0f d0f n1f d1f n2f d2f n3f d3f n3b r0b d3b n2b r1b r2b d2b n1b r3b d1b n0b r4b d0b ",
        "n0f n1f d1f n2f d2f d0f n0b n2b r0b r1b d2b n1b r2b d1b r3b d0b "
    };

    (void)state;
    for (int64_t which = 0; which < 8; which++) {
        const int64_t n = which / 2;
        const char *const expected = orders[which % 2];
        nn_net net = build(which % 2 == 0 ? apart : together, 4, 4, 9);
        tutti_nn *nn = open_net(&net, NULL, 3);
        text t = text_of(&net, 3, 1);
        calls c = { "" };
        const tutti_nn_hooks hooks = { &c, on_need, on_done, on_ready };
        pass(nn, &t, n, false, &hooks);
        assert_string_equal(c.text, expected);
        if (n == 0)
            for (int k = 0; k < t.count; k++)
                for (size_t i = 0; i < net.sequence->params[k].count; i++)
                    assert_true(t.gradients[k][i] == 0);
        tutti_nn_close(nn);
        text_free(&t);
    }
}

/* ---- parameters ---- */
static void gpt_has_the_benchmark_peers_parameters_in_ready_order(void **state)
{
    static const char *const names[] = {
        "head.weight", "ln.weight", "ln.bias", "b.1.f2.weight", "b.1.f2.bias", "b.1.f1.weight", "b.1.f1.bias",
        "b.1.l2.weight", "b.1.l2.bias", "b.1.o.weight", "b.1.o.bias", "b.1.qkv.weight", "b.1.qkv.bias", "b.1.l1.weight",
        "b.1.l1.bias", "b.0.f2.weight",
    };
    const tutti_nn_task task = { .classes = 256, .context = 128 };
    tutti_nn_param p[64];
    size_t total = 0;
    int count;

    (void)state;
    assert_int_equal(tutti_nn_params("gpt(4,256,4,128)", &task, p, 64, &count, NULL), TUTTI_OK);
    assert_int_equal(count, 1 + 2 + 4 * 12 + 2);
    for (int k = 0; k < count; k++)
        total += p[k].count;
    assert_int_equal(
        total, 256 * 256 + 128 * 256 +
                   4 * (2 * 256 + 256 * 768 + 768 + 256 * 256 + 256 + 2 * 256 + 256 * 1024 + 1024 + 1024 * 256 + 256) +
                   2 * 256 + 256 * 256);
    assert_int_equal(tutti_nn_params("gpt(layers=2,dim=8,heads=2)", &task, p, 64, &count, NULL), TUTTI_OK);
    for (size_t k = 0; k < TUTTI_LENGTH(names); k++)
        assert_string_equal(p[k].name, names[k]);
    assert_string_equal(p[count - 2].name, "pe.weight");
    assert_int_equal(p[count - 2].rows, 128);
    assert_string_equal(p[count - 1].name, "e.weight");
    assert_int_equal(p[count - 1].rows, 256);
    assert_int_equal(p[count - 1].cols, 8);
    assert_int_equal(p[count - 1].unit, 0);
    assert_int_equal(p[11].dim[0], 24);
    assert_int_equal(p[11].dim[1], 8);
}

/* Matrices normal with 0.02, norms 1 and 0, biases of linear layers uniform within the root of
   their inputs. Five standard errors. */
static void initial_values_have_the_benchmark_peers_distributions(void **state)
{
    const tutti_nn_task task = { .classes = 256, .context = 128 };
    tutti_nn_param p[64];
    int count;

    (void)state;
    assert_int_equal(tutti_nn_params("gpt(layers=1,dim=64,heads=2)", &task, p, 64, &count, NULL), TUTTI_OK);
    for (int k = 0; k < count; k++) {
        float *v = calloc(p[k].count, sizeof *v);
        double sum = 0, square = 0, n = (double)p[k].count, most = 0;
        tutti_nn_initialise(&p[k], 2 * p[k].unit + (p[k].dims == 1), 3, v);
        for (size_t i = 0; i < p[k].count; i++) {
            sum += (double)v[i];
            square += (double)v[i] * (double)v[i];
            most = fmax(most, fabs((double)v[i]));
        }
        if (p[k].dims == 2) {
            assert_true(fabs(sum / n) < 5 * 0.02 / sqrt(n));
            assert_true(fabs(square / n / 0.0004 - 1) < 5 * sqrt(2 / n));
        } else if (p[k].fan_in > 0) {
            assert_true(most <= 1 / sqrt((double)p[k].fan_in) * (1 + 1e-7) && most > 0.8 / sqrt((double)p[k].fan_in));
        } else {
            assert_true(most == (double)p[k].start && sum == n * (double)p[k].start);
        }
        free(v);
    }
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

static void lists_that_make_no_network_of_tokens_are_refused(void **state)
{
    const tutti_nn_task task = { .classes = 9, .context = 4 };
    const tutti_layer twice[] = { embed, embed, head }, late[] = { embed, norm, positions, head },
                      open[] = { embed, branch, norm, head }, shut[] = { embed, join, head },
                      idle[] = { embed, branch, norm, join, head }, unequal[] = { embed, branch, to11, join, head },
                      heads[] = { embed, to11, attention, head },
                      three[] = { embed, { .kind = TUTTI_LAYER_LINEAR, .out = 12 }, attention, head },
                      none[] = { embed, { .kind = TUTTI_LAYER_ATTENTION }, head }, end[] = { embed, head, gelu },
                      narrow[] = { embed, to6 }, relu[] = { embed, { .kind = TUTTI_LAYER_RELU }, head },
                      zero[] = { { .kind = TUTTI_LAYER_EMBEDDING }, head },
                      wide[] = { embed, { .kind = TUTTI_LAYER_LINEAR, .out = 1 << 21 }, head },
                      joined[] = { embed, branch, to6, branch, to6, join, join, head },
                      images[] = { LINEAR(4), gelu, LINEAR(9) }, fine[] = { embed, head };

    (void)state;
    refused_list(twice, 3, task,
                 "layer 1 (embedding): a network of tokens begins with an embedding and has no other, one of frames "
                 "with frames");
    refused_list(late, 4, task, "layer 2 (positions) must follow the embedding");
    refused_list(open, 4, task, "layer 1 (branch) is never joined");
    refused_list(shut, 3, task, "layer 1 (join) has no branch to join");
    refused_list(idle, 5, task, "layer 3 (join): its branch, layer 1, has no linear or lstm layer");
    refused_list(unequal, 5, task, "layer 3 (join): rows of 11 values cannot be added to the 6 of its branch, layer 1");
    refused_list(heads, 4, task, "layer 2 (attention) of 3 heads on rows of 11 values");
    refused_list(three, 4, task, "layer 2 (attention) of 3 heads on rows of 12 values");
    refused_list(none, 3, task, "layer 1 (attention) of 0 heads on rows of 6 values");
    refused_list(end, 3, task, "as many outputs as there are tokens (9); this one ends in gelu with 9");
    refused_list(narrow, 2, task, "ends in linear with 6");
    refused_list(relu, 3, task, "layer 1 (relu) must follow a linear layer");
    refused_list(zero, 2, task, "layer 0 (embedding) has a matrix of 9 x 0");
    refused_list(wide, 3, task, "layer 1 (linear) has a matrix of 2097152 x 6");
    refused_list(joined, 8, task, "layer 6 (join) directly follows another; put a layer between");
    refused_list(fine, 2, (tutti_nn_task){ .classes = 9, .context = 65537 },
                 "a task of windows of 65537 tokens out of 9: windows must have from 1 to 65536");
    refused_list(fine, 2, (tutti_nn_task){ .classes = 1, .context = 3 }, "windows of 3 tokens out of 1");
    refused_list(images, 3, (tutti_nn_task){ 1, 4, 4, 9, 0 },
                 "layer 1 (gelu) works on tokens or frames; a network of tokens begins with an embedding");
}

static void misplaced_layers_are_rejected(void **state)
{
    const tutti_nn_task task = { .classes = 9, .context = 4 };
    const tutti_layer alone[] = { embed, to18, rotary3, head }, others[] = { embed, to18, rotary3, attention1, head },
                      odd[] = { embed, { .kind = TUTTI_LAYER_LINEAR, .out = 27 }, rotary3, attention, head },
                      normed[] = { embed, norm, rotary3, attention, head }, last[] = { embed, to18, rotary3 },
                      certain[] = { embed, { .kind = TUTTI_LAYER_DROPOUT, .rate = 1 }, head },
                      never[] = { embed, { .kind = TUTTI_LAYER_DROPOUT, .rate = -0.1 }, head },
                      wide[] = { embed, to11, tied },
                      early[] = { embed, { .kind = TUTTI_LAYER_LINEAR, .out = 6, .bare = true, .tied = true }, head },
                      biased_tie[] = { embed, { .kind = TUTTI_LAYER_LINEAR, .out = 9, .tied = true } },
                      images[] = { LINEAR(4), drop, LINEAR(9) },
                      short_of[] = { embed, TILE(0, 3, 2), TILE(1, 3, 2), head },
                      second[] = { embed, TILE(1, 2, 2), head }, beyond[] = { embed, to6, to6, TILE(2, 2, 2), head },
                      ended[] = { embed, to6, TILE(0, 2, 5), TILE(1, 2, 4) },
                      masked[] = { embed, TILE(0, 2, 5), TILE(1, 2, 4), { .kind = TUTTI_LAYER_RELU }, head };

    (void)state;
    refused_list(alone, 4, task,
                 "layer 2 (rotary) of 3 heads must stand between a linear layer and an attention of as many heads");
    refused_list(others, 5, task, "layer 2 (rotary) of 3 heads must stand between");
    refused_list(normed, 5, task, "layer 2 (rotary) of 3 heads must stand between");
    refused_list(last, 3, task, "layer 2 (rotary) of 3 heads must stand between");
    refused_list(odd, 5, task, "layer 2 (rotary) of 3 heads on rows of 27 values: heads must be of an even width");
    refused_list(certain, 3, task, "layer 1 (dropout) has the rate 1; it must be from 0 to below 1");
    refused_list(never, 3, task, "layer 1 (dropout) has the rate -0.1");
    refused_list(wide, 3, task,
                 "layer 2 (linear) is tied to the embedding's matrix of 9 x 6: it must be the last layer, have no "
                 "bias, and its rows of 11 values must be as wide");
    refused_list(early, 3, task, "layer 1 (linear) is tied to the embedding's matrix");
    refused_list(short_of, 4, task,
                 "layer 2 (linear) is tile 1 of 3: tiles stand one after another, from 0 to the last");
    refused_list(second, 3, task, "layer 1 (linear) is tile 1 of 2: tiles stand one after another");
    refused_list(beyond, 5, task, "layer 3 (linear) is tile 2 of 2: tiles stand one after another");
    refused_list(ended, 4, task, "layer 3 (linear) is tile 1 of 2: the last layer cannot be in tiles");
    refused_list(masked, 5, task, "layer 2 (linear) is tile 1 of 2: a layer with a relu behind it cannot be in tiles");
    refused_list(biased_tie, 2, task, "layer 1 (linear) is tied to the embedding's matrix");
    refused_list(images, 3, (tutti_nn_task){ 1, 4, 4, 9, 0 }, "layer 1 (dropout) works on tokens");
}

static void refused_model(const char *model, tutti_nn_task task, const char *sentence)
{
    tutti_error err = { 0 };
    int count = 9;

    assert_int_equal(tutti_nn_params(model, &task, NULL, 0, &count, &err), TUTTI_ERR_USAGE);
    assert_int_equal(count, 0);
    if (strstr(err.text, sentence) == NULL)
        fail_msg("'%s' does not contain '%s'", err.text, sentence);
}

static void mismatched_models_and_tasks_are_rejected_with_a_message(void **state)
{
    const tutti_nn_task windows = { .classes = 256, .context = 128 };

    (void)state;
    refused_model("gpt", (tutti_nn_task){ 1, 28, 28, 10, 0 },
                  "gpt needs windows of tokens; this task has samples of 1 x 28 x 28 values");
    refused_model("gpt(dim=10,heads=3)", windows, "gpt with dim=10 and heads=3: dim must be a multiple of heads");
    refused_model("gpt(dim=6,heads=2,positions=rotary)", windows,
                  "rotary positions turn pairs, so heads must be of an even width, not 3");
    refused_model("gpt(dropout=1)", windows, "dropout");
    refused_model("gpt(norm=batch)", windows, "norm");
    refused_model("gpt(context=64)", windows,
                  "gpt with context=64 on windows of 128 tokens; give both the same context, the data as "
                  "--data 'text(file=F,context=64)'");
    refused_model("gpt(vocab=300)", windows, "gpt with vocab=300 on data of 256 different tokens");
    refused_model("gpt(layers=0)", windows, "layers");
    refused_model("gpt(dim=8,heads=2,tiles=9)", windows,
                  "gpt with tiles=9 and dim=8: a tile has one output at least, so tiles must be 8 or fewer");
    assert_true(tutti_nn_takes_tokens("gpt(2,8,2)"));
    assert_false(tutti_nn_takes_tokens("mlp"));
    assert_false(tutti_nn_takes_tokens("gtp"));
    assert_false(tutti_nn_takes_tokens("gpt("));
    refused_model(
        "mlp", windows,
        "this network takes images or vectors, and the task has windows of 128 tokens; gpt and wordlm take tokens");
}

static void invalid_passes_are_rejected_with_a_message(void **state)
{
    nn_net net = gpt_net("gpt(layers=1,dim=4,heads=1)", 4, 5);
    const nn_net mlp = net_of("mlp(hidden=3)", 1, 2, 2, 3);
    tutti_nn *nn = open_net(&net, NULL, 2), *images = open_net(&mlp, NULL, 2);
    text t = text_of(&net, 2, 1);
    const float *const *values = (const float *const *)t.values;
    tutti_error err = { 0 };
    int64_t correct;
    double loss;

    (void)state;
    t.tokens[6] = 5;
    assert_int_equal(tutti_nn_pass_tokens(
                         nn, &(tutti_nn_samples){ .count = 2, .tokens = t.tokens, .next = t.next },
                         &(tutti_nn_step){ 2, false, false, values, t.gradients, NULL }, &loss,
                         &err),
                     TUTTI_ERR_CORRUPT);
    assert_string_equal(err.text, "the token of place 2 of sample 1 is 5; the vocabulary is 0 to 4");
    t.tokens[6] = 0;
    t.next[1] = UINT32_MAX;
    assert_int_equal(tutti_nn_evaluate_tokens(
                         nn, &(tutti_nn_samples){ .count = 2, .tokens = t.tokens, .next = t.next },
                         values, &loss, &correct, &err),
                     TUTTI_ERR_CORRUPT);
    assert_string_equal(err.text, "the label of place 1 of sample 0 is 4294967295; the vocabulary is 0 to 4");
    t.next[1] = 0;
    assert_int_equal(tutti_nn_pass_tokens(
                         nn, &(tutti_nn_samples){ .count = 3, .tokens = t.tokens, .next = t.next },
                         &(tutti_nn_step){ 2, false, false, values, t.gradients, NULL }, &loss,
                         &err),
                     TUTTI_ERR_USAGE);
    assert_string_equal(err.text, "a pass of 3 samples; the network was opened for 0 to 2");
    assert_int_equal(tutti_nn_pass(nn, &(tutti_nn_samples){ .count = 0 },
                                   &(tutti_nn_step){ 1, false, false, values, t.gradients, NULL },
                                   &loss, &err),
                     TUTTI_ERR_USAGE);
    assert_string_equal(err.text, "a pass of images or vectors through a network that takes tokens");
    assert_int_equal(
        tutti_nn_evaluate(nn, &(tutti_nn_samples){ .count = 0 }, values, &loss, &correct, &err),
        TUTTI_ERR_USAGE);
    assert_int_equal(
        tutti_nn_pass_tokens(
            images, &(tutti_nn_samples){ .count = 0, .tokens = t.tokens, .next = t.next },
            &(tutti_nn_step){ 1, false, false, values, t.gradients, NULL }, &loss, &err),
        TUTTI_ERR_USAGE);
    assert_string_equal(err.text, "a pass of tokens through a network that takes images or vectors");
    tutti_nn_close(images);
    images = NULL;
    assert_int_equal(tutti_nn_open(&images, "gpt", &(tutti_nn_task){ .classes = 5, .context = 4 },
                                   &(tutti_nn_options){ .backend = "reference", .batch = 1 }, &err),
                     TUTTI_ERR_USAGE);
    assert_string_equal(err.text, "the backend 'reference' has no layers for tokens or frames; use onednn");
    assert_null(images);
    pass(nn, &t, 2, false, NULL);
    tutti_nn_close(nn);
    text_free(&t);
}

/* ---- memory that runs out ---- */
static void failed_allocations_are_errors_and_later_calls_succeed(void **state)
{
    const tutti_nn_task task = { .classes = 7, .context = 300 };
    nn_net net = gpt_net("gpt(layers=1,dim=8,heads=2,dropout=0.1,positions=rotary)", 300, 7);
    text t = text_of(&net, 5, 1);
    const float *const *values = (const float *const *)t.values;
    tutti_status status = TUTTI_ERR_MEMORY;
    tutti_error err = { 0 };
    tutti_nn *nn = NULL, *fresh;
    int64_t correct;
    double loss, again;
    int n;

    (void)state;
    for (n = 0; status != TUTTI_OK; n++) {
        allocations_left = n;
        status = tutti_nn_open(&nn, "gpt(layers=1,dim=8,heads=2,dropout=0.1,positions=rotary)", &task,
                               &(tutti_nn_options){ .batch = 5 }, &err);
        allocations_left = -1;
        assert_true(status == TUTTI_OK ? nn != NULL : nn == NULL);
        if (status != TUTTI_OK)
            assert_int_equal(status, TUTTI_ERR_MEMORY);
    }
    assert_true(n > 12);
    for (n = 0, status = TUTTI_ERR_MEMORY; status != TUTTI_OK; n++) {
        allocations_left = n;
        status = tutti_nn_evaluate_tokens(
            nn, &(tutti_nn_samples){ .count = 5, .tokens = t.tokens, .next = t.next }, values,
            &loss, &correct, NULL);
        allocations_left = -1;
        assert_true(status == TUTTI_OK || status == TUTTI_ERR_MEMORY);
    }
    for (n = 0, status = TUTTI_ERR_MEMORY; status != TUTTI_OK; n++) {
        allocations_left = n;
        status = tutti_nn_pass_tokens(
            nn, &(tutti_nn_samples){ .count = 1, .tokens = t.tokens, .next = t.next },
            &(tutti_nn_step){ 1, false, false, values, t.gradients, NULL }, &loss, NULL);
        allocations_left = -1;
        assert_true(status == TUTTI_OK || status == TUTTI_ERR_MEMORY);
    }
    loss = pass(nn, &t, 5, false, NULL);
    allocations_left = 0; /* of sizes known by now */
    assert_true(pass(nn, &t, 5, false, NULL) == loss);
    pass(nn, &t, 1, true, NULL);
    allocations_left = -1;
    fresh = open_net(&net, NULL, 5);
    again = pass(fresh, &t, 5, false, NULL);
    assert_true(again == loss);
    assert_int_equal(tutti_nn_bytes(nn), tutti_nn_bytes(fresh)); /* what the evaluation took was given back */
    tutti_nn_close(fresh);
    tutti_nn_close(nn);
    text_free(&t);
}

/* gpt(4,256,4,128), 8 windows: outputs kept for backward are 16 values a dim, row and block, 16 MiB
   each; slopes, logits and the ends share. */
static void memory_stays_within_what_is_kept_for_backward(void **state)
{
    nn_net net = gpt_net("gpt(4,256,4,128)", 128, 256);
    tutti_nn *nn = open_net(&net, NULL, 8);

    (void)state;
    assert_in_range(tutti_nn_bytes(nn), 60 << 20, 80 << 20);
    tutti_nn_close(nn);
}

static void describe_lists_matrix_products_without_reference_kernels(void **state)
{
    nn_net net = gpt_net("gpt(layers=1,dim=64,heads=2)", 16, 96);
    tutti_nn *nn = open_net(&net, NULL, 8);
    char lines[8192];
    const int n = tutti_nn_describe(nn, lines, sizeof lines);

    (void)state;
    assert_int_equal(n, strlen(lines));
    assert_null(strstr(lines, ": ref"));
    assert_non_null(strstr(lines, "linear 4 forward: "));
    assert_non_null(strstr(lines, "linear 15 data: "));
    tutti_nn_close(nn);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_and_gradients_match_the_formulas),
        cmocka_unit_test(large_vocabularies_in_chunks_match_the_formulas),
        cmocka_unit_test(a_pass_is_bitwise_the_tree_sum_of_blocks),
        cmocka_unit_test(dropped_values_depend_on_the_sample_alone),
        cmocka_unit_test(adding_passes_accumulate_gradients),
        cmocka_unit_test(window_losses_do_not_depend_on_evaluation_batch_size),
        cmocka_unit_test(hooks_come_in_one_order_whatever_the_number_of_samples),
        cmocka_unit_test(gpt_has_the_benchmark_peers_parameters_in_ready_order),
        cmocka_unit_test(initial_values_have_the_benchmark_peers_distributions),
        cmocka_unit_test(lists_that_make_no_network_of_tokens_are_refused),
        cmocka_unit_test(misplaced_layers_are_rejected),
        cmocka_unit_test(mismatched_models_and_tasks_are_rejected_with_a_message),
        cmocka_unit_test(invalid_passes_are_rejected_with_a_message),
        cmocka_unit_test(failed_allocations_are_errors_and_later_calls_succeed),
        cmocka_unit_test(memory_stays_within_what_is_kept_for_backward),
        cmocka_unit_test(describe_lists_matrix_products_without_reference_kernels),
    };
    return cmocka_run_group_tests_name("nn/sequence", tests, NULL, NULL);
}
