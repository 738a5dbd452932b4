/* nn_test.h: shared by the tests of this module: an example is a network's parameters, gradients,
   samples and labels, drawn from a seed. */
#ifndef TUTTI_NN_TEST_H
#define TUTTI_NN_TEST_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "nn/nn_internal.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PARAMS_MAX = 2 * NN_UNITS_MAX };

typedef struct example {
    nn_net net;
    int count;
    int64_t samples;
    tutti_nn_param params[PARAMS_MAX];
    float *values[PARAMS_MAX], *gradients[PARAMS_MAX];
    float *x;
    uint8_t *labels;
} example;

static inline size_t sample_values(const nn_net *net)
{
    return (size_t)net->task.channels * (size_t)net->task.height * (size_t)net->task.width;
}

static inline example example_of(const nn_net *net, int64_t samples, uint64_t seed)
{
    example e = { .net = *net, .count = tutti_nn_net_param_count(net), .samples = samples };
    const tutti_rng rng = { .seed = seed, .stream = 1000 };
    const size_t n = (size_t)samples * sample_values(net);

    tutti_nn_net_params(net, e.params, PARAMS_MAX);
    for (int k = 0; k < e.count; k++) {
        e.values[k] = calloc(e.params[k].count, sizeof(float));
        e.gradients[k] = calloc(e.params[k].count, sizeof(float));
        tutti_nn_initialise(&e.params[k], 2 * e.params[k].unit + k % 2, seed, e.values[k]);
    }
    e.x = calloc(n + 1, sizeof(float));
    for (size_t i = 0; i < n; i++)
        e.x[i] = (float)tutti_normal(rng, i);
    e.labels = calloc((size_t)samples + 1, 1);
    for (int64_t i = 0; i < samples; i++)
        e.labels[i] = (uint8_t)(tutti_random(rng, n + (uint64_t)i) % (uint64_t)net->task.classes);
    return e;
}

static inline void example_free(example *e)
{
    for (int k = 0; k < e->count; k++) {
        free(e->values[k]);
        free(e->gradients[k]);
    }
    free(e->x);
    free(e->labels);
}

static inline nn_net net_of(const char *model, int channels, int height, int width, int classes)
{
    const tutti_nn_task task = { channels, height, width, classes };
    tutti_error err = { 0 };
    nn_net net;

    if (tutti_nn_net_model(&net, model, &task, &err) != TUTTI_OK)
        fail_msg("%s", err.text);
    return net;
}

static inline tutti_nn *open_net(const nn_net *net, const char *backend, int64_t batch)
{
    const tutti_nn_options options = { .backend = backend, .batch = batch };
    tutti_error err = { 0 };
    tutti_nn *nn;

    if (tutti_nn_open_net(&nn, net, &options, &err) != TUTTI_OK)
        fail_msg("%s", err.text);
    return nn;
}

/* A pass over the example's samples [0, n), divisor n, writing the gradients; gives the loss. */
static inline double run_pass(tutti_nn *nn, const example *e, int64_t n, bool add,
                              const tutti_nn_hooks *hooks)
{
    tutti_error err = { 0 };
    double loss;

    if (tutti_nn_pass(nn, &(tutti_nn_samples){ .count = n, .x = e->x, .labels = e->labels },
                      &(tutti_nn_step){ n > 0 ? (double)n : 1, add, false,
                                        (const float *const *)e->values, e->gradients, hooks },
                      &loss, &err) != TUTTI_OK)
        fail_msg("%s", err.text);
    return loss;
}

/* |a - b| / |b| over a tensor, in double; 0 if both are 0. */
static inline double distance(const float *a, const float *b, size_t n)
{
    double d = 0, norm = 0;

    for (size_t i = 0; i < n; i++) {
        d += pow((double)a[i] - (double)b[i], 2);
        norm += pow((double)b[i], 2);
    }
    return d > 0 ? sqrt(d / norm) : 0;
}

/* Networks that hold every layer kind in every place it can have; name for messages. */
typedef struct sample_net {
    const char *name;
    tutti_nn_task task;
    int count;
    tutti_layer layers[12];
} sample_net;
#define LINEAR(n) { TUTTI_LAYER_LINEAR, n, 0 }
#define CONV(n, k) { TUTTI_LAYER_CONV2D, n, k }
#define RELU { TUTTI_LAYER_RELU, 0, 0 }
#define POOL(k) { TUTTI_LAYER_MAXPOOL2D, 0, k }
#define FLATTEN { TUTTI_LAYER_FLATTEN, 0, 0 }
static const sample_net sample_nets[] = {
    { "linear alone", { 1, 3, 4, 5 }, 1, { LINEAR(5) } },
    { "flatten first", { 2, 3, 3, 2 }, 2, { FLATTEN, LINEAR(2) } },
    { "linear without relu between", { 1, 4, 4, 3 }, 2, { LINEAR(6), LINEAR(3) } },
    { "mlp of odd widths", { 1, 12, 12, 7 }, 5, { LINEAR(33), RELU, LINEAR(17), RELU, LINEAR(7) } },
    { "one feature wide", { 1, 1, 1, 2 }, 3, { LINEAR(1), RELU, LINEAR(2) } },
    { "conv bare", { 1, 6, 7, 3 }, 2, { CONV(4, 3), LINEAR(3) } },
    { "conv relu without pooling", { 1, 8, 8, 3 }, 4, { CONV(5, 3), RELU, FLATTEN, LINEAR(3) } },
    { "conv pool 3 with a rest", { 1, 12, 10, 3 }, 4, { CONV(8, 2), POOL(3), FLATTEN, LINEAR(3) } },
    { "conv pool before relu",
      { 2, 9, 9, 3 },
      5,
      { CONV(6, 3), POOL(2), RELU, FLATTEN, LINEAR(3) } },
    { "two conv, three channels in, not square",
      { 3, 13, 11, 4 },
      10,
      { CONV(6, 3), RELU, POOL(2), CONV(20, 3), RELU, POOL(2), FLATTEN, LINEAR(9), RELU,
        LINEAR(4) } },
    { "seventeen channels in, no pooling between",
      { 17, 7, 7, 4 },
      6,
      { CONV(16, 3), RELU, CONV(33, 1), RELU, FLATTEN, LINEAR(4) } },
    { "three conv, the middle one bare",
      { 1, 14, 14, 3 },
      9,
      { CONV(4, 5), RELU, POOL(2), CONV(8, 2), CONV(16, 3), RELU, POOL(2), FLATTEN, LINEAR(3) } },
    { "cnn small",
      { 1, 12, 12, 5 },
      10,
      { CONV(32, 3), RELU, POOL(2), CONV(64, 3), RELU, POOL(2), FLATTEN, LINEAR(128), RELU,
        LINEAR(5) } },
};

static inline nn_net net_from(const sample_net *s)
{
    tutti_error err = { 0 };
    nn_net net;

    if (tutti_nn_net_build(&net, s->layers, s->count, &s->task, &err) != TUTTI_OK)
        fail_msg("%s: %s", s->name, err.text);
    return net;
}
#endif
