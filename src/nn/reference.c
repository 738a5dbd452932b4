/* reference.c: the scalar backend of chains of plain convolutions and linear layers, and of
   quadratics, with which tests compare the fast ones. It computes every layer by its formula, in
   the order of the list, in double; only parameters and gradients are float. It shares only the
   shapes of the units with the fast backend, and has none of its tricks: no tiles, no fusion, no
   reordering of ReLU and pooling.

   With x a layer's input, y its output, dy the slope of y (the gradient of the loss
   with respect to y):

     linear     y[i] = b[i] + sum_j W[i][j] x[j]
                dW[i][j] += dy[i] x[j];  db[i] += dy[i];  dx[j] = sum_i W[i][j] dy[i]
     conv2d     y[o][r][s] = b[o] + sum_{c,a,e} W[o][c][a][e] x[c][r+a][s+e]
                (and the same three derivatives)
     relu       y = max(x, 0)
                dx = dy where x > 0, else 0
     maxpool    y = the largest of the k x k window (the first of equals, row by row)
                dx = dy at that position
     quadratic  y = 1/2 sum_j lambda_j (x[j] - xi[j])^2, x: the parameter, xi: the sample
                dx[j] = sum over samples of lambda_j (x[j] - xi[j]) / divisor
     loss       -log softmax(y)[label]
                dy = (softmax(y) - onehot(label)) / divisor */
#include "nn_internal.h"
#include "problem/problem.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct layer { nn_shape in, out; size_t in_values, out_values; } layer;

typedef struct reference {
    const nn_net *net;
    layer layers[NN_LAYERS_MAX];
    /* [l]: input of layer l; the last: logits. capacity samples each */
    double *value[NN_LAYERS_MAX + 1];
    /* slope of the layer that backward has reached; memory for the next */
    double *slope, *other;
    double *weight_sum;                /* gradients of one tensor */
    double *lambda, divisor;           /* of a quadratic */
    int64_t capacity;                  /* samples */
    size_t widest, heaviest;           /* values: of a sample anywhere, of a tensor */
    size_t bytes;
    nn_run run;
} reference;

enum { EVAL_SAMPLES = 64 };

static void reference_close(void *self)
{
    reference *r = self;

    if (r == NULL)
        return;
    for (int l = 0; l <= NN_LAYERS_MAX; l++)
        tutti_free(r->value[l]);
    tutti_free(r->slope);
    tutti_free(r->other);
    tutti_free(r->weight_sum);
    tutti_free(r->lambda);
    tutti_free(r);
}

static double *doubles(reference *r, size_t a, size_t b)
{
    double *d = a > SIZE_MAX / sizeof(double) / b ? NULL : tutti_alloc(a * b, sizeof(double));

    if (d != NULL)
        r->bytes += a * b * sizeof(double);
    return d;
}

/* Shapes by the formulas, not by the units. */
static void infer(reference *r)
{
    const nn_net *net = r->net;
    nn_shape s = { net->task.channels, net->task.height, net->task.width };

    for (int l = 0; l < net->layer_count; l++) {
        const tutti_layer *t = &net->layers[l];
        layer *y = &r->layers[l];
        y->in = s;
        switch (t->kind) {
        case TUTTI_LAYER_LINEAR: s = (nn_shape){ t->out, 1, 1 }; break;
        case TUTTI_LAYER_CONV2D:
            s = (nn_shape){ t->out, s.height - t->kernel + 1, s.width - t->kernel + 1 };
            break;
        case TUTTI_LAYER_MAXPOOL2D: s.height /= t->kernel; s.width /= t->kernel; break;
        case TUTTI_LAYER_FLATTEN: s = (nn_shape){ nn_values(s), 1, 1 }; break;
        case TUTTI_LAYER_QUADRATIC: s = (nn_shape){ 1, 1, 1 }; break;
        default: break; /* relu */
        }
        y->out = s;
        y->in_values = (size_t)nn_values(y->in);
        y->out_values = (size_t)nn_values(y->out);
        r->widest = y->in_values > r->widest ? y->in_values : r->widest;
        r->widest = y->out_values > r->widest ? y->out_values : r->widest;
    }
    for (int u = 0; u < net->unit_count; u++)
        r->heaviest = net->units[u].weights > r->heaviest ? net->units[u].weights : r->heaviest;
}

static tutti_status reference_open(void **out, const nn_net *net, const nn_settings *settings,
                                   tutti_error *err)
{
    reference *r = tutti_alloc(1, sizeof *r);
    bool enough = r != NULL;

    *out = NULL;
    if (enough) {
        r->net = net;
        r->bytes = sizeof *r;
        r->capacity = settings->batch > EVAL_SAMPLES ? settings->batch : EVAL_SAMPLES;
        infer(r);
        for (int l = 0; l < net->layer_count && enough; l++)
            enough =
                (r->value[l] = doubles(r, (size_t)r->capacity, r->layers[l].in_values)) != NULL;
        enough = enough &&
                 (r->value[net->layer_count] =
                      doubles(r, (size_t)r->capacity, (size_t)net->task.classes)) != NULL &&
                 (r->slope = doubles(r, (size_t)r->capacity, r->widest)) != NULL &&
                 (r->other = doubles(r, (size_t)r->capacity, r->widest)) != NULL &&
                 (r->weight_sum = doubles(r, 1, r->heaviest)) != NULL;
        if (enough && nn_quadratic(net)) {
            enough = (r->lambda = doubles(r, 1, r->heaviest)) != NULL;
            if (enough)
                tutti_problem_spectrum((int64_t)r->heaviest, net->layers[0].condition, r->lambda);
        }
    }
    if (!enough) {
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
    for (size_t i = 0; i < (size_t)run->samples * r->layers[0].in_values; i++)
        r->value[0][i] = (double)run->x[i];
    return TUTTI_OK;
}

/* ---- layers, one sample at a time. at(s, c, y, x) is the index in the order c, h, w ---- */
static size_t at(nn_shape s, int64_t c, int64_t y, int64_t x)
{
    return (size_t)((c * s.height + y) * s.width + x);
}

static size_t weight_at(const layer *l, int64_t k, int64_t o, int64_t c, int64_t a, int64_t e)
{
    return (size_t)(((o * l->in.channels + c) * k + a) * k + e);
}

static void linear_forward(const layer *l, const float *w, const float *b, const double *x,
                           double *y)
{
    for (size_t i = 0; i < l->out_values; i++) {
        double sum = (double)b[i];
        for (size_t j = 0; j < l->in_values; j++)
            sum += (double)w[i * l->in_values + j] * x[j];
        y[i] = sum;
    }
}

static void conv_forward(const layer *l, int64_t k, const float *w, const float *b, const double *x,
                         double *y)
{
    for (int64_t o = 0; o < l->out.channels; o++)
        for (int64_t r = 0; r < l->out.height; r++)
            for (int64_t s = 0; s < l->out.width; s++) {
                double sum = (double)b[o];
                for (int64_t c = 0; c < l->in.channels; c++)
                    for (int64_t a = 0; a < k; a++)
                        for (int64_t e = 0; e < k; e++)
                            sum += (double)w[weight_at(l, k, o, c, a, e)] *
                                   x[at(l->in, c, r + a, s + e)];
                y[at(l->out, o, r, s)] = sum;
            }
}

/* Returns the index of the largest value in the window of output (c, r, s). */
static size_t pool_argmax(const layer *l, int64_t k, const double *x, int64_t c, int64_t r,
                          int64_t s)
{
    size_t best = at(l->in, c, r * k, s * k);

    for (int64_t a = 0; a < k; a++)
        for (int64_t e = 0; e < k; e++) {
            const size_t index = at(l->in, c, r * k + a, s * k + e);
            if (x[index] > x[best])
                best = index;
        }
    return best;
}

/* The order of the sum is part of the contract here (quadratic.c): 16 lanes, then pairs. */
static double quadratic_loss(const reference *r, const float *x, const double *xi)
{
    const size_t dim = r->heaviest;
    double lane[16] = { 0 };

    for (size_t j = 0; j < dim; j++)
        lane[j % 16] += r->lambda[j] * ((double)x[j] - xi[j]) * ((double)x[j] - xi[j]);
    for (size_t half = 8; half > 0; half /= 2)
        for (size_t k = 0; k < half; k++)
            lane[k] += lane[k + half];
    return 0.5 * lane[0];
}

static void layer_forward(const reference *r, int index, int unit, const double *x, double *y)
{
    const layer *l = &r->layers[index];
    const int64_t k = r->net->layers[index].kernel;
    const float *w = r->run.values[nn_weight(r->net, unit)],
                *b = nn_quadratic(r->net) ? NULL : r->run.values[nn_bias(r->net, unit)];

    switch (r->net->layers[index].kind) {
    case TUTTI_LAYER_LINEAR: linear_forward(l, w, b, x, y); break;
    case TUTTI_LAYER_CONV2D: conv_forward(l, k, w, b, x, y); break;
    case TUTTI_LAYER_QUADRATIC: *y = quadratic_loss(r, w, x); break;
    case TUTTI_LAYER_FLATTEN: memcpy(y, x, l->in_values * sizeof *y); break;
    case TUTTI_LAYER_RELU:
        for (size_t i = 0; i < l->in_values; i++)
            y[i] = x[i] < 0 ? 0 : x[i];
        break;
    case TUTTI_LAYER_MAXPOOL2D:
        for (int64_t c = 0; c < l->out.channels; c++)
            for (int64_t p = 0; p < l->out.height; p++)
                for (int64_t q = 0; q < l->out.width; q++)
                    y[at(l->out, c, p, q)] = x[pool_argmax(l, k, x, c, p, q)];
        break;
    default: break; /* tokens: refused when the network is opened */
    }
}

static tutti_status reference_forward(void *self, int unit, int64_t first, int64_t count,
                                      tutti_error *err)
{
    const reference *r = self;
    const nn_unit *u = &r->net->units[unit];

    (void)err;
    for (int l = u->first; l < u->end; l++)
        for (int64_t i = first; i < first + count; i++)
            layer_forward(r, l, unit, r->value[l] + (size_t)i * r->layers[l].in_values,
                          r->value[l + 1] + (size_t)i * r->layers[l].out_values);
    return TUTTI_OK;
}

static void reference_loss(void *self, double divisor, double *sum, int64_t *correct)
{
    reference *r = self;
    const int classes = r->net->task.classes;

    *sum = 0;
    *correct = 0;
    r->divisor = divisor;
    for (int64_t i = 0; i < r->run.samples && nn_quadratic(r->net); i++) {
        *sum += r->value[1][i];
        if (r->run.losses != NULL)
            r->run.losses[i] = (float)r->value[1][i];
    }
    for (int64_t i = 0; i < r->run.samples && !nn_quadratic(r->net); i++) {
        const double *y = r->value[r->net->layer_count] + i * classes;
        double most = y[0], total = 0, loss;
        int best = 0;
        for (int c = 0; c < classes && r->run.outputs != NULL; c++)
            r->run.outputs[i * classes + c] = (float)y[c];
        for (int c = 1; c < classes; c++)
            if (y[c] > most)
                most = y[c], best = c;
        for (int c = 0; c < classes; c++)
            total += exp(y[c] - most);
        loss = most + log(total) - y[r->run.labels[i]];
        *sum += loss;
        if (r->run.losses != NULL)
            r->run.losses[i] = (float)loss;
        *correct += isfinite(loss) && best == r->run.labels[i];
        for (int c = 0; c < classes && r->run.train; c++)
            r->slope[i * classes + c] =
                (exp(y[c] - most) / total - (c == r->run.labels[i])) / divisor;
    }
}

/* ---- backward: slope is dy of all samples and becomes dx ---- */
static void follower_backward(const reference *r, int index, const double *x, const double *dy,
                              double *dx)
{
    const layer *l = &r->layers[index];
    const int64_t k = r->net->layers[index].kernel;

    if (r->net->layers[index].kind == TUTTI_LAYER_MAXPOOL2D) {
        memset(dx, 0, l->in_values * sizeof *dx);
        for (int64_t c = 0; c < l->out.channels; c++)
            for (int64_t p = 0; p < l->out.height; p++)
                for (int64_t q = 0; q < l->out.width; q++)
                    dx[pool_argmax(l, k, x, c, p, q)] += dy[at(l->out, c, p, q)];
        return;
    }
    for (size_t i = 0; i < l->in_values; i++)
        dx[i] = r->net->layers[index].kind == TUTTI_LAYER_RELU && !(x[i] > 0) ? 0 : dy[i];
}

static void store_gradient(const nn_run *run, int param, size_t n, const double *sum)
{
    float *g = run->gradients[param];

    for (size_t i = 0; i < n; i++)
        g[i] = run->add ? (float)((double)g[i] + sum[i]) : (float)sum[i];
}

static void weight_gradient(reference *r, int index)
{
    const layer *l = &r->layers[index];
    const int64_t k = r->net->layers[index].kernel;

    for (int64_t i = 0; i < r->run.samples; i++) {
        const double *x = r->value[index] + (size_t)i * l->in_values,
                     *dy = r->slope + (size_t)i * l->out_values;
        if (r->net->layers[index].kind == TUTTI_LAYER_LINEAR) {
            for (size_t o = 0; o < l->out_values; o++)
                for (size_t j = 0; j < l->in_values; j++)
                    r->weight_sum[o * l->in_values + j] += dy[o] * x[j];
            continue;
        }
        for (int64_t o = 0; o < l->out.channels; o++)
            for (int64_t c = 0; c < l->in.channels; c++)
                for (int64_t a = 0; a < k; a++)
                    for (int64_t e = 0; e < k; e++)
                        for (int64_t p = 0; p < l->out.height; p++)
                            for (int64_t q = 0; q < l->out.width; q++)
                                r->weight_sum[weight_at(l, k, o, c, a, e)] +=
                                    dy[at(l->out, o, p, q)] * x[at(l->in, c, p + a, q + e)];
    }
}

static void bias_gradient(reference *r, int index)
{
    const layer *l = &r->layers[index];
    const int64_t places = l->out.height * l->out.width;

    for (int64_t i = 0; i < r->run.samples; i++)
        for (int64_t o = 0; o < l->out.channels; o++)
            for (int64_t p = 0; p < places; p++)
                r->weight_sum[o] += r->slope[(size_t)i * l->out_values + (size_t)(o * places + p)];
}

static void swap(reference *r)
{
    double *t = r->slope;
    r->slope = r->other;
    r->other = t;
}

static tutti_status reference_weights(void *self, int unit, int64_t first, int64_t count,
                                      tutti_error *err)
{
    reference *r = self;
    const nn_unit *u = &r->net->units[unit];

    (void)first, (void)count, (void)err; /* tile 0: always the whole run */
    if (nn_quadratic(r->net)) {
        for (size_t j = 0; j < u->weights; j++) {
            double difference = 0;
            for (int64_t i = 0; i < r->run.samples; i++)
                difference += (double)r->run.values[0][j] - r->value[0][(size_t)i * u->weights + j];
            r->weight_sum[j] = r->lambda[j] * difference / r->divisor;
        }
        store_gradient(&r->run, 0, u->weights, r->weight_sum);
        return TUTTI_OK;
    }
    for (int l = u->end - 1; l > u->index; l--) {
        for (int64_t i = 0; i < r->run.samples; i++)
            follower_backward(r, l, r->value[l] + (size_t)i * r->layers[l].in_values,
                              r->slope + (size_t)i * r->layers[l].out_values,
                              r->other + (size_t)i * r->layers[l].in_values);
        swap(r);
    }
    memset(r->weight_sum, 0, r->heaviest * sizeof *r->weight_sum);
    weight_gradient(r, u->index);
    store_gradient(&r->run, nn_weight(r->net, unit), u->weights, r->weight_sum);
    memset(r->weight_sum, 0, r->heaviest * sizeof *r->weight_sum);
    bias_gradient(r, u->index);
    store_gradient(&r->run, nn_bias(r->net, unit), (size_t)u->wide.channels, r->weight_sum);
    return TUTTI_OK;
}

static tutti_status reference_data(void *self, int unit, int64_t first, int64_t count,
                                   tutti_error *err)
{
    reference *r = self;
    const int index = r->net->units[unit].index;
    const layer *l = &r->layers[index];
    const int64_t k = r->net->layers[index].kernel;
    const float *w = r->run.values[nn_weight(r->net, unit)];

    (void)first, (void)count, (void)err;
    memset(r->other, 0, (size_t)r->run.samples * l->in_values * sizeof *r->other);
    for (int64_t i = 0; i < r->run.samples; i++) {
        const double *dy = r->slope + (size_t)i * l->out_values;
        double *dx = r->other + (size_t)i * l->in_values;
        if (r->net->layers[index].kind == TUTTI_LAYER_LINEAR) {
            for (size_t o = 0; o < l->out_values; o++)
                for (size_t j = 0; j < l->in_values; j++)
                    dx[j] += (double)w[o * l->in_values + j] * dy[o];
            continue;
        }
        for (int64_t o = 0; o < l->out.channels; o++)
            for (int64_t c = 0; c < l->in.channels; c++)
                for (int64_t a = 0; a < k; a++)
                    for (int64_t e = 0; e < k; e++)
                        for (int64_t p = 0; p < l->out.height; p++)
                            for (int64_t q = 0; q < l->out.width; q++)
                                dx[at(l->in, c, p + a, q + e)] +=
                                    (double)w[weight_at(l, k, o, c, a, e)] *
                                    dy[at(l->out, o, p, q)];
    }
    swap(r);
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
        length = tutti_nn_append_text(text, bytes, length, "%s %d: scalar reference\n",
                                      tutti_nn_layer_name(r->net->units[u].kind),
                                      r->net->units[u].index);
    }
    return length;
}

const nn_backend tutti_nn_reference = {
    .name = "reference",
    .tile = 0,
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
