/* trained_internal.h: the structure of a trained model. Included by the files that implement it,
   trained.c and trained_evaluate.c. */
#ifndef TUTTI_TRAINED_INTERNAL_H
#define TUTTI_TRAINED_INTERNAL_H
#include "model_file.h"
#include "train_internal.h"
#include "weights.h"

struct tutti_trained {
    tutti_runtime *rt;
    tutti_model_file file;           /* model.json */
    char weights[4300];              /* path of the file or checkpoint with the values */
    bool of_file;                    /* weights is a safetensors file; else a checkpoint */
    tutti_tensors tensors;           /* params and statistics */
    tutti_nn_param *params;
    tutti_nn_statistic *statistics;
    size_t parameters;               /* elements of all params */
    size_t own;                      /* elements of all statistics */
    float *memory;                   /* [parameters] */
    float *running;                  /* [own + 1]: running statistics */
    const float **values;            /* [n_params]: where each parameter is in memory */
    int threads;                     /* of the networks */
    tutti_nn *nn;                    /* for many samples at a time */
    tutti_nn *nn_window;             /* for one window of tokens; NULL until it is needed */
};
#endif
