/* trained.h: a model that a run has left, to be used: evaluated, asked for classes, for text. */
#ifndef TUTTI_TRAINED_H
#define TUTTI_TRAINED_H
#include "data.h"
#include "nn.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* ---- what a model takes: model.json of a run's directory, written when the run begins ---- */
enum { TUTTI_CLASSES_NAMED_MOST = 256 };
typedef struct tutti_trained_facts {
    const char *model, *data;     /* their specs, as the run had them */
    tutti_nn_task task;
    tutti_dtype precision;        /* of the network's products */
    bool pixels;                  /* its samples are images of bytes, normalised by these */
    float mean, deviation;
    uint64_t encoding;            /* of tokens: tutti_bpe_hash of what made them; 0: bytes */
    /* class_name[k] of class k, or none at all. */
    const char *class_name[TUTTI_CLASSES_NAMED_MOST];
    int classes_named;
} tutti_trained_facts;

/* ---- a model ---- */
typedef struct tutti_trained tutti_trained;
/* run: one of these, each with model.json in it or above it:
     - a run's directory: its model.safetensors, else its newest valid checkpoint;
     - one checkpoint, or the folder of a run's checkpoints;
     - a safetensors file with the model's names (docs/PYTORCH-MODELS.md).

   The model of a checkpoint is what all workers have, or the servers; where workers have models of
   their own, the mean of these. threads: of the network; 0: 1. Blocks. */
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

/* data: as --data has it; NULL: what the run was trained on. Images are normalised as the run's
   were. most: of the samples, the first so many; 0: all. logits: a safetensors file to write:
   "logits" (samples x classes; of tokens samples x context x vocabulary; of clicks samples) and
   "labels"; NULL: none. TUTTI_ERR_USAGE: data that the model cannot take, or whose classes have
   other names. Blocks. */
tutti_status tutti_trained_evaluate(tutti_trained *t, const char *data, const char *installed,
                                    tutti_trained_split split, uint64_t most, const char *logits,
                                    tutti_evaluation *result, tutti_error *err);

/* ---- one at a time ---- */
/* May it be asked about pictures: images of one or three channels, as high as wide? */
tutti_status tutti_trained_takes_pictures(const tutti_trained *t, tutti_error *err);
/* pixels: n x channels x height x width bytes. logits: n x classes. */
tutti_status tutti_trained_classify(tutti_trained *t, const uint8_t *pixels, size_t n,
                                    float *logits, tutti_error *err);

/* Logits of what follows n tokens, of which the last `context` are looked at: classes floats.
   TUTTI_ERR_USAGE: no model of tokens, or none was given. TUTTI_ERR_CORRUPT: a token that is none
   of the vocabulary. */
tutti_status tutti_trained_next(tutti_trained *t, const uint32_t *tokens, size_t n, float *logits,
                                tutti_error *err);

/* softmax(logits / temperature) over the top_k largest (0: all; of equals the lower first). */
typedef struct tutti_sampling { double temperature; int64_t top_k; uint64_t seed; } tutti_sampling;
/* A draw from it, the index-th of its seed. temperature 0: the largest, of equals the lowest.
   room: n floats. Logits that are no numbers are never drawn; -1: all are. */
int64_t tutti_sample(const tutti_sampling *how, const float *logits, size_t n, uint64_t index,
                     float *room);
/* p[k] of softmax(logits), in double. */
void tutti_probabilities(const float *logits, size_t n, double *p);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
