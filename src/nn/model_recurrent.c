/* model_recurrent.c: the recurrent models: a language model over a large vocabulary (Parallax's
   case) and an acoustic one. */
#include <stdio.h>

#include "nn_internal.h"

/* ---- wordlm: each window begins with zeros: no state goes from sample to sample, so that samples
   may be shared out and drawn in any order ---- */
typedef struct wordlm { int64_t vocab, dim, hidden; } wordlm;
static const tutti_option wordlm_options[] = {
    { "vocab", TUTTI_INT, TUTTI_AT(wordlm, vocab), 0, 0, 1 << 20, NULL,
      "different tokens; 0: as many as the data has" },
    { "dim", TUTTI_INT, TUTTI_AT(wordlm, dim), 256, 1, 65536, NULL,
      "values of a token's row, and of the vector from which the next token is predicted" },
    { "hidden", TUTTI_INT, TUTTI_AT(wordlm, hidden), 512, 1, 65536, NULL,
      "values of the LSTM; if not dim, a linear layer follows it" },
    { 0 },
};

static tutti_status wordlm_layers(const void *self, const tutti_nn_task *task, tutti_layer *layers,
                                  int capacity, int *count, tutti_error *err)
{
    const wordlm *w = self;
    const tutti_layer list[] = {
        { .kind = TUTTI_LAYER_EMBEDDING, .out = (int)w->dim, .name = "e" },
        { .kind = TUTTI_LAYER_LSTM, .out = (int)w->hidden, .name = "lstm" },
        { .kind = TUTTI_LAYER_LINEAR, .out = (int)w->dim, .name = "p" },
        { .kind = TUTTI_LAYER_LINEAR, .out = task->classes, .name = "head" },
    };

    *count = 0;
    if (task->context == 0)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "wordlm needs windows of tokens; this task has samples of %d x %d x %d values; --data "
            "moby-dick is a text",
            task->channels, task->height, task->width);
    if (w->vocab != 0 && w->vocab != task->classes)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "wordlm with vocab=%lld on data of %d different tokens; leave vocab out",
                          (long long)w->vocab, task->classes);
    for (size_t i = 0; i < TUTTI_LENGTH(list); i++) {
        if (i == 2 && w->dim == w->hidden)
            continue;
        if (*count < capacity)
            layers[*count] = list[i];
        ++*count;
    }
    return TUTTI_OK;
}

const tutti_model_ops tutti_nn_wordlm = {
    .name = "wordlm",
    .title = "a language model: embedding, LSTM, softmax over a large vocabulary",
    .options = wordlm_options,
    .self_bytes = sizeof(wordlm),
    .layers = wordlm_layers,
    .tokens = true,
};

/* ---- blstm: nn.LSTM(num_layers=layers, bidirectional=True), the mean over the frames, a linear
   layer. An image is taken row by row, so it runs on any samples of one channel ---- */
typedef struct blstm { int64_t layers, hidden; bool recompute; } blstm;
static const tutti_option blstm_options[] = {
    { "layers", TUTTI_INT, TUTTI_AT(blstm, layers), 2, 1, 100, NULL,
      "of LSTMs, each in both directions" },
    { "hidden", TUTTI_INT, TUTTI_AT(blstm, hidden), 128, 1, 65536, NULL, "values of a direction" },
    { "recompute", TUTTI_BOOL, TUTTI_AT(blstm, recompute), 0, 0, 1, NULL,
      "keep what goes into each LSTM alone, and compute the rest again in backward: less memory, "
      "the same bits" },
    { 0 },
};

static tutti_status blstm_layers(const void *self, const tutti_nn_task *task, tutti_layer *layers,
                                 int capacity, int *count, tutti_error *err)
{
    const blstm *m = self;

    *count = 0;
    if (task->context != 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "blstm needs samples of frames, and the task has windows of %d tokens; "
                          "wordlm takes tokens",
                          task->context);
    if (task->height < 2)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "blstm needs samples of several frames; this task has samples of %d x %d x %d values",
            task->channels, task->height, task->width);
    *count = (int)m->layers + 3;
    for (int i = 0; i < *count && i < capacity; i++) {
        if (i == 0)
            layers[i] = (tutti_layer){ .kind = TUTTI_LAYER_FRAMES };
        else if (i == *count - 1)
            layers[i] =
                (tutti_layer){ .kind = TUTTI_LAYER_LINEAR, .out = task->classes, .name = "head" };
        else if (i == *count - 2)
            layers[i] = (tutti_layer){ .kind = TUTTI_LAYER_MEAN };
        else
            layers[i] = (tutti_layer){ .kind = TUTTI_LAYER_LSTM,
                                       .out = (int)m->hidden,
                                       .both = true,
                                       .segment = m->recompute && i > 1 };
        if (layers[i].kind == TUTTI_LAYER_LSTM)
            snprintf(layers[i].name, sizeof layers[i].name, "lstm.%d", (i - 1) % 1000);
    }
    return TUTTI_OK;
}

const tutti_model_ops tutti_nn_blstm = {
    .name = "blstm",
    .title = "LSTMs in both directions over the frames of a sample, their mean, one linear layer",
    .options = blstm_options,
    .self_bytes = sizeof(blstm),
    .layers = blstm_layers,
};
