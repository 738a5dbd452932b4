/* Goal: tutti_nn_outputs gives the logits that an evaluation goes by: of every kind of network
   and backend, in evaluations of several runs, with heads of one chunk of classes and of three.
   Method: their softmax has the loss that the evaluation reports, their largest its hits; a
   position alone has the logits of that position among all, to the bit, also where windows are
   taken one at a time; what is not asked for is not written, and the loss has the same bits. */
#include "kinds.h"

typedef struct told { double loss; int64_t correct; } told;

static told evaluate(tutti_nn *nn, const samples *s, float *const *values)
{
    const float *const *v = (const float *const *)values;
    tutti_error err = { 0 };
    told t;
    const tutti_status status =
        s->task.context > 0
            ? tutti_nn_evaluate_tokens(
                  nn, &(tutti_nn_samples){ .count = N, .tokens = s->tokens, .next = s->next }, v,
                  &t.loss, &t.correct, &err)
            : tutti_nn_evaluate(nn,
                                &(tutti_nn_samples){ .count = N, .x = s->x, .labels = s->labels },
                                v, &t.loss, &t.correct, &err);

    if (status != TUTTI_OK)
        fail_msg("%s", err.text);
    return t;
}

/* Of rows of logits with a label each. */
static told of_logits(const float *logits, size_t rows, size_t classes, const samples *s)
{
    told t = { 0 };

    for (size_t i = 0; i < rows; i++, logits += classes) {
        const size_t label = s->task.context > 0 ? s->next[i] : s->labels[i];
        size_t best = 0;
        double sum = 0;
        for (size_t c = 1; c < classes; c++)
            best = logits[c] > logits[best] ? c : best;
        for (size_t c = 0; c < classes; c++)
            sum += exp((double)logits[c] - (double)logits[best]);
        t.loss += (double)logits[best] - (double)logits[label] + log(sum);
        t.correct += best == label;
    }
    return t;
}

static void check(const char *model, const char *backend, const tutti_nn_task *task)
{
    static tutti_nn_param params[MOST];
    const size_t places = task->context > 0 ? (size_t)task->context : 1, classes = (size_t)task->classes,
                 all = N * places * classes;
    float *values[MOST], *logits = malloc((all + 1) * sizeof *logits), *one = malloc((N * classes + 1) * sizeof *one);
    samples s = samples_of(task);
    tutti_error err = { 0 };
    tutti_nn *nn;
    told asked, unasked, seen;
    int count;

    assert_int_equal(tutti_nn_params(model, task, params, MOST, &count, &err), TUTTI_OK);
    for (int k = 0; k < count; k++) {
        values[k] = calloc(params[k].count, sizeof(float));
        tutti_nn_initialise(&params[k], 2 * params[k].unit + (params[k].dims == 1), 5, values[k]);
    }
    if (tutti_nn_open(&nn, model, task, &(tutti_nn_options){ .backend = backend, .batch = 1 }, &err) != TUTTI_OK)
        fail_msg("%s: %s", model, err.text);
    unasked = evaluate(nn, &s, values);
    logits[all] = one[N * classes] = -7;
    tutti_nn_outputs(nn, logits, -1);
    asked = evaluate(nn, &s, values);
    assert_true(asked.loss == unasked.loss && asked.correct == unasked.correct && logits[all] == -7);
    seen = of_logits(logits, N * places, classes, &s);
    if (!(fabs(seen.loss / (double)places - asked.loss) <= 1e-5 * (1 + asked.loss)) || seen.correct != asked.correct)
        fail_msg("%s: the logits have the loss %.9g and %lld hits, the evaluation %.9g and %lld", model,
                 seen.loss / (double)places, (long long)seen.correct, asked.loss, (long long)asked.correct);
    for (size_t at = 0; at < places; at += places > 1 ? places - 1 : 1) {
        tutti_nn_outputs(nn, one, (int)at);
        evaluate(nn, &s, values);
        for (size_t i = 0; i < N; i++)
            assert_memory_equal(one + i * classes, logits + (i * places + at) * classes, classes * sizeof *one);
    }
    assert_true(one[N * classes] == -7);
    tutti_nn_outputs(nn, NULL, 0);
    memset(one, 0, N * classes * sizeof *one);
    evaluate(nn, &s, values);
    for (size_t i = 0; i < N * classes; i++)
        assert_true(one[i] == 0);
    tutti_nn_close(nn);
    /* one window at a time, as many at a time */
    assert_int_equal(tutti_nn_open(&nn, model, task,
                                   &(tutti_nn_options){ .backend = backend, .batch = 1, .windows = 1 }, &err),
                     TUTTI_OK);
    tutti_nn_outputs(nn, one, 0);
    assert_true(evaluate(nn, &s, values).correct == unasked.correct);
    for (size_t i = 0; i < N; i++)
        assert_memory_equal(one + i * classes, logits + i * places * classes, classes * sizeof *one);
    tutti_nn_close(nn);
    for (int k = 0; k < count; k++)
        free(values[k]);
    free(logits);
    free(one);
    samples_free(&s);
}

static void returned_logits_reproduce_the_loss(void **state)
{
    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(kinds); k++)
        if (kinds[k].task.tables == 0 && strncmp(kinds[k].model, "quadratic", 9) != 0)
            check(kinds[k].model, kinds[k].backend, &kinds[k].task);
}

/* A chunk of the head is at most 4096 classes wide. */
static void chunked_vocabulary_logits_reproduce_the_loss(void **state)
{
    const tutti_nn_task task = { .classes = 9001, .context = 4 };

    (void)state;
    check("gpt(layers=1,dim=8,heads=2)", "onednn", &task);
    check("wordlm(dim=8,hidden=8)", "onednn", &task);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(returned_logits_reproduce_the_loss),
                                        cmocka_unit_test(chunked_vocabulary_logits_reproduce_the_loss) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
