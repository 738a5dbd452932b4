/* image_reference.c: the scalar backend of networks with batch norms and branches (image.h), with
   which tests compare image_run.c. It computes every layer by its formula, in double, one after
   another, and shares only the shapes with image_run.c. With x a layer's input, y its output, dy
   the slope of y (the gradient of the loss with respect to y), and maps in the order channels,
   height, width:

     conv2d      y[o][r][s] = b[o] + sum over c of o's group, a, e of
                              W[o][c][a][e] x[c][r t + a - p][s t + e - p]
                 t the stride, p the padding; and its three derivatives
     batch norm  y = (x - mean) / sqrt(variance + eps) gamma + beta, with mean and variance over the
                 samples and positions of a channel
                 dx = gamma rstd (dy - mean of dy - h mean of dy h), h = (x - mean) rstd
     join        y[c][r][s] = x[c][r][s] + branch[c][r t][s t] where the branch has channel c
     avgpool     y[c] = the mean of x[c];  maxpool, linear, relu, loss: as in reference.c */
#include "image.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { EVAL_SAMPLES = 48 };
static const double eps = 1e-5F; /* as a float, which the other backend has */

typedef struct reference {
    const nn_image *net;
    int64_t capacity;
    double *input;
    /* by map: its output and the output's gradient, capacity samples each */
    double **value, **slope;
    /* of the run: mean and variance as among the running statistics */
    double *stats;
    double *sum;                   /* gradient of one tensor */
    size_t bytes;
    nn_run run;
} reference;

static void reference_close(void *self)
{
    reference *r = self;

    if (r == NULL)
        return;
    for (int i = 0; i < r->net->map_count; i++) {
        if (r->value != NULL)
            tutti_free(r->value[i]);
        if (r->slope != NULL)
            tutti_free(r->slope[i]);
    }
    tutti_free(r->value);
    tutti_free(r->slope);
    tutti_free(r->input);
    tutti_free(r->stats);
    tutti_free(r->sum);
    tutti_free(r);
}

static double *doubles(reference *r, size_t n)
{
    r->bytes += n * sizeof(double);
    return tutti_alloc(n, sizeof(double));
}

static tutti_status reference_open(void **out, const nn_net *net, const nn_settings *settings,
                                   tutti_error *err)
{
    const nn_image *image = net->image;
    const size_t n = (size_t)image->map_count;
    reference *r = tutti_alloc(1, sizeof *r);
    bool enough = r != NULL;
    size_t heaviest = 1;

    *out = NULL;
    if (enough) {
        r->net = image;
        r->bytes = sizeof *r;
        r->capacity = settings->batch > EVAL_SAMPLES ? settings->batch : EVAL_SAMPLES;
        r->value = tutti_alloc(n, sizeof *r->value);
        r->slope = tutti_alloc(n, sizeof *r->slope);
        enough = r->value != NULL && r->slope != NULL &&
                 (r->input = doubles(r, (size_t)(r->capacity * nn_values(image->sample)))) != NULL;
    }
    for (size_t i = 0; i < n && enough; i++) {
        const size_t values = (size_t)(r->capacity * nn_values(image->maps[i].out));
        enough = (r->value[i] = doubles(r, values)) != NULL &&
                 (r->slope[i] = doubles(r, values)) != NULL;
        heaviest = image->maps[i].weights > heaviest ? image->maps[i].weights : heaviest;
        heaviest = (size_t)image->maps[i].out.channels > heaviest
                       ? (size_t)image->maps[i].out.channels
                       : heaviest;
    }
    if (!enough || (r->stats = doubles(r, image->running + 1)) == NULL ||
        (r->sum = doubles(r, heaviest)) == NULL) {
        reference_close(r);
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0,
                          "no memory for the activations; use a smaller batch");
    }
    *out = r;
    return TUTTI_OK;
}

static tutti_status reference_begin(void *self, const nn_run *run, tutti_error *err)
{
    reference *r = self;

    (void)err;
    r->run = *run;
    for (size_t i = 0; i < (size_t)(run->samples * nn_values(r->net->sample)); i++)
        r->input[i] = (double)run->x[i];
    return TUTTI_OK;
}

static size_t at(nn_shape s, int64_t image, int64_t c, int64_t y, int64_t x)
{
    return (size_t)(((image * s.channels + c) * s.height + y) * s.width + x);
}

static const double *input_of(const reference *r, int i)
{
    return i > 0 ? r->value[i - 1] : r->input;
}

/* Called for each product of a convolution: output value `to`, input value `from`, weight `w`. */
typedef void conv_visit(double *out, const double *in, const double *more, size_t to, size_t from,
                        size_t w);

static void each_product(const reference *r, int i, conv_visit *visit, double *out,
                         const double *in, const double *more)
{
    const nn_map *m = &r->net->maps[i];
    const int64_t k = m->layer.kernel, t = m->layer.stride, p = m->layer.padding,
                  each_in = m->in.channels / m->layer.groups,
                  each_out = m->out.channels / m->layer.groups;

    for (int64_t n = 0; n < r->run.samples; n++)
        for (int64_t o = 0; o < m->out.channels; o++)
            for (int64_t c = 0; c < each_in; c++)
                for (int64_t a = 0; a < k; a++)
                    for (int64_t e = 0; e < k; e++)
                        for (int64_t y = 0; y < m->out.height; y++)
                            for (int64_t x = 0; x < m->out.width; x++) {
                                const int64_t row = y * t + a - p, column = x * t + e - p;
                                if (row >= 0 && row < m->in.height && column >= 0 &&
                                    column < m->in.width)
                                    visit(out, in, more, at(m->out, n, o, y, x),
                                          at(m->in, n, o / each_out * each_in + c, row, column),
                                          (size_t)(((o * each_in + c) * k + a) * k + e));
                            }
}

static void visit_forward(double *y, const double *x, const double *w, size_t to, size_t from,
                          size_t index)
{
    y[to] += w[index] * x[from];
}
static void visit_weights(double *dw, const double *x, const double *dy, size_t to, size_t from,
                          size_t index)
{
    dw[index] += dy[to] * x[from];
}
static void visit_data(double *dx, const double *dy, const double *w, size_t to, size_t from,
                       size_t index)
{
    dx[from] += w[index] * dy[to];
}

/* Writes the layer's weights, in double, to r->sum. */
static const double *weights_of(const reference *r, int i)
{
    const nn_map *m = &r->net->maps[i];

    for (size_t k = 0; k < m->weights; k++)
        r->sum[k] = (double)r->run.values[m->param][k];
    return r->sum;
}

static void add_bias(const reference *r, int i, double *y)
{
    const nn_map *m = &r->net->maps[i];
    const int64_t positions = m->out.height * m->out.width;

    for (int64_t k = 0; k < r->run.samples * m->out.channels * positions; k++)
        y[k] = m->params == 2 ? (double)r->run.values[m->param + 1][k / positions % m->out.channels]
                              : 0;
}

/* A linear layer is a convolution whose window is the image. */
static void linear(const reference *r, int i, bool back, bool weights)
{
    const nn_map *m = &r->net->maps[i];
    const int64_t in = nn_values(m->in), out = m->out.channels;
    const double *x = input_of(r, i), *w = weights ? NULL : weights_of(r, i);

    for (int64_t n = 0; n < r->run.samples; n++)
        for (int64_t o = 0; o < out; o++)
            for (int64_t j = 0; j < in; j++) {
                if (weights)
                    r->sum[o * in + j] += r->slope[i][n * out + o] * x[n * in + j];
                else if (back)
                    r->slope[i - 1][n * in + j] += w[o * in + j] * r->slope[i][n * out + o];
                else
                    r->value[i][n * out + o] += w[o * in + j] * x[n * in + j];
            }
}

static void norm_forward(const reference *r, int i)
{
    const nn_map *m = &r->net->maps[i];
    const int64_t positions = m->out.height * m->out.width;
    const double count = (double)(r->run.samples * positions), *x = input_of(r, i);
    double *mean = r->stats + m->running, *variance = mean + m->weights;

    for (int64_t c = 0; c < m->out.channels; c++) {
        const double gamma = (double)r->run.values[m->param][c],
                     beta = (double)r->run.values[m->param + 1][c];
        if (r->run.train) {
            float *statistics = r->run.statistics + m->running;
            mean[c] = variance[c] = 0;
            for (int64_t k = 0; k < r->run.samples * positions; k++)
                mean[c] += x[at(m->in, k / positions, c, 0, k % positions)] / count;
            for (int64_t k = 0; k < r->run.samples * positions; k++)
                variance[c] +=
                    pow(x[at(m->in, k / positions, c, 0, k % positions)] - mean[c], 2) / count;
            statistics[c] = (float)mean[c];
            statistics[m->weights + (size_t)c] =
                count > 1 ? (float)(variance[c] * count / (count - 1))
                          : r->run.running[m->running + m->weights + (size_t)c];
        } else {
            mean[c] = (double)r->run.running[m->running + (size_t)c];
            variance[c] = (double)r->run.running[m->running + m->weights + (size_t)c];
        }
        for (int64_t k = 0; k < r->run.samples * positions; k++) {
            const size_t index = at(m->in, k / positions, c, 0, k % positions);
            r->value[i][index] = (x[index] - mean[c]) / sqrt(variance[c] + eps) * gamma + beta;
        }
    }
}

static size_t pool_argmax(const nn_map *m, const double *x, int64_t n, int64_t c, int64_t y,
                          int64_t s)
{
    const int64_t k = m->layer.kernel;
    size_t best = at(m->in, n, c, y * k, s * k);

    for (int64_t a = 0; a < k; a++)
        for (int64_t e = 0; e < k; e++)
            best = x[at(m->in, n, c, y * k + a, s * k + e)] > x[best]
                       ? at(m->in, n, c, y * k + a, s * k + e)
                       : best;
    return best;
}

/* Computes pooling, avgpool or join, value by value. back: computes the slope of the input from
   that of the output instead. */
static void each_value(const reference *r, int i, bool back)
{
    const nn_map *m = &r->net->maps[i];
    const double share = 1 / (double)(m->in.height * m->in.width), *x = input_of(r, i);

    for (int64_t n = 0; n < r->run.samples; n++)
        for (int64_t c = 0; c < m->out.channels; c++)
            for (int64_t y = 0; y < m->out.height; y++)
                for (int64_t s = 0; s < m->out.width; s++) {
                    const size_t to = at(m->out, n, c, y, s);
                    double *value = &r->value[i][to];
                    const double slope = r->slope[i][to];
                    if (m->layer.kind == TUTTI_LAYER_MAXPOOL2D) {
                        const size_t from = pool_argmax(m, x, n, c, y, s);
                        if (back)
                            r->slope[i - 1][from] += slope;
                        else
                            *value = x[from];
                    } else if (m->layer.kind == TUTTI_LAYER_AVGPOOL) {
                        for (int64_t k = 0; k < m->in.height * m->in.width; k++) {
                            const size_t from = at(m->in, n, c, 0, k);
                            if (back)
                                r->slope[i - 1][from] += slope * share;
                            else
                                *value += x[from] * share;
                        }
                    } else { /* join */
                        const nn_map *branch = &r->net->maps[m->partner];
                        const bool has = c < branch->out.channels;
                        const size_t from =
                            has ? at(branch->out, n, c, y * m->stride, s * m->stride) : 0;
                        if (back)
                            r->slope[i - 1][to] += slope;
                        else
                            *value = x[to] + (has ? r->value[m->partner][from] : 0);
                        if (back && has)
                            r->slope[m->partner][from] += slope;
                    }
                }
}

static tutti_status reference_forward(void *self, int unit, int64_t first, int64_t count,
                                      tutti_error *err)
{
    const reference *r = self;

    (void)first, (void)count, (void)err;
    for (int i = r->net->unit_map[unit]; i < r->net->unit_map[unit + 1]; i++) {
        const nn_map *m = &r->net->maps[i];
        const size_t n = (size_t)(r->run.samples * nn_values(m->out));
        memset(r->value[i], 0, n * sizeof(double));
        memset(r->slope[i], 0, n * sizeof(double));
        switch (m->layer.kind) {
        case TUTTI_LAYER_CONV2D:
            add_bias(r, i, r->value[i]);
            each_product(r, i, visit_forward, r->value[i], input_of(r, i), weights_of(r, i));
            break;
        case TUTTI_LAYER_LINEAR:
            add_bias(r, i, r->value[i]);
            linear(r, i, false, false);
            break;
        case TUTTI_LAYER_BATCH_NORM: norm_forward(r, i); break;
        case TUTTI_LAYER_FLATTEN:
        case TUTTI_LAYER_BRANCH:
            memcpy(r->value[i], input_of(r, i), n * sizeof(double));
            break;
        default: each_value(r, i, false); break;
        }
        for (size_t k = 0; k < n && m->relu; k++)
            r->value[i][k] = r->value[i][k] < 0 ? 0 : r->value[i][k];
    }
    return TUTTI_OK;
}

static void reference_loss(void *self, double divisor, double *sum, int64_t *correct)
{
    const reference *r = self;
    const int last = r->net->map_count - 1, classes = r->net->classes;

    *sum = 0;
    *correct = 0;
    for (int64_t n = 0; n < r->run.samples; n++) {
        const double *y = r->value[last] + n * classes;
        double most = y[0], total = 0, loss;
        int best = 0;
        for (int c = 0; c < classes && r->run.outputs != NULL; c++)
            r->run.outputs[n * classes + c] = (float)y[c];
        for (int c = 1; c < classes; c++)
            if (y[c] > most)
                most = y[c], best = c;
        for (int c = 0; c < classes; c++)
            total += exp(y[c] - most);
        loss = most + log(total) - y[r->run.labels[n]];
        *sum += loss;
        if (r->run.losses != NULL)
            r->run.losses[n] = (float)loss;
        *correct += isfinite(loss) && best == r->run.labels[n];
        for (int c = 0; c < classes && r->run.train; c++)
            r->slope[last][n * classes + c] =
                (exp(y[c] - most) / total - (c == r->run.labels[n])) / divisor;
    }
}

static void store_gradient(const reference *r, int i, int k, size_t n)
{
    float *g = r->run.gradients[r->net->maps[i].param + k];

    for (size_t j = 0; j < n; j++)
        g[j] = r->run.add ? (float)((double)g[j] + r->sum[j]) : (float)r->sum[j];
}

static void norm_back(const reference *r, int i)
{
    const nn_map *m = &r->net->maps[i];
    const int64_t positions = m->out.height * m->out.width, all = r->run.samples * positions;
    const double *x = input_of(r, i), *mean = r->stats + m->running, *variance = mean + m->weights;
    const double *dy = r->slope[i];

    for (int which = 0; which < 2; which++) { /* dgamma, dbeta */
        for (int64_t c = 0; c < m->out.channels; c++) {
            r->sum[c] = 0;
            for (int64_t k = 0; k < all; k++) {
                const size_t index = at(m->in, k / positions, c, 0, k % positions);
                r->sum[c] +=
                    dy[index] * (which == 0 ? (x[index] - mean[c]) / sqrt(variance[c] + eps) : 1);
            }
        }
        store_gradient(r, i, which, (size_t)m->out.channels);
    }
    for (int64_t c = 0; c < m->out.channels; c++) {
        const double rstd = 1 / sqrt(variance[c] + eps), gamma = (double)r->run.values[m->param][c];
        double mean_dy = 0, mean_dyh = 0;
        for (int64_t k = 0; k < all; k++) {
            const size_t index = at(m->in, k / positions, c, 0, k % positions);
            mean_dy += dy[index] / (double)all;
            mean_dyh += dy[index] * (x[index] - mean[c]) * rstd / (double)all;
        }
        for (int64_t k = 0; k < all; k++) {
            const size_t index = at(m->in, k / positions, c, 0, k % positions);
            r->slope[i - 1][index] +=
                gamma * rstd * (dy[index] - mean_dy - (x[index] - mean[c]) * rstd * mean_dyh);
        }
    }
}

static void back_map(const reference *r, int i)
{
    const nn_map *m = &r->net->maps[i];
    const size_t n = (size_t)(r->run.samples * nn_values(m->out));
    const int64_t positions = m->out.height * m->out.width;

    for (size_t k = 0; k < n && m->relu; k++)
        r->slope[i][k] = r->value[i][k] > 0 ? r->slope[i][k] : 0;
    switch (m->layer.kind) {
    case TUTTI_LAYER_CONV2D: case TUTTI_LAYER_LINEAR:
        memset(r->sum, 0, m->weights * sizeof(double));
        if (m->layer.kind == TUTTI_LAYER_CONV2D)
            each_product(r, i, visit_weights, r->sum, input_of(r, i), r->slope[i]);
        else
            linear(r, i, false, true);
        store_gradient(r, i, 0, m->weights);
        memset(r->sum, 0, (size_t)m->out.channels * sizeof(double));
        for (size_t k = 0; k < n; k++)
            r->sum[k / (size_t)positions % (size_t)m->out.channels] += r->slope[i][k];
        if (m->params == 2)
            store_gradient(r, i, 1, (size_t)m->out.channels);
        if (i > 0 && m->layer.kind == TUTTI_LAYER_CONV2D)
            each_product(r, i, visit_data, r->slope[i - 1], r->slope[i], weights_of(r, i));
        else if (i > 0)
            linear(r, i, true, false);
        break;
    case TUTTI_LAYER_BATCH_NORM: norm_back(r, i); break;
    case TUTTI_LAYER_FLATTEN: case TUTTI_LAYER_BRANCH:
        for (size_t k = 0; k < n; k++)
            r->slope[i - 1][k] += r->slope[i][k];
        break;
    default: each_value(r, i, true); break;
    }
}

static tutti_status reference_weights(void *self, int unit, int64_t first, int64_t count,
                                      tutti_error *err)
{
    const reference *r = self;

    (void)first, (void)count, (void)err;
    for (int i = r->net->unit_map[unit + 1] - 1; i >= r->net->unit_map[unit]; i--)
        back_map(r, i);
    return TUTTI_OK;
}

static tutti_status reference_data(void *self, int unit, int64_t first, int64_t count,
                                   tutti_error *err)
{
    (void)self, (void)unit, (void)first, (void)count, (void)err; /* done along with the weights */
    return TUTTI_OK;
}

static size_t reference_bytes(const void *self)
{
    return ((const reference *)self)->bytes;
}

static int reference_describe(const void *self, char *text, size_t bytes)
{
    const reference *r = self;
    int length = 0;

    for (int u = 0; u < r->net->unit_count; u++) {
        const nn_map *m = &r->net->maps[r->net->unit_map[u]];
        length = tutti_nn_append_text(text, bytes, length, "%s %d: scalar reference\n",
                                      tutti_nn_layer_name(m->layer.kind), m->index);
    }
    return length;
}

const nn_backend tutti_nn_image_reference = {
    .name = "reference",
    .eval_samples = EVAL_SAMPLES,
    .open = reference_open,
    .close = reference_close,
    .begin = reference_begin,
    .forward = reference_forward,
    .loss = reference_loss,
    .weights = reference_weights,
    .data = reference_data,
    .bytes = reference_bytes,
    .describe = reference_describe,
};
