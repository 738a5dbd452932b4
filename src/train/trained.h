/* trained.h: use of a trained model: evaluation, classification, generation of text. */
#ifndef TUTTI_TRAINED_H
#define TUTTI_TRAINED_H
#include "data/data.h"
#include "nn/nn.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* ---- inputs of a model: model.json of a run's directory, written when the run begins ---- */
enum { TUTTI_CLASSES_NAMED_MOST = 256 };
typedef struct tutti_trained_facts {
    const char *model, *data;     /* their specs in the run */
    tutti_nn_task task;
    tutti_dtype precision;        /* of the network's products */
    bool pixels;                  /* its samples are images of bytes, normalised by these */
    float mean, deviation;
    uint64_t encoding;            /* of tokens: tutti_bpe_hash of their encoding; 0: bytes */
    /* Name of class k, or no names at all. */
    const char *class_name[TUTTI_CLASSES_NAMED_MOST];
    int classes_named;
} tutti_trained_facts;

/* ---- a model ---- */
typedef struct tutti_trained tutti_trained;
/* run: one of these, each with model.json in it or above it:
     - a run's directory: its model.safetensors, else its newest valid checkpoint;
     - one checkpoint, or the folder of a run's checkpoints;
     - a safetensors file with the model's names (docs/PYTORCH-MODELS.md).

   The model of a checkpoint is that of all workers, or of the servers; where workers' models
   differ, their mean. threads: of the network; 0: 1. Blocks. */
tutti_status tutti_trained_open(tutti_trained **out, tutti_runtime *rt, const char *run,
                                int threads, tutti_error *err);
void tutti_trained_close(tutti_trained *t);
const tutti_trained_facts *tutti_trained_facts_of(const tutti_trained *t);
const char *tutti_trained_weights(const tutti_trained *t); /* the file or the checkpoint */
size_t tutti_trained_parameters(const tutti_trained *t);

/* ---- evaluation ---- */
typedef enum { TUTTI_SPLIT_TEST, TUTTI_SPLIT_TRAIN, TUTTI_SPLIT_ALL } tutti_trained_split;
typedef struct tutti_evaluation {
    uint64_t samples;
    double loss;                  /* the mean */
    double accuracy, auc;         /* -1: none */
    bool tokens;                  /* exp(loss) is a perplexity */
} tutti_evaluation;

/* data: as for --data; NULL: the run's training data. Images are normalised as in the run.
   most: use only the first `most` samples; 0: all. logits: a safetensors file to write: "logits"
   (samples x classes; of tokens samples x context x vocabulary; of clicks samples) and "labels";
   NULL: none. TUTTI_ERR_USAGE: data that the model does not accept, or whose classes have other
   names. Blocks. */
tutti_status tutti_trained_evaluate(tutti_trained *t, const char *data, const char *installed,
                                    tutti_trained_split split, uint64_t most, const char *logits,
                                    tutti_evaluation *result, tutti_error *err);

/* ---- single inputs ---- */
/* Does the model accept pictures: square images of one or three channels? */
tutti_status tutti_trained_takes_pictures(const tutti_trained *t, tutti_error *err);
/* pixels: n x channels x height x width bytes. logits: n x classes. */
tutti_status tutti_trained_classify(tutti_trained *t, const uint8_t *pixels, size_t n,
                                    float *logits, tutti_error *err);

/* Logits of the token that follows n tokens, whose last `context` are used: `classes` floats.
   TUTTI_ERR_USAGE: not a model of tokens, or n is 0. TUTTI_ERR_CORRUPT: a token outside the
   vocabulary. */
tutti_status tutti_trained_next(tutti_trained *t, const uint32_t *tokens, size_t n, float *logits,
                                tutti_error *err);

/* softmax(logits / temperature) over the top_k largest (0: all; of equal ones the lower index
   first). */
typedef struct tutti_sampling { double temperature; int64_t top_k; uint64_t seed; } tutti_sampling;
/* A draw from it, the index-th of its seed. temperature 0: the largest, of equal ones the lowest
   index. The last argument is scratch of n floats. NaN logits are never drawn; -1: all are NaN. */
int64_t tutti_sample(const tutti_sampling *how, const float *logits, size_t n, uint64_t index,
                     float *room);
/* p[k] of softmax(logits), in double. */
void tutti_probabilities(const float *logits, size_t n, double *p);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
