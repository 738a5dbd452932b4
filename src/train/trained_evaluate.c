/* trained_evaluate.c: evaluates a trained model on a data set, in one process. Chunks are those of
   evaluate.c, so that the sums have the bits of a run with one worker. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "trained_internal.h"
#include "data/clicks.h"

enum { CHUNK = 500, WINDOWS = 64 };

typedef struct assessment {
    tutti_trained *t;
    const tutti_data *data;
    double loss, hits;               /* sums over the samples that are done */
    uint64_t done;
    float *logits;                   /* [samples][width]; NULL: not requested */
    size_t width;
    int64_t *labels;                 /* [samples][label_width]; NULL with logits */
    size_t label_width;
    double *ranks;                   /* [samples]: logits of clicks; NULL: no clicks */
    uint8_t *clicked;                /* [samples]: their labels */
} assessment;

/* ---- does the model accept the data? ---- */

static tutti_status compare_classes(const tutti_trained_facts *f, const tutti_data *data,
                                    const char *text, tutti_error *err)
{
    const int classes = tutti_data_shape_of(data)->classes;

    if (classes > f->task.classes)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "data is '%.120s' with %d classes, and model '%.80s' tells %d apart",
                          text, classes, f->model, f->task.classes);
    for (int k = 0; k < classes && k < f->classes_named; k++) {
        const char *name = tutti_data_class_name(data, k);
        if (name != NULL && strcmp(name, f->class_name[k]) != 0)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "data is '%.120s', whose class %d is '%.60s', while that of the "
                              "model is '%.60s'; give folders with the names of the run's classes, "
                              "all of them",
                              text, k, name, f->class_name[k]);
    }
    return TUTTI_OK;
}

/* Refuses a text for a model that was trained on another or none. */
static tutti_status compare_text(const tutti_trained_facts *f, const tutti_data *data,
                                 const char *text, tutti_error *err)
{
    const tutti_data_shape *s = tutti_data_shape_of(data);
    const tutti_nn_task *t = &f->task;
    if (s->context != t->context || (t->context > 0 && (s->classes != t->classes ||
                                                        tutti_data_encoding(data) != f->encoding)))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "data is '%.120s' (%s), and model '%.80s' was trained on '%.120s'%s",
                          text,
                          s->context == 0            ? "no text"
                          : t->context == 0          ? "a text"
                          : s->context != t->context ? "a text of another context"
                                                     : "a text of another encoding",
                          f->model, f->data,
                          s->context > 0 && t->context > 0
                              ? "; write text(file=...,context=N) or tokens(...) with its "
                                "context, and take its encoding"
                              : "");
    return TUTTI_OK;
}

static tutti_status compare_shape(const tutti_trained_facts *f, const tutti_data *data,
                                  const char *text, tutti_error *err)
{
    const tutti_data_shape *s = tutti_data_shape_of(data);
    const tutti_nn_task *t = &f->task;

    TUTTI_TRY(compare_text(f, data, text, err));
    if (t->context > 0)
        return TUTTI_OK;
    if (s->tables != t->tables || s->rows != t->rows)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "data is '%.120s' with %d categories in tables of %u, and model '%.80s' "
                          "has %d in tables of %u",
                          text, s->tables, s->rows, f->model, t->tables, t->rows);
    if (s->channels != t->channels || s->height != t->height || s->width != t->width)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "data is '%.120s' of %d x %d x %d values, and model '%.80s' takes %d x %d x %d%s", text,
            s->channels, s->height, s->width, f->model, t->channels, t->height, t->width,
            f->pixels && t->height == t->width ? "; folders of pictures come in any size: "
                                                 "images(dir=PATH,size=N,grey=on)"
                                               : "");
    return TUTTI_OK;
}

/* ---- evaluating ---- */

static tutti_status windows(assessment *a, tutti_split split, uint64_t end, tutti_error *err)
{
    const size_t context = (size_t)a->t->file.facts.task.context;
    uint32_t *tokens = tutti_alloc(WINDOWS * context, sizeof *tokens),
             *next = tutti_alloc(WINDOWS * context, sizeof *next);
    uint64_t ids[WINDOWS];
    tutti_status status =
        tokens != NULL && next != NULL
            ? TUTTI_OK
            : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory to evaluate %d windows", WINDOWS);

    for (uint64_t at = 0; at < end && status == TUTTI_OK; at += WINDOWS) {
        const size_t n = (size_t)(end - at < WINDOWS ? end - at : WINDOWS);
        double loss;
        int64_t correct;
        for (size_t i = 0; i < n; i++)
            ids[i] = at + i;
        tutti_data_gather_tokens(a->data, split, ids, n, tokens, next);
        if (a->logits != NULL)
            tutti_nn_outputs(a->t->nn, a->logits + a->done * a->width, -1);
        for (size_t i = 0; i < n * context && a->labels != NULL; i++)
            a->labels[a->done * context + i] = next[i];
        status = tutti_nn_evaluate_tokens(
            a->t->nn, &(tutti_nn_samples){ .count = (int64_t)n, .tokens = tokens, .next = next },
            a->t->values, &loss, &correct, err);
        a->loss += loss;
        a->hits += (double)correct / (double)context;
        a->done += n;
    }
    tutti_free(tokens);
    tutti_free(next);
    return status;
}

static tutti_status samples(assessment *a, tutti_split split, uint64_t end, tutti_error *err)
{
    const tutti_nn_task *task = &a->t->file.facts.task;
    const size_t each = (size_t)task->channels * (size_t)task->height * (size_t)task->width,
                 tables = (size_t)task->tables;
    float *x = tutti_alloc(CHUNK * each, sizeof *x), z[CHUNK];
    uint32_t *rows = tutti_alloc(CHUNK * tables + 1, sizeof *rows);
    uint8_t labels[CHUNK];
    uint64_t ids[CHUNK];
    tutti_status status =
        x != NULL && rows != NULL
            ? TUTTI_OK
            : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory to evaluate %d samples", CHUNK);

    for (uint64_t at = 0; at < end && status == TUTTI_OK; at += CHUNK) {
        const size_t n = (size_t)(end - at < CHUNK ? end - at : CHUNK);
        double loss;
        int64_t correct;
        for (size_t i = 0; i < n; i++)
            ids[i] = at + i;
        tutti_data_gather(a->data, split, ids, n, x, labels);
        if (tables > 0) {
            tutti_data_gather_rows(a->data, split, ids, n, rows);
            status = tutti_nn_evaluate_rows(
                a->t->nn,
                &(tutti_nn_samples){ .count = (int64_t)n, .x = x, .labels = labels, .rows = rows },
                a->t->values, &(tutti_nn_score){ &loss, &correct, z }, err);
        } else {
            if (a->logits != NULL)
                tutti_nn_outputs(a->t->nn, a->logits + a->done * a->width, 0);
            status = tutti_nn_evaluate(
                a->t->nn, &(tutti_nn_samples){ .count = (int64_t)n, .x = x, .labels = labels },
                a->t->values, &loss, &correct, err);
        }
        for (size_t i = 0; i < n && a->labels != NULL; i++)
            a->labels[a->done + i] = labels[i];
        for (size_t i = 0; i < n && tables > 0; i++) {
            a->ranks[a->done + i] = (double)z[i];
            a->clicked[a->done + i] = labels[i];
            if (a->logits != NULL)
                a->logits[a->done + i] = z[i];
        }
        a->loss += loss;
        a->hits += (double)correct;
        a->done += n;
    }
    tutti_free(x);
    tutti_free(rows);
    return status;
}

static tutti_status take_room(assessment *a, uint64_t total, bool logits, tutti_error *err)
{
    const tutti_nn_task *task = &a->t->file.facts.task;
    size_t all, labels;

    if (task->tables > 0) {
        a->ranks = tutti_alloc((size_t)total, sizeof *a->ranks);
        a->clicked = tutti_alloc((size_t)total, 1);
        if (a->ranks == NULL || a->clicked == NULL)
            return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory to rank %llu samples",
                              (unsigned long long)total);
    }
    if (!logits)
        return TUTTI_OK;
    a->label_width = task->context > 0 ? (size_t)task->context : 1;
    a->width = task->tables > 0 ? 1 : a->label_width * (size_t)task->classes;
    if (!tutti_size_mul((size_t)total, a->width, &all) ||
        !tutti_size_mul((size_t)total, a->label_width, &labels) ||
        (a->logits = tutti_alloc(all, sizeof *a->logits)) == NULL ||
        (a->labels = tutti_alloc(labels, sizeof *a->labels)) == NULL)
        return tutti_fail(
            err, TUTTI_ERR_MEMORY, ENOMEM,
            "memory for the logits of %llu samples, %zu each; --samples N takes fewer",
            (unsigned long long)total, a->width);
    return TUTTI_OK;
}

static tutti_status write_logits(const assessment *a, const char *path, tutti_error *err)
{
    const tutti_nn_task *task = &a->t->file.facts.task;
    tutti_tensor_entry entries[2] = {
        { .name = "logits",
          .dtype = TUTTI_F32,
          .dims = task->tables > 0    ? 1
                  : task->context > 0 ? 3
                                      : 2,
          .dim = { a->done },
          .data = a->logits },
        { .name = "labels",
          .dtype = TUTTI_I64,
          .dims = task->context > 0 ? 2 : 1,
          .dim = { a->done },
          .data = a->labels },
    };

    entries[0].dim[1] = (uint64_t)(task->context > 0  ? task->context
                                   : task->tables > 0 ? 0
                                                      : task->classes);
    entries[0].dim[2] = (uint64_t)(task->context > 0 ? task->classes : 0);
    entries[1].dim[1] = (uint64_t)task->context;
    return tutti_safetensors_write(a->t->rt, path, entries, 2, NULL, NULL, err);
}

static tutti_status go_over(assessment *a, tutti_trained_split which, uint64_t most,
                            const char *logits, tutti_evaluation *result, tutti_error *err)
{
    const tutti_data_shape *shape = tutti_data_shape_of(a->data);
    const bool with[2] = { which != TUTTI_SPLIT_TEST, which != TUTTI_SPLIT_TRAIN };
    const uint64_t there = (with[0] ? shape->samples[0] : 0) + (with[1] ? shape->samples[1] : 0);
    double expected, auc = -1;
    uint64_t total = most > 0 && most < there ? most : there;
    tutti_status status = take_room(a, total, logits != NULL, err);

    for (int split = TUTTI_TRAIN; split <= TUTTI_TEST && status == TUTTI_OK; split++) {
        const uint64_t left = total - a->done,
                       n = shape->samples[split] < left ? shape->samples[split] : left;
        if (with[split] && n > 0)
            status = (shape->context > 0 ? windows : samples)(a, (tutti_split)split, n, err);
    }
    tutti_nn_outputs(a->t->nn, NULL, 0);
    if (status == TUTTI_OK && shape->tables > 0)
        status = tutti_click_auc(a->ranks, a->clicked, (size_t)a->done, &expected, &auc, err);
    if (status == TUTTI_OK && logits != NULL)
        status = write_logits(a, logits, err);
    *result = (tutti_evaluation){ .samples = a->done,
                                  .loss = a->loss / (double)total,
                                  .accuracy = a->hits / (double)total,
                                  .auc = auc >= 0 ? auc : -1, .tokens = shape->context > 0 };
    return status;
}

tutti_status tutti_trained_evaluate(tutti_trained *t, const char *text, const char *installed,
                                    tutti_trained_split split, uint64_t most, const char *logits,
                                    tutti_evaluation *result, tutti_error *err)
{
    const tutti_trained_facts *f = &t->file.facts;
    const char *name = text != NULL ? text : f->data;
    assessment a = { .t = t };
    tutti_data *data;
    void *memory = NULL;
    tutti_status status;

    *result = (tutti_evaluation){ .accuracy = -1, .auc = -1 };
    TUTTI_TRY(tutti_data_given(tutti_data_open_spec(&data, t->rt, name, installed, err), err));
    status = compare_shape(f, data, name, err);
    if (status == TUTTI_OK &&
        (memory = tutti_alloc((size_t)tutti_data_shape_of(data)->bytes, 1)) == NULL)
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for the %llu bytes of '%.120s'",
                            (unsigned long long)tutti_data_shape_of(data)->bytes, name);
    if (status == TUTTI_OK)
        status = tutti_data_given(tutti_data_attach(data, memory, true, err), err);
    if (status == TUTTI_OK && f->task.context == 0)
        status = compare_classes(f, data, name, err);
    if (status == TUTTI_OK && f->pixels && tutti_data_shape_of(data)->value_bytes == 1)
        tutti_data_normalise(data, f->mean, f->deviation);
    a.data = data;
    if (status == TUTTI_OK)
        status = go_over(&a, split, most, logits, result, err);
    tutti_free(a.logits);
    tutti_free(a.labels);
    tutti_free(a.ranks);
    tutti_free(a.clicked);
    tutti_data_close(data);
    tutti_free(memory);
    return status;
}
