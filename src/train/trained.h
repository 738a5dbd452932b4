/* trained.h: uses a trained model: evaluation, classification, generation of text.

   Included by the commands eval, predict and generate (src/cli), by train_internal.h and by tests.
   Implemented in src/train: trained.c, trained_evaluate.c, sample.c. */
#ifndef TUTTI_TRAINED_H
#define TUTTI_TRAINED_H
#include "data/data.h"
#include "nn/nn.h"
#include "tutti/files.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

enum { TUTTI_CLASSES_NAMED_MOST = 256 };
/* What model.json of a run's directory contains: the model and its input. Its texts live as long as
   the tutti_trained or tutti_model_file that they come from. */
typedef struct tutti_trained_facts {
    const char *model, *data;     /* options of the run */
    tutti_nn_task task;           /* shape of a sample, number of classes */
    tutti_dtype precision;        /* of the network's products */
    bool pixels;                  /* samples are images of bytes, normalised as
                                     (byte / 255 - mean) / deviation */
    float mean, deviation;
    uint64_t encoding;            /* of tokens: tutti_bpe_hash of their encoding; 0: tokens are
                                     bytes, or samples are no tokens */
    const char *class_name[TUTTI_CLASSES_NAMED_MOST]; /* [classes_named] */
    int classes_named;            /* the number of classes, or 0: classes have no names */
} tutti_trained_facts;

/* ---- a model ---- */
/* A model with its values. One thread at a time. */
typedef struct tutti_trained tutti_trained;
/* Opens a model. run is one of these, with model.json in it or in a folder above:
     - a run's directory: reads its model.safetensors, else its newest valid checkpoint;
     - one checkpoint, or the folder of a run's checkpoints;
     - a safetensors file with the model's names (docs/PYTORCH-MODELS.md).

   The model of a checkpoint is the mean of the workers' models, or the model at the servers.
   threads: of the network; 0: 1. rt: kept. Blocks. */
tutti_status tutti_trained_open(tutti_trained **out, tutti_runtime *rt, const char *run,
                                int threads, tutti_error *err);
void tutti_trained_close(tutti_trained *t); /* NULL is allowed */
const tutti_trained_facts *tutti_trained_facts_of(const tutti_trained *t);
/* Returns the path of the file or checkpoint that has the values. */
const char *tutti_trained_weights(const tutti_trained *t);
size_t tutti_trained_parameters(const tutti_trained *t); /* elements of the model */

/* Returns how many tensors the model has, running statistics among them. entries: NULL, or set to
   them, with the model's values as data, which live as long as t. */
size_t tutti_trained_tensors(const tutti_trained *t, tutti_tensor_entry *entries);

/* ---- evaluation ---- */
typedef enum { TUTTI_SPLIT_TEST, TUTTI_SPLIT_TRAIN, TUTTI_SPLIT_ALL } tutti_trained_split;
typedef struct tutti_evaluation {
    uint64_t samples;             /* that were evaluated */
    double loss;                  /* mean over the samples */
    double accuracy, auc;         /* auc -1: samples are no clicks, or have only one label */
    bool tokens;                  /* samples are tokens: exp(loss) is a perplexity */
} tutti_evaluation;

/* Evaluates the model on data. data: as for --data; NULL: the data of the run. installed: folder of
   installed data sets, or NULL. Images are normalised as in the run. most: use only the first
   `most` samples; 0: all. logits: path of a safetensors file to write, with the tensors "logits"
   (samples x classes; of tokens samples x context x vocabulary; of clicks samples) and "labels";
   NULL: none. TUTTI_ERR_USAGE: the model does not accept the data, or their classes have other
   names. Blocks. */
tutti_status tutti_trained_evaluate(tutti_trained *t, const char *data, const char *installed,
                                    tutti_trained_split split, uint64_t most, const char *logits,
                                    tutti_evaluation *result, tutti_error *err);

/* ---- single inputs ---- */
/* Returns TUTTI_OK if the model accepts pictures: square images of one or three channels. Else
   TUTTI_ERR_USAGE. */
tutti_status tutti_trained_takes_pictures(const tutti_trained *t, tutti_error *err);
/* Computes the logits of n images. pixels: n x channels x height x width bytes. logits: n x
   classes, written. */
tutti_status tutti_trained_classify(tutti_trained *t, const uint8_t *pixels, size_t n,
                                    float *logits, tutti_error *err);

/* Computes the logits of the token that follows n tokens, from the last `context` of them. logits:
   `classes` floats, written. TUTTI_ERR_USAGE: not a model of tokens, or n is 0. TUTTI_ERR_CORRUPT:
   a token outside the vocabulary. */
tutti_status tutti_trained_next(tutti_trained *t, const uint32_t *tokens, size_t n, float *logits,
                                tutti_error *err);

/* The distribution softmax(logits / temperature) over the top_k largest logits. */
typedef struct tutti_sampling {
    double temperature;           /* 0: always the largest logit, of equal ones the first */
    int64_t top_k;                /* 0: all. Of equal logits those with lower indexes come first */
    uint64_t seed;
} tutti_sampling;
/* Returns the index of a logit, drawn from the distribution: the index-th draw of its seed. NaN
   logits are never drawn; -1: all are NaN. n: number of logits. scratch: n floats. */
int64_t tutti_sample(const tutti_sampling *how, const float *logits, size_t n, uint64_t index,
                     float *scratch);
/* Sets p[n] to softmax(logits). */
void tutti_probabilities(const float *logits, size_t n, double *p);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
