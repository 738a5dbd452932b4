/* Goal: networks of tokens compute their formulas, and gpt has the parameters and the initial
   values of the benchmark's peers. Method: an oracle in double that only goes forward, layer by
   layer from the formulas of math.h, and central differences of its loss; lists of layers that gpt
   does not have; awkward widths, contexts and vocabularies. */
#include "kernels/device.h"
#include "nn/math/math.h"
#include "sequence_examples.h"

enum { NODES_MAX = 40, VALUES_MAX = 200000 };

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
                     *joined = n->layer.kind == TUTTI_LAYER_JOIN ? o->row[n->partner] : NULL;
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
                case TUTTI_LAYER_JOIN: v = x[r * in + c] + joined[r * in + c]; break;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_and_gradients_match_the_formulas),
        cmocka_unit_test(large_vocabularies_in_chunks_match_the_formulas),
        cmocka_unit_test(gpt_has_the_benchmark_peers_parameters_in_ready_order),
        cmocka_unit_test(initial_values_have_the_benchmark_peers_distributions),
    };
    return cmocka_run_group_tests_name("nn/sequence", tests, NULL, NULL);
}
