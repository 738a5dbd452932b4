/* quadratic.c: the fast backend of a quadratic. With d = x - xi of a sample:

     loss      1/2 sum_j lambda_j d_j^2
               summed in 16 lanes (value j in lane j mod 16), lanes pairwise 0+8, 1+9 ..., then
               0+4 ..., 0+2, 0+1
     gradient  lambda_j (sum over samples of d_j) / divisor, sample after sample

   Both are in double, rounded to float once at the end: the same bits as the scalar reference,
   which does it value by value. A difference of two floats is exact in double unless they are 2^29
   apart. So the sum over a block of 64 is all but exact, and with a divisor that is a power of two
   the one rounding is the only one. */
#include "nn_internal.h"
#include "problem/problem.h"
#include <stdio.h>
#include <string.h>

enum { LANES = 16, EVAL_SAMPLES = 1024 };

typedef struct quadratic {
    const nn_net *net;
    size_t dim;
    double *lambda, *sum; /* dim each; sum: of the run's differences, after forward */
    double divisor, loss_sum;
    nn_run run;
} quadratic;

static void quadratic_close(void *self)
{
    quadratic *q = self;

    if (q == NULL)
        return;
    tutti_free(q->lambda);
    tutti_free(q->sum);
    tutti_free(q);
}

static tutti_status quadratic_open(void **out, const nn_net *net, const nn_settings *settings,
                                   tutti_error *err)
{
    quadratic *q = tutti_alloc(1, sizeof *q);

    (void)settings;
    *out = NULL;
    if (q != NULL) {
        q->net = net;
        q->dim = net->units[0].weights;
        q->lambda = tutti_alloc(q->dim, sizeof *q->lambda);
        q->sum = tutti_alloc(q->dim, sizeof *q->sum);
    }
    if (q == NULL || q->lambda == NULL || q->sum == NULL) {
        quadratic_close(q);
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory for a quadratic of dim %zu",
                          net->units[0].weights);
    }
    tutti_problem_spectrum((int64_t)q->dim, net->layers[0].condition, q->lambda);
    *out = q;
    return TUTTI_OK;
}

static tutti_status quadratic_begin(void *self, const nn_run *run, tutti_error *err)
{
    quadratic *q = self;

    (void)err;
    q->run = *run;
    return TUTTI_OK;
}

static double add_lanes(double *lane)
{
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int k = 0; k < half; k++)
            lane[k] += lane[k + half];
    return lane[0];
}

static double sample_loss(size_t dim, const double *restrict lambda, const float *restrict x,
                          const float *restrict xi, double *restrict sum)
{
    double lane[LANES] = { 0 };
    size_t j = 0;

    for (; j + LANES <= dim; j += LANES)
        for (size_t k = 0; k < LANES; k++) {
            const double d = (double)x[j + k] - (double)xi[j + k];
            sum[j + k] += d;
            lane[k] += lambda[j + k] * d * d;
        }
    for (size_t k = 0; j + k < dim; k++) {
        const double d = (double)x[j + k] - (double)xi[j + k];
        sum[j + k] += d;
        lane[k] += lambda[j + k] * d * d;
    }
    return 0.5 * add_lanes(lane);
}

/* One pass over the samples: their losses, and the differences that backward needs. */
static tutti_status quadratic_forward(void *self, int unit, int64_t first, int64_t count,
                                      tutti_error *err)
{
    quadratic *q = self;

    (void)unit, (void)first, (void)count, (void)err; /* always the whole run */
    q->loss_sum = 0;
    memset(q->sum, 0, q->dim * sizeof *q->sum);
    for (int64_t i = 0; i < q->run.samples; i++) {
        const double loss =
            sample_loss(q->dim, q->lambda, q->run.values[0], q->run.x + (size_t)i * q->dim, q->sum);
        q->loss_sum += loss;
        if (q->run.losses != NULL)
            q->run.losses[i] = (float)loss;
    }
    return TUTTI_OK;
}

static void quadratic_loss(void *self, double divisor, double *sum, int64_t *correct)
{
    quadratic *q = self;

    *sum = q->loss_sum;
    *correct = 0;
    q->divisor = divisor;
}

static tutti_status quadratic_weights(void *self, int unit, int64_t first, int64_t count,
                                      tutti_error *err)
{
    const quadratic *q = self;
    float *g = q->run.gradients[0];

    (void)unit, (void)first, (void)count, (void)err;
    for (size_t j = 0; j < q->dim; j++) {
        const double sum = q->lambda[j] * q->sum[j] / q->divisor;
        g[j] = q->run.add ? (float)((double)g[j] + sum) : (float)sum;
    }
    return TUTTI_OK;
}

/* Unit 0 is the only one and its input's gradient is never requested. */
static tutti_status quadratic_data(void *self, int unit, int64_t first, int64_t count,
                                   tutti_error *err)
{
    (void)self, (void)unit, (void)first, (void)count;
    return tutti_fail(err, TUTTI_ERR_STATE, 0, "a quadratic has no layer before it");
}

static size_t quadratic_bytes(const void *self)
{
    const quadratic *q = self;

    return sizeof *q + 2 * q->dim * sizeof(double);
}

static int quadratic_describe(const void *self, char *text, size_t bytes)
{
    (void)self;
    return tutti_nn_append_text(text, bytes, 0, "quadratic 0: own loop\n");
}

const nn_backend tutti_nn_quadratic = {
    .name = "quadratic",
    .tile = 0,
    .eval_samples = EVAL_SAMPLES,
    .open = quadratic_open,
    .close = quadratic_close,
    .begin = quadratic_begin,
    .forward = quadratic_forward,
    .loss = quadratic_loss,
    .weights = quadratic_weights,
    .data = quadratic_data,
    .bytes = quadratic_bytes,
    .describe = quadratic_describe,
};
