/* trained.c: opens a trained model: model.json describes it, and model.safetensors or a checkpoint
   has its values. A model is used by one thread. Implements trained.h, with trained_evaluate.c and
   sample.c. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "model_file.h"
#include "trained_internal.h"
#include "weights.h"
#include "runtime/files.h"
#include "tutti/tutti.h"

/* ---- finding the files ---- */

static bool exists(tutti_runtime *rt, const char *folder, const char *name, char *path,
                   size_t bytes)
{
    const int n = snprintf(path, bytes, "%s/%s", folder, name);

    return n > 0 && (size_t)n < bytes && tutti_file_exists(rt, path);
}

static bool is_regular(tutti_runtime *rt, const char *path)
{
    tutti_file *file;

    if (tutti_file_open(&file, rt, path, TUTTI_FILE_READ, NULL) != TUTTI_OK)
        return false;
    tutti_file_close(file, NULL);
    return true;
}

/* Finds model.json of the run, and the file or checkpoint with the values (t->weights). */
static tutti_status find_files(tutti_trained *t, const char *run, char *facts, size_t bytes,
                               tutti_error *err)
{
    static const char *const up[] = { "", "/..", "/../.." };
    char folder[4096], at[4200], path[4300];
    const bool file = is_regular(t->rt, run);
    bool found = false;

    if (strlen(run) >= sizeof folder)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "the name of the run has %zu bytes; at most %zu are possible",
                          strlen(run), sizeof folder - 1);
    if (!tutti_file_exists(t->rt, run))
        return tutti_fail(
            err, TUTTI_ERR_USAGE, ENOENT,
            "there is no run at '%.300s'; give the --out of `tutti train`, or a checkpoint of it",
            run);
    strcpy(folder, run);
    if (file && strrchr(folder, '/') != NULL)
        *strrchr(folder, '/') = 0;
    else if (file)
        strcpy(folder, ".");
    for (size_t k = 0; k < TUTTI_LENGTH(up) && !found; k++) {
        snprintf(at, sizeof at, "%s%s", folder, up[k]);
        found = exists(t->rt, at, "model.json", facts, bytes);
    }
    if (!found)
        return tutti_fail(err, TUTTI_ERR_USAGE, ENOENT,
                          "'%.300s' has no model.json, in it or above it, which describes the "
                          "input of its model; give the --out of `tutti train`, or a checkpoint in "
                          "it",
                          run);
    if (file)
        snprintf(t->weights, sizeof t->weights, "%s", run);
    else if (exists(t->rt, run, "manifest.json", path, sizeof path))
        snprintf(t->weights, sizeof t->weights, "%s", run);
    else if (!exists(t->rt, run, "model.safetensors", t->weights, sizeof t->weights)) {
        tutti_error why = { .rank = -1 };
        if (tutti_checkpoint_find(t->rt, run, t->weights, sizeof t->weights, NULL, 0, &why) !=
            TUTTI_OK)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "'%.300s' has neither model.safetensors, which a run writes when it "
                              "ends, nor a valid checkpoint (--checkpoint-every N)",
                              run);
    }
    t->of_file = is_regular(t->rt, t->weights);
    return TUTTI_OK;
}

/* ---- reading the values ---- */

static tutti_status list_tensors(tutti_trained *t, tutti_error *err)
{
    const tutti_trained_facts *f = &t->file.facts;
    int n;

    TUTTI_TRY(tutti_nn_params(f->model, &f->task, NULL, 0, &n, err));
    t->tensors.n_params = n;
    t->params = tutti_alloc((size_t)n, sizeof *t->params);
    t->values = tutti_alloc((size_t)n, sizeof *t->values);
    TUTTI_TRY(tutti_nn_statistics(f->model, &f->task, NULL, 0, &n, err));
    t->tensors.n_statistics = n;
    t->statistics = tutti_alloc((size_t)n + 1, sizeof *t->statistics);
    if (t->params == NULL || t->values == NULL || t->statistics == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "listing the tensors of %s", f->model);
    TUTTI_TRY(tutti_nn_params(f->model, &f->task, t->params, t->tensors.n_params, &n, err));
    TUTTI_TRY(
        tutti_nn_statistics(f->model, &f->task, t->statistics, t->tensors.n_statistics, &n, err));
    t->tensors.params = t->params;
    t->tensors.statistics = t->statistics;
    for (int k = 0; k < t->tensors.n_statistics; k++)
        t->own += t->statistics[k].count;
    for (int k = 0; k < t->tensors.n_params; k++)
        if (!tutti_size_add(t->parameters, t->params[k].count, &t->parameters))
            return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                              "%s would have more parameters than memory can hold", f->model);
    return TUTTI_OK;
}

/* Allocates only after the file or the checkpoint has been checked, so that model.json alone is
   not trusted. */
static tutti_status take_room(tutti_trained *t, tutti_error *err)
{
    size_t at = 0;

    t->memory = tutti_alloc(t->parameters, sizeof *t->memory);
    t->running = tutti_alloc(t->own + 1, sizeof *t->running);
    if (t->memory == NULL || t->running == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for the %zu parameters of %s",
                          t->parameters, t->file.facts.model);
    for (int k = 0; k < t->tensors.n_params; at += t->params[k++].count)
        t->values[k] = t->memory + at;
    return TUTTI_OK;
}

static tutti_status read_file(tutti_trained *t, tutti_error *err)
{
    tutti_tensor_file *f;
    size_t at = 0;
    tutti_status status =
        tutti_train_weights_open(&f, t->rt, t->weights, t->file.facts.model, &t->tensors, err);

    if (status != TUTTI_OK)
        return status;
    status = take_room(t, err);
    for (int k = 0; k < t->tensors.n_params && status == TUTTI_OK; at += t->params[k++].count)
        status = tutti_train_weights_read(f, t->weights, t->params[k].name, t->params[k].count,
                                          t->memory + at, err);
    for (int k = 0; k < t->tensors.n_statistics && status == TUTTI_OK; k++)
        status =
            tutti_train_weights_read(f, t->weights, t->statistics[k].name, t->statistics[k].count,
                                     t->running + t->statistics[k].first, err);
    tutti_safetensors_close(f);
    return status;
}

/* Checks that the checkpoint has each parameter, with the model's number of elements. */
static tutti_status compare_pieces(const tutti_trained *t, const tutti_checkpoint *c,
                                   const char *state, tutti_error *err)
{
    tutti_saved piece;

    for (int k = 0; k < t->tensors.n_params; k++) {
        const tutti_nn_param *p = &t->params[k];
        size_t i = 0;
        while (tutti_checkpoint_piece(c, i, &piece) &&
               (strcmp(piece.state, state) != 0 || strcmp(piece.tensor, p->name) != 0))
            i++;
        if (!tutti_checkpoint_piece(c, i, &piece) || piece.count != p->count)
            return tutti_fail(
                err, TUTTI_ERR_USAGE, 0,
                "the checkpoint '%.300s' %s '%s'; model '%.80s' has %zu elements of it; is its "
                "model.json that of another run?",
                t->weights,
                tutti_checkpoint_piece(c, i, &piece) ? "has another number of elements of"
                                                     : "has no",
                p->name, t->file.facts.model, p->count);
    }
    return TUTTI_OK;
}

/* Returns how many owners the state `name` has; -1: it is global; 0: the checkpoint has none. */
static int owners_of(const tutti_checkpoint *c, const char *name)
{
    tutti_saved piece;
    int owners = 0;

    for (size_t i = 0; tutti_checkpoint_piece(c, i, &piece); i++)
        if (strcmp(piece.state, name) == 0 && piece.owner < 0)
            return -1;
        else if (strcmp(piece.state, name) == 0 && piece.owner >= owners)
            owners = piece.owner + 1;
    return owners;
}

/* The state that a checkpoint has the values in, and how many workers own one each; -1: all have
   the same. */
typedef struct saved_as {
    const char *state;
    int owners;
} saved_as;

/* Reads a parameter: the mean over its owners, in their order; a global one as it is. sum: scratch
   of p->count doubles. */
static tutti_status read_tensor(tutti_checkpoint *c, const saved_as *of, const tutti_nn_param *p,
                                float *to, double *sum, tutti_error *err)
{
    const int owners = of->owners;
    tutti_saved item = { .state = of->state,
                         .tensor = p->name,
                         .keep = owners < 0 ? TUTTI_SAME : TUTTI_OWN_MEAN,
                         .dtype = TUTTI_F32,
                         .owner = -1,
                         .count = p->count,
                         .end = p->count,
                         .data = to };

    if (owners < 0)
        return tutti_checkpoint_read(c, &item, 1, err);
    for (size_t i = 0; i < p->count; i++)
        sum[i] = 0;
    for (item.owner = 0; item.owner < owners; item.owner++) {
        TUTTI_TRY(tutti_checkpoint_read(c, &item, 1, err));
        for (size_t i = 0; i < p->count; i++)
            sum[i] += (double)to[i];
    }
    for (size_t i = 0; i < p->count; i++)
        to[i] = (float)(sum[i] / owners);
    return TUTTI_OK;
}

/* Reads running statistics: the mean over those workers that had computed samples. The last number
   of the client state tells that (engine/saved.c). */
static tutti_status read_running(tutti_trained *t, tutti_checkpoint *c, tutti_error *err)
{
    const int owners = owners_of(c, "client");
    float *one = tutti_alloc(t->own + 1, sizeof *one);
    double *sum = tutti_alloc(t->own + 1, sizeof *sum);
    tutti_status status =
        one != NULL && sum != NULL
            ? TUTTI_OK
            : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for the running statistics");

    for (int k = 0; k < owners && status == TUTTI_OK; k++) {
        const tutti_saved item = { .state = "client",
                                   .tensor = "",
                                   .keep = TUTTI_OWN_MEAN,
                                   .dtype = TUTTI_F32,
                                   .owner = k,
                                   .count = t->own + 1,
                                   .end = t->own + 1,
                                   .data = one };
        status = tutti_checkpoint_read(c, &item, 1, err);
        for (size_t i = 0; i <= t->own && one[t->own] > 0 && status == TUTTI_OK; i++)
            sum[i] += (double)one[i];
    }
    for (int k = 0; k < t->tensors.n_statistics && status == TUTTI_OK; k++)
        for (size_t i = 0; i < t->statistics[k].count; i++) {
            const size_t at = t->statistics[k].first + i;
            t->running[at] =
                sum[t->own] > 0 ? (float)(sum[at] / sum[t->own]) : t->statistics[k].start;
        }
    tutti_free(one);
    tutti_free(sum);
    return status;
}

static tutti_status read_checkpoint(tutti_trained *t, tutti_error *err)
{
    const char *state;
    tutti_checkpoint *c;
    double *sum = NULL;
    size_t most = 0, first = 0;
    int owners;
    tutti_status status = tutti_checkpoint_open(&c, t->rt, t->weights, err);

    if (status != TUTTI_OK)
        return status;
    state = tutti_checkpoint_has(c, "server.values") ? "server.values" : "x";
    owners = owners_of(c, state);
    for (int k = 0; k < t->tensors.n_params; k++)
        most = t->params[k].count > most ? t->params[k].count : most;
    if (owners == 0)
        status =
            tutti_fail(err, TUTTI_ERR_USAGE, 0,
                       "the checkpoint '%.300s' has no model that `tutti train` saved", t->weights);
    else
        status = compare_pieces(t, c, state, err);
    if (status == TUTTI_OK)
        status = take_room(t, err);
    if (status == TUTTI_OK && (sum = tutti_alloc(most, sizeof *sum)) == NULL)
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM,
                            "memory to average the models of '%.300s'", t->weights);
    for (int k = 0; k < t->tensors.n_params && status == TUTTI_OK; first += t->params[k++].count)
        status = read_tensor(c, &(saved_as){ state, owners }, &t->params[k], t->memory + first, sum,
                             err);
    if (status == TUTTI_OK && t->own > 0)
        status = read_running(t, c, err);
    tutti_free(sum);
    tutti_checkpoint_close(c);
    return status;
}

/* ---- life ---- */

static tutti_status open_network(tutti_trained *t, tutti_nn **nn, int64_t windows, tutti_error *err)
{
    const tutti_nn_options options = { .batch = 1,
                                       .threads = t->threads,
                                       .running = t->running,
                                       .precision = t->file.facts.precision,
                                       .windows = windows };

    return tutti_nn_open(nn, t->file.facts.model, &t->file.facts.task, &options, err);
}

tutti_status tutti_trained_open(tutti_trained **out, tutti_runtime *rt, const char *run,
                                int threads, tutti_error *err)
{
    tutti_trained *t = tutti_alloc(1, sizeof *t);
    char facts[4300];
    tutti_status status;

    *out = NULL;
    if (t == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening the run '%.300s'", run);
    t->rt = rt;
    status = find_files(t, run, facts, sizeof facts, err);
    if (status == TUTTI_OK)
        status = tutti_train_read_model_file(&t->file, rt, facts, err);
    if (status == TUTTI_OK && strncmp(t->file.facts.model, "quadratic", 9) == 0)
        status = tutti_fail(err, TUTTI_ERR_USAGE, 0,
                            "model '%.80s' is a point on its way to a known optimum, and its run "
                            "reports everything; there is nothing to evaluate or predict",
                            t->file.facts.model);
    if (status == TUTTI_OK)
        status = tutti_fail_within(err, list_tensors(t, err), "'%.300s'", facts);
    if (status == TUTTI_OK)
        status = t->of_file ? read_file(t, err) : read_checkpoint(t, err);
    t->threads = threads;
    if (status == TUTTI_OK)
        status = open_network(t, &t->nn, 0, err);
    if (status == TUTTI_OK)
        *out = t;
    else
        tutti_trained_close(t);
    return status;
}

void tutti_trained_close(tutti_trained *t)
{
    if (t == NULL)
        return;
    tutti_nn_close(t->nn);
    tutti_nn_close(t->nn_window);
    tutti_free(t->params);
    tutti_free(t->statistics);
    tutti_free(t->values);
    tutti_free(t->memory);
    tutti_free(t->running);
    json_decref(t->file.root);
    tutti_free(t);
}

const tutti_trained_facts *tutti_trained_facts_of(const tutti_trained *t)
{
    return &t->file.facts;
}

const char *tutti_trained_weights(const tutti_trained *t)
{
    return t->weights;
}

size_t tutti_trained_parameters(const tutti_trained *t)
{
    return t->parameters;
}

size_t tutti_trained_tensors(const tutti_trained *t, tutti_tensor_entry *entries)
{
    const size_t params = (size_t)t->tensors.n_params, rest = (size_t)t->tensors.n_statistics;

    for (size_t k = 0; k < params && entries != NULL; k++) {
        const tutti_nn_param *p = &t->params[k];
        entries[k] = (tutti_tensor_entry){ .name = p->name, .dtype = TUTTI_F32, .dims = p->dims,
                                           .data = t->values[k] };
        for (int d = 0; d < p->dims; d++)
            entries[k].dim[d] = p->dim[d];
    }
    for (size_t k = 0; k < rest && entries != NULL; k++) {
        const tutti_nn_statistic *s = &t->statistics[k];
        entries[params + k] = (tutti_tensor_entry){ .name = s->name, .dtype = TUTTI_F32, .dims = 1,
                                                    .dim = { s->count },
                                                    .data = t->running + s->first };
    }
    return params + rest;
}

/* ---- one at a time ---- */

tutti_status tutti_trained_takes_pictures(const tutti_trained *t, tutti_error *err)
{
    const tutti_trained_facts *f = &t->file.facts;

    if (!f->pixels)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "model '%.80s' was trained on '%.120s', whose samples are no images",
                          f->model, f->data);
    if (f->task.height != f->task.width || (f->task.channels != 1 && f->task.channels != 3))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "model '%.80s' was trained on '%.120s', whose samples are %d x %d x %d; "
                          "pictures are made as high as wide, of one or three channels",
                          f->model, f->data, f->task.channels, f->task.height, f->task.width);
    return TUTTI_OK;
}

tutti_status tutti_trained_classify(tutti_trained *t, const uint8_t *pixels, size_t n,
                                    float *logits, tutti_error *err)
{
    const tutti_trained_facts *f = &t->file.facts;
    const size_t each = (size_t)f->task.channels * (size_t)f->task.height * (size_t)f->task.width;
    float *x = tutti_alloc(n * each, sizeof *x), table[256];
    uint8_t *labels = tutti_alloc(n, 1); /* of no matter */
    double loss;
    int64_t correct;
    tutti_status status;

    if (x == NULL || labels == NULL)
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for %zu pictures", n);
    else {
        tutti_data_normal_table(f->mean, f->deviation, table);
        for (size_t i = 0; i < n * each; i++)
            x[i] = table[pixels[i]];
        tutti_nn_outputs(t->nn, logits, 0);
        status = tutti_nn_evaluate(
            t->nn, &(tutti_nn_samples){ .count = (int64_t)n, .x = x, .labels = labels }, t->values,
            &loss, &correct, err);
        tutti_nn_outputs(t->nn, NULL, 0);
    }
    tutti_free(x);
    tutti_free(labels);
    return status;
}

/* Fills the window up with token 0 after the known tokens, whose outputs do not depend on it. */
tutti_status tutti_trained_next(tutti_trained *t, const uint32_t *tokens, size_t n, float *logits,
                                tutti_error *err)
{
    const size_t context = (size_t)t->file.facts.task.context, known = n < context ? n : context;
    uint32_t *window;
    double loss;
    int64_t correct;
    tutti_status status;

    if (context == 0)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "model '%.80s' takes no tokens, so it cannot continue a text; gpt and wordlm can",
            t->file.facts.model);
    if (n == 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "there is no text to continue; give a prompt of at least one token");
    if (t->nn_window == NULL)
        TUTTI_TRY(open_network(t, &t->nn_window, 1, err));
    window = tutti_alloc(2 * context, sizeof *window);
    if (window == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for a window of %zu tokens",
                          context);
    memcpy(window, tokens + (n - known), known * sizeof *window);
    tutti_nn_outputs(t->nn_window, logits, (int)known - 1);
    status = tutti_nn_evaluate_tokens(
        t->nn_window, &(tutti_nn_samples){ .count = 1, .tokens = window, .next = window + context },
        t->values, &loss, &correct, err);
    tutti_free(window);
    return status;
}
