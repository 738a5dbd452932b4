/* Goal: with a precision of 16 bits the operands of products, and nothing else, are rounded to it:
   for every kind of network, on every CPU that oneDNN can play here, whether it has such products
   or not. And such networks keep the promises of nn.h. Method: an oracle in double that rounds the
   same operands at the same places, for products one behind another; for all networks the distance
   to float32, which can be neither 0 nor more than the format's unit roundoff allows; equal bits of
   blocks and evaluations; allocations counted. */
#include "nn/dnnl_compat.h"
#include "allocations.h"
#include "nn_test.h"
#include "sanitized.h"
#include "base/machine.h"

/* the most that a number moves, relative */
static const double roundoff[] = { [TUTTI_BF16] = 0x1p-8, [TUTTI_F16] = 0x1p-11 };

/* ---- examples of any kind ---- */
typedef struct subject {
    const char *model;
    tutti_nn_task task;
    int64_t samples;
    int count;
    tutti_nn_param *params;
    float **values, **gradients, *x;
    uint8_t *labels;
    uint32_t *tokens, *next, *rows;
} subject;

static subject subject_of(const char *model, tutti_nn_task task, int64_t samples, uint64_t seed)
{
    const size_t context = task.context > 0 ? (size_t)task.context : 1,
                 each = task.context > 0 ? 0 : (size_t)task.channels * (size_t)task.height * (size_t)task.width;
    subject s = { .model = model, .task = task, .samples = samples };
    tutti_error err = { 0 };

    if (tutti_nn_params(model, &task, NULL, 0, &s.count, &err) != TUTTI_OK)
        fail_msg("%s: %s", model, err.text);
    s.params = calloc((size_t)s.count, sizeof *s.params);
    s.values = calloc((size_t)s.count, sizeof *s.values);
    s.gradients = calloc((size_t)s.count, sizeof *s.gradients);
    assert_int_equal(tutti_nn_params(model, &task, s.params, s.count, &s.count, NULL), TUTTI_OK);
    for (int k = 0; k < s.count; k++) {
        s.values[k] = calloc(s.params[k].count, sizeof(float));
        s.gradients[k] = calloc(s.params[k].count, sizeof(float));
        tutti_nn_initialise(&s.params[k], 2 * s.params[k].unit + (s.params[k].dims == 1), seed, s.values[k]);
    }
    s.x = calloc((size_t)samples * each + 1, sizeof *s.x);
    s.labels = calloc((size_t)samples + 1, 1);
    s.tokens = calloc((size_t)samples * context + 1, sizeof *s.tokens);
    s.next = calloc((size_t)samples * context + 1, sizeof *s.next);
    s.rows = calloc((size_t)samples * (size_t)(task.tables + 1), sizeof *s.rows);
    for (size_t i = 0; i < (size_t)samples * each; i++)
        s.x[i] = (float)tutti_normal((tutti_rng){ seed, 3, 0 }, i);
    for (size_t i = 0; i < (size_t)samples * context; i++) {
        s.tokens[i] = (uint32_t)(tutti_random((tutti_rng){ seed, 4, 0 }, i) % (uint64_t)task.classes);
        s.next[i] = (uint32_t)(tutti_random((tutti_rng){ seed, 5, 0 }, i) % (uint64_t)task.classes);
    }
    for (size_t i = 0; i < (size_t)samples * (size_t)task.tables; i++)
        s.rows[i] = (uint32_t)(tutti_random((tutti_rng){ seed, 6, 0 }, i) % task.rows);
    for (int64_t i = 0; i < samples; i++)
        s.labels[i] = (uint8_t)(tutti_random((tutti_rng){ seed, 7, 0 }, (uint64_t)i) % (uint64_t)task.classes);
    return s;
}

static void subject_free(subject *s)
{
    for (int k = 0; k < s->count; k++) {
        free(s->values[k]);
        free(s->gradients[k]);
    }
    free(s->params);
    free(s->values);
    free(s->gradients);
    free(s->x);
    free(s->labels);
    free(s->tokens);
    free(s->next);
    free(s->rows);
}

static tutti_nn *open_subject(const subject *s, tutti_dtype precision, int threads)
{
    tutti_error err = { 0 };
    tutti_nn *nn;

    if (tutti_nn_open(&nn, s->model, &s->task,
                      &(tutti_nn_options){ .batch = s->samples, .threads = threads, .precision = precision },
                      &err) != TUTTI_OK)
        fail_msg("%s: %s", s->model, err.text);
    return nn;
}

static double pass(tutti_nn *nn, const subject *s, int64_t first, int64_t n, double divisor, bool add, bool same,
                   float *const *gradients)
{
    const tutti_nn_task *t = &s->task;
    const float *const *values = (const float *const *)s->values;
    const float *x = s->x + (t->context > 0 ? 0 : (size_t)first * (size_t)(t->channels * t->height * t->width));
    tutti_error err = { 0 };
    double loss;
    const tutti_status status =
        t->tables > 0
            ? tutti_nn_pass_rows(nn,
                                 &(tutti_nn_samples){ .count = n,
                                                      .x = x,
                                                      .labels = s->labels + first,
                                                      .rows = s->rows + first * t->tables },
                                 &(tutti_nn_step){ divisor, add, same, values, gradients, NULL },
                                 &loss, &err)
        : t->context > 0
            ? tutti_nn_pass_tokens(nn,
                                   &(tutti_nn_samples){ .count = n,
                                                        .tokens = s->tokens + first * t->context,
                                                        .next = s->next + first * t->context },
                                   &(tutti_nn_step){ divisor, add, same, values, gradients, NULL },
                                   &loss, &err)
            : tutti_nn_pass(
                  nn, &(tutti_nn_samples){ .count = n, .x = x, .labels = s->labels + first },
                  &(tutti_nn_step){ divisor, add, same, values, gradients, NULL }, &loss, &err);

    if (status != TUTTI_OK)
        fail_msg("%s: %s", s->model, err.text);
    return loss;
}

static double evaluate(tutti_nn *nn, const subject *s, int64_t first, int64_t n)
{
    const tutti_nn_task *t = &s->task;
    const float *const *values = (const float *const *)s->values;
    const float *x = s->x + (t->context > 0 ? 0 : (size_t)first * (size_t)(t->channels * t->height * t->width));
    tutti_error err = { 0 };
    int64_t correct;
    double loss;
    const tutti_status status =
        t->tables > 0
            ? tutti_nn_evaluate_rows(nn,
                                     &(tutti_nn_samples){ .count = n,
                                                          .x = x,
                                                          .labels = s->labels + first,
                                                          .rows = s->rows + first * t->tables },
                                     values, &(tutti_nn_score){ &loss, &correct, NULL }, &err)
        : t->context > 0
            ? tutti_nn_evaluate_tokens(
                  nn,
                  &(tutti_nn_samples){ .count = n,
                                       .tokens = s->tokens + first * t->context,
                                       .next = s->next + first * t->context },
                  values, &loss, &correct, &err)
            : tutti_nn_evaluate(
                  nn, &(tutti_nn_samples){ .count = n, .x = x, .labels = s->labels + first },
                  values, &loss, &correct, &err);

    if (status != TUTTI_OK)
        fail_msg("%s: %s", s->model, err.text);
    return loss;
}

static const tutti_dtype precisions[] = { TUTTI_BF16, TUTTI_F16 };
/* Every backend and kind of product: plain chains and convolutions in tiles;
   residual images; tokens, with a tied head in two chunks of classes (4096 and the
   rest); both kinds of lstm; categories. */
/* bends: has ReLUs or maxima */
static const struct { const char *model; tutti_nn_task task; int64_t samples; bool bends; } kinds[] = {
    { "mlp(hidden=48)", { 1, 5, 7, 6 }, 20, true },
    { "cnn", { 1, 14, 14, 10 }, 21, true },
    { "vgg(small)", { 3, 16, 16, 4 }, 6, true },
    { "resnet(depth=8)", { 3, 12, 12, 5 }, 7, true },
    { "gpt(layers=2,dim=32,heads=2)", { .classes = 40, .context = 11 }, 5 },
    { "gpt(layers=1,dim=16,heads=1,tied=on,norm=rms,positions=rotary)", { .classes = 7000, .context = 8 }, 3 },
    { "wordlm(dim=12,hidden=20)", { .classes = 30, .context = 9 }, 5 },
    { "blstm(layers=2,hidden=10)", { 1, 8, 9, 4 }, 6 },
    { "ctr(dim=6)", { 1, 1, 5, 2, 0, 4, 50 }, 24, true },
};

/* ---- the oracle: x W_1^T + b_1, ReLU, ..., W_L^T + b_L, cross-entropy;
   operands rounded one by one ---- */
/* To `bits` significant ones, nearest even; the exponents here are far inside both formats. */
static double rounded(double v, int bits)
{
    int exponent;
    const double m = frexp(v, &exponent);
    return ldexp(nearbyint(ldexp(m, bits)), exponent - bits);
}

static double *rounded_all(const double *v, size_t n, tutti_dtype precision)
{
    double *y = calloc(n, sizeof *y);
    for (size_t i = 0; i < n; i++)
        y[i] = precision == TUTTI_F32 ? v[i] : rounded(v[i], precision == TUTTI_BF16 ? 8 : 11);
    return y;
}

static double *widened(const float *v, size_t n)
{
    double *y = calloc(n, sizeof *y);
    for (size_t i = 0; i < n; i++)
        y[i] = (double)v[i];
    return y;
}

enum { LAYERS = 3 };

/* Gradients of mlp into g, as the parameters stand: last layer first, weight before bias. */
static void oracle(const subject *s, tutti_dtype precision, double **g)
{
    const size_t n = (size_t)s->samples;
    double *act[LAYERS + 1], *w[LAYERS], *slope;
    size_t width[LAYERS + 1];

    width[0] = s->params[2 * (LAYERS - 1)].cols;
    act[0] = widened(s->x, n * width[0]);
    for (int l = 0; l < LAYERS; l++) {
        const int k = 2 * (LAYERS - 1 - l);
        double *x = rounded_all(act[l], n * width[l], precision), *plain = widened(s->values[k], s->params[k].count);
        width[l + 1] = s->params[k].rows;
        w[l] = rounded_all(plain, s->params[k].count, precision);
        act[l + 1] = calloc(n * width[l + 1], sizeof(double));
        for (size_t i = 0; i < n; i++)
            for (size_t o = 0; o < width[l + 1]; o++) {
                double sum = (double)s->values[k + 1][o];
                for (size_t j = 0; j < width[l]; j++)
                    sum += x[i * width[l] + j] * w[l][o * width[l] + j];
                act[l + 1][i * width[l + 1] + o] = l + 1 < LAYERS && sum < 0 ? 0 : sum;
            }
        free(x);
        free(plain);
    }
    slope = act[LAYERS];
    for (size_t i = 0; i < n; i++) {
        double total = 0, *z = slope + i * width[LAYERS];
        for (size_t c = 0; c < width[LAYERS]; c++)
            total += exp(z[c]);
        for (size_t c = 0; c < width[LAYERS]; c++)
            z[c] = (exp(z[c]) / total - (c == s->labels[i])) / (double)n;
    }
    for (int l = LAYERS - 1; l >= 0; l--) {
        const int k = 2 * (LAYERS - 1 - l);
        double *dy = rounded_all(slope, n * width[l + 1], precision), *x = rounded_all(act[l], n * width[l], precision),
               *back = calloc(n * width[l], sizeof(double));
        for (size_t o = 0; o < width[l + 1]; o++) {
            g[k + 1][o] = 0;
            for (size_t i = 0; i < n; i++)
                g[k + 1][o] += slope[i * width[l + 1] + o]; /* no product: as it is */
            for (size_t j = 0; j < width[l]; j++) {
                double sum = 0;
                for (size_t i = 0; i < n; i++)
                    sum += dy[i * width[l + 1] + o] * x[i * width[l] + j];
                g[k][o * width[l] + j] = sum;
            }
        }
        for (size_t i = 0; i < n && l > 0; i++)
            for (size_t j = 0; j < width[l]; j++)
                for (size_t o = 0; o < width[l + 1] && act[l][i * width[l] + j] > 0; o++)
                    back[i * width[l] + j] += dy[i * width[l + 1] + o] * w[l][o * width[l] + j];
        free(dy);
        free(x);
        free(slope);
        free(act[l]);
        slope = back;
    }
    free(slope);
    for (int l = 0; l < LAYERS; l++)
        free(w[l]);
}

/* Float32 sums of K products are off by K 2^-24 of the sum of their absolute values at most. That
   can turn an activation or slope that stands between two 16-bit numbers to the other one: a whole
   roundoff, of one in (roundoff / (K 2^-24)), hundreds. So the network is far nearer to the oracle
   than to float32, and to another format's oracle. */
static void only_product_operands_are_rounded_and_only_once(void **state)
{
    (void)state;
    for (size_t p = 0; p < TUTTI_LENGTH(precisions); p++) {
        subject s = subject_of("mlp(hidden=48)", (tutti_nn_task){ 1, 5, 7, 6 }, 20, 11 + p);
        tutti_nn *nn = open_subject(&s, precisions[p], 1);
        double *g[2][2 * LAYERS];
        for (int k = 0; k < s.count; k++)
            g[0][k] = calloc(s.params[k].count, sizeof(double)), g[1][k] = calloc(s.params[k].count, sizeof(double));
        oracle(&s, precisions[p], g[0]);
        oracle(&s, TUTTI_F32, g[1]);
        pass(nn, &s, 0, s.samples, (double)s.samples, false, false, s.gradients);
        for (int k = 0; k < s.count; k++) {
            double off[2] = { 0 }, norm = 0;
            for (size_t i = 0; i < s.params[k].count; i++) {
                for (int w = 0; w < 2; w++)
                    off[w] += pow((double)s.gradients[k][i] - g[w][k][i], 2);
                norm += pow(g[0][k][i], 2);
            }
            if (!(sqrt(off[0] / norm) < 0.15 * roundoff[precisions[p]]) || !(sqrt(off[1]) > 3 * sqrt(off[0])))
                fail_msg("%s: %s is %.3g off from the oracle, %.3g from float32's", tutti_dtype_name(precisions[p]),
                         s.params[k].name, sqrt(off[0] / norm), sqrt(off[1] / norm));
        }
        for (int k = 0; k < s.count; k++)
            free(g[0][k]), free(g[1][k]);
        tutti_nn_close(nn);
        subject_free(&s);
    }
}

/* A chain of L products, each off by at most twice the roundoff (its two operands), and what a
   norm or a softmax makes of it: DEEP of them in all are enough for the smooth networks here.
   Of ReLUs and maxima about one in (1 / roundoff) falls to the other side, and moves its whole
   part of the gradient: the root of the roundoff, four times it for the deepest, which has a
   dozen of them one behind another. A network that quietly computed in float32 would be off by
   nothing. The loss is scaled: fp16 has fewer digits below 2^-14, and slopes of a mean over
   samples and places are smaller than that. */
enum { DEEP = 24 };
static const double scale = 0x1p10;

static void low_precision_gradient_errors_match_the_roundoff(void **state)
{
    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(kinds); i++)
        for (size_t p = 0; p < TUTTI_LENGTH(precisions); p++) {
            subject s = subject_of(kinds[i].model, kinds[i].task, kinds[i].samples, 5),
                    full = subject_of(kinds[i].model, kinds[i].task, kinds[i].samples, 5);
            tutti_nn *nn = open_subject(&s, precisions[p], 1), *wide = open_subject(&full, TUTTI_F32, 1);
            const double u = roundoff[precisions[p]],
                         loss = pass(nn, &s, 0, s.samples, (double)s.samples / scale, false, false, s.gradients),
                         full_loss =
                             pass(wide, &full, 0, s.samples, (double)s.samples / scale, false, false, full.gradients);
            const double most = kinds[i].bends ? 4 * sqrt(u) : DEEP * u;
            double off = 0, norm = 0;
            assert_true(fabs(loss - full_loss) <= DEEP * u * fabs(full_loss) && loss != full_loss);
            for (int k = 0; k < s.count; k++)
                for (size_t j = 0; j < s.params[k].count; j++) {
                    off += pow((double)s.gradients[k][j] - (double)full.gradients[k][j], 2);
                    norm += pow((double)full.gradients[k][j], 2);
                }
            if (!(sqrt(off / norm) <= most) || !(sqrt(off / norm) >= u / 16))
                fail_msg("%s in %s: gradients are %.3g off from float32's; the format's unit roundoff is %.3g", s.model,
                         tutti_dtype_name(precisions[p]), sqrt(off / norm), u);
            tutti_nn_close(nn);
            tutti_nn_close(wide);
            subject_free(&s);
            subject_free(&full);
        }
}

/* One worker with 128 samples, or of what a network takes for a block twice, and two with
   one each: the bits of their sum. */
static void block_gradients_sum_to_the_pass_bitwise(void **state)
{
    static const struct { const char *model; tutti_nn_task task; int64_t block; } cases[] = {
        { "mlp(hidden=32)",               { 1, 4, 5, 6 },                   64 },
        { "cnn",                          { 1, 10, 10, 5 },                 64 },
        { "resnet(depth=8)",              { 3, 8, 8, 5 },                   64 },
        { "gpt(layers=1,dim=16,heads=2)", { .classes = 30, .context = 64 }, 16 },
        { "wordlm(dim=12,hidden=20)",     { .classes = 30, .context = 32 }, 32 },
    };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(cases); i++)
        for (size_t p = 0; p < TUTTI_LENGTH(precisions); p++) {
            const int64_t block = cases[i].block;
            subject one = subject_of(cases[i].model, cases[i].task, 2 * block, 3),
                    two = subject_of(cases[i].model, cases[i].task, 2 * block, 3),
                    other = subject_of(cases[i].model, cases[i].task, 1, 3);
            tutti_nn *nn = open_subject(&one, precisions[p], 1), *again = open_subject(&two, precisions[p], 1);
            pass(nn, &one, 0, 2 * block, (double)(2 * block), false, false, one.gradients);
            pass(again, &two, 0, block, (double)(2 * block), false, false, two.gradients);
            pass(again, &two, block, block, (double)(2 * block), false, true, other.gradients);
            for (int k = 0; k < one.count; k++)
                for (size_t j = 0; j < one.params[k].count; j++)
                    if (one.gradients[k][j] != two.gradients[k][j] + other.gradients[k][j])
                        fail_msg("%s in %s: element %zu of %s is %.9g in one pass, %.9g in two", one.model,
                                 tutti_dtype_name(precisions[p]), j, one.params[k].name, (double)one.gradients[k][j],
                                 (double)(two.gradients[k][j] + other.gradients[k][j]));
            subject_free(&other);
            tutti_nn_close(nn);
            tutti_nn_close(again);
            subject_free(&one);
            subject_free(&two);
        }
}

static void sample_losses_sum_to_the_16_bit_evaluation_loss(void **state)
{
    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(kinds); i++)
        for (size_t p = 0; p < TUTTI_LENGTH(precisions); p++) {
            subject s = subject_of(kinds[i].model, kinds[i].task, kinds[i].samples, 9);
            tutti_nn *nn = open_subject(&s, precisions[p], 1);
            double sum = 0;
            const double together = evaluate(nn, &s, 0, s.samples);
            for (int64_t k = 0; k < s.samples; k++)
                sum += evaluate(nn, &s, k, 1);
            /* a double's sums in another order; a float's last digit is 1e-8 of a loss */
            if (!(fabs(sum - together) <= 1e-13 * fabs(together)))
                fail_msg("%s in %s: the samples' losses sum to %.17g one by one, %.17g together", s.model,
                         tutti_dtype_name(precisions[p]), sum, together);
            tutti_nn_close(nn);
            subject_free(&s);
        }
}

/* Copies of weights: made again for other values, an evaluation's of them included, and no sooner
   than that (same_weights is the caller's statement). A pass allocates nothing. */
static void copies_of_weights_follow_the_values(void **state)
{
    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(kinds); i++)
        for (size_t p = 0; p < TUTTI_LENGTH(precisions); p++) {
            subject s = subject_of(kinds[i].model, kinds[i].task, kinds[i].samples, 9),
                    other = subject_of(kinds[i].model, kinds[i].task, kinds[i].samples, 10);
            tutti_nn *nn = open_subject(&s, precisions[p], 1), *fresh = open_subject(&s, precisions[p], 1);
            const double n = (double)s.samples;
            float **first = other.gradients;
            int made;
            pass(nn, &s, 0, s.samples, n, false, false, first);
            made = allocations;
            pass(nn, &s, 0, s.samples, n, false, true, s.gradients);
            assert_int_equal(allocations, made);
            for (int k = 0; k < s.count; k++)
                assert_memory_equal(s.gradients[k], first[k], s.params[k].count * sizeof(float));
            evaluate(nn, &other, 0, other.samples); /* of other values, in other places */
            pass(nn, &s, 0, s.samples, n, false, true, s.gradients);
            for (int k = 0; k < s.count; k++)
                assert_memory_equal(s.gradients[k], first[k], s.params[k].count * sizeof(float));
            for (int k = 0; k < s.count; k++) /* other values in the same place */
                memcpy(s.values[k], other.values[k], s.params[k].count * sizeof(float));
            pass(nn, &s, 0, s.samples, n, false, false, s.gradients);
            pass(fresh, &s, 0, s.samples, n, false, false, first);
            for (int k = 0; k < s.count; k++)
                assert_memory_equal(s.gradients[k], first[k], s.params[k].count * sizeof(float));
            tutti_nn_close(nn);
            tutti_nn_close(fresh);
            subject_free(&s);
            subject_free(&other);
        }
}

static void two_threads_agree_with_one_within_roundoff(void **state)
{
#if SANITIZED_THREAD
    (void)state;
    skip(); /* ThreadSanitizer does not see libgomp's barriers */
#else
    (void)state;
    for (size_t p = 0; p < TUTTI_LENGTH(precisions); p++) {
        subject one =
                    subject_of("gpt(layers=1,dim=64,heads=2)", (tutti_nn_task){ .classes = 300, .context = 64 }, 16, 2),
                two = subject_of(one.model, one.task, 16, 2);
        tutti_nn *nn = open_subject(&one, precisions[p], 1), *both = open_subject(&two, precisions[p], 2);
        pass(nn, &one, 0, 16, 16, false, false, one.gradients);
        pass(both, &two, 0, 16, 16, false, false, two.gradients);
        for (int k = 0; k < one.count; k++)
            assert_true(distance(two.gradients[k], one.gradients[k], one.params[k].count) <=
                        0.1 * roundoff[precisions[p]]);
        tutti_nn_close(nn);
        tutti_nn_close(both);
        subject_free(&one);
        subject_free(&two);
    }
#endif
}

/* 65504 is fp16's last number: slopes of a loss scaled too high become infinite, and that shows
   in the gradient. bf16 has float32's range. */
static void fp16_overflows_where_bf16_does_not(void **state)
{
    static const tutti_dtype all[] = { TUTTI_F32, TUTTI_BF16, TUTTI_F16 };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(kinds); i++)
        for (size_t p = 0; p < TUTTI_LENGTH(all); p++) {
            subject s = subject_of(kinds[i].model, kinds[i].task, kinds[i].samples, 9);
            tutti_nn *nn = open_subject(&s, all[p], 1);
            bool finite = true;
            pass(nn, &s, 0, s.samples, (double)s.samples * 0x1p-40, false, false, s.gradients);
            for (int k = 0; k < s.count; k++)
                for (size_t j = 0; j < s.params[k].count; j++)
                    finite = finite && isfinite(s.gradients[k][j]);
            if (finite != (all[p] != TUTTI_F16))
                fail_msg("%s in %s: the gradient of a loss times 2^40 is %s", s.model, tutti_dtype_name(all[p]),
                         finite ? "finite" : "not finite");
            tutti_nn_close(nn);
            subject_free(&s);
        }
}

/* fp16 is nowhere in oneDNN 2 on a CPU; bf16 where oneDNN may use AVX-512. */
static void network_reports_whether_products_are_widened(void **state)
{
    const char *isa = getenv("ONEDNN_MAX_CPU_ISA");
    const bool small =
        tutti_cpu_best() < TUTTI_CPU_AVX512 || (isa != NULL && (strcmp(isa, "AVX2") == 0 || strcmp(isa, "SSE41") == 0));

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(kinds); i++) {
        subject s = subject_of(kinds[i].model, kinds[i].task, kinds[i].samples, 9);
        tutti_nn *full = open_subject(&s, TUTTI_F32, 1), *bf16 = open_subject(&s, TUTTI_BF16, 1),
                 *fp16 = open_subject(&s, TUTTI_F16, 1);
        assert_false(tutti_nn_widens(full));
        assert_true(tutti_nn_widens(bf16) == small);
        assert_true(tutti_nn_widens(fp16) || DNNL_VERSION_MAJOR > 2);
        tutti_nn_close(full);
        tutti_nn_close(bf16);
        tutti_nn_close(fp16);
        subject_free(&s);
    }
}

static void every_allocation_that_fails_is_an_error(void **state)
{
    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(kinds); i++) {
        tutti_status status = TUTTI_ERR_MEMORY;
        for (int n = 0; status != TUTTI_OK; n++) {
            tutti_error err = { 0 };
            tutti_nn *nn;
            allocations_left = n;
            status = tutti_nn_open(&nn, kinds[i].model, &kinds[i].task,
                                   &(tutti_nn_options){ .batch = kinds[i].samples, .precision = TUTTI_BF16 }, &err);
            allocations_left = -1;
            if (status != TUTTI_OK) {
                assert_int_equal(status, TUTTI_ERR_MEMORY);
                assert_null(nn);
            }
            tutti_nn_close(status == TUTTI_OK ? nn : NULL);
        }
    }
}

static void unsupported_precisions_are_rejected(void **state)
{
    static const struct {
        const char *model;
        tutti_nn_task task;
        const char *backend;
        tutti_dtype precision;
        const char *words;
    } cases[] = {
        { "mlp",
          { 1, 4, 4, 3 },
          "reference",
          TUTTI_BF16,
          "the backend 'reference' computes in one precision, BF16 is not possible; use onednn" },
        { "resnet(depth=8)",
          { 3, 8, 8, 3 },
          "reference",
          TUTTI_F16,
          "the backend 'reference' computes in one precision, F16 is not possible; use onednn" },
        { "quadratic(dim=4)",
          { 1, 1, 4, 2 },
          NULL,
          TUTTI_BF16,
          "a quadratic on 'onednn' has no products, BF16 would change nothing" },
        { "mlp",
          { 1, 4, 4, 3 },
          NULL,
          TUTTI_F64,
          "opening a network whose products have operands of type F64; they are F32, BF16 or F16" },
    };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(cases); i++) {
        tutti_error err = { 0 };
        tutti_nn *nn;
        assert_int_equal(
            tutti_nn_open(
                &nn, cases[i].model, &cases[i].task,
                &(tutti_nn_options){ .backend = cases[i].backend, .batch = 2, .precision = cases[i].precision }, &err),
            TUTTI_ERR_USAGE);
        if (strstr(err.text, cases[i].words) == NULL)
            fail_msg("case %zu says: %s", i, err.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_product_operands_are_rounded_and_only_once),
        cmocka_unit_test(low_precision_gradient_errors_match_the_roundoff),
        cmocka_unit_test(block_gradients_sum_to_the_pass_bitwise),
        cmocka_unit_test(sample_losses_sum_to_the_16_bit_evaluation_loss),
        cmocka_unit_test(copies_of_weights_follow_the_values),
        cmocka_unit_test(two_threads_agree_with_one_within_roundoff),
        cmocka_unit_test(fp16_overflows_where_bf16_does_not),
        cmocka_unit_test(network_reports_whether_products_are_widened),
        cmocka_unit_test(every_allocation_that_fails_is_an_error),
        cmocka_unit_test(unsupported_precisions_are_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
