/* subject.h: for tests that hold two networks to the same bits: a model's parameters, samples of
   any kind, and a side each. */
#ifndef TUTTI_NN_SUBJECT_H
#define TUTTI_NN_SUBJECT_H
#include "nn_test.h"

enum { ROOM = 400 };

/* ---- a model and its samples ---- */
typedef struct side {
    tutti_nn *nn;
    float *values[ROOM], *gradients[ROOM];
    double loss;
    bool same;                   /* declares to the pass that values are those of the one before */
} side;

typedef struct subject {
    tutti_nn_task task;
    tutti_nn_param params[ROOM];
    int count;
    int64_t samples;
    float *x;
    uint8_t *labels;
    uint32_t *tokens, *next, *rows;
} subject;

static inline subject subject_of(const char *model, tutti_nn_task task, int64_t samples)
{
    const int64_t each = task.context > 0 ? 0 : (int64_t)task.channels * task.height * task.width;
    const size_t values = (size_t)(samples * each),
                 n = (size_t)samples * (size_t)(task.context > 0 ? task.context : 1);
    subject s = { .task = task, .samples = samples };

    assert_int_equal(tutti_nn_params(model, &task, s.params, ROOM, &s.count, NULL), TUTTI_OK);
    assert_in_range(s.count, 1, ROOM);
    s.x = calloc(values + 1, sizeof *s.x);
    for (size_t i = 0; i < values; i++)
        s.x[i] = (float)tutti_normal((tutti_rng){ 1, 2, 3 }, i);
    s.labels = calloc(n, 1);
    s.tokens = calloc(n, sizeof *s.tokens);
    s.next = calloc(n, sizeof *s.next);
    s.rows = calloc(n * (size_t)(task.tables + 1), sizeof *s.rows);
    for (size_t i = 0; i < n * (size_t)task.tables; i++)
        s.rows[i] = (uint32_t)(tutti_random((tutti_rng){ 1, 6, 0 }, i) % task.rows);
    for (size_t i = 0; i < n; i++) {
        s.labels[i] = (uint8_t)(tutti_random((tutti_rng){ 1, 3, 0 }, i) % (uint64_t)task.classes);
        s.tokens[i] = (uint32_t)(tutti_random((tutti_rng){ 1, 4, 0 }, i) % (uint64_t)task.classes);
        s.next[i] = (uint32_t)(tutti_random((tutti_rng){ 1, 5, 0 }, i) % (uint64_t)task.classes);
    }
    return s;
}

static inline void subject_free(subject *s)
{
    free(s->x);
    free(s->labels);
    free(s->tokens);
    free(s->next);
    free(s->rows);
}

static inline side side_of(const subject *s, const char *model, const tutti_nn_options *options)
{
    side d = { 0 };
    tutti_error err;

    if (tutti_nn_open(&d.nn, model, &s->task, options, &err) != TUTTI_OK)
        fail_msg("%s: %s", model, err.text);
    for (int k = 0; k < s->count; k++) {
        d.values[k] = calloc(s->params[k].count, sizeof(float));
        d.gradients[k] = calloc(s->params[k].count, sizeof(float));
        tutti_nn_initialise(&s->params[k], 2 * s->params[k].unit + k % 2, 7, d.values[k]);
        for (size_t i = 0; i < s->params[k].count && s->params[k].dims == 1; i++)
            d.values[k][i] += 0.1F * (float)tutti_normal((tutti_rng){ 8, (uint64_t)k, 0 }, i);
    }
    return d;
}

static inline void side_free(const subject *s, side *d)
{
    tutti_nn_close(d->nn);
    for (int k = 0; k < s->count; k++) {
        free(d->values[k]);
        free(d->gradients[k]);
    }
}

static inline void run(const subject *s, side *d, int64_t samples, bool add,
                       const tutti_nn_hooks *hooks)
{
    const float *const *values = (const float *const *)d->values;
    const double divisor = (double)s->samples;
    tutti_error err;
    tutti_status status;

    if (s->task.context > 0)
        status = tutti_nn_pass_tokens(
            d->nn, &(tutti_nn_samples){ .count = samples, .tokens = s->tokens, .next = s->next },
            &(tutti_nn_step){ divisor, add, d->same, values, d->gradients, hooks }, &d->loss, &err);
    else if (s->task.tables > 0)
        status = tutti_nn_pass_rows(
            d->nn,
            &(tutti_nn_samples){
                .count = samples, .x = s->x, .labels = s->labels, .rows = s->rows },
            &(tutti_nn_step){ divisor, add, d->same, values, d->gradients, hooks }, &d->loss, &err);
    else
        status = tutti_nn_pass(
            d->nn, &(tutti_nn_samples){ .count = samples, .x = s->x, .labels = s->labels },
            &(tutti_nn_step){ divisor, add, d->same, values, d->gradients, hooks }, &d->loss, &err);
    if (status != TUTTI_OK)
        fail_msg("%s", err.text);
}

static inline void same_bits(const char *what, const subject *s, side *a, side *b)
{
    size_t count;
    const float *x = tutti_nn_running(a->nn, &count), *y = tutti_nn_running(b->nn, &count);

    if (a->loss != b->loss)
        fail_msg("%s: losses %.17g and %.17g", what, a->loss, b->loss);
    for (int k = 0; k < s->count; k++)
        if (memcmp(a->gradients[k], b->gradients[k], s->params[k].count * sizeof(float)) != 0)
            fail_msg("%s: gradient of %s differs", what, s->params[k].name);
    if (count > 0 && memcmp(x, y, count * sizeof *x) != 0)
        fail_msg("%s: running statistics differ", what);
}
#endif
