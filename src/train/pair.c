/* pair.c: checks that model and data match. A synthetic problem is both model and data (problem.h):
   if one of the two options names a problem, it applies to the other; if both do, it must be the
   same problem. Samples of a text are tokens, and samples of a click log have categories: only
   models that begin with an embedding accept them. */
#include <string.h>

#include "train_internal.h"
#include "state/folder.h"

static bool bare(const char *text)
{
    tutti_problem p;
    bool is;

    return tutti_problem_read(&p, text, "", &is, NULL) == TUTTI_OK && is;
}

void tutti_train_pair(tutti_train_config *c, bool model_given, bool data_given)
{
    const tutti_problem_set *model = tutti_problem_named(c->model),
                            *data = tutti_problem_named(c->data);

    if (tutti_measured_named(c->model) && !data_given)
        c->data = "logistic(dim=1,samples=65536)"; /* no pass reads them; they make epochs */
    else if (model != NULL && !data_given)
        c->data = c->model;
    else if (data != NULL && !model_given)
        c->model = c->data;
    else if (model != NULL && model == data && bare(c->model))
        c->model = c->data;
    else if (model != NULL && model == data && bare(c->data))
        c->data = c->model;
}

tutti_status tutti_train_check_samples(const tutti_train_config *c, bool text, bool clicks,
                                       tutti_error *err)
{
    if (tutti_measured_named(c->model) || (clicks && tutti_nn_takes_categories(c->model)))
        return TUTTI_OK; /* a measured network reads no samples */
    if (clicks)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "data is '%.120s', a click log, whose samples have categories, but model "
                          "'%.80s' takes %s only; give a model of categories (ctr), or other data "
                          "(`tutti data list`)",
                          c->data, c->model, tutti_nn_takes_tokens(c->model) ? "tokens" : "values");
    if (!text || tutti_nn_takes_tokens(c->model))
        /* for a model of tokens or categories on other data nn reports the fault */
        return TUTTI_OK;
    if (tutti_nn_takes_categories(c->model))
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "data is '%.120s', a text, whose samples are tokens, but model '%.80s' takes samples "
            "with categories; if it is a click log, give its form with it: --data "
            "'clicks(file=%.120s)'",
            c->data, c->model, strchr(c->data, '(') != NULL ? "PATH" : c->data);
    return tutti_fail(
        err, TUTTI_ERR_USAGE, 0,
        "data is '%.120s', a text, whose samples are tokens, but model '%.80s' takes values "
        "(images, features); give a model of tokens (gpt, wordlm), or a set of images or a problem "
        "(`tutti data list`)",
        c->data, c->model);
}

/* Returns the data set of that name; for a path the last, empty entry: its kind is known when it is
   opened. */
static const tutti_data_set *named(const char *data)
{
    const size_t n = strcspn(data, "(");
    const tutti_data_set *set = tutti_data_sets;

    while (set->name != NULL && (strlen(set->name) != n || strncmp(set->name, data, n) != 0))
        set++;
    return set;
}

const char *tutti_train_precision_name(const tutti_train_config *c)
{
    static const char *const names[] = { "fp32", "bf16", "fp16" };
    return names[c->precision];
}

tutti_dtype tutti_train_precision(const tutti_train_config *c)
{
    static const tutti_dtype types[] = { TUTTI_F32, TUTTI_BF16, TUTTI_F16 };
    return types[c->precision];
}

tutti_status tutti_train_check_pair(const tutti_train_config *c, tutti_error *err)
{
    const tutti_problem_set *model_set = tutti_problem_named(c->model),
                            *data_set = tutti_problem_named(c->data);
    tutti_problem model, data;
    bool no_options = true;

    TUTTI_TRY(tutti_train_check_samples(c, named(c->data)->text, named(c->data)->clicks, err));
    if (model_set != NULL)
        TUTTI_TRY(tutti_problem_read(&model, c->model, "model", &no_options, err));
    if (data_set != NULL)
        TUTTI_TRY(tutti_problem_read(&data, c->data, "data", NULL, err));
    if (model_set != NULL && model.kind == TUTTI_PROBLEM_QUADRATIC && data_set == NULL)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "model is '%.80s', whose loss is about samples of its own, but data is "
                          "'%.80s'; leave data out",
                          c->model, c->data);
    if (model_set != NULL && data_set != NULL &&
        (model_set == data_set || model.kind == TUTTI_PROBLEM_QUADRATIC))
        TUTTI_TRY(tutti_problem_same(&model, &data, err));
    else if (model_set != NULL && !no_options)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "model is '%.80s', whose options specify how its own samples are drawn, "
                          "but data is '%.80s'; omit data, or write model 'logistic' without "
                          "options",
                          c->model, c->data);
    if (model_set != NULL && model.kind == TUTTI_PROBLEM_QUADRATIC &&
        c->precision != TUTTI_PRECISION_FP32)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "precision is %s, but model '%.80s' has no products whose operands could be rounded; "
            "leave precision at fp32",
            tutti_train_precision_name(c), c->model);
    if (strncmp(c->target, "auc=", 4) == 0 && !tutti_nn_takes_categories(c->model))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "target is '%.40s', but '%.80s' gives no logit to rank samples by; only "
                          "models of categories (ctr) do; write accuracy=A or loss=L",
                          c->target, c->model);
    if (model_set != NULL && model.kind == TUTTI_PROBLEM_QUADRATIC &&
        strncmp(c->target, "accuracy=", 9) == 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "target is '%.40s', but quadratic has no accuracy; write loss=L, which "
                          "is the excess over its least loss",
                          c->target);
    return TUTTI_OK;
}

tutti_status tutti_train_check_data(tutti_runtime *rt, const tutti_train_config *c,
                                    const char *installed, tutti_error *err)
{
    const tutti_data_shape *shape;
    tutti_data *data;
    tutti_status status;
    int n;

    if (tutti_measured_named(c->model)) {
        tutti_measured_model *measured;
        TUTTI_TRY(tutti_measured_open(&measured, rt, c->model, err));
        tutti_measured_close(measured);
    }
    TUTTI_TRY(tutti_data_given(tutti_data_open_spec(&data, rt, c->data, installed, err), err));
    shape = tutti_data_shape_of(data);
    status = tutti_train_check_samples(c, shape->context > 0, shape->tables > 0, err);
    if (status == TUTTI_OK && shape->context > 0 && !tutti_measured_named(c->model))
        status = tutti_nn_params(c->model,
                                 &(tutti_nn_task){ shape->channels, shape->height, shape->width,
                                                   shape->classes, shape->context },
                                 NULL, 0, &n, err);
    tutti_data_close(data);
    if (status == TUTTI_OK && c->init[0] != 0 && c->resume[0] == 0) {
        /* its names are compared by rank 0 */
        tutti_tensor_file *file;
        status = tutti_data_given(tutti_tensors_open(&file, rt, c->init, err), err);
        if (status == TUTTI_OK)
            tutti_safetensors_close(file);
    }
    return status;
}

tutti_nn_options tutti_train_network(const tutti_train_config *c, int64_t batch, bool hands_over)
{
    return (tutti_nn_options){ .batch = batch,
                               .threads = (int)c->threads,
                               .precision = tutti_train_precision(c),
                               .by_unit = hands_over };
}
