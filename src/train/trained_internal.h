/* trained_internal.h: what the files of a trained model share. */
#ifndef TUTTI_TRAINED_INTERNAL_H
#define TUTTI_TRAINED_INTERNAL_H
#include "train_internal.h"

struct tutti_trained {
    tutti_runtime *rt;
    tutti_model_file file;
    char weights[4300];
    bool of_file;                    /* or of a checkpoint */
    tutti_tensors tensors;
    tutti_nn_param *params;
    tutti_nn_statistic *statistics;
    size_t parameters, own;          /* elements of them */
    float *memory, *running;
    const float **values;            /* of each parameter, in memory */
    int threads;
    tutti_nn *nn, *asked;            /* the second takes one window of tokens at a time; NULL: not
                                        opened yet */
};
#endif
