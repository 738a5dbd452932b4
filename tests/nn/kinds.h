/* kinds.h: a network of every kind that there is, with samples for it, and a pass over some of
   them. */
#ifndef TUTTI_NN_KINDS_H
#define TUTTI_NN_KINDS_H
#include "nn_test.h"

typedef struct samples {
    tutti_nn_task task;
    float *x;
    uint8_t *labels;
    uint32_t *tokens, *next, *rows;
} samples;

enum { N = 130, MOST = 160 }; /* two blocks of 64 and a part of one */

static const struct {
    const char *model, *backend;
    tutti_nn_task task;
    bool normed;
} kinds[] = {
    { "mlp(hidden=9)", "onednn", { .channels = 1, .height = 5, .width = 5, .classes = 7 }, false },
    { "mlp(hidden=9)", "reference", { .channels = 1, .height = 5, .width = 5, .classes = 7 }, false },
    { "cnn", "onednn", { .channels = 1, .height = 12, .width = 12, .classes = 10 }, false },
    { "logistic", "onednn", { .channels = 1, .height = 1, .width = 20, .classes = 3 }, false },
    { "quadratic(dim=20)", "onednn", { .channels = 1, .height = 1, .width = 20, .classes = 1 }, false },
    { "quadratic(dim=20)", "reference", { .channels = 1, .height = 1, .width = 20, .classes = 1 }, false },
    { "resnet(depth=8)", "onednn", { .channels = 1, .height = 4, .width = 4, .classes = 10 }, true },
    { "resnet(depth=8)", "reference", { .channels = 1, .height = 4, .width = 4, .classes = 10 }, true },
    { "gpt(layers=1,dim=16,heads=2,context=8,vocab=31)", "onednn", { .classes = 31, .context = 8 }, false },
    { "gpt(layers=1,dim=16,heads=2,tiles=3)", "onednn", { .classes = 31, .context = 8 }, false },
    { "wordlm(vocab=31,dim=8,hidden=8)", "onednn", { .classes = 31, .context = 8 }, false },
    { "blstm(layers=1,hidden=8)", "onednn", { .channels = 1, .height = 6, .width = 5, .classes = 4 }, false },
    { "ctr(tables=3,rows=11,dim=4)", "onednn",
      { .channels = 1, .height = 1, .width = 6, .classes = 2, .tables = 3, .rows = 11 }, false },
};

static inline samples samples_of(const tutti_nn_task *task)
{
    samples s = { .task = *task };
    const size_t values = (size_t)(task->channels * task->height * task->width);
    const size_t tokens = (size_t)task->context;
    const tutti_rng rng = { .seed = 3, .stream = 9 };

    s.x = calloc(N * values + 1, sizeof *s.x);
    s.labels = calloc(N + 1, 1);
    s.tokens = calloc(N * tokens + 1, sizeof *s.tokens);
    s.next = calloc(N * tokens + 1, sizeof *s.next);
    s.rows = calloc(N * (size_t)task->tables + 1, sizeof *s.rows);
    for (size_t i = 0; i < N * values; i++)
        s.x[i] = (float)tutti_normal(rng, i);
    for (size_t i = 0; i < N; i++)
        s.labels[i] = (uint8_t)(tutti_random(rng, i) % (uint64_t)task->classes);
    for (size_t i = 0; i < N * tokens; i++) {
        s.tokens[i] = (uint32_t)(tutti_random(rng, i) % (uint64_t)task->classes);
        s.next[i] = (uint32_t)(tutti_random(rng, N * tokens + i) % (uint64_t)task->classes);
    }
    for (size_t i = 0; i < N * (size_t)task->tables; i++)
        s.rows[i] = (uint32_t)(tutti_random(rng, i) % task->rows);
    return s;
}

static inline void samples_free(samples *s)
{
    free(s->x);
    free(s->labels);
    free(s->tokens);
    free(s->next);
    free(s->rows);
}

/* hooks: NULL: none. */
static inline double pass_over(tutti_nn *nn, const samples *s, size_t first, int64_t n,
                               float *const *values, float *const *gradients,
                               const tutti_nn_hooks *hooks)
{
    const tutti_nn_task *t = &s->task;
    const float *const *v = (const float *const *)values;
    const float *const x = s->x + first * (size_t)(t->channels * t->height * t->width);
    const size_t at = first * (size_t)t->context;
    const double divisor = n > 0 ? (double)n : 1;
    tutti_error err = { 0 };
    double loss;
    const tutti_status status =
        t->context > 0
            ? tutti_nn_pass_tokens(
                  nn,
                  &(tutti_nn_samples){ .count = n, .tokens = s->tokens + at, .next = s->next + at },
                  &(tutti_nn_step){ divisor, false, false, v, gradients, hooks }, &loss, &err)
        : t->tables > 0
            ? tutti_nn_pass_rows(nn,
                                 &(tutti_nn_samples){ .count = n,
                                                      .x = x,
                                                      .labels = s->labels + first,
                                                      .rows = s->rows + first * (size_t)t->tables },
                                 &(tutti_nn_step){ divisor, false, false, v, gradients, hooks },
                                 &loss, &err)
            : tutti_nn_pass(
                  nn, &(tutti_nn_samples){ .count = n, .x = x, .labels = s->labels + first },
                  &(tutti_nn_step){ divisor, false, false, v, gradients, hooks }, &loss, &err);

    if (status != TUTTI_OK)
        fail_msg("%s", err.text);
    return loss;
}

#endif
