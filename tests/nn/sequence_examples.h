/* sequence_examples.h: networks of tokens, and what a pass of one needs. Included by
   sequence_test.c and sequence_promises_test.c. */
#ifndef TUTTI_TESTS_SEQUENCE_EXAMPLES_H
#define TUTTI_TESTS_SEQUENCE_EXAMPLES_H
#include "nn/sequence.h"
#include "nn_test.h"

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
                                         (p->dims != 2     ? 0.3
                                          : p->fan_in > 0 ? 0.9 / sqrt((double)p->fan_in)
                                                          : 0.9));
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

static const tutti_layer
    embed = { .kind = TUTTI_LAYER_EMBEDDING, .out = 6 },
    positions = { .kind = TUTTI_LAYER_POSITIONS },
    norm = { .kind = TUTTI_LAYER_LAYER_NORM },
    branch = { .kind = TUTTI_LAYER_BRANCH },
    join = { .kind = TUTTI_LAYER_JOIN },
    gelu = { .kind = TUTTI_LAYER_GELU },
    attention = { .kind = TUTTI_LAYER_ATTENTION, .heads = 3 },
    attention1 = { .kind = TUTTI_LAYER_ATTENTION, .heads = 1 },
    to6 = { .kind = TUTTI_LAYER_LINEAR, .out = 6 },
    to18 = { .kind = TUTTI_LAYER_LINEAR, .out = 18 },
    rms = { .kind = TUTTI_LAYER_RMS_NORM },
    rotary3 = { .kind = TUTTI_LAYER_ROTARY, .heads = 3 },
    rotary1 = { .kind = TUTTI_LAYER_ROTARY, .heads = 1 },
    drop = { .kind = TUTTI_LAYER_DROPOUT, .rate = 0.4 },
    tied = { .kind = TUTTI_LAYER_LINEAR, .out = 9, .bare = true, .tied = true },
    to11 = { .kind = TUTTI_LAYER_LINEAR, .out = 11 },
    head = { .kind = TUTTI_LAYER_LINEAR, .out = 9, .bare = true },
    biased = { .kind = TUTTI_LAYER_LINEAR, .out = 9 };

#define TILE(n, of, columns) { .kind = TUTTI_LAYER_LINEAR, .out = columns, .tile = n, .tiles = of }
#endif
