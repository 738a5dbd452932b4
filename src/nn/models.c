/* models.c: the models by name, each a short list of layers. mlp and cnn are those of PyTorch's
   tutorials as their nn.Sequential writes them, so that names, shapes and initial distribution of
   the parameters agree with a PyTorch run; logistic is its Linear alone. quadratic and logistic are
   the models of the synthetic problems (problem.h) and take the problems' options. */
#include "nn_internal.h"
#include "problem/problem.h"
#include <stdio.h>
#include <string.h>

/* ---- mlp: Linear, ReLU, Linear, ReLU, Linear; samples are flat vectors ---- */
typedef struct mlp { int64_t hidden; } mlp;
static const tutti_option mlp_options[] = {
    { "hidden", TUTTI_INT, TUTTI_AT(mlp, hidden), 1024, 1, 65536, NULL,
      "features of both hidden layers" },
    { 0 },
};

static tutti_status copy_layers(const tutti_layer *from, int n, tutti_layer *layers, int capacity,
                                int *count)
{
    *count = n;
    for (int i = 0; i < n && i < capacity; i++)
        layers[i] = from[i];
    return TUTTI_OK;
}

static tutti_status mlp_layers(const void *self, const tutti_nn_task *task, tutti_layer *layers,
                               int capacity, int *count, tutti_error *err)
{
    const int hidden = (int)((const mlp *)self)->hidden;
    const tutti_layer list[] = {
        { TUTTI_LAYER_LINEAR, hidden, 0 }, { TUTTI_LAYER_RELU, 0, 0 },
        { TUTTI_LAYER_LINEAR, hidden, 0 }, { TUTTI_LAYER_RELU, 0, 0 },
        { TUTTI_LAYER_LINEAR, task->classes, 0 },
    };

    (void)err;
    return copy_layers(list, (int)TUTTI_LENGTH(list), layers, capacity, count);
}

static const tutti_model_ops mlp_ops = {
    .name = "mlp", .title = "three linear layers with ReLU (784-1024-1024-10 on MNIST)",
    .options = mlp_options, .self_bytes = sizeof(mlp), .layers = mlp_layers,
};

/* ---- cnn: two convolutions with pooling, two linear layers ---- */
enum {
    CNN_SIDE_MIN = 10
}; /* -2 for the first window, halved, -2, halved: ((10 - 2) / 2 - 2) / 2 = 1 */
typedef struct cnn { bool recompute; } cnn;
static const tutti_option cnn_options[] = {
    { "recompute", TUTTI_BOOL, TUTTI_AT(cnn, recompute), 0, 0, 1, NULL,
      "keep what the convolutions give the linear layers alone, and compute the rest again in "
      "backward: less memory, the same bits" },
    { 0 },
};

static tutti_status cnn_layers(const void *self, const tutti_nn_task *task, tutti_layer *layers,
                               int capacity, int *count, tutti_error *err)
{
    const tutti_layer list[] = {
        { TUTTI_LAYER_CONV2D, 32, 3 }, { TUTTI_LAYER_RELU, 0, 0 }, { TUTTI_LAYER_MAXPOOL2D, 0, 2 },
        { TUTTI_LAYER_CONV2D, 64, 3 }, { TUTTI_LAYER_RELU, 0, 0 }, { TUTTI_LAYER_MAXPOOL2D, 0, 2 },
        { TUTTI_LAYER_FLATTEN, 0, 0 },
        { .kind = TUTTI_LAYER_LINEAR, .out = 128, .segment = ((const cnn *)self)->recompute },
        { TUTTI_LAYER_RELU, 0, 0 },
        { TUTTI_LAYER_LINEAR, task->classes, 0 },
    };

    *count = 0;
    if (task->height < CNN_SIDE_MIN || task->width < CNN_SIDE_MIN)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "cnn needs images of at least %dx%d; this task has %dx%d; mlp takes any size",
            CNN_SIDE_MIN, CNN_SIDE_MIN, task->height, task->width);
    return copy_layers(list, (int)TUTTI_LENGTH(list), layers, capacity, count);
}

static const tutti_model_ops cnn_ops = {
    .name = "cnn",
    .title = "two 3x3 convolutions of 32 and 64 channels with pooling, two linear layers",
    .options = cnn_options,
    .self_bytes = sizeof(cnn),
    .layers = cnn_layers,
};

/* ---- the models of the synthetic problems ---- */
static tutti_status quadratic_layers(const void *self, const tutti_nn_task *task,
                                     tutti_layer *layers, int capacity, int *count,
                                     tutti_error *err)
{
    const tutti_problem *p = self;
    const tutti_layer list[] = { { .kind = TUTTI_LAYER_QUADRATIC,
                                   .out = (int)p->dim,
                                   .condition = p->condition,
                                   .simplex = p->simplex } };

    (void)task, (void)err;
    return copy_layers(list, 1, layers, capacity, count);
}

static const tutti_model_ops quadratic_ops = {
    .name = "quadratic",
    .title = "one vector under a quadratic loss of known optimum, for the data of the same name",
    .options = tutti_quadratic_options,
    .self_bytes = sizeof(tutti_problem),
    .layers = quadratic_layers,
};

/* Its options are those of the data of the same name; on other data it is softmax regression, and
   they have no effect. */
static tutti_status logistic_layers(const void *self, const tutti_nn_task *task,
                                    tutti_layer *layers, int capacity, int *count, tutti_error *err)
{
    const tutti_layer list[] = { { TUTTI_LAYER_LINEAR, task->classes, 0 } };

    (void)self, (void)err;
    return copy_layers(list, 1, layers, capacity, count);
}

static const tutti_model_ops logistic_ops = {
    .name = "logistic",
    .title = "one linear layer: logistic or softmax regression, on any data",
    .options = tutti_logistic_options,
    .self_bytes = sizeof(tutti_problem),
    .layers = logistic_layers,
};

/* ---- gpt: pre-norm blocks of attention and a linear pair with GELU; an output matrix without
   bias. Matrices start normal with 0.02. Dropout is where GPT-2 has it, on the embedding and on
   what a block adds, but not on the weights of attention, which exist a tile at a time ---- */
enum { TILES_MAX = 1000 }; /* a tile's name fits */
enum { GPT_LEARNED, GPT_ROTARY };
enum { GPT_LAYER_NORM, GPT_RMS_NORM };
typedef struct gpt {
    int64_t layers, dim, heads, context, vocab;
    double dropout;
    int positions, norm;
    bool tied, recompute;
    int64_t tiles;
} gpt;
static const tutti_option gpt_options[] = {
    { "layers", TUTTI_INT, TUTTI_AT(gpt, layers), 4, 1, 1000, NULL,
      "blocks of attention and linear layers" },
    { "dim", TUTTI_INT, TUTTI_AT(gpt, dim), 256, 1, 65536, NULL, "values of a token's row" },
    { "heads", TUTTI_INT, TUTTI_AT(gpt, heads), 4, 1, 65536, NULL,
      "of attention; dim is a multiple of it" },
    { "context", TUTTI_INT, TUTTI_AT(gpt, context), 0, 0, 65536, NULL,
      "tokens of a window; 0: as many as the data's" },
    { "vocab", TUTTI_INT, TUTTI_AT(gpt, vocab), 0, 0, 1 << 20, NULL,
      "different tokens; 0: as many as the data has" },
    { "dropout", TUTTI_REAL, TUTTI_AT(gpt, dropout), 0, 0, 0.99, NULL,
      "probability that a value of the embedding or of what a block adds is dropped, in steps of "
      "1/65536" },
    { "positions", TUTTI_CHOICE, TUTTI_AT(gpt, positions), GPT_LEARNED, 0, 0, "learned|rotary",
      "a table added to the embedding, or queries and keys turned by their places" },
    { "norm", TUTTI_CHOICE, TUTTI_AT(gpt, norm), GPT_LAYER_NORM, 0, 0, "layer|rms",
      "layer norm, or RMS norm" },
    { "tied", TUTTI_BOOL, TUTTI_AT(gpt, tied), 0, 0, 1, NULL,
      "the output matrix is the embedding's" },
    { "recompute", TUTTI_BOOL, TUTTI_AT(gpt, recompute), 0, 0, 1, NULL,
      "keep what goes into each block alone, and compute the rest again in backward: less memory, "
      "the same bits" },
    { "tiles", TUTTI_INT, TUTTI_AT(gpt, tiles), 1, 1, TILES_MAX, NULL,
      "that each linear layer of a block is cut into by its outputs, each with parameters of its "
      "own: under zero and zero-infinity less of a layer is on the device" },
    { 0 },
};

/* A layer that gpt's options omit is in the list with `out` = OMITTED. */
enum { OMITTED = -1 };
static tutti_layer optional(bool there, tutti_layer layer)
{
    if (!there)
        layer.out = OMITTED;
    return layer;
}

static void append(tutti_layer layer, int block, tutti_layer *layers, int capacity, int *count)
{
    if (layer.out == OMITTED)
        return;
    if (*count < capacity) {
        layers[*count] = layer;
        if (block >= 0 && layer.name[0] != '\0')
            snprintf(layers[*count].name, sizeof layers[*count].name, "b.%d.%.3s", block % 1000,
                     layer.name);
    }
    ++*count;
}

/* Appends a layer of block `block`, split into tiles if it is linear. The first (out mod tiles)
   tiles have one output more than the others. */
static void append_tiles(tutti_layer layer, int tiles, int block, tutti_layer *layers, int capacity,
                         int *count)
{
    if (layer.kind != TUTTI_LAYER_LINEAR || tiles == 1) {
        append(layer, block, layers, capacity, count);
        return;
    }
    for (int k = 0; k < tiles; k++) {
        tutti_layer tile = layer;
        tile.out = layer.out / tiles + (k < layer.out % tiles);
        tile.tile = k;
        tile.tiles = tiles;
        append(tile, block, layers, capacity, count);
        if (*count <= capacity) {
            char *name = layers[*count - 1].name;
            const size_t length = strlen(name);
            snprintf(name + length, sizeof layer.name - length, ".%d", k % TILES_MAX);
        }
    }
}

static tutti_status gpt_layers(const void *self, const tutti_nn_task *task, tutti_layer *layers,
                               int capacity, int *count, tutti_error *err)
{
    const gpt *g = self;
    const int dim = (int)g->dim, heads = (int)g->heads;
    const double deviation = 0.02;
    const bool drops = g->dropout > 0, rotary = g->positions == GPT_ROTARY;
    const tutti_layer_kind norm =
        g->norm == GPT_RMS_NORM ? TUTTI_LAYER_RMS_NORM : TUTTI_LAYER_LAYER_NORM;
    const tutti_layer drop =
        optional(drops, (tutti_layer){ .kind = TUTTI_LAYER_DROPOUT, .rate = g->dropout });
    const tutti_layer begin[] = {
        { .kind = TUTTI_LAYER_EMBEDDING, .out = dim, .deviation = deviation, .name = "e" },
        optional(!rotary, (tutti_layer){ .kind = TUTTI_LAYER_POSITIONS, .deviation = deviation, .name = "pe" }), drop,
    }, block[] = {
        { .kind = TUTTI_LAYER_BRANCH },
        { .kind = norm, .name = "l1", .segment = g->recompute },
        { .kind = TUTTI_LAYER_LINEAR, .out = 3 * dim, .deviation = deviation, .name = "qkv" },
        optional(rotary, (tutti_layer){ .kind = TUTTI_LAYER_ROTARY, .heads = heads }),
        { .kind = TUTTI_LAYER_ATTENTION, .heads = heads },
        { .kind = TUTTI_LAYER_LINEAR, .out = dim, .deviation = deviation, .name = "o" },
        drop,
        { .kind = TUTTI_LAYER_JOIN },
        { .kind = TUTTI_LAYER_BRANCH },
        { .kind = norm, .name = "l2" },
        { .kind = TUTTI_LAYER_LINEAR, .out = 4 * dim, .deviation = deviation, .name = "f1" },
        { .kind = TUTTI_LAYER_GELU },
        { .kind = TUTTI_LAYER_LINEAR, .out = dim, .deviation = deviation, .name = "f2" },
        drop,
        { .kind = TUTTI_LAYER_JOIN },
    }, end[] = {
        { .kind = norm, .name = "ln" },
        { .kind = TUTTI_LAYER_LINEAR, .out = task->classes, .bare = true, .tied = g->tied, .deviation = deviation,
          .name = "head" },
    };

    *count = 0;
    if (task->context == 0)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "gpt needs windows of tokens; this task has samples of %d x %d x %d values; --data "
            "moby-dick is a text",
            task->channels, task->height, task->width);
    if (g->dim % g->heads != 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "gpt with dim=%lld and heads=%lld: dim must be a multiple of heads",
                          (long long)g->dim, (long long)g->heads);
    if (g->context != 0 && g->context != task->context)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "gpt with context=%lld on windows of %d tokens; give both the same "
                          "context, the data as --data 'text(file=F,context=%lld)'",
                          (long long)g->context, task->context, (long long)g->context);
    if (g->vocab != 0 && g->vocab != task->classes)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "gpt with vocab=%lld on data of %d different tokens; leave vocab out",
                          (long long)g->vocab, task->classes);
    if (g->tiles > g->dim)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "gpt with tiles=%lld and dim=%lld: a tile has one output at least, so "
                          "tiles must be %lld or fewer",
                          (long long)g->tiles, (long long)g->dim, (long long)g->dim);
    if (rotary && g->dim / g->heads % 2 != 0)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "gpt with dim=%lld, heads=%lld and positions=rotary: rotary positions turn pairs, so "
            "heads must be of an even width, not %lld",
            (long long)g->dim, (long long)g->heads, (long long)(g->dim / g->heads));
    for (size_t i = 0; i < TUTTI_LENGTH(begin); i++)
        append(begin[i], -1, layers, capacity, count);
    for (int b = 0; b < (int)g->layers; b++)
        for (size_t i = 0; i < TUTTI_LENGTH(block); i++)
            append_tiles(block[i], (int)g->tiles, b, layers, capacity, count);
    for (size_t i = 0; i < TUTTI_LENGTH(end); i++)
        append(end[i], -1, layers, capacity, count);
    return TUTTI_OK;
}

static const tutti_model_ops gpt_ops = {
    .name = "gpt",
    .title = "a GPT on windows of tokens: blocks of causal attention and a linear pair with GELU",
    .options = gpt_options,
    .self_bytes = sizeof(gpt),
    .layers = gpt_layers,
    .tokens = true,
};

const tutti_model_ops *const tutti_models[] = {
    &mlp_ops,        &cnn_ops,         &quadratic_ops, &logistic_ops,    &gpt_ops, &tutti_nn_wordlm,
    &tutti_nn_blstm, &tutti_nn_resnet, &tutti_nn_vgg,  &tutti_model_ctr, NULL
};

/* ---- from a spec to a network ---- */
static const tutti_model_ops *find_model(const char *name)
{
    for (size_t i = 0; tutti_models[i] != NULL; i++) {
        const char *a = tutti_models[i]->name, *b = name;
        while (*a != '\0' && *a == *b)
            a++, b++;
        if (*a == *b)
            return tutti_models[i];
    }
    return NULL;
}

static const tutti_model_ops *find_spec(const char *model)
{
    const tutti_model_ops *ops = NULL;
    tutti_spec *spec;

    if (tutti_spec_open(&spec, model, NULL) == TUTTI_OK) {
        ops = find_model(tutti_spec_name(spec));
        tutti_spec_close(spec);
    }
    return ops;
}

bool tutti_nn_takes_tokens(const char *model)
{
    const tutti_model_ops *ops = find_spec(model);
    return ops != NULL && ops->tokens;
}

bool tutti_nn_takes_categories(const char *model)
{
    const tutti_model_ops *ops = find_spec(model);
    return ops != NULL && ops->categories;
}

static tutti_status unknown(const char *name, tutti_error *err)
{
    const char *names[TUTTI_LENGTH(tutti_models)];
    char near[160], all[160] = "";
    size_t n = 0, used = 0;

    for (; tutti_models[n] != NULL; n++) {
        names[n] = tutti_models[n]->name;
        if (used < sizeof all)
            used += (size_t)snprintf(all + used, sizeof all - used, "%s%s", n == 0 ? "" : ", ",
                                     names[n]);
    }
    tutti_suggest(name, names, n, near, sizeof near);
    return tutti_fail(err, TUTTI_ERR_USAGE, 0, "there is no model '%.60s'%s; models are %s", name,
                      near, all);
}

tutti_status tutti_nn_net_model(nn_net *net, const char *model, const tutti_nn_task *task,
                                tutti_error *err)
{
    tutti_layer *layers = NULL;
    const tutti_model_ops *ops;
    tutti_spec *spec = NULL;
    tutti_status status;
    char what[64];
    void *self = NULL;
    int count = 0;

    *net = (nn_net){ 0 };
    if (model == NULL || task == NULL)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "building a network: no %s was given",
                          model == NULL ? "model" : "task");
    status = tutti_spec_open(&spec, model, err);
    if (status != TUTTI_OK)
        return tutti_fail_within(err, status, "model '%.60s'", model);

    ops = find_model(tutti_spec_name(spec));
    if (ops == NULL) {
        status = unknown(tutti_spec_name(spec), err);
        goto out;
    }
    snprintf(what, sizeof what, "model '%s'", ops->name);
    status = tutti_options_check(ops->options, what, ops->self_bytes, err);
    if (status != TUTTI_OK)
        goto out;
    self = tutti_alloc(1, ops->self_bytes);
    if (self == NULL) {
        status = tutti_fail(err, TUTTI_ERR_MEMORY, 0,
                            "model '%s': no memory for its %zu bytes of options", ops->name,
                            ops->self_bytes);
        goto out;
    }
    status = tutti_spec_apply(spec, what, ops->options, self, err);
    if (status == TUTTI_OK)
        status = ops->layers(self, task, NULL, 0, &count, err);
    if (status == TUTTI_OK && (layers = tutti_alloc((size_t)count, sizeof *layers)) == NULL)
        status = tutti_fail(err, TUTTI_ERR_MEMORY, 0, "model '%s': no memory for its %d layers",
                            ops->name, count);
    if (status == TUTTI_OK)
        status = ops->layers(self, task, layers, count, &count, err);
    if (status == TUTTI_OK)
        status = tutti_nn_net_build(net, layers, count, task, err);
out:
    tutti_free(layers);
    tutti_free(self);
    tutti_spec_close(spec);
    return status;
}
