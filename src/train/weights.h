/* weights.h: the tensors of a network in a safetensors file. */
#ifndef TUTTI_TRAIN_WEIGHTS_H
#define TUTTI_TRAIN_WEIGHTS_H
#include "nn/nn.h"
#include "runtime/files.h"

typedef struct tutti_tensors {
    const tutti_nn_param *params;         /* [n_params] */
    int n_params;
    const tutti_nn_statistic *statistics; /* [n_statistics] */
    int n_statistics;
} tutti_tensors;
/* Opens a file that has exactly these tensors, with these shapes and elements that are floats.
   TUTTI_ERR_USAGE: it does not; the sentence names the first misfits. model: for that sentence. */
tutti_status tutti_train_weights_open(tutti_tensor_file **out, tutti_runtime *rt, const char *path,
                                      const char *model, const tutti_tensors *of,
                                      tutti_error *err);
/* Reads one of them, `count` elements, as float32. TUTTI_ERR_CORRUPT: an element is not finite. */
tutti_status tutti_train_weights_read(tutti_tensor_file *f, const char *path, const char *name,
                                      size_t count, float *values, tutti_error *err);
#endif
